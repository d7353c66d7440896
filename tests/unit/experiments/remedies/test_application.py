"""A change is applied to existing functions temporarily, and their code is always restored."""

from __future__ import annotations

import functools
import gc
import itertools
import linecache
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

from jupyter_graphbreak.experiments.remedies import application
from jupyter_graphbreak.experiments.remedies.application import (
    Application,
    CannotApplyError,
    Program,
    replace_functions,
)
from jupyter_graphbreak.records.source_texts import CellText

MODULE_NUMBERS = itertools.count()


class SourceModule:
    """A module that is created from source text, which is also written to a file."""

    def __init__(self, folder: Path, text: str) -> None:
        self.path = folder / f"module_{next(MODULE_NUMBERS)}.py"
        self.text = textwrap.dedent(text).strip("\n")
        self.path.write_text(self.text + "\n", encoding="utf-8")
        self.module = types.ModuleType(self.path.stem)
        exec(compile(self.text, str(self.path), "exec"), vars(self.module))
        self.program = Program({"s1": str(self.path)}, {"s1": self.text})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def apply(self, old: str, new: str) -> Any:
        assert self.text.count(old) == 1, f"{old} occurs {self.text.count(old)} times"
        return replace_functions(self.program, {"s1": self.text.replace(old, new)})


def check_change(module: SourceModule, old: str, new: str, function: Any, before: Any, after: Any) -> None:
    """Check that a call returns a different result while a change is applied, and the original one afterwards."""
    assert function() == before
    with module.apply(old, new):
        assert function() == after
    assert function() == before


def test_new_definitions_are_not_added_to_copies_for_comparison(tmp_path: Path) -> None:
    module = SourceModule(
        tmp_path,
        """
        import functools
        def f(x):
            return x + 1
        """,
    )
    code = module.f.__code__
    copy = types.FunctionType(code, {})  # as in the state of a run
    definition = "@functools.cache\ndef g(x):\n    return x + 2\ndef f(x):\n    return g(x)"
    with (
        module.apply("def f(x):\n    return x + 1", definition) as applied_change,
        applied_change.add_definitions(),
    ):
        assert module.f(1) == 3
        assert copy.__globals__ == {}
        assert copy.__code__ is code


def test_functions_and_their_callees_are_changed(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        def f(x):
            return g(x) + 1

        def g(x):
            return x
        """)  # fmt: skip
    code = module.f.__code__
    check_change(module, "    return x", "    y = x\n    return y * 10", lambda: module.f(2), 3, 21)
    with module.apply("g(x) + 1", "g(x) + 2") as change:
        assert {function.__name__ for function in change.functions} == {"f", "g"}
    assert module.f.__code__ is code


def test_methods_of_all_kinds_are_changed(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        class Base:
            def __init__(self, x):
                self.x = x

            def call(self):
                return self.x

        class C(Base):
            def call(self):
                return super().call() + self.more

            @property
            def more(self):
                return 1

            @classmethod
            def create(cls):
                return cls(5)

            @staticmethod
            def constant():
                return 7
        """)  # fmt: skip
    instance = module.C(2)
    bound_call = instance.call
    check_change(module, "return super().call() + self.more", "return super().call() - self.more", bound_call, 3, 1)
    check_change(module, "return 1", "return 2", instance.call, 3, 4)
    check_change(module, "cls(5)", "cls(6)", lambda: module.C.create().x, 5, 6)
    check_change(module, "return 7", "return 8", instance.constant, 7, 8)
    check_change(module, "self.x = x", "self.x = -x", lambda: module.C(2).x, 2, -2)


def test_closures_nested_and_decorated_functions_are_changed(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        import functools

        def outer(n):
            def inner(x):
                return x + n
            return inner

        def twice(f):
            @functools.wraps(f)
            def call(*args):
                return 2 * f(*args)
            return call

        @twice
        def decorated(x):
            return x + 1
        """)  # fmt: skip
    inner, partial = module.outer(10), functools.partial(module.decorated, 1)
    check_change(module, "return x + n", "return x - n", lambda: (inner(1), module.outer(1)(1)), (11, 2), (-9, 0))
    check_change(module, "return x + 1", "return x + 2", partial, 4, 6)
    check_change(module, "return 2 * f(*args)", "return 3 * f(*args)", lambda: module.decorated(1), 4, 6)


def test_functions_on_the_same_line_are_distinguished(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        add, times = (lambda x: x + 1), (lambda x: x * 10)

        def f(x):
            return add(x) - times(x)
        """)  # fmt: skip
    check_change(module, "add(x) - times(x)", "add(x), times(x)", lambda: module.f(2), -17, (3, 20))


def test_functions_with_the_same_name_are_distinguished(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        def f(x):
            return x + 1

        first = f

        def f(x):
            return x + 2
        """)  # fmt: skip
    check_change(module, "return x + 1", "return x + 10\n", lambda: (module.first(0), module.f(0)), (1, 2), (10, 2))


@pytest.mark.exhaustive
def test_functions_that_the_garbage_collector_froze_are_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = [SourceModule(tmp_path, "def f(x):\n    return x") for _ in range(2)]
    monkeypatch.setattr(application, "modules", modules, raising=False)  # the search begins at the modules
    first, second = modules
    gc.freeze()
    check_change(first, "return x", "return -x", lambda: first.f(2), 2, -2)

    def search_all_objects() -> list[Any]:
        raise AssertionError("searches all objects, although no more were frozen")

    with monkeypatch.context() as patch:
        patch.setattr(application, "_frozen_objects", search_all_objects)
        check_change(second, "return x", "return -x", lambda: second.f(2), 2, -2)
    modules.append(third := SourceModule(tmp_path, "def f(x):\n    return x"))
    gc.freeze()
    monkeypatch.setattr(application, "_frozen_objects", lambda: [third.f])  # searching all objects takes seconds
    check_change(third, "return x", "return -x", lambda: third.f(2), 2, -2)


def test_a_function_that_would_need_a_new_outer_variable_cannot_be_changed(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        def before(x):
            return x

        def outer(n):
            m = n + 1
            def inner(x):
                return x + n
            return inner, m
        """)  # fmt: skip
    inner, _ = module.outer(1)
    code_objects = module.before.__code__, inner.__code__
    with pytest.raises(CannotApplyError, match="inner would need"), module.apply("x + n", "x + n + m"):
        pass
    assert (module.before.__code__, inner.__code__) == code_objects
    assert inner(1) == 2


