"""Sizes that a tensor holds, such as grids and lengths: read before the call, and handed in as numbers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.remedies.drafting import FunctionNode, fresh_name, operand
from jupyter_graphbreak.remedies.forms.conditions import on_host
from jupyter_graphbreak.remedies.forms.library_sizes import switches_for
from jupyter_graphbreak.remedies.forms.site import dotted, names_bound, names_read, site_at, site_of
from jupyter_graphbreak.remedies.forms.wrapping import entry_function, wrapped
from jupyter_graphbreak.remedies.proposal import Proposal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.remedies.drafting import Splice
    from jupyter_graphbreak.remedies.forms.site import Site
    from jupyter_graphbreak.remedies.proposal import Problem

FAMILY = "sizes"
#: What may stand around a read so that it happens in each call: all else can leave it out, or repeat it.
_CERTAIN = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.Subscript, ast.Attribute, ast.Tuple, ast.List, ast.Starred, ast.With, ast.Slice,
)  # fmt: skip
#: What a value may be computed with to be the same before the call.
_PURE = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.BinOp, ast.operator, ast.Tuple, ast.UnaryOp,
    ast.unaryop, ast.expr_context, ast.keyword,
)  # fmt: skip
_METHODS = {"sum", "prod", "max", "min", "numel", "amax", "amin", "long", "int", "cumsum", "diff", "size"}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield ways to have sizes as numbers in the compiled function."""
    yield from (Proposal(FAMILY, title, code=code) for title, code in switches_for(problem))
    site = site_of(problem)
    if site is None:
        return
    yield from _counted(site)
    function = entry_function(problem, site)
    if function is not None:
        yield from _read_before(problem, site, function)


def _counted(site: Site) -> Iterator[Proposal]:
    """Count the elements of a shape without NumPy, whose numbers are tensors in a graph."""
    for call in (each for each in ast.walk(site.statement) if isinstance(each, ast.Call)):
        name = dotted(call.func)
        (shape,) = call.args if len(call.args) == 1 and not call.keywords else (None,)
        if name not in {"np.prod", "numpy.prod"} or shape is None or not _is_shape(shape):
            continue
        whole: ast.expr = call
        around = next(site.draft.ancestors(call), None)
        if isinstance(around, ast.Call) and dotted(around.func) == "int" and around.args == [call]:
            whole = around
        count = f"{site.draft.text_of(shape)}.numel()"
        splice = site.draft.replacing(whole, count)
        yield from site.edit(FAMILY, "Count the elements of a shape without NumPy", [splice])


def _is_shape(node: ast.expr) -> bool:
    """Return whether an expression is the shape of a tensor, or a part of one."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return _is_shape(node.value)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"


class _Read(NamedTuple):
    """What reads the numbers of a tensor.

    Parameters
    ----------
    call : ast.Call
        What breaks.
    tensor : ast.expr
        The tensor.
    value : str
        What is computed of it before the call.
    new : str
        What stands in the place of the call; the value's name goes where the braces are.
    """

    call: ast.Call
    tensor: ast.expr
    value: str
    new: str


def _read_before(problem: Problem, site: Site, function: FunctionNode) -> Iterator[Proposal]:
    """Read all that breaks so in the function before its call: its arguments hold it already."""
    reads: dict[ast.Call, _Read] = {}
    for place in (site, *(site_at(problem, broken.location) for broken in problem.report.breaks)):
        if place is not None and place.draft is site.draft and place.function is function:
            read = _read_of(place) or _output_size(place)
            if read is not None and _is_known_before(place, function, read.tensor):
                reads[read.call] = read
    if not any(site.node in ast.walk(call) for call in reads):
        return
    names: dict[str, str] = {}
    for read in reads.values():
        if read.value not in names:
            wishes = ("given", *(f"given_{number}" for number in range(2, len(reads) + 2)))
            free = (wish for wish in wishes if fresh_name(site.draft, wish) == wish and wish not in names.values())
            names[read.value] = next(free, fresh_name(site.draft, f"given_{len(reads) + 2}"))
    splices: list[Splice | None] = [
        site.draft.replacing(read.call, read.new.replace("{}", names[read.value])) for read in reads.values()
    ]
    lines = [f"{name} = {value}" for value, name in names.items()]
    texts = wrapped(site, function, ", ".join(names.values()), lambda inner: [*lines, f"return {inner}"], splices)
    if texts is not None:
        title = "Read the sizes before the call, and hand them in as numbers"
        yield Proposal(FAMILY, title, texts, compiles_itself=True)


def _read_of(place: Site) -> _Read | None:
    """Return what brings a tensor's numbers to the host at a break."""
    for each in (place.node, *place.draft.ancestors(place.node)):
        if isinstance(each, ast.stmt):
            return None
        tensor = on_host(each) if isinstance(each, ast.expr) else None
        if tensor is None or not isinstance(each, ast.Call):
            continue
        name = dotted(each.func).rpartition(".")[2]
        while (inner := on_host(tensor)) is not None:
            tensor = inner
        return _Read(each, tensor, place.draft.text_of(each), "{}") if name in {"item", "tolist", "int"} else None
    return None


def _output_size(place: Site) -> _Read | None:
    """Return a ``repeat_interleave`` whose size no graph knows."""
    call = place.draft.around(place.node, ast.Call)
    if call is None or dotted(call.func).rpartition(".")[2] != "repeat_interleave":
        return None
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    given = call.args[1:] if dotted(call.func) == "torch.repeat_interleave" else call.args
    repeats = named.get("repeats", given[0] if given else None)
    text = place.draft.text_of(call)
    if repeats is None or "output_size" in named or None in named or text[:-1].rstrip().endswith(","):
        return None
    value = f"int({operand(place.draft.text_of(repeats))}.sum())"
    return _Read(call, repeats, value, f"{text[:-1]}, output_size={{}})")


def _is_known_before(place: Site, function: FunctionNode, tensor: ast.expr) -> bool:
    """Return whether a value is the same before the call, and the call reads it whatever happens."""
    arguments = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    read = names_read(tensor)
    if not read & arguments or read & (names_bound(function) | _changed_in_place(function)):
        return False
    for each in ast.walk(tensor):
        called = isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _METHODS
        if not called and not isinstance(each, _PURE):
            return False
    top = place.statement
    for around in place.draft.ancestors(tensor):
        if around is function:
            break
        is_head = isinstance(around, ast.For) and any(tensor is each for each in ast.walk(around.iter))
        if isinstance(around, ast.stmt):
            top = around
        if not isinstance(around, _CERTAIN) and not is_head:
            return False
    if top not in function.body:
        return False
    before = function.body[: function.body.index(top)]
    leaves = (ast.Return, ast.Raise, ast.Assert, ast.Yield, ast.YieldFrom)
    return not any(isinstance(each, leaves) for statement in before for each in ast.walk(statement))


def _changed_in_place(function: FunctionNode) -> set[str]:
    """Return the names of what a function changes in place, or may: by a method, an item, an attribute."""
    changed: set[str] = set()
    for each in ast.walk(function):
        is_target = isinstance(each, ast.Subscript | ast.Attribute) and not isinstance(each.ctx, ast.Load)
        in_place = isinstance(each, ast.Attribute) and each.attr.endswith("_") and not each.attr.endswith("__")
        if is_target or in_place:
            changed |= names_read(each)
        if isinstance(each, ast.AugAssign):
            changed |= names_read(each.target) | names_bound(each.target)
        if isinstance(each, ast.keyword) and each.arg == "out":
            changed |= names_read(each.value)
    return changed
