"""
Provider bills (statements): a document for each day of a source and account, and one for each month with its
days.

See `spool.statements.StatementStore`. A day that has not changed is not written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import msgspec

from spool import statements
from spool.errors import NotAllowed, NotThere, RegistryDamaged
from spool.registry.changes import RegistryChangeWriter
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.statements import (
    DAY_S,
    ChangedStatementDay,
    Statement,
    StatementInfo,
    StatementMonth,
    StatementOutcome,
    StatementRow,
)
from spool.turns.threads import prepare_types_for_msgspec

KIND, DAY_KIND, PULL_KIND = "statement", "statement_day", "statement_pull"
MAX_MONTHS = 5000


class _StatementDay(msgspec.Struct, kw_only=True):
    """
    A day, as its month's document lists it. `until`: the latest end of its rows. `whole`: a statement covered
    the whole day.
    """

    digest: str
    rows: int
    providers: dict[str, int]
    until: int
    whole: bool
    settled: bool
    read_at: float
    imported_at: float
    billed: Decimal


class _StatementMonth(msgspec.Struct, kw_only=True):
    source: str
    account: str
    month: str
    name: str
    days: dict[str, _StatementDay]


prepare_types_for_msgspec(_StatementMonth)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatementDayChange:
    day: int
    rows: Sequence[StatementRow] | None  # None if the rows do not change
    entry: _StatementDay
    revision: ChangedStatementDay | None
    is_new: bool


class StatementTable:
    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def import_statement(
        self, statement: Statement, *, actor: Actor, dry_run: bool = False
    ) -> StatementOutcome:
        statements.check_statement(statement)
        now = self._changes.now()

        def store_statement(registry_rows: RegistryRows) -> StatementOutcome:
            outcome, changes = _compare_statement(registry_rows, statement, now)
            if changes and not dry_run:
                _write_changes(registry_rows, statement, changes)
                after = {
                    "from": statements.day_text(statement.start),
                    "to": statements.day_text(statement.end - 1),
                    "name": statement.name,
                    "rows": outcome.rows,
                    "days_changed": outcome.days_changed,
                    "days_new": outcome.days_new,
                }
                registry_rows.add_audit(
                    now,
                    actor,
                    "statement.import",
                    _audit_target(statement.source, statement.account),
                    after=after,
                )
            return outcome

        return await (
            self._changes.read(store_statement) if dry_run else self._changes.change_rows(store_statement)
        )

    async def statement_rows(self, *, provider: str | None, start: int, end: int) -> Sequence[StatementRow]:
        def read_statement_rows(registry_rows: RegistryRows) -> list[StatementRow]:
            collected: list[StatementRow] = []
            for id, month in _read_months(registry_rows).items():
                for day, entry in month.days.items():
                    if not entry.rows or statements.parse_day(day) >= end or entry.until <= start:
                        continue
                    if provider is not None and provider not in entry.providers:
                        continue
                    of_day = statements.unpack_rows(registry_rows.document(DAY_KIND, f"{id}:{day}"))
                    collected += [
                        row
                        for row in of_day
                        if row.start < end and row.end > start and provider in (None, row.provider)
                    ]
            return collected

        return await self._changes.read(read_statement_rows)

    async def statements(self) -> Sequence[StatementInfo]:
        def list_statements(registry_rows: RegistryRows) -> list[StatementInfo]:
            days: dict[tuple[str, str], dict[int, _StatementDay]] = {}
            for month in _read_months(registry_rows).values():
                of_account = days.setdefault((month.source, month.account), {})
                of_account.update({statements.parse_day(day): entry for day, entry in month.days.items()})
            return [
                info
                for (source, account), account_days in days.items()
                for info in _group_days_by_provider(source, account, account_days)
            ]

        return await self._changes.read(list_statements)

    async def months(self) -> Sequence[StatementMonth]:
        return await self._changes.read(
            lambda rows: [_describe_month(id, month) for id, month in _read_months(rows).items()]
        )

    async def delete(self, id: str, *, actor: Actor) -> None:
        def delete_statement(registry_rows: RegistryRows) -> None:
            month = _read_month(registry_rows.document(KIND, id))
            if month is None:
                raise NotThere("no statement has this id")
            for day in month.days:
                registry_rows.delete_document(DAY_KIND, f"{id}:{day}")
            registry_rows.delete_document(KIND, id)
            before = {"month": month.month, "rows": sum(entry.rows for entry in month.days.values())}
            target = _audit_target(month.source, month.account)
            registry_rows.add_audit(self._changes.now(), actor, "statement.delete", target, before=before)

        await self._changes.change_rows(delete_statement)

    async def read_pull_state(self, name: str) -> Mapping[str, Any] | None:
        return await self._changes.read(lambda rows: rows.document(PULL_KIND, name))

    async def store_pull_state(self, name: str, state: Mapping[str, Any]) -> None:
        await self._changes.change_rows(lambda rows: rows.put_document(PULL_KIND, name, state))


def _audit_target(source: str, account: str) -> str:
    return f"{source} {account}".strip()


def _compare_statement(
    registry_rows: RegistryRows, statement: Statement, now: float
) -> tuple[StatementOutcome, list[_StatementDayChange]]:
    months: dict[str, _StatementMonth | None] = {}
    changes: list[_StatementDayChange] = []
    count = 0
    for day, new_rows in statements.group_by_day(statement).items():
        text = statements.day_text(day)
        id = _month_id(statement, text)
        if id not in months:
            months[id] = _read_month(registry_rows.document(KIND, id))
        month = months[id]
        before = month.days.get(text) if month is not None else None
        stored = (
            statements.unpack_rows(registry_rows.document(DAY_KIND, f"{id}:{text}"))
            if before is not None and before.rows
            else []
        )
        after = statements.sum_rows(
            [*statements.rows_starting_outside(stored, statement.start, statement.end), *new_rows]
        )
        if len(after) > statements.MAX_DAY_ROWS:
            raise NotAllowed(
                f"{text} has {len(after)} different rows, but the limit per day and account is "
                f"{statements.MAX_DAY_ROWS}: import it with fewer columns"
            )
        count += len(after)
        change = _statement_day_change(statement, day, before, stored, after, now)
        if change is not None:
            changes.append(change)
    revisions = tuple(change.revision for change in changes if change.revision is not None)
    days_new = sum(change.is_new for change in changes)
    outcome = StatementOutcome(
        rows=count,
        days=len(list(statements.day_starts(statement.start, statement.end))),
        days_new=days_new,
        days_changed=len(changes) - days_new,
        revisions=revisions,
    )
    return outcome, changes


def _statement_day_change(
    statement: Statement,
    day: int,
    before: _StatementDay | None,
    stored_rows: Sequence[StatementRow],
    after: Sequence[StatementRow],
    now: float,
) -> _StatementDayChange | None:
    whole = statement.start <= day and day + DAY_S <= statement.end
    entry = _StatementDay(
        digest=statements.rows_digest(after),
        rows=len(after),
        providers=dict(Counter(row.provider for row in after)),
        until=max((row.end for row in after), default=day),
        whole=whole or (before is not None and before.whole),
        settled=day + DAY_S <= statement.settled_until and all(row.settled for row in after),
        read_at=statement.read_at,
        imported_at=now,
        billed=statements.billed_total(after),
    )
    if before is not None and (before.digest, before.whole, before.settled) == (
        entry.digest,
        entry.whole,
        entry.settled,
    ):
        return None
    revision = None
    if before is not None:
        revision = ChangedStatementDay(
            day=day,
            billed_before=statements.billed_total(stored_rows),
            billed=entry.billed,
            tokens_before=statements.token_total(stored_rows),
            tokens=statements.token_total(after),
        )
        if (revision.billed_before, revision.tokens_before) == (revision.billed, revision.tokens):
            revision = None
    changed = before is None or before.digest != entry.digest
    return _StatementDayChange(
        day=day, rows=after if changed else None, entry=entry, revision=revision, is_new=before is None
    )


def _write_changes(
    registry_rows: RegistryRows, statement: Statement, changes: Sequence[_StatementDayChange]
) -> None:
    months: dict[str, _StatementMonth] = {}
    for change in changes:
        text = statements.day_text(change.day)
        id = _month_id(statement, text)
        if id not in months:
            months[id] = _read_month(registry_rows.document(KIND, id)) or _new_month(
                registry_rows, statement, text[:7]
            )
        months[id].name = statement.name
        months[id].days[text] = change.entry
        if change.rows is not None:
            registry_rows.put_document(DAY_KIND, f"{id}:{text}", {"rows": statements.pack_rows(change.rows)})
    for id, month in months.items():
        month.days = dict(sorted(month.days.items()))
        registry_rows.put_document(KIND, id, msgspec.to_builtins(month))


def _new_month(registry_rows: RegistryRows, statement: Statement, month: str) -> _StatementMonth:
    if len(registry_rows.documents(KIND)) >= MAX_MONTHS:
        raise NotAllowed(
            f"the limit of {MAX_MONTHS} months of statements is reached: delete some with tollhouse "
            "reconcile statements delete ID"
        )
    return _StatementMonth(
        source=statement.source, account=statement.account, month=month, name=statement.name, days={}
    )


def _month_id(statement: Statement, day: str) -> str:
    return statements.statement_id(statement.source, statement.account, day[:7])


def _read_months(registry_rows: RegistryRows) -> dict[str, _StatementMonth]:
    months = {id: _read_month(body) for id, body in registry_rows.documents(KIND).items()}
    return {id: month for id, month in months.items() if month is not None}


def _read_month(body: Mapping[str, Any] | None) -> _StatementMonth | None:
    if body is None:
        return None
    try:
        return msgspec.convert(body, _StatementMonth)
    except msgspec.ValidationError as error:
        raise RegistryDamaged(f"a stored statement cannot be read: {error}") from error


def _group_days_by_provider(
    source: str, account: str, days: Mapping[int, _StatementDay]
) -> list[StatementInfo]:
    """
    Group days that follow each other, by provider. A day without rows counts for every provider of the
    source.
    """
    runs: list[StatementInfo] = []
    for provider in sorted({provider for entry in days.values() for provider in entry.providers}):
        run: StatementInfo | None = None
        for day, entry in sorted(days.items()):
            info = StatementInfo(
                source=source,
                provider=provider,
                account=account,
                start=day,
                end=day + DAY_S,
                settled=entry.settled and entry.whole,
                imported_at=entry.imported_at,
                rows=entry.providers.get(provider, 0),
                digests=(entry.digest,),
            )
            if run is not None and _is_directly_continued_by(run, info):
                run = replace(
                    run, end=info.end, rows=run.rows + info.rows, digests=(*run.digests, entry.digest)
                )
            else:
                if run is not None:
                    runs.append(run)
                run = info
        if run is not None:
            runs.append(run)
    return runs


def _is_directly_continued_by(run: StatementInfo, info: StatementInfo) -> bool:
    return (run.end, run.settled, run.imported_at) == (info.start, info.settled, info.imported_at)


def _describe_month(id: str, month: _StatementMonth) -> StatementMonth:
    entries = list(month.days.values())
    return StatementMonth(
        id=id,
        source=month.source,
        account=month.account,
        month=month.month,
        providers=tuple(sorted({provider for entry in entries for provider in entry.providers})),
        days=len(entries),
        settled=sum(entry.settled and entry.whole for entry in entries),
        rows=sum(entry.rows for entry in entries),
        billed=statements.normalize_amount(statements.sum_amounts(entry.billed for entry in entries)),
        name=month.name,
        read_at=max((entry.read_at for entry in entries), default=0.0),
        imported_at=max((entry.imported_at for entry in entries), default=0.0),
    )
