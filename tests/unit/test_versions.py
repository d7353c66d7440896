"""Values that are written both in Python and in TypeScript are equal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jupyter_graphbreak
from jupyter_graphbreak.report.job import JOB_MIME_TYPE
from jupyter_graphbreak.report.schema import MIME_TYPE, SCHEMA_VERSION
from jupyter_graphbreak.views.html.bundle import REST_TYPE

ROOT = Path(__file__).parents[2]
FRONT_END = ROOT / "labextension"


def mime_types(files: list[Path]) -> list[str]:
    """Return every occurrence of one of our mime types in the given files."""
    assert files
    matches = (re.findall(r"application/vnd\.graphbreak\.[\w.+-]+", path.read_text(encoding="utf-8")) for path in files)
    return [name for names in matches for name in names]


def test_python_and_npm_packages_have_the_same_version() -> None:
    package = json.loads((FRONT_END / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((FRONT_END / "package-lock.json").read_text(encoding="utf-8"))
    versions = {package["version"], lock["version"], lock["packages"][""]["version"]}
    assert versions == {jupyter_graphbreak.__version__}


def test_the_changelog_begins_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\S+)", changelog, flags=re.MULTILINE)
    assert headings[0] == jupyter_graphbreak.__version__


def test_the_mime_types_are_written_once_in_python_and_once_in_typescript() -> None:
    expected = [MIME_TYPE, JOB_MIME_TYPE, REST_TYPE]
    assert sorted(mime_types([*(ROOT / "jupyter_graphbreak").rglob("*.py")])) == sorted(expected)
    assert sorted(mime_types([*(FRONT_END / "src").rglob("*.ts*")])) == sorted(expected)


def test_the_mime_type_carries_the_major_version_of_the_schema() -> None:
    assert f".v{SCHEMA_VERSION.partition('.')[0]}+" in MIME_TYPE
