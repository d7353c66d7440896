"""The text for PyTorch's bug report form, and the comment at the top of a script."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from typing import TYPE_CHECKING

import torch

from jupyter_graphbreak._torch_compat.version import require_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_OUTPUT = 6_000
#: The time, the process and the place in PyTorch with which each line of its logs begins.
_LOG_PREFIX = re.compile(r"^[VIWE]\d{4} [\d:.]+ \d+ \S+\] (?:\[\d+/\d+[^]]*\] )?(?:\[__\w+\] ?)?", re.MULTILINE)

#: The folder in which packages are installed, at the beginning of a path.
_INSTALLED = re.compile(r"""[^\s"']*[/\\](?:site|dist)-packages[/\\]""")


def header(title: str, packages: Iterable[str]) -> str:
    """Return the comment at the top of a script."""
    needs = "".join(f"\n# Needs {requirement}" for requirement in _requirements(packages))
    shows = f"# Shows: {' '.join(title.split())}"
    return f"{shows}\n# Seen with PyTorch {require_torch()}, Python {platform.python_version()}{needs}"


def issue_text(title: str, script: str, output: str, packages: Iterable[str]) -> str:
    """Return what to enter in PyTorch's bug report form.

    Parameters
    ----------
    title : str
    script : str
    output : str
        What the script prints.
    packages : iterable of str
        The packages that it needs besides PyTorch.
    """
    versions = "\n".join(f"{name}: {version}" for name, version in _versions(packages))
    shown = _INSTALLED.sub("", _LOG_PREFIX.sub("", output)).strip()
    if len(shown) > _MAX_OUTPUT:
        shown = f"{shown[: _MAX_OUTPUT // 2]}\n...\n{shown[-_MAX_OUTPUT // 2 :]}"
    return (
        f"### 🐛 Describe the bug\n\n{title}\n\n```python\n{script.strip()}\n```\n\n"
        f"### Error logs\n\n```\n{shown}\n```\n\n### Versions\n\n```\n{versions}\n```\n"
    )


def _versions(packages: Iterable[str]) -> list[tuple[str, str]]:
    versions = [
        ("PyTorch", require_torch()),
        ("Python", platform.python_version()),
        ("OS", f"{platform.system()} {platform.machine()}"),
        ("CUDA used to build PyTorch", str(torch.version.cuda or "none")),
        ("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none"),
    ]
    return [*versions, *(("Package", requirement) for requirement in _requirements(["triton", *packages]))]


def _requirements(packages: Iterable[str]) -> list[str]:
    known = importlib.metadata.packages_distributions()
    names = [name for package in sorted(set(packages)) for name in known.get(package, [])[:1]]
    return [f"{name}=={importlib.metadata.version(name)}" for name in names]
