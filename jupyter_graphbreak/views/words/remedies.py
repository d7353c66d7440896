"""What was tried to remove breaks, and what came of it, in words."""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.plain_text import counted, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.remedies import Edit, Evidence, Remedy, RemedyVerdict
    from jupyter_graphbreak.report.schema import Break, Report, Skipped

#: The verdicts, the best first; within the same one the simplest remedy comes first, then that of more breaks.
_ORDER: tuple[RemedyVerdict, ...] = (
    "works", "works on what ran", "works but differs", "another break", "break stays", "another result", "fails",
    "not tried",
)  # fmt: skip
#: A sign before the word, for the quick eye.
_SIGNS: dict[RemedyVerdict, str] = {"works": "✓", "works on what ran": "✓", "works but differs": "≈", "not tried": "○"}
#: What is said of a verdict where a reason follows.
_FAILED: dict[RemedyVerdict, str] = {"another break": "another break comes instead", "break stays": "the break stays"}
#: Lines around a change that show where it is.
_AROUND = 2
#: Remedies for one break that are looked at, and those that are put together.
_MOST_FOR_ONE = 100
_MOST_TOGETHER = 200
_MOST_NUMBERS = 40
#: A remedy with more edits is put together with no other; none of ours has so many.
_MOST_EDITS = 20
#: Lines of an edit that are compared one by one; the lines of a longer one are all replaced.
_MOST_COMPARED = 500


