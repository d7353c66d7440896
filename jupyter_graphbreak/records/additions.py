"""Our additions to PyTorch's structured trace: one class for each kind of record, named ``graphbreak_...``.

The records have the same envelope as PyTorch's own (:class:`~jupyter_graphbreak.records.records.Record`). A recording
can therefore be written to a file and read back, and other tools can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import msgspec

from jupyter_graphbreak.records.records import StackFrame

if TYPE_CHECKING:
    from jupyter_graphbreak.records.records import Record


class Addition(msgspec.Struct, frozen=True, kw_only=True):
    """A record that we add, or a part of one; ``kind`` is its name in the trace, empty for a part."""

    kind: ClassVar[str] = ""


class CodeObject(Addition, frozen=True, kw_only=True):
    """The identity of a code object; ``id`` is its number in the recording process, which never reuses numbers."""

    name: str
    filename: str
    firstlineno: int
    id: int | None = None
    qualname: str | None = None

    @property
    def code_key(self) -> tuple[str, str, int]:
        """The function's name, file and first line."""
        return self.name, self.filename, self.firstlineno


class FullgraphSite(msgspec.Struct, frozen=True):
    """The line that calls ``torch.compile(fullgraph=True)``, and the function that it compiles."""

    site: StackFrame | None = None
    wrapped: CodeObject | None = None


class OpenScope(Addition, frozen=True, kw_only=True):
    """An open scope of ``error_on_graph_break``."""

    value: bool
    #: The line that created the scope, if it is a decorator.
    site: StackFrame | None = None
    #: The line that entered the scope.
    entered: StackFrame | None = None
    #: The function that the scope wraps.
    wrapped: CodeObject | None = None
    #: Whether the scope was entered within a compiled function.
    inside: bool = False
    #: Whether the scope was entered by code that Dynamo generated, whose line numbers do not lead to the scope.
    generated: bool = False


class ScopeOpened(OpenScope, frozen=True, kw_only=True):
    """A scope was opened; ``around`` lists the scopes that were already open, outermost first."""

    kind: ClassVar[str] = "graphbreak_scope"

    around: list[OpenScope] = []


class FrameStarted(CodeObject, frozen=True, kw_only=True):
    """Dynamo begins to compile a code object."""

    kind: ClassVar[str] = "graphbreak_start"

    #: The Python stack at the call that made Dynamo compile, outermost first.
    stack: list[StackFrame] = []
    #: The class of the called module, if the code is a module's ``forward`` or a wrapper around it; or the class of the
    #: optimizer, if the code is PyTorch's wrapper around its ``step()``.
    module: str | None = None
    #: The number of the module whose method the code implements. Modules are numbered from 1 in the order in which
    #: Dynamo first compiles their methods.
    instance: int | None = None
    fullgraph_site: FullgraphSite | None = None


class EventContext(Addition, frozen=True, kw_only=True):
    """The location of an event, and the settings in force at that moment."""

    #: The code that Dynamo was tracing, outermost first.
    stack: list[StackFrame] = []
    #: The Python stack at the call that made Dynamo compile, outermost first.
    above: list[StackFrame] = []
    #: The open scopes, outermost first.
    scopes: list[OpenScope] = []
    #: The values of these settings in Dynamo; ``None`` if they could not be read.
    error_on_graph_break: bool | None = None
    fullgraph: bool | None = None
    #: The call to ``torch.compile(fullgraph=True)`` in force.
    fullgraph_site: FullgraphSite | None = None

    @property
    def whole_stack(self) -> list[StackFrame]:
        """The stack from the start of the program to the event."""
        return [*self.above, *self.stack]


class BreakLogged(EventContext, frozen=True, kw_only=True):
    """Dynamo logs a graph break."""

    kind: ClassVar[str] = "graphbreak_break"

    #: The class of the underlying exception.
    type: str | None = None
    #: The name and the id in PyTorch's registry of graph breaks, if the exception or the beginning of its message
    #: contains them.
    gb_type: str | None = None
    gb_id: str | None = None


class FrameFailed(EventContext, frozen=True, kw_only=True):
    """An exception stops the compilation of a frame; if ``raised`` is true, the exception reaches the user."""

    kind: ClassVar[str] = "graphbreak_failure"

    type: str | None = None
    gb_type: str | None = None
    message: str | None = None
    raised: bool = False


class FrameGivenUp(Addition, frozen=True, kw_only=True):
    """Dynamo gives up on a frame without logging an event, as PyTorch before 2.11 does at ``skip_frame()``."""

    kind: ClassVar[str] = "graphbreak_given_up"

    message: str


class RegistryEntry(msgspec.Struct, frozen=True):
    """An item of PyTorch's registry of graph breaks."""

    gb_type: str | None = None
    gb_id: str | None = None
    explanation: str | None = None
    hints: list[str] = []


