"""Compare the order of breaks by cost in a report with the order of time saved by fixing them.

Also compare the sum of the parts of a call's time with the whole call.

Run it by hand on a quiet machine: ``python benchmarks/order.py``.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import jupyter_graphbreak
from jupyter_graphbreak.report.cost import Cost

if TYPE_CHECKING:
    from collections.abc import Callable

#: The beginning of every program.
HEAD = """import io
import random
import time

import numpy as np
import torch

NOWHERE = io.StringIO()


@torch.compiler.disable
def spin(us):
    end = time.perf_counter() + us * 1e-6
    while time.perf_counter() < end:
        pass


@torch.compiler.disable
def steps(y, count):
    for _ in range(count):
        y = y * 1.01 + 0.01
    return y


@torch.compiler.disable
def tanh_in_numpy(y):
    return torch.from_numpy(np.tanh(y.detach().numpy()))


def say(text):
    NOWHERE.seek(0)
    NOWHERE.write(text)


"""
#: The code between breaks.
CODE_BETWEEN_BREAKS = "    y = torch.tanh(y @ w) + x\n"


class Break(NamedTuple):
    """Lines that break, and their version fixed by hand."""

    code: str
    fixed_code: str


def break_by_waiting(us: int) -> Break:
    """Return code that calls a function that only waits."""
    return Break(f"    spin({us})\n", "")


def break_by_steps(count: int) -> Break:
    """Return code with operations that run eagerly."""
    lines = "    for _ in range({count}):\n        y = y * 1.01 + 0.01\n"
    return Break(f"    y = steps(y, {count})\n", lines.format(count=count))


BRANCH = Break(
    "    if y.sum() > 0:\n        y = y + 1\n",
    "    y = torch.where(y.sum() > 0, y + 1, y)\n",
)
PLAIN_BREAK = Break("    torch._dynamo.graph_break()\n", "")
NUMPY_BREAK = Break("    y = tanh_in_numpy(y)\n", "    y = torch.tanh(y)\n")
PRINT_BREAK = Break('    print("here", file=NOWHERE)\n', "")
SCALAR = Break("    y = y * (1 + 0 * int(y.argmax()))\n", "    y = y * (1 + 0 * y.argmax())\n")

#: The breaks of each program, in the order of their lines, and the size of its tensors.
PROGRAMS: dict[str, tuple[int, list[Break]]] = {
    "cheap, expensive, between": (64, [break_by_waiting(30), break_by_waiting(900), break_by_waiting(250)]),
    "time, operations, a plain break": (64, [break_by_waiting(400), break_by_steps(12), PLAIN_BREAK]),
    "a branch, eager operations, a print": (64, [BRANCH, break_by_steps(60), PRINT_BREAK]),
    "a plain break, numpy, time": (256, [PLAIN_BREAK, NUMPY_BREAK, break_by_waiting(300)]),
    "two branches and time": (64, [BRANCH, break_by_waiting(500), BRANCH]),
    "operations, few and many": (64, [break_by_steps(4), break_by_steps(80), break_by_steps(25)]),
    "large tensors": (512, [break_by_steps(4), PLAIN_BREAK, break_by_waiting(150)]),
    "a scalar, a print, time": (64, [SCALAR, PRINT_BREAK, break_by_waiting(700)]),
    "numpy, a scalar, operations": (128, [NUMPY_BREAK, SCALAR, break_by_steps(50)]),
    "time, a branch, numpy": (384, [break_by_waiting(60), BRANCH, NUMPY_BREAK]),
}
# The same programs with small tensors and in reverse order.
PROGRAMS |= {f"{title}; small, backwards": (32, breaks[::-1]) for title, (_, breaks) in PROGRAMS.items()}
#: The tolerated difference between the sum of the parts and the whole, as a share.
TOLERANCE = 0.05
#: Two breaks are treated as equal if their savings differ by less than this share of the call.
TIE_SHARE = 0.01


def source_of(breaks: list[Break], fixed_index: int | None = None) -> str:
    """Return the source text of a program, optionally with one of its breaks fixed."""
    lines = [part.fixed_code if index == fixed_index else part.code for index, part in enumerate(breaks)]
    body = "".join(f"{line}{CODE_BETWEEN_BREAKS}" for line in lines)
    return f"{HEAD}def f(x, w):\n    y = x\n{CODE_BETWEEN_BREAKS}{body}    return y\n"


def load_program(folder: Path, text: str, file_numbers: itertools.count[int]) -> Callable[..., Any]:
    """Write a program to a separate file, and return its function."""
    path = folder / f"program_{next(file_numbers)}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    function: Callable[..., Any] = module.f
    return function


def measure_savings(programs: list[Callable[[], Any]], round_count: int) -> list[tuple[float, float]]:
    """Return the savings of each program relative to the first, in microseconds, and their uncertainty."""
    times: list[list[float]] = [[] for _ in programs]
    for program in programs:
        for _ in range(5):
            program()
    for _ in range(round_count):
        for program, program_times in zip(programs, times, strict=True):
            start = time.perf_counter()
            program()
            program_times.append((time.perf_counter() - start) * 1e6)
    savings = []
    for changed_times in times[1:]:
        differences = sorted(first - part for first, part in zip(times[0], changed_times, strict=True))
        quarter = len(differences) // 4
        spread = (differences[-quarter] - differences[quarter]) / 2
        savings.append((statistics.median(differences), 2 * spread / len(differences) ** 0.5))
    return savings


def median_us(function: Callable[[], Any], call_count: int = 300) -> float:
    """Return the time of a call in a loop."""
    times = []
    for _ in range(call_count):
        start = time.perf_counter()
        function()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def is_right(order: list[int], savings: list[tuple[float, float]], call_us: float) -> bool:
    """Return whether no break comes before one that saves significantly more."""
    return all(
        savings[later][0] - savings[earlier][0] <= max(savings[later][1] + savings[earlier][1], TIE_SHARE * call_us)
        for earlier, later in itertools.combinations(order, 2)
    )


def order_of(report: jupyter_graphbreak.Report, breaks: list[Break]) -> list[int]:
    """Return the indexes of a program's breaks in the order of its report."""
    lines = source_of(breaks).split("\n")
    line_indexes = [
        index for index, line in enumerate(lines) for part in breaks if line and line in part.code.split("\n")[:1]
    ]
    by_line = {line + 1: number for number, line in enumerate(dict.fromkeys(line_indexes))}
    by_id = {break_.id: break_ for break_ in report.breaks}
    numbers = []
    for ident in report.order:
        location = by_id[ident].location
        number = by_line.get(location.line) if location is not None else None
        if number is not None and number not in numbers:
            numbers.append(number)
    return numbers


