"""Attribution: which team and user a call belongs to, by order of trust, without e-mail addresses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.configuration.attribution import SourceSettings
from gateway.configuration.reader import load_config
from gateway.configuration.sections import Config, PrivacySettings
from gateway.configuration.values import ConfigError
from gateway.intake.attribution import RecordAttributor
from spool.record import Inference, UsageMetric


def call(**fields: object) -> Inference:
    return Inference(id=b"\0" * 16, source="litellm", **fields)  # type: ignore[arg-type]


def from_toml(tmp_path: Path, text: str) -> RecordAttributor:
    path = tmp_path / "tollhouse.toml"
    path.write_text(text)
    return RecordAttributor(load_config(path, env={}))


def who(record: Inference) -> tuple[str | None, str | None, Mapping[str, str]]:
    return record.team, record.user, record.tags


def test_report_has_priority_over_labels() -> None:
    """
    Labels fill only null fields of the report. Labels of the key have priority over those of the device.
    """
    record = call(team="said", tags={"env": "said"})
    RecordAttributor(Config()).attribute_record(
        record,
        {"team": "key", "user": "key", "env": "key", "site": "key"},
        {"user": "device", "site": "device", "room": "device"},
    )
    assert ("said", "key", {"env": "said", "site": "key", "room": "device"}) == who(record)


@pytest.mark.parametrize(
    ("source", "service", "expected"),
    [("vercel_ai", "opencode", "ada"), ("vercel_ai", "shop", "unknown"), ("otel", "opencode", "unknown")],
)
def test_opencode_calls_a_person_without_a_name_unknown(source: str, service: str, expected: str) -> None:
    record = Inference(id=b"\0" * 16, source=source, user="unknown", tags={"service": service})
    RecordAttributor(Config()).attribute_record(record, {"user": "ada"})
    assert expected == record.user


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('match = {api_key = "search-*"}\nset = {team = "search"}', ("search", None, {})),
        ('match = {api_key = "search-prod"}\nset = {user = "robot"}', (None, "robot", {})),
        ('match = {api_key = "search"}\nset = {team = "search"}', (None, None, {})),
        ('match = {model = "gpt-*"}\nset = {team = "chat"}', ("chat", None, {})),
        ('match = {model = "gpt-4o-2024-08-06"}\nset = {team = "chat"}', ("chat", None, {})),
        ('match = {user = "*"}\nset = {team = "somebody"}', (None, None, {})),
        ('match = {device = "lap-*", model = "claude*"}\nset = {team = "x"}', (None, None, {})),
        ('match = {device = "lap-*"}\nset = {tags = {site = "berlin"}}', (None, None, {"site": "berlin"})),
    ],
)
def test_rules(tmp_path: Path, rule: str, expected: tuple[object, ...]) -> None:
    """
    A rule fills null fields if all its conditions match. A trailing star matches any ending of a known value.
    """
    record = call(
        api_key="search-prod", device="lap-7", request_model="gpt-4o", response_model="gpt-4o-2024-08-06"
    )
    from_toml(tmp_path, f"[[attribution]]\n{rule}").attribute_record(record, {})
    assert expected == who(record)


def test_rules_match_tags_and_keep_their_order(tmp_path: Path) -> None:
    """The first matching rule fills a field, and labels have priority over rules."""
    attribution = from_toml(
        tmp_path,
        """
        [[attribution]]
        match = {tag = {service = "shop-*"}}
        set = {team = "shop"}
        [[attribution]]
        match = {tag = {service = "*"}}
        set = {team = "platform"}
        """,
    )
    records = [call(tags={"service": "shop-web"}), call(tags={"service": "mail"}), call()]
    labelled = call(tags={"service": "mail"})
    for record in records:
        attribution.attribute_record(record, {})
    attribution.attribute_record(labelled, {"team": "key"})
    assert ["shop", "platform", None, "key"] == [record.team for record in [*records, labelled]]


def test_siblings_do_not_share_what_was_added() -> None:
    """Records of one payload may share a tags object, so additions must copy it."""
    shared = {"service": "a"}
    first, second = call(tags=shared), call(tags=shared)
    RecordAttributor(Config()).attribute_record(first, {"site": "berlin"})
    assert first.tags == {"service": "a", "site": "berlin"}
    assert second.tags == {"service": "a"}


def test_labels_obey_the_bounds_of_tags() -> None:
    """A label becomes no tag if its name is one of content, or if the record already has 32 tags."""
    record = call(tags={f"t{number}": "x" for number in range(31)})
    RecordAttributor(Config()).attribute_record(record, {"prompt": "no", "site": "yes", "room": "too many"})
    assert "prompt" not in record.tags
    assert len(record.tags) == 32
    assert record.tags.get("site") == "yes"
    assert record.tags.get("room") is None


def test_sources_that_do_not_count() -> None:
    """With `count = false`, calls and counters of the source are kept only for reference."""
    attribution = RecordAttributor(Config(sources={"claude_code": SourceSettings(count=False)}))
    records: list[Inference | UsageMetric] = [
        Inference(id=b"", source="claude_code"),
        UsageMetric(id=b"", source="claude_code", name="n"),
        Inference(id=b"", source="litellm"),
    ]
    for record in records:
        attribution.attribute_record(record, {})
    assert [True, True, False] == [record.shadow for record in records]


@pytest.mark.proves("An e-mail address becomes a user id")
def test_emails_are_hashed() -> None:
    """
    An e-mail address in any field or tag becomes a stable pseudonym. Similar values, such as Git addresses, stay.
    """
    record = call(
        user="Ann.Lee@Example.com",
        session="ann.lee@example.com",
        api_key="key-1",
        run="ann.lee@example.com",
        parent_run="bob@example.com",
        ancestors="0102030405060708 ann.lee@example.com",
        tags={"end_user": "ann.lee@example.com", "repo": "git@example.com:a/b", "package": "react@18.2.0"},
    )
    RecordAttributor(Config(), secret=b"s").attribute_record(record, {})
    assert record.user is not None and record.user.startswith("email:") and len(record.user) == 38
    assert {record.user} == {record.session, record.run, record.tags["end_user"]}
    assert record.parent_run is not None and record.parent_run.startswith("email:")
    assert f"0102030405060708 {record.user}" == record.ancestors
    assert record.api_key == "key-1"
    assert record.tags["repo"] == "git@example.com:a/b"
    assert record.tags["package"] == "react@18.2.0"


@pytest.mark.parametrize("field", ["user", "session", "run", "parent_run", "ancestors", "api_key", "team"])
def test_one_address_is_enough(field: str) -> None:
    """An e-mail address in one field is replaced by a pseudonym even if no other field has an address."""
    record = call(**{field: "ann@example.com"})
    RecordAttributor(Config(), secret=b"s").attribute_record(record, {})
    assert getattr(record, field).startswith("email:")


def test_a_label_names_a_repository_as_reporters_do() -> None:
    """
    The address of a repository becomes owner and name, without credentials. An address with unclear credentials is
    left out.
    """
    for address, name in (
        ("https://ann:secret@example.com/acme/shop.git", "acme/shop"),
        ("acme/shop", "acme/shop"),
        ("ann:secret@example.com", None),
    ):
        record = call()
        RecordAttributor(Config()).attribute_record(record, {"repository": address})
        assert record.tags.get("repository") == name


def test_a_pseudonym_is_not_hashed_again() -> None:
    """A pseudonym is not hashed again by the next gateway of a chain, although its secret is different."""
    record = call(user="ann@example.com")
    RecordAttributor(Config(), secret=b"one").attribute_record(record, {})
    first = record.user
    RecordAttributor(Config(), secret=b"two").attribute_record(record, {})
    assert first == record.user


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("drop", (None, {"a": "b"})), ("keep", ("ann@example.com", {"a": "b", "who": "x@y.org"}))],
)
def test_other_policies(policy: str, expected: tuple[object, ...]) -> None:
    """`drop` removes the address. `keep` stores it in lower case, so that a person is one user."""
    record = call(user="Ann@example.com", tags={"a": "b", "who": "x@y.org"})
    RecordAttributor(Config(privacy=PrivacySettings(emails=policy))).attribute_record(record, {})
    assert expected == (record.user, record.tags)


def test_rules_see_addresses_and_labels_are_protected(tmp_path: Path) -> None:
    """
    Rules may match addresses, and labels and rules may set addresses. All addresses are hashed afterwards.
    """
    record = call(user="ann@example.com")
    text = '[[attribution]]\nmatch = {user = "ann@example.com"}\nset = {team = "t", tags = {boss = "eve@example.com"}}'
    from_toml(tmp_path, text).attribute_record(record, {})
    assert record.team == "t"
    assert record.tags["boss"].startswith("email:")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[[attribution]]\nset = {team = "x"}',
            "attribution[0].match needs api_key, user, device, model or tag",
        ),
        ('[[attribution]]\nmatch = {user = "x"}', "attribution[0].set needs team, user or tags"),
        (
            '[[prices.override]]\nmodel = "m"\ninput = "1"\nsince = "2026-13-01"',
            'since must be a day such as "2026-11-20"',
        ),
    ],
)
def test_rules_that_say_nothing(tmp_path: Path, text: str, problem: str) -> None:
    """A rule without a condition or an effect is rejected."""
    with pytest.raises(ConfigError, match=problem.replace("[", r"\[").replace("]", r"\]")):
        from_toml(tmp_path, text)


def test_a_text_of_several_words_names_no_unit() -> None:
    """A sentence may be content, so it is no repository and no run. The rule is the same for all units."""
    record = call(
        run="summarize the plan of Ann", parent_run="run-1", tags={"repository": "summarize the plan"}
    )
    RecordAttributor(Config()).attribute_record(record, {})
    assert (None, "run-1", {}) == (record.run, record.parent_run, record.tags)


@pytest.mark.parametrize("stated", ["CY@example.com", " cy@example.com", "cy@EXAMPLE.com"])
@pytest.mark.parametrize("pattern", ["cy@example.com", "Cy@Example.com", "CY@EX*"])
def test_a_rule_matches_every_spelling_of_an_address(tmp_path: Path, pattern: str, stated: str) -> None:
    """An e-mail address may be the user itself, or a second name next to an account."""
    rules = from_toml(
        tmp_path, f'[[attribution]]\nmatch = {{user = "{pattern}"}}\nset = {{team = "search"}}\n'
    )
    for record in (call(user=stated), call(user="uuid-1", tags={"user_email": stated})):
        rules.attribute_record(record, {})
        assert "search" == record.team
