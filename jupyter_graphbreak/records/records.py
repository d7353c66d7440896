"""Records of PyTorch's structured trace, as they were written, and functions that parse parts of them.

A record is one item of the trace that ``TORCH_TRACE`` writes to disk and that the logger ``torch.__trace`` passes to
handlers: a JSON envelope and, for some kinds, a text payload. :mod:`jupyter_graphbreak.recording.recorder` adds the
events that the trace lacks as further records with the same envelope and names that begin with ``graphbreak_``
(:mod:`jupyter_graphbreak.records.additions`). The envelope is documented in ``torch/_logging/_internal.py``
(``trace_structured``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from jupyter_graphbreak.records.package_paths import PackagePaths

_TRACE_ENTRY = re.compile(r'^[ \t]*File "(.{1,4096})", line (\d{1,9}), in (.{1,4096})$', re.MULTILINE)
_RESUME_NAME = re.compile(r"^torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d{1,9})$")

#: The records of PyTorch's trace that a report needs.
NEEDED_RECORDS = frozenset(
    {
        "artifact:aotautograd_cache_bypass",
        "artifact:aotautograd_cache_hit",
        "artifact:aotautograd_cache_miss",
        "artifact:dynamo_error",
        "artifact:dynamo_graph_break_reason",
        "artifact:fx_graph_cache_bypass",
        "artifact:fx_graph_cache_hit",
        "artifact:fx_graph_cache_miss",
        "artifact:recompile_reasons",
        "bwd_compilation_metrics",
        "compilation_metrics",
        "dynamo_output_graph",
        "dynamo_start",
        "symbolic_shape_specialization",
    }
)
#: The metrics of a compilation that a report needs; the many other settings and counters are left out.
_METRIC_FIELDS = ("compile_id", "co_name", "co_filename", "co_firstlineno", "entire_frame_compile_time_s", "fail_type",
            "fail_reason", "fail_user_frame_filename", "fail_user_frame_lineno", "graph_op_count",
            "restart_reasons", "recompile_reason", "backend_compile_time_s",
            "cudagraph_skip_reason")  # fmt: skip

#: The fields that a report needs about a size that PyTorch turns into a constant: the names of the size in guards, and
#: the stack at the line that requires the constant.
_SPECIALIZATION_FIELDS = ("sources", "user_stack")
#: The field with the seconds that compiling a frame takes.
_FRAME_SECONDS = "entire_frame_compile_time_s"
#: The reason that invalidates code compiled in a trial; it is not a reason for a recompile of the program.
TRIAL_ENDED_REASON = "jupyter_graphbreak compiled this for a trial, which has ended"
#: Upper bounds beyond what PyTorch writes: its reasons for a recompile are shorter, and its default limit allows fewer
#: compilations.
_MAX_REASON_LENGTH, _MAX_REASONS = 4000, 100
#: An upper bound for the times in a log, in seconds.
_MAX_TIME_S = 1e11

#: Keys of the envelope that describe the origin of a record, not its content.
_CONTEXT_KEYS = frozenset(
    {
        "attempt",
        "compiled_autograd_id",
        "frame_compile_id",
        "frame_id",
        "has_payload",
        "pathname",
        "lineno",
        "process",
        "rank",
        "severity",
        "stack",
        "subgraph_name",
        "thread",
        "timestamp",
    }
)


class CompileKey(msgspec.Struct, frozen=True, order=True):
    """The compile id of a record, split into its numbers."""

    #: The id of the compiled-autograd graph, if there is one.
    autograd: int | None
    #: The frame id, which identifies the code object.
    frame: int
    #: The compile id within the frame: 0 for the first compilation, then one more for each recompile.
    compile: int

    def __str__(self) -> str:
        prefix = "" if self.autograd is None else f"!{self.autograd}/"
        return f"{prefix}{self.frame}/{self.compile}"


class ExpressionSpan(NamedTuple):
    """The columns of an expression in UTF-8 bytes, and its last line, as far as Python knows them."""

    column: int | None = None
    end_column: int | None = None
    end_line: int | None = None


class StackFrame(msgspec.Struct, frozen=True, array_like=True):
    """One frame of a Python stack. In JSON, it is a list of its fields' values; the last values may be missing."""

    #: As in the code object, like the function; a resume function has the name that Dynamo gave it.
    filename: str
    #: The line that runs.
    line: int | None
    function: str
    #: The first line of the code object.
    first_line: int | None = None
    #: The range of the expression, with columns in UTF-8 bytes, if Python knows it.
    column: int | None = None
    end_column: int | None = None
    end_line: int | None = None

    @property
    def span(self) -> ExpressionSpan:
        """The span of the expression that runs."""
        return ExpressionSpan(self.column, self.end_column, self.end_line)


