"""Fields that a later report of a call fills, and reports that disagree."""

from __future__ import annotations

import msgspec
import pytest

from spool.log.amendments import has_disagreeing_counts_or_cost, missing_fields, replace_fields
from spool.record import Inference


def report(**fields: object) -> Inference:
    return Inference(id=b"1" * 16, source="otel", **fields)  # type: ignore[arg-type]


def priced(cost: str, **tokens: int) -> Inference:
    return report(estimated_cost=cost, price_book="book", cost_source="estimated", **tokens)


def test_null_fields_are_filled_and_stated_ones_stay() -> None:
    first = report(request_model="gpt-4o", user="anna")
    assert {"team": "search"} == missing_fields(
        first, report(request_model="other", user="bert", team="search")
    )


def test_tags_are_filled_name_by_name() -> None:
    """A tag that the first report lacks is filled like an empty field. The first report's own tags stay."""
    first = report(tags={"env": "prod", "service": "shop"})
    later = report(tags={"service": "litellm", "feature": "triage"})
    assert {"tags": {"env": "prod", "service": "shop", "feature": "triage"}} == missing_fields(first, later)
    assert {} == missing_fields(first, report(tags={"env": "test"}))
    # The tags of the first report are not changed in place, because other records of the payload may share them.
    assert {"env": "prod", "service": "shop"} == first.tags


def test_a_region_is_filled_and_never_changed() -> None:
    """
    A region that the first report lacks is filled: for example, the provider's log states a region and the
    SDK's span does not.
    """
    assert {"region": "us-east-1"} == missing_fields(report(), report(region="us-east-1"))
    assert {} == missing_fields(report(region="us-east-1"), report(region="global"))


@pytest.mark.parametrize(("kept", "filled"), [(0, 32), (30, 2), (32, 0), (33, 0)])
def test_tags_stay_within_their_bound(kept: int, filled: int) -> None:
    """At the limit of tags, the first tags stay, however many tags and reports follow."""
    first = report(tags={f"first-{number}": "1" for number in range(kept)})
    later = report(tags={f"later-{number}": "2" for number in range(32)})
    found = replace_fields(first, missing_fields(first, later)).tags
    assert [*first.tags, *list(later.tags)[:filled]] == list(found)


@pytest.mark.parametrize(
    ("first", "later", "filled"),
    [
        # One report counts cached tokens as input and the other does not, or the two disagree. With only the
        # parts, the record would state 1,000 cached tokens among 100 input tokens.
        (
            {"input_tokens": 100},
            {"input_tokens": 1100, "cache_read_tokens": 1000},
            {"input_tokens", "cache_read_tokens"},
        ),
        ({"input_tokens": 100}, {"input_tokens": 1200, "cache_read_tokens": 1000}, set()),
        (
            {"input_tokens": 100},
            {"input_tokens": 120, "cache_read_tokens": 30, "output_tokens": 5},
            {"output_tokens"},
        ),
        ({"input_tokens": 100}, {"cache_read_tokens": 101}, set()),
        ({"input_tokens": 100, "cache_read_tokens": 60}, {"cache_write_tokens": 41}, set()),
        ({"input_tokens": 100, "cache_read_tokens": 60}, {"cache_write_tokens": 40}, {"cache_write_tokens"}),
        ({"cache_read_tokens": 60}, {"input_tokens": 50}, set()),
        ({"cache_read_tokens": 60}, {"input_tokens": 60, "cache_read_tokens": 60}, {"input_tokens"}),
        ({"output_tokens": 5}, {"output_tokens": 9, "reasoning_tokens": 4}, set()),
        (
            {"output_tokens": 5},
            {"reasoning_tokens": 5, "input_tokens": 1},
            {"reasoning_tokens", "input_tokens"},
        ),
        (
            {"cache_write_tokens": 8},
            {"cache_write_tokens": 8, "cache_write_1h_tokens": 3},
            {"cache_write_1h_tokens"},
        ),
        (
            {"cache_write_tokens": 8, "cache_write_1h_tokens": 0},
            {"cache_write_1h_tokens": 3},
            {"cache_write_1h_tokens"},
        ),
        ({"cache_write_tokens": 8}, {"cache_write_tokens": 9, "cache_write_1h_tokens": 3}, set()),
        ({"cache_write_tokens": 8}, {"cache_write_1h_tokens": 9}, set()),
        (
            {"input_tokens": 9},
            {"input_tokens": 8, "cache_write_tokens": 5, "cache_write_1h_tokens": 5},
            set(),
        ),
    ],
)
def test_details_of_one_count_do_not_apply_to_another(
    first: dict[str, int], later: dict[str, int], filled: set[str]
) -> None:
    """If two reports count differently, details of one do not apply to the other."""
    assert filled == missing_fields(report(**first), report(**later)).keys()


