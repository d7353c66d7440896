"""With a torch whose internals differ, results stay the same, and the report says what it may lack."""

from __future__ import annotations

import builtins
import importlib
import logging
import logging.config
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from jupyter_graphbreak._torch_compat import module_calls
from jupyter_graphbreak._torch_compat.configuration import backend_names, force_backend, mode_names
from jupyter_graphbreak._torch_compat.structured_trace import trace_logger
from jupyter_graphbreak._torch_compat.toolchain import TorchUnavailable, require_torch
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.compiling.compile_options import CompileOptions
from jupyter_graphbreak.compiling.compiled_calls import compile_calls
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.records.records import Record
from jupyter_graphbreak.report.schema import Report

ONES = torch.ones(2)
HOOKS = [
    ("torch._dynamo.convert_frame", "log_dynamo_start"),
    ("torch._dynamo.convert_frame", "exception_handler"),
    ("torch._dynamo.convert_frame", "is_generator"),
    ("torch._dynamo.convert_frame", "exceeds_recompile_limit"),
    ("torch._dynamo.convert_frame", "compile_frame"),
    ("torch._dynamo.convert_frame", "CatchErrorsWrapper"),
    ("torch._dynamo.resume_execution", "ContinueExecutionCache"),
    ("torch._dynamo.output_graph", "OutputGraph"),
    ("torch._dynamo.symbolic_convert", "InstructionTranslatorBase"),
    ("torch._dynamo.decorators", "ErrorOnGraphBreakDecoratorContextManager"),
    ("torch._dynamo.variables.ctx_manager", "ErrorOnGraphBreakVariable"),
    ("torch._dynamo.eval_frame", "OptimizeContext"),
    ("torch._dynamo.eval_frame", "skip_code"),
]


