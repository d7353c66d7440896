"""Find the largest parts of an entry to compile instead of the entry: parts without breaks, or with only a few.

To find them, a call is recorded: the functions and modules that it runs, and the number of operations of each.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.operations import MODULE_CALL_CODE, OPTIMIZER_FILE, OperationListener
from jupyter_graphbreak.experiments.families.inner_compilation import CompiledEntry
from jupyter_graphbreak.experiments.families.proposal import InnerCall
from jupyter_graphbreak.experiments.trial.code_hints import parameters_of
from jupyter_graphbreak.experiments.trial.inner_modules import modules_of
from jupyter_graphbreak.experiments.trial.named_objects import named_objects
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.records.attributes import attribute_of
from jupyter_graphbreak.records.package_paths import is_library, is_standard_library, package_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from types import CodeType, FrameType

    from jupyter_graphbreak.experiments.remedies.original import UncompiledOriginal
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.report.schema import Report

#: The smallest share of the entry's operations that is worth a separate graph.
_MIN_SHARE = 0.05
#: The smallest number of operations of a part, as a share of those of the largest part.
_MIN_SHARE_OF_LARGEST = 0.3
#: A part with at least this share of the entry's layers may have fewer operations: a loop that decodes the result may
#: perform many times as many operations as the model.
_MIN_SHARE_OF_LAYERS = 0.2
#: The smallest number of operations of a part, unless the whole model is a single layer.
_MIN_OPS = 3
#: A function is only a wrapper around a module that performs at least this share of its operations.
_WRAPPER_SHARE = 0.9
#: The maximum number of modules and functions to compile. Modules that are alike are counted once.
_MAX_PARTS = 3
#: The smallest share of the entry's operations that makes a part with a break worth mentioning.
_MIN_SHARE_WITH_ONE_BREAK = 0.2
#: Parts with breaks are searched for only if parts without breaks perform less than this share of the operations.
#: In an entry without layers that have parameters, a part that performs less is not worth compiling.
_SUFFICIENT_SHARE = 0.5
#: A number in a path, such as the index of a layer.
_INDEX_PATTERN = re.compile(r"\.(\d+)(?=\.|$)|\[(\d+)\]")
#: A module's path inside an item of a module list: "net.layers.0", "net.layers.0.attention".
_ITEM_PATTERN = re.compile(r"(?P<list>.*)\.(?P<index>\d+)(?P<part>(?:\.[^\d.\[]\w*)*)")
_OWN_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class PartWithOneBreak:
    """The largest part of an entry that contains only a single break, and its share of the entry's operations.

    The name is the module's path, with a method if only the method can be compiled, or the function's name.
    """

    name: str
    break_: str
    share: float


@dataclass(frozen=True)
class InnerCalls:
    """The functions and modules to compile instead of an entry, largest first, and the breaks inside them.

    There are none if no part without breaks is worth compiling; ``part_with_one_break`` may be, once its break is
    removed. ``share`` is their share of the entry's operations. ``has_all_layers`` tells whether they run all layers
    with parameters that the entry runs.
    """

    calls: tuple[InnerCall, ...]
    share: float = 0.0
    has_all_layers: bool = False
    part_with_one_break: PartWithOneBreak | None = None
    breaks: frozenset[str] = frozenset()


def find_inner_calls(
    original: UncompiledOriginal,
    report: Report,
    files: Mapping[str, str],
    outside_break_ids: frozenset[str] = frozenset(),
) -> InnerCalls:
    """Return the largest parts of an entry without breaks or, if there are none, the largest part with a single break.

    Some breaks must stay outside the compiled parts, such as those of a backward pass. If there are such breaks
    and the parts without breaks are small, the result may be larger parts that contain only other breaks.
    """
    paths_by_id: dict[int, str] = {}
    with sandbox_runs():
        subject = Subject(original.entry.function, original.entry.arguments)
        ids_in_entry = {id(item) for _, item in named_objects(subject.owner, "")}

        def call_and_note_paths(*args: Any, **kwargs: Any) -> Any:
            modules = list(modules_of(subject, args, kwargs))
            counts = Counter(path for path, _ in modules)
            # An attribute of the entry's own object and a global variable may have the same path.
            paths_by_id.update((id(module), path) for path, module in modules if counts[path] == 1)
            return subject.function(*args, **kwargs)

        with record_calls(call_and_note_paths, ignores_updates=bool(outside_break_ids)) as (program, root):
            original.run(program, subject, original.cases[0])
    breaking_lines = _breaking_lines(report, files, root)
    recompiled_functions = frozenset(
        (files.get(recompile.location.source, ""), recompile.location.line)
        for recompile in report.recompiles
        if recompile.location is not None
    )
    all_break_ids = {break_.id for break_ in report.breaks}
    parts_without_breaks = _largest_parts(root, breaking_lines, recompiled_functions, paths_by_id, ids_in_entry)
    if outside_break_ids and parts_without_breaks.share < _SUFFICIENT_SHARE:
        lines_outside = {line: breaks & outside_break_ids for line, breaks in breaking_lines.items()}
        larger_parts = _largest_parts(root, lines_outside, recompiled_functions, paths_by_id, ids_in_entry)
        if larger_parts.share > parts_without_breaks.share:
            functions = {function for call in larger_parts.calls for function in call.functions}
            nodes = [node for node in root.walk() if _function_of(node) in functions]
            breaks_inside = {break_ for node in nodes for break_ in _breaks_in(node.code, breaking_lines)}
            return replace(larger_parts, breaks=frozenset(breaks_inside & all_break_ids))
    if not parts_without_breaks.calls:
        return InnerCalls(
            (), part_with_one_break=_part_with_one_break(root, breaking_lines, paths_by_id, all_break_ids)
        )
    return parts_without_breaks


def _largest_parts(
    root: CallNode,
    breaking_lines: _BreakingLines,
    recompiled_functions: frozenset[tuple[str, int]],
    paths_by_id: Mapping[int, str],
    ids_in_entry: set[int],
) -> InnerCalls:
    """Return the largest parts of a recorded call that run no line on which something breaks.

    If the call runs layers, a function without layers is left out if it recompiles: it would recompile again.
    ``recompiled_functions`` contains the files and the lines of such functions.
    """
    # In a short example, the model may be a single layer.
    is_one_layer = len({id(node.module) for node in root.walk() if node.module is not None}) == 1
    ops: dict[tuple[Any, ...], int] = defaultdict(int)
    parts: dict[tuple[Any, ...], list[CallNode]] = defaultdict(list)
    for node in _parts_without_breaks(root, breaking_lines, paths_by_id, is_one_layer=is_one_layer):
        key = _similarity_key(node, paths_by_id)
        ops[key] += node.op_count
        parts[key].append(node)
    min_ops_of_part = 1 if is_one_layer else _MIN_OPS
    min_ops = max(min_ops_of_part, root.op_count * _MIN_SHARE, max(ops.values(), default=0) * _MIN_SHARE_OF_LARGEST)
    all_layers = root.layers()
    layers_by_part = {key: {layer for node in nodes for layer in node.layers()} for key, nodes in parts.items()}
    large_parts = [
        key
        for key, layers_of_part in layers_by_part.items()
        if layers_of_part or not all_layers or _definition_line_of(parts[key][0]) not in recompiled_functions
        if ops[key] >= min_ops
        or (ops[key] >= min_ops_of_part and len(layers_of_part) >= max(1, _MIN_SHARE_OF_LAYERS * len(all_layers)))
    ]
    largest_parts = sorted(large_parts, key=lambda key: -ops[key])[:_MAX_PARTS]
    share = sum(ops[key] for key in largest_parts) / root.op_count if largest_parts else 0.0
    layers = {layer for key in largest_parts for layer in layers_by_part[key]}
    if not layers and (all_layers or share < _SUFFICIENT_SHARE):
        return InnerCalls(())
    calls = [
        _inner_call(parts[key], paths_by_id, starts_at_owner=id(parts[key][0].module) in ids_in_entry)
        for key in largest_parts
    ]
    return InnerCalls(tuple(calls), share, has_all_layers=layers == all_layers)


#: The lines on which a function breaks or is skipped, with the ids of the breaks or of the skipped functions.
_BreakingLines = dict[tuple[str, int], set[str]]


def _breaking_lines(report: Report, files: Mapping[str, str], root: CallNode) -> _BreakingLines:
    """Return the lines on which a function breaks or is skipped.

    The lines that lead there are included up to the first one that the recorded call contains: lines of PyTorch's files
    and of functions that TorchScript runs are not recorded.
    """
    recorded_code = {part.code for part in root.walk() if part.code is not None}
    recorded_lines = {(code.co_filename, line) for code in recorded_code for _, _, line in code.co_lines()}
    lines: _BreakingLines = defaultdict(set)
    breaks = [(break_.id, (break_.location, *reversed(break_.stack))) for break_ in report.breaks]
    skipped_functions = [
        (skipped_function.break_ or f"skipped {skipped_function.frame}", (skipped_function.location,))
        for skipped_function in report.skipped
    ]
    for ident, stack in (*breaks, *skipped_functions):
        for location in stack:
            if location is not None:
                filename = files.get(location.source, "")
                lines[filename, location.line].add(ident)
                if not is_framework_file(filename) and (filename, location.line) in recorded_lines:
                    break
    return lines


def _part_with_one_break(
    root: CallNode, breaking_lines: _BreakingLines, paths_by_id: Mapping[int, str], known_break_ids: set[str]
) -> PartWithOneBreak | None:
    """Return the largest module or user function that contains exactly one break; ``None`` if none is large enough."""

    def parts(node: CallNode, outer: CallNode) -> Iterator[PartWithOneBreak]:
        breaks_inside = {ident for part in node.walk() for ident in _breaks_in(part.code, breaking_lines)}
        is_whole = outer is root or node.op_count >= _WRAPPER_SHARE * root.op_count
        path = paths_by_id.get(id(node.module))
        name = ".".join(filter(None, [path, node.method])) if path else _user_function_name(node)
        has_layers = bool(node.layers()) or not root.layers()
        if name and len(breaks_inside) == 1 and breaks_inside <= known_break_ids and has_layers and not is_whole:
            yield PartWithOneBreak(name, next(iter(breaks_inside)), node.op_count / root.op_count)
        elif breaks_inside:
            for child in node.children.values():
                yield from parts(child, node)

    largest_part = max(parts(root, root), key=lambda part: part.share, default=None)
    return largest_part if largest_part is not None and largest_part.share >= _MIN_SHARE_WITH_ONE_BREAK else None


def _parts_without_breaks(
    node: CallNode, breaking_lines: _BreakingLines, paths_by_id: Mapping[int, str], *, is_one_layer: bool
) -> Iterator[CallNode]:
    """Yield the topmost nodes that can be compiled and below which nothing breaks."""
    for child in node.children.values():
        if not child.op_count:
            continue
        if any(_breaks_in(part.code, breaking_lines) for part in child.walk()):
            yield from _parts_without_breaks(child, breaking_lines, paths_by_id, is_one_layer=is_one_layer)
        else:
            yield from _compilable_parts(child, paths_by_id, is_one_layer=is_one_layer)


def _breaks_in(code: CodeType | None, breaking_lines: _BreakingLines) -> set[str]:
    """Return the ids of the breaks on the lines of a function."""
    if code is None:
        return set()
    lines = {line for _, _, line in code.co_lines() if line}
    return {ident for line in lines for ident in breaking_lines.get((code.co_filename, line), ())}


def _function_of(node: CallNode) -> tuple[str, str]:
    """Return the file and the name of the function of a call; empty for the root."""
    return (node.code.co_filename, node.code.co_name) if node.code is not None else ("", "")


def _definition_line_of(node: CallNode) -> tuple[str, int]:
    """Return the file and line where the called function is defined; empty for the root."""
    return (node.code.co_filename, node.code.co_firstlineno) if node.code is not None else ("", 0)


def _user_function_name(node: CallNode) -> str | None:
    """Return the name of a node's function if it is at the top level of the user's sources."""
    code = node.code
    if code is None or not code.co_qualname.isidentifier() or is_library(code.co_filename):
        return None
    return code.co_name


def _compilable_parts(node: CallNode, paths_by_id: Mapping[int, str], *, is_one_layer: bool) -> Iterator[CallNode]:
    """Yield a node, or the parts inside it if it is only a wrapper or cannot be compiled in place.

    Modules that perform most of a method's operations are preferred to the method. Functions and methods that it calls
    are not.
    """
    path = paths_by_id.get(id(node.module))
    is_compilable = node.module is not None and _is_compilable(node, path, is_one_layer=is_one_layer)
    if is_compilable and not node.is_helper:
        yield node
        return
    inner_parts = [
        part
        for child in node.children.values()
        for part in _compilable_parts(child, paths_by_id, is_one_layer=is_one_layer)
    ]
    is_wrapper = any(
        part.module is not None and part.op_count >= _WRAPPER_SHARE * node.op_count for part in inner_parts
    )
    op_count_of_modules = sum(part.op_count for part in inner_parts if part.module is not None and not part.is_helper)
    has_large_modules = op_count_of_modules >= _SUFFICIENT_SHARE * node.op_count
    if (_user_function_name(node) and not is_wrapper) or (is_compilable and not has_large_modules):
        yield node
    else:
        yield from inner_parts


def _is_compilable(node: CallNode, path: str | None, *, is_one_layer: bool) -> bool:
    """Return whether a module can be compiled in place, namely by a public path, and is not one of PyTorch's layers."""
    if path is None or any(step.startswith("_") for step in path.split(".")):
        return False
    is_of_torch = node.code is not None and is_framework_file(node.code.co_filename)
    return is_one_layer or not is_of_torch or any(part.module is not None for part in node.walk() if part is not node)


