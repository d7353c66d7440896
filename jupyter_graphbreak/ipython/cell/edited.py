"""Compile the edited text of a cell as IPython compiles the cell."""

from __future__ import annotations

import ast
import types
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.python_text import without_warnings
from jupyter_graphbreak.ipython.cell.function import FUNCTION, as_function, as_module_code, is_valid, split
from jupyter_graphbreak.ipython.cell.rewriting import BeginObservation, internal_call, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from IPython.core.interactiveshell import InteractiveShell


@without_warnings()
def compile_cell(text: str, filename: str, shell: InteractiveShell) -> list[CodeType]:
    """Compile the text of a cell, both unchanged and as the function that the magic may have made from it.

    Parameters
    ----------
    text : str
        The text in the notebook's editor, including the magic's line.
    filename : str
    shell : InteractiveShell

    Raises
    ------
    SyntaxError
        If it is not valid Python.
    """
    tree = ast.parse(shell.transform_cell(text))
    for transformer in shell.ast_transformers:
        if not isinstance(transformer, BeginObservation):
            tree = transformer.visit(tree)
    body = tree.body[1:] if marked(tree) is not None else tree.body
    codes = [_compiled(ast.Module(body, []), filename)]
    _, rest = split(body, lambda _: False)
    if rest:
        statements = as_function(rest, tree.body[0], internal_call)
        if is_valid(statements[:1]):
            codes += _functions(_compiled(ast.Module(statements[:1], []), filename))
    return codes


def compiler_for(shell: InteractiveShell, is_cell: Callable[[str], bool]) -> Callable[[str, str], list[CodeType]]:
    """Return a function that compiles the text of a cell or a file under its file name."""

    @without_warnings()
    def compile_text(text: str, filename: str) -> list[CodeType]:
        if is_cell(filename):
            return compile_cell(text, filename, shell)
        return [compile(text, filename, "exec", dont_inherit=True)]

    return compile_text


def _compiled(tree: ast.Module, filename: str) -> CodeType:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(ast.fix_missing_locations(tree), filename, "exec", flags=flags, dont_inherit=True)
    return code


def _functions(module: CodeType) -> list[CodeType]:
    """Return the code of the function that a cell was made into, in the form in which it runs."""
    codes = [constant for constant in module.co_consts if isinstance(constant, types.CodeType)]
    return [as_module_code(code) for code in codes if code.co_name == FUNCTION]
