"""The key of a metric series."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.normalise.otlp.metrics import KEY_BYTES, SeriesKeys, canonical
from gateway.normalise.otlp.model import Point, Resource, Scope

SCALARS = st.one_of(st.text(max_size=5), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def point(**changes: Any) -> Point:
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
    return Point(**(fields | changes))


def key(**changes: Any) -> bytes:
    return SeriesKeys().of(point(**changes))


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
    assert [key(), key(resource=second.resource), key()] == [keys.of(first), keys.of(second), keys.of(first)]


@given(VALUES, VALUES)
def test_values_share_their_bytes_only_when_they_are_the_same(one: Any, other: Any) -> None:
    """
    Different values never have the same bytes in the key: 1, 1.0, true and "1" are four values, and nesting
    makes no two values equal.
    """
    assert (tagged(one) == tagged(other)) == (canonical(one) == canonical(other))
