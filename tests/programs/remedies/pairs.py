"""Pairs of programs: an obvious change is right for the first of a pair and subtly wrong for the second."""
import contextlib
import logging
import math
import random
import typing
import warnings

import torch
import torch.nn.functional as F

log = logging.getLogger("program.log")
log.setLevel(logging.INFO)
# === print of a number, right
def f(x):
    y = x * 2
    print("sum", y.sum().item())
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === print of a number, wrong
def f(x):
    y = x * 2
    print("first", y.max().item())
    y = y + 1
    print("second", y.max().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === reorderable prints, right
def f(x):
    print("before")
    y = x + 1
    print("after")
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === reorderable prints, wrong
def f(x):
    y = x + 1
    print("value", y)
    y.add_(1)
    print("value", y)
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === numel guard, right
def f(x):
    if x.sum() > 0 and x.abs().sum() > 1:
        y = x * 2
    else:
        y = x - 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === numel guard, wrong
def f(x):
    if x.numel() > 0 and x.max() > 1:
        y = x * 2
    else:
        y = x - 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === numel guard without else, right
def f(x):
    y = x + 1
    if x.sum() > 0:
        y = y * 2
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === numel guard without else, wrong
def f(x):
    y = x + 1
    if x.numel() > 0 and x.max() > 1:
        y = y * 2
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === division by an int, right
def f(x, n):
    if x.sum() > 0:
        y = x * n
    else:
        y = x - n
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === division by an int, wrong
def f(x, n):
    if x.sum() > 0:
        y = x * (10 // n)
    else:
        y = x - 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === division by a global, right
SCALE = 4
def f(x):
    y = x * SCALE if x.sum() > 0 else x - SCALE
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === division by a global, wrong
SCALE = 4
def f(x):
    y = x * (8 // SCALE) if x.sum() > 0 else x - 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === modulo in a branch, right
def f(x, n):
    y = x * (n % 3) if x.sum() > 0 else x
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === modulo in a branch, wrong
def f(x, n):
    y = x * (7 % n) if x.sum() > 0 else x
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === the flag before the test, right
def f(x, flag):
    y = x
    if flag is not None and x.sum() > 0:
        y = x * 2
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === the flag before the test, wrong
def f(x, n):
    y = x
    if n and x.sum() > 10 / n:
        y = x * 2
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === or, right
def f(x):
    if x.sum() > 1 or x.mean() < -1:
        y = x * 2
    else:
        y = x + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === or, wrong
def f(x, xs):
    if x.sum() > 1 or xs[0].sum() > 0:
        y = x * 2
    else:
        y = x + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), [torch.ones(2)])
# === a conditional expression in the test, right
def f(x, on):
    y = (x * 2 if x.sum() > 0 else x) if on else x * 3
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), True)
# === a conditional expression in the test, wrong
def f(x, n):
    y = (x * (6 // n) if x.sum() > 0 else x) if n else x * 3
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), 3)
# === warnings moved, right
def f(x):
    y = x * 2
    warnings.warn("doubled")
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === warnings moved, wrong
RECORDS = []
def setup():
    warnings.simplefilter("error")
def f(x):
    y = x * 2
    try:
        warnings.warn("doubled")
    except UserWarning:
        y = y + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === warnings as errors, right
def f(x):
    if x.sum() > 0:
        warnings.warn("positive")
    return x + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === warnings as errors, wrong
STEPS = []
def setup():
    warnings.simplefilter("error")
def f(x):
    y = x + 1
    if x.sum() > 100:
        warnings.warn("large")
    STEPS.append(1)
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === warnings once, right
def setup():
    warnings.simplefilter("once")
def f(x):
    y = x * 2
    warnings.warn("twice", stacklevel=1)
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === warnings once, wrong
def setup():
    warnings.simplefilter("default")
def f(x):
    y = x * 2
    warnings.warn("same")
    y = y + 1
    warnings.warn("same")
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a handler, right
def f(x):
    y = x * 2
    log.info("sum %s", y.sum().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a handler, wrong
EVENTS = []
class Record(logging.Handler):
    def emit(self, record):
        EVENTS.append(record.getMessage())
def setup():
    log.handlers[:] = [Record()]
def f(x):
    y = x * 2
    log.info("doubled")
    EVENTS.append("after")
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a handler that raises, right
class Record(logging.Handler):
    def emit(self, record):
        pass
def setup():
    log.handlers[:] = [Record()]
def f(x):
    y = x * 2
    log.info("doubled")
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a handler that raises, wrong
STEPS = []
class Strict(logging.Handler):
    def emit(self, record):
        raise RuntimeError(record.getMessage())
def setup():
    log.handlers[:] = [Strict()]
def f(x):
    y = x * 2
    if x.sum() > 5:
        log.error("large")
    STEPS.append(len(STEPS))
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === dropout under where, right
def f(x):
    y = x * 2 if x.sum() > 0 else x * 3
    return F.dropout(y, 0.5, training=False)
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === dropout under where, wrong
def f(x):
    if x.sum() > 0:
        y = F.dropout(x, 0.5) * 2
    else:
        y = x * 3
    return y.sum()
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === gradients of where, right
def f(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x * 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === gradients of where, wrong
def f(x):
    if (x > 0).all():
        y = torch.sqrt(x)
    else:
        y = x * 2
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === gradients of a guarded division, right
def f(x):
    y = x * 2 if x.abs().sum() > 0 else x + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === gradients of a guarded division, wrong
def f(x):
    s = x.abs().sum()
    y = x / s if s > 0 else x * 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === in place on a view, right
def f(x):
    y = x.clone()
    if x.sum() > 0:
        y = y + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === in place on a view, wrong
def f(x):
    y = x.clone()
    v = y[:2]
    if x.sum() > 0:
        v += 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === in place on an argument, right
def f(x):
    if x.sum() > 0:
        x += 1
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === in place on an argument, wrong
def f(x):
    if x.sum() > 0:
        x = x + 1
    return x
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === the argument is returned, right
def f(x):
    y = x * 2 if x.sum() > 0 else x * 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === the argument is returned, wrong
def f(x):
    y = x * 2 if x.sum() > 0 else x
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === dtype of the branches, right
def f(x):
    y = x * 2.0 if x.sum() > 0 else x * 0.5
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === dtype of the branches, wrong
def f(x, n):
    y = n * 2.5 if n.sum() > 0 else n
    return x.sum() + y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.arange(6))
# === numbers in both branches, right
def f(x):
    s = torch.ones(()) if x.sum() > 0 else torch.zeros(())
    return x * s
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === numbers in both branches, wrong
def f(x):
    s = 2 if x.sum() > 0 else 0.5
    return x * s, s
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an exception in a branch, right
def f(x):
    y = x + 1
    if x.sum() > 1000:
        raise ValueError("large")
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 0.5, 6),)
# === an exception in a branch, wrong
DONE = []
def f(x):
    y = x + 1
    if x.sum() > 1:
        raise ValueError("large")
    DONE.append(1)
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 0.5, 6),)
# === an exception that is caught, right
def check(x):
    return x * 2
