"""Limit reports to the part that views show, because a report may be very large or come from an untrusted source.

Of lists and strings that are too long, views show only the beginning, and a note in the report says how much is shown.
The front end has the same limits for lists, because otherwise it would number the breaks differently.
"""

from __future__ import annotations

import math
import operator
import types
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from jupyter_graphbreak.report.cost import Spread
from jupyter_graphbreak.report.location import Location, Segment
from jupyter_graphbreak.report.remedies import Edit, Remedy
from jupyter_graphbreak.report.reproducer import Reproducer
from jupyter_graphbreak.report.schema import Break, Diagnostic, Graph, GraphLine, Report, Setting
from jupyter_graphbreak.report.values import ValueRange
from jupyter_graphbreak.views.words.lookup import per_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


#: The maximum number of entries in each top-level list of a report.
MAX_LIST_ENTRIES = 5_000
_MAX_NESTED_ENTRIES = 20_000
#: The maximum number of entries in all nested lists together.
_MAX_TOTAL_NESTED_ENTRIES = 400_000
_MAX_NAME_LENGTH = 500
_MAX_SENTENCE_LENGTH = 20_000
#: The maximum number of characters in source text, code or a change.
_MAX_SOURCE_TEXT_LENGTH = 2_000_000
#: The maximum number of characters in all strings together.
_MAX_TOTAL_LENGTH = 32_000_000
_MAX_LINES = 20_000
#: The maximum number of lines in all strings with several lines together.
_MAX_TOTAL_LINES = 400_000
_MAX_LOCATION_LINES = 20_000
_LAST_LINE = 10**9
_MAX_ABS_NUMBER = 2**53
#: The maximum nesting of a value of unknown type, such as a setting.
_MAX_NESTING = 20
#: Fields that contain sentences, and fields that contain source text or code; all others contain names.
_SENTENCE_FIELDS = frozenset({
    "explanation", "context", "hints", "reason", "message", "guard", "differences", "person", "what", "text", "title",
    "code",
})  # fmt: skip
_TEXT_FIELDS = {
    (Segment, "text"), (Graph, "code"), (Edit, "old"), (Edit, "new"), (Remedy, "patch"), (Remedy, "code"),
    (Reproducer, "script"), (Reproducer, "issue"),
}  # fmt: skip
#: The lists whose entries are referred to by id: an entry with the id of an earlier one is left out. Entries of other
#: lists are referred to by index.
_LISTS_WITH_IDS = ("sources", "graphs", "breaks", "resumes", "skipped", "scopes")
_T = TypeVar("_T")


def limit_part(part: _T) -> _T:
    """Return a part of a report, a job or a comparison, with its lists and strings limited."""
    type_of_part: Any = type(part)
    limited_part: _T = _limiter(type_of_part)(part, _Bounds(), "", type_of_part)
    return limited_part


@per_report
def _limit_report_if_needed(report: Report) -> Report | None:
    shown_report = _Bounds().limit_report(report)
    # If the cache referred to the report itself, the report would stay alive.
    return shown_report if shown_report is not report else None


def shown_part(report: Report) -> Report:
    """Return the part of a report that views show: the report itself, unless it is very large or malformed.

    In the result, lists and strings are limited, numbers are finite and in a sensible range, ids are unique, scopes and
    frames form no cycles, and settings of breaks refer to existing scopes.
    """
    return _limit_report_if_needed(report) or report


