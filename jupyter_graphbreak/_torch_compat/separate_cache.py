"""Run trials isolated from the caches, tables and counters that the notebook's own functions use."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import types
import weakref
from collections import Counter
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch.utils.weak import WeakIdKeyDictionary

from jupyter_graphbreak._torch_compat.compiled import cache_entries, forget_code, has_cached_code, resume_code_objects
from jupyter_graphbreak._torch_compat.module_calls import wrap_frame_conversions
from jupyter_graphbreak._torch_compat.patching import (
    observe_calls_on_thread,
    patch_attribute,
    patch_on_thread,
    prepare_calls_on_thread,
    redirect_calls_on_thread,
    report_to_run,
)
from jupyter_graphbreak.faults import with_fallback
from jupyter_graphbreak.records.package_paths import OWN_FOLDER
from jupyter_graphbreak.records.records import TRIAL_ENDED_REASON

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping
    from types import CodeType


def is_allowed_in_graph(function: Any) -> bool:
    """Return whether Dynamo recognizes a function by its identity, so it would not recognize a copy."""
    is_allowed = getattr(importlib.import_module("torch._dynamo.trace_rules"), "is_callable_allowed", None)
    return is_allowed is not None and bool(is_allowed(function))


def copy_fx_wraps(namespace: dict[str, Any], copy: dict[str, Any]) -> None:
    """Repeat the registrations that ``torch.fx.wrap`` made for a namespace, for a copy of the namespace."""
    table = getattr(importlib.import_module("torch.fx._symbolic_trace"), "_wrapped_fns_to_patch", {})
    for ident, name in list(table):
        if ident == id(namespace):
            table[id(copy), name] = copy


def forget_fx_wraps(copy_id: int) -> None:
    """Remove the registrations that :func:`copy_fx_wraps` made for the copy with the given id."""
    table = getattr(importlib.import_module("torch.fx._symbolic_trace"), "_wrapped_fns_to_patch", {})
    for key in [key for key in table if key[0] == copy_id]:
        del table[key]


def confine_fx_tracing() -> contextlib.AbstractContextManager[None]:
    """Let ``torch.fx`` replace methods for tracing on this thread only, while the context is open.

    Otherwise, the tracer would receive module calls on all threads, and fail for modules that it does not know.
    """
    patcher: Any = getattr(importlib.import_module("torch.fx._symbolic_trace"), "_Patcher", None)
    if not hasattr(patcher, "patch_method"):  # not in this PyTorch
        return contextlib.nullcontext()
    patch_method, thread = patcher.patch_method, get_ident()

    def plan(self: Any, owner: type, name: str, replacement: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        original = getattr(owner, name)

        @functools.wraps(replacement)
        def dispatch(*args: Any, **kwargs: Any) -> Any:
            return (replacement if get_ident() == thread else original)(*args, **kwargs)

        return patch_method, (self, owner, name, dispatch, *args), kwargs

    return redirect_calls_on_thread(patcher, "patch_method", plan)


#: The modules whose namespaces are copies, by the ids of the namespaces.
_modules_of_copies: weakref.WeakValueDictionary[int, types.ModuleType] = weakref.WeakValueDictionary()


def copy_namespace_to_module(namespace: dict[str, Any]) -> types.ModuleType:
    """Return a module with a copy of a namespace, from which Dynamo reads the globals of functions that use the copy.

    Before torch 2.15, Dynamo takes the globals of a function that it inlines from the module with their ``__name__``,
    which would be the original module.
    """
    module = types.ModuleType(str(namespace.get("__name__", "")))
    vars(module).clear()
    vars(module).update(namespace)
    if "__name__" in namespace:  # without a name, Dynamo reads the namespace directly
        _modules_of_copies[id(vars(module))] = module
    return module


def _redirect_to_copied_globals() -> contextlib.AbstractContextManager[None]:
    """Make Dynamo read and write the copied globals of functions that it inlines, while the context is open."""
    tracers, builders, sources = (
        importlib.import_module(f"torch._dynamo.{name}") for name in ("symbolic_convert", "variables.builder", "source")
    )
    owner, name = tracers.InliningInstructionTranslator, "get_globals_source_and_value"
    original = getattr(owner, name)

    def with_copied_globals(tracer: Any, variable: str, module: types.ModuleType) -> Any:
        alias = tracer.output.install_global_by_id(f"__import_{module.__name__.replace('.', '_dot_')}", module)
        source = sources.GlobalSource(alias)
        return module, builders.VariableBuilder(tracer, source)(module), sources.AttrSource(source, variable)

    def plan(tracer: Any, variable: str) -> Any:
        module = _modules_of_copies.get(id(tracer.f_globals))
        if module is None or vars(module) is not tracer.f_globals:
            return original, (tracer, variable), {}
        return with_copied_globals, (tracer, variable, module), {}

    return redirect_calls_on_thread(owner, name, plan)


def clone_backend(imitated_backend: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a backend that behaves like the given one but has no compiled code in Dynamo's cache."""
    registry = importlib.import_module("torch._dynamo.backends.registry")
    compiler = registry.lookup_backend(imitated_backend) if isinstance(imitated_backend, str) else imitated_backend

    def backend(*args: Any, **kwargs: Any) -> Any:
        return compiler(*args, **kwargs)

    backend.__name__ = (
        imitated_backend
        if isinstance(imitated_backend, str)
        else getattr(imitated_backend, "__name__", type(imitated_backend).__name__)
    )
    return backend


