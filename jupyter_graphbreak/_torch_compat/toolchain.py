"""Check that PyTorch is installed and new enough, and examine what its compilers require."""

from __future__ import annotations

import contextlib
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import patch_attribute

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


def import_compilers() -> None:
    """Import Dynamo and Inductor; this takes seconds and may raise any exception."""
    importlib.import_module("torch._dynamo.eval_frame")
    importlib.import_module("torch._inductor.cpp_builder")


def require_python_support() -> None:
    """Raise RuntimeError, with PyTorch's message, if PyTorch cannot compile with this version of Python."""
    eval_frame: Any = importlib.import_module("torch._dynamo.eval_frame")
    eval_frame.check_if_dynamo_supported()


def cpp_compiler() -> str:
    """Return the command of Inductor's C++ compiler, possibly with options; without one, a RuntimeError is raised."""
    builder: Any = importlib.import_module("torch._inductor.cpp_builder")
    return str(builder.get_cpp_compiler())


@contextlib.contextmanager
def speed_up_cpu_compilation() -> Iterator[None]:
    """Make Inductor generate CPU code that compiles quickly while the context is open.

    Otherwise the first function compiles slowly: up to seven programs find out which vector instructions the code may
    use, and PyTorch's headers are precompiled. Inductor can do without both.
    """
    config: Any = importlib.import_module("torch._inductor.config")
    instructions = importlib.import_module("torch._inductor.cpu_vec_isa")
    with contextlib.ExitStack() as stack:
        if hasattr(instructions, "valid_vec_isa_list"):
            stack.enter_context(patch_attribute(instructions, "valid_vec_isa_list", list))
        if hasattr(config, "cpp_cache_precompile_headers"):
            stack.enter_context(config.patch(cpp_cache_precompile_headers=False))
        yield


def make_cache_folder() -> Path:
    """Create the folder in which Inductor stores the code that it generates, and return its path."""
    utilities: Any = importlib.import_module("torch._inductor.runtime.cache_dir_utils")
    return Path(utilities.cache_dir())


def devices() -> list[torch.device]:
    """Return the CPU and all CUDA devices."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [torch.device("cpu"), *(torch.device("cuda", index) for index in range(count))]


def why_no_cuda() -> str | None:
    """Return why PyTorch finds no CUDA device; ``None`` if it finds one, or is not built for CUDA."""
    import torch

    if torch.version.cuda is None or torch.cuda.is_available():
        return None
    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001 - the message of the error is the result
        return str(error).split("\n", 1)[0]
    return "it finds no device"


MINIMUM_TORCH = (2, 9)


class TorchUnavailable(RuntimeError):  # noqa: N818 - the name already states an error
    """PyTorch is missing or too old; the message says how to install it."""


def require_torch() -> str:
    """Import torch and return its version; raise TorchUnavailable if that fails or torch is older than 2.9."""
    requirement = ".".join(map(str, MINIMUM_TORCH))
    try:
        import torch
    except ImportError as error:
        raise TorchUnavailable(f"PyTorch is not installed here ({error}): pip install 'torch>={requirement}'") from None
    version = str(torch.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    # A version without numbers, such as "nightly-1a2b3c", is built from the newest sources.
    if numbers is not None and tuple(map(int, numbers.groups())) < MINIMUM_TORCH:
        raise TorchUnavailable(
            f"PyTorch {version} is too old ({requirement} or newer is needed): pip install -U 'torch>={requirement}'"
        )
    return version
