"""A different name of a model in the bill causes no claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest
import pytest_asyncio

from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.statements.sources import aws, azure, google
from gateway.intake.prices import PriceBook
from spool.record import Inference
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.simulator import (
    BEDROCK,
    MODELS,
    Counts,
    book,
    count,
    month,
    reconcile,
    record,
    statements,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS = [call for call in month(a_day=6) if call.provider == BEDROCK]
ROWS = statements(CALLS)
[MODEL] = MODELS[BEDROCK]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counts() -> Counts:
    return await count([record(call) for call in CALLS], book())


def compared(counts: Counts, rows: Sequence[StatementRow], billed: str, own: str) -> Reconciliation:
    """Reconcile a month in which the bill and the calls use these names of the model."""
    named = [msgspec.structs.replace(row, model=billed) for row in rows]
    uses = [replace(use, model=own) for use in counts.by_provider[BEDROCK]]
    return reconcile(BEDROCK, named, replace(counts, by_provider={BEDROCK: uses}))


@pytest.mark.proves("a model under another name")
@pytest.mark.parametrize(
    ("billed", "own"),
    [
        (azure.parse_model("gpt 4o 1120 Inp glbl Tokens"), "gpt-4o-2024-11-20"),
        (azure.parse_model("gpt 4o 0806 Outp Data Zone Tokens"), "gpt-4o-2024-08-06"),
        (azure.parse_model("gpt-4o-mini-0718-Inp-glbl Tokens"), "gpt-4o-mini"),
        (azure.parse_model("GPT 5 Mini cchd Inpt Glbl 1M Tokens"), "gpt-5-mini-2025-08-07"),
        (azure.parse_model("o3 mini 0131 Batch Outp Data Zone"), "o3-mini-2025-01-31"),
        (azure.parse_model("4.3 Cached Inp Glbl"), "gpt-4.3"),
        ("gpt-3.5-turbo-0125", "gpt-35-turbo"),
        (aws.parse_model("arn:aws:bedrock:us-east-1:1:inference-profile/us." + MODEL, None, ""), MODEL),
        (aws.parse_model(None, None, "USE1-NovaLite-input-tokens"), MODEL),
        (
            aws.parse_model(None, "Claude Sonnet 4.6 (Amazon Bedrock Edition)", ""),
            "anthropic.claude-sonnet-4-6-20260217-v1:0",
        ),
        (google.parse_model("Gemini 2.5 Flash GA Text Input - Predictions"), "gemini-2.5-flash"),
        (google.parse_model("Claude Sonnet 4.5 Input"), "claude-sonnet-4-5@20250929"),
        ("Claude Haiku 4.5", "claude-haiku-4-5-20251001"),
        ("DZH318Z0BQ4W", "gpt-4o"),  # the billed name is a SKU number, so only the tokens identify the model
    ],
)
async def test_no_spelling_is_another_model(counts: Counts, billed: str, own: str) -> None:
    result = compared(counts, ROWS, billed, own)
    assert {"rounding"} >= {claim.cause for claim in result.claims}
    assert 0 == result.total.unexplained == result.total.parts["volume"]
    assert ({}, {}) == tuple(
        {k: v for k, v in only.items() if v} for only in (result.only_billed, result.only_counted)
    )


async def test_a_name_that_nothing_joins(counts: Counts) -> None:
    """Twice the tokens under an unknown name may be the same model, so no claim is certain."""
    doubled = [
        msgspec.structs.replace(row, amount=row.amount * 2 if row.unit == "tokens" else row.amount)
        for row in ROWS
    ]
    result = compared(counts, doubled, "a-name-of-its-own", MODEL)
    assert [] == list(result.claims)
    assert any("may be the same" in hint.evidence for hint in result.hints)


async def test_model_that_the_bill_does_not_name_is_found(counts: Counts) -> None:
    """
    The bill names no model for some tokens, but they are found: they are ten times those of another model,
    and all other models agree.
    """
    other_rows = [msgspec.structs.replace(row, model="gpt-4o-1120", amount=row.amount * 10) for row in ROWS]
    uses = counts.by_provider[BEDROCK]
    result = reconcile(BEDROCK, [*ROWS, *other_rows], replace(counts, by_provider={BEDROCK: uses}))
    first = result.claims[0]
    assert first.cause == "unreported_traffic"
    assert first.sure == "exact"
    assert first.models == ("gpt-4o",)


async def test_a_short_date_has_the_price_of_its_snapshot() -> None:
    """Calls and bills share one table of names, so `gpt-4o-0513` costs the same as `gpt-4o-2024-05-13`."""
    prices = PriceBook.load()

    def price(model: str) -> Decimal:
        call = Inference(
            id=b"\0" * 16, source="a", provider="azure.ai.openai", response_model=model, input_tokens=10**6,
            output_tokens=0,
        )  # fmt: skip
        return Decimal(prices.estimate_record(call) or "nan")

    for short, full in (("gpt-4o-0513", "gpt-4o-2024-05-13"), ("gpt-4o-1120", "gpt-4o-2024-11-20")):
        assert price(full) == price(short)
    assert price("gpt-4o-0513") != price("gpt-4o-1120")
