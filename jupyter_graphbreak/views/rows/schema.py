"""What a view draws of a report: sections of rows, each row with its words and its spot in the source.

A field that has its default is left out of the JSON, which every saved output carries.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ROWS_VERSION = "1.0"

#: How a row looks. A front end that does not know a look draws a plain row.
Look = Literal[
    "break", "graph", "eager", "error", "recompile", "allow", "forbid", "good", "bad", "note", "figures",
    "gone", "new", "moved", "unknown",
]  # fmt: skip


class Spot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines that a row is about, as :class:`~jupyter_graphbreak.report.location.Location` counts them."""

    source: str
    line: int
    column: int | None = None


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to say.

    Parameters
    ----------
    id : str
        The id that it has in the report; in a list without ids its index.
    label : str
        What the row says, in a few words or in a sentence.
    look : str
        How it looks.
    name : str
        What people call it: "Break 1", "Graph A".
    sign : str
        Its number or letter, as the gutter of an editor shows it.
    is_code : bool
        Whether the label is text of the program.
    details : list of str
        What else is said beside it.
    more : list of str
        Paragraphs for whoever looks closer.
    group : str
        The reason: rows can be put together and sorted by it.
    beside : str
        What is written beside its line in an editor.
    spot : Spot or None
        Where a click leads.
    cost : float or None
        Seconds by which rows can be sorted.
    colour : int or None
        The colour of a graph.
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


class Section(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows of one kind.

    Parameters
    ----------
    id : str
        What selections, links and settings call it.
    title : str
        What people call it.
    rows : list of Row
        The first of them if there are very many.
    total : int
        How many there are.
    details : list of str
        What is said beside the title.
    form : {"list", "groups", "plain"}
        Rows below the title; rows below the headings of their groups; or rows alone.
    """

    id: str
    title: str
    rows: list[Row]
    total: int
    details: list[str] = []
    form: Literal["list", "groups", "plain"] = "list"


class Rows(msgspec.Struct, frozen=True, omit_defaults=True):
    """A report in words.

    Parameters
    ----------
    look : {"good", "bad", "error", "plain"}
        How it went.
    status : list of str
        The line that says how it went, in parts.
    about : list of Row
        Sentences about the run as a whole.
    sections : list of Section
        In the order in which people read them.
    """

    version: str
    look: Literal["good", "bad", "error", "plain"]
    status: list[str]
    about: list[Row]
    sections: list[Section]
