"""Changed source texts that compile a part of an entry instead of the entry itself."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import torch

from jupyter_graphbreak.experiments.families.inner_compilation import CompiledEntry, propose_inner_compilation
from jupyter_graphbreak.experiments.families.proposal import InnerCall

NET_CALL = InnerCall("Net", ("net",))


class LM(torch.nn.Module):
    """A module whose method ``search`` calls another method."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.ones_(self.out.weight)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.out(x)
        return y

    def search(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits(x)


def changed_text(text: str, entry: CompiledEntry, *calls: InnerCall) -> str | None:
    proposal = propose_inner_compilation({"s1": text}, {"s1": "cell"}, entry, calls or (NET_CALL,), 0.5)
    return None if proposal is None else proposal.texts["s1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "import torch\nnet = Net()\n@torch.compile\ndef sample(x):\n    return net(x)\nsample(1)",
            "import torch\nnet = Net()\nnet.compile()\ndef sample(x):\n    return net(x)\nsample(1)",
        ),
        (
            "import torch\n@torch.compile(mode='default')\ndef sample(x):\n    return net(x)\nnet = Net()\nsample(1)",
            "import torch\ndef sample(x):\n    return net(x)\nnet = Net()\nnet.compile(mode='default')\nsample(1)",
        ),
        (
            "import torch\ndef sample(x):\n    return net(x)\nfast = torch.compile(sample)\nfast(1)",
            "import torch\ndef sample(x):\n    return net(x)\nnet.compile()\nfast = sample\nfast(1)",
        ),
        (
            "def sample(x):\n    return net(x)\nsample(1)",
            "def sample(x):\n    return net(x)\nnet.compile()\nsample(1)",
        ),
    ],
    ids=["decorator", "created later", "call", "compiled by the magic"],
)
def test_a_global_module_is_compiled_instead_of_a_function(text: str, expected: str) -> None:
    uses_net = text.replace("sample(1)", "sample(net)") if "compile" not in text else text
    entry = CompiledEntry("sample", parameters=("x",))
    assert changed_text(uses_net, entry) == expected.replace(
        "sample(1)", "sample(net)" if uses_net != text else "sample(1)"
    )


def test_a_module_that_is_an_argument_is_compiled_under_the_callers_name() -> None:
    text = "import torch\ndef run(pipe, n):\n    return pipe(n)\nfast = torch.compile(run)\nfast(pipeline, 2)"
    entry = CompiledEntry("run", parameters=("pipe", "n"))
    new_text = changed_text(text, entry, InnerCall("UNet", ("pipe.unet",)))
    assert new_text == text.replace("fast = torch.compile(run)", "pipeline.unet.compile()\nfast = run")


def test_an_argument_is_found_if_one_expression_compiles_and_calls_the_function() -> None:
    text = "import torch\ndef fit(gp):\n    return gp()\nloss = torch.compile(fit, backend='eager')(model)"
    new_text = changed_text(text, CompiledEntry("fit", parameters=("gp",)), InnerCall("Kernel", ("gp.kernel",)))
    assert new_text == text.replace("loss = torch", "model.kernel.compile(backend='eager')\nloss = torch").replace(
        "torch.compile(fit, backend='eager')", "fit"
    )


def test_a_part_of_each_layer_is_compiled_in_a_loop() -> None:
    text = "import torch\nfast = torch.compile(flow, backend='eager')\nfast(1)"
    parts = InnerCall("MLP", tuple(f"steps.{number}.hyper" for number in range(3)), "forward", covers_list=True)
    new_text = changed_text(text, CompiledEntry("Flow", is_module=True), parts)
    assert new_text == (
        "import torch\nfor block in flow.steps:\n"
        "    block.hyper.forward = torch.compile(type(block.hyper).forward, backend='eager').__get__(block.hyper)\n"
        "fast = flow\nfast(1)"
    )


def test_if_other_items_of_a_list_must_stay_uncompiled_the_loop_lists_the_modules() -> None:
    text = "import torch\nfast = torch.compile(flow, backend='eager')\nfast(1)"
    entry = CompiledEntry("Flow", is_module=True)
    for paths in (("steps.0", "steps.2"), ("stages.0.steps.1", "stages.1.steps.0"), ("steps.0.hyper", "steps.1.net")):
        proposal = propose_inner_compilation({"s1": text}, {"s1": "cell"}, entry, [InnerCall("MLP", paths)], 0.5)
        assert proposal is not None
        expressions = ["flow." + re.sub(r"\.(\d)", r"[\1]", path) for path in paths]
        assert proposal.texts["s1"] == (
            f"import torch\nfor block in (\n    {expressions[0]},\n    {expressions[1]},\n):\n"
            "    block.compile(backend='eager')\nfast = flow\nfast(1)"
        )
        assert proposal.title.startswith("Compile 2 MLP modules")
        assert "(they do 50% of" in proposal.title
    too_many = InnerCall("MLP", tuple(f"steps.{number}" for number in range(0, 60, 2)))
    assert propose_inner_compilation({"s1": text}, {"s1": "cell"}, entry, [too_many], 0.5) is None


