"""Describe breaks to remove, and proposals: changes that may remove them and have not been tried yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak.knowledge.causes import known_cause

if TYPE_CHECKING:
    import ast
    from collections.abc import Mapping

    from jupyter_graphbreak.knowledge.entries import KnownCause
    from jupyter_graphbreak.report.schema import Break, Report

#: The maximum length of an expression in a title, in characters.
MAX_TITLE_EXPRESSION_LENGTH = 40


@dataclass(frozen=True)
class Problem:
    """A break to remove, with its report and the source texts.

    Families that change the code of several breaks at once need the whole report. The break's location and stacks refer
    to lines of ``texts``; the text of a cell includes the magic's line. New code must not assign the taken names; there
    are none if the program is a function, because its names are local.
    """

    report: Report
    break_: Break
    texts: Mapping[str, str]
    taken_names: frozenset[str] = frozenset()

    @property
    def cause(self) -> KnownCause:
        """The facts about the cause of the break."""
        return known_cause(self.break_.gb_id, self.break_.gb_type)


@dataclass(frozen=True)
class Condition:
    """A test that a change edits or crosses: trials must reach its branches before the verdict can be "works".

    A condition may also be other code that must run, such as a call in a loop that may be empty: then there are no
    ``required_results``. The range is that of the original text, as :mod:`ast` counts.
    """

    source: str
    line: int
    column: int
    end_line: int
    end_column: int
    required_results: tuple[bool, ...] = (True, False)

    @classmethod
    def of(cls, source: str, test: ast.expr, required_results: tuple[bool, ...] = (True, False)) -> Condition:
        """Return the condition for a test in the syntax tree of a source."""
        end_line, end_column = test.end_lineno or test.lineno, test.end_col_offset or test.col_offset
        return cls(source, test.lineno, test.col_offset, end_line, end_column, required_results)


@dataclass(frozen=True)
class InnerCall:
    """A call inside an entry: to a function, to the modules of one class, or to one method of these modules."""

    name: str
    #: The paths of the modules in the entry's state, such as "net.layers.0", or "layers.0" if the entry is itself the
    #: module ``net``. Empty for a function.
    module_paths: tuple[str, ...] = ()
    #: The name of the method to compile; empty if ``Module.compile`` compiles calls to the modules.
    method: str = ""
    filename: str = ""
    #: The functions that ran during the call, each as a file name and a function name.
    functions: frozenset[tuple[str, str]] = frozenset()
    #: Whether the paths start at the entry's object (a module, or the object of a method) and not at a global variable
    #: or an argument.
    starts_at_owner: bool = True
    #: Whether the paths lead to one module in each item of a list such as ``ModuleList``.
    covers_list: bool = False


@dataclass(frozen=True)
class Proposal:
    """A change that may remove breaks."""

    #: The kind of change, as in the table of families.
    family: str
    #: The change as a step for the reader: "Compute both branches with torch.where".
    title: str
    #: The whole new text of each changed source, by the source's id.
    texts: Mapping[str, str] = field(default_factory=dict)
    #: The values of settings by their full dotted names. A dotted name represents a function, and a list represents a
    #: set.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: The code of a switch, which runs before compiling. ``model`` is the outermost module of the program.
    code: str | None = None
    #: The tests that the change edits or crosses.
    conditions: tuple[Condition, ...] = ()
    #: Whether the changed function compiles an inner function. It must then be called uncompiled.
    compiles_inner_function: bool = False
    #: Assumptions that no input can verify, as clauses: "it assumes that ...".
    assumptions: tuple[str, ...] = ()
    #: The functions and modules to compile inside the entry, which itself runs uncompiled.
    inner_calls: tuple[InnerCall, ...] = ()

    @property
    def kind(self) -> Literal["edit", "setting", "switch"]:
        """The kind of the change: an edit of source text, a setting, or a switch."""
        if self.texts:
            return "edit"
        return "setting" if self.settings else "switch"
