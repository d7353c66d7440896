"""Redact a report so that it can be shared: keep its structure, remove all words that come from the user's code.

``CONTENTS`` lists what may stay: ids, causes, line numbers, counts, times, shapes, and PyTorch's own words, which
``known_words.txt`` lists. Names of functions, files and cells become ``f1``, ``file1``, ``cell1``, consistently in
the whole report.
"""

from __future__ import annotations

import builtins
import functools
import keyword
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from jupyter_graphbreak.knowledge.causes import all_advice, setting_titles
from jupyter_graphbreak.records.records import is_resume_name, original_name
from jupyter_graphbreak.report.schema import SCHEMA_VERSION, Diagnostic, Graph, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jupyter_graphbreak.report.job import Job
    from jupyter_graphbreak.report.schema import EffectKind

#: ``kept``: a number, a bool, or one of the words in the schema. ``parts``: further structures, each with its own
#: fields. ``removed``: anything that may contain the user's words. All other content is redacted according to its kind.
Content = Literal[
    "kept", "parts", "removed", "id", "function", "source name", "source path", "place path", "place cell", "op",
    "op name", "answer", "input name", "device", "dtype", "shape", "version", "schema version", "cause", "gb id", "url",
    "registry text", "registry texts", "step", "guard", "guards", "timed guard", "backend", "config", "settings",
    "exception", "family", "title", "numerics change", "memory change", "reason of kind", "effect of kind", "aspects",
    "note", "cached source",
]  # fmt: skip

