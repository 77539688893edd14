"""
Gateway rows sent as OTLP: Portkey's analytics rows and traces as spans, Envoy's access log as log records.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.otlp.model import LogRecord
from gateway.normalise.outcome import IMPLAUSIBLE, NOT_AI, ReadOptions
from tests.gateway.normalise.formats import payloads as formats
from tests.gateway.normalise.otlp.items import log, read_logs
from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, only, records, span, traces


def row(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = formats.case("portkey", "analytics-row") | changes
    return found


def pushed(number: int, row: dict[str, Any]) -> dict[str, Any]:
    """
    Convert a row to a span as Portkey does: separate metadata attributes, no nulls, and a status that
    is always good.
    """
    facts = row["metadata"]
    columns = {name: value for name, value in row.items() if name != "metadata" and value is not None}
    metadata = {f"metadata.{name}": value for name, value in zip(facts["key"], facts["value"], strict=True)}
    status = {"code": 1, "message": str(row["response_status_code"])}
    return span(number, columns | metadata, kind=2, name="llm", status=status)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_pushed_row_is_the_call_of_the_row(encoding: str) -> None:
    """
    A row that is pushed as a span gives the same record and id as the row itself. Resource attributes become tags.
    """
    request = traces(pushed(1, row()), scope="portkey", resource={"service.name": "gw"})
    record = only(request, encoding=encoding)
    expected = formats.one("portkey", row())
    expected.tags = {**expected.tags, "service": "gw"}
    assert expected == record


def test_attempts_under_one_span_id_are_calls_of_their_own() -> None:
    """
    Attempts are separate calls although the caller gave all of them the same span id. Only a column shows the
    status of the failed one.
    """
    failed = row(id="another", response_status_code=429, is_success=0, cost=0, req_units=0, res_units=0)
    found = records(traces(pushed(1, failed), pushed(1, row())))
    assert [("error", "429"), ("ok", None)] == [(record.status, record.error_type) for record in found]
    assert 2 == len({record.id for record in found})


def test_a_row_that_cannot_be_costs_only_itself() -> None:
    """An invalid row that was sent as a span is rejected without affecting other rows."""
    outcome = normalised(traces(pushed(1, row(cost=-1)), pushed(2, row())))
    assert len(outcome.records) == 1
    assert [reject.reason for reject in outcome.rejects] == [IMPLAUSIBLE]


def test_a_pushed_row_is_explained() -> None:
    """The reasons of a row that was sent as a span name the columns of the row."""
    outcome = normalised(traces(pushed(1, row())), options=ReadOptions(explain=True))
    assert outcome.why is not None
    assert "cost / 100 (cents)" == outcome.why[0]["cost"]


def test_metadata_that_is_named_like_a_column_makes_no_row() -> None:
    """Metadata with the name of a column does not make a span a row. The call stays with its product."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "ai_org": "search"}
    assert "otel" == only(traces(span(1, call))).source


@pytest.mark.parametrize("beginning", ["gen_ai.response.", "gen_ai.usage."])
def test_its_gen_ai_traces_count_under_both_names(beginning: str) -> None:
    """
    Counts of Portkey's gen_ai traces are read under old and new names. The first version put the counts next to the
    response id, and named neither operation nor provider.
    """
    attributes = {
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.id": "chatcmpl-9Ri1u4Va0IOdj525McVFHn6RZJU9I",
        f"{beginning}input_tokens": 15,
        f"{beginning}output_tokens": 7,
    }
    record = only(traces(span(1, attributes), scope="custom.genai.instrumentation"))
    assert record.operation == "chat"
    assert record.provider == "openai"
    assert record.input_tokens == 15
    assert record.output_tokens == 7


def logged(line: dict[str, Any]) -> LogRecord:
    """
    Create an access-log line as Envoy's exporter sends it. All values are text, and a dash means unknown.
    """
    texts = {name: "-" if value is None else str(value) for name, value in line.items()}
    return log(texts, resource={"service.name": "envoy"})


def test_envoys_access_log_is_the_call_of_its_line() -> None:
    """
    A line of Envoy's access log has the same record id over OTLP as in its own format. Lines of other traffic
    are not calls.
    """
    line = formats.case("envoy_ai_gateway", "access-log-line")
    plain = {name: value for name, value in line.items() if not name.startswith("gen_ai.")}
    tool = {name: value if name in plain else None for name, value in line.items()}
    outcome = read_logs(logged(line), logged(plain), logged(tool))
    expected = formats.one("envoy_ai_gateway", line)
    expected.tags = {**expected.tags, "service": "envoy"}
    assert outcome.records == [expected]
    assert dict(outcome.ignored) == {NOT_AI: 2}


def test_a_log_line_that_cannot_be_costs_only_itself() -> None:
    """
    An invalid log line is rejected without affecting the others. The reject names its position and column.
    """
    line = formats.case("envoy_ai_gateway", "access-log-line")
    outcome = read_logs(logged(line), logged(line | {"gen_ai.usage.input_tokens": -1}))
    assert len(outcome.records) == 1
    assert [(each.item, each.reason) for each in outcome.rejects] == [(1, IMPLAUSIBLE)]
