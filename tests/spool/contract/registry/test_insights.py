"""Insights in a registry: changes by detectors, changes by people, and deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spool.errors import Invalid, NotAllowed, NotThere
from spool.registry.insights import CallFilter, Finding, FindingMergeCounts, Insight, InsightDraft
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryRows
from spool.registry.tables import insights as tables
from spool.registry.tables.insights import KEPT_S, InsightTable
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows, kept_insights

ADA = Actor("ada@example.com", "local")
pytestmark = pytest.mark.rule
DAY_S = 86400.0


class Insights:
    """A registry with a clock that tests move."""

    def __init__(self, registry: Registry, clock: MovedClock) -> None:
        self.registry = registry
        self.clock = clock

    @property
    def table(self) -> InsightTable:
        return self.registry.insights

    async def look(self, *findings: Finding, for_: tuple[str, ...] = ("spike", "key")) -> FindingMergeCounts:
        self.clock.move(600)
        return await self.table.merge_findings(findings, looked_for=for_)

    async def all(self) -> dict[str | None, Insight]:
        return {insight.finding: insight for insight in await kept_insights(self.registry)}


@pytest.fixture
async def insights(open_registry: RegistryOpener, clock: MovedClock) -> Insights:
    return Insights(await open_registry(), clock)


def found(key: str, impact: str = "5", newest: float | None = None) -> Finding:
    return Finding(key=key, draft=InsightDraft(title=f"about {key}", cost_impact=impact), newest=newest)


@pytest.mark.every_engine
async def test_a_look_counts_what_it_changed(insights: Insights) -> None:
    """Findings count as new, repeated or gone. The same finding twice in one run counts once."""
    assert FindingMergeCounts(new=2, again=0, reopened=0, gone=0, left_out=0) == await insights.look(
        found("spike:a"), found("spike:b")
    )
    assert FindingMergeCounts(new=1, again=1, reopened=0, gone=1, left_out=0) == await insights.look(
        found("spike:a"), found("key:c")
    )
    assert FindingMergeCounts(new=0, again=1, reopened=0, gone=1, left_out=0) == await insights.look(
        found("spike:a"), found("spike:a")
    )
    assert {"spike:a": True, "spike:b": False, "key:c": False} == {
        key: insight.present for key, insight in (await insights.all()).items()
    }


async def test_failed_detector_removes_no_findings(insights: Insights) -> None:
    """
    If a detector fails, its earlier findings stay present, so an addressed insight does not seem to return.
    """
    await insights.look(found("spike:a"), found("key:b"))
    insight = (await insights.all())["spike:a"]
    await insights.table.change(insight.id, status="addressed", actor=ADA)
    assert 0 == (await insights.look(found("key:b"), for_=("key",))).gone
    assert 0 == (await insights.look(found("spike:a"), found("key:b"))).reopened


async def test_last_updated_moves_with_what_is_said(insights: Insights) -> None:
    """A repeated finding changes nothing visible, but changed text does."""
    await insights.look(found("spike:a"))
    first = (await insights.all())["spike:a"]
    await insights.look(found("spike:a"))
    second = (await insights.all())["spike:a"]
    assert first.last_updated == second.last_updated
    assert first.created == second.created
    assert second.found_at == insights.clock.now()
    await insights.look(found("spike:a", impact="6"))
    third = (await insights.all())["spike:a"]
    assert insights.clock.now() == third.last_updated
    assert first.created == third.created
    assert third.cost_impact == "6"


async def test_what_is_ignored_stays_so(insights: Insights) -> None:
    """An ignored insight stays ignored if it disappears and returns, even with newer evidence."""
    await insights.look(found("spike:a"))
    await insights.table.change((await insights.all())["spike:a"].id, status="ignored", actor=ADA)
    await insights.look()
    assert 0 == (await insights.look(found("spike:a", newest=insights.clock.now() + DAY_S))).reopened
    assert "ignored" == (await insights.all())["spike:a"].status


@pytest.mark.parametrize("status", ["new", "in_progress", "on_hold"])
async def test_what_is_found_no_more_is_not_open(insights: Insights, status: str) -> None:
    """
    An insight whose finding disappears becomes addressed, whoever works on it, and new if the finding
    returns. If a person reopens it meanwhile, it stays open. A detector that failed or truncated its
    findings closes nothing.
    """
    await insights.look(found("spike:a"), found("spike:b"))
    await insights.table.change((await insights.all())["spike:a"].id, status=status, actor=ADA)
    for for_, cut in (((), ()), (("spike",), ("spike",))):
        await insights.table.merge_findings([], looked_for=for_, truncated_detectors=cut)
        assert [status, "new"] == [(await insights.all())[key].status for key in ("spike:a", "spike:b")]
    await insights.look()
    gone = await insights.all()
    assert [("addressed", True)] * 2 == [
        (gone[key].status, gone[key].is_no_longer_found) for key in ("spike:a", "spike:b")
    ]
    assert insights.clock.now() == gone["spike:a"].last_updated
    await insights.table.change(gone["spike:b"].id, status="on_hold", actor=ADA)
    await insights.look()
    assert "on_hold" == (await insights.all())["spike:b"].status
    assert 1 == (await insights.look(found("spike:a"), found("spike:b"))).reopened
    assert "new" == (await insights.all())["spike:a"].status


async def test_what_was_left_open_by_an_earlier_release_is_closed(insights: Insights) -> None:
    """An earlier release left an insight open whose finding is gone and that no person has changed."""
    await insights.look(found("spike:a"))
    [kept] = await insights.table.detector_insights()
    await insights.registry._changes.change_rows(
        lambda rows: rows.store_insights([replace(kept, present=False)])
    )
    await insights.look()
    assert "addressed" == (await insights.all())["spike:a"].status


@pytest.mark.every_engine
async def test_untouched_insights_are_deleted_after_ninety_days(insights: Insights) -> None:
    """
    Insights are deleted after ninety days, unless a person changed or wrote them or they are still found.
    """
    await insights.look(found("spike:gone"), found("spike:commented"), found("spike:still"))
    await insights.table.add_comment((await insights.all())["spike:commented"].id, "why?", actor=ADA)
    await insights.table.create(InsightDraft(title="by hand"), actor=ADA)
    await insights.look(found("spike:still"))
    insights.clock.move(KEPT_S - 1200)
    await insights.look(found("spike:still"))
    assert 4 == len(await insights.all())
    insights.clock.move(1200)
    await insights.look(found("spike:still"))
    assert {"spike:commented", "spike:still", None} == set(await insights.all())


@pytest.mark.every_engine
async def test_deleted_and_still_true(insights: Insights) -> None:
    """
    If an insight was deleted and is still true, it returns as new, without its comments. Only ignoring an insight
    silences it.
    """
    await insights.look(found("spike:a"))
    before = (await insights.all())["spike:a"]
    comment = await insights.table.add_comment(before.id, "noise", actor=ADA)
    assert (before.id, [comment.id]) == await insights.table.delete_with_comments(before.id, actor=ADA)
    await insights.look(found("spike:a"))
    after = (await insights.all())["spike:a"]
    assert after.id != before.id
    assert after.status == "new"
    assert await insights.table.comments(after.id) == []


@pytest.mark.every_engine
async def test_a_deleted_comment(insights: Insights) -> None:
    """Deleting a comment keeps the other comments, and no later comment gets its number."""
    id = (await insights.table.create(InsightDraft(title="t"), actor=ADA)).id
    one, two = [await insights.table.add_comment(id, text, actor=ADA) for text in ("one", "two")]
    await insights.table.delete_comment(id, two.id, actor=ADA)
    assert [one] == list(await insights.table.comments(id))
    with pytest.raises(NotThere, match="no comment with this id"):
        await insights.table.delete_comment(id, two.id, actor=ADA)
    assert two.id != (await insights.table.add_comment(id, "three", actor=ADA)).id


async def test_a_change_that_is_refused_changes_nothing(insights: Insights) -> None:
    """A change with one invalid field is refused as a whole."""
    insight = await insights.table.create(InsightDraft(title="t"), actor=ADA)
    with pytest.raises(Invalid, match="cost_impact"):
        await insights.table.change(
            insight.id, status="addressed", fields={"cost_impact": "1e999"}, actor=ADA
        )
    with pytest.raises(Invalid, match="status must be one of"):
        await insights.table.change(insight.id, status="done", actor=ADA)
    with pytest.raises(NotThere):
        await insights.table.change_comment(insight.id, 1, "x", actor=ADA)
    assert insight == await insights.table.get(insight.id)


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_bounds(insights: Insights, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of insights is limited, and so is the number of comments per insight."""
    monkeypatch.setattr(tables, "MAX_INSIGHTS", 2)
    monkeypatch.setattr(tables, "MAX_COMMENTS", 1)
    insight = await insights.table.create(InsightDraft(title="one"), actor=ADA)
    await insights.table.create(InsightDraft(title="two"), actor=ADA)
    with pytest.raises(NotAllowed, match="limit of 2 insights"):
        await insights.table.create(InsightDraft(title="three"), actor=ADA)
    assert FindingMergeCounts(new=0, again=0, reopened=0, gone=0, left_out=1) == await insights.look(
        found("spike:a")
    )
    await insights.table.add_comment(insight.id, "first", actor=ADA)
    with pytest.raises(NotAllowed, match="at most 1 comments"):
        await insights.table.add_comment(insight.id, "second", actor=ADA)


