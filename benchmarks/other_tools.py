"""Compare what several tools say about the same programs: those of the documentation, each with a known break.

Each tool runs all programs in a separate process. A line is treated as a break if at least two of the tools name it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from notebooks import examples

if TYPE_CHECKING:
    from collections.abc import Callable

_MARK = "=== program"
_BREAK = re.compile(r"Graph break(?: \([^)]*\))? in user code at \S*?(\w+)\.py:(\d+)")
_FRAME = re.compile(r'File "\S*?(\w+)\.py", line (\d+)')
_SETTING = re.compile(r"torch\._dynamo\.config\.(\w+)")


#: A print three calls deep: one break, which Dynamo reaches once in each of the three functions.
_NESTED = """\
import torch


def inner(x):
    print("inner")
    return x + 1


def middle(x):
    return inner(x * 2) - 1


def before(x):
    return middle(x / 2) + 5


before(torch.ones(3))
"""


@dataclass
class ToolResult:
    """The output of a tool for a program.

    Parameters
    ----------
    lines : list of int
        The lines that it names; a line that it names twice is in the list twice.
    count : int or None
        The number of breaks that it states.
    """

    lines: list[int] = field(default_factory=list)
    count: int | None = None


class Program:
    """A program of the documentation without its decorator; ``before`` is what is compiled."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._text = path.read_text(encoding="utf-8")
        tree = ast.parse(self._text)
        (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "before")
        function.decorator_list = []
        self._calls = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "before"
        ]
        tree.body = [node for node in tree.body if not (isinstance(node, ast.Expr) and node.value in self._calls)]
        self._code = compile(tree, str(path), "exec", dont_inherit=True)

    def run(self, use: Callable[[Any, list[Any]], object]) -> None:
        """Pass the function and the arguments of each call to ``use``, and restore Dynamo's settings afterwards."""
        import torch

        torch.compiler.reset()
        config: Any = torch._dynamo.config  # noqa: SLF001 - the programs change these settings
        settings = {name: copy.copy(getattr(config, name)) for name in set(_SETTING.findall(self._text))}
        with config.patch(settings), contextlib.redirect_stdout(io.StringIO()):
            namespace: dict[str, Any] = {"__name__": self.name}
            exec(self._code, namespace)  # noqa: S102 - runs a program of the documentation
            for call in self._calls:
                arguments = [eval(ast.unparse(item), namespace) for item in call.args]  # noqa: S307 - evaluates code of the same program
                with contextlib.suppress(Exception):
                    use(namespace["before"], arguments)


def _call_compiled(function: Any, arguments: list[Any], *, fullgraph: bool = False) -> None:
    import torch

    compiled: Any = torch.compile(function, backend="eager", fullgraph=fullgraph)
    compiled(*arguments)


def _capture(program: Program) -> ToolResult:
    import jupyter_graphbreak

    with jupyter_graphbreak.capture() as run:
        program.run(_call_compiled)
    lines = [item.location.line for item in run.report.breaks if item.location and item.location.line]
    return ToolResult(lines, len(run.report.breaks))


def _explain(program: Program) -> ToolResult:
    import torch

    result = ToolResult(count=0)

    def use(function: Any, arguments: list[Any]) -> None:
        explanation = torch._dynamo.explain(function)(*arguments)  # noqa: SLF001 - PyTorch documents this name
        result.count = (result.count or 0) + explanation.graph_break_count
        for reason in explanation.break_reasons:
            line_numbers = [frame.lineno for frame in reason.user_stack if Path(frame.filename).stem == program.name]
            result.lines += [line for line in line_numbers[-1:] if line]

    program.run(use)
    return result


def _fullgraph(program: Program) -> ToolResult:
    result = ToolResult()

    def use(function: Any, arguments: list[Any]) -> None:
        try:
            _call_compiled(function, arguments, fullgraph=True)
        except Exception:  # noqa: BLE001 - the exception is the finding
            text = traceback.format_exc().rpartition("from user code")[2]
            result.lines += [int(line) for name, line in _FRAME.findall(text) if name == program.name][-1:]

    program.run(use)
    return result


def _compile_only(program: Program) -> ToolResult:
    print(_MARK, program.name, file=sys.stderr, flush=True)
    program.run(_call_compiled)
    return ToolResult()


