"""Suggest manual steps for recompiles that no tried change prevents, and say which recompiles are expected."""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.recompiles.variations import Number, Size
from jupyter_graphbreak.experiments.trial.call_specs import ContainerSpec, OpaqueSpec, TensorSpec
from jupyter_graphbreak.report.guards import (
    BREAK_RESULT_PREFIX,
    METHOD_OWNER,
    changed_settings,
    is_about_number_from_break,
    name_of_function_variable,
    names_of_keeping_function,
    plain_guard,
    steps_left_in_loop,
    tensor_index_advice,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyter_graphbreak.experiments.recompiles.trying import SpecializingLine
    from jupyter_graphbreak.experiments.recompiles.variations import OtherVariation, Variations
    from jupyter_graphbreak.report.schema import GuardFailure, Recompile

#: A guard on the length of a container. The cause is not a line that turns a size or a number into a constant.
_LENGTH_GUARD = re.compile(r"len\(")
#: A guard on a Python number in the state of an optimizer, such as its count of steps.
_FIRST_STEPS_GUARD = re.compile(r".*\.state\[.+\]\['\w+'\] == [01]")
_FIRST_STEPS_STEP = (
    "A count in the optimizer's state is 0 or 1 in the first steps, which have their own graphs; all later steps share "
    "one, as expected."
)
_NUMBER_GUARD = re.compile(r"([\w.\[\]'\"]+) == -?\d[\d.e+-]*")
#: A number that is an attribute of an object whose method is called at a break.
_OWNER_ATTRIBUTE = re.compile(rf"{METHOD_OWNER.pattern}\.([\w.]+) == -?\d")
#: An integer in a global variable, or in an object that a global variable contains.
_GLOBAL_INTEGER = re.compile(r"(?P<number>G\['(?P<variable>\w+)'\][\w.\[\]'\"]*) == -?\d+")
#: Dynamo's name for a compiled function without its own code, such as a partial.
_FUNCTION_WITHOUT_CODE = "fn"
#: The name that :func:`changed_settings` gives the grad mode.
_GRAD_MODE_TEXT = "the grad mode"
_FLAG_STEP = "`{name}` selects between two branches, and each has its own graph, as expected."
_GRADIENTS_STEP = "`{name}` requires a gradient in some calls only, and each kind has its own graph, as expected."
_INFERENCE_STEP = (
    "`{name}` is an inference tensor (from `torch.inference_mode()`) in some calls only, and these have their own "
    "graph, as expected."
)
_TRAINING_STEP = "Training or evaluation selects between two branches, and each has its own graph, as expected."
_OBJECT_STEP = (
    "`{name}` is a different object in some calls: that is expected if there are few, such as the members of an enum. "
    "Otherwise, create it once, before the loop."
)
_OPTIMIZER_STEP = "`{name}` is a different optimizer in some calls, and each has its own graph, as expected."
_FUNCTION_STEP = (
    "`{name}` is a different function in some calls, and each function has its own graph: that is expected if there "
    "are few. Otherwise call `{name}` outside of the compiled function."
)
_FIRST_STATE_STEP = (
    "`{name}` {difference} in some calls, such as the first, and those have their own graph. To have one graph, set it "
    "to a tensor of its later shape, such as zeros, before the first call."
)
#: A guard on the dtype, the rank or the device of an argument, or of a tensor computed from it.
_TENSOR_GUARD = re.compile(r"tensor '[^']+' (?:dtype|rank|device) mismatch")
_STRIDE_GUARD = re.compile(r"tensor '([^']+)' stride mismatch")
_STRIDE_STEP = (
    "`{name}` has a different memory layout in some calls, such as after a transpose: make it contiguous before the "
    "call (`.contiguous()`)."
)
_LENGTH_STEP = (
    "The length of `{name}` varies, and each length has its own graph: pass a stacked tensor, or keep the growing "
    "container out of the compiled function."
)
_FREED_GUARD = re.compile(r"Cache line invalidated because (.+) got deallocated")
#: A guard on the value of a tensor with one element.
_TENSOR_VALUE = re.compile(r"([\w.\[\]'\"]+)\.item\(\) == ")
#: Patterns of guards, each with a sentence in which ``name`` stands for the group that matched.
_SENTENCES_BY_PATTERN = (
    (
        _FREED_GUARD,
        (
            "`{name}` is a new object, and the one that the code was compiled for is gone: that is expected if a cell "
            "runs again. Otherwise, create it once, before the loop."
        ),
    ),
    (re.compile(r"___check_obj_id\(([^,]+),.*<class 'torch\.optim\."), _OPTIMIZER_STEP),
    (re.compile(r"___check_obj_id\(([^,]+),"), _OBJECT_STEP),
    (
        re.compile(r"___check_type_id\(([^,]+),"),
        "`{name}` has a different type in some calls: pass one type, such as a tensor, each time.",
    ),
    (
        re.compile(r"len\(.*\.state\b.*\)|not ___dict_contains\([^,]+, .*\.state\["),
        (
            "The first call creates the optimizer's state, so the second call is compiled once more: this is "
            "expected, and happens once."
        ),
    ),
    (re.compile(r"len\(([^()]+)\) (?:==|!=)"), _LENGTH_STEP),
    (re.compile(r"tensor '([^']+)' requires_grad mismatch"), _GRADIENTS_STEP),
    (_STRIDE_GUARD, _STRIDE_STEP),
    (
        re.compile(
            r"tensor '([^']+)' dispatch key set mismatch\. expected DispatchKeySet\((?:"
            r"(?=[^)]*ADInplaceOrView)[^)]*\), actual DispatchKeySet\((?![^)]*ADInplaceOrView)"
            r"|(?![^)]*ADInplaceOrView)[^)]*\), actual DispatchKeySet\((?=[^)]*ADInplaceOrView))"
        ),
        _INFERENCE_STEP,
    ),
    (re.compile(r"([\w.\[\]'\"]+) (?:==|is) (?:True|False)"), _FLAG_STEP),
    (
        re.compile(r"^([\w.\[\]'\"]+) == (?:'.*'|\".*\")$"),
        (
            "`{name}` is a string, and each of its values has its own graph: that is expected if there are few. "
            "Otherwise use it outside of the compiled function."
        ),
    ),
)
#: The sentence about recompiles with an unknown cause.
GENERAL_STEP = "Decide whether the values that varied can stay the same, or are needed in the compiled function."
#: A sentence that only says that a size or a number should not vary.
_GENERAL_SENTENCE = re.compile(r".* var(?:y|ies): keep (?:it|them) (?:constant|the same), .*")
#: The maximum number of values for which separate compilations are expected.
_MAX_EXPECTED_VALUES = 4


def manual_step(
    variations: Variations,
    mentioned_variations: Variations,
    recompiles: Sequence[Recompile],
    line: SpecializingLine | None,
    graph_count: int = 0,
) -> str:
    """Return a sentence about recompiles that have one cause and that no change prevents.

    ``mentioned_variations`` are only those variations between the calls that failed guards mention. ``line`` has the
    condition or conversion that is the cause, if PyTorch reports it. ``graph_count`` is the number of the function's
    graphs for all calls, or 0 if it is unknown.
    """
    guards = [reason.guard for recompile in recompiles for reason in recompile.reasons]
    sentences_about_specific_causes = [
        *map(_sentence_about_tensor_value, guards),
        _sentence_about_cache(guards, variations),
        _sentence_about_function(guards),
        *(_sentence_about_stored_number(guard, variations) for guard in guards),
        _sentence_about_optimizer(mentioned_variations, guards),
        *(_sentence_about_global_integer(reason) for recompile in recompiles for reason in recompile.reasons),
    ]
    if sentence := next(filter(None, sentences_about_specific_causes), ""):
        return sentence
    if mentioned_variations.other_variations:
        return _sentence_about_other_variation(mentioned_variations.other_variations[0])
    if (
        line is not None
        and not _are_about_lengths(recompiles)
        and not any(is_about_number_from_break(guard) for guard in guards)
    ):
        return _sentence_about_line(line, variations, _clause_about_shared_graphs(mentioned_variations, graph_count))
    # A guard about a tensor states the cause. That the entry was also called with a different flag does not explain it.
    is_about_tensor = any(_TENSOR_GUARD.search(plain_guard(guard)) for guard in guards)
    sentences_about_other_causes = [
        *map(_sentence_about_guard, guards),
        _sentence_about_sizes_and_numbers(replace(mentioned_variations, sizes=())),
        *map(_sentence_about_other_variation, () if is_about_tensor else variations.other_variations[:1]),
        _sentence_about_arguments(variations),
        _sentence_about_sizes_and_numbers(mentioned_variations),
    ]
    return next(filter(None, sentences_about_other_causes), GENERAL_STEP)


def is_general(sentence: str) -> bool:
    """Return whether a sentence is so general that the report's advice about the guard is more specific."""
    return sentence == GENERAL_STEP or _GENERAL_SENTENCE.fullmatch(sentence) is not None


def _are_about_lengths(recompiles: Sequence[Recompile]) -> bool:
    """Return whether most of the recompiles happen because the length of a container changed."""
    latest_guards = [plain_guard(recompile.reasons[0].guard) for recompile in recompiles if recompile.reasons]
    return 2 * sum(_LENGTH_GUARD.match(guard) is not None for guard in latest_guards) > len(latest_guards)


def manual_steps(
    variations: Variations, recompiles: Sequence[Recompile], lines: Sequence[SpecializingLine] = ()
) -> list[tuple[str, list[str]]]:
    """Return sentences about the recompiles of one entry, each with the ids of its recompiles.

    Of several lines in one function, only the first is used.
    """
    ids_by_sentence: dict[str, list[str]] = {}
    for recompile in recompiles:
        if all(
            is_about_number_from_break(reason.guard) or steps_left_in_loop(reason.guard) is not None
            for reason in recompile.reasons
        ):
            continue  # this recompile does not happen without the break, which has its own remedies
        mentioned_variations = variations.select_mentioned_in(reason.guard for reason in recompile.reasons)
        recompiles_of_function = [other for other in recompiles if other.of == recompile.of]
        graph_count = 0 if any(other.limit_hit for other in recompiles_of_function) else len(recompiles_of_function) + 1
        # A guard shows a line of its own function. Recompiles of other functions have different causes.
        own_line = next((line for line in lines if line.frame in {None, recompile.of}), None)
        sentence = manual_step(variations, mentioned_variations, [recompile], own_line, graph_count)
        ids_by_sentence.setdefault(sentence, []).append(recompile.id)
    if len(ids_by_sentence) > 1:
        ids_by_sentence.pop(GENERAL_STEP, None)
    return list(ids_by_sentence.items())


def _sentence_about_arguments(variations: Variations) -> str:
    """Return a sentence about arguments that are one tensor in some calls only, or about sizes 0 and 1, or ``""``."""
    if variations.aliases:
        one, other = variations.aliases[0]
        return (
            f"`{one}` and `{other}` are the same tensor in some calls only, and those have their own graph: pass two "
            "tensors each time, such as a copy (`.clone()`) of one."
        )
    if small_size := next((size for size in variations.sizes if any(value in {0, 1} for value in size.values)), None):
        return (
            f"`{small_size}` has size {min(small_size.values)} in some calls: PyTorch compiles sizes 0 and 1 "
            "separately because many operations treat them differently, so a separate graph is expected."
        )
    return ""


def _sentence_about_optimizer(mentioned_variations: Variations, guards: Sequence[str]) -> str:
    """Return a sentence about a number in the state or a parameter group of an optimizer, or ``""``."""
    names = [
        *map(str, mentioned_variations.numbers),
        *(match[1] for guard in guards if (match := _NUMBER_GUARD.fullmatch(plain_guard(guard))) is not None),
    ]
    if any(_FIRST_STEPS_GUARD.fullmatch(plain_guard(guard)) for guard in guards):
        return _FIRST_STEPS_STEP
    sentences = (
        f"`{name}` of the optimizer is a Python number, and each of its values has its own graph: leave `step()` of "
        "this optimizer out of the compiled function."
        for name in names
        if ".param_groups[" in name
    )
    return next(sentences, "")


def _sentence_about_sizes_and_numbers(mentioned_variations: Variations) -> str:
    """Return a sentence about sizes and numbers that vary, or ``""`` if there are none."""
    if len(mentioned_variations.sizes) == 1 and not mentioned_variations.numbers:
        (size,) = mentioned_variations.sizes
        return _sentence_about_size(size)
    names = list(
        dict.fromkeys(f"`{variation}`" for variation in (*mentioned_variations.sizes, *mentioned_variations.numbers))
    )
    if len(names) > 1:
        return (
            f"{', '.join(names[:-1])} and {names[-1]} vary: keep them the same, or move the code that depends on them "
            "out of the compiled function."
        )
    return (
        f"{names[0]} varies: keep it the same, or move the code that depends on it out of the compiled function."
        if names
        else ""
    )


def _sentence_about_size(size: Size) -> str:
    large_size, small_size = size.values[0], size.values[-1]
    is_last_batch = size.dim == 0 and small_size < large_size and {*size.values} == {small_size, large_size}
    if is_last_batch and (small_size, small_size) not in itertools.pairwise(size.values):
        return (
            f"Dimension 0 of `{size}` is {small_size} instead of {large_size} in some calls, as in a smaller last "
            "batch: pad that batch, or leave it out (`drop_last=True` of a `DataLoader`)."
        )
    return (
        f"Dimension {size.dim} of `{size}` varies: keep it constant, for example by padding, or move the code that "
        "depends on it out of the compiled function."
    )


def _sentence_about_cache(guards: list[str], variations: Variations) -> str:
    """Return a sentence about a growing cache of the transformers library, or ``""``."""
    if any("size mismatch" in guard or str(cache) in guard for guard in guards for cache in variations.growing_caches):
        cache = variations.growing_caches[0]
        return (
            f"`{cache}` grows with each call: pass a cache of fixed length that you create once, "
            '`StaticCache(config=model.config, max_cache_len=...)`; with generate(), `cache_implementation="static"`.'
        )
    return ""


def _sentence_about_tensor_value(guard: str) -> str:
    """Return a sentence about a tensor whose value PyTorch treats as a constant, or ``""`` for any other guard."""
    match = _TENSOR_VALUE.match(plain_guard(guard))
    if match is None or match[1].startswith(BREAK_RESULT_PREFIX):
        return ""
    name = match[1]
    advice = tensor_index_advice(name)
    return f"`{name}` is a tensor that is used as a number, and each value has its own graph: {advice}."


def _sentence_about_function(guards: list[str]) -> str:
    """Return a sentence about a value that is a different function in some calls, or ``""``."""
    is_only_cause = bool(guards) and all(map(name_of_function_variable, guards))
    return _FUNCTION_STEP.format(name=name_of_function_variable(guards[0])) if is_only_cause else ""


def _sentence_about_stored_number(guard: str, variations: Variations) -> str:
    """Return a sentence about a number that a function, a partial or the object of a method stores, or ``""``."""
    if match := _OWNER_ATTRIBUTE.search(guard):
        return (
            f"`self.{match[1]}` of the method that is called at the break varies: keep the number in a tensor, or "
            "change it outside of the compiled function."
        )
    function, partial = names_of_keeping_function(plain_guard(guard))
    name = function or partial
    if not name:
        return ""
    partials = {
        str(variation.path)
        for variation in variations.other_variations
        if any(isinstance(value, OpaqueSpec) and value.class_ is functools.partial for value in variation.values)
    }
    if function or name in partials:
        return (
            f"`{name}` is a new function on every call, and a number that it keeps varies: pass the number to the "
            "compiled function as an argument, with `dynamic=True`."
        )
    if name == _FUNCTION_WITHOUT_CODE:
        return (
            "A number bound by `functools.partial` varies: compile the function itself once, with `dynamic=True`, "
            "and pass the number on every call."
        )
    return ""


def _sentence_about_global_integer(reason: GuardFailure) -> str:
    """Return a sentence about an integer that a function reads from a global variable, or ``""``.

    A number of steps is a constant even if it is an argument.
    """
    match = _GLOBAL_INTEGER.fullmatch(reason.guard)
    if match is None or reason.head == "loop":
        return ""
    return (
        f"`{plain_guard(match['number'])}` is read from a global variable, and PyTorch makes a constant of such an "
        f"integer: pass `{match['variable']}` to the compiled function as an argument."
    )


def _clause_about_shared_graphs(mentioned_variations: Variations, graph_count: int) -> str:
    """Return a clause that counts the graphs for a size or a number, or ``""`` if none of its values share a graph."""
    candidates: tuple[Size | Number, ...] = (*mentioned_variations.sizes, *mentioned_variations.numbers)
    most_varied = max(candidates, key=lambda variation: len(set(variation.values)), default=None)
    if most_varied is None or not 0 < graph_count < len(set(most_varied.values)):
        return ""
    name = f"dimension {most_varied.dim} of `{most_varied}`" if isinstance(most_varied, Size) else f"`{most_varied}`"
    return (
        f"treats some values of {name} separately: the {len(set(most_varied.values))} values of this run need "
        f"{graph_count} graphs, which is expected if further values need no more"
    )


def _sentence_about_line(line: SpecializingLine, variations: Variations, shared_graphs: str) -> str:
    code = line.code.rstrip(":").strip()
    if shared_graphs and line.head is None:
        location = f" of {line.library_file}" if line.library_file is not None else ""
        return f"Line {line.line}{location}, `{code}`, {shared_graphs}."
    if line.library_file is not None:
        return (
            f"Line {line.line} of {line.library_file}, `{code}`, turns a size or a number into a constant: each value "
            "has its own graph. The line is a library's: pass the same size each time, for example by padding, or "
            "report it to the library."
        )
    if line.head == "loop":
        return (
            f"Line {line.line}, `{code}`, is unrolled: each number of steps has its own graph. Use an operation on the "
            "whole tensor, or call a compiled step from a loop that is not compiled."
        )
    if line.head == "condition":
        example = ", for example by padding to sizes that always take the same branch" if variations.sizes else ""
        return (
            f"Line {line.line}, `{code}`, tests a value that varies: each branch of the condition has its own "
            f"graph, as expected. To have one graph, decide before the call{example}."
        )
    alternative = "number itself" if not variations.sizes else "size itself (`x.shape[0]`)"
    return (
        f"Line {line.line}, `{code}`, turns a size or a number into a constant: each value has its own graph. Compute "
        f"with the {alternative} or a tensor, and convert it outside of the compiled function."
    )


def _sentence_about_other_variation(variation: OtherVariation) -> str:
    return _sentence_about_own_state(variation) or _sentence_about_variation(variation)


def _sentence_about_variation(variation: OtherVariation) -> str:
    name = f"`{variation}`"
    match variation.kind:
        case "flag":
            return _TRAINING_STEP if name.endswith("training`") else _FLAG_STEP.format(name=variation)
        case "text":
            count = len(variation.values)
            return (
                f"{name} has {count} values, and each has its own graph: that is expected if there are few. Otherwise "
                "test it outside of the compiled function."
            )
        case "none":
            is_argument = variation.path.root.kind == "argument"
            way_out = (
                "To have one graph, always pass a tensor that has no effect."
                if is_argument
                else "If it is None only until the first call sets it, set it before that call."
            )
            return (
                f"{name} is sometimes None: the calls with and without it are two different programs, and each has "
                f"its own graph, as expected. {way_out}"
            )
        case "dtype":
            dtypes = " and ".join(f"sometimes {str(value).removeprefix('torch.')}" for value in variation.values)
            return f"{name} is {dtypes}: convert it to one dtype before the call."
        case "requires_grad":
            return _GRADIENTS_STEP.format(name=variation)
        case "rank":
            return f"{name} has a different number of dimensions in some calls: reshape it before the call."
        case "length":
            return _sentence_about_length(variation)
        case "kind":
            return _OBJECT_STEP.format(name=variation)


def _sentence_about_own_state(variation: OtherVariation) -> str:
    """Return a sentence about state of the function whose kind or rank differs in the first calls, or ``""``."""
    kinds = {type(value) for value in variation.values}
    if variation.path.root.kind == "argument":
        return ""
    if variation.kind in {"kind", "none"} and TensorSpec not in kinds:
        return ""
    if variation.kind == "kind" and kinds.isdisjoint({int, float}):
        return ""
    words = {"none": "is None", "rank": "has a different number of dimensions", "kind": "is a number"}
    difference = words.get(variation.kind)
    return _FIRST_STATE_STEP.format(name=variation, difference=difference) if difference is not None else ""


def _sentence_about_length(variation: OtherVariation) -> str:
    classes = {value.class_ for value in variation.values if isinstance(value, ContainerSpec)}
    if classes <= {dict} or any(issubclass(class_, dict) for class_ in classes):
        return f"The keys of `{variation}` vary, and each set of keys has its own graph: pass the same keys each time."
    return _LENGTH_STEP.format(name=variation)


def _sentence_about_guard(guard: str) -> str:
    text = plain_guard(guard)
    if settings := changed_settings(guard):
        if _GRAD_MODE_TEXT in settings:
            return (
                "The function is called with and without gradients (such as for training and for evaluation), and "
                "each has its own graph, as expected."
            )
        return f"{settings[:1].upper()}{settings[1:]} changed between calls: set it once, before the first call."
    for pattern, sentence in _SENTENCES_BY_PATTERN:
        match = pattern.search(text)
        name = next(filter(None, match.groups()), "") if match is not None else ""
        # A result of a break has no name in the code.
        if match is not None and not name.startswith(BREAK_RESULT_PREFIX):
            return sentence.format(name=name)
    return ""


def is_about_freed_objects(recompile: Recompile) -> bool:
    """Return whether a function was recompiled only because an object to which its compiled code refers was freed."""
    return bool(recompile.reasons) and all(_FREED_GUARD.match(reason.guard) for reason in recompile.reasons)


def are_recompiles_expected(mentioned_variations: Variations, recompiles: Sequence[Recompile]) -> bool:
    """Return whether recompiles are expected because flags, similar values, functions or the grad mode select code."""
    if (
        any(recompile.limit_hit for recompile in recompiles)
        or mentioned_variations.sizes
        or mentioned_variations.numbers
    ):
        return False
    guards = [reason.guard for recompile in recompiles for reason in recompile.reasons]
    if any(map(_STRIDE_GUARD.search, map(plain_guard, guards))):
        return False
    if guards and all(
        name_of_function_variable(guard) or changed_settings(guard) == _GRAD_MODE_TEXT for guard in guards
    ):
        return len(recompiles) < _MAX_EXPECTED_VALUES
    selecting_kinds = {"flag", "none", "requires_grad"}
    return bool(mentioned_variations.other_variations) and all(
        variation.kind in selecting_kinds and len(variation.values) <= _MAX_EXPECTED_VALUES
        for variation in mentioned_variations.other_variations
    )
