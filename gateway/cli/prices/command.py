"""`tollhouse prices`: shows a model's prices, sets own prices, loads a newer list, and undoes that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from exporters.errors import SendError
from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import list_command
from gateway.cli.operator.resources import add_resource_commands
from gateway.cli.output import (
    JsonObject,
    OutputForm,
    add_output_form_options,
    show_csv,
    show_json,
    show_table,
)
from gateway.cli.parameters import Moment
from gateway.configuration.prices import PriceOverride
from gateway.configuration.sections import Config
from gateway.intake import price_updates
from gateway.intake.price_updates import Change
from gateway.intake.price_view import ModelPrices, model_prices_by_seller, similar_models
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards import lists
from gateway.intake.rate_cards.card import CardUnreadable, RateCard
from gateway.intake.rate_cards.litellm import NAME as LITELLM
from gateway.operations.money.own_prices import NewPrice, to_price_override
from spool.clock import SystemClock
from spool.printable import replace_unprintable
from spool.providers import PROVIDERS
from spool.record import NS, decimal_text

DAY = click.DateTime(["%Y-%m-%d"])
_COLUMNS = ("tier", "above", "unit", "price", "per", "since", "until")
_TITLES = {"above": "input above", "price": "dollars"}
_MOST_OWN = 1000  # maximum own prices per request
_SHOWN = 30  # maximum price changes that are printed without --json
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, with all changes.")


@click.group()
def prices() -> None:
    """Show the prices of a model, set own prices, and load a newer price list."""


list_command(
    prices,
    "list",
    root="prices",
    columns=(
        "id",
        "model",
        "provider",
        "tier",
        "since",
        "input",
        "output",
        "cache_read",
        "cache_write",
        "author",
    ),
    filters={"model": "Only prices of this model.", "provider": "Only prices of this provider."},
    help="List the prices that operators have set.",
)

add_resource_commands(
    prices,
    NewPrice,
    noun="price",
    path="/prices",
    help={
        "create": "Set a price of a model, on top of the price list. New calls use it at once.",
        "edit": "Change a price that operators have set. Given options replace the present values.",
        "delete": "Delete a price that operators have set. The price list applies again.",
    },
)


@prices.command("show")
@click.argument("model")
@click.option("--provider", help="Provider of the calls; default: every provider that lists the model.")
@click.option(
    "--at", "moment", type=Moment(), metavar="TIME", help="Day or time (UTC) of the calls; default: now."
)
@add_output_form_options
@with_client
def show_model_prices(
    client: OperatorClient, model: str, provider: str | None, moment: str | None, form: OutputForm | None
) -> None:
    """
    Show all prices that apply to a model.

    Lists the price of each unit by service tier, by size of the input, and by time. Prices include those that
    operators have set, and those of [[prices.override]].
    """
    own = client.request("GET", "/prices", query=[("limit", str(_MOST_OWN))])["prices"]
    book = _load_price_book_or_exit(
        client.config,
        [
            to_price_override(NewPrice(**{name: row[name] for name in NewPrice.__struct_fields__}))
            for row in own
        ],
    )
    at = datetime.fromisoformat(moment) if moment else datetime.now(UTC)
    time = int(at.timestamp()) * NS
    found = model_prices_by_seller(book, model, provider, time)
    if not found:
        near = similar_models(book, model)
        hint = f"; similar names: {', '.join(near)}" if near else ""
        where = f" at {provider}" if provider else ""
        exit_with_message(f"the price list {book.version} has no price for {model}{where}{hint}", 2)
    if form == "csv":
        show_csv(
            [
                {"provider": each.provider, "model": each.model, **row._asdict()}
                for each in found
                for row in each.rows
            ],
            ("provider", "model", *_COLUMNS),
        )
        return
    if form == "json":
        rows = [{**asdict(each), "rows": [row._asdict() for row in each.rows]} for each in found]
        show_json({"list": _price_list_fields(book.card, book.version), "prices": rows})
        return
    click.echo(f"list: {book.version}, of {book.card.source['date']}")
    for each in found:
        _print_model_prices(each)


def _print_model_prices(each: ModelPrices) -> None:
    click.echo(f"\n{replace_unprintable(each.provider or 'any provider')}: {replace_unprintable(each.model)}")
    if each.listed_by and each.listed_by != each.provider:
        click.echo(f"prices of {replace_unprintable(each.listed_by)}")
    if each.has_own_prices:
        click.echo("with own prices")
    names = [*each.names, *each.patterns]
    if names:
        click.echo(f"names: {replace_unprintable(', '.join(names))}")
    if each.at_standard:
        click.echo(f"at standard prices: {', '.join(each.at_standard)}")
    show_table([row._asdict() for row in each.rows], _COLUMNS, _TITLES)


@prices.command("update")
@click.option(
    "--from",
    "source",
    required=True,
    metavar="FILE|URL",
    help="Price list in Tollhouse's format, or LiteLLM's model_prices_and_context_window.json.",
)
@click.option(
    "--since",
    type=DAY,
    metavar="DAY",
    help="First day (UTC) of changed prices of LiteLLM's list; default: today.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and store nothing.")
@_as_json
@with_client
def update_price_list(
    client: OperatorClient, source: str, since: datetime | None, dry_run: bool, as_json: bool
) -> None:
    """
    Load a newer price list.

    The list is checked, stored in the data directory, and used from the next call on, because a running server
    reloads its configuration. A list that is incomplete, has impossible prices or is older than the list in use is
    refused with the reason. Existing estimates stay; `tollhouse ledger reprice` recalculates them. With several
    gateways, run the command on each of them.
    """
    config = client.config
    if config.prices.file is not None:
        exit_with_message(
            f"prices.file names the price list {config.prices.file}; replace that file, or remove the setting",
            2,
        )
    today = datetime.now(UTC).date().isoformat()
    before = _load_price_book_or_exit(config).card
    try:
        newer = lists.decode_price_list(
            _read_price_list(config, source), day=today, max_bytes=config.prices.max_file_bytes
        )
        after = _price_list_after_update(
            before, newer, since.date().isoformat() if since else today, is_since_stated=since is not None
        )
    except CardUnreadable as error:
        exit_with_message(str(error), 2)
    changes = price_updates.price_changes(before, after, time=int(datetime.now(UTC).timestamp()) * NS)
    problems = list(price_updates.refusal_reasons(before, newer, after, changes, today=today))
    if problems:
        exit_with_message("\n".join(f"the price list is refused: {problem}" for problem in problems), 2)
    if before.version == after.version:
        changes = []
    stored = not dry_run and before.version != after.version
    reloaded = None
    if stored:
        try:
            lists.store_and_trim_price_lists(config.data_dir, after)
        except OSError as error:
            exit_with_message(f"the list cannot be stored in {config.data_dir}: {error.strerror}")
        reloaded = _reload_running_server(client)
    if as_json:
        show_json({
            "list": _price_list_fields(after, after.version),
            "before": before.version,
            "stored": stored,
            "reloaded": reloaded is not None,
            "changes": [_price_change_as_json(change) for change in changes],
        })  # fmt: skip
        return
    _show_price_changes(changes, before.version, after.version)
    if dry_run:
        click.echo("nothing was stored")
    elif stored:
        _show_reload(reloaded)
        click.echo(
            "stored estimates are unchanged: tollhouse ledger reprice recalculates them; tollhouse prices undo "
            "restores the list before"
        )


@prices.command("undo")
@_as_json
@with_client
def undo_price_update(client: OperatorClient, as_json: bool) -> None:
    """Delete the price list of the last `prices update`, so that the list before it applies again."""
    config = client.config
    try:
        deleted = lists.delete_newest_price_list(config.data_dir)
    except OSError as error:
        exit_with_message(f"the list in {config.data_dir} cannot be deleted: {error.strerror}")
    if deleted is None:
        exit_with_message("there is no list of `prices update` to undo", 2)
    book = _load_price_book_or_exit(config)
    reloaded = _reload_running_server(client)
    if as_json:
        show_json({"list": _price_list_fields(book.card, book.version), "reloaded": reloaded is not None})
        return
    click.echo(f"the price list {book.version} of {book.card.source['date']} applies again")
    _show_reload(reloaded)


def _load_price_book_or_exit(config: Config, own_prices: Sequence[PriceOverride] = ()) -> PriceBook:
    try:
        return PriceBook.load(config.prices, config.data_dir, own_prices)
    except CardUnreadable as error:
        exit_with_message(str(error), 2)


def _read_price_list(config: Config, source: str) -> bytes:
    section = config.prices
    if is_url(source):
        return download_list(source, max_bytes=section.max_file_bytes, timeout_s=section.download_timeout)
    try:
        with Path(source).open("rb") as file:
            return file.read(section.max_file_bytes + 1)
    except OSError as error:
        raise CardUnreadable(f"{source}: {error.strerror}") from error


def _price_list_after_update(
    before: RateCard, newer: RateCard, since: str, *, is_since_stated: bool
) -> RateCard:
    """
    Return the list that would be in use after an update. A list in Tollhouse's format replaces the list
    before, and LiteLLM's list is merged with it.
    """
    if newer.source.get("name") == LITELLM and "merged_with" not in newer.source:
        return lists.with_source_of_newer_list(price_updates.update_card(before, newer, since=since), newer)
    if is_since_stated:
        raise CardUnreadable(
            "--since is only for LiteLLM's list, because this list states the days of its prices"
        )
    return newer


def _reload_running_server(client: OperatorClient) -> JsonObject | None:
    if not client.has_running_server():
        return None
    status, payload = client.request_with_status("POST", "/reload", body={})
    if status >= 400:
        message = payload["error"]["message"]
        exit_with_message(f"the list is stored, but the server keeps the list before: {message}")
    result: JsonObject = payload["reload"]
    return result


def _show_reload(reloaded: JsonObject | None) -> None:
    if reloaded is None:
        click.echo("no server runs here; the list applies from the next start on")
        return
    for name in reloaded["changed"]:
        click.echo(f"changed: {name}")
    for name in reloaded["needs_restart"]:
        click.echo(f"needs a restart: {name}", err=True)


def _show_price_changes(changes: Sequence[Change], before: str, after: str) -> None:
    if before == after:
        click.echo(f"{after} is the list in use")
        return
    click.echo(f"from {before} to {after}")
    known = [change for change in changes if change.before is not None]
    for words, some in (
        ("changed", [change for change in known if change.after is not None]),
        ("added", [change for change in changes if change.before is None]),
        ("removed", [change for change in known if change.after is None]),
    ):
        models = len({(change.provider, change.model) for change in some})
        click.echo(f"{words}: {len(some)} prices of {models} models")
    if known:
        show_table(
            [_price_change_as_json(change) for change in sorted(known, key=_sort_key_by_provider)[:_SHOWN]],
            ("provider", "model", "tier", "above", "unit", "before", "after"),
            {"above": "input above"},
        )
    if len(known) > _SHOWN:
        click.echo(f"and {len(known) - _SHOWN} more changes; --json lists all", err=True)


def _sort_key_by_provider(change: Change) -> tuple[int, Change]:
    cards = [provider.card for provider in PROVIDERS]
    return cards.index(change.provider) if change.provider in cards else len(cards), change


def _price_change_as_json(change: Change) -> dict[str, Any]:
    return {
        "provider": change.provider,
        "model": change.model,
        "tier": change.mode or "standard",
        "above": change.above,
        "unit": change.unit,
        "before": None if change.before is None else decimal_text(change.before),
        "after": None if change.after is None else decimal_text(change.after),
    }


def _price_list_fields(card: RateCard, version: str) -> dict[str, Any]:
    return {"version": version, **{name: value for name, value in card.source.items() if name != "version"}}


def is_url(source: str) -> bool:
    return "://" in source


def download_list(url: str, *, max_bytes: int, timeout_s: float) -> bytes:
    """
    Return the content of an address. Raises CardUnreadable with the reason.

    A redirect is not followed, because it may lead to an address that nobody chose. Link-local addresses and
    services that give a machine its credentials are refused after the name was resolved.
    """
    if not url.startswith("https://"):
        raise CardUnreadable(f"{url}: the address must begin with https://")
    try:
        content = asyncio.run(_fetch_url(url, max_bytes, timeout_s))
    except SendError as error:
        if error.status is not None and 300 <= error.status < 400:
            raise CardUnreadable(
                f"{url}: the address redirects ({error.status}); name the final address"
            ) from error
        raise CardUnreadable(f"{url}: {error}") from error
    if len(content) > max_bytes:
        raise CardUnreadable(f"{url}: the list is larger than prices.max_file_bytes ({max_bytes} bytes)")
    return content


async def _fetch_url(url: str, max_bytes: int, timeout_s: float) -> bytes:
    # imported late, because most commands about prices send no request
    from exporters.http.allowed_addresses import check_address_allowed
    from exporters.http.client import ClientSettings, HttpClient

    settings = ClientSettings(timeout_s=timeout_s, compression="none", check=check_address_allowed)
    async with HttpClient(settings, clock=SystemClock()) as client:
        answer = await client.send(
            url, b"", content_type="application/json", method="GET", max_answer_bytes=max_bytes + 1
        )
    return answer.body