def break_once(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


@pytest.fixture(autouse=True)
def reset_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def run_compiled() -> tuple[torch.Tensor, Report]:
    with recorder.record() as recording:
        result = torch.compile(break_once, backend="eager")(ONES)
    return result, build_report(recording.records)


def warnings_and_errors(report: Report) -> list[str]:
    """Return the warnings and errors of the report."""
    return [note.message for note in report.diagnostics if note.level in {"warning", "error"}]


def check_result(result: torch.Tensor) -> None:
    assert result.tolist() == [4.0, 4.0]


def test_this_torch_causes_no_warnings() -> None:
    result, report = run_compiled()
    check_result(result)
    assert warnings_and_errors(report) == []
    assert (report.summary.breaks, report.summary.graphs, report.summary.frames) == (1, 2, 2)


def move_to_builtins(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    """Remove a name from a module, whose own functions still find it among the builtins."""
    home = importlib.import_module(module)
    monkeypatch.setattr(builtins, name, getattr(home, name), raising=False)
    monkeypatch.delattr(home, name)


def hide(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    """Hide a name of a module from our code, while torch still finds it in the module."""
    real_import = importlib.import_module
    kept_names = set(dir(real_import(module))) - {name}
    attributes = {kept_name: getattr(real_import(module), kept_name) for kept_name in kept_names}

    def import_module(path: str, package: str | None = None) -> Any:
        return SimpleNamespace(**attributes) if path == module else real_import(path, package)

    monkeypatch.setattr(importlib, "import_module", import_module)


@pytest.mark.parametrize(("module", "name"), HOOKS)
def test_a_missing_hooked_function_is_noted(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_found_by_name = module == "torch._dynamo.convert_frame" or name == "skip_code"  # torch finds these by name
    (move_to_builtins if is_found_by_name else hide)(monkeypatch, module, name)
    result, report = run_compiled()
    check_result(result)
    messages = [message for message in warnings_and_errors(report) if "Not available in this PyTorch" in message]
    assert messages
    assert all(name in message and "\n" not in message for message in messages)
    assert report.summary.breaks == 1


@pytest.mark.parametrize("name", ["log_dynamo_start", "exception_handler", "is_generator", "exceeds_recompile_limit"])
def test_a_hooked_function_with_different_parameters_does_no_harm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    convert_frame = importlib.import_module("torch._dynamo.convert_frame")
    original = getattr(convert_frame, name)

    def renamed_parameters(subject: Any, *rest: Any, **more: Any) -> Any:
        return original(subject, *rest, **more)

    monkeypatch.setattr(convert_frame, name, renamed_parameters)
    result, report = run_compiled()
    check_result(result)
    assert report.summary.breaks == 1
    if name == "log_dynamo_start":
        assert any("Watching failed at" in message for message in warnings_and_errors(report))


def test_a_different_logger_of_the_trace_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    other = logging.getLogger("torch.__another")
    monkeypatch.setattr(recorder, "trace_logger", lambda: other)
    result, report = run_compiled()
    check_result(result)
    messages = warnings_and_errors(report)
    assert any(message.startswith("Frames recorded by the hooks: 2, by PyTorch's trace: 0.") for message in messages)
    assert any(
        message.startswith("Graph breaks recorded by the hooks: 1, by PyTorch's trace: 0.") for message in messages
    )


def test_frames_that_neither_hooks_nor_trace_see_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    other = logging.getLogger("torch.__another")
    monkeypatch.setattr(recorder, "trace_logger", lambda: other)
    move_to_builtins(monkeypatch, "torch._dynamo.convert_frame", "log_dynamo_start")
    result, report = run_compiled()
    check_result(result)
    assert report.summary.frames == 0
    assert any("Dynamo began 2 compilations" in message for message in warnings_and_errors(report))


def build_changed_report(records: list[Record], change: Callable[[dict[str, Any]], dict[str, Any]]) -> Report:
    return build_report([Record(change(record.envelope), record.payload) for record in records])


@pytest.mark.parametrize(
    ("kind", "note_start"),
    [
        ("dynamo_start", "Frames recorded by the hooks: 2, by PyTorch's trace: 0."),
        ("dynamo_output_graph", "Graphs recorded by the hooks: 2, by PyTorch's trace: 0."),
        ("artifact", "Graph breaks recorded by the hooks: 1, by PyTorch's trace: 0."),
        ("compilation_metrics", "PyTorch's trace lacks the outcomes of the frames"),
    ],
)
def test_an_entry_with_a_different_name_is_noted(kind: str, note_start: str) -> None:
    with recorder.record() as recording:
        torch.compile(break_once, backend="eager")(ONES)
    report = build_changed_report(
        recording.records,
        lambda envelope: {("renamed" if key == kind else key): value for key, value in envelope.items()},
    )
    assert any(message.startswith(note_start) for message in warnings_and_errors(report))


def test_empty_metrics_are_noted() -> None:
    with recorder.record() as recording:
        torch.compile(break_once, backend="eager")(ONES)
    report = build_changed_report(
        recording.records,
        lambda envelope: {**envelope, **({"compilation_metrics": {}} if "compilation_metrics" in envelope else {})},
    )
    assert any("lacks the outcomes of the frames" in message for message in warnings_and_errors(report))
    assert [frame.outcome for frame in report.frames] == ["compiled", "compiled"]
    assert report.summary.errors == 0


def test_without_a_compile_context_everything_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "torch._guards", "CompileContext")
    result, report = run_compiled()
    check_result(result)
    assert (report.summary.breaks, report.summary.graphs, report.summary.frames) == (1, 2, 2)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch._dynamo.pgo", ""),
        ("torch._dynamo.utils", "counters"),
        ("torch._C._dynamo.eval_frame", "reset_code"),
    ],
)
def test_a_missing_requirement_of_isolated_compilation_is_noted(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_module(monkeypatch, module) if name == "" else move_to_builtins(monkeypatch, module, name)
    result, faults = call_compiled()
    check_result(result)
    assert len(faults) == 1


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch._dynamo.convert_frame", "ConvertFrame"),
        ("torch._dynamo.eval_frame", "skip_code"),
        ("torch._dynamo.eval_frame", "always_optimize_code_objects"),
        ("torch._dynamo.trace_rules", "check"),
        ("torch._dynamo.external_utils", "wrap_inline"),
    ],
)
def test_a_missing_requirement_of_compiled_calls_is_noted(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_calls._wrapper_code_template.cache_clear()
    module_calls._external_utils.cache_clear()
    hide(monkeypatch, module, name)
    faults: list[str] = []
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    expected = model(ONES)
    with compile_calls(CompileOptions(), lambda activity, fault: faults.append(f"{activity}: {fault}")) as calls:
        check_result(calls.route(break_once)(ONES))
        assert torch.equal(model(ONES), expected)
    assert faults
    monkeypatch.undo()
    module_calls._wrapper_code_template.cache_clear()
    module_calls._external_utils.cache_clear()
    assert torch.nn.Module.__call__.__module__ == "torch.nn.modules.module"


def call_compiled(*, is_cell: bool = False) -> tuple[Any, list[str]]:
    """Return the result of a call that is compiled for the report, and the internal errors."""
    faults: list[str] = []
    with compile_calls(CompileOptions(), lambda activity, fault: faults.append(f"{activity}: {fault}")) as calls:
        return calls.cell_caller(lambda: break_once(ONES))() if is_cell else calls.route(break_once)(ONES), faults


def hide_module(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Hide a module from our code, while torch still uses it."""
    real_import = importlib.import_module

    def import_module(path: str, package: str | None = None) -> Any:
        if path == name:
            raise ModuleNotFoundError(path)
        return real_import(path, package)

    monkeypatch.setattr(importlib, "import_module", import_module)


def test_a_torch_that_cannot_read_back_new_globals_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    tracers = importlib.import_module("torch._dynamo.symbolic_convert")
    for tracer in (tracers.InstructionTranslatorBase, tracers.InliningInstructionTranslator):
        if "_load_global" in vars(tracer):
            monkeypatch.delattr(tracer, "_load_global")
    result, faults = call_compiled(is_cell=True)
    check_result(result)
    assert faults == ["compiling the cell: this PyTorch cannot read back a new global"]


@pytest.mark.parametrize("name", ["get_config_copy", "_config"])
def test_settings_that_cannot_be_read_do_no_harm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "torch._dynamo.config", name)
    result, report = run_compiled()
    check_result(result)
    assert report.summary.breaks == 1


def test_missing_names_of_backends_and_modes_raise_a_value_error(monkeypatch: pytest.MonkeyPatch) -> None:
    move_to_builtins(monkeypatch, "torch._dynamo", "list_backends")
    with pytest.raises(ValueError, match="this PyTorch does not list its backends"):
        backend_names()
    move_to_builtins(monkeypatch, "torch._inductor", "list_mode_options")
    with pytest.raises(ValueError, match="this PyTorch does not list its modes"):
        mode_names()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch._dynamo.eval_frame", "_callback_from_stance"),
        ("torch._dynamo.eval_frame", "get_compiler_fn"),
        ("torch._dynamo.convert_frame", "catch_errors_wrapper"),
    ],
)
def test_a_backend_that_cannot_be_forced_raises_an_attribute_error(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_to_builtins(monkeypatch, module, name)
    with pytest.raises(AttributeError, match=name), force_backend("eager"):
        raise AssertionError("not reached")
    monkeypatch.undo()
    check_result(torch.compile(break_once, backend="eager")(ONES))


def test_a_forced_backend_works_without_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    convert_frame = importlib.import_module("torch._dynamo.convert_frame")
    for kind in (convert_frame.ConvertFrame, convert_frame.ConvertFrameAssert):
        monkeypatch.delattr(kind, "_clone_with_backend")
    with force_backend("eager"):
        check_result(torch.compile(break_once, backend="eager")(ONES))


@pytest.mark.parametrize("version", ["nightly-1a2b3c", "3.0.0", "2.16.0.dev20270101"])
def test_a_version_without_numbers_is_the_newest(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert require_torch() == version


def test_an_old_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.8.0")
    with pytest.raises(TorchUnavailable, match="is too old"):
        require_torch()


def test_the_trace_is_recorded_after_a_cell_reconfigures_logging() -> None:
    """``set_logs`` adds torch's own handler to the logger of the trace, and ``dictConfig`` disables the logger."""
    logger = trace_logger()
    handlers = list(logger.handlers)
    loggers = [log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)]
    disabled_states = {log: log.disabled for log in loggers}  # dictConfig disables all of them
    try:
        with recorder.record() as recording:
            importlib.import_module("torch._logging").set_logs()
            logging.config.dictConfig({"version": 1})
            torch.compile(break_once, backend="eager")(ONES)
            assert logger.disabled
        report = build_report(recording.records)
    finally:
        logger.handlers = handlers
        for log, was_disabled in disabled_states.items():
            log.disabled = was_disabled
    assert (report.summary.breaks, report.summary.graphs) == (1, 2)
    assert warnings_and_errors(report) == []


def test_a_run_summary_of_an_earlier_version_causes_no_warnings() -> None:
    """Recordings of earlier versions do not say whether both trace and hooks were recorded."""
    with recorder.record() as recording:
        torch.compile(break_once, backend="eager")(ONES)
    records = [record for record in recording.records if record.kind != "dynamo_output_graph"]
    older_records = [
        msgspec.structs.replace(record, envelope=remove_watched_key(record.envelope)) for record in records
    ]
    assert warnings_and_errors(build_report(older_records)) == []


def remove_watched_key(envelope: dict[str, Any]) -> dict[str, Any]:
    run = envelope.get("graphbreak_run")
    if run is None:
        return envelope
    return {**envelope, "graphbreak_run": {key: value for key, value in run.items() if key != "watched"}}
