"""Properties that every report has, tested with generated recordings."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.records.records import Record
from jupyter_graphbreak.report.schema import Report
from jupyter_graphbreak.views.text import render_text

FILE = "/project/model.py"
REASONS = [("Data-dependent branching", "GB0170"), ("Call to `torch._dynamo.graph_break()`", "GB0025")]
OPENINGS = [
    "Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):\n\n",
    "Encountered graph break when attempting to trace CALL_FUNCTION_EX: a variadic function call, e.g. f(*args):\n\n",
    "Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
    "Graph break encountered:\n\n",
    "",
]
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[3][1]cpu"):
        l_x_ = L_x_

        # File: /project/model.py:{line} in f, code: x = x + 1
        x: "f32[3][1]cpu" = l_x_ + 1;  l_x_ = None
        return (x,)
"""


def message(line: int, reason: int, opening: int) -> str:
    gb_type, gb_id = REASONS[reason]
    return (
        f"Graph break in user code at {FILE}:{line}\nGraph Break Reason: {OPENINGS[opening]}{gb_type}\n"
        f"  Explanation: because\n  Hint: do this\n\n  Developer debug context: here\n\n"
        f" For more details about this graph break, please visit: https://x.test/gb/{gb_id.lower()}.html\n\n"
        f'User code traceback:\n  File "{FILE}", line {line}, in f\n    x()\n\n'
    )


@st.composite
def recordings(draw: st.DrawFn) -> list[Record]:
    """Return records of frames with breaks, graphs and resume functions, interleaved as if by threads."""
    streams = []
    for frame in range(draw(st.integers(0, 5))):
        compile_id = draw(st.integers(0, 2))
        frame_ids = {"frame_id": frame, "frame_compile_id": compile_id, "attempt": 0}
        is_resume = draw(st.booleans()) and frame > 0
        name = f"torch_dynamo_resume_in_f_at_{frame}" if is_resume else f"f{frame}"
        code = {"id": frame, "name": name, "qualname": name, "filename": FILE, "firstlineno": frame + 1}
        stream = [Record({"graphbreak_start": {**code, "stack": []}, **frame_ids})]
        stream.append(Record({"dynamo_start": {"stack": []}, **frame_ids}))
        for _ in range(draw(st.integers(0, 3))):
            line, reason = draw(st.integers(1, 4)), draw(st.integers(0, 1))
            text = message(line, reason, draw(st.integers(0, 3)))
            attempt_ids = {**frame_ids, "attempt": draw(st.integers(0, 1))}
            stream.append(Record({"artifact": {"name": "dynamo_graph_break_reason"}, **attempt_ids}, text))
        if draw(st.booleans()):
            resume_code = {**code, "id": 100 + frame, "name": f"torch_dynamo_resume_in_{name}_at_9", "line": 9}
            stream.append(Record({"graphbreak_resume": {**resume_code, "of": code}, **frame_ids}))
        has_graph = draw(st.booleans())
        if has_graph:
            stream.append(Record({"dynamo_output_graph": {}, **frame_ids}, GRAPH.format(line=frame + 1)))
        metrics = {"graph_op_count": 1 if has_graph else None, "entire_frame_compile_time_s": 0.5, "fail_type": None}
        stream.append(Record({"compilation_metrics": metrics, **frame_ids}))
        streams.append(stream)
    records = []
    while streams:
        index = draw(st.integers(0, len(streams) - 1))
        records.append(streams[index].pop(0))
        streams = [stream for stream in streams if stream]
    return records


@given(recordings())
def test_every_event_is_an_occurrence_of_exactly_one_break(records: list[Record]) -> None:
    report = build_report(records)
    events = {
        (str(record.compile_key), record.attempt, *_line_and_gb_id(record.payload or ""))
        for record in records
        if record.kind == "artifact:dynamo_graph_break_reason"
    }
    occurrences = [
        (occurrence.frame, occurrence.attempt, break_.location.line, break_.gb_id)
        for break_ in report.breaks
        for occurrence in break_.occurrences
        if break_.location is not None
    ]
    assert {occurrence[:4] for occurrence in occurrences} == events
    assert len({(break_.location, break_.gb_id) for break_ in report.breaks}) == len(report.breaks)


