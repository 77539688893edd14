"""Handlers of the operator API for provider bills: import, list, undo, pull."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec

from gateway.bills.statements.importing import ParsedReport, ReportFile, read_reports, report_file_at
from gateway.bills.statements.puller import STATES as PULL_STATES
from gateway.bills.statements.puller import PullState
from gateway.bills.statements.sources.list import SOURCES
from gateway.configuration.sections import PULLED_SOURCES, SEAT_SOURCES
from gateway.core.errors import REPAIR_RETRY_S, Refusal
from gateway.core.fields import build_answer, one_field_answer
from gateway.core.schemas import OBJECT
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.installation.installation import require_local_path
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import MULTIPART, OperatorRequest, RequestBody, store_uploaded_files
from spool.errors import Invalid, NotThere
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS
from spool.registry.texts import check_one_of
from spool.statements import (
    ACCRUED,
    DAY_S,
    FILE,
    IMPORT_STATES,
    UPLOAD,
    WAYS,
    Statement,
    StatementImportInfo,
    StatementMonth,
    StatementOutcome,
    day_text,
    group_by_day,
    normalize_amount,
    sum_amounts,
)

MAX_FILES = 1000  # a month of daily files of 30 accounts
ELSEWHERE = (
    "upload reports in the console, or import them on the server's machine with tollhouse reconcile import"
)


class StatementFiles(RequestBody):
    """A request to import bills from files on the server."""

    files: Annotated[tuple[str, ...], words("The absolute paths of bills on the server.")]
    source: Annotated[str | None, words("The source of the bills; default: recognized from each file.")] = (
        None
    )
    account: Annotated[
        str | None, words("The account of the bills; default: the account that they state.")
    ] = None
    add_to: Annotated[
        str | None, words("The id of an import of which the files are another part, so they replace nothing.")
    ] = None
    dry_run: Annotated[bool, words("Whether to show the changes and store nothing.")] = False
    replace: Annotated[bool, words("Whether the import may remove final or newer figures.")] = False


class StatementPull(RequestBody):
    """A request to run one pull or all pulls now."""

    name: Annotated[str | None, words("The name of a `[[reconciliation.pull]]`; default: all.")] = None
    replace: Annotated[bool, words("Whether the pull may remove final figures.")] = False


def _describe_month(month: StatementMonth) -> dict[str, object]:
    return build_answer(
        StatementItem,
        month,
        providers=list(month.providers),
        settled_days=month.settled,
        billed=f"{month.billed:f}",
        read_at=utc_iso(month.read_at),
        imported_at=utc_iso(month.imported_at),
    )


STATEMENTS: ListDefinition[StatementMonth] = ListDefinition(
    root="statements",
    show=_describe_month,
    identity=Sort(value=lambda row: row.id),
    sorts={
        "month": Sort(value=lambda row: row.month),
        "source": Sort(value=lambda row: row.source),
        "imported_at": Sort(value=lambda row: row.imported_at),
    },
    default_sort=("month", "desc"),
    filters={
        "source": Filter(values=lambda row: (row.source,), valid_values=tuple(SOURCES)),
        "account": Filter(values=lambda row: (row.account,)),
        "month": Filter(values=lambda row: (row.month,)),
        "provider": Filter(values=lambda row: row.providers),
    },
)


def _describe_pull(state: PullState) -> dict[str, object]:
    return build_answer(
        StatementPullItem, state, last_success=utc_iso(state.last_success), next_at=utc_iso(state.next_at)
    )


PULLS: ListDefinition[PullState] = ListDefinition(
    root="statement_pulls",
    show=_describe_pull,
    identity=Sort(value=lambda row: row.name),
    sorts={"name": Sort(value=lambda row: row.name), "source": Sort(value=lambda row: row.source)},
    default_sort=("name", "asc"),
    filters={
        "source": Filter(values=lambda row: (row.source,), valid_values=(*PULLED_SOURCES, *SEAT_SOURCES)),
        "state": Filter(values=lambda row: (row.state,), valid_values=PULL_STATES),
    },
)


class StatementItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the bill."), example("st_f30ae188eda61b4ff4ae")]
    source: Annotated[str, words("The kind of the imported report."), example("openai_usage")]
    account: Annotated[str, words("The account of the bill at the provider."), example("")]
    month: Annotated[str, words("The month, such as `2026-11`."), example("2026-11")]
    providers: Annotated[list[str], words("The providers of the bill."), example(["openai"])]
    days: Annotated[int, words("The number of days that are included."), example(26)]
    settled_days: Annotated[
        int, words("The number of days that the provider no longer changes."), example(24)
    ]
    rows: Annotated[int, words("The number of stored rows."), example(1949)]
    billed: Annotated[str, words("The cost by the provider's bills."), example("0")]
    name: Annotated[str, words("The name of the imported file."), example("openai-november.json")]
    read_at: Annotated[str, words("When the report was made."), example("2026-11-27T01:19:27.000Z")]
    imported_at: Annotated[str, words("When the report was imported."), example("2026-11-27T01:19:27.551Z")]


class RevisedDay(msgspec.Struct, kw_only=True):
    day: Annotated[str, words("The day whose figures changed."), example("2026-11-01")]
    billed_before: Annotated[str, words("The billed cost before the import."), example("6.5221788")]
    billed: Annotated[str, words("The billed cost after the import."), example("1.25")]
    tokens_before: Annotated[str, words("The billed tokens before the import."), example("0")]
    tokens: Annotated[str, words("The billed tokens after the import."), example("0")]


def _describe_import(info: StatementImportInfo) -> dict[str, object]:
    return build_answer(
        StatementImportItem,
        info,
        files=[file._asdict() for file in info.files],
        covers=[
            {"bill": days.bill, "from": day_text(days.start), "to": day_text(days.end - DAY_S)}
            for days in info.covers
        ],
        billed=f"{normalize_amount(info.billed):f}",
        days=len(info.days),
        replaced_by=list(info.replaced_by),
        read_at=utc_iso(info.read_at),
        imported_at=utc_iso(info.imported_at),
        undone_at=utc_iso(info.undone_at),
    )


IMPORTS: ListDefinition[StatementImportInfo] = ListDefinition(
    root="statement_imports",
    show=_describe_import,
    identity=Sort(value=lambda row: row.id),
    sorts={
        "number": Sort(value=lambda row: row.number),
        "imported_at": Sort(value=lambda row: row.imported_at),
        "source": Sort(value=lambda row: row.source),
    },
    default_sort=("number", "desc"),
    filters={
        "source": Filter(values=lambda row: (row.source,), valid_values=tuple(SOURCES)),
        "account": Filter(values=lambda row: (row.account,)),
        "state": Filter(values=lambda row: (row.state,), valid_values=IMPORT_STATES),
        "way": Filter(values=lambda row: (row.way,), valid_values=WAYS),
    },
)


class ImportedFileItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the file, or of the pull."), example("openai_costs.json")]
    digest: Annotated[
        str, words("The SHA-256 of its unpacked content, or empty for a pull."), example("9f86d081884c7d65")
    ]
    rows: Annotated[int, words("The number of rows that were read from it."), example(31)]


class CoveredDaysItem(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    bill: Annotated[
        str, words("The period of the bill, or empty if the report does not name it."), example("2026-10")
    ]
    from_: Annotated[str, words("The first day."), example("2026-10-01")]
    to: Annotated[str, words("The last day."), example("2026-10-31")]


class StatementImportItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the import."), example("imp_7")]
    number: Annotated[int, words("Its number. Newer imports have larger numbers."), example(7)]
    source: Annotated[str, words("The kind of the imported report."), example("openai_costs")]
    account: Annotated[str, words("The account of the bill at the provider."), example("")]
    way: Annotated[str, words("`file`, `upload`, `pull` or `demo`."), example("file")]
    actor: Annotated[str, words("Who imported it."), example("ada@example.com")]
    files: Annotated[list[ImportedFileItem], words("The files, each with the fields below.")]
    covers: Annotated[
        list[CoveredDaysItem],
        words("The days of which the import has every row, by bill, each with the fields below."),
    ]
    state: Annotated[str, words("`counts`, `in_part`, `replaced` or `undone`."), example("counts")]
    replaced_by: Annotated[list[str], words("The newer imports that replaced days of this one."), example([])]
    add_to: Annotated[str, words("The import of which this one is another part, or empty."), example("")]
    days: Annotated[int, words("The number of days that are stored."), example(31)]
    rows: Annotated[int, words("The number of rows."), example(31)]
    billed: Annotated[str, words("The billed cost of all rows in dollars."), example("5012.39")]
    read_at: Annotated[str, words("When the report was made."), example("2026-11-27T01:19:27.000Z")]
    imported_at: Annotated[str, words("When the report was imported."), example("2026-11-27T01:19:27.551Z")]
    undone_at: Annotated[str | None, words("When the import was undone, or null."), example(None)]
    undone_by: Annotated[str, words("Who undid it, or empty."), example("")]


class ImportedDayItem(msgspec.Struct, kw_only=True):
    day: Annotated[str, words("The day."), example("2026-10-01")]
    rows: Annotated[int, words("The number of rows of the import."), example(1)]
    billed: Annotated[str, words("The billed cost of these rows in dollars."), example("161.69")]
    counted: Annotated[str, words("The part of this cost that counts."), example("161.69")]
    state: Annotated[str, words("`counts`, `in_part`, `replaced` or `undone`."), example("counts")]
    replaced_by: Annotated[str, words("The import that replaced the day, or empty."), example("")]
    overlap: Annotated[
        int,
        words("The number of rows that do not count, because an older import has rows of their time."),
        example(0),
    ]


class OneStatementImport(msgspec.Struct, kw_only=True):
    statement_import: Annotated[StatementImportItem, words("The import, with the fields below.")]
    import_days: Annotated[
        list[ImportedDayItem], words("The days of the import, each with the fields below.")
    ]


def _describe_import_with_days(info: StatementImportInfo) -> dict[str, object]:
    return {
        "statement_import": _describe_import(info),
        "import_days": [
            build_answer(
                ImportedDayItem,
                day,
                day=day_text(day.day),
                billed=f"{normalize_amount(day.billed):f}",
                counted=f"{normalize_amount(day.counted):f}",
            )
            for day in info.days
        ],
    }


class StatementImport(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    id: Annotated[str | None, words("The id of the import, or null if nothing was stored."), example("imp_7")]
    already: Annotated[str | None, words("The import that has the same files, or null."), example(None)]
    source: Annotated[str, words("The kind of the imported report."), example("openai_costs")]
    files: Annotated[list[str], words("The names of the files."), example(["openai_costs.json"])]
    read: Annotated[int, words("The number of rows that were read."), example(2)]
    damaged: Annotated[int, words("The number of rows that could not be read."), example(0)]
    damaged_rows: Annotated[list[str], words("The rows that could not be read."), example([])]
    repeated: Annotated[int, words("The number of repeated rows, each counted once."), example(0)]
    repeated_rows: Annotated[list[str], words("The repeated rows."), example([])]
    equal: Annotated[int, words("The number of identical rows without an id, which all count."), example(0)]
    account: Annotated[str, words("The name of the account."), example("")]
    providers: Annotated[list[str], words("The providers in the files."), example(["openai"])]
    months: Annotated[list[str], words("The months in the files."), example(["2026-11"])]
    amounts: Annotated[dict[str, str], words("The billed amounts by currency."), example({"USD": "1.25"})]
    from_: Annotated[
        str | None, words("The first day in the files, or null without rows."), example("2026-11-01")
    ]
    to: Annotated[
        str | None, words("The last day in the files, or null without rows."), example("2026-11-01")
    ]
    rows: Annotated[int, words("The number of stored rows."), example(1)]
    days: Annotated[int, words("The number of days that are included."), example(1)]
    days_new: Annotated[int, words("The number of new days."), example(0)]
    days_changed: Annotated[int, words("The number of changed days."), example(1)]
    revisions: Annotated[list[RevisedDay], words("The days whose cost or tokens changed.")]


class ImportStatementsAnswer(msgspec.Struct, kw_only=True):
    imports: Annotated[
        list[StatementImport], words("The imports of provider bills, each with the fields below.")
    ]
    dry_run: Annotated[bool, words("Whether to show the effect and change nothing."), example(False)]


class StatementPullItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the pulled report in the settings."), example("openai-costs")]
    source: Annotated[str, words("The kind of the imported report."), example("openai_costs")]
    state: Annotated[str, words("`never`, `running`, `done` or `failed`."), example("done")]
    reason: Annotated[
        str, words("Why the last pull failed or which rows it could not read, or empty."), example("")
    ]
    pulled_to: Annotated[str | None, words("The last day that was fetched, or null."), example("2026-11-26")]
    last_success: Annotated[
        str | None, words("When the report was last fetched, or null."), example("2026-11-27T01:45:24.022Z")
    ]
    next_at: Annotated[
        str | None, words("When the report is fetched next, or null."), example("2026-11-27T07:45:24.022Z")
    ]


@operator_call(
    "GET",
    "/statements",
    VIEW_COSTS,
    "List provider bills by source and month",
    lists=STATEMENTS,
    item=StatementItem,
)
async def list_statements(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list_page(STATEMENTS, MemoryRows(list(await request.registry.statements.months())))


@operator_call(
    "POST", "/statements", MODIFY_BILLING, "Import provider reports", answers=ImportStatementsAnswer
)
async def import_statements(request: OperatorRequest[MoneyServices, StatementFiles]) -> Result:
    body = request.body
    if not 0 < len(body.files) <= MAX_FILES:
        raise Invalid(f"give 1 to {MAX_FILES} files; import each report in a request of its own")
    paths = [require_local_path(request, "files", path, elsewhere=ELSEWHERE) for path in body.files]
    now = request.now()
    most = request.services.reconciliation().max_file_bytes
    files = (report_file_at(path, max_unpacked_bytes=most, now=now) for path in paths)
    return await _import_reports(
        request,
        files,
        way=FILE,
        source=body.source,
        account=body.account,
        add_to=body.add_to or "",
        dry_run=body.dry_run,
        replace=body.replace,
    )


@operator_call(
    "POST",
    "/statement-uploads",
    MODIFY_BILLING,
    "Import uploaded provider reports",
    optional=("source", "account", "add_to", "dry_run", "replace"),
    takes={MULTIPART: OBJECT},
    answers=ImportStatementsAnswer,
)
async def upload_statements(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Import the files of a form. Send a report of several files in one form, because a report replaces whole days, or
    add each further part with `add_to`.

    The parameters are those of an import. `dry_run=true` returns the changes without storing them.
    """
    query = request.http.query
    dry_run, replace = query.get("dry_run", "false"), query.get("replace", "false")
    check_one_of("dry_run", dry_run, ("true", "false"))
    check_one_of("replace", replace, ("true", "false"))
    settings = request.services.reconciliation()
    with TemporaryDirectory(prefix="tollhouse-") as directory:
        uploaded = await store_uploaded_files(
            request,
            Path(directory),
            max_bytes=settings.max_upload_bytes,
            most_files=MAX_FILES,
            limit="reconciliation.max_upload_bytes",
        )
        now, most = request.now(), settings.max_file_bytes
        files = (ReportFile(name=name, path=path, read_at=now, most_bytes=most) for name, path in uploaded)
        return await _import_reports(
            request,
            files,
            way=UPLOAD,
            source=query.get("source") or None,
            account=query.get("account") or None,
            add_to=query.get("add_to", ""),
            dry_run=dry_run == "true",
            replace=replace == "true",
        )


