"""A break two calls deep with nested_graph_breaks, a setting that is off again when the run ends."""

import torch


def leaf(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def middle(x):
    return leaf(x.sin()) + 3


@torch.compile(backend="eager")
def root(x):
    return middle(x * 4) - 5


with torch._dynamo.config.patch(nested_graph_breaks=True):
    root(torch.ones(3))
