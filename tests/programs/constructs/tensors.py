import math

import torch
import torch.nn.functional as F


# %% `torch.zeros`, `ones`, `arange`, `linspace`, `full`, `eye`, `new_zeros`, `new_tensor`
# message: call_function torch.zeros, torch.* op returned non-Tensor
def f(x):
    n = x.shape[0]
    y = torch.zeros(n) + torch.ones_like(x) + torch.arange(n) + torch.linspace(0, 1, n) + torch.full((n,), 2.0)
    return y + torch.eye(n)[0] + x.new_zeros(n) + x.new_tensor([1.0])
# %% `torch.tensor([1, 2])`, `torch.tensor(n)`, `torch.as_tensor(values)`
# message: call_function torch.tensor, torch.tensor call with list of tensors
def f(x):
    return x + torch.tensor([1, 2, 3, x.shape[0]]) + torch.tensor(2.0) + torch.as_tensor(3)
# %% `torch.tensor([x, y])` of tensors
# message: torch.tensor call with list of tensors
def f(x):
    return torch.tensor([x[0], x[1]])
# %% `torch.FloatTensor([1.0])`, `torch.Tensor([1])`
# message: call_function UserDefinedClassVariable(torch.FloatTensor), torch.Tensor() constructor
def f(x):
    return x + torch.FloatTensor([1.0]) + torch.Tensor([1])
# %% `x.shape`, `size(0)`, `dim()`, `numel()`, `ndim`, `stride()`, `is_contiguous()`, `element_size()`
# message: call_method TensorVariable() stride
def f(x):
    return x * x.shape[0] * x.size(0) * x.dim() * x.numel() * x.ndim + x.stride(0) + x.is_contiguous() + x.element_size()
# %% `x.dtype == torch.float32`, `x.is_floating_point()`, `torch.finfo(x.dtype).min`, `torch.iinfo`
# message: torch.finfo, call_function UserDefinedClassVariable(torch.finfo)
def f(x):
    return x.clamp(min=torch.finfo(x.dtype).min / 2) + x.is_floating_point() + torch.iinfo(torch.int8).max + (x.dtype == torch.float32)
# %% `x.device`, `x.is_cuda`, `x.device.type == "cuda"`, `x.get_device()`, `torch.device("cpu")`
# message: can not get device of, call_function torch.device
def f(x):
    return x.to(torch.device("cpu")) + x.is_cuda + (x.device.type == "cuda") + x.get_device()
# %% `x.to(dtype)`, `x.float()`, `x.half()`, `x.type(torch.int64)`, `x.type_as(y)`, `x.cpu()`
# message: call_method TensorVariable() type
def f(x):
    return x.to(torch.float64).float() + x.half().float() + x.type(torch.int64).type_as(x) + x.cpu()
# %% `x.type()`: the name of a type
# message: call_method TensorVariable() type [] {}
def f(x):
    return x + (x.type() == "torch.FloatTensor")
# %% `torch.cuda.is_available()`
# message: torch.cuda.is_available
def f(x):
    return x + torch.cuda.is_available() + 1
# %% `torch.cuda.device_count()`
# message: call_function torch.cuda.device_count, torch.* op returned non-Tensor int
# do: Count the devices before the call.
def f(x):
    return x + torch.cuda.device_count()
# %% `torch.backends.mps.is_available()`
# message: torch.* op returned non-Tensor bool call_function
# do: Look for the device before the call.
def f(x):
    return x + torch.backends.mps.is_available()
# %% `torch.get_default_dtype()`, `torch.is_grad_enabled()`, `torch.is_tensor(x)`, `torch.is_complex(x)`, `torch.is_autocast_enabled()`
# message: torch.is_complex
def f(x):
    return x.to(torch.get_default_dtype()) + torch.is_grad_enabled() + torch.is_tensor(x) + torch.is_complex(x) + torch.is_autocast_enabled()
# %% `torch.get_autocast_gpu_dtype()`, `torch.get_autocast_dtype("cpu")`
# message: torch.get_autocast_gpu_dtype, torch.* op returned non-Tensor dtype call_function
def f(x):
    return x.to(torch.get_autocast_gpu_dtype()) + x.to(torch.get_autocast_dtype("cpu"))
# %% `torch.set_default_dtype(torch.float64)` inside
# message: call_function torch.set_default_dtype
# do: Set the default type before the call, and pass `dtype=`: `aot_eager` and inductor ignore the default.
def f(x):
    torch.set_default_dtype(torch.float64)
    return x + torch.ones(4)
# %% `x[0]`, `x[:, None]`, `x[..., 1:]`, `x[[0, 2]]`, `x[i, j]`, `x[::2]`
# message: call_method TensorVariable() __getitem__
def f(x):
    y = x.view(2, 2)
    return y[:, None][..., 1:].sum() + x[[0, 2]].sum() + y[torch.tensor([0, 1]), torch.tensor([1, 0])].sum() + x[::2].sum()
