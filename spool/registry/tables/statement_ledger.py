"""
The ledger of imported bills: a document for each import, for the rows of each of its days, and for each month.

One rule decides what counts: a row counts unless a newer import covers its bill on its day (`count_day`). A month's
document is an index of what counts, derived from the imports with each change. Equal rows of a day share one document,
so an import that repeats a day stores no rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from spool import statements
from spool.errors import NotAllowed, NotThere, RegistryDamaged
from spool.registry.registry_rows import RegistryRows
from spool.statements import (
    COUNTS,
    DAY_S,
    IN_PART,
    PULL,
    REPLACED,
    UNDONE,
    CoveredDays,
    ImportedDayInfo,
    ImportedFile,
    Statement,
    StatementImportInfo,
    StatementRow,
)
from spool.turns.threads import prepare_types_for_msgspec

KIND, IMPORT_KIND, ROWS_KIND = "statement", "statement_import", "statement_rows"
NUMBER_KIND, NUMBER_ID = "statement_import_number", "newest"
MAX_MONTHS = 5000
_DIGEST_CHARACTERS = 32  # of the id of a day's rows: 128 bits, so equal ids mean equal rows
_HOUR_S = 3600  # rows of a day that is covered in part are compared by hour

Document = TypeVar("Document", bound=msgspec.Struct)


class Part(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """
    Rows of one bill on one day of an import. `since`, `until`: their time of use. `billed_days`: the first and the last
    day on which the bill has them. `is_whole`: whether the import covers the whole day.
    """

    bill: str
    digest: str
    rows: int
    providers: dict[str, int]
    since: int
    until: int
    billed_days: tuple[int, int]
    settled: bool
    billed: Decimal
    is_whole: bool = True

    def shares_time_with(self, other: Part) -> bool:
        if self.is_whole or not (self.bill == other.bill or not self.bill or not other.bill):
            return False
        return other.is_whole or (self.since < other.until and other.since < self.until)


class ImportedDay(msgspec.Struct, kw_only=True, frozen=True):
    """
    A day of an import. `covers`: the bills of which the import has every row of this day. `read_at` and `imported_at`
    are those of the import that first had these figures, so an import that repeats them changes no answer.
    """

    covers: list[str]
    settled: bool
    read_at: float
    imported_at: float
    parts: list[Part]

    def replaces(self, bill: str) -> bool:
        """Return whether older rows of a bill are replaced. Rows without a bill belong to any bill."""
        return any(not covered or bill in ("", covered) for covered in self.covers)


class StoredImport(msgspec.Struct, kw_only=True):
    """`order`: the number of the import that this one adds to, or its own. Newer imports have larger ones."""

    number: int
    order: int
    source: str
    account: str
    way: str
    actor: str
    name: str
    files: list[ImportedFile]
    covers: list[CoveredDays]
    read_at: float
    imported_at: float
    rows: int
    billed: Decimal
    days: dict[str, ImportedDay]
    add_to: str = ""
    undone_at: float = 0
    undone_by: str = ""

    @property
    def id(self) -> str:
        return f"imp_{self.number}"


class StatementDay(msgspec.Struct, kw_only=True):
    """
    A day, as its month's document lists it. `since`, `until`: the time of use of its rows, and of their days on
    bills. `parts`: the digests of the rows that count.
    """

    digest: str
    rows: int
    providers: dict[str, int]
    since: int
    until: int
    settled: bool
    read_at: float
    imported_at: float
    billed: Decimal
    parts: list[str]


class StatementMonthIndex(msgspec.Struct, kw_only=True):
    source: str
    account: str
    month: str
    name: str
    imports: list[str]
    days: dict[str, StatementDay]


prepare_types_for_msgspec(StatementMonthIndex, StoredImport)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedDay:
    """
    The parts that count on a day. `replaced_by`: by id of each import of which nothing counts any more, the import
    that replaced it. `overlap`: by id, the rows whose time an older import already has.
    """

    counting: Sequence[tuple[str, Part]]
    replaced_by: Mapping[str, str]
    overlap: Mapping[str, int]


def count_day(imports: Sequence[StoredImport], day: str) -> CountedDay:
    """Return what counts on a day: a row counts unless a newer import covers its bill on this day."""
    counting: list[tuple[str, Part]] = []
    replaced_by: dict[str, str] = {}
    overlap: dict[str, int] = {}
    # by id: the bills with rows, and the covered ones, that no newer import has replaced
    left: dict[str, tuple[set[str], set[str]]] = {}
    for each in sorted(imports, key=lambda each: (each.order, each.number)):
        entry = each.days.get(day)
        if entry is None or each.undone_at:
            continue
        counting = [(id, part) for id, part in counting if not entry.replaces(part.bill)]
        for id, (bills, covered) in left.items():
            bills -= {bill for bill in bills if entry.replaces(bill)}
            covered -= covered if "" in entry.covers else {*entry.covers}
            if not bills and not covered:
                replaced_by.setdefault(id, each.id)
        parts = [
            part
            for part in entry.parts
            if each.add_to or not any(part.shares_time_with(other) for _, other in counting)
        ]
        if len(parts) < len(entry.parts):
            overlap[each.id] = sum(part.rows for part in entry.parts) - sum(part.rows for part in parts)
        counting += [(each.id, part) for part in parts]
        left[each.id] = {part.bill for part in entry.parts}, {*entry.covers}
    return CountedDay(counting=counting, replaced_by=replaced_by, overlap=overlap)


def index_day(imports: Sequence[StoredImport], day: str) -> StatementDay | None:
    """Return the entry of a day in its month's document, or None if no import has the day."""
    counted = count_day(imports, day)
    counting = {id for id, _ in counted.counting}
    # an import of which all rows are an overlap says nothing about the day
    having = [
        each
        for each in imports
        if day in each.days and not each.undone_at and (each.id in counting or each.days[day].covers)
    ]
    if not having:
        return None
    ordered = sorted(having, key=lambda each: (each.order, each.number))
    newest = ordered[-1].days[day]
    # hours that are added to a whole day leave it final
    whole = [entry for each in ordered if (entry := each.days[day]).covers] or [newest]
    parts = sorted(
        (part for _, part in counted.counting),
        key=lambda part: (part.bill, part.since, part.until, part.digest),
    )
    providers = Counter[str]()
    for part in parts:
        providers.update(part.providers)
    digests = [part.digest for part in parts]
    start = statements.parse_day(day)
    return StatementDay(
        digest=digests[0] if len(digests) == 1 else sha256(" ".join(digests).encode()).hexdigest(),
        rows=sum(part.rows for part in parts),
        providers=dict(sorted(providers.items())),
        since=min((min(part.since, part.billed_days[0]) for part in parts), default=start),
        until=max((max(part.until, part.billed_days[1] + DAY_S) for part in parts), default=start),
        settled=whole[-1].settled and all(part.settled for part in parts),
        read_at=newest.read_at,
        imported_at=newest.imported_at,
        billed=statements.normalize_amount(statements.sum_amounts(part.billed for part in parts)),
        parts=digests,
    )


