"""The report as a Jupyter widget, and the mime bundle under which a cell's output carries it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import msgspec
import traitlets

from jupyter_graphbreak.report import MIME_TYPE, Diagnostic
from jupyter_graphbreak.views.html import render_html, render_rest
from jupyter_graphbreak.views.text import render_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report import Report

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_SCRIPT = Path(__file__).parent / "static" / "widget.js"
#: In a source tree where the front end has not been built.
_MARKUP_ONLY = """export default { render({ model, el }) {
  const show = () => { el.innerHTML = model.get("_html"); };
  model.on("change:_html", show);
  show();
} };"""

#: An output whose report is larger as JSON leaves out what can be spared.
_MOST_BYTES = 3_000_000

#: Seconds between two messages about progress; more would only keep the front end busy.
_INTERVAL_S = 0.2


class ReportWidget(anywidget.AnyWidget):
    """A run in a notebook: how far it is while it goes on, then its report.

    The front end gets the markup of :func:`~jupyter_graphbreak.views.html.render_html` and adds behaviour to it. What
    the markup leaves out, and the report as text and as JSON, it asks for when its reader wants them, so that none of
    it lies in a saved notebook once more.
    """

    _esm = _SCRIPT.read_text(encoding="utf-8") if _SCRIPT.is_file() else _MARKUP_ONLY

    # Both go from here to the front end only.
    _html = traitlets.Unicode("").tag(sync=True)
    _progress = traitlets.Dict().tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self._report: Report | None = None
        self._told_at = float("-inf")
        self.on_msg(self._answer)

    def show_progress(self, progress: msgspec.Struct) -> None:
        """Show how far the run is; most calls in quick succession do nothing.

        Parameters
        ----------
        progress
            With the fields ``phase``, ``function``, ``frames``, ``graphs``, ``breaks`` and ``elapsed_s``.
        """
        now = time.monotonic()
        if self._report is None and now - self._told_at >= _INTERVAL_S:
            self._told_at = now
            self._progress = msgspec.structs.asdict(progress)

    def finish(self, report: Report) -> None:
        """Show the report."""
        self._report = report
        self._html = render_html(report)

    def shows(self, report: Report) -> bool:
        """Return whether this very report is what it shows."""
        return self._report is report

    def _answer(self, _: ReportWidget, question: dict[str, Any], __: list[bytes]) -> None:
        asked = question.get("ask")
        answers: dict[str, Callable[[Report], Any]] = {
            "rest": render_rest,
            "text": render_text,
            "json": lambda report: report.to_json().decode(),
        }
        if self._report is not None and asked in answers:
            self.send({"asked": asked, "answer": answers[asked](self._report)})

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        shown = super()._repr_mimebundle_(**kwargs)
        metadata: dict[str, Any] = shown[1] if isinstance(shown, tuple) else {}
        bundle = running_bundle(self) if self._report is None else mime_bundle(self._report, self)
        return bundle, metadata


def running_bundle(widget: ReportWidget) -> dict[str, Any]:
    """Return what an output holds while the run goes on."""
    return {"text/plain": "compile_explain: running"} | _view(widget)


def mime_bundle(report: Report, widget: ReportWidget | None) -> dict[str, Any]:
    """Return what an output holds when the run has ended: the report for every kind of reader.

    Parameters
    ----------
    report : Report
    widget : ReportWidget or None
        The widget that shows it in a live front end, where there is one.
    """
    bundle = {
        "text/plain": render_text(report),
        "text/html": _html_of(report, widget),
        MIME_TYPE: carried(report).to_dict(),
    }
    return bundle | (_view(widget) if widget is not None else {})


def carried(report: Report) -> Report:
    """Return a report as a notebook carries it: a very large one without the operations and the code of its graphs.

    Nothing else is left out, and the report says so. The live widget and the variable of ``-o`` have everything.
    """
    if len(report.to_json()) <= _MOST_BYTES:
        return report
    said = Diagnostic(
        "info",
        f"The notebook's copy leaves out the operations and the code of {len(report.graphs)} graphs, to stay small: "
        "-o report keeps them, and report.save('report.json') writes them to a file.",
    )
    return msgspec.structs.replace(
        report,
        graphs=[msgspec.structs.replace(graph, ops=[], code="") for graph in report.graphs],
        diagnostics=[*report.diagnostics, said],
    )


def _html_of(report: Report, widget: ReportWidget | None) -> str:
    if widget is not None and widget.shows(report):
        return str(widget._html)  # noqa: SLF001 - rendered once already
    return render_html(report)


def _view(widget: ReportWidget) -> dict[str, Any]:
    return {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}}
