"""References between objects stay references between their copies, however an object stores them."""

from __future__ import annotations

import functools
import io
import itertools
import threading
import weakref
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.inputs import derived_inputs
from jupyter_graphbreak.experiments.trial.outcome import run, sandbox_runs
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.values import describe_difference


class Metric(torch.nn.Module):
    """A module that wraps its own methods in ``__init__``, as in torchmetrics, and drops them when it is pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(())
        self.update = self._wrap(self.update)  # type: ignore[method-assign]
        self.lock = threading.RLock()

    def _wrap(self, update: Any) -> Any:
        @functools.wraps(update)
        def count_and_update(*args: Any) -> None:
            self.calls = getattr(self, "calls", 0) + 1
            update(*args)

        return count_and_update

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "update"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.update = self._wrap(self.update)  # type: ignore[method-assign]

    def update(self, x: torch.Tensor) -> None:
        with self.lock:
            self.total = self.total + x.sum()


def run_on_copies(fn: Any, *args: Any) -> tuple[Subject, Any]:
    with sandbox_runs():
        subject = Subject(fn, Arguments(*args))
        assert subject.arguments is not None
        result = run(subject.function, subject, subject.arguments)
    if result.error is not None:
        raise result.error
    return subject, result


def test_a_copied_scheduler_steps_the_copied_optimizer() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    scaler = torch.amp.GradScaler("cpu")
    weight_before = model.weight.detach().clone()

    def step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        return optimizer.param_groups[0]["lr"]

    subject, result = run_on_copies(step, torch.ones(1, 2))
    values: Any = {binding.name: binding.read() for binding in subject._bindings}
    assert values["scheduler"].optimizer is values["optimizer"]
    assert values["optimizer"].param_groups[0]["params"][0] is values["model"].weight
    assert result.value == 0.5
    assert result.effects.warnings == []
    assert not torch.equal(values["model"].weight, weight_before)
    assert torch.equal(model.weight, weight_before)
    assert model.weight.grad is None
    assert (optimizer.param_groups[0]["lr"], scheduler.last_epoch) == (1.0, 0)
    assert not scaler._per_optimizer_states


def test_a_metric_is_copied_with_its_wrapped_methods() -> None:
    metric = Metric()

    def step(x: torch.Tensor) -> torch.Tensor:
        metric.update(x)
        return metric.total * 1

    subject, result = run_on_copies(step, torch.ones(3))
    assert subject.uncopied_descriptions == []
    assert result.value == 3
    assert result.state["metric"].calls == 1
    assert float(metric.total) == 0
    assert not hasattr(metric, "calls")


def test_hooks_and_their_handles_belong_to_the_copy() -> None:
    model = torch.nn.Linear(2, 2)
    calls: list[int] = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))

    def f(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = model(x)
        handle.remove()
        return y

    run_on_copies(f, torch.ones(1, 2))
    assert calls == []
    assert len(model._forward_hooks) == 1


class Child:
    def __init__(self, parent: Any) -> None:
        self.parent = weakref.ref(parent)


class Parent:
    def __init__(self) -> None:
        self.count = 0
        self.child = Child(self)
        items: list[int] = []
        self.add = items.append
        self.go = functools.partial(Parent.grow, self)

    def grow(self) -> None:
        self.count += 1


def test_weak_references_partials_and_bound_methods_refer_to_the_copy() -> None:
    parent = Parent()
    copies = clone([parent, parent.grow, weakref.WeakKeyDictionary({parent: 1})])
    parent_copy, grow, weak_dict = copies
    assert parent_copy.child.parent() is parent_copy
    assert grow.__self__ is parent_copy
    assert list(weak_dict) == [parent_copy]
    parent_copy.go()
    parent_copy.add(1)
    assert (parent_copy.count, parent.count) == (1, 0)
    assert parent_copy.add.__self__ == [1]
    assert parent.add.__self__ == []  # type: ignore[attr-defined]


class SlottedObject:
    __slots__ = ("items", "unset")

    def __init__(self) -> None:
        self.items = [1]


class UppercaseDict(OrderedDict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key.upper(), value)


def test_all_kinds_of_containers_are_copied() -> None:
    named_dict = UppercaseDict(a=[1])
    named_dict.note = [2]  # type: ignore[attr-defined]
    arguments: Any = [SlottedObject(), named_dict, defaultdict(list, {1: [1]}), UserDict(a=[1]), {torch.ones(1): 1}]
    slotted, named_copy, default_dict, user_dict, dict_by_tensor = clone(arguments)
    slotted.items.append(2)
    named_copy["A"].append(2)
    named_copy.note.append(3)
    default_dict[1].append(2)
    user_dict["a"].append(2)
    assert arguments[0].items == [1]
    assert (named_dict["A"], named_dict.note) == ([1], [2])  # type: ignore[attr-defined]
    assert (arguments[2], arguments[3]) == ({1: [1]}, {"a": [1]})
    assert default_dict["new"] == []
    assert next(iter(dict_by_tensor)) is not next(iter(arguments[4]))


def test_copies_of_ordered_dicts_have_the_same_order() -> None:
    cache = OrderedDict(a=1, b=2, c=3)
    cache.move_to_end("a")
    assert list(clone(cache)) == ["b", "c", "a"]


class Pair(tuple[Any, ...]):
    """A tuple that is not a sequence."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError


