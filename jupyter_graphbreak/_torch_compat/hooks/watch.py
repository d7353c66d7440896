"""Watch Dynamo compile: open all hooks, each of which checks that this PyTorch has what it needs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.hooks.compilation import (
    watch_breaks,
    watch_cudagraph_skips,
    watch_failures,
    watch_graphs,
    watch_resumes,
    watch_starts,
)
from jupyter_graphbreak._torch_compat.hooks.compiling_calls import watch_compile_calls, watch_repeated_compiling
from jupyter_graphbreak._torch_compat.hooks.observer import Emit, Observer
from jupyter_graphbreak._torch_compat.hooks.paths import watch_paths
from jupyter_graphbreak._torch_compat.hooks.refusals import (
    watch_abandoned_frames,
    watch_generators,
    watch_limits,
    watch_skips,
)
from jupyter_graphbreak._torch_compat.hooks.remembered_skips import watch_remembered_skips
from jupyter_graphbreak._torch_compat.hooks.saving import watch_saving
from jupyter_graphbreak._torch_compat.hooks.scopes import watch_scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak._torch_compat.threads import Claim

_HOOKS = (
    watch_scopes, watch_compile_calls, watch_starts, watch_breaks, watch_failures, watch_resumes, watch_graphs,
    watch_generators, watch_limits, watch_abandoned_frames, watch_skips, watch_cudagraph_skips,
    watch_remembered_skips, watch_repeated_compiling, watch_saving, watch_paths,
)  # fmt: skip


@contextlib.contextmanager
def watch(emit: Emit, add_time: Callable[[float], None], claim: Claim) -> Iterator[list[str]]:
    """Send observations of Dynamo on the threads of a run to ``emit`` while the context is open.

    Parameters
    ----------
    emit : Emit
        Called without holding a lock, on the thread that compiles. An exception in it never reaches PyTorch.

    Yields
    ------
    list of str
        A sentence for each hook that this release of PyTorch does not support.
    """
    notes: list[str] = []
    observer = Observer(emit, add_time, claim)
    with contextlib.ExitStack() as stack:
        for hook in _HOOKS:
            try:
                stack.enter_context(hook(observer))
            except Exception as error:  # noqa: BLE001 - a release of torch may have changed anything
                purpose = (hook.__doc__ or "").partition("\n")[0].rstrip(".")
                purpose = f"a hook to {purpose[:1].lower()}{purpose[1:]}"
                notes.append(f"Not available in this PyTorch: {purpose} ({type(error).__name__}: {error}).")
        yield notes
