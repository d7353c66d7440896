"""Recognize compiled functions; inspect and clear Dynamo's cache of their compiled code."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.patching import (
    patch_attribute,
    patch_on_thread,
    redirect_calls_on_thread,
    replace_result,
    report_to_run,
)
from jupyter_graphbreak.records.attributes import attribute_of, is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType
    from weakref import ref

    from jupyter_graphbreak._torch_compat.threads import Claim


def is_torch_compile(value: Any) -> bool:
    """Return whether an object is ``torch.compile`` or ``torch._dynamo.optimize``, possibly with bound arguments."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    optimize = getattr(sys.modules.get("torch._dynamo"), "optimize", None)
    function = value.func if is_instance(value, functools.partial) else value
    # `is`, since == on an array returns an array
    return function is torch.compile or (optimize is not None and function is optimize)


def disable_torch_compile() -> contextlib.AbstractContextManager[None]:
    """Make ``torch.compile`` return its argument unchanged on this thread, while the context is open."""

    def compile_nothing(model: Any = None, **_: Any) -> Any:
        return (lambda function: function) if model is None else model

    return patch_on_thread(sys.modules["torch"], "compile", compile_nothing)


def force_eager_on_thread() -> contextlib.AbstractContextManager[None]:
    """Run compiled functions eagerly on this thread, while the context is open.

    The stance ``force_eager`` does the same, but for all threads.
    """
    eval_frame = importlib.import_module("torch._dynamo.eval_frame")
    return patch_on_thread(eval_frame, "_callback_from_stance", lambda _: None)


def prevent_compilation() -> contextlib.AbstractContextManager[None]:
    """Run calls on this thread eagerly if no compiled code fits, instead of compiling, while the context is open.

    The stance ``eager_on_recompile`` does the same, but for all threads.
    """
    eval_frame = importlib.import_module("torch._dynamo.eval_frame")
    return patch_on_thread(eval_frame, "_callback_from_stance", lambda _: False)


def undo_compile_in_place(copy: Any) -> None:
    """Make the copy of a module run uncompiled, even if ``Module.compile`` compiled the module in place."""
    if is_instance(copy, sys.modules["torch"].nn.Module):
        copy.__dict__.pop("_compiled_call_impl", None)


def compiled_callable(value: Any) -> Any:
    """Return the function or module that an object compiles, possibly itself; ``None`` if it compiles nothing."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if is_instance(value, torch.nn.Module):
        modules = value.__dict__.get("_modules")
        submodules = modules if is_instance(modules, dict) else {}  # it is no dict in a scripted module
        inner = value.__dict__.get("_orig_mod") or submodules.get("_orig_mod")
        if inner is not None:
            return inner
        return value if value.__dict__.get("_compiled_call_impl") is not None else None
    try:
        inner = inspect.getattr_static(value, "_torchdynamo_orig_callable", None)
        is_bound = is_instance(value, types.MethodType | classmethod | staticmethod)
        return inner or (compiled_callable(value.__func__) if is_bound else None)
    except TypeError:
        return None


def uncompiled_callable(value: Any) -> Any:
    """Return the function or module from which an object was compiled, or the object itself if it is not compiled."""
    inner = compiled_callable(value)
    return value if inner is None else inner


def backend_and_options(backend: Any) -> tuple[Any, dict[str, Any]]:
    """Return a backend as the caller of ``torch.compile`` passed it: its name or its function, and its options."""
    if isinstance(backend, str):
        return backend, {}
    name, function = getattr(backend, "compiler_name", None), getattr(backend, "compiler_fn", backend)
    if name == "inductor":
        return name, dict(getattr(backend, "config", None) or {})
    options = dict((getattr(backend, "kwargs", None) or {}).get("options") or {})
    registry = importlib.import_module("torch._dynamo.backends.registry")
    names = [name] if isinstance(name, str) else registry.list_backends(exclude_tags=())
    with contextlib.suppress(Exception):  # the name may not be registered
        return next(
            registered_name for registered_name in names if registry.lookup_backend(registered_name) is function
        ), options
    return function, options


class CompileArguments(NamedTuple):
    """The arguments of ``torch.compile``.

    ``backend`` is usually a function that compiles a graph and already applies the mode and the options, otherwise a
    name, or ``None`` if it is unknown. ``guard_filter`` is the option ``guard_filter_fn``, which selects the guards to
    keep.
    """

    backend: Any
    dynamic: bool | None = None
    guard_filter: Callable[..., Any] | None = None


def compile_arguments(value: Any) -> CompileArguments | None:
    """Return the arguments that a function or module was compiled with; ``None`` if they are unknown."""
    torch = sys.modules.get("torch")
    if torch is not None and is_instance(value, torch.nn.Module):
        inner = value.__dict__.get("_compiled_call_impl")
        context = getattr(value, "dynamo_ctx", None) if inner is None else _compile_context(inner)
    else:
        context = _compile_context(attribute_of(value, "__func__", value))
    callback = getattr(context, "callback", None)
    backend = innermost_backend(callback)
    if not callable(backend):
        return None
    return CompileArguments(backend, getattr(context, "_dynamic", None), guard_filter_of(callback))


def innermost_backend(callback: Any) -> Any:
    """Return the backend within the callbacks that Dynamo puts around it."""
    while (inner := getattr(callback, "_torchdynamo_orig_backend", None)) is not None:
        callback = inner
    return callback


def guard_filter_of(callback: Any) -> Callable[..., Any] | None:
    """Return the function that one of Dynamo's callbacks uses to select guards; ``None`` if the callback has none."""
    return getattr(getattr(callback, "hooks", None), "guard_filter_fn", None)


