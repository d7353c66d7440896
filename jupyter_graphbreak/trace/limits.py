"""Limits for reading logs: high enough for any log that PyTorch writes, but safe for hostile ones."""

from __future__ import annotations

import time

import msgspec


class ReadingLimits(msgspec.Struct, frozen=True):
    """The limits for reading logs; if one is reached, a note in the report says so."""

    #: The maximum number of files in a folder and its subfolders.
    files: int = 4096
    #: The maximum number of bytes of one line, and of the text that follows a record.
    line: int = 4 << 20
    payload: int = 16 << 20
    #: The maximum number of bytes of text from one file that are in memory.
    text: int = 256 << 20
    #: The maximum number of records from one file that are in memory.
    entries: int = 500_000
    #: The maximum number of processes that wrote into one file.
    processes: int = 4096
    #: The maximum number of bytes that any compressed file may unpack to, and for larger files, the maximum number of
    #: bytes per compressed byte.
    unpacked_bytes: int = 256 << 20
    ratio: int = 200
    #: The maximum number of bytes of a file in object storage, which is copied to a temporary folder for reading.
    downloaded_bytes: int = 1 << 30
    #: The maximum total size, in bytes of JSON, of all different reports. The graphs of further reports are listed
    #: without operations.
    reports: int = 64 << 20
    #: The time limit for all files, in seconds.
    seconds: float = 900.0


class Deadline:
    """The time at which reading a log has to stop."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """The seconds until the deadline; negative after it."""
        return self._deadline - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self._deadline
