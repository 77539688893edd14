"""The jobs of a worker and their encoding."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple, cast

import msgspec

from gateway.normalise import any_format, otlp
from gateway.normalise.formats.engine.declaration import Normalised
from gateway.normalise.otlp import Signal
from gateway.normalise.outcome import Options
from gateway.normalise.payload.body_limits import Hold
from gateway.service.errors import Refusal

_PROTOBUF: Final = "otlp-protobuf/"
_JSON: Final = "otlp-json/"

_encoder = msgspec.msgpack.Encoder()
_options = msgspec.msgpack.Decoder(Options)
_refusal = msgspec.msgpack.Decoder(tuple[int, str, str, int | None])


class NotDone(Exception):
    """The job was not done, and it did not end a worker. The server may do it itself."""


class SentBody(NamedTuple):
    """One body to decode. It is OTLP of a signal in one of its encodings, or a payload of a format."""

    reader: str
    content: bytes

    @classmethod
    def of_export(cls, signal: Signal, body: bytes, *, json: bool) -> SentBody:
        return cls((_JSON if json else _PROTOBUF) + signal, body)

    @classmethod
    def of_format(cls, format: str, body: bytes) -> SentBody:
        return cls(format, body)

    @property
    def is_spans(self) -> bool:
        """Return whether the memory of spans may know the body."""
        return self.reader == _PROTOBUF + "traces"

    def normalise(self, options: Options, hold: Hold) -> Generator[None, None, Normalised]:
        """
        Decode the body; each `next` runs one slice. Raises BadPayload or Refusal if the sender made a mistake.
        """
        kind, slash, signal = self.reader.partition("/")
        if kind + slash not in (_PROTOBUF, _JSON):
            return (yield from any_format.normalise(self.reader, self.content, options=options, hold=hold))
        signal = cast(Signal, signal)
        json = kind + slash == _JSON
        return Normalised(
            (yield from otlp.normalise(signal, self.content, json=json, options=options, hold=hold))
        )


def packed_options(options: Options) -> bytes:
    return _encoder.encode(options)


def unpacked_options(payload: bytes) -> Options:
    return _options.decode(payload)


def packed_refusal(refusal: Refusal) -> bytes:
    return _encoder.encode((refusal.status, refusal.type, refusal.message, refusal.retry_after_s))


def unpacked_refusal(payload: bytes) -> Refusal:
    status, type, message, retry_after_s = _refusal.decode(payload)
    return Refusal(status, type, message, retry_after_s=retry_after_s)
