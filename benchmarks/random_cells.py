"""Run random programs of notebook cells with and without ``%%compile_explain``, and compare all that their user sees.

Run it by hand: ``OMP_NUM_THREADS=1 python benchmarks/random_cells.py --programs 1000 --seed 7``.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import difflib
import functools
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
import time
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
from jupyter_graphbreak.report.schema import MIME_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

GRAMMAR = Path(__file__).with_suffix(".txt")
IMPORTS = """import asyncio, builtins, collections, contextlib, copy, dataclasses, decimal, enum, fractions, functools
import gc, inspect, io, itertools, logging, math, operator, os, pickle, pprint, random, sys, threading, time, traceback
import types, warnings, weakref
import numpy as np
import torch, torch.utils.checkpoint
from IPython.display import HTML, display
log = logging.getLogger("mine")"""
#: The frames of an error as it is described.
_FRAMES = re.compile(r"\[(?:'\S+ \d+ \S+ \S+ \S+ [^']*'(?:, )?)+\]")
#: A frame in a stack that Python prints; the line of code is below it.
_FRAME = re.compile(r'\w+:   File "[^"]+", line \d+, in ')
#: A frame of ours, and that of the magic's line, in a stack that PyTorch prints or puts into a message.
_OUR_FRAME = re.compile(
    r"(?:^\w+: |\\+n)(?:\t|\\+t)+"
    r"(?:\S*/jupyter_graphbreak/ipython/\w+\.py\(\d+\): \w+|<ipython-input>\(1\): <module>)"
)
#: A run that takes longer is ended, and said to be.
LIMIT_S = 120
#: Attributes that PyTorch gives to what it compiles, and hooks, which are counted.
_NOT_SEEN = ("_torchdynamo", "_isolate_recompiles", "_backward_hooks")
#: What a traceback shows of a cell.
_LINE_OF_CODE = re.compile(r"stdout: ( *Cell In|[-> ]*\d+ )|stderr: [ |]*File \"<ipython-input")
DEEPEST = 3
HISTORY = ("_", "__", "___", "__doc__", "__annotations__")
#: What a program may load, so that not each of them does.
LOADED = (
    "jupyter_graphbreak.views.html.bundle", "pygments.formatters.terminal256", "stack_data", "torch._export",
    "torch._inductor.compile_fx", "torch._inductor.cudagraph_trees", "torch.distributions", "torch.export",
)  # fmt: skip


# -- Programs.


class MissingNameError(Exception):
    """No name of a kind is there that a template needs."""


@functools.cache
def read_grammar() -> dict[str, list[str]]:
    """Return the templates of each kind."""
    grammar: dict[str, list[str]] = {}
    sections = re.split(r"^== (\w+)\n", GRAMMAR.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for kind, text in zip(sections[1::2], sections[2::2], strict=True):
        parting = "\n--\n" if "\n--\n" in text else "\n"
        grammar[kind] = [template.strip("\n") for template in text.strip("\n").split(parting)]
    return grammar


class Writer:
    """Writes random statements whose names are mostly bound, each to a value of a known kind.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._grammar = read_grammar()
        self._names: dict[str, list[str]] = collections.defaultdict(list)
        self._depth = 0

    def program(self) -> list[Cell]:
        """Return some cells, most of them to be explained."""
        cells = [Cell(IMPORTS, is_explained=False)]
        if self._random.random() < 0.8:
            cells.append(Cell("\n".join(self._many("definition", 1, 5)), is_explained=self._random.random() < 0.3))
        for _ in range(self._random.randint(1, 4)):
            cells.append(Cell(self._cell(), self._random.random() < 0.8))
            if self._random.random() < 0.1:
                cells.append(cells[-1])
        return cells

    def _cell(self) -> str:
        statements = self._many("definition", 0, 2)
        if self._random.random() < 0.6:
            statements += self._many("common", 2, 10)
        else:
            statements += [*self._many("common", 0, 6), *self._many("noticed", 1, 3), *self._many("common", 0, 3)]
        for kind, share in (("failing", 0.2), ("refused", 0.04)):
            if self._random.random() < share:
                statements.insert(self._random.randint(0, len(statements)), self._statement([kind]))
        text = "\n".join(statements)
        if "\n%%" in text or text.startswith("%%"):  # a cell magic has the rest of the cell
            text = text[text.index("%%") :]
        return text

    def _many(self, kind: str, least: int, most: int) -> list[str]:
        return [self._statement([kind]) for _ in range(self._random.randint(least, most))]

    def _statement(self, kinds: list[str]) -> str:
        while True:
            with contextlib.suppress(MissingNameError):
                return self._filled(self._random.choice(self._grammar[self._random.choice(kinds)]))

    def _filled(self, template: str) -> str:
        references: dict[str, str] = {}
        bound: list[tuple[str, str]] = []
        lines = []
        for line in template.split("\n"):
            block = re.fullmatch(r"( *)<(body|function)((?: \w+:\w+)*)>", line)
            if block is not None:
                for kind, name in bound:
                    self._bind(kind, name)
                bound.clear()
                lines.append(self._block(*block.groups()))
            else:
                lines.append(re.sub(r"<(\.?)(\w+)(=?)(\d?)>", functools.partial(self._slot, references, bound), line))
        for kind, name in bound:
            self._bind(kind, name)
        return "\n".join(lines)

    def _block(self, indent: str, block: str, locals_: str) -> str:
        self._depth += 1
        before = {kind: list(names) for kind, names in self._names.items()}
        for name, kind in (pair.split(":") for pair in locals_.split()):
            self._names[kind] += [name] * 4
        kinds = ["common", "common", "inside"] if block == "function" else ["common"]
        if self._random.random() < 0.1:
            kinds.append("failing")
        count = self._random.randint(1, 3) if self._depth < DEEPEST else 0
        statements = [self._statement(kinds) for _ in range(count)] or ["pass"]
        self._depth -= 1
        if block == "function":
            self._names = collections.defaultdict(list, before)
        return "\n".join(indent + line for statement in statements for line in statement.split("\n"))

    def _bind(self, kind: str, name: str) -> None:
        if name not in self._names[kind]:
            self._names[kind].append(name)

    def _slot(self, references: dict[str, str], bound: list[tuple[str, str]], match: re.Match[str]) -> str:
        is_name, kind, binds, number = match.groups()
        if kind.isdigit():
            return references[kind]
        if binds:
            name = f"{kind[0] if len(kind) < 7 else kind[:4]}{self._random.randint(1, 4)}"
            bound.append((kind, name))
            if number:
                references[number] = name
            return name
        if is_name:
            return self._name(kind)
        return self._expression(kind)

    def _name(self, kind: str) -> str:
        if not self._names[kind]:
            raise MissingNameError(kind)
        return self._random.choice(self._names[kind])

    def _expression(self, kind: str) -> str:
        if kind == "small":
            return str(self._random.randint(0, 3))
        self._depth += 1
        try:
            while True:
                template = self._random.choice(self._grammar[kind])
                if self._depth > DEEPEST + 1 and template.count("<") > template.count("<."):
                    continue
                with contextlib.suppress(MissingNameError):
                    return self._filled(template)
        finally:
            self._depth -= 1


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a program, and whether it runs with the magic."""

    text: str
    is_explained: bool

    @property
    def has_magic(self) -> bool:
        """Whether another cell magic runs it."""
        return self.text.startswith("%%")

    def source(self, options: str, *, plain: bool) -> str:
        """Return what is run; a comment takes the place of the magic's line, so that lines keep their numbers."""
        if not self.is_explained:
            return self.text
        if not plain:
            return f"%%compile_explain {options}\n{self.text}"
        return self.text if self.has_magic else f"# no magic\n{self.text}"


