"""Find the ``error_on_graph_break`` or ``fullgraph`` that governed a break, from the recorded run and the source.

The run records which scopes were open, in which order and with which values. The source shows the extent of each scope.
A scope that Dynamo reopens in a resume function is recorded with the line on which that function continues, not with
the line of the scope. Such a scope is looked up as the ``with`` block around that line. If the source and the run
disagree, the report follows the run.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jupyter_graphbreak.analysis.functions import first_line
from jupyter_graphbreak.analysis.python_text import trees_of
from jupyter_graphbreak.records.records import StackFrame, original_name
from jupyter_graphbreak.report.schema import Rule, Scope, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyter_graphbreak.analysis.locations import Sources
    from jupyter_graphbreak.records import additions
    from jupyter_graphbreak.report.location import Location, Source

Form = Literal["decorator", "with", "call"]
_SETTING_NAME = "error_on_graph_break"


class Region(msgspec.Struct, frozen=True):
    """An expression, or a function with its decorators, that can open a scope, and the lines that the scope covers."""

    form: Form
    line: int
    end_line: int
    column: int
    first_line: int
    last_line: int
    mentions_setting: bool


class SourceRegions:
    """The regions of one source, whose segments are parsed one by one; a segment that is not Python is left out."""

    def __init__(self, source: Source) -> None:
        self._regions = [region for tree in trees_of(source.segments) for region in _regions(tree)]

    def enclosing_withs(self, line: int) -> list[Region]:
        """Return the ``with`` regions enclosing a line, outermost first."""
        withs = (region for region in self._regions if region.form == "with")
        enclosing_regions = (region for region in withs if region.line <= line <= region.last_line)
        return sorted(enclosing_regions, key=lambda region: (region.line, region.column))

    def opener_at(self, line: int, column: int | None) -> Region | None:
        """Return the region that opens a scope on a line, if any: a ``with`` item, a decorator, or else a call."""
        candidates = [region for region in self._regions if region.line <= line <= region.end_line]
        form_order: dict[Form, int] = {"with": 0, "decorator": 1, "call": 2}

        def distance(region: Region) -> tuple[bool, int, int]:
            return not region.mentions_setting, form_order[region.form], abs(region.column - (column or region.column))

        return min(candidates, key=distance, default=None)

    def decorators_of(self, line: int) -> list[Region]:
        """Return the decorators of the function whose code starts on a line."""
        return [region for region in self._regions if region.form == "decorator" and region.first_line == line]


def _regions(tree: ast.AST) -> Iterator[Region]:
    known_openers: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                known_openers.add(item.context_expr)
                yield _region("with", item.context_expr, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                known_openers.add(decorator)
                yield _region("decorator", decorator, node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node not in known_openers:
            yield _region("call", node, node)


def _region(form: Form, node: ast.expr, covered_node: ast.stmt | ast.expr) -> Region:
    return Region(
        form=form,
        line=node.lineno,
        end_line=node.end_lineno or node.lineno,
        column=node.col_offset,
        first_line=first_line(covered_node),
        last_line=covered_node.end_lineno or covered_node.lineno,
        mentions_setting=_SETTING_NAME in ast.unparse(node) or "fullgraph" in ast.unparse(node),
    )


class ScopeTable:
    """Finds the scopes of a run and lists each once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._regions_by_file: dict[str, SourceRegions] = {}
        self._scopes: dict[tuple[Any, ...], Scope] = {}
        self._breaks: dict[str, list[str]] = {}
        # Lines of ``with`` statements that opened a scope in the run, even if they do not mention the setting.
        self._opened_lines: set[tuple[str, int]] = set()

    def scopes(self) -> list[Scope]:
        """Return the scopes added so far, with the breaks that they governed."""
        return [
            msgspec.structs.replace(scope, breaks=self._breaks.get(scope.id, [])) for scope in self._scopes.values()
        ]

    def add_opened_scope(self, scope: additions.ScopeOpened) -> None:
        """Add a scope that the run opened, whether or not it governed a break."""
        if not _is_reopened(scope):
            outer_chain = self._scope_chain(scope.around, [])
            self._find_scope(scope, [], None, outer_chain[-1] if outer_chain else None)

    def add_fullgraph(self, fullgraph: additions.FullgraphSite | None) -> str | None:
        """Add the scope of a ``torch.compile(fullgraph=True)``, if it was recorded, and return its id."""
        if fullgraph is None:
            return None
        site, wrapped = fullgraph.site, fullgraph.wrapped
        filename, region = self._region_wrapping(site, wrapped)
        if region is not None:
            return self._add_scope(
                region.form, self._region_location(filename, region), value=True, setting="fullgraph"
            )
        location = None
        if site is not None:
            location = self._sources.location(site.filename, site.line, site.function)
        elif wrapped is not None:
            location = self._sources.location(wrapped.filename, wrapped.firstlineno, wrapped.name)
        return self._add_scope("call", location, value=True, setting="fullgraph")

    def setting_in_force(
        self, context: additions.EventContext, location: Location | None
    ) -> tuple[Setting | None, str | None]:
        """Return the setting in force at an event, and a clause that explains any conflict between run and source."""
        value_in_force = context.error_on_graph_break
        if value_in_force is None and not context.fullgraph:
            return None, None
        chain = self._scope_chain(context.scopes, context.whole_stack)
        if context.fullgraph:
            ident = self.add_fullgraph(context.fullgraph_site)
            return Setting(
                value=True, rules=["fullgraph"], scope=ident, chain=[*chain, *([ident] if ident else [])]
            ), None
        scope_by_id = {scope.id: scope for scope in self._scopes.values()}
        inner = scope_by_id[chain[-1]] if chain else None
        if inner is None:
            disagreement = (
                None if not value_in_force else "error_on_graph_break is True here, set before watching began"
            )
            return Setting(bool(value_in_force), ["default"], None, []), disagreement
        if inner.value is not bool(value_in_force):
            opener = f"line {inner.location.line}" if inner.location else "an unknown line"
            disagreement = (
                f"the scope on {opener} sets error_on_graph_break to {inner.value}, "
                f"but Dynamo used {bool(value_in_force)}; the report follows Dynamo"
            )
            return Setting(bool(value_in_force), ["default"], None, chain), disagreement
        rules: list[Rule] = ["own" if _covers(inner, location) else "inherited"]
        if any(scope_by_id[ident].value is not inner.value for ident in chain[:-1]):
            rules.append("inner over outer")
        return Setting(inner.value, rules, inner.id, chain), None

    def add_governed_break(self, setting: Setting | None, break_id: str) -> None:
        """Add a break to those that were governed by the scope of the break's setting."""
        if setting is not None and setting.scope is not None:
            break_ids = self._breaks.setdefault(setting.scope, [])
            if break_id not in break_ids:
                break_ids.append(break_id)

    def _scope_chain(self, scopes: Sequence[additions.OpenScope], stack: Sequence[StackFrame]) -> list[str]:
        chain: list[str] = []
        for index, scope in enumerate(scopes):
            region_index = None
            if _is_reopened(scope):
                # Scopes that Dynamo reopens together are those around one line, from the outermost to the innermost.
                reopened_together = [
                    i
                    for i, other in enumerate(scopes)
                    if _is_reopened(other) and _entered_function(other) == _entered_function(scope)
                ]
                region_index = reopened_together.index(index) - len(reopened_together)
            ident = self._find_scope(scope, stack, region_index, chain[-1] if chain else None)
            if ident is not None and ident not in chain:
                chain.append(ident)
        return chain

    def _find_scope(
        self, scope: additions.OpenScope, stack: Sequence[StackFrame], region_index: int | None, parent: str | None
    ) -> str | None:
        value, site, wrapped = scope.value, scope.site, scope.wrapped
        if wrapped is not None:
            filename, region = self._region_wrapping(site, wrapped)
            note_text = f"wrapped around {original_name(wrapped.name)}"
            if region is None and site is not None:  # outside the functions whose text was recorded
                location = self._sources.stack_frame_location(site)
                return self._add_scope("call", location, parent, note_text, value=value)
            if region is None:
                location = self._sources.location(wrapped.filename, wrapped.firstlineno, wrapped.name)
                return self._add_scope("call", location, parent, f"{note_text} before watching began", value=value)
            note = note_text if region.form == "call" else None
            return self._add_scope(region.form, self._region_location(filename, region), parent, note, value=value)
        return self._find_with(scope, stack, region_index, parent)

    def _find_with(
        self, scope: additions.OpenScope, stack: Sequence[StackFrame], region_index: int | None, parent: str | None
    ) -> str | None:
        """Find a scope that does not wrap a function: a ``with`` block, or a call such as ``enter_context``."""
        entered_site = scope.entered
        if entered_site is None or entered_site.line is None:
            return None
        filename, line = entered_site.filename, entered_site.line
        regions = self._regions_in(filename)
        if region_index is not None:
            lines = (
                e.line for e in reversed(stack) if _function_of(e) == _function_of(entered_site) and e.line is not None
            )
            line = next(lines, line)
            enclosing_regions = regions.enclosing_withs(self._source_line(filename, line))
            openers = [region for region in enclosing_regions if self._opens_scope(filename, region)]
            region = openers[region_index] if len(openers) >= -region_index else None
        else:
            region = regions.opener_at(self._source_line(filename, line), entered_site.column)
            openers = [
                region
                for region in regions.enclosing_withs(self._source_line(filename, line))
                if region.mentions_setting
            ]
            if openers and (region is None or region.form != "with"):
                region = openers[-1]
            if region is not None and region.form == "with":
                self._opened_lines.add((filename, region.line))
        if region is None:
            location = self._sources.location(filename, line, entered_site.function)
            return self._add_scope("with", location, parent, value=scope.value)
        return self._add_scope(region.form, self._region_location(filename, region), parent, value=scope.value)

    def _region_wrapping(
        self, site: StackFrame | None, wrapped: additions.CodeObject | None
    ) -> tuple[str, Region | None]:
        """Return the file and the region that wrapped a function: the call that made the wrapper, or the decorator."""
        if site is not None and site.line is not None:
            line = self._source_line(site.filename, site.line)
            return site.filename, self._regions_in(site.filename).opener_at(line, site.column)
        if wrapped is None:
            return "", None
        filename = wrapped.filename
        decorators = self._regions_in(filename).decorators_of(self._source_line(filename, wrapped.firstlineno))
        return filename, next((region for region in decorators if region.mentions_setting), None)

    def _add_scope(
        self,
        form: Form,
        location: Location | None,
        parent: str | None = None,
        note: str | None = None,
        *,
        value: bool,
        setting: Literal["error_on_graph_break", "fullgraph"] = "error_on_graph_break",
    ) -> str:
        position = (location.source, location.line, location.column) if location is not None else None
        key = (setting, value, position, note if position is None else None)
        scope = self._scopes.get(key)
        if scope is None:
            ident = f"c{len(self._scopes) + 1}"
            scope = self._scopes[key] = Scope(ident, setting, value, form, location, parent, [], note)
        elif scope.parent is None and parent is not None and parent != scope.id:
            scope = self._scopes[key] = msgspec.structs.replace(scope, parent=parent)
        return scope.id

    def _region_location(self, filename: str, region: Region) -> Location | None:
        """Return the location of a region, from the line that opens it to its last line; ``None`` if it is unknown."""
        start = self._sources.location(filename, region.line - self._sources.line_offset(filename))
        if start is None:
            return None
        return msgspec.structs.replace(start, end_line=region.last_line)

    def _opens_scope(self, filename: str, region: Region) -> bool:
        """Return whether a ``with`` item opens a scope because it mentions the setting or opened a scope in the run."""
        return region.mentions_setting or (filename, region.line) in self._opened_lines

    def _regions_in(self, filename: str) -> SourceRegions:
        if filename not in self._regions_by_file:
            source = self._sources.source(filename)
            self._regions_by_file[filename] = SourceRegions(source)
        return self._regions_by_file[filename]

    def _source_line(self, filename: str, line: int) -> int:
        return line + self._sources.line_offset(filename)


def _is_reopened(scope: additions.OpenScope) -> bool:
    """Return whether Dynamo reopened a scope in generated code, whose line is not that of the scope."""
    return scope.wrapped is None and scope.generated


def _entered_function(scope: additions.OpenScope) -> tuple[str, str] | None:
    return _function_of(scope.entered) if scope.entered is not None else None


def _function_of(stack_frame: StackFrame) -> tuple[str, str]:
    return stack_frame.filename, original_name(stack_frame.function)


def _covers(scope: Scope, location: Location | None) -> bool:
    extent = scope.location
    if extent is None or location is None or scope.form == "call":
        return False
    return extent.source == location.source and extent.line <= location.line <= extent.end_line
