"""Imports go down only, and what is expensive to import is imported late."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "jupyter_graphbreak"


class Layer(NamedTuple):
    """Some modules, the layers below that they may import, and the heavy packages they may import."""

    modules: set[str]
    below: set[str]
    heavy: frozenset[str] = frozenset()


TORCH_MODULES = ("compiled", "frames", "frontends", "hooks", "patching", "scopes", "settings")

#: From the bottom to the top. Modules of one layer may import each other, but for the inert data.
LAYERS = {
    "data": Layer({"records", "report"}, set()),
    "build": Layer(
        {
            "advice",
            "break_message",
            "breaks",
            "build",
            "diff",
            "frames",
            "graph_code",
            "graphs",
            "ledger",
            "recompiles",
            "resumes",
            "scopes",
            "skips",
            "source",
        },
        {"data"},
    ),
    "torch": Layer(
        {"_torch_compat"} | {f"_torch_compat.{each}" for each in TORCH_MODULES}, {"data"}, frozenset({"torch"})
    ),
    "watch": Layer({"compiling", "progress", "recorder", "trace_log"}, {"data", "torch"}, frozenset({"torch"})),
    "verdicts": Layer({"frontends"}, {"data"}),
    "compare": Layer(
        {"captures", "compare", "difference", "inputs", "subject"},
        {"data", "build", "torch", "watch", "verdicts"},
        frozenset({"torch"}),
    ),
    "device": Layer({"device"}, {"data"}),
    "cell": Layer({"calls", "cell"}, {"data", "watch"}, frozenset({"IPython"})),
    "views": Layer(
        {
            "views",
            "views.changes",
            "views.course",
            "views.frontends",
            "views.highlight",
            "views.html",
            "views.listing",
            "views.references",
            "views.resumes",
            "views.rows",
            "views.stacks",
            "views.terminal",
            "views.text",
        },
        {"data", "verdicts"},
    ),
    "widget": Layer({"views.widget"}, {"data", "views"}, frozenset({"anywidget", "ipywidgets"})),
    "faces": Layer(
        {"", "api", "magic", "mystnb", "screen"},
        {"data", "verdicts", "build", "torch", "watch", "compare", "device", "cell", "views", "widget"},
        frozenset({"IPython", "docutils", "myst_nb"}),
    ),
}
HEAVY = {"IPython", "anywidget", "docutils", "ipywidgets", "myst_nb", "pytest", "torch"}

#: A saved report can compare and show itself: its methods look up, when they are called.
SHOWING = {"diff", "to_text", "to_html", "save"}


def modules() -> dict[str, Path]:
    """Return our modules by name, without the package's own; the package itself is the empty name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def layer_of(module: str) -> str:
    names = [name for name, layer in LAYERS.items() if module in layer.modules]
    assert names, f"{module or 'the package'} has no place in LAYERS: give it one"
    return names[0]


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield every dotted name that a module imports, of a ``from`` import each name with its module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports absolute, so that they can be read here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(tree: ast.AST) -> set[str]:
    """Return which of our modules a tree imports."""
    known = modules()
    found = set()
    for name in imports(tree):
        head, _, rest = name.partition(".")
        if head == PACKAGE.name:
            # What follows a module's name is a name inside it; a name in the package itself is none of a module.
            found.add(next(m for m in (rest, rest.rpartition(".")[0], "") if m in known))
    return found


def parsed(module: str) -> ast.Module:
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    if module in {"frontends", "report"}:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in SHOWING:
                node.body = [ast.Pass()]
    return tree


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_go_down_only(module: str) -> None:
    name = layer_of(module)
    allowed = {*LAYERS[name].below, *([name] if name != "data" else [])}
    for imported in own_imports(parsed(module)):
        assert layer_of(imported) in allowed, f"{module or 'the package'} must not import {imported}"


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_layer_imports_only_the_heavy_packages_it_is_about(module: str) -> None:
    heads = {name.partition(".")[0] for name in imports(parsed(module))}
    assert heads & HEAVY <= LAYERS[layer_of(module)].heavy


@pytest.mark.parametrize("module", sorted(name for name in modules() if layer_of(name) != "torch"))
def test_only_the_compat_package_touches_what_pytorch_keeps_to_itself(module: str) -> None:
    tree = parsed(module)
    used = set(imports(tree)) | {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not {name for name in used if name.startswith("torch.") and "._" in name}


def heavy_modules_after(code: str) -> set[str]:
    """Run code in a fresh interpreter and return the heavy packages it left imported."""
    code = f"import sys\n{code}\nprint(*({{'anywidget', 'ipywidgets', 'torch'}} & sys.modules.keys()))"
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert heavy_modules_after("import jupyter_graphbreak") == set()


def test_loading_the_extension_imports_nothing_heavy() -> None:
    code = """
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
shell.run_line_magic("load_ext", "jupyter_graphbreak")
assert "compile_explain" in shell.magics_manager.magics["cell"]
"""
    assert heavy_modules_after(code) == set()
