import math

import torch
import torch.nn.functional as F


# %% `x[i]` with a tensor of one value
# message: dynamic tensor indexing
# message: BackendCompilerFailed: GuardOnDataDependentSymNode: Could not extract specialized integer from data-dependent expression
# do: Use `x.index_select(0, i)[0]`: `aot_eager` and inductor fail on `x[i]` before 2.15.
args = (torch.ones(4), torch.tensor(1))
def f(x, i):
    return x[i] + 1
# %% `x[i:j]` with tensors
# message: Dynamic slicing on data-dependent value is not supported
# do: Use a mask: `torch.where((k >= i) & (k < j), x, 0)` with `k = torch.arange(len(x))`.
args = (torch.ones(4), torch.tensor(1), torch.tensor(3))
def f(x, i, j):
    return x[i:j].sum()
# %% `x.tolist()`
# message: call_method TensorVariable() tolist
# do: Keep the tensor.
args = (torch.tensor([1, 2]),)
def f(x):
    return x * sum(x.tolist())
# %% `x.item()` in a computation
# message: Tensor.item, aten._local_scalar_dense.default
# do: Keep the tensor: `x * x.max()`.
def f(x):
    return x * x.max().item()
# %% `torch.equal(x, y)`
# message: data dependent operator: aten.equal.default
# do: Use `(x == y).all()`, and keep the result a tensor.
def f(x):
    return x + torch.equal(x, x + 0)
# %% `torch.allclose(x, y)`
# message: data dependent operator: aten.allclose.default
# do: Use `torch.isclose(x, y).all()`, and keep the result a tensor.
def f(x):
    return x + torch.allclose(x, x + 0)
# %% `x[x > 1]`, `torch.masked_select(x, x > 1)`
# message: dynamic shape operator: aten.nonzero.default, dynamic Tensor.__getitem__(bool[])
# do: Use `torch.where(x > 1, x, 0)`.
def f(x):
    return x[x > 1].sum() + torch.masked_select(x, x > 1).sum()
# %% `torch.nonzero(x)`, `torch.where(mask)`, `torch.argwhere(x)`
# message: dynamic shape operator: aten.nonzero.default
# do: Use `torch.nonzero_static(x, size=n)`.
def f(x):
    return torch.nonzero(x).sum() + torch.where(x > 1)[0].sum() + torch.argwhere(x).sum()
# %% `torch.unique(x)`, `torch.unique_consecutive(x)`
# message: dynamic shape operator: aten._unique2.default, aten.unique_consecutive.default
# do: Call `torch.unique` before or after the compiled function runs.
args = (torch.tensor([1, 2, 2]),)
def f(x):
    return torch.unique(x).sum() + torch.unique_consecutive(x).sum()
# %% `torch.bincount(x)`
# message: dynamic shape operator: aten.bincount.default
# do: Use `F.one_hot(x, n).sum(0)`.
args = (torch.tensor([1, 2, 2]),)
def f(x):
    return torch.bincount(x)
# %% `torch.repeat_interleave(x, counts)` with a tensor
# message: dynamic shape operator: aten.repeat_interleave.Tensor
# do: Pass `output_size=n` as well.
args = (torch.ones(2), torch.tensor([1, 2]))
def f(x, n):
    return x.repeat_interleave(n)
# %% `torch.arange(lengths.max())`
# message: aten._local_scalar_dense.default, data dependent operator
# do: Use the largest length as a number, such as `x.shape[1]`, and a mask.
args = (torch.ones(2), torch.tensor([1, 2]))
def f(x, lengths):
    return torch.arange(lengths.max()) + x
# %% `F.one_hot(i)` without the number of classes
# message: data dependent operator: aten.one_hot, aten._local_scalar_dense
# do: Use `F.one_hot(i, n)`.
args = (torch.tensor([0, 1]),)
def f(i):
    return F.one_hot(i)
# %% `torch.split(x, [1, 3])`, `x.chunk(2)`
# message: call_function torch.split with SymInt
def f(x):
    return sum(part.sum() for part in torch.split(x, [1, 3])) + x.chunk(2)[0].sum()
# %% `torch.split(x, sizes.tolist())`
# message: call_method TensorVariable() tolist, torch.split
# do: Pass the sizes as numbers.
args = (torch.ones(4), torch.tensor([1, 3]))
def f(x, sizes):
    return torch.split(x, sizes.tolist())[0] * 2
