"""
How answers are written: amounts, tables, names that senders chose, and links to pages of the console that show what an
answer says, for the person who reads it. Whoever opens one signs in.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from gateway.mcp.tool import Asking
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.money.costs.question import CostQuestion
from gateway.service.mounts import page_link
from spool.ledger.queries import end_of_hour

MAX_TABLE_ROWS = 20
_MAX_CELL = 80
_NEAREST = 5
_LEAST = Decimal("0.0001")
UNKNOWN = "(unknown)"
# What Markdown reads as markup, also where a reader overlooks the sign before a bracket: at a word's edge
# alone for an underscore, and addresses, which some renderers
# link.
_MARKUP = re.compile(
    r"[\\`*\[\]|~$@]|!(?=\[)|(?<=\])\(|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE
)
_ENTITY = re.compile(r"&(?=#?\w+;)")

MAX_LINK = 2000  # characters: a question with many values has no link
_MOST_GROUPS = 2  # of the page Costs
_UNKNOWN = "unknown"  # how the console names the value of calls that have none


def clean(name: str) -> str:
    """A name without control, formatting and bidirectional characters: they could hide what it says."""
    return "".join(each for each in name if unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Zl", "Zp"))


def clean_text(text: str) -> str:
    """A text of several lines, each as `clean` leaves it."""
    return "\n".join(clean(line) for line in text.splitlines()).strip()


def cut(text: str, most: int) -> str:
    """A text of at most so many characters, cleaned; what is cut ends with an ellipsis."""
    text = clean(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shown(name: str | None) -> str | None:
    return None if name is None else clean(name)


def cell(text: str | None, most: int = _MAX_CELL) -> str:
    """A name as a cell of a table, which it cannot leave; it is text there, whatever it holds."""
    return UNKNOWN if text is None else as_text(cut(text, most))


def as_text(text: str) -> str:
    """
    A text that Markdown and HTML show as it is: no link, image, code, emphasis or tag comes of it.

    Underscores and dots within words stay: no renderer reads more into them, and names are full of them.
    """
    return _ENTITY.sub("&amp;", _MARKUP.sub(r"\\\g<0>", text)).replace("<", "&lt;").replace(">", "&gt;")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells are written as they are."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def money_text(amount: str | None) -> str:
    """Dollars with two decimals, with four below one dollar."""
    if amount is None:
        return "-"
    value = Decimal(amount)
    if 0 < value < _LEAST:
        return f"below {_LEAST}"
    return f"{value:.2f}" if abs(value) >= 1 or not value else f"{value:.4f}"


def amount_text(amount: str | None, unit: str) -> str:
    """An amount for a table: money rounded, counts with separators."""
    if amount is None:
        return "-"
    return money_text(amount) if unit.startswith(CURRENCY_UNIT) else f"{Decimal(amount):,f}"


def percent_of(part: int, whole: int) -> str | None:
    """With one decimal, rounded down; None of nothing."""
    return f"{Decimal(part * 1000 // whole) / 10:.1f}" if whole > 0 else None


def nearest(word: str, values: Iterable[str]) -> list[str]:
    """The values that a wrong word may mean, the likeliest first."""
    by_folded = {value.casefold(): value for value in values}
    folded = word.casefold()
    containing = [value for each, value in by_folded.items() if folded and folded in each]
    close = [by_folded[each] for each in get_close_matches(folded, by_folded, n=_NEAREST, cutoff=0.5)]
    return list(dict.fromkeys([*close, *containing]))[:_NEAREST]


def suggestion(word: str, values: Iterable[str]) -> str:
    """A question that names the nearest values; empty without any."""
    found = ", ".join(as_text(clean(value)) for value in nearest(word, values))
    return f"; did you mean {found}?" if found else ""


def page(asking: Asking[Any], path: str, parameters: Mapping[str, Sequence[str]] | None = None) -> str:
    """Empty where the address of the console is not known, or would be too long."""
    link = page_link(asking.shared.urls().shared, path, parameters)
    return link if len(link) <= MAX_LINK else ""


def opened_row(asking: Asking[Any], path: str, id: str) -> str:
    """One row of a page."""
    return page(asking, path, {"open": [id]})


def costs_page(
    asking: Asking[Any], posed: CostQuestion, by: Sequence[str], more: Mapping[str, str] | None = None
) -> str:
    """The page Costs with the same time, filters and view."""
    until = [] if posed.until >= end_of_hour(asking.shared.clock.now()) else [last_day(posed.until)]
    asked: dict[str, Sequence[str]] = {"from": [first_day(posed.since)], "to": until, "by": by[:_MOST_GROUPS]}
    asked |= {name: [value] for name, value in (more or {}).items() if value}
    asked |= {"view": [posed.view.id] if posed.view else []}
    asked |= {name: [each or _UNKNOWN for each in values] for name, values in posed.include.items()}
    asked |= {f"{name}!": [each or _UNKNOWN for each in values] for name, values in posed.exclude.items()}
    return page(asking, "/costs", asked)


def first_day(since: datetime) -> str:
    return since.astimezone(UTC).date().isoformat()


def last_day(until: datetime) -> str:
    """The last day of a span that ends before `until`."""
    return (until.astimezone(UTC) - timedelta(microseconds=1)).date().isoformat()
