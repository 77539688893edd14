"""
`tollhouse report`: what AI cost, by whatever is asked, as a table, JSON or CSV; what a change is made of (--against),
the dearest calls one by one (--calls), and what the same calls would have cost with another model (--as-if).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.commands import show_cursor
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
from spool.ledger.periods import RANGES
from spool.ledger.queries import (
    BILLED_TYPES,
    BUILT_IN_DIMENSIONS,
    COST_TYPES,
    DIMENSIONS,
    GRANULARITIES,
    MODEL_FAMILY,
    PLAN_TYPES,
)
from spool.ledger.sums import LATENCY_EDGES_MS, OTHER
from spool.printable import printable
from spool.record import CURRENCY

_BY = (
    f"Dimensions, separated by commas: {', '.join((*BUILT_IN_DIMENSIONS, *DIMENSIONS))}, tag:NAME for the"
    " tags of [ledger] tags, and User:Defined:NAME for what a published definition adds."
)
_BY_DEFAULT = f"Default: {MODEL_FAMILY}, in which all spellings of a model are one row, or as the view says."
_OF_SUMS = ("per", "top", "top_by", "unit", "cost_type", "missing", "currency", "limit", "cursor", "against")
# The options that do not go with others, by the words that say so.
_NOT_AS_IF = {
    "--as-if goes with --by, --where, --view, --range, --from, --to, --tz and --json alone": (
        "show", "compare", "latency", "calls", "csv", *_OF_SUMS
    ),
}  # fmt: skip
_NOT_OF_CALLS = {
    "--calls goes without --by, --per, --compare, --against, --show, --unit, --latency and --csv": (
        "by", "show", "compare", "latency", "against", "per", "unit", "csv"
    ),
    "--calls goes without --currency, --cost-type and --missing": ("currency", "cost_type", "missing"),
}  # fmt: skip
_NOT_AS_CSV = {"--csv has every row: it goes without --limit and --cursor": ("limit", "cursor")}
_NOT_OF_CHANGES = {
    "--against goes without --per, --compare, --top-by, --show, --unit, --currency, --missing, --latency, --csv"
    f" and --cost-type {PLAN_TYPES[0]} and {PLAN_TYPES[1]}": (
        "show", "compare", "latency", "per", "top_by", "unit", "currency", "missing", "of plans", "csv"
    ),
}  # fmt: skip
SHOWN = ("calls", "errors", "cached", "input_tokens", "output_tokens", "cost", "saved", "unpriced")
_EACH = ("cost_per_call", "cost_per_million_tokens", COST_PER_UNIT)
_AMOUNTS = (*MONEY, SAVED_BY_CACHING, *_EACH)
BY_CALL = ("cost", "tokens", "duration")
TOP_CALLS = 10
_MOST_CALLS = 200  # of one page
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
def report(client: OperatorClient, form: str | None, **given: Any) -> None:
    """Report what AI cost, by model unless asked otherwise. In dollars: reported where known, else estimated."""
    given["csv"] = form == "csv"
    given["of plans"] = given["cost_type"] in PLAN_TYPES
    if given["as_if"] is not None:
        _check(given, _NOT_AS_IF)
        _show_as_if(client, given, as_json=form == "json")
    elif given["calls"]:
        _check(given, _NOT_OF_CALLS)
        _show_calls(client, given, as_json=form == "json")
    else:
        if given["top_by"] not in (None, *SUMS):
            raise click.UsageError(
                f"--top-by {given['top_by']} is of calls: add --calls, or take {', '.join(SUMS)}"
            )
        if given["csv"]:
            _check(given, _NOT_AS_CSV)
        if given["against"] is not None:
            _check(given, _NOT_OF_CHANGES)
        _show_sums(client, given, form)


def _check(given: Mapping[str, Any], refused: Mapping[str, Sequence[str]]) -> None:
    """UsageError if an option is given that does not go with the others: `refused` has them by what it says."""
    for words, names in refused.items():
        if any(given[name] not in (None, (), False) for name in names):
            raise click.UsageError(words)


def _span(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parameters for a time and a view."""
    names = {"since": "from", "until": "to", "range": "range", "tz": "tz", "view": "view"}
    return [(name, given[option]) for option, name in names.items() if given[option] is not None]


