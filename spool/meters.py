"""
Meters: what a call uses besides plain text tokens, with units and the totals that include them.

A meter either is a part of a token count, such as audio, and not added to its total, or is separate, such as
searches. Names follow the rate cards, so price, quantity and estimate share one name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from spool.record import Inference, decimal_text

Quantity = int | str  # a quantity; decimal text if it has a fraction

TOKENS: Final = "tokens"
SECONDS: Final = "seconds"
MODALITIES: Final = ("audio", "image", "video")
MOST: Final = 16  # maximum number of meters per record
DECIMALS: Final = 6  # decimal places of a quantity
SCALE: Final = 10**DECIMALS
_MOST_TOKENS: Final = 10**9
_MOST_UNITS: Final = 10**9  # so that a day's millionths fit 64 bits


class Meter(NamedTuple):
    """
    A kind of usage that is measured, with its unit. `wholes`: fields and meters whose counts include it.
    `limit`: largest plausible quantity per call.
    """

    unit: str
    wholes: tuple[str, ...] = ()
    limit: int = _MOST_TOKENS

    @property
    def is_part_of_token_count(self) -> bool:
        return self.unit == TOKENS


def _modality_meters() -> Iterator[tuple[str, Meter]]:
    for kind in MODALITIES:
        yield f"input_{kind}_tokens", Meter(TOKENS, ("input_tokens",))
        yield f"output_{kind}_tokens", Meter(TOKENS, ("output_tokens",))
        yield f"cache_{kind}_read_tokens", Meter(TOKENS, ("cache_read_tokens", f"input_{kind}_tokens"))


def _meter_with_largest_limit(unit: str, *wholes: str) -> Meter:
    return Meter(unit, wholes, _MOST_UNITS)


# sizes with own prices, by quality; None for price lists without qualities
_SIZED: Final[Mapping[str | None, tuple[str, ...]]] = {
    None: ("256x256", "512x512", "1024x1024"),
    "standard": ("1024x1024", "1024x1792", "1792x1024", "2048x2048"),
    "hd": ("1024x1024", "1024x1792", "1792x1024"),
    "premium": ("1024x1024", "2048x2048"),
    "low": ("1024x1024", "1024x1536", "1536x1024"),
    "medium": ("1024x1024", "1024x1536", "1536x1024"),
    "high": ("1024x1024", "1024x1536", "1536x1024"),
}


def _image_meter_name(size: str, quality: str | None) -> str:
    return f"output_images_{size}" if quality is None else f"output_images_{size}_{quality}"


def _image_meters() -> Iterator[tuple[str, Meter]]:
    for quality, sizes in _SIZED.items():
        for size in sizes:
            yield _image_meter_name(size, quality), _meter_with_largest_limit("images", "output_images")


METERS: Final[Mapping[str, Meter]] = {
    **dict(_modality_meters()),
    "input_tool_tokens": Meter(TOKENS, ("input_tokens",)),
    "output_citation_tokens": Meter(TOKENS, ("output_tokens",)),
    "cache_write_12h_tokens": Meter(TOKENS, ("cache_write_tokens",)),
    "audio_seconds": _meter_with_largest_limit(SECONDS),
    "input_audio_seconds": _meter_with_largest_limit(SECONDS, "audio_seconds"),
    "output_audio_seconds": _meter_with_largest_limit(SECONDS, "audio_seconds"),
    "input_video_seconds": _meter_with_largest_limit(SECONDS),
    "output_video_seconds": _meter_with_largest_limit(SECONDS),
    "input_images": _meter_with_largest_limit("images"),
    "output_images": _meter_with_largest_limit("images"),
    "input_pixels": Meter("pixels", (), 10**12),
    "input_characters": _meter_with_largest_limit("characters"),
    "input_document_pages": _meter_with_largest_limit("pages"),
    "input_annotated_document_pages": _meter_with_largest_limit("pages", "input_document_pages"),
    "web_searches": _meter_with_largest_limit("searches"),
    "storage_searches": _meter_with_largest_limit("searches"),
    "social_searches": _meter_with_largest_limit("searches"),
    "rerank_searches": _meter_with_largest_limit("searches"),
    "web_search_results": _meter_with_largest_limit("results"),
    "code_executions": _meter_with_largest_limit("executions"),
    "input_classifications": _meter_with_largest_limit("classifications"),
    **dict(_image_meters()),
}
_FEE_UNITS: Final = ("searches", "results", "executions")
# Meters charged in addition to tokens. The other meters without tokens measure the same input or
# output.
FEES: Final = frozenset(name for name, meter in METERS.items() if meter.unit in _FEE_UNITS)
# Parts of one total that exclude each other, so their sum is at most the total.
APART: Final[Mapping[str, tuple[str, ...]]] = {
    "input_tokens": tuple(f"input_{kind}_tokens" for kind in MODALITIES),
    "output_tokens": tuple(f"output_{kind}_tokens" for kind in MODALITIES),
    "cache_read_tokens": tuple(f"cache_{kind}_read_tokens" for kind in MODALITIES),
}
_COVERS: Final = (*APART, "cache_write_tokens")


def meter_name_of_modality(kind: str, modality: object) -> str | None:
    """
    Return the meter of a modality such as audio, for a kind of tokens (`input`, `output`, `cache_read`). None
    for text and unknown kinds.
    """
    if modality not in MODALITIES:
        return None
    return {
        "input": f"input_{modality}_tokens",
        "output": f"output_{modality}_tokens",
        "cache_read": f"cache_{modality}_read_tokens",
    }.get(kind)


def meter_name_of_image(size: object, quality: object) -> str | None:
    """Return the meter of generated images, or None if no price list distinguishes this size and quality."""
    if not isinstance(size, str):
        return None
    quality_name = None if quality in (None, "auto") else str(quality)
    name = _image_meter_name(size, quality_name)
    return name if name in METERS else None


def quantity_in_millionths(quantity: Quantity) -> int:
    if isinstance(quantity, int):
        return quantity * SCALE
    whole, _, fraction = quantity.partition(".")
    return int(whole + fraction[:DECIMALS].ljust(DECIMALS, "0"))


def quantity_from_millionths(units: int) -> Quantity:
    """Return the quantity as an integer, or as decimal text if it has a fraction."""
    whole, rest = divmod(units, SCALE)
    return whole if not rest else decimal_text(Decimal(units).scaleb(-DECIMALS))


def plausible_meters(record: Inference, meters: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """
    Return the plausible meters. Parts must not exceed their total: if parts that exclude each other together
    exceed it, all of them are left out.
    """
    fitted = {
        name: meters[name] for name in METERS if name in meters and _is_within_meter_limit(name, meters[name])
    }
    for whole in _COVERS:
        parts = APART.get(whole) or ("cache_write_12h_tokens",)
        present = [name for name in parts if name in fitted]
        if present and sum(quantity_in_millionths(fitted[name]) for name in present) > _total_in_millionths(
            record, fitted, whole
        ):
            for name in present:
                del fitted[name]
    for name in list(fitted):
        meter = METERS[name]
        if any(
            quantity_in_millionths(fitted[name]) > _total_in_millionths(record, fitted, whole)
            for whole in meter.wholes
            if meter.is_part_of_token_count or whole in fitted
        ):
            del fitted[name]
    # most providers send zeros with every text
    if not any(fitted.values()):
        return {}
    return dict(list(fitted.items())[:MOST])


def _total_in_millionths(record: Inference, meters: Mapping[str, Quantity], name: str) -> int:
    """
    Return a total in millionths of its unit. An unreported total counts as so large that no part can exceed
    it.
    """
    count = meters.get(name) if name in METERS else getattr(record, name)
    return 2**63 if count is None else quantity_in_millionths(count)


def _is_within_meter_limit(meter_name: str, quantity: Quantity) -> bool:
    return 0 <= quantity_in_millionths(quantity) <= METERS[meter_name].limit * SCALE


def remove_implausible_meters(record: Inference) -> int:
    """
    Remove implausible meters from the record (see `plausible_meters`). Return how many of them were not 0.
    """
    before, record.meters = record.meters, plausible_meters(record, record.meters)
    return sum(
        1
        for name, quantity in before.items()
        if name not in record.meters and quantity_in_millionths(quantity)
    )
