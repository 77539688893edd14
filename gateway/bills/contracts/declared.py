"""The resource of contracts with providers, and their terms about prices of calls and about sums of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from itertools import chain, combinations, product
from typing import Annotated, Any, Literal

import msgspec

from gateway.core.fields import KEPT, changes_struct, item_struct, one_item_answer_struct
from gateway.intake.price_terms import CAPACITY, DISCOUNT, KINDS, PREPAID, PRIORITY, TIER_PRICE, PriceTerm
from gateway.intake.rate_cards.card import CardPrices
from spool import providers
from spool.errors import Invalid, NotAllowed
from spool.processing import PRICED_TIERS
from spool.record import CURRENCY
from spool.registry.document_table import ManagedTable, NamedTable, Sees, check_name_free
from spool.registry.documents import DocumentCollection, replace_fields, row_version
from spool.registry.field_notes import Option, example, words
from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_day, check_one_of, check_optional_unsigned_amount, check_text
from spool.statements import parse_day

MAX_NAME, MAX_MODEL, MAX_TERMS, MAX_MODELS = 100, 256, 50, 50
MAX_TERM_DAYS = 3660  # limit in days, because all days of such a contract are added up
AMOUNTS = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
HOUR, DAY, MONTH, TERM = "hour", "day", "month", "term"
# Kinds of terms about sums of calls. They change no price, and their costs are computed for each query.
ALLOWANCE, MINIMUM, CREDIT, FEE = SUMS = ("allowance", "minimum", "credit", "fee")
COMMITMENT, UNUSED = "commitment", "unused"
# fields of a CAPACITY term that name a workload; the costs of its containers are the price
_OF_WORKLOAD = "cluster", "namespace", "workload"
# Contract charge -> words in the kinds of its bill lines. A minimum is billed on the lines of a COMMITMENT.
_WORDS_OF_LINES: Mapping[str, Sequence[str]] = {
    COMMITMENT: ("throughput", "priority", "scale_tier", "commitment", "minimum", "shortfall", "true_up"),
    FEE: ("support", "fee"),
}
# words in the kinds of lines with a negative amount
_WORDS_OF_CREDITS = "credit", "credits", "grant", "grants"
_TOKEN_FEE = "token_fee"  # this kind of line is usage, although its name contains "fee"
# The fields of each kind of term: the needed ones, and the optional ones.
_FIELDS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    DISCOUNT: (("percent",), ("models", "tier")),
    TIER_PRICE: (("tier",), ("models", "factor", *AMOUNTS)),
    CAPACITY: (("unit", "number", "price", "per"), ("models", "tier")),
    PRIORITY: (("tier", "amount", "per"), ("models",)),
    ALLOWANCE: (("per",), ("tokens", "amount", "kinds", "models", "tier")),
    MINIMUM: (("amount", "per"), ()),
    CREDIT: (("amount", "per"), ()),
    FEE: ((), ("amount", "per", "percent")),
}
# periods that terms of these kinds can have; terms of other kinds have MONTH or TERM
_PERIODS = {CAPACITY: (HOUR, MONTH), ALLOWANCE: (DAY, MONTH)}

Workload = tuple[str, str, str]  # identity of a workload: cluster, namespace and name


class StatedTerm(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """
    A term about prices of calls, or about a total of their costs. Amounts are decimal text.

    Required fields: `discount`: `percent`. `tier_price`: `tier` and either `factor` or prices. `capacity`:
    `unit`, `number`, `price` and `per`, or `cluster`, `namespace` and `workload`. `allowance`: `per` and
    either `tokens` or `amount`. `priority`: `tier`, `amount` and `per`. `fee`: `percent`, or `amount` and
    `per`. Other kinds: `amount` and `per`.
    """

    kind: Annotated[
        Literal["discount", "tier_price", "capacity", "priority", "allowance", "minimum", "credit", "fee"],
        words("The kind of the term."),
    ]
    models: Annotated[
        tuple[str, ...],
        words(
            "Models or deployments, as answered or requested. A trailing * matches any ending. Empty means every "
            "model of the provider."
        ),
    ] = ()
    tier: Annotated[str, words(f"Service tier: {', '.join(PRICED_TIERS)}. Empty means every tier.")] = ""
    percent: Annotated[str, words("Percent of the list price (discount) or of all costs (fee).")] = ""
    factor: Annotated[str, words("Tier price, as a factor of the standard price.")] = ""
    input: Annotated[str, words("Dollars per million input tokens.")] = ""
    output: Annotated[str, words("Dollars per million output tokens.")] = ""
    cache_read: Annotated[str, words("Dollars per million tokens read from a cache.")] = ""
    cache_write: Annotated[str, words("Dollars per million tokens written to a cache.")] = ""
    cache_write_1h: Annotated[str, words("Dollars per million tokens written to a cache for an hour.")] = ""
    cluster: Annotated[str, words("Cluster of own hardware.")] = ""
    namespace: Annotated[str, words("Namespace of the workload.")] = ""
    workload: Annotated[str, words("Workload that serves the models.")] = ""
    unit: Annotated[
        Literal["", "ptu", "model_unit", "gsu"],
        words("Unit of capacity: ptu (Azure), model_unit (Bedrock) or gsu (Google)."),
    ] = ""
    number: Annotated[str, words("Number of units of capacity.")] = ""
    price: Annotated[str, words("Price of one unit in the contract's currency.")] = ""
    amount: Annotated[str, words("Amount in the contract's currency.")] = ""
    tokens: Annotated[str, words("Number of free tokens.")] = ""
    kinds: Annotated[
        tuple[Literal["input", "output", "cache_read", "cache_write"], ...],
        words("Kinds of free tokens. Empty means every kind."),
    ] = ()
    per: Annotated[
        Literal["", "hour", "day", "month", "term"], words("Period. `term` is the whole contract.")
    ] = ""

    @property
    def is_container_workload(self) -> bool:
        """Return whether this term is a workload on own hardware, whose cost is its container cost."""
        return any(self.workload_key)

    @property
    def workload_key(self) -> Workload:
        return self.cluster, self.namespace, self.workload


class ContractTerm(StatedTerm, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=False):
    """A stored term, which may have fields of a newer release."""


class NewContract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[
        str,
        words(
            f"A name that no other contract has, regardless of case: 1 to {MAX_NAME} printable characters."
        ),
        example("Azure PTU"),
    ]
    provider: Annotated[
        str, words("Provider of the calls, such as openai or azure.ai.openai."), example("azure.ai.openai")
    ]
    since: Annotated[
        str, words("First day (UTC) of the contract."), Option(metavar="DATE"), example("2026-11-01")
    ]
    until: Annotated[
        str,
        words("First day (UTC) after the contract; leave empty for a contract without an end."),
        Option(metavar="DATE"),
        example("2027-11-01", changed="2027-05-01"),
    ] = ""
    currency: Annotated[
        str,
        words("ISO 4217 code of amounts; default: USD. Prices of tokens are in dollars."),
        Option(metavar="CODE"),
        example("USD"),
    ] = "USD"
    terms: Annotated[
        tuple[StatedTerm, ...],
        words(f"1 to {MAX_TERMS} terms. Two terms of a kind must not cover the same calls."),
        Option(is_by_hand=True),
        example(
            [
                {
                    "kind": "capacity",
                    "models": ["gpt-4o*"],
                    "unit": "ptu",
                    "number": "100",
                    "price": "1",
                    "per": "hour",
                }
            ]
        ),
    ]


class Contract(NewContract, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A stored contract. Times are epoch seconds."""

    terms: tuple[ContractTerm, ...] = ()
    id: str
    created: float
    last_updated: float

    @property
    def version(self) -> str:
        return row_version(self)


