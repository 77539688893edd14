"""
The insights of a registry and the comments on them; every change by a person with its audit row.

Kept beside the keys: what operators wrote must survive a ledger that is rebuilt, repriced or lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b

import msgspec

from spool.errors import NotAllowed, NotThere
from spool.listing import ListPage, ListQuery
from spool.registry.changes import Changes
from spool.registry.document_table import INSIGHTS, check_comments, check_made, forget_maker, note_maker
from spool.registry.documents import edited
from spool.registry.insights import (
    ADDRESSED,
    MAX_COMMENTS,
    MAX_INSIGHTS,
    NEW,
    OPEN,
    Comment,
    Draft,
    Finding,
    Insight,
    Merged,
    check_comment,
    check_draft,
    check_status,
    stored_concern,
)
from spool.registry.notices import InsightSubscription, NoticeTable, add_anomaly_notices, add_insight_notices
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import web_link

KEPT_S = 90 * 86400.0  # a finding that nobody touched and that is gone stays this long
OVER_S = 86400.0  # what nobody touched and is back sooner is told to nobody

_DRAFTED = ("title", "description", "category", "link", "effort", "cost_impact")


class InsightTable:
    """Create, change and delete insights. A method that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    def __init__(self, changes: Changes, notices: NoticeTable) -> None:
        self._changes = changes
        self._notices = notices

    async def get(self, id: str) -> Insight:
        return await self._changes.read(lambda rows: _read(rows, id))

    async def titles(self, ids: Collection[str]) -> dict[str, str]:
        """Return the titles of those that are there, by id."""

        def work(rows: RegistryRows) -> dict[str, str]:
            found = {id: rows.find(Insight, id) for id in ids}
            return {id: insight.title for id, insight in found.items() if insight is not None}

        return await self._changes.read(work)

    async def page(self, query: ListQuery) -> ListPage[Insight]:
        return await self._changes.read(lambda rows: rows.insight_page(query))

    async def found(self) -> Sequence[Insight]:
        """Return the insights that detectors found."""
        return await self._changes.read(lambda rows: list(rows.findings()))

    async def comments(self, id: str) -> Sequence[Comment]:
        """Oldest first; NotThere when there is no such insight."""

        def work(rows: RegistryRows) -> Sequence[Comment]:
            _read(rows, id)
            return rows.comments(id)

        return await self._changes.read(work)

    async def create(self, draft: Draft, *, status: str = NEW, actor: Actor) -> Insight:
        draft, now = check_draft(draft), self._changes.now()
        insight = replace(_fresh(draft, now), status=check_status(status), touched=True)

        def work(rows: RegistryRows) -> Insight:
            return _added(rows, insight, draft, actor)

        return await self._changes.change(work)

    async def log(self, draft: Draft, *, actor: Actor) -> Insight:
        """The insight of exactly this draft: a new one, or the one that was logged before, as it stands by now."""
        draft, now = check_draft(draft), self._changes.now()
        insight = replace(_fresh(draft, now), id=_id_of(draft), touched=True)

        def work(rows: RegistryRows) -> Insight:
            return rows.find(Insight, insight.id) or _added(rows, insight, draft, actor)

        return await self._changes.change(work)

    async def change(
        self, id: str, *, status: str | None = None, fields: Mapping[str, str] | None = None, actor: Actor
    ) -> Insight:
        """Set a status, or fields of a draft. A detector writes its own fields again when it runs next."""
        if status is not None:
            check_status(status)
        now = self._changes.now()

        def work(rows: RegistryRows) -> Insight:
            before = _read(rows, id)
            # A link that an earlier release kept and that is not shown any more must not make other changes
            # fail.
            unchanged = {name: getattr(before, name) for name in _DRAFTED} | {"link": web_link(before.link)}
            drafted = unchanged | dict(fields or {})
            after = replace(before, **asdict(check_draft(Draft(**drafted))))
            if status not in (None, before.status):
                after = replace(after, status=status, status_at=now)
            after = edited(before, after, last_updated=now, touched=True)
            if after is before:
                return before
            rows.put_insights([after])
            names = [name for name in ("status", *_DRAFTED) if getattr(before, name) != getattr(after, name)]
            was, is_now = ({name: getattr(each, name) for name in names} for each in (before, after))
            rows.add_audit(now, actor, "insight.change", id, before=was, after=is_now)
            return after

        return await self._changes.change(work)

    async def delete(self, id: str, *, actor: Actor) -> tuple[str, list[int]]:
        """
        Delete it; the ids of the insight and its comments. What a detector still finds comes back as a new insight.
        """

        def work(rows: RegistryRows) -> list[int]:
            before = _read(rows, id)
            comments = [comment.id for comment in rows.comments(id)]
            rows.delete_comments(id)
            rows.delete(Insight, id)
            forget_maker(rows, INSIGHTS, id)
            was = {"title": before.title, "status": before.status}
            rows.add_audit(self._changes.now(), actor, "insight.delete", id, before=was)
            return comments

        return id, await self._changes.change(work)

    async def comment(self, id: str, text: str, *, actor: Actor) -> Comment:
        now = self._changes.now()
        draft = Comment(
            id=0, insight=id, text=check_comment(text), author=actor.name, created=now, last_updated=now
        )

        def work(rows: RegistryRows) -> Comment:
            _touch(rows, id, now)
            there = rows.comments(id)
            if len(there) >= MAX_COMMENTS:
                raise NotAllowed(f"an insight has at most {MAX_COMMENTS} comments")
            check_comments([each.author for each in there], 1, MAX_COMMENTS, actor)
            comment = rows.add_comment(draft)
            after = {"comment": comment.id}
            rows.add_audit(now, actor, "insight.comment", id, after=after)
            return comment

        return await self._changes.change(work)

    async def change_comment(self, id: str, comment: int, text: str, *, actor: Actor) -> Comment:
        now = self._changes.now()
        text = check_comment(text)

        def work(rows: RegistryRows) -> Comment:
            before = _comment_of(rows, id, comment)
            after = edited(before, replace(before, text=text), last_updated=now)
            if after is before:
                return before
            _touch(rows, id, now)
            rows.put(after)
            rows.add_audit(now, actor, "insight.comment.change", id, after={"comment": comment})
            return after

        return await self._changes.change(work)

    async def delete_comment(self, id: str, comment: int, *, actor: Actor) -> None:
        """The audit row keeps whose it was, not what it said."""
        now = self._changes.now()

        def work(rows: RegistryRows) -> None:
            before = _comment_of(rows, id, comment)
            _touch(rows, id, now)
            rows.delete(Comment, comment)
            was = {"comment": comment, "author": before.author}
            rows.add_audit(now, actor, "insight.comment.delete", id, before=was)

        await self._changes.change(work)

    async def merge(
        self, findings: Sequence[Finding], *, looked_for: Collection[str], cut: Collection[str] = ()
    ) -> Merged:
        """
        Take in everything that one run of the detectors `looked_for` found; a finding's key begins with "detector:".

        Comments stay, and so does the status of what is found again; an addressed insight that returns is new
        again. What was not found is gone, and addressed if it was open. A detector of `cut` may have found
        more than it told: what it did not tell is gone after a day. Beyond MAX_INSIGHTS, findings are left
        out and counted. Channels are told of what opens.
        """
        now = self._changes.now()

        def work(rows: RegistryRows) -> Merged:
            tell = self._notices.subscriptions
            channels = self._notices.channels
            return merge_findings(
                rows, findings, looked_for=looked_for, cut=cut, now=now, tell=tell, channels=channels
            )

        return await self._changes.change(work)


