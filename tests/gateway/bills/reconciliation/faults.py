"""
Faults of made-up bills: causes planted in a simulated month, drawn by a seed, in addition to those of `plants`.

Each changes one thing that a provider, a source or an export may do. A fault without `causes` has no cause that the
numbers prove, so nothing may be stated as a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import ROUND_UP, Decimal
from random import Random
from typing import Any

import msgspec

from gateway.intake.price_terms import PriceTerm
from spool.record import NS, Inference
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.plants import (
    HAVE_KEYS,
    HAVE_MODELS,
    HAVE_TIERS,
    PLAIN,
    Calls,
    Plant,
    Planting,
    Rows,
)
from tests.gateway.bills.reconciliation.simulator import (
    ANTHROPIC,
    AZURE,
    DAY_S,
    DAYS,
    GOOGLE,
    KEYS,
    KINDS,
    MODELS,
    Call,
)

replaced = msgspec.structs.replace
Choice = Callable[[Call], bool]


def _share(random: Random, share: float) -> Choice:
    seed = random.random()
    return lambda call: Random(f"{seed} {call.time} {call.tokens}").random() < share


def _is_of_tokens(row: StatementRow) -> bool:
    return (row.unit == "usd" and row.kind in {*("input", "output", "reasoning", "cache_read")}) or (
        row.unit == "usd" and row.kind.startswith("cache_write")
    )


def _model_of(random: Random, provider: str) -> str:
    return random.choice(sorted(MODELS[provider]))


def _spelled(provider: str, model: str) -> str:
    """Return a model's name as the bill writes it."""
    return f"{model[:-10]}{model[-5:-3]}{model[-2:]}" if provider == AZURE else model


def _console(random: Random, provider: str) -> Plant:
    """Bill some unreported calls without a key, as a provider's console makes them."""
    is_of_console = _share(random, 0.06)
    return Plant(
        causes=("unreported_traffic",),
        lost=lambda call: not call.key,
        done=lambda calls: [replace(call, key="") if is_of_console(call) else call for call in calls],
        providers=HAVE_KEYS,
    )


def _tier(tier: str, share: float, *, is_told: bool) -> Planting:
    """Run some calls in a tier that the price list lacks. Sources report it or not."""

    def plant(random: Random, provider: str) -> Plant:
        is_in_tier = _share(random, share)
        return Plant(
            causes=("tier_price",) if is_told else ("tier_unknown", "tier_price"),
            done=lambda calls: [
                replace(call, tier=tier) if is_in_tier(call) and not call.batch else call for call in calls
            ],
            told=lambda calls: calls if is_told else [replace(call, tier="") for call in calls],
        )

    return plant


def _unpaid(
    is_unpaid: Callable[[StatementRow], bool], random: Random, *causes: str, **fields: object
) -> Plant:
    """Leave the money of some token lines out of the bill, or state it as 0."""
    is_left_out = random.random() < 0.5

    def rows(given: Rows) -> Rows:
        kept = (
            replaced(row, amount=Decimal(0)) if _is_of_tokens(row) and is_unpaid(row) else row
            for row in given
        )
        return [row for row in kept if not (is_left_out and _is_of_tokens(row) and is_unpaid(row))]

    return Plant(causes=causes, rows=rows, **fields)  # type: ignore[arg-type]


def _free_days(random: Random, provider: str) -> Plant:
    days = set(random.sample(DAYS, random.choice((1, 2, 5))))
    return _unpaid(lambda row: row.start in days, random, "price_on_days")


def _free_model(random: Random, provider: str) -> Plant:
    model = _spelled(provider, _model_of(random, provider))
    return _unpaid(lambda row: row.model == model, random, "discount", providers=HAVE_MODELS)


def _free_since(random: Random, provider: str) -> Plant:
    since = random.choice(DAYS[5:24])
    return _unpaid(lambda row: row.start >= since, random, "price_change")


def _free_kind(random: Random, provider: str) -> Plant:
    kind = random.choice(("cache_read", "output", "input"))
    kinds = {kind, "reasoning" if kind == "output" else kind}
    return _unpaid(lambda row: row.kind in kinds, random, "price_change")