def contract_charge_of_line(kind: str, *, is_negative: bool = False) -> str:
    """Return which charge of a contract a bill's line is, by words in its kind, or "" for other lines."""
    if kind == CREDIT or (is_negative and _has_any_phrase(kind, _WORDS_OF_CREDITS)):
        return CREDIT
    charges = (charge for charge, phrases in _WORDS_OF_LINES.items() if _has_any_phrase(kind, phrases))
    return "" if kind == _TOKEN_FEE else next(charges, "")


def _has_any_phrase(kind: str, phrases: Sequence[str]) -> bool:
    return any(f"_{phrase}_" in f"_{kind}_" for phrase in phrases)


def price_term(contract: NewContract, term: StatedTerm) -> PriceTerm:
    """Return a term in the form in which the price book applies it."""
    factor: Decimal | None = Decimal(term.factor) if term.factor else None
    if term.kind == DISCOUNT:
        factor = 1 - Decimal(term.percent) / 100
    stated: dict[str, Any] = {name: Decimal(amount) for name in AMOUNTS if (amount := getattr(term, name))}
    return PriceTerm(
        contract=contract.name,
        kind=term.kind,
        provider=contract.provider,
        since=contract.since,
        until=contract.until,
        models=term.models,
        tier=term.tier,
        factor=factor,
        amounts=CardPrices(**stated) if stated else None,
    )


