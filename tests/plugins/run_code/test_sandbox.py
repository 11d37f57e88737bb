"""Answers that are programs are judged by tests in another process, confined as far as the machine allows."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import write_rows
from helpers.said import Captured

from deepthink_cli import generation
from deepthink_cli.cli.main import run
from deepthink_cli.data.source import Row
from deepthink_cli.errors import InputError
from deepthink_cli.generation import Generation
from deepthink_cli.plugins.run_code import program
from deepthink_cli.plugins.run_code.program import (
    FAILED,
    PASSED,
    PROGRAM,
    Program,
    Way,
    passes,
    program_of,
    way_to_confine,
)
from deepthink_cli.tasks.catalogue import built_in
from deepthink_cli.tasks.format import Free
from deepthink_cli.tasks.items import query_of

TESTS = "assert answer(1) == 2\nassert answer(5) == 6\n"
HONEST = "def answer(x):\n    return x + 1\n"
TRIAL = Program("", HONEST, TESTS)


def judged(answer: str, tests: str = TESTS, before: str = "", way: Way = "limits", seconds: int = 20) -> bool:
    return passes(Program(before, f"{answer}\n", tests), seconds, way)


@pytest.fixture(params=["bubblewrap", "namespaces"])
def confined(request: pytest.FixtureRequest) -> Way:
    """A way of confinement by the kernel that works here."""
    way: Way = request.param
    if sys.platform != "linux" or not passes(TRIAL, 20, way):
        pytest.skip(f"{way} cannot be had on this machine")
    return way


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The way to confine is found anew, and forgotten."""
    way_to_confine.cache_clear()
    yield
    monkeypatch.undo()
    way_to_confine.cache_clear()


HONEST_PROGRAMS: dict[str, tuple[str, str, str]] = {  # before, answer, tests
    "numbers": ("", HONEST, TESTS),
    "containers": (
        "",
        "def f(x):\n    return {(1, 2): [x, {3}], 'a': None}",
        "assert f(7) == {(1, 2): [7, {3}], 'a': None}",
    ),
    "types": (
        "import math",
        "from collections import Counter, OrderedDict\ndef f(x): return x, Counter('aab'), OrderedDict(a=1), 1j, b'x'",
        "from collections import Counter, OrderedDict\nfrom decimal import Decimal\n"
        "assert f(Decimal('0.1')) == (Decimal('0.1'), Counter('aab'), OrderedDict(a=1), 1j, b'x')\n"
        "assert math.isclose(f(0.1)[0], 0.1) and f(math.inf)[0] == math.inf and f(10**5000)[0] == 10**5000",
    ),
    "a module that the answer imports": ("", "import math\ndef f(): return 0.5", "assert math.isclose(f(), 0.5)"),
    "a class of the answer": (
        "",
        "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\n"
        "def f(pairs): return sum(p.a - p.b for p in pairs)",
        "assert f([Pair(5, 2), Pair(b=1, a=3)]) == 5\nassert Pair(1, 2).b == 2",
    ),
    "a class of the setup": (
        "class Node:\n    def __init__(self, value): self.value = value\nroot = Node(3)\n",
        "def f(node): return node.value",
        "assert f(root) == 3",
    ),
    "a generator": ("", "def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]\nassert 2 in f(3)"),
    "an argument that is changed": ("", "def f(x): x.sort()", "x = [3, 1]\nassert f(x) is None and x == [1, 3]"),
    "a function as argument": ("", "def f(g, x): return g(x)", "assert f(lambda x: x + 1, 2) == 3"),
    "a test that calls a candidate": ("", HONEST, "def check(f):\n    assert f(1) == 2\ncheck(answer)"),
    "an answer that completes a function": ('def f(x):\n    """Double."""\n', "    return 2 * x", "assert f(4) == 8"),
    "an answer that completes a statement": ("import math\nresult = ", "math.floor(2.5)", "\nassert result == 2"),
    "a built-in name": ("", "def sum(a, b): return a - b", "assert sum(3, 1) == 2"),
    "an error that is expected": (
        "",
        "class Wrong(ValueError): pass\ndef f(): raise Wrong('x')",
        "try:\n    f()\nexcept ValueError:\n    pass\nelse:\n    assert False",
    ),
    "output": ("", "print('x' * 10**6)\ndef f(): return 1", "assert f() == 1"),
    "modules that nothing else reads": (
        "import colorsys\n",
        "import tabnanny\nfrom collections import Counter\ndef f(text): return Counter(text).most_common(1)",
        "assert f('aab') == [('a', 2)]",
    ),
    "an empty folder and no environment": (
        "import os",
        "def f(): return os.listdir('.'), 'PYTHONPATH' in os.environ",
        "assert f() == ([], False)",
    ),
}


