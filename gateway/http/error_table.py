"""
Storage errors as refusals, for key holders and senders and for the operator API.

A refusal that depends on stored rows, such as 404, is sent only after a standby has those rows.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gateway.core.errors import ASKED_TOO_MUCH, RECOUNT_RETRY_S, REPAIR_RETRY_S, Refusal, innermost_frames
from gateway.people.authentication.bearer import key_ended_refusal
from spool.errors import (
    AlreadyThere,
    AskedTooMuch,
    Invalid,
    KeyEnded,
    Managed,
    NotAllowed,
    NotCertain,
    NotThere,
    RegistryDamaged,
    SpoolError,
    SpoolFull,
    SpoolUnavailable,
    TotalsIncomplete,
    WouldRemove,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")
SAFE_METHODS = ("GET", "HEAD")
NOT_THERE = (404,)
OF_WHAT_IS_THERE = (404, 409)


@dataclass(frozen=True)
class _ErrorRow:
    """
    The refusal for one storage error. `operator_type` replaces `type` for operators, who always get the
    error's own text.
    """

    error: type[SpoolError]
    status: int
    type: str
    operator_type: str = ""
    message: str = "{error}"
    retry_after_s: int | None = None


_UNAVAILABLE = "The request failed or is not confirmed. Send it again shortly."
_NOT_CERTAIN = "The change may or may not be stored permanently. Check whether it exists, then send it again."
_NO_KEYS = "The key table cannot be read now. Repeat the request later."

# the first match applies: subclasses before base classes
_ROWS = (
    _ErrorRow(NotThere, 404, "not_found"),
    _ErrorRow(AskedTooMuch, 422, ASKED_TOO_MUCH),
    _ErrorRow(AlreadyThere, 409, "not_allowed", "already_exists"),
    _ErrorRow(Invalid, 400, "invalid"),
    _ErrorRow(Managed, 409, "managed"),
    _ErrorRow(WouldRemove, 409, "would_remove"),
    _ErrorRow(NotAllowed, 409, "not_allowed"),
    _ErrorRow(
        RegistryDamaged, 503, "unavailable", "registry_damaged", _NO_KEYS, retry_after_s=REPAIR_RETRY_S
    ),
    _ErrorRow(SpoolFull, 503, "spool_full", message="Nothing was stored: {error}."),
    _ErrorRow(NotCertain, 503, "spool_unavailable", "unavailable", _NOT_CERTAIN, retry_after_s=1),
    _ErrorRow(TotalsIncomplete, 503, "totals_incomplete", retry_after_s=RECOUNT_RETRY_S),
    _ErrorRow(SpoolUnavailable, 503, "spool_unavailable", "unavailable", _UNAVAILABLE, retry_after_s=1),
)


def refusal_for_error(error: Exception, *, endpoint: str) -> Refusal:
    """
    Return the refusal for an error. A 500 is only for a defect; its message reveals nothing of the request.
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, KeyEnded):
        return key_ended_refusal()
    row = _first_error_row_for(error)
    if row is not None:
        message = row.message.format(error=error)
        return Refusal(row.status, row.type, message, retry_after_s=_retry_after_s(error, row))
    # the exception's text may have payload data
    extra = {"action": "endpoint_failed", "endpoint": endpoint, "error": type(error).__name__}
    _log.error("an endpoint failed", extra={**extra, "where": innermost_frames(error)})
    # senders drop a batch answered with 500, so a lack of disk or descriptors gets 503
    if isinstance(error, OSError):
        message = "The server lacks a resource, such as disk space. Send the request again shortly."
        return Refusal(503, "unavailable", message, retry_after_s=1)
    return Refusal(500, "internal", "Internal error of Tollhouse. The operator finds the details in the log.")


def operator_refusal_for_error(error: SpoolError) -> Refusal:
    row = _first_error_row_for(error)
    if row is None:
        return Refusal(500, "failed", str(error))
    type = row.operator_type or row.type
    return Refusal(row.status, type, str(error), retry_after_s=_retry_after_s(error, row))


def _retry_after_s(error: Exception, row: _ErrorRow) -> int | None:
    return error.retry_after_s if isinstance(error, SpoolFull) else row.retry_after_s


def _first_error_row_for(error: Exception) -> _ErrorRow | None:
    return next((row for row in _ROWS if isinstance(error, row.error)), None)


class DurableRegistry(Protocol):
    """Tells when stored rows survive the loss of a machine. With `is_shared`, several gateways store rows."""

    is_shared: bool

    async def wait_until_durable(self) -> None:
        """Wait until a standby has all rows. Raises NotCertain."""


def delay_refusal_until_durable(
    answer: Awaitable[T], registry: DurableRegistry | None, *, statuses: Sequence[int]
) -> Awaitable[T]:
    """
    Delay a refusal with one of `statuses` until a standby has the stored rows on which it depends.

    Raises NotCertain without that confirmation, because a takeover may undo the rows. If the registry is not
    shared, nothing is delayed.
    """
    if not statuses or registry is None or not registry.is_shared:
        return answer
    return _wait_until_durable_before_refusal(answer, registry, statuses)


def statuses_to_delay_until_durable(method: str) -> Sequence[int]:
    return NOT_THERE if method in SAFE_METHODS else OF_WHAT_IS_THERE


async def _wait_until_durable_before_refusal(
    answer: Awaitable[T], registry: DurableRegistry, statuses: Sequence[int]
) -> T:
    try:
        return await answer
    except (NotThere, NotAllowed, Refusal) as error:
        if _error_status(error) in statuses:
            await registry.wait_until_durable()
        raise


def _error_status(error: NotThere | NotAllowed | Refusal) -> int:
    if isinstance(error, Refusal):
        return error.status
    if isinstance(error, Invalid):
        return 400
    return 404 if isinstance(error, NotThere) else 409
