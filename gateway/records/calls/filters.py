"""What lists of records are filtered by, as the call and its command name it."""

from __future__ import annotations

from gateway.records.calls.amounts import AMOUNTS

DATE, TOPIC, STATE, VIEW = "date", "topic", "state", "view"
FIELDS = (
    "model",
    "request_model",
    "provider",
    "team",
    "user",
    "device",
    "source",
    "api_key",
    "status",
    "session",
    "kind",
    "cost_source",
    "region",
    "sender",
)
OPEN_SETS = ("user", "device", "session")
FILTERS = (*FIELDS, TOPIC, STATE, DATE, *AMOUNTS, VIEW)
MAX_LIMIT = 200  # records of a page, which stays small enough
