"""Search for remedies: each break alone, what only works together, and all that work at once."""

from __future__ import annotations

import inspect
import re
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.remedies.change import Change, applied_to, edits_of
from jupyter_graphbreak.remedies.families.table import proposals_for
from jupyter_graphbreak.remedies.proposal import Problem
from jupyter_graphbreak.report.remedies import WORKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_graphbreak.remedies.proposal import Proposal
    from jupyter_graphbreak.remedies.rehearsal import Attempt, Rehearsal, Watched
    from jupyter_graphbreak.report.remedies import RemedyVerdict
    from jupyter_graphbreak.report.schema import Break, Report

#: How many changes one remedy may take, each for the break that the one before it uncovered.
_MOST_STEPS = 3
#: The same where all that work are put together.
_MOST_STEPS_TOGETHER = 12
_RANK: dict[RemedyVerdict, int] = {"works": 0, "works on what ran": 1, "works but differs": 2}

#: The first line of a function, its decorators aside.
_DEFINES = re.compile(r"\s*(?:async\s+)?def\s")
#: Told what is tried, for a line of progress.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Tried:
    """A change that was tried, for breaks of the original."""

    families: tuple[str, ...]
    titles: tuple[str, ...]
    kind: str
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

    def run(self) -> list[Tried]:
        """Try proposals for each break until one works, then all that work together."""
        report = self.rehearsal.original.report
        best: dict[str, Tried] = {}
        for ident in report.order or [listed.id for listed in report.breaks]:
            if ident in best or (self.wanted is not None and ident not in self.wanted):
                continue
            if self._late():
                self.left.append(ident)
                continue
            found = self._for_break(next(listed for listed in report.breaks if listed.id == ident))
            if found is not None:
                best.update({gone: found for gone in found.breaks if gone not in best})
        self._together(list(dict.fromkeys(map(id, best.values()))), {id(tried): tried for tried in best.values()})
        return self.tried

    def judge(self, function: Callable[..., Any]) -> None:
        """Judge what somebody wrote in place of the entry's function."""
        report = self.rehearsal.original.report
        name = getattr(function, "__qualname__", type(function).__name__)
        change = rewritten(self.rehearsal, function)
        goals = frozenset(listed.id for listed in report.breaks)
        self.tell(f"{name} instead of {self.rehearsal.entry.function}")
        attempt = self.rehearsal.attempt_instead(function, change, goals)
        gone = attempt.gone if attempt.verdict in WORKING else goals
        breaks = tuple(sorted(gone, key=_number))
        self.tried.append(Tried(("own",), (f"{name} instead of it",), "edit", breaks, (), attempt))

    def _late(self) -> bool:
        return time.monotonic() > self.deadline

    def _for_break(self, target: Break) -> Tried | None:
        """Try the proposals for a break; return the best that works."""
        best: Tried | None = None
        report, texts = self.rehearsal.original.report, self.rehearsal.program.texts
        for proposal in proposals_for(Problem(report, target, texts)):
            if self._late():
                break
            tried = self._followed(target, proposal)
            self.tried.append(tried)
            if tried.works and (best is None or _RANK[tried.attempt.verdict] < _RANK[best.attempt.verdict]):
                best = tried
            if tried.attempt.verdict == "works":
                break
        return best

    def _followed(self, target: Break, proposal: Proposal) -> Tried:
        """Try a proposal; where another break comes instead, try to mend that as well."""
        goals = frozenset({target.id})
        change = Change().extended(proposal)
        self.tell(f"{_where(target)}: {proposal.title}")
        watched = tuple((Change(), condition) for condition in proposal.conditions)
        attempt = self.rehearsal.attempt(change, goals, watched)
        steps = [proposal]
        first = attempt, watched
        while attempt.verdict == "another break" and len(steps) < _MOST_STEPS and not self._late():
            further = self._next_step(attempt, goals, watched)
            if further is None:
                (attempt, watched), steps = first, steps[:1]
                break
            attempt, step, watched = further
            steps.append(step)
        gone = tuple(sorted(attempt.gone, key=_number)) if attempt.verdict in WORKING else (target.id,)
        return Tried(
            tuple(dict.fromkeys(step.family for step in steps)),
            tuple(step.title for step in steps),
            _kind([step.kind for step in steps]),
            gone,
            watched,
            attempt,
        )

    def _next_step(
        self, attempt: Attempt, goals: frozenset[str], watched: tuple[Watched, ...]
    ) -> tuple[Attempt, Proposal, tuple[Watched, ...]] | None:
        """Mend one break more of a changed program; return the best attempt, if one gets further."""
        report = attempt.report
        if report is None:
            return None
        texts = {**self.rehearsal.program.texts, **attempt.change.texts}
        old = _kinds(self.rehearsal.original.report)
        new = sorted(report.breaks, key=lambda listed: (listed.gb_type, _code(listed)) in old)
        for target in new[:2]:
            for proposal in proposals_for(Problem(report, target, texts)):
                if self._late():
                    return None
                change = attempt.change.extended(proposal)
                self.tell(f"{_where(target)}: {proposal.title}")
                now = (*watched, *((attempt.change, condition) for condition in proposal.conditions))
                tried = self.rehearsal.attempt(change, goals, now)
                if tried.verdict in WORKING or _breaks(tried) < _breaks(attempt):
                    return tried, proposal, now
        return None

    def _together(self, order: list[int], working: dict[int, Tried]) -> None:
        """Put together what works, and go on from there with what is left."""
        parts = [working[key] for key in order]
        report = self.rehearsal.original.report
        goals = frozenset(listed.id for listed in report.breaks)
        if len(parts) < 2 and not (parts and len(parts[0].breaks) < len(goals)):
            return
        change, merged = Change(), []
        for part in parts:
            joined = _merged(self.rehearsal.program.texts, change, part.attempt.change)
            if joined is not None:
                change = joined
                merged.append(part)
        watched = tuple(condition for part in merged for condition in part.watched)
        attempt = self.rehearsal.attempt(change, goals, watched) if len(merged) > 1 else merged[0].attempt
        families = [family for part in merged for family in part.families]
        titles = [title for part in merged for title in part.titles]
        kinds = [part.kind for part in merged]
        progressed = len(merged) > 1
        for _ in range(_MOST_STEPS_TOGETHER):
            if attempt.verdict not in WORKING or not _breaks(attempt) or self._late():
                break
            further = self._next_step(attempt, goals, watched)
            if further is None or further[0].verdict not in WORKING:
                break
            attempt, step, watched = further
            families.append(step.family)
            titles.append(step.title)
            kinds.append(step.kind)
            progressed = True
        if progressed and attempt.verdict in WORKING:
            gone = tuple(sorted(attempt.gone, key=_number))
            self.tried.append(
                Tried(
                    tuple(dict.fromkeys(families)), tuple(dict.fromkeys(titles)), _kind(kinds), gone, watched, attempt
                )
            )


