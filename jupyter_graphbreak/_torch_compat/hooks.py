"""Watch Dynamo at work: hooks on what it calls, each with a feature test."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import has_cached_code
from jupyter_graphbreak._torch_compat.frames import (
    code_data,
    entries,
    exception,
    line_at,
    outward,
    stack_above,
    tracer_state,
    tracing_stack,
    with_positions,
)
from jupyter_graphbreak._torch_compat.patching import Emit, Observe, guarded, patched
from jupyter_graphbreak._torch_compat.scopes import (
    SCOPES,
    fullgraph_site,
    is_wrapper,
    watch_fullgraph,
    watch_scopes,
    wrapped_code,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

_CONVERT_FRAME = "torch._dynamo.convert_frame"
_SYMBOLIC_CONVERT = "torch._dynamo.symbolic_convert"


@contextlib.contextmanager
def watch(emit: Emit, spent: Callable[[float], None]) -> Iterator[list[str]]:
    """Send what Dynamo does to ``emit`` while the context is open.

    Parameters
    ----------
    emit : Emit
        Called under no lock, from the thread that compiles. An exception in it never reaches PyTorch.
    spent : callable
        Told the seconds that each observation took.

    Yields
    ------
    list of str
        A sentence for each hook that this release of PyTorch does not support.
    """
    missing: list[str] = []
    with contextlib.ExitStack() as stack:
        hooks = (
            watch_scopes, watch_fullgraph, _watch_starts, _watch_breaks, _watch_failures, _watch_resumes,
            _watch_graphs, _watch_refusals,
        )  # fmt: skip
        for hook in hooks:
            try:
                stack.enter_context(hook(guarded(emit, spent)))
            except (AttributeError, ImportError) as error:
                missing.append(f"This torch does not let us do this: {(hook.__doc__ or '').rstrip('.')} ({error}).")
        yield missing


@contextlib.contextmanager
def _watch_starts(observe: Observe) -> Iterator[None]:
    """Tell who calls a frame, and which resume function it is."""
    module = importlib.import_module(_CONVERT_FRAME)
    original = module.log_dynamo_start

    @functools.wraps(original)
    def log_dynamo_start(code: CodeType, skip: int = 0) -> Any:
        SCOPES.begin_trace()
        one_graph = sys._getframe(1).f_locals.get("one_graph")  # of _compile

        def look() -> dict[str, Any]:
            site = fullgraph_site() if one_graph else None
            return {**code_data(code), "stack": stack_above(), "fullgraph_site": site}

        observe("graphbreak_start", look)
        # One more frame to leave out of the stack that the original takes.
        return original(code, skip + 1)

    with patched(module, "log_dynamo_start", log_dynamo_start):
        yield


@contextlib.contextmanager
def _watch_breaks(observe: Observe) -> Iterator[None]:
    """Tell the exact expression of a break, and the settings in force at it."""
    module = importlib.import_module(_SYMBOLIC_CONVERT)
    if not hasattr(module.InstructionTranslatorBase, "log_graph_break"):  # torch < 2.11: a function without a tracer
        original_function = module.log_graph_break

        @functools.wraps(original_function)
        def log_function(code_options: Any, *args: Any, **kwargs: Any) -> Any:
            user_stack = (
                inspect.signature(original_function).bind(code_options, *args, **kwargs).arguments.get("user_stack")
            )
            caller = sys._getframe(1)
            tracer = next((f.f_locals["self"] for f in outward(caller, 3) if "self" in f.f_locals), None)

            def look() -> dict[str, Any]:
                stack = entries(user_stack if user_stack is not None else tracing_stack())
                return {
                    **tracer_state(tracer),
                    "stack": with_positions(stack, tracer),
                    "above": stack_above(),
                    "scopes": SCOPES.chain(tracer),
                }

            observe("graphbreak_break", look)
            return original_function(code_options, *args, **kwargs)

        with patched(module, "log_graph_break", log_function):
            yield
        return

    original = module.InstructionTranslatorBase.log_graph_break

    @functools.wraps(original)
    def log_graph_break(self: Any, code_options: Any, reason: str, exc: Any) -> Any:
        def look() -> dict[str, Any] | None:
            if getattr(exc, "logged", False):  # the original returns at once, too
                return None
            stack = getattr(exc, "real_stack", None)
            return {
                **exception(exc),
                **tracer_state(self),
                "stack": with_positions(entries(stack if stack is not None else tracing_stack()), self),
                "above": stack_above(),
                "scopes": SCOPES.chain(self),
            }

        observe("graphbreak_break", look)
        return original(self, code_options, reason, exc)

    with patched(module.InstructionTranslatorBase, "log_graph_break", log_graph_break):
        yield


@contextlib.contextmanager
def _watch_failures(observe: Observe) -> Iterator[None]:
    """Tell the place of an error that no break event tells of, and whether it went up to the user."""
    module = importlib.import_module(_CONVERT_FRAME)
    original = module.exception_handler

    @functools.wraps(original)
    def exception_handler(e: Exception, *args: Any, **kwargs: Any) -> Any:
        one_graph = sys._getframe(1).f_locals.get("one_graph")  # of _compile

        def look() -> dict[str, Any]:
            exc = importlib.import_module("torch._dynamo.exc")
            tracer = getattr(e, "_torch_dynamo_tracer_output", None)
            setting = getattr(tracer, "error_on_graph_break", None)
            if setting is None:
                setting = _error_on_graph_break()
            hard = tuple(
                getattr(exc, name)
                for name in ("UncapturedHigherOrderOpError", "ResumePrologueTracingError")
                if hasattr(exc, name)
            )
            soft = isinstance(e, (exc.Unsupported, exc.UserError))
            suppressed = bool(importlib.import_module("torch._dynamo.config").suppress_errors)
            raised = bool(one_graph) or bool(setting) or isinstance(e, hard) or not (soft or suppressed)
            return {
                **exception(e),
                "message": str(e),
                "stack": entries(getattr(e, "real_stack", None)),
                "above": stack_above(),
                "error_on_graph_break": setting,
                "fullgraph": one_graph,
                "fullgraph_site": fullgraph_site() if one_graph else None,
                "scopes": SCOPES.last_chain(),
                "raised": raised,
            }

        observe("graphbreak_failure", look)
        return original(e, *args, **kwargs)

    with patched(module, "exception_handler", exception_handler):
        yield


@contextlib.contextmanager
def _watch_resumes(observe: Observe) -> Iterator[None]:
    """Tell which break made a resume function, the line at which it goes on, and whether it is from before."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache
    original = inspect.getattr_static(cache, "lookup")
    known = cache.cache
    parameters = list(inspect.signature(cache.generate).parameters)
    at = parameters.index("resume_offset") if "resume_offset" in parameters else None

    def lookup(cls: Any, code: CodeType, *args: Any) -> Any:
        earlier = list(known.get(code, {}).values())
        made = original.__func__(cls, code, *args)

        def look() -> dict[str, Any]:
            resume = made if hasattr(made, "co_name") else made[0]  # some releases pair it with its name
            offset = args[at - 1] if at is not None else None
            return {
                **code_data(resume),
                "of": code_data(code),
                "line": line_at(code, offset),
                "new": not any(each is made for each in earlier),
                "compiled": has_cached_code(resume),
            }

        observe("graphbreak_resume", look)
        return made

    with patched(cache, "lookup", classmethod(functools.wraps(original.__func__)(lookup))):
        yield


