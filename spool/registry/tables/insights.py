"""
Insights and comments on them.

They are in the registry, because people's texts must survive a ledger that is rebuilt, recalculated or lost.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b

import msgspec

from spool.errors import NotAllowed, NotThere
from spool.listing import ListPage, ListQuery
from spool.registry.changes import RegistryChangeWriter
from spool.registry.document_table import (
    INSIGHTS,
    delete_creator_key,
    require_key_within_comment_share,
    require_key_within_recorded_share,
    store_key_that_created_row,
)
from spool.registry.documents import with_change_fields_if_changed
from spool.registry.insights import (
    ADDRESSED,
    IN_PROGRESS,
    MAX_COMMENTS,
    MAX_INSIGHTS,
    NEW,
    OPEN,
    Comment,
    Finding,
    FindingMergeCounts,
    Insight,
    InsightDraft,
    check_comment,
    check_insight_draft,
    check_status,
    encode_concerned_calls,
)
from spool.registry.notices import (
    SEVERITIES,
    InsightSubscription,
    NoticeTable,
    add_anomaly_notices,
    add_insight_notices,
    insight_severity,
)
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import web_link_or_empty

KEPT_S = 90 * 86400.0  # seconds for which a finding that nobody edited is kept after it was last found
OVER_S = 86400.0  # seconds within which an unedited finding may return without a notification

_DRAFTED = ("title", "description", "category", "link", "effort", "cost_impact")


class InsightTable:
    def __init__(self, change_writer: RegistryChangeWriter, notices: NoticeTable) -> None:
        self._changes = change_writer
        self._notices = notices
        self._counts: Mapping[tuple[str, str], int] = {}
        self._counted_at: int | None = None  # registry version before `_counts` was read

    async def get(self, id: str) -> Insight:
        return await self._changes.read(lambda rows: _require_insight(rows, id))

    async def titles_by_id(self, ids: Collection[str]) -> dict[str, str]:

        def read_titles(registry_rows: RegistryRows) -> dict[str, str]:
            insights = {id: registry_rows.find(Insight, id) for id in ids}
            return {id: insight.title for id, insight in insights.items() if insight is not None}

        return await self._changes.read(read_titles)

    async def page(self, query: ListQuery) -> ListPage[Insight]:
        return await self._changes.read(lambda rows: rows.insight_page(query))

    async def detector_insights(self) -> Sequence[Insight]:
        return await self._changes.read(lambda rows: list(rows.detector_insights()))

    async def count_open_insights(self) -> Mapping[tuple[str, str], int]:
        """
        Return the number of open insights by detector ("" if none) and severity. Rows are read only after a
        change of the registry.
        """
        version = self._changes.version
        if version != self._counted_at:
            insights = await self._changes.read(lambda rows: rows.open_insights())
            self._counts = Counter(
                (_detector_name(insight), insight_severity(insight)) for insight in insights
            )
            self._counted_at = version
        return self._counts

    async def comments(self, id: str) -> Sequence[Comment]:
        """Return the comments, oldest first. Raises NotThere if the insight does not exist."""

        def read_comments(registry_rows: RegistryRows) -> Sequence[Comment]:
            _require_insight(registry_rows, id)
            return registry_rows.comments(id)

        return await self._changes.read(read_comments)

    async def create(self, draft: InsightDraft, *, status: str = NEW, actor: Actor) -> Insight:
        draft, now = check_insight_draft(draft), self._changes.now()
        insight = replace(_new_insight(draft, now), status=check_status(status), touched=True)

        def add_insight(registry_rows: RegistryRows) -> Insight:
            return _add_insight(registry_rows, insight, draft, actor)

        return await self._changes.change_rows(add_insight)

    async def find_or_add(self, draft: InsightDraft, *, actor: Actor) -> Insight:
        """Return an insight with exactly the draft's texts, whatever its status, or add one."""
        draft, now = check_insight_draft(draft), self._changes.now()
        insight = replace(_new_insight(draft, now), id=_draft_id(draft), touched=True)

        def find_or_add_insight(registry_rows: RegistryRows) -> Insight:
            return registry_rows.find(Insight, insight.id) or _add_insight(
                registry_rows, insight, draft, actor
            )

        return await self._changes.change_rows(find_or_add_insight)

    async def change(
        self, id: str, *, status: str | None = None, fields: Mapping[str, str] | None = None, actor: Actor
    ) -> Insight:
        """Change an insight. The next run of its detector overwrites `fields`, such as the title."""
        if status is not None:
            check_status(status)
        now = self._changes.now()

        def store_insight_change(registry_rows: RegistryRows) -> Insight:
            before = _require_insight(registry_rows, id)
            # A stored link that is no longer allowed must not make other changes fail.
            unchanged = {name: getattr(before, name) for name in _DRAFTED} | {
                "link": web_link_or_empty(before.link)
            }
            drafted = unchanged | dict(fields or {})
            after = replace(before, **asdict(check_insight_draft(InsightDraft(**drafted))))
            if status not in (None, before.status):
                after = replace(after, status=status, status_at=now)
            after = with_change_fields_if_changed(before, after, last_updated=now, touched=True)
            if after is before:
                return before
            registry_rows.store_insights([after])
            names = [name for name in ("status", *_DRAFTED) if getattr(before, name) != getattr(after, name)]
            old, new = ({name: getattr(insight, name) for name in names} for insight in (before, after))
            registry_rows.add_audit(now, actor, "insight.change", id, before=old, after=new)
            return after

        return await self._changes.change_rows(store_insight_change)

    async def delete_with_comments(self, id: str, *, actor: Actor) -> tuple[str, list[int]]:
        """
        Delete an insight. Return its id and those of its comments. A detector may find it again as a new
        insight.
        """

        def delete_insight(registry_rows: RegistryRows) -> list[int]:
            before = _require_insight(registry_rows, id)
            comments = [comment.id for comment in registry_rows.comments(id)]
            registry_rows.delete_comments(id)
            registry_rows.delete(Insight, id)
            delete_creator_key(registry_rows, INSIGHTS, id)
            old = {"title": before.title, "status": before.status}
            registry_rows.add_audit(self._changes.now(), actor, "insight.delete", id, before=old)
            return comments

        return id, await self._changes.change_rows(delete_insight)

    async def add_comment(self, id: str, text: str, *, actor: Actor) -> Comment:
        now = self._changes.now()
        draft = Comment(
            id=0, insight=id, text=check_comment(text), author=actor.name, created=now, last_updated=now
        )

        def add_comment_row(registry_rows: RegistryRows) -> Comment:
            _mark_insight_edited_by_person(registry_rows, id, now)
            comments = registry_rows.comments(id)
            if len(comments) >= MAX_COMMENTS:
                raise NotAllowed(f"an insight can have at most {MAX_COMMENTS} comments")
            require_key_within_comment_share([comment.author for comment in comments], 1, MAX_COMMENTS, actor)
            comment = registry_rows.add_comment(draft)
            after = {"comment": comment.id}
            registry_rows.add_audit(now, actor, "insight.comment", id, after=after)
            return comment

        return await self._changes.change_rows(add_comment_row)

    async def change_comment(self, id: str, comment: int, text: str, *, actor: Actor) -> Comment:
        now = self._changes.now()
        text = check_comment(text)

        def change_comment_row(registry_rows: RegistryRows) -> Comment:
            before = _find_comment(registry_rows, id, comment)
            after = with_change_fields_if_changed(before, replace(before, text=text), last_updated=now)
            if after is before:
                return before
            _mark_insight_edited_by_person(registry_rows, id, now)
            registry_rows.store_row(after)
            registry_rows.add_audit(now, actor, "insight.comment.change", id, after={"comment": comment})
            return after

        return await self._changes.change_rows(change_comment_row)

    async def delete_comment(self, id: str, comment: int, *, actor: Actor) -> None:
        """Delete a comment. The audit row names its author but does not contain its text."""
        now = self._changes.now()

        def delete_comment_row(registry_rows: RegistryRows) -> None:
            before = _find_comment(registry_rows, id, comment)
            _mark_insight_edited_by_person(registry_rows, id, now)
            registry_rows.delete(Comment, comment)
            old = {"comment": comment, "author": before.author}
            registry_rows.add_audit(now, actor, "insight.comment.delete", id, before=old)

        await self._changes.change_rows(delete_comment_row)

    async def merge_findings(
        self,
        findings: Sequence[Finding],
        *,
        looked_for: Collection[str],
        truncated_detectors: Collection[str] = (),
    ) -> FindingMergeCounts:
        """
        Store the findings of a run of the detectors `looked_for`, whose keys begin with "detector:".

        Comments and status stay, but an addressed insight that is found again becomes new, and open insights
        that are not found become addressed. Insights of `truncated_detectors`, which may have left findings
        out, close only after a day. Findings beyond MAX_INSIGHTS are only counted. Channels are notified of
        insights that open.
        """
        now = self._changes.now()

        def merge_findings_and_notify(registry_rows: RegistryRows) -> FindingMergeCounts:
            tell = self._notices.subscriptions
            channels = self._notices.channels
            return merge_findings(
                registry_rows,
                findings,
                looked_for=looked_for,
                truncated_detectors=truncated_detectors,
                now=now,
                subscriptions=tell,
                channels=channels,
            )

        return await self._changes.change_rows(merge_findings_and_notify)


