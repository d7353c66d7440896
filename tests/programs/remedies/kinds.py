"""Programs with one or two breaks in many kinds of code: each runs alone, after the lines above the first program."""
import contextlib
import dataclasses
import functools
import logging
import warnings

import numpy as np
import torch
import torch.nn.functional as F
# === views and shared memory
def f(x):
    v = x.view(-1)
    if v.sum() > 0:
        v = v[1:]
    else:
        v = v[:-1]
    return v, x
def make_arguments():
    return (torch.ones(2, 3),)
# === changed in place in both branches
def f(x):
    if x.sum() > 0:
        x.add_(1)
    else:
        x.mul_(2)
    return x * 2
def make_arguments():
    return (torch.ones(3),)
# === an argument changed in place, then a break
def f(x, out):
    out[0] = x.sum()
    torch._dynamo.graph_break()
    out += 1
    return out
def make_arguments():
    return (torch.ones(3), torch.zeros(3))
# === tensor hooks
def f(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    torch._dynamo.graph_break()
    return y.sum()
def make_arguments():
    return (torch.ones(3, requires_grad=True),)
# === module hooks
calls = []
f = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
def hook(module, args, result):
    calls.append(type(module).__name__)
    if result.sum() > 0:
        return result * 2
    return result
torch.manual_seed(0)
torch.nn.init.ones_(f[0].weight)
torch.nn.init.zeros_(f[0].bias)
f[1].register_forward_hook(hook)
def make_arguments():
    return (torch.ones(2, 3),)
# === a custom autograd function
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x
def f(x):
    if x.sum() > 0:
        y = Square.apply(x)
    else:
        y = -Square.apply(x)
    return y.sum()
def make_arguments():
    return (torch.ones(3, requires_grad=True),)
# === dropout of a module and a break
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.drop = torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)
    def forward(self, x):
        x = self.drop(self.a(x))
        torch._dynamo.graph_break()
        return self.drop(x)
f = Net()
def make_arguments():
    return (torch.ones(2, 3),)
# === nested conditions
def f(x):
    if x.sum() > 0:
        if x.max() > 1:
            y = x + 1
        else:
            y = x + 2
    else:
        y = x - 1
    return y
def make_arguments():
    return (torch.tensor([-1.0, 0.5, 2.0]),)
# === a generator
def parts(x):
    for i in range(3):
        torch._dynamo.graph_break()
        yield x + i
def f(x):
    return sum(parts(x))
def make_arguments():
    return (torch.ones(3),)
# === a closure that counts
def outer():
    n = 0
    def inner(x):
        nonlocal n
        n += 1
        if x.sum() > 0:
            y = x + n
        else:
            y = x - n
        return y
    return inner
f = outer()
def make_arguments():
    return (torch.ones(3),)
# === a function defined inside
def f(x):
    scale = 3
    def inner(y):
        if y.sum() > 0:
            y = y * scale
        return y
    return inner(x) + inner(-x)
def make_arguments():
    return (torch.ones(3),)
# === elif
def f(x):
    s = x.sum()
    if s > 3:
        y = x + 1
    elif s > 0:
        y = x + 2
    elif s > -3:
        y = x + 3
    else:
        y = x + 4
    return y
def make_arguments():
    return (torch.ones(2),)
# === match
def f(x):
    match int(x.sum() > 0):
        case 0:
            y = x + 1
        case _:
            y = x + 2
    return y
def make_arguments():
    return (torch.ones(2),)
# === decorators
def twice(g):
    @functools.wraps(g)
    def call(*args, **kwargs):
        torch._dynamo.graph_break()
        return g(*args, **kwargs) * 2
    return call
@twice
def f(x):
    if x.sum() > 0:
        x = x + 1
    return x
def make_arguments():
    return (torch.ones(2),)
# === early return
def f(x):
    if x.max() > 10:
        return x * 2
    x = x + 1
    if x.min() < 0:
        return x.abs()
    return x - 3
