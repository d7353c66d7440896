"""Programs with loops that end depending on a tensor, and sizes in tensors: each runs alone, after the lines above the first program."""
import numpy as np
import torch
import torch.nn.functional as F
# === a loop left on convergence
def f(x):
    y = x
    for _ in range(6):
        y = y * 0.5 + 0.25
        if (y - 0.5).abs().max() < 0.2:
            break
        y = y + 0.01
    return y * 2
def make_arguments():
    return (torch.tensor([1.0, 2.0, -1.0], requires_grad=True),)
# === a loop left at its top, changed in place
def f(x):
    y = x.clone()
    for i in range(5):
        if y.sum() > 4:
            break
        y += i * 0.5
    return y
def make_arguments():
    return (torch.tensor([0.5, 0.25], requires_grad=True),)
# === the argument changed in place within a loop
def f(x):
    for i in range(4):
        if x.sum() > 3:
            break
        x += 1
    return x * 2
def make_arguments():
    return (torch.tensor([0.5, 0.25]),)
# === iterations counted in Python
def f(x):
    turns = 0
    for _ in range(5):
        if x.sum() > 5:
            break
        x = x * 2
        turns += 1
    return x, turns
def make_arguments():
    return (torch.tensor([0.5, 0.5]),)
# === the loop variable read after the loop
def f(x):
    for i in range(5):
        x = x * 2
        if x.sum() > 5:
            break
    return x + i
def make_arguments():
    return (torch.tensor([0.5, 0.5]),)
# === a name first assigned within the loop
def f(x):
    for i in range(4):
        z = x * (i + 1)
        if z.sum() > 3:
            break
    return z
def make_arguments():
    return (torch.tensor([0.5, 0.5], requires_grad=True),)
# === a name used only in the loop
def f(x):
    y = x
    for i in range(4):
        step = y * 0.5 + i
        y = y + step
        if y.sum() > 6:
            break
    return y
def make_arguments():
    return (torch.tensor([0.5, 0.5], requires_grad=True),)
# === a value from an earlier iteration
def f(x):
    y = x
    last = x * 0
    for i in range(4):
        y = y + last
        if y.sum() > 6:
            break
        last = y * 2
    return y + last
def make_arguments():
    return (torch.tensor([0.5, 0.5], requires_grad=True),)
# === a different dtype after the loop
def f(x):
    y = torch.zeros(2, dtype=torch.int64)
    for i in range(3):
        y = y + 1
        if x.sum() > i:
            break
        y = y + 0.5
    return y
def make_arguments():
    return (torch.tensor([0.5, 0.75]),)
# === a gradient that is not a number after the exit
def f(x):
    y = x
    for _ in range(4):
        if y.min() < 0.5:
            break
        y = (y - 0.5).sqrt()
    return y.sum()
def make_arguments():
    return (torch.tensor([0.9, 1.4], requires_grad=True),)
# === random numbers within the loop
def f(x):
    for _ in range(4):
        if x.sum() > 3:
            break
        x = x + torch.rand(2)
    return x + torch.rand(2)
def make_arguments():
    return (torch.tensor([0.5, 0.75]),)
# === a shape that grows
def f(x):
    for _ in range(4):
        if x.sum() > 3:
            break
        x = torch.cat([x, x])
    return x
def make_arguments():
    return (torch.tensor([0.5, 0.75]),)
# === a print within the loop
def f(x):
    for i in range(4):
        if x.sum() > 3:
            break
        x = x + 1
        print("turn", i)
    return x
def make_arguments():
    return (torch.tensor([0.5, 0.75]),)
# === a print when the loop is left
def f(x):
    found = x * 0
    for i in range(4):
        if x.sum() > 3:
            found = x * i
            break
        x = x + 1
    return found, x * 2
def make_arguments():
    return (torch.tensor([0.5, 0.75], requires_grad=True),)
# === a return from within a loop
def f(x):
    for i in range(4):
        if x.sum() > 3:
            return x * i
        x = x + 1
    return x - 1
def make_arguments():
    return (torch.tensor([0.5, 0.75], requires_grad=True),)
# === a return from within a loop, or after it
def f(x):
    for _ in range(3):
        x = x + 1
        if x.sum() > 30:
            return x * 2
    else:
        x = x - 1
    return x
def make_arguments():
    return (torch.tensor([0.5, 0.75]),)
# === a loop with a counter that a tensor ends
def f(x):
    n = 0
    while n < 6 and x.norm() > 1:
        x = x * 0.5
        n += 1
    return x + 1
def make_arguments():
    return (torch.tensor([3.0, 4.0], requires_grad=True),)
# === a loop whose counter is returned
def f(x):
    n = 0
    while n < 6 and x.norm() > 1:
        x = x * 0.5
        n += 1
    return x, n
def make_arguments():
    return (torch.tensor([3.0, 4.0]),)
# === a loop that only a tensor ends
def f(x):
    total = x * 0
    while x.norm() > 1:
        x = x * 0.5
        total = total + x
    return total
def make_arguments():
    return (torch.tensor([3.0, 4.0]),)
# === a loop that only a tensor ends, with gradients
def f(x):
    while x.norm() > 1:
        x = x * 0.5
    return x.sum()
def make_arguments():
    return (torch.tensor([3.0, 4.0], requires_grad=True),)
# === two names swapped until a tensor ends the loop
def f(x):
    a, b = x, x + 1
    while a.sum() < 20:
        a, b = b, a + b
    return a, b
def make_arguments():
    return (torch.tensor([1.0, 1.0]),)
