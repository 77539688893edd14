"""Seat lists are pulled from fake vendors page by page, and become the seats of a plan."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.bills.plans.declared import NewPlan, PlanTable
from gateway.bills.plans.seat_lists import PULLER
from gateway.bills.statements.puller import DONE, FAILED, PullState
from gateway.bills.statements.seat_pulls import GITHUB_ROWS, SEAT_REQUESTS
from gateway.configuration.problems import config_problems
from gateway.configuration.sections import SEAT_SOURCES, Config, ReconciliationSettings, StatementPullSettings
from gateway.operations.list import declared_tables
from gateway.service.assembly.statements import build_statement_puller
from spool.engines import MEMORY, open_storage
from spool.registry.registry import Registry
from spool.registry.views import NewView
from spool.settings import SpoolSettings
from spool.storage import StorageOptions
from tests.gateway.bills.plans.test_seat_lists import github
from tests.integration.statements.providers import ACCOUNT, KEY
from tests.moved_clock import MovedClock

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC).timestamp()
STORE = "projects/acme/locations/global/userStores/default_user_store"
ORDER = "billingAccounts/0A-1B/orders/7"
ACCOUNTS = {"gemini_licenses": STORE, "code_assist_licenses": ORDER}
JOINED = "2026-08-04T05:00:00Z"
# these sources state the date from which a person has a seat
TELLING = tuple(set(SEAT_SOURCES) - {"cursor_members"})


class Vendor:
    """A vendor with a seat list, which answers in the published formats."""

    def __init__(self) -> None:
        self.logins: list[str] = []
        self.asked: list[str] = []
        self.fault: Any = None

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get(f"/orgs/{ACCOUNT}/copilot/billing/seats", self._github)
        application.router.add_get("/teams/members", self._cursor)
        application.router.add_get("/v1/organizations/users", self._claude)
        application.router.add_get("/v1/organizations/invites", self._claude)
        application.router.add_get(f"/v1/{STORE}/userLicenses", self._google)
        application.router.add_get(f"/v1/{ORDER}/licensePool:enumerateLicensedUsers", self._google)
        return application

    async def _github(self, request: web.Request) -> web.Response:
        assert f"Bearer {KEY}" == request.headers["Authorization"]
        page, rows = int(request.query["page"]), int(request.query["per_page"])
        self.asked.append(f"page {page}")
        if self.fault is not None:
            return web.json_response(self.fault)
        some = self.logins[(page - 1) * rows : page * rows]
        return web.json_response(
            {"total_seats": len(self.logins), "seats": [github(login) for login in some]}
        )

    async def _cursor(self, request: web.Request) -> web.Response:
        assert f"Basic {b64encode(f'{KEY}:'.encode()).decode()}" == request.headers["Authorization"]
        assert not request.query
        self.asked.append("members")
        members = [{"email": f"{login}@example.com", "role": "member"} for login in self.logins]
        return web.json_response({"teamMembers": members})

    async def _claude(self, request: web.Request) -> web.Response:
        """Return people in two pages, and the last person as an invitation."""
        assert request.headers["x-api-key"] == KEY
        assert request.headers["anthropic-version"] == "2023-06-01"
        assert request.query["limit"] == "1000"
        after = request.query.get("after_id", "")
        self.asked.append(f"{request.path.rpartition('/')[2]} {after}".strip())
        if self.fault is not None:
            return web.json_response(self.fault)
        people, invited = self.logins[:-1], self.logins[-1:]
        if request.path.endswith("invites"):
            rows = [
                {
                    "type": "invite",
                    "id": login,
                    "email": f"{login}@example.com",
                    "invited_at": JOINED,
                    "status": state,
                }
                for login in invited
                for state in ("pending", "expired")
            ]
            return web.json_response({"data": rows, "has_more": False})
        half = (len(people) + 1) // 2
        some = people[half:] if after else people[:half]
        rows = [
            {"type": "user", "id": login, "email": f"{login}@example.com", "added_at": JOINED}
            for login in some
        ]
        more = not after and bool(people)
        return web.json_response({"data": rows, "has_more": more, "last_id": some[-1] if some else None})

    async def _google(self, request: web.Request) -> web.Response:
        """Return pages of 40 whatever size was requested, and leave out empty lists."""
        assert f"Bearer {KEY}" == request.headers["Authorization"]
        assert request.query["pageSize"] in ("50", "200")
        at = int(request.query.get("pageToken", 0))
        self.asked.append(f"from {at}")
        if self.fault is not None:
            return web.json_response(self.fault)
        users = [f"{login}@example.com" for login in self.logins[at : at + 40]]
        page: dict[str, Any] = {}
        if users and "userLicenses" in request.path:
            assigned = {"licenseAssignmentState": "ASSIGNED", "createTime": JOINED}
            page["userLicenses"] = [{"userPrincipal": user, **assigned} for user in users]
        elif users:
            page["licensedUsers"] = [{"username": user, "assignTime": JOINED} for user in users]
        if at + 40 < len(self.logins):
            page["nextPageToken"] = str(at + 40)
        return web.json_response(page)


class House:
    def __init__(self, source: str, vendor: Vendor, registry: Registry, clock: MovedClock, pull: Any) -> None:
        self.source, self.vendor, self.registry = source, vendor, registry
        self.clock, self._pull = clock, pull

    async def pull(self) -> PullState:
        state: PullState = await self._pull()
        return state

    @property
    def seats(self) -> dict[str, tuple[str, str]]:
        [plan] = self.registry.declared_table(PlanTable).all()
        return {seat.user: (seat.since, seat.until) for seat in plan.seats}


@pytest_asyncio.fixture(params=SEAT_SOURCES)
async def house(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    key, names = tmp_path / "key", tmp_path / "names.csv"
    key.write_text(KEY)
    names.write_text("gone-name,known\n")
    clock, vendor = MovedClock(NOW), Vendor()
    async with AsyncExitStack() as stack:
        server = TestServer(vendor.application())
        await server.start_server()
        stack.push_async_callback(server.close)
        options = StorageOptions(
            declared=declared_tables(), settings=SpoolSettings(hold=0), clock=clock, directory=tmp_path
        )
        storage = await open_storage(options, engine=MEMORY)
        stack.push_async_callback(storage.close)
        registry = storage.registry
        assert registry is not None
        view = await registry.views.create(
            NewView(name="all", principal_dimension="user", filter={}),
            known_dimensions=("user",),
            max_rows=9,
            actor=PULLER,
        )
        await registry.declared_table(PlanTable).create(
            NewPlan(name="Seats", view=view.id), max_rows=9, actor=PULLER
        )
        pull = StatementPullSettings(
            name="seats", source=request.param, key_file=key, base_url=str(server.make_url("/")),
            account=ACCOUNTS.get(request.param, ACCOUNT), plan="seats", names_file=names,
        )  # fmt: skip
        config = Config(reconciliation=ReconciliationSettings(pull=(pull,)))
        assert [] == [each for each in config_problems(config) if "pull" in each]

        async def pulled() -> PullState:
            puller = build_statement_puller(
                registry.statements, clock, lambda: config, stack, plans=registry.declared_table(PlanTable)
            )
            await puller.pull_statements("seats")
            [state] = await puller.pull_states()
            return state

        yield House(request.param, vendor, registry, clock, pulled)


PAGES = {
    "github_copilot_seats": ["page 1", "page 2"],
    "cursor_members": ["members"],
    "claude_members": ["users", "users u50", "invites"],
    "code_assist_licenses": ["from 0", "from 40", "from 80"],
    "gemini_licenses": ["from 0", "from 40", "from 80"],
}
# Each row has an invalid or incomplete answer, and a part of the error message.
FAULTS: dict[str, list[tuple[Any, str]]] = {
    "github_copilot_seats": [
        ({"message": "no"}, "it has no list seats"),
        ({"total_seats": 2, "seats": [github("ann")]}, "has 1 of 2 seats"),
        ({"total_seats": 1, "seats": [{"assignee": None}]}, "is not a seat"),
    ],
    "claude_members": [
        ({"type": "error"}, "it has no list data"),
        ({"data": []}, "its has_more is neither true nor false"),
        ({"data": [], "has_more": True, "last_id": None}, "more pages follow, but last_id names none"),
        (
            {"data": [], "has_more": True, "last_id": "u1"},
            "the cursor of the next page is that of the same page",
        ),
    ],
    "gemini_licenses": [
        ({"error": {"code": 403}}, "it has no list userLicenses"),
        ({"userLicenses": [], "nextPageToken": 7}, "more pages follow, but nextPageToken names none"),
        ({"userLicenses": [{"userPrincipal": "ann"}]}, "is not a seat"),
    ],
}


async def test_seats_are_added_and_ended_as_listed(house: House) -> None:
    """
    All pages of a seat list are fetched, and seats are added and ended. An unchanged list changes nothing and
    leaves no audit row.
    """
    house.vendor.logins = [f"u{number}" for number in range(GITHUB_ROWS + 3)]
    state = await house.pull()
    assert state.state == DONE
    assert state.reason == f"{GITHUB_ROWS + 3} seats added, 0 ended"
    assert PAGES[house.source] == house.vendor.asked
    since = {found[0] for found in house.seats.values()}
    assert since == ({"2026-08-04"} if house.source in TELLING else {"2026-11-20"})
    [plan] = house.registry.declared_table(PlanTable).all()
    again = await house.pull()
    assert again.state == DONE
    assert again.reason == ""
    assert [plan.version] == [each.version for each in house.registry.declared_table(PlanTable).all()]
    house.clock.move(3 * 86400)
    house.vendor.logins = [*house.vendor.logins[2:], "new"]
    state = await house.pull()
    assert "1 seats added, 2 ended" == state.reason
    ended = sorted(user.partition("@")[0] for user, (_, until) in house.seats.items() if until)
    assert ["u0", "u1"] == ended
    assert {"2026-11-23"} == {until for _, until in house.seats.values() if until}


async def test_a_list_that_cannot_be_used_changes_nothing(house: House) -> None:
    """
    A seat list that cannot be used changes nothing: an empty list, an invalid answer, an incomplete list and a
    deleted plan each fail with a reason.
    """
    house.vendor.logins = ["ann", "bob"]
    await house.pull()
    before = house.seats
    house.vendor.logins = []
    state = await house.pull()
    assert FAILED == state.state and "nothing was changed" in state.reason
    for fault, words in FAULTS.get(house.source, ()):
        house.vendor.fault = fault
        state = await house.pull()
        assert FAILED == state.state and words in state.reason
    assert before == house.seats
    house.vendor.fault, house.vendor.logins = None, ["ann"]
    [plan] = house.registry.declared_table(PlanTable).all()
    await house.registry.declared_table(PlanTable).delete(plan.id, actor=PULLER)
    state = await house.pull()
    assert FAILED == state.state and "plan" in state.reason


async def test_a_pull_of_seats_names_its_plan(tmp_path: Path) -> None:
    """A pull of seats needs a plan, a pull of bills accepts none, and Google's licenses need an account."""
    base = StatementPullSettings(name="one", source="cursor_members", key_file=tmp_path / "key")
    for pull in (base, replace(base, source="cursor_usage_events", plan="Seats")):
        config = Config(reconciliation=ReconciliationSettings(pull=(pull,)))
        assert any("plan is required for a list of seats" in each for each in config_problems(config))
    google = replace(base, source="gemini_licenses", plan="Seats")
    config = Config(reconciliation=ReconciliationSettings(pull=(google,)))
    assert any("account is required: the resource at Google" in each for each in config_problems(config))
    assert set(SEAT_SOURCES) == set(SEAT_REQUESTS)
