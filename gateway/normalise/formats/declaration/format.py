"""What a gateway format declares: everything that is known of it stands in its own file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gateway.errors import Refusal
from gateway.normalise.formats.declaration.answer import FormatAnswer
from gateway.normalise.formats.declaration.example import ExampleCall
from gateway.normalise.formats.declaration.signs import Members
from gateway.normalise.options import Options
from gateway.normalise.outcome import Outcome
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.unfolding import Unfolding
from gateway.normalise.reading.values import BadValue
from gateway.schemas import Schema
from spool.identity import Identity
from spool.record import Inference


class Call(NamedTuple):
    """One AI call as a format found it."""

    record: Inference
    identity: Identity
    left_out: int = 0  # metadata that may not become a tag


class Unreadable(NamedTuple):
    """An item whose envelope could not be taken off."""

    message: str

    def __len__(self) -> int:
        return len(self.message)


Items: TypeAlias = "Iterator[payload.Raw | Unreadable]"


class CallReport(NamedTuple):
    """
    What a batch reports of a call that is not whole, or that later batches may add to; only its format reads `facts`.

    Plain and packed, so that it passes between processes and is kept on disk as it is.
    """

    kind: str
    key: str  # the source's own id of the call
    facts: bytes


class Normalised(NamedTuple):
    """What a body yields. The items of reports that wait are received in the outcome, and in no other of its terms."""

    outcome: Outcome
    reports: Sequence[CallReport] = ()


@dataclass(frozen=True, kw_only=True)
class Format:
    """
    How a format is recognised, exemplified and answered; how it is read is in ItemFormat or BatchFormat.

    `has_sign` is given the top-level members of one item. `answer` is for a body that is on disk, `refuse` for a
    request that was refused (headers, body); either returns None where Tollhouse's own answer is right.
    """

    name: str
    has_sign: Callable[[Members], bool]
    example: Callable[[ExampleCall], Any]  # one call, as the gateway would report it now
    origins: Mapping[str, str]  # record field -> payload field, for `explain --why`
    key_header: str | None = None  # where its sender can set no Authorization header
    answer: Callable[[bytes, Outcome, float], FormatAnswer | None] | None = None
    answer_schemas: Mapping[int, Schema | None] = field(default_factory=dict)  # by status; None: no body
    answers_each_item: bool = False  # `answer` also reports the items of a body in which all are malformed
    refuse: Callable[[Mapping[str, str], bytes, Refusal, float], FormatAnswer | None] | None = None
    refusal_schema: Schema | None = None


@dataclass(frozen=True, kw_only=True)
class ItemFormat(Format):
    """
    A format whose items are read one by one.

    `calls` reads one item, decoded as `event`; none for an item that was understood and is no call. It raises
    `BadValue` when a figure cannot be what its field is for, or yields it when the item's other calls are good.
    `unwrap` takes an item of the body out of its envelopes, packed ones with `Unfolding`.
    """

    event: type[msgspec.Struct]
    calls: Callable[[Any], Iterable[Call | BadValue]]
    unwrap: Callable[[payload.Raw, Unfolding], Items] | None = None
    ignored_as: Callable[[Any], str] | None = None  # why an item that is no call was passed over


@dataclass(frozen=True, kw_only=True)
class BatchFormat(Format):
    """A format whose items make records only together: it reads a body as a whole."""

    read: Callable[[bytes, Options], Generator[None, None, Normalised]]


def explained(origins: Mapping[str, str], record: Inference) -> dict[str, str]:
    """Which field of the payload stands behind each field that the record has."""
    return {name: origin for name, origin in origins.items() if getattr(record, name) is not None}
