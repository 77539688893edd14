"""All types of recommendations. The type with the highest confidence is first."""

from __future__ import annotations

from gateway.money.recommendations.facts import RecommendationType
from gateway.money.recommendations.types import (
    batch,
    cache_write_unread,
    cheaper_model,
    context_tier,
    idle_seat,
    newer_model,
    priority_tier,
    prompt_caching,
    regional_surcharge,
    response_cache,
    retries,
)

TYPES: tuple[RecommendationType, ...] = (
    cache_write_unread,
    priority_tier,
    regional_surcharge,
    idle_seat,
    newer_model,
    context_tier,
    prompt_caching,
    retries,
    cheaper_model,
    batch,
    response_cache,
)
BY_NAME = {type.NAME: type for type in TYPES}
# types of recommendations whose minimum share refers to the cost of seats
OF_SEATS = frozenset({idle_seat.NAME})
