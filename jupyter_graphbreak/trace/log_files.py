"""Find and open the files that are traces, compressed or not, in folders and in object storage.

Files in object storage are copied one at a time to a temporary folder and read there. All storage that ``fsspec``
supports can be used: ``s3://``, ``gs://``, ``abfs://``, ``hf://``, ``memory://``, ...
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import re
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import zstandard

from jupyter_graphbreak.records.regular_files import open_regular
from jupyter_graphbreak.trace.entries import starts_like_trace
from jupyter_graphbreak.trace.limits import ReadingLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RANK = re.compile(r"_rank_(\d{1,9})(?:_|\.|$)")
#: A file is recognized as a trace by this many bytes at its beginning.
_HEAD_BYTES = 1 << 16
#: The maximum number of names to read from one folder, so that they can be sorted.
_MAX_NAMES = 1 << 16
_CHUNK_BYTES = 1 << 20
_LIMITS = ReadingLimits()


class UnreadableTrace(ValueError):  # noqa: N818 - the name already states an error
    """There is no readable trace at a path; the message states the reason in one line."""


_GZIP_MAGIC = b"\x1f\x8b"


_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


_BUFFER_SIZE = 1 << 20


_ZSTD_BLOCK_SIZE = 1 << 17  # with buffers of zstd's block size, only the data of a damaged block is lost


#: The exceptions that reading a damaged compressed file raises.
DAMAGE_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


class TooMuchUnpacked(Exception):  # noqa: N818 - the name already states an error
    """A compressed file unpacks to far more than its size suggests."""


@contextlib.contextmanager
def open_trace(
    path: Path, on_read: Callable[[int], None] = lambda _: None, limits: ReadingLimits = _LIMITS
) -> Iterator[BinaryIO]:
    """Open a trace file for reading; its first bytes, not its name, determine how it is decompressed.

    During reading, ``on_read`` receives the number of further bytes that were read from the disk. An OSError is raised
    if the file cannot be opened or is not a regular file. Reading raises a TooMuchUnpacked if the file unpacks to more
    than the limit.
    """
    with open_regular(path) as file:
        magic = file.read(4)
        file.seek(0)
        stream = _add_buffer(_CountingReader(file, on_read))
        if magic.startswith(_GZIP_MAGIC):
            unpacked_file = gzip.GzipFile(
                fileobj=stream
            )  # it has its own buffer, so data before a damaged part is not lost
            yield cast("BinaryIO", _LimitedReader(unpacked_file, _max_size(file, limits)))
        elif magic == _ZSTD_MAGIC:
            reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            yield cast("BinaryIO", _LimitedReader(_add_buffer(reader, _ZSTD_BLOCK_SIZE), _max_size(file, limits)))
        else:
            yield stream


def _add_buffer(raw_stream: object, size: int = _BUFFER_SIZE) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", raw_stream), size))


def _max_size(file: io.FileIO, limits: ReadingLimits) -> int:
    return max(limits.unpacked_bytes, limits.ratio * os.fstat(file.fileno()).st_size)


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


class TraceFiles(NamedTuple):
    """The trace files at a path, and notes about files that were not checked or could not be opened."""

    files: list[Path]
    notes: list[str]


def trace_files(path: Path, limits: ReadingLimits = _LIMITS) -> TraceFiles:
    """Return the trace files at a path: the file itself, or the files in the folder and its subfolders."""
    try:
        if path.is_file():
            return TraceFiles([path], [])
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise UnreadableTrace(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not is_folder:
        raise UnreadableTrace(f"{path}: {'neither a file nor a folder' if exists else 'no such file or folder'}")
    candidates = list(itertools.islice(_files_below(path), limits.files + 1))
    unopened_count = 0
    files = []
    for file in candidates[: limits.files]:
        try:
            if is_trace(file):
                files.append(file)
        except OSError:
            unopened_count += 1
    notes = []
    if unopened_count:
        notes.append(f"{unopened_count} file{'' if unopened_count == 1 else 's'} in {path.name} could not be opened.")
    if len(candidates) > limits.files:
        notes.append(f"Only {limits.files} files in {path.name} were checked: there are more.")
    if not files:
        first_note = f" ({notes[0].rstrip('.')})" if notes else ""
        raise UnreadableTrace(
            f"{path}: no structured trace in this folder{first_note}; run the program with TORCH_TRACE={path}"
        )
    return TraceFiles(sorted(files, key=lambda file: (*rank_sort_key(file.name), str(file))), notes)


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the regular files in a folder and its direct subfolders, in order; a file with several links only once."""
    yielded_files: set[tuple[int, int]] = set()
    for subfolder in (folder, *_sorted_paths_in(folder)):
        for file in _sorted_paths_in(subfolder) if subfolder == folder or subfolder.is_dir() else ():
            if file.is_file() and not file.name.startswith("."):
                with contextlib.suppress(OSError):
                    status = file.stat()
                    if (status.st_dev, status.st_ino) not in yielded_files:
                        yielded_files.add((status.st_dev, status.st_ino))
                        yield file


