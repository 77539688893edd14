"""
Attribution of records to users and teams. A user or team in the report itself takes precedence, then the
labels of the key and of the device, then the operator's rules.

Attribution also applies `privacy.emails`: unless configured, an id that is an e-mail address is hashed or
dropped. If a report states an address besides the user, it is a second name of that person. Names of branches
follow `work.branch`. Units of work get one name for all reporters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from gateway.configuration.attribution import AttributionRule, SourceSettings
from gateway.normalise.assistants import assistant_of_source
from gateway.normalise.reading.repositories import NAMED, unify_work_tags
from gateway.normalise.reading.tags import put_label_unless_content
from gateway.people.authentication.bearer import NO_LABELS, Labels
from spool.erasure import Renaming, rename_person, time_of_new_call
from spool.log.pending_spans import GivenValues, SpanStep
from spool.people import (
    BRANCH,
    KEEP,
    LATEST,
    STORED_BEFORE,
    USER_EMAIL,
    People,
    PersonNameLinks,
    fold_address,
    is_address,
    is_hash_address_or_pseudonym,
)
from spool.record import AiRecord, Inference, Record, UsageEvent

# user name that opencode sends with each call if its settings name no user
_OPENCODE, _NOBODY = "opencode", "unknown"
_IDS = ("user", "api_key", "session", "team", "run", "parent_run")
_MAY_NAME = frozenset(
    ("user", "api_key", "team")
)  # the other ids name work, so the Tollhouse above links none of them


class EmailRule(Protocol):
    @property
    def emails(self) -> str: ...


class BranchRule(Protocol):
    @property
    def branch(self) -> str: ...


class AttributionConfig(Protocol):
    """The sections of the configuration that this module reads."""

    @property
    def privacy(self) -> EmailRule: ...

    @property
    def work(self) -> BranchRule: ...

    @property
    def attribution(self) -> Sequence[AttributionRule]: ...

    @property
    def sources(self) -> Mapping[str, SourceSettings]: ...


class RecordAttributor:
    """
    Fills in empty user, team and tag fields of records, in place.

    Gateways with the same `secret` of the installation compute the same hash for a person.
    """

    def __init__(
        self, config: AttributionConfig, *, secret: bytes = b"", persons: PersonNameLinks | None = None
    ) -> None:
        self._secret = secret
        self._persons = PersonNameLinks() if persons is None else persons
        self.configure(config)
        self._persons.add_watcher(lambda: self.configure(self._config))

    def configure(self, config: AttributionConfig) -> None:
        self._config = config
        self._people = People.for_installation(self._secret, config.privacy.emails, self._persons)
        self._rules = [_Rule(rule, self._people) for rule in config.attribution]
        self._shadows = frozenset(name for name, source in config.sources.items() if not source.count)
        self._branches = config.work.branch

    def attribute_record(self, record: AiRecord, labels: Labels, device_labels: Labels = NO_LABELS) -> None:
        """
        Attribute one record, in place. Several records may share one dict of tags, so tags are changed in a
        copy.
        """
        if (
            record.user == _NOBODY
            and assistant_of_source(record.source, record.tags.get("service")) == _OPENCODE
        ):
            record.user = None
        if labels:
            _fill_missing(record, labels)
        if device_labels:
            _fill_missing(record, device_labels)
        for rule in self._rules:
            if rule.matches(record):
                _fill_missing(record, rule.set)
        if record.source in self._shadows:
            record.shadow = True
        self.apply_person_name_settings(record)

    def apply_person_name_settings(self, record: AiRecord) -> None:
        """Apply the settings for names of people. Applying them again changes nothing."""
        if not NAMED.isdisjoint(record.tags):
            record.tags = unify_work_tags(record.tags)
        if isinstance(record, Inference) and (record.run is not None or record.parent_run is not None):
            record.run, record.parent_run = (
                _name_if_one_word(record.run),
                _name_if_one_word(record.parent_run),
            )
        self._apply_email_setting(record)
        if self._branches != KEEP and BRANCH in record.tags:
            record.tags = self._tags_with_hashed_or_no_git_branch(record.tags)
        if renaming := self.erased_name_renaming:
            rename_person(record, renaming, time_of_new_call(record))

    def erase_if_unconfirmed(self, record: Record, lower_installation: str | None) -> None:
        """
        Rename people whose erasure the sender, an agent or gateway below, has not confirmed. What it stored until
        then is from before the erasure, whatever its start.
        """
        erased = self._persons.unconfirmed.get(lower_installation or "")
        if erased is not None:
            rename_person(record, partial(self._people.pseudonym, erased=erased), STORED_BEFORE)

    def attribute_steps(self, steps: list[SpanStep]) -> list[SpanStep]:
        """
        Return steps of traces (spans that are no calls) after the configured rules for users, teams and tags
        were applied. The labels of keys and devices are not applied.
        """
        attributed = {
            given: self._values_after_attribution(given)
            for given in {step[4] for step in steps}
            if given is not None
        }
        if not attributed:
            return steps
        return [
            (trace, span, above, kind, None if given is None else attributed[given])
            for trace, span, above, kind, given in steps
        ]

    def _values_after_attribution(self, given_values: GivenValues) -> GivenValues:
        user, team, session, api_key, tags = given_values
        record = Inference(
            id=b"", source="", user=user, team=team, session=session, api_key=api_key, tags=dict(tags)
        )
        self.attribute_record(record, NO_LABELS)
        values = (record.user, record.team, record.session, record.api_key)
        return GivenValues(*values, tags=tuple(record.tags.items()))

    @property
    def erased_name_renaming(self) -> Renaming | None:
        """
        Return the function that replaces names of erased people in late reports, or None if nobody was
        erased.
        """
        return self._people.pseudonym if self._persons.erased.keys else None

    @property
    def has_rules(self) -> bool:
        return bool(self._rules)

    def default_user(self, record: AiRecord, labels: Labels, device_labels: Labels = NO_LABELS) -> str | None:
        """Return the user for reports of this sender that name no user."""
        if not (labels or device_labels or self._rules):
            return None
        rules = (rule.set["user"] for rule in self._rules if "user" in rule.set and rule.matches(record))
        user = labels.get("user", device_labels.get("user")) or next(rules, None)
        return None if user is None else self._people.text_for_record(user, _start_time_ns(record))

    def apply_to_event(self, event: UsageEvent, labels: Mapping[str, str]) -> None:
        """
        Attribute an event, in place. Labels become tags that the event lacks, and settings for names of
        people apply.
        """
        for name, value in labels.items():
            if name not in event.tags:
                put_label_unless_content(event.tags, name, value)
        if event.source in self._shadows:
            event.shadow = True
        at = _start_time_ns(event)
        if event.subject is not None:
            event.subject = self._people.text_for_record(event.subject, at)
        event.tags = self._people.texts_for_record(event.tags, at)
        texts = {name: value for name, value in event.data.items() if isinstance(value, str)}
        protected = self._people.texts_for_record(texts, at)
        if self._branches != KEEP:
            event.tags, protected = (
                self._tags_with_hashed_or_no_git_branch(event.tags),
                self._tags_with_hashed_or_no_git_branch(protected),
            )
        for name in texts.keys() - protected.keys():
            del event.data[name]
        event.data.update(protected)
        if renaming := self.erased_name_renaming:
            rename_person(event, renaming, time_of_new_call(event))

    def _tags_with_hashed_or_no_git_branch(self, tags: Mapping[str, str]) -> dict[str, str]:
        protected = dict(tags)
        branch = protected.pop(BRANCH, None)
        carried = None if branch is None else self._people.recorded_git_branch(branch, self._branches)
        return protected if carried is None else {**protected, BRANCH: carried}

    def _apply_email_setting(self, record: AiRecord) -> None:
        user, session, api_key, team = record.user, record.session, record.api_key, record.team
        run = parent = ancestors = None
        if isinstance(record, Inference):
            run, parent, ancestors = record.run, record.parent_run, record.ancestors
        if not (
            (user is not None and "@" in user)
            or (session is not None and "@" in session)
            or (team is not None and "@" in team)
            or (api_key is not None and "@" in api_key)
            or (run is not None and "@" in run)
            or (parent is not None and "@" in parent)
            or (ancestors is not None and "@" in ancestors)
            or "@" in "".join(record.tags.values())
        ):
            return
        at = _start_time_ns(record)
        for name in _IDS:
            value = getattr(record, name, None)
            if value is not None and "@" in value:
                setattr(record, name, self._people.text_for_record(value, at if name in _MAY_NAME else None))
        if ancestors is not None and isinstance(record, Inference):
            carried = map(self._people.text_for_record, ancestors.split())
            record.ancestors = " ".join(filter(None, carried)) or None
        if any("@" in value for value in record.tags.values()):
            record.tags = self._people.texts_for_record(record.tags, at)


class _Rule:
    def __init__(self, rule: AttributionRule, people: People) -> None:
        match = rule.match
        patterns = {"api_key": match.api_key, "device": match.device}
        self._fields = [(name, _pattern_test(value, people)) for name, value in patterns.items() if value]
        self._user = (
            _pattern_test(match.user, people, people.linked_names(match.user)) if match.user else None
        )
        self._model = _pattern_test(match.model, people) if match.model else None
        self._tags = [(name, _pattern_test(value, people)) for name, value in match.tag.items()]
        self.set: Mapping[str, str] = dict(rule.set.tags)
        if rule.set.team:
            self.set = {**self.set, "team": rule.set.team}
        if rule.set.user:
            self.set = {**self.set, "user": rule.set.user}

    def matches(self, record: AiRecord) -> bool:
        if not all(_is_known_and_passes(test, getattr(record, name)) for name, test in self._fields):
            return False
        user = self._user
        if user is not None and not any(
            _is_known_and_passes(user, name) for name in (record.user, record.tags.get(USER_EMAIL))
        ):
            return False
        model = self._model
        if model is not None and not any(_is_known_and_passes(model, name) for name in _model_names(record)):
            return False
        return all(_is_known_and_passes(test, record.tags.get(name)) for name, test in self._tags)


def _fill_missing(record: AiRecord, labels: Mapping[str, str]) -> None:
    """
    Fill missing fields from labels. Labels other than `team` and `user` become tags unless the record has
    such a tag.
    """
    missing = {}
    for name, value in labels.items():
        if name == "team":
            record.team = record.team if record.team is not None else value
        elif name == "user":
            record.user = record.user if record.user is not None else value
        elif name not in record.tags:
            missing[name] = value
    if missing:
        tags = dict(record.tags)
        for name, value in missing.items():
            put_label_unless_content(tags, name, value)
        record.tags = tags


def _pattern_test(pattern: str, people: People, linked: Collection[str] = ()) -> Callable[[str], bool]:
    """
    Return a test for names. Unless the pattern ends with `*`, all forms of an e-mail address match. If the
    pattern is one of several `linked` names of a person, each of them matches.
    """
    if pattern.endswith("*"):
        beginning = pattern[:-1]
        lower = beginning.lower()
        return lambda value: (
            value.startswith(beginning) or (is_address(value) and fold_address(value).startswith(lower))
        )
    if not (linked or is_hash_address_or_pseudonym(pattern)):
        return pattern.__eq__
    wanted = {people.identity_of_name(name) for name in (pattern, *linked)}
    return lambda value: people.identity_of_name(value) in wanted


def _is_known_and_passes(test: Callable[[str], bool], value: str | None) -> bool:
    return value is not None and test(value)


def _start_time_ns(record: AiRecord | UsageEvent) -> int:
    return LATEST if record.start_time is None else record.start_time


def _name_if_one_word(name: str | None) -> str | None:
    """Return a name of one word, because a text of several words may be content."""
    return name if name is not None and len(name.split()) == 1 else None


def _model_names(record: AiRecord) -> tuple[str | None, ...]:
    return (record.response_model, record.request_model) if isinstance(record, Inference) else (record.model,)
