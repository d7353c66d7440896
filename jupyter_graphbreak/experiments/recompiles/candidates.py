"""Propose changes that may prevent recompiles, smallest first."""

from __future__ import annotations

import functools
import itertools
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak.experiments.recompiles.replay import Adjustment
from jupyter_graphbreak.experiments.trial.call_specs import Path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.recompiles.variations import Number, NumberList, Size, Variations
    from jupyter_graphbreak.report.remedies import RemedyKind

_MARKS: dict[str, str] = {
    "mark_dynamic": "torch._dynamo.mark_dynamic",
    "mark_unbacked": "torch._dynamo.decorators.mark_unbacked",
    "maybe_mark_dynamic": "torch._dynamo.maybe_mark_dynamic",
}
_ADJECTIVES = {"mark_dynamic": "dynamic", "mark_unbacked": "unbacked", "maybe_mark_dynamic": "possibly dynamic"}
DYNAMIC_BY_SETTING: dict[str, Any] = {"torch._dynamo.config.assume_static_by_default": False}
_UNSPECIALIZED_SETTINGS = {"torch._dynamo.config.allow_unspec_int_on_nn_module": True}
#: Otherwise, buffers and parameters have constant sizes, even with marks and ``dynamic=True``.
_VARIABLE_BUFFERS_SETTINGS = {"torch._dynamo.config.force_parameter_static_shapes": False}
_NO_DUCK_SHAPES_SETTINGS = {"torch.fx.experimental._config.use_duck_shape": False}
#: If sizes vary, Inductor may expect the inputs of convolutions in the memory format that they had with the first size.
_SAME_LAYOUT_SETTINGS = {"torch._inductor.config.layout_optimization": False}
_DYNAMIC_TITLE = "Compile with `dynamic=True`"
#: The factor for raising the recompile limit.
_LIMIT_FACTOR = 8
_LIMIT_SETTING = "torch._dynamo.config.recompile_limit"

#: The beginning of code that changes the hyperparameters of an optimizer.
_PARAM_GROUPS_LOOP = "for group in NAME.param_groups:"

Family = Literal["mark", "dynamic", "tensor", "setting", "limit", "branch", "hoisting", "indexing"]
#: The families that change the code of the function.
_CODE_FAMILIES: frozenset[Family] = frozenset({"branch", "hoisting", "indexing"})


@dataclass(frozen=True)
class CallPreparation:
    """Code that changes or marks a value before each call; ``NAME`` stands for the expression of the value.

    If the code assigns a new value, ``template`` is the expression for the new value. ``code_after`` runs after the
    assignment; there, ``NAME`` stands for the new value. ``optional_path`` is the path of the value, or of an object
    that contains it, if some calls have ``None`` at this path; these calls need no change.
    """

    path: Path
    template: str
    assigns: bool = False
    optional_path: Path | None = None
    code_after: str = ""

    @property
    def leaves_tensors(self) -> bool:
        """Whether the code leaves tensors in place of numbers in an object or a variable of the caller."""
        is_outside = bool(self.path.steps) or self.path.root.kind != "argument"
        return is_outside and (self.assigns or _PARAM_GROUPS_LOOP in self.template)

    @property
    def reads_list_item(self) -> bool:
        """Whether the code reads an item of the caller's list, which may be shorter in other calls."""
        is_index = any(step.kind == "item" and type(step.key) is int for step in self.path.steps)
        return is_index and self.path.root.kind == "argument"

    def new_value(self, name: str) -> str:
        """Return the expression for the new value, given the expression for the old one."""
        return self.template.replace("NAME", name)

    def lines(self, name_of: Callable[[Path], str]) -> list[str]:
        """Return the lines of the code, given a function that returns the expression for a path."""
        name = name_of(self.path)
        value = self.new_value(name)
        lines = (f"{name} = {value}" if self.assigns else value).split("\n")
        lines += [self.code_after.replace("NAME", name)] if self.code_after else []
        if self.optional_path is None:
            return lines
        return [f"if {name_of(self.optional_path)} is not None:", *(f"    {line}" for line in lines)]


