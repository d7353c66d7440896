"""Search for remedies for the recompiles of one entry."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.families.branches import propose_for_size
from jupyter_graphbreak.experiments.families.indexing import propose_selecting
from jupyter_graphbreak.experiments.families.precomputing import propose_precomputing
from jupyter_graphbreak.experiments.recompiles.candidates import (
    DYNAMIC_BY_SETTING,
    Circumstances,
    RecompileCandidate,
    expression,
    join_conditions,
    numbers_left_as_tensors,
    propose_candidates,
    with_same_layouts,
)
from jupyter_graphbreak.experiments.recompiles.compile_calls import CompiledDefinition
from jupyter_graphbreak.experiments.recompiles.manual_steps import are_recompiles_expected, manual_steps
from jupyter_graphbreak.experiments.recompiles.placement import (
    add_dynamic_argument,
    insert_lines_before_calls,
    module_of,
)
from jupyter_graphbreak.experiments.recompiles.replay import DEFAULT_OWNER, Adjustment
from jupyter_graphbreak.experiments.recompiles.trying import CallTrials, SpecializingLine
from jupyter_graphbreak.experiments.recompiles.variations import find_variations, group_read_expressions
from jupyter_graphbreak.experiments.remedies.change import Change, apply_edits, edits_of, settings_statements
from jupyter_graphbreak.experiments.remedies.changed_entry import make_remedy_context
from jupyter_graphbreak.experiments.remedies.second_derivatives import (
    NO_SECOND_DERIVATIVE_TEXT,
    can_differentiate_twice,
)
from jupyter_graphbreak.experiments.trial.swapped_bindings import top_level_names
from jupyter_graphbreak.report.remedies import INNER_FAMILY, WORKING, Edit, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import CodeType

    from jupyter_graphbreak.experiments.recompiles.report_texts import ReportTexts
    from jupyter_graphbreak.experiments.recompiles.trying import CandidateTrial
    from jupyter_graphbreak.experiments.recompiles.variations import Variations
    from jupyter_graphbreak.experiments.remedies.application import Program
    from jupyter_graphbreak.experiments.trial.call_specs import CallSite, CallSpec, Path
    from jupyter_graphbreak.experiments.trial.entry import Entry, RemedyContext
    from jupyter_graphbreak.report.schema import Recompile, Report

_VALUE_GUARD = re.compile(r"\.size\(\)| size mismatch |== -?\d")
#: Inductor's error if the generated code rejects an input because of the input's memory format.
_REJECTED_LAYOUT = re.compile(r"expected size \S+, stride")
#: The recompile limit if the report does not contain it.
_DEFAULT_LIMIT = 8
#: The maximum number of candidates to try for one entry.
_MAX_CANDIDATES = 16
#: The maximum number of conditions on a size that are rewritten.
_MAX_CONDITIONS = 3


@dataclass(frozen=True)
class CombinedRemedy:
    """A remedy for breaks, its trial together with the best change for recompiles, and the combined change."""

    remedy: Remedy
    trial: CandidateTrial
    change: Change


@dataclass(frozen=True)
class EntryFindings:
    """The trials of changes for the recompiles of one entry, best first, and manual steps for some of the recompiles.

    Each step is a sentence with the ids of its recompiles. ``reason`` says why nothing was tried.
    """

    recompiles: list[Recompile]
    trials: list[tuple[CandidateTrial, Change]]
    owner: str = DEFAULT_OWNER
    combined_remedy: CombinedRemedy | None = None
    manual_steps: list[tuple[str, list[str]]] = dataclasses.field(default_factory=list)
    reason: str | None = None
    are_recompiles_expected: bool = False


class EntrySearch:
    """The search for remedies for one entry's recompiles.

    ``calls`` are the distinct calls of the run; the arguments of the first one were copied. ``has_repeated_calls``
    tells whether the run repeated any of them. ``compile_text`` returns the code objects of a source, given its text
    and its file name.
    """

    def __init__(
        self,
        entry: Entry,
        calls: Sequence[CallSpec],
        recompiles: list[Recompile],
        report: Report,
        texts: ReportTexts,
        compile_text: Callable[[str, str], list[CodeType]],
        on_status: Callable[[str], None],
        *,
        has_repeated_calls: bool,
    ) -> None:
        self._entry = entry
        self._calls = calls
        self._recompiles = recompiles
        self._texts = texts
        self._compile_text = compile_text
        self._on_status = on_status
        limit = report.config.get("recompile_limit")
        self._limit = limit if isinstance(limit, int) else _DEFAULT_LIMIT
        self._has_repeated_calls = has_repeated_calls
        self._guards = [reason.guard for recompile in recompiles for reason in recompile.reasons]
        self._finished_trials: list[tuple[CandidateTrial, Change]] = []
        self._owner = DEFAULT_OWNER
        self._trials: CallTrials | None = None
        self._remedies = {remedy.id: remedy for remedy in report.remedies or []}
        self._specializing_line: SpecializingLine | None = self._find_specializing_line(None)
        self._definition = texts.definition_of(entry)

    def run(self, deadline: float) -> EntryFindings:
        """Try candidates until one prevents all unexpected recompiles, and return the findings."""
        calls = self._calls
        if len(calls) < 2:  # noqa: PLR2004
            return self.findings_so_far(None)
        variations = find_variations(calls)
        mentioned_variations = variations.select_mentioned_in(self._guards)
        if are_recompiles_expected(mentioned_variations, self._recompiles):
            return dataclasses.replace(self.findings_so_far(None), are_recompiles_expected=True)
        trials = self._trials = CallTrials(self._entry, calls)
        if trials.compilation_count <= trials.frame_count_of_first_call:
            return self.findings_so_far(
                f"the arguments of {trials.left_out_count} of {len(calls)} calls cannot be created again"
                if trials.left_out_count
                else "the calls caused no recompiles when they were repeated on copies"
            )
        variations = trials.variations
        mentioned_variations = variations.select_mentioned_in(self._guards)
        self._owner = trials.owner or DEFAULT_OWNER
        circumstances = Circumstances(
            self._owner,
            self._limit,
            self._has_repeated_calls and any(recompile.limit_hit for recompile in self._recompiles),
            frozenset[str]().union(*(site.visible_names for site in self._sites())),
        )
        candidates = propose_candidates(mentioned_variations, variations, circumstances)
        expected_count = trials.expected_compilation_count(mentioned_variations.other_variations)
        is_expected_count_reached = self._try_in_turn(candidates, trials, expected_count, deadline)
        has_working_trial = any(trial.verdict in WORKING for trial, _ in self._finished_trials)
        self._specializing_line = self._find_specializing_line(None if has_working_trial else trials.specializing_line)
        prevents_recompiles = any(trial.prevents_recompiles for trial, _ in self._finished_trials)
        if (
            self._specializing_line is not None
            and has_working_trial
            and not prevents_recompiles
            and time.monotonic() + trials.seconds < deadline
        ):
            self._try_rewritten_condition(self._specializing_line, trials)
            prevents_recompiles = any(trial.prevents_recompiles for trial, _ in self._finished_trials)
        if not prevents_recompiles and not is_expected_count_reached and not self._try_selecting(trials, deadline):
            self._try_precomputing(variations, trials, deadline)
        return self._collect_findings(variations)

    def _try_in_turn(
        self, candidates: Iterator[RecompileCandidate], trials: CallTrials, expected_count: int, deadline: float
    ) -> bool:
        """Try candidates until one leaves no more compilations than expected, and return whether one does.

        If the code of that candidate cannot be written into the sources, continue with candidates whose code can be.
        """
        pending = deque(candidates)
        tried_keys: set[Any] = set()
        is_expected_count_reached = False
        while pending:
            candidate = pending.popleft()
            candidate, change = self._with_source_change(candidate, trials)
            key = candidate.adjustment.lines, candidate.adjustment.dynamic, tuple(candidate.adjustment.settings)
            if key in tried_keys or len(tried_keys) >= _MAX_CANDIDATES:
                continue
            tried_keys.add(key)
            if self._is_weaker_mark(candidate) or (is_expected_count_reached and not change.texts):
                continue
            if time.monotonic() + trials.seconds / 2 > deadline and self._finished_trials:
                break
            self._on_status(candidate.title)
            trial = self._with_caveats(trials.run(candidate))
            self._finished_trials.append((trial, change))
            if trial.verdict == "works" and (trial.prevents_recompiles or trial.compilation_count <= expected_count):
                is_expected_count_reached = True
                if change.texts or not change.switch_statements:
                    break
            if (
                _REJECTED_LAYOUT.search(trial.reason or "")
                and candidate.adjustment != (adjusted_candidate := with_same_layouts(candidate)).adjustment
            ):
                pending.appendleft(adjusted_candidate)
        return is_expected_count_reached

    def _with_caveats(self, trial: CandidateTrial) -> CandidateTrial:
        """Return a trial, with a lower verdict if its change reads a list item or leaves tensors in place of numbers.

        Code that the trials do not reach may read these numbers. The reason gives an example.
        """
        item_preparations = [preparation for preparation in trial.candidate.preparations if preparation.reads_list_item]
        if trial.verdict == "works" and item_preparations:
            reason = f"it assumes that every call has `{expression(item_preparations[-1].path, self._owner)}`"
            trial = dataclasses.replace(trial, verdict="works on what ran", reason=reason)
        names = numbers_left_as_tensors(trial.candidate, self._owner)
        if trial.verdict not in WORKING or not names:
            return trial
        differences = [f"leaves {name} as a tensor, but the original leaves a number" for name in names]
        trial = dataclasses.replace(trial, verdict="works but differs", differences=[*trial.differences, *differences])
        source_and_reader = self._texts.find_reading_line(
            trial.candidate.adjustment.replaced_numbers, self._sites(), self._definition
        )
        if source_and_reader is None or trial.reason is not None:
            return trial
        name, reader = source_and_reader
        number = expression(reader.path, self._owner)
        reason = f"line {reader.line} of {name} also reads `{number}`, which is then a tensor"
        return dataclasses.replace(trial, reason=reason)

    def _try_selecting(self, trials: CallTrials, deadline: float) -> bool:
        """Try to index by a number with ``select()``, and return whether further numbers then need no compilation.

        The number may also have to be made dynamic, by a change that alone does not prevent all recompiles.
        """
        changed_texts: list[str] = []
        for line in self._specializing_lines():
            source, text = line.source, self._texts.text(line.source)
            proposal = propose_selecting(source, text, line.line)
            if proposal is None or proposal.texts[source] in changed_texts:
                continue
            changed_texts.append(proposal.texts[source])
            program = self._program(source)
            edits = edits_of({source: text}, Change(proposal.texts))
            no_further_change = (RecompileCandidate("", (), Adjustment()), Change())
            tried_changes = [(trial.candidate, change) for trial, change in self._finished_trials]
            for other, change in [no_further_change, *tried_changes]:
                joined_change = self._extend_change(edits, change)
                if other.adjustment.lines or joined_change is None or not other.changes_only_calls:
                    continue
                if time.monotonic() + trials.seconds / 2 > deadline:
                    return False
                title = f"{proposal.title}; {other.title}" if other.title else proposal.title
                self._on_status(title)
                candidate = dataclasses.replace(other, title=title, families=("indexing", *other.families))
                trial = trials.run(candidate, make_remedy_context(self._entry, program, Change(proposal.texts)))
                self._finished_trials.append((trial, joined_change))
                if trial.verdict == "works":
                    return True
        return False

    def _try_precomputing(self, variations: Variations, trials: CallTrials, deadline: float) -> None:
        """Try to compute, before the call, the expressions that depend only on values that varied."""
        source = self._definition.source
        if source is None:
            return
        program = self._program(source)
        have_tensors_failed = False
        for proposal in propose_precomputing(
            source, self._definition.line, program.texts, group_read_expressions(self._calls, variations)
        ):
            if proposal.passes_tensors and have_tensors_failed:
                continue
            is_dynamic = bool(variations.sizes) or not proposal.passes_tensors
            new_texts, title = dict(proposal.texts), proposal.title
            if is_dynamic:
                new_texts |= add_dynamic_argument(new_texts, CompiledDefinition(proposal.compiled_name), None) or {}
                title = f"{title}; compile with `dynamic=True`"
            if time.monotonic() + trials.seconds / 2 > deadline:
                return
            entry = dataclasses.replace(self._entry, dynamic=True) if is_dynamic else self._entry
            self._on_status(title)
            candidate = RecompileCandidate(title, ("hoisting",), Adjustment())
            remedy_context = make_remedy_context(entry, program, Change(new_texts, compiles_inner_function=True))
            trial = trials.run(candidate, remedy_context)
            self._finished_trials.append((trial, Change(new_texts)))
            if trial.verdict == "works" and trial.prevents_recompiles:
                return
            if trial.verdict != "another result":  # a different result may be due to the type of the numbers only
                have_tensors_failed |= proposal.passes_tensors

    def _try_rewritten_condition(self, line: SpecializingLine, trials: CallTrials) -> None:
        """Try the best change together with a rewritten condition on a size, which keeps both branches in one graph."""
        source, text = line.source, self._texts.text(line.source)
        proposals = list(propose_for_size(source, text, line.line))[:_MAX_CONDITIONS]
        if not proposals:
            return
        program = self._program(source)
        best, change = min(
            (pair for pair in self._finished_trials if pair[0].verdict in WORKING),
            key=lambda pair: pair[0].compilation_count,
        )
        for proposal in proposals:
            joined_change = self._extend_change(edits_of({source: text}, Change(proposal.texts)), change)
            if joined_change is None:
                continue
            title = f"{proposal.title}; {best.candidate.title}"
            self._on_status(title)
            remedy_context = make_remedy_context(self._entry, program, Change({source: proposal.texts[source]}))
            trial = self._with_caveats(trials.run(best.candidate, remedy_context))
            if trial.verdict == "works" and proposal.assumptions:
                trial = dataclasses.replace(trial, verdict="works on what ran", reason=proposal.assumptions[0])
            has_gradients = trial.evidence is not None and "gradients" in trial.evidence.compared
            if trial.verdict == "works" and has_gradients and can_differentiate_twice(self._entry.backend):
                trial = dataclasses.replace(trial, verdict="works on what ran", reason=NO_SECOND_DERIVATIVE_TEXT)
            families = ("branch", *best.candidate.families)
            candidate = dataclasses.replace(best.candidate, title=title, families=families)
            # If Dynamo still evaluates the condition while compiling, PyTorch warns about torch.cond.
            if trial.verdict not in WORKING or trial.prevents_recompiles:
                self._finished_trials.append((dataclasses.replace(trial, candidate=candidate), joined_change))
            if trial.verdict == "works" and trial.prevents_recompiles:
                break

    def _program(self, source: str) -> Program:
        """Return a program of the sources that changes may edit: one source, and all that may compile the function."""
        sources = dict.fromkeys([source, *self._texts.all_texts(self._sites())])
        return self._texts.program(list(sources), self._compile_text)

    def _extend_change(self, edits: Sequence[Edit], change: Change) -> Change | None:
        """Return a change with further edits; ``None`` if they overlap with or touch the edits of the change."""
        originals = {source: self._texts.text(source) for source in [*(e.source for e in edits), *change.texts]}
        own_edits = edits_of(originals, change)
        if any(one.source == other.source and _overlap_or_touch(one, other) for one in edits for other in own_edits):
            return None
        texts = {
            source: apply_edits(text, [edit for edit in (*own_edits, *edits) if edit.source == source])
            for source, text in originals.items()
        }
        return dataclasses.replace(change, texts=texts)

    def try_combined(
        self, findings: EntryFindings, break_remedy_contexts: Mapping[tuple[str, ...], RemedyContext]
    ) -> CombinedRemedy | None:
        """Try the best change together with the remedy that removes the most breaks; ``None`` if they do not work."""
        if self._trials is None or not findings.trials or findings.trials[0][0].verdict not in WORKING:
            return None
        (best, change), *_ = findings.trials
        if not best.candidate.changes_only_calls:
            return None
        combinable_remedies = [
            (remedy, remedy_context)
            for (ident, *other_ids), remedy_context in break_remedy_contexts.items()
            if not other_ids and (remedy := self._remedies.get(ident)) is not None and _can_be_combined(remedy)
        ]
        if not combinable_remedies:
            return None
        remedy, remedy_context = max(
            combinable_remedies, key=lambda pair: (len(pair[0].breaks), pair[0].verdict == "works")
        )
        joined_change = self._extend_change(remedy.edits, change)
        if joined_change is None:
            return None
        self._on_status(f"{remedy.title}; {best.candidate.title}")
        trial = self._with_caveats(self._trials.run(best.candidate, remedy_context))
        if trial.verdict not in WORKING:
            return None
        return CombinedRemedy(remedy, trial.combine_with(remedy), joined_change)

    def _is_weaker_mark(self, candidate: RecompileCandidate) -> bool:
        """Return whether a candidate is only a weaker form of a mark that works."""
        return any(
            trial.verdict in WORKING
            and candidate.title == trial.candidate.title.replace("as dynamic", "as possibly dynamic")
            for trial, _ in self._finished_trials
        )

    def _find_specializing_line(self, line_from_error: SpecializingLine | None) -> SpecializingLine | None:
        """Return the line that makes PyTorch compile each value separately, in the user's code if possible."""
        line_in_editor = None
        if line_from_error is not None:
            line_in_editor = self._texts.locate_specializing_line(
                line_from_error.source, line_from_error.line, line_from_error.code
            )
            if line_in_editor.library_file is None:
                return line_in_editor
        # The first graph is for one value anyway, so the latest guard shows best which line makes a constant.
        lines = list(self._specializing_lines())
        return next((line for line in reversed(lines) if line.frame == lines[0].frame), line_in_editor)

    def _specializing_lines(self, *, with_conditions: bool = False) -> Iterator[SpecializingLine]:
        """Yield the user's lines that, according to PyTorch's guards, make constants of sizes or numbers."""
        for recompile in self._recompiles:
            for reason in reversed(recompile.reasons):  # PyTorch lists the latest version first
                location = reason.location
                if location is None or not location.code or not self._texts.is_own(location.source):
                    continue
                is_condition = with_conditions and reason.head == "condition"
                if is_condition or _VALUE_GUARD.search(reason.guard) is not None:
                    code = location.code.strip()
                    yield SpecializingLine(location.source, location.line, code, None, recompile.of, reason.head)

    def _with_source_change(
        self, candidate: RecompileCandidate, trials: CallTrials
    ) -> tuple[RecompileCandidate, Change]:
        """Return a candidate and its change.

        If the sources contain no line to which ``dynamic=True`` can be added, the candidate uses a setting instead.
        """
        texts: dict[str, str] = {}
        if candidate.adjustment.dynamic:
            changed_texts = add_dynamic_argument(self._texts.all_texts(self._sites()), self._definition, trials.owner)
            if changed_texts is None:
                candidate = candidate.with_settings(DYNAMIC_BY_SETTING)
            texts |= changed_texts or {}
        change = Change(settings=candidate.adjustment.settings, switch_statements=self._lines_for_reader(candidate))
        sites_by_source: dict[str, list[CallSite]] = defaultdict(list)
        for source, shown_site in map(self._texts.locate_call, self._sites() if candidate.preparations else ()):
            if source is None or shown_site is None:
                return candidate, change
            sites_by_source[source].append(shown_site)
        if candidate.preparations and not sites_by_source:
            return candidate, change
        function, reserved_names, statements = (
            self._entry.function,
            top_level_names(),
            settings_statements(change.settings),
        )
        for source, sites in sites_by_source.items():
            original_text = self._texts.text(source)
            text = texts.get(source, original_text)
            # The first change of this text must not have moved the calls to different lines.
            new_text = (
                insert_lines_before_calls(text, sites, function, candidate.preparations, statements, reserved_names)
                if text.count("\n") == original_text.count("\n")
                else None
            )
            if new_text is None:
                return candidate, change
            texts[source] = new_text
        return candidate, dataclasses.replace(change, texts=texts)

    def _lines_for_reader(self, candidate: RecompileCandidate) -> tuple[str, ...]:
        """Return the lines to show, with the module before a global variable that the calling code cannot see."""
        sites = self._sites()

        def name_of(path: Path) -> str:
            root = path.root
            is_hidden = (
                root.kind == "global" and bool(sites) and not any(root.name in site.visible_names for site in sites)
            )
            name = expression(path, self._owner)
            return f"{module_of(root, sites[0]) or root.defined_in}.{name}" if is_hidden and root.defined_in else name

        if not candidate.preparations:
            return candidate.adjustment.lines
        return tuple(join_conditions(preparation.lines(name_of) for preparation in candidate.preparations))

    def _sites(self) -> list[CallSite]:
        return [call.site for call in self._calls if call.site is not None]

    def _collect_findings(self, variations: Variations) -> EntryFindings:
        """Return the finished trials, best first, with manual steps if no candidate prevents all recompiles."""
        working_trials = [pair for pair in self._finished_trials if pair[0].verdict in WORKING]
        # Of the candidates with the fewest compilations, those that work on all inputs come first, and those that need
        # a setting come last. Otherwise, candidates that can be written into the sources come first.
        best = sorted(
            working_trials,
            key=lambda pair: (
                not pair[0].prevents_recompiles,
                pair[0].compilation_count,
                pair[0].verdict != "works",
                bool(pair[1].settings),
                not pair[1].texts,
            ),
        )
        # A change that leaves more compilations than the best one is not a separate remedy.
        best_trials = [pair for pair in best if pair[0].compilation_count == best[0][0].compilation_count]
        extended_trials = [
            pair for pair in best_trials if any(pair[0].candidate.includes(other[0].candidate) for other in best_trials)
        ]
        best_trials = [pair for pair in best_trials if pair not in extended_trials]
        failed_trials = [
            pair for pair in self._finished_trials if pair not in best_trials and pair not in extended_trials
        ]
        prevents_recompiles = bool(best_trials) and best_trials[0][0].prevents_recompiles
        # The first number may still have its own graph, as 0 and 1 always do.
        prevents_recompiles = prevents_recompiles or any(
            "indexing" in trial.candidate.families for trial, _ in best_trials
        )
        steps = [] if prevents_recompiles else self._manual_steps(variations)
        return EntryFindings(self._recompiles, [*best_trials, *failed_trials], self._owner, manual_steps=steps)

    def findings_so_far(self, reason: str | None) -> EntryFindings:
        """Return the trials so far, with manual steps if no candidate prevents all recompiles.

        The reason why nothing was tried is used only if there are no trials.
        """
        variations = find_variations(self._calls)
        if self._finished_trials:
            return self._collect_findings(variations)
        steps = self._manual_steps(variations)
        return EntryFindings(self._recompiles, [], manual_steps=steps, reason=reason)

    def _manual_steps(self, variations: Variations) -> list[tuple[str, list[str]]]:
        """Return sentences about the recompiles of the entry, each with the ids of its recompiles."""
        lines = [self._specializing_line, *self._specializing_lines(with_conditions=True)]
        return manual_steps(variations, self._recompiles, [line for line in lines if line is not None])


def _can_be_combined(remedy: Remedy) -> bool:
    """Return whether a remedy for breaks works, only edits sources, and does not compile parts instead of the entry."""
    is_edit = remedy.kind == "edit" and bool(remedy.edits) and not remedy.settings and remedy.code is None
    return remedy.verdict in WORKING and is_edit and remedy.family != INNER_FAMILY


def _overlap_or_touch(one: Edit, other: Edit) -> bool:
    return one.first_line <= other.last_line + 1 and other.first_line <= one.last_line + 1
