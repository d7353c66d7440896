"""The one output of a run in a notebook: progress while it goes on, then the report."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from IPython.display import display, update_display

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.ipython.progress import Progress
    from jupyter_graphbreak.report.schema import Report


class Output:
    """The one output of a run: shown when it starts where it can be updated, complete when it ends.

    Parameters
    ----------
    shell : InteractiveShell
        A terminal prints what it is given and cannot take it back, so there the output comes at the end.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self.live = hasattr(shell, "kernel")
        self._shell = shell
        self._id = uuid.uuid4().hex
        self._shown = False
        self._widget: Any = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[str | None]:
        """Show that the run has started, and notice while the context is open whether the cell clears its outputs.

        Yields
        ------
        str or None
            Why nothing can be shown while the run goes on, if so: the cell runs all the same.
        """
        publisher = self._shell.display_pub  # %%capture puts another in its place meanwhile
        problem = None
        if self.live:
            try:
                self._show_running()
            except Exception as fault:  # noqa: BLE001 - whatever a front end or a broken installation brings
                self.live, self._shown, self._widget = False, False, None
                problem = f"The live view is not there ({type(fault).__name__}: {fault})."
        clear_output: Callable[..., None] = publisher.clear_output

        def cleared(*args: Any, **kwargs: Any) -> None:
            self._shown = False  # the user's code clears the cell's outputs, ours among them
            clear_output(*args, **kwargs)

        try:
            if self._shown:
                vars(publisher)["clear_output"] = cleared
            yield problem
        finally:
            if vars(publisher).get("clear_output") is cleared:
                del vars(publisher)["clear_output"]

    def _show_running(self) -> None:
        from jupyter_graphbreak.views.html.bundle import running_bundle
        from jupyter_graphbreak.views.html.widget import ReportWidget

        self._widget = ReportWidget()
        _show(display, running_bundle(self._widget), self._id)
        self._shown = True

    def show_progress(self, progress: Progress) -> None:
        """Show how far the run is."""
        if self._widget is not None:
            self._widget.show_progress(progress)

    def close(self, report: Report) -> None:
        """Show the report."""
        from jupyter_graphbreak.views.html.bundle import mime_bundle

        if self._widget is not None:
            self._widget.finish(report)
        bundle = mime_bundle(report, self._widget)
        _show(update_display if self._shown else display, bundle, self._id)


def _show(how: Callable[..., Any], bundle: dict[str, Any], display_id: str) -> None:
    how(bundle, raw=True, display_id=display_id)
