"""Describe remedies: their verdicts, their evidence and their changes."""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from jupyter_graphbreak.knowledge.entries import CONFIG
from jupyter_graphbreak.knowledge.switches import switch_with_title
from jupyter_graphbreak.report.remedies import INNER_FAMILY, INTERRUPTED_REASON, OTHER_CAUSE_PREFIX, WORKING
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.advice import advice_to_fix_caller
from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.plain_text import breaks_text, count_text, join_with_and, join_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.remedies import Edit, Evidence, Remedy, RemedyVerdict, UnseenInputs
    from jupyter_graphbreak.report.schema import Break, Report, Skipped

#: Verdicts, best first.
_VERDICT_ORDER: tuple[RemedyVerdict, ...] = (
    "works", "works on what ran", "works but differs", "another break", "break stays", "another result", "fails",
    "not tried",
)  # fmt: skip
#: The signs to show before verdicts; a verdict without an entry gets a cross.
_SIGNS: dict[RemedyVerdict, str] = {"works": "✓", "works on what ran": "✓", "works but differs": "≈", "not tried": "○"}
#: The words that a reader sees, for verdicts with different names in the report.
_LABELS: dict[RemedyVerdict, str] = {
    "works on what ran": "works as far as tested", "another break": "breaks elsewhere", "break stays": "still breaks",
    "another result": "different result",
}  # fmt: skip
_LABELS_FOR_RECOMPILES: dict[RemedyVerdict, str] = {
    "break stays": "still recompiles", "another break": "makes it worse",
}  # fmt: skip
#: The number of unchanged lines shown before and after a change.
_CONTEXT_LINES = 2
_MAX_REMEDIES_OF_BREAK = 100
_MAX_REMEDIES_TO_COMBINE = 200
#: A remedy with more edits than this is not combined with others; none that we propose has this many.
_MAX_EDITS = 20
#: Edits of up to this many lines are compared line by line; a longer edit is shown as a full replacement.
_MAX_COMPARED_LINES = 500


