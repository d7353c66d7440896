"""A report as HTML: its content and order, and text from outside that never becomes markup."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
from msgspec.structs import replace

from jupyter_graphbreak.report.job import Process
from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.remedies import INTERRUPTED_REASON
from jupyter_graphbreak.report.schema import GuardFailure, Recompile
from jupyter_graphbreak.report.summary import Summary
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.views.html.bundle import REST_TYPE
from jupyter_graphbreak.views.html.environment import style_sheet
from jupyter_graphbreak.views.html.highlight import colored_ranges, escape_invisible, marked_code
from jupyter_graphbreak.views.html.job import render_job_html
from jupyter_graphbreak.views.html.render import render_html, render_rest
from jupyter_graphbreak.views.words.locations import stack_tree
from tests.support.sample_reports import (
    FOLDER,
    HOSTILE,
    SAVED_REPORTS,
    big_report,
    failed_run,
    hostile_report,
    job,
    no_breaks,
    remedies,
    two_breaks,
)  # fmt: skip

VOID_TAGS = {"br"}
#: The elements that our markup uses; any other element has been injected.
ALLOWED_TAGS = {
    *("div", "style", "header", "footer", "section", "p", "b", "i", "em", "strong", "small", "span", "br", "a", "h3"),
    *("h5", "ol", "ul", "li", "pre", "code", "mark", "details", "summary", "dl", "dt", "dd", "table", "thead", "tbody"),
    *("tr", "th", "td"),
}


class ParsedHtml(HTMLParser):
    """Collects the elements, ids, links and visible text of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open_tags: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        attributes = dict(attrs)
        assert not any(name.startswith("on") for name in attributes)
        self.ids += [attributes["id"] or ""] if "id" in attributes else []
        self.links += [attributes["href"] or ""] if "href" in attributes else []
        if tag not in VOID_TAGS:
            self.open_tags.append(tag)
        else:
            self.text += " "

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open_tags:
            self.text += data


@pytest.mark.parametrize("name", SAVED_REPORTS)
def test_the_saved_reports_are_current(name: str) -> None:
    saved_report = (FOLDER / f"{name}.json").read_bytes()
    assert Report.from_json(saved_report) == SAVED_REPORTS[name](), "run python tests/support/sample_reports.py"


@pytest.mark.parametrize("name", SAVED_REPORTS)
def test_the_markup_is_well_formed_and_every_link_has_a_target(name: str) -> None:
    html = render_html(SAVED_REPORTS[name]())
    markup = ParsedHtml(html)
    assert markup.open_tags == []
    assert markup.tags <= ALLOWED_TAGS
    assert len(markup.ids) == len(set(markup.ids))
    for link in markup.links:
        assert link.startswith("https://") or link.removeprefix("#") in markup.ids


@pytest.mark.parametrize("with_data", [False, True])
def test_a_job_is_well_formed_and_reports_are_not_nested(with_data: bool) -> None:
    html = render_job_html(job(), with_data=with_data)
    markup = ParsedHtml(html)
    assert markup.open_tags == []
    assert markup.tags <= ALLOWED_TAGS | ({"script"} if with_data else set())
    assert not {"header", "footer"} & markup.tags
    assert html.count('data-graphbreak="data"') == (3 if with_data else 0)
    first, *reports = html.split('<div class="graphbreak')[1:]
    assert first.count("<div") + 1 == first.count("</div>")
    assert len(reports) == 3


def test_the_output_of_a_job_contains_the_rest_of_its_reports() -> None:
    large_report = big_report(breaks=60, ops=900)
    job_of_ten_processes = msgspec.structs.replace(job(), processes=[Process("p1", None, 1, None, large_report)] * 10)
    compressed_reports = job_of_ten_processes._repr_mimebundle_()[REST_TYPE]["processes"]
    assert len(compressed_reports) == 8  # further processes have only a summary
    data = json.loads(gzip.decompress(base64.b64decode(compressed_reports[1]["gzip"])))
    assert data == {"text": large_report.to_text(), "rest": render_rest(large_report)}
    assert data["rest"]


