"""List PyTorch's process-wide settings, and its functions that affect files, other processes or registries."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import sys
from contextvars import ContextVar, copy_context
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jupyter_graphbreak._torch_compat.default_device import default_device_state, restore_default_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: The device types that have an autocast mode.
AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps")
_WRITER_FUNCTIONS = (
    ("torch._C", "PyTorchFileWriter"),
    ("torch._C", "ScriptFunction.save"),
    *(
        ("torch.jit._script", f"{kind}.{method}")
        for kind in ("RecursiveScriptModule", "ScriptModule")
        for method in ("save", "_save_for_lite_interpreter")
    ),
    ("torch.autograd.profiler", "profile.export_chrome_trace"),
    ("torch.autograd.profiler", "profile.export_stacks"),
)


def file_writers() -> list[tuple[Any, str, str]]:
    """Return PyTorch's functions that write files: the owner, the name, and a phrase to put before the path."""
    return [(owner, name, "writes to the file") for owner, name in _existing_functions(_WRITER_FUNCTIONS)]


#: Functions that map a file into memory: the module and the name.
_MAPPING_FUNCTIONS = (("torch", "from_file"), ("torch", "UntypedStorage.from_file"))


def memory_mapping_functions() -> list[tuple[Any, str]]:
    """Return PyTorch's functions that map a file into memory: the owner and the name."""
    return list(_existing_functions(_MAPPING_FUNCTIONS))


#: PyTorch's functions that open files or connections without an audit event.
_UNAUDITED_OPENING: tuple[tuple[str, str, Literal["file", "network"], str], ...] = (
    ("torch._C._distributed_c10d", "FileStore.__init__", "file", "writes to a torch.distributed file"),
    ("torch._C._distributed_c10d", "TCPStore.__init__", "network", "connects to a store of torch.distributed"),
)


def unaudited_opening_functions() -> list[tuple[Any, str, Literal["file", "network"], str]]:
    """Return the functions that open a file or connection without an audit event: owner, name, kind and a phrase."""
    return [
        (owner, name, kind, phrase)
        for module, dotted_name, kind, phrase in _UNAUDITED_OPENING
        for owner, name in _existing_functions([(module, dotted_name)])
    ]


def _existing_functions(functions: Iterable[tuple[str, str]]) -> Iterator[tuple[Any, str]]:
    """Yield the owner and the name of each function that this PyTorch has, given its module and its dotted name."""
    for module, dotted_name in functions:
        owner_name, _, name = dotted_name.rpartition(".")
        owner = sys.modules.get(module)
        owner = _nested_attribute(owner, owner_name) if owner_name else owner
        if callable(getattr(owner, name, None)):
            yield owner, name


#: Functions that register something permanently with PyTorch.
_REGISTRATION_FUNCTIONS = (
    ("torch.library", "Library.define"),
    ("torch.library", "Library.impl"),
    ("torch.library", "Library.fallback"),
    ("torch.utils._pytree", "register_pytree_node"),
    ("torch.serialization", "add_safe_globals"),
)


def registration_functions() -> list[tuple[Any, str]]:
    """Return the functions that register something with PyTorch: the owner and the name."""
    return list(_existing_functions(_REGISTRATION_FUNCTIONS))


#: The methods of a process group that do not communicate.
_NON_COMMUNICATING_METHODS = frozenset({"rank", "size", "name", "boxed", "unbox", "set_timeout"})


def collectives() -> list[tuple[Any, str]]:
    """Return the owner and name of each function that processes use to communicate; none for a single process."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return []
    if distributed.get_world_size() < _MIN_WORLD_SIZE:
        return []
    group = distributed.ProcessGroup
    methods = [
        (group, name)
        for name, member in vars(group).items()
        if not name.startswith(("__", "_get", "_set", "_is", "_has", "group_", "get_"))
        and name not in _NON_COMMUNICATING_METHODS
        and callable(member)
        and not isinstance(member, type)
    ]
    functional = sys.modules.get("torch.distributed._functional_collectives")
    functions = [
        (functional, name)
        for name, member in vars(functional).items()
        if name.startswith(("all_", "broadcast", "permute_tensor", "reduce_scatter"))
        and isinstance(member, FunctionType)
    ]  # fmt: skip
    return methods + functions


_MIN_WORLD_SIZE = 2
_MISSING = object()


class ProcessSetting(NamedTuple):
    """A process-wide setting, with the names of the functions and attributes that code uses to change it."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    names: frozenset[str]


