"""Parser of days and times in parameters, and format of epoch seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from gateway.core.errors import Refusal


def parse_moment(name: str, text: str, *, zone: tzinfo = UTC, end: bool = False) -> datetime:
    """
    Parse a time. A text without a zone is in `zone`. With `end`, a day is included completely.

    Raises Refusal 400 for any other text.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise Refusal(
            400, "invalid_parameter", f"{name} must be a day such as 2026-11-01, or an RFC 3339 time"
        ) from None
    if not 2000 <= when.year < 2200:
        raise _invalid_parameter(f"{name} must be between the years 2000 and 2200")
    if end and len(text) <= len("2026-11-01"):
        when += timedelta(days=1)
    return when if when.tzinfo else when.replace(tzinfo=zone)


def format_seconds(moment: float) -> str:
    """Return a time in the form in which the cost service writes the times of an insight."""
    return f"{moment:.3f}".rstrip("0").rstrip(".")


def _invalid_parameter(message: str) -> Refusal:
    return Refusal(400, "invalid_parameter", message)