def _similarity_key(node: CallNode, paths_by_id: Mapping[int, str]) -> tuple[Any, ...]:
    """Return a key that is the same for similar modules, such as the layers of a list."""
    if node.module is None:
        return (node.code,)
    return node.code, _INDEX_PATTERN.sub("[]", paths_by_id[id(node.module)]), node.method


def _inner_call(nodes: Sequence[CallNode], paths_by_id: Mapping[int, str], *, starts_at_owner: bool) -> InnerCall:
    first = nodes[0]
    modules = dict.fromkeys(paths_by_id[id(node.module)] for node in nodes if node.module is not None)
    functions = frozenset(_function_of(part) for node in nodes for part in node.walk() if part.code is not None)
    if first.code is not None and not modules:
        return InnerCall(first.code.co_name, filename=first.code.co_filename, functions=functions)
    return InnerCall(
        type(first.module).__name__,
        tuple(modules),
        first.method,
        functions=functions,
        starts_at_owner=starts_at_owner,
        covers_list=_covers_list(modules, paths_by_id.values()),
    )


def _covers_list(paths: Collection[str], all_paths: Collection[str]) -> bool:
    """Return whether paths lead to one module in each item of a ``ModuleList`` or a similar list of modules."""
    matches = [_ITEM_PATTERN.fullmatch(path) for path in paths]
    if None in matches or len({(match["list"], match["part"]) for match in matches if match}) != 1:
        return False
    list_path = next(match["list"] for match in matches if match)
    items = [match for path in all_paths if (match := _ITEM_PATTERN.fullmatch(path)) and not match["part"]]
    return {match["index"] for match in items if match["list"] == list_path} == {m["index"] for m in matches if m}


