"""Proposals for loops that end depending on a tensor's value."""

from __future__ import annotations

import pytest

from tests.support.break_problems import problem, proposals_of, proposed_texts

HEAD = "import torch\ndef f(x):\n"


def test_a_loop_runs_to_its_end_without_changing_values_after_the_break() -> None:
    text = (
        f"{HEAD}    y = x\n    for _ in range(5):\n        y = y * 0.5  # halved\n        if y.sum() < 1:\n"
        "            break\n        step = y + 1\n        y += step\n    return y\n"
    )
    (proposed_text,) = proposed_texts("loops", problem(text, "y.sum() < 1"))
    assert proposed_text == (
        f"{HEAD}    y = x\n    over = False\n    for _ in range(5):\n        y_kept = y\n"
        "        y = y * 0.5  # halved\n        stop = y.sum() < 1\n        over = over | (stop & False)\n"
        "        y = torch.where(over, y_kept, y)\n        over = over | stop\n        y_kept = y\n"
        "        step = y + 1\n        y = y + step\n        y = torch.where(over, y_kept, y)\n    return y\n"
    )


def test_statements_before_a_break_run_once() -> None:
    text = (
        f"{HEAD}    found = x * 0\n    for i in range(5):\n        if x.sum() > i:\n            found = x * i\n"
        "            break\n    return found\n"
    )
    (proposed_text,) = proposed_texts("loops", problem(text, "x.sum() > i"))
    assert (
        "found = torch.where(stop & torch.logical_not(over), x * i, found)\n        over = over | stop" in proposed_text
    )


def test_an_augmented_assignment_before_the_break_uses_the_earlier_value() -> None:
    text = (
        f"{HEAD}    n = x.sum()\n    for i in range(3):\n        if x.sum() > 3:\n            n -= x.max() + i\n"
        "            break\n        x = x + 1\n    return n\n"
    )
    (changed_text,) = proposed_texts("loops", problem(text, "x.sum() > 3"))
    assert "n = torch.where(stop & torch.logical_not(over), n - (x.max() + i), n)" in changed_text


def test_the_result_of_an_early_return_is_selected_at_the_end() -> None:
    text = (
        f"{HEAD}    for i in range(3):\n        if x.sum() > 3:\n            return x * i\n        x = x + 1\n"
        "    return x - 1\n"
    )
    (proposed_text,) = proposed_texts("loops", problem(text, "x.sum() > 3"))
    assert proposed_text == (
        f"{HEAD}    over, early = False, None\n    for i in range(3):\n        stop = x.sum() > 3\n"
        "        early = x * i if early is None else torch.where(over, early, x * i)\n        over = over | stop\n"
        "        x = x + 1\n    return torch.where(over, early, x - 1)\n"
    )


def test_a_while_loop_with_a_counter_is_bounded_by_it() -> None:
    text = f"{HEAD}    n = 0\n    while n < 6 and x.norm() > 1:\n        x = x * 0.5\n        n += 1\n    return x\n"
    first = proposed_texts("loops", problem(text, "x.norm() > 1"))[0]
    assert first == (
        f"{HEAD}    n = 0\n    over = False\n    while n < 6:\n        stop = torch.logical_not(x.norm() > 1)\n"
        "        over = over | (stop & False)\n        over = over | stop\n        x_kept = x\n        x = x * 0.5\n"
        "        n += 1\n        x = torch.where(over, x_kept, x)\n    return x\n"
    )


def test_a_loop_without_a_counter_becomes_a_while_loop() -> None:
    text = f"{HEAD}    a, b = x, x + 1\n    while a.sum() < 20:\n        a, b = b, a + b\n    return b\n"
    (proposed_text,) = proposed_texts("loops", problem(text, "a.sum() < 20"))
    assert proposed_text == (
        f"{HEAD}    a, b = x, x + 1\n    def cond_fn(a, b):\n        return a.sum() < 20\n"
        "    def body_fn(a, b):\n        a, b = b, a + b\n        return a.clone(), b.clone()\n"
        "    a, b = torch.while_loop(cond_fn, body_fn, (a, b))\n    return b\n"
    )


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(5):\n        if T: break\n        print(i)\n    return x",
        "for i in range(5):\n        if T: break\n        x.add_(1)\n    return x",
        "for i in range(5):\n        if T: break\n        x[0] = 1\n    return x",
        "for i in range(5):\n        if T: break\n        x = x + torch.rand(2)\n    return x",
        "for i in x:\n        x = x * 2\n        if T: break\n    return x + i",
        "for i in range(5):\n        z = x * i\n        if T: break\n    return z",
        "for i in range(5):\n        if T: break\n        x = x * 2\n    else:\n        x = x - 1\n    return x",
        "for i in count():\n        if T: break\n        x = x * 2\n    return x",
        "while True:\n        if T: break\n        x = x * 2\n    return x",
        "for i in range(5):\n        if T:\n            return x, i\n        x = x * 2\n    return x",
        "n = 0\n    while n < 6 and T:\n        x.mul_(0.5)\n        n += 1\n    return x",
    ],
)
def test_a_loop_whose_steps_cannot_be_undone_is_not_changed(loop: str) -> None:
    text = f"{HEAD}    {loop}\n".replace("T", "x.sum() > 3")
    assert proposed_texts("loops", problem(text, "x.sum() > 3")) == []