@contextlib.contextmanager
def separate_cache(code_objects: Iterable[CodeType]) -> Iterator[None]:
    """Separate the code that Dynamo compiles in the context from its earlier compilations of the same functions.

    Code in the context must compile with a backend from :func:`clone_backend`. Dynamo forgets the compiled code, its
    globals and the varying sizes when the context ends. If it gave up on the given code, or on other code that it
    knows, it tries again to compile it.
    """
    compilations = ThreadCompilations()
    code_objects = list(code_objects)
    for code in code_objects:
        for compiled_code in (code, *resume_code_objects(code)):
            _allow_compiling(compiled_code)
    for reference in list(importlib.import_module("torch._dynamo.convert_frame").input_codes.seen):
        if (known_code := reference()) is not None:  # the run may reach this code indirectly
            _allow_compiling(known_code)
    with (
        wrap_frame_conversions(_exclude_our_code(code_objects, compilations.isolated_conversion)), restore_counters(),
        remove_new_globals(), _separate_cache_sizes(compilations.earlier_versions), _restore_frame_counts(),
        _disable_reset(), _restore_module_hooks(), _separate_wrapper_code(), restore_eval_frame_override(),
        skip_guard_profiling(), _empty_guard_managers(), _redirect_to_copied_globals(),
    ):  # fmt: skip
        try:
            yield
        finally:
            compilations.forget()


def _exclude_our_code(
    code_objects: Iterable[CodeType], isolated_conversion: Callable[[CodeType], contextlib.AbstractContextManager[None]]
) -> Callable[[CodeType], contextlib.AbstractContextManager[None] | None]:
    """Return a function like ``isolated_conversion`` that returns ``None`` for code of this package.

    Such code may run at a break, for example to capture output. Dynamo would compile and count it.
    """
    user_names = {code.co_name for code in code_objects}

    def make_context(code: CodeType) -> contextlib.AbstractContextManager[None] | None:
        name = code.co_name
        is_user_code = name in user_names or name.startswith("torch_dynamo_resume_in")
        return isolated_conversion(code) if is_user_code or not code.co_filename.startswith(OWN_FOLDER) else None

    return make_context


