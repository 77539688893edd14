"""The prices of an installation: its price list, own prices, and the terms of contracts."""

from __future__ import annotations

from gateway.bills.contracts.declared import price_terms
from gateway.configuration.sections import Config
from gateway.intake.prices import PriceBook
from gateway.operations.money.own_prices import price_overrides
from spool.registry.registry import Registry


def load_price_book(config: Config, registry: Registry | None) -> PriceBook:
    return PriceBook.load(config.prices, config.data_dir, price_overrides(registry), price_terms(registry))
