"""Advice on a number that varies depends on its owner and on what the code does with it."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.views.words.varied_numbers import VariedNumber, advice_on_number, owner_of, use_of_number


@pytest.mark.parametrize(
    ("name", "line", "use"),
    [
        ("scale", "return (x * scale).sum()", "arithmetic"),
        ("self.step", "return h * 0.99 ** self.step", "arithmetic"),
        ("x.n", "y -= x.n", "arithmetic"),
        ("self.calls", "self.calls += 1", "other"),
        ("cfg['n']", 'return x * cfg["n"]', "arithmetic"),
        ("top_k", "values, _ = torch.topk(x, top_k)", "other"),
        ("n", "return x.view(n * 2, -1)", "other"),
        ("n", "return x[: n + 1]", "other"),
        ("n", "half = n // 2", "other"),
        ("n", "y = x * n + x.new_zeros(n)", "other"),
        ("layer", "return layers[layer](x)", "index"),
        ("layer", "idx = operator.index(idx)", "index"),
        ("t", "return cache[:, t]", "index next to others"),
        ("n", "for _ in range(n):", "other"),
        ("n", "elif x * n > 3:", "arithmetic"),
        ("n", "return foo(", "other"),
    ],
)
def test_the_use_of_a_number_is_recognized(name: str, line: str, use: str) -> None:
    assert use_of_number(name, line) == use


@pytest.mark.parametrize(
    ("guard", "name", "is_module_method", "owner"),
    [
        ("G['STEP'] == 2", "STEP", False, "global"),
        ("L['self'].step == 2", "self.step", True, "module"),
        ("L['self'].step == 2", "self.step", False, "attribute"),
        ("L['self']._modules['block'].step == 2", "self.block.step", False, "module"),
        ("L['k'] == 2", "k", True, "variable"),
    ],
)
def test_a_guard_shows_the_owner_of_a_number(guard: str, name: str, is_module_method: bool, owner: str) -> None:
    assert owner_of(guard, name, is_module_method=is_module_method) == owner


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (
            VariedNumber("scale", ["0.5"], "variable", ["return x * scale"], {None}),
            "use `torch.compile(..., dynamic=True)`, or a tensor instead of a number: `scale = torch.tensor(0.5)`",
        ),
        (
            VariedNumber("it", ["2"], "variable", ["return x * it"], {None}, is_inner=True),
            "use `torch.compile(..., dynamic=True)`",
        ),
        (
            VariedNumber(
                "k", ["0.5"], "variable", ["x = x * k"], {None}, ["def f(x, k):\n    x = x * k\n    return x + k"]
            ),
            "use `torch.compile(..., dynamic=True)`, or a tensor instead of a number: `k = torch.tensor(0.5)`",
        ),
        (
            VariedNumber(
                "k", ["2"], "variable", ["x = x * k"], {None}, ["def f(x, k):\n    x = x * k\n    return math.cos(k)"]
            ),
            "use `torch.compile(..., dynamic=True)`",
        ),
        (
            VariedNumber("top_k", ["5"], "variable", ["return torch.topk(x, top_k)"], {None}),
            "use `torch.compile(..., dynamic=True)`",
        ),
        (
            VariedNumber("steps", ["3", "5"], "variable", ["for _ in range(steps):"], {"loop"}),
            "the loop is unrolled, so each number of steps has its own graph, even with `dynamic=True`: use few "
            "numbers of steps, or call a compiled step from an uncompiled loop",
        ),
        (
            VariedNumber("layer", ["1", "2"], "variable", ["return layers[layer](x)"], {None}),
            "an index into a list is a constant, even with `dynamic=True`: pass the item itself instead of `layer`",
        ),
        (
            VariedNumber("layer", ["1"], "variable", ["return layers[layer](x)"], {None}),
            "if it is an index into a tensor, use `torch.compile(..., dynamic=True)`; into a list or a `ModuleList`, "
            "pass the item itself instead of `layer`",
        ),
        (
            VariedNumber("self.step", ["0", "1"], "module", ["return x * self.step"], {None}),
            "an integer of a module is a constant, even with `dynamic=True`: set "
            "`torch._dynamo.config.allow_unspec_int_on_nn_module = True`, or a tensor instead of a number: "
            "`self.step = torch.tensor(0)`",
        ),
        (
            VariedNumber("self.rate", ["0.1"], "module", ["return f(x, self.rate)"], {None}),
            "use `torch.compile(..., dynamic=True)`",
        ),
        (
            VariedNumber("STEP", ["2", "3"], "global", ["if STEP > 5:"], {"condition"}),
            "an integer that a function reads from a global variable is a constant, even with `dynamic=True`: pass "
            "`STEP` to the function as an argument; each branch of the condition has its own graph even then",
        ),
        (
            VariedNumber("config.k", ["3", "5"], "attribute", ["return pool(x, config.k)"], {None}),
            "each value of `config.k` is compiled separately, even with `dynamic=True`: use few values; for an integer "
            "of a module, set `torch._dynamo.config.allow_unspec_int_on_nn_module = True`",
        ),
        (
            VariedNumber("loss.__closure__[0].cell_contents", ["0.1"], "attribute", ["return w * x"], {None}),
            "`loss` is a new function on every call, and keeps the number: use `torch.compile(..., dynamic=True)`, or "
            "pass the number to the compiled function as an argument",
        ),
        (
            VariedNumber("act.keywords['slope']", ["0.1"], "attribute", ["return act(x)"], {None}),
            "`act` is a new function on every call, and keeps the number: use `torch.compile(..., dynamic=True)`, or "
            "pass the number to the compiled function as an argument",
        ),
        (
            VariedNumber("fn.__defaults__[0]", ["2", "3"], "attribute", ["fn(x)"], {None}),
            "`fn` is a new function on every call, and keeps the number: pass the number to the compiled function as "
            "an argument, with `dynamic=True`",
        ),
    ],
)
def test_advice_on_a_number_depends_on_its_owner_and_use(number: VariedNumber, advice: str) -> None:
    assert advice_on_number(number) == advice
