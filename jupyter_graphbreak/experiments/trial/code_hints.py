"""Find values in a function's code that may lead it into different branches: constants, tested parameters, choices."""

from __future__ import annotations

import dis
import enum
import inspect
import itertools
import types
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.operations import LOOKUP_FUNCTIONS
from jupyter_graphbreak.recording.targets import reachable_objects, user_code_objects, walk_code_objects
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.experiments.trial.arguments import Arguments

MAX_CONSTANTS = 3
#: The prefixes of the names of bytecode instructions that test a value.
_TEST_OPCODES = ("POP_JUMP", "JUMP_IF", "UNARY_NOT", "TO_BOOL")
#: Names that code uses to read or copy the ``.grad`` of a tensor.
_GRADIENT_READERS = frozenset({"grad", "deepcopy"})


def tested_variables(fn: Callable[..., Any]) -> set[str]:
    """Return the names of the variables that code tests, as in ``if x``, ``not x`` and ``if x is None``."""
    names: set[str] = set()
    for code in _code_objects_of(fn):
        for before, after in itertools.pairwise(dis.get_instructions(code)):
            if before.opname.startswith("LOAD_FAST") and after.opname.startswith(_TEST_OPCODES):
                names.add(str(before.argval))
    return names


def default_values(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the default values of a function's parameters, by name."""
    parameters = parameters_of(fn).values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}


def parameters_of(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function, or of a module's ``forward``, by name; nothing if they are unknown."""
    try:
        return inspect.signature(getattr(fn, "forward", fn)).parameters
    except (TypeError, ValueError):
        return {}


def reads_gradients(arguments: Arguments, fn: Callable[..., Any]) -> bool:
    """Return whether code may read the ``.grad`` of tensors, or copy it with the tensors."""
    code_objects = user_code_objects(fn, *arguments.values())
    return any(not _GRADIENT_READERS.isdisjoint(code.co_names) for code in code_objects)


def uses_variable_exponents(arguments: Arguments, fn: Callable[..., Any]) -> bool:
    """Return whether code has a ``**`` whose exponent is not a constant."""
    code_objects = [*_code_objects_of(fn), *user_code_objects(fn, *arguments.values())]
    return any(
        instruction.argrepr in {"**", "**="} and exponent.opname != "LOAD_CONST"
        for code in dict.fromkeys(code_objects)
        for exponent, instruction in itertools.pairwise(dis.get_instructions(code))
    )


def index_predicate(arguments: Arguments, fn: Callable[..., Any]) -> Callable[[torch.Tensor], bool]:
    """Return a function that tells whether code may use a tensor as indices or counts."""
    used_objects = fn, *arguments.values()
    modules = [item for item in reachable_objects(*used_objects) if is_instance(item, torch.nn.Module)]
    embedding_classes = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    names = names_in_code(fn).union(*(code.co_names for code in user_code_objects(*used_objects)))
    has_embedding = any(is_instance(module, embedding_classes) for module in modules)
    uses_indices = has_embedding or not LOOKUP_FUNCTIONS.isdisjoint(names)
    # A model may use indices in library code, for example in a loss: its integers are probably ids or labels.
    return looks_like_indices if uses_indices or is_instance(fn, torch.nn.Module) else lambda _: False


def looks_like_indices(value: torch.Tensor) -> bool:
    """Return whether a tensor may contain indices or counts because its values are non-negative integers."""
    is_integer = value.dtype in {torch.int32, torch.int64} and not value.is_meta
    return is_integer and value.dim() > 0 and value.numel() > 0 and int(value.min()) >= 0


def alternative_choices(fn: Callable[..., Any], value: str | enum.Enum) -> list[Any]:
    """Return up to two alternatives to a value: members of its enumeration, or strings that a function may accept."""
    if isinstance(value, enum.Enum):
        return [member for member in type(value) if member is not value][:2]
    # If the string is a key of a dict, the dict's other keys select its other values.
    keys = [key for content in _dicts_with_string_keys(fn) if value in content for key in content]
    constants = [value for value in constants_in_code(fn) if isinstance(value, str) and value.isprintable()]
    return [choice for choice in dict.fromkeys([*keys, *constants]) if choice != value][:2]


def _code_objects_of(fn: Callable[..., Any]) -> Iterator[types.CodeType]:
    """Yield the code of a function and of functions inside it."""
    function = getattr(fn, "forward", fn)
    code = getattr(function, "__code__", None) or getattr(type(fn).__call__, "__code__", None)
    if isinstance(code, types.CodeType):
        yield from walk_code_objects(code)


def numbers_in_user_code(arguments: Arguments, fn: Callable[..., Any]) -> list[float]:
    """Return the absolute values above one of the numbers in a function and in user functions that it reaches."""
    code_objects = [*_code_objects_of(fn), *user_code_objects(fn, *arguments.values())]
    constants = (constant for code in dict.fromkeys(code_objects) for constant in code.co_consts)
    numbers = (abs(constant) for constant in constants if type(constant) in {int, float})
    return [number for number in dict.fromkeys(numbers) if number > 1]


def lookup_table_lengths(arguments: Arguments, fn: Callable[..., Any], state: Mapping[str, Any]) -> list[int]:
    """Return the lengths above one of tensors that may be lookup tables, such as masks and position embeddings."""
    used_objects = reachable_objects(fn, *arguments.values())
    modules = [item for item in used_objects if is_instance(item, torch.nn.Module)]
    tables = [value for value in state.values() if is_instance(value, torch.Tensor)]
    tables += [item.weight for item in modules if is_instance(item, torch.nn.Embedding)]
    tables += [buffer for module in modules for buffer in module.buffers(recurse=False)]
    return [length for length in dict.fromkeys(table.shape[0] for table in tables if table.dim()) if length > 1]


def names_in_code(fn: Callable[..., Any]) -> set[str]:
    """Return the names of globals and attributes in the code of a function and of functions inside it."""
    return {name for code in _code_objects_of(fn) for name in code.co_names}


def constants_in_code(fn: Callable[..., Any]) -> list[Any]:
    """Return the constants in the code of a function and of functions inside it, except ``None`` and function names."""
    return [
        constant for code in _code_objects_of(fn) for constant in code.co_consts if constant not in (None, code.co_name)
    ]


def alternative_strings(fn: Callable[..., Any], value: str) -> list[str]:
    """Return alternatives to a string that occurs in a function's code or among the keys of its dicts.

    The code probably does not know the last alternative. For any other string, the list is empty.
    """
    is_compared = value in constants_in_code(fn) or any(value in content for content in _dicts_with_string_keys(fn))
    return [*alternative_choices(fn, value), f"not {value}"] if is_compared else []


def _dicts_with_string_keys(fn: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the non-empty global dicts that a function mentions and whose keys are all strings."""
    function = getattr(fn, "forward", fn)
    names = names_in_code(fn)
    values = [value for name, value in getattr(function, "__globals__", {}).items() if name in names]
    return [value for value in values if type(value) is dict and value and all(type(key) is str for key in value)]


def numbers_in_code(fn: Callable[..., Any]) -> list[float]:
    """Return the first three numbers in a function's code that have an absolute value larger than one."""
    numbers = (number for number in constants_in_code(fn) if type(number) in {int, float} and abs(number) > 1)
    return list(dict.fromkeys(numbers))[:MAX_CONSTANTS]