def _show_sums(client: OperatorClient, given: dict[str, Any], form: str | None) -> None:
    """Print sums by groups, or what a change of them is made of."""
    shown = _columns(client, given)
    for _ in conditions(
        given["where"]
    ):  # each is written as one: else `team` would be the calls without a team
        pass
    once = {name: given[name] for name in _OF_SUMS} | {"compare": PREVIOUS if given["compare"] else None}
    query = _span(given) + [(name, str(value)) for name, value in once.items() if value is not None]
    query += [("by", name) for name in given["by"] or (MODEL_FAMILY,)]
    query += [(name, each) for name in ("where", "show") for each in given[name]]
    if form == "csv":
        told = client.copy("/report", [*query, ("format", "csv")], to=sys.stdout.buffer)
        warn_of_lacking(told.get(WHOLE_SINCE))
        warn_of_cut(told.get(CUT_PERIODS))
        return
    is_change = given["against"] is not None
    payload = client.request("GET", "/comparison" if is_change else "/report", query=query)
    if form == "json":
        show_json(payload)
        return
    if is_change:
        _show_change(payload)
    else:
        _show_report(payload, shown)
    show_cursor(payload)


def _columns(client: OperatorClient, given: dict[str, Any]) -> Sequence[str]:
    """
    Return the measures to show unless they are empty; none if the person chose them. What is not given is
    taken from the view.
    """
    shown: Sequence[str] = (*SHOWN, *LATENCY) if given["latency"] else SHOWN
    if given["view"]:
        view = client.request("GET", f"/views/{part(given['view'])}")["view"]
        given["by"] = given["by"] or tuple(view["group_by"]) or (view["principal_dimension"],)
        if given["against"] is None:
            given["per"] = given["per"] or view["granularity"]
        if given["since"] is given["until"] is given["range"] is None:
            given["range"] = view["range"]
        if view["cost_type"] in BILLED_TYPES:
            given["cost_type"] = given["cost_type"] or view["cost_type"]
        else:
            money = COST_TYPES[view["cost_type"]]
            shown = tuple(dict.fromkeys(money if name == "cost" else name for name in shown))
    if given["show"]:
        return ()
    if given["cost_type"] in BILLED_TYPES:
        shown = ("cost",)
    if given["unit"]:
        shown = given["show"] = (*shown, UNITS, COST_PER_UNIT)
    return shown


def _show_report(payload: JsonObject, shown: Sequence[str]) -> None:
    asked = payload["report"]
    warn_of_lacking(asked["whole_since"])
    warn_of_cut(", ".join(asked["cut_periods"]))
    warn_of_unconverted(asked["unconverted"], asked["currency"])
    warn_of_open_days(payload["billed"])
    _show(payload, _not_empty(payload["rows"], shown) if shown else asked["show"])
    if asked["truncated"]:
        click.echo(
            f"of {asked['row_count']:,} rows the largest groups are shown, the others as {OTHER}; --csv has all",
            err=True,
        )


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
    short = {name: row.title for name, row in BUILT_IN_DIMENSIONS.items() if row.title not in asked["by"]}
    return {**asked["names"], **short}


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


