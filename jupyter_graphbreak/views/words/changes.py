"""Put the changes between two runs into words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.plain_text import count_text
from jupyter_graphbreak.views.words.reason import reason_of

if TYPE_CHECKING:
    from jupyter_graphbreak.report.diff import BreakChange, BreakPlace, Changes


#: If there are more functions than this, the text gives their number instead of their names.
_MAX_NAMES = 2


def headline(changes: Changes) -> str:
    """Summarize the changes of the breaks: "1 break gone, 2 new; cannot compare 1 break: ..."."""
    numbers = Counter(change.change for change in changes.breaks)
    parts = [(kind, numbers[kind]) for kind in ("gone", "new", "moved") if numbers[kind]]
    unknown_count, same_count = numbers["unknown"], len(changes.same)
    if parts:
        (first, number), *rest = parts
        known_changes = ", ".join(
            [f"{count_text(number, 'break')} {first}", *(f"{number} {kind}" for kind, number in rest)]
        )
    elif same_count:
        known_changes = f"the same {count_text(same_count, 'break') if same_count > 1 else 'break'}"
    elif unknown_count or not _is_comparable(changes):
        known_changes = ""
    else:
        known_changes = "no break then or now"
    incomparable = (
        f"cannot compare {count_text(unknown_count, 'break')}" if unknown_count else "cannot compare everything"
    )
    if not known_changes and not unknown_count:
        incomparable = "cannot compare"
    return "; ".join(
        filter(None, [known_changes, f"{incomparable}: {_not_recompiled_text(changes)}" if changes.reused else ""])
    )


def figures(changes: Changes) -> list[str]:
    """Return the figures of both runs: "breaks 2 -> 1"; a figure that is the same in both appears once.

    Functions that only one run compiled, because PyTorch still had their code, are not counted.
    """
    before, after = changes.before, changes.after
    if not _is_comparable(changes):
        return ["nothing was compiled in either run"]
    numbers = [
        ("breaks", before.summary.breaks, after.summary.breaks),
        ("graphs", before.summary.graphs, after.summary.graphs),
        ("ops", before.summary.ops, after.summary.ops),
        ("eager", before.summary.skipped, after.summary.skipped),
        ("recompiles", before.summary.recompiles, after.summary.recompiles),
    ]
    lines = [f"{noun} {_old_to_new(str(old), str(new))}" for noun, old, new in numbers if old or new]
    old_s, new_s = before.timing.compile_s, after.timing.compile_s
    if old_s is not None and new_s is not None:
        lines.append(f"compiling {_old_to_new(f'{old_s:.2f} s', f'{new_s:.2f} s')}")
    hits = before.timing.cache_hits, after.timing.cache_hits
    if old_s is not None and new_s is not None and hits[0] != hits[1]:
        lines.append(f"graphs from Inductor's cache {_old_to_new(*(str(number or 0) for number in hits))}")
    if before.status != after.status:
        lines.append(_old_to_new(before.status, after.status))
    if changes.reused and lines:
        lines[0] = f"of what both runs compiled: {lines[0]}"
    return lines


def _is_comparable(changes: Changes) -> bool:
    """Return whether both runs compiled something that can be compared."""
    return not changes.reused or bool(changes.before.summary.frames and changes.after.summary.frames)


def _not_recompiled_text(changes: Changes) -> str:
    """Name the functions that one run did not compile: "this run did not compile norm (PyTorch still had the code)"."""
    sentences = []
    for run, label in (("after", "this run"), ("before", "the previous run")):
        names = list(dict.fromkeys(function.function for function in changes.reused if function.run == run))
        if names:
            functions_text = count_text(len(names), "function") if len(names) > _MAX_NAMES else " and ".join(names)
            sentences.append(f"{label} did not compile {functions_text} (PyTorch still had the code)")
    return ", ".join(sentences)


def describe_change(change: BreakChange) -> tuple[str, str, str]:
    """Return a break's location, or both if it moved, its expression and its reason."""
    place_text = _change_location_text(change.after or change.before)
    if change.change == "moved":
        place_text = _old_to_new(_change_location_text(change.before), place_text)
    if change.function and change.function != "<module>":
        place_text += f" in {change.function}"
    code = " ".join((change.code or "").split())
    return place_text, code, reason_of(change)


def change_status(change: BreakChange) -> str:
    """Return how a break changed: "gone", "new", "moved"; or the reason why that is not known."""
    if change.change != "unknown":
        return change.change
    if change.before is None:
        return "not compiled in the previous run"
    return "not compiled again: PyTorch still had the code"


def _change_location_text(location: BreakPlace | None) -> str:
    if location is None:
        return "an unknown location"
    return f"{location.name}:{location.line}" if location.name else f"line {location.line}"


def _old_to_new(old: str, new: str) -> str:
    return old if old == new else f"{old} -> {new}"
