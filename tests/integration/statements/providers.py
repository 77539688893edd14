"""
Fake providers on real sockets. Each returns its reports page by page in the published format.

A day has `VALUE` tokens or dollars unless `amounts` overrides it. A provider answers 400 to wrong parameters,
as the real one would, so tests find them.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

from aiohttp import web

from spool.statements import DAY_S, TOKENS, USD, day_start

KEY = "sk-admin-0123456789abcdef"
VALUE = 120
PAGE_DAYS = 2
ACCOUNT = "acme"
WRITTEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")  # LiteLLM's time format


class Refused(Exception):
    """A 400 answer of a provider."""


def needs(held: bool, words: str) -> None:
    if not held:
        raise Refused(words)


def day_at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


class Provider:
    """
    A provider with one report. `faults` replaces the answers of numbered requests. Request number `hang_at`
    never gets an answer, and with `is_silent` no request does.
    """

    source: ClassVar[str]
    unit: ClassVar[str]
    paths: ClassVar[Sequence[str]]
    settle_s: ClassVar[int]
    method: ClassVar[str] = "GET"
    requests_a_day: ClassVar[int] = (
        0  # number of requests per day, for reports that Tollhouse requests day by day
    )
    answers_days: ClassVar[int] = 0  # the number of days in every answer, whatever was requested

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.faults: dict[int, web.Response] = {}
        self.hang_at = 0
        self.is_silent = False
        self.hung = asyncio.Event()
        self.amounts: dict[int, int] = {}
        self.today = 0
        self._asked_more = asyncio.Event()

    def application(self) -> web.Application:
        app = web.Application()
        for path in self.paths:
            app.router.add_route(self.method, path, self.answer)
        return app

    async def answer(self, request: web.Request) -> web.Response:
        if self.authorised(request.headers) != KEY:
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        self.asked.append(request.path_qs + await request.text())
        number = len(self.asked)
        self._asked_more.set()
        if self.is_silent or number == self.hang_at:
            self.hung.set()
            await asyncio.Event().wait()
        if number in self.faults:
            return self.faults[number]
        try:
            return web.Response(
                text=json.dumps(await self.read(request), default=str), content_type="application/json"
            )
        except Refused as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)

    async def until_asked(self, times: int) -> None:
        """Wait until `times` requests have arrived in total."""
        while len(self.asked) < times:
            self._asked_more.clear()
            await self._asked_more.wait()

    def value(self, day: int) -> int:
        return self.amounts.get(day, VALUE)

    def authorised(self, headers: Mapping[str, str]) -> str:
        """Return the key of a request."""
        return headers.get("Authorization", "").removeprefix("Bearer ")

    async def read(self, request: web.Request) -> Mapping[str, Any]:
        """Return the page for a request."""
        return self.page(request)

    def page(self, request: web.Request) -> Mapping[str, Any]:
        raise NotImplementedError


class _Buckets(Provider):
    """Whole days in pages. A cursor is valid only for its own query."""

    edges: ClassVar[tuple[str, str]]
    groups: ClassVar[frozenset[str]]
    width: ClassVar[str] = "bucket_width"
    span: ClassVar[tuple[str, str]]

    def page(self, request: web.Request) -> Mapping[str, Any]:
        query = request.query
        start, end = (self.at(query[name]) for name in self.span)
        needs(query[self.width] == "1d" and 1 <= int(query["limit"]) <= 31, "one day a bucket, 31 of them")
        needs(self.groups >= set(query.getall("group_by[]")), "unknown groups")
        cursor = query.get("page", "page_0")
        needs(cursor.startswith("page_"), "no such page")
        first = start + int(cursor.removeprefix("page_")) * DAY_S
        last = min(end, first + PAGE_DAYS * DAY_S)
        buckets = [
            {self.edges[0]: self.shown(day), self.edges[1]: self.shown(day + DAY_S), "object": "bucket",
             "results": self.results(day) if self.value(day) else []}
            for day in range(first, last, DAY_S)
        ]  # fmt: skip
        more = last < end
        return {
            "data": buckets,
            "has_more": more,
            "next_page": f"page_{(last - start) // DAY_S}" if more else None,
        }

    def at(self, text: str) -> int:
        return int(text)

    def shown(self, day: int) -> object:
        return day

    def results(self, day: int) -> list[Mapping[str, Any]]:
        raise NotImplementedError


class _OpenAI(_Buckets):
    edges = span = ("start_time", "end_time")
    settle_s = 2 * DAY_S


class OpenAIUsage(_OpenAI):
    source, unit, paths = "openai_usage", TOKENS, ("/organization/usage/completions",)
    groups = frozenset({"project_id", "user_id", "api_key_id", "model", "batch", "service_tier"})

    def results(self, day: int) -> list[Mapping[str, Any]]:
        place = {"object": "organization.usage.completions.result", "model": "gpt-4o-2024-08-06", "batch": False,
                 "project_id": "proj_1", "service_tier": "default", "num_model_requests": 2}  # fmt: skip
        tokens = {"input_tokens": self.value(day) - 40, "input_cached_tokens": 20, "output_tokens": 20}
        return [{**place, "api_key_id": "key_1", **tokens}, {**place, "api_key_id": "key_2", "input_tokens": 20,
                                                             "output_tokens": 0}]  # fmt: skip


class OpenAIEmbeddings(_OpenAI):
    source, unit, paths = "openai_usage_embeddings", TOKENS, ("/organization/usage/embeddings",)
    groups = frozenset({"project_id", "user_id", "api_key_id", "model"})

    def results(self, day: int) -> list[Mapping[str, Any]]:
        kind = {"object": "organization.usage.embeddings.result", "model": "text-embedding-3-small"}
        return [{**kind, "input_tokens": self.value(day), "num_model_requests": 3}]


class OpenAICosts(_OpenAI):
    source, unit, paths = "openai_costs", USD, ("/organization/costs",)
    groups = frozenset({"project_id", "line_item", "api_key_id"})

    def results(self, day: int) -> list[Mapping[str, Any]]:
        lines = {"gpt-4o-2024-08-06, input": self.value(day) - 20, "web search": 20}
        return [
            {
                "object": "organization.costs.result",
                "amount": {"value": value, "currency": "usd"},
                "line_item": line,
            }
            for line, value in lines.items()
        ]


class _Anthropic(_Buckets):
    edges = span = ("starting_at", "ending_at")
    settle_s = DAY_S

    def authorised(self, headers: Mapping[str, str]) -> str:
        return headers.get("x-api-key", "") if headers.get("anthropic-version") == "2023-06-01" else ""

    def at(self, text: str) -> int:
        needs(text.endswith("Z"), "times are RFC 3339")
        return day_at(text.removesuffix("Z"))

    def shown(self, day: int) -> str:
        return f"{datetime.fromtimestamp(day, UTC):%Y-%m-%dT%H:%M:%SZ}"


def anthropic_tokens(value: int) -> Mapping[str, Any]:
    written = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 5}
    return {"uncached_input_tokens": value - 30, "cache_read_input_tokens": 5, "cache_creation": written,
            "output_tokens": 10}  # fmt: skip


class AnthropicUsage(_Anthropic):
    source, unit, paths = "anthropic_usage", TOKENS, ("/v1/organizations/usage_report/messages",)
    groups = frozenset(
        {"api_key_id", "workspace_id", "model", "service_tier", "context_window", "inference_geo"}
    )

    def results(self, day: int) -> list[Mapping[str, Any]]:
        return [{"model": "claude-sonnet-4-5-20250929", "service_tier": "standard", "api_key_id": None,
                 **anthropic_tokens(self.value(day))}]  # fmt: skip


class AnthropicCosts(_Anthropic):
    source, unit, paths = "anthropic_costs", USD, ("/v1/organizations/cost_report",)
    groups = frozenset({"workspace_id", "description"})

    def results(self, day: int) -> list[Mapping[str, Any]]:
        kinds = {"uncached_input_tokens": 100, "output_tokens": self.value(day) - 100}
        return [
            {"amount": f"{dollars * 100}.00", "currency": "USD", "cost_type": "tokens", "token_type": kind,
             "model": "claude-sonnet-4-5-20250929", "service_tier": "standard"}
            for kind, dollars in kinds.items()
        ]  # fmt: skip


class _Analytics(_Anthropic):
    """Pages of two rows, independent of days. Each day has three rows."""

    requests_a_day = 2
    more_groups: ClassVar[frozenset[str]] = frozenset()
    at_most = 5

    def page(self, request: web.Request) -> Mapping[str, Any]:
        query, groups = request.query, set(request.query.getall("group_by[]"))
        start, end = (self.at(query[name]) for name in self.span)
        needs(query["time_bucket_width"] == "1d" and end - start <= 31 * DAY_S, "at most 31 days")
        needs(1 <= int(query["limit"]) <= 1000, "1 to 1000 rows")
        needs(len(groups - self.more_groups) <= self.at_most, "at most 5 groups")
        rows = [
            {"starting_at": self.shown(day), "ending_at": self.shown(day + DAY_S),
             "group": {"model": f"claude-{place}"}, **self.measured(share)}
            for day in range(start, end, DAY_S) if self.value(day)
            # The day has three groups with different amounts.
            for place, share in enumerate((40, 41, self.value(day) - 81))
        ]  # fmt: skip
        first = int(query.get("page", "0"))
        following = str(first + 2) if first + 2 < len(rows) else None
        page = {"data": rows[first : first + 2], "has_more": following is not None, "next_page": following}
        return {**page, "data_refreshed_at": self.shown(self.today)}

    def measured(self, share: int) -> Mapping[str, Any]:
        raise NotImplementedError


class AnalyticsUsage(_Analytics):
    source, unit, paths = "anthropic_analytics_usage", TOKENS, ("/v1/organizations/analytics/usage",)

    def measured(self, share: int) -> Mapping[str, Any]:
        return {"usage": {**anthropic_tokens(share), "requests": 3}}


class AnalyticsCosts(_Analytics):
    source, unit, paths = "anthropic_analytics_costs", USD, ("/v1/organizations/analytics/cost",)
    more_groups = frozenset({"cost_type", "token_type"})

    def measured(self, share: int) -> Mapping[str, Any]:
        return {
            "cost": {"amount": f"{share * 100}.0", "list_amount": "1", "currency": "USD", "requests": None}
        }


class OpenRouter(Provider):
    """
    All completed days of the last thirty in one page. The usage paid to other providers (`byok`) is
    not billed here.
    """

    source, unit, paths = "openrouter_activity", USD, ("/api/v1/activity",)
    settle_s, answers_days = DAY_S, 30

    def page(self, request: web.Request) -> Mapping[str, Any]:
        needs(not request.query, "no page is known here")
        rows = [
            {"date": f"{datetime.fromtimestamp(day, UTC):%Y-%m-%d}", "model": "openai/gpt-4o", "requests": 4,
             "model_permaslug": "openai/gpt-4o-2024-08-06", "prompt_tokens": 100, "completion_tokens": 9,
             "usage": self.value(day) / 2, "byok_usage_inference": 7, "provider_name": name}
            for day in range(self.today - 30 * DAY_S, self.today, DAY_S) if self.value(day)
            for name in ("OpenAI", "Azure")
        ]  # fmt: skip
        return {"data": rows}


class GitHubCopilot(Provider):
    """A day has two reports, AI credits and premium requests. Reports named in `gone` answer 404."""

    source, unit, settle_s, requests_a_day = "github_copilot", USD, 2 * DAY_S, 2
    paths = tuple(
        f"/organizations/{ACCOUNT}/settings/billing/{unit}/usage" for unit in ("ai_credit", "premium_request")
    )

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        if any(unit in request.path for unit in self.gone):
            return web.json_response({"message": "Not Found"}, status=404)
        return await super().answer(request)

    def page(self, request: web.Request) -> Mapping[str, Any]:
        needs(request.headers["Accept"] == "application/vnd.github+json", "the media type is another")
        period = {name: int(request.query[name]) for name in ("year", "month", "day")}
        day = int(datetime(**period, tzinfo=UTC).timestamp())
        is_credit = "ai_credit" in request.path
        net = 100 if is_credit else self.value(day) - 100
        sku, unit = (
            ("Copilot AI Credits", "ai-credits") if is_credit else ("Copilot Premium Request", "requests")
        )
        item = {"product": "Copilot", "sku": sku, "model": "GPT-5", "unitType": unit, "pricePerUnit": 0.04,
                "grossQuantity": 25, "grossAmount": net + 0.5, "discountAmount": 0.5, "netAmount": net}  # fmt: skip
        other = {"product": "Actions", "sku": "Actions Linux", "unitType": "minutes", "netAmount": 9}
        items = [item, other] if self.value(day) else []
        return {"timePeriod": period, "organization": ACCOUNT, "usageItems": items}


class CursorEvents(Provider):
    """
    Events in pages of two, newest first. The end time is inclusive. The key is a user name without a password.

    Charges include the token fee. Events that are included or were not charged cost nothing.
    """

    source, unit, paths = "cursor_usage_events", USD, ("/teams/filtered-usage-events",)
    method, settle_s, requests_a_day = "POST", 2 * DAY_S, 3

    def authorised(self, headers: Mapping[str, str]) -> str:
        scheme, _, credential = headers.get("Authorization", "").partition(" ")
        name, _, password = b64decode(credential).decode().partition(":")
        return name if (scheme, password) == ("Basic", "") else ""

    async def read(self, request: web.Request) -> Mapping[str, Any]:
        asked = await request.json()
        numbers = [asked[name] for name in ("startDate", "endDate", "pageSize")]
        needs(all(type(number) is int for number in (*numbers, asked.get("page", 1))), "all are numbers")
        since, until, size = numbers
        needs(until - since <= 30 * DAY_S * 1000 and 1 <= size <= 500, "30 days, 500 events")
        events = [
            event for day in range(since // 1000, until // 1000 + 1, DAY_S) for event in self.events(day)
            if since <= int(event["timestamp"]) <= until
        ][::-1]  # fmt: skip
        page = asked.get("page", 1)
        pages = {"currentPage": page, "pageSize": 2, "hasNextPage": 2 * page < len(events)}
        return {"totalUsageEventsCount": len(events), "pagination": pages,
                "usageEvents": events[2 * page - 2 : 2 * page]}  # fmt: skip

    def events(self, day: int) -> list[dict[str, Any]]:
        if not self.value(day):
            return []
        of_day = {"model": "claude-4.5-sonnet", "userEmail": "ada@example.com", "maxMode": False}
        tokens = {"inputTokens": 10, "outputTokens": 5, "cacheWriteTokens": 2, "cacheReadTokens": 40}
        kinds: list[tuple[int, dict[str, Any]]] = [
            (0, {"kind": "Usage-based", "isChargeable": True, "chargedCents": 100 * self.value(day) - 2050.5,
                 "cursorTokenFee": 7.25, "tokenUsage": {**tokens, "totalCents": 99.9}}),
            (60_000, {"kind": "Included in Business", "isChargeable": False, "chargedCents": 5,
                      "tokenUsage": {**tokens, "totalCents": 5}}),
            (120_000, {"kind": "Usage-based", "isChargeable": True, "chargedCents": 2050.5,
                       "requestsCosts": 1.4}),
            (DAY_S * 1000 - 1, {"kind": "USAGE_EVENT_KIND_ABORTED_NOT_CHARGED",
                                "tokenUsage": {**tokens, "totalCents": 3}}),
        ]  # fmt: skip
        return [{"timestamp": str(day * 1000 + at), **of_day, **said} for at, said in kinds]


class LiteLLM(Provider):
    """
    Calls in pages of two. The end time is inclusive. A call from LiteLLM's own cache costs nothing, and an
    early failure names no provider. The reported total is wrong on purpose.
    """

    source, unit, paths = "litellm_spend_logs", USD, ("/spend/logs/v2",)
    settle_s, requests_a_day = 3600, 4

    def page(self, request: web.Request) -> Mapping[str, Any]:
        query = request.query
        needs(1 <= int(query["page_size"]) <= 100, "page_size is at most 100")
        needs((query["sort_by"], query["sort_order"]) == ("startTime", "asc"), "another order")
        needs(
            all(WRITTEN.fullmatch(query[name]) for name in ("start_date", "end_date")),
            "times are written otherwise",
        )
        since, until = (day_at(query[name]) for name in ("start_date", "end_date"))
        calls = [
            call for day in range(since, until + 1, DAY_S) for call in self.calls(day) if call[0] <= until
        ]
        first = 2 * (int(query.get("page", "1")) - 1)
        rows = [self.row(at, **fields) for at, fields in calls[first : first + 2]]
        return {"data": rows, "total": 1, "total_is_capped": True, "page": first // 2 + 1, "page_size": 2,
                "total_pages": 1}  # fmt: skip

    def calls(self, day: int) -> list[tuple[float, dict[str, Any]]]:
        if not self.value(day):
            return []
        failed = {"custom_llm_provider": "", "prompt_tokens": 0, "completion_tokens": 0, "status": "failure"}
        return [
            (day, {"spend": 20, "custom_llm_provider": "anthropic"}),
            (day + 60, {"spend": 10}),
            (day + 120, {"spend": 0.0, "cache_hit": "True"}),
            (day + 180, {"spend": 0, **failed}),
            (day + 240, {"spend": self.value(day) - 30.5}),
            (day + DAY_S - 0.001, {"spend": 0.5}),
        ]

    def row(self, at: float, **fields: Any) -> Mapping[str, Any]:
        started = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        return {"request_id": f"chatcmpl-{at}", "api_key": "88dc28", "model": "gpt-4o", "startTime": started,
                "custom_llm_provider": "openai", "prompt_tokens": 10, "completion_tokens": 2, "cache_hit": "",
                "status": "success", "metadata": {}, **fields}  # fmt: skip


PROVIDERS: Mapping[str, type[Provider]] = {
    each.source: each
    for each in (OpenAIUsage, OpenAIEmbeddings, OpenAICosts, AnthropicUsage, AnthropicCosts, AnalyticsUsage,
                 AnalyticsCosts, OpenRouter, GitHubCopilot, CursorEvents, LiteLLM)
}  # fmt: skip


def expected(days: int, today: float, amounts: Mapping[int, int] = {}) -> Mapping[int, Decimal]:
    """Return the expected sum of each past day."""
    end = day_start(int(today))
    return {day: Decimal(amounts.get(day, VALUE)) for day in range(end - days * DAY_S, end, DAY_S)}
