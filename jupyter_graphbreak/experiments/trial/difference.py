"""Describe how the observed outcomes of two runs differ."""

from __future__ import annotations

import dis
import functools
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from jupyter_graphbreak.experiments.trial.named_objects import RESULT_PATH, leaves, named_tensors
from jupyter_graphbreak.experiments.trial.values import describe_difference, largest_number, short_repr, varying_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.values import RoundingErrors

    #: Compares two values, as :func:`.values.describe_difference` does.
    _Compare = Callable[..., str | None]

DifferenceKind = Literal[
    "value", "exception", "argument", "gradient", "requires_grad", "further gradient", "aliasing", "state",
    "printed", "stderr", "warned", "logged", "zero gradient", "needless gradient", "random state", "different error",
    "layout", "sign of zero", "replaced", "lost alias",
]  # fmt: skip
#: The kinds of differences that a changed program may have. The report lists them, and the user decides.
ACCEPTABLE_KINDS: frozenset[DifferenceKind] = frozenset({
    "printed", "stderr", "warned", "logged", "zero gradient", "needless gradient", "random state", "different error",
    "layout", "sign of zero", "lost alias",
})  # fmt: skip
#: The kinds of differences that rounding errors can explain.
ROUNDED_KINDS: frozenset[DifferenceKind] = frozenset({"argument", "gradient", "state"})
#: The tolerated rounding errors of double precision.
_RTOL_OF_DOUBLES = _ATOL_OF_DOUBLES = 1e-9
_MAX_QUOTE_LENGTH = 60
#: The prefixes of the error messages of a graph in which a value violates an assumption.
_ASSERTION_PREFIXES = ("Runtime assertion failed", "Expected cond to be True")
#: The message of a failed check in a graph, if the program's own message was not a constant.
_DEFAULT_CHECK_MESSAGE = "check failed"
#: Matches the messages of errors that lists and other sequences raise, but tensors do not.
_SEQUENCE_ERRORS = re.compile(r"index out of range$|^pop ")
#: The relations between aliases, in the form that follows "makes the result".
_INFINITIVES = {"is": "be", "shares memory with": "share memory with"}
#: Parts that may differ between the strings of equal results: last digits, gradient functions, addresses.
_NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
_INCIDENTAL_TEXT = re.compile(r"grad_fn=<\w+>|\bat 0x[0-9a-f]+")
#: The times and the speed of a progress bar: "00:01<00:04,  1.42it/s".
_TIMES = re.compile(r"[\d:]+<[\d:?]+,\s*[^\s,\]]+")


@dataclass(frozen=True)
class Difference:
    """A difference between a program and the original. ``text`` continues a sentence whose subject is the program."""

    kind: DifferenceKind
    text: str

    @property
    def is_acceptable(self) -> bool:
        """Whether the user may accept the difference."""
        return self.kind in ACCEPTABLE_KINDS


