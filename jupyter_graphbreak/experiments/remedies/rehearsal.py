"""Rehearse one change of a program: run it on copies, compare everything with the original, and give the verdict."""

from __future__ import annotations

import contextlib
import linecache
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak._torch_compat.configuration import applied_settings, eager_random_numbers, forced_backend
from jupyter_graphbreak._torch_compat.default_device import default_device_name
from jupyter_graphbreak._torch_compat.separate_cache import own_backend
from jupyter_graphbreak.analysis.build import build_with_files
from jupyter_graphbreak.experiments.remedies.application import (
    Application,
    CannotApplyError,
    OtherThreadError,
    Program,
    applied,
    compile_file,
)
from jupyter_graphbreak.experiments.remedies.break_places import RunBreaks, compare_breaks
from jupyter_graphbreak.experiments.remedies.change import Change
from jupyter_graphbreak.experiments.remedies.original import Original
from jupyter_graphbreak.experiments.remedies.own_edits import require_literal
from jupyter_graphbreak.experiments.trial.difference import differences, is_raised_by_statement
from jupyter_graphbreak.experiments.trial.entry import compiling_anew
from jupyter_graphbreak.experiments.trial.outcome import TooLongError, limited, untouched
from jupyter_graphbreak.experiments.trial.places import tensors
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.time_limit import seconds_left
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.report.remedies import WORKING, Evidence
from jupyter_graphbreak.report.schema import Device

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import CodeType

    from jupyter_graphbreak.experiments.remedies.break_places import Comparison
    from jupyter_graphbreak.experiments.remedies.original import Watched
    from jupyter_graphbreak.experiments.trial.difference import Difference
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.trial.inputs import Arguments
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.reference import Trial
    from jupyter_graphbreak.records.source_texts import CellText, FindCell
    from jupyter_graphbreak.report.remedies import RemedyVerdict
    from jupyter_graphbreak.report.schema import Break, Report


def compiling_cells(known: Collection[str], find_cell: FindCell) -> dict[str, CellText]:
    """Return the cells that call ``compile``, by their file names; of a cell that ran more than once the last text.

    Parameters
    ----------
    known : collection of str
        File names of cells that are known already.
    find_cell : callable
        Given a file name, returns the cell that it stands for.
    """
    by_first_line: dict[str, tuple[str, CellText]] = {}
    for filename in list(linecache.cache):
        if filename in known:
            continue
        cell = find_cell(filename)
        if cell is not None and "compile" in cell.text:
            by_first_line[cell.text.strip().partition("\n")[0]] = filename, cell
    return dict(by_first_line.values())


@dataclass(frozen=True)
class Performed:
    """One run of the program on every input.

    Parameters
    ----------
    report, later : Report
        What was compiled for the first input, and for all others.
    files : dict
        The file name of each source of ``report``, by its id.
    results : list of Result
        One for each input.
    later_files : dict
        The file name of each source of ``later``.
    """

    report: Report
    later: Report | None
    files: dict[str, str]
    results: list[Result]
    later_files: dict[str, str] = field(default_factory=dict)

    @property
    def breaks(self) -> list[RunBreaks]:
        """The breaks of the first call, and those on all other inputs."""
        later = [RunBreaks(self.later, self.later_files)] if self.later is not None else []
        return [RunBreaks(self.report, self.files), *later]

    def with_further(self, results: list[Result]) -> Performed:
        """Return this run and what the program did on further inputs."""
        return replace(self, results=[*self.results, *results])

    def begins_like(self, original: Performed) -> bool:
        """Whether Dynamo was given the function with which the original begins, or captured as much by another way."""
        begins = [frame.function for frame in original.report.frames[:1]]
        as_much = self.report.summary.ops >= original.report.summary.ops > 0
        return as_much or set(begins) <= {frame.function for frame in self.report.frames}


@dataclass(frozen=True)
class Attempt:
    """What came of trying a change.

    Parameters
    ----------
    gone : frozenset of str
        The breaks of the original that the changed program does not have on any input.
    report : Report or None
        Of the changed program, where it ran.
    """

    change: Change
    verdict: RemedyVerdict
    reason: str | None = None
    differences: list[str] = field(default_factory=list)
    evidence: Evidence | None = None
    gone: frozenset[str] = frozenset()
    report: Report | None = None
    seconds: float = 0.0