def make_arguments():
    return (torch.ones(2),)
# === walrus
def f(x):
    if (s := x.sum()) > 0:
        x = x * s
    return x, s
def make_arguments():
    return (torch.ones(2),)
# === attributes of a module
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lin, self.count, self.last = torch.nn.Linear(2, 2), 0, None
    def forward(self, x):
        y = self.lin(x)
        self.count += 1
        if y.sum() > 0:
            self.last = y.detach()
        return y * self.count
f = Net()
def make_arguments():
    return (torch.ones(2, 2),)
# === buffers
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
    def forward(self, x):
        self.mean.mul_(0.5).add_(x.mean(0) * 0.5)
        if self.mean.abs().max() > 10:
            self.mean.zero_()
        torch._dynamo.graph_break()
        return x - self.mean
f = Net()
def make_arguments():
    return (torch.ones(3, 2),)
# === tied weights
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.b.weight = self.a.weight
    def forward(self, x):
        x = self.a(x)
        if x.mean() > 0:
            x = self.b(x)
        return x.relu()
f = Net()
def make_arguments():
    return (torch.ones(2, 3),)
# === keyword-only and additional arguments
def f(x, *more, scale=2.0, **named):
    torch._dynamo.graph_break()
    for other in more:
        x = x + other
    if x.sum() > 0:
        x = x * scale
    return x + named["bias"]
def make_arguments():
    return (torch.ones(2), torch.ones(2), torch.zeros(2)), {"scale": 3.0, "bias": torch.ones(2)}
# === a dictionary as an argument
def f(batch):
    x = batch["x"]
    if batch["mask"].any():
        x = x.masked_fill(batch["mask"], 0.0)
    batch["seen"] = True
    return x * 2
def make_arguments():
    return ({"x": torch.ones(3), "mask": torch.tensor([True, False, True])},)
# === a dataclass as the result
@dataclasses.dataclass
class Out:
    loss: torch.Tensor
    name: str
def f(x):
    y = (x * 2).sum()
    if y > 0:
        y = y * 2
    return Out(y, "out")
def make_arguments():
    return (torch.ones(3, requires_grad=True),)
# === no_grad inside
def f(x):
    with torch.no_grad():
        y = x * 2
        if y.sum() > 0:
            y = y + 1
    return y * x
def make_arguments():
    return (torch.ones(3, requires_grad=True),)
