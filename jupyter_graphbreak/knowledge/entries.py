"""What an entry of the tables says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import SkipKind

#: What the names of Dynamo's settings begin with.
CONFIG = "torch._dynamo.config."

#: The rewrites of the source that the families of remedies can propose for a cause.
Rewrite = Literal[
    "check in the graph",
    "copy with clone()",
    "delete the call",
    "draw with randint_like",
    "keep the tensor",
    "leave requires_grad_() out",
    "mask instead of selecting",
    "pass sizes as numbers",
    "replace the requires_grad assignment",
    "take values one by one",
    "wrap forward",
]


@dataclass(frozen=True, slots=True)
class DynamoSetting:
    """A setting of Dynamo with the value that makes something traceable.

    Parameters
    ----------
    name : str
        Its name in ``torch._dynamo.config``.
    value : bool or int
    is_safe : bool or None
        Whether the results stay the same wherever it works; ``None`` if that is not known.
    since : str or None
        The first PyTorch release that has it, ``None`` for 2.9 or earlier.
    """

    name: str
    value: bool | int
    is_safe: bool | None = None
    since: str | None = None

    def __str__(self) -> str:
        """Return the assignment: "torch._dynamo.config.allow_rnn = True"."""
        return f"{CONFIG}{self.name} = {self.value}"


@dataclass(frozen=True, slots=True)
class ManualStep:
    """What a person must decide if no remedy works.

    Parameters
    ----------
    text : str
    tried : str
        What the title of a remedy contains that makes ``text`` obsolete if that remedy failed.
    otherwise : str
        What is left to decide then.
    """

    text: str
    tried: str = ""
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class SkipReason:
    """Why a function runs eagerly: the kind, a sentence, the way out that applies, the page about it."""

    kind: SkipKind
    sentence: str
    way_out: str | None = None
    page: str = "skipped.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCall:
    """What we know about something that is called, whatever the GB id of the break.

    Parameters
    ----------
    names : tuple of str
        How Dynamo's context of a break calls the function.
    pattern : str or None
        What the source code of the call matches.
    title, advice, setting_advice, manual_step, page
        As those of :class:`KnownCause`; ``None`` leaves it to the entry of the GB id.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    title: str | None = None
    advice: str | None = None
    setting_advice: str | None = None
    manual_step: ManualStep | None = None
    page: str | None = None


@dataclass(frozen=True, slots=True)
class KnownCause:
    """What we know about a cause of graph breaks.

    Parameters
    ----------
    id : str
        The GB id; for a cause without one the name that PyTorch gives it.
    names : tuple of str
        What PyTorch's releases call it. Messages of old releases have a name and no id.
    title : str
        What breaks, in the reader's words; code is in backticks.
    advice : str or None
        What to do if the line is the reader's own, with its trap if there is one.
    setting_advice : str or None
        The part of the advice that helps whoever owns the line: a setting.
    advice_if_consequence : str or None
        What else to do if this is why a function cannot resume after a break.
    manual_step : ManualStep or None
        What a person must decide if no remedy works.
    settings : tuple of tuple of DynamoSetting
        The combinations of settings that are tried, the one that does less first.
    rewrites : tuple of str
        The rewrites of the source that are tried.
    skip : SkipReason or None
        Why a function that was given up for this cause runs eagerly, if the cause itself says so.
    also_reported_as : tuple of str
        What ``torch._dynamo.explain`` and Dynamo's logs call it.
    is_named_by_call : bool
        Whether the id only says that a call could not be traced, so that the entry of what is called says more.
    is_deliberate : bool
        Whether somebody asked for the break.
    is_captured_by_fullgraph : bool
        Whether ``fullgraph=True`` always captures it.
    is_safe : bool or None
        Whether results, gradients and output stay the same wherever the advice works; ``None`` if that is not known.
    since : str or None
        The first PyTorch release that has the id, ``None`` for 2.9 or earlier.
    until : str or None
        The last PyTorch release that has the id, ``None`` if 2.15 has it.
    page : str
        The page about it in ``notebooks/``, with its section if it has one.
    """

    id: str
    names: tuple[str, ...]
    title: str
    advice: str | None = None
    setting_advice: str | None = None
    advice_if_consequence: str | None = None
    manual_step: ManualStep | None = None
    settings: tuple[tuple[DynamoSetting, ...], ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    skip: SkipReason | None = None
    also_reported_as: tuple[str, ...] = ()
    is_named_by_call: bool = False
    is_deliberate: bool = False
    is_captured_by_fullgraph: bool = False
    is_safe: bool | None = None
    since: str | None = None
    until: str | None = None
    page: str = "common_breaks.md"
