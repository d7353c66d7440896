"""A part of a function is compiled instead of the whole function if a break has no other remedy."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from jupyter_graphbreak import capture, explain, try_remedies
from jupyter_graphbreak.experiments.remedies.inner_calls import CallNode, find_inner_calls, record_calls
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.experiments.trial.inner_modules import modules_of
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.report.remedies import WORKING

pytestmark = pytest.mark.usefixtures("few_unusual_inputs")
_numbers = itertools.count(1)

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.remedies.inner_calls import InnerCalls
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Report

SAMPLER = """\
import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(9, 8)
        self.out = nn.Linear(8, 8)

    def forward(self, x, t):
        return self.out(torch.relu(self.into(torch.cat([x, t.expand(len(x), 1)], -1))))


net = Denoiser()


@torch.compile(backend="eager")
def sample(x):
    lengths = []
    for step in range(2):
        x = x - 0.1 * net(x, torch.tensor([step / 2]))
        lengths.append(len(x.detach().numpy().tolist()))
        if x.norm().item() < 0.01:
            break
    return x
"""
SOLVER = """\
import torch


def half(x, k):
    return torch.sin(x).neg().exp().log().neg() * 0.5 + k


@torch.compile(backend="eager")
def integrate(x):
    k = 0
    while x.abs().max().item() > 1.2:
        x = half(x, float(k))
        k += 1
    return x
"""
BEAM_SEARCH = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 4)

    def hidden(self, ids):
        return torch.tanh(ids) * ids.abs().sqrt()

    def score(self, ids):
        return torch.log_softmax(self.out(self.hidden(ids)), -1).exp()

    def search(self, start):
        best, total = start, 0.0
        for _ in range(2):
            scores = self.score(best)
            best = best + scores.argmax().item()
            total += float(str(scores.max().item()))
        return best, total


model = Model()
compiled = torch.compile(model.search, backend="eager")
"""
GAN = """\
import torch
from torch import nn

G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))
D = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


@torch.compile(backend="eager")
def step(z):
    score = D(G(z)).mean()
    if len(str(score.detach().numpy())) > 99:
        return z
    return score
"""
TRAINER = """\
import torch
from torch import nn


class Trainer:
    def __init__(s, model):
        s.model, s.number = model, 0

    def step(s, x):
        x = x * 2
        if s.number == 1:
            print("second step")
        loss = s.model(x).sum()
        loss.backward()
        s.number += 1
        return loss


trainer = Trainer(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)))
compiled = torch.compile(trainer.step, backend="eager")
"""
EPOCH = """\
import torch
from torch.utils.data import DataLoader


def train(model, batches):
    total = 0.0
    for number, batch in enumerate(batches):
        loss = model(batch).sum()
        loss.backward()
        total += loss.item()
    return total / (number + 1)


model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
batches = DataLoader([torch.ones(4)] * 4, batch_size=2)
compiled = torch.compile(train, backend="eager")
compiled(model, batches)
"""
LAYERS = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return x + self.b(torch.tanh(self.a(x)))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        norms = []
        for layer in self.layers:
            x = layer(x)
            norms.append(str(x.norm().detach().numpy()))
        return x, norms


model = Deep()
compiled = torch.compile(model, backend="eager")
"""
BACKWARD_PROGRAM = """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))


class Trainer:
    def step(self, x):
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()


compiled = torch.compile(Trainer().step, backend="eager")
"""
TRAINING_STEP = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(4, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        x = torch.relu(self.into(x))
        if x.mean() > 100:
            x = x * 0.5
        return self.out(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


@torch.compile(backend="eager")
def step(x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()
"""
#: The backend changes all results by a rounding error. The bias of the first layer has no gradient apart from rounding.
ROUNDING_STEP = """\
import torch
from torch import nn
from torch._dynamo import register_backend

net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=0.001)


@register_backend
def rounding(graph, inputs):
    return lambda *args: [part * (1 + 2**-22) if part.is_floating_point() else part for part in graph(*args)]


@torch.compile(backend="rounding")
def step(x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
"""


@pytest.fixture(autouse=True)
def forget_compiled_code() -> Iterator[None]:
    torch.compiler.reset()
    modules_before = set(sys.modules)
    yield
    for name in set(sys.modules) - modules_before:
        if name.startswith("inner_calls_"):
            del sys.modules[name]


