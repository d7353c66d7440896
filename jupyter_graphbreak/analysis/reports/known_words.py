"""PyTorch's own words that a redacted report may contain, read from a list, so that torch is not needed.

``benchmarks/known_words.py`` writes the list.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

_LIST = Path(__file__).with_name("known_words.txt")
_PREFIX = re.compile(r"(?:torch\.ops\.)?(?=(?:aten|prims|prim|inductor|_?c10d_functional|_c10d_functional|quantized"
                     r"|higher_order)\.)")  # fmt: skip


def is_operation(name: str) -> bool:
    """Return whether a name is that of an operation of PyTorch or Python."""
    return _PREFIX.sub("", name, count=1) in _sections()["operations"]


def is_setting(name: str) -> bool:
    """Return whether a name is that of a setting of Dynamo."""
    return name in _sections()["settings"]


def is_cause(gb_id: str | None, gb_type: str) -> bool:
    """Return whether PyTorch's registry has a cause of graph breaks with this name and, if given, this GB id."""
    names = _names_by_id()
    return gb_type in names.get(gb_id, ()) if gb_id is not None else any(gb_type in known for known in names.values())


def is_text_of_registry(text: str) -> bool:
    """Return whether a text is an explanation or a hint from PyTorch's registry."""
    return " ".join(text.split()) in _sections()["texts"]


@functools.cache
def _sections() -> dict[str, frozenset[str]]:
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in _LIST.read_text(encoding="utf-8").split("\n"):
        if re.fullmatch(r"\[[a-z]+\]", line):
            lines = sections[line.strip("[]")] = []
        else:
            lines.append(line)
    return {name: frozenset(words) for name, words in sections.items()}


@functools.cache
def _names_by_id() -> dict[str | None, set[str]]:
    names: dict[str | None, set[str]] = {}
    for line in _sections()["causes"]:
        gb_id, _, name = line.partition(" ")
        names.setdefault(gb_id, set()).add(name)
    return names
