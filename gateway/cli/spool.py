"""`tollhouse spool`: what is in the spool, what became of it, and what to do by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.operator import (
    House,
    Page,
    Seconds,
    as_json,
    on_a_house,
    paged,
    part,
    show_fields,
    show_json,
    show_page,
    show_table,
)
from spool.log.books import LEFT_OUT

ROUTE_COLUMNS = ("route", "state", "queued", "oldest_age_s", "reason")
DEAD_COLUMNS = ("id", "route", "number", "status", "at", "error")
SHAPE_COLUMNS = ("count", "last_seen", "names")
REFUSAL_COLUMNS = ("route", "first", "last", "count", "at", "words")
CONFLICT_COLUMNS = ("first_source", "second_source", "count", "first", "second")
TOPIC_COLUMNS = ("topic", "received", "accepted", "duplicates", "ignored", "rejected", "pending")


_LONGEST_S = 50 * 365 * 86400.0  # before that nothing was kept


class Moment(click.ParamType[str]):
    """A time (RFC 3339; UTC without a zone), or how long ago (2h)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            at = datetime.now(UTC) - timedelta(seconds=min(Seconds().convert(value, param, ctx), _LONGEST_S))
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


@click.group()
def spool() -> None:
    """Look into the spool; settle by hand what cannot settle itself."""


@spool.command()
@as_json
@on_a_house
def status(house: House, as_json: bool) -> None:
    """Topics, routes with their state, and space."""
    payload = house.ask("GET", "/status")
    if as_json:
        show_json(payload)
        return
    show_table([_summed(topic) for topic in payload["topics"]], TOPIC_COLUMNS)
    click.echo()
    show_table(payload["routes"], ROUTE_COLUMNS)
    space = payload["space"]
    click.echo(
        f"\n{space['bytes'] / 2**20:.1f} MiB of {space['max_bytes'] / 2**20:.0f} MiB in {space['entries']} entries, "
        f"{space['free_bytes'] / 2**20:.0f} MiB left"
        + ("" if space["writable"] else f"; NOT WRITABLE: {space['last_error']}")
    )
    click.echo(f"duplicates are known for {payload['duplicate_window_s'] / 3600:.1f} h")


@spool.command()
@click.argument("id")
@as_json
@on_a_house
def receipt(house: House, id: str, as_json: bool) -> None:
    """What became of a submission, by its Tollhouse-Receipt's id."""
    payload = house.ask("GET", f"/receipts/{part(id)}")
    show_json(payload) if as_json else show_fields(payload["receipt"])


@spool.group()
def dead() -> None:
    """Records that an upstream refused for good."""


@dead.command("list")
@click.option("--route", multiple=True, help="DESTINATION/TOPIC")
@click.option("--status", multiple=True, help="The upstream's status.")
@paged
@on_a_house
def list_dead(house: House, page: Page, **asked: tuple[str, ...]) -> None:
    """List dead letters with the upstream's words."""
    show_page(house, page, "dead", DEAD_COLUMNS, asked)


@dead.command("show")
@click.argument("id", type=int)
@as_json
@on_a_house
def show_dead(house: House, id: int, as_json: bool) -> None:
    """Show one dead letter and its record."""
    payload = house.ask("GET", f"/dead/{id}")
    if as_json:
        show_json(payload)
        return
    letter = payload["dead"]
    show_fields({name: value for name, value in letter.items() if name != "record"})
    show_json(letter["record"])


@dead.command("retry")
@click.argument("ids", type=int, nargs=-1)
@click.option("--route", help="All of this route.")
@click.option("--all", "every", is_flag=True, help="All there are.")
@as_json
@on_a_house
def retry_dead(house: House, ids: tuple[int, ...], route: str | None, every: bool, as_json: bool) -> None:
    """Send dead letters again."""
    payload = house.ask("POST", "/dead/retry", body=_letters(ids, route, every))
    show_json(payload) if as_json else click.echo(f"{payload['retried']} will be sent again")


@dead.command("discard")
@click.argument("ids", type=int, nargs=-1)
@click.option("--route", help="All of this route.")
@click.option("--all", "every", is_flag=True, help="All there are.")
@as_json
@on_a_house
def discard_dead(house: House, ids: tuple[int, ...], route: str | None, every: bool, as_json: bool) -> None:
    """Give dead letters up; they are counted as discarded."""
    payload = house.ask("POST", "/dead/discard", body=_letters(ids, route, every))
    show_json(payload) if as_json else click.echo(f"{payload['discarded']} discarded")


