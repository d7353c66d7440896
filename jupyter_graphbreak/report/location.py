"""Locations in the source: the files and cells of a report, and ranges of their text."""

from __future__ import annotations

from typing import Literal

import msgspec

#: The kind of a statement, or of an expression such as a comprehension, whose control flow may depend on a number.
HeadKind = Literal["loop", "condition"]


class Location(msgspec.Struct, frozen=True):
    """A range of source text.

    Parameters
    ----------
    source : str
        The id of a :class:`Source`.
    line, end_line : int
        The first and the last line.
    column, end_column : int or None
        The first column on ``line``, and the column after the last one on ``end_line``, if Python knows them.
    function : str or None
        The name of the function that contains it, without the prefix that Dynamo gives to resume functions.
    code : str or None
        The source text, up to 2000 characters: the expression if the columns are known, otherwise the stripped line.
        ``None`` if the text is unknown or would take too much space.
    """

    source: str
    line: int
    end_line: int
    column: int | None = None
    end_column: int | None = None
    function: str | None = None
    code: str | None = None


class Segment(msgspec.Struct, frozen=True):
    """Consecutive lines of a source, without a final line break."""

    first_line: int
    text: str


class FunctionName(msgspec.Struct, frozen=True):
    """The first line of a function, and its name with its class: "BartDecoder.forward"."""

    line: int
    name: str


class Source(msgspec.Struct, frozen=True):
    """A file or a cell.

    A cell has one segment, which contains its whole text. The segments of a file contain only the functions that took
    part, and those of a library only the lines around the locations in the report.

    ``name`` is the name that users know: "Cell In[3]", "modeling_bart.py". ``path`` is ``None`` for a cell. The path of
    a file is relative to the folder of packages, the standard library, the run's working directory or ``~``; it is
    absolute if the file is in none of these. ``functions`` lists the functions that Dynamo began to compile and whose
    qualified name differs from the plain name.
    """

    id: str
    name: str
    kind: Literal["cell", "file", "library"]
    path: str | None = None
    segments: list[Segment] = []
    functions: list[FunctionName] = []
