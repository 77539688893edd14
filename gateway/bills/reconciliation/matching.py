"""
Alignment of bills and ledger: one source per day, and common days, tiers, model families and keys. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.bills.reconciliation.cells import ComparableDimensions
from gateway.bills.reconciliation.limits import ALIKE, LEAST_DAYS
from gateway.bills.reconciliation.sides import (
    ANYWHERE,
    DAY_S,
    INPUT,
    METERS,
    OUTPUT,
    POOLED,
    WHOLE,
    BilledMoney,
    BilledTokens,
    CountedUse,
    are_series_alike,
    replace_model,
)
from gateway.intake.rate_cards.names import model_family, model_family_without_separators
from spool import money
from spool.statements import (
    ACCRUED,
    CORRECTION,
    MOST_DAY_S,
    REFUND,
    SEAT,
    UNUSED,
    StatementRow,
    day_of_row,
    days_of_use,
)

TOKENS, REQUESTS, DOLLARS = "tokens", "requests", "usd"
UNMATCHED = "(other keys)"  # name that stands for all keys of both sides without a known counterpart
CREDIT, TAX, REASONING = "credit", "tax", "reasoning"
# words of lines that are taxes, in the languages of bills
_TAXES = frozenset(
    {
        "tax",
        "taxes",
        "vat",
        "gst",
        "hst",
        "pst",
        "qst",
        "mwst",
        "ust",
        "umsatzsteuer",
        "tva",
        "iva",
        "btw",
        "moms",
    }
)
# kinds of bill lines that are a cause by themselves
NAMED = frozenset({TAX, CREDIT, "discount", "rounding", SEAT})
# a function that returns the list prices of a model on some days, which are empty if they are unknown
PriceOf = Callable[[str], tuple[frozenset[tuple[str, int]], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """
    The owner of a provider's key or account in the ledger, given by one of `api_key`, `team` and `source`.
    """

    provider: str
    billed: str
    api_key: str = ""
    team: str = ""
    source: str = ""

    def is_owner_of(self, row: CountedUse) -> bool:
        pairs = ((self.api_key, row.key), (self.team, row.team), (self.source, row.source))
        return all(not filter_value or filter_value == has for filter_value, has in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedBillRows:
    """
    The rows of bills by type. For cost types that move fees to the usage that they cover, `accrued` is added
    to `money`. `foreign` counts the rows in each currency except dollars.
    """

    tokens: list[BilledTokens] = field(default_factory=list)
    money: list[BilledMoney] = field(default_factory=list)
    accrued: list[BilledMoney] = field(default_factory=list)
    foreign: Counter[str] = field(default_factory=Counter)
    # bill source -> days whose rows may still change
    unsettled: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    wide: dict[int, int] = field(default_factory=dict)  # day of a longer billing period -> its first day

    @property
    def sources(self) -> set[str]:
        return {*(row.source for row in self.tokens), *(row.source for row in self.money)}


def classify_bill_rows(dated_rows: Iterable[tuple[StatementRow, int | None]]) -> ClassifiedBillRows:
    """
    Return bill rows by day of use, meter and tier.

    A row with a day is dated by its bill. Then a charge for tokens that were used on another day is a correction, and
    refunded money counts under the bill's own name instead of as a credit.
    """
    classified = ClassifiedBillRows()
    for row, billed_day in dated_rows:
        day = day_of_row(row) if billed_day is None else billed_day
        used = range(0) if billed_day is None else days_of_use(row)
        is_moved = bool(used) and used != range(day, day + DAY_S, DAY_S)
        _note_days(classified, row, day)
        if row.currency not in (None, "USD"):
            classified.foreign[str(row.currency)] += 1
        elif row.unit == DOLLARS:
            line = _to_billed_money(row, day, used, is_moved=is_moved)
            _add_money(classified, row, line, is_by_use=billed_day is None)
        elif row.unit == ACCRUED:
            classified.accrued.append(_to_billed_money(row, day, used, is_moved=is_moved))
        elif row.unit in (TOKENS, REQUESTS) and not is_moved:
            _add_tokens(classified, row, day)
    return classified


def _note_days(classified: ClassifiedBillRows, row: StatementRow, day: int) -> None:
    # For lines of calls, all days of a longer bucket count as its first day. Monthly fees and taxes do not
    # join days, because the other days have rows of their own.
    if row.end - row.start > MOST_DAY_S and _is_row_about_calls(row):
        classified.wide.update(dict.fromkeys(range(day, row.end, DAY_S), day))
    if not row.settled:
        classified.unsettled[row.source].add(day)


def _add_money(
    classified: ClassifiedBillRows, row: StatementRow, line: BilledMoney, *, is_by_use: bool
) -> None:
    if row.amount or row.amount_effective is None:
        classified.money.append(_as_credit_if_given_back(line) if is_by_use else line)
    if beyond := _effective_minus_billed_amount(row):
        of_fee = UNUSED if row.line_type == UNUSED else line.meter
        classified.accrued.append(replace(line, meter=of_fee, amount=beyond))


def _add_tokens(classified: ClassifiedBillRows, row: StatementRow, day: int) -> None:
    meter = None if row.unit == REQUESTS else token_meter(row.kind)
    if meter is None or meter in METERS or meter in POOLED:
        quantity = int(row.amount.to_integral_value())
        is_reasoning = row.kind == REASONING
        classified.tokens.append(
            BilledTokens(**_dimensions(row, day), meter=meter, quantity=quantity, is_reasoning=is_reasoning)
        )


def _dimensions(row: StatementRow, day: int) -> dict[str, Any]:
    return {
        "source": row.source,
        "day": day,
        "account": row.account or "",
        "key": row.key or "",
        "model": row.model or "",
        "tier": "batch" if row.batch else row.tier,
        "region": row.region or "",
        "context": row.context,
    }


def _to_billed_money(row: StatementRow, day: int, used: range, *, is_moved: bool) -> BilledMoney:
    amount = money.text_to_units(f"{row.amount:f}")
    meter = token_meter(row.kind)
    line = BilledMoney(
        **_dimensions(row, day), meter=meter, amount=amount, line=row.line_type or "", bill=row.bill
    )
    is_again = row.line_type in (REFUND, CORRECTION)
    if not is_again and not (is_moved and line.is_for_tokens):
        return line
    line_type = row.line_type if is_again else CORRECTION
    return replace(
        line, meter=CREDIT if amount < 0 else CORRECTION, line=line_type or "", of=meter, used=used
    )


def _effective_minus_billed_amount(row: StatementRow) -> int:
    if row.amount_effective is None:
        return 0
    # the effective cost includes fees that were moved to the usage that they cover
    return money.text_to_units(f"{row.amount_effective:f}") - money.text_to_units(f"{row.amount:f}")


def _is_row_about_calls(row: StatementRow) -> bool:
    if row.line_type in (REFUND, CORRECTION):
        return False
    return row.unit in (TOKENS, REQUESTS) or token_meter(row.kind) in (*METERS, *POOLED, WHOLE)


def _as_credit_if_given_back(row: BilledMoney) -> BilledMoney:
    is_given_back = row.amount < 0 and not row.is_for_tokens and row.meter not in NAMED
    return replace(row, meter=CREDIT) if is_given_back else row


def token_meter(kind: str) -> str:
    """
    Return the meter of a billed kind. Reasoning and other output count as output, other input as input, and
    each kind of tax as TAX. Any other kind stays as it is.
    """
    if kind in METERS or kind in POOLED:
        return kind
    if kind == REASONING or kind.endswith("_output"):
        return OUTPUT
    if kind.endswith("_input"):
        return INPUT
    return TAX if _TAXES.intersection(kind.lower().replace("_", " ").split()) else kind


def choose_source_by_day(
    rows: Sequence[BilledTokens] | Sequence[BilledMoney], covered: Mapping[str, frozenset[int]]
) -> dict[int, str]:
    """
    Choose one source for each day. If several sources cover a day, choose the most detailed.

    Sources are never added up, because two reports of a provider are about the same calls.
    """
    rows_by_source: dict[str, list[BilledTokens | BilledMoney]] = defaultdict(list)
    for row in rows:
        rows_by_source[row.source].append(row)
    rank = {
        source: (_count_stated_dimensions(source_rows), len(source_rows), source)
        for source, source_rows in rows_by_source.items()
    }
    days: dict[int, str] = {}
    for source in sorted(rank, key=lambda source: rank[source]):
        for day in covered.get(source, frozenset()) | {row.day for row in rows_by_source[source]}:
            days[day] = source
    return days


def _count_stated_dimensions(rows: Sequence[BilledTokens | BilledMoney]) -> int:
    keys = any(row.key for row in rows)
    models = any(row.model for row in rows)
    tiers = any(row.tier is not None for row in rows)
    return keys + models + tiers


def common_comparison_levels(
    tokens: Sequence[BilledTokens],
    amounts: Sequence[BilledMoney],
    counted_uses: Sequence[CountedUse],
    *,
    are_keys_matched: bool,
) -> ComparableDimensions:
    """
    Return the dimensions that rows of both sides may be compared by: those that the bill states. Keys count
    only if some keys match, and regions only if both sides mean the same by them.
    """
    token_rows: Sequence[BilledTokens | BilledMoney] = [row for row in tokens if row.meter is not None]
    paid = [row for row in amounts if row.is_for_tokens]
    model = any(row.model for row in token_rows) if token_rows else any(row.model for row in paid)
    key = are_keys_matched and any(row.key for row in (token_rows or paid))
    tier = any(row.tier is not None for row in token_rows)
    region = _has_same_region_names([row for row in tokens if row.meter is not None], counted_uses)
    contexts = sorted({row.context for row in token_rows if row.context})
    return ComparableDimensions(
        model=model,
        key=key,
        tier=tier,
        region=region,
        contexts=tuple(contexts),
        money_model=model and any(row.model for row in paid) if paid else model,
        money_key=key and any(row.key for row in paid) if paid else key,
        money_tier=tier and any(row.tier is not None for row in paid) if paid else tier,
        money_region=region and any(row.region for row in paid) if paid else region,
        money_context=any(row.context for row in paid) if contexts and paid else bool(contexts),
    )


def _has_same_region_names(tokens: Sequence[BilledTokens], counted_uses: Sequence[CountedUse]) -> bool:
    """
    Return whether the bill and the ledger use the same names of regions. They do not if the tokens of a model
    are in different regions.
    """
    extra: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    theirs = {row.region for row in tokens}
    ours = {row.region for row in counted_uses}
    if theirs & ours <= ANYWHERE:
        return False
    for row in tokens:
        extra[row.model]["" if row.region in ANYWHERE else row.region] += row.quantity
    for use in counted_uses:
        extra[use.model]["" if use.region in ANYWHERE else use.region] -= sum(use.tokens.values())
    exchanged = sum(
        min(
            sum(difference for difference in differences.values() if difference > 0),
            -sum(difference for difference in differences.values() if difference < 0),
        )
        for differences in extra.values()
    )
    return exchanged <= ALIKE * sum(row.quantity for row in tokens)


class ProviderKeyMatching:
    """The matching of provider keys with our keys, by a configured owner or by equal names."""

    def __init__(
        self, owners: Sequence[Owner], billed_keys: Iterable[str], counted_keys: Iterable[str]
    ) -> None:
        self._owners = owners
        self._named = {owner.billed for owner in owners}
        known = set(counted_keys)
        self.matched = {key for key in billed_keys if key in known} - self._named
        self._theirs = set(billed_keys) - self.matched - self._named - {""}
        self._ours = known - self.matched - {owner.api_key for owner in owners if owner.api_key}

    @property
    def has_matches(self) -> bool:
        return bool(self.matched or self._named)

    @property
    def unmatched_billed_keys(self) -> set[str]:
        return self._theirs

    def comparable_key_of_billed_row(self, row: BilledTokens | BilledMoney) -> str:
        for name in (row.key, row.account):
            if name in self._named or name in self.matched:
                return name
        if not row.key:
            return ""
        return UNMATCHED if self._ours else row.key

    def cost_filter(self, key: str) -> dict[str, list[str]]:
        """Return the costs filter for our calls of a key, or an empty one if no single filter fits."""
        for owner in self._owners:
            if owner.billed == key:
                pairs = (("api_key", owner.api_key), ("team", owner.team), ("source", owner.source))
                return {name: [value] for name, value in pairs if value}
        return {"api_key": [key]} if key in self.matched or key in self._ours else {}

    def comparable_key_of_use(self, row: CountedUse) -> str:
        for owner in self._owners:
            if owner.is_owner_of(row):
                return owner.billed
        if row.key in self.matched:
            return row.key
        return UNMATCHED if self._theirs or not row.key else row.key


def rename_models_to_families(
    tokens: Sequence[BilledTokens],
    amounts: Sequence[BilledMoney],
    counted_uses: Sequence[CountedUse],
    price_of: PriceOf,
) -> tuple[
    list[BilledTokens], list[BilledMoney], list[CountedUse], Callable[[str], str], list[tuple[str, str]]
]:
    """
    Rename models to their families on all rows. Names of a family with another price, according to `price_of`, stay
    apart. Also return a function from a family to the model name used to price it, and the pairs (billed, counted)
    of different names for one family.
    """
    theirs: dict[str, set[str]] = defaultdict(set)
    ours: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    families = _family_by_model_split_by_price(
        match_model_families(tokens, amounts, counted_uses), counted_uses, price_of
    )
    for name in {*(r.model for r in tokens), *(r.model for r in amounts)}:
        theirs[families[name]].add(name)
    for use in counted_uses:
        ours[families[use.model]][use.model] += sum(use.tokens.values())
    pairs = [
        (min(names), max(ours[model_family], key=lambda name: ours[model_family][name]))
        for model_family, names in sorted(theirs.items())
        if model_family in ours and names.isdisjoint(ours[model_family])
    ]

    def name_for_pricing(model_name: str) -> str:
        if ours.get(model_name):
            return max(ours[model_name], key=lambda name: (ours[model_name][name], name))
        return min(theirs.get(model_name, {model_name}))

    return (
        [replace_model(row, families[row.model]) for row in tokens],
        [replace_model(row, families[row.model]) for row in amounts],
        [replace_model(row, families[row.model]) for row in counted_uses],
        name_for_pricing,
        pairs,
    )


def _family_by_model_split_by_price(
    family_by_model: Mapping[str, str], counted_uses: Iterable[CountedUse], price_of: PriceOf
) -> dict[str, str]:
    """
    Return the family of each model name. Names with another price than the most used counted name of their
    family get a family of their own.

    Names without a known price keep their family. So do names of a family that the ledger does not have.
    """
    used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for use in counted_uses:
        used[family_by_model[use.model]][use.model] += sum(use.tokens.values())
    apart: dict[tuple[str, object], str] = {}
    families = dict(family_by_model)
    for name, family_name in sorted(family_by_model.items()):
        names = used.get(family_name)
        if not name or not names or (name in names and len(names) == 1):
            continue
        same = next((own for own in sorted(names) if _is_same_dated_model(name, own, family_name)), name)
        price = price_of(same)
        main_price = price_of(max(sorted(names), key=lambda other: names[other]))
        if all(price) and all(main_price) and price != main_price:
            families[name] = apart.setdefault((family_name, price), name.lower())
    return families


def _is_same_dated_model(name: str, other: str, family_name: str) -> bool:
    # a bill may omit the year of the date
    dates = ["".join(filter(str.isdigit, name.lower().removeprefix(family_name))) for name in (name, other)]
    return all(dates) and (dates[0].endswith(dates[1]) or dates[1].endswith(dates[0]))


def match_model_families(
    tokens: Sequence[BilledTokens], amounts: Sequence[BilledMoney], counted_uses: Sequence[CountedUse]
) -> dict[str, str]:
    """
    Return the family of each model name.

    Names that only one side has are joined with a name of the other side if their letters agree, or else if
    their tokens agree day by day. Ambiguous names are not joined.
    """
    billed_names = {*(row.model for row in tokens), *(row.model for row in amounts)}
    family_of = {
        name: model_family(name) if name else ""
        for name in {*billed_names, *(row.model for row in counted_uses)}
    }
    theirs = {family_of[name] for name in billed_names} - {""}
    ours = {family_of[row.model] for row in counted_uses} - {""}
    joined: dict[str, str] = {}
    by_letters: dict[str, list[str]] = defaultdict(list)
    for name in sorted(ours):
        by_letters[model_family_without_separators(name)].append(name)
    for name in sorted(theirs - ours):
        if len(known := by_letters[model_family_without_separators(name)]) == 1:
            joined[name] = known[0]
    billed_tokens: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in tokens:
        if row.meter is not None:
            billed_tokens[family_of[row.model]][row.day] += row.quantity
    counted_tokens: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    succeeded_tokens: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for use in counted_uses:
        used = sum(use.tokens.values())
        counted_tokens[family_of[use.model]][use.day] += used
        if not use.errors:
            succeeded_tokens[family_of[use.model]][use.day] += used
    unmatched = ours - theirs - set(joined.values())
    pairs = [
        (name, own_name)
        for name in sorted(theirs - ours - joined.keys())
        for own_name in sorted(unmatched)
        if len(billed_tokens[name]) >= LEAST_DAYS
        and any(
            are_series_alike(billed_tokens[name], by_name[own_name])
            for by_name in (counted_tokens, succeeded_tokens)
        )
    ]
    for name, own_name in pairs:
        if (
            sum(name == billed_name for billed_name, _ in pairs)
            == sum(own_name == counted_name for _, counted_name in pairs)
            == 1
        ):
            joined[name] = own_name
    return {name: joined.get(family_name, family_name) for name, family_name in family_of.items()}
