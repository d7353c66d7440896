"""Check a claim without the package's code: apply the remedy to the source, run it on many inputs, count breaks."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import math
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._dynamo.utils import counters

from jupyter_graphbreak.report.remedies import Remedy
from jupyter_graphbreak.results import Report
from tests.torch.experiments.remedies.by_hand import LoadedProgram, ProgramText

_NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
_DETAILS_OF_COMPILING = re.compile(r",\s+grad_fn=<\w+>|\bat 0x[0-9a-f]+")


class Observation(NamedTuple):
    """The effects of a call: its output in order, its error, the state afterwards (with the result), and gradients."""

    events: list[tuple[str, ...]]
    error: BaseException | None
    state: dict[str, Any]
    gradients: dict[str, Any]


def apply_diff(text: str, patch: str) -> str:
    """Apply a unified diff of one file as ``patch`` does."""
    lines, result, position = text.split("\n"), list[str](), 0
    hunks = re.split(r"^@@ ", patch, flags=re.MULTILINE)[1:]
    for hunk in hunks:
        header, *body = hunk.removesuffix("\n").split("\n")
        header_match = re.match(r"-(\d+)(?:,(\d+))? \+", header)
        assert header_match is not None
        start = int(header_match[1]) - (0 if header_match[2] == "0" else 1)
        result += lines[position:start]
        position = start
        for line in body:
            if line[:1] in {" ", "-", ""}:
                assert lines[position] == line[1:], (lines[position], line)
                position += 1
            if line[:1] in {" ", "+", ""}:
                result.append(line[1:])
    return "\n".join([*result, *lines[position:]])


def new_lines(remedy: Remedy, line: int) -> range:
    """Return the lines of the changed text that correspond to a line of the old text, or that replace it."""
    shift = 0
    for edit in sorted(remedy.edits, key=lambda edit: edit.first_line):
        count = len(edit.new.split("\n")) if edit.new else 0
        if edit.first_line <= line <= edit.last_line:
            return range(edit.first_line + shift, edit.first_line + shift + count)
        if edit.first_line > line:
            break
        shift += count - (edit.last_line - edit.first_line + 1)
    return range(line + shift, line + shift + 1)


@contextlib.contextmanager
def record_break_lines(path: Path) -> Iterator[list[int]]:
    """Record the lines of a file on which graphs break, by replacing Dynamo's own method."""
    from torch._dynamo import symbolic_convert

    lines: list[int] = []
    # In torch 2.9, this is a module-level function that receives the exception's stack instead of the exception.
    owner: Any = symbolic_convert if hasattr(symbolic_convert, "log_graph_break") else None
    owner = owner or symbolic_convert.InstructionTranslatorBase
    log = owner.log_graph_break

    def record_line(*args: Any, **kwargs: Any) -> None:
        arguments = inspect.signature(log).bind(*args, **kwargs).arguments
        stack = arguments.get("user_stack") or getattr(arguments.get("exc"), "real_stack", None)
        stack = stack or torch._guards.TracingContext.extract_stack()
        lines.extend([frame.lineno or 0 for frame in stack if frame.filename == str(path)][-1:])
        log(*args, **kwargs)

    owner.log_graph_break = record_line
    try:
        yield lines
    finally:
        owner.log_graph_break = log


class _OutputRecorder(io.TextIOBase):
    def __init__(self, kind: str, events: list[tuple[str, ...]]) -> None:
        self.kind, self.events = kind, events

    def write(self, text: str) -> int:
        if self.events and self.events[-1][0] == self.kind:
            self.events[-1] = (self.kind, self.events[-1][1] + text)
        elif text:
            self.events.append((self.kind, text))
        return len(text)


def compile_except_for(path: Path) -> Callable[..., Any]:
    """Return a ``torch.compile`` that compiles nothing in one file, but still compiles for ``torch.cond``."""
    compile_before = torch.compile

    def compile_outside_file(fn: Any = None, **options: Any) -> Any:
        if sys._getframe(1).f_code.co_filename != str(path):
            return compile_before(fn, **options)
        return fn if fn is not None else lambda inner: inner

    return compile_outside_file


