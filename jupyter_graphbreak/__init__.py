"""Explain what torch.compile did in a notebook cell: graphs, graph breaks and resume functions next to the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.api.checkpoints import RepairedCheckpoint, repair_checkpoint
    from jupyter_graphbreak.api.saved import explain_notebook, read_notebook, read_trace
    from jupyter_graphbreak.api.single_calls import check, compare_frontends, measure, try_remedies, values
    from jupyter_graphbreak.api.watching import capture, explain
    from jupyter_graphbreak.experiments.remedies.own_edits import apply_patch
    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.results import ExplainedNotebook, Frontends, Job, NotReproducedError, Report

__version__ = "0.1.0"
__all__ = [
    "Arguments",
    "ExplainedNotebook",
    "Frontends",
    "Job",
    "NotReproducedError",
    "RepairedCheckpoint",
    "Report",
    "answer_requests",
    "apply_patch",
    "capture",
    "check",
    "compare_frontends",
    "explain",
    "explain_notebook",
    "load_ipython_extension",
    "measure",
    "read_notebook",
    "read_trace",
    "repair_checkpoint",
    "try_remedies",
    "unload_ipython_extension",
    "values",
]

_MODULES = {
    "Arguments": "experiments.trial.arguments",
    "ExplainedNotebook": "results",
    "Frontends": "results",
    "Job": "results",
    "NotReproducedError": "results",
    "RepairedCheckpoint": "api.checkpoints",
    "Report": "results",
    "apply_patch": "experiments.remedies.own_edits",
    "capture": "api.watching",
    "check": "api.single_calls",
    "compare_frontends": "api.single_calls",
    "explain": "api.watching",
    "explain_notebook": "api.saved",
    "measure": "api.single_calls",
    "read_notebook": "api.saved",
    "read_trace": "api.saved",
    "repair_checkpoint": "api.checkpoints",
    "try_remedies": "api.single_calls",
    "values": "api.single_calls",
}


def __getattr__(name: str) -> Any:
    """Import a public object on first use, so that ``import jupyter_graphbreak`` is fast."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register ``%%compile_explain`` and ``%compile_explain``; ``%load_ext jupyter_graphbreak`` calls this."""
    from jupyter_graphbreak.ipython.magic import load

    load(ipython)


def answer_requests(ipython: InteractiveShell) -> None:
    """Load the extension for a front end that requests reports in the metadata of its execute requests.

    Raises
    ------
    UsageError
        If the kernel does not pass on the metadata of requests.
    """
    from jupyter_graphbreak.ipython.magic import answer_requests

    answer_requests(ipython)


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Remove the magics; ``%unload_ext jupyter_graphbreak`` calls this."""
    from jupyter_graphbreak.ipython.magic import unload

    unload(ipython)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-graphbreak"}]
