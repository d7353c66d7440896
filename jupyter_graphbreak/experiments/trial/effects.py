"""Capture the effects that a call has besides its value: output, warnings, log records, random numbers and modes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import io
import logging
import marshal
import random
import re
import sys
import threading
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.configuration import is_compiler_logger, is_compiler_warning
from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.patching import patch_attribute, redirect_calls_on_thread
from jupyter_graphbreak.experiments.trial.other_threads import (
    filters_version,
    isolate_warnings,
    redirect_thread_streams,
    warning_registries,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def capture_loguru_messages(
    receive: Callable[[tuple[str, str, str]], None],
) -> contextlib.AbstractContextManager[None]:
    """Capture the loguru messages of this thread, instead of sending them to the sinks, while the context is open."""
    handler_class = getattr(sys.modules.get("loguru._handler"), "Handler", None)
    if not hasattr(handler_class, "emit"):
        return contextlib.nullcontext()

    def capture(_: Any, record: Any, *__: Any, **___: Any) -> Any:
        return receive, ((str(record["name"]), record["level"].name, record["message"]),), {}

    return redirect_calls_on_thread(handler_class, "emit", capture)


@dataclass
class Effects:
    """The output, warnings and log records of a call.

    ``warnings`` includes PyTorch's warnings about compiling; ``log_records`` and ``order`` leave out its messages about
    compiling. A log record consists of its logger, level and message. ``order`` contains all effects in order, each as
    its kind ("stdout", "stderr", "warning" or "log") and its text.
    """

    stdout: str = ""
    stderr: str = ""
    warnings: list[warnings.WarningMessage] = field(default_factory=list)
    log_records: list[tuple[str, str, str]] = field(default_factory=list)
    order: list[tuple[str, str]] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Append an effect to ``order``, and join consecutive output to the same stream."""
        if self.order and self.order[-1][0] == kind and kind in {"stdout", "stderr"}:
            self.order[-1] = (kind, self.order[-1][1] + text)
        elif text:
            self.order.append((kind, text))

    @property
    def warning_messages(self) -> list[tuple[str, str]]:
        """The category and the text of each warning, except PyTorch's warnings about compiling."""
        return [
            (warning.category.__name__, _text_of_warning(warning.message))
            for warning in self.warnings
            if not is_compiler_warning(warning.filename)
        ]


class _OrderedStream(io.StringIO):
    """A stream that also records its output in the order of all effects."""

    def __init__(self, effects: Effects, kind: str) -> None:
        super().__init__()
        self._effects, self._kind = effects, kind

    def write(self, text: str) -> int:
        self._effects.note(self._kind, text)
        return super().write(text)


@contextlib.contextmanager
def capture_effects(
    handlers: Mapping[int, logging.Handler] | None = None, filters: Mapping[int, Any] | None = None
) -> Iterator[Effects]:
    """Yield the output, warnings and log records of this thread, complete once the context is closed.

    ``handlers`` contains copies of the handlers whose classes the user wrote, and ``filters`` copies of the filters of
    loggers, both by the ids of the originals. The copied handlers receive the records of this thread, and the process's
    filters apply to warnings as if none had been shown before. Without ``handlers``, no handler receives a record, and
    every warning is captured.
    """
    effects = Effects()

    def note_record(record: tuple[str, str, str]) -> None:
        effects.log_records.append(record)
        effects.note("log", " ".join(record))

    def note_warning(message: warnings.WarningMessage) -> None:
        effects.warnings.append(message)
        if not is_compiler_warning(message.filename):
            effects.note("warning", f"{message.category.__name__}: {_text_of_warning(message.message)}")

    reset_log_once_caches()
    out, err = _OrderedStream(effects, "stdout"), _OrderedStream(effects, "stderr")
    once_registry = warnings.onceregistry  # type: ignore[attr-defined]
    shown_once = dict(once_registry)
    try:
        with (
            redirect_thread_streams(out, err),
            isolate_warnings(),
            _capture_records(note_record, handlers or {}, filters or {}),
            warnings.catch_warnings(record=True),
        ):
            warnings._showwarnmsg_impl = note_warning  # type: ignore[attr-defined]  # noqa: SLF001 - records the order of warnings and output
            once_registry.clear()
            warnings.resetwarnings()  # makes Python forget which warnings it has shown
            if handlers is None:
                warnings.simplefilter("always")
            else:
                process_filters = _outer_filters[0] if _outer_filters else warnings.filters
                warnings.filters[:] = [_COMPILER_FILTER, *process_filters]  # type: ignore[index]
            yield effects
    finally:
        once_registry.clear()
        once_registry.update(shown_once)
        effects.stdout, effects.stderr = out.getvalue(), err.getvalue()


