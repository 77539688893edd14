"""Shapes that are found by the facts of names, compared with asking every table for the names of an item."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import asdict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.normalise import otlp
from gateway.normalise.otlp import admission, semconv, shapes
from gateway.normalise.otlp.decoding import protobuf_decoder
from gateway.normalise.otlp.product import Names
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.otlp.shapes import (
    DECLARED,
    METADATA_BEGINNINGS,
    TAG_LISTS,
    attributes_with_tags,
    find_or_build_shape,
)
from gateway.normalise.otlp.spans import readings
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.reading.ai_names import is_ai_name
from tests.gateway.normalise.otlp.items import finished
from tests.gateway.normalise.otlp.test_span_readings import certain
from tests.gateway.normalise.otlp.trace_requests import trace_requests
from tests.rounds import examples, part

BEGINNINGS = (
    *METADATA_BEGINNINGS,
    *shapes.NO_METADATA,
    *[beginning for product in PRODUCTS for beginning in product.mark_beginnings],
    "app.", "llm.input_messages.3.message.", "",
)  # fmt: skip
WORDS = (
    "id",
    "model",
    "input_tokens",
    "tokens",
    "cost",
    "prompt",
    "content",
    "user.email",
    "zone",
    "x" * 300,
)


def names_of(chance: Random) -> list[str]:
    """Return declared and invented names in any order."""
    declared = chance.sample(sorted(DECLARED), chance.randrange(0, 40))
    invented = [f"{chance.choice(BEGINNINGS)}{chance.choice(WORDS)}" for _ in range(chance.randrange(0, 12))]
    never = [f"app.{chance.getrandbits(40):x}" for _ in range(chance.choice((0, 3, 200)))]
    names = list(dict.fromkeys([*declared, *invented, *never]))
    chance.shuffle(names)
    return names


def by_tables(names: list[str]) -> dict[str, Any]:
    """Return the fields of a shape by asking every table, as the declarations of products state them."""

    def present(table: Any) -> Names:
        return tuple([name for name in table if name in names])

    def bears_mark(product: Any) -> bool:
        return any(name in product.marks or name.startswith(product.mark_beginnings) for name in names)

    kinds = {kind.attribute: kind for product in PRODUCTS for kind in product.kinds}
    found = tuple([kind for attribute, kind in kinds.items() if attribute in names])
    tags = [(tag, present(table)) for tag, table in semconv.NAMED_TAGS.items()]
    weak = [(product, *mark) for product in PRODUCTS for mark in product.weak_marks.items()]
    return {
        **{field: present(table) for field, table in shapes.FIELD_NAMES.items()},
        "containers": present(shapes.CONTAINERS),
        "meters": tuple([(meter, name) for name, meter in semconv.METERS.items() if name in names]),
        "named_tags": tuple([(tag, table) for tag, table in tags if table]),
        "has_metadata": bool(metadata_by_tables(names)),
        "product": next(filter(bears_mark, PRODUCTS), None),
        "weak_marks": tuple([(product, holds) for product, name, holds in weak if name in names]),
        "kinds": found,
        "deciding_kind": next((kind for kind in found if kind.operation is not None), None),
        "taken_by": tuple([product for product in PRODUCTS if present(product.taken_marks)]),
        "names_tool": "gen_ai.tool.name" in names,
        "names_operation": bool(present(semconv.OPERATION)),
        "names_end_user": bool(present((semconv.END_USER, semconv.PRINCIPAL))),
        "names_ai": any(map(is_ai_name, names)),
    }


def metadata_by_tables(names: list[str]) -> list[tuple[str, str | None]]:
    pairs: list[tuple[str, str | None]] = []
    for name in names:
        beginnings = [beginning for beginning in METADATA_BEGINNINGS if name.startswith(beginning)]
        if name == semconv.METADATA_JSON or name in TAG_LISTS:
            pairs.append((name, None))
        elif beginnings and not name.startswith(shapes.NO_METADATA):
            pairs.append((name, name.removeprefix(beginnings[0])))
    return pairs


@pytest.mark.parametrize("seed", range(4))
def test_a_shape_has_what_every_table_says(seed: int) -> None:
    """A shape is the same for the names of an item in any order, whether or not the names were seen before."""
    chance = Random(seed)
    for _ in range(examples(300)):
        names = names_of(chance)
        attributes = dict.fromkeys(names)
        found = {**asdict(find_or_build_shape(attributes))}
        assert ({}, {}) == (found.pop("own"), found.pop("readings"))
        assert by_tables(names) == found
        assert metadata_by_tables(names) == list(attributes_with_tags(attributes))


def test_every_name_that_decides_has_facts_of_its_own() -> None:
    """Readings are remembered by shape, so each name that a reading looks for must be part of the shape's key."""
    own = [name for product in PRODUCTS for names in product.own_names.values() for name in names]
    marks = [
        name for product in PRODUCTS for name in (*product.marks, *product.taken_marks, *product.weak_marks)
    ]
    for name in (*own, *marks, *semconv.PLAIN_MODEL, semconv.CLOUD, *semconv.OPERATION, *shapes.CONTAINERS):
        others = [shapes._facts[other] for other in DECLARED if other != name]
        assert shapes._facts[name] not in others


