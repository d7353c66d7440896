"""The page of known bugs agrees with the programs that reproduce them."""

from __future__ import annotations

import json
import re

import pytest
import torch

from jupyter_graphbreak.knowledge.known_bugs import bugs_by_subject
from notebooks import known_bugs
from tests.programs.bugs.known_bugs import BACKENDS, PROGRAMS, outcome

BUGS = [bug for subject in bugs_by_subject().values() for bug in subject]
OUTCOMES = json.loads(known_bugs.OUTCOMES.read_text(encoding="utf-8"))
RELEASE = torch.__version__.partition("+")[0]
#: The programs that use Inductor take a second each, and one program starts a process.
SLOW_PROGRAMS = {name for name, program in PROGRAMS.items() if program not in BACKENDS} | {"181247"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] if name in SLOW_PROGRAMS else []) for name in PROGRAMS]
)
@pytest.mark.skipif(RELEASE not in OUTCOMES["193279"], reason="not measured with this release")
def test_each_program_has_the_outcome_on_the_page(name: str) -> None:
    assert outcome(name) == OUTCOMES[name][RELEASE]


def test_each_program_belongs_to_a_known_bug() -> None:
    assert PROGRAMS.keys() == OUTCOMES.keys() <= {bug.issue for bug in BUGS}
    assert len({bug.issue for bug in BUGS}) == len(BUGS)


def test_the_page_has_every_bug_with_a_link_and_says_whether_it_was_run() -> None:
    page = known_bugs.insert_lists((known_bugs.OUTCOMES.parent / "known_bugs.md").read_text(encoding="utf-8"))
    entries = re.findall(
        r"^\*\*.+\.\*\* \*.+\.\* .+\n\n</summary>\n\n(In code that .+)\n\n</details>$", page, re.MULTILINE
    )
    assert len(entries) == len(BUGS)
    assert all("ested." in entry for entry in entries)
    assert all(f"]({bug.address})" in page for bug in BUGS if bug.address)
    assert "*Wrong result in 2.9.1 and 2.13.0, right in 2.15.0.*" in page


def test_bugs_that_are_fixed_in_the_newest_release_are_last() -> None:
    page = known_bugs.insert_lists("% known bugs: wrong results\nThe site has a list here.")
    first, _, last = page.partition("**Fixed in PyTorch 2.15.0:**")
    assert "right in 2.15.0" not in first
    assert last.count("<details") == last.count("ight in") > 5
