"""Claude Code's traces: the llm_request spans, which repeat the api_request events under the same request id."""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.decoding.model import Span
from gateway.normalise.otlp.dialect import Dialect, TokenNames
from gateway.normalise.otlp.shapes import Shape
from gateway.normalise.reading import vocabulary as words
from spool.record import Inference

_CALL = "llm_request"


def _operation(span: Span, shape: Shape) -> str | None:
    return words.CHAT if _CALL in (span.attributes.get("span.type"), span.name.rpartition(".")[2]) else None


def _without_cache(span: Span, provider: str | None, model: str | None) -> bool:
    return True


def _refine(span: Span, record: Inference) -> None:
    if span.attributes.get("success") in (False, "false") and record.status == "ok":
        record.status, record.error_type = "error", semconv.error_type(span.attributes)
    device = words.text(span.attributes.get("user.id"))  # random, one for each installation
    if device is not None and record.user is not None and device != record.user:
        record.tags = {**record.tags, "device": device}


# Events count under the same names, and leave the cache out of the input just so.
TOKENS = TokenNames(
    input=(*semconv.INPUT, "input_tokens"),
    output=(*semconv.OUTPUT, "output_tokens"),
    cache_read=(*semconv.CACHE_READ, "cache_read_tokens"),
    cache_write=(*semconv.CACHE_WRITE, "cache_creation_tokens"),
)
CLAUDE_CODE = Dialect(
    source="claude_code",
    operation=_operation,
    without_cache=_without_cache,
    tokens=TOKENS,
    model=(*semconv.REQUEST_MODEL, "model"),
    model_names_provider=True,
    user=semconv.CLAUDE_USER,
    response_id=(*semconv.RESPONSE_ID, "request_id"),
    shared_id=("client_request_id",),
    refine=_refine,
    tags=semconv.CLAUDE_TAGS,
)
