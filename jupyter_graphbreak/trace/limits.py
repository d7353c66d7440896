"""How much of a log is read: enough for any that PyTorch writes, and an end for those that somebody made up."""

from __future__ import annotations

import time

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """What ends the reading of logs; a note says so if one did.

    Parameters
    ----------
    files : int
        Files in a folder and the folders in it.
    line, payload : int
        Bytes of one line and of the text that follows an entry.
    text : int
        Bytes of text that are held for one file.
    entries : int
        Entries of one file that are held.
    processes : int
        Processes that wrote into one file.
    unpacked, ratio : int
        Bytes that a compressed file may unpack to, however large it is; and how many for each of its own bytes.
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
    seconds: float = 900.0


class Deadline:
    """Says when the time for reading is over.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._end
