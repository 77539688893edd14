"""Limits of the deliveries, and the terms of a route."""

from __future__ import annotations

import secrets

from spool.log.books import ROUTE_TERMS

# A route that cannot deliver cuts no more deliveries than this; the rest of its backlog stays in the log,
# uncut.
MAX_WAITING = 16
STUCK_AFTER = 8  # 5xx answers while others passed: a single record that met them is shown as stuck
SUSPECT_AFTER = 3  # 5xx answers while nothing passed: a batch that met them is tried in halves
# as many times under one key, the same answer is taken for one that the destination remembers
SAME_ANSWERS = 3
REPLAY_RECORDS = 1000  # in one delivery of a replay
KEPT_REFUSALS = 1000  # partial refusals listed for each route

LAKE_MARK = "lake1;"  # how the mark of a delivery begins that may be in a lake

# What becomes of the numbers of a route. `queued` is worked out: it is not a column of a route.
TERMS = tuple(term for term in ROUTE_TERMS if term != "queued")

NOBODY_NEEDS = 2**63 - 1  # every route on the topic may be skipped


def new_key() -> str:
    """An idempotency key: random, so that it says nothing about what it stands for."""
    return secrets.token_hex(16)
