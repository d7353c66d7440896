"""The memory of large tensors, which all copies of an entry share as long as no run changes it."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak.experiments.trial.copies import UNCHANGED, memory_key

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

#: Smaller memory is copied for each copy.
_SMALLEST = 1 << 18
#: The share of the memory that is left of which trials take no more.
_SHARE = 0.5
#: How many times what a call holds its trials take at the most.
GROWTH = 4


class _Block(NamedTuple):
    """Some memory as it was before all runs, and the same for runs to work on."""

    before: torch.UntypedStorage
    work: torch.UntypedStorage

    def is_unchanged(self) -> bool:
        return same_bytes(self.before, self.work)


class Twin(NamedTuple):
    """The memory of a copy that is kept, and the tensor that it was copied from, if that still lives."""

    kept: torch.UntypedStorage
    original: weakref.ref[torch.Tensor]


class KeptMemory:
    """Notes what large memory was copied from: what has not changed since need not be copied once more."""

    def __init__(self) -> None:
        self.twins: list[Twin] = []

    def copy_of(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
        """Return the copy of some memory, ``None`` if it is small."""
        if storage.nbytes() < _SMALLEST:
            return None
        self.twins.append(Twin(storage.clone(), weakref.ref(tensor)))
        return self.twins[-1].kept


class Memory:
    """Large memory that several copies share: they work on one copy, which is restored before each run.

    Parameters
    ----------
    twins : iterable of Twin
        Memory of the originals that was itself copied. If the tensor that it was copied from has not changed since,
        runs work on the copy, and what it was copied from restores it.

    Attributes
    ----------
    digests : dict
        Digests of tensors in memory that no run has changed.
    """

    def __init__(self, twins: Iterable[Twin] = ()) -> None:
        self.digests: dict[Any, torch.Tensor] = {}
        self._blocks: list[_Block] = []
        self._by_key: dict[Any, _Block] = {}
        self._twins = {memory_key(twin.kept): twin for twin in twins}

    def copy_of(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
        """Return the memory on which runs work in place of some other; ``None`` if each copy has its own."""
        del tensor
        if storage.nbytes() < _SMALLEST:
            return None
        block = self._by_key.get(memory_key(storage))
        if block is None:
            block = self._new_block(storage)
            self._blocks.append(block)
            self._by_key.update({memory_key(block.before): block, memory_key(block.work): block})
        elif block.work.data_ptr() == storage.data_ptr() and not block.is_unchanged():
            return None  # the copy of a copy that somebody has changed
        return block.work

    def _new_block(self, storage: torch.UntypedStorage) -> _Block:
        twin = self._twins.get(memory_key(storage))
        original = twin.original() if twin is not None else None
        if original is not None:
            before = original.untyped_storage()
            if before.data_ptr() != storage.data_ptr() and same_bytes(before, storage):
                return _Block(before, storage)
        return _Block(storage, storage.clone())

    def holds(self, storage: torch.UntypedStorage) -> bool:
        """Whether this restores some memory."""
        block = self._by_key.get(memory_key(storage))
        return block is not None and block.work.data_ptr() == storage.data_ptr()

    def is_intact(self, storage: torch.UntypedStorage) -> bool:
        """Whether this can restore some memory to what it holds now."""
        block = self._by_key.get(memory_key(storage))
        return block is not None and block.work.data_ptr() == storage.data_ptr() and block.is_unchanged()

    def restore(self, only: Container[Any] | None = None) -> None:
        """Undo what runs have changed, and give the memory that they have freed back to the system.

        Parameters
        ----------
        only : container
            The keys of the memory to restore; without it all is.
        """
        if self._blocks:
            _give_back()
        for block in self._blocks:
            if only is not None and memory_key(block.work) not in only:
                continue
            if not block.is_unchanged():
                if block.work.nbytes() != block.before.nbytes():
                    block.work.resize_(block.before.nbytes())
                block.work.copy_(block.before)

    def release(self) -> None:
        """Free what is left of programs and copies that nobody uses any more, as far as they share large memory."""
        if self._blocks:
            gc.collect()
            _give_back()

    def changed(self) -> list[tuple[torch.UntypedStorage, torch.UntypedStorage]]:
        """Return what runs have changed: the memory as it was, and as it is."""
        return [(block.before, block.work) for block in self._blocks if not block.is_unchanged()]

    def memo(self, but: Iterable[Any] = ()) -> dict[Any, Any]:
        """Return a memo with which copies work on the shared memory, apart from some that has these keys."""
        left_out = set(but)
        return {key: block.work for key, block in self._by_key.items() if memory_key(block.work) not in left_out}

    def unchanged(self) -> dict[Any, Any]:
        """Return a memo with which copies of what runs have not changed need no memory of their own."""
        memo: dict[Any, Any] = {memory_key(block.work): block.before for block in self._blocks if block.is_unchanged()}
        return memo | {UNCHANGED: frozenset(memo)}


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """Return what has the C library give memory back that is free, ``None`` if it has no such function."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # not on every system
        return None
    return trim


