"""The lines before which a mark is inserted, and the calls to ``torch.compile`` that get ``dynamic=True``."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from jupyter_graphbreak.experiments.recompiles.candidates import CallPreparation
from jupyter_graphbreak.experiments.recompiles.compile_calls import CompiledDefinition
from jupyter_graphbreak.experiments.recompiles.placement import add_dynamic_argument, insert_lines_before_calls
from jupyter_graphbreak.experiments.trial.call_specs import CallSite, Path, Root

MARK = CallPreparation(Path(Root("argument", "x")), "mark(NAME, 0)")
TENSOR_CONVERSION = CallPreparation(Path(Root("argument", "k")), "tensor(NAME)", assigns=True)


def f(x: Any, k: Any = 0) -> None:
    """Do nothing; a placeholder for the compiled function."""


def call_site_in(text: str, **options: Any) -> CallSite:
    """Return the location of the call to ``f`` in source text."""
    tree = ast.parse(text.replace("%%", "##"))
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "f")
    end_line, end_column = call.end_lineno or 0, call.end_col_offset or 0
    visible_names = frozenset(options.get("visible", {"torch"}))
    return CallSite(
        "cell", "<module>", call.lineno, end_line, call.col_offset, end_column, None, visible_names, frozenset()
    )


def insert_preparations(text: str, *preparations: CallPreparation, **options: Any) -> str | None:
    """Return source text with preparations inserted before the call to ``f``."""
    return insert_lines_before_calls(
        text, [call_site_in(text, **options)], f, preparations, reserved_names=options.get("reserved", ())
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = f(a)", "mark(a, 0)\ny = f(a)"),
        ("for a in b:\n    y = f(a)", "for a in b:\n    mark(a, 0)\n    y = f(a)"),
        ("for a in b: f(a)", "for a in b:\n    mark(a, 0)\n    f(a)"),
        ("f(make(3))", "x = make(3)\nmark(x, 0)\nf(x)"),
        ("x = 1\nf(make(3))", "x = 1\nx_marked = make(3)\nmark(x_marked, 0)\nf(x_marked)"),
        ("f(k=g(), x=h())", "k = g()\nx = h()\nmark(x, 0)\nf(k=k, x=x)"),
        ("f(x=batch['ids'])", "mark(batch['ids'], 0)\nf(x=batch['ids'])"),
        ("f(**batch)", "mark(batch['x'], 0)\nf(**batch)"),
        ("f(a, **more)", "mark(a, 0)\nf(a, **more)"),
        ("a = 1; f(a)", "a = 1\nmark(a, 0)\nf(a)"),
        ("if f(a):\n    pass", "mark(a, 0)\nif f(a):\n    pass"),
        ("é = 'é'; f(é)", "é = 'é'\nmark(é, 0)\nf(é)"),
        ("%%magic\ny = f(a)", "%%magic\nmark(a, 0)\ny = f(a)"),
    ],
)
def test_a_mark_is_inserted_before_the_statement_of_the_call(text: str, expected: str) -> None:
    assert insert_preparations(text, MARK) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(make(3))", "x_marked = make(3)\nmark(x_marked, 0)\nf(x_marked)"),
        ("def g():\n    f(make(3))", "def g():\n    x = make(3)\n    mark(x, 0)\n    f(x)"),
    ],
)
def test_no_variable_of_a_different_cell_is_overwritten(text: str, expected: str) -> None:
    assert insert_preparations(text, MARK, reserved={"x"}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[f(a) for a in b]",
        "g = lambda a: f(a)",
        "while f(a):\n    pass",
        "c and f(a)",
        "f(*a)",
        "f(**make())",
        "f(**a, **b)",
    ],
)
def test_nothing_is_inserted_if_the_call_is_not_evaluated_exactly_once(text: str) -> None:
    assert insert_preparations(text, MARK) is None


SETTINGS = ["torch._dynamo.config.x = True"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = f(a)", "torch._dynamo.config.x = True\nmark(a, 0)\ny = f(a)"),
        (
            "%%compile_explain\nfor a in b:\n    f(a)",
            "%%compile_explain\ntorch._dynamo.config.x = True\nfor a in b:\n    mark(a, 0)\n    f(a)",
        ),
        (
            "def train(b):\n    n = 0\n    for a in b:\n        n += f(a)",
            "def train(b):\n    n = 0\n    torch._dynamo.config.x = True\n    for a in b:\n        mark(a, 0)\n"
            "        n += f(a)",
        ),
    ],
)
def test_settings_are_changed_once_before_the_loop_around_the_call(text: str, expected: str) -> None:
    assert insert_lines_before_calls(text, [call_site_in(text)], f, [MARK], SETTINGS) == expected


def test_settings_are_changed_before_the_first_of_two_calls_only() -> None:
    text = "f(a)\nfor a in b:\n    g(a)"
    first = call_site_in(text)
    second = first._replace(line=3, end_line=3, column=4, end_column=8)
    expected = "torch._dynamo.config.x = True\nmark(a, 0)\nf(a)\nfor a in b:\n    mark(a, 0)\n    g(a)"
    assert insert_lines_before_calls(text, [second, first], f, [MARK], SETTINGS) == expected


def test_torch_is_imported_before_the_settings_if_the_code_has_not_imported_it() -> None:
    text = "for a in b:\n    f(a)"
    expected = "import torch\ntorch._dynamo.config.x = True\nfor a in b:\n    mark(a, 0)\n    f(a)"
    assert insert_lines_before_calls(text, [call_site_in(text, visible=())], f, [MARK], SETTINGS) == expected


def test_two_arguments_that_are_computed_in_the_call_are_both_marked_in_their_order() -> None:
    marks = [CallPreparation(Path(Root("argument", name)), "mark(NAME, 0)") for name in "kx"]
    assert insert_preparations("f(make(n), make(m))", *marks) == (
        "x = make(n)\nk = make(m)\nmark(k, 0)\nmark(x, 0)\nf(x, k)"
    )


def test_an_argument_that_becomes_a_tensor_keeps_its_position_in_the_evaluation_order() -> None:
    mark = CallPreparation(Path(Root("argument", "k")), "mark(NAME, 0)")
    tensor_conversion = CallPreparation(Path(Root("argument", "x")), "tensor(NAME)", assigns=True)
    expected = "x = n + 1\nk = make(m)\nmark(k, 0)\nx = tensor(x)\nf(x, k)"
    assert insert_preparations("f(n + 1, make(m))", mark, tensor_conversion) == expected
    assert insert_preparations("f(n + 1, make(m))", tensor_conversion, mark) is None


def forward_arguments(*args: Any, **kwargs: Any) -> None:
    """Do nothing; a placeholder for a function that passes all arguments on."""


@pytest.mark.parametrize(
    ("text", "parameter", "key", "expected"),
    [
        ("f(a, b)", "args", 1, "mark(b, 0)\nf(a, b)"),
        ("f(make(3))", "args", 0, "args_0 = make(3)\nmark(args_0, 0)\nf(args_0)"),
        ("f(a, mask=b)", "kwargs", "mask", "mark(b, 0)\nf(a, mask=b)"),
        ("f(a)", "args", 1, None),
    ],
)
def test_an_item_of_variadic_arguments_is_marked(text: str, parameter: str, key: Any, expected: str | None) -> None:
    mark = CallPreparation(Path(Root("argument", parameter)).child("item", key), "mark(NAME, 0)")
    assert insert_lines_before_calls(text, [call_site_in(text)], forward_arguments, [mark]) == expected


def test_a_number_becomes_a_tensor_in_the_call_itself() -> None:
    assert insert_preparations("f(a, n + 1)", TENSOR_CONVERSION) == "f(a, tensor(n + 1))"


def test_torch_is_imported_if_the_code_has_not_imported_it() -> None:
    assert insert_preparations("f(a)", MARK, visible=()) == "import torch\nmark(a, 0)\nf(a)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for N in b:\n    f(a)", "for N in b:\n    N = tensor(N)\n    f(a)"),
        (
            "def run(b):\n    global N\n    for N in b:\n        f(a)",
            "def run(b):\n    global N\n    for N in b:\n        N = tensor(N)\n        f(a)",
        ),
        (
            "def run(b):\n    for change in b:\n        change()\n        f(a)",
            "def run(b):\n    global N\n    for change in b:\n        change()\n        N = tensor(N)\n        f(a)",
        ),
        ("def run(b):\n    print(N)\n    f(a)", None),
        ("def run(N):\n    f(a)", None),
        ("class Run:\n    y = f(a)", None),
    ],
)
def test_a_global_is_assigned_before_the_call_if_the_function_can_assign_it(text: str, expected: str | None) -> None:
    preparation = CallPreparation(Path(Root("global", "N", "__main__")), "tensor(NAME)", assigns=True)
    assert insert_preparations(text, preparation, visible={"torch", "N"}) == expected


def test_a_global_of_a_module_is_assigned_as_an_attribute_of_the_module() -> None:
    preparation = CallPreparation(Path(Root("global", "N", "lib.settings")), "tensor(NAME)", assigns=True)
    text = "def run(b):\n    f(a)"
    site = call_site_in(text)
    assert (
        insert_lines_before_calls(text, [site], f, [preparation]) is None
    )  # a variable N of this source would be a different one
    site = site._replace(modules=frozenset({("lib.settings", "st")}))
    assert insert_lines_before_calls(text, [site], f, [preparation]) == "def run(b):\n    st.N = tensor(st.N)\n    f(a)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c = torch.compile(f)", "c = torch.compile(f, dynamic=True)"),
        ("@torch.compile\ndef f(x): pass", "@torch.compile(dynamic=True)\ndef f(x): pass"),
        ("@torch.compile(mode='a')\ndef f(x): pass", "@torch.compile(mode='a', dynamic=True)\ndef f(x): pass"),
        ("c = torch.compile(f, dynamic=False)", "c = torch.compile(f, dynamic=True)"),
        ("c = torch.compile(\n    f,\n)", "c = torch.compile(\n    f, dynamic=True,\n)"),
        ("c = torch.compile((f))", "c = torch.compile((f), dynamic=True)"),
        ("a = torch.compile(g)\nb = torch.compile(f)", "a = torch.compile(g)\nb = torch.compile(f, dynamic=True)"),
        ("a = torch.compile(g)\nb = torch.compile(h)", None),
        ("pass", None),
    ],
)
def test_dynamic_true_is_added_to_the_call_that_compiles_the_function(text: str, expected: str | None) -> None:
    new_texts = add_dynamic_argument({"s1": text}, CompiledDefinition("f"), None)
    assert (new_texts["s1"] if new_texts is not None else None) == expected


SAME_NAME_TWICE = """
@torch.compile(backend="eager")
def f(x):
    return x

