"""Search for remedies: each break alone, what only works together, and all that work at once."""

from __future__ import annotations

import inspect
import itertools
import re
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.families.proposal import Problem
from jupyter_graphbreak.experiments.families.table import proposals_for
from jupyter_graphbreak.experiments.remedies import own_edits
from jupyter_graphbreak.experiments.remedies.application import CannotApplyError
from jupyter_graphbreak.experiments.remedies.change import Change, applied_to, edits_of
from jupyter_graphbreak.experiments.remedies.rehearsal import Attempt
from jupyter_graphbreak.experiments.trial.entry import is_cell
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, limit_time
from jupyter_graphbreak.faults import internal_error
from jupyter_graphbreak.report.remedies import WORKING, RemedyVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyter_graphbreak.experiments.families.proposal import Proposal
    from jupyter_graphbreak.experiments.remedies.application import Program
    from jupyter_graphbreak.experiments.remedies.original import Watched
    from jupyter_graphbreak.experiments.remedies.own_edits import EditedCells, Patch
    from jupyter_graphbreak.experiments.remedies.rehearsal import Rehearsal
    from jupyter_graphbreak.report.remedies import Kind
    from jupyter_graphbreak.report.schema import Break, Report

#: The first line of a function, its decorators aside.
_DEFINES = re.compile(r"\s*(?:async\s+)?def\s")


def as_change(program: Program, function: Callable[..., Any], instead: Callable[..., Any]) -> Change:
    """Return a function in place of another as a change of the source; no change, where that is not known.

    Parameters
    ----------
    program : Program
    function : callable
        The one that is there.
    instead : callable
        The one that somebody wrote. Its decorators are left out, those of the other one stay.
    """
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if code is None:
        return Change()
    source = next((ident for ident, name in program.files.items() if name == code.co_filename), None)
    if source is None or source not in program.texts:
        return Change()
    lines = program.texts[source].split("\n")
    try:
        old = [line.rstrip("\n") for line in inspect.getblock([f"{x}\n" for x in lines[code.co_firstlineno - 1 :]])]
        new = textwrap.dedent(inspect.getsource(instead)).rstrip("\n").split("\n")
    except (OSError, TypeError, SyntaxError):
        return Change()
    old_start, new_start = _definition(old), _definition(new)
    if old_start is None or new_start is None:  # a lambda
        return Change()
    indent = old[0][: len(old[0]) - len(old[0].lstrip())]
    named = re.compile(rf"(\s*(?:async\s+)?def\s+){re.escape(instead.__name__)}\b")
    body = [f"{indent}{line}" if line else line for line in new[new_start:]]
    body[0] = named.sub(rf"\g<1>{function.__name__}", body[0])
    first = code.co_firstlineno - 1
    made = [*lines[: first + old_start], *body, *lines[first + len(old) :]]
    return Change({source: "\n".join(made)})


def _definition(lines: list[str]) -> int | None:
    return next((index for index, line in enumerate(lines) if _DEFINES.match(line)), None)


#: How many changes one remedy may take, each for the break that the one before it uncovered.
_MOST_STEPS = 3
#: The same where all that work are put together.
_MOST_STEPS_TOGETHER = 12
#: The share of the time after which settings are no longer tried at once, and single breaks no longer each by itself.
_SHARE_AT_ONCE = 0.3
_SHARE_OF_SINGLE = 0.7
#: From how many breaks on with settings or switches these are tried all at once.
_FEWEST_AT_ONCE = 2
#: The family of what somebody wrote, which may take so many seconds although there is no time left.
_OWN = "own"
_OWN_S = 60.0
#: The family of switches that may turn off what a program does, such as a check.
_OF_LIBRARIES = "switch"
#: With it sizes are unknown while tracing, which can end in an error where the break did not.
_RISKY = "capture_dynamic_output_shape_ops"
#: The verdicts after which a further step makes sense: the results are right.
_UNHARMED: frozenset[RemedyVerdict] = WORKING | {"another break", "break stays"}
#: The working verdicts, from the best.
RANK: dict[RemedyVerdict, int] = {"works": 0, "works on what ran": 1, "works but differs": 2}

