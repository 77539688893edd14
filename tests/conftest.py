"""
What all tests share. Property tests have no time limits: on a shared machine a slow example is not a wrong one.

Their examples are the same in every run, and others and three times as many in long ones (`make soak`).
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.rounds import IS_LONG, examples
from tests.spool.postgres_cluster import (
    cluster,
    fresh_schema,
    new_pooled_schema,
    new_schema,
    pair,
    pooler,
    schemas,
    unmade_schema,
    unmade_schemas,
)

# Fixtures for whoever tests PostgreSQL's engine.
__all__ = [
    "cluster",
    "fresh_schema",
    "new_pooled_schema",
    "new_schema",
    "pair",
    "pooler",
    "schemas",
    "unmade_schema",
    "unmade_schemas",
]

settings.register_profile(
    "tollhouse",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not IS_LONG,
    max_examples=examples(100),
)
settings.load_profile("tollhouse")
