"""The figures of a run: times, and the lengths of the lists of its report."""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """Seconds: the whole run, the time that compiling took, and the time that our own code took.

    ``cache_hits`` are the graphs, forward and backward, whose code inductor found in its cache; ``cache_misses`` those
    whose code it generated. ``None`` where it said nothing of either.
    """

    wall_s: float | None = None
    compile_s: float | None = None
    capture_s: float | None = None
    cache_hits: int | None = None
    cache_misses: int | None = None


class Summary(msgspec.Struct, frozen=True):
    """How many entries the lists of the report hold; ``events`` counts the occurrences of all breaks."""

    frames: int = 0
    graphs: int = 0
    ops: int = 0
    breaks: int = 0
    events: int = 0
    resumes: int = 0
    skipped: int = 0
    recompiles: int = 0
    errors: int = 0