@contextlib.contextmanager
def run_setup(loaded_program: LoadedProgram) -> Iterator[None]:
    """Temporarily apply the warning filters, log handlers and log filters that a program requires."""
    log = logging.getLogger("program.log")
    handlers, filters = list(log.handlers), list(log.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            getattr(loaded_program.module, "setup", lambda: None)()
            yield
        finally:
            log.handlers[:], log.filters[:] = handlers, filters


def observe_call(
    path: Path, text: str, prepare: Callable[[LoadedProgram], Any], compile_with: Callable[..., Any] | None
) -> Observation:
    """Load a program again, and call it once.

    Parameters
    ----------
    prepare : callable
        Sets up the program that is passed to it, and returns the arguments of the call.
    compile_with : callable or None
        A replacement for ``torch.compile`` during the call. With ``None``, functions stay uncompiled.
    """
    torch._dynamo.reset()
    events: list[tuple[str, ...]] = []
    compile_before, root = torch.compile, logging.getLogger()
    handlers = list(root.handlers), root.level
    recorder = logging.Handler()
    recorder.emit = lambda record: events.append(("log", record.name, record.levelname, record.getMessage()))  # type: ignore[method-assign]
    torch.compile = compile_with or compile_except_for(path)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(_OutputRecorder("out", events)):
            warnings.simplefilter("always")
            showwarning_before = warnings.showwarning
            warnings.showwarning = lambda message, category, *_, **__: events.append(
                ("warning", category.__name__, str(message))
            )
            root.handlers[:] = [recorder]
            loaded_program = LoadedProgram(path, text)
            getattr(loaded_program.module, "setup", lambda: None)()
            arguments = prepare(loaded_program)
            function = loaded_program.f
            if compile_with is not None and text.count("torch.compile") == 0:
                function = compile_with(function)
            torch.manual_seed(5)
            random.seed(5)
            value, raised = None, None
            try:
                value = function(*arguments)
            except Exception as error:  # noqa: BLE001 - an error is an observation
                raised = error
            warnings.showwarning = showwarning_before
    finally:
        torch.compile = compile_before
        root.handlers[:], root.level = handlers
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("program."):
                logging.getLogger(name).handlers.clear()
                logging.getLogger(name).filters.clear()
    events[:] = [event for event in events if event[0] != "warning" or "torch" not in event[1].lower()]
    parts = {"value": value, "arguments": arguments} | {
        name: part
        for name, part in vars(loaded_program.module).items()
        if isinstance(part, int | float | str | list | dict | torch.Tensor | torch.nn.Module) and name[:1] != "_"
    }
    parts |= {
        f"{name}'s attributes": vars(part)
        for name, part in vars(loaded_program.module).items()
        if type(part).__module__ == loaded_program.module.__name__
    }
    tensors = {id(t): (tensor_path, t) for name, part in parts.items() for tensor_path, t in _tensors(part, name)}
    state: dict[str, Any] = {tensor_path: t.detach().clone() for tensor_path, t in tensors.values()}
    state |= {name: _plain_value(part) for name, part in parts.items()}
    state["requires grad"] = {p: t.requires_grad for p, t in tensors.values() if not isinstance(t, torch.nn.Parameter)}
    results = [t for _, t in _tensors(value, "value")]
    inputs = [t for _, t in _tensors(arguments, "arguments")]
    state["aliases"] = [(i, j) for i, r in enumerate(results) for j, g in enumerate([*inputs, *results[:i]]) if r is g]
    state["memory"] = [
        (i, j)
        for i, r in enumerate(results)
        for j, g in enumerate([*inputs, *results[:i]])
        if r.untyped_storage().data_ptr() == g.untyped_storage().data_ptr() != 0
    ]
    state |= {
        f"grad left on {tensor_path}": _plain_value(t.grad)
        for tensor_path, t in tensors.values()
        if t.is_leaf and t.requires_grad
    }
    state["random"] = [torch.get_rng_state().tolist(), repr(random.getstate())]
    return Observation(events, raised, state, _gradients(results, list(tensors.values())))


def _gradients(results: list[torch.Tensor], paths_and_tensors: list[tuple[str, torch.Tensor]]) -> dict[str, Any]:
    roots = [t for t in results if t.requires_grad]
    if not roots:
        return {}
    leaves = [(tensor_path, t) for tensor_path, t in paths_and_tensors if t.is_leaf and t.requires_grad]
    for _, leaf in leaves:
        leaf.grad = None
    try:
        torch.autograd.backward(roots, [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape) for t in roots])
    except RuntimeError as error:
        return {"backward": type(error).__name__}
    return {tensor_path: leaf.grad for tensor_path, leaf in leaves}


