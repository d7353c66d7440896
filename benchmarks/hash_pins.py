"""Write requirements-dev.txt: the pins of constraints.txt with the hashes of all files of each release.

This script needs uv (``pip install uv``), which uses the same package index as pip.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINS = ROOT / "constraints.txt"
HASHED_REQUIREMENTS = ROOT / "requirements-dev.txt"

#: Machines install different builds of torch, for CUDA or only the CPU, some of them built locally.
_UNHASHED_PACKAGE = "torch"

_HEADER = """\
# The pins of constraints.txt with the hashes of all files of each release; `make` installs them with --require-hashes.
# Made by `python benchmarks/hash_pins.py`, not edited by hand. Without torch: machines install different builds of it.
"""


def main() -> int:
    """Write the file."""
    command = [sys.executable, "-m", "uv", "--no-config", "pip", "compile", str(PINS), "--no-deps", "--generate-hashes"]
    command += ["--no-emit-package", _UNHASHED_PACKAGE, "--no-annotate", "--no-header", "--quiet"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        print(process.stderr or "uv is missing: pip install uv", file=sys.stderr)
        return 1
    HASHED_REQUIREMENTS.write_text(_HEADER + _remove_comments(process.stdout), encoding="utf-8")
    return 0


def _remove_comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


if __name__ == "__main__":
    sys.exit(main())
