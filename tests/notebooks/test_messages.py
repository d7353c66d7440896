"""PyTorch still raises the messages that the pages about messages quote."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the pages have the messages of this release"),
]

PAGES = "".join(
    page.read_text(encoding="utf-8") for page in sorted((Path(__file__).parents[2] / "notebooks").glob("messages*.md"))
)
X = torch.ones(3)


def _compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, **{"backend": "aot_eager", **options})


def _forbidden_recompile() -> None:
    compiled_function = _compile(lambda x: x + 1)
    compiled_function(X)
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled_function(torch.ones(3, 2))


def _unknown_stance() -> None:
    with torch.compiler.set_stance("eager"):
        _compile(lambda x: x + 1)(X)


def _real_tensor_in_a_fake_kernel() -> None:
    @torch.library.custom_op("messages::shifted", mutates_args=())
    def shift(x: torch.Tensor) -> torch.Tensor:
        return x + X

    shift.register_fake(lambda x: x + X)
    _compile(lambda x: shift(x) + 1)(X)


def _operator_without_fake_kernel() -> None:
    @torch.library.custom_op("messages::opaque", mutates_args=())
    def clone_tensor(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    _compile(lambda x: clone_tensor(x) + 1)(X)


def _operator_with_list_and_default() -> None:
    @torch.library.custom_op("messages::listed", mutates_args=())
    def copy_to_list(x: torch.Tensor, flag: bool = False) -> list[torch.Tensor]:
        return [x * 2 if flag else x.clone()]

    copy_to_list.register_fake(lambda x, flag=False: [torch.empty_like(x)])  # noqa: ARG005 - the schema requires the parameters
    copy_to_list.register_autograd(lambda _ctx, gradients: (gradients[0], None))
    _compile(lambda x: copy_to_list(x)[0] + 1)(torch.ones(3, requires_grad=True))


def _operator_that_returns_its_input() -> None:
    @torch.library.custom_op("messages::same", mutates_args=())
    def return_input(x: torch.Tensor) -> torch.Tensor:
        return x

    return_input.register_fake(torch.empty_like)
    _compile(lambda x: return_input(x) + 1)(X)


def _two_sizes_in_a_fake_kernel() -> None:
    @torch.library.custom_op("messages::nonzero", mutates_args=())
    def nonzero(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero()

    @nonzero.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        torch.library.get_ctx().new_dynamic_size()
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(), 1, dtype=torch.long)

    _compile(lambda x: nonzero(x) + 1, fullgraph=True)(X)


def _tensor_kept_during_tracing() -> None:
    kept_tensors = []

    @torch._dynamo.nonstrict_trace
    def keep(x: torch.Tensor) -> torch.Tensor:
        kept_tensors.append(x)
        return x + 1

    _compile(lambda x: keep(x) + 1)(X)
    kept_tensors[-1].sum().item()


def _check_value(x: torch.Tensor) -> torch.Tensor:
    n = int(x.sum().int().item())
    torch._check(n < 3)
    return torch.ones(n)


def _select_positive(x: torch.Tensor) -> torch.Tensor:
    chosen = x[x > 0]
    return x if chosen.shape[0] == 0 else chosen + 1


def _size_outside_its_range() -> None:
    x = torch.ones(3)
    torch._dynamo.mark_dynamic(x, 0, min=4, max=8)
    _compile(lambda x: x + 1)(x)


def _two_losses() -> None:
    x = torch.ones(3, requires_grad=True)
    first, second = _compile(lambda x: ((x * 2).exp(), (x + 1).sin()))(x)
    first.sum().backward()
    second.sum().backward()


def _changed_result() -> None:
    y = _compile(lambda x: x.exp(), backend="inductor")(torch.ones(3, requires_grad=True))
    y.add_(1).sum().backward()


def _inference_tensor_in_a_backward_pass() -> None:
    with torch.inference_mode():
        x = torch.ones(3)
    weight = torch.ones(3, requires_grad=True)
    _compile(lambda x: (x * weight).sum())(x)


def _tf32_set_with_the_new_api() -> None:
    precision = torch.get_float32_matmul_precision()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        _ = torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.set_float32_matmul_precision("high")
        assert torch.backends.cuda.matmul.allow_tf32
        torch.set_float32_matmul_precision(precision)


class FunctionModule(nn.Module):
    """A module that calls a function in its forward method."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def _export(function: Callable[..., Any], x: Any = X, **options: Any) -> torch.export.ExportedProgram:
    return torch.export.export(FunctionModule(function), (x,), **options)


def _view_as_pairs(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0] // 2, 2)


