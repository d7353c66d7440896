"""Find out whether PyTorch can compile on this machine, and what is missing if it cannot."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.configuration import why_compile_is_disabled
from jupyter_graphbreak._torch_compat.toolchain import (
    TorchUnavailable,
    cpp_compiler,
    devices,
    import_compilers,
    make_cache_folder,
    require_python_support,
    require_torch,
    speed_up_cpu_compilation,
    why_no_cuda,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

#: The headers that Inductor's code for the CPU includes, with the compiler options that they need. The first is part of
#: Python, the second of the compiler.
_HEADERS = {"Python.h": (), "omp.h": ("-fopenmp",)}
_PROBE_SOURCE = 'extern "C" int add_one(int number) { return number + 1; }\n'
_COMPILER_TIMEOUT_S = 60
_REINSTALL_COMMAND = "pip install --force-reinstall"
_HOW_TO_MOVE_CACHE_FOLDER = (
    "Programs may not be allowed to run in the cache folder (as on a disk mounted with noexec): set the variable "
    "TORCHINDUCTOR_CACHE_DIR to a folder elsewhere."
)
_MIN_FREE_BYTES = 1 << 30
_HOW_TO_INSTALL_COMPILER = (
    "Install one: `apt install g++`, `dnf install gcc-c++`, `conda install gxx`, or on macOS `xcode-select --install`; "
    "the variable CXX may name a different one."
)


@dataclass(frozen=True)
class RequirementFinding:
    """A finding about one requirement of compiling."""

    #: Its name, such as ``"C++ compiler"``.
    requirement: str
    #: The finding.
    sentence: str
    #: The way to fix a fault; ``None`` if there is no fault.
    fix: str | None = None


def examine_installation() -> Iterator[RequirementFinding]:
    """Yield a finding about each requirement of compiling, and finally one about a compiled function on each device.

    If a part is missing, no function is compiled on the devices that need it.
    """
    pytorch = _check_pytorch()
    yield pytorch
    if pytorch.fix is not None:
        return
    triton, breaks_pytorch = _check_triton()
    yield triton
    if breaks_pytorch:
        return
    for examine in (_check_cache_folder, _check_python):  # PyTorch uses the folder when Dynamo is imported
        finding = examine()
        yield finding
        if finding.fix is not None:
            return
    compiler = _check_cpp_compiler()
    yield compiler
    cuda = why_no_cuda()
    if cuda is not None:
        yield _finding_on_unused_gpu(cuda)
    switch = why_compile_is_disabled()
    if switch:
        yield RequirementFinding("Settings", switch, "Unset the variable, or set it to 0.")
        return
    for device in devices():
        if (compiler if device.type == "cpu" else triton).fix is None:
            yield _check_compiled_function(device)


def _check_pytorch() -> RequirementFinding:
    requirement = "PyTorch"
    if importlib.util.find_spec("torch") is not None:
        try:
            importlib.import_module("torch")
        except Exception as error:  # noqa: BLE001 - a library that it loads may be missing
            return RequirementFinding(
                requirement, _import_failure(error), f"Install it again: `{_REINSTALL_COMMAND} torch`."
            )
    try:
        return RequirementFinding(requirement, f"version {require_torch()} is installed.")
    except TorchUnavailable as error:
        sentence, _, command = str(error).rpartition(": ")
        return RequirementFinding(requirement, f"{sentence}.", f"Install it: `{command}`.")


def _import_failure(error: BaseException, version: str | None = None) -> str:
    subject = f"version {version}" if version else "it"
    return f"{subject} is installed, but importing it fails with {type(error).__name__}: {_first_line(error)}"


def _check_python() -> RequirementFinding:
    version = f"Python {platform.python_version()}"
    try:
        import_compilers()
    except Exception as error:  # noqa: BLE001 - the error is the finding
        return RequirementFinding(
            "PyTorch's compiler",
            f"importing it fails with {type(error).__name__}: {_first_line(error)}",
            f"Install PyTorch again: `{_REINSTALL_COMMAND} torch`.",
        )
    try:
        require_python_support()
    except RuntimeError as error:
        return RequirementFinding("Python", f"{version}: {error}", "Use a version of Python that PyTorch supports.")
    return RequirementFinding("Python", f"torch.compile supports {version}.")


def _check_cache_folder() -> RequirementFinding:
    requirement = "Cache folder"
    fix = "Make it writable, or set the variable TORCHINDUCTOR_CACHE_DIR to a folder that is."
    try:
        folder = make_cache_folder()
        with tempfile.TemporaryFile(dir=folder):
            free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        configured = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir()
        return RequirementFinding(requirement, f"{configured} cannot be written: {error.strerror or error}.", fix)
    if free_bytes < _MIN_FREE_BYTES:
        return RequirementFinding(
            requirement,
            f"{folder} has only {free_bytes >> 20} MB left.",
            "Free some space, or choose a different folder.",
        )
    return RequirementFinding(requirement, f"{folder} can be written.")


def _check_cpp_compiler() -> RequirementFinding:
    requirement = "C++ compiler"
    try:
        name = cpp_compiler()
    except Exception:  # noqa: BLE001 - PyTorch searches for a compiler by running programs
        configured = os.environ.get("CXX")
        sentence = (
            f"{configured}, to which CXX is set, does not run." if configured else "none was found; the CPU needs one."
        )
        return RequirementFinding(requirement, sentence, _HOW_TO_INSTALL_COMPILER)
    if sys.platform != "linux":
        return RequirementFinding(requirement, f"{name} was found.")
    failure_with_headers = _try_compiler(name, list(_HEADERS))
    if failure_with_headers is None:
        return RequirementFinding(requirement, f"{name} compiles code with Python's headers and OpenMP.")
    failure_without_headers = _try_compiler(name, [])
    if failure_without_headers is not None and failure_without_headers.does_compile:
        return RequirementFinding(
            requirement,
            f"the code that {name} compiles cannot be loaded: {failure_without_headers.error}",
            _HOW_TO_MOVE_CACHE_FOLDER,
        )
    if failure_without_headers is not None:
        return RequirementFinding(
            requirement, f"{name} fails: {failure_without_headers.error}", _HOW_TO_INSTALL_COMPILER
        )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    fixes = {
        "Python.h": f"Install Python's headers: `apt install python{version}-dev` or "
        f"`dnf install python{version}-devel`. A Python from conda or uv has them.",
        "omp.h": "Install OpenMP for the compiler: `apt install libgomp1 g++`, or `libomp-dev` for clang.",
    }
    for header, fix in fixes.items():
        problem = _try_compiler(name, [header])
        if problem is not None:
            return RequirementFinding(requirement, f"{name} cannot use {header}: {problem.error}", fix)
    return RequirementFinding(requirement, f"{name} fails: {failure_with_headers.error}", _HOW_TO_INSTALL_COMPILER)


@dataclass(frozen=True)
class _CompilerFailure:
    """The reason why compiled code does not run, and whether the compiler itself succeeded."""

    error: str
    does_compile: bool = False


def _try_compiler(compiler: str, headers: list[str]) -> _CompilerFailure | None:
    """Compile code that includes headers, load it and call it; return the failure, or ``None``."""
    # Compile in the cache folder, from which Inductor loads its code, because programs may not be allowed to run there.
    with tempfile.TemporaryDirectory(dir=make_cache_folder()) as folder:
        source, library = Path(folder) / "probe.cpp", Path(folder) / "probe.so"
        source.write_text("".join(f"#include <{header}>\n" for header in headers) + _PROBE_SOURCE)
        options = [option for header in headers for option in _HEADERS[header]]
        command = [*shlex.split(compiler), "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", *options]
        command += [str(source), "-o", str(library)]
        try:
            process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMPILER_TIMEOUT_S)
            if process.returncode != 0:
                errors = [line for line in process.stderr.split("\n") if "error" in line] or process.stderr.split("\n")
                return _CompilerFailure(errors[0].strip())
        except (OSError, subprocess.TimeoutExpired) as error:
            return _CompilerFailure(str(error))
        try:
            result: int = ctypes.CDLL(str(library)).add_one(1)
        except OSError as error:
            return _CompilerFailure(str(error), does_compile=True)
        return None if result == 2 else _CompilerFailure("the compiled code returns a wrong number")  # noqa: PLR2004


def _check_triton() -> tuple[RequirementFinding, bool]:
    """Check Triton; also return whether it prevents the import of PyTorch's compiler.

    If importing Triton raises ImportError, PyTorch works without it; any other exception stops PyTorch.
    """
    requirement, specifier = "Triton", _required_triton()
    is_needed = len(devices()) > 1
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        version = None
    if version is None and importlib.util.find_spec("triton") is None:
        if not is_needed:
            return RequirementFinding(requirement, "it is not installed; only GPUs need it."), False
        return RequirementFinding(
            requirement, "it is not installed, and GPUs need it.", f"Install it: `pip install '{specifier}'`."
        ), False
    if is_needed and version is not None and not _is_allowed_by(version, specifier):
        sentence = f"version {version} is installed, and this PyTorch needs {specifier}."
        return RequirementFinding(requirement, sentence, f"Install it: `pip install '{specifier}'`."), False
    try:
        importlib.import_module("triton")
    except Exception as error:  # noqa: BLE001 - the error is the sentence
        sentence, breaks_pytorch = _import_failure(error, version), not isinstance(error, ImportError)
        if not is_needed and not breaks_pytorch:
            return RequirementFinding(requirement, f"{sentence} (only GPUs need it)."), False
        alternative = "" if is_needed else ", or remove it, since only GPUs need it: `pip uninstall triton`"
        fix = f"Install it again: `{_REINSTALL_COMMAND} '{specifier}'`{alternative}."
        return RequirementFinding(requirement, sentence, fix), breaks_pytorch
    return RequirementFinding(requirement, f"version {version} is installed." if version else "it is installed."), False


def _required_triton() -> str:
    """Return the requirement for the Triton that this PyTorch needs, in the syntax of ``pip``."""
    try:
        requirements = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    return next((line.split(";")[0].strip() for line in requirements if line.startswith("triton")), "triton")


def _is_allowed_by(version: str, requirement: str) -> bool:
    """Return whether a version of Triton meets a requirement of PyTorch such as "triton==3.5.1" or "triton~=3.9.0"."""
    match = re.search(r"(==|~=) *([\d.]+)", requirement)
    if match is None:
        return True
    operator, number = match.groups()
    return version.startswith(number.rpartition(".")[0] + ".") if operator == "~=" else version == number


def _finding_on_unused_gpu(reason: str) -> RequirementFinding:
    import torch

    sentence = f"PyTorch is built for CUDA {torch.version.cuda}, but uses no GPU: {reason.rstrip('.')}."
    if shutil.which("nvidia-smi") is None:
        return RequirementFinding("GPU", sentence)
    return RequirementFinding(
        "GPU", sentence, "Compare the driver's version, from `nvidia-smi`, with PyTorch's CUDA version."
    )


def _check_compiled_function(device: torch.device) -> RequirementFinding:
    """Compile a function with Inductor, and compare its result with the eager one."""
    import torch

    def function(x: torch.Tensor) -> torch.Tensor:
        return (torch.sin(x) + 1).sum(-1)

    requirement, x = str(device), torch.linspace(0, 1, 64, device=device).reshape(8, 8)
    start = time.monotonic()
    try:
        with speed_up_cpu_compilation():
            result = torch.compile(function, fullgraph=True)(x)
    except Exception as error:  # noqa: BLE001 - the error is the finding
        sentence = f"compiling a function fails with {type(error).__name__}: {_first_line(error)}"
        return RequirementFinding(requirement, sentence, "If everything above is ok, report the error to PyTorch.")
    seconds = time.monotonic() - start
    if not torch.allclose(result, function(x), atol=1e-4):
        return RequirementFinding(
            requirement, "a compiled function returns a wrong result.", "Report the bug to PyTorch."
        )
    return RequirementFinding(
        requirement, f"a compiled function returns the right result; compiling it took {seconds:.1f} s."
    )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    return lines[0] if lines else "without a message"
