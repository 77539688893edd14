"""`tollhouse work`: the cost of one session, run or pull request, and links between units of work."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import click

from gateway.cli.amounts import decimals_for_amounts, format_single_amount
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import add_commands, list_command, request_command
from gateway.cli.operator.money.report import warn_about_calls_outside_period
from gateway.cli.operator.resources import add_resource_options
from gateway.cli.output import JsonObject, as_json, show_json, show_table
from gateway.cli.parameters import Choice
from gateway.operations.money.work_links.declared import NewWorkLink
from spool.ledger.periods import RANGES
from spool.ledger.work import SESSION, UNITS

COLUMNS = (
    "id",
    "session",
    "run",
    "branch",
    "repository",
    "commit",
    "since",
    "until",
    "pull_request",
    "ticket",
    "parent_session",
    "parent_run",
    "author",
)


@click.group()
def work() -> None:
    """
    Show the cost of one session or pull request, and link work to pull requests, tickets and parents.

    `tollhouse ledger rebuild` counts units of work again, with all other totals.
    """


@work.command("show")
@click.argument("unit", type=Choice(tuple(UNITS)))
@click.argument("id")
@click.option("--range", type=Choice(RANGES), help="Period of the calls; default: last_90d.")
@click.option("--from", "since", metavar="DAY", help="First day, or a time.")
@click.option("--to", "until", metavar="DAY", help="Last day (inclusive), or a time; default: now.")
@click.option(
    "--waste",
    is_flag=True,
    help="Of a session: which part of the cost of each stored call was paid again; default period: last_7d.",
)
@as_json
@with_client
def show_cost_of_unit(
    client: OperatorClient, as_json: bool, unit: str, id: str, waste: bool, **given: str | None
) -> None:
    """
    Show the cost of one session, run, pull request or other unit, and of its agent runs.

    Runs are shown as a tree, each below the run that started it. A session or run is shown as a digest; ID may
    also be the session's own id.
    """
    names = {"range": "range", "since": "from", "until": "to"}
    query = [(name, value) for option, name in names.items() if (value := given[option]) is not None]
    if waste:
        if unit != SESSION:
            raise click.UsageError(
                "--waste needs a session; the runs of a session are among its conversations"
            )
        _show_waste(
            client.request("GET", f"/work/session/{quote_segment(id)}/waste", query=query), as_json=as_json
        )
        return
    payload = client.request("GET", f"/work/{unit}/{quote_segment(id)}", query=query)
    if as_json:
        show_json(payload)
        return
    if not payload["own"]["calls"] and not payload["runs"]:
        click.echo(
            "no call of this unit is counted in this period; choose another period with --range", err=True
        )
        return
    for row in payload["started_by"]:
        click.echo(f"started by {'run' if 'run' in row else 'session'} {row.get('run', row['session'])}")
    below = [(f"{'  ' * (row['level'] - 1)}{row['run']}", row) for row in payload["runs"]]
    below += [(f"session {row['session']}", row) for row in payload["started_sessions"]]
    below += [
        (name, {"own": payload[field], "aggregated": payload[field]})
        for field, name in (("without_run", "(no run)"), ("other_runs", "(other)"))
        if payload[field]["calls"]
    ]
    total = {"own": payload["own"], "aggregated": payload["aggregated"] or payload["own"]}
    rows = [*below, (f"{unit.replace('_', ' ')} {payload['work']['id']}", total)]
    amounts = {name: [Decimal(row[name]["cost"]) for _, row in rows] for name in ("own", "aggregated")}
    columns = {
        name: [format_single_amount(amount, decimals_for_amounts(column)) for amount in column]
        for name, column in amounts.items()
    }
    lines = [
        {
            "run": name,
            "agents": ", ".join(row.get("agents", ())),
            "calls": row["own"]["calls"],
            "delegations": row.get("delegations"),
            "cost": columns["own"][place],
            "aggregated": columns["aggregated"][place],
        }
        for place, (name, row) in enumerate(rows)
    ]
    shown = ("run", "agents", "calls", "delegations", "cost", "aggregated")
    show_table(lines, shown, {"cost": "own cost", "aggregated": "with started runs"})
    if payload["work"]["continues"]:
        warn_about_calls_outside_period("it has")


def _show_waste(payload: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show_json(payload)
        return
    lines = [
        {
            **row,
            "lane": row["lane"] or "(no lane)",
            "paid_again": ", ".join(f"{part['kind']} {part['amount']}" for part in row["parts"]),
        }
        for row in payload["calls"]
    ]
    shown = (
        "lane",
        "start_time",
        "model",
        "input_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "cost",
        "useful",
        "paid_again",
        "not_judged",
        "reason",
    )
    titles = {"input_tokens": "input", "cache_read_tokens": "read", "cache_write_tokens": "written"}
    show_table(lines, shown, titles)
    sums = payload["waste"]
    again = "".join(f", {name} {amount}" for name, amount in sums["amounts"].items())
    click.echo(f"cost {sums['cost']}: useful {sums['useful']}{again}, not judged {sums['not_judged']}")


def _show_numbers_of_units(payload: JsonObject) -> None:
    status = payload["status"]
    lines = [{**row, "limit": f"{status['ids_per_month']:,}"} for row in status["units"]]
    shown = ("unit", "listed", "limit", "unlisted")
    show_table(lines, shown, {"listed": "listed this month", "unlisted": "in (other)"})
    click.echo(f"{status['links']:,} of {status['max_links']:,} links")
    spans, most = status["pending_spans"], status["max_pending_spans"]
    click.echo(f"{spans:,} of {most:,} spans that may still link a call to its agent's run")


work.add_command(
    request_command(
        "status",
        "GET /work/status",
        """
        Show how many units of work are listed this month, and how many are no longer listed.

        The calls of units that are no longer listed are in (other).
        """,
        show_response=_show_numbers_of_units,
    )
)


add_commands(
    work,
    request_command(
        "link",
        "POST /work/links",
        """
        Link a session, a branch or a commit to a pull request or a ticket, or a session or run to its parent.

        The link acts on past and later calls that state no pull request (or ticket, or parent) themselves.
        """,
        add_resource_options(NewWorkLink),
    ),
    request_command(
        "unlink LINK",
        "DELETE /work/links/{link}",
        "Delete a link by its id. Its calls count as before the link.",
        show_response="link {link} deleted",
    ),
)


list_command(
    work,
    "links",
    root="work_links",
    path="/work/links",
    columns=COLUMNS,
    filters={
        "session": "Only this session, by the digest that costs show.",
        "run": "Only this run, by its digest.",
        "branch": "",
        "repository": "",
        "commit": "",
        "pull_request": "",
        "ticket": "",
        "parent_session": "Only sessions that this one started, by its digest.",
        "parent_run": "Only runs that this one started, by its digest.",
        "author": "",
    },
    help="List the links, the newest first.",
)
