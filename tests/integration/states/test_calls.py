"""The kinds of calls by what is known of their cost are equal in every face, and add up to all calls."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from gateway.monitoring.spend import SpendSeries
from spool.clock import SystemClock
from spool.cost_kinds import FREE, KIND_OF_SOURCE, KINDS, PRICED, UNPRICED, WITHOUT_USAGE
from spool.identity import RecordIdentity
from spool.record import Inference
from tests.integration.states.conftest import Faces
from tests.spool.contract.examples import add, call

NO_PRICE: dict[str, Any] = {"cost_source": "none"}
NOTHING: dict[str, Any] = {**NO_PRICE, "input_tokens": None, "output_tokens": None}
ESTIMATED: dict[str, Any] = {"estimated_cost": "0.5", "cost_source": "estimated"}
# fields of calls, their kind, and how many there are
MADE: tuple[tuple[dict[str, Any], str, int], ...] = (
    ({"cost": "1.5", "cost_source": "reported", "request_model": "gpt-4o"}, PRICED, 7),
    ({**ESTIMATED, "request_model": "gpt-4o"}, PRICED, 5),
    ({**ESTIMATED, "status": "cached"}, FREE, 4),
    ({**NO_PRICE, "status": "cached"}, FREE, 3),
    ({**NOTHING, "status": "error"}, FREE, 6),
    ({**NO_PRICE, "status": "error", "request_model": "acme-1", "provider": "acme"}, UNPRICED, 8),
    ({**NO_PRICE, "request_model": "acme-1", "provider": "acme"}, UNPRICED, 9),
    ({**NO_PRICE}, UNPRICED, 2),  # two calls without a model
    ({**NOTHING, "request_model": "image-1", "meters": {"images": 2}, "provider": "acme"}, UNPRICED, 11),
    ({**NOTHING, "source": "quiet", "request_model": "gpt-4o"}, WITHOUT_USAGE, 21),
)


def made_calls(at: float) -> list[tuple[Inference, RecordIdentity]]:
    every = [fields for fields, _, many in MADE for _ in range(many)]
    return [call(number, at=at, **fields) for number, fields in enumerate(every)]


async def test_every_face_counts_the_same(faces: Faces) -> None:
    expected: Counter[str] = Counter()
    for _, kind, many in MADE:
        expected[kind] += many
    await add(faces.server.app.services.storage.log, *made_calls(time.time() - 5))
    everything = {"calls": expected.total(), **expected}
    overview = (await faces.api("/overview"))["overview"]
    assert expected == overview["kinds"]
    assert everything["calls"] == overview["month"]["calls"]
    costs = (await faces.api("/report?range=last_30d&by=team"))["total"]
    assert everything == {name: costs[name] for name in everything}
    prices = await faces.api(
        "/report?range=last_30d&by=model&by=provider&where=cost_source=none&show=unpriced"
    )
    assert expected[UNPRICED] == sum(row["unpriced"] for row in prices["rows"])
    by_source = await faces.api("/report?range=last_30d&by=cost_source&show=calls")
    counted: Counter[str] = Counter()
    for row in by_source["rows"]:
        counted[KIND_OF_SOURCE[row["cost_source"]]] += row["calls"]
    assert expected == counted
    reported = (await faces.printed("report", "--range", "last_30d"))["total"]
    assert everything == {name: reported[name] for name in everything}
    table = (await faces.command("report", "--range", "last_30d")).stdout
    for name in KINDS:
        assert name.replace("_", " ").split()[0] in table.lower(), table


async def test_assistants_metrics_and_insights_count_the_same(faces: Faces) -> None:
    expected: Counter[str] = Counter()
    for _, kind, many in MADE:
        expected[kind] += many
    await add(faces.server.app.services.storage.log, *made_calls(time.time() - 5))
    context = await faces.tool("get_org_context")
    assert expected[UNPRICED] == context["unpriced_calls"]
    assert expected[WITHOUT_USAGE] == context["calls_without_usage"]
    data = await faces.tool("get_cost_data", date_range="month_to_date")
    assert expected[UNPRICED] == data["total"]["unpriced_calls"]
    assert expected[WITHOUT_USAGE] == data["total"]["calls_without_usage"]
    note = f"{expected[UNPRICED]} calls have no price and {expected[WITHOUT_USAGE]} calls report no usage"
    assert f"{note}, so they count as 0" in data["notes"]

    insights = {(insight.finding or "").partition(":")[0]: insight for insight in await faces.insights()}
    assert "28 calls with" in insights["missing_price"].description
    assert f"{expected[WITHOUT_USAGE]} calls of quiet report no usage" == insights["missing_usage"].title

    spend = SpendSeries(faces.server.app.services.operators.money.ledger, SystemClock(), top=20)
    await spend.read_totals()
    shown: Counter[str] = Counter()
    for family in spend.counts.metric_families():
        for sample in family.samples if family.name == "tollhouse_month_calls" else ():
            shown[KIND_OF_SOURCE[sample.labels["cost_source"]]] += int(sample.value)
    assert expected == shown
