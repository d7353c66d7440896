"""The one output of a run in a notebook: progress while it goes on, then the report."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from IPython.display import display, update_display

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.progress import Progress
    from jupyter_graphbreak.report import Report


class Screen:
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
        self._publisher: Any = None

    def open(self) -> str | None:
        """Show that the run has started; return why that failed, if it did: the cell runs all the same."""
        if not self.live:
            return None
        try:
            self._open()
        except Exception as fault:  # noqa: BLE001 - whatever a front end or a broken installation brings
            self.live, self._shown, self._widget = False, False, None
            return f"The live view is not there ({type(fault).__name__}: {fault})."
        return None

    def _open(self) -> None:
        from jupyter_graphbreak.views.widget import ReportWidget, running_bundle

        self._widget = ReportWidget()
        _show(display, running_bundle(self._widget), self._id)
        self._shown = True
        self._publisher = self._shell.display_pub  # %%capture puts another in its place meanwhile
        clear_output: Callable[[bool], None] = self._publisher.clear_output

        def cleared(wait: bool = False) -> None:  # noqa: FBT001, FBT002 - IPython's signature
            self._shown = False  # the user's code clears the cell's outputs, ours among them
            clear_output(wait)

        vars(self._publisher)["clear_output"] = cleared

    def progress(self, progress: Progress) -> None:
        """Show how far the run is."""
        if self._widget is not None:
            self._widget.show_progress(progress)

    def close(self, report: Report) -> None:
        """Show the report."""
        from jupyter_graphbreak.views.widget import mime_bundle

        if self._publisher is not None:
            vars(self._publisher).pop("clear_output", None)
        if self._widget is not None:
            self._widget.finish(report)
        bundle = mime_bundle(report, self._widget)
        if self._shown:
            _show(update_display, bundle, self._id)
        else:
            _show(display, bundle, self._id)


def _show(how: Callable[..., Any], bundle: dict[str, Any], display_id: str) -> None:
    how(bundle, raw=True, display_id=display_id)
