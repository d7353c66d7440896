"""Apply a remedy as a user would, and observe the program without the code that decides verdicts."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import linecache
import logging
import random
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._dynamo.utils import counters

from jupyter_graphbreak.report.remedies import Remedy
from jupyter_graphbreak.results import Report

PROGRAMS = Path(__file__).parents[3] / "programs" / "remedies"
_ADDRESSES = re.compile(r", grad_fn=<\w+>|\bat 0x[0-9a-f]+")
Observations = dict[str, Any]


class ProgramText(NamedTuple):
    """The name and the source text of a program."""

    name: str
    text: str


def programs(stem: str) -> list[ProgramText]:
    """Return the programs of a file, each preceded by the head that they share."""
    head, *parts = (PROGRAMS / f"{stem}.py").read_text(encoding="utf-8").split("# === ")
    names_and_bodies = [part.partition("\n") for part in parts]
    return [ProgramText(name.strip(), f"{head}{body}".rstrip("\n")) for name, _, body in names_and_bodies]


class LoadedProgram:
    """A program, executed from a file."""

    def __init__(self, path: Path, text: str) -> None:
        path.write_text(text + "\n", encoding="utf-8")
        linecache.checkcache(str(path))
        self.path, self.text = path, text
        self.module = types.ModuleType(f"program_{path.stem}")
        sys.modules[self.module.__name__] = self.module
        exec(compile(text, str(path), "exec", dont_inherit=True), vars(self.module))

    @property
    def f(self) -> Any:
        return self.module.f

    def make_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return new positional and keyword arguments."""
        arguments = self.module.make_arguments()
        if len(arguments) == 2 and isinstance(arguments[0], tuple) and isinstance(arguments[1], dict):
            return arguments[0], arguments[1]
        return arguments, {}


def apply_edits(loaded_program: LoadedProgram, report: Report, remedy: Remedy) -> str:
    """Return a program's text with the edits of a remedy."""
    path = {source.id: source.path for source in report.sources}
    lines = loaded_program.text.split("\n")
    for edit in sorted(remedy.edits, key=lambda edit: edit.first_line, reverse=True):
        assert path[edit.source] == str(loaded_program.path), "the program is one file"
        assert "\n".join(lines[edit.first_line - 1 : edit.last_line]) == edit.old
        lines[edit.first_line - 1 : edit.last_line] = edit.new.split("\n") if edit.new else []
    return "\n".join(lines)


@contextlib.contextmanager
def load_with_remedy(
    loaded_program: LoadedProgram, report: Report, remedy: Remedy, folder: Path, backend: str
) -> Iterator[Callable[..., Any]]:
    """Yield a function that loads the program with a remedy and compiles it."""
    text = apply_edits(loaded_program, report, remedy)
    is_wrapped = text.count("torch.compile(") + text.count("torch.compile\n") > loaded_program.text.count(
        "torch.compile"
    )
    saved_config, compile_before = torch._dynamo.config.save_config(), torch.compile

    def make_program(*, fullgraph: bool = False) -> Any:
        compile_now = functools.partial(compile_before, backend=backend, fullgraph=fullgraph)
        torch.compile = compile_now
        program = LoadedProgram(folder / loaded_program.path.name, text)
        if remedy.code is not None:
            exec(remedy.code, {"model": program.f})
        function = program.f if is_wrapped else compile_now(program.f)
        return program, function

    try:
        yield make_program
    finally:
        torch.compile = compile_before
        torch._dynamo.config.load_config(saved_config)


VARIANTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as given": lambda x: x,
    "negated": lambda x: -x,
    "a ramp": lambda x: torch.linspace(-1.5, 2.5, x.numel()).reshape(x.shape) if x.numel() else x,
    "random": lambda x: torch.randn(x.shape, generator=torch.Generator().manual_seed(7)) * 4,
}


