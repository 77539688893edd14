"""The terms of a commit: rows that an earlier release wrote stay readable."""

from __future__ import annotations

import msgspec

from spool.log.books import METER_TOO_LARGE, Terms, is_term, pack_terms, totals, unpack_terms

BEFORE_LEFT_OUT = ["ai-telemetry", 5, 0, 3, 1, 0, 0, 0, 0, 0, {"not_ai": 1}, {}, 7, []]


def test_a_row_without_the_newest_term_is_read() -> None:
    """Terms are only ever added at the end, so a row without them has none of them."""
    (terms,) = unpack_terms(msgspec.msgpack.encode([BEFORE_LEFT_OUT]))
    assert (5, 3, 7, 0) == (terms.received, terms.accepted, terms.first, terms.left_out)
    assert "left_out" not in dict(terms.counts())


def test_tags_left_out_are_a_term_of_the_row() -> None:
    """What was left out is added up over submissions like every other term."""
    rows = [Terms(topic="ai-telemetry", left_out=2), Terms(topic="ai-telemetry", left_out=5)]
    assert 7 == totals(unpack_terms(pack_terms(rows)))["ai-telemetry", "left_out"]


def test_no_term_is_new_to_the_release_before() -> None:
    """One that it does not know is a damaged row to it: meters that are too large are counted for metrics alone."""
    assert not is_term(METER_TOO_LARGE)
    assert METER_TOO_LARGE not in Terms.__struct_fields__
