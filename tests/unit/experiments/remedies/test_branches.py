"""Proposals for branches on a tensor's value."""

from __future__ import annotations

import pytest

from tests.support.break_problems import problem, proposals_of, proposed_texts


def function_text(*lines: str) -> str:
    return "import torch\ndef f(x, mask=None):\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("before", "code", "after"),
    [
        (
            ["if x.sum() > 0:  # positive", "    y = x", "else:", "    y = -x  # turned", "return y"], "x.sum() > 0",
            ["# positive", "y = torch.where(x.sum() > 0, x, -x)  # turned", "return y"],
        ),
        (
            ["if x.any() and mask and mask.sum(): x = x + 1", "return x"], "x.any()",
            ["x = torch.where(x.any() & bool(mask) & (mask.sum() != 0), x + 1, x)", "return x"],
        ),
        (["if x.any(): x = x + 1", "return x"], "x.any()", ["x = torch.where(x.any(), x + 1, x)", "return x"]),
        (["return x if x.max() else 0 * x"], "x if x.max() else 0 * x", ["return torch.where(x.max() != 0, x, 0 * x)"]),
        (
            ["if float(x.sum()) > 1 and not x.isnan().any():", "    x = x * 2", "return x"], "float(x.sum())",
            ["x = torch.where((x.sum() > 1) & torch.logical_not(x.isnan().any()), x * 2, x)", "return x"],
        ),
        (
            ["if x.sum().item() > 0.1: x = x + 1", "return x"], "x.sum().item()",
            ["x = torch.where(x.sum().double() > 0.1, x + 1, x)", "return x"],
        ),
        (
            ["if 0.1 < x.mean().item() < 1: x = x + 1", "return x"], "x.mean().item()",
            ["x = torch.where((0.1 < x.mean().double()) & (x.mean().double() < 1), x + 1, x)", "return x"],
        ),
        (
            ["if int(x.sum()) > 1: x = x + 1", "return x"], "int(x.sum())",
            ["x = torch.where(x.sum().long() > 1, x + 1, x)", "return x"],
        ),
        (
            ["if mask is not None and mask.sum() > 0:", "    x = x * mask", "return x"], "mask.sum() > 0",
            ["if mask is not None:", "    x = torch.where(mask.sum() > 0, x * mask, x)", "return x"],
        ),
        (
            ["if mask and x.sum() > 0:", "    x = x * 2", "return x"], "x.sum() > 0",
            ["if mask:", "    x = torch.where(x.sum() > 0, x * 2, x)", "return x"],
        ),
        (
            ["if x.sum().item() + 1 > 2: x = x + 1", "return x"], "x.sum().item()",
            ["x = torch.where(x.sum().double() + 1 > 2, x + 1, x)", "return x"],
        ),
        (
            ["if x.sum() > 0:", "    return x, 1", "return -x, 1"], "x.sum() > 0",
            ["return (torch.where(x.sum() > 0, x, -x), 1)"],
        ),
        (
            ["if x.norm() < 1:", "    return x", "for i in range(2):", "    if i: return x * i", "return x + 1"],
            "x.norm() < 1",
            ["condition = x.norm() < 1", "early = x", "for i in range(2):",
             "    if i: return torch.where(condition, early, x * i)", "return torch.where(condition, early, x + 1)"],
        ),
        (
            ["if x[0] > x[1]:", "    x, mask = mask, x", "return x - mask"], "x[0] > x[1]",
            ["condition = x[0] > x[1]", "mask_if = x", "x = torch.where(condition, mask, x)",
             "mask = torch.where(condition, mask_if, mask)", "return x - mask"],
        ),
        (
            ["if x.isinf().any() == 1:", "    top = x.max()", "    x = x.clamp(-top, top)", "return x"],
            "x.isinf().any() == 1",
            ["top = x.max()", "x = torch.where(x.isinf().any() == 1, x.clamp(-top, top), x)", "return x"],
        ),
        (
            ["if x.sum() > 0:", "    return Pair(x, size=-x)", "return Pair(mask, size=x)"], "x.sum() > 0",
            ["condition = x.sum() > 0",
             "return Pair(torch.where(condition, x, mask), size=torch.where(condition, -x, x))"],
        ),
        (
            ["if x.sum() > 0:", "    self.mean.copy_(x)", "else:", "    self.mean.mul_(0.9).add_(x, alpha=0.1)"],
            "x.sum() > 0",
            ["self.mean.copy_(torch.where(x.sum() > 0, x, self.mean.mul(0.9).add(x, alpha=0.1)))"],
        ),
        (
            ["if x.sum() > 0:", "    y = x * 2", "    y.neg_()", "    x.add_(y)", "    x.clamp_(max=1)"], "x.sum() > 0",
            ["y = x * 2", "y = y.neg()", "x_if = x.add(y)",
             "x.copy_(torch.where(x.sum() > 0, x_if.clamp(max=1), x))"],
        ),
        (
            ["if torch.equal(x, mask): y = x", "else: y = mask", "return y"], "torch.equal(x, mask)",
            ["y = torch.where((x == mask).all() & (x.shape == mask.shape), x, mask)", "return y"],
        ),
        (
            ["if x.hot and mask.hot: x = x + 1", "return x"], "x.hot",
            ["x = torch.where(torch.logical_and(x.hot, mask.hot), x + 1, x)", "return x"],
        ),
        (
            ["if is_hot(x) or is_hot(-x) or is_hot(mask): x = x + 1", "return x"], "is_hot(x)",
            ["x = torch.where(torch.logical_or(torch.logical_or(is_hot(x), is_hot(-x)), is_hot(mask)), x + 1, x)",
             "return x"],
        ),
        (
            ["if x.sum() > 0:", "    mask = mask._replace(h=x, c=-x)", "else:", "    mask = mask._replace(c=x)",
             "return mask"], "x.sum() > 0",
            ["condition = x.sum() > 0",
             "mask = mask._replace(h=torch.where(condition, x, mask.h), c=torch.where(condition, -x, x))",
             "return mask"],
        ),
        (
            ["if x.sum() > 0:", "    mask.append((x, 'a'))", "else:", "    mask.append((-x, 'a'))"], "x.sum() > 0",
            ["condition = x.sum() > 0", "mask.append((torch.where(condition, x, -x), 'a'))"],
        ),
        (
            ["if x.sum() > 0: mask = mask._replace(h=x)", "return mask"], "x.sum() > 0",
            ["mask = mask._replace(h=torch.where(x.sum() > 0, x, mask.h))", "return mask"],
        ),
        (
            ["y, z = (x, mask) if x.sum() > 0 else (mask, x)", "return y - z"],
            "(x, mask) if x.sum() > 0 else (mask, x)",
            ["y, z = (torch.where(x.sum() > 0, x, mask), torch.where(x.sum() > 0, mask, x))", "return y - z"],
        ),
        (
            ["if 0 < x.mean() <= 1: x = x \\", "  + 1", "return x"], "0 < x.mean() <= 1",
            ["x = torch.where((0 < x.mean()) & (x.mean() <= 1), x \\", "  + 1, x)", "return x"],
        ),
    ],
)  # fmt: skip
def test_both_branches_are_computed_with_where(before: list[str], code: str, after: list[str]) -> None:
    break_problem = problem(function_text(*before), code)
    assert function_text(*after) in proposed_texts("branch", break_problem)
    (first, *_) = proposals_of("branch", break_problem)
    assert len(first.conditions) == 1


