"""Describe how one value differs from another: in elements, structure or types."""

from __future__ import annotations

import cmath
import ctypes
import dataclasses
import math
import re
import reprlib
import sys
import types
import weakref
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch

from jupyter_graphbreak.experiments.trial.copies import shape_of
from jupyter_graphbreak.experiments.trial.object_kinds import is_code, is_data
from jupyter_graphbreak.experiments.trial.stand_ins import stream_in_memory
from jupyter_graphbreak.records.attributes import attribute_of, is_dataclass, is_instance, proxy_target, stored_items

if TYPE_CHECKING:
    import io
    from collections.abc import Collection, Iterable

#: Tensors with more elements are shown by their shape.
_MAX_SHOWN_ELEMENTS = 6
#: If values differ by less, PyTorch may print them alike.
_RTOL_OF_TEXT, _ATOL_OF_TEXT = 1e-3, 1e-4
_MAX_REPR_LENGTH = 80
#: The tolerated rounding errors, relative to the element and to the largest element.
_NOISE_TOLERANCES = {torch.float32: (2e-5, 2e-6), torch.float16: (4e-3, 2e-3), torch.bfloat16: (2e-2, 1.6e-2)}
#: The tolerated rounding error after terms cancel, relative to the largest number of all results.
_CANCELED_TOLERANCE = 1e-5
#: The largest absolute difference that rounding alone explains.
_ATOL = 1e-5
#: The largest relative difference of doubles that rounding may explain, however small they are.
_RTOL_OF_SMALL_DOUBLES = 0.1
#: The maximum error of a result, and the maximum number of its elements with large errors, as multiples of those that
#: noise causes.
_ROUNDING_FACTOR = 8
_MAX_DEPTH = 20
#: The prefix that marks varying keys, which have no path of their own.
_KEYS_PREFIX = "the keys of "
#: The key that Dynamo adds to the groups of any optimizer, although only some optimizers use it.
_CAPTURABLE = "capturable"
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
#: The attributes of every module, apart from its parameters, buffers and submodules.
_STANDARD_MODULE_ATTRIBUTES = frozenset(vars(torch.nn.Module())) - {"training"}

#: The path to a part: a name, or else the path to the whole, the key or attribute, and whether it is an attribute.
_Path = str | tuple["_Path", Any, bool]

#: Prefixes of attributes that compiling adds to a module.
_COMPILER_PREFIXES = ("_dynamo", "_torchdynamo", "_is_torch_compile")


class RoundingErrors(NamedTuple):
    """The largest rounding error in a tensor, and the number of elements whose errors exceed the usual tolerances."""

    largest: float
    element_count: int

    @classmethod
    def between(cls, expected: torch.Tensor, with_noise: torch.Tensor) -> RoundingErrors | None:
        """Return the rounding errors that noise has caused; ``None`` if all of them are within the usual tolerances."""
        distances = _excessive_distances(expected, with_noise)
        return cls(float(distances.max()), distances.numel()) if distances is not None and distances.numel() else None

    def explain(self, expected: torch.Tensor, actual: torch.Tensor) -> bool:
        """Return whether rounding errors explain the difference of a result."""
        distances = _excessive_distances(expected, actual)
        if distances is None or distances.numel() > _ROUNDING_FACTOR * self.element_count:
            return False
        return not distances.numel() or float(distances.max()) <= _ROUNDING_FACTOR * self.largest


def _excessive_distances(expected: torch.Tensor, actual: torch.Tensor) -> torch.Tensor | None:
    """Return the distances of elements that exceed the usual tolerances; ``None`` if rounding cannot explain them."""
    tolerances = _NOISE_TOLERANCES.get(expected.dtype)
    is_comparable = expected.dtype == actual.dtype and expected.layout == actual.layout == torch.strided
    if tolerances is None or not is_comparable or expected.is_nested or expected.shape != actual.shape:
        return None
    expected, actual = expected.detach(), actual.detach().to(expected.device)
    if not torch.equal(expected.isfinite(), actual.isfinite()):
        return None
    is_excessive = ~torch.isclose(actual, expected, rtol=tolerances[0], atol=_ATOL, equal_nan=True)
    return (actual - expected)[is_excessive].abs()