def import_source(text: str, folder: Path) -> Any:
    """Import source text as a separate module."""
    name = f"inner_calls_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def find_parts(
    function: Any, argument: torch.Tensor, report: Report, outside_break_ids: frozenset[str] = frozenset()
) -> InnerCalls:
    """Return the parts of a function or module that a search would compile instead."""
    original: Any = SimpleNamespace(
        entry=Entry("call", None, function, Arguments(argument)),
        cases=[()],
        run=lambda program, subject, _: program(*subject.arguments.args),
    )
    files = {source.id: str(Path(source.path or "").expanduser()) for source in report.sources}
    return find_inner_calls(original, report, files, outside_break_ids)


def inner_remedy(module: Any, name: str, *args: Any) -> Remedy | None:
    report = try_remedies(getattr(module, name), *args)
    return next((remedy for remedy in report.remedies or [] if remedy.family == "inner"), None)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("text", "name", "argument", "title", "line"),
    [
        (SAMPLER, "sample", torch.ones(2, 8), "Compile net instead of sample", '+net.compile(backend="eager")'),
        (
            SOLVER,
            "integrate",
            3 * torch.ones(5),
            "Compile half instead of integrate",
            '+@torch.compile(backend="eager")',
        ),
        (
            BEAM_SEARCH,
            "compiled",
            torch.ones(3),
            "Compile model.score instead of Model.search",
            '+model.score = torch.compile(type(model).score, backend="eager").__get__(model)',
        ),
        (
            GAN,
            "step",
            torch.ones(2, 4),
            "Compile G and D instead of step",
            "+G.forward = torch.compile(type(G).forward, ",
        ),
        (LAYERS, "compiled", torch.ones(2, 4), "Compile each Block of model.layers", "+for block in model.layers:"),
        (
            BACKWARD_PROGRAM,
            "compiled",
            torch.ones(2, 4),
            "Compile net instead of Trainer.step",
            "+net.forward = torch.compile(type(net).forward, ",
        ),
    ],
    ids=["sampler", "solver", "beam_search", "gan", "layers", "global"],
)
def test_the_part_that_an_expert_would_compile_is_named_and_works(
    tmp_path: Path, text: str, name: str, argument: torch.Tensor, title: str, line: str
) -> None:
    remedy = inner_remedy(import_source(text, tmp_path), name, argument)
    assert remedy is not None
    assert (remedy.verdict, remedy.breaks) == ("works", ["b1"])
    assert remedy.title.startswith(title)
    assert line in (remedy.patch or "")
    assert remedy.evidence is not None
    assert (remedy.evidence.breaks_after, remedy.evidence.graphs_after > 0) == (0, True)


LAYERS_AND_HELPER = """\
import torch
from torch import nn


def overlap(boxes):
    low = torch.max(boxes[:, None, :2], boxes[:, :2])
    high = torch.min(boxes[:, None, 2:], boxes[:, 2:])
    return (high - low).clamp(min=0).prod(-1)


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).relu().exp()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = BODY

    def forward(self, x):
        boxes = self.body(x)
        names = str(boxes.detach().numpy())
        return overlap(boxes), names


compiled = torch.compile(Net(), backend="eager")
"""


@pytest.mark.parametrize(
    ("body", "title"), [("nn.Linear(4, 4)", None), ("Body()", "Compile overlap and compiled.body ")]
)
def test_a_part_without_parameters_is_not_proposed_for_an_entry_with_parameters(
    tmp_path: Path, body: str, title: str | None
) -> None:
    module = import_source(LAYERS_AND_HELPER.replace("BODY", body), tmp_path)
    remedy = inner_remedy(module, "compiled", torch.rand(3, 4))
    assert (None if remedy is None else remedy.title[: len(title or "")]) == title


WRITER = """\
import torch
from torch import nn

letters = "abcdef"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6)

    def forward(self, x):
        return self.body(x).relu().exp().log_softmax(-1)


net = Net()


def encode(letter):
    x = torch.zeros(6)
    x[letters.index(letter)] = 1
    return x.mul(2).sub(1).add(0.5).exp()


@torch.compile(backend="eager")
def write(letter):
    word = letter
    for _ in range(4):
        letter = letters[(letters.index(letter) + int(net(encode(letter)).argmax()) + 1) % 6]
        word += letter
    return word
"""


