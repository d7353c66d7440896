"""Candidates for remedies: changes with the results of their trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_graphbreak.report.remedies import WORKING, RemedyVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.experiments.remedies.original import WatchedCondition
    from jupyter_graphbreak.experiments.remedies.trial_runner import TrialResult
    from jupyter_graphbreak.report.remedies import RemedyKind

#: The working verdicts, best first.
VERDICT_RANK: dict[RemedyVerdict, int] = {"works": 0, "works on what ran": 1, "works but differs": 2}
#: The kinds of steps; the first one that a candidate contains is its kind.
_KINDS: tuple[RemedyKind, ...] = ("edit", "switch", "setting")


@dataclass(frozen=True)
class Candidate:
    """A change that should remove some breaks, and the result of its trial."""

    families: tuple[str, ...]
    titles: tuple[str, ...]
    kind: RemedyKind
    breaks: tuple[str, ...]
    watched_conditions: tuple[WatchedCondition, ...]
    result: TrialResult

    @property
    def works(self) -> bool:
        """Whether the candidate can be applied as a remedy."""
        return self.result.verdict in WORKING

    @property
    def rank(self) -> int:
        """The rank of a working verdict; a lower one is better."""
        return VERDICT_RANK[self.result.verdict]

    @property
    def is_sufficient(self) -> bool:
        """Whether settings and switches alone remove the breaks without any difference."""
        return self.result.verdict == "works" and not self.result.change.texts

    @classmethod
    def create(
        cls,
        families: Iterable[str],
        titles: Iterable[str],
        kinds: Iterable[RemedyKind],
        goals: Iterable[str],
        watched_conditions: tuple[WatchedCondition, ...],
        result: TrialResult,
    ) -> Candidate:
        """Return a candidate with the families, titles and kinds of its steps, and with its breaks in order.

        These are the breaks that it removes if it works, or else its goals.
        """
        breaks = result.removed_break_ids if result.verdict in WORKING else goals
        return cls(
            tuple(dict.fromkeys(families)),
            tuple(dict.fromkeys(titles)),
            min(kinds, key=_KINDS.index),
            tuple(sorted(breaks, key=_id_sort_key)),
            watched_conditions,
            result,
        )


def without_needless_candidates(candidates: list[Candidate]) -> list[Candidate]:
    """Drop each candidate that does no more than one with fewer steps, or than an earlier one with the same steps."""

    def is_needless(number: int, candidate: Candidate) -> bool:
        return candidate.works and any(
            (set(other.titles) < set(candidate.titles) or (index < number and _has_same_steps(other, candidate)))
            and set(other.breaks) >= set(candidate.breaks)
            and other.rank <= candidate.rank
            for index, other in enumerate(candidates)
            if other.works
        )

    return [candidate for number, candidate in enumerate(candidates) if not is_needless(number, candidate)]


def _has_same_steps(first: Candidate, second: Candidate) -> bool:
    """Return whether two candidates consist of the same steps, in any order."""
    return set(first.titles) == set(second.titles) and first.result.change.texts == second.result.change.texts


def _id_sort_key(ident: str) -> tuple[int, str]:
    digits = "".join(character for character in ident if character.isdigit())
    return int(digits or 0), ident
