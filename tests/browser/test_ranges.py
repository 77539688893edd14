"""The console has every named range of the server, with the same days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from spool.ledger.periods import RANGES, named_span
from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.rounds import part

ZONE = "America/New_York"
SPANS = """async ([names, tz]) => {
  const {$lib_range: range} = await import(document.querySelector("script[type=module]").src);
  return Object.fromEntries(names.map((name) => {
    const query = new URLSearchParams({from: range.fromOf(name), tz});
    const {from, to, asked} = range.span(query);
    return [name, [range.zoneOf(query), from, to ?? null, range.rangeOf(asked), range.rangeName(name)]];
  }));
}"""
OFFERED = """async () => {
  const base = document.querySelector("script[type=module]").src;
  const fields = await import(base.replace("app.mjs", "lib/view_fields.mjs"));
  return fields.viewFields({}, []).find((each) => each.name === "range").options.map(([value]) => value);
}"""


# the first of a month that is a Monday, the first of a year, and days of clock changes with another day in New York
@pytest.mark.parametrize(
    "now", part(["2026-06-01T00:30Z", "2026-01-01T03:00Z", "2026-03-09T03:30Z", "2026-11-01T05:30Z"], every=4)
)
def test_named_ranges_are_those_of_the_server(month: Tollhouse, open_console: OpenConsole, now: str) -> None:
    """
    Each named range of the console has the days of the server in the zone of the page, and the form of a view
    offers all of them.
    """
    console = open_console(month, role="viewer", timezone_id=ZONE)
    console.open("/costs")
    console.page.clock.set_fixed_time(now)
    for tz in ("UTC", ZONE):
        found = console.page.evaluate(SPANS, [RANGES, tz])
        for name in RANGES:
            zone, first, last, known, title = found[name]
            assert zone in ("UTC", tz)
            at = datetime.fromisoformat(now).timestamp()
            since, until = (edge.astimezone(ZoneInfo(zone)) for edge in named_span(name, at, ZoneInfo(zone)))
            ended = until <= datetime.fromisoformat(now).astimezone(UTC)
            until_day = f"{until.date() - timedelta(days=1)}" if ended else None
            assert (f"{since.date()}", until_day) == (first, last), (name, tz)
            assert name == known
            assert title
    assert {*RANGES} == {*console.page.evaluate(OFFERED)}
    console.open("/costs?from=this-month&by=team")
    assert (
        "This month" == console.page.get_by_label("Range", exact=True).locator("option:checked").inner_text()
    )
