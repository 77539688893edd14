"""The digests of sessions and runs depend on the installation's secret, and on nothing else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from spool.engines import MEMORY, open_storage
from spool.installation import FILE, derive_secret
from spool.ledger.work import TREES
from spool.storage import Storage, StorageOptions
from tests.moved_clock import MovedClock
from tests.rounds import some
from tests.spool.contract.examples import add, call
from tests.spool.transfer.places import ALL, HOLD_S, Places, _options

NAME = "ada.lovelace"


async def digests(storage: Storage) -> list[str | None]:
    """Return the session and the run of all calls, as the totals show them and as a filter by the id finds them."""
    await storage.ledger.catch_up(storage.log)
    found = []
    for unit in TREES:
        query = replace(ALL, group_by=[unit])
        [row] = await storage.ledger.costs(query)
        id = NAME if unit == "session" else "a" * 32
        assert [row] == await storage.ledger.costs(replace(query, include={unit: (id,)}))
        found.append(row.group[0])
    return found


async def opened(
    options: StorageOptions, engine: str, *, is_new: bool = False, again: bool = False
) -> list[str | None]:
    storage = await open_storage(options, engine=engine)
    try:
        if is_new:
            await add(storage.log, call(1, at=options.clock.now(), session=NAME, run="a" * 32))
            assert isinstance(options.clock, MovedClock)
            options.clock.move(HOLD_S + 1)
        found = await digests(storage)
        if again:
            await storage.ledger.rebuild(storage.log)
            assert found == await digests(storage)
        return found
    finally:
        await storage.close()


async def test_a_digest_belongs_to_its_installation(places: Places, tmp_path: Path) -> None:
    """
    A digest belongs to its installation: it is the same after a restart, a rebuild, a restore and a move, and
    another one in each other installation.
    """
    files = places.options["files"]
    first = await opened(files, "sqlite", is_new=True)
    assert first == await opened(files, "sqlite", again=True)
    shutil.copytree(files.directory, tmp_path / "restored")
    assert first == await opened(_options(tmp_path / "restored", places.clock), "sqlite", again=True)
    for source, target in some([("files", "postgres"), ("postgres", "other files")], every=2):
        await places.copy(source, target)
        options = places.options[target]
        assert first == await opened(options, options.storage.engine, again=True)
        assert first == await opened(replace(options), options.storage.engine)
    others = [
        await opened(_options(tmp_path / engine, MovedClock()), engine, is_new=True)
        for engine in ("sqlite", MEMORY)
    ]
    open_digest = int.from_bytes(blake2b(NAME.encode(), digest_size=8, person=b"\1").digest()) >> 1
    assert 7 == len({*first, *others[0], *others[1], f"session:{open_digest:016x}"})


async def test_the_totals_do_not_have_the_key(places: Places) -> None:
    files = places.options["files"]
    await opened(files, "sqlite", is_new=True)
    secret = (files.directory / FILE).read_bytes()
    for path in files.directory.glob("ledger.sqlite*"):
        for key in (secret, derive_secret(secret, "sessions and runs")):
            assert not any(form in path.read_bytes() for form in (key, key.hex().encode()))
