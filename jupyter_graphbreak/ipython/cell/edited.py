"""Compile the edited text of a cell as IPython compiles the cell."""

from __future__ import annotations

import ast
import types
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.python_text import without_warnings
from jupyter_graphbreak.ipython.cell.function import FUNCTION, as_function, as_module_code, is_valid, split
from jupyter_graphbreak.ipython.cell.rewriting import BeginObservation, call_of_ours, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from IPython.core.interactiveshell import InteractiveShell


@without_warnings()
def compile_cell(text: str, filename: str, shell: InteractiveShell) -> list[CodeType]:
    """Compile the text of a cell: as it stands, and as the one function that the magic may have made of it.

    Parameters
    ----------
    text : str
        As the notebook's editor has it, with the magic's line.
    filename : str
    shell : InteractiveShell

    Raises
    ------
    SyntaxError
        If it is no Python.
    """
    tree = ast.parse(shell.transform_cell(text))
    for transformer in shell.ast_transformers:
        if not isinstance(transformer, BeginObservation):
            tree = transformer.visit(tree)
    body = tree.body[1:] if marked(tree) is not None else tree.body
    codes = [_compiled(ast.Module(body, []), filename)]
    _, rest = split(body, lambda _: False)
    if rest:
        made = as_function(rest, tree.body[0], call_of_ours)
        if is_valid([made[0]]):
            codes += _functions(_compiled(ast.Module(made[:1], []), filename))
    return codes


def compiler_for(shell: InteractiveShell, is_cell: Callable[[str], bool]) -> Callable[[str, str], list[CodeType]]:
    """Return what compiles the text of a source under its file name, whether it is a cell or a file."""

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
    """Return the code of the function that a cell was made into, as it is when it runs."""
    found = [constant for constant in module.co_consts if isinstance(constant, types.CodeType)]
    return [as_module_code(code) for code in found if code.co_name == FUNCTION]
