"""
Provider bills (statements) in a registry: imports, what counts of them, and the progress of pulls.

See `spool.statements.StatementStore`. An import that changes no day is not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spool import statements
from spool.errors import NotAllowed, NotThere, WouldRemove
from spool.registry.changes import RegistryChangeWriter
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.tables.statement_ledger import (
    IMPORT_KIND,
    KIND,
    StatementDay,
    StatementLedger,
    StatementMonthIndex,
    describe_imports,
    read_import,
    read_month,
    read_rows,
)
from spool.statements import (
    ACCRUED,
    DAY_S,
    KEEP_REPLACED_S,
    PULL,
    REQUESTS,
    SEATS,
    BilledRow,
    ChangedStatementDay,
    Statement,
    StatementImportInfo,
    StatementInfo,
    StatementMonth,
    StatementOutcome,
    StatementRow,
)

PULL_KIND = "statement_pull"
CLOSED_KIND = "closed_month"
MOST_NAMED = 10  # maximum days that an error names


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatementDayChange:
    day: int
    revision: ChangedStatementDay | None
    is_new: bool
    loss: str = ""  # why the change needs consent, or ""


class StatementTable:
    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def import_statement(
        self,
        statement: Statement,
        *,
        actor: Actor,
        way: str = statements.FILE,
        add_to: str = "",
        dry_run: bool = False,
        replace: bool = False,
        keep_replaced_s: float = KEEP_REPLACED_S,
    ) -> StatementOutcome:
        await asyncio.to_thread(statements.check_statement, statement)
        now = self._changes.now()

        def store_statement(registry_rows: RegistryRows) -> StatementOutcome:
            ledger = StatementLedger(registry_rows, statement.source, statement.account)
            by_day = statements.group_by_day(statement)
            ledger.load_months(map(statements.day_text, by_day))
            base = ledger.require_base(add_to) if add_to else None
            already = ledger.find_repeated_import(statement.files, needs_all=base is None)
            if base is not None and already:
                return StatementOutcome(rows=0, days=0, days_new=0, days_changed=0, already=already)
            new = ledger.add_import(statement, by_day, base=base, actor=actor.name, way=way, now=now)
            changes = list(_day_changes(ledger, statement, by_day))
            if not replace:
                _refuse_removal(changes)
            is_stored = bool(changes) and not dry_run
            days_new = sum(change.is_new for change in changes)
            outcome = StatementOutcome(
                rows=sum(
                    day.rows for text in map(statements.day_text, by_day) if (day := ledger.derived_day(text))
                ),
                days=len(by_day),
                days_new=days_new,
                days_changed=len(changes) - days_new,
                revisions=tuple(change.revision for change in changes if change.revision is not None),
                id=new.id if is_stored else "",
                already="" if changes else already,
            )
            if is_stored:
                ledger.delete_replaced(now, keep_replaced_s, newest=new.id, is_pull=way == PULL)
                ledger.store()
                after = {
                    "id": new.id,
                    "from": statements.day_text(statement.start),
                    "to": statements.day_text(statement.end - 1),
                    "name": statement.name,
                    "rows": outcome.rows,
                    "days_changed": outcome.days_changed,
                    "days_new": outcome.days_new,
                }
                target = _audit_target(statement.source, statement.account)
                registry_rows.add_audit(now, actor, "statement.import", target, after=after)
            return outcome

        return await (
            self._changes.read(store_statement) if dry_run else self._changes.change_rows(store_statement)
        )

    async def imports(self) -> Sequence[StatementImportInfo]:
        return await self._changes.read(_read_imports)

    async def undo(self, id: str, *, actor: Actor) -> StatementImportInfo:
        def undo_import(registry_rows: RegistryRows) -> StatementImportInfo:
            body = registry_rows.document(IMPORT_KIND, id)
            if body is None:
                raise NotThere("no import has this id; list them with tollhouse reconcile imports")
            stored = read_import(body)
            if stored.undone_at:
                raise NotAllowed(f"{id} is already undone")
            ledger = StatementLedger(registry_rows, stored.source, stored.account)
            ledger.load_months(stored.days)
            now = self._changes.now()
            ledger.undo(id, actor=actor.name, now=now)
            _refuse_change_of_closed_months(registry_rows, id, ledger, stored.days)
            ledger.store()
            registry_rows.add_audit(
                now,
                actor,
                "statement.undo",
                _audit_target(stored.source, stored.account),
                before={"id": id, "name": stored.name, "rows": stored.rows},
            )
            return next(info for info in _read_imports(registry_rows) if info.id == id)

        return await self._changes.change_rows(undo_import)

    async def statement_rows(self, *, provider: str | None, start: int, end: int) -> Sequence[StatementRow]:
        stored = await self._stored_rows(provider, start, end)
        return [row for _, row in stored if row.start < end and row.end > start]

    async def billed_rows(self, *, provider: str | None, start: int, end: int) -> Sequence[BilledRow]:
        stored = await self._stored_rows(provider, start, end)
        billed = (statements.to_billed_row(row, day) for day, row in stored)
        return [each for each in billed if each.billed_days[0] < end and each.billed_days[-1] >= start]

    async def _stored_rows(
        self, provider: str | None, start: int, end: int
    ) -> list[tuple[int, StatementRow]]:
        """Return the rows of stored days that may have use, or be billed, within a time, each with its stored day."""

        def read_stored_rows(registry_rows: RegistryRows) -> list[tuple[int, StatementRow]]:
            collected: list[tuple[int, StatementRow]] = []
            for id, month in _read_months(registry_rows).items():
                for text, entry in month.days.items():
                    is_within = entry.since < end and entry.until > start
                    if not entry.rows or not is_within or provider not in (None, *entry.providers):
                        continue
                    day, of_day = statements.parse_day(text), read_rows(registry_rows, id, text, entry.parts)
                    collected += [(day, row) for row in of_day if provider in (None, row.provider)]
            return collected

        return await self._changes.read(read_stored_rows)

    async def statements(self) -> Sequence[StatementInfo]:
        def list_statements(registry_rows: RegistryRows) -> list[StatementInfo]:
            days: dict[tuple[str, str], dict[int, StatementDay]] = {}
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

    async def read_pull_state(self, name: str) -> Mapping[str, Any] | None:
        return await self._changes.read(lambda rows: rows.document(PULL_KIND, name))

    async def store_pull_state(self, name: str, state: Mapping[str, Any]) -> None:
        await self._changes.change_rows(lambda rows: rows.put_document(PULL_KIND, name, state))


def _audit_target(source: str, account: str) -> str:
    return f"{source} {account}".strip()


def _read_imports(registry_rows: RegistryRows) -> list[StatementImportInfo]:
    return describe_imports(read_import(body) for _, body in registry_rows.each_document(IMPORT_KIND))


def _refuse_change_of_closed_months(
    registry_rows: RegistryRows, id: str, ledger: StatementLedger, days: Iterable[str]
) -> None:
    """Raise NotAllowed if the figures of a closed month would change. Its months are those of its provider's rows."""
    for day in sorted(days):
        before, after = ledger.indexed_day(day), ledger.derived_day(day)
        if before is not None and after is not None and before.digest == after.digest:
            continue
        for provider in sorted({*(before.providers if before else ()), *(after.providers if after else ())}):
            if registry_rows.document(CLOSED_KIND, f"{provider}:{day[:7]}") is not None:
                raise NotAllowed(
                    f"the closed month {day[:7]} of {provider} rests on {id}. Reopen it first: tollhouse billed "
                    f"reopen --provider {provider} --month {day[:7]}"
                )


