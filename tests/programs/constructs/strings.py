import re
import string

import torch

# %% f-strings, `"{}".format(...)`, `"%d" % n` with numbers and strings
# message: const method call str.format
# message: call_method ConstantVariable(str) format
def f(x):
    name = f"block_{x.shape[0]:02d}" + "{}".format("a") + "%d-%s" % (3, "b")
    return x * len(name)
# %% an f-string with a tensor in it
# message: FORMAT_VALUE, call_function BuiltinVariable(format) [TensorVariable()]
def f(x):
    text = f"mean {x.mean():.2f}"
    return x + 1
# %% `"%.2f" % x.mean()`
# message: Could not guard on data-dependent expression
# do: An f-string is traced; or format after the call.
def f(x):
    text = "%.2f" % x.mean()
    return x + 1
# %% `upper`, `split`, `join`, `replace`, `startswith`, `strip`, `find`, `count`
# message: call_method ConstantVariable(str) split
# message: call_method ConstantVariable(str) join [ListVariable()]
# message: str.join
def f(x):
    text = "-".join("A b c".lower().strip().split(" ")).replace("a", "z")
    return x * len(text) + text.startswith("z") + text.find("b") + text.count("c")
# %% `", ".join(name for name in names)`: a generator
# message: call_method ConstantVariable(str) join
def f(x):
    return x * len(", ".join(str(n) for n in range(3)))
# %% `for c in text`, `text[1:]`, `text[-1]`, `"a" in text`
# message: call_function BuiltinVariable(iter) [ConstantVariable(str)]
def f(x):
    for c in "ab":
        x = x + ord(c)
    return x + len("abc"[1:]) + ("a" in "abc")
# %% `text.isdigit()`, `text.zfill(3)`, `text.partition(".")`, `removeprefix`
# message: call_method ConstantVariable(str) partition
def f(x):
    return x + "12".isdigit() + len("1".zfill(3)) + len("a.b".partition(".")[2]) + len("ab".removeprefix("a"))
# %% `text.translate(table)`
# message: call_method ConstantVariable(str) translate
def f(x):
    return x * len("abc".translate({97: "z"}))
# %% `str.maketrans("a", "b")`
# message: call_method BuiltinVariable(str) maketrans
# do: Make the table before the compiled function runs.
def f(x):
    return x * len(str.maketrans("a", "b"))
# %% `text.encode()`
# message: call_method ConstantVariable(str) encode
def f(x):
    return x * len("abc".encode("utf-8"))
# %% `torch.einsum(f"b{n}...", x)`: an f-string with a number in it, as an argument
# message: call_function einsum
def f(x):
    letters = "i" * x.dim()
    return torch.einsum(f"{letters},{letters}->{letters}", x, x)
# %% comparing strings, `text in {"a": 1}`, `match text:`
# message: comparison ConstantVariable(str)
def f(x, mode="mean"):
    match mode:
        case "mean" | "avg":
            return x.mean() + (mode in {"mean": 1}) + (mode < "z")
        case _:
            return x
# %% `re.match`, `re.search`, `re.sub` with a fixed pattern
# message: inline in skipfiles: match
# message: call_method UserDefinedObjectVariable(Pattern) match
def f(x):
    return x + (re.match(r"a+", "aab") is not None) + len(re.sub("a", "", "aab"))
# %% `pattern = re.compile(...)`; `pattern.match(name)`, `m.group(1)`
# message: call_method UserDefinedObjectVariable(re.Pattern) match
PATTERN = re.compile(r"layer(\d+)")
def f(x):
    found = PATTERN.match("layer12")
    return x * int(found.group(1))
# %% `re.findall(...)`, `re.split(...)`
# message: inline in skipfiles: findall
def f(x):
    return x * len(re.findall("a", "aab")) + len(re.split("a", "bab"))
# %% `for match in re.finditer(...)`
# message: call_function UserDefinedObjectVariable(callable_iterator)
# do: Use `re.findall`.
def f(x):
    for found in re.finditer("a", "aab"):
        x = x + found.start()
    return x
# %% `string.Template(...).substitute(...)`
# message: inline in skipfiles: substitute
# do: Use an f-string.
def f(x):
    return x * len(string.Template("$a").substitute(a="bb"))
# %% `int("12")`, `float("1.5")`
# message: call_function BuiltinVariable(int) [ConstantVariable(str)]
def f(x):
    return x * int("12") + float("1.5")
# %% `torch.__version__ >= "2.1"`, `version.parse(...)` of packaging
# message: call_function UserDefinedClassVariable(Version)
from packaging import version
def f(x):
    return x + (version.parse("2.1") >= version.parse("2.0")) + (torch.__version__ >= "2.1")
# %% `f"{x=}"` with a tensor
# message: FORMAT_VALUE, Dynamo doesn't generate resume calls after graph breaking on log calls
# do: `f"{x}"` without `=` is traced; or format after the call.
def f(x):
    text = f"{x=}"
    return x + 1
