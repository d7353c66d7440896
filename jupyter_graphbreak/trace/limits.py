"""Limits for reading logs: enough for any log that PyTorch writes, but finite for hostile ones."""

from __future__ import annotations

import time

import msgspec


class ReadingLimits(msgspec.Struct, frozen=True):
    """The limits that stop the reading of logs; a note says if one was reached.

    Parameters
    ----------
    files : int
        Files in a folder and its subfolders.
    line, payload : int
        Bytes of one line and of the text that follows an entry.
    text : int
        Bytes of text kept in memory for one file.
    entries : int
        Entries of one file kept in memory.
    processes : int
        Processes that wrote into one file.
    unpacked, ratio : int
        Bytes that any compressed file may unpack to, and bytes per compressed byte for larger files.
    download : int
        Bytes of a file in object storage, which is copied to a temporary folder while it is read.
    reports : int
        Bytes of different reports, as JSON, before graphs are listed without operations.
    seconds : float
        The time for all files.
    """

    files: int = 4096
    line: int = 4 << 20
    payload: int = 16 << 20
    text: int = 256 << 20
    entries: int = 500_000
    processes: int = 4096
    unpacked: int = 256 << 20
    ratio: int = 200
    download: int = 1 << 30
    reports: int = 64 << 20
    seconds: float = 900.0


class Deadline:
    """The time at which reading stops."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """The seconds until the deadline; negative after it."""
        return self._end - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self._end