@dataclass(frozen=True, slots=True)
class BreakRemedies:
    """The remedies for one break, one function that runs eagerly, or the recompiles of one function, best first.

    Each decision that is left to the reader is one sentence. ``untried_reason`` says why no change was tried, for
    example that the function raises on copies; it is empty if one was tried.
    """

    working_remedies: list[Remedy]
    failed_remedies: list[Remedy]
    decisions: list[str]
    untried_reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.working_remedies or self.failed_remedies or self.decisions or self.untried_reason)


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a change, with its sign: ``@`` for a position, ``-`` for a removed line, ``+`` for an added line."""

    sign: Literal["@", "-", "+", " "]
    text: str


def remedies_for_break(report: Report, break_: Break) -> BreakRemedies | None:
    """Return the remedies for a break and functions that run eagerly after it; ``None`` if none were searched for."""
    if report.remedies is None:
        return None
    skipped = lookup.skipped_functions(report)
    frames = dict.fromkeys(skipped[ident].frame or "" for ident in break_.skipped if ident in skipped)
    by_break, by_frame = lookup.remedies_by_break(report), lookup.remedies_by_frame(report)
    remedies_of_frames = (remedy for frame in frames for remedy in by_frame.get(frame, ()))
    remedies = _sort_remedies(itertools.chain(by_break.get(break_.id, ()), remedies_of_frames))
    if advice_to_fix_caller(report, break_) is not None:
        return replace(remedies, decisions=[])  # nothing has to be decided before the break in the caller is fixed
    return remedies


def remedies_for_frame(report: Report, skipped: Skipped) -> BreakRemedies | None:
    """Return the remedies for a function that runs eagerly without a break; ``None`` if none were searched for."""
    if report.remedies is None:
        return None
    return _sort_remedies(lookup.remedies_by_frame(report).get(skipped.frame, ()) if skipped.frame is not None else ())


def remedies_for_recompiles(report: Report, recompiles: Iterable[str]) -> BreakRemedies | None:
    """Return the remedies for recompiles, given their ids; ``None`` if none were searched for."""
    if report.remedies is None:
        return None
    by_recompile = lookup.remedies_by_recompile(report)
    return _sort_remedies(remedy for ident in recompiles for remedy in by_recompile.get(ident, ()))


def _sort_remedies(remedies: Iterable[Remedy]) -> BreakRemedies:
    # Remedies for the break come before those for functions that run eagerly.
    unique = {id(remedy): remedy for remedy in itertools.islice(remedies, _MAX_REMEDIES_OF_BREAK)}
    ordered_remedies = sorted(
        unique.values(),
        key=lambda r: (
            not r.breaks, _VERDICT_ORDER.index(r.verdict), r.family == INNER_FAMILY, _compilations_left(r),
            r.title.count("; "), -len(r.breaks),  # the changes that it combines
        ),
    )  # fmt: skip
    changes = [remedy for remedy in ordered_remedies if remedy.kind != "person"]
    # A change may be tried several times with the same result, for example alone and before another step. Settings with
    # one title are one change, even if each search for a different break describes the result in its own words.
    failed_by_outcome = {
        (remedy.title, "" if remedy.kind == "setting" else outcome_text(remedy)): remedy
        for remedy in reversed(changes)
        if remedy.verdict not in WORKING
    }
    return BreakRemedies(
        [remedy for remedy in changes if remedy.verdict in WORKING],
        list(reversed(failed_by_outcome.values())),
        list(dict.fromkeys(remedy.person for remedy in ordered_remedies if remedy.person)),
        next((remedy.reason for remedy in ordered_remedies if remedy.reason and not changes), ""),
    )


def _compilations_left(remedy: Remedy) -> int:
    """Return how many compilations a remedy for recompiles leaves, unseen inputs included; 0 for other remedies."""
    evidence = remedy.evidence
    if evidence is None or evidence.compilations_after is None:
        return 0
    return evidence.compilations_after + (evidence.unseen.compilations if evidence.unseen is not None else 0)


def sign_of(remedy: Remedy) -> str:
    """Return the sign to show before the verdict on a remedy."""
    return _SIGNS.get(remedy.verdict, "✗")


def verdict_label(remedy: Remedy) -> str:
    """Return the verdict on a remedy in the words that a reader sees."""
    if remedy.recompiles and remedy.verdict in _LABELS_FOR_RECOMPILES:
        return _LABELS_FOR_RECOMPILES[remedy.verdict]
    if remedy.verdict == "another break" and (remedy.reason or "").startswith(OTHER_CAUSE_PREFIX):
        return _LABELS["break stays"]
    return _LABELS.get(remedy.verdict, remedy.verdict)


def outcome_text(remedy: Remedy) -> str:
    """Return the verdict on a remedy with the evidence for it or, if the remedy does not work, with the reason.

    For example: "works: values and gradients equal on 6 inputs with inductor, both branches taken; 5 graphs become 1",
    "different result: the gradient of w is 12, not 18".
    """
    label, reason = verdict_label(remedy), evidence_or_reason(remedy)
    return f"{label}: {reason}" if reason else label


def evidence_or_reason(remedy: Remedy) -> str:
    """Return the evidence for the verdict on a remedy, or the reason why it does not work."""
    if remedy.verdict not in WORKING:
        return remedy.reason or "; ".join(remedy.differences)
    return "; ".join(part for part in (_comparison_text(remedy), _counts_text(remedy.evidence)) if part)


def further_differences(remedy: Remedy) -> list[str]:
    """Return the measured differences that the result of :func:`evidence_or_reason` does not mention."""
    if remedy.evidence is None:
        return []
    text = evidence_or_reason(remedy)
    return [difference for difference in remedy.differences if difference not in text]


#: The family of the remedies that represent the user's own changes.
_USER_FAMILY = "own"
_RESULT_LABELS: dict[RemedyVerdict, str] = {
    "works": "same results", "works on what ran": "same results as far as tested",
    "works but differs": "works, but differs", "another result": "different results",
}  # fmt: skip


def user_edit_sentence(report: Report) -> tuple[str, bool]:
    """Return a sentence about the user's own edit, and whether it works; the sentence is empty if there is no edit.

    For example: "Your edit: same results, removes break 3", or "Your edit: different results (the gradient of w is 12,
    not 18)".
    """
    remedy = next((remedy for remedy in report.remedies or [] if remedy.family == _USER_FAMILY), None)
    if remedy is None:
        return "", False
    target = target_text(report, remedy)
    if remedy.verdict in WORKING:
        removal = f"removes {target}" if target else "removes no break"
        differences = [join_words(remedy.differences, "; ", 1)] if remedy.differences else []
        doubts = [*differences, *_untested_cases(remedy)]
        doubt = f" ({'; '.join(doubts)})" if doubts else ""
        return f"{remedy.title}: {_RESULT_LABELS[remedy.verdict]}{doubt}, {removal}", True
    if remedy.verdict == "break stays":
        return f"{remedy.title}: does not remove {target or 'any break'}", False
    label, reason = _RESULT_LABELS.get(remedy.verdict, verdict_label(remedy)), evidence_or_reason(remedy)
    return f"{remedy.title}: {label}" + (f" ({reason})" if reason else ""), False


def _untested_cases(remedy: Remedy) -> list[str]:
    """Return the cases in which a working change was not tested, such as one branch of a condition."""
    if remedy.reason:
        return [remedy.reason]
    is_about_branches = remedy.verdict == "works on what ran" and not remedy.recompiles
    return ["one branch of a condition never ran"] if is_about_branches else []


def _comparison_text(remedy: Remedy) -> str:
    """Say what was equal or was compared, on how many inputs, and whether both branches of each condition ran."""
    evidence = remedy.evidence
    untested_text = "".join(f", but {doubt}" for doubt in _untested_cases(remedy))
    if evidence is None:
        return untested_text.removeprefix(", ")
    result = "compared" if remedy.differences else "equal"
    comparison = f"{join_with_and(evidence.compared)} {result}" if evidence.compared else "ran"
    inputs = count_text(evidence.inputs, "call" if remedy.recompiles else "input")
    sentence = f"{comparison} on {inputs} with {evidence.backend}"
    return f"{sentence}, both branches taken{untested_text}" if evidence.both_sides else sentence + untested_text


def _counts_text(evidence: Evidence | None) -> str:
    if evidence is None:
        return ""
    if evidence.compilations_before is not None and evidence.compilations_after is not None:
        return _compilation_counts_text(evidence.compilations_before, evidence.compilations_after, evidence.unseen)
    before, after = evidence.graphs_before, evidence.graphs_after
    graphs = f"{count_text(before, 'graph')} {'becomes' if before == 1 else 'become'} {after}"
    parts = [graphs if before != after else ""]
    if evidence.breaks_after == 0:
        parts.append("no break is left")
    elif evidence.breaks_after < evidence.breaks_before:
        breaks_left = evidence.breaks_after
        verb = "is" if breaks_left == 1 else "are"
        parts.append(f"{breaks_left} of {evidence.breaks_before} breaks {verb} left")
    return ", and ".join(part for part in parts if part)


def _compilation_counts_text(before: int, after: int, unseen: UnseenInputs | None) -> str:
    """Say how the number of compilations changes: "5 compilations become 1, and 3 calls with new sizes need none"."""
    sentence = f"{count_text(before, 'compilation')} {'becomes' if before == 1 else 'become'} {after}"
    if unseen is None or not unseen.inputs:
        return sentence
    calls = f"{count_text(unseen.inputs, 'call')} with new sizes or values {'needs' if unseen.inputs == 1 else 'need'}"
    return f"{sentence}, and {calls} {f'{unseen.compilations} more' if unseen.compilations else 'none'}"


# Changes.


def change_lines(report: Report, remedy: Remedy) -> list[DiffLine]:
    """Return the changes that a remedy makes in sources, line by line; the patch of a file is returned unchanged."""
    sources, main_cell = lookup.sources(report), lookup.main_cell(report)
    if remedy.patch and not _changes_cells_only(report, remedy):
        return [_patch_line(line) for line in remedy.patch.rstrip("\n").split("\n")]
    lines: list[DiffLine] = []
    changes_one_source = len({edit.source for edit in remedy.edits}) == 1
    for edit in remedy.edits:
        source = sources.get(edit.source)
        is_obvious = changes_one_source and source is not None and source is main_cell
        name = "" if is_obvious else f"{source.name if source else edit.source}, "
        lines += _edit_lines(edit, name)
    return lines


def _changes_cells_only(report: Report, remedy: Remedy) -> bool:
    places = (lookup.sources(report).get(edit.source) for edit in remedy.edits)
    return all(source is not None and source.kind == "cell" for source in places)


def _patch_line(line: str) -> DiffLine:
    if line.startswith(("--- ", "+++ ", "@@")):
        return DiffLine("@", line)
    sign: Literal["-", "+", " "] = "-" if line[:1] == "-" else "+" if line[:1] == "+" else " "
    return DiffLine(sign, line[1:])


def _edit_lines(edit: Edit, name: str) -> list[DiffLine]:
    old = edit.old.split("\n") if edit.last_line >= edit.first_line else []
    new = edit.new.split("\n") if edit.new else []
    lines: list[DiffLine] = []
    for group in _difference_groups(old, new):
        first = edit.first_line + group[0][1]
        last = edit.first_line + group[-1][2] - 1
        if last < first:
            position = f"before line {first}"
        else:
            position = f"line {first}" if last == first else f"lines {first} to {last}"
        lines.append(DiffLine("@", f"{name}{position}"))
        for operation, start, end, new_start, new_end in group:
            if operation == "equal":
                lines += [DiffLine(" ", text) for text in old[start:end]]
            else:
                lines += [DiffLine("-", text) for text in old[start:end]]
                lines += [DiffLine("+", text) for text in new[new_start:new_end]]
    return lines


def _difference_groups(old: list[str], new: list[str]) -> Iterable[list[tuple[str, int, int, int, int]]]:
    """Return the differences between two lists of lines, with their context, as groups of ``difflib`` opcodes."""
    if max(len(old), len(new)) > _MAX_COMPARED_LINES:
        return [[("replace", 0, len(old), 0, len(new))]]
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT_LINES)


def code_of(remedy: Remedy) -> str:
    """Return the code that applies a remedy: its own code, or else statements that change its settings."""
    if remedy.code:
        return remedy.code
    return "\n".join(f"{name} = {value!r}" for name, value in remedy.settings.items())


def has_separate_code(remedy: Remedy) -> bool:
    """Return whether a remedy has code that its edits do not insert. The edits of a mark insert its code."""
    return not remedy.edits or (bool(remedy.settings) and remedy.kind != "mark")


def comment_for_cell(report: Report, remedy: Remedy) -> list[str]:
    """Return the lines of a comment for a cell that applies a remedy: what the cell does, and how to undo it.

    For example: "Set `capture_scalar_outputs = True`: removes break 1.", "To undo: delete this cell, then restart the
    kernel, or: torch._dynamo.config.capture_scalar_outputs = False".
    """
    return _make_comment(report, remedy, "cell") if how_to_apply(report, remedy) == "cell" else []


def comment_for_code(report: Report, remedy: Remedy) -> list[str]:
    """Return the lines of a comment for the copied code of a remedy that works: what it does, and how to undo it."""
    return _make_comment(report, remedy, "code") if remedy.verdict in WORKING else []


def how_to_undo(report: Report, remedy: Remedy) -> str:
    """Say how to undo the lines that a remedy inserts in cells, if deleting them is not enough."""
    if remedy.kind != "mark" or not remedy.settings or how_to_apply(report, remedy) != "edit":
        return ""
    return _make_comment(report, remedy, "lines")[-1]


def _make_comment(report: Report, remedy: Remedy, inserted_as: Literal["cell", "code", "lines"]) -> list[str]:
    target = target_text(report, remedy)
    verb = "prevents the" if remedy.recompiles and not remedy.breaks else "removes"
    effect = f"{remedy.title}: {verb} {target}." if target else f"{remedy.title}."
    differences = [f"Differences: {'; '.join(remedy.differences)}."] if remedy.differences else []
    sources = lookup.sources(report)
    kinds = {source.kind for edit in remedy.edits if (source := sources.get(edit.source)) is not None}
    edits_note = ", undo the edits of the other cells" if "cell" in kinds else ""
    undo = "To undo: delete these lines"
    if inserted_as != "lines":
        undo = f"To undo: delete this {inserted_as}{edits_note}"
    if remedy.kind == "mark" and inserted_as == "code" and not remedy.settings:  # a mark affects only the call after it
        return [effect, *differences, undo]
    undo += ", then restart the kernel"
    if kinds - {"cell"}:
        undo += "; no file was changed"
    elif steps := [*_undo_settings_statements(report, remedy), *_undo_switch_steps(remedy)]:
        undo += f", or: {'; '.join(steps)}"
    return [effect, *differences, undo]


def _undo_settings_statements(report: Report, remedy: Remedy) -> list[str]:
    """Return the statements that restore the values that a remedy's settings had before, as far as these are known."""
    statements = []
    for name, value in remedy.settings.items():
        earlier_value = report.config.get(name.removeprefix(CONFIG))
        if isinstance(value, list):
            statements += [f"{name}.discard({function.removeprefix('builtins.')})" for function in value]
        elif earlier_value is not None or isinstance(value, bool):
            statements.append(f"{name} = {earlier_value if earlier_value is not None else not value!r}")
    return statements


