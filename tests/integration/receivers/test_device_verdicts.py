"""The verdicts in the answer to a heartbeat: which rows a device gets, and who gets none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.devices.own_verdicts import NewestBudgetVerdicts
from gateway.money.budgets import verdicts
from spool.record import NS
from spool.registry.scopes import ENROLL, HEARTBEAT
from spool.registry.views import NewView
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.operations.money.test_published_budgets import SCOPES, Asking
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_devices import ask, config, said
from tests.rounds import part
from tests.spool.ledger.rebuilding import rebuild_without_end

SMALL, LARGE = "0.001", "1000"  # an amount that two calls exceed, and one that they do not


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the table with the ledger at each look."""
    monkeypatch.setattr(verdicts, "REFRESH_S", 0.0)
    monkeypatch.setattr(verdicts, "LOOK_S", 0.0)


async def _gateway(serve: Serve, granted: str) -> Serving:
    return await serve(config=config(verdicts=granted))


async def _view(gateway: Serving, name: str, **include: list[str]) -> str:
    registry = gateway.app.services.operators.installation.require_registry()
    filter = {name: tuple(values) for name, values in include.items()}
    draft = NewView(name=name, principal_dimension="model", filter=filter)
    return (
        await registry.views.create(draft, known_dimensions=("model", *include), max_rows=20, actor=ACTOR)
    ).id


async def _budget(gateway: Serving, name: str, view: str, amount: str, per: str | None = None) -> None:
    key = await gateway.make_key(f"budgets of {name}", scopes=SCOPES)
    await Asking(gateway, key, view).create(name=name, default_amount=amount, per=per)


async def _enrolled(gateway: Serving, id: str, person: str = "", **body: Any) -> str:
    """Enrol a laptop, let an operator name its person, and return its own key."""
    key = await gateway.make_key(f"enrolment of {id}", scopes=[ENROLL])
    made = said(await ask(gateway, "enroll", {"device_id": id, "want_key": True, **body}, key))
    assert "verdicts" not in made
    if person:
        await gateway.app.services.single.devices.change_labels(id, {"user": person}, ACTOR)
    return str(made["key"])


async def _calls(gateway: Serving, key: str) -> None:
    """Send two calls as a laptop. The answer states no verdict."""
    start = int(gateway.app.services.receivers.clock.now()) * NS
    times: dict[str, Any] = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + NS)}
    spans = [json_span("gpt-4o", **times) for _ in range(2)]
    answer = await gateway.send("/v1/traces", json_traces(*spans), key=key)
    assert b"verdict" not in answer.body


async def _beat(gateway: Serving, id: str, key: str, **body: Any) -> Mapping[str, Any] | None:
    answer = await ask(gateway, "heartbeat", {"device_id": id, **body}, key)
    assert 200 == answer.status
    stated: Mapping[str, Any] | None = said(answer).get("verdicts")
    return stated


def _names(stated: Mapping[str, Any] | None) -> list[str]:
    assert stated is not None
    return [row["name"] for row in stated["rows"]]


async def _every_budget(gateway: Serving) -> None:
    """Create budgets that two calls of a laptop exceed, and some that they do not."""
    everything = await _view(gateway, "everything")
    await _budget(gateway, "each user", everything, SMALL, "user")
    await _budget(gateway, "each device", everything, SMALL, "device")
    await _budget(gateway, "each team", everything, SMALL, "team")
    await _budget(gateway, "all calls", everything, SMALL)
    await _budget(gateway, "large", everything, LARGE, "user")
    await _budget(gateway, "Ada", await _view(gateway, "Ada", user=["ada"]), SMALL)
    await _budget(gateway, "both", await _view(gateway, "both", user=["ada", "ben"]), SMALL)
    await _budget(gateway, "search", await _view(gateway, "search", team=["search"]), SMALL, "user")
    await _budget(gateway, "gpt", await _view(gateway, "gpt", model=["gpt-4o"]), SMALL, "user")


@pytest.mark.parametrize("granted", part(["off", "state", "amounts"], every=2))
async def test_a_device_gets_the_rows_of_itself_and_of_its_person(serve: Serve, granted: str) -> None:
    """
    A device gets the rows of verdicts about itself and about its person. A row of several people, of a team, of all
    calls or of a model is not about the device, and a row within another one is left out. Amounts are stated only
    if they are granted.
    """
    gateway = await _gateway(serve, granted)
    await _every_budget(gateway)
    key = await _enrolled(gateway, "laptop-1", "ada", labels={"team": "search"})
    await _calls(gateway, key)
    stated = await _beat(gateway, "laptop-1", key)
    if granted == "off":
        assert stated is None
        return
    assert stated is not None
    assert ["Ada", "each device", "each user", "search"] == sorted(_names(stated))
    fields = {"name", "state", "resets_at"} | (
        {"spent", "limit", "currency"} if granted == "amounts" else set()
    )
    assert all(fields == {*row} and "over" == row["state"] for row in stated["rows"])
    if granted == "amounts":
        assert {("0.0012", SMALL, "USD")} == {
            (row["spent"], row["limit"], row["currency"]) for row in stated["rows"]
        }


