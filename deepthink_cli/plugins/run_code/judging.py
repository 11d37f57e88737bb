"""The two processes that judge a program: one holds the answer, the other runs the tests and asks it for values.

`program.py` starts both with the text of this file, which imports the standard library alone. Requests are pickled;
replies are JSON, since nothing that the answer's process sends may run code in the tests' process.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import datetime
import decimal
import fractions
import json
import marshal
import operator
import os
import pickle
import signal
import socket
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from types import FunctionType, ModuleType
from typing import Any

RIGHT = 23  # the exit code of tests that have passed; an accident ends with another code
NAMESPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000  # mount, uts, ipc, user, pid, net
_PRIVATE, _PLAIN = 0x4000 | 0x40000, 2 | 4 | 8  # flags of mount(2)
_DUMPABLE, _END_WITH_PARENT = 4, 1  # options of prctl(2)
_CONTAINERS: dict[str, Any] = {
    each.__name__: each for each in (tuple, list, set, frozenset, deque, OrderedDict, Counter, dict)
}
_TEXTS: dict[str, tuple[Any, Callable[[Any], str], Callable[[str], Any]]] = {  # by name: type, to text, from text
    "bytes": (bytes, lambda value: value.decode("latin-1"), lambda text: text.encode("latin-1")),
    "bytearray": (bytearray, lambda value: value.decode("latin-1"), lambda text: bytearray(text, "latin-1")),
    "complex": (complex, repr, complex),
    "Decimal": (decimal.Decimal, str, decimal.Decimal),
    "Fraction": (fractions.Fraction, str, fractions.Fraction),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
}
# What may be asked of an object that stays in the answer's process; comparisons are not, as the answer would decide.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *values, **named: function(*values, **named),
    **{each.__name__: each for each in (getattr, setattr, iter, next, len, bool, str)},
    "getitem": operator.getitem,
}


def confine(way: str, user: int, seconds: int, memory: int, size: int) -> None:
    """Limit this process: as another user if `user` is one, in namespaces of its own if `way` says so."""
    import resource  # which only POSIX systems have

    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if way == "namespaces":
        _enter_namespaces()
    limits = {"CPU": seconds, "AS": memory, "FSIZE": size, "NOFILE": 32, "NPROC": 16, "CORE": 0}
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def _enter_namespaces() -> None:
    """Continue in a child that is the first process of its namespaces, all of whose processes end with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NAMESPACES):
        raise OSError(ctypes.get_errno(), "unshare")
    if child := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    libc.prctl(_END_WITH_PARENT, signal.SIGKILL)
    if libc.mount(b"none", b"/", None, _PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount")
    if libc.mount(b"proc", b"/proc", b"proc", _PLAIN, None):  # without the processes outside
        raise OSError(ctypes.get_errno(), "mount")


class Objects:
    """The objects of the answer's process that the tests' process knows by number."""

    def __init__(self) -> None:
        self.known: list[Any] = []
        self.numbers: dict[int, int] = {}

    def encoded(self, value: Any) -> Any:
        """A value as JSON: data by its content, anything else as the number of an object that stays here."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        for name, kind in _CONTAINERS.items():
            if isinstance(value, kind):
                items = [list(pair) for pair in value.items()] if isinstance(value, dict) else value
                return [name, [self.encoded(item) for item in items]]
        for name, (kind, text, _) in _TEXTS.items():
            if isinstance(value, kind):
                return [name, text(value)]
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
            return self.encoded(value.item())
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.known)
            self.known.append(value)
        return ["object", self.numbers[id(value)]]

    def reply(self, request: bytes, names: dict[str, Any]) -> dict[str, Any]:
        """What a request asks for: the value, the arguments that it changed, or the names of an error's types."""
        operation, values, named = _Requests(BytesIO(request), self, names).load()
        if operation == "names":
            return {"value": {name: self.encoded(names[name]) for name in values if name in names}}
        before = [self._content(value) for value in values]
        try:
            value = self.encoded(_OPERATIONS[operation](*values, **named))
        except Exception as error:
            return {"error": [kind.__name__ for kind in type(error).__mro__], "text": str(error)}
        pairs = zip(before, map(self._content, values), strict=True)
        return {"value": value, "changed": [new if new != old else None for old, new in pairs]}

    def _content(self, value: Any) -> Any:
        return self.encoded(value) if isinstance(value, list | dict | set | bytearray) else None


class _Requests(pickle.Unpickler):
    """Reads a request, with the objects and functions that it refers to."""

    def __init__(self, file: BytesIO, objects: Objects, names: dict[str, Any]) -> None:
        super().__init__(file)
        self.objects, self.names = objects, names

    def persistent_load(self, pid: Any) -> Any:
        kind, value, *defaults = pid
        if kind == "object":
            return self.objects.known[value]
        return FunctionType(marshal.loads(value), self.names, None, *defaults)


class Remote:
    """An object of the answer's process, which the tests may call and look into; it equals nothing but itself."""

    def __init__(self, peer: Peer, number: int) -> None:
        self.__dict__.update(_peer=peer, _number=number)


def _asking(operation: str) -> Callable[..., Any]:
    """The method of an object of the answer's process that asks for an operation."""
    return lambda remote, *values, **named: remote._peer.ask(operation, remote, *values, **named)


for _name in _OPERATIONS:  # Remote.__call__, Remote.__getattr__, and so on
    setattr(Remote, f"__{_name}__", _asking(_name))


class Peer:
    """The answer's process as the tests' process sees it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.objects: dict[int, Remote] = {}

    def ask(self, operation: str, *values: Any, **named: Any) -> Any:
        """The reply to a request; raises the error that it met there, as the nearest built-in type."""
        file = BytesIO()
        _Pickler(file).dump((operation, values, named))
        send(self.stream, file.getvalue())
        reply = json.loads(receive(self.stream))
        if "error" in reply:
            kinds = (getattr(builtins, str(name), None) for name in reply["error"])
            raise next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception))(reply["text"])
        if operation == "names":
            return {str(name): self.decoded(value) for name, value in reply["value"].items() if name in values}
        for value, new in zip(values, reply["changed"], strict=True):
            if new is not None:
                value.clear()
                (value.extend if isinstance(value, list | bytearray) else value.update)(self.decoded(new))
        return self.decoded(reply["value"])

    def decoded(self, value: Any) -> Any:
        """A value that the answer's process has encoded."""
        if not isinstance(value, list):
            return value
        name, content = value
        if name in _CONTAINERS:
            items = [self.decoded(item) for item in content]
            return _CONTAINERS[name](dict(items) if issubclass(_CONTAINERS[name], dict) else items)
        if name in _TEXTS:
            return _TEXTS[name][2](content)
        if name == "module" and content.partition(".")[0] in sys.stdlib_module_names:
            return import_module(content)
        return self.objects.setdefault(content, Remote(self, content))


class _Pickler(pickle.Pickler):
    """Writes a request; objects of the answer's process go as their number, functions of the tests as their code."""

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Remote):
            return "object", obj.__dict__["_number"]
        if isinstance(obj, FunctionType) and obj.__module__ == "__main__":
            return "function", marshal.dumps(obj.__code__), obj.__defaults__
        return None


