"""Warnings of `tollhouse check` about a valid configuration."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.configuration.problems import warnings
from gateway.configuration.sections import Config, ServerSettings


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
    found = list(warnings(Config(server=ServerSettings(**server))))
    assert bool(words) == bool(found)
    assert words is None or words in found[0]
