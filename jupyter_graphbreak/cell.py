"""Run a notebook cell exactly as IPython would, with an eye on it: the IPython side of ``%%compile_explain``.

A cell magic of the usual kind is handed the cell's text and must run it itself; line numbers, ``await``, the displayed
last value and tracebacks then differ from an ordinary run. So this magic does not run the cell. Its line is replaced
by a string of the same one line, and IPython runs the rest as it runs any cell; when IPython has parsed the cell, the
string becomes a call that begins the observation, and IPython's own event at the end of the cell ends it.

A front end can ask for the same in the metadata of its request, for a cell that has no such line: ``{"graphbreak":
{"explain": "<options>"}}``. The call then gets no line of its own, and all lines stay those of the cell.

Knows IPython, not torch.
"""

from __future__ import annotations

import ast
import dis
import linecache
import re
import types
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from IPython.core.inputtransformer2 import cell_magic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.recorder import CellText

MAGIC = "%%compile_explain"
_MAGIC_LINE = re.compile(rf"{MAGIC}(?![\w?])(?P<options>.*)$")
_FUNCTION = "_graphbreak_cell"
_HOME = "jupyter_graphbreak.magic"

#: What is done with the cell: it compiles something itself; it is compiled as one function; it has nothing to
#: compile; it cannot be one function.
Plan = Literal["as it stands", "compiled", "nothing", "not compilable"]


def replace_magic_line(lines: list[str]) -> list[str]:
    """Replace the magic's line by a string that says the same; an input transformer of IPython.

    The number of lines stays as it is, so that code keeps the line numbers that the editor shows. A further cell magic
    below it is turned into the call that IPython would make of it.
    """
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    match = _MAGIC_LINE.match(lines[first].rstrip("\n")) if first is not None else None
    if first is None or match is None:
        return lines
    body = lines[first + 1 :]
    start = next((index for index, line in enumerate(body) if line.strip()), None)
    indent = ""
    if start is not None:
        # IPython takes the first line's indentation off the whole cell.
        indent = body[start][: len(body[start]) - len(body[start].lstrip())]
        if body[start].startswith("%%"):
            body = [*body[:start], *cell_magic(body[start:])]
    return [f"{indent}{MAGIC + match['options']!r}\n", *["\n"] * first, *body]


class Asked(msgspec.Struct, frozen=True):
    """What a front end asks for in the metadata of a request.

    Parameters
    ----------
    explain : str
        The options, as they would stand in the magic's line.
    skip_definitions : bool
        Run a cell that only imports and defines as it is, with no report: there would be nothing in it.
    """

    explain: str
    skip_definitions: bool = False


def asked_by(request: Mapping[str, Any] | None) -> Asked | None:
    """Return what an ``execute_request`` asks for, ``None`` where it asks for nothing that can be understood."""
    metadata = (request or {}).get("metadata")
    try:
        return msgspec.convert(metadata["graphbreak"], Asked) if isinstance(metadata, dict) else None
    except (KeyError, msgspec.ValidationError):
        return None


