"""Attacks on whoever runs a model's code: ways out to its secrets, files, network, processes and objects.

Each is a snippet that says, writes, connects or kills if it gets through. In it stand for

- ``@FILE@``, ``@MARKER@``, ``@FOLDER@``: a file with a secret, a file that must not come into being, their folder;
- ``@PORT@``, ``@UDP@``, ``@ABSTRACT@``: listeners on this machine (TCP, UDP, a socket in the abstract namespace);
- ``@VICTIM@``: the number of a process of this user, which has a secret in its environment.

``lookup`` is a tool. ``unproven`` says why an attack cannot be shown to succeed against bare ``exec``.
"""

from dataclasses import dataclass

__all__ = ["ATTACKS", "Attack"]


@dataclass(frozen=True)
class Attack:
    name: str
    code: str
    unproven: str = ""


def attacks(**codes: str) -> list[Attack]:
    return [Attack(name, code.strip("\n")) for name, code in codes.items()]


OBJECTS = attacks(
    subclasses_of_object="""
for kind in ().__class__.__base__.__subclasses__():
    if kind.__name__ == "_wrap_close":
        print(kind.__init__.__globals__["environ"]["CANARY"])
""",
    method_resolution_order="""
for kind in [].__class__.__mro__[-1].__subclasses__():
    if kind.__name__ == "Quitter":
        print(kind.__call__.__globals__["sys"].modules["__main__"].SECRET)
""",
    names_put_together="""
base = getattr(getattr((), "__cl" + "ass__"), "__ba" + "se__")
for kind in getattr(base, "__subcl" + "asses__")():
    if kind.__name__ == "_wrap_close":
        print(getattr(kind.__init__, "__glo" + "bals__")["environ"]["CANARY"])
""",
    builtin_importer="""
for kind in object.__subclasses__():
    if kind.__name__ == "BuiltinImporter":
        kind.load_module("posix").system("touch @MARKER@")
""",
    globals_of_a_tool="print(lookup.__globals__['SECRET'])",
    builtins_of_a_tool="print(lookup.__builtins__['open']('@FILE@').read())",
    closure_of_a_tool="print([cell.cell_contents for cell in lookup.__closure__])",
    tool_as_a_method="print(lookup.__get__(1).__func__.__globals__['SECRET'])",
    function_made_in_the_tools_globals="print(type(lookup)((lambda: SECRET).__code__, lookup.__globals__)())",
    coroutine_of_a_tool="""
call = lookup("x")
print(call.cr_frame.f_globals["SECRET"])
call.close()
""",
    error_that_carries_the_tool="""
try:
    lookup.nothing
except AttributeError as err:
    print(err.obj.__globals__["SECRET"])
""",
    argument_that_looks_back="""
import sys
class Evil:
    def __str__(self):
        return sys._getframe(1).f_globals["SECRET"]
print(await lookup(Evil()))
""",
    format_string="print('{0.__globals__[SECRET]}'.format(lookup))",
    format_map="print('{f.__globals__[SECRET]}'.format_map({'f': lookup}))",
    frames_of_a_traceback="""
try:
    1 / 0
except ZeroDivisionError as err:
    frame = err.__traceback__.tb_frame
    while frame:
        if "SECRET" in frame.f_globals:
            print(frame.f_globals["SECRET"])
        frame = frame.f_back
""",
    frames_of_the_interpreter="""
import sys
frame = sys._getframe()
while frame:
    if "SECRET" in frame.f_globals:
        print(frame.f_globals["SECRET"])
    frame = frame.f_back
""",
    frame_of_a_generator="""
def walk():
    frame = numbers.gi_frame.f_back
    while frame:
        if "SECRET" in frame.f_globals:
            print(frame.f_globals["SECRET"])
        frame = frame.f_back
numbers = (walk() for _ in [1])
next(numbers)
""",
    stack_by_inspect="""
import inspect
for one in inspect.stack():
    if "SECRET" in one.frame.f_globals:
        print(one.frame.f_globals["SECRET"])
""",
    garbage_collector_objects="""
import gc
print([one["SECRET"] for one in gc.get_objects() if type(one) is dict and "SECRET" in one])
""",
    garbage_collector_referrers="""
import gc
print([one["SECRET"] for one in gc.get_referrers(lookup) if type(one) is dict and "SECRET" in one])
""",
    metaclass="""
Meta = type("Meta", (type,), {"__getattr__": lambda kind, name: lookup.__globals__["SECRET"]})
print(Meta("X", (), {}).anything)
""",
    decorator_that_takes_globals="""
@lambda function: function.__globals__["__builtins__"]
def taken():
    pass
print(taken["__import__"]("os").environ["CANARY"])
""",
    memory_by_ctypes="""
import ctypes
print(ctypes.cast(id(lookup.__globals__), ctypes.py_object).value["SECRET"])
""",
)

