"""Privacy requests over the operator API and the command: erasure, its receipt, restored backups and exports."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.configuration.sections import Config
from gateway.core.paths import OPERATOR_API, socket_path
from gateway.service.assembly.storage import open_storage
from spool.clock import SystemClock
from spool.identity import call_identity
from spool.people import ERASED
from spool.record import pack_records
from spool.searching import search_for_names
from tests.gateway.money.waste.examples import START, call
from tests.integration.conftest import Serve
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_second_names import storage_of as storage_of
from tests.integration.test_linked_names import added, lines, sent, whole, world_of
from tests.integration.test_one_identity import AS, World, checked
from tests.rounds import part
from tests.spool.contract.examples import add
from tests.stored_files import contents_of

CANARY, ADDRESS = "canary-login-7q", "canary.person@example.com"
NAMES = (ADDRESS, "canary-uuid-7q", CANARY)
OTHERS = ("bob@example.com", "bob", "cy")
MAY = {"name": "Privacy", "data_access": "none", "permission_sets": ["answer_privacy_requests"],
       "members": ["root@example.com"]}  # fmt: skip


async def allow(world: World) -> None:
    checked(await world.ask("POST", "/roles", MAY))


async def erased(world: World, name: str = CANARY, **choices: Any) -> Mapping[str, Any]:
    found = checked(await world.ask("POST", f"/people/{name}/erase", {"confirm": name, **choices}))
    return dict(found["erasure"])


def states(receipt: Mapping[str, Any]) -> Mapping[str, str]:
    return {place["place"]: place["state"] for place in receipt["places"]}


async def stored(world: World, outside: Callable[[], Iterator[bytes]]) -> bytes:
    """Return everything that is stored: files, rows of the database, and the records in entries."""
    records = [each for each in await world.serving.records() if each is not None]
    contents = contents_of(world.serving.app.config.data_dir)
    return b"\0".join([pack_records(records), *contents.values(), *outside()])


@pytest.mark.parametrize("seed", part(range(2), every=2))
async def test_no_byte_of_a_name_is_left(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]], seed: int
) -> None:
    """
    Random calls, links, splits and erasures, on each engine. Every name is stored before and nowhere after, in files,
    tables and entries. Sums by other dimensions, and the lines of other people, stay to the last digit.
    """
    config, outside = storage_of
    chance = random.Random(seed)
    world = await world_of(serve, config)
    await allow(world)
    await sent(world, chance, [*chance.choices(NAMES, k=30), *NAMES, *chance.choices(OTHERS, k=20)])
    linked = [world.people.recorded_name_or_hash(name) for name in chance.sample(NAMES, 3)]
    checked(await world.ask("POST", "/people", {"people": [{"users": linked, "name": "Canary Person"}]}))
    if chance.random() < 0.5:
        checked(await world.ask("POST", "/people/split", {"user": linked[1]}))
        checked(await world.ask("POST", "/people", {"people": [{"users": linked[:2]}]}))
    account = {"email": ADDRESS, "password": "correct horse battery", "role": "viewer"}
    checked(await world.ask("POST", "/operators", account))
    note = {"text": f"Why {CANARY} calls so often.", "day": "2026-11-01"}
    checked(await world.ask("POST", "/annotations", note))
    gone = [
        name.encode()
        for name in (ADDRESS, CANARY, "canary-uuid-7q", world.people.hash_address(ADDRESS), "Canary Person")
    ]
    before, separate = await whole(world), await lines(world)
    contents = await stored(world, outside)
    assert [] == [name for name in gone if name not in contents]

    trial = await erased(world, dry_run=True)
    assert ("ask", None) == (states(trial)["texts"], trial["file"])
    assert contents.count(CANARY.encode()) <= (await stored(world, outside)).count(CANARY.encode())
    receipt = await erased(world, texts=True)
    assert trial["calls"] == receipt["calls"] == separate[linked[0]][0]
    done = (
        "names",
        "accounts",
        "registry",
        "texts",
        "devices",
        "records",
        "totals",
        "waiting",
        "configuration",
    )
    assert {*done} == {place for place in done if states(receipt)[place] == "done"}, receipt
    assert ("ask" if config.storage.engine == "postgres" else "done") == states(receipt)["disk"]
    assert [] == [name for name in gone if name in await stored(world, outside)]
    assert before == await whole(world)
    by_hand = {ERASED if name == linked[0] else name: line for name, line in separate.items()}
    assert by_hand == await lines(world)
    assert separate[linked[0]] == added([*(await lines(world, "model", where=f"user={ERASED}")).values()])
    audit = checked(await world.ask("GET", "/audit", action="person.erase"))["audit"]
    assert [receipt["id"]] == [row["target"] for row in audit]

    await sent(world, chance, [CANARY])
    assert [] == [name for name in gone if name in await stored(world, outside)], (
        "a call from before the erasure"
    )
    assert separate[linked[0]][0] + 1 == (await lines(world))[ERASED][0]
    verified = checked(await world.ask("GET", "/verify"))
    assert [] == verified["imbalances"]


async def test_only_a_granted_right_erases(serve: Serve) -> None:
    """No built-in role may erase or export, not even on the server. The confirmation must repeat the name."""
    world = await world_of(serve, Config())
    await sent(world, random.Random(1), [CANARY])
    for path, body in (
        (f"/people/{CANARY}/erase", {"confirm": CANARY}),
        (f"/people/{CANARY}/export", {"directory": "/x"}),
    ):
        refused = await world.ask("POST", path, body)
        assert (403, True) == (
            refused.status,
            "Answer Privacy Requests" in refused.payload["error"]["message"],
        )
    assert 403 == (await world.ask("GET", "/erasures")).status
    await allow(world)
    for body in ({}, {"confirm": "somebody"}):
        refused = await world.ask("POST", f"/people/{CANARY}/erase", body)
        assert (400, True) == (refused.status, CANARY in refused.payload["error"]["message"])
    assert 404 == (await world.ask("POST", "/people/nobody/erase", {"confirm": "nobody"})).status
    for name in ("(other)", ERASED, "erased:0123456789abcdef"):
        refused = await world.ask("POST", f"/people/{name}/erase", {"confirm": name})
        assert (400, True) == (refused.status, name in refused.payload["error"]["message"])
    assert {CANARY} == (await lines(world)).keys()
    assert {"erasures": [], "format": 1} == checked(await world.ask("GET", "/erasures"))


async def test_recalculated_and_recounted_sums_keep_the_pseudonym(serve: Serve) -> None:
    """
    A recount from the log and a recalculation leave the sums of an erased person under the pseudonym. Neither
    brings a name back.
    """
    world = await world_of(serve, Config())
    await allow(world)
    await sent(world, random.Random(2), [CANARY, "bob", CANARY])
    before = await whole(world)
    await erased(world)
    storage = world.serving.app.services.storage
    after = await lines(world)
    checked(await world.ask("POST", "/ledger/rebuild", {}))
    await storage.ledger.catch_up(storage.log)
    assert (before, after) == (await whole(world), await lines(world))
    checked(await world.ask("POST", "/ledger/reprice", {"since": "2026-01-01"}))
    assert {ERASED: 2, "bob": 1} == {name: calls for name, (calls, _) in (await lines(world)).items()}
    assert {ERASED, "bob"} == after.keys()


async def test_a_seat_stays_with_its_calls(serve: Serve) -> None:
    """The seat of an erased person covers the same calls, and the costs of the plan stay."""
    world = await world_of(serve, Config())
    await allow(world)
    view = {"name": "All", "filter": {"source": ["otel"]}, "principal_dimension": "model"}
    plan = {"name": "Team", "view": checked(await world.ask("POST", "/views", view))["view"]["id"], "fee": "20",
            "seats": [{"user": CANARY, "since": "2026-01-01"}, {"user": "bob", "since": "2026-01-01"}]}  # fmt: skip
    made = checked(await world.ask("POST", "/plans", plan))["plan"]
    await sent(world, random.Random(3), [CANARY, "bob", CANARY])
    before = checked(await world.ask("GET", "/plan-costs"))
    receipt = await erased(world)
    seats = checked(await world.ask("GET", f"/plans/{made['id']}"))["plan"]["seats"]
    [pseudonym] = receipt["file"]["erasures"][0]["names"].values()
    assert {pseudonym, "bob"} == {seat["user"] for seat in seats}
    after = checked(await world.ask("GET", "/plan-costs"))
    assert json.dumps(before).replace(CANARY, pseudonym) == json.dumps(after)


async def run(world: World, *words: str, code: int = 0) -> str:
    config = ["--data", str(world.serving.app.config.data_dir), "--as", "root@example.com"]
    result = await asyncio.to_thread(CliRunner().invoke, main, [*words, *config])
    assert code == result.exit_code, result.output
    return result.output


async def test_a_restored_backup_brings_no_name_back(serve: Serve, tmp_path: Path) -> None:
    """
    The file of erasures contains no name. A backup that is restored together with it contains no erased name
    either, also of a call whose start is ahead.
    """
    world = await world_of(serve, Config())
    await allow(world)
    await sent(world, random.Random(4), [CANARY, "bob", ADDRESS])
    start = int((datetime.now(UTC) + timedelta(hours=26)).timestamp()) * 10**9
    span = json_span("gpt-4o", startTimeUnixNano=str(start), endTimeUnixNano=str(start + 10**9))
    span["attributes"].append({"key": "user.id", "value": {"stringValue": CANARY}})
    assert 200 == (await world.serving.send("/v1/traces", json_traces(span))).status
    checked(await world.ask("POST", "/people", {"people": [{"users": [CANARY, ADDRESS], "name": "Canary"}]}))
    await run(world, "backup", str(tmp_path / "backup"))
    separate, before = await lines(world), await whole(world)
    said = await run(world, "people", "erase", CANARY, "--texts", "--confirm", "Canary")
    assert "3 calls" in said or "2 calls are shown as (erased)" in said, said
    assert f"backups: {tmp_path / 'backup'}" in said
    file = tmp_path / "erasures.json"
    file.write_text(await run(world, "people", "erasures"))
    assert CANARY not in file.read_text() and "canary" not in file.read_text()

    words = ["restore", str(tmp_path / "backup"), "--data", str(tmp_path / "restored"), "--queued", "hold"]
    refused = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert (2, True) == (refused.exit_code, "--erasures" in refused.output)
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    refused = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--erasures", str(bad)])
    assert (2, True) == (refused.exit_code, "not a file of" in refused.output), refused.output
    restored = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--erasures", str(file)])
    assert 0 == restored.exit_code, restored.output
    assert "1 people" in restored.output
    contents = b"\0".join(contents_of(tmp_path / "restored").values())
    gone = (CANARY, world.people.hash_address(ADDRESS), "Canary")
    assert [] == [name for name in gone if name.encode() in contents]
    async with open_storage(Config(data_dir=tmp_path / "restored"), clock=SystemClock()) as storage:
        found = await search_for_names(storage.visit_rows, lambda text: "" if text in gone else text)
    assert ({}, True) == (found.rows, found.searched_bytes > 1000)
    words = ["people", "erasures", "--data", str(tmp_path / "restored"), "--as", "root@example.com"]
    known = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert json.loads(file.read_text()) == json.loads(known.output)
    assert separate.keys() - {CANARY} | {ERASED} == (await lines(world)).keys()
    assert before == await whole(world)


async def test_an_export_has_everything_about_one_person(serve: Serve, tmp_path: Path) -> None:
    """
    The export about a person has the names, calls, sums by month, seats and roles of this person, and nothing about
    others.
    """
    world = await world_of(serve, Config())
    await allow(world)
    await sent(world, random.Random(5), [CANARY, "bob", ADDRESS, CANARY])
    checked(await world.ask("POST", "/people", {"people": [{"users": [CANARY, ADDRESS], "name": "Canary"}]}))
    await run(world, "people", "export", "Canary", "--out", str(tmp_path / "out"))
    person = json.loads((tmp_path / "out" / "person.json").read_text())
    calls = [json.loads(line) for line in (tmp_path / "out" / "calls.ndjson").read_text().splitlines()]
    assert 3 == len(calls) == sum(month["calls"] for month in person["months"])
    assert (
        {CANARY, world.people.hash_address(ADDRESS)} == {call["user"] for call in calls} == {*person["names"]}
    )
    assert "bob" not in json.dumps([person, calls])
    socket = socket_path(world.serving.app.config.data_dir)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
        url = f"http://tollhouse{OPERATOR_API}/people/Canary/export"
        async with session.get(url, headers=AS) as response:
            first, *others = [json.loads(line) for line in (await response.text()).splitlines()]
    assert (200, person["names"], calls) == (response.status, first["names"], others)
    assert "already exists" in await run(
        world, "people", "export", "Canary", "--out", str(tmp_path / "out"), code=2
    )


async def test_a_late_report_of_an_erased_call_names_nobody(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]]
) -> None:
    """
    If a late report arrives for a call that was closed when its person was erased, the report does not bring the
    name back. Here a later span states the usage, and the name again.
    """
    config, outside = storage_of
    world = await world_of(serve, config)
    await allow(world)
    start = int((datetime.now(UTC) - timedelta(minutes=5)).timestamp()) * 10**9
    span = json_span("gpt-4o", startTimeUnixNano=str(start), endTimeUnixNano=str(start + 10**9))
    span["attributes"].append({"key": "user.id", "value": {"stringValue": CANARY}})
    storage = world.serving.app.services.storage
    for usage in (0, 250):
        if usage:
            usages = [{"key": "gen_ai.usage.output_tokens", "value": {"intValue": str(usage)}}]
            span = {**span, "attributes": span["attributes"] + usages}
        assert 200 == (await world.serving.send("/v1/traces", json_traces(span))).status
        await storage.ledger.catch_up(storage.log)
        if not usage:
            assert {CANARY: 1} == {name: calls for name, (calls, _) in (await lines(world)).items()}
            await erased(world)
        assert CANARY.encode() not in await stored(world, outside)
    [(name, (calls, cost))] = (await lines(world)).items()
    assert (ERASED, 1, True) == (name, calls, cost > 0)
    assert [] == checked(await world.ask("GET", "/verify"))["imbalances"]


async def test_a_waiting_report_is_stated_and_does_not_bring_the_name_back(serve: Serve) -> None:
    """A Langfuse trace whose call has not ended waits under the name, so the receipt says until when."""
    world = await world_of(serve, Config())
    await allow(world)
    await sent(world, random.Random(6), [CANARY])
    begun = {"id": "e1", "type": "trace-create", "timestamp": "2026-11-20T07:15:06Z",
             "body": {"id": "t1", "userId": CANARY}}  # fmt: skip
    (world.serving.app.config.data_dir / "ledger.sqlite.damaged-1").write_bytes(b"")
    answer = await world.serving.send("/v1/ai-telemetry/langfuse", json.dumps({"batch": [begun]}).encode())
    assert 207 == answer.status
    receipt = await erased(world)
    [waiting] = [place for place in receipt["places"] if place["place"] == "waiting"]
    assert ("pending", True) == (waiting["state"], waiting["until"] > receipt["at"])
    [damaged] = [place for place in receipt["places"] if place["place"] == "damaged files"]
    assert ("ask", ["ledger.sqlite.damaged-1"]) == (damaged["state"], damaged["listed"])


async def test_a_search_finds_no_erased_name(serve: Serve) -> None:
    """A search finds no erased name, because nothing that an earlier search found is kept in memory."""
    world = await world_of(serve, Config())
    await allow(world)
    await sent(world, random.Random(7), [CANARY, "bob", CANARY])
    checked(await world.ask("POST", "/people", {"people": [{"users": [CANARY], "name": "Canary Person"}]}))
    for text in (CANARY, "bob"):
        assert checked(await world.ask("GET", "/search", q=text))["found"], text
    await erased(world, texts=True)
    for text in (CANARY, "canary"):
        assert [] == checked(await world.ask("GET", "/search", q=text))["found"]
    assert checked(await world.ask("GET", "/search", q="bob"))["found"]


async def test_a_person_for_whom_a_gateway_called_is_erased(serve: Serve) -> None:
    """A person whom a gateway reports only as the end user of its own user's calls is known, and is erased."""
    world = await world_of(serve, Config())
    await allow(world)
    call = {
        "id": "chatcmpl-1",
        "call_type": "acompletion",
        "status": "success",
        "model": "gpt-4o",
        "custom_llm_provider": "openai",
        "startTime": datetime.now(UTC).timestamp(),
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "end_user": CANARY,
        "metadata": {"user_api_key_user_id": "service"},
    }
    answer = await world.serving.send("/v1/ai-telemetry/litellm", json.dumps(call).encode())
    assert 200 == answer.status
    [record] = await world.serving.records()
    assert ("service", CANARY) == (record.user, record.tags["end_user"])
    trial = await erased(world, dry_run=True)
    receipt = await erased(world)
    counts = [
        next(place["count"] for place in each["places"] if place["place"] == "records")
        for each in (trial, receipt)
    ]
    assert [1, 1] == counts
    assert CANARY.encode() not in await stored(world, lambda: iter(()))


