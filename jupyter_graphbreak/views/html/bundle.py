"""The mime bundle under which a cell's output carries a report, and beside it, in one JSON object, its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from jupyter_graphbreak.report.schema import MIME_TYPE, Diagnostic
from jupyter_graphbreak.views.html.render import packed_rest, render_html
from jupyter_graphbreak.views.rows.sections import rows
from jupyter_graphbreak.views.text import render_text

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Report
    from jupyter_graphbreak.views.rows.schema import Rows

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
#: What the HTML leaves out, for a notebook whose kernel is gone: {"gzip": base64 of JSON}.
REST_TYPE = "application/vnd.graphbreak.rest.v1+json"

#: An output whose report is larger as JSON leaves out what can be spared.
_MOST_BYTES = 3_000_000
#: Rows that it has of each section.
_MOST_ROWS = 500


class LiveView(Protocol):
    """The widget that shows a report in a live front end."""

    @property
    def model_id(self) -> str | None:
        """The id under which the front end knows it."""

    def markup_of(self, report: Report) -> str | None:
        """Return the markup of a report if it is what the widget shows."""


def running_bundle(view: LiveView) -> dict[str, Any]:
    """Return what an output holds while the run goes on."""
    # A front end that shows text only may never replace it, so it says nothing.
    return {"text/plain": ""} | _view(view)


def mime_bundle(report: Report, view: LiveView | None) -> dict[str, Any]:
    """Return what an output holds when the run has ended: the report for every kind of reader.

    Parameters
    ----------
    report : Report
    view : LiveView or None
        The widget that shows it in a live front end, where there is one.
    """
    markup = view.markup_of(report) if view is not None else None
    copy = carried(report)
    bundle: dict[str, Any] = {
        "text/plain": render_text(report),
        "text/html": render_html(report) if markup is None else markup,
        MIME_TYPE: copy.to_dict() | {"rows": msgspec.to_builtins(_rows(report, is_whole=copy is report))},
    }
    rest = packed_rest(report)
    if rest:
        bundle[REST_TYPE] = {"gzip": rest}
    return bundle | (_view(view) if view is not None else {})


def carried(report: Report) -> Report:
    """Return a report as a notebook carries it: a very large one without the operations and the code of its graphs.

    Nothing else is left out, and the report says so. The live widget and the variable of ``-o`` have everything.
    """
    if len(report.to_json()) <= _MOST_BYTES:
        return report
    left_out = Diagnostic(
        "info",
        f"The notebook's copy leaves out the operations and the code of {len(report.graphs)} graphs, to stay small: "
        "-o report keeps them, and report.save('report.json') writes them to a file.",
    )
    return msgspec.structs.replace(
        report,
        graphs=[msgspec.structs.replace(graph, ops=[], code="") for graph in report.graphs],
        diagnostics=[*report.diagnostics, left_out],
    )


def _rows(report: Report, *, is_whole: bool) -> Rows:
    """Return what is said about a report; of one of which the notebook leaves something out, the first rows."""
    made = rows(report)
    if is_whole:
        return made
    sections = [msgspec.structs.replace(section, rows=section.rows[:_MOST_ROWS]) for section in made.sections]
    return msgspec.structs.replace(made, sections=sections)


def _view(view: LiveView) -> dict[str, Any]:
    return {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": view.model_id}}
