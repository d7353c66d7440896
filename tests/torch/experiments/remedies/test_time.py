"""The breaks of a program share the time for trials, and no analysis exceeds its time limit."""

from __future__ import annotations

import contextlib
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from msgspec import structs

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.compiled import call_before_compilation_steps
from jupyter_graphbreak.api import rerun, single_calls
from jupyter_graphbreak.experiments import frontends
from jupyter_graphbreak.experiments.check import checking
from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal
from jupyter_graphbreak.experiments.remedies import compiled_run, finding, search, trial_runner
from jupyter_graphbreak.experiments.remedies.candidates import Candidate
from jupyter_graphbreak.experiments.remedies.change import Change
from jupyter_graphbreak.experiments.remedies.inner_calls import InnerCalls
from jupyter_graphbreak.experiments.remedies.remedy_list import with_remedies
from jupyter_graphbreak.experiments.remedies.search import Search
from jupyter_graphbreak.experiments.remedies.trial_runner import TrialResult, TrialRunner
from jupyter_graphbreak.experiments.trial import outcome, time_limit
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.experiments.trial.time_limit import RunKind, TimeUpError, limit_time, measure_run
from jupyter_graphbreak.experiments.values import finding as values_finding
from jupyter_graphbreak.report.remedies import NO_TIME_REASON, WORKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROPOSAL_COUNT = 6


