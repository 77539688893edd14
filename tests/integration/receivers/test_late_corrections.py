"""
Counters were forwarded before the calls of the same reporter arrived, and two reports of one call before a report
that names both. The corrections that take them back pass two gateways.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from exporters.settings import DestinationSettings, UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, CostRow
from spool.record import UsageMetric
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings
from tests.gateway.normalise.otlp.payloads import attribute
from tests.integration.conftest import Serve, Serving
from tests.integration.order.test_request_ids import MESSAGE, Piece, assistant, framework, provider, request
from tests.waiting import until

CASES = Path(__file__).parents[2] / "cases" / "otlp" / "claude_code"
EVERYTHING = CostQuery(
    since=datetime(2020, 1, 1, tzinfo=UTC), until=datetime(2040, 1, 1, tzinfo=UTC), granularity=TOTAL
)
Sums = tuple[int, str, int, int, int, int]


async def summed(serving: Serving) -> CostRow:
    ledger = serving.app.services.storage.ledger
    await ledger.catch_up(serving.app.services.storage.log)
    [row] = await ledger.costs(EVERYTHING)
    return row


def sums(row: CostRow) -> Sums:
    return (
        row.calls, row.cost, row.input_tokens, row.output_tokens, row.cache_read_tokens, row.cache_write_tokens,
    )  # fmt: skip


async def counters(serving: Serving) -> list[Decimal]:
    return [Decimal(record.value) for record in await serving.records() if isinstance(record, UsageMetric)]


def focus(path: Path) -> list[dict[str, str]]:
    """Return the complete lines, because another task appends to the file."""
    return list(csv.DictReader(path.read_text().rpartition("\n")[0].splitlines()))


async def chained(serve: Serve, directory: Path) -> tuple[Serving, Serving, Path]:
    """Return a gateway, the gateway to which it forwards, and its FOCUS file."""
    far = await serve(chain_keys=("near",))
    (directory / "near.key").write_text(await far.make_key("near", use_cases=[SEND_AI_TELEMETRY]))
    key = UpstreamKey(name="telemetry", secret_file=directory / "near.key", use_cases=(SEND_AI_TELEMETRY,))
    bill = directory / "focus.csv"
    config = Config(
        spool=SpoolSettings(hold=0.05, counter_wait=0.2),
        upstream=UpstreamSettings(base_url=far.url, kind="tollhouse", keys=(key,)),
        destinations=(DestinationSettings(name="bill", type="focus", path=bill),),
    )
    return await serve(config=config), far, bill


async def test_late_correction_of_a_call_passes_two_gateways(serve: Serve, tmp_path: Path) -> None:
    """
    An assistant and a framework report one call, and both reports are forwarded. Then the provider's span names both.
    The totals of both gateways and a FOCUS file have one call with its tokens.
    """
    near, far, bill = await chained(serve, tmp_path)

    async def counts(serving: Serving, n: int) -> bool:
        rows = await ledger_rows(serving)
        return n == sum(row.calls for row in rows)

    reports = (assistant(), request(framework_with_id()), request(provider(parent=None)))
    for n, one in enumerate(reports[:2], start=1):
        path = "/v1/logs" if one.format == "otlp/logs" else "/v1/traces"
        assert 200 == (await near.send(path, one.body)).status
        for serving in (near, far):
            await until(lambda serving=serving, n=n: counts(serving, n))  # type: ignore[misc]
    assert 200 == (await near.send("/v1/traces", reports[2].body)).status
    for serving in (near, far):
        await until(lambda serving=serving: counts(serving, 1))  # type: ignore[misc]
        [row] = await ledger_rows(serving)
        assert (1, 0, 1500, 70) == (row.calls, row.errors, row.input_tokens, row.output_tokens)
        assert ("0.0031", "0.0031") == (row.cost, row.reported), serving is far
        assert [] == list((await serving.app.services.storage.log.verify()).imbalances)

    async def is_billed() -> bool:
        return bill.exists() and 3 <= len(focus(bill))

    await until(is_billed)
    rows = focus(bill)
    assert 1 == sum(int(row["x_Calls"]) for row in rows)
    assert 1570 == sum(int(row["x_InputTokens"]) + int(row["x_OutputTokens"]) for row in rows)


async def ledger_rows(serving: Serving) -> Sequence[CostRow]:
    ledger = serving.app.services.storage.ledger
    await ledger.catch_up(serving.app.services.storage.log)
    return await ledger.costs(EVERYTHING)


def framework_with_id() -> Piece:
    sender, span = framework()
    return sender, {**span, "attributes": [*span["attributes"], attribute("gen_ai.response.id", MESSAGE)]}


async def test_a_late_correction_passes_two_gateways(serve: Serve, tmp_path: Path) -> None:
    """
    The totals of both gateways and a FOCUS file end with only the calls. Corrections are negative
    usage, never credits.
    """
    calls = (CASES / "api_request_events.json").read_bytes()
    alone = await serve()
    assert 200 == (await alone.send("/v1/logs", calls)).status
    expected = sums(await summed(alone))

    near, far, bill = await chained(serve, tmp_path)
    assert 200 == (await near.send("/v1/metrics", (CASES / "metrics_delta.json").read_bytes())).status

    async def has_counters() -> bool:
        return bool(await counters(far)) and bill.exists() and bool(focus(bill))

    await until(has_counters)
    counted = await counters(near)
    assert min(counted) > 0 and sums(await summed(far))[0] == 0

    assert 200 == (await near.send("/v1/logs", calls)).status

    async def is_taken_back() -> bool:
        return (
            all([not sum(await counters(one)) for one in (near, far)]) and sums(await summed(far)) == expected
        )

    await until(is_taken_back)
    assert sorted(counted) == sorted(value for value in await counters(far) if value > 0)
    assert expected == sums(await summed(near)) == sums(await summed(far))

    async def is_billed() -> bool:
        return expected[0] == sum(int(row["x_Calls"]) for row in focus(bill))

    await until(is_billed)
    rows = focus(bill)
    assert Decimal(expected[1]) == sum(Decimal(row["BilledCost"]) for row in rows)
    assert expected[2:4] == tuple(
        sum(int(row[name]) for row in rows) for name in ("x_InputTokens", "x_OutputTokens")
    )
    corrections = [
        row for row in rows if row["BilledCost"].startswith("-") or row["ConsumedQuantity"].startswith("-")
    ]
    assert {("Usage", "Correction")} == {(row["ChargeCategory"], row["ChargeClass"]) for row in corrections}
    for serving in (near, far):
        assert [] == list((await serving.app.services.storage.log.verify()).imbalances)
