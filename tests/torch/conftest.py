"""Shared fixtures for tests of a real ``torch.compile``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_graphbreak._torch_compat.separate_cache import restore_eval_frame_override
from tests.support import warm_processes


@pytest.fixture(autouse=True)
def keep_nested_frames_compiling() -> Iterator[None]:
    """Undo an override that ``torch.jit.trace`` leaves behind in torch 2.11, after which no nested frame compiles."""
    with restore_eval_frame_override():
        yield


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """End measurements after fewer calls than users need."""
    for module, name, value in warm_processes.short_measurements():
        monkeypatch.setattr(module, name, value)
