"""
The areas of addresses: which module has the rows of which paths.

A module of rows imports the handlers, bodies and lists of its area, and is imported itself when one of its
paths is first asked: a start does not pay for what nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from aiohttp import web
from yarl import URL

from gateway.first_use import imported
from gateway.http.address import Address
from gateway.operator.address import OperatorAddress

if TYPE_CHECKING:
    from gateway.normalise.otlp import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """
    `module` has the rows, as `ROWS`. Every path of them is one of `paths` or below it.

    `endpoints` are the labels of the rows in metrics, whose series begin with 0 before the rows are there.
    """

    module: str
    paths: Sequence[str]
    endpoints: Sequence[str] = ()


FOR_SENDERS = (
    Area(
        module="gateway.addresses.telemetry",
        paths=(
            "/v1/traces",
            "/v1/metrics",
            "/v1/logs",
            "/v1development/profiles",
            "/v1/ai-telemetry",
            "/api/public",
            "/api/v1/events",
        ),
        endpoints=(
            "otlp/traces",
            "otlp/metrics",
            "otlp/logs",
            "otlp/profiles",
            "ai-telemetry",
            "helicone",
            "langfuse",
            "langfuse/health",
            "langfuse/projects",
            "openmeter",
        ),
    ),
    Area(
        module="gateway.addresses.topics",
        paths=("/v1/ai-control-plane", "/v1/events", "/unit-cost/v1/telemetry"),
        endpoints=(
            "devices/enroll",
            "devices/heartbeat",
            "devices/ping",
            "events",
            "events/read",
            "unit-cost",
            "unit-cost/records",
            "unit-cost/streams",
        ),
    ),
    Area(
        module="gateway.addresses.containers",
        paths=("/v1/container-metrics",),
        endpoints=(
            "container-metrics/upload",
            "container-metrics/files",
            "container-metrics/abandon",
            "container-metrics/status",
            "container-metrics/config",
            "container-metrics",
        ),
    ),
    Area(
        module="gateway.addresses.billing",
        paths=("/v2/connections/billing",),
        endpoints=("billing/validate", "billing", "billing/month", "connections", "connections/one"),
    ),
    Area(
        module="gateway.addresses.api",
        paths=("/v2/billing", "/v2/insights", "/v2/container/clusters"),
        endpoints=("costs", "dimensions", "resource_tags", "insights", "clusters"),
    ),
    Area(module="gateway.addresses.views", paths=("/v2/views",), endpoints=("views",)),
    Area(
        module="gateway.addresses.budgets",
        paths=("/v2/budgets",),
        endpoints=("budgets", "budgets/one", "budgets/one/owners", "budgets/one/alerts"),
    ),
    Area(
        module="gateway.addresses.allocation",
        paths=("/v2/allocation", "/v2/costformation"),
        endpoints=("allocation",),
    ),
    Area(module="gateway.addresses.optimize", paths=("/v2/optimize",), endpoints=("optimize",)),
    Area(
        module="gateway.addresses.mcp",
        paths=("/mcp", "/.well-known/oauth-protected-resource"),
        endpoints=("mcp", "mcp/metadata"),
    ),
    Area(module="gateway.addresses.roles", paths=("/v2/access-control",), endpoints=("roles",)),
)


def _operator(name: str, *paths: str) -> Area:
    return Area(module=f"gateway.addresses.operator.{name}", paths=paths)


# OTLP over gRPC. Each service has one method, Export; None: taken and dropped.
_COLLECTOR = "opentelemetry.proto.collector"
GRPC_SERVICES: Mapping[str, Signal | None] = {
    f"{_COLLECTOR}.trace.v1.TraceService": "traces",
    f"{_COLLECTOR}.metrics.v1.MetricsService": "metrics",
    f"{_COLLECTOR}.logs.v1.LogsService": "logs",
    f"{_COLLECTOR}.profiles.v1development.ProfilesService": None,
}

# Their paths are below OPERATOR_API.
OPERATOR_AREAS = (
    _operator("sign_in", "/sessions", "/session", "/console-links", "/sign-in-ways", "/oidc", "/oidc-callback",
              "/oidc-logout"),
    _operator("log", "/changes", "/records", "/served", "/rates", "/tail"),
    _operator("keys", "/keys", "/scopes"),
    _operator("senders", "/devices", "/unenrolled", "/clusters", "/container-metrics", "/container-files"),
    _operator("spool", "/status", "/routes", "/deliveries", "/replay", "/lake-repairs", "/clock", "/receipts", "/books",
              "/verify", "/dead", "/partial-refusals", "/ignored", "/conflicts"),
    _operator("installation", "/configuration", "/reload", "/backup", "/bundles", "/demo"),
    _operator("streams", "/streams", "/events", "/event-types", "/unknown"),
    _operator("money.billing", "/billing", "/connections", "/statements", "/statement-pulls",
              "/reconciliation"),
    _operator("money.billed", "/billed-invoices", "/month-closing", "/closed-months"),
    _operator("assistants", "/mcp", "/assistant-tools"),
    _operator("money.budgets", "/views", "/budgets"),
    _operator("money.costs", "/ledger", "/report", "/comparison", "/forecast", "/overview", "/what-if"),
    _operator("money.allocation", "/allocation"),
    _operator("insights", "/insights"),
    _operator("money.recommendations", "/recommendations", "/recommendation-types", "/recommendation-dimensions",
              "/recommendation-check"),
    _operator("notifications", "/notifications", "/notification-channels", "/channel-names"),
    _operator("money.scheduled_reports", "/scheduled-reports"),
    _operator("money.annotations", "/annotations", "/marks"),
    _operator("money.plans", "/plans", "/plan-costs"),
    _operator("people", "/operators", "/people-names", "/roles", "/permission-sets", "/audit"),
)  # fmt: skip

# What a loaded demo month answers, below DEMO: what is read there, by who may read it of the real data.
DEMO = "/demo"
DEMO_AREAS = tuple(
    area
    for area in OPERATOR_AREAS
    if area.module.rpartition(".")[2] not in ("sign_in", "keys", "installation", "assistants", "people")
)
NOT_IN_DEMO = frozenset({"/changes", "/tail"})  # nothing arrives there


def sender_rows(area: Area) -> tuple[Address, ...]:
    """The rows of an area, which are imported now if they were not before."""
    rows: tuple[Address, ...] = import_module(area.module).ROWS
    return rows


def operator_rows(area: Area) -> tuple[OperatorAddress, ...]:
    """Import the rows of an area of OPERATOR_AREAS."""
    rows: tuple[OperatorAddress, ...] = import_module(area.module).ROWS
    return rows


class AreaRoutes:
    """The routes of an area in one application; `add` adds them to a router when they are first asked."""

    def __init__(self, area: Area, add: Callable[[web.UrlDispatcher], None]) -> None:
        self.router: web.UrlDispatcher | None = None
        self._area = area
        self._add = add

    async def load(self) -> web.UrlDispatcher:
        """The router, once the area is imported."""
        await imported(self._area.module)
        return self.made()

    def made(self) -> web.UrlDispatcher:
        """The router; the area is imported here and now if it was not before."""
        if self.router is None:
            router = web.UrlDispatcher()
            self._add(router)
            self.router = router
        return self.router


class AreaResource(web.AbstractResource):
    """One path of an area and all below it, as aiohttp's router knows it."""

    def __init__(self, path: str, routes: AreaRoutes) -> None:
        super().__init__()
        self._path = path
        self._routes = routes

    @property
    def canonical(self) -> str:
        return self._path

    def add_prefix(self, prefix: str) -> None:
        self._path = prefix + self._path

    async def resolve(self, request: web.Request) -> tuple[web.UrlMappingMatchInfo | None, set[str]]:
        router = self._routes.router or await self._routes.load()
        found = await router.resolve(request)
        refusal = found.http_exception
        if refusal is None:
            return found, set()
        return None, set(refusal.allowed_methods) if isinstance(refusal, web.HTTPMethodNotAllowed) else set()

    def raw_match(self, path: str) -> bool:
        """Return False: only resources that are added by path are searched by it."""
        return False

    def url_for(self, **kwargs: str) -> URL:
        raise NotImplementedError("an area has many addresses")

    def get_info(self) -> dict[str, web.UrlDispatcher]:  # type: ignore[override]
        """The router with the routes of the area."""
        return {"area": self._routes.made()}

    def __len__(self) -> int:
        return len(self._routes.made().routes())

    def __iter__(self) -> Iterator[web.AbstractRoute]:
        return iter(self._routes.made().routes())
