"""Trying remedies changes nothing for the user, even if it fails or is interrupted, and keeps the results so far."""

from __future__ import annotations

import contextlib
import copy
import functools
import linecache
import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo import symbolic_convert
from torch._dynamo.utils import counters

import jupyter_graphbreak
from jupyter_graphbreak.experiments.families import branches, rewrites, table
from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal
from jupyter_graphbreak.experiments.remedies.trial_runner import TrialRunner
from jupyter_graphbreak.experiments.trial import entry as entries
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.report.remedies import WORKING

pytestmark = pytest.mark.usefixtures("few_unusual_inputs")

HISTORY: list[float] = []
TABLE = {"seen": 0}
COUNT = 0
log = logging.getLogger("a.program")


def cause_side_effects(x: torch.Tensor, numbers: list[Any]) -> torch.Tensor:
    """Cause every kind of side effect."""
    global COUNT  # noqa: PLW0603 - the test needs an assigned global
    COUNT += 1
    TABLE["seen"] += 1
    HISTORY.append(float(COUNT))
    print("noisy")
    print("noisy", file=sys.stderr)
    log.warning("noisy")
    warnings.warn("noisy", stacklevel=1)
    numbers.append(random.random())
    x.add_(1)
    if x.sum() > 0:
        x = x * torch.rand(3)
    return x * float(np.random.rand())


def branch(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y + 1 if y.sum() > 0 else y - 1


def break_twice(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    if x.sum() > 0:
        x = x + 1
    return x * 2


def print_and_raise(x: torch.Tensor) -> torch.Tensor:
    print("before it raises")
    torch._dynamo.graph_break()
    raise LookupError(f"of shape {tuple(x.shape)}")


def snapshot(*arguments: Any) -> dict[str, Any]:
    """Return everything that must not change."""
    functions = (cause_side_effects, branch, break_twice, print_and_raise, copy.deepcopy, torch.nn.Linear.forward)
    return {
        "arguments": copy.deepcopy(arguments),
        "globals": (COUNT, list(HISTORY), dict(TABLE), sorted(globals())),
        "random": (torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())),
        "config": torch._dynamo.config.save_config(),
        "streams": (id(sys.stdout), id(sys.stderr)),
        "registry": copy.deepcopy(globals().get("__warningregistry__")),
        "filters": list(warnings.filters),
        "logging": (log.level, list(log.handlers), log.disabled, logging.Logger.callHandlers, logging.root.level),
        "code_objects": [id(function.__code__) for function in functions],
        "linecache": linecache.getlines(__file__),
        "builtins": sorted(vars(sys.modules["builtins"])),
        "modes": (torch.is_grad_enabled(), torch.get_default_dtype(), sys.gettrace()),
    }


@contextlib.contextmanager
def assert_nothing_changes(capsys: pytest.CaptureFixture[str], *arguments: Any) -> Iterator[None]:
    capsys.readouterr()
    before = snapshot(*arguments)
    yield
    after = snapshot(*arguments)
    for name, value in before.items():
        assert repr(value) == repr(after[name]), name
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("backend", "max_proposals"),
    [
        pytest.param("eager", 1, marks=pytest.mark.exhaustive),  # for each of the seven breaks
        pytest.param("eager", table.MAX_PROPOSALS, marks=pytest.mark.exhaustive),
        pytest.param("inductor", table.MAX_PROPOSALS, marks=pytest.mark.exhaustive),
    ],
)
def test_side_effects_of_the_function_do_not_happen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
    backend: str, max_proposals: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(table, "MAX_PROPOSALS", max_proposals)
    arguments = torch.ones(3), [0.5]
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        with assert_nothing_changes(capsys, *arguments):
            report = jupyter_graphbreak.try_remedies(
                torch.compile(cause_side_effects, backend=backend), *arguments, seconds=600
            )
    assert any(remedy.verdict != "not tried" for remedy in report.remedies or [])
    # pytest's handler stands for one of the user's, which does not receive the records of PyTorch's trace.
    assert [record for record in caplog.records if record.name != "torch.__trace"] == []
    assert [w for w in caught_warnings if "noisy" in str(w.message)] == []


TOTALS = torch.zeros(2)
STEPS = 0


def change_globals(x: torch.Tensor) -> torch.Tensor:
    """Change a tensor, a list and a number of this module."""
    global STEPS  # noqa: PLW0603 - the test needs an assigned global
    STEPS += 1
    HISTORY.append(1.0)
    TOTALS.add_(1)
    print(x.sum())
    return x * 2 + TOTALS


