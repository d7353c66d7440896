"""The time that working remedies save is measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo

import jupyter_graphbreak
from jupyter_graphbreak.api.watching import Run
from jupyter_graphbreak.experiments.remedies.finding import choose_remedies_to_measure
from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.views.words.cost import break_time_text, cost_verdicts


def three_breaks(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    x = x * 2
    torch._dynamo.graph_break()
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def branch_and_scale(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y = y + 1 if y.sum() > 0 else y - 1
    return y * y.sum().item()


COMPILED_GRAPHS: list[torch.fx.GraphModule] = []


def record_graphs(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    COMPILED_GRAPHS.append(module)
    return module.forward


@torch.compile(backend=record_graphs)
def print_shape(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    print("shape", y.shape)
    return y.cos()


def capture_run(function: Callable[..., Any], *args: object) -> Run:
    torch.compiler.reset()  # an earlier test may have compiled the function
    compiled = torch.compile(function, backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        compiled(*args)
    return run


@pytest.mark.exhaustive
def test_working_remedies_are_measured_with_the_original() -> None:
    run = capture_run(three_breaks, torch.ones(4))
    code = three_breaks.__code__
    run.try_remedies()
    report = run.measure()
    assert report.remedies is not None
    assert report.cost is not None
    (cost,) = report.cost.entries
    by_id = {remedy.id: remedy for remedy in report.remedies}
    remedies_and_times = [(by_id[remedied_cost.remedies[0]], remedied_cost.time) for remedied_cost in cost.remedied]
    assert all(remedy.verdict in WORKING for remedy, _ in remedies_and_times)
    combined_remedy, time_of_all = remedies_and_times[0]
    assert len(combined_remedy.breaks) == 3
    assert [len(remedy.breaks) for remedy, _ in remedies_and_times[1:]] == [1, 1, 1]
    assert time_of_all.median_us < cost.compiled.median_us
    assert all(time_of_all.median_us < time_of_one.median_us for _, time_of_one in remedies_and_times[1:])
    (verdict,) = cost_verdicts(report)
    assert "without breaks 1, 2 and 3: " in verdict
    assert three_breaks.__code__ is code


@pytest.mark.exhaustive
def test_settings_and_edits_apply_only_during_measuring() -> None:
    run = capture_run(branch_and_scale, torch.ones(4))
    config, environment = torch._dynamo.config.get_config_copy(), dict(os.environ)
    run.try_remedies(seconds=600)
    report = run.measure()
    assert report.remedies is not None
    assert report.cost is not None
    (cost,) = report.cost.entries
    measured_ids = {ident for remedied_cost in cost.remedied for ident in remedied_cost.remedies}
    kinds = {remedy.kind for remedy in report.remedies if remedy.id in measured_ids}
    assert {"edit", "setting"} <= kinds
    assert torch._dynamo.config.get_config_copy() == config
    assert dict(os.environ) == environment
    assert all(break_time_text(report, break_).startswith("fixing it ") for break_ in report.breaks)


@pytest.mark.exhaustive
def test_a_remedy_that_compiles_an_inner_function_is_measured_with_the_same_backend() -> None:
    torch.compiler.reset()
    with jupyter_graphbreak.capture(entries=True) as run:
        print_shape(torch.ones(8, 8))
    run.try_remedies()
    COMPILED_GRAPHS.clear()
    report = run.measure()
    assert report.remedies is not None
    assert report.cost is not None
    (cost,) = report.cost.entries
    (remedied_cost,) = cost.remedied
    (remedy,) = [remedy for remedy in report.remedies if remedy.id in remedied_cost.remedies]
    assert remedy.title == "Print after the call"
    assert len(COMPILED_GRAPHS) == 3  # two graphs without the remedy, one with it
    assert remedied_cost.time.runs >= 7
    assert break_time_text(report, report.breaks[0]).startswith("fixing it ")


def test_a_block_is_measured_after_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        print("once")
        return x + 1

    compiled = torch.compile(f, backend="eager")
    with jupyter_graphbreak.capture(cost=True) as run:
        compiled(torch.ones(4))
    assert run.report.cost is not None
    assert [entry.function for entry in run.report.cost.entries] == ["f"]
    assert capsys.readouterr().out == "once\n"


def test_an_internal_error_in_measuring_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_graphbreak.experiments.cost.entry_cost.measure_entry", lambda *_, **__: 1 // 0)
    compiled = torch.compile(torch.nn.Identity(), backend="eager")
    with jupyter_graphbreak.capture(cost=True) as run:
        compiled(torch.ones(4))
    assert run.report.cost is None
    assert any("Measuring Identity failed (ZeroDivisionError" in note.message for note in run.report.diagnostics)


def test_without_remedies_there_is_nothing_to_measure() -> None:
    run = capture_run(three_breaks, torch.ones(5))
    report = run.measure()
    assert report.cost is not None
    assert report.cost.entries[0].remedied == []
    assert choose_remedies_to_measure({}) == []


def test_an_entry_that_was_not_copied_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("a fault")

    monkeypatch.setattr("jupyter_graphbreak.experiments.trial.entry._used_tensors", fail)
    with jupyter_graphbreak.capture(entries=True) as run:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    for report in (run.measure(), run.check()):
        notes = [note.message for note in report.diagnostics if note.level == "warning"]
        assert notes == ["A compiled function could not be copied, so it was not run again (RuntimeError: a fault)."]
