"""Apply a change to the functions of this process temporarily: swap their code, and restore it afterwards."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import itertools
import linecache
import re
import sys
import types
import weakref
from collections import defaultdict
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak.analysis.python_text import hide_python_warnings, parse_python
from jupyter_graphbreak.compiling.routes import have_equal_code
from jupyter_graphbreak.experiments.trial.other_threads import busy_thread_name
from jupyter_graphbreak.experiments.trial.swapped_bindings import item_binding
from jupyter_graphbreak.recording.recorder import cell_of_shell
from jupyter_graphbreak.recording.targets import walk_code_objects
from jupyter_graphbreak.records.source_texts import CellText

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import CodeType

    from jupyter_graphbreak.records.source_texts import FindCell


class CannotApplyError(Exception):
    """A change cannot be applied to functions that already exist."""


class ThreadRunsChangeError(CannotApplyError):
    """A change cannot be applied now because one of the user's other threads would run the changed code."""


#: A name that code passes to ``compile``.
_COMPILED_NAME = re.compile(r"\bcompile\((\w+)")
#: A name that code assigns at the top level.
_ASSIGNED_NAME = re.compile(r"^(\w+) *=(?!=)", re.MULTILINE)


@hide_python_warnings()
def compile_file(text: str, filename: str) -> list[CodeType]:
    """Compile the text of a file."""
    return [compile(text, filename, "exec", dont_inherit=True)]


def source_text(filename: str, find_cell: FindCell) -> str:
    """Return the whole text of a source, as the editor shows it; empty if the source cannot be read."""
    cell = find_cell(filename)
    if cell is not None:
        return cell.text
    with contextlib.suppress(Exception):  # a loader that fails
        return "".join(linecache.getlines(filename)).removesuffix("\n")
    return ""


def find_compiling_cells(known_files: Collection[str], find_cell: FindCell) -> dict[str, CellText]:
    """Return the cells that mention ``compile`` or assign names that are compiled, by their file names.

    Of several cells with the same first line, as after repeated runs of one cell, only the last is included. Cells in
    ``known_files`` are left out.
    """
    cells = {filename: cell for filename in list(linecache.cache) if (cell := find_cell(filename)) is not None}
    compiled_names = {name for cell in cells.values() for name in _COMPILED_NAME.findall(cell.text)}
    by_first_line: dict[str, tuple[str, CellText]] = {}
    for filename, cell in cells.items():
        assigns_compiled_name = not compiled_names.isdisjoint(_ASSIGNED_NAME.findall(cell.text))
        if filename not in known_files and (assigns_compiled_name or "compile" in cell.text):
            by_first_line[cell.text.strip().partition("\n")[0]] = filename, cell
    return dict(by_first_line.values())


class LiveFunctions:
    """The functions in this process that are defined in the given files."""

    def __init__(self, filenames: Collection[str]) -> None:
        self._filenames = filenames
        self._known_functions: list[weakref.ref[types.FunctionType]] | None = None

    def functions_in_files(
        self, filenames: Collection[str], copies: Iterable[types.FunctionType] = ()
    ) -> list[types.FunctionType]:
        """Return the functions, ``copies`` included, that are defined in the given files.

        The first call searches all objects of the process and takes a tenth of a second or more. The copies are
        those that were created since.
        """
        if not filenames:
            return []
        if self._known_functions is None:
            functions = [*_functions_in(gc.get_objects()), *_FROZEN_FUNCTIONS.functions_in_files(self._filenames)]
            self._known_functions = [
                weakref.ref(function) for function in functions if function.__code__.co_filename in self._filenames
            ]
        live_functions = [function for reference in self._known_functions if (function := reference()) is not None]
        by_id = {id(function): function for function in (*live_functions, *copies)}
        return [function for function in by_id.values() if function.__code__.co_filename in filenames]


def _functions_in(objects: Iterable[Any]) -> list[types.FunctionType]:
    """Return the functions among objects, except our copies without globals, which only serve comparisons."""
    functions = [value for value in objects if type(value) is types.FunctionType]
    return [function for function in functions if function.__globals__.keys() - {"__builtins__"}]


class _FrozenFunctions:
    """The functions that ``gc.freeze`` hides from the garbage collector, by file.

    The search follows all references. It takes up to a second, and is repeated after more objects are frozen.
    """

    def __init__(self) -> None:
        self._count = 0
        self._by_file: dict[str, list[weakref.ref[types.FunctionType]]] = {}

    def functions_in_files(self, filenames: Iterable[str]) -> list[types.FunctionType]:
        """Return the frozen functions that are defined in the given files."""
        count = gc.get_freeze_count()
        if count > self._count or not count:
            self._by_file = defaultdict(list)
            for frozen_function in _functions_in(_frozen_objects() if count else ()):
                self._by_file[frozen_function.__code__.co_filename].append(weakref.ref(frozen_function))
        self._count = count
        references = [reference for name in filenames for reference in self._by_file.get(name, ())]
        return [function for reference in references if (function := reference()) is not None]


