import datetime
import inspect
import json
import logging
import os
import pathlib
import random
import sys
import threading
import time
import uuid
import warnings

import torch

logger = logging.getLogger("constructs")
logger.setLevel(logging.CRITICAL)


# %% `math.log`, `ceil`, `isnan`, `prod`, `gcd`, `cos`, `hypot` of numbers
# message: call_function math.ceil
import math
def f(x):
    n = x.shape[0]
    return x * math.log(n) * math.ceil(n / 3) * math.prod([n, 2]) * math.cos(1) + math.isnan(1.0) + math.gcd(4, 6) + math.hypot(3, 4)
# %% `math.sqrt(x.sum())` of a tensor
# message: aten._local_scalar_dense.default, math.sqrt
# do: Use `torch.sqrt(x.sum())`.
def f(x):
    import math
    return x * math.sqrt(x.sum())
# %% `time.time()`, `time.perf_counter()`
# message: call_function time.time, inline in skipfiles: time
# do: Read the clock around the call.
def f(x):
    return x + 0 * time.time() * time.perf_counter()
# %% `time.sleep(...)`
# message: call_function time.sleep
# do: Sleep before or after the call.
def f(x):
    time.sleep(0)
    return x + 1
# %% `datetime.datetime.now()`
# message: call_function datetime.now
# do: Read the time before the call.
def f(x):
    return x + 0 * datetime.datetime.now().year
# %% `os.environ["NAME"]`, `os.environ.get`, `os.getenv`
# message: call_method UserDefinedObjectVariable(os._Environ) get
# do: A variable that is set is guarded: a different value causes a recompile. One that is missing, and any read with `os.getenv`, becomes a constant.
def f(x):
    return x + len(os.environ.get("HOME", "/")) + len(os.getenv("MISSING", "a")) + len(os.environ["PATH"])
# %% `os.environ["NAME"] = "1"`
# message: call_method UserDefinedObjectVariable(os._Environ) __setitem__
# do: Set the variable before the call.
def f(x):
    os.environ["CONSTRUCTS"] = "1"
    return x + 1
# %% `os.path.join`, `basename`, `splitext`
# message: inline in skipfiles: posixpath.join
def f(x):
    return x + len(os.path.join("a", "b")) + len(os.path.splitext("a.b")[0]) + len(os.path.basename("a/b"))
# %% `os.path.exists(path)`
# message: inline in skipfiles: genericpath.exists
# do: Look for the file before the call.
def f(x):
    return x + os.path.exists("/")
# %% `os.getpid()`, `os.cpu_count()`
# message: Attempted to call function marked as skipped: getpid
# do: Read these numbers before the call.
def f(x):
    return x + 0 * os.getpid() * os.cpu_count()
# %% `pathlib.Path("a") / "b"`
# message: call_function UserDefinedClassVariable(PosixPath)
def f(x):
    return x + len((pathlib.Path("a") / "b").name)
# %% `sys.version_info`, `sys.platform`, `sys.modules`, `sys.maxsize`
# message: sys.modules, inline in skipfiles: sys
def f(x):
    return x + (sys.version_info >= (3, 9)) + len(sys.platform) + ("torch" in sys.modules) + (sys.maxsize > 1)
# %% `sys.exc_info()`
# message: call_function sys.exc_info
def f(x):
    try:
        raise ValueError
    except ValueError:
        return x + (sys.exc_info()[0] is ValueError)
# %% `logging.getLogger(name).info(...)`
# message: call_function logging.info, inline in skipfiles: info
# do: Log after the call.
def f(x):
    logging.getLogger("constructs").info("now")
    return x + 1
# %% `logger.debug(...)`, `logger.warning(...)` of a `logging.Logger`
# message: Logger method call, call_method UserDefinedObjectVariable(Logger) warning_once [ConstantVariable()] {}
# do: Log after the call, or set `torch._dynamo.config.ignore_logging_functions` (in 2.9 and 2.10 `ignore_logger_methods`).
def f(x):
    logger.debug("shape %s", x.shape)
    logger.warning("now")
    return x + 1
