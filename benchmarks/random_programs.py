"""Generate random programs of notebook cells from the grammar in ``random_programs.txt``."""

from __future__ import annotations

import collections
import contextlib
import functools
import random
import re
from pathlib import Path

from benchmarks.user_view import Cell

GRAMMAR = Path(__file__).with_suffix(".txt")
IMPORTS = """import asyncio, builtins, collections, contextlib, copy, dataclasses, decimal, enum, fractions, functools
import gc, inspect, io, itertools, logging, math, operator, os, pickle, pprint, random, sys, threading, time, traceback
import types, warnings, weakref
import numpy as np
import torch, torch.utils.checkpoint
from IPython.display import HTML, display
log = logging.getLogger("mine")"""
MAX_DEPTH = 3


class MissingNameError(Exception):
    """A template needs a name of a kind that does not exist."""


@functools.cache
def read_grammar() -> dict[str, list[str]]:
    """Return the templates of each kind."""
    grammar: dict[str, list[str]] = {}
    sections = re.split(r"^== (\w+)\n", GRAMMAR.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for kind, text in zip(sections[1::2], sections[2::2], strict=True):
        separator = "\n--\n" if "\n--\n" in text else "\n"
        grammar[kind] = [template.strip("\n") for template in text.strip("\n").split(separator)]
    return grammar


class Writer:
    """Writes random statements whose names are mostly bound to values of known kinds.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - the numbers are not secret
        self._grammar = read_grammar()
        self._names: dict[str, list[str]] = collections.defaultdict(list)
        self._depth = 0

    def program(self) -> list[Cell]:
        """Return some cells, most of them to be explained."""
        cells = [Cell(IMPORTS, is_explained=False)]
        if self._random.random() < 0.8:
            cells.append(
                Cell("\n".join(self._statements("definition", 1, 5)), is_explained=self._random.random() < 0.3)
            )
        for _ in range(self._random.randint(1, 4)):
            cells.append(Cell(self._cell(), self._random.random() < 0.8))
            if self._random.random() < 0.1:
                cells.append(cells[-1])
        return cells

    def _cell(self) -> str:
        statements = self._statements("definition", 0, 2)
        if self._random.random() < 0.6:
            statements += self._statements("common", 2, 10)
        else:
            statements += [
                *self._statements("common", 0, 6),
                *self._statements("noticed", 1, 3),
                *self._statements("common", 0, 3),
            ]
        for kind, share in (("failing", 0.2), ("refused", 0.04)):
            if self._random.random() < share:
                statements.insert(self._random.randint(0, len(statements)), self._statement([kind]))
        text = "\n".join(statements)
        if "\n%%" in text or text.startswith("%%"):  # a cell magic applies to the rest of the cell
            text = text[text.index("%%") :]
        return text

    def _statements(self, kind: str, min_count: int, max_count: int) -> list[str]:
        return [self._statement([kind]) for _ in range(self._random.randint(min_count, max_count))]

    def _statement(self, kinds: list[str]) -> str:
        while True:
            with contextlib.suppress(MissingNameError):
                return self._fill(self._random.choice(self._grammar[self._random.choice(kinds)]))

    def _fill(self, template: str) -> str:
        references: dict[str, str] = {}
        bindings: list[tuple[str, str]] = []
        lines = []
        for line in template.split("\n"):
            block = re.fullmatch(r"( *)<(body|function)((?: \w+:\w+)*)>", line)
            if block is not None:
                for kind, name in bindings:
                    self._bind(kind, name)
                bindings.clear()
                lines.append(self._block(*block.groups()))
            else:
                lines.append(
                    re.sub(r"<(\.?)(\w+)(=?)(\d?)>", functools.partial(self._slot, references, bindings), line)
                )
        for kind, name in bindings:
            self._bind(kind, name)
        return "\n".join(lines)

    def _block(self, indent: str, block: str, locals_: str) -> str:
        self._depth += 1
        outer_names = {kind: list(names) for kind, names in self._names.items()}
        for name, kind in (pair.split(":") for pair in locals_.split()):
            self._names[kind] += [name] * 4
        kinds = ["common", "common", "inside"] if block == "function" else ["common"]
        if self._random.random() < 0.1:
            kinds.append("failing")
        count = self._random.randint(1, 3) if self._depth < MAX_DEPTH else 0
        statements = [self._statement(kinds) for _ in range(count)] or ["pass"]
        self._depth -= 1
        if block == "function":
            self._names = collections.defaultdict(list, outer_names)
        return "\n".join(indent + line for statement in statements for line in statement.split("\n"))

    def _bind(self, kind: str, name: str) -> None:
        if name not in self._names[kind]:
            self._names[kind].append(name)

    def _slot(self, references: dict[str, str], bindings: list[tuple[str, str]], match: re.Match[str]) -> str:
        is_name, kind, binds, number = match.groups()
        if kind.isdigit():
            return references[kind]
        if binds:
            name = f"{kind[0] if len(kind) < 7 else kind[:4]}{self._random.randint(1, 4)}"
            bindings.append((kind, name))
            if number:
                references[number] = name
            return name
        if is_name:
            return self._choose_name(kind)
        return self._expression(kind)

    def _choose_name(self, kind: str) -> str:
        if not self._names[kind]:
            raise MissingNameError(kind)
        return self._random.choice(self._names[kind])

    def _expression(self, kind: str) -> str:
        if kind == "small":
            return str(self._random.randint(0, 3))
        self._depth += 1
        try:
            while True:
                template = self._random.choice(self._grammar[kind])
                if self._depth > MAX_DEPTH + 1 and template.count("<") > template.count("<."):
                    continue
                with contextlib.suppress(MissingNameError):
                    return self._fill(template)
        finally:
            self._depth -= 1
