"""Asks the upstream what would be wrong with a billing drop. Nothing is kept there or here."""

from __future__ import annotations

import logging

import msgspec

from exporters.errors import DeliveryTooLarge, Rejected, SendError
from exporters.http.client import Client
from exporters.probe import OK, UNAVAILABLE, Probe, failed
from exporters.service.upstream_client import UpstreamClient

STREAM = "billing-validation"
MOST = 20  # errors that are handed on
_ROW = {"time/usage_start": "2026-01-01T00:00:00Z", "cost/cost": "0", "resource/id": "tollhouse-check"}
_EXAMPLE = msgspec.json.encode({"month": "2026-01", "operation": "sum", "data": [_ROW]})

_log = logging.getLogger(__name__)


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
    def __init__(self, upstream: UpstreamClient) -> None:
        self._upstream = upstream

    async def errors(self, body: bytes) -> list[str] | None:
        """
        Return the errors that the upstream finds; None without a verdict: it cannot be reached, or the key
        lacks the scope.
        """
        try:
            answer = await self._upstream.send(STREAM, body)
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