_FROZEN_FUNCTIONS = _FrozenFunctions()


def _frozen_objects() -> list[Any]:
    """Return the objects that ``gc.freeze`` hides and that other objects refer to."""
    visible_objects = gc.get_objects()
    seen_ids = set(map(id, visible_objects))
    frozen_objects: list[Any] = []
    referents = gc.get_referents(sys.modules, *visible_objects)
    while referents:
        new_objects = {id(value): value for value in referents if gc.is_tracked(value) and id(value) not in seen_ids}
        seen_ids.update(new_objects)
        frozen_objects += new_objects.values()
        referents = gc.get_referents(*new_objects.values())
    return frozen_objects


@dataclass(frozen=True)
class Program:
    """The sources of a run.

    ``files`` contains the file name of the code objects, and ``texts`` the whole text in the editor, both by the
    source's id. ``compile_text`` compiles a text under a file name, and returns the code objects that run it.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    compile_text: Callable[[str, str], list[CodeType]] = compile_file
    find_cell: FindCell = cell_of_shell

    @functools.cached_property
    def functions(self) -> LiveFunctions:
        """The functions of the program's sources."""
        return LiveFunctions(frozenset(self.files.values()))

    def changed_cell_finder(self, texts: Mapping[str, str]) -> FindCell:
        """Return a function that finds cells as ``find_cell`` does, but with new texts."""
        by_file = {self.files[source]: text for source, text in texts.items()}

        def find(filename: str) -> CellText | None:
            cell = self.find_cell(filename)
            if cell is None or filename not in by_file:
                return cell
            return CellText(cell.name, by_file[filename], cell.line_offset, cell.indent)

        return find


class NewDefinition(NamedTuple):
    """A function that a change adds or decorates differently at the top level, or a module that it imports there."""

    name: str
    code: CodeType


class Application:
    """A change to functions in this process; it can be applied repeatedly.

    The new code objects are created only once, because Dynamo finds compiled code by its code object. ``texts``
    contains the whole new text of each source that changes, and ``copies`` functions that were created after the first
    change to the program was applied. ``definitions`` are to be executed in the globals of ``functions``, whose code
    the change replaces. A CannotApplyError is raised if a function would need different variables of its outer
    function, or one of the user's other threads would run changed code; a SyntaxError if a new text is not Python.
    """

    def __init__(self, program: Program, texts: Mapping[str, str], copies: Iterable[types.FunctionType]) -> None:
        self.definitions: list[NewDefinition] = []
        self._texts = {program.files[source]: text for source, text in texts.items()}
        self._replacements: list[tuple[types.FunctionType, CodeType]] = []
        #: The functions that the definitions created, by the id of their globals: each is created only once.
        self._created_functions: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        counterparts_by_file: dict[str, _Counterparts] = {}
        for source, text in texts.items():
            filename = program.files[source]
            new_code_objects = program.compile_text(text, filename)
            counterparts_by_file[filename] = _counterparts(
                program.compile_text(program.texts[source], filename), new_code_objects
            )
            self.definitions += _new_definitions(program.texts[source], text, filename)
        for function in program.functions.functions_in_files(counterparts_by_file, copies):
            old_code = function.__code__
            new_code = _counterpart(counterparts_by_file[old_code.co_filename], old_code)
            if new_code is None:
                continue
            if new_code.co_freevars != old_code.co_freevars:
                raise CannotApplyError(f"{old_code.co_name} would need different variables of its outer function")
            self._replacements.append((function, new_code))
        self._limit_to_copies_if_threads_run(counterparts_by_file, copies)
        self.functions = [function for function, _ in self._replacements]

    def _limit_to_copies_if_threads_run(
        self, counterparts_by_file: Mapping[str, _Counterparts], copies: Iterable[types.FunctionType]
    ) -> None:
        """Limit the change to copies if one of the user's other threads runs, which must not run changed code.

        A ThreadRunsChangeError is raised if the change needs a function that has no copy, such as a method.
        """
        thread = busy_thread_name(counterparts_by_file)
        if thread is None:
            return
        copies_by_id = {id(copy): copy for copy in copies}
        copied_code = [copy.__code__ for copy in copies_by_id.values()]
        counterparts = (pairs for by_name in counterparts_by_file.values() for pairs in by_name.values())
        pairs = itertools.chain.from_iterable(counterparts)
        unchanged_ids = {id(new) for old, new in pairs if have_equal_code(old, new)}
        for function, new_code in self._replacements:
            if (
                id(function) not in copies_by_id
                and id(new_code) not in unchanged_ids
                and function.__code__ not in copied_code
            ):
                raise ThreadRunsChangeError(
                    f"your thread {thread} is running and would run the changed {function.__qualname__}"
                )
        self._replacements = [
            (function, new_code) for function, new_code in self._replacements if id(function) in copies_by_id
        ]

    @property
    def defined_names(self) -> frozenset[str]:
        """The names of the new definitions."""
        return frozenset(definition.name for definition in self.definitions)

    @contextlib.contextmanager
    def replace_code(self) -> Iterator[None]:
        """Give the functions their new code while the context is open."""
        originals = [(function, function.__code__) for function in self.functions]
        with contextlib.ExitStack() as stack:
            for filename, text in self._texts.items():
                stack.enter_context(_replace_cached_text(filename, text))
            try:
                for function, code in self._replacements:
                    function.__code__ = code
                yield
            finally:
                for function, code in originals:
                    function.__code__ = code

    @contextlib.contextmanager
    def add_definitions(self, namespace: dict[str, Any] | None = None) -> Iterator[None]:
        """Add the new definitions to a namespace and the globals of the changed functions while the context is open."""
        namespaces = [function.__globals__ for function in self.functions] + ([] if namespace is None else [namespace])
        unique_namespaces = {id(names): names for names in namespaces}.values()
        bindings = [
            item_binding(name, names, name) for names in unique_namespaces for name in sorted(self.defined_names)
        ]
        saved_values = [(binding, binding.read()) for binding in bindings]
        try:
            for names in unique_namespaces:
                for definition in self.definitions:
                    self._define(definition, names)
            yield
        finally:
            for binding, value in saved_values:
                binding.write(value)

    def _define(self, definition: NewDefinition, namespace: dict[str, Any]) -> None:
        _, created_functions = self._created_functions.setdefault(id(namespace), (namespace, {}))
        if definition.name in created_functions:
            namespace[definition.name] = created_functions[definition.name]
        else:
            exec(definition.code, namespace)  # noqa: S102 - runs the changed program
            created_functions[definition.name] = namespace[definition.name]