def _weight_masked_in_place() -> None:
    class MaskedLinear(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data *= 2
            return super().forward(x)

    _compile(MaskedLinear(3, 3))(X)


def _copy_of_a_result() -> None:
    module = FunctionModule(lambda x: x)
    module.register_buffer("kept", nn.Linear(3, 3)(X))
    copy.deepcopy(module)


def _operator_without_types() -> None:
    torch.library.custom_op("messages::untyped", lambda x: x, mutates_args=())


def _namespace_defined_twice() -> None:
    libraries = [torch.library.Library("messages_twice", "DEF") for _ in range(2)]
    assert libraries


def _gradient_of_a_change() -> None:
    @torch.library.custom_op("messages::added", mutates_args={"x"})
    def add_one(x: torch.Tensor) -> None:
        x.add_(1)

    add_one.register_autograd(lambda _, gradient: gradient)


def _undeclared_change() -> None:
    @torch.library.custom_op("messages::undeclared", mutates_args=())
    def change_undeclared(x: torch.Tensor) -> None:
        x.add_(1)

    torch.library.opcheck(change_undeclared, (torch.ones(2),))


def _changed_parameter() -> None:
    class DoubledLinear(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data.copy_(self.weight.data * 2)
            return super().forward(x)

    torch.export.export(DoubledLinear(3, 3), (X,))


def _function_without_setup() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    torch.vmap(Double.apply)(X)


def _operator_without_namespace() -> None:
    @torch.library.custom_op("scale", mutates_args=())
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    scale(X)


def _fake_tensors_of_two_modes() -> None:
    first, second = FakeTensorMode(), FakeTensorMode()
    with first:
        x = torch.ones(3)
    with second:
        _ = x + 1


def _break_in_a_branch() -> None:
    def break_graph(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    _compile(lambda x: torch.cond(x.sum() > 0, break_graph, torch.neg, (x,)))(X)


def _nan_in_a_gradient() -> None:
    with torch.autograd.detect_anomaly():
        _compile(lambda x: (x.sqrt() * 0).sum())(torch.zeros(3, requires_grad=True)).backward()


def _module_compiled_too_early() -> None:
    class EarlyNet(nn.Module):
        def __init__(self) -> None:
            self.layer = torch.compile(nn.Linear(2, 2))
            super().__init__()

    EarlyNet()


class AddEveryOther(nn.Module):
    """A module that adds every other column of its second argument to the first."""

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x + z[:, ::2]


def _excluded_size() -> None:
    sizes = {1: torch.export.Dim("x")}, {1: torch.export.Dim("z")}
    torch.export.export(AddEveryOther(), (torch.ones(2, 8), torch.ones(2, 16)), dynamic_shapes=sizes)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "A callable function is expected": lambda: torch.compile(X),  # type: ignore[call-overload]
    "Invalid backend: 'inductr'": lambda: _compile(lambda x: x, backend="inductr")(X),
    "Unexpected type of attr": lambda: _compile(lambda x: x, backend="inductor", options={"max_autotune": "a"})(X),
    "capture_scalar_output does not exist": lambda: setattr(torch._dynamo.config, "capture_scalar_output", True),
    "Linear does not support len()": lambda: len(torch.compile(nn.Linear(2, 2))),  # type: ignore[arg-type]
    "invalid torch.compile stance": _unknown_stance,
    "Attempt to trace forbidden callable": lambda: _compile(lambda x: (torch._dynamo.mark_dynamic(x, 0), x + 1)[1])(X),
    "Detected recompile when torch.compile stance is 'fail_on_recompile'": _forbidden_recompile,
    "mix of the legacy and new APIs to set the TF32 status": _tf32_set_with_the_new_api,
    "Graph breaks are not supported with aot compile": lambda: _compile(lambda x: x).aot_compile(((X,), {})),  # type: ignore[attr-defined]
    "Dynamo failed to run FX node with fake tensors": lambda: _compile(torch.matmul)(torch.ones(2, 3), torch.ones(2)),
    "Cannot view a tensor with shape": lambda: _compile(lambda x: x.t().view(-1))(torch.ones(2, 3)),
    "Please convert all Tensors to FakeTensors first": _real_tensor_in_a_fake_kernel,
    "Attempting to use FunctionalTensor on its own": _tensor_kept_during_tracing,
    "Could not guard on data-dependent expression Eq(u0, 0)": lambda: _compile(_select_positive, fullgraph=True)(X),
    "u0 <= 2": lambda: _compile(_check_value, fullgraph=True)(X),
    "3 not in range [4, 8]": _size_outside_its_range,
    "Pending unbacked symbols {u0} not in returned outputs": _two_sizes_in_a_fake_kernel,
    "Trying to backward through the graph a second time": _two_losses,
    "which is output 0 of CompiledFunction": _changed_result,
    "Inference tensors cannot be saved for backward": _inference_tensor_in_a_backward_pass,
    "There was no fake impl registered for": _operator_without_fake_kernel,
    "Expected the return from backward to be of the same structure as the inputs": _operator_with_list_and_default,
    "The output of this custom operator (1) must not also be an input": _operator_that_returns_its_input,
    "Encountered a set_ on a graph input, but the input has other mutations": _weight_masked_in_place,
    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol": _copy_of_a_result,
    "vmap: called random operation while in randomness error mode": lambda: torch.vmap(lambda x: x + torch.rand(2))(X),
    "infer_schema(func): Parameter x must have a type annotation": _operator_without_types,
    "Only a single TORCH_LIBRARY can be used to register the namespace": _namespace_defined_twice,
    "Cannot register autograd formula for non-functional operator": _gradient_of_a_change,
    "Argument x is not defined as mutable but was mutated": _undeclared_change,
    "symbolically traced variables cannot be used as inputs to control flow": lambda: torch.fx.symbolic_trace(
        FunctionModule(lambda x: x if x.sum() > 0 else -x)
    ),
    "using FX to symbolically trace a dynamo-optimized function": lambda: torch.fx.symbolic_trace(
        FunctionModule(_compile(torch.sin))
    ),
    "Could not guard on data-dependent expression u0 > 4": lambda: _export(
        lambda x: x + 1 if x.max().item() > 4 else x, torch.tensor([2, 1])
    ),
    "Could not extract specialized integer from data-dependent expression u0": lambda: _export(
        lambda x: x + 1 if len(x[x > 0]) == 0 else x
    ),
    "satisfy the generated guard (L['x'].size()[0] % 2) == 0": lambda: _export(
        lambda x: _view_as_pairs(x) if x.shape[0] % 2 == 0 else x,
        torch.ones(4),
        dynamic_shapes=({0: torch.export.Dim("b")},),
    ),
    "export 0/1 specialized due to hint of 1": lambda: _export(
        lambda x: x + 1, torch.ones(1), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    ),
    "its top-level keys must be the arg names": lambda: _export(lambda x: x + 1, dynamic_shapes={"y": {0: None}}),
    "Guard failed: x.size()[0] == 4": lambda: _export(lambda x: x + 1, torch.ones(4)).module()(torch.ones(5)),
    "Trying to flatten user inputs with exported input tree spec": lambda: _export(lambda x: x + 1).module()(X, X),
    "Ran into a kwarg keyword mismatch": lambda: _export(lambda x: x + 1).module()(y=X),
    "Unable to call ExportedProgram directly": lambda: _export(lambda x: x + 1)(X),
    "We found a fake tensor in the exported program constant's list": _changed_parameter,
    "it must override the setup_context staticmethod": _function_without_setup,
    "not enough values to unpack (expected 2, got 1)": _operator_without_namespace,
    "Export only supports pytree containers": lambda: _export(lambda x: x, object()),
    ".numpy() is not supported for tensor subclasses": lambda: _export(lambda x: torch.from_numpy(x.numpy() + 1)),
    "Calling train() is not supported yet": lambda: _export(lambda x: x + 1).module().train(),
    "Only ExportedProgram is supported": lambda: torch._inductor.aoti_compile_and_package(nn.Linear(2, 2)),
    "Mixing fake modes NYI": _fake_tensors_of_two_modes,
    "This higher order operator doesn't work unless it is captured completely with torch.compile": _break_in_a_branch,
    "Function 'CompiledFunctionBackward' returned nan values in its 0th output": _nan_in_a_gradient,
    "cannot assign module before Module.__init__() call": _module_compiled_too_early,
    "((1 + L['z'].size()[1]) // 2) != 1": _excluded_size,
    "Failed to initialize zip archive: file open failed": lambda: torch._inductor.aoti_load_package("missing.pt2"),
    "index out of bounds: 0 <= tmp": lambda: _compile(lambda x, i: x[i] + 1, backend="inductor")(X, torch.tensor([5])),
}


@pytest.mark.parametrize("message", PROGRAMS)
def test_pytorch_raises_the_message_that_a_page_quotes(message: str) -> None:
    torch.compiler.reset()
    with warnings.catch_warnings(action="ignore"), pytest.raises(Exception) as caught:  # noqa: PT011
        PROGRAMS[message]()
    assert message in str(caught.value)
    assert message in PAGES
