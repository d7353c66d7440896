"""Try remedies for a set of programs, and print locations, verdicts and seconds per break.

Run it by hand: ``python benchmarks/remedies.py [--backend inductor] [--programs FILE.py]``. A file of programs defines
functions or modules and ``CASES``: a dict of names to a callable and its arguments.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_graphbreak import Report

PROGRAMS = Path(__file__).parents[1] / "tests" / "programs" / "remedies" / "breaking.py"
#: The verdicts from the best to the worst.
VERDICTS = (
    "works", "works on what ran", "works but differs", "another result", "another break", "break stays", "fails",
    "not tried",
)  # fmt: skip


def best_verdicts(report: Report) -> list[str]:
    """Return the best verdict for each break of a report."""
    best: list[str] = []
    for break_ in report.breaks:
        verdicts = [remedy.verdict for remedy in report.remedies or [] if break_.id in remedy.breaks]
        best.append(min(verdicts, key=VERDICTS.index))
    return best


def load(path: Path) -> dict[str, tuple[Any, ...]]:
    """Return the programs of a file, with their arguments."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases: dict[str, tuple[Any, ...]] = module.CASES
    return cases


def main() -> None:
    """Try remedies for each program and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--programs", type=Path, default=PROGRAMS)
    options = parser.parse_args()
    import torch

    import jupyter_graphbreak

    total: Counter[str] = Counter()
    seconds: list[float] = []
    for name, (program, *arguments) in load(options.programs).items():
        start = time.perf_counter()
        report = jupyter_graphbreak.try_remedies(torch.compile(program, backend=options.backend), *arguments)
        elapsed_s = time.perf_counter() - start
        verdicts = best_verdicts(report)
        total.update(verdicts)
        seconds += [elapsed_s / len(verdicts) for _ in verdicts]
        print(f"{name:24} {len(verdicts)} breaks  {elapsed_s:5.1f} s  {', '.join(verdicts)}")
    break_count = total.total()
    print(f"\n{break_count} breaks with the backend {options.backend}, torch {torch.__version__}")
    for verdict in VERDICTS:
        print(f"  {verdict:20} {total[verdict]:4}  {total[verdict] / break_count:4.0%}")
    print(f"  seconds a break: median {statistics.median(seconds):.1f}, most {max(seconds):.1f}")


if __name__ == "__main__":
    main()
