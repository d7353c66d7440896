"""The part of a report that views show, however large the report is and whoever made it.

A report may come from a notebook, a log or a file of somebody else. Views show the beginning of lists and texts that
are too long, and a note in the report says how much that is. The limits are those of the front end, so that both number
the same breaks in the same way.
"""

from __future__ import annotations

import math
import types
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from jupyter_graphbreak.report.cost import Spread
from jupyter_graphbreak.report.location import Location, Segment
from jupyter_graphbreak.report.remedies import Edit, Remedy
from jupyter_graphbreak.report.schema import (
    Break,
    Diagnostic,
    Graph,
    GraphLine,
    Report,
    Setting,
)
from jupyter_graphbreak.views.words.per_report import per_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


#: Entries of each of a report's own lists; of one list within these, and of all lists within them together.
MOST_PARTS = 5_000
_MOST_WITHIN_PART = 20_000
_MOST_WITHIN = 400_000
#: Characters of names, of sentences, and of source text, code and changes; of all texts together.
_LONGEST_NAME = 500
_LONGEST_SENTENCE = 20_000
_LONGEST_TEXT = 2_000_000
_MOST_TEXT = 32_000_000
#: Lines of one text, and of all texts of several lines together.
_MOST_LINES = 20_000
_MOST_LINES_IN_ALL = 400_000
#: Lines that one place covers.
_LONGEST_PLACE = 20_000
_LAST_LINE = 10**9
_LARGEST = 2**53
#: Levels of a value whose form no class describes, such as a setting.
_DEEPEST = 20
#: Fields that hold sentences, and fields that hold source text or code; all others hold names.
_SENTENCES = frozenset({
    "explanation", "context", "hints", "reason", "message", "guard", "differences", "person", "what", "text", "title",
    "code",
})  # fmt: skip
_TEXTS = {(Segment, "text"), (Graph, "code"), (Edit, "old"), (Edit, "new"), (Remedy, "patch"), (Remedy, "code")}
#: Parts that are referred to by their ids, so that each id counts once. Others are referred to by their places.
_KNOWN_BY_ID = ("sources", "graphs", "breaks", "resumes", "skipped", "scopes")
_T = TypeVar("_T")


def bounded(part: _T) -> _T:
    """Return what is shown of a part of a report, or of what is said of several reports."""
    kind: Any = type(part)
    shown: _T = _bounder(kind)(part, _Bounds(), "", kind)
    return shown


@per_report
def _bounded_report(report: Report) -> Report | None:
    shown = _Bounds().report(report)
    return shown if shown is not report else None  # the report itself would never be forgotten


def shown_part(report: Report) -> Report:
    """Return the part of a report that views show: the report itself, unless it is very large or malformed.

    Lists and texts are cut, numbers are finite and in a range that makes sense, each id is there once, scopes and
    frames are not around themselves, and a break's setting names scopes that there are.
    """
    return _bounded_report(report) or report


class _Bounds:
    """Cuts one report; counts what it cuts."""

    def __init__(self) -> None:
        self.within = _MOST_WITHIN
        self.text = _MOST_TEXT
        self.lines = _MOST_LINES_IN_ALL
        self.cut_lists: dict[str, tuple[int, int]] = {}
        self.cut_texts = 0
        self.cut_within = 0

    def report(self, report: Report) -> Report:
        changed: dict[str, Any] = {}
        for name, kind in _fields(type(report)):
            value = getattr(report, name)
            items = self._first(report, name, value) if isinstance(value, list) else value
            shown = _bounder(kind)(items, self, name, type(report))
            if shown is not value:
                changed[name] = shown
        if changed:
            report = msgspec.structs.replace(report, **changed)
        report = _without_dangling(report)
        notes = list(self._notes())
        if notes:
            report = msgspec.structs.replace(report, diagnostics=[*notes, *report.diagnostics])
        return report

    def _first(self, report: Report, name: str, items: list[Any]) -> list[Any]:
        """Return the entries of one of a report's own lists that are shown: each id once, the first breaks to read."""
        shown = items
        if name in _KNOWN_BY_ID:
            unique = {item.id: item for item in reversed(items)}
            if len(unique) < len(items):
                shown = list(reversed(unique.values()))
        if len(shown) > MOST_PARTS:
            if name == "breaks" and report.order:
                first = set(report.order[:MOST_PARTS])
                shown = sorted(shown, key=lambda item: item.id not in first)
            shown = shown[:MOST_PARTS]
        if len(shown) < len(items):
            self.cut_lists[name] = len(shown), len(items)
        return shown

    def _notes(self) -> Iterable[Diagnostic]:
        """Yield what is to be said of what was cut."""
        if self.cut_lists:
            parts = [f"{shown} of {total} {_NOUNS.get(name, name)}" for name, (shown, total) in self.cut_lists.items()]
            yield Diagnostic("warning", f"This report is too large to show in full. Shown: {', '.join(parts)}.")
        if self.cut_within:
            yield Diagnostic("warning", f"{self.cut_within} entries of long lists within this report are not shown.")
        if self.cut_texts:
            yield Diagnostic("warning", f"{self.cut_texts} texts of this report are too long to show in full.")

    def items(self, items: list[Any]) -> list[Any]:
        """Return the beginning of a list within a part."""
        most = min(_MOST_WITHIN_PART, self.within)
        self.within -= min(len(items), most)
        if len(items) <= most:
            return items
        self.cut_within += len(items) - most
        return items[:most]

    def string(self, text: str, limit: int) -> str:
        """Return a text, its end cut off where it is too long."""
        if len(text) <= _LONGEST_NAME <= self.text and "\n" not in text:
            self.text -= len(text)
            return text
        limit = min(limit, self.text)
        shown = text if len(text) <= limit else f"{text[:limit]}…"
        if "\n" in shown:
            most = min(_MOST_LINES, self.lines)
            number = shown.count("\n")
            if number > most:
                shown = "\n".join([*shown.split("\n", most)[:most], "…"])
            self.lines -= min(number, most)
        self.cut_texts += shown is not text
        self.text -= min(len(shown), self.text)
        return shown


