"""Compare two runs of the same code: breaks that are gone, new or moved, and the figures of both runs.

Edits shift lines, so line numbers cannot identify a break. The lines of both runs are aligned as in a text diff, and
two breaks of one kind are the same break if their lines correspond or if their expressions are equal.

Code that PyTorch keeps from earlier runs is not recorded when it runs, so only code that both runs compiled is
compared.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jupyter_graphbreak.report.diff import BreakChange, BreakPlace, Changes, Reused, RunFigures
from jupyter_graphbreak.report.summary import Summary, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.report.location import Source
    from jupyter_graphbreak.report.schema import Break, Frame, Report, Skipped

Line = tuple[str, int]  # source id, line number
#: Outcomes of frames that were traced to the end.
_TRACED_OUTCOMES = {"compiled", "empty"}


class _Function(NamedTuple):
    """Identifies a function whose code is the same in both runs."""

    source: str
    function: str
    line: int


class ReusableCode:
    """The code of the run of ``report`` that the run of ``other_report`` may have reused instead of compiling it.

    ``unmatched`` are the breaks that only ``report`` contains. ``hidden_breaks`` are those of them that may have
    occurred unseen in the other run. ``lines`` maps the lines of the first run to those of the other run.
    """

    def __init__(
        self, report: Report, other_report: Report, unmatched_breaks: list[Break], lines: Mapping[Line, Line]
    ) -> None:
        self._report = report
        self._lines = lines
        self._frames = {frame.id: frame for frame in report.frames}
        self._refused_by_break: defaultdict[str, list[Skipped]] = defaultdict(list)
        for skipped in report.skipped:
            if skipped.break_ is not None and skipped.frame is None:
                self._refused_by_break[skipped.break_].append(skipped)
        self._cells = {source.id for source in report.sources if source.kind == "cell"}
        self._cell_texts = [
            segment.text for source in other_report.sources if source.kind == "cell" for segment in source.segments
        ]
        self._paths = _source_paths(report)
        paths_of_other = _source_paths(other_report)
        other_frames = [(_function_identity(frame, paths_of_other), frame) for frame in other_report.frames]
        functions_compiled_by_other = {function for function, _ in other_frames}
        functions_skipped_by_other = {_function_identity(skipped, paths_of_other) for skipped in other_report.skipped}
        #: Functions that the other run may have reused, even if it compiled a further version of them.
        self._reusable_functions = (
            {_function_identity(frame, self._paths) for frame in report.frames} - functions_compiled_by_other
            if other_report.held is None
            else {
                _Function(cached_function.source, cached_function.function, cached_function.line)
                for cached_function in other_report.held
            }
        )
        self._reused_functions = self._reusable_functions - functions_compiled_by_other - functions_skipped_by_other
        #: Frames that the other run compiled from scratch.
        self._fresh_frames = [frame for function, frame in other_frames if function not in self._reusable_functions]
        self.hidden_breaks = [break_ for break_ in unmatched_breaks if self._may_be_hidden(break_)]
        self._hidden_ids = set(map(id, self.hidden_breaks))
        traced_parts = [
            part
            for break_ in unmatched_breaks
            if id(break_) not in self._hidden_ids
            for part in self._code_of_break(break_)
        ]
        self._retraced_functions = {_function_identity(part, self._paths) for part in traced_parts}

    @property
    def functions(self) -> list[Frame | Skipped]:
        """The functions that the other run may have reused, each once, those with hidden breaks first."""
        parts_with_hidden_breaks = [
            part
            for break_ in self.hidden_breaks
            for part in self._code_of_break(break_)
            if _function_identity(part, self._paths) in self._reusable_functions
        ]
        reused_frames = [frame for frame in self._report.frames if self._seems_reused(frame)]
        unique: dict[_Function, Frame | Skipped] = {}
        for part in [*parts_with_hidden_breaks, *reused_frames]:
            unique.setdefault(_function_identity(part, self._paths), part)
        return list(unique.values())

    @property
    def is_partly_reused(self) -> bool:
        """Whether the other run may have reused compiled code for any part of this run."""
        parts: list[Frame | Skipped] = [*self._report.frames, *self._report.skipped]
        return bool(self.hidden_breaks) or any(map(self._seems_reused, parts))

    def figures(self) -> tuple[Summary, Timing]:
        """Return the figures of the part of the run that the other run also compiled."""
        report = self._report
        left_out = {frame.id for frame in report.frames if self._seems_reused(frame)}
        frames = [frame for frame in report.frames if frame.id not in left_out]
        graphs = [graph for graph in report.graphs if graph.frame not in left_out]
        breaks = [break_ for break_ in report.breaks if id(break_) not in self._hidden_ids]
        seconds = [frame.compile_s for frame in frames if frame.compile_s is not None]
        return (
            Summary(
                frames=len(frames),
                graphs=len(graphs),
                ops=sum(len(graph.ops) for graph in graphs),
                breaks=len(breaks),
                events=sum(event.frame not in left_out for break_ in breaks for event in break_.occurrences),
                resumes=sum(bool(set(resume.frames) - left_out) for resume in report.resumes),
                skipped=sum(not self._seems_reused(skipped) for skipped in report.skipped),
                recompiles=sum(not {recompile.frame, recompile.of} & left_out for recompile in report.recompiles),
                errors=sum(frame.outcome == "error" for frame in frames),
            ),
            Timing(compile_s=sum(seconds) if seconds else None),
        )

    def _seems_reused(self, part: Frame | Skipped) -> bool:
        """Return whether the other run seems to have reused a function instead of compiling it."""
        function = _function_identity(part, self._paths)
        return function in self._reused_functions and function not in self._retraced_functions

    def _may_be_hidden(self, break_: Break) -> bool:
        """Return whether a break may have occurred unseen in the other run, in reused code."""
        parts = self._code_of_break(break_)
        is_reusable = any(_function_identity(part, self._paths) in self._reusable_functions for part in parts)
        return is_reusable and not self._was_traced(parts) and not self._is_not_called(break_)

    def _code_of_break(self, break_: Break) -> list[Frame | Skipped]:
        """Return the frames in which a break occurred, and the functions that Dynamo refused to compile due to it."""
        idents = dict.fromkeys(occurrence.frame for occurrence in break_.occurrences if occurrence.frame is not None)
        refused_functions = self._refused_by_break.get(break_.id, ())
        return [*(self._frames[ident] for ident in idents if ident in self._frames), *refused_functions]

    def _was_traced(self, parts: list[Frame | Skipped]) -> bool:
        """Return whether the other run would have reported a break, because it traced all code that leads to it."""
        first_lines = {self._lines.get(line) for part in parts if (line := _first_line(part)) is not None}
        functions = {part.function for part in parts}
        compiled_frames = [
            frame for frame in self._fresh_frames if frame.function in functions and _first_line(frame) in first_lines
        ]
        return bool(compiled_frames) and all(frame.outcome in _TRACED_OUTCOMES for frame in compiled_frames)

    def _is_not_called(self, break_: Break) -> bool:
        """Return whether the text of the other run's cells lacks a call that led to a break."""
        callees = {
            location.code.partition("(")[0].strip()
            for occurrence in break_.occurrences
            for location in occurrence.stack
            if location.source in self._cells and location.code is not None and "(" in location.code
        }
        calls = [re.compile(rf"(?<!\w){re.escape(name)}\s*\(") for name in callees if name]
        return bool(self._cell_texts) and any(not any(call.search(text) for text in self._cell_texts) for call in calls)


