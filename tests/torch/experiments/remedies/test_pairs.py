"""No claim about a program with a trap is false, according to an oracle that shares no code with the verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.report.remedies import WORKING
from tests.torch.experiments.remedies.by_hand import LoadedProgram, ProgramText, programs
from tests.torch.experiments.remedies.oracle import false_claims, run_setup

#: The pair that `make test` runs, one of those that take the least time.
PAIR = ("a closure with nonlocal, right", "a closure with nonlocal, wrong")
CASES = [
    pytest.param(program, id=program.name, marks=[] if program.name in PAIR else [pytest.mark.exhaustive])
    for program in programs("pairs")
]
#: Programs marked "right" for which no change is known to work, so the user has to decide.
UNSOLVED_PROGRAMS = frozenset({"a scaler, right", "a scheduler, right", "a value as an index, right"})
#: Programs marked "right" whose change gives a different result if the input has a different dtype, if a list has
#: tensors of several lengths, if an argument requires gradients, if a dict lacked a key, or if a flag is set. The
#: verdict says so.
PROGRAMS_RIGHT_FOR_ONE_KIND = frozenset(
    {
        "a best value of a closure, right",
        "a counter after a break, right",
        "a flag behind a tensor's test, right",
        "a flag in a tensor, right",
        "a flag that skips arithmetic, right",
        "a guard of a case, right",
        "a key in a branch, right",
        "a loop over a list, right",
        "a negated flag in a name, right",
        "a number in each branch, right",
        "a sum in a branch, right",
        "a progress of numbers, right",
        "accumulating in a dict, right",
        "any of some conditions, right",
        "halving, right",
        "in place on an argument, right",
        "the largest of a list, right",
        "threshold for large values, right",
    }
)


#: Programs marked "right" whose change returns a new tensor instead of an argument. The verdict says so.
RIGHT_EXCEPT_FOR_A_NEW_TENSOR = frozenset({"an argument that is returned, right"})


@pytest.mark.parametrize("program", CASES)
def test_every_claim_is_true(tmp_path: Path, program: ProgramText) -> None:
    loaded = LoadedProgram(tmp_path / "program.py", program.text)
    args, kwargs = loaded.make_arguments()
    with run_setup(loaded):
        report = jupyter_graphbreak.try_remedies(torch.compile(loaded.f, backend="eager"), *args, **kwargs)
    assert report.remedies is not None
    claims = [remedy for remedy in report.remedies if remedy.verdict in WORKING]
    for remedy in claims:
        description = (
            f"{remedy.id} {remedy.title}: {remedy.verdict} for {remedy.breaks}\n{remedy.patch or remedy.code}\n"
        )
        errors = false_claims(program, loaded, report, remedy, "eager")
        assert not errors, description + "\n".join(errors)
    if program.name.endswith("right") and program.name not in UNSOLVED_PROGRAMS:
        expected = "works on what ran" if program.name in PROGRAMS_RIGHT_FOR_ONE_KIND else "works"
        expected = "works but differs" if program.name in RIGHT_EXCEPT_FOR_A_NEW_TENSOR else expected
        assert any(remedy.verdict == expected for remedy in claims) or not report.breaks, [
            (remedy.title, remedy.verdict, remedy.reason) for remedy in report.remedies
        ]
