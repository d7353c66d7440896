"""Group breaks so that views show a shared remedy, advice or cause only once, with a list of the breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.advice import advice_for_break
from jupyter_graphbreak.views.words.lines import break_numbers, ordered_breaks
from jupyter_graphbreak.views.words.lookup import per_report
from jupyter_graphbreak.views.words.plain_text import count_text, join_numbers
from jupyter_graphbreak.views.words.reason import reason_of, title_of
from jupyter_graphbreak.views.words.remedies import remedies_for_break

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Report

#: Fewer breaks than this are shown one by one, unless one remedy removes them all.
_MIN_GROUPED_BREAKS = 3
_MAX_CAUSES = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Breaks that are shown as one entry, in the order of their numbers; most groups have a single break."""

    breaks: list[Break]

    @property
    def is_single(self) -> bool:
        """Whether the group contains only one break."""
        return len(self.breaks) == 1


@per_report
def break_groups(report: Report) -> list[Group]:
    """Return all breaks in groups with the same remedy, advice or cause, in the order of the breaks' numbers."""
    by_key: dict[Hashable, list[Break]] = {}
    for break_ in ordered_breaks(report):
        by_key.setdefault(_group_key(report, break_), []).append(break_)
    groups = []
    for breaks in by_key.values():
        shared_remedy = best_remedy(report, breaks[0])
        is_grouped = len(breaks) >= _MIN_GROUPED_BREAKS or (
            shared_remedy is not None and len(breaks) > 1 and len(shared_remedy.breaks) > 1
        )
        groups += [Group(breaks)] if is_grouped else [Group([break_]) for break_ in breaks]
    numbers = break_numbers(report)
    return sorted(groups, key=lambda group: numbers[group.breaks[0].id])


def best_remedy(report: Report, break_: Break) -> Remedy | None:
    """Return the best remedy that works for the break itself, not only for functions eager after it, if any."""
    trials = remedies_for_break(report, break_)
    working_remedies = trials.working_remedies if trials is not None else []
    return next((remedy for remedy in working_remedies if break_.id in remedy.breaks), None)


def _group_key(report: Report, break_: Break) -> Hashable:
    remedy = best_remedy(report, break_)
    if remedy is not None:
        key_of_break = (title_of(break_), remedy.title, remedy.verdict)
        return (remedy.id if len(remedy.breaks) > 1 else key_of_break), break_.minor
    advice = advice_for_break(report, break_)
    trials = remedies_for_break(report, break_)
    failed_trials = (
        tuple((trial.title, trial.verdict) for trial in trials.failed_remedies) if trials is not None else ()
    )
    if advice and not failed_trials:  # the reader has to do the same, whatever the cause
        return advice[0].text, break_.minor
    return title_of(break_), break_.gb_id, break_.outcome, break_.minor, advice[0].text if advice else "", failed_trials


def break_numbers_text(report: Report, breaks: Sequence[Break]) -> str:
    """Return the numbers of breaks: "1 to 7 and 9"."""
    numbers = break_numbers(report)
    return join_numbers(sorted(numbers[break_.id] for break_ in breaks))


def text_of_several_causes(breaks: Sequence[Break]) -> str:
    """Return several causes of breaks as text: "`print` (GB0059); `Tensor.tolist()` (GB0109)"; empty for one cause."""
    causes = list(dict.fromkeys(map(reason_of, breaks)))
    if len(causes) == 1:
        return ""
    more_count = len(causes) - _MAX_CAUSES
    return "; ".join(causes[:_MAX_CAUSES]) + (f" and {count_text(more_count, 'other cause')}" if more_count > 0 else "")


def costs_text(breaks: Sequence[Break]) -> str:
    """Describe the total cost of breaks: "add 99 graphs; compiling the code after them took 57.90 s"."""
    costs = [break_.cost for break_ in breaks if break_.cost is not None]
    graphs, eager = sum(cost.graphs for cost in costs), sum(cost.eager for cost in costs)
    compile_s = sum(cost.compile_s or 0.0 for cost in costs)
    parts = [f"add {count_text(graphs, 'graph')}"] if graphs else []
    parts += [f"compiling the code after them took {compile_s:.2f} s"] if parts and compile_s >= 0.005 else []  # noqa: PLR2004
    parts += [f"{count_text(eager, 'function')} {'runs' if eager == 1 else 'run'} eagerly"] if eager else []
    return "; ".join(parts)
