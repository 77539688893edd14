"""The key of a metric series."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.normalise.otlp.metrics import KEY_BYTES, SeriesKeys, encode_canonically
from gateway.normalise.otlp.model import MetricPoint, Resource, Scope

SCALARS = st.one_of(st.text(max_size=5), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def point(**changes: Any) -> MetricPoint:
    fields: dict[str, Any] = {
        "resource": Resource(attributes={"service.name": "shop"}),
        "scope": Scope(name="meter", version="1"),
        "name": "gen_ai.client.token.usage",
        "unit": "{token}",
        "cumulative": True,
        "start_time": 10,
        "time": 20,
        "value": 5,
        "attributes": {"gen_ai.token.type": "input", "gen_ai.request.model": "gpt-4o"},
    }
    return MetricPoint(**(fields | changes))


def key(**changes: Any) -> bytes:
    return SeriesKeys().series_key(point(**changes))


def tagged(value: Any) -> Any:
    """Return the value together with its type, because in Python 1 == 1.0 == True."""
    if isinstance(value, dict):
        return ("m", tuple((name, tagged(value[name])) for name in sorted(value)))
    if isinstance(value, list):
        return ("l", tuple(map(tagged, value)))
    return (type(value).__name__, repr(value))


def test_the_key_has_sixteen_bytes() -> None:
    assert KEY_BYTES == len(key())


def test_time_and_value_are_no_part_of_the_key() -> None:
    """Points of one series differ in time and value."""
    assert key() == key(time=30, value=9)


def test_the_order_of_attributes_is_no_part_of_the_key() -> None:
    assert key() == key(attributes={"gen_ai.request.model": "gpt-4o", "gen_ai.token.type": "input"})


def test_everything_that_names_a_series_is_part_of_the_key() -> None:
    """Each difference in resource, scope, name, unit, attributes or start time makes another series."""
    others = [
        key(resource=Resource(attributes={"service.name": "other"})),
        key(scope=Scope(name="meter", version="2")),
        key(scope=Scope(name="other", version="1")),
        key(name="gen_ai.client.token.cost"),
        key(unit="token"),
        key(attributes={"gen_ai.token.type": "output", "gen_ai.request.model": "gpt-4o"}),
        key(start_time=11),
    ]
    assert len(others) + 1 == len({key(), *others})


def test_neighbours_do_not_lend_each_other_their_resource() -> None:
    """
    The resource is hashed once for consecutive points with the same resource. When the resource changes, it
    is hashed again.
    """
    keys = SeriesKeys()
    first, second = point(), point(resource=Resource(attributes={"service.name": "other"}))
    assert [key(), key(resource=second.resource), key()] == [
        keys.series_key(first),
        keys.series_key(second),
        keys.series_key(first),
    ]


RESOURCES = [Resource(attributes={"service.name": name}) for name in ("shop", "other")]
POINTS = st.fixed_dictionaries(
    {
        "resource": st.sampled_from(RESOURCES),
        "scope": st.builds(Scope, name=st.sampled_from(["meter", "m"]), version=st.sampled_from(["", "1"])),
        "name": st.sampled_from(["tokens", "cost"]),
        "unit": st.sampled_from(["", "USD", "\ud800"]),
        "start_time": st.sampled_from([0, 11]),
        "attributes": st.dictionaries(st.text(max_size=3), VALUES, max_size=3),
        "apart": st.sampled_from([b"", b"hash"]),
    }
)


def plain_key(point: MetricPoint) -> bytes:
    """Return the key of a point by one hash over all its parts, which stored series depend on."""
    texts = (point.scope.name, point.scope.version, point.name, point.unit)
    parts = [
        encode_canonically(point.resource.attributes),
        *map(encode_canonically, texts),
        encode_canonically(point.attributes),
    ]
    content = b"".join(parts) + point.apart + b"@%d" % point.start_time
    return blake2b(content, digest_size=KEY_BYTES).digest()


@given(st.lists(POINTS, max_size=8))
def test_neighbours_have_the_same_keys_as_points_that_are_alone(points: list[dict[str, Any]]) -> None:
    """The shares of resource and metric are hashed once for consecutive points, and the keys are the same."""
    keys = SeriesKeys()
    assert [plain_key(point(**each)) for each in points] == [
        keys.series_key(point(**each)) for each in points
    ]


def test_the_key_of_a_stored_series_is_unchanged() -> None:
    """A gateway of another release finds the series of the storage."""
    nested = {"a": [1, 2.5, True, None, "é"], "b": {"c": "d"}}
    assert "6e07aeb49c6637ac5cf1fef9a5f323ec" == key(attributes=nested, apart=b"hash").hex()


@given(VALUES, VALUES)
def test_values_share_their_bytes_only_when_they_are_the_same(one: Any, other: Any) -> None:
    """
    Different values never have the same bytes in the key: 1, 1.0, true and "1" are four values, and nesting
    makes no two values equal.
    """
    assert (tagged(one) == tagged(other)) == (encode_canonically(one) == encode_canonically(other))
