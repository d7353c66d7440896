"""Open the file of a trace, compressed or not, for reading from its beginning to its end."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import zstandard

from jupyter_graphbreak.records.regular_files import open_regular
from jupyter_graphbreak.trace.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BUFFER = 1 << 20
_LIMITS = Limits()
_BLOCK = 1 << 17  # of zstd; what was read of one that is damaged is lost
#: What a damaged compressed file raises while it is read.
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


class TooMuchUnpacked(Exception):  # noqa: N818 - reads as the sentence it reports
    """A compressed file unpacks to far more than its size lets one expect."""


@contextlib.contextmanager
def opened(path: Path, on_read: Callable[[int], None] = lambda _: None, limits: Limits = _LIMITS) -> Iterator[BinaryIO]:
    """Open a file; what it is compressed with is told by its first bytes, not by its name.

    Parameters
    ----------
    path : Path
    on_read : callable
        Told, while the file is read, how many further bytes of it were taken from the disk.
    limits : Limits
        How much a compressed file may unpack to.

    Raises
    ------
    OSError
        If it cannot be opened or is no regular file.
    TooMuchUnpacked
        While it is read, if it unpacks to more than that.
    """
    with open_regular(path) as file:
        first = file.read(4)
        file.seek(0)
        counted = _buffered(_Counted(file, on_read))
        if first.startswith(_GZIP):
            unpacking = gzip.GzipFile(fileobj=counted)  # buffered itself; what precedes damage is not lost
            yield cast("BinaryIO", _Unpacked(unpacking, _most(file, limits)))
        elif first == _ZSTD:
            reader = zstandard.ZstdDecompressor().stream_reader(counted, read_across_frames=True)
            yield cast("BinaryIO", _Unpacked(_buffered(reader, _BLOCK), _most(file, limits)))
        else:
            yield counted


def _buffered(raw: object, size: int = _BUFFER) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", raw), size))


def _most(file: io.FileIO, limits: Limits) -> int:
    return max(limits.unpacked, limits.ratio * os.fstat(file.fileno()).st_size)


class _Unpacked:
    """Reads what a compressed file unpacks to, up to a limit."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream = stream
        self._left = most

    def read(self, size: int) -> bytes:
        return self._counted(self._stream.read(size))

    def readline(self, size: int) -> bytes:
        return self._counted(self._stream.readline(size))

    def _counted(self, text: bytes) -> bytes:
        self._left -= len(text)
        if self._left < 0:
            raise TooMuchUnpacked
        return text


class _Counted(io.RawIOBase):
    """Reads a file and says how much."""

    def __init__(self, file: io.RawIOBase | io.FileIO, on_read: Callable[[int], None]) -> None:
        super().__init__()
        self._file = file
        self._on_read = on_read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        number = self._file.readinto(buffer) or 0
        self._on_read(number)
        return number
