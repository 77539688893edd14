"""Random logs of calls, counters and late reports, and random questions about them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import compress
from zoneinfo import ZoneInfo

import msgspec

from spool.ledger.dimensions import GRANULARITIES, TOTAL, DerivedDimension
from spool.ledger.queries import EVERY_METER, CostQuery
from spool.ledger.sums import MAX_TOKENS
from spool.processing import processing_mode
from spool.record import (
    CALL_UNIT,
    CURRENCY,
    NS,
    TOKEN_UNIT,
    Correction,
    Inference,
    RecalculationEntry,
    Record,
    UsageMetric,
)
from tests.spool.ledger_log import BEGIN, HOUR, FakeLog

DAY = 24 * HOUR
SPREAD = 20 * DAY
LISTED = ("service", "Service", "zone")  # two tags that differ only in case
MODELS = ("acme-large", "acme-small", "müller-é", "x" * 300, "(other)")
TEAMS = ("research", "sales", "", "o'neil", None)
METERS = ("web_searches", "input_audio_tokens", "audio_seconds")
ZONES = (UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata"), ZoneInfo("America/New_York"))
GROUPS = (
    "model",
    "request_model",
    "team",
    "user",
    "source",
    "provider",
    "status",
    "cost_source",
    "region",
    "sender",
    "tag:service",
    "tag:Service",
    "tag:zone",
    "team_of_model",
    "session",
    "run",
    "repository",
)
MEASURES = ("cost", "calls", "errors", "unpriced", "free", "input_tokens", "cached_output_tokens", "latency")
# a dimension of the organization, from two others
TEAM_OF_MODEL = DerivedDimension(
    name="team_of_model",
    label="Team of a model",
    sources=("model", "team"),
    value=lambda values: f"{values[0][:4]} of {values[1]}" if values[1] else "",
)


@dataclass(frozen=True)
class TieredPrices:
    """Prices by size, tier, meter and time, none for some models, in millionths of a dollar a token."""

    base: int

    def estimate_record(self, record: Inference) -> str | None:
        if record.response_model == "acme-small" or record.input_tokens is None:
            return None
        rate = self.base * (3 if record.input_tokens > 150_000 else 1)  # an edge within a size class of sums
        rate *= 1 if not processing_mode(record.tags) else 2
        rate *= (
            5 if (record.start_time or 0) // NS % 3600 < 1800 else 7
        )  # a price that changes within an hour
        cost = rate * (record.input_tokens + (record.output_tokens or 0)) + 11 * len(record.meters)
        return f"{cost // 10**6}.{cost % 10**6:06}"


def opened_prices(price_list: bytes, own_prices: bytes) -> TieredPrices:
    return TieredPrices(int(price_list) + int(own_prices))


def recalculation(chance: random.Random) -> RecalculationEntry:
    return RecalculationEntry(
        id=chance.randbytes(16),
        since=int(BEGIN + chance.choice((-90 * DAY, DAY + HOUR // 3, 7 * DAY))),
        price_list=compress(str(chance.randint(0, 3)).encode()),
        own_prices=b"1",
        user="ada",
    )


def random_log(
    chance: random.Random, *, entries: int = 12, charges: bool = False, recalculations: bool = False
) -> FakeLog:
    log = FakeLog()
    calls: list[Inference] = []
    for place in range(entries):
        at = BEGIN + SPREAD * place / entries
        records: list[Record | None] = [
            random_record(chance, at, charges=charges) for _ in range(chance.randint(1, 12))
        ]
        records += [random_correction(chance, calls, at) for _ in range(chance.randint(0, 3)) if calls]
        calls += [
            each
            for each in records
            if isinstance(each, Inference) and not each.shadow and 0 < (each.start_time or 0) < at * NS + 1
        ]
        if chance.random() < 0.1:
            records.append(None)
        if recalculations and chance.random() < 0.2:
            records.insert(chance.randint(0, len(records)), recalculation(chance))
        log.add(records, at=at)
    return log


def random_correction(chance: random.Random, calls: list[Inference], at: float) -> Correction:
    """Make a late report about a stored call, which from now on has the new state, or is counted by another call."""
    place = chance.randrange(len(calls))
    before = calls[place]
    after = msgspec.structs.replace(
        before,
        cost=chance.choice((before.cost, "0.75")),
        output_tokens=chance.choice((before.output_tokens, 77, MAX_TOKENS + 1)),
        team=chance.choice((before.team, "late")),
        status=chance.choice((before.status, "ok")),
        shadow=chance.random() < 0.2,
        tags={**before.tags, **chance.choice(({}, {"zone": "late"}))},
    )
    if after.cost is not None:
        after.cost_source = "reported"
    if (
        after.output_tokens or 0
    ) <= MAX_TOKENS:  # a state that is too large to count does not become the call's
        calls[place] = after
    if after.shadow:
        del calls[place]
    start_time = before.start_time or 0
    return Correction(
        id=chance.randbytes(16),
        source="late",
        corrects=before.id,
        reason="late_usage",
        known_at=start_time,
        start_time=start_time,
        before=before,
        after=after,
    )


def random_record(chance: random.Random, at: float, *, charges: bool = False) -> Record | None:
    record = random_call(chance, at) if chance.random() < 0.8 else random_counter(chance, at)
    if charges and isinstance(record, Inference) and chance.random() < 0.3:
        record.cost, record.charges = None, {chance.choice(("EUR", "JPY")): str(chance.randint(1, 9) / 8)}
        record.cost_source = "reported"
    return record


def random_call(chance: random.Random, at: float) -> Inference:
    start = int((at - chance.choice((0, 5, HOUR, 3 * DAY))) * NS) + chance.randrange(NS)
    tags = {
        name: chance.choice(("a", "b", "ü", "(other)"))
        for name in (*LISTED, "repository", "ticket")
        if chance.random() < 0.4
    }
    if chance.random() < 0.1:
        tags["service_tier"] = "flex"
    if chance.random() < 0.1:
        start = chance.choice((None, 0, int((at + 5 * HOUR) * NS)))  # type: ignore[assignment]
    amount = chance.choice((None, "0.00035", "0", "12.345678901234567890123456789", "-0.0000000000000001"))
    estimate = chance.choice((None, "0.1", "0.000000000123"))
    return Inference(
        id=chance.randbytes(16),
        source=chance.choice(("litellm", "claude_code")),
        provider=chance.choice(("acme", None)),
        request_model=chance.choice(MODELS),
        response_model=chance.choice((*MODELS, None)),
        start_time=start,
        end_time=None if start is None else start + chance.choice((-1, 0, 90, 4000, 400_000)) * NS // 1000,
        input_tokens=chance.choice((None, 0, 100, 250_000, MAX_TOKENS, MAX_TOKENS + 1)),
        output_tokens=chance.choice((None, 0, 10)),
        cache_read_tokens=chance.choice((None, 50)),
        cache_write_1h_tokens=chance.choice((None, 3)),
        cost=amount,
        estimated_cost=estimate,
        cost_source=chance.choice(
            [*(("reported",) if amount else ()), *(("estimated",) if estimate else ()), "none"]
        ),
        status=chance.choice(("ok", "ok", "error", "cached")),
        user=chance.choice(("ada", "bob", None)),
        team=chance.choice(TEAMS),
        region=chance.choice(("eu", None)),
        sender_key=chance.choice(("key", None)),
        session=chance.choice(("s1", "s2", None)),
        run=chance.choice(("r1", "r2", None)),
        parent_run=chance.choice(("r1", None)),
        tags=tags,
        shadow=chance.random() < 0.05,
        meters={name: chance.choice((1, "0.25")) for name in METERS if chance.random() < 0.1},
    )


def random_counter(chance: random.Random, at: float) -> UsageMetric:
    unit = chance.choice((TOKEN_UNIT, TOKEN_UNIT, CURRENCY, CALL_UNIT))
    value: int | str = chance.choice((5, -3, 100))
    return UsageMetric(
        id=chance.randbytes(16),
        source="claude_code",
        name=chance.choice(("claude_code.token.usage", "gemini_cli.token.usage")),
        model=chance.choice(MODELS),
        token_type=chance.choice(("input", "output", "cache_read", "cache_write", "reasoning", "unknown")),
        value=f"{value}.5" if unit == CURRENCY else value,
        unit=unit,
        start_time=int(at * NS),
        user=chance.choice(("ada", None)),
        session=chance.choice(("s1", None)),
        tags=chance.choice(
            ({}, {"zone": "a"}, {"correction_status": "cached", "correction_cost_source": "estimated"})
        ),
        meter=chance.choice((None, "input_audio_tokens")),
    )


def random_query(chance: random.Random, *, groups: Sequence[str] = GROUPS) -> CostQuery:
    zone = chance.choice(ZONES)
    since = datetime.fromtimestamp(BEGIN, UTC) + timedelta(days=chance.randint(-3, 5))
    granularity = chance.choice((TOTAL, *GRANULARITIES))
    if granularity != "hourly":
        since = since.astimezone(zone).replace(hour=0)
    group_by = chance.sample(groups, k=chance.choice((0, 1, 1, 2)))
    units = [name for name in group_by if name in ("session", "run", "repository")]
    group_by = [name for name in group_by if name not in units[1:]]
    options: dict[str, Any] = {}
    for filters in ("include", "exclude"):
        if chance.random() < 0.3:
            name = chance.choice(("team", "model", "status", "team_of_model", "tag:zone"))
            values = chance.sample(("research", "ok", "acme-large", "a", "", "o'neil"), k=2)
            options[filters] = {name: tuple(values)}
    if chance.random() < 0.3:
        options["measures"] = tuple(chance.sample(MEASURES, k=2))
    if not units and chance.random() < 0.3:
        options["meter"] = chance.choice((EVERY_METER, *METERS))
    if group_by and chance.random() < 0.2:
        options["top"] = 2
    return CostQuery(
        since=since,
        until=since + timedelta(days=chance.choice((1, 8, 30))),
        granularity=granularity,
        group_by=group_by,
        zone=zone,
        derived={TEAM_OF_MODEL.name: TEAM_OF_MODEL},
        **options,
    )
