"""Read the constructs of the page "Is this traced?", and make its tables from their measured outcomes."""

from __future__ import annotations

import functools
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge.causes import CAUSES

if TYPE_CHECKING:
    from collections.abc import Container
    from types import CodeType

#: One file for each table; ``# %%`` opens a construct.
FOLDER = Path(__file__).parents[1] / "tests" / "programs" / "constructs"
#: The outcome of each construct by release, which ``benchmarks/constructs.py`` writes.
OUTCOMES = Path(__file__).parent / "constructs.json"
#: A comment that names a file, and the sentence below it, which a reader of the source sees in place of the table.
_COMMENT = re.compile(r"^% constructs: (\w+)\n.*$", re.MULTILINE)
_CAUSES = {cause.id: cause for cause in CAUSES}
_CAPTURED_SUFFIX = ", captured by fullgraph"
_OUTCOME_WORDS = {
    "break": "breaks",
    "different result": "different result",
    "traced": "traced",
    "traced, aot_eager fails": "traced, but the backend `aot_eager` fails",
    "traced, aot_eager differs": "traced, but the result differs with `aot_eager`",
}


@dataclass(frozen=True)
class Construct:
    """A piece of Python or PyTorch, and a program with a function ``f`` that uses it.

    Parameters
    ----------
    path : Path
    title : str
    messages : tuple of str
        PyTorch's words about it in some release.
    advice : str
        The code to write instead, or a fact to know.
    header, line, code : str, int, str
        The beginning of the file, which each of its programs needs, and the program with its first line.
    """

    path: Path
    title: str
    messages: tuple[str, ...]
    advice: str
    header: str
    line: int
    code: str

    @property
    def name(self) -> str:
        """The key of the outcomes."""
        return f"{self.path.stem}: {self.title}"

    def code_objects(self) -> tuple[CodeType, CodeType]:
        """Return the header and the program; its lines are those of the file, so that ``inspect`` finds the source."""
        lines = "\n" * (self.line - 1)
        return compile(self.header, self.path, "exec"), compile(lines + self.code, self.path, "exec")


@functools.cache
def constructs() -> dict[str, list[Construct]]:
    """Return the constructs by the name of their file."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.py"))}


def _read(path: Path) -> list[Construct]:
    header, *cells = re.split(r"^# %% ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    constructs_of_file = []
    line = header.count("\n") + 1
    for cell in cells:
        title, *rest = cell.split("\n")
        fields = [text for text in rest if text.startswith(("# message: ", "# do: "))]
        messages = tuple(text.removeprefix("# message: ") for text in fields if text.startswith("# message: "))
        advice = " ".join(text.removeprefix("# do: ") for text in fields if text.startswith("# do: "))
        code = "\n".join(rest[len(fields) :])
        constructs_of_file.append(Construct(path, title, messages, advice, header, line + 1 + len(fields), code))
        line += cell.count("\n")
    return constructs_of_file


def insert_tables(text: str, rare_ids: Container[str] = ()) -> str:
    """Replace the comments of a page that name a file with tables of its constructs.

    Parameters
    ----------
    text : str
    rare_ids : container of str
        The GB ids on the page of rare causes.
    """
    return _COMMENT.sub(lambda comment: _table(constructs()[comment[1]], rare_ids), text)


def _table(group: list[Construct], rare_ids: Container[str]) -> str:
    rows = [
        f"| {_cell(construct.title)} | {_releases(outcomes()[construct.name], rare_ids)} | {_words(construct)} |"
        for construct in group
    ]
    programs = group[0].path.read_text(encoding="utf-8")
    return "\n".join(
        [
            "| code | traced? | PyTorch's words, and what to do |",
            "| --- | --- | --- |",
            *rows,
            "",
            "<details><summary>The programs of this table</summary>",
            "",
            f"```python\n{programs}```",
            "",
            "</details>",
        ]
    )


@functools.cache
def outcomes() -> dict[str, dict[str, str]]:
    """Return the outcomes by construct and release, the oldest release first."""
    outcomes_by_construct: dict[str, dict[str, str]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    return outcomes_by_construct


def titles_by_cause(ident: str) -> tuple[list[str], list[str]]:
    """Return the titles of constructs that break for a cause, and of those that did so in earlier releases only."""
    breaking_titles, traced_titles = [], []
    for group in constructs().values():
        for construct in group:
            *earlier, newest = (
                outcome.removesuffix(_CAPTURED_SUFFIX) for outcome in outcomes()[construct.name].values()
            )
            if newest == ident:
                breaking_titles.append(construct.title)
            elif newest == "traced" and ident in earlier:
                traced_titles.append(f"{construct.title} ({_releases(outcomes()[construct.name]).partition(';')[0]})")
    return breaking_titles, traced_titles


def _releases(outcomes_by_release: dict[str, str], rare_ids: Container[str] = ()) -> str:
    """Return what happens in the newest release and since when, and what happened before."""
    periods = [
        (outcome, list(releases))
        for outcome, releases in itertools.groupby(outcomes_by_release, outcomes_by_release.__getitem__)
    ]
    *earlier, (outcome, newest) = periods
    words = _outcome_words(outcome, rare_ids)
    if not earlier:
        return words
    earlier_periods = [
        f"{', '.join(map(_minor, releases))}: {_outcome_words(earlier_outcome, rare_ids)}"
        for earlier_outcome, releases in reversed(earlier)
    ]
    if words.startswith("breaks") and all(
        earlier_outcome.startswith(("GB", "break")) for earlier_outcome, _ in earlier
    ):
        return "; ".join([words, *(text.replace("breaks, ", "") for text in earlier_periods)])
    return "; ".join([f"{words} since {_minor(newest[0])}", *earlier_periods])


def _minor(release: str) -> str:
    return release.rpartition(".")[0]


def _outcome_words(outcome: str, rare_ids: Container[str]) -> str:
    if outcome in _OUTCOME_WORDS:
        return _OUTCOME_WORDS[outcome]
    if not outcome.startswith("GB"):
        return f"error `{outcome}`"
    ident = outcome.removesuffix(_CAPTURED_SUFFIX)
    page = f"{ident.lower()}.md" if ident in _CAUSES else f"others.md#{ident.lower()}" if ident in rare_ids else ""
    words = f"breaks, [{ident}](causes/{page})" if page else f"breaks, {ident}"
    return words if ident == outcome else f"{words}; one graph with `fullgraph=True`"


def _words(construct: Construct) -> str:
    messages = [f"`{_cell(text)}`" for text in construct.messages]
    causes = {outcome.removesuffix(_CAPTURED_SUFFIX) for outcome in outcomes()[construct.name].values()} & set(_CAUSES)
    names = {_CAUSES[ident].names[0] for ident in sorted(causes)}
    messages += [f"*{name}*" for name in sorted(names - set(construct.messages))]
    words = ", ".join(messages)
    return f"{words}. {_cell(construct.advice)}" if construct.advice else words


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