def merge_findings(
    registry_rows: RegistryRows,
    findings: Sequence[Finding],
    *,
    looked_for: Collection[str],
    truncated_detectors: Collection[str] = (),
    now: float,
    subscriptions: Sequence[InsightSubscription] = (),
    channels: Collection[str] = (),
) -> FindingMergeCounts:
    """
    Store findings as `InsightTable.merge_findings` does, in the caller's transaction.

    `subscriptions`: channels to notify of insights that open or become more severe. `channels`: those that a finding
    may name; they are notified if its insight opens.
    """
    by_key = {finding.key: finding for finding in findings}
    known = {insight.finding: insight for insight in registry_rows.detector_insights()}
    found_again = [
        _insight_found_again(insight, by_key[key], now) for key, insight in known.items() if key in by_key
    ]
    lost = [
        insight
        for key, insight in known.items()
        if key not in by_key
        and _detector_name(insight) in looked_for
        and not _can_be_missing_from_truncated_findings(insight, truncated_detectors, now)
    ]
    gone = [insight for insight in lost if insight.present]
    after = {
        insight.id: replace(_close_unfound_open_insight(insight, now), present=False) for insight in lost
    }
    registry_rows.store_insights(
        [*found_again, *(after[insight.id] for insight in lost if after[insight.id] != insight)]
    )
    # this limits the table's size
    registry_rows.delete_findings_before(now - KEPT_S)
    new = [_insight_from_finding(finding, now) for key, finding in by_key.items() if key not in known]
    room = max(0, MAX_INSIGHTS - registry_rows.count_insights())
    registry_rows.store_insights(new[:room])
    reopened = [after for after in found_again if after.status != known[after.finding].status]
    opened = [
        *new[:room],
        *(insight for insight in reopened if not _is_recently_closed(known[insight.finding], now)),
    ]
    named = [
        (insight, [name for name in by_key[insight.finding or ""].channels if name in channels])
        for insight in opened
    ]
    add_anomaly_notices(registry_rows, named)
    risen = [
        insight for insight in found_again if _has_open_insight_worsened(known[insight.finding], insight)
    ]
    csv = {key: finding.csv for key, finding in by_key.items() if finding.csv}
    add_insight_notices(registry_rows, [*opened, *risen], subscriptions, csv)
    return FindingMergeCounts(
        new=len(new[:room]),
        again=len(found_again),
        reopened=len(reopened),
        gone=len(gone),
        left_out=len(new[room:]),
    )


