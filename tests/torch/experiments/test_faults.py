"""An internal error in a function that PyTorch calls during a trial ends in a note, not in a different result."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat import separate_cache
from jupyter_graphbreak.experiments.trial import time_limit


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken")


def notes(report: jupyter_graphbreak.Report) -> list[str]:
    return [note.message for note in report.diagnostics]


def expected_note(activity: str) -> str:
    return f"Internal error in compile_explain while {activity} (RuntimeError: broken); your code is not affected."


@pytest.mark.parametrize(
    ("owner", "name", "activity"),
    [
        (time_limit, "_note_compilation_step", "checking a step of a compilation"),
        (separate_cache.ThreadCompilations, "earlier_versions", "counting the versions of a function"),
    ],
)
def test_a_fault_while_compiling_is_noted(
    owner: Any, name: str, activity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fail)
    report = jupyter_graphbreak.check(torch.compile(double, backend="eager"), torch.ones(2))
    assert expected_note(activity) in notes(report)
    assert report.check is not None
    assert [check.equal for check in report.check] == [True]
    assert report.summary.graphs == 1


def test_a_fault_while_marking_compiled_code_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    transformation = sys.modules["torch._dynamo.bytecode_transformation"]
    transform: Any = transformation.transform_code_object

    def fail_for_marks(code: Any, transformations: Any, *args: Any, **kwargs: Any) -> Any:
        return (fail if "insert_marks" in transformations.__qualname__ else transform)(
            code, transformations, *args, **kwargs
        )

    monkeypatch.setattr(transformation, "transform_code_object", fail_for_marks)
    report = jupyter_graphbreak.measure(torch.compile(double, backend="eager"), torch.ones(2), seconds=2)
    assert expected_note("marking compiled code") in notes(report)
    assert report.cost is not None
    assert [entry.settled for entry in report.cost.entries] == [True]
