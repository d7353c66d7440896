"""Capture a function with each front end, run the captured programs, and compare them with the function."""

from __future__ import annotations

import contextlib
import functools
import re
import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.compiled import has_cached_code, uncompiled_callable
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend, separate_cache
from jupyter_graphbreak._torch_compat.toolchain import require_torch
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.difference import differences
from jupyter_graphbreak.experiments.trial.effects import capture_effects, seed_all
from jupyter_graphbreak.experiments.trial.entry import callable_name
from jupyter_graphbreak.experiments.trial.inputs import Input, example_of
from jupyter_graphbreak.experiments.trial.memory import StorageRecorder
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.experiments.trial.reference import Reference, ReferenceCase, describe_raised
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, require_time
from jupyter_graphbreak.experiments.trial.values import describe_difference, short_repr
from jupyter_graphbreak.faults import internal_error_sentence, suppress_faults
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.recording.targets import user_code_objects
from jupyter_graphbreak.report.frontends import Example, Frontends, Verdict
from jupyter_graphbreak.report.schema import Diagnostic
from jupyter_graphbreak.report.summary import Summary

if TYPE_CHECKING:
    import warnings
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak.experiments.trial.memory import StorageCopy
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.swapped_bindings import NameSnapshot
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.frontends import Outcome, Raised
    from jupyter_graphbreak.report.schema import Report

    Program = Callable[..., Any]
    Capture = Callable[[Any, Arguments], Program]


def _wrap_in_module(fn: Any) -> Any:
    """Return a module that wraps a callable, because ``torch.export`` accepts only modules."""

    def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    namespace = getattr(fn, "__globals__", None)
    if namespace is not None:
        # Otherwise Dynamo imports the function's module by name and writes to the globals of that module (torch 2.9).
        forward = types.FunctionType(forward.__code__, namespace, "forward", None, forward.__closure__)
    module = type("AsModule", (torch.nn.Module,), {"forward": forward})()
    # A front end looks for parameters in the attributes of this module.
    module.owner = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    return module


def _capture_with_trace(fn: Any, arguments: Arguments) -> Program:
    if not arguments.kwargs:
        program: Program = torch.jit.trace(fn, arguments.args)
        return program
    named_arguments = arguments.by_name(fn)
    traced_module = torch.jit.trace(fn, example_kwarg_inputs=named_arguments)
    return lambda *args, **kwargs: traced_module(**Arguments(*args, **kwargs).by_name(fn))


def _capture_with_compile(fn: Any, _: Arguments, *, backend: str, fullgraph: bool) -> Program:
    return torch.compile(fn, backend=clone_backend(backend), fullgraph=fullgraph)


def _capture_with_export(fn: Any, arguments: Arguments, *, strict: bool) -> Program:
    module = fn if isinstance(fn, torch.nn.Module) else _wrap_in_module(fn)
    code = getattr(module.forward, "__code__", None)
    if strict and code is not None and has_cached_code(code):
        module = _wrap_in_module(fn)  # strict export would make Dynamo forget the compiled code of the module
    return torch.export.export(module, arguments.args, arguments.kwargs or None, strict=strict).module()


def capture_functions(backend: str) -> list[tuple[str, Capture]]:
    """Return the name of each front end, and the function that captures a callable with the front end."""
    return [
        ("torch.jit.trace", _capture_with_trace),
        ("torch.jit.script", lambda fn, _: torch.jit.script(fn)),
        ("torch.fx.symbolic_trace", lambda fn, _: torch.fx.symbolic_trace(fn)),
        ("torch.compile", functools.partial(_capture_with_compile, backend=backend, fullgraph=False)),
        ("torch.compile(fullgraph=True)", functools.partial(_capture_with_compile, backend=backend, fullgraph=True)),
        ("torch.export.export", functools.partial(_capture_with_export, strict=False)),
        ("torch.export.export(strict=True)", functools.partial(_capture_with_export, strict=True)),
    ]


