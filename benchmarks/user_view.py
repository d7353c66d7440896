"""Run cells in a shell and record everything the user sees."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import io
import itertools
import json
import logging
import os
import random
import re
import signal
import sys
import tempfile
import threading
import traceback
import types
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch._functorch.config
import torch._inductor.config
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import jupyter_graphbreak
from benchmarks.described_values import Describer, normalize
from jupyter_graphbreak.report.schema import MIME_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: A run that takes longer is terminated and reported.
LIMIT_S = 120
#: A cell's name in a traceback.
_LINE_OF_CODE = re.compile(r"stdout: ( *Cell In|[-> ]*\d+ )|stderr: [ |]*File \"<ipython-input")
#: A frame in a stack that Python prints; the line of code is below it.
_FRAME = re.compile(r'\w+:   File "[^"]+", line \d+, in ')
HISTORY = ("_", "__", "___", "__doc__", "__annotations__")
#: Modules that programs may import, preloaded once.
PRELOADED_MODULES = (
    "jupyter_graphbreak.views.html.bundle", "pygments.formatters.terminal256", "stack_data", "torch._export",
    "torch._inductor.compile_fx", "torch._inductor.cudagraph_trees", "torch.distributions", "torch.export",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a program, and whether it runs with the magic."""

    text: str
    is_explained: bool

    @property
    def has_magic(self) -> bool:
        """Whether another cell magic runs it."""
        return self.text.startswith("%%")

    def source(self, options: str, *, is_plain: bool) -> str:
        """Return the code to run; a comment replaces the magic's line, so that line numbers stay the same."""
        if not self.is_explained:
            return self.text
        if not is_plain:
            return f"%%compile_explain {options}\n{self.text}"
        return self.text if self.has_magic else f"# no magic\n{self.text}"


@dataclasses.dataclass
class CellView:
    """Everything visible after a cell has run, by kind."""

    parts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    #: The outcome of the cell in our report.
    plan: str = "plain"


