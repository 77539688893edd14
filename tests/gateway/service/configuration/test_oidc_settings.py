"""What [oidc] must keep to: each problem in the words of the settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.service.configuration.problems import problems
from gateway.service.configuration.sections import Config, OidcSettings

GOOD = OidcSettings(
    issuer="https://idp.example.com", client_id="tollhouse", console="https://tollhouse.example.com/console/"
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"issuer": "http://127.0.0.1:8080", "console": "http://localhost:4318/console/"}, None),
        ({"issuer": "http://idp.example.com"}, "oidc.issuer must be an address with https"),
        ({"issuer": "https://user@idp.example.com"}, "oidc.issuer must be"),
        ({"issuer": "https://[::1"}, "oidc.issuer must be"),
        ({"issuer": ""}, "oidc.issuer is required"),
        ({"console": ""}, "oidc.console must be an address with https"),
        ({"console": "http://tollhouse.example.com/console/"}, "oidc.console must be an address with https"),
        ({"console": "https://tollhouse.example.com/"}, 'oidc.console ends with "/console/"'),
        ({"client_id": ""}, "oidc.client_id is required"),
        ({"scopes": ("email",)}, "oidc.scopes must have openid"),
        ({"clock_skew": 300.0}, None),
        ({"clock_skew": 301.0}, "oidc.clock_skew must be at most 5m"),
        ({"session": 43_200.0}, None),
        ({"session": 43_201.0}, "oidc.session must be at most 12h"),
        ({"roles": {"staff": "root"}}, "oidc.roles.staff: 'root' is not known"),
        ({"proxy": "proxy:3128"}, "oidc.proxy must begin with http"),
    ],
)
def test_each_rule_has_its_words(changes: dict[str, object], words: str | None) -> None:
    """At the edge, too."""
    found = list(problems(Config(oidc=replace(GOOD, **changes))))  # type: ignore[arg-type]
    if words is None:
        assert [] == found
    else:
        assert [text for text in found if text.startswith(words)], found