class StatementLedger:
    """Imports of one source and account within a transaction. Only loaded months are read and changed."""

    def __init__(self, registry_rows: RegistryRows, source: str, account: str) -> None:
        self._registry_rows = registry_rows
        self._source = source
        self._account = account
        self._imports: dict[str, StoredImport] = {}
        self._months: dict[str, StatementMonthIndex | None] = {}
        self._added: list[str] = []
        self._changed: set[str] = set()  # ids of imports that differ from their documents
        self._dropped: set[tuple[str, str]] = set()  # day and digest of rows that an import no longer has
        self._new_rows: dict[tuple[str, str], Sequence[StatementRow]] = {}  # by day and digest

    def load_months(self, days: Iterable[str]) -> None:
        for month in {day[:7] for day in days} - self._months.keys():
            index = read_month(self._registry_rows.document(KIND, self._month_id(month)))
            self._months[month] = index
            missing = [id for id in (index.imports if index else ()) if id not in self._imports]
            if missing:
                found = self._registry_rows.documents(IMPORT_KIND, missing)
                self._imports |= {id: read_import(body) for id, body in found.items()}

    def indexed_day(self, day: str) -> StatementDay | None:
        index = self._months[day[:7]]
        return None if index is None else index.days.get(day)

    def count(self, day: str) -> CountedDay:
        return count_day([*self._imports.values()], day)

    def derived_day(self, day: str) -> StatementDay | None:
        return index_day([*self._imports.values()], day)

    def require_base(self, id: str) -> StoredImport:
        """Return the import that rows are added to. Raises NotAllowed if none of it counts."""
        body = self._registry_rows.document(IMPORT_KIND, id)
        base = None if body is None else read_import(body)
        if base is None or (base.source, base.account) != (self._source, self._account):
            raise NotThere(f"{id} is no import of this source and account")
        self.load_months(base.days)
        if base.undone_at or all(id in self.count(day).replaced_by for day in base.days):
            raise NotAllowed(
                f"{id} no longer counts, so nothing can be added to it. Import the files without it"
            )
        return base

    def find_repeated_import(self, files: Sequence[ImportedFile], *, needs_all: bool) -> str:
        """Return the newest import that counts and has all files, or any of them, or ""."""
        digests = {file.digest for file in files if file.digest}
        for each in sorted(self._imports.values(), key=lambda each: -each.number):
            known = digests & {file.digest for file in each.files}
            if known and not each.undone_at and (known == digests or not needs_all):
                return each.id
        return ""

    def add_import(
        self,
        statement: Statement,
        by_day: Mapping[int, Sequence[StatementRow]],
        *,
        base: StoredImport | None,
        actor: str,
        way: str,
        now: float,
    ) -> StoredImport:
        """Add an import, in memory. Days without a row are part of it if it covers them."""
        newest = self._registry_rows.document(NUMBER_KIND, NUMBER_ID) or {"number": 0}
        number = int(newest["number"]) + 1
        covers = [] if base is not None else [*statement.covered_days]
        new = StoredImport(
            number=number,
            order=number if base is None else base.order,
            source=self._source,
            account=self._account,
            way=way,
            actor=actor,
            name=statement.name,
            files=[*statement.files],
            covers=covers,
            read_at=statement.read_at,
            imported_at=now,
            rows=0,
            billed=statements.billed_total(statement.rows),
            days={},
            add_to="" if base is None else base.id,
        )
        for day, rows in by_day.items():
            text = statements.day_text(day)
            bills = [
                days.bill
                for days in covers
                if days.start <= day < days.end and day not in statement.days_in_part
            ]
            parts = [
                self._build_part(text, bill, theirs, bool(bills))
                for bill, theirs in _rows_by_bill(rows, bool(bills))
            ]
            settled = day + DAY_S <= statement.settled_until and day not in statement.days_in_part
            if parts or bills:
                new.days[text] = ImportedDay(
                    covers=bills, settled=settled, read_at=statement.read_at, imported_at=now, parts=parts
                )
                new.rows += sum(part.rows for part in parts)
        self._imports[new.id] = new
        self._added.append(new.id)
        self._changed.add(new.id)
        for text, entry in new.days.items():
            before, after = self.indexed_day(text), self.derived_day(text)
            if before and after and (before.digest, before.settled) == (after.digest, after.settled):
                new.days[text] = msgspec.structs.replace(
                    entry, read_at=before.read_at, imported_at=before.imported_at
                )
        return new

    def _build_part(self, day: str, bill: str, rows: Sequence[StatementRow], is_whole: bool) -> Part:
        digest = statements.rows_digest(rows)[:_DIGEST_CHARACTERS]
        billed = [statements.to_billed_row(row, statements.parse_day(day)) for row in rows]
        self._new_rows[day, digest] = rows
        return Part(
            bill=bill,
            digest=digest,
            rows=len(rows),
            providers=dict(Counter(row.provider for row in rows)),
            since=min(row.start for row in rows),
            until=max(row.end for row in rows),
            billed_days=(
                min(each.billed_days[0] for each in billed),
                max(each.billed_days[-1] for each in billed),
            ),
            settled=all(row.settled for row in rows),
            billed=statements.billed_total(rows),
            is_whole=is_whole,
        )

    def rows_of(self, day: str, entry: StatementDay | None) -> list[StatementRow]:
        if entry is None:
            return []
        new = [self._new_rows.get((day, digest)) for digest in entry.parts]
        if len(new) == 1 and new[0] is not None:
            return [*new[0]]
        stored = [digest for digest, rows in zip(entry.parts, new, strict=True) if rows is None]
        found = read_rows(self._registry_rows, self._month_id(day), day, stored)
        return statements.sum_rows([*found, *(row for rows in new if rows is not None for row in rows)])

    def undo(self, id: str, *, actor: str, now: float) -> None:
        undone = self._imports[id]
        undone.undone_at, undone.undone_by = now, actor
        self._changed.add(id)

    def delete_replaced(self, now: float, keep_s: float, *, newest: str, is_pull: bool) -> None:
        """
        Delete days of imports that were replaced or undone over `keep_s` seconds ago. A pull also deletes what
        earlier pulls replaced, unless the replaced figures were final and other ones.
        """
        days = {day for each in self._imports.values() for day in each.days if day[:7] in self._months}
        replaced_by = {day: self.count(day).replaced_by for day in days}
        ended: list[tuple[StoredImport, str]] = []
        for each in self._imports.values():
            for day in each.days.keys() & days:
                by = self._imports.get(replaced_by[day].get(each.id, ""))
                ended_at = each.undone_at or (by.imported_at if by is not None else now)
                is_repeated = (
                    is_pull
                    and each.way == PULL
                    and by is not None
                    and by.id != newest
                    and not _has_own_figures(each.days[day], by.days[day])
                )
                if is_repeated or now - ended_at > keep_s:
                    ended.append((each, day))
        for each, day in ended:
            self._dropped |= {(day, part.digest) for part in each.days.pop(day).parts}
            self._changed.add(each.id)

    def store(self) -> None:
        """Write the changed imports, and derive the index of the loaded months."""
        put, delete = self._registry_rows.put_document, self._registry_rows.delete_document
        for month, index in self._months.items():
            having = [each for each in self._imports.values() if any(day[:7] == month for day in each.days)]
            if not having:
                if index is not None:
                    delete(KIND, self._month_id(month))
                continue
            if index is None:
                self._check_number_of_months()
            put(KIND, self._month_id(month), msgspec.to_builtins(self._index_month(month, having)))
        for day, digest in sorted(self._dropped - self._stored_parts([*self._imports])):
            delete(ROWS_KIND, _rows_id(self._month_id(day), day, digest))
        known = self._dropped | self._stored_parts(self._imports.keys() - {*self._added})
        for (day, digest), rows in self._new_rows.items():
            if (day, digest) not in known:
                id = _rows_id(self._month_id(day), day, digest)
                put(ROWS_KIND, id, {"rows": statements.pack_rows(rows)})
        for id in sorted(self._changed):
            stored = self._imports[id]
            if stored.days:
                put(IMPORT_KIND, id, msgspec.to_builtins(stored))
            else:
                delete(IMPORT_KIND, id)
        for id in self._added:
            put(NUMBER_KIND, NUMBER_ID, {"number": self._imports[id].number})

    def _stored_parts(self, ids: Iterable[str]) -> set[tuple[str, str]]:
        return {
            (day, part.digest)
            for id in ids
            for day, entry in self._imports[id].days.items()
            for part in entry.parts
        }

    def _index_month(self, month: str, having: Sequence[StoredImport]) -> StatementMonthIndex:
        days = {
            day: entry
            for day in sorted({day for each in having for day in each.days if day[:7] == month})
            if (entry := index_day(having, day)) is not None
        }
        named = [each for each in having if not each.undone_at] or having
        return StatementMonthIndex(
            source=self._source,
            account=self._account,
            month=month,
            name=max(named, key=lambda each: each.number).name,
            imports=[each.id for each in sorted(having, key=lambda each: each.number)],
            days=days,
        )

    def _check_number_of_months(self) -> None:
        if sum(1 for _ in self._registry_rows.each_document(KIND)) >= MAX_MONTHS:
            raise NotAllowed(
                f"the limit of {MAX_MONTHS} months of statements is reached: undo imports that you do not need, and "
                "lower reconciliation.keep_replaced"
            )

    def _month_id(self, day: str) -> str:
        return statements.statement_id(self._source, self._account, day[:7])