@contextlib.contextmanager
def remove_new_globals() -> Iterator[None]:
    """When the context ends, remove the globals that Dynamo created in it, because their code does not run again.

    Dynamo itself keeps the globals for its modules and those of unfinished code.
    """
    hooks: Any = getattr(importlib.import_module("torch._dynamo.utils"), "CleanupHook", None)
    tracer = importlib.import_module("torch._dynamo.symbolic_convert").InstructionTranslatorBase
    if not hasattr(hooks, "create") or not hasattr(tracer, "import_source"):  # not in this PyTorch
        yield
        return
    created_hooks: list[Any] = []

    def note_created_hook(hook: Any, *_: Any, **__: Any) -> None:
        created_hooks.append(hook)

    with contextlib.ExitStack() as exit_stack:

        def note_import(tracer: Any, module_name: str, *_: Any, **__: Any) -> None:
            namespace, alias = tracer.output.global_scope, f"__import_{module_name.replace('.', '_dot_')}"
            if alias not in namespace:
                exit_stack.callback(namespace.pop, alias, None)

        with (
            observe_calls_on_thread(hooks, "create", note_created_hook),
            prepare_calls_on_thread(tracer, "import_source", note_import),
        ):
            try:
                yield
            finally:
                for hook in created_hooks:
                    hook.scope.pop(hook.name, None)
                    hook.scope = {hook.name: None}  # Dynamo calls the hook when the code is deleted


class ThreadCompilations:
    """Keeps the compilations of a thread apart from Dynamo's earlier ones and from its record of varying sizes."""

    def __init__(self) -> None:
        #: The ids of the versions that were already compiled, for each code object that Dynamo reached.
        self._earlier_versions: MutableMapping[CodeType, set[int]] = WeakIdKeyDictionary()
        self._profile: dict[str, Any] = {}
        self._constant_floats: set[str] = set()
        # If this PyTorch lacks something, fail before anything is compiled.
        importlib.import_module("torch._C._dynamo.eval_frame").reset_code  # noqa: B018
        importlib.import_module("torch._dynamo.pgo")

    @contextlib.contextmanager
    def isolated_conversion(self, code: CodeType) -> Iterator[None]:
        """Isolate the changes that the conversion of one frame makes."""
        if code not in self._earlier_versions:
            self._earlier_versions[code] = {id(entry.guard_manager) for entry in cache_entries(code)}
        with _swap_size_profile(self._profile), _swap_constant_floats(self._constant_floats):
            yield

    def earlier_versions(self, code: CodeType) -> Collection[int]:
        """Return the ids of the guard managers of a code object's versions that preceded its first conversion here."""
        return self._earlier_versions.get(code, ())

    def forget(self) -> None:
        """Make Dynamo forget the compiled code."""
        for code, managers in self._earlier_versions.items():
            if not managers:
                forget_code(code)
            for entry in cache_entries(code):
                if id(entry.guard_manager) not in managers:
                    _invalidate(entry)
            if managers:
                _resume_compiling(code)


def skip_guard_profiling() -> contextlib.AbstractContextManager[None]:
    """Prevent Dynamo from timing guards, for which it flushes the processor's caches, while the context is open.

    The timing takes about 16 ms, more than half of the time to compile a small function.
    """
    guards = importlib.import_module("torch._dynamo.guards")
    if not hasattr(guards, "profile_guard_manager"):  # not in this PyTorch
        return contextlib.nullcontext()
    return patch_on_thread(guards, "profile_guard_manager", lambda *_: 0.0)


@contextlib.contextmanager
def _empty_guard_managers() -> Iterator[None]:
    """When the context ends, empty the managers of the guards that Dynamo created in it.

    The finalizers of the objects that the code was compiled for keep the managers, and with them all globals of that
    code, until these objects are deleted. Modules and classes usually never are.
    """
    manager_class = getattr(importlib.import_module("torch._dynamo.guards"), "CheckFunctionManager", None)
    if manager_class is None:  # not in this PyTorch
        yield
        return
    managers: list[Any] = []

    def collect(_: None, manager: Any, *__: Any, **___: Any) -> None:
        managers.append(manager)

    try:
        with observe_calls_on_thread(manager_class, "__init__", collect):
            yield
    finally:
        for manager in managers:
            vars(manager).clear()


