"""What a normaliser may be told: the little of the configuration that changes what is read."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.normalise.payload.body_limits import MAX_ITEMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    keep_attributes: frozenset[str] = frozenset()  # privacy.keep_attributes: kept as tags
    keep_tags: frozenset[str] = (
        frozenset()
    )  # these and ledger.tags: tags that may have any text of a tag's length
    counted: frozenset[str] = (
        frozenset()
    )  # [sources.NAME] count = true is written down: whose servers' counters count
    host_id: bool = False  # devices.host_id: resource host.id may name a device
    max_items: int = MAX_ITEMS  # server.max_items: of one body
    explain: bool = False  # fill Outcome.why
