"""Run PyTorch's front ends on one function and compare what they capture with the function itself."""

from __future__ import annotations

import contextlib
import io
import random
import re
import sys
import time
import types
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import torch

from jupyter_graphbreak import _torch_compat, compiling, recorder
from jupyter_graphbreak.build import build_report
from jupyter_graphbreak.captures import captures
from jupyter_graphbreak.difference import Yielded, difference, show
from jupyter_graphbreak.frontends import Example, Frontends, Raised, Verdict
from jupyter_graphbreak.inputs import Arguments, Input, describe, other_inputs
from jupyter_graphbreak.report import Summary
from jupyter_graphbreak.subject import Subject, clone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyter_graphbreak.captures import Capture, Program
    from jupyter_graphbreak.frontends import Outcome
    from jupyter_graphbreak.report import Report

    FindCell = Callable[[str], recorder.CellText | None]

#: Seconds of running the function itself after which no further input is derived.
_PATIENCE_S = 2.0
#: While a front end captures; no run starts from it, so that numbers drawn at capture are not a run's by chance.
_CAPTURE_SEED = 2
#: An input is left out when the function runs so many lines with it: it may loop for ever.
_MOST_LINES = 20_000


def compare(
    fn: Callable[..., Any],
    first: Arguments,
    others: Sequence[Arguments] = (),
    *,
    backend: str = "eager",
    find_cell: FindCell = lambda _: None,
) -> Frontends:
    """Compare the front ends on a function.

    Parameters
    ----------
    fn : callable
        A function, a method or a module; a compiled one stands for the one that was compiled.
    first : Arguments
        What each front end captures the function with.
    others : sequence of Arguments
        What each captured program is run with besides; inputs are derived from the first where there are none.
    backend : str
        The backend of ``torch.compile``.
    find_cell : callable
        Given the file name of a code object, the cell it comes from; for the report.

    Raises
    ------
    Exception
        Whatever the function itself raises on the first input.
    """
    version = _torch_compat.require_torch()
    fn = _uncompiled(fn)
    first = first.bound(fn)
    given = [each.bound(fn) for each in others]
    with _untouched():
        eager = _Eager(fn, Input(first, describe("the first input", first, fn)))
        trials = eager.trials(given)
        examined = [_Examination(name, capture, eager, trials, find_cell) for name, capture in captures(backend)]
    report = next((each.report for each in examined if each.name == "torch.compile"), None)
    advice = [each.advice[0].text for each in report.breaks if each.advice] if report is not None else []
    return Frontends(
        function=_name(fn),
        torch=version,
        example=eager.first.example,
        others=[each.example() for each in trials],
        searched=not given,
        changes=sorted(eager.changed),
        verdicts=[each.verdict(searched=not given) for each in examined],
        advice=advice[0] if advice else None,
        report=report,
    )


def as_it_is(fn: Callable[..., Any]) -> Subject:
    """Return a copy of a function with what it depends on, to compare the front ends on it after it has run."""
    return Subject(_uncompiled(fn))


def _uncompiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    inner = _torch_compat.compiled_callable(fn)
    return fn if inner is None else inner


def _name(fn: Any) -> str:
    fn = getattr(fn, "func", fn)  # of a partial
    name = getattr(fn, "__qualname__" if hasattr(fn, "__code__") else "__name__", type(fn).__name__)
    return str(name).rpartition("<locals>.")[2]


# Runs.


@dataclass(frozen=True)
class _Result:
    """What one call did."""

    value: Any = None
    raised: Exception | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Trial:
    """Another input and what the function itself does with it."""

    input: Input
    expected: _Result

    def example(self) -> Example:
        """Return what is said of the input."""
        error = self.expected.raised
        raised = None if error is None else _raised(error, "function")
        return msgspec.structs.replace(self.input.example, raised=raised)


def _call(program: Program, subject: Subject, arguments: Arguments, seed: int = 0) -> _Result:
    given = arguments.copy()
    _seed(seed)
    value, raised = None, None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            value = program(*given.args, **given.kwargs)
            if isinstance(value, types.GeneratorType):
                value = Yielded(list(value))
        except Exception as error:  # noqa: BLE001 - that it raises is the finding
            raised = error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
    named = given.named(subject.call)
    return _Result(clone(value), raised, named, printed.getvalue(), subject.state())


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


