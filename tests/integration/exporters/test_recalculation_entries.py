"""A recalculation in the log reaches no other gateway, and a data lake stores only its number and its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import compress

from exporters.lake.stores import FolderStore
from exporters.lake.verification import DATA, read_manifests, verify_files
from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, RecalculationEntry, Record
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings
from spool.storage import Storage
from tests.exporters.spools import call
from tests.integration.conftest import Serve
from tests.integration.lake.lakes import opened, query
from tests.waiting import until

MADE = RecalculationEntry(
    id=b"r" * 16, since=0, price_list=compress(b"a price list"), own_prices=b"our terms", user="ada"
)


async def append_with_calls(storage: Storage) -> None:
    records: list[Record] = [
        call(1, cost="0.5", cost_source="reported"),
        MADE,
        call(2, cost="0.5", cost_source="reported"),
    ]
    await storage.log.append_submission(
        Submission(
            topic=AI_TELEMETRY,
            received=len(records),
            records=records,
            identities=[RecordIdentity(record.id) for record in records],
        )
    )


async def test_another_gateway_receives_only_the_calls(serve: Serve, tmp_path: Path) -> None:
    site = await serve(chain_keys=("ingest",))
    (tmp_path / "ingest.key").write_text(await site.make_key("ingest", use_cases=[SEND_AI_TELEMETRY]))
    upstream = UpstreamSettings(
        base_url=site.url,
        kind="tollhouse",
        keys=(
            UpstreamKey(name="ingest", secret_file=tmp_path / "ingest.key", use_cases=(SEND_AI_TELEMETRY,)),
        ),
    )
    first = await serve(config=Config(spool=SpoolSettings(hold=0), upstream=upstream))
    storage = first.app.services.storage
    await append_with_calls(storage)

    async def sent() -> Any:
        states = await storage.deliveries.route_states()
        [state] = [state for state in states if state.topic == AI_TELEMETRY]
        return state if state.delivered and not state.queued else None

    state = await until(sent, "the calls are sent")
    terms = (await storage.log.books()).routes[state.name]
    assert (terms["delivered"], terms["shadow"]) == (2, 1)
    assert [record.kind for record in await site.records()] == ["inference", "inference"]


async def test_a_lake_stays_sound(tmp_path: Path) -> None:
    """Its record numbers have no gap, its sums are those of the calls, and no file has a price or a name."""
    async with opened(tmp_path / "data") as house, house.forwarding(path=tmp_path / "lake"):
        await append_with_calls(house.storage)
        await house.until(queued=0)
        assert not (await house.storage.log.books()).routes[f"lake/{AI_TELEMETRY}"].get("damaged")
    store = FolderStore(tmp_path / "lake")
    (scratch := tmp_path / "scratch").mkdir()
    manifests = read_manifests(store, "lake", scratch)
    found = await verify_files(store, manifests, level=DATA, scratch=scratch)
    assert (found.differences, found.records, found.calls, found.spend) == ([], 3, 2, "1")
    rows = query(tmp_path / "lake", "SELECT number, kind, shadow, calls FROM lake ORDER BY number")
    assert rows[1] == (2, "recalculation", True, 0)
    texts = repr(query(tmp_path / "lake", "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM lake"))
    assert not any(text in texts for text in ("ada", "price list", "our terms"))
