from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from spool.log.runs import build_id_run, merge_sorted_ids
from spool.packed.native import NativeModule

runs = st.lists(st.integers(0, 2**64 - 1), max_size=300).map(lambda ids: array("Q", sorted(ids)))


@given(one=runs, other=runs)
def test_runs_are_merged_and_marked_the_same(
    native: NativeModule, one: array[int], other: array[int]
) -> None:
    """Python and the module merge runs with shared, distinct or no ids equally."""
    both = merge_sorted_ids(one, other)
    assert both == merge_sorted_ids(one, other, native)
    expected, found = build_id_run(1, 2, 3.0, both), build_id_run(1, 2, 3.0, both, native)
    assert expected.marks == found.marks
    assert expected.mask == found.mask
    assert expected.ids == found.ids
