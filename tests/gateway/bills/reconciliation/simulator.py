"""
A simulated month of five providers: calls, bills by published rules, and the ledger's count of the reports.

The billing rules are implemented independently of the price book. They cover cached input, cache writes for
five minutes and an hour, batches at half the price, and inputs over 200,000 tokens. They also cover each
provider's rounding and late rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from random import Random

from gateway.bills.reconciliation.comparing import ComparisonInput, Reconciliation, compare_bill_with_ledger
from gateway.bills.reconciliation.counting import TokenPrices, group_uses_by_seller
from gateway.bills.reconciliation.sides import CountedUse
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards.card import Model, ModelNameCondition, Price, RateCard, Seller, Tier
from spool.ledger.ledger import Ledger
from spool.record import NS, Inference
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.statements import StatementRow
from tests.spool.ledger_log import FakeClock, FakeLog

DAY_S = 86400
FIRST = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
DAYS = [FIRST + number * DAY_S for number in range(30)]
OPENAI, ANTHROPIC, BEDROCK = "openai", "anthropic", "aws.bedrock"
AZURE, GOOGLE = "azure.ai.openai", "gcp.vertex_ai"
PROVIDERS = (OPENAI, ANTHROPIC, BEDROCK)
ALL_PROVIDERS = (*PROVIDERS, AZURE, GOOGLE)
KEYS = ("key_web", "key_app", "key_jobs")
MILLION = 10**6
NOTHING = Decimal(0)
FREE, ESTIMATED, BILLED = "free", "estimated", "billed"
KINDS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")
LARGE = 200_000
TIERS = {"flex": Decimal("0.5"), "priority": Decimal("1.75")}  # price factors
_HAVE_LARGE = (ANTHROPIC, GOOGLE)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Prices in dollars per million tokens, as in a price list."""

    input: str
    cache_read: str
    cache_write_5m: str
    cache_write_1h: str
    output: str
    # Price factors for input and output, which apply to the whole call if its input is large.
    large: tuple[str, str] | None = None

    def of(self, kind: str) -> Decimal:
        return Decimal(getattr(self, kind))


