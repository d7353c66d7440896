"""How torch is set, and how it is set otherwise for a while: backends, modes, settings of Dynamo, its log output."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import warnings
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import redirected_here, replaced_result, tell_fault
from jupyter_graphbreak._torch_compat.threads import same_run
from jupyter_graphbreak.faults import with_fallback
from jupyter_graphbreak.records.package_paths import package_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Settings that matter to every report.
_ALWAYS_SAID = ("nested_graph_breaks", "recompile_limit")
#: Settings that this module has set for a while: to what, and what they were before.
_set_by_us: dict[str, tuple[Any, Any]] = {}


def dynamo_settings() -> tuple[dict[str, Any], list[str]]:
    """Return settings of ``torch._dynamo.config``, as they are now for the code that runs.

    What this module has set for a while counts as it was before: it is no choice of the user's.

    Returns
    -------
    dict
        The settings whose value is not the default, and two that always matter.
    list of str
        The names among them whose value is the default.
    """
    config = importlib.import_module("torch._dynamo.config")
    entries = getattr(config, "_config", {})
    values: dict[str, Any] = {}
    defaults: list[str] = []
    for name, now in getattr(config, "get_config_copy", dict)().items():
        ours, before = _set_by_us.get(name, (None, None))
        value = before if name in _set_by_us and now == ours else now
        if name.startswith("_") or not isinstance(value, bool | int | float | str | type(None)):
            continue
        # Not config._is_default: a setting that was set, and set back, is none that anybody changed.
        is_default = name not in entries or value == getattr(entries[name], "default", value)
        if not is_default:
            values[name] = value
        elif name in _ALWAYS_SAID:
            defaults.append(name)
    return {**values, **{name: getattr(config, name, None) for name in _ALWAYS_SAID}}, defaults


@contextlib.contextmanager
def _patched_settings(**settings: Any) -> Iterator[None]:
    """Set settings of Dynamo that this release has, while the context is open; what the code itself sets stays."""
    config = importlib.import_module("torch._dynamo.config")
    before = {name: getattr(config, name) for name in settings if hasattr(config, name)}
    ours = {name: (settings[name], value) for name, value in before.items() if name not in _set_by_us}
    try:
        for name in before:
            setattr(config, name, settings[name])
        _set_by_us.update(ours)
        yield
    finally:
        for name in ours:
            _set_by_us.pop(name, None)
        for name, value in before.items():
            if getattr(config, name) == settings[name]:
                setattr(config, name, value)


def backends() -> list[str]:
    """Return the names that ``torch.compile(backend=...)`` takes.

    Raises
    ------
    ValueError
        If this torch does not say.
    """
    return sorted(set(_listed("torch._dynamo", "list_backends", "backends", exclude_tags=())))


def modes() -> list[str]:
    """Return the names that ``torch.compile(mode=...)`` takes.

    Raises
    ------
    ValueError
        If this torch does not say.
    """
    return _listed("torch._inductor", "list_mode_options", "modes")


def _listed(module: str, function: str, what: str, **arguments: Any) -> list[str]:
    try:
        return [str(name) for name in getattr(importlib.import_module(module), function)(**arguments)]
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"this torch does not say which {what} it has ({type(error).__name__}: {error})") from None


#: Loggers on which torch writes about its compiling.
_TELLS = ("torch._dynamo", "torch._export", "torch._functorch", "torch._inductor", "torch._logging",
          "torch._subclasses", "torch.export", "torch.fx")  # fmt: skip


def tells_of_compiling(logger: str) -> bool:
    """Whether torch writes about its compiling on a logger."""
    return logger == "torch.__trace" or logger.startswith(_TELLS)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what torch logs of its compiling on this thread off the user's screen; the structured trace goes on."""
    loggers = [log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)]
    handlers = {
        handler
        for log in loggers
        if log.name.split(".")[0] == "torch" and log.name != "torch.__trace"
        for handler in log.handlers
    }

    thread = get_ident()

    def is_shown(record: logging.LogRecord) -> bool:
        return get_ident() != thread or not record.name.startswith(_TELLS)

    shown = with_fallback("reading logs", is_shown, lambda _: True, tell_fault)
    for handler in handlers:
        handler.addFilter(shown)
    try:
        with _to_be_said_again():
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(shown)


@contextlib.contextmanager
def _to_be_said_again() -> Iterator[None]:
    """Have torch forget that it has said, while the context is open, what it says once in a process."""
    said: Any = getattr(sys.modules.get("torch._dynamo.utils"), "warn_once_cache", None)
    before = set(said) if isinstance(said, set) else None
    tensors = getattr(sys.modules.get("torch._dynamo.variables.tensor"), "TensorVariable", None)
    cached: list[Any] = [
        getattr(tensors, "_warn_capture_scalar_outputs", None),
        getattr(sys.modules.get("torch._logging._internal"), "warning_once", None),
    ]
    silent = [once for once in cached if hasattr(once, "cache_clear") and not once.cache_info().currsize]
    try:
        yield
    finally:
        if before is not None:
            said.intersection_update(before)
        for once in silent:
            once.cache_clear()


@contextlib.contextmanager
def uncompiled_output() -> Iterator[None]:
    """Hide what torch logs and warns of while it compiles (the report has it); NumPy draws its own numbers."""
    with quiet(), _warnings_of_compiling_unseen(), _patched_settings(use_numpy_random_stream=True):
        yield


_COMPILING = ("torch._dynamo", "torch._functorch", "torch._inductor", "torch._subclasses")
_FOLDERS_OF_COMPILING = tuple(f"{name.replace('.', '/')}/" for name in _COMPILING)