def f(x):
    try:
        y = check(x)
    except ValueError:
        y = x
    print("done", y.sum().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an exception that is caught, wrong
def f(x):
    try:
        if x.sum() > 0:
            raise ValueError("positive")
        y = x + 1
    except ValueError:
        y = x * 2
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an assertion, right
def f(x):
    assert x.dim() == 1
    y = x * 2
    print(y.sum().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an assertion, wrong
def f(x):
    y = x * 2
    assert x.sum() < 100, "large"
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === early return, right
def f(x):
    if x.sum() > 0:
        return x * 2
    return x * 3
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === early return, wrong
CALLS = []
def f(x):
    if x.sum() > 0:
        return x * 2
    CALLS.append(1)
    return x * 3
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === early return of the argument, right
def f(x):
    if x.sum() > 0:
        return x + 1
    y = x * 3
    return y - 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === early return of the argument, wrong
def f(x):
    if x.sum() > 0:
        return x
    y = x * 3
    return y - 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a loop that is left, right
def f(x):
    for _ in range(4):
        x = x * 2
        if x.sum() > 10:
            break
    return x + 0
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a loop that is left, wrong
def f(x):
    for i in range(4):
        x = x * (12 // (3 - i))
        if x.sum() > 10:
            break
    return x + 0
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a loop over a list, right
def f(x, xs):
    for t in xs:
        x = x + t
        if x.sum() > 50:
            break
    return x * 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), [torch.ones(6), torch.ones(6) * 2])
# === a loop over a list, wrong
def f(x, xs):
    n = 0
    for t in xs:
        x = x + t
        n = n + 1
        if x.sum() > 5:
            break
    return x * 1, n
def make_arguments():
    return (torch.linspace(-1, 2, 6), [torch.ones(6), torch.ones(6) * 2])
# === a loop that ends by a while, right
def f(x):
    i = 0
    while i < 5 and x.sum() < 100:
        x = x * 2 + 1
        i += 1
    return x + 0
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a loop that ends by a while, wrong
def f(x):
    i = 0
    while i < 5 and x.sum() < 100:
        x = x * 2 + 1
        i += 1
    return x + 0, i
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === return out of a loop, right
def f(x):
    for i in range(3):
        x = x * 2
        if x.sum() > 10:
            return x + 1
    return x - 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === return out of a loop, wrong
def f(x):
    for i in range(3):
        x = x * 2
        if x.sum() > 10:
            return x * (4 // (2 - i))
    return x - 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === accumulating in a list, right
def f(x):
    found = []
    for i in range(3):
        x = x * 2
        found.append(x.sum())
    print(len(found))
    return torch.stack(found)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === accumulating in a list, wrong
HISTORY = []
def f(x):
    y = x * 2
    HISTORY.append(y.sum().item())
    return y + len(HISTORY)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === accumulating in a dict, right
def f(x):
    stats = {}
    stats["sum"] = x.sum()
    if x.sum() > 0:
        y = x * stats["sum"]
    else:
        y = x * 2
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === accumulating in a dict, wrong
STATS = {"n": 0}
def f(x):
    if x.sum() > 0:
        STATS["n"] += 1
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === accumulating in an attribute, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
    def forward(self, x):
        if x.sum() > 0:
            self.total = self.total + 1
        return x * 2
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === accumulating in an attribute, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        if x.sum() > 0:
            self.calls += 1
        return x * 2
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a counter and a print, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        print("call", self.calls)
        return x * 2
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a counter and a print, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        print("call", self.calls)
        self.calls += 1
        print("call", self.calls)
        return x * 2
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an optimizer, right
model = torch.nn.Linear(3, 2)
torch.nn.init.constant_(model.weight, 0.5)
torch.nn.init.constant_(model.bias, 0.5)
def f(x):
    loss = model(x).square().mean()
    print("loss", loss.item())
    return loss
def make_arguments():
    return (torch.ones(4, 3),)
# === an optimizer, wrong
model = torch.nn.Linear(3, 2)
torch.nn.init.constant_(model.weight, 0.5)
torch.nn.init.constant_(model.bias, 0.5)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
def f(x):
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    print("loss", loss.item())
    opt.step()
    return loss.detach()
def make_arguments():
    return (torch.ones(4, 3),)
# === a scheduler, right
model = torch.nn.Linear(3, 2)
torch.nn.init.constant_(model.weight, 0.5)
torch.nn.init.constant_(model.bias, 0.5)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
def f(x):
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.detach()
def make_arguments():
    return (torch.ones(4, 3),)
# === a scheduler, wrong
model = torch.nn.Linear(3, 2)
torch.nn.init.constant_(model.weight, 0.5)
torch.nn.init.constant_(model.bias, 0.5)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
sched = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.1)
def f(x):
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    sched.step()
    opt.zero_grad()
    return loss.detach()
def make_arguments():
    return (torch.ones(4, 3),)
# === a scaler, right
model = torch.nn.Linear(3, 2)
torch.nn.init.constant_(model.weight, 0.5)
torch.nn.init.constant_(model.bias, 0.5)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
def f(x):
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    return loss.detach()
def make_arguments():
    return (torch.ones(4, 3),)
# === a scaler, wrong
model = torch.nn.Linear(3, 2)
torch.nn.init.constant_(model.weight, 0.5)
torch.nn.init.constant_(model.bias, 0.5)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
sched = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
def f(x):
    opt.zero_grad()
    loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    sched.step()
    return loss.detach()
def make_arguments():
    return (torch.ones(4, 3),)
# === a nested function, right
def f(x):
    def scaled(t):
        return t * 2
    y = scaled(x) if x.sum() > 0 else x * 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a nested function, wrong
SEEN = []
def f(x):
    def scaled(t):
        SEEN.append(1)
        return t * 2
    y = scaled(x) if x.sum() > 0 else x * 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a closure with nonlocal, right
def make():
    scale = 3
    def inner(x):
        y = x * scale if x.sum() > 0 else x * 2
        return y
    return inner
f = make()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a closure with nonlocal, wrong
def make():
    count = 0
    def inner(x):
        nonlocal count
        if x.sum() > 0:
            count += 1
        return x * (count + 1)
    return inner
f = make()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a default argument, right
def f(x, scale=2):
    y = x * scale if x.sum() > 0 else x
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a default argument, wrong
def f(x, seen=[]):
    if x.sum() > 0:
        seen.append(1)
    return x * len(seen)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a generator, right
def parts(x):
    for i in range(2):
        yield x * i
def f(x):
    total = x * 0
    for part in parts(x):
        total = total + part
    print("total", total.sum().item())
    return total
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a generator, wrong
DRAWN = []
def parts(x):
    for i in range(2):
        DRAWN.append(i)
        yield x * i
def f(x):
    total = x * 0
    for part in parts(x):
        total = total + part
        if total.sum() > 0:
            break
    return total
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a context manager, right
def f(x):
    with torch.no_grad():
        y = x * 2
    print(y.sum().item())
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a context manager, wrong
EVENTS = []
@contextlib.contextmanager
def phase(name):
    EVENTS.append(f"begin {name}")
    yield
    EVENTS.append(f"end {name}")
def f(x):
    with phase("one"):
        y = x * 2
        print("in", y.sum().item())
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === try and finally, right
def f(x):
    y = x * 2
    try:
        y = y + 1
    finally:
        print("done")
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === try and finally, wrong
STATE = {"open": False}
def f(x):
    STATE["open"] = True
    try:
        if x.sum() > 1:
            raise ValueError("large")
        y = x * 2
    finally:
        STATE["open"] = False
    return y
def make_arguments():
    return (torch.linspace(-1, 0.5, 6),)
# === a filter in a comprehension, right
def f(x):
    parts = [x * i for i in range(3)]
    y = sum(parts)
    print(y.sum().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a filter in a comprehension, wrong
def f(x):
    parts = [x / i for i in range(3) if i and x.sum() > 0]
    return sum(parts) if parts else x * 0
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === random numbers, right
def f(x):
    noise = torch.rand(6) if x.dim() else x
    y = x + 1 if x.sum() > 0 else x - 1
    return y, noise
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === random numbers, wrong
def f(x):
    y = x + torch.rand(6) if x.sum() > 0 else x - 1
    return y, torch.rand(2)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === Python's random numbers, right
def f(x):
    k = random.random()
    y = x * 2
    print("sum", y.sum().item())
    return y * k
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === Python's random numbers, wrong
def f(x):
    y = x * 2
    if x.sum() > 0:
        y = y * random.random()
    return y + random.random()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === train and eval, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
        torch.nn.init.constant_(self.lin.weight, 0.1)
        torch.nn.init.constant_(self.lin.bias, 0.1)
    def forward(self, x):
        y = self.lin(x)
        if y.sum() > 0:
            y = y * 2
        return y
f = Net().eval()
def make_arguments():
    return (torch.linspace(-1, 2, 12).reshape(4, 3),)
# === train and eval, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
    def forward(self, x):
        if x.sum() > 0:
            y = self.norm(x)
        else:
            y = x * 2
        return y
f = Net().train()
def make_arguments():
    return (torch.linspace(-1, 2, 12).reshape(4, 3),)
# === gradients of parameters, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))
    def forward(self, x):
        y = x * self.w
        return y * 2 if x.sum() > 0 else y * 3
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 12).reshape(4, 3),)
# === gradients of parameters, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(3))
        self.b = torch.nn.Parameter(torch.ones(3))
    def forward(self, x):
        return x * self.a if x.sum() > 0 else x * self.b
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 12).reshape(4, 3),)
# === a selection, right
def f(x):
    return x[x > 0].sum() * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a selection, wrong
def f(x):
    return x[x > 0].max() * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === the mean of a selection, right
def f(x):
    return x[x > 0].mean() + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === the mean of a selection, wrong
def f(x):
    kept = x[x > 0]
    return kept.mean() * len(kept)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a value on the host, right
def f(x):
    s = x.sum().item()
    return x * s
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a value on the host, wrong
def f(x):
    s = x.sum().item()
    return x * s, s, f"{s:.1f}"
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a value as an index, right
def f(x):
    n = int(x.abs().sum().item() > 0)
    return x * n
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a value as an index, wrong
def f(x, i):
    k = i.sum().item()
    return x[k % len(x)] * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.arange(3))
