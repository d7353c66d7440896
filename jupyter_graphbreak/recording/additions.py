"""What we add to PyTorch's structured trace, typed: one class for each entry whose name begins with ``graphbreak_``.

The entries stand in the same envelope as PyTorch's own (:class:`~jupyter_graphbreak.recording.records.Record`), so that
a recording can be written to a file, read by another tool, and read back here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import msgspec

from jupyter_graphbreak.recording.records import StackEntry

if TYPE_CHECKING:
    from jupyter_graphbreak.recording.records import Record


class Addition(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of ours; ``kind`` is its name in the trace."""

    kind: ClassVar[str] = ""


class CodeObject(Addition, frozen=True, kw_only=True):
    """What identifies a code object; ``id`` is its address in the process that recorded it."""

    name: str
    filename: str
    firstlineno: int
    id: int | None = None
    qualname: str | None = None

    @property
    def place(self) -> tuple[str, str, int]:
        """Function, file and first line."""
        return self.name, self.filename, self.firstlineno


class FullgraphSite(msgspec.Struct, frozen=True):
    """Where ``torch.compile(fullgraph=True)`` was written, and the function that it compiles."""

    site: StackEntry | None = None
    wrapped: CodeObject | None = None


class OpenScope(Addition, frozen=True, kw_only=True):
    """A scope of ``error_on_graph_break`` that is open.

    Parameters
    ----------
    site : StackEntry or None
        Where the scope object was made, of a decorator.
    entered : StackEntry or None
        Where it was entered.
    wrapped : CodeObject or None
        The function that it is put around.
    inside : bool
        Whether it was entered within a compiled function.
    generated : bool
        Whether it was entered in code that Dynamo made, whose lines are not those of the scope.
    """

    value: bool
    site: StackEntry | None = None
    entered: StackEntry | None = None
    wrapped: CodeObject | None = None
    inside: bool = False
    generated: bool = False


class ScopeOpened(OpenScope, frozen=True, kw_only=True):
    """A scope that was just opened; ``around`` holds those that were open already, outermost first."""

    kind: ClassVar[str] = "graphbreak_scope"

    around: list[OpenScope] = []


class FrameStarted(CodeObject, frozen=True, kw_only=True):
    """Dynamo begins to compile a code object; ``stack`` is the Python stack at the call that made it do so."""

    kind: ClassVar[str] = "graphbreak_start"

    stack: list[StackEntry] = []
    fullgraph_site: FullgraphSite | None = None


class Conditions(Addition, frozen=True, kw_only=True):
    """Where an event happened and which settings were in force.

    Parameters
    ----------
    stack : list of StackEntry
        The code that Dynamo was tracing, outermost first.
    above : list of StackEntry
        The Python stack at the call that made Dynamo compile, outermost first.
    scopes : list of OpenScope
        The scopes that were open, outermost first.
    error_on_graph_break, fullgraph : bool or None
        What Dynamo held, where it could be read.
    """

    stack: list[StackEntry] = []
    above: list[StackEntry] = []
    scopes: list[OpenScope] = []
    error_on_graph_break: bool | None = None
    fullgraph: bool | None = None
    fullgraph_site: FullgraphSite | None = None

    @property
    def whole_stack(self) -> list[StackEntry]:
        """The stack from the program's start to the event."""
        return [*self.above, *self.stack]


class BreakSeen(Conditions, frozen=True, kw_only=True):
    """Dynamo logs a graph break.

    Parameters
    ----------
    type : str or None
        The class of the exception behind it.
    gb_type, gb_id : str or None
        Its name and number in PyTorch's registry, where the exception and the text's beginning say them.
    """

    kind: ClassVar[str] = "graphbreak_break"

    type: str | None = None
    gb_type: str | None = None
    gb_id: str | None = None


class FrameFailed(Conditions, frozen=True, kw_only=True):
    """An exception ends the compilation of a frame; ``raised``: and goes up to the user."""

    kind: ClassVar[str] = "graphbreak_failure"

    type: str | None = None
    gb_type: str | None = None
    message: str | None = None
    raised: bool = False


class FrameGivenUp(Addition, frozen=True, kw_only=True):
    """Dynamo gives up a frame that it began without an event, as PyTorch before 2.11 does at ``skip_frame()``."""

    kind: ClassVar[str] = "graphbreak_given_up"

    message: str


class RegistryEntry(msgspec.Struct, frozen=True):
    """A reason as PyTorch's registry of graph breaks has it."""

    gb_type: str | None = None
    gb_id: str | None = None
    explanation: str | None = None
    hints: list[str] = []


