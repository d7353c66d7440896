"""The MIME bundle of a cell's output, which contains a report and its rows."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from jupyter_graphbreak.report.schema import MIME_TYPE, Diagnostic
from jupyter_graphbreak.views.html.render import packed_rest, render_html
from jupyter_graphbreak.views.rows.sections import build_rows
from jupyter_graphbreak.views.text import render_text

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Break, Report
    from jupyter_graphbreak.views.rows.schema import Rows

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
#: What the HTML leaves out, for a notebook without a kernel: {"gzip": base64 of JSON}.
REST_TYPE = "application/vnd.graphbreak.rest.v1+json"

#: If a report is larger as JSON, the output leaves out parts of it.
_MOST_BYTES = 3_000_000
#: How many rows of each section such an output contains.
_MOST_ROWS = 500


class LiveView(Protocol):
    """The widget that shows a report in a live front end."""

    @property
    def model_id(self) -> str | None:
        """The id of the widget in the front end."""

    def markup_of(self, report: Report) -> str | None:
        """Return the markup of a report if it is what the widget shows."""


def running_bundle(view: LiveView) -> dict[str, Any]:
    """Return the output during the run."""
    # A text-only front end may never replace the text, so leave it empty.
    return {"text/plain": ""} | _view(view)


def mime_bundle(report: Report, view: LiveView | None) -> dict[str, Any]:
    """Return the output after the run: the report in all formats.

    Parameters
    ----------
    report : Report
    view : LiveView or None
        The widget that shows the report in a live front end, if there is one.
    """
    markup = view.markup_of(report) if view is not None else None
    copy = notebook_copy(report)
    data = copy.to_dict() if copy is report else _known_fields(copy)
    bundle: dict[str, Any] = {
        "text/plain": render_text(report),
        "text/html": render_html(report) if markup is None else markup,
        MIME_TYPE: data | {"rows": msgspec.to_builtins(_rows(report, is_whole=copy is report))},
    }
    rest = packed_rest(report)
    if rest:
        bundle[REST_TYPE] = {"gzip": rest}
    return bundle | (_view(view) if view is not None else {})


def notebook_copy(report: Report) -> Report:
    """Return the notebook's copy of a report: if it is very large, without the operations and code of its graphs.

    Occurrences of a break then have no stack if it is the stack of the break, and what is inside the parts of the
    report has only the fields that are known. A note in the report says so. The live widget and the variable of ``-o``
    have the complete report.
    """
    if len(report.to_json()) <= _MOST_BYTES:
        return report
    left_out = Diagnostic(
        "info",
        f"The notebook's copy leaves out the operations and the code of {len(report.graphs)} graphs, and repeated "
        "stacks, to stay small: -o report keeps them, and report.save('report.json') writes them to a file.",
    )
    return msgspec.structs.replace(
        report,
        graphs=[msgspec.structs.replace(graph, ops=[], code="") for graph in report.graphs],
        breaks=[_without_repeated_stacks(break_) for break_ in report.breaks],
        diagnostics=[*report.diagnostics, left_out],
    )


def _without_repeated_stacks(break_: Break) -> Break:
    occurrences = [
        msgspec.structs.replace(occurrence, stack=[]) if occurrence.stack == break_.stack else occurrence
        for occurrence in break_.occurrences
    ]
    return msgspec.structs.replace(break_, occurrences=occurrences)


def _known_fields(value: Any, depth: int = 0) -> Any:
    """Return a report as plain data; inside its parts, fields are left out that are unknown and therefore ``None``.

    A location without columns has no ``column``. The parts themselves, such as a break, keep all their fields, and so
    do fields without a default value, which readers require.
    """
    if isinstance(value, list):
        return [_known_fields(item, depth) for item in value]
    if not isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    return {
        field.encode_name: _known_fields(item, depth + 1)
        for field in _fields(type(value))
        if (item := getattr(value, field.name)) is not None or field.default is not None or depth < _PART_DEPTH
    }


_fields = functools.cache(msgspec.structs.fields)
#: The depth of what is inside the parts of a report: a break is a part, its location is inside it.
_PART_DEPTH = 2


def _rows(report: Report, *, is_whole: bool) -> Rows:
    """Return the rows of a report; if the notebook's copy is incomplete, only the first rows of each section."""
    rows = build_rows(report)
    if is_whole:
        return rows
    sections = [msgspec.structs.replace(section, rows=section.rows[:_MOST_ROWS]) for section in rows.sections]
    return msgspec.structs.replace(rows, sections=sections)


def _view(view: LiveView) -> dict[str, Any]:
    return {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": view.model_id}}
