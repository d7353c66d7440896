"""Calls with objects that cannot be copied: PyTorch sees the objects, and the run stops before it uses them."""

from __future__ import annotations

import concurrent.futures
import csv
import ctypes
import io
import queue
import sqlite3
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import jupyter_graphbreak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ONES = torch.ones(2)


class Stream(io.RawIOBase):
    """A stream whose use Dynamo traces."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, _: Any) -> int:
        self.count += 1
        return 1


def take_batch(batches: Iterator[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return x + next(batches)[0] * 2


def write(file: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    file.write("a")
    return y + 1


def enter_file(file: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    with file:
        return y + 1


def put(target_queue: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    target_queue.put(1)
    return y + 1


def submit(pool: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    pool.submit(int)
    return y + 1


def add_to_archive(archive: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    archive.writestr("a", "b")
    return y + 1


def execute(database: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    database.execute("CREATE TABLE a (b)")
    return y + 1


def write_row(writer: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    writer.writerow([1, 2])
    return y + 1


def call_library(function: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.add(x, function(4))


def count_bytes(stream: Any, x: torch.Tensor) -> torch.Tensor:
    stream.write(b"a")
    return torch.add(x, stream.count)


#: For each kind of object: a function that uses it, a function that creates it, and the description of the effect.
STOPPED_CALLS: dict[str, tuple[Callable[..., Any], Callable[[Path], Any], str]] = {
    "DataLoader": (take_batch, lambda _: iter(DataLoader(TensorDataset(ONES))), "takes a batch from a DataLoader"),
    "file": (write, lambda path: path.open("w"), "uses the open file"),
    "with file": (enter_file, lambda path: path.open("w"), "uses the open file"),
    "queue": (put, lambda _: queue.SimpleQueue(), "uses a queue of other threads"),
    "pool": (submit, lambda _: concurrent.futures.ThreadPoolExecutor(1), "passes work to another thread or process"),
    "archive": (add_to_archive, lambda path: zipfile.ZipFile(path, "w"), "uses the open file"),
    "database": (execute, lambda _: sqlite3.connect(":memory:"), "uses an open database"),
    "writer": (write_row, lambda path: csv.writer(path.open("w")), "writes to an open file"),
    "library": (call_library, lambda _: ctypes.CDLL(None).abs, "calls a library function"),
    "user class": (count_bytes, lambda _: Stream(), "uses the stream"),
}


def breaks_of(report: jupyter_graphbreak.Report) -> list[tuple[Any, ...]]:
    breaks = [
        (break_.location and (break_.location.line, break_.location.function), break_.gb_id, break_.explanation)
        for break_ in report.breaks
    ]
    return sorted(breaks, key=str)


def breaks_of_run(fn: Callable[..., Any], *args: Any) -> list[tuple[Any, ...]]:
    torch._dynamo.reset()
    with jupyter_graphbreak.capture() as run:
        torch.compile(fn, backend="eager")(*args)
    return breaks_of(run.report)


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin")
@pytest.mark.parametrize("name", STOPPED_CALLS)
def test_the_breaks_of_a_stopped_call_are_those_of_the_real_call(name: str, tmp_path: Path) -> None:
    fn, make_object, description = STOPPED_CALLS[name]
    report = jupyter_graphbreak.check(fn, make_object(tmp_path / "copied"), ONES)
    assert report.effects is not None
    (effect,) = report.effects
    assert effect.what.startswith(description)
    assert effect.location is not None
    assert effect.location.function == fn.__name__
    assert not report.diagnostics
    assert breaks_of(report) == breaks_of_run(fn, make_object(tmp_path / "real"), ONES)


@pytest.mark.parametrize("analyze", [jupyter_graphbreak.measure, jupyter_graphbreak.try_remedies])
def test_other_analyses_report_the_same_break(analyze: Callable[..., Any]) -> None:
    batches = iter(DataLoader(TensorDataset(ONES)))
    breaks = breaks_of(analyze(take_batch, batches, ONES))
    assert breaks == breaks_of_run(take_batch, batches, ONES)
    assert len(breaks) == 1


def read_mode(file: Any, x: torch.Tensor) -> torch.Tensor:
    return x + len(file.mode) if isinstance(file, io.TextIOWrapper) else x


def test_reading_an_attribute_of_a_file_breaks_nothing(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        report = jupyter_graphbreak.check(read_mode, file, ONES)
    assert (report.breaks, report.effects) == ([], None)
    assert [check.equal for check in report.check or ()] == [True]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_break_at_a_standard_stream_names_the_stream(*, is_replaced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(sys.stdout), "write", raising=False)
    if is_replaced:  # as after a test that replaced the method with pytest's monkeypatch
        monkeypatch.setitem(vars(sys.stdout), "write", sys.stdout.write)
    report = jupyter_graphbreak.check(write, sys.stdout, ONES)
    assert breaks_of(report) == breaks_of_run(write, sys.stdout, ONES)
    assert [check.equal for check in report.check or ()] == [True]