def first_day_and_end(contract: NewContract) -> tuple[int, int]:
    """Return the first day of a contract, and the first day after it, in epoch seconds."""
    return parse_day(contract.since), parse_day(contract.until) if contract.until else parse_day("9999-12-31")


def has_amounts(contract: NewContract) -> bool:
    """Return whether a contract has amounts that belong to no single call, other than container costs."""
    return any(term.kind in (*PREPAID, *SUMS) and not term.is_container_workload for term in contract.terms)


def _price_terms(contract: NewContract) -> Iterator[PriceTerm]:
    return (price_term(contract, term) for term in contract.terms)


def all_contracts(registry: Registry | None) -> list[Contract]:
    return [] if registry is None else registry.declared_table(ContractTable).in_order()


def price_terms(registry: Registry | None) -> tuple[PriceTerm, ...]:
    terms = chain.from_iterable(map(_price_terms, all_contracts(registry)))
    return tuple(term for term in terms if term.kind in KINDS)


def check_contract(draft: NewContract) -> NewContract:
    """Validate a draft and return its stored form. Raises Invalid."""
    # imported here, because the import is slow and only this function needs it
    from spool.currencies import DECIMALS

    check_one_of("currency", draft.currency, DECIMALS)
    since = check_day("since", draft.since).isoformat()
    until = check_day("until", draft.until).isoformat() if draft.until else ""
    if until and until <= since:
        raise Invalid("until must be after since; it is the first day without the contract")
    first, end = date.fromisoformat(since), date.fromisoformat(until) if until else None
    if not 1 <= len(draft.terms) <= MAX_TERMS:
        raise Invalid(f"terms must have 1 to {MAX_TERMS} entries")
    checked = replace_fields(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        provider=providers.canonical_provider_name(check_text("provider", draft.provider, MAX_NAME)),
        since=since,
        until=until,
        terms=tuple(_check_term(number, term, first, end) for number, term in enumerate(draft.terms, 1)),
    )
    for (number, one), (other_number, other) in combinations(enumerate(_price_terms(checked), 1), 2):
        if one.overlaps(other):
            raise Invalid(f"terms {number} and {other_number} are both {one.kind} of the same calls")
    workloads = [term.workload_key for term in checked.terms if term.is_container_workload]
    if len(set(workloads)) < len(workloads):
        raise Invalid("terms must name a workload only once; one term may have several models")
    if workloads and checked.currency != CURRENCY:
        raise Invalid(
            f"currency must be {CURRENCY} for a workload, because container costs are in {CURRENCY}"
        )
    return checked


def _have_same_workload_at_same_time(one: NewContract, other: NewContract) -> bool:
    (first, end), (other_first, other_end) = first_day_and_end(one), first_day_and_end(other)
    workloads = (
        {term.workload_key for term in each.terms if term.is_container_workload} for each in (one, other)
    )
    return max(first, other_first) < min(end, other_end) and bool(set.intersection(*workloads))