class FrameRefused(Conditions, frozen=True, kw_only=True):
    """Dynamo does not begin a frame at all.

    Parameters
    ----------
    name, filename, firstlineno
        The code object, where it is known.
    limit, limit_value
        The setting that forbids a further compilation, and its value.
    wrapped : CodeObject or None
        The decorated function, where the code object is the wrapper that torch shares between all of them.
    """

    kind: ClassVar[str] = "graphbreak_refusal"

    reason: Literal["generator", "recompile limit"]
    registry: RegistryEntry = RegistryEntry()
    id: int | None = None
    name: str | None = None
    qualname: str | None = None
    filename: str | None = None
    firstlineno: int | None = None
    raised: bool = False
    wrapped: CodeObject | None = None
    limit: str | None = None
    limit_value: int | None = None

    @property
    def code(self) -> tuple[str, str, int] | None:
        """Function, file and first line of the code object."""
        if self.name is None or self.filename is None or self.firstlineno is None:
            return None
        return self.name, self.filename, self.firstlineno


class FrameSkipped(CodeObject, frozen=True, kw_only=True):
    """Dynamo leaves a frame alone, for a reason that it gives in words."""

    kind: ClassVar[str] = "graphbreak_skip"

    reason: str
    above: list[StackEntry] = []


class CompiledAgain(Addition, frozen=True, kw_only=True):
    """``torch.compile`` was applied to something that is compiled already.

    Parameters
    ----------
    name : str
        The function, or the class of the module.
    is_module, stays_module : bool
        Whether a module was given, and whether the result is one.
    site : StackEntry or None
        Where.
    """

    kind: ClassVar[str] = "graphbreak_compiled_again"

    name: str
    is_module: bool = False
    stays_module: bool = False
    site: StackEntry | None = None


class ResumeMade(CodeObject, frozen=True, kw_only=True):
    """Dynamo looks up the resume function for the place after a break.

    Parameters
    ----------
    of : CodeObject
        The code that it resumes.
    line : int or None
        The line at which it goes on.
    new : bool or None
        Whether it was made just now.
    compiled : bool or None
        Whether Dynamo holds compiled code of it already.
    enters : int or None
        The id of the resume function that it calls first: where breaks are nested, that of the function it had called.
    """

    kind: ClassVar[str] = "graphbreak_resume"

    of: CodeObject | None = None
    line: int | None = None
    new: bool | None = None
    compiled: bool | None = None
    enters: int | None = None


class ResumedAt(Addition, frozen=True, kw_only=True):
    """The line at which the resume function of a frame goes on, where a log says so; see :class:`ResumeMade`."""

    kind: ClassVar[str] = "graphbreak_resumed_at"

    line: int


class CudagraphSkipped(Addition, frozen=True, kw_only=True):
    """A backend runs a graph without a CUDA graph, for a reason that it gives in words."""

    kind: ClassVar[str] = "graphbreak_cudagraph_skip"

    reason: str


class GraphStacks(Addition, frozen=True, kw_only=True):
    """The call stacks of the operations of a graph: each stack once, and for each operation the index of its stack."""

    kind: ClassVar[str] = "graphbreak_graph"

    stacks: list[str] = []
    ops: dict[str, int] = {}
    reason: str | None = None


class Blind(Addition, frozen=True, kw_only=True):
    """Dynamo leaves frames alone without a word in this release of PyTorch; ``what`` says which, where we see none."""

    kind: ClassVar[str] = "graphbreak_blind"

    what: str | None = None


class WatchFailed(Addition, frozen=True, kw_only=True):
    """A hook of ours failed."""

    kind: ClassVar[str] = "graphbreak_fault"

    hook: str
    message: str


class Note(Addition, frozen=True, kw_only=True):
    """A sentence for the report's diagnostics."""

    kind: ClassVar[str] = "graphbreak_note"

    level: Literal["info", "warning", "error"]
    message: str


class DeviceUsed(Addition, frozen=True, kw_only=True):
    """Where the code was asked to run and where it ran; the fields of the report's ``Device``."""

    kind: ClassVar[str] = "graphbreak_device"

    requested: str = "auto"
    used: str = "unknown"
    name: str | None = None
    note: str | None = None


