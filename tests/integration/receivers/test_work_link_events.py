"""Events of the type `tollhouse.work.link` link units of work. Only keys that may send events can do so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson
import pytest

from gateway.core.paths import OPERATOR_API
from gateway.operations.money.work_links import declared
from gateway.operations.money.work_links.declared import WorkLinkTable
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from spool.record import USAGE_EVENTS
from spool.registry.scopes import CREATE_EVENT, ENROLL, INGEST, READ_TELEMETRY
from tests.integration.conftest import ACTOR, Answer, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_devices import ask
from tests.integration.receivers.test_topics import kept, said
from tests.rounds import part
from tests.waiting import until

LINK = {"type": "tollhouse.work.link", "data": {"session": "first", "pull_request": "acme/shop#42"}}


def table(serving: Serving) -> WorkLinkTable:
    return serving.app.services.operators.installation.require_registry().declared_table(WorkLinkTable)


def links(serving: Serving) -> list[tuple[str, str, str]]:
    return sorted((row.session or row.branch, row.pull_request, row.author) for row in table(serving).all())


def as_shown(serving: Serving, unit: str, id: str) -> str:
    return serving.app.services.storage.ledger.digests.digest_of_id(unit, id)


async def send(serving: Serving, key: str, *events: dict[str, Any]) -> Answer:
    return await serving.send("/v1/events", orjson.dumps(events), key=key)


async def test_an_event_links_a_fork_to_its_parent(serving: Serving) -> None:
    """A hook that starts a session or run may state which one started it. A circle is rejected with the reason."""
    key = await serving.make_key("hooks", scopes=[CREATE_EVENT])
    runs = [f"{number:032x}" for number in (1, 2)]
    forks = ({"session": "fork", "parent_session": "first"}, {"run": runs[1], "parent_run": runs[0]})
    events = [{"type": "tollhouse.work.link", "data": data} for data in forks]
    assert 2 == said(await send(serving, key, *events))["accepted"]
    assert {as_shown(serving, "session", "first"), as_shown(serving, "run", runs[0])} == {
        row.parent_session or row.parent_run for row in table(serving).all()
    }
    circle = {"type": "tollhouse.work.link", "data": {"session": "first", "parent_session": "fork"}}
    answer = await send(serving, key, circle)
    assert 400 == answer.status
    assert "this session would then be above itself" in str(said(answer))
    assert 2 == len(table(serving).all())
    stored: Any = await kept(serving, USAGE_EVENTS)
    assert [*forks] == [event.data for event in stored]  # an upstream has other digests
    reader = await serving.make_key("reader", scopes=[READ_TELEMETRY])
    async with serving.client.get(f"{serving.url}/v1/events", headers={"Authorization": reader}) as answer_:
        text = await answer_.text()
    assert 200 == answer_.status and 2 <= text.count("tollhouse.work.link")
    assert not any(id in text for id in ("fork", "first", *runs))


async def test_an_event_links_a_session(serving: Serving) -> None:
    """
    An event may link a session to a pull request: the cost of the session's calls is then that of the pull request,
    and repeats change nothing.
    """
    key = await serving.make_key("jobs", scopes=[CREATE_EVENT])
    span = json_span()
    span["attributes"].append({"key": "gen_ai.conversation.id", "value": {"stringValue": "first"}})
    assert 200 == (await serving.send("/v1/traces", json_traces(span))).status
    for _ in range(2):
        answer = await send(serving, key, LINK, {"type": "order"})
        assert 0 == said(answer)["rejected"], said(answer)
        assert [200, 2, 0] == [answer.status, said(answer)["accepted"], said(answer)["rejected"]]
    assert links(serving) == [(as_shown(serving, "session", "first"), "acme/shop#42", "jobs")]
    events: Any = await kept(serving, USAGE_EVENTS)
    assert ["first", None] * 2 == [event.data.get("session") for event in events]
    ledger = serving.app.services.storage.ledger

    since, until_ = (datetime(year, 1, 1, tzinfo=UTC) for year in (2000, 2100))
    query = CostQuery(since=since, until=until_, granularity=TOTAL, group_by=("pull_request",))

    async def is_linked() -> bool:
        return [("acme/shop#42",)] == [row.group for row in await ledger.costs(query)]

    await until(is_linked)


async def test_a_wrong_link_is_rejected_alone(serving: Serving) -> None:
    """
    An event with a wrong link is rejected alone: the answer names the item and the reason. The other events of the
    request are stored.
    """
    key = await serving.make_key("jobs", scopes=[CREATE_EVENT])
    wrong: list[dict[str, Any]] = [
        {},
        {"data": {"session": "first"}},
        {"data": {"session": "first", "pull_request": 42}},
        {"data": {"session": "first", "run": "a", "ticket": "T"}},
        {"data": {"session": "first", "ticket": {"id": "T"}}},
        {"data": {"commit": "(other)", "ticket": "T"}},
    ]
    other = {"type": LINK["type"], "data": {"session": "first", "pull_request": "acme/shop#43"}}
    unlinked = [{"type": LINK["type"], **event} for event in wrong]
    answer = await send(serving, key, LINK, {}, *unlinked, other, {"type": "order"})
    assert answer.status == 200
    results = said(answer)["events"]
    assert ["accepted", *["rejected"] * 8, "accepted"] == [each["status"] for each in results]
    assert {"malformed"} == {each["error"]["type"] for each in results[1:8]}
    assert results[8]["error"]["type"] == "not_linked"
    message = results[8]["error"]["message"]
    assert "already linked elsewhere" in message and "acme/shop" not in message
    assert 2 == len(await kept(serving, USAGE_EVENTS))
    assert 1 == len(links(serving))
    alone = await send(serving, key, other)
    assert (400, True) == (alone.status, "already linked" in said(alone)["error"]["message"])
    books = await serving.app.services.storage.log.books()
    assert books.imbalances == []


async def test_other_keys_cannot_link(serving: Serving) -> None:
    """
    A key for telemetry cannot link units of work, because it may not send events. Neither can the key of a laptop.
    """
    wide = await serving.make_key("ingest", scopes=[INGEST, ENROLL])
    enrolled = await ask(serving, "enroll", {"device_id": "laptop-1", "want_key": True}, wide)
    for key in (wide, said(enrolled)["key"], serving.key):
        assert 403 == (await send(serving, key, LINK)).status
    assert [] == links(serving)


async def test_a_key_gets_half_of_the_limit(serving: Serving) -> None:
    """
    One key can use at most half of the links that others leave free. Beyond this, an event is rejected and the
    answer says so.
    """
    serving.app.services.operators.installation.most = {table(serving).limit: 4}.__getitem__
    key = await serving.make_key("jobs", scopes=[CREATE_EVENT])
    events = [{"type": LINK["type"], "data": {"session": f"s{number}", "ticket": "T"}} for number in range(4)]
    answer = await send(serving, key, *events)
    results = said(answer)["events"]
    assert ["accepted", "accepted", "rejected", "rejected"] == [each["status"] for each in results]
    assert "at most half of what others leave free of work.links = 4" in results[2]["error"]["message"]


BRANCH_LINK = {
    "type": LINK["type"],
    "data": {"branch": "fix", "repository": "acme/shop", "pull_request": "acme/shop#42"},
}
CLOUD: Mapping[str, str] = {"ce-specversion": "1.0", "ce-type": str(BRANCH_LINK["type"]), "ce-source": "ci"}
FORMS: Mapping[str, Callable[[str], tuple[bytes, Mapping[str, str]]]] = {
    "id": lambda name: (orjson.dumps([{**BRANCH_LINK, "id": name, "source": "ci"}]), {}),
    "idempotency key": lambda name: (orjson.dumps(BRANCH_LINK), {"Idempotency-Key": name}),
    "second of a request": lambda name: (
        orjson.dumps([{"type": "a"}, BRANCH_LINK]),
        {"Idempotency-Key": name},
    ),
    "cloud event": lambda name: (
        orjson.dumps(BRANCH_LINK["data"]),
        {**CLOUD, "ce-id": name, "Content-Type": "application/json"},
    ),
}


@pytest.mark.parametrize("form", part([*FORMS], every=2))
async def test_a_repeated_event_undoes_nothing(serving: Serving, form: str) -> None:
    """
    If an operator edits or deletes a link, each event that stated it stays without effect, even if it is sent again,
    whether its id or its request is known. A new event links again.
    """
    key = await serving.make_key("jobs", scopes=[CREATE_EVENT])

    async def sent(name: str) -> None:
        body, headers = FORMS[form](name)
        answer = await serving.send("/v1/events", body, key=key, headers=headers)
        assert (200, 0) == (answer.status, said(answer)["rejected"]), answer

    for name in ("opened", "closed"):
        await sent(name)
    [link] = table(serving).all()
    await table(serving).change(link.id, {"until": "2026-11-20"}, actor=ACTOR)
    for name in ("closed", "opened"):
        await sent(name)
    [edited] = table(serving).all()
    assert "2026-11-20" == edited.until
    await table(serving).delete(link.id, actor=ACTOR)
    for name in ("opened", "closed"):
        await sent(name)
        assert [] == links(serving)
    await sent("reopened")
    assert ["acme/shop#42"] == [row.pull_request for row in table(serving).all()]


async def test_a_repeated_event_refuses_no_edit(serving: Serving) -> None:
    """
    If further events stated a link after an operator read it, the operator's edit is still accepted. A second edit
    of that version is refused.
    """
    key = await serving.make_key("jobs", scopes=[CREATE_EVENT])
    events = [{**LINK, "id": f"run-{number}", "source": "ci"} for number in range(3)]
    assert 200 == (await send(serving, key, events[0])).status
    [shown] = table(serving).all()
    for event in events[1:]:
        assert 200 == (await send(serving, key, event)).status
    [row] = table(serving).all()
    assert 3 == len(row.events)
    edits = [{"pull_request": f"acme/shop#{number}", "version": shown.version} for number in (43, 44)]
    socket = aiohttp.UnixConnector(str(serving.app.config.data_dir / "operator.sock"))
    path = f"http://tollhouse{OPERATOR_API}/work/links/{row.id}"
    async with aiohttp.ClientSession(
        connector=socket, headers={"X-Tollhouse-As": "ada@example.com"}
    ) as operator:
        assert [200, 409] == [(await operator.patch(path, json=edit)).status for edit in edits]


async def test_a_bounded_number_of_deletions_is_remembered(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a bounded number of deleted links is remembered, the newest ones."""
    monkeypatch.setattr(declared, "MOST_DELETED", 2)
    key = await serving.make_key("jobs", scopes=[CREATE_EVENT])
    for number in range(3):
        data = {"session": f"session {number}", "ticket": "T-1"}
        event = {"type": "tollhouse.work.link", "id": str(number), "source": "ci", "data": data}
        assert 1 == said(await send(serving, key, event))["accepted"]
        [link] = table(serving).all()
        await table(serving).delete(link.id, actor=ACTOR)
    registry = serving.app.services.operators.installation.require_registry()
    deleted = await registry.declared_table(WorkLinkTable)._changes.read(
        lambda rows: rows.documents("work_link_event")
    )
    assert 2 == len(deleted)
