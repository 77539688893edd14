"""Checks that the registry's tables share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import date
from decimal import Decimal, InvalidOperation
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from spool.errors import Invalid
from spool.ledger.dimensions import TAG

MAX_DIMENSION = 200  # characters of a dimension's name in an error message
MAX_AMOUNT = Decimal(10) ** 12


def check_text(field: str, text: str, max_characters: int) -> str:
    """Return the text without blanks around it. Raises Invalid if it is empty, too long or unprintable."""
    text = text.strip()
    if not text or len(text) > max_characters or not text.isprintable():
        raise Invalid(f"{field} must have 1 to {max_characters} printable characters")
    return text


def check_optional_text(field: str, text: str, max_characters: int) -> str:
    """Return the text without blanks around it. Raises Invalid if it is too long or unprintable."""
    text = text.strip()
    if len(text) > max_characters or not text.isprintable():
        raise Invalid(f"{field} must have at most {max_characters} printable characters")
    return text


def check_day(field: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{field} must be a day such as 2026-11-20") from None


def check_day_from_1970(field: str, text: str) -> date:
    """Return a day from 1970 to 2099, so that days before and after it exist. Raises Invalid."""
    day = check_day(field, text)
    if not date(1970, 1, 1) <= day < date(2100, 1, 1):
        raise Invalid(f"{field} must be a day from 1970 to 2099")
    return day


def check_amount(field: str, amount: str) -> str:
    """Return an amount, which may be negative, as decimal text without an exponent. Raises Invalid."""
    try:
        number = Decimal(amount) if len(amount) <= 64 else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) >= MAX_AMOUNT or (number and number.adjusted() < -27):
        raise Invalid(f"{field} must be a decimal number, such as 12.50")
    return f"{number:f}"


def check_unsigned_amount(field: str, amount: str) -> str:
    text = check_amount(field, amount)
    if text.startswith("-"):
        raise Invalid(f"{field} must not be negative")
    return text


def check_optional_unsigned_amount(field: str, amount: str) -> str:
    return check_unsigned_amount(field, amount) if amount else ""


def web_link_or_empty(link: str) -> str:
    """Return the link, or "" unless it is a web address with a host and without blanks."""
    try:
        parts = urlsplit(link)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return ""
    return link if is_web and link.isprintable() and " " not in link else ""


def check_one_of(field: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise Invalid(f"{field} must be {'one of ' * (len(allowed) > 1)}{', '.join(allowed)}")


def check_time_zone(field: str, name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        # the name is invalid, a directory of zones, or unknown
        raise Invalid(f"{field} must be the name of a time zone, such as Europe/Berlin") from None


def check_dimensions(names: Iterable[str], known_dimensions: Collection[str]) -> None:
    """Raise Invalid if a name is no known dimension. The message lists the known ones."""
    unknown = next((name for name in names if name not in known_dimensions), None)
    if unknown is not None:
        raise unknown_dimension_error(unknown, known_dimensions)


def unknown_dimension_error(name: str, known_names: Iterable[str]) -> Invalid:
    return Invalid(
        f"unknown dimension {name[:MAX_DIMENSION]!r}. Use one of: {known_dimensions_text(name, known_names)}"
    )


def known_dimensions_text(name: str, known_names: Iterable[str]) -> str:
    """
    Return a sentence with the known dimensions, for a message. For a tag, it says which setting makes the tag
    known.
    """
    tag = name.removeprefix(TAG)[:MAX_DIMENSION]
    return ", ".join(known_names) + (
        f', or add "{tag}" to [ledger] tags' if name.startswith(TAG) and tag else ""
    )


def storable_text(text: str) -> str:
    """Return the text with lone surrogates replaced, because they cannot be stored."""
    return text.encode("utf-8", "replace").decode()
