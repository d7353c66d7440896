"""Find what varied between the calls of an entry: sizes, numbers, and other things."""

from __future__ import annotations

import enum
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak.experiments.trial.seen_calls import Container, Other, Path, TensorSketch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jupyter_graphbreak.experiments.trial.seen_calls import SeenCall, Sketch

#: How Dynamo names a local and a global variable, and the parts of a module.
_VARIABLE = re.compile(r"\b[LG]\['(\w+)'\]")
_PART = re.compile(r"\._(?:modules|buffers|parameters)\['(\w+)'\]")
_ATTRIBUTES = re.compile(r"\.__dict__\['(\w+)'\]")
#: A guard on a tensor: "tensor 'x' size mismatch at index 0. expected 2, actual 3".
_TENSOR = re.compile(r"tensor '(?P<name>[^ ]+)' (?P<what>[\w ]+) mismatch")

#: How many pairs of arguments are compared.
_MOST_PAIRS = 500

OtherKind = Literal["flag", "text", "none", "dtype", "requires_grad", "rank", "length", "kind"]


@dataclass(frozen=True)
class Size:
    """A dimension of a tensor that varied, with its sizes in the order of the calls that have the tensor.

    ``optional`` is the place that is ``None`` in the other calls: that of the tensor or of what contains it.
    """

    path: Path
    dim: int
    values: tuple[int, ...]
    optional: Path | None = None

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class Number:
    """A Python number that varied, with its values in the order of the calls.

    ``tuple_length`` is the length of the tuple that it is in, 0 if it is not in one.
    """

    path: Path
    values: tuple[float, ...]
    tuple_length: int = 0

    @property
    def is_in_tuple(self) -> bool:
        """Whether it is an item of a tuple, which cannot be assigned alone."""
        return self.tuple_length > 0

    @property
    def paths(self) -> list[Path]:
        """Its place, or the places of all items of its tuple."""
        if not self.is_in_tuple:
            return [self.path]
        whole = Path(self.path.root, self.path.steps[:-1])
        return [whole.into("item", index) for index in range(self.tuple_length)]

    @property
    def is_whole(self) -> bool:
        """Whether it is an int."""
        return all(type(value) is int for value in self.values)

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class OtherVariation:
    """Something else that varied, with two of its values."""

    path: Path
    kind: OtherKind
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class Varied:
    """What varied between calls."""

    sizes: tuple[Size, ...] = ()
    numbers: tuple[Number, ...] = ()
    others: tuple[OtherVariation, ...] = ()
    #: Pairs of arguments that are the same tensor in some calls only.
    aliases: tuple[tuple[Path, Path], ...] = ()
    #: Caches of transformers that grow with each call.
    growing_caches: tuple[Path, ...] = ()

    def named_by(self, guards: Iterable[str]) -> Varied:
        """Return the part that failed guards name."""
        texts = [plain_guard(guard) for guard in guards]

        def is_named(variation: Size | Number | OtherVariation) -> bool:
            expression = str(variation)
            name = re.compile(rf"(?<![\w.\]]){re.escape(expression)}(?![\w\[])")
            return any(name.search(text) for text in texts)

        return Varied(
            tuple(filter(is_named, self.sizes)),
            tuple(filter(is_named, self.numbers)),
            tuple(filter(is_named, self.others)),
        )


def plain_guard(guard: str) -> str:
    """Return a guard with the names of the code: ``L['self']._modules['a'].k`` becomes ``self.a.k``."""
    text = _VARIABLE.sub(r"\1", guard)
    for pattern in (_PART, _ATTRIBUTES):
        text = pattern.sub(r".\1", text)
    return text