# === a message with a selection, right
def f(x):
    y = x * 2
    if (y > 3).any():
        print("large", y.max().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a message with a selection, wrong
def f(x):
    y = x * 2
    if x.numel() > 0 and y.max() > 3:
        print("large", y.max().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a message with a division, right
def f(x, n):
    y = x * n
    if y.sum() > 3:
        print("mean", y.sum().item(), n)
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === a message with a division, wrong
def f(x, n):
    y = x * 2
    if n and y.sum() > -100:
        print("share", 10 // n, y.sum().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === logs and prints, right
def f(x):
    y = x * 2
    log.info("one")
    y = y + 1
    log.info("two")
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === logs and prints, wrong
def f(x):
    y = x * 2
    log.info("one")
    print("two")
    y = y + 1
    log.info("three")
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a print before an error, right
def f(x):
    print("begin")
    y = x * 2
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a print before an error, wrong
def f(x):
    print("begin")
    if x.sum() > 4:
        raise ValueError("large")
    y = x * 2
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a hoisted computation, right
def setting():
    return math.sqrt(4.0)
def f(x):
    k = setting()
    print("k", k)
    return x * k
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a hoisted computation, wrong
import time
def f(x, n):
    k = n and math.floor(10 / n)
    print("k", k)
    return x * k
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === a helper that raises, right
def helper(t):
    return t.abs() + 1
def f(x):
    y = helper(x) if x.sum() > 0 else x
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a helper that raises, wrong
LIMIT = 2
def helper(t):
    if t.shape[0] < LIMIT:
        raise ValueError("short")
    return t[:2].sum() + t
def f(x):
    y = helper(x) if x.sum() > 0 else x
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an index in a branch, right
def f(x):
    y = x[:2].sum() if x.sum() > 0 else x.sum()
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an index in a branch, wrong
def f(x):
    y = x[3] if x.sum() > 0 else x.sum()
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a key in a branch, right
TABLE = {"a": 2.0}
def f(x):
    y = x * TABLE["a"] if x.sum() > 0 else x * 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a key in a branch, wrong
TABLE = {2: 2.0}
def f(x, n):
    y = x * TABLE[n] if x.sum() > 0 else x * 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2)
# === a divisor that is computed, right
def f(x, n):
    y = x * (n - 3) if x.sum() > 0 else x + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), 5)
# === a divisor that is computed, wrong
def f(x, n):
    y = x * (12 // (n - 3)) if x.sum() > 0 else x + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), 5)
# === a log through getLogger, right
def f(x):
    y = x * 2
    logging.getLogger("program.log").warning("sum %s", y.sum().item())
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a log through getLogger, wrong
SEEN = []
class Count(logging.Handler):
    def emit(self, record):
        SEEN.append((record.getMessage(), len(SEEN)))
def setup():
    log.handlers[:] = [Count()]
def f(x):
    y = x * 2
    logging.getLogger("program.log").warning("sum")
    SEEN.append(("body", len(SEEN)))
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a mask that selects nothing, right
def f(x, mask):
    return x * 2 if mask.any() else x * 3
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor([True, False] * 3))
# === a mask that selects nothing, wrong
def f(x, mask):
    if mask.any():
        y = x[mask].max() + x * 0
    else:
        y = x
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor([True, False] * 3))

# === a number in each branch, right
def f(x):
    if x.sum() > 0:
        s = 2.0
    else:
        s = 0.5
    return x * s
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a number in each branch, wrong
def f(x):
    if x.sum() > 0:
        s = 2
    else:
        s = 0.5
    return x * s
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a root of a sum, right
def f(x):
    n = (x * x).sum()
    if n > 0:
        y = x / n.sqrt()
    else:
        y = x * 1.0
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6, requires_grad=True),)
# === a root of a sum, wrong
def f(x):
    n = (x * x).sum()
    if n > 0:
        y = x / n.sqrt()
    else:
        y = x * 1.0
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a number as a factor, right
def f(x):
    return x * x.sum().item()
def make_arguments():
    return (torch.linspace(-1, 2, 6, requires_grad=True),)
# === a number as a factor, wrong
def f(x):
    return x * x.sum().item()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a sum in a branch, right
def f(x, w):
    if x.sum() > 0:
        y = x * 2 + w.sum()
    else:
        y = x * 1
    return y
def make_arguments():
    return (torch.linspace(1, 2, 9).reshape(3, 3), torch.eye(3))
# === a matrix product in a branch, wrong
def f(x, w):
    if x.sum() > 0:
        y = x @ w
    else:
        y = x * 1
    return y
def make_arguments():
    return (torch.linspace(1, 2, 9).reshape(3, 3), torch.eye(3))
# === a number compared in double precision, right
def f(x):
    if x[0].item() > 0.1:
        return x * 2
    return x * 3
def make_arguments():
    return (torch.tensor([0.1, 2.0]),)
# === a number compared in double precision, wrong
def f(x):
    if x[0].item() > 0.1:
        n = 2
    else:
        n = 3
    return x * n, n
def make_arguments():
    return (torch.tensor([0.1, 2.0]),)
# === repeated rows, right
def f(x, counts):
    return torch.repeat_interleave(x, counts, 0) * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6).reshape(3, 2), torch.tensor([2, 0, 1]))
# === repeated rows, wrong
def f(x, counts):
    y = x.repeat_interleave(counts, dim=0)
    return y.sum() / len(x), y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6).reshape(3, 2), torch.tensor([2]))
# === threshold for large values, right
def f(x, y):
    if x.max() > 3:
        return x * y
    return x * 2.0 + y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.linspace(1, 2, 6))
# === threshold for large values, wrong
def f(x, y):
    if x.max() > 3:
        z = x - y
    else:
        z = x + y
    return z
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.linspace(1, 2, 6))
# === a flattened tensor in a branch, right
def f(x):
    if x.sum() > 0:
        y = x.reshape(-1) * 3.0
    else:
        y = x.reshape(-1) * 2.0
    return y + 1.0
def make_arguments():
    return (torch.arange(6.0).reshape(2, 3),)
# === a flattened tensor in a branch, wrong
def f(x):
    if x.sum() > 0:
        y = x.view(-1) * 3.0
    else:
        y = x.reshape(-1) * 2.0
    return y + 1.0
def make_arguments():
    return (torch.arange(6.0).reshape(2, 3),)
# === a flag in a tensor, right
def f(x, flag):
    if not flag:
        y = x + flag
    else:
        y = x * 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(1.0))
# === a flag in a tensor, wrong
def f(x, flag):
    if not flag:
        y = x - flag
    else:
        y = x * 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(1.0))
# === a test of one element, right
def f(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x * 3
    return y
def make_arguments():
    return (torch.tensor(0.5, dtype=torch.float16),)
# === a test of one element, wrong
def f(x):
    if x > 0:
        y = x * 2
    else:
        y = x * 3
    return y
def make_arguments():
    return (torch.tensor(0.5, dtype=torch.float16),)
# === a zero-dimensional factor, right
def f(x):
    y = x * 0.5
    if x.sum() > 0:
        y = x * 1.5
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a zero-dimensional factor, wrong
def f(x):
    factor = 0.5
    if x.sum() > 0:
        factor = 1.5
    return x * factor
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a clamp, right
def f(x):
    if x.min() < 0:
        y = x.clamp(min=0)
    else:
        y = x
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a clamp, wrong
def f(x):
    if x.min() < 0:
        x.clamp_(min=0)
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an absolute value in a branch, right
def f(x):
    if x.sum() > 0:
        y = x.abs() + 1
    else:
        y = x * 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a square root in a branch, wrong
def f(x):
    if x.min() >= 0:
        y = x.sqrt()
    else:
        y = x * 3
    return y
def make_arguments():
    return (torch.linspace(1, 2, 6).requires_grad_(),)
# === an array of numpy, right
def f(x):
    y = x * 2
    m = y.detach().numpy().mean()
    return y + float(m)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an array of numpy, wrong
def f(x):
    y = x * 2
    a = y.detach().numpy()
    a += 1
    if y.sum() > 3:
        y = y + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a cast in a branch, right
def f(x):
    if x.abs().max() > 1:
        y = x / x.abs().max()
    else:
        y = x * 1.0
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a cast in a branch, wrong
def f(x):
    if x.abs().max() > 1:
        y = (x / x.abs().max()).half()
    else:
        y = x * 1.0
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an alias in a branch, right
def f(x):
    y = x + 0
    if y.sum() > 0:
        y = y * 2
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an alias in a branch, wrong
def f(x):
    y = x
    if x.sum() > 0:
        y = x + 0
    y.add_(1)
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an index of the largest, right
def f(x):
    k = x.argmax().item()
    return x * k
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an index of the largest, wrong
def f(x):
    k = x.argmax().item()
    if k > 2:
        return x[k] + x
    return x[k + 3] - x
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a flag that skips arithmetic, right
def f(x, flag):
    if flag:
        y = x * 2
    else:
        y = x + flag
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(1.0))
# === a flag that skips arithmetic, wrong
def f(x, flag):
    if flag:
        y = x * 2
    else:
        y = x + (flag - 1)
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(1.0))
# === a named sum, right
def f(x):
    if (s := x.sum()) > 0:
        y = x * 2
    else:
        y = x - 1
    return y + s
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a named sum, wrong
def f(x):
    if x.numel() > 0 and (s := x.max()) > 0:
        y = x * 2
    else:
        s = x.sum()
        y = x - 1
    return y + s
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a chained comparison, right
def f(x):
    if 0 < x.sum() < 50:
        y = x * 2
    else:
        y = x - 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a chained comparison, wrong
def f(x, n):
    if 0 < x.sum() < 50 // n:
        y = x * 2
    else:
        y = x - 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), 3)
# === a comparison of tensors, right
def f(x):
    if torch.equal(x, x.abs()):
        y = x * 2
    else:
        y = x - 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a comparison of tensors, wrong
KEPT = []
def f(x):
    if torch.equal(x, x.abs()):
        KEPT.append(1)
        y = x * 2
    else:
        y = x - 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a name assigned in one branch, right
