"""The table of reasons why PyTorch does not cache a graph."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.knowledge.cache_bypasses import CACHE_BYPASSES, CacheBypass, find_cache_bypass
from notebooks import cause_pages


@pytest.mark.parametrize("entry", CACHE_BYPASSES, ids=lambda entry: entry.name)
def test_each_reason_has_an_entry_and_a_page(entry: CacheBypass) -> None:
    assert find_cache_bypass(entry.reason) is entry
    page = cause_pages.pages()[cause_pages.page_name(f"bypass {entry.name}")]
    assert entry.reason in page
    assert "## Why" in page or "## What to do" in page


@pytest.mark.parametrize("reason", [None, "", "a reason of a later release"])
def test_an_unknown_reason_has_no_entry(reason: str | None) -> None:
    assert find_cache_bypass(reason) is None
