"""A lake in Azure's own emulator: the store contract, and every record once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from exporters.destinations.catalogue import destination_secret
from exporters.errors import Misconfigured
from exporters.lake.destination import open_store
from exporters.lake.stores import LakeStore
from exporters.lake.verification import DATA, read_manifests, verify_files
from exporters.settings import DestinationSettings
from spool.deliveries.values import PARKED
from tests.clients import environments
from tests.clients.lake.azurite import ACCOUNT, CONTAINER, KEY, azurite
from tests.exporters.spools import calls
from tests.integration.lake.lakes import opened
from tests.integration.lake.store_contract import StoreContract

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with azurite(environments.node("azurite"), tmp_path_factory.mktemp("azurite")) as address:
        yield address


@pytest.fixture
def settings(account: str, tmp_path: Path) -> DestinationSettings:
    """Settings of a lake in Azure's emulator. Each test gets its own prefix."""
    secret = tmp_path / "secret"
    secret.write_text(KEY)
    return DestinationSettings(
        name="lake",
        type="azure",
        url=f"az://{CONTAINER}/{tmp_path.name}",
        account=ACCOUNT,
        endpoint=account,
        secret_file=secret,
    )


@pytest.fixture
def store(settings: DestinationSettings) -> LakeStore:
    return open_store(settings, destination_secret(settings))


class TestAzure(StoreContract):
    pass


async def test_a_container_or_a_key_that_is_wrong_parks(
    settings: DestinationSettings, tmp_path: Path
) -> None:
    """
    If the container or the key is wrong, the operator must correct it, so the route pauses and does not retry in a
    loop.
    """
    other = tmp_path / "other"
    other.write_text(f"A{KEY[1:]}")
    for wrong in (replace(settings, url="az://nobody-has-this/lake"), replace(settings, secret_file=other)):
        with pytest.raises(Misconfigured):
            await open_store(wrong, destination_secret(wrong)).create_object("one", b"1")


async def test_a_lake_in_azure_has_every_record_once(
    settings: DestinationSettings, store: LakeStore, tmp_path: Path
) -> None:
    """
    The lake is read back with every sum recomputed. A missing key pauses the route, and its return resumes it.
    """
    assert settings.secret_file is not None
    settings.secret_file.unlink()
    fields: dict[str, Any] = {
        name: getattr(settings, name)
        for name in ("type", "path", "url", "account", "endpoint", "secret_file")
    }
    async with opened(tmp_path / "data") as house, house.forwarding(**fields):
        await house.add(calls(1, 25, cost="0.1", cost_source="reported"))
        await house.until(state=PARKED)
        settings.secret_file.write_text(KEY)
        await house.until(queued=0, delivered=25)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = await verify_files(store, read_manifests(store, "lake", scratch), level=DATA, scratch=scratch)
    assert [] == found.differences
    assert found.deliveries == 3
    assert found.rows == 25
    assert Decimal(found.spend) == Decimal("2.5")
