"""Every link from page to page, and from the code to a page, leads to a page and a heading that exist.

`test_pages.py` looks for dead links in the built site; this test needs no build.
"""

from __future__ import annotations

import functools
import posixpath
import re
from pathlib import Path

import pytest
from docutils.nodes import make_id
from myst_parser.slugs import github_slugify

from notebooks import cause_pages, constructs, known_bugs, rare_causes

ROOT = Path(cause_pages.__file__).parents[1]
_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
#: A page address in a string literal, such as `page="recompiles.md#raising-the-limit"`.
_ADDRESS = re.compile(r"[\"(]((?:causes/)?[a-z]\w*)\.md(?:#([\w-]+))?[\")]")


@functools.cache
def _pages() -> dict[str, str]:
    """Return the text of each page of the site, with the generated tables, by page name."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.md")}
    texts |= {f"{cause_pages.FOLDER}/{name}": text for name, text in cause_pages.pages().items()}
    for name in ("common_breaks", "compile_time"):
        tables = re.findall(r"^% (\w+)$", texts[name], re.MULTILINE)
        texts[name] += "".join(f"\n\n{getattr(cause_pages, table)()}" for table in tables)
    rare_ids = rare_causes.ids()
    return {name: constructs.insert_tables(known_bugs.insert_lists(text), rare_ids) for name, text in texts.items()}


@functools.cache
def _anchors(page: str) -> set[str]:
    """Return the ids of a page's headings, as docutils and MyST make them, and its explicit targets."""
    text = _FENCE.sub("", _pages()[page])  # a comment in a cell looks like a heading
    targets = set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))
    headings = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings]
    return targets | {make_id(title) for title in titles} | {github_slugify(title) for title in titles}


def _problem(page: str, anchor: str) -> str | None:
    if page not in _pages():
        return f"there is no page {page}"
    return f"{page} has no heading {anchor}" if anchor and anchor not in _anchors(page) else None


def test_links_between_pages_lead_to_headings_that_exist() -> None:
    dead_links = []
    for page, text in _pages().items():
        for path, anchor in _LINK.findall(text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else f"{page}.md"
            if target.endswith(".md"):
                problem = _problem(target.removesuffix(".md"), anchor)
            else:
                is_missing = "/" in path and not (ROOT / "notebooks" / target).exists()
                problem = f"there is no file {target}" if is_missing else None
            dead_links += [f"{page}: {problem}"] if problem else []
    assert dead_links == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "jupyter_graphbreak/knowledge").glob("*.[pt]*")), ids=lambda path: path.name
)
def test_the_pages_that_the_knowledge_modules_name_exist(path: Path) -> None:
    addresses = _ADDRESS.findall(path.read_text(encoding="utf-8"))
    assert [problem for page, anchor in addresses if (problem := _problem(page, anchor))] == []


def test_an_address_is_found_in_a_string() -> None:
    assert _ADDRESS.findall('page="recompiles.md#raising-the-limit"') == [("recompiles", "raising-the-limit")]
    assert _problem("recompiles", "raising-the-limit") is None
    assert _problem("recompiles", "no-such-heading") == "recompiles has no heading no-such-heading"
    assert _problem("no_such_page", "") == "there is no page no_such_page"
