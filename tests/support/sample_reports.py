"""Handwritten reports for the tests of the views.

They are saved under ``tests/reports/``, with their rows under ``tests/reports/rows/``, for the tests in TypeScript.
``python tests/support/sample_reports.py`` writes them, and ``test_html.py`` and ``test_rows.py`` check that they are
current.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.jobs import build_job
from jupyter_graphbreak.analysis.priority import prioritize_breaks
from jupyter_graphbreak.report.job import Process
from jupyter_graphbreak.report.location import Location, Segment, Source
from jupyter_graphbreak.report.schema import (
    Advice,
    Break,
    Device,
    Diagnostic,
    Frame,
    Graph,
    GraphLine,
    GuardFailure,
    Occurrence,
    Op,
    Reason,
    Recompile,
    Resume,
    RunError,
    Scope,
    Setting,
    Skipped,
    Tensor,
    TensorMeta,
    WhatIf,
)
from jupyter_graphbreak.report.summary import Summary, Timing
from jupyter_graphbreak.results import Job, Report
from tests.support.sample_remedies import add_checks, add_cost, add_hostile_text, add_remedies

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parents[1] / "reports"

_REGISTRY = "https://meta-pytorch.github.io/compile-graph-break-site/gb/"

_TWO_BREAKS_CELL = """\
%%compile_explain
@torch._dynamo.error_on_graph_break(False)
def norm(x):
    x = x - x.mean()
    log_stats(x)
    return x / x.std()

@torch._dynamo.error_on_graph_break(True)
@torch.compile
def step(x, w):
    y = x @ w
    score = y.abs().sum()
    with error_on_graph_break(False):
        if score > 3:
            y = y / score
    return norm(y)

def log_stats(x):
    for name in ("mean", "std"):
        print(name, getattr(x, name)())

