"""Clicks and keys in a report in JupyterLab, in Firefox. For Chromium, see ``tests/browser/test_controls.py``."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosts.firefox import Firefox, run_firefox
from tests.support.find_browser import find_firefox
from tests.support.sample_reports import remedies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lab_server import Lab

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(find_firefox() is None, reason="no firefox on this machine"),
]

ESCAPE = "\ue00c"
_REPORT = "document.querySelector('.graphbreak.gb-live.gb-column')"
_CELL_COUNT = "jupyterapp.shell.currentWidget.content.widgets.length"
_CURSOR_LINE = "jupyterapp.shell.currentWidget.content.activeCell.editor?.getCursorPosition().line"


class Page:
    """A notebook in Firefox."""

    def __init__(self, browser: Firefox) -> None:
        self.browser = browser

    def evaluate(self, code: str) -> Any:
        return self.browser.evaluate(code)

    def wait_for(self, code: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({code})"):
            assert time.monotonic() < end, code
            time.sleep(0.1)

    def click(self, element: str, *, corner: bool = False) -> None:
        """Click the middle of an element, or a point near its bottom right corner."""
        self.evaluate(f"{element}.scrollIntoView({{ block: 'center' }})")
        time.sleep(0.3)
        box = json.loads(self.evaluate(f"JSON.stringify({element}.getBoundingClientRect())"))
        if corner:
            self.browser.click(round(box["right"] - 3), round(box["bottom"] - 3))
        else:
            self.browser.click(round(box["x"] + box["width"] / 2), round(box["y"] + box["height"] / 2))


@pytest.fixture(scope="module")
def page(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with run_firefox(tmp_path_factory.mktemp("profile"), port) as browser:
        lab.save("firefox", "x = 1", remedies(), "y = 2")
        browser.open(f"{lab.url}/lab/tree/firefox.ipynb?reset")
        opened_page = Page(browser)
        opened_page.wait_for("document.querySelector('.jp-Notebook .graphbreak')", 120)
        # Without a screen, the window is never active, and JupyterLab waits for a focus event.
        opened_page.evaluate("document.querySelector('.jp-Notebook').dispatchEvent(new FocusEvent('focus'))")
        opened_page.wait_for("jupyterapp.shell.currentWidget?.context?.isReady")
        opened_page.evaluate(
            "jupyterapp.shell.currentWidget.content.widgets.forEach(cell => { cell.model.trusted = true; })"
        )
        opened_page.wait_for(_REPORT)
        time.sleep(1)  # outputs are rendered again after they are trusted
        yield opened_page


@pytest.mark.parametrize("part", [".gb-head", ".gb-foot", ".gb-panel", ".gb-strip"])
def test_keys_after_a_click_on_a_plain_area_stay_in_the_report(page: Page, part: str) -> None:
    for key in "xddbam":
        page.click(f"{_REPORT}.querySelector('{part}')", corner=True)
        page.browser.press(key)
        assert page.evaluate(_CELL_COUNT) == 3, key
    assert page.evaluate("jupyterapp.shell.currentWidget.content.activeCell.model.type") == "code"


def test_a_link_to_a_line_leads_there(page: Page) -> None:
    card = f"{_REPORT}.querySelector('.gb-break > details')"
    page.evaluate(f"{card}.open = true")
    page.click(f"{card}.querySelector('dl a[href$=\"-l0-15\"]')")
    page.wait_for(f"{_CURSOR_LINE} === 14")
    page.wait_for("document.activeElement.matches('.cm-content')")


def test_a_click_on_a_note_selects_its_break(page: Page) -> None:
    notes = "Array.from(document.querySelectorAll('.jp-GraphBreakMark-note > [data-id]'))"
    for number, line in ((2, 4), (1, 13)):
        page.click(f"{notes}.find(note => note.textContent.startsWith('✂{number} '))")
        page.wait_for(f"{_CURSOR_LINE} === {line}")
        page.wait_for(f"{_REPORT}.querySelector('.gb-break.gb-selected')?.id.endsWith('-b{number}')")


def test_escape_leaves_the_filter(page: Page) -> None:
    page.click(f"{_REPORT}.querySelector('.gb-filter')")
    for key in "print":
        page.browser.press(key)
    page.browser.press(ESCAPE)
    page.wait_for("document.activeElement.matches('.gb-tab')")
    assert page.evaluate(f"{_REPORT}.querySelector('.gb-filter').value") == ""
    assert page.evaluate(_CELL_COUNT) == 3


def test_an_inserted_cell_is_removed_by_undo(page: Page) -> None:
    cards = f"Array.from({_REPORT}.querySelectorAll('.gb-break > details'))"
    page.evaluate(f"{cards}.forEach(card => {{ card.open = true; }})")
    insert_button = f"Array.from({_REPORT}.querySelectorAll('button')).find(button => /^Insert/.test(button.ariaLabel))"
    page.click(insert_button)
    page.wait_for("document.querySelector('.jp-Dialog .jp-mod-accept')")
    page.click("document.querySelector('.jp-Dialog .jp-mod-accept')")
    page.wait_for(f"{_CELL_COUNT} === 4")
    time.sleep(0.5)
    page.browser.press_with_control("z")
    page.wait_for(f"{_CELL_COUNT} === 3")
