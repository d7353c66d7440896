"""Watching, patching and silencing affect only the threads of the run; runs may be nested."""

from __future__ import annotations

import concurrent.futures.thread
import contextlib
import functools
import importlib.util
import io
import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import Pool, ThreadPool
from pathlib import Path
from typing import Any, Self

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat import threads
from jupyter_graphbreak._torch_compat.configuration import force_backend, imitate_eager_output
from jupyter_graphbreak._torch_compat.patching import (
    observe_calls_on_thread,
    patch_attribute,
    patch_on_thread,
    redirect_calls_on_thread,
)
from jupyter_graphbreak._torch_compat.profile_ranges import mark_compiled_code
from jupyter_graphbreak._torch_compat.separate_cache import confine_fx_tracing
from jupyter_graphbreak.compiling.compile_options import CompileOptions
from jupyter_graphbreak.compiling.compiled_calls import compile_calls
from jupyter_graphbreak.compiling.routes import route
from jupyter_graphbreak.experiments.trial.effects import allow_repeated_warnings, capture_effects
from jupyter_graphbreak.experiments.trial.other_threads import busy_thread_name, redirect_thread_streams
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.faults import with_fallback
from jupyter_graphbreak.recording.targets import reachable_objects
from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.report.schema import Report

ONES = torch.ones(3)
log = logging.getLogger("a.thread")


