"""Compare a run of a changed program with a run of the original, and describe the differences.

Breaks are compared by their places: the causes may change.
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
from jupyter_graphbreak.experiments.trial.places import named_tensors
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.faults import description
from jupyter_graphbreak.knowledge.causes import known_cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.trial.difference import Difference, Kind
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.reference import ReferenceCase
    from jupyter_graphbreak.report.remedies import RemedyVerdict
    from jupyter_graphbreak.report.schema import Break, Report

#: At most this many characters of the code of a break are shown.
_MAX_CODE = 60
#: The file name of a source and one of its lines.
Line = tuple[str, int]


class RunBreaks(NamedTuple):
    """The breaks of one run, and the file name of each source of its report, by the source's id."""

    report: Report
    files: Mapping[str, str]

    def with_lines(self) -> Iterator[tuple[Break, frozenset[Line]]]:
        """Yield each break with its lines; without lines if its location is not known."""
        for break_ in self.report.breaks:
            yield break_, _lines_of(break_, self.files)


@dataclass(frozen=True)
class BreakComparison:
    """The breaks of a program and those of a changed one.

    Parameters
    ----------
    gone : frozenset of str
        The ids of the program's breaks whose places no longer break on any input.
    other_cause : dict
        For breaks whose places now break for a different cause: the new break.
    new : list of Break
        The breaks at places where the program does not break, in the order in which they occurred.
    """

    gone: frozenset[str]
    other_cause: Mapping[str, Break]
    new: list[Break]


def compare_breaks(
    before: Sequence[RunBreaks], after: Sequence[RunBreaks], texts: Mapping[str, tuple[str, str]]
) -> BreakComparison:
    """Compare the breaks of a program with those of a changed one.

    Parameters
    ----------
    before : sequence of RunBreaks
        The breaks of the program: first those of its first call, to whose ids the result refers, then those on other
        inputs.
    after : sequence of RunBreaks
        The breaks of the changed program on all inputs.
    texts : mapping
        The old and the new text of each changed file, by its name.
    """
    line_maps = {name: _line_map(*both) for name, both in texts.items()}
    hunks = {name: _replaced_together(*both) for name, both in texts.items()}

    def new_lines_of(lines: Iterable[Line]) -> frozenset[Line]:
        return frozenset(
            (name, new) for name, line in lines for new in (line_maps[name][line] if name in line_maps else {line})
        )

    def hunks_of(lines: Iterable[Line]) -> set[Line]:
        return {(name, hunks[name][line]) for name, line in lines if line in hunks.get(name, {})}

    known = [(break_, lines, new_lines_of(lines)) for run in before for break_, lines in run.with_lines()]
    breaks_after = [pair for run in after for pair in run.with_lines()]
    first = before[0].report.breaks
    breaks_at_place: dict[str, list[Break]] = {}
    for break_, lines, places in known[: len(first)]:
        # If a change replaced the lines of both breaks together, both are at the same new lines.
        others = [
            (other, at)
            for other, of, at in known
            if other is not break_ and of.isdisjoint(lines) and hunks_of(of).isdisjoint(hunks_of(lines))
        ]
        breaks_at_place[break_.id] = [
            new_break
            for new_break, at in breaks_after
            if _is_same_place(break_, places, new_break, at)
            and not (
                not _has_same_cause(break_, new_break)
                and any(_has_same_cause(o, new_break) and at & of for o, of in others)
            )
        ]
    return BreakComparison(
        frozenset(ident for ident, new_breaks in breaks_at_place.items() if not new_breaks),
        {
            break_.id: breaks_at_place[break_.id][0]
            for break_ in first
            if breaks_at_place[break_.id]
            and all(new_break.gb_type != break_.gb_type for new_break in breaks_at_place[break_.id])
        },
        [
            new_break
            for new_break, at in breaks_after
            if not any(_is_same_place(old, places, new_break, at) for old, _, places in known)
        ],
    )


def _is_same_place(old: Break, old_lines: frozenset[Line], new_break: Break, new_lines: frozenset[Line]) -> bool:
    """Return whether two breaks are at the same place; breaks without a known place are compared by their cause."""
    return bool(old_lines & new_lines) if old_lines or new_lines else old.gb_type == new_break.gb_type