def differences(
    expected: Result,
    actual: Result,
    *,
    compares_values: bool = True,
    ignored_paths: frozenset[str] = frozenset(),
    compares_signs_of_zero: bool = False,
    rounding_errors: Mapping[int, RoundingErrors] | None = None,
) -> list[Difference]:
    """Return all differences between the outcomes of the original and of a program, with equal arguments.

    Without ``compares_values``, as for random numbers, only types, shapes and whether something happened are compared.
    ``ignored_paths`` are those of :func:`varying_state_paths`. With ``compares_signs_of_zero``, -0.0 in the result
    differs from 0.0, although compilers do not preserve the sign. ``rounding_errors`` are those of
    :func:`.rounding.rounding_errors`.
    """
    compare = functools.partial(describe_difference, compares_values=compares_values, rounding_errors=rounding_errors)
    if expected.error is not None or actual.error is not None:
        items = list(_exception_differences(expected, actual))
    else:
        text = compare(expected.value, actual.value)
        items = [] if text is None else [Difference("value", f"returns {text}")]
        if text is None and compares_values and _loses_double_precision(expected, actual):
            items = [Difference("value", "computes a double in single precision")]
    compare_state = functools.partial(compare, ignored_paths=ignored_paths)
    items += _differences_by_name("argument", "the argument ", expected.arguments, actual.arguments, compare_state)
    if not any(item.kind in {"value", "exception"} for item in items):
        items += _layout_differences(expected, actual)
        items += _zero_sign_differences(expected, actual) if compares_values and compares_signs_of_zero else ()
        items += _requires_grad_differences(expected, actual)
        items += _gradient_differences(expected, actual, compare)
        items += _aliasing_differences(expected, actual)
        items += _replacement_differences(expected, actual)
    items += _leaf_grad_differences(expected, actual, compare)
    items += _state_differences(expected, actual, compare, compare_state)
    items += _differences_by_name("state", "the ", expected.modes, actual.modes, describe_difference)
    items += _effect_differences(expected, actual, compares_values=compares_values)
    if compares_values:
        items += [
            Difference("random state", f"leaves the random generator of {name} in a different state")
            for name, state in expected.random.items()
            if actual.random.get(name, state) != state
        ]
    return items


def _loses_double_precision(expected: Result, actual: Result) -> bool:
    """Return whether a program that gets only doubles returns or leaves one that is as imprecise as ``float32``.

    Python computes with doubles, but a tensor of a Python float, or the quotient of a tensor of integers and an int, is
    ``float32``. The usual tolerances accept such numbers.
    """
    inputs = (tensor for _, tensor in named_tensors([expected.arguments, expected.state], ""))
    if {tensor.dtype for tensor in inputs if tensor.is_floating_point()} != {torch.float64}:
        return False
    tensors, other_tensors = (
        dict(named_tensors([result.value, result.arguments, result.state], "")) for result in (expected, actual)
    )
    return any(
        tensor.dtype == torch.float64 and path in other_tensors and not _are_close_doubles(tensor, other_tensors[path])
        for path, tensor in tensors.items()
    )


