"""Programs on which a plausible remedy is wrong: each runs alone, after the lines above the first program."""
import copy
import logging
import warnings

import torch
import torch.nn.functional as F
# === random numbers in one branch, with gradients
def f(x):
    if x.sum() > 0:
        y = F.dropout(x, 0.5) * 2
    else:
        y = x * 3
    return y.sum()
def make_arguments():
    return (torch.linspace(-1, 2, 16).reshape(4, 4).requires_grad_(),)
# === two conditions one after the other
def f(x):
    y = x
    if x.sum() > 0:
        y = y * 2
    else:
        y = y * 3
    if y.mean() > 0:
        y = y * y
    else:
        y = y - 1
    return y.sum()
def make_arguments():
    return (torch.linspace(-1, 2, 16).reshape(4, 4).requires_grad_(),)
# === a print in an inlined function
def print_and_add(x):
    print("in callee", x.sum().item())
    return x + 1
def f(x):
    return print_and_add(x) * 2
def make_arguments():
    return (torch.ones(3),)
# === print with a different end
def f(x):
    y = x + 1
    print("a", end="")
    print("b", y.shape, sep="-")
    return y
def make_arguments():
    return (torch.ones(3),)
# === a printed value that changes afterwards
def f(x):
    y = x.clone()
    print(y)
    y.add_(1)
    print(y)
    return y
def make_arguments():
    return (torch.ones(3),)
# === print in a loop
def f(x):
    for i in range(3):
        x = x * 2
        print(i, x.sum())
    return x
def make_arguments():
    return (torch.ones(3),)
# === print and raise
def f(x):
    print("before", x.sum())
    if x.sum() > 100:
        raise ValueError("too large")
    return x + 1
def make_arguments():
    return (torch.ones(3),)
# === layers left out at random
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        for layer in self.layers:
            if self.training:
                p = torch.rand([])
                if p < 0.5:
                    continue
            x = layer(x)
        return self.layers[0](x)
f = Net()
def make_arguments():
    return (torch.ones(2, 4),)
# === a layer with dropout left out at random
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)) for _ in range(2))
    def forward(self, x):
        for layer in self.layers:
            p = torch.rand([])
            if p < 0.5:
                continue
            x = layer(x)
        return x
f = Net()
def make_arguments():
    return (torch.ones(2, 4),)
# === a branch whose gradient is NaN
def f(x):
    if (x > 0).all():
        y = x.sqrt()
    else:
        y = x * 0
    return y.sum()
def make_arguments():
    return (torch.linspace(0.5, 2, 4).requires_grad_(),)
# === a logarithm in one branch
def f(x):
    if (x > 0).any():
        y = torch.log(x.abs())
    else:
        y = x * 1
    return y.sum()
def make_arguments():
    return (torch.tensor([1.0, 0.5, -1.0]).requires_grad_(),)
# === random numbers of numpy
import numpy as np
def f(x):
    return x * float(np.random.rand())
def make_arguments():
    return (torch.ones(3),)
# === Python's random numbers
import random
def f(x):
    if random.random() < 0.5:
        x = x * 2
    return x * random.random()
def make_arguments():
    return (torch.ones(3),)
# === a history of numbers
history = []
def f(x):
    y = x * 2
    history.append(y.sum().item())
    return y
def make_arguments():
    return (torch.ones(3),)
# === a history of tensors
history = []
def f(x):
    y = x * 2
    if y.sum() > 0:
        history.append(y)
    y = y + 1
    return y
def make_arguments():
    return (torch.ones(3),)
# === a different dtype in each branch
def f(x):
    if x.sum() > 0:
        y = 2.0
    else:
        y = 1
    return x * y, y
def make_arguments():
    return (torch.ones(3),)
# === half precision in one branch
def f(x):
    if x.sum() > 0:
        y = x.half()
    else:
        y = x * 1
    return y
def make_arguments():
    return (torch.ones(3),)
# === a different shape in one branch
def f(x):
    if x.sum() > 0:
        y = x[:1]
    else:
        y = x * 1
    return y
def make_arguments():
    return (torch.ones(4, 2),)
# === the argument itself in one branch
def f(x):
    if x.sum() > 0:
        y = x
    else:
        y = x + 1
    return y
def make_arguments():
    return (torch.ones(4, 2),)
# === a different gradient because of a clone
def f(x):
    y = x.clone()
    y = y.detach().requires_grad_()
    z = (y * x).sum()
    if z > 0:
        z = z * 2
    return z
def make_arguments():
    return (torch.ones(3, requires_grad=True),)
# === a short circuit that guards
def f(x):
    d = x.sum()
    if d != 0 and (1 / d) > 0:
        return x / d
    return x - 1
def make_arguments():
    return (torch.ones(3),)
# === a condition with an effect
calls = []
def asked(x):
    calls.append(1)
    return x.sum() > 0
def f(x):
    if asked(x):
        y = x + 1
    else:
        y = x - 1
    return y
def make_arguments():
    return (torch.ones(3),)
# === a branch that never runs
def f(x):
    y = x * 2
    if x.isnan().any():
        y = torch.zeros(7)
    return y
def make_arguments():
    return (torch.ones(3),)
# === a warning that is shown once
def f(x):
    if x.sum() > -100:
        warnings.warn("seen")
    return x + 1
def make_arguments():
    return (torch.ones(3),)
# === a value that is read and logged
def f(x):
    y = x + 1
    logging.getLogger("a.program").warning("sum %s", y.sum().item())
    y.mul_(2)
    logging.getLogger("a.program").warning("sum %s", y.sum().item())
    return y
def make_arguments():
    return (torch.ones(3),)
# === the time of day
import time
def f(x):
    start = time.perf_counter()
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y, time.perf_counter() - start
def make_arguments():
    return (torch.ones(3),)
# === a different result each time
import time
def f(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    torch._dynamo.graph_break()
    return y, torch.tensor(time.perf_counter_ns())
def make_arguments():
    return (torch.ones(3),)
