"""The face for plain Python: explain a block of code, or one call."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak import _torch_compat, compiling, recorder
from jupyter_graphbreak.build import build_report
from jupyter_graphbreak.report import Device, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Run:
    """A run that is being watched; :attr:`report` is there when it has ended."""

    def __init__(self) -> None:
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        """The report.

        Raises
        ------
        RuntimeError
            While the ``with`` block is still running.
        """
        if self._report is None:
            raise RuntimeError("the report is made when the with block of capture() ends; read it after the block")
        return self._report

    def close(self, recording: recorder.Recording) -> None:
        """Make the report of a complete recording."""
        self._report = report_of(recording)


def report_of(recording: recorder.Recording) -> Report:
    """Make the report of a complete recording, its own making counted in ``timing.capture_s``."""
    start = time.perf_counter()
    report = build_report(recording.records)
    timing = report.timing
    capture_s = (timing.capture_s or 0.0) + time.perf_counter() - start
    return msgspec.structs.replace(report, timing=msgspec.structs.replace(timing, capture_s=capture_s))


@contextlib.contextmanager
def capture() -> Iterator[Run]:
    """Watch the compilations of a ``with`` block.

    The block runs as it would without; an exception goes on unchanged, and the report is made all the same.

    Yields
    ------
    Run
        Its ``report`` can be read after the block.

    Raises
    ------
    TorchUnavailable
        If there is no torch, or one older than 2.9.

    Examples
    --------
    >>> with jupyter_graphbreak.capture() as run:  # doctest: +SKIP
    ...     compiled_step(batch)
    >>> print(run.report.to_text())  # doctest: +SKIP
    """
    run = Run()
    recording: recorder.Recording | None = None
    try:
        with recorder.record() as recording:
            recording.describe_device(Device("auto", _torch_compat.default_device_name()))
            yield run
    finally:
        if recording is not None:
            run.close(recording)


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Compile a function, call it once with the given arguments, and explain what happened.

    A function or module that is not compiled yet is compiled with the backend ``eager``, which finds the same graphs
    and breaks as any other and generates no code. What the call returns is dropped.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; compiled or not.
    *args, **kwargs
        What to call it with.

    Returns
    -------
    Report

    Raises
    ------
    Exception
        Whatever the call raises; use :func:`capture` to have the report as well.
    """
    compiled = compiling.ensure_compiled(fn, compiling.Options())
    compiling.forget(fn)
    with capture() as run:
        compiled(*args, **kwargs)
    return run.report
