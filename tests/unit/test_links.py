"""Links on the Markdown pages outside the documentation lead to files and headings that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)|(?:src|href)=\"(?!https?://)([^\"#]+)\"")


def _pages() -> list[Path]:
    output = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = [name for name in output.splitlines() if not name.startswith("notebooks/")]
    return [ROOT / name for name in names] or sorted(ROOT.glob("*.md"))  # an sdist has no git repository


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in _pages()])
def test_the_targets_of_links_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for path, anchor, source in _LINK.findall(text):
        target = page.parent / (path or source) if path or source else page
        assert target.exists(), f"{path or source} does not exist"
        if anchor:
            assert anchor in _anchors(target), f"{path}#{anchor} does not exist"


def test_the_readme_has_links_to_pages_and_pictures() -> None:
    links = _LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert {Path(path or source).suffix for path, _, source in links} >= {".md", ".png"}


def test_the_files_mentioned_in_architecture_md_exist() -> None:
    text = (ROOT / "notebooks" / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([\w./]+(?:\.py|/))`", text)
    assert len(paths) > 20
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / "jupyter_graphbreak" / path).exists(), path