@pytest.mark.parametrize(
    ("partly", "whole"),
    [
        ({"input_tokens": 300}, {"cache_read_tokens": 1000, "cache_write_tokens": 200}),
        (
            {"input_tokens": 300, "cache_read_tokens": 0},
            {"cache_read_tokens": 1000, "cache_write_tokens": 200},
        ),
        (
            {"input_tokens": 1300, "cache_read_tokens": 1000},
            {"cache_read_tokens": 1000, "cache_write_tokens": 200},
        ),
        ({"input_tokens": 500}, {"cache_read_tokens": 1000, "cache_write_tokens": 200}),
        ({"input_tokens": 500}, {"cache_read_tokens": 1000, "cache_write_tokens": 0}),
        (
            {"input_tokens": 900, "cache_read_tokens": 400, "cache_write_tokens": 200},
            {"cache_read_tokens": 400, "cache_write_tokens": 200},
        ),
    ],
)
def test_an_input_without_cached_tokens_is_completed(partly: dict[str, int], whole: dict[str, int]) -> None:
    """
    A report may exclude cached tokens from its input. The other report's cached tokens show this, so both
    orders give the same counts, and the reports do not disagree.
    """
    counts = {"input_tokens": 1500, "output_tokens": 5, **whole}
    reports = priced("1", output_tokens=5, **partly), priced("9", **counts)
    for first, later in (reports, reports[::-1]):
        fields = missing_fields(first, later)
        assert not has_disagreeing_counts_or_cost(first, later)
        record = replace_fields(first, fields)
        assert counts == {name: getattr(record, name) for name in counts}
        assert "9" == record.estimated_cost


def test_estimate_of_unused_counts_is_not_used() -> None:
    """
    If the counts of the later report are not used, its estimate is not used either, because that estimate
    prices tokens that the record does not show.
    """
    first = priced("1", input_tokens=100)
    assert (
        "1"
        == replace_fields(
            first, missing_fields(first, priced("9", input_tokens=1100, cache_read_tokens=900))
        ).estimated_cost
    )


@pytest.mark.parametrize(("status", "error_type"), [("cached", None), ("error", "429")])
def test_only_a_failure_has_a_type_of_error(status: str, error_type: str | None) -> None:
    """The first report decides whether the call failed, unless it only states `ok`."""
    first = report(status=status)
    assert (
        error_type
        == replace_fields(first, missing_fields(first, report(status="error", error_type="429"))).error_type
    )


@pytest.mark.parametrize("status", ["error", "cached"])
def test_ok_gives_way_to_another_outcome(status: str) -> None:
    """
    A source without further knowledge reports `ok` for every call. In either order, the more
    specific outcome counts.
    """
    known, unknowing = report(status=status), report(status="ok")
    assert status == replace_fields(unknowing, missing_fields(unknowing, known)).status
    assert status == replace_fields(known, missing_fields(known, unknowing)).status


@pytest.mark.parametrize(
    "side", [("input_tokens", "cache_write_tokens"), ("output_tokens", "reasoning_tokens")]
)
def test_a_part_of_0_gives_way_to_one_that_fits(side: tuple[str, str]) -> None:
    """
    An SDK that does not know a part, such as cached tokens, reports 0. In either order the other report's
    part is used, with its estimate and without a conflict.
    """
    total, part = side
    hidden, known = priced("1", **{total: 300, part: 0}), priced("2", **{total: 300, part: 288})
    for first, later in ((hidden, known), (known, hidden)):
        found = replace_fields(first, missing_fields(first, later))
        assert getattr(found, part) == 288
        assert found.estimated_cost == "2"
        assert has_disagreeing_counts_or_cost(first, later) is False


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"input_tokens": 100, "cache_write_tokens": 0}, {"input_tokens": 100, "cache_write_tokens": 101}),
        ({"input_tokens": 100, "cache_read_tokens": 60, "cache_write_tokens": 0}, {"cache_write_tokens": 41}),
        ({"input_tokens": 100, "cache_write_tokens": 0}, {"input_tokens": 400, "cache_write_tokens": 288}),
    ],
)
def test_a_part_of_0_stays_where_the_count_does_not_fit(first: dict[str, int], later: dict[str, int]) -> None:
    """A part of 0 stays if the two reports' counts differ: this is a conflict, and no values are mixed."""
    one, other = report(**first), report(**later)
    assert {} == missing_fields(one, other)
    assert has_disagreeing_counts_or_cost(one, other)
    assert has_disagreeing_counts_or_cost(other, one)


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [
        ({"start_time": 10}, {"start_time": 8, "end_time": 9}, (10, None)),
        ({"end_time": 10}, {"start_time": 11}, (None, 10)),
        ({"start_time": 10}, {"start_time": 8, "end_time": 12}, (10, 12)),
        ({}, {"start_time": 8, "end_time": 9}, (8, 9)),
    ],
)
def test_no_call_ends_before_it_starts(
    first: dict[str, int], later: dict[str, int], expected: tuple[int | None, int | None]
) -> None:
    """If two reports come from different clocks, the merged record has no negative duration."""
    record = report(**first)
    found = replace_fields(record, missing_fields(record, report(**later)))
    assert expected == (found.start_time, found.end_time)


