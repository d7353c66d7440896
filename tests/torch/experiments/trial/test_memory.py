"""Copies share large memory as long as no run changes it, and the available memory respects a container's limit."""

from __future__ import annotations

import gc
import mmap
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from jupyter_graphbreak._torch_compat.call_modes import CallModes
from jupyter_graphbreak.experiments.trial import memory, outcome
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.copies import clone, digest
from jupyter_graphbreak.experiments.trial.entry import Entry, record_entries
from jupyter_graphbreak.experiments.trial.outcome import run
from jupyter_graphbreak.experiments.trial.subject import Subject, current_setup, share_run_setup
from jupyter_graphbreak.experiments.trial.values import describe_difference

LARGE_SIZE = 600


def weight_address(subject: Subject) -> int:
    return int(subject.function.weight.untyped_storage().data_ptr())


class WeightChangingLayer(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.data.add_(x.sum())  # bypasses the version counter
        return super().forward(x)


def test_subjects_share_unchanged_memory() -> None:
    model = torch.nn.Linear(LARGE_SIZE, LARGE_SIZE)
    with share_run_setup(CallModes.now()):
        first, second = Subject(model), Subject(model)
        assert weight_address(first) == weight_address(second) != model.weight.data_ptr()
        result = run(first.function, first, Arguments(torch.ones(2, LARGE_SIZE)))
        assert weight_address(first) == weight_address(second)
    assert describe_difference(first.initial_state, result.state) is None
    assert sum(tensor.nbytes for tensor in result.state["self"].parameters()) < model.weight.nbytes / 50


def test_changed_memory_is_restored_before_the_next_run() -> None:
    model = WeightChangingLayer(LARGE_SIZE, LARGE_SIZE)
    weight_before = model.weight.detach().clone()
    with share_run_setup(CallModes.now()):
        first, second = Subject(model), Subject(model)
        results = []
        for subject in (first, second, first):
            subject.restore()
            results.append(run(subject.function, subject, Arguments(torch.ones(2, LARGE_SIZE))))
        for result in results:
            assert describe_difference(results[0].value, result.value) is None
            assert describe_difference(result.state_before, result.state) is not None
        first.restore()
        assert torch.equal(first.function.weight, weight_before)
    assert torch.equal(model.weight, weight_before)


def test_changed_memory_can_be_detached() -> None:
    model = WeightChangingLayer(LARGE_SIZE, LARGE_SIZE)
    weight_before = model.weight.detach().clone()
    with share_run_setup(CallModes.now()):
        first, second = Subject(model), Subject(model)
        run(first.function, first, Arguments(torch.ones(2, LARGE_SIZE)))
        first.detach_changed_memory()
        assert torch.equal(second.function.weight, weight_before)
        assert torch.equal(first.function.weight, weight_before + 2 * LARGE_SIZE)
        first.restore()
        assert torch.equal(first.function.weight, weight_before)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems keep the memory")
def test_discarded_working_copies_take_no_memory_until_they_are_restored() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    model = torch.nn.Linear(4096, 4096)
    with share_run_setup(CallModes.now()):
        subject = Subject(model)
        address = weight_address(subject)
        bytes_before = resident_bytes()
        current_setup().memory.discard_working_copies()
        assert resident_bytes() < bytes_before - 0.9 * model.weight.nbytes
        subject.restore()
        assert weight_address(subject) == address
        assert torch.equal(subject.function.weight, model.weight)


def test_copies_of_an_earlier_entry_are_freed_before_new_ones_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(LARGE_SIZE, LARGE_SIZE, bias=False)
    monkeypatch.setattr(memory, "_COLLECTION_THRESHOLD_BYTES", model.weight.nbytes - 1)
    gc.disable()
    try:
        with share_run_setup(CallModes.now()):
            subject: Any = Subject(model)
            subject.cycle = subject
            reference = weakref.ref(subject)
            del subject
        assert reference() is not None
        with share_run_setup(CallModes.now()):
            Subject(model)
        assert reference() is None
    finally:
        gc.enable()


def test_runs_use_one_stored_copy_and_restore_it() -> None:
    model: Any = WeightChangingLayer(LARGE_SIZE, LARGE_SIZE)
    model.calls = 0
    torch._dynamo.reset()
    with record_entries() as recorded_entries:
        torch.compile(torch.nn.Linear.forward, backend="eager")(model, torch.ones(2, LARGE_SIZE))
    (entry,) = recorded_entries.entries
    large_tensor = next(item for item in entry.tensors() if item.shape == (LARGE_SIZE, LARGE_SIZE))
    tensor_before = large_tensor.detach().clone()
    with entry.set_up():
        subject = Subject(entry.function, entry.arguments)
        (address,) = {
            item.data_ptr() for item in subject.memory.memo().values() if item.nbytes() == large_tensor.nbytes
        }
        assert address == large_tensor.data_ptr()  # not copied again: the original can restore it
        large_tensor.data.zero_()
    assert torch.equal(large_tensor, tensor_before)
    with torch.no_grad():
        model.weight.fill_(3)
    with entry.set_up():
        subject = Subject(entry.function, entry.arguments)
        (address,) = {
            item.data_ptr() for item in subject.memory.memo().values() if item.nbytes() == large_tensor.nbytes
        } - {large_tensor.data_ptr()}
    assert torch.equal(large_tensor, tensor_before)


def test_the_digest_needs_one_temporary_tensor() -> None:
    # A new temporary tensor for each part would let the heap grow by the size of the digested tensor.
    argument = torch.ones(2000, 2000)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        digest(argument)
    sizes = [event.self_cpu_memory_usage for event in profiler.events() or []]
    assert len([size for size in sizes if size > 1 << 20]) == 1


class CheckpointedRepeatedLayer(torch.nn.Linear):
    """A layer that applies its weight twice. The checkpoint computes the second part of the gradient separately."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(super().forward, super().forward(x), use_reentrant=True)
        return y


class RepeatedLayer(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(super().forward(x))


def test_the_gradient_of_a_large_parameter_is_digested_and_its_grad_is_kept() -> None:
    layer = RepeatedLayer(LARGE_SIZE, LARGE_SIZE)
    checkpointed_layer = CheckpointedRepeatedLayer(LARGE_SIZE, LARGE_SIZE)
    checkpointed_layer.load_state_dict(layer.state_dict())
    results = []
    for module in (layer, checkpointed_layer):
        module.weight.grad = torch.ones_like(module.weight)
        with share_run_setup(CallModes.now()):
            subject = Subject(module)
            results.append(run(subject.function, subject, Arguments(torch.ones(2, LARGE_SIZE))))
            assert subject.function.weight.grad is not None
            assert torch.equal(subject.function.weight.grad, module.weight.grad)
    assert describe_difference(results[0].gradients, results[1].gradients) is None
    gradients = [(result.gradients or {})["the parameter weight"] for result in results]
    assert all(gradient is not None and gradient.numel() < LARGE_SIZE * LARGE_SIZE / 50 for gradient in gradients)


def test_one_large_gradient_exists_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(LARGE_SIZE, LARGE_SIZE, bias=False), torch.nn.Linear(LARGE_SIZE, LARGE_SIZE, bias=False)
    )
    existing_gradients: list[int] = []

    def clone_and_count(value: Any, **options: Any) -> Any:
        existing_gradients.append(sum(weight.grad is not None for weight in subject.function.parameters()))
        return clone(value, **options)

    monkeypatch.setattr(outcome, "clone", clone_and_count)
    with share_run_setup(CallModes.now()):
        subject = Subject(model)
        run(subject.function, subject, Arguments(torch.ones(2, LARGE_SIZE)))
    assert existing_gradients == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_digest_differs_if_one_element_differs(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    argument = torch.randn(1100, 1000).to(dtype)
    assert describe_difference(digest(argument), digest(argument.clone())) is None
    for row, column in ((0, 0), (700, 3), (1099, 999)):
        second = argument.clone()
        second[row, column] += 1
        assert describe_difference(digest(argument), digest(second)) is not None
        second[row, column] = float("nan")
        assert describe_difference(digest(argument), digest(second)) is not None
    assert not digest(torch.zeros_like(argument)).any()
    assert describe_difference(digest(argument), digest(argument.flip(0))) is not None


def test_the_memory_limit_is_read_from_the_container(tmp_path: Path) -> None:
    group = tmp_path / "two"
    group.mkdir()
    (group / "memory.max").write_text("1000\n")
    (group / "memory.current").write_text("700\n")
    (group / "memory.stat").write_text("anon 600\ninactive_file 100\n")
    (tmp_path / "memory.max").write_text("max\n")
    groups = tmp_path / "groups"
    groups.write_text("0::/two\n")
    assert memory._free_in_containers(tmp_path, groups) == [400]
    old_group = tmp_path / "memory" / "one"
    old_group.mkdir(parents=True)
    (old_group / "memory.limit_in_bytes").write_text("500\n")
    (old_group / "memory.usage_in_bytes").write_text("450\n")
    groups.write_text("5:cpu:/one\n7:memory:/one\n")
    assert memory._free_in_containers(tmp_path, groups) == [50]
    groups.write_text("0::/of/another/namespace\n")
    assert memory._free_in_containers(tmp_path, groups) == []


def test_an_entry_without_enough_memory_is_not_run() -> None:
    entry = Entry("f", None, torch.nn.Linear(8, 8), Arguments(torch.ones(1, 8)))
    assert entry.why_not_run() is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jupyter_graphbreak.experiments.trial.memory.available_memory", lambda _=None: 1000)
        reason = entry.why_not_run()
    assert reason is not None
    assert reason.startswith("f was not run again: its arguments and state take 0.0 MiB, trials up to 4 times as much")


def test_a_state_to_compare_keeps_no_copies_alive() -> None:
    model = torch.nn.Linear(LARGE_SIZE, LARGE_SIZE)

    def helper(x: torch.Tensor) -> torch.Tensor:
        return 1 + x @ model.weight

    def call(x: torch.Tensor) -> torch.Tensor:
        return helper(x)

    with share_run_setup(CallModes.now()):
        subject = Subject(call)
        state = subject.state()
        copied_module = next(value for name, value in subject.roots() if name == "model")
        reference = weakref.ref(copied_module)
        del subject, copied_module
        gc.collect()
        assert "helper" in state
        assert reference() is None


def test_copies_share_the_memory_that_their_first_runs_create() -> None:
    with share_run_setup(CallModes.now()):
        shared_memory = current_setup().memory
        first, second = (torch.full((LARGE_SIZE, LARGE_SIZE), value) for value in (1.0, 2.0))
        first_view, second_view = first[1:], second[1:]
        unrelated = torch.full((LARGE_SIZE, LARGE_SIZE), 3.0)
        shared_memory.share_created([("state", first), ("state", first_view)])
        first.zero_()
        shared_memory.share_created([("state", second), ("state view", second_view), ("other", unrelated)])
        assert first.data_ptr() == second.data_ptr() != unrelated.data_ptr()
        assert first_view.data_ptr() == second_view.data_ptr()
        assert bool((first == 1).all()), "the content when the memory was first shared is restored"
        assert bool((unrelated == 3).all())
        second_view.zero_()
        unrelated.zero_()
        shared_memory.restore()
        assert bool((first == 1).all())
        assert bool((unrelated == 3).all())


def test_memory_that_a_run_creates_is_not_shared_if_saving_it_takes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda _: 1 << 20)
    with (
        share_run_setup(CallModes.now()),
        pytest.raises(MemoryError, match=r"creates takes 1\.4 MiB, but only 1\.0 MiB of the limit"),
    ):
        current_setup().memory.share_created([("state", torch.zeros(LARGE_SIZE, LARGE_SIZE))])


def test_a_restored_subject_keeps_nothing_of_the_state_that_an_optimizer_has_created() -> None:
    layer = torch.nn.Linear(LARGE_SIZE, LARGE_SIZE, bias=False)
    optimizer = torch.optim.Adam(layer.parameters())

    def step(x: torch.Tensor) -> None:
        layer(x).sum().backward()
        optimizer.step()

    with share_run_setup(CallModes.now()):
        subject = Subject(step, Arguments(torch.ones(1, LARGE_SIZE)))
        copied_optimizer = subject.function.__closure__[1].cell_contents
        with subject.restore_on_exit():
            run(subject.function, subject, Arguments(torch.ones(1, LARGE_SIZE)))
            (state,) = copied_optimizer.state.values()  # this keeps tensors alive, as compiled code does
            assert state["exp_avg"].nbytes == layer.weight.nbytes
        assert not copied_optimizer.state
        assert state["exp_avg"].untyped_storage().nbytes() == state["exp_avg_sq"].untyped_storage().nbytes() == 0
        assert torch.equal(state["step"], torch.ones(()))
