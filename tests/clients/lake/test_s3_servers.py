"""Lakes in two S3 servers that verify signatures. One enforces conditions, the other ignores them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from exporters.destinations.catalogue import destination_secret
from exporters.errors import Misconfigured
from exporters.lake import names
from exporters.lake.destination import open_store
from exporters.lake.stores import LakeStore
from exporters.lake.verification import DATA, VerifiedLake, read_manifests, verify_files
from exporters.settings import DestinationSettings
from tests.clients import environments
from tests.clients.lake.s3_servers import BUCKET, s3proxy, settings_in, versitygw
from tests.integration.lake import victim
from tests.integration.lake.lakes import query
from tests.integration.lake.store_contract import StoreContract

pytestmark = pytest.mark.clients
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
OBJECTS: dict[str, Path] = {}  # the folder that stores a server's objects, by server address


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("versitygw")
    with versitygw(environments.go("versitygw", PACKAGE), directory) as address:
        OBJECTS[address] = directory / "objects" / BUCKET
        yield address


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("s3proxy")
    with s3proxy(environments.java("s3proxy"), directory) as address:
        OBJECTS[address] = directory / "objects" / BUCKET
        yield address


@pytest.fixture(params=["gateway", "proxy"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> DestinationSettings:
    """Each test gets its own prefix."""
    return settings_in(request.getfixturevalue(request.param), tmp_path)


@pytest.fixture
def store(settings: DestinationSettings) -> LakeStore:
    return open_store(settings, destination_secret(settings))


@pytest.mark.parametrize("settings", ["gateway"], indirect=True)
class TestVersitygw(StoreContract):
    pass


@pytest.mark.parametrize("settings", ["proxy"], indirect=True)
class TestS3Proxy(StoreContract):
    added = "; the store ignores write conditions, so files are written without them"

    async def test_of_many_who_create_a_name_one_does(self, store: LakeStore) -> None:
        """
        If eight writers create one object, s3proxy lets several of them succeed, but the object is whole and from
        one of them.
        """
        bodies = [bytes([65 + n]) * 100_000 for n in range(8)]
        made = await asyncio.gather(*(store.create_object("race", body) for body in bodies))
        assert any(made)
        assert await store.read_end("race", 100_000, 100_000) in [
            body for body, is_made in zip(bodies, made, strict=True) if is_made
        ]

    async def test_a_condition_holds(self, store: LakeStore) -> None:
        """s3proxy ignores write conditions, and `check` detects that."""
        await store.create_object("one", b"1")
        assert not await store.probe_overwrite_refusal("one", b"1")


async def verified(store: LakeStore, scratch: Path) -> VerifiedLake:
    scratch.mkdir(exist_ok=True)
    return await verify_files(store, read_manifests(store, "lake", scratch), level=DATA, scratch=scratch)


async def test_a_bucket_or_a_key_that_is_wrong_parks(settings: DestinationSettings, tmp_path: Path) -> None:
    """
    The operator must correct a wrong bucket or key, so the route pauses. The signature uses the secret
    in the file.
    """
    other = tmp_path / "other"
    other.write_text("tollhouse\nanother-secret\n")
    for wrong in (replace(settings, url="s3://nobody-has-this/lake"), replace(settings, secret_file=other)):
        with pytest.raises(Misconfigured):
            await open_store(wrong, destination_secret(wrong)).create_object("one", b"1")


@pytest.mark.parametrize("format", ["parquet", "focus-parquet"])
def test_a_kill_at_any_place_leaves_every_row_once(
    settings: DestinationSettings,
    store: LakeStore,
    tmp_path: Path,
    format: str,
    request: pytest.FixtureRequest,
) -> None:
    """
    Each row is stored once, even without conditions. Verification then reports removed, changed and foreign files.
    """
    given = {name: getattr(settings, name) for name in ("type", "url", "endpoint", "secret_file")}
    victim.kill_at_each_place(tmp_path / "data", format=format, **given)
    found = asyncio.run(verified(store, tmp_path / "scratch"))
    assert found.differences == []
    assert found.deliveries == 10
    assert (found.records if "focus" in format else found.rows) == victim.RECORDS
    assert found.spend == "9.5"
    lake = OBJECTS[settings.endpoint] / tmp_path.name
    if format == "parquet":
        sums = query(lake, "SELECT count(*), count(DISTINCT number), sum(spend) FROM lake")
        assert [(victim.RECORDS, victim.RECORDS, Decimal("9.5"))] == sums
    if (
        request.node.callspec.params["settings"] == "gateway"
    ):  # only the gateway reads files that it did not write itself
        _change(sorted((lake / names.DATA).rglob("*.parquet")))
        broken = asyncio.run(verified(store, tmp_path / "scratch"))
        assert {"missing", "foreign", "content"} == {each.kind for each in broken.differences}


def _change(files: Sequence[Path]) -> None:
    """Remove one file, add one and damage one."""
    files[0].unlink()
    shutil.copy(files[1], files[1].with_name(f"{files[1].name}.parquet"))
    files[2].write_bytes(files[2].read_bytes()[:-1] + b"X")
