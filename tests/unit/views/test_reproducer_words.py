"""Each standalone script has a sentence in the text and in the rows, and is shown in a card or in the details."""

from __future__ import annotations

from jupyter_graphbreak.views.html.render import render_html
from jupyter_graphbreak.views.markdown import render_markdown
from jupyter_graphbreak.views.rows.sections import build_rows
from jupyter_graphbreak.views.text import render_text
from tests.support.sample_reports import checks


def test_each_script_has_a_sentence() -> None:
    report = checks()
    section = next(section for section in build_rows(report).sections if section.id == "reproducer")
    first, second = (report.order.index(ident) + 1 for ident in ("b1", "b2"))
    assert [row.label for row in section.rows] == [
        f'A standalone script of 6 lines shows break {first}: `report.reproducer("b1")`.',
        f"Break {second} cannot be reproduced: step cannot be written as a script: it uses a lock.",
        'A standalone script of 6 lines shows the wrong result: `report.reproducer("check")`.',
    ]


def test_the_text_contains_the_sentences() -> None:
    assert "standalone script" in render_text(checks())
    assert "cannot be reproduced" in render_text(checks())


def test_scripts_are_in_the_card_of_their_break_and_in_details() -> None:
    html = render_html(checks())
    assert html.count("data-reproducer=") == 2
    assert 'data-reproducer="0"' in html
    assert 'data-reproducer="2"' in html
    assert "Script that shows break" in html


def test_a_redacted_report_has_no_scripts() -> None:
    redacted_report = checks().redacted()
    assert not redacted_report.reproducers
    assert "torch.randn" not in render_text(redacted_report) + render_markdown([redacted_report])
