"""Evaluation of a definition: which element a combination of values gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.money.allocation import evaluation
from gateway.money.allocation.definition import AllocationDefinition, Transform
from gateway.money.allocation.evaluation import apply_transforms, build_dimension_evaluators
from gateway.money.allocation.language import parse_definition

KNOWN = ("model", "provider", "team", "user", "tag:service")


def elements(text: str, **values: str) -> dict[str, str]:
    """Return the element of each dimension, by its key."""
    known = {
        **dict.fromkeys(KNOWN, ""),
        **{name.replace("tag_", "tag:"): value for name, value in values.items()},
    }
    return {
        each.dimension.id.removeprefix("User:Defined:"): each.element_of_values(
            tuple(known[name] for name in each.sources)
        )
        for each in build_dimension_evaluators(parse_definition(text.encode(), KNOWN))
    }


def passes(condition: str, **values: str) -> bool:
    text = f"Dimensions: {{D: {{Rules: [{{Type: Group, Name: yes, Conditions: [{condition}]}}]}}}}"
    return elements(text, **values) == {"D": "yes"}


@pytest.mark.parametrize(
    "condition, values, expected",
    [
        ("{Source: team, Equals: a}", {"team": "a"}, True),
        ("{Source: team, Equals: a}", {"team": "A"}, False),
        ("{Source: team, Equals: [a, b]}", {"team": "b"}, True),
        ("{Source: team, BeginsWith: [x, se]}", {"team": "search"}, True),
        ("{Source: team, BeginsWith: ea}", {"team": "search"}, False),
        ("{Source: team, EndsWith: [x, rch]}", {"team": "search"}, True),
        ("{Source: team, Contains: [x, ear]}", {"team": "search"}, True),
        ("{Source: team, Contains: ear}", {}, False),
        ("{Source: team, HasValue: true}", {"team": "a"}, True),
        ("{Source: team, HasValue: true}", {}, False),
        ("{Source: team, HasValue: False}", {}, True),
        ("{Sources: [team, user], Equals: a}", {"team": "b", "user": "a"}, True),
        ("{Sources: [team, user], CoalesceSources: true, Equals: a}", {"team": "b", "user": "a"}, False),
        ("{Sources: [team, user], CoalesceSources: true, Equals: a}", {"user": "a"}, True),
        ("{Sources: [team, user], HasValue: false}", {"user": "a"}, False),
        ("{Source: team, Transforms: [{Type: Lower}], Equals: a}", {"team": "A"}, True),
        ("{And: [{Source: team, Equals: a}, {Source: user, Equals: b}]}", {"team": "a"}, False),
        ("{And: [{Source: team, Equals: a}, {Source: user, Equals: b}]}", {"team": "a", "user": "b"}, True),
        ("{Or: [{Source: team, Equals: a}, {Source: user, Equals: b}]}", {"user": "b"}, True),
        ("{Not: [{Source: team, Equals: a}, {Source: user, Equals: b}]}", {"user": "b"}, False),
        ("{Not: [{Source: team, Equals: a}, {Source: user, Equals: b}]}", {}, True),
        ("{Source: team, Or: [{Equals: a}, {Source: user, Equals: b}]}", {"team": "a"}, True),
    ],
)
def test_conditions(condition: str, values: dict[str, str], expected: bool) -> None:
    assert expected is passes(condition, **values)


@pytest.mark.parametrize(
    "transform, value, expected",
    [
        (Transform("Normalize"), " Platform_Team  (EU) ", "platform-team-eu"),
        (Transform("Normalize"), "Größe", "größe"),
        (Transform("Lower"), "Ab", "ab"),
        (Transform("Upper"), "Ab", "AB"),
        (Transform("Trim"), " a ", "a"),
        (Transform("Split", "-", 0), "a-b", "a"),
        (Transform("Split", "-", 1), "a-b", "b"),
        (Transform("Split", "-", 2), "a-b", ""),
    ],
)
def test_transforms(transform: Transform, value: str, expected: str) -> None:
    assert expected == apply_transforms(value, [transform])


def test_the_first_rule_that_matches_counts() -> None:
    """
    If no rule matches, the element is the default or unknown. A GroupBy without a value lets the next rule try.
    """
    text = """
