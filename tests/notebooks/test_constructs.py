"""The page "Is this traced?" agrees with the programs that it is made of."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import snowballstemmer  # type: ignore[import-untyped] # it ships no types
import torch

from notebooks import constructs
from notebooks.constructs import Construct
from tests.support.construct_outcomes import outcome

GROUPS = constructs.constructs()
OUTCOMES = constructs.outcomes()
ALL = [construct for group in GROUPS.values() for construct in group]
RELEASE = torch.__version__.partition("+")[0]
PAGE = (constructs.OUTCOMES.parent / "traced.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    torch._logging.set_logs(all=logging.CRITICAL)  # type: ignore[attr-defined] # not exported
    yield
    torch._logging.set_logs()  # type: ignore[attr-defined] # not exported
    torch.compiler.reset()


@pytest.mark.parametrize(
    "construct",
    [
        pytest.param(construct, id=construct.name, marks=[] if number % 40 == 0 else [pytest.mark.exhaustive])
        for number, construct in enumerate(ALL)
    ],
)
@pytest.mark.skipif(RELEASE not in OUTCOMES[ALL[0].name], reason="not measured with this release")
def test_each_program_has_the_outcome_on_the_page(construct: Construct) -> None:
    assert outcome(construct) == OUTCOMES[construct.name][RELEASE], "run benchmarks/constructs.py with each release"


def test_every_construct_was_run_with_each_release_of_the_page() -> None:
    assert list(OUTCOMES) == [construct.name for construct in ALL]
    releases = re.search(r"PyTorch ([\d.]+), ([\d.]+) and ([\d.]+) \(", PAGE)
    assert releases
    assert {tuple(measured) for measured in OUTCOMES.values()} == {releases.groups()}


def test_the_page_has_a_row_for_every_construct() -> None:
    page = constructs.with_tables(PAGE)
    assert re.findall(r"^% constructs: (\w+)$", PAGE, re.MULTILINE) != []
    assert sorted(re.findall(r"^% constructs: (\w+)$", PAGE, re.MULTILINE)) == sorted(GROUPS)
    rows = [line for line in page.splitlines() if re.match(r"\| .* \| (traced(?!\?)|breaks|error |different)", line)]
    assert len(rows) == len(ALL)


def test_a_row_says_since_when_and_what_to_do() -> None:
    row = next(line for line in constructs.with_tables(PAGE).splitlines() if line.startswith("| `random.random()`"))
    assert row == (
        "| `random.random()` | traced since 2.15; 2.9, 2.13: breaks, [GB0007](causes/gb0007.md) | "
        "`call_function random.random`, *Attempted to call function marked as skipped*. "
        "Use `random.uniform(0, 1)`, which is traced and draws the same number, or `torch.rand`. |"
    )


def test_every_construct_has_words_to_search_for() -> None:
    assert [construct.name for construct in ALL if not construct.says] == []


@pytest.mark.slow
def test_the_search_finds_the_page_by_pytorchs_words(site: Path) -> None:
    index = json.loads((site / "searchindex.js").read_text(encoding="utf-8").partition("(")[2].rpartition(")")[0])
    number = index["docnames"].index("traced")
    stem = snowballstemmer.stemmer("english").stemWord
    missing = []
    for construct in ALL:
        for word in re.findall(r"\w+", " ".join(construct.says).lower()):
            places = [index[kind].get(stem(word), []) for kind in ("terms", "titleterms")]
            pages = {at for place in places for at in (place if isinstance(place, list) else [place])}
            if pages and number not in pages:
                missing.append((construct.name, word))
    assert missing == []
