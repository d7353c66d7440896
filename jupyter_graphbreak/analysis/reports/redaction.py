"""A report that can be shown to anybody: its structure, without anything of its reader's code.

What stays: ids, causes, line numbers, counts, times, shapes, and sentences of PyTorch's that hold no word of the code.
Names of functions, files and cells become ``f1``, ``file1``, ``cell1``, the same name the same one throughout.
"""

from __future__ import annotations

import builtins
import keyword
import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from jupyter_graphbreak.recording.records import is_resume, plain_function
from jupyter_graphbreak.report.cost import Cost
from jupyter_graphbreak.report.job import Job
from jupyter_graphbreak.report.location import Location, Source
from jupyter_graphbreak.report.remedies import Remedy
from jupyter_graphbreak.report.schema import (
    Advice,
    Break,
    CompiledCall,
    CudagraphSkip,
    Device,
    Effect,
    Frame,
    Graph,
    GuardFailure,
    HeldFunction,
    Op,
    Recompile,
    Report,
    Resume,
    RunError,
    Scope,
    Skipped,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.cost import Check
    from jupyter_graphbreak.report.job import JobBreak
    from jupyter_graphbreak.report.schema import Diagnostic, EffectKind

_PLAIN = re.compile(r"[A-Za-z ,.;:()-]+")
_WORD = re.compile(r"\w+")
_AT = re.compile(r"_at_(\d+)$")
_GUARDS = re.compile(
    r"(size|stride|dtype|device|requires_grad|dispatch key set|rank) mismatch(?: at index \d+)?|Cache line invalidated"
)
#: Operations of PyTorch and Python; ``torch.ops`` has those of the reader and of other libraries, too.
_OURS = re.compile(
    r"(?:torch(?!\.ops\b(?!\.(?:aten|prims|prim|higher_order|_c10d_functional|c10d_functional|inductor)\.))"
    r"|aten|operator|math|builtins|_operator)(?:\.\w+)*"
)
_ERRORS = {name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)}
_TORCH_ERRORS = {
    "BackendCompilerFailed", "FailOnRecompileLimitHit", "InternalTorchDynamoError", "RecompileLimitExceeded",
    "TorchRuntimeError", "Unsupported", "UncapturedHigherOrderOpError", "UserError",
}  # fmt: skip

#: What is left of an effect: its words name files, hosts and commands.
_EFFECTS: dict[EffectKind, str] = {
    "file": "uses a file",
    "network": "uses the network",
    "process": "uses a process or a thread",
    "database": "uses a database",
    "state": "changes the state of the process",
}

_BACKENDS = {"aot_eager", "aot_eager_decomp_partition", "cudagraphs", "eager", "inductor"}


def redact(report: Report) -> Report:
    """Return a report without the code, the messages, the paths and the names of its reader."""
    return _Redaction([report]).report(report)


def redact_job(job: Job) -> Job:
    """Return a job without the code of its reader; one name is replaced alike in all processes."""
    redaction = _Redaction([process.report for process in job.processes])
    return Job(
        processes=[
            replace(process, command=None, report=redaction.report(process.report)) for process in job.processes
        ],
        breaks=[redaction.job_break(listed) for listed in job.breaks],
        diagnostics=redaction.notes(job.diagnostics),
    )


