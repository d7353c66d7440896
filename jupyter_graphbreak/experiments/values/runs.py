"""Run a call under a recorder of values: the operations of its graphs one by one, or the eager function."""

from __future__ import annotations

import copy
import inspect
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from jupyter_graphbreak.experiments.cost.graph_timer import compile_id
from jupyter_graphbreak.experiments.trial.time_limit import require_time
from jupyter_graphbreak.experiments.values.ranges import NOTHING, Presence
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, package_paths
from jupyter_graphbreak.records.records import StackEntry

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from jupyter_graphbreak.experiments.values.recorder import ValueRecorder

#: The maximum number of frames between an operation and the line that it comes from.
_MAX_FRAMES = 60


class NodeKey(NamedTuple):
    """An operation of a graph: the id of the compiled frame, and the name of the operation."""

    frame: str
    name: str


class PlaceKey(NamedTuple):
    """An operation of eager code: its line, and the name of the function."""

    place: StackEntry
    op: str


class GraphsOneByOne:
    """A backend whose graphs run one operation after the other under a recorder.

    Parameters
    ----------
    recorder : ValueRecorder

    Attributes
    ----------
    operations : int
        The number of operations in the graphs.
    """

    def __init__(self, recorder: ValueRecorder) -> None:
        self._recorder = recorder
        self.operations = 0

    def __call__(self, module: torch.fx.GraphModule, _: Any, **__: Any) -> Callable[..., Any]:
        """Compile a graph."""
        frame, recorder = compile_id(), self._recorder
        captured = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
        self.operations += sum(node.op in _CALLS for node in captured.graph.nodes)

        def run(*args: Any) -> Any:
            return _Recorded(captured, recorder, frame).run(*args)

        return run


_CALLS = frozenset({"call_function", "call_method", "call_module"})


class _Recorded(torch.fx.Interpreter):
    """Runs a graph operation by operation, and records each one."""

    def __init__(self, module: torch.fx.GraphModule, recorder: ValueRecorder, frame: str) -> None:
        super().__init__(module)
        self._recorder = recorder
        self._frame = frame

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run an operation."""
        if n.op not in _CALLS:
            return super().run_node(n)
        require_time()
        given = [self.env[node] for node in n.all_input_nodes]
        return self._recorder.run(
            NodeKey(self._frame, n.name),
            given,
            lambda: super(_Recorded, self).run_node(n),
            makes=_written((n.args, n.kwargs)),
        )


class EagerValues(TorchFunctionMode):
    """Records the operations of eager code, each with its line."""

    def __init__(self, recorder: ValueRecorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._is_in_torch: dict[str, bool] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        require_time()
        place = self._place(inspect.currentframe())
        if place is None:
            return func(*args, **kwargs)
        key = PlaceKey(place, getattr(func, "__name__", str(func)))
        return self._recorder.run(key, [args, kwargs], lambda: func(*args, **kwargs), makes=_written((args, kwargs)))

    def _place(self, frame: FrameType | None) -> StackEntry | None:
        """Return the innermost line that is not in PyTorch."""
        for _ in range(_MAX_FRAMES):
            if frame is None:
                return None
            filename = frame.f_code.co_filename
            if filename not in self._is_in_torch:
                path = package_paths().module_path(filename) or ""
                self._is_in_torch[filename] = path.startswith("torch/") or filename.startswith(OWN_FOLDER)
            if not self._is_in_torch[filename]:
                return StackEntry(filename, frame.f_lineno, frame.f_code.co_name)
            frame = frame.f_back
        return None


def _written(arguments: Any) -> Presence:
    """Return whether the program itself writes NaN or infinity in the arguments of an operation."""
    match arguments:
        case float():
            return Presence(math.isnan(arguments), math.isinf(arguments))
        case list() | tuple():
            found = [_written(item) for item in arguments]
            return Presence(any(part.nan for part in found), any(part.inf for part in found))
        case dict():
            return _written(list(arguments.values()))
    return NOTHING
