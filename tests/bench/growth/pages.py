"""
Requests that the pages of the console send when they are opened, with their parameters.

`VIEW`, `PLAN` and `SENDER` in a request are placeholders for objects that the benchmark created. Lists that
do not grow with a year of calls (devices, notifications, settings) are included so that no page is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

TABLE = "show=cost&show=calls&show=input_tokens&show=cache_read_tokens&show=output_tokens&show=cost_per_call"
LARGEST = "compare=previous&top_by=cost"
SEARCHED = "range=last_90d&show=cost&top=1000"


class Operation(NamedTuple):
    page: str
    words: str
    question: str


def operations(today: datetime) -> Iterator[Operation]:
    """Yield every operation of every page. The year ends yesterday."""
    month = f"from={today - timedelta(days=30):%Y-%m-%d}"
    year = f"from={today - timedelta(days=365):%Y-%m-%d}&to={today - timedelta(days=1):%Y-%m-%d}"
    now = f"{today:%Y-%m}"
    yield Operation("/", "overview", "/overview")
    yield Operation("/", "90 days", f"/overview?from={today - timedelta(days=89):%Y-%m-%d}")
    for words, when, per in (("30 days", month, "daily"), ("a year", year, "monthly")):
        for by in ("model_family", "team", "user", "team,model_family"):
            yield from _costs(f"{words} by {by}", when, by, per)
    yield Operation("/costs", "forecast", "/forecast?per=monthly")
    yield Operation("/costs", "marks", f"/marks?{month}")
    changed = f"{month}&against=same_weekdays&top=20"
    yield Operation("/costs", "what changed, by team", f"/comparison?{changed}&by=team")
    yield Operation(
        "/costs", "what changed, by team and model", f"/comparison?{changed}&by=team,model_family"
    )
    of_plans = f"/report?{month}&show=cost&cost_type="
    yield Operation("/costs", "without a plan, 30 days by day", f"{of_plans}metered_cost&per=daily")
    yield Operation("/costs", "in plans, 30 days by team", f"{of_plans}covered_cost&by=team&top=10")
    yield Operation("/costs", "paid, 30 days by charge", f"{of_plans}paid_cost&by=charge&per=daily")
    yield Operation("/costs", "what if", f"/what-if?{month}&by=team&model=gpt-4o-mini")
    yield Operation("/calls", "newest", "/records?limit=40")
    yield Operation(
        "/calls", "dearest of 30 days", f"/records?{month}&sort_key=cost&sort_order=desc&limit=40"
    )
    yield Operation("/work", "a session", f"/work/session/s?{month}")
    yield Operation("/connect", "newest of a sender", "/records?sender=SENDER&limit=1")
    yield Operation("/views", "list", "/views?limit=50")
    yield Operation("/budgets", "list", "/budgets?expand=current&expand=forecast&limit=50")
    yield Operation("/plans", "month", f"/plan-costs?month={now}")
    yield Operation("/plans", "list", "/plans?limit=50")
    yield Operation("/contracts", "month", f"/contract-costs?month={now}")
    yield Operation("/contracts", "list", "/contracts?limit=50")
    unpriced = "/report?range=last_30d&by=model&by=provider&where=cost_source=none&show=unpriced"
    yield Operation("/prices", "models without a price", unpriced)
    yield Operation("/prices", "list", "/prices?limit=50")
    yield Operation("/annotations", "list", "/annotations?limit=50")
    yield Operation("/recommendations", "list", "/recommendations?limit=50")
    yield Operation("/allocation", "namespaces", "/allocation/namespaces?limit=1000")
    yield Operation("/allocation", "values of a source", f"/report?by=user&{SEARCHED}")
    yield Operation("/reconciliation", "month by day", f"/reconciliation?month={now}&by=day")
    yield Operation("/reconciliation", "served", "/served")
    yield Operation("/billing", "connections", "/connections?limit=50")
    yield Operation("/insights", "list", "/insights?limit=50")
    yield Operation("/reports", "list", "/scheduled-reports?limit=50")
    yield Operation("/notifications", "list", "/notifications?limit=50")
    yield Operation("/keys", "list", "/keys?limit=50")
    for by in ("by=source&top=5", "by=team&top=5", "per=daily"):
        of = f"where=sender=SENDER&show=cost&show=calls&{by}"
        yield Operation("/keys", f"one, {by}", f"/report?from={today - timedelta(days=89):%Y-%m-%d}&{of}")
    yield Operation("/groups", "groups", "/group-costs?limit=50")
    yield Operation("/fleet", "coverage", "/fleet/coverage")
    yield Operation("/fleet", "machines", "/fleet/devices?limit=50")
    yield Operation("/devices", "list", "/devices?limit=50")
    yield Operation("/streams", "event types", "/event-types?limit=50")
    yield Operation("/delivery", "routes", "/routes?limit=50")
    yield Operation("/tail", "fields", "/records?limit=1")
    yield Operation("/roles", "list", "/roles?limit=50")
    yield Operation("/privacy", "viewings", "/people/viewings?limit=50")
    yield Operation("/settings", "list", "/configuration?limit=50")
    for words, text in (("nothing", "no-such-name"), ("one user", "user-0042"), ("everything", "e")):
        yield Operation("/", f"search, {words}", f"/search?q={text}")


def _costs(words: str, when: str, by: str, per: str) -> Iterator[Operation]:
    first, *more = by.split(",")
    spellings = "&unit=model&show=units" if first == "model_family" and not more else ""
    report_query = f"/report?{when}&{TABLE}&{LARGEST}"
    yield Operation("/costs", f"table, {words}", f"{report_query}&by={by}&top=200{spellings}")
    bars = f"/report?{when}&by={first}&per={per}&show=cost&{LARGEST}&top=10"
    yield Operation("/costs", f"bars, {words}", bars)
    if not more:
        why = f"/comparison?{when}&by={first}&against=same_weekdays&top=3"
        yield Operation("/costs", f"why, {words}", why)
