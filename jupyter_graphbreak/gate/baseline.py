"""Read and write baselines of allowed breaks, eager functions and recompiles, as TOML that is readable in a diff."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.records.regular_files import atomic_replacement, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jupyter_graphbreak.report.location import Location, Segment
    from jupyter_graphbreak.report.schema import Report

_FORMAT_VERSION = 1
_MEMORY_ADDRESS = re.compile(r"0x[0-9a-f]+")  # differs in every run
_STRING_LITERAL = re.compile(r'"(?:[^"\\]++|\\.)*+"' r"|'[^']*'")
#: A baseline with more dots than this in one line, outside strings, is rejected. The keys of a valid baseline have at
#: most two parts.
_MAX_DOTS_IN_KEY = 10
_FILE_HEADER = """\
# Graph breaks that are allowed here. `graphbreak ... --baseline FILE` fails on any other break;
# `graphbreak ... --baseline FILE --update-baseline` rewrites this file.
"""


class MalformedBaseline(ValueError):  # noqa: N818 - the name already states an error
    """A baseline cannot be read; the message states the reason in one line."""


class AllowedBreak(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """An allowed break. ``path`` is empty for a notebook's cell, and ``function`` for code outside functions.

    ``line`` is the text of the source line.
    """

    path: str = ""
    function: str = ""
    cause: str = ""
    line: str = ""
    gb_id: str = ""


class AllowedEagerFunction(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A function that may run eagerly for a reason other than a break; ``reason`` is the kind of the reason."""

    path: str = ""
    function: str = ""
    reason: str = ""


