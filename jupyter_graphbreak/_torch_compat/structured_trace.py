"""Access PyTorch's structured trace in this process: its logger, the context of records, and the kinds to create."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.patching import report_to_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak._torch_compat.threads import Claim


def current_compile_context() -> dict[str, Any]:
    """Return the context of the current compilation on this thread, with the keys of the trace."""
    contexts = getattr(importlib.import_module("torch._guards"), "CompileContext", None)
    current = getattr(contexts, "current_trace_id", None)
    trace_id = current() if current is not None else None
    compile_id = getattr(trace_id, "compile_id", None)
    context = {
        "compiled_autograd_id": getattr(compile_id, "compiled_autograd_id", None),
        "frame_id": getattr(compile_id, "frame_id", None),
        "frame_compile_id": getattr(compile_id, "frame_compile_id", None),
        "attempt": getattr(trace_id, "attempt", None),
    }
    return {key: value for key, value in context.items() if value is not None}


def current_compile_id() -> str:
    """Return the id of the frame that this thread compiles, as in a report."""
    context = current_compile_context()
    return f"{context.get('frame_id', '-')}/{context.get('frame_compile_id', '-')}"


def trace_logger() -> logging.Logger:
    """Return the logger that carries the structured trace."""
    logger = getattr(importlib.import_module("torch._logging._internal"), "trace_log", None)
    return logger if isinstance(logger, logging.Logger) else logging.getLogger("torch.__trace")


class _TraceReader(NamedTuple):
    """The reader of the trace for a run."""

    handler: logging.Handler
    covers_this_thread: Callable[[], bool]
    on_fault: Callable[[str, Exception], None]


#: The current readers, and the lock for changes to torch's logger.
_readers: list[_TraceReader] = []
_lock = threading.RLock()


@contextlib.contextmanager
def restrict_trace(
    handler: logging.Handler, kinds: frozenset[str], on_fault: Callable[[str, Exception], None], claim: Claim
) -> Iterator[None]:
    """Prevent torch from creating trace records that nobody reads, while the context is open.

    Torch creates every record, including all guards and kernels, as soon as the logger has a handler. If ours are the
    only handlers, only records of the given kinds are created, and only on the threads of runs. If several runs are
    open, the kinds of the first one are created for all. ``on_fault`` receives the kind and the error of a record that
    torch failed to create; the user's program does not see the error, because only our handler needs the record.
    """
    internal = importlib.import_module("torch._logging._internal")
    original = getattr(internal, "trace_structured", None)
    logger = trace_logger()
    if original is None or getattr(internal, "trace_log", None) is not logger:
        yield  # torch then creates all records, and unread ones are dropped
        return
    reader = _TraceReader(handler, claim.covers_this_thread, on_fault)
    with _lock:
        _readers.append(reader)
        if len(_readers) == 1:
            _replace_in_torch(original, _select_entries(original, logger, kinds))
    try:
        yield
    finally:
        with _lock:
            _readers[:] = [other for other in _readers if other is not reader]
            replacement = vars(internal)["trace_structured"]
            if not _readers and hasattr(replacement, "__wrapped__"):
                _replace_in_torch(replacement, replacement.__wrapped__)


def _replace_in_torch(function: Any, replacement: Any) -> None:
    """Replace ``trace_structured`` in all torch modules, because some imported it by name."""
    # A copy, because a garbage collection may import a module even while the items are listed.
    for key, module in sys.modules.copy().items():
        if key.startswith("torch.") and vars(module).get("trace_structured") is function:
            vars(module)["trace_structured"] = replacement


def _select_entries(original: Callable[..., Any], logger: logging.Logger, kinds: frozenset[str]) -> Callable[..., Any]:
    """Return a ``trace_structured`` that creates only the records that are read."""

    @functools.wraps(original)
    def trace_structured(*args: Any, **kwargs: Any) -> Any:
        # logging.config in the cell disables loggers that it does not name; our handlers must still receive records.
        our_handlers = [reader.handler for reader in _readers]
        if not our_handlers or (
            not logger.disabled and any(handler not in our_handlers for handler in logger.handlers)
        ):
            return original(*args, **kwargs)
        kind = "record"
        try:
            active_readers = [reader for reader in _readers if reader.covers_this_thread()]
            kind = _kind_of_entry(*args, **kwargs) if active_readers else kind
            if not active_readers or kind not in kinds:
                return None
            if "payload_fn" in kwargs:
                kwargs["payload_fn"] = _encodable(kwargs["payload_fn"])
            with _lock:
                was_disabled, logger.disabled = logger.disabled, False
                handlers, logger.handlers = logger.handlers, [reader.handler for reader in active_readers]
                try:
                    return original(*args, **kwargs)
                finally:
                    logger.disabled, logger.handlers = was_disabled, handlers
        except Exception as error:  # noqa: BLE001 - our errors must not reach the user's program
            try:
                for reader in _readers:
                    reader.on_fault(kind, error)
            except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
                report_to_run("noting what the trace lacks", fault)
            return None

    return trace_structured


def _kind_of_entry(name: str, metadata_fn: Callable[[], Any] = dict, *_: Any, **__: Any) -> str:
    return f"artifact:{metadata_fn().get('name')}" if name == "artifact" else name


def _encodable(payload_fn: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that escapes lone surrogates in the payload, because torch encodes it as UTF-8 to hash it."""

    def payload() -> Any:
        text = payload_fn()
        return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else text

    return payload


def interned_name(number: int) -> str | None:
    """Return the file name for a number in the trace, if it was interned in this process."""
    table = getattr(sys.modules.get("torch._logging.structured"), "INTERN_TABLE", {})
    return next((name for name, known_number in table.items() if known_number == number), None)


def trace_writer(folder: str) -> logging.Handler:
    """Return the handler that writes a process's structured trace into a folder if ``TORCH_TRACE`` is set."""
    internal = importlib.import_module("torch._logging._internal")
    handler: logging.Handler = internal.LazyTraceHandler(folder)
    handler.setFormatter(internal.TorchLogsFormatter(trace=True))
    return handler
