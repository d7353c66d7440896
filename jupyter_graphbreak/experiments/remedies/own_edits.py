"""Read the user's own changes (edited cells, a new function, or a patch), and apply a patch to this process."""

from __future__ import annotations

import ast
import contextlib
import difflib
import inspect
import linecache
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from jupyter_graphbreak.analysis.python_text import parse_python
from jupyter_graphbreak.experiments.families.proposal import Condition
from jupyter_graphbreak.experiments.remedies.application import CannotApplyError, Program, replace_functions
from jupyter_graphbreak.experiments.remedies.change import Change, apply_edits, edits_of, patch_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from unidiff.patch import Hunk, PatchedFile

#: IPython strips blank lines at the end of a cell, so the last hunk of a patch may lack up to three lines of context.
_STRIPPED_LINES = "\n" * 4
#: The first line of a function after its decorators.
_DEFINITION_LINE = re.compile(r"\s*(?:async\s+)?def\s")


@dataclass(frozen=True)
class EditedCells:
    """Cells that the user edited, each with its whole old and new text, as the editor shows it, magics included."""

    texts: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        """The title in a report."""
        return "Your edit"

    def texts_for(self, program: Program, _: Mapping[str, str]) -> dict[str, str]:
        """Return the new text of each cell that is in the program, by the id of its source."""
        new_texts = {old.rstrip(): new for old, new in self.texts}
        return {source: new_texts[old] for source, text in program.texts.items() if (old := text.rstrip()) in new_texts}


@dataclass(frozen=True)
class Patch:
    """A patch that the user wrote: a unified diff, with paths as in a remedy's patch or as ``git diff`` writes them.

    A ValueError is raised for any other text.
    """

    name: str
    text: str

    def __post_init__(self) -> None:
        if not changed_files(self.text):
            raise ValueError(f"{self.name} is not a patch: a unified diff is needed, as git diff or diff -u writes it")

    @property
    def title(self) -> str:
        """The title in a report."""
        return f"Your patch, {self.name}"

    @property
    def files(self) -> list[str]:
        """The files that the patch changes."""
        return [changed_file.path for changed_file in changed_files(self.text)]

    def texts_for(self, program: Program, names: Mapping[str, str]) -> dict[str, str]:
        """Return the new text of each source that the patch changes, by the source's id.

        A CannotApplyError is raised if a text differs from the patch, or the patch also changes other Python files.
        """
        new_texts: dict[str, str] = {}
        other_files: list[str] = []
        for changed_file in changed_files(self.text):
            source = _source_of_path(changed_file.path, program.files, names)
            if source is None or source not in program.texts:
                other_files += [changed_file.path] if changed_file.path.endswith(".py") else []
            else:
                new_texts[source] = apply_hunks(program.texts[source], changed_file.path, changed_file)
        if new_texts and other_files:
            raise CannotApplyError(f"it also changes {other_files[0]}, and nothing in that file was compiled")
        return new_texts


def changed_files(patch: str) -> list[PatchedFile]:
    """Return the files that a unified diff changes, or an empty list if the text is not a unified diff."""
    try:
        return list(PatchSet(patch))
    except UnidiffParseError:
        return []


def apply_hunks(text: str, path: str, hunks: Iterable[Hunk]) -> str:
    """Return source text with the hunks of a patch applied, or raise a CannotApplyError if it lacks their lines."""
    lines = text.split("\n")
    for hunk in sorted(hunks, key=lambda hunk: hunk.source_start, reverse=True):
        first = hunk.source_start - (1 if hunk.source_length else 0)
        old_lines = [line.value.rstrip("\r\n") for line in hunk if line.is_context or line.is_removed]
        new_lines = [line.value.rstrip("\r\n") for line in hunk if line.is_context or line.is_added]
        for number, line in enumerate(old_lines, start=first):
            if number >= len(lines) or lines[number] != line:
                raise CannotApplyError(f"line {number + 1} of {path} is not {line.strip()!r}")
        lines[first : first + len(old_lines)] = new_lines
    return "\n".join(lines)


def require_exact_edits(original_texts: Mapping[str, str], change: Change) -> None:
    """Raise a CannotApplyError if the edits or the patch of a change do not turn the original into its texts."""
    edits = edits_of(original_texts, change)
    diff = patch_of(original_texts, change, {source: f"{source}.py" for source in change.texts})
    by_path = {patched_file.path: patched_file for patched_file in PatchSet(diff)} if diff is not None else {}
    for source, text in change.texts.items():
        text_by_edits = apply_edits(original_texts[source], [edit for edit in edits if edit.source == source])
        text_by_patch = text
        if f"{source}.py" in by_path and "\r" not in original_texts[source]:
            text_by_patch = apply_hunks(original_texts[source], f"{source}.py", by_path[f"{source}.py"])
        if text_by_edits != text or text_by_patch != text:
            raise CannotApplyError("its edits of whole lines do not produce the text that was tried")


def read_patch(path: str | os.PathLike[str]) -> Patch:
    """Read a patch from a file; raise an OSError if that fails, or a ValueError if the file is not a unified diff."""
    path = Path(path).expanduser()
    return Patch(path.name, path.read_text(encoding="utf-8"))