def test_a_function_that_recompiles_for_each_string_is_not_compiled_beside_the_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    remedy = inner_remedy(import_source(WRITER, tmp_path), "write", "a")
    assert remedy is not None
    assert (remedy.verdict, remedy.title.partition(" (")[0]) == ("works", "Compile net instead of write")


def test_a_model_is_compiled_although_decoding_its_result_takes_most_operations(tmp_path: Path) -> None:
    text = LAYERS_AND_HELPER.replace("BODY", "Body()").replace(
        "        return overlap(boxes), names\n",
        "        for _ in range(40):\n            boxes = boxes.abs().sin().cos()\n        return boxes, names\n",
    )
    remedy = inner_remedy(import_source(text, tmp_path), "compiled", torch.rand(3, 4))
    assert remedy is not None
    assert (
        remedy.title
        == "Compile compiled.body instead of Net (it runs all layers and does 5% of the forward operations)"
    )


def test_a_decorated_function_is_replaced_by_its_part(tmp_path: Path) -> None:
    text = SAMPLER.replace("def sample", "@torch.no_grad()\ndef sample")
    remedy = inner_remedy(import_source(text, tmp_path), "sample", torch.ones(3, 8))
    assert remedy is not None
    assert (remedy.verdict, remedy.reason) == ("works", None)


def test_an_item_of_a_list_that_breaks_stays_uncompiled(tmp_path: Path) -> None:
    print_module = "class Print(nn.Module):\n    def forward(self, x):\n        print(x.sum())\n        return x\n\n\n"
    text = LAYERS.replace("Block() for _ in range(3)", "[Block(), Print(), Block()]")
    text = text.replace("class Deep", f"{print_module}class Deep").replace(
        "            norms.append(str(x.norm().detach().numpy()))\n", ""
    )
    remedy = inner_remedy(import_source(text, tmp_path), "compiled", torch.ones(2, 4))
    assert remedy is not None
    assert remedy.verdict in WORKING, remedy.reason
    assert remedy.title.startswith("Compile 2 Block modules of model.layers instead of Deep (they do")
    lines = [line for line in (remedy.patch or "").splitlines() if line.startswith("+")]
    assert lines[1:-1] == [
        "+for block in (",
        "+    model.layers[0],",
        "+    model.layers[2],",
        "+):",
        '+    block.compile(backend="eager")',
    ]


def test_a_training_step_works_if_an_optimizer_turns_rounding_errors_into_steps(tmp_path: Path) -> None:
    torch.manual_seed(0)
    remedy = inner_remedy(import_source(ROUNDING_STEP, tmp_path), "step", torch.randn(16, 8))
    assert remedy is not None
    assert remedy.verdict in WORKING, remedy.reason


@pytest.mark.exhaustive
def test_compiling_a_part_also_removes_breaks_of_later_calls_outside_it(tmp_path: Path) -> None:
    module = import_source(TRAINER, tmp_path)
    with capture(entries=True) as run:
        for _ in range(2):
            module.compiled(torch.ones(2, 4))
    later_break = next(break_ for break_ in run.report.breaks if break_.gb_id == "GB0059")
    remedy = next(remedy for remedy in run.try_remedies().remedies or [] if remedy.family == "inner")
    assert remedy.title.startswith("Compile trainer.model instead of Trainer.step")
    assert remedy.verdict == "works"
    assert later_break.id in remedy.breaks
    assert set(remedy.breaks) == {break_.id for break_ in run.report.breaks}


def test_a_break_that_another_compiled_function_also_reaches_stays(tmp_path: Path) -> None:
    text = SAMPLER.replace("len(x.detach().numpy().tolist())", "count(x)").replace("[]", "x.detach().numpy().tolist()")
    text = text.replace("net =", "def count(x):\n    return len(x.detach().numpy().tolist())\n\n\nnet =")
    text += '\n\n@torch.compile(backend="eager")\ndef evaluate(x):\n    return net(x, torch.zeros(1)) * count(x)\n'
    module = import_source(text, tmp_path)
    with capture(entries=True) as run:
        module.sample(torch.ones(3, 8))
        module.evaluate(torch.ones(3, 8))
    breaks_in_count = {
        break_.id for break_ in run.report.breaks if break_.location and break_.location.function == "count"
    }
    remedies = [remedy for remedy in run.try_remedies().remedies or [] if remedy.family == "inner"]
    assert breaks_in_count
    assert any(remedy.title.startswith("Compile net instead of sample") for remedy in remedies)
    assert all(breaks_in_count.isdisjoint(remedy.breaks) for remedy in remedies if remedy.verdict in WORKING)


