"""Run random programs of notebook cells with and without ``%%compile_explain``, and compare everything the user sees.

Run it by hand: ``OMP_NUM_THREADS=1 python benchmarks/random_cells.py --programs 1000 --seed 7``.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.differences import differences
from benchmarks.random_programs import Writer
from benchmarks.user_view import Cell, make_shell, run_in_fork, run_program


def main() -> None:
    """Run programs, and print those that differ and their number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run and print only the program with this number")
    parser.add_argument("--options", default="-b eager", help="of the magic")
    arguments = parser.parse_args()
    start = time.perf_counter()
    shell = make_shell()
    plans: collections.Counter[str] = collections.Counter()
    differing_programs = []
    numbers = [arguments.only] if arguments.only is not None else range(arguments.programs)
    for number in numbers:
        cells = Writer(arguments.seed * 1_000_000 + number).program()
        plain_run, explained_run = (
            run_in_fork(functools.partial(run_program, shell, cells, arguments.options, is_plain=is_plain))
            for is_plain in (True, False)
        )
        plans.update([explained_run] if isinstance(explained_run, str) else [view.plan for view in explained_run[:-1]])
        differing_lines = differences(plain_run, explained_run)
        if differing_lines:  # check whether it differs from itself
            second_run = run_in_fork(functools.partial(run_program, shell, cells, arguments.options, is_plain=True))
            varying_lines = set(differences(plain_run, second_run))
            differing_lines = [line for line in differing_lines if line not in varying_lines]
            if not any(":" in line or line.startswith("  ") for line in differing_lines):
                differing_lines = []
        if differing_lines:
            differing_programs.append(number)
        if differing_lines or arguments.only is not None:
            print(f"\n{'=' * 30} program {number} of seed {arguments.seed}")
            text = "\n".join([*itertools.starmap(_list_cell, enumerate(cells[1:], start=2)), *differing_lines])
            print(text.encode(errors="replace").decode(), flush=True)
    print(f"\n{len(numbers)} programs, {len(differing_programs)} differ: {differing_programs}")
    print(f"cells: {dict(plans)}; {time.perf_counter() - start:.0f} s")


def _list_cell(number: int, cell: Cell) -> str:
    first = 2 if cell.is_explained else 1
    lines = [f"  {line_number:2} {line}" for line_number, line in enumerate(cell.text.split("\n"), start=first)]
    return "\n".join([f"-- cell {number}{' explained' if cell.is_explained else ''}", *lines])


if __name__ == "__main__":
    main()