@contextlib.contextmanager
def forget_new_backends() -> Iterator[None]:
    """Make Dynamo forget the backends used in the context, which it would keep for :func:`torch._dynamo.reset`."""
    module = importlib.import_module("torch._dynamo.eval_frame")
    cached_backends: Any = getattr(module, "cached_backends", None)
    context_class = getattr(module, "_TorchDynamoContext", None)
    # Not every PyTorch has these.
    if cached_backends is None or context_class is None or not hasattr(module, "innermost_backend"):
        yield
        return
    ids_before = frozenset(cached_backends)
    added_ids: set[int] = set()

    def collect(_: None, context: Any, *__: Any, **___: Any) -> None:
        added_ids.add(id(module.innermost_backend(context.callback)))

    try:
        with observe_calls_on_thread(context_class, "__init__", collect):
            yield
    finally:
        for backend_id in added_ids - ids_before:
            cached_backends.pop(backend_id, None)


def _allow_compiling(code: CodeType) -> None:
    """Let Dynamo compile code again, even code that it gave up on before."""
    if has_cached_code(code):
        _resume_compiling(code)
    else:
        forget_code(code)


def _resume_compiling(code: CodeType) -> None:
    """Make Dynamo recompile code for which it stopped because of a recompile limit."""
    kinds = importlib.import_module("torch._dynamo.types")
    strategy = kinds.FrameExecStrategy(kinds.FrameAction.DEFAULT, kinds.FrameAction.DEFAULT)
    importlib.import_module("torch._C._dynamo.eval_frame").set_code_exec_strategy(code, strategy)


def _separate_cache_sizes(
    earlier_versions: Callable[[CodeType], Collection[int]],
) -> contextlib.AbstractContextManager[None]:
    """Apply Dynamo's recompile limits as if Dynamo had compiled nothing before.

    ``earlier_versions`` returns the guard manager ids of the earlier compiled versions of a code object.
    """
    module, sizes = (importlib.import_module(f"torch._dynamo.{name}") for name in ("convert_frame", "cache_size"))
    compute = getattr(module, "compute_cache_size", None)
    if compute is None:  # in this PyTorch, earlier versions count
        return contextlib.nullcontext()

    def size_without_earlier(frame: Any, *args: Any, **kwargs: Any) -> Any:
        size = compute(frame, *args, **kwargs)
        managers = earlier_versions(frame.f_code)
        entries = [entry for entry in cache_entries(frame.f_code) if id(entry.guard_manager) in managers]
        reductions = dict.fromkeys(vars(size), len(entries))
        reductions["num_cache_entries_with_same_id_matched_objs"] = sum(
            sizes._has_same_id_matched_objs(frame, entry) for entry in entries
        )
        return dataclasses.replace(
            size, **{name: max(0, getattr(size, name) - count) for name, count in reductions.items()}
        )

    size = with_fallback("counting the versions of a function", size_without_earlier, compute, report_to_run)
    return patch_on_thread(module, "compute_cache_size", size)


@contextlib.contextmanager
def restore_counters() -> Iterator[None]:
    """Restore Dynamo's counters, such as the number of graph breaks, but keep the counts of other threads."""
    counters = importlib.import_module("torch._dynamo.utils").counters
    counters_before = {name: counter.copy() for name, counter in counters.items()}
    thread = get_ident()

    @contextlib.contextmanager
    def keep_other_threads(_: CodeType) -> Iterator[None]:
        if get_ident() == thread:
            yield
            return
        counters_at_start = {name: counter.copy() for name, counter in counters.items()}
        try:
            yield
        finally:
            for name, counter in counters.items():
                added_counts = counter - counters_at_start.get(name, Counter())
                if added_counts:
                    counters_before.setdefault(name, Counter()).update(added_counts)

    try:
        with wrap_frame_conversions(keep_other_threads, includes_other_threads=True):
            yield
    finally:
        counters.clear()
        counters.update(counters_before)


@contextlib.contextmanager
def _restore_frame_counts() -> Iterator[None]:
    """Restore each frame's number of compilations, because Dynamo limits it; keep those of other threads."""
    module = importlib.import_module("torch._dynamo.convert_frame")
    counter: Any = getattr(module, "FRAME_COMPILE_COUNTER", None)
    if counter is None or not hasattr(module, "get_compile_id"):  # not in this PyTorch
        yield
        return
    added_counts: Counter[Any] = Counter()

    def count(compile_id: Any, *_: Any, **__: Any) -> None:
        added_counts[compile_id.frame_id] += 1

    try:
        with observe_calls_on_thread(module, "get_compile_id", count):
            yield
    finally:
        counter.subtract(added_counts)


