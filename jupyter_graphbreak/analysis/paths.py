"""List the questions whose answer differs while compiling, and the lines that run or are skipped because of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from jupyter_graphbreak.report.schema import PathDifference

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.ledger import Ledger
    from jupyter_graphbreak.analysis.locations import Sources
    from jupyter_graphbreak.records.additions import AnswerDiffers
    from jupyter_graphbreak.records.records import StackEntry
    from jupyter_graphbreak.report.location import Location

#: The recorded branches of one question, each with the lines that run and those that are skipped.
_Branches: TypeAlias = "dict[StackEntry | None, tuple[AnswerDiffers, set[int], set[int]]]"


def list_paths(ledger: Ledger, sources: Sources) -> list[PathDifference]:
    """Return each question once per branch that its answer decides, or once if it decides none.

    Dynamo traces a function again after a break and for each recompile, so the same branch is recorded repeatedly.
    """
    questions: dict[tuple[str, StackEntry], _Branches] = {}
    for answer in ledger.answers:
        branches = questions.setdefault((answer.question, answer.asked), {})
        _, lines, skipped = branches.setdefault(answer.branch, (answer, set(), set()))
        lines.update(answer.lines)
        skipped.update(answer.skipped)
    return [
        PathDifference(
            function=question,
            location=sources.place(asked),
            compiled=answer.compiled,
            eager=answer.eager,
            branch=sources.place(branch) if branch is not None else None,
            lines=_lines(sources, branch, lines),
            skipped=_lines(sources, branch, skipped - lines),
        )
        for (question, asked), branches in questions.items()
        for branch, (answer, lines, skipped) in _decided(asked, branches).items()
    ]


def _decided(asked: StackEntry, branches: _Branches) -> _Branches:
    """Return the branches that the answer decides.

    In ``slow = not is_compiling() and x.dim() > 1``, the jump on the question's own line changes nothing. It is left
    out if the answer also decides something else, and so is the entry of the question itself.
    """
    line = asked.filename, asked.line
    others: _Branches = {
        branch: found
        for branch, found in branches.items()
        if branch is not None and (found[1] or found[2] or (branch.filename, branch.line) != line)
    }
    return others or dict([max(branches.items(), key=lambda found: found[0] is not None)])


def _lines(sources: Sources, branch: StackEntry | None, lines: set[int]) -> list[Location]:
    if branch is None:
        return []
    found = (sources.location(branch.filename, line, branch.function) for line in sorted(lines))
    return [location for location in found if location is not None]