class BeginObservation(ast.NodeTransformer):
    """Turn the string that stands for the magic into the call that begins it; an AST transformer of IPython.

    A cell that compiles nothing itself becomes the body of one function, which that call's partner compiles. Names
    that it assigns are declared global: they go to the notebook as ever.

    Parameters
    ----------
    uses_compile : callable
        Whether a cell compiles something itself.
    code_magic : callable
        Whether a line magic runs code of its own.
    take_asked : callable
        What the front end asks for of the cell that is about to run, once.
    """

    def __init__(
        self,
        uses_compile: Callable[[ast.Module], bool],
        code_magic: Callable[[str], bool] = lambda _: False,
        take_asked: Callable[[], Asked | None] = lambda: None,
    ) -> None:
        self._uses_compile = uses_compile
        self._code_magic = code_magic
        self._take_asked = take_asked

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Rewrite a cell that starts with the string or that is asked for; leave any other alone."""
        asked = self._take_asked()
        options = _marked(node)
        if options is not None:
            return self._rewritten(node, node.body[0], node.body[1:], Asked(options))
        if asked is not None:
            start = node.body[0] if node.body else ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
            return self._rewritten(node, start, node.body, asked)
        return node

    def _rewritten(self, node: ast.Module, at: ast.stmt, body: list[ast.stmt], asked: Asked) -> ast.Module:
        plan: Plan
        reason = _cell_magic(body)
        if reason or self._uses_compile(ast.Module(body, [])):
            plan = "as it stands"
        else:
            lead, rest = _split(body, self._code_magic)
            reason = _why_no_function(rest, self._code_magic)
            plan = "nothing" if not rest else "not compilable" if reason else "compiled"
            if plan == "nothing" and asked.skip_definitions:
                return node
            if plan == "compiled":
                body = [*lead, *_as_function(rest, at)]
        begin = _call("begin", [ast.Constant(asked.explain), ast.Constant(plan), ast.Constant(reason)], at)
        return ast.fix_missing_locations(ast.Module([begin, *body], node.type_ignores))


def _marked(node: ast.Module) -> str | None:
    """Return the options of the magic if the cell starts with the string that stands for it."""
    match node.body[:1]:
        case [ast.Expr(ast.Constant(str(text)))] if (found := _MAGIC_LINE.match(text)) is not None:
            return found["options"].strip()
    return None


def _cell_magic(body: list[ast.stmt]) -> str:
    """Return the further cell magic that has the rest of the cell, as text: there is nothing to make a function of."""
    for node in _own_nodes(body):
        match node:
            case ast.Call(ast.Attribute(_, "run_cell_magic"), [ast.Constant(str(name)), *_]):
                return f"%%{name}"
    return ""


def _is_command(node: ast.stmt, code_magic: Callable[[str], bool]) -> bool:
    """Whether a statement is a line magic or a shell command, which have nothing to compile in them."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython")), "run_line_magic"), [name, *_])):
            return not (isinstance(name, ast.Constant) and code_magic(str(name.value)))
        case ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython")), "system" | "getoutput"))):
            return True
    return False


def _call(name: str, arguments: list[ast.expr], at: ast.stmt) -> ast.Expr:
    """Make ``__import__("jupyter_graphbreak.magic").magic.NAME(...)``: it needs no name in the user's namespace."""
    module = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant(_HOME)], [])
    home = ast.Attribute(module, _HOME.rpartition(".")[2], ast.Load())
    made = ast.Expr(ast.Call(ast.Attribute(home, name, ast.Load()), arguments, []))
    return ast.copy_location(made, at)