def _has_same_cause(one: Break, other: Break) -> bool:
    return (one.gb_type, _code(one)) == (other.gb_type, _code(other))


def _code(break_: Break) -> str | None:
    return break_.location.code if break_.location is not None else None


def _lines_of(break_: Break, files: Mapping[str, str]) -> frozenset[Line]:
    at = break_.location
    if at is None:
        return frozenset()
    name = files.get(at.source, at.source)
    return frozenset((name, line) for line in range(at.line, max(at.end_line, at.line) + 1))


def _line_map(old: str, new: str) -> dict[int, set[int]]:
    """Map each line of a text to the lines of the changed text that it became, or that replaced it."""
    before, after = old.split("\n"), new.split("\n")
    line_map: dict[int, set[int]] = defaultdict(set)
    added: dict[str, set[int]] = defaultdict(set)
    lost: list[int] = []
    for kind, first, last, new_first, new_last in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if kind == "equal":
            line_map.update((first + step + 1, {new_first + step + 1}) for step in range(last - first))
            continue
        for number in range(new_first, new_last):
            added[after[number].strip()].add(number + 1)
        for number in range(first, last):
            line_map[number + 1] = set(range(new_first + 1, new_last + 1))
            lost.append(number)
    for number in lost:  # a block that was moved, or whose indentation changed
        if before[number].strip():
            line_map[number + 1] |= added[before[number].strip()]
    return line_map


def _replaced_together(old: str, new: str) -> dict[int, int]:
    """Map each line that a change replaces to the first line of its block of consecutive replaced lines."""
    matcher = difflib.SequenceMatcher(None, old.split("\n"), new.split("\n"), autojunk=False)
    return {
        number + 1: first
        for kind, first, last, *_ in matcher.get_opcodes()
        if kind == "replace"
        for number in range(first, last)
    }


def verdict_of_error(error: BaseException) -> tuple[RemedyVerdict, str]:
    """Return the verdict on a program that did not run to its end, and the reason."""
    match error:
        case TrialStoppedError():
            return "not tried", stop_reason(error)
        case ThreadRunsChangeError():
            return "not tried", str(error)
        case SyntaxError():
            return "fails", f"not valid Python: {error.msg}" + (f", line {error.lineno}" if error.lineno else "")
        case CannotApplyError():
            return "fails", f"cannot be applied: {error}"
    return "fails", f"raises {description(error)}"


def stop_reason(stopped: TrialStoppedError) -> str:
    """Return why a trial was stopped, as the reason of a verdict."""
    return f"the trial was stopped before it {stopped.effect.what}"


def compared_aspects(results: list[Result]) -> list[str]:
    """Return the aspects that a comparison of results covers, in the words of the evidence."""
    what = ["values"]
    what += ["gradients"] if any(result.gradients for result in results) else []
    what += ["arguments"] if any(result.arguments for result in results) else []
    what += ["output"] if any(result.effects.printed or result.effects.stderr for result in results) else []
    what += ["warnings"] if any(result.effects.warned for result in results) else []
    what += ["logs"] if any(result.effects.logged for result in results) else []
    what += ["exceptions"] if any(result.raised is not None for result in results) else []
    return [*what, "aliasing", "state", "random numbers"]


def functions_given_up(report: Report) -> set[str]:
    """Return the functions that run eagerly, with everything they call, because they were compiled too often."""
    return {skipped.function for skipped in report.skipped if skipped.kind in {"recompile limit", "shared wrapper"}}


def break_summary(graph_break: Break, runs: Sequence[RunBreaks]) -> str:
    """Describe a break of some runs; a line is named with its file, or with its cell if there are several."""
    location = graph_break.location
    if location is None:
        return f"elsewhere: {graph_break.gb_type}"
    reports = [run.report for run in runs if any(known is graph_break for known in run.report.breaks)]
    sources = [source for report in reports for source in report.sources if source.id == location.source]
    cells = {source.name for report in reports for source in report.sources if source.kind == "cell"}
    file = f" of {sources[0].name}" if sources and cells != {sources[0].name} else ""
    title = known_cause(graph_break.gb_id, graph_break.gb_type, code=location.code).title
    code = re.sub(r"(?<=[(\[]) ", "", " ".join((location.code or "").split()))
    code = code if len(code) <= _MAX_CODE else f"{code[:_MAX_CODE]}..."
    is_word = title[1:].partition(" ")[0].islower()  # not a class such as UserError
    return f"at line {location.line}{file}, {code}: {title[:1].lower() + title[1:] if is_word else title}"


