"""The function as it is, on every input: what the captured programs are measured by."""

from __future__ import annotations

import contextlib
import time
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jupyter_graphbreak.report.frontends import Example, Raised
from jupyter_graphbreak.trial.difference import difference
from jupyter_graphbreak.trial.inputs import Arguments, Input, describe, other_inputs
from jupyter_graphbreak.trial.outcome import Result, TooLongError, limited, run
from jupyter_graphbreak.trial.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Seconds of running the function itself after which no further input is derived.
_PATIENCE_S = 2.0


@dataclass(frozen=True)
class Trial:
    """Another input and what the function itself does with it."""

    input: Input
    expected: Result

    def example(self) -> Example:
        """Return what is said of the input."""
        error = self.expected.raised
        raised = None if error is None else raised_by(error, "function")
        return msgspec.structs.replace(self.input.example, raised=raised)


class Eager:
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

    def trials(self, given: Sequence[Arguments]) -> list[Trial]:
        """Return other inputs with what the function does with them: those given, else some that are derived."""
        if given:
            inputs = [Input(each, describe("", each, self.fn), again=True) for each in given]
            return [Trial(each, self._try(each)) for each in [*inputs, *self._reseeded()]]
        start = time.monotonic()
        trials = []
        for each in self._derived():
            if time.monotonic() - start > _PATIENCE_S:
                break
            with contextlib.suppress(TooLongError), limited():
                trial = Trial(each, self._try(each))
                if trial.expected.raised is None or not each.special:  # else it is none that the function takes
                    trials.append(trial)
        return trials

    def holds(self, trial: Trial) -> bool:
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

    def _try(self, each: Input) -> Result:
        if each.again and self.changed:
            self._call(self.first.arguments)
            return run(self.subject.call, self.subject, each.arguments, each.seed)
        return self._call(each.arguments, each.seed)

    def _call(self, arguments: Arguments, seed: int = 0) -> Result:
        self.subject.restore(self.initial)
        return run(self.subject.call, self.subject, arguments, seed)

    def _differs(self, other: Result) -> bool:
        return other.raised is not None or difference(self.result.value, other.value) is not None


def raised_by(error: Exception, by: Literal["capture", "program", "function"]) -> Raised:
    """Return an exception as data."""
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # noqa: BLE001 - the user's __str__
        lines = []
    return Raised(type(error).__name__, lines[0] if lines else "", by)
