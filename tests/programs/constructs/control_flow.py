import contextlib
import warnings

import torch


def multiples(x):
    for n in range(3):
        yield x * n


class Failed(ValueError):
    def __init__(self, n):
        super().__init__(f"failed {n}")
        self.n = n


# %% `if x.shape[0] > 2`, `if x.dim() == 1`, `while n < x.shape[0]`
# message: dynamic shapes, guard on size
def f(x):
    n = 0
    while n < x.shape[0]:
        n += 3
    return x * n if x.dim() == 1 else x
# %% `if x.sum() > 0`, `x + 1 if x.any() else x`
# message: Dynamic control flow is not supported at the moment. Please use functorch.experimental.control_flow.cond
# message: generic_jump TensorVariable()
# do: Use `torch.where(condition, a, b)`, or `torch.cond`.
def f(x):
    if x.sum() > 0:
        x = x * 2
    return x + 1 if x.any() else x
# %% `while x.norm() > 1`
# message: Dynamic control flow is not supported at the moment
# do: Use a fixed number of steps with `torch.where`, or `torch.while_loop`.
def f(x):
    while x.norm() > 1:
        x = x / 2
    return x
# %% `assert x.sum() > 0, "a text"`
# message: assert with non-string message, generic_jump TensorVariable()
# do: The check becomes a part of the graph.
def f(x):
    assert x.sum() > 0, "not positive"
    return x + 1
# %% `assert x.sum() > 0, f"{x}"`: a message with a tensor in it
# message: assert with non-string message
# do: Use a fixed text.
def f(x):
    assert x.sum() > 0, f"not positive: {x.sum().item()}"
    return x + 1
# %% `if x is None`, `x = x or y`, `a and b` with numbers
# message: comparison ConstantVariable(NoneType)
def f(x, mask=None):
    return x + (0 if mask is None else mask) + (None or 2) + (1 and 3)
# %% `for value in x`, `for row in matrix`
# message: call_function BuiltinVariable(iter) [TensorVariable()]
def f(x):
    total = 0
    for value in x:
        total = total + value
    return total
# %% `break`, `continue`, `for ... else`, `while True` with a counter
# message: missing: BREAK_LOOP
def f(x):
    for n in range(9):
        if n == 1:
            continue
        if n == 3:
            break
        x = x + n
    else:
        return x
    while True:
        x = x * 2
        break
    return x
# %% `match value:` with numbers, lists, dicts and classes
# message: missing: MATCH_CLASS, MATCH_MAPPING, MATCH_SEQUENCE
def f(x):
    match {"a": [1, 2]}:
        case {"a": [1, n]}:
            x = x * n
    match x.shape[0]:
        case 4 | 5:
            return x + 1
        case int():
            return x
# %% a generator function that is used up inside: `sum(multiples(x))`, `list(...)`
# message: inline generator, YIELD_VALUE
# message: call_function BuiltinVariable(sum) [GeneratorObject]
def f(x):
    return sum(multiples(x)) + list(multiples(x))[1]
# %% a generator expression in a loop, `yield from`
# message: missing: YIELD_FROM
def twice(x):
    yield from multiples(x)
    yield from [x]
def f(x):
    for part in twice(x):
        x = x + part
    return x
# %% the compiled function is itself a generator (it has `yield`)
# message: Skipped function call, generator functions are not compiled
# do: Compile the function that consumes the generator, or return a list.
def f(x):
    yield x * 2
# %% a generator that is passed in
# message: GeneratorObject reconstruct, LocalGeneratorObjectVariable
# do: Pass a list.
args = (torch.ones(2), (n for n in [1, 2]))
def f(x, numbers):
    return x * sum(numbers)
# %% `generator.send(value)`, `generator.close()`
# message: call_method LocalGeneratorObjectVariable() send
def echo(x):
    while True:
        n = yield x
        x = x * n
def f(x):
    running = echo(x)
    next(running)
    y = running.send(2)
    running.close()
    return y
# %% `try: ... except ValueError:` around code that raises or does not
# message: missing: SETUP_FINALLY, POP_EXCEPT, RERAISE
# message: call_function BuiltinVariable(ValueError) [ConstantVariable(str)] {}
def f(x):
    try:
        raise ValueError("a")
    except (TypeError, ValueError) as error:
        x = x + len(str(error))
    else:
        x = x + 100
    finally:
        x = x * 2
    return x
# %% `except KeyError`, `IndexError`, `StopIteration` of built-in operations
# message: Observed exception, KeyError
def f(x):
    try:
        x = x + {}["a"]
    except KeyError:
        x = x + 1
    try:
        x = x + [][0]
    except IndexError:
        x = x + 2
    try:
        x = x + next(iter([]))
    except StopIteration:
        x = x + 4
    return x
# %% `except AttributeError` around a missing attribute of an object or a tensor
# message: Observed exception, AttributeError
def f(x):
    try:
        return x.missing
    except AttributeError:
        return x + 3
# %% `x + x.missing`, caught with `except AttributeError`
# message: Observed exception, AttributeError
def f(x):
    try:
        return x + x.missing
    except AttributeError:
        return x + 3
