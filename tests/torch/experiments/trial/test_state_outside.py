"""A trial stops before it registers something with a library, and undoes what it does to the user's own state."""

from __future__ import annotations

import cProfile
import importlib
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.outcome import run, sandbox_runs
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.unaudited_functions import TRIAL_REPLACEMENTS, Replacements

#: Statements that change a library or the process, and an expression for what they change.
STOPPED_CHANGES = {
    "a module in sys.modules": ("sys.modules['made_here'] = MADE", "'made_here' in sys.modules"),
    "a module taken out of sys.modules": ("del sys.modules['own_made']", "'own_made' in sys.modules"),
    "a further name in sys.modules": ("s = sys; s.modules['made_here'] = json", "'made_here' in sys.modules"),
    "a file type": ("mimetypes.add_type('x/y', '.zzz')", "mimetypes.guess_type('a.zzz')"),
    "a codec": ("codecs.register(find_codec)", "has_codec('own_codec')"),
    "a function imported by name": ("register_codec(find_codec)", "has_codec('own_codec')"),
    "an error handler for bad text": ("codecs.register_error('own', len)", "has_handler('own')"),
    "a way to pickle": ("copyreg.pickle(Own, len)", "Own in copyreg.dispatch_table"),
    "a subclass of an abstract class": ("numbers.Complex.register(array.array)", "isinstance(ARRAY, numbers.Complex)"),
    "a dialect of CSV": ("csv.register_dialect('own', delimiter=';')", "csv.list_dialects()"),
    "a converter of a database": ("sqlite3.register_converter('own', bytes)", "'OWN' in sqlite3.converters"),
    "a namespace of XML": ("ElementTree.register_namespace('own', 'x')", "'x' in ElementTree._namespace_map"),
    "an opener of addresses": ("urllib.request.install_opener(Own())", "urllib.request._opener"),
    "an alias of a charset": ("email.charset.add_alias('own', 'ascii')", "'own' in email.charset.ALIASES"),
    "the folders of time zones": ("zoneinfo.reset_tzpath(['/own'])", "zoneinfo.TZPATH"),
    "the policy of event loops": ("asyncio.set_event_loop_policy(None)", "None"),
    "hooks of generators": ("sys.set_asyncgen_hooks(len)", "sys.get_asyncgen_hooks()"),
    "blocked signals": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])", "signal.pthread_sigmask(signal.SIG_BLOCK, [])",
    ),
    "a default context": ("decimal.DefaultContext.prec += 1", "decimal.DefaultContext.prec"),
    "a distance of distributions": (
        "torch.distributions.register_kl(torch.distributions.Normal, torch.distributions.Poisson)(len)",
        "len(torch.distributions.kl._KL_REGISTRY)",
    ),
    "a library under a local name": ("F = torch.nn; setattr(F, 'own', 1)", "hasattr(torch.nn, 'own')"),
    "a library, by a helper": ("set_it(json, 'own', 1)", "hasattr(json, 'own')"),
    "the dict of a library": ("vars(json)['own'] = 1", "hasattr(json, 'own')"),
    "a class of a library": ("type.__setattr__(torch.nn.Linear, 'own', 1)", "hasattr(torch.nn.Linear, 'own')"),
    "a function in an attribute": ("OWN.register(find_codec)", "has_codec('own_codec')"),
    "a coroutine": ("COROUTINE.send(None)", "COROUTINE.cr_frame is None"),
    "memory of processes": ("SHARED[0] += 1", "SHARED[0]"),
    "an import that changes another module": ("import own_changes", "own.ITEMS"),
    "an import by its name": ("importlib.import_module('own_changes')", "own.ITEMS"),
    "an import that keeps what a call returns": ("import own_keeps", "own.ITEMS"),
    "an import that decorates": ("import own_decorates", "own.ITEMS"),
    "an import that derives a class": ("import own_derives", "own.ITEMS"),
    "a mock that stays": ("unittest.mock.patch('own.Plain', 5).start()", "own.Plain"),
    "a mock of a library that stays": ("unittest.mock.patch.object(json, 'dumps', len).start()", "json.dumps"),
    "a mock of a dict that stays": ("unittest.mock.patch.dict(sys.modules, made_here=MADE).start()",
                                    "'made_here' in sys.modules"),
    "a mock of a module imported late": ("import unittest.mock as m; m.patch('own.Plain', 5).start()", "own.Plain"),
    "memory that is traced": ("tracemalloc.start()", "tracemalloc.is_tracing()"),
    "the flags for loading libraries": ("sys.setdlopenflags(sys.getdlopenflags() ^ 256)", "sys.getdlopenflags()"),
    "the descriptor for signals": ("signal.set_wakeup_fd(-1)", "None"),
    "the signal of an interrupt": ("_thread.interrupt_main(signal.SIGUSR1)", "SIGNALLED"),
    "a signal handler by name": ("handle(signal.SIGUSR1, signal.SIG_IGN)", "signal.getsignal(signal.SIGUSR1)"),
    "a collector by name": ("collect_no_more()", "gc.isenabled()"),
    "a function at exit": ("atexit.unregister(len)", "None"),
    "another process": ("os.waitpid(-1, os.WNOHANG)", "None"),
    "tracebacks": ("faulthandler.dump_traceback(OUT)", "file_content('out')"),
    "tensors in a file": ("safetensors.torch.save_file({'x': x}, IN_FOLDER('a.st'))",
                          "os.path.exists(IN_FOLDER('a.st'))"),
    "a tensor that is a file": ("torch.from_file(OUT.name, True, 0)", "None"),
    "a storage that is a file": ("torch.UntypedStorage.from_file(OUT.name, True, 4)", "file_content('out')"),
    "a store that is a file": ("torch.distributed.FileStore(IN_FOLDER('store'), 1).set('a', 'b')",
                               "os.path.exists(IN_FOLDER('store'))"),
    "a store on the network": ("torch.distributed.TCPStore('127.0.0.1', 0, 1, True, wait_for_workers=False)", "None"),
    "a record for a handler": ("HANDLER.emit(logging.makeLogRecord({'msg': 'text'}))", "file_content('log')"),
    "an open archive": ("ARCHIVE.writestr('a', 'b')", "ARCHIVE.namelist()"),
    "an open compressed file": ("PACKED.write(b'a'); PACKED.flush()", "file_content('packed')"),
    "a pickler": ("PICKLER.dump(1)", "file_content('out')"),
    "a socket as a file": ("SENDS.write(b'a')", "RECEIVES.recv(9, socket.MSG_DONTWAIT) if ready(RECEIVES) else b''"),
    "a PyTorch logger": ("logging.getLogger('torch.distributed').setLevel(10)",
                            "logging.getLogger('torch.distributed').level"),
    "checks of tensors": ("torch.sparse.check_sparse_tensor_invariants.enable()",
                          "torch.sparse.check_sparse_tensor_invariants.is_enabled()"),
    "the precision of products": ("torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
                                  "torch.backends.mkldnn.matmul.fp32_precision"),
    "the artifacts that PyTorch logs": ("torch._logging.set_logs(graph_breaks=True)",
                                       "vars(torch._logging._internal.log_state)"),
    "an object of a library": ("reprlib.aRepr.maxlist = 99", "reprlib.aRepr.maxlist"),
    "a pair of sockets": ("socket.socketpair()", "descriptors()"),
    "an event loop": ("asyncio.new_event_loop()", "descriptors()"),
    "a thread": ("threading.Thread(target=len).start()", "threading.enumerate()"),
    "a process": ("multiprocessing.get_context('fork').Process(target=len).start()", "descriptors()"),
    "a file in memory": ("SPOOLED.write('a')", "SPOOLED.tell()"),
    "a stream of its own": ("print('a', file=STREAM)", "STREAM.texts"),
    "a new HDF5 file": ("h5py.h5f.create(IN_FOLDER('new.h5'))", "os.path.exists(IN_FOLDER('new.h5'))"),
    "an image": ("cv2.imwrite(IN_FOLDER('a.png'))", "cv2.WRITTEN"),
    "an image by name": ("write_image(IN_FOLDER('a.png'))", "cv2.WRITTEN"),
    "a new video": ("cv2.VideoWriter('a b')", "cv2.WRITTEN"),
    "an open video": ("VIDEO.write(1)", "cv2.WRITTEN"),
    "an LMDB database": ("lmdb.open('a folder')", "lmdb.OPENED"),
    "a tokenizer": ("TOKENIZER.save(IN_FOLDER('a.json'))", "os.path.exists(IN_FOLDER('a.json'))"),
    "a tokenizer by its method": ("SAVE_TOKENIZER(IN_FOLDER('a.json'))", "os.path.exists(IN_FOLDER('a.json'))"),
    "a tokenizer without a suffix": ("TOKENIZER.save('a_tokenizer')", "os.path.exists('a_tokenizer')"),
    "a view of DuckDB": ("duckdb.register('v', 1)", "duckdb.RUN"),
    "a table of DuckDB": ("duckdb.sql('insert into t values (1)')", "duckdb.RUN"),
    "an HDF5 file": ("h5py.h5f.open(IN_FOLDER('log'))", "h5py.OPENED"),
    "a sink of loguru": ("loguru_logger().add(len)", "loguru._logger.SINKS"),
    "the processors of structlog": ("structlog.configure(1)", "structlog.CONFIGURED"),
    "the engine of quantized tensors": ("torch.backends.quantized.engine = 'onednn'",
                                        "torch.backends.quantized.engine"),
}  # fmt: skip
#: The kinds of the effects. Those that are missing here are changes of state.
KINDS = {
    **dict.fromkeys(
        ("memory of processes", "the signal of an interrupt", "another process", "tensors in a file"), "process"
    ),
    **dict.fromkeys(
        ("tracebacks", "a tensor that is a file", "a storage that is a file",
         "a store that is a file", "a record for a handler", "an open archive", "an open compressed file", "a pickler",
         "a file in memory", "a stream of its own", "a new HDF5 file", "an HDF5 file",
         "an image", "an image by name", "a new video", "an open video", "a tokenizer", "a tokenizer by its method",
         "a tokenizer without a suffix"),
        "file",
    ),
    **dict.fromkeys(("an LMDB database", "a table of DuckDB", "a view of DuckDB"), "database"),
    **dict.fromkeys(
        ("a store on the network", "a socket as a file", "a pair of sockets", "an event loop"), "network"
    ),
    **dict.fromkeys(("a thread", "a process"), "process"),
}  # fmt: skip
#: Statements that a trial may run, because their changes can be undone, and an expression for what they change.
UNDONE_CHANGES = {
    "a module without a file": ("MADE.n += 1", "MADE.n"),
    "a list of a module without a file": ("MADE.items.append(1)", "MADE.items"),
    "code of a module without a file": ("MADE.bump()", "(MADE.n, MADE.items)"),
    "a module without a file, imported": ("import own_made; own_made.items.append(1)", "MADE.items"),
    "an implementation for a type": ("show.register(array.array, len)", "len(show.registry)"),
    "an implementation in a user module": ("own.show.register(array.array, len)", "len(own.show.registry)"),
    "an implementation of a method": ("Own.show.register(array.array)(len)",
                                    "len(vars(Own)['show'].dispatcher.registry)"),
    "a context": ("CONTEXT.run(VARIABLE.set, 1)", "CONTEXT.get(VARIABLE)"),
    "a list behind a read-only mapping": ("VIEW['n'].append(1)", "VIEW['n']"),
    "a bound method of a list": ("APPEND(1)", "APPEND.__self__"),
    "an attribute of a number": ("NUMBER.n = getattr(NUMBER, 'n', 0) + 1", "vars(NUMBER)"),
    "a property": ("OWN.read", "own.ITEMS"),
    "a cached property": ("Own().cached_value", "FOUND"),
    "a descriptor of a class": ("OWN.described", "Described.hits"),
    "a class by a decorator": ("dataclasses.dataclass(own.Plain)", "hasattr(own.Plain, '__dataclass_fields__')"),
    "a global by its name": ("globals()['ITEMS'].append(1)", "ITEMS"),
    "a global in a string of code": ("exec('ITEMS.append(1)')", "ITEMS"),
    "an attribute by its name": ("getattr(own, 'IT' + 'EMS').append(1)", "own.ITEMS"),
    "an attribute that a module makes": ("own.made_when_asked", "own.ITEMS"),
    "a list of a module and its class": ("own.ITEMS.append(1); own.Adds().add()", "(own.ITEMS, own.ITEMS is KEPT)"),
    "its own module": ("sys.modules[__name__].ITEMS.append(1)", "ITEMS"),
    "a function of a user module": ("own.show = len", "own.show"),
    "a method": ("own.Adds.add = len", "own.Adds.add"),
    "a default of a user module": ("own.collects(1)", "own.collects.__defaults__"),
    "a keyword default of a user module": ("own.collects(1)", "own.collects.__kwdefaults__"),
    "an attribute of a function": ("own.counts()", "own.counts.calls"),
    "a new attribute of a function": ("own.collects.tag = 1", "vars(own.collects)"),
    "the defaults of a function": ("own.collects.__defaults__ = ([9],)", "own.collects.__defaults__"),
    "the code of a function": ("own.collects.__code__ = own.counts.__code__", "own.collects.__code__.co_name"),
    "a default of a method": ("OWN.collects()", "Own.collects.__defaults__"),
    "an object that has every attribute": ("ANYTHING.any", "Anything.asked"),
    "decimal flags": ("decimal.Decimal(1) / 3", "decimal.getcontext().flags"),
    "lines for tracebacks": ("linecache.getline(__file__, 1)", "__file__ in linecache.cache"),
    "a descriptor": ("os.open(__file__, os.O_RDONLY)", "descriptors()"),
    "a duplicate of a descriptor": ("os.dup(NUMBER_OF_OUT)", "descriptors()"),
    "a duplicate that is closed": ("os.close(os.dup(NUMBER_OF_OUT))", "descriptors()"),
    "a pipe": ("os.pipe()", "descriptors()"),
    "a pipe of libraries": ("multiprocessing.Pipe(False)", "descriptors()"),
    "a file in a kept list": ("ITEMS.append(open(__file__, opener=os.open))", "descriptors()"),
    "a descriptor of a file": ("os.fdopen(os.open(__file__, os.O_RDONLY)).read()", "descriptors()"),
    "an HDF5 file that is read": ("h5py.h5f.open(IN_FOLDER('log'), 0)", "None"),
    "an HDF5 file in memory": ("h5py.h5f.create(b'<_io.BytesIO object at 0x1>', fapl=h5py.h5fd)", "None"),
    "an LMDB database that is read": ("lmdb.open('a folder', readonly=True)", "None"),
    "the text of a tokenizer": ("TOKENIZER.to_str(); TOKENIZER.encode('folder/a.json')", "None"),
    "a query of DuckDB": ("duckdb.sql(' SELECT a FROM t')", "None"),
    "a text for a writer": ("cv2.imwrite('some text')", "None"),
    "the class of videos": ("assert cv2.VideoWriter.fourcc() and not isinstance(1, cv2.VideoWriter)", "None"),
    "a text stream in memory": ("print('row', file=TEXT)", "(TEXT.buffer.getvalue(), TEXT.seek(0, 1))"),
    "a buffered stream in memory": ("BUFFERED.write(b'row')", "(BUFFERED.raw.getvalue(), BUFFERED.tell())"),
    "a new logger": ("logging.getLogger('own.new.one').info('a')", "[*logging.root.manager.loggerDict]"),
    "a new parent of a logger": ("logging.getLogger('own_parent').info('a')", "logger_and_parent('own_parent.child')"),
    "a library that only reads": ("mimetypes.guess_type('a.txt'); json.dumps({'a': 1})", "None"),
    "an import of definitions": ("import own_defines", "None"),
}  # fmt: skip
OWN = """
import functools
ITEMS = []
class Plain:
    n: int = 0
class Adds:
    def add(self):
        ITEMS.append(2)
class Noted:
    def __init_subclass__(cls):
        ITEMS.append(cls)
def noted(function):
    ITEMS.append(function)
    return function
@functools.singledispatch
def show(x):
    return 1
def collects(x, seen=[], *, known={}):
    seen.append(x)
    known[x] = len(seen)
def counts():
    counts.calls += 1
counts.calls = 0
def __getattr__(name):
    if name == "made_when_asked":
        ITEMS.append(name)
        return 1
    raise AttributeError(name)
"""
PROGRAM = """
import array, asyncio, atexit, codecs, contextvars, copyreg, csv, dataclasses, decimal, email.charset, faulthandler
import functools, gc, gzip, importlib, io, json, linecache, logging, mimetypes, multiprocessing, numbers, os, pickle
import reprlib, select, signal, socket, sqlite3, sys, tempfile, threading, tracemalloc, types, unittest.mock
import urllib.request, zipfile, zoneinfo, _thread
import cv2, duckdb, h5py.h5f, h5py.h5fd, lmdb, loguru._logger, structlog, tokenizers
from cv2 import imwrite as write_image
import safetensors.torch
from codecs import register as register_codec
from gc import disable as collect_no_more
from signal import signal as handle
from xml.etree import ElementTree
import torch, torch.distributed, torch.distributions
import own
IN_FOLDER = functools.partial(os.path.join, os.path.dirname(__file__))
OUT = open(IN_FOLDER("out"), "w+b", 0)
NUMBER_OF_OUT = OUT.fileno()
ARCHIVE = zipfile.ZipFile(IN_FOLDER("archive"), "w")
PACKED = gzip.open(IN_FOLDER("packed"), "wb")
HANDLER = logging.FileHandler(IN_FOLDER("log"))
PICKLER = pickle.Pickler(OUT)
ENDS = socket.socketpair()
SENDS, RECEIVES = ENDS[0].makefile("wb", 0), ENDS[1]
SIGNALLED = []
SPOOLED = tempfile.SpooledTemporaryFile(mode="w+")
class Stream(io.TextIOBase):
    texts = []
    def write(self, text):
        self.texts.append(text)
        return len(text)
STREAM = Stream()
loguru_logger = loguru._logger.Logger
class Anything:
    asked = 0
    def __getattr__(self, name):
        Anything.asked += 1
        return 1.0
ANYTHING = Anything()
logging.getLogger("own_parent.child")
def logger_and_parent(name):
    named = logging.root.manager.loggerDict
    return named[name].parent.name, type(named["own_parent"]).__name__
def descriptors():
    gc.collect(1)
    return len(os.listdir("/proc/self/fd"))
def file_content(name):
    with open(IN_FOLDER(name), "rb") as file:
        return file.read()
def ready(end):
    return bool(select.select([end], [], [], 0)[0])
MADE = sys.modules["own_made"] = types.ModuleType("own_made")
MADE.n, MADE.items = 0, []
exec("def bump():\\n    global n\\n    n += 1\\n    items.append(n)", vars(MADE))
TEXT, BUFFERED = io.TextIOWrapper(io.BytesIO()), io.BufferedRandom(io.BytesIO(b"abc"))
VIDEO = cv2.VideoWriter("b")
TOKENIZER = tokenizers.Tokenizer(tokenizers.models.BPE())
SAVE_TOKENIZER = TOKENIZER.save
ITEMS, FOUND, KEPT, ARRAY, VIEW = [], [], own.ITEMS, array.array("i"), types.MappingProxyType({"n": []})
SHARED = multiprocessing.RawArray("i", 2)
VARIABLE = contextvars.ContextVar("VARIABLE")
CONTEXT = contextvars.copy_context()
class Described:
    hits = 0
    def __get__(self, *_):
        Described.hits += 1
        return 1
class Own:
    described = Described()
    @functools.singledispatchmethod
    def show(self, x):
        return 1
    def collects(self, seen=[]):
        seen.append(1)
    @property
    def read(self):
        own.ITEMS.append(1)
        return 1
    @functools.cached_property
    def cached_value(self):
        FOUND.append(1)
        return 1
OWN = Own()
OWN.register = codecs.register
async def wait():
    return 1
def set_it(owner, name, value):
    setattr(owner, name, value)
class Number(int):
    pass
NUMBER, APPEND, COROUTINE = Number(3), [].append, wait()
@functools.singledispatch
def show(x):
    return 1
def find_codec(name):
    return codecs.lookup("ascii") if name == "own_codec" else None
def has_codec(name):
    try:
        return bool(codecs.lookup(name))
    except LookupError:
        return False
def has_handler(name):
    try:
        return bool(codecs.lookup_error(name))
    except LookupError:
        return False
"""
DEFINITIONS_TEXT = """
import dataclasses, logging, torch
from pathlib import Path
LOG = logging.getLogger(__name__)
HERE = Path(__file__).parent
ITEMS = []
ITEMS.append(1)
@dataclasses.dataclass
class A:
    n: int = 0
DEFAULT, NAMES = A(), ",".join(["a"])
@torch.no_grad()
def f(x):
    return x
print("loaded")
"""
#: The number of the line that :func:`program` adds after the header of the function.
LINE = PROGRAM.count("\n") + 2


