"""An operator lets a route try now, on each storage engine."""

from __future__ import annotations

import pytest

from exporters.errors import Misconfigured, Rejected, Retryable, SendError
from exporters.pace import Backoff
from exporters.route_loop import RouteLoop
from tests.exporters.capture import Capture
from tests.exporters.spools import SPEC, Spooled, calls

DOWN = Retryable("no answer", answered=False, ambiguous=True)
LATER = Retryable("429", status=429, retry_after_s=86_400)
BAD = Rejected("400 bad", status=400)
FORBIDDEN = Misconfigured("403", status=403)


@pytest.mark.parametrize("answer", [DOWN, Retryable("503", status=503), LATER, BAD, FORBIDDEN])
async def test_an_operator_ends_the_wait_of_a_delivery(spooled: Spooled, answer: SendError) -> None:
    """
    A delivery that waits, even for a day, is sent at once on request. If it fails again, it waits again, so a
    destination that is down gets one more request.
    """
    await spooled.deliveries.set_routes([SPEC])
    await spooled.add(calls(1, 1))
    exporter = Capture(answers=[answer, answer, None])
    route = RouteLoop(
        SPEC,
        exporter,
        deliveries=spooled.deliveries,
        record_log=spooled.log,
        clock=spooled.clock,
        backoff=Backoff(),
    )

    async def forward() -> bool:
        return route._throttle.wait_s(0) == 0.0 and await route.forward_one_delivery()

    assert [True, False] == [await forward() for _ in range(2)]
    route.send_now()
    assert [True, False] == [await forward() for _ in range(2)]
    route.send_now()
    assert await forward()
    assert {"delivered": 1} == await spooled.terms()
    assert 3 == len(exporter.deliveries)