step(torch.randn(8, 8), torch.randn(8, 8))"""


def _add_order_and_summary(report: Report) -> Report:
    import msgspec

    return msgspec.structs.replace(
        prioritize_breaks(report),
        summary=Summary(
            frames=len(report.frames),
            graphs=len(report.graphs),
            ops=sum(len(graph.ops) for graph in report.graphs),
            breaks=len(report.breaks),
            events=sum(len(graph_break.occurrences) for graph_break in report.breaks),
            resumes=len(report.resumes),
            skipped=len(report.skipped),
            recompiles=len(report.recompiles),
            errors=sum(frame.outcome == "error" for frame in report.frames),
        ),
    )


def two_breaks() -> Report:
    """Return the report of a cell with scopes, a break that resumes, and one after which a function runs eagerly."""

    def spot(line: int, function: str, code: str, column: int, end_line: int | None = None) -> Location:
        return Location("s1", line, end_line or line, column, column + len(code), function, code)

    def op(name: str, target: str, line: int, function: str, shape: list[int | str]) -> Op:
        return Op(
            name, target, Location("s1", line, line, None, None, function), TensorMeta(shape, "float32", "cuda:0")
        )

    square: list[int | str] = [8, 8]
    inner_setting = Setting(False, ["inner over outer"], "c3", ["c2", "c3"])
    own_setting = Setting(False, ["own"], "c1", ["c1"])
    branch, call = spot(14, "step", "score > 3", 11), spot(5, "norm", "log_stats(x)", 4)
    entry = spot(22, "<module>", "step(torch.randn(8, 8), torch.randn(8, 8))", 0)
    norm_call = spot(16, "step", "norm(y)", 11)
    return _add_order_and_summary(
        Report(
            status="ok",
            device=Device("auto", "cuda:0", "NVIDIA H100 80GB HBM3"),
            torch="2.13.0",
            python="3.11.7",
            config={"nested_graph_breaks": False, "recompile_limit": 8},
            timing=Timing(0.8412, 0.7903, 0.0021),
            sources=[Source("s1", "Cell In[7]", "cell", None, [Segment(1, _TWO_BREAKS_CELL)])],
            frames=[
                Frame("0/0", "step", spot(10, "step", "def step(x, w):", 0, 16), "entry", "compiled", 2,
                      graphs=["A"], breaks=["b1"], compile_s=0.3121),
                Frame("1/0", "step", spot(10, "step", "def step(x, w):", 0, 16), "resume", "compiled", 2, resume="r1",
                      caller="0/0", graphs=["B"], breaks=["b2"], compile_s=0.1204),
                Frame("2/0", "norm", spot(3, "norm", "def norm(x):", 0, 6), "call", "compiled", 2, caller="1/0",
                      graphs=["C"], breaks=["b2"], compile_s=0.2033),
                Frame("3/0", "log_stats", spot(18, "log_stats", "def log_stats(x):", 0, 20), "call", "skipped", 1,
                      caller="2/0", breaks=["b2"]),
                Frame("4/0", "norm", spot(3, "norm", "def norm(x):", 0, 6), "resume", "compiled", 1, resume="r2",
                      caller="2/0", graphs=["D"], compile_s=0.1545),
                Frame("5/0", "step", spot(10, "step", "def step(x, w):", 0, 16), "resume", "empty", 1, resume="r3",
                      caller="1/0"),
            ],
            graphs=[
                Graph("A", "step", "0/0",
                      [op("y", "torch.matmul", 11, "step", square), op("abs_1", "Tensor.abs", 12, "step", square),
                       op("score", "Tensor.sum", 12, "step", []), op("gt", "operator.gt", 14, "step", [])],
                      [Tensor("L_x_", [8, 8], "float32", "cuda:0"), Tensor("L_w_", [8, 8], "float32", "cuda:0")],
                      [GraphLine("s1", 11, 1), GraphLine("s1", 12, 2), GraphLine("s1", 14, 1)],
                      "def forward(self, L_x_, L_w_):\n    y = L_x_ @ L_w_\n    abs_1 = y.abs()\n"
                      "    score = abs_1.sum()\n    gt = score > 3\n    return (gt, y, score)", "break", "b1"),
                Graph("B", "step", "1/0", [op("y_1", "operator.truediv", 15, "step", square)],
                      [Tensor("L_y_", [8, 8], "float32", "cuda:0"), Tensor("L_score_", [], "float32", "cuda:0")],
                      [GraphLine("s1", 15, 1)],
                      "def forward(self, L_y_, L_score_):\n    y = L_y_ / L_score_\n    return (y,)", "break", "b2"),
                Graph("C", "norm", "2/0",
                      [op("mean", "Tensor.mean", 4, "norm", []), op("x", "operator.sub", 4, "norm", square)],
                      [Tensor("L_x_", [8, 8], "float32", "cuda:0")], [GraphLine("s1", 4, 2)],
                      "def forward(self, L_x_):\n    mean = L_x_.mean()\n    x = L_x_ - mean\n    return (x,)",
                      "break", "b2"),
                Graph("D", "norm", "4/0",
                      [op("std", "Tensor.std", 6, "norm", []), op("out", "operator.truediv", 6, "norm", square)],
                      [Tensor("L_x_", [8, 8], "float32", "cuda:0")], [GraphLine("s1", 6, 2)],
                      "def forward(self, L_x_):\n    std = L_x_.std()\n    out = L_x_ / std\n    return (out,)"),
            ],
            breaks=[
                Break("b1", "GB0170", "Data-dependent branching", branch, "resumed", _REGISTRY + "gb0170.html",
                      "Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`). Dynamo does not support "
                      "tracing dynamic control flow.",
                      ["Use `torch.cond` to express dynamic control flow.", "Move the branch out of the function."],
                      "attempted to jump with TensorVariable()", None, [entry, branch],
                      [Occurrence("0/0", 1, [entry, branch], "resumed", None, inner_setting)], ["r1", "r4"], [], "c3",
                      [Advice("Make it branchless: `torch.where(score > 3, y / score, y)`, or use `torch.cond`.",
                              "graphbreak"),
                       Advice("Use `torch.cond` to express dynamic control flow.")], inner_setting),
                Break("b2", "GB0025", "Call to `print`", call, "skipped", _REGISTRY + "gb0025.html",
                      "Dynamo does not know how to trace the builtin `print`.",
                      ["Move the call out of the compiled region.",
                       "Set `torch._dynamo.config.reorderable_logging_functions` to defer it."],
                      "print(*args)", Reason("GB7000", "Graph break in a loop"), [entry, norm_call, call],
                      [Occurrence("1/0", 1, [entry, norm_call, call], "resumed", None, own_setting),
                       Occurrence("2/0", 1, [entry, norm_call, call], "resumed", None, own_setting),
                       Occurrence("3/0", 0, [entry, norm_call, call], "skipped",
                                  Reason("GB7000", "Graph break in a loop"), own_setting)],
                      ["r2", "r3"], ["k1"], "c1", [], own_setting),
            ],
            resumes=[
                Resume("r1", "torch_dynamo_resume_in_step_at_15", "step", spot(15, "step", "y = y / score", 12), "b1",
                       ["1/0"], ["B"]),
                Resume("r4", "torch_dynamo_resume_in_step_at_16", "step", spot(16, "step", "return norm(y)", 4), "b1",
                       no_frame="not reached"),
                Resume("r2", "torch_dynamo_resume_in_norm_at_6", "norm", spot(6, "norm", "return x / x.std()", 4), "b2",
                       ["4/0"], ["D"]),
                Resume("r3", "torch_dynamo_resume_in_step_at_16", "step", spot(16, "step", "return norm(y)", 4), "b2",
                       ["5/0"]),
            ],
            skipped=[Skipped("k1", "3/0", "log_stats",
                             Location("s1", 18, 20, None, None, "log_stats", "def log_stats(x):"),
                             "graph break in a loop", "b2", "loop", ["4/0"],
                             "Move the loop into a function of its own.", own_setting)],
            scopes=[
                Scope("c1", "error_on_graph_break", False, "decorator", Location("s1", 2, 6), None, ["b2"]),
                Scope("c2", "error_on_graph_break", True, "decorator", Location("s1", 8, 16)),
                Scope("c3", "error_on_graph_break", False, "with", Location("s1", 13, 15), "c2", ["b1"]),
            ],
            what_if=WhatIf(["b1", "b2"], "b1"),
        )
    )  # fmt: skip


def no_breaks() -> Report:
    """Return the report of a cell that is captured as one graph."""
    text = "%%compile_explain\ndef f(x):\n    return (x * 2).relu()\n\nf(torch.ones(3))"
    location = Location("s1", 3, 3, 11, 26, "f", "(x * 2).relu()")
    vector = TensorMeta([3], "float32", "cpu")
    return _add_order_and_summary(
        Report(
            status="ok",
            device=Device("auto", "cpu", None, "there is no CUDA device"),
            torch="2.13.0",
            python="3.11.7",
            config={"nested_graph_breaks": False, "recompile_limit": 8},
            timing=Timing(0.41, 0.4, 0.001),
            sources=[Source("s1", "Cell In[1]", "cell", None, [Segment(1, text)])],
            frames=[
                Frame(
                    "0/0", "f", Location("s1", 2, 3, None, None, "f"), "entry", "compiled", graphs=["A"], compile_s=0.4
                )
            ],
            graphs=[
                Graph(
                    "A",
                    "f",
                    "0/0",
                    [Op("mul", "operator.mul", location, vector), Op("relu", "Tensor.relu", location, vector)],
                    [Tensor("L_x_", [3], "float32", "cpu")],
                    [GraphLine("s1", 3, 2)],
                    "def forward(self, L_x_):\n    mul = L_x_ * 2\n    return (mul.relu(),)",
                )
            ],
            diagnostics=[
                Diagnostic("info", "The cell computes with tensors at its top level: it was compiled as one function.")
            ],
        )
    )


def failed_run() -> Report:
    """Return the report of a run that recompiles up to the limit and ends with a break that is an error."""
    text = (
        "%%compile_explain\n"
        "@torch.compile(fullgraph=True)\n"
        "def f(x, n):\n"
        "    x = x * n\n"
        "    torch._dynamo.graph_break()\n"
        "    return x\n"
        "\n"
        "for n in range(9):\n"
        "    f(torch.ones(2), n)"
    )
    location = Location("s1", 5, 5, 4, 31, "f", "torch._dynamo.graph_break()")
    call = Location("s1", 9, 9, 4, 23, "<module>", "f(torch.ones(2), n)")
    body = Location("s1", 3, 6, None, None, "f", "def f(x, n):")
    return _add_order_and_summary(
        Report(
            status="error",
            device=Device("cuda", "cpu", None, "the variable `model` lives on the CPU"),
            torch="2.13.0",
            python="3.11.7",
            config={"nested_graph_breaks": True, "recompile_limit": 1},
            error=RunError(
                "Unsupported", "Call to `torch._dynamo.graph_break()`\n  Explanation: asked for", location, "b1"
            ),
            timing=Timing(0.25, None, 0.001),
            sources=[Source("s1", "Cell In[2]", "cell", None, [Segment(1, text)])],
            frames=[Frame("0/0", "f", body, "entry", "error", breaks=["b1"])],
            breaks=[
                Break(
                    "b1",
                    "GB0025",
                    "Call to `torch._dynamo.graph_break()`",
                    location,
                    "error",
                    explanation="User-inserted graph break. Message: None",
                    hints=["Remove the `torch._dynamo.graph_break()` call."],
                    stack=[call, location],
                    occurrences=[
                        Occurrence(
                            "0/0", 0, [call, location], "error", None, Setting(True, ["fullgraph"], "c1", ["c1"])
                        )
                    ],
                    scope="c1",
                    setting=Setting(True, ["fullgraph"], "c1", ["c1"]),
                )
            ],
            skipped=[Skipped("k1", None, "f", body, "recompile_limit reached")],
            scopes=[
                Scope("c1", "fullgraph", True, "decorator", Location("s1", 2, 6), None, ["b1"], "no break may occur")
            ],
            recompiles=[
                Recompile(
                    "0/1", "0/0", "f", body, [GuardFailure("L['n'] == 0", Location("s1", 4, 4, 4, 13, "f", "x * n"))]
                ),
                Recompile("0/2", "0/0", "f", body, [GuardFailure("L['n'] == 1")], limit_hit=True),
            ],
            diagnostics=[
                Diagnostic("warning", "g was compiled by an earlier run and did not compile again."),
                Diagnostic("error", "one record could not be read."),
            ],
        )
    )


HOSTILE = "</script></style><img src=x onerror=\"window.hacked='yes'\"><script>window.hacked='yes'</script>{{7*7}}"


def remedies() -> Report:
    """Return the report of the cell with two breaks and the remedies that were tried."""
    return add_remedies(two_breaks())


def cost() -> Report:
    """Return the report of the cell with two breaks, with remedies and the cost."""
    return add_cost(two_breaks())


def checks() -> Report:
    """Return the report of the cell with two breaks, with checks of results and standalone scripts."""
    return add_checks(two_breaks())


def report_with_everything() -> Report:
    """Return the report of the cell with two breaks, with remedies, cost, checks of results and standalone scripts."""
    return add_checks(cost())


def job() -> Job:
    """Return the job of a kernel and two ranks that it started."""
    processes = [
        Process("p1", None, 4710, None, no_breaks()),
        Process("p2", 0, 4711, "python train.py", two_breaks()),
        Process("p3", 1, 4712, "python train.py", failed_run()),
    ]
    return Job.of(build_job(processes))


def hostile_report() -> Report:
    """Return a report with markup and script in every string that comes from the user's code."""
    name = HOSTILE
    text = f"x = \"{name}\"\ny = x  # {name}\n'''{name}"
    location = Location("s1", 1, 1, 0, len(text.split("\n", maxsplit=1)[0]), name, name)
    return add_hostile_text(_add_order_and_summary(
        Report(
            status="error",
            device=Device(name, name, name, name),
            torch=name,
            python=name,
            config={name: name},
            error=RunError(name, name, location, "b1"),
            timing=Timing(1.0, 0.5, 0.01),
            sources=[
                Source("s1", name, "cell", name, [Segment(1, text)]),
                Source("s2", name, "library", name, [Segment(4, text)]),
            ],
            frames=[Frame(name, name, location, "entry", "error", graphs=[name], breaks=["b1"], compile_s=0.1)],
            graphs=[
                Graph(name, name, name, [Op(name, name, location, TensorMeta([name, 2], name, name))],
                      [Tensor(name, [name], name, name)], [GraphLine("s1", 1, 1)], text, "break", "b1")
            ],
            breaks=[
                Break("b1", name, name, location, "error", f"javascript:window.hacked='yes'//{name}", name,
                      [name, name], name, Reason(name, name), [location],
                      [Occurrence(name, 0, [location], "error", Reason(name, name))],
                      ["r1"], ["k1"], "c1", [Advice(f"`{name}` {name}", "graphbreak")],
                      Setting(True, ["fullgraph"], "c1", ["c1"]), [name])
            ],
            resumes=[Resume("r1", name, name, location, "b1", [name], [name])],
            skipped=[Skipped("k1", name, name, location, name, "b1", "other", [name], name)],
            scopes=[Scope("c1", "fullgraph", True, "call", location, None, ["b1"], name)],
            recompiles=[Recompile(name, name, name, location, [GuardFailure(name, location)], True)],
            diagnostics=[Diagnostic("warning", name)],
            what_if=WhatIf(["b1"], "b1"),
        )
    ), name)  # fmt: skip


