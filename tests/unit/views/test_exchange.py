"""Remedies in the exchange formats Markdown and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
from msgspec.structs import replace

from jupyter_graphbreak.report.remedies import Edit
from jupyter_graphbreak.views.markdown import render_markdown
from jupyter_graphbreak.views.sarif import render_sarif
from tests.support.sample_reports import hostile_report, remedies

SCHEMA = json.loads((Path(__file__).parents[2] / "cli" / "sarif-reduced.schema.json").read_text())


def test_markdown_folds_working_changes() -> None:
    text = render_markdown([remedies()])
    assert "<details><summary>break 1: Compute both branches with &#96;torch.where&#96;: works: values, " in text
    assert "\n```diff\nlines 14 to 15\n-        if score > 3:\n" in text
    assert "\n```python\nmodel.config.log_stats = False\n```" in text
    assert "- &#96;mean&#96; and &#96;std&#96; are printed when the call ends" in text
    assert "<img" not in render_markdown([hostile_report()]).replace("```", "").split("</summary>")[0]


def test_markdown_numbers_breaks_as_other_views_do() -> None:
    report = remedies()
    report = replace(report, order=[break_.id for break_ in reversed(report.breaks)])
    rows = [line for line in render_markdown([report]).splitlines() if line.startswith("| ")][1:]
    last = report.breaks[-1].location
    assert last is not None
    assert rows[0].startswith("| 1 |")
    assert str(last.line) in rows[0].split("|")[2]


def test_sarif_has_fixes_for_files_only() -> None:
    sarif = json.loads(render_sarif([remedies(), hostile_report()], "0"))
    jsonschema.validate(sarif, SCHEMA)
    results = sarif["runs"][0]["results"]
    assert ["fixes" in result for result in results[:2]] == [True, False]
    (fix,) = results[0]["fixes"]
    assert fix["description"]["text"].startswith("Keep the mean a tensor: works: values equal on 1 input")
    (change,) = fix["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "file:///job/helpers.py"
    old = "    return x - x.mean().item()"
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 2, "startColumn": 1, "endLine": 2, "endColumn": len(old) + 1},
            "insertedContent": {"text": "    return x - x.mean()"},
        }
    ]


def test_sarif_inserts_and_deletes_whole_lines() -> None:
    report = remedies()
    edits = [Edit("s2", 1, 0, "", "import torch"), Edit("s2", 2, 2, "    return x", "")]
    changed_remedies = [
        replace(remedy, edits=edits) if remedy.id == "m11" else remedy for remedy in report.remedies or []
    ]
    results = json.loads(render_sarif([replace(report, remedies=changed_remedies)], "0"))["runs"][0]["results"]
    assert results[0]["fixes"][0]["artifactChanges"][0]["replacements"] == [
        {
            "deletedRegion": {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1},
            "insertedContent": {"text": "import torch\n"},
        },
        {
            "deletedRegion": {"startLine": 2, "startColumn": 1, "endLine": 3, "endColumn": 1},
            "insertedContent": {"text": ""},
        },
    ]
