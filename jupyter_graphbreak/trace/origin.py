"""What a log says of its run as a whole: versions, settings, devices; and what no log says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak.recording import additions
from jupyter_graphbreak.recording.records import Record, is_resume

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEVICE = re.compile(r'"\w+\[[^\]"]*\](?:\[[^\]"]*\])?(?P<device>[a-z]+(?::\d+)?)"')
_ROOT = re.compile(r"^(?P<root>.*?/lib/python3\.\d+)/")
_HOME = re.compile(r"^(?P<home>/(?:home|Users)/[^/]+|/root)/")
_SETTINGS = ("nested_graph_breaks", "recompile_limit")
WHAT_NO_LOG_HAS = (
    "A trace log does not say what Dynamo refuses before it begins (generators, functions called under a dispatch "
    "mode), which resume functions never ran, which part of a line broke the graph (several breaks of one kind on one "
    "line may be listed as one), nor how long the run took."
)
WHAT_NO_LISTING_SAYS = (
    "This log does not say at which line a resume function goes on (torch 2.13 and later do): the line of its break "
    "stands there."
)

WHAT_OLD_LOGS_LACK = (
    "Before torch 2.11 a log does not tell a function that was skipped at a break from one whose compilation was an "
    "error: both are listed as errors."
)


class Origin:
    """Collects, record by record, what a process says of itself."""

    def __init__(self) -> None:
        self._torch: str | None = None
        self._python: str | None = None
        self._config: dict[str, Any] = {}
        self._devices: dict[str, None] = {}
        self._roots: dict[str, None] = {}
        self._home: str | None = None
        self._complete = False
        self._failed = False
        self._resumed = 0
        self._listed = 0

    def read(self, record: Record) -> None:
        """Read one record, before it is made lighter."""
        match record.kind:
            case "graphbreak_run":
                self._complete = True
            case "artifact:torch_version":
                self._torch = self._torch or _json(record.payload).get("pytorch_version")
            case "artifact:dynamo_error":
                self._failed = True
            case "dynamo_start":
                self._resumed += is_resume(_started(record.data))
            case additions.ResumedAt.kind:
                self._listed += 1
            case "compilation_metrics":
                self._read_metrics(record.data)
            case "dynamo_output_graph":
                self._devices.update(dict.fromkeys(match["device"] for match in _DEVICE.finditer(record.payload or "")))
            case "str":
                self._read_filename(record.data)
            case _:
                pass

    def records(self, notes: Iterable[str], hints: Iterable[str] = ()) -> list[Record]:
        """Return what was collected as records of ours.

        Parameters
        ----------
        notes, hints : iterable of str
            What is to be said of the log itself; what the reader can do to see more.
        """
        made: list[additions.Addition] = [additions.Note(level="warning", message=message) for message in notes]
        made += [additions.Note(level="info", message=message) for message in hints]
        if not self._complete:  # else the log is a recording of ours, and says all this itself
            made.append(additions.Note(level="info", message=WHAT_NO_LOG_HAS))
            if self._torch is None and self._failed:  # the versions that logs name begin with 2.11
                made.append(additions.Note(level="info", message=WHAT_OLD_LOGS_LACK))
            if self._resumed > self._listed:
                made.append(additions.Note(level="info", message=WHAT_NO_LISTING_SAYS))
            used = ", ".join(sorted(self._devices)) or "unknown"
            made.append(additions.DeviceUsed(requested=used, used=used))
            made.append(
                additions.RunSummary(
                    torch=self._torch,
                    python=self._python,
                    config=self._config,
                    library_roots=list(self._roots),
                    folder=str(Path.cwd()),
                    home=self._home,
                )
            )
        return [Record({addition.kind: msgspec.to_builtins(addition)}) for addition in made]

    def _read_metrics(self, metrics: Any) -> None:
        if not isinstance(metrics, dict) or self._config:
            return
        self._torch = self._torch or metrics.get("pytorch_version")
        self._python = self._python or (str(metrics.get("python_version") or "").partition(" ")[0] or None)
        config = _json(metrics.get("dynamo_config"))
        self._config = {name: config[name] for name in _SETTINGS if name in config}

    def _read_filename(self, interned: Any) -> None:
        if not (isinstance(interned, list) and interned and isinstance(interned[0], str)):
            return
        root, home = _ROOT.match(interned[0]), _HOME.match(interned[0])
        if root is not None:
            self._roots[root["root"]] = None
            self._roots[f"{root['root']}/site-packages"] = None
        if home is not None and self._home is None:
            self._home = home["home"]


def _started(data: Any) -> str:
    """Return the name of the function that an entry ``dynamo_start`` is about."""
    stack = data.get("stack") if isinstance(data, dict) else None
    entry = stack[-1] if isinstance(stack, list) and stack else None
    return str(entry.get("name")) if isinstance(entry, dict) else ""


def _json(text: Any) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(text) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
