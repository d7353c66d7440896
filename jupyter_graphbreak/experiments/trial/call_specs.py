"""Remember the calls to an entry as specs: types, shapes and plain values, with the data of small tensors only."""

from __future__ import annotations

import dataclasses
import enum
import types
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.code_hints import default_values
from jupyter_graphbreak.experiments.trial.swapped_bindings import (
    cell_binding,
    fixed_binding,
    global_names,
    item_binding,
)
from jupyter_graphbreak.recording.targets import closure_values, is_user_class, may_be_user_defined, reachable_objects
from jupyter_graphbreak.records.attributes import attribute_of, is_dataclass, is_instance, stored_items
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator

    from jupyter_graphbreak._torch_compat.call_modes import CallModes
    from jupyter_graphbreak._torch_compat.hooks.entries import CompiledCall
    from jupyter_graphbreak.experiments.trial.swapped_bindings import Binding

#: The maximum number of different calls to remember for one entry.
_MAX_CALLS = 64
#: The maximum number of different calls at which a call that compiles something is still remembered.
_MAX_COMPILING_CALLS = 96
#: The maximum number of calls to examine before they run.
_MAX_EXAMINED_CALLS = 256
#: The maximum number of calls whose state is also examined before they run.
_MAX_CALLS_WITH_STATE = 32
#: The maximum number of calls whose state is examined until a call other than the first compiles something.
_MAX_CALLS_WITH_STATE_AT_FIRST = 4
#: The maximum size in bytes of a tensor whose data is copied.
_MAX_TENSOR_BYTES = 1 << 16
#: The maximum size in bytes of all copied data of tensors together.
_MAX_COPIED_BYTES = 1 << 25
#: The maximum depth of containers and objects to examine.
_MAX_DEPTH = 6
_MAX_VALUES = 2_000
_MAX_FUNCTIONS = 100
_PLAIN_TYPES = (bool, int, float, str, type(None), torch.dtype, torch.device)
#: The instructions that look up a global variable, in a function and at the top level of a cell.
_LOOKUP_INSTRUCTIONS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_OPAQUE_TYPES = (*_PLAIN_TYPES, enum.Enum, type, types.FunctionType, types.MethodType, types.ModuleType, torch.Tensor)


class Root(NamedTuple):
    """The start of a path to a value: an argument, the callable itself, a closure variable or a global variable.

    ``kind`` is "argument", "module", "partial", "closure" or "global". ``defined_in`` names the module of a global
    variable or the function of a closure variable. A compiled partial is called ``fn``, as in Dynamo's guards.
    """

    kind: str
    name: str
    defined_in: str = ""


class PathStep(NamedTuple):
    """A step into a value. Its ``kind`` is "attribute" or "item".

    A numbered submodule is an attribute, so the first module of a ``Sequential`` is the attribute "0".
    """

    kind: str
    key: Any

    def __str__(self) -> str:
        if self.kind == "attribute":
            return f"[{self.key}]" if self.key.isdigit() else f".{self.key}"
        return f"[{self.key!r}]"


class Path(NamedTuple):
    """The path to a value: a root, and the steps that lead from it to the value."""

    root: Root
    steps: tuple[PathStep, ...] = ()

    def __str__(self) -> str:
        return self.root.name + "".join(map(str, self.steps))

    def child(self, kind: str, key: Any) -> Path:
        """Return the path to a part of the value."""
        return Path(self.root, (*self.steps, PathStep(kind, key)))


