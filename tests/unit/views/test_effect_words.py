"""The sentence about functions that were not run again because of side effects, also in redacted reports."""

from __future__ import annotations

from msgspec.structs import replace

from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.schema import Effect, Report
from jupyter_graphbreak.results import Report as ReportWithViews
from jupyter_graphbreak.views.words.effects import not_run_again_sentence
from tests.support.sample_reports import two_breaks


def report_with_effects(*effects: Effect) -> Report:
    return replace(two_breaks(), effects=list(effects))


def file_effect() -> Effect:
    source = two_breaks().sources[0]
    return Effect("file", "writes to the file /home/u/secret.csv", Location(source.id, 11, 11, function="step"))


def test_one_sentence_names_the_function_that_was_not_run_again_and_why() -> None:
    assert not_run_again_sentence(report_with_effects(file_effect())) == (
        "Nothing was run again, because that would repeat side effects: "
        "line 11 in step writes to the file /home/u/secret.csv."
    )
    many_effects = [replace(file_effect(), what=f"deletes the file {number}") for number in range(6)]
    assert not_run_again_sentence(report_with_effects(*many_effects)).endswith(
        "deletes the file 3; and 2 other effects."
    )
    assert not_run_again_sentence(two_breaks()) == ""


def test_text_html_and_json_contain_the_sentence() -> None:
    report = ReportWithViews.of(report_with_effects(file_effect()))
    assert "Nothing was run again" in report.to_text()
    assert "Nothing was run again" in report.to_html()
    assert Report.from_json(report.to_json()).effects == [file_effect()]


def test_a_redacted_report_keeps_only_the_kind_and_the_line() -> None:
    redacted = ReportWithViews.of(report_with_effects(file_effect())).redacted()
    assert redacted.effects is not None
    [effect] = redacted.effects
    assert (effect.kind, effect.what) == ("file", "uses a file")
    assert effect.location is not None
    assert effect.location.line == 11
    assert "secret" not in redacted.to_json().decode()