def merge_findings(
    rows: RegistryRows,
    findings: Sequence[Finding],
    *,
    looked_for: Collection[str],
    cut: Collection[str] = (),
    now: float,
    tell: Sequence[InsightSubscription] = (),
    channels: Collection[str] = (),
) -> Merged:
    """
    `InsightTable.merge`, within the transaction of what the findings are about; `tell` are told of what
    opens, and so are those of `channels` that a finding names.
    """
    by_key = {finding.key: finding for finding in findings}
    known = {insight.finding: insight for insight in rows.findings()}
    again = [_found_again(insight, by_key[key], now) for key, insight in known.items() if key in by_key]
    lost = [
        insight
        for key, insight in known.items()
        if key not in by_key and _detector(insight) in looked_for and not _may_be_left_out(insight, cut, now)
    ]
    gone = [insight for insight in lost if insight.present]
    after = {insight.id: replace(_closed(insight, now), present=False) for insight in lost}
    rows.put_insights([*again, *(after[insight.id] for insight in lost if after[insight.id] != insight)])
    # Findings that are over and that nobody touched go, so that the table stays bounded.
    rows.delete_findings_before(now - KEPT_S)
    new = [_found(finding, now) for key, finding in by_key.items() if key not in known]
    room = max(0, MAX_INSIGHTS - rows.count_insights())
    rows.put_insights(new[:room])
    reopened = [after for after in again if after.status != known[after.finding].status]
    opened = [*new[:room], *(each for each in reopened if not _is_short(known[each.finding], now))]
    named = [
        (each, [name for name in by_key[each.finding or ""].channels if name in channels]) for each in opened
    ]
    add_anomaly_notices(rows, named)
    add_insight_notices(rows, opened, tell)
    return Merged(
        new=len(new[:room]),
        again=len(again),
        reopened=len(reopened),
        gone=len(gone),
        left_out=len(new[room:]),
    )