def _undo_switch_steps(remedy: Remedy) -> list[str]:
    """Return how to undo each switch that a remedy sets."""
    switches = [switch_with_title(title) for title in remedy.title.split("; ")]
    return [switch.undo for switch in switches if switch is not None]


def how_to_apply(report: Report, remedy: Remedy) -> Literal["edit", "cell"] | None:
    """Return how a notebook can apply a remedy: by editing cells or by inserting a cell; ``None`` if it cannot."""
    if remedy.verdict not in WORKING or remedy.kind == "person":
        return None
    if remedy.kind == "mark":  # the edits of a mark insert its code
        return ("edit" if _changes_cells_only(report, remedy) else "cell") if remedy.edits else None
    if remedy.code is None and _changes_cells_only(report, remedy):
        return "edit" if remedy.edits else None
    return "cell" if remedy.code is not None or remedy.patch is not None else None


# Combinations.


def compatible_remedies(report: Report) -> list[Remedy]:
    """Return remedies that can be applied together, those that remove the most breaks first.

    Each remedy removes a break, or compiles an eager function, that the remedies before it do not, and is compatible
    with them. Each had its own trial, so only a further run shows their combined effect.

    A remedy that compiles only a part of the program is returned alone if it removes all breaks that the others remove,
    and also removes more breaks or has a better verdict.
    """
    working_remedies = [
        remedy for remedy in report.remedies or [] if remedy.verdict in WORKING and remedy.kind != "person"
    ]
    chosen_remedies: list[Remedy] = []
    targets: set[str] = set()

    def rank(remedy: Remedy) -> tuple[bool, int, int, int]:
        verdict = _VERDICT_ORDER.index(remedy.verdict)
        return remedy.family == INNER_FAMILY, -len(remedy.breaks), verdict, -len(remedy.recompiles)

    ranked_remedies = sorted(working_remedies, key=rank)
    for remedy in ranked_remedies[:_MAX_REMEDIES_TO_COMBINE]:
        if set(remedy.breaks + remedy.frames) <= targets or any(
            _are_incompatible(remedy, other) for other in chosen_remedies
        ):
            continue
        chosen_remedies.append(remedy)
        targets.update(remedy.breaks, remedy.frames)
    whole_remedies = [remedy for remedy in chosen_remedies if remedy.family != INNER_FAMILY]
    removed_ids = {ident for remedy in whole_remedies for ident in remedy.breaks}
    worst_verdict = max((_VERDICT_ORDER.index(remedy.verdict) for remedy in whole_remedies), default=0)
    for remedy in ranked_remedies:
        removes_more = removed_ids < set(remedy.breaks)
        is_better = removed_ids == set(remedy.breaks) and _VERDICT_ORDER.index(remedy.verdict) < worst_verdict
        if remedy.family == INNER_FAMILY and (removes_more or is_better):
            return [remedy]
    return chosen_remedies


