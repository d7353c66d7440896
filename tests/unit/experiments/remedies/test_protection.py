"""Conditions still protect their code, or the proposal states an assumption."""

from __future__ import annotations

import pytest

from tests.support.break_problems import problem, proposals_of, proposed_texts


def function_text(*lines: str, before: str = "") -> str:
    return f"import torch\n{before}def f(x, n, i):\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("lines", "code", "after"),
    [
        (
            ["if x.numel() > 0 and x.max() > 1:", "    x = x * 2", "else:", "    x = x - 1", "return x"],
            "x.max() > 1",
            ["if x.numel() > 0:", "    x = torch.where(x.max() > 1, x * 2, x - 1)", "else:", "    x = x - 1",
             "return x"],
        ),
        (
            ["if len(x.shape) > 1 and x.max() > 1:", "    x = x * 2", "return x"], "x.max() > 1",
            ["if len(x.shape) > 1:", "    x = torch.where(x.max() > 1, x * 2, x)", "return x"],
        ),
        (
            ["return x * 2 if x.shape[0] and x.max() > 1 else x"], "x.max() > 1",
            ["return (torch.where(x.max() > 1, x * 2, x) if x.shape[0] else x)"],
        ),
    ],
)  # fmt: skip
def test_conditions_on_sizes_stay_in_python(lines: list[str], code: str, after: list[str]) -> None:
    assert function_text(*after) in proposed_texts("branch", problem(function_text(*lines), code))


@pytest.mark.parametrize(
    ("lines", "code", "assumed_code"),
    [
        (["if x.any() and check(x):", "    x = x + 1", "return x"], "x.any()", "check(x)"),
        (["if x.any() or x[i].sum() > 0:", "    x = x + 1", "return x"], "x.any()", "x[i]"),
        (["if x.any():", "    x = x * (10 // (n - 3))", "return x"], "x.any()", "10 // (n - 3)"),
        (["if x.any() and hasattr(n, 'w') and n.w.any():", "    x = x + 1", "return x"], "x.any()", "n.w.any()"),
        (["if i < len(x) and x[i] > 0:", "    x = x + 1", "return x"], "x[i] > 0", None),
        (["if x.any():", "    x = raises(x)", "return x"], "x.any()", "raises(x)"),
        (["if x.any():", "    x = x * 2 / x.norm()", "return x"], "x.any()", None),
        (["if x.any() and x.sum() > 3:", "    x = x % 7", "return x"], "x.any()", None),
        (["if n is not None and x.max() > n:", "    x = x + 1", "return x"], "x.max() > n", None),
        (["if (i.max() < 8) & x.any():", "    x = n.gather(0, i)", "return x"], "(i.max() < 8) & x.any()",
         "n.gather(0, i)"),
        (["if x.any():", "    x = x * n.past[-1]", "n.past.pop()", "return x"], "x.any()", "n.past[-1]"),
        (["ok = i.max() < 8", "if ok:", "    x = looks_up(i)", "return x"], "if ok:", "looks_up(i)"),
        (["if i.max() < 8:", "    x = table(i)", "return x"], "i.max() < 8", "table(i)"),
        (["if i.max() < 8:", "    x = n[i]", "return x"], "i.max() < 8", "n[i]"),
        (["if i.max() < 8:", "    x = n[i > 0] + i[:2]", "return x"], "i.max() < 8", None),
    ],
)  # fmt: skip
def test_protected_code_that_may_raise_is_assumed_not_to_raise(
    lines: list[str], code: str, assumed_code: str | None
) -> None:
    helper = (
        "def raises(x):\n    if x.dim() > 3:\n        raise ValueError\n    return x\n"
        "def looks_up(k):\n    return torch.one_hot(k, 8)\ntable = torch.nn.Embedding(8, 2)\n"
    )
    first = proposals_of("branch", problem(function_text(*lines, before=helper), code))[0]
    expected = [] if assumed_code is None else [
        f"it assumes that {assumed_code}, which a condition protects, never raises and has no effect"
    ]  # fmt: skip
    assert list(first.assumptions) == expected


OPTIONAL_PARAMETER = "import torch\ndef f(x, n=None):\n"


@pytest.mark.parametrize(
    ("lines", "assumed_code"),
    [
        (["if x.sum() > 0 and x.sum() < n:", "    x = x + 1"], "x.sum() < n"),
        (["if x.sum() > 0:", "    x = x * n"], "x * n"),
        (["if n is not None and x.sum() > 0 and x.sum() < n:", "    x = x + n"], None),
        (["if n is None:", "    n = 3", "if x.sum() > 0 and x.sum() < n:", "    x = x + n"], None),
        (["x = x + n", "if x.sum() > 0 and x.sum() < n:", "    x = x + 1"], None),
        (["if x.sum() > n and x.sum() < n + 1:", "    x = x + 1"], None),
        (["if n is not None:", "    if x.sum() > 0:", "        x = x + n"], None),
    ],
)
def test_code_that_cannot_use_none_is_assumed_not_to_raise(lines: list[str], assumed_code: str | None) -> None:
    text = OPTIONAL_PARAMETER + "".join(f"    {line}\n" for line in [*lines, "return x"])
    tests = (line.strip().removeprefix("if ").removesuffix(":") for line in lines if "x.sum()" in line)
    code = next(tests)
    first = proposals_of("branch", problem(text, code, entry="def f(x"))[0]
    expected = [] if assumed_code is None else [f"it assumes that {assumed_code}, which"]
    assert [text.partition(" a condition")[0] for text in first.assumptions] == expected


def test_code_that_cannot_use_an_attribute_that_is_none_is_assumed_not_to_raise() -> None:
    text = (
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self, limit=None):\n        self.limit = limit\n"
        "    def forward(self, x):\n        if x.sum() > 0 and x.sum() < self.limit:\n            x = x + 1\n"
        "        return x\n"
    )
    break_problem = problem(text, "x.sum() > 0 and x.sum() < self.limit", entry="    def forward(self, x")
    assert "x.sum() < self.limit" in proposals_of("branch", break_problem)[0].assumptions[0]


def test_values_of_a_message_are_computed_after_its_condition() -> None:
    text = function_text("y = x * 2", "if (y > 3).any():", "    print(y.max().item(), 10 // n)", "return y")
    (after,) = [
        new for new in proposed_texts("output", problem(text, "(y > 3).any()", entry="def f(x")) if "later" in new
    ][:1]
    assert "later.append(((y > 3).any(), y, n))" in after
    assert "print(y.max().item(), 10 // n)" in after


def test_a_protected_call_does_not_move_before_its_condition() -> None:
    unprotected_text = function_text("k = setting()", "return x * k")
    assert proposed_texts("hoisting", problem(unprotected_text, "setting()", "GB0007", entry="def f(x"))
    for line in ("k = n and setting()", "k = setting() if n else 1", "k = [setting() for _ in range(n)]"):
        protected_text = function_text(line, "return x * k")
        assert not proposed_texts("hoisting", problem(protected_text, "setting()", "GB0007", entry="def f(x"))
    text_after_return = function_text("if n is None:", "    return x", "k = setting()", "return x * k")
    assert not proposed_texts("hoisting", problem(text_after_return, "setting()", "GB0007", entry="def f(x"))
