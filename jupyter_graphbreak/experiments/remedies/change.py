"""Combine proposals into a change to a program, and convert it to edits, a patch, code, or a remedy.

A change may set switches of libraries. A trial restores their state.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_graphbreak.experiments.trial.process_state import set_environment
from jupyter_graphbreak.knowledge.switches import switch_with_code
from jupyter_graphbreak.report.remedies import Edit, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jupyter_graphbreak.experiments.families.proposal import InnerCall, Proposal
    from jupyter_graphbreak.knowledge.switches import KnownSwitch
    from jupyter_graphbreak.report.remedies import Evidence, RemedyKind, RemedyVerdict


@dataclass(frozen=True)
class Change:
    """The differences between a changed program and the original. The switch statements run before compiling."""

    texts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    switch_statements: tuple[str, ...] = ()
    compiles_inner_function: bool = False
    assumptions: tuple[str, ...] = ()
    inner_calls: tuple[InnerCall, ...] = ()

    @property
    def inner_targets(self) -> frozenset[tuple[str, str]]:
        """The path and the method of each module to compile; the method is empty if the module itself is compiled."""
        return frozenset((path, part.method) for part in self.inner_calls for path in part.module_paths)

    def __bool__(self) -> bool:
        return bool(self.texts or self.settings or self.switch_statements)

    def with_proposal(self, proposal: Proposal) -> Change:
        """Return this change extended by a proposal for the changed program."""
        switch_statements = (proposal.code,) if proposal.code is not None else ()
        return self.combine({**self.texts, **proposal.texts}, proposal, switch_statements)

    def combine(self, texts: Mapping[str, str], other: Change | Proposal, switch_statements: tuple[str, ...]) -> Change:
        """Return this change combined with a further change or proposal, given the changed texts of both."""
        return Change(
            texts,
            _merge_settings(self.settings, other.settings),
            tuple(dict.fromkeys([*self.switch_statements, *switch_statements])),
            self.compiles_inner_function or other.compiles_inner_function,
            tuple(dict.fromkeys([*self.assumptions, *other.assumptions])),
            (*self.inner_calls, *other.inner_calls),
        )


def _merge_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    settings = {**first, **second}
    for name in first.keys() & second.keys():
        if isinstance(first[name], list):  # a set of functions
            settings[name] = list(dict.fromkeys([*first[name], *second[name]]))
    return settings


def edits_of(original_texts: Mapping[str, str], change: Change) -> list[Edit]:
    """Return a change as edits of whole lines of the original."""
    edits = []
    for source, text in change.texts.items():
        old_lines, new_lines = original_texts[source].split("\n"), text.split("\n")
        for first, last, new_first, new_last in _hunks(old_lines, new_lines):
            old, new = "\n".join(old_lines[first:last]), "\n".join(new_lines[new_first:new_last])
            edits.append(Edit(source, first + 1, last, old, new))
    return edits


def _hunks(old_lines: list[str], new_lines: list[str]) -> list[tuple[int, int, int, int]]:
    """Return the ranges of lines that differ.

    A new range with one empty line would look like a deletion, so it includes an unchanged line, if there is one.
    """
    hunks: list[tuple[int, int, int, int]] = []
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag == "equal":
            continue
        hunk = first, last, new_first, new_last
        if new_lines[new_first:new_last] == [""]:  # include the unchanged line after or before the range
            if last < len(old_lines):
                hunk = first, last + 1, new_first, new_last + 1
            elif first:
                hunk = first - 1, last, new_first - 1, new_last
        if hunks and hunk[0] < hunks[-1][1]:
            hunk_before = hunks.pop()
            hunk = hunk_before[0], hunk[1], hunk_before[2], hunk[3]
        hunks.append(hunk)
    return hunks


def apply_edits(text: str, edits: list[Edit]) -> str:
    """Return the text of a source with its edits applied; raise a ValueError if their old lines differ."""
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda edit: (edit.first_line, edit.last_line), reverse=True):
        replaced_lines = slice(edit.first_line - 1, edit.last_line)
        if "\n".join(lines[replaced_lines]) != edit.old:
            raise ValueError(f"lines {edit.first_line} to {edit.last_line} have changed")
        lines[replaced_lines] = edit.new.split("\n") if edit.new else []
    return "\n".join(lines)


def merge_changes(original_texts: Mapping[str, str], first: Change, second: Change) -> Change | None:
    """Merge two changes to the original; ``None`` if they change the same lines or cannot both apply."""
    texts = dict(first.texts)
    for source, text in second.texts.items():
        if source not in texts:
            texts[source] = text
            continue
        changes = Change({source: texts[source]}), Change({source: text})
        edits = list(dict.fromkeys(edit for change in changes for edit in edits_of(original_texts, change)))
        edits.sort(key=lambda edit: (edit.first_line, edit.last_line))
        for earlier_edit, later_edit in itertools.pairwise(edits):
            if later_edit.first_line <= max(earlier_edit.last_line, earlier_edit.first_line):
                return None
        texts[source] = apply_edits(original_texts[source], edits)
    if do_settings_conflict(first.settings, second.settings) or (
        first.compiles_inner_function and second.compiles_inner_function
    ):
        return None
    return first.combine(texts, second, second.switch_statements)


def do_settings_conflict(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two groups of settings give a setting different values. Sets of functions never conflict."""
    shared_names = first.keys() & second.keys()
    return any(first[name] != second[name] and not isinstance(first[name], list) for name in shared_names)


