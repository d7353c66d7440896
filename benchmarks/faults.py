"""Make each of our functions raise in turn, and check that the user's cells run as they do without the package.

Run it by hand: ``OMP_NUM_THREADS=1 python benchmarks/faults.py``; ``--options "-b eager --try"`` reaches more of them.
Each fault runs in a separate process, which explains two cells and runs a third one: in the first cell the function
raises whenever it is called, in the others it works as usual. The first cell compiles something itself, or has its
calls compiled by the magic, or is compiled as one function, or raises. With ``--interrupt``, the script sends SIGINT
instead, when the first cell first calls the function.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import gc
import importlib
import json
import pkgutil
import re
import signal
import sys
import threading
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.differences import differences
from benchmarks.user_view import Cell, CellView, Session, attribute_ids, make_shell, run_in_fork, seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from IPython.core.interactiveshell import InteractiveShell

PACKAGE = ROOT / "jupyter_graphbreak"
#: The outermost functions: none of our code is around them that could catch their faults.
OUTERMOST_MODULES = ("cli",)
#: Functions that only call the program.
PROGRAM_CALLERS = ("call_compiled",)
FAULT_MESSAGE = "a fault that was put here"
#: A cell that compiles something itself, and one without the magic that uses its results.
COMPILING_CELL = """
import logging, torch
@torch.compiler.disable
def add_one(x):
    return x + 1
def helper(x):
    print("in the helper")
    return x * 2
@torch.compile(backend="eager")
def step(x, n):
    if x.sum() > 0:
        x = add_one(x)
    with torch._dynamo.error_on_graph_break(False):
        x = helper(x)
    try:
        torch._dynamo.graph_break()
    finally:
        x = x - n
    return {"out": x.relu(), "n": x.mean().item()}
results = [step(torch.ones(size), n) for size in (2, 3) for n in (1, 2)]
results[-1]"""
CELL_AFTER_COMPILING = "step(torch.ones(2), 3), torch.zeros(4) + 1, torch.randn(2)"
#: A cell whose calls the magic compiles: a module, and functions, one of which is inspected and one of which fails.
CALLING_CELL = """
import functools, traceback, warnings, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
    def forward(self, x):
        print("in forward")
        return (x * self.weight).relu()
def scale(x, factor):
    if x.sum() > 0:
        x = x * factor
    return x + 1
def fail(x):
    y = x * 2
    torch._dynamo.graph_break()
    raise ValueError(f"too large: {tuple(y.shape)}")
