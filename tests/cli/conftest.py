"""The command line, run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
MAIN = "from jupyter_graphbreak.cli import main; main()"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run ``graphbreak`` in a folder of its own."""

    def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, **options}
        command = [sys.executable, "-c", MAIN, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)

    return run