def _are_incompatible(one: Remedy, other: Remedy) -> bool:
    """Return whether two remedies cannot be combined because they exclude each other or change the same lines."""
    if other.id in one.excludes or one.id in other.excludes or max(len(one.edits), len(other.edits)) > _MAX_EDITS:
        return True
    return any(
        edit.source == other_edit.source
        and edit.first_line <= other_edit.last_line
        and other_edit.first_line <= edit.last_line
        for edit in one.edits
        for other_edit in other.edits
    )


def untried_targets_text(report: Report) -> str:
    """Return the targets that an interrupted search for remedies left untried: "breaks 2 and 3"; empty if none."""
    numbers = break_numbers(report)
    untried_remedies = [remedy for remedy in report.remedies or [] if remedy.reason == INTERRUPTED_REASON]
    untried_numbers = sorted(
        {numbers[ident] for remedy in untried_remedies for ident in remedy.breaks if ident in numbers}
    )
    if untried_numbers:
        return breaks_text(untried_numbers)
    return next((target for remedy in untried_remedies if (target := target_text(report, remedy))), "")


def target_text(report: Report, remedy: Remedy) -> str:
    """Return the target of a remedy: "break 1", "breaks 1 and 2", "recompiles of f", or names of eager functions."""
    numbers = break_numbers(report)
    removed_numbers = sorted(numbers[ident] for ident in remedy.breaks if ident in numbers)
    if not removed_numbers and remedy.recompiles:
        functions = lookup.function_by_recompile(report)
        names = dict.fromkeys(functions[ident] for ident in remedy.recompiles if ident in functions)
        return f"recompiles of {join_words(list(names), ', ')}" if names else ""
    if not removed_numbers:
        frames = lookup.frames(report)
        return join_words([frames[ident].function for ident in dict.fromkeys(remedy.frames) if ident in frames], ", ")
    return breaks_text(removed_numbers)


