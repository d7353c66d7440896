"""Hooks on code that Dynamo refuses: generators, functions at a recompile limit, skipped frames."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import has_cached_code, mark_of_known_code
from jupyter_graphbreak._torch_compat.hooks.compiling_calls import fullgraph_site
from jupyter_graphbreak._torch_compat.hooks.graph_break_registry import registry_entry
from jupyter_graphbreak._torch_compat.hooks.observer import watched
from jupyter_graphbreak._torch_compat.hooks.scopes import is_wrapper
from jupyter_graphbreak._torch_compat.hooks.stacks_and_codes import code_number, identity, stack_above, wrapped_code
from jupyter_graphbreak._torch_compat.patching import patched, report_to_run
from jupyter_graphbreak.records.additions import FrameGivenUp, FrameRefused, FrameSkipped, UnrecordedSkips

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType
    from weakref import ref

    from jupyter_graphbreak._torch_compat.hooks.observer import Call, Observer

_CONVERT_FRAME = "torch._dynamo.convert_frame"
#: The beginning of the reason for a frame that Dynamo remembers to skip; the original reason follows, if known.
REMEMBERED = "remembered"
#: The function that ``torch.compile`` puts around the compiled one.
_WRAPPER = "compile_wrapper"
#: The methods compiled by ``torch.compile(module)`` and ``module.compile()``; Dynamo skips both and traces ``forward``.
_MODULE_CALLS = ("_wrapped_call_impl", "_call_impl")
#: The reasons why Dynamo skips code objects in this process, by their numbers, with Dynamo's marks of them.
_REASONS: dict[int, tuple[ref[Any], str]] = {}


@contextlib.contextmanager
def watch_generators(observer: Observer) -> Iterator[None]:
    """Record the generators that Dynamo refused to compile."""
    module = importlib.import_module(_CONVERT_FRAME)

    def look(call: Call) -> FrameRefused | None:
        if not call.result:
            return None
        convert = observer.local(call.caller, "self")  # of ConvertFrameAssert.__call__
        one_graph = getattr(convert, "_one_graph", None)
        setting = getattr(getattr(convert, "_box", None), "error_on_graph_break", None)
        return FrameRefused(
            **identity(call.argument("code")),
            reason="generator",
            registry=registry_entry("Attempt to trace generator"),
            above=stack_above(),
            fullgraph=one_graph,
            fullgraph_site=fullgraph_site(observer) if one_graph else None,
            error_on_graph_break=setting,
            scopes=observer.scopes.chain(None),
            raised=bool(one_graph) or bool(setting),
        )

    with patched(module, "is_generator", watched(module.is_generator, observer, after=look)):
        yield


@contextlib.contextmanager
def watch_limits(observer: Observer) -> Iterator[None]:
    """Record the functions that Dynamo does not recompile because of a limit."""
    module = importlib.import_module(_CONVERT_FRAME)

    def look(call: Call) -> FrameRefused | None:
        exceeded, limit = call.result
        return _limited(observer, call.caller, limit) if exceeded else None  # the caller is _compile

    hook = watched(module.exceeds_recompile_limit, observer, after=look)
    with patched(module, "exceeds_recompile_limit", hook):
        yield


def _limited(observer: Observer, caller: FrameType, limit: str) -> FrameRefused:
    config = importlib.import_module("torch._dynamo.config")
    code = observer.local(caller, "code")
    one_graph = observer.local(caller, "one_graph")
    wrapped = None
    if code is not None and is_wrapper(code):
        cells = dict(zip(code.co_freevars, observer.local(caller, "closure") or (), strict=False))
        wrapped = wrapped_code(cells["func"].cell_contents) if "func" in cells else None
    return FrameRefused(
        **(identity(code) if code is not None else {}),
        wrapped=wrapped,
        reason="recompile limit",
        registry=registry_entry("Dynamo recompile limit exceeded"),
        limit=limit,
        limit_value=getattr(config, limit, None),
        above=stack_above(),
        fullgraph=one_graph,
        fullgraph_site=fullgraph_site(observer) if one_graph else None,
        scopes=observer.scopes.chain(None),
        raised=bool(one_graph) or bool(config.fail_on_recompile_limit_hit),
    )


@contextlib.contextmanager
def watch_given_up(observer: Observer) -> Iterator[None]:
    """Record the frames that ``torch._dynamo.skip_frame()`` ended without an event, before torch 2.11."""
    module = importlib.import_module(_CONVERT_FRAME)
    skip_frame = importlib.import_module("torch._dynamo.exc").SkipFrame

    def look(call: Call) -> FrameGivenUp | None:
        # Frames with nothing to capture end with the same exception.
        ended = isinstance(call.error, skip_frame) and "skip_frame()" in str(call.error)
        return FrameGivenUp(message=str(call.error)) if ended else None

    with patched(module, "compile_frame", watched(module.compile_frame, observer, failed=look)):
        yield


#: The checks of CatchErrorsWrapper before it begins a frame: the first in torch 2.9 and 2.10, the others in 2.11, 2.12.
_MODE_CHECKS = (
    "should_skip_due_to_torch_dispatch_mode",
    "any_torch_dispatch_mode_on_stack",
    "is_in_any_mode_without_ignore_compile_internals",
)


@contextlib.contextmanager
def watch_skips(observer: Observer) -> Iterator[None]:
    """Record the frames that Dynamo skips, and the reasons."""
    module = importlib.import_module(_CONVERT_FRAME)
    wrapper = module.CatchErrorsWrapper

    def look(call: Call) -> FrameSkipped | None:
        result, frame = call.argument("result"), call.argument("frame")
        reason = result.skip_reason
        if reason is None or result.guarded_code is not None:
            return None
        if result.apply_to_code:  # false since torch 2.14 if a mode is on: the next call is compiled again
            _keep_reason(frame.f_code, reason)
        return FrameSkipped(**identity(frame.f_code), reason=reason, above=stack_above())

    if hasattr(wrapper, "_handle_skip"):  # torch >= 2.13
        with patched(wrapper, "_handle_skip", watched(wrapper._handle_skip, observer, before=look)):
            yield
        return
    checks = [name for name in _MODE_CHECKS if hasattr(module, name)]
    if _MODE_CHECKS[0] in checks:
        del checks[1:]  # it calls the others
    with contextlib.ExitStack() as stack:
        for name in checks:
            hook = watched(getattr(module, name), observer, after=_skipped_for_mode)
            stack.enter_context(patched(module, name, hook))
        yield
    unrecorded = UnrecordedSkips(
        what=None if checks else "frames skipped because a TorchDispatchMode was on (torch < 2.13)"
    )
    observer.observe("_handle_skip", lambda: unrecorded)


def _skipped_for_mode(call: Call) -> FrameSkipped | None:
    """Return the frame that is skipped because of the result of the check and for no other reason."""
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
    _keep_reason(code, reason)
    return FrameSkipped(**identity(code), reason=reason, above=stack_above())


@contextlib.contextmanager
def watch_remembered_skips(observer: Observer) -> Iterator[None]:
    """Record the compiled functions that run eagerly because of an earlier call.

    After a call that it could not compile, or, before torch 2.14, under a mode in which it compiles nothing, Dynamo
    marks the code object and skips it silently. The mark cannot be read. It is inferred if a compiled function ran
    without a call of Dynamo, and Dynamo has begun the function since the last reset but has no compiled code for it.
    """
    module = importlib.import_module("torch._dynamo.eval_frame")
    known = importlib.import_module("torch._dynamo.convert_frame").input_codes
    original = module._maybe_set_eval_frame
    running: dict[int, tuple[CodeType, Any, Any]] = {}  # by the id of the wrapper's frame
    settled: dict[int, Any] = {}  # the callback of each torch.compile whose first call has ended, by its id

    def look(caller: FrameType, callback: Any) -> FrameSkipped | None:
        if caller.f_code.co_name != _WRAPPER:
            return None
        if id(caller) not in running:  # called when the function begins and when it ends
            code = _entry_code(caller.f_locals.get("fn"))
            if code is not None and code in known and not has_cached_code(code):
                running[id(caller)] = code, callback, sys.exc_info()[1]
            else:
                settled[id(callback)] = callback
            return None
        code, callback, handled = running.pop(id(caller))
        # A call that raised may not have run the function. Its caller may be handling another exception.
        if sys.exc_info()[1] is not handled or _is_off(module):
            return None
        settled[id(callback)] = callback
        if code_number(code) in observer.codes:
            return None
        reason = _kept_reason(code)
        return FrameSkipped(**identity(code), reason=f"{REMEMBERED}: {reason}" if reason else REMEMBERED)

    @functools.wraps(original)
    def observing(callback: Any) -> Any:
        try:
            if (running or (callable(callback) and id(callback) not in settled)) and observer.is_here():
                observer.observe("_maybe_set_eval_frame", functools.partial(look, sys._getframe(1), callback))
        except Exception as error:  # noqa: BLE001 - the user's program must not notice us
            report_to_run("_maybe_set_eval_frame", error)
        return original(callback)

    with patched(module, "_maybe_set_eval_frame", observing):
        yield


def _keep_reason(code: CodeType, reason: str) -> None:
    """Keep the reason why Dynamo skips a code object from now on, for later watches."""
    mark = mark_of_known_code(code)
    if mark is not None:
        _REASONS[code_number(code)] = mark, reason


def _kept_reason(code: CodeType) -> str | None:
    """Return the reason why Dynamo skips a code object; ``None`` if nobody watched, or Dynamo was reset since then."""
    mark, reason = _REASONS.get(code_number(code), (None, None))
    now = mark_of_known_code(code)
    is_same = mark is not None and now is not None and mark() is not None and mark() is now()
    return reason if is_same else None


def _entry_code(fn: Any) -> CodeType | None:
    """Return the code object that Dynamo compiles first when a function or a module's call is compiled."""
    if isinstance(fn, types.MethodType):
        forward = getattr(fn.__self__, "forward", None) if fn.__name__ in _MODULE_CALLS else fn
        fn = getattr(forward, "__func__", None)
    return fn.__code__ if isinstance(fn, types.FunctionType) and fn.__name__ != "inner" else None


def _is_off(eval_frame: Any) -> bool:
    """Return whether compilation is disabled altogether."""
    stance = getattr(getattr(eval_frame, "_stance", None), "stance", "default")
    return stance != "default" or importlib.import_module("torch._dynamo.config").disable