def test_code_is_restored_after_an_exception_and_an_interrupt(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, "def f(x):\n    return x")
    code, lines = module.f.__code__, list(linecache.getlines(str(module.path)))
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), module.apply("return x", "return -x"):  # noqa: PT012
            assert module.f(1) == -1
            raise error
        assert module.f.__code__ is code
        assert linecache.getlines(str(module.path)) == lines


def test_invalid_python_changes_nothing(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, "def f(x):\n    return x")
    with pytest.raises(SyntaxError), module.apply("return x", "return ("):
        pass
    assert module.f(1) == 1
    assert "return x" in linecache.getlines(str(module.path))[1]


def test_tracebacks_show_the_changed_text_only_while_it_is_active(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, "def f(x):\n    return x")
    linecache.clearcache()
    with module.apply("return x", "y = x\n    return y"):
        assert linecache.getline(str(module.path), 3) == "    return y\n"
    assert linecache.getline(str(module.path), 2) == "    return x\n"


def test_new_functions_are_defined_in_their_scopes(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        def f(x):
            return x + 1

        def call_f():
            return f(1)
        """)  # fmt: skip
    scope = vars(module.module)
    scope_before = dict(scope)
    new_text = "def _inner(x):\n    return x * 10\n\n\ndef f(x):\n    return _inner(x)"
    change: Application
    with module.apply("def f(x):\n    return x + 1", new_text) as change:
        assert [definition.name for definition in change.definitions] == ["_inner"]
        with change.add_definitions(scope):
            assert module.f(2) == 20
            assert module.call_f() == 10
        assert scope.keys() == scope_before.keys()
    assert scope == scope_before


def test_definitions_are_restored_when_one_of_them_raises(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        def failing_decorator(f):
            raise ValueError("no")

        def f(x):
            return x
        """)  # fmt: skip
    scope, f = vars(module.module), module.f
    new_text = "def g(x):\n    return x\n\n\n@failing_decorator\ndef f(x):"
    with (
        module.apply("def f(x):", new_text) as change,
        pytest.raises(ValueError, match="no"),
        change.add_definitions(scope),
    ):
        pass
    assert scope["f"] is f
    assert "g" not in scope


def test_a_function_with_changed_decorators_is_redefined(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        def negative(f):
            return lambda x: -f(x)

        @negative
        def f(x):
            return x
        """)  # fmt: skip
    scope, f = vars(module.module), module.f
    with module.apply("@negative\n", "") as change, change.add_definitions(scope):
        assert module.f(1) == 1
    assert module.f is f
    assert f(1) == -1


def test_functions_with_the_same_text_in_a_different_source_are_not_changed(tmp_path: Path) -> None:
    text = "def f(x):\n    return x"
    first, second = SourceModule(tmp_path, text), SourceModule(tmp_path, text)
    with first.apply("return x", "return -x"):
        assert (first.f(1), second.f(1)) == (-1, 1)


def test_cells_are_found_with_their_new_text() -> None:
    cell = CellText("Cell In[1]", "old", 1, 4)
    program = Program({"s1": "<cell>"}, {"s1": "old"}, find_cell=lambda name: cell if name == "<cell>" else None)
    find = program.changed_cell_finder({"s1": "new"})
    assert find("<cell>") == CellText("Cell In[1]", "new", 1, 4)
    assert find("other.py") is None
    assert program.changed_cell_finder({})("<cell>") == cell


def test_loaded_modules_and_the_import_path_stay_unchanged(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, "def f(x):\n    return x")
    modules, path = set(sys.modules), list(sys.path)
    with module.apply("return x", "return -x"):
        pass
    assert set(sys.modules) == modules
    assert sys.path == path


def test_a_change_may_import_a_package_for_a_decorator(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        def f(x):
            return x
        """)  # fmt: skip
    new_text = (
        "import functools\n@functools.cache\ndef inner(x):\n    return x * 10\n\n\ndef f(x):\n    return inner(x)"
    )
    with replace_functions(module.program, {"s1": new_text}) as change:
        assert change.defined_names == {"functools", "inner"}
        with change.add_definitions():
            assert module.f(2) == 20
    assert module.f(2) == 2
    assert not {"functools", "inner"} & vars(module.module).keys()


def test_copies_of_functions_without_globals_are_not_changed(tmp_path: Path) -> None:
    module = SourceModule(tmp_path, """
        import functools

        def f(x):
            return x
        """)  # fmt: skip
    original, copy = module.f, types.FunctionType(module.f.__code__, {})
    with module.apply("def f(x)", "@functools.cache\ndef f(x)") as change, change.add_definitions():
        assert change.functions == [original]
        assert copy(2) == module.f(2)
