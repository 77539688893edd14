"""Jobs that run at their hour without a person: what the same tokens cost as a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gateway.money.recommendations.facts import DAY_S, Opportunity, SavingFacts, Use
from gateway.money.recommendations.repricing import exact, repriced
from spool.ledger.repricing import TokenSum
from spool.processing import STANDARD
from spool.registry.insights import MEDIUM
from spool.registry.recommendations import WEAK

NAME = "batch"
TITLE = "Batches for jobs that run at their hour"
FORMULA = "cost at standard prices - cost of the same tokens at the prices of a batch"
CONFIDENCE = WEAK
EFFORT = MEDIUM
ASSUMPTIONS = ("Nobody waits for the answers: a batch may take a day.",)
LEAST_DAYS = 5  # of the last seven on which it ran
LEAST_CALLS = 100
SPAN = 3  # hours of a day in which nearly all calls are
NEARLY_ALL = 90  # percent
_HOUR_S = 3600


def find(facts: SavingFacts) -> Iterable[Opportunity]:
    jobs = {work for work, hours in facts.hours.items() if is_job(hours)}

    def as_batch(use: Use) -> TokenSum | None:
        is_of_job = not use.dimensions.user and use.tokens.mode == STANDARD and use.work in jobs
        return replace(use.tokens, mode="batch") if is_of_job else None

    for work, priced in repriced(facts, as_batch):
        yield Opportunity(
            subject=work,
            work=work,
            claims=priced.claims,
            title=f"Batches for {work.name} with {work.model}",
            seen=f"{priced.calls:,} calls of {work.name} with {work.model} name no user, and nearly all of a day "
            f"come within {SPAN} hours, day after day: a job.",
            advice="Send this job as a batch, if its answers may come within a day.",
            formula=f"{exact(priced.cost)} call by call - {exact(priced.cost - priced.saving)} as a batch",
            current=work.processing(STANDARD),
            recommended=work.processing("batch"),
            measured_by=work.measured_by,
        )


def is_job(hours: Mapping[int, int]) -> bool:
    """True if nearly all calls of each day (by hour in epoch seconds) are within a few hours, on most days."""
    days: dict[int, dict[int, int]] = defaultdict(dict)
    for start, calls in hours.items():
        days[start // DAY_S][start % DAY_S // _HOUR_S] = calls
    regular = sum(100 * _busiest(day) >= NEARLY_ALL * sum(day.values()) for day in days.values())
    return sum(hours.values()) >= LEAST_CALLS and regular >= LEAST_DAYS and regular >= len(days) - 1


def _busiest(day: Mapping[int, int]) -> int:
    """The calls of the busiest hours in a row; those of a job at midnight are at both ends of the day."""
    return max(sum(day.get((hour + step) % 24, 0) for step in range(SPAN)) for hour in range(24))