@dataclass(frozen=True, slots=True)
class Tried:
    """What was tried for one break, or for one function that runs eagerly.

    Parameters
    ----------
    working, failed : list of Remedy
        The best first.
    person : list of str
        What a person must decide.
    """

    working: list[Remedy]
    failed: list[Remedy]
    person: list[str]

    def __bool__(self) -> bool:
        return bool(self.working or self.failed or self.person)


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a change: ``@`` says where it is, ``-`` goes, ``+`` comes, a space stays."""

    sign: Literal["@", "-", "+", " "]
    text: str


def tried_for(report: Report, listed: Break) -> Tried | None:
    """Return what was tried for a break and for what runs eagerly after it; ``None`` where nobody asked."""
    if report.remedies is None:
        return None
    skipped = lookup.skipped(report)
    frames = dict.fromkeys(skipped[ident].frame or "" for ident in listed.skipped if ident in skipped)
    by_break, by_frame = lookup.remedies_by_break(report), lookup.remedies_by_frame(report)
    after = (remedy for frame in frames for remedy in by_frame.get(frame, ()))
    return _tried(itertools.chain(by_break.get(listed.id, ()), after))


def tried_for_frame(report: Report, skipped: Skipped) -> Tried | None:
    """Return what was tried for a function that runs eagerly, and for no break; ``None`` where nobody asked."""
    if report.remedies is None:
        return None
    return _tried(lookup.remedies_by_frame(report).get(skipped.frame, ()) if skipped.frame is not None else ())


def _tried(remedies: Iterable[Remedy]) -> Tried:
    # What is for a function that runs eagerly only comes after what is for the break.
    unique = {id(remedy): remedy for remedy in itertools.islice(remedies, _MOST_FOR_ONE)}
    found = sorted(unique.values(), key=lambda r: (not r.breaks, _ORDER.index(r.verdict), _steps(r), -len(r.breaks)))
    changes = [remedy for remedy in found if remedy.kind != "person"]
    return Tried(
        [remedy for remedy in changes if remedy.verdict in WORKING],
        [remedy for remedy in changes if remedy.verdict not in WORKING],
        list(dict.fromkeys(remedy.person for remedy in found if remedy.person)),
    )


def _steps(remedy: Remedy) -> int:
    """Return of how many changes a remedy is put together."""
    return remedy.title.count("; ")


def sign_of(remedy: Remedy) -> str:
    """Return a sign that says at a glance what its verdict says in words."""
    return _SIGNS.get(remedy.verdict, "✗")


def outcome(remedy: Remedy) -> str:
    """Return the verdict on a remedy with what it rests on.

    "works: values and gradients equal on 6 inputs with inductor, both sides taken; 5 graphs become 1"; what differs is
    said beside it. Of one that does not work it says why: "another result: the gradient of w is 12, not 18".
    """
    words, why = _FAILED.get(remedy.verdict, remedy.verdict), basis(remedy)
    return f"{words}: {why}" if why else words


def basis(remedy: Remedy) -> str:
    """Return what the verdict on a remedy rests on."""
    if remedy.verdict not in WORKING:
        return remedy.reason or "; ".join(remedy.differences)
    return "; ".join(part for part in (_compared(remedy), _counts(remedy.evidence)) if part)


def _compared(remedy: Remedy) -> str:
    """Return what was equal on how many inputs, and which sides of conditions ran."""
    evidence = remedy.evidence
    never = ", but one side of a condition never ran" if remedy.verdict == "works on what ran" else ""
    if remedy.reason:
        never = f", but {remedy.reason}"
    if evidence is None:
        return never.removeprefix(", ")
    equal = f"{_listed(evidence.compared)} equal" if evidence.compared else "ran"
    said = f"{equal} on {counted(evidence.inputs, 'input')} with {evidence.backend}"
    return f"{said}, both sides taken{never}" if evidence.both_sides else said + never


def _counts(evidence: Evidence | None) -> str:
    if evidence is None:
        return ""
    before, after = evidence.graphs_before, evidence.graphs_after
    graphs = f"{counted(before, 'graph')} {'becomes' if before == 1 else 'become'} {after}"
    parts = [graphs if before != after else ""]
    if evidence.breaks_after == 0:
        parts.append("no break is left")
    elif evidence.breaks_after < evidence.breaks_before:
        left = evidence.breaks_after
        parts.append(f"{counted(left, 'break')} of {evidence.breaks_before} {'is' if left == 1 else 'are'} left")
    return ", ".join(part for part in parts if part)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# What is changed.


def change_lines(report: Report, remedy: Remedy) -> list[DiffLine]:
    """Return what a remedy changes in sources, line by line: a patch as it is where it is for a file."""
    sources, own = lookup.sources(report), lookup.main_cell(report)
    if remedy.patch and not _is_of_cells(report, remedy):
        return [_of_patch(line) for line in remedy.patch.rstrip("\n").split("\n")]
    lines: list[DiffLine] = []
    for edit in remedy.edits:
        source = sources.get(edit.source)
        name = "" if source is not None and source is own else f"{source.name if source else edit.source}, "
        lines += _of_edit(edit, name)
    return lines


def _is_of_cells(report: Report, remedy: Remedy) -> bool:
    places = (lookup.sources(report).get(edit.source) for edit in remedy.edits)
    return all(source is not None and source.kind == "cell" for source in places)


def _of_patch(line: str) -> DiffLine:
    if line.startswith(("--- ", "+++ ", "@@")):
        return DiffLine("@", line)
    sign: Literal["-", "+", " "] = "-" if line[:1] == "-" else "+" if line[:1] == "+" else " "
    return DiffLine(sign, line[1:])


def _of_edit(edit: Edit, name: str) -> list[DiffLine]:
    old = edit.old.split("\n") if edit.last_line >= edit.first_line else []
    new = edit.new.split("\n") if edit.new else []
    lines: list[DiffLine] = []
    for group in _groups(old, new):
        first = edit.first_line + group[0][1]
        last = edit.first_line + group[-1][2] - 1
        if last < first:
            at = f"before line {first}"
        else:
            at = f"line {first}" if last == first else f"lines {first} to {last}"
        lines.append(DiffLine("@", f"{name}{at}"))
        for kind, start, end, new_start, new_end in group:
            if kind == "equal":
                lines += [DiffLine(" ", text) for text in old[start:end]]
            else:
                lines += [DiffLine("-", text) for text in old[start:end]]
                lines += [DiffLine("+", text) for text in new[new_start:new_end]]
    return lines


def _groups(old: list[str], new: list[str]) -> Iterable[list[tuple[str, int, int, int, int]]]:
    """Return the parts of two texts that differ, as ``difflib`` does."""
    if max(len(old), len(new)) > _MOST_COMPARED:
        return [[("replace", 0, len(old), 0, len(new))]]
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_AROUND)


def code_of(remedy: Remedy) -> str:
    """Return what is run for a remedy: its code, or else its settings as statements."""
    if remedy.code:
        return remedy.code
    return "\n".join(f"{name} = {value!r}" for name, value in remedy.settings.items())


def applied_to(report: Report, remedy: Remedy) -> Literal["edit", "cell"] | None:
    """Return how a notebook applies a remedy that works: by an edit of its cells, or by a cell that sets or patches."""
    if remedy.verdict not in WORKING or remedy.kind == "person":
        return None
    if remedy.code is None and _is_of_cells(report, remedy):
        return "edit" if remedy.edits else None
    return "cell" if remedy.code is not None or remedy.patch is not None else None


# Several at once.


def together(report: Report) -> list[Remedy]:
    """Return remedies that can be applied together, those that are for most breaks first, with nothing left over.

    Each is for a break that none before it is for, and excludes none of them. They were tried one at a time, so only a
    further run shows what they do together; a single one that is for several breaks was tried as it is.
    """
    working = [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING and remedy.kind != "person"]
    chosen: list[Remedy] = []
    reached: set[str] = set()
    best = sorted(working, key=lambda remedy: (-len(remedy.breaks), _ORDER.index(remedy.verdict)))
    for remedy in best[:_MOST_TOGETHER]:
        if set(remedy.breaks + remedy.frames) <= reached or any(_clash(remedy, other) for other in chosen):
            continue
        chosen.append(remedy)
        reached.update(remedy.breaks, remedy.frames)
    return chosen


def _clash(one: Remedy, other: Remedy) -> bool:
    """Whether two remedies exclude each other, or change the same lines."""
    if other.id in one.excludes or one.id in other.excludes or max(len(one.edits), len(other.edits)) > _MOST_EDITS:
        return True
    return any(
        mine.source == theirs.source and mine.first_line <= theirs.last_line and theirs.first_line <= mine.last_line
        for mine in one.edits
        for theirs in other.edits
    )


def breaks_of(report: Report, remedy: Remedy) -> str:
    """Return what a remedy is for: "break 1", "breaks 1 and 2", or the functions that run eagerly without it."""
    numbers = break_numbers(report)
    known = sorted(numbers[ident] for ident in remedy.breaks if ident in numbers)
    if not known:
        frames = lookup.frames(report)
        return joined([frames[ident].function for ident in dict.fromkeys(remedy.frames) if ident in frames], ", ")
    if len(known) > _MOST_NUMBERS:
        return f"breaks {joined(list(map(str, known)), ', ')}"
    return f"break{'s' if len(known) > 1 else ''} {_listed(list(map(str, known)))}"


def shown_elsewhere(report: Report, remedy: Remedy, number: int) -> int | None:
    """Return the number of the break at which a remedy is shown in full, where that is another than this one."""
    numbers = break_numbers(report)
    first = min((numbers[ident] for ident in remedy.breaks if ident in numbers), default=number)
    return first if first != number else None
