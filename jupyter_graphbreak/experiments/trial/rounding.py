"""Measure how much rounding errors change what a call leaves in parameters, gradients and other state.

An optimizer such as Adam divides each gradient by its size. If the exact gradient is zero, as for the bias before a
batch normalization, only rounding errors remain, and a correct compiler changes such a parameter differently.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from jupyter_graphbreak.experiments.trial.named_objects import named_tensors
from jupyter_graphbreak.experiments.trial.values import RoundingErrors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.subject import Subject

#: The maximum number of rounding errors by which each element of a parameter is changed.
_NOISE_SIZE = 4


@contextlib.contextmanager
def add_noise_to_parameters(subject: Subject) -> Iterator[bool]:
    """Change the parameters of a subject by a few rounding errors while the context is open.

    Yield whether the subject has any parameters to change. Parameters that contain only whole numbers stay unchanged,
    because code may compare them with such numbers.
    """
    generator = torch.Generator().manual_seed(0)
    visited_ids: set[int] = set()
    parameters = [
        tensor
        for name, root in subject.roots()
        for _, tensor in named_tensors(root, name, visited_ids)
        if tensor.requires_grad and tensor.is_leaf and tensor.is_floating_point() and tensor.layout == torch.strided
    ]
    try:
        with torch.no_grad():
            fractional_parameters = [tensor for tensor in parameters if not torch.equal(tensor, tensor.round())]
            for tensor in fractional_parameters:
                noise = torch.rand(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)
                tensor.data = tensor * (1 + _NOISE_SIZE * torch.finfo(tensor.dtype).eps * noise)
        yield bool(fractional_parameters)
    finally:
        subject.restore()


def rounding_errors(expected: Result, with_noise: Result) -> dict[int, RoundingErrors]:
    """Return the rounding errors in the tensors that a call leaves behind, by the ids of the expected tensors.

    ``with_noise`` is the outcome of the same call with slightly different parameters.
    """
    errors: dict[int, RoundingErrors] = {}
    if with_noise.error is not None:  # the call did less, which is not a rounding error
        return errors
    for name in ("arguments", "state", "leaf_grads", "gradients"):
        noisy_tensors = dict(named_tensors(getattr(with_noise, name), ""))
        for path, tensor in named_tensors(getattr(expected, name), ""):
            noisy_tensor = noisy_tensors.get(path)
            if noisy_tensor is not None and (error := RoundingErrors.between(tensor, noisy_tensor)) is not None:
                errors[id(tensor)] = error
    return errors
