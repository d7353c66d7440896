"""What we say: the report, as frozen data that goes to JSON and back without loss.

The field names are a contract (other programs read them); additions keep ``schema_version``'s major number. All ids
are strings; lines are 1-based as the notebook's editor counts them (the magic's own line is line 1); columns are
0-based, in characters; times are in seconds. What is not known is ``None``.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, Self, TypeVar

import msgspec

from jupyter_graphbreak.report.cost import Check, Cost
from jupyter_graphbreak.report.diff import Changes
from jupyter_graphbreak.report.figures import Summary, Timing
from jupyter_graphbreak.report.location import Location, Source
from jupyter_graphbreak.report.remedies import Edit, Remedy

SCHEMA_VERSION = "1.1"
#: The mime type under which a notebook's output carries a report; its number is the schema's major version.
MIME_TYPE = "application/vnd.graphbreak.report.v1+json"


class Device(msgspec.Struct, frozen=True):
    """Where the code was asked to run and where it ran; ``note`` says why in words when the two differ."""

    requested: str
    used: str
    name: str | None = None
    note: str | None = None


class RunError(msgspec.Struct, frozen=True):
    """The exception that ended the run; ``break_`` is the id of the break that caused it."""

    type: str
    message: str
    location: Location | None = None
    break_: str | None = msgspec.field(default=None, name="break")


class Frame(msgspec.Struct, frozen=True):
    """One compilation of one code object, under the id that PyTorch prints (``0/0``).

    Parameters
    ----------
    id : str
        PyTorch's compile id; ``0/0#2`` where a reset made it count anew within the run.
    role : {"entry", "call", "resume"}
        What was called: a function passed to ``torch.compile``, a function that eager code calls, or a resume function.
    resume : str or None
        The id of the :class:`Resume` that this frame is.
    caller : str or None
        The id of the frame that called it.
    outcome : {"compiled", "empty", "skipped", "error"}
        ``empty`` means that there was no tensor operation to compile.
    attempts : int
        How often Dynamo traced it: after a break it starts again.
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


class TensorMeta(msgspec.Struct, frozen=True):
    """Shape (a dimension that is not fixed is its symbol), dtype and device of a tensor, as PyTorch prints them."""

    shape: list[int | str]
    dtype: str
    device: str | None = None


class Tensor(msgspec.Struct, frozen=True):
    """An input of a graph. For a number ``shape`` and ``device`` are ``None`` and ``dtype`` is its symbol."""

    name: str
    shape: list[int | str] | None
    dtype: str
    device: str | None = None


class Op(msgspec.Struct, frozen=True):
    """One operation of a graph: the name of its result, what it calls, the line it comes from (without its text)."""

    name: str
    target: str
    location: Location | None = None
    output: TensorMeta | None = None


class GraphLine(msgspec.Struct, frozen=True):
    """How many operations of a graph a source line led to, itself or through the calls it makes."""

    source: str
    line: int
    ops: int


class Graph(msgspec.Struct, frozen=True):
    """A graph that was handed to the backend.

    Parameters
    ----------
    id : str
        A letter: "A" for the first graph of the run, "AA" after "Z".
    name : str
        The function it was captured from.
    lines : list of GraphLine
        The lines of cells and files that led to its operations; library lines are left out.
    code : str
        The graph as readable Python.
    ends : {"return", "break"}
        Whether the function returned or a break ended the graph.
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
    """A reason under PyTorch's names for it: its GB id in the registry of graph breaks, and its type."""

    gb_id: str | None
    gb_type: str


Rule = Literal["default", "own", "inherited", "inner over outer", "fullgraph"]


class Setting(msgspec.Struct, frozen=True):
    """Whether a break was an error, and what decided that.

    Parameters
    ----------
    value : bool
        What was in force: ``True`` makes a break an error.
    rules : list of str
        What decided: ``default`` (no scope: ``False``); ``own`` (a scope around the place itself); ``inherited`` (a
        scope around a call that led here); ``inner over outer``; ``fullgraph`` (wins over every scope).
    scope : str or None
        The id of the :class:`Scope` that set it.
    chain : list of str
        The ids of all scopes that were open, outermost first.
    """

    value: bool
    rules: list[Rule]
    scope: str | None = None
    chain: list[str] = []


