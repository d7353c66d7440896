"""The content of outputs, and the messages from the widget to its front end."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import nbformat
import pytest
from msgspec.structs import replace

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.report.schema import MIME_TYPE, Break, Tensor
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.views.html.bundle import REST_TYPE, WIDGET_VIEW, mime_bundle, read_report, running_bundle
from jupyter_graphbreak.views.html.render import render_html, render_page
from jupyter_graphbreak.views.html.widget import ReportWidget
from tests.support.sample_reports import SAVED_REPORTS, big_report, two_breaks
from tests.support.trace_files import read_recording

RECORDINGS = Path(__file__).parents[2] / "recordings" / "2.13.0"


class Progress(msgspec.Struct, frozen=True):
    phase: str = "compiling"
    function: str | None = "step"
    frames: int = 1
    graphs: int = 0
    breaks: int = 0
    elapsed_s: float = 0.5


@pytest.fixture
def sent_messages(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    messages: list[Any] = []
    monkeypatch.setattr(ReportWidget, "send", lambda _, content: messages.append(content))
    return messages


def test_the_bundle_contains_the_report_in_all_formats() -> None:
    report = two_breaks()
    bundle = mime_bundle(report, None)
    assert list(bundle) == ["text/plain", "text/html", MIME_TYPE]
    assert bundle["text/html"] == render_html(report)
    assert read_report(json.loads(json.dumps(bundle))).to_dict() == fill_in_stacks(report).to_dict()


def test_the_bundle_contains_the_id_of_the_widget() -> None:
    widget = ReportWidget()
    widget.finish(two_breaks())
    bundle = mime_bundle(two_breaks(), widget)
    assert bundle[WIDGET_VIEW]["model_id"] == widget.model_id
    output = widget._repr_mimebundle_()
    assert output is not None
    assert output[0] == bundle


def test_the_output_contains_no_report_during_the_run() -> None:
    widget = ReportWidget()
    assert set(running_bundle(widget)) == {"text/plain", WIDGET_VIEW}
    assert widget._html == ""


def test_a_report_is_shown_before_it_is_complete() -> None:
    widget = ReportWidget()
    widget.preview(two_breaks())
    assert widget._preview == render_html(two_breaks())
    assert widget._html == ""
    assert set(running_bundle(widget)) == {"text/plain", WIDGET_VIEW}
    widget.finish(two_breaks())
    assert widget._preview == ""


def test_progress_is_sent_at_most_five_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    widget = ReportWidget()
    now = 100.0
    monkeypatch.setattr("jupyter_graphbreak.views.html.widget.time.monotonic", lambda: now)
    messages: list[Any] = []
    widget.observe(lambda change: messages.append(change["new"]), "_progress")
    for step in range(100):
        now = 100 + step / 50
        widget.show_progress(Progress(frames=step))
    assert 9 <= len(messages) <= 11
    assert messages[0] == msgspec.structs.asdict(Progress(frames=0))


def test_progress_after_the_end_is_dropped() -> None:
    widget = ReportWidget()
    widget.finish(two_breaks())
    widget.show_progress(Progress())
    assert widget._progress == {}


def test_the_widget_answers_requests_from_the_front_end(sent_messages: list[Any]) -> None:
    widget = ReportWidget()
    widget._handle_msg({"content": {"data": {"method": "custom", "content": {"request": "rest"}}}, "buffers": []})
    assert sent_messages == []
    report = big_report(breaks=30, ops=60)
    widget.finish(report)
    for request in ("rest", "text", "json", "__class__", None):
        widget._handle_msg({"content": {"data": {"method": "custom", "content": {"request": request}}}, "buffers": []})
    assert [message["request"] for message in sent_messages] == ["rest", "text", "json"]
    assert len(sent_messages[0]["answer"]["places-0"]) == 20
    assert sent_messages[1]["answer"] == report.to_text()
    assert Report.from_json(sent_messages[2]["answer"]) == report


def test_only_live_reports_have_style_rules_for_elements_that_scripts_add() -> None:
    widget = ReportWidget()
    widget.finish(two_breaks())
    rule = ".gb-tablist{"
    assert rule in widget._css
    assert rule in render_page(two_breaks())
    assert rule not in mime_bundle(two_breaks(), widget)["text/html"]


def test_a_saved_cell_is_small() -> None:
    widget = ReportWidget()
    report = two_breaks()
    widget.finish(report)
    bundle = mime_bundle(report, widget)
    state = {name: value for name, value in widget.get_state().items() if name != "layout"}
    assert len(json.dumps([bundle, state], default=str)) < 250_000


def fill_in_stacks(report: Report) -> Report:
    """Return a report in which each occurrence without a stack has the stack of its break."""

    def fill_in_stacks_of_break(break_: Break) -> Break:
        stacks = [replace(occurrence, stack=occurrence.stack or break_.stack) for occurrence in break_.occurrences]
        return replace(break_, occurrences=stacks)

    return replace(report, breaks=[fill_in_stacks_of_break(break_) for break_ in report.breaks])


@pytest.mark.parametrize("make_report", SAVED_REPORTS.values(), ids=SAVED_REPORTS)
def test_a_saved_report_is_read_unchanged(make_report: Callable[[], Report]) -> None:
    report = make_report()
    shape = Tensor("s0", None, "torch.int64")  # a field that readers require, although it is null
    report = replace(report, graphs=[replace(graph, inputs=[shape]) for graph in report.graphs])
    assert read_report(mime_bundle(report, None)).to_dict() == fill_in_stacks(report).to_dict()


def test_an_equal_stack_is_saved_once_even_without_the_columns_of_callers() -> None:
    report = two_breaks()
    outermost = report.breaks[0].stack[0]
    stack_without_columns = [replace(outermost, column=None, end_column=None), *report.breaks[0].stack[1:]]
    different_stack = [replace(outermost, line=outermost.line + 1), *report.breaks[0].stack[1:]]
    first = report.breaks[0].occurrences[0]
    occurrences = [
        replace(first, stack=stack) for stack in (report.breaks[0].stack, stack_without_columns, different_stack)
    ]
    report = replace(report, breaks=[replace(report.breaks[0], occurrences=occurrences), *report.breaks[1:]])
    bundle = mime_bundle(report, None)
    saved_stacks = [occurrence["stack"] for occurrence in bundle[MIME_TYPE]["breaks"][0]["occurrences"]]
    assert [bool(stack) for stack in saved_stacks] == [False, False, True]
    read_break = read_report(bundle).breaks[0]
    assert [occurrence.stack for occurrence in read_break.occurrences] == [
        read_break.stack,
        read_break.stack,
        different_stack,
    ]


def test_null_fields_are_left_out_inside_the_parts_of_a_saved_report() -> None:
    report = two_breaks()
    saved_report = mime_bundle(report, None)[MIME_TYPE]
    assert saved_report.keys() == report.to_dict().keys() | {"rows"}
    parts = [*saved_report["breaks"], *(location for break_ in saved_report["breaks"] for location in break_["stack"])]
    assert len(parts) > 2
    assert not any(value is None for part in parts for value in part.values())
    assert read_report({MIME_TYPE: saved_report}).to_dict() == fill_in_stacks(report).to_dict()


def report_with_long_code() -> Report:
    report = two_breaks()
    code = "class GraphModule(torch.nn.Module):\n" + "    # a line that PyTorch repeats\n" * 100
    return replace(report, graphs=[replace(graph, code=code + graph.id) for graph in report.graphs])


def test_long_code_of_graphs_is_compressed_and_read_back() -> None:
    report = report_with_long_code()
    bundle = json.loads(json.dumps(mime_bundle(report, None)))
    assert "PyTorch repeats" not in json.dumps(bundle)
    assert read_report(bundle).to_dict() == fill_in_stacks(report).to_dict()
    assert [graph.code for graph in Report.from_dict(bundle[MIME_TYPE]).graphs] == ["", "", "", ""]


@pytest.mark.parametrize(
    "damaged_code",
    [
        None, [], "text", {}, {"gzip": None}, {"gzip": "no base64"}, {"gzip": b64encode(b"no gzip").decode()},
        {"gzip": b64encode(gzip.compress(b"no JSON")).decode()},
        {"gzip": b64encode(gzip.compress(b'{"code": {"A": 3}}')).decode()},
    ],
)  # fmt: skip
def test_a_report_with_damaged_code_is_read_without_the_code(damaged_code: object) -> None:
    bundle = mime_bundle(report_with_long_code(), None) | {REST_TYPE: damaged_code}
    assert not any(graph.code for graph in read_report(bundle).graphs)


def test_outputs_are_small() -> None:
    total = 0
    for path in sorted(RECORDINGS.glob("*.log")):
        bundle = mime_bundle(build_report(read_recording(path)), None)
        total += len(bundle["text/html"].encode()) + len(msgspec.json.encode(bundle[MIME_TYPE]))
    # The limit is a tenth above the former size of these outputs. Each contains a style sheet of 10 kB.
    assert total < 275_000


def test_a_very_large_report_leaves_the_operations_out_of_the_notebook_and_says_so() -> None:
    report = big_report()
    bundle = mime_bundle(report, None)
    output = nbformat.v4.new_output("display_data", data=bundle)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    assert len(nbformat.writes(notebook)) < 4_100_000  # with 1,600 breaks: 6 MB
    assert len(bundle["text/html"]) < 1_000_000
    notebook_copy = read_report(bundle)
    assert notebook_copy.breaks == fill_in_stacks(report).breaks
    assert [graph.lines for graph in notebook_copy.graphs] == [graph.lines for graph in report.graphs]
    assert notebook_copy.summary == report.summary
    assert not any(graph.ops or graph.code for graph in notebook_copy.graphs)
    assert "leaves out the operations and the code of 1000 graphs" in notebook_copy.diagnostics[-1].message
    breaks = bundle[MIME_TYPE]["rows"]["sections"][0]
    assert (len(breaks["rows"]), breaks["total"]) == (500, 1000)
    assert read_report(mime_bundle(two_breaks(), None)).to_dict() == fill_in_stacks(two_breaks()).to_dict()


def test_the_text_of_a_long_cell_is_limited() -> None:
    lines = big_report().to_text().split("\n")
    assert lines[-1].split() == ["4003", ">1>2", "x", "=", "layer(x)"]
    assert len(lines) < 120
