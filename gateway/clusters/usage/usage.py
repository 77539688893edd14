"""
What containers used, and what is known of a cluster to go on adding up, with the documents in which it is kept. Pure.

The series of a large cluster are kept in parts: one call that reads or writes all of them would stop the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

# Places of what is used: core-microseconds, byte-milliseconds, and microseconds of a graphics processor.
CPU, MEMORY, GPU = range(3)
PART = 1000  # series or pods

Amounts = list[int]  # by CPU, MEMORY and GPU
_Value = TypeVar("_Value")
_encoder = msgspec.json.Encoder(order="sorted")
_parts = msgspec.json.Decoder(list[msgspec.Raw])


class KnownPod(msgspec.Struct, gc=False):
    """`at` is the time of its last sample."""

    workload: str = ""
    node: str = ""
    tags: dict[str, str] = {}
    at: int = 0


class DayUsage(msgspec.Struct):
    """What was used by place, what nodes had, and nodes by the last part of the provider's name for them."""

    used: dict[str, Amounts] = {}
    had: dict[str, Amounts] = {}
    nodes: dict[str, str] = {}


class OpenUsage(msgspec.Struct):
    """What is known of a cluster to go on adding up; `series` have the time and value of their last sample."""

    series: dict[str, tuple[int, int]] = {}
    pods: dict[str, KnownPod] = {}
    namespaces: dict[str, dict[str, str]] = {}
    nodes: dict[str, str] = {}
    days: dict[int, DayUsage] = {}  # by the day in epoch seconds


class OpenDays(msgspec.Struct):
    """What is open of a cluster, without what it takes to go on."""

    days: dict[int, DayUsage] = {}


class UsagePlace(msgspec.Struct, frozen=True):
    """Where something was used."""

    node: str
    namespace: str
    workload: str
    tags: dict[str, str]

    @property
    def key(self) -> str:
        return key_of([self.node, self.namespace, self.workload, self.tags])

    @classmethod
    def of(cls, key: str) -> UsagePlace:
        return cls(*msgspec.json.decode(key))


class _Kept(msgspec.Struct):
    """An `OpenUsage` whose series and pods are not read; they are lists of parts."""

    series: msgspec.Raw = msgspec.Raw(b"[]")
    pods: msgspec.Raw = msgspec.Raw(b"[]")
    namespaces: dict[str, dict[str, str]] = {}
    nodes: dict[str, str] = {}
    days: dict[int, DayUsage] = {}


_kept = msgspec.json.Decoder(_Kept)
_series = msgspec.json.Decoder(dict[str, tuple[int, int]])
_pods = msgspec.json.Decoder(dict[str, KnownPod])


def body_of(usage: OpenUsage) -> bytes:
    """Return the document of what is open."""
    kept = _Kept(
        series=_joined(usage.series),
        pods=_joined(usage.pods),
        namespaces=usage.namespaces,
        nodes=usage.nodes,
        days=usage.days,
    )
    return msgspec.json.encode(kept)


def opened(body: bytes) -> OpenUsage:
    """Read what `body_of` wrote, or a build before it: that had all series, and all pods, in one part."""
    kept = _kept.decode(body)
    return OpenUsage(
        series=_read(kept.series, _series),
        pods=_read(kept.pods, _pods),
        namespaces=kept.namespaces,
        nodes=kept.nodes,
        days=kept.days,
    )


def _joined(whole: Mapping[str, object]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join(map(msgspec.json.encode, _divided(whole))) + b"]")


def _divided(whole: Mapping[str, _Value]) -> Iterator[dict[str, _Value]]:
    items = iter(whole.items())
    while part := dict(islice(items, PART)):
        yield part


def _read(raw: msgspec.Raw, decoder: msgspec.json.Decoder[dict[str, _Value]]) -> dict[str, _Value]:
    found: dict[str, _Value] = {}
    for part in _parts.decode(raw) if bytes(memoryview(raw)[:1]) == b"[" else [raw]:
        found |= decoder.decode(part)
    return found


def together(one: DayUsage, other: DayUsage) -> DayUsage:
    """Return the sum of both."""
    found = DayUsage(nodes=one.nodes | other.nodes)
    for day in (one, other):
        _add_all(found.used, day.used)
        _add_all(found.had, day.had)
    return found


def _add_all(found: dict[str, Amounts], more: Mapping[str, Amounts]) -> None:
    for key, amounts in more.items():
        known = found.setdefault(key, [0, 0, 0])
        found[key] = [
            sum(pair)
            for pair in zip(
                known,
                amounts,
                strict=True,
            )
        ]


def key_of(words: Sequence[object]) -> str:
    """Return words as one text, the same each time."""
    return _encoder.encode(words).decode()
