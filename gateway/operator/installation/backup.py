"""The call of the operator API that backs the data up."""

from __future__ import annotations

from gateway.errors import Refusal
from gateway.http.holders.spool import SpoolServices
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.installation.local_path import local_path
from gateway.operator.requests import OperatorRequest
from spool.record import moment
from spool.transfer import backups


class BackupPlace(RequestBody):
    """A directory that does not exist yet, by its absolute path."""

    directory: str


async def back_up(request: OperatorRequest[SpoolServices, BackupPlace]) -> Result:
    """Make a backup where the request says, on the server's machine; only the operator socket may ask for it."""
    services = request.services
    elsewhere = "a backup is made on the machine of the server: tollhouse backup"
    place = local_path(request, "directory", request.body.directory, elsewhere=elsewhere)
    if request.shared.copy is None:
        raise Refusal(503, "no_storage", "there is nothing to back up here")
    topics = (await services.log.books()).topics
    records = {topic: terms.get("accepted", 0) for topic, terms in topics.items()}
    async with request.audited("backup", str(place), {}):
        manifest = await backups.back_up(
            request.shared.copy,
            place,
            version=request.shared.version,
            made_at=moment(request.now()),
            records=records,
        )
    return {"backup": {"directory": str(place), "made_at": manifest.made_at, "bytes": manifest.bytes}}
