"""Effects outside a function's objects happen only in real calls, never in trials."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import contextvars
import copyreg
import decimal
import faulthandler
import gc
import importlib
import inspect
import io
import locale
import logging
import os
import re
import signal
import sys
import threading
import time
import warnings
import webbrowser
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.serialization
from torch.distributed import _functional_collectives as functional_collectives
from torch.utils.checkpoint import checkpoint
from tqdm import tqdm
from tqdm.std import TqdmDefaultWriteLock

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.default_device import default_device_name, restore_default_device
from jupyter_graphbreak._torch_compat.process_settings import context_variables
from jupyter_graphbreak.experiments.trial.guard import prevent_effects
from jupyter_graphbreak.experiments.trial.process_state import find_changing_line
from jupyter_graphbreak.experiments.trial.side_effects import EffectRefusedError, ObservedEffect, TrialStoppedError
from jupyter_graphbreak.experiments.trial.state_parts import StateChange
from jupyter_graphbreak.records.records import StackFrame

pytestmark = pytest.mark.usefixtures("few_unusual_inputs")

programs: Any = importlib.import_module("tests.programs.trials.side_effects")

KINDS = ("file", "network", "process", "database", "state")
#: Programs that are never called for real: they end the process or the test, fail in Dynamo, or wait for input.
NEVER_CALLED_FOR_REAL = {"exits", "ends_process", "dumps_array", "saves_traced_function", "asks_for_password"}
PURE_FUNCTIONS = [
    programs.reads_file, programs.reads_open_file, programs.logs, programs.imports_late, programs.keeps_list,
    programs.draws, programs.prints, programs.tells_time, programs.draws_from_own_generator,
    programs.marks_enumeration, programs.counts_in_thread_local, programs.writes_to_view,
    programs.marks_logger, programs.counts_in_logger, programs.counts_in_named_logger, programs.counts_in_handler,
    programs.counts_in_thread, programs.sets_event, programs.calls_mock,
    programs.writes_console, programs.puts_in_own_queue, programs.counts_in_structure,
    programs.updates_hash, programs.writes_in_memory,
]  # fmt: skip
SINGLE_CALLS: list[Callable[..., Any]] = [
    jupyter_graphbreak.try_remedies, jupyter_graphbreak.measure, jupyter_graphbreak.check,
    jupyter_graphbreak.compare_frontends,
]  # fmt: skip
SIGNALS: list[int] = []
#: Exit functions that the programs register. Those that libraries register on import are not effects.
REGISTERED_EXIT_FUNCTIONS: list[Any] = []


def commented_effect(function: Callable[..., Any]) -> tuple[str, int] | None:
    """Return the kind and the line of a function's effect, according to the comment on that line."""
    lines, first = inspect.getsourcelines(function)
    for number, line in enumerate(lines, start=first):
        comment = line.rpartition("# ")[2].strip()
        if comment in KINDS:
            return comment, number
    return None


FUNCTIONS_WITH_EFFECTS = [
    function
    for function in vars(programs).values()
    if inspect.isfunction(function)
    and function.__module__ == programs.__name__
    and commented_effect(function) is not None
]
#: `make test` runs one of sixteen functions.
EFFECTS = [
    pytest.param(function, id=function.__name__, marks=[pytest.mark.exhaustive] if number % 16 else [])
    for number, function in enumerate(FUNCTIONS_WITH_EFFECTS)
]


