"""Rows of the deliveries' tables as the values that cross the seam."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from spool.deliveries.values import DeadLetter, Delivery, PartialRefusal, UnknownDelivery
from spool.log.values import Entry
from spool.record import unpack
from spool.sqlite.deliveries import queries


def delivery(connection: sqlite3.Connection, statement: str, values: Mapping[str, object]) -> Delivery | None:
    """The first row of a statement that selects deliveries."""
    row = connection.execute(statement, values).fetchone()
    return None if row is None else _delivery(row)


def one(connection: sqlite3.Connection, route: str, delivery_id: int) -> Delivery:
    row = connection.execute(queries.ONE, {"route": route, "id": delivery_id, "in_hand": "[]"}).fetchone()
    return _delivery(row)


def _delivery(row: tuple[Any, ...]) -> Delivery:
    (
        delivery_id, route, first, last, attempts, key, server_errors, refusals, refused_at, proven, doubted,
        last_error, mark, replay, kept_at, kept, topic,
    ) = row  # fmt: skip
    return Delivery(
        id=delivery_id,
        route=route,
        first=first,
        last=last,
        attempts=attempts,
        idempotency_key=key,
        server_errors=server_errors,
        refusals=refusals,
        refused_at=refused_at,
        proven=bool(proven),
        doubted=bool(doubted),
        last_error=last_error,
        mark=mark,
        replay=bool(replay),
        kept=None if kept is None else Entry(topic=topic, first=first, committed_at=kept_at, records=unpack(kept)),
    )


def dead_letter(row: tuple[Any, ...]) -> DeadLetter:
    letter, route, topic, number, record, error, status, at = row
    return DeadLetter(
        id=letter,
        route=route,
        topic=topic,
        number=number,
        record=unpack(record)[0],
        error=error,
        status=status,
        at=at,
    )


def unknown(row: tuple[Any, ...]) -> UnknownDelivery:
    delivery_id, route, topic, first, last, reason, kept_at, kept, _ = row
    entry = None if kept is None else Entry(topic=topic, first=first, committed_at=kept_at, records=unpack(kept))
    return UnknownDelivery(id=delivery_id, route=route, topic=topic, first=first, last=last, reason=reason, kept=entry)


def partial_refusal(row: tuple[Any, ...]) -> PartialRefusal:
    route, first, last, count, words, at = row
    return PartialRefusal(route=route, first=first, last=last, count=count, words=words, at=at)
