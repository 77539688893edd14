"""
Settings and fixtures that all tests share.

Property tests have no deadlines, because an example that is slow on a shared machine is not a failure. Every
run tries the same examples, and reports the first that fails as it is, because shrinking it takes up to five
minutes. Long runs (`make proofs`) try different examples, and ten times as many, and shrink what fails. So
does `--hypothesis-profile=shrinking`.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from gateway.monitoring.memory import NEW_OBJECTS, NEWER_ROUNDS
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
BY_THE_REAL_CLOCK = ("acceptance", "browser", "clients", "integration", "releases")
DAY_S, ENOUGH_S = 86_400, 120  # ENOUGH_S is the longest time that one test takes on a slow machine
USUAL_RESERVE, SMALL_RESERVE = reserve.SIZE, 1 << 20

# The tests of the PostgreSQL engine use these fixtures.
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

# Test servers use the compiled module only if TOLLHOUSE_NATIVE=1, even if it is installed.
if os.environ.get("TOLLHOUSE_NATIVE") != "1" and find_spec("tollhouse_native") is not None:
    os.environ.setdefault("TOLLHOUSE_SERVER__NATIVE", "false")

settings.register_profile(
    "shrinking",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not IS_LONG,
    max_examples=examples(100),
)
settings.register_profile(
    "short",
    settings.get_profile("shrinking"),
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
)
settings.load_profile("shrinking" if IS_LONG else "short")
if not IS_LONG:
    # Hypothesis parses all loaded modules for constants. That takes up to nine seconds of processor time, and examples
    # would depend on the modules of other tests.
    providers._get_local_constants = lambda: providers._local_constants


gc.disable()  # until all tests are collected: an eighth of the processor time of imports, which leave no garbage


def pytest_collection_finish() -> None:
    """Exempt all imported modules and tests from garbage collection, as a server does after its start."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(NEW_OBJECTS, 10, NEWER_ROUNDS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Wait until the next day if a test by the real clock could run past midnight (UTC)."""
    folder = item.path.relative_to(TESTS).parts[0]
    left_s = DAY_S - time.time() % DAY_S
    if folder in BY_THE_REAL_CLOCK and left_s < ENOUGH_S:
        time.sleep(left_s + 1)


@pytest.fixture(autouse=True, scope="session")
def cheap_passwords() -> Iterator[None]:
    """
    Hash passwords at a low cost, because the usual cost is a quarter of a second. Each hash stores its own cost.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "SCRYPT_N", 2)
        patch.setattr(operators, "SCRYPT_P", 1)
        patch.setattr(operator_table, "NOBODY", operators.hash_password("nobody has this one"))
        yield


@pytest.fixture(autouse=True, scope="session")
def small_reserves() -> Iterator[None]:
    """Use a small disk reserve, because allocating 32 MiB would take a tenth of the time of a spool test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reserve, "SIZE", SMALL_RESERVE)
        patch.setattr(sqlite_log, "RESERVE", SMALL_RESERVE)
        yield


@pytest.fixture
def usual_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the reserve of a real server, for tests of full disks."""
    monkeypatch.setattr(reserve, "SIZE", USUAL_RESERVE)
    monkeypatch.setattr(sqlite_log, "RESERVE", USUAL_RESERVE)


@pytest.fixture
def usual_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the hashing costs of a real server."""
    for name, cost in zip(("SCRYPT_N", "SCRYPT_P"), PASSWORD_COSTS, strict=True):
        monkeypatch.setattr(operators, name, cost)
