"""Describe what a failed guard found to vary between calls, and how to avoid it, guard by guard."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jupyter_graphbreak.report.guards import (
    BREAK_RESULT_PREFIX,
    METHOD_OWNER,
    changed_settings,
    name_of_function_variable,
    names_of_keeping_function,
    plain_guard,
    steps_left_in_loop,
    tensor_index_advice,
)
from jupyter_graphbreak.views.words.varied_numbers import is_number

_VALUE_GUARD = re.compile(r"(?P<name>[\w.\[\]'\"]+|len\([^()]+\)) == (?P<value>.+)")
#: PyTorch's message if a dict has a different number of keys: "len(batch) != 2".
_KEY_COUNT_GUARD = re.compile(r"(?P<name>len\([^()]+\)) != (?P<value>\d+)")
#: A guard on the value of a tensor with one element, which the code uses as a number.
_TENSOR_VALUE_GUARD = re.compile(r"(?P<name>[\w.\[\]'\"]+)\.item\(\) == (?P<value>.+)")
#: A guard on a tensor: "tensor 'x' size mismatch at index 0. expected 2, actual 3".
#: Its parts are matched one after the other, because a single pattern for all of it could be slow on hostile text.
_TENSOR_GUARD = re.compile(
    r"' (?P<property>\w+) mismatch(?: at index (?P<index>\d+))?\. expected (?P<old>[^,]+)(?=,|$)"
)
_TENSOR_GUARD_START = "tensor '"
_ACTUAL_START = ", actual "
#: The end of the name of a buffer or parameter in a guard on its size.
_REGISTERED_TENSOR = re.compile(r"\._(?P<kind>buffer|parameter)s\['[^']+'\]' size mismatch")
#: A guard on a size that a graph for all sizes but 0 and 1 has: "2 <= x.size()[0]".
_SIZE_BOUND = re.compile(r"2 <= (?P<name>.+)\.size\(\)\[(?P<index>\d+)\]")
#: A guard on a range that a condition on a size leaves: "2 <= x.size()[0] <= 4".
SIZE_RANGE = re.compile(r"(?P<low>\d+) <= (?P<name>[\w.\[\]'\"]+)\.size\(\)\[(?P<index>\d+)\] <= (?P<high>\d+)")
#: A guard on the dispatch keys of a tensor, which its device and modes such as inference mode decide.
_DISPATCH_KEYS = re.compile(
    r"tensor '(?P<name>.+)' dispatch key set mismatch\. expected DispatchKeySet\((?P<old>[^)]*)\), "
    r"actual DispatchKeySet\((?P<new>[^)]*)\)"
)
#: A guard on the offset of a tensor in its storage: "2 <= x.storage_offset()".
_OFFSET_GUARD = re.compile(r"(?:\d+ <= )?(?P<name>[\w.\[\]'\"]+)\.storage_offset\(\)(?: (?:==|!=|<=) \d+)?")
#: A guard on whether a value is None: "mask is None", "mask is not None".
_NONE_GUARD = re.compile(r"(?P<name>[\w.\[\]'\"]+) is (?:not )?None")
#: A guard on the identity or type of an object: "___check_obj_id(fn, 140), type=<class 'function'>".
_IDENTITY_GUARD = re.compile(r"___check_(?P<kind>obj|type)_id\((?P<name>.+), \d+\)(?:, type=(?P<type>.+))?", re.DOTALL)
#: A guard on a key of a dict: "not ___dict_contains('z', optimizer.state[p])".
_KEY_GUARD = re.compile(r"(?:not )?___dict_contains\((?P<key>[^,]+), (?P<dict>.+)\)")
#: PyTorch's message if an object that compiled code refers to was freed.
_FREED_OBJECT = re.compile(r"Cache line invalidated because (?P<name>.+) got deallocated")
#: Dynamo's name for a value that the code at a break returned, or for a part of it: "___stack2[6].next_state".
_BREAK_RESULT = re.compile(rf"{BREAK_RESULT_PREFIX}\d+(?P<part>.*)", re.DOTALL)
#: A line with a break may have read an object before the break, such as the bound method in `xs.append(y.item())`.
#: Without the break, the code is recompiled as well, because the length of such a list varies.
_FREED_OBJECT_ADVICE = "call the method after the compiled function returns, with a value from its result"
#: The beginning of PyTorch's message if `torch.compile` was called for the same code with a different backend.
_BACKEND_GUARD_START = "BACKEND_MATCH failure: "
#: The advice that PyTorch adds to a guard on a parameter; it is not part of the value.
_PARAMETER_HINT_START = ". Guard failed on a parameter, consider using "
#: A guard on the type of a tensor: "expected type of 'x' to be a tensor type, ' but found <class 'float'>".
_TENSOR_TYPE_GUARD = re.compile(
    r"expected type of '(?P<name>.+)' to be a tensor type, ' but found <class '(?P<type>.+)'>"
)
#: Python's message if a guard on a size, whose variable PyTorch does not name, finds a value that is not a tensor.
_NON_TENSOR_ERROR = re.compile(r"'(?P<type>\w+)' object has no attribute '(?:size|stride|storage_offset)'")
#: Readable names of tensor properties in guards.
_TENSOR_PROPERTIES = {"size": "dimension {index}", "stride": "stride {index}", "rank": "number of dimensions"}
_ADVICE_ON_FLAG = "nothing: each of the two values has its own graph, which is expected"
OPPOSITE_FLAG = {"True": "False", "False": "True"}
ADVICE_ON_SPECIAL_SIZES = "sizes 0 and 1 get their own graphs, even with `dynamic=True`: this is expected"
#: The advice for the size of a buffer, such as a cache that grows, or of a parameter.
_ADVICE_ON_REGISTERED_TENSOR = (
    "the sizes of a {kind} are constants, even with `dynamic=True`: keep the tensor in a plain attribute, without "
    "`register_{kind}`, or set `torch._dynamo.config.force_parameter_static_shapes = False`"
)
#: The values of a size that is at least 2 in one graph but not in another.
ORDINARY_SIZES_TEXT, OTHER_SIZES_TEXT = "2 or more", "0 or 1"
#: The beginning of the name of a range that sizes left.
RANGE_PREFIX = "the range of "
#: The beginning of advice on recompiles that are expected.
NOTHING_TO_DO_PREFIX = "nothing"
#: The advice for functions that are called with and without gradients.
_ADVICE_ON_GRAD_MODE = "nothing: calls with and without gradients have their own graphs, which is expected"
#: The advice for functions that are called with different settings of autocast.
_ADVICE_ON_AUTOCAST = "nothing: each setting of autocast has its own graph, which is expected"
#: The advice for functions that are called with different values of any other setting of PyTorch.
_ADVICE_ON_SETTING = "set it once, before the first call"
#: The advice for functions that are called in inference mode as well.
_ADVICE_ON_INFERENCE = "nothing: calls in inference mode have their own graph, which is expected"
#: The advice for a value without a name that code on a break's line computes.
_ADVICE_ON_BREAK_RESULT = "remove the break: this also prevents recompiles of this function"
#: The advice for code after a break that ends a loop early.
_ADVICE_ON_STEPS_LEFT = (
    "the code after the break is compiled for each step of the loop: remove the break, or call a compiled step from an "
    "uncompiled loop"
)
#: The advice for functions of optimizers, which are compiled for each optimizer.
_ADVICE_ON_OPTIMIZERS = "nothing: each optimizer has its own compiled code, as expected"
#: The advice for code that the first step of an optimizer changes.
ADVICE_ON_FIRST_STEP = "nothing: the first step creates the optimizer's state, so this happens once"
#: A guard on the state of an optimizer, which is empty before the first step.
_OPTIMIZER_STATE = re.compile(r"len\(.*\bself\.state\b.*\) [!=]= 0|(?:not )?___dict_contains\([^,]+, self\.state\b.*\)")
#: A guard on a Python number in the state of an optimizer, such as its count of steps.
_FIRST_STEPS = re.compile(r".*\bself\.state\[.+\]\['\w+'\] == [01]")
_ADVICE_ON_FIRST_STEPS = "nothing: 0 and 1 get their own graphs, and all later values share one, as expected"
#: A number of an optimizer: ``self.param_groups[0]['lr']``.
_GROUP_NUMBER = re.compile(r"\.param_groups\[\d+\]\['(?P<key>\w+)'\]")
_OPTIMIZER_TYPE = re.compile(r"<class 'torch\.optim\.(?:\w+\.)*(?P<name>\w+)'>")
_ADVICE_ON_OBJECT = (
    "nothing, if there are few objects, such as the members of an enum: each has its own graph; otherwise create it "
    "once, before the calls"
)


@dataclass(frozen=True, slots=True)
class Variation:
    """The value that a guard expected, and the value that it found instead."""

    name: str
    old_value: str
    new_value: str | None
    advice: str
    #: The key that identifies the variable; ``name`` may be a description that several variables share.
    subject: str = ""
    #: Whether the value is a number that comes from the program.
    is_number: bool = False
    is_size: bool = False
    is_about_gradients: bool = False


def readable_guard(guard: str) -> str:
    """Return a guard with the names that the program uses, and without PyTorch's advice."""
    return METHOD_OWNER.sub("self", plain_guard(guard.partition(_PARAMETER_HINT_START)[0]))


