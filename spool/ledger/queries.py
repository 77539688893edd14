"""What can be asked of the ledger, and its answer: costs in periods and by dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

DIMENSIONS = (
    "model", "request_model", "provider", "team", "user", "device", "source", "api_key", "status", "cost_source",
)  # fmt: skip
TAG = "tag:"  # before the name of a chosen tag
GRANULARITIES = ("hourly", "daily", "weekly", "monthly", "quarterly", "yearly")
TOTAL = "total"  # everything in one period


@dataclass(frozen=True, kw_only=True)
class CostQuery:
    """
    Costs of calls from `since` until before `until`, in periods of `zone`.

    `include` and `exclude` are by dimension; "" stands for unknown. A period that `since` cuts begins at `since`. No
    period may begin or end within an hour or a day of which only the whole sum is kept (see `costs`).
    """

    since: datetime
    until: datetime
    granularity: str = "daily"
    group_by: Sequence[str] = ()
    include: Mapping[str, Sequence[str]] = field(default_factory=dict)
    exclude: Mapping[str, Sequence[str]] = field(default_factory=dict)
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """
    One period and one set of dimensions. Money is decimal text: `cost` is what counts (reported, else estimated),
    `reported` and `estimated` are both sums of the same calls, `saved` is the estimate of cached calls.
    """

    start: datetime
    group: tuple[str | None, ...]
    cost: str
    reported: str
    estimated: str
    saved: str
    calls: int
    errors: int
    cached: int
    unpriced: int  # calls of unknown cost
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cache_write_1h_tokens: int  # of cache_write_tokens, those kept for an hour, as far as sources tell
    cached_input_tokens: int  # of the calls that the gateway's cache answered: in the sums above, on no provider's bill
    cached_output_tokens: int
    latency_ms: int
    latency: tuple[int, ...]  # calls by LATENCY_EDGES_MS, the last are beyond


def end_of_hour(now: float) -> datetime:
    """Where a question up to now ends: the running hour is a part of it, because hours are not divided."""
    return datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def check_dimension(name: str) -> None:
    """ValueError if costs cannot be grouped and filtered by it."""
    if name not in DIMENSIONS and not (name.startswith(TAG) and name != TAG):
        raise ValueError(f"{name} is no dimension")
