"""What code would notice that it is compiled, though nobody asked to compile it."""

from __future__ import annotations

import dis
import logging
import sys
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import is_forbidden
from jupyter_graphbreak.recording.library import library_roots
from jupyter_graphbreak.recording.targets import is_own, own_codes, reached

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names by which code sets or reads what compiling sets, too, or asks for the code that is running.
OF_THE_COMPILER = frozenset(
    {"_getframe", "currentframe", "user_ns", "format_exc", "print_exc", "print_stack", "format_stack", "extract_stack",
     "exc_info", "set_stance", "set_logs", "settrace", "setprofile", "is_compiling", "is_dynamo_compiling", "suppress",
     "use_deterministic_algorithms", "set_deterministic_debug_mode", "namedtuple", "weakref", "getrefcount",
     "get_referrers", "get_objects", "threading", "Thread", "ThreadPoolExecutor", "detect_anomaly",
     "set_detect_anomaly", "set_default_device"}
)  # fmt: skip
#: Those, and names by which code looks at its own scope.
_NOTICING = OF_THE_COMPILER | {
    "globals", "locals", "vars", "dir", "exec", "eval", "NameError", "UnboundLocalError", "get_ipython",
}  # fmt: skip
#: ``del`` of a ``nonlocal`` name; instructions stand at even places.
_DELETES_OUTER = dis.opmap["DELETE_DEREF"]
#: Of Python's module ``random``, what gives an integer that Dynamo knows as a tensor.
RANDOM_INTEGERS = frozenset({"randint", "randrange"})


def hazard(values: Mapping[str, Any]) -> str:
    """Return why code that names some objects is not to be compiled, as the end of a sentence; empty where it may be.

    Parameters
    ----------
    values : mapping
        The objects that the code names, by name. What they lead to counts, too, as far as it is the reader's own.
    """
    numpy = next((name for name, value in values.items() if _is_numpy(value)), None)
    if numpy is not None:
        return f"it uses numpy ({numpy}), whose numbers Dynamo turns into arrays"
    optimizer = next((name for name, value in values.items() if _is_optimizer(value)), None)
    if optimizer is not None:
        return f"it uses an optimizer ({optimizer}), which computes in another way when it is compiled"
    mode = next((name for name, value in values.items() if _is_function_mode(value)), None)
    if mode is not None:
        return f"it uses a TorchFunctionMode ({mode}), which sees what Dynamo does while it traces"
    if any(is_forbidden(value) for value in reached(*values.values())):
        return "it leads to a function that sets the stance of the compiler"
    if _prints_lines():
        return "autograd's anomaly mode prints the lines that run, and in a graph those are others"
    if _logs_function_names():
        return "a log names the function that runs (funcName), and after a break that is one of Dynamo's"
    return _hazard_of_code(values)


def _hazard_of_code(values: Mapping[str, Any]) -> str:
    roots = tuple(library_roots())
    for code in own_codes(*values.values()):
        if code.co_filename.startswith(roots):
            continue
        noticing = _NOTICING.intersection(code.co_names)
        if {"_dynamo", "config"}.issubset(code.co_names):
            return f"{code.co_qualname} uses the settings of torch._dynamo, which compiling changes, too"
        if _DELETES_OUTER in code.co_code[::2]:
            return (
                f"{code.co_qualname} deletes a variable of a function around it, and Dynamo changes what that leads to"
            )
        if _draws_integer(code.co_names):
            return f"{code.co_qualname} draws a random integer, which Dynamo can turn into a tensor"
        if noticing:
            return f"{code.co_qualname} uses {min(noticing)}, which would notice that it is compiled"
        if code.co_name == "__del__":
            return f"{code.co_qualname} would be called for objects that Dynamo makes while it traces"
    return ""


def _draws_integer(names: tuple[str, ...]) -> bool:
    """Whether code that uses some names draws an integer, and not by ``torch.randint``."""
    return not RANDOM_INTEGERS.isdisjoint(names) and ("random" in names or "torch" not in names)


def _prints_lines() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.is_anomaly_enabled())


def _logs_function_names() -> bool:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = [handler for logger in loggers for handler in getattr(logger, "handlers", ())]
    return any("funcName" in str(getattr(handler.formatter, "_fmt", "")) for handler in handlers)


def _is_optimizer(value: Any) -> bool:
    return any(kind.__module__.startswith("torch.optim") for kind in type(value).__mro__ if kind is not object)


def _is_function_mode(value: Any) -> bool:
    kind = value if isinstance(value, type) else type(value)
    return is_own(kind) and any(base.__name__ == "TorchFunctionMode" for base in kind.__mro__)


def _is_numpy(value: Any) -> bool:
    home = value.__name__ if isinstance(value, types.ModuleType) else type(value).__module__
    return str(home).partition(".")[0] == "numpy"