def find_variation(guard: str, *, is_inner: bool, is_library: bool, is_read_by_library: bool) -> Variation | None:
    """Return what varied according to a guard; ``None`` for a guard of an unknown form.

    ``is_inner`` and ``is_library`` describe the function, as in :func:`.failed_guards.failed_guards`;
    ``is_read_by_library`` tells whether a library contains the line that created the guard.
    """
    registration = _REGISTERED_TENSOR.search(guard)
    guard = readable_guard(guard)
    if guard.startswith(_TENSOR_GUARD_START) and (tensor := _TENSOR_GUARD.search(guard)):
        rest = guard[tensor.end() :]
        if not rest or rest.startswith(_ACTUAL_START):
            name = guard[len(_TENSOR_GUARD_START) : tensor.start()]
            new = rest.removeprefix(_ACTUAL_START) or None
            kind = registration["kind"] if registration is not None else ""
            return _tensor_variation(name, tensor, new, kind, is_inner=is_inner, is_library=is_library)
    if match := _TENSOR_VALUE_GUARD.fullmatch(guard):
        name = match["name"]
        advice = "" if is_library else tensor_index_advice(name)
        return Variation(f"the value of {name}", match["value"], None, advice)
    if bound := _SIZE_BOUND.fullmatch(guard):
        varied_size = name_of_size(bound["name"], bound["index"])
        return Variation(varied_size, ORDINARY_SIZES_TEXT, OTHER_SIZES_TEXT, ADVICE_ON_SPECIAL_SIZES, is_size=True)
    if match := _OFFSET_GUARD.fullmatch(guard):
        name = match["name"]
        advice = (
            f"a slice such as `y[:, -1:]` begins inside of a larger tensor: copy it before the call, `{name}.clone()`"
        )
        is_passed = not is_library and not is_inner and not name.startswith(BREAK_RESULT_PREFIX)
        return Variation(f"the offset of {name} in its storage", "", None, advice if is_passed else "")
    if match := _KEY_COUNT_GUARD.fullmatch(guard):
        advice = "" if is_library else "each set of keys has its own graph: pass the same keys each time"
        return Variation(match["name"], match["value"], None, advice)
    if size_range := SIZE_RANGE.fullmatch(guard):
        varied_size = f"{RANGE_PREFIX}{name_of_size(size_range['name'], size_range['index'])}"
        return Variation(varied_size, f"{size_range['low']} to {size_range['high']}", "a size outside of it", "")
    if match := _VALUE_GUARD.fullmatch(guard):
        name, value = match["name"], match["value"]
        advice = _advice_on_value(name, value, is_library=is_library, is_read_by_library=is_read_by_library)
        is_from_program = not name.startswith(("len(", BREAK_RESULT_PREFIX)) and not is_library
        is_varied_number = is_number(value) and is_from_program and not advice
        return Variation(_shown_name(name), value, None, advice, name, is_number=is_varied_number)
    return _optimizer_variation(guard) or _other_variation(guard, is_library=is_library)


