"""The combined result of a decoder for one payload, because where a decoder pauses depends on the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from gateway.normalise.otlp.decoding.pieces import PayloadPiece

T = TypeVar("T")


def in_one(parts: Iterable[PayloadPiece[T]]) -> PayloadPiece[T]:
    """Combine all slices into one."""
    every = list(parts)
    return PayloadPiece(
        received=sum(part.received for part in every),
        items=[item for part in every for item in part.items],
        rejects=[reject for part in every for reject in part.rejects],
        ignored=dict(sum((Counter(part.ignored) for part in every), Counter())),
        ended=frozenset().union(*(part.ended for part in every)),
    )
