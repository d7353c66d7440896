"""Build the MIME bundle of a cell's output, which contains a report and its rows, and read reports from outputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from jupyter_graphbreak.report.schema import MIME_TYPE, Diagnostic, Report
from jupyter_graphbreak.views.html.render import pack_rest, render_html, unpack_code
from jupyter_graphbreak.views.rows.sections import build_rows
from jupyter_graphbreak.views.text import render_text
from jupyter_graphbreak.views.words.plain_text import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Break, Occurrence
    from jupyter_graphbreak.views.rows.schema import Rows

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
#: The MIME type of the parts that the HTML and the report leave out, for a notebook without a kernel. Its content is
#: {"gzip": DATA}, where DATA is JSON that is compressed with gzip and encoded in base64.
REST_TYPE = "application/vnd.graphbreak.rest.v1+json"

#: If the JSON of a report is larger than this, the output leaves out parts of the report.
_MAX_REPORT_BYTES = 3_000_000
#: If the graphs' code has more characters than this, it is compressed together with the rest of the HTML.
_MAX_CODE_LENGTH = 4_000
#: The maximum number of rows of each section in an output that leaves out parts.
_MAX_ROWS = 500


class LiveView(Protocol):
    """The widget that shows a report in a live front end."""

    @property
    def model_id(self) -> str | None:
        """The id of the widget in the front end."""

    def markup_of(self, report: Report) -> str | None:
        """Return the markup of a report if the widget shows it."""


def running_bundle(view: LiveView) -> dict[str, Any]:
    """Return the MIME bundle of the output during the run."""
    # A text-only front end may show this text forever, so it is empty.
    return {"text/plain": ""} | _widget_data(view)


def mime_bundle(report: Report, view: LiveView | None) -> dict[str, Any]:
    """Return the MIME bundle of the output after the run: the report as text, HTML and data, and any live view."""
    markup = view.markup_of(report) if view is not None else None
    copy = notebook_copy(report)
    code = {graph.id: graph.code for graph in copy.graphs}
    is_packed = sum(map(len, code.values())) > _MAX_CODE_LENGTH
    without_stacks = _without_repeated_stacks(copy)
    data = _non_default_fields(_without_code(without_stacks) if is_packed else without_stacks)
    bundle: dict[str, Any] = {
        "text/plain": render_text(report),
        "text/html": render_html(report) if markup is None else markup,
        MIME_TYPE: data | {"rows": msgspec.to_builtins(_build_limited_rows(report, all_rows=copy is report))},
    }
    rest = pack_rest(report, code if is_packed else {})
    if rest:
        bundle[REST_TYPE] = {"gzip": rest}
    return bundle | (_widget_data(view) if view is not None else {})


def read_report(output: Mapping[str, Any]) -> Report:
    """Read the report in an output, and restore the repeated stacks that the output leaves out and the compressed code.

    A msgspec.ValidationError is raised if the data is not a report, or has a different major version.
    """
    # Encoding turns NaN into null, so that the report can be written again.
    report = Report.from_json(msgspec.json.encode(output[MIME_TYPE]))
    report = _with_stacks(report, lambda occurrence, break_: occurrence.stack or break_.stack)
    code = unpack_code(output.get(REST_TYPE)) if not any(graph.code for graph in report.graphs) else {}
    if not code:
        return report
    graphs = [msgspec.structs.replace(graph, code=code.get(graph.id, "")) for graph in report.graphs]
    return msgspec.structs.replace(report, graphs=graphs)


def _without_code(report: Report) -> Report:
    return msgspec.structs.replace(report, graphs=[msgspec.structs.replace(graph, code="") for graph in report.graphs])


def notebook_copy(report: Report) -> Report:
    """Return the copy of a report that a notebook contains.

    The copy of a very large report lacks the operations and the code of graphs, and has a note about it. The live
    widget and the variable that ``-o`` sets contain the complete report.
    """
    if len(report.to_json()) <= _MAX_REPORT_BYTES:
        return report
    note = Diagnostic(
        "info",
        f"The notebook's copy leaves out the operations and the code of {count_text(len(report.graphs), 'graph')} "
        "to stay small: `-o report` keeps them, and `report.save('report.json')` writes them to a file.",
    )
    return msgspec.structs.replace(
        report,
        graphs=[msgspec.structs.replace(graph, ops=[], code="") for graph in report.graphs],
        diagnostics=[*report.diagnostics, note],
    )


def _without_repeated_stacks(report: Report) -> Report:
    """Leave out the stack of each occurrence that goes through the same lines as the stack of its break.

    Columns are not compared: the deeper the frame that reports a break, the fewer columns of calls PyTorch knows.
    """
    return _with_stacks(
        report,
        lambda occurrence, break_: (
            [] if _lines_of_stack(occurrence.stack) == _lines_of_stack(break_.stack) else occurrence.stack
        ),
    )


def _with_stacks(report: Report, stack_of: Callable[[Occurrence, Break], list[Location]]) -> Report:
    """Return a report in which ``stack_of`` determines the stack of each occurrence of a break."""
    breaks = [
        msgspec.structs.replace(
            break_,
            occurrences=[
                msgspec.structs.replace(occurrence, stack=stack_of(occurrence, break_))
                for occurrence in break_.occurrences
            ],
        )
        for break_ in report.breaks
    ]
    return msgspec.structs.replace(report, breaks=breaks)


def _lines_of_stack(stack: list[Location]) -> list[tuple[str, int, str | None]]:
    return [(location.source, location.line, location.function) for location in stack]


def _non_default_fields(report: Report) -> dict[str, Any]:
    """Return a report as plain data, without those fields of its parts that have an empty default value.

    For example, a location without columns has no ``column``. The report itself has all its fields.
    """
    return {field.encode_name: _without_defaults(getattr(report, field.name)) for field in _struct_fields(type(report))}


def _without_defaults(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_defaults(item) for item in value]
    if not isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    return {
        field.encode_name: _without_defaults(item)
        for field in _struct_fields(type(value))
        if (item := getattr(value, field.name)) or item != _empty_default(field)
    }


def _empty_default(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default of a field if it is ``None``, an empty string or an empty list; otherwise ``NODEFAULT``."""
    if field.default_factory is list:
        return []
    return field.default if field.default is None or field.default == "" else msgspec.NODEFAULT


_struct_fields = functools.cache(msgspec.structs.fields)


def _build_limited_rows(report: Report, *, all_rows: bool) -> Rows:
    """Return the rows of a report: all of them, or only the first ones of each section."""
    rows = build_rows(report)
    if all_rows:
        return rows
    sections = [msgspec.structs.replace(section, rows=section.rows[:_MAX_ROWS]) for section in rows.sections]
    return msgspec.structs.replace(rows, sections=sections)


def _widget_data(view: LiveView) -> dict[str, Any]:
    return {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": view.model_id}}