def f(x):
    y = x + 1
    if x.sum() > 0:
        bonus = x * 2
        y = y + bonus
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a name assigned in one branch, wrong
def f(x):
    y = x + 1
    if x.sum() > 0:
        bonus = x * 2
        y = y + bonus
    return y + bonus
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === halving, right
def f(x):
    y = x
    for _ in range(3):
        if y.abs().sum() > 2:
            y = y / 2
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === halving, wrong
def f(x):
    y, n = x, 0
    while y.abs().sum() > 2 and n < 3:
        y = y / 2
        n += 1
    return y + n
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a table of numbers, right
def f(x):
    n = int(x.abs().max() > 1)
    return x * (n + 1)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a table of numbers, wrong
TABLE = {0: 1.0, 1: 2.0, 2: 4.0}
def f(x):
    n = int(x.abs().max())
    return x * TABLE[n]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a value that is kept, right
KEPT = []
def f(x):
    y = x * 2
    KEPT.append(y.sum().item())
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a value that is kept, wrong
KEPT = []
def f(x):
    y = x * 2
    KEPT.append(f"{y.sum():.2f}")
    return y + len(KEPT[-1])
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a best value of a module, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        y = self.lin(x)
        if y.sum() > 0:
            y = y * 2
        return y
torch.manual_seed(0)
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6).reshape(2, 3),)
# === a best value of a module, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
        self.best = 0.0
    def forward(self, x):
        y = self.lin(x)
        if y.max() > self.best:
            self.best = y.max().item()
            y = y * 2
        return y
torch.manual_seed(0)
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6).reshape(2, 3),)
# === a shortcut for experts without tokens, right
def f(x):
    out = torch.zeros_like(x)
    for i in range(3):
        rows = torch.nonzero(x[:, 0] == i)[:, 0]
        if rows.numel() == 0:
            continue
        out[rows] += x[rows] * (i + 1)
    return out
def make_arguments():
    return (torch.tensor([[0.0, 1.0], [2.0, 3.0], [0.0, 5.0]]),)
# === a shortcut for experts without tokens, wrong
def f(x):
    out = torch.zeros_like(x)
    for i in range(3):
        rows = torch.nonzero(x[:, 0] == i)[:, 0]
        if rows.numel() == 0:
            continue
        out[rows] += x[rows] * (i + 1)
        out += 1
    return out
def make_arguments():
    return (torch.tensor([[0.0, 1.0], [2.0, 3.0], [0.0, 5.0]]),)
# === a test for elements next to a second test, right
def f(x, scale=2.0):
    y = x + 1
    mask = y > 1
    if scale and mask.sum().item() > 0:
        y[mask] *= scale
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a test for elements next to a second test, wrong
def f(x, scale=2.0):
    y = x + 1
    mask = y > 1
    if scale and mask.sum().item() > 0:
        y[mask] *= scale
        y = y - y.mean()
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a random number, right
def f(x):
    return x * 2 + random.random()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a random number, wrong
class Random:
    def random(self):
        return random.random()
    def uniform(self, low, high):
        return high - random.random()
def f(x):
    source = Random()
    return x * random.random() + source.random()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === two numbers, right
def f(x):
    highest = x.max().item()
    return x / highest, x.min().item()
def make_arguments():
    return (torch.linspace(1, 2, 6),)
# === two numbers, wrong
def f(x):
    highest = x.max().item()
    kept = x[: int(x.sum().item())]
    return kept / highest
def make_arguments():
    return (torch.linspace(0, 1, 6),)
# === a progress of numbers, right
def f(x):
    for _ in range(3):
        x = x + random.random() * x
    return x
def make_arguments():
    return (torch.linspace(1, 2, 6),)
# === a progress of numbers, wrong
def f(x):
    for _ in range(3):
        if random.random() < 0.5:
            x = x + random.gauss(0, 1)
    return x
def make_arguments():
    return (torch.linspace(1, 2, 6),)
# === sizes changed through a view, right
def f(x, lengths):
    first = lengths[:1] + 1
    parts = torch.split(x, lengths.tolist())
    return parts[0] * first
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor([2, 4]))
# === sizes changed through a view, wrong
def f(x, lengths):
    v = lengths.view(-1)
    if x.dim() > 1:
        v.copy_(v.flip(0))
    parts = torch.split(x, lengths.tolist())
    return parts[0] * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor([2, 4]))
def hostile():
    return [(torch.arange(12.0).reshape(6, 2), torch.tensor([2, 4]))]
# === a print of a list of tensors, right
def f(x):
    ys = [x, x * 2]
    print(ys[0].sum().item(), ys[1].sum().item())
    return ys[0] + ys[1]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a print of a list of tensors, wrong
def f(x):
    ys = [x * 3, x * 2]
    print(ys)
    if x.dim() > 1:
        ys.reverse()
    return ys[0] - ys[1]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    return [(torch.ones(2, 2),)]
# === a selection of rows, right
def f(x, mask):
    return x[mask].sum() * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor([True, False] * 3))
def hostile():
    return [(torch.rand(3, 3), torch.tensor([True, False, True])), (torch.rand(3, 3), torch.rand(3, 3) > 0.5)]
# === a selection of rows, wrong
def f(x, rows):
    return x[rows].sum() * 2
def make_arguments():
    return (torch.linspace(-1, 2, 9).reshape(3, 3), torch.tensor([True, False, True]))
# === a message with a number, right
def f(x):
    if x.sum() > 1000:
        raise ValueError(f"too large: {x.sum().item():.3f}")
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a message with a number, wrong
def f(x):
    y = x.clone()
    y.mul_(2)
    if x.sum() > 1000:
        raise ValueError(f"too large: {y.sum().item():.3f}")
    y.mul_(2)
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a property with a side effect, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.k = 2
    @property
    def scale(self):
        return self.k
    def forward(self, x):
        y = x * self.scale
        print("sum", y.sum().item())
        return y
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a property with a side effect, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.k = 2
    @property
    def scale(self):
        self.k += 1
        return self.k
    def forward(self, x):
        y = x * 2
        print("scale", self.scale)
        return y * self.scale
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a print of mutable state, right
def f(x, opts):
    y = x * opts["a"]
    print(opts)
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), {"a": 2})
# === a print of mutable state, wrong
def f(x, opts):
    y = x * opts["a"]
    print(opts)
    if x.dim() > 1:
        opts["a"] = 5
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), {"a": 2})
def hostile():
    return [(torch.ones(2, 2), {"a": 2})]
# === a number of bytes, right
def f(img):
    top = img.max().item()
    return img.float() / 2 + top
def make_arguments():
    return (torch.tensor([1, 7, 9], dtype=torch.uint8),)
def hostile():
    return [(torch.tensor([1, 7, 255], dtype=torch.uint8),)]
# === a number of bytes, wrong
def f(img):
    top = img.max().item() + 1
    return img.float() + top
def make_arguments():
    return (torch.tensor([1, 7, 9], dtype=torch.uint8),)
def hostile():
    return [(torch.tensor([1, 7, 255], dtype=torch.uint8),)]
# === a hash of numbers, right
def f(ids):
    h = ids[0].item() * 31 + ids[1].item()
    return ids + h
def make_arguments():
    return (torch.tensor([3, 4, 5], dtype=torch.int64),)
# === a hash of numbers, wrong
def f(ids):
    h = 0
    for i in range(3):
        h = h * 1000003 + ids[i].item()
    return ids + h % 97
def make_arguments():
    return (torch.tensor([3, 4, 5], dtype=torch.int32),)
def hostile():
    return [(torch.tensor([3000, 400000, 5], dtype=torch.int32),)]
# === tiny numbers multiplied on the host, right
def f(x):
    n = x.abs().max().item()
    return x * (n * 2.0)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === tiny numbers multiplied on the host, wrong
def f(x):
    n = x.abs().max().item()
    return x * (n * 1e-30 * 1e-20 * 1e50)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === membership of a number, right
def f(x):
    k = x.argmax().item()
    return x * (k + 1)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === membership of a number, wrong
KNOWN = {5, 0}
def f(x):
    k = x.argmax().item()
    return x * 2, k in KNOWN
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a number compared with a tolerance, right
def f(x):
    if abs(x.sum().item() - 1.0) < 0.5:
        y = x * 2
    else:
        y = x * 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a number compared with a tolerance, wrong
def f(x):
    if x.sum().item() / max(x.numel(), 1) > 0.1:
        y = x * 2
    else:
        y = x * 3
    return y, round(x.mean().item(), 1) == 0.5
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === negative zero, right
def f(x):
    if x.sum() >= 0:
        y = x + 0.0
    else:
        y = x - 0.0
    return y
def make_arguments():
    return (torch.tensor([-0.0, 1.0, -2.0]),)
# === negative zero, wrong
def f(x):
    if x.sum() == 0:
        y = 1 / x
    else:
        y = x * 1.0
    return y
def make_arguments():
    return (torch.tensor([-0.0, 1.0, -1.0]),)
# === an early stop of a loss, right
def f(w, x):
    for _ in range(4):
        w = w - 0.1 * (w * x).mean()
        if (w * x).mean().abs() < 0.05:
            break
    return w
def make_arguments():
    return (torch.ones(3), torch.linspace(1, 2, 3))
# === an early stop of a loss, wrong
def f(w, x):
    losses = []
    for _ in range(4):
        loss = (w * x).mean()
        losses.append(loss.item())
        if loss.item() < 1.2:
            break
        w = w - 0.1 * loss
    return w, losses
def make_arguments():
    return (torch.ones(3), torch.linspace(1, 2, 3))
