import math

import torch
import torch.nn.functional as F


# %% `x[0] = 1`, `x[1:] += 2`, `x[x > 1] = 0`, `x[i] = y`
# message: call_method TensorVariable() __setitem__
def f(x):
    y = x.clone()
    y[0] = 1
    y[1:] += 2
    y[y > 3] = 0
    y[torch.tensor([1])] = x[2]
    return y
# %% `x.add_(1)`, `x += 1`, `x.mul_`, `x.copy_(y)`, `x.fill_`, `x.zero_`, `x.clamp_`
# message: call_method TensorVariable() add_
def f(x):
    y = x.clone()
    y.add_(1).mul_(2)
    y += 1
    y[0].fill_(3)
    y[1:2].copy_(x[:1])
    y[2].zero_()
    return y.clamp_(max=9)
# %% changes of an argument in place
# message: mutated input, aot_autograd mutation
args = (torch.ones(2),)
def f(x):
    x.add_(1)
    return x * 2
# %% `torch.add(x, 1, out=y)`
# message: out variants with resizing on graph inputs
def f(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    return y
# %% `torch.add(x, 1, out=y)` of a different size
# message: out variants with resizing on graph inputs
# do: Use `y = torch.add(x, 1)`.
args = (torch.ones(2), torch.empty(0))
def f(x, y):
    torch.add(x, 1, out=y)
    return y * 2
# %% `x.unsqueeze_(0)` on a tensor made inside
# message: call_method TensorVariable() unsqueeze_
def f(x):
    y = x.clone()
    y.unsqueeze_(0)
    return y * 2
# %% `x.resize_(...)`
# message: call_method TensorVariable() resize_
# do: Use `x.new_empty(...)`.
def f(x):
    return x.clone().resize_(2, 2)
# %% `x.data`, `x.detach()`
# message: Tensor.data, call_method TensorVariable() data
def f(x):
    return x.data * 2 + x.detach()
# %% `x.data = y`
# message: setattr TensorVariable data, Tensor.data setter
# do: Use `x.copy_(y)` under `torch.no_grad()`.
def f(x):
    y = x.clone()
    y.data = torch.zeros(4)
    return y + 1
# %% `x.scale = 2`: an attribute of your own on a tensor
# message: setattr(TensorVariable), getattr TensorVariable
def f(x):
    y = x + 1
    y.scale = 2
    return y * y.scale
# %% `x.data_ptr()`
# message: Tensor.data_ptr, call_method TensorVariable() data_ptr
# do: Compare pointers outside.
def f(x):
    return x + (x.data_ptr() == 0)
