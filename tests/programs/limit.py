"""One function that is called with ten shapes; the recompile limit is eight."""

import torch


@torch.compile(backend="eager", dynamic=False)
def grow(x):
    return x + 1


for size in range(2, 12):
    grow(torch.ones(size))
