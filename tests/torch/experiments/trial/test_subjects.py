"""A run on copies changes nothing that the function can reach, and always starts from the same state."""

from __future__ import annotations

import copy
import itertools
import os
import threading
from collections import deque
from typing import Any, ClassVar, NoReturn

import pytest
import torch

from jupyter_graphbreak._torch_compat import operations
from jupyter_graphbreak._torch_compat.call_modes import CallModes
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.outcome import LineLimitError, Result, limit_lines, run, sandbox_runs
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject, share_run_setup
from jupyter_graphbreak.experiments.trial.values import describe_difference
from jupyter_graphbreak.records.package_paths import library_roots

pytestmark = pytest.mark.usefixtures("few_unusual_inputs")

HISTORY: list[float] = []
COUNT = 0
ONES = torch.ones(3)


def run_repeatedly(fn: Any, *args: Any, times: int = 2) -> tuple[Subject, list[Result]]:
    """Run a function several times from the initial state, and check that the results are equal."""
    with sandbox_runs():
        subject = Subject(fn, Arguments(*args))
        results = []
        assert subject.arguments is not None
        for _ in range(times):
            subject.restore()
            results.append(run(subject.function, subject, subject.arguments))
    for later_result in results[1:]:
        assert describe_difference(results[0].value, later_result.value) is None
        assert describe_difference(results[0].state, later_result.state) is None
        assert describe_difference(results[0].arguments, later_result.arguments) is None
        assert describe_difference(results[0].gradients, later_result.gradients) is None
        assert results[0].aliases == later_result.aliases
    return subject, results


# -- Shared objects and shared memory stay shared.


