"""Shared fixtures for tests of a real ``torch.compile``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_graphbreak._torch_compat.separate_cache import restore_eval_frame_override


@pytest.fixture(autouse=True)
def nested_frames_compile() -> Iterator[None]:
    """Undo what ``torch.jit.trace`` in a test leaves with torch 2.11, after which no nested frame compiles."""
    with restore_eval_frame_override():
        yield
