"""Handwritten remedies, cost and checks for the reports of :mod:`tests.support.sample_reports`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jupyter_graphbreak.report.cost import (
    BlockDifference,
    Check,
    CompiledWay,
    Cost,
    CostPart,
    Coverage,
    Divergence,
    EntryCost,
    GraphStartup,
    GuardCost,
    MemoryChange,
    MemoryCost,
    MemoryGrowth,
    MemoryLine,
    OpCost,
    RegionCost,
    RemediedCost,
    Spread,
    Startup,
    UnfusedKernels,
)
from jupyter_graphbreak.report.location import Location, Segment, Source
from jupyter_graphbreak.report.remedies import Edit, Evidence, Remedy
from jupyter_graphbreak.report.reproducer import Reproducer

if TYPE_CHECKING:
    from jupyter_graphbreak.results import Report

COMPARED_EFFECTS = ["values", "gradients", "output"]

_HELPERS = "def centred(x):\n    return x - x.mean().item()"
_PATCH = """\
--- a/helpers.py
+++ b/helpers.py
@@ -1,2 +1,2 @@
 def centred(x):
-    return x - x.mean().item()
+    return x - x.mean()"""


def add_remedies(report: Report) -> Report:
    """Return a report of the cell with two breaks, with remedies of all eight verdicts, one of them a manual step."""
    branch = "        if score > 3:\n            y = y / score"
    loop = '    for name in ("mean", "std"):\n        print(name, getattr(x, name)())'
    both_branches = Remedy(
        "m1", ["b1"], "branch", "Compute both branches with `torch.where`", "edit", "works",
        edits=[Edit("s1", 14, 15, branch, "        y = torch.where(score > 3, y / score, y)")],
        excludes=["m2"],
        evidence=Evidence("inductor", 6, True, COMPARED_EFFECTS, 4, 3, 2, 1),
        seconds=1.2,
    )  # fmt: skip
    print_after = Remedy(
        "m4", ["b2"], "output", "Print after the call", "edit", "works but differs",
        edits=[
            Edit("s1", 5, 5, "    log_stats(x)", "    stats = x.mean(), x.std()"),
            Edit("s1", 20, 19, "", "    # printed by the caller"),
        ],
        differences=["`mean` and `std` are printed when the call ends, not while it runs"],
        evidence=Evidence("inductor", 3, None, COMPARED_EFFECTS, 4, 2, 2, 1),
    )  # fmt: skip
    return replace(
        report,
        sources=[*report.sources, Source("s2", "helpers.py", "file", "/job/helpers.py", [Segment(1, _HELPERS)])],
        remedies=[
            both_branches,
            Remedy("m2", ["b1"], "branch", "Branch with `torch.cond`", "edit", "another result",
                   edits=[Edit("s1", 14, 15, branch, "        y = torch.cond(score > 3, divide, keep, (y, score))")],
                   excludes=["m1"], differences=["the gradient of `w` is 12, not 18"]),
            Remedy("m3", ["b1"], "setting", "Set `capture_scalar_outputs = True`", "setting", "break stays",
                   settings={"torch._dynamo.config.capture_scalar_outputs": True},
                   code="torch._dynamo.config.capture_scalar_outputs = True"),
            print_after,
            Remedy("m5", ["b2"], "setting", "Reorder `print`", "setting", "another break",
                   settings={"torch._dynamo.config.reorderable_logging_functions": ["builtins.print"]},
                   code="torch._dynamo.config.reorderable_logging_functions.add(print)",
                   reason="`getattr()` with a name that is no constant (GB0010), line 20"),
            Remedy("m6", ["b2"], "hoisting", "Compile only what comes before", "edit", "fails",
                   edits=[Edit("s1", 18, 20, "def log_stats(x):\n" + loop, "")], reason="NameError: log_stats"),
            Remedy("m7", ["b1", "b2"], "switch", "Switch statistics off", "switch", "works on what ran",
                   code="model.config.log_stats = False", excludes=["m1", "m4"],
                   evidence=Evidence("inductor", 2, False, ["values", "gradients"], 4, 1, 2, 0)),
            Remedy("m8", ["b2"], "library", "Put a custom operator around it", "edit", "not tried",
                   reason="the time limit of 60 s was reached"),
            Remedy("m9", ["b2"], "person", "Decide whether the statistics are needed", "person", "not tried",
                   person="Decide whether the statistics must be printed in every step: a compiled function cannot "
                   "print values while it runs."),
            Remedy("m10", [], "marker", "Let `log_stats` be compiled", "edit", "works", frames=["3/0"],
                   edits=[Edit("s1", 18, 18, "def log_stats(x):", "def log_stats(x: Tensor):")],
                   evidence=Evidence("inductor", 1, None, ["values"], 4, 4, 2, 2)),
            Remedy("m11", ["b1"], "scalar", "Keep the mean a tensor", "edit", "works",
                   edits=[Edit("s2", 2, 2, "    return x - x.mean().item()", "    return x - x.mean()")], patch=_PATCH,
                   evidence=Evidence("inductor", 1, None, ["values"], 4, 3, 2, 1)),
        ],
    )  # fmt: skip


def add_cost(report: Report) -> Report:
    """Return a report with remedies, the cost of its compiled function, and the cost with remedies applied."""

    def spread(median: float, width: float = 0.02) -> Spread:
        return Spread(median, median * (1 - width), median * (1 + width), 40)

    return replace(
        add_remedies(report),
        startup=Startup(
            22.6, 10.2,
            [
                GraphStartup("A", 0.4, 0.2, "hit"),
                GraphStartup("B", 1.1, 3.0, "bypass", "Unsupported call_function target autograd_function_apply",
                             Location("s1", 15, 15, function="step")),
                GraphStartup("C", 0.5, 2.0, "bypass", "Unsupported call_function target cond"),
                GraphStartup("D", 0.5, 2.5, "miss"),
            ],
        ),
        cost=Cost(
            "cuda:0",
            "inductor",
            [
                EntryCost(
                    "step", "0/0", True, spread(3705), spread(4207),
                    [
                        RemediedCost(["m1"], spread(3027)),
                        RemediedCost(["m4"], spread(4190)),
                        RemediedCost(["m1", "m4"], spread(2600)),
                    ],
                    [
                        CostPart("guards", spread(14), frame="0/0"),
                        CostPart("graph", spread(1200), graph="A"),
                        CostPart("outside", spread(1340), break_="b1"),
                        CostPart("graph", spread(500), graph="B"),
                        CostPart("graph", spread(453), graph="C"),
                        CostPart("outside", spread(300), break_="b2"),
                        CostPart("graph", spread(400), graph="D"),
                    ],
                    Coverage(9, 2, 0.61),
                    ops=[
                        OpCost("C", "torch.erfinv", Location("s1", 18, 18, function="step"), spread(295), spread(1140))
                    ],
                    regions=RegionCost(
                        "Block", 12, "self.layers",
                        [
                            CompiledWay("whole", 19.3, 1, 1, time_ratio=1.0),
                            CompiledWay("nested", 9.4, 1, 1, 1, time_ratio=1.02),
                            CompiledWay(
                                "blocks", 4.1, 2, 2, time_ratio=1.16,
                                differences=[
                                    BlockDifference(1, "self.index == 0", Location("s1", 18, 18, function="step"))
                                ],
                            ),
                        ],
                    ),
                    unfused=[
                        UnfusedKernels(
                            "C", "library", 5 << 20, 1, "aten.cumsum.default",
                            Location("s1", 11, 11, function="step"), Location("s1", 18, 18, function="step"),
                        )
                    ],
                    guards=[GuardCost("0/0", "L['names']", Location("s1", 11, 11, function="step"), spread(310), 400)],
                    memory=MemoryCost(
                        48 << 20, 96 << 20, 20 << 20, 40 << 20,
                        [MemoryLine(Location("s1", 11, 11, function="step"), 16 << 20)],
                        MemoryGrowth(6, 1 << 20, 1 << 20, None, "history", Location("s1", 11, 11, function="step")),
                        [
                            MemoryChange(
                                "torch._functorch.config.activation_memory_budget = 0.5", 64 << 20, 8 << 20, True, 1.2
                            )
                        ],
                    ),
                )
            ],
        ),
    )  # fmt: skip


def add_checks(report: Report) -> Report:
    """Return a report with a check of a correct result, one of a wrong result, and standalone scripts."""
    script = "import torch\n\ndef step(x):\n    print(x)\n\ntorch.compile(step)(torch.randn(3))\n"
    return replace(
        report,
        reproducers=[
            Reproducer("b1", "graph break GB0059", script, f"### Bug\n\n```python\n{script}```\n", None, 4, 12.5),
            Reproducer("b2", "graph break GB0170", reason="step cannot be written as a script: it uses a lock."),
            Reproducer("check", "wrong result of step", script, "### Bug\n", None, 2, 9.0),
        ],
        check=[
            Check("norm", "inductor", True),
            Check(
                "step", "inductor", False, ["the value differs by 0.25"],
                Divergence("B", Location("s1", 15, 15, 12, 25, "step", "y = y / score"), "operator.truediv"), "backend",
            ),
        ],
    )  # fmt: skip


def add_hostile_text(report: Report, text: str) -> Report:
    """Return a report with remedies, cost, checks and reproducers whose strings all contain a given text."""
    spread = Spread(2.0, 1.0, 3.0, 2)
    remedy = Remedy(
        text, ["b1"], text, f"{text} `{text}`", "edit", "works but differs", frames=[text],
        edits=[Edit("s1", 1, 1, text, f"{text}\n{text}"), Edit("s2", 4, 4, text, text)], settings={text: text},
        code=text, patch=f"--- {text}\n+++ {text}\n@@ -1 +1 @@\n-{text}\n+{text}", excludes=[text], reason=text,
        differences=[text], evidence=Evidence(text, 2, True, [text], 1, 1, 1, 0), person=text,
    )  # fmt: skip
    return replace(
        report,
        reproducers=[
            Reproducer("b1", text, text, text),
            Reproducer("check", text, text, text),
            Reproducer(text, text, reason=text),
        ],
        remedies=[
            remedy,
            replace(remedy, id="2", verdict="fails", excludes=[]),
            replace(remedy, id="3", kind="person", verdict="not tried", excludes=[]),
            replace(remedy, id="4", kind="setting", edits=[], patch=None, excludes=[]),
        ],
        cost=Cost(
            text, text,
            [
                EntryCost(
                    text, text, False, spread, spread, [RemediedCost([text], spread)],
                    [CostPart("graph", spread, text, "b1", text)], Coverage(1, 1, 0.5), 3,
                ),
                EntryCost(
                    text, text, True, spread, Spread(9.0, 8.0, 9.5, 2), [RemediedCost([text], spread)],
                    [CostPart("graph", spread, text, "b1", text)], Coverage(1, 1, 0.5), 3,
                ),
            ],
        ),
        check=[
            Check(text, text, False, [text], Divergence(text, report.breaks[0].location, text), "backend"),
            Check(text, text, True, [text]),
        ],
    )  # fmt: skip
