"""Define the types of the entries in the tables of this folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.schema import SkipKind

#: The prefix of Dynamo's settings.
CONFIG = "torch._dynamo.config."

#: The changes to the source code that the families of remedies can propose for a cause.
Rewrite = Literal[
    "check in the graph",
    "copy with clone()",
    "delete the call",
    "detach instead of Variable",
    "draw with randint_like",
    "format with str.format",
    "index with a vector",
    "keep the tensor",
    "leave requires_grad_() out",
    "list the inputs of grad",
    "mask instead of selecting",
    "pass sizes as numbers",
    "replace the requires_grad assignment",
    "take values one by one",
    "test the Python operand first",
    "wrap forward",
]


#: The purposes for which code branches on a tensor.
BranchUse = Literal["end of a loop", "error", "flag", "message", "no result"]


@dataclass(frozen=True, slots=True)
class DynamoSetting:
    """A Dynamo setting with a value that may remove breaks.

    ``is_safe`` tells whether results stay the same whenever the setting removes the break; ``None`` if that is unknown.
    ``since`` is the first PyTorch release that has the setting; ``None`` for 2.9 or earlier.
    """

    name: str
    value: bool | int
    is_safe: bool | None = None
    since: str | None = None

    def __str__(self) -> str:
        """Return the assignment: "torch._dynamo.config.allow_rnn = True"."""
        return f"{CONFIG}{self.name} = {self.value}"


def title_of(settings: Iterable[DynamoSetting]) -> str:
    """Return the title of a remedy that changes settings: "Set `capture_scalar_outputs = True`"."""
    return f"Set {' and '.join(f'`{setting.name} = {setting.value!r}`' for setting in settings)}"


@dataclass(frozen=True, slots=True)
class ManualStep:
    """The decision that is left to a person if no remedy works, in one or more sentences.

    If a remedy with the part ``obsolete_if_failed`` in its title failed, ``text_after_failure`` replaces the text.
    ``decides_compiled_region`` tells whether the decision is which code to compile; usually, that is only a part.
    """

    text: str
    obsolete_if_failed: str = ""
    text_after_failure: str = ""
    decides_compiled_region: bool = False


@dataclass(frozen=True, slots=True)
class SkipReason:
    """The reason why a function runs eagerly: its kind, a sentence about it, a way to avoid it, and its page."""

    kind: SkipKind
    sentence: str
    way_out: str | None = None
    page: str = "skipped.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCall:
    """The facts about a called function or an operator, for breaks of any cause unless ``causes`` restricts them.

    Other fields are as in :class:`KnownCause`; ``None`` leaves the value of the cause's own entry.
    """

    #: The names of the function in Dynamo's context of a break.
    names: tuple[str, ...] = ()
    #: A regular expression for the source code of the call.
    pattern: str | None = None
    #: The GB ids of the causes that the entry applies to, if its pattern matches the code; empty for any cause.
    causes: tuple[str, ...] = ()
    #: A part of Dynamo's context of a break, which an entry with ``causes`` needs as well.
    context: str = ""
    title: str | None = None
    advice: str | None = None
    setting_advice: str | None = None
    manual_step: ManualStep | None = None
    page: str | None = None


@dataclass(frozen=True, slots=True)
class KnownCause:
    """The facts about a cause of graph breaks."""

    #: The GB id, or PyTorch's name for a cause without one.
    id: str
    #: PyTorch's names for the cause in all releases. Messages of old releases contain a name and no id.
    names: tuple[str, ...]
    #: The cause in the reader's words; code is in backticks.
    title: str
    #: The advice for a line of the reader's own code; it mentions the risk, if there is one.
    advice: str | None = None
    #: The part of the advice that also applies to a line of a library: a setting, or a different argument.
    setting_advice: str | None = None
    #: The advice for branches with a known purpose; it replaces ``advice``.
    advice_by_use: tuple[tuple[BranchUse, str], ...] = ()
    #: Additional advice if this cause prevents a function from resuming after a break.
    advice_if_consequence: str | None = None
    #: The decision for a person if no remedy works.
    manual_step: ManualStep | None = None
    #: The decisions about branches with a known purpose; they replace ``manual_step``.
    manual_steps_by_use: tuple[tuple[BranchUse, ManualStep], ...] = ()
    #: The combinations of settings to try, least intrusive first.
    settings: tuple[tuple[DynamoSetting, ...], ...] = ()
    #: The changes to the source code to try.
    rewrites: tuple[Rewrite, ...] = ()
    #: The reason to show if this cause makes a function run eagerly; ``None`` for a general reason.
    skip: SkipReason | None = None
    #: The names for the cause in ``torch._dynamo.explain`` and Dynamo's logs.
    also_reported_as: tuple[str, ...] = ()
    #: Whether the id only means that a call could not be traced; the entry of the called function then says more.
    is_named_by_call: bool = False
    #: Whether the code breaks the graph on purpose.
    is_deliberate: bool = False
    #: Whether ``fullgraph=True`` always captures the code, since torch 2.10.
    is_captured_by_fullgraph: bool = False
    #: Whether results, gradients and output stay the same whenever the advice removes the break; ``None`` if unknown.
    is_safe: bool | None = None
    #: The beginning of PyTorch's message before the cause had an id and a name.
    former_message_prefix: str | None = None
    #: Messages of releases that had no ids, which people still quote and search for; the pages show them.
    former_messages: tuple[str, ...] = ()
    #: The first PyTorch release that has the id; ``None`` for 2.9 or earlier.
    since: str | None = None
    #: The last PyTorch release that has the id; ``None`` if the newest one has it.
    until: str | None = None
    #: The page in ``notebooks/`` that says more than the cause's own page, followed by a section if there is one.
    page: str | None = None
