"""The rates of a month as they are frozen: every currency and day that is known, exactly, with where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256

from gateway.money.currencies.rates import RateTable

Days = dict[
    str, dict[str, list[str]]
]  # day -> currency -> dollars as a fraction, source, day of the quotation


def days_of(table: RateTable, days: Iterable[int]) -> Days:
    """Return what a table knows on these days (epoch seconds)."""
    found: Days = {}
    for day in days:
        known = {currency: table.value(currency, day) for currency in sorted(table.currencies())}
        found[_text(day)] = {
            currency: [str(value.usd), value.source, _text(value.quoted)]
            for currency, value in known.items()
            if value is not None
        }
    return found


def digest_of(days: Days) -> str:
    """Return the same for the same rates, whoever works it out."""
    return sha256(json.dumps(days, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _text(day: int) -> str:
    """Write a day; "" for a rate that was in force always."""
    return datetime.fromtimestamp(day, UTC).strftime("%Y-%m-%d") if day > 0 else ""
