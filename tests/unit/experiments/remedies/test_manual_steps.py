"""Every break without a working remedy has a manual step."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from jupyter_graphbreak.experiments.remedies.remedy_list import _manual_steps, manual_step_of_break
from jupyter_graphbreak.knowledge.causes import known_cause
from jupyter_graphbreak.knowledge.entries import BranchUse
from jupyter_graphbreak.report.location import Location, Source
from jupyter_graphbreak.report.remedies import Remedy
from jupyter_graphbreak.report.schema import Advice, Break, Device, Frame, Report

EMPTY_REPORT = Report("ok", Device("cpu", "cpu"))


def step_for(code: str | None, gb_id: str | None = None, hints: tuple[str, ...] = ()) -> str:
    location = Location("s1", 1, 1, code=code) if code is not None else None
    return manual_step_of_break(EMPTY_REPORT, Break("b1", gb_id, "type", location, "resumed", hints=list(hints)))


@pytest.mark.parametrize(
    ("code", "gb_id", "words"),
    [
        ("helper(x)", "GB0098", "the code disables it"),
        ("time.perf_counter()", "GB0007", "whether the time is needed"),
        ("with self._lock:", "GB0142", "lock may be held"),
        ("loss.backward()", "GB0123", "where the compiled part ends"),
        ("labels.unique()", "GB0036", "index_add(0, labels, x)"),
        ("torch.bincount(idx, minlength=k)", "GB0036", "one_hot(x, n).sum(0) counts them"),
        ("optimizer.step()", "GB0147", "where the compiled part ends"),
        ("np.random.rand(3)", "GB0033", "If only NumPy can"),
        ("nn.functional.ctc_loss(y, t, n, m)", "GB0037", "custom operator"),
        ("{x, y}", "GB0222", "an order"),
        ("cache[x]", "GB0366", "keys that are constants"),
        ("model.generate(ids)", "GB0170", "model's forward"),
        ("x.sum() > 0", "GB0170", "both branches"),
        ("x.sum() > 0", "GB0170", "its maximum number of times"),
        ("grid.tolist()", "GB0033", "known before the call"),
        ("while x.sum() > 0:", "GB0170", "maximum number of iterations"),
        ("f.write(text)", "GB0059", "file"),
        ("rasterize_cuda(x)", None, "rasterize_cuda() can go before or after"),
    ],
)
def test_the_step_names_the_decision(code: str, gb_id: str | None, words: str) -> None:
    assert words in step_for(code, gb_id)


def test_the_cause_determines_the_step_on_a_line_of_pytorch_without_a_users_caller() -> None:
    hook = Break("b1", "GB0083", "type", Location("s1", 1, 1, code="BackwardHook(self)"), "resumed", owner="torch")
    assert "remove the backward hook" in manual_step_of_break(EMPTY_REPORT, hook)
    unknown_cause = replace(hook, gb_id="GB0007")
    assert manual_step_of_break(EMPTY_REPORT, unknown_cause).endswith("the line is PyTorch's.")


def test_every_break_has_a_short_sentence() -> None:
    assert step_for(None).startswith("Decide whether the code that PyTorch could not trace")
    assert step_for("x = (a +\n   b) " + "+ c" * 100).count("...") == 1
    assert "its own bug" in step_for("f(x)", None, ("This is likely to be a Dynamo bug. Please report",))
    assert "expects it to fail" in step_for(
        "f(x)", None, ("Dynamo has detected that tracing the code will result in an error",)
    )


def test_the_users_code_is_quoted_unchanged() -> None:
    assert step_for("<script>alert(1)</script>") == (
        "Decide whether <script>alert(1)</script> can go before or after the call, or be written with operations on "
        "tensors."
    )


def test_the_step_does_not_repeat_a_candidate_that_failed() -> None:
    branch = Break("b1", "GB0170", "type", None, "resumed")
    assert "torch.where" in manual_step_of_break(EMPTY_REPORT, branch)
    step = manual_step_of_break(EMPTY_REPORT, branch, ["Compute both branches with torch.where"])
    assert step.endswith("torch.where was tried and did not work.")
    unaffected_step = manual_step_of_break(EMPTY_REPORT, branch, ["Pass both branches to torch.cond"])
    assert unaffected_step == manual_step_of_break(EMPTY_REPORT, branch)


@pytest.mark.parametrize(
    ("use", "part"),
    [
        ("flag", "a Python bool"),
        ("end of a loop", "a loop that is not compiled"),
        ("error", "check can run before or after the call"),
        ("no result", "test the condition after the call"),
    ],
)
def test_the_step_of_a_branch_depends_on_its_use(use: BranchUse, part: str) -> None:
    advice = dict(known_cause("GB0170", "Data-dependent branching").advice_by_use)[use]
    branch = Break("b1", "GB0170", "type", None, "resumed", advice=[Advice(advice, "graphbreak")])
    assert part in manual_step_of_break(EMPTY_REPORT, branch)


def test_a_switch_that_changes_results_on_purpose_is_the_users_decision() -> None:
    report = Report(
        "ok", Device("cpu", "cpu"), breaks=[Break("b1", "GB0170", "type", None, "resumed", owner="library")]
    )
    switch = Remedy("r1", ["b1"], "switch", "Turn off SpecAugment", "switch", "another result")
    (decision,) = _manual_steps(report, [switch], [], [])
    assert decision.person == (
        "Decide whether to turn off SpecAugment: that removes the break, but features are no longer masked in training."
    )
    failed_switch = replace(switch, verdict="fails")
    assert [step.person for step in _manual_steps(report, [failed_switch], [], [])] == [
        manual_step_of_break(report, report.breaks[0])
    ]


def test_the_step_for_a_library_proposes_no_rewrite() -> None:
    library = manual_step_of_break(EMPTY_REPORT, Break("b1", "GB0170", "type", None, "resumed", owner="library"))
    assert "Report it to the library" in library
    assert "torch.where" not in library
    assert "outside of the compiled function" in manual_step_of_break(
        EMPTY_REPORT, Break("b1", "GB0025", "", None, "resumed", owner="torch")
    )


@pytest.mark.parametrize(
    ("outcome", "step"),
    [
        (
            "resumed",
            "Decide whether to move `self.log(loss)` (line 9) out of the compiled function or to accept the break. "
            "Report it to the library.",
        ),
        (
            "error",
            "Move `self.log(loss)` (line 9) out of the compiled function, and report the error to the library.",
        ),
    ],
)
def test_the_step_for_a_library_names_the_users_call(outcome: Literal["resumed", "error"], step: str) -> None:
    function_location = Location("s1", 7, 7, function="training_step")
    stack = [
        Location("s1", 15, 15, function="<module>", code="trainer.fit(model)"),
        Location("s2", 391, 391, function="wrapper", code="forward(x)"),
        Location("s1", 9, 9, function="training_step", code="return self.log(loss)"),
        Location("s2", 31, 31, function="hook", code="inspect.signature(f)"),
    ]
    break_ = Break("b1", None, "type", stack[-1], outcome, stack=stack, owner="library")
    report = replace(
        EMPTY_REPORT,
        sources=[Source("s1", "cell", "cell"), Source("s2", "x.py", "library")],
        frames=[Frame("0/0", "training_step", function_location, "entry", "compiled")],
        breaks=[break_],
    )
    assert manual_step_of_break(report, break_) == step
    lambda_location = replace(
        stack[-2], function="<lambda>", code="step = torch.compile(lambda x: self.log(loss), backend='eager')"
    )
    lambda_break = replace(break_, stack=[stack[0], lambda_location, stack[-1]])
    frames = [Frame("0/0", "<lambda>", lambda_location, "entry", "compiled")]
    assert manual_step_of_break(replace(report, frames=frames), lambda_break) == step
    # Without the frame, the user's call is not inside compiled code.
    assert "Decide whether to compile a part" in manual_step_of_break(replace(report, frames=[]), break_)