@dataclass(frozen=True)
class TensorSpec:
    """Facts about a tensor.

    ``number`` identifies the tensor within a call. ``data`` is a copy of the elements, or ``None`` if there is no copy.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    number: int = field(default=0, compare=False)
    data: torch.Tensor | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ContainerSpec:
    """The class of a container, and the keys of its items. For a set, ``keys`` contains only the length."""

    class_: type
    keys: tuple[Any, ...]


@dataclass(frozen=True)
class OpaqueSpec:
    """A value for which only the type is known.

    Functions with the same code have the same ``identity`` if they close over the same objects and equal plain values.
    """

    class_: type
    identity: int = field(compare=False)


#: The result of :func:`spec_of`: a plain value, or the spec of a tensor, a container or something else.
Spec = Any


class CallSite(NamedTuple):
    """The location of a call in the user's code. Columns count UTF-8 bytes, and lines start at 1.

    ``owner_name`` is the name that the calling code uses for the called module, if it has one. ``visible_names``
    contains the names of other variables that the callable reads and that have the same value in the calling code, and
    "torch" if that name refers to PyTorch there. ``modules`` contains the names of the Python modules whose global
    variables the callable reads, each with the module's name in the calling code.
    """

    filename: str
    function: str
    line: int
    end_line: int
    column: int
    end_column: int
    owner_name: str | None
    visible_names: frozenset[str]
    modules: frozenset[tuple[str, str]]


@dataclass
class CallSpec:
    """A call as specs of its arguments and of the state that it reads, and of their parts, by path.

    The state consists of the plain values and tensors that the callable reads besides its arguments; it is ``None`` if
    it was not examined.
    """

    arguments: dict[Path, Spec]
    state: dict[Path, Spec] | None
    site: CallSite | None
    keyword_names: frozenset[str]
    modes: CallModes

    @property
    def values(self) -> dict[Path, Spec]:
        """All specs by path."""
        return {**self.arguments, **(self.state or {})}

    def plain_state(self, paths: Collection[Path]) -> dict[Path, Any]:
        """Return the plain values of the state at the given paths."""
        return {
            path: value
            for path, value in (self.state or {}).items()
            if path in paths and is_instance(value, _PLAIN_TYPES)
        }


class CallHistory:
    """The different calls to all entries of a run, in order."""

    def __init__(self) -> None:
        self._calls_by_key: dict[Any, list[CallSpec]] = {}
        self._signatures: dict[Any, set[Any]] = {}
        self._call_counts: dict[Any, int] = {}
        #: The entries for which something was compiled after their first call.
        self._recompiled_keys: set[Any] = set()
        #: The objects whose ids are parts of keys, kept alive so that no other object gets such an id.
        self._owners: list[Any] = []
        self._copied_bytes = 0
        #: The call that each thread is making.
        self._current_calls: dict[int, tuple[CompiledCall, CallSpec | None]] = {}

    def note_start(self, started_call: CompiledCall) -> None:
        """Remember a call that is about to start."""
        key = key_of(started_call.function)
        if key not in self._calls_by_key:
            self._calls_by_key[key], self._signatures[key], self._call_counts[key] = [], set(), 0
            self._owners.append(started_call.function)
        self._call_counts[key] += 1
        calls = self._calls_by_key[key]
        if len(calls) >= _MAX_CALLS or self._call_counts[key] > _MAX_EXAMINED_CALLS:
            self._current_calls[get_ident()] = started_call, None  # the call is examined if it compiles something
            return
        call_arguments = Arguments(*started_call.args, **started_call.kwargs)
        examines_state = self._call_counts[key] <= (
            _MAX_CALLS_WITH_STATE if key in self._recompiled_keys else _MAX_CALLS_WITH_STATE_AT_FIRST
        )
        arguments = specs_of_arguments(started_call.function, call_arguments)
        state = specs_of_state(started_call.function, call_arguments) if examines_state else None
        call_spec = CallSpec(arguments, state, None, frozenset(started_call.kwargs), started_call.modes)
        self._current_calls[get_ident()] = started_call, call_spec
        signature = started_call.modes, tuple(call_spec.values.items())
        try:
            if signature in self._signatures[key]:
                return
            self._signatures[key].add(signature)
        except TypeError:  # the signature contains a value that cannot be hashed
            return
        self._add_call(key, started_call, call_spec)

    def note_compiling(self) -> None:
        """Remember the current call with its state, because it compiles something."""
        current_call = self._current_calls.pop(get_ident(), None)
        if current_call is None:
            return
        started_call, call_spec = current_call
        key = key_of(started_call.function)
        calls = self._calls_by_key[key]
        if self._call_counts[key] > 1:
            self._recompiled_keys.add(key)
        call_arguments = Arguments(*started_call.args, **started_call.kwargs)
        if call_spec is None:
            if len(calls) >= _MAX_COMPILING_CALLS:
                return
            arguments = specs_of_arguments(started_call.function, call_arguments)
            call_spec = CallSpec(arguments, None, None, frozenset(started_call.kwargs), started_call.modes)
        if call_spec.state is None:
            call_spec.state = specs_of_state(started_call.function, call_arguments)
        if not any(call_spec is known_call for known_call in calls):
            # Keep this call even if it looks like an earlier one: they may differ in something that specs lack.
            self._add_call(key, started_call, call_spec)

    def note_end(self) -> None:
        """Forget the call that this thread has made, and its objects."""
        self._current_calls.pop(get_ident(), None)

    def close(self) -> None:
        """Forget the objects of the run, after its last call."""
        self._current_calls.clear()
        self._owners.clear()

    def calls_to(self, key: Any) -> list[CallSpec]:
        """Return the different calls to an entry."""
        return list(self._calls_by_key.get(key, ()))

    def count_calls(self, key: Any) -> int:
        """Return the number of all calls to an entry."""
        return self._call_counts.get(key, 0)

    def _add_call(self, key: Any, started_call: CompiledCall, call_spec: CallSpec) -> None:
        tensors = {id(value): value for _, value in _argument_parts(started_call) if _is_dense(value)}
        numbers = {ident: number for number, ident in enumerate(tensors)}
        copies: dict[int, torch.Tensor] = {}
        for ident, tensor in tensors.items():
            if tensor.nbytes <= _MAX_TENSOR_BYTES and self._copied_bytes + tensor.nbytes <= _MAX_COPIED_BYTES:
                self._copied_bytes += tensor.nbytes
                with torch.inference_mode(mode=False), torch.no_grad():
                    copies[ident] = tensor.detach().clone()
        for path, value in _argument_parts(started_call):
            if id(value) in numbers:
                spec = call_spec.arguments[path]
                call_spec.arguments[path] = dataclasses.replace(
                    spec, number=numbers[id(value)], data=copies.get(id(value))
                )
        call_spec.site = _site_of(started_call)
        self._calls_by_key[key].append(call_spec)


def key_of(fn: Callable[..., Any]) -> Hashable:
    """Return a key that identifies the entry of a callable in every mode, such as the id of its module or code.

    Partials of one function that fix the same parameters are one entry, like closures with the same code. All functions
    that a library's decorator such as ``torch.no_grad()`` wraps share code, so the wrapped function is used.
    """
    owner = owner_of(fn)
    if is_instance(owner, torch.nn.Module):
        return id(owner)
    if type(fn) is partial:
        return key_of(fn.func), len(fn.args), tuple(fn.keywords)
    function = getattr(fn, "__func__", fn)
    undecorated_function = _undecorated_function(function)
    return (
        id(getattr(function, "__code__", function))
        if undecorated_function is None
        else ("decorated", key_of(undecorated_function))
    )


def _undecorated_function(function: Any) -> Any:
    """Return the user's function in the closure of a function that a library's decorator made, or ``None``."""
    if not is_instance(function, types.FunctionType) or not is_library(function.__code__.co_filename):
        return None
    functions = (value for value in closure_values(function) if is_instance(value, types.FunctionType))
    return next(filter(may_be_user_defined, functions), None)


def owner_of(fn: Any) -> Any:
    """Return the object that a method belongs to, or the callable itself if it is not a method.

    A learning rate scheduler replaces ``optimizer.step`` with a function that has a weak reference to the optimizer.
    """
    if is_instance(fn, types.FunctionType) and is_library(fn.__code__.co_filename):
        referents = (value() for value in closure_values(fn) if is_instance(value, weakref.ref))
        optimizer = next((item for item in referents if is_instance(item, torch.optim.Optimizer)), None)
        if optimizer is not None:
            return optimizer
    return getattr(fn, "__self__", fn)


def _argument_parts(started_call: CompiledCall) -> Iterator[tuple[Path, Any]]:
    arguments = Arguments(*started_call.args, **started_call.kwargs)
    for name, value in arguments.by_name(started_call.function).items():
        yield from parts(value, Path(Root("argument", name)))


def specs_of_arguments(fn: Callable[..., Any], arguments: Arguments) -> dict[Path, Spec]:
    """Return the specs of arguments and their parts, by path, including parameters whose default is ``None``."""
    none_by_default = {name: None for name, default in default_values(fn).items() if default is None}
    arguments_by_name = none_by_default | arguments.by_name(fn)
    return {
        path: spec_of(value)
        for name, argument in arguments_by_name.items()
        for path, value in parts(argument, Path(Root("argument", name)))
    }


def specs_of_state(fn: Callable[..., Any], arguments: Arguments) -> dict[Path, Spec]:
    """Return the specs of the plain values and the tensors that a callable reads besides its arguments."""
    specs: dict[Path, Spec] = {}
    for root, binding in state_roots(fn, arguments).items():
        for path, value in parts(binding.read(), Path(root), enters_objects=True):
            if is_instance(value, (*_PLAIN_TYPES, list, tuple, dict, set, partial)) or _is_dense(value):
                specs[path] = spec_of(value)
        if len(specs) > _MAX_VALUES:
            break
    return specs


def spec_of(value: Any) -> Spec:
    """Return plain values and members of enumerations unchanged, and facts about other values."""
    if (is_instance(value, _PLAIN_TYPES) and type(value) in _PLAIN_TYPES) or is_instance(value, enum.Enum):
        return value
    if _is_dense(value):
        return TensorSpec(tuple(value.shape), value.dtype, value.device, value.requires_grad)
    keys = [step.key for step, _ in _children(value, enters_objects=False)]
    if keys or is_instance(value, list | tuple | dict):
        return ContainerSpec(type(value), tuple(keys))
    if is_instance(value, set | frozenset):
        return ContainerSpec(type(value), (len(value),))
    return OpaqueSpec(type(value), _identity_of(value))


def _identity_of(value: Any) -> int:
    if is_instance(value, types.FunctionType):
        captured_values = *closure_values(value), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()
        return hash(
            (id(value.__code__), *(part if type(part) in _PLAIN_TYPES else id(part) for part in captured_values))
        )
    if is_instance(value, types.MethodType):
        return hash((id(value.__func__), id(value.__self__)))
    return id(value)


def _is_dense(value: Any) -> bool:
    return (
        type(value) in {torch.Tensor, torch.nn.Parameter} and value.layout == torch.strided and not value.is_quantized
    )


def parts(value: Any, path: Path, *, enters_objects: bool = False) -> Iterator[tuple[Path, Any]]:
    """Yield a value and its parts, by path.

    With ``enters_objects``, modules, optimizers and instances of user classes are searched, besides containers.
    """
    visited_ids: set[int] = set()
    pending = [(path, value)]
    count = 0
    while pending and count < _MAX_VALUES:
        path, value = pending.pop()
        count += 1
        yield path, value
        if len(path.steps) >= _MAX_DEPTH + 4 * enters_objects or id(value) in visited_ids:
            continue
        if not is_instance(value, _PLAIN_TYPES):
            visited_ids.add(id(value))
        steps_and_parts = _children(value, enters_objects=enters_objects)
        pending += [(Path(path.root, (*path.steps, step)), part) for step, part in reversed(steps_and_parts)]


def _children(value: Any, *, enters_objects: bool) -> list[tuple[PathStep, Any]]:
    """Return the parts of a container or an object, with the steps that lead to them."""
    if is_instance(value, _OPAQUE_TYPES):
        return []
    if is_instance(value, list | tuple) and not hasattr(value, "_fields"):
        return [(PathStep("item", index), part) for index, part in enumerate(value)]
    if is_instance(value, Mapping):
        try:
            return [(PathStep("item", key), part) for key, part in stored_items(value) if isinstance(key, str | int)]
        except Exception:  # noqa: BLE001 - calls the user's `items`
            return []
    attributes = _attributes(value, enters_objects=enters_objects)
    return [(PathStep("attribute", name), part) for name, part in attributes.items()]


def _attributes(value: Any, *, enters_objects: bool) -> dict[str, Any]:
    """Return the attributes of a named tuple, partial or dataclass and, with ``enters_objects``, of other objects."""
    if type(value) is partial:
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if is_instance(value, tuple):
        return {name: getattr(value, name) for name in getattr(value, "_fields", ())}
    if is_instance(value, torch.nn.Module) and enters_objects:
        public_attributes = {name: part for name, part in vars(value).items() if not name.startswith("_")}
        return {**dict(value.named_children()), **dict(value.named_buffers(recurse=False)), **public_attributes}
    if is_instance(value, torch.optim.Optimizer) and enters_objects:
        # The parameters and their state are tensors, and the run itself changes them.
        groups = [{key: part for key, part in group.items() if key != "params"} for group in value.param_groups]
        return {"param_groups": groups}
    is_user_object = enters_objects and is_user_class(type(value))
    if is_instance(value, torch.nn.Module) or not (is_dataclass(value) or is_user_object):
        return {}
    return {name: part for name, part in (attribute_of(value, "__dict__") or {}).items() if isinstance(name, str)}


def state_roots(fn: Callable[..., Any], arguments: Arguments) -> dict[Root, Binding]:
    """Return bindings of what a callable reads, by root: its module, its arguments, closure variables and globals.

    Arguments that are tensors or plain values are left out.
    """
    roots: dict[Root, Binding] = {}
    owner = owner_of(fn)
    if not is_instance(owner, types.FunctionType | types.BuiltinFunctionType | type):
        root = Root("partial", "fn") if is_instance(owner, partial) else Root("module", "self")
        roots[root] = fixed_binding(root.name, owner)
    for name, value in arguments.by_name(fn).items():
        if not is_instance(value, (*_PLAIN_TYPES, torch.Tensor)):
            # A method of an object that is not a module may be passed as a function together with the object.
            root = Root("module", "self") if name == "self" else Root("argument", name)
            roots[root] = fixed_binding(name, value)
    function_count = 0
    for item in reachable_objects(fn, *arguments.values()):
        if (
            not is_instance(item, types.FunctionType)
            or not may_be_user_defined(item)
            or is_library(item.__code__.co_filename)
        ):
            continue
        function_count += 1
        if function_count > _MAX_FUNCTIONS:
            break
        for name, cell in zip(item.__code__.co_freevars, item.__closure__ or (), strict=True):
            root = Root("closure", name, item.__qualname__)
            if name != "__class__" and _has_content(cell) and _is_state(cell.cell_contents):
                roots.setdefault(root, cell_binding(name, cell))
        scope = item.__globals__
        for name in _global_names(item.__code__):
            if name in scope and _is_state(scope[name]):
                root = Root("global", name, str(scope.get("__name__")))
                roots.setdefault(root, item_binding(name, scope, name))
    return roots


@lru_cache(maxsize=1000)
def _global_names(code: types.CodeType) -> frozenset[str]:
    """Return the names of the variables that code looks up globally, without the names of attributes."""
    return frozenset(global_names(code, _LOOKUP_INSTRUCTIONS))


def _has_content(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading an empty cell raises
    except ValueError:
        return False
    return True


def _is_state(value: Any) -> bool:
    return not is_instance(
        value, type | types.ModuleType | types.FunctionType | types.BuiltinFunctionType | types.MethodType
    )


def _is_global_of(frame: types.FrameType, root: Root) -> bool:
    """Return whether a name in a frame means this global, not an imported or local variable with the same value."""
    is_shadowed = frame.f_locals is not frame.f_globals and root.name in frame.f_locals
    return root.defined_in == str(frame.f_globals.get("__name__")) and not is_shadowed


def _site_of(started_call: CompiledCall) -> CallSite | None:
    """Return the location of a call; ``None`` if the location is unknown or in a library."""
    frame = started_call.caller
    if frame is None or is_library(frame.f_code.co_filename):
        return None
    positions = list(frame.f_code.co_positions())
    index = frame.f_lasti // 2
    if not 0 <= index < len(positions) or None in positions[index]:
        return None
    line, end_line, column, end_column = positions[index]
    owner = owner_of(started_call.function)
    name = None
    if not is_instance(owner, types.FunctionType):
        scopes = (frame.f_locals, frame.f_globals)
        names = (
            name
            for scope in scopes
            for name, value in list(scope.items())
            if value is owner or (is_instance(value, torch.nn.Module) and compiled_callable(value) is owner)
        )
        name = next((name for name in names if not name.startswith("_")), None)
    visible_names = {**frame.f_globals, **frame.f_locals}
    roots = state_roots(started_call.function, Arguments(*started_call.args, **started_call.kwargs))
    readable_names = {
        root.name
        for root, binding in roots.items()
        if root.kind in {"global", "closure"}
        and visible_names.get(root.name) is binding.read()
        and (root.kind == "closure" or not is_instance(binding.read(), _PLAIN_TYPES) or _is_global_of(frame, root))
    }
    read_modules = {root.defined_in for root in roots if root.kind == "global"}
    modules = {
        (value.__name__, name)
        for name, value in visible_names.items()
        if is_instance(value, types.ModuleType) and value.__name__ in read_modules
    }
    readable_names |= {"torch"} if visible_names.get("torch") is torch else set()
    return CallSite(
        frame.f_code.co_filename, frame.f_code.co_name, line or 0, end_line or 0, column or 0, end_column or 0, name,
        frozenset(readable_names), frozenset(modules),
    )  # fmt: skip
