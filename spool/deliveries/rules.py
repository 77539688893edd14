"""Limits of deliveries, and the terms of a route."""

from __future__ import annotations

import secrets

from spool.log.books import ROUTE_TERMS

# Maximum open deliveries of a route that cannot deliver. The rest of its backlog stays in the log.
MAX_WAITING = 16
# a single record is shown as stuck after this number of 5xx responses, if the destination accepted
# other records meanwhile
STUCK_AFTER = 8
# number of 5xx responses after which a batch is sent in halves, if no other delivery was accepted
SUSPECT_AFTER = 3
# If a destination repeats a response this often under one idempotency key, it probably remembers the response.
SAME_ANSWERS = 3
REPLAY_RECORDS = 1000  # maximum records per delivery of a replay
KEPT_REFUSALS = 1000  # maximum number of partial rejections that are stored per route

LAKE_MARK = "lake1;"  # prefix of the mark on a delivery that may already be in a data lake

# Outcomes of a route's records. `queued` is computed, so a route has no column for it.
TERMS = tuple(term for term in ROUTE_TERMS if term != "queued")

NOBODY_NEEDS = 2**63 - 1  # the "lowest needed number" of a topic if all its routes are optional


def new_key() -> str:
    """Return a random idempotency key, which reveals nothing about the delivery."""
    return secrets.token_hex(16)
