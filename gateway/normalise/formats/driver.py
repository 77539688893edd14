"""
Items of one body through one format, in slices: the account of every item, and a bad one refused alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Final

from gateway.errors import BadPayload
from gateway.normalise.formats import payload
from gateway.normalise.formats.call import Call, Format, Unreadable
from gateway.normalise.formats.unfolding import Hold, Unfolding
from gateway.normalise.formats.values import BadValue, decoder
from gateway.normalise.options import Options
from gateway.normalise.outcome import MALFORMED, NOT_AI, Outcome
from spool.record import Inference

SLICE_BYTES: Final = 256 * 1024  # a slice in which every item must be cleaned first still takes less than 100 ms
ITEM_BYTES: Final = 256  # an item of two bytes is work, too
MAX_REJECTS: Final = 250_000  # each is kept and told; a body of real items cannot hold as many


def read(format: Format, body: bytes, *, options: Options, hold: Hold) -> Generator[None, None, Outcome]:
    """Every item of the body; each `next` works through at most SLICE_BYTES of them."""
    outcome = Outcome(why=[] if options.explain else None)
    worked = 0
    for item in _items(format, body, Unfolding(hold)):
        if worked and worked + len(item) > SLICE_BYTES:
            outcome.pack()
            yield
            worked = 0
        _take(outcome, format, item)
        worked += len(item) + ITEM_BYTES
        if len(outcome.rejects) > MAX_REJECTS:
            raise BadPayload(f"more than {MAX_REJECTS} items cannot be read")
    return outcome


def _items(format: Format, body: bytes, unfolding: Unfolding) -> Iterator[payload.Raw | Unreadable]:
    for raw in payload.items(body):
        if format.unfold is not None:
            yield from format.unfold(raw, unfolding)
        elif format.unwrap is not None:
            yield from format.unwrap(raw)
        else:
            yield raw


def _take(outcome: Outcome, format: Format, item: payload.Raw | Unreadable) -> None:
    index = outcome.received
    outcome.received += 1
    if isinstance(item, Unreadable):
        return outcome.reject(index, MALFORMED, item.message)
    try:
        event = payload.decode(item, decoder(format.event))
        found = list(format.calls(event))
    except payload.UNREADABLE as error:
        if bytes(item) == b"null":  # LiteLLM's arrays hold them
            outcome.ignored[NOT_AI] += 1
            return None
        return outcome.reject(index, MALFORMED, payload.problem(error))
    except BadValue as error:
        return outcome.reject(index, error.reason, error.message)
    account(outcome, format, event, found)
    return None


def account(outcome: Outcome, format: Format, event: Any, found: Iterable[Call]) -> None:
    """The calls of one item into the books: none is an item passed over, each beyond the first was split off."""
    calls = list(found)
    if not calls:
        outcome.ignored[format.ignored_as(event) if format.ignored_as else NOT_AI] += 1
        return
    outcome.split += len(calls) - 1
    for record, identity, left_out in calls:
        outcome.add(record, identity, None if outcome.why is None else explained(format.origins, record))
        outcome.left_out += left_out


def explained(origins: Mapping[str, str], record: Inference) -> dict[str, str]:
    """Which field of the payload stands behind each field that the record has."""
    return {field: origin for field, origin in origins.items() if getattr(record, field) is not None}