@dataclass(frozen=True)
class RecompileCandidate:
    """A change that may prevent recompiles."""

    title: str
    families: tuple[Family, ...]
    adjustment: Adjustment
    preparations: tuple[CallPreparation, ...] = ()

    @property
    def kind(self) -> RemedyKind:
        """The kind of the remedy."""
        if self.adjustment.lines:
            return "mark"
        return "edit" if self.adjustment.dynamic or not self.changes_only_calls else "setting"

    @property
    def changes_only_calls(self) -> bool:
        """Whether the adjustment is the whole change, so the function's code stays unchanged."""
        return _CODE_FAMILIES.isdisjoint(self.families)

    def with_settings(self, settings: Mapping[str, Any]) -> RecompileCandidate:
        """Return this candidate with settings instead of ``dynamic=True``, for use if no compile call is known."""
        adjustment = replace(self.adjustment, dynamic=None, settings={**self.adjustment.settings, **settings})
        title = self.title.replace(_DYNAMIC_TITLE, "Treat sizes and numbers as dynamic from the start")
        return replace(self, title=title, adjustment=adjustment)

    def includes(self, other: RecompileCandidate) -> bool:
        """Return whether ``other`` changes only calls, and this candidate makes all its changes and further ones."""
        adjustment, other_adjustment = self.adjustment, other.adjustment
        return (
            other.changes_only_calls
            and adjustment != other_adjustment
            and set(other_adjustment.lines) <= set(adjustment.lines)
            and (not other_adjustment.dynamic or bool(adjustment.dynamic))
            and other_adjustment.settings.items() <= adjustment.settings.items()
        )

    def __add__(self, other: RecompileCandidate) -> RecompileCandidate:
        adjustment, other_adjustment = self.adjustment, other.adjustment
        return RecompileCandidate(
            f"{self.title}; {other.title}",
            tuple(dict.fromkeys([*self.families, *other.families])),
            Adjustment(
                (*adjustment.lines, *other_adjustment.lines),
                (*adjustment.replaced_numbers, *other_adjustment.replaced_numbers),
                adjustment.dynamic or other_adjustment.dynamic,
                {**adjustment.settings, **other_adjustment.settings},
            ),
            (*self.preparations, *other.preparations),
        )


@dataclass(frozen=True)
class Circumstances:
    """Conditions, besides the variations, on which the candidates depend.

    ``owner`` is the name of the called module. The limit is worth raising if it was reached although some calls used
    the code of earlier calls: otherwise, every further call would cause a recompile. ``visible_names`` are those of
    variables that both the function and the code around its calls use.
    """

    owner: str
    limit: int
    is_limit_worth_raising: bool
    visible_names: frozenset[str]


def propose_candidates(
    mentioned_variations: Variations, variations: Variations, circumstances: Circumstances
) -> Iterator[RecompileCandidate]:
    """Yield changes, smallest first: marks, ``dynamic=True``, tensors instead of numbers, settings, a higher limit."""
    has_mentioned_numbers = bool(mentioned_variations.numbers or mentioned_variations.lists)
    sizes = (
        _all_varied_dimensions(mentioned_variations.sizes, variations.sizes)
        if mentioned_variations.sizes
        else ()
        if has_mentioned_numbers
        else variations.sizes
    )
    numbers = mentioned_variations.numbers or (
        () if mentioned_variations.sizes or mentioned_variations.lists else variations.numbers
    )
    dynamic = RecompileCandidate(_DYNAMIC_TITLE, ("dynamic",), Adjustment(dynamic=True))
    tensor_candidates = [
        *_list_candidates(mentioned_variations.lists, numbers, circumstances),
        *_tensor_candidates(numbers, variations, circumstances),
    ]
    if sizes:
        yield marking_candidate(sizes, "mark_dynamic", circumstances.owner)
        if len(variations.sizes) > len(sizes):
            yield marking_candidate(variations.sizes, "mark_dynamic", circumstances.owner)
    if all(_is_symbolic_if_dynamic(number) for number in numbers):
        yield dynamic
    if sizes and tensor_candidates:
        yield marking_candidate(sizes, "mark_dynamic", circumstances.owner) + tensor_candidates[0]
    yield from tensor_candidates
    if tensor_candidates:
        yield dynamic + tensor_candidates[0]
    yield dynamic
    if sizes:
        unbacked_candidate = marking_candidate(variations.sizes, "mark_unbacked", circumstances.owner)
        yield from [unbacked_candidate, *([unbacked_candidate + tensor_candidates[0]] if tensor_candidates else [])]
        yield marking_candidate(variations.sizes, "maybe_mark_dynamic", circumstances.owner)
    yield from _setting_candidates(variations, dynamic, circumstances)


