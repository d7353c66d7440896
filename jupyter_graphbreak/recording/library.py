"""Where the code of libraries lies, which is nobody's own."""

from __future__ import annotations

import sysconfig


def library_roots() -> list[str]:
    """Return the folders whose files are nobody's own: the standard library, torch, and what pip installed."""
    paths = sysconfig.get_paths()
    return sorted({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths})