class _Redaction:
    """Replaces names, each always by the same one."""

    def __init__(self, reports: Iterable[Report]) -> None:
        self._functions: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._words: set[str] = set()
        for report in reports:
            self._words |= set(_words_of(report))

    def report(self, report: Report) -> Report:
        # Field by field: what a later schema adds is left out until somebody thought about it.
        return Report(
            status=report.status,
            device=Device(report.device.requested, report.device.used),
            schema_version=report.schema_version,
            torch=report.torch,
            python=report.python,
            config={name: value for name, value in report.config.items() if isinstance(value, bool | int)},
            error=self._error(report.error),
            timing=report.timing,
            summary=report.summary,
            sources=[self._source(source) for source in report.sources],
            frames=[self._frame(frame) for frame in report.frames],
            graphs=[self._graph(graph) for graph in report.graphs],
            breaks=[self._break(found) for found in report.breaks],
            resumes=[self._resume(resume) for resume in report.resumes],
            skipped=[self._skipped(skipped) for skipped in report.skipped],
            scopes=[self._scope(scope) for scope in report.scopes],
            recompiles=[self._recompile(recompile) for recompile in report.recompiles],
            cudagraph_skips=[self._cudagraph_skip(skip) for skip in report.cudagraph_skips],
            what_if=report.what_if,
            compiled=[CompiledCall(self._function(each.name) or "") for each in report.compiled]
            if report.compiled is not None
            else None,
            diagnostics=self.notes(report.diagnostics),
            remedies=[self._remedy(each) for each in report.remedies] if report.remedies is not None else None,
            cost=self._cost(report.cost),
            check=[self._check(each) for each in report.check] if report.check is not None else None,
            held=[self._held(each) for each in report.held] if report.held is not None else None,
            effects=[self._effect(each) for each in report.effects] if report.effects is not None else None,
        )

    def job_break(self, listed: JobBreak) -> JobBreak:
        place = listed.place
        if place is not None:
            name = self._file(place.path or place.cell or "?", "cell" if place.path is None else "file")
            place = replace(
                place,
                path=name if place.path is not None else None,
                cell=name if place.path is None else None,
                function=self._function(place.function),
                code=None,
            )
        return replace(listed, place=place, gb_type=self._cause(listed.gb_id, listed.gb_type))

    def notes(self, notes: list[Diagnostic]) -> list[Diagnostic]:
        return [note for note in notes if self._says_nothing(note.message)]

    def _source(self, source: Source) -> Source:
        name = self._file(source.path or source.name, "cell" if source.kind == "cell" else "file")
        return Source(source.id, name, source.kind, None if source.kind == "cell" else name)

    def _file(self, path: str, kind: str) -> str:
        number = sum(name.startswith(kind) for name in self._files.values()) + 1
        return self._files.setdefault(path, f"{kind}{number}")

    def _function(self, name: str | None) -> str | None:
        if name is None or name == "<module>":
            return name
        if is_resume(name):
            at = _AT.search(name)
            inner = self._function(name.removeprefix("torch_dynamo_resume_in_").removesuffix(at[0] if at else ""))
            return f"torch_dynamo_resume_in_{inner}{at[0] if at else ''}"
        return self._functions.setdefault(name, f"f{len(self._functions) + 1}")

    def _name(self, name: str) -> str:
        return self._function(name) or name

    def _at(self, location: Location | None) -> Location | None:
        if location is None:
            return None
        return replace(location, code=None, function=self._function(location.function))

    def _stack(self, stack: list[Location]) -> list[Location]:
        return [replace(location, code=None, function=self._function(location.function)) for location in stack]

    def _frame(self, frame: Frame) -> Frame:
        reasons = [_guard(reason) for reason in frame.recompile_reasons]
        return replace(
            frame, function=self._name(frame.function), location=self._at(frame.location), recompile_reasons=reasons
        )

    def _graph(self, graph: Graph) -> Graph:
        ops = [self._op(number, op) for number, op in enumerate(graph.ops, start=1)]
        inputs = [replace(tensor, name=f"input{number}") for number, tensor in enumerate(graph.inputs, start=1)]
        return replace(graph, name=self._name(graph.name), ops=ops, inputs=inputs, code="")

    def _op(self, number: int, op: Op) -> Op:
        target = op.target if _OURS.fullmatch(op.target) else "operation"
        return replace(op, name=f"op{number}", target=target, location=self._at(op.location))

    def _break(self, found: Break) -> Break:
        explanation = found.explanation if found.explanation and self._says_nothing(found.explanation) else None
        return replace(
            found,
            gb_type=self._cause(found.gb_id, found.gb_type),
            explanation=explanation,
            hints=[hint for hint in found.hints if self._says_nothing(hint)],
            context=None,
            advice=[Advice(a.text, a.origin) for a in found.advice if self._says_nothing(a.text)],
            also_reported_as=[name for name in found.also_reported_as if self._says_nothing(name)],
            location=self._at(found.location),
            stack=self._stack(found.stack),
            occurrences=[replace(each, stack=self._stack(each.stack)) for each in found.occurrences],
        )

    def _cause(self, gb_id: str | None, gb_type: str) -> str:
        if gb_id is not None or gb_type in _ERRORS | _TORCH_ERRORS or self._says_nothing(gb_type):
            return gb_type
        return "an error"

    def _resume(self, resume: Resume) -> Resume:
        return replace(
            resume,
            name=self._name(resume.name),
            function=self._name(resume.function),
            location=self._at(resume.location),
        )

    def _skipped(self, skipped: Skipped) -> Skipped:
        return replace(
            skipped,
            function=self._name(skipped.function),
            location=self._at(skipped.location),
            reason="compilation failed" if skipped.kind == "error" else skipped.reason,
        )

    def _scope(self, scope: Scope) -> Scope:
        return replace(scope, location=self._at(scope.location), note=None)

    def _held(self, held: HeldFunction) -> HeldFunction:
        return HeldFunction(self._name(held.function), self._file(held.source, "file"), held.line)

    def _effect(self, effect: Effect) -> Effect:
        return Effect(effect.kind, _EFFECTS[effect.kind], self._at(effect.location))

    def _recompile(self, recompile: Recompile) -> Recompile:
        return replace(
            recompile,
            function=self._name(recompile.function),
            location=self._at(recompile.location),
            reasons=[GuardFailure(_guard(each.guard), self._at(each.location)) for each in recompile.reasons],
        )

    def _cudagraph_skip(self, skip: CudagraphSkip) -> CudagraphSkip:
        reason = skip.reason if self._says_nothing(skip.reason) else "a reason"
        return replace(skip, reason=reason, location=self._at(skip.location))

    def _error(self, error: RunError | None) -> RunError | None:
        if error is None:
            return None
        kind = error.type if error.type in _ERRORS | _TORCH_ERRORS else "Exception"
        return RunError(kind, "", self._at(error.location), error.break_)

    def _remedy(self, remedy: Remedy) -> Remedy:
        family = remedy.family if self._says_nothing(remedy.family) else "other"
        evidence = remedy.evidence
        if evidence is not None:
            compared = [what for what in evidence.compared if self._says_nothing(what)]
            evidence = replace(evidence, backend=_backend(evidence.backend), compared=compared)
        return Remedy(
            id=remedy.id,
            breaks=remedy.breaks,
            family=family,
            title=remedy.title if self._says_nothing(remedy.title) else f"a remedy of the family {family}",
            kind=remedy.kind,
            verdict=remedy.verdict,
            frames=remedy.frames,
            settings={
                name: value
                for name, value in remedy.settings.items()
                if _OURS.fullmatch(name) and isinstance(value, bool | int)
            },
            excludes=remedy.excludes,
            evidence=evidence,
            person=remedy.person if remedy.person and self._says_nothing(remedy.person) else None,
            seconds=remedy.seconds,
        )

    def _cost(self, cost: Cost | None) -> Cost | None:
        if cost is None:
            return None
        entries = [replace(entry, function=self._name(entry.function)) for entry in cost.entries]
        return Cost(cost.device, _backend(cost.backend), entries)

    def _check(self, check: Check) -> Check:
        first = check.first
        if first is not None:
            op = first.op if first.op and _OURS.fullmatch(first.op) else None
            first = replace(first, location=self._at(first.location), op=op)
        return replace(
            check,
            function=self._name(check.function),
            backend=_backend(check.backend),
            differences=[],
            first=first,
        )

    def _says_nothing(self, text: str) -> bool:
        """Whether a sentence holds no word of the reader's code, and no place where PyTorch puts one."""
        return _PLAIN.fullmatch(text) is not None and not self._words & set(_WORD.findall(text))


def _backend(name: str) -> str:
    return name if name in _BACKENDS else "a backend"


def _guard(text: str) -> str:
    match = _GUARDS.search(text)
    return match[0] if match is not None else "a guard failed"


def _words_of(report: Report) -> Iterable[str]:
    """Yield the words that the code of a report is made of, without those of Python itself."""
    texts: list[Any] = [segment.text for source in report.sources for segment in source.segments]
    texts += [text for source in report.sources for text in (source.name, source.path)]
    places = [place for found in report.breaks for occurrence in found.occurrences for place in occurrence.stack]
    places += [found.location for found in report.breaks if found.location is not None]
    places += [op.location for graph in report.graphs for op in graph.ops if op.location is not None]
    texts += [text for place in places for text in (place.code, place.function)]
    texts += [plain_function(frame.function) for frame in report.frames]
    texts += [skipped.function for skipped in report.skipped]
    texts += [graph.code for graph in report.graphs]
    for text in texts:
        yield from (word for word in _WORD.findall(text or "") if not keyword.iskeyword(word))