# %% `except ZeroDivisionError` around `1 / n`
# message: Observed exception, ZeroDivisionError
def f(x):
    try:
        return x + 1 / (x.shape[0] - 4)
    except ZeroDivisionError:
        return x + 5
# %% an exception class of your own: `raise Failed("a")`
# message: call_function UserDefinedExceptionClassVariable
class Plain(ValueError):
    pass
def f(x):
    try:
        raise Plain("a")
    except ValueError as error:
        return x + len(error.args[0])
# %% an exception class with an `__init__` of its own
# message: call_function UserDefinedExceptionClassVariable
# do: Pass the exception's data as arguments: `raise Plain(3)`, `error.args[0]`.
def f(x):
    try:
        raise Failed(3)
    except Failed as error:
        return x * error.n
# %% `raise ... from ...`, an exception in an exception handler
# message: missing: RERAISE, exception chaining
def f(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as error:
            raise ValueError("b") from error
    except ValueError:
        return x + 1
# %% `except* ValueError`, `ExceptionGroup`
# message: missing: CHECK_EG_MATCH
# do: Use a plain `except`.
def f(x):
    try:
        raise ExceptionGroup("all", [ValueError("a")])
    except* ValueError:
        x = x + 1
    return x
# %% an error of a tensor operation that is caught: `except RuntimeError`
# message: RuntimeError when making fake tensor call
# do: Test the shapes instead.
def f(x):
    try:
        return x @ torch.ones(3)
    except RuntimeError:
        return x + 1
# %% a `@contextlib.contextmanager` of your own, `nullcontext`
# message: inline in skipfiles: contextlib
# message: UserDefinedObjectVariable(_GeneratorContextManager)
# message: missing: WITH_EXCEPT_START
@contextlib.contextmanager
def section(n):
    yield n
def f(x):
    with section(2) as n, contextlib.nullcontext():
        x = x * n
    return x
# %% `contextlib.suppress`, `ExitStack`
# message: unsupported contextlib.* API
@contextlib.contextmanager
def section(n):
    yield n
def f(x):
    with contextlib.suppress(KeyError):
        x = x + {}["a"]
    with contextlib.ExitStack() as stack:
        x = x * stack.enter_context(section(3))
    return x
# %% a context manager that is made before and entered inside
# message: UserDefinedObjectVariable(_GeneratorContextManager) __enter__
@contextlib.contextmanager
def part():
    yield 2
def args():
    return torch.ones(2), part()
def f(x, context):
    with context as n:
        return x * n
# %% a decorator made of `contextmanager`: `@section()`
# message: ContextDecorator, recreate_cm
@contextlib.contextmanager
def around():
    yield
@around()
def inner(x):
    return x + 1
def f(x):
    return inner(x)
# %% `contextlib.redirect_stdout`
# message: Unsupported context manager
# do: Redirect the output around the call.
import io
def f(x):
    with contextlib.redirect_stdout(io.StringIO()):
        return x + 1
# %% recursion, `nonlocal`, `global`, `:=`, `lambda` with defaults, `*args`, `**kwargs`
# message: STORE_DEREF, missing: STORE_GLOBAL
# message: missing: LOAD_CLASSDEREF
TOTAL = 0
def recurse(x, depth=3):
    return x if depth == 0 else recurse(x + 1, depth - 1)
def f(x, *rest, n=1, **options):
    global TOTAL
    TOTAL += 1
    calls = 0
    def count(by=2):
        nonlocal calls
        calls += by
    count()
    if (size := x.shape[0]) > 2:
        x = x * size
    return recurse(x) * calls + len(rest) + len(options) + (lambda a, b=2: a * b)(n) + TOTAL
# %% a function defined inside, a closure
# message: reconstruct: NestedUserFunctionVariable
def f(x):
    def scale(y):
        return y * x
    return scale(x) + 1
# %% `import json` inside, `from math import sqrt`
# message: IMPORT_NAME, import of a module that is not loaded
def f(x):
    from math import sqrt
    import os.path
    return x * sqrt(4) + len(os.path.sep)
# %% type annotations, `typing.cast`, `x: int = 3`
# message: call_function typing.cast, TypingVariable
# message: UserDefinedObjectVariable(_UnionGenericAlias) is not a constant
from typing import Any, Optional, Union, cast
def f(x):
    n: Optional[int] = cast(Union[int, str], 3)
    return x * n
# %% a `@contextmanager` with `finally` that changes a list or a global
# message: contextlib.contextmanager doesn't work
# message: returning_contextmanager_from_compile
# message: graph break for contextlib.contextmanager, Unexpected Graph Break with contextmanager
SEEN, DEPTH = [], 0
@contextlib.contextmanager
def noted():
    global DEPTH
    try:
        DEPTH += 1
        yield
    finally:
        SEEN.append(1)
        DEPTH -= 1
def f(x):
    with noted():
        y = x + DEPTH
    return y * len(SEEN)
# %% `except AttributeError` around an error of your own `__getattr__`
# message: InternalTorchDynamoError AttributeError raised inside getattr and expected to be caught
class Strict:
    def __getattr__(self, name):
        raise AttributeError(name)
def f(x):
    try:
        return x + Strict().missing
    except AttributeError:
        return x + 1