class AllowedRecompiles(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """The number of times that a function may be recompiled."""

    path: str = ""
    function: str = ""
    times: int = 0


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The breaks, eager functions and recompiles that are allowed; an empty baseline allows nothing.

    A misspelt key is an error: if it were ignored, the baseline would allow less than its author intended.
    ``libraries`` contains the versions of the libraries whose code took part, by the names of their modules. Any
    function may be recompiled ``max_recompiles`` times; updating the baseline does not change this number.
    """

    version: int = _FORMAT_VERSION
    torch: str = ""
    max_recompiles: int = 0
    libraries: dict[str, str] = {}
    breaks: list[AllowedBreak] = msgspec.field(default=[], name="break")
    eager: list[AllowedEagerFunction] = []
    recompiles: list[AllowedRecompiles] = []


def parse_baseline(text: str) -> Baseline:
    """Parse the text of a baseline; raise a MalformedBaseline for an unknown version or unknown or malformed fields."""
    if any(map(_has_long_key, text.split("\n"))):
        raise MalformedBaseline("it has a key with too many parts")
    try:
        baseline = msgspec.convert(tomllib.loads(text), Baseline)
    except RecursionError:
        raise MalformedBaseline("its tables or lists are nested too deeply") from None
    except ValueError as error:  # from tomllib or msgspec, or about a number with very many digits
        raise MalformedBaseline(" ".join(str(error).partition("; use sys.")[0].split())) from None
    if baseline.version != _FORMAT_VERSION:
        raise MalformedBaseline(f"it has version {baseline.version}, but this release reads version {_FORMAT_VERSION}")
    return baseline


def _has_long_key(line: str) -> bool:
    """Return whether a line may have a key with many parts, for which ``tomllib`` needs quadratic memory."""
    return (
        line.count(".") > _MAX_DOTS_IN_KEY
        and _STRING_LITERAL.sub("", line).partition("#")[0].count(".") > _MAX_DOTS_IN_KEY
    )


def format_baseline(baseline: Baseline) -> str:
    """Return a baseline as TOML, with sorted entries."""
    lines = [_FILE_HEADER, f"version = {baseline.version}"]
    if baseline.torch:
        lines.append(f"torch = {_toml_value(baseline.torch)}")
    if baseline.max_recompiles:
        lines.append(f"max_recompiles = {baseline.max_recompiles}")
    if baseline.libraries:
        lines.append("\n[libraries]")
        lines += [
            f"{_toml_value(name)} = {_toml_value(version)}" for name, version in sorted(baseline.libraries.items())
        ]
    for name, tables in (
        ("break", sorted(baseline.breaks)),
        ("eager", sorted(baseline.eager)),
        ("recompiles", sorted(baseline.recompiles)),
    ):
        for table in tables:
            lines.append(f"\n[[{name}]]")
            lines += [
                f"{key} = {_toml_value(value)}" for key, value in msgspec.to_builtins(table).items() if value != ""
            ]
    return "\n".join(lines) + "\n"


def baseline_of(reports: Iterable[Report]) -> Baseline:
    """Return the baseline that allows exactly the breaks, eager functions and recompiles in the reports.

    If several reports contain the same entry, as in a job with several ranks, its highest count in one report is used.
    """
    reports = list(reports)
    breaks: Counter[AllowedBreak] = Counter()
    eager: Counter[AllowedEagerFunction] = Counter()
    recompiles: Counter[tuple[str, str]] = Counter()
    for report in reports:
        paths = {source.id: source.path or "" for source in report.sources}
        breaks |= Counter(baseline_entries(report))
        eager |= Counter(
            AllowedEagerFunction(*_path_and_function(paths, skipped.location, skipped.function), skipped.kind)
            for skipped in report.skipped
            if skipped.break_ is None
        )
        recompiles |= Counter(
            _path_and_function(paths, recompile.location, recompile.function)
            for recompile in report.recompiles
            if not recompile.limit_hit
        )
    return Baseline(
        torch=next((report.torch for report in reports if report.torch), None) or "",
        libraries={name: version for report in reports for name, version in report.libraries.items()},
        breaks=sorted(breaks.elements()),
        eager=sorted(eager.elements()),
        recompiles=sorted(AllowedRecompiles(path, function, times) for (path, function), times in recompiles.items()),
    )


def baseline_entries(report: Report) -> list[AllowedBreak]:
    """Return the entries that allow the breaks of a report, one for each break, in the order of the breaks."""
    paths = {source.id: source.path or "" for source in report.sources}
    lines = _SourceLines(report)
    entries = []
    for break_ in report.breaks:
        location = break_.location
        path, function = _path_and_function(paths, location, location.function if location is not None else None)
        line = " ".join((lines.line_at(location) or "").split())
        cause = " ".join(_MEMORY_ADDRESS.sub("0x", break_.gb_type).split())
        entries.append(AllowedBreak(path, function, cause, line, break_.gb_id or ""))
    return entries


def _path_and_function(paths: dict[str, str], location: Location | None, function: str | None) -> tuple[str, str]:
    path = paths.get(location.source, "") if location is not None else ""
    return path, function if function and function != "<module>" else ""


class _SourceLines:
    """Finds source lines of a report. The text of a source is split only once, even if it has many breaks."""

    def __init__(self, report: Report) -> None:
        self._segments: defaultdict[str, list[Segment]] = defaultdict(list)
        for source in report.sources:
            self._segments[source.id] += source.segments
        self._lines: dict[str, dict[int, str]] = {}

    def line_at(self, location: Location | None) -> str | None:
        """Return the source line on which a location begins, or only its known part; ``None`` if nothing is known."""
        if location is None:
            return None
        if location.source not in self._lines:
            self._lines[location.source] = dict(self._numbered_lines(location.source))
        line = self._lines[location.source].get(location.line)
        if line is not None:
            return line
        return location.code.partition("\n")[0] if location.code else None

    def _numbered_lines(self, source: str) -> Iterator[tuple[int, str]]:
        # If several segments contain the same line, the first one is used.
        for segment in reversed(self._segments.get(source, ())):
            yield from enumerate(segment.text.split("\n"), start=segment.first_line)


def _toml_value(value: str | int) -> str:
    # A JSON string is a TOML string, except for one control character that JSON does not escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_MAX_BYTES = 8 << 20  # 50,000 breaks; tomllib takes up to 60 times as much memory


def load_baseline(path: Path) -> Baseline:
    """Read a baseline from a file; raise an OSError if that fails, a MalformedBaseline if it is not a baseline."""
    try:
        text = read_regular(path, _MAX_BYTES).decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError:
        raise MalformedBaseline("it is not UTF-8 text") from None
    return parse_baseline(text)


def save_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline to a file; the old file stays until the new one is complete on disk.

    The file keeps its permissions. If the path is a symbolic link, its target is replaced. An OSError is raised if the
    file cannot be written or would be too large to read. A file that is not a baseline is not replaced, but raises a
    MalformedBaseline.
    """
    content = format_baseline(baseline).encode()
    if len(content) > _MAX_BYTES:
        raise OSError(errno.EFBIG, f"it would be larger than {_MAX_BYTES >> 20} MiB", str(path))
    target = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        load_baseline(target)
        if not os.access(target, os.W_OK):  # replacing the file would ignore that it is read-only
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    with atomic_replacement(target) as temporary:
        temporary.write_bytes(content)
