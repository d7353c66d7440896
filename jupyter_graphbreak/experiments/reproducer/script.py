"""Write the script for an entry: definitions, inputs, settings, and the calls that reproduce the finding."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import itertools
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.compiled import backend_and_options
from jupyter_graphbreak.experiments.reproducer.definitions import UnwritableError
from jupyter_graphbreak.experiments.reproducer.objects import variable_name_for
from jupyter_graphbreak.experiments.reproducer.renaming import parse_expression
from jupyter_graphbreak.experiments.reproducer.target import CHECK_ID
from jupyter_graphbreak.experiments.reproducer.writer import ScriptWriter
from jupyter_graphbreak.experiments.trial.call_specs import TensorSpec, state_roots
from jupyter_graphbreak.experiments.trial.rebuilt_calls import CannotRebuildError, rebuild_arguments
from jupyter_graphbreak.recording.targets import closure_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyter_graphbreak.experiments.reproducer.target import Target
    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.call_specs import CallSpec
    from jupyter_graphbreak.experiments.trial.entry import Entry

#: The logs in which PyTorch itself reports a break or a recompile.
_LOG_NAMES = {"break": "graph_breaks", "recompile": "recompiles"}
#: Settings that the ``dynamic`` argument of ``torch.compile`` replaces.
_DYNAMIC_SETTINGS = ("automatic_dynamic_shapes", "assume_static_by_default")
_SEED_CALL = "torch.manual_seed(0)"
#: Shows the breaks that PyTorch counts but does not log.
_PRINT_BREAK_COUNTS = "print(dict(torch._dynamo.utils.counters['unimplemented']))"
#: The name of the script's function that calls the program and returns the values to compare.
_COMPARED_FUNCTION = "result"


class ScriptVariant(NamedTuple):
    """The choices for writing a script.

    Small tensors may have their values instead of random ones, objects of packages may be put together from their
    attributes, and lists of modules may contain only the first module of each class. ``error_setting`` turns breaks
    into errors, in addition to those in the user's code.
    """

    uses_values: bool = False
    assembles_objects: bool = False
    shortens_lists: bool = False
    error_setting: str = ""


@dataclass(frozen=True)
class Script:
    """A script as a syntax tree.

    The reduced script must still contain the ``required_parts``. ``new_names`` contains the script's names for
    attributes of the user's modules, by their names in the user's code. The ``packages`` are needed besides PyTorch.
    """

    tree: ast.Module
    required_parts: tuple[str, ...]
    new_names: Mapping[str, str]
    packages: frozenset[str]


def write_script(
    entry: Entry, calls: Sequence[CallSpec], target: Target, settings: Mapping[str, Any], variant: ScriptVariant
) -> Script:
    """Write the script for an entry; raise an UnwritableError if a value that the call needs cannot be written.

    The first call is the one that was copied. The settings of ``torch._dynamo.config`` are those that differ from the
    defaults.
    """
    writer = ScriptWriter(
        uses_values=variant.uses_values,
        assembles_objects=variant.assembles_objects,
        shortens_lists=variant.shortens_lists,
        modules=_modules_of_call(entry),
    )
    function, first_arguments = _plain_callee(entry.function)
    function_text = ast.unparse(writer.expression_of(function))
    if not function_text.isidentifier() and not function_text.replace(".", "").isidentifier():
        name = "model" if isinstance(function, torch.nn.Module) else "function"
        function_text = writer.assign(function, parse_expression(function_text), name)
    texts = _call_texts(writer, entry, first_arguments, calls if target.kind == "recompile" else [])
    compiled_text = _compiled_expression(writer, entry, function_text, variant)
    setup_lines = _setting_lines(entry, target, settings)
    is_check, is_generator = target.kind == CHECK_ID, _is_generator(entry.function)
    if is_check:
        writer.bind(copy, "copy")
        call_lines = _with_modes(entry, _comparison_lines(function_text, compiled_text, texts[0].arguments, target))
    else:
        repeated_lines: list[str] = []
        for text in texts:
            call_line = f"compiled({text.arguments})"
            repeated_lines += [*text.state_changes, f"list({call_line})" if is_generator else call_line]
        call_lines = [f"compiled = {compiled_text}", *_with_modes(entry, repeated_lines)]
    if variant.error_setting == "error_on_graph_break":
        call_lines = [call_lines[0], *_indented_block("with torch._dynamo.error_on_graph_break(True):", call_lines[1:])]
    if not target.is_logged:
        call_lines.append(_PRINT_BREAK_COUNTS)
    tree = writer.build_script(ast.parse("\n".join(call_lines)).body)
    is_random = "torch.rand" in ast.unparse(tree) or ".normal_()" in ast.unparse(tree)
    setup_lines += [_SEED_CALL] if is_random or is_check else []
    end_of_imports = next(
        index for index, part in enumerate(tree.body) if not isinstance(part, ast.Import | ast.ImportFrom)
    )
    tree.body[end_of_imports:end_of_imports] = ast.parse("\n".join(setup_lines)).body
    required_parts = tuple(line for line in setup_lines if line == _SEED_CALL or "set_logs" in line)
    required_parts += () if entry.compiles_inner_function else ("torch.compile(",)
    if is_check:
        required_parts += _comparison_parts(
            tree, writer.known_name(backend_and_options(entry.backend)[0]), raises=bool(target.error[0])
        )
    required_parts += ("list(compiled(",) if is_generator else ()
    required_parts += (_PRINT_BREAK_COUNTS,) if not target.is_logged else ()
    return Script(ast.fix_missing_locations(tree), required_parts, dict(writer.new_names), frozenset(writer.packages))


class _CallText(NamedTuple):
    """The text of a call: the assignments that precede it, and its arguments."""

    state_changes: list[str]
    arguments: str


def _call_texts(
    writer: ScriptWriter, entry: Entry, first_arguments: tuple[Any, ...], calls: Sequence[CallSpec]
) -> list[_CallText]:
    """Return the source text of calls. The first one is always returned and has the entry's arguments."""
    texts = [_CallText([], _arguments_text(writer, first_arguments, entry.arguments))]
    if len(calls) > 1:
        _define_dataclass_variables(writer, entry.arguments)
    for earlier_call, call in itertools.pairwise(calls):
        try:
            rebuilt_arguments = rebuild_arguments(entry.function, call.arguments, call.keyword_names, entry.arguments)
        except CannotRebuildError as error:
            raise UnwritableError(str(error)) from None
        arguments = _arguments_text(writer, first_arguments, rebuilt_arguments)
        texts.append(_CallText(_state_changes(writer, entry, earlier_call, call), arguments))
    return texts


