"""An example of a saving that a recommendation run finds."""

from __future__ import annotations

from spool.registry.recommendations import Processing, Saving

SAVING = Saving(
    key="priority_tier:1", type="priority_tier", title="Standard", description="Do it.", formula="$2 - $1",
    effort="low", confidence="exact", assumptions=["fast enough"], spent="2", gross_savings="1", monthly_savings="0.9",
    price_book="b", current=Processing(model="m", mode="priority"), recommended=Processing(model="m", mode=""),
    dimensions={"team": ["search"]}, measured_by={"team": "search"}, first_day="2026-11-01", last_day="2026-11-02",
)  # fmt: skip
