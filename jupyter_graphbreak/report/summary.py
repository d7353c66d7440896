"""Summarize a run: its times, and the lengths of the lists in its report."""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """The times in seconds for the whole run, for compiling, and for recording the run.

    ``cache_hits`` is the number of graphs, forward and backward, whose code Inductor found in its cache.
    ``cache_misses`` is the number of graphs whose code it generated, and ``cache_bypasses`` the number of graphs that a
    cache cannot keep. Unknown numbers are ``None``.
    """

    wall_s: float | None = None
    compile_s: float | None = None
    capture_s: float | None = None
    cache_hits: int | None = None
    cache_misses: int | None = None
    cache_bypasses: int | None = None


class Summary(msgspec.Struct, frozen=True):
    """The lengths of the lists in the report.

    ``ops`` counts the operations of all graphs, ``events`` the occurrences of all breaks, and ``errors`` the frames
    whose outcome is ``error``.
    """

    frames: int = 0
    graphs: int = 0
    ops: int = 0
    breaks: int = 0
    events: int = 0
    resumes: int = 0
    skipped: int = 0
    recompiles: int = 0
    errors: int = 0
