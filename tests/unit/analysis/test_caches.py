"""PyTorch's caches in the trace: hits, misses and bypasses are distinguished."""

from __future__ import annotations

import msgspec

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.records.records import Record, reduce_record


def use_of_cache(name: str, **data: object) -> Record:
    payload = msgspec.json.encode({"key": "abc", "components": ["x"] * 100, **data}).decode()
    return Record({"artifact": {"name": name}, "frame_id": 0, "frame_compile_id": 0}, payload)


def test_a_bypass_is_no_miss() -> None:
    records = [use_of_cache("aotautograd_cache_bypass"), use_of_cache("fx_graph_cache_hit")]
    timing = build_report(records).timing
    assert (timing.cache_hits, timing.cache_misses, timing.cache_bypasses) == (1, 0, 1)
    timing = build_report([use_of_cache("fx_graph_cache_bypass")]).timing
    assert (timing.cache_hits, timing.cache_misses, timing.cache_bypasses) == (0, 0, 1)
    assert build_report([]).timing.cache_bypasses is None


def test_only_the_reason_of_a_bypass_is_kept() -> None:
    reduced = reduce_record(use_of_cache("aotautograd_cache_bypass", cache_bypass_reason="freezing"))
    assert (reduced.kind, reduced.payload) == ("artifact:aotautograd_cache_bypass", "freezing")
    assert reduce_record(use_of_cache("fx_graph_cache_hit")).payload is None
    broken = Record({"artifact": {"name": "fx_graph_cache_miss"}}, "[")
    assert reduce_record(broken).payload is None