class _Bounds:
    """Limits one report, and counts the entries and strings that it cuts."""

    def __init__(self) -> None:
        self.entries_left = _MAX_TOTAL_NESTED_ENTRIES
        self.characters_left = _MAX_TOTAL_LENGTH
        self.lines_left = _MAX_TOTAL_LINES
        self.cut_lists: dict[str, tuple[int, int]] = {}
        self.cut_string_count = 0
        self.dropped_entry_count = 0

    def limit_report(self, report: Report) -> Report:
        changed_fields: dict[str, Any] = {}
        for name, kind in _fields(type(report)):
            value = getattr(report, name)
            items = self._select_entries(report, name, value) if isinstance(value, list) else value
            shown_items = _limiter(kind)(items, self, name, type(report))
            if shown_items is not value:
                changed_fields[name] = shown_items
        if changed_fields:
            report = msgspec.structs.replace(report, **changed_fields)
        report = _remove_dangling_references(report)
        notes = list(self._notes())
        if notes:
            report = msgspec.structs.replace(report, diagnostics=[*notes, *report.diagnostics])
        return report

    def _select_entries(self, report: Report, name: str, items: list[Any]) -> list[Any]:
        """Return the entries of a top-level list to show: one for each id; of too many breaks, those to fix first."""
        shown_items = items
        if name in _LISTS_WITH_IDS:
            unique = {item.id: item for item in reversed(items)}
            if len(unique) < len(items):
                shown_items = list(reversed(unique.values()))
        if len(shown_items) > MAX_LIST_ENTRIES:
            if name == "breaks" and report.order:
                first_ids = set(report.order[:MAX_LIST_ENTRIES])
                shown_items = sorted(shown_items, key=lambda item: item.id not in first_ids)
            shown_items = shown_items[:MAX_LIST_ENTRIES]
        if len(shown_items) < len(items):
            self.cut_lists[name] = len(shown_items), len(items)
        return shown_items

    def _notes(self) -> Iterable[Diagnostic]:
        """Yield notes about the parts that were left out."""
        if self.cut_lists:
            parts = [
                f"{shown_count} of {total} {_LIST_NOUNS.get(name, name)}"
                for name, (shown_count, total) in self.cut_lists.items()
            ]
            yield Diagnostic("warning", f"This report is too large to show in full. Shown: {', '.join(parts)}.")
        if self.dropped_entry_count:
            yield Diagnostic(
                "warning", f"Entries of long lists in this report that are not shown: {self.dropped_entry_count}."
            )
        if self.cut_string_count:
            yield Diagnostic("warning", f"Strings in this report that are not shown in full: {self.cut_string_count}.")

    def limit_list(self, items: list[Any]) -> list[Any]:
        """Return the beginning of a nested list, or the list itself if it is short enough."""
        max_items = min(_MAX_NESTED_ENTRIES, self.entries_left)
        self.entries_left -= min(len(items), max_items)
        if len(items) <= max_items:
            return items
        self.dropped_entry_count += len(items) - max_items
        return items[:max_items]

    def limit_string(self, text: str, limit: int) -> str:
        """Return a string, truncated if it is too long or has too many lines."""
        if len(text) <= _MAX_NAME_LENGTH <= self.characters_left and "\n" not in text:
            self.characters_left -= len(text)
            return text
        limit = min(limit, self.characters_left)
        shown_text = text if len(text) <= limit else f"{text[:limit]}…"
        if "\n" in shown_text:
            max_lines = min(_MAX_LINES, self.lines_left)
            line_breaks = shown_text.count("\n")
            if line_breaks > max_lines:
                shown_text = "\n".join([*shown_text.split("\n", max_lines)[:max_lines], "…"])
            self.lines_left -= min(line_breaks, max_lines)
        self.cut_string_count += shown_text is not text
        self.characters_left -= min(len(shown_text), self.characters_left)
        return shown_text


#: Readable names of lists, for those whose field names are not readable.
_LIST_NOUNS = {
    "skipped": "eager functions",
    "order": "positions in the order of breaks",
    "cudagraph_skips": "graphs without a CUDA graph",
    "paths": "differences when compiled",
    "compiled": "compiled calls",
    "diagnostics": "notes",
    "check": "checks",
    "held": "functions compiled before",
    "resumes": "resume functions",
}


@cache
def _fields(struct_type: type) -> list[tuple[str, Any]]:
    """Return the names and types of those fields of a class whose values may be too large."""
    fields = ((field.name, field.type) for field in msgspec.structs.fields(struct_type))
    return [(name, type_) for name, type_ in fields if type_ is not bool and get_origin(type_) is not Literal]