#: Told what is tried, for a line of progress.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Tried:
    """A change that was tried, for breaks of the original."""

    families: tuple[str, ...]
    titles: tuple[str, ...]
    kind: Kind
    breaks: tuple[str, ...]
    watched: tuple[Watched, ...]
    attempt: Attempt

    @property
    def works(self) -> bool:
        """Whether it can be applied."""
        return self.attempt.verdict in WORKING


@dataclass
class Search:
    """The search for the remedies of one entry.

    Parameters
    ----------
    rehearsal : Rehearsal
    deadline : float
        When to stop, in seconds of :func:`time.monotonic`.
    wanted : frozenset of str or None
        The breaks of the rehearsal's report to remove; ``None`` for all of them.
    tell : callable
    """

    rehearsal: Rehearsal
    deadline: float
    wanted: frozenset[str] | None = None
    tell: Tell = lambda _: None
    tried: list[Tried] = field(default_factory=list)
    #: Breaks that were not looked at, because there was no time left.
    left: list[str] = field(default_factory=list)
    #: What of ours failed, in sentences.
    faults: list[str] = field(default_factory=list)
    #: What worked for many breaks at once, not to be tried again for one.
    _included: list[Proposal] = field(default_factory=list)
    #: What did not help when all that work were put together, by the break's kind and place, and the step.
    _in_vain: set[tuple[str, str, str]] = field(default_factory=set)
    _end: float = float("inf")
    #: When the break that is being looked at must leave the time to the others.
    _end_of_share: float = float("inf")
    #: The proposals that were tried for a break alone.
    _proposed: dict[str, list[Proposal]] = field(default_factory=dict)
    #: The seconds that the longest attempt so far took.
    _longest_s: float = 0.0

    def run(self) -> list[Tried]:
        """Try settings for all breaks at once, proposals for each until one works, then all that work together."""
        start, whole = time.monotonic(), self.deadline - time.monotonic()
        self._end = start + _SHARE_AT_ONCE * whole
        at_once = self._at_once()
        self._end = start + _SHARE_OF_SINGLE * whole
        together = dict.fromkeys(at_once.breaks, at_once) if at_once is not None else {}
        # What differs, or needed an edit besides, is taken if nothing better is found for a break alone.
        best = together if at_once is not None and _is_enough(at_once) else {}
        self._each_alone(best)
        if at_once is not None and all(
            ident in best and RANK[best[ident].attempt.verdict] <= RANK[at_once.attempt.verdict] for ident in together
        ):
            self.tried = [tried for tried in self.tried if tried is not at_once or _is_enough(at_once)]
        best = together | best
        self._end = self.deadline
        self._together([tried for tried in self.tried if any(tried is found for found in best.values())])
        return self.tried

    def _each_alone(self, best: dict[str, Tried]) -> None:
        """Look for what removes each break alone, in their order, and add it to what is known.

        A break that takes more than its share of the time waits until all have had theirs.
        """
        report = self.rehearsal.original.report
        breaks = {listed.id: listed for listed in report.breaks}
        waiting = [ident for ident in report.order or breaks if self.wanted is None or ident in self.wanted]
        for late in (self.left, list[str]()):  # in the second round each has been looked at
            pending, waiting = waiting, []
            for place, ident in enumerate(pending):
                if ident in best:
                    continue
                if self._late():
                    late.append(ident)
                    continue
                now = time.monotonic()
                self._end_of_share = now + (min(self._end, self.deadline) - now) / (len(pending) - place)
                found, is_done = self._for_break(breaks[ident])
                self._end_of_share = float("inf")
                if found is not None:
                    best.update({gone: found for gone in found.breaks if gone not in best})
                elif not is_done:
                    waiting.append(ident)

    def judge(self, function: Callable[..., Any]) -> None:
        """Judge what somebody wrote in place of the entry's function."""
        report = self.rehearsal.original.report
        name = getattr(function, "__qualname__", type(function).__name__)
        change = as_change(self.rehearsal.program, self.rehearsal.entry.call, function)
        goals = frozenset(listed.id for listed in report.breaks)
        self.tell(f"{name} instead of {self.rehearsal.entry.function}")
        attempt = self.rehearsal.attempt_instead(function, change, goals)
        breaks = attempt.gone if attempt.verdict in WORKING else goals
        self.tried.append(_tried([_OWN], [f"{name} instead of it"], "edit", breaks, (), attempt))

    def judge_edit(self, own: EditedCells | Patch) -> bool:
        """Judge a change that somebody wrote; return whether it changes this entry's program at all."""
        program = self.rehearsal.ran
        report = self.rehearsal.original.report
        names = {source.id: source.path or source.name for source in report.sources}
        goals = frozenset(listed.id for listed in report.breaks)
        watched: tuple[Watched, ...] = ()
        self.tell(own.title)
        try:
            texts = own.texts_for(program, names)
            if not texts:
                return False
            call = self.rehearsal.entry.call
            change = own_edits.as_change(texts, program, call.__code__.co_filename if is_cell(call) else None)
            watched = tuple((Change(), condition) for condition in own_edits.conditions_in(texts, program))
            attempt = self._attempt(change, goals, watched, thorough=True)
        except CannotApplyError as error:
            attempt = Attempt(Change(), "not tried", str(error))
        breaks = attempt.gone if attempt.verdict in WORKING else goals
        self.tried.append(_tried([_OWN], [own.title], "edit", breaks, watched, attempt))
        return True

    def _attempt(
        self, change: Change, goals: frozenset[str], watched: tuple[Watched, ...], *, thorough: bool = False
    ) -> Attempt:
        """Rehearse a change; what of ours fails on it does not end the search."""
        begun = time.monotonic()
        end = max(self.deadline, begun + _OWN_S) if thorough else self.deadline
        try:
            with limit_time(end):
                return self.rehearsal.attempt(change, goals, watched, thorough=thorough)
        except TimeUpError:
            return Attempt(change, "not tried", "there was no time left for it")
        except Exception as fault:  # noqa: BLE001 - the other changes are tried all the same
            self._note_fault("rehearsing a change", fault)
            return Attempt(change, "not tried", f"it could not be rehearsed ({type(fault).__name__}: {fault})")
        finally:
            self._longest_s = max(self._longest_s, time.monotonic() - begun)

    def _note_fault(self, what: str, fault: Exception) -> None:
        self.faults.append(internal_error(what, fault))

    def _late(self) -> bool:
        """Whether there is no time for a further change: as much as the longest so far took, half of that at least."""
        now = time.monotonic()
        end = min(self._end, self._end_of_share, self.deadline)
        return now > end or now + self._longest_s / 2 > self.deadline

    def _at_once(self) -> Tried | None:
        """Try the settings and switches for all breaks together: in models one alone only uncovers the next break."""
        report, texts = self.rehearsal.original.report, self.rehearsal.program.texts
        goals: list[str] = []
        steps: list[Proposal] = []
        for listed in report.breaks:
            if self.wanted is None or listed.id in self.wanted:
                proposals = proposals_for(Problem(report, listed, texts), self._note_fault)
                harmless = [proposal for proposal in proposals if proposal.kind != "edit"]
                goals += [listed.id] if harmless else []
                steps += [proposal for proposal in harmless if proposal not in steps]
        if len(goals) < _FEWEST_AT_ONCE:
            return None
        settings = [step for step in steps if step.kind == "setting"]
        kept = [step for step in steps if step.family != _OF_LIBRARIES]
        choices = [steps, kept, settings, _without_risk(steps), _without_risk(kept), _without_risk(settings)]
        for index, chosen in enumerate(choices):
            if chosen and chosen not in choices[:index] and not self._late():
                self.tried.append(self._followed(frozenset(goals), _without_repetition(chosen), "all settings"))
                if self.tried[-1].works:
                    self._included = chosen if _is_enough(self.tried[-1]) else []
                    return self.tried[-1]
        return None

    def _for_break(self, target: Break) -> tuple[Tried | None, bool]:
        """Try the proposals for a break; return the best that works, and whether none is left to be tried."""
        best: Tried | None = None
        proposed = self._proposed.setdefault(target.id, [])
        report, texts = self.rehearsal.original.report, self.rehearsal.program.texts
        for proposal in proposals_for(Problem(report, target, texts), self._note_fault):
            # What is included did not remove the break when it was tried with others.
            if proposal in self._included or proposal in proposed:
                continue
            if best is not None and _sets_more(proposal, best.attempt.change):
                continue
            if self._late():
                return best, False
            proposed.append(proposal)
            tried = self._followed(frozenset({target.id}), [proposal], _where(target))
            self.tried.append(tried)
            if tried.works and (best is None or RANK[tried.attempt.verdict] < RANK[best.attempt.verdict]):
                best = tried
            if tried.attempt.verdict == "works":
                break
        return best, True

    def _followed(self, goals: frozenset[str], steps: list[Proposal], where: str) -> Tried:
        """Try proposals; where another break comes instead, try to mend that as well."""
        change = Change()
        for proposal in steps:
            change = change.extended(proposal)
        self.tell(f"{where}: {'; '.join(step.title for step in steps)}")
        watched = tuple((Change(), condition) for proposal in steps for condition in proposal.conditions)
        attempt = self._attempt(change, goals, watched)
        first = attempt, watched, steps
        most = len(steps) + _MOST_STEPS - 1
        while attempt.verdict == "another break" and len(steps) < most and not self._late():
            further = self._next_step(attempt, goals, watched, most=2)
            if further is None:
                attempt, watched, steps = first
                break
            attempt, step, watched = further
            steps = [*steps, step]
        breaks = attempt.gone if attempt.verdict in WORKING else goals
        families, titles = [step.family for step in steps], [step.title for step in steps]
        return _tried(families, titles, _kind([step.kind for step in steps]), breaks, watched, attempt)

    def _next_step(
        self, attempt: Attempt, goals: frozenset[str], watched: tuple[Watched, ...], most: int | None = None
    ) -> tuple[Attempt, Proposal, tuple[Watched, ...]] | None:
        """Mend one break more of a changed program; return the first attempt that gets further.

        Parameters
        ----------
        most : int, optional
            How many of the program's breaks to look at.
        """
        report = attempt.report
        if report is None:
            return None
        texts = {**self.rehearsal.program.texts, **attempt.change.texts}
        old = _kinds(self.rehearsal.original.report)
        new = sorted(report.breaks, key=lambda listed: (listed.gb_type, _code(listed)) in old)
        for target in new[:most]:
            for proposal in proposals_for(Problem(report, target, texts), self._note_fault):
                change = attempt.change.extended(proposal)
                key = target.gb_type, _code(target), proposal.title
                if change == attempt.change or (most is None and key in self._in_vain):
                    continue
                if self._late():
                    return None
                self.tell(f"{_where(target)}: {proposal.title}")
                now = (*watched, *((attempt.change, condition) for condition in proposal.conditions))
                tried = self._attempt(change, goals, now)
                if _further(tried, attempt, target):
                    return tried, proposal, now
                self._in_vain.add(key)
        return None

    def _together(self, parts: list[Tried]) -> None:
        """Put together what works, and go on from there with what is left."""
        report, texts = self.rehearsal.original.report, self.rehearsal.program.texts
        goals = frozenset(listed.id for listed in report.breaks)
        change, merged = Change(), list[Tried]()
        for part in parts:
            joined = _merged(texts, change, part.attempt.change)
            if joined is not None:
                change = joined
                merged.append(part)
        if not merged or (len(merged) == 1 and goals <= set(merged[0].breaks)):
            return
        watched = tuple(condition for part in merged for condition in part.watched)
        attempt = self._attempt(change, goals, watched) if len(merged) > 1 else merged[0].attempt
        if attempt.verdict not in WORKING:  # they do not go together: the one that reaches furthest goes on alone
            merged = [max(merged, key=lambda part: len(part.breaks))]
            attempt, watched = merged[0].attempt, merged[0].watched
        steps: list[Proposal] = []
        while attempt.verdict in WORKING and _breaks(attempt) and len(steps) < _MOST_STEPS_TOGETHER:
            further = self._next_step(attempt, goals, watched)
            if further is None:
                break
            attempt, step, watched = further
            steps.append(step)
        if len(merged) == 1 and not steps:
            return
        families = [*(family for part in merged for family in part.families), *(step.family for step in steps)]
        titles = [*(title for part in merged for title in part.titles), *(step.title for step in steps)]
        kind = _kind([*(part.kind for part in merged), *(step.kind for step in steps)])
        self.tried.append(_tried(families, titles, kind, attempt.gone, watched, attempt))