HDF5 = """
import h5py
def open(name, flags=1):
    h5py.OPENED.append(flags)
def create(name, fapl=None):
    assert fapl is not None
"""
DUCKDB = """
RUN = []
def sql(text):
    if 'insert' in text:
        RUN.append(text)
def register(name, table):
    RUN.append(name)
"""
IMAGES = """
WRITTEN = []
imwrite = WRITTEN.append
class VideoWriter:
    def __init__(self, path):
        WRITTEN.append(path)
    def write(self, frame):
        WRITTEN.append(frame)
    @staticmethod
    def fourcc():
        return 1
"""
#: Stand-ins for packages that may not be installed, with the functions that trials know.
PACKAGES = {
    "cv2/__init__.py": IMAGES,
    "own_packages.dist-info/METADATA": "",
    "duckdb/__init__.py": DUCKDB,
    "lmdb/__init__.py": "OPENED = []\ndef open(path, readonly=False):\n    OPENED.append(path)",
    "h5py/__init__.py": "OPENED = []",
    "h5py/h5f.py": HDF5,
    "h5py/h5fd.py": "CORE, fileobj_driver = 1, 2\ndef get_driver():\n    return fileobj_driver",
    "loguru/__init__.py": "",
    "loguru/_logger.py": "SINKS = []\nclass Logger:\n    def add(self, sink):\n        SINKS.append(sink)",
    "structlog/__init__.py": "CONFIGURED = []\ndef configure(x):\n    CONFIGURED.append(x)",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Any]]:
    folder: Path = tmp_path_factory.mktemp("programs")
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(folder))
    for name, text in PACKAGES.items():
        if name.partition("/")[0] not in sys.modules:
            package = folder / "site-packages" / name
            package.parent.mkdir(parents=True, exist_ok=True)
            package.write_text(text)
    patch.syspath_prepend(str(folder / "site-packages"))
    (folder / "own.py").write_text(OWN)
    (folder / "own_changes.py").write_text("import own\nown.ITEMS.append(3)\n")
    (folder / "own_keeps.py").write_text("import own\nLENGTH = own.ITEMS.append(3)\n")
    (folder / "own_decorates.py").write_text("import own\n@own.noted\ndef f():\n    return 1\n")
    (folder / "own_derives.py").write_text("import own\nclass New(own.Noted):\n    pass\n")
    (folder / "own_defines.py").write_text(DEFINITIONS_TEXT)
    program_names: list[str] = []

    def write_program(statement: str, expression: str) -> Any:
        name = f"own_program_{len(program_names)}"
        program_names.append(name)
        code = f"def step(x):\n    {statement}\n    return x * 2\ndef read_state():\n    return repr({expression})\n"
        (folder / f"{name}.py").write_text(PROGRAM + code)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write_program
    for name in program_names:
        sys.modules[name].COROUTINE.close()
        for attribute in ("OUT", "ARCHIVE", "PACKED", "HANDLER", "SENDS"):
            getattr(sys.modules[name], attribute).close()
        for end in sys.modules[name].ENDS:
            end.close()
    patch.undo()
    for name in (
        "own",
        "own_made",
        "own_changes",
        "own_keeps",
        "own_decorates",
        "own_derives",
        "own_defines",
        *program_names,
    ):
        sys.modules.pop(name, None)