#: Seconds after which a changed program is run on no further input at the edges.
_PATIENCE_S = 20.0
_CONTROL_FLOW = (".cond(", ".while_loop(")
#: How many of the inputs at the edges a program is compiled for.
_MOST_EDGES = 5
#: Seconds for which the program itself may run, compiled on the usual inputs, to be compiled for others, too.
_LONGEST_FOR_EDGES = 6.0
#: The share of the time that is left after which one program is run on no further inputs.
_SHARE_OF_RUN = 0.25

#: Whether a program that ran on some inputs may work, so that running it on the others is worth the time.
Promises = Callable[[Performed], bool]


@dataclass(frozen=True)
class _Candidate:
    """A changed program that can be run.

    Parameters
    ----------
    change : Change
    perform : callable
        Runs it, compiled, on some inputs.
    uncompiled : callable
        Hands out the function to call without compiling, and what it may change.
    elsewhere : bool
        Whether another function is compiled than that of the original.
    """

    change: Change
    perform: Callable[[list[Trial], Promises], Performed]
    uncompiled: Callable[[], AbstractContextManager[tuple[Any, Subject]]]
    elsewhere: bool


class Rehearsal:
    """One entry, what it does by itself on several inputs, and what it does when it is compiled as it is.

    Parameters
    ----------
    entry : Entry
    compile_text, find_cell : callable
        As for :class:`Program`.

    Raises
    ------
    Exception
        Whatever the function itself raises on the first input.
    """

    def __init__(
        self,
        entry: Entry,
        compile_text: Callable[[str, str], list[CodeType]] = compile_file,
        find_cell: FindCell = lambda _: None,
    ) -> None:
        self.entry = entry
        self._itself = Original(entry)
        self.program = Program(find_cell=find_cell)
        usual = _refused_last(self._itself.usual())
        begun = time.monotonic()
        #: What it does compiled as it is.
        self.original = self._performed(Change(), usual, lambda _: True)
        self._seconds = time.monotonic() - begun
        self._edges_of_original: tuple[Performed, list[Trial]] | None = None
        texts = {source: _text(filename, find_cell) for source, filename in self.original.files.items()}
        #: Other cells that may compile it, by ids of their own.
        self.others = {
            f"other{number}": (filename, cell)
            for number, (filename, cell) in enumerate(compiling_cells(self.original.files.values(), find_cell).items())
        }
        #: What ran, and the same with the other cells.
        self.ran = Program(
            self.original.files, {source: text for source, text in texts.items() if text}, compile_text, find_cell
        )
        self.program = replace(
            self.ran,
            files={**self.ran.files, **{source: filename for source, (filename, _) in self.others.items()}},
            texts={**self.ran.texts, **{source: cell.text for source, (_, cell) in self.others.items()}},
        )
        # How the original, compiled, differs from itself, uncompiled, by input: that is no remedy's doing.
        self._usual: dict[int, set[str]] = {}
        for trial, result in zip(usual, self.original.results, strict=False):
            found = self._differences(trial, result)
            self._usual[id(trial)] = {difference.text for difference in found}
            if not all(difference.declared for difference in found):
                self._itself.leave_out(trial)

    def _differences(self, trial: Trial, result: Result) -> list[Difference]:
        return differences(trial.expected, result, values=self._itself.repeatable)

    def attempt(
        self, change: Change, goals: frozenset[str], watched: Sequence[Watched] = (), *, thorough: bool = False
    ) -> Attempt:
        """Run a changed program on every input, and judge it.

        Parameters
        ----------
        change : Change
        goals : frozenset of str
            The breaks of the original that are to go.
        watched : sequence of Watched
            The conditions that the change touches.
        thorough : bool
            Whether to run it on all inputs, because nothing is known of the change.
        """
        try:
            trials, both = self._itself.chosen(self.program, watched)
        except TrialStoppedError as stopped:
            return Attempt(change, "not tried", _stopped(stopped))
        trials = _refused_last(self._itself.pool if thorough else trials)
        tried = _Candidate(
            change,
            lambda some, promises: self._performed(change, some, promises),
            lambda: self._uncompiled(change),
            elsewhere=change.compiles_itself,
        )
        return self._judged(tried, goals, trials, both=both)

    def attempt_instead(self, function: Callable[..., Any], change: Change, goals: frozenset[str]) -> Attempt:
        """Run another function in place of the entry's own on every input, and judge it.

        Parameters
        ----------
        function : callable
        change : Change
            The same as a change of the source, as far as it is known.
        goals : frozenset of str
            The breaks of the original that are to go.
        """
        trials = _refused_last(self._itself.pool)

        def perform(some: list[Trial], promises: Promises) -> Performed:
            with untouched(), eager_random_numbers():
                subject = Subject(function, self.entry.arguments)
                with compiling_anew(subject.call):
                    return self._run_all(subject.call, subject, Change(), some, self.program.find_cell, promises)

        @contextlib.contextmanager
        def uncompiled() -> Iterator[tuple[Any, Subject]]:
            with untouched(), eager_random_numbers():
                subject = Subject(function, self.entry.arguments)
                yield subject.call, subject

        tried = _Candidate(change, perform, uncompiled, elsewhere=True)
        return self._judged(tried, goals, trials, both=None)

    def _judged(self, tried: _Candidate, goals: frozenset[str], trials: list[Trial], *, both: bool | None) -> Attempt:
        start = time.perf_counter()
        verdict: RemedyVerdict = "fails"
        reason: str | None = None
        gone = frozenset[str]()
        found: list[Difference] = []
        performed: Performed | None = None
        inputs = 0

        def promises(first: Performed) -> bool:
            reason, found = self._compared(first, trials)
            return reason is None and self._verdict(tried, first, found, goals)[0] in WORKING

        try:
            require_literal(self.program.texts, tried.change)
            performed = tried.perform(trials, promises)
            inputs = len(performed.results)
            reason, found = self._compared(performed, trials)
            gone = self._breaks_compared(tried.change, performed).gone
            if reason is None:
                verdict, reason = self._verdict(tried, performed, found, goals)
            if verdict in WORKING:
                verdict, reason, gone, found, more = self._at_the_edges(tried, performed, gone, found)
                inputs += more
        except (TrialStoppedError, Exception) as error:  # noqa: BLE001 - whatever the changed program makes torch do
            verdict, reason = _without_verdict(error)
        if verdict == "works" and both is False:
            verdict, reason = "works on what ran", "one side of a condition never ran"
        elif verdict == "works" and tried.change.assumptions:
            verdict, reason = "works on what ran", tried.change.assumptions[0]
        return Attempt(
            tried.change,
            verdict,
            reason,
            list(dict.fromkeys(difference.text for difference in found)),
            self._evidence(performed, trials, inputs, both=both) if performed is not None else None,
            gone,
            performed.report if performed is not None else None,
            time.perf_counter() - start,
        )

    def _at_the_edges(
        self, tried: _Candidate, performed: Performed, gone: frozenset[str], found: list[Difference]
    ) -> tuple[RemedyVerdict, str | None, frozenset[str], list[Difference], int]:
        """Compare a program that works on ordinary inputs on those at the edges, uncompiled and some of them compiled.

        Returns
        -------
        tuple
            The verdict, its reason, the breaks that are gone, the differences, and on how many inputs they were looked
            for.
        """
        try:
            seen = _looked_at(self._edge_differences(tried), _AtTheEdges(found))
        except TooLongError:
            return "fails", "runs too long on some inputs", gone, found, 0
        original = self._edges_compiled() if seen.grave is None else None
        if original is not None:
            again, trials = tried.perform(original[1], lambda _: True), original[1]
            pairs = list(zip(trials, again.results, original[0].results, strict=False))
            seen = _looked_at((self._compiled_differences(*pair) for pair in pairs), seen)
        found, inputs = seen.found, seen.inputs
        if seen.grave is not None:
            return "another result", seen.grave, gone, found, inputs
        if original is not None:
            before, after = [*self.original.breaks, *original[0].breaks], [*performed.breaks, *again.breaks]
            compared = compare_breaks(before, after, self._texts(tried.change))
            gone = compared.gone
            if compared.new:
                return "another break", f"then it breaks {_place(compared.new[0])}", gone, found, inputs
            if not gone:
                return "break stays", "it breaks on some inputs", gone, found, inputs
        verdict: RemedyVerdict = "works" if seen.other_kind is None else "works on what ran"
        return ("works but differs" if found else verdict), seen.other_kind, gone, found, inputs

    def _compiled_differences(self, trial: Trial, result: Result, usual: Result) -> tuple[Trial, list[Difference]]:
        """Return how a changed program, compiled, differs, beyond how the program itself, compiled, does."""
        known = {difference.text for difference in differences(trial.expected, usual)}
        found = _on_edge(differences(trial.expected, result), trial, result)
        return trial, [difference for difference in found if difference.text not in known]

    def _edge_differences(self, tried: _Candidate) -> Iterator[tuple[Trial, list[Difference]]]:
        """Yield each input at the edges, and how a changed program, uncompiled, differs there."""
        if not tried.change.texts and not tried.elsewhere:
            return  # uncompiled it is the program itself
        edges = self._itself.edges()
        begun = time.monotonic()
        with tried.uncompiled() as (call, subject):
            for trial in edges:
                if time.monotonic() - begun > _PATIENCE_S:
                    return
                # PyTorch compiles what is given to its own control flow, which takes many lines.
                compiles = any(name in text for text in tried.change.texts.values() for name in _CONTROL_FLOW)
                with contextlib.nullcontext() if compiles else limited():
                    result = self._itself.run(call, subject, trial)
                yield trial, _on_edge(differences(trial.expected, result), trial, result)

    def _edges_compiled(self) -> tuple[Performed, list[Trial]] | None:
        """Return what the program itself, compiled, does on some inputs at the edges; ``None`` if it takes too long."""
        if self._edges_of_original is None and self._seconds <= _LONGEST_FOR_EDGES:
            trials: list[Trial] = []
            kinds = set[str]()
            for trial in self._itself.edges():
                kind = _kind_of_edge(trial)
                if trial.input.other_kind:  # what differs there does so uncompiled
                    continue
                if kind not in kinds and trial.expected.raised is None and len(trials) < _MOST_EDGES:
                    kinds.add(kind)
                    trials.append(trial)
            self._edges_of_original = (self._performed(Change(), trials, lambda _: True), trials) if trials else None
        return self._edges_of_original

    def _texts(self, change: Change) -> dict[str, tuple[str, str]]:
        return {self.program.files[name]: (self.program.texts[name], text) for name, text in change.texts.items()}

    def _breaks_compared(self, change: Change, performed: Performed) -> Comparison:
        return compare_breaks(self.original.breaks, performed.breaks, self._texts(change))

    def _verdict(
        self, tried: _Candidate, performed: Performed, found: list[Difference], goals: frozenset[str]
    ) -> tuple[RemedyVerdict, str | None]:
        """Return the verdict on a program that ran, and why."""
        if any(not difference.declared for difference in found):
            return "another result", next(difference.text for difference in found if not difference.declared)
        compared = self._breaks_compared(tried.change, performed)
        if goals.isdisjoint(compared.gone):
            other = next((compared.other_cause[goal] for goal in goals if goal in compared.other_cause), None)
            return ("break stays", None) if other is None else ("another break", f"it still breaks {_place(other)}")
        # Where Dynamo has given up on what runs, nothing breaks.
        if not (performed.report.frames if tried.elsewhere else performed.begins_like(self.original)):
            return "not tried", "Dynamo did not compile what the program begins with"
        given_up = _given_up(performed.report) - _given_up(self.original.report)
        if given_up:
            return "another break", f"then {min(given_up)} is compiled too often, and runs eagerly"
        as_many = performed.report.summary.breaks >= self.original.report.summary.breaks
        if compared.new or as_many:
            then = f"then it breaks {_place(compared.new[0])}" if compared.new else "there are as many breaks as before"
            return "another break", then
        if not self._itself.repeatable:
            return "not tried", "the function returns something else each time: its results cannot be compared"
        return ("works but differs" if found else "works"), None

    def _compared(self, performed: Performed, trials: list[Trial]) -> tuple[str | None, list[Difference]]:
        """Return why the changed program fails, and how its results differ."""
        found: list[Difference] = []
        for trial, result in zip(trials, performed.results, strict=False):
            usual = self._usual.get(id(trial), set())
            if result.raised is not None and trial.expected.raised is None:
                return f"raises {_in_words(result.raised)}, on {trial.input.example.what}", []
            found += [difference for difference in self._differences(trial, result) if difference.text not in usual]
        return None, found

    def _evidence(self, performed: Performed, trials: list[Trial], inputs: int, *, both: bool | None) -> Evidence:
        before, after = self.original.report.summary, performed.report.summary
        return Evidence(
            backend=_name_of(self.entry.backend),
            inputs=inputs,
            both_sides=both,
            compared=compared([trial.expected for trial in trials]),
            graphs_before=before.graphs,
            graphs_after=after.graphs,
            breaks_before=before.breaks,
            breaks_after=after.breaks,
        )

    def changed(self, change: Change) -> Callable[[], AbstractContextManager[Entry]]:
        """Return what applies a change again and again, and hands out the entry with it.

        Code and functions are made once, so that what was compiled with the change is found again.
        """
        with _kept_environment():
            before = dict(os.environ)
            subject = self._switched(change)
            environment = {name: value for name, value in os.environ.items() if before.get(name) != value}
        application = Application(self.program, change.texts, subject.functions())
        backend = own_backend(self.entry.backend)

        @contextlib.contextmanager
        def apply() -> Iterator[Entry]:
            with _kept_environment():
                os.environ.update(environment)
                with application.in_force(), self._ready(change, application, subject) as call:
                    if change.compiles_itself:
                        self._compile_alike(application, call, backend)
                    yield replace(self.entry, call=call, compiles_itself=change.compiles_itself)

        return apply

    def _compile_alike(self, application: Application, call: Any, backend: Callable[..., Any]) -> None:
        """Compile the inner functions that a change defines as the entry is; a stance would take time in each call."""

        def compiled(inner: Any) -> Any:
            return torch.compile(inner, backend=backend, dynamic=self.entry.dynamic)

        _replace_definitions(application, call, compiled)

    def _performed(self, change: Change, trials: list[Trial], promises: Promises) -> Performed:
        find_cell = self.program.find_changed_cell(change.texts)
        with untouched(), eager_random_numbers(), _kept_environment():
            # Copied as it reads before the change: the changed function may leave to another what it reads and writes.
            subject = self._switched(change)
            with (
                applied(self.program, change.texts, subject.functions()) as application,
                self._ready(change, application, subject) as call,
                compiling_anew(call),
            ):
                return self._run_all(call, subject, change, trials, find_cell, promises)

    @contextlib.contextmanager
    def _uncompiled(self, change: Change) -> Iterator[tuple[Any, Subject]]:
        """Hand out a changed program to be called without compiling, and what it may change."""
        with untouched(), eager_random_numbers(), _kept_environment():
            subject = self._switched(change)
            with (
                applied(self.program, change.texts, subject.functions()) as application,
                self._ready(change, application, subject) as call,
                compiling_anew(call),
            ):
                if change.compiles_itself:
                    _replace_definitions(application, call, lambda inner: inner)
                yield compiled_callable(call) or call, subject

    @contextlib.contextmanager
    def _ready(self, change: Change, application: Application, subject: Subject) -> Iterator[Any]:
        """Set what a change sets and defines while the context is open, and hand out the function to call."""
        scope = getattr(subject.call, "__globals__", None)
        scopes = [scope] if scope is not None else []
        with applied_settings(change.settings), application.defined(*scopes):
            if scope is not None and subject.call.__name__ in {found.name for found in application.definitions}:
                yield scope[subject.call.__name__]  # with other decorators; else that name is the user's own function
            else:
                yield subject.call

    def _switched(self, change: Change) -> Subject:
        """Return the program with its switches set: that is the state from which each of its runs starts."""
        subject = Subject(self.entry.call, self.entry.arguments)
        if not change.codes:
            return subject
        model = _outermost_module(subject.call, subject.arguments or self.entry.arguments)
        for code in change.codes:
            exec(code, {"model": model})  # noqa: S102 - a switch
        return Subject(subject.call, subject.arguments)

    def _run_all(
        self,
        call: Any,
        subject: Subject,
        change: Change,
        trials: list[Trial],
        find_cell: FindCell,
        promises: Promises,
    ) -> Performed:
        backend = own_backend(self.entry.backend)
        compiled = call if change.compiles_itself else torch.compile(call, backend=backend, dynamic=self.entry.dynamic)
        forced = backend if change.compiles_itself else None

        begun, left = time.monotonic(), seconds_left()

        def is_late() -> bool:
            """Whether the program takes too much of the time to run it on further inputs."""
            return time.monotonic() - begun > left * _SHARE_OF_RUN

        def perform(some: list[Trial], done: Performed | None = None) -> tuple[Report, dict[str, str], list[Result]]:
            results: list[Result] = []
            with forced_backend(forced), recorder.record(find_cell) as recording:
                recording.describe_device(Device("auto", default_device_name()))
                for trial in some:
                    if done is not None and (is_late() or not promises(done.with_further(results))):
                        break
                    results.append(self._itself.run(compiled, subject, trial))
            return *build_with_files(recording.records), results

        report, files, results = perform(trials[:1])
        first = Performed(report, None, files, results)
        raised = results[0].raised is not None and trials[0].expected.raised is None
        if len(trials) == 1 or raised or not promises(first):
            return first
        taken = [trial for trial in trials[1:] if trial.expected.raised is None]
        later, later_files, more = perform(taken, first)
        performed = Performed(report, later, files, [*results, *more], later_files)
        refused = trials[1 + len(taken) :]
        if refused and len(more) == len(taken):  # where both refuse an input, it does not matter what breaks
            performed = performed.with_further(perform(refused, performed)[2])
        return performed