def test_a_compiled_module_calls_the_copy_of_its_module() -> None:
    net = torch.nn.BatchNorm1d(2)
    compiled = torch.compile(net, backend="eager")

    def f(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = compiled(x)
        return y, int(net.num_batches_tracked)  # type: ignore[arg-type]

    _, (first, _) = run_repeatedly(f, torch.randn(4, 2))
    assert first.value[1] == 1
    assert int(net.num_batches_tracked) == 0  # type: ignore[arg-type]


def test_a_tensor_that_is_a_global_and_an_argument_stays_one_object() -> None:
    cache = torch.zeros(3)

    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return cache * 1

    subject, (first, _) = run_repeatedly(f, cache)
    assert torch.equal(first.value, torch.ones(3))
    assert torch.equal(first.arguments["x"], torch.ones(3))
    assert first.aliases["the tensor cache"] == ("is", frozenset({"the argument x"}))
    assert torch.equal(cache, torch.zeros(3))
    assert subject.uncopied_descriptions == []


def test_a_view_of_a_global_is_a_view_of_the_copy() -> None:
    base = torch.zeros(4, 2)

    def f(row: torch.Tensor) -> torch.Tensor:
        row.fill_(1)
        return base.sum()

    _, (first, _) = run_repeatedly(f, base[1])
    assert first.value == 2
    assert first.aliases["the tensor base"][0] == "shares memory with"
    assert base.sum() == 0


def test_a_tensor_passed_twice_stays_one_object() -> None:
    argument = torch.ones(2)
    _, (first, _) = run_repeatedly(lambda x, y: (x.add_(1), y * 1)[1], argument, argument)
    assert torch.equal(first.value, torch.full((2,), 2.0))


def test_a_module_argument_is_the_module_of_a_global_optimizer() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    weight_before = model.weight.detach().clone()

    def step(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        result: torch.Tensor = net(x).detach()
        return result

    _, (first, _) = run_repeatedly(step, model, torch.ones(1, 2))
    assert torch.allclose(first.value, (weight_before - 0.5).sum())
    assert torch.equal(model.weight, weight_before)
    assert model.weight.grad is None
    assert not optimizer.state


def test_tied_weights_stay_tied() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    subject, (first, _) = run_repeatedly(model, torch.ones(1, 2))
    assert subject.function[0].weight is subject.function[1].weight
    assert subject.function[0].weight is not model[0].weight
    assert first.aliases["the parameter 1.weight"] == ("is", frozenset({"the parameter 0.weight"}))


# -- The initial state of a run.


def test_existing_grads_are_copied_and_restored() -> None:
    model = torch.nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    gradient_before = copy.deepcopy(model.weight.grad)

    def f(x: torch.Tensor) -> torch.Tensor:
        model(x).sum().backward()
        return model.weight.grad.clone()  # type: ignore[union-attr]

    _, (first, _) = run_repeatedly(f, torch.ones(1, 2))
    assert torch.equal(first.value, torch.full((1, 2), 2.0))
    assert torch.equal(first.leaf_grads["the parameter model.weight"], first.value)  # type: ignore[arg-type]
    assert torch.equal(model.weight.grad, gradient_before)  # type: ignore[arg-type]


OPERATOR_CALLS: list[int] = []


@torch.library.custom_op("graphbreak_tests::double_and_count", mutates_args=())
def double_and_count(x: torch.Tensor) -> torch.Tensor:
    OPERATOR_CALLS.append(1)
    return x * 2


def test_a_custom_operator_changes_copies() -> None:
    def f(x: torch.Tensor) -> Any:
        return double_and_count(x) + torch.ops.graphbreak_tests.double_and_count(x)

    _, (first, second) = run_repeatedly(f, torch.ones(2))
    assert torch.equal(first.value, second.value)
    assert OPERATOR_CALLS == []


LIBRARY = torch.library.Library("graphbreak_kernels", "DEF")
LIBRARY.define("double_and_note(Tensor x) -> Tensor")


def _register_kernel() -> None:
    def double_and_note(x: torch.Tensor) -> torch.Tensor:
        OPERATOR_CALLS.append(2)
        return x * 2

    LIBRARY.impl("double_and_note", double_and_note, "CPU")


def test_a_kernel_that_only_the_dispatcher_refers_to_changes_copies() -> None:
    _register_kernel()
    operator = torch.ops.graphbreak_kernels.double_and_note.default
    run_repeatedly(lambda x: operator(x) + torch.ops.graphbreak_kernels.double_and_note(x), torch.ones(2))
    assert OPERATOR_CALLS == []


def test_a_function_that_is_running_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_last_search", (-1, []))
    _register_kernel()
    kernels: list[Any] = []
    code = compile("def search(): kernels.extend(python_kernels())\nsearch()", "script.py", "exec")
    exec(code, {"kernels": kernels, "python_kernels": operations.python_kernels})
    assert "double_and_note" in [kernel.__name__ for kernel in kernels]
    assert not {"<module>", "search"} & {kernel.__name__ for kernel in kernels}


class FunctionCallCounter(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        FunctionCallCounter.calls += 1
        return super().__torch_function__(*args, **kwargs)  # type: ignore[no-untyped-call]


def test_runs_on_a_tensor_of_a_users_class_call_copies_of_its_attributes_only() -> None:
    counting_tensor, plain_tensor = torch.ones(3).as_subclass(FunctionCallCounter), torch.zeros(4)
    part = plain_tensor[1:].as_subclass(FunctionCallCounter)
    calls_before = FunctionCallCounter.calls
    with share_run_setup(CallModes.now()):
        subject, (first, _) = run_repeatedly(lambda x: x.mul_(2) + counting_tensor + plain_tensor.sum(), part)
    assert (type(first.value), FunctionCallCounter.calls) == (FunctionCallCounter, calls_before)
    assert subject.initial_state["FunctionCallCounter.calls"] == calls_before
    assert first.state["FunctionCallCounter.calls"] > calls_before


class Ticking:
    ticks = 0

    def tick(self) -> None:
        global COUNT  # noqa: PLW0603 - the test needs an assigned global
        Ticking.ticks += 1
        COUNT += 1


class Meters(dict[str, float]):
    sets = 0

    def __setitem__(self, name: str, value: float) -> None:
        Meters.sets += 1
        super().__setitem__(name, value)


TICKING_OBJECTS = {"all": [(Ticking(),)]}
METERS = Meters()
RAW_BYTES = bytearray(4)
BYTES_VIEW = memoryview(RAW_BYTES)[1:3]


def test_objects_in_containers_change_copies() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        TICKING_OBJECTS["all"][0][0].tick()
        METERS["x"] = 1.0
        BYTES_VIEW[1] = 7
        return x * RAW_BYTES[2]

    _, (first, _) = run_repeatedly(f, torch.ones(2))
    assert first.value.tolist() == [7.0, 7.0]
    assert (Ticking.ticks, COUNT, Meters.sets, len(METERS), bytes(RAW_BYTES)) == (0, 0, 0, 0, bytes(4))


class Temporary:
    def __del__(self) -> None:
        HISTORY.append(1.0)


def test_code_that_creates_objects_with_a_destructor_does_not_run() -> None:
    subject = Subject(lambda x: (x, Temporary())[0], Arguments(torch.ones(2)))
    with pytest.raises(TrialStoppedError, match="creates a Temporary, whose destructor may run later"):
        run(subject.function, subject, Arguments(torch.ones(2)))


def test_a_grad_that_a_tensor_retains_is_copied() -> None:
    scaled = torch.ones(3, requires_grad=True) * 2
    scaled.retain_grad()
    (scaled * 3).sum().backward()
    _, (first, _) = run_repeatedly(lambda t: t.grad + 1, scaled)
    assert torch.equal(first.value, torch.full((3,), 4.0))


def test_a_non_leaf_tensor_is_copied_as_a_leaf() -> None:
    weight = torch.ones(3, requires_grad=True)
    scaled = weight * 2

    class StatefulModule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = scaled.sum()
            self.seen: list[int] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.append(1)
            self.last = (x * scaled).sum()
            return self.last + 0

    model = StatefulModule()
    subject, (first, _) = run_repeatedly(model, torch.ones(3))
    assert float(first.value) == float(model.last) == 6
    assert (model.seen, subject.uncopied_descriptions) == ([], [])
    assert set(first.gradients or {}) == {"the tensor scaled"}
    assert weight.grad is None


def test_buffers_and_counters_of_a_module_are_restored() -> None:
    model = torch.nn.BatchNorm1d(2)
    _, (first, _) = run_repeatedly(model, torch.randn(4, 2))
    assert first.state["self"].num_batches_tracked == 1
    assert model.num_batches_tracked == 0


def test_hooks_receive_only_copies() -> None:
    seen: list[torch.Tensor] = []
    model = torch.nn.Linear(2, 1)
    model.register_forward_hook(lambda _, __, out: seen.append(out))
    _, (first, _) = run_repeatedly(model, torch.ones(1, 2))
    assert len(first.state["seen"]) == 1
    assert seen == []


def test_parametrizations_and_closures_in_modules_change_copies() -> None:
    calls: list[int] = []

    class Double(torch.nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return weight * 2

    def activation(x: torch.Tensor) -> torch.Tensor:
        calls.append(2)
        return x.relu()

    model: Any = torch.nn.Linear(2, 1)
    torch.nn.utils.parametrize.register_parametrization(model, "weight", Double())
    model.activation = activation
    model.forward = lambda x: model.activation(torch.nn.functional.linear(x, model.weight))
    calls.clear()
    _, (first, _) = run_repeatedly(model, torch.ones(1, 2))
    assert sorted(first.state["calls"]) == [1, 2]
    assert calls == []
    assert "the parameter parametrizations.weight.original" in (first.gradients or {})


class CallCounter(torch.nn.Module):
    """A module whose methods read and write globals and class attributes."""

    calls = 0
    sizes: list[int] = []  # noqa: RUF012 - the test needs a shared list

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global COUNT  # noqa: PLW0603
        COUNT += 1
        HISTORY.append(float(x.sum()))
        type(self).calls += 1
        self.sizes.append(len(x))
        return x * COUNT


@pytest.mark.parametrize(
    "fn", [CallCounter(), lambda x: CallCounter()(x + 0)], ids=["a module", "a function that makes one"]
)
def test_globals_and_class_attributes_are_changed_only_during_the_run(fn: Any) -> None:
    _, (first, _) = run_repeatedly(fn, ONES)
    assert (first.state["COUNT"], first.state["HISTORY"], first.state["CallCounter.calls"]) == (1, [3.0], 1)
    assert first.state["CallCounter.sizes"] == [3]
    assert (COUNT, HISTORY, CallCounter.calls, CallCounter.sizes) == (0, [], 0, [])


def test_defaults_and_attributes_of_functions_are_copied() -> None:
    def f(x: torch.Tensor, cache: dict[int, torch.Tensor] = {}) -> int:  # noqa: B006 - the test needs a mutable default
        cache[len(cache)] = x
        f.calls += 1  # type: ignore[attr-defined]
        return len(cache)

    f.calls = 0  # type: ignore[attr-defined]
    _, (first, _) = run_repeatedly(f, ONES)
    assert (first.value, first.state["the attributes of f"]) == (1, {"calls": 1})
    assert (f.__defaults__, f.calls) == (({},), 0)  # type: ignore[attr-defined]


def test_iterators_and_queues_are_restored() -> None:
    numbers, queue = itertools.count(), deque([1])

    def f(x: torch.Tensor) -> torch.Tensor:
        queue.append(next(numbers))
        return x + next(numbers) + len(queue)

    _, (first, _) = run_repeatedly(f, ONES)
    assert torch.equal(first.value, ONES + 3)
    assert (next(numbers), queue) == (0, deque([1]))


def test_a_replaced_attribute_is_restored() -> None:
    class Holder:
        def __init__(self) -> None:
            self.last = torch.zeros(3)

    holder = Holder()

    def f(x: torch.Tensor) -> torch.Tensor:
        before = holder.last
        holder.last = x
        return before + 0

    _, (first, _) = run_repeatedly(f, ONES)
    assert torch.equal(first.value, torch.zeros(3))
    assert torch.equal(first.arguments["x"], ONES)


# -- Objects that cannot be copied are reported.


class UncopyableModule(torch.nn.Module):
    def __deepcopy__(self, _: Any) -> NoReturn:
        raise RuntimeError("not me")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class ModuleWithLock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.lock:
            return x * self.weight


def test_objects_that_cannot_be_copied_are_named() -> None:
    model = UncopyableModule()
    because = "cannot be copied: RuntimeError: not me"
    assert Subject(model).uncopied_descriptions == [f"`UncopyableModule` (UncopyableModule) {because}"]
    assert Subject(lambda x: model(x + 1)).uncopied_descriptions == [f"`model` (UncopyableModule) {because}"]
    assert Subject(lambda net: net, Arguments(model)).uncopied_descriptions == [f"`net` (UncopyableModule) {because}"]


def test_a_copied_lock_is_free() -> None:
    model = ModuleWithLock()
    subject = Subject(model)
    assert subject.uncopied_descriptions == []
    assert subject.function.weight is not model.weight
    with model.lock, sandbox_runs():
        assert torch.equal(run(subject.function, subject, Arguments(torch.ones(3))).value, torch.ones(3))


def add_one(x: float) -> float:
    print(end="")
    return x + 1


def add_one_and_double(x: float) -> float:
    return add_one(x) * 2


def test_two_functions_call_the_same_copy_of_a_third() -> None:
    def f(x: float) -> float:
        return add_one_and_double(x) + add_one(x)

    subject = Subject(f)
    assert subject.function(1.0) == 6.0
    assert (
        subject.function.__globals__["add_one_and_double"].__globals__["add_one"]
        is subject.function.__globals__["add_one"]
    )
    assert "print" not in subject.function.__globals__


def outermost_roots() -> list[str]:
    roots = library_roots()
    return [root for root in roots if not any(root.startswith(f"{other}{os.sep}") for other in roots)]


def test_a_folder_with_the_prefix_of_a_package_folder_is_user_code() -> None:
    source_text = "SEEN = []\ndef f(x):\n    SEEN.append(1)\n    return x * len(SEEN)\n"
    for root in outermost_roots():
        namespace: dict[str, Any] = {"__name__": "user_module"}
        exec(compile(source_text, f"{root}_of_mine/model.py", "exec"), namespace)
        _, results = run_repeatedly(namespace["f"], torch.ones(2), times=2)
        assert all(torch.equal(result.value, torch.ones(2)) for result in results)
        assert namespace["SEEN"] == []


def test_an_endless_loop_in_a_folder_with_the_prefix_of_a_package_folder_is_stopped() -> None:
    source_text = "def f():\n" + "    while True:\n        pass\n"
    for root in outermost_roots():
        namespace: dict[str, Any] = {}
        exec(compile(source_text, f"{root}_of_mine/model.py", "exec"), namespace)
        with pytest.raises(LineLimitError), limit_lines():
            namespace["f"]()


class ModuleWithGraphModule(torch.nn.Module):
    """A module with a part whose class PyTorch generates, and would generate again for each copy."""

    def __init__(self) -> None:
        super().__init__()
        self.traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.traced(x) * 2  # type: ignore[no-any-return]


def test_copies_of_a_graph_module_have_its_class_and_their_own_parameters() -> None:
    module = ModuleWithGraphModule().train()
    state_before = copy.deepcopy(module.state_dict())
    subject, results = run_repeatedly(module, torch.randn(4, 3))
    assert results[0].error is None
    traced = subject.function.traced
    assert type(traced) is type(module.traced)
    assert traced.graph is module.traced.graph
    assert traced is not module.traced
    assert all(torch.equal(value, state_before[name]) for name, value in module.state_dict().items())
    assert not torch.equal(
        results[0].state["self"].traced.get_buffer("1.running_mean"), state_before["traced.1.running_mean"]
    )


TOTAL = torch.zeros(2)


def add_to_total(x: torch.Tensor) -> torch.Tensor:
    return TOTAL.add_(x)


def test_runs_do_not_change_an_assigned_tensor() -> None:
    subject, other = Subject(add_to_total, Arguments(torch.ones(2))), torch.zeros(2)
    subject.set_variables({"TOTAL": other})
    with subject.activate():
        assert torch.equal(subject.function(torch.ones(2)), torch.ones(2))
    assert torch.equal(other, torch.zeros(2))


class Runner:
    """An object like accelerate's Accelerator: a copy is the object itself, and all instances share one state."""

    shared: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.state, self.other, self.steps = SharedState(), SharedState(), 0

    def __deepcopy__(self, _: Any) -> Runner:
        return self


class SharedState:
    synced: int

    def __init__(self) -> None:
        self.__dict__ = Runner.shared


class SlottedObject:
    __slots__ = ("calls",)
    calls: int

    def __deepcopy__(self, _: Any) -> SlottedObject:
        return self


class Table(dict[str, int]):
    def __deepcopy__(self, _: Any) -> Table:
        return self


RUNNER, SLOTTED, TABLE = Runner(), SlottedObject(), Table(calls=0)
SLOTTED.calls = 0


def test_an_object_that_its_class_copies_as_itself_is_copied_by_attributes() -> None:
    runner = Runner()

    def step(x: torch.Tensor) -> torch.Tensor:
        runner.steps += 1
        runner.state.synced = runner.steps
        assert runner.other.synced == runner.steps
        return x * runner.steps

    subject = Subject(step)
    with subject.activate():
        assert subject.function(torch.ones(())) == 1
        assert subject.function(torch.ones(())) == 2
    assert runner.steps == 0
    assert Runner.shared == {}


def test_global_objects_that_their_classes_copy_as_themselves_are_copied() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        RUNNER.steps += 1
        SLOTTED.calls += 1
        TABLE["calls"] += 1
        y: torch.Tensor = x * (RUNNER.steps + SLOTTED.calls + TABLE["calls"])
        return y

    subject = Subject(step)
    state_before = subject.state()
    with subject.activate():
        assert subject.function(torch.ones(())) == 3
    assert (RUNNER.steps, SLOTTED.calls, TABLE["calls"]) == (0, 0, 0)
    state_after = subject.state()
    assert [state_before[name] is state_after[name] for name in ("RUNNER", "SLOTTED", "TABLE")] == [False] * 3
    subject.restore()
    assert subject.function(torch.ones(())) == 3


class Keeper:
    """An object whose copies share its list."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def __deepcopy__(self, _: Any) -> Keeper:
        return Keeper(self.items)


def test_an_object_that_a_class_shares_with_its_copies_is_copied() -> None:
    items: list[int] = []
    keeper = Keeper(items)

    def step(x: torch.Tensor) -> torch.Tensor:
        keeper.items.append(len(items))
        return x * len(items)

    subject = Subject(step)
    assert subject.function(torch.ones(())) == 1
    assert items == []


def test_a_constant_of_a_library_that_its_class_copies_as_itself_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    constant = type("Constant", (Runner,), {"__module__": pytest.__name__})()
    assert clone(constant) is not constant
    monkeypatch.setattr(pytest, "CONSTANT", constant, raising=False)
    assert clone(constant) is constant


def test_a_tensor_that_its_class_copies_as_itself_is_copied() -> None:
    class SelfCopyingTensor(torch.Tensor):
        def __deepcopy__(self, _: Any) -> SelfCopyingTensor:
            return self

    original = torch.zeros(1).as_subclass(SelfCopyingTensor)
    tensor_copy = clone(original)
    tensor_copy.add_(1)
    assert (type(tensor_copy), original.item()) == (SelfCopyingTensor, 0.0)


def test_the_step_of_an_optimizer_with_a_scheduler_changes_the_copy_of_the_run() -> None:
    def train(model: torch.nn.Linear, optimizer: torch.optim.Optimizer, _: object) -> None:
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)  # it wraps `step`, which refers to the optimizer weakly
    subject = Subject(train, Arguments(model, optimizer, scheduler))
    assert subject.arguments is not None
    weight_before = model.weight.detach().clone()
    for _ in range(2):
        arguments = subject.copy_arguments(subject.arguments)
        subject.function(*arguments.args)
        assert not torch.equal(arguments.args[0].weight, weight_before)
        assert torch.equal(subject.arguments.args[0].weight, weight_before)
    assert torch.equal(model.weight, weight_before)


class OptimizerWithoutState(torch.optim.Optimizer):
    """An optimizer that has not called the constructor of its base class, as wrappers of optimizers may do."""

    def __init__(self) -> None:
        self.steps = 0


def test_an_optimizer_without_the_usual_attributes_is_restored() -> None:
    optimizer = OptimizerWithoutState()

    def step() -> None:
        optimizer.steps += 1

    subject = Subject(step)
    subject.function()
    subject.restore()
    assert subject.function.__closure__[0].cell_contents.steps == 0
