"""Functions with a side effect, whose line has a comment with its kind, and functions without side effects."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import contextvars
import copyreg
import csv
import ctypes
import dbm
import decimal
import enum
import faulthandler
import gc
import getpass
import http.client
import hashlib
import itertools
import io
import json
import locale
import logging
import logging.handlers
import multiprocessing
import multiprocessing.shared_memory
import os
import pathlib
import pickle
import queue
import random
import select
import shelve
import shutil
import signal
import smtplib
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest.mock
import urllib.request
import warnings
import webbrowser
import zipfile

import numpy as np
import typing

import torch
import torch.distributed
import torch.utils.data
import torch.utils.serialization

VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=0)
CLOSED_PORT = 1
PRIVATE: list[float] = []
TRACED = torch.jit.trace(torch.sin, torch.ones(1))
LOGGER = logging.getLogger("side_effect_programs")
HANDLER = logging.StreamHandler()
LOGGER.counts, HANDLER.counts = {"calls": [0]}, {"calls": [0]}


class OwnLogger(logging.Logger):
    pass


# Objects that are opened before the function runs; :func:`open_all` sets them.
OPEN_FILE: typing.Any = None
OPEN_BINARY: typing.Any = None
OPEN_WRITER: typing.Any = None
SOCKET: typing.Any = None
OTHER_END: typing.Any = None
CONNECTION: typing.Any = None
CURSOR: typing.Any = None
EXECUTOR: typing.Any = None
GENERATOR: typing.Any = None
READ_FILE: typing.Any = None
ROWS: typing.Any = None
NUMBERED: typing.Any = None
QUEUE: typing.Any = None
SHARED_VALUE: typing.Any = None
SHARED_MEMORY: typing.Any = None
SHARED_LOCK: typing.Any = None
STORE: typing.Any = None
LOOP = asyncio.new_event_loop()
DRAWS = torch.Generator()
EVENT = threading.Event()
WAITING: queue.Queue[int] = queue.Queue()
MOCK = unittest.mock.MagicMock()
LOCAL = threading.local()
VIEW = memoryview(bytearray(4))
LIBRARY: typing.Any = None
SHELF: typing.Any = None
BATCHES: typing.Any = None
MAPPED: typing.Any = None
FUTURE: typing.Any = None
HASH = hashlib.sha256()
STREAM = io.StringIO()
BUFFER = ctypes.create_string_buffer(8)
ADDRESS = ctypes.addressof(BUFFER)
HANDLE: typing.Any = None
DESCRIPTOR: typing.Any = None


class Counts(ctypes.Structure):
    _fields_ = (("calls", ctypes.c_int),)


COUNTS = Counts()


def open_all() -> None:
    global SHELF, BATCHES, MAPPED, FUTURE, LOCK
    LOCK = threading.Lock()
    MAPPED, FUTURE = zip(map(PRIVATE.append, itertools.repeat(1.0))), torch.futures.Future()
    SHELF = shelve.open(os.path.abspath("open.shelf"), writeback=True)
    SHELF["calls"] = []
    BATCHES = iter(torch.utils.data.DataLoader([torch.ones(3)] * 1000))
    global OPEN_FILE, OPEN_BINARY, OPEN_WRITER, SOCKET, OTHER_END, CONNECTION, CURSOR, EXECUTOR, GENERATOR, READ_FILE
    global ROWS, NUMBERED, QUEUE, LIBRARY, HANDLE, DESCRIPTOR, SHARED_VALUE, SHARED_MEMORY, SHARED_LOCK, STORE
    SHARED_VALUE, SHARED_LOCK = multiprocessing.Value("i", 0), multiprocessing.Lock()
    SHARED_MEMORY = multiprocessing.shared_memory.SharedMemory(create=True, size=8)
    STORE = torch.distributed.HashStore()
    STORE.add("n", 0)
    threading.current_thread().counts = []
    DRAWS.manual_seed(0)
    pathlib.Path("input.txt").write_text("first\nsecond\n")
    pathlib.Path("old.txt").write_text("old")
    OPEN_FILE, OPEN_BINARY = open("open.txt", "w", buffering=1), open("open.bin", "wb", buffering=0)
    OPEN_WRITER = csv.writer(open("open.csv", "w", buffering=1, newline=""))
    SOCKET, OTHER_END = socket.socketpair()
    OTHER_END.setblocking(False)
    CONNECTION = sqlite3.connect("open.db", isolation_level=None, check_same_thread=False)
    CONNECTION.execute("create table rows (n)")
    CURSOR = CONNECTION.cursor()
    EXECUTOR = concurrent.futures.ThreadPoolExecutor(1)
    GENERATOR = (n for n in range(100))
    READ_FILE = open("input.txt")
    ROWS, NUMBERED = csv.reader(open("input.txt")), enumerate(open("input.txt"))
    QUEUE = multiprocessing.SimpleQueue()
    LIBRARY = ctypes.CDLL(None)
    DESCRIPTOR = os.open("input.txt", os.O_RDONLY)
    HANDLE = os.open("descriptor.txt", os.O_WRONLY | os.O_CREAT)


def close_all() -> None:
    for resource in (OPEN_FILE, OPEN_BINARY, SOCKET, OTHER_END, CONNECTION, READ_FILE):
        resource.close()
    EXECUTOR.shutdown()
    SHELF.close()
    SHARED_MEMORY.close()
    SHARED_MEMORY.unlink()
    torch.nn.modules.module._global_forward_hooks.clear()
    os.close(HANDLE)
    os.close(DESCRIPTOR)


def finish(y: torch.Tensor) -> torch.Tensor:
    if y.sum() > 0:
        y = y + 1
    return y


def writes_text(x):
    pathlib.Path("a.txt").write_text("1")  # file
    return finish(x)


def appends_line(x):
    with open("a.txt", "a") as out:  # file
        out.write("row\n")
    return finish(x)


def appends_binary(x):
    with open("a.bin", "ab") as out:  # file
        out.write(b"1")
    return finish(x)


def updates_in_place(x):
    with open("old.txt", "r+") as out:  # file
        out.write("X")
    return finish(x)


def prints_to_file(x):
    with open("a.txt", "a") as out:  # file
        print("row", file=out)
    return finish(x)


def prints_to_open_file(x):
    print("row", file=OPEN_FILE)  # file
    return finish(x)


def writes_open_file(x):
    OPEN_FILE.write("row\n")  # file
    return finish(x)


def writes_open_binary(x):
    OPEN_BINARY.write(b"row")  # file
    return finish(x)


def writes_open_csv(x):
    OPEN_WRITER.writerow([1, 2])  # file
    return finish(x)


def writes_descriptor(x):
    os.write(HANDLE, b"row")  # file
    return finish(x)


def reads_duplicate(x):
    duplicate = os.dup(DESCRIPTOR)
    x = x * len(os.read(duplicate, 3))  # file
    os.close(duplicate)
    return finish(x)


def writes_console(x):
    sys.__stdout__.write("step")
    return finish(x)


def puts_in_own_queue(x):
    WAITING.put(1)
    return finish(x)


def saves_tensor(x):
    torch.save(x, "a.pt")  # file
    return finish(x)


def saves_traced_function(x):
    TRACED.save("a.pt")  # file
    return finish(x)


def saves_array(x):
    np.save("a.npy", x.detach().numpy())  # file
    return finish(x)


def dumps_array(x):
    x.detach().numpy().tofile("a.raw")  # file
    return finish(x)


def pickles(x):
    with open("a.pkl", "wb") as out:  # file
        pickle.dump([1], out)
    return finish(x)


def dumps_json(x):
    json.dump({"n": 1}, open("a.json", "w"))  # file
    return finish(x)


def removes(x):
    with contextlib.suppress(FileNotFoundError):
        os.remove("old.txt")  # file
    return finish(x)


def renames(x):
    with contextlib.suppress(FileNotFoundError):
        os.rename("old.txt", "new.txt")  # file
    return finish(x)


def copies_file(x):
    shutil.copy("input.txt", "copy.txt")  # file
    return finish(x)


def makes_folder(x):
    os.makedirs("folder", exist_ok=True)  # file
    return finish(x)


def makes_temporary_file(x):
    tempfile.mkstemp(dir=".")  # file
    return finish(x)


def changes_rights(x):
    os.chmod("old.txt", 0o600)  # file
    return finish(x)


def writes_zip(x):
    with zipfile.ZipFile("a.zip", "a") as out:  # file
        out.writestr(f"n{len(out.namelist())}", "1")
    return finish(x)


def shelves(x):
    with shelve.open("shelf", "c") as out:  # file
        out["n"] = out.get("n", 0) + 1
    return finish(x)


def swallows(x):
    try:
        open("a.txt", "a").write("row")  # file
    except BaseException:
        pass
    return finish(x)


def swallows_and_tries_again(x):
    for _ in range(3):
        with contextlib.suppress(BaseException):
            open("a.txt", "a").write("row")  # file
    return finish(x)


def writes_finally(x):
    try:
        y = finish(x)
    finally:
        open("a.txt", "a").write("row")  # file
    return y


def logs_to_new_file(x):
    handler = logging.FileHandler("new.log")  # file
    handler.close()
    return finish(x)


def connects(x):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", CLOSED_PORT), 1)  # network
    return finish(x)


def sends_datagram(x):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # network
    out.sendto(b"1", ("127.0.0.1", 9))
    out.close()
    return finish(x)


def sends_on_open_socket(x):
    SOCKET.send(b"1")  # network
    return finish(x)


def requests_page(x):
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{CLOSED_PORT}/", timeout=1)  # network
    return finish(x)


def requests_over_http(x):
    with contextlib.suppress(OSError):
        http.client.HTTPConnection("127.0.0.1", CLOSED_PORT, timeout=1).request("GET", "/")  # network
    return finish(x)


def sends_mail(x):
    with contextlib.suppress(OSError):
        smtplib.SMTP("127.0.0.1", CLOSED_PORT, timeout=1)  # network
    return finish(x)


def runs_command(x):
    subprocess.run(["true"], check=False)  # process
    return finish(x)


def runs_shell(x):
    os.system("true")  # process
    return finish(x)


def starts_thread(x):
    thread = threading.Thread(target=len, args=("",))
    thread.start()  # process
    thread.join()
    return finish(x)


def hands_work_to_pool(x):
    EXECUTOR.submit(len, "").result()  # process
    return finish(x)


def starts_pool(x):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(len, "").result()  # process
    return finish(x)


def puts_in_queue(x):
    QUEUE.put(1)  # process
    return finish(x)


def signals(x):
    os.kill(os.getpid(), signal.SIGUSR1)  # process
    return finish(x)


def raises_signal(x):
    signal.raise_signal(signal.SIGUSR1)  # process
    return finish(x)


def asks(x):
    input()  # process
    return finish(x)


def opens_browser(x):
    webbrowser.open("http://127.0.0.1/")  # process
    return finish(x)


def calls_library(x):
    LIBRARY.getpid()  # process
    return finish(x)


def exits(x):
    sys.exit(3)  # process


def ends_process(x):
    os._exit(3)  # process


def opens_database(x):
    connection = sqlite3.connect("a.db", isolation_level=None)  # database
    connection.execute("create table if not exists rows (n)")
    connection.execute("insert into rows values (1)")
    connection.close()
    return finish(x)


def inserts_row(x):
    CONNECTION.execute("insert into rows values (1)")  # database
    return finish(x)


def inserts_with_cursor(x):
    CURSOR.execute("insert into rows values (1)")  # database
    return finish(x)


def opens_dbm(x):
    with dbm.open("keys", "c") as out:  # file
        out["n"] = "1"
    return finish(x)


def sets_environment(x):
    os.environ["SIDE_EFFECT"] = os.environ.get("SIDE_EFFECT", "") + "1"  # state
    return finish(x)


def changes_folder(x):
    os.chdir("..")  # state
    return finish(x)


def marks_thread(x):
    threading.current_thread().calls = getattr(threading.current_thread(), "calls", 0) + 1  # state
    return finish(x)


def marks_logger(x):
    setattr(LOGGER, "calls", getattr(LOGGER, "calls", 0) + 1)
    return finish(x)


def counts_in_logger(x):
    LOGGER.counts["calls"][0] += 1
    return finish(x)


def counts_in_named_logger(x):
    logging.getLogger("side_effect_programs").counts["calls"].append(1)
    return finish(x)


def counts_in_handler(x):
    HANDLER.counts["calls"][0] += 1
    return finish(x)


def counts_in_thread(x):
    threading.current_thread().counts.append(1)
    return finish(x)


def changes_package(x):
    copyreg.dispatch_table[Level] = len(copyreg.dispatch_table)  # state
    return finish(x)


def freezes_objects(x):
    gc.freeze()  # state
    return finish(x)


def defines_operator(x):
    torch.library.Library("side_effect_programs", "FRAGMENT").define(f"f{len(PRIVATE)}(Tensor x) -> Tensor")  # state
    return finish(x)


def sets_handler(x):
    signal.signal(signal.SIGUSR2, lambda *_: None)  # state
    return finish(x)


def disables_collector(x):
    gc.disable()  # state
    return finish(x)


def sets_recursion_limit(x):
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)  # state
    return finish(x)


def extends_path(x):
    sys.path.append("/nowhere")  # state
    return finish(x)


def registers_at_exit(x):
    atexit.register(len, "")  # state
    return finish(x)


def sets_decimal_context(x):
    decimal.getcontext().prec += 1  # state
    return finish(x)


def sets_context_variable(x):
    VARIABLE.set(VARIABLE.get() + 1)  # state
    return finish(x)


def sets_locale(x):
    locale.setlocale(locale.LC_ALL, "C.UTF-8")  # state
    return finish(x)


def sets_matmul_precision(x):
    torch.set_float32_matmul_precision("high")  # state
    return finish(x)


def sets_benchmark(x):
    torch.backends.cudnn.benchmark = True  # state
    return finish(x)


def sets_default_dtype(x):
    torch.set_default_dtype(torch.float64)  # state
    return finish(x)


def sets_time_zone(x):
    time.tzset()  # state
    return finish(x)


def sets_fault_handler(x):
    (faulthandler.disable if faulthandler.is_enabled() else faulthandler.enable)()  # state
    return finish(x)


def sets_default_device(x):
    torch.set_default_device("cpu")  # state
    return finish(x)


def sets_deterministic_algorithms(x):
    torch.use_deterministic_algorithms(True, warn_only=True)  # state
    return finish(x)


def sets_autocast(x):
    torch.set_autocast_dtype("cpu", torch.float16)  # state
    return finish(x)


def sets_warning_filters(x):
    warnings.filterwarnings("error", category=SyntaxWarning)  # state
    return finish(x)


def adds_log_filter(x):
    LOGGER.filters.append(logging.Filter("side"))  # state
    return finish(x)


def stops_propagation(x):
    logging.getLogger("side_effect_programs.new").propagate = False  # state
    return finish(x)


def names_log_handler(x):
    HANDLER.set_name("side")  # state
    return finish(x)


def redirects_log_handler(x):
    HANDLER.stream = sys.stdout  # state
    return finish(x)


def sets_logger_class(x):
    logging.setLoggerClass(OwnLogger)  # state
    return finish(x)


def adds_handler(x):
    LOGGER.addHandler(logging.NullHandler())  # state
    return finish(x)


def counts_in_shared_value(x):
    SHARED_VALUE.value += 1  # process
    return finish(x)


def writes_shared_memory(x):
    SHARED_MEMORY.buf[0] = 7  # process
    return finish(x)


def waits_for_shared_lock(x):
    with SHARED_LOCK:  # process
        return finish(x)


def adds_to_store(x):
    STORE.add("n", 1)  # network
    return finish(x)


def hooks_all_modules(x):
    torch.nn.modules.module.register_module_forward_hook(len)  # state
    return finish(x)


def advances_generator(x):
    next(GENERATOR)  # state
    return finish(x)


def reads_next_row(x):
    return finish(x * len(next(ROWS)))  # state


def reads_next_number(x):
    return finish(x + next(NUMBERED)[0])  # state


def reads_standard_input(x):
    return finish(x * len(sys.stdin.readline()))  # process


def reads_input_by_descriptor(x):
    with open(DESCRIPTOR, closefd=False) as text:  # file
        return finish(x * len(text.readline()))


def asks_for_password(x):
    with contextlib.suppress(OSError, EOFError):
        getpass.getpass(stream=sys.stderr)  # process
    return finish(x)


def sets_threads_of_backward(x):
    torch.autograd.set_multithreading_enabled(False)  # state
    return finish(x)


def sets_conversion_of_parameters(x):
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # state
    return finish(x)


def sets_serialization(x):
    torch.utils.serialization.config.save.storage_alignment = 128  # state
    return finish(x)


def sets_numpy_errors(x):
    np.seterrcall(print)  # state
    return finish(x)


def reads_file(x):
    with open("input.txt") as text:
        return finish(x * len(text.read()))


def reads_open_file(x):
    return finish(x * len(READ_FILE.readline()))


def logs(x):
    LOGGER.warning("step")
    return finish(x)


def imports_late(x):
    import colorsys

    return finish(x * colorsys.rgb_to_hsv(1.0, 1.0, 1.0)[2])


def keeps_list(x):
    PRIVATE.append(1.0)
    return finish(x)


def sets_event(x):
    EVENT.set()
    return finish(x)


def calls_mock(x):
    MOCK(len(PRIVATE))
    return finish(x)


def appends_in_shelf(x):
    SHELF["calls"].append(1)  # database
    return finish(x)


def takes_batch(x):
    x = x * next(BATCHES)[0]  # state
    return finish(x)


def advances_mapped_list(x):
    next(MAPPED)  # state
    return finish(x)


def sets_future(x):
    FUTURE.done() or FUTURE.set_result(1)  # state
    return finish(x)


def sets_variable_of_libraries(x):
    os.putenv("SIDE_EFFECT_OF_C", "1")  # state
    return finish(x)


def updates_hash(x):
    HASH.update(b"1")
    return finish(x)


def writes_in_memory(x):
    STREAM.write("1")
    return finish(x)


def writes_to_address(x):
    number = ctypes.c_int.from_address(ADDRESS)  # process
    number.value += 1
    return finish(x)


def sets_memory(x):
    ctypes.memset(ADDRESS, 7, 1)  # process
    return finish(x)


def makes_shared_memory(x):
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=8)  # file
    memory.close()
    memory.unlink()
    return finish(x)


def counts_in_structure(x):
    COUNTS.calls += 1
    return finish(x)


def draws(x):
    return finish(x * random.random() + torch.rand(3))


def schedules_call(x):
    LOOP.call_soon(len, "")  # process
    return finish(x)


def counts_in_thread_local(x):
    LOCAL.calls = getattr(LOCAL, "calls", 0) + 1
    return finish(x)


def writes_to_view(x):
    VIEW[0] = VIEW[0] + 1
    return finish(x)


class Tools:
    pass


class OtherTools:
    pass


class Toolbox(Tools):
    pass


def changes_bases(x):
    type.__setattr__(Toolbox, "__bases__", (OtherTools,))  # state
    return finish(x)


class Level(enum.Enum):
    LOW = "low"


def marks_enumeration(x):
    Level.LOW.calls = getattr(Level.LOW, "calls", 0) + 1
    return finish(x)


def draws_from_own_generator(x):
    return finish(x * torch.rand(3, generator=DRAWS))


def prints(x):
    print("step")
    return finish(x)


def tells_time(x):
    time.perf_counter()
    return finish(x)


def leaves_lock(x):
    LOCK.acquire()  # state
    return finish(x)


def waits_for_file(x):
    select.select([DESCRIPTOR], [], [])  # process
    return finish(x)
