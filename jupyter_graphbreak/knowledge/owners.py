"""Advice about a line that belongs to a library or to PyTorch: only its owner can change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_graphbreak.report.schema import Owner


@dataclass(frozen=True, slots=True)
class KnownOwner:
    """Advice about a break in somebody else's code.

    Parameters
    ----------
    on_purpose : str
        The advice if the owner breaks the graph on purpose.
    otherwise : str
        The advice for any other break.
    manual_step : str
        The decision for a person if no remedy works.
    about_call, about_error : str
        The same if ``{call}``, a call in the reader's own code, leads to the break; and if the break also ended the
        run.
    """

    on_purpose: str
    otherwise: str
    manual_step: str
    about_call: str
    about_error: str


OPTIMIZER = (
    "PyTorch breaks in its optimizers on purpose, and still compiles the update as one graph: leave it, or call the "
    "optimizer after the compiled function"
)
OPTIMIZER_STEP = (
    "Leave it, or call the optimizer after the compiled function: PyTorch breaks in its optimizers on purpose, and "
    "still compiles the update as one graph."
)

#: The advice by the owner of a line. The reader's own lines are missing: their advice depends on the cause.
OWNERS: Mapping[Owner, KnownOwner] = {
    "library": KnownOwner(
        on_purpose="the library breaks here on purpose: leave it, or compile a part of the model that does not call it",
        otherwise="compile a part of the model that does not make this call, and report the break to the library",
        manual_step=(
            "Decide whether to compile a part of the model that does not make this call or to accept the break. "
            "Report it to the library."
        ),
        about_call=(
            "Decide whether to move {call} out of the compiled function or to accept the break. Report it to the "
            "library."
        ),
        about_error="Move {call} out of the compiled function, and report the error to the library.",
    ),
    "torch": KnownOwner(
        on_purpose="PyTorch breaks here on purpose: make the call that leads here outside of the compiled function",
        otherwise=(
            "make the call that leads to this line of PyTorch outside of the compiled function, or report it to PyTorch"
        ),
        manual_step=(
            "Decide whether to make the call that leads here outside of the compiled function: the line is PyTorch's."
        ),
        about_call=(
            "Decide whether {call} can go before or after the compiled function: the line that breaks is PyTorch's."
        ),
        about_error="Move {call} out of the compiled function: the line that fails is PyTorch's.",
    ),
}


def owner_advice() -> set[str]:
    """Return all advice in ``OWNERS``."""
    return {OPTIMIZER, *(text for owner in OWNERS.values() for text in (owner.on_purpose, owner.otherwise))}
