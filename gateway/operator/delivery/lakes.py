"""The call of the operator API that puts missing files of a lake again, or compares it with the log."""

from __future__ import annotations

from dataclasses import asdict

from gateway.http.holders.spool import SpoolServices
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from spool.record import AI_TELEMETRY


class Repair(RequestBody):
    """
    `destination` is the name of a lake of files. With `after` nothing is put: the deliveries of `topic` that begin
    behind this number are compared with the log.
    """

    destination: str
    dry_run: bool = False
    topic: str = AI_TELEMETRY
    after: int | None = None


async def repair_lake(request: OperatorRequest[SpoolServices, Repair]) -> Result:
    """Files that are missing, from what the log still has. `lost` are those that it has no more, and why."""
    body = request.body
    if body.after is not None:
        found = await request.services.recount_lake(body.destination, body.topic, body.after)
        return {"recount": asdict(found)}
    if body.dry_run:
        done = await request.services.repair_lake(body.destination, dry_run=True)
    else:
        async with request.audited("lake.repair", body.destination, {}):
            done = await request.services.repair_lake(body.destination, dry_run=False)
    return {
        "repair": {
            "destination": body.destination,
            "dry_run": body.dry_run,
            "put": list(done.put),
            "lost": dict(done.lost),
        }
    }