# -- What a user sees of a run.


@dataclasses.dataclass
class Seen:
    """What is seen when a cell has run, by what it is."""

    parts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    #: What our report says was done with the cell.
    plan: str = "plain"


class Displays(DisplayPublisher):
    """Keeps what is displayed, our reports aside, in the order of what is printed."""

    def __init__(self, written: list[tuple[str, str]], reports: list[dict[str, Any]], shown: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._written = written
        self._reports = reports
        self._shown = shown

    def publish(self, data: dict[str, Any], *_: Any, **options: Any) -> None:
        """Keep an output."""
        self._shown.append(str(data))
        if MIME_TYPE in data:
            self._reports.append(data[MIME_TYPE])
        else:
            self._written.append(("display", f"{data} update={options.get('update', False)}\n"))

    def clear_output(self, wait: bool = False) -> None:  # noqa: FBT001, FBT002 - IPython's signature
        """Keep that outputs were cleared."""
        self._written.append(("display", f"clear wait={wait}\n"))


class Stream(io.StringIO):
    """A stream that keeps what is written with that of others, in order."""

    def __init__(self, name: str, written: list[tuple[str, str]]) -> None:
        super().__init__()
        self._name = name
        self._written = written

    def write(self, text: str) -> int:
        """Keep a text."""
        text.encode("utf-8", "backslashreplace" if self._name == "stderr" else "strict")
        if self._written and self._written[-1][0] == self._name:
            text = self._written.pop()[1] + text
        self._written.append((self._name, text))
        return len(text)


class Describer:
    """Describes values, so that equal descriptions stand for values that a user cannot tell apart."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._kept: list[Any] = []
        self._storages: dict[int, int] = {}

    def describe(self, value: Any, depth: int = 0) -> str:
        """Return a description; what was described before is only named."""
        simple = value is None or isinstance(value, bool | int | float | complex | str | bytes)
        if simple and type(value).__module__ == "builtins":
            return f"{type(value).__name__} {value!r}"
        if id(value) in self._known:
            return f"#{self._known[id(value)]}"
        self._known[id(value)] = len(self._known)
        self._kept.append(value)
        head = f"{type(value).__module__}.{type(value).__qualname__}"
        if depth > 6:
            return head
        with contextlib.suppress(RuntimeError, ReferenceError):
            return f"{head}({self._inside(value, lambda part: self.describe(part, depth + 1))})"
        return head

    def _inside(self, value: Any, part: Callable[[Any], str]) -> str:  # noqa: C901, PLR0911, PLR0912 - a table
        attributes = ""
        if isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type | types.ModuleType):
            items = vars(value).items()
            attributes = "; ".join(f"{name}={part(held)}" for name, held in items if not name.startswith(_NOT_SEEN))
        match value:
            case torch.Tensor():
                return f"{_tensor(value, part)} {self._storage(value)} {attributes}"
            case np.ndarray() | np.generic():
                return f"{value.dtype} {value.shape} {value!r}"
            case list() | tuple() | collections.deque():
                return ", ".join(map(part, value)) + attributes
            case set() | frozenset():
                return ", ".join(sorted(map(part, value)))
            case dict():
                return ", ".join(f"{part(key)}: {part(held)}" for key, held in value.items()) + attributes
            case types.ModuleType():
                return value.__name__
            case types.MethodType():
                return f"{part(value.__func__)} of {part(value.__self__)}"
            case types.FunctionType():
                return f"{_function(value, part)} {attributes}"
            case types.GeneratorType() | types.CoroutineType() | types.AsyncGeneratorType():
                return f"{value.__qualname__} {_generator(value, part)}"
            case type():
                if value.__module__ != "__main__":
                    return value.__qualname__
                members = {n: held for n, held in vars(value).items() if n not in {"__dict__", "__weakref__"}}
                return f"{value.__qualname__} {[b.__qualname__ for b in value.__mro__]} {part(members)}"
            case BaseException():
                return f"{_error(value, part)} {attributes}"
            case functools.partial():
                return f"{part(value.func)} {part(value.args)} {part(value.keywords)}"
            case property():
                return f"{part(value.fget)} {part(value.fset)}"
            case classmethod() | staticmethod():
                return part(value.__func__)
            case _ if type(value).__module__ == "__main__" or isinstance(value, torch.nn.Module):
                slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
                return attributes + ", ".join(f"{n}={part(getattr(value, n, None))}" for n in slots)
            case _ if isinstance(value, torch.nn.Module | types.SimpleNamespace):
                return attributes
            case _:
                return _without_addresses(repr(value))

    def _storage(self, value: torch.Tensor) -> str:
        """Return what tells whether tensors share their memory."""
        if value.layout is not torch.strided or not value.numel() or value.device.type == "meta":
            return ""
        return f"in {self._storages.setdefault(value.untyped_storage().data_ptr(), len(self._storages))}"


def _tensor(value: torch.Tensor, part: Callable[[Any], str]) -> str:
    facts: list[Any] = [value.dtype, value.device, tuple(value.shape), value.requires_grad, value.is_leaf]
    facts += [type(value.grad_fn).__name__, value.is_inference(), value.is_conj(), value._base is not None]
    facts.append(len(value._backward_hooks or {}))
    if value.layout is torch.strided and value.device.type != "meta":
        facts += [value.stride(), value.storage_offset(), value.untyped_storage().nbytes()]
        facts.append(value.detach().tolist())
    if not value.is_inference():
        facts.append(value._version)
    if value.is_leaf and value.grad is not None:
        facts.append(part(value.grad))
    return " ".join(map(str, facts))


def _function(value: types.FunctionType, part: Callable[[Any], str]) -> str:
    code = value.__code__
    facts: list[Any] = [value.__module__, value.__qualname__, value.__doc__, code.co_name, code.co_qualname]
    if not code.co_filename.startswith("<ipython-input"):
        return str(facts)
    facts += [
        code.co_firstlineno,
        code.co_varnames,
        code.co_names,
        code.co_freevars,
        code.co_flags,
        code.co_code.hex()[:40],
    ]
    facts += [list(code.co_positions()), value.__annotations__]
    cells = []
    for cell in value.__closure__ or ():
        try:
            cells.append(part(cell.cell_contents))
        except ValueError:
            cells.append("empty")
    return f"{facts} {part(value.__defaults__)} {part(value.__kwdefaults__)} {cells}"


def _generator(value: Any, part: Callable[[Any], str]) -> str:
    for prefix in ("gi", "cr", "ag"):
        frame = getattr(value, f"{prefix}_frame", None)
        if frame is not None:
            return f"line {frame.f_lineno} {part(dict(frame.f_locals))} {getattr(value, f'{prefix}_running')}"
    return "ended"


def _error(error: BaseException, part: Callable[[Any], str]) -> str:
    facts = [str(error), part(error.args), str(getattr(error, "__notes__", None)), str(error.__suppress_context__)]
    frames = [
        f"{entry.name} {entry.lineno} {entry.end_lineno} {entry.colno} {entry.end_colno} {Path(entry.filename).name}"
        for entry in traceback.extract_tb(error.__traceback__)
        if not any(part in entry.filename for part in ("IPython", "random_cells.py", "/jupyter_graphbreak/"))
    ]
    inner = [part(error.__cause__), part(error.__context__)]
    inner += [part(each) for each in getattr(error, "exceptions", ())]
    return f"{facts} {frames} {inner}"


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|(?<= at )[0-9a-f]{9,}", "0x", text)


def _normal(text: str) -> str:
    """Return a text without what differs between two runs that are alike."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", _without_addresses(text))
    text = re.sub(r"# no magic|(?:\\?')?%%compile_explain[-\w ]*(?:\\?')?", "MAGIC", text)
    text = re.sub(r"ipython-input-\d+-\w+|ipykernel_\d+/\d+", "ipython-input", text)
    text = re.sub(r"(__compiled_fn|__builtins_dict_|<eval_with_key>|__resume_at)[\w.]*", r"\1", text)
    text = re.sub(r"int \d+(?=, builtins.tuple\(str .*builtins.type\(\w*Warning)|, #\d+|#\d+", "#", text)
    text = re.sub(r"(?<='version': int )\d+", "#", text)
    text = re.sub(r"[\d.]+ (ns|us|µs|μs|ms|s|min)\b", "TIME", text)
    text = re.sub(r"^([VWIE])\d{4} [\d:.]+ \d+ ", r"\1 ", text, flags=re.MULTILINE)
    return re.sub(r"Thread-\d+|(?<=stopped )\d+|/tmp/[\w/.]+", "NAME", text)


