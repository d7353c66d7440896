"""Hook on ``torch.compile(fullgraph=True)``: where it was written, and which one is in force."""

from __future__ import annotations

import contextlib
import importlib
import sys
import weakref
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.hooks.observer import watched
from jupyter_graphbreak._torch_compat.hooks.stacks_and_codes import site_of, wrapped_code
from jupyter_graphbreak._torch_compat.patching import patched_inherited
from jupyter_graphbreak.recording.additions import FullgraphSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from jupyter_graphbreak._torch_compat.hooks.observer import Call, Observer
    from jupyter_graphbreak.recording.records import StackEntry

#: Where each call of torch.compile was written; kept between runs, for functions that an earlier cell compiled.
_SITES: weakref.WeakKeyDictionary[Any, StackEntry] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def watch_fullgraph(observer: Observer) -> Iterator[None]:
    """Record which torch.compile(fullgraph=True) is in force."""
    context = importlib.import_module("torch._dynamo.eval_frame").OptimizeContext

    def look(call: Call) -> None:
        site = site_of(call.caller)
        if site is not None:
            _SITES[call.argument("self")] = site

    with patched_inherited(context, "__init__", watched(context.__init__, observer, after=look)):
        yield


def fullgraph_site(observer: Observer) -> FullgraphSite | None:
    """Return the torch.compile call around the frame that is being compiled, and the function that it compiles."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("eval_frame.py") and frame.f_code.co_name == "compile_wrapper":
            context, compiled = observer.local(frame, "self"), observer.local(frame, "fn")
            return FullgraphSite(_SITES.get(context) if context is not None else None, wrapped_code(compiled))
        frame = frame.f_back
    return None
