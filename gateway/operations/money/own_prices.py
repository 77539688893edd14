"""
Prices that operators set in the console, by command or by the API. They apply on top of the price list and of
[[prices.override]], on every gateway, without a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from gateway.configuration.prices import PriceOverride
from gateway.core.fields import KEPT, build_answer, changes_struct, item_struct, one_item_answer_struct
from gateway.core.visibility import WHOLE
from gateway.http.lists import Filter, ListDefinition, Sort
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.managed import ByPeople, JsonAnswer, ManagedResource
from spool.errors import Invalid
from spool.processing import PRICED_TIERS
from spool.record import utc_iso
from spool.registry.document_table import ManagedTable
from spool.registry.documents import DocumentCollection, replace_fields, row_version
from spool.registry.field_notes import Option, example, words
from spool.registry.operators import Actor
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS
from spool.registry.registry import Registry
from spool.registry.texts import check_optional_text, check_optional_unsigned_amount, check_text

MAX_MODEL = 256
AMOUNTS = ("input", "output", "cache_read", "cache_write", "cache_write_1h")


class NewPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that a person sets. Amounts are decimal text."""

    model: Annotated[str, words("The model. A trailing * matches any ending."), example("acme-large*")]
    provider: Annotated[
        str, words("The provider whose calls have this price. Empty means every provider.")
    ] = ""
    tier: Annotated[
        str,
        words(
            f"The service tier whose calls have this price: {', '.join(PRICED_TIERS)}. Empty means the standard "
            "tier and tiers without a list price."
        ),
    ] = ""
    since: Annotated[
        str,
        words("The first day of the price, such as 2026-11-20. Empty means all days."),
        Option(metavar="DATE"),
    ] = ""
    input: Annotated[
        str, words("Dollars per million input tokens."), example("2.00"), Option(metavar="DOLLARS")
    ] = ""
    output: Annotated[
        str,
        words("Dollars per million output tokens."),
        example("8.00", changed="7.50"),
        Option(metavar="DOLLARS"),
    ] = ""
    cache_read: Annotated[
        str,
        words("Dollars per million tokens read from a cache. Empty means the price of the list."),
        Option(metavar="DOLLARS"),
    ] = ""
    cache_write: Annotated[
        str,
        words("Dollars per million tokens written to a cache. Empty means the price of the list."),
        Option(metavar="DOLLARS"),
    ] = ""
    cache_write_1h: Annotated[
        str,
        words(
            "Dollars per million tokens written to a cache for an hour. Empty means the price of the list."
        ),
        Option(metavar="DOLLARS"),
    ] = ""


class OwnPrice(NewPrice, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A stored price. Times are epoch seconds, and `author` is the creator."""

    id: str
    author: str
    created: float
    last_updated: float

    @property
    def name(self) -> str:
        return self.model

    @property
    def version(self) -> str:
        return row_version(self)


def to_price_override(price: NewPrice) -> PriceOverride:
    amounts: dict[str, Any] = {name: Decimal(amount) for name in AMOUNTS if (amount := getattr(price, name))}
    return PriceOverride(
        model=price.model, provider=price.provider, tier=price.tier, since=price.since, **amounts
    )


def check_price(draft: NewPrice) -> NewPrice:
    """Return the stored form of a draft. Raises Invalid."""
    amounts = {name: check_optional_unsigned_amount(name, getattr(draft, name)) for name in AMOUNTS}
    if not (amounts["input"] or amounts["output"]):
        raise Invalid("input or output is required, in dollars per million tokens")
    if draft.tier and draft.tier not in PRICED_TIERS:
        raise Invalid(f"tier must be one of {', '.join(PRICED_TIERS)}, or empty")
    if draft.since:
        try:
            since = date.fromisoformat(draft.since).isoformat()
        except ValueError:
            raise Invalid("since must be a day such as 2026-11-20, or empty") from None
    else:
        since = ""
    model = check_text("model", draft.model, MAX_MODEL)
    provider = check_optional_text("provider", draft.provider, MAX_MODEL)
    return replace_fields(draft, model=model, provider=provider, since=since, **amounts)


PriceItem = item_struct(
    NewPrice,
    "A price that an operator has set. Times are RFC 3339.",
    answer_only_fields={
        "author": Annotated[str, words("The creator of the price."), example("ada@example.com")],
        **KEPT,
    },
)


class PriceTable(ManagedTable[OwnPrice]):
    """The table of prices that operators set. A method that raises changes nothing."""

    kind = DocumentCollection("price", OwnPrice, "price")
    draft = NewPrice
    limit = "prices.max"
    action = "price"

    def check_draft(self, draft: NewPrice) -> NewPrice:
        return check_price(draft)

    def creation_fields(self, actor: Actor, now: float) -> Mapping[str, Any]:
        return {"author": actor.name}


def price_overrides(registry: Registry | None) -> tuple[PriceOverride, ...]:
    """Return the prices of a registry, the oldest first, so that the latest of equal entries applies."""
    if registry is None:
        return ()
    rows = sorted(registry.declared_table(PriceTable).all(), key=lambda row: (row.created, row.id))
    return tuple(map(to_price_override, rows))


def _describe_price(row: OwnPrice) -> JsonAnswer:
    return build_answer(PriceItem, row, created=utc_iso(row.created), last_updated=utc_iso(row.last_updated))


class PriceResource(ManagedResource[OwnPrice, object]):
    noun = "price"
    table = PriceTable
    new = NewPrice
    changes = changes_struct(NewPrice)
    item = PriceItem
    one = one_item_answer_struct(NewPrice, PriceItem)
    files = ResourceFiles(name="prices", key=("provider", "model", "tier", "since"), ignores_case=False)
    searched = ("model",)
    lists: ListDefinition[OwnPrice] = ListDefinition(
        root="prices",
        show=_describe_price,
        identity=Sort(value=lambda row: row.id),
        sorts={
            "model": Sort(value=lambda row: row.model),
            "provider": Sort(value=lambda row: row.provider),
            "tier": Sort(value=lambda row: row.tier),
            "since": Sort(value=lambda row: row.since),
        },
        default_sort=("model", "asc"),
        filters={
            "model": Filter(values=lambda row: (row.model,)),
            "provider": Filter(values=lambda row: (row.provider,)),
        },
    )
    people = ByPeople(path="/prices", reads=VIEW_COSTS, changes=MODIFY_BILLING, shows=WHOLE)


PRICE = PriceResource()