@spool.command()
@click.option("--route", required=True, help="DESTINATION/TOPIC")
@click.option("--since", required=True, type=Moment(), help="A time (2026-01-31T12:00Z), or how long ago (2h).")
@click.option("--until", type=Moment(), help="Like --since; now when not given.")
@click.option("--dry-run", is_flag=True, help="Count, send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@on_a_house
def replay(house: House, route: str, since: str, until: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Send records again that a route has settled, under new keys."""
    body: dict[str, Any] = {"route": route, "since": since, "dry_run": True}
    if until:
        body["until"] = until
    payload = house.ask("POST", "/replay", body=body)
    if not dry_run:
        records = payload["replay"]["records"]
        if records and route.startswith("upstream/") and not yes:
            _ask_first(records)
        payload = house.ask("POST", "/replay", body={**body, "until": payload["replay"]["until"], "dry_run": False})
    if as_json:
        show_json(payload)
        return
    click.echo(f"{payload['replay']['records']} records {'would be' if dry_run else 'will be'} sent again to {route}")


@spool.group("route")
def routes() -> None:
    """The ways out of the house."""


@routes.command("list")
@click.option("--route", multiple=True, help="DESTINATION/TOPIC")
@click.option("--state", multiple=True, help="running, parked, refusing or orphaned")
@paged
@on_a_house
def list_routes(house: House, page: Page, **asked: tuple[str, ...]) -> None:
    """List routes with their state and queue."""
    show_page(house, page, "routes", ROUTE_COLUMNS, asked)


@routes.command("drop")
@click.argument("name")
@as_json
@on_a_house
def drop_route(house: House, name: str, as_json: bool) -> None:
    """Forget a route whose destination left the configuration. Its queue is counted as discarded."""
    destination, slash, topic = name.rpartition("/")
    if not slash or not destination or not topic:
        fail("a route is named DESTINATION/TOPIC, such as archive/ai-telemetry", 2)
    payload = house.ask("DELETE", f"/routes/{part(destination)}/{part(topic)}")
    show_json(payload) if as_json else click.echo(f"{name} dropped, {payload['discarded']} records discarded")


@spool.command()
@click.option("--name", multiple=True, help="Shapes with this name among theirs.")
@paged
@on_a_house
def ignored(house: House, page: Page, **asked: tuple[str, ...]) -> None:
    """List shapes that look like AI and that no dialect took."""
    show_page(house, page, "ignored", SHAPE_COLUMNS, asked)


@spool.command()
@click.option("--route", multiple=True, help="DESTINATION/TOPIC")
@paged
@on_a_house
def refused(house: House, page: Page, **asked: tuple[str, ...]) -> None:
    """List what upstreams refused in answers that took the rest."""
    show_page(house, page, "partial_refusals", REFUSAL_COLUMNS, asked)


@spool.command()
@click.option("--topic", multiple=True)
@click.option("--first-source", multiple=True)
@click.option("--second-source", multiple=True)
@paged
@on_a_house
def conflicts(house: House, page: Page, **asked: tuple[str, ...]) -> None:
    """List reports of one call that disagreed on tokens or cost."""
    show_page(house, page, "conflicts", CONFLICT_COLUMNS, asked)


@spool.command()
@as_json
@on_a_house
def verify(house: House, as_json: bool) -> None:
    """Recount the books from the entries. Exit 1 when they do not balance."""
    payload = house.ask("GET", "/verify")
    if as_json:
        show_json(payload)
    else:
        for title, books in (("topic", payload["topics"]), ("route", payload["routes"])):
            rows = [
                {title: name, "term": term, "n": n}
                for name, terms in books.items()
                for term, n in terms.items()
                if term != LEFT_OUT
            ]
            show_table(rows, (title, "term", "n"))
            click.echo()
        for topic, terms in payload["topics"].items():
            if left_out := terms.get(LEFT_OUT):
                click.echo(f"{topic}: {left_out} tags were left out, over a bound or under a name of content")
    if not payload["balanced"]:
        fail("; ".join(payload["imbalances"]))
    if not as_json:
        click.echo("the books balance")


def _summed(topic: dict[str, Any]) -> dict[str, Any]:
    """`ignored` and `rejected` over all their reasons."""
    sums = {
        term: sum(n for name, n in topic.items() if name.partition(".")[0] == term) for term in ("ignored", "rejected")
    }
    return {**dict.fromkeys(TOPIC_COLUMNS, 0), **topic, **sums}


def _letters(ids: tuple[int, ...], route: str | None, every: bool) -> dict[str, Any]:
    if bool(ids) + (route is not None) + every != 1:
        fail("name dead letters by their ids, or --route, or --all", 2)
    return {"ids": ids} if ids else {"route": route} if route else {"all": True}


def _ask_first(records: int) -> None:
    warning = f"{records} records will be sent to the upstream again, and the service may count them again. Go on?"
    if not click.confirm(warning, err=True):
        fail("nothing was sent")