class ObservedRun(NamedTuple):
    """The observations for each variant of a program's inputs, and PyTorch's counters after the first call."""

    observations_by_variant: dict[str, Observations]
    graph_count: int
    op_count: int


def observe_runs(make_program: Callable[[], Any], variants: Iterable[str], seed: int = 3) -> ObservedRun:
    """Load a program, and call it twice on each variant of its inputs."""
    torch._dynamo.reset()
    counters.clear()
    program, function = make_program()
    observations_by_variant: dict[str, Observations] = {}
    first_counts: list[int] = []
    for variant in variants:
        variant_observations = observations_by_variant.setdefault(variant, {})
        for ordinal in ("first", "second"):
            args, kwargs = _vary(program.make_arguments(), VARIANTS[variant])
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)
            variant_observations |= {
                f"{ordinal} {key}": value for key, value in _observe(program, function, args, kwargs).items()
            }
            first_counts = first_counts or [counters["stats"]["unique_graphs"], counters["stats"]["calls_captured"]]
    return ObservedRun(observations_by_variant, *first_counts)


def _observe(program: LoadedProgram, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Observations:
    out, err = io.StringIO(), io.StringIO()
    value, raised = None, None
    with (
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _record_logs() as logged,
        warnings.catch_warnings(record=True) as caught_warnings,
    ):  # fmt: skip
        warnings.simplefilter("always")
        try:
            value = function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            raised = f"{type(error).__name__}: {error}"
    observations: Observations = {
        "raised": raised,
        "value": value,
        "arguments": (args, kwargs),
        "printed": _ADDRESSES.sub("", out.getvalue()),
        "stderr": err.getvalue(),
        "logged": list(logged),
        "warned": [(w.category.__name__, str(w.message)) for w in caught_warnings if w.filename == str(program.path)],
        "random": (torch.get_rng_state(), repr(random.getstate()), repr(np.random.get_state())),
        "modes": (torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled()),
    }
    state = dict(_state(program))
    observations |= {f"state {name}": item for name, item in state.items()}
    tensors = [t for t in _tensors((value, args, kwargs)) if not isinstance(t, torch.nn.Parameter)]
    observations["which are identical"] = [
        (i, j) for i, a in enumerate(tensors) for j, b in enumerate(tensors[:i]) if a is b
    ]
    pointers = [t.untyped_storage().data_ptr() for t in tensors]
    observations["which share memory"] = [
        (i, j) for i, a in enumerate(pointers) for j, b in enumerate(pointers[:i]) if a == b
    ]
    observations["requires grad"] = [t.requires_grad for t in _tensors(value)]
    observations = copy.deepcopy({key: _plain_value(item) for key, item in observations.items()})
    leaves = {f"argument {i}": t for i, t in enumerate(_tensors((args, kwargs))) if t.is_leaf and t.requires_grad}
    leaves |= {f"{n}": t for n, item in state.items() for t in _tensors(item) if t.requires_grad and t.is_leaf}
    roots = [t for t in _tensors(value) if t.requires_grad]
    if roots:
        weights = [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t.dtype) for t in roots]
        try:
            torch.autograd.backward(roots, weights)
        except RuntimeError as error:
            observations["backward"] = type(error).__name__
        for name, leaf in leaves.items():
            observations[f"gradient {name}"] = leaf.grad
            leaf.grad = None
    return observations