def test_a_function_that_runs_eagerly_twice_is_listed_once() -> None:
    report = two_breaks()
    (skipped,) = report.skipped
    breaks = [replace(break_, skipped=["k1", "k2"]) if break_.skipped else break_ for break_ in report.breaks]
    report = replace(report, breaks=breaks, skipped=[skipped, replace(skipped, id="k2")])
    assert "<code>log_stats</code> (twice) run eagerly" in render_html(report)


def test_a_run_without_graphs_is_not_called_good() -> None:
    empty_report = msgspec.structs.replace(no_breaks(), sources=[], frames=[], graphs=[], scopes=[], summary=Summary())
    html = render_html(empty_report).partition("</style>")[2]
    assert "Nothing was compiled in this run." in html
    assert "gb-good" not in html
    assert "gb-sources" not in html
    assert "gb-good" in render_html(no_breaks()).partition("</style>")[2]


def test_the_content_is_in_reading_order() -> None:
    text = ParsedHtml(render_html(two_breaks())).text
    expected = [
        "2 breaks. Fix break 1 first: it adds 1 graph.",
        "Cell In[7], step: 4 graphs, 9 ops | cuda:0 NVIDIA H100",
        "0.84 s, compiling 0.79 s",
        "A 4 ops",  # the course of the run
        "✂1",
        "eagerD 2 ops",
        "%%compile_explain",  # the source
        "✂1 A   ",
        "if score > 3:",
        "Branch on a tensor's value → resumes at 15 (B)",
        "Breaks 2",
        "✂1 Branch on a tensor's value GB0170",
        "score > 3 line 14 in step",
        "allowed by error_on_graph_break(False), line 13, inside error_on_graph_break(True), line 8 | adds 1 graph; "
        "compiling the code after it took 0.12 s",
        "Do: Make it branchless: torch.where(score > 3, y / score, y), or use torch.cond.",
        "Why",
        "Dynamo does not support tracing dynamic control flow.",
        "resumes at line 15 in step, graph B",
        "line 16 in step (not reached)",
        "once, by frame 0/0",
        "✂2 torch._dynamo.graph_break() GB0025",
        "allowed by error_on_graph_break(False), line 2 | adds 2 graphs; "
        "compiling the code after it took 0.15 s; 1 function runs eagerly",
        "Do: Move the call out of the compiled region. PyTorch",
        "Graph break in a loop GB7000: the frame could not resume after it",
        "log_stats runs eagerly",
        "3 times, by frames 1/0, 2/0, 3/0",
        "Graphs 4",
        "torch.matmul",
        "float32 [8, 8] cuda:0",
        "Recompiles",
        "Nothing was recompiled.",
        "Details",
        "Functions that run eagerly 1",
        "Move the loop into a function of its own.",
        "Scopes 3",
        "With fullgraph=True, the run would end with an error at ✂1, whatever the scopes say.",
        "Frames 6",
        "Resume functions 4",
        "torch 2.13.0, Python 3.11.7, nested_graph_breaks=False",
    ]
    position = 0
    for part in expected:
        assert part in text[position:], part
        position = text.index(part, position)


def test_source_columns_are_aligned_without_a_style_sheet() -> None:
    lines = ParsedHtml(render_html(two_breaks())).text.split("\n")
    def_line = next(line for line in lines if "def step(x, w):" in line)
    body_line = next(line for line in lines if "y = x @ w" in line)
    break_line = next(line for line in lines if "if score > 3:" in line)
    column = def_line.index("def")
    assert body_line.index("y =") == column + 4
    assert break_line.index("if") == column + 8
    caret_line = lines[lines.index(break_line) + 1]
    assert caret_line.index("^^^^^^^^^ ✂1") == break_line.index("score")


