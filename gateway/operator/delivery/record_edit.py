"""What an operator may change of a refused record, under the rules of records that come from senders. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.normalise import billing
from gateway.normalise.reading import regions, tags
from gateway.normalise.reading.times import instant
from gateway.normalise.reading.values import MAX_COST_DIGITS, MAX_TEXT, MAX_TOKENS
from spool.errors import Invalid, NotAllowed
from spool.people import People
from spool.record import (
    BillingDrop,
    Correction,
    Inference,
    Record,
    UnitCostOperation,
    UsageEvent,
    UsageMetric,
    as_json,
)

STATUSES = ("ok", "error", "cached")
_PEOPLE = frozenset(("user", "team", "session", "subject"))  # texts that may be an e-mail address
_COST = re.compile(r"\d+(\.\d+)?")


def edited(record: Record, given: Mapping[str, Any], people: People) -> tuple[Record, Sequence[str]]:
    """
    A copy of a record with other values, and the names of those that differ from it. `people` are named as in
    records that come from senders.

    Invalid names the field that is wrong. A cost that is given counts as reported.
    """
    if isinstance(record, UnitCostOperation):
        raise NotAllowed(
            "a unit-cost record is part of the totals of its stream: discard it and send a correction"
        )
    shown = as_json(record)
    names = [name for name, value in given.items() if name not in shown or shown[name] != value]
    if not names:
        raise Invalid("nothing differs from the record as it is; to send it as it is, retry it")
    if isinstance(record, Correction):
        raise NotAllowed("a correction is the difference between two states of a call: retry or discard it")
    checks = _CHECKS[type(record)]
    for name in names:
        if name not in checks:
            raise Invalid(f"{name[:64]} cannot be changed; of this record these can: {', '.join(checks)}")
    changes = {name: _carried(checks[name](name, given[name]), name, people) for name in names}
    if isinstance(record, Inference) and "cost" in changes:
        estimated = "none" if record.estimated_cost is None else "estimated"
        changes["cost_source"] = estimated if changes["cost"] is None else "reported"
    if isinstance(record, BillingDrop):
        changes |= _drop(changes["body"])
    return msgspec.structs.replace(record, **changes), names


def _carried(value: Any, name: str, people: People) -> Any:
    if name in _PEOPLE and isinstance(value, str):
        return people.carried(value)
    if not isinstance(value, dict):
        return value
    texts = people.carried_values({key: each for key, each in value.items() if isinstance(each, str)})
    return {
        key: texts.get(key, each) for key, each in value.items() if key in texts or not isinstance(each, str)
    }


def _text(name: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT):
        raise Invalid(f"{name} is text of 1 to {MAX_TEXT} characters, or null")
    return value


def _region(name: str, value: Any) -> str | None:
    """Return a region in the one spelling under which the ledger sums it."""
    found = regions.name_of(value) if isinstance(value, str) else None
    if value is not None and found is None:
        raise Invalid(f"{name} is a region in the provider's word, such as us-east-1 or eu, or null")
    return found


def _required_text(name: str, value: Any) -> str:
    text = _text(name, value)
    if text is None:
        raise Invalid(f"{name} is required")
    return text


def _tokens(name: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_TOKENS):
        raise Invalid(f"{name} is a whole number from 0 to {MAX_TOKENS}, or null")
    return value


def _cost(name: str, value: Any) -> str | None:
    if value is not None and (
        not isinstance(value, str) or len(value) > MAX_COST_DIGITS or not _COST.fullmatch(value)
    ):
        raise Invalid(f'{name} is decimal text such as "0.0125", or null')
    return value


def _time(name: str, value: Any) -> int | None:
    time = instant(value) if isinstance(value, str) else None
    if value is not None and time is None:
        raise Invalid(f"{name} is an RFC 3339 time such as 2026-01-31T12:00:00Z, or null")
    return time


def _status(name: str, value: Any) -> str:
    if value not in STATUSES:
        raise Invalid(f"{name} must be one of {', '.join(STATUSES)}")
    return str(value)


def _tags(name: str, value: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, text in value.items() if isinstance(value, dict) else [("", None)]:
        if (
            not isinstance(text, str)
            or tags.names_secret(key)
            or tags.is_secret(text)
            or not tags.put(found, key, text)
        ):
            raise Invalid(
                f"{name}.{key[:64]}: text under a short name, neither content nor a secret, and not too many"
            )
    return found


def _data(name: str, value: Any) -> dict[str, Any]:
    kept: dict[str, str] = {}
    for key, each in value.items() if isinstance(value, dict) else [("", None)]:
        if not tags.put(kept, key, each):
            raise Invalid(
                f"{name}.{key[:64]}: a number, a text or a truth value that is not content, and not too many"
            )
    return dict(value)


def _body(name: str, value: Any) -> bytes:
    body = msgspec.json.encode(value)
    drop = billing.read(body)
    if drop.errors:
        raise Invalid("; ".join((f"{name} is not a billing drop", *drop.errors)))
    return body


def _drop(body: bytes) -> dict[str, Any]:
    """Return month, operation and number of rows of the drop in a record."""
    drop = billing.read(body)
    return {"month": drop.month, "operation": drop.operation, "rows": drop.rows}


_Check = Callable[[str, Any], Any]
_WHO: Mapping[str, _Check] = dict.fromkeys(("user", "team", "session", "device"), _text)
_WHEN: Mapping[str, _Check] = dict.fromkeys(("start_time", "end_time"), _time)
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_TEXTS = (
    "request_id",
    "trace_id",
    "span_id",
    "provider",
    "operation",
    "request_model",
    "response_model",
    "error_type",
)
_CHECKS: Mapping[type[Record], Mapping[str, _Check]] = {
    Inference: {
        **dict.fromkeys(_TEXTS, _text),
        "region": _region,
        **_WHEN,
        **dict.fromkeys(_COUNTS, _tokens),
        "cost": _cost,
        "status": _status,
        **_WHO,
        "tags": _tags,
    },
    UsageMetric: {"model": _text, "token_type": _text, **_WHEN, **_WHO, "tags": _tags},
    UsageEvent: {
        "event_type": _required_text,
        "subject": _text,
        "start_time": _time,
        "data": _data,
        "tags": _tags,
    },
    BillingDrop: {"body": _body},
}
