from __future__ import annotations

import secrets

from spool.log.accounting import ROUTE_TERMS

# Limit of open deliveries for a route that cannot deliver. Further records stay in the log.
MAX_WAITING = 16
# a record counts as stuck after this number of 5xx responses while other records were accepted
STUCK_AFTER = 8
# a batch is halved after this number of 5xx responses if nothing else was accepted
SUSPECT_AFTER = 3
# A destination that repeats a response this number of times under one key probably remembers the response.
SAME_ANSWERS = 3
REPLAY_RECORDS = 1000  # maximum records per delivery of a replay
KEPT_REFUSALS = 1000  # partial rejections stored per route

LAKE_MARK = "lake1;"  # mark of a delivery that may already be in a data lake

# The term `queued` is computed, so it has no column.
TERMS = tuple(term for term in ROUTE_TERMS if term != "queued")

NOBODY_NEEDS = 2**63 - 1  # the "lowest needed number" if all routes are optional


def new_idempotency_key() -> str:
    return secrets.token_hex(16)
