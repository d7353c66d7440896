"""Make tables and a diagram of the reference pages from the code: options, the fields of a report, the layers."""

from __future__ import annotations

import argparse
import ast
import html
import inspect
import re
import textwrap
import tomllib
import types
import typing
from pathlib import Path
from typing import Any

import msgspec

from jupyter_graphbreak.ipython.magic import CompileExplain
from jupyter_graphbreak.report import schema as report

ROOT = Path(__file__).parents[1]
#: A parameter of a NumPy docstring, or several with one description, and the lines below it.
_PARAMETER = re.compile(r"^(?P<names>[\w, ]+) : .*\n(?P<text>(?: {4}.*\n?)+)", re.MULTILINE)
#: Code in the help text of an option: an example at its end, or the name of an option.
_CODE = re.compile(r"%+compile_explain .*|--\w+")


def options() -> str:
    """Return a table of the magic's options, in Markdown."""
    parser = CompileExplain.compile_explain.parser
    formatter = argparse.HelpFormatter(parser.prog)
    rows = ["| option | meaning |", "| --- | --- |"]
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of arguments
        if not action.option_strings or action.dest == "help":
            continue
        value = "|".join(action.choices) if action.choices else action.metavar if action.nargs != 0 else ""
        names = ", ".join(f"`{name} {value}`" if value else f"`{name}`" for name in action.option_strings)
        # A help text is a format string, in which a percent sign is written twice.
        meaning = _CODE.sub(r"`\g<0>`", formatter._expand_help(action))  # noqa: SLF001
        rows.append(f"| {names.replace('|', chr(92) + '|')} | {meaning} |")
    return "\n".join(rows)


def schema() -> str:
    """Return a table of the fields of each class of a report, in Markdown, beginning with the outermost class."""
    classes: list[type[msgspec.Struct]] = [report.Report]
    for struct in classes:
        for field in msgspec.structs.fields(struct):
            classes += [field_class for field_class in _structs(field.type) if field_class not in classes]
    return "\n\n".join(_class(struct) for struct in classes)


def _class(struct: type[msgspec.Struct]) -> str:
    text = inspect.getdoc(struct) or ""
    meanings = {
        name.strip(): " ".join(parameter["text"].split())
        for parameter in _PARAMETER.finditer(text)
        for name in parameter["names"].split(",")
    }
    rows = ["| field | type | meaning |", "| --- | --- | --- |"] if meanings else ["| field | type |", "| --- | --- |"]
    for field in msgspec.structs.fields(struct):
        meaning = f" {meanings.get(field.name, '')} |" if meanings else ""
        rows.append(f"| `{field.encode_name}` | {_type(field.type)} |{meaning}")
    head = text.partition("\nParameters\n")[0].strip()
    return f"## {struct.__name__}\n\n{_convert_roles(head)}\n\n" + _convert_roles("\n".join(rows))


def _convert_roles(text: str) -> str:
    """Turn reStructuredText's code and references into Markdown's."""
    text = re.sub(r":class:`(\w+)`", lambda role: f"[{role[1]}](#{role[1].lower()})", text)
    return re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", text).replace("``", "`")


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [struct for part in typing.get_args(kind) for struct in _structs(part)]


def _type(kind: Any) -> str:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(f'`"{part}"`' for part in parts)
    if origin in {types.UnionType, typing.Union}:
        return " or ".join(_type(part) for part in parts)
    if origin is list:
        return f"list of {_type(parts[0])}"
    if origin is dict:
        return "object"
    if kind is Any:
        return "anything"
    if _structs(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    return {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}[kind]


def layers() -> str:
    """Return a diagram of the package's layers as SVG, each above those that it may import, from the contracts."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = [[name.strip() for name in row.split("|")] for row in contracts[0]["layers"]]
    width, height, gap = 760, 46, 10
    shapes = []
    for number, row in enumerate(rows):
        top = number * (height + gap)
        box_width = (width - gap * (len(row) - 1)) / len(row)
        for column, name in enumerate(row):
            left = column * (box_width + gap)
            middle = f'x="{left + box_width / 2:.0f}" text-anchor="middle"'
            shapes.append(
                f'<rect x="{left:.0f}" y="{top}" width="{box_width:.0f}" height="{height}" rx="6" fill="none" '
                f'stroke="currentColor"/><text {middle} y="{top + 19}" font-weight="600">{name}</text>'
                f'<text {middle} y="{top + 36}" font-size="11">{_purpose(name, box_width)}</text>'
            )
    total = len(rows) * (height + gap) - gap
    label = "The layers of the package, from top to bottom: " + "; ".join(", ".join(row) for row in rows)
    return (
        f'<svg viewBox="-1 -1 {width + 2} {total + 2}" role="img" aria-label="{label}" fill="currentColor" '
        f'font-family="sans-serif" font-size="14">{"".join(shapes)}</svg>'
    )


def _purpose(name: str, width: float) -> str:
    """Return the first clause of a folder's or module's docstring, shortened to the width of its box."""
    path = ROOT / "jupyter_graphbreak" / name
    module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    words = re.split(r"[:;,.]", text, maxsplit=1)[0].replace("``", "")
    return html.escape(textwrap.shorten(words, int(width / 5.6), placeholder="..."))
