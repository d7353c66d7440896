"""Processes that start with PyTorch and this package loaded: a server loads them, and each process is a fork of it.

Loading PyTorch takes five seconds and this package one, which is most of the time of a kernel or command in a test.
``use_warm_kernels`` creates a kernelspec ``python3`` whose command is this file: it asks the server to fork and acts as
a proxy for the fork. ``use_warm_commands`` creates commands that do the same, and ``run`` runs a Python command in a
fork. Nothing is compiled before the fork. A process starts cold if there is no server, if its environment has
``COLD_START``, or if it has other values than the server for variables that PyTorch or Python reads while it is loaded.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import io
import itertools
import json
import os
import pkgutil
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: The environment variable that makes a process load PyTorch and this package instead of being forked with both loaded.
COLD_START = "COLD_START"
#: The environment variable that makes forks try only the first unusual inputs of a function, the most revealing ones.
FEW_INPUTS = "FEW_UNUSUAL_INPUTS"
#: Prefixes of environment variables that PyTorch or Python reads while it is loaded.
_LOADING_PREFIXES = ("TORCH", "PYTHON", "OMP_", "MKL_", "CUDA", "PYTORCH", "LD_", "CXX")
#: Environment variables that are read after loading: Inductor reads its folder when it compiles, a fork PyTorch's logs.
_LATER_NAMES = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TORCH_TRACE", "TORCH_LOGS", "PYTHON_EXEC"})
_LATER_PREFIXES = ("TORCHELASTIC_", "TORCH_NCCL_")
#: The Python options that a forked process can have.
_OPTIONS = ("-P", "-u")
_MODULES = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.zmqshell", "ipywidgets", "torch", "torch._dynamo",
    "torch._dynamo.convert_frame", "torch._dynamo.symbolic_convert", "torch._dynamo.backends.registry",
    "torch._dynamo.testing", "torch._functorch.aot_autograd", "torch.fx.experimental.symbolic_shapes",
    "torch._inductor.compile_fx", "torch.utils.cpp_extension", "anywidget", "nbformat", "nbclient",
)  # fmt: skip
_SERVER_START_LIMIT_S = 120.0
#: The times of measurements in tests, by module and name: shorter than those that users need.
_SHORT_TIMES = {
    ("entry_cost", "VARIANT_S"): 0.2,
    ("guards", "_AFTER_CALLS_NS"): 50_000_000,
    ("timing", "_RATIO_S"): 0.3,
}
#: The modules whose measurements have a budget of seconds and of runs.
_MODULES_WITH_BUDGET = ("alternatives", "operations")


def use_warm_kernels(folder: Path, environment: dict[str, str]) -> str:
    """Write the kernelspec, and return the folder for ``JUPYTER_PATH``."""
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True, exist_ok=True)
    (folder / "environment.json").write_text(json.dumps(_loading_variables(environment)))
    argv = [sys.executable, str(Path(__file__).resolve()), "--kernel", str(folder), "-f", "{connection_file}"]
    kernel = {
        "argv": argv,
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "metadata": {"debugger": True},
    }
    (spec / "kernel.json").write_text(json.dumps(kernel))
    return str(folder)


def use_warm_commands(folder: Path) -> str:
    """Write the commands ``python``, ``graphbreak`` and ``torchrun``, and return their folder for ``PATH``."""
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    proxy = shlex.join([sys.executable, str(Path(__file__).resolve()), "--command", str(folder)])
    for name in ("python", "graphbreak", "torchrun"):
        script = "" if name == "python" else shlex.quote(str(Path(sys.executable).with_name(name)))
        part = commands / f"{name}.{os.getpid()}"
        part.write_text(f'#!/bin/sh\nexec {proxy} {script} "$@"\n')
        part.chmod(0o755)
        part.replace(commands / name)  # a process of another worker may be starting with it
    return str(commands)


def start_server(folder: Path) -> None:
    """Start the server, on Linux only. Processes wait until it has loaded everything."""
    if sys.platform != "linux":
        return
    # The program runs as a frozen module: a file would be part of the stacks in PyTorch's log, and its thread would
    # belong to the user.
    program = f"exec(compile(open({__file__!r}).read(), '<frozen warm_processes>', 'exec'))"
    command = [sys.executable, "-c", program, "--serve", str(folder)]
    with (folder / "log").open("ab") as log:
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _loading_variables(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_LOADING_PREFIXES) and name not in _LATER_NAMES and not name.startswith(_LATER_PREFIXES)
    }


def run(folder: Path, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python and wait for it, in a fork of the server if possible.

    Parameters
    ----------
    folder : Path
        The folder that was passed to ``start_server``.
    command : list of str
        The words after ``python`` on a command line: a script, ``-m`` and a module, or ``-c`` and code; then arguments.
    **options
        ``cwd`` and ``env`` of :func:`subprocess.run`.

    Returns
    -------
    CompletedProcess
        The process, which has ended, with its output as text.
    """
    environment, cwd = options["env"], options["cwd"]
    if not _can_fork(folder, environment):
        return subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False, cwd=cwd, env=environment
        )
    # Use files, because nobody would read from pipes while this process waits.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, Path(os.devnull).open("rb") as null_file:
        connection = _request_fork(folder, command, environment, cwd, [null_file.fileno(), out.fileno(), err.fileno()])
        with connection:
            status = connection.recv(1)
            connection.recv(1)  # returns when the process ends and so closes the other end
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(io.TextIOWrapper(file, "utf-8").read())
    return subprocess.CompletedProcess(command, status[0] if status else 1, *texts)


