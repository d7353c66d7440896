"""The command line, run in a separate process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_processes

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(fork_server_folder: Path, tmp_path: Path) -> Cli:
    """Return a function that runs ``graphbreak`` in an empty folder."""

    def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        command = ["-m", "jupyter_graphbreak", *map(str, arguments)]
        return warm_processes.run(fork_server_folder, command, cwd=tmp_path, env={**os.environ, **options})

    return run