def _invalidate(cache_entry: Any) -> None:
    """Invalidate a cache entry, as Dynamo does when an object that it was compiled for is deleted.

    The entry stays in Dynamo's list. It claims to be compiled for a different object, with a name that no function has,
    so that it does not count towards the recompile limit.
    """
    manager = cache_entry.guard_manager
    deleted_manager = importlib.import_module("torch._dynamo.guards").DeletedGuardManagerWrapper(TRIAL_ENDED_REASON)
    deleted_manager.id_matched_objs = {"": weakref.ref(_invalidate)}
    if getattr(manager, "extra_state", None) is not None:
        manager.extra_state.invalidate(manager.cache_entry, deleted_manager)


def _separate_wrapper_code() -> contextlib.AbstractContextManager[None]:
    """Give each wrapper that Dynamo puts around a module or a callable object a separate code object.

    Otherwise they share one code object and its recompile limit, which the notebook may have used up.
    """
    external_utils = importlib.import_module("torch._dynamo.external_utils")
    original = external_utils.wrap_inline

    @functools.wraps(original)
    def wrap_inline(fn: Callable[..., Any]) -> Any:
        wrapper = original(fn)
        wrapper.__code__ = wrapper.__code__.replace()
        return wrapper

    return patch_on_thread(external_utils, "wrap_inline", wrap_inline)


@contextlib.contextmanager
def _restore_module_hooks() -> Iterator[None]:
    """Remove the global module hooks that a failed export leaves behind (torch 2.9)."""
    variables = vars(importlib.import_module("torch.nn.modules.module"))
    tables = [table for name, table in variables.items() if name.startswith("_global_") and isinstance(table, dict)]
    copies = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, hooks in zip(tables, copies, strict=True):
            table.clear()
            table.update(hooks)


@contextlib.contextmanager
def restore_eval_frame_override() -> Iterator[None]:
    """Remove the state that torch 2.11 leaves when it refuses to run a function compiled with ``fullgraph=True``.

    ``torch.jit.trace`` and ``torch.fx.symbolic_trace`` cause this. Otherwise, Dynamo would no longer compile nested
    frames.
    """
    frames = importlib.import_module("torch._C._dynamo.eval_frame")
    override = getattr(frames, "set_eval_frame_override", None)
    if override is None:
        yield
        return
    previous = override(frames._EvalFrameOverride.NONE)
    override(previous)
    try:
        yield
    finally:
        override(previous)


def _disable_reset() -> contextlib.AbstractContextManager[None]:
    """Disable ``torch._dynamo.reset``: strict export calls it, and it would delete all compiled code."""
    return patch_on_thread(importlib.import_module("torch._dynamo"), "reset", lambda: None)


@contextlib.contextmanager
def _swap_size_profile(sizes: dict[str, Any]) -> Iterator[None]:
    """Give Dynamo a separate, initially empty record of varying sizes while the context is open.

    When the context ends, the sizes are stored in ``sizes`` for the next context.
    """
    profile = importlib.import_module("torch._dynamo.pgo")
    names = [name for name in ("_CODE_STATE", "_INIT_CODE_STATE") if hasattr(profile, name)]
    values_before = {name: getattr(profile, name) for name in names}
    for name in names:
        setattr(profile, name, sizes.get(name))
    try:
        yield
    finally:
        sizes.update((name, getattr(profile, name)) for name in names)
        for name, value in values_before.items():
            setattr(profile, name, value)


def _swap_constant_floats(names: set[str]) -> contextlib.AbstractContextManager[None]:
    """Use a different set of the symbols of numbers that must be constants, while the context is open.

    PyTorch does not empty the set after a compilation, and other functions have symbols with the same names.
    """
    state: Any = getattr(importlib.import_module("torch._dynamo.symbolic_convert"), "TensorifyState", None)
    if not hasattr(state, "force_specializations"):  # not in this PyTorch
        return contextlib.nullcontext()
    return patch_attribute(state, "force_specializations", names)
