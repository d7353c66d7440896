import numpy as np
import torch

A = np.array([0.5, 1.0, 2.0, 4.0], dtype=np.float32)


# %% `x.numpy()`, `x.cpu().detach().numpy()`, `torch.from_numpy(a)`, `torch.tensor(a)`
# message: Tensor.numpy, call_method TensorVariable() numpy
# message: torch.from_numpy
def f(x):
    a = x.detach().cpu().numpy()
    return torch.from_numpy(a * 2) + torch.tensor(a) + torch.as_tensor(a)
# %% an array as an argument or a global: `np.sin(a)`, `a + 1`, `a @ b`
# message: numpy.ndarray, NumpyNdarrayVariable
args = (A,)
def f(a):
    return np.sin(a) + A @ a + a.sum()
# %% `np.sum`, `mean`, `std`, `max`, `argmax`, `sort`, `cumsum`, `clip`, `where`, `exp`
# message: Unsupported: numpy.<function sum>()
def f(x):
    a = x.numpy()
    b = np.where(a > 1, np.exp(a), np.clip(a, 0, 1)) + np.cumsum(np.sort(a)) + np.std(a)
    return torch.from_numpy(b) + np.argmax(a) + np.mean(a) + np.max(a) + np.sum(a)
# %% `np.zeros`, `ones`, `arange`, `linspace`, `eye`, `full`, `zeros_like`, `array([...])`
# message: Unsupported: numpy.<function linspace at 0x...>()
def f(x):
    a = np.zeros(4) + np.ones(4) + np.arange(4) + np.linspace(0, 1, 4) + np.eye(4)[0] + np.full(4, 2) + np.array([1, 2, 3, 4])
    return x + torch.from_numpy(a + np.zeros_like(a))
# %% `np.concatenate`, `stack`, `reshape`, `transpose`, `expand_dims`, `repeat`
# message: Unsupported: numpy.<function concatenate>()
def f(x):
    a = np.stack([x.numpy(), x.numpy()]).transpose(1, 0).reshape(2, 4)
    return x + torch.from_numpy(np.concatenate([a, a])[0] + np.expand_dims(a, 0)[0, 1] + np.repeat(a, 2)[:4])
# %% `np.linalg.norm`, `solve`, `np.dot`, `np.outer`, `np.einsum`
# message: graph break in compiling np.linalg.norm and other np.linalg functions
def f(x):
    a = np.outer(x.numpy(), x.numpy()) + np.eye(4)
    return x + torch.from_numpy(np.linalg.solve(a, np.ones(4)) + np.linalg.norm(a) + np.dot(a, a)[0] + np.einsum("ij->i", a))
# %% `np.fft.fft`
# message: Unsupported: numpy.fft
# do: The result is float64, as in NumPy 1; `.astype(np.float32)` in both.
def f(x):
    return x + torch.from_numpy(np.fft.fft(x.numpy()).real)
# %% `a.astype(int)`, `a.astype(np.float64)`, `np.float32(2)`
# message: Graph break in compiled NumPy .astype(int)
def f(x):
    a = x.numpy()
    return x + torch.from_numpy(a.astype(int) + a.astype(np.float64)) + np.float32(2)
# %% `len(a)`, `a.shape`, `a.ndim`, `a.size`, `a.T`
# message: Graph break in len(numpy_array) in compiled NumPy
def f(x):
    a = x.numpy()
    return x * len(a) + a.shape[0] + a.ndim + a.size + torch.from_numpy(a.T)
# %% `a.dtype`
# message: Unsupported ndarray attribute access, numpy dtype
# do: Ask the tensor: `x.dtype`, `x.is_floating_point()`.
def f(x):
    return x + (x.numpy().dtype == np.float32)
# %% `a[0] = 1`, `a[a > 1] = 0`, `a += 1`, `a.copy()`
# message: call_method NumpyNdarrayVariable() __setitem__
def f(x):
    a = x.numpy().copy()
    a[0] = 1
    a[a > 1] = 0
    a += 1
    return torch.from_numpy(a)
# %% `float(a[0])`
# message: aten._local_scalar_dense.default
# do: Keep the array, or the tensor.
def f(x):
    return x * float(x.numpy()[0])
# %% `a.tolist()`
# message: call_method NumpyNdarrayVariable() tolist
# do: Keep the tensor.
def f(x):
    return x * sum(x.numpy().tolist())
# %% `if a.max() > 1`
# message: Data-dependent branching with non-constant __bool__ method
# do: Use `np.where`, or `torch.where`.
def f(x):
    return x + 1 if x.numpy().max() > 1 else x
# %% `np.random.rand()`
# message: Unsupported: numpy.random
# do: Draw before the call, or with `torch.rand`.
def f(x):
    return x + np.random.rand()
# %% `rng = np.random.default_rng(0)`; `rng.normal()`
# message: call_method UserDefinedObjectVariable(Generator)
# do: Draw before the call, or with `torch.randn`.
RNG = np.random.default_rng(0)
def f(x):
    return x + RNG.normal()
# %% `np.sqrt(n)` of a number
# message: call_function NumpyVariable
# do: Use `math.sqrt`: the result stays a number, which no graph has to compute.
def f(x):
    return x / np.sqrt(x.shape[0])
# %% `torch.zeros(int(np.prod(x.shape)))`: a number of NumPy as a size
# message: call_function zeros NumpyNdarrayVariable, Unsupported: numpy.prod
# do: Use `math.prod(shape)`.
def f(x):
    return torch.zeros(int(np.prod(x.shape))) + x
# %% `np.pi`, `np.newaxis`
# message: NumpyVariable
def f(x):
    return x[np.newaxis] * np.pi
# %% `np.vectorize(function)`
# message: UserDefinedObjectVariable(vectorize)
# do: Write the function with operations on arrays.
def f(x):
    return x + torch.from_numpy(np.vectorize(lambda n: n + 1)(x.numpy()))
# %% an array of strings
# message: NumPy array of dtype object, can't convert np.ndarray of type numpy.str_
# do: Keep texts out of the compiled function.
args = (torch.ones(2), np.array(["a", "b"]))
def f(x, names):
    return x * len(names)
# %% `np.interp(...)`
# message: Unsupported: numpy.<function interp>()
# do: Interpolate before or after the call.
def f(x):
    return x + torch.from_numpy(np.interp(x.numpy(), [0.0, 4.0], [0.0, 1.0]))
# %% `np.unique(a)`
# message: Unsupported: numpy.<function unique>()
# do: Call `np.unique` before or after the compiled function runs.
def f(x):
    return x + len(np.unique(x.numpy()))
# %% `np.bincount(a)`
# message: Unsupported: numpy.<function bincount>()
# do: Call `np.bincount` before or after the compiled function runs.
def f(x):
    return x + torch.from_numpy(np.bincount(x.numpy().astype(int)))[0]
# %% `np.save(...)`
# message: Attempted to call function marked as skipped: numpy.save
# do: Save the array before or after the call.
import io
def f(x):
    np.save(io.BytesIO(), np.ones(2))
    return x + 1
# %% `a.tobytes()`
# message: call_method NumpyNdarrayVariable() tobytes
# do: Convert the array before or after the call.
def f(x):
    return x * len(x.numpy().tobytes())
