"""Recordings of real runs with three releases of PyTorch: each program has the same report with all releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.records.records import Record
from jupyter_graphbreak.report.schema import Report
from tests.support.trace_files import read_recording, write_recording

TESTS = Path(__file__).parents[2]
RECORDINGS = sorted((TESTS / "recordings").glob("*/*.log"))

# line, reason, outcome and events of each break; frames, graphs, operations, resume functions; eager functions
EXPECTED_REPORTS = {
    "branch": ([(9, "Data-dependent branching", "resumed", 1)], (3, 3, 5, 2), []),
    "fullgraph": ([(9, "Call to `torch._dynamo.graph_break()`", "error", 1)], (1, 0, 0, 0), []),
    "generator": ([(6, "Attempt to trace generator", "skipped", 1)], (0, 0, 0, 0), ["numbers"]),
    "hostile": ([(9, "Failed to trace builtin operator", "resumed", 1)], (2, 1, 1, 1), []),
    "limit": ([], (8, 8, 8, 0), ["grow"]),
    "loop": ([(15, "Call to `torch._dynamo.graph_break()`", "skipped", 1)], (2, 1, 1, 0), ["repeat"]),
    "nested_break": ([(8, "Call to `torch._dynamo.graph_break()`", "resumed", 3)], (6, 4, 4, 3), []),
    "nested_resumes": ([(8, "Call to `torch._dynamo.graph_break()`", "resumed", 1)], (2, 2, 6, 3), []),
    "with_and_try": (
        [
            (17, "Call to `torch._dynamo.graph_break()`", "skipped", 1),
            (27, "Call to `torch._dynamo.graph_break()`", "skipped", 1),
        ],
        (2, 0, 0, 0),
        ["guarded", "within"],
    ),
}


@pytest.fixture(params=RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def recording(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_every_program_was_recorded_on_every_release() -> None:
    programs = {path.stem for path in (TESTS / "programs").glob("*.py")}
    assert programs == set(EXPECTED_REPORTS)
    releases = {path.parent.name for path in RECORDINGS}
    assert {(path.parent.name, path.stem) for path in RECORDINGS} == {(r, p) for r in releases for p in programs}
    assert len(releases) >= 3


def test_the_report_of_a_recording_matches_the_program(recording: Path) -> None:
    report = build_report(read_recording(recording))
    breaks, counts, eager = EXPECTED_REPORTS[recording.stem]
    if (recording.parent.name, recording.stem) == ("2.9.1", "with_and_try"):
        # That release mentions only the consequence of the second break.
        breaks = [breaks[0], (27, "Graph break under GenericContextWrappingVariable", "skipped", 1)]
    actual = [
        (break_.location.line, break_.gb_type, break_.outcome, len(break_.occurrences))
        for break_ in report.breaks
        if break_.location is not None
    ]
    assert actual == breaks
    summary = report.summary
    assert (summary.frames, summary.graphs, summary.ops, summary.resumes) == counts
    assert [skipped.function for skipped in report.skipped] == eager


@pytest.mark.parametrize("release", ["2.9.1", "2.13.0", "2.15.0"])
def test_a_branch_that_was_not_taken_is_reported_if_the_release_records_skips(release: str) -> None:
    records = read_recording(TESTS / "recordings" / release / "branch.log")
    # The program's second call takes the other branch. These are the records of its first call alone.
    first_call_records = [record for record in records if record.compile_key is None or record.compile_key.frame < 2]
    resumed, other = build_report(first_call_records).resumes
    assert (resumed.frames, resumed.no_frame) == (["1/0"], None)
    assert (other.frames, other.no_frame) == ([], None if release == "2.9.1" else "not reached")
    _, other = build_report(records).resumes
    assert (other.frames, other.no_frame) == (["2/0"], None)


def test_an_error_that_torch_2_9_also_logs_as_a_break_is_counted_once() -> None:
    records = read_recording(TESTS / "recordings" / "2.9.1" / "with_and_try.log")
    expected = build_report(records)
    for index in [i for i, record in enumerate(records) if record.kind == "artifact:dynamo_error"][::-1]:
        error = records[index]
        envelope = error.envelope | {"artifact": {**error.data, "name": "dynamo_graph_break_reason"}}
        records.insert(index + 1, Record(envelope, f"Graph break: skip: from user code at:\n\n\n{error.payload}"))
    report = build_report(records)
    assert (report.breaks, report.diagnostics) == (expected.breaks, expected.diagnostics)


@pytest.mark.parametrize("release", ["2.9.1", "2.13.0", "2.15.0"])
def test_inlined_resume_functions_belong_to_the_graph_that_contains_them(release: str) -> None:
    report = build_report(read_recording(TESTS / "recordings" / release / "nested_resumes.log"))
    assert report.config["nested_graph_breaks"] is True
    outcomes = [(resume.function, resume.frames, resume.graphs, resume.no_frame) for resume in report.resumes]
    assert outcomes == [
        ("leaf", [], ["B"], "inlined"),
        ("middle", [], ["B"], "inlined"),
        ("root", ["1/0"], ["B"], None),
    ]


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        ("generator", [("numbers", 6, 7)]),
        ("limit", [("grow", 6, 8)]),
        ("loop", [("repeat", 10, 16)]),
        ("with_and_try", [("guarded", 13, 20), ("within", 23, 28)]),
    ],
)
def test_an_eager_function_spans_all_its_lines(program: str, lines: list[tuple[str, int, int]]) -> None:
    for release in ("2.9.1", "2.13.0", "2.15.0"):
        report = build_report(read_recording(TESTS / "recordings" / release / f"{program}.log"))
        locations = [(skipped.function, skipped.location) for skipped in report.skipped]
        assert [
            (function, location.line, location.end_line) for function, location in locations if location is not None
        ] == lines


def test_as_many_operations_are_parsed_as_pytorch_counted(recording: Path) -> None:
    records = read_recording(recording)
    operation_counts = [
        record.data["graph_op_count"] or 0 for record in records if record.kind == "compilation_metrics"
    ]
    assert build_report(records).summary.ops == sum(operation_counts)


def test_every_break_has_its_source_line(recording: Path) -> None:
    report = build_report(read_recording(recording))
    program = (TESTS / "programs" / f"{recording.stem}.py").read_text().split("\n")
    for break_ in report.breaks:
        assert break_.location is not None
        assert break_.location.code is not None
        assert break_.location.code in program[break_.location.line - 1]


def test_breaks_are_found_in_a_trace_without_our_records(recording: Path) -> None:
    """A log from a cluster job contains only PyTorch's records."""
    records = [record for record in read_recording(recording) if not record.kind.startswith("graphbreak_")]
    if recording.stem == "generator":
        assert build_report(records).breaks == []  # the trace does not mention the break
        return
    breaks, _, _ = EXPECTED_REPORTS[recording.stem]
    lines = [break_.location.line for break_ in build_report(records).breaks if break_.location is not None]
    assert lines == [line for line, *_ in breaks]