class _Eager:
    """The function as it is: what the programs are measured by."""

    def __init__(self, fn: Any, first: Input) -> None:
        self.fn = fn
        self.first = first
        self.subject = Subject(fn)
        self.initial = self.subject.state()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.result = self._call(first.arguments)
        if self.result.raised is not None:
            raise self.result.raised
        self.warned = {str(each.message) for each in caught}
        self.changed = {
            name
            for name, value in self.result.state.items()
            if name not in self.initial or difference(self.initial[name], value)
        }
        self.repeatable = not self._differs(self._call(first.arguments))
        self.random = self.repeatable and self._differs(self._call(first.arguments, seed=1))

    def trials(self, given: Sequence[Arguments]) -> list[_Trial]:
        """Return other inputs with what the function does with them: those given, else some that are derived."""
        if given:
            inputs = [Input(each, describe("", each, self.fn), again=True) for each in given]
            return [_Trial(each, self._try(each)) for each in [*inputs, *self._reseeded()]]
        start = time.monotonic()
        trials = []
        for each in self._derived():
            if time.monotonic() - start > _PATIENCE_S:
                break
            with contextlib.suppress(_TooLongError), _limited():
                trial = _Trial(each, self._try(each))
                if trial.expected.raised is None or not each.special:  # else it is none that the function takes
                    trials.append(trial)
        return trials

    def holds(self, trial: _Trial) -> bool:
        """Whether the function still does with an input what it did, which is not so where the time of day counts."""
        return difference(trial.expected.value, self._try(trial.input).value) is None

    def _derived(self) -> Iterator[Input]:
        if self.changed:
            yield replace(self.first, example=Example("the first input again", self.first.example.values), again=True)
        yield from self._reseeded()
        yield from (replace(each, again=True) for each in other_inputs(self.first.arguments, self.fn))

    def _reseeded(self) -> Iterator[Input]:
        if self.random:
            values = self.first.example.values
            yield replace(self.first, example=Example("the first input, another random seed", values), seed=1)

    def _try(self, each: Input) -> _Result:
        if each.again and self.changed:
            self._call(self.first.arguments)
            return _call(self.subject.call, self.subject, each.arguments, each.seed)
        return self._call(each.arguments, each.seed)

    def _call(self, arguments: Arguments, seed: int = 0) -> _Result:
        self.subject.restore(self.initial)
        return _call(self.subject.call, self.subject, arguments, seed)

    def _differs(self, other: _Result) -> bool:
        return other.raised is not None or difference(self.result.value, other.value) is not None


