"""Say what to do about a break: our step for its GB id, then PyTorch's hints if they name one.

Only the owner of a line can change it. For a line of a library or of PyTorch the advice is what its user can do.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.reasons.steps import all_steps, steps_for
from jupyter_graphbreak.report.schema import Advice, Reason

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.torch_text.messages import Cause
    from jupyter_graphbreak.report.schema import Owner

# How PyTorch's standing hints begin (torch/_dynamo/graph_break_hints.py); they classify a break and name no step.
_STANDING = (
    "Dynamo has detected that tracing the code will result in an error",
    "This is likely to be a Dynamo bug",
    "This graph break may be difficult to debug",
    "This graph break is fundamental",
    "It may be possible to write Dynamo tracing rules",
    "This graph break may have been caused by an earlier graph break",
)

_BY_CONSEQUENCE = {
    "graph break in loop": (
        "or give the loop's body a function of its own: it is then compiled, up to the break and after it, and only "
        "the loop itself runs eagerly; a function of its own for the loop keeps what is around it compiled"
    ),
    "Graph break under GenericContextWrappingVariable": "or move the break out of the with block",
}
#: A setting in a step, which helps whoever owns the line: "set torch._dynamo.config.allow_rnn = True".
_SETTING = re.compile(r"(?:set|add (?:the method|[\w.]+) to) torch\._dynamo\.config\.\w+(?: = \w+)?")
#: Breaks that the code asks for: graph_break(), disable() in two forms, skip_frame().
_DELIBERATE = frozenset({"GB0025", "GB0098", "GB0099", "GB4297"})
_OPTIMIZER = (
    "PyTorch breaks in its optimizers on purpose: compile the model and the loss, and call the optimizer after the "
    "compiled function"
)
_LIBRARY = (
    "use the library's own switch if it has one for this; or compile a part without this call; or put "
    "torch.compiler.disable around it, and report it to the library"
)
_BY_OWNER: dict[Owner, tuple[str, str]] = {
    "library": (
        "the library breaks here on purpose: leave it, or compile a part of the model that does not call it",
        _LIBRARY,
    ),
    "torch": (
        "PyTorch breaks here on purpose: make the call that leads here outside of the compiled function",
        "make the call that leads to this line of PyTorch outside of the compiled function, or report it to PyTorch",
    ),
}


def advise(cause: Cause, consequence: Reason | None, owner: Owner = "own", path: str | None = None) -> list[Advice]:
    """Return what to do, the most useful first.

    Parameters
    ----------
    cause : Cause
        Why the graph broke.
    consequence : Reason or None
        Why the frame could not resume.
    owner : {"own", "library", "torch"}
        Whose line it is.
    path : str or None
        The file of the line as Python finds it, ``None`` if it is the reader's own.
    """
    if owner != "own":
        return [Advice(step, "graphbreak") for step in _for_user_of(owner, cause, path)]
    steps = [Advice(step, "graphbreak") for step in steps_for(cause)]
    steps += [Advice(hint) for hint in cause.hints if not hint.startswith(_STANDING)]
    if consequence is not None and consequence.gb_type in _BY_CONSEQUENCE:
        steps.append(Advice(_BY_CONSEQUENCE[consequence.gb_type], "graphbreak"))
    return steps


@cache
def all_advice() -> frozenset[str]:
    """Return all advice of ours that is the same for every program."""
    owners = (sentence for sentences in _BY_OWNER.values() for sentence in sentences)
    return frozenset({*all_steps(), *_BY_CONSEQUENCE.values(), _OPTIMIZER, *owners})


def _for_user_of(owner: Owner, cause: Cause, path: str | None) -> list[str]:
    """Return what a user can do about a line of a library or of PyTorch: a setting first, if one is known."""
    on_purpose, otherwise = _BY_OWNER[owner]
    if cause.gb_id in _DELIBERATE or "torch._dynamo.graph_break()" in cause.gb_type:
        in_optimizer = owner == "torch" and path is not None and path.startswith("torch/optim/")
        return [_OPTIMIZER if in_optimizer else on_purpose]
    settings = [found for step in steps_for(cause) for found in _SETTING.findall(step)]
    return [*settings[:1], otherwise]
