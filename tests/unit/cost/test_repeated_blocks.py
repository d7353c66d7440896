"""A block that repeats is found by the lines that led to its operations."""

from __future__ import annotations

from jupyter_graphbreak.cost.repeated_blocks import RepeatedBlock, advice, repeated_blocks
from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.schema import Device, Graph, Op, Report


def op(function: str, line: int, target: str) -> Op:
    return Op("y", target, Location("s1", line, line, function=function))


def report(*ops: Op) -> Report:
    return Report("ok", Device("auto", "cpu"), graphs=[Graph("A", "model", "0/0", list(ops))])


BLOCK = [op("Block.forward", 5, "linear"), op("Block.forward", 6, "relu"), op("Block.forward", 7, "linear")]


def test_a_block_that_repeats_is_found() -> None:
    once = op("Block.forward", 9, "print")
    found = repeated_blocks(report(op("model", 1, "embedding"), *BLOCK, *BLOCK, once, *BLOCK, *BLOCK))
    assert found == [RepeatedBlock("Block.forward", 4, 13)]
    assert advice(found[0]).startswith("Block.forward was captured 4 times: ")


def test_what_runs_twice_or_is_one_line_is_no_block() -> None:
    assert repeated_blocks(report(*BLOCK, *BLOCK)) == []
    assert repeated_blocks(report(*[op("norm", 3, "mul")] * 9)) == []
    assert repeated_blocks(report()) == []