def _split(body: list[ast.stmt], code_magic: Callable[[str], bool]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Part the imports, definitions and magics at the top, which run as they are, from the code to compile."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    leading = (isinstance(each, kinds) or _is_command(each, code_magic) for each in body)
    count = next((index for index, leads in enumerate(leading) if not leads), len(body))
    return body[:count], body[count:]


def _own_nodes(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of the cell's own level, not those inside functions and classes that it defines."""
    pending: list[ast.AST] = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


# What means another scope inside a function, or is looked up while nothing is assigned yet.
_OF_THE_MODULE = frozenset({"exec", "eval", "locals", "vars", "dir", "globals", "NameError", "__annotations__"})


def _why_no_function(body: list[ast.stmt], code_magic: Callable[[str], bool] = lambda _: False) -> str:
    for node in _own_nodes(body):
        if isinstance(node, ast.Name) and node.id in _OF_THE_MODULE:
            return f"it uses {node.id}, which means something else inside a function"
        match node:
            case ast.Call(ast.Attribute(_, "run_line_magic"), [ast.Constant(str(name)), *_]) if code_magic(name):
                return f"it uses %{name}, which runs code of its own"
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            return "it awaits at its top level"
        if isinstance(node, ast.ImportFrom) and any(each.name == "*" for each in node.names):
            return "it imports *"
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return "it imports from __future__"
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return "it returns or yields outside a function"
    return ""


class _DropAnnotations(ast.NodeTransformer):
    """``x: int = 3`` cannot be said of a global name; ``x = 3`` does the same."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node


def _as_function(body: list[ast.stmt], at: ast.stmt) -> list[ast.stmt]:
    names = sorted(_assigned(body))
    awaited = ",".join(_stored_first(body))
    body = [_DropAnnotations().visit(each) for each in body]
    last = body[-1]
    if isinstance(last, ast.Expr):  # the cell's value, which IPython displays
        body = [*body[:-1], ast.copy_location(ast.Return(last.value), last)]
    declared: list[ast.stmt] = [ast.Global(names)] if names else []
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    function = ast.FunctionDef(_FUNCTION, arguments, [*declared, *body], [])
    for each in declared:
        ast.copy_location(each, at)
    run = _call("run_function", [ast.Constant(_FUNCTION), ast.Constant(awaited)], at)
    # The error of the cell is shown as that of any cell: without the frames in between.
    handler = ast.ExceptHandler(
        ast.Name("BaseException", ast.Load()), None, [_call("trim_traceback", [], at), ast.Raise()]
    )
    attempt = ast.Try([run], [handler], [], [])
    return [ast.copy_location(each, at) for each in (function, attempt, _call("value", [], at))]


def _stored_first(body: list[ast.stmt]) -> list[str]:
    """Return the names that are assigned before they are read, in the order of the text.

    Only these may exist before the cell runs: a name that is read first is one that is there, or an error.
    """
    code = compile(ast.fix_missing_locations(ast.Module(body, [])), "<names>", "exec", dont_inherit=True)
    first: dict[str, bool] = {}
    for each in dis.get_instructions(code):
        if each.opname in {"STORE_NAME", "STORE_GLOBAL"}:
            first.setdefault(each.argval, True)
        elif each.opname in {"LOAD_NAME", "LOAD_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL"}:
            first.setdefault(each.argval, False)
    inner = _assigned(body) - set(first)  # by a walrus inside a comprehension
    return sorted({name for name, stored in first.items() if stored} | inner)


def _assigned(body: list[ast.stmt]) -> set[str]:
    """Return the names that some statements assign or delete at the level of the module."""
    code = compile(ast.fix_missing_locations(ast.Module(body, [])), "<names>", "exec", dont_inherit=True)
    names = set()
    pending = [code]
    while pending:
        each = pending.pop()
        # a name of the module that a function in the cell declares global is stored as a global, too
        stores = ("STORE_NAME", "DELETE_NAME", "STORE_GLOBAL", "DELETE_GLOBAL") if each is code else ("STORE_GLOBAL",)
        names |= {i.argval for i in dis.get_instructions(each) if i.opname in stores}
        # a walrus inside a comprehension assigns in the scope around it
        pending += [c for c in each.co_consts if hasattr(c, "co_code") and c.co_name.endswith("comp>")]
    return names


def names_read(tree: ast.AST) -> set[str]:
    """Return the names that code mentions, at any depth."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def mentions_compile(tree: ast.AST, namespace: Mapping[str, Any]) -> bool:
    """Whether code calls something ``compile`` that may be torch's: ``torch.compile``, ``model.compile()``.

    ``re.compile`` and the like are told apart by what their name stands for, in the namespace or in the code's own
    imports.
    """
    modules = {
        alias.asname or alias.name.partition(".")[0]: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            if any(alias.name == "compile" for alias in node.names):
                return True
        elif isinstance(node, ast.Attribute) and node.attr in {"compile", "optimize"}:
            base = node.value.id if isinstance(node.value, ast.Name) else None
            known = namespace.get(base) if base is not None else None
            home = modules.get(base or "") or (getattr(known, "__name__", None) if hasattr(known, "__spec__") else None)
            if node.attr == "optimize":
                if ast.unparse(node).endswith("_dynamo.optimize"):
                    return True
            elif not isinstance(home, str) or home.partition(".")[0] == "torch":
                return True
    return False


class Cells:
    """Tells which cell a code object's file name stands for.

    Parameters
    ----------
    shell : InteractiveShell
        Its compiler knows the names, its history the texts.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._current: tuple[str, str, int] | None = None

    def request(self) -> dict[str, Any] | None:
        """Return the message that the kernel is answering; a shell without a kernel has none."""
        get_parent = getattr(self._shell, "get_parent", None)
        request: dict[str, Any] | None = get_parent() if get_parent is not None else None
        return request

    def enter(self, filename: str) -> None:
        """Note the cell that is running now; its text is not in the history where the history is switched off."""
        self._current = (filename, self._running_text(filename), self._number(filename) or self._shell.execution_count)

    def find(self, filename: str) -> CellText | None:
        """Return the cell that a file name stands for, ``None`` for a file."""
        from jupyter_graphbreak.recorder import CellText

        if self._current is not None and filename == self._current[0]:
            _, text, number = self._current
        else:
            found = self._number(filename)
            if found is None:
                return None
            number = found
            history = self._shell.history_manager
            raw = history.input_hist_raw if history is not None else []
            text = raw[number] if 0 < number < len(raw) else ""
            inner = "".join(linecache.getlines(filename)).rstrip()
            if self._current is not None and inner and inner in self._current[1]:
                # A cell that a magic of this one runs, such as %%capture: its lines count from below that magic.
                _, text, number = self._current
                above = text.count("\n", 0, text.rindex(inner))
                return CellText(f"Cell In[{number}]", text.rstrip("\n"), above, 0)
        offset, indent = _cut_off(text)
        return CellText(f"Cell In[{number}]", text.rstrip("\n"), offset, indent)

    def _number(self, filename: str) -> int | None:
        known: dict[str, int] = getattr(self._shell.compile, "_filename_map", {})
        return known.get(filename)

    def _running_text(self, filename: str) -> str:
        """Return the text of the running cell as the editor has it: the request that the kernel is answering."""
        request = self.request()
        code = (request or {}).get("content", {}).get("code")
        if isinstance(code, str) and (MAGIC in code or asked_by(request) is not None):
            return code
        history = self._shell.history_manager
        raw = history.input_hist_raw if history is not None else []
        if raw and MAGIC in raw[-1]:
            return str(raw[-1])
        return "".join(linecache.getlines(filename))


def _cut_off(text: str) -> tuple[int, int]:
    """Return how many lines and columns IPython cuts off the front of a cell before it runs it."""
    lines = text.split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return 0, 0
    if _MAGIC_LINE.match(lines[first]):
        body = next((line for line in lines[first + 1 :] if line.strip()), "")
        return 0, len(body) - len(body.lstrip())
    return first, len(lines[first]) - len(lines[first].lstrip())


class Unassigned(msgspec.Struct, frozen=True):
    """Stands for a name that is to be assigned: Dynamo reads back a new global only if it was there before."""


UNASSIGNED = Unassigned()


def declare(namespace: dict[str, Any], names: str) -> None:
    """Make sure that names to be assigned exist."""
    for name in filter(None, names.split(",")):
        namespace.setdefault(name, UNASSIGNED)


def withdraw(namespace: dict[str, Any], names: str) -> None:
    """Take names away again that were not assigned after all."""
    for name in filter(None, names.split(",")):
        if namespace.get(name) is UNASSIGNED:
            del namespace[name]


def as_module_code(code: types.CodeType) -> types.CodeType:
    """Return the code of the function that a cell was made into, and of what is in it, under the names of a module."""
    prefix = f"{_FUNCTION}.<locals>."
    constants = tuple(as_module_code(each) if isinstance(each, types.CodeType) else each for each in code.co_consts)
    if code.co_name == _FUNCTION:
        return code.replace(co_name="cell", co_qualname="cell", co_consts=constants)
    return code.replace(co_qualname=code.co_qualname.removeprefix(prefix), co_consts=constants)


def trim(error: BaseException, is_cell: Callable[[str], bool]) -> None:
    """Take the frames between the notebook and the cell's own off an error's traceback.

    Parameters
    ----------
    error : BaseException
    is_cell : callable
        Whether a function of this name is the cell, or goes on with it after a break.
    """
    if error.__traceback__ is None:
        return
    filename = error.__traceback__.tb_frame.f_code.co_filename
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        pending += [each.__cause__, each.__context__]
        kept = None
        entry = each.__traceback__
        while entry is not None:
            code = entry.tb_frame.f_code
            if code.co_filename == filename and is_cell(code.co_name):
                kept = entry
            entry = entry.tb_next
        if kept is not None:
            each.__traceback__ = _at_module_level(kept)


def _at_module_level(entry: types.TracebackType) -> types.TracebackType:
    """Return the entry of a traceback as if its line stood in the cell itself.

    Not only for its looks: IPython hashes the code of each frame, and Dynamo's has constants that have no hash.
    """
    code, namespace = entry.tb_frame.f_code, entry.tb_frame.f_globals
    stand_in = compile("\n" * (entry.tb_lineno - 1) + "raise StopIteration", code.co_filename, "exec")
    try:
        exec(stand_in, namespace)  # noqa: S102 - the line above
    except StopIteration as raised:
        made = raised.__traceback__
        frame = made.tb_next if made is not None else None
        if frame is not None:
            return types.TracebackType(entry.tb_next, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return entry
