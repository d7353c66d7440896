"""Describe a second start, which uses PyTorch's caches on disk that the first start filled, and try to improve it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from jupyter_graphbreak._torch_compat.tried_settings import CacheSettings
from jupyter_graphbreak.analysis.build import build_with_files
from jupyter_graphbreak.experiments.cost.variants import Variant
from jupyter_graphbreak.experiments.trial.entry import compile_separately
from jupyter_graphbreak.experiments.trial.time_limit import require_time
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.report.cost import CacheChange, GraphStartup, Startup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.records.records import Record
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Graph

_ADDRESS = re.compile(r"<(?:\w+ )*?([\w.]+) at 0x[0-9a-f]+>")
#: The reason that PyTorch gives for bypassing AOTAutograd's cache if Inductor's cache, on which it depends, is off.
_CACHE_OFF_REASON = "FX graph cache is not enabled"
#: The maximum number of times that the settings are extended.
_MAX_ROUNDS = 4
_NOT_SAVED_REASON = "the first start did not save it, for example because its backward pass did not run"


def second_start(records: Iterable[Record], correspondence: Correspondence) -> Startup | None:
    """Return the times of the first and of the second start; ``None`` if the backend uses no caches.

    Compiling the copies is the second start: their code is new to Dynamo, and only the caches on disk contain the
    graphs.
    """
    records = list(records)
    messages = _cache_messages(records)
    if not messages:
        return None
    backend_s = {
        str(record.compile_key): record.data.get("backend_compile_time_s") or 0.0
        for record in records
        if record.kind == "compilation_metrics"
    }
    report_on_copies, run_report = correspondence.report_on_copies, correspondence.run_report
    compile_s = {frame.id: frame.compile_s or 0.0 for frame in report_on_copies.frames}
    graphs = {graph.id: graph for graph in run_report.graphs}
    starts = []
    for graph in report_on_copies.graphs:
        ident = correspondence.original_graph(graph.id)
        if ident is None:
            continue
        total_s, graph_backend_s = compile_s.get(graph.frame, 0.0), backend_s.get(graph.frame, 0.0)
        cache, reason = _cache_state(messages[graph.frame])
        location = _mentioned_location(graphs[ident], reason) if reason is not None else None
        starts.append(
            GraphStartup(
                ident, round(max(0.0, total_s - graph_backend_s), 4), round(graph_backend_s, 4), cache, reason, location
            )
        )
    return Startup(
        first_s=round(correspondence.compile_seconds(), 4), second_s=round(sum(compile_s.values()), 4), graphs=starts
    )


def _cache_messages(records: Iterable[Record]) -> defaultdict[str, dict[str, str | None]]:
    """Return the messages of the caches, by the id of the frame and the kind of the message."""
    messages: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
    for record in records:
        if "_cache_" in record.kind:
            messages[str(record.compile_key)][record.kind.removeprefix("artifact:")] = record.payload
    return messages


def cache_changes(entry: Entry, startup: Startup, records: Iterable[Record]) -> list[CacheChange]:
    """Try settings that avoid the bypasses of an entry's graphs; return those that let the cache keep all graphs.

    Each bypass mentions only one operation, so settings are added from one start to the next.
    """
    bypassed_graphs = [graph.graph for graph in startup.graphs if graph.cache == "bypass"]
    reasons = _bypass_reasons(_cache_messages(records))
    settings = CacheSettings()
    for _ in range(_MAX_ROUNDS):
        extended_settings = settings.extend_for_bypasses(reasons)
        if extended_settings == settings:
            break
        settings = extended_settings
        reasons = _bypass_reasons(_cache_messages(_records_of_start(entry, settings)))
        if not reasons:
            cached_start = list(_records_of_start(entry, settings))
            frames = _cache_messages(cached_start).values()
            if frames and all(_cache_state(messages)[0] == "hit" for messages in frames):
                report, _ = build_with_files(cached_start)
                seconds = sum(frame.compile_s or 0.0 for frame in report.frames)
                return [CacheChange(settings.code, bypassed_graphs, round(seconds, 4))]
            break
    return []


def _records_of_start(entry: Entry, settings: CacheSettings) -> Iterable[Record]:
    """Compile an entry and its backward pass, as a new process would; return the records."""
    require_time()
    variant = Variant(entry, compiled=True)
    with settings.apply(), compile_separately(variant.subject.function), recorder.record() as recording:
        variant.observe_with_backward(lambda call: call())
    return recording.records


def _bypass_reasons(messages: Mapping[str, Mapping[str, str | None]]) -> list[str]:
    """Return PyTorch's reasons for bypassing AOTAutograd's cache."""
    reasons = (frame.get("aotautograd_cache_bypass") for frame in messages.values())
    return [reason.replace("\\n", "\n") for reason in reasons if reason is not None]


def _cache_state(messages: Mapping[str, str | None]) -> tuple[Literal["hit", "miss", "bypass", "off"], str | None]:
    """Return the state of AOTAutograd's cache for a graph, and the reason if a cache lacks the graph."""
    inductor = "Inductor's cache: "
    if "fx_graph_cache_bypass" in messages:
        reason = inductor + (_first_line(messages["fx_graph_cache_bypass"]) or "bypassed")
    else:
        reason = f"{inductor}miss" if "fx_graph_cache_miss" in messages else ""
    if "aotautograd_cache_bypass" in messages:
        bypass_reason = _first_line(messages["aotautograd_cache_bypass"])
        if bypass_reason == _CACHE_OFF_REASON:
            return "off", None
        return "bypass", "; ".join(filter(None, [bypass_reason, reason])) or None
    if "aotautograd_cache_hit" in messages:
        return "hit", reason or None
    if "aotautograd_cache_miss" not in messages:
        return "off", reason or None
    # The first start has cached the code that Inductor generated for the graph, but not the graph.
    return "miss", _NOT_SAVED_REASON if "fx_graph_cache_hit" in messages else reason or None


def _first_line(reason: str | None) -> str:
    """Return the first line of one of PyTorch's reasons, with the names of objects in place of their addresses."""
    line = (reason or "").replace("\\n", "\n").strip().partition("\n")[0]
    return _ADDRESS.sub(r"\1", line).strip().rstrip(".")


def _mentioned_location(graph: Graph, reason: str) -> Location | None:
    """Return the location of the first operation that a reason mentions; ``None`` if it mentions none."""
    words = set(re.findall(r"\w+", reason))
    locations = (op.location for op in graph.ops if re.split(r"\W+", op.target)[-1] in words)
    return next((location for location in locations if location is not None), None)


def combine_startups(starts: Iterable[Startup | None]) -> Startup | None:
    """Add up the starts of several entries; ``None`` if no entry uses caches."""
    measured_starts = [start for start in starts if start is not None]
    if not measured_starts:
        return None
    return Startup(
        round(sum(start.first_s for start in measured_starts), 4),
        round(sum(start.second_s for start in measured_starts), 4),
        [graph for start in measured_starts for graph in start.graphs],
        [change for start in measured_starts for change in start.changes],
    )