# === a detached result, right
def f(x):
    y = x * 2
    print("mean", y.detach().mean().item())
    return y.detach()
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === a detached result, wrong
def f(x):
    y = x * 2
    if y.sum() > 0:
        y = y.detach()
    return y * x
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === squares in both branches, right
def f(x):
    if x.sum() > 0:
        y = x ** 2
    else:
        y = x ** 3
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === squares in both branches, wrong
def f(x):
    if x.norm() > 0:
        y = x / x.norm()
    else:
        y = x * 1.0
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
def hostile():
    return [(torch.zeros(6, requires_grad=True),)]
# === a flag that requires gradients, right
def f(x):
    y = x.detach() * 2
    y.requires_grad_()
    return (y * x).sum()
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === a flag that requires gradients, wrong
def f(x):
    w = torch.ones(6)
    w.requires_grad_()
    y = (w * x).sum()
    (g,) = torch.autograd.grad(y, w, create_graph=True)
    return g * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === a hook, right
def f(x):
    y = x * 2
    y.register_hook(lambda g: g * 2)
    print("sum", y.sum().item())
    return y.sum()
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === a hook, wrong
SEEN = []
def f(x):
    y = x * 2
    y.register_hook(lambda g: SEEN.append(float(g.sum())))
    print("sum", y.sum().item())
    return y.sum()
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === an out argument, right
def f(x, out):
    torch.add(x, 1, out=out)
    print("sum", out.sum().item())
    return out * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.zeros(6))
# === an out argument, wrong
def f(x, out):
    if x.sum() > 0:
        torch.add(x, 1, out=out)
    return out * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.zeros(6))
# === methods patched on an instance, right
class Net(torch.nn.Module):
    def scale(self, x):
        return x * 2
    def forward(self, x):
        y = self.scale(x)
        print("sum", y.sum().item())
        return y
f = Net()
f.scale = lambda x: x * 5
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === methods patched on an instance, wrong
class Net(torch.nn.Module):
    def forward(self, x):
        print("class")
        return x * 2
f = Net()
def patched(x):
    y = x * 5
    print("patched", y.sum().item())
    return y
f.forward = patched
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === lambdas in a loop, right
def f(x):
    fs = [lambda t, i=i: t * i for i in range(3)]
    y = sum(g(x) for g in fs)
    print("sum", y.sum().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === lambdas in a loop, wrong
def f(x):
    fs = []
    for i in range(3):
        print(i)
        fs.append(lambda t: t * i)
    return sum(g(x) for g in fs)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === two breaks on a line, right
def f(x):
    y = x * 2
    print(y.max().item(), y.argmax().item()); y = y + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === two breaks on a line, wrong
def f(x):
    y = x.clone()
    print(y.max().item()); y.add_(x[x > 0].sum()); print(y.min().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a context around a part, right
@contextlib.contextmanager
def halved():
    yield
def f(x):
    y = x + 1
    with warnings.catch_warnings():
        z = y * 2
    print("sum", z.sum().item())
    return z
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a context around a part, wrong
MODE = ["whole"]
@contextlib.contextmanager
def halved():
    torch._dynamo.graph_break()
    MODE.append("half")
    try:
        yield
    finally:
        MODE.pop()
def f(x):
    if x.dim() > 2:
        x = x * len(MODE)
    with halved():
        z = x * 2
    return z
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    return [(torch.ones(1, 2, 3),)]
# === a dict that is printed before it grows, right
def f(x, sizes):
    print("sizes", sizes)
    y = x * sizes["a"]
    return y + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), {"a": 2})
# === a dict that is printed before it grows, wrong
def f(x, sizes):
    print("sizes", sizes)
    y = x * sizes["a"]
    if x.dim() > 2:
        sizes.setdefault("b", 3)
    return y + len(sizes)
def make_arguments():
    return (torch.linspace(-1, 2, 6), {"a": 2})
def hostile():
    return [(torch.ones(1, 2, 3), {"a": 2})]
# === a length that is read after a reset, right
def f(x, n):
    y = x * 2
    return torch.split(y, n.tolist())[0]
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor([2, 4]))
# === a length that is read after a reset, wrong
def reset(lengths):
    lengths.copy_(lengths.flip(0))
def f(x, n):
    y = x * 2
    if x.dim() > 2:
        reset(n)
    return torch.split(y, n.tolist())[0]
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor([2, 4]))
def hostile():
    return [(torch.ones(6, 1, 2), torch.tensor([2, 4]))]
# === a buffer that a method changes in training, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(2))
    def bump(self):
        self.n += 1
    def forward(self, x):
        n = self.n.item()
        if self.training:
            self.bump()
        return x[:n] * 2
f = Net()
f.eval()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.train()
    return [(torch.linspace(-1, 2, 6),)]
# === a buffer that a method changes in training, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(2))
    def bump(self):
        self.n += 1
    def forward(self, x):
        if self.training:
            self.bump()
        return x[: self.n.item()] * 2
f = Net()
f.eval()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.train()
    return [(torch.linspace(-1, 2, 6),)]
# === a buffer that a short circuit changes, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(2))
    def bump(self):
        self.n += 1
        return self.n
    def forward(self, x):
        n = self.n.item()
        self.training and self.bump()
        return x[:n] * 2
f = Net()
f.eval()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.train()
    return [(torch.linspace(-1, 2, 6),)]
# === a buffer that a short circuit changes, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(2))
    def bump(self):
        self.n += 1
        return self.n
    def forward(self, x):
        self.training and self.bump()
        return x[: self.n.item()] * 2
f = Net()
f.eval()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.train()
    return [(torch.linspace(-1, 2, 6),)]
# === a state printed around a hook, right
class State:
    def __init__(self): self.n = 1
    def reset(self): self.n = 0
state = State()
hooks = []
def f(x):
    for hook in hooks:
        hook(state)
    print("n", state.n)
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a state printed around a hook, wrong
class State:
    def __init__(self): self.n = 1
    def reset(self): self.n = 0
state = State()
hooks = []
def f(x):
    print("n", state.n)
    for hook in hooks:
        hook(state)
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    hooks.append(State.reset)
    return [(torch.linspace(-1, 2, 6),)]
# === a case that resets, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(2))
        self.mode = "run"
    def forward(self, x):
        n = self.n.item()
        match self.mode:
            case "reset":
                self.n.zero_()
            case _:
                x = x * 2
        return x[:n]
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a case that resets, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(2))
        self.mode = "run"
    def bump(self): self.n.add_(1)
    def forward(self, x):
        match self.mode:
            case "reset":
                self.bump()
            case _:
                x = x * 2
        return x[: self.n.item()]
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.mode = "reset"
    return [(torch.linspace(-1, 2, 6),)]
# === a handler that resets, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(2))
    def forward(self, x, k):
        n = self.n.item()
        try:
            x = x * {1: 2}[k]
        except KeyError:
            x = x + 1
        return x[:n]
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6), 1)
# === a handler that resets, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(2))
        self.table = {"a": 2}
    def bump(self): self.n.add_(1)
    def forward(self, x, k="a"):
        try:
            x = x * self.table[k]
        except KeyError:
            self.bump()
        return x[: self.n.item()]
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6), "a")
def hostile():
    return [(torch.linspace(-1, 2, 6), "b")]
# === a mode that makes shapes differ, right
def f(x, mode="same"):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x + 1
    return y if mode == "same" else y.sum(0, keepdim=True)
def make_arguments():
    return (torch.linspace(-1, 2, 6), "same")
def hostile():
    return [(torch.linspace(-1, 2, 6), "other")]
# === a mode that makes shapes differ, wrong
REDUCE = {"same": lambda x: x, "keep": lambda x: x.sum(0, keepdim=True)}
def f(x, mode):
    if x.sum() > 0:
        y = x * 2
    else:
        y = REDUCE[mode](x) * 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), "same")
def hostile():
    return [(torch.linspace(-2, 1, 6), "keep"), (torch.linspace(-1, 2, 6), "keep")]
# === a read of an attribute set by a call, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lengths = torch.tensor([3, 2])
    def forward(self, x):
        n = self.lengths.max().item()
        return x[:n] + 1
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a read of an attribute set by a call, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lengths = torch.tensor([3, 2])
        self.plan = []
    def apply_plan(self):
        for step in self.plan:
            self.lengths = self.lengths + step
    def forward(self, x):
        self.apply_plan()
        n = self.lengths.max().item()
        return x[:n] + 1
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.plan.append(1)
    return [(torch.linspace(-1, 2, 6),)]
# === a seed that a callee may set, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fixed = None
    def prepare(self):
        if self.fixed is not None:
            random.seed(self.fixed)
    def forward(self, x):
        k = random.random()
        self.prepare()
        return x * k
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.fixed = 7
    return [(torch.ones(3),)]
# === a seed that a callee may set, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fixed = None
    def prepare(self):
        if self.fixed is not None:
            random.seed(self.fixed)
    def forward(self, x):
        self.prepare()
        k = random.random()
        return x * k
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.fixed = 7
    return [(torch.ones(3),)]
# === a global that a callee may change, right
SIZES = {"n": torch.tensor(3)}
class Plan:
    grow = []
plan = Plan()
def refresh():
    for g in plan.grow:
        SIZES["n"] = SIZES["n"] + g
def f(x, sizes):
    k = sizes["n"].item()
    refresh()
    return x[:k]
