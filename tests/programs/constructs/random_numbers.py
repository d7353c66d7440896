import random

import torch
import torch.nn.functional as F
from torch.distributions import Bernoulli, Categorical, Normal


# %% `random.randint(1, 3)`, `random.uniform(0, 1)`, `random.randrange(5)`
# message: call_function random.randint
# message: torch.compile does not work for layer drop
# do: Each call draws a new number, as in eager code; a branch on the number compiles each side.
def f(x):
    return x * random.randint(1, 3) + random.uniform(0, 1) + random.randrange(5)
# %% `random.random()`
# message: call_function random.random
# do: Use `random.uniform(0, 1)`, which is traced and draws the same number, or `torch.rand`.
def f(x):
    return x * random.random()
# %% `random.choice(values)`
# message: inline in skipfiles: choice
# do: Draw before the call: an index from `random.randint` breaks as well, if the code indexes a list with the number.
def f(x):
    return x * random.choice([1, 2])
# %% `random.shuffle(values)`, `random.sample(values, 2)`
# message: inline in skipfiles: shuffle
# do: Shuffle or sample before the call, or use `torch.randperm`: 2.15 gives the same order on every call.
def f(x):
    values = [1, 2, 3]
    random.shuffle(values)
    return x * values[0] + random.sample(values, 2)[0]
# %% `random.gauss(0, 1)`
# message: inline in skipfiles: gauss
# do: Draw before the call, or use `torch.randn`.
def f(x):
    return x * random.gauss(0, 1)
# %% `random.seed(0)`
# message: inline in skipfiles: seed
# do: Set the seed before the call.
def f(x):
    random.seed(0)
    return x * random.uniform(0, 1)
# %% `rng = random.Random(3)`; `rng.randint(1, 99)`
# message: call_function UserDefinedClassVariable(random.Random), random.Random object
# do: Draw before the call: [a bug](known_bugs.md#wrong-results), issue 145445, gives the same number on every call before 2.15.
RNG = random.Random(3)
def f(x):
    return x * RNG.randint(1, 99)
# %% `torch.rand`, `randn`, `randint`, `randperm`, `rand_like`, `bernoulli`, `multinomial`, `normal`
# message: call_function torch.randn
def f(x):
    y = torch.rand(4) + torch.randn_like(x) + torch.randint(0, 3, (4,)) + torch.randperm(4)
    return y + torch.bernoulli(x / 4) + torch.multinomial(x, 2).sum() + torch.normal(0.0, 1.0, (4,))
# %% `x.normal_()`, `x.uniform_()`, `x.bernoulli_()`, `x.exponential_()`
# message: call_method TensorVariable() uniform_
def f(x):
    return x.clone().normal_() + x.clone().uniform_() + x.clone().bernoulli_(0.5) + x.clone().exponential_()
# %% `x.random_(0, 5)`
# message: call_method TensorVariable() random_
# do: Use `torch.randint_like(x, 0, 5)`.
def f(x):
    return x.clone().random_(0, 5)
# %% `F.dropout(x, 0.5)`, `nn.Dropout` in training
# message: call_function torch.nn.functional.dropout
def f(x):
    return F.dropout(x, 0.5)
# %% `torch.randn(4, generator=generator)`
# message: call_function torch.randn generator, torch.Generator as an argument
# do: Draw before the call, or `torch.manual_seed` and no generator.
GENERATOR = torch.Generator().manual_seed(0)
def f(x):
    return x + torch.randn(4, generator=GENERATOR)
# %% `torch.Generator().manual_seed(0)` made inside
# message: call_function UserDefinedClassVariable(torch.Generator)
# do: Make the generator before the call.
def f(x):
    generator = torch.Generator()
    generator.manual_seed(0)
    return x + 1
# %% `generator.initial_seed()`, `generator.get_state()`
# message: call_method UserDefinedObjectVariable(torch._C.Generator) get_state
# do: Read the seed or the state before the call.
GENERATOR = torch.Generator().manual_seed(0)
def f(x):
    return x + GENERATOR.initial_seed() + len(GENERATOR.get_state())
# %% `torch.manual_seed(0)` inside
# message: inline in skipfiles: torch.manual_seed
# do: Set the seed before the call.
def f(x):
    torch.manual_seed(0)
    return x + torch.rand(4)
# %% `torch.get_rng_state()`, `torch.set_rng_state(...)`
# message: torch.get_rng_state, torch.random
# do: Save and restore the state around the call.
def f(x):
    state = torch.get_rng_state()
    y = torch.rand(4)
    torch.set_rng_state(state)
    return x + y
# %% `with torch.random.fork_rng():`
# message: Unsupported context manager, fork_rng
# do: Open `fork_rng` around the call.
def f(x):
    with torch.random.fork_rng(devices=[]):
        return x + torch.rand(4)
# %% `torch.initial_seed()`
# message: inline in skipfiles: torch.initial_seed
# do: Read the seed before the call.
def f(x):
    return x + 0 * torch.initial_seed()
# %% `Normal(x, 1).rsample()`, `log_prob`, `entropy`, `Categorical(logits=x).sample()`
# message: call_method SizeVariable() numel [] {}
# message: inline in skipfiles: torch.distributions
def f(x):
    normal, categorical = Normal(x, 1.0), Categorical(logits=x)
    return normal.rsample() + normal.log_prob(x) + normal.entropy() + categorical.sample() + categorical.log_prob(torch.tensor(1))
# %% `Bernoulli`, `Beta`, `Gamma`, `Dirichlet`, `MultivariateNormal`
# message: inline in skipfiles: torch.distributions
from torch.distributions import Beta, Dirichlet, Gamma, MultivariateNormal
def f(x):
    y = Bernoulli(x / 4).sample() + Gamma(x, x).rsample() + Dirichlet(x).rsample() + Beta(x, x).rsample()
    return y + MultivariateNormal(x, torch.eye(4)).rsample()
# %% `torch.distributions.kl_divergence(p, q)`
# message: call_function kl_divergence, _dispatch_kl
# do: The first call of `kl_divergence` breaks, if the function was never called uncompiled. For two `Normal`, compute `torch.log(s2 / s1) + (s1**2 + (m1 - m2) ** 2) / (2 * s2**2) - 0.5`.
def f(x):
    return torch.distributions.kl_divergence(Normal(x, 1.0), Normal(0.0, 1.0))
# %% `nn.init.kaiming_normal_`, `xavier_uniform_`, `orthogonal_`, `constant_`
# message: inline in skipfiles: torch.nn.init
def f(x):
    y = torch.nn.init.xavier_uniform_(torch.nn.init.kaiming_normal_(x.view(2, 2).clone()))
    return torch.nn.init.orthogonal_(y) + torch.nn.init.constant_(y, 2)
# %% `nn.init.trunc_normal_`
# message: inline in skipfiles: torch.nn.init, aten._local_scalar_dense
# do: Initialize the tensor before the call.
def f(x):
    return torch.nn.init.trunc_normal_(x.clone())