#: The random seed during capture. Runs use different seeds, so that they draw the numbers of the capture only if the
#: program contains these numbers.
_CAPTURE_SEED = 2
#: The kinds of differences, besides different values, that make a program wrong.
_WRONG_KINDS = {"requires_grad", "further gradient", "gradient"}
#: The kinds of differences that a note mentions.
_NOTED_KINDS = {"aliasing", "lost alias", "zero gradient", "needless gradient"}


class FrontendExamination:
    """The examination of one front end: how the captured program differs from the function."""

    def __init__(
        self, name: str, capture: Capture, eager: Reference, cases: list[ReferenceCase], find_cell: FindCell
    ) -> None:
        self.name = name
        self.report: Report | None = None
        self.difference: tuple[Input, str] | None = None
        self.rejected_inputs: list[tuple[Input, Exception]] = []
        self.raised_error: Raised | None = None
        self.notes: list[str] = []
        self._eager = eager
        self._compares_values = eager.is_repeatable
        self._subject = Subject(eager.fn, eager.first_input.arguments)
        self._warnings_in_runs: list[warnings.WarningMessage] = []
        # Strict export compiles a frame of this package.
        code_objects = [
            *user_code_objects(self._subject.function),
            _wrap_in_module(self._subject.function).forward.__code__,
        ]
        with separate_cache(code_objects), capture_effects() as effects, self._subject.restore_on_exit():
            try:
                program = self._run_first_input(capture, find_cell)
            except TrialStoppedError as error:
                self.raised_error = describe_raised(error, "program")
                program = None
            if program is not None:
                self._run_other_inputs(program, cases)
        eager_warnings = {str(warning.message) for warning in eager.result.effects.warnings}
        warnings_in_capture = [*effects.warnings, *self._warnings_in_runs]
        self._new_warnings = [warning for warning in warnings_in_capture if str(warning.message) not in eager_warnings]

    def _run_first_input(self, capture: Capture, find_cell: FindCell) -> Program | None:
        """Capture the function, run the program with the first input, and return the program unless an error occurs."""
        eager = self._eager
        seed_all(_CAPTURE_SEED)
        try:
            with self._subject.activate(), self._subject.prevent_effects():
                arguments = self._subject.replace_with_copies(eager.first_input.arguments)
                program = capture(self._subject.function, self._subject.copy_arguments(arguments))
        except Exception as error:  # noqa: BLE001 - the exception is the finding
            self.raised_error = describe_raised(error, "capture")
            return None
        compiles = self.name.startswith("torch.compile")  # torch.compile captures when the program is called
        if compiles:
            with recorder.record(find_cell) as recording:
                result = self._run(program, eager.first_input)
            self.report = build_report(recording.records)
        else:
            result = self._run(program, eager.first_input)
        if result.error is not None:
            self.raised_error = describe_raised(result.error, "capture" if compiles else "program")
            return None
        mismatch = self._describe_mismatch(eager.result, result)
        if mismatch and not eager.has_repeatable_result(ReferenceCase(eager.first_input, eager.result)):
            eager.is_repeatable = self._compares_values = False
            mismatch = self._describe_mismatch(eager.result, result)
        if mismatch and eager.is_random and self._draws_at_runtime(program, result):
            self._compares_values = False
            self.notes.append("draws different random numbers than eager code from the same seed")
            mismatch = self._describe_mismatch(eager.result, result)
        if mismatch:
            self.difference = (eager.first_input, mismatch)
        self._note_side_effects(result)
        actual_type, expected_type = type(result.value).__name__, type(eager.result.value).__name__
        if actual_type != expected_type and not mismatch:
            self.notes.append(f"returns type `{actual_type}`; the function returns `{expected_type}`")
        return program

    def _draws_at_runtime(self, program: Program, result: Result) -> bool:
        """Return whether a program draws new random numbers in each run, instead of reusing those of the capture."""
        other = self._run(program, replace(self._eager.first_input, seed=1))
        return other.error is None and describe_difference(result.value, other.value) is not None

    def _run_other_inputs(self, program: Program, cases: list[ReferenceCase]) -> None:
        for case in cases:
            try:
                result = self._run(program, case.input)
            except TrialStoppedError as error:
                self.rejected_inputs.append((case.input, error))
                continue
            if result.error is not None and case.expected_result.error is None:
                self.rejected_inputs.append((case.input, result.error.with_traceback(None)))
            elif self.difference is None and (mismatch := self._describe_mismatch(case.expected_result, result)):
                self.difference = (case.input, mismatch)

    def _run(self, program: Program, input_: Input) -> Result:
        self._subject.restore()
        result = self._eager.run_after_preceding_calls(program, self._subject, input_)
        self._warnings_in_runs += result.effects.warnings
        return result

    def _describe_mismatch(self, expected: Result, result: Result) -> str | None:
        if expected.error is not None:
            if result.error is not None:
                return None
            raised_error = describe_raised(expected.error, "program")
            return f"{short_repr(result.value)}, but eager code raises {raised_error.type}: {raised_error.message}"
        value_difference = describe_difference(expected.value, result.value, compares_values=self._compares_values)
        if value_difference is not None:
            return value_difference
        argument_difference = describe_difference(
            expected.arguments, result.arguments, compares_values=self._compares_values
        )
        if argument_difference is not None:
            return f"changes its arguments differently: {argument_difference}"
        all_differences = differences(expected, result, compares_values=self._compares_values)
        return next((item.text for item in all_differences if item.kind in _WRONG_KINDS), None)

    def _note_side_effects(self, result: Result) -> None:
        eager = self._eager
        all_differences = differences(eager.result, result, compares_values=self._compares_values)
        self.notes += [item.text for item in all_differences if item.kind in _NOTED_KINDS]
        if eager.result.stdout and not result.stdout:
            self.notes.append("drops what the function prints")
        elif eager.is_repeatable and eager.result.stdout != result.stdout:
            self.notes.append("prints different text")
        for name in sorted(eager.changed_names):
            if describe_difference(
                eager.result.state[name], result.state.get(name), compares_values=eager.is_repeatable
            ):
                self.notes.append(f"does not change {name} as the function does")

    def verdict(self, *, has_derived_inputs: bool) -> Verdict:
        """Return the verdict on the front end.

        If the inputs were derived from the first one, a program may reject the special ones.
        """
        summary = self.report.summary if self.report is not None else Summary(graphs=1)
        outcome: Outcome = "captures"
        if summary.breaks or summary.graphs > 1:
            outcome = "breaks"
        if not summary.graphs:
            outcome = "eager"
        rejection = next(
            ((other, error) for other, error in self.rejected_inputs if not (has_derived_inputs and other.is_special)),
            None,
        )
        example, raised_error, notes = None, self.raised_error, list(self.notes)
        if self.difference is not None:
            outcome, example = "silently wrong", self.difference[0].example
        elif rejection is not None:
            outcome, example, raised_error = "refuses", rejection[0].example, describe_raised(rejection[1], "program")
        elif self.rejected_inputs:
            special_input, error = self.rejected_inputs[0]
            notes.append(f"refuses {special_input.example.what}: {type(error).__name__}")
        if not self._eager.is_repeatable and self.raised_error is None:
            notes.append("the eager result differs in each run, so only types and shapes are compared")
        if self.raised_error is not None:
            outcome = "raises"
        return Verdict(
            frontend=self.name,
            outcome=outcome,
            graphs=None if self.raised_error is not None else summary.graphs,
            breaks=None if self.raised_error is not None else summary.breaks,
            example=example,
            difference=self.difference[1] if self.difference is not None else None,
            raised=raised_error,
            warnings=list(dict.fromkeys(_first_sentence(w) for w in self._new_warnings if not _is_deprecation(w))),
            deprecated=any(f"`{self.name}` is deprecated" in str(warning.message) for warning in self._new_warnings),
            notes=notes,
        )


