"""
Lanes, which are the calls of one conversation, and the tokens that a provider's cache holds for a lane.

Only the sender decides which calls form a lane. A lane is never guessed, because two conversations in one lane would
show breaks that did not happen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from gateway.money.waste.rules import FIVE_MINUTES, ONE_HOUR, UNSTATED, Lifetime
from gateway.normalise.otlp.products import PRODUCTS
from spool.ledger.dimensions import TAG
from spool.record import NS, Inference

ENDS_AFTER = 6 * 3600 * NS  # a lane ends this long after its last call, when no cache holds it any more
_OPTIONAL = "run"  # calls of a main agent have no run, so this field may be missing

Lane = tuple[str, ...]


class LaneSettings(Protocol):
    """The setting of a source that this module reads."""

    @property
    def lane(self) -> Sequence[str]: ...


def lane_fields_by_source(sources: Mapping[str, LaneSettings]) -> Mapping[str, Sequence[str]]:
    """Return the fields that decide the lane of a call, as products and then the operator declare them."""
    declared = {product.source: product.lane for product in PRODUCTS if product.lane}
    return {**declared, **{name: source.lane for name, source in sources.items() if source.lane}}


def lane_of_call(call: Inference, fields_by_source: Mapping[str, Sequence[str]]) -> Lane | None:
    """Return the values of the fields that a source declares, or None if it declares none or one is missing."""
    fields = fields_by_source.get(call.source, ())
    values = [_field_value(call, name) for name in fields]
    if not fields or any(
        value is None and name != _OPTIONAL for name, value in zip(fields, values, strict=True)
    ):
        return None
    return (call.source, *(value or "" for value in values))


def group_by_lane(
    calls: Iterable[Inference], fields_by_source: Mapping[str, Sequence[str]]
) -> Mapping[Lane | None, Sequence[Inference]]:
    """Return the calls of each lane in the order of their starts. None has the calls without a lane."""
    lanes = defaultdict[Lane | None, list[Inference]](list)
    for call in calls:
        lanes[lane_of_call(call, fields_by_source)].append(call)
    for each in lanes.values():
        each.sort(key=lambda call: (call.start_time or 0, call.end_time or 0, call.id))
    return lanes


def _field_value(call: Inference, name: str) -> str | None:
    if name.startswith(TAG):
        return call.tags.get(name.removeprefix(TAG))
    return call.session if name == "session" else call.run


class _Segment(NamedTuple):
    """Tokens that follow each other in the cache. `used_from` and `used_until` (ns) are the times of the last use."""

    tokens: int
    lifetime: Lifetime
    used_from: int
    used_until: int


class CachedPrefix:
    """The tokens of one lane in the provider's cache, from the first token of the input on."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []

    def alive_at(self, start: int) -> tuple[int, int]:
        """
        Return the numbers of tokens that are surely alive and that may be alive for a call that starts at a time.

        A provider may count a lifetime from any moment between the start and the end of the last use.
        """
        surely = perhaps = 0
        is_sure = True
        for tokens, lifetime, used_from, used_until in self._segments:
            if start > used_until + lifetime.dies:
                break
            is_sure = is_sure and start <= used_from + lifetime.lives
            surely += tokens if is_sure else 0
            perhaps += tokens
        return surely, perhaps

    def use(self, call: Inference, *, forgets: bool) -> None:
        """
        Renew what a call read, and add what it wrote. If it `forgets`, the tokens read are not those that earlier calls
        of the lane used, so their lifetime is unknown.
        """
        read, written = call.cache_read_tokens or 0, call.cache_write_tokens or 0
        start, end = call.start_time or 0, call.end_time or 0
        kept: list[_Segment] = []
        for segment in () if forgets else self._segments:
            tokens = min(segment.tokens, read)
            read -= tokens
            if tokens:
                kept.append(_Segment(tokens, segment.lifetime, start, end))
        hour = call.cache_write_1h_tokens
        added = (
            [(read, UNSTATED), (written, UNSTATED)]
            if hour is None
            else [(read, UNSTATED), (hour, ONE_HOUR), (written - hour, FIVE_MINUTES)]
        )
        self._segments = kept + [_Segment(tokens, life, start, end) for tokens, life in added if tokens]
