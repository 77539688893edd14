"""
What a client sent and what its provider served, kept as a file: `captures/FAMILY/RUN.jsonl.gz`.

The first line says which calls the client told of, in the words of the provider's journal; each further line
is one request, in order. Keys and addresses are not in it, and what names the machine is written over.
"""

from __future__ import annotations

import getpass
import gzip
import json
import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.clients.journal import Call

PLACE = Path(__file__).parent / "captures"
MOST_BYTES = 200 * 1024  # of one file


@dataclass(frozen=True, slots=True)
class SentRequest:
    """`at` counts seconds from the first request of its run; `headers` say how the body is to be read."""

    at: float
    path: str
    headers: Mapping[str, str]
    body: bytes  # inflated

    def without_traces_of(self, words: Iterable[str]) -> SentRequest:
        """Each of the words written over by as many letters: lengths inside the body stay true."""
        body = self.body
        for word in words:
            body = body.replace(word.encode(), b"x" * len(word.encode()))
        return SentRequest(self.at, self.path, self.headers, body)


@dataclass(frozen=True, slots=True)
class Capture:
    """
    `told` are the provider's calls, less what this client leaves out of them.

    `cost` is what they cost in dollars at the prices that the client knows; None if it reports no costs.
    """

    family: str
    run: str
    told: Sequence[Call]
    cost: Decimal | None
    requests: Sequence[SentRequest]

    def write(self, place: Path = PLACE) -> None:
        cost = None if self.cost is None else str(self.cost)
        lines: list[dict[str, Any]] = [{"told": [_known(call) for call in self.told], "cost": cost}]
        for one in self.requests:
            # Every byte is a character of Latin-1: text stays readable, and protobuf compresses well.
            row = {
                "at": round(one.at, 3),
                "path": one.path,
                "headers": one.headers,
                "body": one.body.decode("latin-1"),
            }
            lines.append(row)
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        packed = gzip.compress(text.encode(), 9, mtime=0)
        assert len(packed) <= MOST_BYTES, f"{self.family}/{self.run} takes {len(packed)} bytes"
        path = place / self.family / f"{self.run}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packed)


def read(path: Path) -> Capture:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        first, *rest = [json.loads(line) for line in file]
    told = [Call(**{"operation": None, **call}) for call in first["told"]]
    requests = [
        SentRequest(row["at"], row["path"], row["headers"], row["body"].encode("latin-1")) for row in rest
    ]
    cost = first.get("cost")
    known_cost = None if cost is None else Decimal(cost)
    return Capture(path.parent.name, path.name.removesuffix(".jsonl.gz"), told, known_cost, requests)


def kept(place: Path = PLACE) -> list[Capture]:
    """Every capture, by family and run."""
    return [read(path) for path in sorted(place.glob("*/*.jsonl.gz"))]


def names_of_this_machine(*directories: Path) -> list[str]:
    """What a client may say of where it ran: longer ones first, so that no half of one is left."""
    words = {str(directory) for directory in directories} | {socket.gethostname(), getpass.getuser()}
    words |= {os.uname().release, sys.base_prefix, str(Path(__file__).parents[2])}
    return sorted((word for word in words if len(word) > 5), key=len, reverse=True)


def _known(call: Call) -> dict[str, Any]:
    return {name: value for name, value in asdict(call).items() if value is not None}
