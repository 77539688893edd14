"""
Calls that the log no longer has are listed from a lake: by day, by amount, and within the limits of roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from exporters.errors import Retryable
from exporters.lake.past import history
from exporters.lake.past.history import LakeHistory
from exporters.lake.stores import FolderStore
from gateway.cli import main
from spool.deliveries.protocols import LANDINGS, PastDates
from spool.engines import SQLITE
from spool.record import NS
from spool.registry.operators import Actor
from spool.registry.permission_sets import PERMISSION_SETS
from spool.registry.roles import EXCEPT, IS, LIMITED, NewRole, RoleFilter, RoleLimits
from tests.exporters.spools import call, record_id
from tests.integration.lake.lakes import ROUTE, configured, opened
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock

DAY_S = 86400
FIRST_DAY = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp())
EVA = "eva@example.com"
DATES = PastDates("2026-09-01", "2026-09-03")


async def fill(directory: Path, clock: MovedClock) -> None:
    """Land three days of ten calls, one delivery each. Even numbers belong to the team search."""
    async with opened(directory / "data", clock) as house, house.forwarding(path=directory / "lake"):
        for day in range(3):
            numbers = range(day * 10 + 1, day * 10 + 11)
            at = (FIRST_DAY + day * DAY_S + 3600) * NS
            await house.add(
                [
                    call(n, start_time=at, end_time=at + NS, team="ads" if n % 2 else "search", cost=f"{n}.5",
                         cost_source="reported", user=f"user-{n}", tags={"service": "s"})
                    for n in numbers
                ]
            )  # fmt: skip
            await house.until(queued=0)
            clock.move(DAY_S)


async def forget(directory: Path, clock: MovedClock) -> None:
    """Move on two weeks, until the log has only one newer call."""
    clock.move(14 * DAY_S)
    async with opened(directory / "data", clock) as house:
        await house.add([call(31, start_time=int(clock.now()) * NS, cost="1000", cost_source="reported")])
        await house.storage.ledger.catch_up(house.storage.log)
        await house.storage.log.run_retention()
        assert [31] == [entry.first for entry in await house.storage.log.read("ai-telemetry", 1, 31)]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    clock = MovedClock(FIRST_DAY + 7200)
    await fill(tmp_path, clock)
    await forget(tmp_path, clock)
    async with operator_server(tmp_path / "data", engine=SQLITE, clock=clock) as server:
        lake = history_of(server, tmp_path)
        server.services.spool.past = lambda: lake
        yield server


def history_of(server: OperatorServer, directory: Path, store: FolderStore | None = None) -> LakeHistory:
    return LakeHistory(
        store=store or FolderStore(directory / "lake"),
        landings=server.storage.small.open_table(LANDINGS),
        route=ROUTE,
        directory=directory / "read",
    )


class AwayFolder(FolderStore):
    async def fetch(self, name: str, path: Path) -> None:
        raise Retryable("nobody answers", answered=False)


async def listed(server: OperatorServer, *by: dict[str, str], **query: str) -> list[str]:
    """Return the costs in a list, for a person with these headers or for a command."""
    words = "&".join(f"{name}={value}" for name, value in query.items())
    path = f"/records?{words}"
    answer = await (server.over_http("GET", path, headers=by[0]) if by else server.ask("GET", path))
    assert 200 == answer.status, answer.payload
    return [row["cost"] for row in answer.payload["records"]]


async def test_calls_older_than_the_log_are_listed(server: OperatorServer, tmp_path: Path) -> None:
    """
    Calls that are older than the log are listed from the lake: of a day, the most expensive ones of a range in lake
    and log, and by filters.
    """
    assert [f"{n}.5" for n in range(20, 10, -1)] == await listed(server, date="2026-09-02")
    dearest = {"sort_key": "cost", "sort_order": "desc", "limit": "3"}
    assert ["1000", "30.5", "29.5"] == await listed(server, range="last_30d", **dearest)
    span = {"from": "2026-09-01", "to": "2026-09-02"}
    assert ["20.5", "18.5", "16.5"] == await listed(server, team="search", **span, **dearest)
    assert ["3.5"] == await listed(server, user="user-3", date="2026-09")
    [row] = (await server.ask("GET", "/records", date="2026-09", user="user-3")).payload["records"]
    assert row["number"] == 3
    assert row["state"] == "closed"
    assert row["team"] == "ads"
    assert row["tags"] == {"service": "s"}
    assert [] == list((tmp_path / "read").iterdir())


async def test_it_says_how_far_it_looked(server: OperatorServer) -> None:
    """
    The answer states how far the search for calls went. For a range, it searches the newest calls up to the limit.
    For given days, it searches the oldest. Calls of the log and the lake count together.
    """
    server.services.spool.max_listed_records = lambda: 6
    dearest = {"sort_key": "cost", "sort_order": "desc", "range": "last_30d"}
    assert ["1000", "30.5", "29.5", "28.5", "27.5", "26.5"] == await listed(server, **dearest)
    looked = (await server.ask("GET", "/records", **dearest)).payload["looked_through"]
    assert looked["records"] == 6
    assert looked["since"][:10] == "2026-09-03"
    looked = (await server.ask("GET", "/records", date="2026-09")).payload["looked_through"]
    assert looked["since"][:10] == "2026-09-01"
    assert looked["until"][:10] == "2026-09-01"


async def limited(server: OperatorServer, *filters: RoleFilter) -> dict[str, str]:
    draft = NewRole(
        name="Part", data_access=LIMITED, filters=filters, permission_sets=tuple(PERMISSION_SETS), members=(EVA,)
    )  # fmt: skip
    known = {*server.services.money.ledger.dimensions(), "sender"}
    actor = Actor("root", "local")
    await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=actor)
    return await signed_in(server, "none", EVA)


async def test_a_role_sees_its_own_of_a_lake(server: OperatorServer, tmp_path: Path) -> None:
    """
    A person sees only their team's calls, without record numbers. If the lake is unreachable, the list is not
    shown as complete.
    """
    eva = await limited(server, RoleFilter(dimension="team", values=("search",), mode=IS))
    own = ["20.5", "18.5", "16.5", "14.5", "12.5"]
    assert set(own) == set(await listed(server, eva, date="2026-09-02"))
    span = {"from": "2026-09-02", "to": "2026-09-02", "sort_key": "cost", "sort_order": "desc"}
    assert own == await listed(server, eva, **span)
    answer = await server.over_http("GET", "/records?date=2026-09-02", headers=eva)
    assert {None} == {row["number"] for row in answer.payload["records"]}
    away = history_of(server, tmp_path, AwayFolder(tmp_path / "lake"))
    server.services.spool.past = lambda: away
    assert 503 == (await server.over_http("GET", "/records?date=2026-09-02", headers=eva)).status
    assert ["1000"] == await listed(server, sort_key="cost", sort_order="desc")


async def test_role_filter_on_missing_lake_column_shows_no_call(
    server: OperatorServer, tmp_path: Path
) -> None:
    """If a role filters by the sender's key or by a left-out column, no call of the lake is shown."""
    eva = await limited(server, RoleFilter(dimension="team", values=("ads",), mode=EXCEPT))
    assert 5 == len(await listed(server, eva, date="2026-09-02"))
    without = replace(history_of(server, tmp_path), leave_out=("team",))
    server.services.spool.past = lambda: without
    assert [] == await listed(server, eva, date="2026-09-02")
    assert (
        without.has_dimension_missing_in_lake(["sender"])
        and without.has_dimension_missing_in_lake(["team"])
        and not without.has_dimension_missing_in_lake(["user", "model", "tag:a"])
    )
    hidden = replace(without, leave_out=("tags", "response_model"))
    assert hidden.has_dimension_missing_in_lake(["model"]) and hidden.has_dimension_missing_in_lake(["tag:a"])
    one_tag = replace(without, leave_out=("tags.a",))
    assert one_tag.has_dimension_missing_in_lake(["tag:a"]) and not one_tag.has_dimension_missing_in_lake(
        ["tag:b", "team"]
    )


