"""The comparison of two periods as an assistant queries it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gateway.money.comparison.split import PARTS
from spool.money import text_to_units
from tests.integration.mcp.conftest import Assistant
from tests.rounds import part


async def test_a_change_adds_up(assistant: Assistant) -> None:
    """
    The change of a cost adds up: the drivers and "other" to the total change, and the parts of each driver to its
    change, to the last digit.
    """
    await assistant.calls("gpt-4o", days_ago=60)
    await assistant.calls("gpt-4o", "o3", "gpt-4o-mini", days_ago=9)
    await assistant.calls("gpt-4o", "gpt-4o", "o3", "claude-sonnet-4-5", days_ago=2)
    asked = {"date_range": "last_7_days"}
    for limit in (1, 10):
        found = await assistant.content("compare_costs", **asked, limit=limit)
        lines = [*found["drivers"], *([found["other"]] if found["other"] else [])]
        for name in ("cost", "baseline_cost", "change", *PARTS):
            assert text_to_units(found["total"][name]) == sum(text_to_units(line[name]) for line in lines), (
                name
            )
        for line in (*lines, found["total"]):
            assert text_to_units(line["change"]) == sum(text_to_units(line[name]) for name in PARTS)
            assert text_to_units(line["change"]) == text_to_units(line["cost"]) - text_to_units(
                line["baseline_cost"]
            )
        assert (limit == 1) == found["truncated"]
        assert min(limit, 4) == len(found["drivers"])
    assert text_to_units(found["total"]["cost"]) > 0
    assert {"gpt-4o-mini"} == {line["group"]["model"] for line in found["drivers"] if line["gone"] != "0"}


async def test_the_answer_says_what_changed(assistant: Assistant) -> None:
    """
    The answer has a sentence with both periods and a table. Everything is new compared with a period without calls.
    """
    await assistant.calls("gpt-4o", days_ago=30)
    await assistant.calls("gpt-4o", days_ago=1)
    result = await assistant.call("compare_costs", date_range="last_7_days")
    found, text = result["structuredContent"], result["content"][0]["text"]
    assert found["total"]["baseline_cost"] == "0"
    assert found["total"]["cost"] == found["total"]["new"]
    assert ". Change: +" in text
    for side in ("now", "before"):
        assert found["compared"][side]["text"] in found["sentence"]
    assert "is not compared" in text
    assert f"| model | cost | baseline | change | {' | '.join(PARTS)} |" in text


@pytest.mark.parametrize("days_ago", part([0, 10], every=2))
async def test_nothing_is_compared_with_time_that_is_not_counted(assistant: Assistant, days_ago: int) -> None:
    """If counting began after the start of the earlier period, the comparison states a cost and no change."""
    await assistant.calls("gpt-4o", days_ago=days_ago)
    await assistant.calls("gpt-4o")
    result = await assistant.call("compare_costs", date_range="last_7_days")
    found, text = result["structuredContent"], result["content"][0]["text"]
    assert "so there is nothing to compare with." in found["sentence"] and found["sentence"] in text
    assert text_to_units(found["total"]["cost"]) > 0
    names = ("baseline_cost", "baseline_calls", "change", *PARTS)
    assert {None} == {line[name] for line in (*found["drivers"], found["total"]) for name in names}
    assert "| model | cost |" in text and "Change" not in text


async def test_error_about_a_wrong_argument_says_how_to_correct_it(assistant: Assistant) -> None:
    """If an assistant sends a wrong argument, the error says how to correct it."""
    assert "twice" in await assistant.mistake("compare_costs", group_by=["team", "team"])
    assert "there is no dimension" in await assistant.mistake("compare_costs", group_by=["teams"])
    wrong = {"start": "2026-02-02", "end": "2026-02-01"}
    assert "must be before its end" in await assistant.mistake("compare_costs", baseline=wrong)


async def test_a_week_is_compared_with_the_week_before(assistant: Assistant) -> None:
    """Without a baseline, this week has the same days of the week before, and today has yesterday."""
    await assistant.calls("gpt-4o", days_ago=20)
    for word, days, baseline in (("this_week", 7, "last_week"), ("today", 1, "yesterday")):
        found = await assistant.content("compare_costs", date_range=word)
        named = await assistant.content("compare_costs", date_range=word, baseline=baseline)
        assert found["compared"] == named["compared"]
        if found["compared"] is None:
            assert "Too early" in found["sentence"]  # in the first hour of a day
            continue
        for name in ("from", "to"):
            own, past = (datetime.fromisoformat(found["compared"][side][name]) for side in ("now", "before"))
            assert timedelta(days=days) == own - past, (word, name)


async def test_ranges_of_different_lengths_have_an_average(assistant: Assistant) -> None:
    """If the lengths differ, the total has both sums, and no line has a change."""
    await assistant.calls("gpt-4o", days_ago=60)
    await assistant.calls("gpt-4o", days_ago=2)
    found = await assistant.content("compare_costs", date_range="last_7_days", baseline="last_30_days")
    assert {None} == {
        line[name] for line in (*found["drivers"], found["total"]) for name in ("change", *PARTS)
    }
    assert {None} == {line["baseline_cost"] for line in found["drivers"]}
    assert found["total"]["baseline_cost"] == found["total"]["cost"]
    assert "a day against" in found["sentence"]