# === autocast
def f(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        torch._dynamo.graph_break()
        z = y @ w
    return y, z.float()
def make_arguments():
    return (torch.ones(2, 2), torch.ones(2, 2))
# === a global counter
count = 0
def f(x):
    global count
    count += 1
    if x.sum() > 0:
        x = x + count
    return x
def make_arguments():
    return (torch.ones(3),)
# === a global flag
flag = ""
def f(x):
    global flag
    if x.sum() > 0:
        flag = "positive"
    else:
        flag = "negative"
    return x + 1
def make_arguments():
    return (torch.ones(3),)
# === a list that grows
def f(x, found):
    for row in x:
        if row.sum() > 0:
            found.append(row)
    return len(found)
def make_arguments():
    return (torch.eye(3), [])
# === an array as an argument
def f(x, a):
    b = torch.from_numpy(a)
    torch._dynamo.graph_break()
    return x + b.sum() + float(a.mean())
def make_arguments():
    return (torch.ones(3), np.ones(3, dtype=np.float32))
# === numbers as arguments
def f(x, n, s, flag):
    if flag:
        x = x * n
    torch._dynamo.graph_break()
    return x.sum() * s, n + 1
def make_arguments():
    return (torch.ones(3), 3, 0.5, True)
# === complex numbers
def f(x):
    y = torch.view_as_complex(x) * 1j
    if y.real.sum() > 0:
        y = y.conj()
    return y
def make_arguments():
    return (torch.linspace(-2, 1, 8).reshape(4, 2),)
# === a view of the argument as the result
def f(x):
    y = x[0]
    torch._dynamo.graph_break()
    y.add_(1)
    return y, x.t()
def make_arguments():
    return (torch.ones(3, 3),)
# === print in a loop of a callee
def helper(x, i):
    print("step", i, float(x.sum()))
    return x * 2
def f(x):
    for i in range(2):
        x = helper(x, i)
    return x
def make_arguments():
    return (torch.ones(3),)
# === logging
log = logging.getLogger("a.program")
def f(x):
    y = x + 1
    log.warning("shape %s", tuple(y.shape))
    log.info("done")
    return y * 2
def make_arguments():
    return (torch.ones(3),)
# === warnings of two kinds
def f(x):
    warnings.warn("first", DeprecationWarning)
    y = x * 2
    warnings.warn("second")
    return y
def make_arguments():
    return (torch.ones(3),)
# === an exception that is caught
def check(x):
    if x.sum() > 0:
        raise ValueError("positive")
    return x
def f(x):
    try:
        y = check(x)
    except ValueError:
        y = -x
    return y
def make_arguments():
    return (torch.ones(3),)
# === assertions
def f(x):
    assert x.sum() > -1000, "too small"
    assert x.shape[0] == 3
    return x + 1
def make_arguments():
    return (torch.ones(3),)
# === a number that determines a shape
def f(x):
    n = int(x.abs().sum().item())
    return x.new_zeros(n), [n] * 2
def make_arguments():
    return (torch.ones(3),)
# === a mask that determines a shape
def f(x):
    y = x[x > 0]
    return y.sum(), y
def make_arguments():
    return (torch.tensor([1.0, -1.0, 2.0]),)
# === indices that are found
def f(x):
    found = (x > 0).nonzero()
    y = x.clone()
    y[found[:, 0]] = 0
    return y, found.shape[0]
def make_arguments():
    return (torch.tensor([1.0, -1.0, 2.0]),)
# === a list of numbers
def f(x, n):
    parts = x.split(n.tolist())
    return [part.sum() for part in parts]
def make_arguments():
    return (torch.ones(6), torch.tensor([1, 2, 3]))
# === a loop that depends on values
def f(x):
    while x.sum() < 10:
        x = x + 1
    return x
def make_arguments():
    return (torch.ones(3),)
# === a loop left early
def f(x):
    total = x.new_zeros(())
    for row in x:
        if row.sum() < 0:
            break
        total = total + row.sum()
    return total
def make_arguments():
    return (torch.tensor([[1.0, 1.0], [-1.0, 0.0], [2.0, 0.0]]),)
# === methods, properties and class attributes
class Model:
    seen = 0
    def __init__(self):
        self.scale = 2.0
    @property
    def twice(self):
        return self.scale * 2
    def call(self, x):
        Model.seen += 1
        if x.sum() > 0:
            x = x * self.twice
        return x
f = Model().call
def make_arguments():
    return (torch.ones(3),)
# === a partial
def scaled(scale, x):
    torch._dynamo.graph_break()
    return x * scale
f = functools.partial(scaled, 3.0)
def make_arguments():
    return (torch.ones(3),)
# === a conditional expression and a boolean
def f(x):
    y = x * 2 if x.sum() > 0 else x * 3
    z = bool(y.sum() > 1)
    return y, z
def make_arguments():
    return (torch.ones(3),)
# === several targets at once
def f(x):
    if x.sum() > 0:
        a, b = x + 1, x + 2
    else:
        a, b = x, x * 2
    return a * b
def make_arguments():
    return (torch.ones(3),)
# === lambdas on one line
plus, times = (lambda x: x + 1), (lambda x: x * 3)
def f(x):
    if x.sum() > 0:
        y = plus(x)
    else:
        y = times(x)
    return y
def make_arguments():
    return (torch.ones(3),)
