"""Changes that only work together form one remedy, and recompile limits of earlier runs do not affect trials."""

from __future__ import annotations

import sys

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.remedies.change import Change
from jupyter_graphbreak.experiments.remedies.trial_runner import TrialRunner
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.report.schema import Report

pytestmark = pytest.mark.usefixtures("few_unusual_inputs")

TABLE = {}
NAMES = "abcdefg"


def add_one_without_cudnn(x: torch.Tensor) -> torch.Tensor:
    with torch.backends.cudnn.flags(enabled=False):
        return x + 1


TABLE["add_one_without_cudnn"] = add_one_without_cudnn


def use_sizes_from_data(x: torch.Tensor) -> torch.Tensor:
    count = x.sum().item()
    positive = x[x > 0]
    return torch.repeat_interleave(positive, 2).sum() * count


def call_from_table(x: torch.Tensor, name: str) -> torch.Tensor:
    return TABLE[name](x * 2)


def raise_if_too_large(x: torch.Tensor, limit: int | None) -> torch.Tensor:
    if limit is not None and x.max() >= limit:
        raise ValueError("too large")
    return x + 1


def one_step(x: torch.Tensor, name: str) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + len(name)


def run_steps(x: torch.Tensor) -> torch.Tensor:
    step = getattr(sys.modules[__name__], "one_" + "step")  # no analysis of the code finds it, so it is not copied
    for name in NAMES:
        x = step(x, name)
    return x.sum() * x.max().item()


def double_sum_of_indices(x: torch.Tensor) -> torch.Tensor:
    return 2 * torch.nonzero(x).sum()


def triple_sum_of_indices(x: torch.Tensor) -> torch.Tensor:
    return 3 * torch.nonzero(x).sum()


def fewest_breaks(report: Report) -> int:
    assert report.remedies is not None
    return min(r.evidence.breaks_after for r in report.remedies if r.verdict in WORKING and r.evidence)


@pytest.mark.exhaustive
def test_all_settings_are_tried_together() -> None:
    report = jupyter_graphbreak.try_remedies(use_sizes_from_data, torch.tensor([1.0, -2.0, 3.0]))
    assert report.remedies is not None
    first = report.remedies[0]
    assert first.verdict in WORKING
    assert set(first.breaks) == {break_.id for break_ in report.breaks}
    assert len(first.breaks) > 1
    assert set(first.settings) == {
        "torch._dynamo.config.capture_scalar_outputs",
        "torch._dynamo.config.capture_dynamic_output_shape_ops",
    }
    assert fewest_breaks(report) == 0


@pytest.mark.exhaustive
def test_code_that_dynamo_skips_is_compiled_again() -> None:
    x = torch.ones(3)
    with jupyter_graphbreak.capture() as run:
        torch.compile(call_from_table, backend="eager")(x, "add_one_without_cudnn")
    report = jupyter_graphbreak.try_remedies(call_from_table, x, "add_one_without_cudnn")
    assert [(break_.gb_type, break_.location) for break_ in report.breaks] == [
        (break_.gb_type, break_.location) for break_ in run.report.breaks
    ]


@pytest.mark.exhaustive
def test_a_check_behind_a_python_test_moves_after_the_call() -> None:
    report = jupyter_graphbreak.try_remedies(raise_if_too_large, torch.ones(3), 50)
    assert report.remedies is not None
    best = next(remedy for remedy in report.remedies if remedy.verdict == "works")
    new = "\n".join(edit.new for edit in best.edits)
    assert "later.append((limit is not None, limit, x))" in new, "the test still protects the check"
    assert 'raise ValueError("too large")' in new


@pytest.mark.exhaustive
def test_a_function_over_the_recompile_limit_is_compiled_in_each_trial() -> None:
    x = torch.ones(3)
    for name in NAMES:
        torch.compile(one_step, backend="eager")(x, name)
    runner = TrialRunner(Entry("run_steps", None, run_steps, Arguments(x), "eager", None))
    first = runner.original.report
    assert first.breaks
    for _ in range(3):
        result = runner.run_trial(Change(), frozenset(break_.id for break_ in first.breaks))
        assert result.verdict == "break stays"
        assert result.report is not None
        assert result.report.summary == first.summary


def test_a_program_that_dynamo_does_not_compile_has_no_working_verdict() -> None:
    arguments = Arguments(torch.tensor([1.0, -2.0, 3.0]))
    runner = TrialRunner(Entry("use_sizes_from_data", None, use_sizes_from_data, arguments, "eager", None))
    goals = frozenset(break_.id for break_ in runner.original.report.breaks)
    with torch.compiler.set_stance("force_eager"):
        assert runner.run_trial(Change(), goals).verdict == "not tried"
    result = runner.run_trial(Change(), goals)
    assert result.verdict == "break stays"
    assert result.evidence is not None
    assert result.evidence.inputs == 1, "a change that does not help on the first input does not run on the others"


def two_numbers(x: torch.Tensor) -> tuple[torch.Tensor, float]:
    highest = x.max().item()
    return x / highest, x.min().item()


@pytest.mark.exhaustive
def test_settings_for_several_breaks_contain_no_setting_that_none_of_them_needs() -> None:
    report = jupyter_graphbreak.try_remedies(two_numbers, torch.tensor([1.0, 2.0]))
    assert report.remedies is not None
    first = report.remedies[0]
    # With the setting, torch 2.9 cannot compile the division of truth values.
    is_rejected = torch.__version__.startswith("2.9.")
    title = "Read the numbers before the call, and pass them" if is_rejected else "Set `capture_scalar_outputs = True`"
    assert (first.title, len(first.breaks)) == (title, 2)


def test_a_change_that_works_for_several_entries_is_one_remedy() -> None:
    with jupyter_graphbreak.capture(entries=True) as run:
        for function in (double_sum_of_indices, triple_sum_of_indices):
            torch.compile(function, backend="eager")(torch.ones(3))
    report = run.try_remedies()
    (remedy,) = [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]
    assert remedy.settings == {"torch._dynamo.config.capture_dynamic_output_shape_ops": True}
    assert remedy.breaks == [break_.id for break_ in report.breaks]
    assert remedy.evidence is not None
    assert (remedy.evidence.breaks_before, remedy.evidence.breaks_after) == (2, 0)
    cost = run.measure().cost
    assert cost is not None
    assert [[saving.remedies for saving in entry.remedied] for entry in cost.entries] == [[[remedy.id]]] * 2
