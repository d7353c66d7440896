"""Heavy packages are imported late, there are no import cycles, and the docstrings of folders state their purpose.

The order of the rooms is in ``pyproject.toml``, and ``make lint`` checks it with import-linter.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "jupyter_graphbreak"
#: Heavy packages, and the rooms and modules that may import them; the longest name that fits decides.
HEAVY = {"IPython", "anywidget", "docutils", "ipywidgets", "myst_nb", "pytest", "torch"}
MAY_IMPORT_HEAVY: dict[str, set[str]] = {
    "_torch_compat": {"torch"},
    "recording": {"torch"},
    "compiling": {"torch"},
    "experiments": {"torch"},
    "experiments.families": set(),
    "views.html.widget": {"anywidget"},
    "api": {"torch"},
    "pytest_plugin": {"pytest", "torch"},
    "mystnb": {"docutils", "myst_nb"},
    "ipython": {"IPython"},
    "ipython.cell.top_level": {"torch"},
    "": {"IPython"},
}


def modules() -> dict[str, Path]:
    """Return our modules by name, without the package's own; the package itself is the empty name."""
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        paths[".".join(part for part in parts if part != "__init__")] = path
    return paths


MODULES = modules()


def heavy_packages_of(module: str) -> set[str]:
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((MAY_IMPORT_HEAVY[name] for name in names if name in MAY_IMPORT_HEAVY), set())


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield every dotted name that a module imports; a ``from`` import yields each name with its module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports absolute, so that they can be read here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(module: str) -> set[str]:
    """Return our modules that a module imports, anywhere in its text."""
    imported = set()
    for name in imports(parsed(module)):
        head, _, rest = name.partition(".")
        if head == PACKAGE.name:
            # The rest may name a module, a name in a module, or a name in the package itself.
            imported.add(next(m for m in (rest, rest.rpartition(".")[0], "") if m in MODULES))
    return imported


@functools.cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def test_there_are_no_import_cycles() -> None:
    graph = {module: own_imports(module) - {module, ""} for module in MODULES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"an import cycle: {' <- '.join(error.args[1])}")


def test_a_module_imports_only_the_heavy_packages_it_is_about() -> None:
    wrong = {}
    for module in MODULES:
        heads = {name.partition(".")[0] for name in imports(parsed(module))}
        wrong[module] = heads & HEAVY - heavy_packages_of(module)
    assert {module: heads for module, heads in wrong.items() if heads} == {}


def test_only_the_compat_package_uses_private_names_of_pytorch() -> None:
    private = []
    for module in MODULES:
        if not module.startswith("_torch_compat"):
            tree = parsed(module)
            attributes = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            used = {*imports(tree), *attributes}
            private += [(module, name) for name in used if name.startswith("torch.") and "._" in name]
    assert private == []


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
