"""Heavy packages are imported late, there are no import cycles, and the docstrings of folders state their purpose.

The order of the layers is in ``pyproject.toml``, and ``make lint`` checks it with import-linter.
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
HEAVY_PACKAGES = {"IPython", "anywidget", "docutils", "ipywidgets", "myst_nb", "pytest", "torch"}
#: The heavy packages that a folder or module may import; the longest name that fits decides.
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
    """Return the path of each of our modules by its name within the package; the package itself has the empty name."""
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        paths[".".join(part for part in parts if part != "__init__")] = path
    return paths


MODULES = modules()


def allowed_heavy_packages(module: str) -> set[str]:
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((MAY_IMPORT_HEAVY[name] for name in names if name in MAY_IMPORT_HEAVY), set())


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield every dotted name that a module imports; a ``from`` import yields each name with its module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "use absolute imports: this test does not resolve relative ones"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(module: str) -> set[str]:
    """Return the modules of our package that a module imports, also inside functions."""
    modules_of_package = set()
    for name in imported_names(parse_module(module)):
        head, _, remainder = name.partition(".")
        if head == PACKAGE.name:
            # The rest may name a module, a name in a module, or a name in the package itself.
            modules_of_package.add(next(m for m in (remainder, remainder.rpartition(".")[0], "") if m in MODULES))
    return modules_of_package


@functools.cache
def parse_module(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def test_there_are_no_import_cycles() -> None:
    graph = {module: imported_modules(module) - {module, ""} for module in MODULES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"an import cycle: {' <- '.join(error.args[1])}")


def test_a_module_imports_no_heavy_package_that_it_may_not_import() -> None:
    wrong_imports = {}
    for module in MODULES:
        heads = {name.partition(".")[0] for name in imported_names(parse_module(module))}
        wrong_imports[module] = heads & HEAVY_PACKAGES - allowed_heavy_packages(module)
    assert {module: heads for module, heads in wrong_imports.items() if heads} == {}


def test_only_the_compat_package_uses_private_names_of_pytorch() -> None:
    private_names = []
    for module in MODULES:
        if not module.startswith("_torch_compat"):
            tree = parse_module(module)
            attributes = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            used_names = {*imported_names(tree), *attributes}
            private_names += [(module, name) for name in used_names if name.startswith("torch.") and "._" in name]
    assert private_names == []


FOLDERS = {str(path.parent.relative_to(PACKAGE)) for path in MODULES.values()}


@pytest.mark.parametrize("folder", sorted(FOLDERS - {"."}))
def test_the_docstring_of_a_folder_states_its_purpose(folder: str) -> None:
    tree = ast.parse((PACKAGE / folder / "__init__.py").read_text(encoding="utf-8"))
    (docstring,) = tree.body
    text = ast.get_docstring(tree) or ""
    assert isinstance(docstring, ast.Expr)
    assert len(text.splitlines()) >= 3
    assert "In" in text
    assert "import" in text.lower()


def heavy_packages_loaded_by(code: str) -> set[str]:
    """Run code in a new interpreter and return which of three heavy packages it loaded."""
    code = f"import sys\n{code}\nprint(*({{'anywidget', 'ipywidgets', 'torch'}} & sys.modules.keys()))"
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


def test_importing_the_package_loads_no_heavy_package() -> None:
    assert heavy_packages_loaded_by("import jupyter_graphbreak") == set()


def test_loading_the_extension_loads_no_heavy_package() -> None:
    code = """
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
shell.run_line_magic("load_ext", "jupyter_graphbreak")
assert "compile_explain" in shell.magics_manager.magics["cell"]
"""
    assert heavy_packages_loaded_by(code) == set()


def test_a_report_shows_itself_without_the_extension() -> None:
    code = f"""
from jupyter_graphbreak import Report
report = Report.from_json(open({str(Path(__file__).parents[1] / "reports" / "two_breaks.json")!r}, "rb").read())
assert str(report) == report.to_text()
assert repr(report).startswith("<Report Cell In[")
assert {{"text/plain", "text/html"}} < set(report._repr_mimebundle_())
"""
    assert heavy_packages_loaded_by(code) == set()