def _check_term(term_index: int, term: StatedTerm, since: date, end: date | None) -> ContractTerm:
    at = f"terms.{term_index}"
    check_one_of(f"{at}.kind", term.kind, _FIELDS)
    what, (needed, further) = str(term.kind), _FIELDS[term.kind]
    if term.kind == CAPACITY and term.is_container_workload:
        what, needed, further = "capacity of a workload", _OF_WORKLOAD, ("models",)
    for name in ContractTerm.__struct_fields__:
        is_stated = bool(getattr(term, name))
        if name in needed and not is_stated:
            raise Invalid(f"{at}.{name} is required for {what}")
        if is_stated and name not in ("kind", *needed, *further):
            raise Invalid(f"{at}.{name} is not allowed for {what}")
    if term.tier:
        check_one_of(f"{at}.tier", term.tier, PRICED_TIERS)
    if len(term.models) > MAX_MODELS:
        raise Invalid(f"{at}.models must have at most {MAX_MODELS} entries")
    amounts = {
        name: check_optional_unsigned_amount(f"{at}.{name}", getattr(term, name))
        for name in ("percent", "factor", *AMOUNTS, "number", "price", "amount", "tokens")
    }
    if amounts["percent"] and not 0 < Decimal(amounts["percent"]) <= 100:
        raise Invalid(f"{at}.percent must be more than 0 and at most 100")
    if term.kind == TIER_PRICE and bool(amounts["factor"]) == any(amounts[name] for name in AMOUNTS):
        raise Invalid(f"{at} needs either a factor or prices")
    if term.kind == ALLOWANCE and bool(amounts["tokens"]) == bool(amounts["amount"]):
        raise Invalid(f"{at} needs either tokens or an amount")
    if term.kind == FEE and not (amounts["percent"] or amounts["amount"]):
        raise Invalid(f"{at} needs a percent, or an amount and per")
    if term.kind == FEE and bool(amounts["amount"]) != bool(term.per):
        raise Invalid(f"{at}.amount and per belong together")
    if term.per:
        check_one_of(f"{at}.per", term.per, _PERIODS.get(term.kind, (MONTH, TERM)))
    if term.per == TERM and (end is None or (end - since).days > MAX_TERM_DAYS):
        raise Invalid(f"{at}.per can only be term if until is at most {MAX_TERM_DAYS} days after since")
    models = tuple(check_text(f"{at}.models", model, MAX_MODEL) for model in term.models)
    names = {
        name: check_text(f"{at}.{name}", getattr(term, name), MAX_MODEL)
        for name in (_OF_WORKLOAD if term.is_container_workload else ())
    }
    stored = {**msgspec.structs.asdict(term), "models": models, **amounts, **names}
    return ContractTerm(**stored)


class ContractTable(ManagedTable[Contract], NamedTable[Contract]):
    """The stored contracts. A method that raises changes nothing."""

    kind = DocumentCollection("contract", Contract, "contract")
    draft = NewContract
    limit = "contracts.max"
    action = "contract"

    def in_order(self) -> list[Contract]:
        return sorted(self.all(), key=lambda contract: (contract.created, contract.id))

    def check_draft(self, draft: NewContract) -> NewContract:
        return check_contract(draft)

    def check_conflicts(
        self,
        registry_rows: RegistryRows,
        stored: Mapping[str, Contract],
        row: Contract,
        can_see_row: Sees[Contract],
    ) -> None:
        check_name_free(stored.values(), row, noun="contract", can_see_row=can_see_row)
        for other in stored.values():
            pairs = product(_price_terms(row), _price_terms(other)) if other.id != row.id else ()
            kind = next((one.kind for one, two in pairs if one.overlaps(two)), None)
            if kind is not None:
                raise NotAllowed(f"terms: the contract {other.name!r} has a {kind} of the same calls")
            if other.id != row.id and _have_same_workload_at_same_time(row, other):
                raise NotAllowed(f"terms: the contract {other.name!r} has the same workload")


ContractChanges = changes_struct(NewContract)
ContractItem = item_struct(NewContract, "A stored contract. Times are RFC 3339.", answer_only_fields=KEPT)
OneContract = one_item_answer_struct(NewContract, ContractItem)