def _reached_handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers that receive the records of a logger."""
    current: logging.Logger | None = logger
    while current is not None:
        yield from current.handlers
        current = current.parent if current.propagate else None


def all_handlers() -> Iterator[logging.Handler]:
    """Yield the handlers of all loggers, without duplicates."""
    yield from {id(item): item for logger in _loggers() for item in getattr(logger, "handlers", ())}.values()


def all_filters() -> Iterator[Any]:
    """Yield the filters of all loggers except those of PyTorch's compilers, without duplicates."""
    loggers = [
        logger for logger in _loggers() if getattr(logger, "filters", ()) and not is_compiler_logger(logger.name)
    ]
    yield from {id(item): item for logger in loggers for item in logger.filters}.values()


def _loggers() -> list[Any]:
    return [logging.root, *logging.root.manager.loggerDict.values()]


_COMPILER_MODULES = re.compile(r"torch\.(_dynamo|_inductor|_functorch|_export|_subclasses|fx)\b")
#: A filter for PyTorch's warnings about compiling, so that they are always captured and never become errors.
_COMPILER_FILTER = ("always", None, Warning, _COMPILER_MODULES, 0)
#: The process's warning filters on entry to each open :func:`allow_repeated_warnings`.
_outer_filters: list[list[Any]] = []


@contextlib.contextmanager
def suppress_displays() -> Iterator[None]:
    """Drop what this thread displays in the notebook, except its text output, while the context is open."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = find_shell() if find_shell is not None else None
    if shell is None:
        yield
        return

    def drop(*_: Any, **__: Any) -> tuple[Callable[[], None], tuple[()], dict[str, Any]]:
        return lambda: None, (), {}

    publisher = type(shell.display_pub)
    with (
        redirect_calls_on_thread(publisher, "publish", drop),
        redirect_calls_on_thread(publisher, "clear_output", drop),
    ):
        yield


def suppress_logging() -> contextlib.AbstractContextManager[None]:
    """Drop the log records of this thread, except PyTorch's about compiling, while the context is open."""
    return _capture_records(lambda _: None, {}, {})


@contextlib.contextmanager
def _capture_records(
    receive: Callable[[tuple[str, str, str]], None], handlers: Mapping[int, logging.Handler], filters: Mapping[int, Any]
) -> Iterator[None]:
    """Capture the log records of this thread in place of the process's handlers, while the context is open.

    ``handlers`` and ``filters`` contain replacements, by the ids of the originals. Handlers without a replacement
    receive nothing, and filters without one are ignored.
    """
    handle, thread = logging.Logger.callHandlers, threading.get_ident()
    filter_with_originals = logging.Filterer.filter

    def capture(logger: logging.Logger, record: logging.LogRecord) -> None:
        if is_compiler_logger(record.name) or threading.get_ident() != thread:
            handle(logger, record)
            return
        receive((record.name, record.levelname, _message_of_record(record)))
        for handler in _reached_handlers(logger):
            copy = handlers.get(id(handler))
            if copy is not None and record.levelno >= copy.level:
                copy.handle(record)

    def filter_with_copies(filterer: logging.Filterer, record: logging.LogRecord) -> Any:
        is_captured = isinstance(filterer, logging.Logger) and threading.get_ident() == thread and filterer.filters
        if not is_captured or is_compiler_logger(record.name):
            return filter_with_originals(filterer, record)
        filters_of_copies = logging.Filterer()
        filters_of_copies.filters = [filters[id(item)] for item in filterer.filters if id(item) in filters]
        return filter_with_originals(filters_of_copies, record)

    with (
        patch_attribute(logging.Filterer, "filter", filter_with_copies),
        patch_attribute(logging.Logger, "callHandlers", capture),
        capture_loguru_messages(receive),
    ):
        yield