def _source_paths(report: Report) -> dict[str, str]:
    """Return the path of each file and the name of each cell, by the id of the source."""
    return {source.id: source.path or source.name for source in reversed(report.sources)}


def _function_identity(part: Frame | Skipped, names: Mapping[str, str]) -> _Function:
    """Return the identity of a function, which stays the same until its file is edited or its cell runs again."""
    location = part.location
    if location is None or location.source not in names:
        return _Function("?", part.function, location.line if location is not None else 0)
    return _Function(names[location.source], part.function, location.line)


def _first_line(part: Frame | Skipped) -> Line | None:
    return (part.location.source, part.location.line) if part.location is not None else None


#: The maximum number of line comparisons for a diff of two texts.
_MAX_LINE_COMPARISONS = 100_000_000


def compare_runs(before: Report, after: Report) -> Changes:
    """Return the changes from one run to a later run of the same code, edited or not."""
    line_mapping = _corresponding_lines(before, after)
    pairs, gone_breaks, new_breaks = _match_breaks(before.breaks, after.breaks, line_mapping)
    old_names, new_names = _source_names(before), _source_names(after)
    reused_by_after = ReusableCode(before, after, gone_breaks, line_mapping)
    reused_by_before = ReusableCode(
        after, before, new_breaks, {later: earlier for earlier, later in line_mapping.items()}
    )
    is_partial = reused_by_after.is_partly_reused or reused_by_before.is_partly_reused
    hidden_ids = {id(break_) for break_ in (*reused_by_after.hidden_breaks, *reused_by_before.hidden_breaks)}
    gone_breaks = [earlier for earlier in gone_breaks if id(earlier) not in hidden_ids]
    new_breaks = [later for later in new_breaks if id(later) not in hidden_ids]
    moved_breaks = [
        (earlier, later)
        for earlier, later in pairs
        if _break_place(earlier, old_names) != _break_place(later, new_names)
    ]
    moved_ids = {later.id for _, later in moved_breaks}
    return Changes(
        before=_run_figures(before, reused_by_after if is_partial else None),
        after=_run_figures(after, reused_by_before if is_partial else None),
        breaks=[
            *(_break_change("gone", earlier, _break_place(earlier, old_names), None) for earlier in gone_breaks),
            *(_break_change("new", later, None, _break_place(later, new_names)) for later in new_breaks),
            *(
                _break_change("moved", later, _break_place(earlier, old_names), _break_place(later, new_names))
                for earlier, later in moved_breaks
            ),
            *(
                _break_change("unknown", earlier, _break_place(earlier, old_names), None)
                for earlier in reused_by_after.hidden_breaks
            ),
            *(
                _break_change("unknown", later, None, _break_place(later, new_names))
                for later in reused_by_before.hidden_breaks
            ),
        ],
        same=[later.id for _, later in pairs if later.id not in moved_ids],
        reused=[
            *(_reused_entry(part, old_names, "after") for part in reused_by_after.functions),
            *(_reused_entry(part, new_names, "before") for part in reused_by_before.functions),
        ],
    )


