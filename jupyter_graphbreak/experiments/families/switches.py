"""Switches of libraries: settings of a model or environment variables that avoid the break."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.experiments.families.proposal import Proposal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.report.schema import Break

FAMILY = "switch"


class Switch(NamedTuple):
    """A library's own setting.

    Parameters
    ----------
    package : str
        The beginning of the path of the library's files.
    marks : tuple of str
        Texts, one of which must occur in the break's code or function, or in those that led to it.
    title, code : str
        The step for the reader, and the code that sets the switch; ``model`` is the program's outermost module.
    """

    package: str
    marks: tuple[str, ...]
    title: str
    code: str


_NO_CHECKS = Switch(
    "transformers/",
    ("torch_compilable_check", "_check_tensor_all"),
    "Turn off the value checks of transformers",
    'import os\nos.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"',
)
_EXPERTS = Switch(
    "transformers/",
    ("expert", "moe"),
    "Compute the experts in one batch",
    'model.set_experts_implementation("batched_mm")',
)
_LAYERDROP = Switch(
    "transformers/",
    ("layerdrop", "to_drop", "skip_the_layer", "dropout_probability"),
    "Turn off the random dropping of layers",
    """for module in model.modules():
    for holder in (module, getattr(module, "config", None)):
        for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
            if isinstance(getattr(holder, name, None), float):
                setattr(holder, name, 0.0)""",
)
SWITCHES = (_NO_CHECKS, _EXPERTS, _LAYERDROP)


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield the switches of the library that contains the break."""
    texts = _texts_of(problem.break_)
    for switch in SWITCHES:
        if _is_in(problem, switch.package) and any(mark in text for mark in switch.marks for text in texts):
            yield Proposal(FAMILY, switch.title, code=switch.code)


def _texts_of(break_: Break) -> list[str]:
    places = [break_.location, *break_.stack[-2:]]
    return [text.lower() for place in places if place is not None for text in (place.code, place.function) if text]


def _is_in(problem: Problem, package: str) -> bool:
    at = problem.break_.location
    source = next(
        (source_ for source_ in problem.report.sources if at is not None and source_.id == at.source),
        None,
    )
    return source is not None and source.kind == "library" and package in f"{source.path}"
