"""Make the lists of the known bugs of PyTorch's releases from public threads and from measured outcomes."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

_TABLE = Path(__file__).parent / "known_bugs.toml"
#: The outcome of each program of ``tests/programs/bugs`` by release, which ``benchmarks/known_bugs.py`` writes.
OUTCOMES = Path(__file__).parent / "known_bugs.json"
#: A comment that names a subject, and the sentence below it, which a reader of the source sees in place of the list.
_PLACE = re.compile(r"^% known bugs: (.*)\n.*$", re.MULTILINE)


@dataclass(frozen=True)
class KnownBug:
    """A bug of one or several releases of PyTorch.

    Parameters
    ----------
    issue : str
        The number of PyTorch's issue, or "owner/name#number"; for a bug without an issue, the name of its program.
    symptom : str
        The words of the error, or what goes wrong.
    code : str
        What the code does.
    advice : str
        What to do until the bug is fixed.
    releases : str
        The releases according to the thread; empty if only our programs say it.
    """

    issue: str
    symptom: str
    code: str
    advice: str
    releases: str = ""

    @property
    def address(self) -> str | None:
        """The address of the thread; None if there is none."""
        repository, _, number = self.issue.rpartition("#")
        return f"https://github.com/{repository or 'pytorch/pytorch'}/issues/{number}" if number.isdecimal() else None


@functools.cache
def bugs() -> dict[str, tuple[KnownBug, ...]]:
    """Return the bugs by subject."""
    subjects = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return {subject: tuple(KnownBug(**entry) for entry in entries) for subject, entries in subjects.items()}


def with_lists(text: str) -> str:
    """Replace the comments of a page that name a subject with lists of the bugs."""
    measured: dict[str, dict[str, str]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    return _PLACE.sub(
        lambda place: "\n\n".join(_entry(bug, measured.get(bug.issue, {})) for bug in bugs()[place[1]]), text
    )


def _entry(bug: KnownBug, measured: dict[str, str]) -> str:
    link = f" ([{bug.issue}]({bug.address}))" if bug.address else ""
    reported = f"{bug.releases}. " if bug.releases else ""
    outcomes = ", ".join(f"{release} {outcome}" for release, outcome in measured.items())
    runs = f"Run here: {outcomes}." if outcomes else "Not run here."
    symptom = bug.symptom[:1].upper() + bug.symptom[1:]
    return f"**{symptom}**{link}\n: In code that {bug.code}. {reported}{runs}\n: *Until it is fixed:* {bug.advice}"
