"""The page "Is this traced?" agrees with the programs from which it is made."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import snowballstemmer  # type: ignore[import-untyped] # the package ships no types
import torch

from notebooks import constructs
from notebooks.constructs import Construct
from tests.support.construct_outcomes import outcome

GROUPS = constructs.constructs()
OUTCOMES = constructs.outcomes()
CONSTRUCTS = [construct for group in GROUPS.values() for construct in group]
RELEASE = torch.__version__.partition("+")[0]
PAGE = (constructs.OUTCOMES.parent / "traced.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _silence_torch_logs() -> Iterator[None]:
    torch._logging.set_logs(all=logging.CRITICAL)  # type: ignore[attr-defined] # torch exports the name implicitly
    yield
    torch._logging.set_logs()  # type: ignore[attr-defined] # torch exports the name implicitly
    torch.compiler.reset()


@pytest.mark.parametrize(
    "construct",
    [
        pytest.param(construct, id=construct.name, marks=[] if number % 40 == 0 else [pytest.mark.exhaustive])
        for number, construct in enumerate(CONSTRUCTS)
    ],
)
@pytest.mark.skipif(RELEASE not in OUTCOMES[CONSTRUCTS[0].name], reason="not measured with this release")
def test_each_program_has_the_outcome_on_the_page(construct: Construct) -> None:
    assert outcome(construct) == OUTCOMES[construct.name][RELEASE], "run benchmarks/constructs.py with each release"


def test_every_construct_was_run_with_each_release_of_the_page() -> None:
    assert list(OUTCOMES) == [construct.name for construct in CONSTRUCTS]
    releases = re.search(r"PyTorch ([\d.]+), ([\d.]+) and ([\d.]+) \(", PAGE)
    assert releases
    assert {tuple(outcomes_by_release) for outcomes_by_release in OUTCOMES.values()} == {releases.groups()}


def test_the_page_has_a_row_for_every_construct() -> None:
    page = constructs.insert_tables(PAGE)
    assert re.findall(r"^% constructs: (\w+)$", PAGE, re.MULTILINE) != []
    assert sorted(re.findall(r"^% constructs: (\w+)$", PAGE, re.MULTILINE)) == sorted(GROUPS)
    rows = [line for line in page.splitlines() if re.match(r"\| .* \| (traced(?!\?)|breaks|error |different)", line)]
    assert len(rows) == len(CONSTRUCTS)


def test_a_row_names_the_first_release_that_traces_and_the_alternative() -> None:
    row = next(line for line in constructs.insert_tables(PAGE).splitlines() if line.startswith("| `random.random()`"))
    assert row == (
        "| `random.random()` | traced since 2.15; 2.9, 2.13: breaks, [GB0007](causes/gb0007.md) | "
        "`call_function random.random`, *Attempted to call function marked as skipped*. "
        "Use `random.uniform(0, 1)`, which is traced and draws the same number, or `torch.rand`. |"
    )


def test_every_construct_has_words_to_search_for() -> None:
    assert [construct.name for construct in CONSTRUCTS if not construct.messages] == []


@pytest.mark.slow
def test_the_search_finds_the_page_by_pytorchs_words(site: Path) -> None:
    index = json.loads((site / "searchindex.js").read_text(encoding="utf-8").partition("(")[2].rpartition(")")[0])
    page_index = index["docnames"].index("traced")
    stem = snowballstemmer.stemmer("english").stemWord
    missing_words = []
    for construct in CONSTRUCTS:
        for word in re.findall(r"\w+", " ".join(construct.messages).lower()):
            matches = [index[table].get(stem(word), []) for table in ("terms", "titleterms")]
            pages = {page for match in matches for page in (match if isinstance(match, list) else [match])}
            if pages and page_index not in pages:
                missing_words.append((construct.name, word))
    assert missing_words == []
