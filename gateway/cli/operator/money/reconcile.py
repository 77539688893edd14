"""`tollhouse reconcile`: compares provider bills with counted costs, and explains each difference."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import click

from gateway.bills.reconciliation import owed
from gateway.bills.reconciliation.sides import DAY, FORMATS, LEVELS
from gateway.bills.reconciliation.wording import RoundedComparisonRow, build_rounded_comparison_row
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import list_command, request_command
from gateway.cli.operator.money.report import warn_about_incomplete_totals
from gateway.cli.output import (
    JsonObject,
    OutputForm,
    add_output_form_options,
    as_json,
    show_fields,
    show_json,
    show_list,
    show_table,
)
from gateway.cli.parameters import Choice
from gateway.core.paths import WHOLE_SINCE
from spool.printable import replace_unprintable

COLUMNS = ("id", "source", "account", "month", "days", "settled_days", "rows", "billed", "imported_at")
IMPORT_COLUMNS = (
    "id", "imported_at", "source", "account", "files", "covers", "rows", "billed", "state",
)  # fmt: skip
IMPORT_DAY_COLUMNS = ("day", "rows", "billed", "counted", "state", "overlap")
PULL_COLUMNS = ("name", "source", "state", "reason", "pulled_to", "last_success", "next_at")
TABLE = "table"
PLACES = 4  # decimal places of amounts in tables
_AMOUNTS = ("billed", "counted", "difference", "explained", "unexplained")
_SHOWN = (*_AMOUNTS, "billed_tokens", "counted_tokens")
_CAUSES = ("cause", "amount", "tokens", "sure", "evidence")


@click.group()
def reconcile() -> None:
    """Compare provider bills with counted costs."""


@reconcile.group()
def statements() -> None:
    """List what counts of the imported bills."""


list_command(
    statements,
    "list",
    root="statements",
    columns=COLUMNS,
    filters={
        "source": "Filter by the kind of bill.",
        "account": "",
        "month": "Filter by month, such as 2026-10.",
        "provider": "",
    },
    help="List the imported bills, one line per month.",
)

list_command(
    reconcile,
    "pulls",
    root="statement_pulls",
    columns=PULL_COLUMNS,
    filters={
        "source": "Filter by the kind of bill.",
        "state": "Filter by state: never, running, done or failed.",
    },
    help="List the bills that are fetched automatically, with their progress and errors.",
)


def _import_for_table(item: JsonObject) -> JsonObject:
    covers = [
        f"{days['bill']}{': ' if days['bill'] else ''}{days['from']} to {days['to']}"
        for days in item["covers"]
    ]
    return item | {
        "files": ", ".join(file["name"] for file in item["files"]),
        "covers": ", ".join(covers),
        "state": _state_in_words(item["state"], item["replaced_by"]),
    }


def _state_in_words(state: str, replaced_by: Sequence[str]) -> str:
    words = "" if state == "replaced" else state.replace("_", " ")
    by = f"replaced by {', '.join(replaced_by)}" if replaced_by else ""
    return ", ".join(filter(None, (words, by)))


_imports = click.Group()
list_command(
    _imports,
    "list",
    root="statement_imports",
    columns=IMPORT_COLUMNS,
    filters={
        "source": "Filter by the kind of bill.",
        "account": "",
        "state": "Filter by state: counts, in_part, replaced or undone.",
        "way": "Filter by way: file, upload, pull or demo.",
    },
    shown=_import_for_table,
    help="List the imports of bills, newest first.",
)


@reconcile.group("imports", invoke_without_command=True, params=_imports.commands["list"].params)
@click.pass_context
def imports(context: click.Context, /, **given: object) -> None:
    """
    List the imports of bills, newest first, and what counts of each.

    A row of a bill counts unless a newer import covers its bill and day.
    """
    if context.invoked_subcommand is None:
        context.invoke(_imports.commands["list"], **given)


def _show_import(payload: JsonObject) -> None:
    show_fields(_import_for_table(payload["statement_import"]))
    click.echo()
    days = [
        day | {"state": _state_in_words(day["state"], [day["replaced_by"]] if day["replaced_by"] else [])}
        for day in payload["import_days"]
    ]
    show_table(days, IMPORT_DAY_COLUMNS)


imports.add_command(
    request_command(
        "show ID",
        "GET /statement-imports/{id}",
        "Show an import of bills and what counts of each of its days.",
        show_response=_show_import,
    )
)

reconcile.add_command(
    request_command(
        "undo ID",
        "POST /statement-imports/{id}/undo",
        "Undo an import of bills: the figures that it replaced count again.",
        request_body={},
        show_response="{id} is undone",
    )
)


@reconcile.command("import")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False, exists=True)
)
@click.option("--source", metavar="SOURCE", help="Kind of bill; default: detected from the content.")
@click.option(
    "--account",
    metavar="NAME",
    help="Account of the bill, if you have several; default: the account in the file.",
)
@click.option(
    "--add-to", metavar="ID", help="Import of which the files are another part. They replace nothing."
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and store nothing.")
@click.option(
    "--replace",
    is_flag=True,
    help="Accept that final days lose over half of a sum, or newer reports their figures.",
)
@as_json
@with_client
def import_statements(
    client: OperatorClient,
    files: tuple[Path, ...],
    source: str | None,
    account: str | None,
    add_to: str | None,
    dry_run: bool,
    replace: bool,
    as_json: bool,
) -> None:
    """
    Import provider bills from JSON or CSV files, also gzipped.

    A bill replaces its own stored amounts of the days that it covers, and nothing else. If an export consists of
    several files, pass all of them to one command, or add the next part with `--add-to`. Without `--replace`, nothing
    is stored if a final day would lose more than half of its tokens or money. `tollhouse reconcile undo` takes an
    import back.
    """
    body = {
        "files": [str(file.absolute()) for file in files],
        "source": source,
        "account": account,
        "add_to": add_to,
        "dry_run": dry_run,
        "replace": replace,
    }
    payload = client.request("POST", "/statements", body=body)
    if as_json:
        show_json(payload)
        return
    for statement_import in payload["imports"]:
        _show_imported_bill(statement_import, dry_run=dry_run)


def _show_imported_bill(summary: JsonObject, *, dry_run: bool) -> None:
    files = ", ".join(summary["files"])
    if summary["already"] is not None:
        click.echo(f"{files}: already imported as {summary['already']}; nothing was stored")
    elif summary["from"] is None:
        click.echo(f"{files}: {summary['source']}, without any rows")
    else:
        verb = "would be" if dry_run else "are"
        new, changed = summary["days_new"], summary["days_changed"]
        change = f"{new} days {verb} new, {changed} {verb} changed, of {summary['days']}"
        account = f" {replace_unprintable(summary['account'])}" if summary["account"] else ""
        stored = f"; stored as {summary['id']}" if summary["id"] is not None else ""
        amounts = "".join(
            f", {amount} {replace_unprintable(code)}" for code, amount in summary["amounts"].items()
        )
        click.echo(
            f"{files}: {summary['source']}{account}, {summary['from']} to {summary['to']}, {summary['rows']} rows"
            f"{amounts}; {change}{stored}"
        )
    for revision in summary["revisions"]:
        money = f"${revision['billed_before']} -> ${revision['billed']}"
        click.echo(
            f"  {revision['day']}: {money}, {revision['tokens_before']} -> {revision['tokens']} tokens"
        )
    if summary["damaged"]:
        click.echo(f"  {summary['damaged']} rows cannot be read and are left out:", err=True)
        for row in summary["damaged_rows"]:
            click.echo(f"    {replace_unprintable(row)}", err=True)
    if summary["repeated_rows"]:
        click.echo(f"  {summary['repeated']} rows are repeated and were counted once:", err=True)
        for row in summary["repeated_rows"]:
            click.echo(f"    {replace_unprintable(row)}", err=True)
    if summary["equal"]:
        click.echo(
            f"  {summary['equal']} rows equal other rows, have no id, and were counted; check whether "
            "the export contains them twice",
            err=True,
        )


@reconcile.command("pull")
@click.option("--name", metavar="NAME", help="Name of one [[reconciliation.pull]]; default: all of them.")
@click.option("--replace", is_flag=True, help="Accept that final days lose more than half of a sum.")
@add_output_form_options
@with_client
def pull_statements(client: OperatorClient, name: str | None, replace: bool, form: OutputForm | None) -> None:
    """Fetch the bills that the configuration names in [[reconciliation.pull]] now."""
    payload = client.request("POST", "/statement-pulls", body={"name": name, "replace": replace})
    show_list(form, payload, payload["statement_pulls"], PULL_COLUMNS)
    if any(pull["state"] != "done" for pull in payload["statement_pulls"]):
        sys.exit(1)


@reconcile.command("report")
@click.option("--provider", help="Only this provider, such as openai; default: all providers with a bill.")
@click.option("--month", metavar="YYYY-MM", help="Month in UTC; default: the current month.")
@click.option("--by", type=Choice(LEVELS), default=DAY, show_default=True, help="Dimension of the rows.")
@click.option("--format", "form", type=Choice((TABLE, *FORMATS)), default=TABLE, show_default=True)
@with_client
def show_reconciliation(
    client: OperatorClient, provider: str | None, month: str | None, by: str, form: str
) -> None:
    """
    Compare provider bills with counted costs, and explain each difference.

    Only days with final bills are compared. In every row, billed - counted = difference = explained + unexplained,
    and explained is the sum of the causes. JSON and CSV also divide the difference into volume (tokens that only
    one side has), rate (different prices), other (charges that are not for tokens) and own (counted costs that
    differ from tokens at list prices).
    """
    parameters = {"provider": provider, "month": month, "by": by}
    query = [(name, value) for name, value in parameters.items() if value is not None]
    if form == "csv":
        headers = client.copy_response(
            "/reconciliation", [*query, ("format", form)], target_file=sys.stdout.buffer
        )
        warn_about_incomplete_totals(headers.get(WHOLE_SINCE))
        return
    payload = client.request("GET", "/reconciliation", query=query)
    if form == "json":
        show_json(payload)
        return
    warn_about_incomplete_totals(payload["reconciliation"]["whole_since"])
    for provider_report in payload["providers"]:
        _show_provider_report(provider_report, payload["reconciliation"]["month"], by)
    for unbilled in payload["without_statement"]:
        name = unbilled["provider"] or "unknown provider"
        click.echo(
            f"{replace_unprintable(name)}: {_format_dollars(Decimal(unbilled['counted']))} was counted, "
            "and there is no bill",
            err=True,
        )
    if not payload["providers"]:
        click.echo("no bill for this month; import one with `tollhouse reconcile import FILE`", err=True)


@reconcile.command("claim")
@click.argument("provider")
@click.option("--month", metavar="YYYY-MM", help="Month in UTC; default: the current month.")
@click.option("--format", "form", type=Choice(owed.FORMATS), default="text", show_default=True)
@with_client
def write_claim(client: OperatorClient, provider: str, month: str | None, form: str) -> None:
    """
    Write a claim for calls that PROVIDER billed without the discount of their tier.

    The text can be sent to the provider. CSV has a row per day, model, key and kind of token, with exact amounts.
    """
    query = [("provider", provider), ("format", form), *([] if month is None else [("month", month)])]
    client.copy_response("/reconciliation/claim", query, target_file=sys.stdout.buffer)


def _show_provider_report(provider_report: JsonObject, month: str, by: str) -> None:
    total = provider_report["total"]
    shown = _rounded_amounts(total)
    causes = "".join(f"{cause} {_format_dollars(amount)} + " for cause, amount in shown.causes.items())
    explained = f" = {causes}unexplained {_format_dollars(shown.unexplained)}" if causes else ""
    click.echo(
        f"{replace_unprintable(provider_report['provider'])}, {month}: billed {_format_dollars(shown.billed)}, "
        f"counted {_format_dollars(shown.counted)}, difference {_format_dollars(shown.difference)}{explained}"
    )
    if len(provider_report["bills"]) > 1:
        shares = [
            f"{_format_dollars(Decimal(share['billed']))} on {_name_bill(share['bill'])}"
            for share in provider_report["bills"]
        ]
        click.echo(f"billed: {', '.join(shares)}")
    if not provider_report["has_money"]:
        click.echo(
            "the bills state no amounts, so Tollhouse's prices are applied to the billed tokens", err=True
        )
    if provider_report["set_aside"]:
        sources = replace_unprintable(", ".join(provider_report["set_aside"]))
        click.echo(f"left out, because other bills cover the same days: {sources}", err=True)
    columns = (by, *(("state",) if by == DAY else ()), *_SHOWN)
    rows = [_format_reconciled_row(row, by) for row in provider_report["rows"]]
    show_table([*rows, _format_reconciled_row(total, by) | {by: "total", "state": None}], columns)
    if provider_report["causes"]:
        click.echo()
        amounts = {str(number): cause["amount"] for number, cause in enumerate(provider_report["causes"])}
        row = build_rounded_comparison_row(
            total["billed"], total["counted"], amounts, total["unexplained"], places=PLACES
        )
        listed = [
            cause | {"amount": _format_dollars(amount)}
            for cause, amount in zip(provider_report["causes"], row.causes.values(), strict=True)
        ]
        show_table([*listed, {"cause": "unexplained", "amount": _format_dollars(row.unexplained)}], _CAUSES)
        for advice in dict.fromkeys(cause["advice"] for cause in provider_report["causes"]):
            click.echo(f"- {replace_unprintable(advice)}")
    for hint in provider_report["hints"]:
        click.echo(f"likely: {replace_unprintable(hint['cause'])}: {replace_unprintable(hint['evidence'])}")
    for suggested in provider_report["suggestions"]:
        lines = "\n".join(replace_unprintable(line) for line in suggested["toml"].splitlines())
        click.echo(f"\nIf this is correct, add it to the configuration:\n\n{lines}")
    click.echo()


def _name_bill(name: str) -> str:
    return f"the bill of {replace_unprintable(name)}" if name else "reports without a bill"


def _format_reconciled_row(row: JsonObject, by: str) -> JsonObject:
    shown = _rounded_amounts(row)
    return {
        by: row["name"],
        "state": row["state"],
        **{name: _format_dollars(getattr(shown, name)) for name in _AMOUNTS},
        "billed_tokens": f"{row['billed_tokens']:,}",
        "counted_tokens": f"{row['counted_tokens']:,}",
    }


def _rounded_amounts(row: JsonObject) -> RoundedComparisonRow:
    return build_rounded_comparison_row(
        row["billed"], row["counted"], row["causes"], row["unexplained"], places=PLACES
    )


def _format_dollars(amount: Decimal) -> str:
    return f"{'-' if amount < 0 else ''}${abs(amount):,.{PLACES}f}"
