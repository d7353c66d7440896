"""Apply a change to the functions of this process for a while: their code is swapped, and comes back afterwards."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import linecache
import types
import weakref
from collections import defaultdict
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak.analysis.python_text import parse_python, without_warnings
from jupyter_graphbreak.recording.threads_at_work import thread_at_work
from jupyter_graphbreak.records.source_texts import CellText

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import CodeType

    from jupyter_graphbreak.records.source_texts import FindCell


class CannotApplyError(Exception):
    """A change cannot be made to functions that exist already."""


class OtherThreadError(CannotApplyError):
    """A change cannot be made now, as another thread of the user's would run it."""


@without_warnings()
def compile_file(text: str, filename: str) -> list[CodeType]:
    """Compile the text of a file."""
    return [compile(text, filename, "exec", dont_inherit=True)]


class LivingFunctions:
    """The functions of some files that exist in this process.

    Parameters
    ----------
    filenames : collection of str
    """

    def __init__(self, filenames: Collection[str]) -> None:
        self._filenames = filenames
        self._known: list[weakref.ref[types.FunctionType]] | None = None

    def of(self, filenames: Collection[str], copies: Iterable[types.FunctionType] = ()) -> list[types.FunctionType]:
        """Return the functions of some of the files.

        All objects of the process are looked through, which takes a tenth of a second or more, so only once.

        Parameters
        ----------
        filenames : collection of str
        copies : iterable of function
            What was made since.
        """
        if not filenames:
            return []
        if self._known is None:
            every = (found for found in gc.get_objects() if type(found) is types.FunctionType)
            self._known = [weakref.ref(found) for found in every if found.__code__.co_filename in self._filenames]
        known = [found for reference in self._known if (found := reference()) is not None]
        both = {id(found): found for found in (*known, *copies)}
        return [found for found in both.values() if found.__code__.co_filename in filenames]


@dataclass(frozen=True)
class Program:
    """The sources of a run.

    Parameters
    ----------
    files : mapping
        The file name of each source as its code objects name it, by the source's id.
    texts : mapping
        The whole text of each source, as its editor has it.
    compile_text : callable
        Compiles the text of a source, as its editor has it, under a file name; returns the code objects that run it.
    find_cell : callable
        Given a file name, the cell that it stands for.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    compile_text: Callable[[str, str], list[CodeType]] = compile_file
    find_cell: FindCell = lambda _: None

    @functools.cached_property
    def functions(self) -> LivingFunctions:
        """The functions of its sources."""
        return LivingFunctions(frozenset(self.files.values()))

    def find_changed_cell(self, texts: Mapping[str, str]) -> FindCell:
        """Return what finds cells, with their new texts."""
        by_file = {self.files[source]: text for source, text in texts.items()}

        def find(filename: str) -> CellText | None:
            cell = self.find_cell(filename)
            if cell is None or filename not in by_file:
                return cell
            return CellText(cell.name, by_file[filename], cell.line_offset, cell.indent)

        return find


class Definition(NamedTuple):
    """A function that only the changed source has at its top, or has with other decorators."""

    name: str
    code: CodeType


class Application:
    """A change of the functions of this process that can be brought into force again and again.

    Its code objects are made once: Dynamo knows compiled code by them.

    Parameters
    ----------
    program : Program
    texts : mapping
        The new text of each source that changes, whole, by its id.
    copies : iterable of function
        Functions that were made after the program was applied for the first time.

    Attributes
    ----------
    functions : list of function
        Those that have another code while it is in force.
    definitions : list of Definition
        What is to run in their globals.

    Raises
    ------
    CannotApplyError
        If a function would need other variables of its outer function than it has, or another thread would see it.
    SyntaxError
        If a new text is no Python.
    """

    def __init__(self, program: Program, texts: Mapping[str, str], copies: Iterable[types.FunctionType] = ()) -> None:
        self.definitions: list[Definition] = []
        self._texts = {program.files[source]: text for source, text in texts.items()}
        self._codes: list[tuple[types.FunctionType, CodeType]] = []
        #: What the definitions made, by the globals in which they ran; kept so that a function is the same each time.
        self._made: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        by_file: dict[str, _Counterparts] = {}
        for source, text in texts.items():
            filename = program.files[source]
            new = program.compile_text(text, filename)
            by_file[filename] = _counterparts(program.compile_text(program.texts[source], filename), new)
            self.definitions += _definitions(program.texts[source], text, filename)
        for function in program.functions.of(by_file, copies):
            old = function.__code__
            made = _counterpart(by_file[old.co_filename], old)
            if made is None:
                continue
            if made.co_freevars != old.co_freevars:
                raise CannotApplyError(f"{old.co_name} would need other variables of the function around it")
            self._codes.append((function, made))
        self._leave_other_threads_alone(by_file, copies)
        self.functions = [function for function, _ in self._codes]

    def _leave_other_threads_alone(
        self, by_file: Mapping[str, _Counterparts], copies: Iterable[types.FunctionType]
    ) -> None:
        """Change only copies if another thread of the user's runs, which must not run changed code.

        Raises
        ------
        OtherThreadError
            If the change needs a function of which there is no copy, such as a method.
        """
        thread = thread_at_work(by_file)
        if thread is None:
            return
        own = {id(copy): copy for copy in copies}
        codes = [copy.__code__ for copy in own.values()]
        pairs = [pair for known in by_file.values() for of_name in known.values() for pair in of_name]
        same = {id(new) for old, new in pairs if _is_same(old, new)}
        for function, made in self._codes:
            if id(function) not in own and id(made) not in same and function.__code__ not in codes:
                raise OtherThreadError(
                    f"another thread of yours is running ({thread}), and would run the changed {function.__qualname__}"
                )
        self._codes = [(function, made) for function, made in self._codes if id(function) in own]

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Give the functions their new code while the context is open."""
        before = [(function, function.__code__) for function in self.functions]
        with contextlib.ExitStack() as stack:
            for filename, text in self._texts.items():
                stack.enter_context(_text_in_cache(filename, text))
            try:
                for function, code in self._codes:
                    function.__code__ = code
                yield
            finally:
                for function, code in before:
                    function.__code__ = code

    @contextlib.contextmanager
    def defined(self, *scopes: dict[str, Any]) -> Iterator[None]:
        """Have the new definitions in some globals, and those of the changed functions, while the context is open."""
        all_scopes = {id(scope): scope for scope in (*scopes, *(f.__globals__ for f in self.functions))}
        before: list[tuple[dict[str, Any], str, bool, Any]] = []
        try:
            for scope in all_scopes.values():
                for definition in self.definitions:
                    name = definition.name
                    before.append((scope, name, name in scope, scope.get(name)))
                    self._define(definition, scope)
            yield
        finally:
            for scope, name, was_there, value in reversed(before):
                if was_there:
                    scope[name] = value
                else:
                    scope.pop(name, None)

    def _define(self, definition: Definition, scope: dict[str, Any]) -> None:
        _, made = self._made.setdefault(id(scope), (scope, {}))
        if definition.name in made:
            scope[definition.name] = made[definition.name]
        else:
            exec(definition.code, scope)  # noqa: S102 - the changed program
            made[definition.name] = scope[definition.name]


