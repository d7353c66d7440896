"""A break two calls deep: PyTorch reports it once for each of the three frames."""

import torch


def leaf(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x + 2


def middle(x):
    return leaf(x) * 2


@torch.compile(backend="eager")
def outer(x):
    return middle(x) - 1


outer(torch.ones(3))
