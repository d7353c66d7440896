"""Measure the memory that experiments need, compared with that of the call itself.

For each experiment, a fresh process makes a model of linear layers with one graph break, calls it once, and runs the
experiment. The growth is the peak of the process's memory meanwhile, minus the memory held before; the ratio divides it
by the memory that the call holds: model, arguments and activations. Linux only.

    python benchmarks/memory.py                  # all experiments, a model of 200 MiB
    python benchmarks/memory.py --mib 400 --way check --backend inductor
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_WIDTH = 1024
_BATCH = 64


def models(mib: int) -> tuple[Any, Any, Any, Any]:
    """Return a small and a large model with one break each, and their arguments."""
    import torch

    class Stack(torch.nn.Module):
        def __init__(self, layers: int, width: int) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))

        def forward(self, x: Any) -> Any:
            for layer in self.layers[:-1]:
                x = torch.relu(layer(x))
            torch._dynamo.graph_break()  # noqa: SLF001 - what the benchmark is about
            return self.layers[-1](x)

    layers = max(2, round(mib * (1 << 20) / (4 * _WIDTH * _WIDTH)))
    return Stack(2, 8), torch.rand(2, 8), Stack(layers, _WIDTH), torch.rand(_BATCH, _WIDTH)


def ask_magic(option: str, backend: str) -> Callable[[Any, Any], None]:
    """Return a function that runs a cell, or for :data:`LINE` a line, with the magic."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "jupyter_graphbreak")

    def ask(model: Any, x: Any) -> None:
        import torch

        shell.user_ns.update(model=model, x=x, torch=torch)
        call = "model" if option == "--frontends" else f"torch.compile(model, backend={backend!r})"
        code = f"value = {call}(x).sum().item()"
        cell = f"%%compile_explain {option} --output report\n{code}"
        result = shell.run_cell(f"%compile_explain {LINE} --output report model(x)" if option == LINE else cell)
        result.raise_error()
        del shell.user_ns["report"]

    return ask


def ask_call(way: str, backend: str) -> Callable[[Any, Any], None]:
    """Return a function that runs an experiment on one call."""
    import jupyter_graphbreak

    def ask(model: Any, x: Any) -> None:
        import torch

        call = model if way == "compare_frontends" else torch.compile(model, backend=backend)
        getattr(jupyter_graphbreak, way)(call, x)

    return ask


#: The magic on a line, which copies the model before the call.
LINE = "--frontends --quiet"
WAYS = (
    *("--try", "--check", "--cost", "--values", "--repro", "--frontends", LINE),
    *("try_remedies", "check", "measure", "values", "compare_frontends"),
)


def held_now() -> int:
    """Return the memory of this process, and reset its peak."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(name: str) -> int:
    """Return a number of bytes from the kernel's status of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def measure(way: str, mib: int, backend: str) -> None:
    """Measure one experiment in this process, and print the numbers."""
    import torch

    torch.manual_seed(0)
    ask = ask_magic(way, backend) if way.startswith("--") else ask_call(way, backend)
    small, small_x, large, x = models(mib)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ask(small, small_x)  # first-time loading and compiling do not count
    parameters = sum(parameter.nbytes for parameter in large.parameters())
    activations = x.nbytes * len(large.layers) * 2
    call = parameters + x.nbytes + activations
    large(x).sum().item()
    before = held_now()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ask(large, x)
    growth = status("VmHWM") - before
    print(f"{way:18} {call / 2**20:8.0f} MiB {growth / 2**20:8.0f} MiB {growth / call:6.2f} times")


def main() -> None:
    """Measure each experiment in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=int, default=200, help="the size of the model (default: %(default)s)")
    parser.add_argument("--backend", default="eager", help="what the model is compiled with (default: %(default)s)")
    parser.add_argument("--way", choices=WAYS, action="append", help="only this way; may be given several times")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        measure(given.way[0], given.mib, given.backend)
        return
    print(f"{'':18} {'the call':>12} {'growth':>12}", flush=True)
    for way in given.way or WAYS:
        arguments = ["--mib", str(given.mib), "--backend", given.backend, f"--way={way}", "--here"]
        subprocess.run([sys.executable, __file__, *arguments], check=True)


if __name__ == "__main__":
    main()