# %% `x[n]`, `x[n:m]` with numbers that are arguments
# message: call_method TensorVariable() __getitem__ [SymNodeVariable()]
args = (torch.ones(4), 1, 3)
def f(x, n, m):
    return x[n] + x[n:m].sum()
# %% `torch.cat`, `gather`, `scatter_add`, `topk`, `sort`, `cumsum`, `where`, `einsum`
# message: call_function torch.cat
def f(x):
    i = torch.tensor([0, 1, 1, 0])
    y = torch.cat([x, x]).view(2, 4).sum(0) + x.gather(0, i) + torch.zeros(4).scatter_add(0, i, x)
    return y + x.topk(4).values + x.sort().values + x.cumsum(0) + torch.einsum("i,j->i", x, x) + torch.where(x > 1, x, 0.0)
# %% `F.interpolate` with a factor or a size, `F.pad`
# message: call_function torch.nn.functional.interpolate
def f(x):
    y = F.pad(x.view(1, 1, 2, 2), (1, 1, 1, 1))
    return F.interpolate(y, scale_factor=2, mode="bilinear") + F.interpolate(y, size=(8, 8))
# %% `torch.fft.rfft`, `irfft`, `torch.view_as_complex`, `view_as_real`
# message: Torchinductor does not support code generation for complex operators
def f(x):
    return torch.fft.irfft(torch.fft.rfft(x), 4) + torch.view_as_real(torch.view_as_complex(x.view(2, 2))).view(4)
# %% complex tensors: `torch.polar`, `torch.complex`, `.real`
# message: Torchinductor does not support code generation for complex operators. Performance may be worse than eager.
# do: Inductor runs complex operations as PyTorch does, without fusing them.
def f(x):
    return (torch.polar(x, x) * torch.complex(x, x)).real + x
# %% `torch.linalg.inv`, `eigh`, `cholesky`, `qr`, `det`
# message: aten.linalg_eigh
def f(x):
    m = torch.outer(x, x) + 5 * torch.eye(4)
    return torch.linalg.inv(m) + torch.linalg.cholesky(m) + torch.linalg.det(m) + torch.linalg.qr(m).R + torch.linalg.eigh(m).eigenvalues
# %% `torch.linalg.lstsq(a, b)`
# message: dynamic shape operator: aten.linalg_lstsq
# do: Use `torch.linalg.qr` and `solve_triangular`.
def f(x):
    return torch.linalg.lstsq(torch.eye(4), x.view(4, 1)).solution
# %% a function decorated with `torch.jit.script`
# message: inline in skipfiles: torch.jit, ScriptFunction
# do: A scripted *module* breaks ([GB4695](causes/gb4695.md)): call the Python module.
@torch.jit.script
def scripted(x):
    return x + 1
def f(x):
    return scripted(x) * 2
# %% `torch.jit.is_scripting()`, `torch.compiler.is_compiling()`
# message: torch.jit.is_scripting
def f(x):
    return x + torch.jit.is_scripting() + (2 if torch.compiler.is_compiling() is not None else 3)
# %% `x.__class__`, `x.__len__()`, `torch.Tensor.add(x, 1)`, `torch.ops.aten.add.Tensor(x, 1)`
# message: call_function method_descriptor, torch.ops.aten
def f(x):
    return torch.Tensor.add(x, 1) + torch.ops.aten.add.Tensor(x, 1) + x.__len__() + (x.__class__ is torch.Tensor)
# %% `torch.save(...)`
# message: inline in skipfiles: torch.save
# do: Save after the call.
import io
def f(x):
    torch.save({"n": 1}, io.BytesIO())
    return x + 1
# %% `copy.copy(x)` of a tensor
# message: inline in skipfiles: copy.copy
# do: Use `x.view_as(x)`.
import copy
def f(x):
    return copy.copy(x) * 2
# %% `x.nbytes`
# message: getattr TensorVariable nbytes
def f(x):
    return x + x.nbytes
# %% `torch.stft`, `torch.istft`
# message: Torchinductor does not support code generation for complex operators
def f(x):
    return torch.istft(torch.stft(x, 4, 2, window=torch.ones(4), return_complex=True), 4, 2, window=torch.ones(4))
# %% `x.to(device, non_blocking=True)`
# message: call_method TensorVariable() to non_blocking
def f(x):
    return x.to("cpu", non_blocking=True) + 1
# %% `torch.from_dlpack(array)`
# message: call_function args: UserDefinedObjectVariable(ndarray), torch.from_dlpack
# do: Use `torch.from_numpy(array)`, or convert the array before the call.
import numpy as np
args = (torch.ones(2), np.ones(2, dtype=np.float32))
def f(x, a):
    return x + torch.from_dlpack(a)
# %% `torch.ops.aten.len("hello")` and other operators of TorchScript
# message: torch.* op returned non-Tensor int call_function aten.len
# do: Use Python's `len`.
def f(x):
    return x + torch.ops.aten.len("hello")
