"""
Creates the parts of a Tollhouse from settings and storage that all parts share. `routes.py` creates the routes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from exporters.notifications.notifier import Notifier
from exporters.service.billing_drops import BillingFileValidator, ConnectionLocks
from exporters.service.billing_sync import BillingSync
from exporters.service.upstream_client import UpstreamClient, build_client
from gateway.bills.contracts.declared import price_terms
from gateway.clusters.clusters import Clusters
from gateway.configuration.changes import digest_settings
from gateway.configuration.local_operator import local_address
from gateway.configuration.secret_file import signing_secret
from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from gateway.devices.assignment import DeviceAssignment
from gateway.devices.fleet.fleet import Fleet
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.http.cors import Cors
from gateway.http.event_streams import EventStreams
from gateway.http.inflight_bytes import InflightBytes
from gateway.http.listening.connections import OpenConnections, connection_limit, operator_connections
from gateway.http.listening.forwarded import TrustedProxies
from gateway.http.pending_requests import ReceivingSlots
from gateway.intake.attribution import RecordAttributor
from gateway.intake.billing_connections import BillingConnections, Validate
from gateway.intake.deposits import NonTelemetryIntake
from gateway.intake.intake import PayloadIntake
from gateway.intake.merge_window import ReportMergeWindow, SharedMergeWindow
from gateway.intake.prices import PriceBook
from gateway.intake.publisher import UnitCostPublisher
from gateway.intake.rate_cards.card import CardUnreadable
from gateway.intake.shadows import ReportedCallers
from gateway.intake.stream_admission import StreamAdmission
from gateway.intake.waiting_counters import WaitingCounters
from gateway.money.lost_calls import LossEstimator
from gateway.monitoring.metrics import ProcessMetrics
from gateway.normalise.formats.langfuse.merger import ReportMerger
from gateway.normalise.outcome import ReadOptions
from gateway.operations.money.own_prices import price_overrides
from gateway.operations.requests.receiver_services import ReceiverServices
from gateway.operations.services import Background
from gateway.people.authentication.access import KeyAccess
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.service.assembly.demo import demo_or_real_channel_builder
from gateway.service.assembly.limits import nearly_used_shares
from gateway.service.assembly.prices import load_price_book
from gateway.service.demo.note import read_note
from spool.billing import BILLING_DROPS, BILLING_HOURS
from spool.clock import Clock, SteadyClock
from spool.devices.use_days import USE_DAYS
from spool.loops import RETRY_S, repeat
from spool.packed.native import NO_NATIVE, CompiledModuleUse
from spool.people import People
from spool.record import Inference, UsageEvent
from spool.registry.notices import ChannelState
from spool.registry.operators import Actor
from spool.shares import HeldByKey, KeyShare
from spool.storage import Storage

if TYPE_CHECKING:
    from exporters.notifications.kept_channels import ChannelSecretCipher
    from gateway.core.first_use import LazyValue
    from gateway.intake.sender_fields import SenderFieldSaver
    from gateway.monitoring.late_reports import LateReportSaver
    from gateway.monitoring.sender_hours import SenderHoursTracker
    from gateway.normalise.otlp.decoding.compiled_decoder import CompiledTracesDecoder
    from gateway.people.authentication.oidc.assistants import AssistantSignIns
    from gateway.people.authentication.oidc.sign_ins import ProviderSignIns
    from spool.registry.registry import Registry
    from spool.registry.tables.kept_channels import ChannelFields, KeptChannelTable, StoredChannel


_log = logging.getLogger(__name__)


class ServicePartsBuilder:
    """Creates parts from shared settings and storage. Parts that must be closed are pushed on `stack`."""

    def __init__(
        self,
        config: Config,
        storage: Storage,
        clock: Clock,
        stack: AsyncExitStack,
        *,
        native: CompiledModuleUse = NO_NATIVE,
    ) -> None:
        self.config = config
        self.storage = storage
        self.native = native
        self.compiled_decoder: LazyValue[CompiledTracesDecoder] | None = None
        self.late_reports: LateReportSaver | None = None
        # hours in which senders sent, or None in an agent and while the registry is damaged
        self.sender_hours: SenderHoursTracker | None = None
        self.sender_fields: SenderFieldSaver | None = None
        # When the intake starts, it replaces this function with one that returns the prices in use.
        self.prices: Callable[[], PriceBook] = lambda: price_book(self.config, self.storage.registry)
        self.clock = clock
        self.demo_note = read_note(config.data_dir)
        self.stack = stack
        self.locks = ConnectionLocks()
        server = config.server
        self.inflight = InflightBytes(
            server.max_inflight_bytes, reserve=server.small_body_reserve, small=server.small_body_bytes
        )
        self.operator_connections = operator_connections(config.server)
        self.event_streams = EventStreams(
            config.server.max_event_streams, config.server.max_person_event_streams
        )
        self.billing_connections = BillingConnections(
            storage.registry,
            storage.small.open_table(BILLING_DROPS),
            clock,
            config.billing,
            configured_connection_id=config.upstream.connection_id,
            validate=self.build_billing_validator(config),
        )
        self.devices = DeviceLifecycle(
            storage.devices,
            settings=config.devices,
            clock=clock,
            secret=storage.secret,
            people=self.build_people(config),
            tokens=None if storage.registry is None else storage.registry.enrolment_tokens,
        )
        registry = storage.registry
        self.fleet = Fleet(self.devices, lambda: None if registry is None else registry.inventory.current)
        self.devices.expected = self.fleet.expected_machines
        self.use_days = storage.small.open_table(USE_DAYS)
        self.losses = LossEstimator(
            self.use_days, storage.ledger, storage.log, users=self.fleet.users_of_devices, now=clock.now
        )
        self.clusters = Clusters(
            storage.clusters,
            devices=self.devices,
            settings=config.clusters,
            clock=clock,
            configs=None if registry is None else registry.cluster_configs,
        )
        self.notifier: Notifier | None = None
        if registry is not None:
            registry.inventory.prepare_list = self.fleet.prepare_list
            self.notifier = Notifier(
                registry.notices, config.notify, clock, demo_or_real_channel_builder(self.demo_note)
            )
            registry.kept_channels.seal = self._seal_channel
            registry.kept_channels.changed = self._register_channels
            self._register_channels(registry.kept_channels)
        self.sign_ins: ProviderSignIns | None = None
        self.assistant_sign_ins: AssistantSignIns | None = None
        # pairs of a limit of the intake and a function that returns how much of it each key uses
        self.waiting: list[tuple[str, Callable[[], HeldByKey]]] = []
        self.shadows: ReportedCallers | None = None  # None until the intake starts

    def _register_channels(self, table: KeptChannelTable) -> None:
        """Send on the channels of a table. A draft of it only learns the names that exist once it is applied."""
        registry = self.storage.registry
        if self.notifier is None or registry is None:
            return
        kept = [self._channel_secret_encryptor().decrypt_settings(channel) for channel in table.all()]
        if table is registry.kept_channels:
            self.notifier.set_stored_channels(kept)
        else:
            self.notifier.register_channels(table.notices, kept)

    def _channel_secret_encryptor(self) -> ChannelSecretCipher:
        from exporters.notifications.kept_channels import ChannelSecretCipher

        return ChannelSecretCipher(secret=self.storage.secret, clock=self.clock)

    def _seal_channel(
        self, channel_fields: ChannelFields, secret: str | None, old_channel: StoredChannel | None
    ) -> str:
        return self._channel_secret_encryptor()(channel_fields, secret, old_channel)

    async def probe_receiver_status_and_words(
        self, kind: str, url: str, secret: str
    ) -> tuple[str, str | None]:
        from exporters.check import (
            probe_typed_address,  # imported late, because the start does not need this module
        )

        probe = await probe_typed_address(kind, url, secret, clock=self.clock)
        return probe.status, probe.words

    def build_people(self, config: Config) -> People:
        known = self.storage.ledger.people
        persons = None if known is None else known.persons
        return People.for_installation(self.storage.secret, config.privacy.emails, persons)

    def normaliser_options(self, config: Config) -> ReadOptions:
        return ReadOptions(
            keep_attributes=frozenset(config.privacy.keep_attributes),
            keep_tags=config.kept_tags,
            counted=config.explicitly_counted_sources,
            host_id=config.devices.host_id,
            max_items=config.server.max_items,
        )

    async def start_access(self, local: AuthenticatedKey | None = None) -> KeyAccess:
        access = KeyAccess(
            self.storage.registry,
            self.config.server,
            clock=self.clock,
            devices=self.devices.keys.bearer_of_key,
            local=local,
            deployment=local_address(self.config),
            node=self.config.storage.node_name or socket.gethostname(),
            others=self._names_of_other_live_gateways,
        )
        await access.start()
        self.stack.push_async_callback(access.stop)
        return access

    async def _names_of_other_live_gateways(self) -> Sequence[str]:
        return [
            node.name for node in await self.storage.leases.node_states() if node.is_live and not node.is_this
        ]

    async def start_sign_ins(self, metrics: ProcessMetrics) -> None:
        """
        Start sign-ins with the OpenID provider if it is configured. End the sessions that began at any other
        provider. Raises ConfigError if the secret is missing.
        """
        registry, settings = self.storage.registry, self.config.oidc
        if registry is None:
            return
        if settings.issuer:
            # Imported late, because only sign-ins with a provider need these libraries.
            from gateway.people.authentication.oidc.assistants import AssistantSignIns
            from gateway.people.authentication.oidc.sign_ins import ProviderSignIns

            self.sign_ins = ProviderSignIns(settings, registry, self.clock)
            self.stack.push_async_callback(self.sign_ins.close)
            self.assistant_sign_ins = AssistantSignIns(
                self.sign_ins,
                registry,
                self.clock,
                settings=lambda: self.config.mcp.oauth,
                told=metrics.count_token_check,
            )
        actor = Actor("configuration", "local")
        await registry.operators.end_sessions_where(
            lambda session: session.issuer not in ("", settings.issuer), actor=actor
        )

    async def start_intake(
        self, attributor: RecordAttributor, metrics: ProcessMetrics, access: KeyAccess
    ) -> tuple[PayloadIntake, ReportMergeWindow | SharedMergeWindow, Background]:
        log, section = self.storage.log, self.config.spool
        device_assignment = DeviceAssignment(self.devices, claimed=metrics.count_records_claiming_devices)

        def default_user(call: Inference) -> str | None:
            return attributor.default_user(call, {}, device_assignment.labels_with_user(call.device))

        reports = self.storage.partial_reports
        shadows = self.shadows = ReportedCallers(
            self.clock, default_user=default_user, heard=self.storage.heard, max_senders=section.max_senders
        )
        await shadows.restore_missing_callers(log)
        counters = WaitingCounters(
            log,
            shadows,
            self.clock,
            wait_s=section.counter_wait,
            max_items=section.pending_items,
            max_bytes=section.pending_bytes,
            renaming=lambda: attributor.erased_name_renaming,
        )
        await counters.load_waiting_counters(reports, record_hold_s=section.hold)
        self.waiting.append((", counters", lambda: counters.waiting_by_key))
        self.waiting.append((", counted", lambda: counters.counted_by_key))
        intake = PayloadIntake(
            log,
            attributor=attributor,
            prices=price_book(self.config, self.storage.registry),
            shadows=shadows,
            device_assignment=device_assignment,
            counters=counters if section.counter_wait else None,
            clock=self.clock if isinstance(self.clock, SteadyClock) else None,
            note_test=access.note_test_span,
            note_sources=None if self.sender_hours is None else self.sender_hours.note_arrival,
            fields=None if self.sender_fields is None else self.sender_fields.counter,
        )
        self.prices = lambda: intake.prices
        if reports.is_shared:
            shared = SharedMergeWindow(
                reports,
                log,
                intake,
                self.clock,
                window_s=section.pending_window,
                hold_s=section.hold,
                max_reports=section.pending_items,
                max_bytes=section.pending_bytes,
            )
            self.waiting.append(("", lambda: shared.held))
            alone = {"merge window": shared.run, "shadows": shadows.run, "counters": counters.run}
            background: Background = {
                name: partial(self.storage.leases.run_while_leased, name, run) for name, run in alone.items()
            }
            return intake, shared, {**background, "senders": shadows.forget_old_periodically}
        merger = ReportMerger(
            window_s=section.pending_window,
            hold_s=section.hold,
            max_reports=section.pending_items,
            max_bytes=section.pending_bytes,
        )
        window = ReportMergeWindow(reports, intake, self.clock, merger)
        await window.load_stored_reports()
        self.waiting.append(("", lambda: window.held_by_sender_key))
        background = {
            "merge window": window.run,
            "shadows": shadows.run,
            "senders": shadows.forget_old_periodically,
            # Counters run even without a waiting time, because counters that waited before a restart must
            # still be recorded.
            "counters": counters.run,
        }
        return intake, window, background

    def publish_setting_digests(self, prices: PriceBook) -> None:
        setting_digests = digest_settings(self.config, prices=prices.version, secret=self.storage.secret)
        self.storage.leases.publish_settings(setting_digests)

    def receiver_services(
        self, access: KeyAccess, window: ReportMergeWindow | SharedMergeWindow, metrics: ProcessMetrics
    ) -> ReceiverServices:
        server, config = self.config.server, self.config
        return ReceiverServices(
            access=access,
            intake=window,
            metrics=metrics,
            clock=self.clock,
            inflight=self.inflight,
            max_body_bytes=server.max_body_bytes,
            connections=OpenConnections(connection_limit(server)),
            proxies=TrustedProxies(server.trusted_proxies),
            min_upload_rate=server.min_upload_rate,
            options=self.normaliser_options(config),
            receiving=ReceivingSlots(server.max_grpc_messages),
            cors=Cors(server.cors_origins),
            signing_secret=signing_secret(config.sources),
            compiled_decoder=self.compiled_decoder,
        )

    def build_stream_admission(self) -> StreamAdmission:
        return StreamAdmission(self.storage.streams, self.storage.book, self.clock, self.config.spool)

    def build_billing_sync(self, config: Config) -> BillingSync:
        """
        Return the sync that sends AI costs as hourly files. If the sync does not run, it still answers operators.
        """
        storage = self.storage
        settings = config.upstream
        client = build_client(settings, clock=self.clock)
        hours, is_open = storage.small.open_table(BILLING_HOURS), self.billing_connections.is_open
        billing = BillingSync(
            storage.ledger, hours, client, settings, self.locks, clock=self.clock, is_open=is_open
        )
        self.stack.push_async_callback(billing.close)
        return billing

    def build_billing_validator(self, config: Config) -> Validate | None:
        """
        Return the function that lets your cost service validate an hourly file, or None without a cost service.
        """
        if not config.upstream.base_url:
            return None
        validation = BillingFileValidator(UpstreamClient.from_settings(config.upstream, clock=self.clock))
        self.stack.push_async_callback(validation.close)
        return validation.fetch_errors

    async def channel_states(self) -> Sequence[ChannelState]:
        return await self.notifier.channel_states() if self.notifier is not None else ()

    def build_record_deposits(self, attributor: RecordAttributor) -> NonTelemetryIntake:
        return NonTelemetryIntake(self.storage.log, attributor, amount_of=self.amount_of)

    async def read_key_shares(self) -> Sequence[KeyShare]:
        """Return the keys that use nearly all of their share of a common limit."""
        waiting = {of: held() for of, held in self.waiting}
        senders = self.shadows.used_caller_slots_by_sender_key if self.shadows is not None else {}
        return await nearly_used_shares(self.config, self.devices.table.all(), self.storage, waiting, senders)

    def amount_of(self, event: UsageEvent) -> Decimal | None:
        from exporters.service.events import event_amount

        return event_amount(self.config.upstream, event)

    def is_unmapped(self, event_type: str) -> bool:
        from exporters.service.events import is_unmapped_event_type

        return is_unmapped_event_type(self.config.upstream, event_type)

    def build_publisher(self, intake: NonTelemetryIntake) -> UnitCostPublisher:
        return UnitCostPublisher(
            self.config.publish,
            ledger=self.storage.ledger,
            intake=intake,
            streams=self.storage.streams,
            known_streams=self.storage.book,
            clock=self.clock,
            failed_items=self.storage.failed_items,
        )


async def reload_price_overrides_on_change(
    intake: PayloadIntake, parts_builder: ServicePartsBuilder, registry: Registry
) -> None:
    """Use own prices and contracts from the next call on, also if another gateway stores them."""
    used = price_overrides(registry), price_terms(registry)

    async def use_changed_prices() -> None:
        nonlocal used
        current = price_overrides(registry), price_terms(registry)
        if current == used:
            await registry.wait_for_change()
            return
        try:
            intake.prices = await asyncio.to_thread(price_book, parts_builder.config, registry)
        except ConfigError as error:  # the price file of [prices] was damaged after the start
            _log.error("own prices are not used: %s", error, extra={"action": "own_prices_not_used"})
        else:
            parts_builder.publish_setting_digests(intake.prices)
        used = current

    await repeat(
        use_changed_prices,
        every_s=0.0,
        failed="own prices are not used",
        action="own_prices_not_used",
        retry_s=RETRY_S,
    )


def price_book(config: Config, registry: Registry | None) -> PriceBook:
    """Return an installation's prices. Raises ConfigError if the file of [prices] cannot be read."""
    try:
        return load_price_book(config, registry)
    except CardUnreadable as error:
        raise ConfigError([str(error)]) from error
