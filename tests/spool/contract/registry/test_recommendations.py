"""
Recommendations in a registry: changes by runs, changes by people, and an audit row for changes by people.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from spool.errors import Invalid, NotAllowed, NotThere
from spool.registry import recommendations as rules
from spool.registry.insights import FindingMergeCounts
from spool.registry.operators import Actor
from spool.registry.recommendations import Realized, Recommendation, Saving
from spool.registry.registry import Registry
from spool.registry.tables import recommendations as tables
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows
from tests.spool.savings import SAVING

ADA = Actor("ada@example.com", "local")
TYPE = SAVING.type
OTHER = replace(SAVING, key=f"{TYPE}:2", title="Other")

pytestmark = pytest.mark.rule


async def look(registry: Registry, *savings: Saving, **more: object) -> FindingMergeCounts:
    return await registry.recommendations.merge_savings(savings, looked_for=[TYPE], **more)  # type: ignore[arg-type]


async def only(registry: Registry) -> Recommendation:
    [one] = await registry.recommendations.all()
    return one


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_what_is_found_is_there_after_a_restart(
    open_registry: RegistryOpener, clock: MovedClock
) -> None:
    """
    Every field of a recommendation survives a restart. A repeated finding changes only the figures, and a
    missing finding closes it.
    """
    registry = await open_registry()
    assert FindingMergeCounts(new=2, again=0, reopened=0, gone=0, left_out=0) == await look(
        registry, SAVING, OTHER
    )
    before = {each.saving.key: each for each in await registry.recommendations.all()}
    await registry.close()
    registry = await open_registry()
    assert before == {each.saving.key: each for each in await registry.recommendations.all()}
    clock.move(60)
    assert FindingMergeCounts(new=0, again=1, reopened=0, gone=1, left_out=0) == await look(
        registry, replace(SAVING, monthly_savings="0.5")
    )
    after = {each.saving.key: each for each in await registry.recommendations.all()}
    assert after[SAVING.key].saving.monthly_savings == "0.5"
    assert after[SAVING.key].is_open is True
    assert before[SAVING.key].id == after[SAVING.key].id
    assert after[OTHER.key].is_open is False
    assert after[OTHER.key].status == "new"
    assert FindingMergeCounts(new=0, again=1, reopened=0, gone=1, left_out=0) == await look(registry, OTHER)


async def test_a_type_that_did_not_run_closes_nothing(registry: Registry) -> None:
    """If one type of recommendation fails, its earlier recommendations stay open."""
    await look(registry, SAVING)
    await registry.recommendations.merge_savings([], looked_for=["newer_model"])
    assert (await only(registry)).is_open


async def test_addressed_and_back_again(registry: Registry, clock: MovedClock) -> None:
    """
    An addressed recommendation stores the savings that it promised and the real savings. If it is found
    again, it is new and has neither.
    """
    await look(registry, SAVING)
    id = (await only(registry)).id
    clock.move(60)
    [done] = (
        await registry.recommendations.change_recommendations(
            [id], status="addressed", assignee="ben", actor=ADA
        )
    ).values()
    assert done is not None
    assert done.status == "addressed"
    assert done.promised == "0.9"
    assert done.assignee == "ben"
    saved = Realized(amount="0.4", since="2026-11-03", until="2026-11-17")
    await look(registry, realized={id: saved, "gone": saved})
    assert (one := await only(registry)).realized == saved
    assert one.is_open is False
    assert 1 == (await look(registry, SAVING)).reopened
    again = await only(registry)
    assert again.status == "new"
    assert again.promised is None
    assert again.realized is None
    assert again.assignee == "ben"


async def test_what_is_ignored_stays_ignored(registry: Registry) -> None:
    """The figures of an ignored recommendation are still updated."""
    await look(registry, SAVING)
    await registry.recommendations.change_recommendations(
        [(await only(registry)).id], status="ignored", actor=ADA
    )
    assert 0 == (await look(registry, replace(SAVING, spent="3"))).reopened
    assert (one := await only(registry)).status == "ignored"
    assert one.saving.spent == "3"


async def test_many_at_once(registry: Registry) -> None:
    """
    If many recommendations are changed at once, the result lists each given id, even unknown ids. A repeated
    id is changed once.
    """
    await look(registry, SAVING, OTHER)
    one, two = [each.id for each in await registry.recommendations.all()]
    changed = await registry.recommendations.change_recommendations(
        [one, "gone", two, one], status="on_hold", actor=ADA
    )
    assert [(one, True), ("gone", False), (two, True)] == [
        (id, each is not None) for id, each in changed.items()
    ]
    assert ["on_hold", "on_hold"] == [each.status for each in await registry.recommendations.all()]
    assert {("recommendation.change", one), ("recommendation.change", two)} == {
        (row.action, row.target) for row in await audit_rows(registry)
    }


@pytest.mark.parametrize(
    ("ids", "changes"),
    [
        ([], {"status": "ignored"}),
        (["x"] * (rules.MAX_AT_ONCE + 1), {"status": "ignored"}),
        (["x"], {}),
        (["x"], {"status": "done"}),
        (["x"], {"assignee": "a\nb"}),
        (["x"], {"assignee": "a" * (rules.MAX_ASSIGNEE + 1)}),
    ],
)
async def test_what_breaks_a_rule_is_refused(
    open_registry: RegistryOpener, ids: list[str], changes: dict[str, str]
) -> None:
    table = (await open_registry()).recommendations
    with pytest.raises(Invalid):
        await table.change_recommendations(ids, actor=ADA, **changes)


async def test_the_table_is_bounded(open_registry: RegistryOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings over the limit are counted, and stored once there is space."""
    monkeypatch.setattr(tables, "MAX_RECOMMENDATIONS", 1)
    registry = await open_registry()
    assert (done := await look(registry, SAVING, OTHER)).new == 1
    assert done.left_out == 1


