"""Helpers that the cases import."""

import torch

SCALE = 3.0


def report_shape(x):
    print("normalized", tuple(x.shape))


def norm(x, eps=1e-5):
    """Normalize rows."""
    y = x / (x.norm(dim=-1, keepdim=True) + eps)
    report_shape(y)
    return y * SCALE


def failing_backend(gm, inputs):
    for node in gm.graph.nodes:
        if "cumsum" in str(node.target):
            raise NotImplementedError("cumsum is not supported")
    return gm.forward


def wrong_backend(gm, inputs):
    def run(*args):
        return [out * 1.5 if isinstance(out, torch.Tensor) else out for out in gm(*args)]

    return run
