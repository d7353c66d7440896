"""Distinguish wrong results from different rounding by comparing results with those in double precision."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.copies import clone, digest, memory_key, shape_of, storage_to_share
from jupyter_graphbreak.experiments.trial.memory import SharedMemory
from jupyter_graphbreak.experiments.trial.named_objects import named_tensors
from jupyter_graphbreak.experiments.trial.values import describe_difference
from jupyter_graphbreak.records.attributes import attribute_of, is_instance

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.trial.subject import Subject

#: The maximum distance of a result from the one in double precision, as a multiple of the distance due to rounding.
_MAX_DISTANCE_FACTOR = 8.0
#: If the distance of the eager result is more than this many times the rounding, the eager call took a different
#: branch, or is itself imprecise.
_DIFFERENT_BRANCH_FACTOR = 100.0
#: The maximum distance of an imprecise result, such as the norm of a million numbers, relative to its largest number.
_IMPRECISE_TOLERANCE = 1e-3
#: The maximum distance of a result whose terms cancel, relative to the largest number of all results. Such a result
#: consists of rounding errors only: the gradient of a bias before batch normalization is zero, but eager mode computes
#: a different number.
_CANCELED_TOLERANCE = 1e-4
#: The permitted error of a gradient that is summed in a different order, in rounding errors of its largest number.
#: Sums of a hundred thousand float32 products of both signs were off by up to 600 rounding errors, in eager mode and
#: with Inductor. The permitted error is multiplied by ``_MAX_DISTANCE_FACTOR``.
_SUMMATION_ERRORS = 128
#: The maximum distance of a result that jumps, as a multiple of the jumps that large noise causes.
_JUMP_FACTOR = 2.0
_CONVERTED_DTYPES = {torch.float16, torch.bfloat16, torch.float32}
#: Methods that cast a tensor to one of these dtypes.
_CASTS = {torch.Tensor.half, torch.Tensor.bfloat16, torch.Tensor.float}
#: Matches the names of functions that create a tensor like an existing one, or read its bytes as numbers of a dtype.
_KEEPS_DTYPE = re.compile("new_|.*_like$|view$")
#: The sizes of the noise added to inputs, in rounding errors. Small noise shows the size of rounding in a result.
#: Large noise shows where a result jumps, such as the gradient of ``relu`` at zero.
SMALL_NOISE, LARGE_NOISE = 1, 256
#: The number of elements to which noise is added at once.
_NOISE_CHUNK = 1 << 16


class DoublePrecisionResults(NamedTuple):
    """Results in double precision: for the inputs, for inputs with small noise, and for inputs with large noise.

    ``largest`` is the largest number in all results of the call; ``value`` may be only one of the results.
    ``eps`` is the largest rounding error of the dtypes in the compiled graphs; see :func:`eps_of`.
    """

    largest: float
    value: Any
    value_with_noise: Any
    value_with_large_noise: Any = None
    eps: float = 0.0


class _Tolerance(NamedTuple):
    """The permitted error of a result, in rounding errors of its largest number, and the limit if its terms cancel."""

    summation_error_count: int
    limit_if_canceled: float
    eps: float


def difference_beyond_rounding(
    expected: Any,
    actual: Any,
    exact: DoublePrecisionResults | None = None,
    *,
    are_gradients: bool = False,
    ignored_paths: Collection[str] = (),
    root: str = "",
) -> str | None:
    """Return a description of the difference between two results if it exceeds rounding, else ``None``.

    ``exact`` contains the results in double precision, which show the size of rounding, if they are available.
    Gradients are sums over many elements.
    """
    result = describe_difference(expected, actual, ignored_paths=ignored_paths, root=root)
    if result is None or exact is None or describe_difference(expected, actual, compares_values=False) is not None:
        return result
    parts = [flatten(value) for value in (expected, actual, exact.value, exact.value_with_noise)]
    if exact.value_with_large_noise is not None:
        parts.append(flatten(exact.value_with_large_noise))
    if len({len(part) for part in parts}) > 1:
        return result
    tolerance = _Tolerance(_SUMMATION_ERRORS if are_gradients else 1, _CANCELED_TOLERANCE * exact.largest, exact.eps)
    return None if all(_is_rounding(tolerance, *leaf) for leaf in zip(*parts, strict=True)) else result


def flatten(value: Any) -> list[Any]:
    """Return the tensors, numbers and strings in a value, including those in its containers and objects."""
    result: list[Any] = []
    pending, visited_ids = [value], set()
    while pending:
        item = pending.pop()
        if is_instance(item, torch.Tensor | str | bytes | int | float | complex | type(None)):
            result.append(item)
            continue
        if id(item) in visited_ids:
            continue
        visited_ids.add(id(item))
        if is_instance(item, Mapping):
            pending += item.values()
        elif is_instance(item, list | tuple):
            pending += item
        elif attribute_of(item, "__dict__") is not None:
            pending += vars(item).values()
    return result


def _is_rounding(
    tolerance: _Tolerance, expected: Any, actual: Any, exact: Any, with_noise: Any, *with_large_noise: Any
) -> bool:
    if describe_difference(expected, actual) is None:
        return True
    values = [expected, actual, exact, with_noise, *with_large_noise]
    if all(is_instance(value, float) for value in values):
        tolerance_of_number = tolerance._replace(summation_error_count=1)
        return _is_rounding(tolerance_of_number, *(torch.tensor(value, dtype=torch.float64) for value in values))
    if not all(is_instance(value, torch.Tensor) and shape_of(value) == shape_of(expected) for value in values):
        return False
    if not expected.is_floating_point():
        return False
    eps = max(torch.finfo(expected.dtype).eps, tolerance.eps)
    is_half = eps > torch.finfo(torch.float32).eps
    with torch.no_grad():
        expected, actual, exact, with_noise, *large_noise_results = (value.detach().double() for value in values)
        distance_before_digest = torch.zeros(())
        if expected.shape != exact.shape:  # for large half-precision tensors, `exact` is a digest
            distance_before_digest = (actual - expected).nan_to_num(0).abs().max()
            expected, actual = digest(expected), digest(actual)
        is_finite = exact.isfinite() & with_noise.isfinite() & expected.isfinite()
        if not torch.equal(actual[~is_finite].nan_to_num(), expected[~is_finite].nan_to_num()):
            return False
        expected, actual, exact, with_noise, *large_noise_results = (
            value[is_finite] for value in (expected, actual, exact, with_noise, *large_noise_results)
        )
        if not exact.numel():
            return True
        rounding = (with_noise - exact).abs().max() + eps * (
            1 if is_half else tolerance.summation_error_count
        ) * exact.abs().max()
        expected_distance, actual_distance = (expected - exact).abs().max(), (actual - exact).abs().max()
        jumps = torch.zeros_like(expected_distance)
        if large_noise_results and not is_half:  # half precision is too coarse for this test
            # A smooth result changes in proportion to the noise, which has the same direction in both cases.
            ratio = LARGE_NOISE / SMALL_NOISE
            deviation = ((large_noise_results[0] - exact) - ratio * (with_noise - exact)).abs()
            jumps = _JUMP_FACTOR * deviation.nan_to_num(0, posinf=0).max()  # an overflow shows no jump
        limit = max(_MAX_DISTANCE_FACTOR * expected_distance, _MAX_DISTANCE_FACTOR * rounding, jumps)
        if (
            expected_distance > max(_DIFFERENT_BRANCH_FACTOR * rounding, jumps)
            and expected_distance > tolerance.limit_if_canceled
        ):
            limit = expected_distance if expected_distance <= _IMPRECISE_TOLERANCE * exact.abs().max() else -1
        return bool(actual_distance <= limit and distance_before_digest <= 2 * limit)


def eps_of(graph: torch.fx.Graph) -> float:
    """Return the largest relative rounding error of the dtypes that a captured graph computes in."""
    values = [node.meta.get("example_value") for node in graph.nodes]
    dtypes = {value.dtype for value in values if is_instance(value, torch.Tensor) and value.is_floating_point()}
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)


def to_double(value: Any, *, noise_size: int = 0, eps: float = 0.0) -> Any:
    """Return a copy of a value with its tensors and modules in double precision.

    Each number is changed by up to ``noise_size`` rounding errors, of which ``eps`` is the smallest to assume;
    see :func:`eps_of`. All calls use the same random directions.
    """
    return _convert_to_double(clone(value), {}, _Noise(noise_size, eps))


class DoublePrecisionMemory(SharedMemory):
    """The memory of a subject that runs once, in double precision, with noise as in :func:`to_double`.

    It shares nothing with the memory of other subjects, so their working copies can be released during the run.
    Tensors that share memory also share it in double precision.
    """

    def __init__(self, *, noise_size: int, eps: float) -> None:
        super().__init__()
        self._noise = _Noise(noise_size, eps)
        self._converted_elements: dict[Any, torch.Tensor] = {}
        self._own_keys: set[Any] = set()

    def copy_elements(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a copy of a detached tensor in double precision; ``None`` if the tensor keeps its dtype."""
        if tensor.dtype not in _CONVERTED_DTYPES:
            return None
        storage = storage_to_share(tensor)
        if storage is None:
            return self._record(_to_double_tensor(tensor, self._noise))
        key = memory_key(storage), tensor.dtype
        if key not in self._converted_elements:
            elements = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
            self._converted_elements[key] = self._record(_to_double_tensor(elements, self._noise))
        result = torch.empty(0, dtype=torch.float64, device=tensor.device)
        return result.set_(
            self._converted_elements[key].untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
        )

    def copy_storage(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        """Return a copy of a storage whose elements keep their dtype."""
        del tensor
        result: torch.UntypedStorage = storage.clone()
        self._own_keys.add(memory_key(result))
        return result

    def restores(self, storage: torch.UntypedStorage) -> bool:
        """Return whether a storage needs no saving because it is a copy that only one run uses."""
        return memory_key(storage) in self._own_keys

    def convert_other_tensors(self, subject: Subject) -> Arguments:
        """Convert tensors that their class has copied, such as torchvision's images, and return the arguments."""
        visited_ids: set[int] = set()
        for name, root in subject.roots():
            for _, tensor in named_tensors(root, name, visited_ids):
                if tensor.dtype in _CONVERTED_DTYPES:
                    tensor.data = _to_double_tensor(tensor.data, self._noise)
        arguments = subject.arguments or Arguments()
        args, kwargs = _convert_to_double((arguments.args, arguments.kwargs), {}, self._noise)
        return Arguments(*args, **kwargs)

    def _record(self, tensor: torch.Tensor) -> torch.Tensor:
        self._own_keys.add(memory_key(tensor.untyped_storage()))
        return tensor


class CastToDouble(TorchFunctionMode):
    """While this mode is active, casts of a tensor to a lower precision cast it to double precision instead.

    Otherwise, the operations after ``x.float()`` or ``x.to(torch.bfloat16)`` would mix precisions, which many of them
    and many backward passes refuse. New tensors keep their dtype, because random numbers depend on it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a PyTorch function, with double precision if it would cast a tensor to a lower precision."""
        kwargs = kwargs or {}
        if func in _CASTS:
            return torch.Tensor.double(*args, **kwargs)
        if args and is_instance(args[0], torch.Tensor) and not _KEEPS_DTYPE.match(getattr(func, "__name__", "")):
            args = tuple(map(_to_double_dtype, args))
            kwargs = {name: _to_double_dtype(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _to_double_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _CONVERTED_DTYPES else value


class _Noise:
    """Random changes of numbers by at most ``size`` rounding errors, each of at least ``eps``."""

    def __init__(self, size: int, eps: float) -> None:
        self._size, self._eps = size, eps
        self._generator = torch.Generator().manual_seed(0)

    def add_to(self, value: torch.Tensor, eps: float) -> torch.Tensor:
        """Return a value in double precision with noise."""
        if not self._size:
            return value.double()
        # This needs one small buffer besides the result, because the tensors of a state may be large.
        factors = torch.rand(value.numel(), dtype=torch.float64, generator=self._generator)
        factors = factors.to(value.device)
        factors.mul_(2).sub_(1).mul_(self._size * max(eps, self._eps) / 2).add_(1)
        buffer = torch.empty(min(_NOISE_CHUNK, value.numel()), dtype=torch.float64, device=value.device)
        for chunk, elements in zip(factors.split(_NOISE_CHUNK), value.reshape(-1).split(_NOISE_CHUNK), strict=True):
            chunk.mul_(buffer[: len(elements)].copy_(elements))
        return factors.view(value.shape)


def _convert_to_double(value: Any, memo: dict[int, Any], noise: _Noise) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    result: Any = value
    if is_instance(value, torch.nn.Module):
        with torch.no_grad():
            for tensor in (*value.parameters(), *value.buffers()):
                if tensor.dtype in _CONVERTED_DTYPES:
                    tensor.data = _to_double_tensor(tensor.data, noise)
    elif is_instance(value, torch.Tensor) and value.dtype in _CONVERTED_DTYPES:
        result = _to_double_tensor(value.detach(), noise).requires_grad_(value.requires_grad)
    elif is_instance(value, dict):
        for key in value:
            value[key] = _convert_to_double(value[key], memo, noise)
    elif is_instance(value, list):
        value[:] = [_convert_to_double(item, memo, noise) for item in value]
    elif is_instance(value, tuple):
        parts = [_convert_to_double(item, memo, noise) for item in value]
        result = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    memo[id(value)] = result
    return result


def _to_double_tensor(value: torch.Tensor, noise: _Noise) -> torch.Tensor:
    return noise.add_to(value, torch.finfo(value.dtype).eps)