@contextlib.contextmanager
def replace_functions(
    program: Program, texts: Mapping[str, str], copies: Iterable[types.FunctionType] = ()
) -> Iterator[Application]:
    """Replace the code of all functions of the given sources while the context is open."""
    application = Application(program, texts, copies)
    with application.replace_code():
        yield application


#: Pairs of corresponding code objects of the old and the new text, by name and first line in the old text.
_Counterparts = dict[tuple[str, int], list[tuple["CodeType", "CodeType"]]]


def _counterparts(old_code_objects: list[CodeType], new_code_objects: list[CodeType]) -> _Counterparts:
    by_name: dict[str, list[CodeType]] = defaultdict(list)
    for code in itertools.chain.from_iterable(map(walk_code_objects, new_code_objects)):
        by_name[code.co_qualname].append(code)
    counterparts: _Counterparts = defaultdict(list)
    for code in itertools.chain.from_iterable(map(walk_code_objects, old_code_objects)):
        if by_name[code.co_qualname]:
            counterparts[code.co_qualname, code.co_firstlineno].append((code, by_name[code.co_qualname].pop(0)))
    return counterparts


def _counterpart(counterparts: _Counterparts, code: CodeType) -> CodeType | None:
    pairs = counterparts.get((code.co_qualname, code.co_firstlineno), [])
    if len(pairs) > 1:  # several lambdas on one line, or a cell that is compiled in two ways
        positions = list(code.co_positions())
        pairs = [(old, new) for old, new in pairs if list(old.co_positions()) == positions] or pairs
    return pairs[-1][1] if pairs else None


@hide_python_warnings()
def _new_definitions(old_text: str, new_text: str, filename: str) -> list[NewDefinition]:
    """Return the top-level imports that the new text adds, and the functions that it adds or decorates differently."""
    decorators_before = {name: _decorators(node) for name, node in _top_definitions(old_text).items()}
    return [
        NewDefinition(name, compile(ast.Module([node], []), filename, "exec", dont_inherit=True))
        for name, node in _top_definitions(new_text).items()
        if decorators_before.get(name) != _decorators(node)
    ]


def _top_definitions(text: str) -> dict[str, ast.FunctionDef | ast.Import]:
    """Return the imports and the function definitions at the top level, by the names that they bind."""
    tree = parse_python(text) or ast.Module([], [])
    imports = {
        alias.asname or alias.name: node
        for node in tree.body
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname is not None or "." not in alias.name
    }
    return imports | {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _decorators(node: ast.FunctionDef | ast.Import) -> list[str]:
    return [ast.dump(decorator) for decorator in node.decorator_list] if isinstance(node, ast.FunctionDef) else []


@contextlib.contextmanager
def _replace_cached_text(filename: str, text: str) -> Iterator[None]:
    """Make tracebacks and reports of this thread show the new text of a file while the context is open."""
    lines = [line + "\n" for line in text.split("\n")]
    changed_file, original_getlines, thread = filename, linecache.getlines, get_ident()

    def getlines(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
        if filename == changed_file and get_ident() == thread:
            return lines
        return original_getlines(filename, module_globals)

    linecache.getlines = getlines
    try:
        yield
    finally:
        linecache.getlines = original_getlines
