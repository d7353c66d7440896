"""Wrap a compiled function in a function that runs code outside the graph, before or after the call."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode, Splice, first_line, fresh_name
from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.experiments.families.site import (
    compile_options,
    dotted_name,
    has_constant_options,
    indentation_step,
    is_torch_compile,
    name_of_torch,
    names_bound,
    names_imported,
    names_read,
    parse_source,
    torch_name_and_imports,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource
    from jupyter_graphbreak.experiments.families.proposal import Condition, Problem
    from jupyter_graphbreak.experiments.families.site import Site
    from jupyter_graphbreak.report.schema import Frame, Report

#: Decorators in whose context the wrapper also runs.
_CONTEXT_DECORATORS = {"autocast", "enable_grad", "inference_mode", "no_grad", "set_grad_enabled"}

#: In the lines of an outer function, the call to the inner one, and the line that returns its result.
CALL = "<call>"
RETURN = f"return {CALL}"


def entry_function(problem: Problem, site: Site) -> FunctionNode | None:
    """Return the function that contains a break, if it is an outermost compiled function that can be wrapped."""
    function = site.function
    is_in_library = any(source.id == site.source_id and source.kind == "library" for source in problem.report.sources)
    if function is None or isinstance(function, ast.AsyncFunctionDef) or is_in_library:
        return None
    if any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Nonlocal) for node in ast.walk(function)):
        return None
    for frame in outermost_frames(problem.report):
        location = frame.location
        if location is None or location.source != site.source_id:
            continue
        if (
            frame.function.rpartition(".")[2] == function.name
            and first_line(function) <= location.line <= function.lineno
        ):
            return function
    return None


def propose_wrapping(
    family: str,
    title: str,
    site: Site,
    function: FunctionNode,
    extra_parameters: str | None,
    outer_lines: Sequence[str],
    splices: Sequence[Splice | None],
    conditions: tuple[Condition, ...],
) -> Iterator[Proposal]:
    """Yield the change that :func:`wrap_function` writes, unless that is impossible."""
    texts = wrap_function(site, function, extra_parameters, outer_lines, splices)
    if texts is not None:
        yield Proposal(family, title, texts, conditions=conditions, compiles_inner_function=True)


def inner_name(source: ParsedSource, function: FunctionNode) -> str:
    """Return the name of the inner function in the texts of :func:`wrap_function`."""
    return fresh_name(source, f"_{function.name}_compiled")


def outermost_frames(report: Report) -> list[Frame]:
    """Return the frames of functions that only eager code or PyTorch's own wrappers, such as ``no_grad``, call."""
    torch_sources = {
        source.id for source in report.sources if source.kind == "library" and (source.path or "").startswith("torch/")
    }
    frames: dict[str, Frame] = {}
    wrappers: set[str] = set()
    for frame in report.frames:
        # A module's forward is called by PyTorch: it is not an entry, but no compiled function calls it either.
        is_called = frame.role == "call" and (frame.caller is None or frame.caller in wrappers)
        if frame.role == "entry" or is_called:
            frames[frame.id] = frame
            if frame.location is not None and frame.location.source in torch_sources:
                wrappers.add(frame.id)
    return list(frames.values())


def wrap_function(
    site: Site,
    function: FunctionNode,
    extra_parameters: str | None,
    outer_lines: Sequence[str],
    splices: Sequence[Splice | None],
) -> dict[str, str] | None:
    """Return source texts in which an outer function wraps a compiled one, renamed to ``_<name>_compiled``.

    Code that compiled the function, in any source, compiles the inner one instead, with the same options. The inner
    function is at the top level of the source, even for a method; it may have extra first parameters, separated by
    commas. In the lines of the outer function, ``CALL`` stands for the call to the inner one. The result is ``None`` if
    that cannot be written.
    """
    source = site.source
    torch_name, imports = torch_name_and_imports(source, function)
    arguments = [*([extra_parameters] if extra_parameters else []), *_forwarded_arguments(function.args)]
    call = f"{inner_name(source, function)}({', '.join(arguments)})"
    other_sources = _sources_without_compilation(site, function)
    if other_sources is None:
        return None
    lines = [line.replace(CALL, call) for line in outer_lines]
    parts = _WrapperParts(inner_name(source, function), extra_parameters, lines, torch_name, imports, other_sources)
    if function in source.tree.body:
        all_splices = _splices_around_function(source, function, parts, splices)
    else:
        all_splices = _splices_around_method(source, function, parts, splices)
    text = source.apply_splices(all_splices) if all_splices is not None else None
    return {site.source_id: text, **other_sources.texts} if text is not None else None


