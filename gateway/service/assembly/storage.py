"""Opens the storage for the server, for commands without a server, and for `tollhouse demo`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from gateway.configuration.sections import Config, CurrencySettings, PrivacySettings
from gateway.operations.list import declared_tables
from spool import engines
from spool.clock import Clock
from spool.ledger.ledger import CHUNK
from spool.log.protocols import CommitObserver
from spool.packed.native import NativeModule
from spool.storage import Storage, StorageOptions

if TYPE_CHECKING:
    from spool.currencies import Rates
    from spool.ledger.repricing import Pricer
    from spool.registry.registry import Registry

# The cache is small, because an agent has few readers and a laptop needs its memory for other programs.
AGENT_CACHE_BYTES = 512 << 10
AGENT_LEDGER_CHUNK = 512


def storage_options(
    config: Config,
    *,
    clock: Clock,
    registry_clock: Clock | None = None,
    observer: CommitObserver | None = None,
    is_agent: bool = False,
    new_registry: bool = False,
    native: NativeModule | None = None,
) -> StorageOptions:
    return StorageOptions(
        directory=config.data_dir,
        settings=config.spool,
        clock=clock,
        observer=observer,
        cache_bytes=AGENT_CACHE_BYTES if is_agent else None,
        ledger_tags=config.ledger.tags,
        work=config.work.limits,
        ledger_chunk=AGENT_LEDGER_CHUNK if is_agent else CHUNK,
        registry_clock=registry_clock,
        declared=declared_tables(),
        new_registry=new_registry,
        container=config.container,
        storage=config.storage,
        native=native,
    )


def ledger_rates(section: CurrencySettings, registry: Registry | None = None) -> Rates:
    """
    Return the exchange rates of a configuration for the ledger. The module of the rates is imported at first use.
    """
    cached_rates: list[Rates] = []
    none: Mapping[str, Mapping[str, Any]] = {}

    def exchange_rate(from_currency: str, to_currency: str, day: int) -> int | None:
        if not cached_rates:
            from gateway.money.currencies import ExchangeRates

            cached_rates.append(
                ExchangeRates(section, lambda: none if registry is None else registry.frozen_rates.all())
            )
        return cached_rates[0](from_currency, to_currency, day)

    return exchange_rate


def open_stored_price_book(card: bytes, overrides: bytes) -> Pricer:
    """Open the price book of a recalculation. The module of the prices is imported at first use."""
    from gateway.intake.prices import PriceBook

    return PriceBook.decode_rate_card_and_overrides(card, overrides)


def apply_privacy(registry: Registry, settings: PrivacySettings) -> None:
    registry.set_email_policy(settings.emails)
    registry.set_min_group_size(settings.min_group, settings.group_order)
    registry.viewings.set_limits(kept_s=settings.viewings, max_people_per_day=settings.max_viewed)


@asynccontextmanager
async def open_storage(
    config: Config,
    *,
    clock: Clock,
    registry_clock: Clock | None = None,
    observer: CommitObserver | None = None,
    is_agent: bool = False,
    new_registry: bool = False,
    native: NativeModule | None = None,
) -> AsyncIterator[Storage]:
    """
    Open the storage, and close it after the block. Raises SpoolLocked while another process has it open.
    """
    options = storage_options(
        config,
        clock=clock,
        registry_clock=registry_clock,
        observer=observer,
        is_agent=is_agent,
        new_registry=new_registry,
        native=native,
    )
    storage = await engines.open_storage(options, engine=config.storage.engine)
    storage.ledger.rates = ledger_rates(config.currency, storage.registry)
    storage.ledger.books.open = open_stored_price_book
    storage.ledger.shows_layers = config.billed.limited == "layers"
    try:
        if storage.registry is not None:
            apply_privacy(storage.registry, config.privacy)
            storage.devices.auditor = storage.registry.audit_changes
        yield storage
    finally:
        await storage.close()
