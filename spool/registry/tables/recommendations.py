"""
Recommendations, their types, and comments on them.

They are in the registry, because people's decisions must survive a ledger that is rebuilt, recalculated or
lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

import msgspec

from spool.errors import Invalid, NotAllowed, NotThere, RegistryDamaged
from spool.registry.changes import RegistryChangeWriter
from spool.registry.document_table import require_key_within_comment_share
from spool.registry.documents import with_change_fields_if_changed
from spool.registry.file_owners import check_unmanaged
from spool.registry.insights import ADDRESSED, NEW, FindingMergeCounts, check_comment, check_status
from spool.registry.operators import Actor
from spool.registry.recommendations import (
    MAX_AT_ONCE,
    MAX_COMMENTS,
    MAX_RECOMMENDATIONS,
    CommentThread,
    Realized,
    Recommendation,
    RecommendationComment,
    Saving,
    TypeSettings,
    check_assignee,
    check_least_savings,
    check_least_share,
)
from spool.registry.registry_rows import RegistryRows
from spool.turns.threads import prepare_types_for_msgspec

KIND, TYPE_KIND, COMMENT_KIND = "recommendation", "recommendation_type", "recommendation_comment"
T = TypeVar("T")
KEPT_S = 90 * 86400.0  # seconds for which a closed recommendation that nobody edited is kept

_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "enabled": bool,
    "least_savings": check_least_savings,
    "least_share": check_least_share,
}


prepare_types_for_msgspec(Recommendation, TypeSettings, CommentThread)


class RecommendationTable:
    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def all(self) -> Sequence[Recommendation]:
        return await self._changes.read(lambda rows: list(_read_recommendations(rows).values()))

    async def titles_by_id(self, ids: Collection[str]) -> dict[str, str]:
        def read_titles(registry_rows: RegistryRows) -> dict[str, str]:
            bodies = {id: registry_rows.document(KIND, id) for id in ids}
            return {
                id: _decode_document(body, Recommendation).saving.title for id, body in bodies.items() if body
            }

        return await self._changes.read(read_titles)

    async def get(self, id: str) -> Recommendation:
        return await self._changes.read(lambda rows: _require_recommendation(rows, id))

    async def merge_savings(
        self,
        savings: Sequence[Saving],
        *,
        looked_for: Collection[str],
        realized: Mapping[str, Realized] | None = None,
    ) -> FindingMergeCounts:
        """
        Store a run's savings for the types `looked_for`. `realized`: by id, what addressed recommendations
        saved.

        Status, assignee and comments stay, but an addressed recommendation that is found again becomes new.
        Open recommendations that are not found are closed. Savings beyond MAX_RECOMMENDATIONS are only
        counted.
        """
        now = self._changes.now()
        by_key = {saving.key: saving for saving in savings}

        def merge_recommendations(registry_rows: RegistryRows) -> FindingMergeCounts:
            known = _read_recommendations(registry_rows)
            after = {
                id: _recommendation_after_run(recommendation, by_key, looked_for, now)
                for id, recommendation in known.items()
            }
            for id, amount in (realized or {}).items():
                if id in after:
                    after[id] = replace(after[id], realized=amount)
            old = {id for id, recommendation in after.items() if _is_old(recommendation, now)}
            for id in old:
                registry_rows.delete_document(KIND, id)
            for id in after.keys() - old:
                if after[id] != known[id]:
                    registry_rows.put_document(KIND, id, asdict(after[id]))
            keys = {recommendation.saving.key for recommendation in known.values()}
            new = [saving for key, saving in by_key.items() if key not in keys]
            room = max(0, MAX_RECOMMENDATIONS - len(known) + len(old))
            for saving in new[:room]:
                fresh = _new_recommendation(saving, now)
                registry_rows.put_document(KIND, fresh.id, asdict(fresh))
            return FindingMergeCounts(
                new=len(new[:room]),
                again=sum(recommendation.saving.key in by_key for recommendation in known.values()),
                reopened=sum(
                    after[id].status != recommendation.status for id, recommendation in known.items()
                ),
                gone=sum(
                    recommendation.is_open and not after[id].is_open for id, recommendation in known.items()
                ),
                left_out=len(new[room:]),
            )

        return await self._changes.change_rows(merge_recommendations)

    async def change_recommendations(
        self,
        ids: Sequence[str],
        *,
        status: str | None = None,
        assignee: str | None = None,
        actor: Actor,
        hidden: Container[str] = (),
    ) -> Mapping[str, Recommendation | None]:
        """
        Change the status or assignee of recommendations. Return each by id, None if it is unknown or
        `hidden`.
        """
        if not 0 < len(ids) <= MAX_AT_ONCE:
            raise Invalid(f"ids must name 1 to {MAX_AT_ONCE} recommendations")
        if status is None and assignee is None:
            raise Invalid("nothing to change: give status or assignee")
        changes = {} if status is None else {"status": check_status(status)}
        if assignee is not None:
            changes["assignee"] = check_assignee(assignee)
        now = self._changes.now()

        def change_each_recommendation(registry_rows: RegistryRows) -> Mapping[str, Recommendation | None]:
            return {
                id: None if id in hidden else _store_change(registry_rows, id, changes, now, actor)
                for id in dict.fromkeys(ids)
            }

        return await self._changes.change_rows(change_each_recommendation)

    async def comments(self, id: str) -> Sequence[RecommendationComment]:
        """Return the comments, oldest first. Raises NotThere if the recommendation does not exist."""
        return await self._changes.read(lambda rows: _read_thread(rows, id).comments)

    async def add_comments(
        self, id: str, texts: Sequence[str], *, actor: Actor
    ) -> Sequence[RecommendationComment]:
        checked = [check_comment(text) for text in texts]
        if not checked:
            raise Invalid("give at least one comment")
        now = self._changes.now()

        def add_comments(registry_rows: RegistryRows) -> Sequence[RecommendationComment]:
            thread = _read_thread(registry_rows, id)
            if len(thread.comments) + len(checked) > MAX_COMMENTS:
                raise NotAllowed(f"a recommendation can have at most {MAX_COMMENTS} comments")
            require_key_within_comment_share(
                [comment.author for comment in thread.comments], len(checked), MAX_COMMENTS, actor
            )
            added = [
                RecommendationComment(id=number, text=text, author=actor.name, created=now, last_updated=now)
                for number, text in enumerate(checked, thread.last + 1)
            ]
            _put_thread(
                registry_rows, id, CommentThread(last=added[-1].id, comments=[*thread.comments, *added]), now
            )
            for new_comment in added:
                registry_rows.add_audit(
                    now, actor, "recommendation.comment", id, after={"comment": new_comment.id}
                )
            return added

        return await self._changes.change_rows(add_comments)

    async def change_comment(
        self, id: str, comment: int, text: str, *, actor: Actor
    ) -> RecommendationComment:
        text, now = check_comment(text), self._changes.now()

        def change_comment_text(registry_rows: RegistryRows) -> RecommendationComment:
            thread = _read_thread(registry_rows, id)
            before = _find_comment(thread, comment)
            after = with_change_fields_if_changed(before, replace(before, text=text), last_updated=now)
            if after is before:
                return before
            comments = [after if candidate.id == comment else candidate for candidate in thread.comments]
            _put_thread(registry_rows, id, replace(thread, comments=comments), now)
            registry_rows.add_audit(
                now, actor, "recommendation.comment.change", id, after={"comment": comment}
            )
            return after

        return await self._changes.change_rows(change_comment_text)

    async def delete_comment(self, id: str, comment: int, *, actor: Actor) -> None:
        now = self._changes.now()

        def delete_comment_from_thread(registry_rows: RegistryRows) -> None:
            thread = _read_thread(registry_rows, id)
            before = _find_comment(thread, comment)
            comments = [candidate for candidate in thread.comments if candidate is not before]
            _put_thread(registry_rows, id, replace(thread, comments=comments), now)
            old = {"comment": comment, "author": before.author}
            registry_rows.add_audit(now, actor, "recommendation.comment.delete", id, before=old)

        await self._changes.change_rows(delete_comment_from_thread)

    async def stored_type_settings(self) -> Mapping[str, TypeSettings]:
        def read_type_settings(registry_rows: RegistryRows) -> Mapping[str, TypeSettings]:
            return {
                id: _decode_document(body, TypeSettings)
                for id, body in registry_rows.documents(TYPE_KIND).items()
            }

        return await self._changes.read(read_type_settings)

    async def change_type(self, type: str, changes: Mapping[str, Any], *, actor: Actor) -> TypeSettings:
        """Change a type's settings. Disabling a type closes its recommendations."""
        checked = {name: _CHECKS[name](value) for name, value in changes.items()}
        now = self._changes.now()

        def store_type_settings(registry_rows: RegistryRows) -> TypeSettings:
            before = _decode_document(registry_rows.document(TYPE_KIND, type) or {}, TypeSettings)
            after = with_change_fields_if_changed(before, replace(before, **checked), last_updated=now)
            if after is before:
                return before
            check_unmanaged(self._changes, registry_rows, TYPE_KIND, type)
            registry_rows.put_document(TYPE_KIND, type, asdict(after))
            old, new = ({name: getattr(state, name) for name in checked} for state in (before, after))
            registry_rows.add_audit(now, actor, "recommendation_type.change", type, before=old, after=new)
            if not after.enabled:
                for recommendation in _read_recommendations(registry_rows).values():
                    if recommendation.saving.type == type and recommendation.is_open:
                        registry_rows.put_document(
                            KIND,
                            recommendation.id,
                            asdict(replace(recommendation, is_open=False, last_updated=now)),
                        )
            return after

        return await self._changes.change_rows(store_type_settings)


