"""The setting `work.branch`: names of branches are hashed or dropped before a record is stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from gateway.configuration.sections import Config, WorkSettings
from gateway.operations.money.work_links.declared import WorkLinkTable
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from spool.people import People
from spool.record import USAGE_EVENTS
from spool.registry.scopes import CREATE_EVENT
from spool.settings import SpoolSettings
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_topics import kept, said
from tests.stored_files import contents_of
from tests.waiting import until

CANARY = "ada-lovelace/fix-totals"
REPOSITORY = "https://github.com/acme/shop"


async def serving_with(serve: Serve, branch: str) -> tuple[Serving, str]:
    """Start a gateway, and send it a call on the branch and an event about it. Return the key of the events."""
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0))
    serving = await serve(config=replace(config, work=WorkSettings(branch=branch)))
    span = json_span()
    stated = {"vcs.ref.head.name": CANARY, "vcs.repository.url.full": REPOSITORY}
    span["attributes"] += [{"key": name, "value": {"stringValue": text}} for name, text in stated.items()]
    assert 200 == (await serving.send("/v1/traces", json_traces(span))).status
    key = await serving.make_key("jobs", scopes=[CREATE_EVENT])
    event = {"type": "build", "branch": CANARY, "data": {"branch": CANARY}}
    assert 200 == (await serving.send("/v1/events", orjson.dumps(event), key=key)).status
    return serving, key


async def stored(serving: Serving) -> list[str | None]:
    [call], [event] = await serving.records(), await kept(serving, USAGE_EVENTS)
    record: Any = event
    return [call.tags.get("branch"), record.tags.get("branch"), record.data.get("branch")]


def is_on_disk(directory: Path) -> bool:
    contents = contents_of(directory)
    assert contents
    return any(CANARY.encode() in data for data in contents.values())


async def linked(serving: Serving, key: str) -> Any:
    data = {"branch": CANARY, "repository": "acme/shop", "ticket": "T-1"}
    event = orjson.dumps({"type": "tollhouse.work.link", "data": data})
    return said(await serving.send("/v1/events", event, key=key))


def table(serving: Serving) -> WorkLinkTable:
    return serving.app.services.operators.installation.require_registry().declared_table(WorkLinkTable)


async def test_a_branch_is_hashed_and_found_by_its_name(serve: Serve, tmp_path: Path) -> None:
    """
    With `work.branch = "hash"`, records, links and files have the hash of a branch's name. Filters and links still
    accept the name itself.
    """
    serving, key = await serving_with(serve, "hash")
    people = People.for_installation(serving.app.services.storage.secret)
    hashed = people.recorded_git_branch(CANARY, "hash")
    assert hashed is not None and hashed == people.recorded_git_branch(hashed, "hash")
    assert await stored(serving) == [hashed] * 3
    assert 1 == (await linked(serving, key))["accepted"]
    assert [hashed] == [row.branch for row in table(serving).all()]

    costs = serving.app.services.storage.ledger
    assert costs.people is not None
    assert set(costs.people.expand_filter({"branch": (CANARY, "")})["branch"]) >= {CANARY, hashed, ""}
    query = CostQuery(
        since=datetime(2000, 1, 1, tzinfo=UTC),
        until=datetime(2100, 1, 1, tzinfo=UTC),
        granularity=TOTAL,
        group_by=("ticket",),
        include={"branch": (CANARY,)},
    )

    async def is_linked() -> bool:
        return [("T-1",)] == [row.group for row in await costs.costs(query)]

    await until(is_linked)
    assert not is_on_disk(tmp_path)


async def test_a_branch_is_dropped(serve: Serve, tmp_path: Path) -> None:
    """
    If names of branches are dropped, no record has a branch, and a link of a branch is refused with the reason.
    """
    serving, key = await serving_with(serve, "drop")
    assert await stored(serving) == [None] * 3
    assert 'work.branch is "drop"' in (await linked(serving, key))["error"]["message"]
    assert not is_on_disk(tmp_path)


async def test_branch_name_is_stored_by_default(serve: Serve, tmp_path: Path) -> None:
    serving, _ = await serving_with(serve, "keep")
    assert await stored(serving) == [CANARY] * 3
    assert is_on_disk(tmp_path)
