"""Several breaks on one line that no log can tell apart, because the call determines which of them occur."""

import torch


def compiled(function):
    return torch.compile(function, backend="eager", dynamic=False)


@compiled
def paths(x, k):
    return (x[0].item() if k == 0 else x[1].item() if k == 1 else x[2].item()) + x[3].item()


@compiled
def once(x, flag):
    a = x.sum().item() if flag else 0; b = x.max().item(); c = x.min().item() if not flag else 1
    return a + b + c


@compiled
def joined(x):
    return (x.sin() if x.sum() > 0 else x.cos()).max().item() + x.min().item()


def sometimes(x, flag):
    if flag:
        torch._dynamo.graph_break()
    return x + 1


@compiled
def after_a_call(x, flag):
    return sometimes(x, flag).sum().item() + sometimes(x, not flag).max().item()


@compiled
def again(x, n):
    return (again(x, n - 1) if n else x.sum().item()) + x.max().item()


@compiled
def two_functions(x):
    return (lambda v: v.sum().item())(x) + (lambda v: v.max().item())(x)


x = torch.arange(4.0) + 1
for k in (1, 0, 2):
    paths(x, k)
for flag in (True, False, True):
    once(x, flag)
    after_a_call(x, flag)
    once(x[:3], not flag)
joined(x)
joined(-x)
again(x, 2)
two_functions(x)
