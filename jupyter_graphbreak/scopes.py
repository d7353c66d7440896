"""Which ``error_on_graph_break`` or ``fullgraph`` governed a break: what the run did, joined with what is written.

The run says which scopes were open, in order, and with which values; the source says where each is written and how far
it reaches. A scope that Dynamo opens again in a resume function has the line at which that function goes on, not its
own: it is found as the ``with`` block around that line. Where the source and the run disagree the run is right.
"""

from __future__ import annotations

import ast
import textwrap
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jupyter_graphbreak.report import Location, Rule, Scope, Setting, Source
from jupyter_graphbreak.source import columns_of, is_resume, plain_function

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyter_graphbreak.source import Sources

Form = Literal["decorator", "with", "call"]
_NAME = "error_on_graph_break"
# A stack entry of this length or less has no columns at all; a longer one may have them empty.
_WITH_COLUMNS = 4


class Region(msgspec.Struct, frozen=True):
    """A place in the source that can open a scope: its expression, how far it reaches, in the source's own lines."""

    form: Form
    line: int
    end_line: int
    column: int
    last_line: int
    names_setting: bool


class Written:
    """The regions of one source.

    Parameters
    ----------
    source : Source
        Its segments are read one by one; what is not Python (a notebook's magics) is left out.
    """

    def __init__(self, source: Source) -> None:
        self._regions: list[Region] = []
        for segment in source.segments:
            lines = ["" if line.startswith(("%", "!")) else line for line in segment.text.split("\n")]
            text = textwrap.dedent("\n".join(lines))
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError):
                continue
            cut = len(lines[0]) - len(lines[0].lstrip()) if source.kind != "cell" else 0
            self._regions += _regions(tree, segment.first_line - 1, cut)

    def around(self, line: int) -> list[Region]:
        """Return the ``with`` regions around a line that name the setting, outermost first."""
        found = [each for each in self._regions if each.form == "with" and each.line <= line <= each.last_line]
        return sorted(found, key=lambda each: (each.line, each.column))

    def opened_at(self, line: int, column: int | None) -> Region | None:
        """Return what opens a scope at a line: a ``with`` item, a decorator, or else a call."""
        here = [each for each in self._regions if each.line <= line <= each.end_line]
        order: dict[Form, int] = {"with": 0, "decorator": 1, "call": 2}
        here.sort(
            key=lambda each: (not each.names_setting, order[each.form], abs(each.column - (column or each.column)))
        )
        return here[0] if here else None

    def decorators_of(self, line: int) -> list[Region]:
        """Return the decorators of the function whose first line (of code) is given."""
        return [each for each in self._regions if each.form == "decorator" and line <= each.line <= each.last_line]


def _regions(tree: ast.AST, offset: int, cut: int) -> Iterator[Region]:
    claimed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                claimed.add(item.context_expr)
                yield _region("with", item.context_expr, node.end_lineno or node.lineno, offset, cut)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                claimed.add(decorator)
                yield _region("decorator", decorator, node.end_lineno or node.lineno, offset, cut)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node not in claimed:
            yield _region("call", node, node.end_lineno or node.lineno, offset, cut)


def _region(form: Form, node: ast.expr, last_line: int, offset: int, cut: int) -> Region:
    return Region(
        form=form,
        line=node.lineno + offset,
        end_line=(node.end_lineno or node.lineno) + offset,
        column=node.col_offset + cut,
        last_line=last_line + offset,
        names_setting=_NAME in ast.unparse(node) or "fullgraph" in ast.unparse(node),
    )


