"""Sphinx's configuration: the notebooks of this folder are executed, and a cell that fails stops the build."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from ipython_pygments_lexers import IPython3Lexer
from myst_nb.sphinx_ import NbMetadataCollector
from pygments.lexer import bygroups, using
from pygments.lexers.python import Python3Lexer
from pygments.lexers.shell import BashLexer
from pygments.token import Keyword, Operator, Text
from sphinx import addnodes

from jupyter_graphbreak import __version__

sys.path.insert(0, str(Path(__file__).parents[1]))

from notebooks import cause_pages, constructs, known_bugs, rare_causes

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "jupyter_graphbreak"
project_copyright = "2026, the jupyter_graphbreak developers"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
# `make demo` runs the demo; the pages cover the same topics in more detail.
exclude_patterns = ["_build", "demo.md", "cause_examples", "recompile_examples", "bypass_examples"]

# Every build runs every cell: a page kept from an earlier build would show outdated reports.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_markdown_format = "gfm"
# The kernels run with the Python that builds the pages, and download nothing.
os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
if str(Path(sys.executable).parent) not in os.environ["PATH"].split(os.pathsep):
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["HF_HUB_OFFLINE"] = "1"
# The kernels ignore the user's IPython configuration. Without the log level, they would warn on every page that their
# connection is not encrypted; it stays on this machine.
_ipython = tempfile.TemporaryDirectory()
_profile = Path(_ipython.name, "profile_default")
_profile.mkdir()
(_profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 'ERROR'\n", encoding="utf-8")
os.environ["IPYTHONDIR"] = _ipython.name
# jupyter_graphbreak.mystnb shows the reports, and the pages have no other widgets, so no script of widgets is needed.
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False

html_theme = "furo"
html_title = project
# Brighter than the theme's own colour: reports mix their colours with it, and text has to stay readable on red.
html_theme_options = {"dark_css_variables": {"color-foreground-primary": "#eceef0"}}
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = ["cause_links.js"]
html_show_sphinx = False
html_copy_source = False
# Prompts and outputs are not for copying.
copybutton_selector = "div.cell_input pre, div.highlight-sh pre, div.highlight-python pre"


def _offer_notebook(_: Sphinx, page: str, source: list[str]) -> None:
    """Add a link to a page with cells, for downloading the page as a notebook with its outputs."""
    if "\n```{code-cell}" in source[0]:
        source[0] += f"\n+++\n\n{{nb-download}}`Download this page as a notebook <{page}.ipynb>`\n"


def _spread_cells(app: Sphinx, _: object, pages: list[str]) -> None:
    """Spread the pages with cells evenly over all pages, because each process reads a part of them in turn."""
    pages_with_cells = {
        page for page in pages if "\n```{code-cell}" in app.env.doc2path(page).read_text(encoding="utf-8")
    }
    ranks: dict[str, float] = {}
    for group in (sorted(pages_with_cells), sorted(set(pages) - pages_with_cells)):
        ranks |= {page: index / len(group) for index, page in enumerate(group)}
    pages.sort(key=ranks.__getitem__)


def _insert_tables(_: Sphinx, page: str, source: list[str]) -> None:
    """Replace each comment that names a table, and the sentence below it, with that table."""
    if page == "known_bugs":
        source[0] = known_bugs.insert_lists(source[0])
    if page == "traced":
        source[0] = constructs.insert_tables(source[0], rare_causes.ids())
    if page in {"common_breaks", "compile_time"}:
        source[0] = re.sub(
            r"^% (\w+)\n.*$", lambda comment: str(getattr(cause_pages, comment[1])()), source[0], flags=re.MULTILINE
        )


def _link_causes(_: Sphinx, page: str, __: str, context: dict[str, Any], ___: object) -> None:
    """Put a link to the page of its cause above the link to PyTorch's registry in the card of each break."""
    if "/" not in page:
        context["body"] = re.sub(
            r'<p><a href="[^"]*" target="_blank" rel="noopener noreferrer">(GB\d{4}) in PyTorch',
            lambda link: f"{_cause_link(link[1])}{link[0]}",
            context.get("body", ""),
        )


def _cause_link(ident: str) -> str:
    words = "programs and fixes" if cause_pages.page_name(ident) in _PAGES else "PyTorch's explanation"
    return f'<p><a class="gb-cause" href="{cause_pages.address(ident)}">{ident}: {words}</a></p>'


def _arrange(app: Sphinx, page: str, _: str, context: dict[str, Any], __: object) -> None:
    """Hide the table of contents to make room for reports, and drop the widgets' state, which repeats each report."""
    context["meta"] = {**(context.get("meta") or {}), "hide-toc": True}
    NbMetadataCollector.get_js_files(app.env, page).pop("ipywidgets_state", None)


def _drop_headings(_: Sphinx, env: BuildEnvironment) -> None:
    """Drop the headings inside pages from the trees for each page's navigation, which has titles only.

    Copying the headings for every page would take several seconds.
    """
    for tree in env.tocs.values():
        for headings in [*tree.findall(nodes.bullet_list)]:
            if headings.parent is not None and next(headings.findall(addnodes.toctree), None) is None:
                headings.parent.remove(headings)


#: The names of the pages of causes.
_PAGES = frozenset(cause_pages.pages())


class _CellLexer(IPython3Lexer):  # type: ignore[misc] # the package ships no types
    """Colours the cell below the magic as Python, and a shell script that a cell writes as one."""

    tokens: ClassVar = {
        **IPython3Lexer.tokens,
        "root": [
            (r"(?s)(%%)(compile_explain)([^\n]*\n)(.*)", bygroups(Operator, Keyword, Text, using(Python3Lexer))),
            (r"(?s)(%%)(writefile)([^\n]*\.sh\n)(.*)", bygroups(Operator, Keyword, Text, using(BashLexer))),
            *IPython3Lexer.tokens["root"],
        ],
    }


def setup(app: Sphinx) -> None:
    """Register our lexer and our event handlers; Sphinx calls this."""
    app.add_lexer("ipython3", _CellLexer)
    cause_pages.write(Path(app.srcdir, cause_pages.FOLDER))
    app.connect("env-before-read-docs", _spread_cells)
    app.connect("env-updated", _drop_headings)
    app.connect("source-read", _offer_notebook)
    app.connect("source-read", _insert_tables)
    app.connect("html-page-context", _link_causes)
    app.connect("html-page-context", _arrange, priority=400)