MODULES = attacks(
    main_by_sys="import sys\nprint(sys.modules['__main__'].SECRET)",
    main_by_import="import __main__\nprint(__main__.SECRET)",
    import_by_builtins="print(__builtins__['__import__']('os').environ['CANARY'])",
    import_by_importlib="import importlib\nprint(importlib.import_module('o' + 's').environ['CANARY'])",
    import_by_eval="print(eval(\"__import__('os').environ['CANARY']\", {}))",
    code_by_compile="exec(compile(\"print(open('@FILE@').read())\", 'x', 'exec'), {})",
    code_by_timeit="import timeit\ntimeit.timeit(\"open('@MARKER@', 'w').close()\", number=1)",
    code_by_marshal="""
import marshal
code = marshal.loads(marshal.dumps(compile("open('@MARKER@', 'w').close()", "x", "exec")))
exec(code)
""",
    code_by_runpy="import runpy\nprint(runpy.run_path('@FILE@'))",
    sys_behind_json="import json\nprint(json.codecs.sys.modules['__main__'].SECRET)",
    sys_behind_re="import re\nprint(re.enum.sys.modules['__main__'].SECRET)",
    sys_behind_collections="import collections\nprint(collections._sys.modules['__main__'].SECRET)",
    sys_behind_dataclasses="import dataclasses\nprint(dataclasses.sys.modules['__main__'].SECRET)",
    sys_behind_warnings="import warnings\nprint(warnings.sys.modules['__main__'].SECRET)",
    os_behind_random="import random\nprint(random._os.environ['CANARY'])",
)

ENVIRONMENT = attacks(
    environ="import os\nprint(os.environ['CANARY'])",
    getenv="import os\nprint(os.getenv('CANARY'))",
    environ_by_posix="import posix\nprint(posix.environ[b'CANARY'])",
    getenv_by_ctypes="""
import ctypes
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(getenv(b"CANARY"))
""",
    environ_of_itself_in_proc="print(open('/proc/self/environ').read())",
    environ_of_another_in_proc="print(open('/proc/@VICTIM@/environ').read())",
)

FILES = attacks(
    open_a_file="print(open('@FILE@').read())",
    open_by_pathlib="import pathlib\nprint(pathlib.Path('@FILE@').read_text())",
    open_by_descriptor="import os\nprint(os.read(os.open('@FILE@', os.O_RDONLY), 1000))",
    open_below_a_folder="""
import os
folder = os.open("@FOLDER@", os.O_RDONLY)
print(os.read(os.open(os.path.basename("@FILE@"), os.O_RDONLY, dir_fd=folder), 1000))
""",
    open_by_io="import io\nprint(io.FileIO('@FILE@').read())",
    open_as_code="import io\nprint(io.open_code('@FILE@').read())",
    open_by_codecs="import codecs\nprint(codecs.open('@FILE@').read())",
    open_by_fileinput="import fileinput\nprint(list(fileinput.input('@FILE@')))",
    open_by_linecache="import linecache\nprint(linecache.getlines('@FILE@'))",
    open_by_tokenize="import tokenize\nprint(tokenize.open('@FILE@').read())",
    open_by_a_loader="""
import importlib.machinery
print(importlib.machinery.SourceFileLoader("m", "@FILE@").get_data("@FILE@"))
""",
    open_by_mmap="""
import mmap, os
print(mmap.mmap(os.open("@FILE@", os.O_RDONLY), 0, prot=mmap.PROT_READ)[:])
""",
    path_that_climbs="print(open('../' * 40 + '@FILE@').read())",
    link_to_a_file="""
import os, tempfile
link = os.path.join(tempfile.mkdtemp(), "link")
os.symlink("@FILE@", link)
print(open(link).read())
""",
    root_of_itself_in_proc="print(open('/proc/self/root@FILE@').read())",
    root_of_another_in_proc="print(open('/proc/@VICTIM@/root@FILE@').read())",
    search_for_a_file="""
import glob
for path in glob.glob("@FOLDER@/*"):
    print(open(path).read())
""",
    copy_a_file="import shutil\nshutil.copy('@FILE@', '@MARKER@')",
    write_a_file="open('@MARKER@', 'w').write('x')",
    touch_a_file="import pathlib\npathlib.Path('@MARKER@').touch()",
    make_a_folder="import os\nos.mkdir('@MARKER@')",
    write_a_log="import logging\nlogging.FileHandler('@MARKER@').close()",
    write_a_database="import sqlite3\nsqlite3.connect('@MARKER@').execute('create table t (x)')",
    remove_a_file="import os\nos.remove('@FILE@')",
)