# === lengths of parts
def f(x, lengths):
    parts = torch.split(x, lengths.tolist())
    return torch.stack([part.sum() for part in parts])
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(), torch.tensor([1, 2, 3]))
# === a grid read number by number
def f(x, grid):
    h, w = int(grid[0]), int(grid[1])
    return x.reshape(h, w).mean(0) * h
def make_arguments():
    return (torch.linspace(-1, 2, 6).requires_grad_(), torch.tensor([2, 3]))
# === lengths changed before they are read
def f(x, lengths):
    lengths += 1
    return torch.stack([part.sum() for part in torch.split(x, lengths.tolist())])
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor([0, 1, 2]))
# === lengths rebound before they are read
def f(x, lengths):
    lengths = lengths * 2
    return torch.stack([part.sum() for part in torch.split(x, lengths.tolist())])
def make_arguments():
    return (torch.linspace(-1, 2, 6), torch.tensor([1, 2]))
# === lengths read only if there are any
def f(x, lengths):
    if x.dim() == 2:
        return x[: lengths[7].item()]
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6).reshape(2, 3), torch.arange(8) - 6)
# === a scale that is a number of the argument
def f(x):
    scale = x.max().item()
    return x / scale
def make_arguments():
    return (torch.tensor([0.5, 2.0], requires_grad=True),)
# === repeated by lengths
def f(x, lengths):
    return torch.repeat_interleave(x, lengths) * 2
def make_arguments():
    return (torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.tensor([2, 0, 1]))
# === sizes counted with NumPy
def f(x):
    return x.reshape(int(np.prod(x.shape))) * 2
def make_arguments():
    return (torch.linspace(-1, 2, 6).reshape(2, 3).requires_grad_(),)
# === sizes counted with NumPy, and returned
def f(x):
    n = np.prod(x.shape[1:])
    return x.sum() * 2, n
def make_arguments():
    return (torch.linspace(-1, 2, 6).reshape(2, 3),)
# === layers left early, whose statistics change
layers = torch.nn.ModuleList([torch.nn.BatchNorm1d(3) for _ in range(3)])
def f(x):
    for layer in layers:
        x = layer(x)
        if x[0, 0] > 0.5:
            break
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 12).reshape(4, 3),)
# === layers left early, whose parameters get no gradient
torch.manual_seed(0)
layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)])
def f(x):
    for layer in layers:
        x = layer(x)
        if x.sum() > 0:
            break
    return x * 2
def make_arguments():
    return (torch.linspace(-1, 2, 12).reshape(4, 3),)
# === a condition with its own dimension
def f(x):
    total = x.sum()
    for i in range(3):
        if x[:1] > 1:
            break
        x = x + 1
        total = total + i
    return total
def make_arguments():
    return (torch.tensor([0.5, 0.75], requires_grad=True),)
# === the argument itself returned
def f(x):
    y = x
    for _ in range(3):
        if y.sum() > 1:
            break
        y = y * 2
    return y
def make_arguments():
    return (torch.tensor([0.5, 0.75], requires_grad=True),)
# === the count used within the loop
def f(x):
    n = 0
    while n < 5 and x.sum() < 8:
        x = x + n
        n += 1
    return x * 2
def make_arguments():
    return (torch.tensor([0.5, 0.75], requires_grad=True),)
# === nested loops
def f(x):
    for i in range(2):
        for j in range(3):
            if x.sum() > 5:
                break
            x = x + j
        x = x * 2
    return x
def make_arguments():
    return (torch.tensor([0.5, 0.75], requires_grad=True),)
# === a division by zero after the exit
def f(x):
    y = torch.tensor(12)
    for i in range(4):
        if x.sum() < 10 + i:
            break
        y = y // (2 - i)
    return y * 2
def make_arguments():
    return (torch.tensor([0.5, 0.75]),)
# === an alias of the changed value
def f(x):
    y = x * 1
    z = y
    for _ in range(3):
        if y.sum() > 5:
            break
        y += 1
    return y, z
def make_arguments():
    return (torch.tensor([0.5, 0.75]),)
# === a total next to the loop, in a different dtype
def f(x):
    total = torch.zeros(2, dtype=torch.float64)
    for i in range(3):
        total += x
        if total.sum() > 2:
            break
    return total
def make_arguments():
    return (torch.tensor([0.5, 0.75]),)
# === a count that a branch uses as well
def f(x):
    n = 0
    for _ in range(4):
        n = n + 1
        if x.sum() * n > 3:
            break
        x = x + 1
    return x * n
def make_arguments():
    return (torch.tensor([0.5, 0.75], requires_grad=True),)
# === the experts that a batch uses
class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate = torch.nn.Linear(4, 3, bias=False)
        self.experts = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
    def forward(self, x):
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 2, dim=-1)
        out = torch.zeros_like(x)
        for number in torch.unique(chosen):
            e = int(number.item())
            rows, slots = torch.where(chosen == e)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, self.experts[e](x[rows]) * weights[rows, slots, None])
        return out
experts = Experts()
def f(x):
    with torch.no_grad():
        return experts(x)
def make_arguments():
    return (torch.arange(12.0).reshape(3, 4) / 5 - 1,)
# === experts without rows, skipped by their counts
class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.gate = torch.nn.Linear(4, 3, bias=False)
        self.experts = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
    def forward(self, x):
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 1, dim=-1)
        y = torch.zeros_like(x)
        counts = torch.bincount(chosen.flatten(), minlength=3).tolist()
        for i in range(3):
            if counts[i] == 0:
                continue
            rows, slots = torch.where(chosen == i)
            y[rows] += self.experts[i](x[rows]) * weights[rows, slots, None]
        return y
experts = Experts()
def f(x):
    with torch.no_grad():
        return experts(x)
def make_arguments():
    return (torch.arange(12.0).reshape(3, 4) / 5 - 1,)
