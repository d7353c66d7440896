"""Measure the memory that each question about a call needs, compared with the memory of the call and of its cell.

A fresh process creates a model of three linear layers with two graph breaks and asks the question. The growth is the
peak of the process's memory meanwhile, minus the memory held before. The growth that the same cell causes without the
package, in a separate process, is subtracted; the ratio divides the rest by the size of the tensors that the call
holds. Linux only.

    python benchmarks/memory.py                  # all programs and questions, a model of 200 MiB
    python benchmarks/memory.py --mib 400 --program backward --way=--check --backend inductor
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_LAYERS = 3
_BATCH = 64
#: The model's source; the cell that defines it can be edited.
MODEL = """import torch
class Stack(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(LAYERS)))
    def forward(self, x):
        for layer in self.layers[:-1]:
            x = layer(x)
            torch._dynamo.graph_break()
            x = x.relu()
        return self.layers[-1](x)
def train(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    return loss
def step(x):
    return train(model, optimizer, x)
""".replace("LAYERS", str(_LAYERS))
EDIT = ("            torch._dynamo.graph_break()\n", "")


class Program(NamedTuple):
    """A cell, and the arguments for the functions of the API that examine a single call.

    Parameters
    ----------
    cell : str
        The cell; ``CALL`` is the compiled function, or the function itself for ``--frontends``.
    function : str
        The function that is compiled.
    arguments : tuple of str
        The names of its arguments; empty if the compiled call is the same as that of an earlier program.
    has_state : bool
        Whether the call uses the optimizer's state.
    is_first_step : bool
        Whether the call also creates this state.
    """

    cell: str
    function: str = "model"
    arguments: tuple[str, ...] = ()
    has_state: bool = False
    is_first_step: bool = False


PROGRAMS = {
    "forward": Program("value = CALL(x).sum().item()", arguments=("x",)),
    "backward": Program("value = CALL(x).sum()\nvalue.backward()"),
    "AdamW": Program("optimizer.zero_grad()\nvalue = CALL(x).sum()\nvalue.backward()\noptimizer.step()"),
    "compiled AdamW": Program(
        "value = CALL(model, optimizer, x)", "train", ("model", "optimizer", "x"), has_state=True
    ),
    "compiled AdamW, names": Program("value = CALL(x)", "step", ("x",), has_state=True),
    "first compiled AdamW": Program(
        "value = CALL(model, optimizer, x)", "train", ("model", "optimizer", "x"), has_state=True, is_first_step=True
    ),
    "first compiled AdamW, names": Program("value = CALL(x)", "step", ("x",), has_state=True, is_first_step=True),
}
#: The cell without the package, and the line magic, which copies the model before the call.
BASELINE_WAY, LINE_WAY = "without", "--frontends on a line"
MAGIC = (
    *("--try", "--try again", "--check", "--cost", "--values", "--repro", "--frontends", LINE_WAY),
    *("--patch", "an edited cell", "--try --check --cost"),
)
CAPTURES = ("capture(entries=True)", "capture, try_remedies")
CALL_KINDS = ("try_remedies", "check", "measure", "values", "compare_frontends")
WAYS = (*MAGIC, *CAPTURES, *CALL_KINDS)


def make_shell() -> Any:
    """Return a shell in which the model's class is defined by a cell."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell: Any = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "jupyter_graphbreak")
    run_cell(shell, MODEL)
    return shell


def run_cell(shell: Any, text: str, **options: Any) -> None:
    """Run a cell, with options that a front end sends in the metadata of its message."""
    request = {"metadata": {"graphbreak": options} if options else {}, "content": {"code": text}}
    shell.get_parent = lambda: request
    shell.run_cell(text, store_history=True).raise_error()


def request_in_cell(shell: Any, program: Program, way: str, backend: str) -> None:
    """Run a program's cell and request a report on it in one of the ``WAYS``."""
    names = program.function, ", ".join(program.arguments or ("x",))
    cell = program.cell.replace(
        "CALL", names[0] if way.startswith("--frontends") else f"torch.compile({names[0]}, backend={backend!r})"
    )
    if way == BASELINE_WAY:
        run_cell(shell, cell)
    elif way == LINE_WAY:
        run_cell(shell, f"%compile_explain --frontends --output report {names[0]}({names[1]})")
    elif way == "an edited cell":
        run_cell(shell, cell, explain="--try --output report", edited=((MODEL, MODEL.replace(*EDIT)),))
    elif way == "--patch":
        lines = MODEL.splitlines(), MODEL.replace(*EDIT).splitlines()
        patch = difflib.unified_diff(*lines, "a/Cell In[1]", "b/Cell In[1]", lineterm="")
        path = Path(tempfile.gettempdir(), "own.patch")
        path.write_text("\n".join(patch) + "\n")
        run_cell(shell, f"%%compile_explain --patch {path} --output report\n{cell}")
    else:
        run_cell(shell, f"%%compile_explain {way.removesuffix(' again')} --output report\n{cell}")


def request_by_capture(shell: Any, program: Program, way: str, backend: str) -> None:
    """Run a program's cell in a block that keeps its entries."""
    cell = program.cell.replace("CALL", f"torch.compile({program.function}, backend={backend!r})")
    block = "\n".join(f"    {line}" for line in cell.splitlines())
    last_statement = "report = run.try_remedies()" if "try_remedies" in way else "report = run.report"
    run_cell(
        shell,
        f"import jupyter_graphbreak\nwith jupyter_graphbreak.capture(entries=True) as run:\n{block}\n{last_statement}",
    )


def request_for_call(shell: Any, program: Program, way: str, backend: str) -> None:
    """Explain a program's call, which runs on copies only."""
    arguments = ", ".join(program.arguments)
    call = program.function if way == "compare_frontends" else f"torch.compile({program.function}, backend={backend!r})"
    run_cell(shell, f"import jupyter_graphbreak\nreport = jupyter_graphbreak.{way}({call}, {arguments})")


def requesting_function(way: str) -> Callable[[Any, Program, str, str], None]:
    """Return the function that requests a report on a program in one of the ways."""
    return request_for_call if way in CALL_KINDS else request_by_capture if way in CAPTURES else request_in_cell


def define_names(shell: Any, width: int, program: Program) -> int:
    """Define the names that a cell uses, and return the bytes of the tensors that its call holds."""
    import torch

    model = shell.user_ns["Stack"](width)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.rand(_BATCH, width)
    uses_optimizer = program.has_state or "optimizer" in program.cell
    if uses_optimizer and not program.is_first_step:  # the optimizer creates its state in the first step
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
    shell.user_ns.update(model=model, optimizer=optimizer, x=x)
    # AdamW's state has two tensors for each parameter.
    return int(x.nbytes + sum(parameter.nbytes for parameter in model.parameters()) * (3 if program.has_state else 1))


def reset_peak() -> int:
    """Return the memory of this process, and reset its peak."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def status_bytes(name: str) -> int:
    """Return a number of bytes from the kernel's status of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def measure(program: Program, way: str, mib: int, backend: str) -> tuple[int, int]:
    """Return the bytes that a call holds, and the growth of this process's memory during a request about it."""
    import torch

    torch.manual_seed(0)
    shell = make_shell()
    request = requesting_function(way)
    define_names(shell, 8, program)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        request(shell, program, way, backend)  # so that first-time loading and compiling are not measured
        held_bytes = define_names(shell, round((mib * (1 << 20) / 4 / _LAYERS) ** 0.5), program)
        if way.endswith(" again"):
            request(shell, program, way, backend)
        shell.user_ns.pop("report", None)
        start_bytes = reset_peak()
        request(shell, program, way, backend)
    return held_bytes, status_bytes("VmHWM") - start_bytes


def measure_in_process(program: str, way: str, arguments: argparse.Namespace) -> tuple[int, int]:
    """Measure one way of asking a question about a program, in a separate process."""
    command = [sys.executable, __file__, f"--program={program}", f"--way={way}", f"--mib={arguments.mib}"]
    command += [f"--backend={arguments.backend}", "--here"]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    held_bytes, growth = process.stdout.split()[-2:]
    return int(held_bytes), int(growth)


def main() -> None:
    """Measure each question about each program in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=int, default=200, help="the size of the model (default: %(default)s)")
    parser.add_argument("--backend", default="eager", help="what the model is compiled with (default: %(default)s)")
    parser.add_argument("--program", choices=PROGRAMS, action="append", help="only this one; may be used several times")
    parser.add_argument("--way", choices=(BASELINE_WAY, *WAYS), action="append", help="only this way; likewise")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(*measure(PROGRAMS[arguments.program[0]], arguments.way[0], arguments.mib, arguments.backend))
        return
    for name in arguments.program or PROGRAMS:
        held_bytes, plain_growth = measure_in_process(name, BASELINE_WAY, arguments)
        print(
            f"{name}: the call holds {held_bytes / 2**20:.0f} MiB, the cell alone adds {plain_growth / 2**20:.0f} MiB",
            flush=True,
        )
        for way in arguments.way or WAYS:
            if way in CALL_KINDS and not PROGRAMS[name].arguments:
                continue
            growth = measure_in_process(name, way, arguments)[1]
            net_growth = growth - (0 if way in CALL_KINDS else plain_growth)
            ratio = f"{net_growth / held_bytes:6.2f} times the call's tensors, without what the cell alone adds"
            print(f"  {way:22} {growth / 2**20:8.0f} MiB {ratio}", flush=True)


if __name__ == "__main__":
    main()
