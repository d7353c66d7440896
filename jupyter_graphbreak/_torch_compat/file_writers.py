"""What of PyTorch writes to files in C++, where Python's audit hooks see nothing."""

from __future__ import annotations

import sys
from typing import Any

_WRITERS = (
    ("torch._C", "PyTorchFileWriter"),
    ("torch.jit._script", "RecursiveScriptModule.save"),
    ("torch.autograd.profiler", "profile.export_chrome_trace"),
    ("torch.autograd.profiler", "profile.export_stacks"),
)


def file_writers() -> list[tuple[Any, str, str]]:
    """Return each that this torch has: its owner, its name there, and what it does, to be followed by the path."""
    found: list[tuple[Any, str, str]] = []
    for module, dotted in _WRITERS:
        owner: Any = sys.modules.get(module)
        *outer, name = dotted.split(".")
        for part in outer:
            owner = getattr(owner, part, None)
        if callable(getattr(owner, name, None)):
            found.append((owner, name, "writes to the file"))
    return found
