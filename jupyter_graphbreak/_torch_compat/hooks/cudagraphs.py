"""Hook on what says that a graph runs without a CUDA graph: inductor, and the backend ``cudagraphs``."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.hooks.observer import watched
from jupyter_graphbreak._torch_compat.patching import patched
from jupyter_graphbreak.records.additions import CudagraphSkipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak._torch_compat.hooks.observer import Call, Observer

#: What PyTorch calls wherever it leaves out a CUDA graph. Many modules hold it by this name, and those that are loaded
#: later would keep a hook on it: so the hook is on what it calls itself, and reads its argument.
_SAYS_SO = "log_cudagraph_skip_and_bump_counter"


@contextlib.contextmanager
def watch_cudagraph_skips(observer: Observer) -> Iterator[None]:
    """Record which graphs run without a CUDA graph, and why."""
    module = importlib.import_module("torch._inductor.cudagraph_utils")
    getattr(module, _SAYS_SO)  # what is missing fails here

    def look(call: Call) -> CudagraphSkipped | None:
        if call.caller.f_code.co_name != _SAYS_SO:
            return None
        reason = observer.local(call.caller, "msg")
        return CudagraphSkipped(reason=reason) if isinstance(reason, str) else None

    hook = watched(module.get_metrics_context, observer, before=look)
    with patched(module, "get_metrics_context", hook):
        yield
