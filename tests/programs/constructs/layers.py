import torch
import torch.nn.functional as F
from torch import nn


# %% a layer without parameters made inside: `nn.ReLU()(x)`, `nn.Softmax(-1)(x)`
# message: call_function UserDefinedClassVariable(nn.ReLU)
def f(x):
    return nn.ReLU()(x) + nn.Softmax(-1)(x)
# %% `nn.LazyLinear`
# message: LazyModule, UninitializedParameter
f = nn.LazyLinear(3)
# %% `nn.LSTM`, `nn.GRU`
# message: TorchDynamo purposely graph breaks on RNN, GRU, LSTMs
# do: Compile the code before and after the layer, or set `torch._dynamo.config.allow_rnn = True` (which fails for [an LSTM that trains on a CPU](causes/gb0014.md)).
rnn, gru = nn.LSTM(4, 4), nn.GRU(4, 4)
def f(x):
    return rnn(x.view(1, 4))[0] + gru(x.view(1, 4))[0]
# %% `nn.GRUCell`, `nn.LSTMCell`
# message: TorchDynamo purposely graph breaks on RNN, GRU, LSTMs
cell, other = nn.GRUCell(4, 4), nn.LSTMCell(4, 4)
def f(x):
    return cell(x.view(1, 4)) + other(x.view(1, 4))[0]
# %% `nn.utils.rnn.pack_padded_sequence(...)`
# message: nn.utils.rnn.pack_padded_sequence, PackedSequence
# do: Do not pack: pad, and use a mask.
from torch.nn.utils import rnn as utilities
def f(x):
    return utilities.pack_padded_sequence(x.view(4, 1, 1), torch.tensor([4])).data
# %% `nn.utils.rnn.pad_sequence([x, y])`
# message: inline in skipfiles: pad_sequence
from torch.nn.utils import rnn as utilities
def f(x):
    return utilities.pad_sequence([x, x[:2]])
# %% `nn.MultiheadAttention`, `nn.TransformerEncoderLayer`
# message: nn.MultiheadAttention fast path, torch._transformer_encoder_layer_fwd
layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
attention = nn.MultiheadAttention(4, 2, batch_first=True)
def f(x):
    y = x.view(1, 1, 4)
    return layer(y) + attention(y, y, y)[0]
# %% `nn.BatchNorm1d` in training, `nn.LayerNorm`, `nn.GroupNorm`
# message: BatchNorm num_batches_tracked
norms = nn.BatchNorm1d(1), nn.LayerNorm(1), nn.GroupNorm(1, 1)
def f(x):
    y = x.view(4, 1)
    for norm in norms:
        y = norm(y)
    return y
# %% `nn.Conv2d`, `nn.ConvTranspose2d`, `nn.MaxPool2d`, `nn.AdaptiveAvgPool2d`, `nn.Upsample`
# message: call_function conv2d
net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ConvTranspose2d(2, 1, 2), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Upsample(scale_factor=2))
def f(x):
    return net(x.view(1, 1, 2, 2))
# %% `F.cross_entropy`, `mse_loss`, `binary_cross_entropy`, `kl_div`, `cosine_similarity`, `triplet_margin_loss`
# message: call_function cross_entropy
def f(x):
    y = x.view(2, 2)
    return F.cross_entropy(y, torch.tensor([0, 1])) + F.mse_loss(x, x * 2) + F.binary_cross_entropy(x / 4, x / 4) + F.kl_div(y, y) + F.cosine_similarity(y, y).sum() + F.triplet_margin_loss(y, y, y)
# %% `F.gaussian_nll_loss`
# message: Data-dependent branching
# do: Use `var = var.clamp(min=1e-6)`, `0.5 * (var.log() + (x - y) ** 2 / var).mean()`.
def f(x):
    return F.gaussian_nll_loss(x, x * 2, x)
# %% `F.ctc_loss`
# message: aten._use_cudnn_ctc_loss, data dependent operator
# do: Compute the loss after the call.
def f(x):
    return F.ctc_loss(x.view(4, 1, 1).expand(4, 1, 3).log_softmax(2), torch.ones(1, 2, dtype=torch.long), [4], [2])
# %% `nn.utils.parametrizations.weight_norm`
# message: parametrize, _WeightNorm
f = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
# %% `nn.utils.weight_norm` (the older function)
# message: nn.utils.weight_norm, deepcopy graph leaves, setattr(NNModuleVariable)
f = nn.utils.weight_norm(nn.Linear(4, 4))
# %% `nn.utils.parametrizations.spectral_norm`
# message: nn.utils.spectral_norm
f = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
# %% `nn.utils.prune.l1_unstructured(...)`
# message: torch.nn.utils.prune, forward_pre_hook
from torch.nn.utils import prune
f = prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=2)
# %% `torch.ao.quantization.FakeQuantize()`
# message: FakeQuantize, MovingAverageMinMaxObserver
# do: Use `torch.fake_quantize_per_tensor_affine`.
f = torch.ao.quantization.FakeQuantize()
