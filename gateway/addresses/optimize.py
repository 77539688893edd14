"""Addresses of savings recommendations. The paths are Tollhouse's own: only the names of the scopes are published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.api import recommendations
from gateway.api.lists.recommendations import (
    RECOMMENDATION_COMMENTS,
    RECOMMENDATION_DIMENSIONS,
    RECOMMENDATION_TYPES,
    recommendation_list,
)
from gateway.api.managed import managing
from gateway.http.address import Address
from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import AddressHandler
from gateway.schemas import BOOLEAN, COUNT, OBJECT, TEXT, Schema, array, closed
from spool.ledger.queries import DIMENSIONS

_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_PROCESSING = closed({"model": _TEXT_OR_NULL, "provider": _TEXT_OR_NULL, "mode": _TEXT_OR_NULL})
_VALUES: Schema = {**OBJECT, "additionalProperties": array(TEXT)}
_REALIZED: Schema = {**closed({"amount": TEXT, "since": TEXT, "until": TEXT}), "type": ["object", "null"]}

RECOMMENDATION = closed(
    {
        "id": TEXT,
        "type": TEXT,
        "title": TEXT,
        "description": TEXT,
        "formula": TEXT,
        "assumptions": array(TEXT),
        "status": TEXT,
        "open": BOOLEAN,
        "assignee": TEXT,
        "effort": TEXT,
        "confidence": TEXT,
        "monthly_savings": TEXT,
        "gross_savings": TEXT,
        "spent": TEXT,
        "price_book": TEXT,
        "current": _PROCESSING,
        "recommended": _PROCESSING,
        "dimensions": _VALUES,
        "evidence": closed({"first_day": TEXT, "last_day": TEXT}),
        "promised_savings": _TEXT_OR_NULL,
        "realized_savings": _REALIZED,
        "created": TEXT,
        "last_updated": TEXT,
    }
)
_COMMENT = closed({"id": TEXT, "message": TEXT, "author": TEXT, "created": TEXT, "last_updated": TEXT})
_TYPE = closed(
    {
        "type": TEXT,
        "title": TEXT,
        "formula": TEXT,
        "assumptions": array(TEXT),
        "confidence": TEXT,
        "effort": TEXT,
        "enabled": BOOLEAN,
        "thresholds": closed({"least_savings": TEXT, "least_share": TEXT}),
        "last_updated": _TEXT_OR_NULL,
    }
)
_CHANGED = closed({"id": TEXT}, {"status": TEXT, "assignee": TEXT, "error": TEXT})
_CHECK = closed(
    {
        "count": COUNT,
        "monthly_savings": TEXT,
        "spent": TEXT,
        "failed": array(TEXT),
        "types": array(closed({"type": TEXT, "count": COUNT, "monthly_savings": TEXT})),
    }
)


def _optimize(
    method: str,
    path: str,
    handler: AddressHandler,
    summary: str,
    *,
    takes: type | None = None,
    gives: Schema = OBJECT,
    lists: List[Any] | None = None,
    in_turn: bool = False,
) -> Address:
    """`gives` is what is answered, or with `lists` a row of the page. The scope has the name of the handler."""
    return replace(
        managing(
            method,
            f"/v2/optimize{path}",
            handler,
            summary,
            group="optimize",
            endpoint="optimize",
            takes=takes,
            gives=None if lists else {JSON: gives},
            lists=lists,
            item=gives,
            in_turn=in_turn,
        ),
        name=f"optimize_{handler.__name__}",
    )


_ALL = "/recommendations"
_ONE = _ALL + "/{recommendation_id}"
_COMMENTS = _ONE + "/comments"
_TYPES = "/recommendation_types"

ROWS = (
    _optimize(
        "GET",
        _ALL,
        recommendations.list_recommendations,
        "List what would have cost less",
        lists=recommendation_list(DIMENSIONS),
        gives=RECOMMENDATION,
    ),
    _optimize(
        "PATCH",
        _ALL,
        recommendations.update_recommendations,
        "Set the status or the assignee of several",
        takes=recommendations.RecommendationChanges,
        gives=closed({"recommendations": array(_CHANGED)}),
    ),
    _optimize(
        "GET",
        _ONE,
        recommendations.get_recommendation,
        "A recommendation",
        gives=closed({"recommendation": RECOMMENDATION}),
    ),
    _optimize(
        "GET",
        _COMMENTS,
        recommendations.list_comments,
        "The comments on a recommendation",
        lists=RECOMMENDATION_COMMENTS,
        gives=_COMMENT,
    ),
    _optimize(
        "POST",
        _COMMENTS,
        recommendations.create_comments,
        "Add a comment, or several, to a recommendation",
        takes=recommendations.NewComments,
        gives=closed({"comments": array(_COMMENT)}),
    ),
    _optimize(
        "PATCH",
        _COMMENTS + "/{comment}",
        recommendations.update_comment,
        "Change a comment",
        takes=recommendations.OneMessage,
        gives=closed({"comment": _COMMENT}),
    ),
    _optimize(
        "DELETE",
        _COMMENTS + "/{comment}",
        recommendations.delete_comment,
        "Delete a comment",
        gives=closed({"comment": closed({"id": TEXT})}),
    ),
    _optimize(
        "GET",
        _TYPES,
        recommendations.list_recommendation_types,
        "List the types, with how each is calculated",
        lists=RECOMMENDATION_TYPES,
        gives=_TYPE,
    ),
    _optimize(
        "GET",
        _TYPES + "/{type}",
        recommendations.get_recommendation_type,
        "A type",
        gives=closed({"recommendation_type": _TYPE}),
    ),
    _optimize(
        "PATCH",
        _TYPES + "/{type}",
        recommendations.update_recommendation_type,
        "Switch a type on or off, or set the least that it reports",
        takes=recommendations.TypeChanges,
        gives=closed({"recommendation_type": _TYPE}),
    ),
    _optimize(
        "GET",
        "/dimensions",
        recommendations.get_available_dimensions,
        "What recommendations can be filtered by, with the values of those that are open",
        lists=RECOMMENDATION_DIMENSIONS,
        gives=closed({"id": TEXT, "values": array(TEXT)}),
    ),
    _optimize(
        "POST",
        "/check",
        recommendations.check,
        "Look for savings now, and keep nothing",
        takes=recommendations.SavingsCheck,
        gives=closed({"check": _CHECK}),
        in_turn=True,
    ),
)
