"""The advice about a break takes into account which remedies were tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge.switches import switch_with_title
from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.remedies import Remedy
from jupyter_graphbreak.report.schema import Advice, Break, Device, Report
from jupyter_graphbreak.views.words.advice import advice_for_break

if TYPE_CHECKING:
    from jupyter_graphbreak.report.remedies import RemedyVerdict
    from jupyter_graphbreak.report.schema import Owner

BRANCH = Advice(
    "compute both branches with torch.where(condition, a, b); or use torch.cond, unless a branch has dropout",
    "graphbreak",
)
SHAPE = Advice(
    "set torch._dynamo.config.capture_dynamic_output_shape_ops = True, or keep it: torch.where(mask, x, 0).sum()",
    "graphbreak",
)
WHERE, COND = "Compute both branches with torch.where", "Pass both branches to torch.cond"


def advice_texts(
    advice: Advice, trials: list[tuple[str, RemedyVerdict]], hints: list[str] | None = None, owner: Owner = "own"
) -> list[str]:
    location = Location("s1", 3, 3)
    break_ = Break("b1", "GB0170", "", location, "resumed", advice=[advice], hints=hints or [], owner=owner)
    remedies = [
        Remedy(f"r{number}", ["b1"], "branch", title, "edit", verdict) for number, (title, verdict) in enumerate(trials)
    ]
    report = Report("ok", Device("cpu", "cpu"), breaks=[break_], remedies=remedies if trials else None)
    return [advice.text for advice in advice_for_break(report, break_)]


def test_failed_techniques_are_left_out_and_named() -> None:
    assert advice_texts(BRANCH, []) == [BRANCH.text]
    assert advice_texts(BRANCH, [(WHERE, "another result")]) == [
        "use torch.cond, unless a branch has dropout (torch.where was tried and did not work)"
    ]
    assert advice_texts(BRANCH, [(WHERE, "another result"), (COND, "fails")]) == [
        "torch.where and torch.cond were tried and did not work: decide what has to change"
    ]


def test_techniques_that_work_or_were_not_tried_remain() -> None:
    assert advice_texts(BRANCH, [(WHERE, "works"), (COND, "fails")])[0].startswith(
        "compute both branches with torch.where"
    )
    assert advice_texts(BRANCH, [(WHERE, "not tried")]) == [BRANCH.text]
    assert advice_texts(BRANCH, [(f"{WHERE}; {COND}", "fails")]) == [BRANCH.text]  # its parts may work


def test_a_switch_that_failed_is_not_advised() -> None:
    switch = switch_with_title("Turn off SpecAugment")
    assert switch is not None
    location = Location("s1", 3, 3)
    advice = [Advice(switch.advice, "graphbreak"), Advice("compile a part", "graphbreak")]
    break_ = Break("b1", "GB0033", "", location, "resumed", advice=advice, owner="library")
    for verdict, remaining in (("another result", advice[1:]), ("works but differs", advice)):
        remedy = Remedy("r1", ["b1"], "switch", switch.title, "switch", verdict)  # type: ignore[arg-type]
        report = Report("ok", Device("cpu", "cpu"), breaks=[break_], remedies=[remedy])
        assert advice_for_break(report, break_) == remaining


def test_hints_follow_the_remaining_advice() -> None:
    assert advice_texts(SHAPE, [(WHERE, "fails")], ["Use `torch.cond`"]) == [
        "set torch._dynamo.config.capture_dynamic_output_shape_ops = True (torch.where was tried and did not work)",
        "Use `torch.cond`",
    ]


def test_hints_about_library_code_are_left_out() -> None:
    assert advice_texts(Advice("compile a part"), [], ["Remove the call"], "library") == ["compile a part"]