#: What a reader calls the lists whose names are no such word.
_NOUNS = {
    "skipped": "eager functions",
    "order": "places in the order of breaks",
    "cudagraph_skips": "graphs without a CUDA graph",
    "compiled": "compiled calls",
    "diagnostics": "notes",
    "check": "checks",
    "held": "functions compiled before",
    "resumes": "resume functions",
}


@cache
def _fields(kind: type) -> list[tuple[str, Any]]:
    """Return the fields of a class in which anything can be too large, with their types."""
    fields = ((field.name, field.type) for field in msgspec.structs.fields(kind))
    return [(name, type_) for name, type_ in fields if type_ is not bool and get_origin(type_) is not Literal]


@cache
def _bounder(kind: Any) -> Callable[[Any, _Bounds, str, type], Any]:
    """Return what bounds the values of a type; it returns the very value where there is nothing to do."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        others = [part for part in inner if part is not type(None)]
        if len(others) == 1 and others[0] is not float:
            bound = _bounder(others[0])
            return lambda value, bounds, name, owner: None if value is None else bound(value, bounds, name, owner)
        return _of_any_type
    if origin is list:
        return _list_bounder(_bounder(inner[0]))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct_bounder(kind)
    if kind is str:
        return _of_string
    if kind is float:
        return lambda value, _bounds, _name, _owner: _finite(value, 0.0)
    if kind in {bool, type(None)} or origin is Literal:
        return lambda value, _bounds, _name, _owner: value
    return _of_any_type


def _of_string(value: str, bounds: _Bounds, name: str, owner: type) -> str:
    if (owner, name) in _TEXTS:
        return bounds.string(value, _LONGEST_TEXT)
    return bounds.string(value, _LONGEST_SENTENCE if name in _SENTENCES else _LONGEST_NAME)


def _of_any_type(value: Any, bounds: _Bounds, name: str, owner: type, depth: int = 0) -> Any:
    """Bound a value of which no class says the form: a number, a string, a setting."""
    if isinstance(value, str):
        return _of_string(value, bounds, name, owner)
    if isinstance(value, float):
        return _finite(value, None)
    if isinstance(value, int):
        return value if -_LARGEST <= value <= _LARGEST else math.copysign(_LARGEST, value).__trunc__()
    if isinstance(value, (list, dict)) and depth >= _DEEPEST:
        bounds.cut_within += 1
        return "…"
    if isinstance(value, list):
        return _unchanged(value, [_of_any_type(item, bounds, name, owner, depth + 1) for item in bounds.items(value)])
    if isinstance(value, dict):
        items = bounds.items(list(value.items()))
        made = {_of_string(str(key), bounds, "", owner): _of_any_type(item, bounds, name, owner, depth + 1)
                for key, item in items}  # fmt: skip
        return value if made == value else made
    return value


def _finite(value: float, instead: float | None) -> float | None:
    if not math.isfinite(value):
        return instead
    return value if abs(value) <= _LARGEST else math.copysign(_LARGEST, value)


def _list_bounder(bound: Callable[[Any, _Bounds, str, type], Any]) -> Callable[[Any, _Bounds, str, type], Any]:
    def bound_list(value: list[Any], bounds: _Bounds, name: str, owner: type) -> list[Any]:
        # A report's own lists were cut before, and leave the budget of lists within them.
        items = value if issubclass(owner, Report) else bounds.items(value)
        return _unchanged(value, [bound(item, bounds, name, owner) for item in items])

    return bound_list


def _unchanged(old: list[Any], new: list[Any]) -> list[Any]:
    """Return the old list if the new one holds the very same things."""
    return old if len(old) == len(new) and all(map(_is, old, new)) else new


def _is(one: object, other: object) -> bool:
    return one is other


def _struct_bounder(kind: type) -> Callable[[Any, _Bounds, str, type], Any]:
    finish = _FINISH.get(kind, _as_it_is)
    bounders: list[tuple[str, Any]] = []  # made at the first value, since a class may hold itself

    def bound_struct(value: Any, bounds: _Bounds, _name: str, _owner: type) -> Any:
        if not bounders:
            bounders.extend((name, _bounder(type_)) for name, type_ in _fields(kind))
        changed = {}
        for name, bound in bounders:
            old = getattr(value, name)
            new = bound(old, bounds, name, kind)
            if new is not old:
                changed[name] = new
        return finish(msgspec.structs.replace(value, **changed) if changed else value)

    return bound_struct


def _as_it_is(value: _T) -> _T:
    return value


def _proper_place(place: Location) -> Location:
    """Return a place whose lines and columns are such."""
    line = min(max(place.line, 0), _LAST_LINE)
    end_line = min(max(place.end_line, line), line + _LONGEST_PLACE)
    column = place.column if place.column is None else min(max(place.column, 0), _LAST_LINE)
    end_column = place.end_column if place.end_column is None else min(max(place.end_column, 0), _LAST_LINE)
    if (line, end_line, column, end_column) == (place.line, place.end_line, place.column, place.end_column):
        return place
    return msgspec.structs.replace(place, line=line, end_line=end_line, column=column, end_column=end_column)


def _proper_line(part: Any, name: str) -> Any:
    line = getattr(part, name)
    proper = min(max(line, 0), _LAST_LINE)
    return part if proper == line else msgspec.structs.replace(part, **{name: proper})


def _proper_spread(time: Spread) -> Spread:
    return time if time.runs > 0 else msgspec.structs.replace(time, runs=1)


_FINISH: dict[type, Callable[[Any], Any]] = {
    Location: _proper_place,
    Segment: lambda segment: _proper_line(segment, "first_line"),
    GraphLine: lambda line: _proper_line(line, "line"),
    Spread: _proper_spread,
}


def _without_dangling(report: Report) -> Report:
    """Return a report in which nothing is around itself, and settings and the error name what there is."""
    changed: dict[str, Any] = {}
    scopes = {scope.id for scope in report.scopes}
    rootless = _closing_links({scope.id: scope.parent for scope in report.scopes})
    _replace(changed, "scopes", report.scopes, lambda scope: _without(scope, "parent", rootless))
    rootless_frames = _closing_links({frame.id: frame.caller for frame in report.frames})
    _replace(changed, "frames", report.frames, lambda frame: _without(frame, "caller", rootless_frames))
    _replace(changed, "breaks", report.breaks, lambda found: _with_known_scopes(found, scopes))
    if report.error is not None and report.error.break_ not in {None, *(found.id for found in report.breaks)}:
        changed["error"] = msgspec.structs.replace(report.error, break_=None)
    return msgspec.structs.replace(report, **changed) if changed else report


def _replace(changed: dict[str, Any], name: str, items: list[_T], convert: Callable[[_T], _T]) -> None:
    made = _unchanged(items, [convert(item) for item in items])
    if made is not items:
        changed[name] = made


def _without(part: Any, name: str, ids: set[str]) -> Any:
    return msgspec.structs.replace(part, **{name: None}) if part.id in ids else part


def _with_known_scopes(found: Break, scopes: set[str]) -> Break:
    setting = found.setting
    if setting is None or (scopes.issuperset(setting.chain) and (setting.scope is None or setting.scope in scopes)):
        return found
    scope = setting.scope if setting.scope in scopes else None
    chain = [ident for ident in setting.chain if ident in scopes]
    return msgspec.structs.replace(found, setting=Setting(setting.value, setting.rules, scope, chain))


def _closing_links(around: dict[str, str | None]) -> set[str]:
    """Return of what the thing around it is within it, once for each circle."""
    closing: set[str] = set()
    done: set[str] = set()
    for start in around:
        path: set[str] = set()
        at: str | None = start
        while at is not None and at in around and at not in done:
            path.add(at)
            if around[at] in path:
                closing.add(at)
                break
            at = around[at]
        done |= path
    return closing