def _refused_last(trials: list[Trial]) -> list[Trial]:
    """Put the inputs last that the function refuses."""
    return sorted(trials, key=lambda trial: trial.expected.raised is not None)


def _replace_definitions(application: Application, call: Any, made_of: Callable[[Any], Any]) -> None:
    """Put something else in the place of the compiled functions that a change defines."""
    scopes = [*(function.__globals__ for function in application.functions), getattr(call, "__globals__", {})]
    for scope in scopes:
        for definition in application.definitions:
            inner = compiled_callable(scope.get(definition.name))
            if inner is not None:
                scope[definition.name] = made_of(inner)


def _on_edge(found: list[Difference], trial: Trial, result: Result) -> list[Difference]:
    """Leave out what compiling or computing on both sides does to inputs that the function is not made for.

    PyTorch's operations refuse what does not fit in other words while a graph is captured. A gradient counts if the
    function itself gives finite numbers: what it makes of an infinite input is undefined on both sides.
    """
    expected = trial.expected
    if expected.raised is not None and result.raised is not None:
        in_other_words = any(difference.kind == "another error" for difference in found)
        by_operation = in_other_words and not is_raised_by_statement(expected.raised)
        # What both refuse is no difference, whatever either said before it.
        kept = "another error" if in_other_words and not by_operation else None
        return [difference for difference in found if not difference.declared or difference.kind == kept]
    if not _is_finite((expected.value, expected.gradients)):
        return [difference for difference in found if difference.kind != "gradient"]
    return found


