"""A proposal: a change that may remove breaks, before anybody has tried it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_graphbreak.report.schema import Break, Report


@dataclass(frozen=True)
class Problem:
    """A break, as the families read it.

    Parameters
    ----------
    report : Report
        The run with all its breaks; a family that changes all places of its kind at once looks for the others there.
    break_ : Break
        The break that is to go. Its location and those of its stacks count lines as ``texts`` does.
    texts : mapping
        The whole text of each source, by its id: a cell as its editor has it, with the magic's line; a file, all of it.
    """

    report: Report
    break_: Break
    texts: Mapping[str, str]


@dataclass(frozen=True)
class Condition:
    """The test of a branch that a change touches: both sides of it must run before anything is said to work.

    Parameters
    ----------
    source : str
        The id of the source.
    line, column, end_line, end_column : int
        The range of the test in the original text, as :mod:`ast` counts: lines from 1, columns in UTF-8 bytes.
    """

    source: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Proposal:
    """A change that may remove breaks.

    Parameters
    ----------
    family : str
        The kind of change, as in the table of families.
    title : str
        What it does, as a step the reader can take: "Take both sides with torch.where".
    texts : mapping
        The new text of each source that changes, whole, by its id.
    settings : mapping
        Dotted names in full and their values; a function in them is its dotted name, a set is a list.
    code : str or None
        What a switch runs before compiling. It finds the outermost module of the program as ``model``.
    conditions : tuple of Condition
        The tests that the change touches.
    compiles_itself : bool
        Whether the changed function compiles an inner one and is to be called as it stands.
    assumptions : tuple of str
        What it takes for granted that no input shows, as the ends of sentences.
    """

    family: str
    title: str
    texts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    code: str | None = None
    conditions: tuple[Condition, ...] = ()
    compiles_itself: bool = False
    assumptions: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["edit", "setting", "switch"]:
        """What is changed."""
        if self.texts:
            return "edit"
        return "setting" if self.settings else "switch"
