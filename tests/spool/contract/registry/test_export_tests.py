"""Times of tests of exports, by key, over processes and restarts."""

from __future__ import annotations

from tests.spool.contract.conftest import RegistryOpener


async def test_the_latest_test_of_a_known_key_is_stored(open_registry: RegistryOpener) -> None:
    """
    The newest time of a test export is stored for each known key. An earlier time from another process changes
    nothing. Times of deleted keys are deleted.
    """
    registry = await open_registry()
    assert {} == await registry.export_tests.all()
    await registry.export_tests.add({1: 50.0, 2: 60.0}, keys=(1, 2))
    await registry.close()
    registry = await open_registry()
    await registry.export_tests.add({1: 40.0, 3: 70.5}, keys=(1, 2, 3))
    assert {1: 50.0, 2: 60.0, 3: 70.5} == await registry.export_tests.all()
    await registry.export_tests.add({1: 80.0}, keys=(1, 3))
    assert {1: 80.0, 3: 70.5} == await registry.export_tests.all()
