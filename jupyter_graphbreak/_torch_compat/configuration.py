"""Read and temporarily change PyTorch's configuration: backends, modes, Dynamo's settings, log output."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import warnings
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import redirect_calls_on_thread, replace_result, report_to_run
from jupyter_graphbreak._torch_compat.threads import current_run_check
from jupyter_graphbreak.faults import with_fallback
from jupyter_graphbreak.records.package_paths import package_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Settings that every report shows.
_ALWAYS_REPORTED = ("nested_graph_breaks", "recompile_limit")
#: Settings that this module has changed temporarily, each with the temporary and the previous value.
_our_settings: dict[str, tuple[Any, Any]] = {}


def dynamo_settings() -> tuple[dict[str, Any], list[str]]:
    """Return Dynamo's settings that differ from the default, and two that every report shows.

    For a setting that this module has changed temporarily, the value is the previous one, which is the user's choice.
    The second result names those of the two settings that have their default value.
    """
    config = importlib.import_module("torch._dynamo.config")
    entries = getattr(config, "_config", {})
    values: dict[str, Any] = {}
    defaults: list[str] = []
    for name, current in getattr(config, "get_config_copy", dict)().items():
        temporary, previous = _our_settings.get(name, (None, None))
        value = previous if name in _our_settings and current == temporary else current
        if name.startswith("_") or not isinstance(value, bool | int | float | str | type(None)):
            continue
        # Not config._is_default: it is false for a setting that was explicitly set to its default.
        is_default = name not in entries or value == getattr(entries[name], "default", value)
        if not is_default:
            values[name] = value
        elif name in _ALWAYS_REPORTED:
            defaults.append(name)
    return {**values, **{name: getattr(config, name, None) for name in _ALWAYS_REPORTED}}, defaults


@contextlib.contextmanager
def _patch_dynamo_config(**settings: Any) -> Iterator[None]:
    """Change Dynamo settings while the context is open; values that the code sets in the meantime remain."""
    config = importlib.import_module("torch._dynamo.config")
    values_before = {name: getattr(config, name) for name in settings if hasattr(config, name)}
    temporary = {name: (settings[name], value) for name, value in values_before.items() if name not in _our_settings}
    try:
        for name in values_before:
            setattr(config, name, settings[name])
        _our_settings.update(temporary)
        yield
    finally:
        for name in temporary:
            _our_settings.pop(name, None)
        for name, value in values_before.items():
            if getattr(config, name) == settings[name]:
                setattr(config, name, value)


def backend_names() -> list[str]:
    """Return the names that ``torch.compile(backend=...)`` accepts."""
    return sorted(set(_names_from_torch("torch._dynamo", "list_backends", "backends", exclude_tags=())))


def mode_names() -> list[str]:
    """Return the names that ``torch.compile(mode=...)`` accepts."""
    return _names_from_torch("torch._inductor", "list_mode_options", "modes")


def _names_from_torch(module: str, function: str, kind: str, **arguments: Any) -> list[str]:
    try:
        return [str(name) for name in getattr(importlib.import_module(module), function)(**arguments)]
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"this PyTorch does not list its {kind} ({type(error).__name__}: {error})") from None


#: Loggers for messages about compilation.
_COMPILER_LOGGERS = ("torch._dynamo", "torch._export", "torch._functorch", "torch._inductor", "torch._logging",
          "torch._subclasses", "torch.export", "torch.fx")  # fmt: skip


def is_compiler_logger(logger: str) -> bool:
    """Return whether a logger is for messages about compilation."""
    return logger == "torch.__trace" or logger.startswith(_COMPILER_LOGGERS)


def ignore_set_logs() -> None:
    """Turn ``torch._logging.set_logs`` into a function that does nothing, in a process that runs one script."""
    importlib.import_module("torch._logging").__dict__["set_logs"] = lambda **_: None


@contextlib.contextmanager
def hide_compiler_logs() -> Iterator[None]:
    """Hide log messages about compilation on this thread; the structured trace continues."""
    loggers = [log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)]
    handlers = {
        handler
        for log in loggers
        if log.name.split(".")[0] == "torch" and log.name != "torch.__trace"
        for handler in log.handlers
    }

    thread = get_ident()

    def is_shown(record: logging.LogRecord) -> bool:
        return get_ident() != thread or not record.name.startswith(_COMPILER_LOGGERS)

    log_filter = with_fallback("filtering log messages", is_shown, lambda _: get_ident() != thread, report_to_run)
    for handler in handlers:
        handler.addFilter(log_filter)
    try:
        with _restore_warn_once_caches():
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(log_filter)


@contextlib.contextmanager
def _restore_warn_once_caches() -> Iterator[None]:
    """Restore PyTorch's warn-once caches when the context ends, so that the program still gets each warning once."""
    warn_once_cache: Any = getattr(sys.modules.get("torch._dynamo.utils"), "warn_once_cache", None)
    warned_before = set(warn_once_cache) if isinstance(warn_once_cache, set) else None
    tensors = getattr(sys.modules.get("torch._dynamo.variables.tensor"), "TensorVariable", None)
    caches: list[Any] = [
        getattr(tensors, "_warn_capture_scalar_outputs", None),
        getattr(sys.modules.get("torch._logging._internal"), "warning_once", None),
    ]
    unused_caches = [cache for cache in caches if hasattr(cache, "cache_clear") and not cache.cache_info().currsize]
    try:
        yield
    finally:
        if warned_before is not None:
            warn_once_cache.intersection_update(warned_before)
        for cache in unused_caches:
            cache.cache_clear()


