"""A lake in Google's store by fake-gcs-server: the store contract, and every record once."""

from __future__ import annotations

import json
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
from tests.clients import environments
from tests.clients.lake.google import BUCKET, Shim, google
from tests.exporters.spools import calls
from tests.integration.lake import victim
from tests.integration.lake.lakes import opened
from tests.integration.lake.store_contract import StoreContract

pytestmark = pytest.mark.clients
PACKAGE = "github.com/fsouza/fake-gcs-server"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Shim]]:
    program = environments.go("fakegcs", PACKAGE)
    with google(program, tmp_path_factory.mktemp("google")) as (address, shim):
        yield address, shim


@pytest.fixture
def settings(server: tuple[str, Shim], tmp_path: Path) -> DestinationSettings:
    """Settings of a lake in Google's store. Each test gets its own prefix. The server does not authenticate."""
    secret = tmp_path / "account.json"
    account = {"gcs_base_url": server[0], "disable_oauth": True, "client_email": "", "private_key": ""}
    secret.write_text(json.dumps({**account, "private_key_id": ""}))
    return DestinationSettings(
        name="lake", type="gcs", url=f"gs://{BUCKET}/{tmp_path.name}", endpoint=server[0], secret_file=secret
    )


@pytest.fixture
def store(settings: DestinationSettings) -> LakeStore:
    return open_store(settings, destination_secret(settings))


class TestGoogle(StoreContract):
    pass


async def test_a_bucket_that_is_missing_parks(settings: DestinationSettings) -> None:
    """
    If the bucket is missing, the operator must create it, so the route pauses and does not retry in a loop.
    """
    wrong = replace(settings, url="gs://nobody-has-this/lake")
    with pytest.raises(Misconfigured):
        await open_store(wrong, destination_secret(wrong)).create_object("one", b"1")


async def verified(store: LakeStore, scratch: Path) -> tuple[int, Decimal, list[object]]:
    scratch.mkdir()
    found = await verify_files(store, read_manifests(store, "lake", scratch), level=DATA, scratch=scratch)
    return found.rows, Decimal(found.spend), list(found.differences)


async def test_a_lake_in_google_has_every_record_once(
    settings: DestinationSettings, store: LakeStore, server: tuple[str, Shim], tmp_path: Path
) -> None:
    """The lake is read back with every sum recomputed, and each put has its condition."""
    before = server[1].passed
    fields: dict[str, Any] = {
        name: getattr(settings, name) for name in ("type", "path", "url", "endpoint", "secret_file")
    }
    async with opened(tmp_path / "data") as house, house.forwarding(**fields):
        await house.add(calls(1, 25, cost="0.1", cost_source="reported"))
        await house.until(queued=0, delivered=25)
    assert (25, Decimal("2.5"), []) == await verified(store, tmp_path / "scratch")
    assert (
        7 == server[1].passed - before
    )  # the requests upload three files, three manifests and the owner's name


async def test_a_kill_at_any_place_loses_nothing_in_google(
    settings: DestinationSettings, store: LakeStore, tmp_path: Path
) -> None:
    """A kill may also fall within an upload. Every row is stored once."""
    given = {name: getattr(settings, name) for name in ("type", "url", "endpoint", "secret_file")}
    victim.kill_at_each_place(tmp_path / "data", **given)
    assert (victim.RECORDS, Decimal("9.5"), []) == await verified(store, tmp_path / "scratch")