def _message_of_record(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - the arguments may not match the format
        return str(record.msg)


def _text_of_warning(message: object) -> str:
    try:
        return str(message)
    except Exception:  # noqa: BLE001 - calls the user's `__str__`
        return type(message).__name__


def seed_all(seed: int) -> None:
    """Seed PyTorch's, Python's and NumPy's random generators."""
    seed_torch(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def seed_torch(seed: int) -> None:
    """Seed the generators that PyTorch has created.

    ``torch.manual_seed`` would also replace the pending seed of devices that are not in use yet. Nothing could
    restore that seed. It also formats the stack on every call.
    """
    torch.default_generator.manual_seed(seed)
    torch.mps.manual_seed(seed)
    for devices in (torch.cuda, torch.xpu):
        if devices.is_initialized():
            devices.manual_seed_all(seed)


def preserve_random_generators() -> contextlib.AbstractContextManager[None]:
    """Restore PyTorch's random generators on exit, those of CUDA only if CUDA is already initialized."""
    return torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ())


def random_states() -> dict[str, str]:
    """Return a digest of the state of each default random generator of PyTorch, Python and, if loaded, NumPy."""
    states: dict[str, Any] = {"PyTorch": _bytes_of(torch.get_rng_state()), "Python": random.getstate()}
    if torch.cuda.is_initialized():
        cuda_states = torch.cuda.get_rng_state_all()
        states |= {f"PyTorch on cuda:{index}": _bytes_of(state) for index, state in enumerate(cuda_states)}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        algorithm, keys, *rest = numpy.random.get_state()
        states["NumPy"] = (algorithm, keys.tobytes(), *rest)
    # Version 2 of the format does not record which objects are identical, so equal states give equal bytes.
    return {name: hashlib.sha256(marshal.dumps(state, 2)).hexdigest() for name, state in states.items()}


def _bytes_of(state: torch.Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel())


def current_modes() -> dict[str, Any]:
    """Return the PyTorch modes that a call may change."""
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled(),
        "default device": default_device_name(),
    }


@contextlib.contextmanager
def allow_repeated_warnings() -> Iterator[None]:
    """Make every warning and log-once message appear each time while the context is open.

    On exit, the records of the warnings shown before are restored, because any change of the warning filters makes
    Python forget, in every module, which warnings it has shown.
    """
    modules_with_registry = warning_registries()
    with isolate_warnings(modules_with_registry):
        registries = {name: dict(registry) for name, _, registry in modules_with_registry}
        version, warns_always = filters_version(), torch.is_warn_always_enabled()
        saved_caches = [(cache, dict(cache)) for cache in _log_once_caches()]
        torch.set_warn_always(True)
        _outer_filters.append(list(warnings.filters))
        try:
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                yield
        finally:
            _outer_filters.pop()
            torch.set_warn_always(warns_always)
            current_version = filters_version()
            for name, names, registry in warning_registries():
                if name not in registries:  # a trial added it to the module's names
                    names.pop("__warningregistry__", None)
                    continue
                saved_registry = registries[name]
                registry.clear()
                registry.update(
                    saved_registry | {"version": current_version}
                    if saved_registry.get("version") == version
                    else saved_registry
                )
            for cache, content in saved_caches:
                cache.clear()
                cache.update(content)


def _log_once_caches() -> Iterator[dict[Any, Any]]:
    """Yield the caches of logger methods that log a message only once, such as those of transformers."""
    for method in vars(logging.Logger).values():
        if callable(getattr(method, "cache_info", None)) and method.cache_info().maxsize is None:
            yield from (
                referent
                for referent in gc.get_referents(method)
                if type(referent) is dict and referent is not vars(method)
            )


def reset_log_once_caches() -> None:
    """Make loggers log their log-once messages again."""
    for cache in _log_once_caches():
        cache.clear()