def three_breaks(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    x = x + 1
    torch._dynamo.graph_break()
    x = x.sin()
    torch._dynamo.graph_break()
    return x * 2


class Clock:
    """A clock that advances only during trials."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class SlowTrialRunner:
    """A runner whose trials take ten seconds each and do not help."""

    def __init__(self, report: Any, clock: Clock) -> None:
        self.original = SimpleNamespace(report=report)
        self.program = SimpleNamespace(texts={}, files={})
        self.entry = SimpleNamespace(function=three_breaks, name="three_breaks")
        self.goals_of_trials: list[str] = []
        self.original_seconds = 0.0
        self._clock = clock

    def find_inner_calls(self, _: frozenset[str]) -> InnerCalls:
        """Find no part that could be compiled instead."""
        self.goals_of_trials.append("a part")
        return InnerCalls(())

    def run_trial(self, change: Change, goals: frozenset[str], *_: Any, **__: Any) -> TrialResult:
        self._clock.now += 10
        self.goals_of_trials += goals
        return TrialResult(change, "break stays")


@pytest.mark.parametrize("seconds", [80.0, 400.0])
def test_each_break_gets_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    def proposals(problem: Problem, _: object) -> list[Proposal]:
        titles = [f"{number} for {problem.break_.id}" for number in range(PROPOSAL_COUNT)]
        return [Proposal("edit", title, {"s1": title}) for title in titles]

    torch._dynamo.reset()
    report = jupyter_graphbreak.explain(three_breaks, torch.ones(3))
    idents = {break_.id for break_ in report.breaks}
    assert len(idents) == 3
    clock = Clock()
    runner = SlowTrialRunner(report, clock)
    monkeypatch.setattr(search, "proposals_for", proposals)
    monkeypatch.setattr(search, "time", clock)
    search_ = Search(cast(TrialRunner, runner), seconds)
    search_.run()
    assert set(runner.goals_of_trials) == {*idents, "a part"}
    assert not search_.unreached_break_ids
    assert clock.now <= seconds
    titles = [candidate.titles for candidate in search_.candidates]
    assert len(titles) == len(set(titles)), "nothing is tried twice"
    if seconds > 300:
        assert len(titles) == 3 * PROPOSAL_COUNT, (
            "the remaining proposals are tried after the other breaks had their share"
        )


def test_a_part_is_first_if_there_is_nothing_to_try_for_half_of_the_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = jupyter_graphbreak.explain(three_breaks, torch.ones(3))
    runner = SlowTrialRunner(report, Clock())
    proposals_of_first_break = [Proposal("edit", "for the first break", {"s1": ""})]
    monkeypatch.setattr(
        search, "proposals_for", lambda problem, _: proposals_of_first_break if problem.break_.id == "b1" else []
    )
    Search(cast(TrialRunner, runner), time.monotonic() + 100).run()
    assert runner.goals_of_trials == ["a part", "b1"]


def test_a_part_is_first_for_breaks_in_libraries_if_there_is_time_for_few_trials() -> None:
    report = jupyter_graphbreak.explain(three_breaks, torch.ones(3))
    report = structs.replace(report, breaks=[structs.replace(break_, owner="library") for break_ in report.breaks])
    runner = SlowTrialRunner(report, Clock())
    runner.original_seconds = 30.0
    Search(cast(TrialRunner, runner), time.monotonic() + 100).run()
    assert runner.goals_of_trials[0] == "a part"


class TrainedModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.b(torch.relu(self.a(x)))
        return y


MODEL = TrainedModel()


@torch.compile(backend="eager")
def train(x: torch.Tensor) -> float:
    loss = MODEL(x).mean()
    loss.backward()
    return float(loss.item())


def test_a_training_step_is_first_tried_with_only_its_model_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[Change] = []

    def report_no_time(_: object, change: Change, *__: Any, **___: Any) -> TrialResult:
        changes.append(change)
        return TrialResult(change, "not tried", NO_TIME_REASON)

    monkeypatch.setattr(Search, "_run_trial", report_no_time)
    report = jupyter_graphbreak.try_remedies(train, torch.ones(2, 3))
    assert [change.inner_targets for change in changes[:1]] == [{("MODEL", "")}]
    assert len(report.breaks) == 2


def test_compiling_a_part_first_leaves_time_for_other_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_slow_trial(search_: Search, change: Change, *_: Any, **__: Any) -> TrialResult:
        limits.append((bool(change.inner_calls), search_.deadline - clock.now))
        clock.now += limits[-1][1] if change.inner_calls else 1
        return TrialResult(change, "not tried", NO_TIME_REASON)

    limits: list[tuple[bool, float]] = []
    clock = Clock()
    clocks = SimpleNamespace(monotonic=clock.monotonic, perf_counter=clock.monotonic, thread_time=clock.monotonic)
    for module in (finding, search, time_limit):
        monkeypatch.setattr(module, "time", clocks)
    monkeypatch.setattr(Search, "_run_trial", run_slow_trial)
    jupyter_graphbreak.try_remedies(train, torch.ones(2, 3), seconds=100)
    (is_inner, seconds), *others = limits
    assert is_inner
    assert seconds == 40
    assert any(not is_other_inner for is_other_inner, _ in others)


def test_without_time_nothing_is_called_and_the_report_says_so() -> None:
    calls = []

    def count_call(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + 1

    entry = Entry("count_call", None, count_call, Arguments(torch.ones(3)))
    with pytest.raises(TimeUpError), limit_time(time.monotonic()):
        TrialRunner(entry)
    for analysis in (jupyter_graphbreak.check, jupyter_graphbreak.measure):
        report = analysis(count_call, torch.ones(3), seconds=0.0)
        assert [note.message.endswith("took too long and was stopped.") for note in report.diagnostics] == [True]
    comparison = jupyter_graphbreak.compare_frontends(count_call, torch.ones(3), seconds=0.0)
    assert comparison.verdicts == []
    assert "torch.compile" in comparison.left_out
    assert "There was no time left for torch.jit.trace" in str(comparison)
    assert calls == []


@pytest.mark.parametrize("analysis", ["check", "values", "compare_frontends", "try_remedies"])
def test_a_run_that_would_end_late_is_not_started(monkeypatch: pytest.MonkeyPatch, analysis: str) -> None:
    @contextlib.contextmanager
    def slow_run(kind: RunKind) -> Iterator[None]:
        with measure_run(kind):
            yield
            clock.now += {"call": 2.5, "backward": 5.0}[kind]

    def double(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum()

    monkeypatch.undo()  # without the fixture that gives trials ample time
    clock = Clock()
    clocks = SimpleNamespace(monotonic=clock.monotonic, thread_time=clock.monotonic)
    for module in (single_calls, rerun, finding, search, time_limit):
        monkeypatch.setattr(module, "time", clocks)
    for module in (checking, values_finding, outcome):
        monkeypatch.setattr(module, "measure_run", slow_run)
    function: Any = double if analysis == "compare_frontends" else torch.compile(double, backend="eager")
    getattr(jupyter_graphbreak, analysis)(function, torch.ones(3, requires_grad=True), seconds=20)
    assert 10 < clock.now <= 20


def test_front_ends_reached_in_time_have_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_on_third_call() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise TimeUpError

    calls: list[int] = []
    monkeypatch.setattr(frontends, "require_time", raise_on_third_call)
    comparison = jupyter_graphbreak.compare_frontends(torch.sin, torch.ones(3))
    assert [verdict.frontend for verdict in comparison.verdicts] == ["torch.jit.trace", "torch.jit.script"]
    assert comparison.left_out[0] == "torch.fx.symbolic_trace"


def test_analyses_of_a_run_respect_their_time_limit() -> None:
    @torch.compile(backend="eager")
    def one_break(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    with jupyter_graphbreak.capture(entries=True) as run:
        one_break(torch.ones(3))
    reasons = [remedy.reason for remedy in run.try_remedies(seconds=0.0).remedies or []]
    assert len(reasons) == 1
    assert str(reasons[0]).endswith("one_break: the time limit was reached before it could run.")
    assert "time was up" in run.check(seconds=0.0).diagnostics[-1].message
    assert "time was up" in run.measure(seconds=0.0).diagnostics[-1].message


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("steps", [1, 3, 60])
def test_the_time_limit_ends_a_compilation_between_its_steps(backend: str, steps: int) -> None:
    def step() -> None:
        steps_so_far.append(1)
        if len(steps_so_far) == steps:
            raise TimeUpError

    def waves(x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = x.sin() + x.cos()
        return x

    steps_so_far: list[int] = []
    compiled: Any = torch.compile(waves, backend=backend)
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(TimeUpError), call_before_compilation_steps(step):
        compiled(x)
    assert len(steps_so_far) == steps
    result = compiled(x)
    assert torch.allclose(result, waves(x))
    assert len(steps_so_far) == steps
    assert "1 graph" in jupyter_graphbreak.explain(waves, x).to_text()


@pytest.mark.exhaustive
def test_changes_are_tried_with_a_cheaper_backend_if_there_is_no_time_for_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compile_slowly(graph: torch.fx.GraphModule, _: object) -> Any:
        clock.now += 30
        return graph.forward

    def print_halfway(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        print("halfway")
        return x * 2

    monkeypatch.undo()  # without the fixture that gives trials ample time
    clock = Clock()
    clocks = SimpleNamespace(monotonic=clock.monotonic, perf_counter=clock.monotonic, thread_time=clock.monotonic)
    for module in (compiled_run, finding, trial_runner, search, time_limit):
        monkeypatch.setattr(module, "time", clocks)
    report = jupyter_graphbreak.try_remedies(
        torch.compile(print_halfway, backend=compile_slowly), torch.ones(3), seconds=100
    )
    best_remedy = next(remedy for remedy in report.remedies or [] if remedy.verdict in WORKING)
    assert best_remedy.verdict != "works"
    assert best_remedy.reason == "there was no time to compile it with compile_slowly, only with eager"
    assert best_remedy.evidence is not None
    assert best_remedy.evidence.backend == "eager"
    assert any("its own backend: there was no time to compile" in note.message for note in report.diagnostics)
    assert clock.now <= 100


def test_a_change_without_time_for_unusual_inputs_works_on_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    def print_halfway(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        print("halfway")
        return x * 2

    def raise_time_up(*_: object) -> None:
        raise TimeUpError

    monkeypatch.setattr(TrialRunner, "_compare_on_edge_cases", raise_time_up)
    report = jupyter_graphbreak.try_remedies(torch.compile(print_halfway, backend="eager"), torch.ones(3))
    working_remedies = [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]
    assert {remedy.reason for remedy in working_remedies} == {"there was no time to try unusual sizes and values"}
    assert "works on what ran" in {remedy.verdict for remedy in working_remedies}
    assert "works" not in {remedy.verdict for remedy in working_remedies}


def test_a_setting_that_no_unusual_value_was_tried_with_works_on_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    def sum_of_nonzero(x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x * 2).sum()

    monkeypatch.setattr(trial_runner, "_SHARE_OF_EDGE_CASES", 0.0)
    report = jupyter_graphbreak.try_remedies(torch.compile(sum_of_nonzero, backend="eager"), torch.ones(3))
    (setting,) = [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]
    assert (setting.kind, setting.verdict) == ("setting", "works on what ran")
    assert setting.reason == "there was no time to try unusual sizes and values"


@pytest.mark.exhaustive
def test_a_change_that_ran_on_some_inputs_only_works_on_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    monkeypatch.setattr(compiled_run, "_SHARE_OF_RUN", 0.0)
    report = jupyter_graphbreak.try_remedies(torch.compile(branch, backend="eager"), torch.ones(3))
    working = [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]
    reasons = {remedy.reason for remedy in working if "torch.cond" not in remedy.title}
    assert reasons == {"there was no time to try all inputs"}
    assert {remedy.verdict for remedy in working} == {"works on what ran"}


def test_a_check_keeps_its_result_if_there_is_no_time_to_find_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_one(graph: torch.fx.GraphModule, _: object) -> Any:
        return lambda *args: tuple(value + 1 for value in graph.forward(*args))

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def raise_time_up(*_: object) -> None:
        raise TimeUpError

    for name in ("_first_divergence", "_first_wrong_step"):
        monkeypatch.setattr(checking, name, raise_time_up)
    report = jupyter_graphbreak.check(torch.compile(double, backend=add_one), torch.ones(3))
    assert [check.equal for check in report.check or []] == [False]
    assert [(check.first, check.step) for check in report.check or []] == [(None, None)]


def test_a_change_that_was_not_tried_does_not_count_as_failed() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    report = jupyter_graphbreak.explain(branch, torch.ones(3))
    runner = SimpleNamespace(
        original=SimpleNamespace(report=report, files={source.id: source.id for source in report.sources}),
        program=SimpleNamespace(texts={}), other_cells={},
        entry=Entry("branch", None, branch, Arguments(torch.ones(3))),
        why_different_backend=lambda: None,
    )  # fmt: skip
    untried_result = TrialResult(Change(), "not tried", NO_TIME_REASON)
    goal = report.breaks[0].id
    candidate = Candidate(("where",), ("Compute both branches with torch.where",), "edit", (goal,), (), untried_result)
    finished_search: Any = SimpleNamespace(
        runner=runner, candidates=[candidate], unreached_break_ids=[goal], faults=[], part_with_one_break=None
    )
    remedies = with_remedies(report, {}, [finished_search])[0].remedies or []
    assert remedies[-1].reason == "there was no time to try a change"
    assert "did not work" not in (remedies[-1].person or "")
