"""The operator API on either storage engine, reached over loopback and over the socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web
from yarl import URL

from exporters.service.billing_drops import ConnectionLocks
from exporters.service.billing_sync import BillingSync
from exporters.service.upstream_client import build_client
from exporters.settings import UpstreamSettings
from gateway.bills.billed.biller import BilledCostCalculator
from gateway.bills.contracts.declared import all_contracts
from gateway.bills.contracts.reading import read_month_charges
from gateway.bills.reconciliation.gathering import StatementSources
from gateway.bills.reconciliation.reconciler import BillReconciler
from gateway.clusters.clusters import Clusters
from gateway.configuration.sections import BillingSettings, ClusterSettings, DeviceSettings
from gateway.configuration.server import ServerSettings
from gateway.core.first_use import LazyValue
from gateway.core.paths import OPERATOR_API
from gateway.devices.fleet.fleet import Fleet
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.http.listening.forwarded import TrustedProxies
from gateway.http.listening.listener import Listener
from gateway.intake.billing_connections import BillingConnections
from gateway.intake.prices import PriceBook
from gateway.money.budgets.evaluator import BudgetEvaluator
from gateway.money.lost_calls import LossEstimator
from gateway.operations.devices.listed_devices import ListedDevices
from gateway.operations.holders.operators import (
    AssistantServices,
    InstallationServices,
    MoneyServices,
    PeopleServices,
    SenderServices,
    SpoolServices,
)
from gateway.operations.list import declared_tables
from gateway.operations.requests.socket import OperatorSocket
from gateway.operations.services import OperatorServices
from gateway.people.authentication.access import KeyAccess
from gateway.service.addresses.application import operator_application
from spool.billing import BILLING_DROPS, BILLING_HOURS
from spool.devices.use_days import USE_DAYS
from spool.engines import MEMORY, open_storage
from spool.ledger.colours import NAME_COLOURS
from spool.settings import SpoolSettings, StorageSettings
from spool.storage import Storage, StorageOptions
from tests.moved_clock import MovedClock

ADA = "ada@example.com"
INGEST = "ai-telemetry-ingest:ingest-ai-telemetry"


class Answer:
    def __init__(self, response: aiohttp.ClientResponse, payload: Any) -> None:
        self.status = response.status
        self.headers = response.headers
        self.cookies = response.cookies
        self.payload = payload

    @property
    def error(self) -> tuple[int, str, str]:
        return self.status, self.payload["error"]["type"], self.payload["error"]["message"]


class OperatorServer:
    def __init__(
        self, services: OperatorServices, storage: Storage, clock: MovedClock, url: str, socket: Path
    ) -> None:
        self.storage = storage
        assert services.installation.registry is not None
        self.services = services
        self.registry = services.installation.registry
        self.access = services.senders.access
        self.clock = clock
        self.url = url
        self.socket = socket
        self.woken: list[str] = []

    def as_shown(self, unit: str, id: str, *, session: str | None = None) -> str:
        """Return the digest of a session or run in this installation."""
        return self.storage.ledger.digests.digest_of_id(unit, id, session=session)

    async def ask(
        self, method: str, path: str, body: object = None, *, by: str = ADA, reason: str = "", **query: str
    ) -> Answer:
        """Send a request over the socket, as the command line does. A body of bytes is sent as CSV."""
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self.socket))) as session:
            url = URL(f"http://tollhouse{OPERATOR_API}{path}", encoded=True).update_query(query)
            headers = {"X-Tollhouse-As": quote(by), "X-Tollhouse-Reason": quote(reason)}
            sent: dict[str, Any] = {"json": body}
            if isinstance(body, bytes):
                sent, headers["Content-Type"] = {"data": BytesIO(body)}, "text/csv"
            async with session.request(method, url, headers=headers, **sent) as response:
                return await _read(response)

    async def over_http(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request as a browser without a session. Cookies are given as headers."""
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(
                method, f"{self.url}{OPERATOR_API}{path}", json=body, headers=headers
            ) as response,
        ):
            return await _read(response)

    async def create(self, name: str = "search team", **given: Any) -> dict[str, Any]:
        """Create a key; return the creation's answer."""
        given = given or {"scopes": [INGEST]}
        answer = await self.ask("POST", "/keys", {"name": name, **given})
        assert 201 == answer.status, answer.payload
        created: dict[str, Any] = answer.payload
        return created


async def _read(response: aiohttp.ClientResponse) -> Answer:
    """Read the whole answer: JSON, or the text of a CSV. For an event stream, read only the headers."""
    if response.content_type == "text/csv":
        return Answer(response, await response.text())
    return Answer(response, None if response.content_type == "text/event-stream" else await response.json())


