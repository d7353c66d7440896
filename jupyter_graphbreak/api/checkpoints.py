"""Repair checkpoints in which parameter names contain the prefix that ``torch.compile(model)`` adds."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_graphbreak._torch_compat.toolchain import require_torch
from jupyter_graphbreak.records.regular_files import atomic_replacement, open_regular

#: The prefix at the beginning of a name or after a dot.
_WRAPPER_PREFIX = re.compile(r"(?:^|(?<=\.))_orig_mod(?:\.|$)")
#: The keys under which optimizers keep lists of names.
_NAME_LIST_KEYS = frozenset({"params", "param_names"})
#: The attribute of a state dict with the versions of its modules.
_VERSIONS_ATTRIBUTE = "_metadata"
#: The limits of a file: bytes of its pickled objects, number of files in its archive, bytes of a safetensors header.
_MAX_PICKLED_BYTES = 1 << 28
_MAX_ENTRIES = 1 << 20
_MAX_HEADER_BYTES = 100 << 20
_SAFETENSORS = ".safetensors"


class NotACheckpointError(ValueError):
    """A file is not a checkpoint that can be repaired; the message states the reason."""


@dataclass(frozen=True)
class RepairedCheckpoint:
    """A repaired checkpoint.

    Parameters
    ----------
    path : Path
        The new file.
    renamed : dict
        The new names by the old ones.
    on_cpu : bool
        Whether the tensors are on the CPU now, because this machine lacks their device.
    """

    path: Path
    renamed: dict[str, str]
    on_cpu: bool = False


def repair_checkpoint(path: str | os.PathLike[str], new: str | os.PathLike[str]) -> RepairedCheckpoint:
    """Write a copy of a checkpoint without the prefix ``_orig_mod.`` in parameter names.

    The prefix is removed from the keys of all dicts, including those of compiled submodules and of optimizer states.
    Everything else stays the same: tensors that share memory, their types and devices, the order, and the versions in a
    state dict. If this machine lacks a device of the tensors, all of them move to the CPU. A file that ``torch.save``
    wrote is loaded with ``weights_only=True``, so no code in it runs. It is memory-mapped rather than read.

    Parameters
    ----------
    path : path
        A file that ``torch.save`` wrote, or one whose name ends in ``.safetensors``.
    new : path
        The file to write.

    Returns
    -------
    RepairedCheckpoint
        ``renamed`` is empty if there was nothing to repair; in that case, no file is written.

    Raises
    ------
    FileExistsError
        If the new file exists.
    NotACheckpointError
        If the file is not a checkpoint, or if two names would become the same.
    OSError
        If a file cannot be read or written.
    """
    source, target = Path(path), Path(new)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    repair = _repair_safetensors if source.suffix == _SAFETENSORS else _repair_saved_by_torch
    return RepairedCheckpoint(target, *repair(source, target))


def _without_prefix(name: str) -> str:
    return _WRAPPER_PREFIX.sub("", name).removesuffix(".")


def _repair_saved_by_torch(source: Path, target: Path) -> tuple[dict[str, str], bool]:
    require_torch()
    import torch

    _check_archive(source)
    loaded, is_moved = _load_checkpoint(source)
    renamed = _rename_all_keys(loaded)
    if renamed:
        with atomic_replacement(target) as temporary:
            torch.save(loaded, temporary)
    return renamed, is_moved


def _load_checkpoint(source: Path) -> tuple[Any, bool]:
    """Return the content of a checkpoint, and whether its tensors are on the CPU because their device is missing."""
    import torch

    last_error: Exception | None = None
    for device in (None, "cpu"):
        try:
            return torch.load(source, weights_only=True, mmap=True, map_location=device), device is not None
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - PyTorch raises all kinds of errors for damaged files
            last_error = error
    reason = next((line.strip() for line in str(last_error).split("\n") if line.strip()), type(last_error).__name__)
    raise NotACheckpointError(f"{source} cannot be loaded with weights_only=True: {reason}")


def _check_archive(path: Path) -> None:
    """Reject a file that ``torch.save`` did not write, a compressed one, and one with too many entries or objects."""
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, struct.error, UnicodeDecodeError):
            raise NotACheckpointError(f"{path} is not a file written by torch.save") from None
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or len(entries) > _MAX_ENTRIES:
        raise NotACheckpointError(f"{path} is not a file written by torch.save: it is compressed or has too many parts")
    pickled_sizes = [entry.file_size for entry in entries if entry.filename.endswith("data.pkl")]
    if len(pickled_sizes) != 1 or pickled_sizes[0] > _MAX_PICKLED_BYTES:
        raise NotACheckpointError(f"{path} is not a checkpoint: it describes no objects, or too many")


def _rename_all_keys(loaded: Any) -> dict[str, str]:
    """Rename keys in place, at any depth; return the new names by the old ones."""
    renamed: dict[str, str] = {}
    pending: list[Any] = [loaded]
    visited_ids: set[int] = set()
    while pending:
        value = pending.pop()
        if id(value) in visited_ids or not isinstance(value, dict | list | tuple):
            continue
        visited_ids.add(id(value))
        if not isinstance(value, dict):
            pending += reversed(value)
            continue
        renamed |= _rename_keys(value)
        versions = getattr(value, _VERSIONS_ATTRIBUTE, None)
        if isinstance(versions, dict):
            # The wrapper has a separate entry, which the entry of the wrapped module replaces.
            renamed_versions = {
                _without_prefix(key) if isinstance(key, str) else key: part for key, part in versions.items()
            }
            versions.clear()
            versions.update(renamed_versions)
        pending += reversed(value.values())
    return renamed


def _rename_keys(mapping: dict[Any, Any]) -> dict[str, str]:
    renamed = {key: _without_prefix(key) for key in mapping if isinstance(key, str) and _WRAPPER_PREFIX.search(key)}
    for list_key in _NAME_LIST_KEYS & mapping.keys():
        names = mapping[list_key]
        if isinstance(names, list | tuple) and any(
            isinstance(item, str) and _WRAPPER_PREFIX.search(item) for item in names
        ):
            mapping[list_key] = type(names)(_without_prefix(item) if isinstance(item, str) else item for item in names)
            renamed |= {
                item: _without_prefix(item) for item in names if isinstance(item, str) and _WRAPPER_PREFIX.search(item)
            }
    if renamed:
        items = [(renamed.get(key, key) if isinstance(key, str) else key, part) for key, part in mapping.items()]
        _reject_duplicate_names(items)
        mapping.clear()
        mapping.update(items)
    return renamed


def _reject_duplicate_names(items: list[tuple[Any, Any]]) -> None:
    names: set[Any] = set()
    for name, _ in items:
        if name in names:
            raise NotACheckpointError(f"two entries would be named {name!r}; rename one of them first")
        names.add(name)


def _repair_safetensors(source: Path, target: Path) -> tuple[dict[str, str], bool]:
    """Write the file with a new header; the data after the header stays unchanged."""
    with open_regular(source) as file:
        size = os.fstat(file.fileno()).st_size
        length_field = file.read(8)
        length = struct.unpack("<Q", length_field)[0] if len(length_field) == 8 else size  # noqa: PLR2004
        if length > min(size - 8, _MAX_HEADER_BYTES):
            raise NotACheckpointError(f"{source} is not a safetensors file: its header is damaged")
        header = _parse_header(source, file.read(length))
        pairs = [(name if name == "__metadata__" else _without_prefix(name), part) for name, part in header.items()]
        renamed = {old: new for old, (new, _) in zip(header, pairs, strict=True) if old != new}
        if not renamed:
            return {}, False
        _reject_duplicate_names(pairs)
        text = json.dumps(dict(pairs), separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)  # align the data to 8 bytes, as safetensors' own writer does
        with atomic_replacement(target) as temporary, temporary.open("wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            shutil.copyfileobj(file, out)
    return renamed, False


def _parse_header(source: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise NotACheckpointError(f"{source} is not a safetensors file: its header is damaged")
    return header
