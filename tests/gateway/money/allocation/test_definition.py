"""The description of a rule in words matches its effect."""

from __future__ import annotations

import pytest

from gateway.money.allocation.definition import allocation_rule_text
from gateway.money.allocation.language import parse_definition

KNOWN = ("model", "team", "provider", "tag:service")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            "{Type: Group, Name: Old, Conditions: [{Source: model, BeginsWith: gpt}]}",
            '"Old" if model begins with "gpt"',
        ),
        (
            "{Type: Group, Name: A, Source: team, Conditions: [{Equals: [x, y]}, {EndsWith: z}]}",
            '"A" if team is "x" or "y" or team ends with "z"',
        ),
        (
            "{Type: Group, Name: A, Source: team, Conditions: [{And: [{Contains: x}, {Not: [{HasValue: "
            "false}]},"
            " {Or: [{Equals: b}, {Source: model, HasValue: true}]}]}]}",
            '"A" if team contains "x" and not (team is unknown) and (team is "b" or model is known)',
        ),
        (
            "{Type: GroupBy, Source: team, Transforms: [{Type: Trim}, {Type: Split, Delimiter: '-', Index: "
            "1}]}",
            'the value of team (Trim; Split at "-", part 1)',
        ),
        (
            "{Type: GroupBy, Sources: [provider, model], Format: '{0}/{1}', Conditions: [{Source: team, "
            "Equals: a}]}",
            '"{0}/{1}" of provider, model if team is "a"',
        ),
        (
            "{Type: GroupBy, Sources: [team, 'tag:service'], CoalesceSources: true}",
            "the value of the first known of team, tag:service",
        ),
    ],
)
def test_a_rule(rule: str, words: str) -> None:
    definition = parse_definition(f"Dimensions: {{D: {{Rules: [{rule}]}}}}".encode(), KNOWN)
    assert words == allocation_rule_text(definition.dimensions[0].rules[0])