_TOOLS = {"ours": _capture, "explain": _explain, "fullgraph": _fullgraph, "compile": _compile_only}


def _run(tool: str, folder: Path, environment: dict[str, str] | None = None) -> tuple[dict[str, ToolResult], str]:
    """Run all programs under a tool in a separate process; return its results and its log."""
    command = [sys.executable, __file__, "--tool", tool, str(folder)]
    process = subprocess.run(command, env=os.environ | (environment or {}), capture_output=True, text=True, check=True)
    results = json.loads(process.stdout.splitlines()[-1])
    return {name: ToolResult(**fields) for name, fields in results.items()}, process.stderr


def _logs(folder: Path) -> dict[str, ToolResult]:
    _, log = _run("compile", folder, {"TORCH_LOGS": "graph_breaks"})
    results: dict[str, ToolResult] = {}
    for part in log.split(_MARK)[1:]:
        name = part.split()[0]
        lines = [int(line) for file, line in _BREAK.findall(part) if file == name]
        results[name] = ToolResult(lines, len(lines))
    return results


def _tlparse(folder: Path, command: str) -> dict[str, ToolResult]:
    with tempfile.TemporaryDirectory() as traces:
        _run("compile", folder, {"TORCH_TRACE": traces})
        (log,) = Path(traces).glob("*.log")
        output = Path(traces, "output")
        subprocess.run([command, str(log), "-o", str(output), "--no-browser"], capture_output=True, check=True)
        results: dict[str, ToolResult] = {}
        for page in output.rglob("*graph_break_reason*"):
            for name, line in _BREAK.findall(page.read_text(encoding="utf-8", errors="replace")):
                results.setdefault(name, ToolResult()).lines.append(int(line))
    return {name: ToolResult(item.lines, len(item.lines)) for name, item in results.items()}


def _table(results: dict[str, dict[str, ToolResult]]) -> str:
    tool_counts = Counter(
        broken_line
        for items in results.values()
        for broken_line in {(name, line) for name, item in items.items() for line in item.lines}
    )
    broken_lines = {broken_line for broken_line, tools in tool_counts.items() if tools > 1}
    programs = {name for name, _ in broken_lines}
    rows = []
    for tool, items in results.items():
        named_lines = {(name, line) for name, item in items.items() for line in item.lines} & broken_lines
        counts = [items[name].count for name in programs if name in items]
        stated_counts = [count for count in counts if count is not None]
        nested_count = len(items.get("nested", ToolResult()).lines)
        zero_count = (
            f"{sum(count <= 0 for count in stated_counts)} of {len(programs)}" if stated_counts else "states no number"
        )
        rows.append(f"| {tool} | {len(named_lines)} of {len(broken_lines)} | {nested_count} | {zero_count} |")
    heading = "| tool | lines with a break that it names | names a print three calls deep | counts no break |"
    return "\n".join([heading, "| --- | --- | --- | --- |", *rows])


def main() -> None:
    """Run every tool and print the table; with ``--tool`` run one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", choices=_TOOLS)
    parser.add_argument("--tlparse", default=shutil.which("tlparse"), help="the command, if it is not on the path")
    parser.add_argument("folder", nargs="?", type=Path)
    arguments = parser.parse_args()
    if arguments.tool:
        programs = [Program(path) for path in sorted(arguments.folder.glob("*.py"))]
        print(json.dumps({program.name: vars(_TOOLS[arguments.tool](program)) for program in programs}))
        return
    with tempfile.TemporaryDirectory() as temporary_folder:
        folder = Path(temporary_folder)
        for example in examples.examples():
            Path(folder, f"{example.name}.py").write_text(example.code, encoding="utf-8")
        Path(folder, "nested.py").write_text(_NESTED, encoding="utf-8")
        results = {"`%%compile_explain`": _run("ours", folder)[0], "`TORCH_LOGS=graph_breaks`": _logs(folder)}
        if arguments.tlparse:
            results["`tlparse`"] = _tlparse(folder, arguments.tlparse)
        results["`torch._dynamo.explain`"] = _run("explain", folder)[0]
        results["`fullgraph=True`"] = _run("fullgraph", folder)[0]
    print(_table(results))


if __name__ == "__main__":
    main()
