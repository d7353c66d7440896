"""The face for notebooks: ``%%compile_explain`` and ``%compile_explain``."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display
from msgspec.structs import replace

from jupyter_graphbreak import calls
from jupyter_graphbreak import cell as cells
from jupyter_graphbreak.progress import ProgressMeter
from jupyter_graphbreak.screen import Screen
from jupyter_graphbreak.source import plain_function

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

    from jupyter_graphbreak.frontends import Frontends
    from jupyter_graphbreak.recorder import Recording
    from jupyter_graphbreak.report import Report

# What IPython keeps in the namespace: _, __, _3, _i, _i3, _ih, _oh, _dh.
_HISTORY = re.compile(r"_+|_+\d+|_i+|_i\d+|_[iod]h")
_HOW_TO_COMPARE = "write the call on a line: %compile_explain --frontends f(x)"
_FACES: dict[int, CompileExplain] = {}


def load(shell: InteractiveShell) -> None:
    """Register the magics with a shell; a second time changes nothing."""
    if id(shell) not in _FACES:
        _FACES[id(shell)] = face = CompileExplain(shell)
        face.connect()


def answer_requests(shell: InteractiveShell) -> None:
    """Load the extension for a front end that will ask in the metadata of its requests."""
    if not hasattr(shell, "get_parent"):
        raise UsageError("this kernel does not hand the metadata of requests on")
    load(shell)


def unload(shell: InteractiveShell) -> None:
    """Take the magics and everything that they hooked into away again."""
    face = _FACES.pop(id(shell), None)
    if face is not None:
        face.disconnect()


def begin(options: str, plan: cells.Plan, reason: str) -> None:
    """Begin to observe the cell that calls this; see :mod:`jupyter_graphbreak.cell` for who calls it."""
    _face().begin(options, plan, reason, sys._getframe(1).f_code.co_filename)  # noqa: SLF001 - the cell's own name


def run_function(name: str, assigned: str) -> None:
    """Compile and run the function that the observed cell was made into; :func:`value` has its value."""
    _face().run_function(name, assigned)


def trim_traceback() -> None:
    """Make the error in flight look like that of an ordinary cell."""
    error = sys.exc_info()[1]
    if error is not None:
        cells.trim(error, lambda name: plain_function(name) == "cell")


def value() -> Any:
    """Return the value of the cell that ran as a function, once."""
    return _face().take_value()


def _face() -> CompileExplain:
    from IPython.core.getipython import get_ipython

    face = _FACES.get(id(get_ipython()))
    if face is None:
        raise UsageError("the extension is not loaded: %load_ext jupyter_graphbreak")
    return face


@dataclass
class _Observation:
    """One run under observation: what must be undone, and where its report goes."""

    args: argparse.Namespace
    named: dict[str, Any]
    recording: Recording
    screen: Screen | None
    stack: contextlib.ExitStack
    device: str | None
    cell_id: str | None = None
    compare: Callable[[], Frontends] | None = None


@magics_class
class CompileExplain(Magics):
    """Explain what torch.compile does with a cell."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._ip = shell  # as self.shell, which may be None for its type
        self._cells = cells.Cells(shell)
        self._observation: _Observation | None = None
        self._value: Any = None
        self._inner_cells = 0
        self._asked: cells.Asked | None = None
        self._last_reports: dict[str, Report] = {}  # by the front end's id of the cell
        self._ast_transformer = cells.BeginObservation(self._uses_compile, self._runs_code, self._take_asked)

    def connect(self) -> None:
        """Register with the shell."""
        self._ip.register_magics(self)
        self._ip.input_transformers_cleanup.insert(0, cells.replace_magic_line)
        self._ip.ast_transformers.append(self._ast_transformer)
        self._ip.events.register("pre_run_cell", self._enter)
        self._ip.events.register("post_run_cell", self._end)
        self._format_reports()

    def disconnect(self) -> None:
        """Take everything back that :meth:`connect` registered."""
        self._ip.input_transformers_cleanup.remove(cells.replace_magic_line)
        self._ip.ast_transformers.remove(self._ast_transformer)
        self._ip.events.unregister("pre_run_cell", self._enter)
        self._ip.events.unregister("post_run_cell", self._end)
        for kind in ("line", "cell"):
            self._ip.magics_manager.magics[kind].pop("compile_explain", None)
        if self._ip.display_formatter is not None:
            self._ip.display_formatter.mimebundle_formatter.pop("jupyter_graphbreak.report.Report", None)

    @magic_arguments()
    @argument(
        "-d", "--device", default="auto", metavar="DEVICE",
        help="Where to run: auto (the default: the kernel's CUDA device, unless the cell uses a tensor or a model that "
        "lives on the CPU), cpu, cuda or cuda:N.",
    )  # fmt: skip
    @argument(
        "-b", "--backend", default=None, metavar="NAME",
        help="The backend for everything that is compiled while the cell runs, also by its own torch.compile calls. "
        "Without it these keep theirs, and what the magic compiles uses eager: the same graphs and breaks, no code "
        "generation.",
    )  # fmt: skip
    @argument("--fullgraph", action="store_true", help="Compile the cell with fullgraph=True: a break is an error.")
    @argument("--mode", default=None, metavar="MODE", help="Compile the cell with this mode of torch.compile.")
    @argument(
        "--dynamic", default=None, choices=["true", "false"],
        help="Compile the cell with dynamic shapes, or without.",
    )  # fmt: skip
    @argument(
        "--frontends", action="store_true",
        help="Compare what torch.jit, torch.fx, torch.compile and torch.export make of the function that is called. "
        "Further calls of it say with which other inputs: %%compile_explain --frontends f(x), f(-x)",
    )  # fmt: skip
    @argument(
        "-o", "--output", default=None, metavar="NAME",
        help="Store the report in this variable; with --frontends the comparison, whose .report it is.",
    )  # fmt: skip
    @argument("-q", "--quiet", action="store_true", help="Show nothing; useful together with -o.")
    @argument("expression", nargs="*", help="With %%compile_explain on a line: the call to explain.")
    @no_var_expand
    @line_cell_magic
    def compile_explain(self, line: str, cell: str | None = None) -> Any:
        """Run a cell, or one call, and explain what torch.compile did with it.

        ::

            %%compile_explain [options]       as the first line of a cell
            %compile_explain [options] f(x)   on a line: compiles f, calls it, returns its value
            %compile_explain --frontends f(x), f(-x)   the front ends on f, compared on -x as well

        A cell whose code uses torch.compile runs as it stands. Any other is compiled itself, as one function;
        --fullgraph, --mode and --dynamic apply to what the magic compiles. The report has every graph break once, at
        its line, with its reason; the graphs and the lines that went into them; and what runs eagerly, and why.
        """
        if cell is None:
            return self._explain_line(line)
        result = self._ip.run_cell(f"{cells.MAGIC} {line}\n{cell}", store_history=False)
        result.raise_error()
        return result.result

    # -- a cell

    def begin(self, options: str, plan: cells.Plan, reason: str, filename: str) -> None:
        """Begin to observe the running cell."""
        self._inner_cells = 0
        self._end(None)  # an observation that a strange front end never ended
        args = self._parse(options)
        if args.expression:
            raise UsageError(
                f"%%compile_explain takes options only, not {' '.join(args.expression)!r}; "
                "for one call write %compile_explain f(x)"
            )
        self._cells.enter(filename)
        text = self._cells.find(filename)
        tree = _parse_python(text.text if text is not None else "")
        named = self._named(tree)
        if args.frontends and not calls.last_called(tree, lambda _: True):
            raise UsageError(f"--frontends: the cell calls no function; {_HOW_TO_COMPARE}")
        observation = self._open(args, named)
        observation.cell_id = self._cell_id()
        if args.frontends:
            observation.compare = lambda: self._compare_called(tree, args)
        match plan:
            case "as it stands" if reason:
                self._ignored(observation, f"{reason} runs the cell's code")
                observation.recording.note(
                    "info", f"{reason} runs the cell's code: only what it compiles in this process is here."
                )
            case "as it stands":
                self._ignored(observation, "the cell's code uses torch.compile and runs as it stands")
            case "compiled":
                observation.recording.note("info", "The cell uses no torch.compile: it was compiled as one function.")
            case "nothing":
                observation.recording.note(
                    "info", "There was nothing to compile: the cell only imports, defines or runs commands."
                )
            case "not compilable":
                observation.recording.note(
                    "warning", f"The cell was not compiled, because {reason}; it ran as it stands."
                )
        self._observation = observation

    def take_value(self) -> Any:
        """Hand out the value of the cell that ran as a function."""
        value, self._value = self._value, None
        return value

    def _runs_code(self, name: str) -> bool:
        return name == "run" or bool(getattr(self._ip.find_line_magic(name), "needs_local_scope", False))

    def run_function(self, name: str, assigned: str) -> None:
        """Compile and run the function that the cell was made into."""
        from jupyter_graphbreak import compiling

        namespace = self._ip.user_ns
        function = namespace.pop(name)
        observation = self._observation
        if observation is None:
            self._value = function()
            return
        function.__code__ = cells.as_module_code(function.__code__)
        if compiling.leads_to_compiled(self._named_by(function.__code__.co_names).values()):
            self._ignored(observation, "the cell uses a compiled function that it imports, and runs as it stands")
            self._value = function()
            return
        cells.declare(namespace, assigned)
        try:
            self._value = compiling.run_compiled(function, _options(observation.args))
        finally:
            cells.withdraw(namespace, assigned)

    def _enter(self, _: ExecutionInfo) -> None:
        """Note what is asked for of a cell, or count it among those that the observed one runs: ``pre_run_cell``."""
        if self._observation is not None:
            self._inner_cells += 1
        else:
            self._asked = cells.asked_by(self._cells.request())

    def _take_asked(self) -> cells.Asked | None:
        asked, self._asked = self._asked, None
        return asked

    def _end(self, result: ExecutionResult | None) -> None:
        """End the observation of the cell: IPython's event ``post_run_cell``."""
        self._asked = None  # of a cell that could not be parsed
        if self._inner_cells and result is not None:  # the end of a cell that the observed one ran, as %%capture does
            self._inner_cells -= 1
            return
        observation, self._observation = self._observation, None
        if observation is None:
            return
        error = None
        if result is not None:
            error = result.error_in_exec or result.error_before_exec
        self._close(observation, error)

    # -- a line

    def _explain_line(self, line: str) -> Any:
        from jupyter_graphbreak import compiling

        args = self._parse(line, keep_expression=True)
        try:
            tree = ast.parse(args.expression, mode="eval")
        except SyntaxError as error:
            raise UsageError(f"%compile_explain cannot read {args.expression!r}: {error.msg}") from None
        given = tree.body.elts if args.frontends and isinstance(tree.body, ast.Tuple) else [tree.body]
        called = [each for each in given if isinstance(each, ast.Call)]
        if not called or len(called) < len(given):
            raise UsageError(f"%compile_explain explains a call, and {args.expression!r} is none: write f(x)")
        if len({ast.dump(each.func) for each in called}) > 1:
            raise UsageError(f"--frontends compares one function, and {args.expression!r} calls others, too")
        namespace = self._ip.user_ns
        observation = self._open(args, self._named(tree))
        failed: BaseException | None = None
        try:
            if args.frontends:
                observation.compare = self._comparison(called, args)
            function, arguments, keywords = self._evaluate(called[0], namespace)
            if compiling.is_compiled(function):
                self._ignored(observation, "the function is compiled already")
            compiling.forget(function)
            compiled = compiling.ensure_compiled(function, _options(args))
            return compiled(*arguments, **keywords)
        except BaseException as error:
            failed = error
            raise
        finally:
            self._close(observation, failed)

    @staticmethod
    def _evaluate(call: ast.Call, namespace: dict[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
        """Evaluate the function and the arguments of a call, in the notebook's namespace, without calling it."""
        collect = ast.Call(ast.Name("_collect", ast.Load()), [call.func, *call.args], call.keywords)
        code = compile(ast.fix_missing_locations(ast.Expression(collect)), "<compile_explain>", "eval")

        def _collect(function: Any, *args: Any, **kwargs: Any) -> tuple[Any, list[Any], dict[str, Any]]:
            return function, list(args), kwargs

        return eval(code, namespace, {"_collect": _collect})  # type: ignore[no-any-return]  # noqa: S307 - the user's code

    # -- the front ends

    def _compare_called(self, tree: ast.AST, args: argparse.Namespace) -> Frontends:
        """Compare the front ends on the function that a cell called last; its arguments are evaluated once more."""
        called = calls.last_called(tree, self._is_own_function)
        if not called:
            raise UsageError(f"--frontends: the cell calls no function of its own; {_HOW_TO_COMPARE}")
        return self._comparison(called, args)()

    def _comparison(self, called: list[ast.Call], args: argparse.Namespace) -> Callable[[], Frontends]:
        """Return what compares the front ends on the function and the inputs of some calls, as they are now."""
        from jupyter_graphbreak import compare
        from jupyter_graphbreak.inputs import Arguments

        evaluated = [self._evaluate(each, self._ip.user_ns) for each in called]
        function = compare.as_it_is(evaluated[0][0])
        first, *others = [Arguments(*arguments, **keywords).copy() for _, arguments, keywords in evaluated]
        backend = args.backend or "eager"
        return lambda: compare.compare(function.call, first, others, backend=backend, find_cell=self._cells.find)

    def _is_own_function(self, expression: ast.expr) -> bool:
        from jupyter_graphbreak import compiling

        names = [node for node in ast.walk(expression) if isinstance(node, ast.expr)]
        if not all(isinstance(node, ast.Name | ast.Attribute) for node in names):
            return False
        try:
            value = eval(ast.unparse(expression), self._ip.user_ns)  # noqa: S307 - a name, perhaps with attributes
        except Exception:  # noqa: BLE001 - gone again, or a property that fails
            return False
        return compiling.is_written_here(value)

    # -- both

    def _parse(self, line: str, *, keep_expression: bool = False) -> argparse.Namespace:
        expression = ""
        if keep_expression:
            line, expression = _split_options(line)
        try:
            args: argparse.Namespace = parse_argstring(self.compile_explain, line)
        except UsageError as error:
            raise UsageError(f"{error}; %%compile_explain? lists the options") from None
        if args.output is not None and not args.output.isidentifier():
            raise UsageError(f"-o {args.output}: a variable's name is needed, such as -o report")
        if keep_expression:
            args.expression = expression
        return args

    def _open(self, args: argparse.Namespace, named: dict[str, Any]) -> _Observation:
        """Start watching; every misuse is a :class:`UsageError`, raised before anything has been changed."""
        from jupyter_graphbreak import _torch_compat, compiling, device, recorder

        try:
            _torch_compat.require_torch()
            names, current, why_none = _torch_compat.cuda_devices()
            choice = device.choose_device(
                args.device, device.Cuda(names, current, why_none), compiling.names_used(named)
            )
        except (_torch_compat.TorchUnavailable, ValueError) as error:
            raise UsageError(str(error)) from None
        if args.backend is not None and args.backend not in (known := _torch_compat.backends()):
            raise UsageError(f"unknown backend {args.backend!r}: use one of {', '.join(known)}")
        if args.mode is not None and args.mode not in (modes := _torch_compat.modes()):
            raise UsageError(f"unknown mode {args.mode!r}: use one of {', '.join(modes)}")
        with contextlib.ExitStack() as stack:
            screen = None if args.quiet or args.frontends else Screen(self._ip)
            unseen = screen.open() if screen is not None else None
            compiling.forget(*named.values())
            meter = None
            if screen is not None and screen.live:
                meter = stack.enter_context(ProgressMeter(screen.progress))
            recording = stack.enter_context(recorder.record(self._cells.find, meter.count if meter else None))
            recording.describe_device(choice.device)
            if unseen is not None:
                recording.note("warning", unseen)
            stack.enter_context(_torch_compat.forced_backend(args.backend))
            stack.enter_context(_torch_compat.default_device(choice.default))
            return _Observation(args, named, recording, screen, stack.pop_all(), choice.default)

    def _close(self, observation: _Observation, error: BaseException | None) -> None:
        """Stop watching, make the report, store and show it; a fault of ours is told, never raised."""
        from jupyter_graphbreak import api

        recording = observation.recording
        try:
            if error is not None:
                recording.fail(error)
            self._note_stale(observation)
        finally:
            observation.stack.close()
        try:
            report = self._compared(api.report_of(recording), observation.cell_id)
            if observation.args.output is not None:
                self._ip.user_ns[observation.args.output] = report
            if observation.compare is not None:
                self._show_comparison(observation, report)
            if observation.screen is not None:
                observation.screen.close(report)
        except Exception as fault:  # noqa: BLE001 - the user's cell has run, and its result stands
            print(f"compile_explain: no report, {type(fault).__name__}: {fault}", file=sys.stderr)  # noqa: T201

    def _show_comparison(self, observation: _Observation, report: Report) -> None:
        """Compare the front ends, where the run went well, and show the table above the report."""
        from jupyter_graphbreak import _torch_compat

        args = observation.args
        try:
            if report.status == "ok" and observation.compare is not None:
                with _torch_compat.default_device(observation.device):
                    found = observation.compare()
                if args.output is not None:
                    self._ip.user_ns[args.output] = found
                if not args.quiet:
                    display(found)
        except UsageError as error:
            print(f"UsageError: {error}", file=sys.stderr)  # noqa: T201 - the cell has run
        finally:
            if not args.quiet:
                display(report)

    def _cell_id(self) -> str | None:
        """Return the id of the notebook cell that runs, where the front end sends one (nbclient, say, does not)."""
        cell_id = (self._cells.request() or {}).get("metadata", {}).get("cellId")
        return cell_id if isinstance(cell_id, str) else None

    def _compared(self, report: Report, cell_id: str | None) -> Report:
        """Add to a report what changed since the run before of the same cell, and remember it for the next."""
        if cell_id is None:
            return report
        before, self._last_reports[cell_id] = self._last_reports.get(cell_id), report
        return replace(report, changes=before.diff(report)) if before is not None else report

    def _note_stale(self, observation: _Observation) -> None:
        from jupyter_graphbreak import compiling

        recording = observation.recording
        # A name that the cell gave to something else stands for what the cell itself compiled.
        kept = {name: value for name, value in observation.named.items() if self._ip.user_ns.get(name) is value}
        for name in compiling.stale(kept, recording.started_codes()):
            recording.note(
                "warning", f"{name} was compiled before and was not compiled again: its graphs are not here."
            )

    @staticmethod
    def _ignored(observation: _Observation, because: str) -> None:
        """Say that options for what the magic compiles had nothing to apply to."""
        args = observation.args
        given = [f"--{name}" for name in ("fullgraph", "mode", "dynamic") if getattr(args, name)]
        if given:
            observation.recording.note("warning", f"{', '.join(given)} had no effect: {because}.")

    def _uses_compile(self, tree: ast.Module) -> bool:
        from jupyter_graphbreak import compiling

        if cells.mentions_compile(tree, self._ip.user_ns):
            return True
        return "torch" in sys.modules and compiling.leads_to_compiled(self._named(tree).values())

    def _named(self, tree: ast.AST) -> dict[str, Any]:
        return self._named_by(cells.names_read(tree))

    def _named_by(self, names: Any) -> dict[str, Any]:
        namespace = self._ip.user_ns
        return {name: namespace[name] for name in sorted(names) if name in namespace and not _HISTORY.fullmatch(name)}

    def _format_reports(self) -> None:
        """Show a report that is a cell's value as the magic shows it."""

        def bundle(report: Report) -> dict[str, Any]:
            from jupyter_graphbreak.views.widget import ReportWidget, mime_bundle

            widget = ReportWidget() if hasattr(self._ip, "kernel") else None
            if widget is not None:
                widget.finish(report)
            return mime_bundle(report, widget)

        if self._ip.display_formatter is not None:
            self._ip.display_formatter.mimebundle_formatter.for_type("jupyter_graphbreak.report.Report", bundle)


def _options(args: argparse.Namespace) -> Any:
    from jupyter_graphbreak.compiling import Options

    dynamic = {"true": True, "false": False}.get(args.dynamic) if args.dynamic is not None else None
    return Options(backend=args.backend, mode=args.mode, fullgraph=args.fullgraph, dynamic=dynamic)


def _split_options(line: str) -> tuple[str, str]:
    """Part the options from the expression, which is Python and not the shell's to split."""
    takes_value = {"-d", "--device", "-b", "--backend", "--mode", "--dynamic", "-o", "--output"}
    words = line.split(" ")
    index = 0
    while index < len(words) and (words[index].startswith("-") or not words[index]):
        index += 2 if words[index] in takes_value else 1
    return " ".join(words[:index]), " ".join(words[index:]).strip()


def _parse_python(text: str) -> ast.AST:
    """Parse a cell for the names in it; what is not Python (magics) is left out line by line."""
    lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n")]
    try:
        return ast.parse("\n".join(lines))
    except SyntaxError:
        return ast.parse("")
