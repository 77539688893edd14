"""Limits of deliveries, and the terms of a route."""

from __future__ import annotations

import secrets

from spool.log.books import ROUTE_TERMS

# Maximum open deliveries of a route that cannot deliver. The rest of its backlog stays in the log.
MAX_WAITING = 16
# 5xx responses to a single record, while others were accepted, after which it is shown as stuck
STUCK_AFTER = 8
SUSPECT_AFTER = 3  # 5xx responses to a batch, while nothing was accepted, after which it is tried in halves
# The same response, repeated this often under one key, is considered remembered by the destination.
SAME_ANSWERS = 3
REPLAY_RECORDS = 1000  # maximum records per delivery of a replay
KEPT_REFUSALS = 1000  # maximum number of partial rejections that are stored per route

LAKE_MARK = "lake1;"  # prefix of the mark of a delivery that may be in a data lake

# Outcomes of a route's records. `queued` is computed, so a route has no column for it.
TERMS = tuple(term for term in ROUTE_TERMS if term != "queued")

NOBODY_NEEDS = 2**63 - 1  # returned if every route on the topic is optional


def new_key() -> str:
    """Return a random idempotency key, which reveals nothing about the delivery."""
    return secrets.token_hex(16)