@dataclass(eq=False)
class CallNode:
    """The calls from one caller to one function, or to one module's method; the code of the root is ``None``.

    ``module`` is set if the function is a module's ``forward`` or, unless the class is PyTorch's, any public method.
    ``method`` is the function's name. It is empty if ``Module.compile`` affects the call: the call goes through
    ``Module.__call__``, and the class is not one of PyTorch's, whose frames Dynamo skips (torch 2.13).
    """

    code: CodeType | None = None
    module: torch.nn.Module | None = None
    method: str = ""
    direct_op_count: int = 0
    children: dict[tuple[Any, ...], CallNode] = field(default_factory=dict)

    @property
    def op_count(self) -> int:
        """The number of operations, including those of the functions that the function calls."""
        return self.direct_op_count + sum(child.op_count for child in self.children.values())

    @property
    def is_helper(self) -> bool:
        """Whether code calls this function or method by its name, unlike a module's ``forward``."""
        return self.method not in {"", "forward"}

    @property
    def is_forward(self) -> bool:
        """Whether the function is a module's ``forward``."""
        return self.module is not None and not self.is_helper

    def layers(self) -> set[int]:
        """Return the ids of the modules that perform operations and have parameters.

        The parameters must be the module's own or, if it calls no module, may also belong to modules inside it.
        """
        return {
            id(node.module)
            for node in self.walk()
            if node.module is not None and node.op_count
            if _has_parameters(node.module, recurse=all(child.module is None for child in node.children.values()))
        }

    def walk(self) -> Iterator[CallNode]:
        """Yield the node and all nodes below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()


@contextlib.contextmanager
def record_calls(
    program: Callable[..., Any], *, ignores_updates: bool = False
) -> Iterator[tuple[Callable[..., Any], CallNode]]:
    """Yield a function that runs a program and records its calls on this thread, and the root of the record.

    Calls to functions of PyTorch or the standard library belong to their callers; calls to modules are recorded
    separately. With ``ignores_updates``, only those operations count whose result requires a gradient or that a
    module's ``forward`` performs. In a training step, all others are outside of the forward pass, such as updates of
    averages and metrics.
    """
    root = CallNode()
    stack: list[CallNode] = []  # empty while the program does not run
    is_framework_by_code: dict[CodeType, bool] = {}
    earlier_profiler = sys.getprofile()

    def note_event(frame: FrameType, event: str, _: object) -> None:
        if stack and event == "call":
            stack.append(_node_of(frame, stack[-1], is_framework_by_code))
        elif event == "return" and len(stack) > 1:
            stack.pop()

    def count_operation(requires_grad: bool) -> None:  # noqa: FBT001 - the function has no other parameter
        if stack and (not ignores_updates or requires_grad or any(node.is_forward for node in stack)):
            stack[-1].direct_op_count += 1

    def run(*args: Any, **kwargs: Any) -> Any:
        with OperationListener(count_operation):
            stack.append(root)
            try:
                return program(*args, **kwargs)
            finally:
                stack.clear()

    sys.setprofile(note_event)
    try:
        yield run, root
    finally:
        sys.setprofile(earlier_profiler)


def _node_of(frame: FrameType, caller: CallNode, is_framework_by_code: dict[CodeType, bool]) -> CallNode:
    """Return the node of a call that starts or, for a function that is part of its caller, the caller's node."""
    code = frame.f_code
    if code.co_filename == OPTIMIZER_FILE:
        return CallNode()  # its operations are not counted
    if code not in is_framework_by_code:
        is_framework_by_code[code] = is_framework_file(code.co_filename)
    module = _module_of(frame, is_framework=is_framework_by_code[code])
    if module is None and is_framework_by_code[code]:
        return caller
    key = code, id(module)
    if key not in caller.children:
        outer = frame.f_back
        is_called_as_module = outer is not None and outer.f_code in MODULE_CALL_CODE and not is_framework_by_code[code]
        caller.children[key] = CallNode(code, module, "" if is_called_as_module else code.co_name)
    return caller.children[key]


