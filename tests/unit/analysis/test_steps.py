"""The advice about a break."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.analysis.breaks import advise
from jupyter_graphbreak.analysis.messages import Cause


@pytest.mark.parametrize(
    ("gb_id", "context", "part"),
    [
        ("GB0059", "builtin print [<class 'LazyVariableTracker'>] False", "print after the call"),
        ("GB0059", "builtin setattr []", "instead of this builtin"),
        ("GB0007", "module: _warnings, qualname: warn, skip reason: <missing reason>", "warn after the call"),
        (
            "GB0007",
            "module: time, qualname: perf_counter, skip reason: <missing reason>",
            "read the clock before and after the call",
        ),
        ("GB0007", "module: tqdm.std, qualname: tqdm.__new__, skip reason: x", "cannot trace it"),
        ("GB0014", None, "allow_rnn = True"),
        ("GB0036", None, "torch.where(mask, x, 0)"),
        ("GB0123", None, "call backward() after it"),
        ("GB0246", None, "num_classes"),
        ("GB4198", None, "detach().clone()"),
    ],
)
def test_our_own_advice_comes_first(gb_id: str, context: str | None, part: str) -> None:
    first, *_ = advise(Cause("type", gb_id, context=context, hints=["Something of PyTorch's."]), None)
    assert part in first.text
    assert first.origin == "graphbreak"


def test_a_cause_is_recognized_by_its_name_without_an_id() -> None:
    by_name = advise(Cause("Data-dependent branching"), None)
    assert by_name
    assert by_name == advise(Cause("Data-dependent branching", "GB0170"), None)


def test_pytorchs_hints_are_kept_whole_without_its_closing_remark() -> None:
    hint = "Do this,\nand then that, until it is done."
    advice = advise(Cause("something new", "GB9999", hints=[hint, "This graph break is fundamental - it"]), None)
    assert [piece.text for piece in advice] == [hint]


@pytest.mark.parametrize(
    ("gb_id", "error", "step"),
    [
        (
            "GB4315",
            "RuntimeError('a and b must have same reduction dim, but got [4, 7] X [4, 7].')",
            "the arguments of",
        ),
        ("GB4315", "ValueError('Cannot view a tensor with shape (4, 7) as a tensor with shape (28,)!')", "reshape"),
        ("GB0112", "TypeError(\"add(): argument 'other' must be Tensor\")", "the arguments of"),
    ],
)
def test_advice_on_an_operator_that_refuses_its_arguments_repeats_its_message(
    gb_id: str, error: str, step: str
) -> None:
    explanation = f"Dynamo failed to run FX node with fake tensors: call_method f(*(FakeTensor(...))): got {error}"
    first, *_ = advise(Cause("type", gb_id, explanation=explanation), None)
    assert step in first.text
    assert error.partition("(")[2][1:-3] in first.text
