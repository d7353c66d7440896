"""Advice on numbers that vary between calls, depending on who owns the number and what the code does with it."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jupyter_graphbreak.report.guards import names_of_keeping_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jupyter_graphbreak.report.location import HeadKind

#: The owner of a number, on which it depends whether the number can vary within one graph.
Owner = Literal["global", "module", "attribute", "variable"]
#: How a line uses a number: as an operand, as the only index, as an index beside others, or in any other way.
Use = Literal["arithmetic", "index", "index next to others", "other"]
#: Of several uses of one number, the first of these counts.
_USES_BY_PRIORITY: tuple[Use, ...] = ("index next to others", "index", "other", "arithmetic")

_NUMBER = re.compile(r"-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)")
_INTEGER = re.compile(r"-?\d+")
#: The conversion of an index in the containers of ``torch.nn``, such as ``ModuleList``.
_LIST_INDEX = "= operator.index("
#: The setting for integers that are attributes of modules.
_MODULE_SETTING = "`torch._dynamo.config.allow_unspec_int_on_nn_module = True`"
_DYNAMIC_SETTING = "`torch.compile(..., dynamic=True)`"
#: The advice for numbers that are constants because they are indices next to slices: ``cache[:, position]``.
_ADVICE_ON_INDEX = (
    "an index next to slices is a constant, even with `dynamic=True`: use `select()`, such as `x.select(1, {name})` "
    "for `x[:, {name}]` and `x.select(1, {name})[...] = y` for `x[:, {name}] = y`"
)


@dataclass(frozen=True, slots=True)
class VariedNumber:
    """A number on which guards failed, with the distinct values that the guards expected.

    ``owner`` is where the function finds the number: in a global variable, in a module, in any other object, or in a
    variable. An attribute may belong to a module that is not known to be one. ``lines`` created the guards, and
    ``functions`` contain them, as far as they are known; ``heads`` tells whether the lines are heads of loops or of
    conditions. If the function is called between breaks, its guards do not show all uses of the number.
    """

    name: str
    values: Sequence[str]
    owner: Owner
    lines: Sequence[str]
    heads: set[HeadKind | None]
    functions: Sequence[str] = ()
    is_inner: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether all values are integers."""
        return all(map(_INTEGER.fullmatch, self.values))

    @property
    def is_constant(self) -> bool:
        """Whether the second graph has a constant for the number as well, although PyTorch tries a symbol for it."""
        return len(self.values) > 1

    @property
    def use(self) -> Use:
        """The way in which the lines use the number."""
        return _most_important_use(use_of_number(self.name, line) for line in self.lines)

    @property
    def can_be_tensor(self) -> bool:
        """Whether the functions use the number only as an operand; ``math.cos`` would turn a tensor into a number."""
        return all(use_of_number(self.name, code) == "arithmetic" for code in (*self.lines, *self.functions))


def is_number(text: str) -> bool:
    """Return whether the text of a value is a number."""
    return _NUMBER.fullmatch(text) is not None


def owner_of(guard: str, name: str, *, is_module_method: bool) -> Owner:
    """Return where a function finds a number, given PyTorch's guard and the number's name in the code."""
    if guard.startswith("G["):
        return "global"
    if "._modules[" in guard or (is_module_method and name.startswith("self.")):
        return "module"
    return "attribute" if "." in name else "variable"


def advice_on_number(number: VariedNumber) -> str:
    """Return advice on a number that a program passes to a compiled function or that the function reads."""
    function = next(filter(None, names_of_keeping_function(number.name)), "")
    if function:
        argument = "pass the number to the compiled function as an argument"
        is_default = "defaults__" in number.name and number.is_integer
        advice = f"{argument}, with `dynamic=True`" if is_default else f"use {_DYNAMIC_SETTING}, or {argument}"
        return f"`{function}` is a new function on every call, and keeps the number: {advice}"
    if "loop" in number.heads:
        return (
            "the loop is unrolled, so each number of steps has its own graph, even with `dynamic=True`: use few "
            "numbers of steps, or call a compiled step from an uncompiled loop"
        )
    if number.use == "index next to others" and number.is_integer:
        return _ADVICE_ON_INDEX.format(name=number.name)
    return _advice_without_loop(number)


