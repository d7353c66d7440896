"""Run the function itself on every input: its results are what other programs are compared with."""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jupyter_graphbreak.experiments.trial.inputs import Arguments, Input, describe, edge_inputs, other_inputs
from jupyter_graphbreak.experiments.trial.outcome import Result, TooLongError, limited, run
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.values import difference
from jupyter_graphbreak.report.frontends import Example, Raised

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Seconds of running the function itself after which no further input is derived.
_PATIENCE_S = 2.0


@dataclass(frozen=True)
class Trial:
    """Another input, and what the function itself does with it."""

    input: Input
    expected: Result

    def example(self) -> Example:
        """Return how a report describes the input."""
        error = self.expected.raised
        raised = None if error is None else raised_by(error, "function")
        return msgspec.structs.replace(self.input.example, raised=raised)


class Reference:
    """The function itself, on the first and on other inputs: other programs are compared with it.

    Parameters
    ----------
    fn : callable
        The function. It is copied.
    first : Input
        The first input.

    Attributes
    ----------
    result : Result
        What it did with the first input.
    changed : set of str
        The names of what it changes.
    repeatable : bool
        Whether it returns the same again.
    random : bool
        Whether it returns something else with another random seed.

    Raises
    ------
    TrialStoppedError
        If the function does something outside of its copies on the first input.
    Exception
        Whatever the function raises on the first input.
    """

    def __init__(self, fn: Any, first: Input) -> None:
        self.fn = fn
        self.first = first
        self.subject = Subject(fn)
        self.result = self._call(first.arguments)
        if self.result.raised is not None:
            raise self.result.raised
        before = self.subject.initial
        self.changed = {
            name for name, value in self.result.state.items() if name not in before or difference(before[name], value)
        }
        self.repeatable = not self._differs(self._call(first.arguments))
        self.random = self.repeatable and self._differs(self._call(first.arguments, seed=1))

    def trials(
        self, given: Sequence[Arguments] = (), most: int | None = None, patience_s: float = _PATIENCE_S
    ) -> list[Trial]:
        """Return other inputs with what the function does with them: the given ones, or else derived ones.

        Parameters
        ----------
        most : int, optional
            How many inputs to derive at most.
        patience_s : float
            After how many seconds no further one is derived.
        """
        trials: list[Trial] = []
        if given:
            inputs = [Input(arguments, describe("", arguments, self.fn), again=True) for arguments in given]
            for other in [*inputs, *self._reseeded()]:
                with contextlib.suppress(TrialStoppedError):
                    trials.append(Trial(other, self._try(other)))
            return trials
        start = time.monotonic()
        for derived in itertools.islice(self._derived(), most):
            if time.monotonic() - start > patience_s:
                break
            with contextlib.suppress(TooLongError, TrialStoppedError), limited():
                trial = Trial(derived, self._try(derived))
                if trial.expected.raised is None or not derived.special:  # otherwise the function does not take it
                    trials.append(trial)
        return trials

    def edges(self, patience_s: float = _PATIENCE_S) -> Iterator[Trial]:
        """Yield inputs at the edges of what the function can be given, with what it does with them.

        Those that the function refuses are among them.

        Parameters
        ----------
        patience_s : float
            After how many seconds no further one is derived.
        """
        start = time.monotonic()
        self.subject.restore()
        variables = {place: value for place, (value, _) in self.subject.variables().items()}
        for derived in edge_inputs(self.first.arguments, self.fn, variables):
            if time.monotonic() - start > patience_s:
                break
            trial = None
            with contextlib.suppress(TooLongError), limited():
                trial = Trial(derived, self._try(derived))
            if trial is not None and self.holds(trial):
                yield trial

    def holds(self, trial: Trial) -> bool:
        """Whether the function repeats what it did with an input; it does not where it reads the time of day."""
        again = self._try(trial.input)
        same_error = type(trial.expected.raised) is type(again.raised)
        return same_error and difference(trial.expected.value, again.value) is None

    def _derived(self) -> Iterator[Input]:
        if self.changed:
            yield replace(self.first, example=Example("the first input again", self.first.example.values), again=True)
        yield from self._reseeded()
        yield from (replace(other, again=True) for other in other_inputs(self.first.arguments, self.fn))

    def _reseeded(self) -> Iterator[Input]:
        if self.random:
            values = self.first.example.values
            yield replace(self.first, example=Example("the first input, another random seed", values), seed=1)

    def _try(self, tried: Input) -> Result:
        if tried.again and self.changed:
            self._call(self.first.arguments, gradients=False)
            return run(self.subject.call, self.subject, tried.arguments, tried.seed)
        return self._call(tried.arguments, tried.seed, state=tried.state)

    def _call(
        self,
        arguments: Arguments,
        seed: int = 0,
        *,
        gradients: bool = True,
        state: Mapping[str, Any] | None = None,
    ) -> Result:
        self.subject.restore()
        self.subject.assign(state or {})
        return run(self.subject.call, self.subject, arguments, seed, gradients=gradients)

    def _differs(self, other: Result) -> bool:
        return other.raised is not None or difference(self.result.value, other.value) is not None


def raised_by(error: Exception, by: Literal["capture", "program", "function"]) -> Raised:
    """Return an exception as data."""
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # noqa: BLE001 - the user's __str__
        lines = []
    return Raised(type(error).__name__, lines[0] if lines else "", by)
