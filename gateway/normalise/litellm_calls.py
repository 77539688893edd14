"""What identifies a call of LiteLLM, in its log, its spans and what its integration sends to Langfuse."""

from __future__ import annotations

import re
from typing import Any

from gateway.normalise.reading.operations import EMBEDDINGS, IMAGE, SPEECH, TRANSCRIPTION
from spool.identity import Identity, of_call
from spool.record import Inference

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UUID_LENGTH = 36
_ANSWERED_WITHOUT_ID = frozenset({EMBEDDINGS, IMAGE, TRANSCRIPTION, SPEECH})


def identity_of(record: Inference, call_id: str | None = None) -> Identity:
    """
    By `id`, the provider's response id. LiteLLM's own call id, a UUID that several attempts share, stands
    in its place for failures and for answers that have no id.
    """
    own = record.request_id
    if own is None or own == call_id or (len(own) == _UUID_LENGTH and _is_call_id(record, own, call_id)):
        return of_call(record, shared_id=own or call_id, own_id=own)
    return of_call(record, response_id=own, own_id=own)


def needs_names(record: Inference, call_type: Any) -> bool:
    """
    Whether some of LiteLLM's reports tell the call without its id, or with another: then it is also known by its
    trace and by its call id, which several attempts share (`of_moment`).

    A failure has no id, nor has an answer of some kinds; a streamed answer of the Responses API has one in the log
    and another in the spans.
    """
    if record.status == "ok" and record.operation not in _ANSWERED_WITHOUT_ID:
        return call_type is not None and "responses" in str(call_type)
    return record.status != "cached"


def _is_call_id(record: Inference, own: str, call_id: str | None) -> bool:
    """Whether an id that is not the stated call id is one: some providers' response ids are UUIDs."""
    may_be = record.status == "error" or (call_id is None and record.operation in _ANSWERED_WITHOUT_ID)
    return may_be and _UUID.fullmatch(own) is not None