def find_varied(calls: Sequence[SeenCall]) -> Varied:
    """Return what varied between calls."""
    by_path: dict[Path, list[Sketch]] = {}
    for call in calls:
        for path, sketch in call.values.items():
            by_path.setdefault(path, []).append(sketch)
    sizes: list[Size] = []
    numbers: list[Number] = []
    others: list[OtherVariation] = []
    optional = {path for path, sketches in by_path.items() if any(sketch is None for sketch in sketches)}
    for path, sketches in by_path.items():
        tensors = [sketch for sketch in sketches if sketch is not None]
        if tensors and all(isinstance(sketch, TensorSketch) for sketch in tensors):
            sizes += _varied_sizes(path, tensors, next((part for part in _within(path) if part in optional), None))
            others += _varied_kinds(path, tensors)
            others += [OtherVariation(path, "none", (None, tensors[0]))] if path in optional else []
        elif all(type(sketch) in {int, float} for sketch in sketches):
            if len(set(sketches)) > 1:
                numbers.append(Number(path, tuple(sketches), _tuple_length(path, by_path)))
        else:
            others += _other_variations(path, sketches)
    caches = (path for path, sketches in by_path.items() if any(map(_is_growing_cache, sketches)))
    return Varied(tuple(sizes), tuple(numbers), tuple(others), tuple(_varied_aliases(calls)), tuple(caches))


def _is_growing_cache(sketch: Sketch) -> bool:
    """Return whether a value is a cache of transformers whose length is not fixed."""
    if not isinstance(sketch, Other) or not sketch.kind.__module__.startswith("transformers."):
        return False
    return "Cache" in sketch.kind.__name__ and "Static" not in sketch.kind.__name__


def _varied_aliases(calls: Sequence[SeenCall]) -> Iterator[tuple[Path, Path]]:
    """Yield the pairs of arguments that are the same tensor in some calls, and two tensors in others."""
    by_call = [
        {path: value.number for path, value in call.arguments.items() if isinstance(value, TensorSketch)}
        for call in calls
    ]
    paths = [path for path in (by_call[0] if by_call else ()) if all(path in numbers for numbers in by_call)]
    for one, other in itertools.islice(itertools.combinations(paths, 2), _MOST_PAIRS):
        if len({numbers[one] == numbers[other] for numbers in by_call}) > 1:
            yield one, other


def _tuple_length(path: Path, by_path: dict[Path, list[Sketch]]) -> int:
    """Return the length of the tuple that a value is in; 0 if it is not in one."""
    around = by_path.get(Path(path.root, path.steps[:-1]), [None])[0] if path.steps else None
    return len(around.keys) if isinstance(around, Container) and around.kind is tuple else 0


def _within(path: Path) -> Iterator[Path]:
    """Yield the places that contain a place, the outermost first, and the place itself."""
    for count in range(len(path.steps) + 1):
        yield Path(path.root, path.steps[:count])


def _varied_sizes(path: Path, sketches: list[TensorSketch], optional: Path | None) -> list[Size]:
    if len({len(sketch.shape) for sketch in sketches}) > 1:
        return []
    shapes = list(zip(*(sketch.shape for sketch in sketches), strict=True))
    return [Size(path, dim, values, optional) for dim, values in enumerate(shapes) if len(set(values)) > 1]


def _varied_kinds(path: Path, sketches: list[TensorSketch]) -> list[OtherVariation]:
    properties: dict[OtherKind, list[Any]] = {
        "rank": [len(sketch.shape) for sketch in sketches],
        "dtype": [sketch.dtype for sketch in sketches],
        "requires_grad": [sketch.requires_grad for sketch in sketches],
    }
    return [
        OtherVariation(path, kind, tuple(dict.fromkeys(values)))
        for kind, values in properties.items()
        if len(set(values)) > 1
    ]


def _other_variations(path: Path, sketches: list[Sketch]) -> list[OtherVariation]:
    distinct: list[Sketch] = []
    for sketch in sketches:
        if not any(type(sketch) is type(known) and sketch == known for known in distinct):
            distinct.append(sketch)
    is_new_each_time = (
        all(isinstance(sketch, Other) for sketch in sketches)
        and len({sketch.identity for sketch in sketches}) == len(sketches) > 1
    )
    if len(distinct) == 1 and not is_new_each_time:
        return []
    kind: OtherKind
    if any(sketch is None for sketch in distinct):
        kind = "none"
    elif all(isinstance(sketch, bool) for sketch in distinct):
        kind = "flag"
    elif all(isinstance(sketch, str | enum.Enum) for sketch in distinct):
        kind = "text"
    elif all(isinstance(sketch, Container) for sketch in distinct):
        kind = "length"
    else:
        kind = "kind"
    return [OtherVariation(path, kind, tuple(distinct))]