def send(stream: Any, data: bytes) -> None:
    """Send one message."""
    stream.write(len(data).to_bytes(8, "big") + data)
    stream.flush()


def receive(stream: Any) -> bytes:
    """Receive one message; raises EOFError where the other process has ended."""
    length = stream.read(8)
    data: bytes = stream.read(int.from_bytes(length, "big"))
    if len(length) < 8:
        raise EOFError
    return data


def hold_answer(stream: Any, program: dict[str, str], names: dict[str, Any]) -> None:
    """Run the answer, and then do the tests' requests, until they end."""
    exec(compile(program["before"] + program["answer"], "answer.py", "exec"), names)
    objects = Objects()
    while True:
        send(stream, json.dumps(objects.reply(receive(stream), names)).encode())


def run_tests(stream: Any, program: dict[str, str], names: dict[str, Any]) -> None:
    """Run the tests on the objects of the answer's process; raises as they do."""
    tests = ast.parse(program["tests"])
    setup = ast.Module(own_statements(program["before"], program["answer"]), [])
    exec(compile(setup, "setup.py", "exec"), names)
    used = dict.fromkeys(node.id for node in ast.walk(tests) if isinstance(node, ast.Name))
    unknown = [name for name in used if name not in names]
    found = Peer(stream).ask("names", *unknown)
    plain = {name: value for name, value in found.items() if not hasattr(builtins, name)}
    if plain or len(found) == 1:  # an answer may have the name of a built-in function, if the tests use nothing else
        names.update(plain or found)
    exec(compile(tests, "tests.py", "exec"), names)


def own_statements(before: str, answer: str) -> list[ast.stmt]:
    """The statements before the answer that are complete without it; of a function it completes, none."""
    lines = before.count("\n")
    whole = ast.parse(before + answer).body
    try:
        body = ast.parse(before).body
    except SyntaxError:
        return [each for each in whole if (each.end_lineno or 0) <= lines]
    if body and isinstance(body[-1], ast.FunctionDef):
        inside = [each.value if isinstance(each, ast.Expr) else each for each in body[-1].body]
        if all(isinstance(each, ast.Pass | ast.Constant) for each in inside):
            body.pop()
    return body


def main() -> None:
    """Run one of the two processes; the arguments name it, the channel, and the limits of `confine`."""
    part, channel, way, *numbers = sys.argv[1:]
    program = json.loads(sys.stdin.buffer.read())
    confine(way, *map(int, numbers))
    stream = socket.socket(fileno=int(channel)).makefile("rwb")
    sys.set_int_max_str_digits(0)
    module = sys.modules["__main__"] = ModuleType("__main__")
    if part == "answer":
        hold_answer(stream, program, module.__dict__)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DUMPABLE, 0)  # no other process of this user may look into this one
    run_tests(stream, program, module.__dict__)
    os._exit(RIGHT)


if __name__ == "__main__":
    main()