@dataclass(frozen=True)
class _AtTheEdges:
    """How a changed program differs on inputs at the edges.

    Parameters
    ----------
    found : list of Difference
        The differences, those on inputs of another kind left out.
    inputs : int
        On how many inputs they were looked for.
    grave : str or None
        A difference with which the program does not work.
    other_kind : str or None
        A difference like that with tensors of another kind.
    """

    found: list[Difference]
    inputs: int = 0
    grave: str | None = None
    other_kind: str | None = None


def _looked_at(pairs: Iterable[tuple[Trial, list[Difference]]], seen: _AtTheEdges) -> _AtTheEdges:
    """Add inputs and the differences there to what was seen, up to the first difference that is grave."""
    for trial, more in pairs:
        seen = replace(seen, inputs=seen.inputs + 1)
        grave = next((difference.text for difference in more if not difference.declared), None)
        if not trial.input.other_kind:
            seen = replace(seen, found=_with_new_kinds(seen.found, more))
            if grave is not None:
                return replace(seen, grave=f"{grave}, on {trial.input.example.what}")
        elif grave is not None and seen.other_kind is None:
            seen = replace(seen, other_kind=f"it {grave} with {trial.input.example.what}")
    return seen


def _with_new_kinds(found: list[Difference], more: list[Difference]) -> list[Difference]:
    """Add differences of kinds that are not there yet: many inputs show the same."""
    known = {difference.kind for difference in found}
    return [*found, *(difference for difference in more if difference.kind not in known)]


