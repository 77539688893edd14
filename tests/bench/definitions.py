"""Allocation definitions as large as a big organization's."""

from __future__ import annotations

RULE = """\
      - Type: Group
        Name: group-{rule}
        Conditions:
          - {{Source: user, Equals: [user-{one}, user-{other}]}}
          - And:
              - {{Source: team, EndsWith: "-{last}"}}
              - {{Source: model, Contains: "-{rule}"}}
"""
OF_THE_ONE_BEFORE = (
    "      - {{Type: Group, Name: First, "
    "Conditions: [{{Source: User:Defined:D{before}, BeginsWith: group}}]}}\n"
)
REST = "      - {Type: GroupBy, Source: team, Transforms: [{Type: Normalize}]}\n"


def definition(dimensions: int, rules: int = 20) -> str:
    """
    Write dimensions that group by user, team and model, and other calls by their team. Every fifth dimension
    reads the previous one.
    """
    text = "Dimensions:\n"
    for number in range(dimensions):
        text += f"  D{number}:\n    DefaultValue: Other\n    Rules:\n"
        if number % 5 == 4:
            text += OF_THE_ONE_BEFORE.format(before=number - 1)
        for rule in range(rules):
            text += RULE.format(rule=rule, one=7 * rule + number, other=11 * rule + number, last=rule % 10)
        text += REST
    return text