Dimensions:
  D:
    DefaultValue: Other
    Rules:
      - {Type: Group, Name: First, Conditions: [{Source: team, Equals: a}]}
      - {Type: GroupBy, Source: tag:service, Conditions: [{Source: team, HasValue: true}]}
      - {Type: GroupBy, Sources: [provider, user], Format: "{1} of {0}"}
  E:
    Rules:
      - {Type: GroupBy, Sources: [provider, user], CoalesceSources: true, Format: "by {0}"}
"""
    assert "First" == elements(text, team="a", tag_service="s")["D"]
    assert "s" == elements(text, team="b", tag_service="s")["D"]
    assert "Other" == elements(text, tag_service="s")["D"]
    assert {"D": "{0} of p", "E": "by p"} == elements(text, team="b", provider="p", user="{0}")
    assert {"D": "Other", "E": "by u"} == elements(text, user="u")
    assert {"D": "Other", "E": ""} == elements(text)


def test_earlier_dimensions_are_sources() -> None:
    """
    A dimension may use earlier dimensions as sources. In the end it depends only on values of the ledger.
    """
    text = """
Dimensions:
  A: {Rules: [{Type: GroupBy, Source: team}]}
  B: {Rules: [{Type: GroupBy, Source: user}]}
  C: {Rules: [{Type: GroupBy, Sources: [User:Defined:A, model], Format: "{0}/{1}"}]}
  D: {Rules: [{Type: GroupBy, Source: User:Defined:C}], DefaultValue: none}
"""
    by_id = {
        each.dimension.id: each for each in build_dimension_evaluators(parse_definition(text.encode(), KNOWN))
    }
    assert {"team", "model"} == set(by_id["User:Defined:D"].sources)
    assert {"A": "t", "B": "", "C": "t/m", "D": "t/m"} == elements(text, team="t", model="m")
    assert {"A": "t", "B": "", "C": "", "D": "none"} == elements(text, team="t")


def test_an_element_is_as_long_as_the_ledger_keeps_values() -> None:
    text = 'Dimensions: {D: {Rules: [{Type: GroupBy, Sources: [team, user], Format: "{0}{1}"}]}}'
    assert {"D": "t" * 200 + "u" * 56} == elements(text, team="t" * 200, user="u" * 200)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The number of remembered combinations is limited for all dimensions together. A forgotten combination
    is evaluated again.
    """
    monkeypatch.setattr(evaluation, "MOST_REMEMBERED", 10)
    text = "Dimensions: {A: {Rules: [{Type: GroupBy, Source: team}]}, B: {Rules: [{Type: GroupBy, Source: user}]}}"
    both = build_dimension_evaluators(parse_definition(text.encode(), KNOWN))
    for number in [*range(30), *range(30)]:
        for decision in both:
            assert f"v{number}" == decision.element_of_values((f"v{number}",))
            assert sum(len(one._elements) for one in both) <= 10


def test_without_a_definition_nothing_is_decided() -> None:
    assert [] == list(build_dimension_evaluators(AllocationDefinition()))


@given(
    value=st.text(max_size=20), transforms=st.lists(st.sampled_from(["Normalize", "Lower", "Upper", "Trim"]))
)
def test_transforms_accept_any_value(value: str, transforms: list[str]) -> None:
    """No value of the ledger makes a query fail. Normalizing twice equals normalizing once."""
    apply_transforms(value, [Transform(each) for each in transforms])
    once = apply_transforms(value, [Transform("Normalize")])
    assert once == apply_transforms(once, [Transform("Normalize")])