class Occurrence(msgspec.Struct, frozen=True):
    """One event of the trace: the break in one frame and one attempt.

    ``stack`` runs from the outermost frame to the break, user and library frames only. ``setting`` is what Dynamo held
    at that moment, where it could be read.
    """

    frame: str | None
    attempt: int
    stack: list[Location]
    outcome: Literal["resumed", "skipped", "error"]
    consequence: Reason | None = None
    setting: Setting | None = None


class Advice(msgspec.Struct, frozen=True):
    """One thing to do about a break; ``origin`` says whether the hint is PyTorch's or ours."""

    text: str
    origin: Literal["pytorch", "graphbreak"] = "pytorch"


#: Whose code a line is: the reader's (a cell or a file), a library's, or PyTorch's own.
Owner = Literal["own", "library", "torch"]


class BreakCost(msgspec.Struct, frozen=True):
    """What goes when a break goes.

    Parameters
    ----------
    graphs : int
        Graphs that were captured only because it cut the function in two.
    compile_s : float or None
        The time that compiling its resume functions took, where it was measured.
    eager : int
        Functions that run eagerly because of it.
    """

    graphs: int = 0
    compile_s: float | None = None
    eager: int = 0


class Break(msgspec.Struct, frozen=True):
    """One place in the source that broke a graph, for one reason, however often Dynamo came to it.

    Parameters
    ----------
    gb_id : str or None
        The id in PyTorch's registry, e.g. "GB0170".
    gb_type : str
        The registry's name for the reason, or the class of the exception where there is none.
    consequence : Reason or None
        Why the frame could not resume after it; ``None`` where it could.
    outcome : {"resumed", "skipped", "error"}
        The worst that happened to a frame in which it occurred.
    resumes, skipped : list of str
        Ids of the :class:`Resume` functions that it led to, and of the :class:`Skipped` functions that run eagerly
        because of it.
    scope : str or None
        The id of the :class:`Scope` that governed it when it last occurred; ``setting`` says more.
    also_reported_as : list of str
        Other names that PyTorch's outputs give to the same cause.
    owner : {"own", "library", "torch"}
        Whose code has to change to remove it. A line of the standard library counts as its caller's.
    minor : bool
        Whether it stands in a library and neither ends a graph nor makes one: a helper runs eagerly, nothing more.
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
    """A function that Dynamo made to continue after a break.

    Parameters
    ----------
    location : Location or None
        The line at which it continues.
    frames : list of str
        Its compilations in this run.
    graphs : list of str
        The graphs of these frames, or of the frames that it is inlined in.
    no_frame : {"eager", "compiled before", "inlined", "not reached"} or None
        Why it has none: it ran eagerly; it was compiled before this run, and may have run as it was; it was compiled as
        a part of its caller's resume function, as with ``nested_graph_breaks``; it did not run, such as the branch not
        taken. Absent where it has frames, and where it is not known if it ran.
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
    """A function that runs eagerly because of a break or an error.

    Parameters
    ----------
    frame : str or None
        Its compile id; ``None`` if Dynamo never began it.
    location : Location or None
        All lines that run eagerly: from the function's first line, decorators included, or the line at which a resume
        function goes on, to its last; one line where the text is not known.
    reason : str
        Why, in a sentence.
    callees : list of str
        Frames of functions that it calls and that are compiled nevertheless.
    way_out : str or None
        What would make Dynamo compile it.
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


class Scope(msgspec.Struct, frozen=True):
    """A region of the source in which a setting says whether a break is an error.

    Parameters
    ----------
    location : Location or None
        From the line that opens it to the last line of its ``with`` block or of the decorated function; for a call, the
        call itself. ``None`` if it was opened before the run was watched.
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
    """What stricter settings would have done in this run, as far as the run shows it; no claim where it does not.

    Parameters
    ----------
    error_on_graph_break : list of str
        The breaks that ``error_on_graph_break(True)`` around the compiled function would have made errors, in the order
        in which they occurred; the first would have ended the run.
    fullgraph : str or None
        The break at which ``fullgraph=True`` would have ended the run, whatever the scopes allow: the first that it
        does not capture. With breaks in ``captured`` it would have ended there at the latest.
    captured : list of str
        The breaks before ``fullgraph`` that ``fullgraph=True`` tries to capture instead, such as ``.item()``. Python
        code that needs the value further on, as a branch does, can still be an error.
    """

    error_on_graph_break: list[str] = []
    fullgraph: str | None = None
    captured: list[str] = []


