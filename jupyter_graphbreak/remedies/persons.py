"""What a person must decide, where no change can be made mechanically: one sentence for every break."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge.hints import manual_step_of_hints
from jupyter_graphbreak.knowledge.lookup import known_cause
from jupyter_graphbreak.knowledge.owners import OWNERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak.report.schema import Break, Skipped


def person_sentence(break_: Break, failed: Sequence[str] = ()) -> str:
    """Return what a person must decide about a break.

    Parameters
    ----------
    break_ : Break
        A break that no proposal mends.
    failed : sequence of str
        The titles of what was tried for it: that is not proposed again.
    """
    if break_.owner != "own":
        return OWNERS[break_.owner].manual_step
    code = (break_.location.code if break_.location is not None else None) or ""
    step = known_cause(break_.gb_id, break_.gb_type, code=code).manual_step
    if step is None:
        return manual_step_of_hints(break_.hints) or _general(code)
    return step.otherwise if step.tried and any(step.tried in title for title in failed) else step.text


def _general(code: str) -> str:
    call = re.match(r"[\w.]+(?=\()", code)
    what = f"{call[0]}()" if call is not None else _shortened(code)
    if not what:
        return "Decide whether what PyTorch could not trace here is needed in the compiled function."
    return f"Decide whether {what} can go before or after the call, or be written with operations on tensors."


def _shortened(code: str) -> str:
    line = " ".join(code.split())
    limit = 60
    return line if len(line) <= limit else f"{line[: limit - 3].rstrip()}..."


def sentence_for_function(skipped: Skipped) -> str:
    """Return what a person must decide about a function that runs eagerly without a break."""
    if skipped.way_out is not None:
        return f"{skipped.function} runs eagerly; {skipped.way_out}"
    return (
        f"{skipped.function} runs eagerly because {skipped.reason.rstrip('.')}: decide whether that is meant, "
        "and leave it out of what is compiled where it is."
    )
