"""The call of the operator API for what a month would become under a definition that is not published."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from gateway.allocation.border import border, shown
from gateway.allocation.difference import Difference, ElementSpend, difference, sources_of
from gateway.allocation.language import joined, parse
from gateway.http.requests import Result
from gateway.operator.body import RequestBody, moment
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid
from spool.ledger import money
from spool.ledger.queries import TOTAL, CostQuery, end_of_hour


class DefinitionDraft(RequestBody):
    """
    `definition` is the YAML text. `namespace` is whose dimensions it replaces, "" the default one; `month` is YYYY-MM
    in UTC, by default the running one.
    """

    definition: str
    namespace: str = ""
    month: str = ""


async def diff_definition(request: OperatorRequest[DefinitionDraft]) -> Result:
    """
    Everything closed by now: the ledger catches up first. Nothing is kept or published.

    Elements of a dimension add up to `total`, before and after. `border` says since when there is something to look at.
    """
    services, given = request.services, request.body
    ledger, limits = services.ledger, services.allocation_limits()
    since, until = _month(given.month, services.clock.now())
    drafted = parse(given.definition.encode(), ledger.own_dimensions(), limits)
    in_force = services.published.definition
    others = in_force.of_other_namespaces(given.namespace)
    joined({**others, given.namespace: drafted}, limits)
    before = in_force.of_namespace(given.namespace)
    sources = sources_of(before, drafted)
    await ledger.catch_up(services.log)
    rows = await ledger.costs(
        CostQuery(since=since, until=until, granularity=TOTAL, group_by=sources, measures=("cost", "calls"))
    )
    found = await asyncio.to_thread(difference, before, drafted, sources, rows)
    whole = await ledger.whole_since()
    return {
        "diff": {
            "from": since.isoformat(), "to": until.isoformat(), "namespace": given.namespace,
            "version": services.published.version or None,
            "whole_since": moment(whole) if since.timestamp() < whole else None,
            "border": shown(await border(ledger, sources_of(drafted))),
        },
        "dimensions": _dimensions(found),
        "total": _spend(found.total),
    }  # fmt: skip


def _dimensions(found: Difference) -> list[Mapping[str, object]]:
    return [
        {
            "id": each.dimension.id,
            "name": each.dimension.name,
            "state": each.state,
            "elements": [
                {
                    "element": element.element or None,
                    "before": element.before and _spend(element.before),
                    "after": element.after and _spend(element.after),
                }
                for element in each.elements
            ],
        }
        for each in found.dimensions
    ]


def _spend(spend: ElementSpend) -> Mapping[str, object]:
    return {"cost": money.text(spend.cost), "calls": spend.calls}


def _month(text: str, now: float) -> tuple[datetime, datetime]:
    """Its begin, and its end or that of the running hour, whichever is earlier."""
    running = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    try:
        since = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC) if text else running
    except ValueError:
        raise Invalid("month must be written YYYY-MM, such as 2026-11") from None
    if not 2000 <= since.year < 2200 or (text and len(text) != len("2026-11")):
        raise Invalid("month must be written YYYY-MM, such as 2026-11, and lie between the years 2000 and 2200")
    if since > running:
        raise Invalid(f"month is not begun; the running one is {running:%Y-%m}")
    end = (since + timedelta(days=32)).replace(day=1)
    return since, min(end, end_of_hour(now))