def _line_and_gb_id(text: str) -> tuple[int, str]:
    line = int(text.partition("\n")[0].rpartition(":")[2])
    return line, next(gb_id for gb_type, gb_id in REASONS if gb_type in text)


@given(recordings())
def test_every_graph_belongs_to_one_frame(records: list[Record]) -> None:
    report = build_report(records)
    assert sorted(graph for frame in report.frames for graph in frame.graphs) == sorted(g.id for g in report.graphs)
    assert {graph.frame for graph in report.graphs} <= {frame.id for frame in report.frames}


@given(recordings())
def test_every_traced_resume_function_is_in_the_list(records: list[Record]) -> None:
    report = build_report(records)
    resumes_by_id = {resume.id: resume for resume in report.resumes}
    for frame in report.frames:
        if frame.role == "resume":
            assert frame.resume is not None
            assert frame.id in resumes_by_id[frame.resume].frames
    for break_ in report.breaks:
        for ident in break_.resumes:
            assert resumes_by_id[ident].break_ == break_.id


@given(recordings())
def test_every_frame_that_started_has_one_entry(records: list[Record]) -> None:
    report = build_report(records)
    started_keys = [str(record.compile_key) for record in records if record.kind == "graphbreak_start"]
    assert sorted(frame.id for frame in report.frames) == sorted(started_keys)


@given(recordings())
def test_the_counts_of_the_summary_match_the_lists(records: list[Record]) -> None:
    report = build_report(records)
    summary = report.summary
    assert summary.frames == len(report.frames)
    assert summary.graphs == len(report.graphs)
    assert summary.ops == sum(len(graph.ops) for graph in report.graphs)
    assert summary.breaks == len(report.breaks)
    assert summary.events == sum(len(break_.occurrences) for break_ in report.breaks)
    assert summary.resumes == len(report.resumes)
    assert summary.skipped == len(report.skipped)
    assert summary.recompiles == len(report.recompiles)
    assert summary.errors == sum(frame.outcome == "error" for frame in report.frames)


@given(recordings())
def test_building_twice_gives_the_same_report(records: list[Record]) -> None:
    first_report = build_report(records)
    assert build_report(list(records)) == first_report
    assert Report.from_json(first_report.to_json()) == first_report


@given(recordings())
def test_every_id_that_is_mentioned_exists(records: list[Record]) -> None:
    report = build_report(records)
    known_ids: dict[str, set[Any]] = {
        "break": {break_.id for break_ in report.breaks},
        "frame": {frame.id for frame in report.frames},
        "graph": {graph.id for graph in report.graphs},
        "source": {source.id for source in report.sources},
        "skipped": {skipped.id for skipped in report.skipped},
    }
    for break_ in report.breaks:
        assert break_.location is None or break_.location.source in known_ids["source"]
        assert set(break_.skipped) <= known_ids["skipped"]
        assert {occurrence.frame for occurrence in break_.occurrences} <= known_ids["frame"]
    for frame in report.frames:
        assert set(frame.breaks) <= known_ids["break"]
        assert frame.caller is None or frame.caller in known_ids["frame"]
    for graph in report.graphs:
        assert graph.break_ is None or graph.break_ in known_ids["break"]
    for resume in report.resumes:
        assert set(resume.graphs) <= known_ids["graph"]


@given(recordings())
def test_the_text_of_any_report_is_short(records: list[Record]) -> None:
    report = build_report(records)
    lines = render_text(report).split("\n")
    assert len(lines) <= 3 + 8 * len(report.breaks) + len(report.skipped) + len(report.recompiles)
    assert all(len(line) <= 100 for line in lines)
