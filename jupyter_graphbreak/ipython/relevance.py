"""Decide whether a report that the user did not explicitly request is worth showing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Report

#: Text in the breaks that involve a tensor or one of PyTorch's functions.
_OF_TORCH = re.compile(r"\bTensor(?:Variable)?\b|\bmodule: torch\b|\btorch\.\* op")


def has_dynamo_events(report: Report) -> bool:
    """Return whether Dynamo compiled, broke, skipped or failed anything."""
    summary = report.summary
    return bool(summary.graphs or summary.breaks or summary.skipped or summary.errors or report.recompiles)


def involves_tensors(report: Report) -> bool:
    """Return whether operations were captured or run eagerly, or a break involves a tensor.

    Code that is compiled only for the report breaks at any ``print``, which is irrelevant without tensors.
    """
    summary = report.summary
    texts = (f"{break_.gb_type} {break_.explanation} {break_.context}" for break_ in report.breaks)
    return bool(summary.ops or summary.skipped or summary.errors) or any(map(_OF_TORCH.search, texts))
