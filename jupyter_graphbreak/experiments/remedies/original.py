"""The program itself: what it does on several inputs, to compare changed programs with it."""

from __future__ import annotations

import builtins
import contextlib
import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.remedies.application import applied
from jupyter_graphbreak.experiments.remedies.change import Change
from jupyter_graphbreak.experiments.trial.inputs import Input, describe
from jupyter_graphbreak.experiments.trial.outcome import LineLimitError, line_limit, run, sandboxed
from jupyter_graphbreak.experiments.trial.places import named_tensors
from jupyter_graphbreak.experiments.trial.reference import Reference, ReferenceCase
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.time_limit import seconds_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyter_graphbreak.experiments.families.proposal import Condition
    from jupyter_graphbreak.experiments.remedies.application import Program
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.trial.inputs import Arguments
    from jupyter_graphbreak.experiments.trial.outcome import Result

#: What the changed text calls.
NAME = "__graphbreak_side__"


@dataclass(frozen=True)
class Range:
    """Where a test stands, as ``ast`` counts: lines from 1, columns in bytes of UTF-8."""

    line: int
    column: int
    end_line: int
    end_column: int


def noting(text: str, tests: Sequence[Range], first: int = 0) -> str:
    """Return a text in which each test ``E`` is ``__graphbreak_side__(i, E)``, ``i`` counting the tests.

    Lines stay where they are. One test may lie within another.

    Parameters
    ----------
    text : str
    tests : sequence of Range
    first : int
        The number of the first test.
    """
    lines = [line.encode() for line in text.split("\n")]
    # Of two that end at one place the inner one is closed first, of two that begin there the outer one opened first;
    # what is inserted from the end of the text on moves nothing that is yet to come.
    marks: list[tuple[tuple[int, ...], bytes]] = []
    for index, test in enumerate(tests, start=first):
        begin, end = (test.line, test.column), (test.end_line, test.end_column)
        marks.append(((*begin, 1, -end[0], -end[1]), f"{NAME}({index}, (".encode()))
        marks.append(((*end, 0, -begin[0], -begin[1]), b"))"))
    for (line, column, *_), inserted in sorted(marks, reverse=True):
        lines[line - 1] = lines[line - 1][:column] + inserted + lines[line - 1][column:]
    return b"\n".join(lines).decode()


@contextlib.contextmanager
def noted() -> Iterator[dict[int, set[bool]]]:
    """Note which sides are taken while the context is open: ``{index: {True, False}}``."""
    taken: dict[int, set[bool]] = defaultdict(set)

    def note(index: int, value: Any) -> bool:
        side = bool(value)
        taken[index].add(side)
        return side

    setattr(builtins, NAME, note)
    try:
        yield taken
    finally:
        delattr(builtins, NAME)


#: The most inputs of one trial, but for those that a condition asks for.
_MOST_INPUTS = 6
#: Seconds after which no further input is derived.
_PATIENCE_S = 10.0
#: The most bytes that the results on inputs at the edges may take, and how many there are even if they take more.
_LARGEST_KEPT = 1 << 26
_FEWEST_EDGES = 3
#: The share of the time that is left after which no further input is derived.
_SHARE_OF_INPUTS = 0.1
#: A condition, and the change with which the program reads as the condition's place counts.
Watched = tuple[Change, "Condition"]