def main() -> int:
    """Measure all programs, and print which order is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--backend", default="inductor")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    file_numbers = itertools.count()
    right_count = right_sum_count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, (size, breaks) in PROGRAMS.items():
            torch.manual_seed(0)
            x, w = torch.rand(size, size), torch.randn(size, size) / size
            variants = [None, *range(len(breaks))]
            functions = [load_program(folder, source_of(breaks, fixed_index), file_numbers) for fixed_index in variants]
            compiled_functions = [torch.compile(function, backend=arguments.backend) for function in functions]
            savings = measure_savings(
                [functools.partial(function, x, w) for function in compiled_functions], arguments.rounds
            )
            function = functools.partial(compiled_functions[0], x, w)
            first_us = median_us(function)
            report = jupyter_graphbreak.measure(torch.compile(functions[0], backend=arguments.backend), x, w)
            second_us = median_us(function)
            parts_us = sum(
                part.time.median_us for entry in (report.cost or Cost("", "")).entries for part in entry.parts
            )
            # The two times of the unchanged program show how steady the machine was.
            adds_up = (
                min(first_us, second_us) * (1 - TOLERANCE) <= parts_us <= max(first_us, second_us) * (1 + TOLERANCE)
            )
            right_sum_count += adds_up
            order = order_of(report, breaks)
            is_right_order = len(order) == len(breaks) and is_right(order, savings, first_us)
            right_count += is_right_order
            words = ", ".join(f"{number + 1}: {us:,.0f} ±{error:,.0f} us" for number, (us, error) in enumerate(savings))
            numbers_text = " ".join(str(number + 1) for number in order)
            print(
                f"{'right' if is_right_order else 'WRONG'}  {title}: listed {numbers_text}; fixing saves {words}",
                flush=True,
            )
            verdict = f"{'within' if adds_up else 'NOT within'} {TOLERANCE:.0%}"
            print(
                f"  {verdict}: parts {parts_us:,.0f} us, whole call {first_us:,.0f} to {second_us:,.0f} us", flush=True
            )
            torch.compiler.reset()
    print(f"the parts of {right_sum_count} of {len(PROGRAMS)} calls add up to the whole call, within {TOLERANCE:.0%}")
    print(f"{right_count} of {len(PROGRAMS)} orders are right; torch {torch.__version__}, {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