def _optimizer_variation(guard: str) -> Variation | None:
    if optimizer := _OPTIMIZER_TYPE.search(guard):
        return Variation(f"a different optimizer (`{optimizer['name']}`)", "", None, _ADVICE_ON_OPTIMIZERS)
    if _OPTIMIZER_STATE.fullmatch(guard):
        return Variation("the optimizer has no state before its first step", "", None, ADVICE_ON_FIRST_STEP)
    if _FIRST_STEPS.fullmatch(guard):
        return Variation("a count in the optimizer's state is 0 or 1 at first", "", None, _ADVICE_ON_FIRST_STEPS)
    return None


def _other_variation(guard: str, *, is_library: bool) -> Variation | None:
    """Describe a guard on an object, on a setting, on the backend, or on the steps that are left in a loop."""
    if (steps_left := steps_left_in_loop(guard)) is not None:
        return Variation("steps left in the loop", steps_left, None, _ADVICE_ON_STEPS_LEFT)
    text, advice = _object_variation(guard)
    if text:
        is_about_reader = not is_library or changed_settings(guard) or advice == _FREED_OBJECT_ADVICE
        return Variation(text, "", None, advice if is_about_reader else "")
    if guard.startswith(_BACKEND_GUARD_START):
        advice = "pass the same backend, mode and options each time; make a backend function once"
        return Variation("`torch.compile` was called with a different backend, mode or options", "", None, advice)
    return None