@pytest.mark.parametrize(
    ("before", "code", "after"),
    [
        (
            ["if x.sum() > 0: x = x / x.norm()", "return x"], "x.sum() > 0",
            ["condition = x.sum() > 0",
             "x = torch.where(condition, x / torch.where(condition, x.norm(), 1), x)", "return x"],
        ),
        (
            ["if x.sum() > 0:", "    return x", "return torch.sqrt(x) + mask ** 0.5"], "x.sum() > 0",
            ["condition = x.sum() > 0",
             "return torch.where(condition, x, torch.sqrt(torch.where(condition, 1, x)) + "
             "torch.where(condition, 1, mask) ** 0.5)"],
        ),
        (
            ["if mask.any(): x = x // mask.sum() % x", "return x"], "mask.any()",
            ["condition = mask.any()",
             "x = torch.where(condition, x // torch.where(condition, mask.sum(), 1) % torch.where(condition, x, 1), x)",
             "return x"],
        ),
        (
            ["return x.log() / 2 if x.any() else x"], "x.log() / 2 if x.any() else x",
            ["return torch.where(x.any(), torch.where(x.any(), x, 1).log() / 2, x)"],
        ),
    ],
)  # fmt: skip
def test_operands_are_replaced_in_the_branch_that_is_not_taken(before: list[str], code: str, after: list[str]) -> None:
    texts = proposed_texts("branch", problem(function_text(*before), code))
    assert function_text(*after) in texts
    assert any("torch.where" in text and text != function_text(*after) for text in texts), (
        "the proposal without replaced operands comes first"
    )


