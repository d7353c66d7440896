"""Reports in JupyterLab: live, used by keyboard, saved and reopened, without a kernel, and untrusted."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from jupyter_graphbreak.report.schema import MIME_TYPE
from tests.browser.pages import open_in_lab, run_all, switch_theme, trust
from tests.support.sample_reports import HOSTILE, big_report, hostile_report, two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.conftest import PageUnderTest
    from tests.support.lab_server import Lab

    Open = Callable[..., PageUnderTest]

CELL = """\
%%compile_explain
import torch
@torch.compile(backend="eager")
def step(x):
    y = x * 2
    if y.sum() > 3:
        y = y - 1
    print("mean")
    return torch.relu(y)
step(torch.ones(4))"""


@pytest.mark.slow
def test_a_live_report_is_used_by_keyboard_saved_and_reopened_without_a_kernel(open_page: Open, lab: Lab) -> None:
    """Use a live report by keyboard and save it; then shut the kernel down and reopen the notebook."""
    lab.save("live", "%load_ext jupyter_graphbreak", CELL)
    tested_page = open_in_lab(open_page, lab, "live", kernel=True)
    page = tested_page.page
    run_all(page)
    report = page.locator(".graphbreak.gb-live")
    expect(report).to_have_count(1, timeout=60_000)
    expect(page.locator(".jp-RenderedHTML .graphbreak")).to_have_count(0)
    expect(report.locator(".gb-verdict")).to_contain_text("2 breaks. Fix break 1 first: it ")
    expect(page.locator(".jp-OutputArea-output", has_text="tensor([1., 1., 1., 1.])")).to_have_count(1)
    # JupyterLab renders an output again after its last part. Once the cell has marks, the output is final.
    expect(report).to_have_class(re.compile(r"\bgb-column\b"))
    report.evaluate("report => report.scrollIntoView()")
    tested_page.save_screenshot("lab-live-light")
    assert tested_page.serious_violations() == []

    # The report gets the keys, not the notebook (where "c" copies a cell and "b" inserts one).
    cells = page.locator(".jp-Notebook .jp-Cell").count()
    report.get_by_role("tab", name="Breaks").focus()
    page.keyboard.press("n")
    expect(report.locator(".gb-line[id$='l0-6']")).to_have_class(re.compile("gb-related"))
    expect(report.locator(".gb-line[id$='l0-7']")).to_have_class(re.compile("gb-related"))  # where it resumes
    tested_page.save_screenshot("lab-live-selected")
    page.keyboard.press("b")
    page.keyboard.press("c")
    expect(report.get_by_role("status")).to_have_text("Copied as text")
    assert page.evaluate("navigator.clipboard.readText()").startswith("2 breaks")
    assert page.locator(".jp-Notebook .jp-Cell").count() == cells
    for _ in range(2):
        page.keyboard.press("Escape")
    expect(page.locator(".jp-Cell", has=page.locator(".graphbreak"))).to_be_focused()

    colour_before = page.evaluate("getComputedStyle(document.querySelector('.graphbreak')).backgroundColor")
    switch_theme(page, "JupyterLab Dark")
    tested_page.save_screenshot("lab-live-dark")
    assert page.evaluate("getComputedStyle(document.querySelector('.graphbreak')).backgroundColor") != colour_before
    assert tested_page.serious_violations() == []

    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    saved_notebook = json.loads((lab.folder / "live.ipynb").read_text())
    outputs = [
        output["data"] for output in saved_notebook["cells"][1]["outputs"] if MIME_TYPE in output.get("data", {})
    ]
    assert len(outputs) == 1
    assert outputs[0][MIME_TYPE]["summary"]["breaks"] == 2

    open_in_lab(open_page, lab, "live")  # ends the kernel without starting a new one
    report = page.locator(".graphbreak")
    expect(report).to_have_count(1, timeout=30_000)
    expect(page.get_by_text("Error displaying widget")).to_have_count(0)
    expect(page.locator(".jp-RenderedHTML .graphbreak.gb-live")).to_have_count(1)
    report.scroll_into_view_if_needed()
    tested_page.save_screenshot("lab-dead-kernel")
    report.locator(".gb-strip .gb-tick a").first.click()
    expect(report.locator(".gb-line[id$='l0-6']")).to_have_class(re.compile("gb-related"))
    assert tested_page.serious_violations() == []


def test_an_untrusted_notebook_is_readable(open_page: Open, lab: Lab) -> None:
    lab.save("untrusted", two_breaks())
    tested_page = open_in_lab(open_page, lab, "untrusted")
    page = tested_page.page
    report = page.locator(".graphbreak")
    expect(report).to_have_count(1)
    expect(page.locator(".gb-live")).to_have_count(0)
    assert page.locator(".graphbreak style").count() == 0
    expect(report.get_by_text("Branch on a tensor's value → resumes at 15 (B)")).to_be_visible()
    tested_page.save_screenshot("lab-untrusted")
    # Without classes, the report looks as it does in a front end that lacks our style sheet.
    page.evaluate(
        "document.querySelectorAll('.graphbreak, .graphbreak *').forEach(each => each.removeAttribute('class'))"
    )
    tested_page.save_screenshot("lab-untrusted-plain")


def test_hostile_text_is_never_executed_in_a_trusted_notebook(open_page: Open, lab: Lab) -> None:
    lab.save("hostile", hostile_report())
    tested_page = open_in_lab(open_page, lab, "hostile")
    page = tested_page.page
    trust(page)
    expect(page.locator(".graphbreak").first).to_be_visible()
    page.wait_for_timeout(1000)
    assert page.evaluate("window.hacked") is None
    assert page.locator(".graphbreak :is(img, script)").count() == 0
    assert HOSTILE in page.locator(".graphbreak").first.inner_text()


@pytest.mark.exhaustive
def test_a_report_shown_in_a_later_cell_is_live_and_complete(open_page: Open, lab: Lab) -> None:
    """The widget loads the rest of its markup from the kernel."""
    (lab.folder / "big.json").write_bytes(big_report(breaks=60, ops=120).to_json())
    show = (
        "from pathlib import Path\nfrom jupyter_graphbreak import Report\n"
        "Report.from_json(Path('big.json').read_bytes())"
    )
    lab.save("big", "%load_ext jupyter_graphbreak", show)
    tested_page = open_in_lab(open_page, lab, "big", kernel=True)
    page = tested_page.page
    run_all(page)
    report = page.locator(".graphbreak.gb-live")
    expect(report).to_have_count(1, timeout=60_000)
    report.get_by_text("60 locations").click()
    report.get_by_role("button", name="Show 50 more locations").click()
    expect(report.locator(".gb-item").filter(visible=True)).to_have_count(60)
    assert tested_page.errors == []


MODEL = """\
import torch
from transformers import BartConfig, BartForCausalLM
torch.manual_seed(0)
config = BartConfig(vocab_size=100, d_model=32, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=64,
                    decoder_layerdrop=0.5, max_position_embeddings=16, use_cache=False)
