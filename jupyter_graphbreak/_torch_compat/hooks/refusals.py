"""Hooks on code that Dynamo refuses to compile: generators, functions at a recompile limit, skipped frames."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.hooks.compiling_calls import fullgraph_site
from jupyter_graphbreak._torch_compat.hooks.observer import observe_calls
from jupyter_graphbreak._torch_compat.hooks.remembered_skips import remember_skip_reason
from jupyter_graphbreak._torch_compat.hooks.scopes import is_scope_wrapper
from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import (
    identity,
    program_stack,
    registry_entry,
    wrapped_code,
)
from jupyter_graphbreak.records.additions import FrameGivenUp, FrameRefused, FrameSkipped, UnrecordedSkips

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer, WatchedCall

_CONVERT_FRAME = "torch._dynamo.convert_frame"


def watch_generators(observer: Observer) -> AbstractContextManager[None]:
    """Record the generators that Dynamo refused to compile."""
    module = importlib.import_module(_CONVERT_FRAME)

    def observation(call: WatchedCall) -> FrameRefused | None:
        if not call.result:
            return None
        convert = observer.local_variable(call.caller, "self")  # a parameter of ConvertFrameAssert.__call__
        one_graph = getattr(convert, "_one_graph", None)
        setting = getattr(getattr(convert, "_box", None), "error_on_graph_break", None)
        return FrameRefused(
            **identity(call.argument("code")),
            reason="generator",
            registry=registry_entry("Attempt to trace generator"),
            above=program_stack(),
            fullgraph=one_graph,
            fullgraph_site=fullgraph_site(observer) if one_graph else None,
            error_on_graph_break=setting,
            scopes=observer.scopes.open_scopes(None),
            raised=bool(one_graph) or bool(setting),
        )

    return observe_calls(module, "is_generator", observer, after=observation)


def watch_limits(observer: Observer) -> AbstractContextManager[None]:
    """Record the functions that Dynamo does not recompile because of a limit."""
    module = importlib.import_module(_CONVERT_FRAME)

    def observation(call: WatchedCall) -> FrameRefused | None:
        is_exceeded, limit = call.result
        return _limit_refusal(observer, call.caller, limit) if is_exceeded else None  # the caller is _compile

    return observe_calls(module, "exceeds_recompile_limit", observer, after=observation)


def _limit_refusal(observer: Observer, caller: FrameType, limit: str) -> FrameRefused:
    config = importlib.import_module("torch._dynamo.config")
    code = observer.local_variable(caller, "code")
    one_graph = observer.local_variable(caller, "one_graph")
    wrapped = None
    if code is not None and is_scope_wrapper(code):
        cells = dict(zip(code.co_freevars, observer.local_variable(caller, "closure") or (), strict=False))
        wrapped = wrapped_code(cells["func"].cell_contents) if "func" in cells else None
    return FrameRefused(
        **(identity(code) if code is not None else {}),
        wrapped=wrapped,
        reason="recompile limit",
        registry=registry_entry("Dynamo recompile limit exceeded"),
        limit=limit,
        limit_value=getattr(config, limit, None),
        above=program_stack(),
        fullgraph=one_graph,
        fullgraph_site=fullgraph_site(observer) if one_graph else None,
        scopes=observer.scopes.open_scopes(None),
        raised=bool(one_graph) or bool(config.fail_on_recompile_limit_hit),
    )


def watch_abandoned_frames(observer: Observer) -> AbstractContextManager[None]:
    """Record the frames that ``torch._dynamo.skip_frame()`` ended without an event, before torch 2.11."""
    module = importlib.import_module(_CONVERT_FRAME)
    skip_frame = importlib.import_module("torch._dynamo.exc").SkipFrame

    def observation(call: WatchedCall) -> FrameGivenUp | None:
        # Frames with nothing to capture end with the same exception.
        is_skipped = isinstance(call.error, skip_frame) and "skip_frame()" in str(call.error)
        return FrameGivenUp(message=str(call.error)) if is_skipped else None

    return observe_calls(module, "compile_frame", observer, on_error=observation)


#: The checks that CatchErrorsWrapper makes before it compiles a frame: the first in torch 2.9 and 2.10, the others in
#: 2.11 and 2.12.
_MODE_CHECKS = (
    "should_skip_due_to_torch_dispatch_mode",
    "any_torch_dispatch_mode_on_stack",
    "is_in_any_mode_without_ignore_compile_internals",
)


@contextlib.contextmanager
def watch_skips(observer: Observer) -> Iterator[None]:
    """Record which frames Dynamo skips, and why."""
    module = importlib.import_module(_CONVERT_FRAME)
    wrapper = module.CatchErrorsWrapper

    def observation(call: WatchedCall) -> FrameSkipped | None:
        result, frame = call.argument("result"), call.argument("frame")
        reason = result.skip_reason
        if reason is None or result.guarded_code is not None:
            return None
        if result.apply_to_code:  # false since torch 2.14 if a mode is on: Dynamo tries again in the next call
            remember_skip_reason(frame.f_code, reason)
        return FrameSkipped(
            **identity(frame.f_code),
            reason=reason,
            above=program_stack(),
            is_compiled_in_place=_is_compiled_in_place(frame),
        )

    if hasattr(wrapper, "_handle_skip"):  # torch >= 2.13
        with observe_calls(wrapper, "_handle_skip", observer, before=observation):
            yield
        return
    checks = [name for name in _MODE_CHECKS if hasattr(module, name)]
    if _MODE_CHECKS[0] in checks:
        del checks[1:]  # the first check calls the others
    with contextlib.ExitStack() as stack:
        for name in checks:
            stack.enter_context(observe_calls(module, name, observer, after=_frame_skipped_for_mode))
        yield
    unrecorded_skips = UnrecordedSkips(
        what=None if checks else "frames skipped because a TorchDispatchMode was on (torch < 2.13)"
    )
    observer.observe("_handle_skip", lambda: unrecorded_skips)


def _is_compiled_in_place(frame: Any) -> bool:
    """Return whether a frame is the ``forward`` of a module that ``module.compile()`` has compiled."""
    code = frame.f_code
    if code.co_name != "forward" or not code.co_argcount:
        return False
    module = frame.f_locals.get(code.co_varnames[0])
    return isinstance(module, torch.nn.Module) and module._compiled_call_impl is not None


def _frame_skipped_for_mode(call: WatchedCall) -> FrameSkipped | None:
    """Return the frame if Dynamo skips it only because of the result of the check, else ``None``."""
    if not call.result or call.caller.f_code.co_qualname != "CatchErrorsWrapper.__call__":
        return None
    variables = call.caller.f_locals
    backend = getattr(variables["self"], "_torchdynamo_orig_backend", None)
    if (
        variables.get("has_started_execution")
        or variables.get("is_skipfile")
        or importlib.import_module("torch._dynamo.config").disable
        or getattr(backend, "_export", False)
    ):
        return None
    code = variables["frame"].f_code
    if code.co_name == "__torch_dispatch__":
        return None  # the mode's own handler, which torch before 2.11 also skips
    reason = "non-infra torch dispatch mode present"
    remember_skip_reason(code, reason)
    return FrameSkipped(**identity(code), reason=reason, above=program_stack())