def test_a_chain_of_branches_becomes_nested_calls() -> None:
    before = [
        "m = x.mean()",
        "if m > 1:",
        "    y = x",
        "elif m > 0:",
        "    y = -x",
        "else:",
        "    y = 0 * x",
        "return y",
    ]
    (first, *_) = proposals_of("branch", problem(function_text(*before), "m > 1"))
    nested_calls = "torch.where(m > 1, x, torch.where(m > 0, -x, 0 * x))"
    assert first.texts["s1"] == function_text("m = x.mean()", f"y = {nested_calls}", "return y")
    assert [(condition.line, condition.column, condition.end_column) for condition in first.conditions] == [
        (4, 7, 12),
        (6, 9, 14),
    ]
    (second, *_) = proposed_texts("branch", problem(function_text(*before), "m > 0"))
    branch_line = "    y = torch.where(m > 0, -x, 0 * x)"
    assert second == function_text("m = x.mean()", "if m > 1:", "    y = x", "else:", branch_line, "return y")
    (text_with_all, *_) = proposed_texts("branch", problem(function_text(*before), ["m > 0", "m > 1"]))
    assert text_with_all == first.texts["s1"]


def test_nested_branches_with_dependent_values_become_where() -> None:
    before = [
        "if x.sum() > 0:", "    if x.max() > 5:", "        x = x + 1", "        y = x * 2", "    else:",
        "        y = x", "else:", "    x = y = -x", "return x, y",
    ]  # fmt: skip
    after = [
        "condition = x.sum() > 0", "x_if_if = x + 1", "y_if = torch.where(x.max() > 5, x_if_if * 2, x)", "y_else = -x",
        "x = torch.where(condition, torch.where(x.max() > 5, x_if_if, x), -x)",
        "y = torch.where(condition, y_if, y_else)", "return x, y",
    ]  # fmt: skip
    (first, *_) = proposed_texts("branch", problem(function_text(*before), "x.sum() > 0"))
    assert first == function_text(*after)


def test_an_any_test_is_dropped() -> None:
    before = ["if mask.any():", "    x = x.masked_fill(mask, 0)", "return x"]
    (first, *_) = proposed_texts("branch", problem(function_text(*before), "mask.any()"))
    assert first == function_text("x = x.masked_fill(mask, 0)", "return x")


def test_a_change_in_place_stays_in_place() -> None:
    (first, second, *_) = proposed_texts(
        "branch", problem(function_text("if x.max() > 0:", "    x += 2", "return x"), "x.max() > 0")
    )
    assert first == function_text("x += torch.where(x.max() > 0, 2, 0)", "return x")
    assert second == function_text("x -= torch.where(x.max() > 0, -2, 0)", "return x")


def test_tensors_that_a_loop_changes_in_place_are_multiplied_by_one_instead() -> None:
    text = function_text(
        "if x < 1:", "    for p in ps:", "        if p is not None:", "            p.mul_(x)", "return x"
    )
    (first, *_) = proposed_texts("branch", problem(text, "x < 1"))
    loop = ["for p in ps:", "    if p is not None:", "        p.mul_(torch.where(condition, x, 1))", "return x"]
    assert first == function_text("condition = x < 1", *loop)
    for ending in ("return p", "return x"):
        body = "            p.mul_(x)" if ending == "return p" else "            p.copy_(x)"
        lines = ["if x < 1:", "    for p in ps:", "        if p is not None:", body, ending]
        assert not proposed_texts("branch", problem(function_text(*lines), "x < 1"))