_FIELDS_BY_CLASS: dict[str, dict[Content, str]] = {
    "Timing": {"kept": "wall_s compile_s capture_s cache_hits cache_misses cache_bypasses"},
    "Summary": {"kept": "frames graphs ops breaks events resumes skipped recompiles errors"},
    "Spread": {"kept": "median_us low_us high_us runs processor_us"},
    "DeviceWork": {"kept": "launches graph_launches synchronizations peak_bytes"},
    "Coverage": {"kept": "compiled_ops eager_ops time_share"},
    "BreakCost": {"kept": "graphs compile_s eager"},
    "UnseenInputs": {"kept": "inputs compilations"},
    "Report": {
        "kept": "status",
        "parts": "device error timing summary sources frames graphs breaks resumes skipped scopes recompiles "
        "cudagraph_skips paths what_if diagnostics compiled remedies cost startup check held effects values",
        "schema version": "schema_version",
        "version": "torch python",
        "config": "config",
        "id": "order",
        "removed": "changes libraries reproducers",
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
        "function": "function module",
        "parts": "location",
        "kept": "role outcome attempts compile_s instance",
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
    "Resume": {"id": "id break_ frames graphs", "function": "name function", "parts": "location", "kept": "no_frame"},
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
    "GuardFailure": {"guard": "guard", "parts": "location", "kept": "head", "id": "version"},
    "Recompile": {"id": "id frame of", "function": "function", "parts": "location reasons", "kept": "limit_hit"},
    "CudagraphSkip": {"removed": "reason", "id": "graph", "parts": "location"},
    "PathDifference": {"op": "function", "parts": "location branch lines skipped", "answer": "compiled eager"},
    "CachedFunction": {"function": "function", "cached source": "source", "kept": "line"},
    "CompiledCall": {"function": "name", "removed": "type code edit"},
    "Diagnostic": {"kept": "level", "note": "message"},
    "Edit": {"id": "source", "kept": "first_line last_line", "removed": "old new"},
    "Evidence": {
        "backend": "backend",
        "kept": "inputs both_sides graphs_before graphs_after breaks_before breaks_after compilations_before "
        "compilations_after",
        "parts": "unseen",
        "aspects": "compared",
    },
    "Remedy": {
        "id": "id breaks frames excludes recompiles",
        "family": "family",
        "title": "title",
        "kept": "kind verdict seconds is_right",
        "parts": "evidence",
        "settings": "settings",
        "removed": "edits code patch reason differences person",
    },
    "Cost": {"device": "device", "backend": "backend", "parts": "entries"},
    "EntryCost": {
        "function": "function",
        "id": "frame",
        "kept": "settled break_even_calls",
        "parts": (
            "eager compiled remedied parts coverage in_run eager_device_work device_work memory guards ops "
            "alternatives regions unfused"
        ),
    },
    "Alternative": {"kept": "kind", "op": "change", "parts": "location time before"},
    "UnfusedKernels": {"id": "graph", "kept": "reason nbytes count", "op": "op", "parts": "first second"},
    "RegionCost": {"function": "block", "kept": "count compiles_in_place", "removed": "container", "parts": "ways"},
    "CompiledWay": {
        "kept": "way start_s compilations graphs regions equal time_ratio limit_hit",
        "parts": "differences",
    },
    "BlockDifference": {"kept": "compilation head", "guard": "guard", "parts": "location"},
    "OpCost": {"id": "graph", "op": "op", "parts": "location eager compiled"},
    "GuardCost": {"id": "frame", "timed guard": "guard", "parts": "location time", "kept": "count"},
    "MemoryCost": {
        "kept": "eager_peak_bytes compiled_peak_bytes eager_saved_bytes compiled_saved_bytes",
        "parts": "lines growth changes",
    },
    "MemoryChange": {"memory change": "change", "kept": "peak_bytes saved_bytes equal time_ratio"},
    "MemoryGrowth": {
        "kept": "calls compiled_bytes eager_bytes without_backward_bytes",
        "removed": "holder",
        "parts": "location",
    },
    "MemoryLine": {"parts": "location", "kept": "eager_bytes compiled_bytes"},
    "RemediedCost": {"id": "remedies", "parts": "time device_work"},
    "CostPart": {"kept": "kind", "parts": "time", "id": "graph break_ frame"},
    "Startup": {"kept": "first_s second_s", "parts": "graphs changes"},
    "CacheChange": {"id": "graphs", "kept": "second_s", "removed": "code"},
    "GraphStartup": {"id": "graph", "kept": "tracing_s backend_s cache", "removed": "reason", "parts": "location"},
    "Check": {
        "function": "function",
        "backend": "backend",
        "kept": "equal step instances calls gradients",
        "removed": "differences",
        "parts": "first restored_by",
    },
    "EntryValues": {
        "function": "function",
        "backend": "backend",
        "kept": "call calls left_out operations",
        "parts": "first given results lines",
    },
    "NonFinite": {
        "kept": "direction kind count elements execution further eager",
        "op": "op",
        "id": "graph",
        "parts": "location",
        "dtype": "dtype",
    },
    "NonFiniteInput": {"input name": "name", "kept": "nan inf"},
    "NonFiniteCounts": {"kept": "by nan inf gradient_nan gradient_inf", "exception": "raised"},
    "LineValues": {"parts": "location forward backward", "op": "op", "id": "graph", "kept": "executions"},
    "ValueRange": {"shape": "shape", "dtype": "dtype", "kept": "elements nan inf", "removed": "low high mean"},
    "Reproducer": {"removed": "id title script issue reason steps seconds"},
    "NumericsTrial": {"numerics change": "change", "kept": "equal time_ratio"},
    "Divergence": {"id": "graph", "parts": "location", "op": "op"},
    "Job": {"schema version": "schema_version", "parts": "processes breaks diagnostics compiling"},
    "Process": {"id": "id", "kept": "rank pid", "removed": "command", "parts": "report equal"},
    "EqualProcess": {"id": "id", "kept": "rank pid"},
    "RankCompiling": {
        "id": "process",
        "kept": "rank start_s end_s compile_s alone_s alone_start_s",
        "function": "alone_function",
    },
    "JobBreak": {"parts": "place", "gb id": "gb_id", "cause": "gb_type", "kept": "ranks missing_in", "id": "processes"},
    "JobPlace": {"place path": "path", "place cell": "cell", "kept": "line", "function": "function", "removed": "code"},
    "Changes": {"removed": "before after breaks same reused"},
}

#: The content of each field, by its class and its attribute.
CONTENTS: dict[tuple[str, str], Content] = {
    (kind, field): content
    for kind, contents in _FIELDS_BY_CLASS.items()
    for content, fields in contents.items()
    for field in fields.split()
}


_KNOWN_WORDS_FILE = Path(__file__).with_name("known_words.txt")
_OPERATION_PREFIX = re.compile(
    r"(?:torch\.ops\.)?(?=(?:aten|prims|prim|inductor|_?c10d_functional|quantized|higher_order)\.)"
)


def is_operation(name: str) -> bool:
    """Return whether a name is a PyTorch or Python operation."""
    return _OPERATION_PREFIX.sub("", name, count=1) in _sections()["operations"]


def is_setting(name: str) -> bool:
    """Return whether a name is a Dynamo setting."""
    return name in _sections()["settings"]


def is_cause(gb_id: str | None, gb_type: str) -> bool:
    """Return whether PyTorch's registry has a cause of graph breaks with this name and, if given, this GB id."""
    names = _names_by_id()
    if gb_id is not None:
        return gb_type in names.get(gb_id, ())
    return any(gb_type in names_of_id for names_of_id in names.values())


def is_registry_text(text: str) -> bool:
    """Return whether a string is an explanation or a hint from PyTorch's registry."""
    return " ".join(text.split()) in _sections()["texts"]


@functools.cache
def _sections() -> dict[str, frozenset[str]]:
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in _KNOWN_WORDS_FILE.read_text(encoding="utf-8").split("\n"):
        if re.fullmatch(r"\[[a-z]+\]", line):
            lines = sections[line.strip("[]")] = []
        else:
            lines.append(line)
    return {name: frozenset(words) for name, words in sections.items()}


@functools.cache
def _names_by_id() -> dict[str | None, set[str]]:
    names: dict[str | None, set[str]] = {}
    for line in _sections()["causes"]:
        gb_id, _, name = line.partition(" ")
        names.setdefault(gb_id, set()).add(name)
    return names


_WORD = re.compile(r"\w+")
_RESUME_PREFIX = "torch_dynamo_resume_in_"
#: The maximum length of all resume prefixes of a name, enough for a function that is resumed 50 times.
_MAX_PREFIX_LENGTH = 50 * len(_RESUME_PREFIX)
_RESUME_SUFFIX = re.compile(r"_at_(\d{1,9})$")
_GUARDS = re.compile(
    r"(size|stride|dtype|device|requires_grad|dispatch key set|rank) mismatch(?: at index \d{1,9})?"
    r"|Cache line invalidated"
)
_PYTHON_ERRORS = {
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
}
_TORCH_ERRORS = {
    "BackendCompilerFailed", "FailOnRecompileLimitHit", "InternalTorchDynamoError", "RecompileLimitExceeded",
    "TorchRuntimeError", "Unsupported", "UncapturedHigherOrderOpError", "UserError",
}  # fmt: skip
#: The descriptions of effects after redaction: the original ones name files, hosts and commands.
_EFFECTS: dict[EffectKind, str] = {
    "file": "uses a file",
    "network": "uses the network",
    "process": "uses a process or a thread",
    "database": "uses a database",
    "state": "changes the state of the process",
}
_BACKENDS = {"aot_eager", "aot_eager_decomp_partition", "cudagraphs", "eager", "inductor"}
#: The families of remedies, whose names may stay.
FAMILY_NAMES = {
    "output", "setting", "rewrite", "sizes", "hoisting", "marker", "scalar", "branch", "experts", "loops", "switch",
    "ending", "person", "mark", "dynamic", "tensor", "limit",
}  # fmt: skip
_ASPECTS = {
    "values",
    "gradients",
    "output",
    "exceptions",
    "warnings",
    "logging",
    "arguments",
    "globals",
    "random state",
}
_DEVICE = re.compile(r"(?:cpu|cuda|mps|xpu|hpu|mtia|meta|auto|unknown)(?::\d{1,4})?(?:, (?:cpu|cuda)(?::\d{1,4})?)*")
_DTYPE = re.compile(r"(?:b?float|complex|q?u?int)\d{1,3}(?:_e\dm\d(?:fn)?(?:uz)?)?|bool|unknown")
#: A dynamic size: a symbol, or a formula of symbols and numbers.
_SYMBOLIC = re.compile(r"[suz]\d{1,6}|\d{1,18}|Sym|Max|Min|Mod|FloorDiv|PythonMod|[-+*/()%, ]")
_ID = re.compile(r"[A-Z]{1,3}|[a-z]{1,2}\d{1,7}|(?:!\d{1,9}/)?\d{1,9}/\d{1,9}(?:#\d{1,9})?|\d{1,9}")
_RELEASE = re.compile(r"(\d{1,4}(?:\.\d{1,4}){1,3})")
_GB_ID = re.compile(r"GB\d{4}")
_LEFT_OUT = re.compile(r"\d{1,9} notes? left out\.")
_PAGE = "https://meta-pytorch.github.io/compile-graph-break-site/gb/"

_S = TypeVar("_S", bound=msgspec.Struct)


def redact(report: Report) -> Report:
    """Return a report without the user's code, messages, paths and names."""
    return _Redaction([report]).redact(report)


def redact_job(job: Job) -> Job:
    """Return a job without the user's code, messages, paths and names; all processes share the replacement names."""
    return _Redaction([process.report for process in job.processes]).redact(job)


class _Redaction:
    """Replaces names consistently, and removes everything that could reveal the program."""

    def __init__(self, reports: Iterable[Report]) -> None:
        self._words = {word for report in reports for word in _user_words(report)}
        self._functions: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._file_counts: Counter[str] = Counter()
        self._generic_texts: dict[str, bool] = {}
        self._ids: dict[str, str] = {}

    def redact(self, struct: _S) -> _S:
        """Return a structure with each field redacted; unknown fields are removed."""
        redacted_fields: dict[str, Any] = {}
        for field in _fields(type(struct)):
            value = getattr(struct, field.name)
            content = CONTENTS.get((type(struct).__name__, field.name), "removed")
            redacted_fields[field.name] = (
                _empty_value(field, value) if content == "removed" else self._redact_field(content, value, struct)
            )
        if "advice" in redacted_fields:
            redacted_fields["advice"] = [advice for advice in redacted_fields["advice"] if advice.text]
        if "diagnostics" in redacted_fields:
            redacted_fields["diagnostics"] = _count_notes(redacted_fields["diagnostics"])
        for field_name, name in (("ops", "op"), ("inputs", "input")) if isinstance(struct, Graph) else ():
            parts = enumerate(redacted_fields[field_name], start=1)
            redacted_fields[field_name] = [
                msgspec.structs.replace(part, name=f"{name}{number}") for number, part in parts
            ]
        return type(struct)(**redacted_fields)

    def _redact_field(self, content: str, value: Any, struct: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - each content has its own case
        match content:
            case "kept":
                return value
            case "parts" if isinstance(value, list):
                return [self.redact(part) for part in value]
            case "parts":
                return self.redact(value) if value is not None else None
            case "config" | "settings":
                return _redact_settings(content, value)
            case "source name" | "source path":
                name = self._redact_file(struct.path or struct.name, "cell" if struct.kind == "cell" else "file")
                return None if content == "source path" and struct.kind == "cell" else name
            case "place path" | "place cell":
                is_cell = struct.path is None
                name = self._redact_file(struct.path or struct.cell or "?", "cell" if is_cell else "file")
                return name if is_cell == (content == "place cell") else None
            case "cause":
                return _redact_cause(struct.gb_id, value)
            case "url":
                is_known = struct.gb_id is not None and _GB_ID.fullmatch(struct.gb_id)
                return f"{_PAGE}{struct.gb_id.lower()}.html" if value is not None and is_known else None
            case "step":
                return value if self._is_generic(value) else ""
            case "title":
                is_setting = struct.kind == "setting" and value in setting_titles()
                return value if is_setting else f"a remedy of the family {_redact_family(struct.family)}"
            case "reason of kind":
                return "compilation failed" if struct.kind == "error" else f"it runs eagerly: {struct.kind}"
            case "effect of kind":
                return _EFFECTS[struct.kind]
            case "registry texts":
                return [text for text in value if self._is_generic(text)]
            case "registry text":
                return value if value is not None and self._is_generic(value) else None
            case "aspects":
                return [text for text in value if text in _ASPECTS]
            case _:
                return self._redact_text(content, value)

    def _redact_text(self, content: str, value: Any) -> Any:
        """Return a redacted string, or a list of redacted strings."""
        if isinstance(value, list):
            return [self._redact_text(content, text) for text in value]
        if content in {"id", "function"}:
            replace = self._redact_id if content == "id" else self._redact_function
            return replace(value) if value is not None else None
        if content == "cached source":
            return self._redact_file(value, "file")
        return _REDACTORS[content](value) if value is not None else None

    def _is_generic(self, text: str) -> bool:
        """Return whether a string is the same for every program and contains no word of the user's code by chance."""
        if text not in self._generic_texts:
            is_known = text in all_advice() or is_registry_text(text)
            self._generic_texts[text] = is_known and self._words.isdisjoint(_WORD.findall(text))
        return self._generic_texts[text]

    def _redact_id(self, ident: str) -> str:
        if _ID.fullmatch(ident):
            return ident
        return self._ids.setdefault(ident, f"z{len(self._ids) + 1}")

    def _redact_file(self, path: str, kind: str) -> str:
        if path not in self._files:
            self._file_counts[kind] += 1
            self._files[path] = f"{kind}{self._file_counts[kind]}"
        return self._files[path]

    def _redact_function(self, name: str) -> str:
        prefixes, suffixes = "", ""
        while is_resume_name(name) and len(prefixes) < _MAX_PREFIX_LENGTH:
            match = _RESUME_SUFFIX.search(name)
            suffix = match[0] if match else ""
            name = name.removeprefix(_RESUME_PREFIX).removesuffix(suffix)
            prefixes, suffixes = prefixes + _RESUME_PREFIX, suffix + suffixes
        if name != "<module>":
            name = self._functions.setdefault(name, f"f{len(self._functions) + 1}")
        return f"{prefixes}{name}{suffixes}"


def _user_words(report: Report) -> Iterator[str]:
    """Yield the words in the source texts and names of a report, except Python's keywords."""
    texts = [segment.text for source in report.sources for segment in source.segments]
    texts += [text for source in report.sources for text in (source.name, source.path or "")]
    texts += [original_name(frame.function) for frame in report.frames]
    texts += [break_.location.code or "" for break_ in report.breaks if break_.location is not None]
    for text in texts:
        yield from (word for word in _WORD.findall(text) if not keyword.iskeyword(word))


@cache
def _fields(struct_type: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(struct_type)


def _empty_value(field: msgspec.structs.FieldInfo, value: Any) -> Any:
    """Return the default of a field, or an empty value of its type."""
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return type(value)() if isinstance(value, str | list | dict) else None


def _count_notes(notes: list[Diagnostic]) -> list[Diagnostic]:
    """Return one note per level that only states the number of notes left out."""
    levels = [note.level for note in notes]
    if any(_LEFT_OUT.fullmatch(note.message) for note in notes):
        return notes
    return [
        Diagnostic(level, f"{levels.count(level)} note{'' if levels.count(level) == 1 else 's'} left out.")
        for level in dict.fromkeys(levels)
    ]


def _redact_settings(content: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the known Dynamo settings whose value is a number or a bool."""
    prefix = "torch._dynamo.config." if content == "settings" else ""
    return {
        name: value
        for name, value in values.items()
        if name.startswith(prefix) and is_setting(name.removeprefix(prefix)) and isinstance(value, bool | int | float)
    }


def _redact_cause(gb_id: str | None, gb_type: str) -> str:
    is_known = is_cause(gb_id, gb_type) or is_cause(None, gb_type)
    return gb_type if is_known or gb_type in _PYTHON_ERRORS | _TORCH_ERRORS else "an error"


def _redact_family(name: str) -> str:
    return name if set(name.split(" and ")) <= FAMILY_NAMES else "other"


def _redact_guard(text: str) -> str:
    match = _GUARDS.search(text)
    return match[0] if match is not None else "a guard failed"


def _redact_release(version: str) -> str | None:
    match = _RELEASE.match(version)
    return match[1] if match is not None else None


def _allow_text_matching(pattern: re.Pattern[str], replacement: str) -> Callable[[str], str]:
    return lambda text: text if pattern.fullmatch(text) else replacement


def _is_symbolic(text: str) -> bool:
    return text != "" and all(_SYMBOLIC.fullmatch(part) for part in re.findall(r"\w+|\W", text))


_NUMERICS_CHANGE = re.compile(
    r'torch\._inductor\.config\.[a-z_.]+ = True|backend="(aot_)?eager"|torch\.set_float32_matmul_precision\("highest"\)'
    r"|torch\._inductor\.decomposition\.decompositions\.pop\(torch\.ops\.aten\.\w+\.\w+\)"
)


_MEMORY_CHANGE = re.compile(r"torch\._functorch\.config\.[a-z_]+ = (True|0\.\d+)")


_REDACTORS: dict[str, Callable[[Any], Any]] = {
    "memory change": _allow_text_matching(_MEMORY_CHANGE, "torch.utils.checkpoint.checkpoint"),
    "numerics change": lambda text: text if all(map(_NUMERICS_CHANGE.fullmatch, text.split("; "))) else "a change",
    "answer": lambda text: text if text in {"True", "False", "None"} else "an answer",
    "op": lambda name: name if is_operation(name) else "operation",
    "op name": lambda _: "op",
    "input name": lambda _: "input",
    "device": _allow_text_matching(_DEVICE, "a device"),
    "dtype": lambda text: text if _DTYPE.fullmatch(text) or _is_symbolic(text) else "a type",
    "shape": lambda size: size if isinstance(size, int) or _is_symbolic(size) else "?",
    "version": _redact_release,
    "schema version": lambda _: SCHEMA_VERSION,
    "gb id": lambda number: number if _GB_ID.fullmatch(number) else None,
    "guard": _redact_guard,
    "guards": _redact_guard,
    "timed guard": lambda _: "guards",
    "backend": lambda name: name if name in _BACKENDS else "a backend",
    "exception": lambda name: name if name in _PYTHON_ERRORS | _TORCH_ERRORS else "Exception",
    "family": _redact_family,
    "note": lambda text: text if _LEFT_OUT.fullmatch(text) else "",
}
