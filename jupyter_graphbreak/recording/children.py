"""Make the processes that a block of code starts write their traces into one folder while the block runs.

A new process finds ``TORCH_TRACE`` in its environment. A forked process continues with the loaded torch, so its trace
writer is set explicitly. A process with a different environment cannot be watched. Several blocks can be watched at
once: each thread starts its processes with the folder of its own block.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.patching import patch_attribute
from jupyter_graphbreak._torch_compat.structured_trace import trace_logger, trace_writer
from jupyter_graphbreak._torch_compat.threads import as_stdlib_function, break_at_call, claim_thread, current_claims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak._torch_compat.threads import Claim

_TRACE_VARIABLE = "TORCH_TRACE"
#: Commands and programs that run Python; only their processes are noted as missing.
_PYTHON_COMMAND = re.compile(r"python|torchrun|accelerate|deepspeed", re.IGNORECASE)
_MAX_COMMAND_LENGTH = 100
#: Processes that only wait for work use less processor time than this.
_MIN_WORK_S = 0.2
#: The audit events for starting a process that may inherit the environment.
_START_EVENTS = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec"})
#: Folders to remove, again at the end, because a process that outlives the watched code recreates its folder.
_folders_to_remove: set[str] = set()
#: The blocks that are watched now, in the order in which they began.
_blocks: list[_WatchedBlock] = []
#: Whether we removed ``TORCH_TRACE`` because a thread outside all blocks started a process.
_is_variable_removed = [False]
_start_lock = threading.RLock()
#: Whether the hooks are installed. Neither an audit hook nor a function that runs after a fork can be removed.
_has_hooks = [False]


class _WatchedBlock(NamedTuple):
    """A block of code whose processes are watched; the claim tells which threads run the block."""

    folder: str
    claim: Claim
    on_note: Callable[[str], None]


@contextlib.contextmanager
def trace_child_processes(on_note: Callable[[str], None]) -> Iterator[Path]:
    """Yield a temporary folder for the traces of the processes that the ``with`` block starts.

    If the user has set ``TORCH_TRACE``, that setting stays in force, and the yielded folder is empty. ``on_note``
    receives a sentence about this, and one about each process that cannot be watched. Such processes are noticed only
    if this process starts them with ``subprocess``.
    """
    if _is_set_by_user(os.environ.get(_TRACE_VARIABLE)):
        user_folder = os.environ[_TRACE_VARIABLE]
        on_note(
            f"{_TRACE_VARIABLE} was already set, so processes wrote their logs to {user_folder}; read them from there."
        )
        with tempfile.TemporaryDirectory(prefix="graphbreak-") as empty_folder:
            yield Path(empty_folder)
        return
    _remove_folders()
    folder = tempfile.mkdtemp(prefix="graphbreak-")
    _folders_to_remove.add(folder)
    earlier_handlers = list(trace_logger().handlers)
    _install_hooks()
    outer = _current_block()
    with claim_thread() as claim, _patch_process_starts():
        block = _WatchedBlock(folder, claim, on_note)
        _blocks.append(block)
        try:
            os.environ[_TRACE_VARIABLE] = folder
            yield Path(folder)
        finally:
            _blocks.remove(block)
            _restore_environment(folder)
            for handler in list(trace_logger().handlers):  # torch has created it if the block reset its logs
                if handler not in earlier_handlers and getattr(handler, "root_dir", None) == folder:
                    trace_logger().removeHandler(handler)
                    handler.close()
            if outer is not None and outer in _blocks:  # the block's processes also belong to the outer block
                with contextlib.suppress(OSError):
                    for path in Path(folder).iterdir():
                        shutil.move(path, outer.folder)
            _remove_folders()


@contextlib.contextmanager
def note_earlier_processes(on_note: Callable[[str], None]) -> Iterator[None]:
    """Note the number of processes that started before the ``with`` block and work while it runs, such as Ray's."""
    earlier_seconds = _child_processor_seconds()
    try:
        yield
    finally:
        current_seconds = _child_processor_seconds() if earlier_seconds else {}
        count = sum(
            current_seconds.get(process, seconds) - seconds >= _MIN_WORK_S
            for process, seconds in earlier_seconds.items()
        )
        if count:
            processes, pronoun = ("1 process", "it") if count == 1 else (f"{count} processes", "they")
            on_note(
                f"{processes} worked in this run but had started before it, so the report lacks the code that "
                f"{pronoun} compiled: start such processes in the cell or block itself (`ray.init()`, a pool, a "
                "`LocalCluster`)."
            )


def _child_processor_seconds() -> dict[tuple[int, float], float]:
    """Return the processor time in seconds of each descendant process that runs Python, by its id and start time.

    The command line is ignored, because Ray's workers replace it with a title.
    """
    processor_seconds = {}
    with contextlib.suppress(Exception):  # our errors must not reach the user's program
        import psutil

        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                if _PYTHON_COMMAND.search(child.exe()):
                    times = child.cpu_times()
                    processor_seconds[child.pid, child.create_time()] = times.user + times.system
    return processor_seconds


def _is_set_by_user(value: str | None) -> bool:
    return value is not None and all(block.folder != value for block in _blocks)


def _current_block() -> _WatchedBlock | None:
    """Return the innermost block that this thread runs; ``None`` if it runs none."""
    claims = current_claims()
    return next((block for block in reversed(_blocks) if block.claim in claims), None)