def _state_of_numpy() -> int:
    return int(np.random.get_state(legacy=False)["state"]["key"].sum())  # noqa: NPY002 - what cells use


def _settings() -> dict[str, str]:
    """Return what of this process code can set and read."""
    configurations = {
        f"{module.__name__}.{name}": repr(value)
        for module in (torch._dynamo.config, torch._inductor.config, torch._functorch.config)
        for name, value in module.get_config_copy().items()
    }
    stance = sys.modules["torch._dynamo.eval_frame"]._stance
    known = [log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)]
    loggers = [logging.root, *(log for log in known if log.name != "torch.__trace")]
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
        "filters of handlers": str([(log.name, [handler.filters for handler in log.handlers]) for log in loggers]),
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


def attributes() -> dict[str, int]:
    """Return the functions and classes that modules and classes of torch and Python hold, by their identity."""
    held = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(("jupyter_graphbreak", "IPython", "msgspec")):
            continue
        for attribute, value in list(vars(module).items()):
            if type(value) in {types.FunctionType, type}:
                held[f"{name}.{attribute}"] = id(value)
            if type(value) is type and value.__module__ == name:
                members = [
                    (member, part) for member, part in vars(value).items() if isinstance(part, types.FunctionType)
                ]
                held.update((f"{name}.{attribute}.{member}", id(part)) for member, part in members)
    return held


