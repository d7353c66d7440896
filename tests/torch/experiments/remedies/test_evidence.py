"""Differences due to compiling alone do not count against a change, and results without values do not support it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.remedies import trial_runner
from jupyter_graphbreak.report.remedies import WORKING, Remedy


class EagerSizeRecorder(torch.nn.Module):
    """A module that stores its last sizes only in eager code, as some libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.last: tuple[int, ...] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = None if torch.compiler.is_compiling() else tuple(x.shape)
        if x.sum() > 0:
            x = x * 2
        return x + 1


class HookedModule(torch.nn.Module):
    """A module with a backward hook on a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.linear.register_full_backward_hook(ignore_gradients)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def ignore_gradients(*_args: object) -> None:
    """Change nothing."""


HOOKED = HookedModule()


def step_hooked(x: torch.Tensor) -> None:
    """Run the forward and backward pass of a module with a backward hook."""
    HOOKED(x).sum().backward()


def shift_and_clamp(x: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
    """Shift and clamp, unless there are no shifts: no shift equals the number that the test compares it with."""
    if (shifts != shifts.sum().sin() + 3.5).any():
        x = (x + shifts.sum()).clamp(-50, 50)
    return x + 1


def add_truncated_sum(x: torch.Tensor) -> torch.Tensor:
    """Add the integer part of the sum, which NaN does not have."""
    y = x * 2
    return y + int(y.sum())


def add_copied_gradient(x: torch.Tensor) -> torch.Tensor:
    """Add the gradient of a copy, if the copy has one."""
    gradient = copy.deepcopy(x).grad
    return x * 2 if gradient is None else x * 2 + gradient


def print_before_change(x: torch.Tensor) -> torch.Tensor:
    """Print the numbers before they change. For floating-point tensors, ``float()`` returns the argument itself."""
    y = x.float()
    print("before", y)
    x.clamp_(min=0)
    return y * 2


def replace_nan(x: torch.Tensor) -> torch.Tensor:
    """Replace NaN only if there is one: otherwise, infinite numbers stay infinite."""
    y = x / x.sum()
    if torch.isnan(y).any():
        y = torch.nan_to_num(y)
    return y


def divide_if_positive(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Divide integers only by a positive number: otherwise, the result keeps their dtype."""
    y = x // n if n > 0 else x
    return y + 1


