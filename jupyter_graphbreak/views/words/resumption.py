"""What is known of a resume function that has no frame, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import NoFrame, Resume

_WORDS: dict[NoFrame | None, str] = {
    "eager": "ran eagerly",
    "compiled before": "compiled before this run",
    "inlined": "compiled with its caller",
    "not reached": "not reached",
    None: "not known if it ran",
}


def surely_ran(resume: Resume) -> bool:
    """Whether a resume function was entered in the run."""
    return bool(resume.frames) or resume.no_frame in {"eager", "inlined"}


def without_frame(resume: Resume) -> str:
    """Return what is known of a resume function without frames."""
    return _WORDS[resume.no_frame]
