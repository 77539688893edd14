"""Usage events, unit costs and billing rows are stored only while their key is valid."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from gateway.configuration.sections import Config
from gateway.core.errors import Refusal
from gateway.intake.attribution import RecordAttributor
from gateway.intake.deposits import NonTelemetryIntake
from gateway.normalise.events import UsageEventBatch
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.errors import KeyEnded
from spool.identity import RecordIdentity
from spool.log.values import Receipt, Submission
from spool.record import HourlyBillingFile, UnitCostOperation
from spool.registry.key_expectations import valid_key_expectation
from spool.streams import SUM

GOOD = valid_key_expectation(b"d" * 32)
BEARER = AuthenticatedKey("one", frozenset(), expects=(GOOD,))
IDENTITY = RecordIdentity(b"i" * 16)
OPERATION = UnitCostOperation(id=b"i" * 16, stream="calls", stream_type="allocation", operation=SUM)
DROP = HourlyBillingFile(id=b"i" * 16, connection_id="1", month="2026-11", operation=None, rows=1, body=b"{}")


class EndedKey:
    """A log that refuses submissions, because their key has ended."""

    async def append_submission(self, submission: Submission) -> Receipt:
        if GOOD in submission.expects:
            raise KeyEnded("the key has ended")
        raise AssertionError("it is kept")


@pytest.mark.parametrize(
    "bring",
    [
        lambda deposits: deposits.store_events(UsageEventBatch(), BEARER),
        lambda deposits: deposits.store_operations([OPERATION], [IDENTITY], BEARER),
        lambda deposits: deposits.store_hourly_file(DROP, IDENTITY, BEARER),
    ],
)
async def test_key_ended_at_another_gateway_stores_nothing(
    bring: Callable[[NonTelemetryIntake], Awaitable[Receipt]],
) -> None:
    """For every kind of record, the sender receives 401 with `unknown_key`."""
    with pytest.raises(Refusal) as refused:
        await bring(NonTelemetryIntake(cast(Any, EndedKey()), RecordAttributor(Config())))
    assert refused.value.status == 401
    assert refused.value.type == "unknown_key"
