"""Readings of enforcers: stored by every engine, limited, shared by gateways, and deleted with their enforcer."""

from __future__ import annotations

import pytest

from spool.registry.tables import enforcers
from spool.registry.tables.enforcers import EnforcerLimit, EnforcerReading, EnforcerState
from tests.spool.contract.conftest import RegistryOpener

pytestmark = pytest.mark.one_engine


def reading(at: float, count: int = 2) -> EnforcerReading:
    limits = [
        EnforcerLimit(kind="key", id=str(number), name="ключ", limit="10", spent=f"{at}", values=("a", "b"))
        for number in range(count)
    ]
    return EnforcerReading(at=at, limits=tuple(limits))


async def test_gateways_and_restarts_share_readings(open_registry: RegistryOpener) -> None:
    """
    Gateways share readings of enforcers, which survive restarts, a failure and a clock that went back. A reading of
    the same time replaces the first.
    """
    first, second = [await open_registry() for _ in range(2)]
    await first.enforcers.store_attempt("a", EnforcerState(last_success=2.0), reading(2.0))
    await second.enforcers.store_attempt("a", EnforcerState(last_success=1.0), reading(1.0))
    await second.enforcers.store_attempt("b", EnforcerState(last_success=1.0), reading(1.0))
    await first.enforcers.store_attempt("a", EnforcerState(last_success=2.0), reading(2.0, 3))
    await first.enforcers.store_attempt("a", EnforcerState(reason="refused", last_success=2.0, next_at=7.0))
    for gateway in (first, second):
        await gateway.close()
    registry = await open_registry()
    assert [reading(1.0), reading(2.0, 3)] == list(await registry.enforcers.readings("a"))
    state = await registry.enforcers.state("a")
    assert ("refused", 2.0, 7.0) == (state.reason, state.last_success, state.next_at)
    assert [(1.0, 2), (2.0, 3)] == [(each.at, each.limits) for each in state.stored]
    await registry.enforcers.delete_unconfigured(["b"])
    assert EnforcerState() == await registry.enforcers.state("a")
    assert [reading(1.0)] == list(await registry.enforcers.readings("b"))
    assert ["b:1.000"] == list(await registry._changes.read(lambda rows: rows.documents(enforcers.KIND)))


@pytest.mark.parametrize(("readings", "limits", "kept"), [(3, 9, 3), (3, 4, 2), (3, 3, 1), (2, 9, 2)])
async def test_both_maxima(
    open_registry: RegistryOpener, monkeypatch: pytest.MonkeyPatch, readings: int, limits: int, kept: int
) -> None:
    """
    Readings of enforcers have two maxima. The oldest readings above either one are deleted with their documents.
    """
    monkeypatch.setattr(enforcers, "MAX_READINGS", readings)
    monkeypatch.setattr(enforcers, "MAX_STORED_LIMITS", limits)
    registry = await open_registry()
    times = [float(at) for at in range(5)]
    for at in times:
        await registry.enforcers.store_attempt("a", EnforcerState(), reading(at))
    assert times[-kept:] == [each.at for each in await registry.enforcers.readings("a")]
    assert kept == len(await registry._changes.read(lambda rows: rows.documents(enforcers.KIND)))