def rewritten(rehearsal: Rehearsal, function: Callable[..., Any]) -> Change:
    """Return what somebody wrote in place of the entry's function as a change of its source, where both are known."""
    original = inspect.unwrap(getattr(rehearsal.entry.call, "__func__", rehearsal.entry.call))
    code = getattr(original, "__code__", None)
    source = next((ident for ident, name in rehearsal.program.files.items() if code and name == code.co_filename), None)
    if source is None or source not in rehearsal.program.texts:
        return Change()
    text = rehearsal.program.texts[source]
    lines = text.split("\n")
    try:
        old = inspect.getblock([f"{line}\n" for line in lines[code.co_firstlineno - 1 :]])
        new = textwrap.dedent(inspect.getsource(function)).rstrip("\n").split("\n")
    except (OSError, TypeError, SyntaxError):
        return Change()
    if not any(map(_DEFINES.match, new)) or not any(map(_DEFINES.match, old)):  # a lambda
        return Change()
    new = new[next(index for index, line in enumerate(new) if _DEFINES.match(line)) :]
    decorators = next(index for index, line in enumerate(old) if _DEFINES.match(line))
    indent = old[0][: len(old[0]) - len(old[0].lstrip())]
    new = [f"{indent}{line}" if line else line for line in new]
    named = re.compile(rf"(\s*(?:async\s+)?def\s+){re.escape(getattr(function, '__name__', ''))}\b")
    new = [named.sub(rf"\g<1>{original.__name__}", line) for line in new]
    first = code.co_firstlineno - 1
    there = slice(first + decorators, first + len(old))
    return Change({source: "\n".join([*lines[: there.start], *new, *lines[there.stop :]])})


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
        for before, after in zip(edits, edits[1:], strict=False):
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
    joined = Change(texts, first.settings, first.codes, first.compiles_itself or second.compiles_itself)
    return joined.with_settings(second.settings, second.codes)


def _kind(kinds: list[str]) -> str:
    return next(kind for kind in ("edit", "switch", "setting") if kind in kinds)


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