class _WrapperParts(NamedTuple):
    """The parts of new code in which an outer function wraps a compiled one.

    ``other_sources`` no longer compile the function. ``extra_parameters`` are separated by commas.
    """

    inner_name: str
    extra_parameters: str | None
    outer_lines: list[str]
    torch_name: str
    imports: list[str]
    other_sources: _ChangedSources


class _CompiledNames(NamedTuple):
    """The names of a function, or of a class and its objects, and the wrapped method (empty for a function)."""

    names: set[str]
    method: str


class _ChangedSources(NamedTuple):
    """New texts of sources that no longer compile a function, and the options that they compiled it with."""

    texts: dict[str, str]
    options: str
    compiled_names: _CompiledNames


def _sources_without_compilation(site: Site, function: FunctionNode) -> _ChangedSources | None:
    """Return new texts of other sources that no longer compile a function or its class; ``None`` if impossible."""
    owner = next(site.source.ancestors(function), None)
    name = owner.name if isinstance(owner, ast.ClassDef) else function.name
    sources = {source_id: parse_source(text) for source_id, text in site.texts.items() if source_id != site.source_id}
    other_parsed_sources = {
        source_id: source for source_id, source in sources.items() if source is not None and not _defines(source, name)
    }
    all_sources = (site.source, *other_parsed_sources.values())
    # One cell may create or rename the object that another cell compiles.
    names = _names_assigned_from(name, all_sources, is_class=isinstance(owner, ast.ClassDef))
    compiled_names = _CompiledNames(names, function.name if isinstance(owner, ast.ClassDef) else "")
    if any(_compiles_in_unsupported_form(source, compiled_names) for source in all_sources):
        return None
    torch_name = name_of_torch(site.source) or "torch"
    is_decorated = any(is_torch_compile(node, torch_name) for node in function.decorator_list)
    has_known_compilation = is_decorated or any(_compile_calls(source, compiled_names) for source in all_sources)
    if not has_known_compilation and any(
        _may_compile(source, compiled_names, all_sources, defines_function=source is site.source)
        for source in all_sources
    ):
        return None
    texts: dict[str, str] = {}
    options: set[str] = set()
    for source_id, source in other_parsed_sources.items():
        compile_calls = [
            call
            for call in _compile_calls(source, compiled_names)
            if _compiles_in_place(call, compiled_names) or _is_wrapped(call.args[0], compiled_names)
        ]
        if not compile_calls:
            continue
        if not all(map(has_constant_options, compile_calls)):
            return None  # an option uses a name of that cell
        options |= {compile_options(source, call) for call in compile_calls}
        text = source.apply_splices(_compile_removal(source, call, compiled_names) for call in compile_calls)
        if text is None:
            return None
        texts[source_id] = text
    return _ChangedSources(texts, next(iter(options), ""), compiled_names) if len(options) <= 1 else None


def _compile_removal(source: ParsedSource, call: ast.Call, compiled_names: _CompiledNames) -> Splice | None:
    """Return the splice that stops a call from compiling its target; ``None`` if it cannot be written."""
    statement = source.enclosing_node(call, ast.stmt)
    if _compiles_in_place(call, compiled_names):
        return source.deletion(statement) if isinstance(statement, ast.Expr) and statement.value is call else None
    target = call.args[0]
    replaces_method = (
        isinstance(target, ast.Attribute)
        and isinstance(statement, ast.Assign)
        and statement.value is call
        and [dotted_name(part) for part in statement.targets] == [dotted_name(target)]
    )
    if replaces_method and statement is not None:
        return source.deletion(statement)
    return source.replacement(call, source.text_of(target))


def _can_move_options(source: ParsedSource, compile_calls: Sequence[ast.Call], line: int) -> bool:
    """Return whether all calls have the same options, without names that the source first binds after a line."""
    read_names = {name for call in compile_calls for keyword in call.keywords for name in names_read(keyword.value)}

    def defined_names(statements: list[ast.stmt]) -> set[str]:
        functions = {node.name for node in statements if isinstance(node, FunctionNode | ast.ClassDef)}
        return functions | names_bound(ast.Module(statements, []))

    statements = source.tree.body
    names_bound_later = defined_names(statements) - defined_names([node for node in statements if node.lineno < line])
    return len({compile_options(source, call) for call in compile_calls}) <= 1 and not read_names & names_bound_later