def _day_changes(
    ledger: StatementLedger, statement: Statement, by_day: Iterable[int]
) -> Iterator[_StatementDayChange]:
    for day in by_day:
        text = statements.day_text(day)
        before, after = ledger.indexed_day(text), ledger.derived_day(text)
        if after is None or (before and (before.digest, before.settled) == (after.digest, after.settled)):
            continue
        if after.rows > statements.MAX_DAY_ROWS:
            raise NotAllowed(
                f"{text} has {after.rows} different rows, but the limit per day and account is "
                f"{statements.MAX_DAY_ROWS}: import it with fewer columns"
            )
        yield _day_change(ledger, statement, day, before, after)


def _day_change(
    ledger: StatementLedger, statement: Statement, day: int, before: StatementDay | None, after: StatementDay
) -> _StatementDayChange:
    if before is None:
        return _StatementDayChange(day=day, revision=None, is_new=True)
    loss, revision = "", None
    if before.digest != after.digest:
        text = statements.day_text(day)
        had, has = ledger.rows_of(text, before), ledger.rows_of(text, after)
        tokens_before, tokens = statements.token_total(had), statements.token_total(has)
        if (before.billed, tokens_before) != (after.billed, tokens):
            revision = ChangedStatementDay(
                day=day,
                billed_before=before.billed,
                billed=after.billed,
                tokens_before=tokens_before,
                tokens=tokens,
            )
        loss = _loss(had, has) if before.settled else ""
        if statement.read_at < before.read_at:
            loss = loss or "the stored report is newer"
    return _StatementDayChange(day=day, revision=revision, is_new=False, loss=loss)


