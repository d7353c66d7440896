"""Hook on calls to compiled functions that Dynamo skips because of an earlier call, and the reasons for the skips."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import has_cached_code, state_of_known_code
from jupyter_graphbreak._torch_compat.configuration import current_stance
from jupyter_graphbreak._torch_compat.hooks.observer import observe_calls
from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import code_number, identity
from jupyter_graphbreak._torch_compat.module_calls import WRAPPER_NAME
from jupyter_graphbreak._torch_compat.patching import patch_attribute, report_to_run
from jupyter_graphbreak.records.additions import FrameSkipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer, WatchedCall

#: The beginning of the reason for a frame that Dynamo remembers to skip; the original reason follows, if known.
REMEMBERED_REASON = "remembered"
#: The methods compiled by ``torch.compile(module)`` and ``module.compile()``; Dynamo skips both and traces ``forward``.
_MODULE_CALL_METHODS = ("_wrapped_call_impl", "_call_impl")
#: The file of the wrapper that Dynamo puts around a callable whose own code it skips.
_WRAPPER_FILE = "torch/_dynamo/external_utils.py"
#: The reasons why Dynamo skips code objects, by their numbers, with references to Dynamo's state for them.
_REASONS: dict[int, tuple[weakref.ref[Any], str]] = {}


@contextlib.contextmanager
def watch_remembered_skips(observer: Observer) -> Iterator[None]:
    """Record the compiled functions that run eagerly because of an earlier call.

    Dynamo marks a code object that it could not compile and then skips it silently. Before torch 2.14, it also marks
    one that was called under a mode in which it compiles nothing. The mark cannot be read. It is inferred if a compiled
    function ran without a call to Dynamo, and if Dynamo has begun to compile it since the last reset but has no
    compiled code for it.
    """
    calls = _SuspectCalls(observer)
    context = importlib.import_module("torch._dynamo.eval_frame").OptimizeContext
    tracker = importlib.import_module("torch._dynamo.convert_frame").input_codes
    add = tracker.add

    @functools.wraps(add)
    def add_and_suspect(code: CodeType) -> None:
        add(code)
        try:
            if not observer.covers_this_thread() and _can_be_entry(code):  # the run sees no skips on other threads
                calls.suspect([code])
        except Exception as error:  # noqa: BLE001 - our errors must not reach the user's program
            report_to_run("input_codes.add", error)

    def observation(call: WatchedCall) -> None:
        code = _entry_code(call.argument("fn"))
        if code is not None:
            calls.suspect([code])

    with (
        contextlib.closing(calls),
        patch_attribute(tracker, "add", add_and_suspect),
        observe_calls(context, "__call__", observer, after=observation),
    ):
        known_code_objects = [code for reference in tracker.seen if (code := reference()) is not None]
        calls.suspect(filter(_can_be_entry, known_code_objects))
        yield


class _SuspectCalls:
    """Watches calls to compiled functions while Dynamo may remember to skip one of them.

    The hook runs twice for each call to a compiled function. It is therefore in place only while there are suspects:
    code objects that Dynamo began to compile without this run seeing it, and for which it has no compiled code.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._module: Any = importlib.import_module("torch._dynamo.eval_frame")
        self._known_code_objects: Any = importlib.import_module("torch._dynamo.convert_frame").input_codes
        self._suspects: dict[int, weakref.ref[CodeType]] = {}  # by id: equal code objects are different suspects
        self._running_calls: dict[int, tuple[CodeType, Any, Any]] = {}  # by the id of the wrapper's frame
        #: The callback of each ``torch.compile`` whose first call has ended, by its id.
        self._settled_callbacks: dict[int, Any] = {}
        self._active_hook: Any = None
        self._context = contextlib.ExitStack()
        self._lock = threading.RLock()

    def suspect(self, code_objects: Iterable[CodeType]) -> None:
        """Watch for calls that run the given code objects, if Dynamo may skip them."""
        for code in code_objects:
            if self._may_be_skipped(code) and code_number(code) not in self._observer.code_objects:
                forget = functools.partial(self._suspects.pop, id(code))
                self._suspects[id(code)] = weakref.ref(code, forget)
        with self._lock:
            if self._suspects and self._active_hook is None:
                self._settled_callbacks.clear()
                self._active_hook = self._add_observation(self._module._maybe_set_eval_frame)
                self._context.enter_context(patch_attribute(self._module, "_maybe_set_eval_frame", self._active_hook))

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            self._active_hook = None
            self._context.close()

    def _add_observation(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def wrapper(callback: Any) -> Any:
            try:
                if self._active_hook is not wrapper:
                    pass  # stopped, but a later hook that wraps this one is still in place
                elif not self._suspects and not self._running_calls:
                    self.close()
                elif (
                    self._running_calls or (callable(callback) and id(callback) not in self._settled_callbacks)
                ) and self._observer.covers_this_thread():
                    observation = functools.partial(self._skip_of_call, sys._getframe(1), callback)
                    self._observer.observe("_maybe_set_eval_frame", observation)
            except Exception as error:  # noqa: BLE001 - our errors must not reach the user's program
                report_to_run("_maybe_set_eval_frame", error)
            return original(callback)

        return wrapper

    def _skip_of_call(self, caller: FrameType, callback: Any) -> FrameSkipped | None:
        if caller.f_code.co_name != WRAPPER_NAME:
            return None
        if id(caller) not in self._running_calls:  # the hook is called when the function begins and when it ends
            code = _entry_code(caller.f_locals.get("fn"))
            if code is not None and id(code) in self._suspects and self._may_be_skipped(code):
                self._running_calls[id(caller)] = code, callback, sys.exc_info()[1]
            else:
                self._stop_suspecting(code, callback)
            return None
        code, callback, handled_error = self._running_calls.pop(id(caller))
        # A call that raised may not have run the function. Its caller may be handling another exception.
        is_disabled = current_stance() != "default" or importlib.import_module("torch._dynamo.config").disable
        if sys.exc_info()[1] is not handled_error or is_disabled:
            return None
        self._stop_suspecting(code, callback)
        if code_number(code) in self._observer.code_objects:
            return None
        reason = _remembered_skip_reason(code)
        return FrameSkipped(**identity(code), reason=f"{REMEMBERED_REASON}: {reason}" if reason else REMEMBERED_REASON)

    def _stop_suspecting(self, code: CodeType | None, callback: Any) -> None:
        self._settled_callbacks[id(callback)] = callback
        self._suspects.pop(id(code), None)

    def _may_be_skipped(self, code: CodeType) -> bool:
        return code in self._known_code_objects and not has_cached_code(code)


def remember_skip_reason(code: CodeType, reason: str) -> None:
    """Store the reason why Dynamo skips a code object from now on, for later watches."""
    mark = state_of_known_code(code)
    if mark is not None:
        _REASONS[code_number(code)] = mark, reason


def _remembered_skip_reason(code: CodeType) -> str | None:
    """Return the reason why Dynamo skips a code object; ``None`` if unknown, or if Dynamo was reset since then."""
    mark, reason = _REASONS.get(code_number(code), (None, None))
    current_mark = state_of_known_code(code)
    is_same = mark is not None and current_mark is not None and mark() is not None and mark() is current_mark()
    return reason if is_same else None


def _entry_code(fn: Any) -> CodeType | None:
    """Return the code object that Dynamo compiles first when a function or a module's call is compiled.

    The result is ``None`` if that is the code of Dynamo's own wrapper, which many callables share, or if there is none.
    """
    if isinstance(fn, types.MethodType):
        forward = getattr(fn.__self__, "forward", None) if fn.__name__ in _MODULE_CALL_METHODS else fn
        fn = getattr(forward, "__func__", None)
    if not isinstance(fn, types.FunctionType) or fn.__code__.co_filename.endswith(_WRAPPER_FILE):
        return None
    return fn.__code__


def _can_be_entry(code: CodeType) -> bool:
    """Return whether an existing compiled function may call this code object first. See :func:`_entry_code`."""
    module = importlib.import_module("torch._dynamo.eval_frame")
    always_compiled = getattr(module, "always_optimize_code_objects", None)
    return always_compiled is None or code in always_compiled or "forward" in code.co_name