class Record(msgspec.Struct, frozen=True):
    """One record of the structured trace."""

    #: The JSON object of the record: one key is its kind, with the metadata as the value; the other keys describe its
    #: origin (``frame_id``, ``frame_compile_id``, ``attempt``, ...).
    envelope: dict[str, Any]
    #: The text that follows the envelope, if any.
    payload: str | None = None

    @property
    def kind(self) -> str:
        """The name of the record, such as ``"dynamo_start"``; for an artifact, ``"artifact:NAME"``."""
        kind = next((key for key in self.envelope if key not in _CONTEXT_KEYS), "")
        if kind == "artifact":
            data = self.data
            return f"artifact:{data.get('name') if isinstance(data, dict) else None}"
        return kind

    @property
    def data(self) -> Any:
        """The metadata of the record; an empty dict if there is none."""
        return next((value for key, value in self.envelope.items() if key not in _CONTEXT_KEYS), {})

    @property
    def compile_key(self) -> CompileKey | None:
        """The compile id of the record; ``None`` for records outside any compilation."""
        frame, compile_id = self.envelope.get("frame_id"), self.envelope.get("frame_compile_id")
        if frame is None or compile_id is None:
            return None
        return CompileKey(self.envelope.get("compiled_autograd_id"), frame, compile_id)

    @property
    def attempt(self) -> int:
        """The number of times that Dynamo restarted the frame before this record; 0 if the record lacks it."""
        return int(self.envelope.get("attempt") or 0)


class CompileTime(msgspec.Struct, frozen=True, array_like=True):
    """The start of one compilation in seconds since 1970, its duration in seconds, and the function's name if known."""

    start: float
    seconds: float
    function: str | None = None


def compile_time(record: Record) -> CompileTime | None:
    """Return the time of a compilation, from the record of its metrics; ``None`` for other records.

    The record must not have gone through :func:`reduce_record`, which removes the start.
    """
    if not record.kind.endswith("compilation_metrics") or not isinstance(record.data, dict):
        return None
    data = record.data
    start, microseconds, seconds = (data.get(name) for name in ("start_time", "duration_us", _FRAME_SECONDS))
    if isinstance(microseconds, int | float):
        seconds = microseconds / 1e6
    function = data.get("co_name")
    if not (isinstance(start, int | float) and isinstance(seconds, int | float)):
        return None
    if not (0 < start < _MAX_TIME_S and 0 <= seconds < _MAX_TIME_S):
        return None
    return CompileTime(start, seconds, display_name(function) if isinstance(function, str) else None)


def reduce_record(record: Record) -> Record:
    """Return a record reduced to the data that a report needs, if it is about metrics, a cache or a specialized size.

    Any other record is returned unchanged.
    """
    if "_cache_" in record.kind:
        return Record(record.envelope, _bypass_reason(record.payload))
    needed_keys = _SPECIALIZATION_FIELDS if record.kind == "symbolic_shape_specialization" else _METRIC_FIELDS
    if needed_keys is _METRIC_FIELDS and not record.kind.endswith("compilation_metrics"):
        return record
    data = record.data
    values = {key: data.get(key) for key in needed_keys}
    needed_data = {key: sorted(part) if isinstance(part, set | frozenset) else part for key, part in values.items()}
    context = {key: value for key, value in record.envelope.items() if value is not data}
    return Record({**context, record.kind: needed_data})


def _bypass_reason(payload: str | None) -> str | None:
    """Return the reason why a cache was bypassed, given the payload of a cache's record; ``None`` if it was not."""
    try:
        data = msgspec.json.decode(payload or "{}")
    except msgspec.DecodeError:
        return None
    reason = data.get("cache_bypass_reason") if isinstance(data, dict) else None
    return reason if isinstance(reason, str) else None


