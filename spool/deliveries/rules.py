from __future__ import annotations

import secrets

from spool.log.books import ROUTE_TERMS

# Open deliveries of a route that cannot deliver. The rest stays in the log.
MAX_WAITING = 16
# 5xx responses of a stuck record, while others were accepted
STUCK_AFTER = 8
# 5xx responses until a batch is halved, if nothing else was accepted
SUSPECT_AFTER = 3
# A destination that repeats a response this often under one key probably remembers it.
SAME_ANSWERS = 3
REPLAY_RECORDS = 1000  # per delivery of a replay
KEPT_REFUSALS = 1000  # partial rejections per route

LAKE_MARK = "lake1;"  # mark of a delivery that may already be in a data lake

# `queued` is computed, without a column.
TERMS = tuple(term for term in ROUTE_TERMS if term != "queued")

NOBODY_NEEDS = 2**63 - 1  # "lowest needed number" with only optional routes


def new_key() -> str:
    """Return a new idempotency key, which reveals nothing about the delivery."""
    return secrets.token_hex(16)
