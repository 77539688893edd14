"""Recommendations, their types and comments as every list and answer shows them, to keys and to operators alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial

from gateway.api.times import seconds
from gateway.http.lists import Filter, List, MemoryRows, Sort, yes_no
from gateway.recommendations.facts import RecommendationType, recommendation_dimensions
from gateway.recommendations.list import TYPES
from gateway.schemas import TEXT, closed
from spool.registry.insights import EFFORTS, STATUSES
from spool.registry.recommendations import CONFIDENCES, Recommendation, RecommendationComment, TypeSettings
from spool.registry.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownType:
    type: RecommendationType
    settings: TypeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDimension:
    """A dimension by which recommendations are filtered, with the values that they have in it."""

    id: str
    values: Sequence[str]


def describe_recommendation(each: Recommendation) -> dict[str, object]:
    saving = each.saving
    return {
        "id": each.id,
        "type": saving.type,
        "title": saving.title,
        "description": saving.description,
        "formula": saving.formula,
        "assumptions": list(saving.assumptions),
        "status": each.status,
        "open": each.is_open,
        "assignee": each.assignee,
        "effort": saving.effort,
        "confidence": saving.confidence,
        "monthly_savings": saving.monthly_savings,
        "gross_savings": saving.gross_savings,
        "spent": saving.spent,
        "price_book": saving.price_book,
        "current": asdict(saving.current),
        "recommended": asdict(saving.recommended),
        "dimensions": {name: list(values) for name, values in saving.dimensions.items()},
        "evidence": {"first_day": saving.first_day, "last_day": saving.last_day},
        "promised_savings": each.promised,
        "realized_savings": None if each.realized is None else asdict(each.realized),
        "created": seconds(each.created),
        "last_updated": seconds(each.last_updated),
    }


def describe_recommendation_comment(comment: RecommendationComment) -> dict[str, object]:
    return {
        "id": str(comment.id),
        "message": comment.text,
        "author": comment.author,
        "created": seconds(comment.created),
        "last_updated": seconds(comment.last_updated),
    }


def describe_type(row: ShownType) -> dict[str, object]:
    settings = row.settings
    return {
        "type": row.type.NAME,
        "title": row.type.TITLE,
        "formula": row.type.FORMULA,
        "assumptions": list(row.type.ASSUMPTIONS),
        "confidence": row.type.CONFIDENCE,
        "effort": row.type.EFFORT,
        "enabled": settings.enabled,
        "thresholds": {"least_savings": settings.least_savings, "least_share": settings.least_share},
        "last_updated": None if settings.last_updated is None else seconds(settings.last_updated),
    }


def recommendation_list(dimensions: Sequence[str]) -> List[Recommendation]:
    """Every dimension of the ledger is a filter: one passes if it concerns one of the values."""
    filters: dict[str, Filter[Recommendation]] = {
        "type": Filter(
            values=lambda row: (row.saving.type,), valid_values=tuple(type.NAME for type in TYPES)
        ),
        "status": Filter(values=lambda row: (row.status,), valid_values=STATUSES),
        "open": yes_no(lambda row: row.is_open),
        "confidence": Filter(values=lambda row: (row.saving.confidence,), valid_values=CONFIDENCES),
        "assignee": Filter(values=lambda row: (row.assignee,)),
    }
    of_dimensions = {
        name: Filter(values=partial(_values_of, name), is_open=name in ("user", "device"), names_people=True)
        for name in recommendation_dimensions(dimensions)
    }
    return List(
        root="recommendations",
        show=describe_recommendation,
        identity=Sort(value=lambda row: row.id),
        sorts={
            # to sort by; shown exactly
            "savings": Sort(value=lambda row: float(Decimal(row.saving.monthly_savings))),
            "last_updated": Sort(value=lambda row: row.last_updated),
            "status": Sort(value=lambda row: STATUSES.index(row.status)),
            "type": Sort(value=lambda row: row.saving.type),
            "effort": Sort(value=lambda row: EFFORTS.index(row.saving.effort)),
        },
        default_sort=("savings", "desc"),
        filters=filters | of_dimensions,
    )


def _values_of(dimension: str, row: Recommendation) -> Sequence[str]:
    return row.saving.dimensions.get(dimension, ())


RECOMMENDATION_COMMENTS: List[RecommendationComment] = List(
    root="comments",
    show=describe_recommendation_comment,
    identity=Sort(value=lambda comment: comment.id),
    sorts={
        "created": Sort(value=lambda comment: comment.created),
        "last_updated": Sort(value=lambda comment: comment.last_updated),
        "author": Sort(value=lambda comment: comment.author),
    },
    default_sort=("created", "asc"),
    beside={"recommendation": closed({"id": TEXT})},
)

RECOMMENDATION_TYPES: List[ShownType] = List(
    root="recommendation_types",
    show=describe_type,
    identity=Sort(value=lambda row: row.type.NAME),
    sorts={
        "type": Sort(value=lambda row: row.type.NAME),
        "confidence": Sort(value=lambda row: CONFIDENCES.index(row.type.CONFIDENCE)),
        "effort": Sort(value=lambda row: EFFORTS.index(row.type.EFFORT)),
    },
    default_sort=("type", "asc"),
    filters={
        "enabled": yes_no(lambda row: row.settings.enabled),
        "confidence": Filter(values=lambda row: (row.type.CONFIDENCE,), valid_values=CONFIDENCES),
    },
)

RECOMMENDATION_DIMENSIONS: List[ShownDimension] = List(
    root="dimensions",
    show=lambda row: {"id": row.id, "values": list(row.values)},
    identity=Sort(value=lambda row: row.id),
    sorts={"id": Sort(value=lambda row: row.id)},
    default_sort=("id", "asc"),
    default_limit=1000,
)


async def recommendation_rows(registry: Registry) -> MemoryRows[Recommendation]:
    return MemoryRows(await registry.recommendations.all())


async def recommendation_comment_rows(registry: Registry, id: str) -> MemoryRows[RecommendationComment]:
    """NotThere when there is no such recommendation."""
    return MemoryRows(await registry.recommendations.comments(id))


async def type_rows(registry: Registry) -> MemoryRows[ShownType]:
    settings = await registry.recommendations.types()
    return MemoryRows([ShownType(type=each, settings=_settings(settings, each.NAME)) for each in TYPES])


def dimension_rows(kept: Iterable[Recommendation], dimensions: Sequence[str]) -> MemoryRows[ShownDimension]:
    """List the dimensions with the values that open recommendations have."""
    found = [each.saving.dimensions for each in kept if each.is_open]
    values = {
        name: sorted({value for each in found for value in each.get(name, ())})
        for name in recommendation_dimensions(dimensions)
    }
    return MemoryRows([ShownDimension(id=name, values=each) for name, each in values.items()])


def _settings(settings: Mapping[str, TypeSettings], type: str) -> TypeSettings:
    return settings.get(type, TypeSettings())
