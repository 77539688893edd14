"""
What the providers of a made-up month bill: the calls that they answered, by day, key and model, with what
their reports leave out and add. OpenAI bills web searches too, which no call tells.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import ROUND_UP, Decimal
from typing import NamedTuple

import msgspec

from gateway.bills.statements.sources.list import SOURCES
from gateway.intake.prices import PriceBook
from gateway.service.demo.samples import ACTOR
from spool.record import NS, Inference
from spool.statements import DAY_S, EXACT, REQUESTS, TOKENS, USD, Statement, StatementRow, Statements

OPENAI, ANTHROPIC = "openai", "anthropic"
REPORTS = {OPENAI: ("openai_usage", "openai_costs"), ANTHROPIC: ("anthropic_usage", "anthropic_costs")}
SEARCHES = Decimal("0.002")  # of what a day comes to; within the tolerance
CENT = Decimal("0.01")
SILENT_KEY, SILENT_MODEL = "notebooks", "gpt-4.1-mini"
SILENT_SHARE = 4  # a key that nobody reports has one token for as many of the others


class _Use(NamedTuple):
    day: int
    provider: str
    key: str
    model: str
    tier: str


class Bills:
    """Takes every call that a provider answered; `plants` may add the calls of a key that nobody reports."""

    def __init__(self, prices: PriceBook, words: frozenset[str]) -> None:
        self._prices = prices
        self._words = words
        self._tokens: dict[_Use, Counter[str]] = defaultdict(Counter)
        self._dollars: dict[_Use, Decimal] = defaultdict(Decimal)

    def add(self, call: Inference) -> None:
        if call.provider not in REPORTS or call.status == "cached" or call.input_tokens is None:
            return
        use = _Use(
            day=(call.start_time or 0) // NS // DAY_S * DAY_S,
            provider=call.provider,
            key=call.api_key or "",
            model=call.response_model or call.request_model or "",
            tier=call.tags.get("service_tier", "default" if call.provider == OPENAI else "standard"),
        )
        read = call.cache_read_tokens or 0
        written = call.cache_write_tokens or 0
        self._tokens[use].update(
            input=call.input_tokens - read - written,
            cache_read=read,
            cache_write_5m=written,
            output=call.output_tokens or 0,
            request=1,
        )
        self._dollars[use] = EXACT.add(self._dollars[use], Decimal(self._prices.estimate(call) or 0))

    async def keep(self, statements: Statements, *, begin: int, end: int) -> None:
        """Keep the reports of all days that are over at `end`, as they are read then."""
        start = begin // DAY_S * DAY_S
        until = end // DAY_S * DAY_S
        if start >= until:
            return
        if "unreported-key" in self._words:
            self._add_silent_key(start, until)
        for provider, sources in REPORTS.items():
            for source in sources:
                settled_until = end - SOURCES[source].settle_s
                rows = (
                    self._usage(source, provider)
                    if source.endswith("usage")
                    else self._costs(source, provider)
                )
                statement = Statement(
                    source=source,
                    account="",
                    start=start,
                    end=until,
                    rows=tuple(_settled(row, settled_until) for row in rows if row.start < until),
                    read_at=end,
                    settled_until=settled_until,
                    name="a made-up month",
                )
                await statements.put(statement, actor=ACTOR)

    def _add_silent_key(self, start: int, until: int) -> None:
        for day in range(start, until, DAY_S):
            used = sum(
                tokens["input"]
                for use, tokens in self._tokens.items()
                if (use.day, use.provider) == (day, OPENAI)
            )
            self.add(
                Inference(
                    id=b"",
                    source="",
                    provider=OPENAI,
                    response_model=SILENT_MODEL,
                    api_key=SILENT_KEY,
                    start_time=day * NS,
                    input_tokens=used // SILENT_SHARE + 1,
                    output_tokens=used // SILENT_SHARE // 8,
                )
            )

    def _usage(self, source: str, provider: str) -> Iterator[StatementRow]:
        for use, tokens in self._tokens.items():
            if use.provider != provider:
                continue
            for kind, amount in tokens.items():
                if kind == "request" and provider != OPENAI:  # Anthropic's report has no number of calls
                    continue
                unit = REQUESTS if kind == "request" else TOKENS
                yield _row(source, use, unit, kind, Decimal(amount), key=use.key, tier=use.tier)

    def _costs(self, source: str, provider: str) -> Iterator[StatementRow]:
        """Yield the costs by model and tier, and the cost of web searches by day."""
        of_day: dict[int, Decimal] = defaultdict(Decimal)
        for use, dollars in self._dollars.items():
            if use.provider == provider and dollars:
                of_day[use.day] = EXACT.add(of_day[use.day], dollars)
                yield _row(source, use, USD, "cost", dollars, tier=use.tier)
        for day, dollars in of_day.items() if provider == OPENAI else ():
            searches = (dollars * SEARCHES).quantize(CENT, rounding=ROUND_UP)
            yield _row(source, _Use(day, provider, "", "", ""), USD, "web_search", searches)


def _row(
    source: str, use: _Use, unit: str, kind: str, amount: Decimal, *, key: str = "", tier: str = ""
) -> StatementRow:
    return StatementRow(
        source=source,
        provider=use.provider,
        account=None,
        key=key or None,
        model=use.model or None,
        start=use.day,
        end=use.day + DAY_S,
        unit=unit,
        kind=kind,
        amount=amount,
        currency="USD" if unit == USD else None,
        tier=tier or None,
        region=None,
        batch=None,
        settled=True,
    )


def _settled(row: StatementRow, until: float) -> StatementRow:
    return msgspec.structs.replace(row, settled=row.end <= until)
