"""Read and write recordings as files, in the format that ``TORCH_TRACE`` uses.

Lines that start with ``#`` are our comments, in which a recording states how it was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.trace.entries import Tally, read_entries
from jupyter_graphbreak.trace.log_files import open_trace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from jupyter_graphbreak.records.records import Record

_ENTRY_PREFIX = "V0000 00:00:00.000000 0 jupyter_graphbreak:0] "


def read_recording(path: Path) -> list[Record]:
    """Read the records of all kinds from a recording, as those of one process."""
    with open_trace(path) as stream:
        return [entry.record for entry in read_entries(stream, Tally())]


def write_recording(path: Path, records: Iterable[Record], comments: Iterable[str] = ()) -> None:
    """Write records as a trace, after the given comments."""
    lines = [f"# {comment}" for comment in comments]
    for record in records:
        lines.append(_ENTRY_PREFIX + msgspec.json.encode(record.envelope).decode())
        if record.payload is not None:
            lines += [f"\t{line}" for line in record.payload.split("\n")]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
