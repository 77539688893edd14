"""The `tollhouse contracts` commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from gateway.bills.contracts.declared import ContractTerm, NewContract
from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import list_command
from gateway.cli.operator.resources import add_resource_commands, request_body
from gateway.cli.output import JsonObject, OutputForm, add_output_form_options, show_list
from spool.money import unconverted_amounts_sentence

COLUMNS = ("id", "name", "provider", "since", "until", "currency", "terms")
_CAPACITY = (
    "contract", "models", "tier", "unit", "number", "cost", "unused", "unreported", "list_value", "utilisation",
    "idle_hours",
)  # fmt: skip
_LISTS = ("models", "kinds")
_AMOUNTS = ("cost", "unused", "unreported", "list_value")
_BY_TEAM = ("contract", "charge", "team", "cost")
_OPTIONS = (
    click.option(
        "--term",
        multiple=True,
        metavar="'KIND FIELD=VALUE ...'",
        help="A term, such as 'discount percent=10 models=gpt-4o*,o3' or 'capacity unit=ptu number=100 price=1 "
        "per=hour'; may repeat.",
    ),
)


@click.group()
def contracts() -> None:
    """Manage contracts with providers, and show their costs."""


list_command(
    contracts,
    "list",
    root="contracts",
    columns=COLUMNS,
    filters={
        "name": "Only the contract with this exact name.",
        "provider": "Only contracts with this provider.",
    },
    shown=lambda row: {**row, "terms": len(row["terms"])},
    help="List contracts in the order of their creation.",
)


def _row_with_term_texts(contract: JsonObject) -> JsonObject:
    return {**contract, "terms": "; ".join(map(_format_contract_term, contract["terms"]))}


def _format_contract_term(term: JsonObject) -> str:
    stated = {name: value for name, value in term.items() if value and name != "kind"}
    words = (f"{name}={','.join(value) if name in _LISTS else value}" for name, value in stated.items())
    return " ".join((term["kind"], *words))


def _contract_request_body(*, term: Sequence[str], **given: Any) -> JsonObject:
    body = request_body(NewContract, given)
    return {**body, "terms": [_parse_contract_term(text) for text in term]} if term else body


def _parse_contract_term(text: str) -> JsonObject:
    """Parse a contract term, "KIND FIELD=VALUE ...", of an option. Exits with code 2 for an unknown field."""
    kind, *words = text.split() or [""]
    fields: JsonObject = {"kind": kind}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in ContractTerm.__struct_fields__:
            fields_of_terms = ", ".join(ContractTerm.__struct_fields__[1:])
            exit_with_message(
                f"{word} is not a field of a term: write KIND FIELD=VALUE ..., with the fields {fields_of_terms}",
                2,
            )
        fields[name] = value.split(",") if name in _LISTS else value
    return fields


add_resource_commands(
    contracts,
    NewContract,
    noun="contract",
    path="/contracts",
    help={
        "create": "Create a contract with a provider. Its terms about prices apply to new calls.",
        "show": "Show a contract, by id or name.",
        "edit": "Change a contract. Given options replace the current values; --term replaces all terms.",
        "delete": "Delete a contract. New calls are estimated at the price list.",
    },
    shown=_row_with_term_texts,
    options=_OPTIONS,
    body=_contract_request_body,
)


@contracts.command("costs")
@click.option(
    "--month", metavar="YYYY-MM", help="A calendar month (UTC), such as 2026-10; default: the current month."
)
@click.option("--by-team", is_flag=True, help="Show the amounts of all terms, one line per team.")
@click.option("--currency", metavar="CODE", help="The currency of amounts, such as EUR; default: USD.")
@add_output_form_options
@with_client
def show_capacity_costs(
    client: OperatorClient, month: str | None, by_team: bool, currency: str | None, form: OutputForm | None
) -> None:
    """
    Show the costs of capacity in a month, next to the value of the covered calls at list prices. With
    --by-team, show all contract amounts.

    "utilisation" is this value as a percentage of the cost. Above 100, the capacity is cheaper than paying
    per call.
    """
    query = [(name, value) for name, value in (("month", month), ("currency", currency)) if value]
    answer = client.request("GET", "/contract-costs", query=query)
    shown, columns = (answer["rows"], _BY_TEAM) if by_team else (answer["capacity"], _CAPACITY)
    show_list(form, answer, shown, columns, money=_AMOUNTS, currency=answer["contract_costs"]["currency"])
    workloads = [row["workload"] for row in answer["capacity"] if row["workload"]]
    for workload in workloads if form is None else ():
        if workload["state"] == "no_cost":
            problem = f"no container cost of {workload['name']} is known in this month"
            command = "tollhouse report --by workload --cost-type billed_cost"
            click.echo(f"{problem}: check the names with {command}", err=True)
    lacking = answer["total"]["unconverted"]
    if form is None and lacking:
        click.echo(unconverted_amounts_sentence(lacking, answer["contract_costs"]["currency"]), err=True)
