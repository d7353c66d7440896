"""Report the progress of a run, so that a long compilation does not look like a hang."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec

from jupyter_graphbreak.records.records import display_name, line_in_resume_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.records.records import Record

#: Seconds between two updates: often enough to look alive, rarely enough to cost little.
INTERVAL_S = 0.8


class Progress(msgspec.Struct, frozen=True):
    """The state of a run: the activity and its subject, counts, the seconds since the start, and the seconds left."""

    phase: str
    #: The function that is being compiled, or the current step of a rerun.
    function: str | None
    frames: int
    graphs: int
    breaks: int
    elapsed_s: float
    #: The seconds until the time limit of the activity; ``None`` if it has no limit.
    left_s: float | None = None


class ProgressMeter:
    """Counts incoming records, and passes the state of the run to a callback at intervals, on a separate thread.

    Exceptions of the callback are ignored.
    """

    def __init__(self, show: Callable[[Progress], Any]) -> None:
        self._show = show
        self._start = time.perf_counter()
        self._function: str | None = None
        self._frame_count = 0
        self._graph_count = 0
        self._breaks: set[str] = set()
        self._is_done = threading.Event()
        # A display on another thread uses the context to find its cell.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="graphbreak-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        self._thread.join()

    def count(self, record: Record) -> None:
        """Update the counts and the current function."""
        match record.kind:
            case "dynamo_start":
                self._frame_count += 1
            case "graphbreak_start":
                self._function = _description_of(str(record.data.get("name")))
            case "dynamo_output_graph":
                self._graph_count += 1
            case "artifact:dynamo_graph_break_reason":
                self._breaks.add((record.payload or "").partition("\n")[0])
            case "compilation_metrics":
                self._function = None

    def _run(self) -> None:
        while not self._is_done.wait(INTERVAL_S):
            with contextlib.suppress(Exception):
                self._show(self._state())

    def _state(self) -> Progress:
        function = self._function
        return Progress(
            phase="compiling" if function is not None else "running",
            function=function,
            frames=self._frame_count,
            graphs=self._graph_count,
            breaks=len(self._breaks),
            elapsed_s=time.perf_counter() - self._start,
        )


def _description_of(name: str) -> str:
    """Return the user's name for a function that Dynamo compiles, and the line after which it resumes."""
    line = line_in_resume_name(name)
    return display_name(name) + (f" after line {line}" if line is not None else "")