model = BartForCausalLM(config).train()
ids = torch.randint(0, 100, (2, 16))"""

STEP = """\
%%compile_explain
compiled = torch.compile(model, backend="eager")
loss = compiled(input_ids=ids, labels=ids, use_cache=False).loss
loss.backward()
loss.item()"""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
def test_two_breaks_of_a_real_model_are_visible_without_scrolling(open_page: Open, lab: Lab) -> None:
    """After Run All, each card shows its location, cause, permission, cost and advice, and the saved cell is small."""
    lab.save("bart", "%load_ext jupyter_graphbreak\n" + MODEL, STEP)
    tested_page = open_in_lab(open_page, lab, "bart", kernel=True)
    page = tested_page.page
    run_all(page)
    report = page.locator(".graphbreak.gb-live")
    expect(report).to_have_count(1, timeout=120_000)
    expect(report.locator(".gb-verdict")).to_contain_text("2 breaks. Fix break 1 first: it ")
    tested_page.save_screenshot("lab-bart")
    for number in (0, 1):
        item = report.locator(".gb-item").nth(number)
        for part in ("summary strong", ".gb-place", ".gb-brief", ".gb-do"):
            expect(item.locator(part).first).to_be_in_viewport(ratio=1)
        expect(item.locator(".gb-brief")).to_contain_text("allowed by default | ")
    expect(report.locator(".gb-place").first).to_contain_text("BartDecoder.forward")
    # With marks in the cells, the report shows only the column of conclusions.
    expect(report.locator(".gb-sources")).to_be_visible()
    expect(report.locator(".gb-source[data-kind=cell]")).to_be_hidden()
    expect(report.locator(".gb-code").filter(visible=True)).to_have_count(0)
    assert tested_page.serious_violations() == []
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    saved_notebook = json.loads((lab.folder / "bart.ipynb").read_text())
    assert len(json.dumps(saved_notebook["cells"][1])) < 250_000
    for tab in report.get_by_role("tab").all():
        tab.click()
        tested_page.save_screenshot(f"lab-bart-{tab.inner_text().split()[0].lower()}")
        assert tested_page.serious_violations() == []