# %% `warnings.warn("...")`
# message: inline in skipfiles: warnings.warn
# do: Issue the warning before the call.
def f(x):
    warnings.warn("often")
    return x + 1
# %% `with warnings.catch_warnings():`
# message: Unsupported context manager, catch_warnings
# do: Open `catch_warnings` around the call.
def f(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x + 1
# %% `inspect.signature(function)`, `sig.parameters`, `sig.bind(...)`
# message: inspect.signature with non-constant function
# message: call_method UserDefinedObjectVariable(Signature) bind
def g(x, n=2):
    return x * n
def f(x):
    signature = inspect.signature(g)
    bound = signature.bind(x, n=3)
    return g(**bound.arguments) * len(signature.parameters)
# %% `inspect.isfunction`, `isclass`, `getfullargspec`
# message: inline in skipfiles: inspect
def g(x, n=2):
    return x * n
def f(x):
    return g(x) + inspect.isfunction(g) + inspect.isclass(int) + len(inspect.getfullargspec(g).args)
# %% `inspect.currentframe()`
# message: inline in skipfiles: currentframe
# do: Read the frame outside the compiled function.
def f(x):
    return x + (inspect.currentframe() is not None)
# %% `json.loads(...)`
# message: inline in skipfiles: json
# do: Parse the text before or after the call.
def f(x):
    return x * json.loads("2")
# %% `json.dumps(...)`
# message: inline in skipfiles: json
# do: Write the text before or after the call.
def f(x):
    return x * len(json.dumps({"a": 1}))
# %% `hashlib.md5(data)`
# message: Attempted to call function marked as skipped: openssl_md5
# do: Compute the hash before the call.
import hashlib
def f(x):
    return x * len(hashlib.md5(b"a").hexdigest())
# %% `uuid.uuid4()`
# message: inline in skipfiles: uuid4
# do: Make the id before the call.
def f(x):
    return x * len(str(uuid.uuid4()))
# %% `with lock:` of `threading.Lock()`
# message: Unsupported context manager, call_method UserDefinedObjectVariable(_thread.lock) __enter__
# do: Lock around the call.
LOCK = threading.Lock()
def f(x):
    with LOCK:
        return x + 1
# %% an attribute of a `threading.local()`
# message: UserDefinedObjectVariable(_thread._local)
LOCAL = threading.local()
LOCAL.n = 2
def f(x):
    return x * LOCAL.n
# %% `variable.get()` on a `contextvars.ContextVar`
# message: call_method UserDefinedObjectVariable(ContextVar) get
# do: Pass the value as an argument.
import contextvars
SCALE = contextvars.ContextVar("scale", default=2)
def f(x):
    return x * SCALE.get()
# %% `threading.get_ident()`
# message: call_function _thread.get_ident
# do: Read the thread's id before the call.
def f(x):
    return x + 0 * threading.get_ident()
# %% `gc.collect()`
# message: call_function gc.collect
# do: Collect garbage before or after the call.
import gc
def f(x):
    gc.collect()
    return x + 1
# %% `statistics.mean(numbers)`
# message: inline in skipfiles: statistics
# do: Compute the mean before the call, or with `sum` and `len`.
import statistics
def f(x):
    return x * statistics.mean([1, 3])
# %% `decimal.Decimal("1.5")`
# message: call_function UserDefinedClassVariable(Decimal)
# do: Make the `Decimal` before the call, and pass a float.
import decimal
def f(x):
    return x * float(decimal.Decimal("1.5"))
# %% `traceback.print_stack()`
# message: Attempted to call function marked as skipped
# do: Run the function without compiling: `torch.compiler.set_stance("force_eager")`.
import io
import traceback
def f(x):
    traceback.print_stack(file=io.StringIO())
    return x + 1
# %% `tqdm(values)` in a loop
# message: Attempted to inline function marked as skipped, tqdm
# do: Loop over the values inside, and show progress outside.
from tqdm import tqdm
def f(x):
    for n in tqdm([1, 2], disable=True):
        x = x * n
    return x