def test_a_report_is_the_same_after_json(recording: Path) -> None:
    report = build_report(read_recording(recording))
    assert Report.from_json(report.to_json()) == report
    assert Report.from_dict(report.to_dict()) == report


def test_a_recording_is_the_same_after_writing_and_reading(recording: Path, tmp_path: Path) -> None:
    records = read_recording(recording)
    write_recording(tmp_path / "again.log", records, ["a comment"])
    assert read_recording(tmp_path / "again.log") == records


def test_no_recording_contains_a_path_of_a_machine(recording: Path) -> None:
    text = recording.read_text()
    for path in ("/work", "/home", "/root", "/Users"):
        assert path not in text


def test_broken_entries_become_diagnostics() -> None:
    records = [
        Record({"dynamo_start": {"stack": [{"line": 1}]}, "frame_id": 0, "frame_compile_id": 0}),
        Record({"graphbreak_source": {"filename": "x.py"}}),
        Record({"artifact": {"name": "dynamo_graph_break_reason"}, "frame_id": 1, "frame_compile_id": 0}, "nonsense"),
    ]
    report = build_report(records)
    assert [note.level for note in report.diagnostics] == ["warning", "warning"]
    assert report.summary.frames == 0


def test_a_recompile_after_a_reset_belongs_to_the_function_that_now_has_the_frame_id() -> None:
    records = [
        Record(
            {
                "graphbreak_start": {"name": name, "filename": "f.py", "firstlineno": 1},
                "frame_id": 0,
                "frame_compile_id": number,
            }
        )
        for name, number in (("old", 0), ("new", 0), ("new", 1))
    ]
    report = build_report(records)
    assert [(frame.id, frame.function, frame.recompile_of) for frame in report.frames] == [
        ("0/0", "old", None),
        ("0/0#2", "new", None),
        ("0/1", "new", "0/0#2"),
    ]
    assert [recompile.of for recompile in report.recompiles] == ["0/0#2"]