def _free_tokens(random: Random, provider: str) -> Plant:
    """Bill no money for the first input tokens of a model on each day."""
    model = _spelled(provider, _model_of(random, provider))
    free = random.choice((20_000, 50_000, 90_000))

    def rows(given: Rows) -> Rows:
        tokens: dict[tuple[object, ...], Decimal] = {}
        for row in given:
            if row.unit == "tokens":
                tokens[_place(row)] = tokens.get(_place(row), Decimal(0)) + row.amount
        left = dict.fromkeys((row.start for row in given), Decimal(free))
        price = next(
            of.of("input") for name, of in MODELS[provider].items() if _spelled(provider, name) == model
        )

        def paid(row: StatementRow) -> StatementRow:
            is_it = row.model == model and row.kind == "input" and row.unit == "usd" and not row.context
            if not is_it or row.batch or row.tier not in (None, "standard"):
                return row
            used = min(left[row.start], tokens.get(_place(row), Decimal(0)))
            left[row.start] -= used
            return replaced(row, amount=row.amount - used * price / 10**6)

        return [paid(row) for row in given]

    return Plant(causes=("free_tokens",), rows=rows)


def _place(row: StatementRow) -> tuple[object, ...]:
    return row.start, row.model, row.kind, row.tier in ("batch", "flex") or row.batch is True, row.context


def _premium(random: Random, provider: str) -> Plant:
    """Bill large inputs at the base price, in some months without stating their context window."""
    is_stated = random.random() < 0.5

    def rows(given: Rows) -> Rows:
        return given if is_stated else [replaced(row, context=None) for row in given]

    return Plant(causes=("premium_absent",), billed_rates=PLAIN, rows=rows, providers=(ANTHROPIC, GOOGLE))


def _capacity(random: Random, provider: str) -> Plant:
    """Serve a model on paid capacity: a line of throughput a day, and no money for its tokens."""
    name = _model_of(random, provider)
    model = _spelled(provider, name)
    since = random.choice((DAYS[0], DAYS[10]))
    fee = Decimal(random.choice(("24", "48.5", "120")))

    def rows(given: Rows) -> Rows:
        result = [
            row for row in given if not (_is_of_tokens(row) and row.model == model and row.start >= since)
        ]
        like = next(row for row in given if row.unit == "usd")
        return [
            *result,
            *(
                replaced(
                    like, kind="throughput", model=model, amount=fee, start=day, end=day + DAY_S, tier=None,
                    region=None, batch=None, context=None,
                )
                for day in DAYS
                if day >= since
            ),
        ]  # fmt: skip

    return Plant(causes=("commitment",), rows=rows)


SNAPSHOTS = {
    "gpt-4o-2024-08-06": "gpt-4o-2024-05-13",
    "o3-2025-04-16": "o3-2025-06-10",
    "claude-sonnet-4-5-20250929": "claude-sonnet-4-5-20250514",
    "claude-haiku-4-5-20251001": "claude-haiku-4-5-20250601",
    "gpt-4o-2024-11-20": "gpt-4o-2024-05-13",
    "gpt-4o-mini-2024-07-18": "gpt-4o-mini-2024-04-09",
}


def _snapshot(share: float) -> Planting:
    """Serve a model by an earlier snapshot at another price, which sources do not report."""

    def plant(random: Random, provider: str) -> Plant:
        names = [name for name in MODELS[provider] if name in SNAPSHOTS]
        if not names:
            return Plant(causes=(), providers=())
        model = random.choice(names)
        other = SNAPSHOTS[model]
        factor = Decimal(random.choice(("2", "1.6", "0.7")))
        rates = MODELS[provider][model]
        prices: dict[str, Any] = {kind: str(rates.of(kind) * factor) for kind in KINDS}
        world = {**MODELS, provider: {**MODELS[provider], other: replace(rates, **prices)}}
        is_other = _share(random, share)
        return Plant(
            causes=("other_model",),
            world=world,
            done=lambda calls: [
                replace(call, model=other) if call.model == model and is_other(call) else call
                for call in calls
            ],
            told=lambda calls: [
                replace(call, model=model) if call.model == other else call for call in calls
            ],
        )

    return plant


def _no_output_count(random: Random, provider: str) -> Plant:
    """Report some calls without the number of output tokens."""
    is_without = _share(random, 0.1)
    chosen: set[tuple[int, int]] = set()  # time and output of each chosen call

    def told(calls: Calls) -> Calls:
        chosen.update((call.time, call.tokens["output"]) for call in calls if is_without(call))
        return calls

    def without(report: Inference) -> Inference:
        call = (report.start_time or 0) // NS, report.output_tokens
        return replaced(report, output_tokens=None) if call in chosen else report

    return Plant(
        causes=("usage_missing",), told=told, reports=lambda reports: [without(report) for report in reports]
    )