class GuardFailure(msgspec.Struct, frozen=True):
    """The guard that no longer held, and the source line that caused it, where PyTorch says so."""

    guard: str
    location: Location | None = None


class Recompile(msgspec.Struct, frozen=True):
    """A further compilation of a function, or the refusal of one because the limit was reached."""

    frame: str
    of: str | None
    function: str
    location: Location | None
    reasons: list[GuardFailure] = []
    limit_hit: bool = False


class CudagraphSkip(msgspec.Struct, frozen=True):
    """A graph that runs without a CUDA graph though the backend was to use one.

    Parameters
    ----------
    reason : str
        PyTorch's words, without the stack.
    graph : str or None
        Which graph it is, where that is known.
    location : Location or None
        The line that is the cause, where PyTorch says so.
    """

    reason: str
    graph: str | None = None
    location: Location | None = None


class HeldFunction(msgspec.Struct, frozen=True):
    """A function that PyTorch had begun to compile before the run and had not forgotten.

    It may have run from what was compiled then, which leaves no trace.

    Parameters
    ----------
    source : str
        The path of its file, or the name of its cell.
    line : int
        Its first line.
    """

    function: str
    source: str
    line: int


class CompiledCall(msgspec.Struct, frozen=True):
    """A module or a function that was compiled for this report although the code does not compile it.

    Parameters
    ----------
    name : str
        What the code calls it: ``model``, ``trainer.net``; the name of its class or function if no name leads to it.
    type : str or None
        The class of a module.
    code : str or None
        The statement by which the code would compile it.
    edit : Edit or None
        Where that statement belongs in the cell.
    """

    name: str
    type: str | None = None
    code: str | None = None
    edit: Edit | None = None


class Diagnostic(msgspec.Struct, frozen=True):
    """Something about the run or about this report that the reader should know."""

    level: Literal["info", "warning", "error"]
    message: str


EffectKind = Literal["file", "network", "process", "database", "state"]


class Effect(msgspec.Struct, frozen=True):
    """Something that a function does outside of the objects that can be copied.

    Parameters
    ----------
    kind : {"file", "network", "process", "database", "state"}
        ``process`` includes threads; ``state`` is that of this process, such as its environment variables.
    what : str
        What it does, as the rest of a sentence: "writes to the file rows.csv".
    location : Location or None
        The line of the reader's code that leads to it.
    """

    kind: EffectKind
    what: str
    location: Location | None = None


class Report(msgspec.Struct, frozen=True, weakref=True):
    """What ``torch.compile`` did in one run. The classes of its lists describe their fields.

    ``changes`` compares it with the previous run of the same notebook cell, where this kernel has one.
    ``order`` has the ids of the breaks as a person reads them, what to fix first; their numbers count in it.
    ``remedies``, ``cost`` and ``check`` are ``None`` where nobody asked. ``held`` is ``None`` if it is not known.
    ``compiled`` has what was compiled for the report; it is ``None`` if the code compiles by itself.
    ``effects`` has what functions do outside of the objects that can be copied: the reason why they were not run again.
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
    what_if: WhatIf = WhatIf()
    diagnostics: list[Diagnostic] = []
    changes: Changes | None = None
    compiled: list[CompiledCall] | None = None
    remedies: list[Remedy] | None = None
    cost: Cost | None = None
    check: list[Check] | None = None
    held: list[HeldFunction] | None = None
    effects: list[Effect] | None = None

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
            If it is not a report, or one of another major version.
        """
        return of_this_version(msgspec.json.decode(data, type=cls))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read a report from what :meth:`to_dict` made or a notebook's output holds; raises as :meth:`from_json`."""
        return of_this_version(msgspec.convert(data, type=cls))


class _Versioned(Protocol):
    @property
    def schema_version(self) -> str: ...


_D = TypeVar("_D", bound=_Versioned)


def of_this_version(document: _D) -> _D:
    """Return a report or a job; raise ``msgspec.ValidationError`` if it is one of another major version."""
    if document.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        message = f"report of schema version {document.schema_version}; this release reads {SCHEMA_VERSION}"
        raise msgspec.ValidationError(message)
    return document