def _add_insight(registry_rows: RegistryRows, insight: Insight, draft: InsightDraft, actor: Actor) -> Insight:
    count = registry_rows.count_insights()
    if count >= MAX_INSIGHTS:
        raise NotAllowed(
            f"the limit of {MAX_INSIGHTS} insights is reached: delete some that are addressed or ignored"
        )
    require_key_within_recorded_share(registry_rows, INSIGHTS, count, MAX_INSIGHTS, actor)
    registry_rows.store_insights([insight])
    store_key_that_created_row(registry_rows, INSIGHTS, insight.id, actor)
    after = {**asdict(draft), "status": insight.status}
    registry_rows.add_audit(insight.created, actor, "insight.create", insight.id, after=after)
    return insight


def _draft_id(draft: InsightDraft) -> str:
    texts = msgspec.json.encode([draft.title, draft.category, draft.description])
    return blake2b(texts, digest_size=16, person=b"logged insight").hexdigest()


def _new_insight(draft: InsightDraft, now: float) -> Insight:
    return Insight(
        id=secrets.token_hex(16),
        finding=None,
        **asdict(draft),
        status=NEW,
        status_at=now,
        created=now,
        last_updated=now,
        found_at=None,
        present=False,
        touched=False,
    )


def _insight_from_finding(finding: Finding, now: float) -> Insight:
    return replace(
        _new_insight(check_insight_draft(finding.draft), now),
        finding=finding.key,
        concerns=encode_concerned_calls(finding.concerns),
        severity=finding.severity,
        found_at=now,
        present=True,
    )