def _is_deprecation(warning: warnings.WarningMessage) -> bool:
    return "is deprecated" in str(warning.message) and "`torch." in str(warning.message)


def _first_sentence(warning: warnings.WarningMessage) -> str:
    text = " ".join(str(warning.message).split())
    sentence = re.split(r"(?<=[^.\s][^.\d\s])[.]\s", text)[0].rstrip(".")
    return f"{warning.category.__name__}: {sentence}"


def compare(
    fn: Callable[..., Any],
    first_arguments: Arguments,
    further_arguments: Sequence[Arguments] = (),
    *,
    backend: str = "eager",
    find_cell: FindCell = cell_of_shell,
) -> Frontends:
    """Compare the front ends on a function, a method or a module, with the original of a compiled callable.

    Each front end captures it with ``first_arguments``. The captured programs are then called with further arguments,
    or with inputs derived from the first ones. Raises any exception of the function on the first input, and a
    TrialStoppedError if the function was stopped before it had an effect outside of its copies.
    """
    version = require_torch()
    fn = uncompiled_callable(fn)
    first_arguments = first_arguments.to_positional(fn)
    further_arguments = [arguments.to_positional(fn) for arguments in further_arguments]
    example = example_of("the first input", first_arguments, fn)
    changes: list[str] = []
    cases: list[ReferenceCase] = []
    verdicts: list[Verdict] = []
    report: Report | None = None
    diagnostics: list[Diagnostic] = []

    def note(activity: str, fault: Exception) -> None:
        diagnostics.append(Diagnostic("error", internal_error_sentence(activity, fault)))

    remaining_names = [name for name, _ in capture_functions(backend)]
    with sandbox_runs(), contextlib.suppress(TimeUpError):
        eager = Reference(fn, Input(first_arguments, example))
        changes = sorted(eager.changed_names)
        cases = eager.cases(further_arguments)
        for name, capture in capture_functions(backend):
            require_time()
            with suppress_faults(f"examining {name}", note, errors_to_raise=(TrialStoppedError,)):
                examination = FrontendExamination(name, capture, eager, cases, find_cell)
                verdicts.append(examination.verdict(has_derived_inputs=not further_arguments))
                if name == "torch.compile":
                    report = examination.report
                del examination  # frees the copy of the function, the program and its results
            remaining_names.remove(name)
            eager.subject.memory.collect_garbage()
    advice = [b.advice[0].text for b in report.breaks if b.advice] if report is not None else []
    return Frontends(
        function=callable_name(fn),
        torch=version,
        example=example,
        others=[case.example() for case in cases],
        searched=not further_arguments,
        changes=changes,
        verdicts=verdicts,
        advice=advice[0] if advice else None,
        report=report,
        left_out=remaining_names,
        diagnostics=diagnostics,
    )


