"""What a call does beside its value: output, warnings, log records, random numbers, modes. None of it gets out."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import logging
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
from jupyter_graphbreak._torch_compat.patching import patched
from jupyter_graphbreak.experiments.trial.other_threads import streams_here, version_of_filters, warnings_kept_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def package_logs_kept(keep: Callable[[tuple[str, str, str]], None]) -> Iterator[None]:
    """Keep what this thread logs with loguru from its sinks while the context is open.

    Parameters
    ----------
    keep : callable
        Given logger, level and message of each record, once for each sink.
    """
    handlers = getattr(sys.modules.get("loguru._handler"), "Handler", None)
    emit = getattr(handlers, "emit", None)
    if emit is None:
        yield
        return
    thread = threading.get_ident()

    def kept(self: Any, record: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return emit(self, record, *args, **kwargs)
        keep((str(record["name"]), record["level"].name, record["message"]))
        return None

    with patched(handlers, "emit", kept):
        yield


@dataclass
class Effects:
    """What was written, warned and logged.

    Parameters
    ----------
    warnings : list of WarningMessage
        All of them, also those of torch about its compiling.
    logged : list of (str, str, str)
        Logger, level and message of each record, those of torch about its compiling aside.
    order : list of (str, str)
        All of these in the order in which they came: "stdout", "stderr", "warning" or "log", and the text.
    """

    printed: str = ""
    stderr: str = ""
    warnings: list[warnings.WarningMessage] = field(default_factory=list)
    logged: list[tuple[str, str, str]] = field(default_factory=list)
    order: list[tuple[str, str]] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Note what came next; parts of one output belong together."""
        if self.order and self.order[-1][0] == kind and kind in {"stdout", "stderr"}:
            self.order[-1] = (kind, self.order[-1][1] + text)
        elif text:
            self.order.append((kind, text))

    @property
    def warned(self) -> list[tuple[str, str]]:
        """Category and text of each warning, those of torch about its compiling aside."""
        return [
            (warning.category.__name__, _text(warning.message))
            for warning in self.warnings
            if not is_compiler_warning(warning.filename)
        ]


class _Stream(io.StringIO):
    """A stream that also notes what is written to it among everything else that happens."""

    def __init__(self, effects: Effects, kind: str) -> None:
        super().__init__()
        self._effects, self._kind = effects, kind

    def write(self, text: str) -> int:
        self._effects.note(self._kind, text)
        return super().write(text)


@contextlib.contextmanager
def observed(handlers: Mapping[int, logging.Handler] | None = None) -> Iterator[Effects]:
    """Keep what is written, warned and logged while the context is open; it can be read after that.

    Parameters
    ----------
    handlers : mapping, optional
        Copies of the handlers of the user's own classes, by the ids of the originals. If given, the copies receive the
        records of this thread, and warnings pass the filters of the process, which may make them errors or show each
        once, as if none had been shown before. Otherwise nobody receives a record, and each warning is kept.
    """
    effects = Effects()

    def keep(record: tuple[str, str, str]) -> None:
        effects.logged.append(record)
        effects.note("log", " ".join(record))

    def show(message: warnings.WarningMessage) -> None:
        effects.warnings.append(message)
        if not is_compiler_warning(message.filename):
            effects.note("warning", f"{message.category.__name__}: {_text(message.message)}")

    reset_log_once_caches()
    out, err = _Stream(effects, "stdout"), _Stream(effects, "stderr")
    once = warnings.onceregistry  # type: ignore[attr-defined]
    shown_once = dict(once)
    try:
        with (
            streams_here(out, err),
            warnings_kept_elsewhere(),
            _records_kept(keep, handlers or {}),
            warnings.catch_warnings(record=True),
        ):
            warnings._showwarnmsg_impl = show  # type: ignore[attr-defined]  # noqa: SLF001 - it keeps the order
            once.clear()
            warnings.resetwarnings()  # with that Python forgets which warnings it has shown
            if handlers is None:
                warnings.simplefilter("always")
            else:
                warnings.filters[:] = [_OF_COMPILING, *_filters_of_process()]  # type: ignore[index]
            yield effects
    finally:
        once.clear()
        once.update(shown_once)
        effects.printed, effects.stderr = out.getvalue(), err.getvalue()


def _handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers that get the records of a logger."""
    current: logging.Logger | None = logger
    while current is not None:
        yield from current.handlers
        current = current.parent if current.propagate else None


def all_handlers() -> Iterator[logging.Handler]:
    """Yield the handlers of all loggers, each once."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    yield from {id(item): item for log in loggers for item in getattr(log, "handlers", ())}.values()


#: What torch warns of while it compiles is no error, whatever the filters say: it is kept, and nobody sees it.
_COMPILES = re.compile(r"torch\.(_dynamo|_inductor|_functorch|_export|_subclasses|fx)\b")
_OF_COMPILING = ("always", None, Warning, _COMPILES, 0)
#: The filters of warnings that the process had when :func:`kept_warnings` was entered, for each that is open.
_kept_filters: list[list[Any]] = []


