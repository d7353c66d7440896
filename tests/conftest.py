"""What tests of several folders share: the documentation, built once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the documentation as ``make docs`` does; the executed notebooks are beside it, in ``jupyter_execute``."""
    folder = tmp_path_factory.mktemp("site") / "html"
    command = [sys.executable, "-m", "sphinx", "-E", "-W", "--keep-going", "-j", "auto", "-b", "html"]
    done = subprocess.run([*command, ROOT / "notebooks", folder], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder
