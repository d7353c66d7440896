"""The progress that is shown during a run."""

from __future__ import annotations

import threading

import pytest

from jupyter_graphbreak.ipython import progress
from jupyter_graphbreak.ipython.progress import Progress, ProgressMeter
from jupyter_graphbreak.records.records import Record


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("forward", "forward"),
        ("torch_dynamo_resume_in_forward_at_1280", "forward after line 1280"),
        ("torch_dynamo_resume_in_torch_dynamo_resume_in_step_at_3_at_9", "step after line 9"),
        ("<module>", "cell"),
    ],
)
def test_progress_names_the_users_function(monkeypatch: pytest.MonkeyPatch, name: str, expected: str) -> None:
    monkeypatch.setattr(progress, "INTERVAL_S", 0.01)
    states: list[Progress] = []
    is_shown = threading.Event()

    def show(state: Progress) -> None:
        states.append(state)
        if state.function is not None:
            is_shown.set()

    with ProgressMeter(show) as meter:
        meter.count(Record({"graphbreak_start": {"name": name}}))
        assert is_shown.wait(10)
    assert (states[-1].phase, states[-1].function) == ("compiling", expected)