async def test_closed_ones_go_unless_somebody_touched_them(registry: Registry, clock: MovedClock) -> None:
    """Closed recommendations are deleted ninety days after they were last found."""
    await look(registry, SAVING, OTHER)
    kept = next(each.id for each in await registry.recommendations.all() if each.saving.key == OTHER.key)
    await registry.recommendations.add_comments(kept, ["ask the vendor"], actor=ADA)
    await look(registry)
    clock.move(tables.KEPT_S)
    await look(registry)
    assert 2 == len(await registry.recommendations.all())
    clock.move(1)
    await look(registry)
    assert kept == (await only(registry)).id


async def test_comments(registry: Registry, clock: MovedClock) -> None:
    """
    Several comments may be added, changed and deleted at once. No number is used twice, and each change is audited.
    """
    table = registry.recommendations
    await look(registry, SAVING)
    id = (await only(registry)).id
    assert [1, 2] == [each.id for each in await table.add_comments(id, ["one", " two "], actor=ADA)]
    clock.move(5)
    changed = await table.change_comment(id, 2, "second", actor=ADA)
    assert changed.text == "second"
    assert changed.created + 5 == changed.last_updated
    await table.delete_comment(id, 2, actor=ADA)
    assert [3] == [each.id for each in await table.add_comments(id, ["three"], actor=ADA)]
    assert [(1, "one"), (3, "three")] == [(each.id, each.text) for each in await table.comments(id)]
    assert [
        "recommendation.comment", "recommendation.comment", "recommendation.comment.change",
        "recommendation.comment.delete", "recommendation.comment",
    ] == [row.action for row in await audit_rows(registry)]  # fmt: skip


async def test_comments_that_are_refused(registry: Registry) -> None:
    """
    Comments on unknown recommendations, empty ones, wrong numbers and too many at once are refused as a whole.
    """
    table = registry.recommendations
    await look(registry, SAVING)
    id = (await only(registry)).id
    for call in (
        table.comments("gone"),
        table.add_comments("gone", ["x"], actor=ADA),
        table.change_comment(id, 1, "x", actor=ADA),
        table.delete_comment(id, 1, actor=ADA),
    ):
        with pytest.raises(NotThere):
            await call
    for texts in ([], [" "], ["fine", "x" * 5000]):
        with pytest.raises(Invalid):
            await table.add_comments(id, texts, actor=ADA)
    with pytest.raises(NotAllowed, match="200 comments"):
        await table.add_comments(id, ["x"] * (rules.MAX_COMMENTS + 1), actor=ADA)
    assert [] == list(await table.comments(id))
    assert rules.MAX_COMMENTS == len(await table.add_comments(id, ["x"] * rules.MAX_COMMENTS, actor=ADA))


async def test_a_type_that_is_switched_off_closes_its_recommendations(registry: Registry) -> None:
    """
    Recommendations of a disabled type close at once. The type's thresholds stay, and there is an audit row.
    """
    table = registry.recommendations
    await look(registry, SAVING)
    await table.change_type(TYPE, {"least_savings": "2.50"}, actor=ADA)
    off = await table.change_type(TYPE, {"enabled": False}, actor=ADA)
    assert off.enabled is False
    assert off.least_savings == "2.50"
    assert off.least_share == "1"
    assert {TYPE: off} == await table.stored_type_settings()
    assert not (await only(registry)).is_open
    assert [({"enabled": True}, {"enabled": False})] == [
        (row.before, row.after) for row in await audit_rows(registry) if row.after == {"enabled": False}
    ]


@pytest.mark.parametrize(
    "changes",
    [{"least_savings": "-1"}, {"least_savings": "1e10"}, {"least_share": "100.1"}, {"least_share": "x"}],
)
async def test_thresholds_have_rules(open_registry: RegistryOpener, changes: dict[str, str]) -> None:
    """A threshold is a number of at least 0. A share is at most 100 percent."""
    table = (await open_registry()).recommendations
    with pytest.raises(Invalid):
        await table.change_type(TYPE, changes, actor=ADA)
    assert {} == await table.stored_type_settings()