def _are_close_doubles(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """Return whether doubles are equal up to their own rounding errors, or cannot be compared."""
    if expected.is_nested or (expected.layout, expected.dtype) != (torch.strided, actual.dtype):
        return True
    one, other = expected.detach(), actual.detach()
    try:
        return torch.allclose(other, one, rtol=_RTOL_OF_DOUBLES, atol=_ATOL_OF_DOUBLES, equal_nan=True)
    except Exception:  # noqa: BLE001 - some tensors, such as fake tensors, cannot be compared
        return True


def varying_state_paths(one: Result, other: Result) -> frozenset[str]:
    """Return the paths to values in arguments and state, such as times, that differ after two runs of one program."""
    return varying_paths(one.arguments, other.arguments) | varying_paths(one.state, other.state)


def _exception_differences(expected: Result, actual: Result) -> Iterator[Difference]:
    original, changed = expected.error, actual.error
    if original is None:
        yield Difference(
            "exception", f"raises {describe_error(changed)}, but the original returns {short_repr(expected.value)}"
        )
    elif changed is None:
        yield Difference(
            "exception", f"returns {short_repr(actual.value)}, but the original raises {describe_error(original)}"
        )
    elif type(original) is not type(changed) or not is_same_text(_message(original), _message(changed)):
        # Operations reject an input with different messages, and Dynamo wraps errors in a subclass of RuntimeError.
        is_reworded = is_raised_by_operation(original) and isinstance(changed, RuntimeError | IndexError)
        text = f"raises {describe_error(changed)}, but the original raises {describe_error(original)}"
        yield Difference(
            "different error" if is_reworded or _comes_from_graph_check(original, changed) else "exception", text
        )
    elif (
        attribute_difference := describe_difference(_attributes_of_error(original), _attributes_of_error(changed))
    ) is not None:
        yield Difference(
            "exception", f"raises {type(changed).__name__} with different attributes: {attribute_difference}"
        )


def _attributes_of_error(error: BaseException) -> dict[str, Any]:
    """Return the public attributes of an exception, and the class name of its cause."""
    public_attributes = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return {**public_attributes, "cause": type(error.__cause__).__name__}


def is_raised_by_operation(error: BaseException) -> bool:
    """Return whether a PyTorch operation, rather than a Python statement, probably raised an exception."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    may_come_from_operation = type(error) is RuntimeError or (
        type(error) is IndexError and not _SEQUENCE_ERRORS.search(_message(error))
    )
    if not may_come_from_operation or traceback is None:
        return False
    raising_instructions = (
        instruction
        for instruction in dis.get_instructions(traceback.tb_frame.f_code)
        if instruction.offset == traceback.tb_lasti
    )
    return not any(instruction.opname in {"RAISE_VARARGS", "RERAISE"} for instruction in raising_instructions)


def _comes_from_graph_check(original_error: BaseException, error: BaseException) -> bool:
    """Return whether an error comes from a check in a graph, either the original's or one that PyTorch added."""
    if type(error) is not RuntimeError:
        return False
    message = _message(error)
    is_check = (
        message in {_message(original_error), _DEFAULT_CHECK_MESSAGE}
        and is_raised_by_operation(error)
        and not is_raised_by_operation(original_error)
    )
    return is_check or message.startswith(_ASSERTION_PREFIXES)


def describe_error(error: BaseException | None) -> str:
    """Return the type of an exception and the first line of its message, shortened, without a final period."""
    message = _message(error).strip().partition("\n")[0].rstrip(".")
    return _shorten(f"{type(error).__name__}: {message}" if message else type(error).__name__, 2 * _MAX_QUOTE_LENGTH)


def _message(error: BaseException | None) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - calls the user's `__str__`
        return ""


def _differences_by_name(
    kind: DifferenceKind, prefix: str, expected: dict[str, Any], actual: dict[str, Any], compare: _Compare
) -> Iterator[Difference]:
    for name, value in expected.items():
        if name not in actual:
            yield Difference(kind, f"does not set {prefix}{name}")
        elif (text := compare(value, actual[name], root=name)) is not None:
            yield Difference(kind, f"leaves {prefix}{name} different: {text}")
    for name in actual:
        if name not in expected:
            yield Difference(kind, f"sets {prefix}{name}, which the original does not")


def _state_differences(
    expected: Result, actual: Result, compare: _Compare, compare_state: _Compare
) -> Iterator[Difference]:
    def has_changed(result: Result, name: str) -> bool:
        return name in result.state and (
            name not in result.state_before
            or describe_difference(result.state_before[name], result.state[name]) is not None
        )

    for name in dict.fromkeys([*expected.state, *actual.state]):
        if _starts_differently(expected, actual, name):
            yield from _state_differences_by_part(expected, actual, name, compare)
        elif name in expected.state and name in actual.state:
            text = compare_state(expected.state[name], actual.state[name], root=name)
            if text is not None and (has_changed(expected, name) or has_changed(actual, name)):
                yield Difference("state", f"leaves {name} different: {text}")
        elif has_changed(expected, name):
            yield Difference("state", f"does not change {name} as the original does")
        elif has_changed(actual, name):
            yield Difference("state", f"changes {name}, which the original does not")


def _starts_differently(expected: Result, actual: Result, name: str) -> bool:
    """Return whether a part of the state already differed before the runs, for example because a switch set it."""
    is_everywhere = all(name in states for run in (expected, actual) for states in (run.state_before, run.state))
    return is_everywhere and describe_difference(expected.state_before[name], actual.state_before[name]) is not None


def _state_differences_by_part(expected: Result, actual: Result, name: str, compare: _Compare) -> Iterator[Difference]:
    """Yield the differences between values that a run changed, because others may already have differed before."""
    missing = object()
    before_expected, after_expected, before_actual, after_actual = (
        dict(leaves(states[name], name))
        for states in (expected.state_before, expected.state, actual.state_before, actual.state)
    )  # fmt: skip

    def differ(one: Any, other: Any, compare: _Compare = describe_difference) -> bool:
        return one is not other if one is missing or other is missing else compare(one, other) is not None

    for path in dict.fromkeys([*before_expected, *after_expected, *before_actual, *after_actual]):
        before, other_before = before_expected.get(path, missing), before_actual.get(path, missing)
        after, other_after = after_expected.get(path, missing), after_actual.get(path, missing)
        if (differ(before, after) or differ(other_before, other_after)) and differ(after, other_after, compare):
            yield Difference("state", f"leaves {path} different")


def _layout_differences(expected: Result, actual: Result) -> Iterator[Difference]:
    for path, (class_, strides) in expected.layouts.items():
        actual_layout = actual.layouts.get(path)
        if actual_layout is None:
            continue
        actual_class = actual_layout.class_
        if actual_class is not class_:
            yield Difference("value", f"makes {path} a {actual_class.__name__} instead of a {class_.__name__}")
        elif actual_layout.strides != strides:
            yield Difference("layout", f"makes the strides of {path} {actual_layout.strides} instead of {strides}")


def _zero_sign_differences(expected: Result, actual: Result) -> Iterator[Difference]:
    actual_tensors = dict(named_tensors(actual.value, RESULT_PATH))
    for path, tensor in named_tensors(expected.value, RESULT_PATH):
        actual_tensor = actual_tensors.get(path)
        if (
            actual_tensor is None
            or not _is_dense_float(tensor)
            or not _is_dense_float(actual_tensor)
            or tensor.shape != actual_tensor.shape
        ):
            continue
        is_zero = (tensor == 0) & (actual_tensor == 0)
        if bool((tensor.signbit() != actual_tensor.signbit())[is_zero].any()):
            yield Difference("sign of zero", f"changes the sign of a zero in {path}")


def _is_dense_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.layout == torch.strided and not tensor.is_nested


def _requires_grad_differences(expected: Result, actual: Result) -> Iterator[Difference]:
    # `_gradient_differences` compares the gradients that the original also has.
    original_gradients = expected.gradients or {}
    has_only_zeros = actual.gradients is not None and not any(
        gradient is not None and bool(gradient.count_nonzero())
        for path, gradient in actual.gradients.items()
        if original_gradients.get(path) is None
    )
    for path, is_required in expected.requires_grad.items():
        if actual.requires_grad.get(path, is_required) is not is_required:
            wording = ("no gradient", "requires one") if is_required else ("a gradient", "requires none")
            kind_of_new_gradient: DifferenceKind = "needless gradient" if has_only_zeros else "further gradient"
            kind: DifferenceKind = "requires_grad" if is_required else kind_of_new_gradient
            yield Difference(kind, f"makes {path} require {wording[0]}, but in the original it {wording[1]}")


def _gradient_differences(expected: Result, actual: Result, compare: _Compare) -> Iterator[Difference]:
    errors = actual.backward_error, expected.backward_error
    if type(errors[0]) is not type(errors[1]):
        texts = ("nothing" if error is None else describe_error(error) for error in errors)
        yield Difference("gradient", "raises {} in the backward pass, but the original raises {}".format(*texts))
        if None in errors:
            return
    original, changed = expected.gradients, actual.gradients
    if original is None or changed is None:
        return  # `_requires_grad_differences` reports this
    compare = functools.partial(compare, largest=largest_number(original.values()))
    for path in sorted(original.keys() | changed.keys()):
        item = _gradient_difference(path, original.get(path), changed.get(path), compare)
        if item is not None:
            yield item


def _gradient_difference(
    path: str, expected: torch.Tensor | None, actual: torch.Tensor | None, compare: _Compare
) -> Difference | None:
    if expected is None and actual is None:
        return None
    if actual is None:
        return Difference("gradient", f"gives {path} no gradient, but the original gives {short_repr(expected)}")
    if expected is None:
        if not actual.count_nonzero():
            return Difference("zero gradient", f"gives {path} a gradient of zeros, but the original gives none")
        return Difference("gradient", f"gives {path} the gradient {short_repr(actual)}, but the original gives none")
    text = compare(expected, actual)
    return None if text is None else Difference("gradient", f"gives {path} a different gradient: {text}")


def _leaf_grad_differences(expected: Result, actual: Result, compare: _Compare) -> Iterator[Difference]:
    for path in sorted(expected.leaf_grads.keys() & actual.leaf_grads.keys()):
        text = compare(expected.leaf_grads[path], actual.leaf_grads[path])
        if text is not None:
            yield Difference("gradient", f"leaves a different .grad on {path}: {text}")


def _aliasing_differences(expected: Result, actual: Result) -> Iterator[Difference]:
    no_alias: tuple[str, frozenset[str]] = ("", frozenset())
    for path in sorted(expected.paths & actual.paths):
        relation, others = expected.aliases.get(path, no_alias)
        actual_relation, actual_others = actual.aliases.get(path, no_alias)
        shared_others, actual_shared_others = others & actual.paths, actual_others & expected.paths
        if (bool(others), relation, shared_others) == (bool(actual_others), actual_relation, actual_shared_others):
            continue
        if not path.startswith(RESULT_PATH) and not shared_others and not actual_shared_others:
            continue  # only one of the two programs reads the names that share the object
        if path in expected.layouts and not actual_others and all(part.startswith("the argument ") for part in others):
            before = f"it {relation} {min(shared_others or others)}"
            consequence = "so changing one in place changes both"
            yield Difference("lost alias", f"makes {path} a new tensor, but in the original {before}, {consequence}")
            continue
        before = f"it {relation} {min(shared_others or others)}" if others else "it is a separate object"
        after = (
            f"{_INFINITIVES[actual_relation]} {min(actual_shared_others or actual_others)}"
            if actual_others
            else "a separate object"
        )
        yield Difference("aliasing", f"makes {path} {after}, but in the original {before}")


def _replacement_differences(expected: Result, actual: Result) -> Iterator[Difference]:
    """Yield a difference for each tensor that only the original changes in place. Other references to it may exist."""
    for path, is_changed in expected.changed_in_place.items():
        if is_changed and path in actual.paths and path not in actual.changed_in_place:
            yield Difference("replaced", f"replaces {path} with a new tensor, but the original changes it in place")


def _effect_differences(expected: Result, actual: Result, *, compares_values: bool) -> Iterator[Difference]:
    original, changed = expected.effects, actual.effects
    for kind, verb, target, expected_output, actual_output in (
        ("printed", "prints", "", original.stdout, changed.stdout),
        ("stderr", "writes", " to stderr", original.stderr, changed.stderr),
    ):
        if (
            not is_same_text(expected_output, actual_output)
            if compares_values
            else bool(expected_output) != bool(actual_output)
        ):
            expected_line, actual_line = _first_differing_lines(expected_output, actual_output)
            text = f"{verb} {actual_line}{target}, but the original {verb} {expected_line}{target}"
            yield Difference(kind, text)  # type: ignore[arg-type]
    warning_texts = [
        [f"{category}: {text}" for category, text in effects.warning_messages] for effects in (original, changed)
    ]
    log_texts = [
        [f"{name} {level}: {text}" for name, level, text in effects.log_records] for effects in (original, changed)
    ]
    message_differences = [
        *_message_differences("warned", "warns", *warning_texts, compares_values=compares_values),
        *_message_differences("logged", "logs", *log_texts, compares_values=compares_values),
    ]
    yield from message_differences
    if (
        compares_values
        and not message_differences
        and is_same_text(original.stdout, changed.stdout)
        and is_same_text(original.stderr, changed.stderr)
    ):
        kinds = [[kind for kind, _ in effects.order] for effects in (original, changed)]
        is_in_order = kinds[0] == kinds[1] and all(
            is_same_text(one, other) for (_, one), (_, other) in zip(original.order, changed.order, strict=True)
        )
        if not is_in_order:
            yield Difference("printed", "prints, warns and logs in a different order")


def _message_differences(
    kind: DifferenceKind, verb: str, expected: Sequence[str], actual: Sequence[str], *, compares_values: bool
) -> Iterator[Difference]:
    if not compares_values:
        expected, actual = expected[:1] if not actual else [], actual[:1] if not expected else []
    elif len(expected) == len(actual) and all(map(is_same_text, expected, actual)):
        return
    missing_texts = list((Counter(expected) - Counter(actual)).elements())
    extra_texts = list((Counter(actual) - Counter(expected)).elements())
    for text in missing_texts[:1]:
        yield Difference(
            kind,
            f"{verb} {_quote(extra_texts[0]) if extra_texts else 'nothing'}, but the original {verb} {_quote(text)}",
        )
    if extra_texts and not missing_texts:
        yield Difference(kind, f"{verb} {_quote(extra_texts[0])}, but the original {verb} nothing")
    if not missing_texts and not extra_texts and compares_values:
        yield Difference(kind, f"{verb} the same in a different order")


def is_same_text(expected: str, actual: str) -> bool:
    """Return whether two strings are equal, apart from the last digits of numbers, addresses and gradient functions.

    Only the last states of progress bars are compared, without times, because how often a bar is drawn depends on time.
    """
    if expected == actual:
        return True
    if _TIMES.search(expected) and _TIMES.search(actual):
        expected, actual = map(_last_states, (expected, actual))
    expected, actual = (_INCIDENTAL_TEXT.sub("", text) for text in (expected, actual))
    if _NUMBER.sub("#", expected) != _NUMBER.sub("#", actual):
        return False
    return all(map(_is_same_number, _NUMBER.findall(expected), _NUMBER.findall(actual)))


def _last_states(text: str) -> str:
    """Return a string as a terminal shows it after progress bars have ended, without times."""
    return "\n".join(_TIMES.sub("", line.rpartition("\r")[2]) for line in text.split("\n"))


def _is_same_number(expected: str, actual: str) -> bool:
    """Return whether two printed numbers are equal up to a relative difference of 1e-5 or one unit in the last place.

    A difference in the last place is accepted only from the third decimal on.
    """
    decimals = len(expected.partition("e")[0].partition(".")[2])
    scale = 10.0 ** int(expected.partition("e")[2] or 0)
    unit = scale * 10.0**-decimals if decimals >= 3 else 0.0  # noqa: PLR2004
    expected_value, actual_value = float(expected), float(actual)
    return abs(expected_value - actual_value) <= max(1.01 * unit, 1e-5 * abs(expected_value))


def _first_differing_lines(expected: str, actual: str) -> tuple[str, str]:
    """Return, quoted, the first lines in which two strings differ, or the lines that only the longer one has."""
    expected_lines, actual_lines = expected.splitlines(), actual.splitlines()
    for index, (one, other) in enumerate(zip(expected_lines, actual_lines, strict=False)):
        if not is_same_text(one, other):
            return _quote(expected_lines[index]), _quote(actual_lines[index])
    start = min(len(expected_lines), len(actual_lines))
    return _quote("\n".join(expected_lines[start:])), _quote("\n".join(actual_lines[start:]))


def _quote(text: str) -> str:
    return repr(_shorten(text.strip("\n"), _MAX_QUOTE_LENGTH)) if text else "nothing"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
