"""Run scripts, each in a fork of a process that has loaded PyTorch.

The second half of this module runs in the process that forks. It reads one script per line from stdin, and answers with
the report of the script's run. Each script runs in an empty folder, and is stopped before it has an effect outside of
its objects.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from jupyter_graphbreak.report.schema import Device, Report

if TYPE_CHECKING:
    from types import FrameType

    from jupyter_graphbreak.experiments.trial.side_effects import ObservedEffect
    from jupyter_graphbreak.records.records import StackFrame

#: The additional time, in seconds, for the start of a process.
_START_ALLOWANCE_S = 120.0
_SCRIPT_NAME = "reproducer.py"
#: A script that causes a graph, a break and a recompile.
_WARM_UP_SCRIPT = """
import torch

def first(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2

compiled = torch.compile(first, backend="eager")
for size in (2, 3):
    compiled(torch.ones(size))
torch._dynamo.reset()
"""


class FinalRun(NamedTuple):
    """A run of a script alone: the report, the output and the exit status."""

    report: Report
    output: str
    status: int


class ScriptRunner:
    """Runs scripts in forks of a process that has loaded PyTorch."""

    def __enter__(self) -> Self:
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        self._process: Any = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.kill()
        self._process.wait()

    def run(self, script: str, limit_s: float) -> tuple[Report | None, str]:
        """Run a script; return its report and ``""``, or ``None`` and the reason why there is no report.

        The reason is empty if the script took longer than ``limit_s`` seconds, or ended its process.
        """
        process = self._process
        try:
            process.stdin.write(json.dumps([script, limit_s]) + "\n")
            process.stdin.flush()
        except OSError:  # the process has ended, for example because memory ran out
            return None, ""
        timer = threading.Timer(limit_s + _START_ALLOWANCE_S, process.kill)  # only if the process ignores its own limit
        timer.start()
        try:
            answer = process.stdout.readline()
        finally:
            timer.cancel()
        outcome: dict[str, Any] = json.loads(answer) if answer else {}
        if "report" in outcome:
            return Report.from_json(outcome["report"]), ""
        return None, str(outcome.get("reason", ""))


def run_alone(script: str, seconds: float) -> FinalRun:
    """Run a script with ``python`` in an empty folder, and read PyTorch's trace."""
    from jupyter_graphbreak.analysis.build import build_report
    from jupyter_graphbreak.trace.log_files import UnreadableTrace, trace_files
    from jupyter_graphbreak.trace.processes import read_processes
    from jupyter_graphbreak.trace.source_folders import SourceFolders

    with tempfile.TemporaryDirectory() as parent:
        folder, traces = Path(parent, "empty"), Path(parent, "trace")
        folder.mkdir()
        file = folder / _SCRIPT_NAME
        file.write_text(script, encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name != "TORCH_LOGS"}
        environment["TORCH_TRACE"] = str(traces)
        completed_process = subprocess.run(
            [sys.executable, _SCRIPT_NAME], cwd=folder, env=environment, capture_output=True, text=True, check=False,
            timeout=seconds, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        report = Report("ok", Device("auto", "unknown"))
        with contextlib.suppress(UnreadableTrace):
            reports = list(read_processes(trace_files(traces), folders=SourceFolders([parent])))
            report = build_report(reports[0].records) if reports else report
    output = (completed_process.stdout + completed_process.stderr).replace(f"{folder}{os.sep}", "")
    return FinalRun(report, output, completed_process.returncode)


# The process that forks.


class _EffectBlocker:
    """Stops a script before it has an effect outside of its objects."""

    is_exclusive = True

    def __init__(self) -> None:
        self.effect: ObservedEffect | None = None

    def on_effect(self, effect: ObservedEffect, _: FrameType) -> None:
        from jupyter_graphbreak.experiments.trial.side_effects import HOSTNAME_EFFECT, EffectRefusedError

        if effect.kind == "state" and effect.description != HOSTNAME_EFFECT:
            return  # the change ends with the process
        self.effect = self.effect or effect
        raise EffectRefusedError(effect)

    def on_state_change(self, description: str, location: StackFrame | None, _: FrameType) -> None:
        """Allow changes of state that end with the process."""


def serve() -> None:
    """Run the scripts on stdin, each in a fork, until stdin ends."""
    from jupyter_graphbreak._torch_compat.separate_cache import skip_guard_profiling

    answers = os.fdopen(_silence_output(), "w")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as file:
        # This loads the modules that compiling needs, and fills its caches.
        _run_and_write_answer(_WARM_UP_SCRIPT, folder, file)
        os.chdir(os.sep)
    gc.collect()
    gc.freeze()  # forks then skip these objects in garbage collections
    with skip_guard_profiling():
        for line in sys.stdin:
            script, seconds = json.loads(line)
            answers.write(json.dumps(_run_in_fork(script, seconds)) + "\n")
            answers.flush()


def _silence_output() -> int:
    """Discard all output of this process from now on; return a descriptor of its original standard output."""
    output = os.dup(1)
    with Path(os.devnull).open("r+b") as null_device:
        for descriptor in (1, 2):
            os.dup2(null_device.fileno(), descriptor)
    return output


def _run_in_fork(script: str, seconds: float) -> dict[str, str]:
    """Run a script in a fork; return its report, or the reason why there is none."""
    _load_packages(script)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            os.setsid()
            try:
                _run_and_write_answer(script, folder, file)
            finally:
                os._exit(0)
        deadline = time.monotonic() + seconds
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return {}
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):  # processes that the compiler has started
            os.killpg(child, signal.SIGKILL)
        file.seek(0)
        text = file.read().decode()
        answer: dict[str, str] = json.loads(text) if text else {}
        return answer


def _load_packages(script: str) -> None:
    """Import the packages that a script imports, so that its process does not have to."""
    import importlib

    for statement in ast.parse(script).body:
        match statement:
            case ast.Import(names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case _:
                continue
        for module in modules:
            if module not in sys.modules:
                with contextlib.suppress(Exception):  # the script will raise the same error
                    importlib.import_module(module)


def _run_and_write_answer(script: str, folder: str, file: IO[bytes]) -> None:
    from jupyter_graphbreak._torch_compat.configuration import ignore_set_logs
    from jupyter_graphbreak.analysis.build import build_report
    from jupyter_graphbreak.experiments.trial.side_effects import EffectRefusedError, listen
    from jupyter_graphbreak.experiments.trial.unaudited_functions import COMMON_REPLACEMENTS, TRIAL_REPLACEMENTS
    from jupyter_graphbreak.recording import recorder

    os.chdir(folder)
    path = Path(folder, _SCRIPT_NAME)
    path.write_text(script, encoding="utf-8")
    ignore_set_logs()  # the trace is complete without logs, and torch._logging.set_logs() would end the recording
    blocker = _EffectBlocker()
    reason = ""
    with recorder.record() as recording:
        try:
            program = compile(script, str(path), "exec")
            with COMMON_REPLACEMENTS.install(), TRIAL_REPLACEMENTS.install(), listen(blocker):
                exec(program, {"__name__": "__main__", "__file__": str(path)})  # noqa: S102 - runs the script
        except EffectRefusedError as error:
            reason = error.effect.description
        except BaseException as error:  # noqa: BLE001 - the exception may be the finding to reproduce
            recording.record_error(error)
    if blocker.effect is not None:
        reason = blocker.effect.description
    answer = {"reason": reason} if reason else {"report": msgspec.json.encode(build_report(recording.records)).decode()}
    file.write(json.dumps(answer).encode())
    file.flush()
