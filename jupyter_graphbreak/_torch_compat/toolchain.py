"""What PyTorch's compilers need from the machine: a C++ compiler, a folder, Triton."""

from __future__ import annotations

import importlib
import importlib.util
import sys
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
    return Path(_cache_folders().cache_dir())


def _cache_folders() -> Any:
    """Return PyTorch's module about this folder, without importing the compiler, which takes a second."""
    import torch

    name = "torch._inductor.runtime.cache_dir_utils"
    file = Path(torch.__file__).parent / "_inductor" / "runtime" / "cache_dir_utils.py"
    spec = importlib.util.spec_from_file_location("_graphbreak_cache_folders", file)
    if name in sys.modules or spec is None or spec.loader is None:
        return importlib.import_module(name)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError):
        return importlib.import_module(name)
    return module


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