def _compiles_in_place(call: ast.Call, compiled_names: _CompiledNames) -> bool:
    """Return whether a call is ``model.compile()`` on an object whose ``forward`` is wrapped."""
    method = call.func
    return (
        compiled_names.method == "forward"
        and isinstance(method, ast.Attribute)
        and method.attr == "compile"
        and dotted_name(method.value) in compiled_names.names
    )


def _is_wrapped(node: ast.expr, compiled_names: _CompiledNames) -> bool:
    """Return whether an expression is the wrapped function, an object of its class, or the method of such an object."""
    is_method = (
        isinstance(node, ast.Attribute)
        and node.attr == compiled_names.method
        and dotted_name(node.value) in compiled_names.names
    )
    return is_method or _refers_to_one_of(node, compiled_names.names)


def _defines(source: ParsedSource, name: str) -> bool:
    """Return whether a source defines a function or class of this name."""
    return any(isinstance(node, FunctionNode | ast.ClassDef) and node.name == name for node in source.tree.body)


def _names_assigned_from(name: str, sources: Sequence[ParsedSource], *, is_class: bool) -> set[str]:
    """Return the name of a function or class, and the names assigned from it, directly or through such a name.

    Assignments of objects count anywhere, but assignments of a function only at the top level.
    """
    assignments = [
        node
        for source in sources
        for node in (ast.walk(source.tree) if is_class else source.tree.body)
        if isinstance(node, ast.Assign)
    ]
    names, count = {name}, 0
    while len(names) > count:
        count = len(names)
        for node in assignments:
            callee = dotted_name(node.value.func) if isinstance(node.value, ast.Call) else ""
            is_result = callee in names and not (is_class and callee == name)
            if not is_result and not names.isdisjoint(names_read(node.value)):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _compile_calls(source: ParsedSource, compiled_names: _CompiledNames) -> list[ast.Call]:
    """Return the calls to ``torch.compile`` whose argument reads one of the names, and those that compile in place."""
    torch_name = name_of_torch(source) or "torch"
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if _compiles_in_place(call, compiled_names)
        or (
            is_torch_compile(call, torch_name)
            and call.args
            and not compiled_names.names.isdisjoint(names_read(call.args[0]))
        )
    ]


def _may_compile(
    source: ParsedSource, compiled_names: _CompiledNames, sources: Sequence[ParsedSource], *, defines_function: bool
) -> bool:
    """Return whether a source compiles something unidentified that may be the function.

    Compiled attributes of objects are considered only in the source that defines the function, and functions that
    compile their argument only if one of the names is passed to them. For a method, ``block.compile()`` on an unknown
    object is considered.
    """
    torch_name = name_of_torch(source) or "torch"
    defined_names = {
        node.name for node in source.tree.body if isinstance(node, FunctionNode | ast.ClassDef)
    } - compiled_names.names
    calls = [node for part in sources for node in ast.walk(part.tree) if isinstance(node, ast.Call)]
    receiving_functions = {
        dotted_name(call.func)
        for call in calls
        if any(_refers_to_one_of(argument, compiled_names.names) for argument in call.args)
    }
    modules = names_imported(source.tree)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        if compiled_names.method and isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
            root = dotted_name(node.func.value).partition(".")[0]
            if root not in {torch_name, *modules}:
                return True
        if not is_torch_compile(node, torch_name) or not node.args:
            continue
        target, enclosing_function = node.args[0], source.enclosing_function(node)
        is_possible = defines_function or isinstance(target, ast.Name)
        if (
            is_possible
            and not _refers_to_one_of(target, defined_names)
            and (enclosing_function is None or enclosing_function.name in receiving_functions)
        ):
            return True
    return False


def _refers_to_one_of(node: ast.expr, names: set[str]) -> bool:
    """Return whether an expression is one of the given names, or creates an object of a class with such a name."""
    return dotted_name(node.func if isinstance(node, ast.Call) else node) in names