def _new_recommendation(saving: Saving, now: float) -> Recommendation:
    return Recommendation(
        id=secrets.token_hex(16),
        saving=saving,
        status=NEW,
        status_at=now,
        created=now,
        last_updated=now,
        found_at=now,
    )


def _recommendation_after_run(
    before: Recommendation, savings_by_key: Mapping[str, Saving], looked_for: Collection[str], now: float
) -> Recommendation:
    saving = savings_by_key.get(before.saving.key)
    if saving is None:
        is_gone = before.is_open and before.saving.type in looked_for
        return replace(before, is_open=False, last_updated=now) if is_gone else before
    after = replace(before, saving=saving, is_open=True)
    if before.status == ADDRESSED:
        after = replace(after, status=NEW, status_at=now, promised=None, realized=None)
    if after != before:
        after = replace(after, last_updated=now)
    return replace(after, found_at=now)


def _is_old(recommendation: Recommendation, now: float) -> bool:
    return (
        not recommendation.is_open and not recommendation.touched and recommendation.found_at < now - KEPT_S
    )


def _store_change(
    registry_rows: RegistryRows, id: str, changes: Mapping[str, str], now: float, actor: Actor
) -> Recommendation | None:
    body = registry_rows.document(KIND, id)
    if body is None:
        return None
    before = _decode_document(body, Recommendation)
    after = with_change_fields_if_changed(before, replace(before, **changes), touched=True, last_updated=now)  # type: ignore[arg-type]
    if after is before:
        return before
    if after.status != before.status:
        is_done = after.status == ADDRESSED
        promised = before.saving.monthly_savings if is_done else None
        after = replace(after, status_at=now, promised=promised, realized=None)
    registry_rows.put_document(KIND, id, asdict(after))
    names = [name for name in ("status", "assignee") if getattr(before, name) != getattr(after, name)]
    old, new = ({name: getattr(recommendation, name) for name in names} for recommendation in (before, after))
    registry_rows.add_audit(now, actor, "recommendation.change", id, before=old, after=new)
    return after