async def test_one_record_of_a_lake_is_shown(server: OperatorServer, tmp_path: Path) -> None:
    """
    A record is shown by its id and a start day, with the reasons for its figures. A limited person sees only
    their own calls.
    """
    own, other = record_id(12).hex(), record_id(13).hex()
    assert 404 == (await server.ask("GET", f"/records/{own}")).status
    shown = (await server.ask("GET", f"/records/{own}", since="2026-09-02")).payload
    assert shown["number"] == 12
    assert shown["record"]["cost"] == "12.5"
    assert shown["record"]["team"] == "search"
    assert 404 == (await server.ask("GET", f"/records/{own}", since="2026-09-03")).status
    eva = await limited(server, RoleFilter(dimension="team", values=("search",), mode=IS))
    answers = [
        await server.over_http("GET", f"/records/{id}?since=2026-09-01", headers=eva) for id in (own, other)
    ]
    assert [200, 404] == [each.status for each in answers]
    assert answers[0].payload["number"] is None
    away = history_of(server, tmp_path, AwayFolder(tmp_path / "lake"))
    server.services.spool.past = lambda: away
    assert 404 == (await server.ask("GET", f"/records/{own}", since="2026-09-02")).status


async def test_a_lake_is_read_for_a_bounded_time(
    server: OperatorServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A lake is searched for a limited time. After it, only calls of the log are listed. Temporary files of a killed
    process are removed.
    """
    monkeypatch.setattr(history, "READ_S", -1.0)
    left = tmp_path / "read/read-left"
    left.mkdir(parents=True)
    assert ["1000"] == await listed(server, sort_key="cost", sort_order="desc")
    assert not left.exists()


async def test_deliveries_of_other_days_are_not_read(server: OperatorServer, tmp_path: Path) -> None:
    """A search of the lake reads only files of the requested days, the newest first by default."""
    lake = history_of(server, tmp_path)

    async def read(dates: PastDates, *, below: int = 31, oldest_first: bool = False) -> list[int]:
        parts = lake.read_records(dates, below_number=below, oldest_first=oldest_first)
        return [each.number async for part in parts for each in part]

    first, second, third = list(range(1, 11)), list(range(11, 21)), list(range(21, 31))
    assert [*third, *second, *first] == await read(DATES)
    assert [*first, *second, *third] == await read(DATES, oldest_first=True)
    for path in (tmp_path / "lake").glob("*/v1/date=2026-09-0[13]/*"):
        path.unlink()
    assert second == await read(PastDates("2026-09-02", "2026-09-02"))
    assert list(range(11, 15)) == await read(PastDates("2026-09-02", "2026-09-02"), below=15)


def test_the_command_lists_calls_of_a_lake(tmp_path: Path) -> None:
    """
    `report --calls` works without a server, and lists the most expensive calls of days that the log no longer has.
    """

    async def filled() -> None:
        clock = MovedClock(FIRST_DAY + 7200)
        await fill(tmp_path, clock)
        await forget(tmp_path, clock)

    asyncio.run(filled())
    words = ["report", "--calls", "--from", "2026-09-01", "--to", "2026-09-02", "--top", "2", "--config"]
    result = CliRunner().invoke(main, [*words, str(configured(tmp_path))])
    assert 0 == result.exit_code, result.output
    assert "$20.50" in result.output and "$19.50" in result.output and "$18.50" not in result.output
