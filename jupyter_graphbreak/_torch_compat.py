"""The only module that touches PyTorch's internals.

Every hook has a feature test: where a release of PyTorch lacks what it needs, the hook is left out and
:func:`watch` says so in a sentence, for the report's diagnostics. Written against torch 2.9.1, 2.13.0 and 2.15.0.
Nothing is patched at import; what :func:`watch` patches it restores.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import logging
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType

MINIMUM_TORCH = (2, 9)
_CONVERT_FRAME = "torch._dynamo.convert_frame"
_SYMBOLIC_CONVERT = "torch._dynamo.symbolic_convert"

#: A stack entry as our records hold it: file, line, function, the function's first line, and, where Python tells,
#: the column range in UTF-8 bytes and the last line of the expression.
StackEntry = list[Any]


class TorchUnavailable(RuntimeError):  # noqa: N818 - reads as the sentence it reports
    """There is no torch, or one that is too old; the message says how to get one."""


class Emit(Protocol):
    """Receives what the hooks see: the kind of the record, its data, the envelope's context."""

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        """Take one observation."""


def require_torch() -> str:
    """Import torch and return its version.

    Raises
    ------
    TorchUnavailable
        If torch cannot be imported or is older than 2.9.
    """
    need = ".".join(map(str, MINIMUM_TORCH))
    try:
        import torch
    except ImportError as error:
        raise TorchUnavailable(f"PyTorch is not installed here ({error}): pip install 'torch>={need}'") from None
    version = str(torch.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < MINIMUM_TORCH:
        raise TorchUnavailable(f"PyTorch {version} is too old, {need} is needed: pip install -U 'torch>={need}'")
    return version


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
        for hook in (_watch_starts, _watch_breaks, _watch_failures, _watch_resumes, _watch_graphs, _watch_refusals):
            try:
                stack.enter_context(hook(_guarded(emit, spent)))
            except (AttributeError, ImportError) as error:
                missing.append(f"{(hook.__doc__ or '').splitlines()[0]} Not available in this torch: {error}.")
        yield missing


def _guarded(emit: Emit, spent: Callable[[float], None]) -> Callable[[str, Callable[[], dict[str, Any] | None]], None]:
    """Wrap ``emit`` so that observing neither fails nor goes unmeasured."""

    def observe(kind: str, look: Callable[[], dict[str, Any] | None]) -> None:
        start = time.perf_counter()
        try:
            data = look()
            if data is not None:
                emit(kind, data)
        except Exception as error:  # noqa: BLE001 - the user's program must not notice us
            with contextlib.suppress(Exception):
                emit("graphbreak_fault", {"hook": kind, "message": f"{type(error).__name__}: {error}"})
        finally:
            spent(time.perf_counter() - start)

    return observe


_Observe = "Callable[[str, Callable[[], dict[str, Any] | None]], None]"


@contextlib.contextmanager
def _patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = inspect.getattr_static(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        # Somebody who patched after us keeps their patch; it calls ours, which calls the original.
        if inspect.getattr_static(owner, name) is replacement:
            setattr(owner, name, original)


@contextlib.contextmanager
def _watch_starts(observe: Any) -> Iterator[None]:
    """The caller of a frame and the identity of a resume function."""
    module = importlib.import_module(_CONVERT_FRAME)
    original = module.log_dynamo_start

    @functools.wraps(original)
    def log_dynamo_start(code: CodeType, skip: int = 0) -> Any:
        observe("graphbreak_start", lambda: {**_code(code), "stack": _stack_above()})
        # One more frame to leave out of the stack that the original takes.
        return original(code, skip + 1)

    with _patched(module, "log_dynamo_start", log_dynamo_start):
        yield


@contextlib.contextmanager
def _watch_breaks(observe: Any) -> Iterator[None]:
    """The exact expression of a break and the settings in force at it."""
    module = importlib.import_module(_SYMBOLIC_CONVERT)
    if not hasattr(module.InstructionTranslatorBase, "log_graph_break"):  # torch < 2.11: a function without a tracer
        original_function = module.log_graph_break

        @functools.wraps(original_function)
        def log_function(code_options: Any, *args: Any, **kwargs: Any) -> Any:
            user_stack = inspect.signature(original_function).bind(code_options, *args, **kwargs).arguments.get("user_stack")
            caller = sys._getframe(1)
            tracer = next((f.f_locals["self"] for f in _outward(caller, 3) if "self" in f.f_locals), None)

            def look() -> dict[str, Any]:
                stack = _entries(user_stack if user_stack is not None else _tracing_stack())
                return {**_tracer_state(tracer), "stack": _with_positions(stack, tracer), "above": _stack_above()}

            observe("graphbreak_break", look)
            return original_function(code_options, *args, **kwargs)

        with _patched(module, "log_graph_break", log_function):
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
                **_exception(exc),
                **_tracer_state(self),
                "stack": _with_positions(_entries(stack if stack is not None else _tracing_stack()), self),
                "above": _stack_above(),
            }

        observe("graphbreak_break", look)
        return original(self, code_options, reason, exc)

    with _patched(module.InstructionTranslatorBase, "log_graph_break", log_graph_break):
        yield


@contextlib.contextmanager
def _watch_failures(observe: Any) -> Iterator[None]:
    """The place of an error that no break event tells of, and whether it went up to the user."""
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
                setting = error_on_graph_break()
            hard = tuple(
                getattr(exc, name)
                for name in ("UncapturedHigherOrderOpError", "ResumePrologueTracingError")
                if hasattr(exc, name)
            )
            soft = isinstance(e, (exc.Unsupported, exc.UserError))
            suppressed = bool(importlib.import_module("torch._dynamo.config").suppress_errors)
            raised = bool(one_graph) or bool(setting) or isinstance(e, hard) or not (soft or suppressed)
            return {
                **_exception(e),
                "message": str(e),
                "stack": _entries(getattr(e, "real_stack", None)),
                "above": _stack_above(),
                "error_on_graph_break": setting,
                "fullgraph": one_graph,
                "raised": raised,
            }

        observe("graphbreak_failure", look)
        return original(e, *args, **kwargs)

    with _patched(module, "exception_handler", exception_handler):
        yield


@contextlib.contextmanager
def _watch_resumes(observe: Any) -> Iterator[None]:
    """The break that made a resume function, and the line at which it goes on."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache
    original = inspect.getattr_static(cache, "lookup")
    parameters = list(inspect.signature(cache.generate).parameters)
    at = parameters.index("resume_offset") if "resume_offset" in parameters else None

    def lookup(cls: Any, code: CodeType, *args: Any) -> Any:
        made = original.__func__(cls, code, *args)

        def look() -> dict[str, Any]:
            resume = made if hasattr(made, "co_name") else made[0]  # some releases pair it with its name
            offset = args[at - 1] if at is not None else None
            return {**_code(resume), "of": _code(code), "line": _line_at(code, offset)}

        observe("graphbreak_resume", look)
        return made

    with _patched(cache, "lookup", classmethod(functools.wraps(original.__func__)(lookup))):
        yield


@contextlib.contextmanager
def _watch_graphs(observe: Any) -> Iterator[None]:
    """The call stack of each operation of a graph."""
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
            return {"stacks": list(stacks), "ops": ops}

        observe("graphbreak_graph", look)
        return original(self, gm, *args, **kwargs)

    with _patched(graph_type, "call_user_compiler", call_user_compiler):
        yield


@contextlib.contextmanager
def _watch_refusals(observe: Any) -> Iterator[None]:
    """Frames that Dynamo did not begin to compile, and why."""
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
                        **_code(code),
                        "reason": "generator",
                        "registry": _registry_entry("Attempt to trace generator"),
                        "above": _stack_above(),
                        "fullgraph": one_graph,
                        "error_on_graph_break": setting,
                        "raised": bool(one_graph) or bool(setting),
                    }

                observe("graphbreak_refusal", look)
            return refused

        stack.enter_context(_patched(module, "is_generator", saw_generator))

        exceeds = module.exceeds_recompile_limit

        @functools.wraps(exceeds)
        def saw_limit(*args: Any, **kwargs: Any) -> Any:
            exceeded, limit = exceeds(*args, **kwargs)
            if exceeded:
                caller = sys._getframe(1).f_locals

                def look() -> dict[str, Any]:
                    config = importlib.import_module("torch._dynamo.config")
                    return {
                        **(_code(caller["code"]) if "code" in caller else {}),
                        "reason": "recompile limit",
                        "registry": _registry_entry("Dynamo recompile limit exceeded"),
                        "limit": limit,
                        "limit_value": getattr(config, limit, None),
                        "above": _stack_above(),
                        "fullgraph": caller.get("one_graph"),
                        "raised": bool(caller.get("one_graph")) or bool(config.fail_on_recompile_limit_hit),
                    }

                observe("graphbreak_refusal", look)
            return exceeded, limit

        stack.enter_context(_patched(module, "exceeds_recompile_limit", saw_limit))

        wrapper = module.CatchErrorsWrapper
        if hasattr(wrapper, "_handle_skip"):  # torch >= 2.13
            handle_skip = wrapper._handle_skip

            @functools.wraps(handle_skip)
            def saw_skip(self: Any, result: Any, frame: Any) -> Any:
                def look() -> dict[str, Any] | None:
                    reason = result.skip_reason
                    if reason is None or result.guarded_code is not None:
                        return None
                    return {**_code(frame.f_code), "reason": reason, "above": _stack_above()}

                observe("graphbreak_skip", look)
                return handle_skip(self, result, frame)

            stack.enter_context(_patched(wrapper, "_handle_skip", saw_skip))
        yield
        if not hasattr(wrapper, "_handle_skip"):
            observe("graphbreak_blind", lambda: {"what": "frames skipped because a TorchDispatchMode was on (torch < 2.13)"})


def _code(code: CodeType) -> dict[str, Any]:
    return {
        "id": id(code),
        "name": code.co_name,
        "qualname": getattr(code, "co_qualname", code.co_name),
        "filename": code.co_filename,
        "firstlineno": code.co_firstlineno,
    }


def _exception(exc: BaseException) -> dict[str, Any]:
    return {"type": type(exc).__name__, "gb_type": getattr(exc, "gb_type", None) or None}


def _tracer_state(tracer: Any) -> dict[str, Any]:
    return {
        "error_on_graph_break": getattr(tracer, "error_on_graph_break", None),
        "fullgraph": getattr(tracer, "one_graph", None),
    }


def _outward(frame: FrameType | None, most: int) -> Iterator[FrameType]:
    while frame is not None and most > 0:
        yield frame
        frame, most = frame.f_back, most - 1


def _stack_above() -> list[StackEntry]:
    """The Python stack at the call that made Dynamo compile, outermost first, without Dynamo's own frames inside."""
    frame: FrameType | None = sys._getframe(1)
    here = __file__
    inside = True
    entries: list[StackEntry] = []
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        if inside:
            # Dynamo enters Python through CatchErrorsWrapper; what is further out is the program.
            if filename != here and filename.endswith("convert_frame.py") and code.co_qualname == "CatchErrorsWrapper.__call__":
                inside = False
        else:
            entries.append([filename, frame.f_lineno, code.co_name, code.co_firstlineno])
        frame = frame.f_back
    entries.reverse()
    return entries


def _entries(stack: Iterable[Any] | None) -> list[StackEntry]:
    """Return the entries of a ``traceback.StackSummary``; the function's first line is not in it."""
    return [
        [
            entry.filename,
            entry.lineno,
            entry.name,
            None,
            getattr(entry, "colno", None),
            getattr(entry, "end_colno", None),
            getattr(entry, "end_lineno", None),
        ]
        for entry in stack or ()
    ]


def _tracing_stack() -> Any:
    return importlib.import_module("torch._guards").TracingContext.extract_stack()


def _with_positions(stack: list[StackEntry], tracer: Any) -> list[StackEntry]:
    """Fill in the columns of the innermost entry from the instruction that the tracer is at, if it is at that line."""
    if not stack or tracer is None:
        return stack
    positions = getattr(getattr(tracer, "current_instruction", None), "positions", None)
    code = getattr(tracer, "f_code", None)
    leaf = stack[-1]
    if positions is None or code is None or (code.co_filename, positions.lineno) != (leaf[0], leaf[1]):
        return stack
    columns = [positions.col_offset, positions.end_col_offset, positions.end_lineno]
    if leaf[4] is not None and leaf[4:6] != columns[:2]:
        return stack
    return [*stack[:-1], [*leaf[:4], *columns]]


def _line_at(code: CodeType, offset: int | None) -> int | None:
    if offset is None:
        return None
    return next((line for start, end, line in code.co_lines() if start <= offset < end), None)


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


def error_on_graph_break() -> bool | None:
    """Return the value of the setting outside any traced function, where it can be read."""
    read = getattr(importlib.import_module("torch._dynamo.utils"), "_get_error_on_graph_break", None)
    return bool(read()) if read is not None else None


def envelope() -> dict[str, Any]:
    """Return the context of the compilation in progress on this thread, in the trace's own keys."""
    trace_id = importlib.import_module("torch._guards").CompileContext.current_trace_id()
    if trace_id is None:
        return {}
    compile_id = trace_id.compile_id
    context = {
        "compiled_autograd_id": getattr(compile_id, "compiled_autograd_id", None),
        "frame_id": compile_id.frame_id,
        "frame_compile_id": compile_id.frame_compile_id,
        "attempt": trace_id.attempt,
    }
    return {key: value for key, value in context.items() if value is not None}


def trace_logger() -> logging.Logger:
    """Return the logger that carries the structured trace."""
    importlib.import_module("torch._logging")
    return logging.getLogger("torch.__trace")


def interned_name(number: int) -> str | None:
    """Return the file name behind a number of the trace; only those interned since torch was imported are known."""
    table: dict[str, int] = importlib.import_module("torch._logging.structured").INTERN_TABLE
    return next((name for name, known in table.items() if known == number), None)


def dynamo_config() -> dict[str, Any]:
    """Return the settings of ``torch._dynamo.config`` that differ from their default, and two that always matter."""
    config = importlib.import_module("torch._dynamo.config")
    values: dict[str, Any] = {}
    is_default = getattr(config, "_is_default", None)
    for name, value in getattr(config, "get_config_copy", dict)().items():
        if name.startswith("_") or is_default is None:
            continue
        if not is_default(name) and isinstance(value, bool | int | float | str | type(None)):
            values[name] = value
    for name in ("nested_graph_breaks", "recompile_limit"):
        values[name] = getattr(config, name, None)
    return values


def is_torch_compile(value: Any) -> bool:
    """Whether an object is ``torch.compile`` itself, also with arguments bound to it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    optimize = getattr(sys.modules.get("torch._dynamo"), "optimize", None)
    return (value.func if isinstance(value, functools.partial) else value) in (torch.compile, optimize)


def compiled_callable(value: Any) -> Any:
    """Return the plain function behind a compiled function or module, ``None`` if the object is not compiled."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(value, torch.nn.Module):
        inner = value.__dict__.get("_orig_mod") or value.__dict__.get("_modules", {}).get("_orig_mod")
        if inner is not None:
            return inner
        return value if value.__dict__.get("_compiled_call_impl") is not None else None
    try:
        return inspect.getattr_static(value, "_torchdynamo_orig_callable", None) or (
            getattr(value, "__func__", None) and compiled_callable(value.__func__)
        )
    except TypeError:
        return None


def resume_codes(code: CodeType) -> list[CodeType]:
    """Return the resume functions that Dynamo has made for a code object, and those made for these."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache.cache
    found: list[CodeType] = []
    for made in cache.get(code, {}).values():
        resume = made if hasattr(made, "co_name") else made[0]
        found += [resume, *resume_codes(resume)]
    return found


def has_cached_code(code: CodeType) -> bool:
    """Whether Dynamo holds a compiled version of a code object."""
    read = getattr(importlib.import_module("torch._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    return bool(read(code)) if read is not None else False


def forget(codes: Iterable[CodeType]) -> None:
    """Make Dynamo forget what it compiled or skipped of some code objects, and of their resume functions."""
    reset_code = importlib.import_module("torch._C._dynamo.eval_frame").reset_code
    for code in codes:
        for each in (code, *resume_codes(code)):
            reset_code(each)


def backends() -> list[str]:
    """Return the names that ``torch.compile(backend=...)`` takes."""
    listed: list[str] = importlib.import_module("torch._dynamo").list_backends(exclude_tags=())
    return sorted(set(listed))


def modes() -> list[str]:
    """Return the names that ``torch.compile(mode=...)`` takes."""
    listed: list[str] = list(importlib.import_module("torch._inductor").list_mode_options())
    return listed


def errors_suppressed() -> contextlib.AbstractContextManager[Any]:
    """Have Dynamo run eagerly what it fails to compile while the context is open."""
    patch: contextlib.AbstractContextManager[Any] = importlib.import_module("torch._dynamo.config").patch(
        suppress_errors=True
    )
    return patch


@contextlib.contextmanager
def forced_backend(backend: str | None) -> Iterator[None]:
    """Make every ``torch.compile`` use one backend while the context is open; ``None`` leaves them alone."""
    if backend is None:
        yield
        return
    import torch

    with torch.compiler.set_stance("default", force_backend=backend):
        yield


@contextlib.contextmanager
def default_device(device: str | None) -> Iterator[None]:
    """Make a device the default one while the context is open; what the code itself sets meanwhile stays."""
    if device is None:
        yield
        return
    import torch

    state = importlib.import_module("torch.utils._device")
    before = getattr(state, "CURRENT_DEVICE", None)
    torch.set_default_device(device)
    ours = getattr(state, "CURRENT_DEVICE", None)
    try:
        yield
    finally:
        if getattr(state, "CURRENT_DEVICE", None) is ours:
            torch.set_default_device(before)


def cuda_devices() -> tuple[list[str], int, str]:
    """Return the names of the CUDA devices, the number of the current one, and why there is none."""
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        return [torch.cuda.get_device_name(index) for index in range(count)], torch.cuda.current_device(), ""
    if torch.version.cuda is None:
        return [], 0, f"torch {torch.__version__} is built without CUDA"
    return [], 0, "no CUDA device is visible to this kernel"


def default_device_name() -> str:
    """Return the device on which new tensors are made now."""
    import torch

    return str(torch.get_default_device())


def library_roots() -> list[str]:
    """Return the folders whose files are nobody's own: the standard library, torch, and what pip installed."""
    import sysconfig

    paths = sysconfig.get_paths()
    return sorted({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths})
