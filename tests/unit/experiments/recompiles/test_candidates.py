"""Candidate changes against recompiles, and which of them include others."""

from __future__ import annotations

from jupyter_graphbreak.experiments.recompiles.candidates import (
    RecompileCandidate,
    marking_candidate,
    numbers_left_as_tensors,
    tensor_candidate,
)
from jupyter_graphbreak.experiments.recompiles.replay import Adjustment
from jupyter_graphbreak.experiments.recompiles.variations import Number, Size
from jupyter_graphbreak.experiments.trial.call_specs import Path, Root

X, Y = (Size(Path(Root("argument", name)), 0, (4, 6)) for name in "xy")


def test_a_candidate_includes_those_whose_marks_it_repeats_but_no_code_change() -> None:
    x_marked = marking_candidate([X], "mark_dynamic", "model")
    both_marked = marking_candidate([X, Y], "mark_dynamic", "model")
    assert both_marked.includes(x_marked)
    assert not x_marked.includes(both_marked)
    for family in ("hoisting", "branch"):
        assert not x_marked.includes(RecompileCandidate("Compute `n` before the call", (family,), Adjustment()))


def test_numbers_that_stay_tensors_are_listed_by_name() -> None:
    groups = Path(Root("closure", "opt")).child("attribute", "param_groups")
    rates = [Number(groups.child("item", group).child("item", "lr"), (0.1, 0.05)) for group in (0, 1)]
    step = Number(Path(Root("module", "self")).child("attribute", "step"), (0, 1))
    candidate = tensor_candidate([*rates, step], "model", "float64")
    assert sorted(numbers_left_as_tensors(candidate, "model")) == ["`lr` of `opt`", "`model.step`"]
    assert numbers_left_as_tensors(marking_candidate([X], "mark_dynamic", "model"), "model") == []
