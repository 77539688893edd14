"""
Bills of other shapes than those of `simulator`, and faults that need such a bill.

A shape has no cause: it is what some provider, reseller or export states about a month. It is planted like a fault, so
that faults of `faults` and `plants` are drawn together with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal
from random import Random

import msgspec

from spool.record import NS, Inference
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.plants import (
    HAVE_KEYS,
    HAVE_TIERS,
    Calls,
    Plant,
    Planting,
    Rows,
    lost,
)
from tests.gateway.bills.reconciliation.simulator import ANTHROPIC, DAY_S, DAYS, KEYS, MODELS, Call

replaced = msgspec.structs.replace


def _summed(given: Rows, name: Callable[[StatementRow], StatementRow]) -> list[StatementRow]:
    """Add up the amounts of rows that become equal by `name`."""
    sums: dict[StatementRow, Decimal] = defaultdict(Decimal)
    for row in given:
        sums[replaced(name(row), amount=Decimal(0))] += row.amount
    return [replaced(row, amount=amount) for row, amount in sums.items()]


def _shape(name: Callable[[StatementRow], StatementRow]) -> Planting:
    return lambda random, provider: Plant(causes=(), rows=lambda rows: _summed(rows, name))


def _one_amount(row: StatementRow) -> StatementRow:
    """State one amount for all kinds of tokens of a model, as resellers do."""
    return replaced(row, kind="cost") if row.unit == "usd" else row


def _one_amount_a_day(row: StatementRow) -> StatementRow:
    """State one amount a day, as credit card statements do."""
    if row.unit != "usd":
        return row
    return replaced(row, kind="cost", model=None, tier=None, batch=None, region=None, context=None)


def _without_tiers(row: StatementRow) -> StatementRow:
    return replaced(row, tier=None, batch=None)


def _pooled_input(row: StatementRow) -> StatementRow:
    """State cache writes of both lifetimes as one kind."""
    return replaced(row, kind="cache_write") if row.kind.startswith("cache_write") else row


def _without_models(row: StatementRow) -> StatementRow:
    return replaced(row, model=None)


def _in_weeks(row: StatementRow) -> StatementRow:
    week = (row.start - DAYS[0]) // (7 * DAY_S)
    end = min(DAYS[0] + (week + 1) * 7 * DAY_S, DAYS[-1] + DAY_S)
    return replaced(row, start=DAYS[0] + week * 7 * DAY_S, end=end)


def _in_one_month(row: StatementRow) -> StatementRow:
    return replaced(row, start=DAYS[0], end=DAYS[-1] + DAY_S)


def _two_projects(random: Random, provider: str) -> Plant:
    """State half of each row under another account."""

    def rows(given: Rows) -> Rows:
        halves = [replaced(row, account="project-2", amount=row.amount // 2) for row in given]
        rest = [
            replaced(row, amount=row.amount - half.amount) for row, half in zip(given, halves, strict=True)
        ]
        return [*halves, *rest]

    return Plant(causes=(), rows=rows)


def _only_money(random: Random, provider: str) -> Plant:
    return Plant(causes=(), rows=lambda rows: [row for row in rows if row.unit == "usd"])


def _cents(random: Random, provider: str) -> Plant:
    """Round each amount to a cent."""

    def rounded(row: StatementRow) -> StatementRow:
        return replaced(row, amount=row.amount.quantize(Decimal("0.01"), ROUND_HALF_EVEN))

    return Plant(
        causes=("rounding",), rows=lambda rows: [rounded(row) if row.unit == "usd" else row for row in rows]
    )


def _few_days(random: Random, provider: str) -> Plant:
    """Use the provider on the first days of the month only."""
    end = random.choice(DAYS[4:12])
    return Plant(causes=(), done=lambda calls: [call for call in calls if call.day < end])


def _few_calls(random: Random, provider: str) -> Plant:
    number = random.choice((5, 9))
    return Plant(
        causes=(), done=lambda calls: [call for place, call in enumerate(calls) if place % number == 0]
    )


def _weekdays(random: Random, provider: str) -> Plant:
    """Have no call at weekends."""
    return Plant(
        causes=(), done=lambda calls: [call for call in calls if DAYS.index(call.day) % 7 not in (0, 6)]
    )


def _no_caches(random: Random, provider: str) -> Plant:
    """Use neither caches nor batches."""

    def plain(call: Call) -> Call:
        return replace(call, batch=False, tokens={**dict.fromkeys(call.tokens, 0), **_of_plain(call)})

    return Plant(causes=(), done=lambda calls: [*map(plain, calls)])


def _of_plain(call: Call) -> Mapping[str, int]:
    return {kind: call.tokens[kind] for kind in ("input", "output")}


def _one_model(random: Random, provider: str) -> Plant:
    model = random.choice(sorted(MODELS[provider]))
    return Plant(causes=(), done=lambda calls: [call for call in calls if call.model == model])


def _one_key(random: Random, provider: str) -> Plant:
    return Plant(causes=(), done=lambda calls: [replace(call, key=KEYS[0]) for call in calls])


def _alike(random: Random, provider: str) -> Plant:
    """Make all calls equal, as a monitor does."""
    tokens = {"input": 900, "cache_read": 0, "cache_write_5m": 0, "cache_write_1h": 0, "output": 120}
    return Plant(causes=(), done=lambda calls: [replace(call, tokens=tokens) for call in calls])


SHAPES: Mapping[str, Planting] = {
    "one amount": _shape(_one_amount),
    "one amount a day": _shape(_one_amount_a_day),
    "without tiers": _shape(_without_tiers),
    "pooled writes": _shape(_pooled_input),
    "without models": _shape(_without_models),
    "weeks": _shape(_in_weeks),
    "one month": _shape(_in_one_month),
    "two projects": _two_projects,
    "only money": _only_money,
    "cents": _cents,
    "few days": _few_days,
    "few calls": _few_calls,
    "weekdays": _weekdays,
    "no caches": _no_caches,
    "one model": _one_model,
    "one key": _one_key,
    "alike": _alike,
}


def _share(random: Random, share: float) -> Callable[[Call], bool]:
    seed = random.random()
    return lambda call: Random(f"{seed} {call.time} {call.tokens}").random() < share


def _money(factor: Callable[[StatementRow], Decimal], *causes: str) -> Plant:
    return Plant(
        causes=causes,
        rows=lambda rows: [
            replaced(row, amount=row.amount * factor(row)) if row.unit == "usd" else row for row in rows
        ],
    )


def _sampled(random: Random, provider: str) -> Plant:
    """Report only one of four calls."""
    is_kept = _share(random, 0.25)
    return lost(lambda call: not is_kept(call), "unreported_calls")


def _some_again(random: Random, provider: str) -> Plant:
    """Report some calls twice, under other ids."""
    is_again = _share(random, 0.05)
    return Plant(causes=(), told=lambda calls: [*calls, *filter(is_again, calls)])


def _estimated_tokens(random: Random, provider: str) -> Plant:
    """Report tokens that the source estimates."""

    def about(call: Call) -> Call:
        share = Random(f"{call.time} {call.tokens}").uniform(0.9, 1.1)
        return replace(call, tokens={kind: int(count * share) for kind, count in call.tokens.items()})

    return Plant(causes=(), told=lambda calls: [*map(about, calls)])


def _rounded_tokens(random: Random, provider: str) -> Plant:
    """State the tokens of each line in thousands."""
    return Plant(
        causes=(),
        rows=lambda rows: [
            replaced(row, amount=round(row.amount, -3)) if row.unit == "tokens" else row for row in rows
        ],
    )


def _volume_discount(random: Random, provider: str) -> Plant:
    """Give a discount on all lines after a certain amount was billed."""

    def rows(given: Rows) -> Rows:
        half = sum((row.amount for row in given if row.unit == "usd"), Decimal(0)) / 2
        result, paid = [], Decimal(0)
        for row in sorted(given, key=lambda row: row.start):
            is_later = paid > half
            paid += row.amount if row.unit == "usd" else 0
            result.append(
                replaced(row, amount=row.amount * Decimal("0.8")) if is_later and row.unit == "usd" else row
            )
        return result

    return Plant(causes=("price_change", "discount"), rows=rows)


def _least_amount(random: Random, provider: str) -> Plant:
    """Bill at least a cent for each line."""
    return Plant(
        causes=("rounding",),
        rows=lambda rows: [
            replaced(row, amount=max(row.amount, Decimal("0.01")))
            if row.unit == "usd" and row.amount
            else row
            for row in rows
        ],
    )


def _batch_price(random: Random, provider: str) -> Plant:
    """Bill batches at another price than the list has."""
    factor = Decimal(random.choice(("0.8", "1.3", "1.6")))
    plant = _money(
        lambda row: factor if row.tier == "batch" or row.batch else Decimal(1), "price_change", "discount"
    )
    return replace(plant, providers=HAVE_TIERS)


def _outages(random: Random, provider: str) -> Plant:
    """Lose the calls of ten hours on each weekend. In a month of few calls, these hours are like others."""
    return lost(
        lambda call: DAYS.index(call.day) % 7 == 0 and 8 <= call.time % DAY_S // 3600 < 18,
        "no_telemetry",
        "unreported_calls",
    )


def _begun(random: Random, provider: str) -> Plant:
    """Begin to report within the month, at noon."""
    begin = random.choice(DAYS[3:15]) + DAY_S // 2
    return lost(lambda call: call.time < begin, "no_telemetry")


def _bill_ends(random: Random, provider: str) -> Plant:
    """Leave the last days out of the bill, although it covers them."""
    end = random.choice(DAYS[-6:-2])
    return Plant(causes=("no_bill",), rows=lambda rows: [row for row in rows if row.start < end])


def _two_keys(random: Random, provider: str) -> Plant:
    keys = random.sample(KEYS, 2)
    is_of_keys = lost(lambda call: call.key in keys, "unreported_traffic")
    return replace(is_of_keys, providers=HAVE_KEYS)


def _other_clock(random: Random, provider: str) -> Plant:
    """Start the days of the bill in Tokyo."""

    def billed(calls: Calls) -> Calls:
        moved = [replace(call, time=call.time + 9 * 3600) for call in calls]
        return [call for call in moved if call.day in DAYS]

    return Plant(causes=("time_edge",), billed=billed)


def _model_of_key(random: Random, provider: str) -> Plant:
    """Lose one model of one key in the bill."""
    key, model = random.choice(KEYS), random.choice(sorted(MODELS[provider]))
    return lost(lambda call: (call.key, call.model) == (key, model), "unreported_calls", "unreported_traffic")


def _daily_credit(random: Random, provider: str) -> Plant:
    """Give a share of each day's amount back."""

    def rows(given: Rows) -> Rows:
        paid: dict[int, Decimal] = defaultdict(Decimal)
        for row in given:
            paid[row.start] += row.amount if row.unit == "usd" else 0
        like = next(row for row in given if row.unit == "usd")
        line = replaced(like, kind="promotion", model=None, tier=None, batch=None, region=None, context=None)
        return [
            *given,
            *(
                replaced(line, start=day, end=day + DAY_S, amount=-(amount / 10).quantize(Decimal("1e-6")))
                for day, amount in paid.items()
            ),
        ]

    return Plant(causes=("credit",), rows=rows)