class DisplayRecorder(DisplayPublisher):
    """Records displayed outputs except our reports, in order with printed text."""

    def __init__(self, outputs: list[tuple[str, str]], reports: list[dict[str, Any]], shown_data: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._outputs = outputs
        self._reports = reports
        self._shown_data = shown_data

    def publish(self, data: dict[str, Any], *_: Any, **options: Any) -> None:
        """Record an output."""
        self._shown_data.append(str(data))
        if MIME_TYPE in data:
            self._reports.append(data[MIME_TYPE])
        else:
            self._outputs.append(("display", f"{data} update={options.get('update', False)}\n"))

    def clear_output(self, wait: bool = False) -> None:  # noqa: FBT001, FBT002 - IPython defines the signature
        """Record that outputs were cleared."""
        self._outputs.append(("display", f"clear wait={wait}\n"))


class RecordingStream(io.StringIO):
    """A stream that records its text in order with other streams."""

    def __init__(self, name: str, outputs: list[tuple[str, str]]) -> None:
        super().__init__()
        self._name = name
        self._outputs = outputs

    @torch.compiler.disable  # type: ignore[untyped-decorator] # nor can Dynamo trace into the stream of a kernel
    def write(self, text: str) -> int:
        """Record a string."""
        text.encode("utf-8", "backslashreplace" if self._name == "stderr" else "strict")
        if self._outputs and self._outputs[-1][0] == self._name:
            text = self._outputs.pop()[1] + text
        self._outputs.append((self._name, text))
        return len(text)


def _state_of_numpy() -> int:
    return int(np.random.get_state(legacy=False)["state"]["key"].sum())  # noqa: NPY002 - cells use this generator


def _settings() -> dict[str, str]:
    """Return the state of this process that code can set and read."""
    configurations = {
        f"{module.__name__}.{name}": repr(value)
        for module in (torch._dynamo.config, torch._inductor.config, torch._functorch.config)
        for name, value in module.get_config_copy().items()
    }
    stance = sys.modules["torch._dynamo.eval_frame"]._stance
    known_loggers = [log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)]
    loggers = [logging.root, *(log for log in known_loggers if log.name != "torch.__trace")]
    return {
        **configurations,
        "stance": repr(stance),
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "grad": str((torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled())),
        "autocast": str((torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda"))),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "precision": torch.get_float32_matmul_precision(),
        "function modes": str(torch._C._len_torch_function_stack()),
        "dispatch modes": str(torch._C._len_torch_dispatch_stack()),
        "random": str((torch.random.get_rng_state().sum(), hash(random.getstate()), _state_of_numpy())),
        "filters": str(warnings.filters),
        "showing": str((warnings.showwarning.__qualname__, warnings._showwarnmsg.__qualname__)),  # type: ignore[attr-defined]
        "loggers": str([(log.name, log.level, log.disabled, log.filters, log.handlers) for log in loggers]),
        "handler filters": str([(log.name, [handler.filters for handler in log.handlers]) for log in loggers]),
        "threads": str(sorted(thread.name for thread in threading.enumerate() if thread.name != "tqdm_monitor")),
        "tracing": str((sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())),
        "collecting": str((gc.isenabled(), gc.get_threshold(), len(gc.callbacks))),
        "limits": str(sys.getrecursionlimit()),
        "environment": str(sorted(os.environ.items())),
        "folder": str(Path.cwd()),
        "signals": str(signal.getsignal(signal.SIGINT)),
        "hooks": str((sys.excepthook, sys.displayhook, sys.breakpointhook, sys.unraisablehook, threading.excepthook)),
        "printing": str(torch._tensor_str.PRINT_OPTS),
        "module hooks": str(
            [hooks for name, hooks in vars(torch.nn.modules.module).items() if name.startswith("_global_")]
        ),
    }


def attribute_ids() -> dict[str, int]:
    """Return the identities of the functions and classes in torch's and Python's modules and classes, by name."""
    ids = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(("jupyter_graphbreak", "IPython", "msgspec")):
            continue
        for attribute, value in list(vars(module).items()):
            if type(value) in {types.FunctionType, type}:
                ids[f"{name}.{attribute}"] = id(value)
            if type(value) is type and value.__module__ == name:
                members = [
                    (member, part) for member, part in vars(value).items() if isinstance(part, types.FunctionType)
                ]
                ids.update((f"{name}.{attribute}.{member}", id(part)) for member, part in members)
    return ids


class Session:
    """A shell that runs the cells of one program, in a separate process.

    Parameters
    ----------
    shell : InteractiveShell
    options : str
        The options of the magic.
    is_plain : bool
        Whether cells run without the magic.
    """

    def __init__(self, shell: InteractiveShell, options: str, *, is_plain: bool) -> None:
        self._shell = shell
        self._options = options
        self._is_plain = is_plain
        self._outputs: list[tuple[str, str]] = []
        self.reports: list[dict[str, Any]] = []
        #: Everything displayed by the last cell, including reports.
        self.shown_data: list[str] = []
        self._initial_names = set(shell.user_ns)
        shell.display_pub = DisplayRecorder(self._outputs, self.reports, self.shown_data)

    def run(self, cell: Cell) -> CellView:
        """Run a cell and record everything visible."""
        self._outputs.clear()
        self.reports.clear()
        self.shown_data.clear()
        with self._capture_streams() as file:
            result = self._shell.run_cell(cell.source(self._options, is_plain=self._is_plain), store_history=True)
            file.seek(0)
            process_output = normalize(file.read().decode(errors="replace")).splitlines()
        describer = Describer()
        error = result.error_in_exec or result.error_before_exec
        parts = {
            "output": self._output(cell),
            "of processes": process_output,
            "result": [describer.describe(result.result)],
            "error": [] if cell.has_magic else [describer.describe(error)],
            "settings": [f"{name}: {normalize(text)}" for name, text in _settings().items()],
            "names": [
                f"{name} = {describer.describe(value)}"
                for name, value in sorted(self._shell.user_ns.items())
                if name not in self._initial_names
                and not re.fullmatch(
                    r"_i?\d+|_ii?i?|__compiled_fn.*|__builtins_dict_.*|__resume_at.*|__gen_rand_values_.*", name
                )
            ],
            "history": [
                describer.describe(dict(self._shell.user_ns["Out"])),
                *(f"{name} {describer.describe(self._shell.user_ns.get(name))}" for name in HISTORY),
                f"{self._shell.execution_count} {len(self._shell.user_ns['In'])}",
                str([name for name in vars(sys) if name.startswith("last_")]),
            ],
        }
        parts = {name: [normalize(line) for line in lines] for name, lines in parts.items()}
        return CellView(parts, self._outcome_in_report() if cell.is_explained and not self._is_plain else "plain")

    def _output(self, cell: Cell) -> list[str]:
        lines = [f"{name}: {line}" for name, text in self._outputs for line in normalize(text).splitlines()]
        if cell.has_magic:  # its line is the first without our magic, and the second with it
            lines = [line for line in lines if not _LINE_OF_CODE.match(line)]
        return list(_remove_our_frames(lines))

    def _outcome_in_report(self) -> str:
        if not self.reports:
            return "no report"
        messages = [note["message"] for note in self.reports[-1]["diagnostics"]]
        faults = [message for message in messages if "Internal error in compile_explain" in message]
        if faults:
            return f"fault: {faults[0]}"
        for words, plan in (("compiled as one function", "function"), ("nothing to compile", "nothing")):
            if any(words in message for message in messages):
                return plan
        return "unchanged" if self.reports[-1].get("compiled") is None else "calls"

    @contextlib.contextmanager
    def _capture_streams(self) -> Iterator[Any]:
        streams = sys.stdout, sys.stderr
        with tempfile.TemporaryFile() as file:
            saved_descriptors = os.dup(1), os.dup(2)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            sys.stdout, sys.stderr = RecordingStream("stdout", self._outputs), RecordingStream("stderr", self._outputs)
            try:
                yield file
            finally:
                sys.stdout, sys.stderr = streams
                for descriptor, number in zip(saved_descriptors, (1, 2), strict=True):
                    os.dup2(descriptor, number)
                    os.close(descriptor)


def _remove_our_frames(lines: list[str]) -> Iterator[str]:
    """Yield an output's lines, without our frames in printed stacks, which *Limits* mentions."""
    code_line = ""
    for line, next_line in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        is_ours = "/jupyter_graphbreak/ipython/" in line or next_line.endswith(" MAGIC")
        if _FRAME.match(line) and is_ours:
            code_line = next_line
        elif line != code_line:
            yield line
            code_line = ""
        else:
            code_line = ""


def run_in_fork(task: Callable[[], list[CellView]]) -> list[CellView] | str:
    """Return the result of a task in a fork of this process, or an error message if the task failed."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            signal.alarm(LIMIT_S)
            with open(write_end, "w", encoding="ascii") as pipe:  # noqa: PTH123 - opens a descriptor
                try:
                    encoded = json.dumps([dataclasses.asdict(view) for view in task()])
                except BaseException:  # noqa: BLE001 - the parent prints the error
                    encoded = json.dumps(traceback.format_exc())
                pipe.write(encoded)
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, encoding="ascii") as pipe:  # noqa: PTH123 - opens a descriptor
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    encoded = json.loads(text) if text else f"the process ended with status {status}"
    return encoded if isinstance(encoded, str) else [CellView(**view) for view in encoded]


def seed() -> None:
    """Seed all random number generators."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - cells use this generator


def run_program(shell: InteractiveShell, cells: Iterable[Cell], options: str, *, is_plain: bool) -> list[CellView]:
    """Run the cells of a program in this process, and finally record which functions were replaced."""
    seed()
    old_ids = attribute_ids()
    session = Session(shell, options, is_plain=is_plain)
    results = [session.run(cell) for cell in cells]
    new_ids = attribute_ids()
    replaced_names = sorted(name for name, identity in old_ids.items() if name in new_ids and new_ids[name] != identity)
    return [*results, CellView({"replaced attributes": replaced_names})]


def make_shell() -> InteractiveShell:
    """Return a shell with the extension and preloaded modules."""
    for module in PRELOADED_MODULES:
        importlib.import_module(module)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    shell: InteractiveShell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "jupyter_graphbreak")
    torch.set_num_threads(1)
    jupyter_graphbreak.explain(torch.nn.Softmax(-1), torch.ones(2))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return shell
