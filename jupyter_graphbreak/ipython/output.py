"""The output of a run in a notebook: progress during the run, then the report."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import uuid
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from IPython.display import display, update_display

from jupyter_graphbreak.faults import suppress_faults
from jupyter_graphbreak.report.schema import MIME_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.ipython.progress import Progress
    from jupyter_graphbreak.report.schema import Diagnostic, Report
    from jupyter_graphbreak.results import Job

_MAX_LIVE_OUTPUTS = 100


class Output:
    """The output of a run: shown at the start if it can be updated, and completed at the end.

    A terminal cannot replace what it has printed, so it gets the output only at the end. The output may wait for a
    graph, because there may be nothing to show.
    """

    def __init__(self, shell: InteractiveShell, *, waits_for_graph: bool = False) -> None:
        self.is_updatable = hasattr(shell, "kernel") and not _is_console()
        self._waits_for_graph = waits_for_graph
        self._shell = shell
        self._id = uuid.uuid4().hex
        self._is_shown = False
        self._pending_clear: Callable[[], Any] | None = None
        self._widget: Any = None
        self._report: Report | None = None

    @contextlib.contextmanager
    def show_live(self) -> Iterator[str | None]:
        """Show that the run has started, unless output is delayed until there is a graph, and notice cleared outputs.

        If nothing can be shown during the run, yield a sentence with the reason, otherwise ``None``.
        """
        problem = None
        if self.is_updatable and not self._waits_for_graph:
            try:
                self._show_running()
            except Exception as fault:  # noqa: BLE001 - a front end or a broken installation may raise anything
                self.is_updatable, self._is_shown, self._widget = False, False, None
                problem = f"The live view is not available ({type(fault).__name__}: {fault})."
        with self._watch_for_clears():
            yield problem

    @contextlib.contextmanager
    def _watch_for_clears(self) -> Iterator[None]:
        """Notice when the cell clears its outputs, including ours, and delay a clear that waits for the next output.

        If a cell ends with ``clear_output(wait=True)``, the next output would be the report, and it would clear the
        printed output of the cell.
        """
        session = getattr(self._shell.display_pub, "session", None)
        if not self.is_updatable or session is None:
            yield
            return
        send: Callable[..., Any] = session.send

        def send_and_watch(stream: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
            message_type = message if isinstance(message, str) else message["header"]["msg_type"]
            if message_type == "clear_output":
                if message["content"]["wait"]:
                    self._pending_clear = functools.partial(send, stream, message, *args, **kwargs)
                    return message
                self._is_shown, self._pending_clear = False, None
            elif message_type != "status":
                self.apply_pending_clear()
            return send(stream, message, *args, **kwargs)

        vars(session)["send"] = send_and_watch
        try:
            yield
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            if vars(session).get("send") is send_and_watch:
                del vars(session)["send"]

    def apply_pending_clear(self) -> None:
        """Clear the outputs if the cell asked to clear them when the next output arrives."""
        clear, self._pending_clear = self._pending_clear, None
        if clear is not None:
            self._is_shown = False
            clear()

    def _show_running(self) -> None:
        from jupyter_graphbreak.views.html.bundle import running_bundle
        from jupyter_graphbreak.views.html.widget import ReportWidget

        self._widget = ReportWidget()
        _show(display, running_bundle(self._widget), self._id)
        self._is_shown = True

    def show_progress(self, progress: Progress) -> None:
        """Show the progress of the run."""
        if self._widget is None and self.is_updatable and progress.graphs:
            self._show_running()
        if self._widget is not None:
            self._widget.show_progress(progress)

    def preview(self, report: Report) -> None:
        """Show a report that further runs will complete, if the output can be updated."""
        if self._widget is None and self.is_updatable:
            self._show_running()
        if self._widget is not None:
            self._widget.preview(report)

    def show_report(self, report: Report, notes: list[Diagnostic], job: Job | None = None) -> None:
        """Show the report, or the job if the cell started other processes, or as much as possible if a view fails."""
        self._report = report
        try:
            from jupyter_graphbreak.views.html.bundle import mime_bundle

            if self._widget is None and self.is_updatable:
                from jupyter_graphbreak.views.html.widget import ReportWidget

                self._widget = ReportWidget()
            if self._widget is not None:
                self._widget.finish(report)
            bundle = mime_bundle(report, self._widget)
            if job is not None:
                bundle = {MIME_TYPE: bundle[MIME_TYPE]} | job._repr_mimebundle_()
        except Exception as fault:  # noqa: BLE001 - the user's cell has run and must not fail
            bundle = _fallback_bundle(report, [*(note.message for note in notes), f"{type(fault).__name__}: {fault}"])
        with suppress_faults("showing the report"):
            _show(update_display if self._is_shown else display, bundle, self._id)

    def release(self, *, is_replaced: bool) -> None:
        """Close the widget and release the report that it shows.

        Unless the front end has already replaced the output, it becomes a static report, which needs no widget.
        """
        widget, report = self._widget, self._report
        self._widget = self._report = None
        if widget is None:
            return
        with suppress_faults("closing an earlier report"):
            if not is_replaced and report is not None:
                from jupyter_graphbreak.views.html.bundle import mime_bundle

                _show(update_display, mime_bundle(report, None), self._id)
            layout = widget.layout
            widget.close()
            layout.close()


class LiveOutputs:
    """The outputs with live widgets; in a long session, the oldest ones are released."""

    def __init__(self) -> None:
        self._outputs: list[tuple[str | None, Output]] = []  # with the front end's id of the cell

    def add(self, output: Output, cell_id: str | None) -> None:
        """Add a completed output; the front end has already removed the output of an earlier run of the same cell."""
        for earlier in [earlier for earlier in self._outputs if cell_id is not None and earlier[0] == cell_id]:
            self._outputs.remove(earlier)
            earlier[1].release(is_replaced=True)
        self._outputs.append((cell_id, output))

    def make_room(self) -> None:
        """Release the oldest outputs before a new one is shown."""
        while len(self._outputs) >= _MAX_LIVE_OUTPUTS:
            _, oldest = self._outputs.pop(0)
            oldest.release(is_replaced=False)


def _fallback_bundle(report: Report, problems: list[str]) -> dict[str, Any]:
    """Return the report as JSON and as text, as far as either can be created."""
    lines = ["compile_explain: the report cannot be shown as usual", *problems]
    bundle: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        bundle[MIME_TYPE] = report.to_dict()
    with contextlib.suppress(Exception):
        from jupyter_graphbreak.views.text import render_text

        lines.append(render_text(report))
    return {"text/plain": "\n".join(lines), **bundle}


def _is_console() -> bool:
    """Return whether a Jupyter console started this kernel; a console prints outputs and never replaces them."""
    with contextlib.suppress(Exception):
        import psutil

        words = psutil.Process(os.getppid()).cmdline()
        return any(PurePath(word).name.replace("_", "-") == "jupyter-console" for word in words[:3])
    return False


def _show(display_function: Callable[..., Any], bundle: dict[str, Any], display_id: str) -> None:
    display_function(bundle, raw=True, display_id=display_id)
