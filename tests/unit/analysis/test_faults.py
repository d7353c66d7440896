"""An internal error in one part of a report only affects that part."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_graphbreak.analysis import build
from jupyter_graphbreak.trace.files import read_trace

RECORDING = Path(__file__).parents[2] / "recordings" / "2.13.0" / "branch.log"


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("with_priorities", "The order of the breaks"),
        ("_timing", "Times"),
        ("list_frames", "Frames"),
        ("list_recompiles", "Recompiles"),
        ("settings_of_run", "Settings"),
    ],
)
def test_all_other_parts_are_complete(monkeypatch: pytest.MonkeyPatch, function: str, part: str) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("an internal error")

    monkeypatch.setattr(build, function, fail)
    report = build.build_report(read_trace(RECORDING))
    assert len(report.breaks) == 1
    assert len(report.graphs) == 3
    notes = [note.message for note in report.diagnostics if note.level == "error"]
    assert notes == [f"{part} may be incomplete (internal error: RuntimeError: an internal error)."]
