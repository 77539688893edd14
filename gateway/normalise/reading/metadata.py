"""
Free metadata of a call: its user, team and session, and the values that may become tags.

Tags are limited in size and never content (`gateway.normalise.reading.tags`). Callers also put credentials
and e-mail addresses into metadata. These never become tags, except the address of the authenticated
principal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.normalise.reading.tags import MAX_NAME, is_credential, is_name_of_secret, put_tag_if_allowed
from gateway.normalise.reading.values import dict_or_empty, text_or_none
from spool.people import USER_EMAIL, is_address
from spool.record import Inference

_USER = ("user_id", "userId", "user", "_user")
_TEAM = ("team_id", "teamId", "team")
_SESSION = ("session_id", "sessionId", "session")
_RUN = ("tollhouse.run", "run_id")
_PARENT_RUN = ("tollhouse.parent_run", "parent_run_id")
_WHO = frozenset((*_USER, *_TEAM, *_SESSION))

# Matches the text in which Claude Code names its installation, account and session. Newer releases write
# these facts as JSON.
_INSTALLATION = re.compile(
    r"user_(?P<device_id>\w+?)_account_(?P<account_uuid>[\w-]*?)_session_(?P<session_id>[\w-]+)"
)


class WorkFields(msgspec.Struct):
    """
    Fields for units of work, such as a repository, which operators may add to a gateway's log under these
    names.
    """

    repository: Any = None
    branch: Any = None
    commit: Any = None
    pull_request: Any = None
    ticket: Any = None
    run_id: Any = None
    parent_run_id: Any = None


@dataclass(slots=True)
class CallMetadata:
    user: str | None = None
    team: str | None = None
    session: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    left_out: int = 0

    def add_tag(self, name: str, value: Any) -> None:
        """Add a tag, or count the value as dropped if it may not be a tag. Empty values are ignored."""
        if value is None or value == "":
            return
        if (
            not _may_be_tag_name(name)
            or is_credential(value)
            or not put_tag_if_allowed(self.tags, name, value)
        ):
            self.left_out += 1

    def add_labels_as_tags(self, words: Iterable[Any]) -> None:
        """
        Add words as tags. A word such as `k:v` is split at the first colon. Other words get the value `true`.
        """
        for word in words:
            if not isinstance(word, str):
                self.left_out += 1
                continue
            name, colon, value = word.partition(":")
            self.add_tag(name, value if colon else "true")

    def add_caller_and_tags(self, reported_fields: Mapping[str, Any]) -> None:
        self.user = self.user or _first_text(reported_fields, _USER)
        self.team = self.team or _first_text(reported_fields, _TEAM)
        self.session = self.session or _first_text(reported_fields, _SESSION)
        for name, value in reported_fields.items():
            if name not in _WHO:
                self.add_tag(name, value)

    def add_work_fields(self, logged: WorkFields) -> None:
        for name in WorkFields.__struct_fields__:
            self.add_tag(name, text_or_none(getattr(logged, name)))

    def fill_record(
        self,
        record: Inference,
        *,
        principal: str | None = None,
        email: str | None = None,
        end_user: str | None = None,
    ) -> None:
        """
        Fill the record's caller and tags. An authenticated principal takes precedence over a user that the
        caller names. `email` is the principal's address.
        """
        if email is not None and not is_address(email):
            email = None
        principal = principal or email
        supplied, session = _split_user_and_session(end_user or self.user)
        if is_credential(supplied):
            supplied = None
            self.left_out += 1
        if principal and supplied:
            self.add_tag("end_user", supplied)
        record.user = principal or supplied
        record.team = record.team or self.team
        record.session = record.session or self.session or session
        record.tags = self.tags
        if email is not None and email != principal:
            self.left_out += not put_tag_if_allowed(record.tags, USER_EMAIL, email)
        fill_run_from_tags(record)


def fill_run_from_tags(record: Inference) -> None:
    if record.run is None:
        record.run, record.parent_run = _first_text(record.tags, _RUN), _first_text(record.tags, _PARENT_RUN)


def first_key_name(*values: Any) -> str | None:
    """
    Return the first value that is a key's name. Values that are the key itself or a part of it are skipped.
    """
    for value in values:
        if (shown_name := text_or_none(value)) is not None and not is_credential(shown_name):
            return shown_name
    return None


def _split_user_and_session(end_user: str | None) -> tuple[str | None, str | None]:
    if end_user is None or "session" not in end_user:
        return end_user, None
    match = _INSTALLATION.fullmatch(end_user)
    fields = dict_or_empty(end_user) if match is None else match.groupdict()
    session = text_or_none(fields.get("session_id"))
    user = text_or_none(fields.get("account_uuid")) or text_or_none(fields.get("device_id"))
    return (end_user, None) if session is None or user is None else (user, session)


def _may_be_tag_name(name: str) -> bool:
    # limit the length, because results are cached by name and senders choose the names
    return len(name) <= MAX_NAME and "email" not in name.lower() and not is_name_of_secret(name)


def _first_text(reported_fields: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next(
        (value for name in names if (value := text_or_none(reported_fields.get(name))) is not None), None
    )
