"""Render reports as SARIF 2.1.0, which GitHub shows as line annotations."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.advice import advice_for_break
from jupyter_graphbreak.views.words.aftermath import aftermath
from jupyter_graphbreak.views.words.bounds import shown_part
from jupyter_graphbreak.views.words.locations import location_text
from jupyter_graphbreak.views.words.plain_text import escape_controls, is_known_page, one_line
from jupyter_graphbreak.views.words.remedies import outcome_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.remedies import Edit, Remedy
    from jupyter_graphbreak.report.schema import Break, Report

_SCHEMA_PAGE = "https://json.schemastore.org/sarif-2.1.0.json"
_PROJECT_PAGE = "https://pypi.org/project/jupyter-graphbreak/"

#: The maximum number of fixes per break.
_MAX_FIXES = 20
#: The maximum number of characters in a fix. Longer fixes are left out.
_MAX_FIX_LENGTH = 200_000
#: The maximum number of characters in all fixes together.
_MAX_TOTAL_FIX_LENGTH = 4_000_000


def render_sarif(
    reports: Sequence[Report],
    version: str,
    new_break_ids: Sequence[AbstractSet[str]] | None = None,
    notebook: str | None = None,
) -> str:
    """Return reports as a SARIF log with one run.

    ``new_break_ids`` contains, for each report, the ids of the breaks that a gate does not allow; ``None`` if there is
    no gate. ``notebook`` is the path of the notebook whose cells the reports are about.
    """
    rules: dict[str, dict[str, Any]] = {}
    results: dict[str, dict[str, Any]] = {}
    characters_left = [_MAX_TOTAL_FIX_LENGTH]
    for index, report in enumerate(map(shown_part, reports)):
        for break_ in report.breaks:
            rules.setdefault(_rule_id(break_), _rule_of(break_))
            result = _result_of(report, break_, notebook, characters_left)
            if new_break_ids is not None:
                is_new = break_.id in new_break_ids[index]
                result["level"] = "error" if is_new else "note"
                result["baselineState"] = "new" if is_new else "unchanged"
            first_result = results.setdefault(
                result["partialFingerprints"]["graphbreak/v1"] + _location_key(result), result
            )
            if result.get("baselineState") == "new":
                first_result.update(level="error", baselineState="new")
    rule_indexes = {name: index for index, name in enumerate(rules)}
    for result in results.values():
        result["ruleIndex"] = rule_indexes[result["ruleId"]]
    driver = {"name": "graphbreak", "version": version, "informationUri": _PROJECT_PAGE, "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": list(results.values())}
    return json.dumps({"$schema": _SCHEMA_PAGE, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule_id(break_: Break) -> str:
    return break_.gb_id or re.sub(r"\W+", "-", break_.gb_type).strip("-").lower()[:80] or "break"


def _rule_of(break_: Break) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": _rule_id(break_),
        "name": "GraphBreak",
        "shortDescription": {"text": one_line(break_.gb_type)},
    }
    if is_known_page(break_.url):
        rule["helpUri"] = break_.url
    return rule


def _result_of(report: Report, break_: Break, notebook: str | None, characters_left: list[int]) -> dict[str, Any]:
    """Return a break as a SARIF result.

    The only item of ``characters_left``, the number of characters of fixes that may still be added, is updated.
    """
    sources = lookup.sources(report)
    annotated_location = _location_to_annotate(break_, sources)
    sentences = [
        f"Graph break: {break_.gb_type}",
        *aftermath(report, break_),
        *(advice.text for advice in advice_for_break(report, break_)[:1]),
    ]
    if annotated_location is not break_.location:
        sentences.insert(1, f"at {location_text(report, break_.location)}")
    text = ". ".join(one_line(sentence).rstrip(".") for sentence in sentences) + "."
    annotated_source = sources.get(annotated_location.source) if annotated_location is not None else None
    path = annotated_source.path if annotated_source is not None else None
    fingerprint = repr(
        (annotated_location and (path, annotated_location.function, annotated_location.code), break_.gb_type)
    )
    result: dict[str, Any] = {
        "ruleId": _rule_id(break_),
        "level": "error" if break_.outcome == "error" else "warning",
        "message": {"text": text},
        "partialFingerprints": {"graphbreak/v1": hashlib.sha256(fingerprint.encode()).hexdigest()[:32]},
    }
    fixes = []
    for remedy in lookup.remedies_by_break(report).get(break_.id, ())[:_MAX_FIXES]:
        length = sum(len(edit.old) + len(edit.new) for edit in remedy.edits)
        if length <= min(characters_left[0], _MAX_FIX_LENGTH) and _is_fix(remedy, sources):
            characters_left[0] -= length
            fixes.append(_fix_of(remedy, sources))
    if fixes:
        result["fixes"] = fixes
    if annotated_location is not None:
        result["locations"] = [_location_of(annotated_location, sources, notebook)]
    if break_.location is not None and annotated_location is not break_.location:
        result["relatedLocations"] = [{"id": 1, **_location_of(break_.location, sources, notebook)}]
    return result


def _is_fix(remedy: Remedy, sources: dict[str, Source]) -> bool:
    """Return whether a remedy works and edits only files. Lines of a cell have different numbers in the notebook."""
    edited_sources = [sources.get(edit.source) for edit in remedy.edits]
    edits_only_files = bool(edited_sources) and all(
        source is not None and source.kind != "cell" and source.path for source in edited_sources
    )
    return remedy.verdict in WORKING and edits_only_files


def _fix_of(remedy: Remedy, sources: dict[str, Source]) -> dict[str, Any]:
    changes: dict[str, list[dict[str, Any]]] = {}
    for edit in remedy.edits:
        changes.setdefault(sources[edit.source].path or "", []).append(_replacement_of(edit))
    return {
        "description": {"text": f"{one_line(remedy.title)}: {one_line(outcome_text(remedy))}"},
        "artifactChanges": [
            {"artifactLocation": _artifact_location(path), "replacements": replacements}
            for path, replacements in changes.items()
        ],
    }


def _replacement_of(edit: Edit) -> dict[str, Any]:
    region = {"startLine": edit.first_line, "startColumn": 1, "endLine": edit.last_line + 1, "endColumn": 1}
    if edit.new and edit.last_line >= edit.first_line:  # do not replace the last line break: the file may have none
        region |= {"endLine": edit.last_line, "endColumn": len(edit.old.rpartition("\n")[2]) + 1}
        return {"deletedRegion": region, "insertedContent": {"text": edit.new}}
    return {"deletedRegion": region, "insertedContent": {"text": f"{edit.new}\n" if edit.new else ""}}


def _location_to_annotate(break_: Break, sources: dict[str, Source]) -> Location | None:
    """Return the innermost location in the reader's own code that leads to a break; if there is none, the break's."""
    stack = [*break_.stack, *([break_.location] if break_.location is not None else [])]
    own_locations = [call for call in stack if call.source in sources and sources[call.source].kind != "library"]
    return own_locations[-1] if own_locations else break_.location


def _location_of(location: Location, sources: dict[str, Source], notebook: str | None) -> dict[str, Any]:
    source = sources.get(location.source)
    region: dict[str, Any] = {"startLine": max(location.line, 1), "endLine": max(location.end_line, location.line, 1)}
    if location.column is not None and location.end_column is not None:
        region |= {"startColumn": location.column + 1, "endColumn": location.end_column + 1}
    if location.code:
        region["snippet"] = {"text": escape_controls(location.code.replace("\n", " "))}
    path = source.path if source is not None else None
    physical: dict[str, Any] = {"artifactLocation": _artifact_location(path or notebook or "notebook.ipynb")}
    sarif_location: dict[str, Any] = {"physicalLocation": physical}
    if path is not None:
        physical["region"] = region
    else:  # lines of a cell have different numbers in the notebook file
        physical["region"] = {"startLine": 1}
        sarif_location["message"] = {"text": f"{source.name if source is not None else 'a cell'}, line {location.line}"}
    if location.function:
        sarif_location["logicalLocations"] = [{"name": one_line(location.function), "kind": "function"}]
    return sarif_location


def _artifact_location(path: str) -> dict[str, str]:
    path = path.replace("\\", "/")
    if path.startswith("/"):
        return {"uri": "file://" + quote(path)}
    if re.match(r"[A-Za-z]:/", path):
        return {"uri": "file:///" + quote(path, safe="/:")}
    return {"uri": quote(path), "uriBaseId": "%SRCROOT%"}


def _location_key(result: dict[str, Any]) -> str:
    locations = result.get("locations") or [{}]
    return repr(locations[0].get("physicalLocation", {}).get("region")) + repr(locations[0].get("message"))