class Session:
    """A shell that runs the cells of one program, in a process of its own.

    Parameters
    ----------
    shell : InteractiveShell
    options : str
        Of the magic.
    plain : bool
        Whether cells run without the magic.
    """

    def __init__(self, shell: InteractiveShell, options: str, *, plain: bool) -> None:
        self._shell = shell
        self._options = options
        self._plain = plain
        self._written: list[tuple[str, str]] = []
        self.reports: list[dict[str, Any]] = []
        #: All that was displayed by the last cell, reports among it.
        self.shown: list[str] = []
        self._unseen = set(shell.user_ns)
        shell.display_pub = Displays(self._written, self.reports, self.shown)

    def run(self, cell: Cell) -> Seen:
        """Run a cell and look at everything."""
        self._written.clear()
        self.reports.clear()
        self.shown.clear()
        with self._captured() as file:
            result = self._shell.run_cell(cell.source(self._options, plain=self._plain), store_history=True)
            file.seek(0)
            of_processes = _normal(file.read().decode(errors="replace")).splitlines()
        describer = Describer()
        error = result.error_in_exec or result.error_before_exec
        parts = {
            "output": self._output(cell),
            "of processes": of_processes,
            "result": [describer.describe(result.result)],
            "error": [] if cell.has_magic else [describer.describe(error)],
            "settings": [f"{name}: {_normal(text)}" for name, text in _settings().items()],
            "names": [
                f"{name} = {describer.describe(value)}"
                for name, value in sorted(self._shell.user_ns.items())
                if name not in self._unseen
                and not re.fullmatch(r"_i?\d+|_ii?i?|__compiled_fn.*|__builtins_dict_.*|__resume_at.*", name)
            ],
            "history": [
                describer.describe(dict(self._shell.user_ns["Out"])),
                *(f"{name} {describer.describe(self._shell.user_ns.get(name))}" for name in HISTORY),
                f"{self._shell.execution_count} {len(self._shell.user_ns['In'])}",
                str([name for name in vars(sys) if name.startswith("last_")]),
            ],
        }
        parts = {name: [_normal(line) for line in lines] for name, lines in parts.items()}
        return Seen(parts, self._what_was_done() if cell.is_explained and not self._plain else "plain")

    def _output(self, cell: Cell) -> list[str]:
        lines = [f"{name}: {line}" for name, text in self._written for line in _normal(text).splitlines()]
        if cell.has_magic:  # its line is the first one of a cell without ours, and the second one of a cell with it
            lines = [line for line in lines if not _LINE_OF_CODE.match(line)]
        return list(_without_our_frames(lines))

    def _what_was_done(self) -> str:
        if not self.reports:
            return "no report"
        told = [noted["message"] for noted in self.reports[-1]["diagnostics"]]
        faults = [message for message in told if "Of compile_explain itself" in message]
        if faults:
            return f"fault: {faults[0]}"
        for words, plan in (
            ("compiled as one function", "compiled"),
            ("was not compiled, because", "not compilable"),
            ("nothing to compile", "nothing"),
        ):
            if any(words in message for message in told):
                return plan
        return "as it stands"

    @contextlib.contextmanager
    def _captured(self) -> Iterator[Any]:
        streams = sys.stdout, sys.stderr
        with tempfile.TemporaryFile() as file:
            kept = os.dup(1), os.dup(2)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            sys.stdout, sys.stderr = Stream("stdout", self._written), Stream("stderr", self._written)
            try:
                yield file
            finally:
                sys.stdout, sys.stderr = streams
                for descriptor, number in zip(kept, (1, 2), strict=True):
                    os.dup2(descriptor, number)
                    os.close(descriptor)


