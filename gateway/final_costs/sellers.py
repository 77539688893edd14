"""Who tells the final cost of a call by its id, how each is asked, and which calls are theirs. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from gateway.errors import BadPayload
from gateway.normalise import any_format
from gateway.normalise.formats import openrouter
from gateway.normalise.options import Options
from gateway.normalise.outcome import Outcome
from spool.identity import Identity
from spool.record import Inference, Record

# What both answer is the same: Vercel took over the shape of OpenRouter's.
_FORMAT = openrouter.NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSeller:
    """
    Sells calls of many providers' models under ids of its own.

    No id is asked for that may be another's: it has the form of the seller's ids, and the call was told by
    the seller, or as a call through it.
    """

    name: str
    base_url: str
    ids: re.Pattern[str]
    sources: frozenset[str]
    providers: frozenset[str]  # as clients write it, without what Vercel's AI SDK adds

    def url(self, base_url: str, id: str) -> str:
        return f"{(base_url or self.base_url).rstrip('/')}/generation?id={quote(id, safe='')}"

    def sold(self, record: Record | None, also: Collection[str] = ()) -> bool:
        """
        True for a call of the seller whose cost is not known.

        `also`: providers that clients state who call through the seller, because its protocol is theirs.
        """
        if (
            not isinstance(record, Inference)
            or record.cost is not None
            or record.charges
            or record.shadow
            or record.status == "cached"
        ):
            return False
        if record.request_id is None or self.ids.fullmatch(record.request_id) is None:
            return False
        provider = (record.provider or "").partition(".")[0]
        return record.source in self.sources or provider in self.providers or record.provider in also


SELLERS: Mapping[str, CallSeller] = {
    seller.name: seller
    for seller in (
        CallSeller(
            name="openrouter",
            base_url="https://openrouter.ai/api/v1",
            ids=re.compile(r"gen-(?:\d{10}-[A-Za-z0-9_-]{16,40}|[A-Za-z0-9]{20,40})"),
            sources=frozenset({"openrouter"}),
            providers=frozenset({"openrouter"}),
        ),
        CallSeller(
            name="vercel_ai_gateway",
            base_url="https://ai-gateway.vercel.sh/v1",
            ids=re.compile(r"gen_[0-9A-HJKMNP-TV-Z]{26}"),
            sources=frozenset({"vercel_ai"}),
            providers=frozenset({"vercel", "vercel-ai-gateway", "vercel_ai_gateway"}),
        ),
    )
}


class NoAnswer(Exception):
    """The body is not an answer about the call that was asked for."""


def read_answer(body: bytes, known: Inference) -> tuple[Inference, Identity] | None:
    """
    A further report of a call on record, with its cost, its counts and nothing of who called; None without
    a cost yet.

    It is known as the call is, and the provider's own id is a further name of it.
    """
    try:
        outcome = _normalised(body)
    except BadPayload as error:
        raise NoAnswer("the answer cannot be read") from error
    told = outcome.records[0] if len(outcome.records) == 1 else None
    if not isinstance(told, Inference) or told.request_id != known.request_id:
        raise NoAnswer("the answer is not about the call that was asked for")
    if told.cost is None:
        return None
    told.id, told.source = known.id, known.source
    told.start_time, told.end_time = known.start_time or told.start_time, known.end_time or told.end_time
    told.user = told.team = told.session = None
    told.tags = {name: value for name, value in told.tags.items() if name == "byok"}
    return told, Identity(known.id, also=outcome.identities[0].also, is_final=True)


def _normalised(body: bytes) -> Outcome:
    steps = any_format.normalise(_FORMAT, body, options=Options())
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: Outcome = end.value.outcome
            return outcome
