import torch
from torch import nn


class Plain(torch.Tensor):
    pass


# %% a sparse tensor (COO) as an argument
# message: torch.compile does not support sparse Tensors
# message: Attempted to wrap sparse Tensor
# do: Pass `indices()` and `values().clone()`, or `to_dense()` before the call: `values()` alone, a view, raises *tuple index out of range*.
args = (torch.eye(3).to_sparse(),)
def f(x):
    return x.to_dense() + 1
# %% a CSR tensor as an argument
# message: torch.compile does not support sparse Tensor with CSR layout
# do: Pass `crow_indices()`, `col_indices()` and `values().clone()`, or `to_dense()`.
args = (torch.eye(3).to_sparse_csr(), torch.ones(3, 2))
def f(a, x):
    return a @ x
# %% `torch.sparse_coo_tensor(...)` inside
# message: torch.sparse_coo_tensor, inline in skipfiles
# do: Use `torch.zeros(...).index_put((i, j), values)`.
def f(x):
    return torch.sparse_coo_tensor(torch.tensor([[0, 1, 2, 3]]), x, (4,)).to_dense()
# %% `torch.sparse_csr_tensor(...)` inside
# message: torch.sparse_csr_tensor
# do: Create the sparse tensor before the call, and pass its parts to the function.
def f(x):
    return torch.sparse_csr_tensor(torch.tensor([0, 4]), torch.arange(4), x, (1, 4)).to_dense()
# %% `x.to_sparse()`, `torch.sparse.mm`
# message: call_method TensorVariable() to_sparse
# do: Use a dense product, or a custom operator around the sparse part.
def f(x):
    return torch.sparse.mm(torch.diag(x).to_sparse(), x.view(4, 1))
# %% `nn.Embedding(..., sparse=True)`, `nn.EmbeddingBag`
# message: sparse gradients
embedding, bag = nn.Embedding(9, 2, sparse=True), nn.EmbeddingBag(9, 2)
def f(x):
    return embedding(x.long()) + bag(x.long().view(4, 1))
# %% a nested tensor, `layout=torch.jagged`
# message: torch.nested, NestedTensor, non-strided layout
def f(x):
    return (torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged) * 2).values()
# %% a nested tensor, `layout=torch.strided`, the default
# message: torch.compile does not support strided NestedTensor
# do: Use `layout=torch.jagged`, or pad.
args = (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),)
def f(x):
    return torch.nested.to_padded_tensor(x * 2, 0.0)
# %% a quantized tensor: `torch.quantize_per_tensor`, `dequantize`
# message: torch.quantize_per_tensor, quantized nyi in meta tensors
def f(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize()
# %% `torch.fake_quantize_per_tensor_affine`
# message: aten.fake_quantize_per_tensor_affine
def f(x):
    return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)
# %% `bfloat16`, `float8_e4m3fn`, `int8`, `bool`
# message: dtype not supported
def f(x):
    return x.bfloat16().float() + x.to(torch.float8_e4m3fn).float() + x.to(torch.int8) + x.bool()
# %% a meta tensor: `torch.empty(3, device="meta")`
# message: meta tensor
def f(x):
    return x + torch.empty(4, device="meta").shape[0]
# %% an inference tensor: made under `torch.inference_mode()`
# message: Inference tensors cannot be saved for backward
with torch.inference_mode():
    made = torch.ones(4)
args = (made,)
def f(x):
    return x + 1
# %% a global `nn.Parameter`, `isinstance(x, nn.Parameter)`
# message: ParameterVariable
WEIGHT = nn.Parameter(torch.ones(4))
def f(x):
    return x * WEIGHT + isinstance(WEIGHT, nn.Parameter)
# %% `nn.Parameter(x)` made inside
# message: torch.nn.Parameter, Attempted to use torch.nn.Parameter() constructor
# do: Make the parameter in `__init__`; inside, use a plain tensor.
def f(x):
    return nn.Parameter(x.clone()) * 2