def _loss(stored_rows: Sequence[StatementRow], after: Sequence[StatementRow]) -> str:
    """Return the first sum of tokens or money that would fall below half, with both figures, or ""."""
    before_by_unit, after_by_unit = (
        {unit: [row.amount for row in rows if row.unit == unit] for unit in {row.unit for row in stored_rows}}
        for rows in (stored_rows, after)
    )
    for unit in sorted(before_by_unit.keys() - {REQUESTS, SEATS, ACCRUED}):
        had = statements.sum_amounts(before_by_unit[unit])
        has = statements.sum_amounts(after_by_unit[unit])
        if had > 0 and 2 * has < had:
            return f"{statements.normalize_amount(had):f} {unit} would become {statements.normalize_amount(has):f}"
    return ""


def _refuse_removal(changes: Sequence[_StatementDayChange]) -> None:
    """Raise WouldRemove if changes lose final figures, with the first days of them."""
    lost = [change for change in changes if change.loss]
    if not lost:
        return
    days = [f"{statements.day_text(change.day)}: {change.loss}" for change in lost[:MOST_NAMED]]
    more = f"; and {len(lost) - MOST_NAMED} more days" if len(lost) > MOST_NAMED else ""
    raise WouldRemove(
        f"nothing was stored, because it would remove stored figures. {'; '.join(days)}{more}. Import the whole "
        "report, or accept this with --replace (`replace` in the API)"
    )


def _read_months(registry_rows: RegistryRows) -> dict[str, StatementMonthIndex]:
    months = {id: read_month(body) for id, body in registry_rows.documents(KIND).items()}
    return {id: month for id, month in months.items() if month is not None and month.days}


def _group_days_by_provider(
    source: str, account: str, days: Mapping[int, StatementDay]
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
                settled=entry.settled,
                imported_at=entry.imported_at,
                rows=entry.providers.get(provider, 0),
                used_from=entry.since,
                used_until=entry.until,
                digests=(entry.digest,),
            )
            if run is not None and _is_directly_continued_by(run, info):
                run = replace(
                    run,
                    end=info.end,
                    rows=run.rows + info.rows,
                    used_from=min(run.used_from, info.used_from),
                    used_until=max(run.used_until, info.used_until),
                    digests=(*run.digests, entry.digest),
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


def _describe_month(id: str, month: StatementMonthIndex) -> StatementMonth:
    entries = list(month.days.values())
    return StatementMonth(
        id=id,
        source=month.source,
        account=month.account,
        month=month.month,
        providers=tuple(sorted({provider for entry in entries for provider in entry.providers})),
        days=len(entries),
        settled=sum(entry.settled for entry in entries),
        rows=sum(entry.rows for entry in entries),
        billed=statements.normalize_amount(statements.sum_amounts(entry.billed for entry in entries)),
        name=month.name,
        read_at=max((entry.read_at for entry in entries), default=0.0),
        imported_at=max((entry.imported_at for entry in entries), default=0.0),
    )
