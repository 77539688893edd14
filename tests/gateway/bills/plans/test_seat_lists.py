"""Seat lists of vendors: how they are read, and how they change the seats of a plan."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.bills.plans.declared import Seat
from gateway.bills.plans.seat_lists import (
    ListedSeat,
    merge_seat_list,
    parse_seat_list,
    parse_seat_pages,
    parse_user_names,
    seats_of_tier,
)
from spool.errors import Invalid
from spool.people import People

TODAY = "2026-11-20"


def github(login: str, **fields: Any) -> dict[str, Any]:
    """Create a seat as in /orgs/ORG/copilot/billing/seats."""
    return {
        "created_at": "2026-08-03T23:30:00-06:00",
        "updated_at": "2026-11-01T00:00:00Z",
        "pending_cancellation_date": None,
        "last_activity_at": "2026-11-19T21:00:00Z",
        "plan_type": "business",
        "assignee": {"login": login, "id": 1, "type": "User"},
        "assigning_team": {"name": "Search", "slug": "search"},
        **fields,
    }


def page(*seats: dict[str, Any], total: int | None = None) -> dict[str, Any]:
    return {"total_seats": len(seats) if total is None else total, "seats": list(seats)}


def test_seats_of_github() -> None:
    """
    Days are in UTC. If two teams give a user a seat, the user has one seat, which ends when both teams' seats end.
    """
    leaving = "2026-12-01"
    pages = [
        page(github("ann"), github("bob", pending_cancellation_date=leaving), total=3),
        page(
            github("Ann", created_at="2026-07-01T00:00:00Z", pending_cancellation_date=leaving),
            github("cid", plan_type="enterprise", assigning_team=None),
            total=3,
        ),
    ]
    seats = seats_of_tier(parse_seat_list("seats.json", json.dumps(pages).encode()))
    assert [
        ("ann", "2026-07-01", "", "Search", "business"),
        ("bob", "2026-08-04", "2026-12-01", "Search", "business"),
        ("cid", "2026-08-04", "", "", "enterprise"),
    ] == [(seat.user, seat.since, seat.until, seat.team, seat.tier) for seat in seats]
    for tier in ("Enterprise", "enterprise seats"):
        [enterprise] = seats_of_tier(parse_seat_pages("seats", pages), tier=tier)
        assert "cid" == enterprise.user


def test_members_of_cursor() -> None:
    """
    Removed users of Cursor, and owners without a seat, are not in the seat list. The pages about spend list the
    same people.
    """
    members = [
        {"name": "Ann", "email": "ann@example.com", "role": "owner", "isRemoved": False},
        {"name": "Bob", "email": "bob@example.com", "role": "member", "isRemoved": True},
        {"name": "Cid", "email": "cid@example.com", "role": "free-owner"},
        {"name": "Dan", "email": "dan@example.com", "role": "Unpaid Admin"},
    ]
    spend = [{"email": "ann@example.com", "role": "owner", "spendCents": 2450}]
    for root in ({"teamMembers": members}, {"teamMemberSpend": spend, "totalPages": 1}):
        found = parse_seat_list("members.json", json.dumps(root).encode())
        assert ["ann@example.com"] == [member.user for member in found]
    for began, day in ((1708992000000, "2024-02-27"), (0, ""), (10**20, ""), ("soon", "")):
        page = {"teamMemberSpend": spend, "subscriptionCycleStart": began}
        [one] = parse_seat_list("spend.json", json.dumps(page).encode())
        assert day == one.cycle_start


def test_members_in_a_table() -> None:
    """Columns are found by name. An invited user has a seat, because the vendor charges for it."""
    table = (
        "\ufeffName,Email,Role,Seat Tier,Status\n"
        'Ann,ann@example.com,Owner,Premium,Active\n"Bob, B.",bob@example.com,User,Standard,Pending\n\n'
        "Cid,cid@example.com,User,Standard,Removed\n"
    )
    members = parse_seat_list("members.csv", table.encode())
    assert [("ann@example.com", "Premium"), ("bob@example.com", "Standard")] == [
        (member.user, member.tier) for member in members
    ]
    own = parse_seat_list("own.csv", b"user,since,until,team\nann,2026-11-01,2026-12-01,search\n")
    assert [
        ListedSeat(user="ann", since="2026-11-01", until="2026-12-01", team="search", tells_until=True)
    ] == own


def test_members_of_claude() -> None:
    """
    Members of a Claude organization are read from pages of /v1/organizations/users, together with invited
    users. The last page says that it is the last.
    """
    user = {
        "id": "user_1",
        "type": "user",
        "name": "Ann",
        "role": "user",
        "added_at": "2026-10-30T23:58:27.427722Z",
    }
    invite = {"id": "invite_1", "type": "invite", "role": "user", "invited_at": "2026-11-02T08:00:00Z"}
    pages = [
        {"data": [{**user, "email": "ann@example.com"}], "has_more": True, "last_id": "user_1"},
        {
            "data": [
                {**invite, "email": "bob@example.com", "status": "pending"},
                {**invite, "email": "cid@example.com", "status": "expired"},
            ],
            "has_more": False,
        },
    ]
    members = parse_seat_list("members.json", json.dumps(pages).encode())
    assert [("ann@example.com", "2026-10-30"), ("bob@example.com", "2026-11-02")] == [
        (member.user, member.since) for member in members
    ]


def test_licenses_of_google() -> None:
    """Two formats are read: licenses of Gemini Code Assist, and assigned licenses of Gemini Enterprise."""
    used = {"assignTime": "2026-09-01T07:00:00Z", "recentUsageTime": "2026-11-19T00:00:00Z"}
    pages = [{"licensedUsers": [{"username": "ann@example.com", **used}], "nextPageToken": "t"},
             {"licensedUsers": [{"username": "bob@example.com"}]}]  # fmt: skip
    licenses = parse_seat_list("licenses.json", json.dumps(pages).encode())
    assert [("ann@example.com", "2026-09-01"), ("bob@example.com", "")] == [
        (seat.user, seat.since) for seat in licenses
    ]
    states = {"cid@example.com": "ASSIGNED", "dan@example.com": "UNASSIGNED", "eve@example.com": "NO_LICENSE"}
    rows = [{"userPrincipal": user, "licenseAssignmentState": state} for user, state in states.items()]
    [one] = parse_seat_list("licenses.json", json.dumps({"userLicenses": rows}).encode())
    assert "cid@example.com" == one.user


@pytest.mark.parametrize(
    ("head", "row", "seat"),
    [
        ("report_time,login,last_authenticated_at,last_activity_at,last_surface_used",
         "2026-11-20T00:00:00Z,ann,2026-11-19T09:00:00Z,2026-11-19T21:00:00Z,vscode", ListedSeat(user="ann")),
        ("period_start,period_end,account_id,public_id,name,email,role,user_role,department,groups,user_status,"
         "created_or_invited_date,is_active,messages",
         "2026-10-01,2026-10-31,a1,p1,Ann,ann@example.com,,standard-user,Search,,enabled,2026-03-01,1,25",
         ListedSeat(user="ann@example.com", since="2026-03-01", team="Search")),
        ("User Email,Seat-Type,Date Added,Cost Center", "ann@example.com,Premium,2026-03-01,Search",
         ListedSeat(user="ann@example.com", since="2026-03-01", team="Search", tier="Premium")),
        ("memberEmail,assignTime,License Type", "ann@example.com,2026-03-01T10:00:00Z,Enterprise",
         ListedSeat(user="ann@example.com", since="2026-03-01", tier="Enterprise")),
        ("Name,Email,Role,Status,Seat Tier", "Ann,ann@example.com,User,Active,Premium seat",
         ListedSeat(user="ann@example.com", tier="Premium seat")),
        ("email,role,seat type", "ann@example.com,member,Codex", ListedSeat(user="ann@example.com", tier="Codex")),
        ("Contact;Function;Team", "ann@example.com;lead;Search", ListedSeat(user="ann@example.com", team="Search")),
        ("Contact\tTeam", "ann@example.com\tSearch", ListedSeat(user="ann@example.com", team="Search")),
    ],
    ids=[
        "copilot activity report", "chatgpt user report", "words apart", "one word", "claude members",
        "chatgpt members", "semicolons, addresses", "tabs, addresses",
    ],
)  # fmt: skip
def test_columns_are_found_by_their_letters(head: str, row: str, seat: ListedSeat) -> None:
    """The column names of a seat list match by their letters, however a vendor writes them."""
    assert [seat] == parse_seat_list("list.csv", f"{head}\n{row}\n".encode())


@pytest.mark.parametrize(
    "row",
    ["ann@example.com,Unassigned,member", "ann@example.com,No seat,member", "ann@example.com,,Unpaid admin"],
)
def test_who_has_no_seat_in_a_table(row: str) -> None:
    table = f"email,seat tier,role\n{row}\nbob@example.com,Standard,member\n"
    assert ["bob@example.com"] == [seat.user for seat in parse_seat_list("list.csv", table.encode())]


@pytest.mark.parametrize("status", ["Removed", "disabled", "Expired", "UNASSIGNED"])
def test_removed_person_has_no_seat(status: str) -> None:
    table = f"email,user_status\nann@example.com,{status}\nbob@example.com,pending\n"
    assert ["bob@example.com"] == [seat.user for seat in parse_seat_list("list.csv", table.encode())]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"seats": [{"created_at": "2026-08-03"}]}', "entry 1 of seats is not a seat"),
        (b'{"seats": [7]}', "entry 1 of seats is not a seat"),
        (b'{"teamMembers": [{"email": ""}]}', "entry 1 of teamMembers has no user"),
        (json.dumps(page(github("ann"), total=2)).encode(), "has 1 of 2 seats; give all pages of the list"),
        (b'{"rows": []}', "is not a list of seats"),
        (
            b'{"data": [{"object": "organization.user", "email": "a@example.com"}]}',
            "entry 1 of data is not a seat",
        ),
        (b'{"data": [{"type": "api_key", "email": "a@example.com"}]}', "entry 1 of data is not a seat"),
        (b'{"data": [{"type": "user", "email": "a@example.com"}], "has_more": true}', "lacks its last page"),
        (b'{"licensedUsers": [{"username": "a@example.com"}], "nextPageToken": "x"}', "lacks its last page"),
        (b'{"teamMemberSpend": [{"email": "a@example.com"}], "totalPages": 2}', "has 1 of 2 pages"),
        (b"[1]", "is not a list of seats"),
        (b"{", "is not JSON"),
        (b"", "has no column of users"),
        (b"name,role\nann,owner\n", "has no column of users"),
        (b"contact,boss\na@example.com,b@example.com\n", "has no column of users"),
        (b"user,since\nann,yesterday\n", "line 2 has an invalid day"),
        (b"user,since\n,2026-01-01\n", "line 2 has no user"),
        (b"user\n\xff\n", "is not text in UTF-8"),
        (b'user\n"ann\n', "is not a CSV file"),
        (json.dumps(page(github("ann", created_at="soon"))).encode(), "entry 1 of seats is not a seat"),
    ],
)
def test_a_list_that_is_not_whole_is_refused(content: bytes, words: str) -> None:
    """An incomplete list is refused, because it would end the missing seats. The error says what is wrong."""
    with pytest.raises(Invalid, match=words):
        parse_seat_list("list", content)


def test_an_empty_list_ends_no_seat() -> None:
    for listed, tier in (([], ""), ([ListedSeat(user="ann", tier="business")], "enterprise")):
        with pytest.raises(Invalid, match="nothing was changed"):
            seats_of_tier(listed, tier=tier)


def test_a_list_changes_what_is_running() -> None:
    """
    A new list does not change past days. A returning user gets a new seat, and a seat that starts later stays.
    """
    seats = [
        Seat(user="stays", since="2026-01-01", team="search"),
        Seat(user="goes", since="2026-02-01"),
        Seat(user="came and goes", since=TODAY),
        Seat(user="went", since="2026-01-01", until="2026-03-01"),
        Seat(user="back", since="2026-01-01", until="2026-06-01"),
        Seat(user="later", since="2026-12-01"),
        Seat(user="kept", since="2026-01-01", until="2026-12-01"),
        Seat(user="again", since="2026-01-01", until="2026-12-01"),
    ]
    listed = [
        ListedSeat(user="STAYS"),
        ListedSeat(user="kept"),
        ListedSeat(user="new", since="2026-11-03", team="checkout"),
        ListedSeat(user="today"),
        ListedSeat(user="back", since="2026-02-02"),
        ListedSeat(user="again", tells_until=True),
    ]
    changes = merge_seat_list(seats, listed, TODAY)
    assert changes.added == ("new", "today", "back")
    assert changes.ended == ("goes", "came and goes")
    assert {
        ("stays", "2026-01-01", "", "search"),
        ("goes", "2026-02-01", TODAY, ""),
        ("went", "2026-01-01", "2026-03-01", ""),
        ("back", "2026-01-01", "2026-06-01", ""),
        ("back", "2026-06-01", "", ""),
        ("later", "2026-12-01", "", ""),
        ("kept", "2026-01-01", "2026-12-01", ""),
        ("again", "2026-01-01", "", ""),
        ("new", "2026-11-03", "", "checkout"),
        ("today", TODAY, "", ""),
    } == {(seat.user, seat.since, seat.until, seat.team) for seat in changes.seats}
    again = merge_seat_list(changes.seats, listed, "2026-11-21")
    assert set(changes.seats) == set(again.seats)
    assert again.added == ()
    assert again.ended == ()


def test_names_of_a_list_are_those_of_telemetry() -> None:
    names = parse_user_names("names.csv", b"ann-gh,ann@example.com\n\nBob, bob@example.com\n")
    listed = [ListedSeat(user="Ann-GH"), ListedSeat(user="bob"), ListedSeat(user="cid")]
    seats = seats_of_tier(listed, telemetry_user_by_listed_user=names)
    assert ["ann@example.com", "bob@example.com", "cid"] == [seat.user for seat in seats]
    with pytest.raises(Invalid, match="line 1 must have two cells"):
        parse_user_names("names.csv", b"ann\n")


def test_a_list_of_addresses_keeps_the_seats_of_hashes() -> None:
    """A seat assigned by the hash of an address equals the seat of that address in the list."""
    people = People.for_installation(b"s" * 32)
    hashed = people.hash_address("ann@example.com")
    listed = [ListedSeat(user="Ann@Example.com")]
    seats = [Seat(user=hashed, since="2026-01-01")]
    changes = merge_seat_list(seats, listed, "2026-11-20", people.person_identity)
    assert changes.added == ()
    assert changes.ended == ()
    assert tuple(seats) == changes.seats


def test_rows_that_name_somebody_again_are_counted_in_words() -> None:
    """A person in two teams has one seat, and a note says so."""
    listed = [ListedSeat(user=user) for user in ("ann", "Ann", "bob")]
    changes = merge_seat_list((), seats_of_tier(listed), "2026-11-20")
    assert "1 rows of the list repeat a person; each person counts once" == changes.repeats
    assert "" == merge_seat_list((), seats_of_tier(listed[1:]), "2026-11-20").repeats