def _filters_of_process() -> list[Any]:
    return _kept_filters[0] if _kept_filters else list(warnings.filters)


def unlogged() -> contextlib.AbstractContextManager[None]:
    """Have no handler see what this thread logs while the context is open."""
    return _records_kept(lambda _: None, {})


@contextlib.contextmanager
def _records_kept(
    receive: Callable[[tuple[str, str, str]], None], handlers: Mapping[int, logging.Handler]
) -> Iterator[None]:
    """Keep what this thread logs from the process's handlers while the context is open.

    Parameters
    ----------
    receive : callable
        Receives the logger, the level and the message of each record.
    handlers : mapping
        What receives the record in place of a handler, by the id of the handler.
    """
    handle, thread = logging.Logger.callHandlers, threading.get_ident()

    def keep(logger: logging.Logger, record: logging.LogRecord) -> None:
        if is_compiler_logger(record.name) or threading.get_ident() != thread:
            handle(logger, record)
            return
        receive((record.name, record.levelname, _message(record)))
        for handler in _handlers_of(logger):
            copy = handlers.get(id(handler))
            if copy is not None and record.levelno >= copy.level:
                copy.handle(record)

    with patched(logging.Logger, "callHandlers", keep), package_logs_kept(receive):
        yield


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit, which logging itself only prints
        return str(record.msg)


def _text(message: object) -> str:
    try:
        return str(message)
    except Exception:  # noqa: BLE001 - the user's __str__
        return type(message).__name__


def seed_all(seed: int) -> None:
    """Seed the random generators of torch, Python and numpy."""
    seed_torch(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def seed_torch(seed: int) -> None:
    """Seed the generators that torch has made.

    For devices not used yet, ``torch.manual_seed`` would replace the seed that the user left for them, which nobody can
    read and put back, and formats the stack each time.
    """
    torch.default_generator.manual_seed(seed)
    torch.mps.manual_seed(seed)
    for devices in (torch.cuda, torch.xpu):
        if devices.is_initialized():
            devices.manual_seed_all(seed)


def kept_generators() -> contextlib.AbstractContextManager[None]:
    """Restore torch's generators when the context closes; those of CUDA where it is in use, as asking starts it."""
    return torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ())


def random_states() -> dict[str, str]:
    """Return a digest of the state of each random generator."""
    states: dict[str, Any] = {"torch": torch.get_rng_state().tolist(), "Python": random.getstate()}
    if torch.cuda.is_initialized():
        found = torch.cuda.get_rng_state_all()
        states |= {f"torch on cuda:{index}": state.tolist() for index, state in enumerate(found)}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = (kind, keys.tolist(), *rest)
    return {name: hashlib.sha256(repr(state).encode()).hexdigest() for name, state in states.items()}


def modes() -> dict[str, Any]:
    """Return the modes of torch that a call may leave otherwise."""
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled(),
        "default device": default_device_name(),
    }


@contextlib.contextmanager
def kept_modes() -> Iterator[None]:
    """Restore the modes that a call can leave otherwise."""
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)


@contextlib.contextmanager
def kept_warnings() -> Iterator[None]:
    """Have everything warn and log each time while the context is open; after it, what was shown once stays shown.

    Each change of the filters of warnings makes Python forget, in every module, what it has shown.
    """
    with warnings_kept_elsewhere():
        registries = {name: dict(registry) for name, registry in _shown_warnings()}
        version, always = version_of_filters(), torch.is_warn_always_enabled()
        logged = [(cache, dict(cache)) for cache in _logged_once()]
        torch.set_warn_always(True)
        _kept_filters.append(list(warnings.filters))
        try:
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                yield
        finally:
            _kept_filters.pop()
            torch.set_warn_always(always)
            now = version_of_filters()
            for name, registry in _shown_warnings():
                before = registries.get(name, {})
                registry.clear()
                registry.update(before | {"version": now} if before.get("version") == version else before)
            for cache, content in logged:
                cache.clear()
                cache.update(content)


def _shown_warnings() -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield what Python notes in each module of the warnings that it has shown."""
    for name, module in list(sys.modules.items()):
        # Not asked as an attribute: a module that loads its parts late would look for it.
        registry = getattr(module, "__dict__", {}).get("__warningregistry__")
        if isinstance(registry, dict):
            yield name, registry


def _logged_once() -> Iterator[dict[Any, Any]]:
    """Yield what the loggers' methods that log a text once, such as those of transformers, remember having logged."""
    for method in vars(logging.Logger).values():
        if callable(getattr(method, "cache_info", None)) and method.cache_info().maxsize is None:
            yield from (held for held in gc.get_referents(method) if type(held) is dict and held is not vars(method))


def reset_log_once_caches() -> None:
    """Have loggers log again what they log once."""
    for cache in _logged_once():
        cache.clear()
