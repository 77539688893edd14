"""Types of answers that operations of several subjects share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from spool.registry.field_notes import example, words

# status and effort of an insight or a recommendation
Status = Literal["new", "in_progress", "on_hold", "addressed", "ignored"]
Effort = Literal["not_set", "low", "medium", "high"]


class NamedDriver(msgspec.Struct, kw_only=True):
    """A group that changed the costs."""

    names: Annotated[
        list[str | None], words("The values of the group, in the order of `by`."), example(["gpt-4o"])
    ]
    change: Annotated[str, words("The change of the group's cost."), example("14.09")]
    reason: Annotated[
        str, words("Why it changed."), example("it made 4 % more calls (27,173, before 26,128)")
    ]


class StoredRecord(msgspec.Struct, kw_only=True):
    """The fields of all kinds of records. A record has those of its kind."""

    kind: Annotated[str, words("The kind of the record."), example("inference")]
    id: Annotated[str, words("The id of the record."), example("f2a3980ffe64e0cc58240adccc936900")]
    source: Annotated[str, words("The product or gateway that reported the call."), example("litellm")]
    request_id: Annotated[
        str | UnsetType | None,
        words("The id of the request at the provider or gateway."),
        example("chatcmpl-9J3uIL87gldCFtiIbyaOvTeYBR12"),
    ] = UNSET
    trace_id: Annotated[str | UnsetType | None, words("The id of the trace."), example(None)] = UNSET
    span_id: Annotated[str | UnsetType | None, words("The id of the span."), example(None)] = UNSET
    start_time: Annotated[str | None, words("When the call began."), example("2026-11-27T01:43:08Z")]
    end_time: Annotated[
        str | UnsetType | None, words("When the call ended."), example("2026-11-27T01:43:09Z")
    ] = UNSET
    provider: Annotated[
        str | UnsetType | None, words("The provider, such as `openai`."), example("openai")
    ] = UNSET
    operation: Annotated[
        str | UnsetType | None, words("The operation of the call, such as `chat`."), example("chat")
    ] = UNSET
    request_model: Annotated[
        str | UnsetType | None, words("The model that the caller requested."), example("gpt-4o")
    ] = UNSET
    response_model: Annotated[str | UnsetType | None, words("The model that answered."), example(None)] = (
        UNSET
    )
    input_tokens: Annotated[int | UnsetType | None, words("The number of input tokens."), example(1200)] = (
        UNSET
    )
    output_tokens: Annotated[int | UnsetType | None, words("The number of output tokens."), example(300)] = (
        UNSET
    )
    cache_read_tokens: Annotated[
        int | UnsetType | None, words("The number of input tokens read from a cache."), example(None)
    ] = UNSET
    cache_write_tokens: Annotated[
        int | UnsetType | None, words("The number of input tokens written to a cache."), example(None)
    ] = UNSET
    reasoning_tokens: Annotated[
        int | UnsetType | None, words("The number of output tokens for reasoning."), example(None)
    ] = UNSET
    cost: Annotated[
        str | UnsetType | None,
        words("The reported cost in US dollars, or null. In a correction, costs and tokens are changes."),
        example("0.006"),
    ] = UNSET
    estimated_cost: Annotated[
        str | UnsetType | None, words("The cost according to the price list."), example("0.006")
    ] = UNSET
    cost_source: Annotated[
        str | UnsetType, words("The origin of the cost, such as reported or estimated."), example("reported")
    ] = UNSET
    price_book: Annotated[
        str | UnsetType | None, words("The name of the price list."), example("genai-prices-0.2.3-2026-11-27")
    ] = UNSET
    status: Annotated[
        str | UnsetType, words("The status of the call: `ok`, `error` or `cached`."), example("ok")
    ] = UNSET
    error_type: Annotated[
        str | UnsetType | None, words("The type of error with which the call failed, or null."), example(None)
    ] = UNSET
    user: Annotated[
        str | UnsetType | None,
        words("The person or service that made the calls."),
        example("email:419600c11ba4cfdd5d2f0b7a93c4e681"),
    ] = UNSET
    team: Annotated[str | UnsetType | None, words("The team that made the calls."), example("search")] = UNSET
    session: Annotated[str | UnsetType | None, words("The session of the call."), example(None)] = UNSET
    api_key: Annotated[
        str | UnsetType | None,
        words("The key, or its alias, with which the call was made."),
        example("checkout"),
    ] = UNSET
    device: Annotated[str | UnsetType | None, words("The device that made the calls."), example(None)] = UNSET
    tags: Annotated[dict[str, str] | UnsetType, words("Tags as name and value."), example({})] = UNSET
    shadow: Annotated[
        bool | UnsetType,
        words("Whether the record is a duplicate kept for reference, which is not counted."),
        example(False),
    ] = UNSET
    currency: Annotated[str | UnsetType, words("The currency of the amounts."), example("USD")] = UNSET
    sender: Annotated[str | UnsetType | None, words("The name of the key that first sent the call.")] = UNSET
    cache_write_1h_tokens: Annotated[
        int | UnsetType, words("The number of input tokens written to a cache for an hour.")
    ] = UNSET
    region: Annotated[str | UnsetType, words("The region, such as `eu-central-1`.")] = UNSET
    run: Annotated[str | UnsetType, words("The run of the agent that made the call.")] = UNSET
    parent_run: Annotated[
        str | UnsetType, words("The run that started this run. One call of a run may state it for all.")
    ] = UNSET
    ancestors: Annotated[
        str | UnsetType, words("The runs above the parent, separated by spaces, the nearest first.")
    ] = UNSET
    meters: Annotated[dict[str, int | str] | UnsetType, words("Other quantities of the call, by meter.")] = (
        UNSET
    )
    meters_before: Annotated[
        dict[str, int | str] | UnsetType, words("For a correction, the earlier `meters`.")
    ] = UNSET
    charges: Annotated[dict[str, str] | UnsetType, words("Costs in other currencies than US dollars.")] = (
        UNSET
    )
    charges_before: Annotated[
        dict[str, str] | UnsetType, words("For a correction, the earlier `charges`.")
    ] = UNSET
    counted_by: Annotated[
        str | UnsetType, words("The id of the record that counts the call, if this one is a duplicate.")
    ] = UNSET
    corrects: Annotated[str | UnsetType, words("The id of the record that a correction changes.")] = UNSET
    reason: Annotated[str | UnsetType, words("Why a correction was written.")] = UNSET
    known_at: Annotated[str | UnsetType, words("When a correction became known.")] = UNSET
    name: Annotated[str | UnsetType, words("The name of a counter.")] = UNSET
    value: Annotated[
        str | int | UnsetType | None, words("The increase of a counter, or the value of a unit-cost record.")
    ] = UNSET
    unit: Annotated[str | UnsetType | None, words("The unit of a counter.")] = UNSET
    model: Annotated[str | UnsetType | None, words("The model of a counter.")] = UNSET
    token_type: Annotated[str | UnsetType | None, words("The kind of tokens of a counter.")] = UNSET
    meter: Annotated[str | UnsetType, words("The meter of a counter.")] = UNSET
    event_id: Annotated[str | UnsetType | None, words("The id that the sender gave, or null.")] = UNSET
    event_type: Annotated[str | UnsetType, words("The type of the event.")] = UNSET
    subject: Annotated[str | UnsetType | None, words("What the event is about, or null.")] = UNSET
    data: Annotated[dict[str, Any] | UnsetType, words("The fields of the event.")] = UNSET
    stream: Annotated[str | UnsetType, words("The unit-cost stream.")] = UNSET
    stream_type: Annotated[str | UnsetType, words("The type of the stream.")] = UNSET
    granularity: Annotated[str | UnsetType | None, words("The length of a period, or null.")] = UNSET
    element_name: Annotated[str | UnsetType | None, words("The element of the amount, or null.")] = UNSET
    dimensions: Annotated[dict[str, list[str]] | UnsetType, words("The dimensions of the amount.")] = UNSET
    connection_id: Annotated[str | UnsetType, words("The billing connection.")] = UNSET
    upstream_id: Annotated[
        str | UnsetType | None, words("The id of the billing connection upstream, if it differs.")
    ] = UNSET
    month: Annotated[str | UnsetType | None, words("The month of the billing file, or null.")] = UNSET
    rows: Annotated[int | UnsetType, words("The number of rows of the billing file.")] = UNSET
    body: Annotated[dict[str, Any] | UnsetType, words("The billing file. Lists leave it out.")] = UNSET


class DeliveryItem(msgspec.Struct, kw_only=True):
    id: Annotated[int, words("The id of the delivery.")]
    route: Annotated[str, words("The route that sends the records.")]
    first: Annotated[int, words("The number of the first record.")]
    last: Annotated[int, words("The number of the last record.")]
    state: Annotated[str, words("The state of the delivery.")]
    replay: Annotated[bool, words("Whether records are sent again.")]
    attempts: Annotated[int, words("The number of attempts to send.")]
    not_before: Annotated[str | None, words("The earliest time of the next attempt, or null.")]
    last_error: Annotated[str | None, words("The last error of the delivery, or null.")]


class DeadItem(msgspec.Struct, kw_only=True):
    id: Annotated[int, words("The id of the rejected record."), example(1)]
    route: Annotated[
        str, words("The route whose destination rejected the record."), example("archive/ai-telemetry")
    ]
    number: Annotated[int, words("The number of the rejected record."), example(1)]
    record_id: Annotated[str, words("The id of the record."), example("4d352f4f22c3404e6b71ae9c60c456c8")]
    error: Annotated[
        str, words("The reason for the rejection."), example("the record's model is not allowed here")
    ]
    status: Annotated[
        str, words("The HTTP status that the destination answered, or `unsendable`."), example("422")
    ]
    at: Annotated[str, words("When the record was rejected."), example("2026-11-27T01:19:36.569Z")]


class DeletedItem(msgspec.Struct, kw_only=True):
    deleted: Annotated[str, words("The id or name of the deleted item."), example("checkout")]


class Retried(msgspec.Struct, kw_only=True):
    retried: Annotated[int, words("The number of items to send again."), example(1)]


class Discarded(msgspec.Struct, kw_only=True):
    discarded: Annotated[int, words("The number of discarded items."), example(1)]


class IdOfItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the item."), example("e8659d9ae9fa38b2ff2acc52")]


class ComparisonPast(msgspec.Struct, kw_only=True):
    state: Annotated[
        str,
        words(
            "How much of the earlier period is known: `whole`, `part` or `none`. Only `whole` is compared. "
            "`too_early`: the period has no full hour yet."
        ),
        example("part"),
    ]
    known_from: Annotated[
        str | None,
        words(
            "The first counted hour, or for billed costs the first day with a bill. Null if there is none."
        ),
        example("2026-10-14T00:00:00.000Z"),
    ]
    comparable_days: Annotated[
        int,
        words(
            "The maximum length of a period up to today, in days, for which the same number of days before is known. "
            "May be 0."
        ),
        example(22),
    ]
    begins_at: Annotated[
        str | None,
        words("If it is too early: the time from which costs are compared. Otherwise null."),
        example(None),
    ]


class ComparedSpan(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[str, words("The start of the period."), example("2026-11-21T00:00:00+00:00")]
    to: Annotated[str, words("The end of the period."), example("2026-11-27T01:00:00+00:00")]
    text: Annotated[str, words("The period in words, to the minute."), example("21 to 27 Nov 01:00")]


class ComparedTimesFields(msgspec.Struct, kw_only=True):
    now: Annotated[
        ComparedSpan,
        words(
            "The later period. It ends with the last full hour. Its length is that of `before`, unless both are "
            "whole months, quarters or years."
        ),
    ]
    before: Annotated[ComparedSpan, words("The earlier period.")]
    rest: Annotated[
        str | None,
        words("The part of the later period for which the earlier one is too short, with its cost, or null."),
        example(None),
    ]
    grain: Annotated[
        str,
        words(
            "`hour`, or `day` if both periods were cut to whole days of UTC, because hours of the earlier one "
            "are no longer stored."
        ),
        example("hour"),
    ]
    since_cut: Annotated[
        str | None,
        words("The cost after the later period, which is not compared. Null if the range ends with it."),
        example("0.3125"),
    ]


class CostAndCalls(msgspec.Struct, kw_only=True):
    cost: Annotated[str, words("The cost."), example("1.32397025")]
    calls: Annotated[int, words("The number of calls."), example(108)]


class MarkItem(msgspec.Struct, kw_only=True):
    day: Annotated[str, words("The day of the event."), example("2026-11-27")]
    kind: Annotated[str, words("The kind of the event."), example("new_model")]
    text: Annotated[str, words("What happened."), example("First calls of gpt-4o")]
    id: Annotated[str | None, words("The id of the annotation; null for other events."), example(None)]


class InsightItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the insight."), example("203bdb01261509a83259387081035f80")]
    title: Annotated[
        str, words("The title of the insight."), example("Budget search-monthly: 1 of user past a threshold")
    ]
    description: Annotated[
        str,
        words("What was seen, why it matters and what to do."),
        example(
            "What was seen: since 2026-11-01: unknown $31.06 of $1.00. 79 of 4,547 "
            "calls have no price, so the true cost is higher.  What to do: Look at "
            "the spend of the view, and at its models and teams. To allow more, "
            "change the amount of the ..."
        ),
    ]
    category: Annotated[str, words("The category of the insight, or empty."), example("budget")]
    link: Annotated[str, words("An address with more about the insight."), example("")]
    status: Annotated[Status, words("The status of the insight."), example("new")]
    effort: Annotated[Effort, words("The effort to act on the insight."), example("low")]
    cost_impact: Annotated[str, words("The cost at stake, in dollars."), example("30.06")]
    created: Annotated[
        str, words("When the insight was created, in epoch seconds as text."), example("1795743908.291")
    ]
    last_updated: Annotated[
        str, words("When the insight was last changed, in epoch seconds as text."), example("1795743908.564")
    ]


class OperatorInsight(InsightItem, kw_only=True):
    gone: Annotated[bool, words("Whether the cause no longer applies."), example(False)]
    about: Annotated[str, words("The subject of the insight: `money` or `operation`."), example("money")]
    severity: Annotated[str, words("The severity of the insight."), example("warning")]


class OperatorComment(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the comment."), example("2")]
    message: Annotated[str, words("The text of the comment."), example("Done on Monday.")]
    author: Annotated[str, words("Who wrote the comment."), example("ada@example.com")]
    created: Annotated[
        str, words("When the comment was created, in epoch seconds as text."), example("1795743936.583")
    ]
    last_updated: Annotated[
        str, words("When the comment was last changed, in epoch seconds as text."), example("1795743936.583")
    ]


class BillingDropItem(msgspec.Struct, kw_only=True):
    drop_id: Annotated[str, words("The id of the hourly file."), example("d26922a936394c5ced942767304ecd51")]
    month: Annotated[
        str | None, words("The month, such as `2026-11`; null if the rows have none."), example("2026-11")
    ]
    row_count: Annotated[int, words("The number of rows in the file as it arrived."), example(1)]


class DeletedCommentName(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the deleted comment."), example("2")]


class DeletedComment(msgspec.Struct, kw_only=True):
    comment: Annotated[DeletedCommentName, words("The deleted comment.")]


class InsightName(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the insight."), example("203bdb01261509a83259387081035f80")]


class CommentOnInsight(OperatorComment, kw_only=True):
    insight: Annotated[InsightName, words("The insight of the comment.")]


class SearchResult(msgspec.Struct, kw_only=True):
    new: Annotated[int, words("The number of new findings."), example(1)]
    again: Annotated[int, words("The number of findings that were already known."), example(17)]
    reopened: Annotated[
        int, words("The number of findings that were resolved and appeared again."), example(0)
    ]
    gone: Annotated[int, words("The number of findings that no longer apply."), example(0)]
    left_out: Annotated[int, words("The number of further items that are left out."), example(0)]
    failed: Annotated[list[str], words("The detectors that failed."), example([])]


class NotificationItem(msgspec.Struct, kw_only=True):
    id: Annotated[
        str,
        words("The id of the notification."),
        example("search-team:test-05db4acd85746a25d0b93fe4c06f6be8"),
    ]
    notice: Annotated[
        str,
        words("The id of the notification that all channels share."),
        example("test-05db4acd85746a25d0b93fe4c06f6be8"),
    ]
    channel: Annotated[str, words("The name of the channel."), example("search-team")]
    number: Annotated[int, words("The number of the notification in its channel."), example(1)]
    state: Annotated[str, words("The state of the notification."), example("sent")]
    kind: Annotated[str, words("The kind of the notification."), example("test")]
    severity: Annotated[str, words("The severity of the notification."), example("warning")]
    title: Annotated[str, words("The title of the notification."), example("Test of a notification channel")]
    at: Annotated[str, words("When the notification was made."), example("2026-11-27T01:45:11.057Z")]
    attempts: Annotated[int, words("The number of attempts to send."), example(1)]
    not_before: Annotated[str | None, words("The earliest time of the next attempt, or null."), example(None)]
    settled: Annotated[
        str | None,
        words("When the notification was sent, failed or was discarded; null while it waits."),
        example("2026-11-27T01:45:12.042Z"),
    ]
    error: Annotated[str | None, words("The last error of the notification, or null."), example(None)]


class OperatorItem(msgspec.Struct, kw_only=True):
    email: Annotated[str, words("The e-mail address of the account."), example("bob@example.com")]
    role: Annotated[str, words("The role of the account."), example("viewer")]
    status: Annotated[str, words("Whether the account is enabled."), example("Enabled")]
    issuer: Annotated[
        str | None, words("The OpenID provider of the account, or null for a local account."), example(None)
    ]
    created_by: Annotated[str, words("Who created the account."), example("ada@example.com")]
    created: Annotated[str, words("When the account was created."), example("2026-11-27T01:45:40.326Z")]
    last_modified: Annotated[
        str, words("When the account was last changed."), example("2026-11-27T01:45:40.326Z")
    ]
