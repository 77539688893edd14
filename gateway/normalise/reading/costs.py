"""Costs that sources report: which zeros are prices."""

from __future__ import annotations

from gateway.normalise.reading.operations import IMAGE, RERANK, SPEECH, TRANSCRIPTION
from spool.record import Inference

# Many sources report no usage of these, so counts of 0 do not show that nothing was used.
_CHARGED_WITHOUT_COUNTS = frozenset({IMAGE, RERANK, SPEECH, TRANSCRIPTION})
_FREE_MODEL = ":free"  # OpenRouter's ending of models without a price


def known_cost(record: Inference, cost: str | None, operation: str | None = None) -> str | None:
    """
    Return the cost, or None for the 0 of a source that writes 0 when it knows no price.

    A 0 is a price only if the call failed, was answered by a cache, used nothing, or names a free model. The
    record has its status and its counts. `operation` is needed only if the record's own is left out.
    """
    if (
        cost != "0"
        or record.status != "ok"
        or _is_free(record.request_model)
        or _is_free(record.response_model)
    ):
        return cost
    has_used = record.input_tokens or record.output_tokens or record.meters
    return None if has_used or (operation or record.operation) in _CHARGED_WITHOUT_COUNTS else cost


def _is_free(model: str | None) -> bool:
    return model is not None and model.endswith(_FREE_MODEL)
