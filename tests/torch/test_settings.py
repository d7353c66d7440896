"""A report has the settings that were in force when its frames compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.configuration import (
    dynamo_settings,
    imitate_eager_output,
    suppress_compile_errors,
)
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.report.schema import Report

ONES = torch.ones(3)
DEFAULTS = {"nested_graph_breaks": False, "recompile_limit": 8}
config = torch._dynamo.config


@pytest.fixture(autouse=True)
def reset_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def record_calls(*calls: tuple[Callable[[torch.Tensor], torch.Tensor], dict[str, Any]]) -> Report:
    """Record calls to functions, each compiled with temporary settings."""
    with recorder.record() as recording:
        for function, settings in calls:
            with config.patch(settings):
                torch.compile(function, backend="eager")(ONES)
    return build_report(recording.records)


def test_settings_are_those_in_force_when_a_frame_compiles() -> None:
    report = record_calls((add_one, {"nested_graph_breaks": True, "capture_scalar_outputs": True}))
    assert report.config == {**DEFAULTS, "nested_graph_breaks": True, "capture_scalar_outputs": True}
    assert not [note for note in report.diagnostics if "setting" in note.message]


def test_a_setting_that_changes_between_frames_is_reported() -> None:
    report = record_calls((add_one, {}), (double, {"nested_graph_breaks": True}))
    assert report.config == {**DEFAULTS, "nested_graph_breaks": True}
    (note,) = [note for note in report.diagnostics if "setting" in note.message]
    assert note.level == "info"
    assert note.message == (
        "The setting nested_graph_breaks changed during the run: False for frame 0/0, True from frame 1/0 on."
    )


def test_a_setting_that_is_reset_between_frames_is_reported() -> None:
    report = record_calls((add_one, {"recompile_limit": 3, "capture_scalar_outputs": True}), (double, {}))
    assert report.config == {**DEFAULTS, "recompile_limit": 3, "capture_scalar_outputs": True}
    assert [note.message for note in report.diagnostics if "setting" in note.message] == [
        "The setting recompile_limit changed during the run: 3 for frame 0/0, 8 from frame 1/0 on.",
        "The setting capture_scalar_outputs changed during the run: True for frame 0/0, its default from frame 1/0 on.",
    ]


def test_without_a_frame_the_settings_are_those_at_the_end() -> None:
    with config.patch(capture_scalar_outputs=True), recorder.record() as recording:
        add_one(ONES)
    assert build_report(recording.records).config == {**DEFAULTS, "capture_scalar_outputs": True}
    with recorder.record() as recording, config.patch(capture_scalar_outputs=True):
        add_one(ONES)
    assert build_report(recording.records).config == DEFAULTS


def test_a_setting_that_was_set_and_reset_is_not_a_change() -> None:
    with config.patch(config.get_config_copy()):
        pass
    with config.patch(capture_scalar_outputs=True):
        pass
    config.suppress_errors = config.suppress_errors
    assert dynamo_settings()[0] == DEFAULTS
    assert jupyter_graphbreak.explain(add_one, ONES).config == DEFAULTS


def test_settings_of_this_package_are_not_reported_as_the_users() -> None:
    with suppress_compile_errors(), imitate_eager_output():
        assert config.suppress_errors
        assert dynamo_settings()[0] == DEFAULTS
        with config.patch(capture_scalar_outputs=True):
            assert dynamo_settings()[0] == {**DEFAULTS, "capture_scalar_outputs": True}
    with config.patch(suppress_errors=True), suppress_compile_errors():
        assert dynamo_settings()[0] == {**DEFAULTS, "suppress_errors": True}
    assert dynamo_settings()[0] == DEFAULTS


@pytest.mark.parametrize(
    ("environment", "disable", "message"),
    [
        ({}, True, "torch.compile is switched off (TORCH_COMPILE_DISABLE=1, or torch._dynamo.config.disable): "),
        ({"TORCHDYNAMO_DISABLE": "1"}, False, "torch.compile is switched off (TORCHDYNAMO_DISABLE=1): "),
    ],
)
def test_the_switch_that_disables_compiling_is_reported(
    environment: dict[str, str], *, disable: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with config.patch(disable=disable), jupyter_graphbreak.capture() as run:
        torch.compile(add_one, backend="eager")(ONES)
    assert run.report.graphs == []
    assert [note.message for note in run.report.diagnostics] == [message + "nothing is compiled."]
