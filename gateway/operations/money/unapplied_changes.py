"""
Changes of contracts and own prices whose terms earlier calls do not have. New terms apply to new calls, and earlier
calls keep their estimates until they are recalculated.

The changes are those of the audit list, which is stored with each change. A change is applied if a recalculation
that began after it covers the first of its calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.bills.contracts.declared import ContractTable
from gateway.intake.price_terms import KINDS, is_pattern_match
from gateway.money.insights.detector_facts import DAY_S, UnappliedChange
from gateway.operations.money.own_prices import PriceTable
from spool import providers
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.listing import ListQuery, SortField
from spool.registry.audit import AuditRow
from spool.registry.documents import stored_body
from spool.registry.registry import Registry
from spool.statements import parse_day

MAX_CHANGES = 1000  # newest changes that are read
_TABLES: Mapping[str, type[ContractTable | PriceTable]] = {"contract": ContractTable, "price": PriceTable}
_ACTIONS = tuple(f"{kind}.{verb}" for kind in _TABLES for verb in ("create", "change", "delete"))

_Item = tuple[str, str]  # a kind of _TABLES, and an id


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChangedItem:
    """The calls that a changed contract or price may cover, before and after its changes."""

    kind: str
    name: str
    since: float  # the first day, or the first stored one
    changed_at: float
    providers: Collection[str]  # empty for all providers
    models: Collection[str]  # patterns of a price; a contract's models may be names of deployments

    @property
    def day_of_change(self) -> float:
        return self.changed_at // DAY_S * DAY_S

    def covers(self, row: CostRow) -> bool:
        provider, model = row.group
        return (
            self.since <= row.start.timestamp() < self.changed_at
            and (not self.providers or providers.canonical_provider_name(provider or "") in self.providers)
            and (not self.models or any(is_pattern_match(pattern, model or "") for pattern in self.models))
        )


async def find_unapplied_changes(registry: Registry, ledger: Ledger) -> Sequence[UnappliedChange]:
    """Return the changes that wait for a recalculation, and have calls from before them."""
    stored = await ledger.stored_span()
    if stored is None:
        return []
    first_stored = stored[0].timestamp() // DAY_S * DAY_S
    applied = [(made.began, made.since) for made in await ledger.recalculations()]

    def is_applied(change: _ChangedItem | UnappliedChange) -> bool:
        return any(began > change.changed_at and since <= change.since for began, since in applied)

    items = [
        _read_changed_item(registry, kind, id, rows, first_stored)
        for (kind, id), rows in (await _audit_rows_by_item(registry)).items()
    ]
    changed = [item for item in items if item and item.since < item.changed_at and not is_applied(item)]
    found = await _count_calls(ledger, changed) if changed else []
    return [change for change in found if not is_applied(change)]


async def _audit_rows_by_item(registry: Registry) -> Mapping[_Item, Sequence[AuditRow]]:
    query = ListQuery(
        sort=SortField("id"), order="desc", identity="id", limit=MAX_CHANGES, filters={"action": _ACTIONS}
    )
    rows_by_item: dict[_Item, list[AuditRow]] = defaultdict(list)
    for row in (await registry.audit_page(query)).rows:
        rows_by_item[row.action.partition(".")[0], row.target].append(row)
    return rows_by_item


def _read_changed_item(
    registry: Registry, kind: str, id: str, rows: Sequence[AuditRow], first_stored: float
) -> _ChangedItem | None:
    """Return an item, or None if no change concerns a price. `rows`: its changes, the newest first."""
    rows = [row for row in rows if {*(row.before or ()), *(row.after or ())} != {"name"}]
    now = registry.declared_table(_TABLES[kind]).find(id)
    versions: list[Mapping[str, Any]] = [
        *([] if now is None else [stored_body(now)]),
        *(fields for row in rows for fields in (row.before, row.after) if fields),
    ]
    kinds_of_terms = {term["kind"] for fields in versions for term in fields.get("terms", ())}
    if not rows or (kinds_of_terms and kinds_of_terms.isdisjoint(KINDS)):
        return None
    days = _values(versions, "since")
    return _ChangedItem(
        kind=kind,
        name=_values(versions, "name" if kind == "contract" else "model")[0],
        since=max(first_stored, min(parse_day(day) if day else 0.0 for day in days)),
        changed_at=max(row.at for row in rows),
        providers=_unless_any_is_empty(
            [providers.canonical_provider_name(name) for name in _values(versions, "provider")]
        ),
        models=() if kind == "contract" else _unless_any_is_empty(_values(versions, "model")),
    )


def _values(versions: Iterable[Mapping[str, Any]], name: str) -> Sequence[str]:
    return list(dict.fromkeys(str(fields[name]) for fields in versions if name in fields))


def _unless_any_is_empty(names: Sequence[str]) -> Collection[str]:
    return names if all(names) else ()


async def _count_calls(ledger: Ledger, changed: Sequence[_ChangedItem]) -> Sequence[UnappliedChange]:
    """Count the calls before each change: by days, and by hours on its day. The hour of the change counts as before."""
    begin = min(item.since for item in changed) // DAY_S * DAY_S
    days = {item.day_of_change for item in changed}
    by_day = await _calls(ledger, "daily", begin, max(days))
    hourly_since = (await ledger.hourly_sums_start()).timestamp()
    by_hour = {
        day: await _calls(ledger, "hourly", day, day + DAY_S) if day >= hourly_since else [] for day in days
    }
    found = []
    for item in changed:
        day = item.day_of_change
        earlier = [row for row in by_day if row.start.timestamp() < day]
        rows = [row for row in earlier + by_hour[day] if item.covers(row)]
        if rows:
            found.append(
                UnappliedChange(
                    kind=item.kind,
                    name=item.name,
                    since=min(row.start.timestamp() for row in rows) // DAY_S * DAY_S,
                    calls=sum(row.calls for row in rows),
                    changed_at=item.changed_at,
                )
            )
    return found


async def _calls(ledger: Ledger, per: str, since: float, until: float) -> list[CostRow]:
    query = CostQuery(
        since=datetime.fromtimestamp(since, UTC),
        until=datetime.fromtimestamp(until, UTC),
        granularity=per,
        group_by=("provider", "model"),
        measures=("calls",),
    )
    return list(await ledger.costs(query))
