"""Settings of assistants that cannot run are named by their keys."""

from __future__ import annotations

import pytest

from gateway.mcp.tools.list import TOOLS
from gateway.service.configuration.assistants import TOOL_NAMES
from gateway.service.configuration.problems import problems
from gateway.service.configuration.sections import Config, McpOAuthSettings, McpSettings, OidcSettings


def test_every_tool_can_be_named() -> None:
    assert tuple(TOOLS) == TOOL_NAMES


@pytest.mark.parametrize(("name", "hint"), [("get_cost_dat", "get_cost_data"), ("all", "one of")])
def test_a_name_that_is_no_tool_is_a_mistake(name: str, hint: str) -> None:
    """Else it would switch nothing, in silence."""
    [problem] = problems(Config(mcp=McpSettings(tools={name: False, "log_insight": True})))
    assert problem.startswith("mcp.tools: ") and name in problem and hint in problem


OIDC = OidcSettings(
    issuer="https://idp.example.com", client_id="tollhouse", console="https://tollhouse.example.com/console/"
)
RESOURCE = "https://tollhouse.example.com/mcp"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"resource": "http://127.0.0.1:4318/mcp"}, None),
        ({"resource": f"{RESOURCE}/people", "audiences": ("guid",), "clients": ("a",)}, None),
        ({"resource": "http://tollhouse.example.com/mcp"}, "mcp.oauth.resource must be an address"),
        ({"resource": f"{RESOURCE}/"}, "mcp.oauth.resource ends with"),
        ({"resource": f"{RESOURCE}?a=/mcp"}, "mcp.oauth.resource ends with"),
        ({"resource": "", "read_scope": "r"}, "mcp.oauth.resource is required"),
        ({"audiences": ("tollhouse",)}, "mcp.oauth.audiences must not have oidc.client_id"),
        ({"audiences": ("",)}, "hold no empty text"),
        ({"read_scope": "a b"}, "mcp.oauth.read_scope is 1 to 100"),
        ({"write_scope": 'a"'}, "mcp.oauth.write_scope is 1 to 100"),
        ({"write_scope": "tollhouse.read"}, "must differ"),
        ({"max_life": 7 * 86_400.0}, None),
        ({"max_life": 7 * 86_400.0 + 1}, "mcp.oauth.max_life must be at most 7d"),
    ],
)
def test_each_rule_of_people_has_its_words(changes: dict[str, object], words: str | None) -> None:
    """At the edge, too."""
    oauth = McpOAuthSettings(**{"resource": RESOURCE, **changes})  # type: ignore[arg-type]
    found = list(problems(Config(mcp=McpSettings(oauth=oauth), oidc=OIDC)))
    assert found == [] if words is None else [True] == [words in each for each in found]


def test_people_need_a_provider() -> None:
    """Tollhouse signs nobody in itself."""
    found = list(problems(Config(mcp=McpSettings(oauth=McpOAuthSettings(resource=RESOURCE)))))
    assert ["mcp.oauth.resource needs [oidc]: its provider signs people in"] == found
