"""What packages with logging of their own write: loguru's sinks are none of ``logging``'s handlers."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
