"""
Compare the cost of a text-only call with another checkout of Tollhouse, such as a worktree of the previous release.

OTHER needs no environment of its own, because this interpreter runs both. Each round runs one process per
checkout, in turns. A process sends one request of spans through the steps of a call and reports the best
processor time of each step. The table has the medians of the rounds, and the ratio.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

SPANS = 256
HERE = Path(__file__).parents[3]


def probe(body: bytes, seconds: float) -> dict[str, float]:
    """
    Return microseconds per call of each step, and the bytes stored per call, for the packages that are first
    on the path.
    """
    from exporters.otlp.spans import SpanEncoder
    from gateway.intake.prices import PriceBook
    from gateway.normalise.otlp import normalise_otlp
    from gateway.normalise.outcome import ReadOptions
    from spool.ledger.sums import HourlySums
    from spool.log.entries.codec import pack_in_slices
    from spool.log.values import LogEntry

    book, encoder = PriceBook.load(), SpanEncoder()

    def read() -> Any:
        reading = normalise_otlp("traces", body, json=False, options=ReadOptions())
        while True:
            try:
                next(reading)
            except StopIteration as end:
                return end.value.records

    records = list(read())
    assert len(records) == SPANS
    pairs = [(record, 1.79e9) for record in records]

    def price() -> None:
        for record in records:
            book.price_record(record)

    def count() -> None:
        HourlySums().add_entries(
            [LogEntry(topic="ai-telemetry", first=1, committed_at=1.79e9, records=records)]
        )

    steps: dict[str, Callable[[], Any]] = {
        "read": read,
        "price": price,
        "pack": lambda: list(pack_in_slices(records)),
        "count": count,
        "send": lambda: encoder.encode_request(pairs),
    }
    found = {name: best(step, seconds / len(steps)) / SPANS * 1e6 for name, step in steps.items()}
    packed = sum(len(part) for _, part in pack_in_slices(records)) / SPANS
    return {**found, "all": sum(found.values()), "bytes": packed}


def best(step: Callable[[], Any], seconds: float) -> float:
    """Return the shortest of at least three runs within the time, because noise only adds time."""
    taken: list[float] = []
    end = process_time() + seconds
    while len(taken) < 3 or process_time() < end:
        begun = process_time()
        step()
        taken.append(process_time() - begun)
    return min(taken)


def of_checkout(checkout: Path, body: Path, seconds: float) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(Path(__file__)), str(body), str(seconds)]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compare(other: Path, *, rounds: int, seconds: float) -> dict[str, tuple[float, float, float]]:
    """
    Return for each step the median of the other checkout, the median of this one, and the median of the
    ratios within a round.
    """
    from tests.integration.payloads import REQUESTS, proto_span

    request = REQUESTS["traces"]()
    scope = request.resource_spans.add().scope_spans.add()  # type: ignore[attr-defined]
    scope.spans.extend(proto_span() for _ in range(SPANS))
    sides: list[list[dict[str, float]]] = [[], []]
    with tempfile.TemporaryDirectory() as directory:
        body = Path(directory) / "body"
        body.write_bytes(request.SerializeToString())
        for _ in range(rounds):
            for side, checkout in zip(sides, (other, HERE), strict=True):
                side.append(of_checkout(checkout, body, seconds))
    found = {}
    for name in sides[0][0]:
        before, now = ([each[name] for each in side] for side in sides)
        ratios = [one / two for one, two in zip(now, before, strict=True)]
        found[name] = (median(before), median(now), median(ratios))
    return found


if __name__ == "__main__":  # each checkout runs this module in a process of its own
    print(json.dumps(probe(Path(sys.argv[1]).read_bytes(), float(sys.argv[2]))))
