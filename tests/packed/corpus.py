"""
`python -m tests.packed.corpus DIRECTORY` writes the initial inputs for fuzzing, one folder per
target of native/fuzz.

Requests come from real clients and the benchmark load. Records are generated for the target's table.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.load.payloads import protobuf_spans
from tests.bench.load.traces import captured_spans, tree_spans

_LARGEST = 16 * 1024  # limit in bytes; longer inputs are slow and find nothing new


def requests() -> Iterable[bytes]:
    yield from (body for body in captured_spans() if len(body) <= _LARGEST)
    yield from (tree_spans(7), protobuf_spans(1), protobuf_spans(3))


def records() -> Iterable[bytes]:
    """
    Yield arrays of records with the fields of the target: id, trace, span, start, end, model, user, and so on.
    """
    chance = random.Random(34)
    for count in (0, 1, 2, 16):
        made: list[list[Any]] = [
            [
                1, chance.randbytes(16), f"{chance.getrandbits(128):032x}", f"{chance.getrandbits(64):016x}",
                10**18, 10**18 + chance.randrange(10**9), "model", f"chatcmpl-{chance.getrandbits(128):032x}",
                chance.randrange(10**6), f"0.{chance.randrange(10**9)}", chance.random() < 0.1, {"a": "b", "c": "d"},
            ]
            for _ in range(count)
        ]  # fmt: skip
        yield msgspec.msgpack.encode(made)
        yield msgspec.msgpack.encode([record[: chance.randrange(6, 13)] for record in made])
        nothing: list[list[Any]] = [
            [1, b"", None, None, None, None, None, None, None, None, False, {}] for _ in made
        ]
        yield msgspec.msgpack.encode(nothing)


def write(directory: Path) -> None:
    for name, bodies in (("requests", requests()), ("records", records())):
        folder = directory / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, body in enumerate(bodies):
            (folder / f"seed-{number:03}").write_bytes(body)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
