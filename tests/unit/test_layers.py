"""Imports go down only and never in a circle, also inside functions; what is expensive to import is imported late."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "jupyter_graphbreak"


class Layer(NamedTuple):
    """The layers below that some modules may import, and the heavy packages that they may import."""

    below: set[str]
    heavy: frozenset[str] = frozenset()


TORCH = frozenset({"torch"})
IPYTHON = frozenset({"IPython"})

#: From the bottom to the top. A layer is a folder, or single modules: the longest name that fits decides.
LAYERS = {
    "faults": Layer(set()),
    "recording.package_paths": Layer(set()),
    "recording.records": Layer({"recording.package_paths"}),
    "recording.additions": Layer({"recording.records"}),
    "recording.library": Layer({"recording.package_paths"}),
    "report": Layer(set()),
    "knowledge": Layer({"report"}),
    "_torch_compat": Layer({"faults", "recording.records", "recording.additions", "recording.library"}, TORCH),
    "recording": Layer(
        {
            "faults", "recording.records", "recording.additions", "recording.source_texts", "recording.library",
            "report", "_torch_compat",
        },
        TORCH,
    ),
    "recording.source_texts": Layer({"recording.records", "recording.additions", "recording.library"}),
    "recording.threads_at_work": Layer({"recording.library"}),
    "regular_files": Layer(set()),
    "trace": Layer(
        {
            "recording.records", "recording.additions", "recording.source_texts", "recording.package_paths",
            "recording.library", "regular_files",
        }
    ),
    "gate": Layer({"report", "regular_files"}),
    "notebookfiles": Layer({"report", "regular_files"}),
    "analysis.reports": Layer({"recording.records", "report", "knowledge"}),
    "analysis.source": Layer({"recording.records", "recording.package_paths", "report"}),
    "analysis.torch_text": Layer({"recording.records", "recording.package_paths", "knowledge"}),
    "analysis.finished": Layer({"report"}),
    "analysis.reasons": Layer({"report", "knowledge", "analysis.source", "analysis.torch_text"}),
    "analysis": Layer(
        {
            "faults", "recording.records", "recording.additions", "recording.package_paths", "report", "knowledge",
            "analysis.source", "analysis.torch_text", "analysis.reasons", "analysis.finished",
        }
    ),
    "compiling": Layer(
        {
            "faults", "recording", "recording.records", "recording.additions", "recording.library",
            "_torch_compat", "analysis.source", "report",
        },
        TORCH,
    ),
    "trial": Layer(
        {
            "report", "_torch_compat", "recording", "recording.records", "recording.library", "recording.source_texts",
            "recording.threads_at_work",
        },
        TORCH,
    ),
    "frontends": Layer(
        {"faults", "report", "_torch_compat", "recording", "recording.source_texts", "analysis", "trial"}, TORCH
    ),
    "remedies.proposal": Layer({"report"}),
    "remedies.drafting": Layer({"analysis.source"}),
    "remedies.forms": Layer({"report", "knowledge", "analysis.source", "remedies.proposal", "remedies.drafting"}),
    "remedies.program": Layer(
        {"report", "recording.source_texts", "recording.threads_at_work", "analysis.source", "remedies.proposal"}
    ),
    "remedies.families": Layer(
        {"report", "knowledge", "analysis.source", "remedies.proposal", "remedies.drafting", "remedies.forms"}
    ),
    "remedies.persons": Layer({"report", "knowledge"}),
    "remedies": Layer(
        {
            "faults", "report", "_torch_compat", "recording", "recording.source_texts", "analysis", "analysis.reports",
            "analysis.source", "trial", "remedies.proposal", "remedies.program",
            "remedies.drafting", "remedies.families", "remedies.persons",
        },
        TORCH,
    ),
    "cost": Layer({"report", "_torch_compat", "recording", "recording.source_texts", "analysis", "trial"}, TORCH),
    "views.words": Layer({"report"}),
    "views.rows": Layer({"report", "views.words"}),
    "views.text": Layer({"report", "views.words", "views.rows"}),
    "views.html.widget": Layer({"report", "views.words", "views.text", "views.html"}, frozenset({"anywidget"})),
    "views.html": Layer({"report", "views.words", "views.rows", "views.text"}),
    "views.jobs": Layer({"report", "views.words", "views.text", "views.html"}),
    "views.exchange": Layer({"report", "views.words", "views.text"}),
    "views": Layer(set()),
    "results": Layer(
        {"report", "analysis", "analysis.reports", "views.text", "views.html", "views.html.widget", "views.jobs"}
    ),
    "api": Layer(
        {
            "faults", "report", "_torch_compat", "recording", "recording.source_texts", "analysis", "analysis.finished",
            "analysis.reports", "trace", "trial", "frontends", "remedies", "cost", "remedies.program", "notebookfiles",
            "results", "compiling",
        },
        TORCH,
    ),
    "commands": Layer(
        {
            "report", "gate", "trace", "notebookfiles", "views.words", "views.html", "views.jobs", "views.exchange",
            "results", "api", "analysis.source", "recording.library", "regular_files", "",
        },
    ),
    "cli": Layer({"commands", ""}),
    "pytest_plugin": Layer({"report", "results", "api"}, frozenset({"pytest", "torch"})),
    "mystnb": Layer({"report", "views.html", "views.jobs"}, frozenset({"docutils", "myst_nb"})),
    "ipython.cell.bindings": Layer(set()),
    "ipython.cell.top_level": Layer({"ipython.cell.bindings"}, TORCH),
    "ipython.cell": Layer(
        {
            "faults", "recording.records", "recording", "recording.source_texts", "analysis.source",
            "compiling", "ipython.cell.bindings", "ipython.cell.top_level",
        },
        IPYTHON,
    ),
    "ipython": Layer(
        {
            "faults", "report", "_torch_compat", "recording", "recording.records", "analysis.source", "trial",
            "frontends", "views.text", "views.html", "views.html.widget", "results", "api", "ipython.cell", "trace",
            "remedies.program", "compiling", "ipython.cell.top_level",
        },
        IPYTHON,
    ),
    "": Layer({"trial", "remedies.program", "results", "api", "ipython"}, IPYTHON),
}  # fmt: skip
HEAVY = {"IPython", "anywidget", "docutils", "ipywidgets", "myst_nb", "pytest", "torch"}


def modules() -> dict[str, Path]:
    """Return our modules by name, without the package's own; the package itself is the empty name."""
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        paths[".".join(part for part in parts if part != "__init__")] = path
    return paths