def test_a_reported_cost_brings_its_source() -> None:
    """An estimated record becomes a reported one when a report states its cost."""
    found = missing_fields(priced("1", input_tokens=5), report(cost="0.5", input_tokens=5))
    assert {"cost": "0.5", "cost_source": "reported"} == found


@pytest.mark.parametrize(
    ("first", "later", "estimate"),
    [
        (priced("1", input_tokens=5), priced("0.4", input_tokens=5, cache_read_tokens=4), "0.4"),
        (priced("1", input_tokens=5), priced("0.4", cache_read_tokens=4), "1"),
        (priced("1", input_tokens=5), priced("2", input_tokens=5), "1"),
        (report(input_tokens=5), priced("2", input_tokens=5), "2"),
    ],
)
def test_estimate_of_the_fuller_count_replaces_the_first(
    first: Inference, later: Inference, estimate: str
) -> None:
    """
    A later report with all tokens of the first and more replaces the estimate, because its own estimate prices
    more.
    """
    assert estimate == replace_fields(first, missing_fields(first, later)).estimated_cost


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [
        ({"input_tokens": 5}, {"input_tokens": 6}, True),
        ({"input_tokens": 5}, {"output_tokens": 6}, False),
        ({"cost": "0.1"}, {"cost": "0.10"}, False),
        ({"cost": "0.1"}, {"cost": "0.2"}, True),
        ({"cost": "0.1"}, {"cost": "NaN"}, True),
        ({"user": "anna"}, {"user": "bert"}, False),
    ],
)
def test_disagreement_is_about_tokens_and_cost(
    first: dict[str, object], later: dict[str, object], expected: bool
) -> None:
    """Sources round money and name people differently. Only different numbers are a conflict."""
    assert expected == has_disagreeing_counts_or_cost(report(**first), report(**later))


def test_meters_are_filled_by_name_where_they_fit() -> None:
    """
    A later report adds meters that the first lacks. A part of 0 is replaced, and parts that do not fit
    are left out.
    """
    first = report(input_tokens=1200, meters={"input_audio_tokens": 1000, "input_image_tokens": 0})
    later = report(input_tokens=1200, meters={"input_image_tokens": 100, "web_searches": 2})
    filled = {"input_audio_tokens": 1000, "input_image_tokens": 100, "web_searches": 2}
    assert {"meters": filled} == missing_fields(first, later)
    assert filled == missing_fields(later, first)["meters"]
    # A meter of 201 tokens is more than the input tokens that no other meter counts.
    assert {} == missing_fields(first, report(meters={"input_video_tokens": 201}))
    assert {} == missing_fields(first, first)
    assert not has_disagreeing_counts_or_cost(first, later)


def test_two_quantities_of_one_meter_are_a_conflict() -> None:
    """
    Two quantities of one meter are a conflict, and the first stays, as with tokens. Two spellings of one quantity
    are equal.
    """
    first, later = report(meters={"web_searches": 2}), report(meters={"web_searches": 3})
    assert missing_fields(first, later) == {}
    assert has_disagreeing_counts_or_cost(first, later) is True
    seconds = report(meters={"audio_seconds": "12.5"}), report(meters={"audio_seconds": "12.50"})
    assert missing_fields(*seconds) == {}
    assert has_disagreeing_counts_or_cost(*seconds) is False
    assert not has_disagreeing_counts_or_cost(first, report(meters={"storage_searches": 1}))


def test_a_report_with_more_meters_has_the_better_estimate() -> None:
    """
    A later report with more meters replaces the estimate, because the first estimate priced the unreported
    audio as text.
    """
    first = priced("0.001", input_tokens=1000, output_tokens=1)
    later = msgspec.structs.replace(
        priced("0.032", input_tokens=1000, output_tokens=1), meters={"input_audio_tokens": 900}
    )
    assert "0.032" == missing_fields(first, later)["estimated_cost"]
    assert "estimated_cost" not in missing_fields(later, first)