async def test_an_erasure_changes_no_waste(serve: Serve) -> None:
    """The calls of an erased person's session are judged as before, and a late report of them brings no name back."""
    world = await world_of(serve, Config())
    await allow(world)
    log, begin = world.serving.app.services.storage.log, time.time() - 9_000.0 - START

    async def send(second: int, read: int | None, written: int | None) -> None:
        lane: dict[str, Any] = {
            "session": "late" if second == 2_000 else "talk",
            "tags": {"query_source": "main"},
        }
        made = call(begin + second, 31_000, read, written, user=CANARY, cache_write_1h_tokens=0, **lane)
        known_as = call_identity(made, response_id=f"msg_{second:032d}")
        made.id = known_as.id
        await add(log, (made, known_as))

    async def judged(session: str) -> Any:
        found = checked(await world.ask("GET", f"/work/session/{session}/waste", range="last_7d"))
        return found["waste"], found["calls"]

    for second, read, written in (
        (0, 0, 31_000),
        (60, 8_000, 23_000),
        (1_500, 0, 31_000),
        (2_000, None, None),
    ):
        await send(second, read, written)
    before, [late] = await judged("talk"), (await judged("late"))[1]
    assert {"break", "pause"} <= before[0]["amounts"].keys()
    await erased(world)
    assert (before, [late]) == (await judged("talk"), (await judged("late"))[1])
    await send(2_000, 1_000, 30_000)
    [later] = (await judged("late"))[1]
    assert late["parts"] != later["parts"]
    shown = [await judged("talk"), later, checked(await world.ask("GET", f"/records/{later['id']}"))]
    assert CANARY not in json.dumps(shown)
    assert CANARY.encode() not in await stored(world, lambda: iter(()))


