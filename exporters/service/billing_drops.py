"""
Forwarding of billing drops: unchanged, never split, and in order per connection.

The service accepts only one request at a time for a connection, so every sender must hold the connection's lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from exporters.errors import DeliveryTooLarge, Rejected, SendError
from exporters.http.client import HttpClient
from exporters.pace import DeliveryOrder
from exporters.probe import OK, UNAVAILABLE, Probe, error_probe
from exporters.service.upstream_client import UpstreamClient
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import HourlyBillingFile

STREAM = "billing-drops"
VALIDATION_STREAM = "billing-validation"
MAX_ERRORS = 20  # maximum number of errors returned
_ROW = {"time/usage_start": "2026-01-01T00:00:00Z", "cost/cost": "0", "resource/id": "tollhouse-check"}
_EXAMPLE = msgspec.json.encode({"month": "2026-01", "operation": "sum", "data": [_ROW]})

_log = logging.getLogger(__name__)


class ConnectionLocks:
    """One lock per billing connection, so that only one request runs at a time."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    def lock_for(self, connection_id: str) -> asyncio.Lock:
        return self._locks.setdefault(connection_id, asyncio.Lock())


class HourlyBillingFileExporter:
    in_flight = 1
    max_records = 1  # one record per delivery, because each billing file is its own request

    def __init__(
        self,
        upstream: UpstreamClient,
        locks: ConnectionLocks,
        id_upstream: Callable[[HourlyBillingFile], str],
    ) -> None:
        self._upstream = upstream
        self._id_upstream = id_upstream
        self._locks = locks
        self._order = DeliveryOrder()

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        drops = [
            record for entry in entries for record in entry.records if isinstance(record, HourlyBillingFile)
        ]
        key = delivery.idempotency_key
        for drop in drops:
            to = self._id_upstream(drop)
            with self._order.hold_turn(to, delivery):
                async with self._locks.lock_for(to):
                    await self._upstream.send(STREAM, drop.body, idempotency_key=key, connection_id=to)
        return Settlement(delivered=len(drops), damaged=delivery.count - len(drops))

    async def close(self) -> None:
        await self._upstream.close()


class _ValidationVerdict(msgspec.Struct):
    is_valid: bool
    errors: list[str] = []


class _ValidationAnswer(msgspec.Struct):
    connection: _ValidationVerdict


_answer = msgspec.json.Decoder(_ValidationAnswer)


async def probe_validation(client: HttpClient, url: str, *, authorization: str) -> Probe:
    """
    Let the upstream validate an example of an hourly billing file, with one row. Any result of the validation
    proves that the key and the address work.
    """
    try:
        answer = await client.send(
            url, _EXAMPLE, content_type="application/json", authorization=authorization
        )
        _answer.decode(answer.body)
    except Rejected:
        return Probe(status=OK)
    except SendError as error:
        return error_probe(error)
    except msgspec.MsgspecError:
        return Probe(status=UNAVAILABLE, words="its response contains no verdict")
    return Probe(status=OK)


class BillingFileValidator:
    """Validates billing files by a request to the upstream, which does not store them."""

    def __init__(self, upstream: UpstreamClient) -> None:
        self._upstream = upstream

    async def fetch_errors(self, body: bytes) -> list[str] | None:
        """
        Return the errors that the upstream finds. Return None if it cannot be reached or the key lacks the scope.
        """
        try:
            answer = await self._upstream.send(VALIDATION_STREAM, body)
            verdict = _answer.decode(answer.body).connection
        except (Rejected, DeliveryTooLarge) as error:
            return [str(error)]
        except (SendError, msgspec.MsgspecError) as error:
            _log.warning(
                "the cost service did not validate an hourly file, so only Tollhouse's checks apply: %s",
                error,
                extra={"action": "validation_unanswered"},
            )
            return None
        if verdict.is_valid:
            return []
        return [answer.without_secrets(error) for error in verdict.errors[:MAX_ERRORS]] or [
            "the upstream gives no reason"
        ]

    async def close(self) -> None:
        await self._upstream.close()
