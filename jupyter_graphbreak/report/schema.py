"""The report, as frozen data that converts to JSON and back without loss.

Other programs read the fields, so their names do not change; a new field leaves the major number of ``schema_version``
unchanged. All ids are strings. Lines are 1-based, as in the notebook's editor (the line of the magic is line 1).
Columns are 0-based, in characters. Times are in seconds. Unknown values are ``None``.
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
#: The MIME type of a report in a notebook's output; its number is the schema's major version.
MIME_TYPE = "application/vnd.graphbreak.report.v1+json"


class Device(msgspec.Struct, frozen=True):
    """The requested device and the device that was used; if they differ, ``note`` states the reason."""

    requested: str
    used: str
    name: str | None = None
    note: str | None = None


class RunError(msgspec.Struct, frozen=True):
    """The exception that ended the run.

    Parameters
    ----------
    type, message : str
        The class and the text of the exception.
    location : Location or None
        The location of the break that caused the exception; otherwise the innermost line of the user's code in its
        traceback, or of a library if the traceback has no such line.
    break_ : str or None
        The id of the break that caused the exception.
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
        ``entry``: a function that the program compiles. ``call``: a function that compiled or eager code calls.
        ``resume``: a resume function.
    resume : str or None
        The id of the :class:`Resume` that this frame compiles.
    caller : str or None
        The id of the frame that called it.
    outcome : {"compiled", "empty", "skipped", "error"}
        ``empty`` means that there was no tensor operation to compile.
    attempts : int
        How often Dynamo traced it: after a break, for example, it starts again.
    module : str or None
        The class of the called module, if the function is the ``forward`` of a module or a wrapper around it; or the
        class of the optimizer, if the function is PyTorch's wrapper around its ``step()``.
    instance : int or None
        The number of the module whose method is compiled; equal numbers within a report mean the same module.
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
    instance: int | None = None


class TensorMeta(msgspec.Struct, frozen=True):
    """The shape (with symbols for dynamic dimensions), dtype and device of a tensor, as PyTorch prints them."""

    shape: list[int | str]
    dtype: str
    device: str | None = None


class Tensor(msgspec.Struct, frozen=True):
    """An input of a graph; if it is a number, only ``dtype`` is known, as PyTorch prints it: ``Sym(s0)``."""

    name: str
    shape: list[int | str] | None
    dtype: str
    device: str | None = None


class Op(msgspec.Struct, frozen=True):
    """One operation of a graph: the name of its result, the function it calls, and its location without the text."""

    name: str
    target: str
    location: Location | None = None
    output: TensorMeta | None = None


class GraphLine(msgspec.Struct, frozen=True):
    """The number of operations in a graph that a source line, or a function called on it, contributes."""

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
        The function from which it was captured.
    lines : list of GraphLine
        The lines of cells and files that its operations come from; lines of libraries are left out.
    code : str
        The graph as readable Python.
    ends : {"return", "break"}
        Whether the return of the function or a break ended the graph; ``break_`` is the id of the break.
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
        The rules that determined the value. ``default``: no known scope sets it. ``own``: a scope around the line of
        the break sets it. ``inherited``: a scope around a call that led to the break sets it. ``inner over outer``: of
        several scopes, the innermost one decides. ``fullgraph``: it overrides all scopes.
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
    """One event of the trace: a break in one frame and one attempt.

    ``stack`` lists the frames of the user's code and of libraries from the outermost one to the break. In the output of
    a cell, it is empty if it goes through the same lines as the stack of the break. ``setting`` is the setting in force
    at that moment, if it could be read.
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
        The time in seconds spent compiling its resume functions, if measured. Without the break, compiling the graph
        before it may take much of this time in addition.
    eager : int
        The number of functions that run eagerly because of it. Functions of Python's standard library are not counted,
        and neither are comprehensions inside counted functions.
    """

    graphs: int = 0
    compile_s: float | None = None
    eager: int = 0


