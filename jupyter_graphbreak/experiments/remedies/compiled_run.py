"""Compile a program that runs on copies, and run it on several inputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.configuration import force_backend
from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak.analysis.build import build_with_files
from jupyter_graphbreak.experiments.remedies.run_comparison import RunBreaks
from jupyter_graphbreak.experiments.trial.inner_modules import InnerModules
from jupyter_graphbreak.experiments.trial.time_limit import seconds_left
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.report.schema import Device

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.remedies.change import Change
    from jupyter_graphbreak.experiments.remedies.original import UncompiledOriginal
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.reference import ReferenceCase
    from jupyter_graphbreak.experiments.trial.subject import Subject
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Report

#: The share of the remaining time after which a program does not run on further inputs.
_SHARE_OF_RUN = 0.25


@dataclass(frozen=True)
class CompiledRun:
    """One compiled run of the program on several inputs, with one report for the first and one for all others.

    It is complete if the program ran on every input that the original accepts. Otherwise, there was no time left, or
    the program could no longer work.
    """

    report: Report
    other_inputs_report: Report | None
    files: dict[str, str]
    results: list[Result]
    other_inputs_files: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True

    @property
    def breaks(self) -> list[RunBreaks]:
        """The breaks of the first call, and those on all other inputs."""
        other_inputs_breaks = (
            [RunBreaks(self.other_inputs_report, self.other_inputs_files)]
            if self.other_inputs_report is not None
            else []
        )
        return [RunBreaks(self.report, self.files), *other_inputs_breaks]

    def with_more_results(self, results: list[Result]) -> CompiledRun:
        """Return this run with the results on further inputs."""
        return replace(self, results=[*self.results, *results])

    def compiles_same_start(self, original: CompiledRun) -> bool:
        """Return whether Dynamo compiled the original's first function, or captured at least as many operations."""
        first_function = [frame.function for frame in original.report.frames[:1]]
        captured_as_much = self.report.summary.ops >= original.report.summary.ops > 0
        return captured_as_much or set(first_function) <= {frame.function for frame in self.report.frames}


#: Returns whether a program may still work, given a run of it. If not, it does not run on further inputs.
IsPromising = Callable[[CompiledRun], bool]


class ProgramOnCopies(NamedTuple):
    """A function to compile while a change is applied, the copies that it uses, and a function that finds its cells."""

    function: Callable[..., Any]
    subject: Subject
    change: Change
    find_cell: FindCell


def run_on_inputs(
    original: UncompiledOriginal,
    backend: Any,
    program: ProgramOnCopies,
    cases: list[ReferenceCase],
    is_promising: IsPromising,
) -> CompiledRun:
    """Compile a program with a backend, and run it on inputs of the original as long as it is promising."""
    _, subject, change, find_cell = program
    backend = clone_backend(backend)

    def compile_with_backend(function: Any) -> Any:
        return original.entry.compile(function, backend)

    inner = InnerModules(subject, change.inner_targets, compile_with_backend)
    compiled_call = (
        inner.wrap_call(program.function) if change.compiles_inner_function else compile_with_backend(program.function)
    )
    backend_to_force = backend if change.compiles_inner_function else None
    start, time_left = time.monotonic(), seconds_left()

    def run_compiled(
        chosen_cases: list[ReferenceCase], earlier_run: CompiledRun | None = None
    ) -> tuple[Report, dict[str, str], list[Result]]:
        results: list[Result] = []
        with force_backend(backend_to_force), recorder.record(find_cell) as recording:
            recording.record_device(Device("auto", default_device_name()))
            for case in chosen_cases:
                is_late = time.monotonic() - start > time_left * _SHARE_OF_RUN
                if earlier_run is not None and (is_late or not is_promising(earlier_run.with_more_results(results))):
                    break
                results.append(original.run(compiled_call, subject, case))
        return *build_with_files(recording.records), results

    report, files, results = run_compiled(cases[:1])
    first_run = CompiledRun(report, None, files, results)
    is_newly_raising = results[0].error is not None and cases[0].expected_result.error is None
    if len(cases) == 1 or is_newly_raising or not is_promising(first_run):
        return first_run
    accepted_cases = [case for case in cases[1:] if case.expected_result.error is None]
    other_inputs_report, other_inputs_files, more_results = run_compiled(accepted_cases, first_run)
    run = CompiledRun(
        report,
        other_inputs_report,
        files,
        [*results, *more_results],
        other_inputs_files,
        is_complete=len(more_results) == len(accepted_cases),
    )
    refused_cases = cases[1 + len(accepted_cases) :]
    if refused_cases and run.is_complete:  # breaks on inputs that both programs refuse do not matter
        run = run.with_more_results(run_compiled(refused_cases, run)[2])
    return run