def _can_fork(folder: Path, environment: dict[str, str]) -> bool:
    variables_file = folder / "environment.json"
    return (
        COLD_START not in environment
        and (folder / "log").exists()
        and _loading_variables(environment) == json.loads(variables_file.read_text())
    )


def _request_fork(
    folder: Path, command: list[str], environment: dict[str, str], cwd: Any, files: list[int]
) -> socket.socket:
    """Make the server fork a process whose standard streams are ``files``."""
    connection = _connect(folder)
    fields = {"command": command, "environment": environment, "folder": str(cwd), "niceness": os.nice(0)}
    request = json.dumps(fields).encode()
    head = len(request).to_bytes(8, "big")
    connection.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
    connection.sendall(request)
    return connection


# --- The command of the kernelspec, and other commands -----------------------------------------------------------


def run_kernel(folder: Path, arguments: list[str]) -> None:
    """Run a kernel in a fork of the server."""
    # The parent is the server. With this option, a kernel neither waits for its parent's end nor prints how to connect.
    run_proxy(folder, ["-m", "ipykernel_launcher", *arguments], ["--IPKernelApp.parent_handle=1"])


def run_proxy(folder: Path, command: list[str], fork_arguments: list[str]) -> None:
    """Make the server fork a process, pass signals on to it, and exit when it exits.

    Parameters
    ----------
    folder : Path
        The folder that was passed to ``start_server``.
    command : list of str
        The words after ``python`` on a command line.
    fork_arguments : list of str
        Further arguments if the command runs in a fork.
    """
    words = list(itertools.dropwhile(_OPTIONS.__contains__, command))
    is_forkable = words[:1] in (["-m"], ["-c"]) or (words and not words[0].startswith("-"))
    if not is_forkable or not _can_fork(folder, dict(os.environ)):
        os.execv(sys.executable, [sys.executable, *command])
    connection = _request_fork(folder, [*command, *fork_arguments], dict(os.environ), Path.cwd(), [0, 1, 2])

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(bytes([number]))

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    status = b""
    with contextlib.suppress(OSError):
        status = connection.recv(1)  # the process has the other end, which is closed when it exits
    sys.exit(status[0] if status else 1)


def _connect(folder: Path) -> socket.socket:
    """Connect to the server as soon as it is ready."""
    end = time.monotonic() + _SERVER_START_LIMIT_S
    while time.monotonic() < end:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(_address(folder))
        except OSError:
            connection.close()
            time.sleep(0.05)
        else:
            return connection
    raise TimeoutError(f"no server: see {folder / 'log'}")


def _address(folder: Path) -> str:
    return f"\0graphbreak-{folder.resolve()}"[:100]  # an abstract address, because the path of a socket may be too long


# --- The server --------------------------------------------------------------------------------------------------


def load() -> None:
    """Load the modules that processes start with."""
    for name in _MODULES:
        importlib.import_module(name)
    package = importlib.import_module("jupyter_graphbreak")
    for module in pkgutil.walk_packages(package.__path__, "jupyter_graphbreak."):
        if not module.name.endswith((".__main__", ".assistant_tools")):  # the latter loads a plugin of pytest
            with contextlib.suppress(ImportError):  # an optional package may be missing
                importlib.import_module(module.name)
    templates = importlib.import_module("jupyter_graphbreak.views.html.environment").environment()
    for name in templates.list_templates():
        templates.get_template(name)
    for owner, name, value in short_measurements():
        setattr(owner, name, value)


def short_measurements() -> Iterator[tuple[types.ModuleType, str, Any]]:
    """Yield each module and name that limits how long this package measures, and the value for tests."""
    package = "jupyter_graphbreak.experiments.cost"
    for (module, name), value in _SHORT_TIMES.items():
        yield importlib.import_module(f"{package}.{module}"), name, value
    budget = importlib.import_module(f"{package}.timing").Budget(seconds=0.1, max_runs=60)
    for module in _MODULES_WITH_BUDGET:
        yield importlib.import_module(f"{package}.{module}"), "_BUDGET", budget


