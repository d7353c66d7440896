"""Compare a run of a changed program with a run of the original, and describe the differences.

Breaks are compared by location, because their causes may change.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak.experiments.remedies.application import CannotApplyError, ThreadRunsChangeError
from jupyter_graphbreak.experiments.trial.difference import is_raised_by_operation
from jupyter_graphbreak.experiments.trial.named_objects import named_tensors
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.faults import error_headline
from jupyter_graphbreak.knowledge.causes import known_cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.trial.difference import Difference, DifferenceKind
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.reference import ReferenceCase
    from jupyter_graphbreak.report.remedies import RemedyVerdict
    from jupyter_graphbreak.report.schema import Break, Report

#: The maximum number of characters of a break's code to show.
_MAX_CODE = 60
#: Parts of the messages of tensors that cannot become a truth value or a number.
_ERRORS_OF_CONVERSION = ("Boolean value of Tensor", "cannot be converted to Scalar")
#: The file name of a source and the number of a line.
FileLine = tuple[str, int]


class RunBreaks(NamedTuple):
    """The breaks of one run, and the file name of each source of its report, by the source's id."""

    report: Report
    files: Mapping[str, str]

    def breaks_with_lines(self) -> Iterator[tuple[Break, frozenset[FileLine]]]:
        """Yield each break with its lines. There are none if the location is not known."""
        for break_ in self.report.breaks:
            yield break_, _lines_of(break_, self.files)


@dataclass(frozen=True)
class BreakComparison:
    """The breaks of a program, compared with those of the changed program.

    The lines of removed breaks no longer break on any input. If the lines of a break now break only for a different
    cause, ``breaks_with_different_cause`` contains one of the breaks that are there now, by the old break's id.
    ``new_breaks`` are on lines where the original program does not break, in the order in which they occurred.
    """

    removed_break_ids: frozenset[str]
    breaks_with_different_cause: Mapping[str, Break]
    new_breaks: list[Break]


def compare_breaks(
    runs_before: Sequence[RunBreaks], runs_after: Sequence[RunBreaks], texts: Mapping[str, tuple[str, str]]
) -> BreakComparison:
    """Compare the breaks of a program with those of the changed program, both on all inputs.

    The first of ``runs_before`` is the program's first call, to whose ids the result refers. ``texts`` contains the old
    and the new text of each changed file, by the file's name.
    """
    files = _ChangedFiles(texts)
    breaks_before = [
        _OldBreak(break_, lines, files.new_lines(lines))
        for run in runs_before
        for break_, lines in run.breaks_with_lines()
    ]
    breaks_after = [pair for run in runs_after for pair in run.breaks_with_lines()]
    first_call_breaks = breaks_before[: len(runs_before[0].report.breaks)]
    remaining_by_id = {
        old.break_.id: _remaining_breaks(old, breaks_before, breaks_after, files) for old in first_call_breaks
    }
    breaks_with_different_cause = {
        old.break_.id: breaks_now[0]
        for old in first_call_breaks
        if (breaks_now := remaining_by_id[old.break_.id])
        and all(new_break.gb_type != old.break_.gb_type for new_break in breaks_now)
    }
    new_breaks = [
        new_break
        for new_break, new_lines in breaks_after
        if not any(_is_on_same_line(old.break_, old.new_lines, new_break, new_lines) for old in breaks_before)
    ]
    removed_break_ids = frozenset(ident for ident, breaks_now in remaining_by_id.items() if not breaks_now)
    return BreakComparison(removed_break_ids, breaks_with_different_cause, new_breaks)


class _OldBreak(NamedTuple):
    """A break of the program, with its lines in the program and in the changed one."""

    break_: Break
    lines: frozenset[FileLine]
    new_lines: frozenset[FileLine]


class _ChangedFiles:
    """Maps the lines of files before a change to their lines after it, as :func:`compare_breaks` needs."""

    def __init__(self, old_and_new_texts: Mapping[str, tuple[str, str]]) -> None:
        self._line_maps = {name: _line_map(*texts) for name, texts in old_and_new_texts.items()}
        self._hunks = {name: _replaced_blocks(*texts) for name, texts in old_and_new_texts.items()}

    def new_lines(self, lines: Iterable[FileLine]) -> frozenset[FileLine]:
        """Return the lines of the changed files that correspond to the given lines."""
        maps = self._line_maps
        return frozenset((name, new) for name, line in lines for new in (maps[name][line] if name in maps else {line}))

    def are_replaced_together(self, one: Iterable[FileLine], other: Iterable[FileLine]) -> bool:
        """Return whether the change replaced lines of both groups together."""
        return not self._hunks_of(one).isdisjoint(self._hunks_of(other))

    def _hunks_of(self, lines: Iterable[FileLine]) -> set[FileLine]:
        return {(name, self._hunks[name][line]) for name, line in lines if line in self._hunks.get(name, {})}


