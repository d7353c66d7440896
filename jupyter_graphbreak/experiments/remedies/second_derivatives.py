"""Compare second derivatives (gradients of gradients) of a changed program with those of the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import backend_and_options
from jupyter_graphbreak.experiments.remedies.run_comparison import has_finite_results
from jupyter_graphbreak.experiments.trial.outcome import differentiate_twice

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from jupyter_graphbreak.experiments.remedies.original import UncompiledOriginal
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.reference import ReferenceCase
    from jupyter_graphbreak.experiments.trial.subject import Subject

#: How a program with PyTorch's control flow operators may differ from the original.
NO_SECOND_DERIVATIVE_TEXT = "a gradient of a gradient is lost without an error"
#: The maximum number of inputs for which second derivatives are compared.
_MAX_INPUTS = 24
_TOLERANCE = 1e-3


def can_differentiate_twice(backend: Any) -> bool:
    """Return whether the gradients of a compiled program may be differentiated, except those of control flow operators.

    Of PyTorch's backends, only ``eager`` keeps the backward pass of the original; a user's backend may do so.
    """
    name = backend_and_options(backend)[0]
    return not isinstance(name, str) or name == "eager"


def computes_gradients(original: UncompiledOriginal) -> bool:
    """Return whether the original has gradients on any input."""
    return any(case.expected_result.gradients for case in _all_cases(original))


def find_different_second_derivative(
    original: UncompiledOriginal, open_changed_program: Callable[[], AbstractContextManager[tuple[Any, Subject]]]
) -> str | None:
    """Describe an input for which computing both branches gives different second derivatives, if any.

    The derivative of the branch that is not taken is multiplied by zero: if it is infinite, that is NaN. Only calls
    whose results require gradients are compared: other calls are unlikely to be differentiated twice.
    """
    if not original.cases[0].expected_result.gradients:
        return None
    cases = [case for case in _all_cases(original) if case.expected_result.gradients and has_finite_results(case)]
    cases.sort(key=lambda case: case.input.description.endswith("zero"), reverse=True)
    with differentiate_twice():
        original_results = [(case, original.run_original(case)) for case in cases[:_MAX_INPUTS]]
        with open_changed_program() as (call, subject):
            for case, original_result in original_results:
                if _have_different_gradients(original_result, original.run(call, subject, case)):
                    return f"a gradient of a gradient differs with {case.input.description}"
    return None


def _all_cases(original: UncompiledOriginal) -> list[ReferenceCase]:
    return [*original.cases, *original.edge_cases()]


def _have_different_gradients(expected: Result, result: Result) -> bool:
    """Return whether two results have different gradients, apart from rounding; no gradient equals one of zeros."""
    if expected.error is not None or expected.backward_error is not None:
        return False
    expected_gradients, gradients = expected.gradients or {}, result.gradients or {}
    pairs = ((expected_gradients.get(path), gradients.get(path)) for path in {*expected_gradients, *gradients})
    return result.backward_error is not None or not all(_are_close(*pair) for pair in pairs)


def _are_close(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    if first is None or second is None:
        tensor = first if first is not None else second
        return tensor is None or not bool(tensor.any())
    return first.shape == second.shape and torch.allclose(
        first, second.to(first.dtype), rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True
    )
