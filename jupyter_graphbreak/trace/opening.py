"""Open a trace file, compressed or not, for sequential reading."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import zstandard

from jupyter_graphbreak.records.regular_files import open_regular
from jupyter_graphbreak.trace.limits import ReadingLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BUFFER_SIZE = 1 << 20
_LIMITS = ReadingLimits()
_ZSTD_BLOCK_SIZE = 1 << 17  # with buffers of zstd's block size, only the data of a damaged block is lost
#: The exceptions that reading a damaged compressed file raises.
DAMAGE_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


class TooMuchUnpacked(Exception):  # noqa: N818 - reads as the sentence it reports
    """A compressed file unpacks to far more than its size suggests."""


@contextlib.contextmanager
def open_trace(
    path: Path, on_read: Callable[[int], None] = lambda _: None, limits: ReadingLimits = _LIMITS
) -> Iterator[BinaryIO]:
    """Open a trace file for reading; its first bytes, not its name, determine how it is decompressed.

    Parameters
    ----------
    on_read : callable
        Receives, during reading, the number of further bytes that were read from the disk.

    Raises
    ------
    OSError
        If the file cannot be opened or is not a regular file.
    TooMuchUnpacked
        During reading, if the file unpacks to more than the limit.
    """
    with open_regular(path) as file:
        magic = file.read(4)
        file.seek(0)
        stream = _add_buffer(_CountingReader(file, on_read))
        if magic.startswith(_GZIP_MAGIC):
            unpacked = gzip.GzipFile(fileobj=stream)  # it has its own buffer, so data before a damaged part is not lost
            yield cast("BinaryIO", _LimitedReader(unpacked, _max_size(file, limits)))
        elif magic == _ZSTD_MAGIC:
            reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            yield cast("BinaryIO", _LimitedReader(_add_buffer(reader, _ZSTD_BLOCK_SIZE), _max_size(file, limits)))
        else:
            yield stream


def _add_buffer(raw_stream: object, size: int = _BUFFER_SIZE) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", raw_stream), size))


def _max_size(file: io.FileIO, limits: ReadingLimits) -> int:
    return max(limits.unpacked, limits.ratio * os.fstat(file.fileno()).st_size)


class _LimitedReader:
    """Reads the unpacked data of a compressed file, and raises if it exceeds a limit."""

    def __init__(self, stream: Any, max_size: int) -> None:
        self._stream = stream
        self._bytes_left = max_size

    def read(self, size: int) -> bytes:
        return self._count_bytes(self._stream.read(size))

    def readline(self, size: int) -> bytes:
        return self._count_bytes(self._stream.readline(size))

    def _count_bytes(self, data: bytes) -> bytes:
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise TooMuchUnpacked
        return data


class _CountingReader(io.RawIOBase):
    """Reads a file, and calls a function with the number of bytes of each read."""

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
