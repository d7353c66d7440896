"""The report as a Jupyter widget: the progress of a run while it goes on, then its report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import msgspec
import traitlets

from jupyter_graphbreak.views.html.bundle import mime_bundle, running_bundle
from jupyter_graphbreak.views.html.render import render_html, render_rest
from jupyter_graphbreak.views.text import render_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report.schema import Report

_SCRIPT = Path(__file__).parent / "static" / "widget.js"
#: In a source tree where the front end has not been built.
_MARKUP_ONLY = """export default { render({ model, el }) {
  const show = () => { el.innerHTML = model.get("_html"); };
  model.on("change:_html", show);
  show();
} };"""

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
        self._last_progress_at = float("-inf")
        self.on_msg(self._answer)

    def show_progress(self, progress: msgspec.Struct) -> None:
        """Show how far the run is; most calls in quick succession do nothing.

        Parameters
        ----------
        progress
            With the fields ``phase``, ``function``, ``frames``, ``graphs``, ``breaks`` and ``elapsed_s``.
        """
        now = time.monotonic()
        if self._report is None and now - self._last_progress_at >= _INTERVAL_S:
            self._last_progress_at = now
            self._progress = msgspec.structs.asdict(progress)

    def finish(self, report: Report) -> None:
        """Show the report."""
        self._report = report
        self._html = render_html(report)

    def markup_of(self, report: Report) -> str | None:
        """Return the markup of a report if it is what the widget shows, so that it need not be rendered again."""
        return str(self._html) if self._report is report else None

    def _answer(self, _: ReportWidget, question: dict[str, Any], __: list[bytes]) -> None:
        asked, name = question.get("ask"), question.get("list")
        answers: dict[str, Callable[[Report], Any]] = {
            "rest": lambda report: render_rest(report, name),
            "text": render_text,
            "json": lambda report: report.to_json().decode(),
        }
        if self._report is not None and asked in answers:
            self.send({"asked": asked, "list": name, "answer": answers[asked](self._report)})

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        shown = super()._repr_mimebundle_(**kwargs)
        metadata: dict[str, Any] = shown[1] if isinstance(shown, tuple) else {}
        bundle = running_bundle(self) if self._report is None else mime_bundle(self._report, self)
        return bundle, metadata
