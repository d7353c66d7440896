"""Record the values that operations compute, and find the operations that produce NaN or Inf from finite numbers."""

from __future__ import annotations

import copy
import inspect
import math
import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import frames_outward
from jupyter_graphbreak._torch_compat.structured_trace import current_compile_id
from jupyter_graphbreak._torch_compat.tensor_values import in_place_change_count
from jupyter_graphbreak.experiments.trial.time_limit import require_time
from jupyter_graphbreak.experiments.values.ranges import (
    ALL_FINITE,
    NonfiniteFlags,
    merge_ranges,
    nonfinite_flags,
    range_of,
)
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, package_paths
from jupyter_graphbreak.records.records import StackFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator
    from types import FrameType

    from jupyter_graphbreak.report.values import ValueRange

#: The maximum number of gradient functions of one operation to search for.
_MAX_FUNCTIONS = 200
#: The name of the gradient function of a leaf, which computes nothing.
_LEAF_FUNCTION_NAME = "AccumulateGrad"


@dataclass
class RecordedValue:
    """The ranges of the values of one operation, over all of its executions."""

    forward: ValueRange
    backward: ValueRange | None = None
    execution_count: int = 0


class NonfiniteOrigin(NamedTuple):
    """The first execution in which an operation produced NaN or Inf."""

    key: Any
    direction: Literal["forward", "backward"]
    kind: Literal["nan", "inf"]
    value_range: ValueRange
    execution: int


@dataclass
class ValueRecorder:
    """Records the operations of one call, and of the backward pass from its results.

    ``values`` contains the values of operations, by key, in the order in which the operations first ran. ``origins``
    contains the origins of NaN and Inf, by the operation's key, the direction and the kind.
    """

    values: dict[Hashable, RecordedValue] = field(default_factory=dict)
    origins: dict[tuple[Hashable, str, str], NonfiniteOrigin] = field(default_factory=dict)
    _executions: Counter[Hashable] = field(default_factory=Counter)
    #: The gradient functions of the operations so far, kept alive so that none of their ids is used again.
    _gradient_functions: set[Any] = field(default_factory=set)
    _known_flags: dict[int, tuple[weakref.ref[torch.Tensor], int, NonfiniteFlags]] = field(default_factory=dict)

    def run(
        self, key: Hashable, arguments: Any, compute: Callable[[], Any], *, literal_flags: NonfiniteFlags = ALL_FINITE
    ) -> Any:
        """Run an operation, record its values, and return its result.

        ``literal_flags`` tells whether numbers among the arguments are NaN or infinite, such as ``-inf`` for a mask.
        """
        inputs = list(_tensors(arguments))
        input_flags = self._flags(inputs)
        flags_before = NonfiniteFlags(
            input_flags.has_nan or literal_flags.has_nan, input_flags.has_inf or literal_flags.has_inf
        )
        for tensor in inputs:
            if tensor.grad_fn is not None:
                self._gradient_functions.add(tensor.grad_fn)
        result = compute()
        outputs = list(_tensors(result))
        if not outputs:
            return result
        self._executions[key] += 1
        execution = self._executions[key]
        for number, tensor in enumerate(outputs):
            value_range = range_of(tensor)
            self._remember_flags(tensor, NonfiniteFlags(value_range.nan > 0, value_range.inf > 0))
            if number == 0:
                self._add_forward(key, value_range, execution)
            self._find_origins(key, "forward", value_range, flags_before, execution)
            if tensor.requires_grad and not tensor.is_leaf:
                self._watch_backward(key, tensor, execution, is_first=number == 0)
        return result

    def release_objects(self) -> None:
        """Release the references to objects of the call, to free their memory."""
        self._gradient_functions.clear()
        self._known_flags.clear()

    def _add_forward(self, key: Hashable, value_range: ValueRange, execution: int) -> None:
        recorded_value = self.values.get(key)
        if recorded_value is None:
            self.values[key] = RecordedValue(value_range, execution_count=execution)
        else:
            recorded_value.forward, recorded_value.execution_count = (
                merge_ranges(recorded_value.forward, value_range),
                execution,
            )

    def _add_backward(self, key: Hashable, gradient: torch.Tensor) -> None:
        recorded_value, value_range = self.values[key], range_of(gradient)
        recorded_value.backward = (
            value_range if recorded_value.backward is None else merge_ranges(recorded_value.backward, value_range)
        )

    def _find_origins(
        self,
        key: Hashable,
        direction: Literal["forward", "backward"],
        value_range: ValueRange,
        flags_before: NonfiniteFlags,
        execution: int,
    ) -> None:
        # NaN is recorded even if the operands are infinite, as in Inf / Inf; Inf only if all operands are finite.
        if value_range.nan and not flags_before.has_nan:
            origin = NonfiniteOrigin(key, direction, "nan", value_range, execution)
            self.origins.setdefault((key, direction, "nan"), origin)
        if value_range.inf and not (flags_before.has_inf or flags_before.has_nan):
            origin = NonfiniteOrigin(key, direction, "inf", value_range, execution)
            self.origins.setdefault((key, direction, "inf"), origin)

    def _watch_backward(self, key: Hashable, tensor: torch.Tensor, execution: int, *, is_first: bool) -> None:
        """Watch the gradient of a result, and the gradient functions that its operation created."""
        if is_first:
            tensor.register_hook(lambda gradient: self._add_backward(key, gradient))

        def record_gradients(
            input_gradients: tuple[torch.Tensor | None, ...], output_gradients: tuple[torch.Tensor | None, ...]
        ) -> None:
            require_time()
            flags_before = self._flags(gradient for gradient in output_gradients if gradient is not None)
            for gradient in input_gradients:
                if gradient is not None:
                    self._find_origins(key, "backward", range_of(gradient), flags_before, execution)

        for function in self._new_functions(tensor.grad_fn):
            function.register_hook(record_gradients)

    def _new_functions(self, function: Any) -> Iterator[Any]:
        """Yield the gradient functions behind a result, except those of earlier operations."""
        pending, count = [function], 0
        while pending and count < _MAX_FUNCTIONS:
            function = pending.pop()
            if (
                function is None
                or function in self._gradient_functions
                or function.name().rpartition("::")[2].startswith(_LEAF_FUNCTION_NAME)
            ):
                continue
            count += 1
            self._gradient_functions.add(function)
            yield function
            pending += [next_function for next_function, _ in function.next_functions]

    def _flags(self, tensors: Iterable[torch.Tensor]) -> NonfiniteFlags:
        """Return two flags: whether any tensor contains NaN, and whether any contains infinite elements."""
        nan = inf = False
        for tensor in tensors:
            known_flags = self._known_flags.get(id(tensor))
            version = in_place_change_count(tensor)
            if known_flags is not None and known_flags[0]() is tensor and known_flags[1] == version:
                flags = known_flags[2]
            else:
                flags = nonfinite_flags(tensor)
                self._remember_flags(tensor, flags)
            nan, inf = nan or flags.has_nan, inf or flags.has_inf
        return NonfiniteFlags(nan, inf)

    def _remember_flags(self, tensor: torch.Tensor, flags: NonfiniteFlags) -> None:
        version = in_place_change_count(tensor)
        if version is not None:
            self._known_flags[id(tensor)] = weakref.ref(tensor), version, flags


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in the arguments or in the result of an operation."""
    match value:
        case torch.Tensor():
            yield value
        case list() | tuple():
            for item in value:
                yield from _tensors(item)
        case dict():
            yield from _tensors(list(value.values()))


#: The maximum number of frames between an operation and the line that it comes from.
_MAX_FRAMES = 60


class GraphOpKey(NamedTuple):
    """The key of an operation in a graph: the compile id of its frame, and the name of the operation."""

    compile_id: str
    name: str


class EagerOpKey(NamedTuple):
    """The key of an operation in eager code: its line, and the name of PyTorch's function."""

    line: StackFrame
    op: str


