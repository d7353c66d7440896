"""Make the tables of the page on models from the recording of ``benchmarks/architectures.py``."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[1] / "benchmarks" / "architectures.jsonl"
_WORKING = ("works", "works on what ran", "works but differs")
_LONGEST = 60


@cache
def _recorded() -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the versions of the run, and the record of each architecture."""
    versions, *lines = map(json.loads, _FILE.read_text(encoding="utf-8").splitlines())
    return versions, lines


def _ran(*, training: bool = False) -> list[dict[str, Any]]:
    return [line for line in _recorded()[1] if "error" not in line and line["training"] is training]


def _breaking(*, training: bool = False) -> list[dict[str, Any]]:
    return [line for line in _ran(training=training) if line["breaks"]]


def summary() -> str:
    """Return the figures of the run in sentences, in Markdown."""
    versions, lines = _recorded()
    forward = [line for line in lines if not line["training"]]
    runs, breaking = _ran(), _breaking()
    breaks = [break_ for line in breaking for break_ in line["breaks"]]
    causes = {_cause(break_) for break_ in breaks}
    tried = [line for line in breaking if "left" in line]
    free = sum(line["left"] == 0 for line in tried)
    holding_claims = sum(line["check"] == "holds" for line in tried)
    claims = sum(line["check"] != "nothing to run" for line in tried)
    left_count = sum(line["left"] for line in tried)
    return (
        f"Recorded on {versions['date']} with torch {versions['torch']} and transformers {versions['transformers']}: "
        f"of {len(forward)} architectures {len(runs)} ran, and **{len(breaking)} break**: {len(breaks)} breaks with "
        f"{len(causes)} causes. With the proposed remedies, **{free} of the {len(tried)} have no break left**, and the "
        f"others have {left_count}. A different program checked {claims} of these results in a separate process: "
        f"{holding_claims} held."
    )


def architectures(*, training: bool = False) -> str:
    """Return a table of the architectures that break, with their causes, the best remedy and the breaks it leaves."""
    rows = ["| architecture | breaks | why | remedy | left |", "| --- | --- | --- | --- | --- |"]
    for line in sorted(_breaking(training=training), key=lambda line: (line.get("left", 99), line["type"])):
        counts: dict[str, int] = defaultdict(int)
        for break_ in line["breaks"]:
            counts[break_["gb_id"] or break_["gb_type"]] += 1
        cause_names = ", ".join(name if count == 1 else f"{name} ({count})" for name, count in sorted(counts.items()))
        decision = "you have to decide" if "left" in line else ""
        remedy = _in_cell(line.get("remedy") or decision)
        verdict = f" *({line['furthest']})*" if line.get("furthest") not in {None, "works"} else ""
        left = line.get("left", "not tried")
        rows.append(f"| {line['type']} | {len(line['breaks'])} | {cause_names} | {remedy}{verdict} | {left} |")
    return "\n".join(rows)


def causes() -> str:
    """Return a table of the causes: their architectures, breaks and lines, and how many breaks a remedy fixes."""
    by_cause: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for line in _breaking():
        for break_ in line["breaks"]:
            by_cause[_cause(break_)].append((line["type"], break_))
    rows = [
        "| cause | architectures | breaks | lines | tried | fixed | most often by |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (gb_id, gb_type), breaks in sorted(by_cause.items(), key=lambda item: (-len(item[1]), item[0])):
        fixed = [break_ for _, break_ in breaks if break_.get("verdict") in _WORKING]
        titles = [break_["remedy"] for break_ in fixed if break_.get("remedy")]
        most_common_title = max(sorted(set(titles)), key=titles.count, default="")
        tried = sum(break_.get("verdict") is not None for _, break_ in breaks)
        lines = {(break_["file"], break_["line"]) for _, break_ in breaks}
        models = len({model for model, _ in breaks})
        rows.append(
            f"| {gb_type} ({gb_id}) | {models} | {len(breaks)} | {_counted(len(lines), 'line')} | {tried} "
            f"| {len(fixed)} | {_in_cell(most_common_title)} |"
        )
    return "\n".join(rows)


def breaking_lines() -> str:
    """Return a table of every line that breaks, by file, with the architectures that run it."""
    by_line: dict[tuple[str, int, str, str], list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for line in _breaking():
        for break_ in line["breaks"]:
            key = (break_["file"] or "", break_["line"] or 0, break_["gb_id"] or break_["gb_type"], break_["code"])
            by_line[key].append((line["type"], break_))
    rows = ["| line | code | why | architectures | fixed of those tried |", "| --- | --- | --- | --- | --- |"]
    for (file, line_number, gb_id, code), breaks in sorted(by_line.items()):
        tried = [break_ for _, break_ in breaks if break_.get("verdict") is not None]
        fixed = sum(break_["verdict"] in _WORKING for break_ in tried)
        models = ", ".join(sorted({model for model, _ in breaks}))
        rows.append(f"| {file}:{line_number} | {_code(code)} | {gb_id} | {models} | {fixed} of {len(tried)} |")
    return "\n".join(rows)


def not_run() -> str:
    """Return a table of the architectures that did not run, with the error."""
    rows = ["| architecture | error |", "| --- | --- |"]
    rows += [
        f"| {line['type']} | {_code(line['error'])} |"
        for line in _recorded()[1]
        if "error" in line and not line["training"]
    ]
    return "\n".join(rows)


def unbroken() -> str:
    """Return the names of the architectures that ran without a break."""
    return ", ".join(line["type"] for line in _ran() if not line["breaks"])


def _cause(break_: dict[str, Any]) -> tuple[str, str]:
    return break_["gb_id"] or "", break_["gb_type"]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _code(text: str) -> str:
    """Return text as code in one cell of a table."""
    plain = " ".join(text.split())
    shortened = plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 3].rstrip()}..."
    return f"``{shortened.replace('|', chr(92) + '|').replace('`', chr(39))}``" if shortened else ""


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")
