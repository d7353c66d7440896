"""If a hook does not find a PyTorch variable, the report notes this once. Nothing else changes."""

from __future__ import annotations

import traceback
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo import convert_frame

from jupyter_graphbreak._torch_compat.hooks.compilation import watch_failures, watch_starts, wrap_log_graph_break
from jupyter_graphbreak._torch_compat.hooks.observer import Observer, WatchedCall, wrap_with_hooks
from jupyter_graphbreak._torch_compat.hooks.refusals import watch_generators, watch_limits
from jupyter_graphbreak.records.additions import Addition, BreakLogged, FrameStarted, Note, WatchFailed


@pytest.fixture
def additions() -> list[Addition]:
    return []


@pytest.fixture
def observer(additions: list[Addition]) -> Observer:
    def emit(addition: Addition) -> None:
        additions.append(addition)

    return Observer(emit, lambda _: None)


def notes(additions: list[Addition]) -> list[str]:
    assert not [addition for addition in additions if isinstance(addition, WatchFailed)]
    return [addition.message for addition in additions if isinstance(addition, Note)]


def frame(function: str, **variables: object) -> Any:
    return SimpleNamespace(f_code=SimpleNamespace(co_name=function), f_locals=variables)


def test_an_existing_variable_is_read(observer: Observer, additions: list[Addition]) -> None:
    assert observer.local_variable(frame("_compile", one_graph=False), "one_graph") is False
    assert observer.local_variable(frame("_compile", one_graph=None), "one_graph") is None
    assert additions == []


def test_a_missing_variable_is_noted_once(observer: Observer, additions: list[Addition]) -> None:
    for _ in range(3):
        assert observer.local_variable(frame("_compile", full=True), "one_graph") is None
    assert observer.local_variable(frame("compile_wrapper"), "fn") is None
    assert observer.local_variable(None, "fn") is None
    assert notes(additions) == [
        "This PyTorch has no variable `one_graph` in `_compile`; the report lacks that detail.",
        "This PyTorch has no variable `fn` in `compile_wrapper`; the report lacks that detail.",
        "This PyTorch has no variable `fn` in `a function`; the report lacks that detail.",
    ]


@pytest.mark.parametrize("observe_call", [None, lambda _: None], ids=["not observed", "observed"])
def test_a_hook_is_in_no_traceback(observer: Observer, observe_call: Any) -> None:
    def raise_value_error(number: int) -> None:
        raise ValueError(number) from KeyError("cause")

    def traceback_of(function: Any, *arguments: Any) -> list[tuple[str, int | None]]:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - both raise the same error
            function(*arguments)
        return [(entry.name, entry.lineno) for entry in traceback.extract_tb(caught.value.__traceback__)]

    for function, arguments in ((raise_value_error, (1,)), (raise_value_error, ()), (int, ("x",))):
        assert traceback_of(wrap_with_hooks(function, observer, on_error=observe_call), *arguments) == traceback_of(
            function, *arguments
        )


def test_a_missing_variable_does_not_lose_the_start_of_a_frame(observer: Observer, additions: list[Addition]) -> None:
    def renamed_compile() -> None:
        convert_frame.log_dynamo_start(renamed_compile.__code__)

    with watch_starts(observer):
        renamed_compile()
        renamed_compile()
    assert [event.name for event in additions if isinstance(event, FrameStarted)] == ["renamed_compile"] * 2
    assert notes(additions) == [
        f"This PyTorch has no variable `{name}` in `renamed_compile`; the report lacks that detail."
        for name in ("one_graph", "locals")
    ]


def test_a_missing_variable_does_not_lose_a_failure(observer: Observer, additions: list[Addition]) -> None:
    def renamed_compile() -> None:
        convert_frame.exception_handler(ValueError("of the test"), renamed_compile.__code__)

    with watch_failures(observer):
        renamed_compile()
    assert notes(additions) == [
        "This PyTorch has no variable `one_graph` in `renamed_compile`; the report lacks that detail."
    ]


def test_a_missing_variable_of_a_refusal_is_noted(observer: Observer, additions: list[Addition]) -> None:
    def refuse() -> None:
        vars(convert_frame)["is_generator"]((lambda: (yield)).__code__)

    with watch_generators(observer), watch_limits(observer):
        refuse()
    assert notes(additions) == ["This PyTorch has no variable `self` in `refuse`; the report lacks that detail."]


def test_a_break_without_a_tracer_is_noted(observer: Observer, additions: list[Addition]) -> None:
    """In torch before 2.10, the tracer is a variable of the function that logs the break."""
    calls: list[object] = []

    def log_graph_break(code_options: object, reason: str = "", user_stack: object = None) -> None:
        calls.append((code_options, reason, user_stack))

    hook = wrap_log_graph_break(log_graph_break, observer)

    def renamed_handler() -> None:
        hook({}, reason="a reason", user_stack=[])

    class Tracer:
        error_on_graph_break = True
        one_graph = False

        def handler(self) -> None:
            hook({}, reason="a reason", user_stack=[])

    Tracer().handler()
    assert notes(additions) == []
    renamed_handler()
    assert notes(additions) == [
        "This PyTorch has no variable `self` in `renamed_handler`; the report lacks that detail."
    ]
    seen_breaks = [addition for addition in additions if isinstance(addition, BreakLogged)]
    assert [event.error_on_graph_break for event in seen_breaks] == [True, None]
    assert len(calls) == 2


def test_a_run_with_this_torch_has_all_variables() -> None:
    from jupyter_graphbreak.recording import recorder

    def break_once(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    torch._dynamo.reset()
    with recorder.record() as recording:
        torch.compile(break_once, backend="eager")(torch.ones(2))
    messages = [record.data["message"] for record in recording.records if record.kind == Note.kind]
    assert not [message for message in messages if "has no variable" in message]


@pytest.mark.parametrize(("owner", "name"), [(WatchedCall, "__init__"), (Observer, "observe")])
def test_an_internal_error_of_a_hook_does_not_change_the_call(
    observer: Observer, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("an internal error")

    def divide(number: int) -> float:
        return 1 / number

    monkeypatch.setattr(owner, name, fail)

    def observe_call(_: WatchedCall) -> None:
        return None

    hooked_divide = wrap_with_hooks(divide, observer, before=observe_call, after=observe_call, on_error=observe_call)
    assert hooked_divide(2) == 0.5
    with pytest.raises(ZeroDivisionError):
        hooked_divide(0)
