"""What the markup of a report leaves out: markup of further items, by the name of the list that they continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from markupsafe import Markup

from jupyter_graphbreak.views.html.view import LINES_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyter_graphbreak.report.schema import Graph
    from jupyter_graphbreak.views.html.rows import Listed
    from jupyter_graphbreak.views.html.view import View

#: Makes the markup of the further items of one list.
MakeItems: TypeAlias = "Callable[[], Iterator[Any]]"


def further_items(view: View, macros: Any) -> dict[str, MakeItems]:
    """Return what makes the further items of a list, by its name, for all lists that have more than the markup shows.

    Parameters
    ----------
    view : View
    macros
        The macros of the report's template.
    """
    report, limits = view.report, view.limits
    makers: dict[str, MakeItems] = {}

    def add(name: str, make: Callable[[int, Any], Any], items: Sequence[Any], limit: int) -> None:
        if len(items) > limit:
            makers[name] = lambda: (make(index, items[index]) for index in range(limit, len(items)))

    add("breaks", lambda index, item: macros.break_item(index + 1, item, open=False), view.breaks, limits.breaks)
    first = len(view.breaks) + 1
    add("minor", lambda index, item: macros.break_item(first + index, item, open=False), view.minor, limits.breaks)
    add("graphs", macros.graph_item, report.graphs, limits.graphs)
    add("frames", macros.frame_row, report.frames, limits.rows)
    add("resumes", macros.resume_row, report.resumes, limits.rows)
    add("skipped", macros.skipped_row, report.skipped, limits.rows)
    add("recompiles", macros.recompile_row, view.recompilations, limits.rows)
    add("scopes", macros.scope_row, report.scopes, limits.rows)
    add("notes", lambda _, item: macros.note_item(item), report.diagnostics, limits.rows)
    for index, graph in enumerate(report.graphs):
        add(f"ops-{index}", lambda _, op: view.op_rows([op]), graph.ops, limits.ops)
        if view.code_length(graph) > limits.code:
            makers[f"code-{index}"] = _code(view, graph)
    for listed in view.listed:
        if listed.left_out:
            makers[f"l{listed.index}"] = _lines(macros, listed)
    return makers


def _code(view: View, graph: Graph) -> MakeItems:
    return lambda: iter([Markup("<pre>") + view.python(graph.code, view.limits.code, None) + Markup("</pre>")])


def _lines(macros: Any, listed: Listed) -> MakeItems:
    starts = range(0, listed.left_out, LINES_AT_ONCE)
    return lambda: (macros.source_lines(listed.more(start, start + LINES_AT_ONCE), lazy=True) for start in starts)
