"""
Billing connections over HTTP: only known connections accept hourly files, and stored rows can be read back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from aiohttp import ClientSession, UnixConnector

from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import BillingSettings, Config
from gateway.core.paths import OPERATOR_API
from spool.billing import BILLING_DROPS
from spool.record import BILLING_DATA
from spool.registry.scopes import GROUPS, SEND_BILLING_DATA
from spool.settings import SpoolSettings
from tests.integration.conftest import Answer, Serve, Serving
from tests.waiting import until

ALL = "/v2/connections/billing"
DROPS = ALL + "/external/{}/billing_drops"
VALIDATE = ALL + "/external/validate_billing_drop"
NEW = {"name": "MongoDB Atlas", "cloud_provider": "MongoDB"}
BUCKET = {"bucket_name": "bills", "bucket_path": "daily/", "cloud_account_id": "123456789012"}
Row = dict[str, str]


def row(day: int, hour: int, cost: str = "1") -> Row:
    return {"time/usage_start": f"2026-11-{day:02}T{hour:02}:00:00Z", "cost/cost": cost, "resource/id": "r"}


class Manager:
    """A client with two keys: one manages connections, one sends hourly files."""

    def __init__(self, serving: Serving, managing: str, sending: str) -> None:
        self.serving = serving
        self.managing = managing
        self.sending = sending

    @classmethod
    async def of(cls, serving: Serving) -> Manager:
        managing = await serving.make_key("manager", scopes=GROUPS["Manage Billing Connections"])
        return cls(
            serving, managing, await serving.make_key("sender of drops", use_cases=[SEND_BILLING_DATA])
        )

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        sent = b"" if body is None else orjson.dumps(body)
        kind = None if body is None else "application/json"
        answer = await self.serving.send(path, sent, kind, method=method, key=self.managing)
        return answer.status, orjson.loads(answer.body)

    async def drop(
        self, id: str, rows: Sequence[Row], operation: str = "sum", headers: Mapping[str, str] | None = None
    ) -> Answer:
        body = orjson.dumps({"month": "2026-11", "operation": operation, "data": rows})
        return await self.serving.send(DROPS.format(id), body, key=self.sending, headers=headers)

    def month_asked(self, id: str) -> Callable[[], Awaitable[tuple[int, Any]]]:
        return lambda: self.ask("GET", f"{DROPS.format(id)}/2026-11")

    async def month(self, id: str, month: str = "2026-11") -> list[Row]:
        status, said = await self.ask("GET", f"{DROPS.format(id)}/{month}")
        assert 200 == status, said
        found: list[Row] = said["billing_drop"]
        return found


def refused(answer: Answer) -> tuple[int, str]:
    return answer.status, orjson.loads(answer.body)["error"]["type"]


async def test_the_life_of_a_connection(serving: Serving) -> None:
    """
    A connection is created, changed and deleted. The published fields come back in every answer, with
    times as text.
    """
    manager = await Manager.of(serving)
    status, said = await manager.ask(
        "POST", ALL, {**NEW, "s3_bucket_info": BUCKET, "expected_ingest_rate": 2.5}
    )
    made = said["connection"]
    assert status == 200
    assert made["s3_bucket_info"] == BUCKET
    assert made["expected_ingest_rate"] == 2.5
    assert made["is_enabled"] is True
    assert made["is_draft"] is False
    assert made["id"] == made["connection_id"] == made["upstream_connection_id"]
    assert float(made["created"]) == float(made["last_updated"]) > 1e9
    assert "Pending Data" == made["state"]
    assert (200, said) == await manager.ask("GET", f"{ALL}/{made['id']}")
    changes = {"s3_bucket_info": None, "is_enabled": False, "name": "Atlas"}
    status, said = await manager.ask("PATCH", f"{ALL}/{made['id']}", changes)
    changed = said["connection"]
    assert status == 200
    assert changed["s3_bucket_info"] is None
    assert changed["state"] == "Disabled"
    assert changed["connection_name"] == "Atlas"
    _, page = await manager.ask("GET", f"{ALL}?is_enabled=false&sort_key=connection_name")
    assert [changed] == page["connections"]
    assert {"pagination", "filtering", "sorting"} < set(page)
    assert (200, {"connection": {"id": made["id"]}}) == await manager.ask("DELETE", f"{ALL}/{made['id']}")
    status, _ = await manager.ask("GET", f"{ALL}/{made['id']}")
    assert 404 == status


NO_CONNECTION: Sequence[tuple[dict[str, Any], int]] = [
    ({"name": "x"}, 400),
    ({**NEW, "colour": "red"}, 400),
    ({**NEW, "name": ""}, 400),
    ({**NEW, "is_enabled": None}, 400),
    ({**NEW, "connection_id": "a b"}, 400),
    ({**NEW, "s3_bucket_info": {"bucket_name": "bills"}}, 400),
    ({**NEW, "s3_bucket_info": {**BUCKET, "cloud_account_id": "1"}}, 400),
    ({**NEW, "name": "taken"}, 409),
    ({**NEW, "connection_id": "c-1"}, 409),
]


async def test_what_is_no_connection_is_refused(serving: Serving) -> None:
    """An invalid connection is refused with the name of the violated rule, and nothing is stored."""
    manager = await Manager.of(serving)
    await serving.make_connection("c-1", name="taken")
    for body, status in NO_CONNECTION:
        found, said = await manager.ask("POST", ALL, body)
        assert status == found, (body, status)
        assert bool(said["error"]["message"]), (body, status)
        _, page = await manager.ask("GET", ALL)
        assert 1 == page["pagination"]["total_count"], (body, status)


async def test_drops_are_accepted_only_for_an_enabled_connection(serving: Serving) -> None:
    """
    Unknown and deleted connections answer 404, a disabled one 409. Each answer says what to do. Nothing is stored.
    """
    manager = await Manager.of(serving)
    unknown = await manager.drop("c-1", [row(1, 1)])
    assert (404, "unknown_connection") == refused(unknown)
    assert b"tollhouse connections create --id" in unknown.body
    await serving.make_connection("c-1")
    assert 200 == (await manager.drop("c-1", [row(1, 1)])).status
    await manager.ask("PATCH", f"{ALL}/c-1", {"is_enabled": False})
    disabled = await manager.drop("c-1", [row(1, 2)])
    assert (409, "connection_disabled") == refused(disabled)
    assert b"tollhouse connections enable" in disabled.body
    await manager.ask("PATCH", f"{ALL}/c-1", {"is_enabled": True})
    assert [row(1, 1)] == await manager.month("c-1")
    await manager.ask("DELETE", f"{ALL}/c-1")
    assert (404, "unknown_connection") == refused(await manager.drop("c-1", [row(1, 3)]))
    books = await serving.app.services.storage.log.books()
    assert 1 == books.topics[BILLING_DATA]["accepted"]


async def test_a_month_is_read_back_as_a_recount_finds_it(serving: Serving) -> None:
    """
    Many hourly files with every operation, sent in concurrent groups, give the recounted rows. The list names
    the files that still have rows.
    """
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    chance = random.Random(7)
    recount: dict[tuple[int, int], list[Row]] = {}
    for n in range(40):
        hours = [(chance.randint(1, 30), chance.randint(0, 23)) for _ in range(6)]
        operation = "replace_drop" if n == 20 else chance.choice(["sum", "replace_hourly"])
        rows = [row(*hour, cost=f"{n}.{place}") for place, hour in enumerate(hours)]
        assert 200 == (await manager.drop("c-1", rows, operation)).status
        if operation == "replace_drop":
            recount = {}
        for hour in set(hours) if operation == "replace_hourly" else ():
            recount.pop(hour, None)
        for hour, each in zip(hours, rows, strict=True):
            recount.setdefault(hour, []).append(each)
    expected = [each for _, rows in sorted(recount.items()) for each in rows]
    assert expected == await manager.month("c-1")
    _, page = await manager.ask("GET", f"{DROPS.format('c-1')}?limit=1000")
    assert {("2026-11", 6)} == {(drop["month"], drop["row_count"]) for drop in page["billing_drops"]}
    assert 20 >= page["pagination"]["total_count"] > 1


async def test_simultaneous_drops_are_stored_one_after_the_other(serving: Serving) -> None:
    """Files that are uploaded at the same time are all accepted and stored, one after the other."""
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    answers = await asyncio.gather(*(manager.drop("c-1", [row(1, n)]) for n in range(20)))
    assert {200} == {answer.status for answer in answers}
    assert 20 == len(await manager.month("c-1"))


async def test_a_repeat_is_the_same_drop(serving: Serving) -> None:
    """A repeat under the same idempotency key returns the same id, and its rows count once."""
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    answers = [await manager.drop("c-1", [row(1, 1)], headers={"Idempotency-Key": "k"}) for _ in range(2)]
    ids = {orjson.loads(answer.body)["connection"]["drop_id"] for answer in answers}
    _, page = await manager.ask("GET", DROPS.format("c-1"))
    assert ids == {drop["drop_id"] for drop in page["billing_drops"]}
    assert len(ids) == 1
    assert [row(1, 1)] == await manager.month("c-1")


async def test_what_is_not_there_is_404(serving: Serving) -> None:
    """A month without rows and an unknown connection answer 404. An invalid month answers 400."""
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    for path, expected in (
        (f"{DROPS.format('c-1')}/2026-11", 404), (f"{DROPS.format('c-1')}/2026-13", 400),
        (f"{DROPS.format('none')}/2026-11", 404), (DROPS.format("none"), 404),
    ):  # fmt: skip
        assert expected == (await manager.ask("GET", path))[0], path


async def test_a_month_in_pages(serving: Serving) -> None:
    """
    The pages of a month add up to the whole month. Rows that are added meanwhile do not appear. If the rows are
    replaced meanwhile, the next page is refused.
    """
    manager, path = await Manager.of(serving), f"{DROPS.format('c-1')}/2026-11"
    await serving.make_connection("c-1")
    for drop in range(3):
        services = [{**row(1, hour, f"{drop}.50"), "resource/service": f"s{hour}"} for hour in (2, 1, 1)]
        assert 200 == (await manager.drop("c-1", services)).status
    _, whole = await manager.ask("GET", path)
    assert {"billing_drop", "pagination", "filtering", "sorting"} == set(whole)
    assert (1, 9, 9) == tuple(
        whole["pagination"][name] for name in ("page_count", "item_count", "total_count")
    )

    async def walk(query: str, word: str = "next") -> list[Row]:
        found: list[Row] = []
        while True:
            status, page = await manager.ask("GET", f"{path}?{query}")
            assert 200 == status, page
            found += page["billing_drop"]
            following = page["pagination"]["cursor"][f"{word}_cursor"]
            if following is None:
                return found
            query = f"cursor={quote(following)}"

    for limit in (1, 4, 10_000):
        assert whole["billing_drop"] == await walk(f"limit={limit}")
    assert whole["billing_drop"][::-1] == await walk("limit=4&sort_order=desc")
    two = [each for each in whole["billing_drop"] if each["resource/service"] == "s2"]
    assert 3 == len(two) and two == await walk("limit=2&resource%2Fservice=s2")
    assert 400 == (await manager.ask("GET", f"{path}?limit=10001"))[0]
    assert 400 == (await manager.ask("GET", f"{path}?unheard=1"))[0]
    _, first = await manager.ask("GET", f"{path}?limit=4")
    begun = f"cursor={quote(first['pagination']['cursor']['next_cursor'])}"
    await manager.drop("c-1", [row(1, 1, "7")])
    assert whole["billing_drop"][4:] == await walk(begun)
    _, second = await manager.ask("GET", f"{path}?{begun}")
    back = f"cursor={quote(second['pagination']['cursor']['previous_cursor'])}"
    assert first["billing_drop"] == await walk(back, "previous")
    await manager.drop("c-1", [row(1, 1, "8")], "replace_hourly")
    status, said = await manager.ask("GET", f"{path}?{begun}")
    assert status == 410
    assert said["error"]["type"] == "changed"


def limited(**billing: Any) -> Config:
    return Config(spool=SpoolSettings(hold=0, counter_wait=0), billing=BillingSettings(**billing))


@pytest.mark.parametrize("operation", ["sum", "replace_hourly"])
async def test_a_month_has_a_limit_of_rows(serve: Serve, operation: str) -> None:
    """
    A month has a maximum number of rows. Uploads are accepted exactly up to the limit. Replacements and repeats are
    still accepted at the limit.
    """
    serving = await serve(config=limited(max_month_rows=3))
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    again = {"Idempotency-Key": "k"}
    assert 200 == (await manager.drop("c-1", [row(1, 1), row(1, 2), row(1, 3)], operation, again)).status
    assert (409, "month_full") == refused(await manager.drop("c-1", [row(1, 4)], operation))
    assert 200 == (await manager.drop("c-1", [row(1, 3)], "replace_hourly")).status
    assert 200 == (await manager.drop("c-1", [row(1, 1), row(1, 2), row(1, 3)], operation, again)).status
    assert 3 == len(await manager.month("c-1"))
    assert 200 == (await manager.drop("c-1", [row(1, 4)], "replace_drop")).status


async def test_a_month_has_a_limit_of_bytes(serve: Serve) -> None:
    body = orjson.dumps({"month": "2026-11", "operation": "sum", "data": [row(1, 1)]})
    serving = await serve(config=limited(max_month_bytes=len(body)))
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    assert 200 == (await manager.drop("c-1", [row(1, 1)])).status
    full = await manager.drop("c-1", [row(1, 2)])
    assert (409, "month_full") == refused(full)
    assert str(len(body)).encode() in full.body


async def test_a_drop_has_a_limit_of_tags(serve: Serve) -> None:
    """
    The tag limit counts the distinct tags of all rows of a file. The error states the number found and the limit.
    """
    serving = await serve(config=limited(max_tags=2))
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    tagged = [{**row(1, hour), f"resource/tag:t{hour}": "v"} for hour in (1, 2, 3)]
    assert 200 == (await manager.drop("c-1", tagged[:2])).status
    refused_drop = await manager.drop("c-1", tagged)
    assert (400, "invalid_drop") == refused(refused_drop)
    assert b"3 different tags, but at most 2 are allowed (billing.max_tags)" in refused_drop.body
    assert 2 == len(await manager.month("c-1"))


async def test_an_operator_lists_the_months_of_a_connection(serving: Serving) -> None:
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    await manager.drop("c-1", [row(1, hour) for hour in (1, 2)])
    status, said = await as_operator(serving, f"{OPERATOR_API}/connections/c-1/drops")()
    assert 200 == status
    assert [("2026-11", 2)] == [(drop["month"], drop["row_count"]) for drop in said["billing_drops"]]


async def test_a_month_that_is_read_counts_in_the_bytes_in_hand(serving: Serving) -> None:
    """
    Reading a month reserves its stored size and the sent size of its largest hour. If one byte is missing,
    the answer is 503 and names the setting. The reservation is returned afterwards.
    """
    manager, services = await Manager.of(serving), serving.app.services
    await serving.make_connection("c-1")
    rows = [row(1, hour) for hour in (1, 1, 2)]
    await manager.drop("c-1", rows)
    drops = services.operators.money.billing_connections.drops
    size, hours = await drops.month_size("c-1", "2026-11"), await drops.month_hours("c-1", "2026-11")
    assert size.held == sum(len(hour.body) for hour in hours) + len(hours[0].json_rows)
    inflight = services.receivers.inflight
    inflight.reserve.limit = 0
    by_key = manager.month_asked("c-1")
    by_operator = as_operator(serving, f"{OPERATOR_API}/connections/c-1/drops/2026-11")
    for ask in (by_key, by_operator):
        with inflight.new_share("another") as share:
            share.reserve_bytes(inflight.general.limit - size.held)
            status, said = await ask()
            assert status == 200
            assert said["billing_drop"] == rows
            assert share.held == inflight.held_bytes
            share.reserve_bytes(1)
            status, said = await ask()
            assert status == 503
            assert said["error"]["type"] == "busy"
            assert "server.max_inflight_bytes" in said["error"]["message"]


def as_operator(serving: Serving, path: str) -> Callable[[], Awaitable[tuple[int, Any]]]:
    """Return a function that requests the path over the operator socket."""

    async def ask() -> tuple[int, Any]:
        socket = UnixConnector(str(serving.app.config.data_dir / "operator.sock"))
        async with (
            ClientSession("http://localhost", connector=socket) as client,
            client.get(path, headers={"X-Tollhouse-As": "ada"}) as answer,
        ):
            return answer.status, await answer.json()

    return ask


async def test_all_months_have_a_limit(serve: Serve) -> None:
    """
    When the limit of all months is reached, an hourly file gets 429 with the time to retry and the name
    of the setting.
    """
    serving = await serve(config=limited(max_bytes=1))
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    assert 200 == (await manager.drop("c-1", [row(1, 1)])).status
    full = await manager.drop("c-1", [row(1, 2)])
    assert (429, "too_many_rows") == refused(full)
    assert b"billing.max_bytes" in full.body
    assert int(full.headers["Retry-After"]) > 0


async def test_months_go_after_their_time(serve: Serve) -> None:
    """Months are deleted after their retention. The month that contains the cutoff stays."""
    serving = await serve()
    manager = await Manager.of(serving)
    await serving.make_connection("c-1")
    old = {"time/usage_start": "2020-01-01T00:00:00Z", "cost/cost": "1"}
    body = orjson.dumps({"month": "2020-01", "operation": "sum", "data": [old]})
    assert 200 == (await serving.send(DROPS.format("c-1"), body, key=manager.sending)).status
    await serving.app.services.single.billing_connections.delete_old_months()
    assert 404 == (await manager.ask("GET", f"{DROPS.format('c-1')}/2020-01"))[0]


async def with_upstream(serve: Serve, site: Serving, directory: Path, **upstream: Any) -> Serving:
    """Start a gateway that forwards to the given upstream."""
    secret = directory / "billing.key"
    secret.write_text(await site.make_key("upstream", use_cases=[SEND_BILLING_DATA]))
    key = UpstreamKey(name="billing", secret_file=secret, use_cases=(SEND_BILLING_DATA,))
    settings = UpstreamSettings(base_url=site.url, kind="tollhouse", keys=(key,), **upstream)
    return await serve(config=Config(spool=SpoolSettings(hold=0, counter_wait=0), upstream=settings))


async def test_the_connection_of_the_configuration_is_one_of_them(serve: Serve, tmp_path: Path) -> None:
    """
    The connection of the configuration accepts hourly files and is listed once after a reload. It can be neither
    deleted nor given another upstream id.
    """
    serving = await with_upstream(serve, await serve(), tmp_path, connection_id="c/9")
    manager = await Manager.of(serving)
    await serving.app.services.single.billing_connections.create_configured_and_clean_up()
    _, page = await manager.ask("GET", ALL)
    (found,) = page["connections"]
    assert found["id"] == "c/9"
    assert found["upstream_connection_id"] == "c/9"
    path = f"{ALL}/c%2F9"
    assert 409 == (await manager.ask("DELETE", path))[0]
    assert 409 == (await manager.ask("PATCH", path, {"upstream_connection_id": "other"}))[0]
    assert 200 == (await manager.ask("PATCH", path, {"is_enabled": False}))[0]
    assert not serving.app.services.single.billing_connections.is_open("c/9")


async def test_drops_that_wait_outlive_their_connection(serve: Serve, tmp_path: Path) -> None:
    """
    If a connection is deleted or gets another upstream id, waiting files are still sent to its last upstream id.
    """
    site = await serve()
    serving = await with_upstream(serve, site, tmp_path)
    manager = await Manager.of(serving)
    for id, there in (("kept", "wrong"), ("gone", "there-2")):
        await serving.make_connection(id, upstream_id=there)
        assert 200 == (await manager.drop(id, [row(1, 1)])).status
    assert 200 == (await manager.ask("PATCH", f"{ALL}/kept", {"upstream_connection_id": "there-1"}))[0]
    assert 200 == (await manager.ask("DELETE", f"{ALL}/gone"))[0]
    for there in ("there-1", "there-2"):
        await site.make_connection(there)
    await serving.app.services.operators.spool.wake("upstream/billing-data")
    drops = site.app.services.storage.small.open_table(BILLING_DROPS)

    async def have_arrived() -> bool:
        return set(await drops.last_billing_drop_at_by_connection()) == {"there-1", "there-2"}

    await until(have_arrived)


async def test_upstream_checks_a_drop_as_well(serve: Serve, tmp_path: Path) -> None:
    """
    Hourly files that are valid here are checked by the upstream as well. The answer states who answered, also if
    the upstream cannot be reached.
    """
    site = await serve()
    serving = await with_upstream(serve, site, tmp_path)
    manager = await Manager.of(serving)

    async def verdict(**change: Any) -> dict[str, Any]:
        body = orjson.dumps({"operation": "sum", "data": [row(1, 1)], **change})
        said = orjson.loads((await serving.send(VALIDATE, body, key=manager.sending)).body)
        found: dict[str, Any] = said["connection"]
        return found

    assert {"is_valid": True, "errors": [], "answered_by": "upstream"} == await verdict()
    wrong = await verdict(operation="append")
    assert wrong["is_valid"] is False
    assert wrong["answered_by"] == "tollhouse"
    await site.app.stop()
    assert {"is_valid": True, "errors": [], "answered_by": "tollhouse"} == await verdict()
