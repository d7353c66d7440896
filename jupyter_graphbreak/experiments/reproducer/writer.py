"""Write functions, classes and values as statements of a script that needs nothing but installed packages."""

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
from jupyter_graphbreak._torch_compat.operations import custom_operator_functions
from jupyter_graphbreak.experiments.reproducer.definitions import (
    UnwritableError,
    class_node,
    function_node,
    outer_names,
)
from jupyter_graphbreak.experiments.reproducer.objects import (
    MISSING,
    attributes_of,
    attributes_to_set,
    cell_content,
    find_import,
    is_available_in_torch,
    is_certainly_equal,
    is_library_callable,
    is_user_module,
    is_written_by_user,
    methods_in_source,
    parameters_of,
    user_function_of,
    variable_name_for,
)
from jupyter_graphbreak.experiments.reproducer.renaming import (
    ModuleAttributeReplacer,
    NameReplacer,
    parse_expression,
    simplify_definition,
)
from jupyter_graphbreak.experiments.reproducer.tensor_text import plain_tensor, tensor_data_text
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAX_ITEMS = 200
_MAX_DEPTH = 20
_LITERAL_TYPES = (bool, int, str, bytes, type(None), type(Ellipsis))
#: The methods of a class that a script needs only to create instances.
_CONSTRUCTION_METHODS = ("__init__", "__new__", "__post_init__")