class FrameRefused(EventContext, frozen=True, kw_only=True):
    """Dynamo refuses to compile a frame, without even beginning."""

    kind: ClassVar[str] = "graphbreak_refusal"

    reason: Literal["generator", "recompile limit"]
    registry: RegistryEntry = RegistryEntry()
    id: int | None = None
    #: The identity of the code object, if known.
    name: str | None = None
    qualname: str | None = None
    filename: str | None = None
    firstlineno: int | None = None
    raised: bool = False
    #: The decorated function, if the code object is the wrapper that torch shares between all decorated functions.
    wrapped: CodeObject | None = None
    #: The name of the setting that prevents a further compilation, and its value.
    limit: str | None = None
    limit_value: int | None = None

    @property
    def code_key(self) -> tuple[str, str, int] | None:
        """The function's name, file and first line; ``None`` if one of them is unknown."""
        if self.name is None or self.filename is None or self.firstlineno is None:
            return None
        return self.name, self.filename, self.firstlineno


class FrameSkipped(CodeObject, frozen=True, kw_only=True):
    """Dynamo skips a frame and gives a reason."""

    kind: ClassVar[str] = "graphbreak_skip"

    reason: str
    above: list[StackFrame] = []
    #: Whether the frame is the ``forward`` of a module that ``module.compile()`` has compiled.
    is_compiled_in_place: bool = False


class CompiledAgain(Addition, frozen=True, kw_only=True):
    """``torch.compile`` was applied to something that was already compiled."""

    kind: ClassVar[str] = "graphbreak_compiled_again"

    #: The name of the function, or of the class of the module.
    name: str
    #: Whether the argument was a module, and whether the result is one.
    is_module: bool = False
    stays_module: bool = False
    #: The line of the call.
    site: StackFrame | None = None


#: The prefix that the wrapper of a compiled module adds to the names of its parameters.
ORIG_MOD = "_orig_mod."


class CompiledSaved(Addition, frozen=True, kw_only=True):
    """A compiled module was pickled, or its state was saved under the names that the wrapper gives its parameters."""

    kind: ClassVar[str] = "graphbreak_compiled_saved"

    #: Whether the module itself was pickled.
    is_module: bool = False
    #: Whether only a part of the saved module is compiled, not the module itself.
    is_part: bool = False
    #: The line that saves the module.
    site: StackFrame | None = None


class ResumeCreated(CodeObject, frozen=True, kw_only=True):
    """Dynamo looks up the resume function that continues after a break."""

    kind: ClassVar[str] = "graphbreak_resume"

    #: The function that it resumes.
    of: CodeObject | None = None
    #: The line on which it continues.
    line: int | None = None
    #: Whether Dynamo just created it.
    new: bool | None = None
    #: Whether Dynamo already has compiled code for it.
    compiled: bool | None = None
    #: For nested breaks, the id of the resume function that it calls first: the one for the function that broke.
    enters: int | None = None


class ResumedAt(Addition, frozen=True, kw_only=True):
    """The line on which a resume function continues, if a log contains it; live runs have :class:`ResumeCreated`."""

    kind: ClassVar[str] = "graphbreak_resumed_at"

    line: int


class CudagraphSkipped(Addition, frozen=True, kw_only=True):
    """A backend runs a graph without a CUDA graph and gives a reason."""

    kind: ClassVar[str] = "graphbreak_cudagraph_skip"

    reason: str


class AnswerDiffers(Addition, frozen=True, kw_only=True):
    """The program calls a function such as ``torch.compiler.is_compiling()``, whose result differs while compiling."""

    kind: ClassVar[str] = "graphbreak_answer"

    #: The function that the program calls.
    question: str
    #: The result while Dynamo traces, and the result without ``torch.compile``.
    compiled: str
    eager: str
    #: The location of the call.
    call: StackFrame
    #: The location of the test that depends on the result; ``None`` for the call itself.
    branch: StackFrame | None = None
    #: The lines in the file of the test that were traced only because of the result, and the lines that only uncompiled
    #: code reaches.
    lines: list[int] = []
    skipped: list[int] = []


class GraphStacks(Addition, frozen=True, kw_only=True):
    """The call stacks of a graph's operations: the distinct stacks, and the index of each operation's stack."""

    kind: ClassVar[str] = "graphbreak_graph"

    stacks: list[str] = []
    ops: dict[str, int] = {}
    reason: str | None = None


class UnrecordedSkips(Addition, frozen=True, kw_only=True):
    """The PyTorch release skips some frames without a record; ``what`` describes those that we cannot record either."""

    kind: ClassVar[str] = "graphbreak_blind"

    what: str | None = None


class WatchFailed(Addition, frozen=True, kw_only=True):
    """One of our hooks failed."""

    kind: ClassVar[str] = "graphbreak_fault"

    hook: str
    message: str

    @property
    def sentence(self) -> str:
        """The sentence about the failed hook for the report's diagnostics."""
        return f"Watching failed at {self.hook}: {self.message}."