def _advice_without_loop(number: VariedNumber) -> str:
    """Return advice on a number that is neither kept by a new function nor the number of steps of a loop."""
    name, is_condition = number.name, "condition" in number.heads
    tensor = f", or a tensor instead of a number: `{name} = torch.tensor({number.values[0]})`"
    end = tensor if number.lines and number.can_be_tensor and not is_condition and not number.is_inner else ""
    end += "; each branch of the condition has its own graph even then" if is_condition else ""
    if number.owner == "global" and number.is_integer:
        variable = re.split(r"[.\[]", name, maxsplit=1)[0]
        return (
            "an integer that a function reads from a global variable is a constant, even with `dynamic=True`: pass "
            f"`{variable}` to the function as an argument{end}"
        )
    if number.use == "index":
        item = f"pass the item itself instead of `{name}`"
        if number.is_constant:
            return f"an index into a list is a constant, even with `dynamic=True`: {item}"
        return f"if it is an index into a tensor, use {_DYNAMIC_SETTING}; into a list or a `ModuleList`, {item}"
    if number.owner == "module" and number.is_integer:
        return f"an integer of a module is a constant, even with `dynamic=True`: set {_MODULE_SETTING}{end}"
    if number.is_constant:
        setting = f"; for an integer of a module, set {_MODULE_SETTING}" if number.owner == "attribute" else ""
        return f"each value of `{name}` is compiled separately, even with `dynamic=True`: use few values{setting}"
    return f"use {_DYNAMIC_SETTING}{end}"


def use_of_number(name: str, code: str) -> Use:
    """Return how a line uses a number, such as ``self.step``.

    An operand inside an argument or an index, as in ``x.view(n * 2, -1)``, may have to be a number: its use is
    ``other``. An assignment to the number, as in ``self.step += 1``, does not count as a use. ``name`` is the
    expression that reads the number. ``code`` is the line, which need not be a complete statement, or the function.
    """
    if _LIST_INDEX in code:
        return "index"
    tree, expression = _parse(code), _parse(name)
    if tree is None or expression is None or not isinstance(expression.body[0], ast.Expr):
        return "other"
    key = ast.dump(expression.body[0].value)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    return _most_important_use(
        _use_of_node(node, parents) for node in parents if isinstance(node, ast.expr) and ast.dump(node) == key
    )


def _most_important_use(uses: Iterable[Use]) -> Use:
    return min(uses, key=_USES_BY_PRIORITY.index, default="other")


def _use_of_node(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> Use:
    parent = parents.get(node)
    if isinstance(parent, ast.Subscript) and parent.slice is node:
        return "index"
    if isinstance(parent, ast.Tuple):
        grandparent = parents.get(parent)
        is_index = isinstance(grandparent, ast.Subscript) and grandparent.slice is parent
        return "index next to others" if is_index else "other"
    is_whole_division = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.FloorDiv | ast.Mod)
    if not isinstance(parent, ast.BinOp | ast.UnaryOp | ast.AugAssign) or is_whole_division:
        return "other"
    child: ast.AST = parent
    while isinstance(outer := parents.get(child), ast.expr):
        if isinstance(outer, ast.Subscript) and outer.slice is child:
            return "other"
        if isinstance(outer, ast.Call) and outer.func is not child:
            return "other"
        child = outer
    return "arithmetic" if not isinstance(outer, ast.keyword | ast.comprehension | ast.Slice) else "other"


def _parse(code: str) -> ast.Module | None:
    """Parse a line, or the head of a compound statement; return ``None`` if that is impossible."""
    code = code.strip().removeprefix("el")
    for text in (code, f"{code} pass"):
        try:
            with warnings.catch_warnings(action="ignore"):
                return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None