def _plain_value(value: Any) -> Any:
    """Return a value that can be copied, because its tensors are detached from their autograd graph."""
    match value:
        case torch.Tensor():
            return value.detach()
        case dict():
            return {key: _plain_value(item) for key, item in value.items()}
        case list() | tuple() if type(value) in {list, tuple}:
            return type(value)(_plain_value(item) for item in value)
        case _ if hasattr(value, "__dataclass_fields__"):
            return {name: _plain_value(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def _state(program: LoadedProgram) -> Iterator[tuple[str, Any]]:
    for name, value in vars(program.module).items():
        if isinstance(value, torch.nn.Module):
            for key, tensor in (*value.named_parameters(), *value.named_buffers()):
                yield f"{name}.{key}", tensor
            for key, item in vars(value).items():
                if isinstance(item, int | float | str | torch.Tensor) and not key.startswith("_"):
                    yield f"{name}.{key}", item
        elif isinstance(value, type) and value.__module__ == program.module.__name__:
            yield from ((f"{name}.{k}", v) for k, v in vars(value).items() if isinstance(v, int | str | list))
        elif isinstance(value, int | float | str | list | dict | torch.Tensor) and not name.startswith("_"):
            yield name, value
        is_own = getattr(getattr(value, "__code__", None), "co_filename", "") == str(program.path)
        for cell in (getattr(value, "__closure__", None) or ()) if is_own else ():
            if isinstance(cell.cell_contents, int | dict | list):
                yield f"{name}'s closure", cell.cell_contents


def _tensors(value: Any) -> list[torch.Tensor]:
    match value:
        case torch.Tensor():
            return [value]
        case dict():
            return [t for item in value.values() for t in _tensors(item)]
        case list() | tuple():
            return [t for item in value for t in _tensors(item)]
        case _ if hasattr(value, "__dataclass_fields__"):
            return [t for name in value.__dataclass_fields__ for t in _tensors(getattr(value, name))]
    return []


def _vary(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    match value:
        case torch.Tensor() if value.is_floating_point():
            with torch.no_grad():
                new_value = change(value)
            return new_value.detach().clone().requires_grad_(value.requires_grad)
        case dict():
            return {key: _vary(item, change) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_vary(item, change) for item in value)
    return value


@contextlib.contextmanager
def _record_logs() -> Iterator[list[tuple[str, str, str]]]:
    messages: list[tuple[str, str, str]] = []
    logger = logging.getLogger("a.program")
    handler = logging.Handler()
    handler.emit = lambda record: messages.append((record.name, record.levelname, record.getMessage()))  # type: ignore[method-assign]
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def names_of_differences(expected: Observations, actual: Observations) -> list[str]:
    """Return the names of the observations that differ."""
    return [
        name for name in sorted(expected.keys() | actual.keys()) if not _is_same(expected.get(name), actual.get(name))
    ]


def is_allowed_difference(name: str, expected: Observations, actual: Observations) -> bool:
    """Return whether the verdict "works but differs" allows a difference.

    The verdict allows different output and random state, zero gradients instead of none, a different error, and copies
    instead of shared memory.
    """
    if name.endswith(" raised") and expected.get(name) and actual.get(name):
        return str(actual[name]).startswith(("RuntimeError: ", "TorchRuntimeError: "))
    if "gradient" in name and expected.get(name) is None and isinstance(actual.get(name), torch.Tensor):
        return not bool(actual[name].count_nonzero())
    if name.endswith((" which are identical", " which share memory")):
        return set(actual.get(name, ())) < set(expected.get(name, ()))
    return name.partition(" ")[2] in {"printed", "stderr", "logged", "warned", "random"}


def _is_same(expected: Any, actual: Any) -> bool:
    if type(expected) is not type(actual):
        return False
    match expected:
        case torch.Tensor():
            is_same_kind = expected.dtype == actual.dtype and expected.shape == actual.shape
            return bool(is_same_kind and torch.allclose(expected, actual, rtol=1e-4, atol=1e-5, equal_nan=True))
        case dict():
            return expected.keys() == actual.keys() and all(_is_same(expected[key], actual[key]) for key in expected)
        case list() | tuple():
            return len(expected) == len(actual) and all(map(_is_same, expected, actual))
        case float():
            return bool(expected == actual or abs(expected - actual) < 1e-5 * max(1.0, abs(expected)))
        case np.ndarray():
            return bool(np.array_equal(expected, actual))
    return bool(expected == actual)
