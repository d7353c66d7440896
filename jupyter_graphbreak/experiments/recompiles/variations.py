"""Find the sizes, numbers and other values that varied between the calls to an entry."""

from __future__ import annotations

import enum
import functools
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak.experiments.families.precomputing import ReadExpressions
from jupyter_graphbreak.experiments.trial.call_specs import ContainerSpec, OpaqueSpec, Path, TensorSpec
from jupyter_graphbreak.report.guards import plain_guard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jupyter_graphbreak.experiments.trial.call_specs import CallSpec, Spec

#: The maximum number of pairs of arguments to compare.
_MAX_PAIRS = 500

OtherKind = Literal["flag", "text", "none", "dtype", "requires_grad", "rank", "length", "kind"]


@dataclass(frozen=True)
class _Variation:
    """Something that varied, shown as its path."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class Size(_Variation):
    """A dimension of a tensor that varied, with its sizes in the order of the calls that received the tensor.

    ``optional_path`` is the path that is ``None`` in all other calls: the path of the tensor or of its container.
    """

    dim: int
    values: tuple[int, ...]
    optional_path: Path | None = None


@dataclass(frozen=True)
class Number(_Variation):
    """A Python number that varied, with its values in the order of the calls.

    ``container_type`` is the class of the tuple that contains the number, or of the list if the list is an argument.
    ``length`` is the number of items in the tuple or list. Such a tuple or list is replaced as a whole: a tuple cannot
    be changed, and a list of the caller should not be changed.
    ``is_fixed`` means that the number belongs to a partial, which cannot be changed either.
    """

    values: tuple[float, ...]
    container_type: type | None = None
    length: int = 0
    is_fixed: bool = False

    @property
    def is_replaced_as_a_whole(self) -> bool:
        """Whether the container of the number is replaced as a whole."""
        return self.container_type is not None

    @property
    def paths(self) -> list[Path]:
        """The path of the number, or the paths of all items of a container that is replaced as a whole."""
        if not self.is_replaced_as_a_whole:
            return [self.path]
        container = Path(self.path.root, self.path.steps[:-1])
        return [container.child("item", index) for index in range(self.length)]

    @property
    def is_int(self) -> bool:
        """Whether the number is an int in all calls."""
        return all(type(value) is int for value in self.values)


@dataclass(frozen=True)
class NumberList(_Variation):
    """A list or tuple of numbers in an argument that varied, with its contents in the order of the calls.

    ``container_type`` is the class of the list or tuple.
    """

    contents: tuple[tuple[float, ...], ...]
    container_type: type = list

    @property
    def values(self) -> tuple[int, ...]:
        """The lengths of the list in the order of the calls."""
        return tuple(map(len, self.contents))

    @property
    def varies_in_length(self) -> bool:
        """Whether the list has different lengths."""
        return len(set(self.values)) > 1

    @property
    def has_only_ints(self) -> bool:
        """Whether all numbers in the list are ints."""
        return all(type(value) is int for content in self.contents for value in content)

    def contains(self, path: Path) -> bool:
        """Return whether a path leads to a number in the list."""
        return path.root == self.path.root and path.steps[:-1] == self.path.steps and path != self.path


@dataclass(frozen=True)
class OtherVariation(_Variation):
    """A variation that is neither a size nor a number, such as a flag or a dtype, with its distinct values."""

    kind: OtherKind
    values: tuple[Any, ...]

    def program_key(self, spec: Spec) -> Any:
        """Return the part of a spec that decides which program is compiled; ``None`` if this part is unknown."""
        match self.kind, spec:
            case (("flag" | "text"), _):
                return spec
            case "none", _:
                return spec is None
            case "rank", TensorSpec():
                return len(spec.shape)
            case "dtype", TensorSpec():
                return spec.dtype
            case "requires_grad", TensorSpec():
                return spec.requires_grad
        return None


@dataclass(frozen=True)
class Variations:
    """The variations between calls."""

    sizes: tuple[Size, ...] = ()
    numbers: tuple[Number, ...] = ()
    other_variations: tuple[OtherVariation, ...] = ()
    lists: tuple[NumberList, ...] = ()
    #: Pairs of arguments that are the same tensor in some calls only.
    aliases: tuple[tuple[Path, Path], ...] = ()
    #: Caches in transformers that grow with each call.
    growing_caches: tuple[Path, ...] = ()

    def select_mentioned_in(self, guards: Iterable[str]) -> Variations:
        """Return the variations that failed guards mention."""
        texts = [plain_guard(guard) for guard in guards]

        def is_mentioned(variation: Size | Number | OtherVariation) -> bool:
            expression = str(variation)
            name = re.compile(rf"(?<![\w.\]]){re.escape(expression)}(?![\w\[])")
            return any(name.search(text) for text in texts)

        def is_list_mentioned(numbers: NumberList) -> bool:
            name = re.compile(rf"(?<![\w.\]]){re.escape(str(numbers))}(?:\[\d+\])?(?![\w\[])")
            return any(name.search(text) for text in texts)

        return Variations(
            tuple(filter(is_mentioned, self.sizes)),
            tuple(filter(is_mentioned, self.numbers)),
            tuple(filter(is_mentioned, self.other_variations)),
            tuple(filter(is_list_mentioned, self.lists)),
        )


def find_variations(calls: Sequence[CallSpec]) -> Variations:
    """Return the variations between calls."""
    specs_by_path: dict[Path, list[Spec]] = {}
    for call in calls:
        for path, spec in call.values.items():
            specs_by_path.setdefault(path, []).append(spec)
    sizes: list[Size] = []
    numbers: list[Number] = []
    other_variations: list[OtherVariation] = []
    optional_paths = {path for path, specs in specs_by_path.items() if any(spec is None for spec in specs)}
    for path, specs in specs_by_path.items():
        tensors = [spec for spec in specs if spec is not None]
        if tensors and all(isinstance(spec, TensorSpec) for spec in tensors):
            sizes += _varied_sizes(
                path, tensors, next((part for part in _paths_to(path) if part in optional_paths), None)
            )
            other_variations += _varied_kinds(path, tensors)
            other_variations += [OtherVariation(path, "none", (None, tensors[0]))] if path in optional_paths else []
        elif all(type(spec) in {int, float} for spec in specs):
            if len(set(specs)) > 1:
                container_type, length = _replaced_container(path, specs_by_path)
                is_fixed = any(_is_partial(specs_by_path.get(part, [None])[0]) for part in _paths_to(path))
                numbers.append(Number(path, tuple(specs), container_type, length, is_fixed))
        else:
            other_variations += _other_variations(path, specs)
    caches = (path for path, specs in specs_by_path.items() if any(map(_is_growing_cache, specs)))
    lists = tuple(_varied_lists(calls))
    return Variations(
        tuple(sizes), tuple(numbers), tuple(other_variations), lists, tuple(_varied_aliases(calls)), tuple(caches)
    )


def group_read_expressions(calls: Sequence[CallSpec], variations: Variations) -> ReadExpressions:
    """Return the expressions, as strings, that read the values of the calls, grouped by the kind of the values."""
    values = {path: spec for call in reversed(calls) for path, spec in call.values.items()}
    object_paths = {
        part for path, spec in values.items() if isinstance(spec, TensorSpec | OpaqueSpec) for part in _paths_to(path)
    }
    selecting_variations = [
        variation for variation in variations.other_variations if variation.kind in {"flag", "text"}
    ]
    return ReadExpressions(
        frozenset(str(path) for path in values if path not in object_paths),
        frozenset(str(path) for path, spec in values.items() if isinstance(spec, TensorSpec)),
        frozenset(
            str(variation)
            for variation in (*variations.sizes, *variations.numbers, *variations.lists, *selecting_variations)
        ),
    )


def _varied_lists(calls: Sequence[CallSpec]) -> Iterator[NumberList]:
    """Yield the lists and tuples of numbers in arguments whose contents differ between calls."""
    for path, first in (calls[0].arguments if calls else {}).items():
        if not isinstance(first, ContainerSpec) or first.class_ not in {list, tuple}:
            continue
        contents = [_numbers_in(call, path) for call in calls if path in call.arguments]
        if None not in contents and len(set(contents)) > 1:
            yield NumberList(path, tuple(content for content in contents if content is not None), first.class_)


def _numbers_in(call: CallSpec, path: Path) -> tuple[float, ...] | None:
    """Return the contents of a list or tuple that contains only numbers; ``None`` for any other value."""
    spec = call.arguments[path]
    if not isinstance(spec, ContainerSpec) or spec.class_ not in {list, tuple}:
        return None
    values = [call.arguments.get(path.child("item", index)) for index in spec.keys]
    numbers = tuple(value for value in values if isinstance(value, int | float) and not isinstance(value, bool))
    return numbers if len(numbers) == len(values) else None


def _is_growing_cache(spec: Spec) -> bool:
    """Return whether a value is a cache of the transformers library whose length is not fixed."""
    if not isinstance(spec, OpaqueSpec) or not spec.class_.__module__.startswith("transformers."):
        return False
    return "Cache" in spec.class_.__name__ and "Static" not in spec.class_.__name__


def _varied_aliases(calls: Sequence[CallSpec]) -> Iterator[tuple[Path, Path]]:
    """Yield the pairs of arguments that are the same tensor in some calls and two tensors in others."""
    numbers_by_call = [
        {path: value.number for path, value in call.arguments.items() if isinstance(value, TensorSpec)}
        for call in calls
    ]
    paths = [
        path
        for path in (numbers_by_call[0] if numbers_by_call else ())
        if all(path in numbers for numbers in numbers_by_call)
    ]
    for one, other in itertools.islice(itertools.combinations(paths, 2), _MAX_PAIRS):
        if len({numbers[one] == numbers[other] for numbers in numbers_by_call}) > 1:
            yield one, other


def _replaced_container(path: Path, specs_by_path: dict[Path, list[Spec]]) -> tuple[type | None, int]:
    """Return the class and length of the list or tuple to replace along with a number in it, or ``None`` and 0."""
    container = specs_by_path.get(Path(path.root, path.steps[:-1]), [None])[0] if path.steps else None
    if not isinstance(container, ContainerSpec):
        return None, 0
    is_replaced = container.class_ is tuple or (container.class_ is list and path.root.kind == "argument")
    return (container.class_, len(container.keys)) if is_replaced else (None, 0)


def _is_partial(spec: Spec) -> bool:
    return isinstance(spec, ContainerSpec) and spec.class_ is functools.partial


def _paths_to(path: Path) -> Iterator[Path]:
    """Yield the paths of the objects that contain the value at a path, outermost first, and the path itself."""
    for count in range(len(path.steps) + 1):
        yield Path(path.root, path.steps[:count])


def _varied_sizes(path: Path, specs: list[TensorSpec], optional_path: Path | None) -> list[Size]:
    if len({len(spec.shape) for spec in specs}) > 1:
        return []
    shapes = list(zip(*(spec.shape for spec in specs), strict=True))
    return [Size(path, dim, values, optional_path) for dim, values in enumerate(shapes) if len(set(values)) > 1]


def _varied_kinds(path: Path, specs: list[TensorSpec]) -> list[OtherVariation]:
    properties: dict[OtherKind, list[Any]] = {
        "rank": [len(spec.shape) for spec in specs],
        "dtype": [spec.dtype for spec in specs],
        "requires_grad": [spec.requires_grad for spec in specs],
    }
    return [
        OtherVariation(path, kind, tuple(dict.fromkeys(values)))
        for kind, values in properties.items()
        if len(set(values)) > 1
    ]


def _other_variations(path: Path, specs: list[Spec]) -> list[OtherVariation]:
    distinct_specs: list[Spec] = []
    for spec in specs:
        if not any(type(spec) is type(earlier_spec) and spec == earlier_spec for earlier_spec in distinct_specs):
            distinct_specs.append(spec)
    is_new_each_time = (
        all(isinstance(spec, OpaqueSpec) for spec in specs) and len({spec.identity for spec in specs}) == len(specs) > 1
    )
    if len(distinct_specs) == 1 and not is_new_each_time:
        return []
    kind: OtherKind
    if any(spec is None for spec in distinct_specs):
        kind = "none"
    elif all(isinstance(spec, bool) for spec in distinct_specs):
        kind = "flag"
    elif all(isinstance(spec, str | enum.Enum) for spec in distinct_specs):
        kind = "text"
    elif all(isinstance(spec, ContainerSpec) for spec in distinct_specs):
        kind = "length"
    else:
        kind = "kind"
    return [OtherVariation(path, kind, tuple(distinct_specs))]
