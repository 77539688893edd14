"""Rules that the texts and words of the registry's tables share."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from spool.errors import Invalid

MAX_DIMENSION = 200  # characters of one that a message repeats


def check_text(field: str, text: str, most: int) -> str:
    """The text without blanks around it; Invalid unless 1 to `most` printable characters remain."""
    text = text.strip()
    if not text or len(text) > most or not text.isprintable():
        raise Invalid(f"{field} has 1 to {most} printable characters")
    return text


def optional_text(field: str, text: str, most: int) -> str:
    """The text without blanks around it, which may be empty; Invalid above `most` printable characters."""
    text = text.strip()
    if len(text) > most or not text.isprintable():
        raise Invalid(f"{field} has at most {most} printable characters")
    return text


def check_one_of(field: str, word: str, allowed: Collection[str]) -> None:
    if word not in allowed:
        raise Invalid(f"{field} must be {'one of ' * (len(allowed) > 1)}{', '.join(allowed)}")


def check_dimensions(names: Iterable[str], known: Collection[str]) -> None:
    """Invalid for a dimension that the ledger does not have; the message names those that it has."""
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise Invalid(f"unknown dimension {unknown[:MAX_DIMENSION]!r}. Use one of: {', '.join(known)}")


def storable(text: str) -> str:
    """The text without lone surrogates, which cannot be stored as text."""
    return text.encode("utf-8", "replace").decode()
