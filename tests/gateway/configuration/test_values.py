from __future__ import annotations

from typing import Any

import pytest

from gateway.configuration.values import format_quantity, parse_quantity
from spool.settings import MIB, Duration, Size


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Size, 64 * MIB, "64MiB"),
        (Size, 1000, "1000"),
        (Duration, 7 * 86_400, "7d"),
        (Duration, 90.0, "90s"),
        (Duration, 0.25, "250ms"),
        (Duration, 0.005, "5ms"),
        (Duration, 0.0, "0"),
    ],
)
def test_what_is_written_is_read_as_the_same(kind: Any, value: float, text: str) -> None:
    """A value is written in the largest unit that divides it evenly."""
    assert text == format_quantity(kind, value)
    assert value == pytest.approx(parse_quantity(kind, text))