def make_arguments():
    return (torch.linspace(-1, 2, 6), SIZES)
def hostile():
    plan.grow.append(1)
    return [(torch.linspace(-1, 2, 6), SIZES)]
# === a global that a callee may change, wrong
SIZES = {"n": torch.tensor(3)}
class Plan:
    grow = []
plan = Plan()
def refresh():
    for g in plan.grow:
        SIZES["n"] = SIZES["n"] + g
def f(x, sizes):
    refresh()
    k = sizes["n"].item()
    return x[:k]
def make_arguments():
    return (torch.linspace(-1, 2, 6), SIZES)
def hostile():
    plan.grow.append(1)
    return [(torch.linspace(-1, 2, 6), SIZES)]
# === a string that selects a rule, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rule = "double"
    def forward(self, x):
        if x.sum() > 0:
            y = x * 2 if self.rule == "double" else x * 4
        else:
            y = x * 3
        return y
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.rule = "other"
    return [(torch.ones(3),), (-torch.ones(3),)]
# === a string that selects a rule, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rule = "double"
    def forward(self, x):
        if x.sum() > 0:
            y = x * 2
        else:
            y = x * 3 if self.rule == "double" else x.sum(0, keepdim=True)
        return y * 1
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    f.rule = "sum"
    return [(torch.ones(3),), (-torch.ones(3),)]
# === a product with a selection, right
def f(x, y):
    return x[x > 0].unsqueeze(1) * y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.ones(3))
# === a product with a selection, wrong
def f(x, y):
    return x[x > 0] * y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.arange(4.0))
def hostile():
    return [(torch.tensor([-1.0, 2.0, -3.0]), torch.arange(4.0))]
# === positions of a selection, right
def f(x):
    return torch.nonzero(x > 0) * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === positions of a selection, wrong
def f(x):
    i = torch.nonzero(x > 0).squeeze()
    return i.dim(), x[i]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    return [(torch.tensor([-1.0, 1.0, -1.0]),), (-torch.ones(3),)]
# === a count as a size, right
def f(x):
    k = (x > 0).sum().item()
    return torch.zeros(k + 2)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a count as a size, wrong
def f(x, y):
    k = (x > 0).sum().item()
    return torch.ones(k) * y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.arange(4.0))
def hostile():
    return [(torch.tensor([-1.0, 1.0, -1.0]), torch.arange(4.0))]
# === a number that may be a truth value, right
def f(x, n):
    a, b = x[: n.item()], x[n.item() :]
    return a.sum() - b.sum()
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(3))
def hostile():
    return [(torch.ones(3), torch.tensor(True))]
# === a number that may be a truth value, wrong
def f(x, n):
    match n.item():
        case 0:
            y = x * 2
        case k if k > 3:
            y = x * k
        case _:
            y = x[:1]
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(4))
def hostile():
    return [(torch.ones(3), torch.tensor(True)), (torch.ones(3), torch.tensor(2))]
# === a flag that may be missing, right
def f(x, flag):
    return x * 2 if flag.item() > 0 else x * 3
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(1))
# === a flag that may be missing, wrong
def f(x, flag):
    if flag is not None:
        x = x + 1
    if flag:
        return x * 2
    return x * 3
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(1))
def hostile():
    return [(torch.ones(3), None), (torch.ones(3), [])]
# === a repr that changes its object, right
class Meter:
    def __init__(self): self.n = 0
    def __repr__(self): return f"meter {self.n}"
meter = Meter()
seen = []
def f(x):
    y = x * 2
    print(meter)
    if len(seen) > 0:
        y = y + meter.n
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    seen.append(1)
    return [(torch.ones(3),)]
# === a repr that changes its object, wrong
class Meter:
    def __init__(self): self.n = 0
    def __repr__(self):
        self.n += 1
        return f"meter {self.n}"
meter = Meter()
seen = []
def f(x):
    y = x * 2
    print(meter)
    if len(seen) > 0:
        y = y + meter.n
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    seen.append(1)
    return [(torch.ones(3),)]
# === arguments that share memory, right
def f(x, n):
    y = x + 1
    k = n.item()
    return y * k
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(3.0))
def hostile():
    u = torch.arange(4.0)
    return [(u, u[1])]
# === arguments that share memory, wrong
def f(x, n):
    x.add_(1)
    k = n.item()
    return x * k
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(3.0))
def hostile():
    u = torch.arange(4.0)
    return [(u, u[1])]
# === a recurrent layer, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = torch.nn.GRU(3, 3, batch_first=True)
    def forward(self, x):
        return self.rnn(x)[0] * 2
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 18).reshape(2, 3, 3),)
# === a recurrent layer, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = torch.nn.LSTM(3, 3, num_layers=2, dropout=0.5, batch_first=True)
        self.state = None
    def forward(self, x):
        y, self.state = self.rnn(x, self.state)
        self.state = tuple(s.detach() for s in self.state)
        return y + torch.rand(3)
f = Net()
def make_arguments():
    return (torch.linspace(-1, 2, 18).reshape(2, 3, 3),)
# === a filter of a logger, right
class Keep(logging.Filter):
    def filter(self, record):
        return record.levelno >= logging.INFO
def setup():
    log.addFilter(Keep())
def f(x):
    y = x + 1
    log.info("mean %.3f", y.mean().item())
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a filter of a logger, wrong
seen = {"n": 0}
class Keep(logging.Filter):
    def filter(self, record):
        seen["n"] += 1
        return seen["n"] < 3
def setup():
    log.addFilter(Keep())
def f(x):
    y = x + 1
    log.info("mean %.3f", y.mean().item())
    if x.shape[0] == 7:
        y = y + seen["n"]
    log.info("sum %.3f", y.sum().item())
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a list that a method changes, right
lines = []
class Meter:
    def tick(self):
        lines.append(1)
        return len(lines)
meter = Meter()
def f(x):
    y = x + len(lines)
    n = meter.tick()
    print("tick", n)
    return y * n
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a list that a method changes, wrong
lines = []
class Meter:
    def tick(self):
        lines.append(1)
        return len(lines)
meter = Meter()
def f(x):
    y = x + 1
    print("tick", meter.tick())
    if x.shape[0] == 7:
        y = y + len(lines)
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a global that a method assigns, right
total = 0
class Meter:
    def tick(self):
        global total
        total += 1
meter = Meter()
def f(x):
    meter.tick()
    y = x * total
    print("sum", y.sum().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a global that a method assigns, wrong
total = 0
class Meter:
    def tick(self):
        global total
        total += 1
        return total
meter = Meter()
def f(x):
    y = x + 1
    print("tick", meter.tick())
    if x.shape[0] == 7:
        y = y + total
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === closures with variables of one name, right
def make(k):
    items = []
    def add():
        items.append(k)
        return len(items)
    return add
first, second = make(0), make(10)
def f(x):
    y = x * (10 * first() + second())
    print("sum", y.sum().item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === closures with variables of one name, wrong
def make(k):
    items = []
    def add():
        items.append(k)
        return len(items)
    def size():
        return len(items)
    return add, size
add_a, size_a = make(0)
add_b, size_b = make(10)
def f(x):
    y = x + size_a()
    print("added", add_a(), add_b())
    if x.shape[0] == 7:
        y = y + size_b()
    return y * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === suppressed errors, right
def f(x, n):
    y = x + 1
    with contextlib.suppress(ValueError):
        y = y * n.item()
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(2.0))
# === suppressed errors, wrong
def f(x, n):
    y = x + 1
    with contextlib.suppress(ValueError, OverflowError):
        y = y * int(n.item())
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor(2.0))
def hostile():
    return [(torch.ones(3), torch.tensor(math.nan)), (torch.ones(3), torch.tensor(math.inf))]
# === a flag next to a test, right
def f(x, flag):
    if flag and x.sum() > 0:
        y = x * 2
    else:
        y = x + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6), True)
def hostile():
    return [(torch.ones(3), None), (torch.ones(3), []), (torch.ones(3), "yes"), (torch.ones(3), 0)]
# === a flag next to a test, wrong
def f(x, flag):
    return x * 2 if x.sum() > 100 or flag else x + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), True)
def hostile():
    return [(torch.ones(3), None), (torch.ones(3), []), (torch.ones(3), "yes"), (torch.ones(3), 0)]
# === a difference of numbers, right
def f(x):
    if x.sum().item() - 1 > 0.5:
        y = x * 2
    else:
        y = x + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a difference of numbers, wrong
def f(x):
    if x.sum().item() + 1 - x.sum().item() > 0.5:
        y = x * 2
    else:
        y = x + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    return [(torch.tensor([1e8]),), (torch.tensor([1e12]),)]
# === rows written in place, right
def f(x):
    out = x * 1
    for i, row in enumerate(x):
        if row.sum() > 0:
            out[i] = row * 2
        else:
            out[i] = row + 1
    return out
def make_arguments():
    return (torch.linspace(-1, 2, 6).reshape(3, 2),)
# === rows written in place, wrong
def f(x):
    out = torch.zeros_like(x)
    for i, row in enumerate(x):
        if row.sum() > 0:
            out[i] = row * 2
        else:
            out[i, 0] = -1
    return out
def make_arguments():
    return (torch.linspace(-1, 2, 6).reshape(3, 2),)
