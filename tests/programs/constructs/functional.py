import functools
import itertools
import operator

import torch


class Options:
    scale = 2


# %% `itertools.chain`, `chain.from_iterable`
# message: call_function itertools.chain, missing support for itertools.chain.from_iterable
def f(x):
    return sum(itertools.chain([x], (x,))) + sum(itertools.chain.from_iterable([[x], [x, x]]))
# %% `itertools.islice`, `takewhile`, `dropwhile`, `filterfalse`, `compress`
# message: call_function itertools.islice
def f(x):
    n = sum(itertools.islice(range(9), 2, 4)) + sum(itertools.takewhile(lambda n: n < 3, range(9)))
    n += sum(itertools.dropwhile(lambda n: n < 3, range(5))) + sum(itertools.filterfalse(lambda n: n % 2, range(5)))
    return x * n + sum(itertools.compress([1, 2, 3], [1, 0, 1]))
# %% `itertools.product`, `combinations`, `permutations`
# message: call_function itertools.product
# message: call_function itertools.combinations
def f(x):
    y = sum(a * b for a, b in itertools.product([x], [1, 2]))
    return y + len(list(itertools.combinations([1, 2, 3], 2))) + len(list(itertools.permutations([1, 2])))
# %% `itertools.accumulate`, `pairwise`, `starmap`, `tee`
# message: call_function itertools.accumulate
# message: call_function itertools.pairwise
def f(x):
    a, b = itertools.tee([x, x * 2])
    y = list(itertools.accumulate([x, x]))[1] + sum(p * q for p, q in itertools.pairwise([1, 2, 3]))
    return y + sum(itertools.starmap(operator.mul, [(2, 3)])) + next(a) + next(b)
# %% `itertools.count`, `cycle`, `repeat`
# message: call_function itertools.count
# message: call_function itertools.repeat
def f(x):
    for n, factor, value in zip(itertools.count(1), itertools.cycle([1, 2]), itertools.repeat(x, 3)):
        x = x + n * factor * value
    return x
# %% `itertools.zip_longest`
# message: call_function itertools.zip_longest
def f(x):
    return sum(a * b for a, b in itertools.zip_longest([x, x], [2], fillvalue=1))
# %% `itertools.groupby` by numbers or strings
# message: call_function itertools.groupby, unsupported key type
def f(x):
    return x * len([key for key, _ in itertools.groupby([1, 1, 2])]) + len(list(itertools.groupby("aab")))
# %% `itertools.groupby` by a tensor's value
# message: itertools.groupby, unsupported key type
# do: Use `torch.unique_consecutive` outside, or form the groups before the call.
def f(x):
    return x * len([key for key, _ in itertools.groupby([x, x], key=lambda t: t.sum())])
# %% `itertools.batched` (Python 3.12)
# message: call_function itertools.batched
import sys
batched = getattr(itertools, "batched", None)
def f(x):
    if batched is None:
        return x + 1
    return x * len(list(batched([1, 2, 3], 2)))
# %% `functools.partial(f, scale=2)`, `partial.func`, a partial as an argument
# message: call_function FunctoolsPartialVariable
# message: call_function UserDefinedClassVariable(functools.partial)
args = (torch.ones(2), functools.partial(torch.mul, other=3))
def f(x, g):
    return functools.partial(torch.add, other=2)(x) + g(x) + g.func(x, 2)
# %% `functools.reduce(f, values)`
# message: call_function functools.reduce
def f(x):
    return functools.reduce(operator.mul, [x, x], 2) + functools.reduce(lambda a, b: a + b, [1, 2])
# %% a function decorated with `functools.lru_cache`, `functools.cache`
# message: call_function _lru_cache_wrapper
# message: Dynamo detected a call to a functools.lru_cache-wrapped function
# do: Dynamo traces the function inside, without its cache, so the call breaks if that function does: call the decorated function before, and pass the result.
@functools.lru_cache
def power(n):
    return 2**n
@functools.cache
def triple(n):
    return 3 * n
def f(x):
    return x * power(2) + triple(1)
# %% `functools.wraps` in a decorator of your own
# message: call_function functools.wraps, inline in skipfiles: wraps
def doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2
    return wrapper
@doubled
def add(x, n=1):
    return x + n
def f(x):
    return add(x, n=3)
# %% `functools.wraps`, called inside the compiled function
# message: inline in skipfiles: update_wrapper
def f(x):
    @functools.wraps(torch.sin)
    def sine(x):
        return x.sin()
    return sine(x)
# %% `functools.cached_property`, not computed before
# message: call_function UserDefinedClassVariable(cached_property)
# do: Read the property once before the compiled function.
class Model:
    @functools.cached_property
    def factor(self):
        return 2
model = Model()
def f(x):
    return x * model.factor
# %% `functools.cached_property`, first read before the compiled function is called
# message: UserDefinedObjectVariable cached_property
class Model:
    @functools.cached_property
    def factor(self):
        return 2
model = Model()
model.factor
def f(x):
    return x * model.factor
# %% `functools.singledispatch`
# message: Attempted to call function marked as skipped: singledispatch
# do: Use an `if isinstance(...)`, or a dict of functions by type.
@functools.singledispatch
def scaled(x):
    return x * 2
@scaled.register
def _(x: int):
    return x * 3
def f(x):
    return scaled(x) + scaled(1)
# %% `functools.partialmethod`
# message: UserDefinedObjectVariable(functools.partialmethod)
# do: Use `def double(self, x): return self.scale(x, n=2)`.
class Layer:
    def scale(self, x, n):
        return x * n
    double = functools.partialmethod(scale, n=2)
def f(x):
    return Layer().double(x)
# %% `sorted(values, key=functools.cmp_to_key(compare))`
# message: call_function functools.cmp_to_key
# do: Use a `key` function.
def f(x):
    return x * sorted([1, 3], key=functools.cmp_to_key(lambda a, b: b - a))[0]
# %% `operator.mul`, `add`, `getitem`, `index`, `itemgetter`, `attrgetter`, `methodcaller`
# message: call_function operator.itemgetter
# message: call_function UserDefinedClassVariable(attrgetter)
def f(x):
    y = operator.mul(x, 2) + operator.add(x, x) + operator.getitem([x], 0) + operator.index(3)
    return y + operator.itemgetter(1)([x, x]) + operator.attrgetter("scale")(Options) + operator.methodcaller("sin")(x)
# %% `operator.iadd(x, 1)`, `operator.contains(values, 2)`
# message: call_function operator.iadd
def f(x):
    y = operator.iadd(x.clone(), 1)
    return y + operator.contains([1, 2], 2)
# %% `operator.setitem(values, 0, x)`
# message: call_function operator.setitem
# do: Use `values[0] = x`.
def f(x):
    values = [x, x]
    operator.setitem(values, 0, x * 2)
    return sum(values)
# %% a lambda, a function in a dict or a list, a function as an argument
# message: call_function LambdaVariable
table = {"relu": torch.relu, "double": lambda x: x * 2}
args = (torch.ones(2), lambda x: x + 1)
def f(x, g):
    for name in table:
        x = table[name](x)
    return g(x)
# %% `torch.utils._pytree.tree_map(f, batch)`
# message: inline in skipfiles: tree_map
from torch.utils import _pytree
def f(x):
    batch = _pytree.tree_map(lambda t: t * 2, {"a": x, "b": [x, x]})
    leaves, spec = _pytree.tree_flatten(batch)
    return sum(leaves) + len(_pytree.tree_unflatten(leaves, spec))
