"""Questions that people ask in public are answered where a reader sees the answer: at the beginning of a section."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
import snowballstemmer  # type: ignore[import-untyped] # the package ships no types

from jupyter_graphbreak.knowledge.causes import CAUSES
from notebooks import cause_pages, constructs, known_bugs

#: A cell whose code is folded and whose output is a table, each row of which comes from a line of code with backticks.
_FOLDED_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n:tags: \[hide-input\]\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
#: A folded entry: a reader sees only its summary.
_FOLDED_ENTRY = re.compile(
    r"^<details[^\n]*\n<summary>\n\n(.*?)\n\n</summary>\n.*?^</details>\n+", re.MULTILINE | re.DOTALL
)
PAGES = Path(cause_pages.__file__).parent
#: The number of lines of a section that fit on one screen.
SCREEN_LINES = 40

#: For each question: the question, the page and section that answer it, and words of the answer.
QUESTIONS = """\
Where does my model break? | quickstart#explain | the verdict
Why does TORCH_LOGS print the same graph break several times? | reading#at-the-side | still one expression
torch._dynamo.explain says graph_break_count -1 | logs#torch-dynamo-explain-counts-fewer-breaks | graphs minus one
counters graph_break is empty, is there no break? | logs#counters-of-zero-prove-nothing | nothing was compiled
How do I get rid of the break of .item()? | causes/gb0124 | keep the value a tensor
x[mask] Dynamic shape operator | causes/gb0036 | torch.where
nonzero in a detector | causes/gb0036#nonzero-and-torch-where-mask | Keep a fixed number
print in forward | causes/gb0059 | after the call
logger.info breaks the graph | causes/gb0291 | log before or after the call
if loss.isnan() Data-dependent branching | causes/gb0170 | torch.where
numpy random in the model | causes/gb0033#numpy-random | before the call
Could not guard on data-dependent expression u0 | causes/gb0124 | torch._check
pybind flash_attn function breaks | escape_hatches#custom-operators-one-opaque-operation | GB0007
loss.backward() inside torch.compile | causes/gb0123 | forward pass
return the loss after backward | causes/gb4927 | without its history
register_hook on an intermediate tensor | causes/gb0029 | apply
nn.Parameter created in forward | causes/gb0264 | __init__
requires_grad_() in compiled code | causes/gb0125 | after the compiled function returns
types.SimpleNamespace breaks | causes/gb0147 | dict
percent formatting of a tensor | causes/gb0033 | f-string
LSTM breaks the graph | causes/gb0014 | compile the code around the recurrent module
copy.deepcopy in forward | causes/gb4198 | .detach().clone()
break in a for loop, nothing is compiled | skipped#a-break-in-a-loop | into a function
break in a with block | skipped#a-break-in-a-with-block | Outside the block
a break on one input, then all is eager | skipped#remembered-skips-an-earlier-call-a-mode | Dynamo remembers a skip
a FLOP counter, and nothing is compiled | skipped#remembered-skips-an-earlier-call-a-mode | uncompiled function
generator function is not compiled | causes/gb0003 | iterates over the generator
does einops break? does an assert break? does vmap? | common_breaks#looks-suspicious-but-does-not-break | traced into one graph
fullgraph=True raises Unsupported | errors#unsupported-a-break-where-none-is-allowed | capture
is fullgraph=True an error at every break? | fullgraph#5-prove-the-result-and-keep-it | are captured
disable, allow_in_graph, nonstrict_trace, custom_op: which? | escape_hatches | Which one
allow breaks here and forbid them there | error_on_graph_break | error_on_graph_break(False)
fullgraph or strict regions? | error_on_graph_break#fullgraph-or-error-on-graph-break | promises one graph
item() in a strict region | error_on_graph_break#fullgraph-or-error-on-graph-break | a later use of the value
what is torch_dynamo_resume_in_f_at_12? | resume | rest of the function into
recompile limit (8) reached, cache_size_limit | recompiles#the-limit-recompile-limit-is-reached | ran eagerly
recompiles for every batch size | recompiles#declare-up-front-what-varies-dynamic-true-mark-dynamic | the others stay fixed
the last batch of the epoch is smaller | recompiles#the-last-batch-is-smaller | drop_last
unfrozen layers get no gradient in torch 2.9 | training#what-breaks-in-training-code | silently get none
x.chunk(4) compiles for each length | recompiles#the-model-still-compiles-for-each-length | a number of pieces
CosineAnnealingWarmRestarts with a tensor | recompiles#a-learning-rate-that-changes | in 2.13, so do
Failed to handle graph break gracefully | skipped#a-break-elsewhere-that-skips-the-function | falling back to eager
Encountered graph break that we cannot resume from | skipped#a-break-elsewhere-that-skips-the-function | last assignment to an attribute
an RNN makes the whole function eager | skipped#a-break-elsewhere-that-skips-the-function | LSTM, GRU
Attempted to call function marked as skipped | messages#stances-limits-fullgraph-true | does not trace this function
Hard failure due to fullgraph=True | messages#stances-limits-fullgraph-true | too many variants
force Dynamo to trace a skipped function | escape_hatches | dont_skip_tracing
the recompile limit with error_on_graph_break | error_on_graph_break#fullgraph-or-error-on-graph-break | a ninth variant
Trainer recompiles for the smaller last batch | recompiles#the-last-batch-is-smaller | dataloader_drop_last
Trainer last batch | libraries#transformers | dataloader_drop_last
crop an image by the coordinates of a box | libraries#detectors | box.tolist()
int(box[2]) breaks, img[b[1]:b[3]] | causes/gb0124#x-n-with-a-tensor-as-n | the whole function runs eagerly
is the eager side of my benchmark timed fairly? | cost#a-stopwatch-that-can-be-trusted | Time the original
recompiles with a learning rate scheduler | recompiles#a-learning-rate-that-changes | tensor
recompiles every step because of a counter | causes/recompile-global | outside of the compiled function
a list that grows recompiles | causes/recompile-growing-list | append it outside
batch of size 1 recompiles with dynamic=True | causes/recompile-size-one | mark_unbacked
square images recompile for another aspect ratio | causes/recompile-equal-sizes | use_duck_shape
model.eval() then train() recompiles | causes/recompile-training | one recompile is right
many instances of a module hit the limit | recompiles#instances-share-one-count | isolate_recompiles
mark_dynamic ConstraintViolationError | recompiles#declare-up-front-what-varies-dynamic-true-mark-dynamic | specialized
compiled model slower than eager | cost#slower-than-eager-how-to-read-the-figures | too small for the cost
which mode: reduce-overhead or max-autotune? | cost#which-mode | one token, a small batch
after how many calls does it pay? | cost#after-how-many-calls-has-compiling-paid | compile time /
how to benchmark a compiled model | cost#a-stopwatch-that-can-be-trusted | warm up
Torch-Compiled Region in the profiler | cost#in-a-profile | frame 1, compilation 0
guard overhead | cost#guards-that-cost-too-much | skip_guard_on_all_nn_modules_unsafe
skipping cudagraphs due to mutated inputs | gpu#skipping-cudagraphs-the-reasons | Return the new value
tensor output of CUDAGraphs has been overwritten | gpu#tensor-output-overwritten-by-a-subsequent-run | .clone()
TensorFloat32 tensor cores not enabled | messages_warnings#precision-and-the-gpu | set_float32_matmul_precision
mix of the legacy and new APIs: TF32 | messages_warnings#precision-and-the-gpu | set_float32_matmul_precision
Please use the new API settings to control TF32 | messages_warnings#precision-and-the-gpu | reads an old setting
The CUDA Graph is empty | messages_warnings#kernels-autotuning | computes nothing
Node slice_948 was invalid, but is output | messages_training#backward-passes-inference-mode | set the dropout to 0
RTX 5090: is not a recognized processor | in_a_notebook#the-gpu-is-too-new-too-old-or-not-from-nvidia | Triton 3.3
LNK1104: cannot open file python312.lib | in_a_notebook#a-compiler-on-windows | include
InductorError: CalledProcessError: Command gcc | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | the reason is above it
ptxas-blackwell fatal: sm_110a on a Jetson | in_a_notebook#the-gpu-is-too-new-too-old-or-not-from-nvidia | newer than the first 3.6
an Ascend NPU, a TPU, Gaudi | in_a_notebook#the-gpu-is-too-new-too-old-or-not-from-nvidia | get_npu_backend
vLLM: Engine core initialization failed | libraries#vllm-sglang | first exception
DynamicCache object has no attribute key_cache | libraries#transformers | cache.layers[i].keys
SGLang: garbled output with --enable-torch-compile | libraries#vllm-sglang | leave the option out
ModernBERT fails although torch_compile=False | libraries#i-never-called-torch-compile | reference_compile
I do not compile, why an error of torch._dynamo? | libraries#i-never-called-torch-compile | TORCHDYNAMO_DISABLE=1
vLLM: torch.compile is turned on, but the model does not support it | libraries#vllm-sglang | so it runs uncompiled
Guard failed on the same frame it was created | messages#while-dynamo-traces | offloading
cannot determine truth value of Relational | messages#sizes-and-numbers | leave out
Cannot copy between CPU and CUDA tensors during capture | messages_kernels#cuda-graphs | is compiled there
type fp8e4nv not supported in this architecture | messages_kernels#triton-and-the-gpu | float8_e5m2
cannot pickle 'ConfigModuleInstance' | in_a_notebook#torch-save-and-pickle-of-a-compiled-model-or-function | Spark
PY_SSIZE_T_CLEAN macro must be defined | in_a_notebook#triton-its-version-its-files | .triton/cache
UnicodeDecodeError on Windows | in_a_notebook#a-compiler-on-windows | English language pack
torch.cond: Pred is a Python constant | messages_warnings#breaks-and-recompiles | Pass a tensor
TraceError in prepare_fx | messages#keras-torchscript-fx | cannot follow an `if`
CUDA_HOME not set; using Triton's bundled libdevice | messages_warnings#precision-and-the-gpu | in the last digits
torch.jit: variable number of arguments (PyG) | messages#keras-torchscript-fx | supports less of Python
complex operators warning | messages_warnings#precision-and-the-gpu | real and imaginary
first call takes minutes | compile_time#layers-that-repeat-compile-one-instead-of-all | once for all of them
where is the cache and can I keep it? | compile_time#kept-on-disk-the-second-start | TORCHINDUCTOR_CACHE_DIR
may ranks share the cache, may I delete it? | compile_time#kept-on-disk-the-second-start | several ranks
second start still slow, autograd cache bypass | compile_time#a-cache-that-does-not-work | does not cache them
save a compiled model to a file | compile_time#without-a-compiler-in-production | aot_compile
too many compile worker processes | compile_time#worker-processes | TORCHINDUCTOR_COMPILE_THREADS
peak memory of a compiled model | cost#how-much-memory-does-compiled-code-take | usually needs less
checkpointed layers need more memory when compiled | cost#lower-the-peak | lower the budget
memory not freed after del model | in_a_notebook#what-a-kernel-remembers-and-how-to-start-clean | Out[n]
double backward is not supported | training#a-gradient-of-a-gradient | torch.func.grad
_orig_mod in checkpoint keys | in_a_notebook#orig-mod-in-the-keys-of-a-checkpoint | repair_checkpoint
compile before or after .to(device)? | training#before-or-after-to-load-state-dict-deepcopy | it compiles again
forward hook does not run | training#a-hook-that-never-runs | before
compile before or after DDP? | training#ddp-distributeddataparallel-compile-inside-or-outside | compile the wrapper
FSDP with torch.compile | training#fsdp-fully-shard | each block
all_reduce in compiled code | training#collectives-in-compiled-code | async_op
ranks hang or NCCL times out | logs#prevent-ranks-from-hanging | warm-up step
which rank makes the others wait? | logs#several-ranks | may hang
generate is not compiled | where_to_compile#generate | static
encode() is not compiled | where_to_compile#another-method-than-forward | compile the method
InternalTorchDynamoError | errors#internaltorchdynamoerror-dynamo-itself-fails | bug is PyTorch's
my error message is in no table | errors#which-kind-of-error | from user code
whose fault is an InductorError? | errors#which-kind-of-error | backend="aot_eager"
torch.compile from several threads | errors#several-threads | before the threads start
jit.trace or ONNX of a compiled model | errors#a-compiled-model-given-to-another-front-end | original
which file does tlparse take? | logs#which-file-does-tlparse-take | tlparse FILE
tlparse of all ranks | logs#which-file-does-tlparse-take | --all-ranks-html
TORCHDYNAMO_VERBOSE | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | inside Dynamo
what does [1/0] mean in a log? | logs#what-1-0-means-and-where-a-guard-comes-from | a recompile of it
which line needs the guard that failed? | logs#what-1-0-means-and-where-a-guard-comes-from | the line of your code
does torch._dynamo.explain reset? | logs#torch-dynamo-explain-counts-fewer-breaks | resets Dynamo
results differ from eager, dropout differs | cost#results-that-differ | same copies
os.environ TORCH_LOGS has no effect | in_a_notebook#environment-variables-set-after-import-torch | above the first one
tests pass alone and fail together | ci#tests-that-pass-alone-and-fail-together | across all tests
CI hangs while compiling | ci#slow-or-hanging-jobs | TORCHINDUCTOR_COMPILE_THREADS
count only my own breaks, not the library's | ci#count-your-own-breaks-apart-from-a-library-s | within=
recompiles: Guard failed on a parameter | causes/recompile-parameter-size | force_parameter_static_shapes
FailOnRecompileLimitHit, fullgraph=True | recompiles#the-limit-recompile-limit-is-reached | a ninth compilation raises
Compile package of another PyTorch version | messages_export#aotinductor-aot-compile-files | Compile where the program will run
a second torch.compile with other options | recompiles#a-second-torch-compile-of-the-same-function | `options`, `mode`
a new backend for each compilation | recompiles#a-second-torch-compile-of-the-same-function | create a backend once
fullgraph=True raises nothing | recompiles#a-second-torch-compile-of-the-same-function | with a break is reused
a limit for one function only | recompiles#raising-the-limit | recompile_limit=16
after the limit, what a function calls | recompiles#the-limit-recompile-limit-is-reached | run eagerly, except functions
a factory of compiled functions reaches the limit | recompiles#instances-share-one-count | have the same code
which mark? | recompiles#declare-up-front-what-varies-dynamic-true-mark-dynamic | 0 and 1
accumulated_recompile_limit | recompiles#instances-share-one-count | 256
TORCH_COMPILE_DYNAMIC_SOURCES | recompiles#declare-up-front-what-varies-dynamic-true-mark-dynamic | the code stays
a field of a dataclass recompiles | recompiles#what-else-causes-recompiles | configuration
a module as an argument recompiles | recompiles#what-else-causes-recompiles | a different module as an argument
torch._dynamo.config.recompile_limit does not exist | recompiles#raising-the-limit | cache_size_limit
flex_attention called without torch.compile() | messages_warnings#breaks-and-recompiles | ran eagerly
___check_global_state() recompiles | causes/recompile-grad-mode | GLOBAL_STATE changed
mark_dynamic with min and max | recompiles#declare-up-front-what-varies-dynamic-true-mark-dynamic | min=2, max=64
model output is a dict with other keys, recompiles | causes/recompile-dict-keys | set of keys
keys begin with module._orig_mod. | in_a_notebook#orig-mod-in-the-keys-of-a-checkpoint | module._orig_mod.weight
autograd.Function: every start is cold | causes/bypass-autograd-function | autograd_cache_allow_custom
selective checkpointing bypasses the cache | causes/bypass-selective-checkpointing | cache_hash
inductor's cache ignores my graph pass | causes/bypass-custom-pass | uuid
DDP with static_graph | training#ddp-distributeddataparallel-compile-inside-or-outside | static_graph=True
DDP with max-autotune hangs | training#ddp-distributeddataparallel-compile-inside-or-outside | without a mode
python_reducer sends nothing | training#ddp-distributeddataparallel-compile-inside-or-outside | trains on its own
DDP and SyncBatchNorm raise an error | training#collectives-in-compiled-code | leave out `fullgraph=True`
break inside activation checkpointing | training#checkpointing-in-compiled-code | checkpointed function run eagerly
hook with is_compiling never stores anything | training#a-hook-that-never-runs | is_compiling(): return
fullgraph=True with disable | escape_hatches#torch-compiler-disable-leave-a-function-out | error_on_graph_break(False)
raise an error if a CUDA graph is skipped | gpu#skipping-cudagraphs-the-reasons | cudagraph_or_error
specialized: where? | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | guard added
log CUDA graphs | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | =cudagraphs
bf16 results differ from eager, which setting? | cost#results-that-differ | emulate_precision_casts
Compiler: cl is not found | in_a_notebook#a-compiler-on-windows | Build Tools
Failed to find C compiler in a container | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | python3-dev
no triton on Windows | in_a_notebook#a-compiler-on-windows | triton-windows
AssertionError in torch.compile of a wrapper | messages#while-dynamo-traces | __wrapped__
CustomTensor(self.weight.data) in forward fails | messages#while-dynamo-traces | as_subclass(C)
fake tensor: attempting to expand a dimension | messages#fake-tensors-types-devices | follows *got*
weight.data *= mask: Encountered a set_ on a graph input | messages#while-dynamo-traces | mul_(mask)
SpeculationLog diverged at index 12 | messages#while-dynamo-traces | took a different path
no attribute '__func__' of a compiled step | messages#while-dynamo-traces | scheduler was created after
is there a flag that says that a model is compiled? | where_to_compile#another-method-than-forward | OptimizedModule
swap LoRA adapters without recompiling | recompiles#once-for-each-kind-a-mode-a-type-a-state | hotswap_adapter
Tensor subclass with a __new__ of its own | traced#sparse-nested-quantized-tensors-subclasses | call `super()`
TensorClass.clone() breaks the graph | case_studies#a-constructor-with-checks-tensordict | __new__
e3nn Gate, MACE | case_studies#a-gate-of-an-equivariant-network-e3nn | argmax
assert breaks the graph in pytest only | ci#an-assert-in-the-file-of-a-test | rewrites it
record a Slurm job | recipes#record-and-read-a-slurm-job | TORCH_TRACE
nothing shows in VS Code | recipes#explain-a-cell-in-vs-code | widgetScriptSources
nothing shows in Colab | recipes#explain-a-cell-in-colab | report.to_text()
UncapturedHigherOrderOpError torch.cond | messages#while-dynamo-traces | or return one unchanged
There was no fake impl registered for my operator | messages_kernels#custom-operators-fake-kernels | register_fake
Could not run 'my::op' from the 'Meta' backend | messages_kernels#custom-operators-fake-kernels | register_fake
opcheck: Argument x is not defined as mutable | messages_kernels#custom-operators-the-definition | mutates_args
Only a single TORCH_LIBRARY can be used (notebook) | messages_kernels#custom-operators-the-definition | runs again
infer_schema(func): must have a type annotation | messages_kernels#custom-operators-the-definition | the types that it allows
CheckpointError with torch.compile | messages_training#checkpointing | ran differently
vmap: random operation in randomness error mode | messages_training#second-gradients-vmap | randomness="different"
trying to save more tensors during recomputation | messages_training#checkpointing | recomputation ran differently
vmap of a compiled function | causes/gb0149 | torch.compile(torch.vmap(f))
position_ids: could be from, not in, with FSDP2 | messages#sizes-and-numbers | the base tensor of an argument
assert of pull 90665 with a sliced input | messages#sizes-and-numbers | .contiguous()
layer.compile() compiles nothing | where_to_compile#another-method-than-forward | torch.compile(layer)
cannot export after model.compile() | errors#a-compiled-model-given-to-another-front-end | copy of the model
torch.compile of a TorchScript model | errors#a-compiled-model-given-to-another-front-end | compile the original
torch.compile a torchaudio MFCC with fullgraph | libraries#torchaudio-spectrogram-mfcc-torch-jit-isinstance | DataLoader
kornia augmentation breaks the graph | libraries#kornia-monai-openclip-speechbrain | order=(0, 1, 2, 3)
MONAI MetaTensor recompiles, sliding window inference | libraries#kornia-monai-openclip-speechbrain | as_tensor()
pyro SVI with torch.compile | libraries#pyro-gpytorch-botorch | net.compile()
jagged tensors with flex_attention, padding | libraries#flex-attention-block-masks | pack them into one row
torch.compile on Jetson, aarch64 | in_a_notebook#triton-its-version-its-files | 3.5
Triton Error [CUDA] at the first call | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | driver
torch.compile slower on ROCm | cost#on-a-gpu | MIOpen
cross entropy of a language model takes too much memory | where_to_compile#the-model-with-its-loss | in chunks
backward of cumprod slower when compiled | cost#which-operation-is-slow | torch.compiler.disable
aoti_load_package takes seconds | compile_time#without-a-compiler-in-production | loads at once
warning: assuming every input is mutated | messages_warnings#kernels-autotuning | could not tell which inputs
MONAI MetaTensor compiles again | recompiles#once-for-each-kind-a-mode-a-type-a-state | as_subclass(torch.Tensor)
load_state_dict with assign=True | training#before-or-after-to-load-state-dict-deepcopy | the next call uses them
torch.compile in a daemon process | compile_time#worker-processes | daemons
EMA finds no parameters of a compiled model | in_a_notebook#orig-mod-in-the-keys-of-a-checkpoint | moving average
strict=False, and wrong predictions | in_a_notebook#orig-mod-in-the-keys-of-a-checkpoint | random weights
the EMA copy runs uncompiled | training#before-or-after-to-load-state-dict-deepcopy | call `.compile()` on it
training or inference graph? | training#no-grad-autocast-eval-inside-the-compiled-function-or-around-it | From the call
YOLO is missing forward | libraries#ultralytics-yolo-missing-forward | yolo.model
compiled inside disabled | escape_hatches#torch-compiler-disable-leave-a-function-out | their own `torch.compile`
disallow_in_graph and disable | escape_hatches#others-that-look-alike | for a backend that lacks it
fail_on_recompile raises | escape_hatches#set-stance-compile-nothing-for-a-while | takes all branches
compiled.eval() and the training flag | where_to_compile#the-model | passes on `eval()`
when do I save and load cache artifacts? | compile_time#kept-on-disk-the-second-start | before the first call
a dropped tensor stays in memory behind a break | cost#del-and-memory-that-a-break-holds | has dropped them
a detector: what do I compile? | libraries#detectors | backbone
turn torch.compile off | escape_hatches#set-stance-compile-nothing-for-a-while | force_eager
non-empty donated buffers | messages_training#backward-passes-inference-mode | donated_buffer = False
modified by an inplace operation, only when compiled | messages_training#backward-passes-inference-mode | y = y + 1
autograd.grad of a returned intermediate value | messages_training#second-gradients-vmap | one operation
operator: no autograd formula was registered | messages_kernels#custom-operators-the-definition | register_autograd
energy and forces with create_graph | training#a-gradient-of-a-gradient | grad_and_value
retain_grad on an intermediate value | training#what-breaks-in-training-code | retain_grad()
per-sample gradients with functional_call | traced#gradients-autograd-function-torch-func | gradients of each sample
does a spectrogram break? | traced#tensors-functions-properties-indices | istft
custom operator returns its input | escape_hatches#rules-for-custom-operators-and-what-they-cost | must not be an input
arguments that are views of one another | messages_kernels#inductor-generated-code | ViewMeta
OverflowError: Python int too large on Windows | messages_kernels#inductor-generated-code | without a mode
PermissionError in torchinductor's folder | messages_kernels#files-and-caches | Delete the folder
can't start new thread, 8 ranks | messages_kernels#worker-processes | up to 32 workers
BackendCompilerFailed: missing 'inner_exception' | messages_kernels#worker-processes | that worker's lines above
_prims_common.check is deprecated | messages_warnings#breaks-and-recompiles | update the library, which silences it
Disk quota exceeded on a cluster | messages_kernels#files-and-caches | limit the number of files
CppCompileError | messages_kernels#inductor-generated-code | g++ 8.3
Device mps not supported | in_a_notebook#the-gpu-is-too-new-too-old-or-not-from-nvidia | Apple's GPU
OptimizedModule is not iterable | messages#in-the-call-or-in-a-setting | not subscriptable
mypy: compiled model has no state_dict | where_to_compile#the-model | type checker
self = torch.compile(self) | where_to_compile#the-model | compiles nothing
compile an async def | messages#while-dynamo-traces | coroutine
ContextVar.get breaks the graph | causes/gb0156 | pass the value
Trainer with a compiled model: no metrics | libraries#transformers | The batch received was empty
Whisper and a static cache | where_to_compile#generate | cache_implementation
Is a compiled LightningModule slower? | recipes#explain-a-lightning-module | the network inside the module
LayerDrop: is the random choice fixed? | cost#random-numbers-and-dropout | draw a number on every call
rows differ with the size of the batch | cost#results-that-differ | size of its batch
same seed, different numbers | cost#random-numbers-and-dropout | fallback_random
coverage misses compiled lines | ci#coverage | TORCHDYNAMO_DISABLE=1
first request of a server is slow | compile_time#a-server-compile-before-the-first-request | guards check each
threads set after the warm-up: compiles again | compile_time#a-server-compile-before-the-first-request | set_num_threads
keep the cache in a container | compile_time#kept-on-disk-the-second-start | mounted folder
AOTInductor's package on another GPU | compile_time#without-a-compiler-in-production | device_index
an unrolled recurrent network | compile_time#slow-to-compile-loops-many-shapes | Make the body of the loop a function
dynamic=True compiles for ever | compile_time#slow-to-compile-loops-many-shapes | Mark the dimension
torchao: quantized is slower | cost#quantized-models | until they are fused
torchao autoquant before or after compiling | libraries#quantization-torchao-qat | the other way round
bitsandbytes 4-bit layers break | cost#quantized-models | from PyTorch 2.8 on
torchdiffeq: odeint breaks | libraries#ode-solvers | not the solver
RL environment, replay buffer | libraries#reinforcement-learning-stable-baselines3-torchrl | Compile the policy
TensorDict with other keys compiles again | libraries#reinforcement-learning-stable-baselines3-torchrl | number of keys
tensor parallel with torch.compile | training#tensor-parallel-parallelize-module | before or after
DDP under no_grad breaks at the buffers | training#ddp-distributeddataparallel-compile-inside-or-outside | batch norm
do I need compiled autograd? | training#do-you-need-compiled-autograd | Seldom
compiled_autograd requires no threads in backwards | messages_training#second-gradients-vmap | Switch it off
selective checkpointing around a compiled function | training#checkpointing-in-compiled-code | context_fn
a NumPy number keeps CUDA graphs off | gpu#skipping-cudagraphs-the-reasons | convert it with `float()`
slow again at the fourth call | gpu#each-size-is-recorded-again-slow-calls-memory | a new input size
which parts of autotune work for my own kernel? | escape_hatches#your-own-triton-kernel-triton-op | triton.heuristics
max_seqlen.item() for variable lengths | causes/gb0124 | pass it as an `int`
torch.bincount breaks | causes/gb0036 | Count each of the known values
a graph network compiles again for each graph | libraries#graph-networks-pyg-dgl | add_self_loops=False
higher loss when compiled | cost#results-that-differ | emulate_precision_casts
export: dimension was inferred to be a constant | frontends#a-size-that-export-makes-a-constant | Dim.AUTO
segmentation fault with torch.compile | errors#crashes-and-hangs | faulthandler
random segfault while the autograd cache is saved | errors#crashes-and-hangs | AUTOGRAD_CACHE=0
stuck in mlir::multiRootTopologicalSort | errors#crashes-and-hangs | too hard for Triton
an issue of 2023 has my symptom | questions#errors | in a separate environment
compiling never ends | errors#crashes-and-hangs | dump_traceback_later
Tensor device mismatch, FakeTensor Device Propagation | messages#fake-tensors-types-devices | set_default_device
gradient_checkpointing_enable breaks the graph | libraries#transformers | use_cache=False
device_map and accelerate's hooks | libraries#accelerate-offloading | turn offloading on first
nn.DataParallel with a compiled model | training#ddp-distributeddataparallel-compile-inside-or-outside | copies of the model in threads
autocast switched off and on compiles again | causes/recompile-grad-mode | before the first call
spawned processes without a main guard | compile_time#worker-processes | __main__
A different number of tensors was saved | messages_training#checkpointing | a size became dynamic
recomputation uses another graph | training#checkpointerror-a-compiled-block-whose-sizes-vary | checkpoint inside
checkpoint around a compiled block | training#checkpointing-in-compiled-code | mark the sizes that vary
torch.manual_seed in forward | training#what-breaks-in-training-code | before the call
full_backward_hook ignored, wrong gradients | training#a-hook-that-never-runs | silently wrong
torch.compiler.disable on a hook with module.compile() | training#a-hook-that-never-runs | runs on every call
CheckpointWrapper: _orig_mod in keys of DCP | in_a_notebook#orig-mod-in-the-keys-of-a-checkpoint | block.compile()
OneCycleLR compiles the step again | recompiles#a-learning-rate-that-changes | cycle_momentum=False
functions made by exec() reach the limit | recompiles#instances-share-one-count | creates has its own code
strict inside lenient | error_on_graph_break#fullgraph-cannot-be-softened | but a break after it is not
class statement in compiled code runs it eagerly | causes/gb8977 | resumes after the class
items of a dict as an argument | causes/gb0811#dict-items-a-zip-or-a-generator-as-an-argument | Pass the dict
new_full with a tensor (to_dense_batch) | causes/gb0033#new-full-with-a-tensor-as-the-value | needs the value
NumPy's astype in compiled code breaks | traced#numpy | .astype(int)
self.__dict__ assignment breaks | traced#classes | __dict__["n"]
aot_compile and TORCH_COMPILE_DISABLE | compile_time#without-a-compiler-in-production | has no effect on it
breakpoint of VS Code in a compiled function | errors#step-through-compiled-code-with-a-debugger | is not reached
max-autotune inside another torch.compile | cost#which-mode | a part of its caller
memory leak on every call | questions#memory | names what keeps it
an argument is alive after torch.cond | cost#del-and-memory-that-a-break-holds | gc.collect()
NCCL watchdog: one node has a warm cache | logs#prevent-ranks-from-hanging | then a barrier
a zip object as an argument | causes/gb0811#dict-items-a-zip-or-a-generator-as-an-argument | `list(...)`
model.to(dtype) in forward | causes/gb0264 | changes the `dtype`
an LSTM in the middle of a model: what is compiled? | causes/gb0014 | also runs eagerly
flatten_parameters in forward | causes/gb0014 | in `__init__`
sdp_kernel breaks | causes/gb0208#torch-backends-cudnn-flags-torch-backends-cuda-sdp-kernel | sdpa_kernel
a mask for padded sequences, arange(lengths.max()) | causes/gb0038 | pass it as an `int`
cuda.Event in compiled code | causes/gb0007#time-perf-counter | before and after the call
SDPAParams, a pybind class | causes/gb0007#a-python-function-that-dynamo-skips | is_compiling()
random.shuffle and random.sample | causes/gb0007#random-random | one order
random.Random(seed) gives the same number on every call | causes/gb0007#random-random | your own generator
torch.manual_seed in forward breaks | causes/gb0007#random-random | call them before
Generator.initial_seed and get_state in compiled code | causes/gb7650 | has a state that a graph does not carry
pack_padded_sequence fails in Dynamo | causes/gb0014 | do not pack
y[mask] = x in training, Backend compiler exception | causes/gb0219 | Index with integers
my C++ operator does not support running with fake tensors | causes/gb0090 | register_fake
Reconstruction failure | causes/gb0092 | keep only the value that is needed
np.random.rand(4) ignores np.random.seed when compiled | causes/gb0033#numpy-random | draws it with torch
repeat_interleave is wrong | causes/gb0036#repeat-interleave-with-a-tensor-of-repeats | without an error
a and b must have same reduction dim | messages#fake-tensors-types-devices | `mat1 and mat2 shapes
Cannot copy out of meta tensor | messages#fake-tensors-types-devices | to_empty
you're trying to get value out of a tracing tensor | messages#keras-torchscript-fx | `make_fx`
sorted order of strides of the two branches' output | messages#while-dynamo-traces | `.contiguous()` in both branches
'View' object has no attribute 'layout' | messages_kernels#inductor-generated-code | A bug in Inductor
Could not run ... from the 'CPU' backend | messages_kernels#custom-operators-the-definition | register_kernel
dynamic_shapes: Unexpected dimension mapped to index 0 | messages_export#sizes-dynamic-shapes | Dim.DYNAMIC
cond must be a bool, but got a Tensor | messages#sizes-and-numbers | which are captured
Data-dependent assertion failed (cannot compile partial graph) | causes/gb0034 | Test with `if`
pytree-flattenable | messages_export#arguments-and-results | register_dataclass
explain(f, *args) is deprecated | messages_warnings#breaks-and-recompiles | torch._dynamo.explain(f)(x)
Onnx: The axis name will not be used | messages_warnings#export-onnx-aotinductor | one name for both
legacy stream depend on a capturing blocking stream | messages_kernels#cuda-graphs | Move it out of the function
subprocess.TimeoutExpired at the end | messages_kernels#worker-processes | its results are complete
we guessed its metadata incorrectly | messages_training#fsdp-dtensor-tensor-parallel | `.detach()` of the others
number of output names provided exceeded number of outputs | messages_export#torch-onnx-export | is not treated as a tensor
optimum ImportError with PyTorch 2.9 | messages_export#torch-onnx-export | no longer has
num_mutated_inp_runtime_indices | messages_export#what-forward-changes | x.unsqueeze_(0)
vLLM: 'int' object is not iterable | in_a_notebook#triton-its-version-its-files | a Triton of one's own
SETUP_WITH UserDefinedObjectVariable | causes/gb0142 | around the call
setting my own attribute on a tensor | causes/gb0058 | choose a different name
list.append(a, 9) breaks | causes/gb0156#json-dumps | called through the class
key in dict compiles again for each length | causes/recompile-dict-keys | is not None
fork_rng(devices={0}) | causes/gb0142#set-detect-anomaly-saved-tensors-hooks-save-on-cpu-fork-rng | pass a list
DDP: is the graph split when I compile inside? | training#where-the-graph-is-cut | in all three
create_block_mask inside a compiled model breaks | libraries#flex-attention-block-masks | is in the graph in 2.13
knn_graph in a compiled model | libraries#graph-networks-pyg-dgl | compute the edges before
DDP hangs on one kind of GPU | logs#prevent-ranks-from-hanging | NCCL_DEBUG
with torch.cuda.device(x.device.index) | causes/gb0142#with-torch-device | has a rule for
time with CUDA events | cost#a-stopwatch-that-can-be-trusted | elapsed_time
filter in forward | traced#built-in-functions | `filter(f, values)`
does weight_norm break? | traced#layers-and-losses | nn.utils.parametrizations
a custom operator is never called | errors#nothing-raises-but-the-result-differs | declare what it changes
invalid Bernoulli probabilities pass | errors#eager-code-raises-compiled-code-does-not | check their arguments only
std of equal numbers, then NaN or inf | errors#one-operation-gives-a-different-result | a rounding error
uint8 arithmetic differs from eager | errors#one-operation-gives-a-different-result | do not wrap
slice_scatter and diagonal_scatter have zero gradients | known_bugs#gradients-and-backward-passes | stay unchanged
a wrong target raises nothing | errors#eager-code-raises-compiled-code-does-not | Run one step eagerly
isinstance with a Protocol takes the wrong branch | errors#nothing-raises-but-the-result-differs | hasattr
try around an operation does not catch its error | errors#nothing-raises-but-the-result-differs | compare the sizes
mutates_args of a custom operator | escape_hatches#rules-for-custom-operators-and-what-they-cost | "unknown"
leave one submodule out | escape_hatches#torch-compiler-disable-leave-a-function-out | model.head.forward
try: torch.compile(model) never falls back | errors#go-on-in-the-meantime | only the first call compiles
omp.h not found on macOS | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | brew install libomp
a GPU too old for Triton | in_a_notebook#the-gpu-is-too-new-too-old-or-not-from-nvidia | compute capability
evaluation on rank 0 hangs the others | training#ddp-distributeddataparallel-compile-inside-or-outside | model.module
error in backends/distributed.py | training#where-the-graph-is-cut | from splitting the graph
compile, export or AOTInductor? | compile_time#without-a-compiler-in-production | has no Python
when is the backward pass compiled? | where_to_compile#the-model | is also slow
pad every batch, or recompile? | recompiles#pad-or-let-the-sizes-vary | a few lengths
mark_dynamic fails at a matrix product | recompiles#mark-dynamic-raises-an-error-or-has-no-effect | mark both
stride mismatch with dynamic=True | recompiles#the-model-still-compiles-for-each-length | .contiguous()
another set of **kwargs compiles again | recompiles#once-for-each-kind-a-mode-a-type-a-state | the same keys
the first block of LoRA: requires_grad mismatch | recompiles#once-for-each-kind-a-mode-a-type-a-state | two graphs are expected
AdamW(fused=True) in a compiled step | where_to_compile#the-training-step | not traced
the output of one compiled function into another | gpu#tensor-output-overwritten-by-a-subsequent-run | calls both
gradient accumulation with CUDA graphs | gpu#tensor-output-overwritten-by-a-subsequent-run | register_hook
mark_static_address compiles again | gpu#tensor-output-overwritten-by-a-subsequent-run | with `guard=True`
DDP and reduce-overhead crash after training | gpu#tensor-output-overwritten-by-a-subsequent-run | becomes an input again
a model of matrix products gains nothing | cost#slower-than-eager-how-to-read-the-figures | gains little
what is triton_poi_fused_add_sin_0? | cost#in-a-profile | aot_graphs
which function takes long to trace? | compile_time#what-takes-the-time | DYNAMO_PROFILER
checkpointed blocks used twice need much memory | cost#lower-the-peak | a break between the passes
use_deterministic_algorithms and the backward pass | cost#random-numbers-and-dropout | previously generated during the forward
the first call had nothing to compile | skipped#remembered-skips-an-earlier-call-a-mode | Let the first call compute
what is enforce_eager of vLLM? | libraries#vllm-sglang | switches off
deepcopy after model.compile() | training#before-or-after-to-load-state-dict-deepcopy | is not compiled
mode and options together | cost#which-mode | list_mode_options
an operation without inductor code: implicit fallback | cost#which-operation-is-slow | extern kernel
what does freezing do? | causes/bypass-freezing | may go unnoticed
accelerate's unwrap_model and compiled models | in_a_notebook#orig-mod-in-the-keys-of-a-checkpoint | keep_torch_compile
Fabric: compile before or after setup? | libraries#lightning-and-fabric | puts its own wrapper inside
a second GPU compiles again | recompiles#once-for-each-kind-a-mode-a-type-a-state | each device
failed to eagerly compile backwards for dynamic | messages_warnings#training | Only a later
last reason: ___check_obj_id(fn, 1406) | recompiles#what-a-guard-says-in-pytorch-s-words | created on every call
___check_type_id in the log | recompiles#what-a-guard-says-in-pytorch-s-words | of a different class
___check_torch_function_mode_stack() | recompiles#what-a-guard-says-in-pytorch-s-words | set_default_device
getattr failed on source | recompiles#what-a-guard-says-in-pytorch-s-words | attributes that
capturable=True in a compiled optimizer | where_to_compile#the-training-step | Dynamo sets it
what does capture_scalar_outputs do? | settings#graph-breaks-and-what-is-traced | unknown numbers
is traceable_tensor_subclasses needed? | settings#settings-that-no-longer-have-an-effect | traced without it
assume_static_by_default | settings#recompiles-guards-and-dynamic-sizes | from the first call on
activation_memory_budget: which value? | settings#results-speed-and-memory-inductor | is half
TORCHINDUCTOR_FX_GRAPH_CACHE=1 | compile_time#kept-on-disk-the-second-start | on by default
a cache that machines share over Redis | settings#caches-on-disk | TORCHINDUCTOR_REDIS_HOST
TORCHDYNAMO_REPORT_GUARD_FAILURES | common_breaks#messages-of-earlier-releases | TORCH_LOGS=graph_breaks,recompiles
a C function breaks | escape_hatches#substitute-in-graph-a-python-version-of-a-c-function | Write it in Python
while x.norm() < 50, early stopping | causes/gb0170#while-on-a-tensor | Run the loop in Python
where do I put no_grad? | training#no-grad-autocast-eval-inside-the-compiled-function-or-around-it | Either works
profiler with_stack=True never ends | cost#in-a-profile | Profile warm calls only
how often does each graph run? | cost#in-a-profile | Its number of calls
mark_dynamic inside forward | recompiles#mark-dynamic-raises-an-error-or-has-no-effect | trace forbidden callable
mark an integer argument | recompiles#declare-up-front-what-varies-dynamic-true-mark-dynamic | DynamicInt
gradients that are None compile the step again | recompiles#once-for-each-kind-a-mode-a-type-a-state | parameters are the same
two attributes compared with `is` | errors#nothing-raises-but-the-result-differs | the answer of the first call stays
index_put_ with a mask and CUDA graphs | gpu#skipping-cudagraphs-the-reasons | graph_partition
scipy in forward | libraries#scipy-opencv-pybind-cuda-kernels | even if its arguments are NumPy arrays
self.current_epoch is always 0 | libraries#lightning-and-fabric | Compile the network inside
a comprehension on Python 3.12 | common_breaks#looks-suspicious-but-does-not-break | Before Python 3.12
json, uuid, hashlib in forward | traced#the-standard-library | before or after the call
any(n > 1 for n in sizes) | traced#built-in-functions | a generator expression
another prompt compiles again in ComfyUI | libraries#comfyui | is a size
DeepSpeed with ZeRO 3 | libraries#deepspeed | gathers parameters in hooks
jit_compile=True in Keras | libraries#keras | stays eager
encode() of sentence-transformers is not compiled | libraries#sentence-transformers | by its name
print in a forward hook | training#a-hook-that-never-runs | is split there
breaks by reason | logs#counters-of-zero-prove-nothing | of this process
NumPy on a GPU, with gradients | common_breaks#numpy-code-compile-it-on-a-gpu-with-gradients | wrap_numpy
CUDA out of memory only when compiled | cost#out-of-memory-oom-only-when-compiled | a break keeps
write a backend | cost#which-backend-one-of-your-own | takes a graph
CompiledFunctionBackward in a profile | cost#in-a-profile | autograd's name
what is s77, what is u0? | recompiles#what-a-guard-says-in-pytorch-s-words | known only when the code runs
eager_then_compile | escape_hatches#set-stance-compile-nothing-for-a-while | in the second call
minifier | reproducers#pytorch-s-minifier | TORCHDYNAMO_REPRO_AFTER
strict export fails | frontends#torch-export-strict-or-not-and-compiled-code-inside | does not matter for
my KV cache: torch.cat or position | where_to_compile#a-kv-cache-of-your-own-position-and-length | index_copy_
position_ids record CUDA graphs | where_to_compile#a-kv-cache-of-your-own-position-and-length | strides
optimizer, parameters of many shapes | recompiles#an-optimizer-of-your-own-parameters-of-many-shapes | view(-1)
vmap of autograd.grad on a compiled function | messages_training#second-gradients-vmap | compile the function
vmap of jacfwd INTERNAL ASSERT FAILED compiled | training#a-gradient-of-a-gradient | jacrev
if mask.all(): return, a shortcut breaks the graph | causes/gb0170#if-on-a-tensor | is_compiling
out[mask] = f(x[mask]) breaks | causes/gb0036 | torch.where(mask, f(x), out)
loss.item() in the returned dict | causes/gb0124 | when you log it
dynamic_shapes=True unexpected keyword argument | settings#settings-that-no-longer-have-an-effect | dynamic=True
F.dropout drops in eval() | cost#random-numbers-and-dropout | training=self.training
pickle a compiled method | in_a_notebook#torch-save-and-pickle-of-a-compiled-model-or-function | state_dict
spawn: convert_frame | in_a_notebook#torch-save-and-pickle-of-a-compiled-model-or-function | new process
flex_attention recompiles for each length | libraries#flex-attention-block-masks | once more for the second
is my block mask valid for shorter inputs | libraries#flex-attention-block-masks | a mask is for one length
create_block_mask out of memory | libraries#flex-attention-block-masks | builds the full mask
OmegaConf attributes break the graph | libraries#omegaconf-hydra | without a break
mixture of experts, tolist of counts | fullgraph | x.split(counts.tolist())
if rows.numel() > 0 in a loop over experts | fullgraph | an empty `rows` does no harm
MoE layer slow with torch.compile when the batch is large | fullgraph | grouped_mm
JSONDecodeError in the cache of inductor | messages_kernels#files-and-caches | give each process its own
pytest-xdist PermissionError torchinductor | messages_kernels#files-and-caches | TORCHINDUCTOR_CACHE_DIR
vLLM failed to get the hash of the compiled graph | messages_kernels#files-and-caches | give each process its own
'complex' object has no attribute 'get_name' | messages_kernels#inductor-generated-code | torch.polar
except does not catch a matmul | errors#runtimeerror-when-making-fake-tensor-call-and-except | around the compiled
each rank starts 32 compile workers | compile_time#worker-processes | divided by the number of ranks
is_compiling() is False in my decorator | escape_hatches#others-that-look-alike | when the function is defined
which parts of a diffusers pipeline: VAE, text encoder? | libraries#diffusers | pipe.vae.decode
layers of a U-Net outside of the blocks | libraries#diffusers | little loss
compile before or after accelerator.prepare? | libraries#accelerate-offloading | after `prepare`
accumulated_recompile_limit (256) | recompiles#the-limit-recompile-limit-is-reached | a helper without tensors
Unrecognized mode=reduceoverhead | messages#in-the-call-or-in-a-setting | max-autotune-no-cudagraphs
can a backend add guards? | cost#which-backend-one-of-your-own | symbolic size
unfrozen layers do not train when compiled | training#training-code-that-was-run | layers frozen after the first step
ctc_loss breaks the graph | training#training-code-that-was-run | with lengths in tensors
pack_padded_sequence in a compiled model | causes/gb0014 | together with the layer
the compiled result has other strides than the eager one | known_bugs#wrong-results | Call `.contiguous()`
a generator returned by compiled code has no send | known_bugs#wrong-results | Return a list
Multiple dispatch failed for aten.mm.out | known_bugs#inductorerror-cppcompileerror-triton | as_subclass
AssertionError source must be None for ValueMutationNew | messages#while-dynamo-traces | .detach()
einx fails under torch.compile and inference_mode | libraries#einops | `import torch` before `import einx`
Faster R-CNN of detectron2 under torch.compile | libraries#detectors | backbone and heads
NameError tmp19 is not defined since 2.13 | known_bugs#inductorerror-cppcompileerror-triton | automatic_dynamic_shapes
reduce-overhead is slower in 2.10 than in 2.9 | known_bugs#slower-more-memory-longer-to-compile | stay with 2.9
flex_attention: expected 4, got 2 | known_bugs#flex-attention-and-other-attention | after `transpose`
func.grad ignores my backward | known_bugs#gradients-and-backward-passes | torch.compiler.disable
Swin v2 on a CPU fails with 2.11 | known_bugs#inductorerror-cppcompileerror-triton | right with 2.9
wrong gradients of chained norms, CUDA | known_bugs#gradients-and-backward-passes | mix_order_reduction
compile() unexpected keyword 'optimizer' | messages#keras-torchscript-fx | keras's
NoValidChoicesError | libraries#messages-of-flex-attention | pad them to 128
nnU-Net: how do I switch compiling off? | libraries#nnu-net | nnUNet_compile=f
One or more background workers are no longer alive | libraries#nnu-net | read the first error above
cuda:1 does not use the cache of cuda:0 | compile_time#kept-on-disk-the-second-start | CUDA_VISIBLE_DEVICES
model, block or training step: which one? | where_to_compile | repeats a block
a setting has no effect in a worker thread | settings#a-setting-holds-in-its-thread-only | copy of the context
recompile limit in the backward thread | settings#a-setting-holds-in-its-thread-only | has its own thread
dynamic=True recompiles an RNN | recompiles#the-model-still-compiles-for-each-length | compile the body
GLOBAL_STATE changed: num_threads | recompiles#what-a-guard-says-in-pytorch-s-words | set it once, before the first call
what became of the recompilation profiler? | common_breaks#messages-of-earlier-releases | TORCH_LOGS=graph_breaks,recompiles
print in a compiled function without a break | causes/gb0059 | Print in the graph
zip passed to a compiled function | causes/gb0811 | pass a list
SourcelessBuilder.create: frozen dataclass | causes/gb0116 | Make the object outside
nonstrict_trace on a method | escape_hatches#nonstrict-trace-trace-through-without-looking | is also rejected
a custom operator resizes an argument | escape_hatches#rules-for-custom-operators-and-what-they-cost | silently keep
torch.cond with integers and dynamic=True | messages#while-dynamo-traces | x.new_ones(x.shape)
generate on a GPU: who compiles? | where_to_compile#generate | disable_compile=True
a longer max_new_tokens after the warm-up | where_to_compile#generate | max_cache_len
regional compilation in accelerate | libraries#accelerate-offloading | use_regional_compilation
compile the repeated blocks of a pipeline | libraries#diffusers | compile_repeated_blocks
TypeCheckError of jaxtyping, only when compiled | libraries#beartype-jaxtyping | JAXTYPING_DISABLE=1
an operation on the CPU and CUDA graphs | gpu#skipping-cudagraphs-the-reasons | are left out
weight.data *= mask with CUDA graphs | gpu#tensor-output-overwritten-by-a-subsequent-run | weight = self.weight * mask
tests share the cache on disk | ci#tests-that-pass-alone-and-fail-together | fresh_cache
x[i.item()] breaks | causes/gb0124#item-float-int-of-a-tensor | i[None]
x[x.argmax()] breaks | causes/gb0033#x-i-with-a-computed-index-such-as-x-x-argmax | argmax()[None]
Could not guard on Eq(u0, 1), attention on x[mask] | causes/gb0124#a-decision-on-a-number-from-item | attn_mask
pending, uninvoked backwards | gpu#tensor-output-overwritten-by-a-subsequent-run | nothing is replayed
an error in the second run only, cache | messages_kernels#files-and-caches | delete the folder
AOTAutograd cache always misses | compile_time#a-cache-that-does-not-work | see each hit
Trainer with torch_compile on two GPUs | libraries#transformers | accelerate launch
___check_obj_id of an attention processor | recompiles#what-a-guard-says-in-pytorch-s-words | share a graph
autocast as a decorator | training#training-code-that-was-run | around a break
what is guarded of an object? | recompiles#what-does-dynamo-guard-on | values that the code has read
second call is slow | compile_time#the-second-call-is-slow-too-warm-up | a different size or number
develop without waiting for the compiler | compile_time#while-you-change-code-wait-less | generates no code
what speed-up can I expect? | cost#how-much-faster-will-the-code-be | 163 models
does compiling pay on a CPU, how many threads? | cost#how-much-faster-will-the-code-be | get_num_threads
calls seem to become slower in my benchmark | cost#a-stopwatch-that-can-be-trusted | the queue is full
the process needs more memory after compiling | cost#out-of-memory-oom-only-when-compiled | about 140 MB
backward of an autograd.Function cannot be traced | training#training-code-that-was-run | that breaks, here
inference_mode? | training#no-grad-autocast-eval-inside-the-compiled-function-or-around-it | use it throughout
tensor parallel, several resolutions | training#tensor-parallel-parallelize-module | cost one recompile
decorate forward in the class | where_to_compile#torch-compile-above-a-method | `deepcopy` work as before
sample text from a model in training | where_to_compile#generate | shares the weights
a transformers pipeline | libraries#transformers | pipe.model.compile()
flash_attention_2 or sdpa | libraries#transformers | batches without padding
random transforms of torchvision | libraries#torchvision-timm | in the `DataLoader`
nms | libraries#detectors | torchvision.ops.nms
torch.cuda.graph or reduce-overhead? | gpu#cuda-graphs | by hand
does it work on an AMD GPU? | in_a_notebook#a-compiler-on-windows | ROCm
torch.jit or torch.compile or torch.export? | frontends | a faster program in Python
is append carried out? | common_breaks#side-effects-appends-attributes-counters | replays them after the graph
graph break or recompile: what is the difference? | questions#find-breaks | for a later call
EasyDict in a compiled function | traced#dicts-sets-enums-collections | a subclass of `dict`
__getattr__ = dict.__getitem__ breaks | causes/gb0256 | def __getattr__
the mark is lost | recompiles#mark-dynamic-raises-an-error-or-has-no-effect | do not inherit it
does PyTorch pad to buckets? | recompiles#pad-or-let-the-sizes-vary | itself pads nothing
how do I see that forward was compiled? | where_to_compile#another-method-than-forward | _torchdynamo_orig_callable
which call makes it compile? | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | start compiling
Python.h: No such file | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | the headers of your Python version
cannot find -lcuda in WSL | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | LIBRARY_PATH
retain_grad in compiled code | causes/gb0108 | on the result
str() of a Decimal | causes/gb0005 | before the call
np.issubdtype(array.dtype, ...) | causes/gb0157 | Read the tensor's attribute
BatchNorm in training mode | traced#layers-and-losses | `nn.BatchNorm1d`
torch._dynamo.reset() | in_a_notebook#what-a-kernel-remembers-and-how-to-start-clean | or its old name
tensorrt as a backend | cost#which-backend-one-of-your-own | openvino
fill the cache in a Docker build | compile_time#kept-on-disk-the-second-start | the same model of GPU
compile_times() | compile_time#what-takes-the-time | of all compilations so far
wandb.log in a training step | libraries#wandb-tensorboard-mlflow | every few steps
run it on a phone | frontends | ExecuTorch
is_dynamo_compiling | escape_hatches#others-that-look-alike | strict=True
pytest -W error fails in the first call | ci#warnings-that-are-errors-w-error | `torch.jit.script_method`
is the backward pass compiled? | how_it_works#the-backward-pass | AOTAutograd
does torch.compile support training? | training | also runs compiled code
go on without a compiler | in_a_notebook#no-gpu-no-compiler-no-triton | disable=not works
what does set_default_backend do? | settings#functions-of-torch-compiler-and-torch-dynamo | restores Inductor
forbid_in_graph | settings#functions-of-torch-compiler-and-torch-dynamo | raises an `AssertionError`
a callback when something compiles | settings#functions-of-torch-compiler-and-torch-dynamo | on_compile_start
math.sqrt of a tensor | causes/gb0033 | Use the function of torch
for layer in self.layers: does it break? | traced#modules-and-hooks | nn.ModuleList
the random module in a model | traced#random-numbers-and-distributions | random.choice
module 'torch' has no attribute 'compile' | in_a_notebook#pytorch-or-python-is-too-old-or-too-new | came with 2.0
tv_tensors.Image breaks | libraries#torchvision-timm | as_subclass(torch.Tensor)
LightningCLI | libraries#lightning-and-fabric | the network inside the module
a test that fails if the CPU waits for the GPU | cost#on-a-gpu | set_sync_debug_mode
a method of an object of an unknown library breaks | causes/gb0156 | wrap it in a custom operator
PyCapsule function breaks the graph | causes/gb0007 | a function of a C extension
a forward hook on the compiled model: two graphs under fullgraph | training#a-hook-that-never-runs | wrap_top_frame = True
does fullgraph always make one graph? | error_on_graph_break#fullgraph-or-error-on-graph-break | a hook on the model itself
lock.acquire() of an RLock, Unsupported method call | causes/gb0156#a-lock | split the graph
random.random() in layer drop | causes/gb0007#random-random | random.uniform(0, 1)
jaxtyping with JAXTYPING_DISABLE still reaches the limit | libraries#beartype-jaxtyping | isolate_recompiles
TORCH_LOGS=recompiles prints nothing | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | a resume function's
fullgraph=True passes in tests, raises in production | fullgraph#5-prove-the-result-and-keep-it | a later call can still
BackwardState requires CompiledAutograd | messages_training#second-gradients-vmap | call it inside
compiled_autograd, and backward() after the call | training#do-you-need-compiled-autograd | maybe_enable_compiled_autograd
compiled_autograd for a backward hook of a module | causes/gb0083#settings | if backward() runs inside
torch.compile(yolo.model) and predict | libraries#ultralytics-yolo-missing-forward | predict(..., compile=True)
backward hook on the compiled wrapper | training#a-hook-that-never-runs | register it on the model
a mocked method is not seen | errors#nothing-raises-but-the-result-differs | patch before the first call
set_default_dtype is ignored by torch.randn | errors#nothing-raises-but-the-result-differs | `dtype=`
an operator's output size depends on data | escape_hatches#rules-for-custom-operators-and-what-they-cost | new_dynamic_size
GAN: compile generator and discriminator | training#what-breaks-in-training-code | GANs, adversarial training
vmap of the apply of an autograd.Function | traced#gradients-autograd-function-torch-func | Unsupported hasattr call
does nn.init inside forward break the graph? | traced#random-numbers-and-distributions | kaiming_normal_
is a KV cache copied? | where_to_compile#a-kv-cache-of-your-own-position-and-length | without copying it
vLLM does not reuse its cache | libraries#vllm-sglang | VLLM_CACHE_ROOT
stable-baselines3 with torch.compile | libraries#reinforcement-learning-stable-baselines3-torchrl | evaluate_actions
load_lora_weights and torch.compile: the order? | libraries#lora-adapters-peft | unload_lora_weights
can unsloth's compiling be switched off? | libraries#i-never-called-torch-compile | UNSLOTH_COMPILE_DISABLE=1
xformers breaks | libraries#flash-attn-xformers-sageattention | chooses the FlashAttention kernel
an operator of TORCH_LIBRARY breaks | escape_hatches#rules-for-custom-operators-and-what-they-cost | CompositeImplicitAutograd
SingleProcess AUTOTUNE benchmarking takes | messages_warnings#kernels-autotuning | lists the kernels that it timed
max-autotune is slower than the default | cost#which-mode | usually to blame
wrong number of dimensions in assert_size_stride | messages_kernels#inductor-generated-code | skip_all_guards_unsafe
gaussian_nll_loss under fullgraph=True | common_breaks#pytorch-functions-that-break | var.clamp
lstsq in a compiled function | common_breaks#pytorch-functions-that-break | torch.linalg.qr
different backend callables | recompiles#what-a-guard-says-in-pytorch-s-words | create a backend function once
Unsupported: Tensor.item() under fullgraph=True in 2.9 | causes/gb0124 | from PyTorch 2.10 on
is x[mask] captured by fullgraph? since when? | fullgraph#5-prove-the-result-and-keep-it | 2.9 raises
___as_tensor(a).item() == 0.03 at each step | causes/recompile-float | `x.lerp(y, a)`
huber_loss(delta=s) keeps an old value | known_bugs#wrong-results | specialize_float
my operator's new backward is not used | escape_hatches#rules-for-custom-operators-and-what-they-cost | of the old code
a C++ operator compiles again for each number | escape_hatches#rules-for-custom-operators-and-what-they-cost | SymInt
AOTAutograd's cache misses at every start | compile_time#a-cache-that-does-not-work | forward passes alone
libcuda.so cannot found in Colab | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | ld.so.conf.d
Failed to compile. cc_cmd on Windows | in_a_notebook#a-compiler-on-windows | unset `CC`
Slurm: the cache reaches a quota of files | recipes#record-and-read-a-slurm-job | save_cache_artifacts
regional compilation of accelerate runs nothing | libraries#accelerate-offloading | up to 1.14
FSDP and a compiled all-to-all hang | logs#prevent-ranks-from-hanging | on each rank
how many recompiles do the counters have? | logs#counters-of-zero-prove-nothing | counts all compilations
torch_scatter: its data is not allocated yet | libraries#graph-networks-pyg-dgl | torch_geometric.utils.scatter
AsyncCollectiveTensor compiles again | training#tensor-parallel-parallelize-module | wait_tensor
DebugMode is on, and nothing is compiled | skipped#remembered-skips-an-earlier-call-a-mode | uncompiled
one rank's TORCH_LOGS, srun | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | SLURM_PROCID
two losses of a call: backward a second time | messages_training#backward-passes-inference-mode | frees. Add the losses
convert all Tensors to FakeTensors first | messages#fake-tensors-types-devices | combined with a fake one
A callable function is expected, but Tensor is provided | messages#in-the-call-or-in-a-setting | the result of a call
RuntimeError: u0 <= 2 | messages#sizes-and-numbers | torch._check(n < 3)
index out of bounds: 0 <= tmp7 < 3L | messages_kernels#inductor-generated-code | cross_entropy
Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?) | messages_kernels#triton-and-the-gpu | --gpu-only
ComfyUI with compile works once, the second run fails | libraries#comfyui | memory is short
CompiledKernel has no attribute launch_enter_hook | in_a_notebook#triton-its-version-its-files | Triton is too new
tcc.exe returned non-zero exit status 1 | in_a_notebook#a-compiler-on-windows | include
torch.compile inside a custom operator | escape_hatches#rules-for-custom-operators-and-what-they-cost | call a compiled function
mixed precision in an autograd.Function: custom_fwd | training#a-custom-autograd-function | custom_bwd
uid not found in a container | messages_kernels#files-and-caches | TORCHINDUCTOR_CACHE_DIR
BrokenProcessPool while compiling | messages_kernels#worker-processes | COMPILE_THREADS=1
Inference tensors cannot be saved for backward | messages_training#backward-passes-inference-mode | outside of the mode
is_key_in_tls AssertionError with reduce-overhead | messages_kernels#cuda-graphs | from one thread
compile only the encoder | where_to_compile#a-part-of-the-model-only-the-encoder-all-but-the-head | does not change the keys
what does shapes_spec of torch.compile do? | settings#arguments-of-torch-compile | ShapeVar
TORCH_LOGS=perf_hints | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | not make faster
0 active drivers | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | sees no GPU
the same result in each run? | cost#random-numbers-and-dropout | call `torch.manual_seed`
which pass is it? bisect | errors#backendcompilerfailed-the-graph-is-right-the-backend-fails-on-it | compiler_bisector
torch.compile in a Docker image | recipes#compile-in-a-container-docker-kubernetes | python3-dev
skip a test where Dynamo is not supported | ci#skip-a-test-where-nothing-can-be-compiled | is_dynamo_supported
compile is not a valid YOLO argument | libraries#ultralytics-yolo-missing-forward | 8.3.196
Stale file handle in Triton's cache | messages_kernels#files-and-caches | on a local disk
cl on a Windows runner | ci#slow-or-hanging-jobs | msvc-dev-cmd
my class defines __getattribute__ | causes/gb0147 | is traced
compile a LightningModule with FSDP | libraries#lightning-and-fabric | ModelParallelStrategy
load_from_checkpoint misses keys of a compiled network | libraries#lightning-and-fabric | compile after loading
the first validation of Lightning is slow | libraries#lightning-and-fabric | drop_last=True
accelerate's load_state and a compiled model | libraries#accelerate-offloading | keep_torch_compile=False
each length compiles again under accelerate launch | libraries#accelerate-offloading | ACCELERATE_DYNAMO_USE_DYNAMIC
does the Trainer compile evaluations? | libraries#transformers | runs the uncompiled model
gunicorn --preload hangs with a compiled model | recipes#gunicorn-uvicorn-gradio-streamlit | OMP_NUM_THREADS=1
the Tesla T4 skips bfloat16 | recipes#explain-a-cell-in-colab | torch.float16
FileNotFoundError of a long kernel name on Windows | in_a_notebook#a-compiler-on-windows | LongPathsEnabled
trials of Optuna run eagerly | libraries#many-models-in-one-process-optuna-folds | at the beginning of each trial
compile workers keep their memory | compile_time#worker-processes | after a minute without work
beams, or an assistant_model, with a static cache | where_to_compile#generate | rejects
switch torch.compile on in MMEngine | libraries#programs-with-a-switch-timm-torchtune-axolotl | dict(mode=...)
training diverges when compiled | cost#results-that-differ | different seeds
with the profiler on, tokens per second fall | cost#in-a-profile | take times without it
compile it? | training#no-grad-autocast-eval-inside-the-compiled-function-or-around-it | computes the same result eagerly
AOTInductor accepts another batch size | compile_time#without-a-compiler-in-production | AOTI_RUNTIME_CHECK_INPUTS=1
ComfyUI with a compile node: black images | libraries#comfyui | fp16_accumulation
slower again after other sizes were seen | recompiles#numbers-and-shapes-become-dynamic | also use that graph
Kubernetes: how many threads with a CPU limit? | cost#how-much-faster-will-the-code-be | throttled
No such file or directory: /sbin/ldconfig | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | TRITON_LIBCUDA_PATH
torch.export of RetinaNet | libraries#detectors | 10_000
does inductor use FlashAttention for my own attention? | libraries#flash-attn-xformers-sageattention | masked_fill
Unsupported: call_method ListVariable() copy [] {} | traced#lists-and-tuples | `values.copy()`
call_function BuiltinVariable(zip) with an object of mine | traced#classes | `__getitem__` only
is a set of enums supported? | traced#dicts-sets-enums-collections | a member of an `Enum` as a key
super().__setattr__ non-function or method super | traced#classes | slot wrapper '__setattr__'
random.Random(seed) in compiled code | traced#random-numbers-and-distributions | the same number on every call
sig.bind(*args) breaks | traced#the-standard-library | UserDefinedObjectVariable(Signature) bind
torch.compile does not support sparse Tensors | traced#sparse-nested-quantized-tensors-subclasses | `to_dense()` before
functools.partial as an argument | traced#itertools-functools-operator | FunctoolsPartialVariable
class defined in the function, LOAD_BUILD_CLASS | traced#classes | Move the class out
are generators supported? | traced#branches-loops-generators-exceptions-with | used up inside
np.linalg.norm in a compiled function | traced#numpy | np.einsum
hasattr tracing is unsupported | traced#numbers-attributes-types | PythonModuleVariable
clip_grad_norm_ in the compiled step | traced#training-steps-autocast-checkpointing | nn.utils.clip_grad_norm_
FunctionCtx.set_materialize_grads breaks | traced#gradients-autograd-function-torch-func | ctx.mark_non_differentiable
BUILD_SET op is unsupported | traced#dicts-sets-enums-collections | a set comprehension
is layer == self.layer0 traced? | traced#modules-and-hooks | NNModuleVariable() <built-in function eq>
__torch_function__ gives other results | traced#sparse-nested-quantized-tensors-subclasses | convert back at the end
nested layer_norm: IndexError | traced#sparse-nested-quantized-tensors-subclasses | apply `layer_norm` to the values
x[i] with a tensor fails under inductor | traced#tensors-values-that-decide-a-number-or-a-shape | index_select(0, i)
vmap with out_dims=None | traced#gradients-autograd-function-torch-func | is_batchedtensor
call_method NNModuleVariable() _get_backward_hooks | traced#modules-and-hooks | compiled_autograd = True
random.random() breaks, and randint does not? | traced#random-numbers-and-distributions | draws the same number
slow on a CPU: should I use no_grad? | cost#on-a-cpu-no-gain-threads-no-grad | a graph for training is compiled
slower under inference_mode | training#no-grad-autocast-eval-inside-the-compiled-function-or-around-it | the warm-up ran
other prompts end in OOM with reduce-overhead | cost#out-of-memory-oom-only-when-compiled | their memory is kept
900 MB of CPU memory are not given back | cost#out-of-memory-oom-only-when-compiled | shutdown_compile_workers
del in forward does not lower the peak | cost#del-and-memory-that-a-break-holds | holds its arguments
a loop over NumPy arrays compiles for 34 seconds | compile_time#slow-to-compile-loops-many-shapes | is unrolled
DeepSpeed hangs at its first step | libraries#deepspeed | raise the timeout
lora key not loaded | libraries#lora-adapters-peft | _orig_mod
the switch --torch_compile changes nothing | libraries#programs-with-a-switch-timm-torchtune-axolotl | many sizes
exactly as fast as before | cost#slower-than-eager-how-to-read-the-figures | perhaps [nothing was compiled]
inductor is slower in 2.9 than in 2.8 | cost#slower-or-more-memory-since-an-update-of-pytorch | GRAPH_PARTITION=0
compile time grew by 40% with an update | cost#slower-or-more-memory-since-an-update-of-pytorch | belongs to one version
max_seqlen_in_batch_kv == 31868 | libraries#flash-attn-xformers-sageattention | four compilations
does the cache notice that my code has changed? | compile_time#kept-on-disk-the-second-start | need not be deleted
a warm cache, and still a second | compile_time#a-cache-that-does-not-work | this is normal
PermissionError: nvcc | known_bugs#inductorerror-cppcompileerror-triton | Remove that folder
Attempting to use a closed pool | messages_kernels#worker-processes | not started again
TORCH_LOGS=fusion is empty | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | both words print nothing
what is compiled right now? | logs#progress-see-what-is-being-compiled-while-it-runs | looks as if it hangs
LayerNorm on a Mac | known_bugs#windows-macos-rocm | by more than the values themselves
Invalid NaN comparison | known_bugs#inductorerror-cppcompileerror-triton | from sympy
the return from backward has another structure | messages_kernels#custom-operators-the-definition | no defaults
accuracy drops in training | cost#results-that-differ | train twice eagerly
iresnet: inference gains, training does not | cost#slower-than-eager-how-to-read-the-figures | the backward pass
a loaded mega cache has no effect | compile_time#kept-on-disk-the-second-start | only these first calls
the first start needs the most memory | cost#out-of-memory-oom-only-when-compiled | find the choices in the cache
torch_tensorrt with sizes that vary | cost#which-backend-one-of-your-own | min_shape
reduce-overhead is slower on an RTX 4090 | cost#which-mode | if kernels are long
does fullgraph=True make it faster? | cost#which-mode | changes no speed
how to get it to run on Windows | in_a_notebook#a-compiler-on-windows | triton-windows
SparseTensor, ind2ptr | libraries#graph-networks-pyg-dgl | neither package has fake kernels
module 'torch' has no attribute 'compiler' | in_a_notebook#pytorch-or-python-is-too-old-or-too-new | with 2.1
onnx export: this is step 1/3 | messages_export#torch-onnx-export | Exception summary
No ONNX function found for aten._linalg_svd | messages_export#torch-onnx-export | custom_translation_table
Could not extract specialized integer | messages_export#sizes-dynamic-shapes | x[mask].shape[0]
export: Guard failed: x.size()[0] == 4 | messages_export#sizes-dynamic-shapes | only the sizes and integers of the example
export of a function with NumPy inside | messages_export#what-forward-changes | strict=True
a hook registered in forward | training#a-hook-that-never-runs | GB0467
my own RMSNorm kernel is slower when compiled | cost#slower-than-eager-how-to-read-the-figures | tens of microseconds
modified by an inplace operation | messages_training#backward-passes-inference-mode | even if the loss does not use it
a KV cache, and backward fails a second time | messages_training#backward-passes-inference-mode | still refers to its autograd graph
text classification on a CPU is slow | cost#on-a-cpu-no-gain-threads-no-grad | Pad to a few lengths
Tried to use data-dependent value: torch.onnx | messages#sizes-and-numbers | only a break
unsupported builtin: isinstance with an ABC | common_breaks#messages-of-earlier-releases | an abstract class
auto microbatch size, compiled | cost#out-of-memory-oom-only-when-compiled | search with the uncompiled model
latency of a server has spikes | compile_time#a-server-compile-before-the-first-request | is a call that compiles
loss NaN on a Mac, on the CPU and MPS | gpu#apple-s-gpu-mps | compare with `aot_eager`
compiled training on an M1 is slower than eager | gpu#apple-s-gpu-mps | LAYOUT_OPTIMIZATION=0
PEFT: the adapter makes the compiled model slower | libraries#lora-adapters-peft | each layer runs more operations
two compilations per block when training LoRA | libraries#lora-adapters-peft | requires_grad_()
a compiled model builds a 4D attention mask | libraries#transformers | rules out the fastest kernels
max-autotune is extremely slow, the batch size changes | cost#which-mode | tries kernels again
no kernel image is available for execution | messages_kernels#triton-and-the-gpu | get_arch_list
Expect query and key/value to have the same number of heads | libraries#messages-of-flex-attention | enable_gqa=True
flex_attention: power of 2 shared query heads | libraries#messages-of-flex-attention | FORCE_USE_FLEX_ATTENTION
max_autotune_gemm_backends TRITON fails for a convolution | messages_kernels#inductor-generated-code | keep `ATEN`
a loop that fills a tensor step by step is slow | compile_time#slow-to-compile-loops-many-shapes | torch.stack
checkPoolLiveAllocations with max-autotune in ComfyUI | messages_kernels#cuda-graphs | --disable-cuda-malloc
how to turn compiling off in CSM | libraries#programs-with-a-switch-timm-torchtune-axolotl | NO_TORCH_COMPILE=1
how do I compile a NequIP model? | libraries#programs-with-a-switch-timm-torchtune-axolotl | in the configuration
every new prompt length compiles the prefill | where_to_compile#generate | pad_to_multiple_of
hip_utils.c cannot be compiled on Windows with AMD | in_a_notebook#a-compiler-on-windows | clang-cl
a recomputation takes another graph | training#checkpointerror-a-compiled-block-whose-sizes-vary | _set_lru_cache
save a model compiled with torch_tensorrt | cost#which-backend-one-of-your-own | torch_tensorrt.save
torch.compile inside my own backend | cost#which-backend-one-of-your-own | compile_fx(graph, inputs)
'L['x']' requires_grad mismatch of torchtune's LoRA | causes/recompile-requires-grad | costs one compilation, once
'NoneType' object has no attribute 'store_cubin' | messages_kernels#triton-and-the-gpu | leave out `max-autotune`
scipy.fft.dctn: no attribute IF_NEEDED | libraries#scipy-opencv-pybind-cuda-kernels | as in PyTorch's tutorial
does torchsparse work, and its gradients? | libraries#scipy-opencv-pybind-cuda-kernels | keeps its gradients
int(round(np.floor(3.1))) raises TorchRuntimeError | messages#fake-tensors-types-devices | a NumPy number is an array
reduce-overhead with dynamic padding: 9 distinct sizes | gpu#each-size-is-recorded-again-slow-calls-memory | Pad batches
metrics stay frozen with EMA weights | training#before-or-after-to-load-state-dict-deepcopy | the next call uses them
what does --enforce-eager do? | libraries#vllm-sglang | saves start-up time
a policy of linear layers is not faster | libraries#reinforcement-learning-stable-baselines3-torchrl | gains nothing
wandb.watch with a compiled model | libraries#wandb-tensorboard-mlflow | leave it out
OneCycleLR recompiles the step although lr is a tensor | recompiles#a-learning-rate-that-changes | momentum
vLLM: the first request has a high TTFT | libraries#vllm-sglang | before users do
vLLM on a CPU uses few cores | libraries#vllm-sglang | delete the folder
warming up Whisper takes 10 minutes | where_to_compile#generate | records none
uv venv: Python.h not found | in_a_notebook#a-compiler-on-linux-in-a-container-in-wsl-on-a-mac | includes its headers
the example of PyG gains 4 percent | libraries#graph-networks-pyg-dgl | gains little
a speech model with varying lengths gets slower | cost#slower-than-eager-how-to-read-the-figures | for any size
compiled_autograd compiles after each zero_grad | training#do-you-need-compiled-autograd | zeroed instead of set to `None`
the second call is extremely slow with reduce-overhead | gpu#each-size-is-recorded-again-slow-calls-memory | one records
not tensor-likes are close: GroupNorm in eval mode | cost#results-that-differ | divides rounding errors
BatchNorm and Conv2d: max relative error 0.1 | cost#results-that-differ | close to zero says nothing
reduce-overhead trains worse on ROCm | cost#results-that-differ | be reproduced with newer
torch.prod and fmin differ in my comparison | cost#results-that-differ | its own copy
all gradients become NaN on an H100 with bf16 | cost#where-does-nan-come-from | enable_cudnn_sdp
an assert is ignored after a print | known_bugs#wrong-results | that fails raises nothing
UserWarning about torch._utils from my optimizer | messages_warnings#breaks-and-recompiles | calls an old name
AssertionError: not bool like VR[1.0, 1.0] | messages_kernels#inductor-generated-code | A bug in Inductor
fold fails in inductor with an AssertionError | messages_kernels#inductor-generated-code | within a release or two
LoweringException at one op | errors#backendcompilerfailed-the-graph-is-right-the-backend-fails-on-it | calls unchanged
autograd.Function with an enum | training#a-custom-autograd-function | nor does an enum
blocks compiled one by one: overwritten | gpu#tensor-output-overwritten-by-a-subsequent-run | in between
does TORCH_COMPILE_DISABLE=0 enable it again? | escape_hatches#set-stance-compile-nothing-for-a-while | unset the variable
Torch not compiled with XPU enabled | in_a_notebook#the-gpu-is-too-new-too-old-or-not-from-nvidia | PyTorch for your device
Arc A770: MODULE_BUILD_FAILURE | in_a_notebook#the-gpu-is-too-new-too-old-or-not-from-nvidia | more registers
a cache of rotary embeddings is overwritten | gpu#tensor-output-overwritten-by-a-subsequent-run | keeps in an attribute
complex numbers of Qwen Image fail at random | messages_warnings#precision-and-the-gpu | fail now and then
CP 32 and torch.compile hang | training#tensor-parallel-parallelize-module | 32 ranks
compile or AMP: which gains more? | cost#how-much-faster-will-the-code-be | can be combined
aten::_conj() found type 'complex' | messages#messages-that-only-older-releases-raise | x * 1j
Cannot call sizes() on tensor with symbolic sizes | messages#messages-that-only-older-releases-raise | so update
interpolate with dynamic=True gives a wrong shape | messages#messages-that-only-older-releases-raise | element too short
Mistral fails with a second length | messages#messages-that-only-older-releases-raise | be static by this point
instance_norm with symbolic sizes/strides | messages#messages-that-only-older-releases-raise | F.adaptive_max_pool1d
slice step is zero with dynamic shapes | messages#messages-that-only-older-releases-raise | x[::y.shape[0]]
RecursionError with a __getattr__ of mine | messages#messages-that-only-older-releases-raise | self.inner
torch.compile(F.layer_norm) AssertionError | messages#messages-that-only-older-releases-raise | silu
short training gets longer, 10 s to 85 s | cost#after-how-many-calls-has-compiling-paid | compile time /
the second call of Swin on a CPU takes 19 s | compile_time#the-second-call-is-slow-too-warm-up | backward
dynamic=True compiles forever | compile_time#slow-to-compile-loops-many-shapes | creates a symbol
the experts of a MoE use tolist() | fullgraph | compute every expert
channels_last: convert the model myself? | cost#how-much-faster-will-the-code-be | if it expects a gain
compile on a second GPU to save VRAM | cost#out-of-memory-oom-only-when-compiled | runs on the CPU
block swap and compile fill the VRAM in ComfyUI | libraries#comfyui | swap its blocks
Could not find schema for mylib::op (package) | messages_export#aotinductor-aot-compile-files | import the module
AOTI: API call failed at model_container | messages_export#aotinductor-aot-compile-files | AOTI_RUNTIME_CHECK_INPUTS
fake tensor in the exported program's constants | messages_export#what-forward-changes | torch.no_grad()
Mutating module attribute hw during export (YOLOX) | messages_export#what-forward-changes | Return the value
DynamicCache in output, which is not a known type | messages_export#arguments-and-results | DynamoExporter
tracing inferred a static shape, ONNX batch size | messages_export#sizes-dynamic-shapes | x.view(x.shape[0], 3)
set_runtime_stats_and_log of class Logger (accelerate) | messages_training#ddp-distributeddataparallel | inside it
torch.* op returned non-Tensor get_autocast_gpu_dtype | causes/gb0208#a-query-about-the-machine-torch-backends-mps-is-available-torch-get-num-threads-get-device-name-triton-s-get-current-target-arch | are traced
aiter get_arch breaks on a GPU only | causes/gb0208#a-query-about-the-machine-torch-backends-mps-is-available-torch-get-num-threads-get-device-name-triton-s-get-current-target-arch | AMD
which code breaks only on a GPU? | gpu | get_current_target
data_ptr() % 16 in PyTorch 2.9 | causes/gb0059#tensor-data-ptr | address
load_in_8bit, load_in_4bit with torch.compile | libraries#quantization-torchao-qat | Linear4bit
TORCH_TRACE files without rank_ for tlparse | logs#which-file-does-tlparse-take | rename
number of boxes per image varies: recompiles? | libraries#detectors | two compilations in all
no compiled frames: Dynamo tracing is disabled | messages#stances-limits-fullgraph-true | TORCH_COMPILE_DISABLE
compile() got an unexpected keyword argument shapes_spec | settings#arguments-of-torch-compile | `dynamic_shapes`
post-processing of a detector breaks at tolist | libraries#detectors | in an outer function
loop over detections at the end of predict | causes/gb0109 | run that end in an outer function
nonstrict_trace on a method of nn.Module | escape_hatches#nonstrict-trace-trace-through-without-looking | from 2.13 on
custom op: how often does vmap call it? | escape_hatches#rules-for-custom-operators-and-what-they-cost | once for all rows
fullgraph=True found no compiled frames | messages#stances-limits-fullgraph-true | remembers
register_fake takes 1 positional argument | messages_kernels#custom-operators-fake-kernels | needs the same parameters
vmap: must override the setup_context staticmethod | messages_training#second-gradients-vmap | generate_vmap_rule
vLLM: auto_functionalized was not removed | messages_kernels#inductor-generated-code | --enforce-eager
Hardware limit: 232448 for benchmark choice | messages_warnings#kernels-autotuning | leaves it out
a profiler shows cudaGraphLaunch only | cost#in-a-profile | start at once
DTensor: aten.as_strided has no sharding strategy | messages_training#fsdp-dtensor-tensor-parallel | Return a copy
Operator aten.ne.Tensor: no sharding strategy (FSDP) | messages_training#fsdp-dtensor-tensor-parallel | x.full_tensor()
'_OpNamespace' object has no attribute | messages_kernels#custom-operators-the-definition | reinstall it
not register a meta kernel directly | messages_kernels#custom-operators-the-definition | remove its `register_fake`
We should not register a meta kernel | messages_kernels#custom-operators-the-definition | remove its `register_fake`
Triton Error [CUDA]: out of memory | messages_kernels#triton-and-the-gpu | outside the part that PyTorch
torch.onnx: Obtain model graph, strict=False, a cross | messages_export#torch-onnx-export | attempt to capture
Flash Attention: a non-deterministic algorithm | messages_warnings#precision-and-the-gpu | from run to run
flex_attention: KeyError for a mask made of a tensor | libraries#messages-of-flex-attention | index the tensor once
Error in dlopen of model.so, undefined symbol | messages_export#aotinductor-aot-compile-files | different libtorch
torch.compile kills the system on a Strix Halo | known_bugs#windows-macos-rocm | Update PyTorch with its ROCm
using FX to symbolically trace a dynamo-optimized function | messages#keras-torchscript-fx | the original function
input tensor deallocate during graph recording | messages_kernels#cuda-graphs | without a mode
torchrun: ChildFailedError, exitcode 1 | messages_training#ranks-that-fail-or-hang | launcher's summary
TracerWarning: Converting a tensor to a boolean | messages_warnings#export-onnx-aotinductor | that the example took
"Step 2" in a log | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | goes to the backend
the folder of TORCH_TRACE is empty | logs#which-file-does-tlparse-take | Nothing was compiled
UnsupportedOperatorError of the ONNX exporter | messages_export#torch-onnx-export | has no rule
what speed-up can I expect in ComfyUI? | libraries#comfyui | 20 to 30%
torch.compile of cross_entropy alone is slower | cost#slower-than-eager-how-to-read-the-figures | nothing to fuse
the guards got slower with 2.12 | cost#slower-or-more-memory-since-an-update-of-pytorch | Cache Lookup
swap LoRAs in diffusers without compiling | libraries#lora-adapters-peft | target_rank
a policy of selective checkpointing is ignored | cost#out-of-memory-oom-only-when-compiled | aten.mm.out
per-sample gradients and ensembles | training#a-gradient-of-a-gradient | belong inside
none_dealloc after 4000 steps | errors#crashes-and-hangs | is never freed
SourcelessBuilder.create does not know how to wrap a class | causes/gb0116 | Make the object outside
async tensor parallel has no effect | training#tensor-parallel-parallelize-module | lose it without an error
see the Triton code | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | Triton or C++
is FlashAttention really used? | libraries#flash-attn-xformers-sageattention | raises an error if that kernel
self.forward = torch.compile(self.forward) in __init__ | where_to_compile#torch-compile-above-a-method | one instance
which backends are there? nvFuser, TVM | cost#which-backend-one-of-your-own | need their packages
TensorRT or torch.compile: which is faster? | cost#which-backend-one-of-your-own | Measure both
only the validation gets worse | cost#results-that-differ | which has the same weights
the time left of my progress bar is wrong | compile_time#the-second-call-is-slow-too-warm-up | out of a benchmark
compile in the background while the program runs | compile_time#while-you-change-code-wait-less | threading.Thread
spectral_norm and pruning with torch.compile | training#what-breaks-in-training-code | orthogonal
distillation: teacher or student? | training#what-breaks-in-training-code | compile each network
%autoreload and a compiled function | in_a_notebook#a-cell-that-runs-again | compiles the new code
vLLM fails in aot_compile | libraries#vllm-sglang | VLLM_USE_AOT_COMPILE=0
random actions are the same in each replay of a CUDA graph | gpu#cuda-graphs | check that they differ
replace a layer after torch.compile | training#before-or-after-to-load-state-dict-deepcopy | the next call uses it
a schedule of the dropout recompiles | training#before-or-after-to-load-state-dict-deepcopy | each value causes a compilation
weight tying in a compiled model | training#before-or-after-to-load-state-dict-deepcopy | the same gradients
model.compile() of a class with __call__ does nothing | where_to_compile#another-method-than-forward | defines its own `__call__`
cudnn.benchmark and torch.compile | cost#how-much-faster-will-the-code-be | also has an effect there
I copied the cache to another machine | compile_time#a-cache-that-does-not-work | so a copied folder is used
another OMP_NUM_THREADS misses the cache | compile_time#a-cache-that-does-not-work | number of threads
how slow is a custom_op? | escape_hatches#rules-for-custom-operators-and-what-they-cost | 12 µs
the first step of each epoch is slow | cost#slower-than-eager-how-to-read-the-figures | persistent_workers
some steps take minutes, the GPU is idle | cost#slower-than-eager-how-to-read-the-figures | a new size or mode
the DataLoader gets slow while compiling | compile_time#worker-processes | minus the number of
the kernel dies when I compile | errors#crashes-and-hangs | Killed process
compile a ControlNet | libraries#diffusers | also runs in every step
fp8 training with torchao | libraries#quantization-torchao-qat | convert_to_float8_training
__closure__[1].cell_contents == 1 recompiles | recompiles#what-a-guard-says-in-pytorch-s-words | an inner function uses
are coordinate_descent_tuning and conv_1x1_as_mm needed? | libraries#diffusers | measure each
does compiling turn on TF32? | cost#how-much-faster-will-the-code-be | set_float32_matmul_precision
autocast or bfloat16? | training#no-grad-autocast-eval-inside-the-compiled-function-or-around-it | needs no casts
a BatchEncoding moved to the device in forward | libraries#transformers | move it before the call
top-k sampling in compiled code | where_to_compile#generate | torch.multinomial
the warm-up changes my batch norm | compile_time#the-second-call-is-slow-too-warm-up | undo this with
fastai learner with torch.compile | libraries#fastai | before `learn.fit(...)`
Opacus make_private and torch.compile | libraries#opacus-gradients-of-each-sample | grad_sample_mode="no_op"
NeMo ASR model: transcribe fails with CUDA graphs | libraries#nemo | use_cuda_graph_decoder
DGL GraphConv breaks everywhere | libraries#graph-networks-pyg-dgl | every call to a `DGLGraph`
accelerate with FSDP2 is slower than eager | libraries#accelerate-offloading | bypassed FSDP's hooks
Captum attributions of a compiled model | libraries#captum | give them the original model
snntorch Leaky neurons | libraries#kornia-monai-openclip-speechbrain | a loop over steps included
a MIG slice of an A100 | gpu#a-part-of-a-gpu-mig | CUDA_VISIBLE_DEVICES
torch.compile or JAX? | frontends#compared-with-jax-jit | TracerBoolConversionError
GradScaler inside the compiled step | training#what-breaks-in-training-code | let Python run the scaler
LBFGS with a closure | where_to_compile#which-optimizers-can-be-compiled | runs eagerly, so compile the model
schedule-free AdamW recompiles | where_to_compile#which-optimizers-can-be-compiled | run it eagerly
AdamW8bit: frozen storage | where_to_compile#which-optimizers-can-be-compiled | compile their own step
Newton-Schulz of Muon compiles for each shape | recompiles#an-optimizer-of-your-own-parameters-of-many-shapes | wide and for tall matrices
a hidden state that is None at first | recompiles#once-for-each-kind-a-mode-a-type-a-state | when it is reset
nvtx ranges break the graph | cost#in-a-profile | put it around the call
switch compiling off in tests | ci#slow-or-hanging-jobs | does nothing
dynamic=True, and it still recompiles | recompiles#the-model-still-compiles-for-each-length | a loop over the size
optree | libraries#scipy-opencv-pybind-cuda-kernels | is traced)
PyInstaller app with torch.compile: could not get source code | compile_time#a-packaged-program-pyinstaller-cx-freeze | keeps the sources
SpecViolationError: not in Core ATen opset (ExecuTorch) | messages_export#executorch | model.eval()
Cell magic %%compile_explain not found | messages#jupyter-and-this-package | %load_ext jupyter_graphbreak
Failed to load model class AnyModel | messages#jupyter-and-this-package | in JupyterLab's own environment
CompiledFunctionBackward returned nan values | messages_training#backward-passes-inference-mode | once uncompiled
Mixing fake modes NYI | messages#fake-tensors-types-devices | two traces
higher order operator must be captured completely | messages#while-dynamo-traces | Got graph break/error
cannot assign module before Module.__init__() call | messages#in-the-call-or-in-a-setting | super().__init__()
tensors in the cudagraph pool not tracked as outputs | messages_kernels#cuda-graphs | such as a workspace
infer_schema: Tensor is not a type | messages_kernels#custom-operators-the-definition | not under `TYPE_CHECKING`
user stack suppressed due to duplicate graph break | messages_warnings#breaks-and-recompiles | the same break again
the frozen exe starts again and again | compile_time#a-packaged-program-pyinstaller-cx-freeze | TORCHDYNAMO_DISABLE
coordinate descent tuning runs again on a warm cache | settings#results-speed-and-memory-inductor | no longer in 2.13's code
the CUDA memory snapshot hangs with torch.compile | cost#how-much-memory-does-compiled-code-take | stacks="python"
flex_attention BACKEND='FLASH' cannot be used | libraries#messages-of-flex-attention | flash-attn-4
flex_attention slower than FlashAttention-2 | libraries#flex-attention-block-masks | leaves whole blocks out
PyG: a Data object made in forward | libraries#graph-networks-pyg-dgl | pass tensors instead
RGCNConv has many graph breaks | libraries#graph-networks-pyg-dgl | FastRGCNConv
DDP with growing sequence lengths recompiles each step | training#ddp-distributeddataparallel-compile-inside-or-outside | as without DDP
policy and reference model of RLHF recompile | recompiles#instances-share-one-count | one for those that train
gradients of several batches, then one step | training#what-breaks-in-training-code | gradient accumulation
GPU memory after generate with a static cache | where_to_compile#generate | model._cache
PPO of rsl_rl in Isaac Lab | libraries#programs-with-a-switch-timm-torchtune-axolotl | torch_compile_mode
a simulator written in PyTorch (mujoco-torch) | libraries#reinforcement-learning-stable-baselines3-torchrl | compile its step
stride mismatch at index 0, one image and then two | recompiles#the-model-still-compiles-for-each-length | start with a size of 2
the compiled step adds a key to its input dict | recompiles#once-for-each-kind-a-mode-a-type-a-state | put the key there
the first epoch takes hours, then it is fast | compile_time#slow-to-compile-loops-many-shapes | declare up front what varies
make_fx of energy and forces trains wrongly | training#a-gradient-of-a-gradient | aten.detach
a cold start on Modal or SageMaker compiles each time | recipes#compile-in-a-container-docker-kubernetes | put the folder on a volume
QLoRA and torch.compile | libraries#lora-adapters-peft | 4-bit layers
many modules of one class, the ninth runs eagerly: what to do? | recompiles#instances-share-one-count | isolate_recompiles=True
float keys of a dict, one for each instance | recompiles#instances-share-one-count | the key of a dict
a counter picks a layer of a ModuleList at each step | recompiles#integers-of-a-module | pass the layer as an argument
self.layers[self.pos] recompiles | causes/recompile-module-int | choose outside
may I forbid all breaks except torch.compiler.disable? | escape_hatches#torch-compiler-disable-leave-a-function-out | and wrap the function
torch._dynamo.skip has no effect on a function that is inlined | escape_hatches#torch-compiler-disable-leave-a-function-out | recursive=False
an allowed break in a loop, and nothing is compiled | error_on_graph_break#around-a-block | cannot resume
a class defined under error_on_graph_break(False) | error_on_graph_break#around-a-block | has the same effect
whether it is compiled depends on which call comes first | skipped#remembered-skips-an-earlier-call-a-mode | the order of the calls
FlopCounterMode, then nothing is compiled | skipped#remembered-skips-an-earlier-call-a-mode | before torch 2.14
is a branch on x.shape a break? | causes/gb0170#if-on-a-tensor | compiles once more when
layers around an LSTM are not compiled | causes/gb0014 | 2.15 compiles both
self.logger.experiment.log of an image recompiles matplotlib | libraries#wandb-tensorboard-mlflow | @torch.compiler.disable
cache[:, start:end] = key with a tensor as start | where_to_compile#a-kv-cache-of-your-own-position-and-length | the graph ends there
compile_on_one_rank: a process group's name misses the cache | compile_time#a-cache-that-does-not-work | independent of it
dynamic=False in an inner torch.compile | cost#which-mode | are ignored
assert counter.frame_count == 1 in a test | logs#counters-of-zero-prove-nothing | makes no second graph
cudagraph_skip_dynamic_graphs still records each size | gpu#each-size-is-recorded-again-slow-calls-memory | is recorded nevertheless
fullgraph: found no compiled frames under eager_on_recompile | messages#stances-limits-fullgraph-true | 2.12
DETR: the loss with a Hungarian matcher | libraries#detectors | with SciPy
GLiClass's ragged classes | case_studies#ragged-classes-gliclass | one sort brings
TabPFN: an optional import, 43 fragments | case_studies#an-optional-import-in-the-hot-path-tabpfn | when the module is loaded
the longest length of a batch: each value recompiles (torchtitan) | case_studies#lengths-as-python-numbers-torchtitan | zero-dimensional tensor
OneCycleLR and a rate that is a tensor | case_studies#a-scheduler-that-moves-beta1-adamw | cycle_momentum=False
is_compiling makes a 4-D mask, slow without a break | case_studies#a-mask-that-is-only-built-while-compiling-transformers | can pass a mask only if there is
fairchem: autocast, every start is cold | case_studies#autocast-in-forward-fairchem | around the call
transformers: loss_function breaks the graph | libraries#transformers | when the model is built
the backward of my custom operator | escape_hatches#a-gradient-for-a-custom-operator-register-autograd | setup_context=keep
TorchFunctionMode graph break | traced#sparse-nested-quantized-tensors-subclasses | a `TorchFunctionMode` that prints
a wrong result under a TorchFunctionMode | known_bugs#wrong-results | computes an earlier one
a list of floats from .tolist() under fullgraph=True | causes/gb0109 | they capture single values
batch norm on masked rows: norm(x[mask]) | causes/gb0036#x-mask-masked-select | as weights
a loop over torch.unique(classes) | causes/gb0036#bincount-unique-masked-select-argwhere | loop over all classes
requires_grad mismatch, although all calls are under no_grad | causes/recompile-requires-grad | even if both calls
a forked process writes into its parent's trace | logs#which-file-does-tlparse-take | gives it its own
DDPOptimizer intentional graph-break | training#where-the-graph-is-cut | neither a break in your code
a context manager object made before a break | causes/gb0262 | create it in the `with`
does Dynamo throw away graphs when its cache is full? | recompiles#the-limit-recompile-limit-is-reached | keeps all graphs
which torch.compile call led to this compilation? | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | *start compiling*
torch_geometric.compile does not speed up training | libraries#graph-networks-pyg-dgl | gains little
expected Tensor as element 0 in argument 0, but got torch.Size | known_bugs#internaltorchdynamoerror-and-other-dynamo-errors | torch.tensor(x.shape)
compile() got an unexpected keyword argument 'isolate_recompiles' | messages#in-the-call-or-in-a-setting | 2.9 does not
vLLM compiles a second time | libraries#vllm-sglang | a draft model
the time that a custom operator adds | escape_hatches#rules-for-custom-operators-and-what-they-cost | for each call
DynamicCache results in too many recompiles | where_to_compile#generate | costs three compilations
a property setter is bypassed in compiled code | known_bugs#wrong-results | without its setter
SemLock.acquire breaks the graph | causes/gb0142#a-lock | replay buffers
generalized_box_iou_loss breaks the graph | libraries#detectors | at `x[mask]`
is there an environment variable for recompile_limit? | recompiles#raising-the-limit | no environment variable
stride mismatch at index 0. expected 14, actual 18, for each number of points | causes/recompile-stride | become dynamic with it
use_duck_shape | causes/recompile-equal-sizes | use_duck_shape = False` (*safe*)
torch.cond: operands must be a tuple (GB0311) | causes/others#gb0311-torch-cond-improper-operands | as a tuple
compiled LSTM on a CPU: expected Tensor() for op: torch.ops.aten.mkldnn_rnn_layer | causes/gb0014#fixes-in-the-order-to-try-them | pass `x.requires_grad_()`
parts of a sparse tensor as arguments: IndexError, tuple index out of range | traced#sparse-nested-quantized-tensors-subclasses | `values().clone()`
os.getenv gives an old value in compiled code | traced#the-standard-library | becomes a constant
an assert whose message shows the tensor | traced#branches-loops-generators-exceptions-with | Use a fixed text.
is time.time() read at the right moment? | traced#the-standard-library | Read the clock around the call.
a forward hook that prints | traced#modules-and-hooks | splits the graph around its module
register_full_backward_hook with compiled autograd | traced#modules-and-hooks | the module does not break
does each CUDA graph of a size need its own memory? | gpu#each-size-is-recorded-again-slow-calls-memory | share memory
is a CUDA graph recorded again for an input at a new address? | gpu#each-size-is-recorded-again-slow-calls-memory | other inputs are copied
which releases have graph_partition? | gpu#skipping-cudagraphs-the-reasons | on in torch 2.9
exceeding max re-recording limit | gpu#skipping-cudagraphs-the-reasons | Use `.clone()` on such an output
does model.eval() compile a model without dropout again? | training#no-grad-autocast-eval-inside-the-compiled-function-or-around-it | if a layer such as dropout
a hook on the wrapper of torch.compiler.disable | training#a-hook-that-never-runs | on the wrapper is traced
autograd.grad with create_graph after a break | training#a-gradient-of-a-gradient | the same error is raised
compiled autograd captures in each step | training#do-you-need-compiled-autograd | creates the class
patch_dynamo_config(capture_scalar_outputs=True) | settings#functions-of-torch-compiler-and-torch-dynamo | `.item()` breaks even
the default of torch.compile's backend | settings#arguments-of-torch-compile | `None` is `"inductor"`
does a compiled Llama build a full attention mask? | libraries#transformers | only with `use_cache=False`
does writing each step into a tensor make compiling slower? | compile_time#slow-to-compile-loops-many-shapes | about twice as fast
a nested tensor and the cache | traced#sparse-nested-quantized-tensors-subclasses | generated code is reused
RecursionError of as_subclass in __torch_function__ | traced#sparse-nested-quantized-tensors-subclasses | In the compiled function, compute
ignore_logging_functions does not exist in 2.9 | settings#names-that-older-releases-do-not-have | *does not exist*
ignore_logging_functions: logging breaks in 2.9 | settings#graph-breaks-and-what-is-traced | ignore_logger_methods
a Logger method in reorderable_logging_functions | causes/gb0291 | before PyTorch 2.15
TORCH_LOGS prints nothing under pytest | ci#torch-logs-in-a-test | caplog.text
with torch.cuda.stream(s) and wait_stream in forward | traced#contexts-operators-attention | without a break
is f still compiled after torch.compiler.disable(f)? | escape_hatches#torch-compiler-disable-leave-a-function-out | returns a new function
what do the colors in tlparse's pages mean? | logs#which-file-does-tlparse-take | as at a break
CompileProfiler | common_breaks#messages-of-earlier-releases | gone in 2.9
explain(f, x) is deprecated | logs#torch-dynamo-explain-counts-fewer-breaks | its old form
to_dense_batch breaks although batch_size is given | libraries#graph-networks-pyg-dgl | max_num_nodes
old post: torch._dynamo.config.log_level, print_graph_breaks | common_breaks#messages-of-earlier-releases | accumulated_recompile_limit
a function with torch.compile(disable=True) inside a compiled one | settings#arguments-of-torch-compile | still traces it
what is counters["stats"]["calls_captured"]? | logs#counters-of-zero-prove-nothing | and operations
break_reasons of explain is too short | logs#torch-dynamo-explain-counts-fewer-breaks | misses the same breaks
mark_dynamic and a buffer of the same size: ConstraintViolationError | recompiles#mark-dynamic-raises-an-error-or-has-no-effect | of a global tensor
compile only the function of this name | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | TORCHDYNAMO_DEBUG_FUNCTION
TORCHDYNAMO_DYNAMIC_SHAPES=1 | settings#settings-that-no-longer-have-an-effect | TORCHDYNAMO_REPORT_GUARD_FAILURES
GATConv and GCNConv break | libraries#graph-networks-pyg-dgl | add_self_loops=False
does HeteroConv break? | libraries#graph-networks-pyg-dgl | are one graph
GraphNorm breaks at item() | libraries#graph-networks-pyg-dgl | need `batch_size`
mark_dynamic in forward: Attempt to trace forbidden callable | messages#stances-limits-fullgraph-true | before the compiled function runs
mark_dynamic was set before x.to(device) | recompiles#mark-dynamic-raises-an-error-or-has-no-effect | do not inherit it
several conditions fix a size, no ConstraintViolationError | recompiles#mark-dynamic-raises-an-error-or-has-no-effect | each size causes a recompile
recompile for each layer_idx | where_to_compile#each-block | for each number
RF-DETR compile=True has no effect | libraries#programs-with-a-switch-timm-torchtune-axolotl | earlier releases compiled nothing
patches of a LoRA differ by their key in ComfyUI | libraries#comfyui | no longer differ
self.log of a compiled LightningModule | libraries#lightning-and-fabric | depending on PyTorch's release
shape padding and checkpointing: a shape differs on recomputation | training#checkpointerror-a-compiled-block-whose-sizes-vary | chosen by timing
GLOBAL_STATE changed: num_threads, with checkpointing | messages_training#checkpointing | before the first call
dynamic=True compiles for a long time | recompiles#declare-up-front-what-varies-dynamic-true-mark-dynamic | compiles slowly
disk quota of the cache | messages_kernels#files-and-caches | full or read-only disk
where does the program hang? py-spy | errors#crashes-and-hangs | dump_traceback_later
the first call is stuck and no process is busy | errors#crashes-and-hangs | TORCHINDUCTOR_COMPILE_THREADS=1
SIGTERM of torchrun | errors#crashes-and-hangs | another rank failed first
a lock in a cached_property | causes/gb0142#a-lock | Python 3.11 and older
nn.Linear made in forward | causes/gb0264 | also creates its parameters
torch.cuda.empty_cache in forward | causes/gb0007#gc-collect | Also call that outside
random.shuffle in forward | causes/gb0007#random-random | before the compiled function runs
optimizer.zero_grad() inside | traced#training-steps-autocast-checkpointing | Reset the gradients outside
os.environ in forward | traced#the-standard-library | a different value causes a recompile
does lru_cache work? | traced#itertools-functools-operator | without its cache
break in ExitStack, closing | causes/gb0262 | enter_context
torch.Tensor.add(x, 1) | traced#tensors-functions-properties-indices | call_function method_descriptor
a ctypes function | traced#contexts-operators-attention | Wrap the function in a custom op
index_put with a boolean mask: skipping cudagraphs | gpu#skipping-cudagraphs-the-reasons | torch.where(mask, new, x)
strides of expected 14, actual 18 | causes/recompile-stride | become dynamic with it
NFS as the cache folder of several machines | compile_time#kept-on-disk-the-second-start | a folder on a network drive
Redis for the cache | settings#caches-on-disk | TORCHINDUCTOR_REDIS_HOST
the cache for a Docker image | compile_time#kept-on-disk-the-second-start | same model of GPU
how much do graphs of Inductor's cache need, may I delete them? | compile_time#kept-on-disk-the-second-start | PyTorch never empties it
forward passes alone: AOTAutograd's cache misses at each start | compile_time#a-cache-that-does-not-work | only when its `backward()` has run
TORCH_LOGS for cache hits and misses | compile_time#a-cache-that-does-not-work | torch._inductor.codecache
does a comment in my file invalidate the cache? | compile_time#a-cache-that-does-not-work | lines and comments
breakpoints are not hit in VS Code | recipes#explain-a-cell-in-vs-code | Run the call eagerly
bfloat16 on a Tesla T4 in Colab | recipes#explain-a-cell-in-colab | torch.float16
Stale file handle in a Slurm job | recipes#record-and-read-a-slurm-job | TRITON_CACHE_DIR
pytest -n and compile workers | ci#slow-or-hanging-jobs | TORCHINDUCTOR_COMPILE_THREADS=1
a test needs an empty cache | ci#tests-that-pass-alone-and-fail-together | fresh_cache
assert in a test file breaks | ci#an-assert-in-the-file-of-a-test | --assert=plain
script_method is deprecated under -W error | ci#warnings-that-are-errors-w-error | filterwarnings
coverage of compiled functions | ci#coverage | omit =
TORCH_COMPILE_DISABLE=1 in CI and fullgraph | ci#slow-or-hanging-jobs | RuntimeError
count only the breaks of my package in CI | ci#count-your-own-breaks-apart-from-a-library-s | within="mypackage"
which break should I fix first? | cost#which-break-first | inner loop
break-even calls of a small model | cost#after-how-many-calls-has-compiling-paid | never pays off
the clock measures only launches | cost#a-stopwatch-that-can-be-trusted | elapsed_time
time to compile each function's tracing | compile_time#what-takes-the-time | TORCH_COMPILE_DYNAMO_PROFILER
explain compiles with my options? | logs#torch-dynamo-explain-counts-fewer-breaks | have no effect
after explain, everything is compiled again | logs#torch-dynamo-explain-counts-fewer-breaks | It resets Dynamo
tlparse: rank files without rank_ in their names | logs#which-file-does-tlparse-take | init_process_group
tlparse --latest fails | logs#which-file-does-tlparse-take | is not a file
[1/0_1] in tlparse | logs#what-1-0-means-and-where-a-guard-comes-from | second attempt
TORCH_LOGS of one rank under Slurm | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | SLURM_PROCID
TORCH_LOGS into a file | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | TORCH_LOGS_OUT
TORCH_COMPILE_DEBUG writes no folder | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | code came from the cache
NCCL watchdog while another rank compiles | logs#prevent-ranks-from-hanging | timedelta(hours=1)
is TORCH_COMPILER_COLLECTIVES safe? | logs#prevent-ranks-from-hanging | all ranks compile at the same time
FSDP and an all-to-all in compiled code hang | logs#prevent-ranks-from-hanging | in a different order
box_iou and roi_align under torch.compile | libraries#detectors | are one graph
RetinaNet fullgraph | libraries#detectors | batched_nms
number of target boxes varies | libraries#detectors | two compilations in all
accelerate launch: each length recompiles | libraries#accelerate-offloading | ACCELERATE_DYNAMO_USE_DYNAMIC
device_map="auto" breaks at each hook | libraries#accelerate-offloading | excluded from compiling on purpose
unwrap_model keeps _orig_mod | libraries#accelerate-offloading | keep_torch_compile=False
the validation of Lightning compiles again | libraries#lightning-and-fabric | inference_mode
LightningCLI and torch.compile | libraries#lightning-and-fabric | no argument for compiling
a generator and a discriminator hit the limit? | recompiles#instances-share-one-count | stay below the limit
folds or seeds in one process | recompiles#instances-share-one-count | before each model
ten functions with one decorator share a limit | recompiles#a-limit-that-functions-share | *one* code object
a second torch.compile with fullgraph=True raises no error | recompiles#a-second-torch-compile-of-the-same-function | if its guards hold
a lambda as backend compiles again | recompiles#a-second-torch-compile-of-the-same-function | create a
a disabled function inside, and fullgraph=True | escape_hatches#torch-compiler-disable-leave-a-function-out | is an error
disable a submodule without _orig_mod keys | escape_hatches#torch-compiler-disable-leave-a-function-out | disable its `forward`
a break in the loop body: work in a function | skipped#a-break-in-a-loop | even if its caller is skipped
expected type of 'x' to be a tensor type, but found torch.Tensor | recompiles#what-a-guard-says-in-pytorch-s-words | instead of a `Parameter`
dispatch key set mismatch. expected ..., actual ADInplaceOrView | recompiles#what-a-guard-says-in-pytorch-s-words | created under `inference_mode()`
AsyncCollectiveTensor in some calls, a plain tensor in others | training#tensor-parallel-parallelize-module | causes recompiles
warm up a pipeline with one prompt, the next length is slow | compile_time#the-second-call-is-slow-too-warm-up | Warm up with two sizes
MoE: a loop over experts with .tolist() | fullgraph | grouped_mm
TransformerEngine layers are breaks | libraries#i-never-called-torch-compile | on purpose
Keras attention: SDPAParams breaks the graph | causes/gb0007#a-python-function-that-dynamo-skips | is not needed while compiling
JSONDecodeError Extra data with several ranks | messages_kernels#files-and-caches | its own folder on a local disk
GPUs of one machine do not share the cache | compile_time#kept-on-disk-the-second-start | CUDA_VISIBLE_DEVICES
assume_constant_result returns a stale value | escape_hatches#others-that-look-alike | never changes
flex_attention runs eagerly inside a compiled block | messages_warnings#breaks-and-recompiles | recompile limit was reached
FSDP and checkpointing: hooks cut the graph | cost#out-of-memory-oom-only-when-compiled | compile each block
forbid breaks in a library's CI | recipes#guard-a-library-in-ci | baseline
Lightning recipe: which steps break? | recipes#explain-a-lightning-module | LightningModule
accelerate recipe | recipes#explain-a-loop-of-accelerate | Accelerator
a script that needs arguments | recipes#explain-a-script | graphbreak script
mode of the trace: dispatch mode in the report | causes/dispatch-mode | TorchDispatchMode
nested breaks count in each caller | resume#a-break-three-calls-deep | nested_graph_breaks
error_on_graph_break above @torch.compile and the limit | recompiles#the-limit-recompile-limit-is-reached | raises `Unsupported`
fullgraph=True and .item() since 2.10 | settings#graph-breaks-and-what-is-traced | does so in any case
compile only in production: compiling off by a flag | settings#arguments-of-torch-compile | return the function unchanged
two compilations for a block whose first input has no gradient | where_to_compile#each-block | one more graph
counters are empty in the second call | logs#counters-of-zero-prove-nothing | an earlier call already compiled
the log says nothing more after the first epoch | questions#find-breaks | compiled
torch.fx graph printed for each break | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | graph_code
kernels that were not fused | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | TORCH_LOGS=fusion
max-autotune prints tables | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | PRINT_AUTOTUNE
compile time in a profile: Torch-Compiled Region | cost#in-a-profile | frame 1
the first step is slow on every node | logs#prevent-ranks-from-hanging | warm
torch.compile in a FastAPI server | recipes#serve-a-compiled-model-fastapi-gunicorn | before the first request
Trainer with torch_compile=True: which breaks? | recipes#explain-transformers-trainer | run.report.save
is the number of breaks on a CPU that of the GPU? | gpu | x.is_cuda
uncompiled flex_attention needs too much memory | libraries#flex-attention-block-masks | builds the full mask
flex_attention compiles for each length? | libraries#flex-attention-block-masks | serves any length
sequences of many lengths without padding | libraries#flex-attention-block-masks | pack them into one row
a mocked method is not used by compiled code | errors#nothing-raises-but-the-result-differs | a method of a class
graph break or recompile? | questions#find-breaks | a new graph for a later call
skip reason: skipped according trace_rules.lookup SKIP_DIRS | causes/gb0007#a-python-function-that-dynamo-skips | modules on its lists
NamedTuple._replace | traced#lists-and-tuples | `_asdict`
self.__dict__["n"] = 2 in __init__ | traced#classes | traced since 2.13
a TensorDict as an argument recompiles | libraries#reinforcement-learning-stable-baselines3-torchrl | for each number of keys
mp.Value in a replay buffer | causes/gb0156#json-dumps | Read it before the call
daemonic processes are not allowed to have children, in a Pool | compile_time#worker-processes | spawned, forked or daemons
set_stance("eager_then_compile") | escape_hatches#set-stance-compile-nothing-for-a-while | runs eagerly once
which guard made fail_on_recompile fail? | messages#stances-limits-fullgraph-true | *Triggered by* names
compile_repeated_blocks of a pipeline | libraries#diffusers | compile only the repeated blocks
can inductor break where backend eager does not? | common_breaks | with one exception
a break with inductor that the test with backend eager in CI did not find | ci#slow-or-hanging-jobs | also finds [GB0219]
contextmanager, nullcontext and ExitStack in 2.9 | traced#branches-loops-generators-exceptions-with | traced since 2.13; 2.9: breaks, [GB0262]
torch.compile(nn.ReLU()) for each of twelve layers, the ninth is not compiled | recompiles#a-limit-that-functions-share | wraps PyTorch's own modules
hit config.recompile_limit (8) function: 'inner' external_utils.py | messages_warnings | layers share one limit
found no compiled frames. Compilation was not attempted and no cached compiled code was found | messages#stances-limits-fullgraph-true | If there is no list
a TorchFunctionMode with a disabled __init__ breaks | causes/gb0099 | entering it inside does not break
torch.compile in a collate function or dataset | compile_time#worker-processes | each worker compiles for itself
FullyShardedDataParallel recompiles frames around its hooks | training#fsdp-fully-shard | which all units share
is the limit of 8 per function, or are resumed parts counted apart? | recompiles#instances-share-one-count | has its own
count graph breaks from the text of a batch job's log | logs#torch-logs-which-word-shows-what-and-how-to-save-or-silence-the-output | in user code at
how do I install tlparse, and where is its HTML page? | logs#which-file-does-tlparse-take | tl_out/index.html
which breaks does counters graph_break leave out? | logs#counters-of-zero-prove-nothing | in the backend
a global counter in 2.15 | recompiles#what-else-causes-recompiles | before 2.15, a `global` number
"""


@functools.cache
def _cause_pages() -> dict[str, str]:
    return cause_pages.pages()


def _section(page: str, anchor: str) -> str:
    """Return the Markdown of a page from the heading of a section on."""
    name = page.removeprefix(f"{cause_pages.FOLDER}/")
    text = _cause_pages()[name] if name != page else (PAGES / f"{page}.md").read_text(encoding="utf-8")
    text = constructs.insert_tables(known_bugs.insert_lists(text))
    text = _FOLDED_ENTRY.sub(r"\1\n", text)
    text = _FOLDED_CELL.sub(lambda cell: "\n".join(line for line in cell[1].splitlines() if "`" in line), text)
    if not anchor:
        return text
    headings = re.finditer(r"^#+ (.*)$", text, re.MULTILINE)
    return next(text[heading.start() :] for heading in headings if _slug(heading[1]) == anchor)