def test_a_counter_that_is_read_after_the_loop_is_kept() -> None:
    text = f"{HEAD}    for i in range(n):\n        if x.sum() > 3: break\n        x = x * 2\n    return x + i\n"
    new_text, text_with_number = proposed_texts("loops", problem(text, "x.sum() > 3"))
    lines = [line.strip() for line in new_text.splitlines()]
    assert lines.index("last_i = 0") < lines.index("for i in range(n):")
    assert lines.index("last_i = torch.where(over, last_i, i)") < lines.index("over = over | stop")
    assert lines[-2:] == ["i = last_i", "return x + i"]
    assert text_with_number == new_text.replace("    return x + i", "    i = int(i)\n    return x + i")


def test_the_counter_of_a_while_loop_is_kept_as_a_tensor_or_as_a_number() -> None:
    text = (
        f"{HEAD}    n = 0\n    while n < 6:\n        if x.sum() > 3:\n            break\n        x = x * 2\n"
        "        n += 1\n    return x, n\n"
    )
    as_tensor, as_number = proposals_of("loops", problem(text, "x.sum() > 3"))
    assert as_tensor.texts["s1"] == (
        f"{HEAD}    n = 0\n    over = False\n    last_n = n\n    while n < 6:\n        stop = x.sum() > 3\n"
        "        over = over | (stop & False)\n        last_n = torch.where(over, last_n, n)\n"
        "        over = over | stop\n        x_kept = x\n        x = x * 2\n        n += 1\n"
        "        x = torch.where(over, x_kept, x)\n        last_n = torch.where(over, last_n, n)\n"
        "    n = last_n\n    return x, n\n"
    )
    assert not as_tensor.settings
    assert as_number.texts["s1"] == as_tensor.texts["s1"].replace("n = last_n\n", "n = int(last_n)\n")
    assert as_number.settings == {"torch._dynamo.config.capture_scalar_outputs": True}


@pytest.mark.parametrize(
    ("items", "item", "is_assumed"),
    [("range(4)", "x[i]", True), ("range(len(x))", "x[i]", False), ("range(4)", "table[i]", False), ("x", "i", False)],
)
def test_an_item_that_may_not_exist_after_an_early_exit_is_assumed_to_exist(
    items: str, item: str, *, is_assumed: bool
) -> None:
    loop = f"    for i in {items}:\n        if y.sum() > 3: break\n        y = y + {item}\n"
    text = f"{HEAD}    y = x * 1\n{loop}    return y\n"
    (proposal,) = proposals_of("loops", problem(text, "y.sum() > 3"))
    assert bool(proposal.assumptions) is is_assumed


@pytest.mark.parametrize(
    ("before", "after", "is_assumed"),
    [
        ("pass", "return y", True),
        ("pass", "self.last = y; return y + 1", True),
        ("pass", "y += 1; return y.sum()", True),
        ("pass", "return y.view(-1) * 2", True),
        ("pass", "return y / 2, float(y.sum()), y.max(), y < x", False),
        ("pass", "y = max(y, x); return y * 1", True),
        ("y = x.float()", "return y", True),
        ("pass", "y = y * 2\n    return y", False),
        ("pass", "z = y\n    y = y * 2\n    return y, z", True),
        ("pass", "y += 1\n    return y", True),
        ("y = x * 2", "return y", False),
        ("y = x * 2; first = y", "return y, first", True),
        ("y = torch.zeros_like(x)", "return y", False),
    ],
)
@pytest.mark.parametrize("exit_first", [False, True])
def test_an_assumption_says_that_the_loop_makes_a_new_tensor_before_it_stops(
    before: str, after: str, *, exit_first: bool, is_assumed: bool
) -> None:
    body = ["if (y - 2).abs().max() < 1e-3: break", "y = (y + 2 / y) / 2"]
    lines = "".join(f"        {line}\n" for line in (body if exit_first else reversed(body)))
    text = f"import torch\ndef f(self, x, y):\n    {before}\n    for _ in range(5):\n{lines}    {after}\n"
    (proposal,) = proposals_of("loops", problem(text, "(y - 2).abs().max() < 1e-3"))
    assert bool(proposal.assumptions) is (is_assumed and exit_first)


def test_an_early_return_of_an_argument_needs_an_assumption() -> None:
    text = (
        f"{HEAD}    for i in range(3):\n        if (x - 2).abs().max() < 1e-3:\n            return x\n"
        "        x = x + 1\n    return x - 1\n"
    )
    (proposal,) = proposals_of("loops", problem(text, "(x - 2).abs().max() < 1e-3"))
    assert proposal.assumptions == (
        "it assumes that the loop never stops before it assigns to x, which then is a new tensor",
    )