def _money(factor: Callable[[StatementRow], Decimal], *causes: str, **fields: object) -> Plant:
    return Plant(
        causes=causes,
        rows=lambda rows: [
            replaced(row, amount=row.amount * factor(row)) if row.unit == "usd" else row for row in rows
        ],
        **fields,  # type: ignore[arg-type]
    )


def _model_price(random: Random, provider: str) -> Plant:
    model = _spelled(provider, _model_of(random, provider))
    factor, since = Decimal(random.choice(("1.2", "1.25", "0.8"))), random.choice(DAYS[5:25])
    return _money(
        lambda row: factor if row.model == model and row.start >= since else Decimal(1),
        "price_change",
        providers=HAVE_MODELS,
    )


def _uplift(random: Random, provider: str) -> Plant:
    """Bill one key at a higher price. The bill does not state keys."""
    key, factor = random.choice(KEYS), random.choice(("1.15", "1.3"))
    return Plant(
        causes=("key_price",),
        done=lambda calls: [
            replace(call, uplift=Decimal(factor)) if call.key == key else call for call in calls
        ],
    )


def _fee(random: Random, provider: str) -> Plant:
    factor = Decimal(random.choice(("1.02", "1.035", "1.05")))
    return _money(lambda row: factor, "fee" if provider in HAVE_MODELS else "price_change")


def _tokenizer(random: Random, provider: str) -> Plant:
    """Bill the tokens of a model as another tokenizer counts them."""
    model = _model_of(random, provider)
    share = random.choice((1.12, 1.3))
    return Plant(
        causes=(),
        billed=lambda calls: [
            replace(call, tokens={kind: int(count * share) for kind, count in call.tokens.items()})
            if call.model == model
            else call
            for call in calls
        ],
    )


def _rounded_up(random: Random, provider: str) -> Plant:
    return Plant(
        causes=("rounding",),
        rows=lambda rows: [
            replaced(row, amount=row.amount.quantize(Decimal("0.01"), ROUND_UP)) if row.unit == "usd" else row
            for row in rows
        ],
    )


def _drifting(random: Random, provider: str) -> Plant:
    """Convert the bill at the rates of other dates."""
    rate, factors = 1.0, {}
    for day in DAYS:
        rate *= 1 + random.uniform(-0.01, 0.01)
        factors[day] = Decimal(str(round(rate, 5)))
    # rows of calls around midnight may be on a day next to the month
    return _money(lambda row: factors[min(max(row.start, DAYS[0]), DAYS[-1])])


def _rotated(random: Random, provider: str) -> Plant:
    """Bill a key under a new id from a day on, while sources report the old one."""
    key, since = random.choice(KEYS), random.choice(DAYS[8:24])
    return Plant(
        causes=("keys_exchanged",),
        billed=lambda calls: [
            replace(call, key="key_new") if call.key == key and call.day >= since else call for call in calls
        ],
        providers=HAVE_KEYS,
    )


def _tokens_late(random: Random, provider: str) -> Plant:
    """Post the tokens of a day one day later, and the money on its own day."""
    day = random.choice(DAYS[1:-2])
    return Plant(
        causes=(),
        rows=lambda rows: [
            replaced(row, start=row.start + DAY_S, end=row.end + DAY_S)
            if row.start == day and row.unit != "usd"
            else row
            for row in rows
        ],
    )


def _night(random: Random, provider: str) -> Plant:
    """Lose the calls of the same hours on every day."""
    begin = random.choice((8, 12, 17)) * 3600
    return Plant(
        causes=("unreported_calls", "no_telemetry"),
        lost=lambda call: begin <= call.time % DAY_S < begin + 4 * 3600,
    )


def _cache_in_input(random: Random, provider: str) -> Plant:
    """Report cached tokens a second time as input."""
    return Plant(
        causes=("cached_twice",),
        told=lambda calls: [
            replace(call, tokens={**call.tokens, "input": call.tokens["input"] + call.tokens["cache_read"]})
            for call in calls
        ],
    )


def term_of(provider: str, kind: str = "discount", **stated: Any) -> PriceTerm:
    return PriceTerm(contract="Enterprise", kind=kind, provider=provider, since="2026-01-01", **stated)


def _contract_met(random: Random, provider: str) -> Plant:
    """State a discount in a contract, and bill it."""
    factor = Decimal(random.choice(("0.95", "0.9", "0.7")))
    return replace(_money(lambda row: factor), terms=(term_of(provider, factor=factor),))


def _contract_of_batches_met(random: Random, provider: str) -> Plant:
    """State a batch price in a contract, and bill it."""
    plant = _money(lambda row: Decimal("0.8" if row.tier == "batch" else "1"), providers=HAVE_TIERS)
    return replace(plant, terms=(term_of(provider, "tier_price", tier="batch", factor=Decimal("0.4")),))