@pytest.mark.parametrize(
    "lines",
    [
        ["if x.sum() > 0:", "    x = x * 2", "    x.add_(1)"],
        ["if x.sum() > 0:", "    x.add_(1)", "    x = x * 2"],
        ["if x.sum() > 0:", "    x.random_(5)"],
        ["if x.sum() > 0:", "    x.add_(**mask)"],
        ["if x.sum() > 0:", "    x.view(-1).add_(1)"],
    ],
)
def test_a_tensor_is_not_both_changed_in_place_and_replaced(lines: list[str]) -> None:
    assert not any("where(" in text for text in proposed_texts("branch", problem(function_text(*lines), "x.sum() > 0")))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            ["y = x + 1", "if x.sum() > 0:", "    y.add_(1)", "else:", "    y = y * 2", "return y"],
            ["y = x + 1", "y = torch.where(x.sum() > 0, y.add(1), y * 2)", "return y"],
        ),
        (
            ["if x.sum() > 0:", "    x = x * 2", "else:", "    x.add_(1)", "return x"],
            ["condition = x.sum() > 0", "x_before = x", "x = torch.where(condition, x * 2, x.add(1))",
             "x_before.copy_(torch.where(condition, x_before, x))", "return x"],
        ),
        (
            ["if x.sum() > 0:", "    x.add_(1)", "    mask.fill_(True)", "    return x * mask", "return -x"],
            ["condition = x.sum() > 0", "x_if = x.add(1)", "mask_if = torch.full_like(mask, True)",
             "result = torch.where(condition, x_if * mask_if, -x)",
             "x.copy_(torch.where(condition, x_if, x))",
             "mask.copy_(torch.where(condition, mask_if, mask))", "return result"],
        ),
        (
            ["if x.sum() > 0:", "    seen.add_(1)", "    return x * seen", "return x"],
            ["condition = x.sum() > 0", "seen_if = seen.add(1)", "result = torch.where(condition, x * seen_if, x)",
             "seen.copy_(torch.where(condition, seen_if, seen))", "return result"],
        ),
        (
            ["if x.sum() > 0:", "    mask.add_(1)", "    return x", "y = x + 1", "y = y * mask", "return y"],
            ["condition = x.sum() > 0", "early = x", "mask.copy_(torch.where(condition, mask.add(1), mask))",
             "y = x + 1", "y = y * mask", "return torch.where(condition, early, y)"],
        ),
    ],
)  # fmt: skip
def test_one_branch_may_change_a_tensor_in_place_while_the_other_replaces_or_returns_it(
    before: list[str], after: list[str]
) -> None:
    (first, *_) = proposed_texts("branch", problem(function_text(*before), "x.sum() > 0"))
    assert first == function_text(*after)


def test_a_nonlocal_name_is_assigned() -> None:
    body = "        nonlocal best\n        if y > best:\n            best = y\n        return best\n"
    text = f"def f(x):\n    def g(y):\n{body}"
    (first, *_) = proposed_texts("branch", problem(text, "y > best"))
    assert "        best = torch.where(y > best, y, best)\n" in first


@pytest.mark.parametrize(
    ("test", "condition"),
    [
        ("any(t.max() > 2 for t in mask)", "torch.as_tensor(sum([t.max() > 2 for t in mask]) > 0)"),
        ("all([not t.isnan().any() for t in mask if t])",
         "torch.as_tensor(sum([t.isnan().any() for t in mask if t]) == 0)"),
        ("any((t > u) for t in (y or mask) for u in t)",
         "torch.as_tensor(sum([t > u for t in (y or mask) for u in t]) > 0)"),
        ("all(t.item() > 1 for t in mask)", "torch.as_tensor(sum([torch.logical_not(t > 1) for t in mask]) == 0)"),
    ],
)  # fmt: skip
def test_any_and_all_count_the_items_that_decide(test: str, condition: str) -> None:
    (first, *_) = proposed_texts("branch", problem(function_text(f"if {test}:", "    x = x + 1", "return x"), test))
    assert first == function_text(f"x = torch.where({condition}, x + 1, x)", "return x")


_MATCH_TEMPLATE = (
    "import torch\ndef f(x, mode):\n    match mode:\n        case {}:\n            x = x / 2\n{}    return x\n"
)


