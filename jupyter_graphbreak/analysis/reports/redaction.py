"""Redact a report so that it can be shared: keep its structure, remove everything that comes from the user's code.

``field_contents`` lists what may stay: ids, causes, line numbers, counts, times, shapes, and PyTorch's own words, which
``known_words`` lists. Names of functions, files and cells become ``f1``, ``file1``, ``cell1``, consistently throughout
the report.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jupyter_graphbreak.analysis.reports import known_words
from jupyter_graphbreak.analysis.reports.field_contents import CONTENTS
from jupyter_graphbreak.knowledge.lookup import all_advice
from jupyter_graphbreak.recording.records import is_resume, plain_function
from jupyter_graphbreak.report.schema import SCHEMA_VERSION, Diagnostic, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jupyter_graphbreak.report.job import Job
    from jupyter_graphbreak.report.schema import EffectKind

_WORD = re.compile(r"\w+")
_RESUME_PREFIX = "torch_dynamo_resume_in_"
#: No real function has been resumed so often.
_MAX_PREFIX_LENGTH = 50 * len(_RESUME_PREFIX)
_RESUME_SUFFIX = re.compile(r"_at_(\d{1,9})$")
_GUARDS = re.compile(
    r"(size|stride|dtype|device|requires_grad|dispatch key set|rank) mismatch(?: at index \d{1,9})?"
    r"|Cache line invalidated"
)
_ERRORS = {name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)}
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
_FAMILIES = {
    "output", "setting", "rewrite", "sizes", "hoisting", "marker", "scalar", "branch", "loops", "switch", "person",
}  # fmt: skip
_TITLES = {"Capture scalar outputs", "Capture dynamic output shapes"}
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
_DTYPE = re.compile(r"(?:b?float|complex|u?int|q?u?int)\d{1,3}(?:_e\dm\d(?:fn)?(?:uz)?)?|bool|bfloat16|unknown")
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
    """Replaces names consistently, and removes everything that may not stay."""

    def __init__(self, reports: Iterable[Report]) -> None:
        self._words = {word for report in reports for word in _user_words(report)}
        self._functions: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        self._generic: dict[str, bool] = {}
        self._ids: dict[str, str] = {}

    def redact(self, struct: _S) -> _S:
        """Return a structure with each field redacted; unknown fields are removed."""
        redacted: dict[str, Any] = {}
        for field in _fields(type(struct)):
            value = getattr(struct, field.name)
            content = CONTENTS.get((type(struct).__name__, field.name), "removed")
            redacted[field.name] = (
                _empty_value(field, value) if content == "removed" else self._redact_field(content, value, struct)
            )
        if "advice" in redacted:
            redacted["advice"] = [advice for advice in redacted["advice"] if advice.text]
        if "diagnostics" in redacted:
            redacted["diagnostics"] = _counted_notes(redacted["diagnostics"])
        for field_name, name in (("ops", "op"), ("inputs", "input")):
            if isinstance(redacted.get(field_name), list):
                parts = enumerate(redacted[field_name], start=1)
                redacted[field_name] = [msgspec.structs.replace(part, name=f"{name}{number}") for number, part in parts]
        return type(struct)(**redacted)

    def _redact_field(self, content: str, value: Any, struct: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case per content
        match content:
            case "kept":
                return value
            case "parts" if isinstance(value, list):
                return [self.redact(part) for part in value]
            case "parts":
                return self.redact(value) if value is not None else None
            case "config" | "settings":
                return _settings(content, value)
            case "source name" | "source path":
                name = self._file(struct.path or struct.name, "cell" if struct.kind == "cell" else "file")
                return None if content == "source path" and struct.kind == "cell" else name
            case "place path" | "place cell":
                is_cell = struct.path is None
                name = self._file(struct.path or struct.cell or "?", "cell" if is_cell else "file")
                return name if is_cell == (content == "place cell") else None
            case "cause":
                return _cause(struct.gb_id, value)
            case "url":
                is_known = struct.gb_id is not None and _GB_ID.fullmatch(struct.gb_id)
                return f"{_PAGE}{struct.gb_id.lower()}.html" if value is not None and is_known else None
            case "step":
                return value if self._is_generic(value) else ""
            case "title":
                is_setting = struct.kind == "setting" and value in _TITLES
                return value if is_setting else f"a remedy of the family {_family(struct.family)}"
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
        """Return a redacted text, or a list of redacted texts."""
        if isinstance(value, list):
            return [self._redact_text(content, text) for text in value]
        if content in {"id", "function"}:
            replace = self._id if content == "id" else self._function
            return replace(value) if value is not None else None
        if content == "held source":
            return self._file(value, "file")
        return _REDACTORS[content](value) if value is not None else None

    def _is_generic(self, text: str) -> bool:
        """Return whether a text is the same for every program and contains no word of the user's code by chance."""
        if text not in self._generic:
            is_known = text in all_advice() or known_words.is_text_of_registry(text)
            self._generic[text] = is_known and self._words.isdisjoint(_WORD.findall(text))
        return self._generic[text]

    def _id(self, ident: str) -> str:
        if _ID.fullmatch(ident):
            return ident
        return self._ids.setdefault(ident, f"z{len(self._ids) + 1}")

    def _file(self, path: str, kind: str) -> str:
        if path not in self._files:
            self._numbers[kind] += 1
            self._files[path] = f"{kind}{self._numbers[kind]}"
        return self._files[path]

    def _function(self, name: str) -> str:
        before, after = "", ""
        while is_resume(name) and len(before) < _MAX_PREFIX_LENGTH:
            at = _RESUME_SUFFIX.search(name)
            end = at[0] if at else ""
            name = name.removeprefix(_RESUME_PREFIX).removesuffix(end)
            before, after = before + _RESUME_PREFIX, end + after
        if name != "<module>":
            name = self._functions.setdefault(name, f"f{len(self._functions) + 1}")
        return f"{before}{name}{after}"


