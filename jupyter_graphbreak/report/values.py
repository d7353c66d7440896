"""The values inside compiled code: what each line computes, and where NaN and Inf arise."""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_graphbreak.report.location import Location


class ValueRange(msgspec.Struct, frozen=True):
    """The range of a tensor's numbers, over all executions of the operation that computes it.

    Parameters
    ----------
    shape : list of int
        The shape in the first execution.
    elements, nan, inf : int
        The number of elements, and of those that are NaN and infinite.
    low, high, mean : float or None
        The smallest, the largest and the mean of the finite elements; ``None`` if there are none, or if PyTorch cannot
        compare them, such as complex numbers.
    """

    shape: list[int]
    dtype: str
    elements: int
    nan: int = 0
    inf: int = 0
    low: float | None = None
    high: float | None = None
    mean: float | None = None


class LineValues(msgspec.Struct, frozen=True):
    """The values of one operation.

    Parameters
    ----------
    location : Location
        The line it comes from, without its text.
    op : str
        The function that it calls.
    graph : str or None
        The graph that contains it; ``None`` if no graph contains its line: the values are then those of the eager call.
    forward : ValueRange
        Its result.
    backward : ValueRange or None
        The gradient of its result; ``None`` if there is none.
    executions : int
        The number of its executions in the call.
    """

    location: Location
    op: str
    graph: str | None
    forward: ValueRange
    backward: ValueRange | None = None
    executions: int = 1


class NonFinite(msgspec.Struct, frozen=True):
    """The first operation that makes NaN or Inf from finite numbers.

    Parameters
    ----------
    direction : {"forward", "backward"}
        Whether its result has them, or the gradient that its backward pass computes.
    kind : {"nan", "inf"}
    op : str
        The function that it calls.
    graph : str or None
        The graph that has it; ``None`` if it runs eagerly.
    count, elements : int
        The number of elements that are NaN or infinite, and of all elements.
    dtype : str
    execution : int
        The number of the execution, from 1.
    further : int
        The number of other operations that do the same later.
    eager : {"same", "elsewhere", "none"} or None
        Where the eager call has the first one of this kind: on the same line, on a different line, or nowhere;
        ``None`` if it is unknown.
    """

    direction: Literal["forward", "backward"]
    kind: Literal["nan", "inf"]
    op: str
    graph: str | None
    location: Location | None
    count: int
    elements: int
    dtype: str
    execution: int = 1
    further: int = 0
    eager: Literal["same", "elsewhere", "none"] | None = None


class NonFiniteInput(msgspec.Struct, frozen=True):
    """A tensor in the arguments or the state of the function that has NaN or Inf before the call."""

    name: str
    nan: int
    inf: int


class NonFiniteCounts(msgspec.Struct, frozen=True):
    """The numbers of NaN and infinite elements in the results of a call, and in the gradients of its inputs.

    Parameters
    ----------
    by : {"graphs", "eager", "backend"}
        Their origin: the operations of the graphs one by one, the eager function, or the backend's code.
    raised : str or None
        The class of the exception that the call raised.
    """

    by: Literal["graphs", "eager", "backend"]
    nan: int = 0
    inf: int = 0
    gradient_nan: int = 0
    gradient_inf: int = 0
    raised: str | None = None


class EntryValues(msgspec.Struct, frozen=True):
    """The values of one call of a compiled function.

    Parameters
    ----------
    backend : str
        The backend with which the function was compiled.
    calls : int
        The number of calls in the run.
    call : int
        The number of the call with these values: the first, or the first whose result had NaN in the run (torch 2.12
        and newer). For a later call than the first, the arguments and the state are those after it.
    first : list of NonFinite
        The first operation of each direction and kind.
    given : list of NonFiniteInput
        The inputs that had NaN or Inf before the call, at most ten.
    results : list of NonFiniteCounts
        The counts for each value of ``by``, as far as there was time; ``"backend"`` is missing if the backend is
        ``eager``, which also runs operations one by one.
    lines : list of LineValues
        The values of the last operation of each line, or of all operations of the lines that were asked for, in the
        order in which the lines ran.
    left_out : int
        The number of lines or operations that ``lines`` does not list.
    operations : int
        The number of operations in the graphs.
    """

    function: str
    backend: str
    calls: int = 1
    first: list[NonFinite] = []
    given: list[NonFiniteInput] = []
    results: list[NonFiniteCounts] = []
    lines: list[LineValues] = []
    left_out: int = 0
    operations: int = 0
    call: int = 1
