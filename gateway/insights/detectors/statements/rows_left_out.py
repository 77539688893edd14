"""Billing connections of before rows could be costs: nobody has said whether theirs are."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import MAX_FINDINGS, finding, named
from spool.registry.connections import BillingConnection
from spool.registry.insights import LOW, Finding

NAME = "rows_left_out"


def find(facts: Facts) -> Sequence[Finding]:
    undecided = sorted(facts.undecided_connections, key=lambda each: (each.name, each.id))
    return [_finding(each) for each in undecided[:MAX_FINDINGS]]


def _finding(each: BillingConnection) -> Finding:
    edit = f"tollhouse connections edit {each.id}"
    return finding(
        NAME,
        (each.id,),
        title=f"Rows of the billing connection {named(each.name)} are in no cost",
        seen=f"It takes the bill of {named(each.cloud_provider)} and was there before rows could be billed costs. "
        "Nobody has said since whether its rows are.",
        advice=f"Put them in with `{edit} --in-costs`, or leave them out for good with `{edit} --no-in-costs`: where "
        "calls or statements of the same provider are here, they would count twice.",
        category="coverage",
        effort=LOW,
    )
