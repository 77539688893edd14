"""The values that filters of a list of records offer, read from columns instead of every record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from gateway.http.lists import ListDefinition, filter_values_by_field
from gateway.operations.records.filters import FIELDS
from gateway.operations.records.published import KeptRecord
from spool.cost_kinds import OUTCOME_TAGS
from spool.ledger.dimensions import TAG
from spool.record import Correction, Inference, UsageMetric

# What `KeptRecord.value_for_filters` reads for each field. `kind` depends on the type of the record only.
_READ: Mapping[str, Sequence[str]] = {
    **{name: (name,) for name in FIELDS},
    "kind": (),
    "model": ("response_model", "request_model", "model"),
    "sender": ("sender_key",),
}


def filter_choices(
    list_definition: ListDefinition[KeptRecord],
    stored_records: Sequence[KeptRecord],
    sources: Mapping[str, Sequence[str]],
) -> dict[str, list[str]]:
    """
    Return the values that filters offer. The result equals that of `known_values`, but takes a fraction of
    its time: each filter reads only records that differ in its fields. `sources` are the dimensions of each
    derived dimension.
    """
    by_type = defaultdict[type, list[KeptRecord]](list)
    for stored in stored_records:
        by_type[type(stored.record)].append(stored)

    def distinct_records(name: str) -> Iterable[KeptRecord]:
        names = sources.get(name, (name,))
        if not all(each in _READ or each.startswith(TAG) for each in names):
            return stored_records
        return chain.from_iterable(_distinct_by_fields(of_type, names) for of_type in by_type.values())

    return filter_values_by_field(list_definition, distinct_records)


def _distinct_by_fields(records_of_type: Sequence[KeptRecord], names: Iterable[str]) -> Iterable[KeptRecord]:
    of = "record.after" if isinstance(records_of_type[0].record, Correction) else "record"
    example = attrgetter(of)(records_of_type[0])
    columns = [
        column for name in names for column in _columns_read_for_dimension(name, of, example, records_of_type)
    ]
    return (
        dict(zip(zip(*columns, strict=True), records_of_type, strict=True)).values()
        if columns
        else records_of_type[:1]
    )


def _columns_read_for_dimension(
    dimension: str, record_path: str, example: object, records_of_type: Sequence[KeptRecord]
) -> Iterator[Iterable[object]]:
    # `metric_status_and_source` reads both from the unit and the tags
    if isinstance(example, UsageMetric) and dimension in ("status", "cost_source"):
        yield map(attrgetter(f"{record_path}.unit"), records_of_type)
        names = [f"{TAG}{tag}" for tag in OUTCOME_TAGS]
        yield from chain.from_iterable(
            _columns_read_for_dimension(each, record_path, example, records_of_type) for each in names
        )
        return
    # `counted_cost_source` depends on the status, and on whether tokens were reported
    if isinstance(example, Inference) and dimension == "cost_source":
        yield map(attrgetter(f"{record_path}.status"), records_of_type)
        tokens = map(
            attrgetter(f"{record_path}.input_tokens", f"{record_path}.output_tokens"), records_of_type
        )
        yield [None if given or made else place for place, (given, made) in enumerate(tokens)]
    if dimension.startswith(TAG) and hasattr(example, "tags"):
        tag = dimension.removeprefix(TAG)
        yield [tags.get(tag) for tags in map(attrgetter(f"{record_path}.tags"), records_of_type)]
    for field in _READ.get(dimension, ()):
        if hasattr(example, field):
            yield map(attrgetter(f"{record_path}.{field}"), records_of_type)
