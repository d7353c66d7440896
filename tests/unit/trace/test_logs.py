"""Complete and damaged logs of several releases: readable entries are reported, unreadable ones are counted."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from jupyter_graphbreak.api.saved import read_trace
from jupyter_graphbreak.results import Job, Report
from jupyter_graphbreak.trace.log_files import UnreadableTrace

LOGS = Path(__file__).parents[2] / "recordings" / "logs"
LOG_FILES = sorted(LOGS.glob("*/*.log"))
RELEASES = ["2.9.1", "2.11.0", "2.13.0", "2.15.0"]

# line, outcome and events of each break; frames, graphs, resume functions that ran; functions that ran eagerly; errors
EXPECTED_REPORTS: dict[str, tuple[list[tuple[int, str, int]], tuple[int, int, int], list[str], int]] = {
    "branch": ([(9, "resumed", 1)], (3, 3, 2), [], 0),
    "fullgraph": ([(9, "error", 1)], (1, 0, 0), [], 1),
    "limit": ([], (8, 8, 0), ["grow"], 0),
    "loop": ([(15, "skipped", 1)], (2, 1, 0), ["repeat"], 0),
    "nested_break": ([(8, "resumed", 3)], (6, 4, 3), [], 0),
    "with_and_try": ([(17, "skipped", 1), (27, "skipped", 1)], (2, 0, 0), ["guarded", "within"], 0),
}


def read_report(path: Path) -> Report:
    report = read_trace(path)
    assert isinstance(report, Report)
    return report


def warning_messages(report: Report) -> list[str]:
    return [note.message for note in report.diagnostics if note.level == "warning"]


def test_every_program_has_a_log_of_every_release() -> None:
    assert {(path.parent.name, path.stem) for path in LOG_FILES} == {
        (r, name) for r in RELEASES for name in EXPECTED_REPORTS
    }


@pytest.mark.parametrize("path", LOG_FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_report_of_a_log_describes_the_run(path: Path) -> None:
    report = read_report(path)
    breaks, (frames, graphs, resumes_that_ran), eager, errors = EXPECTED_REPORTS[path.stem]
    if (path.parent.name, path.stem) == (
        "2.9.1",
        "with_and_try",
    ):  # 2.9.1 logs only errors
        breaks, eager, errors = [(line, "error", events) for line, _, events in breaks], [], 2
        assert any("Before torch 2.11" in note.message for note in report.diagnostics)
    actual_breaks = [(b.location.line, b.outcome, len(b.occurrences)) for b in report.breaks if b.location is not None]
    assert actual_breaks == breaks
    assert (len(report.frames), len(report.graphs)) == (frames, graphs)
    assert len([resume for resume in report.resumes if resume.frames]) == resumes_that_ran
    assert [skipped.function for skipped in report.skipped] == eager
    assert report.summary.errors == errors
    assert warning_messages(report) == []
    assert report.device.used == ("unknown" if not graphs else "cpu")
    assert report.torch is None or report.torch.startswith(path.parent.name)
    assert report.config == {"nested_graph_breaks": False, "recompile_limit": 8}
    assert any("A trace log does not say" in note.message for note in report.diagnostics)


def test_every_resume_function_that_ran_belongs_to_a_break() -> None:
    report = read_report(LOGS / "2.13.0" / "nested_break.log")
    assert [(resume.function, resume.break_) for resume in report.resumes] == [
        ("leaf", "b1"), ("middle", "b1"), ("outer", "b1"),
    ]  # fmt: skip
    assert [(frame.id, frame.role, frame.caller) for frame in report.frames] == [
        ("0/0", "entry", None), ("1/0", "call", "0/0"), ("2/0", "call", "1/0"),
        ("3/0", "resume", "2/0"), ("4/0", "resume", "1/0"), ("5/0", "resume", "0/0"),
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".log"])
def test_the_first_bytes_determine_the_compression(tmp_path: Path, suffix: str) -> None:
    text = (LOGS / "2.13.0" / "branch.log").read_bytes()
    middle = text.index(b"\nV", len(text) // 2) + 1
    compressors: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".zst": zstandard.compress,
        ".log": bytes,
    }
    compress = compressors[suffix]
    compressed_log = tmp_path / f"trace{suffix}"
    compressed_log.write_bytes(compress(text[:middle]) + compress(text[middle:]))
    assert read_report(compressed_log) == read_report(LOGS / "2.13.0" / "branch.log")


def test_source_lines_come_from_the_file_if_it_is_still_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (Path(__file__).parents[2] / "programs" / "branch.py").read_text()
    log = (LOGS / "2.13.0" / "branch.log").read_text().replace("/programs/branch.py", str(tmp_path / "branch.py"))
    (tmp_path / "trace.log").write_text(log)
    (tmp_path / "branch.py").write_text(program)
    report_without_sources = read_report(tmp_path / "trace.log")
    assert report_without_sources.sources[0].segments == []
    assert any("sources=[FOLDER]" in note.message for note in report_without_sources.diagnostics)
    report_with_sources = read_trace(tmp_path / "trace.log", sources=[tmp_path])
    monkeypatch.chdir(tmp_path)
    report_in_folder = read_report(tmp_path / "trace.log")
    for report in (report_with_sources, report_in_folder):
        assert isinstance(report, Report)
        assert "def choose(x):" in report.sources[0].segments[0].text
        assert not any("sources=[FOLDER]" in note.message for note in report.diagnostics)
    (tmp_path / "branch.py").write_text("# a new first line\n" + program)
    report_after_change = read_report(tmp_path / "trace.log")
    assert report_after_change.sources[0].segments == []
    assert report_after_change.breaks[0].location is not None
    assert report_after_change.breaks[0].location.code == "if (y > 0).all():"
    assert any(
        "branch.py has changed since the log was written" in message
        for message in warning_messages(report_after_change)
    )


def entries_of_process(text: str, pid: int, rank: int) -> list[str]:
    """Return the records of a log as a process with the given id and rank would have written them."""
    entries = text.rstrip("\n").replace("\nV", "\n\0V").split("\n\0")
    new_entries = []
    for entry in entries:
        head, _, rest = entry.partition("] {")
        words = head.split(" ")
        words[2] = str(pid)
        new_entries.append(f"{' '.join(words)}] {rest and '{'}{rest}".replace("}\n", f', "rank": {rank}}}\n', 1))
    return new_entries


def test_ranks_that_share_a_file_are_distinguished(tmp_path: Path) -> None:
    first = entries_of_process((LOGS / "2.13.0" / "branch.log").read_text(), 11, 0)
    second = entries_of_process((LOGS / "2.13.0" / "nested_break.log").read_text(), 12, 1)
    entries = []
    while first or second:
        entries += [*first[:1], *second[:2]]
        first, second = first[1:], second[2:]
    (tmp_path / "trace.log").write_text("\n".join(entries) + "\n")
    job = read_trace(tmp_path / "trace.log")
    assert isinstance(job, Job)
    assert [(process.pid, process.rank) for process in job.processes] == [(11, 0), (12, 1)]
    assert [len(process.report.graphs) for process in job.processes] == [3, 4]
    assert [b.place.path for b in job.breaks if b.place is not None] == [
        "/programs/branch.py",
        "/programs/nested_break.py",
    ]


def test_breaks_that_only_some_ranks_have_come_first(tmp_path: Path) -> None:
    text = (LOGS / "2.13.0" / "branch.log").read_text()
    other = (LOGS / "2.13.0" / "nested_break.log").read_text()
    (tmp_path / "dedicated_log_torch_trace_rank_0_a.log").write_text(text)
    rank_1_text = text.replace("14548", "1")
    (tmp_path / "dedicated_log_torch_trace_rank_1_b.log").write_text(rank_1_text)
    (tmp_path / "dedicated_log_torch_trace_rank_1_c.log").write_text(other)
    (tmp_path / "notes.txt").write_text("no trace")
    job = read_trace(tmp_path)
    assert isinstance(job, Job)
    assert [(process.rank, [equal.rank for equal in process.equal]) for process in job.processes] == [(1, []), (0, [1])]
    assert [(break_.ranks, break_.missing_in) for break_ in job.breaks] == [([1], [0]), ([0, 1], [])]
    assert "only on rank 1, not on rank 0" in job.to_text()
    assert Job.from_json(job.to_json()) == job


def test_prefixes_that_a_launcher_adds_are_removed(tmp_path: Path) -> None:
    text = (LOGS / "2.13.0" / "branch.log").read_text()
    tagged_text = "".join(f"[rank0]:{line}\n" for line in text.rstrip("\n").split("\n"))
    (tmp_path / "trace.log").write_text("starting\n" + tagged_text)
    report = read_report(tmp_path / "trace.log")
    assert len(report.graphs) == 3
    assert warning_messages(report) == ["Lines in trace.log that belong to no record: 1."]


def test_windows_line_ends_do_not_count_as_damage(tmp_path: Path) -> None:
    text = (LOGS / "2.13.0" / "branch.log").read_bytes()
    (tmp_path / "trace.log").write_bytes(text.replace(b"\n", b"\r\n"))
    assert read_report(tmp_path / "trace.log").breaks == read_report(LOGS / "2.13.0" / "branch.log").breaks


def test_a_truncated_log_is_read_to_its_end(tmp_path: Path) -> None:
    text = (LOGS / "2.13.0" / "nested_break.log").read_bytes()
    truncated_log = tmp_path / "trace.log"
    for end in range(400, len(text), 701):
        truncated_log.write_bytes(text[:end])
        report = read_report(truncated_log)
        assert text[:end].endswith(b"\n") or any("may be missing" in message for message in warning_messages(report))
        report.to_text()


def test_a_damaged_compressed_log_is_read_up_to_the_damage(tmp_path: Path) -> None:
    compressed = gzip.compress((LOGS / "2.13.0" / "nested_break.log").read_bytes() * 20)
    (tmp_path / "trace.log.gz").write_bytes(compressed[: len(compressed) // 2])
    report = read_report(tmp_path / "trace.log.gz")
    assert report.breaks
    assert any("its compression is damaged" in message for message in warning_messages(report))


def test_damage_is_counted(tmp_path: Path) -> None:
    text = (LOGS / "2.13.0" / "branch.log").read_text()
    damaged_text = text.replace("y = x * 2", "y = x * 3").replace('{"compilation_metrics"', '{"compilation_metrics', 1)
    (tmp_path / "trace.log").write_text(damaged_text)
    messages = warning_messages(read_report(tmp_path / "trace.log"))
    assert "Damaged records in trace.log, whose text does not match their checksum: 1." in messages
    assert any(
        "records of trace.log could not be read: their JSON is damaged or too long." in message for message in messages
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (bytes(range(256)) * 50, "not a structured trace"),
        (b'{"a": 1}\n', "not a structured trace"),
        (gzip.compress(b"hello", mtime=0), "not a structured trace"),
        (b"\x1f\x8b\x08", "its compression is damaged"),
        (b"\x28\xb5\x2f\xfd\x00\x01", "not a structured trace"),
    ],
)
def test_an_invalid_log_is_reported_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "trace.log").write_bytes(content)
    with pytest.raises(UnreadableTrace, match=message) as caught:
        read_trace(tmp_path / "trace.log")
    assert "\n" not in str(caught.value)


def test_a_folder_without_logs_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(UnreadableTrace, match="no structured trace in this folder"):
        read_trace(tmp_path)
    with pytest.raises(UnreadableTrace, match="no such file or folder"):
        read_trace(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableTrace, match=f"^{tmp_path}/pipe: neither a file nor a folder$"):
        read_trace(tmp_path / "pipe")


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """Payloads that no report needs are skipped, and equal strings are stored once."""
    text = (LOGS / "2.13.0" / "branch.log").read_text()
    unread_entry = (
        'V1122 02:10:26.443000 14548 torch/x.py:1] {"inductor_output_code": {}, "frame_id": 0}\n' + "\tcode\n" * 20_000
    )
    peaks = []
    for times in (4, 40):
        path = tmp_path / f"{times}.log"
        path.write_text((text + unread_entry) * times)
        tracemalloc.start()
        read_report(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (tmp_path / "40.log").stat().st_size > 4_000_000
    assert peaks[1] - peaks[0] < 5_000_000
