"""Untrusted notebooks: an invalid report causes one sentence, and only the notebook that was checked is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import nbclient
import pytest

from jupyter_graphbreak.api.saved import read_notebook
from jupyter_graphbreak.notebook_files import UnreadableNotebook, execute, parse_notebook, reports_in
from jupyter_graphbreak.report.schema import MIME_TYPE
from tests.support.sample_reports import two_breaks

if TYPE_CHECKING:
    from pathlib import Path


def notebook_with(*reports: Any) -> dict[str, Any]:
    outputs = [{"output_type": "display_data", "metadata": {}, "data": {MIME_TYPE: report}} for report in reports]
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": "1", "outputs": outputs}
    return {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [cell]}


def nested_list(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "invalid_report",
    [
        5, [], None, {"status": "ok"},
        two_breaks().to_dict() | {"status": "?"},
        two_breaks().to_dict() | {"schema_version": "9.0"},
        two_breaks().to_dict() | {"device": {"requested": "\ud800", "used": "cpu"}},
        two_breaks().to_dict() | {"config": nested_list(900)},
        two_breaks().to_dict() | {"breaks": [None]},
    ],
    ids=str,
)  # fmt: skip
def test_an_invalid_report_causes_one_sentence(tmp_path: Path, invalid_report: Any) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(notebook_with(two_breaks().to_dict(), invalid_report)))
    with pytest.warns(UserWarning, match="the report in cell 1 cannot be read"):
        (report,) = read_notebook(path)
    assert len(report.breaks) == 2
    path.write_text(json.dumps(notebook_with(invalid_report)))
    with pytest.raises(UnreadableNotebook, match="cannot be read"):
        read_notebook(path)


def test_a_report_with_a_number_that_json_lacks_can_be_saved_again(tmp_path: Path) -> None:
    fields = two_breaks().to_dict()
    fields["timing"]["wall_s"] = float("nan")
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook_with(fields)))
    (report,) = read_notebook(tmp_path / "a.ipynb")
    assert report.timing.wall_s is None
    assert type(report).from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (json.dumps(notebook_with()).replace('"nbformat": 4', f'"nbformat": "{"x" * 9_000}"'), "convert it"),
        (json.dumps(notebook_with())[:-1] + ', "a": [' + "{}," * 4_100_000 + "{}]}", "too large"),
    ],
    ids=["format", "size"],
)
def test_the_message_about_an_unreadable_notebook_is_short(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(content)
    with pytest.raises(UnreadableNotebook, match=reason) as caught:
        parse_notebook(path)
    assert len(str(caught.value)) < len(str(path)) + 200


def test_braces_inside_strings_are_not_counted(tmp_path: Path) -> None:
    notebook = notebook_with() | {"metadata": {"text": '"{},' * 4_100_000}}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    assert parse_notebook(tmp_path / "a.ipynb") == notebook


def test_only_the_first_of_too_many_reports_are_read() -> None:
    reading = reports_in(notebook_with(*[two_breaks().to_dict()] * 3), max_reports=2)
    assert len(reading.reports) == 2
    assert reading.problems == ["only the first 2 reports were read"]


def test_the_notebook_that_runs_is_the_one_that_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(notebook_with()))
    other = notebook_with()
    other["cells"][0]["source"] = "2"

    def read_and_replace(path: Path) -> dict[str, Any]:
        content = parse_notebook(path)
        path.write_text(json.dumps(other))
        return content

    class KernelRequested(Exception):  # noqa: N818 - it signals no error
        pass

    class Client:
        def __init__(self, notebook: Any, **_: Any) -> None:
            self.source = notebook.cells[0].source

        def setup_kernel(self) -> Any:
            raise KernelRequested(self.source)

    monkeypatch.setattr("jupyter_graphbreak.notebook_files.parse_notebook", read_and_replace)
    monkeypatch.setattr(nbclient, "NotebookClient", Client)
    with pytest.raises(KernelRequested, match=r"^1$"):
        execute(path)


def test_metadata_that_no_kernel_can_use_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "hostile.ipynb"
    path.write_text(json.dumps({**notebook_with(), "metadata": {"kernelspec": [1]}}))
    with pytest.raises(UnreadableNotebook, match=r"cannot be run: \[1\] is not of type 'object'"):
        execute(path)