def run_trial(step: Callable[..., Any]) -> None:
    subject = Subject(step)
    run(subject.function, subject, Arguments(torch.ones(3)), runs_backward=False)


@pytest.mark.parametrize("case", STOPPED_CHANGES)
def test_a_trial_is_stopped_before_the_change(program: Callable[[str, str], Any], case: str) -> None:
    module = program(*STOPPED_CHANGES[case])
    state_before = module.read_state()
    with pytest.raises(TrialStoppedError) as caught:
        run_trial(module.step)
    effect = caught.value.effect
    assert module.read_state() == state_before
    assert effect.kind == KINDS.get(case, "state")
    assert effect.location is not None
    assert effect.location.line == LINE


@pytest.mark.parametrize("case", UNDONE_CHANGES)
def test_a_change_is_undone(program: Callable[[str, str], Any], case: str) -> None:
    module = program(*UNDONE_CHANGES[case])
    state_before = module.read_state()
    run_trial(module.step)
    assert module.read_state() == state_before


def test_a_trial_sets_no_monitor_of_the_interpreter(
    program: Callable[[str, str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool_ids: list[int] = []
    monkeypatch.setattr(sys, "monitoring", types.SimpleNamespace(use_tool_id=tool_ids.append), raising=False)
    module = program("sys.monitoring.use_tool_id(3)", "None")
    with pytest.raises(TrialStoppedError) as caught:
        run_trial(module.step)
    assert tool_ids == []
    assert caught.value.effect.kind == "state"


def test_compiled_code_makes_an_object_of_a_replaced_class(program: Callable[[str, str], Any]) -> None:
    module = program("cv2.VideoWriter('c')", "cv2.WRITTEN")
    paths_before = module.cv2.WRITTEN.copy()
    compiled: Callable[[torch.Tensor], torch.Tensor] = torch.compile(module.step, backend="eager")
    with TRIAL_REPLACEMENTS.install():
        compiled(torch.ones(3))
    assert [*paths_before, "c"] == module.cv2.WRITTEN


def test_methods_of_immutable_types_are_replaced() -> None:
    replacements = Replacements(lambda: iter([(deque, "rotate", lambda *_: "replaced")]))
    with replacements.install():
        assert deque[int]().rotate(1) == "replaced"  # type: ignore[func-returns-value]
    assert deque([1, 2]).rotate(1) is None  # type: ignore[func-returns-value]


def test_an_object_of_an_extension_type_is_not_copied_without_its_memory() -> None:
    profile = cProfile.Profile()
    assert clone(profile) is profile


def test_the_state_of_a_module_that_a_trial_imports_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counting_calls.py").write_text("CALLS = []\ndef up():\n    CALLS.append(1)\n    return len(CALLS)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "counting_calls", None)  # so that the module is unloaded after the test
    del sys.modules["counting_calls"]

    def multiply_by_calls(x: torch.Tensor) -> torch.Tensor:
        import counting_calls  # type: ignore[import-not-found]

        y: torch.Tensor = x * counting_calls.up()
        return y

    with sandbox_runs():
        subject = Subject(multiply_by_calls)
        results = []
        for _ in range(2):
            subject.restore()
            results.append(run(subject.function, subject, Arguments(torch.ones(3))).value)
    assert all(torch.equal(result, torch.ones(3)) for result in results)
    assert not sys.modules["counting_calls"].CALLS
