"""The call of the operator API that puts missing files of a lake again."""

from __future__ import annotations

from gateway.http.holders.spool import SpoolServices
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest


class Repair(RequestBody):
    """`destination` is the name of a lake of files."""

    destination: str
    dry_run: bool = False


async def repair_lake(request: OperatorRequest[SpoolServices, Repair]) -> Result:
    """Files that are missing, from what the log still has. `lost` are those that it has no more, and why."""
    body = request.body
    if body.dry_run:
        done = await request.services.repair_lake(body.destination, dry_run=True)
    else:
        async with request.audited("lake.repair", body.destination, {}):
            done = await request.services.repair_lake(body.destination, dry_run=False)
    return {
        "repair": {
            "destination": body.destination, "dry_run": body.dry_run, "put": list(done.put), "lost": dict(done.lost),
        }
    }  # fmt: skip
