"""Derived inputs are inputs that the function accepts."""

from __future__ import annotations

import contextlib
import copy
import enum
import queue
import threading
import time
import types
from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from jupyter_graphbreak.experiments.remedies.original import EdgeCaseChoice, UncompiledOriginal
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.edge_inputs import edge_inputs
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.experiments.trial.inputs import Input, derived_inputs
from jupyter_graphbreak.experiments.trial.outcome import LineLimitError, limit_lines, sandbox_runs
from jupyter_graphbreak.experiments.trial.reference import Reference
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        embedded: torch.Tensor = self.embedding(ids)
        return embedded.sum() if scale is None else embedded.sum() * scale


TOKEN_IDS = torch.tensor([[2, 5, 9]])


def inputs_by_name(fn: Any, *args: Any) -> dict[str, Input]:
    return {input_.example.what: input_ for input_ in derived_inputs(Arguments(*args), fn)}


def test_embedding_ids_stay_within_the_given_range() -> None:
    model = Model()
    inputs = [
        input_ for input_ in derived_inputs(Arguments(TOKEN_IDS, torch.tensor(2.0)), model) if not input_.is_special
    ]
    ids = [input_.arguments.args[0] for input_ in inputs]
    assert len(ids) > 5
    assert all(2 <= int(tensor.min()) <= int(tensor.max()) <= 9 for tensor in ids)
    assert sum(not torch.equal(tensor, TOKEN_IDS) for tensor in ids) >= 3
    assert torch.equal(inputs_by_name(model, TOKEN_IDS)["ids negated"].arguments.args[0], torch.tensor([[9, 2, 5]]))
    assert -2.0 in [input_.arguments.args[1].item() for input_ in inputs]


def test_ids_stay_in_range_if_a_function_calls_a_model_or_looks_them_up() -> None:
    model = Model()
    weight = torch.ones(10, 4)
    for fn in (lambda ids: model(ids), lambda ids: torch.nn.functional.embedding(ids, weight)):  # noqa: PLW0108
        assert all(int(input_.arguments.args[0].min()) >= 2 for input_ in derived_inputs(Arguments(TOKEN_IDS), fn))


