"""Read the registry of graph breaks that PyTorch ships."""

from __future__ import annotations

import functools
import importlib
import json
from pathlib import Path
from typing import Any

from jupyter_graphbreak.records.additions import RegistryEntry


@functools.cache
def _registry() -> dict[str, tuple[str, dict[str, Any]]]:
    path = Path(importlib.import_module("torch._dynamo").__file__ or "").with_name("graph_break_registry.json")
    try:
        registry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    # The newest revision of an entry comes first, and a later key replaces an earlier one.
    return {entry["Gb_type"]: (gb_id, entry) for gb_id, entries in registry.items() for entry in reversed(entries)}


def registry_entry(gb_type: str) -> RegistryEntry:
    """Return the registry's entry for a reason, without the hints that have placeholders.

    If the registry has no entry, the result has only the name of the reason.
    """
    gb_id, entry = _registry().get(gb_type, (None, {}))
    return RegistryEntry(
        gb_type=gb_type,
        gb_id=gb_id,
        explanation=entry.get("Explanation"),
        hints=[hint for hint in entry.get("Hints", []) if "{" not in hint],
    )