def test_a_run_without_breaks_says_so() -> None:
    text = ParsedHtml(render_html(no_breaks())).text
    assert "No breaks: one graph.\nCell In[1], f: 1 graph, 2 ops | cpu" in text
    assert "ran on cpu: there is no CUDA device" in text


def test_a_failed_run_shows_the_error_and_what_was_not_compiled() -> None:
    text = ParsedHtml(render_html(failed_run())).text
    assert "Unsupported at line 5 in f, ✂1: Call to torch._dynamo.graph_break()" in text
    assert "cuda was requested; ran on cpu: the variable model lives on the CPU" in text
    assert "Warning: g was compiled by an earlier run" in text
    assert "an error because of fullgraph=True, line 2" in text
    assert "recompiled (0/1), then reached the limit and runs eagerly" in text
    assert "n: 0 → 1 → different value (line 4)" in text
    assert "Do: each value of n is compiled separately, even with dynamic=True: use few values" in text


def test_times_that_were_not_measured_are_not_shown() -> None:
    report = msgspec.structs.replace(two_breaks(), timing=type(two_breaks().timing)())
    assert "compiling" not in ParsedHtml(render_html(report)).text.partition("Cell In[7]")[2].partition("A 4 ops")[0]


def test_hostile_text_is_never_markup() -> None:
    html = render_html(hostile_report())
    markup = ParsedHtml(html)
    assert markup.tags <= ALLOWED_TAGS
    assert HOSTILE in markup.text
    assert "{{7*7}}" in markup.text
    assert not any(link.startswith("javascript:") for link in markup.links)
    rest = "".join(item for items in render_rest(hostile_report()).values() for item in items)
    assert "<img" not in rest


def test_the_markup_of_a_small_report_is_small() -> None:
    assert len(render_html(two_breaks())) < 45_000


def test_a_large_report_shows_the_beginning_of_each_list_and_counts_the_rest() -> None:
    report = big_report()
    html = render_html(report)
    assert len(html) < 1_000_000
    text = ParsedHtml(html).text
    assert "and 990 more locations" in text
    assert "and 990 more graphs" in text
    assert "and 960 more rows" in text
    assert "more lines" in text
    rest = render_rest(report)
    assert len(rest["places-0"]) == 990
    assert "layer_999" in rest["places-0"][-1]
    assert ParsedHtml(rest["l0"][-1]).text.rstrip("\n").endswith("and 994 more")
    assert len(rest["frames"]) == 960


def test_all_ops_of_a_graph_are_in_the_rest() -> None:
    report = big_report(breaks=1, ops=500)
    assert "and 495 more ops" in ParsedHtml(render_html(report)).text
    rest = render_rest(report)
    assert "graphs" not in rest
    assert len(rest["ops-0"]) == 495
    assert "mul_0_499" in rest["ops-0"][-1]
    assert "mul_0_499" in rest["code-0"][0]


def test_a_small_report_has_no_rest() -> None:
    assert render_rest(two_breaks()) == {}


def test_long_functions_are_folded_away_from_breaks() -> None:
    report = big_report(breaks=1, ops=1)
    source = report.sources[0]
    longer_segment = msgspec.structs.replace(
        source.segments[0],
        text=source.segments[0].text.replace("    return x", "    x = x + 1\n" * 60 + "    return x"),
    )
    report = msgspec.structs.replace(report, sources=[msgspec.structs.replace(source, segments=[longer_segment])])
    text = ParsedHtml(render_html(report)).text
    assert re.search(r"lines \d+ to \d+", text)


def test_stacks_with_the_same_beginning_share_a_branch() -> None:
    a, b, c, d = (Location("s", line, line) for line in (1, 2, 3, 4))
    (root,) = stack_tree([[a, b, c], [a, b, d], [a, b]])
    assert root.locations == [a, b]
    assert [child.locations for child in root.children] == [[c], [d]]