def test_layers_of_one_class_are_compiled_in_a_loop() -> None:
    text = "import torch\nfast = torch.compile(model, backend='eager')\nfast(1)"
    layers = InnerCall("Block", tuple(f"layers.{number}" for number in range(3)), covers_list=True)
    new_text = changed_text(text, CompiledEntry("Deep", is_module=True), layers)
    assert new_text == (
        "import torch\nfor block in model.layers:\n    block.compile(backend='eager')\nfast = model\nfast(1)"
    )
    used_names = frozenset({"block", "layer"})  # variables of other cells
    proposal = propose_inner_compilation(
        {"s1": text}, {"s1": "cell"}, CompiledEntry("Deep", is_module=True), [layers], 0.5, used_names
    )
    assert proposal is not None
    assert proposal.texts["s1"] == new_text.replace("block", "block_2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model = Deep()\nmodel = torch.compile(model)\nmodel(1)", "model = Deep()\nmodel.net.compile()\nmodel(1)"),
        ("model = Deep()\nmodel.compile()\nmodel(1)", "model = Deep()\nmodel.net.compile()\nmodel(1)"),
        ("model = torch.compile(Deep())\nmodel(1)", "model = Deep()\nmodel.net.compile()\nmodel(1)"),
    ],
)
def test_a_part_of_a_module_is_compiled_instead_of_the_module(text: str, expected: str) -> None:
    assert changed_text(f"import torch\n{text}", CompiledEntry("Deep", is_module=True)) == f"import torch\n{expected}"


def test_a_part_of_the_object_of_a_method_is_compiled() -> None:
    text = "import torch\nsearch = torch.compile(searcher.search)\nsearch(1)"
    new_text = changed_text(text, CompiledEntry("search", "Beam"), InnerCall("Decoder", ("self.model",)))
    assert new_text == "import torch\nsearcher.model.compile()\nsearch = searcher.search\nsearch(1)"


def test_a_module_in_a_global_variable_or_an_argument_is_not_an_attribute_of_the_methods_object() -> None:
    text = "import torch\nnet = Net()\nstep = torch.compile(trainer.step)\nstep(1, net)"
    for parameters in ((), ("x", "model")):
        part = InnerCall("Net", (parameters[-1] if parameters else "net",), starts_at_owner=False)
        new_text = changed_text(text, CompiledEntry("step", "Trainer", parameters=parameters), part)
        assert new_text == "import torch\nnet = Net()\nnet.compile()\nstep = trainer.step\nstep(1, net)"


def test_a_method_of_the_object_of_a_method_is_compiled() -> None:
    text = "import torch\nlm = LM()\nsearch = torch.compile(lm.search)\nsearch(1)"
    new_text = changed_text(text, CompiledEntry("search", "LM"), InnerCall("LM", ("self",), "logits"))
    assignment = "lm.logits = torch.compile(type(lm).logits).__get__(lm)"
    assert new_text == f"import torch\nlm = LM()\n{assignment}\nsearch = lm.search\nsearch(1)"


def test_a_copy_of_a_module_with_a_compiled_method_calls_its_own_method() -> None:
    text = "import torch\nlm = LM()\nsearch = torch.compile(lm.search, backend='eager')"
    new_text = changed_text(text, CompiledEntry("search", "LM"), InnerCall("LM", ("self",), "logits"))
    scope: dict[str, Any] = {"LM": LM}
    exec(str(new_text), scope)
    copies = [copy.deepcopy(scope["lm"]), pickle.loads(pickle.dumps(scope["lm"]))]
    for module_copy in copies:
        module_copy.out.weight.data.zero_()
    x = torch.ones(1, 1)
    assert [module.logits(x).item() for module in (scope["lm"], *copies)] == [1, 0, 0]
    assert list(scope["lm"].state_dict()) == ["out.weight"]


@pytest.mark.parametrize(
    ("copy_expression", "method", "count"),
    [("copy.copy(net)", "logits", 1), ("copy.copy(net)", "", 0), ("copy.deepcopy(net)", "logits", 0)],
)
def test_an_assumption_says_that_shallow_copies_share_the_method(copy_expression: str, method: str, count: int) -> None:
    text = (
        f"import torch, copy\nnet = Net()\n@torch.compile\ndef step(x):\n    return net(x)\ntarget = {copy_expression}"
    )
    entry = CompiledEntry("step", parameters=("x",))
    proposal = propose_inner_compilation({"s1": text}, {"s1": "cell"}, entry, [InnerCall("Net", ("net",), method)], 0.5)
    assert proposal is not None
    assert len(proposal.assumptions) == count


def test_a_module_that_module_compile_does_not_affect_gets_a_compiled_forward() -> None:
    text = "import torch\nnet = Net()\n@torch.compile(dynamic=True)\ndef step(x):\n    return net(x)"
    new_text = changed_text(text, CompiledEntry("step", parameters=("x",)), InnerCall("Net", ("net",), "forward"))
    assert new_text == text.replace(
        "@torch.compile(dynamic=True)", "net.forward = torch.compile(type(net).forward, dynamic=True).__get__(net)"
    )