def _rows_by_bill(rows: Sequence[StatementRow], is_whole: bool) -> list[tuple[str, list[StatementRow]]]:
    """Return the rows by bill, added up by cell; those of a day that is covered in part also by hour."""
    grouped: dict[tuple[str, int], list[StatementRow]] = defaultdict(list)
    for row in rows:
        grouped[row.bill, 0 if is_whole else row.start // _HOUR_S].append(row)
    summed = [(bill, statements.sum_rows(theirs)) for (bill, _), theirs in sorted(grouped.items())]
    return [(bill, theirs) for bill, theirs in summed if theirs]


def _has_own_figures(replaced: ImportedDay, newer: ImportedDay) -> bool:
    is_final = replaced.settled and all(part.settled for part in replaced.parts)
    return is_final and replaced.parts != newer.parts


def read_rows(
    registry_rows: RegistryRows, month_id: str, day: str, digests: Sequence[str]
) -> list[StatementRow]:
    rows = [
        row
        for digest in digests
        for row in statements.unpack_rows(registry_rows.document(ROWS_KIND, _rows_id(month_id, day, digest)))
    ]
    return rows if len(digests) == 1 else statements.sum_rows(rows)


def _rows_id(month_id: str, day: str, digest: str) -> str:
    return f"{month_id}:{day}:{digest}"


def read_month(body: Mapping[str, Any] | None) -> StatementMonthIndex | None:
    return None if body is None else _convert(body, StatementMonthIndex)


def read_import(body: Mapping[str, Any]) -> StoredImport:
    return _convert(body, StoredImport)


def _convert(body: Mapping[str, Any], document: type[Document]) -> Document:
    try:
        return msgspec.convert(body, document)
    except msgspec.ValidationError as error:
        raise RegistryDamaged(f"a stored statement cannot be read: {error}") from error


def describe_imports(imports: Iterable[StoredImport]) -> list[StatementImportInfo]:
    """Return all imports of a registry, oldest first, each with what counts of it."""
    by_account: dict[tuple[str, str], list[StoredImport]] = defaultdict(list)
    for each in imports:
        by_account[each.source, each.account].append(each)
    found = []
    for theirs in by_account.values():
        having: dict[str, list[StoredImport]] = defaultdict(list)
        for each in theirs:
            for day in each.days:
                having[day].append(each)
        counted = {day: count_day(of_day, day) for day, of_day in having.items()}
        found += [_describe_import(each, counted) for each in theirs]
    return sorted(found, key=lambda each: each.number)


def _describe_import(each: StoredImport, counted: Mapping[str, CountedDay]) -> StatementImportInfo:
    days = []
    for text, entry in sorted(each.days.items()):
        of_day = counted[text]
        parts = [part for id, part in of_day.counting if id == each.id]
        replaced_by = of_day.replaced_by.get(each.id, "")
        is_whole = sum(part.rows for part in parts) == sum(part.rows for part in entry.parts)
        days.append(
            ImportedDayInfo(
                day=statements.parse_day(text),
                rows=sum(part.rows for part in entry.parts),
                billed=statements.sum_amounts(part.billed for part in entry.parts),
                counted=statements.sum_amounts(part.billed for part in parts),
                state=UNDONE
                if each.undone_at
                else REPLACED
                if replaced_by
                else COUNTS
                if is_whole
                else IN_PART,
                replaced_by=replaced_by,
                overlap=of_day.overlap.get(each.id, 0),
            )
        )
    states = {day.state for day in days}
    return StatementImportInfo(
        id=each.id,
        number=each.number,
        source=each.source,
        account=each.account,
        way=each.way,
        actor=each.actor,
        files=tuple(each.files),
        covers=tuple(each.covers),
        read_at=each.read_at,
        imported_at=each.imported_at,
        rows=each.rows,
        billed=each.billed,
        add_to=each.add_to,
        undone_at=each.undone_at or None,
        undone_by=each.undone_by,
        state=states.pop() if len(states) == 1 else IN_PART,
        replaced_by=tuple(sorted({day.replaced_by for day in days} - {""}, key=lambda id: int(id[4:]))),
        days=tuple(days),
    )
