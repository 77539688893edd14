"""
The operator API handler for the tokens that model servers counted on a day, next to the reported calls of the
same models. The two are never added. Served minus reported tokens are the tokens that no source reports.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from gateway.core.fields import build_answer
from gateway.http.requests import Result
from gateway.intake.rate_cards.names import model_family_without_separators
from gateway.normalise.otlp.metric_rules import INPUT, OUTPUT
from gateway.normalise.otlp.metrics import SERVERS
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.records import filters
from gateway.operations.records.filters import DATE
from gateway.operations.records.lake_records import days_between
from gateway.operations.records.listing import RecordRows
from gateway.operations.records.published import KeptRecord, SearchedRecords
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.errors import Invalid
from spool.ledger.sums import AHEAD_S
from spool.record import AI_TELEMETRY, TOKEN_UNIT, Correction, Inference, UsageMetric
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_RECORDS

MOST_MODELS = 5_000  # maximum models per day; models that arrive later are left out
MOST_NAMES = 20  # maximum servers and reporting sources shown per model
KINDS = {INPUT: "input_tokens", OUTPUT: "output_tokens"}


@dataclass(slots=True)
class ServedModel:
    """
    The served and the reported tokens of one model on a day. `calls` counts the reported calls, and `told_by`
    counts them by source.
    """

    name: str | None = None
    calls: int = 0
    served: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS.values(), 0))
    told: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS.values(), 0))
    servers: set[str] = field(default_factory=set)
    told_by: Counter[str] = field(default_factory=Counter)

    @property
    def unreported_tokens(self) -> dict[str, int] | None:
        """
        Return the unreported tokens. None for servers that name no model, because their calls are unknown.
        """
        if self.name is None:
            return None
        return {kind: tokens - self.told[kind] for kind, tokens in self.served.items()}

    def describe(self) -> dict[str, object]:
        return build_answer(
            ModelOfServers,
            self,
            model=self.name,
            untold=self.unreported_tokens,
            servers=sorted(self.servers)[:MOST_NAMES],
            told_by=sorted(+self.told_by)[:MOST_NAMES],
        )


class ServedTokensOfDay:
    """
    Sums the served and the reported tokens of one day. A counter record has one kind of token. Cached tokens
    are part of the input.
    """

    def __init__(self, day: str) -> None:
        self._day = day
        self._models: dict[str, ServedModel] = defaultdict(ServedModel)

    def add_record_and_return_false(self, stored_record: KeptRecord) -> bool:
        """Add a record. Always returns False, because the caller need not keep the record."""
        record = stored_record.record
        if isinstance(record, Inference | UsageMetric | Correction):
            day, _ = filters.day_and_month(record.start_time, stored_record.committed_at)
            if day == self._day:
                self._add_record(record)
        return False

    def _add_record(self, record: Inference | UsageMetric | Correction) -> None:
        if isinstance(record, UsageMetric):
            self._add_counter(record)
        elif isinstance(record, Correction):
            self._add_call(record.after)
            self._add_call(record.before, times=-1)
        else:
            self._add_call(record)

    def _add_call(self, call: Inference, *, times: int = 1) -> None:
        name = call.response_model or call.request_model
        if (
            call.shadow
            or call.status == "cached"
            or not name
            or not (served_model := self._sums_of_model(name))
        ):
            return
        served_model.calls += times
        served_model.told["input_tokens"] += times * (call.input_tokens or 0)
        served_model.told["output_tokens"] += times * (call.output_tokens or 0)
        served_model.told_by[call.source] += times

    def _add_counter(self, counter: UsageMetric) -> None:
        kind = KINDS.get(counter.token_type or "")
        is_served = counter.source in SERVERS
        if kind is None or counter.unit != TOKEN_UNIT or (counter.shadow and not is_served):
            return
        served_model = self._sums_of_model(counter.model)
        if served_model is None:
            return
        # the record counts as a call even if `count = true` names its server
        if not counter.shadow and counter.model:
            served_model.told[kind] += int(counter.value)
            served_model.told_by[counter.source] += 1
        if not is_served:
            return
        served_model.name = served_model.name or counter.model
        served_model.served[kind] += int(counter.value)
        service = counter.tags.get("service")
        served_model.servers.add(
            f"{counter.source} {service}" if service and service != counter.source else counter.source
        )

    def _sums_of_model(self, model: str | None) -> ServedModel | None:
        """Return the sums of a model. Names that differ only in punctuation are the same model."""
        model_key = model_family_without_separators(model) if model else ""
        return (
            self._models[model_key] if model_key in self._models or len(self._models) < MOST_MODELS else None
        )

    def served_models(self) -> Iterator[ServedModel]:
        """
        Yield the models for which a server reported tokens, the largest difference from the callers' reports
        first.
        """
        served = sorted(
            (served_model for served_model in self._models.values() if served_model.servers),
            key=lambda served_model: str(served_model.name),
        )
        yield from sorted(
            served,
            key=lambda served_model: sum(served_model.told.values()) - sum(served_model.served.values()),
        )


class TokensOfServers(msgspec.Struct, kw_only=True):
    input_tokens: Annotated[int, words("The number of input tokens."), example(2400)]
    output_tokens: Annotated[int, words("The number of output tokens."), example(600)]


class ModelOfServers(msgspec.Struct, kw_only=True):
    model: Annotated[str | None, words("The model, or null if none is named."), example("Qwen/Qwen3-32B")]
    servers: Annotated[list[str], words("The servers that run the model."), example(["vllm gpu-3"])]
    told_by: Annotated[list[str], words("The sources that reported calls of the model."), example(["vllm"])]
    calls: Annotated[int, words("The number of reported calls."), example(1)]
    served: Annotated[TokensOfServers, words("The tokens that the model servers processed.")]
    told: Annotated[
        TokensOfServers,
        words("The tokens of the reported calls."),
        example({"input_tokens": 1200, "output_tokens": 300}),
    ]
    untold: Annotated[
        TokensOfServers | None,
        words("Served minus reported tokens; null if `model` is null."),
        example({"input_tokens": 1200, "output_tokens": 300}),
    ]


class ServedAnswer(msgspec.Struct, kw_only=True):
    date: Annotated[str, words("The day (UTC) that the figures are for."), example("2026-11-20")]
    models: Annotated[list[ModelOfServers], words("The models, each with the fields below.")]
    looked_through: Annotated[SearchedRecords, words("The records that were searched.")]


@operator_call(
    "GET",
    "/served",
    VIEW_RECORDS,
    "Show what model servers served on a day, minus the reported calls of the same models",
    optional=("date",),
    in_turn=True,
    answers=ServedAnswer,
)
async def show_served_tokens(request: OperatorRequest[SpoolServices, None]) -> Result:
    """Show the tokens that model servers counted on a UTC day, by default today."""
    now = datetime.fromtimestamp(request.services.clock.now(), UTC)
    day = request.http.query.get(DATE) or now.strftime("%Y-%m-%d")
    start = filters.period_start(day)
    if len(day) != len("2026-11-20"):
        raise Invalid("date must be a UTC day, such as 2026-11-20")
    rows = RecordRows(request)
    served_day = ServedTokensOfDay(day)
    await rows.search_records_since(
        start - AHEAD_S, (AI_TELEMETRY,), served_day.add_record_and_return_false, days_between([day])
    )
    return {
        "date": day,
        "models": [served_model.describe() for served_model in served_day.served_models()],
        **rows.beside,
    }