async def _import_reports(
    request: OperatorRequest[MoneyServices, Any],
    files: Iterable[ReportFile],
    *,
    way: str,
    source: str | None,
    account: str | None,
    add_to: str,
    dry_run: bool,
    replace: bool,
) -> Result:
    settings = request.services.reconciliation()
    reports = await asyncio.to_thread(
        read_reports,
        files,
        source=source,
        account=account,
        max_unpacked_bytes=settings.max_rows,
        settle_s=settings.settle,
    )
    shown = []
    for report in reports:
        outcome = None
        if report.statement is not None:
            outcome = await request.registry.statements.import_statement(
                report.statement,
                actor=request.actor,
                way=way,
                add_to=add_to,
                dry_run=dry_run,
                replace=replace,
                keep_replaced_s=settings.keep_replaced,
            )
        shown.append(_describe_report(report, outcome))
    return {"imports": shown, "dry_run": dry_run}


@operator_call(
    "GET",
    "/statement-imports",
    VIEW_COSTS,
    "List imports of provider reports",
    lists=IMPORTS,
    item=StatementImportItem,
)
async def list_imports(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list_page(IMPORTS, MemoryRows(list(await request.registry.statements.imports())))


@operator_call(
    "GET",
    "/statement-imports/{id}",
    VIEW_COSTS,
    "Get an import of provider reports",
    answers=OneStatementImport,
)
async def get_import(request: OperatorRequest[MoneyServices, None]) -> Result:
    """Return an import and what counts of each of its days."""
    id = request.path_parameter("id")
    for info in await request.registry.statements.imports():
        if info.id == id:
            return _describe_import_with_days(info)
    raise NotThere("no import has this id; list them with tollhouse reconcile imports")


@operator_call(
    "POST",
    "/statement-imports/{id}/undo",
    MODIFY_BILLING,
    "Undo an import of provider reports",
    answers=OneStatementImport,
)
async def undo_import(request: OperatorRequest[MoneyServices, None]) -> Result:
    """Undo an import: the figures that it replaced count again. A month that rests on it must be open."""
    info = await request.registry.statements.undo(request.path_parameter("id"), actor=request.actor)
    return _describe_import_with_days(info)


@operator_call(
    "GET", "/statement-pulls", VIEW_COSTS, "List the pulls of reports", lists=PULLS, item=StatementPullItem
)
async def list_pulls(request: OperatorRequest[MoneyServices, None]) -> Result:
    pulls = request.services.statement_puller
    return await request.list_page(
        PULLS, MemoryRows([] if pulls is None else list(await pulls().pull_states()))
    )


@operator_call(
    "POST",
    "/statement-pulls",
    MODIFY_BILLING,
    "Run pulls of reports now",
    answers=one_field_answer(
        "PullStatementsAnswer",
        statement_pulls=Annotated[
            list[StatementPullItem], words("The fetched reports, each with the fields below.")
        ],
    ),
)
async def pull_statements(request: OperatorRequest[MoneyServices, StatementPull]) -> Result:
    """Run the pulls now. Failures are reported in the state of each pull."""
    if request.services.statement_puller is None:
        message = "pulls cannot run while the registry is damaged"
        raise Refusal(503, "no_pulls", message, retry_after_s=REPAIR_RETRY_S)
    puller = request.services.statement_puller()
    names = [request.body.name] if request.body.name is not None else puller.names
    for name in names:
        puller.check_exists(name)
    await request.registry.audit_change(request.actor, "statement.pull", ", ".join(names) or "all")
    for name in names:
        await puller.pull_statements(name, replace=request.body.replace)
    return {
        "statement_pulls": [
            _describe_pull(state) for state in await puller.pull_states() if state.name in names
        ]
    }


def _amounts_by_currency(statement: Statement) -> dict[str, str]:
    by_currency: dict[str, list[Decimal]] = defaultdict(list)
    for row in statement.rows:
        if row.currency is not None and row.unit != ACCRUED:
            by_currency[row.currency].append(row.amount)
    return {
        currency: f"{normalize_amount(sum_amounts(amounts)):f}"
        for currency, amounts in sorted(by_currency.items())
    }


def _describe_report(report: ParsedReport, outcome: StatementOutcome | None) -> Mapping[str, object]:
    statement = report.statement
    shown: dict[str, object] = {
        "id": (outcome and outcome.id) or None,
        "already": (outcome and outcome.already) or None,
        "source": report.source.name,
        "files": list(report.names),
        "read": report.read,
        "damaged": report.damaged,
        "damaged_rows": list(report.named),
        "repeated": report.repeated,
        "repeated_rows": list(report.repeated_named),
        "equal": report.equal,
    }
    if statement is None or outcome is None:
        return {
            **shown,
            "account": "",
            "providers": [],
            "months": [],
            "amounts": {},
            "from": None,
            "to": None,
            "rows": 0,
            "days": 0,
            "days_new": 0,
            "days_changed": 0,
            "revisions": [],
        }
    return {
        **shown,
        "account": statement.account,
        "providers": sorted({row.provider for row in statement.rows}),
        "months": sorted({day_text(day)[:7] for day in group_by_day(statement)}),
        "amounts": _amounts_by_currency(statement),
        "from": day_text(statement.start),
        "to": day_text(statement.end - 1),
        "rows": outcome.rows,
        "days": outcome.days,
        "days_new": outcome.days_new,
        "days_changed": outcome.days_changed,
        "revisions": [
            {
                "day": day_text(revision.day),
                "billed_before": f"{revision.billed_before:f}",
                "billed": f"{revision.billed:f}",
                "tokens_before": f"{revision.tokens_before:f}",
                "tokens": f"{revision.tokens:f}",
            }
            for revision in outcome.revisions
        ],
    }