#: Settings with a getter and a setter in ``torch``.
_SETTING_FUNCTIONS = (
    ("the number of threads", "get_num_threads", "set_num_threads"),
    ("the precision of matrix products", "get_float32_matmul_precision", "set_float32_matmul_precision"),
    ("anomaly detection", "is_anomaly_enabled", "autograd.set_detect_anomaly"),
    ("the default dtype", "get_default_dtype", "set_default_dtype"),
    ("the debug mode of deterministic algorithms", "get_deterministic_debug_mode", "set_deterministic_debug_mode"),
    ("whether PyTorch repeats warnings", "is_warn_always_enabled", "set_warn_always"),
    (
        "checks of sparse tensors",
        "sparse.check_sparse_tensor_invariants.is_enabled",
        "_C._set_check_sparse_tensor_invariants",
    ),
    ("whether NNPACK is used", "_C._get_nnpack_enabled", "_C._set_nnpack_enabled"),
    ("the threads of backward passes", "_C._is_multithreading_enabled", "_C._set_multithreading_enabled"),
    ("the library for linear algebra", "_C._get_linalg_preferred_backend", "_C._set_linalg_preferred_backend"),
    ("the library for matrix products", "_C._get_blas_preferred_backend", "_C._set_blas_preferred_backend"),
    *(
        (f"how modules convert their parameters ({setting})", f"__future__.get_{setting}", f"__future__.set_{setting}")
        for setting in ("overwrite_module_params_on_conversion", "swap_module_params_on_conversion")
    ),
    *(
        (name, f"{module}.get_{setting}", f"{module}.set_{setting}")
        for name, module, setting in (
            ("how processes share tensors", "multiprocessing", "sharing_strategy"),
            ("the byte order of files", "serialization", "default_load_endianness"),
            ("the mapping of files", "serialization", "default_mmap_options"),
        )
    ),
)
#: Further names that code uses to change a setting of ``_SETTING_FUNCTIONS`` or ``_FLAGS``.
_FURTHER_NAMES = {
    "_hub_dir": ("set_dir",),
    "the default dtype": ("set_default_tensor_type",),
    "anomaly detection": ("detect_anomaly",),
    "checks of sparse tensors": ("check_sparse_tensor_invariants", "enable", "disable"),
    "whether NNPACK is used": ("set_flags", "flags"),
    "the threads of backward passes": ("set_multithreading_enabled",),
    "the library for linear algebra": ("preferred_linalg_library",),
    "the library for matrix products": ("preferred_blas_library",),
    "the debug mode of deterministic algorithms": ("use_deterministic_algorithms", "_set_deterministic_algorithms"),
}
_AUTOCAST_NAMES = frozenset({
    "set_autocast_enabled", "set_autocast_dtype", "set_autocast_cpu_enabled", "set_autocast_cpu_dtype",
    "set_autocast_gpu_dtype", "autocast",
})  # fmt: skip
#: Flags, which are attributes of modules.
_FLAGS = (
    ("torch.backends.cudnn", ("enabled", "benchmark", "deterministic", "allow_tf32", "benchmark_limit")),
    (
        "torch.backends.cuda.matmul",
        ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"),
    ),
    ("torch.backends.mkldnn", ("enabled", "deterministic", "allow_tf32")),
    ("torch.backends.mkl", ("verbose",)),
    ("torch.backends.quantized", ("engine",)),
    *(
        (f"torch.backends{part}", ("fp32_precision",))
        for part in (
            "",
            *(".cuda.matmul", ".cudnn", ".cudnn.conv", ".cudnn.rnn"),
            *(".mkldnn", ".mkldnn.matmul", ".mkldnn.conv", ".mkldnn.rnn"),
        )
    ),
    ("torch.backends.opt_einsum", ("enabled", "strategy")),
    ("torch.utils.deterministic", ("fill_uninitialized_memory",)),
    ("torch.hub", ("_hub_dir",)),
)
#: Modules with registries of hooks that run for all objects of a kind.
_GLOBAL_HOOKS = (
    ("torch.nn.modules.module", "hooks of all modules"),
    ("torch.optim.optimizer", "hooks of all optimizers"),
)
#: The functions that add and remove hooks for all objects of a kind.
_HOOK_FUNCTIONS = frozenset({
    "register_module_forward_pre_hook", "register_module_forward_hook", "register_module_backward_hook",
    "register_module_full_backward_pre_hook", "register_module_full_backward_hook",
    "register_module_buffer_registration_hook", "register_module_module_registration_hook",
    "register_module_parameter_registration_hook", "register_optimizer_step_pre_hook",
    "register_optimizer_step_post_hook", "remove",
})  # fmt: skip
#: The modules with PyTorch's settings, and descriptions of the settings.
CONFIGURATIONS = {
    **{
        module: f"settings of {module}"
        for module in (
            "torch._dynamo.config", "torch._inductor.config", "torch._functorch.config", "torch.compiler.config",
            "torch.fx.experimental._config",
        )
    },
    "torch.utils.serialization.config": "how PyTorch saves and loads files",
}  # fmt: skip
#: Objects whose attributes are settings: module, name, description, and the function that changes them.
_STATE_OBJECTS = (
    ("torch._tensor_str", "PRINT_OPTS", "the options for printing tensors", "set_printoptions"),
    ("torch._logging._internal", "log_state", "what PyTorch logs", "set_logs"),
)
#: An environment variable that Inductor sets for itself when it first loads a kernel.
INDUCTOR_VARIABLE = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
_ATTENTION_BACKENDS = ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")