async def test_amounts_are_plain_decimals(insights: Insights) -> None:
    """Amounts have no exponent and no rounding. A lone surrogate is replaced, because it cannot be stored."""
    insight = await insights.table.create(InsightDraft(title="a\ud800b", cost_impact="1E-7"), actor=ADA)
    assert insight.title == "a?b"
    assert insight.cost_impact == "0.0000001"
    assert insight == await insights.table.get(insight.id)


@pytest.mark.every_engine
async def test_they_survive_a_restart(open_registry: RegistryOpener) -> None:
    """Status and comments of an insight are stored before the answer."""
    registry = await open_registry()
    insight = await registry.insights.create(InsightDraft(title="t"), status="on_hold", actor=ADA)
    comment = await registry.insights.add_comment(insight.id, "soon", actor=ADA)
    await registry.close()
    registry = await open_registry()
    assert replace(insight, touched=True) == await registry.insights.get(insight.id)
    assert [comment] == list(await registry.insights.comments(insight.id))


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "data:text/html,x", "https://", "//a/b", "https://a b", "http://[", "a"]
)
async def test_links_are_web_addresses(insights: Insights, link: str) -> None:
    """
    Links with another scheme are refused. If an earlier release stored such a link, the insight can still be
    changed, and the change removes the link.
    """
    table = insights.table
    with pytest.raises(Invalid, match="link must be"):
        await table.create(InsightDraft(title="x", link=link), actor=ADA)
    with pytest.raises(Invalid, match="link must be"):
        await table.merge_findings(
            [Finding(key="a:b", draft=InsightDraft(title="x", link=link))], looked_for=["a"]
        )
    kept = await table.create(InsightDraft(title="x", link=" https://example.com/a?b=c "), actor=ADA)
    assert "https://example.com/a?b=c" == kept.link
    with pytest.raises(Invalid, match="link must be"):
        await table.change(kept.id, fields={"link": link}, actor=ADA)
    await table._changes.change_rows(lambda rows: rows.store_insights([replace(kept, link=link)]))
    assert ("on_hold", "") == await status_and_link(table, kept.id)