class _TooLongError(BaseException):
    """Not an Exception, so that the function itself does not catch it."""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Stop a function that runs too many lines: with an input it was not written for it may never end."""
    library = tuple(_torch_compat.library_roots())
    lines = 0

    def count(_: Any, event: str, __: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines > _MOST_LINES:
            raise _TooLongError
        return count

    def enter(frame: types.FrameType, _: str, __: Any) -> Any:
        return None if frame.f_code.co_filename.startswith(library) else count

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def _untouched() -> Iterator[None]:
    """Keep what the runs would leave behind: random numbers, modes, output, warnings."""
    numpy = sys.modules.get("numpy")
    python_random, numpy_random = random.getstate(), numpy.random.get_state() if numpy is not None else None
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with (
            torch.random.fork_rng(devices),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            _torch_compat.quiet(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python_random)
        if numpy is not None:
            numpy.random.set_state(numpy_random)
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)


# Verdicts.


class _Examination:
    """One front end at work on the function, and what came of it."""

    def __init__(
        self,
        name: str,
        capture: Capture,
        eager: _Eager,
        trials: list[_Trial],
        find_cell: FindCell,
    ) -> None:
        self.name = name
        self.report: Report | None = None
        self.difference: tuple[Input, str] | None = None
        self.refused: list[tuple[Input, Exception]] = []
        self.raised: Raised | None = None
        self.notes: list[str] = []
        self._eager = eager
        self._values = eager.repeatable
        self._subject = Subject(eager.fn)
        self._initial = self._subject.state()
        codes = compiling.own_codes(self._subject.call)
        with _torch_compat.separate_cache(codes), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program = self._first(capture, find_cell)
            self._warned = [each for each in caught if str(each.message) not in eager.warned]
            if program is not None:
                self._others(program, trials)

    def _first(self, capture: Capture, find_cell: FindCell) -> Program | None:
        """Capture the function and run the program with the same input; return it where that went well."""
        eager = self._eager
        _seed(_CAPTURE_SEED)
        try:
            program = capture(self._subject.call, eager.first.arguments.copy())
        except Exception as error:  # noqa: BLE001 - that it raises is the finding
            self.raised = _raised(error, "capture")
            return None
        compiles = self.name.startswith("torch.compile")  # which captures when it is called
        if compiles:
            with recorder.record(find_cell) as recording:
                result = self._call(program, eager.first)
            self.report = build_report(recording.records)
        else:
            result = self._call(program, eager.first)
        if result.raised is not None:
            self.raised = _raised(result.raised, "capture" if compiles else "program")
            return None
        found = self._compare(eager.result, result)
        if found and not eager.holds(_Trial(eager.first, eager.result)):
            eager.repeatable = self._values = False
            found = self._compare(eager.result, result)
        if found and eager.random and self._draws(program, result):
            self._values = False
            self.notes.append("draws other random numbers than eager from the same seed")
            found = self._compare(eager.result, result)
        if found:
            self.difference = (eager.first, found)
        self._side_effects(result)
        kind, expected = type(result.value).__name__, type(eager.result.value).__name__
        if kind != expected and not found:
            self.notes.append(f"returns a {kind} where the function returns a {expected}")
        return program

    def _draws(self, program: Program, result: _Result) -> bool:
        """Whether a program draws random numbers at all, rather than holding those of its capture."""
        other = self._call(program, replace(self._eager.first, seed=1))
        return other.raised is None and difference(result.value, other.value) is not None

    def _others(self, program: Program, trials: list[_Trial]) -> None:
        for trial in trials:
            result = self._call(program, trial.input)
            if result.raised is not None and trial.expected.raised is None:
                self.refused.append((trial.input, result.raised.with_traceback(None)))
            elif self.difference is None and (found := self._compare(trial.expected, result)):
                self.difference = (trial.input, found)

    def _call(self, program: Program, given: Input) -> _Result:
        eager = self._eager
        self._subject.restore(self._initial)
        if given.again and eager.changed:
            _call(program, self._subject, eager.first.arguments)
        return _call(program, self._subject, given.arguments, given.seed)

    def _compare(self, expected: _Result, result: _Result) -> str | None:
        if expected.raised is not None:
            if result.raised is not None:
                return None
            raised = _raised(expected.raised, "program")
            return f"{show(result.value)}, where eager raises {raised.type}: {raised.message}"
        found = difference(expected.value, result.value, values=self._values)
        if found is not None:
            return found
        found = difference(expected.arguments, result.arguments, values=self._values)
        return f"leaves its arguments otherwise: {found}" if found is not None else None

    def _side_effects(self, result: _Result) -> None:
        eager = self._eager
        if eager.result.printed and not result.printed:
            self.notes.append("drops what the function prints")
        elif eager.repeatable and eager.result.printed != result.printed:
            self.notes.append("prints something else")
        for name in sorted(eager.changed):
            if difference(eager.result.state[name], result.state.get(name), values=eager.repeatable):
                self.notes.append(f"does not change {name} as the function does")

    def verdict(self, *, searched: bool) -> Verdict:
        """Return what is to be said."""
        counted = self.report.summary if self.report is not None else Summary(graphs=1)
        outcome: Outcome = "captures"
        if counted.breaks or counted.graphs > 1:
            outcome = "breaks"
        if not counted.graphs:
            outcome = "eager"
        refused = next(((each, error) for each, error in self.refused if not (searched and each.special)), None)
        example, raised, notes = None, self.raised, list(self.notes)
        if self.difference is not None:
            outcome, example = "silently wrong", self.difference[0].example
        elif refused is not None:
            outcome, example, raised = "refuses", refused[0].example, _raised(refused[1], "program")
        elif self.refused:
            special, error = self.refused[0]
            notes.append(f"refuses {special.example.what}: {type(error).__name__}")
        if not self._eager.repeatable and self.raised is None:
            notes.append("eager's own result is another each time; only types and shapes are compared")
        if self.raised is not None:
            outcome = "raises"
        return Verdict(
            frontend=self.name,
            outcome=outcome,
            graphs=None if self.raised is not None else counted.graphs,
            breaks=None if self.raised is not None else counted.breaks,
            example=example,
            difference=self.difference[1] if self.difference is not None else None,
            raised=raised,
            warnings=list(dict.fromkeys(_first_sentence(each) for each in self._warned if not _deprecation(each))),
            deprecated=any(f"`{self.name}` is deprecated" in str(each.message) for each in self._warned),
            notes=notes,
        )


def _deprecation(warning: warnings.WarningMessage) -> bool:
    return "is deprecated" in str(warning.message) and "`torch." in str(warning.message)


def _first_sentence(warning: warnings.WarningMessage) -> str:
    text = " ".join(str(warning.message).split())
    sentence = re.split(r"(?<=[^.\s][^.\d\s])[.]\s", text)[0].rstrip(".")
    return f"{warning.category.__name__}: {sentence}"


def _raised(error: Exception, by: Literal["capture", "program", "function"]) -> Raised:
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # noqa: BLE001 - the user's __str__
        lines = []
    return Raised(type(error).__name__, lines[0] if lines else "", by)