COMMANDS = attacks(
    system="import os\nos.system('touch @MARKER@')",
    popen="import os\nos.popen('touch @MARKER@').read()",
    subprocess="import subprocess\nsubprocess.run(['touch', '@MARKER@'])",
    subprocess_of_asyncio="""
import asyncio
process = await asyncio.create_subprocess_shell("touch @MARKER@")
await process.wait()
""",
    replace_the_process="import os\nos.execv('/bin/sh', ['sh', '-c', 'touch @MARKER@'])",
    posix_spawn="""
import os
os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "touch @MARKER@"], {}), 0)
""",
    fork="""
import os
child = os.fork()
if child == 0:
    open("@MARKER@", "w").close()
    os._exit(0)
os.waitpid(child, 0)
""",
    multiprocessing="""
import multiprocessing, os
child = multiprocessing.get_context("fork").Process(target=os.mkdir, args=("@MARKER@",))
child.start()
child.join()
""",
    terminal="import pty\npty.spawn(['touch', '@MARKER@'])",
    system_by_ctypes="import ctypes\nctypes.CDLL(None).system(b'touch @MARKER@')",
    pickle_of_an_object="""
import os, pickle
class Evil:
    def __reduce__(self):
        return os.system, ("touch @MARKER@",)
pickle.loads(pickle.dumps(Evil()))
""",
    pickle_in_bytes="import pickle\npickle.loads(b\"cos\\nsystem\\n(S'touch @MARKER@'\\ntR.\")",
    thread="""
import threading
thread = threading.Thread(target=lambda: open("@MARKER@", "w").close())
thread.start()
thread.join()
""",
    when_the_process_ends="import atexit\natexit.register(lambda: open('@MARKER@', 'w').close())",
    when_an_object_dies="""
import weakref
class Thing:
    pass
thing = Thing()
weakref.finalize(thing, open, "@MARKER@", "w")
del thing
""",
)

NETWORK = attacks(
    tcp="import socket\nsocket.create_connection(('127.0.0.1', @PORT@), 2).close()",
    tcp_by_the_c_module="""
import _socket
_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM).connect(("127.0.0.1", @PORT@))
""",
    tcp_by_asyncio="""
import asyncio
_, writer = await asyncio.open_connection("127.0.0.1", @PORT@)
writer.close()
""",
    udp="""
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", @UDP@))
""",
    abstract_socket="""
import socket
socket.socket(socket.AF_UNIX).connect(chr(0) + "@ABSTRACT@")
""",
    url="""
import urllib.request
urllib.request.urlopen("http://127.0.0.1:@PORT@/", timeout=0.5)
""",
    http_client="""
import http.client
http.client.HTTPConnection("127.0.0.1", @PORT@, timeout=0.5).connect()
""",
)

PROCESSES = attacks(
    kill="import os\nos.kill(@VICTIM@, 9)",
    kill_by_ctypes="import ctypes\nctypes.CDLL(None).kill(@VICTIM@, 9)",
    kill_by_descriptor="import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(@VICTIM@), 9)",
    limits_of_another="import resource\nresource.prlimit(@VICTIM@, resource.RLIMIT_NOFILE, (7, 7))",
)

TAMPERING = attacks(
    builtin_function="import builtins\nbuiltins.len = lambda one: 7",
    function_of_a_module="import json\njson.dumps = lambda *args, **kwargs: 'evil'",
    variable_of_the_host="lookup.__globals__['SECRET'] = 'evil'",
    defaults_of_a_tool="lookup.__defaults__ = ('evil',)",
    recursion_limit="import sys\nsys.setrecursionlimit(77)",
    import_hook="""
import sys
class Evil:
    def find_spec(self, *args):
        return None
sys.meta_path.insert(0, Evil())
""",
)

OTHERS = [
    Attack(
        "environ_of_the_first_process",
        "print(open('/proc/1/environ').read())",
        "what it shows is what a sandbox's own first process was started with",
    ),
    Attack(
        "kernel_settings",
        "import os\nprint('way out' if os.access('/proc/sys/kernel/core_pattern', os.W_OK) else 'none')",
        "changing them would change the machine; that they could be written is an escape where the host is root",
    ),
    Attack(
        "namespaces_of_its_own",
        """
import ctypes
print("way out" if ctypes.CDLL(None).unshare(0x10000000) == 0 else "none")
""".strip("\n"),
        "it gives nothing to code that has everything; inside a sandbox it opens more of the kernel",
    ),
    Attack(
        "mounted_file_systems",
        """
import ctypes
print("way out" if ctypes.CDLL(None).mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0 else "none")
""".strip("\n"),
        "only root can, and it would change the machine",
    ),
    Attack(
        "messages_to_the_host",
        """
import json, os
for message in (
    {"n": 1, "turn": "calls", "calls": [{"ref": 9, "name": "os.system", "args": ["touch @MARKER@"], "kwargs": {}}]},
    {"n": 1, "turn": "done", "value": {"__reduce__": ["os.system", "touch @MARKER@"]}},
    {"n": 1, "turn": ["done"]},
):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, (json.dumps(message) + chr(10)).encode())
        except OSError:
            pass
""".strip("\n"),
        "bare exec has no messages to forge: it is the host",
    ),
]

ATTACKS = [
    *OBJECTS, *MODULES, *ENVIRONMENT, *FILES, *COMMANDS, *NETWORK, *PROCESSES, *TAMPERING, *OTHERS,
]  # fmt: skip
