"""Free metadata of a call: user, team and session, and the values that become tags."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.normalise.reading import metadata, tags
from spool.record import Inference


def test_metadata_names_who_and_leaves_tags() -> None:
    """
    A map sets user, team and session, and scalars become tags. Nested values, content, credentials and e-mail
    addresses are dropped.
    """
    record = Inference(id=b"", source="test")
    free = metadata.CallMetadata()
    free.add_caller_and_tags(
        {
            "user_id": 7,
            "teamId": "search",
            "session": "s",
            "env": "prod",
            "test": True,
            "n": Decimal("1.5"),
            "none": None,
            "nested": {"a": 1},
            "prompt": "CANARY",
            "api_key": "CANARY",
            "note": "sk-abcdefghijklmnop",
            "x.content": "CANARY",
            "masked": "sk********pqr",
            "chat_history": "CANARY",
            "userEmail": "somebody at home",
        }
    )
    free.fill_record(record, principal="alice")
    assert record.user == "alice"
    assert record.team == "search"
    assert record.session == "s"
    assert {"env": "prod", "test": "true", "n": "1.5", "end_user": "7"} == record.tags
    assert 8 == free.left_out


def test_names_of_any_length_are_not_remembered() -> None:
    """Long names are not cached, because a sender could fill the memory with them."""
    free = metadata.CallMetadata()
    names: Any = tags.is_name_of_secret
    names.__self__.clear()
    free.add_caller_and_tags({"x" * 65: "1", "y" * 10**6: "1", "z": "1"})
    assert free.tags == {"z": "1"}
    assert free.left_out == 2
    assert 1 == len(names.__self__)


def test_a_list_of_tags_is_cut_at_the_first_colon() -> None:
    """A tag without a colon has the value "true"."""
    free = metadata.CallMetadata()
    free.add_labels_as_tags(["env:prod", "url:http://x", "beta", 3, {"a": 1}])
    assert {"env": "prod", "url": "http://x", "beta": "true"} == free.tags
    assert 2 == free.left_out


@pytest.mark.parametrize(
    "value",
    [
        "sk-proj-abcdefgh12345678",
        "sk-...abcd",
        "ab********xyz",
        "Bearer abc",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGci.eyJzdWIi.x",
    ],
)
def test_a_key_is_never_named_by_itself(value: str) -> None:
    """
    A secret key, or a part of it, is never stored as the name of the key. The next candidate for the name is used
    instead.
    """
    assert "alias" == metadata.first_key_name(value, "alias")
    assert metadata.first_key_name(value) is None


@pytest.mark.parametrize(
    "value",
    [
        "alpha-prod-key",
        "941875b27e83f6bffca0a295a1195d0a1fa08445b0715d7e29feb88761962645",
        "fixture key",
        "my-vk",
    ],
)
def test_an_alias_or_a_hash_names_a_key(value: str) -> None:
    """An alias or a hash may be stored as the name of a key, because it does not look like a credential."""
    assert value == metadata.first_key_name(value)