class CompiledForReport(Addition, frozen=True, kw_only=True):
    """Something that was compiled for the report although the program does not compile it.

    Parameters
    ----------
    name : str
        What the program calls it: ``model``, ``trainer.net``; the name of its class or function if no name leads to it.
    type : str or None
        The class of a module.
    code : str or None
        The statement by which the program would compile it; ``None`` if no name leads to it.
    filename, line : str and int, or None
        The statement of the program before which that statement belongs.
    """

    kind: ClassVar[str] = "graphbreak_compiled"

    name: str
    type: str | None = None
    code: str | None = None
    filename: str | None = None
    line: int | None = None


class RunEnded(Addition, frozen=True, kw_only=True):
    """The exception that ended the run."""

    kind: ClassVar[str] = "graphbreak_error"

    status: Literal["error", "interrupted"]
    type: str
    message: str
    stack: list[StackEntry] = []


class SegmentText(msgspec.Struct, frozen=True):
    """Consecutive lines of a source."""

    first_line: int
    text: str


class SourceRecorded(Addition, frozen=True, kw_only=True):
    """The text of a cell, or the parts of a file that the records mention.

    Parameters
    ----------
    kind_of_source : {"cell", "file", "library"} or None
        ``None``: it follows from the file's name. In the trace it is called ``kind``.
    lines : dict
        Single lines that are mentioned, by their number.
    line_offset, indent : int
        Lines and columns that the notebook cut off the front of a cell before it ran it.
    """

    kind: ClassVar[str] = "graphbreak_source"

    filename: str
    name: str
    kind_of_source: Literal["cell", "file", "library"] | None = msgspec.field(default=None, name="kind")
    segments: list[SegmentText] = []
    lines: dict[int, str] = {}
    line_offset: int = 0
    indent: int = 0


class SettingsInForce(Addition, frozen=True, kw_only=True):
    """Settings of Dynamo when a frame was compiled; recorded for the first frame, and again when they are others.

    Parameters
    ----------
    values : dict
        The settings whose value is not the default, and two that always matter.
    defaults : list of str
        The names among them whose value is the default all the same.
    """

    kind: ClassVar[str] = "graphbreak_config"

    values: dict[str, Any] = {}
    defaults: list[str] = []


class HeldCode(CodeObject, frozen=True, kw_only=True):
    """A code object that Dynamo held when the run began; ``cell`` is the name of its cell, if it is from one.

    In a cell ``firstlineno`` counts as the reader does.
    """

    cell: str | None = None


class RunSummary(Addition, frozen=True, kw_only=True):
    """The run as a whole: versions, settings of Dynamo at its end, where packages are, times in seconds.

    Parameters
    ----------
    watched : bool
        Whether both the trace and our hooks recorded the run, so that they can be compared.
    compiled_calls : bool
        Whether calls were compiled for the report; then a :class:`CompiledForReport` names each.
    begun : int or None
        How many compilations Dynamo itself counted, where it does.
    held : list of HeldCode or None
        What Dynamo had begun to compile before the run and not forgotten: it may have run without a trace.
    """

    kind: ClassVar[str] = "graphbreak_run"

    torch: str | None = None
    python: str | None = None
    config: dict[str, Any] = {}
    library_roots: list[str] = []
    package_folders: list[str] = []
    folder: str | None = None
    home: str | None = None
    wall_s: float | None = None
    capture_s: float | None = None
    watched: bool = False
    compiled_calls: bool = False
    begun: int | None = None
    held: list[HeldCode] | None = None


_CLASSES: dict[str, type[Addition]] = {
    addition.kind: addition
    for addition in (
        ScopeOpened, FrameStarted, BreakSeen, FrameFailed, FrameGivenUp, FrameRefused, FrameSkipped, CompiledAgain,
        ResumeMade, ResumedAt, CudagraphSkipped, GraphStacks, Blind, WatchFailed, Note, DeviceUsed,
        CompiledForReport, RunEnded,
        SourceRecorded, SettingsInForce, RunSummary,
    )
}  # fmt: skip

_A = TypeVar("_A", bound=Addition)


def read_addition(record: Record) -> Addition | None:
    """Return an entry of ours, typed; ``None`` for an entry of PyTorch's.

    Raises
    ------
    msgspec.ValidationError
        If a field has another form.
    """
    kind = _CLASSES.get(record.kind)
    return msgspec.convert(record.data, kind, str_keys=True) if kind is not None else None


def additions_of(records: list[Record], kind: type[_A]) -> list[_A]:
    """Return all entries of one class, in order; those that cannot be read are left out."""
    made: list[_A] = []
    for record in records:
        if record.kind == kind.kind:
            try:
                made.append(msgspec.convert(record.data, kind, str_keys=True))
            except msgspec.ValidationError:
                continue
    return made
