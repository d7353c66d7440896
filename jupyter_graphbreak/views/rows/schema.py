"""The rows of a report as data: sections of rows, each row with its text, its style and its line in the source.

Fields with default values are left out of the JSON to keep it small: every saved output contains it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ROWS_VERSION = "1.0"

#: The styles of a row. A front end draws a row with an unknown style as a plain row.
Look = Literal[
    "break", "graph", "eager", "error", "recompile", "allow", "forbid", "good", "bad", "note", "figures",
    "gone", "new", "moved", "unknown",
]  # fmt: skip


class Spot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The line that a row is about, as :class:`~jupyter_graphbreak.report.location.Location` counts lines."""

    source: str
    line: int
    column: int | None = None


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a section.

    Parameters
    ----------
    id : str
        The id in the report; if entries of this kind have none, a string that is unique in the section.
    label : str
        The main text, a few words or a sentence.
    look : str
        The style of the row.
    name : str
        The display name: "Break 1", "Graph A".
    sign : str
        The number or letter in the gutter of an editor.
    is_code : bool
        Whether the label is code of the program.
    details : list of str
        Short facts beside the label.
    more : list of str
        Paragraphs of further detail.
    group : str
        The heading under which rows can be grouped: the reason.
    beside : str
        The note beside the line in an editor.
    spot : Spot or None
        The line to jump to when the row is clicked.
    cost : float or None
        The compile time in seconds, by which rows can be sorted.
    colour : int or None
        The colour index of a graph.
    comment : list of str
        The lines of a comment for the cell that applies the remedy: what the cell does, and how to undo it.
    """

    id: str
    label: str
    look: Look = "note"
    name: str = ""
    sign: str = ""
    is_code: bool = False
    details: list[str] = []
    more: list[str] = []
    group: str = ""
    beside: str = ""
    spot: Spot | None = None
    cost: float | None = None
    colour: int | None = None
    comment: list[str] = []


class Section(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows of one kind.

    Parameters
    ----------
    id : str
        The identifier in selections, links and settings.
    title : str
        The display name.
    rows : list of Row
        The rows; if there are very many, only the first ones.
    total : int
        The number of rows in the report.
    details : list of str
        Short facts beside the title.
    form : {"list", "groups", "plain"}
        ``list``: rows below the title; ``groups``: rows below group headings; ``plain``: rows without a title.
    """

    id: str
    title: str
    rows: list[Row]
    total: int
    details: list[str] = []
    form: Literal["list", "groups", "plain"] = "list"


class Rows(msgspec.Struct, frozen=True, omit_defaults=True):
    """A report as rows, in sections.

    Parameters
    ----------
    look : {"good", "bad", "error", "plain"}
        The overall outcome of the run.
    status : list of str
        The verdict on the run, what to do first, and what changed since the last run.
    about : list of Row
        Sentences about the run as a whole.
    sections : list of Section
        The sections in reading order.
    title : str
        The names of the outermost compiled functions; empty if nothing was compiled.
    """

    version: str
    look: Literal["good", "bad", "error", "plain"]
    status: list[str]
    about: list[Row]
    sections: list[Section]
    title: str = ""