def _compiles_in_unsupported_form(source: ParsedSource, compiled_names: _CompiledNames) -> bool:
    """Return whether a source compiles one of the names in a form that cannot move to the inner function.

    Examples are ``torch.compile(model.encode)`` if ``forward`` is wrapped, and ``torch.compile`` under a different
    name.
    """
    torch_name = name_of_torch(source) or "torch"
    for node in ast.walk(source.tree):
        if isinstance(node, FunctionNode | ast.ClassDef) and node.name in compiled_names.names:
            texts = [ast.unparse(part) for part in node.decorator_list if not is_torch_compile(part, torch_name)]
            if any(re.search(r"\bcompile\b", text) for text in texts):
                return True
        if not isinstance(node, ast.Call) or not re.search(r"compile\b", ast.unparse(node.func)):
            continue
        method = node.func
        if (
            isinstance(method, ast.Attribute)
            and dotted_name(method.value) in compiled_names.names
            and not _compiles_in_place(node, compiled_names)
        ):
            return True
        for argument in node.args:
            is_moved = is_torch_compile(node, torch_name) and _is_wrapped(argument, compiled_names)
            is_part = isinstance(argument, ast.Attribute) and dotted_name(argument.value) in compiled_names.names
            if not is_moved and (is_part or _refers_to_one_of(argument, compiled_names.names)):
                return True
    return False


def _splices_around_function(
    source: ParsedSource, function: FunctionNode, parts: _WrapperParts, splices: Sequence[Splice | None]
) -> list[Splice | None] | None:
    start = source.start_of(function)
    parenthesis = source.text.find("(", start)
    header = source.text[start:parenthesis]
    if (
        "\n" in header
        or "[" in header
        or not all(_belongs_to_torch(node, parts.torch_name) for node in function.decorator_list)
    ):
        return None
    compile_calls = _compile_calls(source, parts.other_sources.compiled_names)
    if not all(_refers_to_one_of(call.args[0], parts.other_sources.compiled_names.names) for call in compile_calls):
        return None  # a caller of the function is compiled
    if not _can_move_options(source, compile_calls, function.lineno):
        return None
    all_splices = [*splices, *(source.replacement(call, source.text_of(call.args[0])) for call in compile_calls)]
    if not any(is_torch_compile(node, parts.torch_name) for node in function.decorator_list):
        insertion = source.line_start(first_line(function))
        all_splices.append(Splice(insertion, insertion, f"{_decorator_lines(source, compile_calls, parts)}\n"))
    all_splices.append(
        Splice(start, parenthesis + 1, f"def {parts.inner_name}({_parameter_prefix(parts.extra_parameters, function)}")
    )
    all_splices += _default_removals(source, function)
    indentation = indentation_step(source, function)
    signature = f"def {function.name}{source.text[parenthesis : _signature_end(source, function)]}"
    contexts = [source.text_of(node) for node in function.decorator_list if _is_context(node)]
    lines = parts.outer_lines
    if ast.get_docstring(function) is not None:
        lines = [source.text_of(function.body[0]), *lines]
        all_splices.append(source.deletion(function.body[0]))
    outer_text = "\n".join(
        [*(f"@{context}" for context in contexts), signature, *(f"{indentation}{line}" for line in lines)]
    )
    end = source.line_end(function.end_lineno or function.lineno)
    return [*all_splices, Splice(end, end, f"\n\n\n{outer_text}")]


def _decorator_lines(source: ParsedSource, compile_calls: Sequence[ast.Call], parts: _WrapperParts) -> str:
    """Return the decorator that compiles the inner function, after the lines that import torch if necessary."""
    options = (compile_options(source, compile_calls[0]) if compile_calls else "") or parts.other_sources.options
    return "\n".join([*parts.imports, f"@{parts.torch_name}.compile{options}"])