@pytest.fixture(autouse=True)
def restore_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("line\n" * 100))
    monkeypatch.delenv("SIDE_EFFECT", raising=False)
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # Python uses it only after `time.tzset`
    register = atexit.register

    def register_and_count(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if function is len:
            REGISTERED_EXIT_FUNCTIONS.append(function)
        return register(function, *args, **kwargs)

    monkeypatch.setattr(atexit, "register", torch.compiler.disable(register_and_count))
    webbrowser.register("test", None, webbrowser.GenericBrowser("true"), preferred=True)
    handlers_before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    signal.signal(signal.SIGUSR1, lambda number, _: SIGNALS.append(number))
    limit, path, precision = sys.getrecursionlimit(), list(sys.path), decimal.getcontext().prec
    matmul, benchmark, language = (
        torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark, locale.setlocale(locale.LC_ALL),
    )  # fmt: skip
    settings, handles_faults = read_settings(), faulthandler.is_enabled()
    programs.open_all()
    yield
    monkeypatch.delenv("TZ")
    time.tzset()
    if handles_faults:
        faulthandler.enable()
    programs.close_all()
    for owner in (threading.current_thread(), programs.LOGGER):
        vars(owner).pop("calls", None)
    vars(threading.current_thread()).pop("counts")
    restore_settings(settings)
    copyreg.dispatch_table.pop(programs.Level, None)
    programs.Toolbox.__bases__ = (programs.Tools,)
    gc.enable()
    sys.setrecursionlimit(limit)
    sys.path[:] = path
    decimal.getcontext().prec = precision
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.benchmark = benchmark
    locale.setlocale(locale.LC_ALL, language)
    programs.LOGGER.handlers.clear()
    atexit.unregister(len)
    for number, handler in handlers_before.items():
        signal.signal(number, handler)


def visible_state() -> dict[str, Any]:
    """Return everything that the programs may change."""
    received = b""
    with contextlib.suppress(BlockingIOError):
        received = programs.OTHER_END.recv(1000, 2)  # MSG_PEEK
    return {
        "bases": programs.Toolbox.__bases__,
        "folder": os.getcwd(),  # noqa: PTH109 - the functions change the same folder
        "files": FOLDER and read_contents(FOLDER[0]),
        "received": received,
        "rows": programs.CONNECTION.execute("select count(*) from rows").fetchall(),
        "queued": programs.QUEUE.empty(),
        "position": programs.READ_FILE.tell(),
        "positions": (programs.ROWS.line_num, os.lseek(programs.DESCRIPTOR, 0, os.SEEK_CUR)),
        "left": programs.GENERATOR.gi_frame.f_lasti if programs.GENERATOR.gi_frame else None,
        "signalled": len(SIGNALS),
        "input": sys.stdin.tell(),
        "environment": dict(os.environ),
        "handlers": [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)],
        "collector": gc.isenabled(),
        "limit": sys.getrecursionlimit(),
        "path": list(sys.path),
        "at exit": len(REGISTERED_EXIT_FUNCTIONS),
        "precision": decimal.getcontext().prec,
        "variable": programs.VARIABLE.get(),
        "locale": locale.setlocale(locale.LC_ALL),
        "matmul": torch.get_float32_matmul_precision(),
        "benchmark": torch.backends.cudnn.benchmark,
        "settings": read_settings(),
        "log handlers": list(programs.LOGGER.handlers),
        "private": list(programs.PRIVATE),
        "shared": (programs.SHARED_VALUE.value, bytes(programs.SHARED_MEMORY.buf)),
        "stored": programs.STORE.add("n", 0),
        "hooks": len(torch.nn.modules.module._global_forward_hooks),
        "own generator": programs.DRAWS.get_state().tolist(),
        "scheduled": len(getattr(programs.LOOP, "_ready")),  # noqa: B009
        "in memory": (dict(vars(programs.LOCAL)), bytes(programs.VIEW)),
        "enumeration": dict(vars(programs.Level.LOW)),
        "marks": [getattr(owner, "calls", 0) for owner in (threading.current_thread(), programs.LOGGER)],
        "counts": [
            repr(vars(owner)["counts"]) for owner in (threading.current_thread(), programs.LOGGER, programs.HANDLER)
        ],
        "at addresses": (bytes(programs.BUFFER), programs.COUNTS.calls),
        "batches and shelf": (programs.BATCHES._num_yielded, len(programs.SHELF["calls"])),
        "hash and stream": (programs.HASH.hexdigest(), programs.STREAM.getvalue(), programs.FUTURE.done()),
        "waiting": programs.WAITING.qsize(),
        "event": (programs.EVENT.is_set(), programs.MOCK.call_count),
        "table": len(copyreg.dispatch_table),
        "random": torch.get_rng_state().tolist(),
        "zone and faults": (time.tzname, faulthandler.is_enabled()),
    }