@pytest.mark.parametrize(
    ("pattern", "later_cases", "other_branch"),
    [
        ("'a' if x.sum() > 0", "", "x"),
        ("'a' if x.sum() > 0", "        case 'b':\n            pass\n", "x"),
        ("'a' if x.sum() > 0", "        case _:\n            # more\n\n            x = x + 1\n", "x + 1"),
        ("'a' if x.sum() > 0", "        case 'b' | 'a':\n            x = -x\n", "-x"),
        ("(y, 1) if x.sum() > 0", "        case (y, 1):\n            x = y\n", "y"),
    ],
)
def test_the_guard_of_a_case_moves_inside_the_case(pattern: str, later_cases: str, other_branch: str) -> None:
    (first, *_) = proposed_texts("branch", problem(_MATCH_TEMPLATE.format(pattern, later_cases), "x.sum() > 0"))
    text_without_guard = _MATCH_TEMPLATE.format(pattern.partition(" if ")[0], later_cases)
    assert "".join(first.split()) == "".join(
        text_without_guard.replace("x = x / 2", f"x = torch.where(x.sum() > 0, x / 2, {other_branch})", 1).split()
    )


@pytest.mark.parametrize(
    ("pattern", "later_cases"),
    [
        ("'a' if x.sum() > 0", "        case 'a' if x.sum() < 0:\n            pass\n"),
        ("'a' if x.sum() > 0", "        case str():\n            pass\n"),
        ("1 if x.sum() > 0", "        case 2:\n            pass\n"),
        ("'a' if x.sum() > 0", '        case _:\n            x = """a\nb"""\n'),
        ("'a' if x.sum() > 0", "        case _: x = 1\n"),
    ],
)
def test_the_guard_of_a_case_with_an_unclear_successor_stays(pattern: str, later_cases: str) -> None:
    assert proposed_texts("branch", problem(_MATCH_TEMPLATE.format(pattern, later_cases), "x.sum() > 0")) == []


def test_statements_that_continue_would_skip_run_and_are_undone() -> None:
    before = [
        "for layer in layers:", "    if training:", "        p = torch.rand([])", "        if p < 0.1:",
        "            continue", "    x = layer(x)", "return x",
    ]  # fmt: skip
    after = [
        "for layer in layers:", "    if training:", "        p = torch.rand([])", "        skip = p < 0.1",
        "        x_before = x", "    x = layer(x)", "    if training:", "        x = torch.where(skip, x_before, x)",
        "return x",
    ]  # fmt: skip
    assert proposed_texts("branch", problem(function_text(*before), "p < 0.1")) == [function_text(*after)]


def test_a_flag_becomes_a_tensor() -> None:
    lines = ["drop = False", "if x.sum() < 0:", "    drop = True", "if not drop:", "    x = x * 2", "return x"]
    for before, after, code in (
        (lines[1:3], ["drop = torch.where(x.sum() < 0, True, drop)"], "x.sum() < 0"),
        (lines[3:5], ["x = torch.where(torch.logical_not(torch.as_tensor(drop)), x * 2, x)"], "not drop"),
    ):
        start = lines.index(before[0])
        (first, *_) = proposed_texts("branch", problem(function_text(*lines), code))
        lines[start : start + 2] = after
        assert first == function_text(*lines)


@pytest.mark.parametrize(
    "lines",
    [
        ["if x.sum() > 0:", "    print(x)", "return x"],
        ["if x.sum() > 0:", "    history.append(x)", "    x = x + 1", "return x"],
        ["if x.sum() > 0:", "    y = x", "return y"],
        ["if x.sum() > 0:", "    x = [each for each in x]", "return x"],
        ["if x.sum() > 0:", "    del x", "return 1"],
        ["while x.sum() > 0:", "    x = x - 1", "return x"],
        ["if x.sum() > 0:", "    if x is not None:", "        x = x + 1", "return x"],
        ["if x.sum() > 0:", "    x = (yield x)", "return x"],
        ["if x.sum() > 0:", "    return x", "return x, x"],
        ["if x.sum() > 0: return x", "x.add_(1)"],
        ["if (y := x.sum() > 0): x = y", "return x"],
    ],
)
def test_branches_that_where_cannot_express_are_not_changed(lines: list[str]) -> None:
    assert proposed_texts("branch", problem(function_text(*lines), "x.sum() > 0")) == []