@pytest.mark.exhaustive
def test_a_model_is_compiled_instead_of_its_training_step_although_the_model_breaks(tmp_path: Path) -> None:
    report = try_remedies(import_source(TRAINING_STEP, tmp_path).step, torch.ones(2, 4))
    inner_break = next(break_.id for break_ in report.breaks if break_.gb_id == "GB0170")
    part_remedy, branch_remedy, combined_remedy = (
        remedy for remedy in report.remedies or [] if remedy.verdict == "works"
    )
    assert part_remedy.title.startswith("Compile net instead of step")
    assert {*part_remedy.breaks, inner_break} == {break_.id for break_ in report.breaks}
    assert branch_remedy.breaks == [inner_break]
    assert {*combined_remedy.breaks} == {break_.id for break_ in report.breaks}
    assert "+net.compile(" in (combined_remedy.patch or "")
    assert combined_remedy.evidence is not None
    assert combined_remedy.evidence.breaks_after == 0


def test_a_function_that_torchscript_runs_breaks_its_callers(tmp_path: Path) -> None:
    text = "import torch\n\n\n@torch.jit.script\ndef half(x):\n    if bool(torch.all(x > 0)):\n        x = x * 2\n"
    text += "    return x / 2\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
    text += "        return half(x.sin().cos().tanh())\n"
    net, x = import_source(text, tmp_path).Net(), torch.ones(2)
    report = explain(net, x)
    assert [break_.location.function for break_ in report.breaks if break_.location] == ["half"]
    assert not find_parts(net, x, report).calls


def test_a_module_may_override_the_method_that_returns_its_parameters() -> None:
    class Learner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.ones(2)])

        def parameters(self) -> torch.nn.ParameterList:  # type: ignore[override]
            return self.weights

    learner = Learner()
    assert CallNode(module=learner, direct_op_count=1).layers() == {id(learner)}


def test_a_small_part_does_not_replace_a_function_whose_break_costs_no_graph(tmp_path: Path) -> None:
    text = "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
    text += "        return x.sin().cos().tanh()\n\n\nnet = Net()\n\n\n"
    text += (
        "@torch.compile(backend='eager')\ndef loss(x):\n    if x.dim() > 4:\n        return None, x\n    y = net(x)\n"
    )
    text += "    y = (y * 2 + x).exp().log().abs().sqrt().neg().sigmoid()\n    kl = (y - x).mean()\n"
    text += "    if kl > 9:\n        return None, kl\n    return y, kl\n"
    module = import_source(text, tmp_path)
    report = try_remedies(module.loss, torch.ones(2))
    (break_,) = report.breaks
    assert break_.cost is not None
    assert break_.cost.graphs == 0
    assert not [remedy.title for remedy in report.remedies or [] if remedy.title.startswith("Compile net")]
    (decision,) = {remedy.person for remedy in report.remedies or [] if remedy.person}
    assert decision.startswith("Decide whether the result can be computed on every call: return the condition with it")


def test_a_model_inside_a_wrapper_has_the_name_of_its_own_variable(tmp_path: Path) -> None:
    text = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 2))\naverage = torch.nn.Module()\n"
    text += "average.model = net\n\n\ndef step(x):\n    average.model.zero_grad()\n    return net(x)\n"
    x = torch.ones(2)
    subject = Subject(import_source(text, tmp_path).step, Arguments(x))
    assert [path for path, _ in modules_of(subject, (x,), {})] == ["net", "net.0", "average"]


def test_a_part_may_contain_breaks_but_none_that_must_remain_outside(tmp_path: Path) -> None:
    module = import_source(TRAINING_STEP, tmp_path)
    x = torch.ones(2, 4)
    report = explain(module.step, x)
    break_ids = {break_.gb_id: break_.id for break_ in report.breaks}
    parts = find_parts(module.step.__wrapped__, x, report, frozenset({break_ids["GB0123"]}))
    assert [call.module_paths for call in parts.calls] == [("net",)]
    assert parts.breaks == {break_ids["GB0170"]}
    parts_without_breaks = find_parts(module.step.__wrapped__, x, report)
    assert not parts_without_breaks.calls
    assert parts_without_breaks.part_with_one_break is not None
    assert parts_without_breaks.part_with_one_break.break_ == break_ids["GB0170"]