def _contract_ignored(random: Random, provider: str) -> Plant:
    """State a discount for a model or for all models in a contract, and bill list prices."""
    models = random.choice(((), (_model_of(random, provider),)))
    discount = Decimal(random.choice(("0.95", "0.9", "0.7")))
    return Plant(causes=("contract_price",), terms=(term_of(provider, models=models, factor=discount),))


def _contract_at_other_discount(random: Random, provider: str) -> Plant:
    """Bill another discount than the contract states."""
    plant = _money(lambda row: Decimal("0.97"), "contract_price", providers=HAVE_MODELS)
    return replace(plant, terms=(term_of(provider, factor=Decimal(random.choice(("0.9", "0.8")))),))


def _contract_tier_ignored(random: Random, provider: str) -> Plant:
    """State a batch price in a contract, and bill the batch price of the price list."""
    term = term_of(provider, "tier_price", tier="batch", factor=Decimal("0.4"))
    return Plant(causes=("contract_price",), terms=(term,))


def _contract_not_in_batches(random: Random, provider: str) -> Plant:
    """State a discount in a contract, and bill it for all tokens except those of batches."""
    factor = Decimal(random.choice(("0.95", "0.9", "0.7")))
    plant = _money(lambda row: Decimal(1) if row.tier == "batch" else factor, "contract_price")
    return replace(plant, terms=(term_of(provider, factor=factor),), providers=HAVE_TIERS)


def _contract_followed_late(random: Random, provider: str) -> Plant:
    """State a discount in a contract, and bill it only from a day on."""
    factor, since = Decimal(random.choice(("0.95", "0.9", "0.7"))), random.choice(DAYS[5:25])
    plant = _money(lambda row: factor if row.start >= since else Decimal(1), "contract_price")
    return replace(plant, terms=(term_of(provider, factor=factor),))


def _contract_capacity_ignored(random: Random, provider: str) -> Plant:
    """State capacity for a model in a contract, and bill the model's tokens at list prices."""
    term = term_of(provider, "capacity", models=(_model_of(random, provider),))
    return Plant(causes=("contract_price",), terms=(term,))


def _no_lines_of_kind(random: Random, provider: str) -> Plant:
    """Lose the tokens of one kind of a model in the export of the bill."""
    model = _spelled(provider, _model_of(random, provider))
    return Plant(
        causes=(),
        rows=lambda rows: [
            row
            for row in rows
            if not (row.unit == "tokens" and row.model == model and row.kind == "cache_read")
        ],
    )


def _rate_of_a_day(random: Random, provider: str) -> Plant:
    """Bill large inputs at twice the price on a few days."""
    days = set(random.sample(DAYS, 4))
    model = _spelled(provider, _model_of(random, provider))
    return _money(
        lambda row: (
            Decimal("1.5")
            if row.start in days and row.model == model and row.kind == "output"
            else Decimal(1)
        ),
        "price_on_days",
    )


FAULTS: Mapping[str, Planting] = {
    "console": _console,
    "flex untold": _tier("flex", 0.3, is_told=False),
    "flex": _tier("flex", 0.3, is_told=True),
    "priority untold": _tier("priority", 0.2, is_told=False),
    "priority": _tier("priority", 0.2, is_told=True),
    "free days": _free_days,
    "free model": _free_model,
    "free since": _free_since,
    "free kind": _free_kind,
    "free tokens": _free_tokens,
    "no premium": _premium,
    "capacity": _capacity,
    "snapshot": _snapshot(1),
    "some snapshot": _snapshot(0.3),
    "no output count": _no_output_count,
    "model price": _model_price,
    "uplift": _uplift,
    "fee": _fee,
    "tokenizer": _tokenizer,
    "rounded up": _rounded_up,
    "drifting": _drifting,
    "rotated key": _rotated,
    "tokens late": _tokens_late,
    "night": _night,
    "cache in input": _cache_in_input,
    "kind not exported": _no_lines_of_kind,
    "output on days": _rate_of_a_day,
    "contract met": _contract_met,
    "contract ignored": _contract_ignored,
    "contract at another discount": _contract_at_other_discount,
    "contract's tier ignored": _contract_tier_ignored,
    "contract's capacity ignored": _contract_capacity_ignored,
    "contract not in batches": _contract_not_in_batches,
    "contract followed late": _contract_followed_late,
    "contract of batches met": _contract_of_batches_met,
}
