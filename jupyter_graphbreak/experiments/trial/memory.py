"""Share the memory of large tensors among all copies of an entry, as long as no run changes it."""

from __future__ import annotations

import ctypes
import functools
import gc
import mmap
import os
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.tensor_values import disable_gradients_and_overrides
from jupyter_graphbreak.experiments.trial.copies import (
    UNCHANGED_MEMORY,
    MemoryProvider,
    memory_key,
    storage_to_share,
)
from jupyter_graphbreak.experiments.trial.object_kinds import is_plain_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

#: The size below which storages are not shared.
_MIN_SHARED_BYTES = 1 << 18
#: When the copies exceed this size, garbage is collected once, as reference cycles may keep earlier copies alive.
_COLLECTION_THRESHOLD_BYTES = 1 << 26
#: The fraction of the available memory that trials may use.
_TRIAL_SHARE = 0.5
#: Trials of a call may use at most this many times the memory that the call uses.
MAX_GROWTH = 4


class _CopiedStorage(NamedTuple):
    """A storage as it was before all runs, and the copy that the runs use."""

    initial: torch.UntypedStorage
    working_copy: torch.UntypedStorage

    def is_unchanged(self) -> bool:
        return have_equal_bytes(self.initial, self.working_copy)


class StorageCopy(NamedTuple):
    """A copy of a storage, and a reference to the tensor that it was copied from."""

    storage: torch.UntypedStorage
    original: weakref.ref[torch.Tensor]


