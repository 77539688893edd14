"""The table of the published interface has every operation, either as published or with a reason."""

from __future__ import annotations

from collections import Counter

from docs.generate.published import CALLED, SPECIFIED, WITHOUT_A_SCOPE, declared, free, rows
from docs.generate.published_calls import NOT_COMPARED, PUBLISHED_CALLS, compared_calls
from docs.generate.published_lists import PUBLISHED, compared
from gateway.service.addresses.table import FOR_SENDERS
from spool.registry.scopes import SCOPES


def test_every_operation_has_its_row() -> None:
    """Each operation is listed once under its scope, and every scope of the catalogue permits something."""
    found = rows()
    there = Counter(
        (row.scope, f"{method} {row.documented_path}")
        for row in FOR_SENDERS
        if row.scope is not None
        for method in row.operation_ids_by_method
    )
    assert there == Counter((row.scope, row.operation) for row in found)
    assert set(SCOPES) == {row.scope for row in found}


def test_what_is_not_as_published_says_why() -> None:
    for row in rows():
        assert (row.why == "") is (row.state in (SPECIFIED, CALLED)), row


def test_operation_without_a_scope_has_a_reason() -> None:
    """Each operation for senders without a scope has a reason, and each reason belongs to an operation."""
    assert set(free()) == set(WITHOUT_A_SCOPE)


def test_what_is_published_of_lists_is_there() -> None:
    """All published fields, sort keys and parameters exist. Additional ones have a reason."""
    for each in compared():
        assert [] == list(each.missing), each.path
        assert bool(each.more) == bool(each.published.why), each.path


def test_every_published_operation_is_compared() -> None:
    """
    Each published operation is compared once, as a list or as a request. NOT_COMPARED has those of which only
    the address is public.
    """
    lists = [f"GET {path}" for path in PUBLISHED]
    compared_ones = [*lists, *PUBLISHED_CALLS, *NOT_COMPARED]
    assert Counter(compared_ones) == Counter(
        row.operation for row in rows() if row.state in (SPECIFIED, CALLED)
    )
    assert {} == {each.operation: each.missing for each in compared_calls() if each.missing}


def test_declared_entries_name_only_existing_operations_and_scopes() -> None:
    found = rows()
    assert set() == declared() - {row.scope for row in found} - {row.operation for row in found}


def test_the_list_of_insights_is_as_specified() -> None:
    """`GET /v2/insights` is published in full: root key, order, sort keys and the values of status."""
    [listed] = [row.lists for row in FOR_SENDERS if row.path == "/v2/insights" and row.lists]
    assert listed.root == "insights"
    assert listed.default_sort == ("status", "asc")
    assert {"category", "cost_impact", "effort", "last_updated", "status", "title"} == set(listed.sorts)
    assert {"new", "in_progress", "on_hold", "addressed", "ignored"} == set(
        listed.filters["status"].valid_values
    )
