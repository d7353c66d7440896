"""The step that removes a break, by its GB id or its type, with its trap where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.torch_text.messages import Cause

_CONFIG = "torch._dynamo.config."
_OUTSIDE = "move it before or after the compiled function"
_SCALARS = f"{_CONFIG}capture_scalar_outputs = True"
_SHAPES = f"{_CONFIG}capture_dynamic_output_shape_ops = True"

_STEPS: dict[str, str] = {
    "BackendCompilerFailed": (
        'the graph was captured and the backend failed on it: run it with backend="eager"; if "aot_eager" runs it, '
        "too, the fault is in the generated code"
    ),
    "GB0003": "compile the function that consumes the generator, not the generator",
    "GB0007": "call it before or after the compiled function, or hand its result in; Dynamo cannot look into it",
    "GB0014": f"set {_CONFIG}allow_rnn = True",
    "GB0015": "convert the sparse tensor with to_dense() before the compiled function",
    "GB0029": (
        "put what the hook does into the backward of a torch.autograd.Function and use what its apply() returns"
    ),
    "GB0033": (
        f"for .tolist() set {_SCALARS}; for torch.equal(a, b) write (a == b).all() and keep it a tensor; else compute "
        "it outside of the compiled function"
    ),
    "GB0034": "check with torch._assert(condition, 'constant message'), or check after the call",
    "GB0036": (
        f"set {_SHAPES}, or keep the shape: torch.where(mask, x, 0).sum() for x[mask].sum(); the setting can turn a "
        "break into an error"
    ),
    "GB0037": "compute it outside of the compiled function: Dynamo cannot follow a shape that depends on the data",
    "GB0038": f"slice with numbers, not with tensors; for a length from a tensor set {_SCALARS} and use .item()",
    "GB0039": (
        "give what changes from call to call as a tensor, or mark it with torch._dynamo.mark_dynamic; "
        f"or raise {_CONFIG}recompile_limit"
    ),
    "GB0056": "make a new tensor instead of changing .data, or do it outside of the compiled function",
    "GB0058": "keep the attribute in a variable or on a module, or set it outside of the compiled function",
    "GB0059": "use operations on tensors instead of this builtin, or call it outside of the compiled function",
    "GB0075": "define the class outside of the compiled function",
    "GB0083": f"set {_CONFIG}compiled_autograd = True, or do without the module's backward hook",
    "GB0087": "give the operator a meta kernel with torch.library.register_fake",
    "GB0088": "raise and catch the exception outside of the compiled function, or test for its cause beforehand",
    "GB0090": "give the operator a fake kernel with torch.library.register_fake",
    "GB0092": "build it after the compiled function, from what that returns: it cannot outlive a break",
    "GB0097": "use a deque without maxlen, or a list",
    "GB0098": "somebody disabled it: decide whether it must stay out of the graph; if not, take disable away",
    "GB0099": "somebody disabled it: decide whether it must stay out of the graph; if not, take disable away",
    "GB0104": "do without grad_fn in the compiled function",
    "GB0105": f"set {_CONFIG}trace_numpy = True, or stay with tensors",
    "GB0107": (
        "draw a new tensor with torch.randint_like(x, low, high); copy_() it where the tensor must stay the same"
    ),
    "GB0109": (
        "keep the values as a tensor and use operations on tensors; where numbers are needed, take them one by one "
        f"with .item() and set {_SCALARS}"
    ),
    "GB0110": "use uniform_(a, b) without the keyword",
    "GB0115": "group before the compiled function and hand the groups in",
    "GB0123": (
        "compile the forward part only and call backward() after it: its backward is compiled all the same; or set "
        f"{_CONFIG}trace_autograd_ops = True"
    ),
    "GB0124": (f"keep the value as a tensor; .item() needs it on the host. Where a number is needed, set {_SCALARS}"),
    "GB0125": "call requires_grad_() before the compiled function, or detach() where only the values are used",
    "GB0126": "allocate the tensor with its final size, or make a new one",
    "GB0127": "allocate the tensor with its final size, or make a new one",
    "GB0134": "group before the compiled function and hand the groups in",
    "GB0142": "enter the context around the call of the compiled function, not in it",
    "GB0147": "call it before the compiled function and hand the result in: an iterator as a list",
    "GB0150": "make a list of it before hasattr() asks it: an iterator such as map() cannot be inspected",
    "GB0151": "inspect the function before the compiled function",
    "GB0152": "group before the compiled function, or by keys that are constants",
    "GB0156": "make it in the compiled function, or hand it in as a list or a tensor: an iterator as list(...)",
    "GB0158": "use the torch function for it, or compute it with NumPy outside of the compiled function",
    "GB0170": ("take both sides with torch.where(condition, a, b); or torch.cond, where they hold no dropout"),
    "GB0171": "give the assert a message that is a string, not one made of tensors",
    "GB0179": "copy before the compiled function; tensors with .detach().clone()",
    "GB0187": "decorate with functools.wraps outside of the compiled function",
    "GB0203": "use constants as keys: strings or numbers, not tensors",
    "GB0204": "use constants as keys: strings or numbers, not tensors",
    "GB0206": "set requires_grad before the compiled function, or use detach() where it is set to False",
    "GB0207": "sort by a number that is known, or sort the values with torch.sort",
    "GB0208": "set or enter it outside of the compiled function: it returns no tensor",
    "GB0213": "use the torch function of that name instead of the builtin",
    "GB0220": "make a new tensor with x.to(dtype) instead of changing .data",
    "GB0222": "use a list, or a dict with the tensors as keys: a set has no order",
    "GB0223": "give torch.compile its options by keyword",
    "GB0225": "create the tensor before the compiled function, or call requires_grad_() on it",
    "GB0231": f"set {_CONFIG}trace_numpy = True",
    "GB0246": "give one_hot its num_classes",
    "GB0253": "make a list of the generator",
    "GB0263": f"set {_CONFIG}enable_trace_contextlib = True",
    "GB0264": (
        "construct the parameter before the compiled function, or in the module's __init__; or set "
        f"{_CONFIG}graph_break_on_nn_param_ctor = False"
    ),
    "GB0291": (
        "log after the call, from what the function returns; or, to lose the message, add the method to "
        f"{_CONFIG}ignore_logging_functions"
    ),
    "GB0293": f"set {_CONFIG}trace_numpy = True",
    "GB0294": "use the torch function for it, or compute it with NumPy outside of the compiled function",
    "GB0296": "give it constants, tensors or f-strings of them only, or say it after the call",
    "GB0298": f"set {_CONFIG}use_numpy_random_stream = False, or draw with torch",
    "GB0300": "compute it with NumPy outside of the compiled function",
    "GB0328": f"set {_CONFIG}inline_inbuilt_nn_modules = True",
    "GB0364": "use a key without a __hash__ of its own: a string or a number",
    "GB0365": "use a key that is a string or a number",
    "GB0366": "use a key that is a string or a number",
    "GB0569": "say it after the call: the text of a tensor needs its values",
    "GB0811": "iterate over a list of it that was made before the compiled function",
    "GB4197": _OUTSIDE,
    "GB4198": (
        "copy it with x.detach().clone(); without detach() gradients flow through the copy, which deepcopy does not let"
    ),
    "GB4240": "make a list or dict of it before the compiled function",
    "GB4347": (
        "make a list of it before the loop, as with list(d.keys()); if an earlier break left it, fix that first"
    ),
    "GB4695": "compile the module that was not scripted",
    "GB6025": "make the list before the compiled function",
    "GB6270": "use the torch function that computes it, or call it outside of the compiled function",
    "GB7000": "move the break out of the loop",
    "GB7324": "call detach() before returning it, or requires_grad_() before the compiled function",
    "GB7650": "draw with the global generator, or make and seed the torch.Generator outside of the compiled function",
    "GB8335": "use the generator up before the break, as with list(...), or have it change nothing outside of it",
    "GB8977": f"define the class before the compiled function, or set {_CONFIG}enable_trace_load_build_class = True",
    "GB8985": "call detach() before returning it, or requires_grad_() before the compiled function",
    "GB9186": f"call torch.autograd.grad after the compiled function, or set {_CONFIG}trace_autograd_ops = True",
}

#: Names of earlier releases, or of breaks that they give no id.
_IDS = {
    "Attempt to trace generator": "GB0003",
    "Data dependent operator": "GB0033",
    "Data-dependent branching": "GB0170",
    "Dynamic shape operator": "GB0036",
    "Generator reconstruction with mutations": "GB8335",
    "Tensor.item() with capture_scalar_outputs=False": "GB0124",
    "Unsupported Tensor.item() call with capture_scalar_outputs=False": "GB0124",
}

_SAY = (
    f"print after the call, from what the function returns; or add print to {_CONFIG}reorderable_logging_functions: it "
    "then prints at the end of the graph, but nothing from a function that is called inside"
)
#: What a builtin or a function that Dynamo does not look into calls for, by how its name ends.
_CALLS = {
    "print": _SAY,
    "warn": (
        f"warn after the call, from what the function returns; or add warnings.warn to {_CONFIG}"
        "reorderable_logging_functions: it then comes at the end of the graph"
    ),
    "tqdm": "loop without the progress bar where torch.compiler.is_compiling(), or compile the body of the loop only",
    "time": "take the time around the call: in the compiled function nothing has run when the clock is read",
    "perf_counter": "take the time around the call: in the compiled function nothing has run when the clock is read",
    "sleep": _OUTSIDE,
    "open": "read or write the file before or after the compiled function",
    "input": "ask before the compiled function and hand the answer in",
    "breakpoint": "debug it eagerly, with torch.compiler.set_stance('force_eager')",
}


def steps_for(cause: Cause) -> list[str]:
    """Return our steps for a break, the best first."""
    gb_id = cause.gb_id or ""
    if gb_id not in _STEPS:
        gb_id = _IDS.get(cause.gb_type, gb_id)
    call = _CALLS.get(_called(cause)) if gb_id in {"GB0007", "GB0059"} else None
    step = call or _STEPS.get(gb_id) or _STEPS.get(cause.gb_type)
    return [step] if step is not None else []


def all_steps() -> set[str]:
    """Return all our steps; none holds a word of anybody's program."""
    return {*_STEPS.values(), *_CALLS.values()}


def _called(cause: Cause) -> str:
    """Return the name of the function that Dynamo could not trace: "print" of ``builtin print [...]``."""
    words = (cause.context or "").replace(",", " ").split()
    marks = {"builtin", "qualname:"}
    name = next((words[n + 1] for n, word in enumerate(words[:-1]) if word in marks), "")
    return name.rpartition(".")[2]
