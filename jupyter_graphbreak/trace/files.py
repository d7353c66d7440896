"""Read and write structured traces as files, in the format that ``TORCH_TRACE`` uses.

An entry is a line ``PREFIX] {json}``; the lines of its payload follow, each after a tab. Lines that start with ``#``
are comments, ours: a recording says in them how it was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.recording.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_PREFIX = "V0000 00:00:00.000000 0 jupyter_graphbreak:0] "


def read_trace(path: Path) -> list[Record]:
    """Read a trace.

    Parameters
    ----------
    path : Path
        A file that ``TORCH_TRACE`` or :func:`write_trace` wrote.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it holds no entry of a trace.
    """
    found: list[tuple[dict[str, object], list[str]]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        if line.startswith("\t") and found:
            found[-1][1].append(line[1:])
        elif line and not line.startswith("#"):
            envelope = _envelope(line)
            if envelope is not None:
                found.append((envelope, []))
    if not found:
        raise ValueError(f"{path.name} is not a structured trace: run the program with TORCH_TRACE=FOLDER")
    return [Record(envelope, "\n".join(payload) if payload else None) for envelope, payload in found]


def write_trace(path: Path, records: Iterable[Record], comments: Iterable[str] = ()) -> None:
    """Write records as a trace, after some lines of comment."""
    lines = [f"# {comment}" for comment in comments]
    for record in records:
        lines.append(_PREFIX + msgspec.json.encode(record.envelope).decode())
        if record.payload is not None:
            lines += [f"\t{line}" for line in record.payload.split("\n")]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _envelope(line: str) -> dict[str, object] | None:
    _, bracket, text = line.partition("] ")
    try:
        envelope = msgspec.json.decode(text) if bracket else None
    except msgspec.DecodeError:
        return None
    return envelope if isinstance(envelope, dict) else None