def same_breaks(before: Report, after: Report) -> dict[str, str]:
    """Return, for each break that both runs have, its id in the later run by its id in the earlier run."""
    pairs, _, _ = _match_breaks(before.breaks, after.breaks, _corresponding_lines(before, after))
    return {earlier.id: later.id for earlier, later in pairs}


def _match_breaks(
    before: list[Break], after: list[Break], line_mapping: dict[Line, Line]
) -> tuple[list[tuple[Break, Break]], list[Break], list[Break]]:
    """Pair the breaks of two runs, most certain first; return the pairs and the unpaired breaks of each run."""

    def line(break_: Break) -> Line | None:
        return (break_.location.source, break_.location.line) if break_.location is not None else None

    def function(break_: Break) -> str | None:
        return break_.location.function if break_.location is not None else None

    def code(break_: Break) -> str | None:
        text = break_.location.code if break_.location is not None else None
        return " ".join(text.split()) if text is not None else None

    def old_line(break_: Break) -> Any:
        old = line(break_)
        return line_mapping.get(old, break_.id) if old is not None else None  # a deleted line matches no other line

    # Keys of a break in the earlier and in the later run, from the most to the least certain.
    keys: list[tuple[Callable[[Break], Any], Callable[[Break], Any]]] = [
        (lambda earlier: (old_line(earlier), code(earlier)), lambda later: (line(later), code(later))),
        (old_line, line),
        (lambda earlier: (function(earlier), code(earlier)), lambda later: (function(later), code(later))),
        (code, code),
    ]
    pairs: list[tuple[Break, Break]] = []
    gone, new = list(before), list(after)
    for old_key, new_key in keys:
        unpaired_by_key: dict[Any, deque[Break]] = defaultdict(deque)
        paired_ids: set[int] = set()
        for later in new:
            unpaired_by_key[later.gb_type, new_key(later)].append(later)
        unmatched_breaks = []
        for earlier in gone:
            matching_breaks = unpaired_by_key.get((earlier.gb_type, old_key(earlier)))
            if matching_breaks:
                later = matching_breaks.popleft()
                pairs.append((earlier, later))
                paired_ids.add(id(later))
            else:
                unmatched_breaks.append(earlier)
        gone, new = unmatched_breaks, [later for later in new if id(later) not in paired_ids]
    order = {break_.id: index for index, break_ in enumerate(after)}
    return sorted(pairs, key=lambda pair: order[pair[1].id]), gone, new


def _corresponding_lines(before: Report, after: Report) -> dict[Line, Line]:
    """Return the line in the later run for each line that is unchanged or was edited in place."""
    lines: dict[Line, Line] = {}
    for old, new in _corresponding_sources(before, after):
        old_lines, new_lines = list(_lines(old)), list(_lines(new))
        for start, new_start, line_count in _aligned_blocks(
            [text for _, text in old_lines], [text for _, text in new_lines]
        ):
            for offset in range(line_count):
                old_line, new_line = old_lines[start + offset][0], new_lines[new_start + offset][0]
                lines[old.id, old_line] = (new.id, new_line)
    return lines