def patch_of(original_texts: Mapping[str, str], change: Change, paths: Mapping[str, str]) -> str | None:
    """Return a change as a unified diff; ``None`` if it changes no text."""
    lines: list[str] = []
    for source, text in change.texts.items():
        path = paths[source].lstrip("/")
        lines += difflib.unified_diff(
            original_texts[source].split("\n"), text.split("\n"), f"a/{path}", f"b/{path}", lineterm=""
        )
    return "\n".join(lines) + "\n" if lines else None


def code_of(change: Change) -> str | None:
    """Return the code that applies the settings and switches of a change in a kernel; ``None`` if there are none."""
    modules = dict.fromkeys(name.rpartition(".")[0] for name in change.settings)
    imports = [f"import {module}" for module in modules]
    return "\n".join([*imports, *settings_statements(change.settings), *change.switch_statements]) or None


def settings_statements(settings: Mapping[str, Any]) -> list[str]:
    """Return the statements that change settings, given their full dotted names."""
    lines: list[str] = []
    for name, value in settings.items():
        if isinstance(value, list):
            functions = (f"{name}.add({function.removeprefix('builtins.')})" for function in value)
            lines += [*_imports(value), *functions]
        else:
            lines.append(f"{name} = {value!r}")
    return lines


def _imports(functions: list[str]) -> list[str]:
    modules = dict.fromkeys(name.partition(".")[0] for name in functions)
    return [f"import {module}" for module in modules if module not in {"builtins", "__main__"}]


class _TrialOutcome(Protocol):
    """The outcome of the trial of a change, with fields that mean the same as in :class:`Remedy`."""

    @property
    def verdict(self) -> RemedyVerdict: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def differences(self) -> list[str]: ...
    @property
    def evidence(self) -> Evidence | None: ...
    @property
    def seconds(self) -> float: ...


def remedy_of_change(
    ident: str,
    change: Change,
    outcome: _TrialOutcome,
    *,
    families: Iterable[str],
    title: str,
    kind: RemedyKind,
    original_texts: Mapping[str, str],
    paths: Mapping[str, str],
) -> Remedy:
    """Return a change after its trial as a remedy. The caller adds the breaks or recompiles that the remedy is for.

    The texts and the paths or names are those of the sources that the change edits, by the source's id.
    """
    return Remedy(
        id=ident,
        breaks=[],
        family=" and ".join(families),
        title=title,
        kind=kind,
        verdict=outcome.verdict,
        edits=edits_of(original_texts, change),
        settings=dict(change.settings),
        code=code_of(change),
        patch=patch_of(original_texts, change, paths),
        reason=outcome.reason,
        differences=outcome.differences,
        evidence=outcome.evidence,
        seconds=outcome.seconds,
    )


def decision_remedy(ident: str, sentence: str | None, reason: str | None) -> Remedy:
    """Return a remedy that changes nothing: the user's decision, if nothing else is left, and why nothing was tried."""
    return Remedy(
        id=ident, breaks=[], family="person", title="A person must decide", kind="person", verdict="not tried",
        reason=reason, person=sentence,
    )  # fmt: skip


def library_switches(change: Change) -> list[KnownSwitch]:
    """Return the switches of a change that set something in a library, not only in the program's objects."""
    switches = [switch_with_code(code) for code in change.switch_statements]
    return [switch for switch in switches if switch is not None and switch.state_expressions]


@contextlib.contextmanager
def restore_switches_on_exit(change: Change) -> Iterator[None]:
    """On exit, restore the environment and the library state that a change's switches may set."""
    saved_environment = dict(os.environ)
    owners = [owner for switch in library_switches(change) for owner in _state_owners(switch)]
    attributes = [(owner, dict(vars(owner))) for owner in owners]
    try:
        yield
    finally:
        set_environment(saved_environment)
        for owner, values in attributes:
            _restore_attributes(owner, values)


def _state_owners(switch: KnownSwitch) -> list[Any]:
    """Return the objects whose attributes a switch may change."""
    names = {switch.library: importlib.import_module(switch.library)}
    return [eval(expression, names) for expression in switch.state_expressions]  # noqa: S307 - our own table contains the code


def _restore_attributes(owner: Any, values: Mapping[str, Any]) -> None:
    """Restore the earlier values of an object's attributes."""
    for name in vars(owner).keys() - values.keys():
        delattr(owner, name)
    for name, value in values.items():
        if vars(owner).get(name) is not value:
            setattr(owner, name, value)
