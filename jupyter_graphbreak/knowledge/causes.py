"""The table of causes, in the order of their ids, the table of known calls, and functions that search both.

The values of ``since`` come from the registries and settings of PyTorch 2.9.1, 2.10.0, 2.11.0, 2.12.0, 2.13.0, 2.14.0
and 2.15.0.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace

from jupyter_graphbreak.knowledge import skipped_functions
from jupyter_graphbreak.knowledge.entries import CONFIG, DynamoSetting, KnownCall, KnownCause, ManualStep, title_of
from jupyter_graphbreak.knowledge.known_bugs import bugs_with_messages
from jupyter_graphbreak.knowledge.owners import all_owner_advice
from jupyter_graphbreak.knowledge.switches import SWITCHES

_ALLOW_RNN = DynamoSetting("allow_rnn", value=True)
_COMPILED_AUTOGRAD = DynamoSetting("compiled_autograd", value=True)
#: The advice has a condition: a backward() after the compiled call raises "BackwardState requires CompiledAutograd".
_COMPILED_AUTOGRAD_ADVICE = f"set {_COMPILED_AUTOGRAD}, if backward() runs inside the compiled function"
_INLINE_MODULES = DynamoSetting("inline_inbuilt_nn_modules", value=True)
_MORE_RECOMPILES = DynamoSetting("recompile_limit", value=64, is_safe=True)
_NO_FORCED_BREAKS = DynamoSetting("debug_force_graph_break_on_leaf_return", value=False)
_CAPTURE_SCALARS = DynamoSetting("capture_scalar_outputs", value=True, is_safe=True)
_CAPTURE_SHAPES = DynamoSetting("capture_dynamic_output_shape_ops", value=True)
#: The advice has a condition: a branch on a captured number still breaks, and indexing a list with it is an error.
_CAPTURE_SCALARS_ADVICE = f"set {_CAPTURE_SCALARS}, if only tensor operations use the number"
_SKIP_SIDE_EFFECTS = DynamoSetting(
    "skip_fwd_side_effects_in_bwd_under_checkpoint", value=True, is_safe=False, since="2.10"
)
_IGNORE_LOGGING_ADVICE = (
    f"add the method to {CONFIG}ignore_logging_functions (before torch 2.11: ignore_logger_methods)"
)
_NUMPY_RANDOM_FROM_TORCH = DynamoSetting("use_numpy_random_stream", value=False, is_safe=False)
_TRACE_AUTOGRAD = DynamoSetting("trace_autograd_ops", value=True, since="2.11")
_TRACE_CLASSES = DynamoSetting("enable_trace_load_build_class", value=True, since="2.13")
_TRACE_CONTEXTLIB = DynamoSetting("enable_trace_contextlib", value=True)
_TRACE_NUMPY = DynamoSetting("trace_numpy", value=True)
_TRACE_PARAMETERS = DynamoSetting("graph_break_on_nn_param_ctor", value=False)
_TRACE_UNITTEST = DynamoSetting("enable_trace_unittest", value=True)
_UNPACK_GENERATORS = DynamoSetting("enable_faithful_generator_behavior", value=False, is_safe=False)

_FLAG_STEP = ManualStep(
    "Decide whether this tensor is a flag that changes only once. If it is, test a Python bool that you set together "
    "with it. If not, decide whether both branches can always be computed, so that torch.where can choose between "
    "them.",
    obsolete_if_failed="torch.where",
    text_after_failure=(
        "Decide whether this tensor is a flag that changes only once. If it is, test a Python bool that you set "
        "together with it. If not, decide whether the tensor can be tested outside of the compiled function: "
        "torch.where was tried and did not work."
    ),
)
_CHECK_STEP = ManualStep(
    "Decide whether this check can run before or after the call; or whether it may raise RuntimeError with a fixed "
    "message, as torch._assert_async does within the graph."
)
_LOOP_END_STEP = ManualStep(
    "Decide whether to compile one step of the loop and to call it from a loop that is not compiled; or whether the "
    "loop can always run its maximum number of times, and torch.where can keep the results from before the end.",
    obsolete_if_failed="torch.where",
    text_after_failure=(
        "Decide whether to compile one step of the loop and to call it from a loop that is not compiled: running the "
        "maximum number of steps with torch.where was tried and did not work."
    ),
)
_NO_RESULT_STEP = ManualStep(
    "Decide whether the result can be computed on every call: return the condition with it, and test the condition "
    "after the call."
)
_BRANCH_STEP = ManualStep(
    "Decide whether both branches can always be computed, so that torch.where can choose between "
    "them; whether the condition can be evaluated outside of the compiled function; or, if this branch ends a loop, "
    "whether the loop can always run its maximum number of times.",
    obsolete_if_failed="torch.where",
    text_after_failure=(
        "Decide whether the condition can be evaluated outside of the compiled function, or, if this branch ends a "
        "loop, whether the loop can always run its maximum number of times: torch.where was tried and did not work."
    ),
)
_DISABLED_STEP = ManualStep("Decide whether this function must stay out of the graph: the code disables it on purpose.")
_PYTHON_NUMBER_STEP = ManualStep(
    "Decide whether the number is needed at all; whether it is known before the call and can be passed as an argument; "
    "or whether the code that uses it can compute with the tensor instead."
)
_DATA_DEPENDENT_SHAPE_STEP = ManualStep(
    "Decide whether the code below can work with all elements and a mask, so that shapes do not depend on the data; "
    "or, if the selection is the result, as in a detector, select after the call."
)
_PARAMETER_LIST_ADVICE = "pass a list, such as list(model.parameters()), instead of a generator"
#: Dynamo's name for a number that Python's `random` draws in compiled code.
_RANDOM_NUMBER = "UnspecializedPythonVariable"
_RANDOM_NUMBER_STEP = ManualStep("Decide whether to draw before the call and pass the number, or use torch.rand().")
_UNKNOWN_SHAPE_STEP = ManualStep(
    "Decide whether this operation may stay eager: no graph knows the shape of its result, "
    "unless a custom operator with a fake kernel wraps it (torch.library.custom_op)."
)
_TENSOR_KEY_STEP = ManualStep(
    "Decide on keys that are constants, such as names: a graph does not know the identity of a tensor."
)
_GENERATOR_STEP = ManualStep(
    "Decide whether a list can replace the generator, or compile the function that consumes it."
)
_GROUPS_STEP = ManualStep(
    "Decide whether the groups can be formed before the compiled function runs: their number depends on the data."
)
_BACKWARD_STEP = ManualStep(
    "Decide where the compiled part ends: compile the forward pass, and call backward() and the optimizer after it.",
    decides_compiled_region=True,
)
_REQUIRES_GRAD_STEP = ManualStep(
    "Decide which tensors need gradients, and set that before the compiled function runs: a graph cannot change it."
)
_CONTEXT_STEP = ManualStep("Decide whether the context may be entered around the whole call to the compiled function.")
_NUMPY_STEP = ManualStep(
    "Decide whether torch can compute the value or draw the random numbers. If only NumPy can, use it before the call."
)
_OBJECT_CREATION_STEP = ManualStep(
    "Decide where to create this object: before the compiled function runs, to pass it as an argument, or after it "
    "returns, from its result."
)
_OPERATOR_ERROR_STEP = ManualStep(
    "Run the call without compiling, with torch.compiler.set_stance('force_eager'): if it raises the same error, the "
    "arguments do not fit the operator."
)
_RNN_STEP = ManualStep(
    "Decide whether the RNN stays eager: compile what is before and after it, or allow it with allow_rnn.",
    obsolete_if_failed="allow_rnn",
    text_after_failure=(
        "Decide whether to compile only what is before and after the RNN: allow_rnn was tried and did not work."
    ),
)
_OUTPUT_STEP = ManualStep(
    "Decide whether this message is needed on every call. If it is, write it after the call, "
    "from the function's result.",
    obsolete_if_failed="after the call",
    text_after_failure=(
        "Decide whether this message is needed on every call: writing it after the call was tried and did not work."
    ),
)
_INTERACTION_STEP = ManualStep("Decide whether this call can be removed: a graph cannot wait for a person.")
_TIMING_STEP = ManualStep(
    "Decide whether the time is needed: only a whole call to a compiled function can be timed, and only from outside."
)
_CLOCK_ADVICE = "read the clock before and after the call: inside the compiled function, it ends the graph"
_GROUPING_ADVICE = "or compute sums per value with torch.nn.functional.one_hot(labels, n).float().T @ x"
_SPARSE_ADVICE = (
    "write a product with a sparse matrix in dense tensors, out.index_add(0, rows, values * x[columns]); or compute "
    "with the sparse tensor outside of the compiled function"
)
_MOVE_OUTSIDE_ADVICE = "move it out of the compiled function"
_UNTRACED_CALL_ADVICE = (
    "call the function before the compiled function runs and pass its result as an argument, or call it after; Dynamo "
    "cannot trace it"
)

CAUSES = (
    KnownCause(
        "BackendCompilerFailed",
        ("BackendCompilerFailed",),
        title="Backend error",
        advice=(
            'the graph was captured, but the backend could not compile it: use backend="eager"; if "aot_eager" also '
            "works, the fault is in the generated code, or the machine lacks something: run `graphbreak doctor`"
        ),
        page="errors.md#backendcompilerfailed-the-graph-is-right-the-backend-fails-on-it",
    ),
    KnownCause(
        "InternalTorchDynamoError",
        (
            "InternalTorchDynamoError",
            "AssertionError",
            "AttributeError",
            "IndexError",
            "KeyError",
            "NameError",
            "NotImplementedError",
            "RuntimeError",
            "TypeError",
            "ValueError",
        ),
        title="Internal error in Dynamo",
        advice=(
            "PyTorch considers this its own bug: report it, and meanwhile move this code out of the compiled function, "
            "or into a function decorated with @torch.compiler.disable"
        ),
        manual_step=ManualStep(
            "Decide whether this code can be written differently or stay out of the compiled function: PyTorch "
            "considers the error its own bug, so report it."
        ),
        page="errors.md#report-the-bug-to-pytorch",
    ),
    KnownCause(
        "ConstraintViolationError",
        ("ConstraintViolationError",),
        title="Size marked as dynamic, but constant in the code",
        advice=(
            "compute with the size itself, such as `x.shape[0]` or -1 in reshape(); or use "
            "`torch._dynamo.maybe_mark_dynamic` instead of `mark_dynamic`: it allows a graph for one size"
        ),
        manual_step=ManualStep(
            "Decide whether the size varies: if so, compute with it instead of a number; otherwise remove the mark."
        ),
        page="recompiles.md#mark-dynamic-raises-an-error-or-has-no-effect",
    ),
    KnownCause(
        "InductorError",
        ("InductorError", "InvalidCxxCompiler", "CppCompileError", "CUDACompileError", "TritonMissing"),
        title="Inductor error",
        advice=(
            "the graph was captured, but Inductor could not compile it: `graphbreak doctor` lists what the machine "
            'lacks (a compiler, headers, Triton) and how to install it; if nothing is missing, use backend="aot_eager"'
        ),
        page="errors.md#backendcompilerfailed-the-graph-is-right-the-backend-fails-on-it",
    ),
    KnownCause(
        "GB0003",
        ("Attempt to trace generator",),
        title="Generator function",
        advice="compile the function that consumes the generator, not the generator",
        manual_step=_GENERATOR_STEP,
        skip=skipped_functions.GENERATOR,
        also_reported_as=("generator",),
    ),
    KnownCause(
        "GB0005",
        ("Attempted to a str() method implemented in C/C++",),
        title="`str()` of an object implemented in C",
        advice="write its __str__ method in Python",
    ),
    KnownCause(
        "GB0006",
        ("Attempted to call a super() attribute that is not a function or method",),
        title="`super()` of a class that is implemented in C",
        advice="in an exception class, remove your own __init__, pass the values as arguments, and read them from args",
    ),
    KnownCause(
        "GB0007",
        ("Attempted to call function marked as skipped",),
        title="Call to a function that Dynamo does not trace",
        former_messages=("inline in skipfiles: ...", "skip function ... in file ..."),
        advice=_UNTRACED_CALL_ADVICE,
        rewrites=("detach instead of Variable",),
        is_named_by_call=True,
    ),
    KnownCause(
        "GB0008",
        ("Attempted to inline function marked as skipped",),
        title="Call to a function that Dynamo does not trace",
        advice=_UNTRACED_CALL_ADVICE,
        is_named_by_call=True,
    ),
    KnownCause(
        "GB0009",
        ("Attempted to inline function marked as skipped (SkipFunctionVariable)",),
        title="Call to a function that Dynamo does not trace",
        advice=_UNTRACED_CALL_ADVICE,
        is_named_by_call=True,
    ),
    KnownCause(
        "GB0014",
        ("Attempted to wrap RNN, GRU, or LSTM",),
        title="LSTM, GRU or RNN",
        former_messages=("TorchDynamo purposely graph breaks on RNN, GRU, LSTMs",),
        advice=f"set {_ALLOW_RNN}",
        setting_advice=f"set {_ALLOW_RNN}",
        manual_step=_RNN_STEP,
        settings=((_ALLOW_RNN,),),
    ),
    KnownCause(
        "GB0015",
        ("Attempted to wrap sparse Tensor",),
        title="Sparse tensor",
        advice=f"convert the sparse tensor with to_dense() before the compiled function runs; or {_SPARSE_ADVICE}",
        manual_step=ManualStep("Decide whether the tensor can be dense in the compiled function."),
    ),
    KnownCause("GB0016", ("Attempted to wrap strided NestedTensor",), title="Nested tensor"),
    KnownCause(
        "GB0021",
        ("BUILD_STRING type error",),
        title="Value in an f-string that is unknown while tracing",
        advice="format the string after the call, from the function's result",
        manual_step=_OUTPUT_STEP,
    ),
    KnownCause(
        "GB0025",
        ("Call to `torch._dynamo.graph_break()`",),
        title="`torch._dynamo.graph_break()`",
        rewrites=("delete the call",),
        is_deliberate=True,
        is_safe=True,
    ),
    KnownCause(
        "GB0029",
        ("Compilation of intermediate hooks requires compiled autograd",),
        title="Hook on an intermediate tensor",
        advice=(
            "move the hook's code into the backward of a torch.autograd.Function, and use the result of its apply(); "
            f"or {_COMPILED_AUTOGRAD_ADVICE}"
        ),
        setting_advice=_COMPILED_AUTOGRAD_ADVICE,
        settings=((_COMPILED_AUTOGRAD,),),
        page="training.md#what-breaks-in-training-code",
    ),
    KnownCause(
        "GB0031",
        ("Custom __getattribute__ in nn.Module attribute access",),
        title="`__getattribute__` of a module",
        advice="replace __getattribute__ with a property, or simplify it",
    ),
    KnownCause(
        "GB0033",
        ("Data dependent operator",),
        title="Number, list or boolean computed from a tensor",
        former_messages=("data dependent operator: aten...",),
        advice=(
            f"{_CAPTURE_SCALARS_ADVICE}; for torch.equal(a, b) write (a == b).all() and keep it a tensor; else compute "
            "it outside of the compiled function"
        ),
        setting_advice=_CAPTURE_SCALARS_ADVICE,
        manual_step=_PYTHON_NUMBER_STEP,
        settings=((_CAPTURE_SCALARS,), (_CAPTURE_SCALARS, _CAPTURE_SHAPES)),
        rewrites=("format with str.format", "index with a vector", "keep the tensor", "pass sizes as numbers"),
        is_named_by_call=True,
    ),
    KnownCause(
        "GB0034",
        ("Data-dependent assertion failed (cannot compile partial graph)",),
        title="`assert` that fails while Dynamo traces",
        advice=(
            "this assert fails for these arguments, even without compiling; if the code catches the error, test with "
            "if instead"
        ),
        page="errors.md#your-own-error-raised-while-compiling",
    ),
    KnownCause(
        "GB0035",
        ("Data-dependent branching with non-constant __bool__",),
        title="Branch on an object with its own `__bool__`",
        manual_step=_BRANCH_STEP,
    ),
    KnownCause(
        "GB0036",
        ("Dynamic shape operator",),
        title="Result whose size depends on a tensor's values, such as `x[mask]`",
        former_messages=("dynamic shape operator: aten.nonzero.default", "dynamic Tensor.__getitem__(bool[])"),
        advice=(
            f"set {_CAPTURE_SHAPES} (the break can move to a later line or become an error), or keep the shape: "
            "torch.where(mask, x, 0).sum() for x[mask].sum(), y = torch.where(mask, x, y) for y[mask] = x[mask]; if "
            "the selection is the result, as in a detector, select after the call"
        ),
        setting_advice=f"set {_CAPTURE_SHAPES} (the break can move to a later line or become an error)",
        manual_step=_DATA_DEPENDENT_SHAPE_STEP,
        settings=((_CAPTURE_SHAPES,), (_CAPTURE_SCALARS, _CAPTURE_SHAPES)),
        rewrites=("mask instead of selecting", "pass sizes as numbers"),
        is_captured_by_fullgraph=True,
    ),
    KnownCause(
        "GB0037",
        ("Dynamic shape operator (no meta kernel)",),
        title="Operator whose result has an unknown size",
        advice="compute it outside of the compiled function: Dynamo cannot follow a shape that depends on the data",
        manual_step=_UNKNOWN_SHAPE_STEP,
        page="escape_hatches.md#custom-operators-one-opaque-operation",
    ),
    KnownCause(
        "GB0038",
        ("Dynamic slicing with Tensor arguments",),
        title="Slice whose bounds are tensors",
        former_messages=("Dynamic slicing on data-dependent value is not supported",),
        advice=(
            f"slice with numbers, not with tensors; for a length from a tensor, set {_CAPTURE_SCALARS} and use .item()"
        ),
        setting_advice=_CAPTURE_SCALARS_ADVICE,
        manual_step=_PYTHON_NUMBER_STEP,
        settings=((_CAPTURE_SCALARS,),),
    ),
    KnownCause(
        "GB0039",
        ("Dynamo recompile limit exceeded", "Dynamo cache limit exceeded"),
        title="Recompile limit",
        advice="pass values that change from call to call as tensors, or mark sizes with torch._dynamo.mark_dynamic; "
        f"or raise {CONFIG}recompile_limit",
        manual_step=ManualStep(
            "Decide which arguments may change from call to call: pass them as tensors, or mark them dynamic."
        ),
        settings=((_MORE_RECOMPILES,),),
        page="recompiles.md#the-limit-recompile-limit-is-reached",
    ),
    KnownCause(
        "GB0040",
        ("Encountered aliasing during higher order op tracing",),
        title="`torch.cond` or a loop operator that returns its operand",
        advice="return x.clone() instead of x or a view of x",
        page="messages.md#while-dynamo-traces",
    ),
    KnownCause(
        "GB0041",
        ("Encountered input mutation during higher order op tracing",),
        title="`torch.cond` or a loop operator that changes its operand",
        advice="compute a new tensor instead of changing the operand in place, and return it",
        page="messages.md#while-dynamo-traces",
    ),
    KnownCause(
        "GB0043",
        ("Encountered non-PT2-compliant op",),
        title="Operator that `torch.compile` must not trace",
        page="escape_hatches.md#custom-operators-one-opaque-operation",
    ),
    KnownCause(
        "GB0045",
        ("Encountered tensor.is_inference() during tracing",),
        title="`Tensor.is_inference()`",
        advice="call the method before the compiled function runs and pass the result as an argument",
    ),
    KnownCause(
        "GB0046",
        ("Encountered torch.is_inference_mode_enabled during tracing",),
        title="`torch.is_inference_mode_enabled()`",
        advice="call the function before the compiled function runs and pass the result as an argument",
    ),
    KnownCause(
        "GB0055",
        ("Failed to convert args/kwargs to proxy",),
        title="Argument that a graph cannot contain, such as a `torch.Generator`",
        advice="call the operation before the compiled function runs and pass its result as an argument",
        manual_step=_OBJECT_CREATION_STEP,
    ),
    KnownCause(
        "GB0056",
        ("Failed to mutate tensor data attribute",),
        title="Assignment to `Tensor.data`",
        advice="create a new tensor instead of changing .data, or change .data outside of the compiled function",
    ),
    KnownCause(
        "GB0058",
        ("Failed to set tensor attribute",),
        title="Attribute set on a tensor",
        advice="keep the attribute in a variable or on a module, or set it outside of the compiled function",
    ),
    KnownCause(
        "GB0059",
        ("Failed to trace builtin operator",),
        title="Call to a builtin that Dynamo does not trace",
        former_messages=("call_function BuiltinVariable(print) [...]",),
        advice="use operations on tensors instead of this builtin, or call it outside of the compiled function",
        is_named_by_call=True,
    ),
    KnownCause(
        "GB0060",
        ("Failed to trace unittest method",),
        title="`unittest` assertion",
        settings=((_TRACE_UNITTEST,),),
        until="2.13",
    ),
    KnownCause(
        "GB0063",
        ("Failed to unpack object for UNPACK_SEQUENCE",),
        title="Unpacking of an object that Dynamo does not iterate over",
    ),
    KnownCause(
        "GB0064",
        ("Fake tensor propagation exception",),
        title="Operator that fails on the shapes it is given",
        manual_step=_OPERATOR_ERROR_STEP,
        page="errors.md#your-own-error-raised-while-compiling",
    ),
    KnownCause("GB0065", ("Graph break in inlined function",), title="Break in a called function"),
    KnownCause(
        "GB0066",
        ("Graph break under GenericContextWrappingVariable",),
        title="Graph break in a `with` block",
        advice_if_consequence="or move the break out of the with block",
    ),
    KnownCause(
        "GB0067",
        ("HOP: Unsafe side effect", "HigherOrderOperator: Mutating a variable not in the current scope (SideEffects)"),
        title="Change of an outer variable in checkpointed or higher-order code",
        settings=((_SKIP_SIDE_EFFECTS,),),
        page="training.md#what-breaks-in-training-code",
    ),
    KnownCause(
        "GB0069",
        ("Import failure",),
        title="`import` that fails",
        advice="import it once, before the compiled function runs, and store whether that succeeded",
        manual_step=ManualStep(
            "Decide whether to check once, before the compiled function runs, that the package is installed."
        ),
    ),
    KnownCause("GB0070", ("Indexing list with non-scalar tensor",), title="List indexed with a tensor"),
    KnownCause(
        "GB0075",
        ("LOAD_BUILD_CLASS bytecode not supported",),
        title="Class defined in the function",
        advice="define the class outside of the compiled function",
        settings=((_TRACE_CLASSES,),),
    ),
    KnownCause(
        "GB0083",
        ("Module-level backwards hooks require compiled autograd.",),
        title="Backward hook of a module",
        advice=f"remove the module's backward hook; or {_COMPILED_AUTOGRAD_ADVICE}",
        setting_advice=_COMPILED_AUTOGRAD_ADVICE,
        manual_step=ManualStep(
            "Decide whether to remove the backward hook (`register_full_backward_hook`, which may be a library's) or "
            "to leave the module that has it uncompiled."
        ),
        settings=((_COMPILED_AUTOGRAD,),),
        page="training.md#a-hook-that-never-runs",
    ),
    KnownCause("GB0086", ("Not a Python constant",), title="Value that must be a constant"),
    KnownCause(
        "GB0087",
        ("NotImplementedError/UnsupportedFakeTensorException when running FX node",),
        title="Operator without a fake kernel",
        advice="give the operator a fake kernel with torch.library.register_fake",
        page="escape_hatches.md#custom-operators-one-opaque-operation",
    ),
    KnownCause(
        "GB0088",
        ("Observed exception",),
        title="Exception raised while tracing",
        advice="raise and catch the exception outside of the compiled function, or test for its cause beforehand",
        page="errors.md#your-own-error-raised-while-compiling",
        rewrites=("format with str.format",),
    ),
    KnownCause(
        "GB0090",
        ("Operator does not support running with fake tensors",),
        title="Operator without a fake kernel",
        former_messages=("unsupported operator: ...",),
        advice="give the operator a fake kernel with torch.library.register_fake",
        page="escape_hatches.md#custom-operators-one-opaque-operation",
    ),
    KnownCause(
        "GB0092",
        ("Reconstruction failure",),
        title="Object that cannot outlive a break",
        advice="build it after the compiled function returns, from its result: it cannot be carried across a break",
        manual_step=_OBJECT_CREATION_STEP,
    ),
    KnownCause(
        "GB0093",
        ("Reconstruction failure: source.reconstruct not implemented",),
        title="Object that cannot outlive a break",
    ),
    KnownCause(
        "GB0097",
        ("Side effect on existing deque with limited maxlen",),
        title="`deque` with `maxlen`",
        advice="use a deque without maxlen, or a list",
    ),
    KnownCause(
        "GB0098",
        ("Skip calling `torch.compiler.disable()`d function",),
        title="Function disabled with `torch.compiler.disable`",
        former_messages=(
            "call torch._dynamo.disable() wrapped function",
            "inline in skipfiles: ... | _fn .../torch/_dynamo/eval_frame.py",
        ),
        advice="the code disables it on purpose: decide whether it must stay out of the graph; if not, remove disable",
        manual_step=_DISABLED_STEP,
        is_deliberate=True,
    ),
    KnownCause(
        "GB0099",
        ("Skip inlining `torch.compiler.disable()`d function",),
        title="Function disabled with `torch.compiler.disable`",
        advice="the code disables it on purpose: decide whether it must stay out of the graph; if not, remove disable",
        manual_step=_DISABLED_STEP,
        is_deliberate=True,
    ),
    KnownCause("GB0103", ("Tensor subclass overridden method call",), title="Method that a tensor subclass overrides"),
    KnownCause(
        "GB0104",
        ("Tensor with grad_fn()",),
        title="`Tensor.grad_fn`",
        advice="do not read grad_fn in the compiled function",
    ),
    KnownCause(
        "GB0105",
        ("Tensor.numpy() with trace_numpy=False",),
        title="`Tensor.numpy()` with `trace_numpy` switched off",
        advice=f"set {_TRACE_NUMPY}, or use tensors instead",
        setting_advice=f"set {_TRACE_NUMPY}",
        settings=((_TRACE_NUMPY,),),
    ),
    KnownCause(
        "GB0107",
        ("Tensor.random_ op",),
        title="`Tensor.random_()`",
        advice=(
            "draw a new tensor, y = torch.randint_like(x, low, high); if x must stay the same tensor, write x.copy_(y)"
        ),
        rewrites=("draw with randint_like",),
    ),
    KnownCause(
        "GB0108",
        ("Tensor.retain_grad() with AOTDispatcher",),
        title="`Tensor.retain_grad()`",
        advice="return the tensor, and call retain_grad() on the result of the compiled function",
    ),
    KnownCause(
        "GB0109",
        ("Tensor.tolist() with non-integer tensor",),
        title="`Tensor.tolist()`",
        former_messages=("Input tensor for tolist must be an integer tensor",),
        advice=(
            "keep the values as a tensor and use operations on tensors; if numbers are needed, take them one by one "
            f"with .item() and set {_CAPTURE_SCALARS}"
        ),
        manual_step=_PYTHON_NUMBER_STEP,
        rewrites=("keep the tensor", "take values one by one"),
    ),
    KnownCause(
        "GB0110",
        ("Tensor.uniform_ op called with `from` keyword",),
        title="`Tensor.uniform_(from=...)`",
        advice="use uniform_(a, b) without the keyword",
    ),
    KnownCause(
        "GB0111",
        ("TypeError from user code",),
        title="`TypeError` raised while tracing",
        page="errors.md#your-own-error-raised-while-compiling",
    ),
    KnownCause(
        "GB0112",
        ("TypeError when making fake tensor call",),
        title="`TypeError` of an operator",
        manual_step=_OPERATOR_ERROR_STEP,
        page="errors.md#your-own-error-raised-while-compiling",
    ),
    KnownCause(
        "GB0115",
        ("Unexpected failure during itertools.groupby() iteration",),
        title="`itertools.groupby`",
        advice="group before the compiled function runs and pass the groups as arguments",
        manual_step=_GROUPS_STEP,
    ),
    KnownCause(
        "GB0116",
        ("Unexpected type in sourceless builder",),
        title="Object that Dynamo cannot represent",
        advice="create the object before the compiled function runs; often it comes from inspect.signature()",
    ),
    KnownCause(
        "GB0117",
        ("Unhandled args for method",),
        title="Tensor method that fails while Dynamo traces it",
        advice="call the method after the compiled function returns, on its result",
        manual_step=_OBJECT_CREATION_STEP,
    ),
    KnownCause(
        "GB0123",
        ("Unsupported Tensor.backward() call",),
        title="`Tensor.backward()`",
        former_messages=("Tensor.backward",),
        advice=(
            "compile only the forward pass, and call backward() after it: the backward pass is then also compiled; "
            f"or set {_TRACE_AUTOGRAD}"
        ),
        setting_advice=f"set {_TRACE_AUTOGRAD}",
        manual_step=_BACKWARD_STEP,
        settings=((_TRACE_AUTOGRAD,),),
    ),
    KnownCause(
        "GB0124",
        (
            "Unsupported Tensor.item() call with capture_scalar_outputs=False",
            "Tensor.item() with capture_scalar_outputs=False",
        ),
        title="Tensor turned into a Python number, for example by `.item()`",
        former_messages=("Tensor.item", "call_function BuiltinVariable(int) [TensorVariable()]"),
        advice=(
            "keep the value as a tensor; .item() needs the value on the host. If only tensor operations use the "
            f"number, set {_CAPTURE_SCALARS}"
        ),
        setting_advice=_CAPTURE_SCALARS_ADVICE,
        manual_step=_PYTHON_NUMBER_STEP,
        settings=((_CAPTURE_SCALARS,), (_CAPTURE_SCALARS, _CAPTURE_SHAPES)),
        rewrites=("keep the tensor", "pass sizes as numbers"),
        is_captured_by_fullgraph=True,
    ),
    KnownCause(
        "GB0125",
        ("Unsupported Tensor.requires_grad_() call",),
        title="`requires_grad_()` in compiled code",
        advice="call requires_grad_() before the compiled function runs, or use detach() if only the values are needed",
        manual_step=_REQUIRES_GRAD_STEP,
        rewrites=("leave requires_grad_() out",),
    ),
    KnownCause(
        "GB0126",
        ("Unsupported Tensor.resize_() call",),
        title="`Tensor.resize_()`",
        advice="allocate the tensor with its final size, or create a new one",
    ),
    KnownCause(
        "GB0127",
        ("Unsupported Tensor.resize_as_() call",),
        title="`Tensor.resize_as_()`",
        advice="allocate the tensor with its final size, or create a new one",
    ),
    KnownCause(
        "GB0134",
        ("Unsupported arguments for itertools.groupby",),
        title="`itertools.groupby`",
        advice="group before the compiled function runs and pass the groups as arguments",
        manual_step=_GROUPS_STEP,
    ),
    KnownCause(
        "GB0135",
        ("Unsupported attribute assignment on Exception object",),
        title="Attribute set on an exception",
        advice="pass the value as an argument of the exception, and read it from args",
    ),
    KnownCause(
        "GB0142",
        ("Unsupported context manager",),
        title="`with` on an object that Dynamo does not know",
        former_messages=("SETUP_WITH ...", "BEFORE_WITH ..."),
        advice="enter the context around the call to the compiled function, not in it",
        manual_step=_CONTEXT_STEP,
        is_named_by_call=True,
    ),
    KnownCause(
        "GB0147",
        ("Unsupported function call",),
        title="Call to an object that Dynamo does not know",
        former_messages=("call_function UserDefinedObjectVariable(...)",),
        advice=(
            "call the object before the compiled function runs and pass the result as an argument; turn an iterator "
            "into a list"
        ),
        is_named_by_call=True,
    ),
    KnownCause(
        "GB0148",
        ("Unsupported function call (delayed)",),
        title="Argument reshaped in place, such as `x.unsqueeze_(0)`",
        advice="reshape the argument before the compiled function runs, or write x = x.unsqueeze(0)",
    ),
    KnownCause(
        "GB0149",
        ("Unsupported functorch tracing attempt",),
        title="Compiled function inside `torch.vmap` or `torch.func.grad`",
        advice="compile the function that calls vmap or grad, not the function inside: torch.compile(torch.vmap(f))",
    ),
    KnownCause(
        "GB0150",
        ("Unsupported hasattr call",),
        title="`hasattr()` of an object that Dynamo does not know",
        advice="turn it into a list before calling hasattr(): Dynamo cannot inspect an iterator such as map()",
    ),
    KnownCause(
        "GB0151",
        ("Unsupported inspect call",),
        title="`inspect` of a function",
        advice="call inspect before the compiled function runs, and pass the result as an argument",
    ),
    KnownCause(
        "GB0152",
        ("Unsupported key type for itertools.groupby",),
        title="`itertools.groupby` with a tensor as key",
        advice="group before the compiled function runs, or by keys that are constants",
        manual_step=_GROUPS_STEP,
    ),
    KnownCause(
        "GB0156",
        ("Unsupported method call",),
        title="Method of an object that Dynamo does not know",
        former_messages=("call_method UserDefinedObjectVariable(...) ...",),
        advice=(
            "create the object in the compiled function, or pass a list or a tensor instead; turn an iterator into a "
            "list with list(...)"
        ),
        is_named_by_call=True,
    ),
    KnownCause("GB0157", ("Unsupported ndarray attribute access",), title="Attribute of a NumPy array"),
    KnownCause(
        "GB0158",
        ("Unsupported ndarray method call",),
        title="Method of a NumPy array without a torch equivalent",
        advice="use the torch function for it, or compute it with NumPy outside of the compiled function",
    ),
    KnownCause(
        "GB0160",
        ("Unsupported next() call",),
        title="`next()` of an object that Dynamo does not know",
        settings=((_CAPTURE_SCALARS,),),
    ),
    KnownCause(
        "GB0170",
        ("Data-dependent branching",),
        title="Branch on a tensor's value",
        advice=(
            "compute both branches with torch.where(condition, a, b); or use torch.cond, unless a branch has dropout"
        ),
        advice_by_use=(
            (
                "error",
                (
                    "return the condition and raise the error after the call; or check within the graph with "
                    "torch._assert_async(ok, message), where ok is a tensor that must be true"
                ),
            ),
            (
                "message",
                (
                    "return the condition and write the message after the call; or write it only when "
                    "torch.compiler.is_compiling() is false"
                ),
            ),
            (
                "flag",
                (
                    "if this tensor is a flag that changes only once, such as 'initialized', test a Python bool that "
                    "you set together with it; otherwise compute both branches with torch.where(condition, a, b)"
                ),
            ),
            (
                "end of a loop",
                (
                    "compile one step and call it from a loop that is not compiled; or run the maximum number of "
                    "steps and keep finished results with torch.where"
                ),
            ),
            (
                "no result",
                (
                    "compute the result on every call, return the condition with it, and test the condition after the "
                    "call"
                ),
            ),
        ),
        manual_step=_BRANCH_STEP,
        manual_steps_by_use=(
            ("end of a loop", _LOOP_END_STEP),
            ("error", _CHECK_STEP),
            ("flag", _FLAG_STEP),
            ("no result", _NO_RESULT_STEP),
        ),
        rewrites=("check in the graph", "test the Python operand first"),
        also_reported_as=("Dynamic control flow is not supported at the moment", "generic_jump"),
        is_safe=False,
    ),
    KnownCause(
        "GB0171",
        ("assert with non-string message",),
        title="`assert` whose message is not a plain string",
        advice="use a plain string as the assert's message, not one that contains tensors",
        rewrites=("check in the graph",),
    ),
    KnownCause(
        "GB0172",
        ("async_op=True for distributed collectives",),
        title="Asynchronous collective",
        advice="leave async_op=True out; or call the collective outside of the compiled function",
        page="training.md#collectives-in-compiled-code",
    ),
    KnownCause(
        "GB0175",
        ("builtin isinstance() cannot determine type of argument",),
        title="`isinstance()` of an object that Dynamo does not know",
    ),
    KnownCause(
        "GB0177",
        ("can't handle functions not implemented in python ",),
        title="Function implemented in C",
        is_named_by_call=True,
    ),
    KnownCause(
        "GB0179",
        ("copy.deepcopy()",),
        title="`copy.deepcopy()`",
        advice="copy before the compiled function runs, or copy tensors with .detach().clone()",
        rewrites=("copy with clone()",),
    ),
    KnownCause(
        "GB0180",
        ("dataclass fields failure",),
        title="`dataclasses.fields()` of a class",
        advice="call dataclasses.fields() before the compiled function runs, or on an object of the class",
    ),
    KnownCause("GB0184", ("failed to call str() on user defined object",), title="`str()` of an object of your class"),
    KnownCause(
        "GB0185",
        ("failed to convert numpy.ndarray to Tensor",),
        title="NumPy array of strings or objects",
        advice="use a list instead of an array of strings or objects",
    ),
    KnownCause(
        "GB0187",
        ("functools.wraps",),
        title="`functools.wraps` in compiled code",
        advice="decorate with functools.wraps outside of the compiled function",
    ),
    KnownCause(
        "GB0193",
        ("invalid call to builtin op handler",),
        title="`max` or `min` of tensors with a `key`, or a builtin called in an unusual way",
        advice=(
            "write sorted(parts, key=..., reverse=True)[0] for max(parts, key=...), or call max outside of the "
            "compiled function"
        ),
    ),
    KnownCause(
        "GB0198",
        ("mapping proxy affected by dictionary mutation",),
        title="Arguments bound with `inspect.signature` after a change",
        rewrites=("wrap forward",),
    ),
    KnownCause(
        "GB0203",
        ("non-const keys in dict_keys",),
        title="Dictionary with keys that are not constants",
        advice="use constants as keys: strings or numbers, not tensors",
        manual_step=_TENSOR_KEY_STEP,
    ),
    KnownCause(
        "GB0204",
        ("non-const keys in mappingproxy",),
        title="Mapping with keys that are not constants",
        advice="use constants as keys: strings or numbers, not tensors",
        manual_step=_TENSOR_KEY_STEP,
    ),
    KnownCause(
        "GB0206",
        ("setattr() on Tensor.requires_grad",),
        title="`x.requires_grad = ...`",
        advice="set requires_grad before the compiled function runs, or use detach() instead of setting it to False",
        manual_step=_REQUIRES_GRAD_STEP,
        rewrites=("replace the requires_grad assignment",),
    ),
    KnownCause(
        "GB0207",
        ("sort with non-constant keys",),
        title="Sort by tensors",
        advice="sort by a number that does not depend on a tensor, or sort the values with torch.sort",
        manual_step=ManualStep(
            "Decide what else to sort by: the order of tensors is not known before they are computed."
        ),
    ),
    KnownCause(
        "GB0208",
        ("torch.* op returned non-Tensor",),
        title="torch function that returns no tensor",
        advice="call the function, or enter it as a context, outside of the compiled function: it returns no tensor",
        manual_step=_CONTEXT_STEP,
        rewrites=("format with str.format",),
    ),
    KnownCause(
        "GB0212", ("torch.profiler object escaped from compiled region",), title="Profiler in use across a break"
    ),
    KnownCause(
        "GB0213",
        ("unimplemented builtin op on tensor arguments",),
        title="Builtin applied to a tensor",
        advice="use the torch function of that name instead of the builtin",
    ),
    KnownCause("GB0218", ("unsupported index(Tensor)",), title="Tensor used as an index of a Python object"),
    KnownCause(
        "GB0219",
        ("Backend compiler exception",),
        title="Operation that the backend cannot trace, such as `y[mask] = x` in training",
        advice=(
            f"set {_CAPTURE_SHAPES} if the number of elements depends on a tensor's values, as in the backward pass of "
            "y[mask] = x; or index with integers that are computed before the call"
        ),
        setting_advice=f"set {_CAPTURE_SHAPES}",
        manual_step=ManualStep(
            "Decide whether the operation that PyTorch mentions can move out of the compiled function. To "
            "assign to a part of a tensor, index with integers that are computed before the call, not with a mask."
        ),
        settings=((_CAPTURE_SHAPES,),),
        page="errors.md#backendcompilerfailed-the-graph-is-right-the-backend-fails-on-it",
    ),
    KnownCause(
        "GB0220",
        ("Failed to mutate tensor data attribute to different dtype",),
        title="Assignment to `Tensor.data` with a different dtype",
        advice="create a new tensor with x.to(dtype) instead of changing .data",
    ),
    KnownCause(
        "GB0222",
        ("Attempted to wrap a set with tensors",),
        title="Set of tensors",
        advice="use a list, or a dict with the tensors as keys: a set has no order",
        manual_step=ManualStep("Decide on an order: use a list or a dict instead of the set of tensors."),
    ),
    KnownCause(
        "GB0223",
        ("torch.compile call with > 1 args",),
        title="`torch.compile` called in compiled code",
        advice="pass the options of torch.compile by keyword",
    ),
    KnownCause(
        "GB0225",
        ("Attempted to use tensor creation function with requires_grad=True",),
        title="Tensor created with `requires_grad=True`",
        advice=(
            "create the tensor before the compiled function runs, or leave requires_grad out if nothing reads its "
            "gradient"
        ),
        rewrites=("leave requires_grad_() out",),
    ),
    KnownCause(
        "GB0231",
        ("call `torch.from_numpy` with `torch._dynamo.config.trace_numpy=False`",),
        title="`torch.from_numpy` with `trace_numpy` switched off",
        advice=f"set {_TRACE_NUMPY}",
        setting_advice=f"set {_TRACE_NUMPY}",
        settings=((_TRACE_NUMPY,),),
    ),
    KnownCause(
        "GB0242",
        ("Attempted to call op with non-contiguous `out=` tensor",),
        title="`out=` with a tensor that is not contiguous",
        advice="use the result of the operation instead of out=",
    ),
    KnownCause(
        "GB0246",
        ("Attempted to use `torch.nn.functional.one_hot` with data-dependent output shape",),
        title="`one_hot` without `num_classes`",
        advice="pass num_classes to one_hot",
        manual_step=ManualStep("Decide how many classes there are, and pass num_classes to one_hot."),
    ),
    KnownCause(
        "GB0247",
        ("Shape mismatch with out= tensor variant",),
        title="`out=` with a tensor of a different shape",
        advice="use the result of the operation instead of out=",
    ),
    KnownCause(
        "GB0250",
        ("ndarray.astype(object)",),
        title="NumPy array of objects",
        advice="use a list instead of an array of objects",
    ),
    KnownCause(
        "GB0253",
        ("call_method on generator",),
        title="Method of a generator",
        advice="turn the generator into a list",
        manual_step=_GENERATOR_STEP,
        settings=((_UNPACK_GENERATORS,),),
    ),
    KnownCause(
        "GB0256",
        ("User-defined object with non-function __getattr__",),
        title="`__getattr__` that is not a Python function",
        advice="write __getattr__ as a function: def __getattr__(self, name): return self[name]",
    ),
    KnownCause(
        "GB0257",
        ("TypedDict with optional keys",),
        title="`TypedDict` with optional keys",
        advice="write a dict, {...}, instead of calling the TypedDict",
    ),
    KnownCause(
        "GB0262",
        ("unsupported contextlib.* API",),
        title="Context manager of `contextlib`",
        advice="enter it around the call to the compiled function",
        manual_step=_CONTEXT_STEP,
    ),
    KnownCause(
        "GB0263",
        ("attempted to trace contextlib.contextmanager",),
        title="`contextlib.contextmanager` with `enable_trace_contextlib` switched off",
        advice=f"set {_TRACE_CONTEXTLIB}",
        setting_advice=f"set {_TRACE_CONTEXTLIB}",
        settings=((_TRACE_CONTEXTLIB,),),
    ),
    KnownCause(
        "GB0264",
        ("Attempted to use `torch.nn.Parameter()` constructor with Dynamo",),
        title="`nn.Parameter` created in compiled code",
        advice="construct the parameter before the compiled function runs, or in the module's __init__; or set "
        f"{_TRACE_PARAMETERS}",
        setting_advice=f"set {_TRACE_PARAMETERS}",
        manual_step=_OBJECT_CREATION_STEP,
        settings=((_TRACE_PARAMETERS,),),
    ),
    KnownCause(
        "GB0269",
        ("Forced graph break on leaf function",),
        title="Break forced by a debugging setting",
        settings=((_NO_FORCED_BREAKS,),),
    ),
    KnownCause(
        "GB0275",
        ("torch._dynamo.step_unsupported() with empty checkpoint",),
        title="`torch._dynamo.step_unsupported()`",
        rewrites=("delete the call",),
        is_deliberate=True,
        is_safe=True,
        since="2.10",
    ),
    KnownCause(
        "GB0277",
        ("Attempted to wrap sparse Tensor with VariableTracker",),
        title="Sparse tensor made in compiled code",
        advice="make the tensor sparse, and dense again, before or after the compiled function runs",
        since="2.10",
    ),
    KnownCause(
        "GB0291",
        ("logging.Logger method not supported for non-export cases",),
        title="Logging",
        advice=(
            f"log after the call, from the function's result; or, if the message may be lost, {_IGNORE_LOGGING_ADVICE}"
        ),
        setting_advice=_IGNORE_LOGGING_ADVICE,
        manual_step=_OUTPUT_STEP,
        former_message_prefix="Logger not supported for non-export cases",
        since="2.10",
    ),
    KnownCause(
        "GB0293",
        ("attempted to trace numpy function with config.trace_numpy=False",),
        title="NumPy function with `trace_numpy` switched off",
        advice=f"set {_TRACE_NUMPY}",
        setting_advice=f"set {_TRACE_NUMPY}",
        settings=((_TRACE_NUMPY,),),
        since="2.10",
    ),
    KnownCause(
        "GB0294",
        ("attempted to trace numpy function unsupported by PyTorch",),
        title="NumPy function without a torch equivalent",
        advice="use the torch function for it, or compute it with NumPy outside of the compiled function",
        manual_step=_NUMPY_STEP,
        former_message_prefix="Can't find numpy function",
        since="2.10",
    ),
    KnownCause(
        "GB0296",
        ("attempted to reorder a debugging function that can't actually be reordered",),
        title="`print` or logging of a value that is neither a tensor nor a string",
        advice="pass only constants, tensors, or f-strings made of them; or print the value after the call",
        former_message_prefix="Reordering debugging function",
        since="2.10",
    ),
    KnownCause(
        "GB0298",
        ("attempted to trace torch._numpy.random function with config.use_numpy_random_stream=True",),
        title="NumPy's random numbers",
        advice=f"set {_NUMPY_RANDOM_FROM_TORCH}, or draw with torch",
        setting_advice=f"set {_NUMPY_RANDOM_FROM_TORCH}",
        manual_step=_NUMPY_STEP,
        settings=((_NUMPY_RANDOM_FROM_TORCH,),),
        since="2.10",
    ),
    KnownCause(
        "GB0300",
        ("numpy function that produces a const collection type encountered non-const arguments",),
        title="NumPy function with arguments that are not constants",
        advice="compute it with NumPy outside of the compiled function",
        manual_step=_NUMPY_STEP,
        since="2.10",
    ),
    KnownCause(
        "GB0328",
        ("torch.func.functional_call capture is disabled",),
        title="`torch.func.functional_call`",
        advice=f"set {_INLINE_MODULES}",
        setting_advice=f"set {_INLINE_MODULES}",
        settings=((_INLINE_MODULES,),),
        former_message_prefix="torch.func.functional_call capture is disabled",
        since="2.10",
    ),
    KnownCause(
        "GB0354",
        ("failed to find name in frame builtins",),
        title="Name that is not defined",
        advice=(
            "define or import the name before the call; if Python finds it without compiling, PyTorch looks in the "
            "wrong place: report that to PyTorch"
        ),
        since="2.10",
    ),
    KnownCause(
        "GB0358",
        ("optimizer: pending mutation on parameter",),
        title="Optimizer step after a changed parameter",
        manual_step=_BACKWARD_STEP,
        since="2.10",
    ),
    KnownCause(
        "GB0364",
        ("User-defined object with overridden __hash__",),
        title="Dictionary key with its own `__hash__`",
        advice="use a string or a number as the key, not an object with its own __hash__",
        manual_step=_TENSOR_KEY_STEP,
        since="2.10",
    ),
    KnownCause(
        "GB0365",
        ("Dynamo cannot determine whether the underlying object is hashable",),
        title="Dictionary key that Dynamo cannot hash",
        advice="use a string or a number as the key",
        manual_step=_TENSOR_KEY_STEP,
        since="2.10",
    ),
    KnownCause(
        "GB0366",
        ("Dynamo cannot determine the hash of an object",),
        title="Dictionary key that Dynamo cannot hash",
        advice="use a string or a number as the key",
        manual_step=_TENSOR_KEY_STEP,
        since="2.10",
    ),
    KnownCause(
        "GB0374",
        ("Sparse tensor creation not supported",),
        title="Sparse tensor created in compiled code",
        advice="create the sparse tensor before the compiled function runs",
        since="2.11",
    ),
    KnownCause(
        "GB0376",
        ("Call to `torch._dynamo.disable()`",),
        title="Call to `torch._dynamo.disable()`",
        advice=(
            "call disable() outside of the compiled function, for example as a decorator of the function to run eagerly"
        ),
        is_deliberate=True,
        since="2.14",
    ),
    KnownCause(
        "GB0377",
        ("Call to `torch.compiler.disable()`",),
        title="Call to `torch.compiler.disable()`",
        advice=(
            "call disable() outside of the compiled function, for example as a decorator of the function to run eagerly"
        ),
        is_deliberate=True,
        since="2.14",
    ),
    KnownCause(
        "GB0569",
        ("repr() on tensor",),
        title="`repr()` of a tensor",
        advice="call repr() after the compiled function returns: it needs the tensor's values",
        manual_step=_OUTPUT_STEP,
        since="2.13",
    ),
    KnownCause(
        "GB0811",
        ("missing tp_iter",),
        title="Iteration over an object that Dynamo does not know",
        advice="turn it into a list before the compiled function runs, and iterate over the list",
        setting_advice=_PARAMETER_LIST_ADVICE,
        since="2.13",
    ),
    KnownCause(
        "GB2019",
        ("Unsupported autograd.Function context `mark_dirty`",),
        title="`autograd.Function` with `ctx.mark_dirty`",
        advice="return a new tensor from forward instead of changing its argument in place",
        since="2.13",
    ),
    KnownCause("GB2412", ("Unsupported attribute",), title="Attribute that Dynamo does not support", since="2.14"),
    KnownCause("GB2549", ("infinite generator detected",), title="Endless generator", since="2.11"),
    KnownCause(
        "GB4197",
        ("Unsupported Tensor.share_memory_() call",),
        title="`Tensor.share_memory_()`",
        advice=_MOVE_OUTSIDE_ADVICE,
        since="2.11",
    ),
    KnownCause(
        "GB4198",
        ("Attempted to copy.deepcopy a tensor",),
        title="`copy.deepcopy` of a tensor",
        advice=(
            "copy it with x.detach().clone(): like a deep copy, the result has no gradient history; without detach(), "
            "gradients flow through the copy"
        ),
        rewrites=("copy with clone()",),
        since="2.12",
    ),
    KnownCause(
        "GB4240",
        ("unsupported __getitem__",),
        title="Index into an object that Dynamo does not know",
        advice="turn it into a list or dict before the compiled function runs",
        since="2.12",
    ),
    KnownCause(
        "GB4297",
        ("Call to `torch._dynamo.skip_frame()`",),
        title="`torch._dynamo.skip_frame()`",
        rewrites=("delete the call",),
        is_deliberate=True,
        is_safe=True,
        since="2.11",
    ),
    KnownCause(
        "GB4315",
        ("RuntimeError when making fake tensor call",),
        title="`RuntimeError` of an operator",
        manual_step=_OPERATOR_ERROR_STEP,
        since="2.11",
        page="errors.md#your-own-error-raised-while-compiling",
    ),
    KnownCause(
        "GB4347",
        ("Missing tp_iternext",),
        title="Iterator that Dynamo does not know",
        advice=(
            "turn it into a list before the loop, for example with list(d.keys()); if an earlier break "
            "caused this one, fix that first"
        ),
        since="2.13",
    ),
    KnownCause(
        "GB4636",
        ("Call to `torch._dynamo.step_unsupported()`",),
        title="`torch._dynamo.step_unsupported()`",
        rewrites=("delete the call",),
        is_deliberate=True,
        is_safe=True,
        since="2.11",
    ),
    KnownCause(
        "GB4695",
        ("torch.jit.script/freeze modules unsupported",),
        title="Scripted module (`torch.jit.script`)",
        advice="compile the original module instead of the scripted one",
        since="2.12",
    ),
    KnownCause(
        "GB4841", ("Unsupported python_type() call",), title="Type of an object that Dynamo does not know", since="2.12"
    ),
    KnownCause(
        "GB4927",
        ("autograd.grad consumed returned tensor's grad_fn",),
        title="Result on which `backward()` was called",
        advice="return loss.detach(), or call backward() after the compiled function returns",
        manual_step=_BACKWARD_STEP,
        since="2.11",
    ),
    KnownCause(
        "GB5173",
        ("Tensor device mismatch",),
        title="Tensors on different devices",
        advice="move both tensors to the same device; if the function creates one of them, pass device=x.device",
        manual_step=_OPERATOR_ERROR_STEP,
        page="errors.md#your-own-error-raised-while-compiling",
        since="2.13",
    ),
    KnownCause(
        "GB5821",
        ("register_post_accumulate_grad_hook on an intermediate tensor",),
        title="Hook on an intermediate tensor",
        advice="register the hook before the compiled function runs",
        since="2.15",
        page="training.md#what-breaks-in-training-code",
    ),
    KnownCause(
        "GB5976",
        ("Data pointer comparison",),
        title="Comparison of `data_ptr()`",
        advice="compare the addresses before the compiled function runs and pass the result as an argument",
        since="2.13",
    ),
    KnownCause(
        "GB6012",
        ("Cannot trace user-defined __len__",),
        title="`len()` of an object implemented in C",
        advice="take the length, or turn the object into a list, before the compiled function runs",
        since="2.12",
    ),
    KnownCause(
        "GB6025",
        ("Failed to trace list()",),
        title="`list()` of an object that Dynamo does not know",
        advice="create the list before the compiled function runs",
        since="2.12",
    ),
    KnownCause(
        "GB6066",
        ("ContextVar.get() with non-constant default",),
        title="`ContextVar.get()`",
        advice="read the variable before the compiled function runs and pass the value as an argument",
        since="2.14",
    ),
    KnownCause(
        "GB6215",
        ("Unresolved GetAttrVariable comparison",),
        title="Comparison with an attribute that Dynamo does not know",
        advice="compare before the compiled function runs; get a logger once, outside of it",
        since="2.13",
    ),
    KnownCause(
        "GB6270",
        ("Unhandled tensor method",),
        title="Tensor method that Dynamo does not know",
        advice="use the torch function that computes it, or call it outside of the compiled function",
        since="2.12",
    ),
    KnownCause(
        "GB6297",
        ("autograd.Function.apply: duplicate tensor input",),
        title="`autograd.Function` called with the same tensor twice",
        since="2.13",
    ),
    KnownCause(
        "GB6622",
        ("list_richcompare_nonconst",),
        title="Comparison of lists or tuples with tensors",
        advice="compare the tensors, not lists or tuples of them",
        since="2.13",
    ),
    KnownCause(
        "GB6815",
        ("ContextVar mutation not supported",),
        title="`ContextVar.set()`",
        advice="set it before or after the compiled function runs",
        since="2.14",
    ),
    KnownCause(
        "GB7000",
        ("graph break in loop",),
        title="Graph break in a loop",
        advice="move the break out of the loop",
        advice_if_consequence=(
            "or move the loop's body into its own function: the body is then compiled, up to the break and after it, "
            "and only the loop itself runs eagerly; to keep the code around the loop compiled, also move the loop "
            "into its own function"
        ),
        since="2.11",
    ),
    KnownCause(
        "GB7312",
        ("failed to bind arguments when attempting to inline",),
        title="Call whose arguments do not fit the function",
        advice="if `forward` of an autograd.Function is a class method, write it with @staticmethod and without `cls`",
        since="2.11",
    ),
    KnownCause(
        "GB7324",
        ("returning intermediate with requires_grad_()",),
        title="Result with `requires_grad_()`",
        advice="call detach() before returning it, or requires_grad_() before the compiled function runs",
        manual_step=_REQUIRES_GRAD_STEP,
        since="2.12",
    ),
    KnownCause(
        "GB7650",
        ("torch.Generator method",),
        title="`torch.Generator`",
        advice=(
            "draw with the global generator, or create and seed the torch.Generator outside of the compiled function"
        ),
        since="2.12",
    ),
    KnownCause(
        "GB8335",
        ("Generator reconstruction with mutations",),
        title="Generator in use across a break",
        advice=skipped_functions.LIVE_GENERATOR_TYPE.way_out,
        setting_advice=_PARAMETER_LIST_ADVICE,
        manual_step=_GENERATOR_STEP,
        skip=skipped_functions.LIVE_GENERATOR_TYPE,
        since="2.11",
    ),
    KnownCause(
        "GB8977",
        ("Invalid call to __build_class__",),
        title="Class defined in the function",
        advice=f"define the class before the compiled function runs, or set {_TRACE_CLASSES}",
        setting_advice=f"set {_TRACE_CLASSES}",
        settings=((_TRACE_CLASSES,),),
        since="2.13",
    ),
    KnownCause(
        "GB8985",
        ("requires_grad_() intermediate leaked as output",),
        title="Result with `requires_grad_()`",
        advice="call detach() before returning it, or requires_grad_() before the compiled function runs",
        manual_step=_REQUIRES_GRAD_STEP,
        rewrites=("leave requires_grad_() out",),
        since="2.12",
    ),
    KnownCause(
        "GB9118",
        ("Data pointer truth value",),
        title="Branch on `data_ptr()`",
        advice="test the address before the compiled function runs and pass the result as an argument",
        since="2.15",
    ),
    KnownCause(
        "GB9158",
        ("Can't convert torch._check*() message closure",),
        title="`torch._check` with values in its message",
        advice="use only constants in the message, or raise the error yourself if the condition is about sizes",
        since="2.13",
    ),
    KnownCause(
        "GB9186",
        ("using `torch.autograd.grad` with `torch._dynamo.config.trace_autograd_ops=False`",),
        title="`torch.autograd.grad`",
        advice=(
            f"call torch.autograd.grad after the compiled function returns, or set {_TRACE_AUTOGRAD} and pass it a "
            "list: list(model.parameters())"
        ),
        setting_advice=f"set {_TRACE_AUTOGRAD}",
        manual_step=_BACKWARD_STEP,
        rewrites=("list the inputs of grad",),
        settings=((_TRACE_AUTOGRAD,),),
        since="2.11",
    ),
    KnownCause(
        "GB9193",
        ("Call to a time function",),
        title="Clock read in compiled code",
        advice=_CLOCK_ADVICE,
        manual_step=_TIMING_STEP,
        since="2.15",
    ),
    KnownCause(
        "GB9493",
        ("C-implemented special method without VariableTracker model",),
        title="Method implemented in C that Dynamo does not know",
        since="2.14",
    ),
    KnownCause(
        "GB9741",
        ("skip frame due to being in functorh mode", "skip frame due to being in functorch mode"),
        title="Function under a `torch.func` transform",
        since="2.11",
    ),
    KnownCause(
        "Generator in use beyond compiled code",
        ("Generator in use beyond compiled code",),
        title="Generator in use beyond the compiled code",
        skip=skipped_functions.ESCAPING_GENERATOR,
    ),
)

#: The known calls that break graphs. If several patterns match a line, the first entry provides the manual step.
CALLS = (
    KnownCall(
        # Dynamo evaluates ``%`` on the tensor while tracing, and that fails. It calls ``format()`` after the graph.
        pattern=r"""^[rRuU]?(["']).*\1\s*%""",
        causes=("GB0033", "GB0088", "GB0208"),
        title="Tensor or size formatted with `%`",
        advice='write "{:.2f}".format(y) or an f-string instead of "%.2f" % y: Python then formats it after the graph',
        manual_step=_OUTPUT_STEP,
    ),
    KnownCall(
        pattern=r"\.tolist\(",
        causes=("GB0033",),
        title="List made of a tensor by `.tolist()`",
        advice=(
            f"{_CAPTURE_SCALARS_ADVICE}s; if the code tests or loops over them, compute the list before the call and "
            "pass it as an argument, or work with the whole tensor and a mask"
        ),
    ),
    KnownCall(
        pattern=r"^[\w.]+\[.+\]$",
        causes=("GB0033",),
        title="Tensor used as an index",
        advice=(
            "x[i] needs the number in i: index with a tensor of one element, x[i.reshape(1)][0], or use "
            "torch.index_select"
        ),
    ),
    KnownCall(
        # Dynamo handles a number that Python's `random` draws as a tensor.
        pattern=r"^(?!.*(?:\brandom\b|\bnp\.|\b(?:equal|allclose|item|tolist|bool|float|int)\()).*\w\(.*\)$",
        context="_local_scalar_dense",
        causes=("GB0033",),
        title="Number for an operation, from a tensor or Python's `random`",
        advice=(
            "the operation needs numbers while Dynamo traces: compute or draw them before the call and pass them as "
            f"arguments; for numbers from a tensor, you can also set {_CAPTURE_SCALARS}"
        ),
    ),
    KnownCall(
        pattern=r"^[\w.]+\[[^\[\]:]+\]$",
        causes=("GB0070", "GB0124"),
        title="Python list indexed with a tensor",
        advice=(
            "turn the list into a tensor once, for example a buffer of the module, and index it with a tensor of one "
            "element: table[i.reshape(1)][0]"
        ),
    ),
    KnownCall(
        pattern=r"^[^()\[\]]*:[^()\[\]]*$",
        causes=("GB0124",),
        title="Tensor used as a bound of a slice",
        advice=(
            f"set {_CAPTURE_SCALARS}; or keep the whole tensor, and set the other elements to a neutral value with "
            "torch.where; or slice after the call"
        ),
        manual_step=_DATA_DEPENDENT_SHAPE_STEP,
    ),
    KnownCall(
        pattern=r"^int\(.*\.max\(\)(?:\.item\(\))?\)$",
        causes=("GB0124",),
        advice=(
            "if this is a size, such as a number of nodes or the largest length, take it from x.shape, or compute it "
            "before the call and pass it as an argument; otherwise keep the value as a tensor, or "
            f"{_CAPTURE_SCALARS_ADVICE}"
        ),
    ),
    KnownCall(
        context=_RANDOM_NUMBER,
        causes=("GB0213",),
        title="Arithmetic with a Python random number",
        advice="draw the number before the call and pass it as an argument",
        manual_step=_RANDOM_NUMBER_STEP,
    ),
    KnownCall(
        context=_RANDOM_NUMBER,
        causes=("GB0170",),
        title="Branch on a Python random number",
        advice=(
            "draw the number before the call and pass it as an argument; or draw a tensor with torch.rand(()) and "
            "choose with torch.where"
        ),
        manual_step=_RANDOM_NUMBER_STEP,
    ),
    KnownCall(
        causes=("GB4347",),
        advice=(
            "turn it into a list before the loop, for example with list(d.keys()); if an earlier break "
            "caused this one, fix that first"
        ),
        manual_step=ManualStep(
            "Fix the other breaks of this function first: one of them may cause this one. Otherwise, decide whether to "
            "loop over a list."
        ),
    ),
    KnownCall(
        pattern=r"\bstr\(.*(?:\.size\(|\.shape\b)",
        causes=("GB0059",),
        title="`str` of a size",
        advice="use the size itself, for example tuple(x.shape) as a key: Dynamo does not turn a size into a string",
    ),
    KnownCall(
        # Until Python 3.11, functools.cached_property holds a lock while it computes the value.
        pattern=r"^with self\.lock:[\s\S]*\bself\.attrname\b",
        causes=("GB0142",),
        title="First read of a `functools.cached_property`",
        advice=(
            "read the property once before the first compiled call, so that the call finds the stored value; or "
            "compute the value in __init__"
        ),
        manual_step=ManualStep(
            "Read the property once before the first compiled call, so that the call finds the stored value; or "
            "compute the value in __init__."
        ),
    ),
    KnownCall(
        pattern="",  # any code
        causes=("UserError",),
        title="Number from a tensor that Dynamo needs while tracing",
        advice=(
            "compute the number before the call and pass it as an argument; or replace the loop or condition that "
            "needs it with operations on whole tensors, such as torch.where or a mask"
        ),
        manual_step=_PYTHON_NUMBER_STEP,
    ),
    KnownCall(
        pattern=r"\bunique\(",
        causes=("GB0036",),
        advice=(
            "if a loop runs over the result, loop over all values that can occur, such as range(len(self.experts)), "
            f"{_GROUPING_ADVICE}; otherwise set {_CAPTURE_SHAPES}"
        ),
        manual_step=ManualStep(
            "Decide how many different values can occur: a loop over range(n) needs no data; for sums, means and "
            "counts per value, write torch.nn.functional.one_hot(labels, n).float().T @ x, or x.new_zeros(n, "
            "x.shape[1]).index_add(0, labels, x)."
        ),
    ),
    KnownCall(
        pattern=r"\bbincount\(",
        causes=("GB0036",),
        advice=(
            "count with torch.nn.functional.one_hot(x, n).sum(0), whose size is fixed; if the counts only serve to "
            "skip empty selections, remove them"
        ),
        manual_step=ManualStep(
            "Decide how many different values can occur: torch.nn.functional.one_hot(x, n).sum(0) counts them in a "
            "tensor of fixed size."
        ),
    ),
    KnownCall(
        pattern=r"\bcreate_graph\s*=\s*True",
        causes=("GB9186",),
        title="`torch.autograd.grad` with `create_graph=True`",
        advice=(
            "compute this gradient inside the compiled function, with torch.func.grad; or set "
            f"{_TRACE_AUTOGRAD}. A gradient of compiled code's gradient is an error, except with the backend eager"
        ),
        manual_step=ManualStep(
            "Decide whether torch.func.grad can compute this gradient inside the compiled function; otherwise leave "
            "the model that it differentiates uncompiled here: only the backend eager allows a gradient of a gradient."
        ),
        page="training.md#a-gradient-of-a-gradient",
    ),
    KnownCall(
        pattern=r"orig_fwd\(",
        causes=("GB7312",),
        title="`forward` of an `autograd.Function` as a class method",
        advice="write `forward` with @staticmethod, and without `cls`",
        manual_step=ManualStep(
            "Write the `forward` of the autograd.Function with @staticmethod and without `cls`: Dynamo passes the "
            "class twice."
        ),
    ),
    KnownCall(
        pattern=r"\bpack(?:_padded)?_sequence\(|\bpad_packed_sequence\(",
        causes=("GB0007", "GB0008", "GB0014"),
        title="Packed sequences for an RNN",
        advice=(
            "compile what is before and after the RNN; or run the RNN on the padded sequences, and take each last "
            "state with out[torch.arange(len(lengths)), lengths - 1]"
        ),
        manual_step=ManualStep(
            "Decide whether to compile only what is before and after the RNN, or whether it can run on the padded "
            "sequences: packing needs the lengths on the host."
        ),
    ),
    KnownCall(
        causes=("GB0007",),
        context="_LegacyVariableBase",
        title="`torch.autograd.Variable`",
        advice="write x.detach() instead of Variable(x): it does the same; a new tensor needs neither",
        manual_step=ManualStep("Write x.detach() instead of Variable(x): it does the same."),
    ),
    KnownCall(
        causes=("GB0007",),
        context="torch/optim/lr_scheduler.py",
        title="`step()` of an optimizer with a learning-rate scheduler",
        advice=(
            "the scheduler wraps step(), and PyTorch does not trace its wrapper, but the update is still compiled as "
            "one graph: leave it, or call the optimizer after the compiled function returns"
        ),
        manual_step=ManualStep(
            "Leave it, or call the optimizer after the compiled function returns: the scheduler wraps step(), and "
            "PyTorch does not trace its wrapper, but the update is still compiled as one graph."
        ),
    ),
    KnownCall(
        names=("print",),
        pattern=r"\bprint\(",
        title="`print`",
        advice=(
            f"print after the call, from the function's result; or add print to {CONFIG}"
            "reorderable_logging_functions: it then prints at the end of the graph, but not in functions that the "
            "compiled function calls"
        ),
        setting_advice=f"add print to {CONFIG}reorderable_logging_functions",
        manual_step=_OUTPUT_STEP,
    ),
    KnownCall(
        names=("warn",),
        pattern=r"warnings?\.warn",
        title="`warnings.warn`",
        advice=(
            f"warn after the call, from the function's result; or add warnings.warn to {CONFIG}"
            "reorderable_logging_functions: the warning then comes at the end of the graph"
        ),
        setting_advice=f"add warnings.warn to {CONFIG}reorderable_logging_functions",
        manual_step=_OUTPUT_STEP,
    ),
    KnownCall(pattern=r"\blog(ger|ging)?\.\w+\(", title="Logging", manual_step=_OUTPUT_STEP),
    KnownCall(
        names=("tqdm",),
        title="Progress bar",
        advice="loop without the progress bar if torch.compiler.is_compiling(), or compile only the body of the loop",
    ),
    KnownCall(
        names=("tqdm.write", "tqdm.update", "tqdm.set_postfix", "tqdm.set_postfix_str", "tqdm.set_description"),
        pattern=r"\b(?:tqdm|pbar|bar)\.(?:write|update|set_postfix|set_description)\w*\(",
        title="Progress bar",
        advice="update the progress bar after the call, from the function's result",
        manual_step=_OUTPUT_STEP,
    ),
    KnownCall(
        names=(
            "SummaryWriter.add_scalar",
            "SummaryWriter.add_scalars",
            "SummaryWriter.add_histogram",
            "SummaryWriter.add_image",
            "SummaryWriter.add_figure",
            "SummaryWriter.add_text",
        ),
        pattern=r"\.add_(?:scalars?|histogram|image|figure|text)\(",
        title="TensorBoard log",
        advice="return what you log, and log it after the call; or put the call into a method under "
        "@torch.compiler.disable, which is one break",
        manual_step=_OUTPUT_STEP,
        page="libraries.md#wandb-tensorboard-mlflow",
    ),
    KnownCall(
        names=("time", "perf_counter"),
        pattern=r"\b(perf_counter|monotonic|process_time|time\.time|time_ns|synchronize|elapsed_time)\b",
        title="Clock read in compiled code",
        advice=_CLOCK_ADVICE,
        manual_step=_TIMING_STEP,
    ),
    KnownCall(
        names=("sleep",),
        pattern=r"\bsleep\(",
        title="`sleep`",
        advice=_MOVE_OUTSIDE_ADVICE,
        manual_step=ManualStep("Decide whether to wait before or after the call: a graph cannot wait."),
    ),
    KnownCall(
        pattern=r"(?i)(\b|_)r?(lock|acquire|release|semaphore)\b",
        title="Lock",
        manual_step=ManualStep("Decide whether the lock may be held around the whole call: a graph cannot acquire it."),
    ),
    KnownCall(
        names=("DataLoader.__iter__",),
        pattern=r"(?i)loader\b",
        title="Loop over a `DataLoader`",
        advice="compile the model, or a function for one batch, and call it in a loop that is not compiled",
        manual_step=ManualStep(
            "Decide what to compile for one batch: the model, or a function for one step. A loop over a `DataLoader` "
            "cannot be compiled.",
            decides_compiled_region=True,
        ),
        page="where_to_compile.md#the-training-step",
    ),
    KnownCall(
        pattern=r"\b(?:tqdm|trange)\(",
        title="Progress bar",
        advice="compile the model, or a function for one step, and call it in a loop that is not compiled",
        manual_step=ManualStep(
            "Decide what to compile for one step: the model, or a function. A loop with a progress bar runs eagerly.",
            decides_compiled_region=True,
        ),
        page="where_to_compile.md#the-training-step",
    ),
    KnownCall(
        names=("GradScaler.scale", "GradScaler.unscale_", "GradScaler.step", "GradScaler.update", "LRScheduler.step"),
        pattern=r"scaler\.(scale|unscale_|step|update)\(|\b\w*sched\w*\.step\(",
        title="Gradient scaler or learning-rate scheduler",
        advice=(
            "compile the forward pass, and call backward(), the gradient scaler, the optimizer and the scheduler after "
            "it"
        ),
        manual_step=_BACKWARD_STEP,
        page="where_to_compile.md#the-training-step",
    ),
    KnownCall(
        pattern=r"\.backward\(|\.zero_grad\(|optimi[sz]er\w*\.step\(|\bopt\w*\.step\(",
        title="Backward pass or optimizer step",
        advice="compile the forward pass, and call backward() and the optimizer after it",
        manual_step=_BACKWARD_STEP,
        page="where_to_compile.md#the-training-step",
    ),
    KnownCall(
        pattern=r"\.generate\(",
        title="`generate()`",
        manual_step=ManualStep(
            "Decide whether to compile the model's forward instead: generate() is a loop whose end depends on the data."
        ),
        page="where_to_compile.md#generate",
    ),
    KnownCall(
        pattern=r"\b(np|numpy)\.random\b",
        title="NumPy's random numbers",
        advice="draw before the call and pass the numbers as arguments, or draw a tensor with torch.rand()",
        manual_step=_NUMPY_STEP,
    ),
    KnownCall(
        pattern=r"(?<![\w.])random\.(random|choices?|sample|shuffle|gauss|normalvariate|expovariate)\(",
        title="Random number from Python's `random`",
        advice="draw before the call and pass the number as an argument, or draw a tensor with torch.rand()",
        manual_step=_RANDOM_NUMBER_STEP,
    ),
    KnownCall(
        pattern=r"\bset\(|\bfrozenset\(",
        title="Set of tensors",
        manual_step=ManualStep("Decide on an order: use a list or a dict instead of the set of tensors."),
    ),
    KnownCall(
        pattern=r"\bsorted\(|\.sort\(",
        title="Sort by tensors",
        manual_step=ManualStep("Decide what else to sort by, or sort the values with torch.sort."),
    ),
    KnownCall(
        pattern=r"\bsparse_\w+_tensor\(|\.to_sparse\w*\(",
        title="Sparse tensor made in compiled code",
        advice=_SPARSE_ADVICE,
        manual_step=ManualStep(
            "Decide whether to make the sparse tensor before the call, and to multiply by it in code that is not "
            "compiled; or write the product with dense tensors: out.index_add(0, rows, values * x[columns])."
        ),
    ),
    KnownCall(
        names=("open", "posix.stat", "posix.listdir", "posix.lstat"),
        pattern=r"\bopen\(|\.read\(|\.write\(|\.save\(|\.load\(|\bos\.path\.(exists|is(file|dir)|getsize)\(",
        title="File access",
        advice="read or write the file before or after the compiled function runs",
        manual_step=ManualStep("Decide whether to use the file before or after the call."),
    ),
    KnownCall(
        names=("input",),
        pattern=r"\binput\(",
        title="`input`",
        advice="read the input before the compiled function runs and pass it as an argument",
        manual_step=_INTERACTION_STEP,
    ),
    KnownCall(
        names=("breakpoint",),
        pattern=r"\bbreakpoint\(|set_trace\(",
        title="`breakpoint`",
        advice="debug it eagerly, with torch.compiler.set_stance('force_eager')",
        manual_step=_INTERACTION_STEP,
        page="errors.md#step-through-compiled-code-with-a-debugger",
    ),
    KnownCall(
        pattern=r"\bcontext_?var\w*\.|\.get\(\)",
        manual_step=ManualStep(
            "Decide whether the variable can be read before the call and its value passed as an argument: a graph "
            "keeps the value that the variable had while tracing."
        ),
    ),
    KnownCall(
        pattern=r"\bwhile\b",
        manual_step=ManualStep(
            "Decide on a maximum number of iterations, or use torch.while_loop: the loop's end depends on the data."
        ),
    ),
)