def read_settings() -> tuple[Any, ...]:
    new = logging.Logger.manager.loggerDict.get("side_effect_programs.new")
    return (
        torch.get_default_dtype(), default_device_name(), torch.are_deterministic_algorithms_enabled(),
        torch.get_autocast_dtype("cpu"), [f for f in warnings.filters if f[2] is SyntaxWarning],
        list(programs.LOGGER.filters), getattr(new, "propagate", True), programs.HANDLER.name, programs.HANDLER.stream,
        logging.getLoggerClass(), np.geterrcall(), torch._C._is_multithreading_enabled(),
        torch.__future__.get_overwrite_module_params_on_conversion(),
        torch.utils.serialization.config.save.storage_alignment,
    )  # fmt: skip


def restore_settings(settings: tuple[Any, ...]) -> None:
    dtype, _, deterministic, autocast, _, filters, _, name, stream, kind, *others = settings
    torch.set_default_dtype(dtype)
    restore_default_device((None, True))
    torch.use_deterministic_algorithms(deterministic)
    torch.set_autocast_dtype("cpu", autocast)
    programs.LOGGER.filters[:] = filters
    logging.Logger.manager.loggerDict.pop("side_effect_programs.new", None)
    programs.HANDLER.name, programs.HANDLER.stream = name, stream
    logging.setLoggerClass(kind)
    np.seterrcall(others[0])
    torch.autograd.set_multithreading_enabled(others[1])
    torch.__future__.set_overwrite_module_params_on_conversion(others[2])
    torch.utils.serialization.config.save.storage_alignment = others[3]


FOLDER: list[Path] = []


@pytest.fixture(autouse=True, scope="module")
def load_lazy_modules() -> None:
    """Load the modules that PyTorch imports lazily."""
    compiled: Callable[..., Any] = torch.compile(programs.finish, backend="eager")
    compiled(torch.ones(3))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    FOLDER[:] = [tmp_path]
    yield
    FOLDER.clear()


