"""Methods of a storage that write or lock, each on one of a few rows, so that gateways use the same rows."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import orjson

from spool.billing import BILLING_DROPS, BILLING_HOURS, SentHour
from spool.clusters import ReportedCluster
from spool.container_files.container_rows import CONTAINER_USAGE, UsageDocument
from spool.container_files.values import AnnouncedFile, ClusterIdentity, ContainerSender
from spool.deliveries.values import PARKED, RUNNING, Delivery, RouteSpec
from spool.devices.device import ENROLLED, REVOKED, Device
from spool.identity import RecordIdentity
from spool.log.partial_reports import ExpectedVersion, PartialReport, expected_report_versions
from spool.log.values import Submission
from spool.postgres.leases import PostgresLeases
from spool.record import (
    AI_TELEMETRY,
    BILLING_DATA,
    NS,
    UNIT_COST,
    HourlyBillingFile,
    Inference,
    UnitCostOperation,
)
from spool.registry.insights import Finding, InsightDraft
from spool.registry.notices import Notice
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from spool.registry.tables.cluster_settings import ClusterChange
from spool.registry.views import NewView
from spool.storage import Storage
from tests.spool.contract.examples import call, point, submission
from tests.spool.contract.test_machine import outcome_of

ADA = Actor("ada", "127.0.0.1")
ROUTES = [
    RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY),
    RouteSpec(name="archive/ai-telemetry", topic=AI_TELEMETRY, required=False),
    RouteSpec(name="upstream/unit-cost", topic=UNIT_COST),
]
OUTCOMES = "delivered", "delivered", "partly refused", "unknown", "set aside", "refused", "server error"
CALLS = 400  # number of different calls
MONTH = "2026-11"
CLUSTERS = [ClusterIdentity("1", "eu", name) for name in "ab"]
FINDINGS = [Finding(key=f"finding {n}", draft=InsightDraft(title=f"title {n}")) for n in range(4)]


@dataclass
class Gateway:
    """One of several open storages on a database, with the random generator that chooses its actions."""

    storage: Storage
    chance: random.Random
    acknowledged: set[int] = field(default_factory=set)  # numbers of the acknowledged calls

    @property
    def route(self) -> str:
        return self.chance.choice(ROUTES).name

    @property
    def registry(self) -> Registry:
        assert self.storage.registry is not None
        return self.storage.registry

    @property
    def expects(self) -> tuple[ExpectedVersion, ...]:
        """Return expectations about a key, which others may end or change at the same time."""
        keys = self.registry.keys
        known = keys.all()
        return keys.enabled_key_expectations(self.chance.choice(known).id) if known else ()

    def some(self, of: int, most: int = 4) -> list[int]:
        """Return different numbers below `of`, in random order."""
        return self.chance.sample(range(of), self.chance.randint(1, min(of, most)))


def reported(number: int, told: int) -> tuple[Inference, RecordIdentity]:
    """Return a report of a call. Each report adds another tag."""
    return call(
        number,
        at=time.time(),
        user=f"u{number}",
        cost="0.001",
        cost_source="reported",
        tags={f"t{told}": "1"},
    )


# -- the log -------------------------------------------------------------------------------------------------


async def report_calls(gateway: Gateway) -> None:
    numbers, chance = gateway.some(CALLS, 8), gateway.chance
    points = [point(chance.randrange(1000), at=time.time(), series=bytes([n]) * 16) for n in gateway.some(6)]
    await gateway.storage.log.append_submission(
        submission(
            [reported(number, chance.randrange(3)) for number in numbers],
            points=points,
            ignored={"not_ai": 1},
            heard=[bytes([n]) * 16 for n in gateway.some(4)],
            unrecognised=[(f"name {chance.randrange(4)}",)],
        )
    )
    gateway.acknowledged.update(numbers)


async def keep_partial_reports(gateway: Gateway) -> None:
    keys = [b"part %d" % n for n in gateway.some(6)]
    found = await gateway.storage.partial_reports.find_reports(keys)
    kept = [PartialReport(key, time.time(), gateway.chance.randbytes(4)) for key in keys if key not in found]
    terms = {"pending": len(kept) - len(found), "expects": expected_report_versions(keys, found)}
    await gateway.storage.log.append_submission(submission([], keep=kept, forget=sorted(found), **terms))


async def report_operations(gateway: Gateway) -> None:
    chance = gateway.chance
    what = chance.choice(["sum", "sum", "sum", "replace", "delete", "drop"])
    operations = [
        UnitCostOperation(
            id=chance.randbytes(16), operation=what, value="0.1" if what in ("sum", "replace") else None,
            stream=f"stream {chance.randrange(3)}", stream_type="allocation", granularity="HOURLY",
            start_time=chance.randrange(3) * 3600 * NS, element_name=f"e{n}", dimensions={"region": ["eu"]},
        )
        for n in gateway.some(4)
    ]  # fmt: skip
    await append(gateway, UNIT_COST, operations)


async def report_billing(gateway: Gateway) -> None:
    chance = gateway.chance
    rows = [
        {"time/usage_start": f"2026-11-01T{hour:02}:20:00Z", "cost/cost": "1"} for hour in gateway.some(4)
    ]
    operation = chance.choice(["sum", "replace_hourly", "replace_drop"])
    body = orjson.dumps({"month": MONTH, "operation": operation, "data": rows})
    drop = HourlyBillingFile(
        id=chance.randbytes(16), connection_id=chance.choice("ab"), month=MONTH, operation=operation,
        rows=len(rows), body=body,
    )  # fmt: skip
    await append(gateway, BILLING_DATA, [drop])


async def append(
    gateway: Gateway, topic: str, records: Sequence[UnitCostOperation | HourlyBillingFile]
) -> None:
    identities = [RecordIdentity(record.id) for record in records]
    await gateway.storage.log.append_submission(
        Submission(topic=topic, received=len(records), records=list(records), identities=identities)
    )


async def retain(gateway: Gateway) -> None:
    await gateway.storage.log.run_retention()


async def read_books(gateway: Gateway) -> None:
    books = await gateway.storage.log.books()
    assert [] == list(books.imbalances)
    await gateway.storage.log.list_conflicts()
    await gateway.storage.log.unrecognised_items()


async def forget_heard(gateway: Gateway) -> None:
    assert gateway.storage.heard is not None
    await gateway.storage.heard.delete_old(time.time() - 0.5)


# -- deliveries ----------------------------------------------------------------------------------------------


async def declare(gateway: Gateway) -> None:
    routes = ROUTES if gateway.chance.random() < 0.9 else ROUTES[:2]
    await gateway.storage.deliveries.set_routes(routes, at_start=gateway.chance.random() < 0.2)


async def send(gateway: Gateway) -> None:
    chance, deliveries, route, now = gateway.chance, gateway.storage.deliveries, gateway.route, time.time()
    delivery: Delivery | None
    if chance.random() < 0.3:
        delivery = await deliveries.take_test_delivery(route, now=now, max_rejected_records=2)
    else:
        delivery = await deliveries.take_due_delivery(route, now=now, max_records=chance.randint(1, 20))
    if delivery is None:
        return
    if chance.random() < 0.3:
        await deliveries.store_delivery_mark(delivery, f"mark {delivery.id}")
    name, answer = chance.choice(OUTCOMES), chance.choice([None, "503"])
    await outcome_of(name, at=now, answer=answer, ambiguous=chance.random() < 0.5)(deliveries, delivery)


async def give_back(gateway: Gateway) -> None:
    deliveries, now = gateway.storage.deliveries, time.time()
    delivery = await deliveries.take_due_delivery(gateway.route, now=now, max_records=3)
    if delivery is not None:
        await deliveries.requeue_as_possibly_received(delivery, reason="stopped", not_before=now)


async def decide_on_dead_letters(gateway: Gateway) -> None:
    chance, deliveries = gateway.chance, gateway.storage.deliveries
    letters = [letter for letter in await deliveries.dead_letters() if chance.random() < 0.5]
    chance.shuffle(letters)
    if letters and chance.random() < 0.3:
        await deliveries.edit_and_retry_dead_letter(letters[0].id, letters[0].record)
    elif chance.random() < 0.5:
        await deliveries.retry_dead_letters([letter.id for letter in letters])
    else:
        await deliveries.discard_dead_letters([letter.id for letter in letters])


async def resolve(gateway: Gateway) -> None:
    unknowns = list(await gateway.storage.deliveries.deliveries_with_unknown_outcome())
    for unknown in gateway.chance.sample(unknowns, min(2, len(unknowns))):
        await gateway.storage.deliveries.settle_unknown(unknown.id, sent=gateway.chance.random() < 0.5)


async def replay(gateway: Gateway) -> None:
    now = time.time()
    await gateway.storage.deliveries.replay_records(gateway.route, since=now - 1.0, until=now, dry_run=False)


async def set_state(gateway: Gateway) -> None:
    state = gateway.chance.choice([RUNNING, PARKED])
    await gateway.storage.deliveries.set_route_state(gateway.route, state, "said so")


async def restore(gateway: Gateway) -> None:
    await gateway.storage.deliveries.reopen_after_restore(unknown_outcome_reason=None)


async def drop_route(gateway: Gateway) -> None:
    await gateway.storage.deliveries.delete_route_and_count_discarded(ROUTES[2].name)


# -- the ledger ----------------------------------------------------------------------------------------------


async def count(gateway: Gateway) -> None:
    await gateway.storage.ledger.catch_up(gateway.storage.log)


async def tidy(gateway: Gateway) -> None:
    await gateway.storage.ledger.sum_up_and_delete_hours()


# -- the registry --------------------------------------------------------------------------------------------


async def change_keys(gateway: Gateway) -> None:
    keys, name = gateway.registry.keys, f"key {gateway.chance.randrange(3)}"
    what = gateway.chance.randrange(4)
    if what == 0:
        await keys.create(name=name, scopes=[INGEST], actor=ADA)
    elif what == 1:
        await keys.rotate(name, overlap_s=0, actor=ADA)
    elif what == 2:
        await keys.delete(name, confirm=name, actor=ADA)
    else:
        await keys.store_access_times({key.id: time.time() for key in keys.all()})


async def change_views(gateway: Gateway) -> None:
    views, chance = gateway.registry.views, gateway.chance
    if chance.random() < 0.5 or not views.all():
        draft = NewView(name=f"view {chance.randrange(3)}", filter={}, principal_dimension="team")
        await views.create(draft, known_dimensions=("team",), max_rows=10, actor=ADA)
    else:
        await views.delete(chance.choice(views.all()).id, actor=ADA)


async def merge_insights(gateway: Gateway) -> None:
    insights, chance = gateway.registry.insights, gateway.chance
    findings = chance.sample(FINDINGS, chance.randint(0, len(FINDINGS)))
    await insights.merge_findings(findings, looked_for=[each.key for each in FINDINGS])
    for insight in await insights.detector_insights():
        await insights.add_comment(insight.id, "seen", actor=ADA)


async def notify(gateway: Gateway) -> None:
    notices, chance = gateway.registry.notices, gateway.chance
    told = [Notice(id=f"notice-{n}", kind="test", title="a title", at=time.time()) for n in gateway.some(4)]
    await notices.add(told, chance.sample(["mail", "chat"], 2))
    waiting = await notices.waiting_notifications()
    await notices.store_changed_notifications([replace(each, attempts=each.attempts + 1) for each in waiting])
    await notices.discard_notifications([each.id for each in waiting], actor=ADA)


async def note(gateway: Gateway) -> None:
    await gateway.registry.audit_change(ADA, "test", "target")


# -- devices, clusters, container metrics and billing --------------------------------------------------------


def device(id: str) -> Device:
    return Device(id=id, enrolled_at=time.time(), enrolled_by="key", last_seen=time.time())


async def change_devices(gateway: Gateway) -> None:
    devices, chance = gateway.storage.devices, gateway.chance
    id = f"device {chance.randrange(5)}"
    state = chance.choice([ENROLLED, REVOKED])
    what = chance.randrange(4)
    if what == 0:
        await devices.delete([f"device {n}" for n in gateway.some(5)], [])
    elif what == 1:
        for n in gateway.some(5):
            expects = gateway.expects
            devices.change_and_write_soon(
                f"device {n}", lambda known: replace(known, last_seen=time.time()), expectations=expects
            )
            devices.store_unenrolled_name(f"name {n}", key="key", now=time.time(), expected_versions=expects)
        await devices.flush()
    else:

        def changed(known: Device | None) -> Device:
            return (known or device(id)).with_changes_and_next_version(changes_enrolment=True, state=state)

        await devices.update(id, changed, expected_versions=gateway.expects, max_devices=5)


async def change_clusters(gateway: Gateway) -> None:
    clusters, chance = gateway.storage.clusters, gateway.chance
    what = chance.randrange(4)
    if what == 0 and clusters.all():
        await clusters.delete(chance.choice(clusters.all()).id, ADA)
    elif what == 1 and clusters.all():
        change = ClusterChange(enabled=chance.random() < 0.5)
        await clusters.change(chance.choice(clusters.all()).id, change, ADA)
    else:
        name = chance.choice("ab")
        reported = ReportedCluster(account="1", region="eu", name=name, state=str(chance.randrange(99)))
        await clusters.store_report(reported, expected_versions=gateway.expects)


async def keep_container_files(gateway: Gateway) -> None:
    files, chance = gateway.storage.container_files, gateway.chance
    by, cluster = ContainerSender(key="agent", expects=gateway.expects), chance.choice(CLUSTERS)
    announced = [AnnouncedFile(reference=f"file {n}") for n in gateway.some(4)]
    rows = await files.announce_files(cluster, announced, by, expires_at=time.time() + 60)
    what = chance.randrange(3)
    if what == 0:
        await files.mark_files_abandoned(cluster, {file.reference: "gone" for file in announced}, by)
    elif what == 1:
        await files.put_status(cluster, "status", by, request="/", body=chance.randbytes(8))
    else:
        upload = await files.begin_upload(rows[0].id)
        await upload.write(b"metrics")
        await upload.store_if_new()
        await files.mark_delivered(rows)
        await files.delete_expired(has_upstream=True)


async def keep_billing_hours(gateway: Gateway) -> None:
    hours = [
        SentHour(start=3600 * n, hash=b"h", rows=1, bytes=1, sent_at=time.time()) for n in gateway.some(6)
    ]
    await gateway.storage.small.open_table(BILLING_HOURS).store_hours(gateway.chance.choice("ab"), hours)


async def keep_container_usage(gateway: Gateway) -> None:
    usage = gateway.storage.small.open_table(CONTAINER_USAGE)
    documents = [
        UsageDocument(account="a", region="r", cluster=f"c{n % 2}", day=n, changed_at=0.0, body=b"{}")
        for n in gateway.some(6)
    ]
    await usage.store_documents(documents)
    if gateway.chance.random() < 0.2:
        await usage.delete_old_days(3)


async def trim_billing_drops(gateway: Gateway) -> None:
    await gateway.storage.small.open_table(BILLING_DROPS).delete_old_months(MONTH)
    if gateway.chance.random() < 0.2:
        await gateway.storage.small.open_table(BILLING_DROPS).delete_connection(gateway.chance.choice("ab"))


async def own_streams(gateway: Gateway) -> None:
    n = gateway.chance.randrange(3)
    await gateway.storage.streams.set_owner(f"stream {n}", f"key {gateway.chance.randrange(3)}")


# -- leases --------------------------------------------------------------------------------------------------


async def look(gateway: Gateway) -> None:
    leases = gateway.storage.leases
    assert isinstance(leases, PostgresLeases)
    await leases.renew_session()
    await leases.wake_tasks(gateway.route)


VERBS: Sequence[Callable[[Gateway], Awaitable[None]]] = (
    report_calls, report_calls, report_calls, keep_partial_reports, report_operations, report_billing, retain,
    read_books, forget_heard, declare, send, send, send, give_back, decide_on_dead_letters, resolve, replay,
    set_state, restore, drop_route, count, tidy, change_keys, change_views, merge_insights, notify, note,
    change_devices, change_clusters, keep_container_files, keep_container_usage, keep_billing_hours,
    trim_billing_drops, own_streams, look,
)  # fmt: skip
