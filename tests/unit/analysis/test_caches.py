"""Cache hits, misses and bypasses in the trace are counted separately."""

from __future__ import annotations

import msgspec

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.records.records import Record, reduce_record


def cache_record(name: str, **data: object) -> Record:
    payload = msgspec.json.encode({"key": "abc", "components": ["x"] * 100, **data}).decode()
    return Record({"artifact": {"name": name}, "frame_id": 0, "frame_compile_id": 0}, payload)


def test_a_bypass_does_not_count_as_a_miss() -> None:
    records = [cache_record("aotautograd_cache_bypass"), cache_record("fx_graph_cache_hit")]
    timing = build_report(records).timing
    assert (timing.cache_hits, timing.cache_misses, timing.cache_bypasses) == (1, 0, 1)
    timing = build_report([cache_record("fx_graph_cache_bypass")]).timing
    assert (timing.cache_hits, timing.cache_misses, timing.cache_bypasses) == (0, 0, 1)
    assert build_report([]).timing.cache_bypasses is None


def test_only_the_reason_of_a_bypass_is_kept() -> None:
    reduced = reduce_record(cache_record("aotautograd_cache_bypass", cache_bypass_reason="freezing"))
    assert (reduced.kind, reduced.payload) == ("artifact:aotautograd_cache_bypass", "freezing")
    assert reduce_record(cache_record("fx_graph_cache_hit")).payload is None
    damaged_record = Record({"artifact": {"name": "fx_graph_cache_miss"}}, "[")
    assert reduce_record(damaged_record).payload is None