def scale_by_flag(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    """Multiply by one of two Python floats, which are doubles."""
    scale = 0.1 if flag else 0.3
    return x.reshape(2) * scale


def limit_norm(x: torch.Tensor) -> torch.Tensor:
    """Divide by the norm if it is large. The second derivative of the norm of zeros is NaN."""
    norm = x.norm()
    if norm > 1:
        x = x / norm
    return x * 2


def read_first_values(x: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
    """Return the first values as a list or, for a column, as a list of lists."""
    y = x[:2] + 1
    return y, y.tolist()


def normalize_if_large(x: torch.Tensor) -> torch.Tensor:
    """Normalize only large numbers: the gradient of the standard deviation of one number is NaN."""
    if x.abs().sum() > 5:
        return (x - x.mean()) / x.std()
    return x - x.mean()


def divide_by_share(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Divide by the share of a mask: integers become floating-point numbers only if the mask is not empty."""
    share = mask.float().mean().item()
    x = x * mask
    return x / share if share > 0 else x


def divide_by_count(x: torch.Tensor, threshold: float) -> torch.Tensor:
    """Divide by a count, which is zero for tensors of zeros: the other branch then has no gradient."""
    y = torch.where(x.abs() > threshold, x, 0.0)
    count = int((y != 0).sum())
    if count == 0:
        return y
    return y / count


def halve_if_bright(image: torch.Tensor) -> torch.Tensor:
    """Halve integers with `//`, which has no gradient for floating-point numbers."""
    if image.max() > 200:
        image = image // 2
    return image + 100


def multiply_by_sign(x: torch.Tensor) -> torch.Tensor:
    """Multiply by 1 or -1, which is a Python number."""
    total = x.sum()
    sign = 1 if total > 0 else -1
    return x * sign


class Schedule:
    """A learning rate that drops after the loss has not improved for some steps."""

    def __init__(self, patience: int) -> None:
        self.rate, self.best, self.waited, self.patience = 0.1, float("inf"), 0, patience

    def step(self, loss: float) -> None:
        if loss < self.best:
            self.best, self.waited = loss, 0
        else:
            self.waited += 1
            if self.waited > self.patience:
                self.rate, self.waited = self.rate / 2, 0


short_schedule, long_schedule = Schedule(1), Schedule(20)


def step_short_schedule(weight: torch.Tensor) -> torch.Tensor:
    """Read the rate after a step that may change it."""
    loss = (weight**2).sum()
    short_schedule.step(loss.item())
    return weight - short_schedule.rate * weight


def step_long_schedule(weight: torch.Tensor) -> torch.Tensor:
    """Read the rate after a step that rarely changes it."""
    loss = (weight**2).sum()
    long_schedule.step(loss.item())
    return weight - long_schedule.rate * weight


def remedies_of(fn: Callable[..., Any], *args: torch.Tensor, backend: Any = "eager") -> list[Remedy]:
    torch._dynamo.reset()
    remedies = jupyter_graphbreak.try_remedies(torch.compile(fn, backend=backend), *args).remedies
    assert remedies
    return remedies


@pytest.mark.exhaustive
def test_state_that_only_eager_code_sets_is_not_a_difference() -> None:
    (working_remedy,) = [
        remedy for remedy in remedies_of(EagerSizeRecorder(), torch.ones(3)) if remedy.verdict == "works"
    ]
    assert working_remedy.differences == []
    assert working_remedy.evidence is not None
    assert working_remedy.evidence.inputs > 5


@pytest.mark.exhaustive
def test_a_setting_that_accepts_what_the_original_refuses_works_on_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_runner, "_SHARE_OF_EDGE_CASES", 600)  # compiling takes long on a busy machine
    inductor_remedies = remedies_of(add_truncated_sum, torch.ones(3), backend="inductor")
    if torch.__version__.startswith("2.9."):  # Inductor writes C++ code for int(...) that does not compile
        assert any("CppCompileError" in (remedy.reason or "") for remedy in inductor_remedies)
    else:
        (working_remedy,) = [remedy for remedy in inductor_remedies if remedy.verdict in WORKING]
        assert working_remedy.verdict == "works on what ran"
        assert "but the original raises OverflowError: cannot convert float infinity" in (working_remedy.reason or "")
    with_eager = remedies_of(add_truncated_sum, torch.ones(3))
    assert [remedy.verdict for remedy in with_eager if remedy.verdict in WORKING] == ["works"]


@pytest.mark.exhaustive
def test_a_branch_that_only_empty_tensors_take_did_not_run() -> None:
    remedies = [
        remedy for remedy in remedies_of(shift_and_clamp, torch.ones(3), torch.tensor([2.0, 3.0, 4.0])) if remedy.breaks
    ]
    working_remedies = [remedy for remedy in remedies if remedy.verdict in WORKING and remedy.kind == "edit"]
    assert working_remedies
    assert {remedy.verdict for remedy in working_remedies} == {"works on what ran"}
    assert "one branch of a condition never ran" in {remedy.reason for remedy in working_remedies}


@pytest.mark.exhaustive
def test_a_copy_without_the_gradient_works_on_what_ran() -> None:
    for argument in (torch.ones(3), torch.ones(3, requires_grad=True)):
        with torch.no_grad():
            working_remedies = [
                remedy for remedy in remedies_of(add_copied_gradient, argument) if remedy.verdict in WORKING
            ]
        assert bool(working_remedies) == (
            torch.__version__ >= "2.13"
        )  # in earlier releases, new tensors have a .grad in compiled code
        for remedy in working_remedies:
            assert remedy.verdict == "works on what ran"
            assert (remedy.reason or "").endswith("with tensors that have a .grad")
    (working_remedy, *_) = remedies_of(lambda x: copy.deepcopy(x) * 2, torch.ones(3))
    assert working_remedy.verdict == "works"


def test_output_that_shows_a_later_change_of_other_tensors_works_on_what_ran() -> None:
    remedies = remedies_of(print_before_change, torch.tensor([1, -2, 3]))
    (remedy,) = [remedy for remedy in remedies if "move print to the end" in remedy.title]
    assert remedy.verdict == "works on what ran"
    assert (remedy.reason or "").endswith("with float32 tensors")


def test_dropping_a_test_assumes_that_the_code_below_it_changes_no_other_element() -> None:
    remedies = {remedy.title: remedy for remedy in remedies_of(replace_nan, torch.tensor([1.0, -2.0]))}
    assert remedies["Drop the `any()` test"].verdict == "works on what ran"
    assert "torch.isnan(y) is nowhere true" in (remedies["Drop the `any()` test"].reason or "")
    assert remedies["Compute both branches with torch.where"].verdict == "works"


def test_a_change_that_differs_for_a_floating_point_divisor_works_on_what_ran() -> None:
    remedies = remedies_of(divide_if_positive, torch.tensor([5, -7, 9]), torch.tensor(2))
    working_remedies = [remedy for remedy in remedies if remedy.verdict in WORKING and "torch.where" in remedy.title]
    assert [remedy.verdict for remedy in working_remedies] == ["works on what ran"]
    assert "float32" in (working_remedies[0].reason or "")


@pytest.mark.parametrize(
    ("dtype", "verdict"), [(torch.float32, "works on what ran"), (torch.float64, "another result")]
)
def test_a_tensor_of_a_float_is_less_precise_than_a_double(dtype: torch.dtype, verdict: str) -> None:
    remedies = remedies_of(scale_by_flag, torch.tensor([1, 3], dtype=dtype), torch.tensor(True))
    remedy = next(remedy for remedy in remedies if remedy.title == "Compute both branches with torch.where")
    assert remedy.verdict == verdict
    assert "computes a double in single precision" in (remedy.reason or "")


@pytest.mark.parametrize(
    ("backend", "verdict"),
    [("eager", "works on what ran"), pytest.param("aot_eager", "works", marks=pytest.mark.exhaustive)],
)
def test_only_with_backend_eager_does_cond_lose_the_gradient_of_a_gradient(backend: str, verdict: str) -> None:
    remedies = remedies_of(normalize_if_large, torch.tensor([3.0, -4.0]), backend=backend)
    (remedy,) = [remedy for remedy in remedies if remedy.title == "Pass both branches to torch.cond"]
    reason = "a gradient of a gradient is lost without an error" if backend == "eager" else None
    assert (remedy.verdict, remedy.reason) == (verdict, reason)


@pytest.mark.parametrize(("fn", "verdict"), [(HookedModule(), "another result"), (step_hooked, "works")])
def test_compiled_autograd_works_only_if_the_backward_pass_runs_inside(fn: Callable[..., Any], verdict: str) -> None:
    remedies = remedies_of(fn, torch.tensor([3.0, -4.0], requires_grad=True))
    (remedy,) = [remedy for remedy in remedies if "compiled_autograd = True" in remedy.title]
    assert remedy.verdict == verdict
    assert ("BackwardState requires CompiledAutograd" in (remedy.reason or "")) == (verdict == "another result")


def test_second_derivatives_of_both_branches_are_compared_if_the_call_requires_gradients() -> None:
    remedies = remedies_of(limit_norm, torch.tensor([3.0, -4.0], requires_grad=True))
    (remedy,) = [remedy for remedy in remedies if "torch.where, with harmless operands" in remedy.title]
    assert (remedy.verdict, remedy.reason) == ("works on what ran", "a gradient of a gradient differs with x zero")
    remedies = remedies_of(limit_norm, torch.tensor([3.0, -4.0]))
    (remedy,) = [remedy for remedy in remedies if "torch.where, with harmless operands" in remedy.title]
    assert remedy.verdict == "works"


def test_reading_values_one_by_one_works_on_what_ran_because_a_column_differs() -> None:
    remedies = remedies_of(read_first_values, torch.tensor([3.0, -4.0, 5.0]))
    (remedy,) = [remedy for remedy in remedies if "one by one" in remedy.title]
    assert remedy.verdict == "works on what ran"
    assert (remedy.reason or "").endswith("with x as a column")


@pytest.mark.parametrize(
    ("program", "arguments", "reason"),
    [
        (
            divide_by_share,
            (torch.ones(3, requires_grad=True), torch.tensor([True, False, True])),
            "with int64 tensors, zero",
        ),
        pytest.param(
            multiply_by_sign,
            (torch.ones(2),),
            "with zero-dimensional int32 tensors",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            halve_if_bright,
            (torch.tensor([10, 250], dtype=torch.uint8),),
            "with float32 tensors that require gradients",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            divide_by_count,
            (torch.ones(2), 0.5),
            "all tensors zero, tensors that require gradients",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_integers_flags_and_zeros_take_part_in_edge_inputs(
    program: Callable[..., torch.Tensor], arguments: tuple[Any, ...], reason: str
) -> None:
    working = [
        remedy
        for remedy in remedies_of(program, *arguments)
        if remedy.verdict in WORKING and "Compute both branches with torch.where" in remedy.title
    ]
    assert working
    assert "works" not in {remedy.verdict for remedy in working[:1]}
    assert reason in (working[0].reason or "")


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        (step_short_schedule, "another result"),
        pytest.param(step_long_schedule, "works on what ran", marks=pytest.mark.exhaustive),
    ],
)
def test_a_moved_call_may_rarely_change_what_the_code_after_it_reads(
    program: Callable[..., torch.Tensor], verdict: str
) -> None:
    remedies = remedies_of(program, torch.tensor([3.0, -4.0]))
    (moved,) = [remedy for remedy in remedies if "step()` after the call" in remedy.title]
    assert moved.verdict == verdict