def _object_variation(guard: str) -> tuple[str, str]:
    """Return how an object or a setting varied ("`fn` is a different function"), and advice; empty if there is none."""
    text = advice = ""
    if wrong_type := _TENSOR_TYPE_GUARD.fullmatch(guard):
        name, type_name = wrong_type.groups()
        text = f"{_subject(name)} has a different type ({type_name})"
        if type_name in {"int", "float", "bool"}:
            advice = f"pass a tensor each time: `{name} = torch.as_tensor({name})`"
    elif freed_object := _FREED_OBJECT.fullmatch(guard):
        name = freed_object["name"]
        is_on_break = name.startswith(BREAK_RESULT_PREFIX)
        text = f"{'an object or a method on the line of the break' if is_on_break else f'`{name}`'} no longer exists"
        advice = _FREED_OBJECT_ADVICE if BREAK_RESULT_PREFIX in name else ""
    elif none_guard := _NONE_GUARD.fullmatch(guard):
        text = f"{_subject(none_guard['name'])} is None in some calls only"
        advice = "nothing: calls with and without it have their own graphs, which is expected"
    elif other_value := _NON_TENSOR_ERROR.fullmatch(guard):
        is_none = other_value["type"] == "NoneType"
        text = f"a tensor {'is None in some calls only' if is_none else f'has a different type ({other_value[1]})'}"
    elif function := name_of_function_variable(guard):
        text = f"`{function}` is a different function"
        advice = "nothing, if there are few functions: each has its own graph; otherwise call it outside"
    elif identity := _IDENTITY_GUARD.fullmatch(guard):
        is_object = identity["kind"] == "obj"
        text = f"{_subject(identity['name'])} {'is a different object' if is_object else 'has a different type'}"
        advice = _ADVICE_ON_OBJECT if is_object and not identity["name"].startswith(BREAK_RESULT_PREFIX) else ""
    elif key := _KEY_GUARD.fullmatch(guard):
        text = f"{_subject(key['dict'])} has the key {key['key']} in some calls only"
    elif settings := changed_settings(guard):
        text, advice = f"{settings} changed", _advice_on_settings(settings)
    elif keys := _DISPATCH_KEYS.fullmatch(guard):
        text = _dispatch_key_text(keys)
        advice = _ADVICE_ON_INFERENCE if "inference" in text else ""
    return text, advice


def _advice_on_settings(settings: str) -> str:
    """Return advice on PyTorch settings that vary between calls, such as "the grad mode" or "autocast on cpu"."""
    if settings == "the grad mode":
        return _ADVICE_ON_GRAD_MODE
    is_selecting = all(
        name == "the grad mode" or name.startswith("autocast") for name in re.split(", | and ", settings)
    )
    return _ADVICE_ON_AUTOCAST if is_selecting else _ADVICE_ON_SETTING


def _dispatch_key_text(keys: re.Match[str]) -> str:
    """Return how the dispatch keys of a tensor varied: "`x` is an inference tensor in some calls only"."""
    name, old, new = f"`{keys['name']}`", set(keys["old"].split(", ")), set(keys["new"].split(", "))
    changed = old ^ new
    if "ADInplaceOrView" in changed:
        return f"{name} is an inference tensor in some calls only"
    if changed and all(key.startswith("Autograd") for key in changed):
        return "inference mode is on in some calls only"
    return f"{name} has different dispatch keys ({', '.join(sorted(changed))})"


def _subject(name: str) -> str:
    """Return a variable in backticks; for a value that the code at a break returned, a description of the value."""
    break_result = _BREAK_RESULT.fullmatch(name)
    if break_result is None:
        return f"`{name}`"
    part = break_result["part"].removeprefix(".")
    return f"`{part}` of a value that the break returned" if part else "a value that the break returned"


