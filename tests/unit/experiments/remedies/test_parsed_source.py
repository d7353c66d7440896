"""A parsed source replaces, deletes and inserts parts of its text, and leaves all other text unchanged."""

from __future__ import annotations

import ast

import pytest

from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource, Splice, as_operand, fresh_name


def parse(text: str) -> ParsedSource:
    source = ParsedSource.parse(text)
    assert source is not None
    return source


def first_node(source: ParsedSource, kind: type[ast.stmt]) -> ast.stmt:
    return next(node for node in ast.walk(source.tree) if isinstance(node, kind))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f():\n    a()\n    del x  # why\n    b()\n", "def f():\n    a()\n    b()\n"),
        ("def f():\n    del x\n", "def f():\n    pass\n"),
        ("if a: del x\n", "if a: pass\n"),
        ("a(); del x; b()\n", "a(); pass; b()\n"),
        ("def f():\n\tdel (x,\n\t  y)\n\tb()\n", "def f():\n\tb()\n"),
        ("a()\r\ndel x\r\nb()\r\n", "a()\r\nb()\r\n"),
        ("a()\ndel x", "a()\n"),
    ],
)
def test_a_statement_is_deleted_with_its_own_lines(text: str, expected: str) -> None:
    source = parse(text)
    assert source.apply_splices([source.deletion(first_node(source, ast.Delete))]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "def f():\n    if a:  # one\n        # two\n        b()  # three\n    c()  # four\n",
            "def f():\n    # one\n    # two\n    x\n    y  # three\n    c()  # four\n",
        ),
        ("if a: b()  # stays\n", "x\ny  # stays\n"),
        ("for a in b: c(); \\\n  d()\n", "for a in b: x; y; \\\n  d()\n"),
        ("z = 1; b(u,\n v)\n", None),
    ],
)  # fmt: skip
def test_a_replacement_keeps_the_comments(text: str, expected: str | None) -> None:
    source = parse(text)
    for kind in (ast.If, ast.Expr):
        if any(isinstance(node, kind) for node in ast.walk(source.tree)):
            assert (
                source.apply_splices([source.statement_replacement(first_node(source, kind), ["x", "y"])]) == expected
            )
            return


def test_an_elif_becomes_an_else() -> None:
    text = "if a:\n  b\nelif c:\n  d\nelse:\n  e\n"
    source = parse(text)
    inner = next(node for node in ast.walk(source.tree) if isinstance(node, ast.If) and source.is_elif(node))
    assert source.apply_splices([source.statement_replacement(inner, ["x"])]) == "if a:\n  b\nelse:\n  x\n"


def test_columns_after_multibyte_characters_are_right() -> None:
    text = 's = "äöü😀"; t = f(s)\n'
    source = parse(text)
    call = source.find_node(1, text.index("f("), 1, text.index("f(") + 4)
    assert isinstance(call, ast.Call)
    assert source.apply_splices([source.replacement(call, "g()")]) == 's = "äöü😀"; t = g()\n'


def test_a_cell_with_magics_is_preserved() -> None:
    text = '%%compile_explain --try\n%time f(x)\n!ls\ns = """\n%d\n"""\ny = g(x)  # why?\n'
    source = parse(text)
    call = source.find_node(7, 4, 7, 8)
    assert isinstance(call, ast.Call)
    assert source.apply_splices([source.replacement(call, "h(x)")]) == text.replace("g(x)", "h(x)")


def test_a_result_that_is_not_python_is_none() -> None:
    assert ParsedSource.parse("def f(:\n") is None
    assert ParsedSource.parse("a = 1\rb = 2\n") is None
    source = parse("a = 1\n")
    assert source.apply_splices([Splice(4, 5, "(")]) is None
    assert source.apply_splices([Splice(4, 5, "2"), None]) is None
    assert source.apply_splices([Splice(0, 3, "b"), Splice(2, 5, "c")]) is None


def test_a_new_name_occurs_neither_in_the_text_nor_in_other_cells() -> None:
    source = ParsedSource.parse("import a as later\nlater_2 = 1\n", frozenset({"later_3"}))
    assert source is not None
    assert [fresh_name(source, wanted_name) for wanted_name in ("later", "skip")] == ["later_4", "skip"]


def test_the_range_of_a_jump_selects_its_test() -> None:
    source = parse("if x > 3:\n    y = 1\n")
    node = source.find_node(1, 0, 1, 8)
    assert isinstance(node, ast.Compare)


def test_expressions_in_an_f_string_are_replaced() -> None:
    source = parse('print(f"é {a.b:.2f} {c}")\n')
    statement = source.tree.body[0]
    a = next(node for node in ast.walk(statement) if isinstance(node, ast.Attribute))
    assert source.text_with_changes(statement, {a: "value"}) == "print(f'é {value:.2f} {c}')"


def test_operands_get_parentheses_and_new_names_are_not_in_use() -> None:
    assert [as_operand(text) for text in ("a.b(c)", "a + b", "-a", "a[0]")] == ["a.b(c)", "(a + b)", "(-a)", "a[0]"]
    assert fresh_name(parse("def later(value): condition = 1\n"), "later") == "later_2"


def test_lines_at_the_start_of_a_function_follow_its_docstring() -> None:
    source = parse('def f():\n    """Doc.\n\n    More.\n    """\n    return 1\n')
    function = source.tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    assert source.apply_splices([source.insertion_at_start(function, ["import torch"])]) == source.text.replace(
        "    return", "    import torch\n    return"
    )