def _is_finite(values: Any) -> bool:
    found = [tensor for _, tensor in tensors(values, "") if tensor.layout == torch.strided]
    return all(bool(torch.isfinite(tensor).all()) for tensor in found if tensor.is_floating_point())


def _kind_of_edge(trial: Trial) -> str:
    """Return what is at the edge: the size, the values or a number."""
    what = trial.input.example.what
    return "size 0" if what.startswith("size 0") else "size" if what.startswith("size") else what.partition(" =")[0]


def _without_verdict(error: BaseException) -> tuple[RemedyVerdict, str]:
    """Return the verdict on a program that did not run to its end, and the reason."""
    match error:
        case TrialStoppedError():
            return "not tried", _stopped(error)
        case OtherThreadError():
            return "not tried", str(error)
        case CannotApplyError() | SyntaxError():
            return "fails", f"cannot be applied: {error}"
    return "fails", f"raises {_in_words(error)}"


def _stopped(stopped: TrialStoppedError) -> str:
    return f"the trial was stopped before it {stopped.effect.what}"


def compared(results: list[Result]) -> list[str]:
    """Return what a comparison of results compares, in the words of the evidence."""
    what = ["values"]
    what += ["gradients"] if any(result.gradients for result in results) else []
    what += ["arguments"] if any(result.arguments for result in results) else []
    what += ["output"] if any(result.effects.printed or result.effects.stderr for result in results) else []
    what += ["warnings"] if any(result.effects.warned for result in results) else []
    what += ["logs"] if any(result.effects.logged for result in results) else []
    what += ["exceptions"] if any(result.raised is not None for result in results) else []
    return [*what, "aliasing", "state", "random numbers"]