def _user_words(report: Report) -> Iterator[str]:
    """Yield the words in the source texts and names of a report, except Python's keywords."""
    texts = [segment.text for source in report.sources for segment in source.segments]
    texts += [text for source in report.sources for text in (source.name, source.path or "")]
    texts += [plain_function(frame.function) for frame in report.frames]
    texts += [break_.location.code or "" for break_ in report.breaks if break_.location is not None]
    for text in texts:
        yield from (word for word in _WORD.findall(text) if not keyword.iskeyword(word))


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _empty_value(field: msgspec.structs.FieldInfo, value: Any) -> Any:
    """Return the default of a field, or an empty value of its type."""
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return type(value)() if isinstance(value, str | list | dict) else None


def _counted_notes(notes: list[Diagnostic]) -> list[Diagnostic]:
    """Return one note per level that only tells how many notes were left out."""
    levels = [note.level for note in notes]
    if any(_LEFT_OUT.fullmatch(note.message) for note in notes):
        return notes
    return [
        Diagnostic(level, f"{levels.count(level)} note{'' if levels.count(level) == 1 else 's'} left out.")
        for level in dict.fromkeys(levels)
    ]


def _settings(content: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the known settings of Dynamo whose value is a number or a bool."""
    prefix = "torch._dynamo.config." if content == "settings" else ""
    return {
        name: value
        for name, value in values.items()
        if name.startswith(prefix)
        and known_words.is_setting(name.removeprefix(prefix))
        and isinstance(value, bool | int | float)
    }


def _cause(gb_id: str | None, gb_type: str) -> str:
    known = known_words.is_cause(gb_id, gb_type) or known_words.is_cause(None, gb_type)
    return gb_type if known or gb_type in _ERRORS | _TORCH_ERRORS else "an error"


def _family(name: str) -> str:
    return name if set(name.split(" and ")) <= _FAMILIES else "other"


def _guard(text: str) -> str:
    match = _GUARDS.search(text)
    return match[0] if match is not None else "a guard failed"


def _release(version: str) -> str | None:
    match = _RELEASE.match(version)
    return match[1] if match is not None else None


def _allow_matching(pattern: re.Pattern[str], other: str) -> Callable[[str], str]:
    return lambda text: text if pattern.fullmatch(text) else other


def _is_symbolic(text: str) -> bool:
    return text != "" and all(_SYMBOLIC.fullmatch(part) for part in re.findall(r"\w+|\W", text))


def _size(size: int | str) -> int | str:
    return size if isinstance(size, int) or _is_symbolic(size) else "?"


_REDACTORS: dict[str, Callable[[Any], Any]] = {
    "op": lambda name: name if known_words.is_operation(name) else "operation",
    "op name": lambda _: "op",
    "input name": lambda _: "input",
    "device": _allow_matching(_DEVICE, "a device"),
    "dtype": lambda text: text if _DTYPE.fullmatch(text) or _is_symbolic(text) else "a type",
    "shape": _size,
    "version": _release,
    "schema version": lambda _: SCHEMA_VERSION,
    "gb id": lambda number: number if _GB_ID.fullmatch(number) else None,
    "guard": _guard,
    "guards": _guard,
    "backend": lambda name: name if name in _BACKENDS else "a backend",
    "exception": lambda name: name if name in _ERRORS | _TORCH_ERRORS else "Exception",
    "family": _family,
    "note": lambda text: text if _LEFT_OUT.fullmatch(text) else "",
}
