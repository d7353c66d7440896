"""Advice about lines that belong to a library or to PyTorch, because the reader cannot change these lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_graphbreak.report.schema import Owner


@dataclass(frozen=True, slots=True)
class OwnerAdvice:
    """Advice about a break in somebody else's code, deliberate or not, and the decision for a person.

    ``step_for_call`` is the decision if a call in the reader's own code leads to the break, and ``step_for_error`` if
    the break also ended the run. ``{call}`` stands for the code of the call.
    """

    advice_if_deliberate: str
    advice_if_unintended: str
    manual_step: str
    step_for_call: str
    step_for_error: str


OPTIMIZER_ADVICE = (
    "PyTorch's optimizers break on purpose, and the update is still compiled as one graph: leave it, or call the "
    "optimizer after the compiled function returns"
)
OPTIMIZER_MANUAL_STEP = (
    "Leave it, or call the optimizer after the compiled function returns: PyTorch's optimizers break on purpose, and "
    "the update is still compiled as one graph."
)
LIBRARY_OPTIMIZER_ADVICE = (
    "leave the optimizer's step uncompiled: call it outside of compiled functions, and report the break to the library"
)
LIBRARY_OPTIMIZER_MANUAL_STEP = (
    "Leave the optimizer's step uncompiled: call it outside of compiled functions. Report the break to the library."
)

#: The advice by the owner of a line. The reader's own lines are missing: their advice depends on the cause.
ADVICE_BY_OWNER: Mapping[Owner, OwnerAdvice] = {
    "library": OwnerAdvice(
        advice_if_deliberate=(
            "the library breaks here on purpose: leave it, or compile a part of the model that does not call it"
        ),
        advice_if_unintended=(
            "compile a part of the model that does not run this line, and report the break to the library"
        ),
        manual_step=(
            "Decide whether to compile a part of the model that does not run this line or to accept the break. "
            "Report it to the library."
        ),
        step_for_call=(
            "Decide whether to move {call} out of the compiled function or to accept the break. Report it to the "
            "library."
        ),
        step_for_error="Move {call} out of the compiled function, and report the error to the library.",
    ),
    "torch": OwnerAdvice(
        advice_if_deliberate=(
            "PyTorch breaks here on purpose: make the call that leads here outside of the compiled function"
        ),
        advice_if_unintended=(
            "make the call that leads to this line in PyTorch outside of the compiled function, or report it to PyTorch"
        ),
        manual_step=(
            "Decide whether to make the call that leads here outside of the compiled function: the line is PyTorch's."
        ),
        step_for_call=(
            "Decide whether to move {call} out of the compiled function: the line that breaks is PyTorch's."
        ),
        step_for_error="Move {call} out of the compiled function: the line that fails is PyTorch's.",
    ),
}


def all_owner_advice() -> set[str]:
    """Return all strings of this module that a report may contain as advice."""
    return {
        OPTIMIZER_ADVICE,
        LIBRARY_OPTIMIZER_ADVICE,
        *(
            advice
            for owner in ADVICE_BY_OWNER.values()
            for advice in (owner.advice_if_deliberate, owner.advice_if_unintended)
        ),
    }
