"""Breaks after which Dynamo cannot resume: in a try block, and in the block of a custom context manager."""

import contextlib

import torch


class Quiet(contextlib.AbstractContextManager):
    def __exit__(self, *_):
        return None


@torch.compile(backend="eager")
def guarded(x):
    try:
        x = x + 1
        torch._dynamo.graph_break()
        return x + 2
    except ValueError:
        return x


@torch.compile(backend="eager")
def within(x):
    with Quiet():
        x = x + 1
        torch._dynamo.graph_break()
        return x + 2


guarded(torch.ones(3))
within(torch.ones(3))
