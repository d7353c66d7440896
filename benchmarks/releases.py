"""Run the tests with every supported release of PyTorch, and write the table in README.

``make releases`` calls it. A release takes minutes and, if its environment does not exist yet, gigabytes. Results are
kept in ``build/releases``; a release is run again when a source is newer than its result.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "releases"
RELEASES = ("2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
#: Further versions of Python, tested with one release if they are installed.
PYTHONS = ("3.12", "3.13")
FOLDERS = ("tests/unit", "tests/torch", "tests/ipython")
BEGIN, END = "<!-- releases: begin -->", "<!-- releases: end -->"
#: Pins that do not apply to other releases: torch 2.11 and 2.12 need an older setuptools.
_PINNED = re.compile(r"^(torch|setuptools)==.*\n", re.MULTILINE)
#: A row of the table with its six fields; the header row does not match, because it has no version.
_ROW = re.compile(r"^\| (\d\S*) \| (\S+) \| (\d+) \| (\d+) \| (\d+) \| (\S+) \|$", re.MULTILINE)


class Run(NamedTuple):
    """One release with one Python."""

    torch: str
    python: str  # "" is the Python of this script

    @property
    def name(self) -> str:
        """The name of its environment and its result."""
        return f"{self.torch}-py{self.python}" if self.python else self.torch


class Result(NamedTuple):
    """The outcome of a run."""

    torch: str
    python: str
    passed: int
    failed: int
    skipped: int
    date: str


def main() -> None:
    """Run the outdated combinations, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", help=f"default: {' '.join(RELEASES)}")
    parser.add_argument("--with-pythons", default="2.13.0", help="the release to try with further Pythons")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    runs = [Run(torch, "") for torch in arguments.releases or RELEASES]
    if not arguments.releases:
        runs += [Run(arguments.with_pythons, python) for python in PYTHONS if interpreter(python) is not None]
    has_failed = False
    for run in runs if not arguments.table_only else ():
        result_path = RESULTS / f"{run.name}.json"
        if is_current(result_path) and os.environ.get("FORCE") != "1":
            print(f"{run.name}: nothing has changed since {result_path.relative_to(ROOT)} (FORCE=1 runs it again)")
            continue
        test_result = run_tests(find_or_create_python(run))
        print(
            f"{run.name}: {test_result.passed} passed, {test_result.failed} failed, {test_result.skipped} skipped",
            flush=True,
        )
        result_path.write_text(json.dumps(test_result._asdict()) + "\n", encoding="utf-8")
        has_failed = has_failed or test_result.failed > 0
    write_table(read_results())
    sys.exit(has_failed)


def is_current(result_path: Path) -> bool:
    """Return whether a result is newer than the sources and without failures."""
    if not result_path.exists() or result_path.stat().st_mtime <= newest_source():
        return False
    return int(json.loads(result_path.read_text(encoding="utf-8"))["failed"]) == 0


def newest_source() -> float:
    """Return when the newest file of the package or of its tests was changed."""
    folders = (ROOT / "jupyter_graphbreak", *(ROOT / folder for folder in FOLDERS), ROOT / "tests" / "programs")
    return max(path.stat().st_mtime for folder in folders for path in folder.rglob("*.py"))


def interpreter(python: str) -> str | None:
    """Return the interpreter of a version of Python, if installed."""
    interpreters = sorted((Path.home() / ".pyenv" / "versions").glob(f"{python}.*/bin/python"))
    return str(interpreters[-1]) if interpreters else shutil.which(f"python{python}")


def find_or_create_python(run: Run) -> Path:
    """Return the Python of an environment with this release, creating it if necessary."""
    venvs_folder = os.environ.get("RELEASES_VENVS")
    venv_folder = Path(venvs_folder) / run.name if venvs_folder else ROOT / f".venv-torch-{run.name}"
    python = venv_folder / "bin" / "python"
    if python.exists():
        return python
    if venvs_folder:
        sys.exit(f"RELEASES_VENVS has no {run.name}/bin/python")
    print(f"{run.name}: setting up {venv_folder.name}", flush=True)
    base = interpreter(run.python) if run.python else sys.executable
    subprocess.run([str(base), "-m", "venv", str(venv_folder)], check=True)
    constraints = venv_folder / "constraints.txt"
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    constraints.write_text(_PINNED.sub("", pins), encoding="utf-8")
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-c", str(constraints)]
    subprocess.run([*command, f"torch=={run.torch}", "-e", f"{ROOT}[dev]"], check=True, cwd=ROOT)
    return python


def run_tests(python: Path) -> Result:
    """Run the tests in an environment, and count the outcomes."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    xml = RESULTS / f"{python.parents[1].name}.xml"
    xml.unlink(missing_ok=True)
    versions = subprocess.run(
        [python, "-c", "import platform, torch; print(torch.__version__, platform.python_version())"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    command = [str(python), "-m", "pytest", *FOLDERS, "-q", "-m", "not exhaustive", "-p", "no:cacheprovider"]
    command.append(f"--junitxml={xml}")
    subprocess.run(command, check=False, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    suite = ET.parse(xml).getroot().find("testsuite")  # noqa: S314 - pytest has just written it
    if suite is None:
        sys.exit(f"{xml} has no tests")
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    today = dt.datetime.now(dt.UTC).date().isoformat()
    torch, version = versions
    return Result(torch.partition("+")[0], version, total - failed - skipped, failed, skipped, today)


def read_results() -> list[Result]:
    """Return the saved results."""
    return [Result(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(RESULTS.glob("*.json"))]


def write_table(results: list[Result]) -> None:
    """Write the table between the two comments in README, keeping rows from other machines."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    text_before, begin, rest = text.partition(BEGIN)
    table, end, text_after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"README.md lacks {BEGIN} or {END}")
    rows = {(row[0], row[1]): row for row in _ROW.findall(table)}
    rows |= {(result.torch, result.python): tuple(map(str, result)) for result in results}
    lines = ["| torch | Python | passed | failed | skipped | date |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(rows[key])} |" for key in sorted(rows, key=_version_numbers)]
    readme.write_text("\n".join((text_before + begin, *lines, end + text_after)), encoding="utf-8")


def _version_numbers(versions: tuple[str, str]) -> list[list[int]]:
    return [[int(number) for number in version.split(".")] for version in versions]


if __name__ == "__main__":
    main()