class YieldedItems(msgspec.Struct, frozen=True):
    """The items that a generator yielded."""

    items: list[Any]


def short_repr(value: Any) -> str:
    """Return a short one-line string for a value: small tensors with elements, other tensors with dtype and shape."""
    if is_instance(value, torch.Tensor):
        return _show_tensor(value)
    if is_instance(value, YieldedItems):
        return f"a generator of {short_repr(value.items)}"
    if is_instance(value, torch.nn.Module):
        return type(value).__name__
    if type(value) in {list, tuple}:
        items = ", ".join(map(short_repr, value))
        text = f"[{items}]" if type(value) is list else f"({items}{',' if len(value) == 1 else ''})"
    elif type(value) is dict:
        text = "{" + ", ".join(f"{short_repr(key)}: {short_repr(item)}" for key, item in value.items()) + "}"
    else:
        text = re.sub(r"\s+", " ", _safe_repr(value))
    return text if len(text) <= _MAX_REPR_LENGTH else text[: _MAX_REPR_LENGTH - 3] + "..."


def _safe_repr(value: Any) -> str:
    try:
        return reprlib.repr(value) if type(value).__module__ == "builtins" else repr(value)
    except Exception:  # noqa: BLE001 - calls the user's `__repr__`
        return f"<{type(value).__name__}>"


def _show_tensor(value: torch.Tensor) -> str:
    if 0 < value.numel() <= _MAX_SHOWN_ELEMENTS and value.layout == torch.strided:
        try:
            return re.sub(r"\s+", " ", repr(value.detach().resolve_conj()).replace("\n", " "))
        except Exception:  # noqa: BLE001 - a fake tensor or a user's subclass may raise
            return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} tensor of shape {list(shape_of(value))}"


def describe_difference(
    expected: Any,
    actual: Any,
    *,
    compares_values: bool = True,
    ignored_paths: Collection[str] = (),
    root: str = "",
    largest: float = 0.0,
    rounding_errors: Mapping[int, RoundingErrors] | None = None,
) -> str | None:
    """Return a description of how a result differs from the expected one, or ``None`` if they agree.

    Tensors are compared with :func:`torch.testing.assert_close` and, if they differ, with wider tolerances, because a
    compiler reorders sums. NaN equals NaN. Other objects are compared by type and value. Without ``compares_values``,
    as for random numbers, only types and shapes are compared.

    ``root`` is the path to the result; ``ignored_paths`` (see :func:`varying_paths`) begin with it. ``largest`` is the
    largest number among results that are computed together, such as all gradients: if the terms of a result cancel,
    only rounding errors of this scale remain. ``rounding_errors`` are those known of expected tensors, by the tensors'
    ids.
    """
    difference = _Comparison(
        compares_values=compares_values, ignored_paths=ignored_paths, largest=largest, rounding_errors=rounding_errors
    ).find_difference(expected, actual, root)
    if difference is None:
        return None
    path, text = _path_string(difference[0]), difference[1]
    return f"{text} at {path.removeprefix(root)}" if path != root else text


def largest_number(values: Iterable[Any]) -> float:
    """Return the largest absolute value among finite floats and the elements of dense tensors; 0 if there are none."""
    largest = 0.0
    for value in values:
        if is_instance(value, torch.Tensor):
            is_dense = value.layout == torch.strided and not value.is_nested
            if is_dense and value.is_floating_point() and value.numel():
                finite_numbers = value.detach().nan_to_num(0, posinf=0, neginf=0)
                largest = max(largest, float(finite_numbers.abs().max()))
        elif is_instance(value, float) and math.isfinite(value):
            largest = max(largest, abs(value))
    return largest


