"""Find out on which line a resume function continues, from its bytecode, which torch 2.13 and newer releases log.

A resume function begins with code that Dynamo inserts between two assignments to a variable. It then jumps to the
instruction of the copied function at which it continues.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: The kinds of the entries that contain the bytecode of a resume function as a listing.
LISTING_KIND = re.compile(r"artifact:torch_dynamo_resume_in_.*_ORIGINAL_BYTECODE")
_PROLOGUE = "__is_tracing_resume_prologue"
_ROW = re.compile(
    r"^ *(?P<first>\d+|--)?(?: *(?:-->|>>|(?P<label>L\d+):))*(?: *(?P<second>\d+))? +(?P<operation>[A-Z][A-Z_0-9]+)"
    r"(?: +[\w-]+)?(?: +\((?P<argument>.*)\))?$"
)
_TARGET = re.compile(r"to (?P<target>\w+)")


class _Row(NamedTuple):
    line: int | None
    offset_or_label: str | None
    operation: str
    argument: str


def resumed_line(listing: str) -> int | None:
    """Return the line on which a resume function continues; ``None`` if its listing has an unknown form.

    Parameters
    ----------
    listing : str
        The output of ``dis`` in Python 3.11 to 3.14.
    """
    rows = _rows(listing)
    prologue_ends = [
        index for index, row in enumerate(rows) if (row.operation, row.argument) == ("STORE_FAST", _PROLOGUE)
    ]
    if len(prologue_ends) < 2 or prologue_ends[1] + 1 >= len(rows):  # noqa: PLR2004 - set and reset
        return None
    next_row = rows[prologue_ends[1] + 1]
    jump = _TARGET.fullmatch(next_row.argument)
    if jump is None or not next_row.operation.startswith("JUMP"):
        return next_row.line
    return next((row.line for row in rows if row.offset_or_label == jump["target"]), None)


def _rows(listing: str) -> list[_Row]:
    # If all spaces are single, a row of any length matches in only one way, and matching is fast.
    normalized_lines = (" " + " ".join(line.split()) for line in listing.split("\n"))
    matches = [match for match in map(_ROW.match, normalized_lines) if match is not None]
    has_offsets = all(match["first"] or match["second"] for match in matches)  # Python 3.13 writes labels instead
    rows = []
    line: int | None = None
    for match in matches:
        numbers = [number for number in (match["first"], match["second"]) if number]
        offset = numbers.pop() if has_offsets else None
        if numbers:
            line = int(numbers[0]) if numbers[0].isdigit() else None
        rows.append(_Row(line, offset or match["label"], match["operation"], match["argument"] or ""))
    return rows
