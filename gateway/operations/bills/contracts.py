"""Handlers for contracts with providers, and their costs in a month."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.bills.contracts.costs import ContractCosts, ContractQuestion, contract_costs
from gateway.bills.contracts.declared import (
    Contract,
    ContractChanges,
    ContractItem,
    ContractTable,
    NewContract,
    OneContract,
)
from gateway.bills.contracts.reading import contract_charge_reader
from gateway.bills.plans.costs import parse_month
from gateway.core.fields import build_answer
from gateway.http.answers import JSON
from gateway.http.lists import Filter, ListDefinition, Sort
from gateway.http.requests import Result
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import SHOW, ByPeople, JsonAnswer, ManagedResource
from gateway.operations.records.served_hours import ServedTokensByHour
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.currencies import DECIMALS
from spool.record import CURRENCY, utc_iso
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS
from spool.registry.texts import check_one_of


def _describe_contract(row: Contract) -> JsonAnswer:
    return build_answer(
        ContractItem,
        row,
        terms=msgspec.to_builtins(row.terms),
        created=utc_iso(row.created),
        last_updated=utc_iso(row.last_updated),
    )


class ContractResource(ManagedResource[Contract, MoneyServices]):
    noun = "contract"
    table = ContractTable
    new = NewContract
    changes = ContractChanges
    item = ContractItem
    one = OneContract
    files = ResourceFiles(name="contracts")
    searched = ("name",)
    lists: ListDefinition[Contract] = ListDefinition(
        root="contracts",
        show=_describe_contract,
        identity=Sort(value=lambda row: row.id),
        sorts={
            "name": Sort(value=lambda row: row.name),
            "provider": Sort(value=lambda row: row.provider),
            "since": Sort(value=lambda row: row.since),
            "created": Sort(value=lambda row: row.created),
        },
        default_sort=("created", "asc"),
        filters={
            "name": Filter(values=lambda row: (row.name,)),
            "provider": Filter(values=lambda row: (row.provider,)),
        },
    )
    people = ByPeople(
        path="/contracts",
        reads=VIEW_COSTS,
        changes=MODIFY_BILLING,
        words={SHOW: "Show a contract, by id or name"},
    )


CONTRACT = ContractResource()


@operator_call(
    "GET",
    "/contract-costs",
    VIEW_COSTS,
    "Show the costs of contracts in a month",
    optional=("month", "currency"),
    in_turn=True,
    gives={JSON: ContractCosts},
)
async def costs_of_contracts(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Return the costs of contracts in a calendar month (UTC), up to today, and the parts of teams.

    Each day's cost of capacity is divided by the list value of the calls that it covers, and that of own
    hardware by weighted tokens. A day without such a call is `unused`. Other amounts are divided by the cost
    of the provider's calls that no plan covers.
    """
    query = request.http.query
    currency = query.get("currency", CURRENCY)
    check_one_of("currency", currency, DECIMALS)
    await request.ledger.require_complete_totals(request.services.log)
    prices, now = await asyncio.to_thread(request.services.prices), request.now()
    asking = ContractQuestion(
        # whole: this address requires access to all calls
        reader=contract_charge_reader(request.whole_ledger, request.registry, prices, now),
        statements=request.registry.statements,
        month=parse_month(query.get("month"), now),
        currency=currency,
        served=_served_hours(request).tokens_in_span,
    )
    costs: Mapping[str, Any] = msgspec.to_builtins(await contract_costs(asking))
    return costs


def _served_hours(request: OperatorRequest[MoneyServices, None]) -> ServedTokensByHour:
    services = request.services
    if services.served_hours is None:
        services.served_hours = ServedTokensByHour(services.log, request.shared.most)
    return services.served_hours
