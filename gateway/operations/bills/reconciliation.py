"""Handler of the operator API that compares provider bills with counted costs, as JSON or CSV."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation import owed
from gateway.bills.reconciliation.claims import CauseClaim
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.counting import seller_filter
from gateway.bills.reconciliation.lines import FINAL, ComparisonLine, merge_lines
from gateway.bills.reconciliation.reconciler import ReconciledMonth
from gateway.bills.reconciliation.sides import DAY, FORMATS, LEVELS, PARTS
from gateway.bills.reconciliation.wording import day_text
from gateway.core.paths import WHOLE_SINCE
from gateway.core.schemas import TEXT
from gateway.http.answers import CSV, JSON, UNCACHED, AnswerInPieces
from gateway.http.requests import Result
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool import money, providers
from spool.errors import Invalid
from spool.ledger.sums import OTHER
from spool.printable import csv_pieces
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.texts import check_one_of

ONCE = ("month", "provider", "by", "format", "causes")
# minimum rows per provider, even with many providers, because the days of a month are never merged
LEAST_ROWS = 100
TOKENS = ("billed_tokens", "counted_tokens", "captured_tokens", "billed_calls", "counted_calls")
MONEY = ("billed", "counted", "difference", "explained", "unexplained", *PARTS)
COLUMNS = ("provider", "name", "state", *MONEY, *TOKENS, "causes")


def is_query_of_past_month(request: OperatorRequest[MoneyServices, None]) -> bool:
    name = request.http.query.get("month")
    return name is not None and CalendarMonth.of(name).end <= request.now()


class ReconciliationQuery(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    month: Annotated[str, words("The month, such as `2026-11`."), example("2026-11")]
    by: Annotated[str, words("The dimension to group by."), example("key")]
    from_: Annotated[str, words("The start of the period."), example("2026-11-01T00:00:00.000Z")]
    to: Annotated[str, words("The end of the period."), example("2026-12-01T00:00:00.000Z")]
    whole_since: Annotated[
        str | None,
        words("Hours before this time may be incomplete. Null if all hours are complete."),
        example(None),
    ]
    truncated: Annotated[bool, words("Whether rows are missing because there are too many."), example(False)]


class ReconciledRow(msgspec.Struct, kw_only=True):
    name: Annotated[
        str | UnsetType | None,
        words("The day, model or key; null for the sum of all rows, and if it is unknown."),
        example(None),
    ] = UNSET
    state: Annotated[
        str | UnsetType | None,
        words("The state of the day's bill; null unless rows are days."),
        example(None),
    ] = UNSET
    billed: Annotated[str, words("The cost by the provider's bills."), example("276.0663098")]
    counted: Annotated[str, words("The cost that Tollhouse counted."), example("272.3526274")]
    difference: Annotated[str, words("The billed cost minus the counted cost."), example("3.7136824")]
    explained: Annotated[str | UnsetType, words("The sum of the causes."), example("3.7136824")] = UNSET
    unexplained: Annotated[
        str | UnsetType, words("The part of the difference without a known cause."), example("0")
    ] = UNSET
    volume: Annotated[
        str | UnsetType,
        words("The cost of tokens that only one side has, at Tollhouse's prices."),
        example("6.8562564"),
    ] = UNSET
    rate: Annotated[
        str | UnsetType,
        words(
            "The difference that comes from different prices for tokens that both the bill and Tollhouse have."
        ),
        example("0"),
    ] = UNSET
    other: Annotated[
        str | UnsetType, words("The lines of the bill that are not for tokens."), example("0.65")
    ] = UNSET
    own: Annotated[
        str | UnsetType,
        words(
            "The counted cost minus list prices, for calls without a price and for costs "
            "that sources reported."
        ),
        example("-3.792574"),
    ] = UNSET
    billed_tokens: Annotated[int, words("The number of billed tokens."), example(153635354)]
    counted_tokens: Annotated[int, words("The number of counted tokens."), example(129318136)]
    captured_tokens: Annotated[
        int, words("The number of tokens that both the bill and Tollhouse have."), example(126557694)
    ]
    billed_calls: Annotated[
        int | UnsetType | None,
        words("The number of billed calls, or null if the bill has none."),
        example(26497),
    ] = UNSET
    counted_calls: Annotated[int | UnsetType, words("The number of counted calls."), example(28105)] = UNSET
    causes: Annotated[
        dict[str, str] | UnsetType,
        words("Amounts by cause."),
        example(
            {
                "double_report": "-7.585148",
                "not_tokens": "0.65",
                "own_price": "-3.792574",
                "unreported_traffic": "14.4414044",
            }
        ),
    ] = UNSET
    where: Annotated[
        dict[str, list[str]] | UnsetType, words("The filter that selects the calls."), example({})
    ] = UNSET


class NamesOnOneSide(msgspec.Struct, kw_only=True):
    models: Annotated[list[str], words("Models that only the bill, or only Tollhouse, has."), example([])]
    keys: Annotated[
        list[str], words("Keys that only the bill, or only Tollhouse, has."), example(["notebooks"])
    ]


class BillShare(msgspec.Struct, kw_only=True):
    """The part of the billed amount that is on one bill."""

    bill: Annotated[str, words("The name of the bill, such as its month."), example("2026-09")]
    billed: Annotated[str, words("The amount on this bill, in dollars."), example("14.4414044")]


class ProviderReconciliation(msgspec.Struct, kw_only=True):
    provider: Annotated[str, words("The provider, such as `openai`."), example("openai")]
    calls_where: Annotated[
        dict[str, Any], words("The filter that selects the calls."), example({"provider": ["openai"]})
    ]
    sources: Annotated[list[str], words("The kinds of reports."), example(["openai_costs", "openai_usage"])]
    set_aside: Annotated[
        list[str],
        words("The kinds of reports that are ignored, because other kinds have the same days."),
        example([]),
    ]
    other_currencies: Annotated[
        dict[str, int],
        words("The numbers of rows of the bill in other currencies, by currency."),
        example({}),
    ]
    finest: Annotated[
        str,
        words("The most detailed level at which the bill can be compared."),
        example("day, model, key, tier"),
    ]
    has_money: Annotated[bool, words("Whether the bill has amounts."), example(True)]
    bills: Annotated[
        list[BillShare],
        words(
            "The billed amounts by bill. Usage and refunds of the month may be on a later bill. Reports without "
            "bills are listed under an empty name."
        ),
        example([{"bill": "2026-09", "billed": "14.4414044"}]),
    ]
    total: Annotated[ReconciledRow, words("The sums of all rows.")]
    rows: Annotated[
        list[ReconciledRow] | UnsetType,
        words("The rows of the comparison."),
        example(
            [
                {
                    "name": "notebooks",
                    "state": None,
                    "billed": "14.4414044",
                    "counted": "0",
                    "difference": "14.4414044",
                    "explained": "14.4414044",
                    "unexplained": "0",
                    "volume": "14.4414044",
                    "rate": "0",
                    "other": "0",
                    "own": "0",
                    "billed_tokens": 27077660,
                    "counted_tokens": 0,
                    "captured_tokens": 0,
                    "billed_calls": 24,
                    "counted_calls": 0,
                    "causes": {"unreported_traffic": "14.4414044"},
                    "where": {},
                }
            ]
        ),
    ] = UNSET
    row_count: Annotated[
        int | UnsetType, words("The total number of rows, including rows that are left out."), example(25)
    ] = UNSET
    truncated: Annotated[
        bool | UnsetType, words("Whether rows are missing because there are too many."), example(False)
    ] = UNSET
    causes: Annotated[
        list[dict[str, Any]] | UnsetType,
        words("The causes of the difference."),
        example(
            [
                {
                    "cause": "unreported_traffic",
                    "amount": "14.4414044",
                    "moved": "14.4414044",
                    "tokens": 27077660,
                    "sure": "exact",
                    "evidence": "the bill has the key notebooks, but Tollhouse has no call of it",
                    "beside": [],
                    "advice": (
                        "Let the program that uses it report to Tollhouse: point its base URL "
                        "at the gateway, or send its OpenTelemetry here."
                    ),
                    "days": ["2026-11-01", "2026-11-02", "2026-11-03"],
                    "models": ["gpt-4.1-mini"],
                    "keys": ["notebooks"],
                    "regions": [],
                    "where": {"model": ["gpt-4.1-mini"]},
                }
            ]
        ),
    ] = UNSET
    hints: Annotated[
        list[dict[str, Any]] | UnsetType,
        words("Causes that are likely but not proven, so their amounts stay unexplained."),
        example([]),
    ] = UNSET
    owed: Annotated[
        str | UnsetType, words("The discounts of tiers that the provider did not give."), example("0")
    ] = UNSET
    only_billed: Annotated[NamesOnOneSide | UnsetType, words("The names that only the bill has.")] = UNSET
    only_counted: Annotated[
        NamesOnOneSide | UnsetType,
        words("The names that only the calls have."),
        example({"models": [], "keys": []}),
    ] = UNSET
    renamed: Annotated[
        list[dict[str, Any]] | UnsetType,
        words("The names that differ between the bill and the calls."),
        example([]),
    ] = UNSET
    suggestions: Annotated[
        list[dict[str, Any]] | UnsetType,
        words("Suggested settings: prices from the bill, and names of keys that match the calls."),
        example([]),
    ] = UNSET


class ReconciliationAnswer(msgspec.Struct, kw_only=True):
    reconciliation: Annotated[ReconciliationQuery, words("The query as the server understood it.")]
    providers: Annotated[list[ProviderReconciliation], words("The providers, each with the fields below.")]
    without_statement: Annotated[
        list[dict[str, str | None]],
        words("The providers with calls but without a bill, and their counted costs."),
        example([]),
    ]


@operator_call(
    "GET",
    "/reconciliation",
    VIEW_COSTS,
    "Compare billed with counted costs",
    optional=ONCE,
    gives={JSON: ReconciliationAnswer, "text/csv": TEXT},
    in_turn=True,
    asks_closed=is_query_of_past_month,
)
async def reconciliation(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Compare the bills of a month with the counted costs. In every row, billed is counted + explained +
    unexplained. It is also counted + volume (other token counts) + rate (other prices) + other (not for
    tokens) + own (price list instead of reported costs).

    Open days and days without a bill are listed, but are in no sum. With `causes=false`, the answer has only
    the totals of each provider, which need no search for causes.
    """
    query = request.http.query
    by = query.get("by", DAY)
    form = query.get("format", "json")
    check_one_of("by", by, LEVELS)
    check_one_of("format", form, FORMATS)
    has_causes = query.get("causes", "true")
    check_one_of("causes", has_causes, ("true", "false"))
    reconciled = await _reconcile_request(request, has_causes=has_causes == "true")
    whole = await request.services.ledger.start_of_complete_hours()
    row_limit = sys.maxsize
    if form != "csv":
        row_limit = max(LEAST_ROWS, request.shared.answers().max_rows // max(1, len(reconciled.providers)))
    if has_causes == "false":
        shown = [_total_fields(provider) for provider in reconciled.providers]
    else:
        shown = await asyncio.to_thread(
            lambda: [_provider_fields(provider, by, row_limit) for provider in reconciled.providers]
        )
    payload: dict[str, Any] = {
        "reconciliation": {
            "month": reconciled.month.name,
            "by": by,
            "from": utc_iso(reconciled.month.start),
            "to": utc_iso(reconciled.month.end),
            "whole_since": utc_iso(whole) if reconciled.month.start < whole else None,
            "truncated": any(provider.get("truncated", False) for provider in shown),
        },
        "providers": shown,
        "without_statement": [
            {"provider": name or None, "counted": money.units_to_text(cost)}
            for name, cost in reconciled.without.items()
        ],
    }
    if form == "csv":
        headers = (
            {**UNCACHED, WHOLE_SINCE: utc_iso(whole) or ""} if reconciled.month.start < whole else UNCACHED
        )
        return AnswerInPieces(
            pieces=csv_pieces(chain([COLUMNS], _csv_lines(shown))), content_type=CSV, headers=headers
        )
    return payload


@operator_call(
    "GET",
    "/reconciliation/claim",
    VIEW_COSTS,
    "Write a claim for discounts that a provider owes",
    required=("provider",),
    optional=("month", "format"),
    gives={"text/plain": TEXT, "text/csv": TEXT},
    in_turn=True,
    asks_closed=is_query_of_past_month,
)
async def claim(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Write a claim for the calls that a provider billed without the discount of their tier, as text or CSV. If
    nothing is owed, the text says so and the CSV has no row.
    """
    form = request.http.query.get("format", "text")
    check_one_of("format", form, owed.FORMATS)
    if "provider" not in request.http.query:
        raise Invalid("provider is required")
    reconciled = await _reconcile_request(request)
    name = providers.canonical_provider_name(request.http.query["provider"])
    result = next((each for each in reconciled.providers if each.provider == name), None)
    if result is None:
        raise Invalid(f"{reconciled.month.name} has no bill of this provider; import one first")
    if form == "csv":
        rows = owed.owed_rows(result.provider, result.accounts, result.owed)
        return AnswerInPieces(pieces=csv_pieces(rows), content_type=CSV)
    days = [int(line.name) for line in result.days if line.state in FINAL]
    period = tuple(day_text(edge(days or reconciled.month.days)) for edge in (min, max))
    text = owed.owed_text(result.provider, result.accounts, (period[0], period[1]), result.owed)
    return AnswerInPieces(pieces=[text.encode()], content_type="text/plain; charset=utf-8")


async def _reconcile_request(
    request: OperatorRequest[MoneyServices, None], *, has_causes: bool = True
) -> ReconciledMonth:
    query = request.http.query
    month = None
    month_name = query.get("month")
    if month_name is not None:
        try:
            month = CalendarMonth.of(month_name)
        except (ValueError, OverflowError):
            raise Invalid("month must be written as a year and a month, such as 2026-10") from None
    provider_name = query.get("provider")
    return await request.services.require_reconciler().reconcile(
        month,
        None if provider_name is None else providers.canonical_provider_name(provider_name),
        has_causes=has_causes,
    )


def _total_fields(result: Reconciliation) -> dict[str, Any]:
    total = result.total
    return {
        "provider": result.provider,
        "calls_where": seller_filter(result.provider),
        "sources": list(result.sources),
        "set_aside": list(result.set_aside),
        "other_currencies": dict(result.foreign),
        "finest": result.finest,
        "has_money": result.has_money,
        "bills": [
            {"bill": name, "billed": money.units_to_text(amount)}
            for name, amount in sorted(result.bills.items())
        ],
        "total": {
            "billed": money.units_to_text(total.billed),
            "counted": money.units_to_text(total.counted),
            "difference": money.units_to_text(total.difference),
            "billed_tokens": total.billed_tokens,
            "counted_tokens": total.counted_tokens,
            "captured_tokens": total.captured_tokens,
        },
    }


def _provider_fields(result: Reconciliation, dimension: str, limit: int) -> dict[str, Any]:
    """
    Return at most `limit` rows. The remaining rows are merged into one, so the rows still add up to `total`.
    Lists of names are cut at `limit` as well.
    """
    lines = result.lines_of_level(dimension)
    shown = lines
    if len(lines) > limit:
        shown = [*lines[: limit - 1], merge_lines(lines[limit - 1 :], name=OTHER)]
    lists: list[Sequence[object]] = [
        result.claims,
        result.hints,
        result.renamed,
        result.overrides,
        result.owners,
    ]
    lists += [*result.only_billed.values(), *result.only_counted.values()]
    return {
        **_total_fields(result),
        "total": _describe_line(result.total, ""),
        "rows": [_describe_line(line, dimension) for line in shown],
        "row_count": len(lines),
        "truncated": len(shown) < len(lines) or any(len(rows) > limit for rows in lists),
        "causes": [
            {**_describe_cause(claim), "where": result.cost_filter(claim)} for claim in result.claims[:limit]
        ],
        "hints": [
            {**_describe_hint(hint), "where": result.cost_filter(hint)} for hint in result.hints[:limit]
        ],
        "owed": money.units_to_text(sum(line.owed_amount for line in result.owed)),
        "only_billed": {name: values[:limit] for name, values in result.only_billed.items()},
        "only_counted": {name: values[:limit] for name, values in result.only_counted.items()},
        "renamed": [{"billed": theirs, "counted": ours} for theirs, ours in result.renamed[:limit]],
        "suggestions": [
            *(
                {"kind": "prices.override", "model": override.model, "toml": override.toml}
                for override in result.overrides[:limit]
            ),
            *(
                {"kind": "reconciliation.owner", "billed": pair.billed, "days": pair.days, "toml": pair.toml}
                for pair in result.owners[:limit]
            ),
        ],
    }


def _describe_line(line: ComparisonLine, dimension: str) -> dict[str, object]:
    return {
        "name": day_text(int(line.name)) if dimension == DAY else line.name or None,
        "state": line.state if dimension == DAY else None,
        "billed": money.units_to_text(line.billed),
        "counted": money.units_to_text(line.counted),
        "difference": money.units_to_text(line.difference),
        "explained": money.units_to_text(line.explained),
        "unexplained": money.units_to_text(line.unexplained),
        **{name: money.units_to_text(line.parts[name]) for name in PARTS},
        "billed_tokens": line.billed_tokens,
        "counted_tokens": line.counted_tokens,
        "captured_tokens": line.captured_tokens,
        "billed_calls": line.billed_calls,
        "counted_calls": line.counted_calls,
        "causes": {cause: money.units_to_text(amount) for cause, amount in sorted(line.causes.items())},
        "where": {name: list(values) for name, values in line.where.items()},
    }


def _describe_cause(claim: CauseClaim) -> Mapping[str, object]:
    return {
        **_describe_hint(claim),
        "amount": money.units_to_text(claim.amount),
        "moved": money.units_to_text(claim.moved),
        "tokens": claim.tokens,
        "sure": claim.sure,
    }


def _describe_hint(claim: CauseClaim) -> dict[str, object]:
    return {
        "cause": claim.cause,
        "evidence": claim.evidence,
        "beside": list(claim.beside),
        "advice": claim.advice,
        "days": [datetime.fromtimestamp(day, UTC).strftime("%Y-%m-%d") for day in claim.days],
        "models": list(claim.models),
        "keys": list(claim.keys),
        "regions": list(claim.regions),
    }


def _csv_lines(providers: Sequence[Mapping[str, Any]]) -> Iterator[Iterator[object]]:
    for provider in providers:
        for row in (*provider["rows"], {**provider["total"], "name": "total"}):
            yield _csv_cells(provider["provider"], row)


def _csv_cells(provider: str, row: Mapping[str, Any]) -> Iterator[object]:
    yield from ({**row, "provider": provider}.get(name) for name in COLUMNS[:-1])
    yield " ".join(f"{cause}={amount}" for cause, amount in row["causes"].items())