def _aligned_blocks(old: list[str], new: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the blocks of corresponding lines in two texts: the start in each text, and the number of lines.

    A text diff takes far too long for long texts with many equal lines. In these, only unique lines, and equal lines
    at the beginning and at the end, correspond.
    """
    prefix = _common_prefix_length(old, new)
    suffix = _common_prefix_length(old[prefix:][::-1], new[prefix:][::-1])
    yield 0, 0, prefix
    yield len(old) - suffix, len(new) - suffix, suffix
    old, new = old[prefix : len(old) - suffix], new[prefix : len(new) - suffix]
    counts, new_counts = Counter(old), Counter(new)
    comparison_count = sum(count * new_counts[text] for text, count in counts.items()) * min(len(old), len(new))
    if comparison_count > _MAX_LINE_COMPARISONS:
        indices = {text: index for index, text in enumerate(new) if new_counts[text] == 1}
        unique_pairs = [
            (index, indices[text]) for index, text in enumerate(old) if counts[text] == 1 and text in indices
        ]
        for start, new_start in _longest_increasing_series(unique_pairs):
            yield prefix + start, prefix + new_start, 1
        return
    for change, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if change == "equal" or (change == "replace" and end - start == new_end - new_start):
            yield prefix + start, prefix + new_start, end - start


def _common_prefix_length(old: list[str], new: list[str]) -> int:
    """Return the number of equal lines at the beginning of two texts."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(old), len(new)))


def _longest_increasing_series(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest series of pairs in which the second numbers rise; the pairs are sorted by first number."""
    ends: list[int] = []  # for each length, the index of the last pair of the series with the lowest end
    predecessors: list[int] = []
    for index, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second, key=lambda end: pairs[end][1])
        predecessors.append(ends[length - 1] if length else -1)
        ends[length : length + 1] = [index]
    series = []
    index = ends[-1] if ends else -1
    while index >= 0:
        series.append(pairs[index])
        index = predecessors[index]
    return series[::-1]


def _corresponding_sources(before: Report, after: Report) -> Iterator[tuple[Source, Source]]:
    """Yield the sources of both runs in pairs: files with equal paths, equal cells, and the cells that ran."""
    by_path = {(source.path, source.name): source for source in after.sources if source.kind != "cell"}
    new_cells = [source for source in after.sources if source.kind == "cell"]
    by_text = {source.segments[0].text: source for source in reversed(new_cells) if source.segments}
    old_cells = [source for source in before.sources if source.kind == "cell"]
    for old in before.sources:
        if old.kind != "cell":
            new = by_path.get((old.path, old.name))
        else:
            new = by_text.get(old.segments[0].text) if old.segments else None
            if new is None and new_cells and old is old_cells[0]:
                new = new_cells[0]
        if new is not None:
            yield old, new


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    for segment in source.segments:
        for offset, text in enumerate(segment.text.split("\n")):
            yield segment.first_line + offset, text.rstrip()


def _source_names(report: Report) -> dict[str, str]:
    """Return the names of sources; the cell that ran has the name "", because its number changes with every run."""
    names = {source.id: source.name for source in report.sources}
    cell = next((source.id for source in report.sources if source.kind == "cell"), None)
    return {**names, cell: ""} if cell is not None else names


def _break_place(part: Break | Frame | Skipped, names: dict[str, str]) -> BreakPlace | None:
    location = part.location
    return BreakPlace(names.get(location.source) or None, location.line) if location is not None else None


def _break_change(kind: Any, break_: Break, before: BreakPlace | None, after: BreakPlace | None) -> BreakChange:
    location = break_.location
    return BreakChange(
        change=kind,
        gb_id=break_.gb_id,
        gb_type=break_.gb_type,
        function=location.function if location is not None else None,
        code=location.code if location is not None else None,
        before=before,
        after=after,
        break_=break_.id if kind in {"new", "moved"} or (kind == "unknown" and before is None) else None,
    )


def _reused_entry(part: Frame | Skipped, names: dict[str, str], reusing_run: Literal["before", "after"]) -> Reused:
    return Reused(part.function, _break_place(part, names), reusing_run)


def _run_figures(report: Report, reusable_code: ReusableCode | None) -> RunFigures:
    cell_name = next((source.name for source in report.sources if source.kind == "cell"), None)
    summary, timing = reusable_code.figures() if reusable_code is not None else (report.summary, report.timing)
    return RunFigures(cell_name, report.status, summary, timing)
