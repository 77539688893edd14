"""Uncompressed bodies in both versions of the remote write protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gateway.clusters.usage import series as module

Samples = Iterable[tuple[int, float]]  # pairs of a timestamp in milliseconds and a value


def first(found: Iterable[tuple[Mapping[str, str], Samples]]) -> bytes:
    """Encode series with their labels as a body of version 1."""
    body = b""
    for labels, samples in found:
        pairs = [{"name": name, "value": value} for name, value in labels.items()]
        told = module._First(labels=pairs, samples=_told(samples))
        body += field(1, told.SerializeToString())
    return body


def second(found: Iterable[tuple[Mapping[str, str], Samples]], *, symbols_last: bool = False) -> bytes:
    """
    Encode series as a body of version 2. Labels are indexes into a symbol table, which may follow the series.
    """
    symbols = [""]
    body = b""
    for labels, samples in found:
        words = [word for pair in labels.items() for word in pair]
        symbols += [word for word in words if word not in symbols]
        told = module._Second(labels_refs=[symbols.index(word) for word in words], samples=_told(samples))
        body += field(5, told.SerializeToString())
    of_symbols = b"".join(field(4, word.encode()) for word in symbols)
    return body + of_symbols if symbols_last else of_symbols + body


def field(number: int, text: bytes) -> bytes:
    """Encode a length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(text)) + text


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _told(samples: Samples) -> Sequence[dict[str, float]]:
    return [{"timestamp": at, "value": value} for at, value in samples]