async def test_a_comparison_for_an_erased_name_is_that_for_no_name(serve: Serve) -> None:
    """
    A compared report with the filter of an erased name has the figures of an unknown name, and with the filter of
    all erased people those of the name before, in both compared times.
    """
    world = await world_of(serve, Config())
    await allow(world)
    day_ns = 86_400 * 10**9
    for user, days in ((CANARY, 2), (CANARY, 3), (CANARY, 9), ("bob", 2), ("bob", 20)):
        at = str(time.time_ns() - days * day_ns)
        span = json_span("gpt-4o", startTimeUnixNano=at, endTimeUnixNano=at)
        span["attributes"].append({"key": "user.id", "value": {"stringValue": user}})
        assert 200 == (await world.serving.send("/v1/traces", json_traces(span))).status

    async def figures(name: str, form: str) -> Any:
        asked = {
            "range": "last_7d",
            "compare": "previous",
            "where": f"user{form}{name}",
            "show": "calls,cost",
        }
        found = checked(await world.ask("GET", "/report", by="model", **asked))
        assert found["report"]["compared"] is not None
        return found["rows"], found["total"]

    named = await figures(CANARY, "="), await figures(CANARY, "!=")
    assert [2, 1] == [each["calls"] for each in (named[0][1], named[0][1]["previous"])]
    await erased(world)
    assert named == (await figures(ERASED, "="), await figures(ERASED, "!="))
    for form in ("=", "!="):
        assert await figures("nobody", form) == await figures(CANARY, form)