def _is_enough(at_once: Tried) -> bool:
    """Whether settings and switches, tried at once, leave nothing to be wished for."""
    return at_once.attempt.verdict == "works" and not at_once.attempt.change.texts


def _sets_more(proposal: Proposal, change: Change) -> bool:
    """Whether a proposal only sets what a change sets already, and more."""
    return proposal.kind == "setting" and bool(change.settings) and change.settings.items() < proposal.settings.items()


def _without_repetition(steps: list[Proposal]) -> list[Proposal]:
    """Leave out settings that others hold, too."""
    held = [step.settings.items() for step in steps]
    return [step for step in steps if not (step.settings and any(step.settings.items() < other for other in held))]


def _without_risk(steps: list[Proposal]) -> list[Proposal]:
    return [step for step in steps if not any(name.endswith(_RISKY) for name in step.settings)]


def _further(tried: Attempt, before: Attempt, target: Break) -> bool:
    """Whether an attempt to mend a break of a changed program gets further than that program."""
    if tried.report is None or tried.verdict not in (WORKING if before.verdict in WORKING else _UNHARMED):
        return False
    gone = (target.gb_type, _code(target)) not in _kinds(tried.report)
    return _breaks(tried) < _breaks(before) or (gone and _breaks(tried) == _breaks(before))


