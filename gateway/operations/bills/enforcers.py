"""Handlers of the operator API for limits that others enforce: list them with our sums, and read them now."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.bills.enforcers.auditing import LimitAudit
from gateway.bills.enforcers.reader import EnforcerReader, EnforcerStatus
from gateway.configuration.sections import ENFORCER_TYPES
from gateway.core.errors import REPAIR_RETRY_S, Refusal
from gateway.core.fields import build_answer, one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS

AGREES, DIFFERS, NOT_COMPARED = "agrees", "differs", "not_compared"


class EnforcerNames(RequestBody):
    """A request to read the limits of one enforcer or of all."""

    name: Annotated[str | None, words("The name of one of `[[enforcers]]`; without it, all are read.")] = None


def _audit_state(audit: LimitAudit) -> str:
    if audit.faults:
        return DIFFERS
    return NOT_COMPARED if audit.reason or audit.limit.spent is None else AGREES


def _describe_limit(audit: LimitAudit) -> dict[str, object]:
    limit, band = audit.limit, audit.band
    return build_answer(
        EnforcerLimitItem,
        limit,
        id="/".join((audit.enforcer, *limit.key)),
        enforcer=audit.enforcer,
        ours_at_least=None if band is None else f"{band.low:f}",
        ours_at_most=None if band is None else f"{band.high:f}",
        window=limit.window or None,
        starts_at=utc_iso(limit.starts_at),
        resets_at=utc_iso(limit.ends_at),
        read_at=utc_iso(audit.read_at),
        compared_at=utc_iso(audit.judged_at),
        state=_audit_state(audit),
        reason=audit.reason or None,
        faults=[fault.title for fault in audit.faults],
    )


LIMITS: ListDefinition[LimitAudit] = ListDefinition(
    root="enforcer_limits",
    show=_describe_limit,
    identity=Sort(value=lambda row: "/".join((row.enforcer, *row.limit.key))),
    sorts={"name": Sort(value=lambda row: row.limit.name), "enforcer": Sort(value=lambda row: row.enforcer)},
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
    return build_answer(
        EnforcerItem,
        status,
        last_success=utc_iso(status.state.last_success),
        next_at=utc_iso(status.state.next_at or None),
        reason=status.state.reason or None,
    )


ENFORCERS: ListDefinition[EnforcerStatus] = ListDefinition(
    root="enforcers",
    show=_describe_enforcer,
    identity=Sort(value=lambda row: row.name),
    sorts={"name": Sort(value=lambda row: row.name)},
    default_sort=("name", "asc"),
    filters={"type": Filter(values=lambda row: (row.type,), valid_values=ENFORCER_TYPES)},
)


class EnforcerItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the enforcer."), example("litellm-eu")]
    type: Annotated[str, words("The type of the enforcer."), example("litellm")]
    limits: Annotated[int, words("The number of limits that were read."), example(41)]
    truncated: Annotated[
        bool, words("Whether further limits were not read, because there are too many."), example(False)
    ]
    every_s: Annotated[float, words("The seconds between two readings."), example(900.0)]
    last_success: Annotated[
        str | None, words("When the limits were last read, or null."), example("2026-11-27T01:45:24.022Z")
    ]
    next_at: Annotated[
        str | None, words("When the limits are read next, or null."), example("2026-11-27T02:00:24.022Z")
    ]
    reason: Annotated[str | None, words("Why the last reading failed, or null."), example(None)]


class EnforcerLimitItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the limit."), example("litellm-eu/key/88dc28//month")]
    enforcer: Annotated[str, words("The name of the enforcer that has the limit."), example("litellm-eu")]
    kind: Annotated[str, words("What the limit is for, such as `key` or `team`."), example("key")]
    name: Annotated[str, words("The name of the key, team or other owner of the limit."), example("ci")]
    limit: Annotated[str | None, words("The amount that the enforcer allows, or null."), example("50.0")]
    spent: Annotated[
        str | None, words("The amount that the enforcer counts as spent, or null."), example("12.31")
    ]
    ours_at_least: Annotated[
        str | None,
        words(
            "The lowest cost that Tollhouse may have counted in the window until the counter was read, or null."
        ),
        example("24.18"),
    ]
    ours_at_most: Annotated[
        str | None,
        words(
            "The highest cost that Tollhouse may have counted in the window until the counter was read, or null."
        ),
        example("24.71"),
    ]
    currency: Annotated[str, words("The currency of the amounts."), example("USD")]
    window: Annotated[
        str | None,
        words("The length after which the limit begins again, such as `month`, or null."),
        example("month"),
    ]
    starts_at: Annotated[
        str | None,
        words("When the current window began, or null if it is unknown."),
        example("2026-11-01T00:00:00.000Z"),
    ]
    resets_at: Annotated[
        str | None,
        words("When the current window ends, or null if it is unknown."),
        example("2026-12-01T00:00:00.000Z"),
    ]
    enforcing: Annotated[bool, words("Whether the enforcer rejects calls above the limit."), example(True)]
    read_at: Annotated[str, words("When the limit was read."), example("2026-11-27T01:45:24.022Z")]
    compared_at: Annotated[
        str | None,
        words("When the limit was last compared with the counted cost, or null."),
        example("2026-11-27T01:00:24.022Z"),
    ]
    state: Annotated[str, words("`agrees`, `differs` or `not_compared`."), example("differs")]
    reason: Annotated[str | None, words("Why the limit was not compared, or null."), example(None)]
    faults: Annotated[
        list[str],
        words("The differences that were found."),
        example([("The limit of key ci counts less than its calls cost: $12.31, ours $24.18 to $24.71")]),
    ]


@operator_call(
    "GET",
    "/enforcers",
    VIEW_COSTS,
    "List the enforcers whose limits are read",
    lists=ENFORCERS,
    item=EnforcerItem,
)
async def list_enforcers(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list_page(
        ENFORCERS, MemoryRows(list(await _require_reader(request.services).statuses()))
    )


@operator_call(
    "GET",
    "/enforcer-limits",
    VIEW_COSTS,
    "List limits of enforcers with our sums",
    lists=LIMITS,
    item=EnforcerLimitItem,
)
async def list_limits(request: OperatorRequest[MoneyServices, None]) -> Result:
    auditor = request.services.enforcer_auditor
    audits = [] if auditor is None else list(await auditor().audit_limits())
    return await request.list_page(LIMITS, MemoryRows(audits))


@operator_call(
    "POST",
    "/enforcers/read",
    MODIFY_BILLING,
    "Read the limits of enforcers now",
    answers=one_field_answer(
        "ReadEnforcersAnswer",
        enforcers=Annotated[list[EnforcerItem], words("The enforcers, each with the fields below.")],
    ),
)
async def read_enforcers(request: OperatorRequest[MoneyServices, EnforcerNames]) -> Result:
    """Read the limits now. Failures are reported in the state of each enforcer."""
    reader = _require_reader(request.services)
    names = [request.body.name] if request.body.name is not None else reader.names
    for name in names:
        reader.check_is_configured(name)
    await request.registry.audit_change(request.actor, "enforcer.read", ", ".join(names) or "all")
    for name in names:
        await reader.read_enforcer(name)
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
