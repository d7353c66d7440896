"""Find imports of user modules, and judge whether an import changes anything besides the module.

Python runs a module once. If a trial is the first to import a module, the module stays imported, so a real call would
not repeat the effects of the import.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import importlib.machinery
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.trial.assigned_attributes import STATE_CHANGING_NAMES
from jupyter_graphbreak.experiments.trial.code_roles import is_user_code
from jupyter_graphbreak.records.package_paths import is_library
from jupyter_graphbreak.records.records import StackFrame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType


def describe_import(name: str) -> str | None:
    """Return an effect of an import that outlives a trial, as the rest of a sentence, or ``None`` if there is none."""
    file = _file_to_import(name)
    if file is None or not _changes_objects(file):
        return None
    return f"imports the module {name} for the first time, which changes more than the module"


def unloaded_modules(code_objects: Iterable[CodeType]) -> list[str]:
    """Return the user's modules that code imports, that are not loaded, and whose import changes nothing else."""
    names = dict.fromkeys(
        name for code in code_objects if is_user_code(code.co_filename) for name in _imported_names(code)
    )
    return [name for name in names if (file := _file_to_import(name)) is not None and not _changes_objects(file)]


@functools.lru_cache(maxsize=1024)
def _imported_names(code: CodeType) -> tuple[str, ...]:
    return tuple(item.argval for item in dis.get_instructions(code) if item.opname == "IMPORT_NAME" and item.argval)


def _file_to_import(name: str) -> str | None:
    """Return the file of a user's module that is not loaded, or ``None`` for any other module."""
    parent = name.rpartition(".")[0]
    folders = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    if name in sys.modules or (parent and folders is None):
        return None
    spec = importlib.machinery.PathFinder.find_spec(name, folders)
    file = spec.origin if spec is not None else None
    return file if file is not None and file.endswith(".py") and not is_library(file) else None


@functools.lru_cache(maxsize=256)
def _changes_objects(file: str) -> bool:
    """Return whether the top level of a file may change objects that the file does not define."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    statements = list(_statements(tree.body))
    defined_names = {name for statement in statements for name in _defined_names(statement)}
    harmless_names = {name for statement in statements for name in _names_of_classes_and_libraries(statement)}
    harmless_names |= defined_names | {"__file__", "__name__"}
    return any(
        _changes_other_objects(statement, defined_names) or _calls_user_code(statement, harmless_names)
        for statement in statements
    )


def _names_of_classes_and_libraries(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement gives to classes, to packages, and to objects imported from packages."""
    match statement:
        case ast.ClassDef(name=name):
            yield name
        case ast.Import(names):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in names if _is_installed(alias.name))
        case ast.ImportFrom(module=str(module), level=0) if _is_installed(module):
            yield from (alias.asname or alias.name for alias in statement.names)


@functools.lru_cache(maxsize=1024)
def _is_installed(module: str) -> bool:
    """Return whether a module belongs to the standard library or to an installed package."""
    top_package = module.partition(".")[0]
    if top_package in sys.stdlib_module_names:
        return True
    spec = importlib.machinery.PathFinder.find_spec(top_package)
    return spec is not None and is_library(spec.origin or "")


def _calls_user_code(statement: ast.stmt, harmless_names: set[str]) -> bool:
    """Return whether an assignment, a decorator or a base class may run a user's function, even indirectly."""
    match statement:
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            functions = [call.func for call in ast.walk(value) if isinstance(call, ast.Call)]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            functions = [getattr(decorator, "func", decorator) for decorator in statement.decorator_list]
            functions += [base for base in getattr(statement, "bases", ()) if _runs_user_code_when_subclassed(base)]
        case _:
            return False
    return any(
        (name := _first_name(function)) is not None and name not in harmless_names and not hasattr(builtins, name)
        for function in functions
    )


def _first_name(expression: ast.expr) -> str | None:
    """Return the first name in an expression such as ``a.b(c)[0]``, or ``None`` if the first part is a literal."""
    while isinstance(expression, ast.Attribute | ast.Subscript | ast.Call):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    if isinstance(expression, ast.Constant | ast.JoinedStr | ast.List | ast.Tuple | ast.Dict | ast.Set):
        return None
    return getattr(expression, "id", "")


def _runs_user_code_when_subclassed(base: ast.expr) -> bool:
    """Return whether a loaded class with a base's name runs user code when a class is derived from it."""
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
    for module in sys.modules.copy().values():
        cls = getattr(module, "__dict__", {}).get(name)
        if isinstance(cls, type) and cls.__module__ == module.__name__:
            hooks = [vars(part).get("__init_subclass__") for part in cls.__mro__]
            functions = [*(getattr(hook, "__func__", None) for hook in hooks), getattr(type(cls), "__init__", None)]
            code_objects = (getattr(function, "__code__", None) for function in functions)
            if any(code is not None and not is_library(code.co_filename) for code in code_objects):
                return True
    return False


def _defined_names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.Assign(targets):
            names = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            yield from (name.id for name in names if isinstance(name.ctx, ast.Store))
        case ast.AnnAssign(ast.Name(id=name)) | ast.ClassDef(name=name):
            yield name


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run on import, including those in branches, loops and classes."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for _, value in ast.iter_fields(statement):
                if isinstance(value, list):
                    yield from _statements([part for part in value if isinstance(part, ast.stmt)])


def _changes_other_objects(statement: ast.stmt, defined_names: set[str]) -> bool:
    match statement:
        case ast.Expr(ast.Call(ast.Name(id="print"))):
            return False
        case ast.Expr(ast.Call(func)):
            return isinstance(func, ast.Name) or _belongs_to_other_object(func, defined_names)
        case ast.Assign(targets) | ast.Delete(targets):
            return any(_belongs_to_other_object(target, defined_names) for target in targets)
        case ast.AugAssign(target) | ast.AnnAssign(target):
            return _belongs_to_other_object(target, defined_names)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return any(STATE_CHANGING_NAMES.match(_decorator_name(decorator)) for decorator in statement.decorator_list)
    return False


def _belongs_to_other_object(part: ast.expr, defined_names: set[str]) -> bool:
    return isinstance(part, ast.Attribute | ast.Subscript) and _root_name(part) not in defined_names


def _root_name(expression: ast.expr) -> str:
    """Return the first name in an expression such as ``a.b[0]``."""
    while isinstance(expression, ast.Attribute | ast.Subscript):
        expression = expression.value
    return getattr(expression, "id", "")


def _decorator_name(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def line_that_imports(name: str, code_objects: Iterable[CodeType]) -> StackFrame | None:
    """Return the line of user code that imports a module, or ``None`` if there is none."""
    for code in code_objects:
        for instruction in dis.get_instructions(code) if is_user_code(code.co_filename) else ():
            positions = instruction.positions
            is_import = instruction.opname in {"IMPORT_NAME", "LOAD_CONST"} and instruction.argval == name
            if is_import and positions is not None:
                return StackFrame(
                    code.co_filename, positions.lineno or code.co_firstlineno, code.co_name, code.co_firstlineno
                )
    return None