def _tried(
    families: Iterable[str],
    titles: Iterable[str],
    kind: Kind,
    breaks: Iterable[str],
    watched: tuple[Watched, ...],
    attempt: Attempt,
) -> Tried:
    return Tried(
        tuple(dict.fromkeys(families)),
        tuple(dict.fromkeys(titles)),
        kind,
        tuple(sorted(breaks, key=_number)),
        watched,
        attempt,
    )


def _merged(original: Mapping[str, str], first: Change, second: Change) -> Change | None:
    """Return two changes of the original as one, ``None`` where they change the same lines."""
    texts = dict(first.texts)
    for source, text in second.texts.items():
        if source not in texts:
            texts[source] = text
            continue
        edits = [
            *edits_of(original, Change({source: texts[source]})),
            *edits_of(original, Change({source: text})),
        ]
        edits = list(dict.fromkeys(edits))
        edits.sort(key=lambda edit: (edit.first_line, edit.last_line))
        for before, after in itertools.pairwise(edits):
            if after.first_line <= max(before.last_line, before.first_line):
                return None
        texts[source] = applied_to(original[source], edits)
    conflicting = [
        name
        for name in first.settings.keys() & second.settings.keys()
        if not isinstance(first.settings[name], list) and first.settings[name] != second.settings[name]
    ]
    if conflicting or (first.compiles_itself and second.compiles_itself):
        return None
    assumptions = tuple(dict.fromkeys([*first.assumptions, *second.assumptions]))
    joined = Change(texts, first.settings, first.codes, first.compiles_itself or second.compiles_itself, assumptions)
    return joined.with_settings(second.settings, second.codes)


def _kind(kinds: list[Kind]) -> Kind:
    strongest: tuple[Kind, ...] = ("edit", "switch", "setting")
    return next(kind for kind in strongest if kind in kinds)


def _kinds(report: Report) -> set[tuple[str, str]]:
    return {(listed.gb_type, _code(listed)) for listed in report.breaks}


def _code(graph_break: Break) -> str:
    return (graph_break.location.code or "") if graph_break.location is not None else ""


def _breaks(attempt: Attempt) -> int:
    return attempt.report.summary.breaks if attempt.report is not None else 1 << 30


def _where(graph_break: Break) -> str:
    location = graph_break.location
    return f"line {location.line}" if location is not None else graph_break.gb_type


def _number(ident: str) -> tuple[int, str]:
    digits = "".join(character for character in ident if character.isdigit())
    return int(digits or 0), ident
