"""Kernels that start with PyTorch loaded: a server process loads it, and each kernel is a fork of that process.

Loading PyTorch takes five seconds, most of the time of a kernel in a test.
``use_warm_kernels`` creates a kernelspec ``python3`` whose command is this file: it asks the server to fork and acts as
a proxy for the fork. Nothing is compiled before the fork. A kernel starts cold, as usual, if there is no server or if
its environment has ``COLD_KERNEL`` or a variable that PyTorch or Python would have read while loading.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

#: The environment variable with which a kernel loads everything itself.
COLD = "COLD_KERNEL"
#: Prefixes of the environment variables that are read while loading.
_READ = ("TORCH", "PYTHON", "OMP_", "MKL_", "CUDA", "PYTORCH", "LD_")
_MODULES = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.zmqshell", "ipywidgets", "torch", "torch._dynamo",
    "torch._dynamo.convert_frame", "torch._dynamo.symbolic_convert", "torch._dynamo.backends.registry",
    "torch._dynamo.testing", "torch._functorch.aot_autograd", "torch.fx.experimental.symbolic_shapes",
    "torch._inductor.compile_fx", "anywidget",
)  # fmt: skip
_START_S = 120.0


def use_warm_kernels(folder: Path, environment: dict[str, str]) -> str:
    """Write the kernelspec, and return the folder for ``JUPYTER_PATH``."""
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True, exist_ok=True)
    (folder / "environment.json").write_text(json.dumps(_read_while_loading(environment)))
    argv = [sys.executable, str(Path(__file__).resolve()), str(folder), "-f", "{connection_file}"]
    kernel = {
        "argv": argv,
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "metadata": {"debugger": True},
    }
    (spec / "kernel.json").write_text(json.dumps(kernel))
    return str(folder)


def start(folder: Path) -> None:
    """Start the server, on Linux only; kernels wait until it has loaded everything."""
    if sys.platform != "linux":
        return
    command = [sys.executable, __file__, "--serve", str(folder)]
    with (folder / "log").open("ab") as log:
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _read_while_loading(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ) and name != "TORCHINDUCTOR_CACHE_DIR"  # set by inductor itself, read when it is used
    }


# --- The command of the kernelspec -------------------------------------------------------------------------------


def run_proxy(folder: Path, arguments: list[str]) -> None:
    """Make the server fork a kernel, pass signals on to it, and exit when it exits."""
    if (
        COLD in os.environ
        or not (folder / "log").exists()
        or _read_while_loading(dict(os.environ)) != json.loads((folder / "environment.json").read_text())
    ):
        os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", *arguments])  # noqa: S606 - itself
    connection = _connected(folder)
    fields = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "niceness": os.nice(0),
    }
    request = json.dumps(fields).encode()
    descriptors = array.array("i", [0, 1, 2])
    head = len(request).to_bytes(8, "big")
    connection.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    connection.sendall(request)

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(bytes([number]))

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    status = b""
    with contextlib.suppress(OSError):
        status = connection.recv(1)  # the kernel has the other end, which is closed when it exits
    sys.exit(status[0] if status else 1)


def _connected(folder: Path) -> socket.socket:
    """Connect to the server, when it is ready."""
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(_address(folder))
        except OSError:
            connection.close()
            time.sleep(0.05)
        else:
            return connection
    raise TimeoutError(f"no server for kernels: see {folder / 'log'}")


def _address(folder: Path) -> str:
    return f"\0graphbreak-kernels-{folder.resolve()}"[:100]  # abstract, because paths in a folder may be too long


# --- The server --------------------------------------------------------------------------------------------------


def load() -> None:
    """Load the modules with which kernels start."""
    for module in _MODULES:
        importlib.import_module(module)


def serve(folder: Path) -> None:
    """Load PyTorch and fork kernels on request, until the process that started the server exits."""
    parent = os.getppid()  # before PyTorch is loaded, because tests may end meanwhile
    sys.path[0] = ""
    load()
    gc.collect()
    gc.freeze()  # kernels then skip these objects in garbage collections
    server = socket.socket(socket.AF_UNIX)
    server.bind(_address(folder))
    server.listen(64)
    server.settimeout(5)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # only the proxy waits for a kernel
    guards = importlib.import_module("torch._dynamo.guards")
    guards.profile_guard_manager = lambda *_: 0.0  # type: ignore[attr-defined] # flushes caches for an unused time
    while os.getppid() == parent:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            server.close()
            become_kernel(connection)
        connection.close()


def become_kernel(connection: socket.socket) -> None:
    """Turn this process into the requested kernel."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    head, ancillary, *_ = connection.recvmsg(8, socket.CMSG_LEN(3 * array.array("i").itemsize))
    descriptors = array.array("i")
    descriptors.frombytes(ancillary[0][2])
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    text = b""
    while len(text) < int.from_bytes(head, "big"):
        text += connection.recv(1 << 16)
    request = json.loads(text)
    os.chdir(request["folder"])
    os.nice(request["niceness"] - os.nice(0))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.environ.pop("JPY_PARENT_PID", None)  # its parent is the server
    for module in ("random", "numpy.random"):
        importlib.import_module(module).seed()
    threading.Thread(target=_handle_signals, args=[connection], daemon=True).start()
    sys.argv = ["ipykernel_launcher", *request["arguments"]]
    status = 1
    try:
        runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        with contextlib.suppress(OSError):
            connection.sendall(bytes([status & 255]))
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _handle_signals(connection: socket.socket) -> None:
    """Receive signals from the proxy, and exit when it is gone."""
    while True:
        try:
            number = connection.recv(1)
        except OSError:
            number = b""
        if not number:
            os.killpg(0, signal.SIGKILL)
        os.killpg(0, number[0])


# The thread belongs to the kernel; a trial must not count it as a thread of the user's code.
_handle_signals.__code__ = _handle_signals.__code__.replace(co_filename="<frozen warm_kernels>")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(Path(sys.argv[2]))
    elif sys.argv[1] == "--load":
        load()
    else:
        run_proxy(Path(sys.argv[1]), sys.argv[2:])
