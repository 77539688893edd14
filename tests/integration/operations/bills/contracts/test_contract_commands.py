"""Contracts by command, and the terms that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.bills.contracts.declared import ContractTerm, NewContract, check_contract
from spool.errors import Invalid
from tests.integration.operations.test_commands import run_on

CAPACITY = "capacity unit=ptu number=100 price=1.50 per=hour models=gpt-4o*,o3 tier=standard"


def test_a_contract_lives_its_whole_life_by_command(tmp_path: Path) -> None:
    """
    In the life of a contract by commands (created, shown, changed, deleted), each term is shown as it was written.
    """
    run = run_on(tmp_path)
    create = ["contracts", "create", "--name", "PTU", "--provider", "Azure OpenAI", "--since", "2026-11-01"]
    shown = run(*create, "--term", CAPACITY, "--term", "discount percent=10").stdout
    assert "azure.ai.openai" in shown
    assert (
        "models=gpt-4o*,o3 tier=standard unit=ptu number=100 price=1.50 per=hour; discount percent=10"
        in shown
    )
    assert "tier=standard unit=ptu" in run("contracts", "show", "PTU").stdout
    free = "allowance models=gpt-4o* tokens=1000 kinds=input,output per=day"
    assert free in run("contracts", "edit", "PTU", "--term", free).stdout
    edited = json.loads(run("contracts", "edit", "PTU", "--term", "discount percent=5", "--json").stdout)
    assert ["5"] == [term["percent"] for term in edited["contract"]["terms"]]
    assert "no field" not in run("contracts", "list").stdout
    assert (
        "is not a field of a term"
        in run("contracts", "edit", "PTU", "--term", "discount pct=5", code=2).stderr
    )
    assert "nothing to change" in run("contracts", "edit", "PTU", code=2).stderr
    assert "CONTRACT" in run("contracts", "costs").stdout
    assert "deleted" in run("contracts", "delete", "PTU").stdout


WORKLOAD = {"kind": "capacity", "cluster": "gpu", "namespace": "ml", "workload": "qwen", "models": ("qwen*",)}
GOOD = {"kind": "capacity", "unit": "ptu", "number": "1", "price": "1", "per": "hour"}


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([], "terms must have 1 to 50 entries"),
        ([{"kind": "discount"}], "terms.1.percent is required for discount"),
        ([{"kind": "discount", "percent": "0"}], "terms.1.percent must be more than 0 and at most 100"),
        ([{"kind": "discount", "percent": "100.1"}], "terms.1.percent must be more than 0 and at most 100"),
        ([{"kind": "discount", "percent": "-1"}], "terms.1.percent must not be negative"),
        ([{"kind": "discount", "percent": "1", "unit": "ptu"}], "terms.1.unit is not allowed for discount"),
        ([{"kind": "tier_price", "tier": "flex"}], "terms.1 needs either a factor or prices"),
        ([{"kind": "tier_price", "tier": "flex", "factor": "1", "input": "1"}], "terms.1 needs either"),
        ([{"kind": "tier_price", "tier": "cheap", "factor": "1"}], "terms.1.tier must be one of"),
        ([GOOD, {**GOOD, "per": ""}], "terms.2.per is required for capacity"),
        ([GOOD, {**GOOD, "models": ("o3",)}], "terms 1 and 2 are both capacity of the same calls"),
        ([{**GOOD, "models": ("x",) * 51}], "terms.1.models must have at most 50 entries"),
        ([{**GOOD, "number": "many"}], "terms.1.number must be a decimal number"),
        ([{"kind": "priority", "amount": "1", "per": "month"}], "terms.1.tier is required for priority"),
        ([{"kind": "allowance", "per": "day"}], "terms.1 needs either tokens or an amount"),
        ([{"kind": "allowance", "per": "day", "tokens": "1", "amount": "1"}], "terms.1 needs either tokens"),
        ([{"kind": "allowance", "per": "term", "tokens": "1"}], "terms.1.per must be one of"),
        ([{"kind": "minimum", "amount": "1"}], "terms.1.per is required for minimum"),
        ([{"kind": "minimum", "amount": "1", "per": "day"}], "terms.1.per must be one of"),
        ([{"kind": "minimum", "amount": "1", "per": "month"}] * 2, "terms 1 and 2 are both minimum"),
        (
            [{"kind": "credit", "amount": "1", "per": "month", "models": ("x",)}],
            "terms.1.models is not allowed",
        ),
        (
            [{"kind": "credit", "amount": "1", "per": "term"}],
            "terms.1.per can only be term if until is at most",
        ),
        ([{**WORKLOAD, "namespace": ""}], "terms.1.namespace is required for capacity of a workload"),
        ([{**WORKLOAD, "price": "1"}], "terms.1.price is not allowed for capacity of a workload"),
        ([{**WORKLOAD, "tier": "flex"}], "terms.1.tier is not allowed for capacity of a workload"),
        (
            [{"kind": "discount", "percent": "1", "cluster": "gpu"}],
            "terms.1.cluster is not allowed for discount",
        ),
        ([WORKLOAD, {**WORKLOAD, "models": ("glm",)}], "terms must name a workload only once"),
        ([WORKLOAD, {**WORKLOAD, "workload": "other"}], "terms 1 and 2 are both capacity of the same calls"),
        ([{"kind": "fee"}], "terms.1 needs a percent, or an amount and per"),
        ([{"kind": "fee", "amount": "1"}], "terms.1.amount and per belong together"),
        ([{"kind": "fee", "percent": "101"}], "terms.1.percent must be more than 0 and at most 100"),
    ],
)
def test_a_wrong_term_is_refused(terms: list[dict[str, object]], message: str) -> None:
    stated = tuple(ContractTerm(**term) for term in terms)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=message.replace(".", r"\.")):
        check_contract(NewContract(name="a", provider="openai", since="2026-11-01", terms=stated))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"since": "yesterday"}, "since must be a day"),
        ({"until": "2026-11-01"}, "until must be after since"),
        ({"currency": "XXX"}, "currency must be one of"),
        ({"name": " "}, "name must have 1 to 100"),
    ],
)
def test_a_wrong_field_is_refused(fields: dict[str, str], message: str) -> None:
    given = {"name": "a", "provider": "openai", "since": "2026-11-01", **fields}
    with pytest.raises(Invalid, match=message):
        check_contract(NewContract(**given, terms=(ContractTerm(**GOOD),)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("until", "is_allowed"), [("2036-11-08", True), ("2036-11-09", False)])
def test_a_term_about_the_whole_contract_needs_at_most_ten_years(until: str, is_allowed: bool) -> None:
    minimum = ContractTerm(kind="minimum", amount="1", per="term")
    draft = NewContract(name="a", provider="openai", since="2026-11-01", until=until, terms=(minimum,))
    if is_allowed:
        check_contract(draft)
        return
    with pytest.raises(Invalid, match="at most 3660 days after since"):
        check_contract(draft)


def test_a_workload_needs_dollars() -> None:
    draft = NewContract(
        name="a",
        provider="vllm",
        since="2026-11-01",
        currency="EUR",
        terms=(ContractTerm(**WORKLOAD),),  # type: ignore[arg-type]
    )
    with pytest.raises(
        Invalid, match="currency must be USD for a workload, because container costs are in USD"
    ):
        check_contract(draft)


def test_a_workload_without_costs_is_named_by_command(tmp_path: Path) -> None:
    """
    Commands show the terms of a workload as they were written, and name a workload without costs. Two contracts
    cannot divide the same workload.
    """
    run = run_on(tmp_path)
    term = "capacity models=qwen* cluster=gpu namespace=ml workload=qwen"
    create = ["contracts", "create", "--provider", "vllm", "--since", "2026-01-01"]
    assert term in run(*create, "--name", "GPU", "--term", term).stdout
    other = "capacity cluster=gpu namespace=ml workload=qwen"
    refused = run(
        "contracts",
        "create",
        "--name",
        "GPU 2",
        "--provider",
        "tgi",
        "--since",
        "2026-02-01",
        "--term",
        other,
        code=2,
    )
    assert "the contract 'GPU' has the same workload" in refused.stderr
    costs = run("contracts", "costs")
    assert "no container cost of gpu/ml/qwen is known in this month" in costs.stderr
    [row] = json.loads(run("contracts", "costs", "--json").stdout)["capacity"]
    assert ("0", "no_cost") == (row["cost"], row["workload"]["state"])
