"""The wheel contains every file that is needed at run time, exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LABEXTENSION = "share/jupyter/labextensions/jupyter-graphbreak/"


@pytest.fixture(scope="module")
def file_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build a wheel with the latest build of the front end, and return the names of its files."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "SKIP_JUPYTER_BUILDER": "1"}, check=True)
    (wheel,) = folder.iterdir()
    return zipfile.ZipFile(wheel).namelist()


def test_the_wheel_contains_the_labextension_once(file_names: list[str]) -> None:
    labextension_files = {name.partition(LABEXTENSION)[2] for name in file_names if LABEXTENSION in name}
    assert {"package.json", "install.json"} < labextension_files
    assert [name for name in labextension_files if name.startswith("static/remoteEntry.")]
    assert not [name for name in file_names if name.startswith("jupyter_graphbreak/labextension")]


def test_the_wheel_contains_every_file_of_the_package_and_nothing_else(file_names: list[str]) -> None:
    paths = {path.relative_to(ROOT) for path in (ROOT / "jupyter_graphbreak").rglob("*") if path.is_file()}
    files = {path.as_posix() for path in paths if not {"__pycache__", "labextension"} & set(path.parts)}
    assert {"jupyter_graphbreak/views/html/static/widget.js", "jupyter_graphbreak/views/html/static/page.js"} < files
    assert {name for name in file_names if name.startswith("jupyter_graphbreak/")} == files
    assert {name.partition("/")[0].partition("-")[0] for name in file_names} == {"jupyter_graphbreak"}
