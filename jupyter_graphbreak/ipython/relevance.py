"""Whether a report is worth showing that nobody asked for by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Report

#: What PyTorch says of a break that a tensor or a function of its own has part in.
_OF_TORCH = re.compile(r"\bTensor(?:Variable)?\b|\bmodule: torch\b|\btorch\.\* op")


def holds_anything(report: Report) -> bool:
    """Whether Dynamo has compiled, broken, skipped or failed at anything."""
    summary = report.summary
    return bool(summary.graphs or summary.breaks or summary.skipped or summary.errors or report.recompiles)


def tells_of_tensors(report: Report) -> bool:
    """Whether operations were captured or run eagerly, or a break is about a tensor.

    Code that was compiled only to be explained breaks at any ``print``; that tells nothing if no tensor is near.
    """
    summary = report.summary
    texts = (f"{listed.gb_type} {listed.explanation} {listed.context}" for listed in report.breaks)
    return bool(summary.ops or summary.skipped or summary.errors) or any(map(_OF_TORCH.search, texts))