def test_a_tuple_subclass_that_is_not_a_sequence_is_copied() -> None:
    model: Any = torch.nn.Linear(2, 2)
    model.pair = Pair(([1], 2))

    def f(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = model(x)
        return y

    subject, _ = run_on_copies(f, torch.ones(1, 2))
    assert subject.uncopied_descriptions == []


class Handle:
    """An object whose destructor counts its calls."""

    freed = 0

    def __del__(self) -> None:
        Handle.freed += 1


def test_an_object_with_a_destructor_is_shared_and_restored() -> None:
    handle: Any = Handle()
    handle.uses = 0

    def f(x: torch.Tensor) -> torch.Tensor:
        handle.uses += 1
        return x + 1

    subject, _ = run_on_copies(f, torch.ones(1))
    assert len(subject.uncopied_descriptions) == 1
    assert "`handle` (Handle) cannot be copied" in subject.uncopied_descriptions[0]
    assert handle.uses == 0
    del subject
    assert Handle.freed == 0


def test_a_run_that_would_consume_a_generator_is_stopped() -> None:
    numbers = (number for number in range(3))
    with pytest.raises(TrialStoppedError, match="advances an iterator"):
        run_on_copies(lambda x: x + next(numbers), torch.ones(1))
    assert list(numbers) == [0, 1, 2]


def times(number: int) -> torch.Tensor:
    return torch.ones(2) * number


def yield_multiples(*numbers: int) -> Iterator[torch.Tensor]:
    yield from map(times, numbers)


ONE_SHOT_ITERATORS: dict[str, Callable[[], Iterator[Any]]] = {
    "generator expression": lambda: (times(number) for number in (1, 2)),
    "generator function": lambda: yield_multiples(1, 2),
    "map": lambda: map(times, [1, 2]),
    "filter": lambda: filter(torch.is_tensor, map(times, [1, 2])),
    "chain": lambda: itertools.chain(map(times, [1]), map(times, [2])),
    "islice": lambda: itertools.islice(yield_multiples(1, 2, 3), 2),
}


@pytest.mark.parametrize("name", ONE_SHOT_ITERATORS)
def test_a_report_until_an_iterator_is_advanced_shows_the_break_of_the_program(name: str) -> None:
    def add_next(x: torch.Tensor, items: Iterator[Any]) -> Any:
        return x * 2 + next(items)

    make_iterator, x = ONE_SHOT_ITERATORS[name], torch.ones(2)
    (expected, *_) = jupyter_graphbreak.explain(add_next, x, make_iterator()).breaks
    items = make_iterator()
    report = jupyter_graphbreak.check(torch.compile(add_next, backend="eager"), x, items)
    (break_,) = report.breaks
    assert (break_.gb_id, break_.explanation, break_.location) == (
        expected.gb_id,
        expected.explanation,
        expected.location,
    )
    assert [effect.what for effect in report.effects or []] == ["advances an iterator that cannot be copied"]
    assert len(list(items)) == 2


def test_a_report_until_a_file_is_written_names_the_line_of_the_program(tmp_path: Path) -> None:
    def f(x: torch.Tensor, log: Any) -> torch.Tensor:
        y = x * 2
        log.write("y")
        return y + 1

    (expected,) = jupyter_graphbreak.explain(f, torch.ones(2), io.StringIO()).breaks
    with (tmp_path / "log").open("w") as log:
        report = jupyter_graphbreak.check(torch.compile(f, backend="eager"), torch.ones(2), log)
    assert [break_.location for break_ in report.breaks] == [expected.location]
    assert [source.name for source in report.sources] == ["test_references.py"]


class OneSizeDict(UserDict[str, torch.Tensor]):
    """A dict that accepts only tensors of one size, like a tensordict."""

    def __setitem__(self, key: str, value: torch.Tensor) -> None:
        if value.shape[:1] != (4,):
            raise RuntimeError("batch dimension mismatch")
        super().__setitem__(key, value)


def test_inputs_that_cannot_be_derived_are_skipped() -> None:
    def f(batch: OneSizeDict) -> torch.Tensor:
        return batch["a"].sum()

    inputs = list(derived_inputs(Arguments(OneSizeDict(a=torch.rand(4, 3))), f))
    assert inputs
    assert all(input_.arguments.args[0]["a"].shape[0] == 4 for input_ in inputs)


def make_counter(calls: list[int]) -> Any:
    def callback(y: torch.Tensor) -> None:
        calls.append(y.dim())

    callback.calls = 0  # type: ignore[attr-defined]
    return callback


@torch.compiler.disable  # type: ignore[untyped-decorator]
def call(callback: Any, y: torch.Tensor) -> None:
    callback(y)
    callback.calls += 1


def call_callbacks(x: torch.Tensor, callbacks: Any) -> torch.Tensor:
    y = x * 2
    for callback in callbacks["all"]:
        call(callback, y)
    if y.sum() > 0:
        y = y + 1
    return y


@pytest.mark.exhaustive
def test_functions_inside_arguments_are_copied_for_every_input() -> None:
    calls: list[int] = []
    callback = make_counter(calls)
    arguments = torch.ones(3), {"all": [callback]}
    report = jupyter_graphbreak.try_remedies(torch.compile(call_callbacks, backend="eager"), *arguments)
    assert "works" in {remedy.verdict for remedy in report.remedies or []}
    jupyter_graphbreak.compare_frontends(call_callbacks, *arguments)
    assert (calls, callback.calls) == ([], 0)


def test_the_content_of_streams_in_memory_is_compared() -> None:
    text, data = io.StringIO("a"), io.TextIOWrapper(io.BytesIO(b"a"), write_through=True)
    for stream in (text, data):
        stream_copy = clone(stream)
        assert describe_difference(stream, stream_copy) is None
        stream_copy.write("b")
        assert describe_difference(stream, stream_copy) is not None
    assert (text.getvalue(), data.buffer.getvalue()) == ("a", b"a")


class LazyNumber:
    """An object that computes its number when it is compared, like the transforms of matplotlib."""

    number: float | None = None

    def __eq__(self, other: object) -> bool:
        self.number = 1.0
        return isinstance(other, LazyNumber)

    __hash__ = None  # type: ignore[assignment]


def test_comparing_weak_references_does_not_compare_what_they_refer_to() -> None:
    lazy = LazyNumber()
    holder = {"reference": weakref.ref(lazy), "lazy": lazy}
    first_copy, second_copy = clone(holder), clone(holder)
    assert describe_difference(first_copy, second_copy) is None
    assert first_copy["lazy"].number is None
    assert describe_difference({"reference": weakref.ref(lazy)}, {"reference": weakref.ref(LazyNumber())}) is not None