def forget() -> None:
    """Empty every cache of readings."""
    for cache in (
        shapes._facts,
        shapes._by_names,
        shapes._seen_keys,
        shapes._seen_shapes,
        shapes._shapes,
        readings._named,
        protobuf_decoder._known,
        protobuf_decoder._heads,
        protobuf_decoder._seen_keys,
        admission.RULES,
    ):
        cache.clear()


def varied(body: bytes, chance: Random) -> bytes:
    """Return a request with further names, repeated names and its fields in another order."""
    message = ExportTraceServiceRequest.FromString(body)
    for group in message.resource_spans:
        for span in [span for scope in group.scope_spans for span in scope.spans]:
            for name in names_of(chance)[: chance.choice((0, 1, 3))]:
                span.attributes.add(key=name).value.string_value = chance.choice(("7", "chat", "gpt-5", "on"))
            for number in range(chance.choice((0, 0, 40))):
                name = f"llm.input_messages.{number}.message.content"
                span.attributes.add(key=name).value.string_value = "é word " * chance.randrange(30)
            if span.attributes and chance.random() < 0.3:
                span.attributes.add().CopyFrom(chance.choice(span.attributes))
            pairs = list(span.attributes)
            chance.shuffle(pairs)
            del span.attributes[:]
            span.attributes.extend(pairs)
    return message.SerializeToString()


def read(body: bytes) -> ReadOutcome:
    return certain(
        finished(otlp.normalise_otlp("traces", body, json=False, options=ReadOptions(host_id=True)))
    )


@pytest.mark.parametrize("number", part(range(len(trace_requests())), every=24))
def test_familiar_spans_are_read_like_unfamiliar_ones(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome is the same with warm caches, with caches of eight entries, and without any."""
    chance = Random(number)
    bodies = [varied(trace_requests()[number], chance) for _ in range(3)]
    familiar = [read(body) for _ in range(3) for body in bodies][-len(bodies) :]
    alone = []
    for body in bodies:
        forget()
        alone.append(read(body))
    with monkeypatch.context() as patch:
        patch.setattr(shapes, "_MOST_SHAPES", 8)
        patch.setattr(readings, "_MOST_NAMED", 8)
        patch.setattr(protobuf_decoder, "_MOST_KNOWN", 8)
        patch.setattr(admission.RULES, "_most", 8)
        patch.setattr(shapes._facts, "_most", 8)
        forget()
        cramped = [read(body) for body in bodies]
    assert familiar == alone == cramped


def test_sets_of_names_that_never_recur_displace_no_set() -> None:
    usual = {"app.usual": "on"}
    for _ in range(2):
        find_or_build_shape(usual)
    for number in range(2 * shapes._MOST_SHAPES):
        find_or_build_shape({f"app.invented-{number}": "on"})
    assert tuple(usual) in shapes._by_names


def test_shapes_that_never_recur_are_not_cached() -> None:
    forget()
    chance = Random(2)
    for _ in range(300):
        find_or_build_shape(dict.fromkeys(chance.sample(sorted(DECLARED), 7)))
    assert {} == shapes._shapes
    assert find_or_build_shape({"app.name": 1, "user.id": 1}) is not find_or_build_shape(
        {"user.id": 1, "app.name": 1}
    )
    assert find_or_build_shape({"app.name": 1, "user.id": 1}) is find_or_build_shape(
        {"app.other": 1, "user.id": 1}
    )


def test_shapes_are_limited_by_all_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many shapes of many declared names are forgotten, and a small shape is still remembered."""
    monkeypatch.setattr(shapes, "_MOST_KEYS", 2000)
    forget()
    chance = Random(1)
    for _ in range(200):
        names = chance.sample(sorted(DECLARED), 100)
        find_or_build_shape(dict.fromkeys(names))
        find_or_build_shape(dict.fromkeys(reversed(names)))
        assert sum(map(len, shapes._shapes)) <= 2000 + 100
    find_or_build_shape({"app.usual": 1})
    assert find_or_build_shape({"app.name": 1}) is find_or_build_shape({"app.other": 2})
