"""Handlers of the operator API for limits that others enforce: list them with our sums, and read them now."""

from __future__ import annotations

from gateway.bills.enforcers.auditing import LimitAudit
from gateway.bills.enforcers.reader import EnforcerReader, EnforcerStatus
from gateway.configuration.sections import ENFORCER_TYPES
from gateway.core.errors import REPAIR_RETRY_S, Refusal
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.record import moment
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS

AGREES, DIFFERS, NOT_COMPARED = "agrees", "differs", "not_compared"


class EnforcerNames(RequestBody):
    """`name` is the name of one of `[[enforcers]]`. Without it, all are read."""

    name: str | None = None


def _audit_state(audit: LimitAudit) -> str:
    if audit.faults:
        return DIFFERS
    return NOT_COMPARED if audit.reason or audit.limit.spent is None else AGREES


def _describe_limit(audit: LimitAudit) -> dict[str, object]:
    limit, band = audit.limit, audit.band
    return {
        "id": "/".join((audit.enforcer, *limit.key)),
        "enforcer": audit.enforcer,
        "kind": limit.kind,
        "name": limit.name,
        "limit": limit.limit,
        "spent": limit.spent,
        "ours_at_least": None if band is None else f"{band.low:f}",
        "ours_at_most": None if band is None else f"{band.high:f}",
        "currency": limit.currency,
        "window": limit.window or None,
        "starts_at": moment(limit.starts_at),
        "resets_at": moment(limit.ends_at),
        "enforcing": limit.enforcing,
        "read_at": moment(audit.read_at),
        "compared_at": moment(audit.judged_at),
        "state": _audit_state(audit),
        "reason": audit.reason or None,
        "faults": [fault.title for fault in audit.faults],
    }


LIMITS: List[LimitAudit] = List(
    root="enforcer_limits",
    show=_describe_limit,
    identity=Sort(value=lambda row: "/".join((row.enforcer, *row.limit.key))),
    sorts={
        "name": Sort(value=lambda row: row.limit.name),
        "enforcer": Sort(value=lambda row: row.enforcer),
    },
    default_sort=("enforcer", "asc"),
    filters={
        "enforcer": Filter(values=lambda row: (row.enforcer,)),
        "kind": Filter(values=lambda row: (row.limit.kind,)),
        "state": Filter(
            values=lambda row: (_audit_state(row),), valid_values=(AGREES, DIFFERS, NOT_COMPARED)
        ),
    },
)


def _describe_enforcer(status: EnforcerStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "type": status.type,
        "limits": status.limits,
        "truncated": status.truncated,
        "every_s": status.every_s,
        "last_success": moment(status.state.last_success),
        "next_at": moment(status.state.next_at or None),
        "reason": status.state.reason or None,
    }


ENFORCERS: List[EnforcerStatus] = List(
    root="enforcers",
    show=_describe_enforcer,
    identity=Sort(value=lambda row: row.name),
    sorts={"name": Sort(value=lambda row: row.name)},
    default_sort=("name", "asc"),
    filters={"type": Filter(values=lambda row: (row.type,), valid_values=ENFORCER_TYPES)},
)


@call("GET", "/enforcers", VIEW_COSTS, "List the enforcers whose limits are read", lists=ENFORCERS)
async def list_enforcers(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list(ENFORCERS, MemoryRows(list(await _require_reader(request.services).statuses())))


@call("GET", "/enforcer-limits", VIEW_COSTS, "List limits of enforcers with our sums", lists=LIMITS)
async def list_limits(request: OperatorRequest[MoneyServices, None]) -> Result:
    auditor = request.services.enforcer_auditor
    audits = [] if auditor is None else list(await auditor().look())
    return await request.list(LIMITS, MemoryRows(audits))


@call("POST", "/enforcers/read", MODIFY_BILLING, "Read the limits of enforcers now")
async def read_enforcers(request: OperatorRequest[MoneyServices, EnforcerNames]) -> Result:
    """Read the limits now. Failures are reported in the state of each enforcer."""
    reader = _require_reader(request.services)
    names = [request.body.name] if request.body.name is not None else reader.names
    for name in names:
        reader.check(name)
    await request.registry.note_change(request.actor, "enforcer.read", ", ".join(names) or "all")
    for name in names:
        await reader.read(name)
    return {
        "enforcers": [
            _describe_enforcer(status) for status in await reader.statuses() if status.name in names
        ]
    }


def _require_reader(services: MoneyServices) -> EnforcerReader:
    if services.enforcer_reader is None:
        message = "limits cannot be read while the registry is damaged"
        raise Refusal(503, "no_enforcers", message, retry_after_s=REPAIR_RETRY_S)
    return services.enforcer_reader()
