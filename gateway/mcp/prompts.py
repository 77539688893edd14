"""Prompts that clients offer to people, such as commands: each is a request that names the tools to use."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from gateway.mcp.messages import INVALID_PARAMS, McpError
from gateway.mcp.writing import as_text, clean

_MAX_ARGUMENT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """`text` has a place for each of the arguments, which are all required: names with what they mean."""

    name: str
    title: str
    description: str
    text: str
    arguments: Mapping[str, str]

    def shown(self) -> Mapping[str, object]:
        arguments = [
            {"name": name, "description": what, "required": True} for name, what in self.arguments.items()
        ]
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "arguments": arguments,
        }

    def filled(self, given: Mapping[str, str]) -> Mapping[str, object]:
        """The prompt as a message. McpError unless exactly its arguments are given."""
        too_long = any(len(value) > _MAX_ARGUMENT for value in given.values())
        if given.keys() != self.arguments.keys() or too_long:
            wanted = ", ".join(self.arguments) or "nothing"
            raise McpError(
                INVALID_PARAMS, f"{self.name} takes {wanted}, of at most {_MAX_ARGUMENT} characters each"
            )
        text = self.text.format(**{name: as_text(clean(value)) for name, value in given.items()})
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": self.description, "messages": [message]}


_ALL: Sequence[Prompt] = (
    Prompt(
        name="monthly_review",
        title="Monthly review",
        description="What last month cost, on what, and how this month goes",
        text=(
            "Review AI costs. Start with get_org_context. See last_month and month_to_date with "
            "get_cost_data, "
            "by team and by model; compare_costs says what changed. Say with get_budgets which budgets are "
            "at risk, "
            "and with get_insights what stands out. Give amounts with their unit, and say how much is "
            "estimated."
        ),
        arguments={},
    ),
    Prompt(
        name="explain_spike",
        title="Explain a spike",
        description="Why a day cost more than the days before it",
        text=(
            "Explain why AI cost more on {day} than before. With get_cost_data, take the day and the seven "
            "days before "
            "it by model, then by team, user and api_key, and see whether calls, tokens or the cost per call "
            "grew. "
            "Look at get_insights, too. Name the cause with numbers, or say what cannot be told."
        ),
        arguments={"day": "the day, YYYY-MM-DD"},
    ),
    Prompt(
        name="cut_costs",
        title="Cut costs",
        description="Where a team could spend less",
        text=(
            "Find where the team {team} could spend less on AI. With get_cost_data and a filter on the team, "
            "see what "
            "it spends by model in the last 30 days, and the cost per call. Take savings only from "
            "get_optimize_recs "
            "with a filter on the team, with what each would save in a month and what speaks against it."
        ),
        arguments={"team": "the team, as get_dimension_values names it"},
    ),
)
PROMPTS: Mapping[str, Prompt] = {each.name: each for each in _ALL}
_TOOL = re.compile(r"\b(?:get|compare)_\w+")


def prompts_of(tools: Container[str]) -> Mapping[str, Prompt]:
    """Return the prompts whose tools are all there."""
    return {
        name: each
        for name, each in PROMPTS.items()
        if all(tool in tools for tool in _TOOL.findall(each.text))
    }


@lru_cache(maxsize=8)
def listed_prompts(names: tuple[str, ...]) -> msgspec.Raw:
    """The prompts of these names as they are listed, in JSON."""
    return msgspec.Raw(msgspec.json.encode([PROMPTS[name].shown() for name in names]))
