"""Verdicts on the front ends agree with running the front ends by hand, for functions of many kinds."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import random
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
import torch

from jupyter_graphbreak import Frontends, compare_frontends
from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak.experiments import frontends
from jupyter_graphbreak.experiments.frontends import FrontendExamination
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.report.frontends import Raised
from tests.support.sampling import sample_parameters

#: The module is imported dynamically because it has no type annotations.
CASES: dict[str, Any] = importlib.import_module("tests.programs.front_ends.many_kinds").CASES

# -- Running the front ends by hand.


class VerdictByHand(NamedTuple):
    outcome: str
    error: str | None
    graphs: int | None


def counting_backend() -> tuple[Callable[..., Any], list[int]]:
    graph_counter: list[int] = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
        graph_counter.append(1)
        return gm.forward

    return backend, graph_counter


def export(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, strict: bool) -> Any:
    class FunctionModule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = getattr(fn, "__self__", None)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

    module = fn if isinstance(fn, torch.nn.Module) else FunctionModule()
    return torch.export.export(module, args, kwargs, strict=strict).module()


def trace(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs:
        return torch.jit.trace(fn, example_kwarg_inputs={"x": args[0], **kwargs})
    return torch.jit.trace(fn, args)


def capture_by_hand(frontend: str, fn: Any, case: Any, backend: Any) -> Any:
    args, kwargs = copy_arguments(case.first, case.kwargs)
    match frontend:
        case "torch.jit.trace":
            return trace(fn, args, kwargs)
        case "torch.jit.script":
            return torch.jit.script(fn)
        case "torch.fx.symbolic_trace":
            return torch.fx.symbolic_trace(fn)
        case "torch.compile" | "torch.compile(fullgraph=True)":
            return torch.compile(fn, backend=backend, fullgraph="fullgraph" in frontend)
    return export(fn, args, kwargs, strict="strict" in frontend)


def compare_by_hand(frontend: str, case: Any) -> VerdictByHand:
    """Capture a function, run the result with both inputs, and compare it with eager mode, without this package."""
    torch._dynamo.reset()
    torch.nn.modules.module._global_buffer_registration_hooks.clear()  # a failed export in torch 2.9 leaves one
    backend, graph_counter = counting_backend()
    fn = case.make()
    initial = tensors_of(fn)
    random.seed(7)  # different from the seed of the calls
    try:
        program = capture_by_hand(frontend, fn, case, backend)
        restore(fn, initial)  # capturing may run the function
        actual = call_with_fixed_seeds(program, case.first, case.kwargs)
    except Exception as error:  # noqa: BLE001
        return VerdictByHand("raises", type(error).__name__, None)
    graphs = len(graph_counter) if "compile" in frontend else 1
    eager = case.make()
    is_wrong = not is_close(call_with_fixed_seeds(eager, case.first, case.kwargs), actual)
    refusal, expected = None, None
    with contextlib.suppress(Exception):
        expected = call_with_fixed_seeds(eager, case.second, case.kwargs)
    try:
        actual = call_with_fixed_seeds(program, case.second, case.kwargs)
        is_wrong = is_wrong or expected is None or not is_close(expected, actual)
    except Exception as error:  # noqa: BLE001
        refusal = type(error).__name__ if expected is not None else None
    if is_wrong:
        return VerdictByHand("silently wrong", None, graphs)
    return VerdictByHand("refuses" if refusal else "agrees", refusal, graphs)


def tensors_of(fn: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in fn.state_dict().items()} if isinstance(fn, torch.nn.Module) else {}


def restore(fn: Any, state: dict[str, torch.Tensor]) -> None:
    if state:
        fn.load_state_dict(state)


def copy_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def copy(value: Any) -> Any:
        return value.clone() if isinstance(value, torch.Tensor) else value

    return tuple(map(copy, args)), {key: copy(value) for key, value in kwargs.items()}


def call_with_fixed_seeds(program: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    random.seed(0)
    args_copy, copied_kwargs = copy_arguments(args, kwargs)
    value = (
        program(x=args_copy[0], **copied_kwargs)
        if isinstance(program, torch.jit.ScriptFunction) and copied_kwargs
        else program(*args_copy, **copied_kwargs)
    )
    if hasattr(value, "__next__"):
        value = list(value)
    return value, [tensor for tensor in args_copy if isinstance(tensor, torch.Tensor)]


def is_close(expected: Any, actual: Any) -> bool:
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True)
    except AssertionError:
        return False
    return True


FRONTENDS = [
    "torch.jit.trace",
    "torch.jit.script",
    "torch.fx.symbolic_trace",
    "torch.compile",
    "torch.compile(fullgraph=True)",
    "torch.export.export",
    "torch.export.export(strict=True)",
]


@pytest.fixture(autouse=True)
def _mute_output() -> Iterator[None]:
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", sample_parameters(sorted(CASES), 3))
def test_every_verdict_agrees_with_running_the_front_end_by_hand(name: str) -> None:
    case = CASES[name]
    verdicts = compare_frontends(case.make(), *case.first, also=[case.second], **case.kwargs)
    for frontend in FRONTENDS:
        expected = compare_by_hand(frontend, case)
        verdict = verdicts[frontend]
        agreeing_verdicts = {"captures", "breaks", "eager"}
        outcome = "agrees" if verdict.outcome in agreeing_verdicts else verdict.outcome
        error = verdict.raised.type if verdict.raised is not None else None
        assert (outcome, error, verdict.graphs) == (expected.outcome, expected.error, expected.graphs), (
            f"{frontend}: {verdict}"
        )
    assert verdicts["torch.compile"].breaks == case.breaks


@pytest.mark.exhaustive
def test_earlier_compilations_do_not_count_towards_the_recompile_limit() -> None:
    module_class = type(CASES["module_with_a_buffer"].make())
    compiled_modules: list[Any] = [torch.compile(module_class(), backend="eager") for _ in range(12)]
    for program in compiled_modules:
        program(torch.ones(3))
    torch._dynamo.utils.counters["mine"]["seen"] = 1
    counters = {name: dict(counts) for name, counts in torch._dynamo.utils.counters.items()}
    verdicts = compare_frontends(module_class(), torch.ones(3))
    assert (verdicts["torch.compile"].graphs, verdicts["torch.compile(fullgraph=True)"].graphs) == (1, 1)
    assert {name: dict(counts) for name, counts in torch._dynamo.utils.counters.items()} == counters


# -- Derived inputs and preserved state.


def outcomes(verdicts: Frontends) -> dict[str, str]:
    return {verdict.frontend: verdict.outcome for verdict in verdicts.verdicts}


def test_a_derived_input_exposes_a_wrong_trace() -> None:
    verdicts = compare_frontends(CASES["data_dependent_branch"].make(), torch.asarray([1, 2, 3]))
    assert outcomes(verdicts) == {
        "torch.jit.trace": "silently wrong",
        "torch.jit.script": "captures",
        "torch.fx.symbolic_trace": "raises",
        "torch.compile": "breaks",
        "torch.compile(fullgraph=True)": "raises",
        "torch.export.export": "raises",
        "torch.export.export(strict=True)": "raises",
    }
    trace = verdicts["torch.jit.trace"]
    assert trace.example is not None
    assert (trace.example.what, trace.example.values) == ("x negated", "x = tensor([-1, -2, -3])")
    assert trace.difference == "tensor([9, 8, 7]) instead of tensor([-11, -12, -13])"
    assert trace.warnings[0].startswith("TracerWarning: Converting a tensor to a Python boolean")
    assert (verdicts["torch.compile"].graphs, verdicts["torch.compile"].breaks) == (2, 1)
    assert verdicts.report is not None
    assert verdicts.report.summary.breaks == 1


@pytest.mark.parametrize(
    ("name", "derivation"),
    [
        pytest.param("loop_over_a_size", "size 4 instead of 3", marks=pytest.mark.exhaustive),
        ("branch_on_a_size", "size 5 instead of 2, random"),
        pytest.param("asserts_a_value", "x negated", marks=pytest.mark.exhaustive),
        pytest.param("while_loop", "x ten times as large", marks=pytest.mark.exhaustive),
        pytest.param("compares_two_tensors", "y negated", marks=pytest.mark.exhaustive),
    ],
)
def test_inputs_are_derived_until_one_exposes_the_trace(name: str, derivation: str) -> None:
    case = CASES[name]
    trace = compare_frontends(case.make(), *case.first)["torch.jit.trace"]
    assert trace.example is not None
    assert (trace.outcome, trace.example.what) == ("silently wrong", derivation)


def test_an_input_for_which_the_function_never_returns_is_skipped() -> None:
    verdicts = compare_frontends(CASES["while_loop"].make(), torch.tensor(3.0))
    assert verdicts.others
    assert not {"x negated", "x zero"} & {example.what for example in verdicts.others}


@pytest.mark.exhaustive
def test_a_program_for_one_size_is_a_capture_with_a_note() -> None:
    export = compare_frontends(CASES["plain"].make(), torch.ones(3))["torch.export.export"]
    assert (export.outcome, export.notes) == ("captures", ["refuses size 4 instead of 3: AssertionError"])


@pytest.mark.exhaustive
def test_if_a_call_changes_state_other_inputs_run_after_the_first() -> None:
    verdicts = compare_frontends(CASES["remembers_its_first_input"].make(), torch.ones(3))
    fx = verdicts["torch.fx.symbolic_trace"]
    assert fx.example is not None
    assert (fx.outcome, fx.example.what) == ("silently wrong", "x negated")
    assert verdicts.changes == ["seen"]
    assert "A call changes seen, so each further input ran after a call with the first input." in verdicts.to_text()


def test_a_recursive_function_calls_its_compiled_copy() -> None:
    def halve_until_below_two(x: torch.Tensor) -> torch.Tensor:
        return x if x < 2 else halve_until_below_two(x / 2)

    compiled = compare_frontends(halve_until_below_two, torch.tensor(8.0))["torch.compile"]
    assert (compiled.outcome, compiled.graphs) == ("breaks", 2)  # later calls find their graphs in the cache


@pytest.mark.exhaustive
def test_an_optimizer_works_on_copies() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    verdicts = compare_frontends(step, torch.ones(3))
    compiled = verdicts["torch.compile"]
    assert (compiled.outcome, compiled.deprecated) == ("breaks", False)
    assert verdicts.changes == ["optimizer", "weight"]
    assert torch.equal(weight, torch.ones(3))
    assert not optimizer.state


@pytest.mark.exhaustive
def test_a_note_lists_lost_side_effects() -> None:
    comparison = compare_frontends(CASES["prints"].make(), torch.ones(3))
    assert "drops what the function prints" in comparison["torch.jit.trace"].notes
    assert comparison["torch.compile"].notes == []
    verdicts = compare_frontends(CASES["list_argument_changed"].make(), torch.ones(3))
    assert "does not change seen as the function does" in verdicts["torch.fx.symbolic_trace"].notes


def test_a_program_with_equal_values_and_different_gradients_is_wrong() -> None:
    def detach_in_one_branch(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 1
        return x.detach() * 1

    trace = compare_frontends(detach_in_one_branch, torch.ones(3, requires_grad=True))["torch.jit.trace"]
    assert trace.outcome == "silently wrong"
    assert trace.difference == "makes the result require a gradient, but in the original it requires none"


@pytest.mark.exhaustive
def test_a_program_that_returns_a_copy_of_its_argument_is_noted() -> None:
    def return_argument(values: list[torch.Tensor]) -> list[torch.Tensor]:
        return values

    verdicts = compare_frontends(return_argument, [torch.ones(2)])
    assert verdicts["torch.compile"].notes == []
    script = verdicts["torch.jit.script"]
    assert script.outcome == "captures"
    assert "makes the result a separate object, but in the original it is the argument values" in script.notes


@pytest.mark.exhaustive
def test_numbers_drawn_during_capture_are_wrong_but_a_different_order_is_not() -> None:
    def noise(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(3)

    outcome_by_frontend = outcomes(compare_frontends(noise, torch.ones(3)))
    assert outcome_by_frontend["torch.fx.symbolic_trace"] == "silently wrong"
    assert outcome_by_frontend["torch.jit.trace"] == outcome_by_frontend["torch.compile"] == "captures"


def test_a_result_that_depends_on_the_time_is_compared_by_type_and_shape() -> None:
    def stamp(x: torch.Tensor) -> torch.Tensor:
        return x.double() * time.perf_counter_ns()

    compiled = compare_frontends(stamp, torch.ones(1))["torch.compile"]
    assert compiled.outcome == "breaks"
    assert any("only types and shapes" in note for note in compiled.notes)


def test_an_error_on_the_first_input_is_raised_to_the_caller() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        compare_frontends(lambda x: x / (1 // 0), torch.ones(1))
    assert caught.traceback[-1].name == "<lambda>"


def test_an_input_for_which_the_function_raises_is_named() -> None:
    def root(x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return x.sqrt()

    verdicts = compare_frontends(root, torch.ones(2), also=[-torch.ones(2)])
    assert verdicts["torch.jit.trace"].outcome == "silently wrong"
    assert "but eager code raises ValueError: negative" in str(verdicts["torch.jit.trace"].difference)
    assert verdicts["torch.compile"].breaks == 1
    assert "Graphs and breaks are counted with the first input." in verdicts.to_text()
    assert verdicts.others[0].raised == Raised("ValueError", "negative", "function")
    assert "The function itself raises ValueError with x = tensor([-1., -1.])." in verdicts.to_text()


class Unprintable(Exception):  # noqa: N818 - the report shows the name
    def __str__(self) -> str:
        raise RuntimeError("no message")


def test_hostile_errors_and_values_stay_text() -> None:
    def raise_hostile_errors(x: torch.Tensor, text: str) -> torch.Tensor:
        if torch.compiler.is_compiling():
            raise Unprintable
        if type(x) is not torch.Tensor:
            raise ValueError(f"{text}\x1b[31m")
        return x + 1

    verdicts = compare_frontends(raise_hostile_errors, torch.ones(2), "<script>alert(1)</script>")
    assert verdicts["torch.fx.symbolic_trace"].raised == Raised("ValueError", "Proxy(text)\x1b[31m", "capture")
    assert "<script>" not in verdicts.to_html()
    assert "\x1b" not in verdicts.to_text()
    assert "\x1b" not in verdicts.to_html()


def test_the_users_function_module_and_settings_do_not_change() -> None:
    module = CASES["module_in_training"].make()
    state_before = {name: value.clone() for name, value in module.state_dict().items()}
    argument = torch.ones(4, 3)
    random.seed(5)
    torch.manual_seed(5)
    states = (random.getstate(), torch.get_rng_state().tolist(), list(warnings.filters), torch.is_grad_enabled())
    names = set(module.__dict__)
    compare_frontends(module, argument)
    assert states == (
        random.getstate(),
        torch.get_rng_state().tolist(),
        list(warnings.filters),
        torch.is_grad_enabled(),
    )
    assert module.training
    assert set(module.__dict__) == names
    assert all(torch.equal(value, state_before[name]) for name, value in module.state_dict().items())
    assert torch.equal(argument, torch.ones(4, 3))


@pytest.mark.exhaustive
def test_earlier_compilations_stay_valid() -> None:
    backend, graph_counter = counting_backend()
    module = CASES["module_in_training"].make()
    compiled: Any = torch.compile(module, backend=backend)
    compiled(torch.ones(4, 3))
    verdicts = compare_frontends(module, torch.ones(4, 3))
    assert (verdicts["torch.compile"].graphs, verdicts["torch.compile(fullgraph=True)"].graphs) == (1, 1)
    compiled(torch.ones(4, 3))
    assert len(graph_counter) == 1


def test_copied_calls_share_the_unchanged_memory_of_their_arguments() -> None:
    def loss(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = net(x).sum()
        return result

    net, x = torch.nn.Linear(512, 512), torch.ones(1, 512)
    copied_call = frontends.copy_for_comparison(loss, Arguments(net, x), [])
    (storage_copy,), (inputs,) = copied_call.storage_copies, copied_call.inputs
    assert storage_copy.original() is net.weight
    assert inputs.args[0].weight.data_ptr() == storage_copy.storage.data_ptr()


def test_a_comparison_converts_to_json() -> None:
    verdicts = compare_frontends(CASES["dict_output"].make(), torch.ones(3))
    assert msgspec.convert(json.loads(json.dumps(verdicts.to_dict())), Frontends) == verdicts
    assert set(verdicts._repr_mimebundle_()) == {"text/plain", "text/html"}


@pytest.mark.parametrize("script", [torch.jit.script, lambda module: torch.jit.trace(module, torch.ones(3))])
def test_a_scripted_module_is_not_a_compiled_callable(script: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compiled_callable(script(torch.nn.Sequential(torch.nn.ReLU()))) is None


def test_a_call_without_enough_memory_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_graphbreak.experiments.trial.memory.available_memory", lambda _=None: 1000)
    verdicts = compare_frontends(torch.nn.Linear(8, 8), torch.ones(1, 8))
    assert verdicts.verdicts == []
    assert verdicts.report is not None
    assert "was not run again: its arguments and state take" in verdicts.report.diagnostics[0].message
    assert "was not run again" in verdicts.to_text()
    assert "was not run again" in verdicts.to_html()


@pytest.mark.parametrize("function", ["user_code_objects", "FrontendExamination.verdict", "example_of"])
def test_an_internal_error_is_noted(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    fail.__code__ = fail.__code__.replace(co_filename=frontends.__file__)  # it is then treated as an internal error
    monkeypatch.setattr(f"jupyter_graphbreak.experiments.frontends.{function}", fail)
    comparison = compare_frontends(lambda x: x + 1, torch.ones(2))
    assert not comparison.verdicts
    assert comparison.diagnostics
    assert all("(RuntimeError: broken)" in note.message for note in comparison.diagnostics)
    assert "RuntimeError: broken" in comparison.to_text()
    assert "RuntimeError: broken" in comparison.to_html()


@pytest.mark.exhaustive
def test_a_failed_examination_of_one_front_end_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    run_first_input = FrontendExamination._run_first_input

    def fail_once(self: FrontendExamination, *args: Any) -> Any:
        if self.name == "torch.fx.symbolic_trace":
            raise RuntimeError("broken")
        return run_first_input(self, *args)

    full_comparison = compare_frontends(lambda x: x + 1, torch.ones(2))
    monkeypatch.setattr(FrontendExamination, "_run_first_input", fail_once)
    comparison = compare_frontends(lambda x: x + 1, torch.ones(2))
    expected = [
        verdict.frontend for verdict in full_comparison.verdicts if verdict.frontend != "torch.fx.symbolic_trace"
    ]
    assert [verdict.frontend for verdict in comparison.verdicts] == expected
    assert len(expected) == len(full_comparison.verdicts) - 1
    (note,) = comparison.diagnostics
    assert "while examining torch.fx.symbolic_trace (RuntimeError: broken)" in note.message


def test_an_error_of_a_pytorch_function_is_raised() -> None:
    with pytest.raises(RuntimeError, match="size of tensor"):
        compare_frontends(torch.add, torch.ones(2), torch.ones(3))