def _restore_environment(folder: str) -> None:
    """After a folder's block has ended, set the variable to the folder of a block that is still watched."""
    if os.environ.get(_TRACE_VARIABLE) == folder:
        _set_variable(_blocks[-1].folder if _blocks else None)
    if not _blocks:
        _is_variable_removed[0] = False


def _set_variable(folder: str | None) -> None:
    if folder is None:
        os.environ.pop(_TRACE_VARIABLE, None)
    else:
        os.environ[_TRACE_VARIABLE] = folder


def _controls_variable() -> bool:
    """Return whether the variable is as we left it; the user's program may have set or removed it."""
    value = os.environ.get(_TRACE_VARIABLE)
    return bool(_blocks) and not _is_set_by_user(value) and (value is not None or _is_variable_removed[0])


def _set_variable_for_thread() -> None:
    """Set the variable, which a new process inherits, to the folder of this thread's block."""
    if not _controls_variable():
        return
    block = _current_block()
    _is_variable_removed[0] = block is None
    _set_variable(None if block is None else block.folder)


def _install_hooks() -> None:
    if not _has_hooks[0]:
        sys.addaudithook(_before_start)
        atexit.register(_remove_folders)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_trace_after_fork)
            # Another thread, which the child does not have, may have held the lock.
            os.register_at_fork(after_in_child=_start_lock._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001
        _has_hooks[0] = True


@contextlib.contextmanager
def _patch_process_starts() -> Iterator[None]:
    """Start processes one after the other, each with the folder of the thread that starts it.

    The environment belongs to the whole process, and ``multiprocessing`` spawns without an audit event.
    """
    util: Any = importlib.import_module("multiprocessing.util")
    with contextlib.ExitStack() as stack:
        for owner, name in ((subprocess.Popen, "__init__"), (util, "spawnv_passfds")):
            original = getattr(owner, name, None)
            if original is not None:  # some systems lack it
                stack.enter_context(patch_attribute(owner, name, _set_variable_before(original)))
        if os.name == "posix":
            system = _set_variable_in_shell(os.system)
            stack.enter_context(break_at_call(system))
            stack.enter_context(patch_attribute(os, "system", system))
        yield


def _set_variable_before(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def start(*args: Any, **kwargs: Any) -> Any:
        with _start_lock:
            with contextlib.suppress(Exception):  # our errors must not reach the user's program
                _set_variable_for_thread()
            return original(*args, **kwargs)

    return start


def _set_variable_in_shell(original: Callable[[Any], int]) -> Any:
    """Return an ``os.system`` whose shell sets the variable, because other threads must not wait for the command."""

    @functools.wraps(original)
    def system(command: str | bytes | os.PathLike[str]) -> int:
        with contextlib.suppress(Exception):  # our errors must not reach the user's program
            if _controls_variable():
                block = _current_block()
                command = _variable_command(None if block is None else block.folder) + os.fsdecode(command)
        return original(command)

    return as_stdlib_function(system, os.popen)


def _variable_command(folder: str | None) -> str:
    """Return a one-line shell prefix that sets ``TORCH_TRACE`` to a folder, or unsets it if there is no folder."""
    return f"unset {_TRACE_VARIABLE}; " if folder is None else f"export {_TRACE_VARIABLE}={shlex.quote(folder)}; "


def original_command(command: str) -> str:
    """Return a shell command as the user's program passed it to ``os.system``."""
    for folder in (None, *(block.folder for block in _blocks)):
        command = command.removeprefix(_variable_command(folder))
    return command


def _remove_folders() -> None:
    for folder in _folders_to_remove - {block.folder for block in _blocks}:
        shutil.rmtree(folder, ignore_errors=True)


def _trace_after_fork() -> None:
    _folders_to_remove.clear()  # the parent removes them
    if not _blocks:
        return
    with contextlib.suppress(Exception):  # our errors must not reach the user's program
        _set_variable_for_thread()
        block = _current_block()
        if block is not None:
            trace_logger().handlers = [trace_writer(block.folder)]


def _before_start(event: str, arguments: tuple[Any, ...]) -> None:
    """Choose the folder for a process that is about to start; add a note if the process has its own environment."""
    if not _blocks or event not in _START_EVENTS:
        return
    with contextlib.suppress(Exception):  # our errors must not reach the user's program
        with _start_lock:
            _set_variable_for_thread()
        block = _current_block()
        if event == "subprocess.Popen" and block is not None:
            _note_if_unwatched(block, arguments[1], arguments[3])


def _note_if_unwatched(block: _WatchedBlock, command: Any, environment: Any) -> None:
    if not isinstance(environment, dict):  # the new process inherits the environment of this process
        return
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    words = [command] if isinstance(command, str | bytes) else command
    text = shlex.join(os.fsdecode(word) for word in words)
    if variables.get(_TRACE_VARIABLE) != block.folder and _PYTHON_COMMAND.search(text):
        shortened_text = text if len(text) <= _MAX_COMMAND_LENGTH else f"{text[:_MAX_COMMAND_LENGTH]}..."
        difference = "a different" if _TRACE_VARIABLE in variables else "no"
        block.on_note(
            f"A process is missing because it was started with {difference} {_TRACE_VARIABLE} in its environment: "
            f"{shortened_text}"
        )