@contextlib.contextmanager
def _watch_graphs(observe: Observe) -> Iterator[None]:
    """Tell the call stack of each operation of a graph."""
    graph_type = importlib.import_module("torch._dynamo.output_graph").OutputGraph
    original = graph_type.call_user_compiler

    @functools.wraps(original)
    def call_user_compiler(self: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
        def look() -> dict[str, Any]:
            stacks: dict[str, int] = {}
            ops: dict[str, int] = {}
            for node in gm.graph.nodes:
                trace = node.stack_trace
                if trace and node.op.startswith("call"):
                    ops[node.name] = stacks.setdefault(trace, len(stacks))
            reason = getattr(getattr(gm, "compile_subgraph_reason", None), "reason", None)
            return {"stacks": list(stacks), "ops": ops, "reason": reason}

        observe("graphbreak_graph", look)
        return original(self, gm, *args, **kwargs)

    with patched(graph_type, "call_user_compiler", call_user_compiler):
        yield


@contextlib.contextmanager
def _watch_refusals(observe: Observe) -> Iterator[None]:
    """Tell which frames Dynamo did not begin to compile, and why."""
    module = importlib.import_module(_CONVERT_FRAME)
    with contextlib.ExitStack() as stack:
        is_generator = module.is_generator

        @functools.wraps(is_generator)
        def saw_generator(code: CodeType) -> Any:
            refused = is_generator(code)
            if refused:
                convert = sys._getframe(1).f_locals.get("self")

                def look() -> dict[str, Any]:
                    one_graph = getattr(convert, "_one_graph", None)
                    setting = getattr(getattr(convert, "_box", None), "error_on_graph_break", None)
                    return {
                        **code_data(code),
                        "reason": "generator",
                        "registry": _registry_entry("Attempt to trace generator"),
                        "above": stack_above(),
                        "fullgraph": one_graph,
                        "fullgraph_site": fullgraph_site() if one_graph else None,
                        "error_on_graph_break": setting,
                        "scopes": SCOPES.chain(None),
                        "raised": bool(one_graph) or bool(setting),
                    }

                observe("graphbreak_refusal", look)
            return refused

        stack.enter_context(patched(module, "is_generator", saw_generator))

        exceeds = module.exceeds_recompile_limit

        @functools.wraps(exceeds)
        def saw_limit(*args: Any, **kwargs: Any) -> Any:
            exceeded, limit = exceeds(*args, **kwargs)
            if exceeded:
                caller = sys._getframe(1).f_locals

                def look() -> dict[str, Any]:
                    config = importlib.import_module("torch._dynamo.config")
                    code = caller.get("code")
                    cells = dict(zip(getattr(code, "co_freevars", ()), caller.get("closure") or (), strict=False))
                    wrapped = cells["func"].cell_contents if code is not None and is_wrapper(code) else None
                    return {
                        **(code_data(code) if code is not None else {}),
                        "wrapped": wrapped_code(wrapped),
                        "reason": "recompile limit",
                        "registry": _registry_entry("Dynamo recompile limit exceeded"),
                        "limit": limit,
                        "limit_value": getattr(config, limit, None),
                        "above": stack_above(),
                        "fullgraph": caller.get("one_graph"),
                        "fullgraph_site": fullgraph_site() if caller.get("one_graph") else None,
                        "scopes": SCOPES.chain(None),
                        "raised": bool(caller.get("one_graph")) or bool(config.fail_on_recompile_limit_hit),
                    }

                observe("graphbreak_refusal", look)
            return exceeded, limit

        stack.enter_context(patched(module, "exceeds_recompile_limit", saw_limit))

        wrapper = module.CatchErrorsWrapper
        if hasattr(wrapper, "_handle_skip"):  # torch >= 2.13
            handle_skip = wrapper._handle_skip

            @functools.wraps(handle_skip)
            def saw_skip(self: Any, result: Any, frame: Any) -> Any:
                def look() -> dict[str, Any] | None:
                    reason = result.skip_reason
                    if reason is None or result.guarded_code is not None:
                        return None
                    return {**code_data(frame.f_code), "reason": reason, "above": stack_above()}

                observe("graphbreak_skip", look)
                return handle_skip(self, result, frame)

            stack.enter_context(patched(wrapper, "_handle_skip", saw_skip))
        yield
        if not hasattr(wrapper, "_handle_skip"):
            observe(
                "graphbreak_blind", lambda: {"what": "frames skipped because a TorchDispatchMode was on (torch < 2.13)"}
            )


@functools.cache
def _registry() -> dict[str, tuple[str, dict[str, Any]]]:
    path = Path(importlib.import_module("torch._dynamo").__file__ or "").with_name("graph_break_registry.json")
    try:
        registry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {entry["Gb_type"]: (gb_id, entry) for gb_id, entries in registry.items() for entry in reversed(entries)}


def _registry_entry(gb_type: str) -> dict[str, Any]:
    gb_id, entry = _registry().get(gb_type, (None, {}))
    return {
        "gb_id": gb_id,
        "gb_type": gb_type,
        "explanation": entry.get("Explanation"),
        "hints": [hint for hint in entry.get("Hints", []) if "{" not in hint],
    }


def _error_on_graph_break() -> bool | None:
    """Return the value of the setting outside any traced function, where it can be read."""
    read = getattr(importlib.import_module("torch._dynamo.utils"), "_get_error_on_graph_break", None)
    return bool(read()) if read is not None else None
