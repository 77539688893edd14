"""What is read of a provider's own request and response bodies: ids, model and counts, never the content."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.normalise.reading.tokens import Gemini, Tokens, Usage, of_gemini, of_usage
from gateway.normalise.reading.values import Other, first, nested, text
from spool.identity import Identity, is_long, of_call
from spool.record import Inference


class ProviderBody(msgspec.Struct):
    id: Any = None
    model: Any = None
    usage: Usage | Other = None
    responseId: Any = None
    modelVersion: Any = None
    usageMetadata: Gemini | Other = None
    service_tier: Any = None

    @property
    def tier(self) -> str | None:
        """The tier that served the call: OpenAI states it beside the usage, Anthropic in it."""
        return first(nested(self.usage, Usage).service_tier, self.service_tier)

    @property
    def geography(self) -> Any:
        """Return the geography in which Anthropic says that it processed the call."""
        return nested(self.usage, Usage).inference_geo

    @property
    def answered_by(self) -> str | None:
        """The model that an answer names; Gemini's answers name it in a place of their own."""
        return first(self.modelVersion, self.model)

    def tokens(self) -> Tokens:
        """Read the counts by the shape of the usage object; no counts if there is none."""
        if isinstance(self.usage, Usage):
            return of_usage(self.usage)
        if isinstance(self.usageMetadata, Gemini):
            return of_gemini(self.usageMetadata)
        return Tokens()

    def identity(self, record: Inference, *, own_id: str | None) -> Identity:
        """
        Identify a call by the provider's response id if it is unique, else by the gateway's own id: identity
        by content needs a time, and not every log has one.
        """
        response_id = text(self.id) or text(self.responseId)
        is_unique = response_id is not None and is_long(response_id)
        return of_call(record, response_id=response_id if is_unique else None, own_id=own_id)