def _remaining_breaks(
    old: _OldBreak,
    breaks_before: Sequence[_OldBreak],
    breaks_after: Sequence[tuple[Break, frozenset[FileLine]]],
    files: _ChangedFiles,
) -> list[Break]:
    """Return the breaks of the changed program on the new lines of an old break.

    The result lacks breaks that a different line already had before the change.
    """
    # If a change replaced the lines of both breaks together, both are on the same new lines.
    breaks_elsewhere = [
        other
        for other in breaks_before
        if other.break_ is not old.break_
        and other.lines.isdisjoint(old.lines)
        and not files.are_replaced_together(other.lines, old.lines)
    ]
    return [
        new_break
        for new_break, new_lines in breaks_after
        if _is_on_same_line(old.break_, old.new_lines, new_break, new_lines)
        and (
            cause_of(old.break_) == cause_of(new_break)
            or not any(
                cause_of(other.break_) == cause_of(new_break) and new_lines & other.new_lines
                for other in breaks_elsewhere
            )
        )
    ]


def _is_on_same_line(
    old_break: Break, old_lines: frozenset[FileLine], new_break: Break, new_lines: frozenset[FileLine]
) -> bool:
    """Return whether two breaks share a line or, if their lines are not known, have the same type."""
    return bool(old_lines & new_lines) if old_lines or new_lines else old_break.gb_type == new_break.gb_type


def cause_of(break_: Break) -> tuple[str, str]:
    """Return the type of a break and the code that breaks, which identify its cause in every run."""
    return break_.gb_type, code_at(break_)


def code_at(break_: Break) -> str:
    """Return the code that breaks; empty if it is not known."""
    return (break_.location.code or "") if break_.location is not None else ""


def _lines_of(break_: Break, files: Mapping[str, str]) -> frozenset[FileLine]:
    location = break_.location
    if location is None:
        return frozenset()
    name = files.get(location.source, location.source)
    return frozenset((name, line) for line in range(location.line, max(location.end_line, location.line) + 1))


