"""A remedy that is said to work does so when a reader applies it: compared here by other means than the verdict was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.report.remedies import WORKING, Remedy
from jupyter_graphbreak.results import Report
from tests.torch.remedies.by_hand import (
    VARIANTS,
    Loaded,
    Written,
    graphs_and_ops,
    observe,
    only_declared,
    parted,
    programs,
    remedied,
)

CASES = [pytest.param(each, id=f"{stem}-{each.name}") for stem in ("traps", "kinds") for each in programs(stem)]


@pytest.mark.parametrize("program", CASES)
def test_every_claim_holds(tmp_path: Path, program: Written) -> None:
    holds(tmp_path, program, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random numbers on one side, with gradients", "two conditions one after the other"])
def test_every_claim_holds_with_generated_code(tmp_path: Path, name: str) -> None:
    holds(tmp_path, next(each for each in programs("traps") if each.name == name), "inductor")


def holds(folder: Path, program: Written, backend: str) -> Report:
    """Try the remedies of a program, apply each that is said to work by hand, and compare."""
    (folder / "with").mkdir()
    loaded = Loaded(folder / "program.py", program.text)
    args, kwargs = loaded.given()
    report = jupyter_graphbreak.try_remedies(torch.compile(loaded.f, backend=backend), *args, **kwargs)
    assert report.remedies is not None
    decided = {
        ident for remedy in report.remedies if remedy.person or remedy.verdict in WORKING for ident in remedy.breaks
    }
    assert decided == {listed.id for listed in report.breaks}, "each break has a way on"
    for remedy in report.remedies:
        assert (remedy.verdict == "not tried") >= (remedy.kind == "person")
        if remedy.verdict in WORKING:
            _holds(loaded, report, remedy, folder / "with", backend)
    return report


def _holds(loaded: Loaded, report: Report, remedy: Remedy, folder: Path, backend: str) -> None:
    what = f"{remedy.id} {remedy.title}: {remedy.verdict}\n{remedy.patch or remedy.code}\n"
    evidence = remedy.evidence
    assert evidence is not None
    assert (remedy.verdict == "works but differs") == bool(remedy.differences), what

    def itself() -> tuple[Loaded, Any]:
        made = Loaded(loaded.path, loaded.text)
        return made, made.f

    def compiled() -> tuple[Loaded, Any]:
        made = Loaded(loaded.path, loaded.text)
        return made, torch.compile(made.f, backend=backend)

    with remedied(loaded, report, remedy, folder, backend) as changed:
        _, ops_before = graphs_and_ops(compiled)
        after, ops = graphs_and_ops(changed)
        assert after == evidence.graphs_after, what
        assert evidence.breaks_after < evidence.breaks_before
        assert ops or not ops_before, f"{what}nothing is compiled any more"
        if not evidence.breaks_after:
            graphs_and_ops(lambda: changed(fullgraph=True))  # it would raise
        for variant in VARIANTS if remedy.verdict != "works on what ran" else ["as given"]:
            torch._dynamo.reset()
            expected, actual = observe(itself, variant), observe(changed, variant)
            found = parted(expected, actual)
            if found:  # what compiling alone does is no doing of the remedy's
                found = [name for name in found if name not in parted(expected, observe(compiled, variant))]
            if remedy.verdict == "works but differs":
                found = [name for name in found if not only_declared(name, expected, actual)]
            told = "".join(f"\n{name}: {expected.get(name)} became {actual.get(name)}" for name in found)
            assert not found, f"{what}{variant}: {told}"
