"""Storages to copy between, one of them with data of every kind, and the visible content of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from spool.billing import BILLING_DROPS, BILLING_HOURS, SentHour
from spool.clock import Clock
from spool.container_files.container_rows import CONTAINER_USAGE, UsageDocument
from spool.container_files.values import AnnouncedFile, ClusterIdentity, ContainerSender
from spool.deliveries.values import RouteSpec, Settlement
from spool.devices.use_days import USE_DAYS, UseDay
from spool.engines import load_engine, open_storage
from spool.identity import RecordIdentity
from spool.installation import installation_secret
from spool.ledger.billed import EVERY, BilledDay, BilledSum
from spool.ledger.queries import CostQuery
from spool.ledger.sums import Dimensions
from spool.ledger.token_sums import TokenSum
from spool.listing import ASCENDING, ListQuery, SortField
from spool.log.partial_reports import PartialReport
from spool.log.recent_senders import call_kind_digest, caller_digest
from spool.log.values import LogAccounting, Submission
from spool.money import UNIT
from spool.record import AI_TELEMETRY, NS, TOPICS, Record, UsageEvent
from spool.registry.connections import ConnectionDraft
from spool.registry.insights import InsightDraft
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings, StorageSettings
from spool.storage import Storage, StorageOptions
from spool.transfer.copying import CopiedStorage, copy_storage
from spool.transfer.tables import Progress, no_progress
from tests.exporters.spools import record_id
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, point, senders_of
from tests.spool.contract.small_tables.test_billing_drops import drop, row
from tests.spool.contract.test_clusters import WHOLE
from tests.spool.contract.test_devices import device
from tests.spool.contract.test_streams import operation
from tests.spool.postgres_cluster import Schema

ROUTE, OTHER = "archive/ai-telemetry", "second/ai-telemetry"
ACTOR = Actor("tests", "local")
BILLED_DAY = BilledDay(
    day=20_000 * 86_400, provider="openai", state="closed", mark="1", source="bill", read_at=1.5, made_at=2.25,
    reasons={"no_calls": 3 * UNIT}, foreign={"EUR": 2},
)  # fmt: skip
OF_NOBODY = Dimensions(**{**dict.fromkeys(Dimensions._fields, ""), "kind": "billed", "size": 0, "model": "m"})  # type: ignore[arg-type]
BILLED_SUMS = [
    BilledSum(OF_NOBODY, "usage", "unallocated", EVERY, 3 * UNIT + 1),
    BilledSum(OF_NOBODY, "discount", "unallocated", EVERY, -UNIT),
]
ALL = CostQuery(
    since=datetime(2000, 1, 1, tzinfo=UTC),
    until=datetime(2100, 1, 1, tzinfo=UTC),
    granularity="total",
    group_by=["user"],
)
WAITS = PartialReport(b"a part of a call", 1.0, b"\x00body")
CALLER = caller_digest("session", "s1")
HEARD = [
    *senders_of(CALLER, [call_kind_digest("source", "codex")]),
    *senders_of(CALLER, [call_kind_digest("source", "otel")]),
]
CLUSTER = ClusterIdentity("123456789012", "us-east-1", "prod")
AGENT = ContainerSender(key="agent", shipper="shipper-1", agent_version="1.2.12")
USED = UsageDocument(
    account="1", region="r", cluster="prod", day=86_400, changed_at=1.5, body=b"\x00what was used"
)
USED_DAY = UseDay(
    day="2026-11-30", device="d1", assistant="codex", team="search", used=9, lost=4, lost_calls=1
)
HOLD_S = 30
BYTES = b"the bytes " * 50_000


def _options(directory: Path, clock: Clock) -> StorageOptions:
    return StorageOptions(directory=directory, settings=SpoolSettings(hold=HOLD_S), clock=clock)


def options_described(described: str, clock: Clock) -> StorageOptions:
    """Return the options that `Places.described` wrote."""
    told = json.loads(described)
    files = {
        name: Path(told["storage"][name]) for name in ("dsn_file", "secret_file") if name in told["storage"]
    }
    storage = StorageSettings(**{**told["storage"], **files})
    return replace(_options(Path(told["directory"]), clock), storage=storage)


class Places:
    """
    Storages by name: `files` (filled by `fill`), `postgres`, and a second one of each kind.

    Records are open for HOLD_S by a clock that a test moves.
    """

    def __init__(self, folder: Path, schemas: Mapping[str, Schema]) -> None:
        self.clock = MovedClock()
        self.idempotency_key = ""  # the idempotency key of a waiting delivery
        self.options = {name: _options(folder / name, self.clock) for name in ("files", "other files")}
        self._schemas = schemas
        for name, schema in schemas.items():
            secrets = folder / f"{name} secrets"
            secrets.mkdir()
            storage = schema.settings(secrets)
            assert storage.secret_file is not None
            storage.secret_file.unlink()
            self.options[name] = replace(_options(folder / name, self.clock), storage=storage)

    def described(self, name: str) -> str:
        """Describe the options of a storage for `options_described` in another process."""
        options = self.options[name]
        storage = {key: value for key, value in asdict(options.storage).items() if value is not None}
        return json.dumps({"directory": options.directory, "storage": storage}, default=str)

    def secret(self, name: str) -> bytes:
        return installation_secret(self.options[name].directory)

    def forget(self, name: str) -> None:
        """Drop the schema of a storage, for another copy."""
        schema = self._schemas[name]
        with psycopg.connect(schema.dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {schema.name} CASCADE".encode())

    async def open(self, name: str) -> Storage:
        options = self.options[name]
        return await open_storage(options, engine=options.storage.engine)

    async def said(self, name: str) -> dict[str, Any]:
        """Open a storage and return its visible content (see `shown`)."""
        storage = await self.open(name)
        try:
            return await shown(storage)
        finally:
            await storage.close()

    async def copy(self, source: str, target: str, progress: Progress = no_progress) -> CopiedStorage:
        one, other = self.options[source], self.options[target]
        return await copy_storage(
            one, load_engine(one.storage.engine), other, load_engine(other.storage.engine), progress
        )

    async def fill(self) -> str:
        """Store data of every kind with some records open, and return the receipt of the third call."""
        storage = await self.open("files")
        try:
            return await self._fill(storage)
        finally:
            await storage.close()

    async def _fill(self, storage: Storage) -> str:
        assert storage.registry is not None
        log, deliveries = storage.log, storage.deliveries
        await deliveries.set_routes([RouteSpec(name=name, topic=AI_TELEMETRY) for name in (ROUTE, OTHER)])
        at = self.clock.now()
        receipts = [
            await add(log, call(number, at=at, user=f"u{number % 2}", cost="0.001", cost_source="reported"))
            for number in range(5)
        ]
        await add(
            log, call(0, at=at, source="litellm", input_tokens=101), points=[point(7, at=at, since=at - 9)]
        )
        await add(log, keep=[WAITS], heard=HEARD, pending=1, unrecognised=[("gen_ai.new", "gen_ai.other")])
        self.clock.move(HOLD_S + 1)
        open_receipt = await add(log, call(5, at=self.clock.now(), user="u1"), call(6, at=self.clock.now()))
        assert open_receipt.records == 2
        now = self.clock.now()
        sent = await deliveries.take_due_delivery(ROUTE, now=now, max_records=1)
        assert sent is not None
        await deliveries.store_settlement(sent, Settlement(delivered=1))
        refused = await deliveries.take_due_delivery(ROUTE, now=now, max_records=1)
        assert refused is not None
        await deliveries.set_aside(refused, error="no such field", status="400")
        in_hand = await deliveries.take_due_delivery(ROUTE, now=now, max_records=2)
        assert in_hand is not None
        self.idempotency_key = in_hand.idempotency_key
        await deliveries.schedule_retry(
            in_hand, reason="away", not_before=now + 5, answer="503", may_be_accepted=True
        )
        lost = await deliveries.take_due_delivery(OTHER, now=now, max_records=3)
        assert lost is not None
        await deliveries.mark_outcome_unknown(lost, reason="cut off")
        await storage.ledger.catch_up(log)
        await storage.ledger.reprice(log, NoPrices(), since=datetime.fromtimestamp(0, UTC))
        await storage.ledger.store_billed_days([(BILLED_DAY, BILLED_SUMS)])
        await self._fill_tables(storage)
        await self._fill_registry(storage.registry)
        await storage.devices.replace_row(device("laptop"))
        [file] = await storage.container_files.announce_files(
            CLUSTER, [AnnouncedFile(reference="a/file")], AGENT, expires_at=now + 3600
        )
        upload = await storage.container_files.begin_upload(file.id)
        await upload.write(BYTES)
        assert await upload.store_if_new()
        return receipts[2].id

    async def _fill_tables(self, storage: Storage) -> None:
        at = self.clock.now()
        await _append(
            storage, operation(1, start_time=int(at) * NS), operation(2, "replace", "0.25", element_name="b")
        )
        await _append(storage, drop(3, "replace_drop", [row(7), row(8, "0.5")], connection="bill"))
        await _append(
            storage, UsageEvent(id=record_id(4), source="app", event_type="sale", data={"amount": 2.5})
        )
        hour = SentHour(start=3600, hash=b"\x00hash", rows=3, bytes=99, sent_at=at)
        await storage.small.open_table(BILLING_HOURS).store_hours("bill", [hour])
        await storage.small.open_table(CONTAINER_USAGE).store_documents([USED])
        await storage.clusters.store_report(WHOLE)
        await storage.small.open_table(USE_DAYS).replace_days([USED_DAY])

    async def _fill_registry(self, registry: Registry) -> None:
        for name in ("a key", "a key that goes"):
            await registry.keys.create(name=name, use_cases=[SEND_AI_TELEMETRY], actor=ACTOR)
        await registry.keys.delete("a key that goes", confirm="a key that goes", actor=ACTOR)
        await registry.connections.create(
            ConnectionDraft(name="bill", cloud_provider="AWS"), max_rows=9, actor=ACTOR
        )
        insight = await registry.insights.create(InsightDraft(title="a spike"), actor=ACTOR)
        await registry.insights.add_comment(insight.id, "why?", actor=ACTOR)
        await registry.operators.sign_in_by_link(
            await registry.operators.create_sign_in_link(role="admin", actor=ACTOR), address="127.0.0.1"
        )
        await registry.operators.create_sign_in_link(role="viewer", actor=ACTOR)


async def _append(storage: Storage, *records: Record) -> None:
    identities = [RecordIdentity(record.id) for record in records]
    topic = records[0].topic
    await storage.log.append_submission(
        Submission(topic=topic, received=len(records), records=list(records), identities=identities)
    )


async def shown(storage: Storage) -> dict[str, Any]:
    """Return the content of a storage as every reading method returns it."""
    log, deliveries, registry = storage.log, storage.deliveries, storage.registry
    assert registry is not None
    files = await storage.container_files.page(
        ListQuery(sort=SortField("id"), order=ASCENDING, identity="id", limit=9)
    )
    by_title = ListQuery(sort=SortField("title"), order=ASCENDING, identity="id", limit=9)
    insights = await registry.insights.page(by_title)
    audit = await registry.audit_page(
        ListQuery(sort=SortField("id"), order=ASCENDING, identity="id", limit=99)
    )
    return {
        "closed": {topic: await log.read(topic, 1, log.next_number(topic)) for topic in TOPICS},
        "records": {
            topic: await log.read(topic, 1, log.next_number(topic), includes_open_records=True)
            for topic in TOPICS
        },
        "numbers": {topic: log.next_number(topic) for topic in TOPICS},
        "books": books_of(await log.verify()),
        "known ids": (await log.stats()).duplicate_ids,
        "conflicts": await log.list_conflicts(),
        "unrecognised": await log.unrecognised_items(),
        "event types": await log.event_types(),
        "routes": await deliveries.route_states(),
        "unsettled": await deliveries.unsettled_deliveries(),
        "dead": await deliveries.dead_letters(),
        "unknown": await deliveries.deliveries_with_unknown_outcome(),
        "partial reports": sorted(await storage.partial_reports.load()),
        "devices": storage.devices.all(),
        "streams": await storage.streams.streams(),
        "totals": await storage.streams.stream_totals("calls"),
        "sizes": await storage.streams.stream_sizes(),
        "clusters": storage.clusters.all(),
        "days of assistants": await storage.small.open_table(USE_DAYS).losses_between("2026", "2027"),
        "sent hours": await storage.small.open_table(BILLING_HOURS).sent_hours("bill", 0, 10**6),
        "usage of containers": await storage.small.open_table(CONTAINER_USAGE).document(
            USED.identity, USED.day
        ),
        "billing drops": await storage.small.open_table(BILLING_DROPS).month_hours("bill", "2026-11"),
        "costs": await storage.ledger.costs(ALL),
        "billed": await storage.ledger.costs(
            replace(ALL, granularity="total", group_by=("model", "charge"), arranged=2)
        ),
        "recalculations": await storage.ledger._read_rows(
            lambda rows: (rows.recalculations(), rows.price_lists(), rows.tag_lists())
        ),
        "billed days": await storage.ledger.billed_days(0, 2**40),
        "keys": registry.keys.all(),
        "audit": audit.rows,
        "connections": registry.connections.all(),
        "insights": [(each, await registry.insights.comments(each.id)) for each in insights.rows],
        "sessions": await registry.operators.live_sessions(),
        "container files": files.rows,
        "bytes": [
            b"".join([piece async for piece in storage.container_files.contents.read(one.id)])
            for one in files.rows
        ],
        "secret": storage.secret,
        "incarnation": storage.incarnation,
    }


class NoPrices:
    def estimate_sum(self, total: TokenSum) -> None: ...
    def may_have_two_prices(self, total: TokenSum) -> bool:
        return False

    def encode_rate_card_and_overrides(self) -> tuple[bytes, bytes]:
        return b"list", b"own"


def books_of(books: LogAccounting) -> object:
    """Return the accounting in a form where a missing term equals 0."""
    terms = [{(key, term): n for key, of_key in all.items() for term, n in of_key.items() if n}
             for all in (books.topics, books.routes)]  # fmt: skip
    return terms, books.imbalances