def frontends_without_verdicts(fn: Callable[..., Any], arguments: Arguments, report: Report) -> Frontends:
    """Return a comparison without verdicts, for the reason that a report's diagnostics state.

    If the function was stopped before it had an effect outside of its copies, the report covers what ``torch.compile``
    did until then, and lists the effect.
    """
    return Frontends(
        function=callable_name(fn),
        torch=require_torch(),
        example=example_of("the first input", arguments, fn),
        others=[],
        searched=False,
        verdicts=[],
        report=report,
        effects=report.effects,
    )


def frontends_after_fault(fn: Callable[..., Any], diagnostic: Diagnostic) -> Frontends:
    """Return a comparison without verdicts, with a diagnostic that states the reason."""
    name = str(getattr(fn, "__name__", type(fn).__name__))
    return Frontends(name, require_torch(), Example("", ""), [], searched=False, verdicts=[], diagnostics=[diagnostic])


class ComparisonCopies(NamedTuple):
    """Copies of a function, its inputs, the memory of large tensors, and the objects that uncopied code refers to."""

    function: Callable[..., Any]
    inputs: list[Arguments]
    storage_copies: tuple[StorageCopy, ...]
    name_snapshot: NameSnapshot


def copy_for_comparison(
    fn: Callable[..., Any], first_arguments: Arguments, further_arguments: Sequence[Arguments]
) -> ComparisonCopies:
    """Copy a function with its state and inputs, to compare the front ends after the function has run."""
    memory = StorageRecorder()
    subject = Subject(uncompiled_callable(fn), first_arguments, memory)
    inputs = [subject.arguments or first_arguments, *map(subject.copy_arguments, further_arguments)]
    return ComparisonCopies(subject.function, inputs, tuple(memory.storage_copies), subject.name_snapshot())
