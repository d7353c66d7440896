"""A break in a loop: Dynamo skips the frame and compiles the functions that it calls."""

import torch


def scale(x):
    return x * 2


@torch.compile(backend="eager")
def repeat(x):
    for step in range(3):
        x = scale(x)
        if step == 1:
            torch._dynamo.graph_break()
    return x


repeat(torch.ones(3))
