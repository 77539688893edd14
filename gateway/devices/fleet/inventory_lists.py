"""
Inventory lists of MDMs: CSV exports of Jamf, Intune and Kandji, or any CSV table with columns of these names.

A list is read as a whole or rejected, because a machine that is missing from it is no longer expected.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gateway.devices.fleet.heartbeat_facts import LATEST_TIME
from spool.bounded_reading import SEPARATORS, column_index_by_field, table_rows
from spool.errors import Invalid
from spool.printable import replace_unprintable
from spool.registry.tables.inventory import Machine

SOURCES: Final = ("jamf", "intune", "kandji", "csv")
MAX_CELL: Final = 256

# column names in order of preference; tests/EVIDENCE.md lists the source of each format
_COLUMNS: Mapping[str, Sequence[str]] = {
    "serial": ("serial number", "serial"),
    "hostname": ("hostname", "host name", "computer name", "device name", "name"),
    "email": (
        "email address",
        "user email",
        "primary user email address",
        "primary user upn",
        "upn",
        "email",
    ),
    "user": ("username", "user name", "user", "assigned user"),
    "team": ("team", "department", "group", "category", "category name", "blueprint", "blueprint name"),
    "os": ("os", "platform", "operating system", "os version", "operating system version"),
    "last_seen": (
        "last check-in",
        "last check-in date",
        "last contact time",
        "last contact",
        "last sync date time",
        "last seen",
    ),
}
# beginnings of the names of systems that run on no laptop
_NO_LAPTOPS = ("ios", "ipad", "iphone", "android", "tvos", "apple tv", "visionos")
_JAMF_TIME: Final = "%Y-%m-%d at %I:%M %p"
_FRACTION = re.compile(r"(\.\d{6})\d+")  # Intune writes seven decimals of a second


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryList:
    """
    The machines of a list, without phones and tablets (`no_laptops`). A repeated machine (`repeated`) is
    listed once.
    """

    machines: tuple[Machine, ...]
    repeated: int
    no_laptops: int


def read_inventory_list(
    name: str, content: bytes, *, to_recorded_user: Callable[[str], str | None] = lambda user: user
) -> InventoryList:
    """
    Read a list of machines. Of a repeated machine, the newest check-in counts.

    Raises Invalid if any row cannot be read.
    """
    machines: dict[tuple[str, str], Machine] = {}
    repeated = no_laptops = 0
    try:
        for machine in _parse_machines(name, content, to_recorded_user):
            if machine is None:
                no_laptops += 1
                continue
            earlier = machines.get(machine.key)
            repeated += earlier is not None
            if earlier is None or (machine.last_seen or 0.0) >= (earlier.last_seen or 0.0):
                machines[machine.key] = machine
    except UnicodeDecodeError as error:
        raise Invalid(f"{name} is not text in UTF-8") from error
    except csv.Error as error:
        raise Invalid(f"{name} is not a CSV file: {error}") from error
    return InventoryList(machines=tuple(machines.values()), repeated=repeated, no_laptops=no_laptops)


def _parse_machines(
    name: str, content: bytes, to_recorded_user: Callable[[str], str | None]
) -> Iterator[Machine | None]:
    rows = table_rows(name, content, SEPARATORS)
    _, head = next(rows, (1, []))
    places = column_index_by_field(head, _COLUMNS)
    if places["serial"] is None and places["hostname"] is None:
        wanted = ", ".join((*_COLUMNS["serial"], *_COLUMNS["hostname"]))
        raise Invalid(f"{name} has no column of serial numbers or hostnames; name a column one of {wanted}")
    for line, row in rows:
        if not any(map(str.strip, row)):
            continue
        if len(row) != len(head):
            raise Invalid(
                f"{name}: line {line} has {len(row)} cells, but the first line has {len(head)}: the list is "
                "incomplete"
            )
        cells = {field: _printable_cell_text(row, place) for field, place in places.items()}
        if cells["os"].casefold().startswith(_NO_LAPTOPS):
            yield None
            continue
        if not cells["serial"] and not cells["hostname"]:
            raise Invalid(f"{name}: line {line} has neither a serial number nor a hostname")
        long = next((field for field, text in cells.items() if len(text) > MAX_CELL), None)
        if long is not None:
            raise Invalid(f"{name}: line {line}: {long} has more than {MAX_CELL} characters")
        try:
            last_seen = _parse_time_to_epoch(cells["last_seen"])
        except (ValueError, OverflowError) as error:
            raise Invalid(
                f"{name}: line {line}: the last check-in {replace_unprintable(cells['last_seen'])!r} is no time such "
                "as 2026-11-26 08:30:00"
            ) from error
        yield Machine(
            serial=cells["serial"],
            hostname=cells["hostname"],
            user=to_recorded_user(cells["email"] or cells["user"]) or "",
            team=cells["team"],
            os=cells["os"],
            last_seen=last_seen,
        )


def _printable_cell_text(row: Sequence[str], column_index: int | None) -> str:
    text = "" if column_index is None else row[column_index].strip()
    return text if text.isprintable() else replace_unprintable(text)


def _parse_time_to_epoch(text: str) -> float | None:
    """Return epoch seconds. Times without an offset are UTC. Raises ValueError or OverflowError."""
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) in (10, 13):
        text = datetime.fromtimestamp(int(text[:10]), UTC).isoformat()
    try:
        when = datetime.fromisoformat(_FRACTION.sub(r"\1", text))
    except ValueError:
        when = datetime.strptime(text, _JAMF_TIME).replace(tzinfo=UTC)
    seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < LATEST_TIME:
        raise ValueError("out of range")
    return seconds
