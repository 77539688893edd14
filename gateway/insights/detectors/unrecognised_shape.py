"""Items that look like AI calls and that no dialect understands: their cost is in no sum."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import DAY_S, Facts, UnrecognisedShape
from gateway.insights.findings import MAX_FINDINGS, finding, named
from spool.registry.insights import HIGH, Finding

NAME = "unrecognised_shape"
RECENT_S = 7 * DAY_S
MAX_NAMES = 6


def find(facts: Facts) -> Sequence[Finding]:
    recent = [shape for shape in facts.shapes if facts.now - shape.last_seen <= RECENT_S]
    return [_finding(shape) for shape in sorted(recent, key=_most_first)[:MAX_FINDINGS]]


def _most_first(shape: UnrecognisedShape) -> tuple[int, Sequence[str]]:
    return -shape.count, shape.names


def _finding(shape: UnrecognisedShape) -> Finding:
    names = ", ".join(named(name) for name in shape.names[:MAX_NAMES])
    more = f" and {len(shape.names) - MAX_NAMES} more" if len(shape.names) > MAX_NAMES else ""
    return finding(
        NAME,
        tuple(shape.names),
        title=f"{shape.count:,} items look like AI calls and are not understood",
        seen=f"Items with the attributes {names}{more} came in and were ignored; what they cost is not counted.",
        advice="Look at `tollhouse spool ignored`. Switch that instrumentation to the OpenTelemetry GenAI conventions, "
        "or report the shape so that a dialect can learn it.",
        category="coverage",
        effort=HIGH,
        newest=shape.last_seen,
    )
