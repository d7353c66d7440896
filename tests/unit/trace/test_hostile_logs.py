"""Hostile logs: no other files are read, a bad entry only causes a note, and reading always ends."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.api.saved import read_trace
from jupyter_graphbreak.records.regular_files import open_regular, read_regular
from jupyter_graphbreak.results import Job, Report
from jupyter_graphbreak.trace.limits import ReadingLimits
from jupyter_graphbreak.trace.log_files import UnreadableTrace, trace_files
from jupyter_graphbreak.trace.processes import read_processes

LOGS = Path(__file__).parents[2] / "recordings" / "logs"
BRANCH = (LOGS / "2.13.0" / "branch.log").read_bytes()
HEAD = b"V1122 02:10:26.443000 14548 torch/x.py:1] "
COMPILE_KEY = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}


def log_entry(envelope: object, payload: str | None = None) -> bytes:
    lines = b"".join(b"\t" + line.encode() + b"\n" for line in payload.split("\n")) if payload is not None else b""
    return HEAD + json.dumps(envelope).encode() + b"\n" + lines


def log_with_break(path: object, line: int = 1, code: str | None = None, function: str = "f") -> bytes:
    """Return a log with a break in a file, optionally with the code of the line."""
    code_line = f"\n    {code}" if code else ""
    stack = f'  File "{path}", line {line}, in {function}{code_line}\n'
    return b"".join(
        (
            log_entry({"str": [str(path), 1]}),
            log_entry({"dynamo_start": {"stack": [{"line": line, "name": function, "filename": 1}]}, **COMPILE_KEY}),
            log_entry(
                {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **COMPILE_KEY},
                f"Graph break in user code at {path}:{line}\nGraph Break Reason: x\n\nUser code traceback:\n{stack}\n",
            ),
        )
    )


def read_report(path: Path, **options: object) -> Report:
    report = read_trace(path, **options)  # type: ignore[arg-type]
    assert isinstance(report, Report)
    return report


def problem_messages(report: Report) -> list[str]:
    return [note.message for note in report.diagnostics if note.level != "info"]


PROGRAM = "TOKEN = 'hunter2hunter2'\n\n\ndef f(x):\n    key = 'hunter2hunter2'\n    return x.relu_()\n"


@pytest.mark.parametrize("function", ["f", "<lambda>", "<module>", "?"])
@pytest.mark.parametrize(
    "name",
    ["secrets.py", "link.py", "folder/../secrets.py", "/proc/self/environ", "/etc/passwd", "folder", "pipe", "zero"],
)
def test_no_text_of_a_file_is_read_because_a_log_mentions_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, function: str
) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2hunter2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secrets.py").write_text(PROGRAM)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.py").symlink_to("secrets.py")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    path = tmp_path / name
    # Without the code of the line, with wrong code, and with a correct guess that does not identify a function.
    for line, code in ((5, None), (5, "key = 1"), (3, ""), (4, "def f(x):x"), (1, "root:x:0:0:root:/root:/bin/bash")):
        (tmp_path / "t.log").write_bytes(log_with_break(path, line, code, function))
        text = read_report(tmp_path / "t.log", sources=[tmp_path, "/"]).to_json().decode()
        assert "hunter2" not in text
        assert "daemon" not in text


def test_only_functions_whose_lines_a_log_quotes_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text(PROGRAM + "\n\ndef g(x):\n    return x.cosine()\n")
    (tmp_path / "t.log").write_bytes(log_with_break(tmp_path / "model.py", 10, "return x.cosine()", "g"))
    assert [source.segments for source in read_report(tmp_path / "t.log").sources] == [[]]
    monkeypatch.chdir(tmp_path)
    (source,) = read_report(tmp_path / "t.log").sources
    assert [segment.text for segment in source.segments] == ["def g(x):\n    return x.cosine()"]
    # The file has a syntax error, so it is not the source that Python compiled.
    (tmp_path / "model.py").write_text(PROGRAM + "\n\ndef g(x):\n    return x.cosine()\n((\n")
    assert read_report(tmp_path / "t.log").sources[0].segments == []


def test_a_link_is_shown_only_if_its_target_may_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside_folder, outside_folder = tmp_path / "inside", tmp_path / "outside"
    inside_folder.mkdir()
    outside_folder.mkdir()
    (outside_folder / "model.py").write_text("def g(x):\n    return x.cosine()\n")
    (inside_folder / "model.py").symlink_to(outside_folder / "model.py")
    (inside_folder / "folder").symlink_to(outside_folder)
    monkeypatch.chdir(inside_folder)
    for name in ("model.py", "folder/model.py", "../outside/model.py", "../inside_too/model.py"):
        (tmp_path / "t.log").write_bytes(log_with_break(inside_folder / name, 2, "return x.cosine()", "g"))
        assert read_report(tmp_path / "t.log").sources[0].segments == []
    assert read_report(tmp_path / "t.log", sources=[inside_folder]).sources[0].segments == []
    (tmp_path / "t.log").write_bytes(log_with_break(inside_folder / "model.py", 2, "return x.cosine()", "g"))
    assert read_report(tmp_path / "t.log", sources=[outside_folder]).sources[0].segments != []


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero", ".", "nowhere"):
        with pytest.raises(OSError):  # noqa: PT011 - the class of the error varies
            open_regular(tmp_path / name)
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="larger"):
        read_regular(tmp_path / "file", 4)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 5) == b"12345"
    with pytest.raises(OSError):  # noqa: PT011 - the class of the error varies
        read_regular(tmp_path / "link", 5, follow_links=False)


def test_a_folder_of_logs_may_contain_anything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "zero.log").symlink_to("/dev/zero")
    (tmp_path / "gone.log").symlink_to("nowhere")
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b\x08" + bytes(100))
    (tmp_path / "cut.log").write_bytes(HEAD + b"{\n")
    (tmp_path / "real.log").write_bytes(BRANCH)
    report = read_report(tmp_path)
    assert len(report.graphs) == 3
    assert any("cut.log: not a structured trace" in message for message in problem_messages(report))
    with pytest.raises(UnreadableTrace, match="neither a file nor a folder"):
        read_trace(tmp_path / "pipe.log")
    with pytest.raises(UnreadableTrace):
        read_trace("a\0b")


BAD_VALUES: list[object] = [
    None,
    5,
    -1,
    10**30,
    1.5,
    "x",
    "\ud800",
    True,
    [],
    {},
    [[]],
    {"a": {}},
    [None],
    "9" * 5000,
]
GOOD_ENVELOPES: list[dict[str, object]] = [
    {"str": ["/p/a.py", 1]},
    {"dynamo_start": {"stack": [{"line": 6, "name": "f", "filename": 1}]}, **COMPILE_KEY},
    {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **COMPILE_KEY},
    {"dynamo_output_graph": {"sizes": {}}, **COMPILE_KEY},
    {"compilation_metrics": {"co_name": "f", "co_filename": "/p/a.py", "co_firstlineno": 1}, **COMPILE_KEY},
]


@pytest.mark.parametrize("envelope", GOOD_ENVELOPES, ids=lambda envelope: str(next(iter(envelope))))
def test_an_entry_with_a_wrong_form_causes_one_note(tmp_path: Path, envelope: dict[str, object]) -> None:
    full_report = read_report(LOGS / "2.13.0" / "branch.log")
    for key, inner in envelope.items():
        bad_entries = [log_entry({**envelope, key: bad_value}, "text") for bad_value in BAD_VALUES]
        if isinstance(inner, dict):
            bad_entries += [
                log_entry({**envelope, key: {**inner, part: bad_value}}, "x")
                for part in inner
                for bad_value in BAD_VALUES
            ]
        (tmp_path / "branch.log").write_bytes(b"".join(bad_entries) + BRANCH + b"".join(bad_entries))
        report = read_report(tmp_path / "branch.log")
        assert {break_.gb_id for break_ in full_report.breaks} <= {break_.gb_id for break_ in report.breaks}
        assert len(report.graphs) >= len(full_report.graphs)
        assert len(problem_messages(report)) <= 4
        assert not any("internal" in message or "failed" in message for message in problem_messages(report))
        report.to_text()
        report.to_json()


@pytest.mark.parametrize(
    "bad_bytes",
    [
        HEAD + b'{"artifact": 5}\n',
        HEAD + b'{"artifact": {"name": 5}}\n',
        HEAD + b'{"str": ' + b"[" * 100_000 + b"\n",
        HEAD + b'{"str": ["\xff\xfe", 1]}\n',
        HEAD + b'{"str": ["' + b"a" * (5 << 20) + b'", 1]}\n',
        HEAD + b'{"str": 1e999}\n',
        HEAD + b'{"dynamo_start": {}, "frame_id": ' + b"9" * 6000 + b"}\n",
        HEAD + b'{"dynamo_start"\n',
        HEAD + b"{}\x00\n",
        HEAD.replace(b"14548", b"9" * 500) + b'{"artifact": 7}\n',
        HEAD + b"[1, 2]\n",
    ],
    ids=lambda bad_bytes: repr(bad_bytes[len(HEAD) : len(HEAD) + 20]),
)
def test_bad_bytes_cause_one_note(tmp_path: Path, bad_bytes: bytes) -> None:
    full_report = read_report(LOGS / "2.13.0" / "branch.log")
    (tmp_path / "branch.log").write_bytes(bad_bytes * 3 + BRANCH + bad_bytes)
    report = read_report(tmp_path / "branch.log")
    assert (report.breaks, report.graphs, report.frames) == (full_report.breaks, full_report.graphs, full_report.frames)
    (message,) = problem_messages(report)
    assert message.startswith("4 of ")
    assert "could not be read" in message


#: Strings on which an ambiguous pattern would take hours.
SLOW_STRINGS: dict[str, str] = {
    "newlines": "\n" * (1 << 19),
    "reasons": "Graph Break Reason: " * 20_000 + "\n" * 100_000,
    "links": "http://" * 50_000,
    "files": '# File: :1 in  File "' * 20_000,
    "chained": "\n *** While" * 40_000,
    "resumed": 'User code traceback:\n  File "/p/a.py", line 3, in ' + "torch_dynamo_resume_in_" * 20_000,
    "nested": "(" * 100_000,
    "assigned": ";  " + "a = " * 100_000,
}


@pytest.mark.parametrize("name", SLOW_STRINGS)
def test_strings_that_slow_patterns_down_are_read(tmp_path: Path, name: str) -> None:
    start = log_with_break("/p/a.py", 3, "x = y + z")
    graph = "class GraphModule(torch.nn.Module):\n    def forward(self, x):\n" + SLOW_STRINGS[name]
    kinds = ("dynamo_graph_break_reason", "dynamo_error", "recompile_reasons")
    texts = [log_entry({"artifact": {"name": kind}, **COMPILE_KEY}, SLOW_STRINGS[name]) for kind in kinds]
    texts.append(log_entry({"dynamo_output_graph": {}, **COMPILE_KEY}, graph))
    listing = "torch_dynamo_resume_in_f_at_3_ORIGINAL_BYTECODE"
    texts.append(log_entry({"artifact": {"name": listing}, **COMPILE_KEY}, (" " * 5000 + "x\n") * 50))
    (tmp_path / "t.log").write_bytes(start + b"".join(texts))
    assert read_report(tmp_path / "t.log").breaks


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstandard.compress}


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_file_that_unpacks_to_too_much_is_read_partly(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.log.{suffix}"
    path.write_bytes(COMPRESSORS[suffix](BRANCH + b"\n" * (1 << 18)))
    limits = ReadingLimits(unpacked_bytes=1 << 16, ratio=2)
    (process,) = read_processes(trace_files(path), limits=limits)
    report = build_report(process.records)
    assert len(report.graphs) == 3
    assert any("it unpacks to far more" in note.message for note in report.diagnostics)
    assert not any("unpacks" in note.message for note in read_report(path).diagnostics)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (ReadingLimits(entries=5), "it is too long"),
        (ReadingLimits(text=300), "it is too long"),
        (ReadingLimits(processes=1), "more than 1 processes wrote into it"),
        (ReadingLimits(seconds=-1.0), "reading it takes too long"),
        (ReadingLimits(line=64), "could not be read"),
    ],
)
def test_a_limit_ends_reading_with_a_note_or_an_error(tmp_path: Path, limits: ReadingLimits, message: str) -> None:
    other = BRANCH.replace(b" 14548 ", b" 14549 ")
    (tmp_path / "t.log").write_bytes((BRANCH + other) * 50)
    try:
        processes = list(read_processes(trace_files(tmp_path / "t.log"), limits=limits))
    except UnreadableTrace as error:
        assert message in str(error) or "not a structured trace" in str(error)  # noqa: PT017 - some limits raise, others add a note
        return
    notes = [note.message for process in processes for note in build_report(process.records).diagnostics]
    assert any(message in note for note in notes)


def test_a_folder_with_too_many_files_is_read_partly(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.log").write_bytes(BRANCH)
    logs = trace_files(tmp_path, ReadingLimits(files=3))
    assert [path.name for path in logs.files] == ["0.log", "1.log", "2.log"]
    assert logs.notes == [f"Only 3 files in {tmp_path.name} were checked: there are more."]


LOGS_TO_MUTATE = sorted(LOGS.glob("*/*.log"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(LOGS_TO_MUTATE), seed=st.integers(0, 2**32))
def test_no_damage_to_a_log_raises_an_internal_error(tmp_path: Path, path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lines = path.read_bytes().split(b"\n")
    for _ in range(rng.randrange(1, 6)):
        index = rng.randrange(len(lines))
        lines[index] = mutate_line(lines[index], rng)
    (tmp_path / "t.log").write_bytes(b"\n".join(lines))
    try:
        log = read_trace(tmp_path / "t.log")
    except UnreadableTrace:
        return
    log.to_text()
    log.redacted().to_json()
    reports = [process.report for process in log.processes] if isinstance(log, Job) else [log]
    for report in reports:
        assert not any(note.level == "error" for note in report.diagnostics)
        assert Report.from_json(report.to_json()) == report


def mutate_line(line: bytes, rng: random.Random) -> bytes:
    """Return a line with a different value in its JSON, or truncated, repeated, emptied, or with a different byte."""
    head, bracket, text = line.partition(b"] {")
    if bracket and rng.random() < 0.7:
        try:
            return head + b"] " + json.dumps(_mutate_value(json.loads(b"{" + text), rng)).encode()
        except ValueError:
            return line
    index = rng.randrange(len(line) + 1)
    return rng.choice([line[:index], line[:index] + bytes([rng.randrange(256)]) + line[index + 1 :], line * 3, b""])


def _mutate_value(value: object, rng: random.Random) -> object:
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        return {**value, key: _mutate_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        index = rng.randrange(len(value))
        return [*value[:index], _mutate_value(value[index], rng), *value[index + 1 :]]
    return rng.choice(BAD_VALUES)


def test_a_log_that_is_also_linked_to_is_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_bytes(log_entry({"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0}))
    (folder / "again").symlink_to(folder)
    (folder / "same.log").symlink_to(folder / "a.log")
    (folder / "itself.log").symlink_to(folder / "itself.log")
    assert [file.name for file in trace_files(folder).files] == ["a.log"]