def varying_paths(one: Mapping[str, Any], other: Mapping[str, Any]) -> frozenset[str]:
    """Return the paths to numbers, strings and keys of named results that differ after two runs of one program."""
    comparison = _Comparison(compares_values=True, collects_paths=True)
    for name in one.keys() & other.keys():
        comparison.find_difference(one[name], other[name], name)
    return frozenset(comparison.ignored_paths)


def _path_string(path: _Path) -> str:
    """Return a path as a string, such as "the result[0].scale"."""
    steps: list[str] = []
    while not isinstance(path, str):
        path, key, is_attribute = path
        steps.append(f".{key}" if is_attribute else f"[{short_repr(key)}]")
    return path + "".join(reversed(steps))


def _is_param_group(path: _Path) -> bool:
    """Return whether a path leads to an item of an attribute ``param_groups``, as in optimizers."""
    return not isinstance(path, str) and path[0][1:] == ("param_groups", True)


def _describe_lengths(expected: list[Any], actual: list[Any]) -> str:
    return f"{len(actual)} items instead of {len(expected)}"


class _Comparison:
    """A comparison of two values.

    With ``collects_paths``, different plain values are not treated as a difference; their paths are added to
    ``ignored_paths``.
    """

    def __init__(
        self,
        *,
        compares_values: bool,
        ignored_paths: Collection[str] = (),
        collects_paths: bool = False,
        largest: float = 0.0,
        rounding_errors: Mapping[int, RoundingErrors] | None = None,
    ) -> None:
        self.ignored_paths = set(ignored_paths)
        self._largest = largest
        self._rounding_errors = rounding_errors or {}
        self._compares_values = compares_values
        self._collects_paths = collects_paths
        self._compared_pairs: set[tuple[int, int]] = set()

    def _is_ignored(self, path: _Path, prefix: str = "") -> bool:
        """Return whether differences at a path are ignored. With ``collects_paths``, ignore the path from now on."""
        name = f"{prefix}{_path_string(path)}" if self._collects_paths or self.ignored_paths else ""
        if self._collects_paths:
            self.ignored_paths.add(name)
        return name in self.ignored_paths

    def find_difference(self, expected: Any, actual: Any, path: _Path, depth: int = 0) -> tuple[_Path, str] | None:
        """Return the path and the description of the first difference, or ``None`` if there is none."""
        expected, actual = _parts_of_methods(expected, actual)
        pair = (id(expected), id(actual))
        if expected is actual or pair in self._compared_pairs or depth > _MAX_DEPTH:
            return None
        self._compared_pairs.add(pair)
        if is_instance(expected, torch.Tensor) and is_instance(actual, torch.Tensor):
            text = self._compare_tensors(expected, actual)
            return None if text is None else (path, text)
        if not _is_same_kind(expected, actual):
            return path, f"{_describe_type(actual)} instead of {_describe_type(expected)}"
        numpy = sys.modules.get("numpy")
        if numpy is not None and is_instance(expected, numpy.ndarray):
            text = self._compare_arrays(expected, actual)
            return None if text is None else (path, text)
        if is_instance(expected, YieldedItems):
            return self._find_in_parts(list(enumerate(expected.items)), list(enumerate(actual.items)), path, depth)
        if is_instance(expected, Mapping):
            return self._find_in_mapping(_items(expected), _items(actual), path, depth)
        if is_instance(expected, Sequence) and not is_instance(expected, str | bytes | bytearray | range):
            return self._find_in_parts(list(enumerate(expected)), list(enumerate(actual)), path, depth)
        return self._find_in_other_objects(expected, actual, path, depth)

    def _find_in_mapping(
        self, expected: list[tuple[Any, Any]], actual: list[tuple[Any, Any]], path: _Path, depth: int
    ) -> tuple[_Path, str] | None:
        by_key = dict(actual)
        missing_keys = [key for key, _ in expected if key not in by_key]
        extra_keys = by_key.keys() - {key for key, _ in expected}
        if extra_keys == {_CAPTURABLE} and _is_param_group(path):
            actual = [(key, value) for key, value in actual if key != _CAPTURABLE]
            return self._find_in_mapping(expected, actual, path, depth)
        if len(actual) != len(expected):
            names = sorted(short_repr(key) for key in extra_keys if is_instance(key, str))
            is_extended = len(names) == 1 == len(extra_keys) and not missing_keys
            return path, f"an extra key {names[0]}" if is_extended else _describe_lengths(expected, actual)
        if not missing_keys and list(by_key) != [key for key, _ in expected]:
            return path, "a different order of the keys"
        if not missing_keys:
            return self._find_in_parts(expected, [(key, by_key[key]) for key, _ in expected], path, depth)
        if not self._is_ignored(path, _KEYS_PREFIX):
            return path, f"no {short_repr(missing_keys[0])}"
        expected_parts, actual_parts = ([*enumerate(part for _, part in items)] for items in (expected, actual))
        return self._find_in_parts(expected_parts, actual_parts, path, depth)

    def _find_in_parts(
        self, expected: list[tuple[Any, Any]], actual: list[tuple[Any, Any]], path: _Path, depth: int
    ) -> tuple[_Path, str] | None:
        if len(actual) != len(expected):
            return path, _describe_lengths(expected, actual)
        for (key, expected_part), (_, actual_part) in zip(expected, actual, strict=True):
            first_difference = self.find_difference(expected_part, actual_part, (path, key, False), depth + 1)
            if first_difference is not None:
                return first_difference
        return None

    def _find_in_other_objects(self, expected: Any, actual: Any, path: _Path, depth: int) -> tuple[_Path, str] | None:
        if is_instance(expected, float | complex) and not is_instance(expected, bool):
            # Two clock readings are close to each other, so compare them exactly.
            is_equal = expected == actual or actual != actual if self._collects_paths else _is_close(expected, actual)  # noqa: PLR0124 - nan
        elif (stream := stream_in_memory(expected)) is not None:
            is_equal = _stream_content(stream) == _stream_content(stream_in_memory(actual))
        elif is_instance(expected, torch.Generator):
            is_equal = torch.equal(expected.get_state(), actual.get_state())
        elif is_instance(expected, weakref.ref):  # `==` would call the objects' own `__eq__`, which may change them
            is_equal = (expected() is None) == (actual() is None)
        elif is_instance(expected, str | bytes | int | range | AbstractSet | type(None)):
            is_equal = bool(expected == actual)
        elif not is_code(expected) and (attribute_of(expected, "__dict__") is not None or attributes(expected)):
            return self._find_in_attributes(expected, actual, path, depth)
        else:
            is_equal = _is_equal(expected, actual)
        if is_equal or not self._compares_values or self._is_ignored(path):
            return None
        return path, f"{short_repr(actual)} instead of {short_repr(expected)}"

    def _find_in_attributes(self, expected: Any, actual: Any, path: _Path, depth: int) -> tuple[_Path, str] | None:
        expected_attributes, actual_attributes = attributes(expected), attributes(actual)
        for name, value in expected_attributes.items():
            if name not in actual_attributes:
                return path, f"no attribute {name}"
            first_difference = self.find_difference(value, actual_attributes[name], (path, name, True), depth + 1)
            if first_difference is not None:
                return first_difference
        extra_names = [name for name in actual_attributes if name not in expected_attributes]
        return (path, f"an extra attribute {extra_names[0]}") if extra_names else None

    def _compare_tensors(self, expected: torch.Tensor, actual: torch.Tensor) -> str | None:
        if shape_of(expected) != shape_of(actual):
            return f"shape {list(shape_of(actual))} instead of {list(shape_of(expected))}"
        if expected.dtype != actual.dtype:
            return f"{actual.dtype} instead of {expected.dtype}"
        rounding_errors = self._rounding_errors.get(id(expected))
        expected, actual = expected.detach(), actual.detach()
        if not self._compares_values or _have_equal_elements(expected, actual):
            return None
        try:
            torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=False)
        except AssertionError as error:
            is_rounding = rounding_errors is not None and rounding_errors.explain(expected, actual)
            if is_rounding or _differs_by_noise(expected, actual, self._largest):
                return None
            if expected.numel() <= _MAX_SHOWN_ELEMENTS:
                return _describe_small_tensors(expected, actual)
            return _shorten_message(str(error))
        except Exception:  # noqa: BLE001 - some layouts cannot be compared
            return None
        return None

    def _compare_arrays(self, expected: Any, actual: Any) -> str | None:
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            return (
                f"{actual.dtype} array of shape {list(actual.shape)} instead of {expected.dtype} {list(expected.shape)}"
            )
        numpy = sys.modules["numpy"]
        try:
            numpy.testing.assert_allclose(actual, expected, rtol=1.3e-6, atol=1e-5)
        except AssertionError:
            return f"{short_repr(actual)} instead of {short_repr(expected)}" if self._compares_values else None
        except TypeError:
            return None
        return None


