"""The colours of the names in a chart of costs."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal

from spool.errors import SpoolError
from spool.ledger.colours import ChartColours
from spool.ledger.queries import CostRow
from spool.ledger.sums import OTHER
from spool.people import People

_log = logging.getLogger(__name__)


async def colours_for_rows(
    colours: ChartColours, people: People, dimension: str, rows: Sequence[CostRow]
) -> Mapping[str, int]:
    """
    Return a colour from 1 to COLOURS for each name of the first dimension of `rows`.

    New names are stored in the order of their cost, so the largest names get different colours. While nothing
    can be stored, new names are missing, and the console draws them in grey.
    """
    costs: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        name = row.group[0]
        if name is not None and name != OTHER:
            costs[name] += Decimal(row.cost)
    names = sorted(costs, key=lambda name: (-costs[name], name))
    digests = {name: people.erasure_digest(name) for name in names}
    try:
        found = await colours.find_or_assign_colours(dimension, [*digests.values()])
    except SpoolError as error:
        _log.warning("colours cannot be stored: %s", error, extra={"action": "colours_not_stored"})
        found = await colours.known_colours(dimension, [*digests.values()])
    return {name: found[digest] for name, digest in digests.items() if digest in found}
