"""An internal error in one part of a report only affects that part."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_graphbreak.analysis import build
from tests.support.trace_files import read_recording

RECORDING = Path(__file__).parents[2] / "recordings" / "2.13.0" / "branch.log"


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("prioritize_breaks", "the order of the breaks"),
        ("_timing", "times"),
        ("list_frames", "frames"),
        ("list_recompiles", "recompiles"),
        ("settings_of_run", "settings"),
    ],
)
def test_an_internal_error_in_one_part_leaves_the_breaks_and_graphs(
    monkeypatch: pytest.MonkeyPatch, function: str, part: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("an internal error")

    monkeypatch.setattr(build, function, fail)
    report = build.build_report(read_recording(RECORDING))
    assert len(report.breaks) == 1
    assert len(report.graphs) == 3
    notes = [note.message for note in report.diagnostics if note.level == "error"]
    assert notes == [
        f"Internal error in compile_explain while working out {part} (RuntimeError: an internal error); "
        "your code is not affected."
    ]
