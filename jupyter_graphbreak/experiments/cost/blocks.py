"""Find the blocks that a model repeats, such as the layers of a transformer."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.module_calls import has_skipped_forward
from jupyter_graphbreak._torch_compat.patching import patch_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Blocks contain at least this share of a model's parameters.
_MIN_SHARE_OF_PARAMETERS = 0.3
#: The end of a block's path, after the path of its container.
_INDEX_AT_END = re.compile(r"(?:\[\d+\]|\.\d+)$")


@dataclass(frozen=True)
class RepeatedBlocks:
    """Modules of one class that a model repeats, with paths such as ``self.layers.0``.

    ``block.compile()`` does not compile a block if ``forward`` is a method of PyTorch.
    """

    name: str
    paths: tuple[str, ...]
    compiles_in_place: bool = True

    @property
    def container(self) -> str | None:
        """The path of the blocks' container, such as ``self.layers``; ``None`` if they share no container."""
        containers = {_INDEX_AT_END.sub("", path) for path in self.paths}
        return containers.pop() if len(containers) == 1 else None


def find_repeated_blocks(modules: Iterable[tuple[str, torch.nn.Module]], min_count: int) -> RepeatedBlocks | None:
    """Return the blocks that a model repeats: the modules of the repeated class that contains the most parameters.

    Modules without submodules, such as linear layers, and modules inside a module of the same class are excluded.
    ``Sequential`` modules are treated as one class only if the modules in them have the same classes. In ``modules``,
    each module must come before those inside it. The result is ``None`` if no class is repeated often enough, or if the
    blocks are a small part of the model.
    """
    all_modules = list(modules)
    modules_by_key: defaultdict[Any, list[tuple[str, torch.nn.Module]]] = defaultdict(list)
    ids_inside: defaultdict[Any, set[int]] = defaultdict(set)
    for path, module in all_modules:
        key = _block_key(module)
        if key is not None and id(module) not in ids_inside[key]:
            modules_by_key[key].append((path, module))
            ids_inside[key].update(map(id, module.modules()))
    sizes = {
        key: _parameter_count(module for _, module in blocks)
        for key, blocks in modules_by_key.items()
        if len(blocks) >= min_count
    }
    largest = max(sizes, key=lambda key: sizes[key], default=None)
    if largest is None or sizes[largest] < _MIN_SHARE_OF_PARAMETERS * _parameter_count(
        module for _, module in all_modules
    ):
        return None
    blocks = modules_by_key[largest]
    first = blocks[0][1]
    return RepeatedBlocks(type(first).__name__, tuple(path for path, _ in blocks), not has_skipped_forward(first))


def _block_key(module: torch.nn.Module) -> Any:
    """Return a key that is the same for all repetitions of a block; ``None`` if the module cannot be a block.

    The key is the class; for ``Sequential`` modules, it includes the classes of the modules in them.
    """
    if not any(True for _ in module.children()) or isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict):
        return None
    if isinstance(module, torch.nn.Sequential):
        return (type(module), *(_block_key(child) or type(child) for child in module.children()))
    return type(module)


def _parameter_count(modules: Iterable[torch.nn.Module]) -> int:
    """Return the number of parameters in modules, each counted once."""
    sizes = {id(parameter): parameter.numel() for module in modules for parameter in module.parameters()}
    return sum(sizes.values())


@contextlib.contextmanager
def replace_forwards(forwards: Iterable[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
    """Replace the method ``forward`` of modules or of their classes while the context is open."""
    with contextlib.ExitStack() as exit_stack:
        for owner, forward in forwards:
            exit_stack.enter_context(patch_attribute(owner, "forward", forward))
        yield
