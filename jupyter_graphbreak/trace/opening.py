"""Open the file of a trace, compressed or not, for reading from its beginning to its end."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from typing import TYPE_CHECKING, BinaryIO, cast

import zstandard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BUFFER = 1 << 20
_BLOCK = 1 << 17  # of zstd; what was read of one that is damaged is lost
#: What a damaged compressed file raises while it is read.
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


@contextlib.contextmanager
def opened(path: Path, on_read: Callable[[int], None] = lambda _: None) -> Iterator[BinaryIO]:
    """Open a file; what it is compressed with is told by its first bytes, not by its name.

    Parameters
    ----------
    path : Path
    on_read : callable
        Told, while the file is read, how many further bytes of it were taken from the disk.

    Raises
    ------
    OSError
        If it cannot be opened.
    """
    with path.open("rb", buffering=0) as file:
        first = file.read(4)
        file.seek(0)
        counted = _buffered(_Counted(file, on_read))
        if first.startswith(_GZIP):
            yield cast("BinaryIO", gzip.GzipFile(fileobj=counted))  # buffered itself; what precedes damage is not lost
        elif first == _ZSTD:
            yield _buffered(zstandard.ZstdDecompressor().stream_reader(counted, read_across_frames=True), _BLOCK)
        else:
            yield counted


def _buffered(raw: object, size: int = _BUFFER) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", raw), size))


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
