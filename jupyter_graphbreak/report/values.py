"""Data about the values inside compiled code: those of each line, and the operations that produce NaN and Inf."""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_graphbreak.report.location import Location


class ValueRange(msgspec.Struct, frozen=True):
    """The range of a tensor's elements, over all executions of the operation that computes it.

    Parameters
    ----------
    shape : list of int
        The shape in the first execution.
    elements, nan, inf : int
        The number of elements, of those that are NaN, and of those that are infinite.
    low, high, mean : float or None
        The smallest, the largest and the mean of the finite elements. They are ``None`` if there are no such elements,
        or if PyTorch cannot compare them, as is the case for complex numbers.
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
        The line that calls the operation, without its text.
    op : str
        The function that the operation calls.
    graph : str or None
        The id of the graph that contains the operation. It is ``None`` if no graph contains the line: the values are
        then those of the eager call.
    forward : ValueRange
        The values of the operation's result.
    backward : ValueRange or None
        The values of the result's gradient; ``None`` if there is none.
    executions : int
        How often the operation ran in the call.
    """

    location: Location
    op: str
    graph: str | None
    forward: ValueRange
    backward: ValueRange | None = None
    executions: int = 1


class NonFinite(msgspec.Struct, frozen=True):
    """The first operation that produces NaN or Inf from finite numbers.

    Parameters
    ----------
    direction : {"forward", "backward"}
        Whether NaN or Inf is in the result, or in the gradient that the backward pass of the operation computes.
    op : str
        The function that the operation calls.
    graph : str or None
        The id of the graph that contains the operation; ``None`` if it runs eagerly.
    count, elements : int
        The number of elements that are NaN or infinite, and the number of all elements.
    execution : int
        The execution of the operation in which NaN or Inf first appears, counted from 1.
    further : int
        The number of other operations that later produce NaN or Inf from finite numbers.
    eager : {"same", "elsewhere", "none"} or None
        Where NaN or Inf first appears in the eager call: on the same line, on a different line, or nowhere. ``None`` if
        this is unknown.
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
    """A tensor in the arguments or the state of the function that contains NaN or Inf before the call."""

    name: str
    nan: int
    inf: int


class NonFiniteCounts(msgspec.Struct, frozen=True):
    """The numbers of NaN and infinite elements in the results of a call, and in the gradients of its inputs.

    Parameters
    ----------
    by : {"graphs", "eager", "backend"}
        The code that computed the results: the operations of the graphs one by one, the eager function, or the
        backend's code.
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
    """The values of one call to a compiled function.

    Parameters
    ----------
    backend : str
        The backend that compiled the function.
    calls : int
        The number of calls in the run.
    call : int
        The number of the call that was repeated for these values: the first one, or the first one whose result had NaN
        in the run (torch 2.12 and newer). If it is not the first call, it was repeated with the arguments and the
        state as they were after it.
    first : list of NonFinite
        The first operation of each direction and kind.
    given : list of NonFiniteInput
        The inputs that had NaN or Inf before the call, at most ten.
    results : list of NonFiniteCounts
        The counts for each value of ``by``, as far as there was time; ``"backend"`` is missing if the backend is
        ``eager``, which also runs operations one by one.
    lines : list of LineValues
        The values of the last operation on each line, or of all operations on the lines that were requested, in the
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
