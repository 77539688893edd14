"""The choice between decoding a body in the server and in a worker."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import cast

from gateway.http.holders.receivers import ReceiverServices
from gateway.http.inflight_bytes import InflightBytes
from gateway.http.turns import LARGE
from gateway.intake.receivers.decoding import WORTH_A_WAY, decoded
from gateway.intake.workers.jobs import NotDone, SentBody
from gateway.normalise.formats.engine.declaration import Normalised
from gateway.normalise.outcome import Options, Outcome


class Workers:
    def __init__(self, *, has_room: bool = True, is_there: bool = True) -> None:
        self.has_room = has_room
        self.bodies = 0
        self._is_there = is_there

    async def decode(self, body: SentBody, options: Options, hold: object) -> Normalised:
        self.bodies += 1
        if not self._is_there:
            raise NotDone
        return Normalised(Outcome())


async def place_of(size: int, workers: Workers | None) -> tuple[int, int]:
    """Return how often the workers and the server decoded one body of `size` bytes."""
    here: Counter[str] = Counter()
    metrics = SimpleNamespace(body_decoded=lambda by: here.update([by]))
    services = SimpleNamespace(workers=workers, options=Options(), metrics=metrics, memory=None)
    body = SentBody.of_export("traces", b'{"resourceSpans": [' + b" " * (size - 21) + b"]}", json=True)
    assert size == len(body.content)
    await decoded(cast(ReceiverServices, services), body, InflightBytes(LARGE).share(), aside_above=2 * LARGE)
    return (0 if workers is None else workers.bodies), here["server"]


async def test_a_body_goes_where_it_costs_least() -> None:
    """Small bodies stay in the server. Larger bodies go to a worker if one is free."""
    assert (0, 1) == await place_of(WORTH_A_WAY - 1, Workers())
    assert (1, 0) == await place_of(WORTH_A_WAY, Workers())
    assert (0, 1) == await place_of(LARGE, None)
    assert (0, 1) == await place_of(LARGE, Workers(has_room=False))


async def test_a_large_body_waits_for_a_worker() -> None:
    """Decoding a large body would block the server, so it decodes the body itself only if no worker runs."""
    assert (1, 0) == await place_of(LARGE + 1, Workers(has_room=False))
    assert (1, 1) == await place_of(LARGE + 1, Workers(has_room=False, is_there=False))
