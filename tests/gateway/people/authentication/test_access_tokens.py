"""Scopes, clients and groups in access tokens of several identity providers."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.people.authentication.oidc.tokens import has_groups_left_out_of_token, has_scope, token_client


@pytest.mark.parametrize(
    ("scope", "claims", "expected"),
    [
        ("tollhouse.read", {"scope": "openid tollhouse.read"}, True),
        ("tollhouse.read", {"scp": ["tollhouse.read"]}, True),
        ("api://tollhouse/tollhouse.read", {"scp": "tollhouse.read"}, True),
        ("api://tollhouse/tollhouse.read", {"scope": "api://tollhouse/tollhouse.read"}, True),
        ("tollhouse.read", {"scope": "api://other/tollhouse.read"}, False),
        ("tollhouse.read", {"scope": "tollhouse.reader"}, False),
        ("tollhouse.read", {"scope": 7}, False),
        ("tollhouse.read", {}, False),
    ],
)
def test_scopes(scope: str, claims: dict[str, Any], expected: bool) -> None:
    """
    A scope is accepted by its full name, or by the bare name that Entra sends. A scope of another resource
    does not count.
    """
    assert expected == has_scope(claims, scope)


def test_clients_and_groups() -> None:
    """
    A client's name must be one line, because it is written to the audit list. A token may state that its
    groups are elsewhere.
    """
    clients: list[dict[str, Any]] = [{"client_id": "a"}, {"azp": "b"}, {"azp": "c\nd"}, {"azp": 1}, {}]
    assert ["a", "b", "", "", ""] == [token_client(each) for each in clients]
    signs: list[dict[str, Any]] = [
        {"_claim_names": {"groups": "s"}}, {"hasgroups": "true"}, {"_claim_names": {}}, {},
    ]  # fmt: skip
    assert [True, True, False, False] == [has_groups_left_out_of_token(each, "groups") for each in signs]