@pytest.mark.parametrize("name", HONEST_PROGRAMS)
def test_an_honest_answer_passes_its_tests(name: str) -> None:
    before, answer, tests = HONEST_PROGRAMS[name]
    assert judged(answer, tests, f"{before}\n" if "completes" not in name else before, way=way_to_confine())


WRONG_PROGRAMS = {
    "a wrong value": "def answer(x):\n    return x",
    "no Python": "this is not Python",
    "another name": "def other(x):\n    return x + 1",
    "an error": "raise ValueError",
    "an early end": "import sys\nsys.exit(0)",
    "an early end with any code": "import os\nos._exit(23)",
    "an end in a call": "import os\ndef answer(x):\n    os._exit(23)",
    "an end in a thread": "import os, threading\nthreading.Thread(target=os._exit, args=[23]).start()\nanswer = str",
    "an end at exit": "import atexit, os\natexit.register(os._exit, 23)\nanswer = str",
    "words in every pipe": "import os\nfor n in range(64):\n    try:\n        os.write(n, b'right')\n"
    "    except OSError:\n        pass\nos._exit(23)",
    "equal to everything": "class Any:\n    __eq__ = __bool__ = lambda *_: True\ndef answer(x):\n    return Any()",
    "a number equal to everything": "class Any(int):\n    __eq__ = lambda *_: True\ndef answer(x):\n    return Any(0)",
    "no assertions": "import builtins\nbuiltins.AssertionError = None\n__debug__\ndef answer(x):\n    return 0",
    "other built-in functions": "int = set = str = lambda *_: 0\ndef answer(x):\n    return 0",
    "the tests in memory": "import gc\n"
    "def answer(x):\n    return next(o for o in gc.get_objects() if f'assert answer({x})' in str(o)) and x + 1",
    "a value in place of the channel": "import gc\n"
    "(stream,) = [o for o in gc.get_objects() if type(o).__name__ == 'BufferedRWPair']\n"
    'text = b\'{"value": {"answer": null, "__builtins__": 1}}\'\n'
    "stream.write(len(text).to_bytes(8, 'big') + text)\nstream.flush()",
    "values too large": "x = bytearray(3 << 30)\n" + HONEST,
    "files too large": "open('big', 'wb').write(b'x' * (5 << 20))\n" + HONEST,
}


@pytest.mark.parametrize("name", WRONG_PROGRAMS)
def test_an_answer_forges_no_verdict(name: str) -> None:
    assert not judged(WRONG_PROGRAMS[name])


def test_an_oracle_of_the_setup_is_not_the_answers_to_replace() -> None:
    oracle = "def is_right(value):\n    return value == 3\n"
    tests = "assert is_right(answer())"
    assert judged("def answer():\n    return 3", tests, oracle)
    for answer in ("def is_right(value):\n    return True\ndef answer():\n    return 4", "    return 1\nanswer = str"):
        assert not judged(answer, tests, oracle)


def test_a_program_that_does_not_end_is_stopped() -> None:
    assert not judged("while True:\n    pass", seconds=2)


def test_a_confined_answer_reaches_no_network(confined: Way) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        answer = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)\n{HONEST}"
        assert judged(answer, way="limits")
        assert not judged(answer, way=confined)


def test_what_a_confined_answer_starts_ends_with_it(confined: Way) -> None:
    """The child keeps the end of a pipe open for as long as it lives, in a session of its own."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    spawned = f"import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(600)\n{HONEST}"
    pass_on = program.start

    def start(*words: Any, pass_fds: list[int], **more: Any) -> Any:
        return pass_on(*words, pass_fds=[*pass_fds, writing], **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "start", start)
        assert judged(spawned, way=confined)
    os.close(writing)
    assert os.read(reading, 1) == b""  # all ends are closed; it would wait ten minutes for a process that is left
    os.close(reading)


COUNTING = """
import os, time
started = 0
try:
    for _ in range(100):
        if not os.fork():
            time.sleep(600)
        started += 1
except OSError:
    pass
def answer():
    return started
