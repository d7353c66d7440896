"""Run a whole program with its calls routed, so that they are compiled."""

from __future__ import annotations

import ast
import importlib.util
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak.compiling.routes import route_calls

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


def run_as_main(path: str, module: str | None) -> None:
    """Run a file, or a module as ``python -m`` does, as ``__main__``.

    Parameters
    ----------
    path : str
        The file; not used for a module.
    module : str or None
        The name of the module.

    Raises
    ------
    SyntaxError
        If the program is not valid Python.
    BaseException
        Any exception that the program raises.
    """
    spec = _spec_of(module) if module is not None else None
    filename = str(spec.origin) if spec is not None else path
    tree = ast.parse(Path(filename).read_bytes(), filename)
    route_calls(tree.body)
    main = types.ModuleType("__main__")
    vars(main).update(__file__=filename, __builtins__=__builtins__, __spec__=spec, __cached__=None)
    if spec is not None:
        vars(main).update(__package__=spec.parent, __loader__=spec.loader)
        sys.argv[0] = filename
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(tree, filename, "exec", dont_inherit=True), vars(main))  # noqa: S102 - the program
    finally:
        sys.modules["__main__"] = before


def _spec_of(module: str) -> ModuleSpec:
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{module}.__main__")
    if spec is None or spec.origin is None:
        raise ImportError(f"{module} cannot be run: it is a package without __main__")
    return spec
