"""Which ``error_on_graph_break`` or ``fullgraph`` governed a break: what the run did, joined with what is written.

The run says which scopes were open, in order, and with which values; the source says where each is written and how far
it reaches. A scope that Dynamo opens again in a resume function has the line at which that function goes on, not its
own: it is looked up as the ``with`` block around that line. Where the source and the run disagree the run is right.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jupyter_graphbreak.analysis.source.python_text import parse_python
from jupyter_graphbreak.recording.records import StackEntry, plain_function
from jupyter_graphbreak.report.schema import Rule, Scope, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyter_graphbreak.analysis.source.locations import Sources
    from jupyter_graphbreak.recording import additions
    from jupyter_graphbreak.report.location import Location, Source

Form = Literal["decorator", "with", "call"]
_NAME = "error_on_graph_break"


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
            tree = parse_python(segment.text)
            if tree is not None:
                self._regions += _regions(tree, segment.first_line - 1)

    def around(self, line: int) -> list[Region]:
        """Return the ``with`` regions around a line that name the setting, outermost first."""
        withs = (region for region in self._regions if region.form == "with")
        around = (region for region in withs if region.line <= line <= region.last_line)
        return sorted(around, key=lambda region: (region.line, region.column))

    def opened_at(self, line: int, column: int | None) -> Region | None:
        """Return what opens a scope at a line: a ``with`` item, a decorator, or else a call."""
        here = [region for region in self._regions if region.line <= line <= region.end_line]
        order: dict[Form, int] = {"with": 0, "decorator": 1, "call": 2}

        def distance(region: Region) -> tuple[bool, int, int]:
            return not region.names_setting, order[region.form], abs(region.column - (column or region.column))

        return min(here, key=distance, default=None)

    def decorators_of(self, line: int) -> list[Region]:
        """Return the decorators of the function whose first line (of code) is given."""
        decorators = (region for region in self._regions if region.form == "decorator")
        return [region for region in decorators if line <= region.line <= region.last_line]


def _regions(tree: ast.AST, offset: int) -> Iterator[Region]:
    claimed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                claimed.add(item.context_expr)
                yield _region("with", item.context_expr, node.end_lineno or node.lineno, offset)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                claimed.add(decorator)
                yield _region("decorator", decorator, node.end_lineno or node.lineno, offset)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node not in claimed:
            yield _region("call", node, node.end_lineno or node.lineno, offset)


def _region(form: Form, node: ast.expr, last_line: int, offset: int) -> Region:
    return Region(
        form=form,
        line=node.lineno + offset,
        end_line=(node.end_lineno or node.lineno) + offset,
        column=node.col_offset,
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
        """Return the scopes listed so far, with the breaks that they governed."""
        return [
            msgspec.structs.replace(scope, breaks=self._breaks.get(scope.id, [])) for scope in self._scopes.values()
        ]

    def open(self, opened: additions.ScopeOpened) -> None:
        """List a scope that the run opened, whether or not it governed anything."""
        if not _reopened(opened):
            around = self._chain(opened.around, [])
            self._find(opened, [], None, around[-1] if around else None)

    def open_fullgraph(self, site: additions.FullgraphSite | None) -> str | None:
        """List a ``torch.compile(fullgraph=True)`` and return its id."""
        return self._fullgraph(site) if site is not None else None

    def setting(self, conditions: additions.Conditions, place: Location | None) -> tuple[Setting | None, str | None]:
        """Return the setting in force at an event, and a sentence where run and source disagree.

        Parameters
        ----------
        conditions : Conditions
            What was in force at the event.
        place : Location or None
            Where the event is.
        """
        held = conditions.error_on_graph_break
        if held is None and not conditions.fullgraph:
            return None, None
        chain = self._chain(conditions.scopes, conditions.whole_stack)
        if conditions.fullgraph:
            ident = self._fullgraph(conditions.fullgraph_site)
            return Setting(
                value=True, rules=["fullgraph"], scope=ident, chain=[*chain, *([ident] if ident else [])]
            ), None
        table = {scope.id: scope for scope in self._scopes.values()}
        inner = table[chain[-1]] if chain else None
        if inner is None:
            disagreement = None if not held else "error_on_graph_break is True here, set where nobody watched"
            return Setting(bool(held), ["default"], None, []), disagreement
        if inner.value is not bool(held):
            where = f"line {inner.location.line}" if inner.location else "an unknown line"
            disagreement = f"the scope of {where} says {inner.value}, Dynamo held {bool(held)}: the run is right"
            return Setting(bool(held), ["default"], None, chain), disagreement
        rules: list[Rule] = ["own" if _covers(inner, place) else "inherited"]
        if any(table[ident].value is not inner.value for ident in chain[:-1]):
            rules.append("inner over outer")
        return Setting(inner.value, rules, inner.id, chain), None

    def govern(self, setting: Setting | None, break_id: str) -> None:
        """Note that a break was governed by the scope of a setting."""
        if setting is not None and setting.scope is not None:
            known = self._breaks.setdefault(setting.scope, [])
            if break_id not in known:
                known.append(break_id)

    def _chain(self, scopes: Sequence[additions.OpenScope], stack: Sequence[StackEntry]) -> list[str]:
        chain: list[str] = []
        for index, scope in enumerate(scopes):
            region_index = None
            if _reopened(scope):
                # Scopes opened again together are those around one line, from the outermost to the innermost.
                same = [i for i, other in enumerate(scopes) if _reopened(other) and _where(other) == _where(scope)]
                region_index = same.index(index) - len(same)
            ident = self._find(scope, stack, region_index, chain[-1] if chain else None)
            if ident is not None and ident not in chain:
                chain.append(ident)
        return chain

    def _find(
        self,
        scope: additions.OpenScope,
        stack: Sequence[StackEntry],
        region_index: int | None,
        parent: str | None = None,
    ) -> str | None:
        value, site, wrapped = scope.value, scope.site, scope.wrapped
        note = None
        if wrapped is not None:
            filename, region = self._around_function(site, wrapped)
            around = f"put around {plain_function(wrapped.name)}"
            if region is None and site is not None:  # outside the functions whose text is known
                location = self._sources.place(site)
                return self._add("call", location, parent, around, value=value)
            if region is None:
                location = self._sources.location(wrapped.filename, wrapped.firstlineno, wrapped.name)
                return self._add("call", location, parent, f"{around} where nobody watched", value=value)
            if region.form == "call":
                note = around
            return self._add(region.form, self._place(filename, region), parent, note, value=value)
        return self._find_with(scope, stack, region_index, parent)

    def _find_with(
        self, scope: additions.OpenScope, stack: Sequence[StackEntry], region_index: int | None, parent: str | None
    ) -> str | None:
        """Find a scope that is not put around a function: a ``with`` block, or a call such as ``enter_context``."""
        entered = scope.entered
        if entered is None or entered.line is None:
            return None
        filename, line = entered.filename, entered.line
        written = self._of(filename)
        if region_index is not None:
            same = (e.line for e in reversed(stack) if _function_of(e) == _function_of(entered) and e.line is not None)
            line = next(same, line)
            around = written.around(self._shift(filename, line))
            named = [region for region in around if self._names(filename, region)]
            region = named[region_index] if len(named) >= -region_index else None
        else:
            region = written.opened_at(self._shift(filename, line), entered.column)
            named = [region for region in written.around(self._shift(filename, line)) if region.names_setting]
            if named and (region is None or region.form != "with"):
                region = named[-1]
            if region is not None and region.form == "with":
                self._known_sites.add((filename, region.line))
        if region is None:
            location = self._sources.location(filename, line, entered.function)
            return self._add("with", location, parent, value=scope.value)
        return self._add(region.form, self._place(filename, region), parent, value=scope.value)

    def _around_function(
        self, site: StackEntry | None, wrapped: additions.CodeObject | None
    ) -> tuple[str, Region | None]:
        """Return the file and the region of what is put around a function: where it was made, else its decorator."""
        if site is not None and site.line is not None:
            return site.filename, self._of(site.filename).opened_at(self._shift(site.filename, site.line), site.column)
        if wrapped is None:
            return "", None
        filename = wrapped.filename
        decorators = self._of(filename).decorators_of(self._shift(filename, wrapped.firstlineno))
        return filename, next((region for region in decorators if region.names_setting), None)

    def _fullgraph(self, fullgraph: additions.FullgraphSite | None) -> str | None:
        if fullgraph is None:
            return None
        site, wrapped = fullgraph.site, fullgraph.wrapped
        filename, region = self._around_function(site, wrapped)
        if region is not None:
            return self._add(region.form, self._place(filename, region), value=True, setting="fullgraph")
        location = None
        if site is not None:
            location = self._sources.location(site.filename, site.line, site.function)
        elif wrapped is not None:
            location = self._sources.location(wrapped.filename, wrapped.firstlineno, wrapped.name)
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


def _reopened(scope: additions.OpenScope) -> bool:
    """Whether Dynamo opened the scope again, in code of its own: its line is not the scope's."""
    return scope.wrapped is None and scope.generated


def _where(scope: additions.OpenScope) -> tuple[str, str] | None:
    return _function_of(scope.entered) if scope.entered is not None else None


def _function_of(entry: StackEntry) -> tuple[str, str]:
    return entry.filename, plain_function(entry.function)


def _covers(scope: Scope, place: Location | None) -> bool:
    location = scope.location
    if location is None or place is None or scope.form == "call":
        return False
    return location.source == place.source and location.line <= place.line <= location.end_line
