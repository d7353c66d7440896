"""The verdict on a change that is combined with a remedy for breaks includes the verdict on the remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_graphbreak.experiments.recompiles.candidates import RecompileCandidate
from jupyter_graphbreak.experiments.recompiles.replay import Adjustment
from jupyter_graphbreak.experiments.recompiles.trying import CandidateTrial, avoids_enough_compilations
from jupyter_graphbreak.report.remedies import Remedy, RemedyVerdict


@pytest.mark.parametrize(
    ("counts", "is_enough"),
    [((4, 0, 3, 2), False), ((4, 0, 3, 0), True), ((17, 1, 9, 9), False), ((1, 1, 0, 0), True), ((4, -1, 3, 0), False)],
)
def test_a_change_that_leaves_recompiles_must_avoid_many_or_all_those_of_unseen_sizes(
    counts: tuple[int, int, int, int], is_enough: bool
) -> None:
    assert avoids_enough_compilations(*counts) is is_enough


WORKING_TRIAL = CandidateTrial(RecompileCandidate("dynamic", ("dynamic",), Adjustment(dynamic=True)), "works")


@pytest.mark.parametrize("remedy_verdict", ["works", "works on what ran", "works but differs"])
def test_a_combined_change_is_no_better_than_its_parts(remedy_verdict: RemedyVerdict) -> None:
    remedy = Remedy(
        "r1", ["b1"], "branch", "", "edit", remedy_verdict, reason="a reason", differences=["prints nothing"]
    )
    combined = WORKING_TRIAL.combine_with(remedy)
    assert (combined.verdict, combined.reason, combined.differences) == (remedy_verdict, "a reason", ["prints nothing"])
    differs = replace(WORKING_TRIAL, verdict="works but differs", reason="its own", differences=["warns"])
    assert differs.combine_with(remedy).verdict == "works but differs"
    assert differs.combine_with(remedy).reason == "its own"
