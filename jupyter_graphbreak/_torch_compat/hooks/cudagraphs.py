"""Hook on the message that a graph runs without a CUDA graph, from Inductor and the backend ``cudagraphs``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.hooks.observer import observe_calls
from jupyter_graphbreak.records.additions import CudagraphSkipped

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer, WatchedCall

#: The name of the function that PyTorch calls when it does not use a CUDA graph. Many modules import it, and modules
#: loaded later would keep a hook on it. The hook is therefore on a function that it calls, and reads its variable.
_SKIP_LOGGER = "log_cudagraph_skip_and_bump_counter"


def watch_cudagraph_skips(observer: Observer) -> AbstractContextManager[None]:
    """Record the graphs that run without a CUDA graph, and the reasons."""
    module = importlib.import_module("torch._inductor.cudagraph_utils")
    getattr(module, _SKIP_LOGGER)  # fails if it is missing

    def observation(call: WatchedCall) -> CudagraphSkipped | None:
        if call.caller.f_code.co_name != _SKIP_LOGGER:
            return None
        reason = observer.local_variable(call.caller, "msg")
        return CudagraphSkipped(reason=reason) if isinstance(reason, str) else None

    return observe_calls(module, "get_metrics_context", observer, before=observation)
