"""The saved page of a report in Firefox and in WebKit. Tests of a browser that is not installed are skipped."""

from __future__ import annotations

import json
import socket
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosts.firefox import Firefox, run_firefox
from tests.hosts.webkit import WebKit, run_webkit
from tests.support.find_browser import find_firefox, find_webkit
from tests.support.sample_reports import big_report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENTER, ESCAPE = "\ue007", "\ue00c"
CARD = ".gb-item[id$='-b2'] > details"
#: A selector of the list of breaks in the only group.
BREAK_LIST = "[data-list=places-0]"

#: A script that runs before all others on the page and records the page's errors.
_RECORD_ERRORS = """<script>
window.complaints = [];
addEventListener("error", event => complaints.push(String(event.message)));
addEventListener("unhandledrejection", event => complaints.push(String(event.reason)));
console.error = console.warn = (...words) => complaints.push(words.join(" "));
</script>"""

#: JavaScript that counts the colours in a square of an image.
_COUNT_COLOURS = """new Promise(end => {{
  const image = new Image();
  image.onload = () => {{
    const canvas = document.createElement("canvas");
    const scale = image.width / innerWidth;
    canvas.width = canvas.height = 40;
    const context = canvas.getContext("2d");
    context.drawImage(image, {x} * scale, {y} * scale, 40, 40, 0, 0, 40, 40);
    const pixels = context.getImageData(0, 0, 40, 40).data;
    const colours = new Set();
    for (let at = 0; at < pixels.length; at += 4) colours.add(pixels.slice(at, at + 3).join());
    end(colours.size);
  }};
  image.src = "data:image/png;base64,{image}";
}})"""


class Page:
    """The saved page of a report, in one of the browsers."""

    def __init__(self, browser: Firefox | WebKit) -> None:
        self.browser = browser
        self.evaluate = browser.evaluate
        self.press = browser.press

    def wait_for(self, code: str) -> bool:
        """Return whether an expression becomes true within a few seconds."""
        for _ in range(50):
            if self.evaluate(code):
                return True
            time.sleep(0.1)
        return False

    def position_of(self, selector: str) -> tuple[int, int]:
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        return round(self.evaluate(f"{box}.left")), round(self.evaluate(f"{box}.top"))

    def click(self, selector: str) -> None:
        """Click near the top left corner of the element that a selector matches, once the page is laid out."""
        self.evaluate("new Promise(end => requestAnimationFrame(() => requestAnimationFrame(end)))")
        x, y = self.position_of(selector)
        self.browser.click(x + 40, y + 8)

    def focus(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")


def _open_browser(name: str, folder: Path, port: int) -> AbstractContextManager[Any]:
    return run_firefox(folder, port) if name == "firefox" else run_webkit(port)


def _skip_if_missing(name: str, path: object) -> Any:
    return pytest.param(name, marks=pytest.mark.skipif(path is None, reason=f"no {name} on this machine"))


@pytest.fixture(
    scope="module", params=[_skip_if_missing("firefox", find_firefox()), _skip_if_missing("webkit", find_webkit())]
)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("saved")
    path = folder / "report.html"
    big_report(breaks=60, ops=120).save(path)
    text = path.read_text(encoding="utf-8")
    assert text.count("<head>") == 1
    path.write_text(text.replace("<head>", "<head>" + _RECORD_ERRORS), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "profile").mkdir()
    with _open_browser(request.param, folder / "profile", port) as browser:
        browser.open(path)
        opened_page = Page(browser)
        assert opened_page.wait_for("document.querySelector('.gb-live') !== null")
        opened_page.evaluate("void document.querySelector('.gb-group > details > summary').click()")
        yield opened_page
        assert opened_page.evaluate("window.complaints.join()") == ""


@pytest.mark.parametrize("key", ["click", ENTER, " ", "o"])
def test_a_card_opens_and_closes(page: Page, key: str) -> None:
    card = f'document.querySelector("{CARD}").open'
    for state in ("true", "false"):
        if key == "click":
            page.click(f"{CARD} > summary")
        else:
            page.focus(f"{CARD} > summary")
            page.press(key)
        assert page.wait_for(f"{card} === {state}")
        assert page.evaluate("new Promise(end => setTimeout(end, 150))") is None
        assert page.evaluate(f"String({card})") == state


def test_keys_go_from_break_to_break(page: Page) -> None:
    selected_id = "document.querySelector('.gb-item.gb-selected')?.id.split('-')[1] ?? ''"
    page.focus(f"{CARD} > summary")
    page.press(ESCAPE)
    for key, break_ in (("n", "b1"), ("n", "b2"), ("n", "b3"), ("p", "b2")):
        page.press(key)
        assert page.wait_for(f"({selected_id}) === '{break_}'")
        line = "document.querySelector('.gb-line.gb-related.gb-broken').getBoundingClientRect()"
        assert page.evaluate(f"{line}.top > 0 && {line}.bottom < innerHeight")


def test_a_filter_finds_breaks_that_are_not_shown_yet(page: Page) -> None:
    page.press("/")
    for digit in "(57)":
        page.press(digit)
    shown_count = f"document.querySelectorAll('{BREAK_LIST} > .gb-item').length"
    assert page.wait_for(f"{shown_count} === 1")
    assert "(57)" in page.evaluate(f"document.querySelector('{BREAK_LIST} > .gb-item').textContent")
    page.press(ESCAPE)
    assert page.wait_for(f"{shown_count} > 1")


def test_more_breaks_are_shown_on_request(page: Page) -> None:
    page.evaluate("void document.querySelector('[data-more=places-0] button')?.click()")
    assert page.wait_for(f"document.querySelectorAll('{BREAK_LIST} > .gb-item').length >= 50")


def test_a_source_folds(page: Page) -> None:
    source = "document.querySelector('.gb-source').open"
    for state in ("false", "true"):
        page.click(".gb-source > summary")
        assert page.wait_for(f"String({source}) === '{state}'")


def test_eager_lines_are_hatched(page: Page) -> None:
    """Firefox fills a repeating gradient at this angle with one grey, so the hatch is a tiled image."""
    page.evaluate(
        "void (() => { const box = document.createElement('div'); box.className = 'gb-hatch';"
        " box.style = 'position: fixed; z-index: 9; left: 20px; top: 20px; width: 60px; height: 60px';"
        " document.querySelector('.graphbreak').append(box); })()"
    )
    try:
        image = page.browser.take_screenshot()
        assert page.evaluate(_COUNT_COLOURS.format(x=30, y=30, image=image)) > 1
    finally:
        page.evaluate("void document.querySelector('div.gb-hatch').remove()")
