"""What the reference pages say, taken from the code itself: the options of the magic, the fields of a report."""

from __future__ import annotations

import inspect
import re
import types
import typing
from typing import Any

import msgspec

from jupyter_graphbreak.ipython.magic import CompileExplain
from jupyter_graphbreak.report import schema as report

#: A parameter of a NumPy docstring, or several with one description, and the lines below it.
_PARAMETER = re.compile(r"^(?P<names>[\w, ]+) : .*\n(?P<text>(?: {4}.*\n?)+)", re.MULTILINE)


def options() -> str:
    """Return a table of the magic's options, in Markdown."""
    parser = CompileExplain.compile_explain.parser
    rows = ["| option | meaning |", "| --- | --- |"]
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        if not action.option_strings or action.dest == "help":
            continue
        value = "|".join(action.choices) if action.choices else action.metavar if action.nargs != 0 else ""
        names = ", ".join(f"`{name} {value}`" if value else f"`{name}`" for name in action.option_strings)
        rows.append(f"| {names.replace('|', chr(92) + '|')} | {action.help} |")
    return "\n".join(rows)


def schema() -> str:
    """Return a table of the fields of each class of a report, in Markdown, from the outermost in."""
    classes: list[type[msgspec.Struct]] = [report.Report]
    for each in classes:
        for field in msgspec.structs.fields(each):
            classes += [part for part in _structs(field.type) if part not in classes]
    return "\n\n".join(_class(each) for each in classes)


def _class(struct: type[msgspec.Struct]) -> str:
    text = inspect.getdoc(struct) or ""
    told = {
        name.strip(): " ".join(found["text"].split())
        for found in _PARAMETER.finditer(text)
        for name in found["names"].split(",")
    }
    rows = ["| field | type | meaning |", "| --- | --- | --- |"] if told else ["| field | type |", "| --- | --- |"]
    for field in msgspec.structs.fields(struct):
        meaning = f" {told.get(field.name, '')} |" if told else ""
        rows.append(f"| `{field.encode_name}` | {_type(field.type)} |{meaning}")
    head = text.partition("\nParameters\n")[0].strip()
    return f"## {struct.__name__}\n\n{_without_roles(head)}\n\n" + _without_roles("\n".join(rows))


def _without_roles(text: str) -> str:
    """Turn reStructuredText's code and references into Markdown's."""
    text = re.sub(r":class:`(\w+)`", lambda found: f"[{found[1]}](#{found[1].lower()})", text)
    return re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", text).replace("``", "`")


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [found for part in typing.get_args(kind) for found in _structs(part)]


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
