"""``graphbreak script``: run a Python program as Python would, and explain what was compiled."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
import types
from importlib.abc import InspectLoader
from importlib.machinery import SourcelessFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec.structs import replace

from jupyter_graphbreak.commands.formats import CommandResult, result_of_job
from jupyter_graphbreak.commands.options import FAILURE_STATUS, INTERRUPTED_STATUS, Gate, SharedOptions, shared_options
from jupyter_graphbreak.report.schema import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.machinery import ModuleSpec
    from types import CodeType, TracebackType

    from jupyter_graphbreak.api.watching import Run
    from jupyter_graphbreak.results import Job, Report


class ProgramCommand(click.Command):
    """A command whose options end before the name of a program; all later arguments belong to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options, and keep the program and its arguments for later."""
        flags = {name for option in self.params if getattr(option, "is_flag", False) for name in option.opts}
        index = 0
        while index < len(args) and args[index].startswith("-") and args[index] != "--":
            if args[index].startswith("-m"):
                break
            index += 1 if args[index] in {*flags, "--help", "-h"} or "=" in args[index] else 2
        ctx.meta["program"] = args[index + (args[index : index + 1] == ["--"]) :]
        return super().parse_args(ctx, args[:index])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line."""
        return [*super().collect_usage_pieces(ctx), "FILE | -m MODULE", "[ARGUMENTS]..."]


@click.command("script", cls=ProgramCommand, short_help="Run a Python program and explain what was compiled.")
@click.option("--processes", is_flag=True, help="Also explain the processes that the program starts.")
@click.option("--compile", "compiles", is_flag=True, help="Compile the modules and functions that the program calls.")
@click.option("--try", "tries", is_flag=True, help="Try changes that remove breaks and recompiles.")
@click.option(
    "--patch",
    metavar="FILE",
    help="Try only your own change, given as a unified diff; with --try, it is tried before all other changes.",
)
@click.option("--cost", is_flag=True, help="Measure what compiling costs and saves.")
@click.option("--check", is_flag=True, help="Compare compiled results with eager ones.")
@click.option("--values", is_flag=True, help="Show the values inside compiled code, and where NaN and Inf arise.")
@click.option(
    "--at",
    multiple=True,
    metavar="LINE",
    help="Like --values, but only for this line, operation by operation: 12 or model.py:12; can be repeated.",
)
@shared_options
@click.pass_context
def script_command(
    context: click.Context, /, *, processes: bool, compiles: bool, **options: Any
) -> int:  # fmt: skip
    """Run the Python program FILE, or MODULE as `python -m` does, and explain what torch.compile did in it.

    With --compile, the modules and tensor functions that the program calls are compiled with the backend eager, as in
    a notebook cell without torch.compile.

    With --try, --patch, --cost, --check, --values and --at, the functions that were compiled run again on copies when
    the program has ended; the files and the state that they would change stay unchanged.

    Put options of graphbreak before the program, and the program's own options after it. In all formats except text,
    the program prints to stderr, so that stdout has only the report. If the program ends with an exit status other
    than 0, graphbreak ends with the same status.
    """
    reruns = RerunOptions(**{name: options.pop(name) for name in RerunOptions._fields})
    gate = Gate(SharedOptions(**options))
    program = program_of(context)
    _check_rerun_options(reruns)
    run, status = run_program(
        program,
        compiles=compiles,
        to_stderr=options["output_format"] != "text",
        processes=processes,
        entries=any(reruns),
    )
    if run is None:
        return status or FAILURE_STATUS

    report = _rerun(run, reruns) if any(reruns) else run.report
    gate_status = gate.finish(
        CommandResult([report]) if run.job is None else result_of_job(_with_report(run.job, report))
    )
    return status or gate_status


def _with_report(job: Job, report: Report) -> Job:
    """Return a job in which the program's own process has a new report."""
    own_process, *other_processes = job.processes
    return replace(job, processes=[replace(own_process, report=report), *other_processes])


class RerunOptions(NamedTuple):
    """The options that run a program's compiled functions again after it has ended."""

    tries: bool
    patch: str | None
    cost: bool
    check: bool
    values: bool
    at: tuple[str, ...]


