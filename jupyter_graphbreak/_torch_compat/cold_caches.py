"""Compile like a process that finds nothing in PyTorch's caches on disk."""

from __future__ import annotations

import contextlib
import importlib
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import patched_on_thread

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def without_caches() -> Iterator[None]:
    """Disable PyTorch's caches of compiled code, for reading and writing, while the context is open.

    Inductor then puts its files into new folders, which it never removes; here they are removed at the end. Code that
    was loaded from them still runs.
    """
    config: Any = importlib.import_module("torch._inductor.config")
    if not hasattr(config, "force_disable_caches"):  # not in this PyTorch
        yield
        return
    importlib.import_module("torch._inductor.compile_fx")
    compile_fx = sys.modules["torch._inductor.compile_fx"]  # the package has a function of this name
    with (
        tempfile.TemporaryDirectory(prefix="graphbreak_", ignore_cleanup_errors=True) as folder,
        patched_on_thread(compile_fx, "cache_dir", lambda: folder),
        config.patch(force_disable_caches=True),
    ):
        yield
