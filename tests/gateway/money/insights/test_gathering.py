"""Detectors read only a few rows of the ledger, and find the same as if they read all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.money.insights.detector_facts import DAY_S, PeriodSpend
from gateway.money.insights.detectors.calls import no_owner
from gateway.money.insights.detectors.spending import spend_spike
from gateway.money.insights.gathering import SpendReader, recent_calls
from spool.ledger.ledger import Ledger
from spool.log.planning.corrections import correction_subtracting_duplicate
from spool.record import NS, Inference
from spool.sqlite.ledger import open_ledger
from tests.gateway.money.insights.examples import NOW, TODAY, found
from tests.spool.ledger_log import FakeClock, FakeLog, call

TEAMS, MODELS = ("search", "docs", "ops", None), ("gpt-4o", "o3", "mini", "large")
EVERYTHING = ("source", "provider", "model", "team", "user", "api_key")


def calls_of(days_ago: int) -> list[Inference]:
    """
    Create a day of calls of each team with each model. Two days ago the team `docs` spent ten times as
    much with o3.
    """
    call_fields: list[dict[str, Any]] = []
    for team in TEAMS:
        for model in MODELS:
            is_rise = days_ago == 2 and (team, model) == ("docs", "o3")
            cost = "100" if is_rise else "2" if model == "gpt-4o" else "1"
            user = "ada" if team is None and model == "mini" else None
            call_fields.append({"team": team, "request_model": model, "reported": cost, "user": user})
    start = int((TODAY - days_ago * DAY_S + 3600) * NS)
    return [
        call(
            id=bytes([days_ago, number]) * 8,
            start_time=start,
            cost=fields.pop("reported"),
            cost_source="reported",
            api_key=f"key-{number % 3}",
            **fields,
        )
        for number, fields in enumerate(call_fields)
    ]


async def filled(directory: Path) -> Ledger:
    ledger = await open_ledger(directory, clock=FakeClock(NOW))
    log = FakeLog()
    for days_ago in range(42, 0, -1):
        log.add(calls_of(days_ago), at=TODAY - days_ago * DAY_S + 7200)
    await ledger.catch_up(log)
    return ledger


async def test_reversed_call_is_no_recent_call() -> None:
    """
    A call that was taken back is not among the recent calls. Otherwise, the two reports of one call would look like
    a source that counts twice.
    """
    log, counted, gone = FakeLog(), call(id=b"1" * 16), call(id=b"2" * 16)
    log.add([counted, gone])
    log.add([correction_subtracting_duplicate(gone, 0, counted.id, counted, now_ns=int(NOW * NS))])
    assert [counted] == await recent_calls(log, 0)  # type: ignore[arg-type]


async def whole(reader: SpendReader, days: int) -> list[PeriodSpend]:
    return await reader.read_spends(TODAY - days * DAY_S, "daily", EVERYTHING)


async def test_models_are_read_only_for_teams_that_spent_more(tmp_path: Path) -> None:
    """
    Models are read only for teams that spent more. For 500 teams and 200 models, all rows of six weeks
    took 700 MiB.
    """
    ledger = await filled(tmp_path)
    try:
        reader = SpendReader(ledger, NOW)
        days = await reader.daily_team_spend(TODAY - 42 * DAY_S)
        assert len(days) == 41 * len(TEAMS) + len(TEAMS) - 1 + len(MODELS)
        [spike] = found(spend_spike, days=days)
        assert [spike] == found(spend_spike, days=await whole(reader, 42))
        assert "The largest part was o3 with $100.00" in spike.draft.description
    finally:
        await ledger.close()


async def test_a_week_is_by_key_where_nobody_is_named_alone(tmp_path: Path) -> None:
    ledger = await filled(tmp_path)
    try:
        reader = SpendReader(ledger, NOW)
        week, everything = await reader.daily_spend_by_model(TODAY - 7 * DAY_S), await whole(reader, 7)
        for name in ("cost", "calls", "input_tokens", "output_tokens"):
            assert sum(getattr(each, name) for each in week) == sum(
                getattr(each, name) for each in everything
            )
        [finding] = found(no_owner, week=week)
        assert [finding] == found(no_owner, week=everything)
        assert len({(spend.user, spend.team, spend.api_key) for spend in week}) == 4
    finally:
        await ledger.close()
