"""Write functions, classes and values as the statements of a script that needs nothing but installed packages."""

from __future__ import annotations

import argparse
import ast
import builtins
import collections
import contextlib
import copy
import dataclasses
import decimal
import enum
import fractions
import functools
import inspect
import logging
import math
import pathlib
import sys
import types
import uuid
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak._torch_compat.operations import custom_operator
from jupyter_graphbreak._torch_compat.tensor_values import has_own_dispatch, looking_at_tensors
from jupyter_graphbreak.experiments.reproducer.definitions import class_node, function_node, outer_names
from jupyter_graphbreak.experiments.reproducer.objects import (
    MISSING,
    attributes_of,
    content,
    home_of,
    is_equal,
    is_library_callable,
    is_of_user,
    is_own_module,
    is_reached_from_torch,
    lower,
    own_function,
    own_methods,
    parameters_of,
    state_of,
)
from jupyter_graphbreak.experiments.reproducer.renaming import Renamed, WithoutModules, expression, without_noise
from jupyter_graphbreak.experiments.reproducer.unwritable import UnwritableError
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Tensors of integers up to this size are written with their values; with ``exact``, all tensors up to the second size.
_MAX_NUMBERS, _MAX_EXACT = 16, 256
#: The maximum number of items of a container, and the maximum depth of values.
_MAX_ITEMS, _MAX_DEPTH = 200, 20
_ATOMS = (bool, int, str, bytes, type(None), type(Ellipsis))
#: The methods that a script needs only if it makes instances of the class.
_CONSTRUCTION_METHODS = ("__init__", "__new__", "__post_init__")


