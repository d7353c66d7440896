"""Read the sources of a report, and further cells and files that contain calls."""

from __future__ import annotations

import linecache
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.analysis.functions import head_kind, head_kind_of_line
from jupyter_graphbreak.analysis.python_text import parse_python
from jupyter_graphbreak.experiments.recompiles.compile_calls import CompiledDefinition
from jupyter_graphbreak.experiments.recompiles.placement import ReadingLine, find_reading_line
from jupyter_graphbreak.experiments.recompiles.trying import SpecializingLine
from jupyter_graphbreak.experiments.remedies.application import Program, source_text
from jupyter_graphbreak.records.package_paths import is_library
from jupyter_graphbreak.report.location import Segment, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import CodeType

    from jupyter_graphbreak.experiments.trial.call_specs import CallSite, Path
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Report


def _code_of(function: Any) -> CodeType | None:
    """Return the code that implements a call to a function, a method, a partial or a module; ``None`` without code."""
    while isinstance(function, partial):
        function = function.func
    implementation = type(function).forward if isinstance(function, torch.nn.Module) else function
    return getattr(getattr(implementation, "__func__", implementation), "__code__", None)


class ReportTexts:
    """The texts of the sources of a report, and of further cells and files that contain calls."""

    def __init__(self, report: Report, files: Mapping[str, str], find_cell: FindCell) -> None:
        self._report = report
        self._find_cell = find_cell
        self._ids = {filename: source for source, filename in files.items()}
        self._files = dict(files)
        self._report_sources = {source.id: source for source in report.sources}
        #: The sources that the report lacks.
        self.new_sources: list[Source] = []

    def text(self, source: str) -> str:
        """Return the whole text of a source, as its editor shows it."""
        return source_text(self._files.get(source, ""), self._find_cell)

    def program(self, sources: Sequence[str], compile_text: Callable[[str, str], list[CodeType]]) -> Program:
        """Return a program of the given sources, to which changes can be applied."""
        files = {source: self._files[source] for source in sources}
        return Program(files, {source: self.text(source) for source in sources}, compile_text, self._find_cell)

    def locate_call(self, site: CallSite) -> tuple[str | None, CallSite | None]:
        """Return the source of a call, and the call site with the editor's lines and columns.

        Both are ``None`` if the call is in a library, or if its source is not available.
        """
        cell = self._find_cell(site.filename)
        source = self._ids.get(site.filename)
        if source is None:
            source = self._add_source(site.filename)
        if source is None or (source in self._report_sources and self._report_sources[source].kind == "library"):
            return None, None
        if cell is None:
            return source, site
        shown_site = site._replace(
            line=site.line + cell.line_offset,
            end_line=site.end_line + cell.line_offset,
            column=site.column + cell.indent,
            end_column=site.end_column + cell.indent,
        )
        return source, shown_site

    def _add_source(self, filename: str) -> str | None:
        cell = self._find_cell(filename)
        ident = f"s{len(self._report_sources) + len(self.new_sources) + 1}"
        if cell is not None:
            source = Source(ident, cell.name, "cell", segments=[Segment(1, cell.text)])
        elif linecache.getlines(filename):
            name = filename.replace("\\", "/").rpartition("/")[2]
            source = Source(ident, name, "file", name)
        else:
            return None
        self._ids[filename], self._files[ident] = ident, filename
        self.new_sources.append(source)
        return ident

    def definition_of(self, entry: Entry) -> CompiledDefinition:
        """Return the definition of an entry's function, as far as it is known."""
        code = _code_of(entry.function)
        source = self._ids.get(code.co_filename) if code is not None else None
        if code is None or source is None or not self.is_own(source):
            return CompiledDefinition(entry.name)
        cell = self._find_cell(code.co_filename)
        line = code.co_firstlineno + (cell.line_offset if cell is not None else 0)
        return CompiledDefinition(entry.name, source, line)

    def is_own(self, source: str) -> bool:
        """Return whether a source belongs to the user."""
        return source in self._report_sources and self._report_sources[source].kind != "library"

    def locate_specializing_line(self, path: str, line: int, code: str) -> SpecializingLine:
        """Return a line that PyTorch reports, with the number that the editor shows for it."""
        filename = next((known_filename for known_filename in self._ids if known_filename.endswith(path)), path)
        cell = self._find_cell(filename)
        source = self._ids.get(filename, filename)
        is_own = cell is not None or self.is_own(source) or not is_library(filename)
        library_file = None if is_own else PurePath(path).name
        line += cell.line_offset if cell is not None else 0
        tree = parse_python(self.text(source)) if source in self._files else None
        head = head_kind(tree, line) if tree is not None else head_kind_of_line(code)
        return SpecializingLine(source, line, code, library_file, head=head)

    def all_texts(self, sites: Sequence[CallSite]) -> dict[str, str]:
        """Return the texts of all sources that may compile a function: the user's, and those that call the function."""
        source_ids = [source.id for source in self._report.sources if source.kind != "library"]
        source_ids += [source for site in sites if (source := self.locate_call(site)[0]) is not None]
        return {source: self.text(source) for source in dict.fromkeys(source_ids)}

    def find_reading_line(
        self, paths: Sequence[Path], sites: Sequence[CallSite], definition: CompiledDefinition
    ) -> tuple[str, ReadingLine] | None:
        """Return the name of a source and its line outside the function that reads one of several numbers, if any."""
        for source, text in self.all_texts(sites).items():
            tree = parse_python(text)
            own_line = definition.line if source == definition.source else None
            reader = find_reading_line(paths, tree, own_line) if tree is not None else None
            if reader is not None:
                return self._source(source).name, reader
        return None

    def path(self, source: str) -> str:
        """Return the path or name of a source."""
        known_source = self._source(source)
        return known_source.path or known_source.name

    def _source(self, ident: str) -> Source:
        return self._report_sources.get(ident) or next(
            new_source for new_source in self.new_sources if new_source.id == ident
        )
