"""
Reload of the configuration in a running server. All of it is applied in one step between two requests, or
none of it.

Everything that can fail is prepared first. Running requests and deliveries finish with their old settings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from exporters.exporter import RouteConfig
from exporters.forwarder import RouteForwarder
from exporters.service.billing_sync import BillingSync
from gateway.configuration.changes import ConfigChange, compare_configs
from gateway.configuration.problems import config_problems as problems_of
from gateway.configuration.secret_file import SecretFile, signing_secret
from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from gateway.http.listening.tls import Certificate
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.prices import PriceBook
from gateway.intake.publisher import UnitCostPublisher
from gateway.monitoring import logs
from gateway.operations.holders.operators import ReloadOutcome
from gateway.operations.requests.receiver_services import ReceiverServices
from gateway.operations.services import OperatorServices
from gateway.people.authentication.legacy_key import LegacyKey
from gateway.service.assembly.parts import ServicePartsBuilder, price_book
from gateway.service.assembly.routes import build_syncs, route_configs
from gateway.service.assembly.storage import apply_privacy, ledger_rates
from spool.errors import SpoolError
from spool.registry.operators import Actor

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _PreparedReload:
    """The new values of a reload, ready to be applied. None means no change."""

    prices: PriceBook | None
    legacy: LegacyKey | None
    signing: SecretFile | None
    routes: Sequence[RouteConfig] | None


@dataclass(kw_only=True)
class ConfigReloader:
    """Reloads the configuration. The fields are the parts of a running server that accept new settings."""

    assembler: ServicePartsBuilder
    receivers: ReceiverServices
    attribution: RecordAttributor
    intake: PayloadIntake
    publisher: UnitCostPublisher
    routes: RouteForwarder
    operators: OperatorServices
    is_agent: bool

    async def __call__(
        self, running: Config, read: Callable[[], Config], certificate: Certificate | None, actor: Actor
    ) -> tuple[Config, ReloadOutcome]:
        """
        Apply the new configuration and return the configuration in effect. Raises ConfigError with every
        problem. In that case, nothing has changed.
        """
        try:
            new = await asyncio.to_thread(read)
            config_change = compare_configs(running, new)
            prepared = await self._prepare_parts(config_change.config, new)
        except ConfigError as error:
            _log.error(
                "the new configuration is invalid and was not applied",
                extra={"action": "reload_refused", "problems": error.problems},
            )
            await self._note_in_audit_log(actor, "configuration.refused", {"problems": len(error.problems)})
            raise
        changed = [*config_change.changed, *self._renewed_files(prepared)]
        if changed or config_change.needs_restart:
            details = {"changed": changed, "needs_restart": list(config_change.needs_restart)}
            await self._note_in_audit_log(actor, "configuration.reload", details)
        try:
            await self._exchange_parts(running, config_change.config, prepared)
        except SpoolError:
            await self._note_in_audit_log(actor, "configuration.reload.failed", {})
            raise
        if certificate is not None and certificate.configure(config_change.config.server):
            changed.append("the certificate")
        return config_change.config, self._build_and_log_outcome(
            config_change, changed, await self._secret_problems(config_change.config)
        )

    async def _secret_problems(self, config: Config) -> list[str]:
        """
        List the problems of secrets, as `tollhouse check` does. They do not prevent the reload: only the
        affected receiver waits.
        """
        # no check for an agent, because its device key exists only after the enrolment
        if self.is_agent:
            return []
        # imported late, because the start does not need these modules
        from gateway.service.assembly.sent_secrets import channel_problems, secret_problems

        problems = await asyncio.to_thread(lambda: list(secret_problems(config)))
        return [*problems, *await channel_problems(config)]

    async def _prepare_parts(self, config: Config, new: Config) -> _PreparedReload:
        # `config` is checked and not `new`, because some of its settings keep their running value
        problems: list[str] = list(problems_of(config))

        def make_part_or_note_problem(make: Callable[[], T]) -> T | None:
            try:
                return make()
            except ConfigError as error:
                problems.extend(error.problems)
            except OSError as error:
                problems.append(f"server.tls_cert_file and server.tls_key_file: {error}")
            return None

        key_file = config.server.api_key_file
        prices = await asyncio.to_thread(
            make_part_or_note_problem, lambda: price_book(config, self.assembler.storage.registry)
        )
        prepared = _PreparedReload(
            prices=prices,
            legacy=make_part_or_note_problem(lambda: LegacyKey(key_file) if key_file else None),
            signing=make_part_or_note_problem(lambda: signing_secret(config.sources)),
            routes=None
            if problems
            else make_part_or_note_problem(lambda: route_configs(self.assembler, config)),
        )
        # The certificate is checked even if the change needs a restart, because with a bad certificate the
        # restart would fail.
        make_part_or_note_problem(lambda: Certificate.from_settings(new.server))
        if problems:
            raise ConfigError(problems)
        return prepared

    def _renewed_files(self, prepared: _PreparedReload) -> list[str]:
        renewed = []
        if prepared.prices is not None and prepared.prices.version != self.intake.prices.version:
            renewed.append(f"list prices {prepared.prices.version}")
        if not self.operators.senders.access.has_same_legacy_key(prepared.legacy):
            renewed.append("the key of server.api_key_file")
        return renewed

    async def _exchange_parts(self, running: Config, config: Config, prepared: _PreparedReload) -> None:
        assert prepared.prices is not None
        assert prepared.routes is not None
        billing, syncs = None, None
        if config.upstream != running.upstream:
            billing = self.assembler.build_billing_sync(config)
            syncs = [] if self.is_agent else build_syncs(self.assembler, config, billing)
        await self.routes.apply_routes_and_syncs(prepared.routes, syncs)  # no later step of a reload can fail
        self.assembler.config = config
        self.attribution.configure(config)
        self.intake.prices = prepared.prices
        if config.currency != running.currency:
            self.assembler.storage.ledger.rates = ledger_rates(
                config.currency, self.assembler.storage.registry
            )
        self.assembler.storage.ledger.shows_layers = config.billed.limited == "layers"
        if self.assembler.storage.registry is not None:
            apply_privacy(self.assembler.storage.registry, config.privacy)
        self.assembler.publish_setting_digests(prepared.prices)
        self.publisher.configure(config.publish)
        self.operators.money.billing_connections.configure(
            config.billing,
            configured_connection_id=config.upstream.connection_id,
            validate=self.assembler.build_billing_validator(config),
        )
        if not self.is_agent:
            await self.operators.money.billing_connections.create_configured_and_clean_up()
        self.assembler.devices.configure(config.devices, self.assembler.build_people(config))
        self.assembler.clusters.configure(config.clusters)
        self.operators.senders.access.configure(config.server, prepared.legacy)
        await self.operators.senders.access.adopt_legacy_key_or_log()
        self.receivers.options = self.assembler.normaliser_options(config)
        self.receivers.min_upload_rate = config.server.min_upload_rate
        self.receivers.signing_secret = prepared.signing
        if isinstance(billing, BillingSync):
            self.operators.money.billing = billing
        if self.assembler.notifier is not None:
            self.assembler.notifier.set_configured_channels(config.notify)
        if config.log != running.log:
            logs.start_logging(config.log.level, lines_per_minute=config.log.lines_per_minute)

    async def _note_in_audit_log(self, actor: Actor, action: str, after: Mapping[str, object]) -> None:
        registry = self.operators.installation.registry
        if registry is not None:
            await registry.audit_change(actor, action, "configuration", after=after)

    def _build_and_log_outcome(
        self, config_change: ConfigChange, changed: list[str], problems: list[str]
    ) -> ReloadOutcome:
        outcome = ReloadOutcome(
            changed=tuple(changed), needs_restart=config_change.needs_restart, problems=tuple(problems)
        )
        extra = {"action": "reloaded", "changed": outcome.changed, "needs_restart": outcome.needs_restart}
        if problems:
            _log.warning(
                "a receiver's secret cannot be used", extra={"action": "reloaded", "problems": problems}
            )
        _log.info("the new configuration is in effect", extra=extra)
        return outcome
