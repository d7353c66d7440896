"""Capture a function with one front end, run the program, and give the verdict on it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.separate_cache import separate_cache
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.recording.targets import own_codes
from jupyter_graphbreak.report.figures import Summary
from jupyter_graphbreak.report.frontends import Verdict
from jupyter_graphbreak.trial.difference import differences
from jupyter_graphbreak.trial.effects import observed, seed_all
from jupyter_graphbreak.trial.guard import guarded
from jupyter_graphbreak.trial.outcome import run
from jupyter_graphbreak.trial.reference import Trial, raised_by
from jupyter_graphbreak.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.trial.subject import Subject
from jupyter_graphbreak.trial.values import difference, show

if TYPE_CHECKING:
    import warnings

    from jupyter_graphbreak.frontends.captures import Capture, Program
    from jupyter_graphbreak.recording.source_texts import FindCell
    from jupyter_graphbreak.report.frontends import Outcome, Raised
    from jupyter_graphbreak.report.schema import Report
    from jupyter_graphbreak.trial.inputs import Input
    from jupyter_graphbreak.trial.outcome import Result
    from jupyter_graphbreak.trial.reference import Reference

#: The seed while a front end captures. No run starts from it, so that no run draws the same numbers by chance.
_CAPTURE_SEED = 2
#: What makes a program wrong beside its value, and what is worth a note.
_WRONG = {"requires_grad", "gradient"}
_NOTED = {"aliasing", "zero gradient"}


class Examination:
    """One front end, the program that it captured of the function, and how that program differs from the function."""

    def __init__(
        self,
        name: str,
        capture: Capture,
        eager: Reference,
        trials: list[Trial],
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
        self._warned_in_runs: list[warnings.WarningMessage] = []
        codes = own_codes(self._subject.call)
        with separate_cache(codes), observed() as capturing:
            try:
                program = self._first(capture, find_cell)
            except TrialStoppedError as stopped:
                self.raised = raised_by(stopped, "program")
                program = None
            if program is not None:
                self._others(program, trials)
        eager_warned = {str(warning.message) for warning in eager.result.effects.warnings}
        warned = [*capturing.warnings, *self._warned_in_runs]
        self._warned = [warning for warning in warned if str(warning.message) not in eager_warned]

    def _first(self, capture: Capture, find_cell: FindCell) -> Program | None:
        """Capture the function and run the program with the same input; return the program unless it raises."""
        eager = self._eager
        seed_all(_CAPTURE_SEED)
        try:
            with guarded(self._subject.call, assigned=self._subject.assigned), self._subject.entered():
                program = capture(self._subject.call, eager.first.arguments.copy(self._subject.held()))
        except Exception as error:  # noqa: BLE001 - that it raises is the finding
            self.raised = raised_by(error, "capture")
            return None
        compiles = self.name.startswith("torch.compile")  # it captures when the program is called
        if compiles:
            with recorder.record(find_cell) as recording:
                result = self._call(program, eager.first)
            self.report = build_report(recording.records)
        else:
            result = self._call(program, eager.first)
        if result.raised is not None:
            self.raised = raised_by(result.raised, "capture" if compiles else "program")
            return None
        difference_to_eager = self._compare(eager.result, result)
        if difference_to_eager and not eager.holds(Trial(eager.first, eager.result)):
            eager.repeatable = self._values = False
            difference_to_eager = self._compare(eager.result, result)
        if difference_to_eager and eager.random and self._draws(program, result):
            self._values = False
            self.notes.append("draws other random numbers than eager from the same seed")
            difference_to_eager = self._compare(eager.result, result)
        if difference_to_eager:
            self.difference = (eager.first, difference_to_eager)
        self._side_effects(result)
        kind, expected = type(result.value).__name__, type(eager.result.value).__name__
        if kind != expected and not difference_to_eager:
            self.notes.append(f"returns a {kind} where the function returns a {expected}")
        return program

    def _draws(self, program: Program, result: Result) -> bool:
        """Whether a program draws random numbers when it runs, instead of holding those drawn at capture."""
        other = self._call(program, replace(self._eager.first, seed=1))
        return other.raised is None and difference(result.value, other.value) is not None

    def _others(self, program: Program, trials: list[Trial]) -> None:
        for trial in trials:
            try:
                result = self._call(program, trial.input)
            except TrialStoppedError as stopped:
                self.refused.append((trial.input, stopped))
                continue
            if result.raised is not None and trial.expected.raised is None:
                self.refused.append((trial.input, result.raised.with_traceback(None)))
            elif self.difference is None and (difference_to_eager := self._compare(trial.expected, result)):
                self.difference = (trial.input, difference_to_eager)

    def _call(self, program: Program, given: Input) -> Result:
        eager = self._eager
        self._subject.restore()
        if given.again and eager.changed:
            run(program, self._subject, eager.first.arguments, gradients=False)
        result = run(program, self._subject, given.arguments, given.seed)
        self._warned_in_runs += result.effects.warnings
        return result

    def _compare(self, expected: Result, result: Result) -> str | None:
        if expected.raised is not None:
            if result.raised is not None:
                return None
            raised = raised_by(expected.raised, "program")
            return f"{show(result.value)}, where eager raises {raised.type}: {raised.message}"
        in_value = difference(expected.value, result.value, values=self._values)
        if in_value is not None:
            return in_value
        in_arguments = difference(expected.arguments, result.arguments, values=self._values)
        if in_arguments is not None:
            return f"leaves its arguments otherwise: {in_arguments}"
        found = differences(expected, result, values=self._values)
        return next((item.text for item in found if item.kind in _WRONG), None)

    def _side_effects(self, result: Result) -> None:
        eager = self._eager
        found = differences(eager.result, result, values=self._values)
        self.notes += [item.text for item in found if item.kind in _NOTED]
        if eager.result.printed and not result.printed:
            self.notes.append("drops what the function prints")
        elif eager.repeatable and eager.result.printed != result.printed:
            self.notes.append("prints something else")
        for name in sorted(eager.changed):
            if difference(eager.result.state[name], result.state.get(name), values=eager.repeatable):
                self.notes.append(f"does not change {name} as the function does")

    def verdict(self, *, searched: bool) -> Verdict:
        """Return the verdict on the front end."""
        summary = self.report.summary if self.report is not None else Summary(graphs=1)
        outcome: Outcome = "captures"
        if summary.breaks or summary.graphs > 1:
            outcome = "breaks"
        if not summary.graphs:
            outcome = "eager"
        refused = next(((other, error) for other, error in self.refused if not (searched and other.special)), None)
        example, raised, notes = None, self.raised, list(self.notes)
        if self.difference is not None:
            outcome, example = "silently wrong", self.difference[0].example
        elif refused is not None:
            outcome, example, raised = "refuses", refused[0].example, raised_by(refused[1], "program")
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
            graphs=None if self.raised is not None else summary.graphs,
            breaks=None if self.raised is not None else summary.breaks,
            example=example,
            difference=self.difference[1] if self.difference is not None else None,
            raised=raised,
            warnings=list(dict.fromkeys(_first_sentence(w) for w in self._warned if not _deprecation(w))),
            deprecated=any(f"`{self.name}` is deprecated" in str(warning.message) for warning in self._warned),
            notes=notes,
        )


def _deprecation(warning: warnings.WarningMessage) -> bool:
    return "is deprecated" in str(warning.message) and "`torch." in str(warning.message)


def _first_sentence(warning: warnings.WarningMessage) -> str:
    text = " ".join(str(warning.message).split())
    sentence = re.split(r"(?<=[^.\s][^.\d\s])[.]\s", text)[0].rstrip(".")
    return f"{warning.category.__name__}: {sentence}"
