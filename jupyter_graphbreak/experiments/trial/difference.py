"""Say in words how one run differs from another, in everything that was observed of them."""

from __future__ import annotations

import dis
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak.experiments.trial.places import RESULT, leaves
from jupyter_graphbreak.experiments.trial.values import difference, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from jupyter_graphbreak.experiments.trial.outcome import Result

Kind = Literal[
    "value", "exception", "argument", "gradient", "requires_grad", "aliasing", "state",
    "printed", "stderr", "warned", "logged", "zero gradient", "random state", "another error",
]  # fmt: skip
#: Differences with which a changed program may do: its user is told and decides.
DECLARED: frozenset[Kind] = frozenset(
    {"printed", "stderr", "warned", "logged", "zero gradient", "random state", "another error"}
)
_LONGEST = 60
#: How the errors begin that a graph raises where a value is not as it was assumed to be.
_ASSERTIONS = ("Runtime assertion failed", "Expected cond to be True")
#: What a check in a graph says whose message was not known beforehand.
_CHECK = "check failed"
#: What differs between two texts of equal results: digits beyond the fourth, gradient functions, addresses.
_NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
_OF_COMPILING = re.compile(r"grad_fn=<\w+>|\bat 0x[0-9a-f]+")


@dataclass(frozen=True)
class Difference:
    """One thing that a program does otherwise than the original, as the rest of a sentence about the program."""

    kind: Kind
    text: str

    @property
    def declared(self) -> bool:
        """Whether values, gradients and exceptions are equal all the same."""
        return self.kind in DECLARED


def differences(expected: Result, actual: Result, *, values: bool = True) -> list[Difference]:
    """Return everything that a program did otherwise than the original, the gravest first.

    Parameters
    ----------
    expected, actual : Result
        What the original did, and what the program did, with equal arguments.
    values : bool
        Whether values count; without them only types, shapes and whether something happened do, as for random numbers.
    """
    if expected.raised is not None or actual.raised is not None:
        found = list(_exceptions(expected, actual))
    else:
        text = difference(expected.value, actual.value, values=values)
        found = [] if text is None else [Difference("value", f"returns {text}")]
    found += _by_name("argument", "the argument ", expected.arguments, actual.arguments, values=values)
    if not any(item.kind in {"value", "exception"} for item in found):
        found += _requires_grad(expected, actual)
        found += _gradients(expected, actual, values=values)
        found += _aliasing(expected, actual)
    found += _left_grad(expected, actual, values=values)
    found += _state(expected, actual, values=values)
    found += _by_name("state", "the ", expected.modes, actual.modes, values=True)
    found += _effects(expected, actual, values=values)
    if values:
        found += [
            Difference("random state", f"leaves the random numbers of {name} in another state")
            for name, state in expected.random.items()
            if actual.random.get(name, state) != state
        ]
    return found


def _exceptions(expected: Result, actual: Result) -> Iterator[Difference]:
    theirs, ours = expected.raised, actual.raised
    if theirs is None:
        yield Difference("exception", f"raises {named(ours)}, where the original returns {show(expected.value)}")
    elif ours is None:
        yield Difference("exception", f"returns {show(actual.value)}, where the original raises {named(theirs)}")
    elif type(theirs) is not type(ours) or not same_text(_message(theirs), _message(ours)):
        # Dynamo wraps what an operation says while a graph is captured; that is a RuntimeError, too.
        while_captured = isinstance(ours, RuntimeError) and type(ours).__name__ == "TorchRuntimeError"
        in_other_words = (type(theirs) is type(ours) or while_captured) and _is_of_an_operation(theirs)
        text = f"raises {named(ours)}, where the original raises {named(theirs)}"
        yield Difference("another error" if in_other_words or _is_assertion(theirs, ours) else "exception", text)


def is_raised_by_statement(error: BaseException) -> bool:
    """Whether code of Python's raised an exception, and no operation of PyTorch in its own words."""
    return not _is_of_an_operation(error)


