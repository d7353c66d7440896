"""The figures of a run: seconds, and how many of each thing the report lists."""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """Seconds: the whole run, the part that was compilation, and the part that our own code took."""

    wall_s: float | None = None
    compile_s: float | None = None
    capture_s: float | None = None


class Summary(msgspec.Struct, frozen=True):
    """How many of each; equal to what the lists of the report hold."""

    frames: int = 0
    graphs: int = 0
    ops: int = 0
    breaks: int = 0
    events: int = 0
    resumes: int = 0
    skipped: int = 0
    recompiles: int = 0
    errors: int = 0