@cache
def _limiter(type_: Any) -> Callable[[Any, _Bounds, str, type], Any]:
    """Return a function that limits values of a type; if a value is within the limits, it returns the same object."""
    origin, type_arguments = get_origin(type_), get_args(type_)
    if origin in {Union, types.UnionType}:
        other_types = [part for part in type_arguments if part is not type(None)]
        if len(other_types) == 1 and other_types[0] is not float:
            limit = _limiter(other_types[0])
            return lambda value, bounds, name, owner: None if value is None else limit(value, bounds, name, owner)
        return _limit_any
    if origin is list:
        return _list_limiter(_limiter(type_arguments[0]))
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return _struct_limiter(type_)
    if type_ is str:
        return _limit_string
    if type_ is float:
        return lambda value, _bounds, _name, _owner: _make_finite(value, 0.0)
    if type_ in {bool, type(None)} or origin is Literal:
        return lambda value, _bounds, _name, _owner: value
    return _limit_any


def _limit_string(value: str, bounds: _Bounds, name: str, owner: type) -> str:
    if (owner, name) in _TEXT_FIELDS:
        return bounds.limit_string(value, _MAX_SOURCE_TEXT_LENGTH)
    return bounds.limit_string(value, _MAX_SENTENCE_LENGTH if name in _SENTENCE_FIELDS else _MAX_NAME_LENGTH)


def _limit_any(value: Any, bounds: _Bounds, name: str, owner: type, depth: int = 0) -> Any:
    """Limit a value of unknown type: a number, a string, a setting."""
    if isinstance(value, str):
        return _limit_string(value, bounds, name, owner)
    if isinstance(value, float):
        return value if owner is ValueRange and math.isfinite(value) else _make_finite(value, None)
    if isinstance(value, int):
        return max(-_MAX_ABS_NUMBER, min(value, _MAX_ABS_NUMBER))
    if isinstance(value, (list, dict)) and depth >= _MAX_NESTING:
        bounds.dropped_entry_count += 1
        return "…"
    if isinstance(value, list):
        return _reuse_if_identical(
            value, [_limit_any(item, bounds, name, owner, depth + 1) for item in bounds.limit_list(value)]
        )
    if isinstance(value, dict):
        items = bounds.limit_list(list(value.items()))
        limited_items = {
            _limit_string(str(key), bounds, "", owner): _limit_any(item, bounds, name, owner, depth + 1)
            for key, item in items
        }
        return value if limited_items == value else limited_items
    return value


def _make_finite(value: float, default: float | None) -> float | None:
    if not math.isfinite(value):
        return default
    return value if abs(value) <= _MAX_ABS_NUMBER else math.copysign(_MAX_ABS_NUMBER, value)


def _list_limiter(limit: Callable[[Any, _Bounds, str, type], Any]) -> Callable[[Any, _Bounds, str, type], Any]:
    def limit_values(value: list[Any], bounds: _Bounds, name: str, owner: type) -> list[Any]:
        # Top-level lists are already limited, and do not count towards the limit of nested entries.
        items = value if issubclass(owner, Report) else bounds.limit_list(value)
        return _reuse_if_identical(value, [limit(item, bounds, name, owner) for item in items])

    return limit_values


def _reuse_if_identical(old: list[Any], new: list[Any]) -> list[Any]:
    """Return the old list if the new one contains the same objects."""
    return old if len(old) == len(new) and all(map(operator.is_, old, new)) else new


def _struct_limiter(struct_type: type) -> Callable[[Any, _Bounds, str, type], Any]:
    repair = _REPAIRS.get(struct_type, lambda value: value)
    limiters: list[tuple[str, Any]] = []  # filled at the first value, since a class may contain itself

    def limit_struct(value: Any, bounds: _Bounds, _name: str, _owner: type) -> Any:
        if not limiters:
            limiters.extend((name, _limiter(type_)) for name, type_ in _fields(struct_type))
        changed_fields = {}
        for name, limit in limiters:
            old = getattr(value, name)
            new = limit(old, bounds, name, struct_type)
            if new is not old:
                changed_fields[name] = new
        return repair(msgspec.structs.replace(value, **changed_fields) if changed_fields else value)

    return limit_struct


