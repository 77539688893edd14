"""What identifies a call of LiteLLM, in its log, its spans and what its integration sends to Langfuse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from gateway.normalise.reading.operations import EMBEDDINGS, IMAGE, SPEECH, TRANSCRIPTION
from spool.identity import Identity, of_call, of_moment
from spool.record import Inference

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ANSWERED_WITHOUT_ID = frozenset({EMBEDDINGS, IMAGE, TRANSCRIPTION, SPEECH})


def identity_of(record: Inference, call_id: str | None = None) -> Identity:
    """
    By `id`, the provider's response id. LiteLLM's own call id, a UUID that several attempts share, stands
    in its place for failures and for answers that have no id.
    """
    own = record.request_id
    if own is None or own == call_id or (_UUID.fullmatch(own) and _may_be_call_id(record, call_id)):
        return of_call(record, shared_id=own or call_id, own_id=own)
    return of_call(record, response_id=own, own_id=own)


def names_of(record: Inference, call_type: Any, groups: Callable[[], Iterable[str | None]]) -> tuple[bytes, ...]:
    """
    Further names of a call that some of LiteLLM's reports tell without its id, or with another: by its trace and
    by its call id, which several attempts share.

    A failure has no id, nor has an answer of some kinds; a streamed answer of the Responses API has one in the log
    and another in the spans.
    """
    is_unsure = record.status == "error" or record.operation in _ANSWERED_WITHOUT_ID
    if not is_unsure and (call_type is None or "responses" not in str(call_type)):
        return ()
    if record.status == "cached":
        return ()
    return of_moment(record, groups())


def _may_be_call_id(record: Inference, call_id: str | None) -> bool:
    """Of a UUID that is not the stated call id: some providers' response ids are UUIDs."""
    return record.status == "error" or (call_id is None and record.operation in _ANSWERED_WITHOUT_ID)
