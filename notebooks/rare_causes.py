"""Describe the causes of PyTorch's registry that have no page of their own."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from jupyter_graphbreak.knowledge.causes import CAUSES

_REGISTRY_SITE = "https://meta-pytorch.github.io/compile-graph-break-site/gb/"
_INTRODUCTION = """\
This page lists rare causes in the words of PyTorch's registry; words in braces depend on your code. *What to do*
depends on the kind of hint that PyTorch gives. `--try` also works for these causes."""
_MOVE_ADVICE = (
    "Call this code before or after the compiled function runs, or "
    "[leave it out](../escape_hatches.md#torch-compiler-disable-leave-a-function-out)."
)
#: What the hints that PyTorch gives for many causes mean for a user, by their first words.
_GENERAL_HINTS = {
    "Your code may result in an error": 'Run the call without compiling (`torch.compiler.set_stance("force_eager")`). '
    f"If that also raises, the code is at fault. If not, {_MOVE_ADVICE[0].lower()}{_MOVE_ADVICE[1:]}",
    "This is likely to be a Dynamo bug": f"{_MOVE_ADVICE} And [report it](../errors.md#report-the-bug-to-pytorch): "
    "PyTorch considers this its own bug.",
    "This graph break may have been caused by": "Fix the break before it first: this one may follow from it.",
    "This graph break may be difficult": _MOVE_ADVICE,
    "This graph break is fundamental": _MOVE_ADVICE,
    "It may be possible to write Dynamo": _MOVE_ADVICE,
}
#: What to do about a rare cause, where a program shows a better way than the general one.
ADVICE = {
    "GB0144": "Remove `jvp` from the `autograd.Function`: the graph needs `forward` and `backward` only.",
    "GB0145": "Name the method of the `autograd.Function` `backward` instead of `vjp`.",
    "GB0310": "Pass a bool, or a tensor with one element, as the condition of `torch.cond`.",
    "GB0311": "Pass the arguments of the branches of `torch.cond` as a tuple: `(x,)`.",
    "GB0313": "Return the same structure of tensors from both branches of `torch.cond`.",
    "GB0314": "Return tensors: `torch.tensor(1.5)` instead of `1.5`.",
    "GB0350": "Return tensors from both branches of `torch.cond`, instead of `None` or a string.",
    "GB2464": "Return the argument that `mark_dirty` names.",
    "GB4372": "Pass the arguments of `apply` by position: `forward(ctx, x, scale=2)` without `*`.",
    "GB7054": "Call `torch.autograd.grad(loss, y)` for a tensor that is not a leaf.",
}


def registry() -> dict[str, dict[str, Any]]:
    """Return PyTorch's causes by id, as the installed release describes them."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the pages need torch")
    path = Path(spec.origin).parent / "_dynamo" / "graph_break_registry.json"
    return {ident: entries[0] for ident, entries in json.loads(path.read_text(encoding="utf-8")).items()}


def ids() -> set[str]:
    """Return the ids of the causes that have no page of their own."""
    return set(registry()) - {cause.id for cause in CAUSES}


def page_parts() -> list[str]:
    """Return the page's paragraphs: each cause in PyTorch's words, under an anchor such as ``#gb0001``."""
    parts = ["# Other causes in PyTorch's registry", _INTRODUCTION]
    entries = registry()
    for ident in sorted(ids()):
        entry = entries[ident]
        general_advice = [
            text for start, text in _GENERAL_HINTS.items() if any(hint.startswith(start) for hint in entry["Hints"])
        ]
        own_hints = [hint for hint in entry["Hints"] if not hint.startswith(tuple(_GENERAL_HINTS))]
        parts += [
            f"({ident.lower()})=\n## {ident}: {_verbatim(entry['Gb_type'])}",
            f"*What to do*: {ADVICE.get(ident) or (general_advice or [_MOVE_ADVICE])[0]}",
            *explanation({**entry, "Hints": own_hints}),
            registry_link(ident),
        ]
    return parts


def registry_link(ident: str) -> str:
    """Return a link to PyTorch's page of a cause, in Markdown."""
    return f"[{ident} in PyTorch's registry]({_REGISTRY_SITE}{ident.lower()}.html)"


def explanation(entry: dict[str, Any]) -> list[str]:
    """Return PyTorch's explanation of a cause and its hints, in Markdown."""
    hints = "\n".join(f"- {_verbatim(hint)}" for hint in entry["Hints"])
    return [_verbatim(entry["Explanation"]), *filter(None, [hints])]


def _verbatim(text: str) -> str:
    """Escape Markdown outside of code in backticks; PyTorch's messages may have a backtick too few or too many."""
    pieces = " ".join(text.split()).split("`")
    if len(pieces) % 2 == 0:
        pieces = ["".join(pieces)]
    return "`".join(
        piece if number % 2 else re.sub(r"([\\*_<>\[\]{}$|~])", r"\\\1", piece) for number, piece in enumerate(pieces)
    )
