"""Times and durations in every notation, as nanoseconds."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.normalise.reading import times
from spool.record import rfc3339


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1795158582.098113"), "2026-11-20T07:09:42.098113Z"),
        ("1795158582.098113", "2026-11-20T07:09:42.098113Z"),
        (1763632810001, "2025-11-20T10:00:10.001Z"),
        (1763632810001000000, "2025-11-20T10:00:10.001Z"),
        ("2025-05-26T14:13:16.469836-07:00", "2025-05-26T21:13:16.469836Z"),
        ("2026-06-29T17:34:38.450939+05:30", "2026-06-29T12:04:38.450939Z"),
        ("2025-09-02 10:14:51.000000 UTC", "2025-09-02T10:14:51Z"),
        ("2025-11-04T09:12:33.4567890Z", "2025-11-04T09:12:33.456789Z"),
        ("2025-11-04T09:12:33.1234567Z", "2025-11-04T09:12:33.1234567Z"),
        ("2025-01-02 03:04:05.678901", "2025-01-02T03:04:05.678901Z"),
        ("2025-01-02T03:04Z", "2025-01-02T03:04:00Z"),
        (0, None),
        (None, None),
        ("", None),
        ("yesterday", None),
        (-5, None),
        (10**30, None),
        ("2025-13-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", None),
        (True, None),
        ({}, None),
    ],
)
def test_times_are_exact_whatever_their_form(value: Any, expected: str | None) -> None:
    """Times are exact in every notation. An invalid time is unknown, and the call is still stored."""
    assert expected == rfc3339(times.parse_instant(value))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("804ms", 804_000_000),
        ("1.5s", 1_500_000_000),
        ("350us", 350_000),
        ("1m2s", 62_000_000_000),
        ("12", 12_000_000),
        (7, 7_000_000),
        ("soon", None),
        ("5 parsecs", None),
        ("-3s", None),
        pytest.param("9" * 10**6, None, id="a million digits"),
    ],
)
def test_durations_carry_their_unit(written: Any, expected: int | None) -> None:
    """Durations are read in agentgateway's notation, with a unit. A number without a unit is milliseconds."""
    assert expected == times.parse_duration_ns(written)


@pytest.mark.parametrize(
    ("milliseconds", "expected"), [(1.5, 1_500_000), ("20", 20_000_000), (10**10 + 1, None), (-1, None)]
)
def test_duration_above_four_months_is_unknown(milliseconds: Any, expected: int | None) -> None:
    """A duration above four months counts as unknown, because it is a timestamp or has another unit."""
    assert expected == times.milliseconds_to_ns(milliseconds)
