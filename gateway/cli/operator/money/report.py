"""`tollhouse report`: what AI cost, by whatever is asked, as a table, JSON or CSV."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.commands import show_cursor
from gateway.cli.operator.money.top_calls import BY_CALL, TOP_CALLS, show_top_calls
from gateway.cli.operator.money.what_if import show_what_if
from gateway.cli.output import JsonObject, show_json, show_table
from gateway.cli.parameters import Choice, conditions
from gateway.money.comparison.split import PARTS
from gateway.money.costs.measures import (
    ASKED,
    COST_PER_UNIT,
    DEFAULT_TOP,
    LATENCY,
    MAX_TOP,
    MEASURES,
    MONEY,
    MONEY_KINDS,
    PERCENTILES,
    PREVIOUS,
    SAME_WEEKDAYS,
    SAVED_BY_CACHING,
    SUMS,
    UNITS,
    columns,
)
from gateway.service.mounts import CUT_PERIODS, WHOLE_SINCE
from spool.ledger.money import unconverted_words
from spool.ledger.queries import (
    BILLED_TYPES,
    COST_TYPES,
    DIMENSIONS,
    FAMILY_DIMENSIONS,
    GRANULARITIES,
    PLAN_TYPES,
)
from spool.ledger.ranges import RANGES
from spool.ledger.sums import LATENCY_EDGES_MS, OTHER
from spool.printable import printable
from spool.record import CURRENCY

_FAMILY = FAMILY_DIMENSIONS[0]
_BY = (
    f"Dimensions, separated by commas: {', '.join((*FAMILY_DIMENSIONS, *DIMENSIONS))}, tag:NAME for the"
    " tags of [ledger] tags, and User:Defined:NAME for what a published definition adds."
)
_BY_DEFAULT = f"Default: {_FAMILY}, in which all spellings of a model are one row, or as the view says."
_NOT_AS_IF = ("per", "top", "top_by", "unit", "cost_type", "missing", "currency", "limit", "cursor")
SHOWN = ("calls", "errors", "cached", "input_tokens", "output_tokens", "cost", "saved", "unpriced")
_EACH = ("cost_per_call", "cost_per_million_tokens", COST_PER_UNIT)
_AMOUNTS = (*MONEY, SAVED_BY_CACHING, *_EACH)
_MOST_DECIMALS = 6  # below that nobody looks; --json and --csv have every digit


@click.command()
@click.option(
    "--view",
    metavar="VIEW",
    help="Inside a view, by its id or name; it also says what is shown unless asked otherwise.",
)
@click.option("--by", multiple=True, help=f"{_BY} {_BY_DEFAULT}")
@click.option("--range", type=Choice(RANGES), help="This month so far (mtd), the last 7 days with today, ...")
@click.option(
    "--from", "since", metavar="DAY", help="First day, or a time; default: the first of this month."
)
@click.option("--to", "until", metavar="DAY", help="Last day, which is part of it, or a time; default: now.")
@click.option("--per", type=click.Choice(GRANULARITIES), help="A line for each period; default: one for all.")
@click.option("--tz", metavar="ZONE", help="Where days begin, such as Europe/Berlin; default: UTC.")
@click.option(
    "--where",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only these, such as team=search, or team!=search for all but these; may repeat.",
)
@click.option("--compare", is_flag=True, help="Show the cost of the period before, and the change.")
@click.option(
    "--against",
    is_flag=False,
    flag_value=SAME_WEEKDAYS,
    metavar="TIME",
    help="Say why costs changed since another time: more calls, larger calls, other models or kinds of tokens, prices, "
    f"new and gone. TIME is {PREVIOUS}, a word of --range or FIRST..LAST; without one it is the same weekdays before.",
)
@click.option(
    "--top",
    type=click.IntRange(1, MAX_TOP),
    help=f"Only so many groups; the rest is {OTHER}. Default: all, with --against {DEFAULT_TOP}.",
)
@click.option(
    "--top-by",
    type=Choice(tuple(dict.fromkeys((*SUMS, *BY_CALL)))),
    help=f"What makes a group large, with --calls a call (one of {', '.join(BY_CALL)}); default: cost.",
)
@click.option(
    "--calls",
    is_flag=True,
    help=f"List the dearest calls that are kept, {TOP_CALLS} unless --top says otherwise, instead of sums. --where "
    "takes bounds, too: 'cost>0.5', 'tokens>100000', 'duration>30' (in seconds).",
)
@click.option(
    "--as-if",
    "as_if",
    metavar="model=MODEL",
    help="Show what the same calls would have cost with another model, by list prices: the same tokens.",
)
@click.option("--show", multiple=True, metavar="MEASURES", help=f"Some of {', '.join((*MEASURES, *ASKED))}.")
@click.option(
    "--unit",
    metavar="UNIT",
    help="Show what one unit costs: a user, a value of tag:customer or of any dimension, or what stream:NAME counted "
    "of a unit-cost stream. Calls whose unit is not known are left out of it.",
)
@click.option(
    "--cost-type",
    type=Choice(MONEY_KINDS),
    help="What cost is: what counts (real_cost), the same without calls that plans of assistants cover (metered_cost), "
    "those alone (covered_cost), or what providers billed, discounts in rows of their own or on usage.",
)
@click.option("--missing", type=Choice(("counted",)), help="In bills: what was counted where one is missing.")
@click.option("--currency", metavar="CODE", help="Show money in this currency, such as EUR; default: USD.")
@click.option(
    "--latency",
    is_flag=True,
    help="Show how long calls took: percentiles in milliseconds, estimated from counts.",
)
@click.option(
    "--limit", type=click.IntRange(1), help="Rows per page; default: all. The total is that of all rows."
)
@click.option("--cursor", help="A next_cursor or previous_cursor from an earlier page of the same report.")
@click.option("--json", "form", flag_value="json", help="Print what the operator API answers.")
@click.option("--csv", "form", flag_value="csv", help="Print every measure as CSV.")
@with_client
def report(
    client: OperatorClient,
    against: str | None,
    by: tuple[str, ...],
    where: tuple[str, ...],
    show: tuple[str, ...],
    since: str | None,
    until: str | None,
    compare: bool,
    latency: bool,
    calls: bool,
    as_if: str | None,
    form: str | None,
    **once: Any,
) -> None:
    """Report what AI cost, by model unless asked otherwise. In dollars: reported where known, else estimated."""
    if as_if is not None:
        others = [name for name in _NOT_AS_IF if once[name] is not None]
        if show or compare or latency or calls or against is not None or form == "csv" or others:
            raise click.UsageError(
                "--as-if goes with --by, --where, --view, --range, --from, --to, --tz and --json alone"
            )
        span = {**once, "from": since, "to": until}
        show_what_if(client, as_if, by or ("team",), where, span, as_json=form == "json")
        return
    if calls:
        if (
            by
            or show
            or compare
            or latency
            or against is not None
            or once["per"]
            or once["unit"]
            or form == "csv"
        ):
            raise click.UsageError(
                "--calls goes without --by, --per, --compare, --against, --show, --unit, --latency and --csv"
            )
        if once["currency"] or once["cost_type"] or once["missing"]:
            raise click.UsageError("--calls goes without --currency, --cost-type and --missing")
        for name in ("unit", "currency", "cost_type", "missing"):
            once.pop(name)
        show_top_calls(client, where, {**once, "from": since, "to": until}, as_json=form == "json")
        return
    if once["top_by"] not in (None, *SUMS):
        raise click.UsageError(
            f"--top-by {once['top_by']} is of calls: add --calls, or take {', '.join(SUMS)}"
        )
    if form == "csv" and (once["limit"] or once["cursor"]):
        raise click.UsageError("--csv has every row: it goes without --limit and --cursor")
    asks_more = (
        show
        or compare
        or latency
        or any(once[name] for name in ("per", "top_by", "unit", "currency", "missing"))
        or once["cost_type"] in PLAN_TYPES
    )
    if against is not None and (asks_more or form == "csv"):
        raise click.UsageError(
            "--against goes without --per, --compare, --top-by, --show, --unit, --currency, --missing, --latency, --csv"
            f" and --cost-type {PLAN_TYPES[0]} and {PLAN_TYPES[1]}"
        )
    shown: Sequence[str] = (*SHOWN, *LATENCY) if latency else SHOWN
    if once["view"]:
        view = client.request("GET", f"/views/{part(once['view'])}")["view"]
        by = by or tuple(view["group_by"]) or (view["principal_dimension"],)
        if against is None:
            once["per"] = once["per"] or view["granularity"]
        if since is until is once["range"] is None:
            once["range"] = view["range"]
        if view["cost_type"] not in BILLED_TYPES:
            money = COST_TYPES[view["cost_type"]]
            shown = tuple(dict.fromkeys(money if name == "cost" else name for name in shown))
        else:
            once["cost_type"] = once["cost_type"] or view["cost_type"]
    if once["cost_type"] in BILLED_TYPES:
        shown = ("cost",)
    own_choice = bool(show)
    if once["unit"] and not show:
        show = shown = (*shown, UNITS, COST_PER_UNIT)
    for _ in conditions(where):  # each is written as one: else `team` would be the calls without a team
        pass
    once |= {"from": since, "to": until, "compare": PREVIOUS if compare else None, "against": against}
    query = [(name, str(value)) for name, value in once.items() if value is not None]
    by = by or (_FAMILY,)
    query += (
        [("by", name) for name in by]
        + [("where", term) for term in where]
        + [("show", name) for name in show]
    )
    if form == "csv":
        told = client.copy("/report", [*query, ("format", "csv")], to=sys.stdout.buffer)
        warn_of_lacking(told.get(WHOLE_SINCE))
        warn_of_cut(told.get(CUT_PERIODS))
        return
    payload = client.request("GET", "/report" if against is None else "/comparison", query=query)
    if form == "json":
        show_json(payload)
        return
    if against is not None:
        _show_change(payload)
        show_cursor(payload)
        return
    warn_of_lacking(payload["report"]["whole_since"])
    warn_of_cut(", ".join(payload["report"]["cut_periods"]))
    warn_of_unconverted(payload["report"]["unconverted"], payload["report"]["currency"])
    warn_of_open_days(payload["billed"])
    _show(payload, payload["report"]["show"] if own_choice else _not_empty(payload["rows"], shown))
    if payload["report"]["truncated"]:
        rows = payload["report"]["row_count"]
        click.echo(
            f"of {rows:,} rows the largest groups are shown, the others as {OTHER}; --csv has all", err=True
        )
    show_cursor(payload)


def _not_empty(rows: Sequence[JsonObject], shown: Sequence[str]) -> Sequence[str]:
    """Without the columns that have nothing in any row; what was asked for by --latency stays."""
    always = ("calls", "cost", *LATENCY)

    def has_any(name: str) -> bool:
        return any(row[name] and Decimal(row[name]) for row in rows)

    return [name for name in shown if name in always or has_any(name)]


def _show(payload: JsonObject, shown: Sequence[str]) -> None:
    rows = payload["rows"]
    asked = payload["report"]
    names = columns(asked)
    ordered = rows
    if "period" not in names and "cost" in asked["show"]:
        ordered = sorted(rows, key=lambda row: Decimal(row["cost"]), reverse=True)
    places = _decimals([*rows, payload["total"]], shown)
    currency = asked["currency"]
    lines = [_line(row, names, shown, places, currency) for row in ordered]
    if len(rows) > 1:
        total = _line(payload["total"], names, shown, places, currency)
        lines.append(total | {names[0]: "total"} if names else total)
    beside = ("previous_cost", "change") if asked["previous"] and "cost" in asked["show"] else ()
    show_table(lines, (*names, *shown, *beside), _titles(asked))


def _titles(asked: JsonObject) -> Mapping[str, str]:
    """Name the columns of a table: a family is called a model, unless spellings stand beside it."""
    titles = dict(asked["names"])
    for name in FAMILY_DIMENSIONS:
        plain = name.removesuffix("_family")
        if plain not in asked["by"]:
            titles[name] = plain
    return titles


def _decimals(rows: Sequence[JsonObject], shown: Sequence[str]) -> int:
    """
    Return as many decimals as it takes to see every amount, and for rows as shown to add up to the last of
    them; at least cents.
    """
    sums = [name for name in shown if name in _AMOUNTS and name not in _EACH]
    exact = [[Decimal(row[name] or 0) for row in rows] for name in sums]
    least = min((abs(amount) for amounts in exact for amount in amounts if amount), default=Decimal(1))
    for places in range(2, _MOST_DECIMALS):
        step = Decimal(1).scaleb(-places)
        figures = [[amount.quantize(step) for amount in amounts] for amounts in exact]
        if least >= step and all(sum(parts) == total for *parts, total in figures):
            return places
    return _MOST_DECIMALS


def _show_change(payload: JsonObject) -> None:
    asked = payload["comparison"]
    total = payload["total"]
    warn_of_lacking(asked["whole_since"])
    warn_of_open_days(payload["billed"])
    before = asked["against"]
    click.echo(f"{asked['from']} to {asked['to']}, against {before['from']} to {before['to']}")
    click.echo(printable(asked["sentence"]))
    names = asked["by"]
    lines = [
        {name: row[name] for name in names}
        | {"cost": _amount(row["cost"]), "against": _amount(row["against"]["cost"])}
        | {name: f"{Decimal(row[name]):+,.4f}" for name in ("change", *PARTS)}
        for row in (*payload["rows"], total | dict.fromkeys(names, "total"))
    ]
    show_table(lines, (*names, "cost", "against", "change", *PARTS), _titles(asked))
    unpriced = total["unpriced"] + total["against"]["unpriced"]
    if unpriced:
        click.echo(f"{unpriced:,} calls of the two times have no known cost and count as 0", err=True)


def warn_of_lacking(since: str | None) -> None:
    if since:
        lacking = f"sums of before {since} may lack records: these were gone when the ledger was counted"
        click.echo(lacking, err=True)


def warn_of_unconverted(amounts: Mapping[str, str], currency: str) -> None:
    if amounts:
        click.echo(unconverted_words(amounts, currency), err=True)


def warn_of_open_days(billed: JsonObject | None) -> None:
    if billed:
        told = ", ".join(f"{count} {state}" for state, count in billed["days"].items())
        filled = billed.get("counted")
        of_open = "have no billed money" if filled is None else f"have what was counted: {filled} in all"
        click.echo(f"days with bills: {told}; open days {of_open}", err=True)


def warn_of_cut(periods: str | None) -> None:
    if periods:
        click.echo(f"only a part of the periods that begin at {periods}", err=True)


def _line(
    row: JsonObject, names: Sequence[str], shown: Sequence[str], places: int, currency: str
) -> dict[str, object]:
    """Sums of money with so many decimals, prices of one thing with four at least, and percentiles."""
    line: dict[str, object] = {name: row.get(name) for name in names}
    for name in shown:
        if name in PERCENTILES:
            line[name] = _percentile(row[name], timed=row.get("timed", 0))
        else:
            line[name] = _figure(name, row[name], places, currency)
    if "previous" in row and "cost" in row:
        before = row["previous"]["cost"]
        line |= {
            "previous_cost": _amount(before, places, currency),
            "change": _change(Decimal(row["cost"]), Decimal(before)),
        }
    return line


def _figure(name: str, value: Any, places: int, currency: str) -> str | None:
    if name in _EACH:
        return _amount(value, max(4, places), currency)
    if name in _AMOUNTS:
        return _amount(value, places, currency)
    if name == UNITS:
        return None if value is None else f"{Decimal(value):,}"
    return f"{value:,}"


def _amount(text: str | None, places: int = 4, currency: str = CURRENCY) -> str | None:
    if text is None:
        return None
    amount = Decimal(text)
    sign = "$" if currency == CURRENCY else f"{currency} "
    return f"{'-' if amount < 0 else ''}{sign}{abs(amount):,.{places}f}"


def _change(now: Decimal, before: Decimal) -> str | None:
    if not before:
        return "new" if now else None
    return f"{(now - before) / before:+.1%}"


def _percentile(ms: int | None, *, timed: int) -> str | None:
    if ms is None:
        return f">{LATENCY_EDGES_MS[-1]:,}" if timed else None
    return f"{ms:,}"
