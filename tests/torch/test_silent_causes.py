"""Causes that PyTorch does not report: remembered skips, functions compiled twice, and saved compiled modules."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.compiled import state_of_known_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.results import Report

ONES = torch.ones(3)


@pytest.fixture(autouse=True)
def reset_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


#: Whether a function that was called under a mode is skipped in all later calls. Since torch 2.14, Dynamo skips the
#: function only in that call.
MODES_ARE_REMEMBERED = torch.__version__ < "2.14"


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.layer(x) * 2
        return scaled


class LoopWithBreaks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            torch._dynamo.graph_break()
        return x + 1


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def break_in_loop(x: torch.Tensor) -> torch.Tensor:
    """Break in a loop, after which Dynamo always skips this function."""
    for _ in range(2):
        torch._dynamo.graph_break()
    return x + 1


def capture_call(function: Callable[[], object]) -> Report:
    with jupyter_graphbreak.capture() as run:
        function()
    return run.report


def skip_reasons(report: Report) -> list[tuple[str, str, bool]]:
    """Return each eager function, the kind of its reason, and whether the reason names a mode as the cause."""
    return [(skipped.function, skipped.kind, "in which a Torch" in skipped.reason) for skipped in report.skipped]


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_skip_because_of_a_mode_is_reported(*, is_watched: bool) -> None:
    compiled = torch.compile(double, backend="eager")

    def call_under_mode() -> None:
        with FlopCounterMode(display=False):
            compiled(ONES)

    if is_watched:
        assert [(skipped.function, skipped.kind) for skipped in capture_call(call_under_mode).skipped] == [
            ("double", "dispatch mode")
        ]
    else:
        call_under_mode()
    report = capture_call(lambda: compiled(ONES))
    if MODES_ARE_REMEMBERED:
        assert skip_reasons(report) == [("double", "remembered", is_watched)]
        assert report.graphs == []
        assert "torch._dynamo.reset()" in (report.skipped[0].way_out or "")
        assert "double ran eagerly" in report.to_text()
        torch._dynamo.reset()
        report = capture_call(lambda: compiled(ONES))
    assert report.skipped == []
    assert len(report.graphs) == 1


def test_a_mode_is_named_only_if_it_is_the_cause() -> None:
    compiled = torch.compile(break_in_loop, backend="eager")

    def call_under_mode() -> None:
        with FlopCounterMode(display=False):
            compiled(ONES)

    capture_call(call_under_mode)
    compiled(ONES)  # an unobserved call: unless the mode is remembered, Dynamo compiles here, and gives up
    assert skip_reasons(capture_call(lambda: compiled(ONES))) == [("break_in_loop", "remembered", MODES_ARE_REMEMBERED)]
    torch._dynamo.reset()
    compiled(ONES)
    assert skip_reasons(capture_call(lambda: compiled(ONES))) == [("break_in_loop", "remembered", False)]


def test_a_skip_while_an_exception_is_handled_is_reported() -> None:
    compiled = torch.compile(break_in_loop, backend="eager")
    compiled(ONES)
    try:
        raise KeyError("handled")  # noqa: TRY301 - the compiled function is called while it is handled
    except KeyError:
        report = capture_call(lambda: compiled(ONES))
    assert skip_reasons(report) == [("break_in_loop", "remembered", False)]


def test_a_skipped_function_with_the_name_of_dynamos_wrapper_is_reported() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            torch._dynamo.graph_break()
        return x + 1

    compiled = torch.compile(inner, backend="eager")
    compiled(ONES)
    assert skip_reasons(capture_call(lambda: compiled(ONES))) == [("inner", "remembered", False)]


def test_a_module_that_runs_eagerly_because_of_an_earlier_call_is_reported() -> None:
    compiled = torch.compile(LoopWithBreaks(), backend="eager")
    compiled(ONES)
    assert ("forward", "remembered", False) in skip_reasons(capture_call(lambda: compiled(ONES)))


def test_a_function_that_runs_eagerly_because_of_an_earlier_break_is_reported() -> None:
    compiled = torch.compile(break_in_loop, backend="eager")
    compiled(ONES)
    assert skip_reasons(capture_call(lambda: compiled(ONES))) == [("break_in_loop", "remembered", False)]


def test_reused_compiled_code_is_not_a_skip() -> None:
    compiled = torch.compile(double, backend="eager")
    compiled(ONES)
    assert capture_call(lambda: compiled(ONES)).skipped == []
    assert capture_call(lambda: [compiled(torch.ones(4)), compiled(ONES)]).skipped == []


def test_a_module_that_compiles_itself_is_not_a_skip() -> None:
    model = Scale()
    model.compile(backend="eager")
    model(ONES)
    assert capture_call(lambda: model(ONES)).skipped == []
    looping_module = LoopWithBreaks()
    looping_module.compile(backend="eager")
    looping_module(ONES)
    assert ("forward", "remembered", False) in skip_reasons(capture_call(lambda: looping_module(ONES)))


def test_disabled_compilation_is_not_a_skip() -> None:
    compiled = torch.compile(break_in_loop, backend="eager")
    with torch.compiler.set_stance("force_eager"):
        assert capture_call(lambda: compiled(ONES)).skipped == []
    compiled(ONES)
    with torch.compiler.set_stance("force_eager"):
        assert capture_call(lambda: compiled(ONES)).skipped == []


def test_a_call_that_raises_is_not_a_skip() -> None:
    compiled: Callable[..., object] = torch.compile(break_in_loop, backend="eager")
    compiled(ONES)
    with jupyter_graphbreak.capture() as run, pytest.raises(TypeError):
        compiled()
    assert run.report.skipped == []


def test_entering_compiled_code_is_hooked_only_while_a_function_may_be_skipped() -> None:
    skipped_function, compiled_function = (
        torch.compile(function, backend="eager") for function in (break_in_loop, double)
    )
    compiled_function(ONES)
    original, hook_states = torch._dynamo.eval_frame._maybe_set_eval_frame, []

    def is_unhooked() -> bool:  # a hook would take time on every call
        return torch._dynamo.eval_frame._maybe_set_eval_frame is original

    with jupyter_graphbreak.capture():
        hook_states.append(not is_unhooked())
        skipped_function(ONES)  # begins and is skipped while this run watches
        compiled_function(ONES)
        hook_states.append(not is_unhooked())
    with jupyter_graphbreak.capture() as run:
        hook_states.append(not is_unhooked())
        compiled_function(ONES)
        hook_states.append(not is_unhooked())
        skipped_function(ONES)
        compiled_function(ONES)
        hook_states.append(not is_unhooked())
    assert hook_states == [False, False, True, True, False]
    assert is_unhooked()
    assert skip_reasons(run.report) == [("break_in_loop", "remembered", False)]


def test_a_skip_of_a_function_that_was_compiled_as_part_of_its_caller_is_reported() -> None:
    def outer(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return break_in_loop(x)

    torch.compile(outer, backend="eager")(ONES)
    with jupyter_graphbreak.capture() as run:
        compiled = torch.compile(break_in_loop, backend="eager")
        compiled(ONES)
    assert skip_reasons(run.report) == [("break_in_loop", "remembered", False)]


def test_a_skip_that_began_on_a_different_thread_is_reported() -> None:
    compiled = torch.compile(break_in_loop, backend="eager")
    is_watching, has_run = threading.Event(), threading.Event()

    def work() -> None:  # starts before the run, so the run does not watch it
        is_watching.wait()
        compiled(ONES)
        has_run.set()

    thread = threading.Thread(target=work)
    thread.start()
    with jupyter_graphbreak.capture() as run:
        is_watching.set()
        has_run.wait()
        compiled(ONES)
    thread.join()
    assert skip_reasons(run.report) == [("break_in_loop", "remembered", False)]


def notes(function: Callable[[], object]) -> list[str]:
    report = capture_call(function)
    return [note.message for note in report.diagnostics if "torch.compile was applied" in note.message]


def test_a_module_that_is_compiled_twice_is_a_function() -> None:
    compiled_once = torch.compile(Scale(), backend="eager")
    compiled_twice: list[object] = []
    (note,) = notes(lambda: compiled_twice.append(torch.compile(compiled_once, backend="eager")))
    assert not hasattr(compiled_twice[0], "state_dict")
    assert "the compiled module Scale" in note
    assert "test_silent_causes.py line" in note
    assert "without state_dict" in note


def test_a_function_that_is_compiled_twice_has_the_outer_options() -> None:
    used_backends: list[str] = []

    def backend(name: str) -> Callable[..., object]:
        def capture(graph: torch.fx.GraphModule, _: object) -> object:
            used_backends.append(name)
            return graph.forward

        return capture

    inner = torch.compile(double, backend=backend("inner"))
    (note,) = notes(lambda: torch.compile(inner, backend=backend("outer"))(ONES))
    assert used_backends == ["outer"]
    assert "double, which is compiled already" in note
    assert "options of the outer call" in note


def test_a_module_that_compiles_itself_keeps_its_options() -> None:
    used_backends: list[str] = []

    def backend(name: str) -> Callable[..., object]:
        def capture(graph: torch.fx.GraphModule, _: object) -> object:
            used_backends.append(name)
            return graph.forward

        return capture

    model = Scale()
    model.compile(backend=backend("inner"))
    (note,) = notes(lambda: torch.compile(model, backend=backend("outer"))(ONES))
    assert used_backends == ["inner"]
    assert "options of the inner call" in note


def test_compiling_once_has_no_note() -> None:
    disabled: Callable[..., object] = torch.compiler.disable(double)
    assert (
        notes(lambda: [torch.compile(double, backend="eager")(ONES), torch.compile(Scale(), backend="eager")(ONES)])
        == []
    )
    assert notes(lambda: torch.compile(disabled, backend="eager")(ONES)) == []


def test_no_reference_to_a_code_object_outlives_a_reset_of_dynamo() -> None:
    """The callback of Dynamo's reference to a code object fails after a reset, which Python would print."""
    code = compile("1", "here", "eval")
    torch._dynamo.convert_frame.input_codes.add(code)
    mark = state_of_known_code(code)
    assert mark is not None
    assert mark() is not None
    torch._dynamo.reset()
    assert mark() is None
    assert state_of_known_code(code) is None


