"""Ways to damage a memory file, each drawn at random; none may be taken for a memory."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import re
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from typing import Any

Mutator = Callable[[bytes, random.Random], bytes]


def parts(data: bytes) -> tuple[str, bytes]:
    """The header's text and the tensors' bytes."""
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return data[8:end].decode().rstrip(" "), data[end:]


def joined(header: str, body: bytes) -> bytes:
    """A file of them, aligned as safetensors aligns it."""
    text = header.encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def compact(value: Any) -> str:
    """JSON as the file has it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def flipped_bits(data: bytes, draw: random.Random) -> bytes:
    """One to eight bits anywhere, or in the header and its length."""
    end = draw.choice([len(data), 8 + struct.unpack("<Q", data[:8])[0]])
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        changed[draw.randrange(end)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def other_stretch(data: bytes, draw: random.Random) -> bytes:
    """A stretch overwritten, left out, or added, in the middle or at the end."""
    start, taken, put = draw.choice([draw.randrange(len(data)), len(data)]), *draw.choices([0, 1, 4, 8, 4096], k=2)
    return data[:start] + draw.randbytes(put) + data[start + taken :]


def truncated(data: bytes, draw: random.Random) -> bytes:
    """Only the beginning."""
    return data[: draw.randrange(len(data))]


def swapped(data: bytes, draw: random.Random) -> bytes:
    """Two stretches of the tensors' bytes in each other's place."""
    header, body = parts(data)
    count = draw.choice([4, 16, 64])
    one, two = sorted(draw.sample(range(0, len(body) - count, count), 2))
    moved = body[:one] + body[two : two + count] + body[one + count : two] + body[one : one + count]
    return joined(header, moved + body[two + count :])


def other_length(data: bytes, draw: random.Random) -> bytes:
    """Another header length."""
    length = struct.unpack("<Q", data[:8])[0]
    return struct.pack("<Q", draw.choice([0, 1, length - 1, length + 8, 2**31, 2**63, 2**64 - 1])) + data[8:]


def other_entry(data: bytes, draw: random.Random) -> bytes:
    """A tensor's entry changed: dtype, shape, offsets, name, or a field more or less."""
    header, body = parts(data)
    raw = json.loads(header)
    name = draw.choice([one for one in raw if one != "__metadata__"])
    entry = raw[name]
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    changes: list[dict[str, Any]] = [
        {"dtype": draw.choice(["I32", "U32", "F16", "BF16", "F64", "f32", "", None, 4])},
        {"shape": draw.sample(shape, len(shape))},
        {"shape": [shape[0] * shape[1], shape[2]]},
        {"shape": [0, 2**63]},
        {"shape": [1, *shape]},
        {"shape": [shape[0], shape[1], 1, shape[2]]},
        {"shape": [-1, *shape[1:]]},
        {"shape": "x"},
        {"data_offsets": [end, begin]},
        {"data_offsets": [begin + 4, end + 4]},
        {"data_offsets": [0, 0]},
        {"data_offsets": [0, 2**64]},
        {"data_offsets": [float(begin), end]},
        {"data_offsets": [begin]},
        {"extra": 1},
    ]
    entry |= draw.choice(changes)
    if draw.random() < 0.2:
        raw[draw.choice(["weight", "../x", name + "0", "\u202e"])] = raw.pop(name)
    elif draw.random() < 0.2:
        del raw[name]
    return joined(compact(raw), body)


def exchanged_entries(data: bytes, draw: random.Random) -> bytes:
    """Two tensors under each other's name."""
    header, body = parts(data)
    raw = json.loads(header)
    one, two = draw.sample([name for name in raw if name != "__metadata__"], 2)
    raw[one], raw[two] = raw[two], raw[one]
    return joined(compact(raw), body)


def key_twice(data: bytes, draw: random.Random) -> bytes:
    """A key that is duplicated in the header or in the metadata."""
    header, body = parts(data)
    found = draw.choice(list(re.finditer(r'\\?"[a-z0-9_.]+\\?":', header)))
    return joined(header[: found.start()] + found[0] + "0," + header[found.start() :], body)


def other_metadata(data: bytes, draw: random.Random) -> bytes:
    """A value anywhere in the metadata replaced, left out, or added to; the digest stays."""
    header, body = parts(data)
    raw = json.loads(header)
    metadata = json.loads(raw["__metadata__"]["deepthink"])
    inner: Any = metadata
    while True:
        key = draw.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        if not (isinstance(inner[key], dict | list) and inner[key]) or draw.random() < 0.2:
            break
        inner = inner[key]
    values: list[Any] = [None, 0, -1, 1e300, "", "x", [], {}, True, [[]], "\ud800", "\0", 10**30, "9" * 9, inner[key]]
    if isinstance(inner, dict) and draw.random() < 0.3:
        inner[draw.choice(["new", key + " "])] = inner.pop(key) if draw.random() < 0.5 else 1
    else:
        inner[key] = draw.choice(values)
    text = json.dumps(metadata, sort_keys=draw.random() < 0.9, separators=(",", ":"), ensure_ascii=False)
    raw["__metadata__"] = {"deepthink": text} if draw.random() < 0.9 else {"deepthink": text, "format": "pt"}
    return joined(compact(raw), body)


def respelled_number(data: bytes, draw: random.Random) -> bytes:
    """A number of the header written in another way: the same to a JSON reader, not the same file."""
    header, body = parts(data)
    found = draw.choice(list(re.finditer(r"(?<![\w.])\d+(\.\d+)?(e-\d+)?(?![\w.])", header)))
    ways = [found[0] + ".0", found[0] + "e0", "0" + found[0], found[0].upper(), "-" + found[0], f" {found[0]}"]
    return joined(header[: found.start()] + draw.choice(ways) + header[found.end() :], body)


def other_file(data: bytes, draw: random.Random) -> bytes:
    """A file of another kind."""
    zipped = BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("mem.safetensors", data)
    header, body = parts(data)
    return draw.choice(
        [
            b"",
            b"{}",
            b"null\n",
            b"<html>404</html>" * draw.randrange(1, 99),
            pickle.dumps(data),
            gzip.compress(data),
            zipped.getvalue(),
            b"\x89PNG\r\n\x1a\n" + data,
            b"PAR1" + data + b"PAR1",
            data[8:],
            header.encode(),
            body,
            "\ufeff".encode() + data,
            data.hex().encode(),
            draw.randbytes(draw.randrange(5000)),
            b"\0" * len(data),
            joined("[" * draw.choice([3, 9000]), body),
            joined(compact({"__metadata__": {}}), b""),
        ]
    )


MUTATORS: list[Mutator] = [
    flipped_bits,
    other_stretch,
    truncated,
    swapped,
    other_length,
    other_entry,
    exchanged_entries,
    key_twice,
    other_metadata,
    respelled_number,
    other_file,
]
