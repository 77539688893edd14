"""The key of a metric series: what the sender says of itself and of the point, never how it came to us."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b

from gateway.normalise.otlp.model import Point, Resource

KEY_BYTES = 16


class SeriesKeys:
    """Keys for the points of one payload; the resource's share is hashed once for neighbours."""

    def __init__(self) -> None:
        self._resource: Resource | None = None
        self._prefix = blake2b(digest_size=KEY_BYTES)

    def of(self, point: Point) -> bytes:
        """Resource, scope, name, unit, attributes and start time; the same in JSON and in protobuf."""
        if point.resource is not self._resource:
            self._resource = point.resource
            self._prefix = blake2b(canonical(point.resource.attributes), digest_size=KEY_BYTES)
        key = self._prefix.copy()
        for text in (point.scope.name, point.scope.version, point.name, point.unit):
            key.update(_tagged(b"s", text.encode("utf-8", "surrogatepass")))
        key.update(canonical(point.attributes))
        key.update(point.apart)
        key.update(b"@%d" % point.start_time)
        return key.digest()


def apart(outside: Mapping[str, object]) -> bytes:
    """A hash of attributes that may not be read: it distinguishes two series and reveals neither."""
    return blake2b(canonical(outside), digest_size=KEY_BYTES).digest() if outside else b""


def canonical(value: object) -> bytes:
    """An attribute value as bytes that no other value shares: tagged with type and length, keys sorted."""
    if isinstance(value, str):
        return _tagged(b"s", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bool):
        return b"b1" if value else b"b0"
    if isinstance(value, int):
        return _tagged(b"i", b"%d" % value)
    if isinstance(value, float):
        return _tagged(b"d", repr(value).encode())
    if isinstance(value, Mapping):
        return _tagged(b"m", b"".join(_members(value)))
    if isinstance(value, list | tuple):
        return _tagged(b"l", b"".join(map(canonical, value)))
    return b"n"


def _members(attributes: Mapping[str, object]) -> Iterator[bytes]:
    for name in sorted(attributes):
        yield canonical(name)
        yield canonical(attributes[name])


def _tagged(tag: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(content), content)
