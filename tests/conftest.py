"""
What all tests share. Property tests have no time limits: on a shared machine a slow example is not a wrong one.

Their examples are the same in every run, and others and three times as many in long ones (`make soak`).
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gateway.service.monitoring.memory import NEW_OBJECTS, NEWER_ROUNDS
from spool.registry import operators
from spool.registry.tables import operators as operator_table
from spool.sqlite import reserve
from spool.sqlite.log import log as sqlite_log
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

PASSWORD_COSTS = operators.SCRYPT_N, operators.SCRYPT_P
TESTS = Path(__file__).parent
BY_THE_REAL_CLOCK = ("acceptance", "browser", "clients", "integration")
DAY_S, ENOUGH_S = 86_400, 120  # for one test, on a slow machine
USUAL_RESERVE, SMALL_RESERVE = reserve.SIZE, 1 << 20

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

# Servers of tests use the compiled module if it is asked for, not because somebody has installed it.
if os.environ.get("TOLLHOUSE_NATIVE") != "1" and find_spec("tollhouse_native") is not None:
    os.environ.setdefault("TOLLHOUSE_SERVER__NATIVE", "false")

settings.register_profile(
    "tollhouse",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not IS_LONG,
    max_examples=examples(100),
)
settings.load_profile("tollhouse")


def pytest_collection_finish() -> None:
    """Keep the collector from thousands of modules and tests that stay to the end, as a server does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 10, NEWER_ROUNDS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Days of these tests are those of the real clock: shortly before midnight one begins on the next day."""
    place = item.path.relative_to(TESTS).parts[0]
    left_s = DAY_S - time.time() % DAY_S
    if place in BY_THE_REAL_CLOCK and left_s < ENOUGH_S:
        time.sleep(left_s + 1)


@pytest.fixture(autouse=True, scope="session")
def cheap_passwords() -> Iterator[None]:
    """A password costs a quarter of a second on purpose. The costs stand beside each hash: tests use small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "SCRYPT_N", 2)
        patch.setattr(operators, "SCRYPT_P", 1)
        patch.setattr(operator_table, "NOBODY", operators.hashed("nobody has this one"))
        yield


@pytest.fixture(autouse=True, scope="session")
def small_reserves() -> Iterator[None]:
    """Where a disk has room, to allocate and free 32 MiB is a tenth of what a test of a spool costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reserve, "SIZE", SMALL_RESERVE)
        patch.setattr(sqlite_log, "RESERVE", SMALL_RESERVE)
        yield


@pytest.fixture
def usual_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reserve of a server, for tests of disks without room."""
    monkeypatch.setattr(reserve, "SIZE", USUAL_RESERVE)
    monkeypatch.setattr(sqlite_log, "RESERVE", USUAL_RESERVE)


@pytest.fixture
def usual_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """The costs of a server, for tests of them."""
    for name, cost in zip(("SCRYPT_N", "SCRYPT_P"), PASSWORD_COSTS, strict=True):
        monkeypatch.setattr(operators, name, cost)
