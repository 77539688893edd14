"""Queries to the ledger that a second filter narrows."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from spool.ledger.dimensions import WantedValues
from spool.ledger.queries import CostQuery, narrow_query

_VALUES = st.lists(st.sampled_from("abc"), min_size=1)
_FILTER = st.dictionaries(st.sampled_from(("team", "user")), _VALUES)
SINCE, UNTIL = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)


def passes(row: dict[str, str], include: WantedValues, exclude: WantedValues) -> bool:
    is_wanted = all(row[name] in values for name, values in include.items())
    return is_wanted and not any(row[name] in values for name, values in exclude.items())


@given(_FILTER, _FILTER, _FILTER, _FILTER)
def test_what_passes_a_narrowed_question_passes_both_filters(
    include: WantedValues, exclude: WantedValues, more: WantedValues, less: WantedValues
) -> None:
    query = CostQuery(since=SINCE, until=UNTIL, include=include, exclude=exclude)
    narrowed = narrow_query(query, include=more, exclude=less)
    for row in ({"team": team, "user": user} for team in "abcd" for user in "abcd"):
        both = passes(row, include, exclude) and passes(row, more, less)
        assert both == passes(row, narrowed.include, narrowed.exclude)