def test_a_deep_recursion_becomes_one_branch() -> None:
    stack = [Location("s", 1, 1)] * 5000
    (root,) = stack_tree([stack, stack])
    assert len(root.locations) == 5000
    assert root.children == []


def test_code_is_coloured_and_marked_across_tokens() -> None:
    (ranges,) = colored_ranges("if x < 3: pass")
    assert str(marked_code("if x < 3: pass", ranges, [(3, 8)])) == (
        '<span class="k">if</span> <mark>x &lt; <span class="m">3</span></mark>: <span class="k">pass</span>'
    )


def test_tokens_keep_their_lines_with_any_line_break() -> None:
    assert colored_ranges("'''a\rb\n\u2028c'''\n1") == [[(0, 6, "s")], [(0, 5, "s")], [(0, 1, "m")]]


def test_text_cannot_hide_or_reorder_other_text() -> None:
    assert escape_invisible("a\u202eb\x1b[0m\ud800\t\n") == "a\\u202eb\\x1b[0m\\ud800\t\n"
    report = two_breaks()
    first = msgspec.structs.replace(report.breaks[0], gb_type="safe\u202e`evil\u202e`", explanation="\u2066x")
    html = render_html(msgspec.structs.replace(report, breaks=[first, *report.breaks[1:]]))
    assert "\\u202e" in html
    assert not {"\u202e", "\u2066"} & set(html)


def test_an_output_contains_only_the_style_rules_that_it_needs() -> None:
    assert ".gb-remedy" in render_html(SAVED_REPORTS["remedies"]())
    assert ".gb-bars" in render_html(SAVED_REPORTS["cost"]())
    plain_html = render_html(two_breaks())
    assert not [name for name in (".gb-remedy", ".gb-bars", ".gb-frontends", ".gb-process") if name in plain_html]
    for name in SAVED_REPORTS:
        markup = render_html(SAVED_REPORTS[name]())
        used_classes = {part for classes in re.findall(r'class="([^"]*)"', markup) for part in classes.split()}
        for part in used_classes & {"gb-remedy", "gb-remedies", "gb-together", "gb-person", "gb-bars", "gb-times"}:
            assert f".{part}" in markup.partition("</style>")[0], (name, part)
    full_sheet = style_sheet("cost", "frontends", "job", "remedies")
    assert full_sheet.count("{") == full_sheet.count("}")
    assert "/*" not in full_sheet


def test_a_group_shows_a_fix_for_all_its_breaks_once() -> None:
    report = remedies()
    assert report.remedies is not None
    shared_remedy = replace(report.remedies[0], breaks=[break_.id for break_ in report.breaks])
    page = render_html(replace(report, remedies=[shared_remedy]))
    assert page.count('class="gb-group"') == 1
    assert page.count('class="gb-remedy gb-fix"') == 1


def test_trials_are_offered_until_all_were_run() -> None:
    report_with_trials = remedies()
    first, *others = report_with_trials.remedies or []
    interrupted_report = replace(report_with_trials, remedies=[replace(first, reason=INTERRUPTED_REASON), *others])
    assert 'data-untried=""' in render_html(two_breaks())
    assert "data-untried" not in render_html(report_with_trials)
    assert 'data-untried="rest"' in render_html(interrupted_report)
    assert "data-untried" not in render_html(no_breaks())


def test_recompiles_are_shown_first_if_there_are_no_breaks() -> None:
    def open_panes(report: Report) -> list[str]:
        return re.findall(r'data-pane="(\w+)" open', render_html(report))

    recompiles = [Recompile("0/1", "0/0", "f", None, [GuardFailure("k == 1")])]
    assert open_panes(replace(no_breaks(), recompiles=recompiles)) == ["recompiles"]
    assert open_panes(replace(two_breaks(), recompiles=recompiles)) == ["breaks"]
    assert open_panes(no_breaks()) == ["breaks"]
