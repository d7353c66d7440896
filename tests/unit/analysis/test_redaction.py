"""Redacted reports contain nothing of the code in any format, but keep their structure."""

from __future__ import annotations

import re
import time
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.analysis.jobs import build_job
from jupyter_graphbreak.analysis.redaction import CONTENTS
from jupyter_graphbreak.report import job as job_schema
from jupyter_graphbreak.report import schema
from jupyter_graphbreak.report.diff import Changes
from jupyter_graphbreak.report.job import Process
from jupyter_graphbreak.report.location import Source
from jupyter_graphbreak.report.summary import Summary, Timing
from jupyter_graphbreak.results import Job, Report
from jupyter_graphbreak.views.html.render import render_page
from jupyter_graphbreak.views.markdown import render_markdown
from jupyter_graphbreak.views.sarif import render_sarif
from tests.support.trace_files import read_recording

TESTS = Path(__file__).parents[2]
RECORDINGS = sorted((TESTS / "recordings").glob("*/*.log"))
REPORTS = sorted((TESTS / "reports").glob("*.json"))
#: Words of Python, of PyTorch's reasons and of our sentences. They reveal nothing about the user's code.
WORDS = """
    and as backend branch break call class code compile compiled config contextlib def dtype eager else except false for
    from graph graph_break if import in into is it line loop of ones or out print range recompile recompile_limit return
    run self size sum tensor the times to torch true try was with within _dynamo branching builtin operator context
    manager generator attempt trace value dynamic limit error function functions item method test name first new again
    none not once per step fullgraph numbers grow
"""
PUBLIC_WORDS = set(WORDS.split())


def secret_words(report: Report) -> set[str]:
    text = "\n".join(segment.text for source in report.sources for segment in source.segments)
    text += " ".join(f"{source.name} {source.path}" for source in report.sources)
    text += " ".join(frame.function for frame in report.frames)
    return {word for word in re.findall(r"\w+", text) if word.lower() not in PUBLIC_WORDS and len(word) > 2}


def all_formats(report: Report) -> list[str]:
    return [
        report.to_json().decode(), report.to_text(), report.to_html(), render_page(report),
        render_markdown([report]), render_sarif([report], "0"),
    ]  # fmt: skip


def words_left_in(words: set[str], text: str) -> set[str]:
    # The style sheet and the scripts of a page hold no text of a report.
    text = re.sub(r"<style>.*?</style>|<script type=\"module\">.*?</script>", "", text, flags=re.DOTALL)
    return words & set(re.findall(r"\w+", text))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_word_of_the_code_is_left(path: Path) -> None:
    report = Report.of(build_report(read_recording(path)))
    redacted = report.redacted()
    empty_report = Report(status="ok", device=report.device)
    for text, empty_text in zip(all_formats(redacted), all_formats(empty_report), strict=True):
        words = secret_words(report) - set(re.findall(r"\w+", empty_text))
        remaining_words = words_left_in(words, text)
        causes = {word for break_ in report.breaks for word in re.findall(r"\w+", break_.gb_type)}
        assert remaining_words <= causes, path.stem


#: The hostile report is left out: its ids are not valid, so redaction replaces them.
WITH_IDS = [path for path in REPORTS if path.stem != "hostile"]