@contextlib.contextmanager
def applied(
    program: Program, texts: Mapping[str, str], copies: Iterable[types.FunctionType] = ()
) -> Iterator[Application]:
    """Give all functions of some sources the code of their new texts while the context is open.

    Parameters
    ----------
    program, texts, copies
        As for :class:`Application`.

    Raises
    ------
    CannotApplyError, SyntaxError
        As :class:`Application` does.
    """
    application = Application(program, texts, copies)
    with application.in_force():
        yield application


#: Code objects of the old text, each with the one of the new text, by name and first line.
_Counterparts = dict[tuple[str, int], list[tuple["CodeType", "CodeType"]]]


def _counterparts(old: list[CodeType], new: list[CodeType]) -> _Counterparts:
    by_name: dict[str, list[CodeType]] = defaultdict(list)
    for code in _all_codes(new):
        by_name[code.co_qualname].append(code)
    made: _Counterparts = defaultdict(list)
    for code in _all_codes(old):
        if by_name[code.co_qualname]:
            made[code.co_qualname, code.co_firstlineno].append((code, by_name[code.co_qualname].pop(0)))
    return made


def _counterpart(known: _Counterparts, code: CodeType) -> CodeType | None:
    found = known.get((code.co_qualname, code.co_firstlineno), [])
    if len(found) > 1:  # lambdas on one line; and a cell may be compiled in two ways
        places = list(code.co_positions())
        found = [(old, new) for old, new in found if list(old.co_positions()) == places] or found
    return found[-1][1] if found else None


def _is_same(one: object, other: object) -> bool:
    """Whether two constants, or two code objects but for their lines, are the same."""
    if not isinstance(one, types.CodeType) or not isinstance(other, types.CodeType):
        return type(one) is type(other) and one == other
    return (
        (one.co_code, one.co_names, one.co_varnames) == (other.co_code, other.co_names, other.co_varnames)
        and len(one.co_consts) == len(other.co_consts)
        and all(map(_is_same, one.co_consts, other.co_consts))
    )


def _all_codes(codes: list[CodeType]) -> Iterator[CodeType]:
    for code in codes:
        yield code
        yield from _all_codes([constant for constant in code.co_consts if isinstance(constant, types.CodeType)])


@without_warnings()
def _definitions(old: str, new: str, filename: str) -> list[Definition]:
    """Return the functions at the top of the new text that the old one does not have, or has decorated otherwise."""
    known = {name: _decorators(node) for name, node in _top_functions(old).items()}
    return [
        Definition(name, compile(ast.Module([node], []), filename, "exec", dont_inherit=True))
        for name, node in _top_functions(new).items()
        if known.get(name) != _decorators(node)
    ]


def _top_functions(text: str) -> dict[str, ast.FunctionDef]:
    tree = parse_python(text) or ast.Module([], [])
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _decorators(node: ast.FunctionDef) -> list[str]:
    return [ast.dump(decorator) for decorator in node.decorator_list]


@contextlib.contextmanager
def _text_in_cache(filename: str, text: str) -> Iterator[None]:
    """Have tracebacks and reports of this thread read the new text of a file."""
    lines = [line + "\n" for line in text.split("\n")]
    changed, original, thread = filename, linecache.getlines, get_ident()

    def getlines(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
        if filename == changed and get_ident() == thread:
            return lines
        return original(filename, module_globals)

    linecache.getlines = getlines
    try:
        yield
    finally:
        linecache.getlines = original