def _default_removals(source: ParsedSource, function: FunctionNode) -> list[Splice]:
    """Return the splices that remove all defaults if one is a call, because it must not run twice."""
    arguments = function.args
    positional_parameters = [*arguments.posonlyargs, *arguments.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(
            positional_parameters[len(positional_parameters) - len(arguments.defaults) :],
            arguments.defaults,
            strict=True,
        ),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    arguments_with_default = [(argument, default) for argument, default in pairs if default is not None]
    if not any(isinstance(node, ast.Call) for _, default in arguments_with_default for node in ast.walk(default)):
        return []
    return [Splice(source.end_of(argument), source.end_of(default), "") for argument, default in arguments_with_default]


def _belongs_to_torch(decorator: ast.expr, torch_name: str) -> bool:
    """Return whether a decorator comes from torch. Any other decorator may register the function under its name."""
    name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.partition(".")[0] in {"torch", torch_name}


def _is_context(decorator: ast.expr) -> bool:
    """Return whether a decorator runs a function in a context that also applies to the code around the call."""
    name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.rpartition(".")[2] in _CONTEXT_DECORATORS


def _parameter_prefix(extra_parameters: str | None, function: FunctionNode) -> str:
    return f"{extra_parameters}{', ' if ast.unparse(function.args) else ''}" if extra_parameters else ""


def _splices_around_method(
    source: ParsedSource, method: FunctionNode, parts: _WrapperParts, splices: Sequence[Splice | None]
) -> list[Splice | None] | None:
    """Return splices that move a method's body into a top-level function; ``None`` if that is impossible."""
    owner = next(source.ancestors(method))
    first = method.body[1 if ast.get_docstring(method) is not None and len(method.body) > 1 else 0]
    indent, body_indent = source.indent_of(method), source.indent_of(first)
    if not isinstance(owner, ast.ClassDef) or owner not in source.tree.body or method.decorator_list or not indent:
        return None
    if body_indent is None or first.lineno == method.lineno or _must_stay_in_class(method):
        return None
    start, end = source.line_start(first.lineno), source.line_end(method.end_lineno or method.lineno)
    inner_splices = [splice for splice in splices if splice is not None and start <= splice.start <= splice.end <= end]
    if len(inner_splices) < len(splices):
        return None
    text = source.text[start:end]
    for splice in sorted(inner_splices, reverse=True):
        text = text[: splice.start - start] + splice.new_text + text[splice.end - start :]
    lines = text.split("\n")
    if any(line.strip() and not line.startswith(indent) for line in lines):
        return None
    after_parenthesis = source.text.index("(", source.start_of(method)) + 1
    compile_calls = _compile_calls(source, parts.other_sources.compiled_names)
    if not _can_move_options(source, compile_calls, owner.lineno):
        return None
    original_parameters = source.text[after_parenthesis : _signature_end(source, method)]
    inner_parameters = f"{_parameter_prefix(parts.extra_parameters, method)}{original_parameters}"
    moved_lines = (line.removeprefix(indent) for line in lines)
    inner_text = "\n".join(
        [_decorator_lines(source, compile_calls, parts), f"def {parts.inner_name}({inner_parameters}", *moved_lines]
    )
    end_of_class = source.line_end(owner.end_lineno or owner.lineno)
    outer_text = "\n".join(f"{body_indent}{line}" for line in parts.outer_lines)
    all_splices = [_compile_removal(source, call, parts.other_sources.compiled_names) for call in compile_calls]
    if end_of_class == end:
        return [*all_splices, Splice(start, end, f"{outer_text}\n\n\n{inner_text}")]
    return [*all_splices, Splice(start, end, outer_text), Splice(end_of_class, end_of_class, f"\n\n\n{inner_text}")]


def _must_stay_in_class(method: FunctionNode) -> bool:
    """Return whether a method's body depends on its class, or contains a string that dedenting would change."""
    for node in ast.walk(method):
        if isinstance(node, ast.Name) and node.id in {"super", "__class__"}:
            return True
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.startswith("__") and not name.endswith("__"):
            return True
        is_string = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        )
        is_docstring = method.body and isinstance(method.body[0], ast.Expr) and node is method.body[0].value
        if isinstance(node, ast.expr) and is_string and not is_docstring and node.end_lineno != node.lineno:
            return True
    return False


def _signature_end(source: ParsedSource, function: FunctionNode) -> int:
    """Return the character offset after the colon of a function's header."""
    header_start = source.text.index("(", source.start_of(function)) + 1
    if function.returns is not None:
        return source.text.index(":", source.end_of(function.returns)) + 1
    parts = [node for node in ast.walk(function.args) if isinstance(node, ast.expr | ast.arg)]
    ends = [header_start, *(source.end_of(node) for node in parts)]
    return source.text.index(":", source.text.index(")", max(ends))) + 1


def _forwarded_arguments(arguments: ast.arguments) -> list[str]:
    texts = [node.arg for node in (*arguments.posonlyargs, *arguments.args)]
    texts += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    texts += [f"{node.arg}={node.arg}" for node in arguments.kwonlyargs]
    return texts + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])
