"""The known bugs in PyTorch releases, and a search for the bug behind an error message."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

_TABLE_FILE = Path(__file__).with_name("known_bugs.toml")


@dataclass(frozen=True, slots=True)
class KnownBug:
    """A bug in one or several PyTorch releases."""

    #: The number of PyTorch's issue, or "owner/name#number"; for a bug without an issue, the name of its program.
    issue: str
    #: The error message, or a description of the wrong behaviour.
    symptom: str
    #: A description of the code, as the end of a sentence that begins with "In code that".
    code: str
    #: The way to work around the bug until it is fixed.
    advice: str
    #: The releases that the issue mentions; empty if they are known only from our own programs.
    releases: str = ""
    #: A regular expression for an error message that identifies the bug; empty if there is none.
    message: str = ""

    @property
    def address(self) -> str | None:
        """The address of the bug's issue on GitHub; ``None`` for a bug without an issue."""
        repository, _, number = self.issue.rpartition("#")
        return f"https://github.com/{repository or 'pytorch/pytorch'}/issues/{number}" if number.isdecimal() else None

    @property
    def advice_in_report(self) -> str:
        """The advice about the bug, in the words of a report."""
        thread = f"a known PyTorch bug, {self.address}" if self.address else "a known PyTorch bug"
        return f"{self.advice[:1].lower()}{self.advice[1:].removesuffix('.')} ({thread})"


@functools.cache
def bugs_by_subject() -> dict[str, tuple[KnownBug, ...]]:
    """Return the bugs, grouped by subject."""
    subjects = tomllib.loads(_TABLE_FILE.read_text(encoding="utf-8"))
    return {subject: tuple(KnownBug(**entry) for entry in entries) for subject, entries in subjects.items()}


@functools.cache
def bugs_with_messages() -> tuple[KnownBug, ...]:
    """Return the bugs that can be recognized by an error message."""
    return tuple(bug for subject in bugs_by_subject().values() for bug in subject if bug.message)


def bug_with_message(message: str) -> KnownBug | None:
    """Return the bug that an error message reveals; ``None`` if it reveals no known bug."""
    return next((bug for bug in bugs_with_messages() if re.search(bug.message, message)), None)
