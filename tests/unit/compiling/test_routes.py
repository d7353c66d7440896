"""Calls in a syntax tree are routed, and functions are copied with routed calls."""

from __future__ import annotations

import ast
import asyncio
import functools
import linecache
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_graphbreak.compiling import routes
from jupyter_graphbreak.compiling.routes import RoutedFunctions, route_calls, route_code

FILE = "<routed>"
ROUTE = "__import__('jupyter_graphbreak.compiling.routes').compiling.routes.route"


@pytest.fixture
def routed_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield a list, to which each routed call adds the name of its callee."""
    names: list[str] = []

    def route(function: Any) -> Any:
        names.append(getattr(function, "__name__", type(function).__name__))
        return function

    monkeypatch.setattr(routes, "route", route)
    yield names
    linecache.cache.pop(FILE, None)


def define(text: str, name: str = "f") -> Any:
    """Run code as if it came from a file, and return one of the names it defines."""
    text = textwrap.dedent(text)
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    namespace: dict[str, Any] = {"functools": functools}
    exec(compile(text, FILE, "exec"), namespace)
    return namespace[name]


def routed_copy(function: Any) -> Any:
    routed = RoutedFunctions().copy_with_routed_calls(function)
    assert routed is not None
    return routed


@pytest.mark.parametrize(
    ("code", "routed"),
    [
        ("f(x)", "route(f)(x)"),
        ("a.b(c(1), k=d())", "route(a.b)(route(c)(1), k=route(d)())"),
        ("f(1)(2)", "route(route(f)(1))(2)"),
        ("fs[g()](x)", "route(fs[route(g)()])(x)"),
        ("[f(i) for i in g()]", "[route(f)(i) for i in route(g)()]"),
        ("(lambda: f())()", "(lambda: f())()"),
        ("def g(x=f()):\n    h()", "def g(x=route(f)()):\n    h()"),
        ("class A(f()):\n    g()", "class A(route(f)()):\n    g()"),
        ("@f(1)\ndef g():\n    h()", "@route(f)(1)\ndef g():\n    h()"),
        ("lambda x=f(): g()", "lambda x=route(f)(): g()"),
        ("await f()", "await route(f)()"),
        ("with f() as y:\n    pass", "with route(f)() as y:\n    pass"),
        ("'a'(1)", "'a'(1)"),
    ],
)
def test_calls_are_routed_in_place(code: str, routed: str) -> None:
    tree = ast.parse(code)
    route_calls(tree.body)
    assert ast.unparse(tree).replace(ROUTE, "route") == routed


def test_the_route_of_a_call_has_the_position_of_the_callee() -> None:
    tree = ast.parse("x = 1\ny = module.f(x)")
    route_calls(tree.body)
    (call,) = [
        node for node in ast.walk(tree.body[1]) if isinstance(node, ast.Call) and ast.unparse(node)[-3:] == "(x)"
    ]
    assert (call.lineno, call.col_offset) == (2, 4)
    assert {(node.lineno, node.col_offset) for node in ast.walk(call.func) if isinstance(node, ast.expr)} >= {(2, 4)}


def test_a_routed_copy_does_the_same_and_routes_its_calls(routed_names: list[str]) -> None:
    function = define(
        """
        count = 0
        def helper(x):
            return inner(x) + 1
        def inner(x):
            return x * 2
        def f(x, *rest, scale=3, **more):
            '''Text.'''
            global count
            count += 1
            return helper(x) * scale, rest, more, len(rest)
        """
    )
    function.mark = "kept"
    copied_function = routed_copy(function)
    assert copied_function(1, 2, a=4) == (9, (2,), {"a": 4}, 1)
    assert routed_names == ["helper", "len"]
    assert function.__globals__["count"] == 1
    assert (copied_function.__doc__, copied_function.__name__, copied_function.__qualname__, copied_function.mark) == (
        "Text.",
        "f",
        "f",
        "kept",
    )
    assert copied_function.__code__.co_firstlineno == function.__code__.co_firstlineno
    assert copied_function.__code__.co_filename == FILE


def test_a_routed_copy_shares_the_closure(routed_names: list[str]) -> None:
    count, read = define(
        """
        def outer():
            seen = 0
            def add():
                nonlocal seen
                seen += helper(1)
                return seen
            def helper(x):
                return x
            def read():
                return seen
            return add, read
        f = outer()
        """
    )
    copied_function = routed_copy(count)
    assert (copied_function(), count(), copied_function(), read()) == (1, 2, 3, 3)
    assert routed_names == ["helper"] * 2
    assert copied_function.__qualname__ == "outer.<locals>.add"


def test_super_and_private_names_work_in_a_routed_copy_of_a_method(routed_names: list[str]) -> None:
    kind = define(
        """
        class Base:
            def f(self):
                return 1
        class A(Base):
            def __g(self):
                return 2
            def f(self):
                return super().f() + self.__g()
        """,
        "A",
    )
    assert routed_copy(kind.f)(kind()) == 3
    assert routed_names == ["super", "f", "_A__g"] or set(routed_names) == {"super", "f", "__g"}


def test_the_traceback_of_a_routed_copy_shows_the_lines_of_the_function(routed_names: list[str]) -> None:
    function = define("def f(x):\n    y = abs(x)\n    return int(y / 0)\n")
    with pytest.raises(ZeroDivisionError) as caught:
        routed_copy(function)(1)
    last = caught.traceback[-1]
    assert (last.name, last.lineno + 1, str(last.path)) == ("f", 3, FILE)
    assert routed_names == ["abs", "int"]


def test_generators_and_coroutines_are_copied_with_routed_calls(routed_names: list[str]) -> None:
    generator = define("def f(n):\n    for i in range(n):\n        yield str(i)\n")
    assert list(routed_copy(generator)(2)) == ["0", "1"]
    coroutine = define("import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return str(n)\n")
    assert asyncio.run(routed_copy(coroutine)(2)) == "2"
    assert routed_names == ["range", "str", "str", "sleep", "str"]


def test_a_decorated_function_is_copied_with_routed_calls(routed_names: list[str]) -> None:
    wrapper = define(
        """
        def twice(function):
            @functools.wraps(function)
            def wrapper(*args):
                return function(*args) * 2
            return wrapper
        @twice
        def f(x):
            return abs(x)
        """
    )
    assert routed_copy(wrapper)(-1) == 2
    assert routed_names == ["f"]
    assert routed_copy(wrapper.__wrapped__)(-1) == 1
    assert routed_names == ["f", "abs"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def f(x):\n    return abs(x) + 1\n",
        "x = 1\ndef f(x):\n    return abs(x)\n",
        "def g(x):\n    return abs(x)\n",
        "def f(x",
    ],
)
def test_a_function_without_its_source_cannot_be_routed(text: str) -> None:
    function = define("def f(x):\n    return abs(x)\n")
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    assert route_code(function.__code__) is None


def test_a_function_whose_source_changed_by_a_constant_cannot_be_routed() -> None:
    function = define("def f(x):\n    return abs(x) + 1\n")
    text = "def f(x):\n    return abs(x) + 2\n"
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    assert route_code(function.__code__) is None
