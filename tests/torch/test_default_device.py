"""With a default device, torch calls operations through a method of its own. Locations stay in the user's code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.default_device import use_default_device
from jupyter_graphbreak.analysis.messages import parse_break
from jupyter_graphbreak.results import Report

BREAK_MESSAGE = """Graph break in user code at /usr/lib/python3/site-packages/torch/utils/_device.py:122
Graph Break Reason: Unsupported Tensor.item() call
  Explanation: Dynamo does not support it.
User code traceback:
  File "/home/me/train.py", line 20, in <module>
    step(x)
  File "/home/me/train.py", line 8, in step
    count = x.sum().item()
  File "/usr/lib/python3/site-packages/torch/utils/_device.py", line 122, in __torch_function__
    return func(*args, **kwargs)
"""


def compute_on_default_device(x: torch.Tensor) -> torch.Tensor:
    y = x + torch.zeros(3)
    count = y.sum().item()
    if y.sum() > 0:
        y = y * count
    torch._dynamo.graph_break()
    return y - y.nonzero().sum()


@pytest.fixture(autouse=True)
def reset_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def report_with_default_device(device: str | None) -> Report:
    torch._dynamo.reset()
    with use_default_device(device), jupyter_graphbreak.capture() as run:
        torch.compile(compute_on_default_device, backend="eager")(torch.ones(3))
    return run.report


def test_locations_are_the_same_without_a_default_device() -> None:
    plain_report, device_report = report_with_default_device(None), report_with_default_device("cpu")
    assert len(plain_report.breaks) == 4
    assert [break_.location for break_ in device_report.breaks] == [break_.location for break_ in plain_report.breaks]
    assert [break_.stack for break_ in device_report.breaks] == [break_.stack for break_ in plain_report.breaks]
    ops, plain_ops = (
        [op.location for graph in report.graphs for op in graph.ops] for report in (device_report, plain_report)
    )
    assert ops == plain_ops != []


def test_the_stack_of_a_message_has_no_frames_of_the_device_mode() -> None:
    message = parse_break(BREAK_MESSAGE, None)
    assert (message.file, message.line) == ("/home/me/train.py", 8)
    assert [entry.line for entry in message.stack] == [20, 8]
