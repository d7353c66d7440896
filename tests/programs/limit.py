"""One function with ten shapes: nine compilations, the limit is eight."""

import torch


@torch.compile(backend="eager", dynamic=False)
def grow(x):
    return x + 1


for size in range(2, 12):
    grow(torch.ones(size))