def _module_of(frame: FrameType, *, is_framework: bool) -> torch.nn.Module | None:
    """Return the module whose method a frame runs: ``forward``, or a public method that is not PyTorch's own.

    A static method, or a method that an attribute of the module replaces, cannot be compiled in place: the
    result is then ``None``, as for the code of any other object.
    """
    code = frame.f_code
    is_forward = code.co_name == "forward"
    if not code.co_argcount or (not is_forward and (is_framework or code.co_name.startswith("_"))):
        return None
    first_argument = frame.f_locals.get(code.co_varnames[0])
    if not isinstance(first_argument, torch.nn.Module):
        return None
    class_attribute = inspect.getattr_static(type(first_argument), code.co_name, None)
    is_method = not isinstance(class_attribute, staticmethod) and attribute_of(class_attribute, "__code__") is code
    is_replaced = code.co_name in vars(first_argument)
    return first_argument if (is_forward or is_method) and not is_replaced else None


def _has_parameters(module: torch.nn.Module, *, recurse: bool) -> bool:
    """Return whether a module has parameters, even if its class overrides ``parameters()``."""
    return any(True for _ in torch.nn.Module.named_parameters(module, recurse=recurse))


def is_framework_file(filename: str) -> bool:
    """Return whether a file belongs to PyTorch, Python or this package. Any other library may contain the model."""
    path = package_paths().module_path(filename)
    top_package = (path or "").partition("/")[0].removesuffix(".py")
    return path is not None and (top_package in {"torch", _OWN_PACKAGE} or is_standard_library(path))