MODULES = modules()


def layer_of(module: str) -> str:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in LAYERS:
            return name
    raise AssertionError(f"{module} has no place in LAYERS: give it one")


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield every dotted name that a module imports, of a ``from`` import each name with its module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports absolute, so that they can be read here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(module: str) -> set[str]:
    """Return which of our modules a module imports, anywhere in its text."""
    imported = set()
    for name in imports(parsed(module)):
        head, _, rest = name.partition(".")
        if head == PACKAGE.name:
            # What follows a module's name is a name inside it; a name in the package itself is none of a module.
            imported.add(next(m for m in (rest, rest.rpartition(".")[0], "") if m in MODULES))
    return imported


def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_down_only(module: str) -> None:
    name = layer_of(module)
    for imported in own_imports(module):
        assert layer_of(imported) in {*LAYERS[name].below, name}, (
            f"{module or 'the package'} must not import {imported}"
        )


def test_the_layers_have_an_order() -> None:
    order = list(graphlib.TopologicalSorter({name: layer.below for name, layer in LAYERS.items()}).static_order())
    assert set(order) == set(LAYERS)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: own_imports(module) - {module} for module in MODULES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_layer_imports_only_the_heavy_packages_it_is_about(module: str) -> None:
    heads = {name.partition(".")[0] for name in imports(parsed(module))}
    assert heads & HEAVY <= LAYERS[layer_of(module)].heavy


@pytest.mark.parametrize("module", sorted(name for name in MODULES if layer_of(name) != "_torch_compat"))
def test_only_the_compat_package_touches_what_pytorch_keeps_to_itself(module: str) -> None:
    tree = parsed(module)
    used = set(imports(tree)) | {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not {name for name in used if name.startswith("torch.") and "._" in name}


FOLDERS = {str(path.parent.relative_to(PACKAGE)) for path in MODULES.values()}


@pytest.mark.parametrize("folder", sorted(FOLDERS - {"."}))
def test_a_folder_says_what_it_is_for(folder: str) -> None:
    tree = ast.parse((PACKAGE / folder / "__init__.py").read_text(encoding="utf-8"))
    (docstring,) = tree.body
    text = ast.get_docstring(tree) or ""
    assert isinstance(docstring, ast.Expr)
    assert len(text.splitlines()) >= 3
    assert "In" in text
    assert "import" in text.lower()


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


def test_a_report_shows_itself_without_the_extension() -> None:
    code = f"""
from jupyter_graphbreak import Report
report = Report.from_json(open({str(Path(__file__).parents[1] / "reports" / "two_breaks.json")!r}, "rb").read())
assert str(report) == report.to_text()
assert repr(report).startswith("<Report Cell In[")
assert {{"text/plain", "text/html"}} < set(report._repr_mimebundle_())
"""
    assert heavy_modules_after(code) == set()