# === a number added in place, right
def f(x):
    y = x * 1
    if y.sum() > 2:
        y += 1
    return y
def make_arguments():
    return (torch.ones(3),)
# === a number added in place, wrong
def f(x):
    y = x * 1
    if y.sum() > 2:
        y += 0.5
    return y
def make_arguments():
    return (torch.ones(3),)
def hostile():
    return [(-torch.ones(3, dtype=torch.int64),)]
# === a buffer that has a second name, right
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
    def forward(self, x):
        if self.training and x.sum() > 0:
            self.count += 1
        return x * self.count
f = Net()
count = f.count
def make_arguments():
    return (torch.ones(3),)
# === a buffer that has a second name, wrong
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("total", torch.zeros(3))
    def forward(self, x):
        if x.sum() > 0:
            self.count += 1
            self.total += x
        return x * self.count + self.total
f = Net()
count = f.count
def make_arguments():
    return (torch.ones(3),)
# === errors that a caller handles, right
def scale(x, n):
    return x * n.item()
def f(x, n):
    with contextlib.suppress(KeyError):
        print("scale", n.item())
    return scale(x, n)
def make_arguments():
    return (torch.ones(3), torch.tensor(2.0))
# === errors that a caller handles, wrong
def scale(x, n):
    return x * n.item()
def f(x, n):
    try:
        y = scale(x, n)
    except RuntimeError:
        y = x - 1
    return y * 2
def make_arguments():
    return (torch.ones(3), torch.tensor(2.0))
def hostile():
    return [(torch.ones(3), torch.ones(3)), (torch.ones(3), torch.ones(0))]
# === a mask and its test, right
def f(x):
    y = x * 1
    mask = y > 1
    if mask.any():
        y[mask] = 1.0
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a mask and its test, wrong
def f(x):
    y = x * 1
    mask = y > 1
    if mask.any():
        y[mask] = x[mask] * 2
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === coins for an augmentation, right
def f(x, coin):
    x = torch.where(coin[:, None] < 0.5, x.flip(-1), x)
    print("flipped", coin.shape[0])
    return x
def make_arguments():
    return (torch.arange(6.0).reshape(2, 3), torch.tensor([0.2, 0.9]))
# === coins for an augmentation, wrong
def f(x):
    if torch.rand(1) < 0.5:
        x = x.flip(-1)
    if random.random() < 0.5:
        x = x + 0.1
    return x
def make_arguments():
    return (torch.arange(6.0).reshape(2, 3),)
# === advantages that are normalized, right
def f(x):
    std = x.std(correction=0)
    if std > 1e-3:
        x = x - x.mean()
    return x.clamp(-2, 2)
def make_arguments():
    return (torch.tensor([1.0, -1.0, 0.5]),)
# === advantages that are normalized, wrong
def f(x):
    std = x.std()
    if std > 1e-3:
        x = (x - x.mean()) / std
    return x.clamp(-2, 2)
def make_arguments():
    return (torch.tensor([1.0, -1.0, 0.5], requires_grad=True),)
def hostile():
    return [(torch.ones(1, requires_grad=True),), (torch.tensor([1.0, math.inf], requires_grad=True),)]
# === a codebook with dead codes, right
code, use = torch.linspace(-1, 1, 3), torch.zeros(3)
def f(x):
    i = (x[..., None] - code).abs().argmin(-1)
    use.index_add_(0, i, torch.ones(i.shape[0]))
    print("used", int((use > 0).sum()))
    return code[i]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a codebook with dead codes, wrong
code, use = torch.linspace(-1, 1, 3), torch.zeros(3)
def f(x):
    i = (x[..., None] - code).abs().argmin(-1)
    use.index_add_(0, i, torch.ones(i.shape[0]))
    dead = use < 0.1
    if dead.any():
        code[dead] = x[: int(dead.sum())]
    return code[i]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    return [(torch.tensor([-1.0, 0.0, 1.0]),), (torch.zeros(0),)]
# === a printed list that a rare branch changes by a call, right
jobs = [3, 1, 2]
def f(x):
    y = x * 2
    print("jobs", len(jobs), y.sum().item())
    if x.shape[0] > 700:
        y = y + 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a printed list that a rare branch changes by a call, wrong
jobs = [3, 1, 2]
def take():
    return jobs.pop()
def f(x):
    y = x * 2
    print("jobs", jobs, y.sum().item())
    if x.shape[0] > 700:
        y = y + take()
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    return [(torch.ones(701),)]
# === a long prefix, right
def f(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x + 1
    return y[:100]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a long prefix, wrong
def f(x):
    if x.sum() > 0:
        x = x[:100]
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    return [(-torch.ones(101),), (torch.ones(101),)]
# === a sum and tags, right
tags = ["a"]
def f(x):
    if x.sum() > 0 and len(tags) > 0:
        return x * 2
    return x - 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a sum and tags, wrong
tags = ["a"]
def f(x):
    if x.sum() > 0 and tags:
        return x * 2
    return x - 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    tags.clear()
    return [(torch.ones(2),)]
# === a default for NaN, right
def f(x, default):
    best = x.max().item()
    return x.clamp(max=best) + default
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2.0)
# === a default for NaN, wrong
def f(x, default):
    best = x.max().item()
    if best != best:
        best = default
    return x.clamp(max=best) + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6), 2.0)
def hostile():
    return [(torch.tensor([float("nan"), 3.0]), 2.0)]
# === a running maximum, right
def f(x, running):
    return x + x.mean().item() * running
def make_arguments():
    return (torch.linspace(-1, 2, 6), 0.5)
# === a running maximum, wrong
def f(x, running):
    return x + max(x.mean().item(), running)
def make_arguments():
    return (torch.linspace(-1, 2, 6), 0.1)
def hostile():
    return [(torch.ones(2), float("nan")), (torch.tensor([float("nan")]), 0.1)]
# === an optional scale, right
def f(x, scale=None):
    y = x * 2 if x.sum() > 0 else x - 1
    return y if scale is None else y * scale
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an optional scale, wrong
def f(x, scale=None):
    if scale is None:
        scale = x.std()
    if scale == 0:
        scale = torch.ones_like(scale)
    return x / scale
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
def hostile():
    return [(torch.ones(2), 2.0), (torch.ones(2), 3)]
# === reorderable prints of sizes, right
def f(x):
    y = x * 2
    print("dimensions", y.dim())
    print("dtype", y.dtype)
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === reorderable prints of sizes, wrong
def f(x):
    y = x * 2
    print("values", y.shape[0])
    print("dtype", y.dtype)
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a change in place, right
def f(x, mean):
    with torch.no_grad():
        if x.sum() > 1:
            mean.copy_(x)
        else:
            mean.lerp_(x, 0.1)
    return x * 2
def make_arguments():
    return torch.linspace(-1, 2, 6), torch.zeros(6)
# === a change in place, wrong
def f(x, y):
    if x.sum() > y.sum():
        x.sub_(y)
        y.mul_(2)
    else:
        y.sub_(x)
    return x + y
def make_arguments():
    return torch.linspace(-1, 2, 6), torch.ones(6)
# === a new object, right
class Range(typing.NamedTuple):
    low: torch.Tensor
    high: torch.Tensor
def f(x):
    if x.mean() > 0:
        return Range(x.min() - 1, high=x.max())
    return Range(x.min(), high=x.max() + 1)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a new object, wrong
class Range(typing.NamedTuple):
    low: torch.Tensor
    count: int = 0
def f(x, n=1):
    if x.mean() > 0:
        return Range(x.min() - 1, n)
    return Range(x.min(), n + 1)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a detached branch, right
def f(x, w):
    if w.abs().mean() < 0.5:
        y = x * w * 2
    else:
        y = x * w
    return y + x
def make_arguments():
    return torch.linspace(-1, 2, 6), torch.linspace(-1, 1, 6)
# === a detached branch, wrong
def f(x, w):
    if w.abs().mean() < 0.5:
        y = (x * w).detach()
    else:
        y = x * w
    return y + x
def make_arguments():
    return torch.linspace(-1, 2, 6), torch.linspace(-1, 1, 6)
# === two properties of a kind, right
class Cell:
    def __init__(self, value):
        self.value = value
    @property
    def hot(self):
        return self.value.mean() > 0
def f(x):
    a, b = Cell(x), Cell(x - 0.2)
    if a.hot and b.hot:
        return x * 2
    return x + 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === two properties of a kind, wrong
class Cell:
    reads = 0
    def __init__(self, value):
        self.value = value
    @property
    def hot(self):
        Cell.reads += 1
        return self.value.mean() > 0
def f(x):
    a, b = Cell(x), Cell(x - 0.2)
    if a.hot and b.hot:
        return x * 2
    return x + Cell.reads
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a replaced field, right
class State(typing.NamedTuple):
    h: torch.Tensor
    c: torch.Tensor
def f(x):
    s = State(x * 1, x * 2)
    if x.sum() > 0:
        s = s._replace(h=s.h + 1)
    else:
        s = s._replace(c=s.c * 2)
    return s
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a replaced field, wrong
class State(typing.NamedTuple):
    h: torch.Tensor
    count: int
