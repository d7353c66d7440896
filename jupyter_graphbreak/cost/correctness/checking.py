"""Check a compiled function against the function itself, and find what brings a difference in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from jupyter_graphbreak._torch_compat.configuration import eager_random_numbers
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.cost.correctness.closeness import Exact, double_state, doubled, unlike
from jupyter_graphbreak.cost.correctness.graph_comparison import GraphComparison, gradients_of
from jupyter_graphbreak.cost.correspondence import Correspondence
from jupyter_graphbreak.cost.entry_cost import backend_name
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.report.cost import Check, Divergence
from jupyter_graphbreak.trial.effects import seed_all
from jupyter_graphbreak.trial.entry import compiling_anew
from jupyter_graphbreak.trial.guard import guarded
from jupyter_graphbreak.trial.inputs import Arguments
from jupyter_graphbreak.trial.outcome import untouched
from jupyter_graphbreak.trial.subject import Subject
from jupyter_graphbreak.trial.time_limit import require_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.recording.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Report
    from jupyter_graphbreak.trial.entry import Entry

Step = Literal["eager", "aot_eager", "backend"]
_MOST_DIFFERENCES = 8


@dataclass(frozen=True)
class Checked:
    """The check of an entry, and the report of the run on copies in which it was compiled."""

    check: Check
    report: Report


@dataclass
class _Seen:
    """What a call did: its result, its arguments and its state afterwards, gradients; each by a name."""

    values: dict[str, Any] = field(default_factory=dict)
    gradients: dict[str, Any] = field(default_factory=dict)
    raised: str | None = None


def check_entry(entry: Entry, run: Report | None = None, *, find_cell: FindCell = lambda _: None) -> Checked:
    """Compare the compiled run of an entry with the eager one, both on copies: values and gradients.

    Random numbers are the same in both.

    Parameters
    ----------
    entry : Entry
    run : Report or None
        The report whose graphs the check names; without it those of the report that is made here.
    find_cell : callable
        Given the file name of a code object, the cell it comes from.
    """
    with entry.set_up(), untouched(), eager_random_numbers():
        trial = _CompiledTrial(entry, entry.backend)
        with compiling_anew(trial.subject.call):
            with recorder.record(find_cell) as recording:
                actual = trial.see()
            own = build_report(recording.records)
            differences = _differences(entry, _eager(entry), actual)
            first = _first(trial, Correspondence(own, run if run is not None else own, entry.frame))
            if first is not None and not differences:
                differences = [f"graph {first.graph} computes something else, which the result does not show"]
        step = _step(entry) if differences else None
    check = Check(
        function=entry.function,
        backend=backend_name(entry.backend),
        equal=not differences,
        differences=differences[:_MOST_DIFFERENCES],
        first=first,
        step=step,
    )
    return Checked(check, own)


class _CompiledTrial:
    """An entry that is compiled once and called from the same state each time."""

    def __init__(self, entry: Entry, backend: str | Callable[..., Any]) -> None:
        self.subject = Subject(entry.call, entry.arguments)
        self.graphs = GraphComparison(backend, self.subject)
        self._program = torch.compile(self.subject.call, backend=self.graphs, dynamic=entry.dynamic)

    def see(self) -> _Seen:
        self.subject.restore()
        return _see(self._program, self.subject)

    def call(self) -> None:
        """Call it for its graphs alone."""
        self.subject.restore()
        _call(self._program, self.subject)


def _eager(entry: Entry) -> _Seen:
    subject = Subject(entry.call, entry.arguments)
    subject.restore()
    return _see(subject.call, subject)


def _exact(entry: Entry) -> tuple[_Seen, _Seen] | None:
    """Return what the function does in double precision, and with inputs a little off; ``None`` if it does not work."""
    try:
        seen = _in_double(entry, varied=False), _in_double(entry, varied=True)
    except Exception:  # noqa: BLE001 - what the user's objects do when they are copied
        return None
    return seen if seen[0].raised is None and seen[1].raised is None else None


def _in_double(entry: Entry, *, varied: bool) -> _Seen:
    subject = Subject(entry.call, entry.arguments)
    subject.restore()
    subject.modes = replace(subject.modes, dtype=torch.float64)
    double_state(subject, varied=varied)
    given = subject.arguments or entry.arguments
    args, kwargs = doubled((given.args, given.kwargs), subject.held(), varied=varied)
    return _see(subject.call, subject, Arguments(*args, **kwargs))


def _call(
    program: Callable[..., Any], subject: Subject, given: Arguments | None = None
) -> tuple[Any, Arguments, str | None]:
    """Call a program; return its result, its arguments afterwards, and what it raised."""
    require_time()
    given = given or subject.copies_of(subject.arguments or Arguments())
    seed_all(0)
    with guarded(subject.call, assigned=subject.assigned), subject.entered():
        try:
            return program(*given.args, **given.kwargs), given, None
        except Exception as error:  # noqa: BLE001 - that it raises is the finding
            return None, given, type(error).__name__


def _see(program: Callable[..., Any], subject: Subject, given: Arguments | None = None) -> _Seen:
    value, given, raised = _call(program, subject, given)
    if raised is not None:
        return _Seen(raised=raised)
    memo = subject.unchanged()
    named = given.named(subject.call)
    seen = _Seen({"the result": subject.seen(value, memo)})
    seen.values |= {f"{name} afterwards": subject.seen(item, memo) for name, item in named.items()}
    seen.values |= {f"{name} afterwards": item for name, item in subject.state(memo).items()}
    inputs = dict(_differentiable(named, subject))
    try:
        with guarded(subject.call, assigned=subject.assigned), subject.entered():
            gradients = gradients_of(value, list(inputs.values()))
    except RuntimeError as error:  # such as a graph that is used up
        seen.gradients["the backward pass"] = type(error).__name__
        return seen
    for name, item in inputs.items():
        found = gradients.pop(0) if gradients else None
        seen.gradients[f"the gradient of {name}"] = subject.seen(found, {})
        if item.grad is not None:
            seen.gradients[f"{name}.grad"] = subject.seen(item.grad, {})
    return seen


def _differentiable(named: dict[str, Any], subject: Subject) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that gradients are taken of, with a name for each."""
    pending = [*named.items(), *([("self", subject.owner)] if subject.owner is not None else [])]
    for name, value in pending:
        match value:
            case torch.Tensor() if value.requires_grad and value.is_leaf:
                yield name, value
            case torch.nn.Module():
                yield from ((part, found) for part, found in value.named_parameters() if found.requires_grad)
            case list() | tuple():
                pending += [(f"{name}[{number}]", item) for number, item in enumerate(value)]
            case dict():
                pending += [(f"{name}[{key!r}]", item) for key, item in value.items()]


