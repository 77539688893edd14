"""
Recommendation to use batches: regular jobs without a user, and the cost of their tokens at batch prices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gateway.money.recommendations.facts import DAY_S, DailyUse, Opportunity, SavingFacts
from gateway.money.recommendations.repricing import format_exact_dollars, programs_cheaper_with
from spool.ledger.token_sums import TokenSum
from spool.processing import STANDARD
from spool.registry.insights import MEDIUM
from spool.registry.recommendations import WEAK

NAME = "batch"
TITLE = "Batches for regular jobs"
FORMULA = "cost at standard prices - cost of the same tokens at batch prices"
CONFIDENCE = WEAK
EFFORT = MEDIUM
ASSUMPTIONS = ("Nobody waits for the responses, so a batch may take up to a day.",)
LEAST_DAYS = 5  # minimum days of the last seven on which the job must have run
LEAST_CALLS = 100
SPAN = 3  # length of the daily job in consecutive hours
NEARLY_ALL = 90  # minimum share of a day's calls within the SPAN hours, in percent
_HOUR_S = 3600


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    jobs = {work for work, hours in saving_facts.hours.items() if is_scheduled_job(hours)}

    def tokens_as_batch(use: DailyUse) -> TokenSum | None:
        is_of_job = not use.dimensions.user and use.tokens.mode == STANDARD and use.program_and_model in jobs
        return replace(use.tokens, mode="batch") if is_of_job else None

    for work, priced in programs_cheaper_with(saving_facts, tokens_as_batch):
        yield Opportunity(
            subject=work,
            work=work,
            claims=priced.claims,
            title=f"Batches for {work.name} with {work.model}",
            seen=(
                f"{priced.call_count:,} calls of {work.name} with {work.model} name no user. On most days, "
                f"nearly all calls arrive within {SPAN} hours, so they look like a scheduled job."
            ),
            advice="Send this job as a batch, if its responses may take up to a day.",
            formula=(
                f"{format_exact_dollars(priced.cost)} call by call - "
                f"{format_exact_dollars(priced.cost - priced.total_saving)} as a batch"
            ),
            current=work.processing_with_mode(STANDARD),
            recommended=work.processing_with_mode("batch"),
            measured_by=work.measured_by,
        )


def is_scheduled_job(hours: Mapping[int, int]) -> bool:
    """
    Return whether on most days nearly all calls were made within a few hours. `hours` maps epoch
    seconds to calls.
    """
    days: dict[int, dict[int, int]] = defaultdict(dict)
    for start, calls in hours.items():
        days[start // DAY_S][start % DAY_S // _HOUR_S] = calls
    regular = sum(
        100 * _calls_in_busiest_hours(day) >= NEARLY_ALL * sum(day.values()) for day in days.values()
    )
    return sum(hours.values()) >= LEAST_CALLS and regular >= LEAST_DAYS and regular >= len(days) - 1


def _calls_in_busiest_hours(day: Mapping[int, int]) -> int:
    """
    Return the most calls in SPAN consecutive hours. Hours continue from midnight to the start of the same
    day, for jobs around midnight.
    """
    return max(sum(day.get((hour + step) % 24, 0) for step in range(SPAN)) for hour in range(24))
