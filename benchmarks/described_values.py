"""Describe values, so that the values of two runs can be compared."""

from __future__ import annotations

import collections
import contextlib
import functools
import re
import traceback
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

#: Maximum depth of descriptions.
MAX_DEPTH = 6
#: Prefixes of attributes to ignore: those that PyTorch adds to compiled objects, and ``_backward_hooks``, whose hooks
#: are only counted.
_IGNORED = ("_torchdynamo", "_isolate_recompiles", "_backward_hooks")


class Describer:
    """Describes everything that a user can observe about values, up to a depth."""

    def __init__(self) -> None:
        self._number_by_id: dict[int, int] = {}
        self._kept_values: list[Any] = []
        self._storages: dict[int, int] = {}

    def describe(self, value: Any, depth: int = 0) -> str:
        """Return a description; a value that was described before is only mentioned."""
        is_simple = value is None or isinstance(value, bool | int | float | complex | str | bytes)
        if is_simple and type(value).__module__ == "builtins":
            return f"{type(value).__name__} {value!r}"
        if id(value) in self._number_by_id:
            return f"#{self._number_by_id[id(value)]}"
        self._number_by_id[id(value)] = len(self._number_by_id)
        self._kept_values.append(value)
        head = f"{type(value).__module__}.{type(value).__qualname__}"
        if depth > MAX_DEPTH:
            return head
        with contextlib.suppress(RuntimeError, ReferenceError):
            return f"{head}({self._describe_parts(value, lambda part: self.describe(part, depth + 1))})"
        return head

    def _describe_parts(self, value: Any, part: Callable[[Any], str]) -> str:  # noqa: C901, PLR0911, PLR0912 - each type has its own case
        attributes = ""
        if isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type | types.ModuleType):
            items = vars(value).items()
            attributes = "; ".join(f"{name}={part(item)}" for name, item in items if not name.startswith(_IGNORED))
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
                return ", ".join(f"{part(key)}: {part(value)}" for key, value in value.items()) + attributes
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
                members = {n: value for n, value in vars(value).items() if n not in {"__dict__", "__weakref__"}}
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
                return _remove_addresses(repr(value))

    def _storage(self, value: torch.Tensor) -> str:
        """Return a key that is equal for tensors with shared memory."""
        if value.layout is not torch.strided or not value.numel() or value.device.type == "meta":
            return ""
        return f"in {self._storages.setdefault(value.untyped_storage().data_ptr(), len(self._storages))}"


def _tensor(value: torch.Tensor, part: Callable[[Any], str]) -> str:
    properties: list[Any] = [value.dtype, value.device, tuple(value.shape), value.requires_grad, value.is_leaf]
    properties += [type(value.grad_fn).__name__, value.is_inference(), value.is_conj(), value._base is not None]
    properties.append(len(value._backward_hooks or {}))
    if value.layout is torch.strided and value.device.type != "meta":
        properties += [value.stride(), value.storage_offset(), value.untyped_storage().nbytes()]
        properties.append(value.detach().tolist())
    if not value.is_inference():
        properties.append(value._version)
    if value.is_leaf and value.grad is not None:
        properties.append(part(value.grad))
    return " ".join(map(str, properties))


def _function(value: types.FunctionType, part: Callable[[Any], str]) -> str:
    code = value.__code__
    properties: list[Any] = [value.__module__, value.__qualname__, value.__doc__, code.co_name, code.co_qualname]
    if not code.co_filename.startswith("<ipython-input"):
        return str(properties)
    properties += [
        code.co_firstlineno,
        code.co_varnames,
        code.co_names,
        code.co_freevars,
        code.co_flags,
        code.co_code.hex()[:40],
    ]
    properties += [list(code.co_positions()), value.__annotations__]
    cells = []
    for cell in value.__closure__ or ():
        try:
            cells.append(part(cell.cell_contents))
        except ValueError:
            cells.append("empty")
    return f"{properties} {part(value.__defaults__)} {part(value.__kwdefaults__)} {cells}"


def _generator(value: Any, part: Callable[[Any], str]) -> str:
    for prefix in ("gi", "cr", "ag"):
        frame = getattr(value, f"{prefix}_frame", None)
        if frame is not None:
            return f"line {frame.f_lineno} {part(dict(frame.f_locals))} {getattr(value, f'{prefix}_running')}"
    return "ended"


def _error(error: BaseException, part: Callable[[Any], str]) -> str:
    properties = [str(error), part(error.args), str(getattr(error, "__notes__", None)), str(error.__suppress_context__)]
    frames = [
        f"{entry.name} {entry.lineno} {entry.end_lineno} {entry.colno} {entry.end_colno} {Path(entry.filename).name}"
        for entry in traceback.extract_tb(error.__traceback__)
        if not any(part in entry.filename for part in ("IPython", "user_view.py", "/jupyter_graphbreak/"))
    ]
    inner_errors = [part(error.__cause__), part(error.__context__)]
    inner_errors += [part(inner_error) for inner_error in getattr(error, "exceptions", ())]
    return f"{properties} {frames} {inner_errors}"


def _remove_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|(?<= at )[0-9a-f]{9,}", "0x", text)


def normalize(text: str) -> str:
    """Return a string without the parts that differ between identical runs."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", _remove_addresses(text))
    text = re.sub(r"(?:\\?')?(?:# no magic|%%compile_explain[-\w ]*)(?:\\?')?", "MAGIC", text)
    text = re.sub(r"ipython-input-\d+-\w+|ipykernel_\d+/\d+", "ipython-input", text)
    text = re.sub(r"(__compiled_fn|__builtins_dict_|<eval_with_key>|__resume_at)[\w.]*", r"\1", text)
    text = re.sub(r"int \d+(?=, builtins.tuple\(str .*builtins.type\(\w*Warning)|, #\d+|#\d+", "#", text)
    text = re.sub(r"(?<='version': int )\d+", "#", text)
    text = re.sub(r"[\d.]+(?:e[+-]\d+)? (ns|us|µs|μs|ms|s|min)\b", "TIME", text)
    text = re.sub(r"(?<=\] )\[\d+/[\d_]+\]", "[COMPILATION]", text)
    text = re.sub(r"^([VWIE])\d{4} [\d:.]+ \d+ ", r"\1 ", text, flags=re.MULTILINE)
    return re.sub(r"Thread-\d+|(?<=stopped )\d+|/tmp/[\w/.]+", "NAME", text)