async def test_a_device_that_claims_a_person_gets_no_row_of_that_person(serve: Serve) -> None:
    """Only an operator names the person of a device. Any name of that person finds the rows."""
    gateway = await _gateway(serve, "amounts")
    await _every_budget(gateway)
    ada = await _enrolled(gateway, "laptop-1", "Ada@Example.com")
    await _calls(gateway, ada)
    claims: dict[str, Any] = {"user": "ada@example.com", "labels": {"user": "ada@example.com"}}
    thief = await _enrolled(gateway, "laptop-2", **claims)
    assert [] == _names(await _beat(gateway, "laptop-2", thief, **claims))
    ben = await _enrolled(gateway, "laptop-3", "ben")
    assert [] == _names(await _beat(gateway, "laptop-3", ben, **claims))
    assert ["each device", "each user"] == sorted(_names(await _beat(gateway, "laptop-1", ada)))
    second = await _enrolled(gateway, "laptop-4", "ada@example.com")
    assert ["each user"] == _names(await _beat(gateway, "laptop-4", second))


async def test_nobody_else_gets_the_rows_of_a_device(serve: Serve) -> None:
    """
    Nobody else gets the rows of a device: neither an enrolment key, another Tollhouse that forwards the heartbeat,
    a ping nor a revoked device.
    """
    gateway = await _gateway(serve, "amounts")
    await _every_budget(gateway)
    near = await gateway.make_key("near", scopes=[ENROLL, HEARTBEAT])
    assert await _beat(gateway, "laptop-1", near) is None
    key = await _enrolled(gateway, "laptop-2", "ada")
    await _calls(gateway, key)
    assert await _beat(gateway, "laptop-1", near) is None
    ping = await ask(gateway, "ping", {"device_id": "laptop-2"}, key)
    assert {"ok": True} == json.loads(ping.body)
    assert 403 == (await gateway.send("/v2/budgets/verdicts", b"", method="GET", key=key)).status


async def test_a_heartbeat_is_accepted_without_a_table(serve: Serve) -> None:
    """
    A heartbeat does not fail if there is no table of verdicts, because totals are counted again or no budget
    exists.
    """
    gateway = await _gateway(serve, "state")
    key = await _enrolled(gateway, "laptop-1", "ada")
    ledger = gateway.app.services.storage.ledger

    async with rebuild_without_end(ledger):
        assert await _beat(gateway, "laptop-1", key) is None
    assert [] == _names(await _beat(gateway, "laptop-1", key))


def _text(**changes: Any) -> bytes:
    row = {"name": "each user", "state": "over", "resets_at": "2027-01-01T00:00:00.000Z"}
    return json.dumps({"valid_until": "2026-12-09T12:05:00.000Z", "rows": [row | changes]}).encode()


def test_an_agent_keeps_verdicts_until_they_expire() -> None:
    """
    An agent keeps its verdicts until `valid_until`, also while the laptop is offline. A later answer replaces them.
    """
    now = 1_796_817_600.0  # 2026-12-09T12:00:00Z
    kept = NewestBudgetVerdicts(lambda: now)
    assert "" == kept.reason_to_refuse_calls()
    kept.replace_with_json_text(_text())
    sentence = "Tollhouse: the budget each user is spent until 2027-01-01T00:00:00.000Z."
    assert sentence == kept.reason_to_refuse_calls()
    now += 299.0
    assert sentence == kept.reason_to_refuse_calls()
    now += 1.0
    assert "" == kept.reason_to_refuse_calls()
    now -= 1.0
    kept.replace_with_json_text(_text(state="near"))
    assert "" == kept.reason_to_refuse_calls()
    kept.replace_with_json_text(_text(spent="7.61", limit="7.50", currency="USD"))
    assert "the budget each user is spent (7.61 of 7.50 USD) until" in kept.reason_to_refuse_calls()
    kept.replace_with_json_text(b"null")
    assert "" == kept.reason_to_refuse_calls()


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b"[" * 100_000, _text(state=7), _text().replace(b"2026", b"x")]
)
def test_an_agent_ignores_what_is_no_verdict(text: bytes) -> None:
    kept = NewestBudgetVerdicts(lambda: 1_796_817_600.0)
    kept.replace_with_json_text(_text())
    kept.replace_with_json_text(text)
    assert "" == kept.reason_to_refuse_calls()
