"""Explain what torch.compile did with a notebook cell: graphs, graph breaks, resume functions, next to the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.api import capture, compare_frontends, explain
    from jupyter_graphbreak.frontends import Frontends
    from jupyter_graphbreak.inputs import Arguments
    from jupyter_graphbreak.report import Report

__version__ = "0.1.0"
__all__ = [
    "Arguments",
    "Frontends",
    "Report",
    "capture",
    "compare_frontends",
    "explain",
    "load_ipython_extension",
    "unload_ipython_extension",
]

_HOMES = {
    "Arguments": "inputs",
    "Frontends": "frontends",
    "Report": "report",
    "capture": "api",
    "compare_frontends": "api",
    "explain": "api",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: ``import jupyter_graphbreak`` itself costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register ``%%compile_explain`` and ``%compile_explain``; ``%load_ext jupyter_graphbreak`` calls this."""
    from jupyter_graphbreak.magic import load

    load(ipython)


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Take the magics away again; ``%unload_ext jupyter_graphbreak`` calls this."""
    from jupyter_graphbreak.magic import unload

    unload(ipython)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-graphbreak"}]
