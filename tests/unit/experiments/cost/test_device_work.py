"""The device work of a call is counted from profiler activities."""

from __future__ import annotations

import pytest
import torch

from jupyter_graphbreak._torch_compat.profile_ranges import Activity, record_device_activities
from jupyter_graphbreak.experiments.cost.entry_cost import device_work
from jupyter_graphbreak.report.cost import DeviceWork


def test_launches_and_synchronizations_are_counted() -> None:
    names = [
        "cudaLaunchKernel", "cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC", "hipModuleLaunchKernel",
        "cudaGraphLaunch", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy",
        "cudaMemcpyAsync", "cudaMemsetAsync", "cudaStreamIsCapturing", "cudaEventRecord", "aten::add", "triton_poi_0",
    ]  # fmt: skip
    assert device_work([Activity(name) for name in names]) == DeviceWork(5, 1, 4, 0)


def test_peak_memory_counts_only_memory_of_the_device() -> None:
    sizes = [("cuda", 100), ("cpu", 10_000), ("cuda", 50), ("cuda", -100), ("cuda", 60)]
    assert device_work([Activity("", memory, nbytes) for memory, nbytes in sizes]).peak_bytes == 150
    assert device_work([Activity("", "cuda", -100), Activity("", "cuda", 40)]).peak_bytes == 0
    assert device_work([]) == DeviceWork(0, 0, 0, 0)


def test_device_activities_cover_only_the_call_and_write_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def call() -> None:
        first = torch.ones(1000)
        second = first + 1
        del first
        second.sum()

    activities = record_device_activities(call, device=None)
    memory = [activity.nbytes for activity in activities if activity.memory_device == "cpu"]
    assert {4000, -4000} <= set(memory)
    assert sum(memory) == 0
    assert {"aten::ones", "aten::add", "aten::sum"} <= {activity.name for activity in activities}
    assert capfd.readouterr() == ("", "")
