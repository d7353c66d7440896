"""Check whether changes for recompiles do what ``--try`` claims: apply them, and count in fresh processes.

Run it by hand: ``python benchmarks/recompiles.py``, or with the names of some programs of ``recompile_programs.txt``.
It exits with 1 if a claim is wrong, or if a program is compiled more often than necessary.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from jupyter_graphbreak.experiments.remedies.change import apply_edits
from jupyter_graphbreak.report.remedies import WORKING, Remedy
from jupyter_graphbreak.report.schema import Report

_PROGRAMS = Path(__file__).with_name("recompile_programs.txt")
_BEGIN = re.compile(r"^== (?P<name>\w+): (?P<smallest>\d+|-)\n", re.MULTILINE)
#: Prints how many frames PyTorch compiles for the calls of the run and for further ones. A frame beyond the recompile
#: limit has no name in the metrics.
_COUNT = """
from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics
for values in (SEEN, UNSEEN):
    clear_compilation_metrics()
    calls(values)
    print("compiled", sum(metrics.co_name is not None for metrics in get_compilation_metrics()))
"""


class Program(NamedTuple):
    """A program, and the smallest number of compilations; ``None`` if nothing may claim to prevent its recompiles."""

    name: str
    text: str
    smallest: int | None


def programs() -> list[Program]:
    """Return all programs."""
    _, *parts = _BEGIN.split(_PROGRAMS.read_text(encoding="utf-8"))
    rows = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return [
        Program(name, text.strip() + "\n", int(smallest) if smallest.isdigit() else None)
        for name, smallest, text in rows
    ]


def best_remedy(path: Path) -> Remedy | None:
    """Return the first change for recompiles that works."""
    command = ["graphbreak", "script", "--try", "--format", "json", str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    report = msgspec.json.decode(process.stdout[process.stdout.index("{") :], type=Report)
    working_remedies = (remedy for remedy in report.remedies or [] if remedy.recompiles and remedy.verdict in WORKING)
    return next(working_remedies, None)


def count_compilations(text: str, folder: Path) -> tuple[int, int]:
    """Return how many frames a program compiles in a fresh process, for the calls of the run and for further ones."""
    path = folder / "counted.py"
    path.write_text(text + _COUNT, encoding="utf-8")
    process = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    seen, unseen = re.findall(r"^compiled (\d+)$", process.stdout, re.MULTILINE)
    return int(seen), int(unseen)


def apply_change(text: str, remedy: Remedy) -> str:
    """Return a program with a change; code that replaces no line is appended, before the calls are."""
    if remedy.edits:
        return apply_edits(text, list(remedy.edits))
    return f"{text}\n{remedy.code}\n"


def is_as_claimed(program: Program, folder: Path) -> bool:
    """Try to prevent the recompiles of a program, print the claim and the true numbers; return whether they agree."""
    path = folder / f"{program.name}.py"
    path.write_text(program.text + "\ncalls(SEEN)\n", encoding="utf-8")
    remedy = best_remedy(path)
    plain_count, _ = count_compilations(program.text, folder)
    if remedy is None or remedy.evidence is None:
        print(f"{program.name:24} {plain_count} compilations, and no change claims to prevent recompiles", flush=True)
        return program.smallest is None
    claim = remedy.evidence.compilations_before, remedy.evidence.compilations_after
    unseen = remedy.evidence.unseen.compilations if remedy.evidence.unseen is not None else 0
    text = apply_change(program.text + "\ncalls(SEEN)\n", remedy).replace("\ncalls(SEEN)\n", "\n")
    fixed_count, further_count = count_compilations(text, folder)
    is_right = claim == (plain_count, fixed_count) and unseen == further_count == 0 and fixed_count == program.smallest
    print(
        f"{program.name:24} claimed {claim[0]} -> {claim[1]}, counted {plain_count} -> {fixed_count}, "
        f"{further_count} for further values"
        f" ({remedy.title}){'' if is_right else f' WRONG: the smallest number is {program.smallest}'}",
        flush=True,
    )
    return is_right


def main() -> None:
    """Check all programs, or those that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="the names of programs")
    names = parser.parse_args().names
    with tempfile.TemporaryDirectory() as folder:
        chosen_programs = [program for program in programs() if not names or program.name in names]
        agreements = [is_as_claimed(program, Path(folder)) for program in chosen_programs]
    print(f"{sum(agreements)} of {len(agreements)} programs are as claimed")
    sys.exit(0 if all(agreements) else 1)


if __name__ == "__main__":
    main()