def _read_thread(registry_rows: RegistryRows, id: str) -> CommentThread:
    _require_recommendation(registry_rows, id)
    return _decode_document(registry_rows.document(COMMENT_KIND, id) or {}, CommentThread)


def _put_thread(registry_rows: RegistryRows, id: str, thread: CommentThread, now: float) -> None:
    registry_rows.put_document(COMMENT_KIND, id, asdict(thread))
    registry_rows.put_document(
        KIND, id, asdict(replace(_require_recommendation(registry_rows, id), touched=True, last_updated=now))
    )


def _find_comment(thread: CommentThread, comment: int) -> RecommendationComment:
    match = next((candidate for candidate in thread.comments if candidate.id == comment), None)
    if match is None:
        raise NotThere("this recommendation has no comment with this id")
    return match


def _decode_document(body: Mapping[str, Any], type: type[T]) -> T:
    try:
        return msgspec.convert(body, type)
    except msgspec.ValidationError as error:
        raise RegistryDamaged(f"a stored recommendation cannot be read: {error}") from error


def _read_recommendations(registry_rows: RegistryRows) -> dict[str, Recommendation]:
    return {id: _decode_document(body, Recommendation) for id, body in registry_rows.documents(KIND).items()}


def _require_recommendation(registry_rows: RegistryRows, id: str) -> Recommendation:
    body = registry_rows.document(KIND, id)
    if body is None:
        raise NotThere("no recommendation has this id")
    return _decode_document(body, Recommendation)