def _sorted_paths_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as listing:
            return sorted(folder / entry.name for entry in itertools.islice(listing, _MAX_NAMES))
    except OSError:
        return []


def rank_in(name: str) -> int | None:
    """Return the rank in the name of a process's file; ``None`` if the name contains no rank."""
    match = _RANK.search(name)
    return int(match[1]) if match is not None else None


def rank_sort_key(name: str) -> tuple[bool, int]:
    """Return the key that sorts file names by the rank in them, with names without a rank first."""
    rank = rank_in(name)
    return rank is not None, rank or 0


def is_trace(file: Path) -> bool:
    """Return whether the beginning of a file shows that it is a trace."""
    try:
        with open_trace(file) as stream:
            return starts_like_trace(stream.read(_HEAD_BYTES))
    except (TooMuchUnpacked, *DAMAGE_ERRORS):
        return False


def is_url(path: str) -> bool:
    """Return whether a path has the form of a URL, which fsspec opens, rather than that of a local path."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and all(character.isalnum() or character in "+-.:" for character in scheme)


class RemoteFolder:
    """A folder of logs in object storage, or a single log.

    An UnreadableTrace is raised if it cannot be opened, or if the folder contains no files.
    """

    def __init__(self, url: str, limits: ReadingLimits = _LIMITS) -> None:
        self._limits = limits
        self.notes: list[str] = []
        try:
            import fsspec

            self._storage: Any
            self._storage, path = fsspec.core.url_to_fs(url)
            sizes = self._sizes(path)
        except ImportError as error:  # fsspec itself, or the package for this storage
            install_hint = "" if error.name != "fsspec" else ": pip install 'jupyter-graphbreak[storage]'"
            raise UnreadableTrace(f"{url}: {error}{install_hint}") from None
        except FileNotFoundError:
            raise UnreadableTrace(f"{url}: no such file or folder") from None
        except Exception as error:  # noqa: BLE001 - each storage raises its own errors
            raise UnreadableTrace(f"{url}: {type(error).__name__}: {_one_line(error)}") from None
        if len(sizes) > limits.files:
            self.notes.append(f"Only {limits.files} files in {url} were checked: there are more.")
        names = sorted(itertools.islice(sizes, limits.files), key=lambda name: (*rank_sort_key(name), name))
        if not names:
            raise UnreadableTrace(f"{url}: no structured trace in this folder; run the program with TORCH_TRACE=FOLDER")
        #: The size of each file in bytes; the files are in the order in which they are read.
        self.sizes = {name: sizes[name] for name in names}

    def _sizes(self, path: str) -> dict[str, int]:
        """Return the names of the files at a path and below it, with their sizes in bytes."""
        if self._storage.isfile(path):
            return {path: int(self._storage.size(path) or 0)}
        files = self._storage.find(path, maxdepth=2, detail=True)
        if not files and not self._storage.exists(path):
            raise FileNotFoundError(path)
        return {
            name: int(details.get("size") or 0)
            for name, details in sorted(files.items())
            if not PurePosixPath(name).name.startswith(".") and PurePosixPath(name).name
        }

    def url_of(self, name: str) -> str:
        """Return the URL of one of the files."""
        url: str = self._storage.unstrip_protocol(name)
        return url

    @contextlib.contextmanager
    def download(self, name: str) -> Iterator[Path]:
        """Yield the path of a temporary copy of a file; raise an UnreadableTrace if it is unreadable or too large."""
        with tempfile.TemporaryDirectory(prefix="graphbreak-log-") as folder:
            copy = Path(folder) / PurePosixPath(name).name
            bytes_left = self._limits.downloaded_bytes
            try:
                with self._storage.open(name, "rb") as source, copy.open("wb") as target:
                    while bytes_left >= 0 and (chunk := source.read(_CHUNK_BYTES)):
                        target.write(chunk)
                        bytes_left -= len(chunk)
            except Exception as error:  # noqa: BLE001 - each storage raises its own errors
                raise UnreadableTrace(f"{self.url_of(name)}: {type(error).__name__}: {_one_line(error)}") from None
            if bytes_left < 0:
                size = self._limits.downloaded_bytes >> 20
                raise UnreadableTrace(f"{self.url_of(name)}: larger than {size} MiB; download it, and read the copy")
            yield copy


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
