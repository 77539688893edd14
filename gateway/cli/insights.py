"""`tollhouse insights`: what the house noticed about AI spend, and what became of it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import click

from gateway.cli.operator import House, Page, as_json, on_a_house, paged, part, printable, show_json, show_page
from spool.registry.insights import EFFORTS, STATUSES

COLUMNS = ("id", "status", "cost_impact", "effort", "category", "title")


@click.group()
def insights() -> None:
    """What the house noticed about AI spend. Spikes, missing prices, calls that count twice, keys that nobody uses."""


@insights.command("list")
@click.option("--status", multiple=True, help=f"{', '.join(STATUSES)}; may repeat.")
@paged
@on_a_house
def list_insights(house: House, page: Page, **asked: tuple[str, ...]) -> None:
    """List the insights, new ones first."""
    show_page(house, page, "insights", COLUMNS, asked)


@insights.command()
@click.argument("id")
@as_json
@on_a_house
def show(house: House, id: str, as_json: bool) -> None:
    """Show one insight. What was seen, what to do, and what people said."""
    payload = house.ask("GET", f"/insights/{part(id)}")
    if as_json:
        show_json(payload)
        return
    insight = payload["insight"]
    click.echo(printable(insight["title"]))
    click.echo(
        f"{insight['status']}, effort {insight['effort']}, impact ${Decimal(insight['cost_impact']):,}, "
        f"since {_time(insight['created'])}\n"
    )
    click.echo("\n".join(printable(line) for line in insight["description"].splitlines()))
    for comment in payload["comments"]:
        click.echo(f"\n{_time(comment['created'])} {printable(comment['author'])}: {printable(comment['text'])}")


@insights.command("set")
@click.argument("id")
@click.option("--status", type=click.Choice(STATUSES))
@click.option("--effort", type=click.Choice(EFFORTS))
@as_json
@on_a_house
def set_insight(house: House, id: str, status: str | None, effort: str | None, as_json: bool) -> None:
    """Say what became of an insight. An addressed one is new again when it returns."""
    given = {name: value for name, value in (("status", status), ("effort", effort)) if value is not None}
    if not given:
        raise click.UsageError("give --status or --effort")
    payload = house.ask("PATCH", f"/insights/{part(id)}", body=given)
    _told(payload, as_json, f"{id} is {payload['insight']['status']}, effort {payload['insight']['effort']}")


@insights.command()
@click.argument("id")
@click.argument("text")
@as_json
@on_a_house
def comment(house: House, id: str, text: str, as_json: bool) -> None:
    """Leave a comment on an insight."""
    payload = house.ask("POST", f"/insights/{part(id)}/comments", body={"text": text})
    _told(payload, as_json, f"comment {payload['comment']['id']}")


@insights.command()
@as_json
@on_a_house
def run(house: House, as_json: bool) -> None:
    """Look now, with every detector; a server looks every ten minutes."""
    payload = house.ask("POST", "/insights/run", body={})
    done = payload["inspection"]
    words = f"{done['new']} new, {done['again']} found again, {done['reopened']} opened again, {done['gone']} gone"
    _told(payload, as_json, words)
    if done["left_out"]:
        click.echo(f"no room for {done['left_out']} more: delete some that are addressed or ignored", err=True)
    if done["failed"]:
        click.echo(f"detectors that failed, see the log: {', '.join(done['failed'])}", err=True)


def _told(payload: dict[str, Any], as_json: bool, words: str) -> None:
    show_json(payload) if as_json else click.echo(words)


def _time(seconds: str) -> str:
    return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M UTC")
