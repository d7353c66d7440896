"""Observations of runs and differences between runs: each case fails if one observation is missing."""

# The functions under test print, draw random numbers, and ignore arguments.
# ruff: noqa: ARG001, ARG005, PLW0108

from __future__ import annotations

import functools
import logging
import random
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.difference import Difference, differences, is_same_text
from jupyter_graphbreak.experiments.trial.inputs import Input
from jupyter_graphbreak.experiments.trial.outcome import Result, run, sandbox_runs
from jupyter_graphbreak.experiments.trial.reference import Reference
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.values import describe_difference
from jupyter_graphbreak.report.frontends import Example

LOG = logging.getLogger("trial.of.the.user")


def run_once(fn: Any, *args: Any, seed: int = 0, gradients: bool = True) -> Result:
    with sandbox_runs():
        subject = Subject(fn, Arguments(*args))
        assert subject.arguments is not None
        return run(subject.function, subject, subject.arguments, seed, runs_backward=gradients)


def run_and_compare(original: Any, variant: Any, *args: Any) -> list[Difference]:
    return differences(run_once(original, *args), run_once(variant, *args))


class Case(NamedTuple):
    original: Callable[..., Any]
    variant: Callable[..., Any]
    kind: str
    text: str
    args: tuple[Any, ...]


CASES: dict[str, Case] = {}


def case(kind: str, text: str, *args: Any) -> Callable[[Callable[[], Any]], None]:
    def add(make_functions: Callable[[], Any]) -> None:
        original, variant = make_functions()
        CASES[make_functions.__name__] = Case(original, variant, kind, text, args or (torch.ones(3),))

    return add


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, requires_grad=True)


@case("value", "returns tensor([2., 2., 2.]) instead of tensor([1., 1., 1.])")
def value() -> Any:
    return lambda x: x * 1, lambda x: x * 2


@case("value", "returns [1.0, 1.000040054321289] instead of [1.0, 1.0]", torch.ones(2))
def last_digits() -> Any:
    return lambda x: x * 1, lambda x: x * torch.tensor([1.0, 1.00004])


@case("value", "returns torch.float64 instead of torch.float32")
def dtype() -> Any:
    return lambda x: x * 1, lambda x: x.double()


@case("exception", "raises ValueError: no, but the original returns tensor([1., 1., 1.])")
def exception_instead_of_a_result() -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    return lambda x: x * 1, f