def process_settings() -> Iterator[ProcessSetting]:
    """Yield the settings that this PyTorch has."""
    import torch

    yield ProcessSetting("the default device", default_device_state, restore_default_device,
                         frozenset({"set_default_device"}))  # fmt: skip
    for device_type in AUTOCAST_DEVICES:
        yield ProcessSetting(f"autocast on {device_type}", *_autocast_accessors(device_type), _AUTOCAST_NAMES)
    for name, getter, setter in _SETTING_FUNCTIONS:
        read, write = _nested_attribute(torch, getter), _nested_attribute(torch, setter)
        if read is not None and write is not None:
            yield ProcessSetting(
                name, read, write, frozenset({setter.rpartition(".")[2], *_FURTHER_NAMES.get(name, ())})
            )
    for dotted_name, flags in _FLAGS:
        owner = _nested_attribute(torch, dotted_name.removeprefix("torch."))
        for flag in flags:
            if owner is not None and _is_readable(owner, flag):
                names = frozenset({flag, "flags", "set_flags", *_FURTHER_NAMES.get(flag, ())})
                read, write = functools.partial(getattr, owner, flag), functools.partial(setattr, owner, flag)
                yield ProcessSetting(f"{dotted_name}.{flag}", read, write, names)
    for backend in _ATTENTION_BACKENDS:
        read = getattr(torch.backends.cuda, f"{backend}_enabled", None)
        write = getattr(torch.backends.cuda, f"enable_{backend}", None)
        if read is not None and write is not None:
            names = frozenset({f"enable_{backend}", "sdpa_kernel"})
            yield ProcessSetting(f"attention by {backend}", read, write, names)
    yield ProcessSetting("the flushing of denormal numbers", _flushes_denormal, torch.set_flush_denormal,
                         frozenset({"set_flush_denormal"}))  # fmt: skip
    yield ProcessSetting("the profiler", torch._C._autograd._profiler_enabled, _stop_profiler,
                         frozenset({"profile", "start", "__enter__", "_enable_profiler"}))  # fmt: skip
    yield from _hook_settings()
    yield from _state_settings()
    for module, description in CONFIGURATIONS.items():
        config = sys.modules.get(module)
        if config is not None and hasattr(config, "get_config_copy"):
            yield ProcessSetting(description, _reader_of(config), _writer_of(config),
                                 frozenset({module.split(".")[-2]}))  # fmt: skip


def context_variables() -> frozenset[ContextVar[Any]]:
    """Return PyTorch's own context variables, such as the values of its compilers' settings."""
    return _context_variables_for_module_count(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _context_variables_for_module_count(_: int) -> frozenset[ContextVar[Any]]:
    """Search PyTorch's modules. The number of all modules makes a cached result valid until the next import."""
    variables: set[ContextVar[Any]] = set()
    for name, module in sys.modules.copy().items():
        if name[:6] in {"torch", "torch."}:
            variables.update(_context_variables_of(module))
    return frozenset(variables)


#: The context variables of each module, with the number of its names, because searching all of PyTorch takes long.
_known_variables: dict[int, tuple[Any, int, list[ContextVar[Any]]]] = {}


def _context_variables_of(module: Any) -> list[ContextVar[Any]]:
    content = getattr(module, "__dict__", {})
    known_module, name_count, variables = _known_variables.get(id(module), (None, 0, []))
    if known_module is module and name_count == len(content):
        return variables
    values = list(content.values())
    settings = content.get("_config")
    if isinstance(settings, dict):
        values += [getattr(entry, "user_override", None) for entry in settings.values()]
    # `isinstance` makes some objects warn.
    variables = [value for value in values if type(value) is ContextVar]
    _known_variables[id(module)] = module, len(content), variables
    return variables


def _autocast_accessors(device_type: str) -> tuple[Callable[[], Any], Callable[[tuple[bool, Any]], None]]:
    import torch

    def write(state: tuple[bool, Any]) -> None:
        torch.set_autocast_enabled(device_type, state[0])
        torch.set_autocast_dtype(device_type, state[1])

    return lambda: (torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type)), write