def _is_of_an_operation(error: BaseException) -> bool:
    """Whether an operation of PyTorch refused what it was given, in its own words, and no statement raised this."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if type(error) is not RuntimeError or last is None:
        return False
    here = (step for step in dis.get_instructions(last.tb_frame.f_code) if step.offset == last.tb_lasti)
    return not any(step.opname in {"RAISE_VARARGS", "RERAISE"} for step in here)


def _is_assertion(theirs: BaseException, ours: BaseException) -> bool:
    """Whether a check in a graph refused what the original refuses, in the words of the check if it has some."""
    if type(ours) is not RuntimeError:
        return False
    said = _message(ours)
    is_check = said in {_message(theirs), _CHECK} and _is_of_an_operation(ours) and not _is_of_an_operation(theirs)
    return is_check or said.startswith(_ASSERTIONS)


def named(error: BaseException | None) -> str:
    """Return an exception in a few words."""
    message = _message(error).strip().partition("\n")[0]
    return _shortened(f"{type(error).__name__}: {message}" if message else type(error).__name__, 2 * _LONGEST)


def _message(error: BaseException | None) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's __str__
        return ""


def _by_name(
    kind: Kind, what: str, expected: dict[str, Any], actual: dict[str, Any], *, values: bool
) -> Iterator[Difference]:
    for name, value in expected.items():
        if name not in actual:
            yield Difference(kind, f"does not set {what}{name}")
        elif (text := difference(value, actual[name], values=values)) is not None:
            yield Difference(kind, f"leaves {what}{name} otherwise: {text}")
    for name in actual:
        if name not in expected:
            yield Difference(kind, f"sets {what}{name}, which the original does not")


def _state(expected: Result, actual: Result, *, values: bool) -> Iterator[Difference]:
    def changed(result: Result, name: str) -> bool:
        return name in result.state and (
            name not in result.before or difference(result.before[name], result.state[name]) is not None
        )

    for name in dict.fromkeys([*expected.state, *actual.state]):
        if _begins_otherwise(expected, actual, name):
            yield from _state_by_part(expected, actual, name, values=values)
        elif name in expected.state and name in actual.state:
            text = difference(expected.state[name], actual.state[name], values=values)
            if text is not None and (changed(expected, name) or changed(actual, name)):
                yield Difference("state", f"leaves {name} otherwise: {text}")
        elif changed(expected, name):
            yield Difference("state", f"does not change {name} as the original does")
        elif changed(actual, name):
            yield Difference("state", f"changes {name}, which the original does not")


def _begins_otherwise(expected: Result, actual: Result, name: str) -> bool:
    """Whether something was not the same before the two runs, as where a switch set it."""
    everywhere = all(name in states for run in (expected, actual) for states in (run.before, run.state))
    return everywhere and difference(expected.before[name], actual.before[name]) is not None


def _state_by_part(expected: Result, actual: Result, name: str, *, values: bool) -> Iterator[Difference]:
    """Compare what the two runs changed, part by part; what neither touched was otherwise before."""
    missing = object()
    before_expected, after_expected, before_actual, after_actual = (
        dict(leaves(states[name], name))
        for states in (expected.before, expected.state, actual.before, actual.state)
    )  # fmt: skip

    def differ(one: Any, other: Any, *, values: bool = True) -> bool:
        if one is missing or other is missing:
            return one is not other
        return difference(one, other, values=values) is not None

    for place in dict.fromkeys([*before_expected, *after_expected, *before_actual, *after_actual]):
        one, other = after_expected.get(place, missing), after_actual.get(place, missing)
        touched = differ(before_expected.get(place, missing), one) or differ(before_actual.get(place, missing), other)
        if touched and differ(one, other, values=values):
            yield Difference("state", f"leaves {place} otherwise")


def _requires_grad(expected: Result, actual: Result) -> Iterator[Difference]:
    for place, required in expected.requires_grad.items():
        if actual.requires_grad.get(place, required) is not required:
            what = ("no gradient", "does") if required else ("a gradient", "does not")
            text = f"makes {place} require {what[0]}, where the original {what[1]}"
            yield Difference("requires_grad", text)


def _gradients(expected: Result, actual: Result, *, values: bool) -> Iterator[Difference]:
    if (expected.backward is None) != (actual.backward is None):
        failed = named(actual.backward or expected.backward)
        yield Difference(
            "gradient",
            f"raises {failed} in the backward pass, where the original raises nothing"
            if actual.backward is not None
            else f"raises nothing in the backward pass, where the original raises {failed}",
        )
        return
    if type(expected.backward) is not type(actual.backward):
        texts = named(actual.backward), named(expected.backward)
        yield Difference("gradient", "raises {} in the backward pass, where the original raises {}".format(*texts))
    theirs, ours = expected.gradients, actual.gradients
    if theirs is None or ours is None:
        return  # then another tensor requires a gradient, which is said
    for place in sorted(theirs.keys() | ours.keys()):
        found = _gradient(place, theirs.get(place), ours.get(place), values=values)
        if found is not None:
            yield found


def _gradient(
    place: str, expected: torch.Tensor | None, actual: torch.Tensor | None, *, values: bool
) -> Difference | None:
    if expected is None and actual is None:
        return None
    if actual is None:
        return Difference("gradient", f"gives {place} no gradient, where the original gives {show(expected)}")
    if expected is None:
        if not actual.count_nonzero():
            text = f"gives {place} a gradient of zeros, where the original gives none"
            return Difference("zero gradient", text)
        return Difference("gradient", f"gives {place} the gradient {show(actual)}, where the original gives none")
    text_or_none = difference(expected, actual, values=values)
    return None if text_or_none is None else Difference("gradient", f"gives {place} another gradient: {text_or_none}")


def _left_grad(expected: Result, actual: Result, *, values: bool) -> Iterator[Difference]:
    for place in sorted(expected.left_grad.keys() & actual.left_grad.keys()):
        text = difference(expected.left_grad[place], actual.left_grad[place], values=values)
        if text is not None:
            yield Difference("gradient", f"leaves another .grad on {place}: {text}")


def _aliasing(expected: Result, actual: Result) -> Iterator[Difference]:
    nothing: tuple[str, frozenset[str]] = ("", frozenset())
    for place in sorted(expected.places & actual.places):
        how, others = expected.aliases.get(place, nothing)
        how_now, others_now = actual.aliases.get(place, nothing)
        known, known_now = others & actual.places, others_now & expected.places
        if (bool(others), how, known) == (bool(others_now), how_now, known_now):
            continue
        if not place.startswith(RESULT) and not known and not known_now:
            continue  # the state has names that only one of the two reads
        before = f"{how} {min(known or others)}" if others else "is apart"
        after = f"so that it {how_now} {min(known_now or others_now)}" if others_now else "apart"
        yield Difference("aliasing", f"has {place} {after}, where the original's {before}")


def _effects(expected: Result, actual: Result, *, values: bool) -> Iterator[Difference]:
    theirs, ours = expected.effects, actual.effects
    for kind, verb, before, after in (
        ("printed", "prints", theirs.printed, ours.printed),
        ("stderr", "writes to stderr", theirs.stderr, ours.stderr),
    ):
        if not same_text(before, after) if values else bool(before) != bool(after):
            left, right = _parting(before, after)
            yield Difference(kind, f"{verb} {right}, where the original {verb} {left}")  # type: ignore[arg-type]
    warned = [[f"{category}: {text}" for category, text in effects.warned] for effects in (theirs, ours)]
    logged = [[f"{name} {level}: {text}" for name, level, text in effects.logged] for effects in (theirs, ours)]
    differs = [
        *_messages("warned", "warns", *warned, values=values),
        *_messages("logged", "logs", *logged, values=values),
    ]
    yield from differs
    if values and not differs and same_text(theirs.printed, ours.printed) and same_text(theirs.stderr, ours.stderr):
        kinds = [[kind for kind, _ in effects.order] for effects in (theirs, ours)]
        in_order = kinds[0] == kinds[1] and all(
            same_text(one, other) for (_, one), (_, other) in zip(theirs.order, ours.order, strict=True)
        )
        if not in_order:
            yield Difference("printed", "prints, warns and logs in another order")


def _messages(
    kind: Kind, verb: str, expected: Sequence[str], actual: Sequence[str], *, values: bool
) -> Iterator[Difference]:
    if not values:
        expected, actual = expected[:1] if not actual else [], actual[:1] if not expected else []
    elif len(expected) == len(actual) and all(map(same_text, expected, actual)):
        return
    lost, new = (
        list((Counter(expected) - Counter(actual)).elements()),
        list((Counter(actual) - Counter(expected)).elements()),
    )
    for text in lost[:1]:
        yield Difference(
            kind, f"{verb} {_quoted(new[0]) if new else 'nothing'}, where the original {verb} {_quoted(text)}"
        )
    if new and not lost:
        yield Difference(kind, f"{verb} {_quoted(new[0])}, where the original {verb} nothing")
    if not lost and not new and values:
        yield Difference(kind, f"{verb} the same in another order")


def same_text(expected: str, actual: str) -> bool:
    """Whether two texts say the same: numbers may differ in their last digits, as those of equal results do."""
    if expected == actual:
        return True
    expected, actual = (_OF_COMPILING.sub("", text) for text in (expected, actual))
    if _NUMBER.sub("#", expected) != _NUMBER.sub("#", actual):
        return False
    return all(map(_same_number, _NUMBER.findall(expected), _NUMBER.findall(actual)))


def _same_number(expected: str, actual: str) -> bool:
    """Whether two printed numbers are equal up to one unit in the last place, from the third decimal on."""
    decimals = len(expected.partition("e")[0].partition(".")[2])
    scale = 10.0 ** int(expected.partition("e")[2] or 0)
    unit = scale * 10.0**-decimals if decimals >= 3 else 0.0  # noqa: PLR2004
    left, right = float(expected), float(actual)
    return abs(left - right) <= max(1.01 * unit, 1e-5 * abs(left))


def _parting(before: str, after: str) -> tuple[str, str]:
    """Return the first lines in which two texts differ, quoted."""
    left, right = before.splitlines(), after.splitlines()
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if not same_text(one, other):
            return _quoted(left[index]), _quoted(right[index])
    start = min(len(left), len(right))
    return _quoted("\n".join(left[start:])), _quoted("\n".join(right[start:]))


def _quoted(text: str) -> str:
    return repr(_shortened(text.strip("\n"), _LONGEST)) if text else "nothing"


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
