"""Compare the visible results of two runs, except for differences named on the page *Limits*."""

from __future__ import annotations

import difflib
import itertools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.user_view import CellView

#: The frames in the description of an error.
_FRAMES = re.compile(r"\[(?:'\S+ \d+ \S+ \S+ \S+ [^']*'(?:, )?)+\]")
#: Our frames, and the frame of the magic's line, in a stack that PyTorch prints or puts into a message.
_OUR_FRAME = re.compile(
    r"(?:^\w+: |\\+n)(?:\t|\\+t)+"
    r"(?:\S*/jupyter_graphbreak/ipython/\w+\.py\(\d+\): \w+|<ipython-input>\(1\): <module>)"
)


def differences(plain_run: list[CellView] | str, explained_run: list[CellView] | str) -> list[str]:
    """Return the lines that differ between two runs, below the cell and the kind of result that they belong to."""
    if isinstance(plain_run, str) or isinstance(explained_run, str):
        have_same_type = type(plain_run) is type(explained_run)
        return [] if have_same_type else [f"plain: {_brief(plain_run)}", f"explained: {_brief(explained_run)}"]
    lines = []
    for number, (first, second) in enumerate(zip(plain_run, explained_run, strict=True), start=1):
        if all("RecursionError" in str(view.parts.get("error")) for view in (first, second)):
            break  # *Limits* names the recursion depth, on which earlier side effects depend
        has_same_error = _raises_same_error_as_function(first, second)
        parts = [_remove_traceback_lines(view.parts) if has_same_error else view.parts for view in (first, second)]
        for name in first.parts:
            if first.parts[name] != second.parts[name] and not (has_same_error and name in {"names", "history"}):
                changed_lines = list(_changed_lines(*(part[name] for part in parts)))
                lines += [f"cell {number} {name}", *changed_lines] if changed_lines else []
        if second.plan.startswith("fault"):
            lines.append(f"cell {number} {second.plan}")
        if has_same_error and first.parts["names"] != second.parts["names"]:
            break  # *Limits* says that assignments of the graph are missing; later cells lack them
    return lines


def _changed_lines(first: list[str], second: list[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    for kind, begin, end, other_begin, other_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        for left, right in itertools.zip_longest(first[begin:end], second[other_begin:other_end], fillvalue=""):
            first_difference = next((index for index, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
            begin_at = max(0, first_difference - 60)
            if not _is_known(left, right):
                yield f"  - {left[:20]} ... {left[begin_at : begin_at + 240]}"
                yield f"  + {right[:20]} ... {right[begin_at : begin_at + 240]}"


def _is_known(plain_line: str, explained_line: str) -> bool:
    """Return whether *Limits* mentions a difference.

    An error in a graph names the line of a different call, without columns; a stack that PyTorch prints has our frames.
    """
    if _OUR_FRAME.sub("", plain_line) == _OUR_FRAME.sub("", explained_line):
        return True
    return " 0 0 " in explained_line and _FRAMES.sub("", plain_line) == _FRAMES.sub("", explained_line)


def _raises_same_error_as_function(plain_view: CellView, explained_view: CellView) -> bool:
    """Return whether a cell fails with the same error alone and as one function."""
    errors = [view.parts.get("error", []) for view in (plain_view, explained_view)]
    return explained_view.plan == "function" and errors[0] != ["NoneType None"] and not list(_changed_lines(*errors))


def _remove_traceback_lines(parts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the parts of a view, without the lines of the traceback at the end of the output."""
    output = itertools.takewhile(lambda line: not line.startswith("stdout: -----"), parts["output"])
    return parts | {"output": [*output, *parts["output"][-1:]]}


def _brief(user_view: Any) -> str:
    return user_view if isinstance(user_view, str) else "it ran"
