"""A storage that is copied into another one: the same numbers, receipts, keys, deliveries and sums, or nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spool.deliveries.values import RouteSpec
from spool.engines import engine_of, open_storage
from spool.errors import NotAllowed, SpoolDamaged
from spool.installation import FILE
from spool.ledger.queries import CostQuery
from spool.log.partial_reports import PartialReport
from spool.record import AI_TELEMETRY
from spool.registry.operators import Actor
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import LOCAL, SpoolSettings, StorageSettings
from spool.storage import Storage, StorageOptions
from spool.transfer.copying import CopiedStorage, copy_storage
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, everything
from tests.spool.contract.test_devices import device
from tests.spool.postgres_cluster import Schema

pytestmark = pytest.mark.asyncio

ROUTE = "archive/ai-telemetry"
ALL = CostQuery(
    since=datetime(2000, 1, 1, tzinfo=UTC),
    until=datetime(2100, 1, 1, tzinfo=UTC),
    granularity="total",
    group_by=["user"],
)
WAITS = PartialReport(b"a part of a call", 1.0, b"\x00body")


class Copying:
    """A storage in files with something of everything, and where it is to go."""

    def __init__(self, directory: Path, schema: Schema) -> None:
        self.clock = MovedClock()
        settings = SpoolSettings(hold=0)
        self.source = StorageOptions(directory=directory / "source", settings=settings, clock=self.clock)
        dsn_file = directory / "dsn"
        dsn_file.write_text(schema.dsn)
        self.postgres = StorageOptions(
            directory=directory / "node",
            settings=settings,
            clock=self.clock,
            storage=StorageSettings(
                engine="postgres",
                dsn_file=dsn_file,
                schema=schema.name,
                secret_file=directory / "secret",
                durability=LOCAL,
            ),
        )
        self.files = replace(self.source, directory=directory / "copy")

    async def fill(self) -> None:
        storage = await open_storage(self.source)
        assert storage.registry is not None
        await storage.deliveries.declare([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])
        receipts = [
            await add(storage.log, call(number, user=f"u{number % 2}", cost="0.001", cost_source="reported"))
            for number in range(5)
        ]
        self.receipt = receipts[2].id
        await add(storage.log, keep=[WAITS], pending=1)
        first = await storage.deliveries.due(ROUTE, now=self.clock.now(), max_records=2)
        self.idempotency_key = first.idempotency_key if first else ""
        await storage.ledger.catch_up(storage.log)
        await storage.registry.keys.create(name="a key", use_cases=[SEND_AI_TELEMETRY], actor=Actor("tests", "local"))
        await storage.devices.keep(device("laptop"))
        await storage.close()

    async def copy(self, target: StorageOptions) -> CopiedStorage:
        source, into = engine_of("sqlite"), engine_of(target.storage.engine)
        return await copy_storage(self.source, source, target, into)

    async def check(self, storage: Storage) -> None:
        assert storage.registry is not None
        assert 5 == len(await everything(storage.log))
        assert 3 == (await storage.log.receipt(self.receipt))["first_number"]
        assert [WAITS] == list(await storage.partial_reports.load())
        assert ["laptop"] == [each.id for each in storage.devices.all()]
        assert ["a key"] == [key.name for key in storage.registry.keys.all()]
        costs = {row.group[0]: row.cost for row in await storage.ledger.costs(ALL)}
        assert {"u0": "0.003", "u1": "0.002"} == costs
        # What was known is known, and numbers go on.
        again = await add(storage.log, call(1, user="u1"), call(7, user="u1"))
        view = await storage.log.receipt(again.id)
        assert (1, 1) == (view["new"], view["duplicates"])
        assert 7 == storage.log.next_number(AI_TELEMETRY)
        await storage.ledger.catch_up(storage.log)
        self.clock.move(3600)
        delivery = await storage.deliveries.due(ROUTE, now=self.clock.now(), max_records=2)
        assert delivery is not None
        assert (1, self.idempotency_key) == (delivery.first, delivery.idempotency_key)
        assert [] == list((await storage.log.verify()).imbalances)


@pytest.fixture
def copying(tmp_path: Path, unmade_schema: Schema) -> Copying:
    return Copying(tmp_path, unmade_schema)


@pytest.mark.parametrize("target", ["postgres", "files"])
async def test_all_of_it_is_there(copying: Copying, target: str) -> None:
    """Numbers, receipts, known ids, what waits, deliveries under their keys, sums, devices and keys."""
    await copying.fill()
    options = getattr(copying, target)
    copied = await copying.copy(options)
    assert 5 == copied.topics[AI_TELEMETRY]["accepted"]
    storage = await open_storage(options, engine=options.storage.engine)
    try:
        await copying.check(storage)
    finally:
        await storage.close()
    with pytest.raises(NotAllowed, match="not empty"):
        await copying.copy(options)


async def test_nothing_is_copied_under_another_secret(copying: Copying) -> None:
    """Every key and receipt would be unknown there."""
    await copying.fill()
    secret_file = copying.postgres.storage.secret_file
    assert secret_file is not None
    secret_file.write_bytes(b"x" * 32)
    with pytest.raises(NotAllowed, match="another secret"):
        await copying.copy(copying.postgres)
    secret_file.write_bytes((copying.source.directory / FILE).read_bytes())
    await copying.copy(copying.postgres)


async def test_a_copy_that_is_not_equal_is_taken_away_again(copying: Copying) -> None:
    """Nothing of it counts, and the next attempt begins with nothing."""
    await copying.fill()

    async def unreadable(options: StorageOptions) -> Storage:
        raise SpoolDamaged("it cannot be read")

    broken = replace(engine_of("postgres"), open=unreadable)
    with pytest.raises(SpoolDamaged, match="cannot be read"):
        await copy_storage(copying.source, engine_of("sqlite"), copying.postgres, broken)
    await copying.copy(copying.postgres)


async def test_files_are_not_made_from_a_database(copying: Copying) -> None:
    """It is said at once."""
    await copying.fill()
    await copying.copy(copying.postgres)
    with pytest.raises(NotAllowed, match="from SQLite alone"):
        await copy_storage(copying.postgres, engine_of("postgres"), copying.files, engine_of("sqlite"))


async def test_open_records_are_not_copied(copying: Copying) -> None:
    """What may still be amended is not in the runs of known ids yet."""
    copying.source = replace(copying.source, settings=SpoolSettings(hold=60))
    await copying.fill()
    with pytest.raises(NotAllowed, match="still open"):
        await copying.copy(copying.postgres)
    copying.clock.move(61)
    await copying.copy(copying.postgres)
