"""The common input of all measurements that follow the timing of an entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from jupyter_graphbreak._torch_compat.guard_trees import FrameGuards
    from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
    from jupyter_graphbreak.experiments.cost.variants import Variant
    from jupyter_graphbreak.experiments.trial.effect_locations import Locate
    from jupyter_graphbreak.experiments.trial.entry import Entry


@dataclass(frozen=True)
class SteadyState:
    """An entry whose calls no longer compile anything.

    ``us_by_graph`` contains the time of each graph in a call, by the graph's id in the report of the run on copies, and
    ``used_frame_ids`` the ids of the frames that a call runs in this report. There are no ``frame_guards`` if this
    PyTorch does not show them.
    """

    entry: Entry
    eager: Variant
    compiled: Variant
    correspondence: Correspondence
    locate: Locate
    us_by_graph: Mapping[str, float] = field(default_factory=dict)
    frame_guards: Sequence[FrameGuards] = ()
    used_frame_ids: Collection[str] = ()