class Break(msgspec.Struct, frozen=True):
    """One expression or line that broke a graph for one reason, however often this occurred.

    Parameters
    ----------
    gb_id : str or None
        The id in PyTorch's registry of graph breaks, for example "GB0170".
    gb_type : str
        The name of the reason in that registry; if it has none, the class of the exception or the first line of its
        message.
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
        The owner of the code that has to change to remove the break. A line of the standard library belongs to the
        owner of its caller.
    minor : bool
        Whether it is in a library and neither ends nor adds a graph: it only makes a helper function run eagerly.
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
        The line on which it continues.
    frames : list of str
        The ids of its compilations in this run.
    graphs : list of str
        The ids of the graphs of these frames, or of the frames in which it is inlined.
    no_frame : {"eager", "compiled before", "inlined", "not reached"} or None
        The reason why it has no frame. ``eager``: it ran eagerly. ``compiled before``: it was compiled before this run,
        and may have used that code. ``inlined``: it was compiled as a part of its caller's resume function, as with
        ``nested_graph_breaks``. ``not reached``: it did not run, for example because a branch was not taken. ``None``
        if it has frames, or if the reason is unknown.
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
    """A function that runs eagerly because of a break, an error, the recompile limit or a similar reason.

    Parameters
    ----------
    frame : str or None
        Its compile id; ``None`` if Dynamo never began to compile it.
    location : Location or None
        All lines that run eagerly: from the function's first line, including decorators, or the line on which a resume
        function continues, to the function's last line. A single line if the source text is unknown.
    reason : str
        The reason, in a sentence.
    callees : list of str
        The ids of the frames of functions that it calls and that are compiled nevertheless.
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
    """A difference between compiled and eager paths, caused by a call such as ``torch.compiler.is_compiling()``.

    The result of the call differs while compiling. If it decides several branches, there is one difference for each.

    Parameters
    ----------
    function : str
        The function that the program calls.
    location : Location or None
        The location of the call.
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
        The lines from the one that opens it to the end of its ``with`` block or of the decorated function; for the form
        ``call``, the call itself. ``None`` if it was opened before watching began.
    parent : str or None
        The id of the scope that was open around it when it was first opened.
    breaks : list of str
        The ids of the breaks that it governed.
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
    """The effect that stricter settings would have had on this run, as far as the run shows it.

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
        The source line that created the guard, if PyTorch reports it.
    head : {"loop", "condition"} or None
        Whether the line is in the head of a loop or of a condition; ``None`` if it is in neither, or unknown.
    version : str or None
        The id of the frame whose guard failed; ``None`` if it is not known.
    """

    guard: str
    location: Location | None = None
    head: HeadKind | None = None
    version: str | None = None


class Recompile(msgspec.Struct, frozen=True):
    """A further compilation of a function, or a refusal to compile it again because a limit was reached.

    The first one of a run has the id "r1". The id is empty in reports with a schema version before 1.2.
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
        The line that prevents it, if PyTorch reports the line.
    """

    reason: str
    graph: str | None = None
    location: Location | None = None


class CachedFunction(msgspec.Struct, frozen=True):
    """A function that PyTorch began to compile before the run and had not forgotten at the end of the run.

    The run may have used its compiled code, which leaves no record.

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
    """A module or a function that was compiled only for this report, because the program does not compile it.

    Parameters
    ----------
    name : str
        The name in the program, for example ``model`` or ``trainer.net``; if it has none, the name of the class or
        function.
    type : str or None
        The class of a module.
    code : str or None
        The statement that would compile it in the program.
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

    ``libraries`` contains the versions of the packages other than PyTorch whose code took part, by the name of the
    module; it is empty for logs, which do not contain them.
    ``changes`` compares the run with the previous run of the same notebook cell in this kernel, if there was one.
    ``order`` contains the ids of the breaks in the order in which to fix them; views number the breaks in this order.
    ``remedies``, ``cost``, ``startup``, ``check``, ``values`` and ``reproducers`` are ``None`` if they were not
    requested or could not be determined.
    ``held`` lists the functions that PyTorch began to compile before the run and had not forgotten at its end; it is
    ``None`` if they are unknown.
    ``compiled`` lists the calls that were compiled only for the report; it is ``None`` for logs, and if the program
    itself calls ``torch.compile``.
    ``effects`` lists the effects on things that cannot be copied; functions with such effects were not run again.
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
        """Read a report from the result of :meth:`to_json`.

        Raises
        ------
        msgspec.ValidationError
            If the data is not a report, or has a different major version. For data that is not JSON, its base class
            ``msgspec.DecodeError`` is raised.
        """
        return require_known_version(msgspec.json.decode(data, type=cls))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read a report from the result of :meth:`to_dict` or from a notebook's output.

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
        return require_known_version(report)


class _HasSchemaVersion(Protocol):
    @property
    def schema_version(self) -> str: ...


_Document = TypeVar("_Document", bound=_HasSchemaVersion)


def require_known_version(document: _Document) -> _Document:
    """Return a report or a job; raise ``msgspec.ValidationError`` if it has a different major version."""
    if document.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        message = (
            f"this file has schema version {document.schema_version}; this jupyter_graphbreak reads version "
            f"{SCHEMA_VERSION.partition('.')[0]}.x: create the file again or install the matching release"
        )
        raise msgspec.ValidationError(message)
    return document