first = f

@torch.compile(backend="inductor")
def f(x):
    return x + 1
"""
FACTORY = """
def make(k):
    def inner(x):
        return x * k
    return inner

one = torch.compile(make(1))
other = torch.compile(make(2))
third = torch.compile(g)
"""
DEFINED_TWICE = """
def f(x):
    return x
a = torch.compile(f)
def f(x):
    return x + 1
b = torch.compile(f)
"""


@pytest.mark.parametrize(
    ("text", "name", "line", "lines_with_dynamic"),
    [
        (SAME_NAME_TWICE, "f", 2, [2]),
        (SAME_NAME_TWICE, "f", 8, [8]),
        (FACTORY, "make.<locals>.inner", 3, [7, 8]),
        (DEFINED_TWICE, "f", 2, [4]),
        (DEFINED_TWICE, "f", 5, [7]),
        ("import torch as t\ndef f(x): pass\nc = t.compile(f)\nd = torch.compile(g)", "f", 2, [3]),
        ("from torch import compile\ndef f(x): pass\nc = compile(f)\nd = torch.compile(g)", "f", 2, [3]),
        ("def f(x, k): pass\np = partial(f, k=1)\nc = torch.compile(p)\nd = torch.compile(h)", "f", 1, [3]),
        ("fast = partial(torch.compile, mode='a')\n@fast\ndef f(x): pass\nd = torch.compile(h)", "f", 2, [2]),
        ("fast = partial(torch.compile, mode='a')\ndef f(x): pass\nc = fast(f)\nd = fast(h)", "f", 2, [3]),
        ("class N:\n  def forward(self): pass\nn = N()\nc = torch.compile(n)\nd = torch.compile(h)", "N", 2, [4]),
        ("class N:\n  @torch.compile\n  def forward(self): pass\nc = torch.compile(h)", "N", 2, [2]),
        ("class A:\n  def f(self): pass\nclass B:\n  def f(self): pass\nc = torch.compile(B().f)", "f", 4, [5]),
        # The only call compiles a different function, or it is unclear which of two functions a call compiles.
        ("def f(x): pass\ndef g(x): pass\nc = torch.compile(g)", "f", 1, []),
        ("@torch.compile\ndef g(x): pass\ndef f(x): pass\nc = table[f]", "f", 3, []),
        ("def f(x): pass\na, b = torch.compile(table[0]), torch.compile(table[1])", "f", 1, []),
        ("def step(): pass\nc = torch.compile(optimizer.step)\nd = torch.compile(table[0])", "step", 1, []),
        ("def f(x): pass\nc = torch.compile(table[0])", "f", 1, [2]),
    ],
)
def test_dynamic_true_is_added_only_to_calls_that_compile_this_function(
    text: str, name: str, line: int, lines_with_dynamic: list[int]
) -> None:
    new_texts = add_dynamic_argument({"s1": text}, CompiledDefinition(name, "s1", line), None)
    lines = zip(text.split("\n"), (new_texts or {"s1": text})["s1"].split("\n"), strict=True)
    changed_lines = [number for number, (old, new) in enumerate(lines, 1) if old != new and "dynamic=True" in new]
    assert changed_lines == lines_with_dynamic


def test_functions_with_the_same_name_in_two_cells_are_distinguished() -> None:
    cell = "@torch.compile\ndef f(x):\n    return x"
    new_texts = add_dynamic_argument({"s1": cell, "s2": cell}, CompiledDefinition("f", "s2", 1), None)
    assert new_texts == {"s2": cell.replace("compile", "compile(dynamic=True)")}
    texts = {"s1": "def f(x): pass", "s2": "c = torch.compile(f)", "s3": "d = torch.compile(h)"}
    assert list(add_dynamic_argument(texts, CompiledDefinition("f", "s1", 1), None) or {}) == ["s2"]
