"""A branch on the data of a tensor, taken both ways."""

import torch


@torch.compile(backend="eager")
def choose(x):
    y = x * 2
    if (y > 0).all():
        return y + 1
    return y - 1


choose(torch.ones(3))
choose(-torch.ones(3))