def not_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that Dynamo does not look at, when compiled code comes to call it."""
    made: Callable[..., Any] = importlib.import_module("torch._dynamo").disable(function)
    return made


def warns_of_compiling(filename: str) -> bool:
    """Whether a warning from a file is torch's about its compiling."""
    return (package_paths().module_path(filename) or "").startswith(_FOLDERS_OF_COMPILING)


@contextlib.contextmanager
def _warnings_of_compiling_unseen() -> Iterator[None]:
    """Show nothing that torch warns of while it compiles on this thread, and let it warn again the next time.

    The list of filters stays alone: code may read it, and each change of it makes Python forget what it has shown.
    """
    registries = {
        name: dict(getattr(module, "__warningregistry__", {}))
        for name, module in list(sys.modules.items())
        if name.startswith(_COMPILING)
    }

    @not_compiled
    def drop_those_of_compiling(message: Any) -> Any:
        return (_nothing, (), {}) if warns_of_compiling(message.filename) else None

    try:
        with redirected_here(warnings, "_showwarnmsg", drop_those_of_compiling):
            yield
    finally:
        for name, registry in registries.items():
            now = getattr(sys.modules.get(name), "__warningregistry__", None)
            if now is not None:
                now.clear()
                now.update(registry)


def _nothing() -> None:
    return None


def errors_suppressed() -> contextlib.AbstractContextManager[None]:
    """Have Dynamo run eagerly what it fails to compile while the context is open."""
    return _patched_settings(suppress_errors=True)


@contextlib.contextmanager
def grad_mode_kept() -> Iterator[None]:
    """Set the grad mode back when an error leaves the context: a graph that fails within ``no_grad`` leaves it off."""
    import torch

    before = torch.is_grad_enabled()
    try:
        yield
    except BaseException:
        torch.set_grad_enabled(before)
        raise


def eager_random_numbers() -> contextlib.AbstractContextManager[Any]:
    """Have inductor draw the random numbers that eager draws from the same seed, while the context is open."""
    config: Any = importlib.import_module("torch._inductor.config")
    made: contextlib.AbstractContextManager[Any] = config.patch(fallback_random=True)
    return made


def stance() -> str:
    """Return the stance that is in force, which decides what is compiled; ``default`` where torch does not say."""
    held = getattr(importlib.import_module("torch._dynamo.eval_frame"), "_stance", None)
    return str(getattr(held, "stance", "default"))


def held_back() -> str:
    """Return the sentence that says why ``torch.compile`` compiles nothing, or less; empty where nothing holds it back.

    ``torch._dynamo.eval_frame`` asks the same: whether it is switched off, and the stance.
    """
    off = "torch.compile is switched off ({}): nothing is compiled."
    if getattr(importlib.import_module("torch._dynamo.config"), "disable", False):
        return off.format("TORCH_COMPILE_DISABLE=1, or torch._dynamo.config.disable")
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        return off.format("TORCHDYNAMO_DISABLE=1")
    if (held := stance()) == "default":
        return ""
    effect = "nothing is compiled" if held == "force_eager" else "it decides what is compiled"
    return f'The stance is "{held}" (torch.compiler.set_stance): {effect}.'


@contextlib.contextmanager
def forced_backend(backend: str | Callable[..., Any] | None) -> Iterator[str]:
    """Make every ``torch.compile`` of this run use one backend while the context is open; ``None`` changes nothing.

    Yields
    ------
    str
        The stance of the user's because of which the backend has no effect, as it can hold none; else the empty string.
    """
    held = stance()
    if backend is None or held != "default":
        yield held if backend is not None else ""
        return
    frames = importlib.import_module("torch._dynamo.eval_frame")
    catch_errors_wrapper = importlib.import_module("torch._dynamo.convert_frame").catch_errors_wrapper
    compiler, is_here = frames.get_compiler_fn(backend), same_run()

    def with_backend(made: Any, callback: Any) -> Any:
        if callback in {None, False} or frames._stance.stance != "default" or frames._stance.backend is not None:
            return made  # nothing is compiled, or the code has set a stance that is to stay
        if not is_here():
            return made
        # Unlike the stance with a backend, this keeps fullgraph=True, and leaves other threads alone.
        clone = getattr(callback._torchdynamo_orig_backend, "_clone_with_backend", None)
        if clone is None:  # another torch
            return frames._create_wrapped_callback(compiler)
        return catch_errors_wrapper(clone(compiler), callback.hooks)

    with replaced_result(frames, "_callback_from_stance", with_backend):
        yield ""


@contextlib.contextmanager
def settings_applied(settings: Mapping[str, Any]) -> Iterator[None]:
    """Apply settings while the context is open.

    Parameters
    ----------
    settings : mapping
        Dotted names in full (``torch._dynamo.config.capture_scalar_outputs``) and their values. A list of dotted names
        of functions is added to the set that the setting holds.

    Raises
    ------
    LookupError
        If this torch does not have such a setting, or there is no such function.
    """
    before: list[tuple[Any, str, Any]] = []
    try:
        for dotted, value in settings.items():
            home, _, name = dotted.rpartition(".")
            module = importlib.import_module(home)
            if not hasattr(module, name):
                raise LookupError(f"this torch has no setting {dotted}")
            old = getattr(module, name)
            new = type(old)([*old, *map(named_object, value)]) if isinstance(value, list) else value
            before.append((module, name, old))
            setattr(module, name, new)
        yield
    finally:
        for module, name, old in reversed(before):
            setattr(module, name, old)


def named_object(dotted: str) -> Any:
    """Return the object of a dotted name.

    Raises
    ------
    LookupError
        If there is none.
    """
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        try:
            for part in parts[count:]:
                found = getattr(found, part)
        except AttributeError:
            continue
        return found
    raise LookupError(f"there is no {dotted}")