def _changed_twice(random: Random, provider: str) -> Plant:
    """Change all prices twice in the month."""
    first, second = sorted(random.sample(DAYS[4:-4], 2))
    return _money(
        lambda row: (
            Decimal("1.2") if row.start >= second else Decimal("1.1") if row.start >= first else Decimal(1)
        ),
        "price_change",
        "price_on_days",
    )


def _other_writes(random: Random, provider: str) -> Plant:
    """Report cache writes for an hour as such for five minutes."""

    def told(call: Call) -> Call:
        tokens = call.tokens
        writes = tokens["cache_write_5m"] + tokens["cache_write_1h"]
        return replace(call, tokens={**tokens, "cache_write_5m": writes, "cache_write_1h": 0})

    return Plant(causes=("cache_ttl_1h",), told=lambda calls: [*map(told, calls)], providers=(ANTHROPIC,))


def _merged_keys(random: Random, provider: str) -> Plant:
    """Bill two keys under one of their names."""
    first, second = random.sample(KEYS, 2)
    return Plant(
        causes=("keys_exchanged",),
        billed=lambda calls: [replace(call, key=first) if call.key == second else call for call in calls],
        providers=HAVE_KEYS,
    )


def _split_key(random: Random, provider: str) -> Plant:
    """Bill a part of a key's calls under another key."""
    key, is_other = random.choice(KEYS), _share(random, 0.4)
    return Plant(
        causes=("keys_exchanged",),
        billed=lambda calls: [
            replace(call, key="key_other") if call.key == key and is_other(call) else call for call in calls
        ],
        providers=HAVE_KEYS,
    )


