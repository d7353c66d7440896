"""Graphs that run without a CUDA graph, with the reason and the line that causes it."""

from __future__ import annotations

import logging
import sys

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.recording.recorder import record
from jupyter_graphbreak.report.schema import CudagraphSkip


@pytest.fixture(autouse=True)
def reset_dynamo_and_mute_logs(caplog: pytest.LogCaptureFixture) -> None:
    torch.compiler.reset()
    caplog.set_level(logging.CRITICAL)


def break_once(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    return y.sin()


def reported_skips(reason: str) -> list[CudagraphSkip]:
    """Return the skips in the report if PyTorch logs a skip with this reason outside of a compilation."""
    utils = sys.modules["torch._inductor.cudagraph_utils"]
    with record() as recording:
        utils.log_cudagraph_skip_and_bump_counter(reason)
    return build_report(recording.records).cudagraph_skips


def test_graphs_without_a_cuda_graph_are_reported_with_reason_and_line() -> None:
    with jupyter_graphbreak.capture() as run:
        torch.compile(break_once, backend="cudagraphs")(torch.ones(3))
    report = run.report
    assert [(skip.graph, skip.reason.partition(" (")[0]) for skip in report.cudagraph_skips] == [
        ("A", "cpu device"),
        ("B", "cpu device"),
    ]
    lines = [skip.location.code for skip in report.cudagraph_skips if skip.location is not None]
    assert lines == ["y = x + 1", "return y.sin()"]
    text = report.to_text()
    assert "graph A runs without a CUDA graph: cpu device" in text
    assert "graph B runs without a CUDA graph: cpu device" in report.to_html()
    assert not {"arg0_1"} & set(report.redacted().to_json().decode().split('"'))


def test_the_mode_for_cuda_graphs_changes_nothing_on_a_cpu() -> None:
    with jupyter_graphbreak.capture() as run:
        torch.compile(break_once, mode="reduce-overhead")(torch.ones(3))
    text = " ".join(run.report.to_text().split())
    assert "graph A runs without a CUDA graph: it runs on the CPU, but CUDA graphs need a GPU" in text
    torch.compiler.reset()
    with jupyter_graphbreak.capture() as run:
        torch.compile(break_once)(torch.ones(3))
    assert not run.report.cudagraph_skips


def test_a_log_has_the_last_reason_of_a_frame() -> None:
    with record() as recording:
        torch.compile(break_once, backend="cudagraphs")(torch.ones(3))
    live_skips = build_report(recording.records).cudagraph_skips
    records_of_torch = [entry for entry in recording.records if entry.kind != "graphbreak_cudagraph_skip"]
    assert build_report(records_of_torch).cudagraph_skips == live_skips


def test_a_skip_while_a_graph_runs_has_a_reason_without_a_graph() -> None:
    stack = f'  File "{__file__}", line {break_once.__code__.co_firstlineno + 1}, in break_once\n    y = x + 1\n'
    (skip,) = reported_skips(f"skipping cudagraphs due to mutated inputs (1 instances). Found from : \n {stack}")
    assert (skip.reason, skip.graph) == ("mutated inputs (1 instances)", None)
    assert skip.location is not None
    assert (skip.location.line, skip.location.function) == (break_once.__code__.co_firstlineno + 1, "break_once")
    assert reported_skips("skipping cudagraphs due to bisector") == [CudagraphSkip("bisector")]


def test_nothing_stays_patched() -> None:
    utils = sys.modules["torch._inductor.cudagraph_utils"]
    original = utils.get_metrics_context
    with record():
        assert utils.get_metrics_context is not original
    assert utils.get_metrics_context is original


def test_a_backend_without_cuda_graphs_has_no_skips() -> None:
    with jupyter_graphbreak.capture() as run:
        torch.compile(break_once, backend="eager")(torch.ones(3))
    assert run.report.cudagraph_skips == []