def repeat_by_counts(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(x, counts)


def test_counts_that_pytorch_does_not_check_are_never_negative() -> None:
    """With counts such as [-4, 0, 6], `repeat_interleave` overwrites memory, and the process crashes later."""

    def call_repeat_by_counts(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return repeat_by_counts(x, counts)

    arguments = Arguments(torch.ones(3), torch.tensor([2, 0, 1]))
    for fn in (repeat_by_counts, call_repeat_by_counts):
        inputs = [*derived_inputs(arguments, fn), *edge_inputs(arguments, fn, {})]
        counts = [input_.arguments.args[1] for input_ in inputs]
        assert len(counts) > 20
        assert all(not tensor.numel() or tensor.min() >= 0 for tensor in counts)


def test_integers_that_are_not_indices_are_negated_and_reordered() -> None:
    inputs = inputs_by_name(lambda x: x + 1, torch.tensor([1, 2, 3]))
    assert torch.equal(inputs["x negated"].arguments.args[0], torch.tensor([-1, -2, -3]))
    assert torch.equal(inputs["integers in a different order"].arguments.args[0], torch.tensor([3, 1, 2]))


def test_numbers_and_tables_of_the_code_become_lengths_and_values() -> None:
    function_without_globals = types.FunctionType((lambda x: x[:100] / (x.max() - 6.5)).__code__, {})
    inputs = edge_inputs(Arguments(torch.ones(3)), function_without_globals, {"table": torch.ones(40)})
    edges = [input_.arguments.args[0] for input_ in inputs]
    assert {40, 41, 100, 101} <= {x.numel() for x in edges}
    assert any((x == 6.5).all() for x in edges)


def test_a_string_argument_gets_a_different_value() -> None:
    inputs = edge_inputs(Arguments(torch.ones(3), "sum"), lambda x, name: getattr(x, name)(), {})
    assert "not sum" in [input_.arguments.args[1] for input_ in inputs]


def test_products_of_integers_overflow() -> None:
    edges = [input_.arguments.args[0] for input_ in edge_inputs(Arguments(torch.tensor([1, 2])), lambda x: x + 1, {})]
    assert any((x == -torch.iinfo(torch.int64).max).all() for x in edges)


def test_exponents_are_not_so_large_that_a_power_exhausts_the_memory() -> None:
    arguments = Arguments(torch.tensor([4.0]), 4.0)
    functions = {10_000: lambda x, bits: x * 2 ** int(bits), 1e30: lambda x, bits: x**2 * int(bits)}
    for largest, fn in functions.items():
        edges = [input_.arguments.args for input_ in edge_inputs(arguments, fn, {})]
        assert max(float(number) for x, bits in edges for number in (*x.detach().flatten(), bits) if number < 1e38) == (
            pytest.approx(largest)
        )


@dataclass
class Output:
    loss: torch.Tensor
    name: str = "a"


class Encoding(UserDict[str, Any]):
    """A dict-like class such as the output of a tokenizer."""


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


def test_tensors_in_dicts_dataclasses_and_tuples_are_changed() -> None:
    input_ = torch.ones(2)
    arguments: list[Any] = [
        Output(input_),
        Encoding(x=input_),
        OrderedDict(x=input_),
        Pair(input_, input_),
        {"x": [input_, 3]},
    ]
    for value in arguments:
        new_value = inputs_by_name(lambda value: value, value)["all tensors negated"].arguments.args[0]
        assert type(new_value) is type(value)
        match new_value:
            case Output():
                assert new_value.name == "a"
                tensor = new_value.loss
            case Pair():
                assert new_value.left is new_value.right
                tensor = new_value.left
            case dict() if type(new_value) is dict:
                assert new_value["x"][1] == 3
                tensor = new_value["x"][0]
            case _:
                tensor = new_value["x"]
        assert torch.equal(tensor, -input_)
    assert torch.equal(input_, torch.ones(2))
    assert torch.equal(arguments[1]["x"], input_)


def test_module_arguments_stay_the_same_in_derived_inputs() -> None:
    model = torch.nn.Linear(2, 1)
    inputs = list(derived_inputs(Arguments(model, [model], torch.ones(1, 2)), lambda net, nets, x: nets[0](x) + net(x)))
    assert inputs
    assert all(input_.arguments.args[0] is model is input_.arguments.args[1][0] for input_ in inputs)


def test_a_reference_detects_changes_repeatability_and_randomness() -> None:
    calls: list[int] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + torch.rand(2)

    with sandbox_runs():
        reference = Reference(f, next(derived_inputs(Arguments(torch.ones(2)), f)))
        cases = reference.cases()
    assert (reference.changed_names, reference.is_repeatable, reference.is_random, calls) == ({"calls"}, True, True, [])
    assert cases[0].example().what == "the first input again"
    assert len(cases[0].expected_result.state["calls"]) == 2
    assert cases[-1].example().what == "the first input a fourth time"
    assert len(cases[-1].expected_result.state["calls"]) == 4


@pytest.mark.timeout(60)
def test_inputs_for_which_the_function_would_wait_forever_are_left_out() -> None:
    def last_of(x: torch.Tensor, count: int) -> torch.Tensor:
        tensor_queue: queue.Queue[torch.Tensor] = queue.Queue()
        for _ in range(count):
            tensor_queue.put(x)
        return tensor_queue.get()

    arguments = Arguments(torch.ones(2), 3)
    with sandbox_runs():
        reference = Reference(last_of, next(derived_inputs(arguments, last_of)))
        assert any(edge.arguments.args[1] == 0 for edge in edge_inputs(arguments, last_of, {}))
        counts = [case.input.arguments.args[1] for case in reference.edge_cases()]
    assert counts
    assert 0 not in counts


@pytest.mark.timeout(60)
def test_an_endless_loop_on_one_line_and_a_lock_that_the_run_itself_holds_end() -> None:
    lock = threading.Lock()

    def wait(x: torch.Tensor) -> torch.Tensor:
        with lock, lock:
            return x

    namespace: dict[str, Any] = {}
    exec("def endless():\n    while True: pass", namespace)

    with sandbox_runs(), pytest.raises(TrialStoppedError, match="waits for another thread"):
        Reference(wait, next(derived_inputs(Arguments(torch.ones(2)), wait)))
    with pytest.raises(LineLimitError), limit_lines():
        namespace["endless"]()


def test_attributes_of_a_thread_local_object_are_copied() -> None:
    local = threading.local()
    local.step = 2

    def scale(x: torch.Tensor) -> Any:
        return x * local.step

    assert Reference(scale, next(derived_inputs(Arguments(torch.ones(2)), scale))).is_repeatable


@pytest.mark.timeout(60)
def test_a_run_stops_before_it_waits_for_a_different_thread() -> None:
    def wait(x: torch.Tensor) -> torch.Tensor:
        tensor_queue: queue.Queue[torch.Tensor] = queue.Queue()
        return x + tensor_queue.get()

    with sandbox_runs(), pytest.raises(TrialStoppedError, match="waits for another thread"):
        Reference(wait, next(derived_inputs(Arguments(torch.ones(2)), wait)))


@pytest.mark.timeout(60)
def test_a_run_stops_before_it_sleeps_for_long() -> None:
    def wait(x: torch.Tensor, seconds: float) -> torch.Tensor:
        time.sleep(seconds)
        return x

    for seconds in (0.001, 100.0):
        expectation = pytest.raises(TrialStoppedError, match="sleeps for 100 s")
        with sandbox_runs(), expectation if seconds > 1 else contextlib.nullcontext():
            Reference(wait, next(derived_inputs(Arguments(torch.ones(2), seconds), wait)))


def test_the_first_call_runs_no_backward_pass_so_that_the_second_can() -> None:
    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.Linear(2, 2)
            self.hidden = torch.zeros(1, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.hidden = self.cell(x + self.hidden)
            return self.hidden

    arguments = Arguments(torch.ones(1, 2))
    with sandbox_runs():
        reference = Reference(Recurrent(), next(derived_inputs(arguments, lambda x: x)))
        (second_case,) = reference.cases([arguments])
    assert reference.changed_names == {"self"}
    assert second_case.expected_result.backward_error is None
    assert second_case.expected_result.gradients


def inputs_by_kind(fn: Any, *args: Any) -> dict[str, list[Input]]:
    """Return the edge inputs by the different kind of tensor that they have, if any."""
    result: dict[str, list[Input]] = {}
    for input_ in edge_inputs(Arguments(*args), fn, {}):
        result.setdefault(input_.different_kind, []).append(input_)
    return result


def test_floating_point_tensors_become_bool_tensors_for_which_only_errors_count() -> None:
    cases = inputs_by_kind(lambda x: x + 1, torch.tensor([0.5, -1.0]))["bool tensors"]
    assert [input_.arguments.args[0].dtype for input_ in cases] == [torch.bool] * 3
    assert {bool(input_.arguments.args[0].any()) for input_ in cases} == {True, False}
    assert all(input_.compares_errors_only for input_ in cases)
    assert "bool tensors" not in inputs_by_kind(lambda x: x + 1, torch.tensor([1, 2]))


def test_tensors_get_a_gradient_if_code_reads_or_copies_it() -> None:
    (case,) = inputs_by_kind(lambda x, n: x if x.grad is None else n, torch.ones(2), torch.tensor([1]))[
        "tensors that have a .grad"
    ]
    x, n = case.arguments.args
    assert (x.grad.tolist(), n.grad) == ([2.0, 2.0], None)
    weight = torch.ones(2)
    *_, last = edge_inputs(Arguments(torch.ones(2)), lambda x: copy.deepcopy(weight) * x, {"weight": weight})
    assert last.state["weight"].grad.tolist() == [2.0, 2.0]
    assert weight.grad is None
    assert "tensors that have a .grad" not in inputs_by_kind(lambda x: x + 1, torch.ones(2))


def test_strides_of_edge_inputs_have_gaps_and_are_transposed() -> None:
    cases_by_kind = inputs_by_kind(lambda x: x + 1, torch.arange(6.0).reshape(2, 3))
    tensor_with_gaps, transposed_tensor = (
        cases_by_kind[kind][0].arguments.args[0] for kind in ("tensors that are not contiguous", "transposed tensors")
    )
    assert tensor_with_gaps.shape == transposed_tensor.shape == (2, 3)
    assert torch.equal(tensor_with_gaps, torch.arange(6.0).reshape(2, 3) * 3)
    assert torch.equal(tensor_with_gaps, transposed_tensor)
    assert tensor_with_gaps.stride() == (6, 2)
    assert transposed_tensor.stride() == (2, 4)
    flat_cases = inputs_by_kind(lambda x: x + 1, torch.arange(3.0))
    assert flat_cases["tensors that are not contiguous"][0].arguments.args[0].stride() == (2,)
    assert "transposed tensors" not in flat_cases
    assert (
        not {"transposed tensors", "tensors that are not contiguous"}
        & inputs_by_kind(lambda x: x + 1, torch.tensor(2.0)).keys()
    )


def test_one_of_several_tensors_gets_one_more_dimension() -> None:
    cases_by_kind = inputs_by_kind(lambda x, y: x + y, torch.arange(3.0), torch.arange(3.0))
    x, y = cases_by_kind["y with one more dimension"][0].arguments.args
    assert (x.shape, y.shape) == ((3,), (2, 3))
    assert "x with one more dimension" not in inputs_by_kind(lambda x: x + 1, torch.arange(3.0))
    assert cases_by_kind["y as a column"][0].arguments.args[1].shape == (3, 1)
    assert "x as a column" not in inputs_by_kind(lambda x: x + 1, torch.ones(3, 2))


def test_defaults_with_a_different_type_than_the_tensor_are_a_different_kind() -> None:
    def scale(x: torch.Tensor, use: Any = True, n: Any = 3, mask: Any = None) -> torch.Tensor:
        scaled: torch.Tensor = x * n if use else x + mask
        return scaled

    cases_by_kind = inputs_by_kind(scale, torch.arange(3.0), torch.tensor(True), torch.tensor(2), torch.arange(3.0))
    flags = [cases_by_kind[f"use = {flag}"][0].arguments.args[1] for flag in (True, False)]
    assert (flags, cases_by_kind["n = 3"][0].arguments.args[2]) == ([True, False], 3)
    assert not any(kind.startswith(("mask =", "x =")) for kind in cases_by_kind)


def test_a_parameter_that_is_none_gets_numbers_a_tensor_and_a_mask() -> None:
    def multiply(x: torch.Tensor, scale: Any = None) -> torch.Tensor:
        result: torch.Tensor = x if scale is None else x * scale
        return result

    cases_by_kind = inputs_by_kind(multiply, torch.arange(3.0))
    assert [
        cases_by_kind[f"scale = {number}"][0].arguments.by_name(multiply)["scale"] for number in ("2.0", "0.0")
    ] == [
        2.0,
        0.0,
    ]
    tensors = [
        scale
        for kind, cases in cases_by_kind.items()
        if kind.startswith("scale =")
        and isinstance(scale := cases[0].arguments.by_name(multiply)["scale"], torch.Tensor)
    ]
    assert [tensor.dtype for tensor in tensors] == [torch.float32, torch.bool]


def test_tensors_that_require_gradients_are_also_not_finite() -> None:
    cases = inputs_by_kind(lambda x: x.sum(), torch.ones(3))["tensors that require gradients"]
    values = [case.arguments.args[0] for case in cases]
    assert {bool(value.isnan().all()) for value in values} == {True, False}
    assert any(value.isinf().all() for value in values)
    assert all(value.requires_grad for value in values)


def test_numbers_of_the_state_are_zero_with_tensors_that_require_gradients() -> None:
    inputs = list(edge_inputs(Arguments(torch.ones(1)), lambda x: x, {"gain": 2.0}))
    values = [input_.arguments.args[0] for input_ in inputs if input_.state == {"gain": 0.0} and input_.different_kind]
    assert [value.sign().tolist() for value in values if value.requires_grad] == [[1.0], [-1.0], [1.0]]


def test_one_of_several_tensors_requires_gradients() -> None:
    cases_by_kind = inputs_by_kind(lambda x, w: x * w, torch.ones(3), torch.ones(3))
    values = [case.arguments.args for case in cases_by_kind["x requiring gradients"]]
    assert {(x.requires_grad, w.requires_grad) for x, w in values} == {(True, False)}
    assert {float(x.sum()) for x, _ in values} == {9.0, -9.0, 0.0}


def test_one_of_several_tensors_has_a_different_precision() -> None:
    inputs_by_difference = inputs_by_kind(lambda x, w: x * w, torch.ones(3), torch.ones(3, dtype=torch.float64))
    assert [case.arguments.args[0].dtype for case in inputs_by_difference["x as float64"]] == [torch.float64] * 2
    assert [case.arguments.args[1].dtype for case in inputs_by_difference["w as float32"]] == [torch.float32] * 2
    assert not any(" as float" in kind for kind in inputs_by_kind(lambda x, n: x * n, torch.ones(3), torch.tensor(2)))
    inputs_with_integers = inputs_by_kind(lambda x, n: x * n, torch.tensor([1, 2]), torch.tensor(2))
    dtypes = [[value.dtype for value in case.arguments.args] for case in inputs_with_integers["n as float32"]]
    assert dtypes == [[torch.int64, torch.float32]] * 2


def test_a_refused_number_does_not_exclude_tensors_that_require_gradients() -> None:
    entry = Entry("", None, lambda x, n: x * (1 / n), Arguments(torch.ones(3), 2), "eager")
    cases = [
        case
        for case in UncompiledOriginal(entry).edge_cases()
        if case.input.different_kind == "tensors that require gradients"
    ]
    assert {case.expected_result.error is None for case in cases} == {True, False}


def test_a_program_is_compiled_for_nan_in_a_tensor_and_as_a_number() -> None:
    entry = Entry("", None, lambda x, lr: x * lr, Arguments(torch.ones(3), 0.1), "eager")
    descriptions = [case.input.description for case in UncompiledOriginal(entry).edge_cases_to_compile("some")]
    assert {"all tensors nan", "all tensors with a nan", "lr = nan"} <= set(descriptions)


@pytest.mark.parametrize("choice", ["some", "many"])
def test_a_program_is_compiled_for_a_different_number_in_the_state(choice: EdgeCaseChoice) -> None:
    def amplify(x: torch.Tensor) -> torch.Tensor:
        amplified: torch.Tensor = x * amplifier.gain
        return amplified

    amplifier = types.SimpleNamespace(gain=2.0, name="a")
    entry = Entry("", None, amplify, Arguments(torch.ones(4)), "eager")
    states = [case.input.state for case in UncompiledOriginal(entry).edge_cases_to_compile(choice)]
    assert any(value == 0.0 for state in states for value in state.values())


@pytest.mark.parametrize("choice", ["some", "many"])
def test_a_program_is_compiled_for_a_size_that_is_captured_as_a_symbol(choice: EdgeCaseChoice) -> None:
    entry = Entry("", None, lambda x: x * 2, Arguments(torch.ones(4)), "eager")
    sizes = {case.input.arguments.args[0].shape[0] for case in UncompiledOriginal(entry).edge_cases_to_compile(choice)}
    assert sizes - {0, 1, 4}


def test_a_program_is_compiled_for_one_empty_tensor_among_others() -> None:
    entry = Entry("", None, lambda x, mask: x[int(mask.sum()) :], Arguments(torch.ones(3), torch.ones(3)), "eager")
    cases = UncompiledOriginal(entry).edge_cases_to_compile("different kinds")
    sizes = [[tensor.numel() for tensor in case.input.arguments.args] for case in cases]
    assert sizes[:2] == [[0, 3], [3, 0]]


class Mode(enum.Enum):
    A = 1
    B = 2
    C = 3
    D = 4


TABLE = {"same": 1, "keep": 2}


def test_strings_and_enumerations_take_different_values_for_both_branches_of_a_condition() -> None:
    def choose(x: torch.Tensor, name: str, mode: Mode) -> torch.Tensor:
        scaled: torch.Tensor = x * TABLE[name] + mode.value
        return scaled

    arguments = Arguments(torch.arange(3.0), "same", Mode.B)
    arguments_by_input = {input_.example.what: input_.arguments.args for input_ in edge_inputs(arguments, choose, {})}
    assert arguments_by_input["name = 'keep'"][1] == "keep"
    assert arguments_by_input["name = 'keep', all tensors negated"][0].tolist() == [0.0, -1.0, -2.0]
    modes = {args[2] for args in arguments_by_input.values()}
    assert modes == {Mode.A, Mode.B, Mode.C}


def test_items_of_lists_change_and_keys_of_dicts_are_missing() -> None:
    def f(x: torch.Tensor, table: dict[str, float], scales: list[float]) -> torch.Tensor:
        return x * table["k"] * scales[-1]

    arguments = [
        input_.arguments.args for input_ in edge_inputs(Arguments(torch.ones(2), {"k": 2.0}, [1.0, 2.0, 4.0]), f, {})
    ]
    assert [1.0, 2.0, 0.0] in [scales for *_, scales in arguments]
    assert {} in [table for _, table, _ in arguments]
    assert any(scales[-1] == 0.0 and x.requires_grad for x, _, scales in arguments if scales)


def test_strings_of_the_state_change_if_the_code_compares_them() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if model.rule == "double" else x

    model = types.SimpleNamespace(rule="double")
    inputs = edge_inputs(Arguments(torch.arange(3.0)), choose, {"model.rule": "double", "model.name": "net"})
    states = [input_.state for input_ in inputs if input_.state and not input_.different_kind]
    assert states == [{"model.rule": "not double"}] * 4


def test_strides_count_even_if_a_function_refuses_them_for_some_values() -> None:
    def flatten(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1) if x.sum() > 0 else x.reshape(-1)

    def add_or_subtract(x: torch.Tensor) -> torch.Tensor:
        return x - x if x.sum() > 0 else x + x

    argument = torch.arange(6.0).reshape(2, 3)
    kinds_of = {
        fn: {
            case.input.different_kind
            for case in UncompiledOriginal(Entry("", None, fn, Arguments(argument), "eager")).edge_cases()
        }
        for fn in (flatten, add_or_subtract)
    }
    assert "transposed tensors" in kinds_of[flatten]
    assert "bool tensors" not in kinds_of[add_or_subtract]


def test_the_last_tensor_of_a_list_is_longer_even_if_code_refuses_it_for_some_values() -> None:
    def sum_rows(rows: list[torch.Tensor]) -> torch.Tensor:
        return rows[0] if rows[0].sum() > 0 else rows[0] + rows[1]

    entry = Entry("", None, sum_rows, Arguments([torch.ones(2), torch.ones(2)]), "eager")
    longer_cases = [
        case for case in UncompiledOriginal(entry).edge_cases() if case.input.different_kind == "a longer last item"
    ]
    assert {case.expected_result.error is None for case in longer_cases} == {True, False}
    assert all([len(row) for row in case.input.arguments.args[0]] == [2, 3] for case in longer_cases)


def test_arguments_take_unusual_values_and_a_mask_selects_one_element() -> None:
    def f(x: torch.Tensor, flag: torch.Tensor, doubled: bool) -> torch.Tensor:
        return x[x > 0] * (2 if flag and doubled else 3)

    arguments = Arguments(torch.linspace(-1, 2, 6), torch.tensor(1.0), True)
    inputs = {input_.example.what: input_ for input_ in edge_inputs(arguments, f, {})}
    x, part, _ = inputs["flag in the memory of x"].arguments.copy().args
    x.add_(1)
    assert part == x[0] == 0
    assert [inputs[f"flag = {value}"].arguments.args[1] for value in ("None", "[]")] == [None, []]
    assert inputs["doubled = None"].arguments.args[2] is None
    assert inputs["flag = True"].arguments.args[1].dtype == torch.bool
    masked_tensor = inputs["all tensors with one positive number"].arguments.args[0]
    assert int((masked_tensor > 0).sum()) == 1
    x, zero, _ = inputs["flag zero, tensors that require gradients"].arguments.args
    assert zero.item() == 0
    assert x.any()
    assert x.requires_grad
    assert zero.requires_grad


def test_a_call_whose_signature_refuses_its_arguments_has_inputs() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # gives `optimizer.step` the signature of the unbound method
    descriptions = [input_.example.what for input_ in edge_inputs(Arguments(), optimizer.step, {})]
    assert any(description.startswith("closure = ") for description in descriptions), descriptions


def accept_no_argument() -> None:
    """Accept no argument."""


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [("argument 1", (3, 2), {"b": 4}), ("b", (1, 2), {"b": 3}), ("c", (1, 2), {"b": 4, "c": 3})],
)
def test_an_argument_that_the_signature_refuses_is_replaced(
    name: str, args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    arguments = Arguments(1, 2, b=4).with_argument(accept_no_argument, name, 3)
    assert (arguments.args, arguments.kwargs) == (args, kwargs)
