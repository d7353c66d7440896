"""``graphbreak doctor`` on machines that can compile, and on machines where something is missing or broken."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from jupyter_graphbreak.api import installation
from tests.cli.conftest import Cli

#: A compiler that fails if the source file of the probe includes the header HEADER.
COMPILER = """\
#!/bin/sh
for argument; do
    case $argument in
        *probe.cpp)
            if grep -q HEADER "$argument"; then
                echo "probe.cpp:1:10: fatal error: HEADER: No such file" >&2
                exit 1
            fi ;;
    esac
done
exec COMPILER "$@"
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a shell script is the compiler")


def faults_by_requirement(cli: Cli, **options: str) -> dict[str, tuple[str, str]]:
    """Run the doctor, and return the sentence and the fix of each fault, by the name of the requirement."""
    result = cli("doctor", "--format", "json", **options)
    findings = json.loads(result.stdout)
    faults = {item["requirement"]: (item["sentence"], item["fix"]) for item in findings if item["fix"] is not None}
    assert result.returncode == int(bool(faults)), result.stderr
    return faults


def test_a_machine_that_can_compile_has_no_faults(cli: Cli) -> None:
    result = cli("doctor")
    assert (result.returncode, result.stderr) == (0, "")
    devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    gpu = ["GPU"] if torch.version.cuda and not devices else []  # a line that says why PyTorch uses no GPU
    assert [line.split(": ")[0].split(maxsplit=1) for line in result.stdout.splitlines()[:-1]] == [
        ["ok", name] for name in ("PyTorch", "Triton", "Cache folder", "Python", "C++ compiler", *gpu, "cpu", *devices)
    ]
    assert result.stdout.endswith("\nAll is well.\n")


def test_a_missing_compiler_is_a_fault(cli: Cli) -> None:
    result = cli("doctor", CXX="no-such-compiler")
    assert "\nfault C++ compiler: no-such-compiler, to which CXX is set, does not run.\n" in result.stdout
    assert "Install one: `apt install g++`" in result.stdout
    assert result.stdout.endswith("\n1 fault: C++ compiler.\n")
    assert "\nok    cpu" not in result.stdout


@pytest.mark.parametrize("header", ["Python.h", "omp.h"])
def test_a_missing_header_is_a_fault(cli: Cli, tmp_path: Path, header: str) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(COMPILER.replace("HEADER", header).replace("COMPILER", str(shutil.which("g++"))))
    compiler.chmod(0o755)
    ((sentence, fix),) = faults_by_requirement(cli, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}").values()
    assert f"cannot use {header}: probe.cpp:1:10: fatal error: {header}: No such file" in sentence
    assert {"Python.h": "-dev`", "omp.h": "libgomp1"}[header] in fix


def test_a_cache_folder_that_cannot_be_written_is_a_fault(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    ((sentence, fix),) = faults_by_requirement(cli, TORCHINDUCTOR_CACHE_DIR=str(file / "folder")).values()
    assert sentence == f"{file / 'folder'} cannot be written: Not a directory."
    assert "TORCHINDUCTOR_CACHE_DIR" in fix


@pytest.mark.parametrize(("package", "error"), [("torch", "OSError"), ("torch", "ImportError"), ("triton", "OSError")])
def test_a_package_that_fails_on_import_is_a_fault(cli: Cli, tmp_path: Path, package: str, error: str) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise {error}('libcudart.so.12: cannot open shared object file')")
    ((name, (sentence, fix)),) = faults_by_requirement(
        cli, PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"
    ).items()
    assert name == {"torch": "PyTorch", "triton": "Triton"}[package]
    assert sentence.endswith(
        f"is installed, but importing it fails with {error}: libcudart.so.12: cannot open shared object file"
    )
    assert fix.startswith("Install it again: `pip install --force-reinstall ")
    assert ("pip uninstall triton" in fix) == (package == "triton")


@pytest.mark.exhaustive
def test_a_broken_triton_that_pytorch_does_not_need_is_not_a_fault(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text("raise ImportError('undefined symbol')")
    paths = f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"
    result = cli("doctor", PYTHONPATH=paths, TORCH_COMPILE_DISABLE="1")
    assert "importing it fails with ImportError: undefined symbol (only GPUs need it)." in result.stdout
    assert "\nfault Settings: torch.compile is switched off (TORCH_COMPILE_DISABLE=1" in result.stdout
    assert result.stdout.endswith("\n1 fault: Settings.\n")


def test_an_old_pytorch_is_a_fault(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '2.8.1'")
    ((sentence, fix),) = faults_by_requirement(
        cli, PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"
    ).values()
    assert sentence == "PyTorch 2.8.1 is too old (2.9 or newer is needed)."
    assert fix == "Install it: `pip install -U 'torch>=2.9'`."


def test_compiled_code_that_cannot_be_loaded_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingLibrary:
        def __init__(self, path: str) -> None:
            raise OSError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr(ctypes, "CDLL", FailingLibrary)
    monkeypatch.setattr(installation, "cpp_compiler", lambda: "g++ -O1")
    requirement = installation._check_cpp_compiler()  # a command may have options
    assert requirement.sentence.startswith("the code that g++ -O1 compiles cannot be loaded: ")
    assert requirement.sentence.endswith("failed to map segment from shared object")
    assert requirement.fix is not None
    assert "noexec" in requirement.fix


@pytest.mark.parametrize(
    ("version", "requirement", "is_allowed"),
    [
        ("3.9.2", "triton~=3.9.0", True),
        ("3.10.0", "triton~=3.9.0", False),
        ("3.5.1", "triton==3.5.1", True),
        ("3.5.0", "triton==3.5.1", False),
        ("3.5.0", "triton", True),
    ],
)
def test_the_version_of_triton_is_compared_with_what_pytorch_requires(
    version: str, requirement: str, *, is_allowed: bool
) -> None:
    assert installation._is_allowed_by(version, requirement) is is_allowed
