"""A remedy with a working verdict works when a user applies it. The tests do not use the code that decides verdicts."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.report.remedies import WORKING, Remedy
from jupyter_graphbreak.results import Report
from tests.torch.experiments.remedies.by_hand import (
    VARIANTS,
    LoadedProgram,
    ObservedRun,
    ProgramText,
    is_allowed_difference,
    load_with_remedy,
    names_of_differences,
    observe_runs,
    programs,
)

STEMS = ("traps", "kinds", "loops_and_sizes")
#: `make test` runs only the first program of "kinds", which takes the least time.
CASES = [
    pytest.param(
        program,
        id=f"{stem}-{program.name}",
        marks=[] if (stem, number) == ("kinds", 0) else [pytest.mark.exhaustive],
    )
    for stem in STEMS
    for number, program in enumerate(programs(stem))
]


@pytest.mark.parametrize("program", CASES)
def test_every_claim_holds(tmp_path: Path, program: ProgramText) -> None:
    check_claims(tmp_path, program, "aot_eager")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["random numbers in one branch, with gradients", "two conditions one after the other"])
def test_every_claim_holds_with_generated_code(tmp_path: Path, name: str) -> None:
    check_claims(tmp_path, next(program for program in programs("traps") if program.name == name), "inductor")


def check_claims(folder: Path, program: ProgramText, backend: str) -> Report:
    """Try the remedies of a program, apply those with working verdicts by hand, and compare."""
    (folder / "with").mkdir()
    loaded = LoadedProgram(folder / "program.py", program.text)
    args, kwargs = loaded.make_arguments()
    report = jupyter_graphbreak.try_remedies(torch.compile(loaded.f, backend=backend), *args, **kwargs)
    assert report.remedies is not None
    breaks_with_remedies = {
        ident for remedy in report.remedies if remedy.person or remedy.verdict in WORKING for ident in remedy.breaks
    }
    assert breaks_with_remedies == {break_.id for break_ in report.breaks}, "each break has a remedy or a manual step"
    original = _UnchangedProgram(loaded, backend)
    for remedy in report.remedies:
        assert (remedy.verdict == "not tried") >= (remedy.kind == "person")
        if remedy.verdict in WORKING:
            _check_claim(original, report, remedy, folder / "with")
    return report


class _UnchangedProgram:
    """A program without any remedy, observed once in eager mode and once compiled."""

    def __init__(self, loaded: LoadedProgram, backend: str) -> None:
        self.loaded = loaded
        self.backend = backend

    @functools.cached_property
    def eager(self) -> ObservedRun:
        return observe_runs(lambda: (program := self._load(), program.f), VARIANTS)

    @functools.cached_property
    def compiled(self) -> ObservedRun:
        return observe_runs(lambda: (program := self._load(), torch.compile(program.f, backend=self.backend)), VARIANTS)

    def _load(self) -> LoadedProgram:
        return LoadedProgram(self.loaded.path, self.loaded.text)


def _check_claim(original: _UnchangedProgram, report: Report, remedy: Remedy, folder: Path) -> None:
    description = f"{remedy.id} {remedy.title}: {remedy.verdict}\n{remedy.patch or remedy.code}\n"
    evidence = remedy.evidence
    assert evidence is not None
    assert (remedy.verdict == "works but differs") == bool(remedy.differences), description
    variants = list(VARIANTS) if remedy.verdict != "works on what ran" else ["as given"]
    with load_with_remedy(original.loaded, report, remedy, folder, original.backend) as make_changed_program:
        changed_runs = observe_runs(make_changed_program, variants)
        assert changed_runs.graph_count == evidence.graphs_after, description
        assert evidence.breaks_after < evidence.breaks_before
        assert changed_runs.op_count or not original.compiled.op_count, f"{description}it no longer compiles anything"
        if not evidence.breaks_after:
            # This raises an error if a break is left.
            observe_runs(lambda: make_changed_program(fullgraph=True), ["as given"])
    for variant in variants:
        expected, actual = (
            original.eager.observations_by_variant[variant],
            changed_runs.observations_by_variant[variant],
        )
        names = names_of_differences(expected, actual)
        # Differences that compilation alone causes are not due to the remedy.
        names = [
            name
            for name in names
            if name not in names_of_differences(expected, original.compiled.observations_by_variant[variant])
        ]
        if remedy.verdict == "works but differs":
            names = [name for name in names if not is_allowed_difference(name, expected, actual)]
        details = "".join(f"\n{name}: {expected.get(name)} became {actual.get(name)}" for name in names)
        assert not names, f"{description}{variant}: {details}"