@contextlib.contextmanager
def imitate_eager_output() -> Iterator[None]:
    """Hide log messages and warnings about compilation, and make compiled code use NumPy's own random stream."""
    with hide_compiler_logs(), _hide_compiler_warnings(), _patch_dynamo_config(use_numpy_random_stream=True):
        yield


_COMPILER_MODULES = ("torch._dynamo", "torch._functorch", "torch._inductor", "torch._subclasses")
_OPERATOR_MODULE = "torch._ops"
_COMPILER_FOLDERS = tuple(f"{name.replace('.', '/')}/" for name in _COMPILER_MODULES)


def disable_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that Dynamo does not trace when compiled code calls it."""
    disabled_function: Callable[..., Any] = importlib.import_module("torch._dynamo").disable(function)
    return disabled_function


def is_compiler_warning(filename: str) -> bool:
    """Return whether a warning from a file is about compilation."""
    return (package_paths().module_path(filename) or "").startswith(_COMPILER_FOLDERS)


@contextlib.contextmanager
def _hide_compiler_warnings() -> Iterator[None]:
    """Hide warnings about compilation on this thread; they can appear again after the context.

    The warning filters are not changed: code may read them, and any change makes Python repeat earlier warnings.
    """
    registries = {
        name: dict(getattr(module, "__warningregistry__", {}))
        for name, module in sys.modules.copy().items()
        if name.startswith((*_COMPILER_MODULES, _OPERATOR_MODULE))
    }
    # Since PyTorch 2.15, operators are called through this module, also while Dynamo traces.
    operators = getattr(sys.modules.get(_OPERATOR_MODULE), "__file__", None)

    @disable_dynamo
    def drop_compiler_warnings(message: Any) -> Any:
        is_hidden = message.filename == operators or is_compiler_warning(message.filename)
        return (lambda: None, (), {}) if is_hidden else None

    try:
        with redirect_calls_on_thread(warnings, "_showwarnmsg", drop_compiler_warnings):
            yield
    finally:
        for name, registry in registries.items():
            current = getattr(sys.modules.get(name), "__warningregistry__", None)
            if current is not None:
                current.clear()
                current.update(registry)


def suppress_compile_errors() -> contextlib.AbstractContextManager[None]:
    """Make Dynamo run code eagerly if compiling it fails, while the context is open."""
    return _patch_dynamo_config(suppress_errors=True)


def use_eager_random_numbers() -> contextlib.AbstractContextManager[Any]:
    """Make Inductor draw the same random numbers as eager mode from the same seed, while the context is open."""
    config: Any = importlib.import_module("torch._inductor.config")
    patch: contextlib.AbstractContextManager[Any] = config.patch(fallback_random=True)
    return patch


def save_generator_states() -> Callable[[], None]:
    """Return a function that restores the states of PyTorch's random generators, of CUDA's only if initialized."""
    torch: Any = importlib.import_module("torch")
    on_cpu = torch.get_rng_state()
    on_cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def restore() -> None:
        torch.set_rng_state(on_cpu)
        if on_cuda is not None:
            torch.cuda.set_rng_state_all(on_cuda)

    return restore


def current_stance() -> str:
    """Return the current stance of ``torch.compiler``; ``default`` if this PyTorch has no stances."""
    current = getattr(importlib.import_module("torch._dynamo.eval_frame"), "_stance", None)
    return str(getattr(current, "stance", "default"))


def why_compile_is_disabled() -> str:
    """Return why ``torch.compile`` compiles nothing or only a part, as a sentence; empty if it is not restricted."""
    sentence = "torch.compile is switched off ({}): nothing is compiled."
    if getattr(importlib.import_module("torch._dynamo.config"), "disable", False):
        return sentence.format("TORCH_COMPILE_DISABLE=1, or torch._dynamo.config.disable")
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        return sentence.format("TORCHDYNAMO_DISABLE=1")
    if (current := current_stance()) == "default":
        return ""
    effect = "nothing is compiled" if current == "force_eager" else "it decides what is compiled"
    return f'The stance is "{current}" (torch.compiler.set_stance): {effect}.'


@contextlib.contextmanager
def force_backend(backend: str | Callable[..., Any] | None) -> Iterator[str]:
    """Make every ``torch.compile`` of this run use one backend while the context is open; ``None`` changes nothing.

    Yield the user's stance if it prevents the backend from having an effect, else the empty string.
    """
    current = current_stance()
    if backend is None or current != "default":
        yield current if backend is not None else ""
        return
    frames = importlib.import_module("torch._dynamo.eval_frame")
    catch_errors_wrapper = importlib.import_module("torch._dynamo.convert_frame").catch_errors_wrapper
    compiler, is_in_run = frames.get_compiler_fn(backend), current_run_check()

    def with_backend(result: Any, callback: Any) -> Any:
        if callback in {None, False} or frames._stance.stance != "default" or frames._stance.backend is not None:
            return result  # nothing is compiled, or the code has set a stance
        if not is_in_run():
            return result
        # Unlike a stance with a backend, this keeps fullgraph=True and does not affect other threads.
        clone = getattr(callback._torchdynamo_orig_backend, "_clone_with_backend", None)
        if clone is None:  # not in this PyTorch
            return frames._create_wrapped_callback(compiler)
        return catch_errors_wrapper(clone(compiler), callback.hooks)

    with replace_result(frames, "_callback_from_stance", with_backend):
        yield ""


@contextlib.contextmanager
def apply_settings(settings: Mapping[str, Any]) -> Iterator[None]:
    """Apply settings, given by full dotted name (``torch._dynamo.config.capture_scalar_outputs``), in the context.

    If a value is a list, it contains dotted names of functions, which are added to the current value. A LookupError is
    raised if this PyTorch has no such setting, or if there is no such function.
    """
    saved_values: list[tuple[Any, str, Any]] = []
    try:
        for dotted_name, value in settings.items():
            module_name, _, name = dotted_name.rpartition(".")
            module = importlib.import_module(module_name)
            if not hasattr(module, name):
                raise LookupError(f"this PyTorch has no setting {dotted_name}")
            old_value = getattr(module, name)
            new_value = type(old_value)([*old_value, *map(named_object, value)]) if isinstance(value, list) else value
            saved_values.append((module, name, old_value))
            setattr(module, name, new_value)
        yield
    finally:
        for module, name, old_value in reversed(saved_values):
            setattr(module, name, old_value)


def named_object(dotted_name: str) -> Any:
    """Return the object that a dotted name refers to."""
    parts = dotted_name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        try:
            for part in parts[count:]:
                value = getattr(value, part)
        except AttributeError:
            continue
        return value
    raise LookupError(f"there is no {dotted_name}")
