"""The option --device chooses one of several simulated devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_graphbreak._torch_compat.default_device import CudaDevices
from jupyter_graphbreak.ipython.options import choose_device

GPU = CudaDevices(["H100", "A100"], 1)
NO_GPU = CudaDevices(missing_reason="torch 2.13.0 is built without CUDA")


def tensor(device_type: str) -> Any:
    return SimpleNamespace(device=SimpleNamespace(type=device_type), dtype="float32")


def module(*device_types: str) -> Any:
    return SimpleNamespace(parameters=lambda: [tensor(device_type) for device_type in device_types], buffers=list)


def test_auto_uses_the_kernels_current_device() -> None:
    choice = choose_device("auto", GPU, {"x": tensor("cuda"), "n": 3, "fn": print})
    assert choice.default == "cuda:1"
    assert (choice.device.used, choice.device.name, choice.device.note) == ("cuda:1", "A100", None)


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({"model": module("cuda", "cpu")}, "model is on the CPU"),
        ({"x": tensor("cpu"), "y": tensor("cpu")}, "x, y are on the CPU"),
        ({"batch": {"ids": [tensor("cpu")]}}, "batch is on the CPU"),
        ({name: tensor("cpu") for name in "abcde"}, "a, b, c and 2 more are on the CPU"),
    ],
)
def test_auto_chooses_the_cpu_if_the_code_names_something_on_it(values: dict[str, Any], note: str) -> None:
    choice = choose_device("auto", GPU, values)
    assert choice.default is None
    assert choice.device.used == "cpu"
    assert choice.device.note == f"{note}, so the code's own devices are used"


def test_auto_without_cuda_gives_the_reason() -> None:
    choice = choose_device("auto", NO_GPU, {})
    assert (choice.default, choice.device.used, choice.device.note) == (None, "cpu", NO_GPU.missing_reason)


@pytest.mark.parametrize(("requested", "used"), [("cpu", "cpu"), ("cuda", "cuda:1"), ("cuda:0", "cuda:0")])
def test_a_requested_device_is_used_even_if_the_code_names_a_different_one(requested: str, used: str) -> None:
    choice = choose_device(requested, GPU, {"x": tensor("cpu")})
    assert (choice.default, choice.device.used, choice.device.note) == (used, used, None)


@pytest.mark.parametrize(
    ("requested", "cuda", "message"),
    [
        ("cuda", NO_GPU, "built without CUDA; use --device cpu"),
        ("cuda:2", GPU, "available: cuda:0 H100, cuda:1 A100"),
        ("tpu", GPU, "use auto, cpu, cuda or cuda:N"),
        ("cuda:x", GPU, "use auto, cpu, cuda or cuda:N"),
    ],
)
def test_an_invalid_device_is_reported_with_valid_choices(requested: str, cuda: CudaDevices, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_device(requested, cuda, {})
