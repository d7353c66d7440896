"""A generator: Dynamo refuses it before it begins, and the trace has not a word of it."""

import torch


def numbers(x):
    yield x + 1


list(torch.compile(numbers, backend="eager")(torch.ones(3)))
