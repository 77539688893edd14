"""`tollhouse allocation`: dimensions of the organization's own, as definitions in YAML."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.money.report import warn_of_lacking
from gateway.cli.output import as_json, show_json, show_table

_MOST_SHOWN = 20  # elements of a dimension


@click.group()
def allocation() -> None:
    """Dimensions of your own, by rules over what the ledger keeps."""


@allocation.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--month", metavar="YYYY-MM", default="", help="In UTC; default: the running one.")
@click.option("--namespace", metavar="NAME", default="", help="The namespace that FILE belongs to.")
@as_json
@with_client
def diff(client: OperatorClient, file: Path, month: str, namespace: str, as_json: bool) -> None:
    """Show what a month would become under the definition in FILE. Nothing is published, and totals stay."""
    body = {"definition": text_of(file), "month": month, "namespace": namespace}
    payload = asked(client, "POST", "/allocation/diff", body)
    if as_json:
        show_json(payload)
        return
    warn_of_lacking(payload["diff"])
    _show_border(payload["diff"]["border"])
    for dimension in payload["dimensions"]:
        _show_dimension(dimension, payload["total"])


def text_of(file: Path) -> str:
    """The text of a definition; the command ends if it cannot be read."""
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        fail(f"{file} is not UTF-8 text", 2)
    except OSError as error:
        fail(f"{file}: {error.strerror}")


def asked(client: OperatorClient, method: str, path: str, body: object) -> dict[str, Any]:
    """One call that takes a definition; the command ends with every fault of it, each with its place."""
    status, payload = asyncio.run(client.ask(method, path, body=body))
    if faults := payload.get("errors"):
        for fault in faults:
            place = ".".join(map(str, fault["path"]))
            shown = f" ({fault['value']})" if fault["value"] else ""
            click.echo(f"{place or 'definition'}: {fault['error']}{shown}", err=True)
        fail(f"the definition has {len(faults)} {'fault' if len(faults) == 1 else 'faults'}", 2)
    if status >= 400:
        fail(payload["error"]["message"], 2 if status in (400, 404, 409, 413, 422) else 1)
    return payload


def _show_border(border: Mapping[str, Any]) -> None:
    if border["kept_since"] is None:
        click.echo("the ledger has no sums yet", err=True)
        return
    click.echo(f"sums are kept since {border['kept_since']}", err=True)
    for tag, since in border["tags"].items():
        known = f"known since {since}" if since else "not known of any call yet"
        click.echo(f"{tag} is {known}", err=True)


def _show_dimension(dimension: Mapping[str, Any], total: Mapping[str, Any]) -> None:
    click.echo(f"\n{dimension['name']} ({dimension['id']}): {dimension['state']}")
    rows = [(each["element"], _cost(each["before"]), _cost(each["after"])) for each in dimension["elements"]]
    rest = rows[_MOST_SHOWN:]
    if rest:
        was, now = _sum(each[1] for each in rest), _sum(each[2] for each in rest)
        rows = [*rows[:_MOST_SHOWN], (f"({len(rest)} more)", was, now)]
    whole, state = Decimal(total["cost"]), dimension["state"]
    rows.append(("total", None if state == "new" else whole, None if state == "gone" else whole))
    lines = [{"element": name, "before": _shown(was), "after": _shown(now), "change": _change(was, now)}
             for name, was, now in rows]  # fmt: skip
    show_table(lines, ("element", "before", "after", "change"))


def _cost(spend: Mapping[str, Any] | None) -> Decimal | None:
    return None if spend is None else Decimal(spend["cost"])


def _sum(costs: Iterable[Decimal | None]) -> Decimal | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal()) if known else None


def _shown(cost: Decimal | None) -> str | None:
    return None if cost is None else f"{cost:,.4f}"


def _change(was: Decimal | None, now: Decimal | None) -> str | None:
    return None if was is None or now is None else f"{now - was:+,.4f}"
