"""A call as a span tells it: its record, who it was made for, and what settles it among its neighbours."""

from __future__ import annotations

from msgspec import Struct

from gateway.normalise.reading.tokens import Tokens, set_counts
from spool.record import Inference

NO_TOKENS = Tokens()


class Caller(Struct, frozen=True, gc=False):
    """Who a call was made for, as far as one set of attributes says."""

    user: str | None = None
    team: str | None = None
    session: str | None = None
    api_key: str | None = None


NO_CALLER = Caller()


def nearest(caller: Caller, further: Caller) -> Caller:
    """Field by field, the nearer one that says something."""
    if further is NO_CALLER:
        return caller
    if caller is NO_CALLER:
        return further
    return Caller(
        caller.user if caller.user is not None else further.user,
        caller.team if caller.team is not None else further.team,
        caller.session if caller.session is not None else further.session,
        caller.api_key if caller.api_key is not None else further.api_key,
    )


# Without garbage collection, which costs more than the calls: whoever fills `inner` also empties it.
class SpanCall(Struct, gc=False):
    """Built when the span is read, settled when the whole payload was."""

    place: int
    record: Inference
    kind: int  # class of the operation: calls of one class may describe the same call
    tokens: Tokens
    caller: Caller
    response_id: str | None
    shared_id: str | None
    service_tier: str | None = None  # as the answer of its provider states it
    resource_caller: Caller = NO_CALLER
    device: str | None = None  # as its resource names it
    agent: str | None = None
    why: dict[str, str] | None = None
    # What the hooks of its product or its sender may add.
    own_id: str | None = None  # of an answer from the source's cache
    also: tuple[bytes, ...] = ()  # further names of the call (spool.identity)
    joins: tuple[bytes, ...] = ()  # names of it that an event knows, too
    run_id: str | None = None  # one record for each run: that of the span that ends last
    reports_stream: bool = False  # it stands beside the span that began the call
    is_attempt: bool = False  # a further attempt: no twin of the attempt above it
    is_logged: bool = False  # by events, which have no id of it
    is_of_sdk: bool = False  # the provider's own library wrote it
    # How it stands among its neighbours.
    inner: list[SpanCall] | None = None  # the nearest calls of the same class below
    twin_caller: Caller = NO_CALLER  # of dropped twins, the nearest first
    repeats: str | None = None  # where reasons are asked for: why it was dropped
    is_linked: bool = False  # known by its place in the trace, too
    is_guess: bool = False  # it names neither an operation nor a kind

    @property
    def has_usage(self) -> bool:
        return self.tokens != NO_TOKENS

    @property
    def says_nothing(self) -> bool:
        """
        True if the span names no model, provider, id, cost or failure and counts nothing: an event inside a call.
        """
        record = self.record
        names_it = record.request_model or record.response_model or record.provider or record.request_id
        if record.charges:
            return False
        return names_it is None and not self.has_usage and record.cost is None and record.status == "ok"

    def count_as(self, tokens: Tokens) -> None:
        """Take over the counts of another report of the same call."""
        self.tokens = tokens
        set_counts(self.record, tokens)
