"""
What the names of a span's attributes say at a glance, as bits: which fields it has, whose dialect it may be.

One look-up a name tells which tables of `vocabulary` are worth a search: of the ten spellings of a cached token count a
span has one or two, and a plain HTTP span has none of anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.normalise.otlp import containers
from gateway.normalise.otlp import vocabulary as words

_bits = iter(1 << position for position in range(64))

INPUT = next(_bits)
OUTPUT = next(_bits)
CACHE_READ = next(_bits)
CACHE_WRITE = next(_bits)
REASONING = next(_bits)
TOTAL = next(_bits)
REQUEST_MODEL = next(_bits)
RESPONSE_MODEL = next(_bits)
PROVIDER = next(_bits)
REQUEST_ID = next(_bits)
COST = next(_bits)
ERROR = next(_bits)
USER = next(_bits)
TEAM = next(_bits)
SESSION = next(_bits)
API_KEY = next(_bits)
END_USER = next(_bits)
AGENT = next(_bits)
TAGS = next(_bits)
CONTAINER = next(_bits)  # a value that holds several figures
KIND = next(_bits)  # says what kind of span it is
AI_NAME = next(_bits)  # speaks of models or tokens
TOLLHOUSE = next(_bits)

# Marks of a dialect.
OPENINFERENCE = next(_bits)
LANGFUSE = next(_bits)
MLFLOW = next(_bits)
VERCEL = next(_bits)
VERCEL_DETAILS = next(_bits)
LANGSMITH = next(_bits)
LOGFIRE = next(_bits)
SPRING = next(_bits)
AGENTGATEWAY = next(_bits)
KONG = next(_bits)
CLOUDFLARE = next(_bits)
VLLM = next(_bits)
TRACELOOP = next(_bits)
SDK = next(_bits)
AZURE = next(_bits)

USAGE = INPUT | OUTPUT | CACHE_READ | CACHE_WRITE | REASONING
TOKEN_PARTS = CACHE_READ | CACHE_WRITE | REASONING
MODEL = REQUEST_MODEL | RESPONSE_MODEL
WHO = USER | TEAM | SESSION | API_KEY
# Any of them decides whose dialect a span is, whatever its scope.
DIALECT = (
    OPENINFERENCE | MLFLOW | VERCEL | LANGSMITH | LOGFIRE | SPRING | AGENTGATEWAY | KONG | CLOUDFLARE | VLLM | TRACELOOP
    | SDK | AZURE | TOTAL
)  # fmt: skip

_NAMES: tuple[tuple[int, Iterable[str]], ...] = (
    (INPUT, words.INPUT),
    (OUTPUT, words.OUTPUT),
    (CACHE_READ, words.CACHE_READ),
    (CACHE_WRITE, words.CACHE_WRITE),
    (REASONING, words.REASONING),
    (TOTAL, words.TOTAL),
    (REQUEST_MODEL, words.REQUEST_MODEL),
    (RESPONSE_MODEL, words.RESPONSE_MODEL),
    (PROVIDER, words.PROVIDER),
    (REQUEST_ID, words.REQUEST_ID),
    (COST, words.COST),
    (ERROR, words.ERROR_TYPE),
    (USER, words.USER),
    (TEAM, words.TEAM),
    (SESSION, words.SESSION),
    (API_KEY, words.API_KEY),
    (END_USER, (words.END_USER, "metadata.user_api_key_user_id")),
    (AGENT, words.NAMED_TAGS["agent"]),
    (TAGS, (name for names in words.NAMED_TAGS.values() for name in names)),
    (CONTAINER, containers.READERS),
    (
        KIND,
        (
            "gen_ai.operation.name", "gen_ai.tool.name", "openinference.span.kind", "langfuse.observation.type",
            "mlflow.spanType", "traceloop.span.kind", "ai.operationId", "langsmith.span.kind", "span.type",
        ),
    ),
    (TOLLHOUSE, ("tollhouse.id",)),
    (OPENINFERENCE, ("openinference.span.kind",)),
    (LANGFUSE, ("langfuse.observation.type",)),
    (MLFLOW, ("mlflow.spanType",)),
    (VERCEL, ("ai.operationId",)),
    (CLOUDFLARE, ("gen_ai.model.provider",)),
    (TRACELOOP, ("llm.request.type",)),
    (SDK, ("telemetry.sdk.name",)),
    (AZURE, ("gen_ai.system",)),
)  # fmt: skip
_BEGINNINGS = (
    (VERCEL_DETAILS, "ai.usage.inputTokenDetails."),
    (LANGSMITH, "langsmith."),
    (LOGFIRE, "logfire."),
    (SPRING, "spring.ai."),
    (AGENTGATEWAY, "agw."),
    (KONG, "kong."),
    (VLLM, "gen_ai.latency."),
    (TRACELOOP, "traceloop."),
    (TRACELOOP, "llm.usage."),
)


class _Marks(dict[str, int]):
    """The bits of each name that was seen; forgets all when senders invent too many names."""

    def __missing__(self, name: str) -> int:
        if len(self) >= 8192:
            self.clear()
        bits = self[name] = _marks_of(name)
        return bits


_BY_NAME: dict[str, int] = {}
for _bit, _names in _NAMES:
    for _name in _names:
        _BY_NAME[_name] = _BY_NAME.get(_name, 0) | _bit


def _marks_of(name: str) -> int:
    bits = _BY_NAME.get(name, 0)
    for bit, beginning in _BEGINNINGS:
        if name.startswith(beginning):
            bits |= bit
    if words.is_metadata(name):
        bits |= TAGS
    if words.is_ai_name(name):
        bits |= AI_NAME
    return bits


MARKS = _Marks()
