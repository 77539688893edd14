"""The calls of the operator API that hand a backlog over to another installation."""

from __future__ import annotations

from dataclasses import asdict

from gateway.errors import Refusal
from gateway.http.holders.spool import SpoolServices
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.installation.local_path import local_path
from gateway.operator.requests import OperatorRequest
from spool.errors import NotThere
from spool.record import UNIT_COST, moment
from spool.transfer import bundles

ELSEWHERE = "bundles are made on the machine of the server: tollhouse spool export"


class BundleExport(RequestBody):
    """`file` is an absolute path; without `routes` all that have a backlog, those of unit-cost operations aside."""

    file: str
    key: str
    routes: tuple[str, ...] = ()
    ambiguous: bool = False


class BundleImport(RequestBody):
    file: str
    key: str


async def export_bundle(request: OperatorRequest[SpoolServices, BundleExport]) -> Result:
    services = request.services
    body = request.body
    file = local_path(request, "file", body.file, elsewhere=ELSEWHERE)
    states = {state.name: state for state in await services.deliveries.routes()}
    unknown = [name for name in body.routes if name not in states]
    if unknown:
        raise NotThere(f"there is no route named {unknown[0]!r}")
    queued = [name for name, state in states.items() if state.queued and state.topic != UNIT_COST]
    routes = list(body.routes) or queued
    async with request.audited("bundle.export", str(file), {"routes": routes}):
        done = await bundles.export_bundle(
            services.log,
            services.deliveries,
            routes,
            file,
            body.key,
            version=request.shared.version,
            made_at=moment(request.now()),
            ambiguous=body.ambiguous,
        )
    states = {state.name: state for state in await services.deliveries.routes()}
    left = {name: states[name].queued for name in routes if states[name].queued}
    return {"export": {"file": str(file), "routes": routes, **asdict(done), "left": left}}


async def import_bundle(request: OperatorRequest[SpoolServices, BundleImport]) -> Result:
    services = request.services
    file = local_path(request, "file", request.body.file, elsewhere=ELSEWHERE)
    if services.partial_reports is None:
        raise Refusal(503, "no_storage", "there is no log here to bring records into")
    async with request.audited("bundle.import", str(file), {}):
        done = await bundles.import_bundle(
            services.log,
            services.partial_reports,
            file,
            request.body.key,
            now=request.shared.clock.now,
        )
    return {"import": {"file": str(file), **asdict(done)}}
