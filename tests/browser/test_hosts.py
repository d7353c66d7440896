"""Reports outside JupyterLab: in VS Code's webview, and on pages from nbconvert."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import nbformat
import pytest
from playwright.sync_api import expect

from jupyter_graphbreak.views.html.bundle import mime_bundle
from jupyter_graphbreak.views.html.render import render_html, render_rest
from jupyter_graphbreak.views.html.widget import ReportWidget
from tests.browser.conftest import PACKAGE
from tests.support.sample_reports import big_report, hostile_report, two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.browser.conftest import PageUnderTest

    Open = Callable[..., PageUnderTest]

#: A page like the one in which VS Code shows outputs: a div without shadow DOM, the theme as CSS variables, and an
#: anywidget front end that adds the style sheet and imports the module from its source text.
_WEBVIEW = """<!doctype html><html><head><meta charset="utf-8"><style>
html {{ --vscode-editor-background: {paper}; --vscode-editor-foreground: {ink}; --vscode-focusBorder: #0078d4;
  --vscode-font-family: sans-serif; --vscode-editor-font-family: monospace; background: {paper}; color: {ink}; }}
code {{ color: #d7ba7d; }} pre {{ background: #123; }} table {{ font-size: 20px; }}
</style><style>{css}</style></head><body><div class="cell_container"><div class="output" id="out"></div></div>
<script type="module">
const state = {state};
const listeners = {{}};
window.requests = [];
window.model = {{
  get: name => state[name],
  set: (name, value) => {{ state[name] = value; (listeners[`change:${{name}}`] ?? []).forEach(each => each()); }},
  on: (event, act) => {{ (listeners[event] ??= []).push(act); }},
  off: (event, act) => {{ listeners[event] = (listeners[event] ?? []).filter(each => each !== act); }},
  send: message => {{
    window.requests.push(message.request);
    (listeners['msg:custom'] ?? []).forEach(each => each({{ ...message, answer: {rest} }}));
  }},
  save_changes: () => undefined
}};
const url = URL.createObjectURL(new Blob([{module}], {{ type: 'text/javascript' }}));
const {{ default: widget }} = await import(url);
window.end = await widget.render({{ model: window.model, el: document.getElementById('out') }});
</script></body></html>"""


def write_webview(folder: Path, html: str, rest: object = None, *, dark: bool = False) -> Path:
    def to_script(data: object) -> str:
        return json.dumps(data).replace("<", "\\u003c")

    page = folder / "webview.html"
    progress = {"phase": "compiling", "function": "step", "frames": 2, "graphs": 1, "breaks": 1, "elapsed_s": 3.0}
    page.write_text(
        _WEBVIEW.format(
            paper="#1f1f1f" if dark else "#ffffff",
            ink="#cccccc" if dark else "#3b3b3b",
            css=ReportWidget._css,
            state=to_script({"_html": html, "_progress": progress}),
            rest=to_script(rest),
            module=to_script((PACKAGE / "views/html/static/widget.js").read_text(encoding="utf-8")),
        ),
        encoding="utf-8",
    )
    return page


@pytest.mark.parametrize("dark", [False, True])
def test_a_report_in_a_webview_of_vs_code_follows_its_theme(open_page: Open, tmp_path: Path, dark: bool) -> None:
    # The theme of the editor applies, not the preference of the system.
    tested_page = open_page(
        write_webview(tmp_path, render_html(two_breaks()), dark=dark), scheme="light" if dark else "dark"
    )
    page = tested_page.page
    expect(page.locator(".graphbreak.gb-live")).to_have_count(1)
    tested_page.save_screenshot(f"vscode-{'dark' if dark else 'light'}")
    background = page.evaluate("getComputedStyle(document.querySelector('.graphbreak')).backgroundColor")
    assert background == ("rgb(31, 31, 31)" if dark else "rgb(255, 255, 255)")
    assert tested_page.serious_violations() == []
    page.get_by_role("tab", name="Breaks").focus()
    page.keyboard.press("n")
    expect(page.locator(".gb-line[id].gb-broken.gb-related")).to_have_count(1)
    assert tested_page.errors == []


def test_the_widget_shows_progress_and_then_the_report(open_page: Open, tmp_path: Path) -> None:
    tested_page = open_page(write_webview(tmp_path, ""))
    page = tested_page.page
    expect(page.get_by_role("timer")).to_contain_text("compiling step | 2 frames, 1 graph, 1 break so far | 3.")
    # While remedies are tried, a preview shows the report as far as it is known.
    page.evaluate("html => window.model.set('_preview', html)", render_html(two_breaks()))
    preview = page.locator(".gb-preview")
    expect(preview.locator(".gb-verdict")).to_be_visible()
    expect(preview.locator(".gb-foot")).to_be_hidden()
    assert preview.evaluate("each => each.inert")
    expect(page.get_by_role("timer")).to_be_visible()
    page.evaluate("html => window.model.set('_html', html)", render_html(two_breaks()))
    page.evaluate("window.model.set('_preview', '')")
    expect(page.locator(".graphbreak.gb-live")).to_have_count(1)
    expect(preview).to_have_count(0)
    expect(page.get_by_role("timer")).to_have_count(0)
    page.evaluate("window.end()")
    page.evaluate("window.model.set('_html', '')")
    expect(page.locator(".graphbreak.gb-live")).to_have_count(1)  # the listeners were removed
    assert tested_page.errors == []


def test_the_widget_requests_the_rest_of_its_markup_once(open_page: Open, tmp_path: Path) -> None:
    report = big_report(breaks=100, ops=200)
    page = open_page(write_webview(tmp_path, render_html(report), render_rest(report))).page
    assert page.evaluate("window.requests") == []
    page.get_by_text("100 locations").click()
    page.get_by_role("button", name="Show 50 of 90 more").click()
    page.get_by_role("button", name="Show 40 more").click()
    expect(page.locator(".gb-item").filter(visible=True)).to_have_count(100)
    assert page.evaluate("window.requests") == ["rest"]


def test_hostile_text_in_the_widget_is_never_markup(open_page: Open, tmp_path: Path) -> None:
    page = open_page(write_webview(tmp_path, render_html(hostile_report()), render_rest(hostile_report()))).page
    page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None
    progress = {"phase": "compiling", "function": "<img src=x onerror=window.hacked=1>", "elapsed_s": 1.0}
    page = open_page(write_webview(tmp_path, "")).page
    page.evaluate("progress => window.model.set('_progress', progress)", progress)
    page.wait_for_timeout(500)
    expect(page.get_by_text("compiling <img src=x")).to_be_visible()
    assert page.evaluate("window.hacked") is None


def test_a_page_of_nbconvert_shows_the_static_view(open_page: Open, tmp_path: Path) -> None:
    import nbconvert  # only here, because the import takes half a second

    widget = ReportWidget()
    widget.finish(two_breaks())
    cell = nbformat.v4.new_code_cell("%%compile_explain\nstep()")
    cell.outputs = [nbformat.v4.new_output("display_data", mime_bundle(two_breaks(), widget))]
    body, _ = nbconvert.HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    # The exporter's own scripts come from a CDN.
    path = tmp_path / "notebook.html"
    path.write_text(body, encoding="utf-8")
    tested_page = open_page(path, scripts=False)
    report = tested_page.page.locator(".graphbreak")
    expect(report).to_have_count(1)
    expect(report.get_by_text("Branch on a tensor's value → resumes at 15 (B)")).to_be_visible()
    tested_page.save_screenshot("nbconvert")
