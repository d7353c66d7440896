"""Events about compilations, breaks and failures, reported while a block runs."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.views.words.events import Event

NAME = Path(__file__).name


@pytest.fixture(autouse=True)
def reset_dynamo() -> None:
    torch.compiler.reset()


def helper(y: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return y + 1


def f(x: torch.Tensor) -> torch.Tensor:
    return helper(x * 2) * 3


def multiply_wrong_shapes(x: torch.Tensor) -> torch.Tensor:
    return x @ x.new_ones(7, 7)


def line_of(code: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if code in line)


def remove_times(events: list[Event]) -> list[str]:
    return [re.sub(r" in [\d.]+ m?s", "", str(event)) for event in events]


def test_each_compilation_and_each_break_is_an_event_as_soon_as_it_is_known() -> None:
    events: list[Event] = []
    compiled = torch.compile(f, backend="eager")
    with jupyter_graphbreak.capture(on_event=events.append) as run:
        compiled(torch.ones(3))
        first_events = remove_times(events)
        early_report = run.report_so_far()
        compiled(torch.ones(3))
        assert len(events) == len(first_events)
        compiled(torch.ones(4))
    f_line, helper_line, break_line = (
        line_of(code) for code in ("def f(", "def helper(", "torch._dynamo.graph_break()\n"[:-1])
    )
    assert first_events == [
        f"Compiled {NAME}:{f_line} in f.",
        f"Graph break at {NAME}:{break_line} in helper: `torch._dynamo.graph_break()` (GB0025).",
        f"Compiled {NAME}:{helper_line} in helper.",
        f"Compiled {NAME}:{break_line} in helper.",
        f"Compiled {NAME}:{f_line + 1} in f.",
    ]
    assert remove_times(events)[len(first_events) :] == [
        f"Recompiled {NAME}:{f_line} in f: dimension 0 of x: 3 -> 4.",
        f"Recompiled {NAME}:{break_line} in helper: dimension 0 of y: 3 -> 4.",
        f"Recompiled {NAME}:{f_line + 1} in f: dimension 0 of a tensor that the break returned: 3 -> 4.",
    ]
    assert all((event.seconds or 0) > 0 for event in events if event.kind in {"compile", "recompile"})
    assert [event.gb_id for event in events if event.kind == "break"] == ["GB0025"]
    assert (early_report.summary.breaks, early_report.summary.recompiles, len(run.report.recompiles)) == (1, 0, 3)
    assert run.report_so_far() is run.report


def test_a_failure_and_the_recompile_limit_are_events() -> None:
    events: list[Event] = []
    with (
        torch._dynamo.config.patch(recompile_limit=2, automatic_dynamic_shapes=False),
        jupyter_graphbreak.capture(on_event=events.append),
    ):
        scale = torch.compile(lambda x, factors: x * len(factors), backend="eager")
        for number in range(4):
            scale(torch.ones(3), "a" * number)
        with pytest.raises(torch._dynamo.exc.TorchRuntimeError):
            torch.compile(multiply_wrong_shapes, backend="eager")(torch.ones(3))
    assert [event.kind for event in events] == ["compile", "recompile", "eager", "error"]
    assert "it was compiled too often (recompile_limit = 2)" in str(events[2])
    line = line_of("def multiply_wrong_shapes(")
    assert str(events[3]).startswith(f"Compiling {NAME}:{line} in multiply_wrong_shapes failed at ")


def test_an_exception_of_the_receiver_does_not_reach_the_program(caplog: pytest.LogCaptureFixture) -> None:
    received_events: list[Event] = []

    def receive(event: Event) -> None:
        received_events.append(event)
        raise ValueError("the disk is full")

    compiled = torch.compile(f, backend="eager")
    with jupyter_graphbreak.capture(on_event=receive) as run:
        assert compiled(torch.ones(3)).tolist() == [9.0, 9.0, 9.0]
    assert len(received_events) == 1
    assert [item.message for item in run.report.diagnostics] == ["on_event raised ValueError: the disk is full"]
    with caplog.at_level(logging.INFO), jupyter_graphbreak.capture(on_event=logging.getLogger("training").info):
        torch.compile(f, backend="eager")(torch.ones(3, dtype=torch.float64))
    messages = [record.getMessage() for record in caplog.records if record.name == "training"]
    assert [message.split()[0] for message in messages] == ["Recompiled", "Graph", *["Recompiled"] * 2]