def _local_key(random: Random, provider: str) -> Plant:
    """Let the program of one key report its local time as UTC."""
    key = random.choice(KEYS)
    return Plant(
        causes=("time_edge",),
        told=lambda calls: [
            replace(call, time=call.time - 7 * 3600) if call.key == key else call for call in calls
        ],
    )


def _late_minutes(random: Random, provider: str) -> Plant:
    """Bill each call forty minutes after it began."""
    return Plant(
        causes=("time_edge",),
        billed=lambda calls: [
            moved for call in calls if (moved := replace(call, time=call.time + 2400)).day in DAYS
        ],
    )


def _rounded_calls(random: Random, provider: str) -> Plant:
    """Bill each kind of a call's tokens in hundreds."""

    def rounded(call: Call) -> Call:
        return replace(call, tokens={kind: -(-count // 100) * 100 for kind, count in call.tokens.items()})

    return Plant(causes=(), billed=lambda calls: [*map(rounded, calls)])


def _markup(random: Random, provider: str) -> Plant:
    """Let a source report its own costs, with a markup."""
    factor = Decimal(random.choice(("1.1", "1.25")))

    def told(calls: Calls) -> Calls:
        known = (call for call in calls if call.model in MODELS[provider])
        costs.update({(call.time, call.tokens["output"]): call.cost() * factor for call in known})
        return calls

    costs: dict[tuple[int, int], Decimal] = {}

    def priced(report: Inference) -> Inference:
        cost = costs.get(((report.start_time or 0) // NS, report.output_tokens or 0))
        return replaced(report, cost=f"{cost:f}") if cost is not None and report.cost is None else report

    return Plant(
        causes=("own_price",), told=told, reports=lambda reports: [priced(report) for report in reports]
    )


def _key_cut(random: Random, provider: str) -> Plant:
    """Lose the tokens of a key on some days in the export."""
    key, days = random.choice(KEYS), set(random.sample(DAYS, 4))
    return Plant(
        causes=(),
        rows=lambda rows: [
            row for row in rows if not (row.key == key and row.start in days and row.unit != "usd")
        ],
        providers=HAVE_KEYS,
    )


def _tokens_twice(random: Random, provider: str) -> Plant:
    """Repeat the tokens of two days in the export, and not the money."""
    days = set(random.sample(DAYS, 2))
    return Plant(
        causes=(),
        rows=lambda rows: [*rows, *(row for row in rows if row.start in days and row.unit != "usd")],
    )


def _late_batches(random: Random, provider: str) -> Plant:
    """Bill batches on the day after their calls were made."""
    return Plant(
        causes=("posted_late", "time_edge"),
        billed=lambda calls: [
            moved
            for call in calls
            if (moved := replace(call, time=call.time + DAY_S * call.batch)).day in DAYS
        ],
    )


UNUSUAL: Mapping[str, Planting] = {
    "merged keys": _merged_keys,
    "split key": _split_key,
    "local key": _local_key,
    "late minutes": _late_minutes,
    "rounded calls": _rounded_calls,
    "markup": _markup,
    "key cut": _key_cut,
    "tokens twice": _tokens_twice,
    "late batches": _late_batches,
    "sampled": _sampled,
    "some again": _some_again,
    "estimated tokens": _estimated_tokens,
    "thousands": _rounded_tokens,
    "volume discount": _volume_discount,
    "least amount": _least_amount,
    "batch price": _batch_price,
    "outages": _outages,
    "begun": _begun,
    "bill ends": _bill_ends,
    "two keys": _two_keys,
    "tokyo": _other_clock,
    "model of a key": _model_of_key,
    "daily credit": _daily_credit,
    "changed twice": _changed_twice,
    "other writes": _other_writes,
}