def _comparison_parts(tree: ast.Module, backend: str | None, *, raises: bool) -> tuple[str, ...]:
    """Return the source text of the parts that determine what a script compares: backend, function and calls."""
    compared_parts = [part for part in tree.body if getattr(part, "name", "") in {backend, _COMPARED_FUNCTION}]
    return tuple(map(ast.unparse, compared_parts if raises else [*compared_parts, *tree.body[-3:]]))


def _plain_callee(function: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the callable that a script calls in place of an entry's callable, and the arguments to pass to it first.

    In an entry, a function whose first argument is an object is a bound method, even if no class defines the function.
    """
    if not isinstance(function, types.MethodType):
        return function, ()
    owner, code = function.__self__, getattr(function.__func__, "__code__", None)
    for class_ in type(owner).__mro__:
        for name, member in vars(class_).items():
            if code is not None and _function_identity(member) == _function_identity(function.__func__):
                is_call = isinstance(owner, torch.nn.Module) and name in {"forward", "__call__"}
                return owner if is_call else types.MethodType(member, owner), ()
    return function.__func__, (owner,)


def _modules_of_call(entry: Entry) -> dict[str, torch.nn.Module]:
    """Return the modules that a call uses, by name."""
    modules: dict[str, torch.nn.Module] = {}
    for root, place in state_roots(entry.function, entry.arguments).items():
        value = place.read()
        if isinstance(value, torch.nn.Module):
            modules.setdefault("model" if root.kind == "module" else root.name, value)
    return modules


def _function_identity(function: Any) -> list[tuple[str, int, str]]:
    """Return the identity of a function: files, lines and names of its code and of functions in its closure."""
    code_objects = [
        code
        for part in (function, *closure_values(function))
        if isinstance(code := getattr(part, "__code__", None), types.CodeType)
    ]
    return [(code.co_filename, code.co_firstlineno, code.co_qualname) for code in code_objects]


def _arguments_text(writer: ScriptWriter, first_arguments: tuple[Any, ...], arguments: Arguments) -> str:
    texts = [ast.unparse(writer.expression_of(value)) for value in (*first_arguments, *arguments.args)]
    texts += [f"{name}={ast.unparse(writer.expression_of(value))}" for name, value in arguments.kwargs.items()]
    return ", ".join(texts)


def _define_dataclass_variables(writer: ScriptWriter, arguments: Arguments) -> None:
    """Define variables for dataclasses, because their attributes may change between two calls."""
    for value in (*arguments.args, *arguments.kwargs.values()):
        if dataclasses.is_dataclass(value):
            writer.bind(value, variable_name_for(type(value).__name__))


def _state_changes(writer: ScriptWriter, entry: Entry, earlier_call: CallSpec, later_call: CallSpec) -> list[str]:
    """Return assignments of the numbers, flags and strings that changed between two calls."""
    if earlier_call.state is None or later_call.state is None:
        return []
    roots = state_roots(entry.function, entry.arguments)
    lines = []
    for path, value in later_call.state.items():
        is_plain = isinstance(value, bool | int | float | str | type(None))
        if (
            not is_plain
            or path not in earlier_call.state
            or earlier_call.state[path] == value
            or isinstance(earlier_call.state[path], TensorSpec)
        ):
            continue
        is_named = path.root.kind in {"argument", "module"}  # containers are written as arguments, without a name
        root = writer.known_name(roots[path.root].read()) if is_named and path.root in roots else path.root.name
        if root is not None:
            lines.append(f"{root}{''.join(map(str, path.steps))} = {value!r}")
    return lines


def _is_generator(function: Any) -> bool:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & inspect.CO_GENERATOR)


def _compiled_expression(writer: ScriptWriter, entry: Entry, call_text: str, variant: ScriptVariant) -> str:
    backend, options = backend_and_options(entry.backend)
    backend_text = repr(backend) if isinstance(backend, str) else ast.unparse(writer.expression_of(backend))
    parts = [call_text]
    if backend_text != "'inductor'":
        parts.append(f"backend={backend_text}")
    if variant.error_setting == "fullgraph":
        parts.append("fullgraph=True")
    if entry.dynamic is not None:
        parts.append(f"dynamic={entry.dynamic}")
    if entry.guard_filter is not None:
        options = {**options, "guard_filter_fn": entry.guard_filter}
    if options:
        parts.append(f"options={ast.unparse(writer.expression_of(options))}")
    return call_text if entry.compiles_inner_function else f"torch.compile({', '.join(parts)})"


def _setting_lines(entry: Entry, target: Target, settings: Mapping[str, Any]) -> list[str]:
    lines = [f"torch._dynamo.config.{name} = {value!r}" for name, value in settings.items()
             if entry.dynamic is None or name not in _DYNAMIC_SETTINGS]  # fmt: skip
    if target.kind in _LOG_NAMES and target.is_logged and not target.is_error:
        lines.append(f"torch._logging.set_logs({_LOG_NAMES[target.kind]}=True)")
    modes = entry.modes
    if modes.dtype != torch.float32:
        lines.append(f"torch.set_default_dtype({modes.dtype})")
    if modes.device is not None:
        lines.append(f"torch.set_default_device({modes.device!r})")
    return lines


def _with_modes(entry: Entry, lines: list[str]) -> list[str]:
    modes = entry.modes
    contexts = (
        ["torch.inference_mode()"] if modes.is_inference else [] if modes.records_gradients else ["torch.no_grad()"]
    )
    contexts += [f"torch.autocast({kind!r}, dtype={dtype})" for kind, dtype in modes.autocast]
    return _indented_block(f"with {', '.join(contexts)}:", lines) if contexts else lines


def _indented_block(head: str, lines: list[str]) -> list[str]:
    return [head, *("\n".join(f"    {line}" for line in text.split("\n")) for text in lines)]


def _comparison_lines(call_text: str, compiled_text: str, arguments: str, target: Target) -> list[str]:
    """Return statements that compare the compiled call with the eager call, on copies of the same inputs."""
    arguments_text = (
        f"dict({arguments})" if "=" in arguments.partition("(")[0] else f"({arguments},)" if arguments else "()"
    )
    if target.error[0]:
        return [f"{call_text}({arguments})", f"compiled = {compiled_text}", f"compiled({arguments})"]
    body = ["    inputs = copy.deepcopy(arguments)", f"    {_SEED_CALL}", "    value = call(*inputs)"]
    compared_text = "value"
    if target.gradients_differ:
        body += ["    value.sum().backward()"]
        compared_text = "[item.grad for item in inputs if isinstance(item, torch.Tensor)]"
    elif target.arguments_differ:
        compared_text = "inputs"
    body += [f"    return {compared_text}"]
    return [
        f"arguments = {arguments_text}",
        "\n".join([f"def {_COMPARED_FUNCTION}(call):", *body]),
        f"expected = {_COMPARED_FUNCTION}(copy.deepcopy({call_text}))",
        f"actual = {_COMPARED_FUNCTION}({compiled_text})",
        "torch.testing.assert_close(actual, expected)",
    ]
