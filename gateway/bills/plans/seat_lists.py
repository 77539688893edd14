"""
Vendors' lists of seats, from a file or a pull, and the changes that they make to the seats of a plan.

An empty or incomplete list is rejected, because seats that are missing from a list are ended.
"""

from __future__ import annotations

import asyncio
import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import msgspec

from gateway.bills.plans.declared import AssistantPlan, PlanTable, Seat
from spool.bounded_reading import (
    SEPARATORS,
    check_json,
    column_index_by_field,
    comparable_column_name,
    table_rows,
)
from spool.errors import Invalid
from spool.people import People
from spool.registry.documents import replace_fields
from spool.registry.operators import Actor

PULLER: Final = Actor("seat pull", "")

# Column names in order of preference. Only letters and digits are compared, so "Created at", "created_at" and
# "createdAt" are equal. tests/EVIDENCE.md lists the source of each format.
_USER = (
    "user",
    "email",
    "email address",
    "user email",
    "member email",
    "account email",
    "user principal",
    "login",
    "username",
    "assignee",
)
_SINCE = (
    "since",
    "created at",
    "added",
    "added at",
    "date added",
    "joined",
    "joined at",
    "date joined",
    "assign time",
    "assigned at",
    "license assigned",
    "license assignment date",
    "created or invited date",
)
_UNTIL = ("until", "pending cancellation date", "ends", "end date")
_TEAM = ("team", "assigning team", "group", "department", "cost center")
_TIER = ("seat tier", "seat type", "tier", "plan type", "license type", "license", "plan")
_STATUS = ("status", "user status", "member status", "account status", "license assignment state")
_ROLE = ("role", "member role", "team role")
# Statuses of people without a seat. Invited people have a seat, because vendors charge for them.
_GONE = frozenset(
    {"removed", "deactivated", "deleted", "suspended", "disabled", "revoked", "expired", "unassigned"}
)
# maximum bytes of a seat list: GitHub's has 1.5 KB per seat, and a plan has at most 2,000 seats
MAX_LIST = 8 * 1024 * 1024
_NO_TIERS = frozenset({"unassigned", "noseat", "none", "nolicense"})
_MOST_MS = 10**14  # largest valid timestamp in milliseconds, in the year 5138
_FREE_ROLES = frozenset({"freeowner", "unpaidadmin"})  # roles at Cursor that have no seat


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSeat:
    """
    A seat in a vendor's list. Days are such as 2026-11-20, or "" if the list does not state them.

    `tells_until`: the list states end days, so an empty `until` means that the seat does not end.
    """

    user: str
    since: str = ""
    until: str = ""
    team: str = ""
    tier: str = ""
    tells_until: bool = False
    cycle_start: str = ""  # first day of the vendor's billing cycle of this seat
    rows: int = 1  # number of rows in the list that name this person


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatChanges:
    """The new seats of a plan, and the names of people who were added or whose seats ended."""

    seats: tuple[Seat, ...]
    added: tuple[str, ...]
    ended: tuple[str, ...]
    repeats: str = ""  # message about people whom the list names more than once, or ""


def read_bounded(file: BinaryIO, name: str) -> bytes:
    """Return a file's content. Raises Invalid if it is larger than MAX_LIST."""
    content = file.read(MAX_LIST + 1)
    if len(content) > MAX_LIST:
        raise Invalid(
            f"{name} has more than {MAX_LIST // 1024**2} MiB; divide the plan and its list, such as by team"
        )
    return content


def parse_seat_list(name: str, content: bytes) -> list[ListedSeat]:
    """Return the seats of a file: API pages as JSON, or a CSV table. Raises Invalid with the reason."""
    text = content.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip()[:1] in (b"{", b"["):
        check_json(name, text)
        try:
            root = msgspec.json.decode(text)
        except ValueError as error:
            raise Invalid(f"{name} is not JSON: {error}") from error
        pages = root if isinstance(root, list) else [root]
        return parse_seat_pages(name, pages)
    try:
        return list(_parse_table(name, text))
    except UnicodeDecodeError as error:
        raise Invalid(f"{name} is not text in UTF-8") from error
    except csv.Error as error:
        raise Invalid(f"{name} is not a CSV file: {error}") from error