def _list_candidates(
    lists: Sequence[NumberList], numbers: Sequence[Number], circumstances: Circumstances
) -> Iterator[RecompileCandidate]:
    """Yield candidates that replace each list of numbers with one tensor, and the other numbers with tensors."""
    if not lists:
        return
    other_numbers = [
        number
        for number in numbers
        if _is_assignable(number, circumstances) and not any(number_list.contains(number.path) for number_list in lists)
    ]
    for mark_name in _MARKS if any(number_list.varies_in_length for number_list in lists) else ("",):
        for float_dtype in (
            ("float64",) if all(number_list.has_only_ints for number_list in lists) else ("float64", "float32")
        ):
            candidate = _one_tensor_candidate(lists, circumstances.owner, float_dtype, mark_name)
            yield (
                candidate + tensor_candidate(other_numbers, circumstances.owner, float_dtype)
                if other_numbers
                else candidate
            )


def _one_tensor_candidate(
    lists: Sequence[NumberList], owner: str, float_dtype: str, mark_name: str
) -> RecompileCandidate:
    """Return a candidate that replaces each list of numbers with one tensor, with a mark if its length varies."""
    preparations = [
        CallPreparation(
            numbers.path,
            f"torch.as_tensor(NAME, dtype=torch.{'int64' if numbers.has_only_ints else float_dtype})",
            assigns=True,
            code_after=f"{_MARKS[mark_name]}(NAME, 0)" if mark_name and numbers.varies_in_length else "",
        )
        for numbers in lists
    ]
    expressions = [f"`{expression(numbers.path, owner)}`" for numbers in lists]
    title = f"Make {_join_with_and(expressions)} {'one tensor' if len(lists) == 1 else 'one tensor each'}"
    if mark_name:
        title += f", marked as {_ADJECTIVES[mark_name]}"
    return _candidate_with_preparations(title, "tensor", preparations, tuple(numbers.path for numbers in lists), owner)


def _tensor_candidates(
    numbers: Sequence[Number], variations: Variations, circumstances: Circumstances
) -> Iterator[RecompileCandidate]:
    """Yield candidates that replace numbers with tensors, first in double precision, in which Python computes."""
    assignable = [number for number in variations.numbers if _is_assignable(number, circumstances)]
    chosen_numbers = [number for number in numbers if number in assignable]
    if not chosen_numbers:
        return
    yield tensor_candidate(chosen_numbers, circumstances.owner, "float64")
    if len(assignable) > len(chosen_numbers):
        yield tensor_candidate(assignable, circumstances.owner, "float64")
    if any(not number.is_int for number in chosen_numbers):
        yield tensor_candidate(chosen_numbers, circumstances.owner, "float32")


