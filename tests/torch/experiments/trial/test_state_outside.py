"""A trial stops before it registers something with a library, and undoes what it does to the user's own state."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_graphbreak.experiments.trial.inputs import Arguments
from jupyter_graphbreak.experiments.trial.outcome import run
from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
from jupyter_graphbreak.experiments.trial.subject import Subject

#: Statements that change a library or the process, and an expression for what they change.
STOPPED = {
    "a module in sys.modules": ("sys.modules['made_here'] = MADE", "'made_here' in sys.modules"),
    "a module taken out of sys.modules": ("del sys.modules['own_made']", "'own_made' in sys.modules"),
    "a type of files": ("mimetypes.add_type('x/y', '.zzz')", "mimetypes.guess_type('a.zzz')"),
    "a codec": ("codecs.register(find_codec)", "has_codec('own_codec')"),
    "a function imported by name": ("register_codec(find_codec)", "has_codec('own_codec')"),
    "what replaces bad text": ("codecs.register_error('own', len)", "has_handler('own')"),
    "a way to pickle": ("copyreg.pickle(Own, len)", "Own in copyreg.dispatch_table"),
    "a class with an abstract class": ("numbers.Complex.register(array.array)", "isinstance(ARRAY, numbers.Complex)"),
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
}  # fmt: skip
#: The same for what a trial may change, because it can be undone.
UNDONE = {
    "a module without a file": ("MADE.n += 1", "MADE.n"),
    "a list of a module without a file": ("MADE.items.append(1)", "MADE.items"),
    "code of a module without a file": ("MADE.bump()", "(MADE.n, MADE.items)"),
    "a module without a file, imported": ("import own_made; own_made.items.append(1)", "MADE.items"),
    "an implementation for a type": ("show.register(array.array, len)", "len(show.registry)"),
    "one of a user module": ("own.show.register(array.array, len)", "len(own.show.registry)"),
    "one of a method": ("Own.show.register(array.array)(len)", "len(vars(Own)['show'].dispatcher.registry)"),
    "a context": ("CONTEXT.run(VARIABLE.set, 1)", "CONTEXT.get(VARIABLE)"),
    "behind a read-only mapping": ("VIEW['n'].append(1)", "VIEW['n']"),
    "a bound method of a list": ("APPEND(1)", "APPEND.__self__"),
    "an attribute of a number": ("NUMBER.n = getattr(NUMBER, 'n', 0) + 1", "vars(NUMBER)"),
    "a property": ("OWN.read", "own.ITEMS"),
    "a cached property": ("Own().found", "FOUND"),
    "a descriptor": ("OWN.described", "Described.hits"),
    "a class by a decorator": ("dataclasses.dataclass(own.Plain)", "hasattr(own.Plain, '__dataclass_fields__')"),
    "a global by its name": ("globals()['ITEMS'].append(1)", "ITEMS"),
    "in a string of code": ("exec('ITEMS.append(1)')", "ITEMS"),
    "an attribute by its name": ("getattr(own, 'IT' + 'EMS').append(1)", "own.ITEMS"),
    "an attribute that a module makes": ("own.made_when_asked", "own.ITEMS"),
    "a list of a module and its class": ("own.ITEMS.append(1); own.Adds().add()", "(own.ITEMS, own.ITEMS is KEPT)"),
    "its own module": ("sys.modules[__name__].ITEMS.append(1)", "ITEMS"),
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
@functools.singledispatch
def show(x):
    return 1
def __getattr__(name):
    if name == "made_when_asked":
        ITEMS.append(name)
        return 1
    raise AttributeError(name)
"""
PROGRAM = """
import array, asyncio, codecs, contextvars, copyreg, csv, dataclasses, decimal, email.charset, functools, json
import mimetypes, multiprocessing, numbers, signal, sqlite3, sys, types, urllib.request, zoneinfo
from codecs import register as register_codec
from xml.etree import ElementTree
import torch, torch.distributions
import own
MADE = sys.modules["own_made"] = types.ModuleType("own_made")
MADE.n, MADE.items = 0, []
exec("def bump():\\n    global n\\n    n += 1\\n    items.append(n)", vars(MADE))
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
    @property
    def read(self):
        own.ITEMS.append(1)
        return 1
    @functools.cached_property
    def found(self):
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
#: The number of the line that :func:`program` adds after the header of the function.
LINE = PROGRAM.count("\n") + 2


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Any]]:
    folder: Path = tmp_path_factory.mktemp("programs")
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(folder))
    (folder / "own.py").write_text(OWN)
    (folder / "own_changes.py").write_text("import own\nown.ITEMS.append(3)\n")
    (folder / "own_defines.py").write_text("ITEMS = []\nITEMS.append(1)\nclass A:\n    n = 0\nprint('loaded')\n")
    made: list[str] = []

    def make(statement: str, changed: str) -> Any:
        name = f"own_program_{len(made)}"
        made.append(name)
        code = f"def step(x):\n    {statement}\n    return x * 2\ndef changed():\n    return repr({changed})\n"
        (folder / f"{name}.py").write_text(PROGRAM + code)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield make
    for name in made:
        sys.modules[name].COROUTINE.close()
    patch.undo()
    for name in ("own", "own_made", "own_changes", "own_defines", *made):
        sys.modules.pop(name, None)


def trial(step: Callable[..., Any]) -> None:
    subject = Subject(step)
    run(subject.call, subject, Arguments(torch.ones(3)), gradients=False)


@pytest.mark.parametrize("case", STOPPED)
def test_trial_is_stopped(program: Callable[[str, str], Any], case: str) -> None:
    made = program(*STOPPED[case])
    before = made.changed()
    with pytest.raises(TrialStoppedError) as stopped:
        trial(made.step)
    effect = stopped.value.effect
    assert made.changed() == before
    assert effect.kind == ("process" if case == "memory of processes" else "state")
    assert effect.place is not None
    assert effect.place.line == LINE


@pytest.mark.parametrize("case", UNDONE)
def test_change_is_undone(program: Callable[[str, str], Any], case: str) -> None:
    made = program(*UNDONE[case])
    before = made.changed()
    trial(made.step)
    assert made.changed() == before
