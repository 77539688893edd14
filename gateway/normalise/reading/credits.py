"""
GitHub Copilot's credits. A credit is one cent of usage by the list prices of models, not an amount paid.

Copilot states the credits of a call under two names. One is always in billionths. The other is in credits or
in billionths, depending on the release.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from gateway.normalise.reading import tags
from spool.record import Inference, decimal_text

CREDIT_DOLLARS: Final = Decimal("0.01")
CREDITS_TAG: Final = "credits"
UNSCALED_CREDITS: Final = "AIU"  # unit of credits while their scale is unknown; it is never stored
# Factor by which a price level may change a list price at most.
_MAX_FACTOR: Final = 2


def replace_credits_of_unknown_scale_by_cost(record: Inference, estimated_cost: str | None) -> None:
    """
    Replace the charge in credits of unknown scale by a cost. The right scale is the one near the estimate.

    Without a model price, more credits than tokens are billionths. If no scale fits, the call has no
    reported cost.
    """
    stated = Decimal(record.charges[UNSCALED_CREDITS])
    record.charges = {}
    tokens = (record.input_tokens or 0) + (record.output_tokens or 0)
    for credits in (stated, stated.scaleb(-9)):
        cost = credits * CREDIT_DOLLARS
        if estimated_cost is None:
            # one credit per token would be ten thousand dollars per million tokens, so such a scale cannot be
            # right
            fits = credits < tokens
        else:
            fits = (
                Decimal(estimated_cost) <= cost * _MAX_FACTOR
                and cost <= Decimal(estimated_cost) * _MAX_FACTOR
            )
        if fits:
            record.cost = decimal_text(cost)
            tags.put_tag_on_record(record, CREDITS_TAG, decimal_text(credits))
            return
