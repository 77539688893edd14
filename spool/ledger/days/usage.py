"""The sums of a day as a provider bills them: every call that it answered, also those without a price or a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from spool.ledger.days.tokens import cost_of, width_of_day
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.repricing import TokenSum, token_sum
from spool.ledger.sums import COUNTS, DAY_S, INPUT_UNKNOWN, Dimensions, Measures, sized

_NOBODY = {"user": None, "device": None, "tags": ""}  # whom a provider does not know


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """
    Sums of one day and one set of dimensions, mostly without users, devices and tags. `sized`: the tokens of each
    call are known; `cost` is what counts of them, in units of `spool.ledger.money`.
    """

    day: int  # epoch seconds
    dimensions: Dimensions
    tokens: TokenSum
    sized: bool
    cost: int


def usage_of_day(rows: LedgerRows, day: int, *, whole: bool = False) -> list[UsageSum]:
    """
    The sums of a day (UTC), calls that a gateway's cache answered left out. `whole`: by users, devices
    and tags, too.
    """
    nobody: Mapping[str, Any] = {} if whole else _NOBODY
    summed: dict[Dimensions, Measures] = {}
    meters: dict[Dimensions, Counter[str]] = {}
    width = width_of_day(rows, day)
    for start in range(day, day + DAY_S, width):
        for dimensions, measures in rows.sums(width, start):
            if dimensions.status == "cached":
                continue
            place = dimensions._replace(**nobody)
            before = summed.get(place)
            summed[place] = (
                list(measures) if before is None else [a + b for a, b in zip(before, measures, strict=True)]
            )
        for dimensions, found in rows.metered_sums(width, start):
            place = dimensions._replace(**nobody)
            if dimensions.status != "cached":
                meters.setdefault(place, Counter()).update(found)
    return [
        UsageSum(
            day=day,
            dimensions=dimensions,
            tokens=msgspec.structs.replace(
                token_sum(day, dimensions, measures, meters.get(dimensions, {})),
                output_tokens=measures[COUNTS.index("output_tokens")],
            ),
            sized=dimensions.kind != "call"
            or (dimensions.size != INPUT_UNKNOWN and sized(dimensions.size)[1]),
            cost=cost_of(dimensions, measures),
        )
        for dimensions, measures in summed.items()
    ]