def test_an_inner_function_is_decorated_with_the_same_options() -> None:
    text = (
        "import torch\ndef score(x):\n    return x\n@torch.compile(backend='eager')\ndef step(x):\n    return score(x)"
    )
    new_text = changed_text(text, CompiledEntry("step", parameters=("x",)), InnerCall("score", filename="cell"))
    assert new_text == (
        "import torch\n@torch.compile(backend='eager')\ndef score(x):\n    return x\ndef step(x):\n    return score(x)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "from torch import compile\nnet = Net()\n@compile\ndef sample(x):\n    return net(x)\nsample(1)",
        "import torch\n@torch.compile(backend=mine)\ndef sample(x):\n    return net(x)\nsample(1)",
        "import torch\n@torch.compile\ndef sample(x):\n    return net(x)\nsame = torch.compile(sample, dynamic=True)",
    ],
    ids=["imported name", "option is a variable", "different options"],
)
def test_nothing_is_proposed_if_the_text_cannot_be_changed_safely(text: str) -> None:
    assert changed_text(text, CompiledEntry("sample", parameters=("x",))) is None


@pytest.mark.parametrize(
    "statements",
    [
        "model = torch.compile(Net())\nother = torch.compile(Net())",
        "model = torch.compile(Net())\nmodel = torch.compile(Net())",
        "a, b = Net(), Net()\nmodel = torch.compile(a)\nother = torch.compile(b)",
        "models = [torch.compile(Net()) for _ in range(2)]",
        "models = torch.nn.ModuleList([torch.compile(Net())])",
    ],
)
def test_the_parts_of_several_modules_or_of_modules_in_a_list_are_not_compiled(statements: str) -> None:
    layers = InnerCall("Block", ("layers.0", "layers.1"), covers_list=True)
    assert changed_text(f"import torch\n{statements}\n", CompiledEntry("Net", is_module=True), layers) is None


@pytest.mark.parametrize(
    ("statements", "is_known"),
    [
        ("net = Net()", True),
        ("net = Net().eval().to('cpu')", True),
        ("nets = [Net(), Net()]", False),
        ("nets = [Net()]", False),
        ("net = Net()\nrun(Net())", False),
        ("for _ in range(2):\n    net = Net()\n    nets.append(net)", False),
        ("def build():\n    net = Net()\n    return net", False),
        ("net = torch.nn.Sequential(Net())", False),
    ],
)
def test_parts_of_a_module_with_a_compiled_method_are_compiled_only_if_a_name_holds_the_module(
    statements: str, *, is_known: bool
) -> None:
    text = (
        "import torch\nclass Net(torch.nn.Module):\n    @torch.compile\n    def forward(self, x):\n        return x\n"
        f"{statements}\n"
    )
    layers = InnerCall("Block", ("self.layers.0", "self.layers.1"), covers_list=True)
    new_text = changed_text(text, CompiledEntry("forward", "Net"), layers)
    assert (new_text is not None) is is_known
    assert new_text is None or "for block in net.layers:\n    block.compile()" in new_text


def test_parts_of_an_object_are_compiled_after_a_later_cell_creates_it() -> None:
    texts = {
        "class": "import torch\nclass Agent:\n    @torch.compile\n    def act(self, x):\n        return self.net(x)\n",
        "run": "agent = Agent()\nagent.act(1)\n",
    }
    entry, call = CompiledEntry("act", "Agent"), InnerCall("Net", ("self.net",), starts_at_owner=True)
    proposal = propose_inner_compilation(texts, {"class": "cell 1", "run": "cell 2"}, entry, [call], 0.6)
    assert proposal is not None
    assert "compile" not in proposal.texts["class"]
    assert proposal.texts["run"] == "agent = Agent()\nagent.net.compile()\nagent.act(1)\n"


@pytest.mark.parametrize("creation", ["Net()", "Net().eval()", "Net(3).to(device).train()", "make_net()"])
def test_a_new_module_is_compiled_in_part(creation: str) -> None:
    functions = "def make_net():\n    return nn.Sequential(Net())[0]\n"
    text = f"import torch\n{functions}net = torch.compile({creation})\nnet(1)"
    new_text = changed_text(text, CompiledEntry("Net", is_module=True), InnerCall("Block", ("self.block",)))
    assert new_text == f"import torch\n{functions}net = {creation}\nnet.block.compile()\nnet(1)"


def test_the_title_names_what_is_compiled_and_its_share() -> None:
    text = "import torch\n@torch.compile\ndef step(x):\n    return G(D(x))\nstep(1)"
    calls = [InnerCall("Sequential", ("G",)), InnerCall("Sequential", ("D",))]
    proposal = propose_inner_compilation({"s1": text}, {"s1": "cell"}, CompiledEntry("step"), calls, 0.619)
    assert proposal is not None
    assert proposal.title == "Compile G and D instead of step (they do 62% of the forward operations)"
    proposal = propose_inner_compilation(
        {"s1": text}, {"s1": "cell"}, CompiledEntry("step"), calls, 0.2, has_all_layers=True
    )
    assert proposal is not None
    assert proposal.title.endswith("(they run all layers and do 20% of the forward operations)")