def drive(net, batches, optimizer):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = scale(net(batch), 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
net = Net()
losses = drive(net, [torch.ones(2, 3), torch.zeros(4, 3)], torch.optim.SGD(net.parameters(), 0.1))
scaled = functools.partial(scale, factor=3)(torch.ones(2))
try:
    fail(scaled)
except ValueError as error:
    print(error, [entry.name for entry in traceback.extract_tb(error.__traceback__)])
warnings.warn("a warning of the cell")
losses, scaled, net.weight.grad"""
CELL_AFTER_CALLING = "scale(torch.ones(2), 3), net(torch.ones(3)), torch.randn(2)"
#: A cell that the magic compiles as one function.
COMPUTING_CELL = """
import torch
x = torch.ones(3)
y = x * 2
print("computed")
if y.sum() > 0:
    y = y + 1
y"""
CELL_AFTER_COMPUTING = "x + y, torch.randn(2)"
#: A cell whose compiled call raises.
RAISING_CELL = """
import torch
def double_negative(x):
    y = x * 2
    print("doubled")
    if y.sum() > 0:
        raise ValueError("the sum is positive")
    return y
negative = double_negative(-torch.ones(2))
positive = double_negative(torch.ones(2))"""
CELL_AFTER_RAISING = "negative + 1, torch.randn(2)"
SECOND_CELL = """
import torch
@torch.compile(backend="eager")
def other(x):
    y = x * 2
    print("other")
    return y + 1
other(torch.ones(3))"""
#: The first cell of each program runs with a fault in our code; the second one is explained without a fault.
PROGRAMS = {
    name: (Cell(first, is_explained=True), Cell(SECOND_CELL, is_explained=True), Cell(last, is_explained=False))
    for name, first, last in (
        ("compiles", COMPILING_CELL, CELL_AFTER_COMPILING),
        ("calls", CALLING_CELL, CELL_AFTER_CALLING),
        ("computes", COMPUTING_CELL, CELL_AFTER_COMPUTING),
        ("raises", RAISING_CELL, CELL_AFTER_RAISING),
    )
}


class FunctionLocation(NamedTuple):
    """The location of one of our functions."""

    file: str
    line: int
    name: str


class Outcome(NamedTuple):
    """The outcome of a run with a fault."""

    location: FunctionLocation
    #: Differences that the user sees, apart from our own messages.
    visible_differences: list[str]
    has_report: bool
    is_reported: bool
    #: Whether the report of the next run is the same as without a fault.
    is_next_report_right: bool


@functools.cache
def functions() -> dict[FunctionLocation, list[tuple[types.FunctionType, tuple[int, ...]]]]:
    """Return, for each of our functions, the functions that contain its code, and the path through their constants."""
    holders: dict[FunctionLocation, list[tuple[types.FunctionType, tuple[int, ...]]]] = collections.defaultdict(list)
    for function in gc.get_objects():
        if type(function) is types.FunctionType and _is_ours(function.__code__):
            for code, path in _nested_code_objects(function.__code__, ()):
                holders[_location_of(code)].append((function, path))
    return holders


def _is_ours(code: types.CodeType) -> bool:
    """Return whether a code object belongs to our modules. Templates compiled on first rendering do not count."""
    return code.co_filename.startswith(f"{PACKAGE}/") and code.co_filename.endswith(".py")


def _nested_code_objects(
    code: types.CodeType, path: tuple[int, ...]
) -> Iterator[tuple[types.CodeType, tuple[int, ...]]]:
    yield code, path
    for index, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType) and not constant.co_name.startswith("<"):
            yield from _nested_code_objects(constant, (*path, index))


def _location_of(code: types.CodeType) -> FunctionLocation:
    return FunctionLocation(str(Path(code.co_filename).relative_to(PACKAGE)), code.co_firstlineno, code.co_qualname)


def raising_code(code: types.CodeType, path: tuple[int, ...]) -> types.CodeType:
    """Return a code object that raises, or whose nested code at the end of the path raises."""
    if path:
        constants = list(code.co_consts)
        constants[path[0]] = raising_code(constants[path[0]], path[1:])
        return code.replace(co_consts=tuple(constants))
    free_variables = code.co_freevars
    body = f"  if False: {', '.join(free_variables) or 'pass'}\n  raise RuntimeError({FAULT_MESSAGE!r})"
    text = f"def around({', '.join(free_variables)}):\n def f(*a, **k):\n{body}"
    wrapper_code = compile(text, "fault", "exec").co_consts[0]
    function_code = next(constant for constant in wrapper_code.co_consts if isinstance(constant, types.CodeType))
    return function_code.replace(co_filename=code.co_filename, co_name=code.co_name, co_qualname=code.co_qualname)


@contextlib.contextmanager
def fault(location: FunctionLocation) -> Iterator[None]:
    """Make a function raise whenever it is called."""
    holders = functions()[location]
    if not holders:
        raise LookupError(location)
    originals = [(function, function.__code__) for function, _ in holders]
    for function, path in holders:
        function.__code__ = raising_code(function.__code__, path)
    try:
        yield
    finally:
        for function, code in originals:
            function.__code__ = code


@contextlib.contextmanager
def interrupt(location: FunctionLocation) -> Iterator[None]:
    """Interrupt the process on the first call to a function."""

    def interrupt_once(frame: types.FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and _is_ours(code) and _location_of(code) == location:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupt_once)
    try:
        yield
    finally:
        sys.setprofile(None)


def run(
    shell: InteractiveShell,
    cells: Sequence[Cell],
    options: str,
    fault_context: AbstractContextManager[None] | None,
    *,
    is_plain: bool,
) -> list[CellView]:
    """Run the cells, the first one with a fault in one of our functions."""
    old_ids = attribute_ids()
    session = Session(shell, options, is_plain=is_plain)
    views = []
    for number, cell in enumerate(cells):
        seed()
        with fault_context if number == 0 and fault_context is not None else contextlib.nullcontext():
            views.append(session.run(cell))
        views[-1].parts["report"] = [_brief(report) for report in session.reports]
        views[-1].parts["messages"] = [text for text in session.shown_data if FAULT_MESSAGE in text] + [
            report_note["message"]
            for report in session.reports
            for report_note in report["diagnostics"]
            if report_note["level"] != "info"
        ]
    new_ids = attribute_ids()
    replaced_names = sorted(name for name, identity in old_ids.items() if name in new_ids and new_ids[name] != identity)
    return [*views, CellView({"replaced attributes": replaced_names})]


def _brief(report: dict[str, Any]) -> str:
    breaks = [(break_["gb_id"], break_["location"]) for break_ in report["breaks"]]
    parts = {name: len(report[name]) for name in ("graphs", "resumes", "scopes", "skipped", "recompiles")}
    return json.dumps([report["status"], breaks, parts])


def called_functions(shell: InteractiveShell, cells: Sequence[Cell], options: str) -> list[FunctionLocation]:
    """Return our functions that the first cell calls, except for wrappers of PyTorch's functions.

    Such a wrapper must call the original, so a fault in it always shows. Faults in our other functions must not show.
    """
    is_wrapper_by_code: dict[types.CodeType, bool] = {}

    def note(frame: types.FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code not in is_wrapper_by_code and _is_ours(code):
            is_wrapper_by_code[code] = is_wrapper(code)

    def record_places() -> list[CellView]:
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            Session(shell, options, is_plain=False).run(cells[0])
        finally:
            sys.setprofile(None)
        return [
            CellView(
                {
                    "locations": [
                        json.dumps(_location_of(code))
                        for code, is_a_wrapper in is_wrapper_by_code.items()
                        if not is_a_wrapper
                    ]
                }
            )
        ]

    results = run_in_fork(record_places)
    if isinstance(results, str):
        sys.exit(results)
    locations = [FunctionLocation(*json.loads(text)) for text in results[0].parts["locations"]]
    return sorted(
        location
        for location in locations
        if Path(location.file).parts[0] not in OUTERMOST_MODULES and location.name not in PROGRAM_CALLERS
    )


def is_wrapper(code: types.CodeType) -> bool:
    """Return whether a code object belongs to a wrapper created with ``functools.wraps``, or to no function."""
    if code.co_name.startswith("<"):
        return True
    if "<locals>" not in code.co_qualname:
        return False
    known_functions = (function for function, path in functions().get(_location_of(code), ()) if not path)
    other_functions = (function for function in gc.get_referrers(code) if type(function) is types.FunctionType)
    return any("__wrapped__" in vars(function) for function in (*known_functions, *other_functions))


def outcome(
    location: FunctionLocation,
    plain_run: list[CellView],
    faultless_run: list[CellView],
    faulty_run: list[CellView] | str,
) -> Outcome:
    """Compare a run with a fault with runs without one."""
    if isinstance(faulty_run, str):
        return Outcome(location, [faulty_run], has_report=False, is_reported=False, is_next_report_right=False)
    our_lines = [line for line in faulty_run[0].parts["output"] if "compile_explain" in line or FAULT_MESSAGE in line]
    for view in faulty_run:
        view.parts["output"] = [line for line in view.parts.get("output", []) if line not in our_lines]
    messages, reports = ([view.parts.pop(name, []) for view in faulty_run] for name in ("messages", "report"))
    is_reported = bool(our_lines or set(messages[0]).difference(faultless_run[0].parts["messages"]))
    lines = [line for line in differences(plain_run, faulty_run) if not line.partition(" fault")[1]]
    return Outcome(location, lines, bool(reports[0]), is_reported, reports[1] == faultless_run[1].parts["report"])


def outcome_of_interrupt(
    location: FunctionLocation,
    plain_run: list[CellView],
    faultless_run: list[CellView],
    interrupted_run: list[CellView] | str,
) -> Outcome:
    """Compare the cells after an interrupt, except the third, which uses names that the first assigns."""
    if isinstance(interrupted_run, str):
        return Outcome(location, [interrupted_run], has_report=False, is_reported=False, is_next_report_right=False)
    is_reported = "KeyboardInterrupt" in str(interrupted_run[0].parts["error"])
    later_views = [
        CellView(
            {name: run_views[1].parts[name] for name in ("output", "result", "error", "settings")} | run_views[3].parts
        )
        for run_views in (plain_run, interrupted_run)
    ]
    is_next_report_right = interrupted_run[1].parts["report"] == faultless_run[1].parts["report"]
    return Outcome(
        location,
        differences(later_views[:1], later_views[1:]),
        bool(interrupted_run[0].parts["report"]),
        is_reported,
        is_next_report_right,
    )


def main() -> None:
    """Print each function whose fault is visible, affects the next run, or is not reported; then the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--options", default="-b eager", help="of the magic")
    parser.add_argument("--only", default="", help="only functions whose file and name match this expression")
    parser.add_argument("--program", choices=PROGRAMS, help="run only this program")
    parser.add_argument("--part", type=int, default=0, help="which part of the faults to run, counted from 0")
    parser.add_argument("--parts", type=int, default=1, help="the number of parts into which the faults are divided")
    parser.add_argument("--lines", type=int, default=None, help="maximum number of lines to show of what the user saw")
    parser.add_argument("--interrupt", action="store_true", help="interrupt each function instead of making it fail")
    arguments = parser.parse_args()
    cause_fault, judge = (interrupt, outcome_of_interrupt) if arguments.interrupt else (fault, outcome)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes of a shell ignore interrupts
    shell = make_shell()
    for module in pkgutil.walk_packages([str(PACKAGE)], "jupyter_graphbreak."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    functions()
    gc.collect()
    gc.freeze()  # the garbage collector would make forks copy memory
    outcomes = []
    for name in PROGRAMS if arguments.program is None else [arguments.program]:
        cells = PROGRAMS[name]
        outcomes += outcomes_of_faults(shell, cells, arguments, cause_fault, judge, name)
    late_results = [result for result in outcomes if result.location.file.startswith(("analysis", "views"))]
    unchanged_count = sum(not result.visible_differences for result in outcomes)
    print(f"\n{len(outcomes)} times a function raised; the user saw the same {unchanged_count} times,")
    print(f"the next report was right {sum(result.is_next_report_right for result in outcomes)} times,")
    print(f"and the fault was noted {sum(result.is_reported for result in outcomes)} times.")
    report_count = sum(result.has_report for result in late_results)
    print(f"Of {len(late_results)} faults in analysis and views, {report_count} left a report.")


def outcomes_of_faults(
    shell: InteractiveShell,
    cells: Sequence[Cell],
    arguments: argparse.Namespace,
    cause_fault: Callable[[FunctionLocation], AbstractContextManager[None]],
    judge: Callable[..., Outcome],
    name: str,
) -> list[Outcome]:
    """Return the outcome of each fault in a program, and print the bad ones."""
    options = arguments.options
    runs = [
        run_in_fork(functools.partial(run, shell, cells, options, None, is_plain=is_plain))
        for is_plain in (True, False)
    ]
    plain_run, faultless_run = (views if not isinstance(views, str) else sys.exit(views) for views in runs)
    for view in plain_run:
        for part in ("messages", "report"):
            view.parts.pop(part, None)
    outcomes = []
    locations = [
        location
        for location in called_functions(shell, cells, options)
        if re.search(arguments.only, f"{location.file} {location.name}")
    ]
    for number, location in enumerate(locations[arguments.part :: arguments.parts]):
        print(f"\r{name}: {number} of {len(locations)}", end="", file=sys.stderr, flush=True)
        faulty_run = run_in_fork(functools.partial(run, shell, cells, options, cause_fault(location), is_plain=False))
        result = judge(location, plain_run, faultless_run, faulty_run)
        outcomes.append(result)
        if result.visible_differences or not result.is_next_report_right or not result.is_reported:
            print(f"\n{name}, {location.file}:{location.line} {location.name}: {', '.join(_problems(result))}")
            print("\n".join(result.visible_differences[: arguments.lines]), flush=True)
    return outcomes


def _problems(result: Outcome) -> Iterator[str]:
    if result.visible_differences:
        yield "the user saw something else"
    if not result.is_next_report_right:
        yield "the next report was wrong"
    if not result.is_reported:
        yield "the fault was not reported"


if __name__ == "__main__":
    main()
