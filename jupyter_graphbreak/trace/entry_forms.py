"""The form of the entries that a report is made from: an entry of another form is counted and left out."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from jupyter_graphbreak.recording.additions import read_addition
from jupyter_graphbreak.recording.records import Record, encodable

_Number = Annotated[int, msgspec.Meta(ge=-1, le=1 << 53)]
_Line = Annotated[int, msgspec.Meta(ge=-1, le=10**9)]
_Name = Annotated[str, msgspec.Meta(max_length=4096)]
_Text = Annotated[str, msgspec.Meta(max_length=1 << 20)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Context(msgspec.Struct):
    """What an envelope says beside its entry."""

    frame_id: _Number | None = None
    frame_compile_id: _Number | None = None
    compiled_autograd_id: _Number | None = None
    attempt: _Number | None = None
    rank: _Number | None = None


class _Frame(msgspec.Struct):
    filename: _Number
    line: _Line
    name: _Name
    loc: _Text | None = None


class _Start(msgspec.Struct):
    stack: Annotated[list[_Frame], msgspec.Meta(max_length=10_000)]


class _Metrics(msgspec.Struct):
    compile_id: _Name | None = None
    co_name: _Name | None = None
    co_filename: _Name | None = None
    co_firstlineno: _Line | None = None
    entire_frame_compile_time_s: _Seconds | None = None
    backend_compile_time_s: _Seconds | None = None
    fail_type: _Name | None = None
    fail_reason: _Text | None = None
    fail_user_frame_filename: _Name | None = None
    fail_user_frame_lineno: _Line | None = None
    graph_op_count: _Number | None = None
    restart_reasons: list[_Text] | None = None
    recompile_reason: _Text | None = None
    cudagraph_skip_reason: _Text | None = None
    pytorch_version: _Name | None = None
    python_version: _Name | None = None
    dynamo_config: _Text | None = None


_FORMS: dict[str, Any] = {
    "str": tuple[_Name, _Number],
    "dynamo_start": _Start,
    "dynamo_output_graph": dict[str, Any] | None,
    "compilation_metrics": _Metrics,
    "bwd_compilation_metrics": _Metrics,
}
_ARTIFACT = dict[str, Any]


def checked(record: Record) -> Record | None:
    """Return an entry as it can be held and written again, ``None`` if it has another form than it should."""
    data, kind = record.data, record.kind
    try:
        msgspec.convert(record.envelope, _Context)
        if kind.startswith("graphbreak_"):
            read_addition(record)
        elif kind.startswith("artifact:"):
            msgspec.convert(data, _ARTIFACT)
        else:
            msgspec.convert(data, _FORMS[kind])
        return encodable(record)
    except (msgspec.ValidationError, RecursionError, KeyError):
        return None
