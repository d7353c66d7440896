"""The report as HTML: a snippet for the output of a cell, and a page of its own.

This is the only place where the report becomes markup. Front ends that run scripts get the same markup and add
behaviour to it, by the ids and attributes that :mod:`~jupyter_graphbreak.views.html.references` explains.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from jupyter_graphbreak.views.html.environment import environment, style_sheet
from jupyter_graphbreak.views.html.view import View
from jupyter_graphbreak.views.text.report_text import render_text
from jupyter_graphbreak.views.words import changes as words

if TYPE_CHECKING:
    from jupyter_graphbreak.report.diff import Changes
    from jupyter_graphbreak.report.schema import Report

_HERE = Path(__file__).parent
#: Lines of source that one item of the rest holds.
_LINES_AT_ONCE = 100


def render_html(report: Report) -> str:
    """Return the report as a snippet with its own style sheet: the top of each list, and how much more there is."""
    return str(_macros(View(report)).report())


def render_changes_html(changes: Changes) -> str:
    """Return what changed between two runs as a snippet with its own style sheet."""
    macros: Any = environment().get_template("changes.html.j2").make_module({"words": words})
    return str(macros.alone(changes, style_sheet()))


def render_rest(report: Report) -> dict[str, list[str]]:
    """Return what :func:`render_html` leaves out, as markup, by the name of the list that it continues.

    A front end asks for it when its reader wants to see more.
    """
    view = View(report)
    macros, limits = _macros(view), view.limits
    rest = {
        "breaks": [
            macros.break_item(number, found, open=False)
            for number, found in enumerate(report.breaks, start=1)
            if number > limits.breaks
        ],
        "graphs": [
            macros.graph_item(index, graph) for index, graph in enumerate(report.graphs) if index >= limits.graphs
        ],
        "notes": [macros.note_item(found) for found in report.diagnostics[limits.rows :]],
    }
    for name, macro, items in (
        ("frames", macros.frame_row, report.frames),
        ("resumes", macros.resume_row, report.resumes),
        ("skipped", macros.skipped_row, report.skipped),
        ("recompiles", macros.recompile_row, report.recompiles),
        ("scopes", macros.scope_row, report.scopes),
    ):
        rest[name] = [macro(index, item) for index, item in enumerate(items) if index >= limits.rows]
    for index, graph in enumerate(report.graphs):
        rest[f"ops-{index}"] = [macros.op_row(op) for op in graph.ops[limits.ops :]]
        if view.code_length(graph) > limits.code:
            rest[f"code-{index}"] = [macros.code_lines(graph.code, limits.code)]
    for listed in view.listed:
        rows = listed.left_out
        rest[f"l{listed.index}"] = [
            macros.source_lines(rows[start : start + _LINES_AT_ONCE], lazy=True)
            for start in range(0, len(rows), _LINES_AT_ONCE)
        ]
    return {name: [str(item) for item in items] for name, items in rest.items() if items}


def render_with_data(report: Report) -> str:
    """Return the snippet of :func:`render_html` and, beside it, the data that :func:`page_script` needs."""
    return str(
        _macros(View(report)).with_data(
            Markup(render_html(report)),  # noqa: S704 - our own markup
            _inert(json.dumps(render_text(report))),
            _inert(json.dumps(render_rest(report))),
            _inert(report.to_json().decode()),
        )
    )


def render_page(report: Report) -> str:
    """Return the report as one page that needs no other file: everything, with search and keyboard."""
    view = View(report)
    return str(
        _macros(view).page(
            Markup(render_with_data(report)),  # noqa: S704 - our own markup
            f"compile_explain: {view.main_source}",
            Markup(page_script()),  # noqa: S704 - made of the project's own sources, it holds no text of a report
        )
    )


def _inert(data: str) -> Markup:
    """Return JSON that cannot end the script element around it."""
    return Markup(data.replace("<", "\\u003c"))  # noqa: S704 - no "<" is left


@cache
def page_script() -> str:
    """Return the module that adds behaviour to every report of a page that has its data beside it.

    A source tree in which the front end has not been built has none.
    """
    path = _HERE / "static" / "page.js"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _macros(view: View) -> Any:
    # The macros of a template are attributes of its module, of which there is no type.
    return environment().get_template("report.html.j2").make_module({"v": view, "words": words})