def big_report(breaks: int = 1000, ops: int = 10_000) -> Report:
    """Return the report of a cell with many functions, each with a break."""
    text, ops_per_break = ["%%compile_explain"], ops // breaks
    breaks_of_cell: list[Break] = []
    graphs: list[Graph] = []
    frames: list[Frame] = []
    for index in range(breaks):
        first = len(text) + 1
        text += [f"def layer_{index}(x):", f"    x = chain_{index}(x)", f"    print('at', {index})", "    return x"]
        location = Location("s1", first + 2, first + 2, 4, 4 + len(f"print('at', {index})"), f"layer_{index}",
                         f"print('at', {index})")  # fmt: skip
        body = Location("s1", first + 1, first + 1, None, None, f"layer_{index}")
        call = Location("s1", 4 * breaks + 3, 4 * breaks + 3, 8, 16, "<module>", "layer(x)")
        breaks_of_cell.append(
            Break(f"b{index}", "GB0059", f"Builtin `print` not traceable ({index})", location, "resumed",
                  _REGISTRY + "gb0059.html", "Dynamo does not know how to trace the builtin `print`.",
                  ["Move the call out of the compiled region."], "print(*args)", None, [call, location],
                  [Occurrence(f"{index}/0", 1, [call, location], "resumed")])
        )  # fmt: skip
        names = [f"mul_{index}_{position}" for position in range(ops_per_break)]
        code = "".join(f"    {name} = L_x_ * {position}\n" for position, name in enumerate(names))
        graphs.append(
            Graph(f"G{index}", f"layer_{index}", f"{index}/0",
                  [Op(name, "operator.mul", body, TensorMeta([64, 64], "float32", "cpu")) for name in names],
                  [Tensor("L_x_", [64, 64], "float32", "cpu")], [GraphLine("s1", first + 1, ops_per_break)],
                  f"def forward(self, L_x_):\n{code}", "break", f"b{index}")
        )  # fmt: skip
        frames.append(
            Frame(f"{index}/0", f"layer_{index}", body, "entry", "compiled", 2, graphs=[f"G{index}"],
                  breaks=[f"b{index}"], compile_s=0.01)
        )  # fmt: skip
    text += ["for layer in layers:", "    x = layer(x)"]
    return _add_order_and_summary(
        Report(
            status="ok",
            device=Device("auto", "cpu"),
            torch="2.13.0",
            python="3.11.7",
            config={"nested_graph_breaks": False, "recompile_limit": 8},
            timing=Timing(31.0, 29.5, 0.2),
            sources=[Source("s1", "Cell In[9]", "cell", None, [Segment(1, "\n".join(text))])],
            frames=frames,
            graphs=graphs,
            breaks=breaks_of_cell,
        )
    )


SAVED_REPORTS: dict[str, Callable[[], Report]] = {
    "two_breaks": two_breaks,
    "no_breaks": no_breaks,
    "failed": failed_run,
    "hostile": hostile_report,
    "remedies": remedies,
    "cost": cost,
    "checks": checks,
}


if __name__ == "__main__":
    import msgspec

    from jupyter_graphbreak.views.rows.sections import build_rows

    (FOLDER / "rows").mkdir(parents=True, exist_ok=True)
    for name, make_report in SAVED_REPORTS.items():
        rows_json = msgspec.json.format(msgspec.json.encode(build_rows(make_report())), indent=1)
        (FOLDER / "rows" / f"{name}.json").write_bytes(rows_json + b"\n")
        (FOLDER / f"{name}.json").write_bytes(msgspec.json.format(make_report().to_json(), indent=1) + b"\n")
