"""
Lists of seats as vendors give them, in a file or by a pull, and what they make of the seats of a plan.

A list that cannot be read as a whole, or is empty, is refused: seats that it lacks are ended, so half
of it would end the others.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import msgspec

from gateway.bills.plans.declared import AssistantPlan, PlanTable, Seat
from spool.bounded_reading import BoundedLines, check_json
from spool.errors import Invalid
from spool.people import People
from spool.registry.operators import Actor

PULLER: Final = Actor("seat pull", "")

# Columns of a file, of which the first that there is counts: letters and digits alone are compared, so "Created at",
# "created_at" and "createdAt" are one. docs/plans.md says which of them a vendor documents.
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
# Of who is invited a vendor charges.
_GONE = frozenset(
    {"removed", "deactivated", "deleted", "suspended", "disabled", "revoked", "expired", "unassigned"}
)
MAX_LIST = 8 * 1024 * 1024  # bytes of a list
MAX_ROWS = 100_000  # of a table, many more than a plan has seats
_NO_TIERS = frozenset({"unassigned", "noseat", "none", "nolicense"})
_MOST_MS = 10**14  # beyond the year 5000
_FREE_ROLES = frozenset({"freeowner", "unpaidadmin"})  # of Cursor: these have no seat
_SEPARATORS = (",", ";", "\t")  # of the cells of a table, as spreadsheets write them


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSeat:
    """
    A seat of a list. Days are such as 2026-11-20, "" where the list says nothing; `tells_until`: it
    does say when seats end, so "" is a seat that does not.
    """

    user: str
    since: str = ""
    until: str = ""
    team: str = ""
    tier: str = ""
    tells_until: bool = False
    cycle_start: str = ""  # the first day of the vendor's billing cycle
    rows: int = 1  # of the list that name this person


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatChanges:
    """The seats of a plan after a list was read, and who is new in it and who is gone, by name."""

    seats: tuple[Seat, ...]
    added: tuple[str, ...]
    ended: tuple[str, ...]
    repeats: str = ""  # rows of the list that name somebody again, in words


def read_bounded(file: BinaryIO, name: str) -> bytes:
    """Return the content of a list, or of a file of names. Invalid if it is larger than one may be."""
    content = file.read(MAX_LIST + 1)
    if len(content) > MAX_LIST:
        raise Invalid(f"{name} has more than {MAX_LIST // 1024**2} MiB")
    return content


def read_list(name: str, content: bytes) -> list[ListedSeat]:
    """Return the seats of a file: pages of an API as JSON, or a table as CSV. Invalid with what is wrong."""
    text = content.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip()[:1] in (b"{", b"["):
        check_json(name, text)
        try:
            root = msgspec.json.decode(text)
        except ValueError as error:
            raise Invalid(f"{name} is not JSON: {error}") from error
        pages = root if isinstance(root, list) else [root]
        return of_pages(name, pages)
    try:
        return list(_of_table(name, text))
    except UnicodeDecodeError as error:
        raise Invalid(f"{name} is not text in UTF-8") from error
    except csv.Error as error:
        raise Invalid(f"{name} is not a CSV file: {error}") from error


def of_pages(name: str, pages: Sequence[Any]) -> list[ListedSeat]:
    """Return the seats of all pages of a list. Invalid if a page or a seat cannot be read, or pages are missing."""
    found: list[ListedSeat] = []
    for page in pages:
        rows = None
        if isinstance(page, dict):
            field = next((each for each in _READERS if isinstance(page.get(each), list)), None)
            rows = None if field is None else page[field]
        if rows is None:
            raise Invalid(f"{name} is not a list of seats: it has none of {', '.join(_READERS)}")
        start = _cycle_start(page.get("subscriptionCycleStart"))
        for place, row in enumerate(rows, start=1):
            seats = _read_row(name, field or "", place, row)
            found += [replace(seat, cycle_start=start) for seat in seats]
    _check_pages(name, pages, len({seat.user.casefold() for seat in found}))
    return found


def _check_pages(name: str, pages: Sequence[Mapping[str, Any]], users: int) -> None:
    """Invalid if the pages themselves say that there are others."""
    seats = max(_numbers(pages, "total_seats"), default=0)
    if users < seats:
        raise Invalid(f"{name} has {users} of {seats} seats: give all of its pages")
    count = max(_numbers(pages, "totalPages"), default=0)
    if len(pages) < count:
        raise Invalid(f"{name} has {len(pages)} of {count} pages: give all of them")
    has_more = [bool(page.get("has_more") or page.get("nextPageToken")) for page in pages]
    if has_more and all(has_more):
        raise Invalid(f"{name} lacks its last page: give all of its pages")


def _cycle_start(value: Any) -> str:
    """Return the day (UTC) of Cursor's milliseconds; "" of anything else."""
    if not isinstance(value, int) or not 0 < value < _MOST_MS:
        return ""
    return datetime.fromtimestamp(value // 1000, UTC).date().isoformat()


def _numbers(pages: Sequence[Mapping[str, Any]], field: str) -> list[int]:
    values = [page.get(field) for page in pages]
    return [value for value in values if isinstance(value, int)]


def _read_row(name: str, field: str, place: int, row: Any) -> list[ListedSeat]:
    try:
        seat = _READERS[field](row)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Invalid(f"{name}: entry {place} of {field} is not a seat: {error!r}") from error
    if seat is not None and not seat.user:
        raise Invalid(f"{name}: entry {place} of {field} names nobody")
    return [] if seat is None else [seat]


def _of_github(row: Mapping[str, Any]) -> ListedSeat:
    team = row.get("assigning_team") or {}
    return ListedSeat(
        user=str(row["assignee"]["login"]),
        since=_day(row.get("created_at")),
        until=_day(row.get("pending_cancellation_date")),
        team=str(team.get("name") or team.get("slug") or ""),
        tier=str(row.get("plan_type") or ""),
        tells_until=True,
    )


def _of_cursor(row: Mapping[str, Any]) -> ListedSeat | None:
    role = _plain(str(row.get("role") or ""))
    if row.get("isRemoved") or role in _FREE_ROLES:
        return None
    return ListedSeat(user=str(row["email"]))


def _of_claude(row: Mapping[str, Any]) -> ListedSeat | None:
    """A member of an organization, or who is invited to it."""
    if row["type"] == "invite":
        is_open = row["status"] == "pending"
        return ListedSeat(user=str(row["email"]), since=_day(row.get("invited_at"))) if is_open else None
    if row["type"] != "user":
        raise ValueError(f"type {row['type']}")
    return ListedSeat(user=str(row["email"]), since=_day(row.get("added_at")))


def _of_code_assist(row: Mapping[str, Any]) -> ListedSeat:
    return ListedSeat(user=str(row["username"]), since=_day(row.get("assignTime")))


def _of_gemini(row: Mapping[str, Any]) -> ListedSeat | None:
    if row["licenseAssignmentState"] != "ASSIGNED":
        return None
    return ListedSeat(user=str(row["userPrincipal"]), since=_day(row.get("createTime")))


_READERS: Mapping[str, Callable[[Mapping[str, Any]], ListedSeat | None]] = {
    "seats": _of_github,
    "teamMembers": _of_cursor,
    "teamMemberSpend": _of_cursor,
    "licensedUsers": _of_code_assist,
    "userLicenses": _of_gemini,
    "data": _of_claude,
}


def _rows(name: str, content: bytes, *separators: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table with the number of the line. Invalid where there are more than MAX_ROWS."""
    lines = BoundedLines(name, io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline=""))
    first = next(lines, "")
    rows = csv.reader(chain([first], lines), strict=True, delimiter=max(separators, key=first.count))
    for count, row in enumerate(rows):
        lines.end_row()
        if count > MAX_ROWS:
            raise Invalid(f"{name} has more than {MAX_ROWS} rows")
        yield rows.line_num, row


def _of_table(name: str, content: bytes) -> Iterator[ListedSeat]:
    rows = _rows(name, content, *_SEPARATORS)
    _, head = next(rows, (1, []))
    columns = [_plain(cell) for cell in head]
    places = {
        what: next((columns.index(each) for each in map(_plain, names) if each in columns), None)
        for what, names in (
            ("user", _USER),
            ("since", _SINCE),
            ("until", _UNTIL),
            ("team", _TEAM),
            ("tier", _TIER),
            ("status", _STATUS),
            ("role", _ROLE),
        )
    }
    lines = [(line, row) for line, row in rows if any(row)]
    if places["user"] is None:
        places["user"] = _addresses([row for _, row in lines], len(columns))
    if places["user"] is None:
        raise Invalid(f"{name} has no column of users: one of {', '.join(_USER)}")
    for line, row in lines:
        cells = {what: _cell(row, place) for what, place in places.items()}
        if _has_no_seat(cells):
            continue
        if not cells["user"]:
            raise Invalid(f"{name}: line {line} names nobody")
        try:
            since, until = _day(cells["since"]), _day(cells["until"])
        except ValueError as error:
            raise Invalid(f"{name}: line {line} has a day that cannot be read: {error}") from error
        yield ListedSeat(
            user=cells["user"],
            since=since,
            until=until,
            team=cells["team"],
            tier=cells["tier"],
            tells_until=places["until"] is not None,
        )


def _addresses(rows: Sequence[Sequence[str]], columns: int) -> int | None:
    """Return the one column that has an address in each line; None if there is none, or several."""
    cells = [[_cell(row, place) for row in rows] for place in range(columns)]
    found = [place for place, column in enumerate(cells) if column and all(map(_is_address, column))]
    return found[0] if len(found) == 1 else None


def _is_address(cell: str) -> bool:
    name, _, domain = cell.partition("@")
    return bool(name) and "." in domain and " " not in cell


def _has_no_seat(cells: Mapping[str, str]) -> bool:
    if cells["status"].lower() in _GONE:
        return True
    return _plain(cells["tier"]) in _NO_TIERS or _plain(cells["role"]) in _FREE_ROLES


def _plain(column: str) -> str:
    return "".join(filter(str.isalnum, column.lower()))


def _cell(row: Sequence[str], place: int | None) -> str:
    return "" if place is None or place >= len(row) else row[place].strip()


def _day(value: Any) -> str:
    """Return the day (UTC) of a day or a time; "" of nothing. ValueError if it is neither."""
    if not value:
        return ""
    when = datetime.fromisoformat(str(value))
    return (when if when.tzinfo is None else when.astimezone(UTC)).date().isoformat()


def read_names(name: str, content: bytes) -> dict[str, str]:
    """
    Return what telemetry calls the people of a list, of a CSV file with a name of the list and a user
    in each line.
    """
    try:
        found = {}
        for place, (_, row) in enumerate(_rows(name, content, ","), start=1):
            if row and len(row) != 2:
                raise Invalid(f"{name}: line {place} must be a name of the list and a user")
            if row:
                found[row[0].strip().casefold()] = row[1].strip()
    except (UnicodeDecodeError, csv.Error) as error:
        raise Invalid(f"{name} is not a CSV file: {error}") from error
    return found


def chosen(
    listed: Iterable[ListedSeat], *, tier: str = "", names: Mapping[str, str] | None = None
) -> list[ListedSeat]:
    """
    Return the seats of a tier, "" for all, by the users of telemetry: each once, since the first day
    that is stated. Invalid if there are none.
    """
    by_user: dict[str, list[ListedSeat]] = defaultdict(list)
    wanted = _tier(tier)
    for seat in listed:
        if tier and _tier(seat.tier) != wanted:
            continue
        user = (names or {}).get(seat.user.casefold(), seat.user)
        by_user[user.casefold()].append(replace(seat, user=user))
    if not by_user:
        of = f" of the tier {tier}" if tier else ""
        raise Invalid(f"the list has no seat{of}: nothing is changed, because every seat would end")
    return [_once(seats) for seats in by_user.values()]


def _tier(name: str) -> str:
    """A tier by its letters and digits: "Premium seat" is "premium"."""
    return _plain(name).removesuffix("seats").removesuffix("seat")


def _once(seats: Sequence[ListedSeat]) -> ListedSeat:
    """A person who has a seat by several teams has one; it ends when the last of them does."""
    days = [seat.since for seat in seats if seat.since]
    ends = [seat.until for seat in seats]
    team = next((seat.team for seat in seats if seat.team), "")
    since, until = min(days, default=""), max(ends) if all(ends) else ""
    return replace(seats[0], since=since, until=until, team=team, rows=len(seats))


def repeats(listed: Iterable[ListedSeat]) -> str:
    """Return how many rows of a list name somebody again, for people; "" for none."""
    rows = sum(each.rows - 1 for each in listed)
    return f"{rows} rows of the list name somebody who is in it already, and count once" if rows else ""


def merged(
    seats: Sequence[Seat],
    listed: Sequence[ListedSeat],
    today: str,
    identity: Callable[[str], str] = str.casefold,
) -> SeatChanges:
    """
    Return the seats of a plan as a list of `today` has them: who is new has one since the day that the
    list states, else since today; who is not in it any more had one until today. Days that are over
    stay as they are. `identity` is the same for every form of a person's name.
    """
    own: dict[str, list[Seat]] = defaultdict(list)
    for seat in sorted(seats, key=lambda each: each.since):
        own[identity(seat.user)].append(seat)
    named = {identity(each.user): each for each in listed}
    added, ended, found = [], [], list[Seat]()
    for user, each in named.items():
        mine = own.pop(user, [])
        last = mine[-1] if mine and _is_running(mine[-1], today) else None
        if last is None:
            before = mine[-1].until if mine else ""
            last = Seat(user=each.user, since=max(each.since or today, before))
            added.append(each.user)
        else:
            mine = mine[:-1]
        found += [*mine, _told(last, each)]
    for mine in own.values():
        for seat in mine:
            if not _is_running(seat, today) or seat.since > today:
                found.append(seat)
                continue
            ended.append(seat.user)
            found += [replace(seat, until=today)] if seat.since < today else []
    return SeatChanges(seats=tuple(found), added=tuple(added), ended=tuple(ended), repeats=repeats(listed))


def _is_running(seat: Seat, today: str) -> bool:
    return not seat.until or seat.until > today


def _told(seat: Seat, listed: ListedSeat) -> Seat:
    until = listed.until if listed.tells_until else seat.until
    if until and until <= seat.since:
        until = ""
    return replace(seat, until=until, team=listed.team or seat.team)


class SeatPull(Protocol):
    """The settings of a pull that seats need."""

    @property
    def name(self) -> str: ...

    @property
    def plan(self) -> str: ...

    @property
    def tier(self) -> str: ...

    @property
    def names_file(self) -> Path | None: ...


async def keep_seats(plans: PlanTable, pull: SeatPull, pages: Sequence[Any], *, now: float) -> str:
    """
    Change the seats of a plan to those of a pulled list; return what changed, for people. Invalid or
    NotThere if the list or the plan cannot be used, and then nothing changes.
    """
    plan = plans.find_any(pull.plan)
    changes = await asyncio.to_thread(_pulled, pull, plan, pages, now, plans.people)
    if _in_order(changes.seats) == _in_order(plan.seats):
        return ""
    await plans.change(plan.id, {"seats": changes.seats}, version=plan.version, actor=PULLER)
    told = f"{len(changes.added)} seats are new, {len(changes.ended)} have ended"
    return f"{told}; {changes.repeats}" if changes.repeats else told


def _pulled(
    pull: SeatPull, plan: AssistantPlan, pages: Sequence[Any], now: float, people: People
) -> SeatChanges:
    today = datetime.fromtimestamp(now, UTC).date().isoformat()
    listed = of_pages(f"pull {pull.name}", pages)
    names = None
    if pull.names_file is not None:
        try:
            with pull.names_file.open("rb") as file:
                content = read_bounded(file, f"names_file {pull.names_file}")
        except OSError as error:
            raise Invalid(f"names_file {pull.names_file}: {error.strerror}") from error
        names = read_names(str(pull.names_file), content)
    seats = chosen(listed, tier=pull.tier, names=names)
    people.check(each.user for each in seats)
    return merged(plan.seats, seats, today, people.identity)


def _in_order(seats: Sequence[Any]) -> list[Any]:
    return sorted(seats, key=lambda seat: (seat.user.casefold(), seat.since))