def _slug(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


@pytest.mark.parametrize("row", QUESTIONS.splitlines(), ids=lambda row: row.partition(" | ")[0])
def test_the_answer_to_a_question_is_on_the_first_screen_of_its_section(row: str) -> None:
    _, target, answer = row.split(" | ")
    page, _, anchor = target.partition("#")
    screen = " ".join("\n".join(_section(page, anchor).splitlines()[:SCREEN_LINES]).split())
    assert answer.lower() in screen.lower()


def test_the_words_of_an_answer_are_not_in_its_question_or_heading() -> None:
    repeated_rows = []
    for row in QUESTIONS.splitlines():
        question, target, answer = row.split(" | ")
        page, _, anchor = target.partition("#")
        heading = next(line for line in _section(page, anchor).splitlines() if line.startswith("#"))
        if answer.lower() in f"{question} {heading}".lower():
            repeated_rows.append(row)
    assert repeated_rows == []


def test_questions_cover_the_main_pages() -> None:
    pages = {row.split(" | ")[1].partition("#")[0].partition("/")[0] for row in QUESTIONS.splitlines()}
    assert len(QUESTIONS.splitlines()) >= 75
    assert {"causes", "recompiles", "cost", "compile_time", "training", "logs", "ci", "errors", "gpu"} <= pages


@pytest.mark.slow
def test_the_search_finds_each_cause_by_pytorchs_words(site: Path) -> None:
    index = json.loads((site / "searchindex.js").read_text(encoding="utf-8").partition("(")[2].rpartition(")")[0])
    stem = snowballstemmer.stemmer("english").stemWord
    missing_words = []
    for cause in CAUSES:
        for name in (cause.id, cause.names[0]):
            page = f"{cause_pages.FOLDER}/{cause_pages.page_name(cause.id)}"
            words = [stem(word) for word in re.findall(r"\w+", name.lower())]
            for word in words:
                matches = [index[table].get(word, []) for table in ("terms", "titleterms")]
                pages = {number for match in matches for number in (match if isinstance(match, list) else [match])}
                if pages and index["docnames"].index(page) not in pages:
                    missing_words.append((page, word))
    assert missing_words == []