DECODER = """\
import torch


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell(4, 4)
        self.gate = torch.nn.Sequential(torch.nn.Linear(4, 1))

    def decode(self, x, state):
        for _ in range(4):
            state = self.cell(torch.tanh(x), state)
        return self.gate(state[0]), state

    def forward(self, x):
        state = torch.zeros(1, 4), torch.zeros(1, 4)
        for _ in range(3):
            end, state = self.decode(x, state)
            if torch.sigmoid(end) > 0.9:
                break
        return end


decoder = Decoder()
"""


def test_a_method_is_compiled_rather_than_a_small_module_that_it_calls(tmp_path: Path) -> None:
    decoder, x = import_source(DECODER, tmp_path).decoder, torch.ones(1, 4)
    report = explain(decoder, x)
    assert [call.method for call in find_parts(decoder, x, report).calls] == ["decode"]


@pytest.mark.skipif(torch.__version__ < "2.10", reason="torch 2.9 leaves the function eager without a break")
def test_a_loop_over_a_data_loader_stays_outside(tmp_path: Path) -> None:
    with capture(entries=True) as run:
        import_source(EPOCH, tmp_path)
    assert [break_.location.code for break_ in run.report.breaks if break_.location] == ["enumerate(batches)"]
    remedy = next(remedy for remedy in run.try_remedies().remedies or [] if remedy.family == "inner")
    assert remedy.title.startswith("Compile model instead of train")
    assert (remedy.verdict, remedy.breaks) == ("works", ["b1"])


def test_the_largest_part_with_a_single_break_is_found(tmp_path: Path) -> None:
    half_text = "import torch\n\n\ndef half(x):\n    return torch.sin(x) * len(x.tolist())\n\n\n"
    text = f"{half_text}def step(x):\n    y = half(x)\n    print('half')\n    return y + 1\n"
    call, x = import_source(text, tmp_path).step, torch.ones(2)
    report = explain(call, x)
    parts = find_parts(call, x, report)
    inside = next(break_.id for break_ in report.breaks if break_.location and break_.location.function == "half")
    assert parts.calls == ()
    assert parts.part_with_one_break is not None
    assert (parts.part_with_one_break.name, parts.part_with_one_break.break_) == ("half", inside)


@pytest.mark.exhaustive
def test_nothing_is_compiled_instead_if_the_break_has_a_remedy(tmp_path: Path) -> None:
    text = "import torch\nnet = torch.nn.Linear(2, 2)\n\n\n@torch.compile(backend='eager')\ndef step(x):\n"
    module = import_source(f"{text}    x = net(x)\n    print('mean')\n    return x + 1\n", tmp_path)
    assert inner_remedy(module, "step", torch.ones(2, 2)) is None


class Average(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.average = torch.zeros(4)

    def update(self, weight: torch.Tensor) -> None:
        self.average.lerp_(weight.data, 0.1)
        self.average.lerp_(weight.detach(), 0.1)
        with torch.no_grad():
            self.average.lerp_(weight, 0.1)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.average


@pytest.mark.parametrize("is_training", [True, False])
def test_an_average_of_weights_is_not_part_of_the_forward_pass_of_a_training_step(*, is_training: bool) -> None:
    average, weight = Average(), torch.ones(4, requires_grad=True)

    def step() -> None:
        (weight.sin() - average(weight)).sum().backward()
        average.update(weight)

    with record_calls(step, ignores_updates=is_training) as (program, root):
        program()
    names = {node.code.co_name for node in root.walk() if node.code is not None and node.direct_op_count}
    assert names == {"step", "forward", *([] if is_training else ["update"])}


def test_a_sampler_has_the_same_result_when_its_network_is_compiled_instead(tmp_path: Path) -> None:
    text = SAMPLER.replace('@torch.compile(backend="eager")\n', 'net.compile(backend="eager", fullgraph=True)\n')
    changed_module, original_module = import_source(text, tmp_path), import_source(SAMPLER, tmp_path)
    changed_module.net.load_state_dict(original_module.net.state_dict())
    expected = original_module.sample.__wrapped__(torch.ones(2, 8))
    assert torch.equal(changed_module.sample(torch.ones(2, 8)), expected)
