"""Redaction: nothing of the code is left in any format, and the structure is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.analysis.reports.jobs import build_job
from jupyter_graphbreak.report.job import Process
from jupyter_graphbreak.results import Job, Report
from jupyter_graphbreak.trace.files import read_trace
from jupyter_graphbreak.views.exchange.markdown import render_markdown
from jupyter_graphbreak.views.exchange.sarif import render_sarif
from jupyter_graphbreak.views.html.render import render_page

HERE = Path(__file__).parents[2]
RECORDINGS = sorted((HERE / "recordings").glob("*/*.log"))
REPORTS = sorted((HERE / "reports").glob("*.json"))
#: Words of Python, of PyTorch's reasons and of a report's own sentences, which say nothing of the code they stand in.
WORDS = """
    and as backend branch break call class code compile compiled config contextlib def dtype eager else except false for
    from graph graph_break if import in into is it line loop of ones or out print range recompile recompile_limit return
    run self size sum tensor the times to torch true try was with within _dynamo branching builtin operator context
    manager generator attempt trace value dynamic limit error function functions item method test name first new again
    none not once per step fullgraph
"""
OWN = set(WORDS.split())


def words_of(report: Report) -> set[str]:
    text = "\n".join(segment.text for source in report.sources for segment in source.segments)
    text += " ".join(f"{source.name} {source.path}" for source in report.sources)
    text += " ".join(frame.function for frame in report.frames)
    return {word for word in re.findall(r"\w+", text) if word.lower() not in OWN and len(word) > 2}


def forms_of(report: Report) -> list[str]:
    return [
        report.to_json().decode(), report.to_text(), report.to_html(), render_page(report),
        render_markdown([report]), render_sarif([report], "0"),
    ]  # fmt: skip


def left_in(words: set[str], text: str) -> set[str]:
    # The style sheet and the scripts of a page hold no text of a report.
    text = re.sub(r"<style>.*?</style>|<script type=\"module\">.*?</script>", "", text, flags=re.DOTALL)
    return words & set(re.findall(r"\w+", text))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_word_of_the_code_is_left(path: Path) -> None:
    report = Report.of(build_report(read_trace(path)))
    redacted = report.redacted()
    empty = Report(status="ok", device=report.device)
    for text, without in zip(forms_of(redacted), forms_of(empty), strict=True):
        words = words_of(report) - set(re.findall(r"\w+", without))
        left = left_in(words, text)
        causes = {word for found in report.breaks for word in re.findall(r"\w+", found.gb_type)}
        assert left <= causes, path.stem


@pytest.mark.parametrize("path", [*REPORTS, *RECORDINGS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_structure_stays(path: Path) -> None:
    if path.suffix == ".json":
        report = Report.from_json(path.read_bytes())
    else:
        report = Report.of(build_report(read_trace(path)))
    redacted = report.redacted()
    assert redacted.summary == report.summary
    assert [found.gb_id for found in redacted.breaks] == [found.gb_id for found in report.breaks]
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


def test_one_name_is_replaced_alike_in_all_processes() -> None:
    made = [build_report(read_trace(HERE / "recordings" / "2.13.0" / f"{name}.log")) for name in ("branch", "loop")]
    processes = [Process(f"p{n}", n, 10 + n, "python train.py --secret", report) for n, report in enumerate(made)]
    job = Job.of(build_job([*processes, Process("p9", 9, 19, None, made[0])])).redacted()
    assert "secret" not in job.to_json().decode()
    first, _, again = (process.report for process in job.processes)
    assert [frame.function for frame in first.frames] == [frame.function for frame in again.frames]
    assert [source.name for source in first.sources] == [source.name for source in again.sources]


@pytest.mark.parametrize("name", ["remedies", "cost", "checks"])
def test_remedies_cost_and_checks_keep_figures_and_verdicts_only(name: str) -> None:
    report = Report.from_json((HERE / "reports" / f"{name}.json").read_bytes())
    redacted = report.redacted()
    text = redacted.to_json().decode()
    for word in ("log_stats", "helpers", "divide", "gradient of", "NameError", "norm", "differs by"):
        assert word not in text, word
    assert [(each.id, each.verdict) for each in redacted.remedies or []] == [
        (each.id, each.verdict) for each in report.remedies or []
    ]
    assert not any(each.edits or each.patch or each.code or each.reason for each in redacted.remedies or [])
    if name == "remedies":
        assert [each.title for each in redacted.remedies or []][:3] == [
            "a remedy of the family branch", "a remedy of the family branch", "Capture scalar outputs",
        ]  # fmt: skip
    if report.cost is not None and redacted.cost is not None:
        assert [each.compiled for each in redacted.cost.entries] == [each.compiled for each in report.cost.entries]
    if report.check is not None:
        assert [each.equal for each in redacted.check or []] == [each.equal for each in report.check]


def test_operations_of_the_reader_are_operations() -> None:
    report = build_report(read_trace(HERE / "recordings" / "2.13.0" / "branch.log"))
    graph = report.graphs[0]
    targets = ["torch.ops.mylib.secret.default", "torch.ops.aten.sin.default", "torch.relu", "mine"]
    ops = [msgspec.structs.replace(graph.ops[0], target=target) for target in targets]
    graphs = [msgspec.structs.replace(graph, ops=ops), *report.graphs[1:]]
    redacted = Report.of(msgspec.structs.replace(report, graphs=graphs)).redacted()
    assert [op.target for op in redacted.graphs[0].ops] == [
        "operation", "torch.ops.aten.sin.default", "torch.relu", "operation",
    ]  # fmt: skip