class ScriptWriter:
    """Collects the statements that define the objects that a call needs, in the order of their first uses.

    ``modules`` are those that the call uses, by the names of their variables. Optimizers receive their parameters.
    """

    def __init__(
        self,
        *,
        uses_values: bool = False,
        assembles_objects: bool = False,
        shortens_lists: bool = False,
        modules: Mapping[str, torch.nn.Module] = types.MappingProxyType({}),
    ) -> None:
        self._modules = modules
        self._uses_values = uses_values
        self._assembles_objects = assembles_objects
        self._shortens_lists = shortens_lists
        self._imports: dict[str, ast.stmt] = {}
        self._statements: list[ast.stmt] = []
        self._names: dict[int, str] = {}
        self._named_objects: list[Any] = []
        self._used_names: set[str] = set(dir(builtins)) | {
            "torch",
            "compiled",
            "expected",
            "actual",
            "result",
            "arguments",
        }
        #: The classes whose constructors must not be replaced, because the script may call them.
        self._instantiated_classes: set[type] = set()
        self._classes: dict[type, ast.ClassDef] = {}
        #: The objects that are created without a constructor: the class, the name of the variable, and the statements.
        self._objects_without_constructor: list[tuple[type, str, list[ast.stmt]]] = []
        #: The script's names for attributes of the user's modules, by their names in the user's code.
        self.new_names: dict[str, str] = {}
        #: The installed packages that the script needs besides PyTorch.
        self.packages: set[str] = set()

    def build_script(self, final_statements: Iterable[ast.stmt]) -> ast.Module:
        """Return the script: imports, definitions, and then ``final_statements``."""
        self._write_constructors()
        imports = [statement for _, statement in sorted(self._imports.items())]
        future_imports = ast.parse("from __future__ import annotations").body if self._has_annotations() else []
        tree = ast.Module(
            [*future_imports, ast.parse("import torch").body[0], *imports, *self._statements, *final_statements], []
        )
        return ast.fix_missing_locations(tree)

    def _write_constructors(self) -> None:
        """Write a constructor for each class with one instance, from the statements that create this instance."""
        classes = [class_ for class_, _, _ in self._objects_without_constructor]
        for class_, variable, steps in self._objects_without_constructor:
            node = self._classes.get(class_)
            if node is None or class_ in self._instantiated_classes or classes.count(class_) > 1:
                continue
            index = self._statements.index(steps[0])
            del self._statements[index + 1 : index + len(steps)]
            self._statements[index] = ast.parse(f"{variable} = {node.name}()").body[0]
            body = [NameReplacer({variable: "self"}).visit(step) for step in steps[1:]] or [ast.Pass()]
            if [ast.unparse(base) for base in node.bases] == ["torch.nn.Module"]:
                body[0] = ast.parse("super().__init__()").body[0]
            constructor: Any = ast.parse("def __init__(self): pass").body[0]
            constructor.body = body
            other_members = [part for part in node.body if getattr(part, "name", "") not in _CONSTRUCTION_METHODS]
            node.body = [constructor, *(part for part in other_members if not isinstance(part, ast.Pass))]
        self._objects_without_constructor = []

    def _has_annotations(self) -> bool:
        return any(
            isinstance(node, ast.AnnAssign) or getattr(node, "annotation", None) or getattr(node, "returns", None)
            for statement in self._statements
            for node in ast.walk(statement)
        )

    # Names.

    def _reserve_name(self, value: Any, preferred_name: str) -> str:
        """Choose an unused name for an object, remember it, and return it."""
        fallback = "function" if isinstance(value, types.FunctionType) else "value"
        name, number = preferred_name if preferred_name.isidentifier() else fallback, 2
        stem = name
        while name in self._used_names:
            name, number = f"{stem}_{number}", number + 1
        self._used_names.add(name)
        self._names[id(value)] = name
        self._named_objects.append(value)
        return name

    def bind(self, value: Any, preferred_name: str) -> str:
        """Return an expression for an object to which code refers by a name; define the object if necessary."""
        if id(value) in self._names and not isinstance(value, _LITERAL_TYPES):
            return self._names[id(value)]
        compiled_object = compiled_callable(value) if not isinstance(value, torch.nn.Module) else None
        if compiled_object is not None:
            inner_expression = self.bind(compiled_object, preferred_name)
            return self.assign(
                value, parse_expression(f"torch.compile({inner_expression})"), f"compiled_{preferred_name}"
            )
        if (operator := custom_operator_functions(value)) is not None:
            return self._write_operator(value, *operator)
        if isinstance(value, types.ModuleType):
            return self._import(value, preferred_name)
        if isinstance(value, type):
            return self._write_class(value, preferred_name)
        if isinstance(value, types.FunctionType) and (user_function := user_function_of(value)) is not None:
            return self._write_function(user_function, preferred_name, value)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType) or is_library_callable(value):
            return self._import_object(value, preferred_name)
        return self.assign(value, self.expression_of(value), preferred_name)

    def assign(self, value: Any, node: ast.expr, preferred_name: str) -> str:
        """Define a variable for an object that an expression creates, and return its name."""
        if isinstance(node, ast.Name) and id(value) in self._names:
            return node.id
        name = self._reserve_name(value, preferred_name)
        self._statements.append(ast.Assign([ast.Name(name, ast.Store())], node, lineno=0))
        return name

    def known_name(self, value: Any) -> str | None:
        """Return the name of an object in the script; ``None`` if the object has no name there."""
        return self._names.get(id(value))

    # Imports.

    def _import(self, module: types.ModuleType, preferred_name: str) -> str:
        name = module.__name__
        file = getattr(module, "__file__", None)
        if file is not None and not is_library(file):
            raise UnwritableError(f"the module {name} is used as an object")
        if name == preferred_name or name.startswith(f"{preferred_name}."):  # import a.b binds a
            package = name.partition(".")[0]
            self._add_package(package)
            if name != "torch":
                self._imports[f"import {name}"] = ast.parse(f"import {name}").body[0]
            self._used_names.add(preferred_name)
            return preferred_name
        alias = self._reserve_name(module, preferred_name)
        self._add_package(name)
        self._imports[f"import {name} {alias}"] = ast.parse(f"import {name} as {alias}").body[0]
        return alias

    def _add_package(self, module: str) -> None:
        package = module.partition(".")[0]
        if package not in sys.stdlib_module_names and package != "torch":
            self.packages.add(package)

    def _import_object(self, value: Any, preferred_name: str) -> str:
        name = getattr(value, "__name__", "")
        if getattr(builtins, name, None) is value:
            return str(name)
        module, path = find_import(value, preferred_name)
        if module is None:
            raise UnwritableError(f"{preferred_name} cannot be imported")
        self._add_package(module)
        is_in_torch = module.partition(".")[0] == "torch" and is_available_in_torch(module)
        if is_in_torch or "." in path:
            if not is_in_torch:
                self._imports[f"import {module}"] = ast.parse(f"import {module}").body[0]
            return f"{module}.{path}"
        name = self._reserve_name(value, preferred_name)
        alias = f" as {name}" if name != path else ""
        self._imports[f"from {module} {path}"] = ast.parse(f"from {module} import {path}{alias}").body[0]
        return name

    # Functions.

    def _write_function(self, function: types.FunctionType, preferred_name: str, value: Any) -> str:
        """Write the definition of the function that ``value`` is or wraps; return the name of the function."""
        for named_object in (value, function):
            if id(named_object) in self._names:
                return self._names[id(named_object)]
        node = copy.deepcopy(function_node(function))
        name = self._reserve_name(value, preferred_name if isinstance(node, ast.Lambda) else node.name)
        self._names.setdefault(id(function), name)
        self._named_objects.append(function)
        definition = self._definition_with_script_names(simplify_definition(node), function)
        if isinstance(definition, ast.Lambda):
            self._statements.append(ast.Assign([ast.Name(name, ast.Store())], definition, lineno=0))
        else:
            definition.name = name
            self._statements.append(definition)
        return name

    def _write_operator(self, value: Any, function: Any, fake: Any) -> str:
        """Write a custom operator, and its implementation for fake tensors; return the name of the operator."""
        name = self._write_function(function, function.__name__, value)
        if fake is not None:
            fake_expression = self.expression_of(fake)
            self._statements += ast.parse(f"{name}.register_fake({ast.unparse(fake_expression)})").body
        return name

    def _definition_with_script_names(self, node: Any, function: types.FunctionType) -> Any:
        """Define the objects that a function uses, and return its definition with their names in the script."""
        scope = dict(function.__globals__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            scope[name] = cell_content(cell)
        return self._replace_outer_names(node, scope, skip={"__class__", "super"})

    def _replace_outer_names(self, node: Any, scope: dict[str, Any], skip: set[str]) -> Any:
        names = outer_names(node) - skip
        modules = {name: scope[name] for name in names if is_user_module(scope.get(name))}
        replacer = ModuleAttributeReplacer(self.bind, modules)
        node = replacer.visit(node)
        self.new_names |= replacer.new_names
        new_names: dict[str, str] = {}
        for name in sorted(outer_names(node) - skip):
            value = scope.get(name, MISSING)
            if value is MISSING or (name not in self._names.values() and getattr(builtins, name, MISSING) is value):
                continue
            if isinstance(value, type):
                self._instantiated_classes.add(value)
            new_name = self.bind(value, name)
            if new_name != name:
                new_names[name] = new_name
        return NameReplacer(new_names).visit(node) if new_names else node

    # Classes.

    def _write_class(self, class_: type, preferred_name: str) -> str:
        if not is_written_by_user(class_):
            return self._import_object(class_, preferred_name)
        if (creating_call := self._call_that_creates_class(class_)) is not None:
            return self.assign(class_, creating_call, class_.__name__)
        node = copy.deepcopy(class_node(class_))
        name = self._reserve_name(class_, class_.__name__)
        scope: dict[str, Any] = dict(vars(sys.modules.get(class_.__module__, types.ModuleType("missing"))))
        for member in vars(class_).values():
            function = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", None) or member))
            if isinstance(function, types.FunctionType):
                scope |= {key: value for key, value in function.__globals__.items() if key not in scope}
                for free_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                    if free_name != "__class__" and (cell_value := cell_content(cell)) is not MISSING:
                        scope[free_name] = cell_value
        node = simplify_definition(node)
        definition = self._replace_outer_names(node, scope, skip={"__class__", "super", class_.__name__})
        definition.name = name
        self._classes[class_] = definition
        self._statements.append(definition)
        return name

    def _call_that_creates_class(self, class_: type) -> ast.expr | None:
        """Return the call that creates a class; ``None`` if a class statement defines the class."""
        with contextlib.suppress(UnwritableError):
            class_node(class_)
            return None
        if issubclass(class_, tuple) and class_.__bases__ == (tuple,) and hasattr(class_, "_fields"):
            creator = self._import_object(collections.namedtuple, "namedtuple")  # noqa: PYI024 - the program uses this function
            return parse_expression(f"{creator}({class_.__name__!r}, {list(class_._fields)!r})")
        if issubclass(class_, enum.Enum):
            members = self.expression_of({name: member.value for name, member in class_.__members__.items()})
            return parse_expression(
                f"{self.bind(class_.__base__, 'Enum')}({class_.__name__!r}, {ast.unparse(members)})"
            )
        return None

    # Values.

    def expression_of(self, value: Any, depth: int = 0) -> ast.expr:
        """Return an expression that evaluates to a copy of a value."""
        if depth > _MAX_DEPTH:
            raise UnwritableError("a value is nested too deeply")
        if isinstance(value, float):
            return parse_expression(f"float({str(value)!r})" if not math.isfinite(value) else repr(value))
        if type(value) in _LITERAL_TYPES or type(value) is complex:
            return parse_expression(repr(value))
        if id(value) in self._names:
            return parse_expression(self._names[id(value)])
        for write in (self._torch_expression, self._python_expression, self._container_expression):
            if (node := write(value, depth)) is not None:
                return node
        return self._object_expression(value, depth)

    def _torch_expression(self, value: Any, depth: int) -> ast.expr | None:
        match value:
            case torch.Tensor() | torch.dtype() | torch.layout() | torch.memory_format():
                return parse_expression(self._tensor_text(value) if isinstance(value, torch.Tensor) else repr(value))
            case torch.device() | torch.Generator():
                is_device = isinstance(value, torch.device)
                return parse_expression(
                    f"torch.device({str(value)!r})" if is_device else "torch.Generator().manual_seed(0)"
                )
            case torch.nn.Module():
                return self._module_expression_with_mode(value, depth)
            case _ if _is_array(value):
                return parse_expression(
                    f"({tensor_data_text(torch.from_numpy(value), uses_values=self._uses_values)}).numpy()"
                )
            case torch.optim.Optimizer():
                return parse_expression(self.assign(value, self._optimizer_expression(value, depth), "optimizer"))
        return None

    def _python_expression(self, value: Any, depth: int) -> ast.expr | None:
        match value:
            case enum.Enum():
                class_name = self.bind(type(value), type(value).__name__)
                is_member = type(value).__members__.get(str(value.name)) is value
                return parse_expression(f"{class_name}.{value.name}" if is_member else f"{class_name}({value.value!r})")
            case logging.Logger():
                self._imports["import logging"] = ast.parse("import logging").body[0]
                return parse_expression(f"logging.getLogger({value.name!r})")
            case types.SimpleNamespace() | argparse.Namespace():
                keywords = [
                    ast.keyword(name, self.expression_of(part, depth + 1)) for name, part in vars(value).items()
                ]
                return ast.Call(parse_expression(self.bind(type(value), type(value).__name__)), [], keywords)
            case pathlib.PurePath() | decimal.Decimal() | fractions.Fraction() | uuid.UUID():
                return ast.Call(
                    parse_expression(self.bind(type(value), type(value).__name__)), [ast.Constant(str(value))], []
                )
            case types.FunctionType() | types.BuiltinFunctionType() | types.ModuleType() | type():
                return parse_expression(self.bind(value, value.__name__.rpartition(".")[2]))
            case types.MethodType():
                return ast.Attribute(self.expression_of(value.__self__, depth + 1), value.__name__, ast.Load())
            case functools.partial():
                self._imports["import functools"] = ast.parse("import functools").body[0]
                parts = [self.expression_of(part, depth + 1) for part in (value.func, *value.args)]
                keywords = [
                    ast.keyword(name, self.expression_of(part, depth + 1)) for name, part in value.keywords.items()
                ]
                return ast.Call(parse_expression("functools.partial"), parts, keywords)
        return None

    def _container_expression(self, value: Any, depth: int) -> ast.expr | None:
        class_ = type(value)
        if not isinstance(value, dict | list | tuple | set | frozenset | slice | range | collections.deque):
            return None
        if isinstance(value, slice | range):
            return parse_expression(repr(value))
        if len(value) > _MAX_ITEMS:
            raise UnwritableError(f"a {class_.__name__} has {len(value)} items")
        if isinstance(value, dict):
            keys = [self.expression_of(key, depth + 1) for key in value]
            dict_expression: ast.expr = ast.Dict(
                [*keys], [self.expression_of(item, depth + 1) for item in value.values()]
            )
            if isinstance(value, collections.defaultdict):
                default_factory = self.expression_of(value.default_factory, depth + 1)
                return self._container_call(class_, default_factory, dict_expression)
            return dict_expression if class_ is dict else self._container_call(class_, dict_expression)
        items = [self.expression_of(item, depth + 1) for item in value]
        if isinstance(value, tuple) and hasattr(class_, "_fields"):
            return ast.Call(parse_expression(self.bind(class_, class_.__name__)), items, [])
        if class_ is set and items:
            return ast.Set(items)
        list_expression = ast.List(items, ast.Load())
        if isinstance(value, collections.deque):
            length = [ast.Constant(value.maxlen)] if value.maxlen is not None else []
            return self._container_call(class_, list_expression, *length)
        return (
            ast.Tuple(items, ast.Load())
            if class_ is tuple
            else list_expression
            if class_ is list
            else self._container_call(class_, list_expression)
        )

    def _container_call(self, class_: type, *arguments: ast.expr) -> ast.expr | None:
        """Return the constructor call for a container; ``None`` if the container's class has its own constructor."""
        constructors = [inspect.getattr_static(base, "__init__") for base in (class_, class_.__mro__[-2])]
        is_plain = constructors[0] is constructors[1] and not hasattr(class_, "__post_init__")
        if class_.__module__ not in {"builtins", "collections"} and class_ is not torch.Size and not is_plain:
            return None
        return ast.Call(parse_expression(self.bind(class_, class_.__name__)), [*arguments], [])

    def _tensor_text(self, tensor: torch.Tensor) -> str:
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        if type(tensor) in {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}:
            text = tensor_data_text(tensor.detach(), uses_values=self._uses_values)
        else:
            data_text = tensor_data_text(plain_tensor(tensor), uses_values=self._uses_values)
            text = f"{data_text}.as_subclass({self.bind(type(tensor), type(tensor).__name__)})"
        if is_parameter:
            return f"torch.nn.Parameter({text}{'' if tensor.requires_grad else ', requires_grad=False'})"
        if not tensor.requires_grad:
            return text
        return text[:-1] + ", requires_grad=True)" if text.startswith("torch.randn(") else text + ".requires_grad_()"

    def _module_expression_with_mode(self, module: torch.nn.Module, depth: int) -> ast.expr:
        module_expression = self._module_expression(module, depth)
        if isinstance(module_expression, ast.Name) or module.training:
            return module_expression
        return ast.Call(ast.Attribute(module_expression, "eval", ast.Load()), [], [])

    def _module_expression(self, module: torch.nn.Module, depth: int) -> ast.expr:
        class_ = type(module)
        children = list(vars(module)["_modules"].values())
        if class_ in {torch.nn.Sequential, torch.nn.ModuleList} and list(vars(module)["_modules"]) == [
            str(number) for number in range(len(children))
        ]:
            if self._shortens_lists:
                children = list({type(child): child for child in reversed(children)}.values())[::-1]
            items = [self.expression_of(child, depth + 1) for child in children]
            arguments: list[ast.expr] = items if class_ is torch.nn.Sequential else [ast.List(items, ast.Load())]
            return ast.Call(parse_expression(f"torch.nn.{class_.__name__}"), arguments, [])
        if class_ in {torch.nn.ModuleDict, torch.nn.ParameterDict}:
            members: dict[str, Any] = dict(module.items())  # type: ignore[operator]
            return ast.Call(
                parse_expression(f"torch.nn.{class_.__name__}"), [self.expression_of(members, depth + 1)], []
            )
        if not is_written_by_user(class_):
            constructor_call = self._constructor_call(module, depth) if not self._assembles_objects else None
            if constructor_call is not None:
                return constructor_call
        return self._object_expression(module, depth)

    def _optimizer_expression(self, optimizer: torch.optim.Optimizer, depth: int) -> ast.expr:
        """Return the constructor call for an optimizer; the new one has no state, as before its first step."""
        class_ = type(optimizer)
        groups = optimizer.param_groups
        keywords: list[ast.keyword] = []
        for parameter in (parameters_of(class_) or [])[1:]:
            group_values = [group.get(parameter.name, MISSING) for group in groups]
            is_needed = group_values[0] is not MISSING and not is_certainly_equal(group_values[0], parameter.default)
            if is_needed and all(is_certainly_equal(group_values[0], group_value) for group_value in group_values):
                keywords.append(ast.keyword(parameter.name, self.expression_of(group_values[0], depth + 1)))
        first_argument = self._parameters_expression(groups[0]["params"])
        if len(groups) > 1:
            common_options = {
                name
                for name in groups[0]
                if all(is_certainly_equal(groups[0][name], group.get(name)) for group in groups)
            }
            first_argument = ast.List(
                [self._group_expression(group, common_options, depth) for group in groups], ast.Load()
            )
        self._instantiated_classes.add(class_)
        return ast.Call(parse_expression(self.bind(class_, class_.__name__)), [first_argument], keywords)

    def _group_expression(self, group: dict[str, Any], common_options: set[str], depth: int) -> ast.expr:
        """Return a parameter group of an optimizer, with the options in which it differs from the other groups."""
        options = {name: value for name, value in group.items() if name != "params" and name not in common_options}
        values = [self.expression_of(value, depth + 1) for value in options.values()]
        names: list[ast.expr | None] = [parse_expression(repr(name)) for name in ("params", *options)]
        return ast.Dict(names, [self._parameters_expression(group["params"]), *values])

    def _parameters_expression(self, parameters: list[torch.Tensor]) -> ast.expr:
        """Return the parameters of a group: ``module.parameters()`` if they are those of a module, otherwise a list."""
        for name, module in self._modules.items():
            for path, part in module.named_modules():
                if [id(parameter) for parameter in part.parameters()] == [id(parameter) for parameter in parameters]:
                    return parse_expression(f"{self.bind(module, name)}{_path_in_module(path)}.parameters()")
        return ast.List([parse_expression(self._parameter_text(parameter)) for parameter in parameters], ast.Load())

    def _parameter_text(self, parameter: torch.Tensor) -> str:
        for name, module in self._modules.items():
            for path, part in module.named_parameters():
                if part is parameter:
                    return f"{self.bind(module, name)}{_path_in_module(path)}"
        return self.bind(parameter, "parameter")

    def _constructor_call(self, value: Any, depth: int) -> ast.expr | None:
        """Return a call of an object's class with the attributes named like the parameters, if that is possible."""
        parameters = parameters_of(type(value))
        if parameters is None:
            return None
        attributes, args, keywords = attributes_of(value), list[ast.expr](), list[ast.keyword]()
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
            if is_certainly_equal(part, default) or is_certainly_equal(part, getattr(type(value), name, MISSING)):
                continue
            try:
                part_expression = self.expression_of(part, depth + 1)
            except UnwritableError:
                if default is parameter.empty:
                    return None
                continue
            if default is parameter.empty and not keywords and parameter.kind is not parameter.KEYWORD_ONLY:
                args.append(part_expression)
            else:
                keywords.append(ast.keyword(name, part_expression))
        return ast.Call(parse_expression(self.bind(type(value), type(value).__name__)), args, keywords)

    def _object_expression(self, value: Any, depth: int) -> ast.expr:
        """Return an expression for an instance of a class.

        The expression is a constructor call if its arguments are known. Otherwise it is the name of a variable to which
        an object that is created without its constructor is assigned.
        """
        class_ = type(value)
        if class_.__module__ == "builtins" or not (hasattr(value, "__dict__") or is_written_by_user(class_)):
            raise UnwritableError(f"an object of the type {class_.__name__} cannot be written as source text")
        if (
            is_written_by_user(class_)
            and dataclasses.is_dataclass(value)
            and "__init__" not in methods_in_source(class_)
        ):
            self._instantiated_classes.add(class_)
            fields = [field.name for field in dataclasses.fields(value) if field.init]
            keywords = [ast.keyword(field, self.expression_of(getattr(value, field), depth + 1)) for field in fields]
            return ast.Call(parse_expression(self.bind(class_, class_.__name__)), [], keywords)
        if not is_written_by_user(class_) and not isinstance(value, torch.nn.Module) and not self._assembles_objects:
            constructor_call = self._constructor_call(value, depth)
            if constructor_call is not None:
                return constructor_call
        name = self.bind(class_, class_.__name__)
        variable = self._reserve_name(value, variable_name_for(class_.__name__))
        statements: list[ast.stmt] = []
        is_module = isinstance(value, torch.nn.Module)
        if is_module:
            statements += ast.parse(f"torch.nn.Module.__init__({variable})").body
        for attribute, part in attributes_to_set(value):
            target = f"{variable}.{attribute}"
            if is_module and attribute in vars(value)["_buffers"]:
                part_text = ast.unparse(self.expression_of(part, depth + 1))
                statements += ast.parse(f"{variable}.register_buffer({attribute!r}, {part_text})").body
                continue
            if not attribute.isidentifier():
                continue
            assignment = ast.parse(f"{target} = None").body[0]
            assignment.value = self.expression_of(part, depth + 1)  # type: ignore[attr-defined]
            statements.append(assignment)
        if is_module and not value.training:
            statements += ast.parse(f"{variable}.training = False").body
        for hooks, method in (
            ("_forward_pre_hooks", "register_forward_pre_hook"),
            ("_forward_hooks", "register_forward_hook"),
        ):
            for hook in getattr(value, hooks, {}).values() if is_module else ():
                statements += ast.parse(f"{variable}.{method}({ast.unparse(self.expression_of(hook, depth + 1))})").body
        statements[:0] = ast.parse(f"{variable} = {name}.__new__({name})").body
        self._objects_without_constructor.append((class_, variable, statements))
        self._statements += statements
        return parse_expression(variable)


def _is_array(value: Any) -> bool:
    """Return whether an object is a NumPy array whose dtype tensors can have."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.dtype.kind in "biufc"


def _path_in_module(path: str) -> str:
    """Return a path inside a module as Python code: ``.layers[0].weight`` for ``layers.0.weight``."""
    return "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in path.split(".") if step)
