"""A break that fullgraph=True turns into an error. The program catches the error."""

import torch


@torch.compile(backend="eager", fullgraph=True)
def whole(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y


try:
    whole(torch.ones(3))
except torch._dynamo.exc.Unsupported:
    pass
