"""PyTorch's structured trace in this process: its logger, its envelope, what of it is made."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