def _describe_small_tensors(expected: torch.Tensor, actual: torch.Tensor) -> str:
    """Describe two different small tensors, with all digits if the usual four would hide the difference."""
    is_comparable = expected.layout == actual.layout == torch.strided and expected.device == actual.device
    is_comparable = is_comparable and expected.is_floating_point()
    if is_comparable and torch.allclose(actual, expected, rtol=_RTOL_OF_TEXT, atol=_ATOL_OF_TEXT, equal_nan=True):
        return f"{actual.tolist()} instead of {expected.tolist()}"
    return f"{short_repr(actual)} instead of {short_repr(expected)}"


def _have_equal_elements(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """Return whether dense tensors are equal, without creating temporary tensors as ``assert_close`` does."""
    are_dense = all(tensor.layout == torch.strided and not tensor.is_nested for tensor in (expected, actual))
    try:
        return are_dense and expected.device == actual.device and torch.equal(expected, actual)
    except Exception:  # noqa: BLE001 - some tensors, such as fake tensors, cannot be compared
        return False


def _differs_by_noise(expected: torch.Tensor, actual: torch.Tensor, largest_of_all: float) -> bool:
    """Return whether elements differ by no more than the rounding of a compiler that reorders and fuses operations.

    If terms cancel, the error is proportional to the terms. The only hints at their size are the largest element of
    the result and the largest element of all results.
    """
    noise = _NOISE_TOLERANCES.get(expected.dtype)
    if noise is None or expected.layout != torch.strided or expected.device != actual.device:
        return False
    finite_numbers = expected[expected.isfinite()].abs()
    largest = float(finite_numbers.max()) if finite_numbers.numel() else 0.0
    relative, relative_to_largest = noise
    absolute = max(_ATOL, relative_to_largest * largest, _CANCELED_TOLERANCE * largest_of_all)
    return torch.allclose(actual, expected, rtol=relative, atol=absolute, equal_nan=True)


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an instance, including a module's parameters, buffers and submodules by name.

    The attributes that PyTorch itself gives to every module are left out.
    """
    if (target := proxy_target(value)) is not None:
        return {"__wrapped__": target}
    own_attributes = dict(attribute_of(value, "__dict__") or {})
    if is_instance(value, torch.nn.Module):
        named_parts = {name: part for key in _MODULE_DICTS for name, part in own_attributes.get(key, {}).items()}
        other_attributes = {
            name: part for name, part in own_attributes.items() if name not in _STANDARD_MODULE_ATTRIBUTES
        }
        return named_parts | {
            name: part for name, part in other_attributes.items() if not name.startswith(_COMPILER_PREFIXES)
        }
    if is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        own_attributes |= {name: getattr(value, name) for name in names}
    return own_attributes


def _items(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Return a mapping's items, with positions instead of keys that equal only themselves, such as modules."""
    return [
        (index if _is_compared_by_identity(key) else key, value)
        for index, (key, value) in enumerate(stored_items(mapping))
    ]


def _is_compared_by_identity(key: Any) -> bool:
    """Return whether a key is an object whose copies are different keys."""
    if is_instance(key, torch.Tensor | torch.nn.Module):
        return True
    return is_data(key) and getattr(type(key), "__hash__", None) is object.__hash__


def _shorten_message(message: str) -> str:
    """Return a short form of a message of ``assert_close``."""
    mismatch = re.search(r"Mismatched elements: (\d+) / (\d+)", message)
    greatest = re.search(r"Greatest absolute difference: (\S+)", message)
    parts = [f"{mismatch[1]} of {mismatch[2]} elements differ"] if mismatch else ["different values"]
    parts += [f"by up to {float(greatest[1]):.3g}"] if greatest else []
    return " ".join(parts)


def _parts_of_methods(expected: Any, actual: Any) -> tuple[Any, Any]:
    """Return the objects to compare for two methods of different copies: the functions, or else the owners.

    Methods written in C, such as those of a lock, have no function.
    """
    if is_instance(expected, types.MethodType) and is_instance(actual, types.MethodType):
        return expected.__func__, actual.__func__
    if is_instance(expected, types.BuiltinMethodType) and is_instance(actual, types.BuiltinMethodType):
        return (expected.__self__, actual.__self__) if expected.__name__ == actual.__name__ else (expected, actual)
    return expected, actual


def _stream_content(stream: io.StringIO | io.BytesIO | None) -> tuple[str | bytes, int] | None:
    """Return the content and the position of a stream in memory; ``None`` if the stream is closed."""
    return None if stream is None or stream.closed else (stream.getvalue(), stream.tell())


def _is_same_kind(expected: Any, actual: Any) -> bool:
    """Return whether two objects can be compared by value because both are of one type, sequences or mappings."""
    kinds = type(expected), type(actual)
    if kinds[0] is kinds[1]:
        return True
    # Each mock has a class that no other mock has.
    if all(kind.__module__ == "unittest.mock" for kind in kinds):
        return len({(kind.__qualname__, kind.__bases__) for kind in kinds}) == 1
    return any(is_instance(expected, kind) and is_instance(actual, kind) for kind in (list | tuple, Mapping))


def _describe_type(value: Any) -> str:
    if is_instance(value, YieldedItems):
        return "a generator"
    name = "a Tensor" if is_instance(value, torch.Tensor) else type(value).__name__
    return f"{name} {short_repr(value)}" if is_instance(value, bool | int | float | str) else name


def _is_close(expected: complex, actual: complex) -> bool:
    """Return whether two numbers are equal up to rounding errors.

    A number that Python itself computed, such as a small learning rate, has no rounding errors of ``float32``.
    """
    if isinstance(expected, float) and math.isnan(expected):
        return actual != actual  # noqa: PLR0124 - nan
    if not (cmath.isfinite(expected) and cmath.isfinite(actual)):  # the tolerance would be infinite
        return expected == actual or repr(expected) == repr(actual)
    difference = abs(expected - actual)
    if not _is_single(expected) and difference > _RTOL_OF_SMALL_DOUBLES * abs(expected):
        return False
    return expected == actual or difference <= _ATOL + 1.3e-6 * abs(expected)


def _is_single(number: Any) -> bool:
    """Return whether ``float32`` represents a number exactly, as after ``item()``; complex numbers count as such."""
    return isinstance(number, complex) or number == ctypes.c_float(number).value


def _is_equal(expected: Any, actual: Any) -> bool:
    try:
        return bool(expected == actual) or "__eq__" not in {
            name for cls in type(expected).__mro__[:-1] for name in vars(cls)
        }
    except Exception:  # noqa: BLE001 - calls the user's `__eq__`
        return True
