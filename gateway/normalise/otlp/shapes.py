"""
What the names of a span's attributes say before any value is read: which fields it has, whose dialect it may be.

Spans of one instrumentation have the same names, so a shape is worked out once and then found by the names. Of the ten
spellings of a cached token count a span has one or two: only those are searched.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from gateway.normalise.otlp import containers, semconv
from gateway.normalise.otlp.decoding.model import Attributes

Names = tuple[str, ...]

# Marks of a dialect, as bits.
TOLLHOUSE = 1
OPENINFERENCE = 1 << 1
LANGFUSE = 1 << 2
MLFLOW = 1 << 3
VERCEL = 1 << 4
VERCEL_DETAILS = 1 << 5  # of version 6 and later
LANGSMITH = 1 << 6
LOGFIRE = 1 << 7
SPRING = 1 << 8
AGENTGATEWAY = 1 << 9
KONG = 1 << 10
CLOUDFLARE = 1 << 11
VLLM = 1 << 12
OPENLLMETRY = 1 << 13
SDK = 1 << 14
SYSTEM = 1 << 15
TOTAL = 1 << 16
LITELLM = 1 << 17
OPENROUTER = 1 << 18
DIALECT = (1 << 19) - 1
# What is no dialect's own.
KIND = 1 << 19  # says what kind of span it is
END_USER = 1 << 20
AI_NAME = 1 << 21  # speaks of models or tokens
PORTKEY = 1 << 22  # a row, which its format reads

_MARKS: dict[str, int] = {
    "tollhouse.id": TOLLHOUSE,
    "ai_org": PORTKEY,
    "openinference.span.kind": OPENINFERENCE | KIND,
    "langfuse.observation.type": LANGFUSE | KIND,
    "mlflow.spanType": MLFLOW | KIND,
    "ai.operationId": VERCEL | KIND,
    "gen_ai.model.provider": CLOUDFLARE,
    "llm.request.type": OPENLLMETRY,
    "telemetry.sdk.name": SDK,
    "gen_ai.system": SYSTEM,
    "gen_ai.usage.total_tokens": TOTAL,
    "gen_ai.operation.name": KIND,
    "gen_ai.tool.name": KIND,
    "gen_ai.span.kind": KIND,
    "span.type": KIND,
    semconv.END_USER: END_USER,
    semconv.PRINCIPAL: END_USER,
}
_MARKED_BEGINNINGS = (
    ("ai.usage.inputTokenDetails.", VERCEL_DETAILS),
    ("langsmith.", LANGSMITH),
    ("langsmith.span.kind", KIND),
    ("logfire.", LOGFIRE),
    ("spring.ai.", SPRING),
    ("spring.ai.kind", KIND),
    ("agw.", AGENTGATEWAY),
    ("kong.", KONG),
    ("gen_ai.latency.", VLLM),
    ("traceloop.", OPENLLMETRY),
    ("traceloop.span.kind", KIND),
    ("llm.usage.", OPENLLMETRY),
    ("metadata.user_api_key_", LITELLM),
    ("litellm.", LITELLM),
    ("trace.metadata.openrouter.", OPENROUTER),
)


class Shape(Struct, frozen=True, gc=False):
    """The names that are there, by field and strongest first; `marks` are the bits above."""

    marks: int
    input: Names
    output: Names
    cache_read: Names
    cache_write: Names
    reasoning: Names
    total: Names
    request_model: Names
    response_model: Names
    provider: Names
    request_id: Names
    cost: Names
    error: Names
    user: Names
    team: Names
    session: Names
    api_key: Names
    agent: Names
    containers: Names
    named_tags: tuple[tuple[str, Names], ...]  # the tag, and names that may give it
    metadata: tuple[tuple[str, str | None], ...]  # the name, and the tag's name where the attribute is one tag

    @property
    def usage(self) -> Names:
        return self.input + self.output + self.cache_read + self.cache_write + self.reasoning


_TABLES: dict[str, Iterable[str]] = {
    "input": semconv.INPUT,
    "output": semconv.OUTPUT,
    "cache_read": semconv.CACHE_READ,
    "cache_write": semconv.CACHE_WRITE,
    "reasoning": semconv.REASONING,
    "total": semconv.TOTAL,
    "request_model": semconv.REQUEST_MODEL,
    "response_model": semconv.RESPONSE_MODEL,
    "provider": semconv.PROVIDER,
    "request_id": semconv.REQUEST_ID,
    "cost": semconv.COST,
    "error": semconv.ERROR_TYPE,
    "user": semconv.USER,
    "team": semconv.TEAM,
    "session": semconv.SESSION,
    "api_key": semconv.API_KEY,
    "agent": semconv.NAMED_TAGS["agent"],
    "containers": containers.READERS,
}
_ROLES: dict[str, list[tuple[str, int]]] = {}
for _field, _names in _TABLES.items():
    for _rank, _name in enumerate(_names):
        _ROLES.setdefault(_name, []).append((_field, _rank))

_MOST_SHAPES = 4096
_LONGEST_SHAPE = 128  # names; a longer one is not worth its memory
_LARGEST_SHAPE = 8192  # characters in them
_shapes: dict[Names, Shape] = {}


def shape_of(attributes: Attributes) -> Shape:
    """The shape of one span; forgets all shapes when senders invent too many."""
    names = tuple(attributes)
    shape = _shapes.get(names)
    if shape is None:
        shape = _shape(names)
        if len(names) <= _LONGEST_SHAPE and sum(map(len, names)) <= _LARGEST_SHAPE:
            if len(_shapes) >= _MOST_SHAPES:
                _shapes.clear()
            _shapes[names] = shape
    return shape


def _shape(names: Names) -> Shape:
    marks = 0
    ranked: dict[str, list[tuple[int, str]]] = {field: [] for field in _TABLES}
    for name in names:
        marks |= _marks(name)
        for field, rank in _ROLES.get(name, ()):
            ranked[field].append((rank, name))
    fields = {field: tuple([name for _, name in sorted(found)]) for field, found in ranked.items()}
    return Shape(marks, **fields, named_tags=_named_tags(names), metadata=_metadata(names))


def _named_tags(names: Names) -> tuple[tuple[str, Names], ...]:
    there = set(names)
    found = ((tag, tuple([name for name in table if name in there])) for tag, table in semconv.NAMED_TAGS.items())
    return tuple([(tag, present) for tag, present in found if present])


def _metadata(names: Names) -> tuple[tuple[str, str | None], ...]:
    found: list[tuple[str, str | None]] = []
    for name in names:
        if name == semconv.METADATA_JSON or name in semconv.TAG_LISTS:
            found.append((name, None))
        elif name.startswith(semconv.METADATA_BEGINNINGS) and not name.startswith(semconv.NO_METADATA):
            beginning = next(beginning for beginning in semconv.METADATA_BEGINNINGS if name.startswith(beginning))
            found.append((name, name[len(beginning) :]))
    return tuple(found)


def _marks(name: str) -> int:
    marks = _MARKS.get(name, 0)
    for beginning, mark in _MARKED_BEGINNINGS:
        if name.startswith(beginning):
            marks |= mark
    if semconv.is_ai_name(name):
        marks |= AI_NAME
    return marks