def _show_calls(client: OperatorClient, given: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the calls of a span that cost most, or took most, and how far they were looked for."""
    by = given["top_by"] or "cost"
    top = given["top"] or given["limit"] or TOP_CALLS
    if by not in BY_CALL:
        raise click.UsageError(f"--top-by takes {', '.join(BY_CALL)} with --calls")
    if top > _MOST_CALLS:
        raise click.UsageError(f"--calls lists at most {_MOST_CALLS} at once: go on with --cursor")
    query = [("sort_key", by), ("sort_order", "desc"), *_span(given), *_filters(given["where"])]
    if given["cursor"]:
        query = [("cursor", given["cursor"])]
    answer = client.request("GET", "/records", query=[*query, ("limit", str(top))])
    if as_json:
        show_json(answer)
        return
    show_table([_call_line(row) for row in answer["records"]], _CALL_COLUMNS)
    looked = answer["looked_through"]
    if looked["since"]:
        since = looked["since"]
        until = f" until {looked['until']}" if looked["until"] else ""
        click.echo(f"of {looked['records']:,} kept records that came since {since}{until}", err=True)
    if looked["records"] >= looked["most"]:
        click.echo(
            "older ones were not looked at: ask for fewer days, or raise server.max_listed_records", err=True
        )
    show_cursor(answer)


def _filters(where: Sequence[str]) -> Iterator[tuple[str, str]]:
    """NAME=VALUE and NAME!=VALUE as the list takes them; a bound as the value of its name."""
    for term in where:
        bound = _BOUND.fullmatch(term)
        if bound:
            yield bound[1], bound[2] + bound[3]
            continue
        name, equals, value = term.partition("=")
        if not equals:
            fail("--where is written NAME=VALUE, NAME!=VALUE, or with --calls a bound such as 'cost>0.5'", 2)
        yield name, value


def _call_line(row: JsonObject) -> dict[str, object]:
    amount = {"reported": row.get("cost"), "estimated": row.get("estimated_cost")}.get(
        row.get("cost_source", "")
    )
    start, end = (row.get(name) and datetime.fromisoformat(row[name]) for name in ("start_time", "end_time"))
    return {
        **{name: row.get(name) for name in ("team", "user", "source", "id")},
        "started": row.get("start_time"),
        "model": row.get("response_model") or row.get("request_model"),
        "cost": None if amount is None else f"{Decimal(amount):,.4f}",
        **{
            name: None if row.get(name) is None else f"{row[name]:,}"
            for name in ("input_tokens", "output_tokens")
        },
        "seconds": f"{(end - start).total_seconds():,.1f}" if start and end else None,
    }


def _show_as_if(client: OperatorClient, given: Mapping[str, Any], *, as_json: bool) -> None:
    """Print each group as it cost and as it would have, the largest change first."""
    model = given["as_if"].removeprefix(_MODEL)
    if model == given["as_if"] or not model:
        raise click.UsageError("--as-if takes model=MODEL, such as --as-if model=gpt-4.1-mini")
    for _ in conditions(given["where"]):  # each is written as one
        pass
    query = [*_span(given), ("model", model), *(("by", name) for name in given["by"] or ("team",))]
    query += [("where", term) for term in given["where"]]
    answer = client.request("GET", "/what-if", query=query)
    if as_json:
        show_json(answer)
        return
    names = answer["what_if"]["by"]
    rows = [*answer["rows"], answer["total"] | dict.fromkeys(names, "total")]
    lines = [
        {name: row[name] for name in names}
        | {
            "calls": f"{row['calls']:,}",
            "cost": _money(row["cost"]),
            "as_if": _money(row["as_if"]),
            "saves": _money(row["saves"]),
        }
        for row in rows
    ]
    show_table(lines, (*names, "calls", "cost", "as_if", "saves"))
    told = answer["what_if"]
    click.echo(
        f"{_money(told['saves_a_month'])} a month at this rate. {' '.join(told['assumptions'])}", err=True
    )
    if Decimal(answer["total"]["unchanged"]):
        click.echo(
            f"{_money(answer['total']['unchanged'])} has no list price now and stays as it is", err=True
        )
    if Decimal(told["left_out"]):
        click.echo(f"{_money(told['left_out'])} in small sums is left out", err=True)


def _money(text: str) -> str:
    amount = Decimal(text)
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"
