"""The calls of the operator API on the demo month, which lies apart from what is real."""

from __future__ import annotations

from gateway.errors import Refusal
from gateway.http.holders.installation import InstallationServices
from gateway.http.holders.spool import SpoolServices
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest

_NO_PLACE = "one server with storage of its own makes a demo month; elsewhere: tollhouse demo --data DIR"
_HAS_RECORDS = (
    "records have arrived already: the console shows those; a demo of its own makes tollhouse demo --data DIR"
)


class DemoLoad(RequestBody):
    """An empty object."""


async def read_demo(request: OperatorRequest[SpoolServices, None]) -> Result:
    return _described(request.shared)


async def load_demo(request: OperatorRequest[SpoolServices, DemoLoad]) -> Result:
    """Refusal 409 once a record has arrived: who has calls of his own is not offered made-up ones."""
    demo = request.shared.demo
    if demo is None:
        raise Refusal(503, "no_demo", _NO_PLACE)
    topics = (await request.services.log.books()).topics
    if any(terms.get("accepted", 0) for terms in topics.values()):
        raise Refusal(409, "has_records", _HAS_RECORDS)
    async with request.audited("demo.load", "demo", {}):
        await demo().load()
    return _described(request.shared)


async def remove_demo(request: OperatorRequest[SpoolServices, None]) -> Result:
    demo = request.shared.demo
    if demo is None:
        raise Refusal(503, "no_demo", _NO_PLACE)
    async with request.audited("demo.remove", "demo", {}):
        await demo().remove()
    return _described(request.shared)


def _described(installation: InstallationServices) -> dict[str, object]:
    return {"demo": {"state": installation.demo_state}}