@pytest.mark.parametrize(
    "wrapped_function",
    [
        torch.no_grad()(change_globals),
        pytest.param(torch.vmap(change_globals), marks=pytest.mark.exhaustive),
        pytest.param(functools.partial(change_globals), marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("is_called", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_function_behind_a_wrapper_runs_on_copies(wrapped_function: Callable[..., Any], *, is_called: bool) -> None:
    # The root frame belongs to PyTorch or to another module, so Dynamo would read the globals of the inner function
    # from its module, not from the copies.
    scope = {"decorated": wrapped_function}
    exec("def call(x):\n    return decorated(x) + 1", scope)
    with jupyter_graphbreak.capture(entries=True) as run:
        torch.compile(scope["call"] if is_called else wrapped_function, backend="eager")(torch.ones(2))
    globals_before = TOTALS.tolist(), len(HISTORY), STEPS
    report = run.try_remedies(seconds=60)
    run.check()
    assert (TOTALS.tolist(), len(HISTORY), STEPS) == globals_before
    assert report.effects is None
    assert any(remedy.verdict in WORKING for remedy in report.remedies or [])


def test_only_the_exception_of_the_function_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(3)
    with assert_nothing_changes(capsys, x), pytest.raises(LookupError, match="of shape"):
        jupyter_graphbreak.try_remedies(torch.compile(print_and_raise, backend="eager"), x)


def interrupt_call(number: int) -> Callable[..., Any]:
    """Return a replacement for ``TrialRunner._run_compiled`` that interrupts one of its calls."""
    run_compiled = TrialRunner._run_compiled
    calls = 0

    def run_or_interrupt(self: TrialRunner, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != number:
            return run_compiled(self, *args)
        with interrupt_while_restoring():
            return run_compiled(self, *args)

    return run_or_interrupt


@contextlib.contextmanager
def interrupt_while_restoring() -> Iterator[None]:
    """Interrupt a run while code is swapped and output is captured."""
    restore = Subject.restore

    def raise_interrupt(self: Subject) -> None:  # noqa: ARG001 - the caller passes the argument
        raise KeyboardInterrupt

    Subject.restore = raise_interrupt  # type: ignore[method-assign]
    try:
        yield
    finally:
        Subject.restore = restore  # type: ignore[method-assign]


def test_an_interrupt_keeps_the_results_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # By then the program and one change have run, both also on edge inputs.
    monkeypatch.setattr(TrialRunner, "_run_compiled", interrupt_call(5))
    x = torch.ones(3)
    with assert_nothing_changes(capsys, x):
        report = jupyter_graphbreak.try_remedies(torch.compile(break_twice, backend="eager"), x)
    assert report.remedies is not None
    assert [remedy.verdict in WORKING for remedy in report.remedies] == [True, False]
    manual_step = report.remedies[1]
    assert (manual_step.kind, manual_step.verdict) == ("person", "not tried")
    assert manual_step.reason == "the search was interrupted"


@pytest.mark.parametrize("faulty_part", ["family", "trial"])
def test_an_internal_error_does_not_prevent_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], faulty_part: str
) -> None:
    def fail_in_family(problem: Problem) -> Iterator[Proposal]:
        if problem.break_.gb_type.startswith("Data"):
            raise ZeroDivisionError("in a family")
        yield from ()

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("in the comparison")

    if faulty_part == "family":
        others = {name: table.FAMILIES[name] for name in (rewrites.MARKER_FAMILY, branches.FAMILY)}
        monkeypatch.setattr(table, "FAMILIES", {"faulty": fail_in_family, **others})
    else:
        monkeypatch.setattr("jupyter_graphbreak.experiments.remedies.original.UncompiledOriginal.choose_inputs", fail)
    x = torch.ones(3)
    with assert_nothing_changes(capsys, x):
        report = jupyter_graphbreak.try_remedies(torch.compile(break_twice, backend="eager"), x)
    assert report.remedies is not None
    assert any("ZeroDivisionError" in note.message for note in report.diagnostics)
    if faulty_part == "family":
        assert {b for r in report.remedies if r.verdict in WORKING for b in r.breaks} == {b.id for b in report.breaks}
    else:
        assert {remedy.verdict for remedy in report.remedies} == {"not tried"}
        assert {ident for r in report.remedies if r.person for ident in r.breaks} == {b.id for b in report.breaks}


def test_compiled_functions_are_not_compiled_again() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(branch, backend="eager")
    x = torch.ones(3)
    compiled(x)
    jupyter_graphbreak.try_remedies(compiled, x)
    counters.clear()
    compiled(x)
    assert counters["frames"] == {}, "it runs from Dynamo's cache"
    assert torch.equal(compiled(-x), branch(-x))


def test_no_trial_runs_without_time() -> None:
    report = jupyter_graphbreak.try_remedies(branch, torch.ones(3), seconds=0.0)
    assert report.remedies is not None
    assert [(r.kind, r.reason) for r in report.remedies] == [("person", "there was no time to try a change")]


def test_the_users_own_functions_get_verdicts() -> None:
    def right(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return torch.where(y.sum() > 0, y + 1, y - 1)

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    report = jupyter_graphbreak.try_remedies(branch, torch.ones(3), also=[right, wrong], seconds=0.0)
    assert report.remedies is not None
    own_remedies = [remedy for remedy in report.remedies if remedy.family == "own"]
    assert [remedy.verdict for remedy in own_remedies] == ["works", "another result"]
    assert own_remedies[1].reason is not None


# -- Recorded entries.


def test_nothing_is_copied_without_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects: list[Any] = []
    monkeypatch.setattr(entries, "Subject", lambda *arguments: subjects.append(arguments))
    with jupyter_graphbreak.capture() as run:
        torch.compile(branch, backend="eager")(torch.ones(3))
    assert subjects == []
    with pytest.raises(RuntimeError, match="entries=True"):
        run.try_remedies()


def test_entries_are_stored_as_they_were_before_they_ran(capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()

    def add_one_in_place(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        x.add_(1)
        return x * 2

    x = torch.ones(3)
    with jupyter_graphbreak.capture(entries=True) as run:
        torch.compile(add_one_in_place, backend="eager")(x)
    with assert_nothing_changes(capsys, x):
        report = run.try_remedies()
    assert report.remedies is not None
    assert [(remedy.verdict, remedy.reason) for remedy in report.remedies] == [("works", None)]
    assert torch.equal(x, torch.full((3,), 2.0))


def test_a_diagnostic_names_entries_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(entries, "memory_limit", lambda _: 25)
    with jupyter_graphbreak.capture(entries=True) as run:
        torch.compile(branch, backend="eager")(torch.ones(300))
    report = run.try_remedies()
    assert report.remedies is not None
    assert [remedy.kind for remedy in report.remedies] == ["person"]
    (message,) = [note.message for note in report.diagnostics if "of the limit" in note.message]
    assert message.startswith("branch was not run again: its arguments and state take 0.0 MiB")
    assert report.remedies[0].reason == message


class NetWithBreak(torch.nn.Module):
    """A module whose method, which trials do not copy, reads globals of this file."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        if y.sum() > 100:
            y = y / 2
        return torch.nn.functional.dropout(y, 0.0)


@pytest.mark.parametrize("analysis", ["check", "measure", "compare_frontends"])  # try_remedies is tested below
def test_no_global_of_compiled_code_stays(analysis: str) -> None:
    torch._dynamo.reset()
    scope = sys.modules[__name__].__dict__
    net = NetWithBreak()
    names_before = set(scope)
    getattr(jupyter_graphbreak, analysis)(torch.compile(net, backend="eager"), torch.ones(2, 3), seconds=600)
    assert not set(scope) - names_before - {"__warningregistry__"}  # Python's own table of warnings


def test_numbers_that_were_constants_in_trials_stay_variable_in_later_code() -> None:
    state: Any = getattr(symbolic_convert, "TensorifyState", None)
    if state is None:
        pytest.skip("this PyTorch keeps no such numbers")
    net = NetWithBreak()
    compiled = torch.compile(lambda x, p: torch.nn.functional.dropout(net.inner(x), p), backend="aot_eager")
    torch._dynamo.reset()
    with jupyter_graphbreak.capture(entries=True) as run:
        for number in range(3):
            compiled(torch.ones(2, 3), 0.1 * number)
    state.clear()
    run.try_remedies(seconds=600)
    assert not state.force_specializations


@pytest.mark.exhaustive
def test_globals_of_code_compiled_earlier_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_PROPOSALS", 1)
    torch._dynamo.reset()
    net = NetWithBreak()
    compiled = torch.compile(net, backend="eager")
    expected = compiled(torch.ones(2, 3))
    scope = sys.modules[__name__].__dict__
    names_before = set(scope)
    assert any(name.startswith("__import_") for name in names_before)
    report = jupyter_graphbreak.try_remedies(compiled, torch.ones(2, 3), seconds=600)
    assert any(remedy.verdict != "not tried" for remedy in report.remedies or [])
    assert set(scope) - {"__warningregistry__"} == names_before - {"__warningregistry__"}
    assert torch.equal(compiled(torch.ones(2, 3)), expected)