def in_a_fork(task: Callable[[], list[Seen]]) -> list[Seen] | str:
    """Return what a task sees in a copy of this process; a text where it did not end well."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            signal.alarm(LIMIT_S)
            with open(writing, "w", encoding="ascii") as pipe:  # noqa: PTH123 - a descriptor
                try:
                    said = json.dumps([dataclasses.asdict(seen) for seen in task()])
                except BaseException:  # noqa: BLE001 - told, and the process ends
                    said = json.dumps(traceback.format_exc())
                pipe.write(said)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="ascii") as pipe:  # noqa: PTH123 - a descriptor
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    said = json.loads(text) if text else f"the process ended with status {status}"
    return said if isinstance(said, str) else [Seen(**seen) for seen in said]


def seed() -> None:
    """Have all generators of random numbers begin alike."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - the state that cells use


def run_program(shell: InteractiveShell, cells: Iterable[Cell], options: str, *, plain: bool) -> list[Seen]:
    """Run the cells of a program in this process; the last thing that is seen is what was put in place of what."""
    seed()
    before = attributes()
    session = Session(shell, options, plain=plain)
    seen = [session.run(cell) for cell in cells]
    after = attributes()
    changed = sorted(name for name, held in before.items() if name in after and after[name] != held)
    return [*seen, Seen({"replaced attributes": changed})]