def _differences(entry: Entry, expected: _Seen, actual: _Seen) -> list[str]:
    """Return how a compiled call differs from the eager one by more than rounding."""
    found = list(_unlike(expected, actual, None))
    # A run in double precision takes twice the memory, and time: it is made if there is something that it may explain.
    return list(_unlike(expected, actual, _exact(entry))) if found else []


def _unlike(expected: _Seen, actual: _Seen, exact: tuple[_Seen, _Seen] | None) -> Iterator[str]:
    if expected.raised != actual.raised:
        yield f"{_outcome(actual)} where eager {_outcome(expected)}"
        return
    for kind in ("values", "gradients"):
        ones, others = getattr(expected, kind), getattr(actual, kind)
        doubles = [getattr(seen, kind) for seen in exact or ()]
        for name in ones:
            known = exact is not None and all(name in double for double in doubles)
            reference = Exact(*(double[name] for double in doubles)) if known else None
            found = unlike(ones[name], others.get(name), reference)
            if found is not None:
                yield f"{name}: {found}"


def _outcome(seen: _Seen) -> str:
    return f"raises {seen.raised}" if seen.raised is not None else "returns"


def _first(trial: _CompiledTrial, found: Correspondence) -> Divergence | None:
    """Return the first graph and operation that differ, in a further call of what was compiled."""
    graphs = trial.graphs
    _compare_graphs(trial)
    if graphs.wrong is None:
        return None
    frame = next((frame for frame in found.own.frames if frame.id == graphs.wrong.frame), None)
    letter = frame.graphs[0] if frame is not None and frame.graphs else None
    named = found.graph(letter)
    if letter is None or named is None:
        return None
    name = graphs.first_wrong_operation()
    graph = next(graph for graph in found.run.graphs if graph.id == named)
    op = next((op for op in graph.ops if op.name == name), None)
    return Divergence(named, op.location if op is not None else None, op.name if op is not None else name)


def _compare_graphs(trial: _CompiledTrial) -> None:
    graphs = trial.graphs
    for graphs.compares in ("values", "gradients"):
        trial.call()
        if graphs.wrong is not None:
            break
    graphs.compares = "nothing"


def _step(entry: Entry) -> Step:
    """Return the first step of compiling that brings a difference in."""
    steps: tuple[Step, ...] = ("eager", "aot_eager")
    for step in steps:
        if step == backend_name(entry.backend):
            return step
        trial = _CompiledTrial(entry, step)
        with compiling_anew(trial.subject.call):
            if _differences(entry, _eager(entry), trial.see()):
                return step
            _compare_graphs(trial)
            if trial.graphs.wrong is not None:
                return step
    return "backend"