MODELS: Mapping[str, Mapping[str, Rates]] = {
    OPENAI: {
        "gpt-4o-2024-08-06": Rates(
            input="2.5", cache_read="1.25", cache_write_5m="2.5", cache_write_1h="2.5", output="10"
        ),
        "o3-2025-04-16": Rates(input="2", cache_read="0.5", cache_write_5m="2", cache_write_1h="2", output="8"),
    },
    ANTHROPIC: {
        "claude-sonnet-4-5-20250929": Rates(
            input="3", cache_read="0.3", cache_write_5m="3.75", cache_write_1h="6", output="15", large=("2", "1.5")
        ),
        "claude-haiku-4-5-20251001": Rates(
            input="1", cache_read="0.1", cache_write_5m="1.25", cache_write_1h="2", output="5"
        ),
    },
    BEDROCK: {
        "amazon.nova-lite-v1:0": Rates(
            input="0.06", cache_read="0.015", cache_write_5m="0.06", cache_write_1h="0.06", output="0.24"
        ),
    },
    AZURE: {
        "gpt-4o-2024-11-20": Rates(
            input="2.5", cache_read="1.25", cache_write_5m="2.5", cache_write_1h="2.5", output="10"
        ),
        "gpt-4o-mini-2024-07-18": Rates(
            input="0.15", cache_read="0.075", cache_write_5m="0.15", cache_write_1h="0.15", output="0.6"
        ),
    },
    GOOGLE: {
        "gemini-2.5-pro": Rates(
            input="1.25", cache_read="0.31", cache_write_5m="1.25", cache_write_1h="1.25", output="10",
            large=("2", "1.5"),
        ),
        "gemini-2.5-flash": Rates(
            input="0.3", cache_read="0.075", cache_write_5m="0.3", cache_write_1h="0.3", output="2.5"
        ),
    },
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Call:
    time: int
    provider: str
    model: str
    key: str
    batch: bool
    tokens: Mapping[str, int]
    region: str = ""  # the region of the call; a call in a named region costs ten percent more
    tier: str = ""  # the tier of the call, one of TIERS, which the price list lacks
    uplift: Decimal = Decimal(1)  # a factor of the price, which no row of the bill states
    # The call failed. Its source states the cost 0, unless it is ESTIMATED, and the provider bills it if it is BILLED.
    failed: str = ""

    @cached_property
    def day(self) -> int:
        return self.time // DAY_S * DAY_S

    @property
    def stated_tier(self) -> str:
        """Return the tier as bills name it."""
        return "batch" if self.batch else self.tier or "standard"

    @cached_property
    def is_large(self) -> bool:
        return sum(count for kind, count in self.tokens.items() if kind != "output") > LARGE

    def bill(self, kind: str, rates: Mapping[str, Mapping[str, Rates]] = MODELS) -> Decimal:
        """Return the provider's charge for one kind of the call's tokens."""
        if not self.tokens[kind]:
            return NOTHING
        of = rates[self.provider][self.model]
        price = of.of(kind)
        if of.large and self.is_large:
            price *= Decimal(of.large[kind == "output"])
        if self.batch:
            price /= 2
        price *= TIERS.get(self.tier, 1) * self.uplift
        if self.region:
            price *= Decimal("1.1")
        return self.tokens[kind] * price / MILLION

    def cost(self, rates: Mapping[str, Mapping[str, Rates]] = MODELS) -> Decimal:
        return sum((self.bill(kind, rates) for kind in KINDS), Decimal(0))


def month(seed: int = 7, a_day: int = 12, providers: Sequence[str] = PROVIDERS) -> list[Call]:
    """Create the calls of a month, more by day than by night."""
    random = Random(seed)
    calls = []
    for day in DAYS:
        for provider in providers:
            for _ in range(a_day):
                model = random.choice(sorted(MODELS[provider]))
                large = provider in _HAVE_LARGE and random.random() < 0.05
                writes = provider == ANTHROPIC
                calls.append(
                    Call(
                        time=day + int(random.triangular(0, DAY_S - 1, 14 * 3600)),
                        provider=provider,
                        model=model,
                        key=random.choice(KEYS),
                        batch=random.random() < 0.2,
                        tokens={
                            "input": random.randint(500, 20_000) + (220_000 if large else 0),
                            "cache_read": random.choice((0, random.randint(1000, 30_000))),
                            "cache_write_5m": random.choice((0, random.randint(1000, 9000))) if writes else 0,
                            "cache_write_1h": random.choice((0, 0, random.randint(1000, 9000)))
                            if writes
                            else 0,
                            "output": random.randint(50, 4000),
                        },
                    )
                )
    return sorted(calls, key=lambda call: call.time)


Settled = Callable[[int], bool]
RatesOf = Callable[[Call], Mapping[str, Mapping[str, Rates]]]

# Reports of the providers as rows. `settled` returns whether a day's rows are final when the report is read.


def statements(
    calls: Iterable[Call],
    *,
    settled: Callable[[int], bool] = lambda _: True,
    rates: Callable[[Call], Mapping[str, Mapping[str, Rates]]] = lambda _: MODELS,
) -> list[StatementRow]:
    """Return every provider's reports about the calls billed so far, at the rates of each call."""
    calls = list(calls)
    all_rows: list[StatementRow] = []
    for provider in ALL_PROVIDERS:
        own = [call for call in calls if call.provider == provider]
        all_rows += _REPORTS[provider](own, settled, rates)
    return all_rows


def _row(source: str, call: Call, settled: Settled, **fields: object) -> StatementRow:
    values: dict[str, object] = {
        "source": source, "provider": call.provider, "account": None, "key": None, "model": call.model,
        "start": call.day, "end": call.day + DAY_S, "currency": None, "tier": None, "region": None, "batch": None,
        "settled": settled(call.day),
        "context": LARGE * call.is_large if call.provider in _HAVE_LARGE else None,
    }  # fmt: skip
    return StatementRow(**{**values, **fields})  # type: ignore[arg-type]


def _grouped(calls: Iterable[Call], place: Callable[[Call], object]) -> Iterator[list[Call]]:
    groups: dict[object, list[Call]] = defaultdict(list)
    for call in calls:
        groups[place(call)].append(call)
    yield from groups.values()


def _sum(calls: Sequence[Call], kind: str, rates: RatesOf) -> Decimal:
    return sum((call.bill(kind, rates(call)) for call in calls), Decimal(0))


def _openai(calls: Sequence[Call], settled: Settled, rates: RatesOf) -> Iterator[StatementRow]:
    """Report usage by key, model and batch with request counts, and costs by model and line without keys."""
    for group in _grouped(calls, lambda call: (call.day, call.key, call.model, call.batch, call.tier)):
        of = group[0]
        dimensions = {"key": of.key or None, "batch": of.batch, "tier": of.tier or "default"}
        for kind in KINDS:
            tokens = sum(call.tokens[kind] for call in group)
            yield _row(
                "openai_usage", of, settled, unit="tokens", kind=kind, amount=Decimal(tokens), **dimensions
            )
        count = Decimal(len(group))
        yield _row("openai_usage", of, settled, unit="requests", kind="request", amount=count, **dimensions)
    for group in _grouped(calls, lambda call: (call.day, call.model)):
        for kind in KINDS:
            paid = _sum(group, kind, rates)
            yield _row("openai_costs", group[0], settled, unit="usd", kind=kind, amount=paid, currency="USD")


def _anthropic(calls: Sequence[Call], settled: Settled, rates: RatesOf) -> Iterator[StatementRow]:
    """
    Report usage by key, model, tier, region and context window without requests, and costs by model, kind, tier and
    context window in fractions of a cent.
    """
    for group in _grouped(
        calls, lambda call: (call.day, call.key, call.model, call.stated_tier, call.region, call.is_large)
    ):
        of = group[0]
        tier = of.stated_tier
        for kind in KINDS:
            tokens = sum(call.tokens[kind] for call in group)
            yield _row("anthropic_usage", of, settled, unit="tokens", kind=kind, amount=Decimal(tokens),
                       key=of.key or None, tier=tier, region=of.region or None)  # fmt: skip
    for group in _grouped(calls, lambda call: (call.day, call.model, call.stated_tier, call.is_large)):
        tier = group[0].stated_tier
        for kind in KINDS:
            paid = _sum(group, kind, rates).quantize(Decimal("0.000001"))
            yield _row(
                "anthropic_cost",
                group[0],
                settled,
                unit="usd",
                kind=kind,
                amount=paid,
                currency="USD",
                tier=tier,
            )


def _bedrock(calls: Sequence[Call], settled: Settled, rates: RatesOf) -> Iterator[StatementRow]:
    """
    Report tokens and costs of each kind and tier, without keys and requests, as AWS's cost and usage report does.
    """
    for group in _grouped(calls, lambda call: (call.day, call.model, call.stated_tier)):
        of, tier = group[0], group[0].stated_tier
        for kind in KINDS:
            tokens = sum(call.tokens[kind] for call in group)
            paid = _sum(group, kind, rates).quantize(Decimal("0.000001"))
            dimensions = {"tier": tier, "account": "123456789012"}
            yield _row("aws_cur", of, settled, unit="tokens", kind=kind, amount=Decimal(tokens), **dimensions)
            yield _row(
                "aws_cur", of, settled, unit="usd", kind=kind, amount=paid, currency="USD", **dimensions
            )


def _azure(calls: Sequence[Call], settled: Settled, rates: RatesOf) -> Iterator[StatementRow]:
    """
    Report daily meters. Their names contain only the month and day of a model, and the resource is the owner.
    """
    for group in _grouped(calls, lambda call: (call.day, call.model, call.stated_tier, call.region)):
        of, tier = group[0], group[0].stated_tier
        dimensions = {
            "tier": tier, "batch": of.batch, "account": "/subscriptions/1/accounts/prod",
            "model": f"{of.model[:-10]}{of.model[-5:-3]}{of.model[-2:]}", "region": of.region or "global",
        }  # fmt: skip
        for kind in KINDS:
            tokens = sum(call.tokens[kind] for call in group)
            paid = _sum(group, kind, rates).quantize(Decimal("0.00000001"))
            yield _row(
                "azure_costs", of, settled, unit="tokens", kind=kind, amount=Decimal(tokens), **dimensions
            )
            yield _row(
                "azure_costs", of, settled, unit="usd", kind=kind, amount=paid, currency="USD", **dimensions
            )


def _google(calls: Sequence[Call], settled: Settled, rates: RatesOf) -> Iterator[StatementRow]:
    """Report SKUs by day and project. Thinking tokens and large inputs have SKUs of their own."""
    for group in _grouped(
        calls, lambda call: (call.day, call.model, call.stated_tier, call.region, call.is_large)
    ):
        of, tier = group[0], group[0].stated_tier
        dimensions = {
            "tier": tier,
            "batch": of.batch,
            "account": "project-1",
            "region": of.region or "global",
        }
        for kind in KINDS:
            tokens, paid = sum(call.tokens[kind] for call in group), _sum(group, kind, rates)
            thought = sum(call.tokens[kind] // 4 for call in group)
            parts = {"output": tokens - thought, "reasoning": thought} if kind == "output" else {kind: tokens}
            for name, sold in parts.items():
                cost = (paid * sold / max(tokens, 1)).quantize(Decimal("0.000001"))
                yield _row(
                    "google_billing",
                    of,
                    settled,
                    unit="tokens",
                    kind=name,
                    amount=Decimal(sold),
                    **dimensions,
                )
                yield _row(
                    "google_billing",
                    of,
                    settled,
                    unit="usd",
                    kind=name,
                    amount=cost,
                    currency="USD",
                    **dimensions,
                )


_REPORTS = {OPENAI: _openai, ANTHROPIC: _anthropic, BEDROCK: _bedrock, AZURE: _azure, GOOGLE: _google}


def book(rates: Mapping[str, Mapping[str, Rates]] = MODELS) -> PriceBook:
    sellers = {OPENAI: "openai", ANTHROPIC: "anthropic", BEDROCK: "aws", AZURE: "azure", GOOGLE: "google"}
    return PriceBook(
        RateCard(
            format=1,
            version="simulated",
            source={},
            providers={
                sellers[provider]: Seller(
                    models=tuple(_model(name, model_rates) for name, model_rates in models.items())
                )
                for provider, models in rates.items()
            },
        )
    )


def _model(name: str, rates: Rates) -> Model:
    def amounts(given: str = "1", made: str = "1") -> dict[str, Decimal]:
        factors = {kind: Decimal(made if kind == "output" else given) for kind in KINDS}
        priced = {kind: rates.of(kind) * factors[kind] for kind in KINDS}
        return {"cache_write" if kind == "cache_write_5m" else kind: price for kind, price in priced.items()}

    def tiers(share: str = "1") -> tuple[Tier, ...]:
        if rates.large is None:
            return ()
        input_price, output_price = (str(Decimal(price) * Decimal(share)) for price in rates.large)
        return (Tier(above=LARGE, **amounts(input_price, output_price)),)  # type: ignore[arg-type]

    return Model(
        id=name,
        match=ModelNameCondition(equals=(name,)),
        prices=(
            Price(tiers=tiers(), **amounts()),  # type: ignore[arg-type]
            Price(mode="batch", tiers=tiers("0.5"), **amounts("0.5", "0.5")),  # type: ignore[arg-type]
        ),
    )


def record(call: Call, *, source: str = "litellm", key: str | None = None) -> Inference:
    """Return the report of a call by a source."""
    tokens = call.tokens
    written = tokens["cache_write_5m"] + tokens["cache_write_1h"]
    return Inference(
        id=b"\0" * 16,
        source=source,
        provider=call.provider,
        request_model=call.model,
        response_model=call.model,
        api_key=key or call.key,
        start_time=call.time * NS,
        input_tokens=tokens["input"] + tokens["cache_read"] + written,
        output_tokens=tokens["output"],
        cache_read_tokens=tokens["cache_read"],
        cache_write_tokens=written,
        cache_write_1h_tokens=tokens["cache_write_1h"] or None,
        tags={"processing": "batch"} if call.batch else {"service_tier": call.tier} if call.tier else {},
        region=call.region or None,
        status="error" if call.failed else "ok",
        cost="0" if call.failed in (FREE, BILLED) else None,
    )


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The ledger's count of the reported calls."""

    by_provider: Mapping[str, Sequence[CountedUse]]
    hours: Mapping[str, Mapping[int, int]]
    failed_hours: Mapping[str, Mapping[int, int]]
    prices: TokenPrices


async def count(records: Sequence[Inference], prices: PriceBook) -> Counts:
    """Count records in a new ledger, priced as the intake prices them."""
    log, clock = FakeLog(), FakeClock(DAYS[-1] + 3 * DAY_S)
    hours: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    failed_hours: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for report in records:
        prices.price_record(report)
        hour = (report.start_time or 0) // NS // 3600 * 3600
        for by_provider in (hours, failed_hours) if report.status == "error" else (hours,):
            by_provider[report.provider or ""][hour] += (report.input_tokens or 0) + (
                report.output_tokens or 0
            )
    log.add(records, at=clock.at)
    ledger = await Ledger(new_in_memory_ledger(), clock=clock).load()
    await ledger.catch_up(log)
    token_prices = TokenPrices(prices)
    uses: dict[str, list[CountedUse]] = defaultdict(list)
    for day in DAYS:
        for provider, rows in group_uses_by_seller(await ledger.usage_of_day(day), token_prices).items():
            uses[provider] += rows
    return Counts(by_provider=uses, hours=hours, failed_hours=failed_hours, prices=token_prices)


def reconcile(
    provider: str, rows: Sequence[StatementRow], counts: Counts, **fields: object
) -> Reconciliation:
    """Reconcile a provider. All days are settled unless `fields` says otherwise."""
    facts = ComparisonInput(
        provider=provider,
        days=DAYS,
        open_from=DAYS[-1] + DAY_S,
        rows=[row for row in rows if row.provider == provider],
        counted=counts.by_provider.get(provider, ()),
        prices=lambda model, tier, day, context: counts.prices.list_prices_on_day(
            provider, model, tier, day, context
        ),
        hours=counts.hours.get(provider, {}),
        failed_hours=counts.failed_hours.get(provider, {}),
    )
    return compare_bill_with_ledger(replace(facts, **fields))  # type: ignore[arg-type]