def _give_back() -> None:
    """Give free memory back to the system.

    Gradients are large and live for one run; of what is made meanwhile a little stays, here and there between them, so
    that the C library alone would keep the memory of the gradients of every run.
    """
    if (trim := _trim()) is not None:
        trim(0)


def same_bytes(one: torch.UntypedStorage, other: torch.UntypedStorage) -> bool:
    """Whether some memory holds the same as some other."""
    if one.nbytes() != other.nbytes() or one.device != other.device:
        return False
    if one.data_ptr() == other.data_ptr():
        return True
    wide = one.nbytes() // 8 * 8
    for dtype, start, end in ((torch.int64, 0, wide), (torch.uint8, wide, one.nbytes())):
        ones, others = (_view(storage, dtype, start, end) for storage in (one, other))
        if not torch.equal(ones, others):
            return False
    return True


def _view(storage: torch.UntypedStorage, dtype: torch.dtype, start: int, end: int) -> torch.Tensor:
    size = dtype.itemsize
    view = torch.empty(0, dtype=dtype, device=storage.device)
    return view.set_(storage, start // size, ((end - start) // size,), (1,))


def memory_left(device: torch.device | None = None) -> int:
    """Return how many bytes the machine, or the container that this process runs in, has left; or a CUDA device."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min([_machine(), *_containers()])


def _machine() -> int:
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system: then 4 GiB are supposed
        return 4 << 30


def _containers(root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Return what is left in each control group that limits this process, of either version."""
    left = []
    for line in _lines(groups):
        _, kinds, path = line.split(":", 2)
        if not kinds:
            left += _left(root, path, "memory.max", "memory.current")
        elif "memory" in kinds.split(","):
            left += _left(root / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")
    return left


def _left(root: Path, path: str, limit: str, used: str) -> list[int]:
    """Return what is left in a group and in those above it; in a container its own group is the root."""
    folders = [root / path.strip("/")]
    while folders[-1] != root and root in folders[-1].parents:
        folders.append(folders[-1].parent)
    left = []
    for folder in dict.fromkeys([*folders, root]):
        numbers = [next(_lines(folder / name), "") for name in (limit, used)]
        if all(number.isdigit() for number in numbers):
            inactive = _inactive(folder)
            left.append(max(0, int(numbers[0]) - max(0, int(numbers[1]) - inactive)))
    return left


def _inactive(folder: Path) -> int:
    """Return how much of the used memory holds files that the kernel can drop."""
    for line in _lines(folder / "memory.stat"):
        name, _, number = line.partition(" ")
        if name in {"inactive_file", "total_inactive_file"}:
            return int(number)
    return 0


def _lines(path: Path) -> Any:
    try:
        yield from path.read_text().splitlines()
    except OSError:
        return


def memory_limit(device: torch.device | None = None) -> int:
    """Return the most bytes that trials may take now."""
    return int(memory_left(device) * _SHARE)


def in_words(size: float) -> str:
    """Return a number of bytes as a person reads it."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