async def status_and_link(table: InsightTable, id: str) -> tuple[str, str]:
    changed = await table.change(id, status="on_hold", actor=ADA)
    return changed.status, changed.link


@pytest.mark.every_engine
async def test_a_logged_insight_is_one_for_the_same_words(insights: Insights) -> None:
    """
    Logging the same words returns the stored insight, closed or not. Other words, or a deletion, make a new
    insight with an audit row.
    """
    table = insights.table
    draft = InsightDraft(title="Spike", description="o3 doubled", category="spend")
    first = await table.find_or_add(draft, actor=ADA)
    await table.change(first.id, status="ignored", actor=ADA)
    again = await table.find_or_add(draft, actor=ADA)
    assert first.id == again.id
    assert again.status == "ignored"
    assert first.id != (await table.find_or_add(replace(draft, description="o3 tripled"), actor=ADA)).id
    await table.delete_with_comments(first.id, actor=ADA)
    assert "new" == (await table.find_or_add(draft, actor=ADA)).status
    created = [row for row in await audit_rows(insights.registry) if row.action == "insight.create"]
    assert 3 == len(created)


async def test_logged_insights_are_bounded(insights: Insights, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit, a new insight is refused, but a known insight is still returned."""
    monkeypatch.setattr(tables, "MAX_INSIGHTS", 1)
    one = await insights.table.find_or_add(InsightDraft(title="one"), actor=ADA)
    with pytest.raises(NotAllowed, match="1 insights"):
        await insights.table.find_or_add(InsightDraft(title="two"), actor=ADA)
    assert one == await insights.table.find_or_add(InsightDraft(title="one"), actor=ADA)


@pytest.mark.every_engine
async def test_open_insights_are_counted_by_detector_and_severity(insights: Insights) -> None:
    """Only open insights count, also those of people, which no detector found. Each change updates the counts."""
    table = insights.table
    assert {} == await table.count_open_insights()
    await insights.look(found("spike:a"), found("spike:b"), found("spike:c", impact="100"), found("key:d"))
    note = await table.create(InsightDraft(title="a note", category="delivery"), actor=ADA)
    present = {("spike", "info"): 2, ("spike", "warning"): 1, ("key", "info"): 1, ("", "critical"): 1}
    assert present == await table.count_open_insights()
    rows = await insights.all()
    await table.change(rows["spike:a"].id, status="on_hold", actor=ADA)
    assert present == await table.count_open_insights()
    await table.change(rows["spike:b"].id, status="ignored", actor=ADA)
    await table.change(rows["key:d"].id, status="addressed", actor=ADA)
    await table.delete_with_comments(note.id, actor=ADA)
    assert {("spike", "info"): 1, ("spike", "warning"): 1} == await table.count_open_insights()
    await insights.look()
    assert {} == await table.count_open_insights()


async def test_open_insights_are_read_again_only_after_a_change(
    insights: Insights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts of open insights are read again only after a change. Further counts without a change read no rows."""
    await insights.look(found("spike:a"))
    counts = await insights.table.count_open_insights()
    changes = insights.registry._changes
    read, reads = changes.read, Counter[str]()

    async def counted(work: Callable[[RegistryRows], Any]) -> Any:
        reads["all"] += 1
        return await read(work)

    monkeypatch.setattr(changes, "read", counted)
    for _ in range(3):
        assert counts == await insights.table.count_open_insights()
    assert 0 == reads["all"]
    await insights.look(found("spike:a"), found("spike:b"))
    for _ in range(3):
        assert {("spike", "info"): 2} == await insights.table.count_open_insights()
    assert 1 == reads["all"]


@pytest.mark.every_engine
async def test_what_an_insight_is_about_follows_what_was_found(insights: Insights) -> None:
    """
    An insight's scope is that of its newest finding. An insight that a person logged has no scope. A finding
    that differs only in scope is no update.
    """
    about = CallFilter(include={"team": ("search", "")}, exclude={"user": ("ada",)})
    await insights.look(found("spike:a"))
    await insights.table.create(InsightDraft(title="a note"), actor=ADA)
    [before] = await insights.table.detector_insights()
    await insights.look(replace(found("spike:a"), concerns=about))
    [after] = await insights.table.detector_insights()
    assert before.decoded_concerns is None
    assert after.decoded_concerns == about
    assert before.last_updated == after.last_updated
    await insights.look()
    [gone] = await insights.table.detector_insights()
    assert gone.decoded_concerns == about
    assert gone.present is False