class StorageRecorder(MemoryProvider):
    """Copies storages and remembers the originals. An original that is unchanged can restore its copy."""

    def __init__(self) -> None:
        self.storage_copies: list[StorageCopy] = []

    def copy_storage(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
        """Return a copy of a storage, or ``None`` if the storage is small."""
        if storage.nbytes() < _MIN_SHARED_BYTES:
            return None
        self.storage_copies.append(StorageCopy(storage.clone(), weakref.ref(tensor)))
        return self.storage_copies[-1].storage


class SharedMemory(MemoryProvider):
    """Large memory that several copies share. All runs use one copy, which is restored before each run.

    If the tensor that an existing copy comes from is unchanged, all runs use this copy, which is restored from the
    tensor. ``digests`` are those of tensors in memory that no run has changed.
    """

    def __init__(self, storage_copies: Iterable[StorageCopy] = ()) -> None:
        self.digests: dict[Any, torch.Tensor] = {}
        self._copied_bytes = 0
        self._copied_storages: list[_CopiedStorage] = []
        self._storages_by_key: dict[Any, _CopiedStorage] = {}
        #: The memory of tensors that runs have created, by name, size and device.
        self._created_storages: dict[tuple[str, int, torch.device], _CopiedStorage] = {}
        self._copies_by_key = {memory_key(storage_copy.storage): storage_copy for storage_copy in storage_copies}

    def copy_storage(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
        """Return the storage that copies of a storage share, or ``None`` if each copy has its own."""
        del tensor
        if storage.nbytes() < _MIN_SHARED_BYTES:
            return None
        copied_storage = self._storages_by_key.get(memory_key(storage))
        if copied_storage is None:
            copied_storage = self._new_copied_storage(storage)
            self._add(copied_storage)
        elif copied_storage.working_copy.data_ptr() == storage.data_ptr() and not copied_storage.is_unchanged():
            return None  # a copy of a copy that a run has changed
        return copied_storage.working_copy

    def _new_copied_storage(self, storage: torch.UntypedStorage) -> _CopiedStorage:
        storage_copy = self._copies_by_key.get(memory_key(storage))
        original = storage_copy.original() if storage_copy is not None else None
        if original is not None:
            initial = original.untyped_storage()
            if initial.data_ptr() != storage.data_ptr() and have_equal_bytes(initial, storage):
                return _CopiedStorage(initial, storage)
        bytes_before = self._copied_bytes
        self._copied_bytes += storage.nbytes()
        if bytes_before <= _COLLECTION_THRESHOLD_BYTES < self._copied_bytes:
            gc.collect()
            _release_free_memory()
        return _CopiedStorage(storage, storage.clone())

    def _add(self, copied_storage: _CopiedStorage) -> None:
        self._copied_storages.append(copied_storage)
        for storage in copied_storage:
            self._storages_by_key[memory_key(storage)] = copied_storage

    def share_created(self, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Share large memory that a run has created, such as the state of an optimizer, among all copies.

        From now on, :meth:`restore` restores the current content. A tensor for which a run of another copy has created
        memory of the same size under the same name moves into that memory, and takes over its content. A MemoryError is
        raised if the content takes too much memory to be saved.
        """
        moved_storages: dict[Any, _CopiedStorage] = {}
        with disable_gradients_and_overrides(), torch.inference_mode(mode=False):
            for name, tensor in named_tensors:
                storage = storage_to_share(tensor.detach()) if is_plain_tensor(tensor) else None
                if storage is None or storage.nbytes() < _MIN_SHARED_BYTES or self.restores(storage):
                    continue
                key, created_key = memory_key(storage), (name, storage.nbytes(), storage.device)
                if key not in moved_storages:
                    if created_key not in self._created_storages:
                        self._created_storages[created_key] = _save_content(storage)
                        self._add(self._created_storages[created_key])
                        continue
                    moved_storages[key] = self._created_storages[created_key]
                working_copy = moved_storages[key].working_copy
                view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                tensor.data = view.set_(working_copy, tensor.storage_offset(), tensor.size(), tensor.stride())
        self.restore({memory_key(moved_storage.working_copy) for moved_storage in moved_storages.values()})

    def restores(self, storage: torch.UntypedStorage) -> bool:
        """Return whether :meth:`restore` restores a storage."""
        copied_storage = self._storages_by_key.get(memory_key(storage))
        return copied_storage is not None and copied_storage.working_copy.data_ptr() == storage.data_ptr()

    def is_intact(self, storage: torch.UntypedStorage) -> bool:
        """Return whether runs have not changed a storage that :meth:`restore` restores."""
        return self.restores(storage) and self._storages_by_key[memory_key(storage)].is_unchanged()

    def restore(self, keys: Container[Any] | None = None) -> bool:
        """Undo the changes that runs have made to storages, by default to all; return whether there were any."""
        changed_copies = [
            copied_storage
            for copied_storage in self._copied_storages
            if (keys is None or memory_key(copied_storage.working_copy) in keys) and not copied_storage.is_unchanged()
        ]
        for copied_storage in changed_copies:
            if copied_storage.working_copy.nbytes() != copied_storage.initial.nbytes():
                copied_storage.working_copy.resize_(copied_storage.initial.nbytes())
            copied_storage.working_copy.copy_(copied_storage.initial)
        return bool(changed_copies)

    def return_free_memory(self) -> None:
        """Return to the system the memory that runs have freed, if any memory is shared.

        The next run takes longer, because the system has to provide the memory again.
        """
        if self._copied_storages:
            _release_free_memory()

    def collect_garbage(self) -> None:
        """Free programs and copies that are no longer used, if any memory is shared."""
        if self._copied_storages:
            gc.collect()
            _release_free_memory()

    def discard_working_copies(self) -> None:
        """Return the memory of the working copies to the system.

        Their content is undefined until :meth:`restore`, so only a subject with its own memory may run meanwhile.
        """
        for copied_storage in self._copied_storages:
            _discard_content(copied_storage.working_copy)

    def changed_storages(self) -> list[tuple[torch.UntypedStorage, torch.UntypedStorage]]:
        """Return the initial and the current content of the storages that runs have changed."""
        return [
            (copied_storage.initial, copied_storage.working_copy)
            for copied_storage in self._copied_storages
            if not copied_storage.is_unchanged()
        ]

    def memo(self, excluded_keys: Container[Any] = ()) -> dict[Any, Any]:
        """Return a memo that makes copies use the shared memory, except the storages with the excluded keys."""
        return {
            key: copied_storage.working_copy
            for key, copied_storage in self._storages_by_key.items()
            if memory_key(copied_storage.working_copy) not in excluded_keys
        }

    def unchanged_memo(self) -> dict[Any, Any]:
        """Return a memo that makes copies share the memory that no run has changed."""
        memo: dict[Any, Any] = {
            memory_key(copied_storage.working_copy): copied_storage.initial
            for copied_storage in self._copied_storages
            if copied_storage.is_unchanged()
        }
        return memo | {UNCHANGED_MEMORY: frozenset(memo)}


def _save_content(storage: torch.UntypedStorage) -> _CopiedStorage:
    """Return a storage with a copy of its content; raise a MemoryError if there is not enough memory."""
    limit = memory_limit(storage.device)
    if storage.nbytes() > limit:
        message = (
            f"a copy of a tensor that the call creates takes {format_bytes(storage.nbytes())}, but only "
            f"{format_bytes(limit)} of the limit (half of the free memory) is left"
        )
        raise MemoryError(message)
    return _CopiedStorage(storage.clone(), storage)


def release_content(tensors: Iterable[torch.Tensor]) -> None:
    """Make large tensors empty, and release their memory unless other tensors use it."""
    with disable_gradients_and_overrides(), torch.inference_mode(mode=False):
        for tensor in filter(is_plain_tensor, tensors):
            storage = storage_to_share(tensor.detach())
            if storage is not None and storage.nbytes() >= _MIN_SHARED_BYTES:
                tensor.data = tensor.new_empty(0)


def _discard_content(storage: torch.UntypedStorage) -> None:
    """Return the memory of a storage to the system, if the system can do so while the storage keeps its address."""
    if storage.device.type != "cpu" or not sys.platform.startswith("linux"):
        return
    start = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return the C library's function that releases free memory, or ``None`` if there is none."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # some systems lack it
        return None
    return trim


def _release_free_memory() -> None:
    """Return free memory to the system.

    Gradients are large and live for one run only. Small allocations between them live longer, so the C library would
    keep the memory of every run's gradients.
    """
    if (trim := _malloc_trim()) is not None:
        trim(0)


def have_equal_bytes(one: torch.UntypedStorage, other: torch.UntypedStorage) -> bool:
    """Return whether two storages have the same content."""
    if one.nbytes() != other.nbytes() or one.device != other.device:
        return False
    if one.data_ptr() == other.data_ptr():
        return True
    end_of_words = one.nbytes() // 8 * 8
    for dtype, start, end in ((torch.int64, 0, end_of_words), (torch.uint8, end_of_words, one.nbytes())):
        one_view, other_view = (_typed_view(storage, dtype, start, end) for storage in (one, other))
        if not torch.equal(one_view, other_view):
            return False
    return True


def _typed_view(storage: torch.UntypedStorage, dtype: torch.dtype, start: int, end: int) -> torch.Tensor:
    size = dtype.itemsize
    view = torch.empty(0, dtype=dtype, device=storage.device)
    return view.set_(storage, start // size, ((end - start) // size,), (1,))


def available_memory(device: torch.device | None = None) -> int:
    """Return the free memory in bytes of a CUDA device, or of the machine within the limits of this process."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min([_free_on_machine(), *_free_in_containers()])


def _free_on_machine() -> int:
    for line in _lines_of(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # some systems lack it: assume 4 GiB
        return 4 << 30


def _free_in_containers(root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Return the free memory in bytes of each control group, version 1 or 2, that limits this process."""
    free_sizes = []
    for line in _lines_of(groups):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            free_sizes += _free_in_groups(root, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            free_sizes += _free_in_groups(root / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")
    return free_sizes


def _free_in_groups(root: Path, path: str, limit_file: str, usage_file: str) -> list[int]:
    """Return the free memory in bytes of a control group and its parents, including a container's root group."""
    folders = [root / path.strip("/")]
    while folders[-1] != root and root in folders[-1].parents:
        folders.append(folders[-1].parent)
    free_sizes = []
    for folder in dict.fromkeys([*folders, root]):
        numbers = [next(_lines_of(folder / name), "") for name in (limit_file, usage_file)]
        if all(number.isdigit() for number in numbers):
            droppable_bytes = _droppable_bytes(folder)
            free_sizes.append(max(0, int(numbers[0]) - max(0, int(numbers[1]) - droppable_bytes)))
    return free_sizes


def _droppable_bytes(folder: Path) -> int:
    """Return the size in bytes of the file cache in the used memory. The kernel can drop this cache."""
    for line in _lines_of(folder / "memory.stat"):
        name, _, number = line.partition(" ")
        if name in {"inactive_file", "total_inactive_file"}:
            return int(number)
    return 0


def _lines_of(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except OSError:
        return


def memory_limit(device: torch.device | None = None) -> int:
    """Return the number of bytes that trials may use now."""
    return int(available_memory(device) * _TRIAL_SHARE)


def format_bytes(size: float) -> str:
    """Return a number of bytes in MiB or GiB, as a string."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