def _setting_candidates(
    variations: Variations, dynamic: RecompileCandidate, circumstances: Circumstances
) -> Iterator[RecompileCandidate]:
    module_candidates = []
    if any(size.path.root.kind == "module" for size in variations.sizes):
        module_candidates.append(setting_candidate("Allow sizes of buffers to change", _VARIABLE_BUFFERS_SETTINGS))
    if any(number.path.root.kind == "module" and number.is_int for number in variations.numbers):
        module_candidates.append(setting_candidate("Let integer attributes of modules vary", _UNSPECIALIZED_SETTINGS))
    if module_candidates:
        yield from module_candidates
        combined_candidate = functools.reduce(operator.add, module_candidates)
        yield from [combined_candidate] if len(module_candidates) > 1 else []
        yield dynamic + combined_candidate
    if _has_initially_equal_sizes(variations.sizes):
        yield dynamic + setting_candidate("Give equal sizes separate symbols", _NO_DUCK_SHAPES_SETTINGS)
    if circumstances.is_limit_worth_raising:
        limit = _LIMIT_FACTOR * circumstances.limit
        yield RecompileCandidate(
            f"Raise the recompile limit to {limit}", ("limit",), Adjustment(settings={_LIMIT_SETTING: limit})
        )


def _is_symbolic_if_dynamic(number: Number) -> bool:
    """Return whether ``dynamic=True`` usually makes a number symbolic."""
    return number.is_fixed or (number.path.root.kind in {"argument", "closure"} and not number.path.steps)


def _is_assignable(number: Number, circumstances: Circumstances) -> bool:
    """Return whether code before the call can assign a different value to a number."""
    root, steps = number.path.root, number.path.steps
    return not number.is_fixed and (
        root.kind != "closure" or (root.name in circumstances.visible_names and bool(steps))
    )


def _has_initially_equal_sizes(sizes: Sequence[Size]) -> bool:
    """Return whether two sizes are equal in the first call and differ in a later one."""
    return any(
        one.values[0] == other.values[0] and one.values != other.values
        for one, other in itertools.combinations(sizes, 2)
    )


