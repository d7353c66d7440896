"""Make the lists of the known bugs of PyTorch's releases from public threads and from measured outcomes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge.known_bugs import bugs_by_subject

if TYPE_CHECKING:
    from jupyter_graphbreak.knowledge.known_bugs import KnownBug

#: The outcome of each program of ``tests/programs/bugs`` by release, which ``benchmarks/known_bugs.py`` writes.
OUTCOMES = Path(__file__).parent / "known_bugs.json"
#: A comment that names a subject, and the sentence below it, which a reader of the source sees in place of the list.
_PLACE = re.compile(r"^% known bugs: (.*)\n.*$", re.MULTILINE)


def with_lists(text: str) -> str:
    """Replace the comments of a page that name a subject with lists of the bugs."""
    measured: dict[str, dict[str, str]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    return _PLACE.sub(
        lambda place: "\n\n".join(_entry(bug, measured.get(bug.issue, {})) for bug in bugs_by_subject()[place[1]]), text
    )


def _entry(bug: KnownBug, measured: dict[str, str]) -> str:
    link = f" ([{bug.issue}]({bug.address}))" if bug.address else ""
    reported = f"{bug.releases}. " if bug.releases else ""
    outcomes = ", ".join(f"{release} {outcome}" for release, outcome in measured.items())
    runs = f"Run here: {outcomes}." if outcomes else "Not run here."
    symptom = bug.symptom[:1].upper() + bug.symptom[1:]
    return f"**{symptom}**{link}\n: In code that {bug.code}. {reported}{runs}\n: *Until it is fixed:* {bug.advice}"