class Original:
    """An entry, uncompiled, on its own input and on others.

    Parameters
    ----------
    entry : Entry

    Raises
    ------
    Exception
        Whatever the function itself raises on the first input.
    """

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        first = Input(entry.arguments, describe("the first input", entry.arguments, entry.call))
        with sandboxed():
            self._reference = Reference(entry.call, first)
            derived = self._reference.cases(patience_s=min(_PATIENCE_S, seconds_left() * _SHARE_OF_INPUTS))
            others = [trial for trial in derived if _is_ordinary(trial.input, entry.arguments)]
            if self._reference.repeatable:  # otherwise the function reads memory that is not its own, or the time
                others = [trial for trial in others if seconds_left() > 0 and self._reference.repeats(trial)]
        #: All inputs, with what the function does with them.
        self.pool = [ReferenceCase(first, self._reference.result), *others]
        self._edges: list[ReferenceCase] | None = None

    def edges(self) -> list[ReferenceCase]:
        """Return inputs at the edges of what the function can be given, which it may refuse, and what it does there.

        They must be asked for while the program is as it was: a change that is in force changes what they say. What
        the function does with each is kept, so there are fewer of them if that takes much memory.
        """
        if self._edges is None:
            most = max(_FEWEST_EDGES, _LARGEST_KEPT // max(1, _size(self._reference.result)))
            with sandboxed():
                found = self._reference.edge_cases(patience_s=_PATIENCE_S) if self.repeatable else iter(())
                self._edges = _accepted(list(itertools.islice(found, most)))
        return self._edges

    @property
    def repeatable(self) -> bool:
        """Whether the function returns the same again."""
        return bool(self._reference.repeatable)

    def usual(self) -> list[ReferenceCase]:
        """Return the inputs on which every program is tried."""
        return self.pool[:_MOST_INPUTS]

    def leave_out(self, trial: ReferenceCase) -> None:
        """Try no program on a derived input on which compiling by itself changes the result."""
        if trial is not self.pool[0]:
            self.pool = [each for each in self.pool if each is not trial]

    def run(self, program: Callable[..., Any], subject: Subject, trial: ReferenceCase) -> Result:
        """Call a program with the arguments of a trial; what they share with the state, the copies share, too."""
        own = zip(_values(self.entry.arguments), _values(subject.arguments or self.entry.arguments), strict=True)
        copies = {id(value): copy for value, copy in own}

        def arguments(tried: Input) -> Arguments:
            return tried.arguments.mapped(lambda value: copies.get(id(value), value))

        subject.restore()
        subject.assign(trial.input.state)
        if trial.input.again and self._reference.changed:
            run(program, subject, arguments(self.pool[0].input), gradients=False)
        return run(program, subject, arguments(trial.input), trial.input.seed)

    def chosen(self, program: Program, watched: Sequence[Watched]) -> tuple[list[ReferenceCase], bool | None]:
        """Choose the inputs so that each condition comes out true and false; return whether that was possible."""
        chosen = self.usual()
        if not watched:
            return chosen, None
        by_change: dict[int, tuple[Change, list[Condition]]] = {}
        for change, condition in watched:
            by_change.setdefault(id(change), (change, []))[1].append(condition)
        wanted = {
            (group, index, side)
            for group, (_, conditions) in enumerate(by_change.values())
            for index in range(len(conditions))
            for side in (True, False)
        }
        for trials, done in ((self.pool, len(chosen)), (self.edges, 0)):
            if not wanted:
                break
            tried = trials() if callable(trials) else trials
            taken: list[set[tuple[int, int, bool]]] = [set() for _ in tried]
            for group, (change, conditions) in enumerate(by_change.values()):
                for sides, more in zip(taken, self._sides(program, change, conditions, tried), strict=True):
                    sides |= {(group, index, side) for index, side in more}
            wanted -= set().union(*taken[:done])
            for trial, sides in zip(tried[done:], taken[done:], strict=True):
                if sides & wanted:
                    chosen.append(trial)
                    wanted -= sides
        return chosen, not wanted

    def _sides(
        self, program: Program, change: Change, conditions: list[Condition], trials: list[ReferenceCase]
    ) -> list[set[tuple[int, bool]]]:
        """Return for each input how each condition of the changed program came out, run as it is."""
        texts = {**program.texts, **change.texts}
        instrumented = dict(change.texts)
        count = 0
        for source in dict.fromkeys(condition.source for condition in conditions):
            ranges = [Range(c.line, c.column, c.end_line, c.end_column) for c in conditions if c.source == source]
            instrumented[source] = noting(texts[source], ranges, count)
            count += len(ranges)
        with sandboxed(), noted() as sides:
            subject = Subject(self.entry.call, self.entry.arguments)  # as it reads before the change
            scope = getattr(subject.call, "__globals__", None)
            scopes = [scope] if scope is not None else []
            taken: list[set[tuple[int, bool]]] = []
            with applied(program, instrumented, subject.functions()) as made, made.defined(*scopes):
                for trial in trials:
                    sides.clear()
                    with contextlib.suppress(LineLimitError), line_limit():
                        self.run(subject.call, subject, trial)
                    taken.append({(index, side) for index, found in sides.items() for side in found})
        places = [c for source in dict.fromkeys(c.source for c in conditions) for c in conditions if c.source == source]
        numbers = {number: conditions.index(condition) for number, condition in enumerate(places)}
        return [{(numbers[number], side) for number, side in found} for found in taken]


def _accepted(trials: list[ReferenceCase]) -> list[ReferenceCase]:
    """Leave out tensors of a kind that the function refuses for some values: it is not made for them."""
    refused = {trial.input.other_kind for trial in trials if trial.expected.raised is not None}
    return [trial for trial in trials if not trial.input.other_kind or trial.input.other_kind not in refused]


def _size(result: Result) -> int:
    held = {id(tensor): tensor for _, tensor in named_tensors((result.state, result.arguments), "")}
    return sum(tensor.numel() * tensor.element_size() for tensor in held.values())


def _is_ordinary(derived: Input, given: Arguments) -> bool:
    """Whether an input has no nan and no infinity that the given one has not: taking both sides spreads them."""
    return _all_finite(derived.arguments) or not _all_finite(given)


def _all_finite(arguments: Arguments) -> bool:
    tensors = (value for value in _values(arguments) if isinstance(value, torch.Tensor))
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor.is_floating_point())


def _values(arguments: Arguments) -> list[Any]:
    return [*arguments.args, *arguments.kwargs.values()]
