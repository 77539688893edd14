"""Dedup keys of LiteLLM's calls, as its log, its spans and its Langfuse integration report them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.reading.operations import EMBEDDINGS, IMAGE, SPEECH, TRANSCRIPTION
from gateway.normalise.reading.request_ids import RequestIdHeaders, dedup_keys_from_headers
from gateway.normalise.reading.values import Other, struct_or_empty, struct_or_none
from spool.identity import (
    AS_CALL,
    AS_COUNT,
    RecordIdentity,
    call_identity,
    dedup_keys_by_exact_start,
    is_encrypted_id,
    links_by_common_id,
)
from spool.record import NS, Inference

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UUID_LENGTH = 36
_READS = re.compile("a?(?:get|delete|cancel|list)_")
_CREATED, _READ = "created", "read"
_OF_PROVIDER = ("chatcmpl-", "msg_")
_ANSWERED_WITHOUT_ID = frozenset({EMBEDDINGS, IMAGE, TRANSCRIPTION, SPEECH})


def _declare_provider_header(name: str) -> Any:
    return msgspec.field(name=f"llm_provider-{name}", default=None)


class LiteLLMProviderHeaders(RequestIdHeaders):
    """Headers of the provider's response. LiteLLM adds a prefix to their names, except after a failure."""

    prefixed_id: Any = _declare_provider_header("request-id")
    prefixed_x_id: Any = _declare_provider_header("x-request-id")
    prefixed_of_amazon: Any = _declare_provider_header("x-amzn-requestid")
    prefixed_of_azure: Any = _declare_provider_header("x-ms-request-id")

    def headers_without_prefix(self) -> RequestIdHeaders:
        return RequestIdHeaders(
            self.prefixed_id or self.request_id,
            self.prefixed_x_id or self.x_request_id,
            self.prefixed_of_amazon or self.of_amazon,
            self.prefixed_of_azure or self.of_azure,
        )


class LiteLLMHidden(msgspec.Struct):
    additional_headers: LiteLLMProviderHeaders | Other = None


def litellm_call_identity(record: Inference, call_id: str | None = None) -> RecordIdentity:
    """
    Return the dedup key of a call, by the provider's response id (`request_id`).

    Failures and responses without an id are identified by LiteLLM's own call id. It is a UUID that several
    attempts may share.
    """
    own = record.request_id
    if (
        own is None
        or own == call_id
        or (len(own) == _UUID_LENGTH and _is_call_id_in_place_of_id(record, own, call_id))
    ):
        return call_identity(record, shared_id=own or call_id, own_id=own)
    return call_identity(record, response_id=own, own_id=own)


def further_dedup_keys(
    record: Inference, *, call_type: Any, trace_ids: Iterable[str | None], call_id: str | None
) -> tuple[bytes, ...]:
    """
    Return further dedup keys for a call, because some LiteLLM reports state the call without its id or
    with another id.

    The keys combine each trace id and the call id with the time, because several attempts share these ids.
    """
    if not _may_lack_id_in_reports(record, call_type):
        return ()
    return dedup_keys_by_exact_start(record, dict.fromkeys((*trace_ids, call_id)))


def links_to_openmeter_count(
    record: Inference, *, call_type: Any, call_id: str | None
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links from a call to its count by LiteLLM's OpenMeter integration. That event has the call id, but
    no start time.
    """
    return (
        links_by_common_id(record, call_id, own_report_kind=AS_CALL, other_report_kind=AS_COUNT)
        if _may_lack_id_in_reports(record, call_type)
        else ()
    )


def dedup_keys_from_provider_headers(record: Inference, hidden_params: Any) -> tuple[bytes, ...]:
    """Return further dedup keys for a call, from the headers of the provider's response."""
    if not isinstance(hidden_params, str | msgspec.Raw):
        return ()
    hidden = struct_or_none(hidden_params, LiteLLMHidden) or LiteLLMHidden()
    headers = struct_or_empty(hidden.additional_headers, LiteLLMProviderHeaders)
    return dedup_keys_from_headers(record, headers.headers_without_prefix())


def has_form_of_call_id(id: str) -> bool:
    """
    Return whether an id is a UUID, like LiteLLM's own call ids. Some providers' response ids have the same
    form.
    """
    return len(id) == _UUID_LENGTH and _UUID.fullmatch(id) is not None


def has_response_id_of_provider(record: Inference) -> bool:
    """
    Return whether a call's id is the provider's response id. LiteLLM makes up ids with a UUID, such as
    `chatcmpl-UUID` for Claude's chats, and encrypts ids of the Responses API.
    """
    own = record.request_id
    return own is not None and own.startswith(_OF_PROVIDER) and _UUID.search(own) is None


def reads_stored_response(call_type: Any) -> bool:
    """Return whether a function of LiteLLM reads or ends a response, a batch or a file that is stored."""
    return isinstance(call_type, str) and _READS.match(call_type) is not None


def remove_zeros_of_background_call(record: Inference, call_type: Any) -> None:
    """
    Remove the counts and the cost of 0 that LiteLLM reports for a response in background mode. Only a later read
    of the response states them.
    """
    is_of_response = "responses" in str(call_type) and not reads_stored_response(call_type)
    if is_of_response and record.status == "ok" and not (record.input_tokens or record.output_tokens):
        record.input_tokens = record.output_tokens = record.cost = None
        record.cache_read_tokens = record.cache_write_tokens = record.reasoning_tokens = None


def links_to_reads(
    record: Inference, created_at: int | None, *, is_read: bool = False
) -> tuple[tuple[bytes, bytes], ...]:
    """
    Return links between the call that made a stored response and a read of it. LiteLLM encrypts its id for each
    reader, so they match by the key, the time of creation, model and counts. In background mode, the call itself
    has no counts.
    """
    if created_at is None:
        return ()
    common_id = f"{record.api_key}\0{created_at // NS}"
    own, other = (_READ, _CREATED) if is_read else (_CREATED, _READ)
    links = links_by_common_id(record, common_id, own_report_kind=own, other_report_kind=other)
    if is_read:
        uncounted = msgspec.structs.replace(record, input_tokens=None, output_tokens=None)
        links += links_by_common_id(uncounted, common_id, own_report_kind=own, other_report_kind=other)
    return links


def lost_response_id(record: Inference, *, call_type: Any) -> bool:
    """
    Return whether LiteLLM's reports of a call state an id that the caller does not know: an encrypted one, or
    for failures and Gemini's API a UUID in place of the provider's.
    """
    own = record.request_id
    if record.status == "error":
        return True
    is_of_gemini = own is not None and "generate_content" in str(call_type) and has_form_of_call_id(own)
    return is_of_gemini or is_encrypted_id(own)


def _may_lack_id_in_reports(record: Inference, call_type: Any) -> bool:
    """
    Return whether some reports of a call may lack its id.

    Failures and some kinds of responses have no id. A streamed response of the Responses API has one id in
    the log and another one in the spans.
    """
    if record.status == "ok" and record.operation not in _ANSWERED_WITHOUT_ID:
        return call_type is not None and "responses" in str(call_type)
    return record.status != "cached"


def _is_call_id_in_place_of_id(record: Inference, own: str, call_id: str | None) -> bool:
    may_be = record.status == "error" or (call_id is None and record.operation in _ANSWERED_WITHOUT_ID)
    return may_be and has_form_of_call_id(own)
