"""Read the programs whose breaks, recompiles and bypassed caches the pages show, with the fixes of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from jupyter_graphbreak.knowledge.cache_bypasses import CACHE_BYPASSES

_EXAMPLES = Path(__file__).parent / "cause_examples"
_RECOMPILES = Path(__file__).parent / "recompile_examples"
_BYPASSES = Path(__file__).parent / "bypass_examples"
#: The examples by what the code does, in the order of the page that lists them.
KINDS = {
    "It needs a number that depends on a tensor's values": (
        "branch while_tensor branch_raise branch_try branch_assert item item_check math_function tolist tolist_sizes "
        "np_prod slice equal sorted groupby list_index index_computed range_of_tensor format_tensor new_full "
        "tuple_order"
    ),
    "The size of a result depends on values": (
        "mask mask_assigned nonzero repeat_interleave bincount one_hot no_meta_kernel no_fake_kernel non_compliant_op"
    ),
    "It prints, logs or measures": (
        "print logging get_logger reorder skipped_warn catch_warnings skipped_time datetime repr"
    ),
    "It draws random numbers": (
        "skipped_random random_arithmetic numpy_random random_ random_generator generator_argument uniform_from "
        "numpy_stream"
    ),
    "It calls something that Dynamo does not trace": (
        "skipped_library skipped_tqdm file method_json method_context_variable lock uncaught assert_failed data_ptr "
        "is_inference inference_mode numpy_vectorize numpy_off numpy_method statistics contextlib_off next dict_view "
        "hasattr import_ class compile_in_compile cudnn device_context simple_namespace pow max_key eval copy_dict "
        "bisect finditer gc len_of_c_object iterator_argument default_object str_of_c_object dataclass_fields "
        "mapping_proxy getattr_in_c ndarray_dtype unittest_warns profiler ask_machine redirect exception_class "
        "own_hash typed_dict array_of_text check_message"
    ),
    "The break is in a block": "loop with_block",
    "Something is in use across a break": "object_across generator_across dict_keys_tensor mapping_proxy_tensor",
    "It does a training step's work": (
        "backward backward_returned autograd_grad hook requires_grad grad_fn deepcopy deepcopy_container "
        "deepcopy_module parameter requires_grad_result requires_grad_created module_hook checkpoint "
        "function_duplicate retain_grad functorch optimizer_closure classmethod_forward autograd_modes mark_dirty"
    ),
    "It uses tensors in an unusual way": (
        "data_dtype data_assigned resize resize_as set_of_tensors sparse sparse_factory to_sparse tensor_attribute "
        "nested share_memory data_ptr_equal nbytes view_in_place out_argument"
    ),
    "Dynamo leaves it out on purpose": (
        "rnn generator generator_send scripted disable disable_inside graph_break step_unsupported skip_frame"
    ),
}
#: The kinds of recompiles, the usual ones first.
RECOMPILES = (
    "size size_one equal_sizes size_condition parameter_size int float flag string none list_length growing_list "
    "dict_keys global module_int instances closure requires_grad grad_mode training default_dtype dtype rank stride "
    "same_tensor"
)
_CODE = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_OUTCOME = re.compile(r"^(?:(?:breaks|compilations) \d+|caches .*) -> .*$", re.MULTILINE)


@dataclass(frozen=True)
class Fix:
    """A change that removes a break, prevents recompiles, or lets a cache keep a graph.

    Parameters
    ----------
    title, text, code : str
    is_safe : bool
        Whether the changed program does the same for all inputs.
    outcome : str
        The numbers of breaks and graphs, or of compilations, before and after, or which caches have the graph, and
        what differs.
    """

    title: str
    is_safe: bool
    text: str
    code: str
    outcome: str


@dataclass(frozen=True)
class Example:
    """A program with a break, recompiles or a bypassed cache, and fixes in the order to try them.

    Parameters
    ----------
    name : str
        The name of the file.
    title, code, explanation : str
    ids : tuple of str
        The causes on whose pages the example is; of a recompile, the guard that fails first; of a bypassed cache, the
        name of the cause.
    fixes : tuple of Fix
    """

    name: str
    title: str
    ids: tuple[str, ...]
    code: str
    explanation: str
    fixes: tuple[Fix, ...]


def examples() -> list[Example]:
    """Return all examples, in the order of ``KINDS``; those that are not listed there come last."""
    order = [name for names in KINDS.values() for name in names.split()]
    paths = sorted(
        _EXAMPLES.glob("*.md"), key=lambda path: order.index(path.stem) if path.stem in order else len(order)
    )
    return [_parse(path.stem, path.read_text(encoding="utf-8")) for path in paths]


def recompiles() -> list[Example]:
    """Return the kinds of recompiles, in the order of ``RECOMPILES``."""
    texts = {name: (_RECOMPILES / f"{name}.md").read_text(encoding="utf-8") for name in RECOMPILES.split()}
    return [_parse(name, text, separator="\n") for name, text in texts.items()]


def bypasses() -> dict[str, Example]:
    """Return the examples of bypassed caches by the names of their causes."""
    paths = {entry.name: _BYPASSES / f"{entry.name.replace(' ', '_')}.md" for entry in CACHE_BYPASSES}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items() if path.exists()}
    return {name: _parse(name, text, separator="\n") for name, text in texts.items()}


def _parse(name: str, text: str, separator: str | None = None) -> Example:
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    title, ids, remaining_text = head.removeprefix("# ").split("\n", 2)
    return Example(
        name,
        title,
        tuple(ids.split(separator)),
        _code(remaining_text),
        _CODE.sub("", remaining_text).strip(),
        tuple(map(_parse_fix, sections)),
    )


def _parse_fix(text: str) -> Fix:
    heading, _, body = text.partition("\n")
    title, _, mark = heading.rpartition(" ")
    text = _OUTCOME.sub("", _CODE.sub("", body)).strip()
    return Fix(title.removesuffix(" (changes"), mark == "(safe)", text, _code(body), _find(_OUTCOME, body)[0])


def _code(text: str) -> str:
    return _find(_CODE, text)[1]


def _find(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.search(text)
    if match is None:
        raise ValueError(f"an example lacks a part: {text}")
    return match