class Writer:
    """Collects the statements that define the objects a call needs, in the order of their uses.

    Parameters
    ----------
    exact : bool
        Whether small tensors get their values instead of random ones.
    assembled : bool
        Whether objects of packages are put together from their attributes instead of being constructed.
    short : bool
        Whether lists of modules have only the first module of each class.
    modules : mapping
        The modules that the call uses, by the names of variables; optimizers have their parameters.
    """

    def __init__(
        self,
        *,
        exact: bool = False,
        assembled: bool = False,
        short: bool = False,
        modules: Mapping[str, torch.nn.Module] = types.MappingProxyType({}),
    ) -> None:
        self._modules = modules
        self._exact = exact
        self._assembled = assembled
        self._short = short
        self._imports: dict[str, ast.stmt] = {}
        self._statements: list[ast.stmt] = []
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        self._taken: set[str] = set(dir(builtins)) | {"torch", "compiled", "expected", "actual", "result", "arguments"}
        #: The classes whose instances the code makes, so that it can keep their constructor calls.
        self._made: set[type] = set()
        self._classes: dict[type, ast.ClassDef] = {}
        #: The objects that are made without a constructor: the class, and the statements.
        self._objects: list[tuple[type, str, list[ast.stmt]]] = []
        #: The names that parts of modules have in the script, by their names in the user's code.
        self.renamed: dict[str, str] = {}
        #: The installed packages that the script needs besides PyTorch.
        self.packages: set[str] = set()

    def module(self, tail: Iterable[ast.stmt]) -> ast.Module:
        """Return the script: imports, definitions, and the given statements."""
        self._write_constructors()
        imports = [statement for _, statement in sorted(self._imports.items())]
        future = ast.parse("from __future__ import annotations").body if self._has_annotations() else []
        tree = ast.Module([*future, ast.parse("import torch").body[0], *imports, *self._statements, *tail], [])
        return ast.fix_missing_locations(tree)

    def _write_constructors(self) -> None:
        """Turn the statements that make the only instance of a class into its constructor."""
        kinds = [kind for kind, _, _ in self._objects]
        for kind, variable, steps in self._objects:
            node = self._classes.get(kind)
            if node is None or kind in self._made or kinds.count(kind) > 1:
                continue
            at = self._statements.index(steps[0])
            del self._statements[at + 1 : at + len(steps)]
            self._statements[at] = ast.parse(f"{variable} = {node.name}()").body[0]
            body = [Renamed({variable: "self"}).visit(step) for step in steps[1:]] or [ast.Pass()]
            if [ast.unparse(base) for base in node.bases] == ["torch.nn.Module"]:
                body[0] = ast.parse("super().__init__()").body[0]
            head: Any = ast.parse("def __init__(self): pass").body[0]
            head.body = body
            rest = [part for part in node.body if getattr(part, "name", "") not in _CONSTRUCTION_METHODS]
            node.body = [head, *(part for part in rest if not isinstance(part, ast.Pass))]
        self._objects = []

    def _has_annotations(self) -> bool:
        return any(
            isinstance(node, ast.AnnAssign) or getattr(node, "annotation", None) or getattr(node, "returns", None)
            for statement in self._statements
            for node in ast.walk(statement)
        )

    # Names.

    def _name(self, value: Any, wanted: str) -> str:
        """Reserve a name for an object."""
        fallback = "function" if isinstance(value, types.FunctionType) else "value"
        name, number = wanted if wanted.isidentifier() else fallback, 2
        stem = name
        while name in self._taken:
            name, number = f"{stem}_{number}", number + 1
        self._taken.add(name)
        self._names[id(value)] = name
        self._kept.append(value)
        return name

    def bind(self, value: Any, wanted: str) -> str:
        """Return an expression for an object that code refers to by a name; define the name if needed."""
        if id(value) in self._names and not isinstance(value, _ATOMS):
            return self._names[id(value)]
        compiled = compiled_callable(value) if not isinstance(value, torch.nn.Module) else None
        if compiled is not None:
            inner = self.bind(compiled, wanted)
            return self._assign(value, expression(f"torch.compile({inner})"), f"compiled_{wanted}")
        if (operator := custom_operator(value)) is not None:
            return self._operator(value, *operator)
        if isinstance(value, types.ModuleType):
            return self._import(value, wanted)
        if isinstance(value, type):
            return self._class(value, wanted)
        if isinstance(value, types.FunctionType) and (own := own_function(value)) is not None:
            return self._function(own, wanted, value)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType) or is_library_callable(value):
            return self._import_object(value, wanted)
        return self._assign(value, self.value(value), wanted)

    def _assign(self, value: Any, written: ast.expr, wanted: str) -> str:
        if isinstance(written, ast.Name) and id(value) in self._names:
            return written.id
        name = self._name(value, wanted)
        self._statements.append(ast.Assign([ast.Name(name, ast.Store())], written, lineno=0))
        return name

    def name_expression(self, value: Any, written: ast.expr, wanted: str) -> str:
        """Define a variable for an object that an expression makes, and return its name."""
        return self._assign(value, written, wanted)

    def known_name(self, value: Any) -> str | None:
        """Return the name of an object in the script, if it has one."""
        return self._names.get(id(value))

    # Imports.

    def _import(self, module: types.ModuleType, wanted: str) -> str:
        name = module.__name__
        file = getattr(module, "__file__", None)
        if file is not None and not is_library(file):
            raise UnwritableError(f"the module {name} is used as an object")
        if name == wanted or name.startswith(f"{wanted}."):  # import a.b binds a
            top = name.partition(".")[0]
            self._note_package(top)
            if name != "torch":
                self._imports[f"import {name}"] = ast.parse(f"import {name}").body[0]
            self._taken.add(wanted)
            return wanted
        alias = self._name(module, wanted)
        self._note_package(name)
        self._imports[f"import {name} {alias}"] = ast.parse(f"import {name} as {alias}").body[0]
        return alias

    def _note_package(self, module: str) -> None:
        top = module.partition(".")[0]
        if top not in sys.stdlib_module_names and top != "torch":
            self.packages.add(top)

    def _import_object(self, value: Any, wanted: str) -> str:
        name = getattr(value, "__name__", "")
        if getattr(builtins, name, None) is value:
            return str(name)
        home, path = home_of(value, wanted)
        if home is None:
            raise UnwritableError(f"{wanted} cannot be imported")
        self._note_package(home)
        is_in_torch = home.partition(".")[0] == "torch" and is_reached_from_torch(home)
        if is_in_torch or "." in path:
            if not is_in_torch:
                self._imports[f"import {home}"] = ast.parse(f"import {home}").body[0]
            return f"{home}.{path}"
        name = self._name(value, wanted)
        alias = f" as {name}" if name != path else ""
        self._imports[f"from {home} {path}"] = ast.parse(f"from {home} import {path}{alias}").body[0]
        return name

    # Functions.

    def _function(self, function: types.FunctionType, wanted: str, value: Any = None) -> str:
        key = function if value is None else value
        for known in (key, function):
            if id(known) in self._names:
                return self._names[id(known)]
        node = copy.deepcopy(function_node(function))
        name = self._name(key, wanted if isinstance(node, ast.Lambda) else node.name)
        self._names.setdefault(id(function), name)
        self._kept.append(function)
        written = self._resolved(without_noise(node), function)
        if isinstance(written, ast.Lambda):
            self._statements.append(ast.Assign([ast.Name(name, ast.Store())], written, lineno=0))
        else:
            written.name = name
            self._statements.append(written)
        return name

    def _operator(self, value: Any, function: Any, fake: Any) -> str:
        """Write a custom operator, with its result for fake tensors."""
        name = self._function(function, function.__name__, value)
        if fake is not None:
            written = self.value(fake)
            self._statements += ast.parse(f"{name}.register_fake({ast.unparse(written)})").body
        return name

    def _resolved(self, node: Any, function: types.FunctionType) -> Any:
        """Define the objects that a function uses, and return its definition with the script's names."""
        scope = dict(function.__globals__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                scope[name] = cell.cell_contents
            except ValueError:  # an empty cell
                scope.pop(name, None)
        return self._with_names(node, scope, skip={"__class__", "super"})

    def _with_names(self, node: Any, scope: dict[str, Any], skip: set[str]) -> Any:
        names = outer_names(node) - skip
        modules = {name: scope[name] for name in names if is_own_module(scope.get(name))}
        remover = WithoutModules(self.bind, modules)
        node = remover.visit(node)
        self.renamed |= remover.renamed
        new: dict[str, str] = {}
        for name in sorted(outer_names(node) - skip):
            value = scope.get(name, MISSING)
            if value is MISSING or (name not in self._names.values() and getattr(builtins, name, MISSING) is value):
                continue
            if isinstance(value, type):
                self._made.add(value)
            written = self.bind(value, name)
            if written != name:
                new[name] = written
        return Renamed(new).visit(node) if new else node

    # Classes.

    def _class(self, kind: type, wanted: str) -> str:
        if not is_of_user(kind):
            return self._import_object(kind, wanted)
        if (made := self._class_creating_call(kind)) is not None:
            return self._assign(kind, made, kind.__name__)
        node = copy.deepcopy(class_node(kind))
        name = self._name(kind, kind.__name__)
        scope: dict[str, Any] = dict(vars(sys.modules.get(kind.__module__, types.ModuleType("missing"))))
        for member in vars(kind).values():
            function = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", None) or member))
            if isinstance(function, types.FunctionType):
                scope |= {key: value for key, value in function.__globals__.items() if key not in scope}
                for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                    if free != "__class__" and (held := content(cell)) is not MISSING:
                        scope[free] = held
        node = without_noise(node)
        written = self._with_names(node, scope, skip={"__class__", "super", kind.__name__})
        written.name = name
        self._classes[kind] = written
        self._statements.append(written)
        return name

    def _class_creating_call(self, kind: type) -> ast.expr | None:
        """Return the call that makes a class for which there is no class statement."""
        with contextlib.suppress(UnwritableError):
            class_node(kind)
            return None
        if issubclass(kind, tuple) and kind.__bases__ == (tuple,) and hasattr(kind, "_fields"):
            maker = self._import_object(collections.namedtuple, "namedtuple")  # noqa: PYI024 - as the program has it
            return expression(f"{maker}({kind.__name__!r}, {list(kind._fields)!r})")
        if issubclass(kind, enum.Enum):
            members = self.value({name: member.value for name, member in kind.__members__.items()})
            return expression(f"{self.bind(kind.__base__, 'Enum')}({kind.__name__!r}, {ast.unparse(members)})")
        return None

    # Values.

    def value(self, value: Any, depth: int = 0) -> ast.expr:
        """Return an expression that makes a value.

        Raises
        ------
        UnwritableError
            If there is none.
        """
        if depth > _MAX_DEPTH:
            raise UnwritableError("a value is nested too deeply")
        if isinstance(value, float):
            return expression(f"float({str(value)!r})" if not math.isfinite(value) else repr(value))
        if type(value) in _ATOMS or type(value) is complex:
            return expression(repr(value))
        if id(value) in self._names:
            return expression(self._names[id(value)])
        for write in (self._value_of_torch, self._value_of_python, self._container):
            if (written := write(value, depth)) is not None:
                return written
        return self._object(value, depth)

    def _value_of_torch(self, value: Any, depth: int) -> ast.expr | None:
        match value:
            case torch.Tensor() | torch.dtype() | torch.layout() | torch.memory_format():
                return expression(self._tensor(value) if isinstance(value, torch.Tensor) else repr(value))
            case torch.device() | torch.Generator():
                is_device = isinstance(value, torch.device)
                return expression(f"torch.device({str(value)!r})" if is_device else "torch.Generator().manual_seed(0)")
            case torch.nn.Module():
                return self._module_in_its_mode(value, depth)
            case _ if _is_array(value):
                return expression(f"({self._data(torch.from_numpy(value))}).numpy()")
            case torch.optim.Optimizer():
                return expression(self._assign(value, self._optimizer(value, depth), "optimizer"))
        return None

    def _value_of_python(self, value: Any, depth: int) -> ast.expr | None:
        match value:
            case enum.Enum():
                kind = self.bind(type(value), type(value).__name__)
                is_member = type(value).__members__.get(str(value.name)) is value
                return expression(f"{kind}.{value.name}" if is_member else f"{kind}({value.value!r})")
            case logging.Logger():
                self._imports["import logging"] = ast.parse("import logging").body[0]
                return expression(f"logging.getLogger({value.name!r})")
            case types.SimpleNamespace() | argparse.Namespace():
                words = [ast.keyword(name, self.value(part, depth + 1)) for name, part in vars(value).items()]
                return ast.Call(expression(self.bind(type(value), type(value).__name__)), [], words)
            case pathlib.PurePath() | decimal.Decimal() | fractions.Fraction() | uuid.UUID():
                return ast.Call(
                    expression(self.bind(type(value), type(value).__name__)), [ast.Constant(str(value))], []
                )
            case types.FunctionType() | types.BuiltinFunctionType() | types.ModuleType() | type():
                return expression(self.bind(value, value.__name__.rpartition(".")[2]))
            case types.MethodType():
                return ast.Attribute(self.value(value.__self__, depth + 1), value.__name__, ast.Load())
            case functools.partial():
                self._imports["import functools"] = ast.parse("import functools").body[0]
                parts = [self.value(part, depth + 1) for part in (value.func, *value.args)]
                words = [ast.keyword(name, self.value(part, depth + 1)) for name, part in value.keywords.items()]
                return ast.Call(expression("functools.partial"), parts, words)
        return None

    def _container(self, value: Any, depth: int) -> ast.expr | None:
        kind = type(value)
        if not isinstance(value, dict | list | tuple | set | frozenset | slice | range | collections.deque):
            return None
        if isinstance(value, slice | range):
            return expression(repr(value))
        if len(value) > _MAX_ITEMS:
            raise UnwritableError(f"a {kind.__name__} has {len(value)} items")
        if isinstance(value, dict):
            keys = [self.value(key, depth + 1) for key in value]
            written: ast.expr = ast.Dict([*keys], [self.value(item, depth + 1) for item in value.values()])
            if isinstance(value, collections.defaultdict):
                first = self.value(value.default_factory, depth + 1)
                return self._wrapped(kind, first, written)
            return written if kind is dict else self._wrapped(kind, written)
        items = [self.value(item, depth + 1) for item in value]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return ast.Call(expression(self.bind(kind, kind.__name__)), items, [])
        if kind is set and items:
            return ast.Set(items)
        listed = ast.List(items, ast.Load())
        if isinstance(value, collections.deque):
            length = [ast.Constant(value.maxlen)] if value.maxlen is not None else []
            return self._wrapped(kind, listed, *length)
        return (
            ast.Tuple(items, ast.Load()) if kind is tuple else listed if kind is list else self._wrapped(kind, listed)
        )

    def _wrapped(self, kind: type, *given: ast.expr) -> ast.expr | None:
        """Return the constructor's call for a container; ``None`` if its class has its own constructor."""
        constructors = [inspect.getattr_static(base, "__init__") for base in (kind, kind.__mro__[-2])]
        is_plain = constructors[0] is constructors[1] and not hasattr(kind, "__post_init__")
        if kind.__module__ not in {"builtins", "collections"} and kind is not torch.Size and not is_plain:
            return None
        return ast.Call(expression(self.bind(kind, kind.__name__)), [*given], [])

    def _tensor(self, tensor: torch.Tensor) -> str:
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        if type(tensor) in {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}:
            text = self._data(tensor.detach())
        else:
            plain = self._data(_as_plain(tensor))
            text = f"{plain}.as_subclass({self.bind(type(tensor), type(tensor).__name__)})"
        if is_parameter:
            return f"torch.nn.Parameter({text}{'' if tensor.requires_grad else ', requires_grad=False'})"
        if not tensor.requires_grad:
            return text
        return text[:-1] + ", requires_grad=True)" if text.startswith("torch.randn(") else text + ".requires_grad_()"

    def _data(self, tensor: torch.Tensor) -> str:
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            return self._sparse(tensor)
        shape, dtype = tuple(tensor.shape), tensor.dtype
        device = "" if tensor.device.type == "cpu" else f", device={str(tensor.device.type)!r}"
        sizes = ", ".join(map(str, shape)) if shape else "()"
        is_float = dtype.is_floating_point or dtype.is_complex
        of_dtype = "" if dtype == torch.float32 else f", dtype={dtype}"
        if tensor.device.type == "meta":
            return f"torch.empty({sizes}{of_dtype}{device})"
        numbers = tensor.numel()
        if numbers <= (_MAX_EXACT if self._exact else 0 if is_float else _MAX_NUMBERS) and tensor.is_contiguous():
            if not numbers:
                return f"torch.empty({sizes}{of_dtype}{device})"
            known = "" if dtype in {torch.bool, torch.int64} else of_dtype
            return f"torch.tensor({tensor.tolist()!r}{known}{device})".replace("nan", "float('nan')").replace(
                "inf", "float('inf')"
            )
        if not tensor.is_contiguous():
            made = f"torch.empty_strided({shape}, {tuple(tensor.stride())}{of_dtype}{device})"
            return f"{made}.normal_()" if is_float else f"{made}.copy_({self._data(tensor.contiguous())})"
        if is_float:
            has_generator = dtype.itemsize > 1
            return f"torch.randn({sizes}{of_dtype if has_generator else ''}{device})" + (
                "" if has_generator else f".to({dtype})"
            )
        if dtype == torch.bool:
            return f"torch.rand({sizes}{device}) > 0.5"
        low, high = (int(tensor.min()), int(tensor.max())) if numbers else (0, 0)
        of_dtype = "" if dtype == torch.int64 else of_dtype
        return f"torch.randint({low}, {high + 1}, {shape}{of_dtype}{device})"

    def _sparse(self, tensor: torch.Tensor) -> str:
        if tensor.layout not in {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc}:
            raise UnwritableError(f"a tensor with the layout {tensor.layout} cannot be written as source text")
        found = tensor.to_sparse_coo().coalesce()
        indices, shape = found.indices(), tuple(tensor.shape)
        where = self._data(indices)
        if indices.numel() > _MAX_NUMBERS:  # a random index must be below the size of its own dimension
            rows = (f"torch.randint(0, {size}, ({indices.shape[1]},))" for size in shape[: found.sparse_dim()])
            where = f"torch.stack([{', '.join(rows)}])"
        made = f"torch.sparse_coo_tensor({where}, {self._data(found.values())}, {shape})"
        if tensor.layout != torch.sparse_coo:
            return f"{made}.to_{str(tensor.layout).removeprefix('torch.')}()"
        return f"{made}.coalesce()" if tensor.is_coalesced() else made

    def _module_in_its_mode(self, module: torch.nn.Module, depth: int) -> ast.expr:
        written = self._module(module, depth)
        if isinstance(written, ast.Name) or module.training:
            return written
        return ast.Call(ast.Attribute(written, "eval", ast.Load()), [], [])

    def _module(self, module: torch.nn.Module, depth: int) -> ast.expr:
        kind = type(module)
        children = list(vars(module)["_modules"].values())
        if kind in {torch.nn.Sequential, torch.nn.ModuleList} and list(vars(module)["_modules"]) == [
            str(number) for number in range(len(children))
        ]:
            if self._short:
                children = list({type(child): child for child in reversed(children)}.values())[::-1]
            items = [self.value(child, depth + 1) for child in children]
            given: list[ast.expr] = items if kind is torch.nn.Sequential else [ast.List(items, ast.Load())]
            return ast.Call(expression(f"torch.nn.{kind.__name__}"), given, [])
        if kind in {torch.nn.ModuleDict, torch.nn.ParameterDict}:
            held: dict[str, Any] = dict(module.items())  # type: ignore[operator]
            return ast.Call(expression(f"torch.nn.{kind.__name__}"), [self.value(held, depth + 1)], [])
        if not is_of_user(kind):
            constructed = self._constructed(module, depth) if not self._assembled else None
            if constructed is not None:
                return constructed
        return self._object(module, depth)

    def _optimizer(self, optimizer: torch.optim.Optimizer, depth: int) -> ast.expr:
        """Return the constructor's call for an optimizer; its state is that before the first step."""
        kind = type(optimizer)
        groups = optimizer.param_groups
        words: list[ast.keyword] = []
        for parameter in (parameters_of(kind) or [])[1:]:
            given = [group.get(parameter.name, MISSING) for group in groups]
            is_needed = given[0] is not MISSING and not is_equal(given[0], parameter.default)
            if is_needed and all(is_equal(given[0], other) for other in given):
                words.append(ast.keyword(parameter.name, self.value(given[0], depth + 1)))
        first = self._parameters(groups[0]["params"])
        if len(groups) > 1:
            common = {name for name in groups[0] if all(is_equal(groups[0][name], group.get(name)) for group in groups)}
            first = ast.List([self._group(group, common, depth) for group in groups], ast.Load())
        self._made.add(kind)
        return ast.Call(expression(self.bind(kind, kind.__name__)), [first], words)

    def _group(self, group: dict[str, Any], common: set[str], depth: int) -> ast.expr:
        """Return a group of parameters, with the options in which it differs from the other groups."""
        options = {name: value for name, value in group.items() if name != "params" and name not in common}
        values = [self.value(value, depth + 1) for value in options.values()]
        names: list[ast.expr | None] = [expression(repr(name)) for name in ("params", *options)]
        return ast.Dict(names, [self._parameters(group["params"]), *values])

    def _parameters(self, parameters: list[torch.Tensor]) -> ast.expr:
        """Return the parameters of a group: those of a module, or a list."""
        for name, module in self._modules.items():
            for path, part in module.named_modules():
                if [id(parameter) for parameter in part.parameters()] == [id(parameter) for parameter in parameters]:
                    return expression(f"{self.bind(module, name)}{_path_in_module(path)}.parameters()")
        return ast.List([expression(self._parameter(parameter)) for parameter in parameters], ast.Load())

    def _parameter(self, parameter: torch.Tensor) -> str:
        for name, module in self._modules.items():
            for path, part in module.named_parameters():
                if part is parameter:
                    return f"{self.bind(module, name)}{_path_in_module(path)}"
        return self.bind(parameter, "parameter")

    def _constructed(self, value: Any, depth: int) -> ast.expr | None:
        """Return the constructor's call for an object whose attributes have the names of the parameters."""
        parameters = parameters_of(type(value))
        if parameters is None:
            return None
        attributes, args, words = attributes_of(value), list[ast.expr](), list[ast.keyword]()
        for parameter in parameters:
            name, default = parameter.name, parameter.default
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                continue
            part = attributes.get(name, attributes.get(f"_{name}", MISSING))
            if isinstance(default, bool) and (part is None or isinstance(part, torch.Tensor)):
                part = part is not None  # such as bias=True
            if part is MISSING:
                if default is parameter.empty:
                    return None
                continue
            if is_equal(part, default) or is_equal(part, getattr(type(value), name, MISSING)):
                continue
            try:
                written = self.value(part, depth + 1)
            except UnwritableError:
                if default is parameter.empty:
                    return None
                continue
            if default is parameter.empty and not words and parameter.kind is not parameter.KEYWORD_ONLY:
                args.append(written)
            else:
                words.append(ast.keyword(name, written))
        return ast.Call(expression(self.bind(type(value), type(value).__name__)), args, words)

    def _object(self, value: Any, depth: int) -> ast.expr:
        """Return the name of a variable for an object that is made without its constructor."""
        kind = type(value)
        if kind.__module__ == "builtins" or not (hasattr(value, "__dict__") or is_of_user(kind)):
            raise UnwritableError(f"an object of the type {kind.__name__} cannot be written as source text")
        if is_of_user(kind) and dataclasses.is_dataclass(value) and "__init__" not in own_methods(kind):
            self._made.add(kind)
            fields = [field.name for field in dataclasses.fields(value) if field.init]
            words = [ast.keyword(field, self.value(getattr(value, field), depth + 1)) for field in fields]
            return ast.Call(expression(self.bind(kind, kind.__name__)), [], words)
        if not is_of_user(kind) and not isinstance(value, torch.nn.Module) and not self._assembled:
            constructed = self._constructed(value, depth)
            if constructed is not None:
                return constructed
        name = self.bind(kind, kind.__name__)
        variable = self._name(value, lower(kind.__name__))
        steps: list[ast.stmt] = []
        is_module = isinstance(value, torch.nn.Module)
        if is_module:
            steps += ast.parse(f"torch.nn.Module.__init__({variable})").body
        for attribute, part in state_of(value):
            target = f"{variable}.{attribute}"
            if is_module and attribute in vars(value)["_buffers"]:
                written = ast.unparse(self.value(part, depth + 1))
                steps += ast.parse(f"{variable}.register_buffer({attribute!r}, {written})").body
                continue
            if not attribute.isidentifier():
                continue
            assigned = ast.parse(f"{target} = None").body[0]
            assigned.value = self.value(part, depth + 1)  # type: ignore[attr-defined]
            steps.append(assigned)
        if is_module and not value.training:
            steps += ast.parse(f"{variable}.training = False").body
        for hooks, method in (
            ("_forward_pre_hooks", "register_forward_pre_hook"),
            ("_forward_hooks", "register_forward_hook"),
        ):
            for hook in getattr(value, hooks, {}).values() if is_module else ():
                steps += ast.parse(f"{variable}.{method}({ast.unparse(self.value(hook, depth + 1))})").body
        steps[:0] = ast.parse(f"{variable} = {name}.__new__({name})").body
        self._objects.append((kind, variable, steps))
        self._statements += steps
        return expression(variable)


def _is_array(value: Any) -> bool:
    """Return whether an object is a NumPy array with a dtype that tensors can have."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.dtype.kind in "biufc"


def _as_plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the data of a tensor whose class adds only methods."""
    kind = type(tensor)
    if vars(tensor) or torch.nn.parameter.is_lazy(tensor) or has_own_dispatch(kind):
        raise UnwritableError(f"a tensor of the class {kind.__name__} cannot be written as source text")
    with looking_at_tensors():
        return tensor.detach().as_subclass(torch.Tensor)


def _path_in_module(path: str) -> str:
    """Return the steps into a module: ``.layers[0].weight`` for ``layers.0.weight``."""
    return "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in path.split(".") if step)
