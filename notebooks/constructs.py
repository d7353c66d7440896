"""Read the constructs of the page "Is this traced?", and make its tables from their measured outcomes."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from jupyter_graphbreak.knowledge.causes import CAUSES
from notebooks import cause_pages

#: One file for each table; ``# %%`` opens a construct.
FOLDER = Path(__file__).parents[1] / "tests" / "programs" / "constructs"
#: The outcome of each construct by release, which ``benchmarks/constructs.py`` writes.
OUTCOMES = Path(__file__).parent / "constructs.json"


@dataclass(frozen=True)
class Construct:
    """A piece of Python or PyTorch, and a program with a function ``f`` that uses it.

    Parameters
    ----------
    path : Path
    title : str
    says : tuple of str
        PyTorch's words about it in some release.
    advice : str
        What to write instead, or what to know.
    header, line, code : str, int, str
        The beginning of the file, which each of its programs needs, and the program with its first line.
    """

    path: Path
    title: str
    says: tuple[str, ...]
    advice: str
    header: str
    line: int
    code: str

    @property
    def name(self) -> str:
        """The key of the outcomes."""
        return f"{self.path.stem}: {self.title}"

    def compiled(self) -> tuple[CodeType, CodeType]:
        """Return the header and the program; its lines are those of the file, so that ``inspect`` finds the source."""
        lines = "\n" * (self.line - 1)
        return compile(self.header, self.path, "exec"), compile(lines + self.code, self.path, "exec")


@functools.cache
def constructs() -> dict[str, list[Construct]]:
    """Return the constructs by the name of their file."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.py")) if path.stem != "outcomes"}


def _read(path: Path) -> list[Construct]:
    header, *cells = re.split(r"^# %% ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = []
    line = header.count("\n") + 1
    for cell in cells:
        title, *rest = cell.split("\n")
        fields = [text for text in rest if text.startswith(("# says: ", "# do: "))]
        says = tuple(text.removeprefix("# says: ") for text in fields if text.startswith("# says: "))
        advice = " ".join(text.removeprefix("# do: ") for text in fields if text.startswith("# do: "))
        code = "\n".join(rest[len(fields) :])
        found.append(Construct(path, title, says, advice, header, line + 1 + len(fields), code))
        line += cell.count("\n")
    return found