"""


def test_the_processes_of_a_confined_answer_are_counted_also_for_root(confined: Way) -> None:
    assert judged(COUNTING, "assert 0 < answer() <= 16", way=confined)


LOOKING = """
import os, signal
def answer(process):
    try:
        os.kill(-1, signal.SIGKILL)
    except OSError:
        pass
    return os.path.exists(f"/proc/{process}/environ"), len([name for name in os.listdir("/proc") if name.isdigit()])
"""


def test_a_confined_answer_neither_sees_nor_ends_other_processes(confined: Way) -> None:
    tests = f"seen, number = answer({os.getpid()})\nassert not seen and number <= 3"
    assert judged(LOOKING, tests, way=confined)


WRITING = """
import os
def answer(secret):
    found = [path for path in (secret, "/etc/passwd") if os.path.exists(path)]
    for path in ("/x", "/usr/x", "/dev/x"):
        try:
            open(path, "w")
        except OSError:
            continue
        found.append(path)
    return found
"""


def test_bubblewrap_hides_files_and_is_read_only(tmp_path: Path) -> None:
    if sys.platform != "linux" or not passes(TRIAL, 20, "bubblewrap"):
        pytest.skip("bubblewrap cannot be had on this machine")
    secret = tmp_path / "secret"
    secret.write_text("x")
    assert judged(WRITING, f"assert answer({str(secret)!r}) == []", way="bubblewrap")


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("root", [False, True])
def test_where_limits_are_all_it_is_said_and_root_is_refused(root: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "passes", lambda *_: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    assert way_to_confine() == "limits"
    assert "they reach the network and, as user" in PROGRAM.confined().text
    if root:
        with pytest.raises(InputError, match=r"programs would run as root, with limits of .* or run as another"):
            PROGRAM.check_may_run()
    else:
        PROGRAM.check_may_run()


@pytest.mark.usefixtures("machine")
def test_bubblewrap_is_used_only_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which("bwrap") is not None
    assert passes(TRIAL, 20, "bubblewrap") <= found
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert not passes(TRIAL, 20, "bubblewrap")
    assert way_to_confine() != "bubblewrap"


PROBLEMS: list[dict[str, object]] = [
    {
        "text": f"Return {n}.",
        "code": f"def answer():\n    return {n}",
        "test_list": [f"assert answer() == {n}"],
        "test_setup_code": "",
    }
    for n in range(8)
]


@pytest.fixture
def free() -> Free:
    """The answers of MBPP."""
    free = built_in()["mbpp"].free
    assert free is not None
    return free


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with rows in the layout of MBPP."""
    (tmp_path / "mbpp").mkdir()
    write_rows(tmp_path / "mbpp" / "prompt.jsonl", PROBLEMS[:3])
    write_rows(tmp_path / "mbpp" / "test.jsonl", PROBLEMS[3:])
    return tmp_path


def test_a_program_is_the_answer_with_columns_of_its_row(free: Free) -> None:
    row = PROBLEMS[3]
    right = program_of(free, "```python\ndef answer():\n    return 3\n```\nIt returns 3.", row)
    assert right == Program("\n", "def answer():\n    return 3", "\nassert answer() == 3")
    with pytest.raises(InputError, match="the row has no column 'test_setup_code'"):
        program_of(free, "pass", {"test_list": []})


@pytest.mark.parametrize("way", ["bubblewrap", "namespaces", "limits"])
def test_what_holds_is_said_before_a_program_runs_and_root_is_refused_with_limits_alone(
    way: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(program, "way_to_confine", lambda: way)
    monkeypatch.setattr(program.os, "geteuid", lambda: 0)
    words = ["run", "--task", "mbpp", "--data-dir", str(data), "--dry-run", "--run-code", "--json"]
    refused = way == "limits"
    assert run(words) == (2 if refused else 0)
    err = capsys.readouterr().err
    assert ("--run-code: programs would run as root" in err) == refused
    told = "task mbpp: programs are run " + {"bubblewrap": "in bubblewrap, without network"}.get(way, "with")
    assert (told in err) == (not refused)
    assert ("warning" in err) == (way != "bubblewrap" and not refused)


def test_code_is_judged_by_its_tests(free: Free) -> None:
    query = query_of(built_in()["mbpp"], Row(PROBLEMS[4], "x:1"))
    labels = [
        generation.judged(free, Generation(query, 1, text, 5, "stop")).label
        for text in ("def answer():\n    return 4\n", "def answer():\n    return 5\n")
    ]
    assert labels == [PASSED, FAILED]