def parse_seat_pages(name: str, pages: Sequence[Any]) -> list[ListedSeat]:
    """
    Return the seats of all pages of a list. Raises Invalid if a page or a seat cannot be read, or a
    page is missing.
    """
    all_seats: list[ListedSeat] = []
    for page in pages:
        rows = None
        if isinstance(page, dict):
            field = next(
                (field_name for field_name in _READERS if isinstance(page.get(field_name), list)), None
            )
            rows = None if field is None else page[field]
        if rows is None:
            raise Invalid(f"{name} is not a list of seats: it has no field {', '.join(_READERS)}")
        start = _cycle_start(page.get("subscriptionCycleStart"))
        for row_number, row in enumerate(rows, start=1):
            seats = _parse_seat_row(name, field or "", row_number, row)
            all_seats += [replace(seat, cycle_start=start) for seat in seats]
    _check_pages(name, pages, len({seat.user.casefold() for seat in all_seats}))
    return all_seats


def _check_pages(name: str, pages: Sequence[Mapping[str, Any]], users: int) -> None:
    """Raise Invalid if the pages state that more pages or seats exist."""
    seats = max(_integers_in_pages(pages, "total_seats"), default=0)
    if users < seats:
        raise Invalid(f"{name} has {users} of {seats} seats; give all pages of the list")
    count = max(_integers_in_pages(pages, "totalPages"), default=0)
    if len(pages) < count:
        raise Invalid(f"{name} has {len(pages)} of {count} pages; give all pages of the list")
    has_more = [bool(page.get("has_more") or page.get("nextPageToken")) for page in pages]
    if has_more and all(has_more):
        raise Invalid(f"{name} lacks its last page; give all pages of the list")