@pytest.mark.parametrize("path", [*WITH_IDS, *RECORDINGS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_structure_is_kept(path: Path) -> None:
    if path.suffix == ".json":
        report = Report.from_json(path.read_bytes())
    else:
        report = Report.of(build_report(read_recording(path)))
    redacted = report.redacted()
    assert redacted.summary == report.summary
    assert [break_.gb_id for break_ in redacted.breaks] == [break_.gb_id for break_ in report.breaks]
    assert [f.location and f.location.line for f in redacted.breaks] == [
        f.location and f.location.line for f in report.breaks
    ]
    assert [frame.id for frame in redacted.frames] == [frame.id for frame in report.frames]
    names = {frame.function for frame in report.frames}
    assert len({frame.function for frame in redacted.frames}) == len(names)
    assert all(re.fullmatch(r"f\d+|<module>", frame.function) for frame in redacted.frames)
    assert all(re.fullmatch(r"(torch_dynamo_resume_in_)*f\d+(_at_\d+)*", resume.name) for resume in redacted.resumes)
    assert redacted.redacted() == redacted
    assert Report.from_json(redacted.to_json()) == redacted


SECRETS = (
    "hunter2", "/home/hunter2/x.py", "hunter2.internal.example:5432", "torch.ops.hunter2.add", "aten.hunter2",
    "2.13.0+hunter2", "float32 hunter2", "cuda:0 hunter2", "s0 + hunter2", "GB0001 hunter2", "eager_hunter2",
    "torch_dynamo_resume_in_hunter2_at_3", "hunter2=1", "torch._dynamo.config.hunter2",
)  # fmt: skip


def replace_by_secret(value: Any, secret: str) -> Any:
    """Return a structure with a secret instead of every string whose values the schema does not list."""
    if not isinstance(value, msgspec.Struct):
        return value
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(value):
        inner = getattr(value, field.name)
        parts = set(typing.get_args(field.type)) | {field.type}
        is_text = bool(parts & {str, list[str], list[int | str]})
        if isinstance(inner, msgspec.Struct):
            changes[field.name] = replace_by_secret(inner, secret)
        elif isinstance(inner, dict):
            changes[field.name] = {**inner, secret: 1, "recompile_limit": [secret], "x": {"y": [secret]}}
        elif isinstance(inner, list):
            holds_text = is_text and all(isinstance(item, str) for item in inner)
            changes[field.name] = [secret] if holds_text else [replace_by_secret(item, secret) for item in inner]
        elif is_text:
            changes[field.name] = secret
    return msgspec.structs.replace(value, **changes)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_any_field_at_any_depth_is_removed(secret: str) -> None:
    for path in REPORTS:
        report = replace_by_secret(Report.from_json(path.read_bytes()), secret)
        assert "hunter2" in report.to_json().decode()
        job = Job.of(build_job([Process("hunter2", 0, 1, secret, report), Process("p2", 1, 2, secret, report)]))
        redacted = report.redacted()
        for text in [*all_formats(redacted), repr(redacted), job.redacted().to_text(), job.redacted().to_html()]:
            assert "hunter2" not in text, path.stem


def test_many_names_are_replaced_quickly_by_different_names() -> None:
    sources = [Source(f"s{index}", f"file{index}.py", "file", f"a/file{index}.py") for index in range(20_000)]
    report = Report("ok", schema.Device("cpu", "cpu"), sources=sources)
    start = time.process_time()
    names = {source.name for source in report.redacted().sources}
    assert time.process_time() - start < 30
    assert len(names) == len(sources)


def test_a_name_has_the_same_replacement_in_all_processes() -> None:
    reports = [
        build_report(read_recording(TESTS / "recordings" / "2.13.0" / f"{name}.log")) for name in ("branch", "loop")
    ]
    processes = [Process(f"p{n}", n, 10 + n, "python train.py --secret", report) for n, report in enumerate(reports)]
    job = Job.of(build_job([*processes, Process("p9", None, 19, None, reports[0])])).redacted()
    assert "secret" not in job.to_json().decode()
    equal_report, first, _ = (process.report for process in job.processes)
    assert [frame.function for frame in first.frames] == [frame.function for frame in equal_report.frames]
    assert [source.name for source in first.sources] == [source.name for source in equal_report.sources]


@pytest.mark.parametrize("name", ["remedies", "cost", "checks"])
def test_remedies_cost_and_checks_keep_only_figures_and_verdicts(name: str) -> None:
    report = Report.from_json((TESTS / "reports" / f"{name}.json").read_bytes())
    redacted = report.redacted()
    text = redacted.to_json().decode()
    for word in ("log_stats", "helpers", "divide", "gradient of", "NameError", "norm", "differs by"):
        assert word not in text, word
    assert [(remedy.id, remedy.verdict) for remedy in redacted.remedies or []] == [
        (remedy.id, remedy.verdict) for remedy in report.remedies or []
    ]
    assert not any(remedy.edits or remedy.patch or remedy.code or remedy.reason for remedy in redacted.remedies or [])
    if name == "remedies":
        assert [remedy.title for remedy in redacted.remedies or []][:3] == [
            "a remedy of the family branch", "a remedy of the family branch", "Set `capture_scalar_outputs = True`",
        ]  # fmt: skip
    if report.cost is not None and redacted.cost is not None:
        assert [entry.compiled for entry in redacted.cost.entries] == [entry.compiled for entry in report.cost.entries]
    if report.check is not None:
        assert [check.equal for check in redacted.check or []] == [check.equal for check in report.check]


def test_targets_outside_pytorch_are_redacted() -> None:
    report = build_report(read_recording(TESTS / "recordings" / "2.13.0" / "branch.log"))
    graph = report.graphs[0]
    targets = ["torch.ops.mylib.secret.default", "torch.ops.aten.sin.default", "torch.relu", "mine"]
    targets += ["torch.my_secret", "aten.secret_name", "Tensor.sum", "Tensor.secret", "operator.add", "math.secret"]
    ops = [msgspec.structs.replace(graph.ops[0], target=target) for target in targets]
    graphs = [msgspec.structs.replace(graph, ops=ops), *report.graphs[1:]]
    redacted = Report.of(msgspec.structs.replace(report, graphs=graphs)).redacted()
    assert [op.target for op in redacted.graphs[0].ops] == [
        "operation", "torch.ops.aten.sin.default", "torch.relu", "operation", "operation", "operation", "operation",
        "operation", "operator.add", "operation",
    ]  # fmt: skip


CANARY = "CANARY_word"


def structs_below(kind: object) -> set[type[msgspec.Struct]]:
    """Return the structures that a type contains at any depth, including the type itself."""
    types: set[type[msgspec.Struct]] = set()
    pending = [kind]
    while pending:
        part = pending.pop()
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            if part in types:
                continue
            types.add(part)
            pending += typing.get_type_hints(part, include_extras=True).values()
        pending += typing.get_args(part)
    return types


def filled_with_canaries(kind: Any) -> Any:
    """Return a value of a type in which every string is a canary, at every depth."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        alternatives = [part for part in parts if part is not type(None)]
        return filled_with_canaries(str if str in alternatives else alternatives[0])
    if origin is typing.Literal:
        return parts[0]
    if origin is list:
        return [filled_with_canaries(parts[0]), filled_with_canaries(parts[0])]
    if origin is dict:
        return {CANARY: CANARY, "recompile_limit": CANARY, "torch._dynamo.config.recompile_limit": [CANARY], "x": 5}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{name: filled_with_canaries(part) for name, part in typing.get_type_hints(kind).items()})
    return {str: CANARY, int: 3, float: 0.5, bool: True, Any: CANARY}[kind]


def test_no_format_contains_a_canary_after_redaction() -> None:
    report = msgspec.structs.replace(filled_with_canaries(schema.Report), schema_version="1.0")
    filled_report = Report.of(report)
    assert filled_report.to_json().count(b"CANARY") > 100
    redacted = filled_report.redacted()
    for text in [*all_formats(redacted), repr(redacted)]:
        assert "CANARY" not in text
    assert redacted.redacted() == redacted
    job = Job.of(msgspec.structs.replace(filled_with_canaries(job_schema.Job), schema_version="1.0"))
    assert "CANARY" not in job.redacted().to_json().decode() + job.redacted().to_html() + job.redacted().to_text()


def test_every_field_of_the_schema_has_a_kind_of_content() -> None:
    fields = {
        (kind.__name__, field.name)
        for kind in structs_below(job_schema.Job)
        for field in msgspec.structs.fields(kind)
        if kind not in structs_below(Changes) - {Changes, Summary, Timing}
    }
    assert fields - set(CONTENTS) == set(), "add these to _FIELDS_BY_CLASS in analysis/redaction.py"
    assert {kind for kind, _ in CONTENTS} - {kind.__name__ for kind in structs_below(job_schema.Job)} == set()


@pytest.mark.parametrize(
    ("version", "remaining_words"),
    [
        ("2.13.0", "2.13.0"), ("2.13.0a0+git1234+internal", "2.13.0"), ("2.9.1+cu128.acme", "2.9.1"),
        ("acme-2.9", None), ("3.12.1 (main, built by acme)", "3.12.1"),
    ],
)  # fmt: skip
def test_build_tags_are_removed(version: str, remaining_words: str | None) -> None:
    report = Report(status="ok", device=schema.Device("auto", "cpu"), torch=version, python=version)
    assert (report.redacted().torch, report.redacted().python) == (remaining_words, remaining_words)


def test_sizes_and_types_are_kept() -> None:
    shape: list[int | str] = [3, "s0", "u1 + 2", "2*s0", "secret", "s0 + secret"]
    tensors = [schema.Tensor("x", shape, "float8_e4m3fn", "cuda:1"), schema.Tensor("y", None, "Sym(s0)", "secret")]
    graph = schema.Graph("A", "f", "0/0", inputs=tensors)
    report = Report(status="ok", device=schema.Device("auto", "cpu"), graphs=[graph])
    first, second = report.redacted().graphs[0].inputs
    assert first.shape == [3, "s0", "u1 + 2", "2*s0", "?", "?"]
    assert (first.dtype, first.device, second.dtype, second.device) == (
        "float8_e4m3fn",
        "cuda:1",
        "Sym(s0)",
        "a device",
    )