class RequestedProgram(NamedTuple):
    """The program on the command line: its file or its module, and its arguments."""

    file: str
    module: str | None
    arguments: list[str]


def program_of(context: click.Context) -> RequestedProgram:
    """Return the program of a command line, or raise a UsageError if it names none, or one that does not exist."""
    words = context.meta["program"]
    if words[:1] == ["-m"]:
        module, arguments = words[1] if len(words) > 1 else "", words[2:]
    elif words and words[0].startswith("-m"):
        module, arguments = words[0][2:], words[1:]
    else:
        module, arguments = None, words[1:]
    if module == "" or not words:
        command = context.info_name
        raise click.UsageError(f"no program given: use graphbreak {command} FILE or graphbreak {command} -m MODULE")
    if module is None and not os.path.isfile(words[0]):  # noqa: PTH113 - a Path would change the name
        raise click.UsageError(f"{words[0]}: no such file")
    if module is not None and not _module_exists(module):
        raise click.UsageError(f"-m {module}: no such module")
    context.with_resource(_restore_main())
    return RequestedProgram(words[0], module, arguments)


def run_program(
    program: RequestedProgram, *, compiles: bool, to_stderr: bool, **options: Any
) -> tuple[Run | None, int]:
    """Run a program as Python would; return the watched run (``None`` if it did not start) and the exit status.

    The further options are those of :func:`jupyter_graphbreak.capture`. With ``to_stderr``, the program's output goes
    to stderr.
    """
    from jupyter_graphbreak._torch_compat.toolchain import require_torch

    require_torch()  # before the next import, which needs torch

    from jupyter_graphbreak.api.watching import capture

    status = 0
    run = None
    file, module, arguments = program
    with _redirect_stdout_to_stderr(enabled=to_stderr):
        try:
            with capture(compile=compiles, **options) as run, _set_program_environment(module, file, arguments):
                if module is None and not compiles and pkgutil.get_importer(file) is not None:
                    runpy.run_path(file, run_name="__main__")  # an archive
                else:
                    _run_as_main(file, module, compiles_calls=compiles)
        except SystemExit as exit_:
            status = _exit_status(exit_.code)
        except KeyboardInterrupt:
            status = INTERRUPTED_STATUS
        except Exception as error:  # noqa: BLE001 - the program may raise any error
            program_traceback = _program_traceback(error)
            sys.excepthook(type(error), error.with_traceback(program_traceback), program_traceback)
            status = FAILURE_STATUS
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    return run, status


def _run_as_main(path: str, module: str | None, *, compiles_calls: bool) -> None:
    """Run a file, or a module as ``python -m`` does, as ``__main__``.

    The program's module remains ``__main__`` afterwards, because Dynamo looks up globals there when the program's
    functions run again. With ``compiles_calls``, its calls are rewritten so that what they call can be compiled.
    """
    spec = _spec_of(module) if module is not None else None
    filename = str(spec.origin) if spec is not None else path
    if compiles_calls:
        from jupyter_graphbreak.compiling.routes import route_calls

        tree = ast.parse(Path(filename).read_bytes(), filename)
        route_calls(tree.body)
        code = compile(tree, filename, "exec", dont_inherit=True)
    else:
        code = _code_of(spec, filename)
    main = types.ModuleType("__main__")
    vars(main).update(__file__=filename, __builtins__=__builtins__, __spec__=spec, __cached__=None)
    if spec is not None:
        vars(main).update(__package__=spec.parent, __loader__=spec.loader)
        sys.argv[0] = filename
    sys.modules["__main__"] = main
    exec(code, vars(main))  # noqa: S102 - runs the user's program


def _code_of(spec: ModuleSpec | None, filename: str) -> CodeType:
    """Return the code of a module, even without source code, or of a file, even if it contains bytecode."""
    if spec is not None and isinstance(spec.loader, InspectLoader):
        code = spec.loader.get_code(spec.name)
        if code is not None:
            return code
    if filename.endswith(".pyc"):
        compiled = SourcelessFileLoader("__main__", filename).get_code("__main__")
        if compiled is not None:
            return compiled
    return compile(Path(filename).read_bytes(), filename, "exec", dont_inherit=True)


