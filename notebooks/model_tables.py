"""Make the tables of the page on models from the recording of ``benchmarks/architectures.py``."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[1] / "benchmarks" / "architectures.jsonl"
_WORKING_VERDICTS = ("works", "works on what ran", "works but differs")
_MAX_LENGTH = 60


@cache
def _recording() -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the versions of the run, and the record of each architecture."""
    versions, *lines = map(json.loads, _FILE.read_text(encoding="utf-8").splitlines())
    return versions, lines


def _lines_that_ran(*, training: bool = False) -> list[dict[str, Any]]:
    return [line for line in _recording()[1] if "error" not in line and line["training"] is training]


def _breaking_models(*, training: bool = False) -> list[dict[str, Any]]:
    return [line for line in _lines_that_ran(training=training) if line["breaks"]]


def summary() -> str:
    """Return the figures of the run in sentences, in Markdown."""
    versions, lines = _recording()
    forward_lines = [line for line in lines if not line["training"]]
    runs, breaking_models = _lines_that_ran(), _breaking_models()
    breaks = [break_ for line in breaking_models for break_ in line["breaks"]]
    causes = {_cause(break_) for break_ in breaks}
    tried_models = [line for line in breaking_models if "left" in line]
    free_count = sum(line["left"] == 0 for line in tried_models)
    holding_count = sum(line["check"] == "holds" for line in tried_models)
    claim_count = sum(line["check"] != "nothing to run" for line in tried_models)
    left_count = sum(line["left"] for line in tried_models)
    return (
        f"Recorded on {versions['date']} with torch {versions['torch']} and transformers {versions['transformers']}: "
        f"of {len(forward_lines)} architectures {len(runs)} ran, and **{len(breaking_models)} break**: "
        f"{len(breaks)} breaks with {len(causes)} causes. With the proposed remedies, "
        f"**{free_count} of the {len(tried_models)} have no break left**, and the others have {left_count}. "
        f"A different program checked {claim_count} of these results in a separate process: {holding_count} held."
    )


def architectures(*, training: bool = False) -> str:
    """Return a table of the architectures that break, with their causes, the best remedy and the breaks it leaves."""
    rows = ["| architecture | breaks | why | remedy | left |", "| --- | --- | --- | --- | --- |"]
    for line in sorted(_breaking_models(training=training), key=lambda line: (line.get("left", 99), line["type"])):
        counts: dict[str, int] = defaultdict(int)
        for break_ in line["breaks"]:
            counts[break_["gb_id"] or break_["gb_type"]] += 1
        cause_names = ", ".join(name if count == 1 else f"{name} ({count})" for name, count in sorted(counts.items()))
        decision = "you have to decide" if "left" in line else ""
        remedy = _escape_cell(line.get("remedy") or decision)
        verdict = f" *({line['furthest']})*" if line.get("furthest") not in {None, "works"} else ""
        left = line.get("left", "not tried")
        rows.append(f"| {line['type']} | {len(line['breaks'])} | {cause_names} | {remedy}{verdict} | {left} |")
    return "\n".join(rows)


def causes() -> str:
    """Return a table of the causes: their architectures, breaks and lines, and how many breaks a remedy fixes."""
    by_cause: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for line in _breaking_models():
        for break_ in line["breaks"]:
            by_cause[_cause(break_)].append((line["type"], break_))
    rows = [
        "| cause | architectures | breaks | lines | tried | fixed | most often by |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (gb_id, gb_type), breaks in sorted(by_cause.items(), key=lambda item: (-len(item[1]), item[0])):
        fixed_breaks = [break_ for _, break_ in breaks if break_.get("verdict") in _WORKING_VERDICTS]
        titles = [break_["remedy"] for break_ in fixed_breaks if break_.get("remedy")]
        most_common_title = max(sorted(set(titles)), key=titles.count, default="")
        tried_count = sum(break_.get("verdict") is not None for _, break_ in breaks)
        lines = {(break_["file"], break_["line"]) for _, break_ in breaks}
        model_count = len({model for model, _ in breaks})
        rows.append(
            f"| {gb_type} ({gb_id}) | {model_count} | {len(breaks)} | {_count_noun(len(lines), 'line')} "
            f"| {tried_count} | {len(fixed_breaks)} | {_escape_cell(most_common_title)} |"
        )
    return "\n".join(rows)


def breaking_lines() -> str:
    """Return a table of every line that breaks, by file, with the architectures that run it."""
    by_line: dict[tuple[str, int, str, str], list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for line in _breaking_models():
        for break_ in line["breaks"]:
            key = (break_["file"] or "", break_["line"] or 0, break_["gb_id"] or break_["gb_type"], break_["code"])
            by_line[key].append((line["type"], break_))
    rows = ["| line | code | why | architectures | fixed of those tried |", "| --- | --- | --- | --- | --- |"]
    for (file, line_number, gb_id, code), breaks in sorted(by_line.items()):
        tried_breaks = [break_ for _, break_ in breaks if break_.get("verdict") is not None]
        fixed_count = sum(break_["verdict"] in _WORKING_VERDICTS for break_ in tried_breaks)
        models = ", ".join(sorted({model for model, _ in breaks}))
        rows.append(
            f"| {file}:{line_number} | {_code(code)} | {gb_id} | {models} | {fixed_count} of {len(tried_breaks)} |"
        )
    return "\n".join(rows)


def models_not_run() -> str:
    """Return a table of the architectures that did not run, with the error."""
    rows = ["| architecture | error |", "| --- | --- |"]
    rows += [
        f"| {line['type']} | {_code(line['error'])} |"
        for line in _recording()[1]
        if "error" in line and not line["training"]
    ]
    return "\n".join(rows)


def unbroken_models() -> str:
    """Return the names of the architectures that ran without a break."""
    return ", ".join(line["type"] for line in _lines_that_ran() if not line["breaks"])


def _cause(break_: dict[str, Any]) -> tuple[str, str]:
    return break_["gb_id"] or "", break_["gb_type"]


def _count_noun(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _code(text: str) -> str:
    """Return text as code in one cell of a table."""
    one_line = " ".join(text.split())
    short_text = one_line if len(one_line) <= _MAX_LENGTH else f"{one_line[: _MAX_LENGTH - 3].rstrip()}..."
    return f"``{short_text.replace('|', chr(92) + '|').replace('`', chr(39))}``" if short_text else ""


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")
