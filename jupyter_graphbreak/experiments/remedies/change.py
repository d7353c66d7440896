"""A change of a program: proposals put together, and the same as edits, as a patch and as code that sets settings."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.report.remedies import Edit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_graphbreak.experiments.families.proposal import Proposal


@dataclass(frozen=True)
class Change:
    """What is different in a changed program.

    Parameters
    ----------
    texts : mapping
        The new text of each source that changes, whole, by its id.
    settings : mapping
        Dotted names in full and their values.
    codes : tuple of str
        What switches run before compiling.
    compiles_itself : bool
        Whether the changed function compiles an inner one and is called as it stands.
    assumptions : tuple of str
        What it takes for granted that no input shows, as the ends of sentences.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    codes: tuple[str, ...] = ()
    compiles_itself: bool = False
    assumptions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.texts or self.settings or self.codes)

    def extended(self, proposal: Proposal) -> Change:
        """Return this change and a proposal for the program as it is with this change."""
        made = Change(
            {**self.texts, **proposal.texts},
            self.settings,
            self.codes,
            self.compiles_itself or proposal.compiles_itself,
            tuple(dict.fromkeys([*self.assumptions, *proposal.assumptions])),
        )
        return made.with_settings(proposal.settings, (proposal.code,) if proposal.code is not None else ())

    def with_settings(self, settings: Mapping[str, Any], codes: tuple[str, ...]) -> Change:
        """Return this change with further settings and switches."""
        united = _united(self.settings, settings)
        return replace(self, settings=united, codes=tuple(dict.fromkeys([*self.codes, *codes])))


def _united(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    made = {**first, **second}
    for name in first.keys() & second.keys():
        if isinstance(first[name], list):  # a set of functions
            made[name] = list(dict.fromkeys([*first[name], *second[name]]))
    return made


def edits_of(original: Mapping[str, str], change: Change) -> list[Edit]:
    """Return a change of texts as edits of whole lines of the original."""
    edits = []
    for source, text in change.texts.items():
        old, new = original[source].split("\n"), text.split("\n")
        for first, last, new_first, new_last in _hunks(old, new):
            edits.append(Edit(source, first + 1, last, "\n".join(old[first:last]), "\n".join(new[new_first:new_last])))
    return edits


def _hunks(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """Return the ranges of lines that differ, none of which becomes one empty line: that would read as a deletion."""
    hunks: list[tuple[int, int, int, int]] = []
    for kind, first, last, new_first, new_last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        hunk = first, last, new_first, new_last
        if new[new_first:new_last] == [""]:  # an equal line more, after it or before it
            if last < len(old):
                hunk = first, last + 1, new_first, new_last + 1
            elif first:
                hunk = first - 1, last, new_first - 1, new_last
        if hunks and hunk[0] < hunks[-1][1]:
            before = hunks.pop()
            hunk = before[0], hunk[1], before[2], hunk[3]
        hunks.append(hunk)
    return hunks


def applied_to(text: str, edits: list[Edit]) -> str:
    """Return a text with edits of one source applied.

    Raises
    ------
    ValueError
        If the text does not have the lines that an edit takes the place of.
    """
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda edit: (edit.first_line, edit.last_line), reverse=True):
        there = slice(edit.first_line - 1, edit.last_line)
        if "\n".join(lines[there]) != edit.old:
            raise ValueError(f"lines {edit.first_line} to {edit.last_line} read otherwise now")
        lines[there] = edit.new.split("\n") if edit.new else []
    return "\n".join(lines)


def patch_of(original: Mapping[str, str], change: Change, paths: Mapping[str, str]) -> str | None:
    """Return a change of texts as a unified diff.

    Parameters
    ----------
    paths : mapping
        The path or name of each source, by its id.
    """
    lines: list[str] = []
    for source, text in change.texts.items():
        path = paths[source].lstrip("/")
        lines += difflib.unified_diff(
            original[source].split("\n"), text.split("\n"), f"a/{path}", f"b/{path}", lineterm=""
        )
    return "\n".join(lines) + "\n" if lines else None


def code_of(change: Change) -> str | None:
    """Return the code that makes a change of settings and switches in a kernel."""
    lines: list[str] = []
    for name, value in change.settings.items():
        if isinstance(value, list):
            functions = (f"{name}.add({function.removeprefix('builtins.')})" for function in value)
            lines += [*_imports(value), *functions]
        else:
            lines.append(f"{name} = {value!r}")
    modules = dict.fromkeys(name.rpartition(".")[0] for name in change.settings)
    imports = [f"import {module}" for module in modules]
    return "\n".join([*imports, *lines, *change.codes]) or None


def _imports(functions: list[str]) -> list[str]:
    modules = dict.fromkeys(name.partition(".")[0] for name in functions)
    return [f"import {module}" for module in modules if module not in {"builtins", "__main__"}]
