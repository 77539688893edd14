"""Ids, model and counts in a provider's own request and response bodies. Content is never read."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.normalise.reading import meters
from gateway.normalise.reading.costs import cost_of_ticks
from gateway.normalise.reading.meters import BilledUnits
from gateway.normalise.reading.tokens import Gemini, Tokens, Usage, tokens_of_gemini, tokens_of_usage
from gateway.normalise.reading.values import (
    Other,
    first_text,
    parse_count,
    struct_or_empty,
    struct_or_none,
    text_or_none,
)
from spool.identity import RecordIdentity, call_identity, is_long_id
from spool.meters import meter_name_of_image, quantity_in_millionths
from spool.processing import PROVISIONED
from spool.record import Inference


class SearchAction(msgspec.Struct):
    type: Any = None


class OutputItem(msgspec.Struct):
    """An item of the output in a provider's response. For a search, only its kind is read."""

    type: Any = None
    action: SearchAction | Other = None


class Grounding(msgspec.Struct):
    webSearchQueries: Other = None


class GeminiCandidate(msgspec.Struct):
    groundingMetadata: Grounding | Other = None


class DocumentPageCounts(msgspec.Struct):
    pages_processed: Any = None
    pages_processed_annotation: Any = None

    def page_meters_as_tokens(self) -> Tokens:
        """
        Return the meters of pages. Annotated pages also count as read, because some deployments count only
        those.
        """
        found_meters = meters.keep_valid_meters(
            {
                "input_document_pages": self.pages_processed,
                "input_annotated_document_pages": self.pages_processed_annotation,
            }
        )
        if found_meters and (annotated := found_meters.get("input_annotated_document_pages")):
            read = found_meters.get("input_document_pages", 0)
            found_meters["input_document_pages"] = max(read, annotated, key=quantity_in_millionths)
        return Tokens(meters=found_meters)


class MadeImage(msgspec.Struct):
    """An image in a response. Its values are not decoded, only their presence matters."""

    url: msgspec.Raw = msgspec.Raw()
    b64_json: msgspec.Raw = msgspec.Raw()


class CohereMeta(msgspec.Struct):
    """`meta` of Cohere's responses without `usage`: rerank, embed, classify and the first version of chat."""

    billed_units: BilledUnits | Other = None


class ProviderBody(msgspec.Struct):
    id: Any = None
    model: Any = None
    usage: Usage | Other = None
    responseId: Any = None
    modelVersion: Any = None
    usageMetadata: Gemini | Other = None
    usage_info: DocumentPageCounts | Other = None
    service_tier: Any = None
    output: Other = None
    candidates: Other = None
    meta: CohereMeta | Other = None
    data: Other = None  # list of images; only its length is used
    size: Any = None
    quality: Any = None

    @property
    def service_tier_name(self) -> str | None:
        of_vertex = tier_of_traffic_type(struct_or_empty(self.usageMetadata, Gemini).trafficType)
        return first_text(struct_or_empty(self.usage, Usage).service_tier, self.service_tier, of_vertex)

    @property
    def processing_geography(self) -> Any:
        return struct_or_empty(self.usage, Usage).inference_geo

    @property
    def billed_cost(self) -> str | None:
        """Return the amount that the provider states that it charged. Of all providers, only xAI states it."""
        return cost_of_ticks(struct_or_empty(self.usage, Usage).cost_in_usd_ticks)

    @property
    def answering_model(self) -> str | None:
        return first_text(self.modelVersion, self.model)

    def counted_tokens(self, request: ProviderBody | None = None) -> Tokens:
        """
        Return the tokens. `request` is the request body, which is needed because DALL-E's responses do not
        state the image size.
        """
        counted = self._tokens_of_usage_object()
        if request is None:
            return counted
        size, quality = self.size or request.size, self.quality or request.quality
        return self._with_search_meters(counted, response_image_meters(self.data, size, quality))

    def _tokens_of_usage_object(self) -> Tokens:
        billed = (
            struct_or_empty(self.usage, Usage).billed_units
            or struct_or_empty(self.meta, CohereMeta).billed_units
        )
        if isinstance(billed, BilledUnits):
            return billed_unit_tokens(billed)
        if isinstance(self.usage, Usage):
            return self._with_search_meters(
                tokens_of_usage(self.usage), count_searches_in_output(self.output)
            )
        if isinstance(self.usageMetadata, Gemini):
            return self._with_search_meters(tokens_of_gemini(self.usageMetadata), self._search_meters())
        return (
            self.usage_info.page_meters_as_tokens()
            if isinstance(self.usage_info, DocumentPageCounts)
            else Tokens()
        )

    def _with_search_meters(self, tokens: Tokens, found_meters: meters.OptionalMeters) -> Tokens:
        return (
            tokens
            if found_meters is None
            else tokens._replace(meters=meters.merge_meters(tokens.meters, found_meters))
        )

    def _search_meters(self) -> meters.OptionalMeters:
        """
        Return the meters of searches. Models before the third generation charge per prompt that searched,
        later ones per query.
        """
        run = sum(map(_count_queries, self.candidates)) if isinstance(self.candidates, list) else 0
        if not run:
            return None
        is_by_prompt = (
            _BY_PROMPT.match((text_or_none(self.modelVersion) or "").rpartition("/")[2]) is not None
        )
        return {"web_searches": 1 if is_by_prompt else run}

    def call_identity(self, record: Inference, *, own_id: str | None) -> RecordIdentity:
        """
        Return the dedup key of a call, by the provider's response id if it is unique.

        No key is made from the content, because such a key needs a time, and some logs have none.
        """
        response_id = text_or_none(self.id) or text_or_none(self.responseId)
        is_unique = response_id is not None and is_long_id(response_id)
        return call_identity(record, response_id=response_id if is_unique else None, own_id=own_id)