def differences(plain: list[Seen] | str, explained: list[Seen] | str) -> list[str]:
    """Return the lines in which two runs differ, each with what it is of."""
    if isinstance(plain, str) or isinstance(explained, str):
        same = type(plain) is type(explained)
        return [] if same else [f"plain: {_brief(plain)}", f"explained: {_brief(explained)}"]
    lines = []
    for number, (one, other) in enumerate(zip(plain, explained, strict=True), start=1):
        if all("RecursionError" in str(seen.parts.get("error")) for seen in (one, other)):
            break  # how deep it came, and what it did until then, is named
        fails = _fails_in_a_graph(one, other)
        parts = [_without_lines(seen.parts) if fails else seen.parts for seen in (one, other)]
        for name in one.parts:
            if one.parts[name] != other.parts[name] and not (fails and name in {"names", "history"}):
                changed = list(_changed(*(part[name] for part in parts)))
                lines += [f"cell {number} {name}", *changed] if changed else []
        if other.plan.startswith("fault"):
            lines.append(f"cell {number} {other.plan}")
        if fails and one.parts["names"] != other.parts["names"]:
            break  # what the graph was to assign is not there, as is named, and the cells below lack it
    return lines


def _changed(one: list[str], other: list[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    for kind, begin, end, other_begin, other_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        for left, right in itertools.zip_longest(one[begin:end], other[other_begin:other_end], fillvalue=""):
            same = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
            begin_at = max(0, same - 60)
            if not _is_named(left, right):
                yield f"  - {left[:20]} ... {left[begin_at : begin_at + 240]}"
                yield f"  + {right[:20]} ... {right[begin_at : begin_at + 240]}"


def _is_named(plain: str, explained: str) -> bool:
    """Whether *Limits* names a difference.

    What fails in a graph has the line of another call, and no columns; a stack that PyTorch prints has our frames.
    """
    if _OUR_FRAME.sub("", plain) == _OUR_FRAME.sub("", explained):
        return True
    return " 0 0 " in explained and _FRAMES.sub("", plain) == _FRAMES.sub("", explained)


def _fails_in_a_graph(plain: Seen, explained: Seen) -> bool:
    """Whether a cell fails on its own with an error with which it failed as one function, too."""
    errors = [seen.parts.get("error", []) for seen in (plain, explained)]
    return explained.plan == "compiled" and errors[0] != ["NoneType None"] and not list(_changed(*errors))


def _without_lines(parts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what was seen without the traceback that ends an output."""
    output = itertools.takewhile(lambda line: not line.startswith("stdout: -----"), parts["output"])
    return parts | {"output": [*output, *parts["output"][-1:]]}


def _without_our_frames(lines: list[str]) -> Iterator[str]:
    """Yield the lines of an output without our frames in stacks that Python prints: *Limits* names them."""
    below = ""
    for line, following in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        is_ours = "/jupyter_graphbreak/ipython/" in line or following.endswith(" MAGIC")
        if _FRAME.match(line) and is_ours:
            below = following
        elif line != below:
            yield line
            below = ""
        else:
            below = ""


def _brief(seen: Any) -> str:
    return seen if isinstance(seen, str) else "it ran"


def made_shell() -> InteractiveShell:
    """Return a shell with the extension; what programs may need is loaded."""
    for module in LOADED:
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


def main() -> None:
    """Run programs and print those that differ, then how many did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this one of the programs alone, and print it")
    parser.add_argument("--options", default="-b eager", help="of the magic")
    arguments = parser.parse_args()
    begun = time.perf_counter()
    shell = made_shell()
    plans: collections.Counter[str] = collections.Counter()
    differing = []
    numbers = [arguments.only] if arguments.only is not None else range(arguments.programs)
    for number in numbers:
        cells = Writer(arguments.seed * 1_000_000 + number).program()
        plain, explained = (
            in_a_fork(functools.partial(run_program, shell, cells, arguments.options, plain=plain))
            for plain in (True, False)
        )
        plans.update([explained] if isinstance(explained, str) else [seen.plan for seen in explained[:-1]])
        found = differences(plain, explained)
        if found:  # does it differ from itself, too?
            again = in_a_fork(functools.partial(run_program, shell, cells, arguments.options, plain=True))
            own = set(differences(plain, again))
            found = [line for line in found if line not in own]
            if not any(":" in line or line.startswith("  ") for line in found):
                found = []
        if found:
            differing.append(number)
        if found or arguments.only is not None:
            print(f"\n{'=' * 30} program {number} of seed {arguments.seed}")
            text = "\n".join([*itertools.starmap(_listed, enumerate(cells[1:], start=2)), *found])
            print(text.encode(errors="replace").decode(), flush=True)
    print(f"\n{len(numbers)} programs, {len(differing)} differ: {differing}")
    print(f"cells: {dict(plans)}; {time.perf_counter() - begun:.0f} s")


def _listed(number: int, cell: Cell) -> str:
    first = 2 if cell.is_explained else 1
    lines = [f"  {at:2} {line}" for at, line in enumerate(cell.text.split("\n"), start=first)]
    return "\n".join([f"-- cell {number}{' explained' if cell.is_explained else ''}", *lines])


if __name__ == "__main__":  # a shell puts a module of its own in the place of this one
    importlib.import_module("random_cells").main()
