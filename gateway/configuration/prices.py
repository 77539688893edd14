"""The settings of prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from gateway.configuration.values import is_iso_day
from spool.meters import METERS
from spool.processing import PRICED_TIERS
from spool.settings import KIB, MIB, Duration, Size, setting


@dataclass(frozen=True, kw_only=True)
class PriceOverride:
    """
    Prices of a `model` in dollars per million tokens. Prices that are not set come from the price list.
    `meters` are prices of units other than text tokens; docs/money/meters.md gives the number of units per price.

    If several entries match, those with the tier of the call take precedence. Of these, the one with the latest `since`
    applies. If that is equal, the last entry applies.
    """

    model: str = setting("", "name of the model; a trailing `*` matches any ending")
    provider: str = setting(
        "", "provider to which the prices are limited; if empty, they apply to all providers"
    )
    tier: str = setting(
        "",
        "tier to which the prices are limited, such as `batch` or `standard`; if empty, they apply to the standard "
        "tier and to tiers without a list price",
    )
    since: str = setting("", 'first day on which the prices apply, such as "2026-11-20"')
    input: Decimal | None = setting(None, "input tokens")
    output: Decimal | None = setting(None, "output tokens")
    cache_read: Decimal | None = setting(None, "price of tokens read from a cache")
    cache_write: Decimal | None = setting(None, "price of tokens written to a cache")
    cache_write_1h: Decimal | None = setting(None, "price of tokens written to a cache for one hour")
    meters: Mapping[str, Decimal] = setting(
        {}, 'prices of meters other than text tokens, such as `web_searches = "8"` per thousand searches'
    )

    def problems(self, setting_path: str) -> Iterator[str]:
        if not self.model:
            yield f"{setting_path}.model is required"
        if self.input is None and self.output is None and not self.meters:
            yield f"{setting_path} needs input or output, in dollars per million tokens, or meters"
        for name in self.meters:
            if name not in METERS:
                yield f"{setting_path}.meters.{name} is not a meter; docs/money/meters.md lists the meters"
        if self.tier and self.tier not in PRICED_TIERS:
            yield f"{setting_path}.tier must be one of {', '.join(PRICED_TIERS)}"
        if self.since and not is_iso_day(self.since):
            yield f'{setting_path}.since must be a day such as "2026-11-20"'


@dataclass(frozen=True, kw_only=True)
class PriceSettings:
    """Prices for calls whose source reports no cost: [how numbers are made](how-numbers-are-made.md)."""

    file: Path | None = setting(
        None,
        "file of list prices that replaces the list in the package: [the formats](money/price-list-format.md)",
    )
    max_file_bytes: Size = setting(
        32 * MIB,
        "maximum size of that file, and of a list of `tollhouse prices update`",
        edge="the list is refused, and the earlier list stays in effect",
        least=KIB,
    )
    download_timeout: Duration = setting(
        60.0,
        "time to download a list of `tollhouse prices update`",
        edge="the download is given up, and the earlier list stays in effect",
        least=1,
    )
    max: int = setting(
        1000, "prices that operators set without a file", edge="409 for a further price; delete one", least=1
    )
    override: tuple[PriceOverride, ...] = setting((), "negotiated prices")
