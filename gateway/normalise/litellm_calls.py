"""Dedup keys of LiteLLM's calls, in its log, its spans and its integration for Langfuse."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gateway.normalise.reading.operations import EMBEDDINGS, IMAGE, SPEECH, TRANSCRIPTION
from spool.identity import Identity, of_answer, of_call, of_moment
from spool.record import Inference

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UUID_LENGTH = 36
_ANSWERED_WITHOUT_ID = frozenset({EMBEDDINGS, IMAGE, TRANSCRIPTION, SPEECH})


def identity_of(record: Inference, call_id: str | None = None) -> Identity:
    """
    Identify a call by `id`, the provider's response id.

    Failures and responses without an id are identified by LiteLLM's own call id. It is a UUID, and several
    attempts may share it.
    """
    own = record.request_id
    if own is None or own == call_id or (len(own) == _UUID_LENGTH and _stands_for_id(record, own, call_id)):
        return of_call(record, shared_id=own or call_id, own_id=own)
    return of_call(record, response_id=own, own_id=own)


def names_of(
    record: Inference, *, call_type: Any, trace_ids: Iterable[str | None], call_id: str | None
) -> tuple[bytes, ...]:
    """
    Return further dedup keys for a call, because some LiteLLM reports state the call without its id or
    with another id.

    The keys combine each trace id and the call id with the time, because several attempts share these ids. A
    response also gets a key from its call id without the start time, because the integration for OpenMeter
    reports only the end time.
    """
    if not _needs_names(record, call_type):
        return ()
    stated = dict.fromkeys((*trace_ids, call_id))
    return of_moment(record, stated) + of_answer(record, call_id)


def is_call_id(id: str) -> bool:
    """
    Return True if an id has the form of LiteLLM's own call ids. Some providers' response ids have the same form.
    """
    return len(id) == _UUID_LENGTH and _UUID.fullmatch(id) is not None


def _needs_names(record: Inference, call_type: Any) -> bool:
    """
    Return True if some reports of a call may lack its id.

    Failures and some kinds of responses have no id. A streamed response of the Responses API has one id in
    the log and another one in the spans.
    """
    if record.status == "ok" and record.operation not in _ANSWERED_WITHOUT_ID:
        return call_type is not None and "responses" in str(call_type)
    return record.status != "cached"


def _stands_for_id(record: Inference, own: str, call_id: str | None) -> bool:
    """Return True if the record's own id looks like a call id and replaces an unreported call id."""
    may_be = record.status == "error" or (call_id is None and record.operation in _ANSWERED_WITHOUT_ID)
    return may_be and is_call_id(own)