def is_refusal_by_operation(difference: Difference, case: ReferenceCase) -> bool:
    """Whether both programs refuse an input, the original because an operation of PyTorch refuses it."""
    raised = case.expected.raised
    return difference.kind == "different error" and raised is not None and is_raised_by_operation(raised)


def is_refused(case: ReferenceCase) -> bool:
    """Whether the original refuses an input."""
    return case.expected.raised is not None


def meaningful_at_edge(diffs: list[Difference], case: ReferenceCase, result: Result) -> list[Difference]:
    """Leave out differences on inputs not meant for the function, if compiling or computing both sides causes them.

    PyTorch's operations use different error messages while a graph is captured. A gradient counts only if the original
    returns finite numbers: for infinite ones it is undefined in both programs.
    """
    expected = case.expected
    if case.input.only_errors_count and (expected.raised is not None or result.raised is None):
        return []
    if expected.raised is not None and result.raised is not None:
        # An input that both programs refuse does not count as a difference, even if their output before it differs.
        kept: Kind | None = None if is_raised_by_operation(expected.raised) else "different error"
        return [difference for difference in diffs if not difference.is_acceptable or difference.kind == kept]
    if not _is_finite((expected.value, expected.gradients)):
        # An undefined gradient is not zero even if none is needed.
        needless = [
            replace(difference, kind="needless gradient") if difference.kind == "further gradient" else difference
            for difference in diffs
        ]
        return [difference for difference in needless if difference.kind != "gradient"]
    return diffs


def _is_of_other_kind(case: ReferenceCase) -> bool:
    return bool(case.input.other_kind)


@dataclass(frozen=True)
class EdgeFindings:
    """How a changed program differs on edge inputs.

    Parameters
    ----------
    diffs : list of Difference
        The differences, without those that are only noted.
    inputs : int
        The number of inputs.
    disqualifying : str or None
        A difference that means that the change does not work.
    noted : str or None
        The first notable difference on tensors of a different kind, or on inputs that the original refuses.
    """

    diffs: list[Difference]
    inputs: int = 0
    disqualifying: str | None = None
    noted: str | None = None

    def extended(
        self,
        pairs: Iterable[tuple[ReferenceCase, list[Difference]]],
        *,
        is_noted: Callable[[ReferenceCase], bool] = _is_of_other_kind,
    ) -> EdgeFindings:
        """Add inputs and their differences to the findings, up to the first disqualifying difference.

        Differences on inputs for which ``is_noted`` is true do not mean that the change fails; the first one is noted.
        """
        seen = self
        for case, more in pairs:
            seen = replace(seen, inputs=seen.inputs + 1)
            disqualifying = next((difference.text for difference in more if not difference.is_acceptable), None)
            if not is_noted(case):
                seen = replace(seen, diffs=_with_new_kinds(seen.diffs, more))
                if disqualifying is not None:
                    return replace(seen, disqualifying=f"{disqualifying}, on {case.input.what}")
                continue
            # A result that requires gradients or has different strides cannot be used everywhere.
            minor = next((item.text for item in more if item.kind in {"needless gradient", "layout"}), None)
            noted = disqualifying or minor
            if noted is not None and seen.noted is None:
                seen = replace(seen, noted=f"it {noted} with {case.input.what}")
        return seen


def _with_new_kinds(diffs: list[Difference], more: list[Difference]) -> list[Difference]:
    """Add the differences of new kinds: many inputs show the same difference."""
    known = {difference.kind for difference in diffs}
    return [*diffs, *(difference for difference in more if difference.kind not in known)]


def _is_finite(values: Any) -> bool:
    dense = [tensor for _, tensor in named_tensors(values, "") if tensor.layout == torch.strided]
    return all(bool(torch.isfinite(tensor).all()) for tensor in dense if tensor.is_floating_point())
