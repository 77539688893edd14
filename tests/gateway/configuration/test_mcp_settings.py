"""Settings of assistants that cannot run are named by their keys."""

from __future__ import annotations

import pytest

from gateway.configuration.assistants import TOOL_NAMES
from gateway.configuration.problems import problems
from gateway.configuration.sections import Config, McpSettings
from gateway.mcp.tools.list import TOOLS


def test_every_tool_can_be_named() -> None:
    assert tuple(TOOLS) == TOOL_NAMES


@pytest.mark.parametrize(("name", "hint"), [("get_cost_dat", "get_cost_data"), ("all", "one of")])
def test_a_name_that_is_no_tool_is_a_mistake(name: str, hint: str) -> None:
    """Else it would switch nothing, in silence."""
    [problem] = problems(Config(mcp=McpSettings(tools={name: False, "log_insight": True})))
    assert problem.startswith("mcp.tools: ") and name in problem and hint in problem