def test_an_alias_of_torch_is_used_and_a_missing_import_is_added() -> None:
    text = "import torch as T\nx = T.ones(3)\ny = x if x.sum() > 0 else -x\n"
    (first, *_) = proposed_texts("branch", problem(text, "x.sum() > 0"))
    assert first.endswith("y = T.where(x.sum() > 0, x, -x)\n")
    text = "from numpy import nothing\n\ndef f(x):\n    'Doc.'\n    if x.sum() > 0:\n        x = -x\n    return x\n"
    (first, *_) = proposed_texts("branch", problem(text, "x.sum() > 0"))
    assert "    'Doc.'\n    import torch\n    x = torch.where(x.sum() > 0, -x, x)\n" in first


def test_cond_is_last_and_excludes_random_numbers_and_modules() -> None:
    proposals = proposals_of("branch", problem(function_text("if x.sum() > 0: x = x.sin()", "return x"), "x.sum() > 0"))
    assert [proposal.title for proposal in proposals] == [
        "Compute both branches with torch.where",
        "Pass both branches to torch.cond",
    ]
    assert "torch.cond(x.sum() > 0, lambda: x.sin(), lambda: x.clone())" in proposals[1].texts["s1"]
    for arm in ("torch.dropout(x, 0.1, True)", "self.layer(x)", "torch.rand_like(x)"):
        break_problem = problem(function_text(f"if x.sum() > 0: x = {arm}", "return x"), "x.sum() > 0")
        assert [proposal.title for proposal in proposals_of("branch", break_problem)] == [
            "Compute both branches with torch.where"
        ]


@pytest.mark.parametrize(
    ("assignment", "test", "condition"),
    [
        ("rows = torch.where(x > 0)[0]", "len(rows) > 0", "(x > 0).any()"),
        ("rows, cols = torch.where(x > 0)", "cols.shape[0] != 0", "(x > 0).any()"),
        ("rows = mask.nonzero().squeeze(1)", "rows.numel()", "mask.any()"),
        ("rows = torch.nonzero(x > 0, as_tuple=True)[0]", "rows.size(0) == 0", "torch.logical_not((x > 0).any())"),
        ("rows = mask.nonzero().view(-1)", "rows.size(0) > 0", "mask.any()"),
        ("rows = mask.nonzero()[:, 0]", "not len(rows)", "torch.logical_not(mask.any())"),
    ],
)
def test_a_test_for_indices_becomes_a_test_of_the_mask(assignment: str, test: str, condition: str) -> None:
    text = f"import torch\ndef f(x, mask):\n    {assignment}\n    if {test}:\n        x = x + 1\n    return x\n"
    assert text.replace(f"if {test}:\n        x = x + 1", f"x = torch.where({condition}, x + 1, x)") in proposed_texts(
        "branch", problem(text, test)
    )


@pytest.mark.parametrize(
    ("lines", "test"),
    [
        ("rows = torch.where(x > 0)[0]\n    x = x + 1", "len(rows) > 0"),
        ("rows = torch.where(x > 0)[0]\n    rows = rows + 1", "len(rows) > 0"),
        ("rows = torch.where(x > 0, x, 0)", "len(rows) > 0"),
        ("rows = torch.where(x > 0)[0]", "len(rows) > 2"),
        ("rows = torch.where(x > 0)[0][1:]", "len(rows) > 0"),
        ("rows = torch.where(x > 0)", "len(rows) > 0"),
        ("rows = (x > 0).nonzero()[1:]", "len(rows) > 0"),
        ("rows = (x > 0).nonzero()", "rows.shape[1] > 0"),
        ("rows = (x > 0).nonzero().view(2, -1)", "len(rows) > 0"),
    ],
)
def test_other_numbers_of_elements_are_not_tests_of_a_mask(lines: str, test: str) -> None:
    text = f"import torch\ndef f(x):\n    {lines}\n    if {test}:\n        x = x + 1\n    return x\n"
    assert not any(".any()" in proposed_text for proposed_text in proposed_texts("branch", problem(text, test)))


def test_a_skip_stays_within_the_condition_that_python_decides() -> None:
    before = [
        "for layer in self.layers:", "    if self.training and x.max() > 0:", "        continue", "    x = layer(x)",
        "return x",
    ]  # fmt: skip
    after = [
        "for layer in self.layers:", "    if self.training:", "        skip = x.max() > 0", "        x_before = x",
        "    x = layer(x)", "    if self.training:", "        x = torch.where(skip, x_before, x)", "return x",
    ]  # fmt: skip
    text = function_text(*before)
    assert proposed_texts("branch", problem(text, "x.max() > 0")) == [function_text(*after)]
