"""A Jupyter widget that shows the progress of a run, and then its report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import msgspec
import traitlets

from jupyter_graphbreak.views.html.bundle import mime_bundle, running_bundle
from jupyter_graphbreak.views.html.environment import live_style_sheet
from jupyter_graphbreak.views.html.render import render_html, render_rest
from jupyter_graphbreak.views.text import render_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report.schema import Report

_SCRIPT = Path(__file__).parent / "static" / "widget.js"
#: The script for a source tree in which the front end has not been built.
_MARKUP_ONLY_SCRIPT = """export default { render({ model, el }) {
  const show = () => { el.innerHTML = model.get("_html"); };
  model.on("change:_html", show);
  show();
} };"""

#: The minimum time between two progress messages, in seconds.
_MIN_INTERVAL_S = 0.2


class ReportWidget(anywidget.AnyWidget):
    """Shows the progress of a run, then a preview of the report while changes are tried, and then the report.

    The front end receives the markup of :func:`.render.render_html` and adds behaviour to it. It requests the rest of
    the markup, and the report as text or JSON, only when it needs them, because a saved notebook would otherwise
    contain them twice.
    """

    _esm = _SCRIPT.read_text(encoding="utf-8") if _SCRIPT.is_file() else _MARKUP_ONLY_SCRIPT

    _css = str(live_style_sheet())

    # These traits are only sent from Python to the front end, never back.
    _html = traitlets.Unicode("").tag(sync=True)
    _preview = traitlets.Unicode("").tag(sync=True)
    _progress = traitlets.Dict().tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self._report: Report | None = None
        self._last_progress_at = float("-inf")
        self.on_msg(self._answer_request)

    def show_progress(self, progress: msgspec.Struct) -> None:
        """Show the progress of the run. Quick successive calls, and calls after :meth:`finish`, are ignored."""
        now = time.monotonic()
        if self._report is None and now - self._last_progress_at >= _MIN_INTERVAL_S:
            self._last_progress_at = now
            self._progress = msgspec.structs.asdict(progress)

    def preview(self, report: Report) -> None:
        """Show an unfinished report below the progress; :meth:`finish` replaces it."""
        self._preview = render_html(report)

    def finish(self, report: Report) -> None:
        """Show the complete report."""
        self._report = report
        self._html = render_html(report)
        self._preview = ""

    def markup_of(self, report: Report) -> str | None:
        """Return the markup of a report if the widget already shows that report; otherwise ``None``."""
        return str(self._html) if self._report is report else None

    def _answer_request(self, _: ReportWidget, message: dict[str, Any], __: list[bytes]) -> None:
        request, name = message.get("request"), message.get("list")
        answers: dict[str, Callable[[Report], Any]] = {
            "rest": lambda report: render_rest(report, name),
            "text": render_text,
            "json": lambda report: report.to_json().decode(),
        }
        if self._report is not None and request in answers:
            self.send({"request": request, "list": name, "answer": answers[request](self._report)})

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        widget_bundle = super()._repr_mimebundle_(**kwargs)
        metadata: dict[str, Any] = widget_bundle[1] if isinstance(widget_bundle, tuple) else {}
        bundle = running_bundle(self) if self._report is None else mime_bundle(self._report, self)
        return bundle, metadata
