"""A generator, which Dynamo refuses to compile before it writes anything to the trace."""

import torch


def numbers(x):
    yield x + 1


list(torch.compile(numbers, backend="eager")(torch.ones(3)))
