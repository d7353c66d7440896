"""Count what a call has a CUDA device do: kernels, graphs, synchronisations, and the memory it takes."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from jupyter_graphbreak.report.cost import DeviceWork

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak._torch_compat.profile_ranges import Activity

#: Functions of the CUDA runtime and driver, and of HIP, by what they do.
_LAUNCH = re.compile(r"(cuda|cu|hip|hipModule|hipExtModule|hipExt)Launch(Cooperative)?Kernel(ExC|Ex)?(_\w+)?")
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch(_\w+)?")
_SYNCHRONISE = re.compile(
    r"(cuda|hip)(Device|Stream|Event)Synchronize|cu(Ctx|Stream|Event)Synchronize|(cuda|hip)Memcpy"
)


def device_work(activities: Sequence[Activity]) -> DeviceWork:
    """Return what a call had the device do.

    Parameters
    ----------
    activities : sequence of Activity
        In the order in which they happened.
    """
    names = [activity.name for activity in activities]
    taken = itertools.accumulate((seen.nbytes for seen in activities if seen.memory not in {"", "cpu"}), initial=0)
    return DeviceWork(
        launches=sum(_LAUNCH.fullmatch(name) is not None for name in names),
        graph_launches=sum(_GRAPH_LAUNCH.fullmatch(name) is not None for name in names),
        synchronisations=sum(_SYNCHRONISE.fullmatch(name) is not None for name in names),
        peak_bytes=max(taken),
    )