class Note(Addition, frozen=True, kw_only=True):
    """A sentence for the report's diagnostics."""

    kind: ClassVar[str] = "graphbreak_note"

    level: Literal["info", "warning", "error"]
    message: str


class DeviceUsed(Addition, frozen=True, kw_only=True):
    """The requested device and the device that was used; the fields are those of the report's ``Device``."""

    kind: ClassVar[str] = "graphbreak_device"

    requested: str = "auto"
    used: str = "unknown"
    name: str | None = None
    note: str | None = None


class CompiledForReport(Addition, frozen=True, kw_only=True):
    """A module or a function that was compiled only for the report, because the program does not compile it."""

    kind: ClassVar[str] = "graphbreak_compiled"

    #: The name in the program, for example ``model`` or ``trainer.net``; if it has none, the name of the class or
    #: function.
    name: str
    #: The class of a module.
    type: str | None = None
    #: The statement that would compile it in the program; ``None`` if the program has no name for it.
    code: str | None = None
    #: The file and the line of the statement before which ``code`` belongs.
    filename: str | None = None
    line: int | None = None


class RunEnded(Addition, frozen=True, kw_only=True):
    """The exception that ended the run."""

    kind: ClassVar[str] = "graphbreak_error"

    status: Literal["error", "interrupted"]
    type: str
    message: str
    stack: list[StackFrame] = []


class SegmentText(msgspec.Struct, frozen=True):
    """Consecutive lines of a source."""

    first_line: int
    text: str


class SourceRecorded(Addition, frozen=True, kw_only=True):
    """The text of a cell, or the parts of a file that the records mention."""

    kind: ClassVar[str] = "graphbreak_source"

    filename: str
    name: str
    #: The kind of source; ``None`` means that the file name determines it. The trace calls this field ``kind``.
    kind_of_source: Literal["cell", "file", "library"] | None = msgspec.field(default=None, name="kind")
    segments: list[SegmentText] = []
    #: The text of individual lines that records mention, by line number.
    lines: dict[int, str] = {}
    #: The number of lines at the beginning of a cell, and of columns at the beginning of each line, that were removed
    #: before the cell ran.
    line_offset: int = 0
    indent: int = 0


class SettingsInForce(Addition, frozen=True, kw_only=True):
    """Dynamo's settings when a frame was compiled; they are recorded for the first frame and after each change."""

    kind: ClassVar[str] = "graphbreak_config"

    #: The settings with a value other than the default, and two that are always recorded: ``nested_graph_breaks`` and
    #: ``recompile_limit``.
    values: dict[str, Any] = {}
    #: The names of the settings in ``values`` with the default value.
    defaults: list[str] = []


class EarlierCode(CodeObject, frozen=True, kw_only=True):
    """A code object that Dynamo knew when the run began; ``cell`` is the name of its cell, if it has one.

    For a cell, ``firstlineno`` is the line number that the user sees.
    """

    cell: str | None = None


class RunSummary(Addition, frozen=True, kw_only=True):
    """Facts about the whole run: versions, Dynamo's settings at the end, folders of packages, and times in seconds."""

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
    #: Whether both the trace and our hooks recorded the run, so that they can be compared.
    watched: bool = False
    #: Whether calls may be compiled only for the report; each such call has a :class:`CompiledForReport`.
    compiled_calls: bool = False
    #: The number of compilations that Dynamo itself counted, if it counts them.
    begun: int | None = None
    #: The code that Dynamo began to compile before the run, even if it then skipped the code, and had not forgotten at
    #: the end: it may run without a record.
    held: list[EarlierCode] | None = None


_CLASS_OF_KIND: dict[str, type[Addition]] = {
    addition.kind: addition
    for addition in (
        ScopeOpened, FrameStarted, BreakLogged, FrameFailed, FrameGivenUp, FrameRefused, FrameSkipped, CompiledAgain,
        CompiledSaved, ResumeCreated, ResumedAt, CudagraphSkipped, AnswerDiffers, GraphStacks, UnrecordedSkips,
        WatchFailed, Note, DeviceUsed, CompiledForReport, RunEnded, SourceRecorded, SettingsInForce, RunSummary,
    )
}  # fmt: skip

_A = TypeVar("_A", bound=Addition)


def read_addition(record: Record) -> Addition | None:
    """Return a record as an instance of its class of additions; ``None`` for one of PyTorch's own records.

    A ValidationError of msgspec is raised if a field is missing or has the wrong type.
    """
    class_ = _CLASS_OF_KIND.get(record.kind)
    return msgspec.convert(record.data, class_, str_keys=True) if class_ is not None else None


def additions_of(records: list[Record], class_: type[_A]) -> list[_A]:
    """Return all additions of one class, in order; unreadable ones are left out."""
    additions: list[_A] = []
    for record in records:
        if record.kind == class_.kind:
            try:
                additions.append(msgspec.convert(record.data, class_, str_keys=True))
            except msgspec.ValidationError:
                continue
    return additions
