"""Find the cell that a code object comes from, and its text in the editor; compile an edited text as IPython does."""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.analysis.python_text import hide_python_warnings
from jupyter_graphbreak.ipython.cell.function import (
    CELL_FUNCTION,
    as_module_code,
    can_compile_without_warning,
    function_statements,
    split_cell,
)
from jupyter_graphbreak.ipython.cell.rewriting import (
    CellRewriter,
    internal_call,
    is_magic_line,
    magic_options,
    read_explain_request,
)
from jupyter_graphbreak.records.source_texts import CellText, FindCell

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from IPython.core.interactiveshell import InteractiveShell

_MAGIC_NAME = "compile_explain"
#: The beginning of the file names that ``%%time`` gives to the code of any cell.
_TIMED_PREFIX = "<timed "


class CellTexts:
    """Finds the cell for the file name of a code object, from the names and the history that the shell stores."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._running_cell: tuple[str, str, int] | None = None

    def request(self) -> dict[str, Any] | None:
        """Return the message that the kernel is handling; a shell without a kernel has none."""
        get_parent = getattr(self._shell, "get_parent", None)
        request: dict[str, Any] | None = get_parent() if get_parent is not None else None
        return request

    @property
    def running_filename(self) -> str | None:
        """The file name of the running cell, if it was noted."""
        return self._running_cell[0] if self._running_cell is not None else None

    def note_running_cell(self, filename: str) -> None:
        """Store the running cell with its text, because the history can be disabled."""
        text = self._text_of_running_cell(filename)
        self._running_cell = (filename, text, self._number_of_running_cell(filename, text))

    def note_calling_cell(self) -> None:
        """Store the running cell whose code has called the line magic, if any."""
        frame = sys._getframe(1)  # noqa: SLF001 - the only way to find the caller
        while frame.f_back is not None and self._number_of(frame.f_code.co_filename) is None:
            frame = frame.f_back
        self._running_cell = None
        if self._number_of(frame.f_code.co_filename) is not None:
            self.note_running_cell(frame.f_code.co_filename)

    def find(self, filename: str) -> CellText | None:
        """Return the cell with a file name; ``None`` if the name belongs to a file."""
        is_timed = filename.startswith(_TIMED_PREFIX)
        if self._running_cell is not None and (is_timed or filename == self._running_cell[0]):
            _, text, number = self._running_cell
            if is_timed:
                return CellText(
                    f"Cell In[{number}]", text.rstrip("\n"), *_offset_below_magic(text), is_name_shared=True
                )
        else:
            cell_number = self._number_of(filename)
            if cell_number is None:
                return None
            number = cell_number
            history = self._history()
            text = history[number] if 0 < number < len(history) else ""
            inner_text = "".join(linecache.getlines(filename)).rstrip()
            if not text or not self._runs_as(text, inner_text):
                # A cell that a magic runs, such as %%capture; its line numbers start below that magic.
                if self._running_cell is not None and _has_lines(self._running_cell[1], inner_text):
                    _, text, number = self._running_cell
                    line_offset = text.count("\n", 0, text.rindex(inner_text))
                    return CellText(f"Cell In[{number}]", text.rstrip("\n"), line_offset, 0)
                if text and not _has_lines(text, inner_text):
                    return None
        offset, indent = _offset_in_cell(text)
        return CellText(f"Cell In[{number}]", text.rstrip("\n"), offset, indent)

    def _runs_as(self, text: str, code: str) -> bool:
        """Return whether IPython runs the given code when it runs the text of a cell.

        Code that ran without an entry in the history, such as the code of VS Code's variable viewer, has the number of
        the next cell.
        """
        with contextlib.suppress(Exception):  # another extension's transformer fails
            return code in {text.rstrip(), self._shell.transform_cell(text).rstrip()}
        return True

    def _history(self) -> list[str]:
        """Return the texts of the cells that have run, by number."""
        manager = self._shell.history_manager
        return manager.input_hist_raw if manager is not None else []

    def _number_of(self, filename: str) -> int | None:
        numbers: dict[str, int] = getattr(self._shell.compile, "_filename_map", {})
        return numbers.get(filename)

    def _number_of_running_cell(self, filename: str, text: str) -> int:
        """Return the number of the running cell.

        IPython has already increased its own number before ``%%time`` runs a cell.
        """
        history = self._history()
        if text.lstrip().startswith("%%") and history and history[-1].strip() == text.strip():
            return len(history) - 1
        return self._number_of(filename) or self._shell.execution_count

    def _text_of_running_cell(self, filename: str) -> str:
        """Return the text of the running cell in the editor, from the message that the kernel is handling."""
        request = self.request()
        code = (request or {}).get("content", {}).get("code")
        if isinstance(code, str) and (_MAGIC_NAME in code or read_explain_request(request) is not None):
            return code
        history = self._history()
        if history and _MAGIC_NAME in history[-1]:
            return str(history[-1])
        return "".join(linecache.getlines(filename))


def _has_lines(text: str, code: str) -> bool:
    """Return whether the given code consists of whole lines of a text."""
    return bool(code) and f"\n{code}\n" in f"\n{text.rstrip()}\n"


def _offset_in_cell(text: str) -> tuple[int, int]:
    """Return the numbers of lines and columns that IPython removes from the beginning of a cell before running it."""
    lines = text.split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return 0, 0
    if is_magic_line(lines[first]):
        return 0, _first_indent(lines[first + 1 :])
    if lines[first].startswith("%%") and any(map(is_magic_line, lines)):
        return _offset_below_magic(text)
    return first, len(lines[first]) - len(lines[first].lstrip())


def _offset_below_magic(text: str) -> tuple[int, int]:
    """Return the number of lines above the code that a magic such as ``%%time`` runs, and of columns to its left.

    Our own magic may be above that magic, or be the first line of that code.
    """
    lines = text.split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip() and not line.startswith("%%")), 0)
    magics = [index for index, line in enumerate(lines[:first]) if line.startswith("%%")]
    other_magics = [index for index in magics if not is_magic_line(lines[index])]
    line_count = other_magics[-1] + 1 if other_magics else 0
    if not any(is_magic_line(lines[index]) for index in magics if index >= line_count):  # IPython removes blank lines
        line_count = first
    return line_count, _first_indent(lines[first:])


def _first_indent(lines: list[str]) -> int:
    first = next((line for line in lines if line.strip()), "")
    return len(first) - len(first.lstrip())


@hide_python_warnings()
def compile_cell(text: str, filename: str, shell: InteractiveShell) -> list[CodeType]:
    """Compile the text of a cell, magic included: unchanged, and as the function into which the magic may turn it."""
    tree = ast.parse(shell.transform_cell(text))
    for transformer in shell.ast_transformers:
        if not isinstance(transformer, CellRewriter):
            tree = transformer.visit(tree)
    body = tree.body[1:] if magic_options(tree) is not None else tree.body
    code_objects = [_compile_tree(ast.Module(body, []), filename)]
    _, statements_to_compile = split_cell(body, lambda _: False)
    if statements_to_compile:
        statements = function_statements(statements_to_compile, tree.body[0], internal_call)
        if can_compile_without_warning(statements[:1]):
            code_objects += _cell_function_code_objects(_compile_tree(ast.Module(statements[:1], []), filename))
    return code_objects


def compiler_for(shell: InteractiveShell, find: FindCell) -> Callable[[str, str], list[CodeType]]:
    """Return a function that compiles the text of a cell or a file under its file name."""

    @hide_python_warnings()
    def compile_text(text: str, filename: str) -> list[CodeType]:
        cell = find(filename)
        if cell is not None:
            # The lines above the code of this file did not run.
            text_that_ran = text.split("\n", cell.line_offset)[-1]
            return compile_cell(text_that_ran, filename, shell)
        return [compile(text, filename, "exec", dont_inherit=True)]

    return compile_text


def _compile_tree(tree: ast.Module, filename: str) -> CodeType:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(ast.fix_missing_locations(tree), filename, "exec", flags=flags, dont_inherit=True)
    return code


def _cell_function_code_objects(module: CodeType) -> list[CodeType]:
    """Return the code of the function that contains the cell's code, as it runs in the notebook."""
    code_objects = [constant for constant in module.co_consts if isinstance(constant, types.CodeType)]
    return [as_module_code(code) for code in code_objects if code.co_name == CELL_FUNCTION]
