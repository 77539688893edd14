"""The requirements of a lake for its store, tested with every real store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from exporters.check import check_destinations
from exporters.lake.stores import LakeStore, StoredObject
from exporters.probe import OK, REFUSED, Probe
from exporters.settings import DestinationSettings
from spool.clock import SystemClock


async def names(store: LakeStore, prefix: str, after: str = "") -> list[StoredObject]:
    return [each async for each in store.list_objects(prefix, after=after)]


class StoreContract:
    """
    Tests for a store. A subclass has the fixtures `settings` and `store`. `added` is the message of `check`.
    """

    added = ""

    async def test_a_name_is_written_once(self, store: LakeStore, tmp_path: Path) -> None:
        """
        A second attempt to create an object changes nothing. The object's size, end and content can be read.
        """
        local = tmp_path / "local"
        local.write_bytes(b"one and more")
        assert await store.create_object("a/v1/one", local)
        assert not await store.create_object("a/v1/one", b"two")
        assert 12 == await store.object_size("a/v1/one")
        assert b"more" == await store.read_end("a/v1/one", 12, 4)
        assert b"one and more" == await store.read_end("a/v1/one", 12, 100)
        await store.fetch("a/v1/one", tmp_path / "back")
        assert b"one and more" == (tmp_path / "back").read_bytes()

    async def test_of_many_who_create_a_name_one_does(self, store: LakeStore) -> None:
        """
        If eight writers try to create an object at the same time, exactly one of them creates it, and the object is
        complete.
        """
        bodies = [bytes([65 + n]) * 100_000 for n in range(8)]
        made = await asyncio.gather(*(store.create_object("race", body) for body in bodies))
        assert 1 == sum(made)
        assert bodies[made.index(True)] == await store.read_end("race", 100_000, 100_000)

    async def test_what_is_not_there_is_none(self, store: LakeStore, tmp_path: Path) -> None:
        """A missing object has no size, and an empty store lists no names."""
        assert await store.object_size("nothing") is None
        assert [] == await names(store, "a/")
        with pytest.raises(FileNotFoundError):
            await store.fetch("nothing", tmp_path / "back")

    async def test_names_come_in_order(self, store: LakeStore) -> None:
        """A list has the names and sizes below a prefix, and may start after a name."""
        for name in ("m/2", "m/1", "m/3", "n/1"):
            await store.create_object(name, name.encode())
        assert [StoredObject("m/1", 3), StoredObject("m/2", 3), StoredObject("m/3", 3)] == await names(
            store, "m/"
        )
        assert [StoredObject("m/3", 3)] == await names(store, "m/", after="m/2")

    async def test_a_condition_holds(self, store: LakeStore) -> None:
        """A conditional write to the store fails if the object exists."""
        await store.create_object("one", b"1")
        assert await store.probe_overwrite_refusal("one", b"1")

    async def test_check_writes_one_object(self, settings: DestinationSettings, store: LakeStore) -> None:
        """
        `tollhouse check` writes the same small object each time, and reports the prefix's owner to another
        installation. An installation without data claims nothing.
        """

        async def checked(installation: str | None) -> Probe:
            (found,) = await check_destinations([settings], clock=SystemClock(), installation=installation)
            return Probe(status=found.status, words=found.words)

        kept = f"_tollhouse.json was written there and remains{self.added}"
        new = f"_check.json was written there and remains{self.added}"
        belongs = "the prefix belongs to the installation a1, and this installation has no data yet"
        assert Probe(status=OK, words=new) == await checked(None)
        assert [Probe(status=OK, words=kept)] * 2 == [await checked("a1"), await checked("a1")]
        assert Probe(status=OK, words=f"{new}; {belongs}") == await checked(None)
        other = await checked("b2")
        assert other.words is not None and other.words.startswith(
            "the prefix belongs to another installation (a1"
        )
        assert REFUSED == other.status
        assert ["_check.json", "_tollhouse.json"] == [each.name for each in await names(store, "")]
