"""The simulated month as files in the published formats of the providers, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from tests.gateway.bills.reconciliation.simulator import ANTHROPIC, BEDROCK, DAY_S, DAYS, KINDS, OPENAI, Call

_json = msgspec.json.Encoder(decimal_format="number")
_SMALLEST = Decimal("0.000001")  # Anthropic and AWS round to this number of dollars
_LINES = {"input": "input", "cache_read": "cached input", "cache_write_5m": "cache write", "output": "output"}
_ANTHROPIC_TYPES = {
    "input": "uncached_input_tokens", "cache_read": "cache_read_input_tokens", "output": "output_tokens",
    "cache_write_5m": "cache_creation.ephemeral_5m_input_tokens",
    "cache_write_1h": "cache_creation.ephemeral_1h_input_tokens",
}  # fmt: skip
_AWS_TYPES = {
    "input": "input-tokens",
    "cache_read": "cache-read-input-token-count",
    "output": "output-tokens",
}

# Per group: the first call, tokens by kind, dollars by kind, and the number of calls.
Group = tuple[Call, Mapping[str, int], Mapping[str, Decimal], int]


def _groups(calls: Iterable[Call], place: Callable[[Call], Hashable]) -> Iterator[Group]:
    """Group calls that a report does not distinguish, with the first call of each group."""
    groups: dict[Hashable, list[Call]] = defaultdict(list)
    for call in calls:
        groups[place(call)].append(call)
    for group in groups.values():
        tokens = {kind: sum(call.tokens[kind] for call in group) for kind in KINDS}
        dollars = {kind: sum((call.bill(kind) for call in group), Decimal(0)) for kind in KINDS}
        yield group[0], tokens, dollars, len(group)


def _page(
    calls: Sequence[Call],
    days: Sequence[int],
    edges: tuple[str, str],
    results: Callable[[list[Call]], Iterable[object]],
) -> bytes:
    """Write one bucket for each day, including days without calls."""
    shown: Callable[[int], object] = int if edges[0] == "start_time" else _moment
    buckets = [
        {
            "object": "bucket",
            edges[0]: shown(day),
            edges[1]: shown(day + DAY_S),
            "results": [*results([call for call in calls if call.day == day])],
        }
        for day in days
    ]
    return _json.encode({"object": "page", "data": buckets, "has_more": False, "next_page": None})


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _openai_usage(calls: list[Call]) -> Iterator[Mapping[str, Any]]:
    for call, tokens, _, count in _groups(calls, lambda call: (call.key, call.model, call.batch)):
        yield {
            "object": "organization.usage.completions.result", "api_key_id": call.key, "model": call.model,
            "batch": call.batch, "service_tier": "default", "num_model_requests": count, "project_id": None,
            "input_tokens": tokens["input"] + tokens["cache_read"], "input_cached_tokens": tokens["cache_read"],
            "output_tokens": tokens["output"],
        }  # fmt: skip


def _openai_costs(calls: list[Call]) -> Iterator[Mapping[str, Any]]:
    for call, _, dollars, _ in _groups(calls, lambda call: call.model):
        for kind, line in _LINES.items():
            if dollars[kind]:
                amount = {"value": dollars[kind], "currency": "usd"}
                yield {
                    "object": "organization.costs.result",
                    "amount": amount,
                    "line_item": f"{call.model}, {line}",
                }


def _tier(call: Call) -> str:
    return "batch" if call.batch else "standard"


def _anthropic_usage(calls: list[Call]) -> Iterator[Mapping[str, Any]]:
    for call, tokens, _, _ in _groups(calls, lambda call: (call.key, call.model, call.batch)):
        written = {f"ephemeral_{life}_input_tokens": tokens[f"cache_write_{life}"] for life in ("5m", "1h")}
        yield {
            "api_key_id": call.key, "model": call.model, "service_tier": _tier(call), "inference_geo": "global",
            "uncached_input_tokens": tokens["input"], "cache_read_input_tokens": tokens["cache_read"],
            "cache_creation": written, "output_tokens": tokens["output"],
        }  # fmt: skip


def _anthropic_costs(calls: list[Call]) -> Iterator[Mapping[str, Any]]:
    for call, _, dollars, _ in _groups(calls, lambda call: (call.model, call.batch)):
        for kind, type in _ANTHROPIC_TYPES.items():
            cents = dollars[kind].quantize(_SMALLEST) * 100
            if cents:
                yield {
                    "amount": f"{cents:f}", "currency": "USD", "cost_type": "tokens", "token_type": type,
                    "model": call.model, "service_tier": _tier(call), "description": f"{call.model} {kind}",
                }  # fmt: skip


def _aws_cur(calls: Sequence[Call]) -> bytes:
    """Write every line since the billing period began, because each AWS export is complete."""
    first = datetime.fromtimestamp(DAYS[0], UTC)
    period = {
        "bill_billing_period_start_date": first.isoformat(),
        "bill_billing_period_end_date": first.replace(month=first.month + 1).isoformat(),
    }
    lines = []
    for call, tokens, dollars, _ in _groups(calls, lambda call: (call.day, call.model, call.batch)):
        for kind, type in _AWS_TYPES.items():
            if tokens[kind]:
                lines.append(
                    {
                        **period,
                        "bill_payer_account_id": "111111111111",
                        "line_item_usage_account_id": "123456789012",
                        "line_item_usage_start_date": _moment(call.day),
                        "line_item_usage_end_date": _moment(call.day + DAY_S),
                        "line_item_line_item_type": "Usage",
                        "line_item_product_code": "AmazonBedrock",
                        "line_item_usage_type": f"USE1-NovaLite-{type}{'-batch' if call.batch else ''}",
                        "line_item_usage_amount": f"{Decimal(tokens[kind]) / 1000:f}",
                        "pricing_unit": "1K tokens",
                        "line_item_unblended_cost": f"{dollars[kind].quantize(_SMALLEST):f}",
                        "line_item_currency_code": "USD",
                        "line_item_resource_id": f"arn:aws:bedrock:us-east-1::foundation-model/{call.model}",
                    }
                )
    written = io.StringIO(newline="")
    table = csv.DictWriter(written, list(lines[0]))
    table.writeheader()
    table.writerows(lines)
    return written.getvalue().encode()


def files(provider: str, calls: Sequence[Call], days: Sequence[int]) -> Mapping[str, bytes]:
    """Return a provider's reports for these days, by source name."""
    own = [call for call in calls if call.provider == provider and call.day in days]
    unix, rfc = ("start_time", "end_time"), ("starting_at", "ending_at")
    if provider == OPENAI:
        return {
            "openai_usage": _page(own, days, unix, _openai_usage),
            "openai_costs": _page(own, days, unix, _openai_costs),
        }
    if provider == ANTHROPIC:
        return {
            "anthropic_usage": _page(own, days, rfc, _anthropic_usage),
            "anthropic_costs": _page(own, days, rfc, _anthropic_costs),
        }
    assert provider == BEDROCK
    return {"aws_cur": _aws_cur(own)}