def _added(rows: RegistryRows, insight: Insight, draft: Draft, actor: Actor) -> Insight:
    there = rows.count_insights()
    if there >= MAX_INSIGHTS:
        raise NotAllowed(f"there are {MAX_INSIGHTS} insights; delete some that are addressed or ignored")
    check_made(rows, INSIGHTS, there, MAX_INSIGHTS, actor)
    rows.put_insights([insight])
    note_maker(rows, INSIGHTS, insight.id, actor)
    after = {**asdict(draft), "status": insight.status}
    rows.add_audit(insight.created, actor, "insight.create", insight.id, after=after)
    return insight


def _id_of(draft: Draft) -> str:
    """The same for the same words."""
    words = msgspec.json.encode([draft.title, draft.category, draft.description])
    return blake2b(words, digest_size=16, person=b"logged insight").hexdigest()


def _fresh(draft: Draft, now: float) -> Insight:
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


def _found(finding: Finding, now: float) -> Insight:
    return replace(
        _fresh(check_draft(finding.draft), now),
        finding=finding.key,
        concerns=stored_concern(finding.concerns),
        found_at=now,
        present=True,
    )


def _found_again(before: Insight, finding: Finding, now: float) -> Insight:
    after = replace(before, **asdict(check_draft(finding.draft)))
    if before.returns(finding.newest):
        after = replace(after, status=NEW, status_at=now)
    if after != before:
        after = replace(after, last_updated=now)
    return replace(after, concerns=stored_concern(finding.concerns), found_at=now, present=True)


def _detector(insight: Insight) -> str:
    return (insight.finding or "").partition(":")[0]


def _may_be_left_out(insight: Insight, cut: Collection[str], now: float) -> bool:
    """True for a day if its detector may have found it and left it out, having found more than it reports."""
    return _detector(insight) in cut and not _is_over(insight, now)


def _closed(insight: Insight, now: float) -> Insight:
    """Address an open insight that was not found. If somebody opened it again after it was gone, it stays open."""
    is_anybodys_word = insight.touched and not insight.present
    if insight.status not in OPEN or is_anybodys_word:
        return insight
    return replace(insight, status=ADDRESSED, status_at=now, last_updated=now)


def _is_short(before: Insight, now: float) -> bool:
    """True if the insight was closed because it was gone, and is back within a day."""
    return not before.touched and not _is_over(before, now)


def _is_over(insight: Insight, now: float) -> bool:
    """True if the insight was not found for a day."""
    return insight.found_at is None or now - insight.found_at >= OVER_S


def _touch(rows: RegistryRows, id: str, now: float) -> None:
    rows.put_insights([replace(_read(rows, id), touched=True, last_updated=now)])


def _comment_of(rows: RegistryRows, id: str, comment: int) -> Comment:
    _read(rows, id)
    found = next((each for each in rows.comments(id) if each.id == comment), None)
    if found is None:
        raise NotThere("this insight has no comment with this id")
    return found


def _read(rows: RegistryRows, id: str) -> Insight:
    insight = rows.find(Insight, id)
    if insight is None:
        raise NotThere("there is no insight with this id")
    return insight
