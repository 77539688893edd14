"""The newest figures of each provider as gauges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.service.monitoring.snapshot import ReconciledRatio


def gauges(newest: Iterable[Reconciliation]) -> Iterator[ReconciledRatio]:
    """Yield the ratios of tokens, and of money if a statement has any, for reconciliations with compared days."""
    for found in newest:
        total = found.total
        pairs = [("tokens", total.counted_tokens, total.billed_tokens)]
        if found.has_money:
            pairs.append(("money", total.counted, total.billed))
        for measure, counted, billed in pairs:
            if found.compared and billed > 0:
                yield ReconciledRatio(provider=found.provider, measure=measure, ratio=counted / billed)
