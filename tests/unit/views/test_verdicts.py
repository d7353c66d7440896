"""The table of front ends as text and HTML, also with hostile text and without verdicts."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from jupyter_graphbreak.report.frontends import Example, Raised, Verdict
from jupyter_graphbreak.results import Frontends

HOSTILE = '</style></table><script>alert("x")</script>\x1b[31m\u202e`'


def table_of(*verdicts: Verdict, others: list[Example] | None = None, searched: bool = True) -> Frontends:
    return Frontends(
        function="f",
        torch="2.13.0",
        example=Example("the first input", "x = tensor([1.])"),
        others=[Example("x negated", "x = tensor([-1.])")] if others is None else others,
        searched=searched,
        verdicts=list(verdicts),
    )


VERDICT_WITH_WRONG_RESULT = Verdict(
    "torch.jit.trace",
    "silently wrong",
    graphs=1,
    breaks=0,
    example=Example("x negated", "x = tensor([-1.])"),
    difference="tensor([9.]) instead of tensor([-11.])",
    warnings=["TracerWarning: Converting a tensor"],
    deprecated=True,
)
VERDICT_WITH_BREAKS = Verdict("torch.compile", "breaks", graphs=2, breaks=1)
VERDICT_WITH_ERROR = Verdict(
    "torch.fx.symbolic_trace", "raises", raised=Raised("TraceError", "no control flow", "capture")
)
VERDICT_WITH_LATER_ERROR = Verdict("torch.jit.script", "raises", raised=Raised("RuntimeError", "an int", "program"))
VERDICT_WITH_REFUSAL = Verdict(
    "torch.export.export",
    "refuses",
    graphs=1,
    breaks=0,
    example=Example("", "x = 3"),
    raised=Raised("AssertionError", "Guard failed: x == 2", "program"),
)


EXPECTED_TEXT = """\
front ends on f(x = tensor([1.])) | torch 2.13.0
 torch.jit.trace          silently wrong       1 graph, 0 breaks
    with x = tensor([-1.]) (x negated): tensor([9.]) instead of tensor([-11.])
    warned: TracerWarning: Converting a tensor
    deprecated in torch 2.13.0
 torch.compile            right, with breaks   2 graphs, 1 break
 torch.fx.symbolic_trace  raises
    TraceError: no control flow
 torch.jit.script         raises
    the captured program raises RuntimeError: an int
 torch.export.export      refuses other input  1 graph, 0 breaks
    with x = 3: AssertionError: Guard failed: x == 2
Also run with: x negated.
Graphs and breaks are counted with the first input.
"captures" and "right" mean that the program agreed with the function on all of these inputs."""


def test_text_contains_each_verdict_with_its_evidence() -> None:
    assert (
        table_of(
            VERDICT_WITH_WRONG_RESULT,
            VERDICT_WITH_BREAKS,
            VERDICT_WITH_ERROR,
            VERDICT_WITH_LATER_ERROR,
            VERDICT_WITH_REFUSAL,
        ).to_text()
        == EXPECTED_TEXT
    )


def test_a_wrong_result_without_a_warning_is_pointed_out() -> None:
    silent_verdict = Verdict("torch.jit.trace", "silently wrong", graphs=1, breaks=0, difference="1 instead of 2")
    assert "without a warning" in table_of(silent_verdict).to_text()


def test_a_single_input_is_reported_as_weak_evidence() -> None:
    text = table_of(Verdict("torch.compile", "captures", graphs=1, breaks=0), others=[]).to_text()
    assert "compared with eager on one input only" in " ".join(text.split())
    assert "none of these inputs" not in text


def test_the_rows_and_columns_of_the_table_have_headings() -> None:
    html = table_of(VERDICT_WITH_WRONG_RESULT, VERDICT_WITH_ERROR).to_html()
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    assert [re.sub(r"<[^>]+>", " ", row).split()[0] for row in rows[1:]] == [
        "torch.jit.trace",
        "torch.fx.symbolic_trace",
    ]
    assert html.count('scope="row"') == 2
    assert html.count('scope="col"') == 5
    assert "silently wrong" in rows[1]
    assert "–" in rows[2]


class TagCollector(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, _: object) -> None:
        self.tags.add(tag)


def test_hostile_text_is_never_markup() -> None:
    hostile_verdict = Verdict(
        "torch.compile",
        "silently wrong",
        graphs=1,
        breaks=0,
        example=Example(HOSTILE, HOSTILE),
        difference=HOSTILE,
        warnings=[HOSTILE],
        notes=[HOSTILE],
    )
    raising_verdict = Verdict("torch.jit.trace", "raises", raised=Raised(HOSTILE, HOSTILE, "capture"))
    table = Frontends(
        HOSTILE,
        HOSTILE,
        Example(HOSTILE, HOSTILE),
        [Example(HOSTILE, "")],
        True,
        [hostile_verdict, raising_verdict],
        HOSTILE,
    )
    expected_tags = TagCollector()
    expected_tags.feed(table_of(VERDICT_WITH_WRONG_RESULT, VERDICT_WITH_ERROR).to_html())
    tags = TagCollector()
    tags.feed(table.to_html())
    assert tags.tags <= expected_tags.tags | {"code"}
    for text in (table.to_html(), table.to_text()):
        assert not {"\x1b", "\u202e"} & set(text)
