"""Hourly billing files, validated by the rules of your cost service, without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gateway.core.errors import BadPayload
from gateway.normalise.payload.items import UNREADABLE, refuse_too_many_containers
from gateway.normalise.reading.content import may_be_name_of_content

MAX_BYTES: Final = 5 * 1024**2
# maximum lists and objects in a file: one per row, and some more, because brackets in texts count as well
MAX_CONTAINERS: Final = 250_000
SHOWN: Final = 20  # maximum errors that a response lists
OPERATIONS: Final = ("replace_drop", "replace_hourly", "sum")
LINE_ITEMS: Final = ("Usage", "Tax", "Support", "Purchase", "CommittedUsePurchase", "Discount")

TIMES: Final = ("time/usage_start", "time/usage_end")
NUMBERS: Final = (
    "usage/amount",
    "cost/cost",
    "cost/discounted_cost",
    "cost/amortized_cost",
    "cost/discounted_amortized_cost",
    "cost/on_demand_cost",
)
_TEXTS = (
    "lineitem/id", "lineitem/type", "lineitem/description", "resource/id", "resource/service", "resource/account",
    "resource/region", "resource/usage_family", "action/operation", "action/usage_type", "action/region",
    "action/account", "usage/units", "bill/invoice_id", "k8s/cluster", "k8s/namespace", "k8s/deployment", "k8s/labels",
)  # fmt: skip
COLUMNS: Final = frozenset({*TIMES, *NUMBERS, *_TEXTS})
TAG: Final = "resource/tag:"

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")
_body = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingFile:
    """
    The month, operation and errors of a billing file. Each error names a row and a column, never a value.
    """

    month: str | None
    operation: str | None
    rows: int
    errors: tuple[str, ...]


def read_billing_file(body: bytes, *, max_tags: int | None = None) -> BillingFile:
    """
    Read a billing file. `max_tags` limits the number of different tags in its rows.

    Raises BadPayload if the body is not a JSON object, and Refusal if it has more lists and objects than
    MAX_CONTAINERS.
    """
    refuse_too_many_containers(body, MAX_CONTAINERS)
    try:
        fields = _body.decode(body)
    except UNREADABLE as error:
        raise BadPayload("The body is not a JSON object.") from error
    errors: list[str] = []
    errors += [
        f"unknown field {name[:64]!r}; the fields are month, operation and data"
        for name in sorted(fields.keys() - {"month", "operation", "data"})
    ]
    operation = fields.get("operation")
    if operation is not None and operation not in OPERATIONS:
        errors.append(f"operation must be one of {', '.join(OPERATIONS)}")
    month, problem = _month_and_problem(fields.get("month"))
    if problem:
        errors.append(problem)
    rows = fields.get("data")
    if not isinstance(rows, list) or not rows:
        errors.append("data is required: a list of at least one row")
        rows = []
    months: dict[str, int] = {} if month is None else {month: -1}
    for index, row in enumerate(rows):
        if len(errors) > SHOWN:
            break
        errors += [f"row {index}: {error}" for error in _billing_row_errors(row)]
        start = _parse_instant(row.get(TIMES[0])) if isinstance(row, dict) else None
        if start is not None:
            months.setdefault(start.strftime("%Y-%m"), index)
    tags = {name for row in rows if isinstance(row, dict) for name in row if name.startswith(TAG)}
    if max_tags is not None and len(tags) > max_tags:
        errors.append(
            f"the rows have {len(tags)} different tags, but at most {max_tags} are allowed (billing.max_tags)"
        )
    if len(months) > 1:
        errors.append(
            f"row {max(months.values())}: all rows must belong to the same month (UTC) as the request"
        )
    return BillingFile(
        month=month or next(iter(months), None),
        operation=operation if isinstance(operation, str) else None,
        rows=len(rows),
        errors=tuple(errors[:SHOWN]),
    )


def _month_and_problem(value: Any) -> tuple[str | None, str | None]:
    """Accept `YYYY-MM`, and a whole date or time. Return the month and the problem."""
    if value is None:
        return None, None
    if isinstance(value, str) and _MONTH.fullmatch(value):
        return value, None
    moment = _parse_instant(value)
    if moment is None:
        return None, "month must have the form YYYY-MM"
    return moment.strftime("%Y-%m"), None


def _billing_row_errors(row: Any) -> Iterator[str]:
    if not isinstance(row, dict):
        yield "must be an object"
        return
    for name in ("time/usage_start", "cost/cost"):
        if name not in row:
            yield f"{name} is required"
    has_tags = False
    for name, value in row.items():
        has_tags = has_tags or name.startswith(TAG)
        if name not in COLUMNS and not name.startswith(TAG):
            yield f"unknown column {name[:64]!r}"
        elif not isinstance(value, str):
            yield f"{name[:64]} must be text, even if it is a number"
        elif problem := _cbf_value_problem(name, value):
            yield f"{name[:64]} {problem}"
    if has_tags and not row.get("resource/id"):
        yield "resource/id is required in rows with tags"


def _cbf_value_problem(column: str, value: str) -> str | None:
    if column in NUMBERS and not _NUMBER.fullmatch(value):
        return "must be a decimal number without an exponent"
    if column in TIMES and _parse_instant(value) is None:
        return "must be an ISO 8601 time"
    if column == "lineitem/type" and value not in LINE_ITEMS:
        return f"must be one of {', '.join(LINE_ITEMS)}"
    if column.startswith(TAG):
        if not column.removeprefix(TAG):
            return "must have a name after the colon"
        if may_be_name_of_content(column.removeprefix(TAG)):
            return "looks like message content, which is never stored"
        if value in ("", "N/A"):
            return "must not be empty; omit the tag instead"
    return None


def _parse_instant(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
