"""
The areas of addresses: the paths of each area, and the modules that have their handlers and rows.

An area's modules are imported at the first request for one of its paths, so a start loads no unused modules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aiohttp import web
from yarl import URL

from gateway.core.first_use import import_in_thread
from gateway.core.paths import OPERATOR_API
from gateway.http.address import ApiAddress, addresses_defined_in_module
from gateway.operations.list import RESOURCES, ResourceModules
from gateway.operations.managed import ManagedResource
from gateway.operations.requests.address import OperatorApiAddress

if TYPE_CHECKING:
    from gateway.normalise.otlp import Signal


# This module creates the rows for resources that other modules declare.
_MANAGED = "gateway.operations.people.managed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressArea:
    """
    A group of addresses below common paths. `modules` contain its resources, and its handlers with their
    rows, in table order. The path of every row is one of `paths` or below it.

    `endpoints` are the rows' labels in metrics. Their series start at 0, before the rows are imported.
    `is_in_demo`: a demo month answers reads in this area.
    """

    modules: Sequence[str]
    paths: Sequence[str]
    endpoints: Sequence[str] = ()
    is_in_demo: bool = True


_LISTED_FOR_SENDERS = (
    AddressArea(
        modules=("gateway.operations.receivers.otlp_http", "gateway.operations.receivers.ai_telemetry"),
        paths=(
            "/v1/traces",
            "/v1/metrics",
            "/v1/logs",
            "/v1development/profiles",
            "/v1/ai-telemetry",
            "/api/public",
            "/api/otel/v1/traces",
            "/opentelemetry/v1/traces",
            "/api/v1/traces",
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
    AddressArea(
        modules=(
            "gateway.operations.devices.reports",
            "gateway.operations.receivers.people",
            "gateway.operations.receivers.events",
            "gateway.operations.records.events",
            "gateway.operations.receivers.unit_cost",
        ),
        paths=("/v1/ai-control-plane", "/v1/events", "/unit-cost/v1/telemetry"),
        endpoints=(
            "devices/enroll",
            "devices/heartbeat",
            "devices/ping",
            "people/addresses",
            "people/erasures",
            "events",
            "events/read",
            "unit-cost",
            "unit-cost/records",
            "unit-cost/streams",
        ),
    ),
    AddressArea(
        modules=("gateway.operations.clusters.container_metrics",),
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
    AddressArea(
        modules=("gateway.operations.receivers.billing", "gateway.operations.bills.connections"),
        paths=("/v2/connections/billing",),
        endpoints=("billing/validate", "billing", "billing/month", "connections", "connections/one"),
    ),
    AddressArea(
        modules=(
            "gateway.operations.money.costs.published",
            "gateway.operations.money.published_insights",
            "gateway.operations.clusters.clusters",
        ),
        paths=("/v2/billing", "/v2/insights", "/v2/container/clusters"),
        endpoints=("costs", "dimensions", "resource_tags", "insights", "clusters"),
    ),
    AddressArea(modules=("gateway.operations.money.views",), paths=("/v2/views",), endpoints=("views",)),
    AddressArea(
        modules=("gateway.operations.money.budgets", "gateway.operations.money.verdicts"),
        paths=("/v2/budgets",),
        endpoints=(
            "budgets",
            "budgets/one",
            "budgets/one/owners",
            "budgets/one/alerts",
            "budgets/verdicts",
            "budgets/verdicts/bundle",
        ),
    ),
    AddressArea(
        modules=("gateway.operations.money.published_allocation",),
        paths=("/v2/allocation", "/v2/costformation"),
        endpoints=("allocation",),
    ),
    AddressArea(
        modules=("gateway.operations.money.published_recommendations",),
        paths=("/v2/optimize",),
        endpoints=("optimize",),
    ),
    AddressArea(
        modules=("gateway.mcp.endpoint", "gateway.mcp.metadata"),
        paths=("/mcp", "/.well-known/oauth-protected-resource"),
        endpoints=("mcp", "mcp/metadata"),
    ),
    AddressArea(
        modules=("gateway.operations.people.roles",), paths=("/v2/access-control",), endpoints=("roles",)
    ),
)


def with_resource_areas(
    listed: Sequence[AddressArea], resources: Mapping[str, ResourceModules], *, of_keys: bool = False
) -> tuple[AddressArea, ...]:
    """
    Return the listed areas, and an area for each resource whose path is in none of them. All addresses of
    such an area come from the resource's module. With `of_keys`, the areas are those for keys, below /v2.
    """
    listed_paths = {path for area in listed for path in area.paths}
    areas = list(listed)
    for name, modules in resources.items():
        path = f"/v2/{name}" if of_keys else f"/{name}"
        if path not in listed_paths and (modules.has_keys or not of_keys):
            endpoints = (name,) if of_keys else ()
            areas.append(AddressArea(modules=(modules.resource,), paths=(path,), endpoints=endpoints))
    return tuple(areas)


FOR_SENDERS = with_resource_areas(_LISTED_FOR_SENDERS, RESOURCES, of_keys=True)

# Only an agent has these addresses, for programs on its own machine.
OF_AN_AGENT = (
    AddressArea(
        modules=("gateway.operations.devices.verdict",), paths=("/v1/agent",), endpoints=("agent/verdict",)
    ),
)

# OTLP over gRPC: service -> signal that it accepts. Each service has one method, Export. A service with None
# accepts and ignores all items.
_COLLECTOR = "opentelemetry.proto.collector"
GRPC_SERVICES: Mapping[str, Signal | None] = {
    f"{_COLLECTOR}.trace.v1.TraceService": "traces",
    f"{_COLLECTOR}.metrics.v1.MetricsService": "metrics",
    f"{_COLLECTOR}.logs.v1.LogsService": "logs",
    f"{_COLLECTOR}.profiles.v1development.ProfilesService": None,
}

# The areas of the operator API. Their paths start with OPERATOR_API.
_LISTED = (
    AddressArea(
        modules=("gateway.operations.people.sign_in", "gateway.operations.people.provider_sign_in"),
        paths=(
            "/sessions",
            "/session",
            "/console-links",
            "/sign-in-ways",
            "/oidc",
            "/oidc-callback",
            "/oidc-logout",
        ),
        is_in_demo=False,
    ),
    AddressArea(
        modules=(
            "gateway.operations.records.changes",
            "gateway.operations.records.listing",
            "gateway.operations.records.served_tokens",
            "gateway.operations.records.newest",
            "gateway.operations.records.tail",
            "gateway.operations.records.record",
        ),
        paths=("/changes", "/records", "/served", "/rates", "/tail"),
    ),
    AddressArea(
        modules=("gateway.operations.people.keys", "gateway.operations.people.scopes"),
        paths=("/keys", "/scopes"),
        is_in_demo=False,
    ),
    AddressArea(
        modules=(
            "gateway.operations.devices.devices",
            "gateway.operations.devices.tokens",
            "gateway.operations.devices.fleet",
            "gateway.operations.clusters.clusters",
        ),
        paths=("/devices", "/fleet", "/unenrolled", "/clusters", "/container-metrics", "/container-files"),
    ),
    AddressArea(
        modules=(
            "gateway.operations.records.deliveries",
            "gateway.operations.records.accounting",
            "gateway.operations.records.dead_letters",
        ),
        paths=(
            "/status",
            "/routes",
            "/deliveries",
            "/replay",
            "/lake-repairs",
            "/clock",
            "/receipts",
            "/books",
            "/verify",
            "/dead",
            "/partial-refusals",
            "/ignored",
            "/conflicts",
        ),
    ),
    AddressArea(
        modules=(
            "gateway.operations.installation.installation",
            "gateway.operations.installation.forwarding",
        ),
        paths=("/configuration", "/reload", "/backup", "/demo", "/forwarding-tests"),
        is_in_demo=False,
    ),
    AddressArea(modules=("gateway.operations.installation.search",), paths=("/search",)),
    AddressArea(
        modules=("gateway.operations.files.calls",), paths=("/files", "/apply", "/release"), is_in_demo=False
    ),
    AddressArea(
        modules=("gateway.operations.records.streams",),
        paths=("/streams", "/events", "/event-types", "/unknown"),
    ),
    AddressArea(
        modules=(
            "gateway.operations.bills.hours",
            "gateway.operations.bills.connections",
            "gateway.operations.bills.statements",
            "gateway.operations.bills.reconciliation",
            "gateway.operations.bills.enforcers",
        ),
        paths=(
            "/billing",
            "/connections",
            "/statements",
            "/statement-imports",
            "/statement-pulls",
            "/statement-uploads",
            "/reconciliation",
            "/enforcers",
            "/enforcer-limits",
        ),
    ),
    AddressArea(
        modules=("gateway.operations.bills.closing",),
        paths=("/billed-invoices", "/month-closing", "/closed-months"),
    ),
    AddressArea(modules=("gateway.mcp.operator",), paths=("/mcp", "/assistant-tools"), is_in_demo=False),
    AddressArea(
        modules=(
            "gateway.operations.money.views",
            "gateway.operations.money.budgets",
            "gateway.operations.money.verdicts",
        ),
        paths=("/views", "/budgets"),
    ),
    AddressArea(
        modules=(
            "gateway.operations.money.overview",
            "gateway.operations.money.costs.report",
            "gateway.operations.money.costs.comparison",
            "gateway.operations.money.costs.forecast",
            "gateway.operations.money.costs.what_if",
            "gateway.operations.money.costs.ledger",
            "gateway.operations.money.costs.groups",
        ),
        paths=("/ledger", "/report", "/comparison", "/forecast", "/overview", "/what-if", "/group-costs"),
    ),
    AddressArea(modules=("gateway.operations.money.costs.focus",), paths=("/focus",)),
    AddressArea(modules=("gateway.operations.money.allocation",), paths=("/allocation",)),
    AddressArea(
        modules=("gateway.operations.money.insights", "gateway.operations.money.attention"),
        paths=("/insights", "/attention"),
    ),
    AddressArea(
        modules=("gateway.operations.money.recommendations",),
        paths=(
            "/recommendations",
            "/recommendation-types",
            "/recommendation-dimensions",
            "/recommendation-check",
        ),
    ),
    AddressArea(
        modules=("gateway.operations.money.notifications", "gateway.operations.money.channels"),
        paths=("/notifications", "/notification-channels", "/channel-names"),
    ),
    AddressArea(
        modules=(
            "gateway.operations.money.reports.declared",
            "gateway.operations.money.costs.scheduled_reports",
        ),
        paths=("/scheduled-reports",),
    ),
    AddressArea(
        modules=("gateway.operations.money.annotations", "gateway.operations.money.costs.marks"),
        paths=("/annotations", "/marks"),
    ),
    AddressArea(
        modules=(
            "gateway.operations.money.work_links.declared",
            "gateway.operations.money.work",
            "gateway.operations.records.waste",
        ),
        paths=("/work/links", "/work"),
    ),
    AddressArea(modules=("gateway.operations.bills.plans",), paths=("/plans", "/plan-costs")),
    AddressArea(modules=("gateway.operations.bills.contracts",), paths=("/contracts", "/contract-costs")),
    AddressArea(
        modules=("gateway.operations.money.own_prices", "gateway.operations.money.prices"), paths=("/prices",)
    ),
    AddressArea(
        modules=(
            "gateway.operations.people.accounts",
            "gateway.operations.people.roles",
            "gateway.operations.people.names",
            "gateway.operations.people.stated_names",
            "gateway.operations.people.privacy",
            "gateway.operations.people.leaving",
            "gateway.operations.people.viewings",
            "gateway.operations.people.audit",
        ),
        paths=("/operators", "/people", "/erasures", "/roles", "/permission-sets", "/audit"),
        is_in_demo=False,
    ),
)


OPERATOR_AREAS = with_resource_areas(_LISTED, RESOURCES)

# Prefix of the paths of a demo month. These areas have only their reads there, with the same rights as
# for real data.
DEMO = "/demo"
DEMO_AREAS = tuple(area for area in OPERATOR_AREAS if area.is_in_demo)
# paths that the demo does not have, because no new records arrive in it
NOT_IN_DEMO = frozenset({"/changes", "/tail"})


def sender_addresses(area: AddressArea) -> tuple[ApiAddress, ...]:
    rows = _iter_rows(area, import_module(_MANAGED).build_key_rows)
    return tuple(row for row in rows if not isinstance(row, OperatorApiAddress))


def operator_addresses(area: AddressArea) -> tuple[OperatorApiAddress, ...]:
    rows = _iter_rows(area, import_module(_MANAGED).build_people_rows)
    return tuple(row for row in rows if isinstance(row, OperatorApiAddress))


def _iter_rows(area: AddressArea, of_resource: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    for module in map(import_module, area.modules):
        yield from addresses_defined_in_module(
            module, lambda value: of_resource(value) if isinstance(value, ManagedResource) else ()
        )


async def import_area(area: AddressArea) -> None:
    for module in (*area.modules, _MANAGED):
        await import_in_thread(module)


async def find_get_addresses_by_path(paths: Collection[str]) -> Mapping[str, OperatorApiAddress]:
    """
    Return the GET addresses at these paths of the operator API. Import only the modules of these addresses.
    """
    found: dict[str, OperatorApiAddress] = {}
    for area in OPERATOR_AREAS:
        wanted = {path for path in paths if any(f"{path}/".startswith(f"{top}/") for top in area.paths)}
        if wanted:
            await import_area(area)
            found |= {path: row for path, row in _get_operations_by_path(area).items() if path in wanted}
    return found


@cache
def _get_operations_by_path(area: AddressArea) -> Mapping[str, OperatorApiAddress]:
    return {
        row.path.removeprefix(OPERATOR_API): row for row in operator_addresses(area) if "GET" in row.methods
    }


class AddressAreaRoutes:
    """The routes of an `AddressArea`. `add` adds them to a router at the first request."""

    def __init__(self, area: AddressArea, add: Callable[[web.UrlDispatcher], None]) -> None:
        self.router: web.UrlDispatcher | None = None
        self._area = area
        self._add = add

    async def load_router(self) -> web.UrlDispatcher:
        await import_area(self._area)
        return self.find_or_build_router()

    def find_or_build_router(self) -> web.UrlDispatcher:
        """Return the router. If the area is not imported yet, this thread imports it."""
        if self.router is None:
            router = web.UrlDispatcher()
            self._add(router)
            self.router = router
        return self.router


class AddressAreaResource(web.AbstractResource):
    """A path of an area and everything below it, as a resource of aiohttp's router."""

    def __init__(self, path: str, routes: AddressAreaRoutes) -> None:
        super().__init__()
        self._path = path
        self._routes = routes

    @property
    def canonical(self) -> str:
        return self._path

    def add_prefix(self, prefix: str) -> None:
        self._path = prefix + self._path

    async def resolve(self, request: web.Request) -> tuple[web.UrlMappingMatchInfo | None, set[str]]:
        router = self._routes.router or await self._routes.load_router()
        match = await router.resolve(request)
        refusal = match.http_exception
        if refusal is None:
            return match, set()
        return None, set(refusal.allowed_methods) if isinstance(refusal, web.HTTPMethodNotAllowed) else set()

    def raw_match(self, path: str) -> bool:
        """Return False, because aiohttp uses this method only for resources added by path."""
        return False

    def url_for(self, **kwargs: str) -> URL:
        raise NotImplementedError("an AddressArea has many paths, so it has no URL of its own")

    def get_info(self) -> dict[str, web.UrlDispatcher]:  # type: ignore[override]
        return {"area": self._routes.find_or_build_router()}

    def __len__(self) -> int:
        return len(self._routes.find_or_build_router().routes())

    def __iter__(self) -> Iterator[web.AbstractRoute]:
        return iter(self._routes.find_or_build_router().routes())
