"""What PyTorch's compilers need from the machine: a C++ compiler, a folder, Triton."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def require_support() -> None:
    """Raise RuntimeError, with PyTorch's sentence, if it cannot compile with this version of Python."""
    eval_frame: Any = importlib.import_module("torch._dynamo.eval_frame")
    eval_frame.check_if_dynamo_supported()


def cpp_compiler() -> str:
    """Return the C++ compiler that inductor uses.

    Raises
    ------
    RuntimeError
        If there is none. ``torch._inductor.exc.InvalidCxxCompiler`` is one.
    """
    builder: Any = importlib.import_module("torch._inductor.cpp_builder")
    return str(builder.get_cpp_compiler())


def cache_folder() -> Path:
    """Return the folder in which inductor keeps the code that it generates, and make it.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    folders: Any = importlib.import_module("torch._inductor.runtime.cache_dir_utils")
    return Path(folders.cache_dir())


def devices() -> list[torch.device]:
    """Return the CPU and all CUDA devices."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [torch.device("cpu"), *(torch.device("cuda", index) for index in range(count))]


def why_no_cuda() -> str | None:
    """Return why PyTorch finds no CUDA device, although it is built for CUDA; ``None`` if it finds one or is not."""
    import torch

    if torch.version.cuda is None or torch.cuda.is_available():
        return None
    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001 - the sentence is the finding
        return str(error).split("\n", 1)[0]
    return "it finds no device"
