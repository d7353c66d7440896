"""Programs that trigger known PyTorch bugs on a CPU; ``knowledge/known_bugs.toml`` describes the bugs."""

from __future__ import annotations

import collections
import os
import random
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import torch
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import flex_attention
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    #: ``torch.compile`` with a backend, or a function that returns its argument, for the eager result.
    Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]

#: A global that a program changes.
shift = 0


class SineWithBackward(torch.autograd.Function):
    """A sine with a custom gradient of zero, so the usual gradient in a result reveals the bug."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass  # the derivative needs nothing

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        return torch.zeros_like(grad)


class SineWithJvp(torch.autograd.Function):
    """A sine with a custom forward-mode derivative of zero, so the usual one in a result reveals the bug."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass  # the derivative needs nothing

    @staticmethod
    def jvp(_ctx: Any, tangent: Tensor) -> Tensor:
        return torch.zeros_like(tangent)


class AddWithOneGradient(torch.autograd.Function):
    """A sum with a gradient for the second operand only."""

    @staticmethod
    def forward(_ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        result = a.clone()
        result += b
        return result

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad * 3


@runtime_checkable
class HasScale(Protocol):
    """Anything with a scale."""

    scale: float


class Options:
    """An object whose attributes are its arguments."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


class Toggle:
    """An object that alternates between two states."""

    def __init__(self) -> None:
        self.left, self.right = object(), object()
        self.current = self.left


class Pretender:
    """An object that claims to be an ``int``."""

    @property
    def __class__(self) -> type:  # type: ignore[override] # the program has this error
        return int


def issue_193279(compiler: Compiler) -> Any:
    def gradient(x: Tensor) -> Tensor:
        return torch.func.grad(lambda x: SineWithBackward.apply(x).sum())(x)

    return compiler(gradient)(torch.ones(4))


def issue_192985(compiler: Compiler) -> Any:
    def derivative(x: Tensor) -> Tensor:
        return torch.func.jvp(SineWithJvp.apply, (x,), (torch.ones_like(x),))[1]

    return compiler(derivative)(torch.ones(4))


def issue_181146(compiler: Compiler) -> Any:
    x = torch.ones(3, requires_grad=True)
    compiler(lambda x: AddWithOneGradient.apply(x, x).sum())(x).backward()
    return x.grad


def issue_182012(compiler: Compiler) -> Any:
    x = torch.zeros(5, 5, requires_grad=True)
    compiler(lambda x: torch.diagonal_scatter(x, torch.ones(5)).sum())(x).backward()
    return x.grad


def issue_184113(compiler: Compiler) -> Any:
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    compiler(lambda x, y: AddWithOneGradient.apply(x, y).sum())(x, y).backward()
    return y.grad


def issue_179804(compiler: Compiler) -> Any:
    torch.manual_seed(0)
    weight = torch.randn(16, 16, requires_grad=True)

    def product(x: Tensor) -> Tensor:
        with torch.amp.autocast("cpu", enabled=False):
            return x.float() @ weight.T

    with torch.amp.autocast("cpu", dtype=torch.bfloat16):
        result = compiler(product)(torch.randn(4, 16))
    result.pow(2).sum().backward()
    return weight.grad


def issue_139789(compiler: Compiler) -> Any:
    def double_in_place(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return x + y

    call, base = compiler(double_in_place), torch.ones(8)
    call(torch.ones(4), torch.ones(4))
    return call(base[:4], base[2:6])


def issue_198095(compiler: Compiler) -> Any:
    def add_100_in_place(x: Tensor, rest: Tensor) -> Tensor:
        x.add_(100)
        return rest[0]

    base = torch.arange(24.0).reshape(4, 6)
    return compiler(add_100_in_place)(base, base[1:])


def issue_191821(compiler: Compiler) -> Any:
    @torch.compiler.nested_compile_region
    def apply_shift(x: Tensor) -> Tensor:
        return x + shift

    def apply_shift_twice(x: Tensor) -> Tensor:
        global shift  # the program has this error
        for shift in (1, 2):  # noqa: B007 - the region reads the variable
            x = apply_shift(x)
        return x

    return compiler(apply_shift_twice)(torch.ones(1))


def issue_196127(compiler: Compiler) -> Any:
    call = compiler(lambda x, options: x * 2 if isinstance(options, HasScale) else x)
    return [call(torch.ones(1), options) for options in (Options(scale=2.0), Options())]


def issue_196173(compiler: Compiler) -> Any:
    def scale_and_toggle(x: Tensor, toggle: Toggle) -> Tensor:
        is_left = toggle.current is toggle.left
        toggle.current = toggle.right if is_left else toggle.left
        return x * 2 if is_left else x

    call, toggle = compiler(scale_and_toggle), Toggle()
    return [call(torch.ones(1), toggle) for _ in range(2)]


def issue_176851(compiler: Compiler) -> Any:
    class State:
        factor = 1.0

    call = compiler(lambda x: x * State.factor)
    call(torch.ones(1))
    State.factor = 10.0
    return call(torch.ones(1))


def issue_169253(compiler: Compiler) -> Any:
    class Storage:
        items: ClassVar[list[Tensor]] = []

    def store(x: Tensor) -> None:
        Storage.items.append(x)

    compiler(store)(torch.ones(1))
    return len(Storage.items)


def issue_198364(compiler: Compiler) -> Any:
    return compiler(torch.floor_divide)(torch.ones(6, 5).mT, torch.ones(5, 6)).stride()


def issue_198190(compiler: Compiler) -> Any:
    def make_generator(x: Tensor) -> Any:
        def values() -> Any:
            yield x + 1

        return values()

    return hasattr(compiler(make_generator)(torch.ones(1)), "send")


def issue_193932(compiler: Compiler) -> Any:
    class Image(torch.Tensor):
        pass

    return compiler(lambda x: x @ x.t())(torch.ones(4, 4).as_subclass(Image)).as_subclass(torch.Tensor)


def issue_174050(compiler: Compiler) -> Any:
    pretender = Pretender()
    return compiler(lambda x: x + 1 if isinstance(pretender, int) else x)(torch.ones(1))


def issue_181247(compiler: Compiler) -> Any:
    del compiler  # the program runs in a separate process
    program = "import torch; torch.compile(lambda x: x + 1, fullgraph=True, backend='eager')(torch.ones(1))"
    environment = os.environ | {"TORCH_COMPILE_DISABLE": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True)


def issue_197889(compiler: Compiler) -> list[float]:
    """Use a float as a factor and as a parameter of a loss, with three values."""
    loss = compiler(lambda x, delta: torch.nn.functional.huber_loss(x * delta, torch.zeros(4), delta=delta + 0.1))
    return [loss(torch.arange(4.0), delta).item() for delta in (0.5, 1.0, 2.0)]


def issue_198131(compiler: Compiler) -> Any:
    def copy_rows(target: Tensor, source: Tensor) -> Tensor:
        target[0:, :] = source[0:, :]
        source.add_(1)
        return source

    target, source = torch.zeros(3, 4), torch.arange(12.0).view(3, 4)
    compiler(copy_rows)(target, source)
    return target


def issue_198270(compiler: Compiler) -> Any:
    def double_and_mirror(x: Tensor) -> Tensor:
        x.index_put_((torch.arange(x.size(0)),), x * 2.0)
        x.add_(x.flip(0))
        return x

    return compiler(double_and_mirror)(torch.arange(32.0).view(4, 8))


def issue_183082(compiler: Compiler) -> Any:
    torch.manual_seed(0)
    return compiler(lambda x: x.sin().t().argmax())(torch.randn(5, 7))


def issue_189787(compiler: Compiler) -> Any:
    torch.manual_seed(0)
    return compiler(lambda x: torch.floor(torch.softmax(x, -1).sum(-1)))(torch.randn(200, 64))


def issue_195214(compiler: Compiler) -> Any:
    torch.manual_seed(0)

    def count_of_maxima(x: Tensor) -> Tensor:
        scaled = x / 1.7
        return (scaled == scaled.amax(-1, keepdim=True)).sum(-1)

    return compiler(count_of_maxima)(torch.randn(64, 32, dtype=torch.bfloat16))


def issue_119162(compiler: Compiler) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        return compiler(lambda: torch.randn(0))().dtype
    finally:
        torch.set_default_dtype(torch.float32)


def issue_141865(compiler: Compiler) -> Any:
    try:
        return compiler(torch.nn.Linear(1, 1))(torch.ones(1, 1, dtype=torch.float16)).dtype
    except RuntimeError as error:
        return type(error)


def issue_157612(compiler: Compiler) -> Any:
    return _attention(compiler, [192], lambda layers, x: layers[0](x).chunk(3, -1))


def flex_attention_of_three_projections(compiler: Compiler) -> Any:
    return _attention(compiler, [64] * 3, lambda layers, x: [layer(x) for layer in layers])


def _attention(compiler: Compiler, widths: list[int], project: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.Linear(64, width) for width in widths)

    def attend(x: Tensor) -> Any:
        return flex_attention(*(part.view(2, 128, 4, 16).transpose(1, 2) for part in project(layers, x)))

    with torch.no_grad():
        return compiler(attend)(torch.randn(2, 128, 64))


def issue_136662(compiler: Compiler) -> Any:
    def sum_first_column(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for _ in range(2):
            y[:, 0] += x[:, 2].abs()
        return y.sum()

    return compiler(torch.func.grad(sum_first_column))(torch.ones(2, 3))


def issue_138908(compiler: Compiler) -> Any:
    def double_in_place(index: Tensor, y: Tensor) -> Tensor:
        index = index + 10
        y[index] += y[index]
        return y

    return compiler(double_in_place)(torch.full((1, 2), -10), torch.ones(2, 32))


def issue_189895(compiler: Compiler) -> Any:
    def lengths(mask: Tensor) -> Tensor:
        return torch.nn.functional.pad(mask.sum(dim=-1, dtype=torch.int32), (1, 0))

    return compiler(lengths)(torch.ones(1, 16384, dtype=torch.bool))


def issue_191571(compiler: Compiler) -> Any:
    def scatter_and_gather(x: Tensor, index: Tensor) -> Tensor:
        total = torch.zeros(1, x.shape[1])
        total.scatter_add_(0, index.unsqueeze(-1).expand(-1, x.shape[1]), x)
        return torch.index_select(total, 0, index)

    return compiler(scatter_and_gather)(torch.ones(8, 4), torch.zeros(8, dtype=torch.long))


def issue_193183(compiler: Compiler) -> Any:
    def interleave(x: Tensor) -> Tensor:
        result = x[0].clone()
        for part in (1, 2):
            result[..., part:30:3] = x[part, ..., part:30:3]
        return result

    return compiler(interleave)(torch.arange(3.0 * 16 * 64).view(3, 16, 64))


def issue_193811(compiler: Compiler) -> Any:
    def enlarge(x: Tensor) -> Tensor:
        return torch.nn.functional.interpolate(x, size=[4, 4], mode="bilinear")

    try:
        return compiler(enlarge)(torch.ones(1, 1, 2, 2, dtype=torch.int32)).dtype
    except NotImplementedError as error:
        return type(error)


def issue_93262(compiler: Compiler) -> Any:
    def reduce_size(x: Tensor) -> Tensor:
        return torch.nn.functional.interpolate(x, size=[1, 1], mode="bilinear")

    return compiler(reduce_size)(torch.arange(140.0).view(1, 2, 7, 10))


def issue_100970(compiler: Compiler) -> Any:
    weight, mean, variance = torch.ones(3, 1, 1, 1), torch.zeros(3), torch.ones(3)
    return compiler(lambda x: torch.nn.functional.batch_norm(x, mean, variance, weight))(torch.ones(1, 3, 2, 2)).shape


def issue_174891(compiler: Compiler) -> Any:
    return compiler(lambda x: x + torch.ones(2, 1, dtype=torch.complex64))(torch.zeros(2, 2, dtype=torch.complex64))


def issue_179807(compiler: Compiler) -> Any:
    window = torch.hann_window(320)

    def spectrum(x: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(x, (0, 318))
        return padded.stft(512, 160, 320, window, pad_mode="constant", return_complex=True)

    return compiler(spectrum)(torch.ones(2, 2))


def issue_130362(compiler: Compiler) -> Any:
    return compiler(lambda x: torch.vmap(torch.mul, in_dims=(0, None))(x, 5))(torch.ones(3))


def issue_150265(compiler: Compiler) -> Any:
    class OwnParameter(torch.nn.Parameter):
        def __new__(cls, data: Tensor) -> Any:
            return torch.Tensor._make_subclass(cls, data)

    own = OwnParameter(torch.ones(2))
    with torch.no_grad():
        return compiler(lambda: (3 * own).sum().item())()


def issue_194166(compiler: Compiler) -> Any:
    norm = torch.nn.BatchNorm1d(4)

    def normalize_rows(x: Tensor, mask: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        result[mask] = norm(x[mask])
        return result

    torch.manual_seed(0)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        return compiler(normalize_rows)(torch.randn(6, 4), torch.arange(6) > 1)


def issue_145445(compiler: Compiler) -> list[float]:
    generator = random.Random(3)  # noqa: S311 - not for secrets

    def scale_randomly(x: Tensor) -> Tensor:
        return x * generator.random()

    call = compiler(scale_randomly)
    return [call(torch.ones(1)).item() for _ in range(3)]


def issue_139603(compiler: Compiler) -> Tensor:
    def add_in_fork(x: Tensor) -> Tensor:
        devices: set[int] = set()
        with torch.random.fork_rng(devices=devices):  # type: ignore[arg-type] # users pass such values
            return x + 1

    return compiler(add_in_fork)(torch.ones(1))


class StoresDeviation(torch.nn.Module):
    """A layer that stores a value with its gradient, and then changes the tensor from which it was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        x = self.layer(x)
        self.deviation = x.std()
        x[rows] = x[rows] * 2
        return x


def issue_132597(compiler: Compiler) -> Tensor:
    torch.manual_seed(0)
    module = StoresDeviation()
    compiler(module)(torch.ones(4, 8), torch.tensor([1])).square().sum().backward()
    gradient = module.layer.weight.grad
    assert gradient is not None
    return gradient


def issue_185497(compiler: Compiler) -> Tensor:
    def resize_and_normalize(x: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        part = torch.nn.functional.interpolate(x[:, :64, :64].unsqueeze(0), size=(32, 32), mode="bilinear")
        x.sub_(mean).div_(scale)
        return part, x

    torch.manual_seed(0)
    image = torch.rand(3, 128, 128, requires_grad=True)
    mean, scale = (torch.rand(3, 1, 1, requires_grad=True) for _ in range(2))
    part, whole = compiler(resize_and_normalize)((image * 1.0)[:, :128, :128], mean, scale)
    (part.sum() + whole.sum()).backward()
    assert image.grad is not None
    return image.grad


def issue_188225(compiler: Compiler) -> Tensor:
    def apply_shift(x: Tensor) -> Tensor:
        return x + torch.arccosh(torch.log2(torch.full((2, 2), 0.5))).softmax(-1).nan_to_num(1.0)

    return compiler(apply_shift)(torch.ones(2, 2))


def issue_194706(compiler: Compiler) -> Tensor:
    def products(x: Tensor) -> Tensor:
        return ((x.prod() + x) @ (x.sum() + x) @ (x.sum() + x)).sum()

    return compiler(torch.func.jacfwd(products))((torch.arange(1, 10) / 10).half().reshape(3, 3))


def issue_189830(compiler: Compiler) -> str:
    def progress(x: Tensor, step: int) -> str:
        return f"step {step}: {x.sum().item():.3f}"

    compiled = compiler(progress)
    return "\n".join(compiled(torch.ones(3), step) for step in range(4))


def formatted_number(compiler: Compiler) -> str:
    def scale_and_format(x: Tensor, rate: float) -> tuple[Tensor, str]:
        return x * rate, f"{rate:.3f}"

    compiled = compiler(scale_and_format)
    return "\n".join(compiled(torch.ones(()), rate)[1] for rate in (0.5, 0.25, 0.125))


class Doubled:
    """An object whose property stores twice the value, and returns one more."""

    def __init__(self) -> None:
        self.stored = 0.0

    @property
    def value(self) -> float:
        return self.stored + 1

    @value.setter
    def value(self, value: float) -> None:
        self.stored = value * 2


def issue_176599(compiler: Compiler) -> Tensor:
    def set_and_read(x: Tensor) -> Tensor:
        doubled = Doubled()
        doubled.value = 5
        return x + doubled.value

    return compiler(set_and_read)(torch.zeros(1))


class PrintingMode(TorchFunctionMode):
    """A mode whose `print` breaks the graph at each operation."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        print(end="")
        return func(*args, **(kwargs or {}))


def mode_with_a_break(compiler: Compiler) -> Tensor:
    def sine_and_cosine(x: Tensor) -> Tensor:
        with PrintingMode():
            return x.sin().cos()

    return compiler(sine_and_cosine)(torch.ones(3))


def sizes_as_tensor(compiler: Compiler) -> Tensor:
    return compiler(lambda x: torch.stack([torch._shape_as_tensor(x)]))(torch.ones(3, 4))  # noqa: SLF001


def cumulative_sum_of_scaled_probabilities(compiler: Compiler) -> Tensor:
    """Return the gradient of a cumulative sum, whose backward pass flips the gradient before that of softmax reads it."""
    torch.manual_seed(0)
    x = torch.randn(4, 8, requires_grad=True)
    weights = torch.rand(4, 8)
    result = compiler(lambda x: (x.softmax(-1) * 2).cumsum(-1))(x)
    return torch.autograd.grad(result, x, weights)[0]


def issue_174386(compiler: Compiler) -> Any:
    """Return whether deterministic algorithms fill uninitialized memory."""
    torch.use_deterministic_algorithms(True)
    try:
        return compiler(lambda x: torch.empty_like(x * 2))(torch.ones(4)).isnan().all().item()
    finally:
        torch.use_deterministic_algorithms(False)


def scan_of_a_recurrence(compiler: Compiler) -> Any:
    def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return state * 0.5 + row, state + row

    return compiler(lambda start, rows: scan(step, start, rows, dim=0)[1])(torch.zeros(3), torch.ones(5, 3))


def aotinductor_with_another_size(compiler: Compiler) -> Any:
    class Total(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum()

    model, x = Total(), torch.ones(20, 4)
    if compiler(model) is model:
        return model(x)
    with tempfile.TemporaryDirectory() as folder:
        exported = torch.export.export(model, (torch.ones(8, 4),))
        package = torch._inductor.aoti_compile_and_package(exported, package_path=f"{folder}/total.pt2")
        return torch._inductor.aoti_load_package(package)(x)


def full_deque(compiler: Compiler) -> Tensor:
    """Return the average of the last three values after a fourth value was added."""
    window = collections.deque(torch.ones(3).unbind(), maxlen=3)

    def average(x: Tensor) -> Tensor:
        window.append(x)
        return torch.stack(list(window)).mean()

    return compiler(average)(torch.tensor(4.0))


def operator_without_fake_kernel_in_try(compiler: Compiler) -> Tensor:
    @torch.library.custom_op("known_bugs::without_fake_kernel", mutates_args=())
    def without_fake_kernel(x: torch.Tensor) -> torch.Tensor:
        return x + 10

    def with_fallback(x: Tensor) -> Tensor:
        try:
            return without_fake_kernel(x)
        except Exception:  # noqa: BLE001 - programs that fall back to other code do the same
            return x * 0

    return compiler(with_fallback)(torch.ones(3))


#: The programs of bugs without an issue.
_WITHOUT_ISSUE = (
    "flex_attention_of_three_projections",
    "cumulative_sum_of_scaled_probabilities",
    "formatted_number",
    "scan_of_a_recurrence",
    "aotinductor_with_another_size",
    "full_deque",
    "operator_without_fake_kernel_in_try",
    "mode_with_a_break",
    "sizes_as_tensor",
)
#: The backend that a program needs to trigger its bug, if it is not "inductor".
BACKENDS = {
    **dict.fromkeys(
        (
            mode_with_a_break,
            issue_176599,
            sizes_as_tensor,
            issue_193279,
            issue_192985,
            issue_176851,
            issue_169253,
            issue_198190,
            issue_174050,
            issue_196127,
            issue_196173,
            issue_181247,
            issue_150265,
            issue_145445,
            issue_139603,
            issue_189830,
            formatted_number,
            full_deque,
            operator_without_fake_kernel_in_try,
        ),
        "eager",
    ),
    **dict.fromkeys(
        (
            issue_181146,
            issue_184113,
            issue_179804,
            issue_139789,
            issue_198095,
            issue_191821,
            issue_193811,
            issue_132597,
        ),
        "aot_eager",
    ),
}
PROGRAMS: dict[str, Callable[[Compiler], Any]] = {
    name.removeprefix("issue_"): value
    for name, value in dict(globals()).items()
    if name.startswith("issue_") or name in _WITHOUT_ISSUE
}


def outcome(name: str) -> str:
    """Run a program eagerly and compiled, and return "right", "wrong result" or "error"."""
    program = PROGRAMS[name]
    backend = BACKENDS.get(program, "inductor")
    torch.compiler.reset()
    try:
        result = program(lambda function: torch.compile(function, backend=backend))
    except Exception:  # noqa: BLE001 - any error is an outcome
        return "error"
    return "right" if _is_equal(result, program(lambda function: function)) else "wrong result"


def _is_equal(result: Any, expected: Any) -> bool:
    if not isinstance(expected, torch.Tensor | list):
        return bool(result == expected)
    try:
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    except AssertionError:
        return False
    return True