def read_contents(folder: Path) -> dict[str, Any]:
    """Return the files of a folder with their modes and contents."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
    }


def kinds_and_lines(result: Any) -> list[tuple[str, int | None]]:
    return [(effect.kind, effect.location and effect.location.line) for effect in result.effects or []]


@pytest.mark.parametrize("function", EFFECTS)
def test_a_function_is_stopped_before_its_effect(function: Callable[..., Any]) -> None:
    state_before, freeze_count = visible_state(), gc.get_freeze_count()
    for call in SINGLE_CALLS:
        result = call(torch.compile(function, backend="eager"), torch.ones(3))
        assert visible_state() == state_before, call.__name__
        assert kinds_and_lines(result)[:1] == [commented_effect(function)], f"{call.__name__}: {result.to_text()}"
        assert "run again" in " ".join(result.to_text().split())
    assert gc.get_freeze_count() <= freeze_count


@pytest.mark.parametrize("function", [case for case in EFFECTS if case.id not in NEVER_CALLED_FOR_REAL])
def test_a_function_with_an_observed_effect_is_not_run_again(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function, backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        compiled(torch.ones(3))
    state_after_run = visible_state()
    run.try_remedies()
    run.measure()
    report = run.check()
    assert visible_state() == state_after_run
    assert commented_effect(function) in kinds_and_lines(report)
    assert not report.check
    assert all(remedy.verdict == "not tried" for remedy in report.remedies or [])
    assert "Nothing was run again" in report.to_text()
    assert "Nothing was run again" in report.to_html()


@pytest.fixture
def two_processes() -> Iterator[None]:
    """Make PyTorch believe that this process is one of two."""
    store = importlib.import_module("torch.testing._internal.distributed.fake_pg").FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=2)
    yield
    torch.distributed.destroy_process_group()


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    torch.distributed.all_reduce(x)
    return x


def all_reduce_functionally(x: torch.Tensor) -> torch.Tensor:
    group: Any = torch.distributed.group.WORLD
    y: torch.Tensor = functional_collectives.all_reduce(x, "sum", group)
    return y


def run_in_parallel(x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = PARALLEL[0](x)
    return y


def multiply_by_world_size(x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = x * torch.distributed.get_world_size()
    return y


PARALLEL: list[torch.nn.Module] = []


@pytest.mark.usefixtures("two_processes")
def test_a_trial_never_communicates_with_other_processes() -> None:
    PARALLEL[:] = [torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))]
    for function in (all_reduce, all_reduce_functionally, run_in_parallel):
        report = jupyter_graphbreak.check(torch.compile(function, backend="eager"), torch.ones(3))
        (effect,) = report.effects or []
        assert effect.kind == "network", function.__name__
        assert effect.location is not None
        assert effect.what == "communicates with other processes"
        assert not report.check
    report = jupyter_graphbreak.check(torch.compile(multiply_by_world_size, backend="eager"), torch.ones(3))
    assert [check.equal for check in report.check or []] == [True]
    PARALLEL.clear()


def use_pool_of_library(x: torch.Tensor) -> torch.Tensor:
    pool: Any = vars(concurrent.futures)["a_pool"]
    pool.apply(write_row) if hasattr(pool, "apply") else pool.submit(write_row).result()
    y: torch.Tensor = programs.finish(x)
    return y


def write_row() -> None:
    with open("counted.txt", "a") as out:  # noqa: PTH123 - the test needs this effect
        out.write("row")


@pytest.mark.parametrize(
    "make_pool", [concurrent.futures.ThreadPoolExecutor, pytest.param(ThreadPool, marks=pytest.mark.exhaustive)]
)
def test_work_for_a_pool_that_a_library_holds_is_an_effect(
    monkeypatch: pytest.MonkeyPatch, make_pool: Callable[[int], Any]
) -> None:
    effect = ("process", inspect.getsourcelines(use_pool_of_library)[1] + 2)
    with make_pool(1) as pool:
        monkeypatch.setattr(concurrent.futures, "a_pool", pool, raising=False)
        pool.submit(int).result() if hasattr(pool, "submit") else pool.apply(int)  # now the thread is running
        for call in SINGLE_CALLS:
            result = call(torch.compile(use_pool_of_library, backend="eager"), torch.ones(3))
            assert kinds_and_lines(result)[:1] == [effect], call.__name__
        assert not Path("counted.txt").exists()
        with jupyter_graphbreak.capture(entries=True) as run:
            torch.compile(use_pool_of_library, backend="eager")(torch.ones(3))
        run.try_remedies()
        run.measure()
        assert effect in kinds_and_lines(run.check())
        assert Path("counted.txt").read_text() == "row"


@pytest.mark.parametrize("make_pool", [concurrent.futures.ThreadPoolExecutor, ThreadPool])
def test_an_effect_on_the_thread_of_a_pool_is_observed(make_pool: Callable[[int], Any]) -> None:
    compiled = torch.compile(programs.appends_line, backend="eager")
    with make_pool(1) as pool:
        pool.submit(int).result() if hasattr(pool, "submit") else pool.apply(int)  # now the thread is running
        with jupyter_graphbreak.capture(entries=True) as run:
            list(pool.map(compiled, [torch.ones(3)]))
    assert kinds_and_lines(run.check()) == [commented_effect(programs.appends_line)]
    assert Path("a.txt").read_text() == "row\n"


def sine_in_checkpoint(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    y: torch.Tensor = checkpoint(torch.sin, x, use_reentrant=False)
    return y * 2


@pytest.mark.exhaustive
def test_the_monitor_of_a_progress_bar_is_not_an_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tqdm, "monitor", None)
    compiled = torch.compile(sine_in_checkpoint, backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        compiled(torch.ones(3, requires_grad=True))
    monitor = tqdm.monitor
    assert monitor is not None, "PyTorch creates a progress bar for each graph that it interprets"
    try:
        report = run.try_remedies()
        assert report.effects is None
        assert "works" in [remedy.verdict for remedy in report.remedies or []]
        assert [check.equal for check in run.check().check or []] == [True]
    finally:
        monitor.exit()


def test_recording_the_trace_is_not_an_effect_of_a_function_that_reads_a_level() -> None:
    # The capture adds a handler to a PyTorch logger. Loggers also have an attribute `level`.
    class Mixer:
        level = 2.0

    def mix(x: torch.Tensor) -> torch.Tensor:
        return x * Mixer.level

    with jupyter_graphbreak.capture(entries=True) as run:
        torch.compile(mix, backend="eager")(torch.ones(3))
    report = run.check()
    assert report.effects is None
    assert [check.equal for check in report.check or []] == [True]


def test_an_effect_that_an_outer_guard_refuses_is_named() -> None:
    effect = ObservedEffect("file", "writes to the file rows.csv")
    with pytest.raises(TrialStoppedError, match=re.escape(effect.description)), prevent_effects():
        raise EffectRefusedError(effect)


def test_the_lock_of_progress_bars_is_not_an_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tqdm, "monitor_interval", 0)
    monkeypatch.delattr(tqdm, "_lock", raising=False)
    monkeypatch.delattr(TqdmDefaultWriteLock, "mp_lock", raising=False)
    report = jupyter_graphbreak.check(torch.compile(torch.sin, backend="eager"), torch.ones(3))
    assert hasattr(TqdmDefaultWriteLock, "mp_lock"), "the check interprets a graph, which creates a progress bar"
    assert report.effects is None
    assert [check.equal for check in report.check or []] == [True]


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if number else [])
        for number, name in enumerate(PURE_FUNCTIONS)
    ],
    ids=lambda function: function.__name__,
)
def test_a_function_without_effects_is_run_again(function: Callable[..., Any]) -> None:
    state_before = visible_state()
    compiled = torch.compile(function, backend="eager")
    report = jupyter_graphbreak.try_remedies(compiled, torch.ones(3), seconds=600)
    assert report.effects is None
    assert [remedy for remedy in report.remedies or [] if remedy.kind != "person" and remedy.evidence is not None]
    assert jupyter_graphbreak.check(compiled, torch.ones(3)).effects is None
    cost = jupyter_graphbreak.measure(compiled, torch.ones(3)).cost
    assert cost is not None
    assert cost.entries
    assert jupyter_graphbreak.compare_frontends(function, torch.ones(3)).verdicts
    assert visible_state() == state_before


class CopiedObject:
    """An object that trials copy."""


COPIED_OBJECT = CopiedObject()


def read_copied_object(x: torch.Tensor) -> torch.Tensor:
    if COPIED_OBJECT is not None:
        x = x + 1
    y: torch.Tensor = programs.finish(x)
    return y


@pytest.mark.exhaustive
@pytest.mark.skipif(
    torch.__version__.startswith("2.9."), reason="torch 2.9 keeps the function that checks a code's guards"
)
def test_no_copy_outlives_an_experiment() -> None:
    # Dynamo keeps backends, and the guards of code that was compiled for an object which is never deleted.
    for call in SINGLE_CALLS:
        call(torch.compile(read_copied_object, backend="eager"), torch.ones(3))
        gc.collect()
        copies = [item for item in gc.get_objects() if type(item) is CopiedObject and item is not COPIED_OBJECT]
        assert not copies, call.__name__


MODE: contextvars.ContextVar[str | None] = contextvars.ContextVar("MODE", default=None)


def test_a_context_variable_that_is_set_back_to_its_default_has_not_changed() -> None:
    def visit() -> None:
        MODE.set("visiting")
        MODE.set(None)

    def keep() -> None:
        MODE.set("kept")

    with prevent_effects(visit):
        visit()
    with pytest.raises(TrialStoppedError, match="sets context variables"), prevent_effects(keep):
        keep()


def test_a_variable_that_inductor_sets_for_itself_is_not_an_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
    monkeypatch.delenv(name, raising=False)

    def load() -> None:
        os.environ[name] = "140"

    with prevent_effects(load):
        load()
    assert os.environ[name] == "140"
    monkeypatch.delenv(name)


def test_a_builtin_with_the_name_of_a_method_is_not_the_line_that_changes_the_state() -> None:
    change = StateChange("sets context variables", frozenset({"set"}))
    lines = [
        find_changing_line(change, [compile(text, __file__, "exec")], {}) for text in ("set('ab')", "mode.set('ab')")
    ]
    assert lines == [None, StackFrame(__file__, 1, "<module>", 1)]


def test_the_search_for_context_variables_of_torch_makes_no_object_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deprecated:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            warnings.warn("deprecated", FutureWarning, stacklevel=1)
            return Deprecated

    variable = contextvars.ContextVar("of torch", default=0)
    monkeypatch.setattr(torch.utils, "old_name", Deprecated(), raising=False)
    monkeypatch.setattr(torch.utils, "new_name", variable, raising=False)
    monkeypatch.setitem(sys.modules, "torch.of_this_test", torch.utils)  # more modules than at the last search
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert variable in context_variables()