def with_encodable_text(record: Record) -> Record:
    """Return a record in which lone surrogates, which cannot be encoded, are replaced with escapes."""
    try:
        msgspec.json.encode(record.envelope)
        (record.payload or "").encode()
    except UnicodeEncodeError:
        return Record(_escape_surrogates(record.envelope), _escape_surrogates(record.payload))
    return record


def _escape_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_escape_surrogates(key): _escape_surrogates(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_escape_surrogates(inner) for inner in value]
    return value


def read_stack(text: str) -> list[StackFrame]:
    """Return the frames of a traceback in Python's format, outermost first."""
    return [StackFrame(name, int(line), function.strip()) for name, line, function in _TRACE_ENTRY.findall(text)]


def read_recompile_reasons(payload: str) -> list[str]:
    """Return the reasons in the payload of ``recompile_reasons``, which is a string or a JSON list of several.

    Reasons about code that a trial compiled are left out: this code is not a version of the program.
    """
    try:
        reasons = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        reasons = payload or []
    as_list = reasons if isinstance(reasons, list) else [reasons]
    texts = [str(reason)[:_MAX_REASON_LENGTH] for reason in as_list[:_MAX_REASONS]]
    return [text for text in texts if TRIAL_ENDED_REASON not in text]


#: The end of a guard on a size, and of every guard in releases of PyTorch that record no stack:
#: "  # if x.shape[0] > 10:  # the/end/of/a/path.py:3 in f". A guard on a range has such a comment for each bound. Some
#: bounds do not come from the code: PyTorch compiles sizes 0 and 1 separately. Their comments do not match.
_GUARD_LOCATION = re.compile(
    r"  # (?P<path>[^#\n]+?):(?P<line>\d{1,9}) in (?P<function>[\w.<>]++)(?! \(user code shown is first use)"
)


def parse_guard_location(reason: str) -> StackFrame | None:
    """Return the line of a guard from the comment at its end, with the end of the file's path; ``None`` if unknown."""
    match = _GUARD_LOCATION.search(reason)
    return StackFrame(match["path"], int(match["line"]), match["function"]) if match is not None else None


#: The module that defines the objects which replace open files and similar objects in a trial.
_STAND_INS_FILE = "jupyter_graphbreak/experiments/trial/stand_ins.py"


def is_inserted_frame(module_path: str | None, function: str) -> bool:
    """Return whether torch, or an object of a trial, inserts this frame between the program's call and the operation.

    For example, torch inserts a frame for each operation if a default device is set, and Dynamo replaces built-in
    functions such as ``enumerate`` with its own Python functions. ``module_path`` is ``None`` for the user's files.
    """
    if module_path == _STAND_INS_FILE:
        return True
    if module_path is None or not module_path.startswith("torch/"):
        return False
    return function == "__torch_function__" or module_path.startswith("torch/_dynamo/polyfills/")


def strip_inserted_frames(stack: list[StackFrame], packages: PackagePaths) -> list[StackFrame]:
    """Return a stack without the inserted frames at its end; if it contains no other frames, return it unchanged."""
    end = len(stack)
    while end and is_inserted_frame(packages.module_path(stack[end - 1].filename), stack[end - 1].function):
        end -= 1
    return stack[:end] or stack


def original_name(name: str) -> str:
    """Return the name of a function in the source; for a resume function, the name of the function that it resumes."""
    while (match := _RESUME_NAME.match(name)) is not None:
        name = match["name"]
    return name


def line_in_resume_name(name: str) -> int | None:
    """Return the line in the name of a resume function, that of the break for which it was created; else ``None``."""
    match = _RESUME_NAME.match(name)
    return int(match["line"]) if match is not None else None


def display_name(name: str) -> str:
    """Return the name to show for a function that Dynamo compiles: the original name, or "cell" for a whole cell."""
    plain = original_name(name)
    return "cell" if plain == "<module>" else plain


def is_resume_name(name: str) -> bool:
    """Return whether this is the name of a function that Dynamo created to resume after a break."""
    return _RESUME_NAME.match(name) is not None