def _hook_settings() -> Iterator[ProcessSetting]:
    for module, description in _GLOBAL_HOOKS:
        module_names = vars(sys.modules[module]) if module in sys.modules else {}
        registries = {
            name: value
            for name, value in module_names.items()
            if name.startswith("_global_") and isinstance(value, dict)
        }
        yield ProcessSetting(description, *_registry_accessors(registries), _HOOK_FUNCTIONS)


def _state_settings() -> Iterator[ProcessSetting]:
    for module, name, description, function in _STATE_OBJECTS:
        state = getattr(sys.modules.get(module), name, None)
        if state is not None:
            read = functools.partial(copy.deepcopy, vars(state))
            yield ProcessSetting(description, read, vars(state).update, frozenset({function}))


def _registry_accessors(registries: dict[str, dict[Any, Any]]) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def read() -> dict[str, Any]:
        return {name: dict(registry) for name, registry in registries.items()}

    def write(contents: dict[str, dict[Any, Any]]) -> None:
        for name, content in contents.items():
            registries[name].clear()
            registries[name].update(content)

    return read, write


def _nested_attribute(owner: Any, name: str) -> Any:
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


def _is_readable(owner: Any, flag: str) -> bool:
    try:
        getattr(owner, flag)
    except Exception:  # noqa: BLE001 - this build, or a mixture of old and new settings, has no value
        return False
    return True


def _flushes_denormal() -> bool:
    return _DENORMAL_NUMBER[0] * 1.0 == 0


def _stop_profiler(was_on: bool) -> None:  # noqa: FBT001 - the parameter is the value of a setting
    import torch

    if not was_on:
        torch._C._autograd._disable_profiler()


#: A denormal number, in a list so that Python does not fold the constant.
_DENORMAL_NUMBER = [1e-310]


@functools.cache
def _reader_of(config: Any) -> Callable[[], dict[str, Any]]:
    """Return a function that reads the changed settings, or all if this PyTorch does not show which are changed.

    Reading all of them takes a millisecond.
    """
    entries = getattr(config, "_config", None)
    if entries is None or not all(hasattr(entry, "user_override") for entry in entries.values()):
        return lambda: {name: value for name, value in config.get_config_copy().items() if _is_plain(value)}
    unset = getattr(importlib.import_module("torch.utils._config_module"), "_UNSET_SENTINEL", _MISSING)
    if all(isinstance(entry.user_override, ContextVar) for entry in entries.values()):
        overrides = {entry.user_override: (name, entry) for name, entry in entries.items()}

        def read() -> dict[str, Any]:
            context = copy_context()
            values: dict[str, Any] = {}
            for variable in overrides.keys() & set(context):
                (name, entry), value = overrides[variable], context[variable]
                if value is not unset and _is_plain(value) and value != _unset_value(entry):
                    values[name] = value
            return values

        return read
    return lambda: {
        name: value
        for name, entry in entries.items()
        if _is_plain(value := _override_of(entry)) and value != _unset_value(entry)
    }


def _override_of(config_entry: Any) -> Any:
    override = config_entry.user_override
    return override.get() if isinstance(override, ContextVar) else override


def _unset_value(config_entry: Any) -> Any:
    """Return the value that a setting has until something sets it explicitly."""
    from_environment = getattr(config_entry, "env_value_default", None)
    return from_environment if isinstance(from_environment, bool | int | str) else config_entry.default


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _writer_of(config: Any) -> Callable[[dict[str, Any]], None]:
    read = _reader_of(config)

    def write(values: dict[str, Any]) -> None:
        current = read()
        for name in current.keys() | values.keys():
            if current.get(name, _MISSING) != values.get(name, _MISSING):
                with contextlib.suppress(Exception):  # a setting that is no longer writable
                    setattr(config, name, values[name] if name in values else _unset_value(config._config[name]))

    return write