def _plain_value(value: Any, depth: int = 0) -> Any:
    match value:
        case torch.Tensor():
            return value.detach().clone()
        case torch.nn.Module():
            attributes = {
                k: v for k, v in vars(value).items() if isinstance(v, int | float | str | list) and k[:1] != "_"
            }
            return {"training": value.training, **attributes} | {
                k: t.detach().clone() for k, t in value.named_buffers()
            }
        case dict():
            return {str(key): _plain_value(item, depth + 1) for key, item in value.items()} if depth < 5 else None
        case list() | tuple():
            return [_plain_value(item, depth + 1) for item in value] if depth < 5 else None
        case int() | float() | str() | None:
            return value
        case _:
            return type(value).__name__


def _tensors(value: Any, tensor_path: str) -> Iterator[tuple[str, torch.Tensor]]:
    match value:
        case torch.Tensor():
            yield tensor_path, value
        case torch.nn.Module():
            yield from ((f"{tensor_path}.{name}", t) for name, t in (*value.named_parameters(), *value.named_buffers()))
        case dict():
            for key, item in value.items():
                yield from _tensors(item, f"{tensor_path}[{key}]")
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _tensors(item, f"{tensor_path}[{index}]")


def ways_to_call(program: LoadedProgram) -> dict[str, Callable[[LoadedProgram], Any]]:
    """Return ways to call a program: with its own arguments, and with other tensors, sizes, numbers and globals.

    A function ``hostile`` of the program may return further arguments, which show the program's trap.
    """

    def preparation_with(
        change: Callable[[Any], Any], index: int | None = None, other: Any = None, name: str | None = None
    ) -> Callable[[LoadedProgram], Any]:
        def prepare(loaded_program: LoadedProgram) -> Any:
            if name is not None:
                setattr(loaded_program.module, name, other)
            memo: dict[int, Any] = {}
            arguments = [_map(part, change, memo) for part in loaded_program.make_arguments()[0]]
            if index is not None:
                arguments[index] = _map(other, change, memo)
            return tuple(arguments)

        return prepare

    ways = {name: preparation_with(change) for name, change in _CHANGES.items()}
    values = {"": _CHANGES["as given"], ", negative": _CHANGES["negative"]}
    for suffix, change in values.items():
        for index, part in enumerate(program.make_arguments()[0]):
            for other in _alternatives_to(part):
                ways[f"argument {index} = {other}{suffix}"] = preparation_with(change, index, other)
            if isinstance(part, list) and part:
                for size, items in {"empty": part[:0], "shorter": part[:1], "longer": [*part, *part]}.items():
                    ways[f"argument {index} {size}{suffix}"] = preparation_with(change, index, items)
        for name, part in vars(program.module).items():
            for other in _alternatives_to(part) if name.isupper() else ():
                ways[f"{name} = {other}{suffix}"] = preparation_with(change, name=name, other=other)
    return ways | _hostile_ways(program)


def _hostile_ways(program: LoadedProgram) -> dict[str, Callable[[LoadedProgram], Any]]:
    """Return ways to call a program with the arguments that its function ``hostile`` returns."""

    def preparation_for(index: int) -> Callable[[LoadedProgram], Any]:
        return lambda loaded_program: loaded_program.module.hostile()[index]

    count = len(getattr(program.module, "hostile", list)())
    return {f"hostile {index}": preparation_for(index) for index in range(count)}