# %% a subclass of `torch.Tensor` without methods; `x.as_subclass(Plain)`
# message: TensorWithTFOverrideVariable, tensor subclass
def f(x):
    return (x.as_subclass(Plain) * 2)[0] + 1
# %% a subclass as an argument
# message: TensorWithTFOverrideVariable, Multiple dispatch failed for torch._ops.aten.mul.Tensor
# do: Inductor works in 2.13 as well.
args = (torch.ones(2).as_subclass(Plain),)
def f(x):
    return x * 2 + x.sum()
# %% a subclass whose `__new__` and `__torch_function__` call `super()`
# message: __torch_function__, TensorWithTFOverrideVariable
# do: Inductor works in 2.13 as well.
class Converted(torch.Tensor):
    def __new__(cls, value):
        return super().__new__(cls, value)
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})
args = (Converted(torch.ones(2)),)
def f(x):
    return torch.sin(x) * 2
# %% an attribute of your own on a subclass
# message: getattr TensorWithTFOverrideVariable
# do: Inductor works in 2.13 as well.
class Named(torch.Tensor):
    pass
NAMED = torch.ones(2).as_subclass(Named)
NAMED.scale = 3
args = (NAMED,)
def f(x):
    return x * x.scale
# %% a class with `__torch_function__` that is no tensor
# message: dynamo doesn't support __torch_function__ on non-tensor classes
class Wrapped:
    def __init__(self, x):
        self.x = x
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return function(*[getattr(a, "x", a) for a in args], **(kwargs or {}))
def f(x):
    return torch.sin(Wrapped(x)) + 1
# %% a wrapper subclass with `__torch_dispatch__`, `__tensor_flatten__`
# message: tensor subclass, __torch_dispatch__, __tensor_flatten__
from torch.testing._internal.two_tensor import TwoTensor
args = (TwoTensor(torch.ones(2), torch.ones(2)),)
def f(x):
    return (x * 2).a
# %% a `TorchFunctionMode` inside
# message: TorchFunctionMode, Unsupported context manager
class Passing(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
def f(x):
    with Passing():
        return x + 1
# %% a `TorchFunctionMode` that prints each function
# message: TorchFunctionMode graph break, __torch_function__
# do: Print under `if not torch.compiler.is_compiling():`, or decorate `__torch_function__` with `torch.compiler.disable`.
class Printing(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        print(function.__name__)
        return function(*args, **(kwargs or {}))
def f(x):
    with Printing():
        return x.sin().cos()
# %% a `TorchDispatchMode` inside
# message: TorchDispatchMode, Unsupported context manager
# do: Open the mode outside: then the compiled function runs uncompiled in the mode.
from torch.utils._python_dispatch import TorchDispatchMode
class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
def f(x):
    with Counting():
        return x + 1
# %% `torch.masked.masked_tensor`
# message: MaskedTensor
# do: Use `torch.where` and a mask.
def f(x):
    return torch.masked.masked_tensor(x, x > 1).to_tensor(0)
# %% channels-last: `x.to(memory_format=torch.channels_last)`
# message: memory_format
def f(x):
    return x.view(1, 2, 2, 1).to(memory_format=torch.channels_last).contiguous().view(4)
# %% a subclass with `__getattr__`
# message: AttributeError: type object 'CustomTensor' has no attribute '__tensor_flatten__'
# do: Use methods and properties instead of `__getattr__`.
class Asked(torch.Tensor):
    def __getattr__(self, name):
        if name == "scale":
            return 2
        raise AttributeError(name)
args = (torch.ones(2).as_subclass(Asked),)
def f(x):
    return x * x.scale
# %% a wrapper subclass (`_make_wrapper_subclass`) made inside, and its inner tensor
# message: Can't access attribute of wrapper tensor subclass under torch.compile
from torch.testing._internal.two_tensor import TwoTensor
def f(x):
    y = TwoTensor(x, x * 2)
    return torch.sin(y.a) + (y * 2).b
