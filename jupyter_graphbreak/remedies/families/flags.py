"""Settings of torch._dynamo.config that make something traceable, each only where it applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.remedies.proposal import Proposal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jupyter_graphbreak.remedies.proposal import Problem

FAMILY = "setting"
_CONFIG = "torch._dynamo.config."
_SCALARS = {"capture_scalar_outputs": True}
_SHAPES = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}

#: The settings by the break that they can remove, the one that does less first.
_BY_GB_ID: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "GB0014": ({"allow_rnn": True},),
    "GB0029": ({"compiled_autograd": True},),
    "GB0033": (_SCALARS, _SHAPES),
    "GB0036": ({"capture_dynamic_output_shape_ops": True}, _SHAPES),
    "GB0038": (_SCALARS,),
    "GB0039": ({"recompile_limit": 64},),
    "GB0060": ({"enable_trace_unittest": True},),
    "GB0067": ({"skip_fwd_side_effects_in_bwd_under_checkpoint": True},),
    "GB0075": ({"enable_trace_load_build_class": True},),
    "GB0083": ({"compiled_autograd": True},),
    "GB0105": ({"trace_numpy": True},),
    "GB0109": (_SCALARS,),
    "GB0123": ({"trace_autograd_ops": True},),
    "GB0124": (_SCALARS, _SHAPES),
    "GB0160": (_SCALARS,),
    "GB0231": ({"trace_numpy": True},),
    "GB0253": ({"enable_faithful_generator_behavior": False},),
    "GB0263": ({"enable_trace_contextlib": True},),
    "GB0264": ({"graph_break_on_nn_param_ctor": False},),
    "GB0269": ({"debug_force_graph_break_on_leaf_return": False},),
    "GB0293": ({"trace_numpy": True},),
    "GB0298": ({"use_numpy_random_stream": False},),
    "GB0328": ({"inline_inbuilt_nn_modules": True},),
    "GB8977": ({"enable_trace_load_build_class": True},),
    "GB9186": ({"trace_autograd_ops": True},),
}
#: PyTorch before 2.10 gives some of these no id.
_BY_TYPE = {
    "Dynamic shape operator": "GB0036",
    "Data dependent operator": "GB0033",
    "Attempted to wrap RNN, GRU, or LSTM": "GB0014",
}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield the settings that can make what broke the graph traceable."""
    break_ = problem.break_
    gb_id = break_.gb_id or _BY_TYPE.get(break_.gb_type, "")
    if gb_id not in _BY_GB_ID and "Tensor.item()" in break_.gb_type:
        gb_id = "GB0124"
    for settings in _BY_GB_ID.get(gb_id, ()):
        title = " and ".join(f"{name} = {value!r}" for name, value in settings.items())
        yield Proposal(FAMILY, f"Set {title}", settings={_CONFIG + name: value for name, value in settings.items()})