def _spec_of(module: str) -> ModuleSpec:
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{module}.__main__")
    if spec is None or spec.origin is None:
        raise ImportError(f"{module} cannot be run: it is a package without __main__")
    return spec


def _check_rerun_options(reruns: RerunOptions) -> None:
    """Raise a usage error before the program runs, if the patch cannot be read or a value of --at is not a line."""
    if reruns.patch is not None:
        from jupyter_graphbreak.experiments.remedies.own_edits import read_patch

        try:
            read_patch(reruns.patch)
        except (OSError, ValueError) as error:
            raise click.UsageError(f"--patch {reruns.patch}: {error}") from None
    if reruns.at:
        from jupyter_graphbreak.experiments.values.requested_lines import parse_lines

        try:
            parse_lines(reruns.at)
        except ValueError as error:
            raise click.UsageError(f"--at {error}") from None


def _rerun(run: Run, reruns: RerunOptions) -> Report:
    """Run a finished program's compiled functions again on copies, without their output; return the new report."""
    from jupyter_graphbreak.experiments.trial.other_threads import redirect_thread_streams

    report = run.report
    try:
        with redirect_thread_streams(io.StringIO(), io.StringIO()):
            if reruns.tries or reruns.patch is not None:
                seconds = None if reruns.tries else 0  # a patch has its own time limit
                also = [reruns.patch] if reruns.patch is not None else []
                report = run.try_remedies(also=also, seconds=seconds)
            if reruns.cost:
                report = run.measure()
            if reruns.check:
                report = run.check()
            if reruns.values or reruns.at:
                report = run.values(at=reruns.at)
    except KeyboardInterrupt:
        note = Diagnostic("warning", "Running the functions again was interrupted.")
        report = replace(report, diagnostics=[*report.diagnostics, note])
    return report


def _exit_status(code: Any) -> int:
    """Return the exit status for ``sys.exit(code)``; print a code that is not an integer, as Python does."""
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    click.echo(code, err=True)
    return 1


def _module_exists(module: str) -> bool:
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - Python does the same
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False
    finally:
        del sys.path[0]


@contextlib.contextmanager
def _restore_main() -> Iterator[None]:
    """Restore ``__main__`` at the end of the context; during the reruns, the program's module has that name."""
    original_main = sys.modules["__main__"]
    try:
        yield
    finally:
        sys.modules["__main__"] = original_main


@contextlib.contextmanager
def _set_program_environment(module: str | None, file: str, arguments: list[str]) -> Iterator[None]:
    """Set the arguments and the module search path to what Python sets for a program."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [file if module is None else "-m", *arguments]
    folder = os.path.dirname(os.path.abspath(file)) if module is None else os.getcwd()  # noqa: PTH100, PTH109, PTH120
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


@contextlib.contextmanager
def _redirect_stdout_to_stderr(*, enabled: bool) -> Iterator[None]:
    """Redirect the program's output, and that of programs that it starts, to stderr."""
    if not enabled:
        yield
        return
    sys.stdout.flush()
    original_stdout = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(original_stdout, 1)
        os.close(original_stdout)


def _program_traceback(error: Exception) -> TracebackType | None:
    """Return the traceback of an error without the frames that ran the program.

    If no other frames are left, the result is ``None`` for a SyntaxError, and the whole traceback for other errors.
    """
    from jupyter_graphbreak.analysis.locations import is_runner
    from jupyter_graphbreak.records.package_paths import package_paths

    packages = package_paths()
    traceback = error.__traceback__
    while traceback is not None:
        path = packages.module_path(traceback.tb_frame.f_code.co_filename)
        if path is None or not (is_runner(path) or path.startswith(("jupyter_graphbreak/", "contextlib.py"))):
            return traceback
        traceback = traceback.tb_next
    return None if isinstance(error, SyntaxError) else error.__traceback__  # the program itself may not be valid Python