def few_unusual_inputs() -> Iterator[tuple[types.ModuleType, str, int]]:
    """Yield each module and name that limits how many unusual inputs trials use, and the value for tests."""
    original = importlib.import_module("jupyter_graphbreak.experiments.remedies.original")
    yield original, "_MAX_KEPT_BYTES", 0
    yield original, "_MIN_EDGE_CASES", 8


def serve(folder: Path) -> None:
    """Load PyTorch and fork on request, until the process that started the server exits."""
    parent = os.getppid()  # read before PyTorch is loaded, because the tests may end in the meantime
    sys.path[0] = ""
    load()
    gc.collect()
    gc.freeze()  # forks then skip these objects in garbage collections
    server = socket.socket(socket.AF_UNIX)
    server.bind(_address(folder))
    server.listen(64)
    server.settimeout(5)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # only the requesting process waits for a fork
    guards = importlib.import_module("torch._dynamo.guards")
    guards.profile_guard_manager = lambda *_: 0.0  # type: ignore[attr-defined] # it flushes caches to measure a time that no test uses
    while os.getppid() == parent:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            server.close()
            run_request(connection)
        connection.close()


def run_request(connection: socket.socket) -> None:
    """Turn this process into the requested one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    head, ancillary, *_ = connection.recvmsg(8, socket.CMSG_LEN(3 * array.array("i").itemsize))
    descriptors = array.array("i")
    descriptors.frombytes(ancillary[0][2])
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    encoded_request = b""
    while len(encoded_request) < int.from_bytes(head, "big"):
        encoded_request += connection.recv(1 << 16)
    request = json.loads(encoded_request)
    os.chdir(request["folder"])
    os.nice(request["niceness"] - os.nice(0))
    os.environ.clear()
    os.environ.update(request["environment"])
    if os.environ.pop(FEW_INPUTS, None):
        for owner, name, value in few_unusual_inputs():
            setattr(owner, name, value)
    if {"TORCH_TRACE", "TORCH_LOGS"} & os.environ.keys():
        logs: Any = importlib.import_module("torch._logging._internal")
        logs.LOG_TRACE_HANDLER = None  # it still writes to the folder that was set before the fork
        logs._init_logs()
    for module in ("random", "numpy.random"):
        importlib.import_module(module).seed()
    threading.Thread(target=_handle_signals, args=[connection], daemon=True).start()
    status = _run_in_this_process(*request["command"])
    threading._shutdown()  # type: ignore[attr-defined] # as at the end of a Python process
    atexit._run_exitfuncs()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    with contextlib.suppress(OSError):
        connection.sendall(bytes([status & 255]))
    os._exit(status)


def _run_in_this_process(first: str, *others: str) -> int:
    """Run a script, a module or code as ``python`` does, and return the exit status."""
    try:
        match first:
            case "-u":
                sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr] # it is a text stream
                return _run_in_this_process(*others)
            case "-P":  # the path has no folder of the program
                del sys.path[0]
                return _run_in_this_process(*others)
            case "-m":
                sys.argv = [*others]
                if others[0] == "pytest":  # pytest warns about plugins that are already imported
                    _unload_package()
                runpy.run_module(others[0], run_name="__main__", alter_sys=True)
            case "-c":
                sys.argv = ["-c", *others[1:]]
                sys.modules["__main__"] = main = types.ModuleType("__main__")
                exec(compile(others[0], "<string>", "exec"), vars(main))
            case script:
                sys.argv = [script, *others]
                sys.path[0] = str(Path(script).resolve().parent)
                runpy.run_path(script, run_name="__main__")
    except SystemExit as exit_request:
        if exit_request.code is not None and not isinstance(exit_request.code, int):
            sys.stderr.write(f"{exit_request.code}\n")
        return exit_request.code if isinstance(exit_request.code, int) else int(exit_request.code is not None)
    except BaseException as error:  # noqa: BLE001 - Python does the same
        sys.excepthook(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        return 1
    return 0


def collect_tests(options: list[str]) -> int:
    """Make pytest compile the tests to bytecode; return its exit status."""
    sys.path[0] = ""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = importlib.import_module("pytest").main(["--collect-only", "-q", "-p", "no:cacheprovider", *options])
    if status:
        sys.stderr.write(output.getvalue())
    return int(status)


def _unload_package() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "jupyter_graphbreak"]:
        del sys.modules[name]


def _handle_signals(connection: socket.socket) -> None:
    """Pass signals of the requesting process on to this process group, and kill the group when that process ends."""
    while True:
        try:
            number = connection.recv(1)
        except OSError:
            number = b""
        if not number:
            os.killpg(0, signal.SIGKILL)
        os.killpg(0, number[0])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve", folder]:
            serve(Path(folder))
        case ["--load", *options]:
            load()
            sys.exit(collect_tests(options))
        case ["--kernel", folder, *arguments]:
            run_kernel(Path(folder), arguments)
        case ["--command", folder, *command]:
            run_proxy(Path(folder), command, [])
