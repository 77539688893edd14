"""Warnings of `tollhouse check` about a valid configuration."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.configuration.problems import config_warnings
from gateway.configuration.sections import Config, PrivacySettings, WorkSettings
from gateway.configuration.server import ServerSettings


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({}, None),
        ({"chain_keys": ("site-*",), "trusted_proxies": ("10.0.0.5",), "operator_plaintext": True}, None),
        (
            {"chain_keys": ("*",)},
            "anybody with a key that may send can set the key, user and team of records",
        ),
        ({"chain_keys": ("site", "?*")}, "server.chain_keys"),
        ({"operator_plaintext": True}, "server.trusted_proxies is empty"),
    ],
)
def test_what_is_allowed_and_should_not_be(server: dict[str, Any], words: str | None) -> None:
    """The default configuration has no warnings. Each warning says what to do."""
    found = list(config_warnings(Config(server=ServerSettings(**server))))
    assert bool(words) == bool(found)
    assert words is None or words in found[0]


@pytest.mark.parametrize(
    ("privacy", "work", "names"),
    [
        ({"works_council": False}, {}, []),
        ({"works_council": True, "min_group": 5}, {"people": False, "branch": "drop"}, []),
        ({"works_council": True, "min_group": 6}, {"people": False, "branch": "drop"}, []),
        ({"works_council": True, "min_group": 4}, {"people": False, "branch": "drop"}, ["privacy.min_group"]),
        (
            {"works_council": True, "emails": "keep"},
            {"branch": "hash"},
            ["privacy.emails", "privacy.min_group", "work.people", "work.branch"],
        ),
    ],
)
def test_settings_weaker_than_works_councils_require_give_a_warning(
    privacy: dict[str, Any], work: dict[str, Any], names: list[str]
) -> None:
    found = list(config_warnings(Config(privacy=PrivacySettings(**privacy), work=WorkSettings(**work))))
    assert bool(names) == bool(found)
    assert not names or found[0].startswith(f"{', '.join(names)}: ")
