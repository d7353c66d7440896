"""The magic divides its time limit among the reruns of a cell."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jupyter_graphbreak.ipython import observation


@pytest.mark.parametrize("elapsed_s", [0.0, 30.0, 500.0])
@pytest.mark.parametrize("used_share", [0.0, 0.1, 1.0])
def test_all_reruns_share_one_limit(monkeypatch: pytest.MonkeyPatch, elapsed_s: float, used_share: float) -> None:
    now = [7.0]
    monkeypatch.setattr(observation, "time", SimpleNamespace(monotonic=lambda: now[0]))
    shares = []
    for share in observation._time_shares(["trying remedies", "measuring", "checking"], elapsed_s):
        shares.append(share)
        now[0] += used_share * share
    limit = max(140 - elapsed_s, 60)
    assert now[0] - 7 <= limit + 1e-6
    assert shares[0] == pytest.approx(limit * 3 / 5)
    assert all(share > 0 for share in shares)
    if used_share < 1:
        assert shares[2] > shares[1], "unused time is available to the next rerun"


def test_a_single_rerun_has_a_shorter_limit() -> None:
    assert list(observation._time_shares(["trying remedies"], 0.0)) == [100.0]