class RecordingBackend:
    """A backend whose graphs run operation by operation, and whose operations are recorded."""

    def __init__(self, recorder: ValueRecorder) -> None:
        self._recorder = recorder
        self.operation_count = 0

    def __call__(self, module: torch.fx.GraphModule, _: Any, **__: Any) -> Callable[..., Any]:
        """Return a function that runs a graph and records its operations."""
        compile_id, recorder = current_compile_id(), self._recorder
        captured_module = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
        self.operation_count += sum(node.op in _CALL_OPS for node in captured_module.graph.nodes)

        def run(*args: Any) -> Any:
            return _RecordingInterpreter(captured_module, recorder, compile_id).run(*args)

        return run


_CALL_OPS = frozenset({"call_function", "call_method", "call_module"})


class _RecordingInterpreter(torch.fx.Interpreter):
    """Runs a graph operation by operation, and records each operation."""

    def __init__(self, module: torch.fx.GraphModule, recorder: ValueRecorder, compile_id: str) -> None:
        super().__init__(module)
        self._recorder = recorder
        self._compile_id = compile_id

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run an operation, and record it if it is a call."""
        if n.op not in _CALL_OPS:
            return super().run_node(n)
        require_time()
        arguments = [self.env[node] for node in n.all_input_nodes]
        return self._recorder.run(
            GraphOpKey(self._compile_id, n.name),
            arguments,
            lambda: super(_RecordingInterpreter, self).run_node(n),
            literal_flags=_nonfinite_flags_of_literals((n.args, n.kwargs)),
        )


class EagerRecordingMode(TorchFunctionMode):
    """Records the operations of eager code, each with its line."""

    def __init__(self, recorder: ValueRecorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._is_in_torch: dict[str, bool] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        require_time()
        line = self._line_outside_torch(inspect.currentframe())
        if line is None:
            return func(*args, **kwargs)
        key = EagerOpKey(line, getattr(func, "__name__", str(func)))
        return self._recorder.run(
            key,
            [args, kwargs],
            lambda: func(*args, **kwargs),
            literal_flags=_nonfinite_flags_of_literals((args, kwargs)),
        )

    def _line_outside_torch(self, frame: FrameType | None) -> StackFrame | None:
        """Return the innermost line outside of PyTorch and this package, or ``None`` after too many frames inside."""
        for outer in frames_outward(frame, _MAX_FRAMES):
            filename = outer.f_code.co_filename
            if filename not in self._is_in_torch:
                path = package_paths().module_path(filename) or ""
                self._is_in_torch[filename] = path.startswith("torch/") or filename.startswith(OWN_FOLDER)
            if not self._is_in_torch[filename]:
                return StackFrame(filename, outer.f_lineno, outer.f_code.co_name)
        return None


def _nonfinite_flags_of_literals(arguments: Any) -> NonfiniteFlags:
    """Return whether Python numbers among the arguments of an operation are NaN or infinite."""
    match arguments:
        case float():
            return NonfiniteFlags(math.isnan(arguments), math.isinf(arguments))
        case list() | tuple():
            flags_of_items = [_nonfinite_flags_of_literals(item) for item in arguments]
            return NonfiniteFlags(
                any(part.has_nan for part in flags_of_items), any(part.has_inf for part in flags_of_items)
            )
        case dict():
            return _nonfinite_flags_of_literals(list(arguments.values()))
    return ALL_FINITE