def billed_unit_tokens(billed: BilledUnits) -> Tokens:
    return Tokens(
        parse_count(billed.input_tokens, "billed_units.input_tokens"),
        parse_count(billed.output_tokens, "billed_units.output_tokens"),
        meters=meters.keep_valid_meters(
            {"rerank_searches": billed.search_units, "input_classifications": billed.classifications}
        ),
    )


_TRAFFIC = {"ON_DEMAND_FLEX": "flex", "ON_DEMAND_PRIORITY": "priority", "PROVISIONED_THROUGHPUT": PROVISIONED}


def tier_of_traffic_type(stated: Any) -> str | None:
    """Return the service tier of Vertex's traffic type, in the form of its JSON or of its SDKs."""
    return _TRAFFIC.get(stated.rpartition(".")[2]) if isinstance(stated, str) else None


_BY_PROMPT = re.compile(r"gemini-[12](?:\.|-)")
_SEARCHES = {"web_search_call": "web_searches", "file_search_call": "storage_searches"}


def response_image_meters(data: Any, size: Any, quality: Any) -> meters.OptionalMeters:
    listed = data if isinstance(data, list) else []
    return image_meters(len(listed), size, quality) if listed and _is_image(listed[0]) else None


def image_meters(number: Any, size: Any, quality: Any) -> meters.OptionalMeters:
    image_count = meters.parse_quantity(number)
    if not image_count:
        return None
    of_kind = meter_name_of_image(size, quality)
    return {"output_images": image_count} | ({} if of_kind is None else {of_kind: image_count})


def count_searches_in_output(output: Any) -> meters.OptionalMeters:
    """Return the searches among the items of an output. Steps that open a found page are not counted."""
    counts: dict[str, int | str] = {}
    for raw in output if isinstance(output, list) else ():
        if b"_search_call" not in bytes(raw):
            continue
        item = struct_or_none(raw, OutputItem) or OutputItem()
        name = _SEARCHES.get(item.type) if isinstance(item.type, str) else None
        if name is not None and struct_or_empty(item.action, SearchAction).type in (None, "search"):
            counts[name] = int(counts.get(name, 0)) + 1
    return counts or None


def _is_image(raw: msgspec.Raw) -> bool:
    """Return whether an element of `data` is an image. Embeddings are listed under the same name."""
    item = struct_or_none(raw, MadeImage) or MadeImage()
    return bool(item.url or item.b64_json)


def _count_queries(raw: Any) -> int:
    if b"webSearchQueries" not in bytes(raw):
        return 0
    candidate = struct_or_none(raw, GeminiCandidate) or GeminiCandidate()
    queries = struct_or_empty(candidate.groundingMetadata, Grounding).webSearchQueries
    return len(queries) if isinstance(queries, list) else 0
