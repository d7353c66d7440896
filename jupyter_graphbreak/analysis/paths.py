"""List the questions whose answer differs while compiling, and the lines that run because of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from jupyter_graphbreak.report.schema import PathDifference

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.ledger import Ledger
    from jupyter_graphbreak.analysis.locations import Sources
    from jupyter_graphbreak.records.additions import AnswerDiffers
    from jupyter_graphbreak.records.records import StackEntry
    from jupyter_graphbreak.report.location import Location

#: The recorded branches of one question, each with its lines.
_Branches: TypeAlias = "dict[StackEntry | None, tuple[AnswerDiffers, dict[int, None]]]"


def list_paths(ledger: Ledger, sources: Sources) -> list[PathDifference]:
    """Return each question once per branch that its answer decides, or once if it decides none.

    Dynamo traces a function again after a break and for each recompile, so the same branch is recorded repeatedly.
    """
    questions: dict[tuple[str, StackEntry], _Branches] = {}
    for answer in ledger.answers:
        branches = questions.setdefault((answer.question, answer.asked), {})
        _, lines = branches.setdefault(answer.branch, (answer, {}))
        lines.update(dict.fromkeys(answer.lines))
    return [
        PathDifference(
            function=question,
            location=sources.place(asked),
            compiled=answer.compiled,
            eager=answer.eager,
            branch=sources.place(branch) if branch is not None else None,
            lines=_lines(sources, branch, lines),
        )
        for (question, asked), branches in questions.items()
        for branch, (answer, lines) in _decided(asked, branches).items()
    ]


def _decided(asked: StackEntry, branches: _Branches) -> _Branches:
    """Return the branches that the answer decides.

    In ``slow = not is_compiling() and x.dim() > 1``, the jump on the question's own line changes nothing. It is left
    out if the answer also decides something else, and so is the entry of the question itself.
    """
    others: _Branches = {
        branch: found
        for branch, found in branches.items()
        if branch is not None and (found[1] or (branch.filename, branch.line) != (asked.filename, asked.line))
    }
    return others or dict([max(branches.items(), key=lambda found: found[0] is not None)])


def _lines(sources: Sources, branch: StackEntry | None, lines: dict[int, None]) -> list[Location]:
    if branch is None:
        return []
    found = (sources.location(branch.filename, line, branch.function) for line in sorted(lines))
    return [location for location in found if location is not None]
