"""Spans that the memory of the compiled module reads otherwise than the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, named, ordered
from spool.registry.insights import LOW, Finding

if TYPE_CHECKING:
    from gateway.normalise.memory.learning import ReadOtherwise

NAME = "read_otherwise"


def find(facts: Facts) -> Sequence[Finding]:
    """Make one finding for a product and an instrumentation; fields are named, their values are not."""
    found = {(each.source, each.scope): each for each in facts.read_otherwise}
    return ordered(_finding(each) for each in found.values())


def _finding(each: ReadOtherwise) -> Finding:
    who = named(each.source, named(each.scope))
    fields = named(", ".join(each.fields), most=300)
    return finding(
        NAME,
        (each.source, each.scope),
        title=f"Spans of {who} were read otherwise with the compiled module than without it",
        seen=f"A span of {named(each.scope)} was read both ways, and these fields differ: {fields}. What the rules "
        "said is kept, and spans of this shape are the rules' alone until the next start. Earlier ones may be wrong.",
        advice="Set `server.native = false` and restart, until a release mends it. Please report the fields, the "
        "instrumentation and its version.",
        category="reliability",
        effort=LOW,
    )