def known_cause(gb_id: str | None, name: str, context: str | None = None, code: str | None = None) -> KnownCause:
    """Return the entry for a cause; the facts about a known call replace the entry's own facts.

    A cause that is not in the table gets an entry whose title is the cause's name. PyTorch's debug context of the break
    may contain the name of the called function.
    """
    by_id, by_name = _causes_by_id_and_name()
    cause = by_id.get(gb_id or "") or by_name.get(name) or KnownCause(gb_id or name, (name,), name)
    calls_for_cause = (
        call
        for call in CALLS
        if cause.id in call.causes and re.search(call.pattern or "", code or "") and call.context in (context or "")
    )
    if (call := next(calls_for_cause, None)) is not None:
        manual_step = call.manual_step or cause.manual_step
        return replace(
            cause,
            title=call.title or cause.title,
            advice=call.advice,
            manual_step=manual_step,
            page=call.page or cause.page,
        )
    called_name = _called_function_name(context)
    names = {called_name, called_name.rpartition(".")[2]}
    calls = (call for call in CALLS if cause.is_named_by_call and not names.isdisjoint(call.names))
    call_in_context = next(calls, None)
    # If a function such as ``print`` is disabled on purpose with torch.compiler.disable, its name does not matter.
    is_disabled = cause.is_deliberate and cause.manual_step is not None
    call_in_code = None if is_disabled else _find_call_in_code(code or "")
    if call_in_code is not None and call_in_code.manual_step is not None:
        cause = replace(cause, manual_step=call_in_code.manual_step)
    call = call_in_context or call_in_code
    if call is None or not cause.is_named_by_call:
        return cause
    return replace(
        cause,
        title=call.title or cause.title,
        advice=call.advice or cause.advice,
        setting_advice=call.setting_advice or cause.setting_advice,
        page=(call.page if call.title else None) or cause.page,
    )