def test_saving_a_compiled_module_is_noted_once_for_each_line() -> None:
    compiled: Any = torch.compile(Scale(), backend="eager")
    sequential = torch.nn.Sequential(compiled)

    def save(value: object) -> None:
        torch.save({"model": value, "step": 3}, io.BytesIO())

    def work() -> None:
        for _ in range(2):
            save(compiled.state_dict())
        torch.save(sequential.state_dict(), io.BytesIO())
        torch.save(compiled._orig_mod.state_dict(), io.BytesIO())
        copy.deepcopy(compiled)
        pickle.dumps(compiled)

    report = capture_call(work)
    messages = [note.message for note in report.diagnostics if "`_orig_mod.`" in note.message]
    assert len(messages) == 3
    assert all(note.startswith("test_silent_causes.py line ") for note in messages)
    assert "`compiled._orig_mod.state_dict()`" in messages[0]
    assert "graphbreak checkpoint" in messages[0]
    assert "part.compile()" in messages[1]
    assert "pickles a compiled module" in messages[2]


@pytest.mark.skipif(
    torch.__version__ < "2.13" or torch.__version__ >= "2.15",
    reason="Dynamo reports the frames that it skips since torch 2.13, and torch 2.15 compiles these layers",
)
def test_a_layer_of_pytorch_that_is_compiled_in_place_is_named() -> None:
    layer = torch.nn.Linear(3, 3)
    layer.compile(backend="eager")
    for _ in range(2):  # Dynamo remembers the first call
        with jupyter_graphbreak.capture() as run:
            layer(ONES)
        (skipped,) = run.report.skipped
        assert (skipped.function, skipped.kind) == ("Linear.forward", "marked")
        assert skipped.way_out == "use `torch.compile(layer)` instead of `layer.compile()`"
    compiled = torch.compile(layer, backend="eager")
    with jupyter_graphbreak.capture() as run:
        compiled(ONES)
    assert (run.report.skipped, run.report.summary.graphs) == ([], 1)


class NumberedLayer(torch.nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.number


def test_own_layers_that_are_compiled_in_place_reach_the_limit_as_any_other_code() -> None:
    layers = [NumberedLayer(number) for number in range(2, 6)]
    for layer in layers:
        layer.compile(backend="eager")
    with torch._dynamo.config.patch(recompile_limit=2), jupyter_graphbreak.capture() as run:
        for layer in [*layers, *layers]:
            layer(ONES)
    assert [skipped.kind for skipped in run.report.skipped] == ["recompile limit"]
