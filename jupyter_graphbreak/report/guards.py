"""Parse the text of PyTorch's guards."""

from __future__ import annotations

import re

#: Dynamo's name for the module of an inlined function, as in ``G['__import_models_dot_layers'].scale``.
_IMPORTED_MODULE = re.compile(r"\b(?:G\[')?__import_(\w+)(?:'\])?\.")
#: Dynamo's names for a local or a global variable, and for a part of a module.
_VARIABLE = re.compile(r"\b[LG]\['(\w+)'\]")
_MODULE_PART = re.compile(r"\._(?:modules|buffers|parameters)\['(\w+)'\]")
_INSTANCE_ATTRIBUTE = re.compile(r"\.__dict__\['(\w+)'\]")
#: An optimizer in PyTorch's wrapper around its ``step()``, which takes ``*args``.
_WRAPPED_OPTIMIZER = re.compile(r"\bargs\[0\](?=\.(?:state|param_groups)\b)")
#: The guard on an empty container.
_EMPTY_CONTAINER = re.compile(r"not ([\w.\[\]'\"]+)")
#: The beginning of Dynamo's name for a value that the code at a break returned and that is not in a variable yet.
BREAK_RESULT_PREFIX = "___stack"
#: The object whose method is called with the value that a break returned, such as ``meter`` in
#: ``meter.update(loss.item())``.
METHOD_OWNER = re.compile(rf"\b{BREAK_RESULT_PREFIX}\d+\.__self__\b")
_NUMBER_FROM_BREAK = re.compile(rf"(?:L\[')?{BREAK_RESULT_PREFIX}\w*(?:'\])? == -?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
#: A guard on the steps that are left in the loop around a break.
_STEPS_LEFT = re.compile(r"___tuple_iterator_len\(.+\) == (\d+)")
#: Patterns of guards that fail if a different function is passed: on a function's code, or on a builtin function.
_FUNCTION_GUARDS = (
    re.compile(r"___check_obj_id\((?P<name>.+)\.__code__, \d+\), type=<class 'code'>", re.DOTALL),
    re.compile(r"___check_obj_id\((?P<name>.+), \d+\), type=<class 'builtin_function_or_method'>", re.DOTALL),
    re.compile(r"CodeGuardAccessor: Not a function on (?P<name>.+)\.__code__", re.DOTALL),
)
#: A value that a function or a partial keeps: "callback.__defaults__[0] == 1", "fn.args[0] == 0.1".
_KEPT_VALUE = re.compile(
    r"(?P<function>[\w.]+)\.(?:__(?:kw)?defaults__\[[^]]+\]|__closure__\[\d+\]\.cell_contents)(?= == |$)"
    r"|(?P<partial>\w+)\.(?:args|keywords)\[[^]]+\](?= == |$)"
)
_GLOBAL_STATE = re.compile(r"GLOBAL_STATE changed: (.+)")
#: Readable names of the global settings in PyTorch's guards; "autocast" is the name in torch 2.9.
_SETTING_NAMES = {
    "grad_mode": "the grad mode",
    "default_dtype": "the default dtype",
    "num_threads": "the number of threads",
    "deterministic_algorithms": "the use of deterministic algorithms",
    "autocast": "autocast",
}
_AUTOCAST = re.compile(r"autocast\((\w+)\)_(?:enabled|dtype)")


def changed_settings(guard: str) -> str:
    """Return which of PyTorch's global settings changed, such as "the grad mode"; empty for any other guard."""
    match = _GLOBAL_STATE.match(guard)
    names = [_AUTOCAST.sub(r"autocast on \1", name) for name in (match[1].split() if match is not None else [])]
    settings = [_SETTING_NAMES.get(name, name if " " in name else f"`{name}`") for name in dict.fromkeys(names)]
    return " and ".join(filter(None, [", ".join(settings[:-1]), *settings[-1:]]))


def plain_guard(guard: str) -> str:
    """Return a guard with the names that the code uses: ``L['self']._modules['a'].k == 1`` becomes ``self.a.k == 1``.

    A module without a name, such as the first one of a ``Sequential``, becomes ``self[0]``. The guard on an empty
    container, ``not L['seen']``, becomes ``len(seen) == 0``. An optimizer whose ``step()`` is compiled is ``self``.
    """
    text = _VARIABLE.sub(r"\1", _IMPORTED_MODULE.sub(_module_prefix, guard))
    for pattern in (_MODULE_PART, _INSTANCE_ATTRIBUTE):
        text = pattern.sub(_as_attribute_or_item, text)
    text = _WRAPPED_OPTIMIZER.sub("self", text)
    empty_container = _EMPTY_CONTAINER.fullmatch(text)
    return f"len({empty_container[1]}) == 0" if empty_container is not None else text


def tensor_index_advice(name: str) -> str:
    """Return advice on a tensor of one element, such as an index, whose value PyTorch treats as a constant."""
    return f"for an index, write `x[{name}.reshape(1)][0]` instead of `x[{name}]`; or pass `{name}` as a number"


def names_of_keeping_function(text: str) -> tuple[str, str]:
    """Return the names of the function, and of the variable that may be a partial, that keeps a value; one is empty.

    Parameters
    ----------
    text : str
        The guard on the value, or the expression that reads it, as :func:`plain_guard` returns it.
    """
    match = _KEPT_VALUE.search(text)
    return (match["function"] or "", match["partial"] or "") if match is not None else ("", "")


def is_about_number_from_break(guard: str) -> bool:
    """Return whether a guard compares a number that the code at a break returned."""
    return _NUMBER_FROM_BREAK.fullmatch(guard) is not None


def steps_left_in_loop(guard: str) -> str | None:
    """Return the number of steps left in a loop with a break, for which the code after it was compiled, or ``None``."""
    match = _STEPS_LEFT.fullmatch(guard)
    return match[1] if match is not None else None


def name_of_function_variable(guard: str) -> str:
    """Return the name of the variable to which a different function was passed; empty for any other guard."""
    text = plain_guard(guard)
    return next((match["name"] for pattern in _FUNCTION_GUARDS if (match := pattern.fullmatch(text))), "")


def _as_attribute_or_item(part: re.Match[str]) -> str:
    return f"[{part[1]}]" if part[1].isdigit() else f".{part[1]}"


def _module_prefix(imported: re.Match[str]) -> str:
    return "" if imported[1] == "__main__" else f"{imported[1].replace('_dot_', '.')}."