def _given_up(report: Report) -> set[str]:
    """Return the functions that run eagerly, with all that they call, because they were compiled too often."""
    return {skipped.function for skipped in report.skipped if skipped.kind in {"recompile limit", "shared wrapper"}}


def _place(graph_break: Break) -> str:
    location = graph_break.location
    where = f"at line {location.line}, {location.code}" if location is not None else "elsewhere"
    return f"{where}: {graph_break.gb_type}"


def _in_words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _name_of(backend: Any) -> str:
    if isinstance(backend, str):
        return backend
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None)
    return str(name or type(backend).__name__)


@contextlib.contextmanager
def _kept_environment() -> Iterator[None]:
    """Take back what a switch sets in the environment."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


def _outermost_module(call: Any, arguments: Arguments) -> Any:
    if isinstance(call, torch.nn.Module):
        return call
    owner = getattr(call, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        return owner
    cells = [cell.cell_contents for cell in getattr(call, "__closure__", None) or ()]
    names = getattr(getattr(call, "__code__", None), "co_names", ())
    used = [call.__globals__[name] for name in names if name in getattr(call, "__globals__", {})]
    given = (*arguments.args, *arguments.kwargs.values())
    modules = (value for value in (*given, *cells, *used) if isinstance(value, torch.nn.Module))
    return next(modules, None)


def _text(filename: str, find_cell: FindCell) -> str:
    cell = find_cell(filename)
    if cell is not None:
        return cell.text
    with contextlib.suppress(Exception):  # a loader that fails
        return "".join(linecache.getlines(filename)).removesuffix("\n")
    return ""
