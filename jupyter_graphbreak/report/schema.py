"""The report, as frozen data that converts to JSON and back without loss.

The field names are a contract (other programs read them); additions keep the major number of ``schema_version``. All
ids are strings. Lines are 1-based, as in the notebook's editor (the line of the magic is line 1). Columns are 0-based,
in characters. Times are in seconds. Unknown values are ``None``.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, Self, TypeVar

import msgspec

from jupyter_graphbreak.report.cost import Check, Cost, Startup
from jupyter_graphbreak.report.diff import Changes
from jupyter_graphbreak.report.location import HeadKind, Location, Source
from jupyter_graphbreak.report.remedies import Edit, Remedy
from jupyter_graphbreak.report.reproducer import Reproducer
from jupyter_graphbreak.report.summary import Summary, Timing
from jupyter_graphbreak.report.values import EntryValues

SCHEMA_VERSION = "1.2"
#: The mime type of a report in a notebook's output; its number is the schema's major version.
MIME_TYPE = "application/vnd.graphbreak.report.v1+json"


class Device(msgspec.Struct, frozen=True):
    """The requested device and the device that was used; if they differ, ``note`` gives the reason."""

    requested: str
    used: str
    name: str | None = None
    note: str | None = None


class RunError(msgspec.Struct, frozen=True):
    """The exception that ended the run.

    Parameters
    ----------
    type, message : str
        Its class and its text.
    location : Location or None
        The place of the break that caused it; otherwise the innermost line of the user's code in its traceback, or a
        line of a library if there is none.
    break_ : str or None
        The id of the break that caused it.
    """

    type: str
    message: str
    location: Location | None = None
    break_: str | None = msgspec.field(default=None, name="break")


class Frame(msgspec.Struct, frozen=True):
    """One compilation of one code object, under the id that PyTorch prints (``0/0``).

    Parameters
    ----------
    id : str
        PyTorch's compile id; ``0/0#2`` if a reset within the run made PyTorch count from 0 again.
    role : {"entry", "call", "resume"}
        A function that the program compiles, a function that compiled or eager code calls, or a resume function.
    resume : str or None
        The id of the :class:`Resume` that this frame compiles.
    caller : str or None
        The id of the frame that called it.
    outcome : {"compiled", "empty", "skipped", "error"}
        ``empty`` means that there was no tensor operation to compile.
    attempts : int
        The number of times that Dynamo traced it: it starts again after a break, for example.
    module : str or None
        The class of the module whose call it is, if the function is the ``forward`` of a class or a wrapper around it.
    """

    id: str
    function: str
    location: Location | None
    role: Literal["entry", "call", "resume"]
    outcome: Literal["compiled", "empty", "skipped", "error"]
    attempts: int = 1
    resume: str | None = None
    caller: str | None = None
    graphs: list[str] = []
    breaks: list[str] = []
    compile_s: float | None = None
    recompile_of: str | None = None
    recompile_reasons: list[str] = []
    module: str | None = None


class TensorMeta(msgspec.Struct, frozen=True):
    """Shape (with symbols for dynamic dimensions), dtype and device of a tensor, as PyTorch prints them."""

    shape: list[int | str]
    dtype: str
    device: str | None = None


class Tensor(msgspec.Struct, frozen=True):
    """An input of a graph; for a number, only ``dtype`` is known, as PyTorch prints it, for example ``Sym(s0)``."""

    name: str
    shape: list[int | str] | None
    dtype: str
    device: str | None = None


class Op(msgspec.Struct, frozen=True):
    """One operation of a graph: the name of its result, the function it calls, and its line (without its text)."""

    name: str
    target: str
    location: Location | None = None
    output: TensorMeta | None = None


class GraphLine(msgspec.Struct, frozen=True):
    """The number of operations in a graph that come from one source line or from functions that the line calls."""

    source: str
    line: int
    ops: int


class Graph(msgspec.Struct, frozen=True):
    """A graph that Dynamo passed to the backend.

    Parameters
    ----------
    id : str
        A letter: "A" for the first graph of the run, "AA" after "Z".
    name : str
        The function that it was captured from.
    lines : list of GraphLine
        The lines of cells and files that its operations come from; library lines are left out.
    code : str
        The graph as readable Python.
    ends : {"return", "break"}
        Whether the function returned or a break ended the graph; ``break_`` is the id of that break.
    """

    id: str
    name: str
    frame: str
    ops: list[Op] = []
    inputs: list[Tensor] = []
    lines: list[GraphLine] = []
    code: str = ""
    ends: Literal["return", "break"] = "return"
    break_: str | None = msgspec.field(default=None, name="break")


class Reason(msgspec.Struct, frozen=True):
    """The reason for a break as PyTorch names it: its GB id in the registry of graph breaks, and its type."""

    gb_id: str | None
    gb_type: str


Rule = Literal["default", "own", "inherited", "inner over outer", "fullgraph"]


class Setting(msgspec.Struct, frozen=True):
    """The setting that decided whether a break was an error.

    Parameters
    ----------
    value : bool
        The value in force: ``True`` makes a break an error.
    rules : list of str
        The deciding rules: ``default`` (no known scope decides); ``own`` (a scope around the place itself);
        ``inherited`` (a scope around a call that led here); ``inner over outer``; ``fullgraph`` (overrides all scopes).
    scope : str or None
        The id of the :class:`Scope` that set it.
    chain : list of str
        The ids of all open scopes, outermost first.
    """

    value: bool
    rules: list[Rule]
    scope: str | None = None
    chain: list[str] = []


class Occurrence(msgspec.Struct, frozen=True):
    """One event of the trace: the break in one frame and one attempt.

    ``stack`` lists the user and library frames from the outermost frame to the break. In the output of a cell it is
    empty if it goes through the same lines as the stack of the break. ``setting`` is the setting in force at that
    moment, if it could be read.
    """

    frame: str | None
    attempt: int
    stack: list[Location]
    outcome: Literal["resumed", "skipped", "error"]
    consequence: Reason | None = None
    setting: Setting | None = None


class Advice(msgspec.Struct, frozen=True):
    """A piece of advice about a break; ``origin`` is its author: PyTorch or this package."""

    text: str
    origin: Literal["pytorch", "graphbreak"] = "pytorch"


#: The owner of a line of code: the user (a cell or a file), a library, or PyTorch.
Owner = Literal["own", "library", "torch"]


class BreakCost(msgspec.Struct, frozen=True):
    """The cost of a break.

    Parameters
    ----------
    graphs : int
        The number of graphs that exist only because of the break.
    compile_s : float or None
        The time for compiling its resume functions, if it was measured. Without the break, much of this time may remain
        as a part of the time for compiling the graph before it.
    eager : int
        The number of functions that run eagerly because of it, without those of Python's standard library, and without
        comprehensions inside the functions that count.
    """

    graphs: int = 0
    compile_s: float | None = None
    eager: int = 0


class Break(msgspec.Struct, frozen=True):
    """One place in the source that broke a graph for one reason, however often it occurred.

    Parameters
    ----------
    gb_id : str or None
        The id in PyTorch's registry, e.g. "GB0170".
    gb_type : str
        The registry's name for the reason; without one, the class of the exception or the first line of its message.
    consequence : Reason or None
        The reason why the frame could not resume after it; ``None`` if it could.
    outcome : {"resumed", "skipped", "error"}
        The worst outcome of the frames in which it occurred.
    resumes, skipped : list of str
        The ids of the :class:`Resume` functions that it created, and of the :class:`Skipped` functions that run eagerly
        because of it.
    scope : str or None
        The id of the :class:`Scope` that governed its last occurrence; ``setting`` has details.
    also_reported_as : list of str
        Other names for the same cause in PyTorch's outputs.
    owner : {"own", "library", "torch"}
        The owner of the code that has to change to remove it. A line of the standard library counts as its caller's.
    minor : bool
        Whether it is in a library and neither ends nor adds a graph: only a helper runs eagerly.
    """

    id: str
    gb_id: str | None
    gb_type: str
    location: Location | None
    outcome: Literal["resumed", "skipped", "error"]
    url: str | None = None
    explanation: str | None = None
    hints: list[str] = []
    context: str | None = None
    consequence: Reason | None = None
    stack: list[Location] = []
    occurrences: list[Occurrence] = []
    resumes: list[str] = []
    skipped: list[str] = []
    scope: str | None = None
    advice: list[Advice] = []
    setting: Setting | None = None
    also_reported_as: list[str] = []
    cost: BreakCost | None = None
    owner: Owner = "own"
    minor: bool = False


NoFrame = Literal["eager", "compiled before", "inlined", "not reached"]


class Resume(msgspec.Struct, frozen=True):
    """A function that Dynamo created to continue after a break.

    Parameters
    ----------
    location : Location or None
        The line at which it continues.
    frames : list of str
        Its compilations in this run.
    graphs : list of str
        The graphs of these frames, or of the frames that it is inlined in.
    no_frame : {"eager", "compiled before", "inlined", "not reached"} or None
        The reason why it has no frame: it ran eagerly; it was compiled before this run, and may have run from that
        code; it was compiled as a part of its caller's resume function, as with ``nested_graph_breaks``; it did not
        run, such as a branch not taken. ``None`` if it has frames, or if the reason is unknown.
    """

    id: str
    name: str
    function: str
    location: Location | None
    break_: str | None = msgspec.field(default=None, name="break")
    frames: list[str] = []
    graphs: list[str] = []
    no_frame: NoFrame | None = None


SkipKind = Literal[
    "loop", "context manager", "try", "skip_frame", "generator", "dispatch mode", "recompile limit", "shared wrapper",
    "marked", "remembered", "error", "other",
]  # fmt: skip


class Skipped(msgspec.Struct, frozen=True):
    """A function that runs eagerly, for a reason such as a break, an error or the recompile limit.

    Parameters
    ----------
    frame : str or None
        Its compile id; ``None`` if Dynamo never began it.
    location : Location or None
        All lines that run eagerly: from the function's first line, including decorators, or the line at which a resume
        function continues, to its last line; a single line if the text is unknown.
    reason : str
        The reason, in a sentence.
    callees : list of str
        The frames of functions that it calls and that are compiled nevertheless.
    way_out : str or None
        A change that would make Dynamo compile it.
    """

    id: str
    frame: str | None
    function: str
    location: Location | None
    reason: str
    break_: str | None = msgspec.field(default=None, name="break")
    kind: SkipKind = "other"
    callees: list[str] = []
    way_out: str | None = None
    setting: Setting | None = None


class PathDifference(msgspec.Struct, frozen=True):
    """A call such as ``torch.compiler.is_compiling()``, whose result differs while compiling.

    A call whose result decides several branches is listed once for each of them.

    Parameters
    ----------
    function : str
        The function that the program calls.
    location : Location or None
        The place of the call.
    compiled, eager : str
        The result while compiling, and the result without ``torch.compile``.
    branch : Location or None
        The test that the result decides; ``None`` if it decides none.
    lines : list of Location
        The lines of the test's function that run only because of the result, without their text.
    skipped : list of Location
        The lines of the test's function that only uncompiled code reaches, without their text.
    """

    function: str
    location: Location | None
    compiled: str
    eager: str
    branch: Location | None = None
    lines: list[Location] = []
    skipped: list[Location] = []

    @property
    def changes_lines(self) -> bool:
        """Whether the result of the call decides which lines run."""
        return bool(self.lines or self.skipped)


class Scope(msgspec.Struct, frozen=True):
    """A region of the source in which a setting decides whether a break is an error.

    Parameters
    ----------
    location : Location or None
        From the line that opens it to the last line of its ``with`` block or of the decorated function; for a call, the
        call itself. ``None`` if it was opened before watching began.
    parent : str or None
        The scope that was open around it when it was first opened.
    breaks : list of str
        The breaks that it governed.
    """

    id: str
    setting: Literal["error_on_graph_break", "fullgraph"]
    value: bool
    form: Literal["decorator", "with", "call"]
    location: Location | None
    parent: str | None = None
    breaks: list[str] = []
    note: str | None = None


class WhatIf(msgspec.Struct, frozen=True):
    """The effect that stricter settings would have had in this run, as far as the run shows.

    Parameters
    ----------
    error_on_graph_break : list of str
        The breaks that ``error_on_graph_break(True)`` around the compiled function would have turned into errors, in
        the order in which they occurred; the first one would have ended the run.
    fullgraph : str or None
        The break at which ``fullgraph=True`` would have ended the run, regardless of scopes: the first break that it
        does not capture. If there are breaks in ``captured``, the run would have ended there at the latest.
    captured : list of str
        The breaks before ``fullgraph`` that ``fullgraph=True`` tries to capture instead, such as ``.item()``. Later
        code that needs the value, such as a branch, can still be an error.
    """

    error_on_graph_break: list[str] = []
    fullgraph: str | None = None
    captured: list[str] = []


class GuardFailure(msgspec.Struct, frozen=True):
    """A guard that failed.

    Parameters
    ----------
    guard : str
        The guard, as PyTorch shows it.
    location : Location or None
        The source line that caused it, if PyTorch reports it.
    head : {"loop", "condition"} or None
        Whether the line is in the head of a loop or of a condition; ``None`` if it is in neither, or unknown.
    """

    guard: str
    location: Location | None = None
    head: HeadKind | None = None


class Recompile(msgspec.Struct, frozen=True):
    """A further compilation of a function, or its refusal because a limit was reached.

    ``id`` is "r1" for the first one of the run; it is empty in reports of schema versions before 1.2.
    """

    frame: str
    of: str | None
    function: str
    location: Location | None
    reasons: list[GuardFailure] = []
    limit_hit: bool = False
    id: str = ""


class CudagraphSkip(msgspec.Struct, frozen=True):
    """A graph that runs without a CUDA graph although the backend was asked to use one.

    Parameters
    ----------
    reason : str
        PyTorch's reason, without the stack.
    graph : str or None
        The id of the graph, if known.
    location : Location or None
        The line that is the cause, if PyTorch reports it.
    """

    reason: str
    graph: str | None = None
    location: Location | None = None


class CachedFunction(msgspec.Struct, frozen=True):
    """A function that PyTorch began to compile before the run and whose compiled code was still in its cache.

    It may have run from its earlier compiled code, which leaves no record.

    Parameters
    ----------
    source : str
        The path of its file, or the name of its cell.
    line : int
        The first line of the function.
    """

    function: str
    source: str
    line: int


class CompiledCall(msgspec.Struct, frozen=True):
    """A module or a function that was compiled for this report although the code does not compile it.

    Parameters
    ----------
    name : str
        The name in the code, e.g. ``model`` or ``trainer.net``, or else the name of its class or function.
    type : str or None
        The class of a module.
    code : str or None
        The statement with which the code would compile it.
    edit : Edit or None
        The edit that inserts this statement into the cell.
    """

    name: str
    type: str | None = None
    code: str | None = None
    edit: Edit | None = None


class Diagnostic(msgspec.Struct, frozen=True):
    """A note about the run or about this report."""

    level: Literal["info", "warning", "error"]
    message: str


EffectKind = Literal["file", "network", "process", "database", "state"]


class Effect(msgspec.Struct, frozen=True):
    """An effect of a function on something other than the objects that can be copied.

    Parameters
    ----------
    kind : {"file", "network", "process", "database", "state"}
        ``process`` includes threads; ``state`` is the state of this process, such as its environment variables.
    what : str
        The effect as the rest of a sentence: "writes to the file rows.csv".
    location : Location or None
        The line of the user's code that leads to it.
    """

    kind: EffectKind
    what: str
    location: Location | None = None


class Report(msgspec.Struct, frozen=True, weakref=True):
    """The report of one run of ``torch.compile``. The classes of its lists describe their fields.

    ``libraries`` has the versions of the packages besides PyTorch whose code took part, by the name of the module; it
    is empty for logs, which do not have them.
    ``changes`` compares it with the previous run of the same notebook cell, if this kernel has one.
    ``order`` has the ids of the breaks in the order in which to fix them; views number the breaks in this order.
    ``remedies``, ``cost``, ``startup``, ``check``, ``values`` and ``reproducers`` are ``None`` if they were not
    requested or could not be determined.
    ``held`` is ``None`` if it is unknown.
    ``compiled`` lists what was compiled only for the report; it is ``None`` if the code itself calls ``torch.compile``,
    and for logs.
    ``effects`` has the effects outside the objects that can be copied; functions with such effects were not run again.
    """

    status: Literal["ok", "error", "interrupted"]
    device: Device
    schema_version: str = SCHEMA_VERSION
    torch: str | None = None
    python: str | None = None
    config: dict[str, Any] = {}
    error: RunError | None = None
    timing: Timing = Timing()
    summary: Summary = Summary()
    sources: list[Source] = []
    frames: list[Frame] = []
    graphs: list[Graph] = []
    breaks: list[Break] = []
    order: list[str] = []
    resumes: list[Resume] = []
    skipped: list[Skipped] = []
    scopes: list[Scope] = []
    recompiles: list[Recompile] = []
    cudagraph_skips: list[CudagraphSkip] = []
    paths: list[PathDifference] = []
    what_if: WhatIf = WhatIf()
    diagnostics: list[Diagnostic] = []
    changes: Changes | None = None
    compiled: list[CompiledCall] | None = None
    remedies: list[Remedy] | None = None
    cost: Cost | None = None
    startup: Startup | None = None
    check: list[Check] | None = None
    held: list[CachedFunction] | None = None
    effects: list[Effect] | None = None
    libraries: dict[str, str] = {}
    reproducers: list[Reproducer] | None = None
    values: list[EntryValues] | None = None

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return msgspec.json.encode(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists, strings and numbers."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read a report back.

        Raises
        ------
        msgspec.ValidationError
            If the data is not a report, or has a different major version; for data that is not JSON, its base class
        ``msgspec.DecodeError``.
        """
        return require_this_version(msgspec.json.decode(data, type=cls))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read a report from :meth:`to_dict` or from a notebook's output.

        Raises
        ------
        msgspec.ValidationError
            If the data is not a report, or has a different major version.
        """
        try:
            report = msgspec.convert(data, type=cls)
            report.to_json()
        except UnicodeEncodeError as error:  # a lone surrogate, which UTF-8 cannot encode but an escape in JSON can
            raise msgspec.ValidationError(f"the report has text that is not Unicode: {error.reason}") from None
        return require_this_version(report)


class _HasSchemaVersion(Protocol):
    @property
    def schema_version(self) -> str: ...


_Document = TypeVar("_Document", bound=_HasSchemaVersion)


def require_this_version(document: _Document) -> _Document:
    """Return a report or a job; raise ``msgspec.ValidationError`` if it has a different major version."""
    if document.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        message = f"the report has schema version {document.schema_version}, but this release reads {SCHEMA_VERSION}"
        raise msgspec.ValidationError(message)
    return document