@case(
    "exception",
    "returns tensor([1., 1., 1.]), but the original raises ZeroDivisionError: integer division or modulo by zero",
)
def result_instead_of_an_exception() -> Any:
    return lambda x: x / (1 // int(x.dim() - 1)), lambda x: x * 1


@case(
    "exception", "raises KeyError: 'a', but the original raises ZeroDivisionError: integer division or modulo by zero"
)
def different_exception() -> Any:
    def f(x: torch.Tensor) -> Any:
        empty: dict[str, Any] = {}
        return empty["a"]

    return lambda x: 1 // (x.dim() - 1), f


@case(
    "different error",
    "raises RuntimeError: refused, but the original raises RuntimeError: shape '[2]' is invalid for input of size 3",
)
def different_message_of_an_operation() -> Any:
    def f(x: torch.Tensor) -> Any:
        raise RuntimeError("refused")

    return lambda x: x.view(2), f


@case("different error", "raises RuntimeError: Runtime assertion failed, but the original raises ValueError: no")
def refusal_by_a_graph_and_by_the_original() -> Any:
    def f(x: torch.Tensor) -> Any:
        raise RuntimeError("Runtime assertion failed")

    def g(x: torch.Tensor) -> Any:
        raise ValueError("no")

    return g, f


@case("exception", "raises RuntimeError: Runtime assertion failed, but the original returns tensor([1., 1., 1.])")
def refusal_by_a_graph_only() -> Any:
    def f(x: torch.Tensor) -> Any:
        raise RuntimeError("Runtime assertion failed")

    return lambda x: x * 1, f


@case("exception", "raises RuntimeError: b, but the original raises RuntimeError: a")
def different_message_of_a_runtime_error() -> Any:
    def make_raising_function(text: str) -> Any:
        def f(x: torch.Tensor) -> Any:
            raise RuntimeError(text)

        return f

    return make_raising_function("a"), make_raising_function("b")


@case("exception", "raises ValueError: b, but the original raises ValueError: a")
def different_message_of_an_exception() -> Any:
    def make_raising_function(text: str) -> Any:
        def f(x: torch.Tensor) -> Any:
            raise ValueError(text)

        return f

    return make_raising_function("a"), make_raising_function("b")


@case("argument", "leaves the argument x different: tensor([1., 1., 1.]) instead of tensor([2., 2., 2.])")
def unchanged_argument() -> Any:
    return lambda x: x.add_(1).clone(), lambda x: x + 1


@case("gradient", "gives the argument x a different gradient:", leaf(1, 2))
def gradient() -> Any:
    return lambda x: x * x, lambda x: x * x.detach()


@case("gradient", "gives the argument x a different gradient: tensor([0.1250, nan])", leaf(4, 0))
def nan_gradient() -> Any:
    def safe(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([part.sqrt() if part > 0 else part * 0 for part in x])

    return lambda x: safe(x), lambda x: torch.where(x > 0, x.sqrt(), x * 0)


@case("gradient", "gives the argument y no gradient, but the original gives", leaf(1), leaf(2))
def no_gradient() -> Any:
    return lambda x, y: x * y, lambda x, y: x * y.detach()


@case("zero gradient", "gives the argument y a gradient of zeros, but the original gives none", leaf(1), leaf(2))
def zero_gradient() -> Any:
    return lambda x, y: x * 2, lambda x, y: x * 2 + y * 0


@case("gradient", "gives the argument y the gradient tensor(", leaf(1), leaf(2))
def gradient_instead_of_none() -> Any:
    return lambda x, y: (x * 2).detach() + x * 0 + 1, lambda x, y: (x * 2).detach() + x * 0 + 1 + y - y.detach()


class FunctionWithoutBackward(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(_: Any, *__: torch.Tensor) -> Any:
        raise RuntimeError("not so")


raise_in_backward: Any = FunctionWithoutBackward.apply


@case("gradient", "raises RuntimeError: not so in the backward pass, but the original raises nothing", leaf(1))
def exception_in_the_backward_pass() -> Any:
    return lambda x: x * 1, lambda x: raise_in_backward(x)


@case("gradient", "leaves a different .grad on the argument x: None", leaf(1, 1))
def grad_left_by_the_call() -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        (x * 3).sum().backward()
        return x.detach() * 3

    return f, lambda x: x.detach() * 3


@case("requires_grad", "makes the result require no gradient, but in the original it requires one", leaf(1))
def requires_grad() -> Any:
    return lambda x: x * 2, lambda x: (x * 2).detach()


@case(
    "needless gradient",
    "makes the result[1] require a gradient, but in the original it requires none",
    torch.ones(2, requires_grad=True),
)
def further_result_with_a_gradient_of_zeros() -> Any:
    return lambda x: (x * 2, torch.zeros(())), lambda x: (x * 2, torch.where(x.sum() > 9, x.sum(), 0.0))


@case(
    "lost alias",
    "makes the result a new tensor, but in the original it is the argument x, so changing one in place",
)
def copy_instead_of_the_argument() -> Any:
    return lambda x: x, lambda x: x.clone()


@case("aliasing", "makes the result be the argument x, but in the original it is a separate object")
def argument_instead_of_a_copy() -> Any:
    return lambda x: x.clone(), lambda x: x


@case("lost alias", "makes the result a new tensor, but in the original it shares memory with the argument x, so")
def copy_instead_of_a_view() -> Any:
    return lambda x: x[:2], lambda x: x[:2].clone()


@case("aliasing", "makes the result[1] share memory with the result[0], but in the original it is")
def view_instead_of_the_same() -> Any:
    def same(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y

    def view(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y.view(3)

    return same, view


@case("aliasing", "makes the result a separate object, but in the original it is the argument value", [1, 2])
def separate_list() -> Any:
    return lambda value: value, lambda value: list(value)


@case("state", "leaves seen different: 0 items instead of 1")
def missing_item_in_a_closure() -> Any:
    def make_function(append: bool) -> Any:
        seen: list[int] = []

        def f(x: torch.Tensor) -> torch.Tensor:
            if append:
                seen.append(1)
            return x + len(seen) * 0

        return f

    return make_function(True), make_function(False)


@case("state", "leaves the grad mode different: True instead of False")
def grad_mode() -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return x + 1

    return f, lambda x: x + 1


@case("printed", "prints nothing, but the original prints 'loss 3.0'")
def missing_output() -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        print("loss", x.sum().item())
        return x + 1

    return f, lambda x: x + 1


@case("printed", "prints 'b', but the original prints 'a'")
def order_of_output() -> Any:
    def f(x: torch.Tensor) -> None:
        print("a")
        print("b")

    def g(x: torch.Tensor) -> None:
        print("b")
        print("a")

    return f, g


@case("stderr", "writes 'oh' to stderr, but the original writes nothing to stderr")
def stderr() -> Any:
    return lambda x: x + 1, lambda x: (print("oh", file=sys.stderr), x + 1)[1]


@case("warned", "warns nothing, but the original warns 'UserWarning: careful'")
def missing_warning() -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("careful", stacklevel=1)
        return x + 1

    return f, lambda x: x + 1


@case("logged", "logs nothing, but the original logs 'trial.of.the.user WARNING: step 1'")
def missing_log_record() -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        LOG.warning("step %d", 1)
        return x + 1

    return f, lambda x: x + 1


@case("random state", "leaves the random generator of PyTorch in a different state")
def torch_random() -> Any:
    return lambda x: x + 1, lambda x: x + 1 + torch.rand(3) * 0


@case("random state", "leaves the random generator of Python in a different state")
def python_random() -> Any:
    return lambda x: x + 1, lambda x: x + 1 + random.random() * 0


@case("random state", "leaves the random generator of NumPy in a different state")
def numpy_random() -> Any:
    return lambda x: x + 1, lambda x: x + 1 + np.random.rand() * 0


class TaggedTensor(torch.Tensor):
    """A subclass of tensors."""


class RefusalError(ValueError):
    """An error with a value."""

    def __init__(self, value: Any) -> None:
        super().__init__("refused")
        self.value = value


@case("value", "makes the result a TaggedTensor instead of a Tensor")
def kind_of_tensor() -> Any:
    return lambda x: x + 1, lambda x: (x + 1).as_subclass(TaggedTensor)


@case("value", "returns list instead of a generator", torch.ones(2))
def generator() -> Any:
    def f(x: torch.Tensor) -> Any:
        yield x + 1

    return f, lambda x: [x + 1]


@case("layout", "makes the strides of the result (1, 2) instead of (3, 1)", torch.ones(2, 3))
def layout() -> Any:
    return lambda x: x + 1, lambda x: (x.t().contiguous() + 1).t()


@case("value", "returns an extra key 'b'")
def extra_key() -> Any:
    return lambda x: {"a": x}, lambda x: {"a": x, "b": x}


@case("value", "returns a different order of the keys")
def order_of_keys() -> Any:
    return lambda x: {"a": 1, "b": 2}, lambda x: {"b": 2, "a": 1}


@case("exception", "raises RefusalError with different attributes: 2 instead of 1 at ['value']")
def attribute_of_an_error() -> Any:
    def make_raising_function(value: int) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            raise RefusalError(value)

        return f

    return make_raising_function(1), make_raising_function(2)


ACCEPTABLE_KINDS = {
    "printed", "stderr", "warned", "logged", "zero gradient", "needless gradient", "random state", "different error",
    "layout", "lost alias",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
def test_each_case_has_exactly_one_difference(name: str) -> None:
    original, variant, kind, text, args = CASES[name]
    (difference,) = run_and_compare(original, variant, *args)
    assert difference.kind == kind
    assert difference.text.startswith(text)
    assert difference.is_acceptable == (kind in ACCEPTABLE_KINDS)


def test_signs_of_zeros_are_compared_on_request() -> None:
    original, variant = run_once(lambda x: x * -1, torch.zeros(2)), run_once(lambda x: x * 1, torch.zeros(2))
    assert differences(original, variant) == []
    (difference,) = differences(original, variant, compares_signs_of_zero=True)
    assert (difference.kind, difference.is_acceptable) == ("sign of zero", True)


class Tally(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros(2)


def test_replacing_a_tensor_instead_of_changing_it_in_place_is_a_difference() -> None:
    def add_in_place(tally: Tally) -> None:
        tally.count += 1

    def assign_sum(tally: Tally) -> None:
        tally.count = tally.count + 1

    original, variant = run_once(add_in_place, Tally()), run_once(assign_sum, Tally())
    (difference,) = differences(original, variant)
    assert (difference.kind, difference.is_acceptable) == ("replaced", False)
    assert differences(variant, original) == []


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_function_does_not_differ_from_itself(name: str) -> None:
    for fn in CASES[name][:2]:
        assert run_and_compare(fn, fn, *CASES[name].args) == []


def test_gradients_of_parameters_are_named() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    run = run_once(lambda x: model(x), torch.ones(1, 2))
    assert run.gradients is not None
    assert set(run.gradients) == {f"the parameter model.{i}.{kind}" for i in (0, 1) for kind in ("weight", "bias")}
    assert set(run_once(model, torch.ones(1, 2)).gradients or {}) == {
        f"the parameter {i}.{kind}" for i in (0, 1) for kind in ("weight", "bias")
    }


def test_without_gradients_nothing_runs_backward() -> None:
    assert run_once(lambda x: raise_in_backward(x), leaf(1), gradients=False).backward_error is None
    assert run_once(lambda x: x + 1, torch.ones(1)).gradients is None


def test_grad_left_by_the_call_is_separate_from_the_gradients() -> None:
    argument = leaf(1, 1)
    argument.grad = torch.full((2,), 5.0)
    run = run_once(lambda x: x * 1, argument)
    assert torch.equal(run.leaf_grads["the argument x"], torch.full((2,), 5.0))  # type: ignore[arg-type]
    assert run.gradients is not None
    assert torch.allclose(run.gradients["the argument x"], torch.tensor([0.5, 1.1094]), atol=1e-4)  # type: ignore[arg-type]
    assert torch.equal(argument.grad, torch.full((2,), 5.0))


def test_without_values_only_shapes_and_presence_count() -> None:
    def print_random_number(x: torch.Tensor) -> torch.Tensor:
        print(torch.rand(1))
        return x * torch.rand(3)

    args = leaf(1, 1, 1)
    pair = run_once(print_random_number, args), run_once(print_random_number, args, seed=1)
    assert {item.kind for item in differences(*pair)} == {"value", "printed", "random state"}
    assert differences(*pair, compares_values=False) == []
    silent_result = run_once(lambda x: x * torch.rand(3), args)
    assert [item.kind for item in differences(pair[0], silent_result, compares_values=False)] == ["printed"]


@pytest.mark.parametrize(
    ("expected", "actual", "is_same"),
    [
        ("loss 0.12345", "loss 0.12346", True),
        ("loss 0.12345", "loss 0.12355", False),
        ("tensor(1.)", "tensor(2.)", False),
        ("step 1", "step 2", False),
        ("tensor(3., grad_fn=<SumBackward0>)", "tensor(3., grad_fn=<CompiledFunctionBackward>)", True),
        ("1.0000e-05", "1.0001e-05", True),
        ("1.0000e-05", "1.1000e-05", False),
        ("nan 1.5", "inf 1.5", False),
        (
            "\r  0%|  | 0/2 [00:00<?, ?it/s]\r 50%|# | 1/2 [00:01<00:01,  1.1s/it]\r100%|##| 2/2 [00:02<00:00, 1s/it]",
            "\r  0%|  | 0/2 [00:00<?, ?it/s]\r100%|##| 2/2 [00:00<00:00, 41.25it/s]",
            True,
        ),
        ("\r100%|##| 2/2 [00:00<00:00, 9.0it/s]", "\r100%|##| 2/2 [00:00<00:00, 9.0it/s, loss=1]", False),
    ],
)
def test_strings_are_equal_up_to_the_last_digit_of_a_number(expected: str, actual: str, is_same: bool) -> None:
    assert is_same_text(expected, actual) is is_same


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), True),
        (torch.tensor([1.0]), torch.tensor([1.00001]), True),
        (torch.tensor([1.0]), torch.tensor([1.0001]), False),
        (torch.tensor([1e4, 0.0]), torch.tensor([1e4, 0.01]), True),  # terms of 1e4 cancelled
        (torch.tensor([1e4, 1.0]), torch.tensor([1e4, 2.0]), False),
        (torch.tensor([1.0]).double(), torch.tensor([1.00001]).double(), False),
        (torch.tensor([float("nan")]), torch.tensor([1.0]), False),
        (torch.tensor([float("inf")]), torch.tensor([1e30]), False),
        (torch.ones(2).bfloat16(), torch.ones(2).bfloat16() * 1.0078125, True),
        (float("inf"), float("inf"), True),
        (float("inf"), 1.0, False),
        (-float("inf"), float("inf"), False),
        (float("nan"), float("nan"), True),
        (complex("inf"), 1j, False),
        (1e-6, 5e-7, False),
        (1e-6, 1.00001e-6, True),
        (torch.tensor(1e-6).item(), torch.tensor(5e-7).item(), True),
        (complex("nan"), complex("nan"), True),
    ],
)
def test_values_are_equal_up_to_compiler_rounding(
    expected: torch.Tensor | complex, actual: torch.Tensor | complex, equal: bool
) -> None:
    assert (describe_difference(expected, actual) is None) is equal


def numpy_random_position() -> int:
    state: Any = np.random.get_state()
    return int(state[2])


def test_the_pending_seed_of_an_unused_device_stays() -> None:
    torch.manual_seed(7)
    pending_calls = torch.cuda._lazy_seed_tracker.get_calls()
    assert pending_calls or torch.cuda.is_initialized()
    run_once(torch.rand_like, torch.ones(3))
    assert torch.cuda._lazy_seed_tracker.get_calls() == pending_calls


def test_effects_of_a_run_do_not_escape(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    @functools.lru_cache(None)
    def warning_once(logger: logging.Logger, text: str) -> None:
        logger.warning(text)

    def write_everywhere(x: torch.Tensor) -> torch.Tensor:
        print("out")
        print("err", file=sys.stderr)
        warnings.warn("once only", stacklevel=1)
        LOG.error("logged")
        warning_once(LOG, "logged once")
        return x + torch.rand(3) + random.random() + np.random.rand()

    states = random.getstate(), torch.get_rng_state().tolist(), numpy_random_position()
    run_once(write_everywhere, torch.ones(3))
    assert states == (random.getstate(), torch.get_rng_state().tolist(), numpy_random_position())
    assert capsys.readouterr() == ("", "")
    assert not caplog.records


def test_once_only_messages_appear_in_each_run_and_not_again_afterwards(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    @functools.lru_cache(None)
    def warning_once(logger: logging.Logger, text: str) -> None:
        logger.warning(text)

    monkeypatch.setattr(logging.Logger, "warning_once", warning_once, raising=False)
    warnings.simplefilter("default")
    log: Any = LOG

    def f(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("shown once", stacklevel=1)
        log.warning_once("logged once")
        return x + 1

    f(torch.ones(1))
    assert (len(recwarn), len(caplog.records)) == (1, 1)
    for _ in range(2):
        effects = run_once(f, torch.ones(1)).effects
        assert effects.warning_messages == [("UserWarning", "shown once")]
        assert effects.log_records == [("trial.of.the.user", "WARNING", "logged once")]
    f(torch.ones(1))
    assert (len(recwarn), len(caplog.records)) == (1, 1)


def test_messages_of_the_compiler_are_not_a_difference() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    with sandbox_runs():
        original, other = Subject(model), Subject(model)
        arguments = Arguments(torch.ones(2, 3))
        expected = run(original.function, original, arguments)
        actual = run(torch.compile(other.function, backend="aot_eager"), other, arguments)
    assert differences(expected, actual) == []


class CallCounter(torch.nn.Module):
    """A module that counts its calls and stores a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.last, self.factor = 0, torch.zeros(2), 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls, self.last = self.calls + 1, x * self.factor
        return x + 1


def call_forward(self: CallCounter, x: torch.Tensor) -> torch.Tensor:
    return type(self).forward(self, x)


def test_state_set_by_a_switch_before_the_runs_is_not_a_difference() -> None:
    switched_module = CallCounter()
    switched_module.calls_by_hand = 3  # type: ignore[assignment]
    switched_module.forward = types.MethodType(call_forward, switched_module)  # type: ignore[method-assign]
    switched_module.register_forward_pre_hook(lambda module, arguments: arguments)
    assert run_and_compare(CallCounter(), switched_module, torch.ones(2)) == []


def test_an_empty_container_left_by_a_switched_program_is_a_difference() -> None:
    class ModuleWithContainer(CallCounter):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen: Any = [] if self.factor == 1 else ()
            return x + 1

    switched_module = ModuleWithContainer()
    switched_module.factor = 2
    (difference,) = run_and_compare(ModuleWithContainer(), switched_module, torch.ones(2))
    assert (difference.kind, difference.text) == ("state", "leaves self.seen different")


def test_different_state_left_by_a_switched_program_is_a_difference() -> None:
    switched_module = CallCounter()
    switched_module.factor = 2
    (difference,) = run_and_compare(CallCounter(), switched_module, torch.ones(2))
    assert (difference.kind, difference.text) == ("state", "leaves self.last different")


def test_warnings_about_nondeterministic_algorithms_do_not_become_errors() -> None:
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        run_once(torch.relu, torch.ones(2))
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(mode=False)


def test_random_seeds_reach_each_path_through_a_function() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        if torch.rand(()) < 0.5:
            x = x + 1
        if random.random() < 0.2:
            x = x + 2
        return x

    with sandbox_runs():
        reference = Reference(f, Input(Arguments(torch.zeros(())), Example("", "")))
        results = [reference.result, *(case.expected_result for case in reference.cases([Arguments(torch.zeros(()))]))]
    assert {float(result.value) for result in results} == {0, 1, 2, 3}


def test_a_compiled_run_that_fails_within_autocast_leaves_no_autocast_context() -> None:
    def add_in_autocast(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch._check(bool((y[x.long()] > 0).all().item()))
            return x @ y

    def count_contexts() -> int:
        torch.autocast_increment_nesting()
        return int(torch.autocast_decrement_nesting())

    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True), sandbox_runs():
        subject = Subject(torch.compile(add_in_autocast, backend="eager"), Arguments(torch.ones(2), torch.ones(2)))
        assert subject.arguments is not None
        for end, is_wrong in ((1.0, False), (-1.0, True)):
            arguments = Arguments(torch.ones(2), torch.tensor([1.0, end]))
            result = run(subject.function, subject, arguments)
            assert (result.error is not None) is is_wrong
            assert count_contexts() == 0
    assert not torch.is_autocast_enabled("cpu")


def test_a_program_that_stays_in_an_autocast_context_changes_the_process() -> None:
    def enter_autocast(x: torch.Tensor) -> torch.Tensor:
        torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
        return x @ x

    subject = Subject(enter_autocast, Arguments(torch.ones(2)))
    with pytest.raises(TrialStoppedError, match="sets autocast on cpu"):
        run(subject.function, subject, subject.arguments or Arguments())
    assert not torch.is_autocast_enabled("cpu")