def _alternatives_to(value: Any) -> list[Any]:
    if type(value) is bool:
        return [not value]
    if type(value) is int:
        return [0, -2, 5]
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return [torch.tensor(True), torch.tensor(False)]
    return [0.0, -0.3, 1e10] if type(value) is float else []


def _map(value: Any, change: Callable[[Any], Any], memo: dict[int, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        if id(value) not in memo:
            with torch.no_grad():
                new_value = change(value.detach().clone())
            requires_grad = (value.requires_grad or new_value.requires_grad) and new_value.is_floating_point()
            memo[id(value)] = new_value.detach().clone().requires_grad_(requires_grad)
        return memo[id(value)]
    if isinstance(value, list | tuple):
        return type(value)(_map(item, change, memo) for item in value)
    return value


def _change_floating(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    return lambda value: change(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _set_last(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(value: torch.Tensor) -> torch.Tensor:
        if value.numel():
            value.view(-1)[-1] = number
        return value

    return change


_CHANGES: dict[str, Callable[[Any], Any]] = {
    "as given": lambda value: value,
    "negative": _change_floating(lambda x: -0.7 * x - 0.1),
    "random": _change_floating(lambda x: torch.randn(x.shape, generator=torch.Generator().manual_seed(99)) * 5),
    "zeros": _change_floating(torch.zeros_like),
    "large": _change_floating(lambda x: torch.full_like(x, 1e20)),
    "a nan": _change_floating(_set_last(math.nan)),
    "an inf": _change_floating(_set_last(math.inf)),
    "a zero": _change_floating(_set_last(0.0)),
    "empty": _change_floating(lambda x: x[:0] if x.dim() else x),
    "longer": _change_floating(lambda x: torch.cat([x, x[:1]]) if x.dim() else x),
    "with gaps": _change_floating(lambda x: torch.stack([x, x], -1)[..., 0] if x.dim() else x),
    "transposed": _change_floating(lambda x: (-x).transpose(0, -1).clone().transpose(0, -1) if x.dim() else x),
    "integers": _change_floating(lambda x: (x * 3).round().long()),
    "negative integers": _change_floating(lambda x: (x * -3).round().long()),
    "double precision": _change_floating(lambda x: x.double() * 3),
    "half precision": _change_floating(lambda x: x.half() * 3),
    "zero-dimensional half precision": _change_floating(lambda x: x.sum().half()),
    "two elements": _change_floating(lambda x: torch.stack([x, -x]) if x.numel() == 1 else x),
    "with gradients": _change_floating(lambda x: x.requires_grad_()),
    "zeros with gradients": _change_floating(lambda x: torch.zeros_like(x).requires_grad_()),
}


#: Changes whose programs run only uncompiled, because compiling takes time and shows less for them.
_ONLY_UNCOMPILED = {
    "zeros", "large", "an inf", "a zero", "with gaps", "transposed",
    "negative integers", "double precision", "half precision", "zero-dimensional half precision", "two elements",
    "with gradients", "zeros with gradients",
}  # fmt: skip
#: Groups of changes to a different kind of tensor. If a program rejects one change of a group, the group is left out.
_OTHER_KINDS = (
    {"integers", "negative integers"}, {"double precision"}, {"half precision"},
    {"zero-dimensional half precision"}, {"with gradients", "zeros with gradients"},
)  # fmt: skip


def describe_differences(expected: Observation, actual: Observation, remedy: Remedy, way: str) -> list[str]:
    """Return how a call differs from that of the original, beyond what the verdict allows."""
    may_differ = remedy.verdict == "works but differs"
    if expected.error is not None or actual.error is not None:
        return _error_differences(expected.error, actual.error, may_differ=may_differ)
    differences = []
    if not may_differ and not _is_same(expected.events, actual.events):
        differences.append(f"events {expected.events} became {actual.events}")
    differences += [
        f"{name}: {expected.state.get(name)} became {actual.state.get(name)}"
        for name in sorted(expected.state.keys() | actual.state.keys())
        if not _is_same(expected.state.get(name), actual.state.get(name))
        and not (may_differ and _is_declared(name, expected.state.get(name), actual.state.get(name)))
        and not (name not in expected.state and _is_new_tensor(expected, actual.state[name], remedy))
    ]
    if _is_finite(expected):
        for name in sorted(expected.gradients.keys() | actual.gradients.keys()):
            one, other = expected.gradients.get(name), actual.gradients.get(name)
            allows_zero_gradients = may_differ or "with gradients" in way
            is_zero = allows_zero_gradients and one is None and other is not None and not other.count_nonzero()
            if not is_zero and not _is_same(one, other):
                differences.append(f"gradient of {name}: {one} became {other}")
    return differences


def _is_new_tensor(expected: Observation, value: Any, remedy: Remedy) -> bool:
    """Return whether a verdict says that a result is new, and it equals an object that the original returned."""
    is_declared = any("a new tensor" in text for text in remedy.differences)
    return is_declared and any(_is_same(other, value) for other in expected.state.values())


def _is_declared(name: str, expected: Any, actual: Any) -> bool:
    """Return whether "works but differs" allows this difference.

    Random numbers may differ, and a result may be a new tensor instead of an argument or an earlier result. There are
    then fewer aliases, and the new tensor is an additional entry in ``requires grad``.
    """
    if name == "requires grad":  # a result that is an argument has no path of its own
        new_paths = {
            tensor_path for tensor_path in actual.keys() - expected.keys() if not tensor_path.startswith("value")
        }
        return not new_paths and expected.items() <= actual.items()
    return name == "random" or (name in {"aliases", "memory"} and set(actual) <= set(expected))


def _error_differences(expected: BaseException | None, actual: BaseException | None, *, may_differ: bool) -> list[str]:
    if expected is None or actual is None:
        return [f"raised {expected!r} became {actual!r}"]
    # A different operation may reject the input, unless the original error is a list's own IndexError.
    kinds = RuntimeError | IndexError
    are_from_operations = (
        isinstance(expected, kinds) and isinstance(actual, kinds) and "list index" not in str(expected)
    )
    has_allowed_message = may_differ and isinstance(actual, RuntimeError)
    # PyTorch's own operations write sizes in two ways, depending on whether they are captured.
    texts = (str(error).partition("\n\nfrom user code")[0] for error in (expected, actual))
    messages = [text.replace("torch.Size", "").replace("(", "").replace(")", "") for text in texts]
    is_same = type(expected) is type(actual) and _is_same(*messages)
    # Before torch 2.11, Dynamo wraps any error of an operation that it captures.
    is_wrapped = (
        type(actual).__name__ == "TorchRuntimeError" and f"got {type(expected).__name__}'{messages[0]}" in messages[1]
    )
    if is_same or are_from_operations or has_allowed_message or (is_wrapped and torch.__version__ < "2.11"):
        return []
    return [f"raised {expected!r} became {actual!r}"]


def _is_finite(result: Observation) -> bool:
    tensors = [*result.gradients.values(), *(t for _, t in _tensors(result.state.get("value"), "value"))]
    return all(bool(t.isfinite().all()) for t in tensors if isinstance(t, torch.Tensor))


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    match one:
        case torch.Tensor():
            has_same_form = one.dtype == other.dtype and one.shape == other.shape
            rtol, atol = (1e-2, 1e-2) if one.dtype == torch.float16 else (1e-4, 1e-5)
            return bool(has_same_form and torch.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True))
        case dict():
            return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
        case list() | tuple():
            return len(one) == len(other) and all(map(_is_same, one, other))
        case float():
            is_close = math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6)
            return is_close or (math.isnan(one) and math.isnan(other))
        case str():
            one, other = (_DETAILS_OF_COMPILING.sub("", text) for text in (one, other))
            if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
                return False
            pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
            return all(math.isclose(float(a), float(b), rel_tol=1e-3, abs_tol=2e-4) for a, b in pairs)
    return bool(one == other)


def _observe_original(
    path: Path, text: str, loaded_program: LoadedProgram, remedy: Remedy
) -> list[tuple[str, Callable[[LoadedProgram], Any], Observation]]:
    """Return the calls that a claim applies to, with the observations of the original."""
    ways = ways_to_call(loaded_program)
    if remedy.verdict == "works on what ran":
        ways = {"as given": ways["as given"]}
    elif remedy.verdict == "works but differs" and remedy.reason is not None:  # the reason names what else differs
        ways = {way: prepare for way, prepare in ways.items() if not any(way in kind for kind in _OTHER_KINDS)}
    expected = {way: observe_call(path, text, prepare, None) for way, prepare in ways.items()}
    refused_ways = {way for way, result in expected.items() if result.error is not None}
    ways_to_skip = {way for kind in _OTHER_KINDS if kind & refused_ways for way in kind}
    return [(way, prepare, expected[way]) for way, prepare in ways.items() if way not in ways_to_skip]


def false_claims(
    program: ProgramText, loaded_program: LoadedProgram, report: Report, remedy: Remedy, backend: str
) -> list[str]:
    """Return the false claims of a remedy with a working verdict."""
    path = loaded_program.path.with_name("changed.py")
    text = program.text
    if remedy.patch is not None:
        text = apply_diff(text, remedy.patch)
        lines = program.text.split("\n")
        for edit in sorted(remedy.edits, key=lambda edit: edit.first_line, reverse=True):
            lines[edit.first_line - 1 : edit.last_line] = edit.new.split("\n") if edit.new else []
        assert "\n".join(lines) == text, "the edits and the patch are the same change"
    lines_of_fixed_breaks = [b.location.line for b in report.breaks if b.id in remedy.breaks and b.location is not None]
    lines_without_breaks = {new for line in lines_of_fixed_breaks for new in new_lines(remedy, line)}
    compile_before = torch.compile

    def compile_with_backend(fn: Any = None, **options: Any) -> Any:
        options["backend"] = backend
        return compile_before(fn, **options) if fn is not None else lambda inner: compile_before(inner, **options)

    differences = []
    with _restore_settings():
        for way, prepare, expected in _observe_original(path, program.text, loaded_program, remedy):
            if remedy.code is not None:
                exec(remedy.code, {"model": loaded_program.f})
            if remedy.settings == {} and remedy.verdict == "works":
                differences += [
                    f"{way}: uncompiled: {difference}"
                    for difference in describe_differences(
                        expected, observe_call(path, text, prepare, None), remedy, way
                    )
                ]
            if way in _ONLY_UNCOMPILED:
                continue
            counters.clear()
            with record_break_lines(path) as broken_lines:
                actual = observe_call(path, text, prepare, compile_with_backend)
            breaks = sum(counters["graph_break"].values())
            torch._dynamo.config.load_config(_DEFAULTS)
            call_differences = describe_differences(expected, actual, remedy, way)
            if call_differences:  # compiling alone may cause the same difference
                differences_of_compiling = describe_differences(
                    expected, observe_call(path, program.text, prepare, compile_with_backend), remedy, way
                )
                call_differences = [
                    difference for difference in call_differences if difference not in differences_of_compiling
                ]
            differences += [f"{way}: {difference}" for difference in call_differences]
            if lines_without_breaks & set(broken_lines) and expected.error is None:
                differences.append(f"{way}: line {sorted(lines_without_breaks & set(broken_lines))} still breaks")
            if len(remedy.breaks) == len(report.breaks) and breaks and way == "as given":
                differences.append(f"{way}: {breaks} breaks are left")
    return differences


_DEFAULTS = torch._dynamo.config.save_config()


@contextlib.contextmanager
def _restore_settings() -> Iterator[None]:
    config_before = torch._dynamo.config.save_config()
    try:
        yield
    finally:
        torch._dynamo.config.load_config(config_before)