def describe_entry(entry: Entry) -> CompiledEntry:
    """Describe an entry as the sources refer to it. A method may be a function whose first argument is the object."""
    function, name = entry.function, str(getattr(entry.function, "__name__", ""))
    parameters = tuple(parameters_of(function))
    if isinstance(function, torch.nn.Module):
        return CompiledEntry(type(function).__name__, is_module=True, parameters=parameters)
    owner, code = getattr(function, "__self__", None), getattr(function, "__code__", None)
    if owner is not None:
        receiver = next(iter(code.co_varnames if code else ()), "self")
        return CompiledEntry(name, type(owner).__name__, parameters=parameters, receiver=receiver)
    passed_values = entry.arguments.by_name(function)
    first_name = next(iter(passed_values), "")
    if first_name and _is_method(function, type(passed_values[first_name])):
        return CompiledEntry(
            name, type(passed_values[first_name]).__name__, parameters=parameters[1:], receiver=first_name
        )
    return CompiledEntry(name, parameters=parameters)


def _is_method(function: Any, class_: type) -> bool:
    """Return whether a function is defined as a method of a class or of its bases, judging by its name."""
    names = {f"{base.__qualname__}.{getattr(function, '__name__', '')}" for base in class_.__mro__}
    return getattr(function, "__qualname__", None) in names
