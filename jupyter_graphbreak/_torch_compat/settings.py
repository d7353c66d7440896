"""The torch that is installed: whether it will do, how it is set, where it runs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import re
import sys
import sysconfig
import warnings
from typing import TYPE_CHECKING, Any, cast

from jupyter_graphbreak._torch_compat.patching import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINIMUM_TORCH = (2, 9)


class TorchUnavailable(RuntimeError):  # noqa: N818 - reads as the sentence it reports
    """There is no torch, or one that is too old; the message says how to get one."""


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


@contextlib.contextmanager
def narrowed_trace(handler: logging.Handler, kept: frozenset[str]) -> Iterator[None]:
    """Spare torch the making of trace entries that nobody reads, while the context is open.

    Torch makes every entry as soon as the logger has a handler, guards and kernels in full among them. Where ours is
    the only one, entries of other kinds than those kept are not made; where somebody else listens, all are.
    """
    internal = importlib.import_module("torch._logging._internal")
    original = internal.trace_structured
    logger = trace_logger()

    @functools.wraps(original)
    def trace_structured(name: str, metadata_fn: Callable[[], Any] = dict, *args: Any, **kwargs: Any) -> None:
        if logger.handlers == [handler]:
            kind = f"artifact:{metadata_fn().get('name')}" if name == "artifact" else name
            if kind not in kept:
                return
            # logging.config in the cell disables loggers that it does not name; ours is to hear all the same.
            disabled, logger.disabled = logger.disabled, False
            try:
                original(name, metadata_fn, *args, **kwargs)
            finally:
                logger.disabled = disabled
            return
        original(name, metadata_fn, *args, **kwargs)

    # Modules that imported the function by name hold it themselves.
    holders = [
        module
        for key, module in list(sys.modules.items())
        if key.startswith("torch.") and vars(module).get("trace_structured") is original
    ]
    for module in holders:
        vars(module)["trace_structured"] = trace_structured
    try:
        yield
    finally:
        for module in [*holders, *(m for k, m in list(sys.modules.items()) if k.startswith("torch."))]:
            if vars(module).get("trace_structured") is trace_structured:
                vars(module)["trace_structured"] = original


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


def backends() -> list[str]:
    """Return the names that ``torch.compile(backend=...)`` takes."""
    listed: list[str] = importlib.import_module("torch._dynamo").list_backends(exclude_tags=())
    return sorted(set(listed))


def modes() -> list[str]:
    """Return the names that ``torch.compile(mode=...)`` takes."""
    listed: list[str] = list(importlib.import_module("torch._inductor").list_mode_options())
    return listed


#: Loggers on which torch tells of its compiling.
_TELLS = ("torch._dynamo", "torch._export", "torch._functorch", "torch._inductor", "torch._logging",
          "torch._subclasses", "torch.export", "torch.fx")  # fmt: skip


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what torch logs of its compiling off the user's screen; the structured trace goes on."""
    loggers = [log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)]
    handlers = {
        handler
        for log in loggers
        if log.name.split(".")[0] == "torch" and log.name != "torch.__trace"
        for handler in log.handlers
    }

    def is_other(record: logging.LogRecord) -> bool:
        return not record.name.startswith(_TELLS)

    for handler in handlers:
        handler.addFilter(is_other)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_other)


@contextlib.contextmanager
def as_uncompiled() -> Iterator[None]:
    """Have code that nobody asked to compile act and print as it does uncompiled, as far as Dynamo has settings.

    Asserts raise AssertionError, numpy draws from its own generator, and what torch warns of while it compiles is not
    printed: the report has it.
    """
    config = importlib.import_module("torch._dynamo.config")
    settings = {"rewrite_assert_with_torch_assert": False, "use_numpy_random_stream": True}
    # No catch_warnings: it would take back what the cell itself sets.
    warnings.filterwarnings("ignore", module=r"torch\._(dynamo|functorch|inductor|subclasses)\b")
    filters = cast("list[Any]", warnings.filters)
    ours = filters[0]
    try:
        with quiet(), config.patch({name: value for name, value in settings.items() if hasattr(config, name)}):
            yield
    finally:
        if ours in filters:
            filters.remove(ours)


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

    frames = importlib.import_module("torch._dynamo.eval_frame")
    convert = importlib.import_module("torch._dynamo.convert_frame")
    from_stance = frames._callback_from_stance

    def with_backend(callback: Any) -> Any:
        made = from_stance(callback)
        compiler = getattr(callback, "_torchdynamo_orig_backend", None)
        if compiler is None or frames._stance.stance != "default" or frames._stance.backend is None:
            return made
        return convert.catch_errors_wrapper(
            compiler._clone_with_backend(frames.get_compiler_fn(frames._stance.backend)), callback.hooks
        )

    # Left to itself the stance makes a callback that knows nothing of fullgraph=True.
    with (
        patched(frames, "_callback_from_stance", with_backend),
        torch.compiler.set_stance("default", force_backend=backend),
    ):
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
    paths = sysconfig.get_paths()
    return sorted({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths})
