"""The settings of a report are those with which its frames were compiled, and only what differs from the defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.configuration import dynamo_settings, suppressed_errors, uncompiled_output
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.report.schema import Report

ONES = torch.ones(3)
USUAL = {"nested_graph_breaks": False, "recompile_limit": 8}
config = torch._dynamo.config


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def first(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def second(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def compiled(*calls: tuple[Callable[[torch.Tensor], torch.Tensor], dict[str, Any]]) -> Report:
    """Record calls of functions, each compiled with settings that are taken back."""
    with recorder.record() as recording:
        for function, settings in calls:
            with config.patch(settings):
                torch.compile(function, backend="eager")(ONES)
    return build_report(recording.records)


def test_settings_are_those_in_force_when_a_frame_compiles() -> None:
    report = compiled((first, {"nested_graph_breaks": True, "capture_scalar_outputs": True}))
    assert report.config == {**USUAL, "nested_graph_breaks": True, "capture_scalar_outputs": True}
    assert not [note for note in report.diagnostics if "setting" in note.message]


def test_a_setting_that_changes_between_frames_is_said() -> None:
    report = compiled((first, {}), (second, {"nested_graph_breaks": True}))
    assert report.config == {**USUAL, "nested_graph_breaks": True}
    (note,) = [note for note in report.diagnostics if "setting" in note.message]
    assert note.level == "info"
    assert note.message == (
        "The setting nested_graph_breaks changed during the run: False for frame 0/0, True from frame 1/0 on."
    )


def test_a_setting_that_is_taken_back_between_frames_is_said() -> None:
    report = compiled((first, {"recompile_limit": 3, "capture_scalar_outputs": True}), (second, {}))
    assert report.config == {**USUAL, "recompile_limit": 3, "capture_scalar_outputs": True}
    assert [note.message for note in report.diagnostics if "setting" in note.message] == [
        "The setting recompile_limit changed during the run: 3 for frame 0/0, 8 from frame 1/0 on.",
        "The setting capture_scalar_outputs changed during the run: True for frame 0/0, its default from frame 1/0 on.",
    ]


def test_without_a_frame_they_are_those_at_the_end() -> None:
    with config.patch(capture_scalar_outputs=True), recorder.record() as recording:
        first(ONES)
    assert build_report(recording.records).config == {**USUAL, "capture_scalar_outputs": True}
    with recorder.record() as recording, config.patch(capture_scalar_outputs=True):
        first(ONES)
    assert build_report(recording.records).config == USUAL


def test_what_was_set_and_set_back_is_no_change() -> None:
    with config.patch(config.get_config_copy()):
        pass
    with config.patch(capture_scalar_outputs=True):
        pass
    config.suppress_errors = config.suppress_errors
    assert dynamo_settings()[0] == USUAL
    assert jupyter_graphbreak.explain(first, ONES).config == USUAL


def test_what_we_set_ourselves_is_not_the_users() -> None:
    with suppressed_errors(), uncompiled_output():
        assert config.suppress_errors
        assert dynamo_settings()[0] == USUAL
        with config.patch(capture_scalar_outputs=True):
            assert dynamo_settings()[0] == {**USUAL, "capture_scalar_outputs": True}
    with config.patch(suppress_errors=True), suppressed_errors():
        assert dynamo_settings()[0] == {**USUAL, "suppress_errors": True}
    assert dynamo_settings()[0] == USUAL


@pytest.mark.parametrize(
    ("environment", "disable", "message"),
    [
        ({}, True, "torch.compile is switched off (TORCH_COMPILE_DISABLE=1, or torch._dynamo.config.disable): "),
        ({"TORCHDYNAMO_DISABLE": "1"}, False, "torch.compile is switched off (TORCHDYNAMO_DISABLE=1): "),
    ],
)
def test_what_switches_compiling_off_is_said(
    environment: dict[str, str], *, disable: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with config.patch(disable=disable), jupyter_graphbreak.capture() as run:
        torch.compile(first, backend="eager")(ONES)
    assert run.report.graphs == []
    assert [noted.message for noted in run.report.diagnostics] == [message + "nothing is compiled."]
