"""What changed between two runs, in words: for the text of a report, and for its markup."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.plain_text import counted

if TYPE_CHECKING:
    from jupyter_graphbreak.report.diff import Change, Changes, Place


def headline(changes: Changes) -> str:
    """Return what became of the breaks: "1 break gone, 2 new"."""
    numbers = Counter(change.change for change in changes.breaks)
    parts = [(kind, numbers[kind]) for kind in ("gone", "new", "moved") if numbers[kind]]
    if not parts:
        same = len(changes.same)
        return "no break then or now" if not same else f"the same {counted(same, 'break') if same > 1 else 'break'}"
    (first, number), *rest = parts
    return ", ".join([f"{counted(number, 'break')} {first}", *(f"{number} {kind}" for kind, number in rest)])


def figures(changes: Changes) -> list[str]:
    """Return the figures of both runs: "2 -> 1 breaks"; one that stayed as it was stands there once."""
    before, after = changes.before, changes.after
    numbers = [
        ("breaks", before.summary.breaks, after.summary.breaks),
        ("graphs", before.summary.graphs, after.summary.graphs),
        ("ops", before.summary.ops, after.summary.ops),
        ("eager", before.summary.skipped, after.summary.skipped),
        ("recompiles", before.summary.recompiles, after.summary.recompiles),
    ]
    lines = [f"{noun} {_step(str(old), str(new))}" for noun, old, new in numbers if old or new]
    old_s, new_s = before.timing.compile_s, after.timing.compile_s
    if old_s is not None and new_s is not None:
        lines.append(f"compiling {_step(f'{old_s:.2f} s', f'{new_s:.2f} s')}")
    if before.status != after.status:
        lines.append(_step(before.status, after.status))
    return lines


def described(change: Change) -> tuple[str, str, str]:
    """Return where a break stands or stood, its expression, its reason."""
    at = _place(change.after or change.before)
    if change.change == "moved":
        at = _step(_place(change.before), at)
    if change.function and change.function != "<module>":
        at += f" in {change.function}"
    code = " ".join((change.code or "").split())
    return at, code, change.gb_type + (f" ({change.gb_id})" if change.gb_id else "")


def _place(place: Place | None) -> str:
    if place is None:
        return "an unknown place"
    return f"{place.name}:{place.line}" if place.name else f"line {place.line}"


def _step(old: str, new: str) -> str:
    return old if old == new else f"{old} -> {new}"
