"""The saved page of a report in Firefox; without a Firefox on the machine this is said and left out."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.hosts.firefox import ENTER, Firefox, find_firefox, firefox
from tests.sample_reports import big

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(find_firefox() is None, reason="no Firefox on this machine")

CARD = ".gb-item[id$='-b2'] > details"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    folder = tmp_path_factory.mktemp("firefox")
    big(breaks=60, ops=120).save(folder / "report.html")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "profile").mkdir()
    with firefox(folder / "profile", port) as opened:
        opened.open(folder / "report.html")
        assert opened.wait_for("document.querySelector('.gb-live') !== null")
        yield opened


@pytest.mark.parametrize("way", ["click", ENTER, " ", "o"])
def test_a_card_opens_and_closes(page: Firefox, way: str) -> None:
    card = f'document.querySelector("{CARD}").open'
    for state in ("true", "false"):
        if way == "click":
            page.click(f"{CARD} > summary")
        else:
            page.evaluate(f'document.querySelector("{CARD} > summary").focus()')
            page.press(way)
        assert page.wait_for(f"{card} === {state}")
        assert page.evaluate("new Promise(end => setTimeout(end, 150))") is None
        assert page.evaluate(f"String({card})") == state


def test_more_comes_from_the_page_itself(page: Firefox) -> None:
    page.evaluate("document.querySelector('[data-more=breaks] button').click()")
    assert page.wait_for("document.querySelectorAll('[data-list=breaks] > .gb-item').length === 60")


def test_eager_lines_are_hatched(page: Firefox) -> None:
    """Firefox fills a repeating gradient at this angle with one grey, so that the hatch is a tile."""
    image = page.evaluate(
        "(() => { const box = document.createElement('div'); box.className = 'gb-hatch';"
        " document.querySelector('.graphbreak').append(box); return getComputedStyle(box).backgroundImage; })()"
    )
    assert image.startswith("linear-gradient")
