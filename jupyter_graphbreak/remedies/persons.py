"""What a person must decide, where no change can be made mechanically: one sentence for every break."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak.report.schema import Break, Owner, Skipped

_BRANCH = (
    "Decide whether both sides can always be computed, and chosen between with torch.where; whether a loop that it "
    "ends can run as often as it may at most; or whether it can be decided outside of the compiled function."
)
_DISABLED = "Decide whether this function must stay out of the graph: somebody disabled it on purpose."
_HOST = (
    "Decide whether the number is needed at all; whether it is known before the call, and can be handed in; or whether "
    "what follows can be computed with the tensor."
)
_SHAPE = "Decide whether what follows can work with all elements and a mask, so that shapes do not depend on the data."
_NO_SHAPE = (
    "Decide whether this operation may stay eager: no graph knows the shape of its result, unless a custom operator "
    "with a fake kernel holds it (torch.library.custom_op)."
)
_KEY = "Decide on keys that are constants, such as names: a graph does not know the identity of a tensor."
_GENERATOR = "Decide whether a list can take the generator's place; compile the function that consumes it."
_GROUPS = "Decide whether the groups can be made before the compiled function: their number depends on the data."
_BACKWARD = "Decide where the compiled part ends: compile the forward pass, call backward() and the optimizer after it."
_FLAG = "Decide which tensors need gradients before the compiled function: in a graph that cannot change."
_CONTEXT = "Decide whether the context may be entered around the whole call of the compiled function."
_RNN = "Decide whether the RNN stays eager: compile what is before and after it, or allow it with allow_rnn."
_OUTPUT = "Decide whether it must be said each time: if so, say it after the call, from what the function returns."
_NUMPY = "Decide whether torch may draw or compute this: with NumPy's generator it must happen before the call."
_STATE = "Decide where this is made: before the compiled function, and handed in, or after it from the result."
_BUG = "Decide whether to write this another way: PyTorch takes it for a fault of its own, to be reported."
_ERROR = "Decide whether this is right: PyTorch expects the code to fail when it runs eagerly, too."
_BRANCH_REST = (
    "Decide whether a loop that it ends can run as often as it may at most, or whether it can be decided outside "
    "of the compiled function: torch.where was tried and did not work."
)
_OUTPUT_REST = "Decide whether it must be said each time: saying it after the call was tried and did not work."
_RNN_REST = "Decide to compile what is before and after the RNN: allow_rnn was tried and did not work."
_BY_OWNER: dict[Owner, str] = {
    "library": "Decide whether the library has a switch for this; whether to compile a part of the model that does not "
    "come here; or whether to keep the call out of the graph with torch.compiler.disable. Report it to the library.",
    "torch": "Decide whether to make the call that leads here outside of the compiled function: the line is PyTorch's.",
}
#: What is left to decide when a change of some title was tried and failed.
_AFTER_TRYING = {
    _BRANCH: ("torch.where", _BRANCH_REST),
    _OUTPUT: ("after the call", _OUTPUT_REST),
    _RNN: ("allow_rnn", _RNN_REST),
}

_BY_GB_ID = {
    "GB0003": _GENERATOR, "GB0014": _RNN, "GB0015": "Decide whether the tensor can be dense in the compiled function.",
    "GB0033": _HOST, "GB0035": _BRANCH, "GB0036": _SHAPE, "GB0037": _NO_SHAPE, "GB0038": _HOST,
    "GB0039": "Decide which arguments may change from call to call: hand them in as tensors, or mark them dynamic.",
    "GB0083": _BACKWARD, "GB0092": _STATE, "GB0098": _DISABLED, "GB0099": _DISABLED, "GB0109": _HOST, "GB0115": _GROUPS,
    "GB0123": _BACKWARD, "GB0124": _HOST, "GB0125": _FLAG, "GB0134": _GROUPS, "GB0142": _CONTEXT, "GB0152": _GROUPS,
    "GB0170": _BRANCH, "GB0203": _KEY, "GB0204": _KEY, "GB0206": _FLAG,
    "GB0207": "Decide by what else to sort: the order of tensors is not known before they are computed.",
    "GB0208": _CONTEXT,
    "GB0222": "Decide on an order: use a list or a dict in the place of the set of tensors.",
    "GB0246": "Decide how many classes there are, and give one_hot its num_classes.",
    "GB0253": _GENERATOR, "GB0264": _STATE, "GB0291": _OUTPUT, "GB0294": _NUMPY, "GB0298": _NUMPY, "GB0300": _NUMPY,
    "GB0358": _BACKWARD, "GB0364": _KEY, "GB0365": _KEY, "GB0366": _KEY, "GB0569": _OUTPUT, "GB7324": _FLAG,
    "GB8335": _GENERATOR, "GB8985": _FLAG, "GB9186": _BACKWARD,
}  # fmt: skip

#: By what is called at the break, where that says more than the id; the first that fits.
_BY_CODE = (
    (r"\bprint\(|warnings?\.warn|\blog(ger|ging)?\.\w+\(", _OUTPUT),
    (
        r"\b(perf_counter|monotonic|process_time|time\.time|time_ns|synchronize|elapsed_time)\b",
        "Decide what is to be timed: in a compiled function only the time of its whole call can be taken, around it.",
    ),
    (r"\bsleep\(", "Decide whether to wait before or after the call: a graph cannot wait."),
    (
        r"(?i)(\b|_)r?(lock|acquire|release|semaphore)\b",
        "Decide whether the lock may be held around the whole call: a graph cannot take it.",
    ),
    (r"\.backward\(|\.zero_grad\(|optimi[sz]er\w*\.step\(|\bopt\w*\.step\(", _BACKWARD),
    (
        r"\.generate\(",
        "Decide to compile the model's forward instead: generate() is a loop whose end depends on the data.",
    ),
    (r"\b(np|numpy)\.random\b", _NUMPY),
    (r"\bset\(|\bfrozenset\(", "Decide on an order: use a list or a dict in the place of the set of tensors."),
    (r"\bsorted\(|\.sort\(", "Decide by what else to sort, or sort the values with torch.sort."),
    (r"\bopen\(|\.read\(|\.write\(|\.save\(|\.load\(", "Decide whether the file is used before or after the call."),
    (r"\binput\(|\bbreakpoint\(|set_trace\(", "Decide whether this can go: a graph cannot wait for a person."),
    (
        r"\bcontext_?var\w*\.|\.get\(\)",
        "Decide whether the value can be read before the call and handed in: a graph keeps what it was while tracing.",
    ),
    (r"\bwhile\b", "Decide how often the loop runs at most, or use torch.while_loop: its end depends on the data."),
)  # fmt: skip


def person_sentence(break_: Break, failed: Sequence[str] = ()) -> str:
    """Return what a person must decide about a break.

    Parameters
    ----------
    break_ : Break
        A break that no proposal mends.
    failed : sequence of str
        The titles of what was tried for it: that is not proposed again.
    """
    if break_.owner != "own":
        return _BY_OWNER[break_.owner]
    sentence = _sentence(break_)
    tried, rest = _AFTER_TRYING.get(sentence, ("", ""))
    return rest if tried and any(tried in title for title in failed) else sentence


def _sentence(break_: Break) -> str:
    code = (break_.location.code if break_.location is not None else None) or ""
    if break_.gb_id not in {"GB0098", "GB0099"}:
        for pattern, sentence in _BY_CODE:
            if re.search(pattern, code):
                return sentence
    known = _BY_GB_ID.get(break_.gb_id or "")
    return known or _general(break_, code)


def _general(break_: Break, code: str) -> str:
    if any(hint.startswith("This is likely to be a Dynamo bug") for hint in break_.hints):
        return _BUG
    if any(hint.startswith("Dynamo has detected that tracing the code will result") for hint in break_.hints):
        return _ERROR
    call = re.match(r"[\w.]+(?=\()", code)
    what = f"{call[0]}()" if call is not None else _shortened(code)
    if not what:
        return "Decide whether what PyTorch could not trace here is needed in the compiled function."
    return f"Decide whether {what} can go before or after the call, or be written with operations on tensors."


def _shortened(code: str) -> str:
    line = " ".join(code.split())
    limit = 60
    return line if len(line) <= limit else f"{line[: limit - 3].rstrip()}..."


def sentence_for_function(skipped: Skipped) -> str:
    """Return what a person must decide about a function that runs eagerly without a break."""
    if skipped.way_out is not None:
        return f"{skipped.function} runs eagerly; {skipped.way_out}"
    return (
        f"{skipped.function} runs eagerly because {skipped.reason.rstrip('.')}: decide whether that is meant, "
        "and leave it out of what is compiled where it is."
    )
