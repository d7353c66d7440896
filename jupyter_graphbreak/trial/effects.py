"""What a call does beside its value: output, warnings, log records, random numbers, modes. None of it gets out."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import logging
import random
import sys
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.configuration import tells_of_compiling, warns_of_compiling
from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.patching import patched
from jupyter_graphbreak.trial.package_logs import package_logs_kept

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Effects:
    """What was written, warned and logged.

    Parameters
    ----------
    warnings : list of WarningMessage
        All of them, also those of torch about its compiling.
    logged : list of (str, str, str)
        Logger, level and message of each record, those of torch about its compiling aside.
    """

    printed: str = ""
    stderr: str = ""
    warnings: list[warnings.WarningMessage] = field(default_factory=list)
    logged: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def warned(self) -> list[tuple[str, str]]:
        """Category and text of each warning, those of torch about its compiling aside."""
        return [
            (warning.category.__name__, _text(warning.message))
            for warning in self.warnings
            if not warns_of_compiling(warning.filename)
        ]


@contextlib.contextmanager
def observed() -> Iterator[Effects]:
    """Keep what is written, warned and logged while the context is open; it can be read after that."""
    effects = Effects()
    handle = logging.Logger.callHandlers

    def keep(logger: logging.Logger, record: logging.LogRecord) -> None:
        if tells_of_compiling(record.name):
            handle(logger, record)
        else:
            effects.logged.append((record.name, record.levelname, _message(record)))

    forget_what_was_logged()
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            patched(logging.Logger, "callHandlers", keep),
            package_logs_kept(effects.logged.append),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            yield effects
    finally:
        effects.printed, effects.stderr, effects.warnings = out.getvalue(), err.getvalue(), list(caught)


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
    registries = {name: dict(registry) for name, registry in _shown_warnings()}
    version, always = _version_of_filters(), torch.is_warn_always_enabled()
    logged = [(cache, dict(cache)) for cache in _logged_once()]
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_warn_always(always)
        now = _version_of_filters()
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


class _Probe(Warning):
    """Shows the version of the filters, which Python writes to a registry."""


def _version_of_filters() -> Any:
    registry: dict[Any, Any] = {}
    with patched(warnings, "_showwarnmsg", lambda _: None), contextlib.suppress(_Probe):
        warnings.warn_explicit("", _Probe, "", 1, registry=registry)
    return registry.get("version")


def _logged_once() -> Iterator[dict[Any, Any]]:
    """Yield what the loggers' methods that log a text once, such as those of transformers, remember having logged."""
    for method in vars(logging.Logger).values():
        if callable(getattr(method, "cache_info", None)) and method.cache_info().maxsize is None:
            yield from (held for held in gc.get_referents(method) if type(held) is dict and held is not vars(method))


def forget_what_was_logged() -> None:
    """Have loggers log again what they log once."""
    for cache in _logged_once():
        cache.clear()