def _cycle_start(value: Any) -> str:
    if not isinstance(value, int) or not 0 < value < _MOST_MS:
        return ""
    return datetime.fromtimestamp(value // 1000, UTC).date().isoformat()


def _integers_in_pages(pages: Sequence[Mapping[str, Any]], field: str) -> list[int]:
    values = [page.get(field) for page in pages]
    return [value for value in values if isinstance(value, int)]


def _parse_seat_row(name: str, field: str, row_number: int, row: Any) -> list[ListedSeat]:
    try:
        seat = _READERS[field](row)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Invalid(f"{name}: entry {row_number} of {field} is not a seat: {error!r}") from error
    if seat is not None and not seat.user:
        raise Invalid(f"{name}: entry {row_number} of {field} has no user")
    return [] if seat is None else [seat]


def _parse_github_seat(row: Mapping[str, Any]) -> ListedSeat:
    team = row.get("assigning_team") or {}
    return ListedSeat(
        user=str(row["assignee"]["login"]),
        since=_parse_utc_day(row.get("created_at")),
        until=_parse_utc_day(row.get("pending_cancellation_date")),
        team=str(team.get("name") or team.get("slug") or ""),
        tier=str(row.get("plan_type") or ""),
        tells_until=True,
    )


def _parse_cursor_seat(row: Mapping[str, Any]) -> ListedSeat | None:
    role = comparable_column_name(str(row.get("role") or ""))
    if row.get("isRemoved") or role in _FREE_ROLES:
        return None
    return ListedSeat(user=str(row["email"]))


def _parse_claude_seat(row: Mapping[str, Any]) -> ListedSeat | None:
    if row["type"] == "invite":
        is_open = row["status"] == "pending"
        return (
            ListedSeat(user=str(row["email"]), since=_parse_utc_day(row.get("invited_at")))
            if is_open
            else None
        )
    if row["type"] != "user":
        raise ValueError(f"unknown type {row['type']}")
    return ListedSeat(user=str(row["email"]), since=_parse_utc_day(row.get("added_at")))


def _parse_code_assist_seat(row: Mapping[str, Any]) -> ListedSeat:
    return ListedSeat(user=str(row["username"]), since=_parse_utc_day(row.get("assignTime")))


def _parse_gemini_seat(row: Mapping[str, Any]) -> ListedSeat | None:
    if row["licenseAssignmentState"] != "ASSIGNED":
        return None
    return ListedSeat(user=str(row["userPrincipal"]), since=_parse_utc_day(row.get("createTime")))


_READERS: Mapping[str, Callable[[Mapping[str, Any]], ListedSeat | None]] = {
    "seats": _parse_github_seat,
    "teamMembers": _parse_cursor_seat,
    "teamMemberSpend": _parse_cursor_seat,
    "licensedUsers": _parse_code_assist_seat,
    "userLicenses": _parse_gemini_seat,
    "data": _parse_claude_seat,
}


def _parse_table(name: str, content: bytes) -> Iterator[ListedSeat]:
    rows = table_rows(name, content, SEPARATORS)
    _, head = next(rows, (1, []))
    places = column_index_by_field(
        head,
        {
            "user": _USER,
            "since": _SINCE,
            "until": _UNTIL,
            "team": _TEAM,
            "tier": _TIER,
            "status": _STATUS,
            "role": _ROLE,
        },
    )
    lines = [(line, row) for line, row in rows if any(row)]
    if places["user"] is None:
        places["user"] = _address_column([row for _, row in lines], len(head))
    if places["user"] is None:
        raise Invalid(f"{name} has no column of users; name a column one of {', '.join(_USER)}")
    for line, row in lines:
        cells = {field_name: _cell_text(row, column) for field_name, column in places.items()}
        if _has_no_seat(cells):
            continue
        if not cells["user"]:
            raise Invalid(f"{name}: line {line} has no user")
        try:
            since, until = _parse_utc_day(cells["since"]), _parse_utc_day(cells["until"])
        except ValueError as error:
            raise Invalid(f"{name}: line {line} has an invalid day: {error}") from error
        yield ListedSeat(
            user=cells["user"],
            since=since,
            until=until,
            team=cells["team"],
            tier=cells["tier"],
            tells_until=places["until"] is not None,
        )


def _address_column(rows: Sequence[Sequence[str]], columns: int) -> int | None:
    """Return the only column that has an address in every row, or None."""
    cells = [[_cell_text(row, column) for row in rows] for column in range(columns)]
    address_columns = [
        index for index, column in enumerate(cells) if column and all(map(_is_address, column))
    ]
    return address_columns[0] if len(address_columns) == 1 else None


def _is_address(cell: str) -> bool:
    name, _, domain = cell.partition("@")
    return bool(name) and "." in domain and " " not in cell


def _has_no_seat(cells: Mapping[str, str]) -> bool:
    if cells["status"].lower() in _GONE:
        return True
    return (
        comparable_column_name(cells["tier"]) in _NO_TIERS
        or comparable_column_name(cells["role"]) in _FREE_ROLES
    )


def _cell_text(row: Sequence[str], column: int | None) -> str:
    return "" if column is None or column >= len(row) else row[column].strip()


def _parse_utc_day(value: Any) -> str:
    """Parse a date or a timestamp into its UTC day. Return "" if the value is empty. Raises ValueError."""
    if not value:
        return ""
    when = datetime.fromisoformat(str(value))
    return (when if when.tzinfo is None else when.astimezone(UTC)).date().isoformat()


def parse_user_names(name: str, content: bytes) -> dict[str, str]:
    """
    Return user names in telemetry by the lowercase names in a seat list. Each line of the CSV file has one
    such pair.
    """
    try:
        user_names = {}
        for line_number, (_, row) in enumerate(table_rows(name, content, ","), start=1):
            if row and len(row) != 2:
                raise Invalid(
                    f"{name}: line {line_number} must have two cells: the name in the list, and the user name "
                    "in telemetry"
                )
            if row:
                user_names[row[0].strip().casefold()] = row[1].strip()
    except (UnicodeDecodeError, csv.Error) as error:
        raise Invalid(f"{name} is not a CSV file: {error}") from error
    return user_names


def seats_of_tier(
    listed: Iterable[ListedSeat],
    *,
    tier: str = "",
    telemetry_user_by_listed_user: Mapping[str, str] | None = None,
) -> list[ListedSeat]:
    """
    Return the seats of a tier, or of all tiers if it is "", with telemetry user names. Each person appears
    once, with the earliest stated day. Raises Invalid if no seat is left.
    """
    by_user: dict[str, list[ListedSeat]] = defaultdict(list)
    wanted_tier = _normalize_tier(tier)
    for seat in listed:
        if tier and _normalize_tier(seat.tier) != wanted_tier:
            continue
        user = (telemetry_user_by_listed_user or {}).get(seat.user.casefold(), seat.user)
        by_user[user.casefold()].append(replace(seat, user=user))
    if not by_user:
        tier_text = f" of the tier {tier}" if tier else ""
        raise Invalid(f"the list has no seats{tier_text}; nothing was changed, because all seats would end")
    return [_merge_seats_of_person(seats) for seats in by_user.values()]


def _normalize_tier(name: str) -> str:
    return comparable_column_name(name).removesuffix("seats").removesuffix("seat")


def _merge_seats_of_person(seats: Sequence[ListedSeat]) -> ListedSeat:
    """Merge the seats that one person has through several teams. The result ends with the last of them."""
    days = [seat.since for seat in seats if seat.since]
    ends = [seat.until for seat in seats]
    team = next((seat.team for seat in seats if seat.team), "")
    since, until = min(days, default=""), max(ends) if all(ends) else ""
    return replace(seats[0], since=since, until=until, team=team, rows=len(seats))


def repeated_people_message(listed: Iterable[ListedSeat]) -> str:
    rows = sum(seat.rows - 1 for seat in listed)
    return f"{rows} rows of the list repeat a person; each person counts once" if rows else ""


def merge_seat_list(
    seats: Sequence[Seat],
    listed_seats: Sequence[ListedSeat],
    today: str,
    normalize_user_name: Callable[[str], str] = str.casefold,
) -> SeatChanges:
    """
    Update the seats of a plan from a vendor's list of the day `today`.

    New people get a seat from the day that the list states, or from today. Seats of people who are no longer
    listed end today. Past seats stay unchanged. `normalize_user_name` maps all forms of a name to one value.
    """
    seats_by_user: dict[str, list[Seat]] = defaultdict(list)
    for seat in sorted(seats, key=lambda item: item.since):
        seats_by_user[normalize_user_name(seat.user)].append(seat)
    named = {normalize_user_name(listed_seat.user): listed_seat for listed_seat in listed_seats}
    added, ended, new_seats = [], [], list[Seat]()
    for user, listed_seat in named.items():
        own_seats = seats_by_user.pop(user, [])
        last = own_seats[-1] if own_seats and _is_held_after_today(own_seats[-1], today) else None
        if last is None:
            before = own_seats[-1].until if own_seats else ""
            last = Seat(user=listed_seat.user, since=max(listed_seat.since or today, before))
            added.append(listed_seat.user)
        else:
            own_seats = own_seats[:-1]
        new_seats += [*own_seats, _updated_seat(last, listed_seat)]
    for own_seats in seats_by_user.values():
        for seat in own_seats:
            if not _is_held_after_today(seat, today) or seat.since > today:
                new_seats.append(seat)
                continue
            ended.append(seat.user)
            new_seats += [replace_fields(seat, until=today)] if seat.since < today else []
    return SeatChanges(
        seats=tuple(new_seats),
        added=tuple(added),
        ended=tuple(ended),
        repeats=repeated_people_message(listed_seats),
    )


def _is_held_after_today(seat: Seat, today: str) -> bool:
    return not seat.until or seat.until > today


def _updated_seat(seat: Seat, listed: ListedSeat) -> Seat:
    until = listed.until if listed.tells_until else seat.until
    if until and until <= seat.since:
        until = ""
    return replace_fields(seat, until=until, team=listed.team or seat.team)


class SeatPull(Protocol):
    """The settings of a configured pull of a seat list."""

    @property
    def name(self) -> str: ...

    @property
    def plan(self) -> str: ...

    @property
    def tier(self) -> str: ...

    @property
    def names_file(self) -> Path | None: ...


async def update_plan_seats(
    plans: PlanTable, seat_pull: SeatPull, pages: Sequence[Any], *, now: float
) -> str:
    """
    Update the seats of a plan from a pulled list; return a message about the changes, or "".

    Raises Invalid or NotThere if the list or the plan cannot be used. Then nothing is changed.
    """
    plan = plans.require_by_id_or_name(seat_pull.plan)
    changes = await asyncio.to_thread(_merge_pulled_pages, seat_pull, plan, pages, now, plans.people)
    if _sort_seats(changes.seats) == _sort_seats(plan.seats):
        return ""
    await plans.change(plan.id, {"seats": changes.seats}, version=plan.version, actor=PULLER)
    message = f"{len(changes.added)} seats added, {len(changes.ended)} ended"
    return f"{message}; {changes.repeats}" if changes.repeats else message


def _merge_pulled_pages(
    seat_pull: SeatPull, plan: AssistantPlan, pages: Sequence[Any], now: float, people: People
) -> SeatChanges:
    today = datetime.fromtimestamp(now, UTC).date().isoformat()
    listed = parse_seat_pages(f"pull {seat_pull.name}", pages)
    names = None
    if seat_pull.names_file is not None:
        try:
            with seat_pull.names_file.open("rb") as file:
                content = read_bounded(file, f"names_file {seat_pull.names_file}")
        except OSError as error:
            raise Invalid(f"names_file {seat_pull.names_file}: {error.strerror}") from error
        names = parse_user_names(str(seat_pull.names_file), content)
    seats = seats_of_tier(listed, tier=seat_pull.tier, telemetry_user_by_listed_user=names)
    people.reject_dropped_names(seat.user for seat in seats)
    return merge_seat_list(plan.seats, seats, today, people.person_identity)


def _sort_seats(seats: Sequence[Any]) -> list[Any]:
    return sorted(seats, key=lambda seat: (seat.user.casefold(), seat.since))
