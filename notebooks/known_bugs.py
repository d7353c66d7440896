"""Make the lists of the known bugs in PyTorch releases from public threads and from measured outcomes."""

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
_COMMENT = re.compile(r"^% known bugs: (.*)\n.*$", re.MULTILINE)


#: A bug as one line, which opens to its details. A paragraph in a summary needs blank lines around it.
_ENTRY = """\
<details class="bug">
<summary>

**{symptom}.** *{releases}.* {advice}

</summary>

In code that {code}. {runs} {link}

</details>"""


def insert_lists(text: str) -> str:
    """Replace the comments of a page that name a subject with lists of the bugs."""
    outcomes_by_bug: dict[str, dict[str, str]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    newest_release = max((release for outcomes in outcomes_by_bug.values() for release in outcomes), key=_numbers)
    return _COMMENT.sub(lambda comment: _list(bugs_by_subject()[comment[1]], outcomes_by_bug, newest_release), text)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in release.split("."))


def _series(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _list(bugs: tuple[KnownBug, ...], outcomes_by_bug: dict[str, dict[str, str]], newest_release: str) -> str:
    """List the bugs, and last those that the newest release does not have."""
    fixed_bugs = [bug for bug in bugs if outcomes_by_bug.get(bug.issue, {}).get(newest_release) == "right"]
    entries = [_entry(bug, outcomes_by_bug.get(bug.issue, {})) for bug in bugs if bug not in fixed_bugs]
    if fixed_bugs:
        entries.append(f"**Fixed in PyTorch {newest_release}:**")
    return "\n\n".join(entries + [_entry(bug, outcomes_by_bug[bug.issue]) for bug in fixed_bugs])


def _entry(bug: KnownBug, outcomes: dict[str, str]) -> str:
    releases: dict[str, list[str]] = {}
    for release, outcome in outcomes.items():
        releases.setdefault(outcome, []).append(release)
    outcomes_text = ", ".join(f"{outcome} in {_series(names)}" for outcome, names in releases.items())
    return _ENTRY.format(
        symptom=bug.symptom[:1].upper() + bug.symptom[1:],
        releases=outcomes_text[:1].upper() + outcomes_text[1:] if outcomes_text else bug.releases,
        advice=bug.advice,
        code=bug.code,
        runs=(f"{bug.releases}. Tested." if bug.releases else "Tested.") if outcomes_text else "Untested.",
        link=f"The thread: [{bug.issue}]({bug.address})." if bug.address else "There is no issue yet.",
    )
