"""
Files with the requests of a client and the calls that its provider served: `captures/FAMILY/RUN.jsonl.gz`.

The first line lists the calls that the client reported, as in the provider's journal. Each further line is
one request, in order. Keys and addresses are not stored, and names of the machine are overwritten.
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
MOST_BYTES = 200 * 1024  # size limit in bytes per file


@dataclass(frozen=True, slots=True)
class SentRequest:
    """
    A recorded request. `at` is the number of seconds since the first request of its run. `headers` are those needed
    to read the body.
    """

    at: float
    path: str
    headers: Mapping[str, str]
    body: bytes  # the body after decompression

    def without_traces_of(self, words: Iterable[str]) -> SentRequest:
        """Overwrite each word by the same number of letters, so that length fields in the body stay valid."""
        body = self.body
        for word in words:
            body = body.replace(word.encode(), b"x" * len(word.encode()))
        return SentRequest(self.at, self.path, self.headers, body)


@dataclass(frozen=True, slots=True)
class Capture:
    """
    The requests of one run. `told` holds the provider's calls without the fields that this client does not report.

    `cost` is their cost in dollars at the client's prices, or None if the client reports no costs.
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
            # Latin-1 maps every byte to a character, so text stays readable and protobuf still compresses well.
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
    reported = [Call(**{"operation": None, **call}) for call in first["told"]]
    requests = [
        SentRequest(row["at"], row["path"], row["headers"], row["body"].encode("latin-1")) for row in rest
    ]
    cost = first.get("cost")
    known_cost = None if cost is None else Decimal(cost)
    return Capture(path.parent.name, path.name.removesuffix(".jsonl.gz"), reported, known_cost, requests)


def kept(place: Path = PLACE) -> list[Capture]:
    """Read every capture, sorted by family and run."""
    return [read(path) for path in sorted(place.glob("*/*.jsonl.gz"))]


def names_of_this_machine(*directories: Path) -> list[str]:
    """Return the names that may reveal this machine, longer names first, so that no part of one remains."""
    words = {str(directory) for directory in directories} | {socket.gethostname(), getpass.getuser()}
    words |= {os.uname().release, sys.base_prefix, str(Path(__file__).parents[2])}
    return sorted((word for word in words if len(word) > 5), key=len, reverse=True)


def _known(call: Call) -> dict[str, Any]:
    return {name: value for name, value in asdict(call).items() if value is not None}
