"""Return the advice on a break: ours for its cause, then PyTorch's hints if they contain advice.

Only the owner of a line can change it. For a line of a library or of PyTorch the advice is what its user can do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge import hints, owners
from jupyter_graphbreak.knowledge.lookup import known_cause
from jupyter_graphbreak.report.schema import Advice, Reason

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.torch_text.messages import Cause
    from jupyter_graphbreak.report.schema import Owner


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
        return [Advice(text, "graphbreak") for text in _for_user_of(owner, cause, path)]
    known = known_cause(cause.gb_id, cause.gb_type, cause.context)
    advice = [Advice(known.advice, "graphbreak")] if known.advice is not None else []
    advice += [Advice(hint) for hint in cause.hints if not hint.startswith(hints.STANDING)]
    if consequence is not None:
        further = known_cause(consequence.gb_id, consequence.gb_type).advice_if_consequence
        advice += [Advice(further, "graphbreak")] if further is not None else []
    return advice


def _for_user_of(owner: Owner, cause: Cause, path: str | None) -> list[str]:
    """Return what a user can do about a line of a library or of PyTorch: a setting first, if one is known."""
    known = known_cause(cause.gb_id, cause.gb_type, cause.context)
    if known.is_deliberate:
        in_optimizer = owner == "torch" and path is not None and path.startswith("torch/optim/")
        return [owners.OPTIMIZER if in_optimizer else owners.OWNERS[owner].on_purpose]
    setting = [known.setting_advice] if known.setting_advice is not None else []
    return [*setting, owners.OWNERS[owner].otherwise]