def _line_map(old_text: str, new_text: str) -> dict[int, set[int]]:
    """Map each line of a text to its lines in the changed text, or to the lines that replaced it."""
    old_lines, new_lines = old_text.split("\n"), new_text.split("\n")
    line_map: dict[int, set[int]] = defaultdict(set)
    added_by_text: dict[str, set[int]] = defaultdict(set)
    lost_lines: list[int] = []
    for tag, first, last, new_first, new_last in difflib.SequenceMatcher(
        None, old_lines, new_lines, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            line_map.update((first + step + 1, {new_first + step + 1}) for step in range(last - first))
            continue
        for number in range(new_first, new_last):
            added_by_text[new_lines[number].strip()].add(number + 1)
        for number in range(first, last):
            line_map[number + 1] = set(range(new_first + 1, new_last + 1))
            lost_lines.append(number)
    for number in lost_lines:  # a block that was moved, or whose indentation changed
        if old_lines[number].strip():
            line_map[number + 1] |= added_by_text[old_lines[number].strip()]
    return line_map


def _replaced_blocks(old_text: str, new_text: str) -> dict[int, int]:
    """Map each line that a change replaces to the index of the first line in its block of replaced lines."""
    matcher = difflib.SequenceMatcher(None, old_text.split("\n"), new_text.split("\n"), autojunk=False)
    return {
        number + 1: first
        for tag, first, last, *_ in matcher.get_opcodes()
        if tag == "replace"
        for number in range(first, last)
    }


def verdict_of_error(error: BaseException) -> tuple[RemedyVerdict, str]:
    """Return the verdict on a program that raised an error or was stopped, and the reason."""
    match error:
        case TrialStoppedError():
            return "not tried", stop_reason(error)
        case ThreadRunsChangeError():
            return "not tried", str(error)
        case SyntaxError():
            return "fails", f"not valid Python: {error.msg}" + (f", line {error.lineno}" if error.lineno else "")
        case CannotApplyError():
            return "fails", f"cannot be applied: {error}"
    return "fails", f"raises {error_headline(error)}"


def stop_reason(error: TrialStoppedError) -> str:
    """Return why a trial was stopped, as the reason of a verdict."""
    return f"the trial was stopped before it {error.effect.description}"


def compared_aspects(results: list[Result]) -> list[str]:
    """Return the aspects that a comparison of results covers, in the words of the evidence."""
    aspects = ["values"]
    aspects += ["gradients"] if any(result.gradients for result in results) else []
    aspects += ["arguments"] if any(result.arguments for result in results) else []
    aspects += ["output"] if any(result.effects.stdout or result.effects.stderr for result in results) else []
    aspects += ["warnings"] if any(result.effects.warning_messages for result in results) else []
    aspects += ["logs"] if any(result.effects.log_records for result in results) else []
    aspects += ["exceptions"] if any(result.error is not None for result in results) else []
    return [*aspects, "aliasing", "state", "random numbers"]


def verdict_of_lost_compilation(
    original_report: Report, changed_report: Report, *, compiles_different_function: bool = False
) -> tuple[RemedyVerdict, str] | None:
    """Return the verdict on a change that leaves nothing to compile or runs code eagerly; ``None`` for other changes.

    A change that compiles a different function must compile something, even if the original did not.
    """
    if (original_report.summary.ops or compiles_different_function) and not changed_report.summary.ops:
        return "fails", "then nothing is compiled"
    functions_given_up = _functions_over_recompile_limit(changed_report) - _functions_over_recompile_limit(
        original_report
    )
    if functions_given_up:
        return "another break", f"then {min(functions_given_up)} is compiled too often and runs eagerly"
    return None


def _functions_over_recompile_limit(report: Report) -> set[str]:
    """Return the functions that run eagerly, with everything they call, because they were compiled too often."""
    return {skipped.function for skipped in report.skipped if skipped.kind in {"recompile limit", "shared wrapper"}}


def break_summary(graph_break: Break, runs: Sequence[RunBreaks], texts: Mapping[str, tuple[str, str]]) -> str:
    """Describe a break of a changed program, with the name of its source unless that is the only cell.

    The line is that of the old text, if the change left it unchanged. The texts are those of :func:`compare_breaks`.
    """
    location = graph_break.location
    if location is None:
        return f"elsewhere: {graph_break.gb_type}"
    runs = [run for run in runs if any(break_ is graph_break for break_ in run.report.breaks)]
    sources = [source for run in runs for source in run.report.sources if source.id == location.source]
    cells = {source.name for run in runs for source in run.report.sources if source.kind == "cell"}
    names = {run.files.get(location.source, location.source) for run in runs} & set(texts)
    line = _original_line(*texts[names.pop()], location.line) if names else str(location.line)
    file = f" of {sources[0].name}" if sources and cells != {sources[0].name} else ""
    title = known_cause(graph_break.gb_id, graph_break.gb_type, graph_break.context, location.code).title
    code = re.sub(r"(?<=[(\[]) ", "", " ".join((location.code or "").split()))
    code = code if len(code) <= _MAX_CODE else f"{code[:_MAX_CODE]}..."
    is_word = title[1:].partition(" ")[0].islower()  # not a class such as UserError
    return f"on line {line}{file}, {code}: {title[:1].lower() + title[1:] if is_word else title}"


def _original_line(old_text: str, new_text: str, line: int) -> str:
    """Return the old number of a line of the changed text, or else its new number and "of the changed code"."""
    old_lines, code = old_text.split("\n"), new_text.split("\n")[line - 1].strip()
    numbers = [number for number, new_numbers in _line_map(old_text, new_text).items() if line in new_numbers]
    unchanged_numbers = [number for number in numbers if old_lines[number - 1].strip() == code]
    return str(unchanged_numbers[0]) if len(unchanged_numbers) == 1 else f"{line} of the changed code"


def is_refusal_by_operation(difference: Difference, case: ReferenceCase) -> bool:
    """Return whether both programs raise for an input, with different errors, the original in a PyTorch operation."""
    error = case.expected_result.error
    return difference.kind == "different error" and error is not None and is_raised_by_operation(error)


def _is_refused_by_operation(case: ReferenceCase) -> bool:
    """Return whether an operation of the original refuses an edge input, apart from conversions to a Python value.

    A program may rely on the error of a test of several elements, for which ``torch.where`` returns a result.
    """
    error = case.expected_result.error
    is_by_operation = error is not None and not case.input.different_kind and is_raised_by_operation(error)
    return is_by_operation and not any(text in str(error) for text in _ERRORS_OF_CONVERSION)


def is_refused_or_nan(case: ReferenceCase) -> bool:
    """Return whether few callers pass an input, because the original raises for it or a plain number in it is NaN."""
    return case.expected_result.error is not None or case.input.has_nan_number


def has_finite_results(case: ReferenceCase) -> bool:
    """Return whether the original returns finite numbers with finite gradients."""
    return _is_finite((case.expected_result.value, case.expected_result.gradients))


def without_expected_edge_differences(diffs: list[Difference], case: ReferenceCase, result: Result) -> list[Difference]:
    """Drop differences due to compiling or computing both branches, on inputs that the function is not meant for.

    PyTorch's operations use different error messages while a graph is captured, and a change may leave out an operation
    that refuses an input. Gradients are compared only if the original returns finite numbers: for infinite ones they
    are undefined in both programs.
    """
    expected = case.expected_result
    if case.input.compares_errors_only and (expected.error is not None or result.error is None):
        return []
    if result.error is None and _is_refused_by_operation(case):
        return []
    if expected.error is not None and result.error is not None:
        # An input that both programs refuse is not a difference, even if their output before it differs.
        counting_kind: DifferenceKind | None = None if is_raised_by_operation(expected.error) else "different error"
        return [difference for difference in diffs if not difference.is_acceptable or difference.kind == counting_kind]
    if not has_finite_results(case):
        # An undefined gradient is not zero even if none is needed.
        renamed_diffs = [
            replace(difference, kind="needless gradient") if difference.kind == "further gradient" else difference
            for difference in diffs
        ]
        return [difference for difference in renamed_diffs if difference.kind != "gradient"]
    return diffs


def _only_fails_lookup(case: ReferenceCase, diffs: list[Difference]) -> bool:
    """Return whether only lookups fail, because a number in the state changed and the list that it counts did not."""
    errors = ("raises IndexError", "raises KeyError")
    counted_differences = [difference for difference in diffs if not difference.is_acceptable]
    return bool(case.input.state and counted_differences) and all(
        item.text.startswith(errors) for item in counted_differences
    )


@dataclass(frozen=True)
class EdgeFindings:
    """The differences of a changed program on edge inputs.

    ``disqualifying_difference`` means that the change does not work. ``noted_difference`` is the first difference on
    tensors of a different kind, or on inputs that the original refuses; ``differences`` leaves such differences out.
    """

    differences: list[Difference]
    input_count: int = 0
    disqualifying_difference: str | None = None
    noted_difference: str | None = None

    def with_inputs(
        self,
        pairs: Iterable[tuple[ReferenceCase, list[Difference]]],
        *,
        is_only_noted: Callable[[ReferenceCase], bool] = lambda case: bool(case.input.different_kind),
    ) -> EdgeFindings:
        """Return these findings plus further inputs and their differences, up to the first disqualifying difference.

        Differences on inputs for which ``is_only_noted`` is true do not disqualify the change, but the first of them is
        noted. The same applies if a number in the state no longer fits a list, such as the number of a module's layers.
        """
        findings = self
        for case, case_diffs in pairs:
            findings = replace(findings, input_count=findings.input_count + 1)
            disqualifying_difference = next(
                (difference.text for difference in case_diffs if not difference.is_acceptable), None
            )
            if not is_only_noted(case) and not _only_fails_lookup(case, case_diffs):
                findings = replace(findings, differences=_with_new_kinds(findings.differences, case_diffs))
                if disqualifying_difference is not None:
                    return replace(
                        findings, disqualifying_difference=f"{disqualifying_difference}, on {case.input.description}"
                    )
                continue
            # A result that requires gradients or has different strides cannot be used everywhere. An optimizer skips a
            # parameter without a gradient, but its weight decay changes one whose gradient is zero. Output that moved
            # behind an in-place operation shows other numbers if a conversion such as `float()` returns its argument.
            further_kinds: set[DifferenceKind] = {
                "needless gradient", "zero gradient", "layout", "lost alias", "printed", "stderr", "logged",
                "random state",
            }  # fmt: skip
            further_difference = next((item.text for item in case_diffs if item.kind in further_kinds), None)
            noted_difference = disqualifying_difference or further_difference
            if noted_difference is not None and findings.noted_difference is None:
                findings = replace(findings, noted_difference=f"it {noted_difference} with {case.input.description}")
        return findings


def _with_new_kinds(diffs: list[Difference], further_diffs: list[Difference]) -> list[Difference]:
    """Return differences extended by those of new kinds, because many inputs show the same difference."""
    known_kinds = {difference.kind for difference in diffs}
    return [*diffs, *(difference for difference in further_diffs if difference.kind not in known_kinds)]


def _is_finite(values: Any) -> bool:
    dense_tensors = [tensor for _, tensor in named_tensors(values, "") if tensor.layout == torch.strided]
    return all(bool(torch.isfinite(tensor).all()) for tensor in dense_tensors if tensor.is_floating_point())
