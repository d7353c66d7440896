"""The content of each field of a report, for redaction. A field that is missing here is removed.

``test_redaction.py`` fails if a field of the schema has no entry.
"""

from __future__ import annotations

from typing import Literal

#: ``kept``: a number, a bool, or one of the words in the schema. ``parts``: further structures, each with its own
#: fields. ``removed``: anything that may contain the user's words. All others are redacted by their kind of content.
Content = Literal[
    "kept", "parts", "removed", "id", "function", "source name", "source path", "place path", "place cell", "op",
    "op name", "input name", "device", "dtype", "shape", "version", "schema version", "cause", "gb id", "url",
    "registry text", "registry texts", "step", "guard", "guards", "backend", "config", "settings", "exception",
    "family", "title", "reason of kind", "effect of kind", "aspects", "note", "held source",
]  # fmt: skip

_FIGURES: dict[str, str] = {
    "Timing": "wall_s compile_s capture_s cache_hits cache_misses",
    "Summary": "frames graphs ops breaks events resumes skipped recompiles errors",
    "Spread": "median_us low_us high_us runs processor_us",
    "DeviceWork": "launches graph_launches synchronisations peak_bytes",
    "Coverage": "compiled_ops eager_ops time_share",
    "BreakCost": "graphs compile_s eager",
}
_OTHERS: dict[str, dict[Content, str]] = {
    "Report": {
        "kept": "status",
        "parts": "device error timing summary sources frames graphs breaks resumes skipped scopes recompiles "
        "cudagraph_skips what_if diagnostics compiled remedies cost check held effects",
        "schema version": "schema_version",
        "version": "torch python",
        "config": "config",
        "id": "order",
        "removed": "changes",
    },
    "Device": {"device": "requested used", "removed": "name note"},
    "RunError": {"exception": "type", "removed": "message", "parts": "location", "id": "break_"},
    "Location": {"id": "source", "kept": "line end_line column end_column", "function": "function", "removed": "code"},
    "Source": {
        "id": "id",
        "source name": "name",
        "source path": "path",
        "kept": "kind",
        "removed": "segments functions",
    },
    "Segment": {"kept": "first_line", "removed": "text"},
    "FunctionName": {"kept": "line", "function": "name"},
    "Frame": {
        "id": "id resume caller graphs breaks recompile_of",
        "function": "function",
        "parts": "location",
        "kept": "role outcome attempts compile_s",
        "guards": "recompile_reasons",
    },
    "Graph": {
        "id": "id frame break_",
        "function": "name",
        "parts": "ops inputs lines",
        "removed": "code",
        "kept": "ends",
    },
    "GraphLine": {"id": "source", "kept": "line ops"},
    "Op": {"op name": "name", "op": "target", "parts": "location output"},
    "Tensor": {"input name": "name", "shape": "shape", "dtype": "dtype", "device": "device"},
    "TensorMeta": {"shape": "shape", "dtype": "dtype", "device": "device"},
    "Break": {
        "id": "id resumes skipped scope",
        "gb id": "gb_id",
        "cause": "gb_type",
        "parts": "location stack occurrences consequence advice setting cost",
        "kept": "outcome owner minor",
        "url": "url",
        "registry text": "explanation",
        "registry texts": "hints",
        "removed": "context also_reported_as",
    },
    "Effect": {"kept": "kind", "effect of kind": "what", "parts": "location"},
    "Reason": {"gb id": "gb_id", "cause": "gb_type"},
    "Setting": {"kept": "value rules", "id": "scope chain"},
    "Occurrence": {"id": "frame", "kept": "attempt outcome", "parts": "stack consequence setting"},
    "Advice": {"step": "text", "kept": "origin"},
    "Resume": {
        "id": "id break_ frames graphs",
        "function": "name function",
        "parts": "location",
        "kept": "no_frame",
    },
    "Skipped": {
        "id": "id frame break_ callees",
        "function": "function",
        "parts": "location setting",
        "reason of kind": "reason",
        "kept": "kind",
        "removed": "way_out",
    },
    "Scope": {"id": "id parent breaks", "kept": "setting value form", "parts": "location", "removed": "note"},
    "WhatIf": {"id": "error_on_graph_break fullgraph captured"},
    "GuardFailure": {"guard": "guard", "parts": "location"},
    "Recompile": {"id": "frame of", "function": "function", "parts": "location reasons", "kept": "limit_hit"},
    "CudagraphSkip": {"removed": "reason", "id": "graph", "parts": "location"},
    "HeldFunction": {"function": "function", "held source": "source", "kept": "line"},
    "CompiledCall": {"function": "name", "removed": "type code edit"},
    "Diagnostic": {"kept": "level", "note": "message"},
    "Edit": {"id": "source", "kept": "first_line last_line", "removed": "old new"},
    "Evidence": {
        "backend": "backend",
        "kept": "inputs both_sides graphs_before graphs_after breaks_before breaks_after",
        "aspects": "compared",
    },
    "Remedy": {
        "id": "id breaks frames excludes",
        "family": "family",
        "title": "title",
        "kept": "kind verdict seconds",
        "parts": "evidence",
        "settings": "settings",
        "removed": "edits code patch reason differences person",
    },
    "Cost": {"device": "device", "backend": "backend", "parts": "entries"},
    "EntryCost": {
        "function": "function",
        "id": "frame",
        "kept": "settled break_even_calls",
        "parts": "eager compiled remedied parts coverage in_run eager_device_work device_work",
    },
    "RemediedCost": {"id": "remedies", "parts": "time device_work"},
    "CostPart": {"kept": "kind", "parts": "time", "id": "graph break_ frame"},
    "Check": {
        "function": "function",
        "backend": "backend",
        "kept": "equal step",
        "removed": "differences",
        "parts": "first",
    },
    "Divergence": {"id": "graph", "parts": "location", "op": "op"},
    "Job": {"schema version": "schema_version", "parts": "processes breaks diagnostics"},
    "Process": {"id": "id", "kept": "rank pid", "removed": "command", "parts": "report"},
    "JobBreak": {
        "parts": "place",
        "gb id": "gb_id",
        "cause": "gb_type",
        "kept": "ranks missing_in",
        "id": "processes",
    },
    "JobPlace": {
        "place path": "path",
        "place cell": "cell",
        "kept": "line",
        "function": "function",
        "removed": "code",
    },
    "Changes": {"removed": "before after breaks same reused"},
}

#: The content of each field, by its class and its attribute.
CONTENTS: dict[tuple[str, str], Content] = {
    **{(kind, field): "kept" for kind, fields in _FIGURES.items() for field in fields.split()},
    **{
        (kind, field): content
        for kind, contents in _OTHERS.items()
        for content, fields in contents.items()
        for field in fields.split()
    },
}