def belongs_outside(gb_id: str | None, name: str, code: str | None) -> bool:
    """Return whether the code of a break, such as a backward pass, belongs outside of the compiled function."""
    step = known_cause(gb_id, name, code=code).manual_step
    return step is not None and step.decides_compiled_region


def cause_name_of_former_message(text: str) -> str | None:
    """Return the cause's name for an older PyTorch message with neither an id nor a name; ``None`` if unknown."""
    former = (
        cause
        for cause in CAUSES
        if cause.former_message_prefix is not None and text.startswith(cause.former_message_prefix)
    )
    return next((cause.names[0] for cause in former), None)


@functools.cache
def setting_titles() -> frozenset[str]:
    """Return the titles of all remedies that only change settings; no title quotes a user's program."""
    return frozenset(title_of(settings) for cause in CAUSES for settings in cause.settings)


@functools.cache
def all_advice() -> frozenset[str]:
    """Return all advice in the tables; none of it quotes a user's program."""
    entries = (*CAUSES, *CALLS)
    sentences = {sentence for entry in entries for sentence in (entry.advice, entry.setting_advice)}
    sentences |= {cause.advice_if_consequence for cause in CAUSES}
    sentences |= {sentence for cause in CAUSES for _, sentence in cause.advice_by_use}
    sentences |= {switch.advice for switch in SWITCHES} | {bug.advice_in_report for bug in bugs_with_messages()}
    return frozenset(sentence for sentence in sentences if sentence is not None) | all_owner_advice()


@functools.cache
def _causes_by_id_and_name() -> tuple[dict[str, KnownCause], dict[str, KnownCause]]:
    return {cause.id: cause for cause in CAUSES}, {name: cause for cause in CAUSES for name in cause.names}


def _find_call_in_code(code: str) -> KnownCall | None:
    calls = (call for call in CALLS if call.pattern is not None and not call.causes)
    return next((call for call in calls if re.search(call.pattern or "", code)), None)


def _called_function_name(context: str | None) -> str:
    """Return the name of the function that Dynamo could not trace; the name of a method includes its class.

    The name is "print" for ``builtin print [...]``, and empty if the context contains none.
    """
    words = (context or "").replace(",", " ").split()
    words_before_name = {"builtin", "qualname:"}
    return next((words[n + 1] for n, word in enumerate(words[:-1]) if word in words_before_name), "")
