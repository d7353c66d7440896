"""One run under observation: everything it opens, sets and registers is undone by one context."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from jupyter_graphbreak.ipython.output import Output
from jupyter_graphbreak.ipython.progress import ProgressMeter

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.ipython.cell.texts import CellTexts
    from jupyter_graphbreak.ipython.options import Options
    from jupyter_graphbreak.recording.recorder import Recording
    from jupyter_graphbreak.results import Frontends, Report


class Observation:
    """A run from the moment at which it is watched to its report.

    Parameters
    ----------
    shell : InteractiveShell
    cells : CellTexts
        Which cells code comes from.
    options : Options
    named : dict
        The objects of the notebook that the code names.

    Raises
    ------
    UsageError
        If an option asks for something that is not there; nothing has been changed then.
    """

    def __init__(self, shell: InteractiveShell, cells: CellTexts, options: Options, named: dict[str, Any]) -> None:
        from jupyter_graphbreak._torch_compat.configuration import forced_backend
        from jupyter_graphbreak._torch_compat.default_device import default_device
        from jupyter_graphbreak.recording import recorder
        from jupyter_graphbreak.recording.targets import forget

        self.options = options
        #: What compares the front ends when the run has ended.
        self.compare: Callable[[], Frontends] | None = None
        self._shell = shell
        self._named = named
        choice = _checked(options, named)
        self._device = choice.default
        with contextlib.ExitStack() as stack:
            self._output = None if options.quiet or options.frontends else Output(shell)
            unseen = stack.enter_context(self._output.opened()) if self._output is not None else None
            forget(*named.values())
            meter = None
            if self._output is not None and self._output.live:
                meter = stack.enter_context(ProgressMeter(self._output.show_progress))
            self.recording: Recording = stack.enter_context(
                recorder.record(cells.find, meter.count if meter is not None else None)
            )
            self.recording.describe_device(choice.device)
            if unseen is not None:
                self.recording.note("warning", unseen)
            stack.enter_context(forced_backend(options.backend))
            stack.enter_context(default_device(choice.default))
            self._opened = stack.pop_all()

    def ignore_compile_options(self, because: str) -> None:
        """Say that options for what the magic compiles had nothing to apply to."""
        given = self.options.only_for_compile()
        if given:
            self.recording.note("warning", f"{', '.join(given)} had no effect: {because}.")

    def close(self, error: BaseException | None, finish: Callable[[Report], Report] = lambda report: report) -> None:
        """Stop watching, make the report, store and show it; a fault of ours is reported, never raised.

        Parameters
        ----------
        error : BaseException or None
            What ended the run.
        finish : callable
            Adds to the report what only its caller knows.
        """
        from jupyter_graphbreak import api

        try:
            if error is not None:
                self.recording.fail(error)
            self._note_stale()
        finally:
            self._opened.close()
        try:
            report = finish(api.report_of(self.recording))
            if self.options.output is not None:
                self._shell.user_ns[self.options.output] = report
            if self.compare is not None:
                self._show_comparison(report)
            if self._output is not None:
                self._output.close(report)
        except Exception as fault:  # noqa: BLE001 - the user's cell has run, and its result stands
            print(f"compile_explain: no report, {type(fault).__name__}: {fault}", file=sys.stderr)  # noqa: T201

    def _show_comparison(self, report: Report) -> None:
        """Compare the front ends, where the run went well, and show the table above the report."""
        from jupyter_graphbreak._torch_compat.default_device import default_device

        try:
            if report.status == "ok" and self.compare is not None:
                with default_device(self._device):
                    frontends = self.compare()
                if self.options.output is not None:
                    self._shell.user_ns[self.options.output] = frontends
                if not self.options.quiet:
                    display(frontends)
        except UsageError as error:
            print(f"UsageError: {error}", file=sys.stderr)  # noqa: T201 - the cell has run
        finally:
            if not self.options.quiet:
                display(report)

    def _note_stale(self) -> None:
        from jupyter_graphbreak.recording.targets import stale

        # A name that the cell gave to something else stands for what the cell itself compiled.
        kept = {name: value for name, value in self._named.items() if self._shell.user_ns.get(name) is value}
        for name in stale(kept, self.recording.started_codes()):
            self.recording.note(
                "warning", f"{name} was compiled before and was not compiled again: its graphs are not here."
            )


def _checked(options: Options, named: dict[str, Any]) -> Any:
    """Return the choice of the device; every misuse is a :class:`UsageError`."""
    from jupyter_graphbreak._torch_compat.configuration import backends, modes
    from jupyter_graphbreak._torch_compat.default_device import cuda_devices
    from jupyter_graphbreak._torch_compat.version import TorchUnavailable, require_torch
    from jupyter_graphbreak.recording.device import Cuda, choose_device
    from jupyter_graphbreak.recording.targets import names_used

    try:
        require_torch()
        names, current, why_none = cuda_devices()
        choice = choose_device(options.device, Cuda(names, current, why_none), names_used(named))
    except (TorchUnavailable, ValueError) as error:
        raise UsageError(str(error)) from None
    if options.backend is not None and options.backend not in (known := backends()):
        raise UsageError(f"unknown backend {options.backend!r}: use one of {', '.join(known)}")
    if options.mode is not None and options.mode not in (known := modes()):
        raise UsageError(f"unknown mode {options.mode!r}: use one of {', '.join(known)}")
    return choice