def change_from_texts(texts: Mapping[str, str], program: Program, compiled_cell: str | None) -> Change:
    """Return new texts as a change that can be applied to existing functions.

    ``compiled_cell`` is the file name of the cell that is called, if it was compiled as one function. A
    CannotApplyError is raised if an edit changes code outside of functions, which would have to run again, or how a
    function is compiled.
    """
    moves_compilation = False
    for source, text in texts.items():
        old_tree, new_tree = parse_python(program.texts[source]), parse_python(text)
        if old_tree is None or new_tree is None:
            continue  # applying the change reports the syntax error
        is_function = program.files[source] == compiled_cell
        old_parts, new_parts = (
            list(_top_level_parts(tree.body, is_function=is_function)) for tree in (old_tree, new_tree)
        )
        line = _first_change_outside_functions(old_parts, new_parts)
        if line is not None:
            raise CannotApplyError(
                f"line {line} is outside of functions: run the cell to see the effect of changing it"
            )
        old_decorators, new_decorators = _compiling_decorators(old_tree), _compiling_decorators(new_tree)
        removed_names = old_decorators.keys() - new_decorators.keys()
        has_changed_decorators = any(
            old_decorators[name] != new_decorators[name] for name in old_decorators.keys() & new_decorators.keys()
        )
        if has_changed_decorators or (removed_names and not new_decorators.keys() - old_decorators.keys()):
            raise CannotApplyError("it changes how a function is compiled: run the cell to see the effect")
        moves_compilation = moves_compilation or bool(removed_names)
    return Change(texts, compiles_inner_function=moves_compilation)


def replacement_as_change(program: Program, function: Callable[..., Any], replacement: Callable[..., Any]) -> Change:
    """Return the user's own version of a function as a change to its source; an empty change if that is not known.

    The change keeps the decorators of the original function.
    """
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if code is None:
        return Change()
    source = next((ident for ident, name in program.files.items() if name == code.co_filename), None)
    if source is None or source not in program.texts:
        return Change()
    lines = program.texts[source].split("\n")
    try:
        block = inspect.getblock([f"{line}\n" for line in lines[code.co_firstlineno - 1 :]])
        old_lines = [line.rstrip("\n") for line in block]
        replacement_lines = textwrap.dedent(inspect.getsource(replacement)).rstrip("\n").split("\n")
    except (OSError, TypeError, SyntaxError):
        return Change()
    old_start, new_start = _definition_index(old_lines), _definition_index(replacement_lines)
    if old_start is None or new_start is None:  # a lambda
        return Change()
    indent = old_lines[0][: len(old_lines[0]) - len(old_lines[0].lstrip())]
    name_in_header = re.compile(rf"(\s*(?:async\s+)?def\s+){re.escape(replacement.__name__)}\b")
    body = [f"{indent}{line}" if line else line for line in replacement_lines[new_start:]]
    body[0] = name_in_header.sub(rf"\g<1>{function.__name__}", body[0])
    first_index = code.co_firstlineno - 1
    new_lines = [*lines[: first_index + old_start], *body, *lines[first_index + len(old_lines) :]]
    return Change({source: "\n".join(new_lines)})


def _definition_index(lines: list[str]) -> int | None:
    return next((index for index, line in enumerate(lines) if _DEFINITION_LINE.match(line)), None)


def conditions_around_changed_lines(texts: Mapping[str, str], program: Program) -> list[Condition]:
    """Return the tests of the original's ``if`` statements and conditional expressions that contain changed lines."""
    conditions: list[Condition] = []
    edits = edits_of(program.texts, Change(texts))
    for source in texts:
        tree = parse_python(program.texts[source])
        edits_of_source = [edit for edit in edits if edit.source == source]
        changed_ranges = [range(edit.first_line, max(edit.last_line, edit.first_line) + 1) for edit in edits_of_source]
        nodes = ast.walk(tree) if tree is not None else ()
        conditionals = (node for node in nodes if isinstance(node, ast.If | ast.IfExp))
        changed_conditionals = (
            node for node in conditionals if any(_overlaps(lines, node) for lines in changed_ranges)
        )
        conditions += [Condition.of(source, node.test) for node in changed_conditionals]
    return conditions


def _overlaps(lines: range, node: ast.If | ast.IfExp) -> bool:
    return lines.start <= (node.end_lineno or node.lineno) and node.lineno < lines.stop


def _source_of_path(path: str, files: Mapping[str, str], names: Mapping[str, str]) -> str | None:
    by_name = next((source for source, name in names.items() if name == path), None)
    suffix = f"/{path.lstrip('/')}"
    return by_name or next((source for source, file in files.items() if f"/{file}".endswith(suffix)), None)


class _TopLevelPart(NamedTuple):
    """A piece of code outside of function bodies, such as the header of a function, in a form that can be compared.

    A change may add it if it defines a function at the top level.
    """

    text: str
    line: int
    can_be_added: bool = False


