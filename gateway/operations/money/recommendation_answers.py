"""Types of answers about recommendations, to operators and to keys."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from gateway.operations.answers import OperatorComment, Status
from spool.registry.field_notes import example, words


class CallUse(msgspec.Struct, kw_only=True):
    model: Annotated[str | None, words("The model; null if unknown or any."), example("gpt-6.1-terra")]
    provider: Annotated[
        str | None, words("The provider, such as `openai`; null if unknown or any."), example("openai")
    ]
    mode: Annotated[
        str | None,
        words("How calls are processed, such as `priority`; empty for standard, null if unknown or any."),
        example("priority"),
    ]


class EvidencePeriod(msgspec.Struct, kw_only=True):
    first_day: Annotated[str, words("The first day that is included."), example("2026-10-29")]
    last_day: Annotated[str, words("The last day that is included."), example("2026-11-27")]


class SavingsSinceAddressed(msgspec.Struct, kw_only=True):
    amount: Annotated[str, words("The savings from `since` to before `until`, in dollars."), example("3.25")]
    since: Annotated[str, words("The first day."), example("2026-11-01")]
    until: Annotated[str, words("The day after the last day."), example("2026-11-27")]


class RecommendationItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the recommendation."), example("44cd136d7a067e37384e4e62e234dd25")]
    type: Annotated[str, words("The type of the recommendation."), example("priority_tier")]
    title: Annotated[
        str,
        words("The title of the recommendation."),
        example("Standard processing of gpt-6.1-terra for checkout instead of priority"),
    ]
    description: Annotated[
        str,
        words("The description of the recommendation."),
        example(
            "What was seen: 3,188 calls of checkout with gpt-6.1-terra were "
            "processed as priority.  What to do: Request priority processing only "
            "if somebody waits for the response."
        ),
    ]
    formula: Annotated[
        str,
        words("How the savings are worked out."),
        example("$16.256674 as priority - $8.128337 as standard"),
    ]
    assumptions: Annotated[
        list[str],
        words("The assumptions of the estimate."),
        example(["Standard processing is fast enough for this work."]),
    ]
    status: Annotated[Status, words("The status of the recommendation."), example("in_progress")]
    open: Annotated[
        bool,
        words("Whether the last search found the recommendation, and its type is enabled."),
        example(True),
    ]
    assignee: Annotated[
        str, words("The person who works on the recommendation, or empty."), example("ada@example.com")
    ]
    effort: Annotated[str, words("The effort to act on the recommendation."), example("low")]
    confidence: Annotated[
        str, words("How sure the recommendation is: `exact`, `strong` or `weak`."), example("exact")
    ]
    monthly_savings: Annotated[
        str, words("Dollars saved per month, after larger savings on the same calls."), example("8.128337")
    ]
    gross_savings: Annotated[
        str, words("Dollars saved per month if this were the only recommendation."), example("8.128337")
    ]
    spent: Annotated[
        str, words("The cost of the calls that the recommendation concerns."), example("16.256674")
    ]
    price_book: Annotated[str, words("The name of the price list."), example("genai-prices-0.2.3-2026-11-27")]
    current: Annotated[CallUse, words("The calls as they are.")]
    recommended: Annotated[
        CallUse,
        words("The calls as recommended."),
        example({"model": "gpt-6.1-terra", "provider": "openai", "mode": ""}),
    ]
    dimensions: Annotated[
        dict[str, list[str]],
        words("The values of the calls, by dimension."),
        example(
            {
                "model": ["gpt-6.1-terra"],
                "request_model": ["gpt-6.1-terra"],
                "provider": ["openai"],
                "team": ["operations"],
                "source": ["otel"],
                "api_key": ["checkout-key"],
                "sender": ["demo"],
                "tag:service": ["checkout"],
            }
        ),
    ]
    evidence: Annotated[EvidencePeriod, words("The days whose calls the recommendation is based on.")]
    promised_savings: Annotated[
        str | None,
        words("The savings per month when the recommendation was addressed, or null."),
        example(None),
    ]
    realized_savings: Annotated[
        SavingsSinceAddressed | None,
        words("The savings after the recommendation was addressed, or null."),
        example(None),
    ]
    created: Annotated[
        str,
        words("When the recommendation was created, in epoch seconds as text."),
        example("1795742367.551"),
    ]
    last_updated: Annotated[
        str,
        words("When the recommendation was last changed, in epoch seconds as text."),
        example("1795743934.628"),
    ]


class ChangedRecommendation(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the recommendation."), example("44cd136d7a067e37384e4e62e234dd25")]
    status: Annotated[str | UnsetType, words("The status of the recommendation."), example("addressed")] = (
        UNSET
    )
    assignee: Annotated[
        str | UnsetType, words("The person who works on the recommendation."), example("ada@example.com")
    ] = UNSET
    error: Annotated[str | UnsetType, words("Why the recommendation was not changed.")] = UNSET


class ChangeRecommendationsAnswer(msgspec.Struct, kw_only=True):
    recommendations: Annotated[
        list[ChangedRecommendation], words("The recommendations, each with the fields below.")
    ]


class RecommendationAnswer(msgspec.Struct, kw_only=True):
    recommendation: Annotated[RecommendationItem, words("The recommendation, with the fields below.")]
    comments: Annotated[list[OperatorComment], words("The comments, each with the fields below.")]


class CommentRecommendationAnswer(msgspec.Struct, kw_only=True):
    comments: Annotated[list[OperatorComment], words("The added comments.")]


class RecommendationCommentAnswer(msgspec.Struct, kw_only=True):
    comment: Annotated[OperatorComment, words("The comment, with the fields below.")]


class SavingsThresholds(msgspec.Struct, kw_only=True):
    least_savings: Annotated[str, words("The minimum savings in dollars per month."), example("5")]
    least_share: Annotated[str, words("The minimum savings in percent of all costs."), example("1")]


class RecommendationTypeItem(msgspec.Struct, kw_only=True):
    type: Annotated[str, words("The type of the recommendations."), example("batch")]
    title: Annotated[str, words("The title of the type."), example("Batches for regular jobs")]
    formula: Annotated[
        str,
        words("How the savings are worked out."),
        example("cost at standard prices - cost of the same tokens at batch prices"),
    ]
    assumptions: Annotated[
        list[str],
        words("The assumptions of the estimate."),
        example(["Nobody waits for the responses, so a batch may take up to a day."]),
    ]
    confidence: Annotated[
        str, words("How sure the recommendation is: `exact`, `strong` or `weak`."), example("weak")
    ]
    effort: Annotated[str, words("The effort to act on a recommendation of the type."), example("medium")]
    enabled: Annotated[
        bool, words("Whether Tollhouse searches for recommendations of the type."), example(True)
    ]
    thresholds: Annotated[SavingsThresholds, words("The minimum savings.")]
    last_updated: Annotated[
        str | None, words("When the type was last changed, in epoch seconds as text, or null."), example(None)
    ]


class OneRecommendationType(msgspec.Struct, kw_only=True):
    recommendation_type: Annotated[
        RecommendationTypeItem, words("The recommendation type, with the fields below.")
    ]


class RecommendationDimensionItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the dimension."), example("api_key")]
    values: Annotated[
        list[str],
        words("The values of the dimension in open recommendations."),
        example(["audits-key", "catalogue-key", "checkout-key"]),
    ]


class TypeSavings(msgspec.Struct, kw_only=True):
    type: Annotated[str, words("The type of the recommendations."), example("priority_tier")]
    count: Annotated[int, words("The number of recommendations of this type."), example(1)]
    monthly_savings: Annotated[str, words("The savings per month."), example("8.128337")]


class RecommendationCheck(msgspec.Struct, kw_only=True):
    count: Annotated[int, words("The number of recommendations that were found."), example(1)]
    monthly_savings: Annotated[str, words("The savings per month."), example("8.128337")]
    spent: Annotated[str, words("The cost of all calls that were examined."), example("797.047936925")]
    types: Annotated[list[TypeSavings], words("The number and the savings by type.")]
    failed: Annotated[list[str], words("The types whose search failed."), example([])]


class RecommendationCheckAnswer(msgspec.Struct, kw_only=True):
    check: Annotated[RecommendationCheck, words("The result of the check.")]


class OneRecommendation(msgspec.Struct, kw_only=True):
    recommendation: Annotated[RecommendationItem, words("The recommendation, with the fields below.")]
