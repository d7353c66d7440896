"""Find what we know about a break."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge.causes import CALLS, CAUSES
from jupyter_graphbreak.knowledge.entries import KnownCause, title_of
from jupyter_graphbreak.knowledge.known_bugs import named_by_messages
from jupyter_graphbreak.knowledge.owners import owner_advice
from jupyter_graphbreak.knowledge.switches import SWITCHES

if TYPE_CHECKING:
    from jupyter_graphbreak.knowledge.entries import KnownCall


def known_cause(gb_id: str | None, name: str, context: str | None = None, code: str | None = None) -> KnownCause:
    """Return the entry for a cause; if there is none, an entry with only a title.

    Parameters
    ----------
    gb_id : str or None
        The GB id of the cause.
    name : str
        PyTorch's name of the cause.
    context : str or None
        PyTorch's debug context of the break, which may name a function that is called.
    code : str or None
        The source code of the break.
    """
    by_id, by_name = _index()
    known = by_id.get(gb_id or "") or by_name.get(name) or KnownCause(gb_id or name, (name,), name)
    called = _called_function(context)
    names = {called, called.rpartition(".")[2]}
    calls = (call for call in CALLS if known.is_named_by_call and not names.isdisjoint(call.names))
    by_context = next(calls, None)
    # If a function is disabled on purpose, its name does not matter: "print" under torch.compiler.disable, for example.
    is_disabled = known.is_deliberate and known.manual_step is not None
    by_code = None if is_disabled else _call_in(code or "")
    if by_context is not None:
        known = replace(
            known,
            advice=by_context.advice or known.advice,
            setting_advice=by_context.setting_advice or known.setting_advice,
        )
    if by_code is not None and by_code.manual_step is not None:
        known = replace(known, manual_step=by_code.manual_step)
    call = (by_context or by_code) if known.is_named_by_call else None
    return replace(known, title=call.title, page=call.page or known.page) if call and call.title else known


def name_of_former_text(text: str) -> str | None:
    """Return the name of the cause that a message of an older PyTorch, which contains no name, describes."""
    former = (cause for cause in CAUSES if cause.former_text is not None and text.startswith(cause.former_text))
    return next((cause.names[0] for cause in former), None)


@functools.cache
def setting_titles() -> frozenset[str]:
    """Return the titles of all remedies that only change settings; they contain no text of any user's program."""
    return frozenset(title_of(settings) for cause in CAUSES for settings in cause.settings)


@functools.cache
def all_advice() -> frozenset[str]:
    """Return all our advice; it contains no text of any user's program."""
    entries = (*CAUSES, *CALLS)
    texts = {entry.advice for entry in entries} | {cause.advice_if_consequence for cause in CAUSES}
    texts |= {advice for cause in CAUSES for _, advice in cause.advice_by_use}
    texts |= {switch.advice for switch in SWITCHES} | {bug.advice_in_report for bug in named_by_messages()}
    return frozenset(text for text in texts if text is not None) | owner_advice()


@functools.cache
def _index() -> tuple[dict[str, KnownCause], dict[str, KnownCause]]:
    return {cause.id: cause for cause in CAUSES}, {name: cause for cause in CAUSES for name in cause.names}


def _call_in(code: str) -> KnownCall | None:
    return next((call for call in CALLS if call.pattern is not None and re.search(call.pattern, code)), None)


def _called_function(context: str | None) -> str:
    """Return the name of the function that Dynamo could not trace, a method's with its class.

    It is "print" for ``builtin print [...]``.
    """
    words = (context or "").replace(",", " ").split()
    marks = {"builtin", "qualname:"}
    return next((words[n + 1] for n, word in enumerate(words[:-1]) if word in marks), "")