def first(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1


def second(x: torch.Tensor) -> torch.Tensor:
    y = x * 3
    torch._dynamo.graph_break()
    return y + 2


def third(x: torch.Tensor) -> torch.Tensor:
    return x - 1


@pytest.fixture(autouse=True)
def reset_dynamo_and_check_patches() -> Iterator[None]:
    """Start with nothing compiled, and end with nothing patched."""
    torch.compiler.reset()
    start = threading.Thread.start
    yield
    assert threading.Thread.start is start
    assert not threads._claims_by_thread
    assert not threads._claims_by_started_thread


def run_in_thread(work: Callable[[], Any]) -> Any:
    """Return the result of a function on another thread, or raise its exception."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - the test raises the error below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


class Worker:
    """A running thread that calls the functions that are passed to it."""

    def __init__(self) -> None:
        self._functions: list[Callable[[], Any]] = []
        self._results: list[Any] = []
        self._ready, self._done = threading.Lock(), threading.Lock()  # a trial stops before it waits for a semaphore
        self._ready.acquire()
        self._done.acquire()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._functions.append(lambda: None)
        self._thread_ends = True
        self._ready.release()
        self._thread.join()

    _thread_ends = False

    def _run(self) -> None:
        while self._ready.acquire() and not self._thread_ends:
            try:
                self._results.append((self._functions.pop()(), None))
            except Exception as error:  # noqa: BLE001 - `__call__` raises the error
                self._results.append((None, error))
            self._done.release()

    def __call__(self, work: Callable[[], Any]) -> Any:
        """Run a function on the worker's thread and return its result."""
        self._functions.append(work)
        self._ready.release()
        self._done.acquire()
        result, error = self._results.pop()
        if error is not None:
            raise error
        return result


def compiled_functions(report: Report) -> set[str]:
    return {frame.function.rpartition("_in_")[2].partition("_at_")[0] or frame.function for frame in report.frames}


def warnings_and_errors(report: Report) -> list[str]:
    return [note.message for note in report.diagnostics if note.level != "info"]


# -- Compilations that a run sees.


def test_two_threads_record_at_once_and_see_only_their_own_compilations() -> None:
    barrier = threading.Barrier(2)
    reports: dict[str, Report] = {}

    def work(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        compiled = torch.compile(function, backend="eager")
        with jupyter_graphbreak.capture() as run:
            barrier.wait()
            with torch._dynamo.error_on_graph_break(False):
                compiled(ONES)
            barrier.wait()
        reports[function.__name__] = run.report

    workers = [threading.Thread(target=work, args=(function,)) for function in (first, second)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for name, report in reports.items():
        assert compiled_functions(report) == {name}
        assert (len(report.breaks), len(report.graphs), len(report.scopes)) == (1, 2, 1)
        assert report.scopes[0].breaks == ["b1"]
        assert warnings_and_errors(report) == []
    assert len(reports) == 2


@pytest.mark.parametrize("ends_first", ["the outer one", "the inner one"])
def test_runs_of_two_threads_end_in_any_order(ends_first: str) -> None:
    compiled = [torch.compile(function, backend="eager") for function in (first, second)]
    call = torch.nn.Module.__call__
    has_begun, may_end = threading.Event(), threading.Event()

    def other() -> Report:
        with jupyter_graphbreak.capture(compile=True) as run:
            has_begun.set()
            if ends_first == "the inner one":
                compiled[1](ONES)
            else:
                may_end.wait()
                compiled[1](ONES)
        return run.report

    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(other()))
    with jupyter_graphbreak.capture(compile=True) as run:
        thread.start()
        has_begun.wait()
        compiled[0](ONES)
        if ends_first == "the inner one":
            thread.join()
    may_end.set()
    thread.join()
    assert compiled_functions(run.report) == {"first"}
    assert compiled_functions(reports[0]) == {"second"}
    assert torch.nn.Module.__call__ is call


def test_nested_runs_both_see_the_scopes_of_the_inner_one() -> None:
    compiled_first, compiled_second = torch.compile(first, backend="eager"), torch.compile(second, backend="eager")
    with jupyter_graphbreak.capture() as outer, torch._dynamo.error_on_graph_break(False):
        with jupyter_graphbreak.capture() as inner, torch._dynamo.error_on_graph_break(False):
            compiled_second(ONES)
        compiled_first(ONES)
    assert compiled_functions(outer.report) == {"first", "second"}
    assert compiled_functions(inner.report) == {"second"}
    scopes_by_line = {scope.location.code: scope for scope in outer.report.scopes if scope.location is not None}
    assert len(scopes_by_line) == 2
    assert sorted(len(scope.breaks) for scope in scopes_by_line.values()) == [1, 1]
    assert [len(scope.breaks) for scope in inner.report.scopes] == [0, 1]
    assert warnings_and_errors(outer.report) == warnings_and_errors(inner.report) == []


def test_a_thread_belongs_to_the_run_that_started_it_or_to_its_own_run() -> None:
    compiled_first, compiled_second = torch.compile(first, backend="eager"), torch.compile(second, backend="eager")

    def capture_second() -> Report:
        with jupyter_graphbreak.capture() as run:
            compiled_second(ONES)
        return run.report

    with jupyter_graphbreak.capture() as outer:
        run_in_thread(lambda: run_in_thread(lambda: compiled_first(ONES)))
        inner = run_in_thread(capture_second)
    assert compiled_functions(outer.report) == {"first"}
    assert compiled_functions(inner) == {"second"}
    assert warnings_and_errors(outer.report) == warnings_and_errors(inner) == []


def test_an_already_running_thread_belongs_to_no_run() -> None:
    compiled_first, compiled_second = torch.compile(first, backend="eager"), torch.compile(second, backend="eager")
    with Worker() as worker, jupyter_graphbreak.capture() as run:
        assert torch.equal(worker(lambda: compiled_second(ONES)), second(ONES))
    assert run.report.frames == []
    assert warnings_and_errors(run.report) == []
    with Worker() as worker, jupyter_graphbreak.capture(entries=True) as run:
        compiled_first(ONES)
        worker(lambda: compiled_second(2 * torch.ones(4)))
    assert compiled_functions(run.report) == {"first"}


def test_work_that_a_run_submits_to_a_pool_belongs_to_it() -> None:
    compiled_first, compiled_second, compiled_third = (
        torch.compile(function, backend="eager") for function in (first, second, third)
    )
    originals = dict(vars(concurrent.futures.thread._WorkItem))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # now the pool has its thread
        with jupyter_graphbreak.capture() as outer:
            pool.submit(compiled_first, ONES).result()
            with jupyter_graphbreak.capture() as inner:
                assert [value.tolist() for value in pool.map(compiled_second, [ONES])] == [second(ONES).tolist()]
        with Worker() as worker, jupyter_graphbreak.capture() as other:
            worker(lambda: pool.submit(compiled_third, ONES).result())
        threads_of_pool = pool.submit(threads.current_claims).result()
    assert compiled_functions(outer.report) == {"first", "second"}
    assert compiled_functions(inner.report) == {"second"}
    assert compiled_functions(other.report) == set()
    assert threads_of_pool == ()
    assert dict(vars(concurrent.futures.thread._WorkItem)) == originals


@pytest.mark.parametrize("method", ["apply", "map", "starmap", "imap", "imap_unordered", "map_async"])
def test_work_that_a_run_submits_to_threads_of_multiprocessing_belongs_to_it(method: str) -> None:
    compiled_first, compiled_second = torch.compile(first, backend="eager"), torch.compile(second, backend="eager")
    original = vars(Pool)["_map_async"]

    def submit(function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        arguments: Any = {"apply": (ONES,), "starmap": [(ONES,)]}.get(method, [ONES])
        result: Any = getattr(pool, method)(function, arguments)
        result = result.get() if method == "map_async" else result
        return [result] if method == "apply" else list(result)

    with ThreadPool(1) as pool:
        pool.apply(int)  # now the thread is running
        with Worker() as worker, jupyter_graphbreak.capture() as run:
            (value,) = submit(compiled_first)
            worker(lambda: submit(compiled_second))
        threads_of_pool = pool.apply(threads.current_claims)
    assert value.tolist() == first(ONES).tolist()
    assert compiled_functions(run.report) == {"first"}
    assert threads_of_pool == ()
    assert vars(Pool)["_map_async"] is original


def test_a_pool_thread_started_by_a_run_belongs_to_the_submitter_of_the_work() -> None:
    compiled_first, compiled_second = torch.compile(first, backend="eager"), torch.compile(second, backend="eager")
    with ThreadPoolExecutor(1) as pool, Worker() as worker, jupyter_graphbreak.capture() as run:
        pool.submit(compiled_first, ONES).result()
        worker(lambda: pool.submit(compiled_second, ONES).result())
    assert compiled_functions(run.report) == {"first"}


@pytest.mark.parametrize("make_pool", [ThreadPoolExecutor, ThreadPool])
def test_an_error_of_submitted_work_has_the_same_traceback_as_without_a_run(make_pool: Callable[[int], Any]) -> None:
    def fail() -> None:
        raise ValueError("wrong")

    def names() -> list[str]:
        with make_pool(1) as pool, pytest.raises(ValueError, match="wrong") as error:
            pool.submit(fail).result() if make_pool is ThreadPoolExecutor else pool.apply(fail)
        return [entry.name for entry in traceback.extract_tb(error.value.__traceback__)]

    names_without_run = names()
    with jupyter_graphbreak.capture():
        assert names() == names_without_run


def test_the_backward_pass_of_a_thread_of_pytorch_belongs_to_the_forward_pass() -> None:
    with threads.claim_thread() as claim:
        claim.compilations.add((7, 0))
        assert claim.covers_this_thread()
        with Worker() as worker:  # started by Python, so it does not belong to the run
            assert worker(claim.covers_this_thread)
    assert not claim.covers_this_thread()


# -- Patches.


class Owner:
    """A class with an attribute to patch."""

    @staticmethod
    def value() -> str:
        return "original"


def test_patches_end_in_any_order() -> None:
    original = vars(Owner)["value"]
    first_stack, second_stack = contextlib.ExitStack(), contextlib.ExitStack()
    first_stack.enter_context(patch_attribute(Owner, "value", staticmethod(lambda: "one")))
    second_stack.enter_context(patch_attribute(Owner, "value", staticmethod(lambda: "two")))
    first_stack.close()
    assert Owner.value() == "two"
    second_stack.close()
    assert vars(Owner)["value"] is original


def test_patches_of_a_thread_do_not_affect_others() -> None:
    observed_results: list[Any] = []
    with Worker() as worker:
        for context in (
            patch_on_thread(Owner, "value", lambda: "here"),
            observe_calls_on_thread(Owner, "value", observed_results.append),
            redirect_calls_on_thread(Owner, "value", lambda: (str, ("here",), {})),
        ):
            with context:
                value_on_main_thread, value_on_worker = Owner.value(), worker(Owner.value)
            assert value_on_worker == "original"
            assert value_on_main_thread in {"here", "original"}
    assert observed_results == ["original"]


def test_after_an_internal_error_the_original_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    assert with_fallback("testing", fail, lambda: "instead")() == "instead"
    with redirect_calls_on_thread(Owner, "value", fail):
        assert Owner.value() == "original"
    with observe_calls_on_thread(Owner, "value", fail):
        assert Owner.value() == "original"
    assert capsys.readouterr().err.count("Internal error in compile_explain while") == 2  # one sentence per cause

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_fallback("testing", interrupt, lambda: "instead")()


def test_threads_and_pools_work_after_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("no claims")

    with threads.claim_thread():
        monkeypatch.setattr(threads, "current_claims", fail)
        results: list[int] = []
        thread = threading.Thread(target=results.append, args=(1,))
        thread.start()
        thread.join()
        with ThreadPoolExecutor() as pool, ThreadPool(1) as other_pool:
            assert pool.submit(results.append, 2).result() is None
            assert other_pool.map(len, ["ab"]) == [2]
        assert results == [1, 2]
        monkeypatch.undo()
    sentences = capsys.readouterr().err.splitlines()
    activities = ("following a new thread", "following submitted work")
    assert [
        sum(f"while {activity} (RuntimeError: no claims)" in line for line in sentences) for activity in activities
    ] == [1, 1]


def test_code_that_a_different_thread_compiles_is_not_marked() -> None:
    marks: list[str] = []
    compiled_first, compiled_second = torch.compile(first, backend="eager"), torch.compile(second, backend="eager")
    with Worker() as worker, mark_compiled_code(lambda moment: functools.partial(marks.append, moment)):
        worker(lambda: compiled_second(ONES))
        assert marks == []
        compiled_first(ONES)
    assert marks[:2] == ["entered", "marked"]


def test_a_tracer_of_fx_receives_no_calls_of_other_threads() -> None:
    net = torch.nn.Linear(3, 3)
    with Worker() as worker:

        def f(x: torch.Tensor) -> torch.Tensor:
            assert worker(lambda: net(ONES).shape) == (3,)
            return x * 2

        with confine_fx_tracing():
            traced_function = torch.fx.symbolic_trace(f)
    assert torch.equal(traced_function(ONES), ONES * 2)


def test_a_forced_backend_applies_only_to_the_run() -> None:
    backend_threads: list[str] = []

    def record_thread(graph: Any, _: Any) -> Any:
        backend_threads.append(threading.current_thread().name)
        return graph

    compiled_first, compiled_second = torch.compile(first, backend="eager"), torch.compile(second, backend="eager")
    with Worker() as worker, force_backend(record_thread):
        worker(lambda: compiled_second(ONES))
        assert backend_threads == []
        compiled_first(ONES)
    assert len(backend_threads) == 2


def test_compilations_and_calls_of_other_threads_are_not_affected() -> None:
    """Compiling for the report forgets only its own compilations."""
    compiled_second, net = torch.compile(second, backend="eager"), torch.nn.Linear(3, 3)
    faults: list[str] = []
    with Worker() as worker:
        with compile_calls(CompileOptions(), lambda activity, fault: faults.append(f"{activity}: {fault}")) as calls:
            calls.route(first)(ONES)
            worker(lambda: compiled_second(ONES))
            assert worker(lambda: net(ONES).shape) == (3,)
            assert [compiled.name for compiled in calls.compiled_callables] == ["first"]
            assert worker(lambda: route(third)) is third
            assert route(third) is not third
        with jupyter_graphbreak.capture() as run:
            compiled_second(ONES)
    assert run.report.frames == []  # the compiled code of second was found
    assert faults == []


def test_output_and_warnings_of_compiling_are_hidden_on_one_thread(capsys: pytest.CaptureFixture[str]) -> None:
    with Worker() as worker, warnings.catch_warnings(record=True) as shown_warnings:
        warnings.simplefilter("always")
        with imitate_eager_output():
            filename = torch._dynamo.__file__
            worker(lambda: warnings.warn_explicit("theirs", UserWarning, filename, 1))
            warnings.warn_explicit("ours", UserWarning, filename, 1)
    assert [str(message.message) for message in shown_warnings] == ["theirs"]
    assert capsys.readouterr().err == ""


def test_the_search_for_the_code_of_a_program_stops_at_wrappers_of_this_package() -> None:
    with threads.claim_thread():
        assert list(reachable_objects(threading.Thread.start)) == [threading.Thread.start]


# -- Trials.


def warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=1)


def test_other_threads_print_log_and_warn_normally_during_a_trial(capsys: pytest.CaptureFixture[str]) -> None:
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)

    def work() -> None:
        print("theirs")
        print("theirs", file=sys.stderr)
        log.warning("theirs")
        warn("theirs")
        warn("theirs")

    try:
        with Worker() as worker, warnings.catch_warnings(record=True) as shown_warnings:
            warnings.simplefilter("default")
            with allow_repeated_warnings(), capture_effects() as effects:
                print("ours")
                log.warning("ours")
                warn("ours")
                worker(work)
            warn("theirs")
            worker(lambda: warn("theirs"))
    finally:
        log.removeHandler(handler)
    assert (effects.stdout, effects.stderr) == ("ours\n", "")
    assert [text for _, text in effects.warning_messages] == ["ours"]
    assert effects.log_records == [("a.thread", "WARNING", "ours")]
    assert capsys.readouterr() == ("theirs\n", "theirs\n")
    assert records == ["theirs"]
    assert [str(message.message) for message in shown_warnings] == ["theirs"]  # once, because of the filter


@pytest.mark.parametrize(
    ("action", "expected"), [("error", "raised"), ("ignore", "nothing"), ("always", "shown twice")]
)
def test_the_filters_apply_to_other_threads_during_a_trial(action: Any, expected: str) -> None:
    def warn_twice() -> str:
        try:
            warn("theirs")
            warn("theirs")
        except UserWarning:
            return "raised"
        return (
            "nothing" if not shown_warnings else f"shown {'twice' if len(shown_warnings) == 2 else len(shown_warnings)}"
        )

    with Worker() as worker, warnings.catch_warnings(record=True) as shown_warnings:
        warnings.simplefilter(action)
        with allow_repeated_warnings(), capture_effects():
            assert worker(warn_twice) == expected


def test_standard_streams_of_other_threads_are_theirs_during_a_trial(capsys: pytest.CaptureFixture[str]) -> None:
    with Worker() as worker:
        with sandbox_runs(), redirect_thread_streams(output := io.StringIO(), io.StringIO()):
            stdout = sys.stdout
            sys.stdout.write("ours\n")
            sys.__stdout__.write("ours, to the console\n")  # type: ignore[union-attr]
            worker(lambda: print("theirs"))
            assert stdout.encoding.lower() == "utf-8"
            assert worker(lambda: sys.stdout.fileno is not None)
        worker(lambda: stdout.write("theirs, later\n"))
    assert output.getvalue() == "ours\nours, to the console\n"
    assert capsys.readouterr().out == "theirs\ntheirs, later\n"
    assert not isinstance(sys.stdout, type(stdout))


def test_a_trial_breaks_where_the_program_writes_to_a_standard_stream() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        sys.stdout.write("step\n")
        return y + 1

    report = jupyter_graphbreak.try_remedies(torch.compile(step, backend="eager"), torch.ones(3), seconds=600)
    (break_,) = report.breaks
    assert break_.location is not None
    assert (break_.location.function or "").endswith("step")
    assert WORKING & {remedy.verdict for remedy in report.remedies or []}


def test_a_stream_stored_in_a_trial_writes_to_the_original_stream_afterwards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with redirect_thread_streams(io.StringIO(), io.StringIO()):
        stdout = sys.stdout
    print("afterwards", file=stdout)
    assert capsys.readouterr().out == "afterwards\n"


#: A program with a function, which a trial copies, and a method, which it does not copy.
PROGRAM = """\
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1


def double_and_add(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1


class Counter:
    total = torch.zeros(2)


def count_and_add(x):
    Counter.total = Counter.total + 1
    torch._dynamo.graph_break()
    return x + 1
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "program_with_threads.py"
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]


@pytest.fixture
def busy_thread(program: Any) -> Iterator[tuple[set[Any], list[BaseException]]]:
    """Call a function repeatedly on a thread. Yield the code objects that the thread has seen, and its exceptions."""
    code_objects: set[Any] = set()
    errors: list[BaseException] = []
    may_end, has_begun = threading.Event(), threading.Event()

    def work() -> None:
        while not may_end.is_set():
            code_objects.update((program.double_and_add.__code__, program.Net.forward.__code__))
            try:
                assert torch.equal(program.double_and_add(ONES), 2 * ONES + 1)
            except BaseException as error:  # noqa: BLE001 - the test reads the error
                errors.append(error)
            has_begun.set()

    thread = threading.Thread(target=work, name="busy")
    thread.start()
    has_begun.wait()
    yield code_objects, errors
    may_end.set()
    thread.join()


def test_a_function_is_tried_on_copies_while_a_different_thread_calls_it(
    program: Any,
    busy_thread: tuple[set[Any], list[BaseException]],
) -> None:
    code_objects, errors = busy_thread
    assert busy_thread_name() == "busy"
    report = jupyter_graphbreak.try_remedies(program.double_and_add, ONES, seconds=600)
    assert "works" in {remedy.verdict for remedy in report.remedies or ()}
    assert (len(code_objects), errors) == (2, [])


def test_a_method_is_not_tried_while_a_different_thread_runs(
    program: Any, busy_thread: tuple[set[Any], list[BaseException]]
) -> None:
    code_objects, errors = busy_thread
    report = jupyter_graphbreak.try_remedies(program.Net(), ONES, seconds=600)
    edited_remedies = [remedy for remedy in report.remedies or () if remedy.edits]
    assert edited_remedies
    assert {(remedy.verdict, remedy.reason) for remedy in edited_remedies} == {
        ("not tried", "your thread busy is running and would run the changed Net.forward")
    }
    assert (len(code_objects), errors) == (2, [])


@pytest.mark.parametrize("analysis", ["check", "measure", "try_remedies", "values", "compare_frontends"])
def test_a_call_is_not_repeated_if_a_different_thread_would_see_copies(
    program: Any, busy_thread: tuple[set[Any], list[BaseException]], analysis: str
) -> None:
    result = getattr(jupyter_graphbreak, analysis)(program.count_and_add, ONES)
    note = "The call was not run on copies: your thread busy is running and would see copies of Counter.total."
    assert [(entry.level, entry.message) for entry in result.diagnostics] == [("warning", note)]
    assert torch.equal(program.Counter.total, torch.zeros(2))
    assert busy_thread[1] == []


def test_a_recorded_call_is_not_repeated_if_a_different_thread_would_see_copies(
    program: Any, busy_thread: tuple[set[Any], list[BaseException]]
) -> None:
    with jupyter_graphbreak.capture(entries=True) as run:
        compiled: Any = torch.compile(program.count_and_add, backend="eager")
        compiled(ONES)
    reason = "your thread busy is running and would see copies of Counter.total"
    assert [remedy.reason for remedy in run.try_remedies().remedies or ()] == [
        f"count_and_add could not run again on copies ({reason})" for _ in run.report.breaks
    ]
    assert f"Measuring count_and_add failed ({reason})." in [note.message for note in run.measure().diagnostics]
    assert busy_thread[1] == []


def test_threads_that_wait_for_work_do_not_count() -> None:
    pool = contextlib.ExitStack()
    with pool:
        from concurrent.futures import ThreadPoolExecutor

        executor = pool.enter_context(ThreadPoolExecutor(1))
        executor.submit(int).result()
        assert busy_thread_name() is None
        timer = threading.Timer(60, first, (ONES,))
        timer.start()
        assert busy_thread_name() == timer.name
        timer.cancel()
        timer.join()
