"""Write tensors as source text."""

from __future__ import annotations

import torch

from jupyter_graphbreak._torch_compat.tensor_values import disable_gradients_and_overrides, overrides_torch_dispatch
from jupyter_graphbreak.experiments.reproducer.definitions import UnwritableError

#: The maximum number of elements of a tensor of integers that is written with its values.
_MAX_INTEGERS = 16
#: The maximum number of elements of any tensor that is written with its values, with ``uses_values``.
_MAX_EXACT_ELEMENTS = 256


def tensor_data_text(tensor: torch.Tensor, *, uses_values: bool) -> str:
    """Return an expression for a tensor like the given one, with its values or with random ones."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return _sparse_text(tensor, uses_values=uses_values)
    shape, dtype = tuple(tensor.shape), tensor.dtype
    device = "" if tensor.device.type == "cpu" else f", device={str(tensor.device.type)!r}"
    sizes = ", ".join(map(str, shape)) if shape else "()"
    is_float = dtype.is_floating_point or dtype.is_complex
    dtype_argument = "" if dtype == torch.float32 else f", dtype={dtype}"
    if tensor.device.type == "meta":
        return f"torch.empty({sizes}{dtype_argument}{device})"
    element_count = tensor.numel()
    max_exact_elements = _MAX_EXACT_ELEMENTS if uses_values else 0 if is_float else _MAX_INTEGERS
    if element_count <= max_exact_elements and tensor.is_contiguous():
        if not element_count:
            return f"torch.empty({sizes}{dtype_argument}{device})"
        written_dtype = "" if dtype in {torch.bool, torch.int64} else dtype_argument
        return f"torch.tensor({tensor.tolist()!r}{written_dtype}{device})".replace("nan", "float('nan')").replace(
            "inf", "float('inf')"
        )
    if not tensor.is_contiguous():
        empty_tensor = f"torch.empty_strided({shape}, {tuple(tensor.stride())}{dtype_argument}{device})"
        return (
            f"{empty_tensor}.normal_()"
            if is_float
            else f"{empty_tensor}.copy_({tensor_data_text(tensor.contiguous(), uses_values=uses_values)})"
        )
    if is_float:
        has_generator = dtype.itemsize > 1
        return f"torch.randn({sizes}{dtype_argument if has_generator else ''}{device})" + (
            "" if has_generator else f".to({dtype})"
        )
    if dtype == torch.bool:
        return f"torch.rand({sizes}{device}) > 0.5"
    dtype_argument = "" if dtype == torch.int64 else dtype_argument
    return f"torch.randint({int(tensor.min())}, {int(tensor.max()) + 1}, {shape}{dtype_argument}{device})"


def _sparse_text(tensor: torch.Tensor, *, uses_values: bool) -> str:
    if tensor.layout not in {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc}:
        raise UnwritableError(f"a tensor with the layout {tensor.layout} cannot be written as source text")
    coalesced_tensor = tensor.to_sparse_coo().coalesce()
    indices, shape = coalesced_tensor.indices(), tuple(tensor.shape)
    indices_text = tensor_data_text(indices, uses_values=uses_values)
    if indices.numel() > _MAX_INTEGERS:  # a random index must be below the size of its own dimension
        rows = (f"torch.randint(0, {size}, ({indices.shape[1]},))" for size in shape[: coalesced_tensor.sparse_dim()])
        indices_text = f"torch.stack([{', '.join(rows)}])"
    values_text = tensor_data_text(coalesced_tensor.values(), uses_values=uses_values)
    sparse_text = f"torch.sparse_coo_tensor({indices_text}, {values_text}, {shape})"
    if tensor.layout != torch.sparse_coo:
        return f"{sparse_text}.to_{str(tensor.layout).removeprefix('torch.')}()"
    return f"{sparse_text}.coalesce()" if tensor.is_coalesced() else sparse_text


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the data of a tensor as a plain tensor; raise an UnwritableError if its class adds more than methods."""
    class_ = type(tensor)
    if vars(tensor) or torch.nn.parameter.is_lazy(tensor) or overrides_torch_dispatch(class_):
        raise UnwritableError(f"a tensor of the class {class_.__name__} cannot be written as source text")
    with disable_gradients_and_overrides():
        return tensor.detach().as_subclass(torch.Tensor)