def f(x):
    s = State(x * 1, 1)
    if x.sum() > 0:
        s = s._replace(h=s.h + 1, count=s.count + 1)
    return s
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an item in each branch, right
def f(x):
    parts = [x * 1]
    if x.sum() > 0:
        parts.append(x * 2)
    else:
        parts.append(x + 1)
    return torch.stack(parts)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an item in each branch, wrong
def f(x):
    parts = [x * 1]
    if x.sum() > 0:
        parts.append(x * 2)
    else:
        parts.append(x.long())
    return parts
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an argument that is returned, right
def f(x):
    norm = x.norm()
    if norm > 1:
        x = x / norm
    return x
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === an argument that is returned, wrong
def clip(x):
    norm = x.norm()
    if norm > 1:
        x = x / norm
    return x
def f(x):
    return clip(x).add_(1)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a counter before an early return, right
skipped = torch.zeros(())
def f(x):
    loss = x.square().mean()
    if not torch.isfinite(loss):
        skipped.add_(1)
        return loss * 0
    return loss + skipped
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a counter before an early return, wrong
skipped = torch.zeros(())
counters = [skipped]
def f(x):
    loss = x.square().mean()
    if not torch.isfinite(loss):
        skipped.add_(1)
        return skipped
    return loss + counters[0]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === one branch modifies in place, the other rebinds, right
def f(x):
    y = x * 1
    if y.sum() > 0:
        y.mul_(2)
    else:
        y = y - 1
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === one branch modifies in place, the other rebinds, wrong
def f(x):
    y = x * 1
    parts = [y]
    if y.sum() > 0:
        y.mul_(2)
    else:
        y = y - 1
    return parts[0] + y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === any of some conditions, right
def f(x, y):
    if any(part.sum() > 2 for part in (x, y)):
        return x * 0.5
    return x + y
def make_arguments():
    return torch.linspace(-1, 2, 6), torch.linspace(1, 2, 6)
# === any of some conditions, wrong
seen = []
def is_large(part):
    seen.append(1)
    return part.sum() > 2
def f(x, y):
    if any(is_large(part) for part in (x, y)):
        return x * 0.5
    return x + y
def make_arguments():
    return torch.linspace(-1, 2, 6), torch.linspace(1, 2, 6)
# === a counter after a break, right
def f(x):
    for i in range(4):
        if x.abs().sum() < 1:
            break
        x = x / 2
    return x * i
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a counter after a break, wrong
def f(x):
    for i in range(4):
        if x.abs().sum() < 1:
            break
        x = x / 2
    return x, i
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === the largest of a list, right
def f(x, y):
    best = max([x, y, x - y], key=lambda part: part.sum())
    return best * 2
def make_arguments():
    return torch.linspace(-1, 2, 6), torch.linspace(1, 2, 6)
# === the largest of a list, wrong
def f(x, y):
    best = max([x, y.long(), x - y], key=lambda part: part.sum())
    return best * 2
def make_arguments():
    return torch.linspace(-1, 2, 6), torch.linspace(1, 2, 6)
# === a conditional change in place, right
scale = torch.ones(())
def f(x):
    norm = x.norm()
    if norm > 1:
        scale.mul_(0.5)
    return norm * scale
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a conditional change in place, wrong
def f(x):
    norm = x.norm()
    if norm > 1:
        x.mul_(0.5)
    return norm
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === gradients scaled in a loop, right
weights = [torch.ones(2), torch.linspace(-1, 2, 6)]
def f(x):
    factor = 1 / (torch.stack([weight.norm() for weight in weights]).norm() * x.detach().norm() + 1e-6)
    if factor < 1:
        for weight in weights:
            weight.mul_(factor)
    return x * weights[0].sum()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === gradients scaled in a loop, wrong
pending = [[torch.ones(2)]]
def f(x):
    factor = 1 / (x.norm() + 1e-6)
    if factor < 1:
        for weight in pending.pop():
            weight.mul_(factor)
    return x * len(pending)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a guard of a case, right
def f(x, mode):
    match mode:
        case "scale" if x.max() > 1:
            x = x / 2
        case _:
            x = x + 1
    return x
def make_arguments():
    return torch.linspace(-1, 2, 6), "scale"
# === a guard of a case, wrong
hits = []
def f(x, mode):
    match mode:
        case "scale" if x.max() > 1:
            x = x / 2
        case "scale":
            hits.append(mode)
            x = x + 1
    return x * len(hits)
def make_arguments():
    return torch.linspace(-1, 2, 6), "scale"
# === a best value of a closure, right
def tracker():
    best = torch.tensor(-1.0)
    def update(score):
        nonlocal best
        if score > best:
            best = score.clone()
        return best
    return update
update = tracker()
def f(x):
    return x * update(x.sum())
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a best value of a closure, wrong
def tracker():
    best, count = torch.tensor(-1.0), 0
    def update(score):
        nonlocal best, count
        if score > best:
            best, count = score.clone(), count + 1
        return best, count
    return update
update = tracker()
def f(x):
    best, count = update(x.sum())
    return x * best, count
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a negated flag in a name, right
scale = torch.ones(())
def f(x):
    is_bad = not torch.isfinite(x).all()
    if is_bad:
        scale.mul_(0.5)
        return torch.zeros_like(x)
    return x - scale
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a negated flag in a name, wrong
scale = torch.ones(())
def f(x):
    is_bad = not torch.isfinite(x).all()
    if is_bad:
        scale.mul_(0.5)
    return x / scale, is_bad
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a flag that a branch sets, right
def f(x):
    drop = False
    if x.sum() < 0:
        drop = True
    if not drop:
        x = x * 2
    return x + 0
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a flag that a branch sets, wrong
def f(x):
    drop = False
    if x.sum() < 0:
        drop = True
    if not drop:
        x = x * 2
    return x + 0, drop
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === the best row, right
def f(x):
    rows = x.reshape(3, 2) * 2
    best = rows[:, 0].argmax()
    total = rows[best] + rows[best, 1] + rows[:, 1:][best]
    rows[best] = 0.0
    return total, rows[:2, 0]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === the best row, wrong
def f(x):
    rows = x.reshape(3, 2) * 2
    best = rows[rows[:, 0].argmax()]
    best.add_(1)
    return rows
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === random crop, right
def f(x):
    top = random.randint(0, len(x) - 3)
    y = x[top : top + 3] * 2
    if random.random() < 0.5:
        y = y.flip(0)
    return y - y.mean()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === random crop, wrong
def f(x):
    x = x[1:]
    top = random.randint(0, len(x) - 3)
    if x.sum() > 100:
        random.random()
    shift = random.randint(0, 2)
    return x[top : top + 3] * (shift + 1)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a flag behind a tensor's test, right
DEBUG = False
def f(x):
    y = x * 2
    if (torch.isnan(y).any() or torch.isinf(y).any()) and DEBUG:
        y = torch.nan_to_num(y)
    return y
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a flag behind a tensor's test, wrong
def f(x):
    seen = []
    def is_large(y):
        seen.append(y)
        return y.max() > 1
    if is_large(x) and seen:
        return x + 1
    return x - 1
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === elements replaced with a mask, right
def f(x):
    distance = torch.full_like(x, 1e10)
    for k in range(3):
        d = (x - x[k]) ** 2
        mask = d < distance
        distance[mask] = d[mask]
    return distance
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === elements replaced with a mask, wrong
def f(x):
    rows = x.reshape(3, 2) * 2
    other = torch.arange(3.0).reshape(3, 1) + x[:3].reshape(3, 1)
    mask = rows > 0
    rows[mask[:, 0]] = other[mask[:, 0]]
    return rows
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === lists at the end, right
def f(x):
    values, indices = x.sort()
    names = ["a", "b", "c", "d", "e", "f"]
    return [(names[i], v) for i, v in zip(indices.tolist(), values.tolist())]
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === lists at the end, wrong
def f(x):
    head = x[:2]
    total = head.sum()
    sums = [total.tolist()]
    head.mul_(2)
    sums.append(x.tolist())
    return sums, locals().keys()
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === detections in a loop, right
def f(x):
    scores, order = x.sigmoid().sort()
    found = []
    for score, k in zip(scores, order):
        if score > 0.5:
            found.append({"score": score.item(), "number": int(k)})
    return found
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === detections in a loop, wrong
def f(x):
    scores = x.sigmoid()
    scores[0] = 0.0
    found = []
    for number, score in enumerate(scores):
        if score > 0.5:
            x[number] = -1.0
            found.append(scores.sum().item() + x.sum().item())
    return found, scores
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a decorated prediction, right
@torch.no_grad()
def f(x):
    scores = x.sigmoid()
    return {"best": scores.argmax().tolist(), "scores": scores.tolist()}
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === a decorated prediction, wrong
@torch.no_grad()
def f(x):
    scores = x.sigmoid()
    total = scores.sum().item()
    if total < 0:
        return x * 2
    return total, locals().keys()
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(),)
# === a history that a helper reads, right
history = []
other_history = []
def scale(y):
    return y * 2 if len(other_history) < 4 else y
def f(x):
    y = scale(x + 1)
    history.append(y.sum().item())
    return scale(y)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
# === a history that a helper reads, wrong
history = []
def smooth(y):
    if len(history) > 40:
        y = y + history[-1]
    return y
def f(x):
    y = x + 1
    history.append(y.sum().item())
    return smooth(y)
def make_arguments():
    return (torch.linspace(-1, 2, 6),)