@asynccontextmanager
async def operator_server(
    directory: Path,
    *,
    engine: str = MEMORY,
    api_key_file: Path | None = None,
    clock: MovedClock | None = None,
    hold: float = 0,
    proxies: Sequence[str] = (),
    stored: StorageSettings | None = None,
    **services: Any,
) -> AsyncIterator[OperatorServer]:
    clock = clock or MovedClock()
    options = StorageOptions(
        declared=declared_tables(),
        directory=directory,
        settings=SpoolSettings(hold=hold),
        clock=clock,
        storage=stored or StorageSettings(),
    )
    storage = await open_storage(options, engine=engine)
    assert storage.registry is not None
    access = KeyAccess(storage.registry, ServerSettings(api_key_file=api_key_file), clock=clock)
    storage.devices.auditor = storage.registry.audit_changes
    inventory = storage.registry.inventory
    devices = DeviceLifecycle(
        storage.devices,
        settings=DeviceSettings(),
        clock=clock,
        secret=storage.secret,
        tokens=None if storage.registry is None else storage.registry.enrolment_tokens,
    )
    statement_sources = StatementSources(
        ledger=storage.ledger,
        log=storage.log,
        prices=services.get("prices", PriceBook.load),
        statements=storage.registry.statements,
        closed_months=storage.registry.closed_months.all,
        contracts=partial(all_contracts, storage.registry),
        charges=partial(read_month_charges, storage.ledger, storage.registry),
    )
    reconciler = BillReconciler(statement_sources, clock)
    biller = BilledCostCalculator(statement_sources, clock)
    registry: dict[str, Any] = {"registry": storage.registry, "clock": clock}
    fleet = Fleet(devices, lambda: inventory.current)
    inventory.prepare_list = fleet.prepare_list
    losses = LossEstimator(
        storage.small.open_table(USE_DAYS),
        storage.ledger,
        storage.log,
        users=fleet.users_of_devices,
        now=clock.now,
    )
    own: dict[str, Any] = {"fleet": fleet, "losses": losses}

    def chosen(holder: type) -> dict[str, Any]:
        """Return the values that the test sets for a holder of services."""
        return {each.name: services[each.name] for each in fields(holder) if each.name in services}

    given = OperatorServices(
        spool=SpoolServices(
            log=storage.log,
            deliveries=storage.deliveries,
            streams=storage.streams,
            clock=clock,
            **chosen(SpoolServices),
        ),
        money=MoneyServices(
            **registry,
            ledger=storage.ledger,
            colours=storage.small.open_table(NAME_COLOURS),
            log=storage.log,
            streams=storage.streams,
            billing=BillingSync(
                storage.ledger,
                storage.small.open_table(BILLING_HOURS),
                build_client(UpstreamSettings(), clock=clock),
                UpstreamSettings(),
                ConnectionLocks(),
                clock=clock,
            ),
            billing_connections=BillingConnections(
                storage.registry, storage.small.open_table(BILLING_DROPS), clock, BillingSettings()
            ),
            budgets=LazyValue(
                partial(
                    BudgetEvaluator,
                    storage.registry,
                    storage.ledger,
                    storage.log,
                    clock,
                    max_owners=lambda: 100,
                    link=lambda _: "",
                )
            ),
            reconciler=LazyValue(lambda: reconciler),
            biller=LazyValue(lambda: biller),
            **chosen(MoneyServices),
        ),
        people=PeopleServices(**registry, **chosen(PeopleServices)),
        senders=SenderServices(
            **registry,
            access=access,
            devices=devices,
            listed_devices=ListedDevices(devices, clock),
            clusters=Clusters(storage.clusters, devices=devices, settings=ClusterSettings(), clock=clock),
            **own | chosen(SenderServices),
        ),
        assistants=AssistantServices(clock=clock, **chosen(AssistantServices)),
        installation=InstallationServices(
            **registry, secret=storage.secret, version="0", **chosen(InstallationServices)
        ),
    )
    root = web.Application()
    root.add_subapp(OPERATOR_API, operator_application(given))
    listener = Listener(root, proxies=TrustedProxies(proxies))
    await listener.start("127.0.0.1:0")
    socket = OperatorSocket(directory, operator_application(given))
    try:
        await access.start()
        path = await socket.start()
        yield OperatorServer(given, storage, clock, listener.url, path)
    finally:
        await socket.stop()
        await listener.stop()
        await access.stop()
        await storage.close()