def _tensor_variation(
    name: str, guard: re.Match[str], new: str | None, registered_kind: str, *, is_inner: bool, is_library: bool
) -> Variation:
    """Describe a guard on a tensor, which may be registered as a "buffer" or "parameter" of a module."""
    index, tensor_property, old = guard["index"], guard["property"], guard["old"]
    is_from_break = name.startswith(BREAK_RESULT_PREFIX)
    advice = ""
    if tensor_property == "size" and is_from_break:
        advice = "use `torch.compile(..., dynamic=True)`, or remove the break before it"
    elif tensor_property == "size" and registered_kind:
        advice = _ADVICE_ON_REGISTERED_TENSOR.format(kind=registered_kind)
    elif tensor_property == "size" and is_inner:
        mark = "`torch._dynamo.mark_dynamic` for the argument that sets the size"
        advice = f"use `torch.compile(..., dynamic=True)`, or {mark}"
    elif tensor_property == "size":
        # PyTorch names only the first size that differs, and raises if a marked size must equal one that is not marked.
        mark = f"`torch._dynamo.mark_dynamic({name}, {index})`"
        advice = f"use `torch.compile(..., dynamic=True)`, or mark each size that varies before the call: {mark}"
    elif tensor_property == "dtype" and not is_from_break and not (is_inner and is_library):
        advice = f"give `{name}` one dtype before the call: `{name} = {name}.to(...)`"
    elif tensor_property == "stride" and not is_from_break and not (is_inner and is_library):
        advice = f"give `{name}` one memory layout before the call: `{name} = {name}.contiguous()`"
    elif tensor_property == "rank" and not is_from_break and not (is_inner and is_library):
        advice = (
            "nothing, if there are few: each number of dimensions has its own graph"
            if is_inner
            else f"each number of dimensions has its own graph: reshape `{name}` before the call"
        )
    elif tensor_property == "requires_grad":
        old = "True" if old.endswith("1") else "False"
        new = OPPOSITE_FLAG[old]
        advice = _ADVICE_ON_FLAG
    feature = _TENSOR_PROPERTIES.get(tensor_property, tensor_property).format(index=index)
    return Variation(
        name=f"{feature} of {'a tensor that the break returned' if is_from_break else name}",
        old_value=old,
        new_value=new,
        advice=advice,
        subject=f"{feature} of {name}",
        is_size=tensor_property == "size",
        is_about_gradients=tensor_property == "requires_grad",
    )


def _shown_name(name: str) -> str:
    """Return the name of a value in words, if Dynamo's name for it does not occur in the code."""
    if name.startswith(BREAK_RESULT_PREFIX):
        return "a value on the line of the break"
    function, _ = names_of_keeping_function(name)
    return f"a value that `{function}` keeps" if function else name


def _advice_on_value(name: str, value: str, *, is_library: bool, is_read_by_library: bool) -> str:
    """Return advice on a value that varies; empty if it depends on all values of a number."""
    if not is_library and ".param_groups[" in name:
        return "leave `step()` of this optimizer out of the compiled function"
    if not is_number(value):
        return "" if is_library else _advice_on_text_or_flag(name, value)
    can_be_dynamic = value not in {"0", "1"}  # 0 and 1 stay constants even with `dynamic=True`
    if is_library:
        if (group := _GROUP_NUMBER.search(name)) is not None:
            tensor = f"`{group['key']}=torch.tensor({value})`"
            in_place = "change it in place, as PyTorch's schedulers do"
            return f"pass a tensor to the optimizer ({tensor}) and {in_place}; or leave its `step()` uncompiled"
        return "use `torch.compile(..., dynamic=True)`" if can_be_dynamic and not name.startswith("len(") else ""
    if name.startswith("len("):
        return (
            f"each length of `{name[4:-1]}` is compiled separately: pass one stacked tensor, or always the same length"
        )
    if name.startswith(BREAK_RESULT_PREFIX):
        setting = "; or use `torch.compile(..., dynamic=True)`" if can_be_dynamic else ""
        return f"{_ADVICE_ON_BREAK_RESULT}{setting}"
    if "." in name and is_read_by_library:  # such as the p of Dropout and the kernel_size of AvgPool1d
        return f"each value of `{name}` is compiled separately: use few values, or a tensor if the library takes one"
    return ""


def _advice_on_text_or_flag(name: str, value: str) -> str:
    if value in OPPOSITE_FLAG:
        return _ADVICE_ON_FLAG
    if name.startswith(BREAK_RESULT_PREFIX):
        return _ADVICE_ON_BREAK_RESULT
    return f"each value of `{name}` has its own graph: if there are many, branch on it outside the compiled function"


def name_of_size(tensor: str, index: str) -> str:
    """Return the name of a size of a tensor."""
    return f"dimension {index} of {tensor}"
