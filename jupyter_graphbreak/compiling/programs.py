"""Run a whole program with its calls routed, so that they are compiled."""

from __future__ import annotations

import ast
import importlib.util
import sys
import types
from importlib.abc import InspectLoader
from importlib.machinery import SourcelessFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak.compiling.routes import route_calls

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import CodeType


def run_as_main(path: str, module: str | None, *, routed: bool = True) -> None:
    """Run a file, or a module as ``python -m`` does, as ``__main__``.

    The module stays ``__main__``, because Dynamo looks globals up there when its functions run again.

    Parameters
    ----------
    path : str
        The file; not used for a module.
    module : str or None
        The name of the module.
    routed : bool
        Whether to route its calls.

    Raises
    ------
    SyntaxError
        If the program is not valid Python.
    BaseException
        Any exception that the program raises.
    """
    spec = _spec_of(module) if module is not None else None
    filename = str(spec.origin) if spec is not None else path
    code = _routed_code(filename) if routed else _code_of(spec, filename)
    main = types.ModuleType("__main__")
    vars(main).update(__file__=filename, __builtins__=__builtins__, __spec__=spec, __cached__=None)
    if spec is not None:
        vars(main).update(__package__=spec.parent, __loader__=spec.loader)
        sys.argv[0] = filename
    sys.modules["__main__"] = main
    exec(code, vars(main))  # noqa: S102 - the program


def _routed_code(filename: str) -> CodeType:
    tree = ast.parse(Path(filename).read_bytes(), filename)
    route_calls(tree.body)
    return compile(tree, filename, "exec", dont_inherit=True)


def _code_of(spec: ModuleSpec | None, filename: str) -> CodeType:
    """Return the code of a module, which may lack a source, or of a file, which may be compiled already."""
    if spec is not None and isinstance(spec.loader, InspectLoader):
        code = spec.loader.get_code(spec.name)
        if code is not None:
            return code
    if filename.endswith(".pyc"):
        compiled = SourcelessFileLoader("__main__", filename).get_code("__main__")
        if compiled is not None:
            return compiled
    return compile(Path(filename).read_bytes(), filename, "exec", dont_inherit=True)


def _spec_of(module: str) -> ModuleSpec:
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{module}.__main__")
    if spec is None or spec.origin is None:
        raise ImportError(f"{module} cannot be run: it is a package without __main__")
    return spec