def _all_varied_dimensions(sizes: Sequence[Size], all_sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Return all varied dimensions of the tensors that guards mention. A guard mentions only one dimension."""
    paths = {size.path for size in sizes}
    return tuple(size for size in all_sizes if size.path in paths)


def marking_candidate(sizes: Sequence[Size], mark_name: str, owner: str) -> RecompileCandidate:
    """Return a candidate that marks dimensions before each call."""
    dims_by_path: dict[Path, list[int]] = {}
    for size in sizes:
        dims_by_path.setdefault(size.path, []).append(size.dim)
    optional_paths = {size.path: size.optional_path for size in sizes}
    preparations = [
        CallPreparation(
            path,
            f"{_MARKS[mark_name]}(NAME, {dims[0] if len(dims) == 1 else dims})",
            optional_path=optional_paths[path],
        )
        for path, dims in dims_by_path.items()
    ]
    dimensions = [f"{_dimensions_in_words(dims)} of `{expression(path, owner)}`" for path, dims in dims_by_path.items()]
    return _candidate_with_preparations(
        f"Mark {_join_with_and(dimensions)} as {_ADJECTIVES[mark_name]}", "mark", preparations, (), owner
    )


def _candidate_with_preparations(
    title: str, family: Family, preparations: Sequence[CallPreparation], replaced_numbers: tuple[Path, ...], owner: str
) -> RecompileCandidate:
    lines = tuple(
        join_conditions(preparation.lines(lambda path: expression(path, owner)) for preparation in preparations)
    )
    return RecompileCandidate(title, (family,), Adjustment(lines, replaced_numbers), tuple(preparations))


def join_conditions(blocks: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of blocks of code, with consecutive blocks that begin with the same condition as one block."""
    lines: list[str] = []
    condition = None
    for first, *body in blocks:
        is_condition = first.startswith("if ")
        lines += body if is_condition and first == condition else [first, *body]
        condition = first if is_condition else None
    return lines


def _dimensions_in_words(dims: Sequence[int]) -> str:
    return f"dimension {dims[0]}" if len(dims) == 1 else f"dimensions {_join_with_and(list(map(str, dims)))}"


def tensor_candidate(numbers: Sequence[Number], owner: str, float_dtype: str) -> RecompileCandidate:
    """Return a candidate that replaces numbers with tensors before each call."""
    preparations: dict[CallPreparation, None] = {}
    lines_by_optimizer: dict[Path, dict[str, None]] = {}
    for number in numbers:
        dtype = f"torch.{'int64' if number.is_int else float_dtype}"
        value = f"torch.as_tensor(NAME, dtype={dtype})"
        if number.is_replaced_as_a_whole:
            values = f"torch.as_tensor(value, dtype={dtype}) for value in NAME"
            value = f"[{values}]" if number.container_type is list else f"tuple({values})"
        optimizer, key = _optimizer_and_key(number.path)
        if optimizer is not None:
            name = f"group[{key!r}]"
            lines_by_optimizer.setdefault(optimizer, {})[f"{name} = {value.replace('NAME', name)}"] = None
        else:
            preparations[CallPreparation(_assigned_path(number), value, assigns=True)] = None
    for optimizer, lines in lines_by_optimizer.items():
        loop = "\n    ".join([_PARAM_GROUPS_LOOP, *lines])
        preparations[CallPreparation(optimizer, loop)] = None
    number_names = list(dict.fromkeys(_name_in_title(number, owner) for number in numbers))
    noun = (
        "tensors" if len(number_names) > 1 or any(number.is_replaced_as_a_whole for number in numbers) else "a tensor"
    )
    paths = tuple(path for number in numbers for path in number.paths)
    return _candidate_with_preparations(
        f"Make {_join_with_and(number_names)} {noun}", "tensor", list(preparations), paths, owner
    )


def _assigned_path(number: Number) -> Path:
    """Return the path to assign to: the path of the number, or of a list or tuple that is replaced as a whole."""
    path = number.path
    return Path(path.root, path.steps[:-1]) if number.is_replaced_as_a_whole else path


def _optimizer_and_key(path: Path) -> tuple[Path | None, str]:
    """Return the path of the optimizer and the key of a hyperparameter; ``None`` and no key for any other path."""
    index_of_groups = next((index for index, step in enumerate(path.steps) if step.key == "param_groups"), None)
    if index_of_groups is None or len(path.steps) < index_of_groups + 3:
        return None, ""
    return Path(path.root, path.steps[:index_of_groups]), str(path.steps[index_of_groups + 2].key)


def _name_in_title(number: Number, owner: str) -> str:
    optimizer, key = _optimizer_and_key(number.path)
    if optimizer is None:
        return f"`{expression(_assigned_path(number), owner)}`"
    return f"`{key}` of `{expression(optimizer, owner)}`"


def numbers_left_as_tensors(candidate: RecompileCandidate, owner: str) -> list[str]:
    """Return the names of the numbers that a candidate leaves as tensors: "`step.n`", "`lr` of `optimizer`"."""
    names: dict[str, None] = {}
    for preparation in candidate.preparations:
        if not preparation.leaves_tensors:
            continue
        optimizers_and_keys = map(_optimizer_and_key, candidate.adjustment.replaced_numbers)
        keys = [key for optimizer, key in optimizers_and_keys if optimizer == preparation.path]
        name = f"`{expression(preparation.path, owner)}`"
        names.update(dict.fromkeys([f"`{key}` of {name}" for key in keys] or [name]))
    return list(names)


def with_same_layouts(candidate: RecompileCandidate) -> RecompileCandidate:
    """Return a candidate that also stops Inductor from changing memory formats."""
    return candidate + setting_candidate("Let Inductor keep memory formats", _SAME_LAYOUT_SETTINGS)


def setting_candidate(title: str, settings: Mapping[str, Any]) -> RecompileCandidate:
    """Return a candidate that changes settings."""
    return RecompileCandidate(title, ("setting",), Adjustment(settings=settings))


def expression(path: Path, owner: str) -> str:
    """Return the expression for a path."""
    steps = "".join(map(str, path.steps))
    return f"{owner if path.root.kind == 'module' else path.root.name}{steps}"


def _join_with_and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
