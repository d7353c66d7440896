"""List the recompiles: which guard failed, and where a limit ended them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.recording.records import compiled_function, read_stack
from jupyter_graphbreak.report.schema import GuardFailure, Recompile

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.ledger import Ledger
    from jupyter_graphbreak.analysis.source.locations import Sources


def list_recompiles(ledger: Ledger, sources: Sources) -> list[Recompile]:
    """Return the recompiles of a run, with those that a limit forbade."""
    made = []
    for frame in ledger.frames:
        limit = frame.refusal is not None
        if frame.key.compile == 0 and not limit:
            continue
        name, filename, line = ledger.limited_code(frame) if limit or not frame.started else frame.code
        made.append(
            Recompile(
                frame=frame.ident,
                of=ledger.first_id(frame),
                function=compiled_function(name),
                location=sources.location(filename, line, name) if line else None,
                reasons=[_guard_failure(reason, sources) for reason in frame.recompile_reasons],
                limit_hit=limit,
            )
        )
    return made


def guard(reason: str) -> str:
    """Return the guard of a recompile reason: ``0/0: tensor 'x' size mismatch ...  # line`` without id, line, stack."""
    text = reason.partition("User stack trace:")[0].partition("  # ")[0].strip()
    head, colon, rest = text.partition(": ")
    return rest.strip() if colon and "/" in head and head.replace("/", "").isdigit() else text


def _guard_failure(reason: str, sources: Sources) -> GuardFailure:
    stack = read_stack(reason.partition("User stack trace:")[2])
    location = sources.place(stack[-1]) if stack else None
    return GuardFailure(guard(reason), location)