def _insight_found_again(before: Insight, finding: Finding, now: float) -> Insight:
    after = replace(before, **asdict(check_insight_draft(finding.draft)), severity=finding.severity)
    if before.is_reopened_by(finding.newest):
        after = replace(after, status=NEW, status_at=now)
    if after != before:
        after = replace(after, last_updated=now)
    return replace(after, concerns=encode_concerned_calls(finding.concerns), found_at=now, present=True)


def _detector_name(insight: Insight) -> str:
    return (insight.finding or "").partition(":")[0]


def _can_be_missing_from_truncated_findings(
    insight: Insight, truncated_detectors: Collection[str], now: float
) -> bool:
    return _detector_name(insight) in truncated_detectors and not _is_long_unfound(insight, now)


def _close_unfound_open_insight(insight: Insight, now: float) -> Insight:
    """
    Mark an open insight as addressed, because its detector no longer finds it. An insight that a person
    reopened afterwards stays open.
    """
    is_anybodys_word = insight.touched and not insight.present
    if insight.status not in OPEN or is_anybodys_word:
        return insight
    return replace(insight, status=ADDRESSED, status_at=now, last_updated=now)


def _has_open_insight_worsened(before: Insight, after: Insight) -> bool:
    if not after.severity or after.status not in (NEW, IN_PROGRESS):
        return False
    earlier, now = (SEVERITIES.index(insight_severity(insight)) for insight in (before, after))
    return earlier < now


def _is_recently_closed(before: Insight, now: float) -> bool:
    """Return whether the insight was closed less than a day ago because it was not found."""
    return not before.touched and not _is_long_unfound(before, now)


def _is_long_unfound(insight: Insight, now: float) -> bool:
    return insight.found_at is None or now - insight.found_at >= OVER_S


def _mark_insight_edited_by_person(registry_rows: RegistryRows, id: str, now: float) -> None:
    registry_rows.store_insights(
        [replace(_require_insight(registry_rows, id), touched=True, last_updated=now)]
    )


def _find_comment(registry_rows: RegistryRows, id: str, comment: int) -> Comment:
    _require_insight(registry_rows, id)
    match = next((candidate for candidate in registry_rows.comments(id) if candidate.id == comment), None)
    if match is None:
        raise NotThere("this insight has no comment with this id")
    return match


def _require_insight(registry_rows: RegistryRows, id: str) -> Insight:
    insight = registry_rows.find(Insight, id)
    if insight is None:
        raise NotThere("no insight has this id")
    return insight
