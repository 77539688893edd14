"""
Which error of the storage becomes which refusal: for key holders and senders, and in the operator API.

A refusal that says what is there, or is not, is given once a standby has it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gateway.people.authentication.access import key_ended
from gateway.service.errors import ASKED_TOO_MUCH, Refusal
from gateway.service.monitoring.logs import where
from spool.errors import (
    AlreadyThere,
    AskedTooMuch,
    Invalid,
    KeyEnded,
    NotAllowed,
    NotCertain,
    NotThere,
    RegistryDamaged,
    SpoolError,
    SpoolFull,
    SpoolUnavailable,
)
from spool.registry.registry import Registry

_log = logging.getLogger(__name__)

T = TypeVar("T")
SAFE_METHODS = ("GET", "HEAD")
NOT_THERE = (404,)
OF_WHAT_IS_THERE = (404, 409)


@dataclass(frozen=True)
class _Row:
    """`operator_type` is that of the operator API, if it differs; operators read the error's own words."""

    error: type[SpoolError]
    status: int
    type: str
    operator_type: str = ""
    message: str = "{error}"
    retry_after_s: int | None = None


_UNAVAILABLE = "Nothing was kept; send it again shortly."
_NOT_CERTAIN = "Whether this is kept for good is not known: see whether it is there, then send it again."
_NO_KEYS = "The key table cannot be read now; repeat later."

# The first class that matches counts: subclasses stand above their base classes.
_ROWS = (
    _Row(NotThere, 404, "not_found"),
    _Row(AskedTooMuch, 422, ASKED_TOO_MUCH),
    _Row(AlreadyThere, 409, "not_allowed", "already_exists"),
    _Row(Invalid, 400, "invalid"),
    _Row(NotAllowed, 409, "not_allowed"),
    _Row(RegistryDamaged, 503, "unavailable", "registry_damaged", _NO_KEYS, retry_after_s=30),
    _Row(SpoolFull, 503, "spool_full", message="Nothing was kept: {error}."),
    _Row(NotCertain, 503, "spool_unavailable", "unavailable", _NOT_CERTAIN, retry_after_s=1),
    _Row(SpoolUnavailable, 503, "spool_unavailable", "unavailable", _UNAVAILABLE, retry_after_s=1),
)


def refusal_of(error: Exception, *, endpoint: str) -> Refusal:
    """
    Returns what a sender or a key holder is told. Only our own mistake is a 500, which reveals nothing of
    what was sent.
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, KeyEnded):
        return key_ended()
    row = _row_of(error)
    if row is not None:
        retry_after_s = error.retry_after_s if isinstance(error, SpoolFull) else row.retry_after_s
        return Refusal(row.status, row.type, row.message.format(error=error), retry_after_s=retry_after_s)
    # The exception's text may hold what was sent, so its type and place have to do.
    extra = {"action": "endpoint_failed", "endpoint": endpoint, "error": type(error).__name__}
    _log.error("an endpoint failed", extra={**extra, "where": where(error)})
    if isinstance(error, OSError):  # a disk or a lack of descriptors: a sender drops what meets a 500
        message = "The machine could not do this now; send it again shortly."
        return Refusal(503, "unavailable", message, retry_after_s=1)
    return Refusal(500, "internal", "Tollhouse made a mistake; the operator finds it in the log.")


def operator_refusal_of(error: SpoolError) -> Refusal:
    """Returns what an operator is told, in the error's own words."""
    row = _row_of(error)
    if row is None:
        return Refusal(500, "failed", str(error))
    retry_after_s = error.retry_after_s if isinstance(error, SpoolFull) else None
    return Refusal(row.status, row.operator_type or row.type, str(error), retry_after_s=retry_after_s)


def _row_of(error: Exception) -> _Row | None:
    return next((row for row in _ROWS if isinstance(error, row.error)), None)


def confirmed(work: Awaitable[T], registry: Registry | None, *, statuses: Sequence[int]) -> Awaitable[T]:
    """
    Return what the work returns. A refusal of one of these statuses, because of what is there or is not, is given
    when that is with a standby: before, it is NotCertain, because a take-over may undo it.

    Nobody else changes a registry that is not shared: there the work alone is awaited.
    """
    if not statuses or registry is None or not registry.is_shared:
        return work
    return _confirmed(work, registry, statuses)


def refusals_of(method: str) -> Sequence[int]:
    """Return the statuses that rest on rows: a look is only told that something is not there."""
    return NOT_THERE if method in SAFE_METHODS else OF_WHAT_IS_THERE


async def _confirmed(work: Awaitable[T], registry: Registry, statuses: Sequence[int]) -> T:
    try:
        return await work
    except (NotThere, NotAllowed, Refusal) as error:
        if _status(error) in statuses:
            await registry.confirm()
        raise


def _status(error: NotThere | NotAllowed | Refusal) -> int:
    if isinstance(error, Refusal):
        return error.status
    if isinstance(error, Invalid):
        return 400
    return 404 if isinstance(error, NotThere) else 409