class ScopeTable:
    """Finds the scopes of a run and lists each once.

    Parameters
    ----------
    sources : Sources
        Places and texts.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._written: dict[str, Written] = {}
        self._scopes: dict[tuple[Any, ...], Scope] = {}
        self._breaks: dict[str, list[str]] = {}
        # Where a scope was seen to open, whatever name its with statement gives it.
        self._known_sites: set[tuple[str, int]] = set()

    def scopes(self) -> list[Scope]:
        """Return the scopes found so far, with the breaks that they governed."""
        return [msgspec.structs.replace(each, breaks=self._breaks.get(each.id, [])) for each in self._scopes.values()]

    def open(self, record: dict[str, Any]) -> None:
        """List a scope that the run opened, whether or not it governed anything."""
        if not _reopened(record):
            around = self._chain(record.get("around") or [], [])
            self._find(record, [], None, around[-1] if around else None)

    def open_fullgraph(self, record: dict[str, Any] | None) -> str | None:
        """List a ``torch.compile(fullgraph=True)`` and return its id."""
        return self._fullgraph(record) if record is not None else None

    def setting(
        self, details: dict[str, Any], stack: Sequence[list[Any]], place: Location | None
    ) -> tuple[Setting | None, str | None]:
        """Return the setting in force at an event, and a sentence where run and source disagree.

        Parameters
        ----------
        details : dict
            The event's record: ``scopes`` (those open, outermost first), ``error_on_graph_break`` and ``fullgraph``
            (what Dynamo held), ``fullgraph_site``.
        stack : sequence of list
            The event's stack, with the lines that Python was at.
        place : Location or None
            Where the event is.
        """
        held = details.get("error_on_graph_break")
        if held is None and not details.get("fullgraph"):
            return None, None
        chain = self._chain(details.get("scopes") or [], stack)
        if details.get("fullgraph"):
            ident = self._fullgraph(details.get("fullgraph_site"))
            return Setting(
                value=True, rules=["fullgraph"], scope=ident, chain=[*chain, *([ident] if ident else [])]
            ), None
        table = {each.id: each for each in self._scopes.values()}
        inner = table[chain[-1]] if chain else None
        if inner is None:
            said = None if not held else "error_on_graph_break is True here, set where nobody watched"
            return Setting(bool(held), ["default"], None, []), said
        if inner.value is not bool(held):
            where = f"line {inner.location.line}" if inner.location else "an unknown line"
            said = f"the scope of {where} says {inner.value}, Dynamo held {bool(held)}: the run is right"
            return Setting(bool(held), ["default"], None, chain), said
        rules: list[Rule] = ["own" if _covers(inner, place) else "inherited"]
        if any(table[each].value is not inner.value for each in chain[:-1]):
            rules.append("inner over outer")
        return Setting(inner.value, rules, inner.id, chain), None

    def govern(self, setting: Setting | None, break_id: str) -> None:
        """Note that a break was governed by the scope of a setting."""
        if setting is not None and setting.scope is not None:
            known = self._breaks.setdefault(setting.scope, [])
            if break_id not in known:
                known.append(break_id)

    def _chain(self, records: list[dict[str, Any]], stack: Sequence[list[Any]]) -> list[str]:
        chain: list[str] = []
        for index, record in enumerate(records):
            region_index = None
            if _reopened(record):
                # Scopes opened again together are those around one line, from the outermost to the innermost.
                same = [i for i, each in enumerate(records) if _reopened(each) and _where(each) == _where(record)]
                region_index = same.index(index) - len(same)
            ident = self._find(record, stack, region_index, chain[-1] if chain else None)
            if ident is not None and ident not in chain:
                chain.append(ident)
        return chain

    def _find(
        self, record: dict[str, Any], stack: Sequence[list[Any]], region_index: int | None, parent: str | None = None
    ) -> str | None:
        value = bool(record["value"])
        site, wrapped = record.get("site"), record.get("wrapped")
        note = None
        if wrapped is not None:
            filename, region = self._around_function(site, wrapped)
            around = f"put around {plain_function(wrapped['name'])}"
            if region is None and site is not None:  # outside the functions whose text is known
                location = self._sources.location(site[0], site[1], site[2], columns_of(site))
                return self._add("call", location, parent, around, value=value)
            if region is None:
                location = self._sources.location(wrapped["filename"], wrapped["firstlineno"], wrapped["name"])
                return self._add("call", location, parent, f"{around} where nobody watched", value=value)
            if region.form == "call":
                note = around
            return self._add(region.form, self._place(filename, region), parent, note, value=value)
        return self._find_with(record, stack, region_index, parent)

    def _find_with(
        self, record: dict[str, Any], stack: Sequence[list[Any]], region_index: int | None, parent: str | None
    ) -> str:
        """Find a scope that is not put around a function: a ``with`` block, or a call such as ``enter_context``."""
        entered = record["entered"]
        filename, line = entered[0], entered[1]
        written = self._of(filename)
        if region_index is not None:
            same = (
                e[1] for e in reversed(stack) if e[0] == filename and plain_function(e[2]) == plain_function(entered[2])
            )
            line = next(same, line)
            named = [each for each in written.around(self._shift(filename, line)) if self._names(filename, each)]
            region = named[region_index] if len(named) >= -region_index else None
        else:
            region = written.opened_at(self._shift(filename, line), columns_of(entered)[0])
            named = [each for each in written.around(self._shift(filename, line)) if each.names_setting]
            if named and (region is None or region.form != "with"):
                region = named[-1]
            if region is not None and region.form == "with":
                self._known_sites.add((filename, region.line))
        if region is None:
            return self._add("with", self._sources.location(filename, line, entered[2]), parent, value=record["value"])
        return self._add(region.form, self._place(filename, region), parent, value=record["value"])

    def _around_function(self, site: list[Any] | None, wrapped: dict[str, Any]) -> tuple[str, Region | None]:
        if site is not None:
            filename = site[0]
            found = self._of(filename).opened_at(self._shift(filename, site[1]), columns_of(site)[0])
            return filename, found
        filename = wrapped["filename"]
        decorators = self._of(filename).decorators_of(self._shift(filename, wrapped["firstlineno"]))
        named = [each for each in decorators if each.names_setting]
        return filename, named[0] if named else None

    def _fullgraph(self, record: dict[str, Any] | None) -> str | None:
        if record is None:
            return None
        site, wrapped = record.get("site"), record.get("wrapped")
        region = None
        filename = ""
        if site is not None:
            filename = site[0]
            region = self._of(filename).opened_at(self._shift(filename, site[1]), columns_of(site)[0])
        elif wrapped is not None:
            filename = wrapped["filename"]
            named = [
                each
                for each in self._of(filename).decorators_of(self._shift(filename, wrapped["firstlineno"]))
                if each.names_setting
            ]
            region = named[0] if named else None
        if region is not None:
            return self._add(region.form, self._place(filename, region), value=True, setting="fullgraph")
        at = site or ([wrapped["filename"], wrapped["firstlineno"], wrapped["name"]] if wrapped is not None else None)
        location = self._sources.location(at[0], at[1], at[2]) if at is not None else None
        return self._add("call", location, value=True, setting="fullgraph")

    def _add(
        self,
        form: Form,
        location: Location | None,
        parent: str | None = None,
        note: str | None = None,
        *,
        value: bool,
        setting: Literal["error_on_graph_break", "fullgraph"] = "error_on_graph_break",
    ) -> str:
        place = (location.source, location.line, location.column) if location is not None else None
        key = (setting, value, place, note if place is None else None)
        known = self._scopes.get(key)
        if known is None:
            ident = f"c{len(self._scopes) + 1}"
            known = self._scopes[key] = Scope(ident, setting, value, form, location, parent, [], note)
        elif known.parent is None and parent is not None and parent != known.id:
            known = self._scopes[key] = msgspec.structs.replace(known, parent=parent)
        return known.id

    def _place(self, filename: str, region: Region) -> Location | None:
        """Return the location of a region: it starts at the line that opens it and ends where it ends."""
        start = self._sources.location(filename, self._unshift(filename, region.line))
        if start is None:
            return None
        return msgspec.structs.replace(start, end_line=region.last_line)

    def _names(self, filename: str, region: Region) -> bool:
        """Whether a ``with`` item opens a scope: it says so, or it was seen to (under another name)."""
        return region.names_setting or (filename, region.line) in self._known_sites

    def _of(self, filename: str) -> Written:
        if filename not in self._written:
            source = self._sources.source(filename)
            self._written[filename] = Written(source)
        return self._written[filename]

    def _shift(self, filename: str, line: int) -> int:
        return line + self._sources.line_offset(filename)

    def _unshift(self, filename: str, line: int) -> int:
        return line - self._sources.line_offset(filename)


def _reopened(record: dict[str, Any]) -> bool:
    """Whether Dynamo opened the scope again, in code of its own: its line is not the scope's."""
    entered = record.get("entered") or [None, None, ""]
    return record.get("wrapped") is None and (
        is_resume(entered[2]) or (len(entered) > _WITH_COLUMNS and columns_of(entered)[0] is None)
    )


def _where(record: dict[str, Any]) -> tuple[Any, ...]:
    entered = record.get("entered") or [None, None, ""]
    return entered[0], plain_function(entered[2])


def _covers(scope: Scope, place: Location | None) -> bool:
    location = scope.location
    if location is None or place is None or scope.form == "call":
        return False
    return location.source == place.source and location.line <= place.line <= location.end_line