def _compile_context(wrapper: Any) -> Any:
    """Return the context that ``torch.compile`` created, from the closure of the wrapper that it returned."""
    names = getattr(attribute_of(wrapper, "__code__"), "co_freevars", ())
    cells = attribute_of(wrapper, "__closure__") or ()
    return next((cell.cell_contents for name, cell in zip(names, cells, strict=True) if name == "self"), None)


def skip_functions(*functions: Callable[..., Any]) -> None:
    """Make Dynamo skip the frames of functions, so that they run uncompiled when compiled code calls them."""
    skip_code = importlib.import_module("torch._dynamo.eval_frame").skip_code
    for function in functions:
        skip_code(function.__code__)


def is_dynamo_disabled(value: Any) -> bool:
    """Return whether the user disabled compilation of a function; a mark that ``functools.wraps`` copied is ignored."""
    is_marked = bool(attribute_of(value, "_torchdynamo_disable"))
    return is_marked and not attribute_of(attribute_of(value, "__wrapped__"), "_torchdynamo_disable")


def resume_code_objects(code: CodeType) -> list[CodeType]:
    """Return the code of all resume functions that Dynamo has created for a code object, directly or indirectly."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache.cache
    resumes: dict[int, CodeType] = {}
    pending = [code]
    while pending:
        for cached_value in cache.get(pending.pop(), {}).values():
            resume = cached_value if hasattr(cached_value, "co_name") else cached_value[0]
            if id(resume) not in resumes:  # a break in a loop resumes in the same function
                resumes[id(resume)] = resume
                pending.append(resume)
    return list(resumes.values())


def cache_entries(code: CodeType) -> list[Any]:
    """Return Dynamo's cache entries for a code object; an empty list if this PyTorch does not expose them."""
    read = getattr(importlib.import_module("torch._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    return list(read(code)) if read is not None else []


def has_cached_code(code: CodeType) -> bool:
    """Return whether Dynamo's cache contains compiled code for a code object."""
    return bool(cache_entries(code))


def forget_code_objects(code_objects: Iterable[CodeType]) -> None:
    """Make Dynamo forget that it compiled or skipped the given code objects and their resume functions."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache.cache
    for code in code_objects:
        for compiled_code in (code, *resume_code_objects(code)):
            forget_code(compiled_code)
            if compiled_code in cache:
                cache[compiled_code] = {}  # new resume functions must not depend on an earlier run


def forget_code(code: CodeType) -> None:
    """Make Dynamo forget that it compiled, skipped or saw a code object."""
    importlib.import_module("torch._C._dynamo.eval_frame").reset_code(code)
    tracker: Any = getattr(importlib.import_module("torch._dynamo.convert_frame"), "input_codes", None)
    if id(code) in getattr(tracker, "seen_ids", ()):
        index = next((index for index, reference in enumerate(tracker.seen) if reference() is code), None)
        if index is not None:  # removing the reference disables the callback that would remove the id
            del tracker.seen[index]
            tracker.seen_ids.discard(id(code))


@contextlib.contextmanager
def snapshot_known_code() -> Iterator[list[ref[CodeType]]]:
    """Yield references to the code objects that Dynamo knows when the context begins; a reset empties the list.

    Dynamo knows a code object as soon as it begins to compile it, even if it then skips it.
    """
    tracker = importlib.import_module("torch._dynamo.convert_frame").input_codes
    clear = tracker.clear
    # New references, because Dynamo's own references have callbacks.
    code_references = [weakref.ref(code) for reference in tracker.seen if (code := reference()) is not None]

    def clear_all() -> None:
        code_references.clear()
        clear()

    with patch_attribute(tracker, "clear", clear_all):
        yield code_references


def is_known_code(code: CodeType) -> bool:
    """Return whether Dynamo has begun to compile a code object since its last reset, even if it then skips the code."""
    return code in importlib.import_module("torch._dynamo.convert_frame").input_codes


def state_of_known_code(code: CodeType) -> ref[Any] | None:
    """Return a weak reference to Dynamo's state for a code object; ``None`` if Dynamo does not know the code object.

    A reset of Dynamo deletes the state.
    The state is the callback of Dynamo's own reference to the code object. Only a weak reference to it is returned: a
    callback that outlives a reset would fail.
    """
    tracker = importlib.import_module("torch._dynamo.convert_frame").input_codes
    callback = next((reference.__callback__ for reference in reversed(tracker.seen) if reference() is code), None)
    return weakref.ref(callback) if callback is not None else None


def is_compiler_error(error: BaseException) -> bool:
    """Return whether Dynamo or the backend raised an error while compiling."""
    return isinstance(error, importlib.import_module("torch._dynamo.exc").TorchDynamoException)


def compilation_count() -> int | None:
    """Return the number of compilations since Dynamo was last reset; ``None`` if Dynamo does not count them."""
    counter: Any = getattr(importlib.import_module("torch._dynamo.convert_frame"), "FRAME_COMPILE_COUNTER", None)
    return sum(list(counter.values())) if hasattr(counter, "values") else None


@contextlib.contextmanager
def count_compilations(claim: Claim) -> Iterator[Callable[[], int | None]]:
    """Yield a function that counts the compilations begun for a run so far; ``None`` if Dynamo does not number them."""
    module = importlib.import_module("torch._dynamo.convert_frame")
    if not hasattr(module, "get_compile_id"):  # not in this PyTorch
        yield lambda: None
        return
    counts: list[None] = []

    def count(compile_id: Any, *_: Any) -> Any:
        if claim.covers_this_thread():
            counts.append(None)
            claim.compilations.add(
                (getattr(compile_id, "frame_id", None), getattr(compile_id, "frame_compile_id", None))
            )
        return compile_id

    with replace_result(module, "get_compile_id", count):
        yield lambda: len(counts)


#: The steps of a compilation, each a function that runs once per frame, instruction, operation, graph or file: the
#: module, the class if it is a method, and the name. Each step lasts seconds at most, a whole compilation possibly
#: minutes. Only Python code calls these functions: an exception in a callback from C++ could end the process.
_STEPS = (
    ("torch._dynamo.convert_frame", None, "_compile"),
    ("torch._dynamo.symbolic_convert", "InstructionTranslatorBase", "step"),
    ("torch.fx.interpreter", "Interpreter", "run_node"),
    ("torch._inductor.graph", "GraphLowering", "codegen"),
    ("torch._inductor.cpp_builder", None, "run_compile_cmd"),
)


@contextlib.contextmanager
def call_before_compilation_steps(check: Callable[[], None]) -> Iterator[None]:
    """Call a function before each step of a compilation on this thread, while the context is open.

    To stop the compilation, the function raises a :exc:`BaseException` that is not an :exc:`Exception`, because PyTorch
    may wrap or suppress an :exc:`Exception`. If the function raises one, it is noted as an internal error, and the
    compilation continues.
    """
    pending = [*_STEPS]

    def add_check(owner: Any, name: str) -> None:
        original: Any = inspect.getattr_static(owner, name)

        @functools.wraps(original)
        def step_with_check(*args: Any, **kwargs: Any) -> Any:
            try:
                check()
                add_check_to_imported_steps()
            except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
                report_to_run("checking a step of a compilation", fault)
            return original(*args, **kwargs)

        exit_stack.enter_context(patch_on_thread(owner, name, step_with_check))

    def add_check_to_imported_steps() -> None:
        """Add the check to the steps whose modules are already imported; Inductor is imported when it is first used."""
        for step in pending[:]:
            module, class_name, name = step
            owner = sys.modules.get(module)
            owner = owner if class_name is None else getattr(owner, class_name, None)
            if hasattr(owner, name):
                pending.remove(step)
                add_check(owner, name)

    importlib.import_module("torch._dynamo.convert_frame")
    with contextlib.ExitStack() as exit_stack:
        add_check_to_imported_steps()
        yield


class CompilationCounts(NamedTuple):
    """The numbers of compiled frames, of their graphs, of graph breaks, and of frames on which Dynamo gave up."""

    frames: int
    graphs: int
    breaks: int
    abandoned_frames: int

    def __sub__(self, earlier: CompilationCounts) -> CompilationCounts:
        return CompilationCounts(*(later - earlier_count for later, earlier_count in zip(self, earlier, strict=True)))


@contextlib.contextmanager
def watch_compilations() -> Iterator[Callable[[], CompilationCounts]]:
    """Yield a function that returns the counts so far: Dynamo's own, and the breaks on this thread in the context."""
    # Dynamo's own counter lacks breaks at conditions, and those after which Dynamo skips the rest of a function.
    break_count = 0
    owner = owner_of_log_graph_break()
    tracer = importlib.import_module("torch._dynamo.symbolic_convert").InstructionTranslatorBase
    signature = inspect.signature(owner.log_graph_break)

    def count_logged_break(*args: Any, **kwargs: Any) -> None:
        nonlocal break_count
        error = signature.bind(*args, **kwargs).arguments.get("exc")  # torch >= 2.11
        break_count += not getattr(error, "logged", False)

    def count_skip(*_: Any, **__: Any) -> None:
        nonlocal break_count
        break_count += 1

    with contextlib.ExitStack() as stack:
        stack.enter_context(redirect_calls_on_thread(owner, "log_graph_break", count_logged_break))
        if owner is not tracer:  # torch before 2.10 does not log a break after which it skips the rest of a function
            stack.enter_context(redirect_calls_on_thread(tracer, "step_graph_break", count_skip))
        yield lambda: _compilation_counts(break_count)


def owner_of_log_graph_break() -> Any:
    """Return the object whose attribute ``log_graph_break`` Dynamo calls for each break."""
    module = importlib.import_module("torch._dynamo.symbolic_convert")
    # It is a method of the tracer since torch 2.10, and was a function of the module before.
    tracer = module.InstructionTranslatorBase
    return tracer if hasattr(tracer, "log_graph_break") else module


def _compilation_counts(break_count: int) -> CompilationCounts:
    counters = importlib.import_module("torch._dynamo.utils").counters
    # Dynamo counts a frame that it did not need to compile, such as one without tensors, as "ok".
    compilations = importlib.import_module("torch._dynamo.convert_frame").FRAME_COMPILE_COUNTER
    abandoned = counters["frames"]["total"] - counters["frames"]["ok"]
    return CompilationCounts(
        sum(compilations.values()) - abandoned, counters["stats"]["unique_graphs"], break_count, abandoned
    )
