"""Input and output of a load generator, as JSON between two processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench.load.payloads import COMPRESSIONS, numbered


@dataclass(frozen=True, kw_only=True)
class LoadJob:
    """
    The load of one round. `rate` is requests per second over all clients. With 0, every client sends its next
    request as soon as it has the response. `bodies` are files, which the requests send in turn. With
    `repeat`, a client resends a request until it succeeds.
    """

    url: str
    method: str = "POST"
    path: str = "/v1/traces"
    headers: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()  # keys for the requests in turn, instead of the key in `headers`
    bodies: Sequence[str]
    repeated: str = ""  # the file with the bytes that `tests.bench.load.endless` repeats
    compression: str = ""
    clients: int = 1
    seconds: float
    rate: float = 0.0
    first: int = 0
    repeat: bool = False
    # pause of the single client of `tests.bench.fairness.steady` between a response and the next request
    pause_s: float = 0.0

    def body(self, number: int) -> bytes:
        """Return the uncompressed body of the request with that number."""
        return numbered(_read(self.bodies[number % len(self.bodies)]), number)

    def repeated_bytes(self) -> bytes:
        return _read(self.repeated)

    def compressed(self, number: int) -> bytes:
        return COMPRESSIONS[self.compression](self.body(number))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LoadJob:
        return cls(**json.loads(text))


_templates: dict[str, bytes] = {}


def _read(path: str) -> bytes:
    if path not in _templates:
        _templates[path] = Path(path).read_bytes()
    return _templates[path]


@dataclass
class LoadFigures:
    """
    Responses by their status (HTTP, or the name of the gRPC code), and the duration of accepted requests.
    """

    sent: int = 0
    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    broken: int = 0
    unanswered: list[int] = field(default_factory=list)  # numbers of the requests that got no clear answer
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    latencies_ms: dict[str, float] = field(default_factory=dict)
    # the duration of every request; only the single steady client stores them
    each_ms: list[float] = field(default_factory=list)

    def refuse(self, status: str) -> None:
        self.refused[status] = self.refused.get(status, 0) + 1

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LoadFigures:
        return cls(**json.loads(text))


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return the p50, p99, p99.9 and maximum in milliseconds."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    places = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {
        name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000
        for name, share in places.items()
    }
