"""The table of switches of libraries: settings, calls and arguments that avoid a break inside a library.

Each entry was measured: ``measurements`` lists the program, the release, and the breaks without and with the switch.
A library's setting that makes no difference in the measured releases is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class CodeLocation(NamedTuple):
    """A line in a stack: the file as Python imports it (``None`` for the reader's own), the function, and the code."""

    path: str | None
    function: str | None
    code: str | None


class SwitchMeasurement(NamedTuple):
    """The measurement of a switch: a program, the library's release, and the breaks without and with the switch."""

    program: str
    release: str
    breaks_before: int
    breaks_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSwitch:
    """A library's own way to avoid a break."""

    #: The import name of the library that has the switch.
    library: str
    #: The beginnings of the paths of the files that contain the breaks.
    files: tuple[str, ...]
    #: Strings in lower case, one of which occurs in the code or the function name of the break or of its two nearest
    #: callers; empty if the files suffice.
    search_strings: tuple[str, ...] = ()
    #: The change that the reader makes.
    title: str
    #: The same change as code or in words, for the end of a piece of advice.
    instruction: str
    #: The code that sets the switch before compiling; ``model`` is the outermost module of the program. ``None`` if
    #: only the reader can set it.
    code: str | None = None
    #: The way to undo ``code``: as code, or as the end of a sentence.
    undo: str = ""
    #: Expressions for the objects of the process whose attributes the code changes; a trial restores them.
    state_expressions: tuple[str, ...] = ()
    #: The effect of the switch on the results; ``None`` if they stay the same.
    result_difference: str | None = None
    #: Whether one of PyTorch's settings fixes the same break better, because the program's data can stay the same.
    is_second_choice: bool = False
    #: The first release of the library that has the switch; ``None`` if all recent releases have it.
    since: str | None = None
    #: The page or file that documents the switch.
    source: str
    #: The results of the programs with which the switch was measured.
    measurements: tuple[SwitchMeasurement, ...]

    @property
    def advice(self) -> str:
        """The switch as advice: "turn off SpecAugment: ... (features are no longer masked in training)"."""
        result_difference = f" ({self.result_difference})" if self.result_difference is not None else ""
        return f"{self.step}: {self.instruction}{result_difference}"

    @property
    def step(self) -> str:
        """The switch's title with a small first letter, for the beginning of a piece of advice."""
        return f"{self.title[0].lower()}{self.title[1:]}"


_TENSORLY = KnownSwitch(
    library="tensorly",
    files=("opt_einsum/", "tensorly/"),
    title="Let tensorly call torch.einsum instead of opt_einsum",
    instruction="tensorly.plugins.use_default_einsum()",
    code="import tensorly.plugins\ntensorly.plugins.use_default_einsum()",
    undo="tensorly.plugins.use_opt_einsum()",
    state_expressions=(
        "tensorly.plugins",
        "tensorly.backend.current_backend()",
        "type(tensorly.backend.current_backend())",
    ),
    since="0.8",
    source="https://tensorly.org/stable/modules/generated/tensorly.plugins.use_opt_einsum.html",
    measurements=(
        SwitchMeasurement("neuraloperator's FNO", "0.10.0", 1, 0),
        SwitchMeasurement("neuraloperator's FNO, factorization='tucker'", "0.10.0", 3, 0),
    ),
)
_GP_CHECKS = KnownSwitch(
    library="gpytorch",
    files=("gpytorch/models/exact_gp.py",),
    search_strings=("torch.equal(train_input",),
    title="Turn off gpytorch's checks of inputs",
    instruction="gpytorch.settings.debug(False).__enter__()",
    code="import gpytorch\ngpytorch.settings.debug(False).__enter__()",
    undo="gpytorch.settings.debug(True).__enter__()",
    state_expressions=("gpytorch.settings.debug",),
    result_difference="wrong training inputs are no longer noticed",
    source="https://docs.gpytorch.ai/en/stable/settings.html#gpytorch.settings.debug",
    measurements=(SwitchMeasurement("the marginal log likelihood of an ExactGP", "1.15.2", 7, 5),),
)
_GP_KERNELS = KnownSwitch(
    library="gpytorch",
    files=("gpytorch/utils/memoize.py", "gpytorch/lazy/", "linear_operator/operators/_linear_operator.py"),
    title="Compute kernels at once instead of lazily",
    instruction="gpytorch.settings.lazily_evaluate_kernels(False).__enter__()",
    code="import gpytorch\ngpytorch.settings.lazily_evaluate_kernels(False).__enter__()",
    undo="gpytorch.settings.lazily_evaluate_kernels(True).__enter__()",
    state_expressions=("gpytorch.settings.lazily_evaluate_kernels",),
    source="https://docs.gpytorch.ai/en/stable/settings.html#gpytorch.settings.lazily_evaluate_kernels",
    measurements=(SwitchMeasurement("a ScaleKernel of an RBFKernel, to_dense()", "1.15.2", 3, 1),),
)
_METRIC_CHECKS = KnownSwitch(
    library="torchmetrics",
    files=("torchmetrics/functional/",),
    search_strings=("validation",),
    title="Turn off the metric's checks of its inputs",
    instruction="pass validate_args=False to the metric",
    code=(
        "for module in model.modules():\n"
        '    if getattr(module, "validate_args", False):\n'
        "        module.validate_args = False"
    ),
    undo="set validate_args = True on the metrics",
    result_difference="invalid targets are no longer noticed",
    source="https://lightning.ai/docs/torchmetrics/stable/classification/accuracy.html",
    measurements=(SwitchMeasurement("BinaryAccuracy", "1.9.0", 3, 1),),
)
_SELF_LOOPS = KnownSwitch(
    library="torch_geometric",
    files=("torch_geometric/utils/loop.py",),
    title="Let the layers add no self-loops",
    instruction="add them to the graph beforehand, and pass add_self_loops=False to the layers",
    code=(
        "for module in model.modules():\n"
        '    if getattr(module, "add_self_loops", False):\n'
        "        module.add_self_loops = False"
    ),
    undo="set add_self_loops = True on the layers",
    result_difference="the graph must already contain the self-loops",
    is_second_choice=True,
    source="https://pytorch-geometric.readthedocs.io/en/latest/generated/torch_geometric.nn.conv.GCNConv.html",
    measurements=(
        SwitchMeasurement("GCNConv", "2.8.1", 1, 0),
        SwitchMeasurement("GATConv", "2.8.1", 1, 0),
        SwitchMeasurement("APPNP", "2.8.1", 1, 0),
    ),
)
_POOL_SIZE = KnownSwitch(
    library="torch_geometric",
    files=("torch_geometric/utils/_scatter.py", "torch_geometric/nn/pool/"),
    search_strings=("index.max()", "batch.max()"),
    title="Pass the number of graphs",
    instruction="pass size=... to the pooling function, which otherwise reads it from the batch",
    source="https://pytorch-geometric.readthedocs.io/en/latest/generated/torch_geometric.nn.pool.global_mean_pool.html",
    measurements=(SwitchMeasurement("global_mean_pool", "2.8.1", 1, 0),),
)
_BEGIN_INDEX = KnownSwitch(
    library="diffusers",
    files=("diffusers/schedulers/",),
    search_strings=("index_for_timestep", "init_step_index"),
    title="Tell the scheduler where it begins",
    instruction="call scheduler.set_begin_index(0) after set_timesteps",
    since="0.27",
    source="https://huggingface.co/docs/diffusers/api/schedulers/dpm_discrete_ancestral",
    measurements=(
        SwitchMeasurement("DPMSolverMultistepScheduler.step", "0.42.1", 2, 0),
        SwitchMeasurement("EulerDiscreteScheduler.step", "0.42.1", 4, 2),
    ),
)
_TRANSFORMERS_CHECKS = KnownSwitch(
    library="transformers",
    files=("transformers/",),
    search_strings=("torch_compilable_check", "_check_tensor_all"),
    title="Turn off transformers' value checks",
    instruction='os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"',
    code='import os\nos.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"',
    undo='os.environ.pop("TRANSFORMERS_DISABLE_TORCH_CHECK")',
    result_difference="wrong inputs are no longer noticed",
    since="5.0",
    source="transformers/utils/import_utils.py",
    measurements=(
        SwitchMeasurement(
            "31 architectures that break, with Dynamo's settings applied first: places", "5.23.0", 36, 27
        ),
    ),
)
_EXPERTS = KnownSwitch(
    library="transformers",
    files=("transformers/",),
    search_strings=("expert", "moe"),
    title="Compute the experts in one batch",
    instruction='model.set_experts_implementation("batched_mm")',
    code='model.set_experts_implementation("batched_mm")',
    undo='call the model\'s set_experts_implementation("eager")',
    since="5.0",
    source="https://huggingface.co/docs/transformers/experts_interface",
    measurements=(SwitchMeasurement("MixtralForCausalLM: places", "5.23.0", 4, 0),),
)
_LAYERDROP = KnownSwitch(
    library="transformers",
    files=("transformers/",),
    search_strings=("layerdrop", "to_drop", "skip_the_layer", "dropout_probability"),
    title="Turn off the random dropping of layers",
    instruction="set layerdrop = 0.0 in the model's configuration",
    code="""for module in model.modules():
    for holder in (module, getattr(module, "config", None)):
        for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
            if isinstance(getattr(holder, name, None), float):
                setattr(holder, name, 0.0)""",
    undo="set the probability again, or create the model again",
    result_difference="layers are no longer dropped in training",
    source="https://huggingface.co/docs/transformers/model_doc/bart",
    measurements=(SwitchMeasurement("BartForCausalLM in training", "5.23.0", 2, 0),),
)
_SPECAUGMENT = KnownSwitch(
    library="transformers",
    files=("transformers/models/",),
    search_strings=("_compute_mask_indices", "_mask_hidden_states"),
    title="Turn off SpecAugment",
    instruction="model.config.apply_spec_augment = False",
    code="model.config.apply_spec_augment = False",
    undo="set apply_spec_augment = True in the model's configuration",
    result_difference="features are no longer masked in training",
    source="https://huggingface.co/docs/transformers/model_doc/wav2vec2",
    measurements=(SwitchMeasurement("Wav2Vec2Model in training, also with layerdrop = 0", "5.23.0", 5, 2),),
)
SWITCHES = (
    _TENSORLY, _GP_CHECKS, _GP_KERNELS, _METRIC_CHECKS, _SELF_LOOPS, _POOL_SIZE, _BEGIN_INDEX, _TRANSFORMERS_CHECKS,
    _EXPERTS, _LAYERDROP, _SPECAUGMENT,
)  # fmt: skip


#: The number of callers that are searched for the strings of a switch.
_MAX_CALLERS = 2


def switches_for(location: CodeLocation, stack: Sequence[CodeLocation]) -> Iterator[KnownSwitch]:
    """Yield the switches that may avoid the break at a location, to which a stack of calls led, outermost first."""
    searched_strings = [
        string.lower()
        for call in (location, *stack[-_MAX_CALLERS:])
        for string in (call.code, call.function)
        if string is not None
    ]
    libraries = {(call.path or "").partition("/")[0] for call in (location, *stack)}
    for switch in SWITCHES:
        is_in_files = location.path is not None and location.path.startswith(switch.files)
        is_matching = not switch.search_strings or any(
            part in string for part in switch.search_strings for string in searched_strings
        )
        if is_in_files and is_matching and switch.library in libraries:
            yield switch


def switch_with_code(code: str) -> KnownSwitch | None:
    """Return the switch that this code sets; ``None`` if there is none in the table."""
    return next((switch for switch in SWITCHES if switch.code == code), None)


def switch_with_title(title: str) -> KnownSwitch | None:
    """Return the switch with this title; ``None`` if there is none in the table."""
    return next((switch for switch in SWITCHES if switch.title == title), None)
