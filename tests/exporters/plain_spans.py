"""
A record as an OTLP span, encoded attribute by attribute without any memory or shortcut. Tests compare the bytes
of `exporters.otlp.spans` with it.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator
from typing import Any

from exporters.otlp.spans import COMBINED, NUMBERS, TEXTS
from spool import identity
from spool.meters import METERS, MODALITIES
from spool.record import NS, Inference

_NAMES = {
    "operation": "gen_ai.operation.name",
    "provider": "gen_ai.provider.name",
    "request_model": "gen_ai.request.model",
    "response_model": "gen_ai.response.model",
    "error_type": "error.type",
}


def plain_span(record: Inference, committed_at: float) -> bytes:
    """Raises ValueError, OverflowError or struct.error for a value that OTLP cannot hold."""
    r = record
    name = " ".join(filter(None, (r.operation, r.request_model or r.response_model))) or "call"
    cost_source = r.cost_source
    if r.charges:
        cost_source = "none" if r.estimated_cost is None else "estimated"
    trace, span = identity.derived_trace_and_span_ids(r.id)
    odd_ids = []
    if r.trace_id is not None:
        if re.fullmatch(r"(?!0{32})[0-9a-f]{32}", r.trace_id):
            trace = bytes.fromhex(r.trace_id)
        else:
            odd_ids.append(("tollhouse.trace_id", r.trace_id))
    if r.span_id is not None:
        if re.fullmatch(r"(?!0{16})[0-9a-f]{16}", r.span_id):
            span = bytes.fromhex(r.span_id)
        else:
            odd_ids.append(("tollhouse.span_id", r.span_id))
    received = int(committed_at * NS)
    start, end = r.start_time, r.end_time
    known = {(False, False): "none", (True, False): "start", (False, True): "end"}
    times = known.get((start is not None, end is not None))
    start, end = start if start is not None else end, end if end is not None else start
    return b"".join(
        (
            *[_attribute(*pair) for pair in odd_ids],
            _field(1, trace),
            _field(2, span),
            b"\x39" + struct.pack("<Q", received if start is None else start),
            b"\x41" + struct.pack("<Q", received if end is None else end),
            _field(5, name.encode()),
            b"\x30\x03",
            *[_attribute(*pair) for pair in _combined(r, cost_source)],
            _field(15, b"\x18\x02") if r.status == "error" else b"",
            *[_attribute(*pair) for pair in _own(r, times)],
        )
    )


def _combined(record: Inference, cost_source: str) -> Iterator[tuple[str, str]]:
    for field in COMBINED:
        value = cost_source if field == "cost_source" else getattr(record, field)
        if value is not None:
            yield _NAMES.get(field, f"tollhouse.{field}"), value
    yield "tollhouse.currency", "USD"


def _own(record: Inference, times: str | None) -> Iterator[tuple[str, int | str]]:
    yield "tollhouse.id", record.id.hex()
    if times is not None:
        yield "tollhouse.times", times
    if record.request_id is not None:
        is_long = identity.is_long_id(record.request_id)
        yield "gen_ai.response.id" if is_long else "tollhouse.request_id", record.request_id
    for field, name in (NUMBERS | TEXTS).items():
        value = getattr(record, field)
        if value is not None:
            yield name, value
    for tag, text in record.tags.items():
        yield f"tollhouse.tag.{tag}", text
    for meter, quantity in record.meters.items():
        if meter in METERS:
            yield _meter_name(meter), quantity
    for currency, amount in record.charges.items():
        yield f"tollhouse.charge.{currency}", amount


def _meter_name(meter: str) -> str:
    for kind in MODALITIES:
        for name in ("input_{}_tokens", "output_{}_tokens", "cache_{}_read_tokens"):
            if meter == name.format(kind):
                side = "cache_read.input" if meter.startswith("cache") else meter.partition("_")[0]
                return f"gen_ai.usage.{kind}.{side}_tokens"
    return f"tollhouse.meter.{meter}"


def _attribute(key: str, value: int | str) -> bytes:
    if isinstance(value, int):
        if not 0 <= value < 2**63:
            raise ValueError(value)
        any_value = b"\x18" + _varint(value)
    else:
        any_value = _field(1, value.encode())
    return _field(9, _field(1, key.encode()) + _field(2, any_value))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


# -- records ---------------------------------------------------------------------------------------------------


def random_calls(seed: int, number: int) -> Iterator[Inference]:
    """
    Yield calls with every field, lengths and counts around the limits of the encoding, and some values that
    OTLP cannot hold.
    """
    chance = random.Random(seed)
    counts = [0, 1, 127, 128, 300, 16_383, 16_384, 60_000, 2**21 - 1, 2**21, 2**28, 2**63 - 1]
    shared_tags: dict[str, str] = {}

    def maybe(value: Any) -> Any:
        return value if chance.random() < 0.7 else None

    def text() -> str:
        letters = chance.choice(["a", "ab-_", "aü", "日本"])
        length = chance.choice([0, 1, 5, 16, 40, 80, 100, 120, 127, 128, 129, 200, 16_500])
        return (letters * length)[:length]

    def hexes(digits: int) -> str:
        id = f"{chance.getrandbits(4 * digits):0{digits}x}"
        odd = [
            "0" * digits,
            id.upper(),
            id[:-1],
            id[:-2] + "  ",
            f" {id[1:]}",
            f"{id}0",
            "g" * digits,
            "",
            "٣" * digits,
        ]
        return id if chance.random() < 0.8 else chance.choice(odd)

    for _ in range(number):
        if chance.random() < 0.5:
            shared_tags = {
                chance.choice(["env", "team", "naïve"]): text() for _ in range(chance.randrange(3))
            }
        fields: dict[str, Any] = {name: maybe(chance.choice(counts)) for name in NUMBERS}
        fields |= {name: maybe(text()) for name in TEXTS}
        fields |= {name: maybe(chance.choice(["chat", "gpt-4o", "error", text()])) for name in COMBINED}
        fields |= {name: fields[name] or "ok" for name in ("source", "status", "cost_source")}
        meters: dict[str, int | str] = {name: maybe(5) or "1.5" for name in [*METERS, "unknown"]}
        record = Inference(
            **fields,
            id=chance.randbytes(chance.choice([16, 16, 16, 0, 20])),
            request_id=maybe(chance.choice(["chatcmpl-" + "x" * chance.randrange(12, 40), text()])),
            trace_id=maybe(hexes(32)),
            span_id=maybe(hexes(16)),
            start_time=maybe(chance.randrange(2**63)),
            end_time=maybe(chance.randrange(2**63)),
            tags=chance.choice([{}, shared_tags, dict(shared_tags)]),
            meters=chance.choice([{}, {}, meters]),
            charges=chance.choice([{}, {}, {"EUR": "1.25"}]),
        )
        if chance.random() < 0.05:
            name, value = chance.choice(
                [
                    ("input_tokens", -1),
                    ("output_tokens", 2**63),
                    ("start_time", -1),
                    ("end_time", 2**64),
                    ("user", "\ud800"),
                ]
            )
            setattr(record, name, value)
        yield record
