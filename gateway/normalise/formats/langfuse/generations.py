"""Langfuse generations and traces: their reported facts, how reports are merged, and the resulting call."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ReadCall,
    is_model_call,
    mark_as_failed,
    set_normalised_counts,
)
from gateway.normalise.litellm_calls import litellm_call_identity
from gateway.normalise.reading.metadata import fill_run_from_tags
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.tags import put_tag_if_allowed
from gateway.normalise.reading.tokens import Tokens
from spool.identity import AS_GATEWAY, RecordIdentity, build_relayed_report, call_identity
from spool.record import Inference

NAME: Final = "langfuse"
TURN: Final = 500  # reports processed before the event loop gets a turn

GENERATION: Final = "generation"
# kind of report: a generation that is already recorded, and that completes an earlier report that may be
# waiting
WHOLE: Final = "whole generation"
TRACE: Final = "trace"

ORIGINS = {
    "request_id": "body.id",
    "trace_id": "body.traceId",
    "start_time": "body.startTime",
    "end_time": "body.endTime",
    "provider": "derived from the model name",
    "request_model": "body.model",
    "input_tokens": "body.usageDetails, else body.usage",
    "output_tokens": "body.usageDetails, else body.usage",
    "cache_read_tokens": "body.usageDetails",
    "cache_write_tokens": "body.usageDetails",
    "reasoning_tokens": "body.usageDetails",
    "cost": "body.costDetails, else the costs of body.usage",
    "status": "body.level, body.metadata.cache_hit",
    "error_type": "body.level",
    "user": "userId of the trace",
    "team": "metadata of the trace",
    "session": "sessionId of the trace",
}

# Id of a generation from LiteLLM's callback: a time, and the response id. LiteLLM's other callbacks report
# only the id.
_BY_LITELLM = re.compile(r"time-\d\d-\d\d-\d\d-\d+_(.+)")


class Generation(msgspec.Struct, omit_defaults=True):
    """
    The facts about a Langfuse generation (a model call) so far. A later value replaces an earlier value
    unless the later value is null.
    """

    id: str
    at: int | None = None  # time of the generation's last event
    trace_id: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    model: str | None = None
    # provider from the prefix of the model; the stored model may no longer have this prefix
    provider: str | None = None
    details: Tokens | None = None  # token counts from the field `usageDetails`
    usage: Tokens | None = None  # token counts from the older field `usage`
    details_cost: str | None = None
    usage_cost: str | None = None
    level: str | None = None
    cached: bool | None = None
    created: bool = False  # whether no earlier event of the generation is missing

    @property
    def tokens(self) -> Tokens:
        """
        Return the counts of `details`, even if they are 0. Without `details`, return those of the older
        `usage`.
        """
        if self.details is not None:
            return self.details
        return Tokens() if self.usage is None else self.usage

    @property
    def is_finished(self) -> bool:
        figures = (self.end_time, self.details, self.usage, self.details_cost, self.usage_cost)
        return self.level == "ERROR" or any(figure is not None for figure in figures)

    @property
    def is_complete_for_record(self) -> bool:
        return self.created and self.is_finished and (self.model is not None or bool(self.tokens))


class Trace(msgspec.Struct, omit_defaults=True):
    id: str
    user: str | None = None
    team: str | None = None
    session: str | None = None
    tags: dict[str, str] = {}


def merge_reports(known_generation: Generation, later_generation: Generation) -> Generation:
    stated = {
        name: value for name, value in msgspec.structs.asdict(later_generation).items() if value is not None
    }
    stated["created"] = known_generation.created or later_generation.created
    return msgspec.structs.replace(known_generation, **stated)


def merge_by_time(known_generation: Generation, later_generation: Generation) -> Generation:
    """
    Merge two reports of one generation. The timestamps of their events decide which is later, because
    requests may arrive late or twice.
    """
    if (
        known_generation.at is not None
        and later_generation.at is not None
        and later_generation.at < known_generation.at
    ):
        known_generation, later_generation = later_generation, known_generation
    return merge_reports(known_generation, later_generation)


def merge_traces_and_count_dropped_tags(known: Trace, later: Trace) -> tuple[Trace, int]:
    """
    Merge two reports on one trace. Also return the number of tags that were dropped because of the limit.
    """
    tags = dict(known.tags)
    left_out = sum(not put_tag_if_allowed(tags, name, value) for name, value in later.tags.items())
    return Trace(
        known.id,
        user=later.user or known.user,
        team=later.team or known.team,
        session=later.session or known.session,
        tags=tags,
    ), left_out


def generation_from_record(record: Inference) -> Generation:
    tokens = Tokens(
        record.input_tokens,
        record.output_tokens,
        record.cache_read_tokens,
        record.cache_write_tokens,
        record.reasoning_tokens,
        record.cache_write_1h_tokens,
        record.meters or None,
    )
    return Generation(
        id=record.request_id or "",
        trace_id=record.trace_id,
        start_time=record.start_time,
        end_time=record.end_time,
        model=record.request_model,
        provider=record.provider,
        details=tokens if tokens.number_of_known_counts() else None,
        details_cost=record.cost,
        level="ERROR" if record.status == "error" else None,
        cached=record.status == "cached" or None,
        created=True,
    )


def build_call_of_generation(
    generation: Generation, trace: Trace | None, identity: RecordIdentity | None = None
) -> ReadCall | None:
    """
    Return the call of a generation, or None if it has no model and no tokens. If the generation already has a
    record, `identity` is that record's dedup key, which the call keeps.
    """
    record = Inference(
        id=b"",
        source=NAME,
        request_id=generation.id,
        trace_id=generation.trace_id,
        start_time=generation.start_time,
        end_time=generation.end_time,
        provider=generation.provider or stated_or_model_provider(None, generation.model),
        request_model=model_without_prefix(generation.model),
        cost=generation.usage_cost if generation.details_cost is None else generation.details_cost,
    )
    set_normalised_counts(record, generation.tokens)
    if not is_model_call(record):
        return None
    if generation.level == "ERROR":
        mark_as_failed(record)
    elif generation.cached:
        record.status = "cached"
    if trace is not None:
        fill_caller_from_trace(record, trace)
    relay = build_relayed_report(record, record.session, report_kind=AS_GATEWAY)
    return ReadCall(record, (identity or _call_identity(record))._replace(relay=relay))


def fill_caller_from_trace(record: Inference, trace: Trace) -> None:
    record.user = record.user or trace.user
    record.team = record.team or trace.team
    record.session = record.session or trace.session
    record.tags = record.tags or dict(trace.tags)
    fill_run_from_tags(record)


def _call_identity(record: Inference) -> RecordIdentity:
    """
    Return the dedup key of a generation. If LiteLLM chose the generation's id, the key uses the provider's
    response id that this id contains.
    """
    written = _BY_LITELLM.fullmatch(record.request_id or "")
    if written is None:
        return call_identity(record, own_id=record.request_id)
    identity = litellm_call_identity(msgspec.structs.replace(record, request_id=written[1]))
    return identity if record.status != "cached" else call_identity(record, own_id=record.request_id)
