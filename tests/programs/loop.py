"""A break in a loop: the frame is given up; what it calls is compiled on its own."""

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
