"""
Billing drops as they were received: forwarded whole, never split, and in order for each connection.

The service takes no concurrent requests for one connection, so whoever sends to one holds its lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from exporters.errors import DeliveryTooLarge, Rejected, SendError
from exporters.http.client import Client
from exporters.pace import InOrder
from exporters.probe import OK, UNAVAILABLE, Probe, failed
from exporters.service.upstream_client import UpstreamClient
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import Entry
from spool.record import BillingDrop

STREAM = "billing-drops"
VALIDATION_STREAM = "billing-validation"
MOST = 20  # errors that are handed on
_ROW = {"time/usage_start": "2026-01-01T00:00:00Z", "cost/cost": "0", "resource/id": "tollhouse-check"}
_EXAMPLE = msgspec.json.encode({"month": "2026-01", "operation": "sum", "data": [_ROW]})

_log = logging.getLogger(__name__)


class ConnectionLocks:
    """A lock for each billing connection: one request at a time."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    def of(self, connection_id: str) -> asyncio.Lock:
        return self._locks.setdefault(connection_id, asyncio.Lock())


class BillingDropExporter:
    in_flight = 1
    max_records = 1  # one drop is one request

    def __init__(
        self, upstream: UpstreamClient, locks: ConnectionLocks, id_upstream: Callable[[BillingDrop], str]
    ) -> None:
        """`id_upstream`: the id that the connection of a drop has upstream."""
        self._upstream = upstream
        self._id_upstream = id_upstream
        self._locks = locks
        self._order = InOrder()

    async def prepare(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        drops = [record for entry in entries for record in entry.records if isinstance(record, BillingDrop)]
        key = delivery.idempotency_key
        for drop in drops:
            to = self._id_upstream(drop)
            with self._order.turn(to, delivery):
                async with self._locks.of(to):
                    await self._upstream.send(STREAM, drop.body, idempotency_key=key, connection_id=to)
        return Settlement(delivered=len(drops), damaged=delivery.count - len(drops))

    async def close(self) -> None:
        await self._upstream.close()


class _Verdict(msgspec.Struct):
    is_valid: bool
    errors: list[str] = []


class _Answer(msgspec.Struct):
    connection: _Verdict


_answer = msgspec.json.Decoder(_Answer)


async def try_validation(client: Client, url: str, *, authorization: str) -> Probe:
    """Asks for a verdict on a drop of one row; whatever is found wrong with it, the upstream answers."""
    try:
        answer = await client.send(
            url, _EXAMPLE, content_type="application/json", authorization=authorization
        )
        _answer.decode(answer.body)
    except Rejected:
        return Probe(status=OK)
    except SendError as error:
        return failed(error)
    except msgspec.MsgspecError:
        return Probe(status=UNAVAILABLE, words="its answer holds no verdict")
    return Probe(status=OK)


class BillingValidation:
    """Asks the upstream what would be wrong with a billing drop. Nothing is kept there or here."""

    def __init__(self, upstream: UpstreamClient) -> None:
        self._upstream = upstream

    async def errors(self, body: bytes) -> list[str] | None:
        """
        Return the errors that the upstream finds; None without a verdict: it cannot be reached, or the key
        lacks the scope.
        """
        try:
            answer = await self._upstream.send(VALIDATION_STREAM, body)
            verdict = _answer.decode(answer.body).connection
        except (Rejected, DeliveryTooLarge) as error:
            return [str(error)]
        except (SendError, msgspec.MsgspecError) as error:
            _log.warning(
                "a drop was validated here alone: %s", error, extra={"action": "validation_unanswered"}
            )
            return None
        if verdict.is_valid:
            return []
        return [answer.without_secrets(each) for each in verdict.errors[:MOST]] or [
            "the upstream gives no reason"
        ]

    async def close(self) -> None:
        await self._upstream.close()