def _repair_location(location: Location) -> Location:
    """Return a location with valid lines and columns."""
    line = min(max(location.line, 0), _LAST_LINE)
    end_line = min(max(location.end_line, line), line + _MAX_LOCATION_LINES)
    column = location.column if location.column is None else min(max(location.column, 0), _LAST_LINE)
    end_column = location.end_column if location.end_column is None else min(max(location.end_column, 0), _LAST_LINE)
    if (line, end_line, column, end_column) == (location.line, location.end_line, location.column, location.end_column):
        return location
    return msgspec.structs.replace(location, line=line, end_line=end_line, column=column, end_column=end_column)


def _repair_line(part: Any, name: str) -> Any:
    line = getattr(part, name)
    valid_line = min(max(line, 0), _LAST_LINE)
    return part if valid_line == line else msgspec.structs.replace(part, **{name: valid_line})


_REPAIRS: dict[type, Callable[[Any], Any]] = {
    Location: _repair_location,
    Segment: lambda segment: _repair_line(segment, "first_line"),
    GraphLine: lambda line: _repair_line(line, "line"),
    Spread: lambda time: time if time.runs > 0 else msgspec.structs.replace(time, runs=1),
}


def _remove_dangling_references(report: Report) -> Report:
    """Return a report without cycles of scopes or frames; its settings and error refer only to existing parts."""
    changed_fields: dict[str, Any] = {}
    scope_ids = {scope.id for scope in report.scopes}
    cyclic_scope_ids = _ids_closing_cycles({scope.id: scope.parent for scope in report.scopes})
    _replace_list(
        changed_fields, "scopes", report.scopes, lambda scope: _clear_field(scope, "parent", cyclic_scope_ids)
    )
    cyclic_frame_ids = _ids_closing_cycles({frame.id: frame.caller for frame in report.frames})
    _replace_list(
        changed_fields, "frames", report.frames, lambda frame: _clear_field(frame, "caller", cyclic_frame_ids)
    )
    _replace_list(changed_fields, "breaks", report.breaks, lambda break_: _with_known_scopes(break_, scope_ids))
    if report.error is not None and report.error.break_ not in {None, *(break_.id for break_ in report.breaks)}:
        changed_fields["error"] = msgspec.structs.replace(report.error, break_=None)
    return msgspec.structs.replace(report, **changed_fields) if changed_fields else report


def _replace_list(changed_fields: dict[str, Any], name: str, items: list[_T], convert: Callable[[_T], _T]) -> None:
    converted_items = _reuse_if_identical(items, [convert(item) for item in items])
    if converted_items is not items:
        changed_fields[name] = converted_items


def _clear_field(part: Any, name: str, ids: set[str]) -> Any:
    return msgspec.structs.replace(part, **{name: None}) if part.id in ids else part


def _with_known_scopes(break_: Break, scopes: set[str]) -> Break:
    setting = break_.setting
    if setting is None or (scopes.issuperset(setting.chain) and (setting.scope is None or setting.scope in scopes)):
        return break_
    scope = setting.scope if setting.scope in scopes else None
    chain = [ident for ident in setting.chain if ident in scopes]
    return msgspec.structs.replace(break_, setting=Setting(setting.value, setting.rules, scope, chain))


def _ids_closing_cycles(parents: dict[str, str | None]) -> set[str]:
    """Return, for each cycle of parents, the id whose parent closes the cycle."""
    closing_ids: set[str] = set()
    visited_ids: set[str] = set()
    for start in parents:
        path: set[str] = set()
        current: str | None = start
        while current is not None and current in parents and current not in visited_ids:
            path.add(current)
            if parents[current] in path:
                closing_ids.add(current)
                break
            current = parents[current]
        visited_ids |= path
    return closing_ids
