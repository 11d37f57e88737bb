"""Latency of one-row requests to `deepthink serve`, from one client and from several at a time, and rows in arrays.

    python benchmarks/serving.py [-m MODEL] [--requests N]

Thinks about twelve labelled articles of examples/news with the real model, serves the memory on a free port, and asks
for the labels of the others. The clients are threads of this process, each with a connection of its own.
"""

from __future__ import annotations

import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from real_model import real_model
from record import Table, parser

NEWS = Path(__file__).resolve().parent.parent / "examples" / "news"
DEEPTHINK = [sys.executable, "-m", "deepthink_cli"]
CLIENTS = (1, 16)
COLUMNS = ("clients", "rows of a request", "median ms", "p95 ms", "rows a second")
ADDED = 4  # articles that are read after the demonstrations
ARRAY = 256  # rows of the request of many rows
HEADERS = {"Content-Type": "application/json"}


def main() -> None:
    """Measure, and show a row as soon as it is known."""
    options = parser(__doc__)
    options.add_argument("-m", "--model", help="default: the real model, downloaded if need be")
    options.add_argument("--requests", type=int, default=160, help="one-row requests of each number of clients")
    args = options.parse_args()
    demos, articles = (
        (NEWS / name).read_text(encoding="utf-8").splitlines() for name in ("demos.jsonl", "articles.jsonl")
    )
    rows = [json.loads(line) for line in articles[ADDED:]]
    bodies = [json.dumps(row).encode() for row in rows]
    with tempfile.TemporaryDirectory() as name:
        memory, read = Path(name) / "mem.safetensors", Path(name) / "demos.jsonl"
        read.write_text("\n".join([*demos, *articles[:ADDED]]), encoding="utf-8")
        model = args.model or str(real_model())
        think = [*DEEPTHINK, "think", str(read), "-m", model, "-T", "1", "-q", "-o", str(memory)]
        subprocess.run(think, check=True)
        described = subprocess.run(
            [*DEEPTHINK, "inspect", str(memory), "--json"], check=True, capture_output=True, text=True
        )
        length = json.loads(described.stdout)["shape"]["keys"][1]
        table = Table(args, "Requests to a server", COLUMNS, note=f"After a memory of {length} tokens.")
        with server(memory) as port:
            ask(port, bodies[:10])
            for clients in CLIENTS:
                show(table, port, clients, [bodies[place % len(bodies)] for place in range(args.requests)], 1)
            array = json.dumps([rows[place % len(rows)] for place in range(ARRAY)]).encode()
            show(table, port, 1, [array] * 3, ARRAY)


@contextmanager
def server(memory: Path) -> Iterator[int]:
    """The port of a server of a memory, which ends with the block."""
    command = [*DEEPTHINK, "serve", str(memory), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
                    yield int(found[1])
                    return
            sys.exit("the server did not start")
        finally:
            process.terminate()


def ask(port: int, bodies: list[bytes]) -> list[float]:
    """The seconds of each request, one after another."""
    connection, seconds = http.client.HTTPConnection("127.0.0.1", port), []
    for body in bodies:
        began = time.perf_counter()
        connection.request("POST", "/predict", body, HEADERS)
        answer = connection.getresponse()
        answer.read()
        seconds.append(time.perf_counter() - began)
        if answer.status != 200:
            sys.exit(f"the server answered {answer.status}")
    connection.close()
    return seconds


def show(table: Table, port: int, clients: int, bodies: list[bytes], rows: int) -> None:
    """Divide requests among clients that work at the same time; add a row to the table."""
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        seconds = sum(pool.map(lambda place: ask(port, bodies[place::clients]), range(clients)), list[float]())
    took = time.perf_counter() - began
    p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
    table.add(clients, rows, 1000 * statistics.median(seconds), 1000 * p95, rows * len(bodies) / took)


if __name__ == "__main__":
    main()