def _top_level_parts(
    body: Sequence[ast.stmt], *, is_function: bool, is_in_class: bool = False
) -> Iterator[_TopLevelPart]:
    """Yield module-level code or, for a cell compiled as a function, only its imports, functions and classes."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                can_be_added = isinstance(node, ast.FunctionDef) and not is_in_class
                decorators = [] if can_be_added else [ast.dump(decorator) for decorator in node.decorator_list]
                kind = type(node).__name__
                yield _TopLevelPart(f"{kind} {node.name} {ast.dump(node.args)} {decorators}", node.lineno, can_be_added)
            case ast.ClassDef():
                header = [ast.dump(part) for part in (*node.bases, *node.keywords, *node.decorator_list)]
                yield _TopLevelPart(f"class {node.name} {header}", node.lineno)
                yield from _top_level_parts(node.body, is_function=is_function, is_in_class=True)
            case ast.Expr(ast.Constant()) | ast.Pass():
                pass
            case ast.Import() | ast.ImportFrom():
                yield _TopLevelPart(ast.dump(node), node.lineno)
            case _ if is_in_class or not is_function:
                yield _TopLevelPart(ast.dump(node), node.lineno)


def _first_change_outside_functions(old_parts: list[_TopLevelPart], new_parts: list[_TopLevelPart]) -> int | None:
    """Return the first line outside of functions that differs, if any. The new text may add functions."""
    old_texts, new_texts = ([part.text for part in parts] for parts in (old_parts, new_parts))
    matcher = difflib.SequenceMatcher(None, old_texts, new_texts, autojunk=False)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        added_parts = new_parts[new_first:new_last] if tag != "equal" else []
        if tag in {"replace", "delete"}:
            return (added_parts or old_parts[first:last])[0].line
        line = next((part.line for part in added_parts if not part.can_be_added), None)
        if line is not None:
            return line
    return None


def _compiling_decorators(tree: ast.Module) -> dict[str, str]:
    """Return the compiling decorators of each top-level function that has any, by the function's name."""
    decorators: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            texts = [ast.unparse(decorator) for decorator in node.decorator_list]
            compile_decorators = [text for text in texts if text.partition("(")[0].rpartition(".")[2] == "compile"]
            if compile_decorators:
                decorators[node.name] = " ".join(compile_decorators)
    return decorators


@dataclass(frozen=True, eq=False)
class AppliedPatch:
    """A patch that is active in this process.

    Parameters
    ----------
    files : tuple of str
        The files whose functions are changed. The files themselves stay unchanged.
    functions : int
        The number of functions whose code was replaced.
    """

    files: tuple[str, ...]
    functions: int
    _undo: contextlib.ExitStack = field(repr=False)

    def undo(self) -> None:
        """Restore the original code of the functions."""
        self._undo.close()
        if self in _active_patches:
            _active_patches.remove(self)


#: Keeps patches active even if the caller discards the object that can undo them.
_active_patches: list[AppliedPatch] = []


def apply_patch(patch: str) -> AppliedPatch:
    """Change functions of this process according to a patch, without writing to a file.

    Code that is already compiled stays unchanged: explain the call again, or call ``torch.compiler.reset()``.

    Parameters
    ----------
    patch : str
        A unified diff, such as ``Remedy.patch``. Paths are relative to the folder of the packages or to the working
        directory.

    Returns
    -------
    AppliedPatch

    Raises
    ------
    ValueError
        If the patch is not a unified diff, or if a file is not known or does not have the lines that the patch changes.
    CannotApplyError
        If a function would need different variables of its outer function, or one of the user's other threads would
        run changed code.
    """
    hunks_by_path: dict[str, list[Hunk]] = {}
    for patched_file in changed_files(patch + _STRIPPED_LINES):
        hunks_by_path.setdefault(patched_file.path, []).extend(patched_file)
    if not hunks_by_path:
        raise ValueError("this is not a unified diff: it names no file")
    files = {path: _resolve_patch_path(path) for path in hunks_by_path}
    texts = {path: "".join(linecache.getlines(file)).removesuffix("\n") for path, file in files.items()}
    new_texts = {path: _patched_text(path, texts[path], hunks) for path, hunks in hunks_by_path.items()}
    undo = contextlib.ExitStack()
    application = undo.enter_context(replace_functions(Program(files, texts), new_texts))
    undo.enter_context(application.add_definitions())
    applied_patch = AppliedPatch(tuple(files.values()), len(application.functions), undo)
    _active_patches.append(applied_patch)
    return applied_patch


def _patched_text(path: str, text: str, hunks: list[Hunk]) -> str:
    try:
        return apply_hunks(text, path, hunks)
    except CannotApplyError:
        raise ValueError(f"{path} does not have the lines that the patch changes: it is a different version") from None


def _resolve_patch_path(path: str) -> str:
    """Return the file that a path in a patch refers to: that of a loaded module, or one in the working directory."""
    for module in sys.modules.copy().values():
        filename = getattr(module, "__file__", None)
        if isinstance(filename, str) and filename.replace("\\", "/").endswith(f"/{path.lstrip('/')}"):
            return filename
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"no loaded module and no file is called {path}")
    return str(file.resolve())
