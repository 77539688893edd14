"""
`tollhouse report`: AI costs by any dimension, as a table, JSON or CSV.

Also explains changes (--against), lists the most expensive calls (--calls), and estimates costs with
another model (--as-if).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

import click

from gateway.cli import exit_with_message
from gateway.cli.amounts import (
    decimals_for_amounts,
    format_amount_column,
    format_rounded_amount,
    format_single_amount,
    round_to_add_up,
)
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import show_cursor
from gateway.cli.output import (
    JsonObject,
    OutputForm,
    add_output_form_options,
    show_csv,
    show_json,
    show_list,
    show_table,
)
from gateway.cli.parameters import Choice, parse_conditions
from gateway.configuration.values import parse_quantity
from gateway.core.paths import CUT_PERIODS, OTHER_UNITS, WHOLE_SINCE
from gateway.money.comparison.split import PARTS
from gateway.money.costs.earlier_period import TOO_EARLY, WHOLE
from gateway.money.costs.measures import (
    ASKED,
    COST_PER_UNIT,
    DEFAULT_TOP,
    LATENCY,
    MAX_TOP,
    MEASURES,
    MONEY,
    MONEY_KINDS,
    NO_PRICE,
    PERCENTILES,
    RANKED_PER_UNIT,
    SAVED_BY_CACHING,
    SUMS,
    UNITS,
    columns_of_spans,
    has_no_price,
    report_key_columns,
)
from gateway.money.costs.question import AGGREGATED, OWN, SCOPES, UNIT_GROUPS
from gateway.operations.records.filters import MAX_LIMIT
from spool.cost_kinds import KINDS
from spool.ledger.dimensions import (
    BILLED_TYPES,
    BUILT_IN_DIMENSIONS,
    COST_TYPES,
    DIMENSIONS,
    GRANULARITIES,
    MODEL_FAMILY,
    PLAN_TYPES,
)
from spool.ledger.periods import PREVIOUS, RANGES, SAME_WEEKDAYS
from spool.ledger.sums import LATENCY_EDGES_MS, OTHER
from spool.ledger.work import UNITS as WORK_UNITS
from spool.money import unconverted_amounts_sentence
from spool.printable import replace_unprintable
from spool.settings import Duration

_BY = (
    f"Dimensions to group by, separated by commas: {', '.join((*BUILT_IN_DIMENSIONS, *DIMENSIONS))}, one unit of "
    f"work ({', '.join(WORK_UNITS)}), "
    "tag:NAME for tags listed in [ledger] tags, and User:Defined:NAME for dimensions that you "
    "defined."
)
_BY_DEFAULT = (
    f"Default: {MODEL_FAMILY}, which shows all variants of a model as one row, or the grouping of --view."
)
_OF_SUMS = (
    "per",
    "top",
    "top_by",
    "unit",
    "scope",
    "cost_type",
    "missing",
    "currency",
    "limit",
    "cursor",
    "against",
)
# error message -> options that cannot be used together
_NOT_AS_IF = {
    "--as-if allows only --by, --where, --view, --range, --from, --to, --tz, --json and --csv": (
        "show", "compare", "latency", "calls", *_OF_SUMS
    ),
}  # fmt: skip
_NOT_OF_CALLS = {
    "--calls cannot be used with --by, --per, --compare, --against, --show, --unit, --scope or --latency": (
        "by", "show", "compare", "latency", "against", "per", "unit", "scope"
    ),
    "--calls cannot be used with --currency, --cost-type or --missing": ("currency", "cost_type", "missing"),
}  # fmt: skip
_NOT_AS_CSV = {"--csv prints every row, so it cannot be used with --limit or --cursor": ("limit", "cursor")}
_NOT_OF_CHANGES = {
    "--against cannot be used with --per, --compare, --top-by, --show, --unit, --scope, --currency, "
    f"--missing, --latency or --cost-type {', '.join(PLAN_TYPES)}": (
        "show", "compare", "latency", "per", "top_by", "unit", "scope", "currency", "missing", "of plans"
    ),
}  # fmt: skip
FEW = 100  # number of calls; a report with fewer calls also says which calls may still be missing
SHOWN = ("calls", "errors", "cached", "input_tokens", "output_tokens", "cost", "saved", *KINDS)
_EACH = ("cost_per_call", "cost_per_million_tokens", COST_PER_UNIT, *RANKED_PER_UNIT)
_AMOUNTS = (*MONEY, SAVED_BY_CACHING, *_EACH)
CALL_TITLES = {"source": "tool"}
BY_CALL = ("cost", "tokens", "duration")
TOP_CALLS = 10
MOST_PERCENT = 999  # larger changes are written as "more than 999 %"
_CALL_COLUMNS = (
    "started",
    "model",
    "cost",
    "input_tokens",
    "output_tokens",
    "seconds",
    "team",
    "user",
    "source",
    "id",
)
_BOUND = re.compile(rf"({'|'.join(BY_CALL)})\s*([<>]=?)\s*(\S+)")
_MODEL = "model="
NO_PAST = "the earlier hours are no longer stored, so nothing is compared; use --per daily"


@click.command()
@click.option(
    "--view",
    metavar="VIEW",
    help=(
        "Saved view to report on, by id or name. Its grouping, period and cost type apply unless you "
        "give others."
    ),
)
@click.option("--by", multiple=True, help=f"{_BY} {_BY_DEFAULT}")
@click.option(
    "--range",
    type=Choice(RANGES),
    help="Period: this_month (until now), last_7d (including today) and others.",
)
@click.option(
    "--from", "since", metavar="DAY", help="First day, or a time; default: the first day of this month."
)
@click.option("--to", "until", metavar="DAY", help="Last day (inclusive), or a time; default: now.")
@click.option(
    "--per",
    type=click.Choice(GRANULARITIES),
    help="Length of the periods, each with its own lines; default: one period.",
)
@click.option(
    "--tz", metavar="ZONE", help="Time zone in which days begin, such as Europe/Berlin; default: UTC."
)
@click.option(
    "--where",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only calls with this value, such as team=search, or team!=search for all other calls. May repeat.",
)
@click.option("--compare", is_flag=True, help="Also show the cost of the previous period, and the change.")
@click.option(
    "--against",
    is_flag=False,
    flag_value=PREVIOUS,
    metavar="TIME",
    help=(
        "Explain how costs changed against another period: number of calls, size of calls, mix of models "
        f"and token types, prices, new and gone groups. TIME is {PREVIOUS}, {SAME_WEEKDAYS}, a word of "
        f"--range, or FIRST..LAST; default: {PREVIOUS}, the period that --compare shows."
    ),
)
@click.option(
    "--top",
    type=click.IntRange(1, MAX_TOP),
    help=(
        f"Maximum number of groups; the rest is summed as {OTHER}. Default: all, with --against "
        f"{DEFAULT_TOP}, and {UNIT_GROUPS} by a unit of work. With --calls, the number of calls."
    ),
)
@click.option(
    "--top-by",
    type=Choice(tuple(dict.fromkeys((*SUMS, *BY_CALL)))),
    help=(
        "Measure that ranks the groups for --top, or the calls for --calls (one of "
        f"{', '.join(BY_CALL)}); default: cost."
    ),
)
@click.option(
    "--calls",
    is_flag=True,
    help=(
        f"List the most expensive stored calls instead of totals: {TOP_CALLS} of them, or as many as "
        "--top says. --where then also accepts limits: 'cost>0.5', 'tokens>100000', 'duration>30' (in "
        "seconds)."
    ),
)
@click.option(
    "--as-if",
    "as_if",
    metavar="model=MODEL",
    help="Estimate what the same calls would cost with another model: the same tokens at its list prices.",
)
@click.option(
    "--show",
    multiple=True,
    metavar="MEASURES",
    help=f"Measures to show, separated by commas: {', '.join((*MEASURES, *ASKED))}.",
)
@click.option(
    "--unit",
    metavar="UNIT",
    help=(
        "Show the cost per unit: per user, per value of tag:customer or another dimension, or per unit "
        "of a unit-cost stream (stream:NAME). Calls without a known unit are left out."
    ),
)
@click.option(
    "--scope",
    type=Choice(SCOPES),
    help=(
        f"Cost of a session or run. {AGGREGATED} includes the runs that it started, so these costs overlap and have "
        f"no total; default: {OWN}."
    ),
)
@click.option(
    "--cost-type",
    type=Choice(MONEY_KINDS),
    help=(
        "Kind of cost. real_cost: all costs. metered_cost: pay-as-you-go, without calls that seats cover. "
        "covered_cost: only the calls that seats cover. paid_cost: metered_cost with the amounts of seats and "
        "contracts; also groups by charge and plan. The billed types show what providers billed, with discounts in "
        "separate rows or deducted from usage."
    ),
)
@click.option(
    "--missing",
    type=Choice(("counted",)),
    help="For billed costs: show the counted cost on days without a bill.",
)
@click.option("--currency", metavar="CODE", help="Currency of the amounts, such as EUR; default: USD.")
@click.option(
    "--latency",
    is_flag=True,
    help="Show the duration of calls: percentiles in milliseconds, estimated from histograms.",
)
@click.option(
    "--limit", type=click.IntRange(1), help="Rows per page; default: all. The total row always sums all rows."
)
@click.option(
    "--cursor",
    help="Position to continue from: next_cursor or previous_cursor of an earlier page of the same report.",
)
@add_output_form_options
@with_client
def report(client: OperatorClient, form: OutputForm | None, **given: Any) -> None:
    """
    Report AI costs by team, user, model and more.

    Groups by model by default. Costs are in US dollars: the reported cost where the source stated one,
    otherwise an estimate from list prices.
    """
    given["of plans"] = given["cost_type"] in PLAN_TYPES
    if given["as_if"] is not None:
        _refuse_incompatible_options(given, _NOT_AS_IF)
        _show_cost_with_other_model(client, given, form)
    elif given["calls"]:
        _refuse_incompatible_options(given, _NOT_OF_CALLS)
        _show_top_calls(client, given, form)
    else:
        if given["top_by"] not in (None, *SUMS):
            raise click.UsageError(
                f"--top-by {given['top_by']} applies only with --calls; without it, use one of "
                f"{', '.join(SUMS)}"
            )
        if given["against"] is not None:
            _refuse_incompatible_options(given, _NOT_OF_CHANGES)
        elif form == "csv":
            _refuse_incompatible_options(given, _NOT_AS_CSV)
        _show_totals(client, given, form)


def _refuse_incompatible_options(options: Mapping[str, Any], refused: Mapping[str, Sequence[str]]) -> None:
    for message, names in refused.items():
        if any(options[name] not in (None, (), False) for name in names):
            raise click.UsageError(message)


def _range_query_parameters(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = {"since": "from", "until": "to", "range": "range", "tz": "tz", "view": "view"}
    return [(name, options[option]) for option, name in names.items() if options[option] is not None]


def _show_totals(client: OperatorClient, options: dict[str, Any], form: OutputForm | None) -> None:
    shown = _fill_options_and_choose_columns(client, options)
    # conditions() rejects a text without `=`, because the API would read `team` as calls without a team.
    for _ in parse_conditions(options["where"]):
        pass
    once = {name: options[name] for name in _OF_SUMS} | {"compare": PREVIOUS if options["compare"] else None}
    query = _range_query_parameters(options) + [
        (name, str(value)) for name, value in once.items() if value is not None
    ]
    query += [("by", name) for name in options["by"] or (MODEL_FAMILY,)]
    query += [(name, value) for name in ("where", "show") for value in options[name]]
    is_change = options["against"] is not None
    is_counted = options["cost_type"] is None and {*options["show"]} <= {*MEASURES}
    if form is None and not is_change and is_counted and not {"cost", *_EACH}.isdisjoint(options["show"]):
        query.append(("show", "unpriced"))  # for NO_PRICE
    if form == "csv" and not is_change:
        headers = client.copy_response("/report", [*query, ("format", "csv")], target_file=sys.stdout.buffer)
        warn_about_incomplete_totals(headers.get(WHOLE_SINCE))
        warn_about_partial_periods(headers.get(CUT_PERIODS))
        warn_about_units_no_longer_listed(*headers.get(OTHER_UNITS, "").split())
        return
    payload = client.request("GET", "/comparison" if is_change else "/report", query=query)
    if form == "json":
        show_json(payload)
        return
    if options["compare"] and payload["report"]["compared"] is None:
        click.echo(_explain_no_comparison(payload["report"]["past"]), err=True)
    if is_change and form == "csv":
        compared = payload["comparison"]["compared"]
        spans = columns_of_spans(compared) if compared else {}
        rows = [
            {**row, "against": row["against"] and row["against"]["cost"], **spans} for row in payload["rows"]
        ]
        show_csv(rows, (*payload["comparison"]["by"], "cost", "against", "change", *PARTS, *spans))
    elif is_change:
        _show_cost_comparison(payload)
    else:
        _show_report(payload, shown, options["show"])
        if sum(row.get("calls", FEW) for row in payload["rows"]) < FEW:
            _print_why_calls_are_missing(client, payload)
    show_cursor(payload)


def _print_why_calls_are_missing(client: OperatorClient, payload: JsonObject) -> None:
    """
    Print how many calls a short report does not count yet, because they wait for further reports of the same
    call.
    """
    waiting = 0
    if datetime.fromisoformat(payload["report"]["to"]) > datetime.now(UTC):
        query = [("state", "open"), ("kind", "inference"), ("limit", "1")]
        answer = client.request("GET", "/records", query=query)
        waiting = answer["pagination"]["total_count"]
    if waiting:
        [hold] = client.request("GET", "/configuration", query=[("name", "spool.hold")])["configuration"]
        newest = datetime.fromisoformat(answer["records"][0]["committed_at"])
        hold_s = parse_quantity(Duration, hold["value"]) or 0
        left_s = hold_s - (datetime.now(UTC) - newest).total_seconds()
        verb, counts = ("calls wait", "count") if waiting > 1 else ("call waits", "counts")
        seconds = max(1, math.ceil(left_s))
        click.echo(f"{waiting:,} {verb} for a second report and {counts} in {seconds:,} s", err=True)
    elif not payload["rows"]:
        click.echo("no calls in this period; `tollhouse send --example litellm` sends one", err=True)


def _fill_options_and_choose_columns(client: OperatorClient, options: dict[str, Any]) -> Sequence[str]:
    """
    Fill options that the user did not give from the view of --view. Return the default measures, or () if the
    user chose the measures. The table omits default measures that are empty.
    """
    shown: Sequence[str] = (*SHOWN, *LATENCY) if options["latency"] else SHOWN
    if options["view"]:
        view = client.request("GET", f"/views/{quote_segment(options['view'])}")["view"]
        options["by"] = options["by"] or tuple(view["group_by"]) or (view["principal_dimension"],)
        if options["against"] is None:
            options["per"] = options["per"] or view["granularity"]
        if options["since"] is options["until"] is options["range"] is None:
            options["range"] = view["range"]
        if view["cost_type"] in (*PLAN_TYPES, *BILLED_TYPES):
            options["cost_type"] = options["cost_type"] or view["cost_type"]
        else:
            money = COST_TYPES[view["cost_type"]]
            shown = tuple(dict.fromkeys(money if name == "cost" else name for name in shown))
    if options["show"]:
        return ()
    if options["cost_type"] in BILLED_TYPES:
        shown = ("cost",)
    if options["unit"]:
        shown = options["show"] = (*shown, UNITS, COST_PER_UNIT)
    return shown


def _show_report(payload: JsonObject, default_columns: Sequence[str], chosen_columns: Sequence[str]) -> None:
    summary = payload["report"]
    warn_about_incomplete_totals(summary["whole_since"])
    warn_about_partial_periods(", ".join(summary["cut_periods"]))
    warn_about_unconverted_amounts(summary["unconverted"], summary["currency"])
    warn_about_days_without_bill(payload["billed"])
    warn_about_units_no_longer_listed(*(summary["other_units"] or {}).values())
    chosen_columns = [name for name in summary["show"] if name != "unpriced" or name in chosen_columns]
    if compared := summary["compared"]:
        click.echo(f"{compared['now']['text']} against {compared['before']['text']}", err=True)
        _show_uncompared_amounts(compared)
    _show_report_table(
        payload, _drop_empty_columns(payload["rows"], default_columns) if default_columns else chosen_columns
    )
    if summary["truncated"]:
        click.echo(
            f"showing the largest of {summary['row_count']:,} groups; all others are summed as {OTHER}. "
            "--csv prints all",
            err=True,
        )


def _drop_empty_columns(rows: Sequence[JsonObject], columns: Sequence[str]) -> Sequence[str]:
    always = ("calls", "cost", *LATENCY)

    def has_column_values(name: str) -> bool:
        return any(row[name] and Decimal(row[name]) for row in rows)

    return [name for name in columns if name in always or has_column_values(name)]


def _show_report_table(payload: JsonObject, columns: Sequence[str]) -> None:
    rows = payload["rows"]
    summary = payload["report"]
    names = report_key_columns(summary)
    ordered = rows
    if "period" not in names and "cost" in summary["show"]:
        ordered = sorted(rows, key=lambda row: Decimal(row["cost"]), reverse=True)
    has_total = payload["total"] is not None
    # aggregated costs have no total, so a repeated row stands in its place
    last = [payload["total"]] if has_total else ordered[:1]
    lines = _format_report_rows([*ordered, *last], names, columns, summary["currency"]) if last else [{}]
    total = lines.pop()
    if "period" in names:
        has_hours = summary["per"] == "hourly"
        for line in lines:
            day, _, time = str(line["period"]).partition("T")
            line["period"] = f"{day} {time[:5]}" if has_hours else day
    if len(rows) > 1 and has_total:
        lines.append(total | {names[0]: "total"} if names else total)
    beside = ("previous_cost", "change") if summary["compared"] and "cost" in summary["show"] else ()
    show_table(lines, (*names, *columns, *beside), _column_titles(summary))
    if continuing := sum(row.get("continues", False) for row in rows):
        warn_about_calls_outside_period(f"{continuing:,} of {len(rows):,} rows have")


def _column_titles(summary: JsonObject) -> Mapping[str, str]:
    short = {name: row.title for name, row in BUILT_IN_DIMENSIONS.items() if row.title not in summary["by"]}
    return {**summary["names"], **short, **CALL_TITLES}


def _show_cost_comparison(payload: JsonObject) -> None:
    summary = payload["comparison"]
    total = payload["total"]
    warn_about_incomplete_totals(summary["whole_since"])
    warn_about_days_without_bill(payload["billed"])
    compared = summary["compared"]
    if compared is None:
        click.echo(
            f"{_format_period(summary)}: {_format_amount(total['cost'])}. {replace_unprintable(summary['sentence'])}"
        )
        if words := _comparable_range_hint(summary["past"]):
            click.echo(words)
        return
    click.echo(replace_unprintable(summary["sentence"]))
    _show_uncompared_amounts(compared)
    names = summary["by"]
    rows = [*payload["rows"], total | dict.fromkeys(names, "total")]
    if total["change"] is None:
        costs = [Decimal(row["cost"]) for row in rows]
        column = format_amount_column(costs, decimals_for_amounts(costs))
        lines = [
            {name: _group_value_or_none_label(name, row) for name in names} | {"cost": text}
            for row, text in zip(rows, _mark_missing_prices(column, rows), strict=True)
        ]
        show_table(lines, (*names, "cost"), _column_titles(summary))
        return
    now, past = ([Decimal(row["cost"]) for row in side] for side in (rows, [row["against"] for row in rows]))
    changes = {name: [Decimal(row[name]) for row in rows] for name in ("change", *PARTS)}
    places = decimals_for_amounts([*now, *past])
    texts = {name: format_amount_column(amounts, places, is_signed=True) for name, amounts in changes.items()}
    texts["cost"] = format_amount_column(now, places)
    # Show the past cost as the difference of the shown amounts, so that each row adds up and its change
    # equals that in `sentence`.
    texts["against"] = [
        format_rounded_amount(exact, cost - change, places)
        for exact, cost, change in zip(
            past, round_to_add_up(now, places), round_to_add_up(changes["change"], places), strict=True
        )
    ]
    texts["cost"] = _mark_missing_prices(texts["cost"], rows)
    texts["against"] = _mark_missing_prices(texts["against"], [row["against"] for row in rows])
    lines = [
        {name: _group_value_or_none_label(name, row) for name in names}
        | {name: column[index] for name, column in texts.items()}
        for index, row in enumerate(rows)
    ]
    parts = [name for name in PARTS if any(changes[name])]
    show_table(lines, (*names, "cost", "against", "change", *parts), _column_titles(summary))
    unpriced = total["unpriced"] + total["against"]["unpriced"]
    if unpriced:
        click.echo(f"{unpriced:,} calls of both periods have no price and count as 0", err=True)


def _show_uncompared_amounts(compared: JsonObject) -> None:
    """Print the amounts that are in the requested range, but not in the comparison."""
    cut = datetime.fromisoformat(compared["now"]["to"])
    if compared["since_cut"] is not None:
        click.echo(f"+{_format_amount(compared['since_cut'])} since {cut:%Y-%m-%d %H:%M}, not compared")
    if compared["rest"] is not None:
        click.echo(compared["rest"])


def _explain_no_comparison(past: JsonObject) -> str:
    if past["state"] == TOO_EARLY:
        return f"too early; the comparison begins at {past['begins_at'][:16].replace('T', ' ')}"
    if past["state"] == WHOLE:
        return NO_PAST
    if past["known_from"] is None:
        return "nothing is counted in the earlier time, so nothing is compared"
    began = f"counting began on {past['known_from'][:10]}, so nothing is compared"
    return "; ".join(filter(None, [began, _comparable_range_hint(past)]))


def _comparable_range_hint(past: JsonObject) -> str:
    count = past["comparable_days"]
    first = datetime.now(UTC).date() - timedelta(days=count - 1)
    return f"the last {count} days have an earlier time: use --from {first}" if count > 1 else ""


def _format_period(span: JsonObject) -> str:
    first, end = (datetime.fromisoformat(span[name]) for name in ("from", "to"))
    if first.time() == end.time() == time.min and end > first:
        return f"{first:%Y-%m-%d} to {end - timedelta(days=1):%Y-%m-%d}"
    return f"{first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}"


def warn_about_calls_outside_period(subject_and_verb: str) -> None:
    click.echo(f"{subject_and_verb} more calls in the day before or after this period", err=True)


def warn_about_incomplete_totals(since: str | None) -> None:
    if since:
        lacking = (
            f"totals from before {since} may be incomplete, because records were deleted before they were "
            "counted"
        )
        click.echo(lacking, err=True)


def warn_about_unconverted_amounts(amounts: Mapping[str, str], currency: str) -> None:
    if amounts:
        click.echo(unconverted_amounts_sentence(amounts, currency), err=True)


def warn_about_days_without_bill(billed: JsonObject | None) -> None:
    if billed:
        day_counts = ", ".join(f"{count} {state}" for state, count in billed["days"].items())
        filled = billed.get("counted")
        of_open = "have no billed costs" if filled is None else f"use counted costs: {filled} in total"
        click.echo(f"days with bills: {day_counts}; days without a final bill {of_open}", err=True)


def warn_about_units_no_longer_listed(calls: int | str | None = None, cost: str = "") -> None:
    if calls is not None:
        click.echo(
            f"units that are no longer listed have {int(calls):,} calls and cost {cost} together. Lists and measures "
            "of units leave them out, so a unit that costs more than this is not missing",
            err=True,
        )


def warn_about_partial_periods(periods: str | None) -> None:
    if periods:
        click.echo(f"these periods are not complete: {periods}", err=True)


def _format_report_rows(
    rows: Sequence[JsonObject], names: Sequence[str], shown: Sequence[str], currency: str
) -> list[dict[str, object]]:
    """Format rows, of which the last is the total. Sums of money add up; unit prices have at least four decimals."""
    money = {name: [_decimal_or_none(row[name]) for row in rows] for name in shown if name in _AMOUNTS}
    has_past = "previous" in rows[-1] and "cost" in rows[-1]
    if has_past:
        money["previous_cost"] = [_decimal_or_none(row["previous"]["cost"]) for row in rows]
    texts = {
        name: format_amount_column(
            amounts, max(4 if name in _EACH else 2, decimals_for_amounts(filter(None, amounts))), currency
        )
        for name, amounts in money.items()
    }
    for name in texts.keys() & {"cost", *_EACH}:
        texts[name] = _mark_missing_prices(texts[name], rows, name)
    if has_past:
        texts["previous_cost"] = _mark_missing_prices(
            texts["previous_cost"], [row["previous"] for row in rows]
        )
    # percentages of cents mislead, so rows have them only if the earlier total is at least a dollar
    compares = has_past and abs(Decimal(rows[-1]["previous"]["cost"])) >= 1
    return [
        {name: _group_value_or_none_label(name, row) for name in names}
        | {name: _format_measure(name, row) for name in shown if name not in money}
        | {name: column[index] for name, column in texts.items()}
        | ({"change": _format_cost_change(row, compares=compares)} if has_past else {})
        for index, row in enumerate(rows)
    ]


def _mark_missing_prices(
    texts: Sequence[str | None], rows: Sequence[JsonObject], name: str = "cost"
) -> list[str | None]:
    return [
        NO_PRICE if has_no_price(row[name], row.get("unpriced", 0)) else text
        for text, row in zip(texts, rows, strict=True)
    ]


def _group_value_or_none_label(name: str, row: JsonObject) -> object:
    value = row.get(name)
    return f"(no {name.replace('_', ' ')})" if value is None and name in WORK_UNITS and name in row else value


def _decimal_or_none(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _format_measure(name: str, row: JsonObject) -> str | None:
    value = row[name]
    if name in PERCENTILES:
        return _format_percentile(value, timed=row.get("timed", 0))
    if value is None:
        return None
    return f"{Decimal(value):,}" if name == UNITS else f"{value:,}"


def _format_cost_change(row: JsonObject, *, compares: bool) -> str | None:
    now, before = Decimal(row["cost"]), Decimal(row["previous"]["cost"])
    if not before:
        return "new" if now else None
    if not compares:
        return None
    share = (now - before) / before
    return f">+{MOST_PERCENT}%" if share * 100 > MOST_PERCENT else f"{share:+.1%}"


def _format_percentile(ms: int | None, *, timed: int) -> str | None:
    if ms is None:
        return f">{LATENCY_EDGES_MS[-1]:,}" if timed else None
    return f"{ms:,}"


def _show_top_calls(client: OperatorClient, options: Mapping[str, Any], form: OutputForm | None) -> None:
    by = options["top_by"] or "cost"
    top = options["top"] or options["limit"] or TOP_CALLS
    if by not in BY_CALL:
        raise click.UsageError(f"with --calls, --top-by must be one of {', '.join(BY_CALL)}")
    if top > MAX_TOP:
        raise click.UsageError(f"--calls lists at most {MAX_TOP} at once; continue with --cursor")
    query = [
        ("sort_key", by),
        ("sort_order", "desc"),
        *_range_query_parameters(options),
        *_record_query_parameters(options["where"]),
    ]
    if options["cursor"]:
        query = [("cursor", options["cursor"])]
    answer = _fetch_first_records(client, query, top)
    records = answer["records"]
    places = decimals_for_amounts(cost for row in records if (cost := _call_cost(row)))
    show_list(form, answer, records, _CALL_COLUMNS, lambda row: _call_table_row(row, places), CALL_TITLES)
    if form == "json":
        return
    looked = answer["looked_through"]
    if looked["since"]:
        since = looked["since"]
        until = f" until {looked['until']}" if looked["until"] else ""
        click.echo(f"searched {looked['records']:,} stored records received since {since}{until}", err=True)
    if looked["records"] >= looked["most"]:
        click.echo(
            "older records were not searched; choose a shorter period, or raise server.max_listed_records",
            err=True,
        )
    show_cursor(answer)


def _fetch_first_records(client: OperatorClient, query: Sequence[tuple[str, str]], top: int) -> JsonObject:
    records: list[JsonObject] = []
    while True:
        limit = min(top - len(records), MAX_LIMIT)
        answer = client.request("GET", "/records", query=[*query, ("limit", str(limit))])
        records += answer["records"]
        following = answer["pagination"]["cursor"]["next_cursor"]
        if following is None or len(records) >= top:
            page = {**answer["pagination"], "item_count": len(records)}
            return {**answer, "records": records, "pagination": page}
        query = [("cursor", following)]


def _record_query_parameters(where: Sequence[str]) -> Iterator[tuple[str, str]]:
    for term in where:
        bound = _BOUND.fullmatch(term)
        if bound:
            yield bound[1], bound[2] + bound[3]
            continue
        name, equals, value = term.partition("=")
        if not equals:
            exit_with_message(
                "--where must be NAME=VALUE, NAME!=VALUE, or with --calls a limit such as 'cost>0.5'", 2
            )
        yield name, value


def _call_cost(row: JsonObject) -> Decimal | None:
    """Return the cost that totals count. A duplicate has none, because another report of its call is counted."""
    if row.get("shadow"):
        return None
    amounts = {"reported": row.get("cost"), "estimated": row.get("estimated_cost")}
    return _decimal_or_none(amounts.get(row.get("cost_source", "")))


def _call_table_row(row: JsonObject, places: int) -> dict[str, object]:
    cost = _call_cost(row)
    start, end = (row.get(name) and datetime.fromisoformat(row[name]) for name in ("start_time", "end_time"))
    return {
        **{name: row.get(name) for name in ("team", "user", "source", "id")},
        "started": None if start is None else f"{start:%Y-%m-%d %H:%M:%S}",
        "model": row.get("response_model") or row.get("request_model"),
        "cost": None if cost is None else format_single_amount(cost, places),
        **{
            name: None if row.get(name) is None else f"{row[name]:,}"
            for name in ("input_tokens", "output_tokens")
        },
        "seconds": f"{(end - start).total_seconds():,.1f}" if start and end else None,
    }


def _show_cost_with_other_model(
    client: OperatorClient, options: Mapping[str, Any], form: OutputForm | None
) -> None:
    model = options["as_if"].removeprefix(_MODEL)
    if model == options["as_if"] or not model:
        raise click.UsageError("--as-if must be model=MODEL, such as --as-if model=gpt-4.1-mini")
    for _ in parse_conditions(options["where"]):  # parse_conditions() rejects a text that is not NAME=VALUE
        pass
    query = [
        *_range_query_parameters(options),
        ("model", model),
        *(("by", name) for name in options["by"] or ("team",)),
    ]
    query += [("where", term) for term in options["where"]]
    answer = client.request("GET", "/what-if", query=query)
    names = answer["what_if"]["by"]
    if form is not None:
        show_list(form, answer, answer["rows"], (*names, "calls", "cost", "as_if", "saves"))
        return
    rows = [*answer["rows"], answer["total"] | dict.fromkeys(names, "total")]
    amounts = {name: [Decimal(row[name]) for row in rows] for name in ("cost", "as_if", "saves")}
    places = decimals_for_amounts(chain.from_iterable(amounts.values()))
    texts = {name: format_amount_column(column, places) for name, column in amounts.items()}
    lines = [
        {name: row[name] for name in names}
        | {"calls": f"{row['calls']:,}"}
        | {name: column[index] for name, column in texts.items()}
        for index, row in enumerate(rows)
    ]
    show_table(lines, (*names, "calls", "cost", "as_if", "saves"))
    estimate = answer["what_if"]
    click.echo(
        f"{_format_amount(estimate['saves_a_month'])} per month at this rate. {' '.join(estimate['assumptions'])}",
        err=True,
    )
    if Decimal(answer["total"]["unchanged"]):
        click.echo(
            f"{_format_amount(answer['total']['unchanged'])} has no list price now and stays unchanged",
            err=True,
        )
    if Decimal(estimate["left_out"]):
        click.echo(f"{_format_amount(estimate['left_out'])} in small groups is left out", err=True)


def _format_amount(text: str) -> str:
    amount = Decimal(text)
    return format_single_amount(amount, decimals_for_amounts([amount]))