def trials_sentence(trials: BreakRemedies) -> str:
    """Describe the outcome of the changes that do not work: "2 changes tried, none works"; empty if there are none.

    If a change removes the break or saves compilations but changes results, its title appears, because the reader
    may still want it.
    """
    failed_trials = [trial for trial in trials.failed_remedies if trial.verdict != "not tried"]
    untried_count = len(trials.failed_remedies) - len(failed_trials)
    failed_changes = count_text(len(failed_trials), "other change" if trials.working_remedies else "change")
    result = ": it does not work" if len(failed_trials) == 1 else ", none works"
    outcomes = [f"{failed_changes} tried{result}"] if failed_trials else []
    result_changing_remedy = next(
        (trial for trial in failed_trials if trial.verdict == "another result" and _has_effect(trial)), None
    )
    if result_changing_remedy is not None:
        effect = "saves compilations" if result_changing_remedy.recompiles else "removes the break"
        outcomes.append(f'"{result_changing_remedy.title}" {effect}, but changes the result')
    if untried_count:
        noun = "more change" if failed_trials or trials.working_remedies else "change"
        outcomes.append(f"{count_text(untried_count, noun)} not tried")
    return "; ".join(outcomes)


def failed_trials_heading(failed_remedies: list[Remedy]) -> str:
    """Return the heading for the changes that do not work: "2 trials failed, 1 change not tried"."""
    untried_count = sum(remedy.verdict == "not tried" for remedy in failed_remedies)
    parts = [
        f"{count_text(len(failed_remedies) - untried_count, 'trial')} failed"
        if len(failed_remedies) > untried_count
        else "",
        f"{count_text(untried_count, 'change')} not tried" if untried_count else "",
    ]
    return ", ".join(filter(None, parts))


def _has_effect(remedy: Remedy) -> bool:
    """Return whether a change whose results differ removes a break or saves compilations."""
    if not remedy.recompiles:
        return True
    if remedy.evidence is None:
        return False
    before, after = remedy.evidence.compilations_before, remedy.evidence.compilations_after
    return before is not None and after is not None and after < before


def number_of_other_break_with_remedy(report: Report, remedy: Remedy, number: int) -> int | None:
    """Return the number of the other break that shows a remedy in full; ``None`` if the given break shows it."""
    numbers = break_numbers(report)
    first = min((numbers[ident] for ident in remedy.breaks if ident in numbers), default=number)
    return first if first != number else None
