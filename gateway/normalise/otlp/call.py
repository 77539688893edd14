"""A call as one span describes it."""

from __future__ import annotations

from msgspec import Struct

from gateway.normalise.otlp.model import Resource, Scope
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.tokens import Tokens, set_token_counts
from spool.identity import is_long_id
from spool.people import USER_EMAIL
from spool.record import AiRecord, Inference

NO_TOKENS = Tokens()


class Caller(Struct, frozen=True, gc=False):
    user: str | None = None
    team: str | None = None
    session: str | None = None
    api_key: str | None = None
    email: str | None = None  # email address of the user, if it differs from `user`


NO_CALLER = Caller()


def merge_callers(caller: Caller, further: Caller) -> Caller:
    """Return both callers as one. `caller` takes precedence over `further`."""
    if further is NO_CALLER:
        return caller
    if caller is NO_CALLER:
        return further
    return Caller(
        caller.user if caller.user is not None else further.user,
        caller.team if caller.team is not None else further.team,
        caller.session if caller.session is not None else further.session,
        caller.api_key if caller.api_key is not None else further.api_key,
        caller.email if caller.user is not None else further.email,
    )


def fill_caller(record: AiRecord, caller: Caller) -> bool:
    """
    Write the caller to the record, the e-mail address as a tag. Return False if the tag exceeds the record's
    limit.
    """
    record.user, record.team, record.session = caller.user, caller.team, caller.session
    record.api_key = caller.api_key
    return caller.email is None or tag_rules.put_tag_on_record(record, USER_EMAIL, caller.email)


# Garbage collection is off because it would cost more than creating the calls. Code that fills `inner` must
# empty it again, to break reference cycles.
class SpanCall(Struct, gc=False):
    """
    A call that one span describes. Further spans of the payload may complete or drop the call before it
    becomes a record.
    """

    place: int
    record: Inference
    kind: int  # class of the operation; only calls of one class may describe the same call
    tokens: Tokens
    caller: Caller
    response_id: str | None
    shared_id: str | None
    service_tier: str | None = None  # service tier that the provider's response states
    resource_caller: Caller = NO_CALLER
    device: str | None = None  # device that the resource attributes name
    resource: Resource | None = None
    scope: Scope | None = None
    agent: str | None = None
    why: dict[str, str] | None = None
    provider_request_id: str | None = None  # id that the provider gave; a further name of the call
    own_id: str | None = None  # id of a response from the source's own cache
    # names by which reports without the id find the call (see RecordIdentity in spool.identity)
    also: tuple[bytes, ...] = ()
    links: tuple[tuple[bytes, bytes], ...] = ()  # keys that connect the call to reports of another kind
    joins: tuple[bytes, ...] = ()  # dedup keys that the call shares with its events
    # id of a run; spans with the same run id become one record, that of the span that ends last
    run_id: str | None = None
    # whether the span reports the result of a stream that a sibling span started
    reports_stream: bool = False
    # whether the call is a retry inside another call, which is never merged with the outer call
    is_attempt: bool = False
    is_logged: bool = False  # whether events without the id of the call also report the call
    # whether the span is a model run inside a request; if the request is a call as well, the run is part of
    # that call
    is_part: bool = False
    # AS_ASSISTANT or AS_GATEWAY, if both an assistant and a gateway may report the call, without a common id
    relay_side: str | None = None
    relayed_session: str | None = None  # session id that the assistant sent to the gateway
    # whether the other side may state neither the id of the call nor the session
    lacks_common_id: bool = False
    program: str | None = None  # the program that calls a gateway without a session
    further_model: str | None = None  # another name of the model, such as the gateway's alias
    names_request: bool = False  # whether a key in `also` is from the provider's id of the request
    is_of_sdk: bool = False  # whether the provider's own SDK wrote the span
    is_of_provider: bool = False  # whether the provider's API or its own SDK wrote the span
    # The following fields relate the call to other spans of the payload.
    inner: list[SpanCall] | None = None  # nearest calls of the same class below
    twin_caller: Caller = NO_CALLER  # callers of dropped duplicate spans, nearest first
    repeats: str | None = None  # why the call was dropped, only if the request wants reasons
    # reports of client and gateway are also matched by the call's position in the trace
    is_linked: bool = False
    sdk: SpanCall | None = None  # the SDK's span around this call, if it was dropped
    # one of two nested spans, the SDK's and the one around it, was dropped as a duplicate
    is_nested: bool = False
    # whether the scope writes its span next to that of the SDK that made the call
    is_beside: bool = False
    # whether the span names neither an operation nor a kind, so that its call is a guess
    is_guess: bool = False

    @property
    def has_usage(self) -> bool:
        return self.tokens != NO_TOKENS

    @property
    def has_short_id(self) -> bool:
        return self.response_id is not None and not is_long_id(self.response_id)

    @property
    def has_id(self) -> bool:
        return self.response_id is not None or self.shared_id is not None or self.own_id is not None

    @property
    def is_without_call_facts(self) -> bool:
        """
        Return whether the span states no fact about a call: no model, provider, id, usage, cost or failure.
        Such a span is a step inside a call.
        """
        record = self.record
        names_it = record.request_model or record.response_model or record.provider or record.request_id
        if record.charges:
            return False
        return names_it is None and not self.has_usage and record.cost is None and record.status == "ok"

    def replace_counts(self, tokens: Tokens) -> None:
        self.tokens = tokens
        set_token_counts(self.record, tokens)
