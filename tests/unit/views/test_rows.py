"""The rows of a report, which all views share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from jupyter_graphbreak.report.cost import Check
from jupyter_graphbreak.report.schema import MIME_TYPE, Diagnostic
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.views.html.bundle import mime_bundle, read_report
from jupyter_graphbreak.views.markdown import render_markdown
from jupyter_graphbreak.views.rows import sections
from jupyter_graphbreak.views.rows.schema import Row, Rows, Section
from jupyter_graphbreak.views.rows.sections import MAX_ROWS, build_rows
from tests.support.sample_reports import (
    FOLDER,
    SAVED_REPORTS,
    failed_run,
    hostile_report,
    no_breaks,
    remedies,
    two_breaks,
)
from tests.unit.views.test_widget import fill_in_stacks

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report import schema


def section(report: Report, ident: str) -> Section:
    (section_with_id,) = [section for section in build_rows(report).sections if section.id == ident]
    return section_with_id


def labels(report: Report, ident: str) -> list[str]:
    return [" · ".join([row.label, *row.details]) for row in section(report, ident).rows]


def test_sections_are_in_reading_order() -> None:
    assert [section.id for section in build_rows(two_breaks()).sections] == ["break", "graph", "skipped", "scope"]
    assert build_rows(no_breaks()).status == ["No breaks: one graph."]
    assert [build_rows(report).look for report in (two_breaks(), no_breaks())] == ["bad", "good"]


def test_the_status_contains_the_verdict_and_the_first_thing_to_do() -> None:
    """The report may be out of view, so the panel has to show the verdict."""
    assert build_rows(two_breaks()).status == [
        "2 breaks. Fix break 1 first: it adds 1 graph.",
        "Do: Make it branchless: `torch.where(score > 3, y / score, y)`, or use `torch.cond`.",
    ]
    verdict, advice = build_rows(failed_run()).status
    assert verdict == "Break 1 ended the run: `torch._dynamo.graph_break()`, line 5 in f."
    assert advice == "Do: Remove the `torch._dynamo.graph_break()` call."
    # Results of trials replace the advice.
    assert build_rows(remedies()).status == ["2 breaks. Switch statistics off: that removes both, as far as tested."]
    (break_, other) = two_breaks().breaks
    breaks = [msgspec.structs.replace(other, id=f"b{number}") for number in range(2, 5)]
    verdict, advice = build_rows(msgspec.structs.replace(two_breaks(), breaks=[break_, *breaks])).status
    assert verdict.startswith("4 breaks, 3 of them for one reason: `torch._dynamo.graph_break()`.")
    assert advice == "Do: Move the call out of the compiled region."


def test_the_row_of_a_break_has_location_consequence_and_advice() -> None:
    first, second = section(two_breaks(), "break").rows
    assert (first.id, first.name, first.sign, first.label) == ("b1", "Break 1", "1", "score > 3")
    assert first.details == ["line 14", "resumes at 15 (B)", "in step"]
    assert first.group == "Branch on a tensor's value (GB0170)"
    assert first.beside == "✂1 Branch on a tensor's value"
    assert first.more[1].startswith("Do: Make it branchless")
    assert first.spot is not None
    assert (first.spot.source, first.spot.line, first.spot.column) == ("s1", 14, 11)
    assert second.beside == "✂2 torch._dynamo.graph_break()"
    row = section(remedies(), "break").rows[0]
    assert row.more[1] == "Fix: Compute both branches with `torch.where` (works)", "a tested fix replaces the advice"


def test_rows_have_details_and_a_note_for_their_line() -> None:
    assert labels(two_breaks(), "graph")[0] == "step · line 11 · 4 ops · ends at break 1"
    assert labels(two_breaks(), "skipped") == ["log_stats · line 18 · graph break in a loop"]
    assert labels(two_breaks(), "scope")[1] == "error_on_graph_break(True) · line 8 · breaks are errors"
    assert {row.beside for row in section(two_breaks(), "skipped").rows} == {"runs eagerly"}


def test_the_rows_of_a_comparison_have_the_same_wording_as_the_text() -> None:
    after = two_breaks()
    before = msgspec.structs.replace(after, breaks=[*failed_run().breaks, *after.breaks[1:]])
    after = msgspec.structs.replace(after, changes=before.diff(after))
    changes = section(after, "change")
    assert changes.details == ["1 break gone, 1 new"]
    assert changes.details[0] in after.to_text()
    assert changes.rows[0].label.startswith("breaks 2")
    assert (changes.total, len(changes.rows)) == (2, 3)
    assert "Since the last run: 1 break gone, 1 new" in build_rows(after).status


def test_a_break_resumes_at_the_branch_that_ran() -> None:
    report = two_breaks()
    reached_resume, unreached_resume = (
        next(resume for resume in report.resumes if resume.location and resume.location.line == line)
        for line in (15, 16)
    )

    def text_after_break(*resumes: schema.Resume) -> str:
        breaks = [msgspec.structs.replace(break_, resumes=[r.id for r in resumes]) for break_ in report.breaks]
        changed_report = msgspec.structs.replace(report, resumes=list(resumes), breaks=breaks)
        return section(changed_report, "break").rows[0].details[1]

    assert (
        text_after_break(reached_resume, unreached_resume)
        == text_after_break(unreached_resume, reached_resume)
        == "resumes at 15 (B)"
    )
    eager_resume = msgspec.structs.replace(unreached_resume, no_frame="eager")
    cached_resume = msgspec.structs.replace(reached_resume, frames=[], no_frame=None)
    assert text_after_break(cached_resume, eager_resume).startswith("resumes at 16")


@pytest.mark.parametrize("name", SAVED_REPORTS)
def test_the_saved_rows_are_current(name: str) -> None:
    saved_rows = (FOLDER / "rows" / f"{name}.json").read_bytes()
    current_rows = build_rows(SAVED_REPORTS[name]())
    assert msgspec.json.decode(saved_rows, type=Rows) == current_rows, "run python tests/support/sample_reports.py"


@pytest.mark.parametrize("make_report", SAVED_REPORTS.values(), ids=SAVED_REPORTS)
def test_rows_are_the_same_after_json_and_every_id_is_used_once(make_report: Callable[[], Report]) -> None:
    rows = build_rows(make_report())
    assert msgspec.json.decode(msgspec.json.encode(rows), type=Rows) == rows
    assert len({section.id for section in rows.sections}) == len(rows.sections)
    for section in rows.sections:
        assert len({row.id for row in section.rows}) == len(section.rows)
        assert section.rows


def test_rows_are_saved_with_the_report_without_changing_it() -> None:
    data = json.loads(json.dumps(mime_bundle(two_breaks(), None)[MIME_TYPE]))
    assert msgspec.convert(data.pop("rows"), Rows) == build_rows(two_breaks())
    assert read_report({MIME_TYPE: data}).to_dict() == fill_in_stacks(two_breaks()).to_dict()
    assert data.keys() == json.loads(two_breaks().to_json()).keys()


def test_long_texts_and_lists_are_truncated() -> None:
    long_text = "x" * 1_000_000
    first = two_breaks().breaks[0]
    notes = [Diagnostic("info", long_text), *[Diagnostic("info", "x")] * (MAX_ROWS + 5)]
    breaks = [msgspec.structs.replace(first, gb_type=long_text, explanation=long_text)]
    report = msgspec.structs.replace(two_breaks(), breaks=breaks, diagnostics=notes)
    rows = [row for section in build_rows(report).sections for row in section.rows]
    assert all(len(row.label) < 2_000 and len(row.group) < 500 for row in rows)
    note_section = section(report, "note")
    assert len(note_section.rows) == MAX_ROWS < len(notes)
    assert len(note_section.rows[0].label) < 2_000
    assert len(msgspec.json.encode(build_rows(hostile_report()))) < len(hostile_report().to_json())


def test_a_section_in_sentences_is_in_every_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """An experiment needs only rows to appear in all views."""

    def weather(_: schema.Report) -> Section:
        return Section("weather", "Weather", [Row("0", "it rains in `step`", "bad")], 1)

    monkeypatch.setattr(sections, "_MEASUREMENTS", (weather,))
    monkeypatch.setattr(sections, "_SECTIONS", (weather,))
    report = two_breaks()
    assert "it rains in `step`" in report.to_text()
    assert "it rains in <code>step</code>" in report.to_html()
    assert "it rains in `step`" in render_markdown([report])
    assert mime_bundle(report, None)[MIME_TYPE]["rows"]["sections"][0]["title"] == "Weather"


def test_a_check_is_a_sentence_in_rows_and_text() -> None:
    report = msgspec.structs.replace(no_breaks(), check=[Check("step", "inductor", equal=True)])
    checks = section(report, "check")
    assert [(row.look, row.label) for row in checks.rows] == [
        ("good", "right: step compiled with inductor gives the same values and gradients as eager")
    ]
    assert checks.rows[0].label in report.to_text()
